"""How often the placer pays more for less: counts over random draws of snapshots.

The least cost of a snapshot never rises with host DRAM, nor when a job leaves: the plan without
the job, or with more room, is still a plan. The placer is greedy and promises neither. A draw is
``n_jobs`` jobs of a table, taken at random without repetition, in order of arrival; they are
placed one after another with nobody leaving. Counted:

* *DRAM*: the placed jobs cost more at the higher of two levels of host DRAM than at the lower;
* *jobs*: they cost more when one of them, taken at random, was never there.

Draws in which a job fits no node at a level are left out of that pair's count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from instances.errors import InfeasibleError, InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from models.problem.result import usd_of
from models.problem.snapshot import Snapshot
from planner.placement.placer import PlacerParams
from planner.placement.warm_start import from_scratch

__all__ = ["LESS_DRAM_GB", "MonotoneCount", "count_dearer", "placed_usd"]

Progress = Callable[[int, int], None]

#: Levels of host DRAM, GB, held against each other in pairs.
LESS_DRAM_GB: Final = (600.0, 1000.0, 1500.0, 2000.0, 3000.0)
_LIMITS: Final = Limits()
_PARAMS: Final = PlacerParams()
#: Prices within this relative distance are the same.
_SAME: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class MonotoneCount:
    """How often one kind of relief made the placer dearer.

    Attributes
    ----------
    relief : str
        What was made easier.
    draws : int
        Comparisons made.
    dearer, cheaper : int
        How many cost more with the relief, and less.
    worst_share : float
        The most that it cost more, as a share; 0 where it never did.
    """

    relief: str
    draws: int
    dearer: int
    cheaper: int
    worst_share: float

    @property
    def dearer_share(self) -> float | None:
        """Share of comparisons that cost more; ``None`` without any."""
        return self.dearer / self.draws if self.draws else None

    @property
    def row(self) -> dict[str, Any]:
        """The row as plain values."""
        return {**dataclasses.asdict(self), "dearer_share": self.dearer_share}


def placed_usd(
    table: JobTable,
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    params: PlacerParams = _PARAMS,
) -> float | None:
    """Return what the placer's plan of jobs that all stay costs, $/h.

    ``None`` when a job cannot run even alone.
    """
    snapshot = Snapshot(table=table, cluster=cluster, limits=limits)
    try:
        return usd_of(snapshot, from_scratch(snapshot, params))
    except InfeasibleError:
        return None


class _Counter:
    """Pairs of prices, without a relief and with it."""

    def __init__(self, relief: str) -> None:
        self.relief = relief
        self.draws = self.dearer = self.cheaper = 0
        self.worst = 0.0

    def add(self, before_usd: float | None, after_usd: float | None) -> None:
        """Count one comparison, unless a price is unknown."""
        if before_usd is None or after_usd is None:
            return
        self.draws += 1
        self.dearer += after_usd > before_usd * (1 + _SAME)
        self.cheaper += after_usd < before_usd * (1 - _SAME)
        if before_usd > 0:
            self.worst = max(self.worst, after_usd / before_usd - 1)

    def done(self) -> MonotoneCount:
        """Return the counts."""
        return MonotoneCount(
            relief=self.relief,
            draws=self.draws,
            dearer=self.dearer,
            cheaper=self.cheaper,
            worst_share=self.worst if self.dearer else 0.0,
        )


def _with_dram(cluster: Cluster, host_dram_gb: float) -> Cluster:
    return cluster.replace(
        rollout=dataclasses.replace(cluster.rollout, host_dram_gb=host_dram_gb),
        train=dataclasses.replace(cluster.train, host_dram_gb=host_dram_gb),
    )


def count_dearer(  # noqa: PLR0913 - one argument per choice of the study
    table: JobTable,
    *,
    draws: int,
    n_jobs: int,
    seed: int = 0,
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    params: PlacerParams = _PARAMS,
    dram_gb: Sequence[float] = LESS_DRAM_GB,
    progress: Progress | None = None,
) -> tuple[MonotoneCount, ...]:
    """Count how often relief makes the placer dearer (module docstring).

    Parameters
    ----------
    table : JobTable
        Where jobs are drawn from, all but the async ones.
    draws, n_jobs : int
        Draws, and jobs in each.
    seed : int
    dram_gb : sequence of float
        Levels of host DRAM, ascending.
    progress : callable, optional
        Called with (draws done, draws).

    Returns
    -------
    tuple of MonotoneCount
        One per step of host DRAM, then that of a job that leaves.

    Raises
    ------
    InputError
        When fewer than ``n_jobs`` jobs share nodes, ``n_jobs`` is below 2 or ``draws`` below 1.
    """
    pool = table.where_sharing()
    if draws < 1 or not 2 <= n_jobs <= len(pool):
        raise InputError(
            f"Expected draws >= 1 and 2 <= n_jobs <= {len(pool)} jobs that share nodes, got "
            f"{draws} and {n_jobs}."
        )
    rng = np.random.default_rng(seed)
    steps = [_Counter(f"host DRAM {low:g} -> {high:g} GB") for low, high in pairwise(dram_gb)]
    leaving = _Counter("one job fewer")
    for draw in range(1, draws + 1):
        drawn = np.sort(rng.choice(pool, size=n_jobs, replace=False))
        gone = int(rng.integers(n_jobs))
        jobs = table.take(drawn)
        prices = [placed_usd(jobs, _with_dram(cluster, gb), limits, params) for gb in dram_gb]
        for step, pair in zip(steps, pairwise(prices), strict=True):
            step.add(*pair)
        fewer = table.take(np.delete(drawn, gone))
        leaving.add(
            placed_usd(jobs, cluster, limits, params), placed_usd(fewer, cluster, limits, params)
        )
        if progress is not None:
            progress(draw, draws)
    return (*(step.done() for step in steps), leaving.done())
