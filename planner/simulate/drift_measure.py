"""What drift does to the jobs of a plan: progress, slowdown and SLO, version by version.

*What happens*. Every version of every group is cut at the hours of the review. In each piece phase
seconds are those in its middle, and the group runs in the orders of the version, each phase as
early as these allow: in the long run with the least period of these orders, a maximum cycle ratio
(:mod:`models.group.cycle_ratio`), for all its jobs, as in the strict rounds that were planned. So a
job does ``k / C`` iterations a second, none while it restarts.

*SLO*. ``sigma_j`` is a tolerated slowdown. A job's slowdown is its elapsed seconds, restarts
included, over what its iterations would have taken alone at the lengths they had; it attains its
SLO up to ``sigma_j`` (within 1e-6). Of ``slo_fixed`` it is the seconds alone as they were planned.

Assumptions: within a piece lengths are constant, and the start-up of new orders takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from instances.errors import UnsupportedError
from instances.jobs import Job
from instances.plan import GroupVersion, Plan
from models.group.cycle_ratio import least_period, order_of
from models.problem.group_shape import GroupShape
from planner.replay.version_losses import paused_within
from planner.simulate.drift_templates import Lengths

__all__ = ["JobDrift", "measured"]

_REL: Final = 1e-6


@dataclass(slots=True)
class JobDrift:
    """What drift did to one job.

    Attributes
    ----------
    elapsed_s : float
        From start to departure, restarts included.
    iterations : float
    alone_s, planned_s : float
        Seconds that its iterations take alone: at the lengths they had, and as planned.
    late_s : float
        Seconds of pieces in which its mean iteration is longer than its SLO allows.
    """

    slo: float
    elapsed_s: float = 0.0
    iterations: float = 0.0
    alone_s: float = 0.0
    planned_s: float = 0.0
    late_s: float = 0.0

    @property
    def slowdown(self) -> float:
        """Elapsed seconds over seconds alone; infinite without progress."""
        return self.elapsed_s / self.alone_s if self.alone_s else float("inf")

    @property
    def attained(self) -> bool:
        """Whether the slowdown is within the SLO."""
        return self.elapsed_s <= self.slo * self.alone_s * (1 + _REL)

    @property
    def attained_fixed(self) -> bool:
        """Whether it is within the deadline planned at arrival."""
        return self.elapsed_s <= self.slo * self.planned_s * (1 + _REL)


def measured(
    plan: Plan, lengths: Lengths, stays: Mapping[str, tuple[float, float]], epoch_s: float
) -> dict[str, JobDrift]:
    """Return what drift does to the jobs of a plan; see the module docstring.

    Parameters
    ----------
    plan : Plan
        Made with any seconds: its jobs' seconds are those that ``attained_fixed`` goes by.
    lengths : Lengths
        Of the same jobs.
    stays : mapping of str to (float, float)
        Start and departure of each sync job.
    epoch_s : float
        Lengths are constant within pieces of so many seconds, counted from the first arrival.

    Raises
    ------
    UnsupportedError
        For a plan in which jobs fail: what they lost is not followed through the drift.
    """
    if plan.losses:
        raise UnsupportedError(
            "Expected a plan in which no job fails, got one with losses: drift and failures are "
            "not measured together."
        )
    index = {job_id: i for i, job_id in enumerate(lengths.jobs.job_id)}
    planned = {job.job_id: job for job in plan.jobs if job.job_id in stays}
    out = {
        job_id: JobDrift(slo=planned[job_id].slo, elapsed_s=to_s - from_s)
        for job_id, (from_s, to_s) in stays.items()
    }
    paused_s = paused_within(plan)
    first_s = float(lengths.jobs.arrival_s.min())
    for version in plan.groups:
        for from_s, to_s in _pieces(version, first_s, epoch_s):
            middle_s = (from_s + to_s) / 2
            jobs = []
            for placement in version.placements:
                job_id = placement.job_id
                start_s = stays[job_id][0]
                running_s = middle_s - start_s - paused_s(job_id, start_s, middle_s)
                rollout_s, train_s = lengths.phases_s(index[job_id], running_s)
                jobs.append(replace(planned[job_id], rollout_s=rollout_s, train_s=train_s))
            period_s = _period_s(version, jobs)
            for placement, job in zip(version.placements, jobs, strict=True):
                each = out[job.job_id]
                each_s = period_s / placement.rate
                seconds = to_s - from_s
                iterations = (seconds - paused_s(job.job_id, from_s, to_s)) / each_s
                each.iterations += iterations
                each.alone_s += iterations * job.solo_s
                each.planned_s += iterations * planned[job.job_id].solo_s
                if each_s > job.deadline_s * (1 + _REL):
                    each.late_s += seconds
    return out


def _pieces(version: GroupVersion, first_s: float, epoch_s: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of a version's time that end at whole epochs."""
    from_s = version.from_s
    number = int((from_s - first_s) // epoch_s) + 1
    while from_s < version.to_s:
        to_s = min(first_s + number * epoch_s, version.to_s)
        number += 1
        if to_s > from_s:
            yield from_s, to_s
            from_s = to_s


def _period_s(version: GroupVersion, jobs: Sequence[Job]) -> float:
    """Return the least period of a version's orders at these seconds."""
    placements = version.placements
    shape = GroupShape.of(
        jobs,
        [placement.rollout_pins for placement in placements],
        [placement.train_pins for placement in placements],
        [placement.rate for placement in placements],
    )
    order = order_of(shape, version.period_s, tuple(p.starts_s for p in placements))
    return least_period(shape, order).period_s
