"""Sets of jobs that may become groups when running groups are re-planned, on fewest nodes.

A *table* of sets, each on the fewest nodes that loads admit, from the sources of set
partitioning: :mod:`models.exact.single_node_sets` for single-node jobs in groups of at most five,
:mod:`models.exact.rate_sets` for these with several iterations per period, and
:mod:`models.exact.maximal_sets` where a group may have one node of each kind. For all other
snapshots sets are grown here one job at a time by
:meth:`models.group.group_cost.GroupCost.least_nodes`, connected ones only
(:mod:`models.exact.candidate_groups`). Nothing is decided beforehand but what the source of rates
decides: with moves priced few sets are ever chosen.

Sets come with all their subsets, except the maximal ones, which stand for theirs.

Where effort is limited and sets grown one job at a time are too many, those of smaller groups are
taken instead (:func:`few_sets`): good candidates, but no longer all.

Snapshots of one replay differ by a job, so :class:`SetMemory` keeps the sets of the last one:
those with a job that left go, those with a new job are grown. Every connected group with the
new job is reached from that job alone: a connected graph has at least two vertices that can
leave it connected, so some other member can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from instances.hardware import Cluster
from instances.plan import Limits
from models.exact import maximal_sets, single_node_sets
from models.exact.maximal_sets import MaximalSets
from models.exact.rate_sets import RateSetPool
from models.exact.single_node_sets import SetPool
from models.group.group_cost import GroupCost, Nodes
from models.problem.options import Deadline, SolveOptions
from models.problem.snapshot import Snapshot

__all__ = ["SetMemory", "SetTable", "few_sets", "set_table"]

#: Seconds are looked at once per so many sets.
_STRIDE: Final = 64
#: Sets grown one job at a time, some 100 microseconds each, where effort is limited.
_FEW_SETS: Final = 10_000
#: Jobs of a group, where there are more sets than that.
_SMALLER: Final = (5, 4, 3, 2)

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SetTable:
    """Sets of jobs on node counts, refuted ones replaced.

    Attributes
    ----------
    members : (m, k) int64
        Ascending job indices, padded with -1.
    nodes : (m, 2) int64
    alive : (m,) bool
        False where refuted.
    subsets : bool
        Whether every subset that can be a group is there itself.
    """

    def __init__(
        self, members: IntArray, nodes: IntArray, widths: IntArray, limits: Limits, *, subsets: bool
    ) -> None:
        self.members, self.nodes, self.subsets = members, nodes, subsets
        self.alive: BoolArray = np.ones(len(members), dtype=np.bool_)
        self._pins = np.append(widths, 0)
        self._limits = limits.max_rollout_nodes, limits.max_train_nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def holds(self, members: Sequence[int], nodes: Nodes) -> BoolArray:
        """Return which rows hold these jobs on no more nodes."""
        out = self.alive & (self.nodes <= np.array(nodes)).all(axis=1)
        for member in members:
            out &= (self.members == member).any(axis=1)
        return out

    def refute(self, members: Sequence[int], nodes: Nodes) -> IntArray:
        """Replace every set that holds these jobs on no more nodes; return the rows added.

        Infeasibility is hereditary. A set comes back with one node more of either kind, where
        it may still be connected; a maximal one as its subsets with one of the jobs less.
        """
        gone = np.flatnonzero(self.holds(members, nodes))
        self.alive[gone] = False
        sets, counts = self.members[gone], self.nodes[gone]
        rows = []
        if self.subsets:
            most = self._pins[sets].sum(axis=1) - (sets >= 0).sum(axis=1) + 1
            for pool, limit in enumerate(self._limits):
                more = counts.copy()
                more[:, pool] += 1
                ok = more.sum(axis=1) <= most
                if limit is not None:
                    ok &= more[:, pool] <= limit
                rows.append(np.column_stack((sets[ok], more[ok])))
        else:
            top = int(self.members.max(initial=0)) + 1
            for member in members:
                less = np.where((sets == member) | (sets < 0), top, sets)
                less.sort(axis=1)
                rows.append(np.column_stack((np.where(less == top, -1, less), counts)))
        fresh = np.unique(np.concatenate(rows), axis=0)
        fresh = fresh[fresh[:, 0] >= 0]
        first = len(self)
        self.members = np.concatenate((self.members, fresh[:, :-2]))
        self.nodes = np.concatenate((self.nodes, fresh[:, -2:]))
        self.alive = np.concatenate((self.alive, np.ones(len(fresh), dtype=np.bool_)))
        return np.arange(first, len(self))


class SetMemory:
    """The sets of one snapshot, for the next one of the same trace, cluster and limits."""

    def __init__(self) -> None:
        self._key: tuple[Cluster, Limits] | None = None
        self._ids: tuple[str, ...] = ()
        self._members: IntArray = np.zeros((0, 1), dtype=np.int64)
        self._nodes: IntArray = np.zeros((0, 2), dtype=np.int64)
        self._pi_usd: dict[str, float] = {}

    def take(self, snapshot: Snapshot) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the sets of jobs still present, in their new indices, and which jobs are known."""
        known = np.zeros(len(snapshot), dtype=np.bool_)
        if self._key != (snapshot.cluster, snapshot.limits):
            width = self._members.shape[1]
            none = np.zeros((0, width), dtype=np.int64)
            return none, np.zeros((0, 2), dtype=np.int64), known
        index = {job_id: i for i, job_id in enumerate(snapshot.table.job_id)}
        place = np.array([index.get(job_id, -2) for job_id in self._ids] + [-1], dtype=np.int64)
        members = place[self._members]
        here = (members != -2).all(axis=1)
        members = members[here]
        at = place[:-1][place[:-1] >= 0]
        known[at] = True
        if (np.diff(at) < 0).any():
            members = np.where(members < 0, len(snapshot), members)
            members.sort(axis=1)
            members[members == len(snapshot)] = -1
        return members, self._nodes[here], known

    def duals(self, snapshot: Snapshot, guess_usd: FloatArray) -> FloatArray:
        """Return what the last LP said that each job costs, $; a guess where it is new."""
        return np.array(
            [
                self._pi_usd.get(job_id, guess)
                for job_id, guess in zip(snapshot.table.job_id, guess_usd.tolist(), strict=True)
            ]
        )

    def put(self, snapshot: Snapshot, table: SetTable, pi_usd: FloatArray | None = None) -> None:
        """Keep the sets of a snapshot, all of them, and what its LP said that jobs cost."""
        if pi_usd is not None:
            self._pi_usd = dict(zip(snapshot.table.job_id, pi_usd.tolist(), strict=True))
        self._key = snapshot.cluster, snapshot.limits
        self._ids = tuple(snapshot.table.job_id)
        self._members, self._nodes = table.members[table.alive], table.nodes[table.alive]


