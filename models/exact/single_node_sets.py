"""Sets of single-node jobs that loads admit as a group, many at once.

The vectorised twin of :mod:`models.exact.candidate_groups` for jobs of one rollout and one train
node and groups of at most ``MOST_SIZE``: a snapshot of 80 jobs has hundreds of thousands of
such sets. Loads, deadlines, DRAM and chains with their switches give every set its least pairs
of node counts, nearly always one. That is a *relaxation* of the group's true front: set
partitioning over it gives a valid bound, and only the groups it chooses are decided exactly. A
group refuted is replaced by the pairs with one node more (:meth:`SetPool.refute`), until every
chosen group has a schedule; on real snapshots that is nearly always at once.

Per set ``S`` with ``C = min D_j`` and per pool: a *block* of jobs may share one node when

* ``sum (p_j + w_j) <= C`` and ``sum m_j <= M``;
* every ``T_j + w_j <= C`` (the chain of a job that pays its switch; of a one-step job ``T_j`` with
  ``w_j`` in its phase, which may be less);

the fewest nodes are the fewest blocks that partition ``S``. All ``2^k`` blocks and all set
partitions of ``k <= 5`` jobs are tabulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from models.bounds.pool_items import Pool
from models.group.group_cost import Nodes
from models.group.pinnings import DRAM_SLACK, REL_SLACK
from models.problem.options import Deadline, SolveOptions
from models.problem.snapshot import Snapshot

__all__ = [
    "MOST_SIZE",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "LoadPool",
    "SetPool",
    "fewest_blocks",
    "is_for",
    "subset_sums",
]

#: Largest group tabulated.
MOST_SIZE: Final = 5
#: Rows worked on at once.
_CHUNK: Final = 1 << 16
#: Pairs of a set and one more job looked at at once.
_MOST_CELLS: Final = 1 << 21
#: Sets grown, per candidate group allowed, beyond which an enumeration is refused.
_GROWN_PER_GROUP: Final = 4
#: Largest number of jobs whose sets fit a 64-bit key.
_MOST_JOBS: Final = 6_000

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def is_for(snapshot: Snapshot) -> bool:
    """Return whether jobs and limits are those of this module."""
    return 1 <= snapshot.limits.max_group_size <= MOST_SIZE and (
        0 < len(snapshot) <= _MOST_JOBS
        and all(job.rollout_nodes == job.train_nodes == 1 for job in snapshot.jobs)
    )


@cache
def _partitions(k: int) -> tuple[IntArray, ...]:
    """Return per number of blocks ``b = 1..k`` the partitions of ``k`` items, ``(m, b)`` masks."""
    by_blocks: dict[int, list[list[int]]] = {b: [] for b in range(1, k + 1)}

    def grow(item: int, blocks: list[int]) -> None:
        if item == k:
            by_blocks[len(blocks)].append(list(blocks))
            return
        for at in range(len(blocks)):
            grow(item + 1, [*blocks[:at], blocks[at] | 1 << item, *blocks[at + 1 :]])
        grow(item + 1, [*blocks, 1 << item])

    grow(0, [])
    return tuple(np.array(by_blocks[b], dtype=np.int64) for b in range(1, k + 1))


def _distinct(keys: IntArray) -> IntArray:
    """Return the keys ascending, each once; numpy's own ``unique`` hashes, ten times slower."""
    keys = np.sort(keys)
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    return keys[first]


def subset_sums(values: FloatArray) -> FloatArray:
    """Return all ``2^k`` sums of each row of ``(m, k)`` values, shape ``(m, 2^k)``."""
    out = np.zeros((len(values), 1))
    for column in range(values.shape[1]):
        out = np.concatenate((out, out + values[:, column : column + 1]), axis=1)
    return out


def fewest_blocks(fits: BoolArray) -> IntArray:
    """Return the fewest blocks of each row's set, ``(m,)``; ``k + 1`` where a job fits none.

    ``fits``, ``(m, 2^k)``: whether the jobs of a mask may share a node.
    """
    k = fits.shape[1].bit_length() - 1
    out = np.full(len(fits), k + 1, dtype=np.int64)
    open_rows = np.arange(len(fits))
    for blocks, masks in enumerate(_partitions(k), start=1):
        some = fits[open_rows]
        found = np.zeros(len(open_rows), dtype=np.bool_)
        for partition in masks:
            found |= some[:, partition].all(axis=1)
        out[open_rows[found]] = blocks
        open_rows = open_rows[~found]
        if not len(open_rows):
            break
    return out


