"""Sets and parameters of the compact MILP, by the symbols of :mod:`models.exact.milp`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nlargest
from itertools import combinations
from typing import Any, Final

from instances.jobs import Job
from models.problem.snapshot import FleetCaps, Snapshot

__all__ = ["POOLS", "RELAXATIONS", "REL_SLACK", "SLACK", "Parameters", "PoolParameters", "relaxed"]

POOLS: Final = ("R", "T")
#: A turn and a node's DRAM are larger by this share, so that exact fits leave HiGHS room.
SLACK: Final = 1e-7
#: Relative slack of exact comparisons with a deadline: round-off of an SLO met exactly.
REL_SLACK: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class PoolParameters:
    """One pool; tuples have one entry per job.

    Attributes
    ----------
    width : tuple of int
        ``a^P_j``.
    run_s, switch_s : tuple of float
        ``p^P_j`` and ``w^P_j``, seconds.
    state_gb : tuple of float
        ``m^P_j``.
    dram_gb : float
        ``M^P``.
    usd : float
        ``c^P``, $/h of a node.
    most_group, most_fleet : int or None
        ``N^P`` and ``F^P``.
    """

    width: tuple[int, ...]
    run_s: tuple[float, ...]
    switch_s: tuple[float, ...]
    state_gb: tuple[float, ...]
    dram_gb: float
    usd: float
    most_group: int | None
    most_fleet: int | None


class Parameters:
    """Everything the constraints are written in.

    Attributes
    ----------
    jobs : range
        ``J``.
    pool : mapping of {"R", "T"} to PoolParameters
    sync_s, deadline_s : tuple of float
        ``s_j`` and ``D_j``, seconds.
    lag : tuple of int
        ``l_j``: iterations from a train to the rollout that waits for it.
    most_jobs : int
        ``B``; the number of jobs when there is no limit.
    ranked : list of int
        The jobs by rank.
    members : dict of int to tuple of int
        ``J(g)`` by rank, the leader first.
    leaders : dict of int to list of int
        ``G(j)`` by rank.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.jobs = range(len(snapshot))
        self.pool: Mapping[str, PoolParameters] = {
            "R": _pool(snapshot, "rollout"),
            "T": _pool(snapshot, "train"),
        }
        self.sync_s = tuple(job.sync_s for job in snapshot.jobs)
        self.lag = tuple(job.lag for job in snapshot.jobs)
        self.deadline_s = tuple(job.deadline_s for job in snapshot.jobs)
        self.most_jobs = snapshot.limits.max_group_size or len(snapshot)
        self.ranked = sorted(self.jobs, key=lambda j: (self.deadline_s[j], j))
        self.members = {g: (g, *self._followers(g)) for g in self.ranked}
        self.leaders = {j: [g for g in self.ranked if j in self.members[g]] for j in self.jobs}

    def _followers(self, g: int) -> list[int]:
        if self.most_jobs == 1:
            return []
        most_s = self.deadline_s[g] * (1 + REL_SLACK)
        higher = self.ranked[self.ranked.index(g) + 1 :]
        return [j for j in higher if self.snapshot.jobs[j].solo_s <= most_s]

    @cached_property
    def allowed(self) -> list[tuple[int, int]]:
        """Pairs ``(j, g)`` with ``j in J(g)``."""
        return [(j, g) for g in self.ranked for j in self.members[g]]

    @cached_property
    def reach(self) -> dict[tuple[str, int, int], int]:
        """``reach^P_jg`` by ``(P, j, g)``: how many nodes of the group the job may use."""
        out = {}
        for p, pool in self.pool.items():
            for g in self.ranked:
                between: list[int] = []
                for j in self.members[g]:
                    most = pool.width[g]
                    if j != g:
                        most += pool.width[j] + sum(nlargest(self.most_jobs - 2, between))
                        between.append(pool.width[j])
                    out[p, j, g] = min(most, pool.most_group or most)
        return out

    @cached_property
    def nodes(self) -> list[tuple[str, int, int]]:
        """Nodes ``(P, g, n)`` that some job may use."""
        most = {
            (p, g): max(self.reach[p, j, g] for j in self.members[g])
            for p in POOLS
            for g in self.ranked
        }
        return [(p, g, n) for (p, g), count in most.items() for n in range(count)]

    def users(self, p: str, g: int, n: int) -> list[int]:
        """Return the jobs that may use a node, by rank."""
        return [j for j in self.members[g] if n < self.reach[p, j, g]]

    @cached_property
    def common(self) -> dict[tuple[int, int], list[int]]:
        """Leaders in common of each pair of jobs that has one, the job of lower rank first."""
        out = {}
        for i, j in combinations(self.ranked, 2):
            if leaders := [g for g in self.leaders[i] if g in self.leaders[j]]:
                out[i, j] = leaders
        return out

    @cached_property
    def meetings(self) -> list[tuple[str, int, int, int, int]]:
        """Pairs of jobs and the nodes they may share, ``(P, i, j, g, n)``."""
        return [
            (p, i, j, g, n)
            for p in POOLS
            for (i, j), leaders in self.common.items()
            for g in leaders
            for n in range(min(self.reach[p, i, g], self.reach[p, j, g]))
        ]

    @cached_property
    def alike(self) -> list[tuple[int, int]]:
        """Jobs that differ in name and stay only, each with the next of them by rank."""
        last: dict[Job, int] = {}
        out = []
        for j in self.ranked:
            job = self.snapshot.jobs[j]
            job = replace(job, job_id="", arrival_s=0.0, duration_s=1.0, sync_gb=0.0)
            if job in last:
                out.append((last[job], j))
            last[job] = j
        return out

    def turns(self, seconds: float, g: int) -> float:
        """Return seconds as turns of the group of ``g``."""
        return seconds / (self.deadline_s[g] * (1 + SLACK))

    def share(self, p: str, j: int) -> float:
        """``m^P_j / M^P``."""
        return self.pool[p].state_gb[j] / (self.pool[p].dram_gb * (1 + SLACK))

    def longest(self, p: str, j: int) -> float:
        """``f*^P_j``: the most turns a phase may take."""
        seconds = self.pool[p].run_s[j] + self.pool[p].switch_s[j]
        return min(1.0, max(self.turns(seconds, g) for g in self.leaders[j]))