class _GrownPool(SetPool):
    """A :class:`SetPool` that grows the sets of new jobs only."""

    def __init__(
        self, snapshot: Snapshot, options: SolveOptions, deadline: Deadline, memory: SetMemory
    ) -> None:
        self._memory = memory
        super().__init__(snapshot, options, deadline)

    def _grow(self, options: SolveOptions, deadline: Deadline) -> None:
        old, old_nodes, known = self._memory.take(self._snapshot)
        if not known.any():
            super()._grow(options, deadline)
            return
        singles = self._admitted(np.arange(self._n, dtype=np.int64)[:, None])
        together = self._together(singles[0][:, 0])
        many = (old >= 0).sum(axis=1) > 1
        self._levels += [singles, (old[many], old_nodes[many])]
        found = int(many.sum())
        for job in np.flatnonzero(~known):
            known[job] = True
            allowed = together & known[None, :] & known[:, None]
            alone = singles[0][:, 0] == job
            level = singles[0][alone], singles[1][alone]
            for _ in range(2, self._snapshot.limits.max_group_size + 1):
                parts = [
                    self._admitted(grown)
                    for grown in self._extensions(level[0], allowed, options, deadline)
                ]
                if not parts:
                    break
                level = (
                    np.concatenate([members for members, _ in parts]),
                    np.concatenate([nodes for _, nodes in parts]),
                )
                self._levels.append(level)
                found += len(level[0])
                if found > options.max_groups:
                    raise self._too_many(options)


