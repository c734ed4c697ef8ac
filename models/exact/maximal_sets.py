"""Maximal sets of single-node jobs that loads admit on one node of each kind, many at once.

For snapshots where a group may have one rollout and one train node only and more jobs than
:mod:`models.exact.single_node_sets` tabulates, or any number. Every group then costs the same, and
jobs may be covered twice (FORMULATION.md), so only sets that no further job fits into are
needed as candidates of set partitioning.

A set ``S`` with ``C = min D_j`` is admitted when

* it is one job, whose states fit a node each (alone it pays no switch, and ``T_j <= D_j``); or
* per pool ``sum (p_j + w_j) <= C`` and ``sum m_j <= M``, and ``T_j + w^R_j + w^T_j <= C`` for
  every job: on the two nodes each of them pays both switches (in the phases: of a one-step job
  ``T_j`` may grow by less).

It is *maximal* when it has as many jobs as a group may have, or no job can be added. Admission
is hereditary: sums, the longest chain and ``-C`` only fall with a job less. So every admitted
set is reached by adding its jobs in order of index, each set once, and lies within a maximal
one: a least cover by maximal sets is a least cover by admitted sets. One iteration per period
(``max_rate`` 1) is assumed throughout.

That is a *relaxation*: loads may admit what no schedule has. Of a set refuted
(:meth:`MaximalSets.refute`), a valid group lacks at least one job, so the sets with one job
less take its place, and the same of every set that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from models.group.group_cost import Nodes
from models.group.pinnings import DRAM_SLACK, REL_SLACK
from models.problem.options import Deadline, SolveOptions
from models.problem.snapshot import Snapshot

__all__ = ["MaximalSets", "is_for"]

#: Pairs of a set and a job that are looked at at once.
_CHUNK: Final = 1 << 20

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def is_for(snapshot: Snapshot) -> bool:
    """Return whether jobs and limits are those of this module."""
    limits = snapshot.limits
    return limits.max_rate == limits.max_rollout_nodes == limits.max_train_nodes == 1 and all(
        job.rollout_nodes == job.train_nodes == 1 for job in snapshot.jobs
    )


class MaximalSets:
    """The maximal sets that loads admit; refuted ones give way to smaller ones.

    Attributes
    ----------
    members : (m, k) int64
        Ascending job indices, padded with -1.
    sets_grown : int
        Sets admitted, maximal or not.

    Raises
    ------
    UnsupportedError
        When more than ``options.max_groups`` sets are admitted.
    OutOfTimeError
        When the deadline passes.
    """

    def __init__(self, snapshot: Snapshot, options: SolveOptions, deadline: Deadline) -> None:
        table, cluster = snapshot.table, snapshot.cluster
        self._n = len(snapshot)
        self._size = min(snapshot.limits.max_group_size or self._n, self._n)
        self._seconds = np.stack(
            (table.rollout_s + table.rollout_switch_s, table.train_s + table.train_switch_s)
        )
        self._state = np.stack((table.rollout_state_gb, table.train_state_gb))
        dram = np.array([cluster.rollout.host_dram_gb, cluster.train.host_dram_gb])
        self._dram = dram * (1 + DRAM_SLACK)
        self._alone = (self._state <= self._dram[:, None]).all(axis=0)
        self._chain = table.paid_s[1, 1]
        self._deadline = table.deadline_s * (1 + REL_SLACK)
        self.sets_grown = 0
        self._max_sets = options.max_groups
        self.members = self._grown(options, deadline)

    def arrays(self) -> tuple[IntArray, IntArray]:
        """Return members, padded with -1, and nodes: one of each kind."""
        return self.members, np.ones((len(self.members), 2), dtype=np.int64)

    def _grown(self, options: SolveOptions, deadline: Deadline) -> IntArray:
        """Return the maximal sets, level by level of their size."""
        level = np.flatnonzero(self._alone).astype(np.int64)[:, None]
        kept: list[IntArray] = []
        for size in range(1, self._size):
            self.sets_grown += len(level)
            level, maximal = self._extended(level, deadline)
            kept += maximal
            if not len(level):
                break
            if options.progress is not None:
                options.progress("groups of jobs", size + 1, self._size)
        self.sets_grown += len(level)
        return _padded([*kept, level])

    def _extended(self, level: IntArray, deadline: Deadline) -> tuple[IntArray, list[IntArray]]:
        """Return the sets of one more job, and those of the level that none can be added to."""
        grown, maximal = [np.zeros((0, level.shape[1] + 1), dtype=np.int64)], []
        found = self.sets_grown
        step = max(_CHUNK // max(self._n, 1), 1)
        for begin in range(0, len(level), step):
            deadline.check()
            rows = level[begin : begin + step]
            fits = self._fits(rows)
            maximal.append(rows[~fits.any(axis=1)])
            at, job = np.nonzero(fits & (np.arange(self._n) > rows[:, -1:]))
            grown.append(np.concatenate((rows[at], job[:, None]), axis=1))
            found += len(at)
            if found > self._max_sets:
                raise UnsupportedError(
                    f"Expected at most {self._max_sets:,} candidate groups, got more among "
                    f"{self._n} jobs: lower max_group_size or take fewer jobs."
                )
        return np.concatenate(grown), maximal

    def _fits(self, members: IntArray) -> BoolArray:
        """Return which jobs can be added to each set, ``(m, n)``; none of its own."""
        most = np.minimum(self._deadline[members].min(axis=1)[:, None], self._deadline)
        chain = np.maximum(self._chain[members].max(axis=1)[:, None], self._chain)
        fits: BoolArray = (chain <= most) & self._alone
        for seconds in self._seconds:
            fits &= seconds[members].sum(axis=1)[:, None] + seconds <= most
        for state, dram in zip(self._state, self._dram, strict=True):
            fits &= state[members].sum(axis=1)[:, None] + state <= dram
        np.put_along_axis(fits, members, False, axis=1)
        return fits

    def refute(self, members: Sequence[int], nodes: Nodes) -> int:
        """Replace every set that holds these jobs by the sets with one of them less.

        ``nodes`` are one of each kind. Returns how many sets were replaced.
        """
        if nodes != (1, 1):
            raise AssertionError(f"a group on {nodes} nodes beyond the limits was refuted")
        holds = np.ones(len(self.members), dtype=np.bool_)
        for member in members:
            holds &= (self.members == member).any(axis=1)
        refuted = self.members[holds]
        rows = [self.members[~holds]]
        for member in members:
            less = np.where(refuted == member, self._n, np.where(refuted < 0, self._n, refuted))
            less.sort(axis=1)
            rows.append(np.where(less == self._n, -1, less))
        self.members = np.unique(np.concatenate(rows), axis=0)
        return int(holds.sum())


def _padded(parts: Sequence[IntArray]) -> IntArray:
    """Return the rows of all parts, padded with -1 to the widest."""
    parts = [rows for rows in parts if len(rows)]
    widest = max((rows.shape[1] for rows in parts), default=1)
    out = np.full((sum(map(len, parts)), widest), -1, dtype=np.int64)
    begin = 0
    for rows in parts:
        out[begin : begin + len(rows), : rows.shape[1]] = rows
        begin += len(rows)
    return out