def _pool(snapshot: Snapshot, name: str) -> PoolParameters:
    node = getattr(snapshot.cluster, name)

    def column(field: str) -> tuple[float, ...]:
        return tuple(getattr(job, f"{name}_{field}") for job in snapshot.jobs)

    return PoolParameters(
        width=tuple(int(width) for width in column("nodes")),
        run_s=column("s"),
        switch_s=column("switch_s"),
        state_gb=column("state_gb"),
        dram_gb=node.host_dram_gb,
        usd=node.usd_per_hour,
        most_group=getattr(snapshot.limits, f"max_{name}_nodes"),
        most_fleet=getattr(snapshot.caps, f"max_{name}_nodes_total"),
    )


# --- what a family of constraints is worth ----------------------------------------------------


def _serial_deadlines(snapshot: Snapshot) -> Snapshot:
    table = snapshot.table
    phases_s = table.rollout_s + table.train_s + table.sync_s
    most_s = (phases_s + table.rollout_switch_s + table.train_switch_s).sum()
    return replace(snapshot, table=table.replace(slo=most_s / table.solo_s))


def _columns(**values: float) -> Callable[[Snapshot], Snapshot]:
    def change(snapshot: Snapshot) -> Snapshot:
        columns = {name: [value] * len(snapshot) for name, value in values.items()}
        return replace(snapshot, table=snapshot.table.replace(**columns))

    return change


def _limits(**values: Any) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: replace(snapshot, limits=replace(snapshot.limits, **values))


#: Families of constraints that changed data take away, and the change.
RELAXATIONS: Final[Mapping[str, Callable[[Snapshot], Snapshot]]] = {
    "slo": _serial_deadlines,
    "group_size": _limits(max_group_size=0),
    "node_limits": _limits(max_rollout_nodes=None, max_train_nodes=None),
    "fleet_caps": lambda snapshot: replace(snapshot, caps=FleetCaps()),
    "gang": _columns(rollout_nodes=1, train_nodes=1),
    "residency": _columns(rollout_state_gb=0.0, train_state_gb=0.0),
    "switches": _columns(rollout_switch_s=0.0, train_switch_s=0.0),
}


def relaxed(snapshot: Snapshot, without: Collection[str]) -> Snapshot:
    """Return the snapshot with the data of these families changed so that they never bind."""
    for name in sorted(set(without) & set(RELAXATIONS)):
        snapshot = RELAXATIONS[name](snapshot)
    return snapshot