def set_table(
    snapshot: Snapshot,
    cost: GroupCost,
    options: SolveOptions,
    deadline: Deadline,
    memory: SetMemory | None = None,
    *,
    few: bool = False,
) -> SetTable:
    """Return the candidate sets of a snapshot.

    Parameters
    ----------
    few : bool
        Refuse more than ``_FEW_SETS`` that are grown one job at a time.

    Raises
    ------
    OutOfTimeError
        When the deadline passes.
    UnsupportedError
        When there are more than ``options.max_groups``.
    """
    jobs = snapshot.table
    widths = jobs.rollout_nodes + jobs.train_nodes
    subsets = True
    if single_node_sets.is_for(snapshot):
        pool: SetPool
        if snapshot.limits.max_rate > 1:
            pool = RateSetPool(snapshot, cost, options, deadline)
        elif memory is None:
            pool = SetPool(snapshot, options, deadline)
        else:
            pool = _GrownPool(snapshot, options, deadline, memory)
        members, nodes = pool.members, pool.nodes
    elif maximal_sets.is_for(snapshot):
        members, nodes = MaximalSets(snapshot, options, deadline).arrays()
        subsets = False
    else:
        if few:
            options = replace(options, max_groups=min(options.max_groups, _FEW_SETS))
        members, nodes = _by_loads(snapshot, cost, options, deadline, memory)
    return SetTable(members, nodes, widths, snapshot.limits, subsets=subsets)


def few_sets(
    snapshot: Snapshot,
    cost: GroupCost,
    options: SolveOptions,
    deadline: Deadline,
    memory: SetMemory | None = None,
) -> tuple[SetTable, Snapshot]:
    """Return the sets of a snapshot, of smaller groups where they are too many, and its limits.

    The latter are those of the snapshot returned: of the one given, if the sets are all there are.

    Raises
    ------
    OutOfTimeError
        When the deadline passes.
    UnsupportedError
        When even the pairs are too many.
    """
    sizes = [size for size in _SMALLER if size < (snapshot.limits.max_group_size or len(snapshot))]
    limited = snapshot
    while True:
        try:
            return set_table(limited, cost, options, deadline, memory, few=True), limited
        except UnsupportedError:
            if not sizes:
                raise
            limits = replace(snapshot.limits, max_group_size=sizes.pop(0))
            limited = replace(snapshot, limits=limits)


def _by_loads(
    snapshot: Snapshot,
    cost: GroupCost,
    options: SolveOptions,
    deadline: Deadline,
    memory: SetMemory | None,
) -> tuple[IntArray, IntArray]:
    """Return every connected set that loads admit, on the fewest nodes they admit."""
    old, old_nodes, known = (memory or SetMemory()).take(snapshot)
    rows = [tuple([j for j in row if j >= 0]) for row in old.tolist()]
    counts: list[Nodes] = [(a, b) for a, b in old_nodes.tolist()]
    n = len(snapshot)
    size = snapshot.limits.max_group_size or n
    together = [0] * n
    for i in range(n):
        for j in range(i):
            if cost.least_nodes((j, i)) is not None:
                together[i] |= 1 << j
                together[j] |= 1 << i
    allowed = sum([1 << int(j) for j in np.flatnonzero(known)])
    for job in np.flatnonzero(~known).tolist():
        allowed |= 1 << job
        level: list[tuple[int, ...]] = [(job,)]
        for count in range(1, size + 1):
            level = _admitted(level, cost, deadline, rows, counts)
            if len(rows) > options.max_groups:
                raise UnsupportedError(
                    f"Expected at most {options.max_groups:,} candidate groups, got more among "
                    f"{n} jobs."
                )
            if not level or count == size:
                break
            level = _extensions(level, together, allowed, deadline)
    width = max(map(len, rows), default=1)
    out = np.full((len(rows), width), -1, dtype=np.int64)
    for at, row in enumerate(rows):
        out[at, : len(row)] = row
    return out, np.array(counts, dtype=np.int64).reshape(-1, 2)


def _admitted(
    level: Sequence[tuple[int, ...]],
    cost: GroupCost,
    deadline: Deadline,
    rows: list[tuple[int, ...]],
    counts: list[Nodes],
) -> list[tuple[int, ...]]:
    """Add the sets that loads admit as connected groups, with their nodes; return them."""
    out = []
    for number, members in enumerate(level):
        if number % _STRIDE == 0:
            deadline.check()
        least = cost.least_nodes(members)
        if least is not None and sum(least) <= cost.connected_nodes(members):
            out.append(members)
            counts.append(least)
    rows += out
    return out


def _extensions(
    level: Sequence[tuple[int, ...]], together: Sequence[int], allowed: int, deadline: Deadline
) -> list[tuple[int, ...]]:
    """Return each set of one more job whose pairs are all admitted, once."""
    out: dict[tuple[int, ...], None] = {}
    for number, members in enumerate(level):
        if number % _STRIDE == 0:
            deadline.check()
        more = allowed
        for i in members:
            more &= together[i]
        while more:
            bit = more & -more
            more ^= bit
            out[tuple(sorted((*members, bit.bit_length() - 1)))] = None
    return list(out)