class LoadPool:
    """One pool's numbers, ``(n_jobs,)`` each.

    Attributes
    ----------
    paid : (n_jobs,) float64
        Phase and switch seconds.
    chain, both : (n_jobs,) float64
        Least period of a job that pays its switch here, and in both pools.
    waits : (n_jobs,) bool
        Whether the next phase waits for the other pool's: not of a one-step job.
    """

    def __init__(self, snapshot: Snapshot, pool: Pool) -> None:
        table = snapshot.table
        node = snapshot.cluster.rollout if pool == "rollout" else snapshot.cluster.train
        self.state: FloatArray = getattr(table, f"{pool}_state_gb")
        self.paid = getattr(table, f"{pool}_s") + getattr(table, f"{pool}_switch_s")
        self.chain = table.paid_s[1, 0] if pool == "rollout" else table.paid_s[0, 1]
        self.both = table.paid_s[1, 1]
        self.waits = np.array([mode != "one-step" for mode in table.mode], dtype=np.bool_)
        self.dram = node.host_dram_gb * (1 + DRAM_SLACK)

    def least_nodes(
        self, members: IntArray, period_s: FloatArray, *, other_paid: bool = False
    ) -> IntArray:
        """Return the fewest nodes of each set, ``(m,)``; ``k + 1`` where a job fits none.

        ``other_paid``: every job pays its switch in the other pool.
        """
        k = members.shape[1]
        most = period_s[:, None] * (1 + REL_SLACK)
        chain = self.both if other_paid else self.chain
        lonely = (chain[members] > most).astype(np.float64)
        fits = subset_sums(self.state[members]) <= self.dram
        fits &= subset_sums(self.paid[members]) <= most
        fits &= subset_sums(lonely) < 0.5
        for item in range(k):  # alone on a node a job pays no switch: DRAM alone decides
            fits[:, 1 << item] = self.state[members[:, item]] <= self.dram
        return fewest_blocks(fits)


