"""What one run of a group's version did: per job, per node, and phase by phase when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from instances.jobs import Job
from instances.plan import GroupVersion
from planner.simulate.runtime_kernel import BINS_PER_OCTAVE, OCTAVES_BELOW, Found, State, Window
from planner.simulate.runtime_setup import Discipline, LaidOut

__all__ = [
    "POOLS",
    "SLO_EPS",
    "SLO_EPS_S",
    "Event",
    "GroupRun",
    "JobRun",
    "group_run",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

POOLS: Final = ("rollout", "train")
#: Relative slack of the SLO on attained times, and absolute, seconds: as in replays.
SLO_EPS: Final = 1e-9
SLO_EPS_S: Final = 1e-6


class Event(NamedTuple):
    """One phase that ran.

    Attributes
    ----------
    job : int
        Position in the version.
    pool : {"rollout", "train"}
    iteration : int
        Within the run, from 0.
    start_s, run_s, end_s : float
        Start of the switch, of the run, and the end.
    """

    job: int
    pool: str
    iteration: int
    start_s: float
    run_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """One job of a :class:`GroupRun`.

    Attributes
    ----------
    iterations : float
        Done within the horizon, the last in part.
    mean_iteration_s : float or None
        Horizon over iterations; ``None`` without any.
    sd_s, p50_s, p95_s, p99_s, longest_s : float or None
        Of single iterations, start to start; percentiles are good to 1.1 %.
    late_share : float
        Single iterations that took longer than ``D_j``.
    slowdown : float or None
        Mean iteration time over ``T_j``.
    """

    job_id: str
    iterations: float
    mean_iteration_s: float | None
    sd_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    longest_s: float | None
    late_share: float
    slowdown: float | None
    deadline_s: float
    slo_met: bool

    @property
    def row(self) -> dict[str, Any]:
        """The row as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupRun:
    """What one run of a version did.

    Attributes
    ----------
    jobs : tuple of JobRun
    rollout_utilisation, train_utilisation : mapping of int to float
        Per node, the share of the horizon in which a phase runs, switches apart.
    rollout_switching, train_switching : mapping of int to float
        And in which a switch does.
    work_s : ndarray, (n_jobs, 2)
        Run seconds of the iterations done, rollout and train, on each of their nodes.
    horizon_s : float
    phases : int
        Phases started.
    complete : bool
        Whether it ran to its end; a deadline cuts it short.
    events : tuple of Event
        As many of the first as were asked for, by start.
    """

    version: GroupVersion
    discipline: Discipline
    jobs: tuple[JobRun, ...]
    rollout_utilisation: dict[int, float]
    train_utilisation: dict[int, float]
    rollout_switching: dict[int, float]
    train_switching: dict[int, float]
    work_s: FloatArray
    horizon_s: float
    phases: int
    complete: bool
    events: tuple[Event, ...] = ()

    @property
    def iterations(self) -> float:
        """Iterations of all jobs."""
        return sum(job.iterations for job in self.jobs)

    def utilisation(self, pool: str) -> float:
        """Return the mean over the nodes of a pool."""
        nodes = self.rollout_utilisation if pool == "rollout" else self.train_utilisation
        return sum(nodes.values()) / len(nodes)


def group_run(
    group: LaidOut,
    discipline: Discipline,
    horizon_s: float,
    parts: tuple[Window, State, Found],
    complete: bool,
) -> GroupRun:
    """Return what the arrays say."""
    window, state, found = parts
    ran_s = np.full(len(group.members), horizon_s)
    if not complete:  # up to the last rollout that started
        ran_s = np.where(state.done > 0, ran_s, np.maximum(state.began - window.opens_s, 0.0))
    share = found.busy / horizon_s
    per_pool = [
        {node: float(share[i, kind]) for i, (pool, node) in enumerate(group.nodes) if pool == p}
        for kind in (0, 1)
        for p in (0, 1)
    ]
    return GroupRun(
        version=group.version,
        discipline=discipline,
        jobs=tuple(
            _job_run(job, found.sums[j], found.bins[j], float(ran_s[j]))
            for j, job in enumerate(group.members)
        ),
        rollout_utilisation=per_pool[0],
        train_utilisation=per_pool[1],
        rollout_switching=per_pool[2],
        train_switching=per_pool[3],
        work_s=found.work[:, 0].reshape(-1, 2),
        horizon_s=horizon_s,
        phases=int(found.counts[1]),
        complete=complete,
        events=tuple(
            Event(int(e[0]), POOLS[int(e[1])], int(e[2]), float(e[3]), float(e[4]), float(e[5]))
            for e in found.events[: found.counts[0]]
        ),
    )


def _job_run(job: Job, sums: FloatArray, bins: IntArray, ran_s: float) -> JobRun:
    """Return one job's figures from its sums."""
    whole, total_s, squares, longest, late, done = (float(value) for value in sums)
    mean_s = ran_s / done if done > 0 else None
    variance = max(squares / whole - (total_s / whole) ** 2, 0.0) if whole else 0.0
    return JobRun(
        job_id=job.job_id,
        iterations=done,
        mean_iteration_s=mean_s,
        sd_s=variance**0.5 if whole else None,
        p50_s=_percentile(bins, 0.5, job.solo_s, longest),
        p95_s=_percentile(bins, 0.95, job.solo_s, longest),
        p99_s=_percentile(bins, 0.99, job.solo_s, longest),
        longest_s=longest if whole else None,
        late_share=late / whole if whole else 0.0,
        slowdown=mean_s / job.solo_s if mean_s is not None else None,
        deadline_s=job.deadline_s,
        slo_met=mean_s is not None and mean_s <= job.deadline_s * (1 + SLO_EPS) + SLO_EPS_S,
    )


def _percentile(bins: IntArray, share: float, solo_s: float, longest_s: float) -> float | None:
    """Return the upper end of the bin that holds a quantile, seconds; never above the longest."""
    total = int(bins.sum())
    if not total:
        return None
    at = int(np.searchsorted(np.cumsum(bins), share * total * (1 - 1e-12)))
    octaves = (at + 1) / BINS_PER_OCTAVE - OCTAVES_BELOW
    return float(min(solo_s * 2.0**octaves, longest_s))
