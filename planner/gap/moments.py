"""The moments of a replay: intervals in which nobody comes or goes, and what the policy paid.

A moment is an interval between two consecutive arrivals or departures. Its *snapshot* is the set
of jobs present that may share nodes; async jobs hold nodes of their own, which no plan changes,
so their price is kept apart and left out of every ratio.

Who is present? Under ``wallclock`` a job is, from its arrival for its ``duration_s``, whatever
pauses a policy that moves jobs adds to that. So the moments do not depend on the policy. Every
plan of a replay with pauses holds the jobs that would be there without them, and more; a plan
without some of its jobs is a plan; hence no policy pays less than the least cost of the moment's
jobs. What it pays may change within a moment, where it moves a job or lets nodes go: its price is
the mean. What it pays while nobody would be there any more is a moment without jobs.

Under ``work`` a job is present as long as the policy has it, its pauses included.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import FleetPlannerError, UnsupportedError
from planner.replay.replaying import ReplayResult

__all__ = ["Moment", "moments_of"]

FloatArray = npt.NDArray[np.float64]

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One interval of a replay.

    Attributes
    ----------
    from_s, to_s : float
        Seconds of the trace.
    jobs : tuple of int
        Sync jobs present, indices of the trace's table, ascending.
    usd_per_hour : float
        What the policy paid for nodes other than those of async jobs, $/h, in the mean.
    dedicated_usd_per_hour : float
        What the async jobs' nodes cost, $/h.
    """

    from_s: float
    to_s: float
    jobs: tuple[int, ...]
    usd_per_hour: float
    dedicated_usd_per_hour: float

    @property
    def hours(self) -> float:
        """Length, hours."""
        return (self.to_s - self.from_s) / _HOUR_S


def moments_of(result: ReplayResult) -> tuple[Moment, ...]:
    """Return the moments of a replay in order of time, those without jobs included.

    Raises
    ------
    UnsupportedError
        When a job waited for nodes of a fixed fleet: it is there for longer than it runs, and the
        least price of those that run says nothing about a policy that lets nobody wait.
    FleetPlannerError
        When records and timeline disagree on how many jobs are present: a fault of the program.
    """
    _require_nobody_waited(result)
    _require_all_there(result)
    jobs, time_s = result.jobs, result.timeline.time_s
    gone_s = _until_s(result)
    come = np.argsort(jobs.arrival_s, kind="stable").tolist()
    gone = np.argsort(gone_s, kind="stable").tolist()
    apart = {int(i): jobs.job(int(i)) for i in jobs.where_mode("async")}
    # rows of the timeline at which somebody comes or goes, and the last
    turns = np.unique(np.concatenate([jobs.arrival_s, gone_s]))
    turns = turns[turns < time_s[-1]]
    rows = [*np.searchsorted(time_s, turns).tolist(), len(time_s) - 1]
    if not np.array_equal(time_s[rows[:-1]], turns):
        raise FleetPlannerError("Expected a row of the timeline whenever a job comes or goes.")
    present: set[int] = set()
    out = []
    next_come = next_gone = 0
    for row, until in pairwise(rows):
        now_s = time_s[row]
        while next_come < len(come) and jobs.arrival_s[come[next_come]] <= now_s:
            present.add(come[next_come])
            next_come += 1
        while next_gone < len(gone) and gone_s[gone[next_gone]] <= now_s:
            present.discard(gone[next_gone])
            next_gone += 1
        dedicated = [apart[i] for i in present if i in apart]
        held = sum(j.rollout_nodes for j in dedicated), sum(j.train_nodes for j in dedicated)
        out.append(
            Moment(
                from_s=float(now_s),
                to_s=float(time_s[until]),
                jobs=tuple(sorted(i for i in present if i not in apart)),
                usd_per_hour=_paid(result, row, until, held),
                dedicated_usd_per_hour=result.cluster.usd_per_hour(*held),
            )
        )
    return tuple(out)


def _until_s(result: ReplayResult) -> FloatArray:
    """Return when each job is gone (module docstring), ``(n_jobs,)`` seconds."""
    if result.convention == "wallclock":
        return result.jobs.arrival_s + result.jobs.duration_s
    return np.array([record.departure_s for record in result.records])


def _require_nobody_waited(result: ReplayResult) -> None:
    for record in result.records:
        for waited_s, when in (
            (record.wait_s, "on arrival"),
            (record.requeued_s, "when it failed"),
        ):
            if waited_s > 0:
                raise UnsupportedError(
                    f"Expected a replay in which no job waits for nodes, got job "
                    f"'{record.job.job_id}' waiting {waited_s / _HOUR_S:.4g} h {when}: replay it "
                    "without a fixed fleet."
                )


def _require_all_there(result: ReplayResult) -> None:
    """Hold the timeline's count of jobs against arrivals and departures of the records."""
    line = result.timeline
    left_s = np.sort([record.departure_s for record in result.records])
    come = np.searchsorted(np.sort(result.jobs.arrival_s), line.time_s, side="right")
    present = come - np.searchsorted(left_s, line.time_s, side="right")
    wrong = np.flatnonzero(present != line.jobs)
    if wrong.size:
        row = int(wrong[0])
        raise FleetPlannerError(
            f"Expected {line.jobs[row]} jobs present at {line.time_s[row]:.1f} s, got "
            f"{present[row]}: a fault of the program, not of the input."
        )


def _paid(result: ReplayResult, row: int, until: int, dedicated: tuple[int, int]) -> float:
    """Return the mean price of some rows of the timeline, dedicated nodes left out, $/h."""
    line, usd_per_hour = result.timeline, result.cluster.usd_per_hour
    prices = [
        usd_per_hour(int(rollout) - dedicated[0], int(train) - dedicated[1])
        for rollout, train in zip(
            line.rollout_nodes[row:until], line.train_nodes[row:until], strict=True
        )
    ]
    if len(set(prices)) == 1:
        return prices[0]
    return float(np.average(prices, weights=np.diff(line.time_s[row : until + 1])))
