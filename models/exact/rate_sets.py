"""Sets of single-node jobs that loads admit as a group with several iterations per period.

The twin of :mod:`models.exact.single_node_sets` for ``max_rate`` ``K > 1``. A set is looked at with
each of its candidates ``(C, k)`` (:mod:`models.group.rate_vectors`); the node counts that loads
admit with any of them are a relaxation of its true front. At one candidate, per pool, a *block* of
jobs may share one node when

* ``sum k_j (p_j + w_j) <= C`` and ``sum m_j <= M``;
* every ``k_j (T_j + w_j) <= C`` (the chain of a job that pays its switch);
* every two of them fit: between two phases of a job lie its other phase and its sync, and these
  gaps must hold the phases of the other job, whole ones (:mod:`models.group.rate_bound`).

With one node in the other pool all pay its switches too, in the chain and between two phases. A
one-step job needs no time between two phases: its next rollout does not wait for its train.

Loads admit far more with rates than schedules do; the third rule and two more steps keep the
difference small. The pairs of node counts of a set are a *grid*, closed upwards (more nodes
never hurt), and by heredity within the grid of every subset: so it is cut to these. And sets of
up to ``DECIDED_SIZE`` jobs are decided exactly before larger ones grow from them. Of the sets
of four and five production jobs that are left, 10 to 20 in 100 have no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np

from models.exact.single_node_sets import (
    MOST_SIZE,
    BoolArray,
    FloatArray,
    IntArray,
    LoadPool,
    SetPool,
    fewest_blocks,
    subset_sums,
)
from models.group.group_cost import GroupCost, Nodes
from models.group.pinnings import REL_SLACK
from models.group.rate_bound import pairs_s
from models.group.rate_vectors import rate_arrays
from models.problem.options import Deadline, SolveOptions
from models.problem.snapshot import Snapshot

__all__ = ["DECIDED_SIZE", "RateSetPool"]

#: Largest sets decided exactly before larger ones grow from them. Against two, three leaves half
#: the groups to refute later (30 production jobs); four takes more time than it saves.
DECIDED_SIZE: Final = 3
#: Rows worked on at once.
_CHUNK: Final = 1 << 16

#: Bit of each pair of node counts, rollout by train.
_BITS: Final = 1 << np.arange(MOST_SIZE * MOST_SIZE, dtype=np.int64).reshape(MOST_SIZE, MOST_SIZE)
_ALL: Final = int(_BITS.sum())


@cache
def _covers(k: int) -> IntArray:
    """Return per mask of two or more of ``k`` jobs the bits of its jobs and pairs of jobs."""
    parts = [1 << item for item in range(k)]
    parts += [1 << a | 1 << b for a, b in combinations(range(k), 2)]
    return np.array(
        [
            sum(1 << i for i, part in enumerate(parts) if mask & part == part)
            if mask.bit_count() > 1
            else 0
            for mask in range(1 << k)
        ],
        dtype=np.int64,
    )


def _conflicts(
    own: FloatArray, gap: FloatArray, chain_s: FloatArray, rates: FloatArray, most: FloatArray
) -> IntArray:
    """Return per row which jobs and pairs of jobs can share no node, bits as in ``_covers``.

    ``own`` seconds of a phase, ``gap`` least seconds between two of them, ``chain_s`` of an
    iteration, ``(m, k)``; ``most`` the period, ``(m,)``.
    """
    k = own.shape[1]
    out = np.zeros(len(own), dtype=np.int64)
    for item in range(k):
        chain = rates[:, item] * chain_s[:, item]
        out |= (chain > most).astype(np.int64) << item
    for bit, (a, b) in enumerate(combinations(range(k), 2), start=k):
        for i, j in ((a, b), (b, a)):
            bound = pairs_s(*[(rates[:, x], own[:, x], gap[:, x]) for x in (i, j)])
            out |= (bound > most).astype(np.int64) << bit
    return out


class _Cases:
    """Sets of jobs, each at one candidate: a period and rates.

    Attributes
    ----------
    rows : (m,) int64
        Where each set is in its level.
    states : per pool (m, 2^k) bool
        Whether the states of a mask fit one node.
    """

    def __init__(
        self,
        rows: IntArray,
        members: IntArray,
        rates: FloatArray,
        period_s: FloatArray,
        states: list[BoolArray],
    ) -> None:
        self.rows, self.members, self.rates = rows, members, rates
        self.period, self.states = period_s, states

    def take(self, at: IntArray) -> _Cases:
        """Return some of the cases."""
        return _Cases(
            self.rows[at],
            self.members[at],
            self.rates[at],
            self.period[at],
            [fits[at] for fits in self.states],
        )

    def least_nodes(
        self, pools: tuple[LoadPool, LoadPool], at: int, *, other_paid: bool = False
    ) -> IntArray:
        """Return the fewest nodes of pool ``at``, ``(m,)``; ``k + 1`` where a job fits none.

        ``other_paid``: every job pays its switch in the other pool.
        """
        pool, members = pools[at], self.members
        most = self.period * (1 + REL_SLACK)
        own = pool.paid[members]
        chain = (pool.both if other_paid else pool.chain)[members]
        gap = np.where(pool.waits[members], chain - own, 0.0)
        fits = self.states[at] & (subset_sums(self.rates * own) <= most[:, None])
        never = _conflicts(own, gap, chain, self.rates, most)
        fits &= never[:, None] & _covers(members.shape[1]) == 0
        for item in range(members.shape[1]):  # alone on a node: DRAM alone decides
            fits[:, 1 << item] = self.states[at][:, 1 << item]
        return fewest_blocks(fits)


class RateSetPool(SetPool):
    """The sets admitted with rates, each on its fewest nodes; grows by refutation.

    Parameters
    ----------
    cost : GroupCost
        Decides small sets.
    """

    def __init__(
        self, snapshot: Snapshot, cost: GroupCost, options: SolveOptions, deadline: Deadline
    ) -> None:
        self._cost, self._ends = cost, deadline
        self._max_rate = snapshot.limits.max_rate
        self._fresh: list[tuple[IntArray, IntArray]] = []
        none = np.zeros(0, dtype=np.int64)
        self._known = none, none
        super().__init__(snapshot, options, deadline)

    # --- loads with rates -------------------------------------------------------------------

    def _least(self, members: IntArray) -> tuple[IntArray, IntArray]:
        """Return rows of ``members`` and the least node counts of each, within the limits."""
        codes = self._codes(members)
        if members.shape[1] > 1:
            self._fresh.append((self._keys(members), codes))
        return self._corners(codes, members.shape[1])

    def _together(self, runnable: IntArray) -> BoolArray:
        """Return which jobs may be in one group, ``(n, n)``: some candidate, within the limits."""
        fits = np.zeros((self._n, self._n), dtype=np.bool_)
        first, second = np.triu_indices(len(runnable), 1)
        pairs = np.sort(np.stack((runnable[first], runnable[second]), axis=1), axis=1)
        for begin in range(0, len(pairs), _CHUNK):
            self._ends.check()
            chunk = pairs[begin : begin + _CHUNK]
            kept = chunk[self._corners(self._codes(chunk), 2)[0]]
            fits[kept[:, 0], kept[:, 1]] = fits[kept[:, 1], kept[:, 0]] = True
        return fits

    def _codes(self, members: IntArray) -> IntArray:
        """Return the grid of each set: over its candidates, within those of its subsets."""
        k = members.shape[1]
        grid = np.zeros((len(members), k, k), dtype=np.bool_)
        states = [subset_sums(pool.state[members]) <= pool.dram for pool in self._pools]
        within = self._within_subsets(members)
        for first in range(k):
            for times in range(1, self._max_rate + 1):
                rows, rates, period = self._candidate(members, first, times)
                left = (within[rows] != 0) & ~grid[rows, 0, 0]
                rows, rates, period = rows[left], rates[left], period[left]
                if len(rows):
                    fits = [state[rows] for state in states]
                    self._mark(grid, _Cases(rows, members[rows], rates, period, fits))
        grid = np.logical_or.accumulate(np.logical_or.accumulate(grid, axis=1), axis=2)
        return _coded(grid) & within

    def _candidate(
        self, members: IntArray, first: int, times: int
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the rows that ``times`` that member's deadline suits; their rates and periods."""
        deadline, solo = self._deadline[members], self._solo[members]
        rates = rate_arrays(times * deadline[:, first, None], deadline)
        period = (rates * deadline).min(axis=1)
        ok = (rates <= self._max_rate).all(axis=1)
        ok &= (rates * solo <= period[:, None] * (1 + REL_SLACK)).all(axis=1)
        rows = np.flatnonzero(ok)
        return rows, rates[rows], period[rows]

    def _mark(self, grid: BoolArray, cases: _Cases) -> None:
        """Mark the least pairs of these cases; why three kinds, see ``SetPool._least``."""
        k = grid.shape[1]
        free = [cases.least_nodes(self._pools, pool) for pool in (0, 1)]
        pairs = [(cases.rows, np.stack(free, axis=1))]
        if k > 1:
            pairs = [(cases.rows, np.maximum(pairs[0][1], 2))]
            for pool in (0, 1):
                one = cases.take(np.flatnonzero(free[1 - pool] == 1))
                nodes = np.ones((len(one.rows), 2), dtype=np.int64)
                nodes[:, pool] = one.least_nodes(self._pools, pool, other_paid=True)
                pairs.append((one.rows, nodes))
        for rows, nodes in pairs:
            ok = (nodes <= k).all(axis=1)
            grid[rows[ok], nodes[ok, 0] - 1, nodes[ok, 1] - 1] = True

    # --- grids ------------------------------------------------------------------------------

    def _within_subsets(self, members: IntArray) -> IntArray:
        """Return what the subsets with one job less allow, codes; all where they are not known."""
        k = members.shape[1]
        within = np.full(len(members), _ALL, dtype=np.int64)
        if k < 3:
            return within
        keys, codes = self._known
        for column in range(k):
            wanted = self._keys(np.delete(members, column, axis=1))
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            within &= np.where(keys[at] == wanted, codes[at], _ALL)
        return within

    def _corners(self, codes: IntArray, k: int) -> tuple[IntArray, IntArray]:
        """Return rows and least pairs of their grids, within the limits of a group."""
        grid = (codes[:, None, None] & _BITS[None, :k, :k]) != 0
        least = grid.copy()
        least[:, 1:] &= ~grid[:, :-1]
        least[:, :, 1:] &= ~grid[:, :, :-1]
        most = [k if limit is None else limit for limit in self._most]
        least[:, most[0] :] = False
        least[:, :, most[1] :] = False
        rows, rollout, train = np.nonzero(least)
        return rows, np.stack((rollout + 1, train + 1), axis=1)

    def _settled(self, members: IntArray, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Keep the grids of this size for the next; decide the sets exactly if they are small."""
        k = members.shape[1]
        keys = np.concatenate([keys for keys, _ in self._fresh])
        codes = np.concatenate([codes for _, codes in self._fresh])
        order = np.argsort(keys)
        self._known, self._fresh = (keys[order], codes[order]), []
        if k > DECIDED_SIZE:
            return members, nodes
        while True:
            members, nodes, refuted = self._decided(k)
            if not refuted:
                return members, nodes

    def _decided(self, k: int) -> tuple[IntArray, IntArray, bool]:
        """Decide all least pairs of connected groups of this size; cut grids of those refuted.

        Returns the sets, their pairs, and whether some were refuted: others are the least then.
        """
        keys, codes = self._known
        rows, nodes = self._corners(codes, k)
        connected = nodes.sum(axis=1) <= k + 1
        rows, nodes = rows[connected], nodes[connected]
        members = self._unpacked(keys[rows], k)
        refuted = False
        for row, jobs, (rollout, train) in zip(rows, members.tolist(), nodes.tolist(), strict=True):
            if self._cost.decide(tuple(jobs), (rollout, train)) is None:
                codes[row] &= ~_below(rollout, train, k)
                refuted = True
        return members, nodes, refuted

    # --- refutation -------------------------------------------------------------------------

    def refute(self, members: Sequence[int], nodes: Nodes) -> int:
        """Replace every set that holds these jobs on no more nodes; return how many.

        Until none is left: one node more than a refuted pair may be refuted as well.
        """
        total = 0
        while replaced := super().refute(members, nodes):
            total += replaced
        return total


def _coded(grid: BoolArray) -> IntArray:
    """Return each closed grid as a number, its last row and column repeated."""
    k = grid.shape[1]
    more = ((0, 0), (0, MOST_SIZE - k), (0, MOST_SIZE - k))
    codes: IntArray = (np.pad(grid, more, mode="edge") * _BITS).sum(axis=(1, 2))
    return codes


def _below(rollout: int, train: int, k: int) -> int:
    """Return the bits of the pairs with no more nodes than these; beyond ``k`` none helps."""
    r = MOST_SIZE if rollout == k else rollout
    t = MOST_SIZE if train == k else train
    return int(_BITS[:r, :t].sum())
