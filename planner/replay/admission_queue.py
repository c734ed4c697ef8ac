"""The queue of jobs that wait for a fixed fleet: who may start now.

With nothing to rent, a job starts when its policy can place it on the nodes that are free; until
then it waits. Jobs queue in order of arrival, async jobs too: their dedicated nodes come out of
the same fleet. Whenever nodes or groups have changed, the first of the queue, its *head*, is
tried, then the next, until one does not fit.

* ``fifo``: nobody passes the head;
* ``backfill``: a later job may start while the head waits, if that never delays the head
  (:mod:`planner.replay.backfill`).

All events of a moment are over before anybody starts, so that who leaves at that moment is out
of the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from instances.errors import InfeasibleError
from instances.jobs import JobTable
from instances.plan import Fleet
from planner.policies.policy import Policy, QueueRule, Room, fits
from planner.policies.wait_target import TargetMissed, WaitTarget

__all__ = ["AdmissionQueue", "require_within_fleet"]


def require_within_fleet(jobs: JobTable, policy: Policy, fleet: Fleet) -> None:
    """Require that every job can run alone on an empty fleet: it would wait for ever.

    Raises
    ------
    InfeasibleError
        Naming the first job that is larger, its nodes and the fleet's.
    """
    room = (fleet.rollout_nodes, fleet.train_nodes)
    for job in jobs:
        own = (job.rollout_nodes, job.train_nodes)
        nodes = own if job.mode == "async" else policy.nodes_alone(job)
        if fits(nodes, room):
            continue
        i = 0 if nodes[0] > room[0] else 1
        pool = ("rollout", "train")[i]
        raise InfeasibleError(
            f"Expected a fleet of at least {nodes[i]} {pool} node{'s' * (nodes[i] != 1)}, got "
            f"{fleet}: job '{job.job_id}' is larger than the fleet."
        )


@dataclass(slots=True)
class AdmissionQueue:
    """Jobs that wait, first come first.

    Attributes
    ----------
    arrival_s : sequence of float
        Of every job of the trace, by number.
    waiting : list of int
        Numbers of the jobs that wait, in order of arrival.
    called : bool
        Whether the queue is to be looked at before time goes on.
    late : int
        Jobs that started later than the target allows.
    """

    fleet: Fleet
    rule: QueueRule
    arrival_s: Sequence[float]
    target: WaitTarget | None = None
    waiting: list[int] = field(default_factory=list)
    called: bool = False
    late: int = 0

    def room(self, rollout_nodes: int, train_nodes: int) -> Room:
        """Return the free nodes of each pool while so many are in use."""
        return self.fleet.rollout_nodes - rollout_nodes, self.fleet.train_nodes - train_nodes

    def start(self, at: int, now_s: float) -> None:
        """Take the job at place ``at`` out of the queue: it starts now."""
        i = self.waiting.pop(at)
        self.late += self._is_late(i, now_s)

    def check(self, now_s: float) -> None:
        """Give up when more jobs than allowed have waited too long, the queue's included.

        Raises
        ------
        TargetMissed
        """
        if self.target is None:
            return
        late, allowed = self.late, self.target.late_allowed(len(self.arrival_s))
        for i in self.waiting:  # in order of arrival, so who is late comes first
            if late > allowed or not self._is_late(i, now_s):
                break
            late += 1
        if late > allowed:
            raise TargetMissed(now_s)

    def _is_late(self, i: int, now_s: float) -> bool:
        return self.target is not None and now_s - self.arrival_s[i] > self.target.wait_s
