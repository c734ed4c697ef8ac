"""The moments of a replay: intervals in which nobody comes or goes, and what the policy paid.

A moment is the interval between two consecutive events of the replay. Its *snapshot* is the set
of jobs present that may share nodes; async jobs hold nodes of their own, which no plan changes,
so their price is kept apart and left out of every ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from instances.errors import FleetPlannerError
from planner.replay import ReplayResult

__all__ = ["Moment", "moments_of"]

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
        What the policy paid for the nodes of these jobs, $/h.
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
    FleetPlannerError
        When records and timeline disagree on how many jobs are present: a fault of the program.
    """
    line, cluster = result.timeline, result.cluster
    arrival_s = result.jobs.arrival_s
    departure_s = np.array([record.departure_s for record in result.records])
    come = np.argsort(arrival_s, kind="stable").tolist()
    gone = np.argsort(departure_s, kind="stable").tolist()
    apart = {int(i): result.jobs.job(int(i)) for i in result.jobs.where_mode("async")}
    present: set[int] = set()
    out = []
    next_come = next_gone = 0
    for row in range(len(line.time_s) - 1):
        now_s = line.time_s[row]
        while next_come < len(come) and arrival_s[come[next_come]] <= now_s:
            present.add(come[next_come])
            next_come += 1
        while next_gone < len(gone) and departure_s[gone[next_gone]] <= now_s:
            present.discard(gone[next_gone])
            next_gone += 1
        if len(present) != line.jobs[row]:
            raise FleetPlannerError(
                f"Expected {line.jobs[row]} jobs present at {now_s:.1f} s, got {len(present)}: a "
                "fault of the program, not of the input."
            )
        dedicated = [apart[i] for i in present if i in apart]
        held = [sum(j.rollout_nodes for j in dedicated), sum(j.train_nodes for j in dedicated)]
        rollout = int(line.rollout_nodes[row]) - held[0]
        train = int(line.train_nodes[row]) - held[1]
        out.append(
            Moment(
                from_s=float(now_s),
                to_s=float(line.time_s[row + 1]),
                jobs=tuple(sorted(i for i in present if i not in apart)),
                usd_per_hour=cluster.usd_per_hour(rollout, train),
                dedicated_usd_per_hour=cluster.usd_per_hour(*held),
            )
        )
    return tuple(out)
