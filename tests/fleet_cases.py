"""Replays on a fixed fleet, and small independent simulations of their queues."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from builders import options_of, random_job, table_of
from instances.checker import check_plan
from instances.jobs import Job, JobTable
from instances.plan import Fleet
from planner.policies.policy import QueueRule
from planner.replay.replaying import Convention, ReplayResult, replay

#: Policies that keep to a fleet.
POLICIES = ("weave", "solo", "colocated", "random", "most-idle", "gavel", "swapping")
QUEUES: tuple[QueueRule, ...] = ("fifo", "backfill")


def fixed(
    jobs: JobTable,
    policy: str,
    fleet: tuple[int, int],
    *,
    convention: Convention = "work",
    queue: QueueRule = "fifo",
    check: bool = True,
    **options: Any,
) -> ReplayResult:
    """Replay on a fleet."""
    made = options_of(fleet=Fleet(*fleet), queue=queue, **options)
    return replay(jobs, policy, made, convention=convention, check=check)


def random_jobs(seed: int, n: int = 14, *, spread_s: int = 60) -> JobTable:
    """Return jobs that are there for about 100 s each, some at the same instant, some async."""
    rng = random.Random(seed)
    return table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=float(rng.randint(0, spread_s)),
                duration_s=float(rng.choice((20, 60, 100, 100, 250))),
                mode=rng.choice(("sync", "sync", "sync", "async")),
            )
            for i in range(n)
        )
    )


def require_kept(result: ReplayResult) -> None:
    """Require what every fixed fleet promises: nodes, starts, stays and prices, all jobs done."""
    assert result.plan is not None
    assert result.fleet is not None
    assert result.peak_nodes["rollout"] <= result.fleet.rollout_nodes
    assert result.peak_nodes["train"] <= result.fleet.train_nodes
    assert all(r.departure_s > r.start_s >= r.job.arrival_s for r in result.records)
    assert result.timeline.waiting[-1] == result.timeline.jobs[-1] == 0
    counts = check_plan(result.plan).counts
    if result.policy in ("colocated", "swapping"):  # no rollout nodes: outside the rules of groups
        counts = {rule: n for rule, n in counts.items() if rule in ("fleet", "start", "cost")}
    if result.policy in ("random", "most-idle"):
        counts.pop("slo", None)
    if result.policy == "gavel":  # several iterations a turn, and one switch for all of them
        for rule in ("rate", "precedence", "overlap"):
            counts.pop(rule, None)
    assert counts == {}


def ends_s(jobs: Sequence[Job], starts: dict[str, float]) -> list[tuple[float, Job]]:
    return sorted(
        ((starts[job.job_id] + job.duration_s, job) for job in jobs if job.job_id in starts),
        key=lambda end: end[0],
    )


class NodeQueue:
    """A queue for nodes alone, every job with its own: an oracle for solo, event by event.

    Written apart from the planner: at each moment free nodes are counted from scratch.
    """

    def __init__(self, jobs: JobTable, fleet: tuple[int, int]) -> None:
        self.jobs, self.fleet, self._at = list(jobs), fleet, -math.inf

    def fits(self, job: Job, now_s: float, starts: dict[str, float]) -> bool:
        running = [
            j for j in self.jobs if j.job_id in starts and starts[j.job_id] + j.duration_s > now_s
        ]
        used = (sum(j.rollout_nodes for j in running), sum(j.train_nodes for j in running))
        return (
            used[0] + job.rollout_nodes <= self.fleet[0]
            and used[1] + job.train_nodes <= self.fleet[1]
        )

    def promise_s(self, head: Job, now_s: float, starts: dict[str, float]) -> float:
        """Return when the head starts if nobody else does."""
        moments = [end for end, _ in ends_s(self.jobs, starts) if end > now_s]
        return next(t for t in [now_s, *moments] if self.fits(head, t, starts))

    def starts(self, queue: QueueRule) -> dict[str, float]:
        starts: dict[str, float] = {}
        waiting: list[Job] = []
        arrivals = sorted({job.arrival_s for job in self.jobs})
        while True:
            ends = [end for end, _ in ends_s(self.jobs, starts)]
            later = [t for t in (*arrivals, *ends) if t > self._at]
            if not later:
                return starts
            self._at = min(later)
            waiting += [job for job in self.jobs if job.arrival_s == self._at]
            self._admit(waiting, starts, queue)

    def _admit(self, waiting: list[Job], starts: dict[str, float], queue: QueueRule) -> None:
        now_s = self._at
        while waiting:
            head = waiting[0]
            if self.fits(head, now_s, starts):
                starts[waiting.pop(0).job_id] = now_s
                continue
            if queue == "fifo":
                return
            promise_s = self.promise_s(head, now_s, starts)
            for job in waiting[1:]:
                trial = {**starts, job.job_id: now_s}
                if (
                    self.fits(job, now_s, starts)
                    and self.promise_s(head, now_s, trial) <= promise_s
                ):
                    starts[job.job_id] = now_s
                    waiting.remove(job)
                    break
            else:
                return
