"""What a conflict says: the rule that breaks in words, and the changes that cure it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from instances.jobs import Job
from models.group.group_cost import Nodes
from models.problem.result import Conflict
from models.problem.snapshot import Snapshot

__all__ = [
    "POOLS",
    "Cure",
    "Explanation",
    "counted",
    "names_of",
    "number",
    "rounded_up",
    "sentence",
]

POOLS: Final = ("rollout", "train")


#: Job ids named one by one.
_MOST_NAMES: Final = 12


@dataclass(frozen=True, kw_only=True)
class Cure:
    """New values of what a planner can change; ``None`` or nothing where it stays as it is.

    Attributes
    ----------
    max_group_size : int or None
    nodes : (int or None, int or None)
        Rollout and train nodes of the group, and its limits where these are lower.
    dram_gb : (float or None, float or None)
        Host DRAM of a rollout and of a train node.
    slo : tuple of (str, float)
        Job id and SLO.
    slo_factor : float or None
        Every SLO is multiplied by it.
    totals : (int or None, int or None)
        Fleet caps, rollout and train nodes.
    least : bool
        Whether less of the same is proved not to be enough.
    within : str
        The step in which the least was looked for, empty when it is exact.
    """

    max_group_size: int | None = None
    nodes: tuple[int | None, int | None] = (None, None)
    dram_gb: tuple[float | None, float | None] = (None, None)
    slo: tuple[tuple[str, float], ...] = ()
    slo_factor: float | None = None
    totals: tuple[int | None, int | None] = (None, None)
    least: bool = True
    within: str = ""

    def with_nodes(self, pool: int, nodes: int) -> Cure:
        """Return the cure with so many nodes of one pool."""
        rollout, train = self.nodes
        return replace(self, nodes=(nodes, train) if pool == 0 else (rollout, nodes))

    def with_dram(self, pool: int, gb: float) -> Cure:
        """Return the cure with so much host DRAM on the nodes of one pool."""
        rollout, train = self.dram_gb
        return replace(self, dram_gb=(gb, train) if pool == 0 else (rollout, gb))

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as it is after the change."""
        limits, caps, cluster = snapshot.limits, snapshot.caps, snapshot.cluster
        if self.max_group_size is not None:
            limits = replace(limits, max_group_size=self.max_group_size)
        for pool, name in enumerate(POOLS):
            nodes, gb, total = self.nodes[pool], self.dram_gb[pool], self.totals[pool]
            limit = getattr(limits, f"max_{name}_nodes")
            if nodes is not None and limit is not None:
                limits = replace(limits, **{f"max_{name}_nodes": max(limit, nodes)})
            if gb is not None:
                node = replace(getattr(cluster, name), host_dram_gb=gb)
                cluster = cluster.replace(**{name: node})
            if total is not None:
                caps = replace(caps, **{f"max_{name}_nodes_total": total})
        table = snapshot.table
        if self.slo or self.slo_factor is not None:
            new, factor = dict(self.slo), self.slo_factor or 1.0
            slos = zip(table.job_id, table.slo.tolist(), strict=True)
            table = table.replace(slo=[new.get(job_id, slo) * factor for job_id, slo in slos])
        return Snapshot(table=table, cluster=cluster, limits=limits, caps=caps)

    def words(self, snapshot: Snapshot, nodes: Nodes | None = None) -> str:
        """Return the change in words; ``nodes`` is what the group may hold now."""
        text = " and ".join([*self._limit_words(snapshot, nodes), *self._slo_words(snapshot)])
        end = f" (to within {self.within})" if self.within else ""
        if not self.least:
            end = " (enough; not proved the least)"
        return f"{sentence(text)}{end}."

    def _limit_words(self, snapshot: Snapshot, nodes: Nodes | None) -> Iterator[str]:
        if self.max_group_size is not None:
            size = snapshot.limits.max_group_size
            yield f"raise max_group_size from {size} to {self.max_group_size}"
        for pool, name in enumerate(POOLS):
            wanted, gb, total = self.nodes[pool], self.dram_gb[pool], self.totals[pool]
            limit = getattr(snapshot.limits, f"max_{name}_nodes")
            if wanted is not None and limit is not None and limit < wanted:
                yield f"raise max_{name}_nodes from {limit} to {wanted}"
            elif wanted is not None:
                now = "" if nodes is None else f" instead of {nodes[pool]}"
                yield f"use {counted(wanted, f'{name} node')}{now}"
            if gb is not None:
                has = getattr(snapshot.cluster, name).host_dram_gb
                yield f"give each {name} node {number(gb)} instead of {number(has)} GB of host DRAM"
            if total is not None:
                cap = getattr(snapshot.caps, f"max_{name}_nodes_total")
                yield f"raise max_{name}_nodes_total from {cap} to {total}"

    def _slo_words(self, snapshot: Snapshot) -> Iterator[str]:
        now = dict(zip(snapshot.table.job_id, snapshot.table.slo.tolist(), strict=True))
        if self.slo:
            jobs = [f"job {i} from {number(now[i])} to {number(slo)}" for i, slo in self.slo]
            yield f"loosen the SLO of {', of '.join(jobs)}"
        if self.slo_factor is not None:
            yield f"multiply every SLO by {number(self.slo_factor)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A conflict with what its words stand for.

    Attributes
    ----------
    conflict : Conflict
    members : tuple of int
        The jobs in conflict, indices of the snapshot.
    cures : tuple of Cure
        One per relaxation.
    """

    conflict: Conflict
    members: tuple[int, ...]
    cures: tuple[Cure, ...]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        members: Sequence[int],
        told: tuple[str, str],
        cures: Sequence[Cure],
        relaxations: Sequence[str],
    ) -> Explanation:
        """Return the explanation of some of the jobs; ``told`` is (rule, message)."""
        rule, message = told
        conflict = Conflict(
            job_ids=tuple(snapshot.jobs[i].job_id for i in members),
            rule=rule,
            message=message,
            relaxations=tuple(relaxations),
        )
        return cls(conflict=conflict, members=tuple(members), cures=tuple(cures))


def number(value: float) -> str:
    """Return a number with thousands separators and at most four decimals."""
    if 0 < abs(value) < 0.01:
        return f"{value:.3g}"
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def counted(count: int, thing: str) -> str:
    """Return ``"1 node"`` or ``"2 nodes"``."""
    return f"{count} {thing}{'s' * (count != 1)}"


def names_of(jobs: Sequence[Job]) -> str:
    """Return ``"job a"``, ``"jobs a and b"``, ``"jobs a, b and c"``; long lists are cut."""
    names = [job.job_id for job in jobs]
    if len(names) == 1:
        return f"job {names[0]}"
    if len(names) > _MOST_NAMES:
        return f"jobs {', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return f"jobs {', '.join(names[:-1])} and {names[-1]}"


def rounded_up(value: float, digits: int) -> float:
    """Return a number rounded up to so many decimals; round-off does not add a digit."""
    scale = 10.0**digits
    return math.ceil(value * scale - 1e-8) / scale


def sentence(text: str) -> str:
    """Return a text with its first letter raised."""
    return text[0].upper() + text[1:]
