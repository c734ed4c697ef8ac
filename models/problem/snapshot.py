"""The snapshot problem: jobs present at one moment, and the groups of an answer to it.

Every exact method takes a :class:`Snapshot` and answers with :class:`PlacedGroup` objects,
which :func:`plan_of` turns into a checked and re-costed :class:`instances.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from instances.checker import check_plan
from instances.errors import CheckError, InputError, UnsupportedError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.plan import SNAPSHOT_HOURS, GroupVersion, JobPlacement, Limits, Plan
from models.problem.group_shape import Pins, Schedule, Starts

__all__ = [
    "FleetCaps",
    "PlacedGroup",
    "Snapshot",
    "groups_of",
    "placed",
    "plan_of",
    "solo_group",
]

_SECONDS: Final = SNAPSHOT_HOURS * 3600.0
_LIMITS: Final = Limits()
#: Nodes of all jobs alone, both pools, beyond which plans would not fit memory and time.
_MOST_PINS: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class FleetCaps:
    """Most nodes of each pool over all groups; ``None`` means no cap.

    Attributes
    ----------
    max_rollout_nodes_total : int or None
        Rollout nodes of all groups together.
    max_train_nodes_total : int or None
        Train nodes of all groups together.

    Raises
    ------
    InputError
        When a cap is not a whole number >= 0.
    """

    max_rollout_nodes_total: int | None = None
    max_train_nodes_total: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_rollout_nodes_total", "max_train_nodes_total"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"Expected {name} a whole number >= 0, got {value!r}.")

    @property
    def any(self) -> bool:
        """Whether a pool is capped."""
        return self.max_rollout_nodes_total is not None or self.max_train_nodes_total is not None

    def allow(self, rollout_nodes: int, train_nodes: int) -> bool:
        """Return whether so many nodes are within the caps."""
        most_r, most_t = self.max_rollout_nodes_total, self.max_train_nodes_total
        return (most_r is None or rollout_nodes <= most_r) and (
            most_t is None or train_nodes <= most_t
        )


_NO_CAPS: Final = FleetCaps()


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The static problem (FORMULATION section 2).

    Attributes
    ----------
    table : JobTable
        Jobs present; sync and one-step jobs only.
    cluster : Cluster
    limits : Limits
        Of each group.
    caps : FleetCaps
        Of the fleet, over all groups.

    Raises
    ------
    UnsupportedError
        When a job is async, or the jobs hold more than ``_MOST_PINS`` nodes.
    InputError
        When a number of a job is out of its range, or a job id is repeated.
    """

    table: JobTable
    cluster: Cluster = DEFAULT_CLUSTER
    limits: Limits = _LIMITS
    caps: FleetCaps = _NO_CAPS

    def __post_init__(self) -> None:
        for job in self.jobs:
            if job.mode not in ("sync", "one-step"):
                raise UnsupportedError(
                    f"Expected mode sync or one-step, got {job.mode} (job '{job.job_id}'): exact "
                    "methods plan no job on dedicated nodes."
                )
            job.require_valid()
        nodes = int(self.table.rollout_nodes.sum() + self.table.train_nodes.sum())
        if nodes > _MOST_PINS:
            raise UnsupportedError(
                f"Expected jobs of at most {_MOST_PINS:,} nodes together, got {nodes:,}: exact "
                "methods list every node of a gang."
            )
        if len(set(self.table.job_id)) < len(self.table):
            raise InputError("Expected distinct job ids in a snapshot.")

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        cluster: Cluster = DEFAULT_CLUSTER,
        limits: Limits = _LIMITS,
        caps: FleetCaps = _NO_CAPS,
    ) -> Snapshot:
        """Return the snapshot of single jobs."""
        return cls(table=JobTable.from_jobs(jobs), cluster=cluster, limits=limits, caps=caps)

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs as single objects, in the table's order."""
        return tuple(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def usd_per_hour(self, rollout_nodes: int, train_nodes: int) -> float:
        """Return the price of so many nodes, $/h."""
        return self.cluster.usd_per_hour(rollout_nodes, train_nodes)


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """One group of an answer; ``members`` are indices of the snapshot's jobs, ascending.

    Attributes
    ----------
    rollout_pins, train_pins : tuple of tuple of int
        Per member, nodes of this group, numbered from 0 in each pool.
    period_s : float
    starts_s : tuple of tuple of (float, float)
        Per member one (rollout, train) start per iteration, as in a plan.
    """

    members: tuple[int, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    period_s: float
    starts_s: Starts
    rates: tuple[int, ...] = field(default=())

    @property
    def nodes(self) -> tuple[int, int]:
        """Number of rollout and of train nodes that a member is pinned to."""
        return (
            len({node for pins in self.rollout_pins for node in pins}),
            len({node for pins in self.train_pins for node in pins}),
        )

    def without(self, dropped: Iterable[int]) -> PlacedGroup | None:
        """Return the group without some members, still valid; ``None`` when none is left."""
        gone = set(dropped)
        kept = [i for i, member in enumerate(self.members) if member not in gone]
        if not kept:
            return None
        return PlacedGroup(
            members=tuple(self.members[i] for i in kept),
            rollout_pins=tuple(self.rollout_pins[i] for i in kept),
            train_pins=tuple(self.train_pins[i] for i in kept),
            period_s=self.period_s,
            starts_s=tuple(self.starts_s[i] for i in kept),
            rates=tuple(self.rates[i] for i in kept) if self.rates else (),
        )


def solo_group(snapshot: Snapshot, member: int) -> PlacedGroup:
    """Return a job alone on nodes of its own: period T_j, always within its SLO."""
    job = snapshot.jobs[member]
    return PlacedGroup(
        members=(member,),
        rollout_pins=(tuple(range(job.rollout_nodes)),),
        train_pins=(tuple(range(job.train_nodes)),),
        period_s=job.solo_s,
        starts_s=(((0.0, job.rollout_s),),),
    )


def placed(
    members: Sequence[int], pins: tuple[Sequence[Pins], ...], found: Schedule
) -> PlacedGroup:
    """Return a group from (rollout pins, train pins) and a schedule."""
    rollout, train = pins
    return PlacedGroup(
        members=tuple(members),
        rollout_pins=tuple(rollout),
        train_pins=tuple(train),
        period_s=found.period_s,
        starts_s=found.starts_s,
        rates=tuple(len(pairs) for pairs in found.starts_s),
    )


def plan_of(snapshot: Snapshot, groups: Iterable[PlacedGroup], policy: str) -> Plan:
    """Return the checked, re-costed plan of these groups, in order of their first job.

    Raises
    ------
    CheckError
        When the independent checker finds a broken rule, or the fleet exceeds its caps: a
        fault of this program.
    """
    versions = []
    ordered = sorted(groups, key=lambda group: group.members)
    for number, group in enumerate(ordered, start=1):
        rates = group.rates or (1,) * len(group.members)
        versions.append(
            GroupVersion(
                group_id=f"g{number}",
                from_s=0.0,
                to_s=_SECONDS,
                period_s=group.period_s,
                rollout_nodes=_union(group.rollout_pins),
                train_nodes=_union(group.train_pins),
                placements=tuple(
                    JobPlacement(
                        job_id=snapshot.jobs[member].job_id,
                        rollout_pins=group.rollout_pins[i],
                        train_pins=group.train_pins[i],
                        starts_s=group.starts_s[i],
                        rate=rates[i],
                    )
                    for i, member in enumerate(group.members)
                ),
            )
        )
    nodes = [sum(len(v.rollout_nodes) for v in versions), sum(len(v.train_nodes) for v in versions)]
    plan = Plan(
        policy=policy,
        durations="snapshot",
        cluster=snapshot.cluster,
        jobs=snapshot.table,
        limits=snapshot.limits,
        groups=tuple(versions),
        usd_total=SNAPSHOT_HOURS * snapshot.usd_per_hour(nodes[0], nodes[1]),
    )
    report = check_plan(plan)
    if not report.ok:
        first = report.violations[0]
        raise CheckError(
            f"A plan of method {policy} broke {len(report.violations)} rules; the first: "
            f"[{first.rule}] {first.message} This is a fault of the program, not of the input."
        )
    if not snapshot.caps.allow(*nodes):
        raise CheckError(
            f"A plan of method {policy} holds {nodes[0]} rollout and {nodes[1]} train nodes, "
            "beyond the fleet caps. This is a fault of the program, not of the input."
        )
    return plan


def _union(pins: Sequence[Pins]) -> Pins:
    return tuple(sorted({node for nodes in pins for node in nodes}))


def groups_of(snapshot: Snapshot, plan: Plan) -> tuple[PlacedGroup, ...]:
    """Return the groups of a plan of the same jobs, as a warm start.

    Raises
    ------
    InputError
        When the plan is not a valid snapshot plan of these jobs within the limits and caps.
    """
    index = {job_id: i for i, job_id in enumerate(snapshot.table.job_id)}
    groups = []
    for version in plan.groups:
        unknown = [p.job_id for p in version.placements if p.job_id not in index]
        if unknown:
            raise InputError(f"The warm start places job '{unknown[0]}', not of this snapshot.")
        placements = sorted(version.placements, key=lambda p: index[p.job_id])
        groups.append(
            PlacedGroup(
                members=tuple(index[p.job_id] for p in placements),
                rollout_pins=tuple(p.rollout_pins for p in placements),
                train_pins=tuple(p.train_pins for p in placements),
                period_s=version.period_s,
                starts_s=tuple(p.starts_s for p in placements),
                rates=tuple(p.rate for p in placements),
            )
        )
    try:
        plan_of(snapshot, groups, plan.policy)
    except CheckError as error:
        raise InputError(f"The warm start is not a valid plan of this snapshot: {error}") from None
    return tuple(groups)
