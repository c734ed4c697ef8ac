"""Policy ``swapping``: co-location that also swaps states.

As ``colocated`` a job runs both of its phases on its train nodes, every iteration
``colocated_factor`` times as long as alone on nodes of both kinds. Here two or more jobs may share
such nodes in turns, as those of :mod:`planner.policies.gavel` share theirs, with the same shares of
time and the same rules of joining. At the start of its turn a job swaps the states of both phases
into the GPUs, ``rollout_switch_s + train_switch_s`` warm; both states of every job stay in the host
DRAM of each of its train nodes.

So two jobs share where ``f / sigma_1 + f / sigma_2 <= 1``, ``f`` the factor: an iteration needs
the whole node all the time, and sharing one saves only where deadlines leave nodes without work.

Kept and not kept: as ``gavel``, but that jobs have no rollout node, which the checker reports as
``gang``. A job slower than its SLO even alone (``f > sigma``) shares nothing and runs late.
"""

from __future__ import annotations

from instances.jobs import Job
from planner.policies.gavel import TakesTurns
from planner.policies.policy import Room
from planner.policies.time_slots import Turn, switch_seconds

__all__ = ["Swapping"]


class Swapping(TakesTurns):
    """Turns on train nodes that run both phases."""

    name = "swapping"

    def nodes_alone(self, job: Job) -> Room:
        """Return train nodes only: both phases run there."""
        return 0, job.train_nodes

    def turn(self, job: Job) -> Turn:
        """Return iterations x the factor; starts leave the swap out, which is before a phase."""
        factor = self.options.colocated_factor
        swap_s = sum(switch_seconds(job, self.params.switch))
        again = (0.0, factor * job.rollout_s)
        return Turn(
            # on the same nodes nothing runs side by side, one-step or not
            iteration_s=factor * (job.rollout_s + job.train_s + job.sync_s),
            switch_s=swap_s,
            deadline_s=job.deadline_s,
            slo=job.slo,
            solo_s=job.solo_s,
            first=(swap_s + again[0], swap_s + again[1]),
            again=again,
        )

    def states_gb(self, job: Job) -> tuple[float, float]:
        """Return nothing on rollout nodes, and both states on train nodes."""
        return 0.0, job.rollout_state_gb + job.train_state_gb

    def require_alone(self, job: Job) -> None:
        """Require nothing: a job alone swaps nothing, as under ``colocated``."""
