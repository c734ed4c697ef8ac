"""Plans by loads alone: the arrays of :mod:`models.loads.load_state`, in and out.

Only for snapshots of single-node jobs with one iteration per period (:func:`is_for`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from models.group.pinnings import DRAM_SLACK, REL_SLACK
from models.loads.load_state import Fleet, LoadData, fill
from models.loads.plan_moves import Annealing, anneal
from models.problem.snapshot import Snapshot

__all__ = ["LoadGroup", "LoadPlan", "components", "is_for", "load_data", "node_values"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: Members, and the rollout and the train node of each, numbered from 0 in order of first use.
LoadGroup = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

_DEVIATES: Final = 4096
#: Most that phases count as longer, relatively.
_TIGHTEST: Final = 0.02
_NO_LIMIT: Final = 2**31


def is_for(snapshot: Snapshot) -> bool:
    """Return whether loads describe plans of a snapshot: single nodes, one iteration."""
    table = snapshot.table
    widest = max(table.rollout_nodes.max(initial=1), table.train_nodes.max(initial=1))
    return bool(widest == 1 and snapshot.limits.max_rate == 1)


def node_values(snapshot: Snapshot) -> FloatArray:
    """Return a value of each job in each pool, ``(2, n)``; at most 1 together on a node.

    A mean of its shares of time and of DRAM, the resource that more nodes are needed for
    weighing more (weights are the squares of the nodes needed).
    """
    table, cluster = snapshot.table, snapshot.cluster
    out = np.empty((2, len(snapshot)))
    for p, (seconds, state, dram) in enumerate(
        (
            (table.rollout_s, table.rollout_state_gb, cluster.rollout.host_dram_gb),
            (table.train_s, table.train_state_gb, cluster.train.host_dram_gb),
        )
    ):
        time = seconds / table.deadline_s
        room = state / dram if dram > 0 else np.zeros(len(time))
        weights = np.array([time.sum(), room.sum()]) ** 2
        weights /= weights.sum() or 1.0
        out[p] = weights[0] * time + weights[1] * room
    return out


def load_data(snapshot: Snapshot, most_jobs: int, value: FloatArray | None = None) -> LoadData:
    """Return the arrays of a snapshot.

    Parameters
    ----------
    most_jobs : int
        Most jobs of a group, beside the limit of the snapshot.
    value : (2, n) float64, optional
        Values of jobs, such as dual prices in nodes; left out: :func:`node_values`.
    """
    table, cluster = snapshot.table, snapshot.cluster
    limits, caps = snapshot.limits, snapshot.caps
    order = np.argsort(table.deadline_s, kind="stable").astype(np.int64)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    most = [
        min(limits.max_group_size or most_jobs, most_jobs),
        limits.max_rollout_nodes,
        limits.max_train_nodes,
        caps.max_rollout_nodes_total,
        caps.max_train_nodes_total,
    ]
    switch = np.stack((table.rollout_switch_s, table.train_switch_s)).astype(np.float64)
    quantiles = (np.arange(_DEVIATES) + 0.5) / _DEVIATES
    return LoadData(
        chain_s=np.array(table.paid_s, dtype=np.float64),
        deadline_s=table.deadline_s * (1 + REL_SLACK),
        paid_s=np.stack((table.rollout_s, table.train_s)) + switch,
        state_gb=np.stack((table.rollout_state_gb, table.train_state_gb)).astype(np.float64),
        value=node_values(snapshot) if value is None else np.array(value, dtype=np.float64),
        dram_gb=np.array([cluster.rollout.host_dram_gb, cluster.train.host_dram_gb])
        * (1 + DRAM_SLACK),
        usd=np.array([cluster.rollout.usd_per_hour, cluster.train.usd_per_hour]),
        rank=rank,
        order=order,
        limits=np.array([_NO_LIMIT if x is None else x for x in most], dtype=np.int64),
        deviates=-np.log(quantiles),
    )


def _empty(n: int, seed: int) -> Fleet:
    def ints(*shape: int) -> IntArray:
        return np.full(shape, -1, dtype=np.int64)

    def floats(*shape: int) -> FloatArray:
        return np.zeros(shape)

    words = np.random.SeedSequence(seed).generate_state(4).astype(np.int64)
    words[0] |= 1  # never all zero
    slots = np.arange(n, dtype=np.int64)
    return Fleet(
        group=ints(n), bin=ints(2, n), bin_next=ints(2, n), bin_prev=ints(2, n),
        mate_next=ints(n), mate_prev=ints(n), b_group=ints(2, n),
        b_count=np.zeros((2, n), dtype=np.int64), b_head=ints(2, n), b_load=floats(2, n),
        b_state=floats(2, n), b_value=floats(2, n), b_next=ints(2, n), b_prev=ints(2, n),
        g_count=np.zeros(n, dtype=np.int64), g_head=ints(n),
        g_bins=np.zeros((2, n), dtype=np.int64), g_first=ints(2, n), g_period=floats(n),
        g_top=floats(n), g_load=floats(2, n),
        free_bins=np.stack((slots, slots)), free_groups=slots.copy(),
        used=np.zeros(3, dtype=np.int64), rng=words, best_group=ints(n), best_bin=ints(2, n),
    )  # fmt: skip


class LoadPlan:
    """A plan by loads, changed in place by :meth:`anneal`.

    Parameters
    ----------
    data : LoadData
    groups : sequence of LoadGroup
        Feasible by loads; every job once.
    seed : int
    """

    def __init__(self, data: LoadData, groups: Sequence[LoadGroup], seed: int) -> None:
        self.data = data
        self._paid_s = data.paid_s.copy()
        self.fleet = _empty(len(data.order), seed)
        self.best_usd = np.inf
        self.put(groups)

    @property
    def usd(self) -> float:
        """Price of the bins of the present plan."""
        return float(self.fleet.used[:2] @ self.data.usd)

    def put(self, groups: Sequence[LoadGroup]) -> None:
        """Replace the plan; the generator goes on."""
        fresh = _empty(len(self.data.order), 0)
        for mine, theirs in zip(self.fleet, fresh, strict=True):
            if mine is not self.fleet.rng:
                mine[...] = theirs
        rows: list[int] = []
        firsts: list[tuple[int, int, int]] = []  # first job of the group, of its bins; or -1
        for members, rollout, train in groups:
            first_r: dict[int, int] = {}
            first_t: dict[int, int] = {}
            for j, r, t in zip(members, rollout, train, strict=True):
                group = members[0] if j != members[0] else -1
                firsts.append((group, first_r.get(r, -1), first_t.get(t, -1)))
                first_r.setdefault(r, j)
                first_t.setdefault(t, j)
                rows.append(j)
        fill(
            self.data,
            self.fleet,
            np.array(rows, dtype=np.int64),
            np.array(firsts, dtype=np.int64).reshape(-1, 3),
        )
        self.best_usd = self.usd
        self.fleet.best_group[:] = self.fleet.group
        self.fleet.best_bin[:] = self.fleet.bin

    def anneal(self, moves: int, how: Annealing) -> int:
        """Make so many attempts at moves; return how many were made."""
        made, best = anneal(self.data, self.fleet, how, moves, self.best_usd)
        self.best_usd = float(best)
        return int(made)

    def tighten(self, jobs: Iterable[int], share: float) -> None:
        """Count the phases of some jobs as longer by a share, from the next :meth:`put` on.

        Loads admitted a group that has no schedule: it is to leave more room. At most 2 %.
        """
        for j in jobs:
            most = self._paid_s[:, j] * (1 + _TIGHTEST)
            self.data.paid_s[:, j] = np.minimum(self.data.paid_s[:, j] * (1 + share), most)

    def relax(self) -> None:
        """Count all phases as long as they are, from the next :meth:`put` on."""
        self.data.paid_s[...] = self._paid_s

    def split(self) -> None:
        """Take the groups of the present plan apart where they share no node."""
        best = self.fleet.best_group.copy(), self.fleet.best_bin.copy(), self.best_usd
        self.put([part for group in self.groups(best=False) for part in components(group)])
        self.fleet.best_group[:], self.fleet.best_bin[:], self.best_usd = best

    def groups(self, *, best: bool = True) -> list[LoadGroup]:
        """Return the groups of the cheapest plan met, or of the present one, slot by slot."""
        fleet = self.fleet
        group, bins = (fleet.best_group, fleet.best_bin) if best else (fleet.group, fleet.bin)
        return _groups(group, bins)


def _groups(group: IntArray, bins: IntArray) -> list[LoadGroup]:
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    out = []
    for part in np.split(order, cuts):
        members = tuple(part.tolist())
        out.append((members, _renumbered(bins[0, part]), _renumbered(bins[1, part])))
    return out


def _renumbered(nodes: Sequence[int] | IntArray) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(int(node), len(seen)) for node in nodes)


def components(group: LoadGroup) -> list[LoadGroup]:
    """Return the parts of a group that share no node, each a group of its own."""
    members, rollout, train = group
    part = list(range(len(members)))
    for nodes in (rollout, train):
        first: dict[int, int] = {}
        for i, node in enumerate(nodes):
            a, b = part[first.setdefault(node, i)], part[i]
            if a != b:
                part = [a if x == b else x for x in part]
    out = []
    for root in dict.fromkeys(part):
        at = [i for i, x in enumerate(part) if x == root]
        out.append(
            (
                tuple(members[i] for i in at),
                _renumbered([rollout[i] for i in at]),
                _renumbered([train[i] for i in at]),
            )
        )
    return out
