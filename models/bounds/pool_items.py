"""One pool of a snapshot as a bin packing problem: a node is a bin, a job an item.

Sets: jobs ``j``. Parameters of the pool: phase seconds ``p_j``, switch seconds ``w_j``, chain
``T_j + w_j`` (of a one-step job ``T_j`` with ``w_j`` in its phase, which may be less), deadline
``D_j``, state ``m_j`` GB, width ``a_j`` nodes, host DRAM ``M``, most jobs ``B`` of a group. In a
valid plan every node holds a set ``S`` of jobs of one group, whose period is
``C <= min_{j in S} D_j``, and

* ``|S| = 1``: ``m_j <= M`` (alone on its node a job pays no switch there);
* ``|S| >= 2``: ``sum (p_j + w_j) <= C``, ``T_j + w_j <= C`` for every ``j`` in ``S``,
  ``sum m_j <= M``, and ``|S| <= B``: every job of a shared node pays its switch, and a node's
  jobs are of one group.

A job needs ``a_j`` distinct nodes. With several iterations per period (``max_rate > 1``) there is
no common period to compare with: job ``j`` runs ``k_j`` times in ``C <= k_j D_j``, so
``sum (p_j + w_j) / D_j <= sum k_j (p_j + w_j) / C <= 1`` and ``T_j + w_j <= D_j`` for every job of
a shared node.

Everything else - precedence, the other pool, limits of nodes, caps of the fleet - is left out,
so the least number of such bins is at most the nodes of any valid plan. Seconds and GB carry the
slacks of the exact methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from models.group.pinnings import DRAM_SLACK, REL_SLACK
from models.problem.snapshot import Snapshot

__all__ = ["POOLS", "Pool", "PoolItems"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Pool = Literal["rollout", "train"]
POOLS: Final[tuple[Pool, Pool]] = ("rollout", "train")


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolItems:
    """The jobs of one pool as items (module docstring); every array is ``(n,)``.

    Attributes
    ----------
    run_s, switch_s : float64
        Phase and switch seconds.
    chain_s : float64
        Seconds of one iteration with this pool's switch, ``T_j + w_j``.
    deadline_s : float64
    state_gb : float64
        Per node.
    width : int64
        Nodes held at once.
    dram_gb : float
        Of a node.
    most : int
        Most jobs on a node; 0: no limit.
    rates : bool
        Jobs may run several iterations per period.
    """

    run_s: FloatArray
    switch_s: FloatArray
    chain_s: FloatArray
    deadline_s: FloatArray
    state_gb: FloatArray
    width: IntArray
    dram_gb: float
    most: int = 0
    rates: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, pool: Pool) -> PoolItems:
        """Return the items of one pool of a snapshot."""
        table, limits = snapshot.table, snapshot.limits
        node = snapshot.cluster.rollout if pool == "rollout" else snapshot.cluster.train
        return cls(
            run_s=getattr(table, f"{pool}_s"),
            switch_s=getattr(table, f"{pool}_switch_s"),
            chain_s=table.paid_s[1, 0] if pool == "rollout" else table.paid_s[0, 1],
            deadline_s=table.deadline_s,
            state_gb=getattr(table, f"{pool}_state_gb"),
            width=getattr(table, f"{pool}_nodes"),
            dram_gb=node.host_dram_gb,
            most=limits.max_group_size,
            rates=limits.max_rate > 1,
        )

    def take(self, jobs: IntArray, width: IntArray) -> PoolItems:
        """Return some of the jobs as items of their own, with these widths."""
        return replace(
            self,
            run_s=self.run_s[jobs],
            switch_s=self.switch_s[jobs],
            chain_s=self.chain_s[jobs],
            deadline_s=self.deadline_s[jobs],
            state_gb=self.state_gb[jobs],
            width=width,
        )

    def __len__(self) -> int:
        return len(self.run_s)

    @cached_property
    def load(self) -> FloatArray:
        """Load of each job on a shared node: seconds, or a share of the node with rates."""
        load = self.run_s + self.switch_s
        return load / self.deadline_s if self.rates else load

    @cached_property
    def room(self) -> FloatArray:
        """Load that a shared node has when the job is the one of least deadline."""
        return (np.ones(len(self)) if self.rates else self.deadline_s) * (1 + REL_SLACK)

    @property
    def room_gb(self) -> float:
        """DRAM of a node with its slack."""
        return self.dram_gb * (1 + DRAM_SLACK)

    @property
    def most_jobs(self) -> int:
        """Most jobs on a node, as a number that is never above the number of jobs."""
        return min(self.most or len(self), len(self))

    @cached_property
    def leaders(self) -> IntArray:
        """The jobs by (deadline, index): the first of a set gives it its period."""
        return np.lexsort((np.arange(len(self)), self.deadline_s)).astype(np.int64)

    @cached_property
    def shares_node(self) -> npt.NDArray[np.bool_]:
        """Whether a job may share a node with some other at all, as far as it alone decides."""
        out: npt.NDArray[np.bool_] = self.chain_s <= self.deadline_s * (1 + REL_SLACK)
        out &= self.load <= self.room
        out &= self.state_gb <= self.room_gb
        return out

    def followers(self, leader: int) -> IntArray:
        """Return the jobs that may be on a node of this leader: later, and within its period."""
        if not self.shares_node[leader] or self.most_jobs == 1:
            return np.zeros(0, dtype=np.int64)
        later = self.shares_node & (self._rank > self._rank[leader])
        if not self.rates:
            later &= self.chain_s <= self.room[leader]
        later &= self.load + self.load[leader] <= self.room[leader]
        later &= self.state_gb + self.state_gb[leader] <= self.room_gb
        return np.flatnonzero(later).astype(np.int64)

    @cached_property
    def _rank(self) -> IntArray:
        rank = np.empty(len(self), dtype=np.int64)
        rank[self.leaders] = np.arange(len(self))
        return rank

    def feasible(self, members: Iterable[int]) -> bool:
        """Return whether a node may hold these jobs (module docstring)."""
        jobs = np.array(sorted(set(members)), dtype=np.int64)
        if not len(jobs):
            return True
        if float(self.state_gb[jobs].sum()) > self.room_gb:
            return False
        if len(jobs) == 1:
            return True
        if len(jobs) > self.most_jobs or not self.shares_node[jobs].all():
            return False
        room = float(self.room[jobs].min())
        if float(self.load[jobs].sum()) > room:
            return False
        return self.rates or bool((self.chain_s[jobs] <= room).all())

    def volume(self) -> float:
        """Return the bound of :mod:`models.bounds.volume` before it is rounded up, nodes."""
        if not len(self):
            return 0.0
        share = (self.width * self.run_s / self.deadline_s).sum()
        dram = (self.width * self.state_gb).sum() / self.dram_gb
        most = max(float(share), float(dram), float(self.width.max()))
        return max(most, float(self.width.sum()) / self.most) if self.most else most
