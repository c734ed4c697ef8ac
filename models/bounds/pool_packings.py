"""Whole packings of one pool from generated columns: price-and-branch by diving.

The bins of a fractional packing with large weights are kept, the jobs left over are a smaller
problem of the same kind, its columns are generated anew from what is left of the old ones, and so
on; the last few jobs are packed by a MIP over their columns. Each step can be stopped: what is
not packed yet is completed by first fit. Several dives differ by the seed, and end at the bound
or at the deadline.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from models.backends.highs_model import INFINITY, HighsModel
from models.bounds.columns import Generation, PoolBound, Until
from models.bounds.first_fit import first_fit, packings
from models.bounds.pool_items import PoolItems
from models.problem.options import Deadline
from models.problem.result import StoppedBy

__all__ = ["is_packing", "price_and_branch"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Bin = tuple[int, ...]

#: Bins of at least this weight are kept.
_KEEP_FROM: Final = 0.65
#: Share of the bins of a fractional packing that are kept in any case, of few jobs and of many.
_KEEP_SHARE: Final = 0.04
_KEEP_SHARE_LARGE: Final = 0.15
#: Jobs below which the rest is a MIP, and its limits.
_SMALL: Final = 45
_MIP_NODES: Final = 200
_MIP_SECONDS: Final = 10.0
#: Jobs beyond which columns are generated for a few rounds only.
_LARGE: Final = 400
_FEW_ROUNDS: Final = 2
#: Most dives.
_DIVES: Final = 12
#: Columns that a dive begins with, per job.
_PER_JOB: Final = 8


def is_packing(items: PoolItems, bins: list[Bin]) -> bool:
    """Return whether every job has its width in distinct feasible bins."""
    count = np.zeros(len(items), dtype=np.int64)
    for members in bins:
        if len(set(members)) < len(members) or not items.feasible(members):
            return False
        count[list(members)] += 1
    return bool((count == items.width).all())


def price_and_branch(
    items: PoolItems, bound: PoolBound, deadline: Deadline, seed: int = 0
) -> list[Bin]:
    """Return bins that hold every job on as many nodes as it is wide, few of them.

    Parameters
    ----------
    items : PoolItems
    bound : PoolBound
        Of these items: its columns are the first, and at its nodes the search ends.
    deadline : Deadline
        With Ctrl-C, ends the search; what is held is returned.
    seed : int
    """
    if not len(items):
        return []
    rng = np.random.default_rng(seed)
    best = first_fit(items, np.argsort(-items.load / items.room, kind="stable"))
    try:
        for packing in packings(items, rng, 6):
            best = min(best, packing, key=len)
        for dive in range(_DIVES):
            if len(best) <= bound.nodes or deadline.expired:
                break
            diving = _Dive(items, bound, deadline, seed + dive)
            best = min(best, diving.run(), key=len)
            if diving.interrupted:
                break
    except KeyboardInterrupt:
        pass  # the best packing so far is the answer
    return best


class _Dive:
    """One dive; ``run`` always returns a packing."""

    def __init__(self, items: PoolItems, bound: PoolBound, deadline: Deadline, seed: int) -> None:
        self._items = items
        self._deadline = deadline
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self.interrupted = False
        self._left = items.width.copy()
        self._bins: list[Bin] = []
        value = np.append(bound.duals, 0.0)[bound.columns].sum(axis=1)
        most = np.argsort(-value, kind="stable")[: _PER_JOB * len(items)]
        self._columns: IntArray = bound.columns[most]

    def run(self) -> list[Bin]:
        """Keep bins until no job is left, or time."""
        while self._left.any() and not self._deadline.expired:
            jobs = np.flatnonzero(self._left)
            rest = self._items.take(jobs, self._left[jobs])
            generation = Generation(
                rest,
                self._deadline,
                threads=1,
                seed=self._seed,
                progress=None,
                until=Until(rounds=_FEW_ROUNDS if len(rest) > _LARGE else None, whole=True),
                start=self._restricted(jobs),
                exchange=False,
            )
            generation.run()
            held = generation.held
            self.interrupted = held.stopped_by is StoppedBy.INTERRUPT
            if self.interrupted or not len(held.weights):
                break
            self._columns = np.append(jobs, -1)[held.weighed]
            if len(rest) <= _SMALL:
                self._finish(rest, held.weighed, jobs)
                break
            self._keep(held.weighed, held.weights, jobs)
        order = np.argsort(-self._items.load / self._items.room, kind="stable")
        return first_fit(self._items, order, self._bins)

    def _restricted(self, jobs: IntArray) -> IntArray:
        """Return the columns without the jobs that are packed, in the numbers of the rest."""
        number = np.full(len(self._items) + 1, -1, dtype=np.int64)
        number[jobs] = np.arange(len(jobs))
        rows = np.unique(np.sort(number[self._columns], axis=1), axis=0)
        return rows[(rows >= 0).any(axis=1)]

    def _keep(self, rows: IntArray, weights: FloatArray, jobs: IntArray) -> None:
        """Keep bins of large weight that do not ask for a job too often."""
        shaken = weights + self._rng.uniform(0.0, 0.02, len(weights))
        share = _KEEP_SHARE_LARGE if len(jobs) > _LARGE else _KEEP_SHARE
        least = max(1, int(share * weights.sum()))
        kept = 0
        for at in np.argsort(-shaken, kind="stable"):
            if kept >= least and weights[at] < _KEEP_FROM:
                break
            members = jobs[rows[at][rows[at] >= 0]]
            for _ in range(max(1, int(weights[at] + 1e-6))):
                if (self._left[members] > 0).all():
                    self._left[members] -= 1
                    self._bins.append(tuple(members.tolist()))
                    kept += 1

    def _finish(self, rest: PoolItems, rows: IntArray, jobs: IntArray) -> None:
        """Pack the last jobs by a MIP over these columns; drop jobs that a bin covers again."""
        model = HighsModel(seed=self._seed, options={"mip_max_nodes": _MIP_NODES})
        model.add_rows(rest.width.astype(np.float64), np.full(len(rest), INFINITY))
        matrix = np.zeros((len(rows), len(rest) + 1))
        np.put_along_axis(matrix, np.where(rows < 0, len(rest), rows), 1.0, axis=1)
        most = float(rest.width.max())
        model.add_columns(np.ones(len(rows)), matrix[:, :-1], most, whole=True)
        left = self._deadline.remaining_s()
        model.run(_MIP_SECONDS if left is None else min(left, _MIP_SECONDS), lp=False)
        self.interrupted = model.interrupted
        if not model.holds_solution:
            return
        for row, times in zip(rows, np.rint(model.values()).astype(np.int64), strict=True):
            for _ in range(times):
                wanted = [j for j in jobs[row[row >= 0]].tolist() if self._left[j] > 0]
                self._left[wanted] -= 1
                if wanted:
                    self._bins.append(tuple(wanted))