class SetPool:
    """The sets admitted by loads, each on its fewest nodes; grows by refutation.

    Attributes
    ----------
    members : (m, MOST_SIZE) int64
        Ascending job indices, padded with -1.
    nodes : (m, 2) int64
        Rollout and train nodes.
    sets_grown : int
        Sets looked at.
    """

    def __init__(self, snapshot: Snapshot, options: SolveOptions, deadline: Deadline) -> None:
        table = snapshot.table
        self._snapshot = snapshot
        self._n = len(snapshot)
        self._deadline = table.deadline_s
        self._solo = table.solo_s
        self._pools = LoadPool(snapshot, "rollout"), LoadPool(snapshot, "train")
        limits = snapshot.limits
        self._most = (limits.max_rollout_nodes, limits.max_train_nodes)
        self.sets_grown = 0
        self._levels: list[tuple[IntArray, IntArray]] = []
        self._grow(options, deadline)
        self.members = np.concatenate(
            [
                np.pad(members, ((0, 0), (0, MOST_SIZE - members.shape[1])), constant_values=-1)
                for members, _ in self._levels
            ]
        )
        self.nodes = np.concatenate([nodes for _, nodes in self._levels])

    def __len__(self) -> int:
        return len(self.nodes)

    # --- growth -----------------------------------------------------------------------------

    def _grow(self, options: SolveOptions, deadline: Deadline) -> None:
        jobs = np.arange(self._n, dtype=np.int64)[:, None]
        level = self._admitted(jobs)
        self._levels.append(level)
        together = self._together(level[0][:, 0])
        for k in range(2, self._snapshot.limits.max_group_size + 1):
            parts = []
            for grown in self._extensions(level[0], together, options, deadline):
                deadline.check()
                parts.append(self._admitted(grown))
                found = sum(len(members) for members, _ in self._levels)
                found += sum(len(members) for members, _ in parts)
                if found > options.max_groups:
                    raise self._too_many(options)
            if not parts:
                break
            level = (
                np.concatenate([members for members, _ in parts]),
                np.concatenate([nodes for _, nodes in parts]),
            )
            level = self._settled(*level)
            self._levels.append(level)
            if options.progress is not None:
                options.progress("groups of jobs", k, self._snapshot.limits.max_group_size)

    def _together(self, runnable: IntArray) -> BoolArray:
        """Return which jobs may be in one group, ``(n, n)``: deadlines, and pairs within limits."""
        most = self._deadline[:, None] * (1 + REL_SLACK)
        fits: BoolArray = self._solo[None, :] <= most
        fits &= fits.T
        alone = np.zeros(self._n, dtype=np.bool_)
        alone[runnable] = True
        fits &= alone[:, None] & alone[None, :]
        np.fill_diagonal(fits, False)
        if self._most != (None, None):
            pairs = np.argwhere(np.triu(fits)).astype(np.int64)
            fits = np.zeros_like(fits)
            kept = pairs[self._least(pairs)[0]]
            fits[kept[:, 0], kept[:, 1]] = fits[kept[:, 1], kept[:, 0]] = True
        return fits

    def _extensions(
        self, members: IntArray, together: BoolArray, options: SolveOptions, deadline: Deadline
    ) -> list[IntArray]:
        """Return all sets of one more job whose pairs may be together, in chunks of rows."""
        unique = np.zeros(0, dtype=np.int64)
        fresh: list[IntArray] = []
        waiting = grown_rows = 0
        most = _GROWN_PER_GROUP * options.max_groups
        step = max(1, _MOST_CELLS // self._n)
        for begin in range(0, len(members), step):
            deadline.check()
            rows = members[begin : begin + step]
            more = together[rows[:, 0]]
            for column in range(1, rows.shape[1]):
                more = more & together[rows[:, column]]
            at, job = np.nonzero(more)
            grown_rows += len(at)  # every set arises at most once per member
            if grown_rows > most * (members.shape[1] + 1):
                raise self._too_many(options)
            grown = np.sort(np.concatenate((rows[at], job[:, None]), axis=1), axis=1)
            fresh.append(_distinct(self._keys(grown)))
            waiting += len(fresh[-1])
            if waiting > max(len(unique), _MOST_CELLS) or begin + step >= len(members):
                unique = _distinct(np.concatenate((unique, *fresh)))
                fresh, waiting = [], 0
            if len(unique) > most:
                raise self._too_many(options)
        return [
            self._unpacked(unique[begin : begin + _CHUNK], members.shape[1] + 1)
            for begin in range(0, len(unique), _CHUNK)
        ]

    def _too_many(self, options: SolveOptions) -> UnsupportedError:
        return UnsupportedError(
            f"Expected at most {options.max_groups:,} candidate groups, got more among {self._n} "
            "jobs: lower max_group_size or set node limits, or take fewer jobs."
        )

    def _keys(self, members: IntArray) -> IntArray:
        """Return one number per row of ascending members, shape ``(m,)``."""
        key = np.zeros(len(members), dtype=np.int64)
        for column in range(members.shape[1]):
            key = key * (self._n + 1) + members[:, column] + 1
        return key

    def _unpacked(self, keys: IntArray, k: int) -> IntArray:
        out = np.empty((len(keys), k), dtype=np.int64)
        for column in range(k - 1, -1, -1):
            keys, digit = np.divmod(keys, self._n + 1)
            out[:, column] = digit - 1
        return out

    def _least(self, members: IntArray) -> tuple[IntArray, IntArray]:
        """Return rows of ``members`` and the least node counts of each by loads, within limits.

        Shapes ``(r,)`` and ``(r, 2)``. Loads and DRAM do not couple the pools, chains do: on one
        node of a pool every job pays that pool's switch, on top of the other's where it
        shares there. So the pairs with one train node, with one rollout node, and with two
        or more of both are looked at in turn; nearly always the first there is the only one.
        """
        k = members.shape[1]
        period = self._deadline[members].min(axis=1)
        free = [pool.least_nodes(members, period) for pool in self._pools]
        if k == 1:
            pairs = [np.stack(free, axis=1)]
        else:
            pairs = [np.maximum(np.stack(free, axis=1), 2)]
            for pool in (0, 1):
                one = np.full((len(members), 2), k + 1, dtype=np.int64)
                at = np.flatnonzero(free[1 - pool] == 1)
                one[at, pool] = self._pools[pool].least_nodes(
                    members[at], period[at], other_paid=True
                )
                one[at, 1 - pool] = 1
                pairs.append(one)
        return self._pareto(pairs, k)

    def _pareto(self, pairs: Sequence[IntArray], k: int) -> tuple[IntArray, IntArray]:
        """Return the rows and pairs within the limits that no other pair of the row is below."""
        rows, nodes = [], []
        for at, pair in enumerate(pairs):
            keep = (pair <= k).all(axis=1)
            for pool, most in enumerate(self._most):
                if most is not None:
                    keep &= pair[:, pool] <= most
            for other, rival in enumerate(pairs):
                if other != at:
                    below = (rival <= pair).all(axis=1)
                    keep &= ~(below & ((rival < pair).any(axis=1) | (other < at)))
            rows.append(np.flatnonzero(keep))
            nodes.append(pair[keep])
        return np.concatenate(rows), np.concatenate(nodes)

    def _admitted(self, members: IntArray) -> tuple[IntArray, IntArray]:
        """Return the sets that loads admit as a connected group: at most ``k + 1`` nodes."""
        self.sets_grown += len(members)
        rows, nodes = self._least(members)
        ok = nodes.sum(axis=1) <= members.shape[1] + 1
        return members[rows[ok]], nodes[ok]

    def _settled(self, members: IntArray, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the sets of one size that larger ones grow from; here, those that loads admit."""
        return members, nodes

    # --- columns ----------------------------------------------------------------------------

    def columns(self) -> IntArray:
        """Return the indices of the sets that no split of them is as cheap as.

        Splits are priced by what is not refuted yet: to be called anew after :meth:`refute`.
        Under fleet caps all sets, since there price alone does not decide.
        """
        if self._snapshot.caps.any:
            return np.arange(len(self), dtype=np.int64)
        cluster = self._snapshot.cluster
        usd = self.nodes @ np.array([cluster.rollout.usd_per_hour, cluster.train.usd_per_hour])
        pair = cluster.usd_per_hour(1, 1)
        sizes = (self.members >= 0).sum(axis=1)
        least: list[tuple[IntArray, FloatArray]] = []  # per size: sorted keys, least cost
        kept = []
        for k in range(1, MOST_SIZE + 1):
            rows = np.flatnonzero(sizes == k)
            members = self.members[rows, :k]
            split = self._split_usd(members, least, pair)
            kept.append(rows[usd[rows] < split * (1 - REL_SLACK)])
            keys = self._keys(members)
            best = np.minimum(usd[rows], split)
            order = np.lexsort((best, keys))
            first = np.ones(len(order), dtype=np.bool_)
            first[1:] = keys[order][1:] != keys[order][:-1]
            least.append((keys[order][first], best[order][first]))
        return np.concatenate(kept)

    def _split_usd(
        self, members: IntArray, least: Sequence[tuple[IntArray, FloatArray]], pair_usd: float
    ) -> FloatArray:
        """Return the least cost of each set in two parts, ``(m,)`` $/h; infinite for one job."""
        k = members.shape[1]
        best = np.full(len(members), np.inf)
        for size in range(k - 1):
            for others in combinations(range(1, k), size):
                first = (0, *others)
                rest = [column for column in range(k) if column not in first]
                cost = self._usd_of(members[:, first], least, pair_usd)
                cost = cost + self._usd_of(members[:, rest], least, pair_usd)
                best = np.minimum(best, cost)
        return best

    def _usd_of(
        self, members: IntArray, least: Sequence[tuple[IntArray, FloatArray]], pair_usd: float
    ) -> FloatArray:
        """Return a cost each set is known to be within: as a group found, else each job alone."""
        k = members.shape[1]
        keys, usd = least[k - 1]
        alone = np.full(len(members), k * pair_usd)
        if not len(keys):
            return alone
        wanted = self._keys(members)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, np.minimum(usd[at], alone), alone)

    def group(self, index: int) -> tuple[tuple[int, ...], Nodes]:
        """Return members and nodes of one set."""
        members = tuple(i for i in self.members[index].tolist() if i >= 0)
        rollout, train = self.nodes[index].tolist()
        return members, (rollout, train)

    def refute(self, members: Sequence[int], nodes: Nodes) -> int:
        """Replace every set that holds these jobs on no more nodes; return how many.

        The jobs were proved infeasible on these nodes, and infeasibility is hereditary. The
        pairs with one node more take its place, where they are connected and within limits.
        """
        holds = np.ones(len(self), dtype=np.bool_)
        for member in members:
            holds &= (self.members == member).any(axis=1)
        refuted = holds & (self.nodes <= np.array(nodes)).all(axis=1)
        others = holds & ~refuted
        rows = [np.column_stack((self.members[others], self.nodes[others]))]
        sets = self.members[refuted]
        sizes = (sets >= 0).sum(axis=1)
        for pool, most in enumerate(self._most):
            more = self.nodes[refuted]
            more[:, pool] += 1
            ok = more.sum(axis=1) <= sizes + 1
            if most is not None:
                ok &= more[:, pool] <= most
            rows.append(np.column_stack((sets[ok], more[ok])))
        # one node more than each of two refuted pairs may be the same pair
        unique = np.unique(np.concatenate(rows), axis=0)
        self.members = np.concatenate((self.members[~holds], unique[:, :MOST_SIZE]))
        self.nodes = np.concatenate((self.nodes[~holds], unique[:, MOST_SIZE:]))
        return int(refuted.sum())
