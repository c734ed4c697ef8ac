"""One group alone: the shortest schedule of its jobs on given nodes, or why there is no group.

The lower bound LB(g) (FORMULATION section 4) is usually reached, not always. Here a schedule is
constructed, and as long as it is longer than LB(g) an exact search
(:mod:`models.group.pair_orders`) is asked for a shorter one, until it refuses.

:func:`why_no_group` asks instead which rule keeps jobs from being one group
(:mod:`models.why_not.conflict`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from instances.checker import check_plan
from instances.errors import InfeasibleError, InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.plan import SNAPSHOT_HOURS, GroupVersion, JobPlacement, Limits, Plan
from models.group.pair_orders import decide_orders
from models.group.period import construct, tightened
from models.problem.group_shape import GroupShape, LowerBound, Pins, Schedule, lower_bound
from models.problem.options import SolveOptions
from models.problem.result import Conflict
from models.problem.snapshot import Snapshot
from planner.placement.checked_plan import require_rules

__all__ = ["GroupSchedule", "schedule_group", "why_no_group"]

_SECONDS: Final = SNAPSHOT_HOURS * 3600.0
#: A period is the least when none shorter than this part of it exists.
_CLOSE: Final = 1e-6
_BRANCHES: Final = 200_000
_LIMITS: Final = Limits()


@dataclass(frozen=True, kw_only=True)
class GroupSchedule:
    """The shortest schedule found of one group, whatever the SLOs of its jobs allow.

    Attributes
    ----------
    jobs : JobTable
        Of the group.
    group : GroupVersion
        Pins, period and starts, as in a plan.
    bound : LowerBound
        LB(g) and its three parts, seconds.
    proved : bool
        Whether no schedule of a period shorter by more than one millionth exists.
    """

    jobs: JobTable
    group: GroupVersion
    bound: LowerBound
    proved: bool

    @property
    def period_s(self) -> float:
        """The meta-iteration C_g, seconds."""
        return self.group.period_s

    @property
    def deadline_s(self) -> float:
        """The shortest deadline of its jobs, min D_j, seconds."""
        return float(self.jobs.deadline_s.min())

    @property
    def within_slo(self) -> bool:
        """Whether the period keeps every job's SLO."""
        return self.period_s <= self.deadline_s * (1 + _CLOSE)


def schedule_group(
    jobs: JobTable | Sequence[Job],
    *,
    rollout_pins: Sequence[Pins] | None = None,
    train_pins: Sequence[Pins] | None = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    max_branches: int = _BRANCHES,
) -> GroupSchedule:
    """Find the shortest schedule of some jobs on given nodes, one iteration each a period.

    Deadlines are not asked about, so that what a group would need can be held against them.

    Parameters
    ----------
    jobs : JobTable or sequence of Job
        Of modes sync and one-step.
    rollout_pins, train_pins : sequence of tuple of int, optional
        Nodes of each job, numbered within the group; by default the first ones, shared by all.
    cluster : Cluster
        Its host DRAM limits the state on a node.
    max_branches : int
        What each exact search may take; beyond, ``proved`` is false.

    Returns
    -------
    GroupSchedule
        Its starts have passed the independent checker.

    Raises
    ------
    InputError
        When there is no job, one is async, pins do not fit the jobs, or ``max_branches`` is
        below 1.
    InfeasibleError
        When states exceed the host DRAM of a node they share.
    CheckError
        When the schedule breaks a rule: a fault of the program.

    Examples
    --------
    Sync can make the lower bound unreachable:

    >>> from planner import catalog_path, read_trace
    >>> found = schedule_group(read_trace(catalog_path("tiny-sync-gap")).jobs)
    >>> found.bound.period_s, round(found.period_s, 3), found.proved, found.within_slo
    (11.0, 11.5, True, False)
    """
    table = jobs if isinstance(jobs, JobTable) else JobTable.from_jobs(jobs)
    members = tuple(table)
    _require(members, max_branches)
    pins = (
        _pins("rollout", [job.rollout_nodes for job in members], rollout_pins),
        _pins("train", [job.train_nodes for job in members], train_pins),
    )
    shape = GroupShape.of(members, *pins)
    schedule, proved = _shortest(shape, max_branches)
    group = _version(members, pins, schedule)
    _check(group, table, cluster)
    return GroupSchedule(jobs=table, group=group, bound=lower_bound(shape), proved=proved)


def why_no_group(
    jobs: JobTable | Sequence[Job],
    *,
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    nodes: tuple[int, int] | None = None,
    time_limit_s: float | None = None,
    seed: int = 0,
) -> Conflict | None:
    """Say why jobs cannot be one group within their SLOs, and what would cure it.

    Parameters
    ----------
    jobs : JobTable or sequence of Job
        Of modes sync and one-step.
    cluster : Cluster
        Its host DRAM limits the state on a node.
    limits : Limits
        Most jobs and nodes of a group, and the highest rate.
    nodes : (int, int), optional
        Most rollout and train nodes they may hold; by default as many as ``limits`` allow.
    time_limit_s : float, optional
        Beyond it, what is known by then is told: perhaps not the smallest set, not all cures.
    seed : int
        Of CP-SAT.

    Returns
    -------
    Conflict or None
        Of a smallest set of the jobs that is in conflict, with the least changes that cure it;
        ``None`` where all of them can be one group.

    Raises
    ------
    InputError
        When there is no job, or one is async.

    Examples
    --------
    Loads admit these three on one node of each kind, and no schedule exists:

    >>> from planner import catalog_path, read_trace
    >>> found = why_no_group(read_trace(catalog_path("tiny-sync-gap")).jobs, nodes=(1, 1))
    >>> found.rule, found.job_ids
    ('precedence', ('gap-1', 'gap-2', 'gap-3'))
    """
    from models.group.group_cost import GroupCost
    from models.why_not.conflict import why_not

    table = jobs if isinstance(jobs, JobTable) else JobTable.from_jobs(jobs)
    _require(tuple(table), max_branches=1)
    deadline = SolveOptions(time_limit_s=time_limit_s).start()
    cost = GroupCost(Snapshot(table=table, cluster=cluster, limits=limits), seed=seed)
    return why_not(cost, tuple(range(len(table))), nodes, deadline=deadline, seed=seed)


def _require(members: Sequence[Job], max_branches: int) -> None:
    if not members:
        raise InputError("Expected at least one job in a group, got none.")
    for job in members:
        job.require_valid()
        if job.mode == "async":
            raise InputError(f"Expected mode sync or one-step, got async (job '{job.job_id}').")
    if max_branches < 1:
        raise InputError(f"Expected max_branches >= 1, got {max_branches!r}.")


def _pins(pool: str, widths: Sequence[int], given: Sequence[Pins] | None) -> tuple[Pins, ...]:
    """Return the nodes of each job in one pool."""
    if given is None:
        return tuple(tuple(range(width)) for width in widths)
    pins = tuple(tuple(nodes) for nodes in given)
    if [len(nodes) for nodes in pins] != list(widths):
        raise InputError(
            f"Expected {pool}_pins of {', '.join(map(str, widths))} nodes, one tuple per job, got "
            f"{list(pins)}."
        )
    return pins


def _shortest(shape: GroupShape, max_branches: int) -> tuple[Schedule, bool]:
    """Return the shortest schedule found, and whether it is proved to be the shortest.

    A shorter period that the search finds has other orders than the one before, whose least period
    it becomes; orders are finitely many.
    """
    best = construct(shape)
    if best is None:  # one iteration after the other always works
        raise AssertionError("Expected a schedule without a limit, got none.")
    while not best.at_bound:
        shorter_s = max(best.period_s * (1 - _CLOSE), best.bound_s)
        answer = decide_orders(shape, shorter_s, max_branches)
        if answer.starts_s is None:
            return best, answer.proved
        found = Schedule(period_s=shorter_s, starts_s=answer.starts_s, bound_s=best.bound_s)
        best = tightened(shape, found)
    return best, True


def _version(
    members: Sequence[Job], pins: tuple[tuple[Pins, ...], ...], schedule: Schedule
) -> GroupVersion:
    rollout, train = pins
    return GroupVersion(
        group_id="g1",
        from_s=0.0,
        to_s=_SECONDS,
        period_s=schedule.period_s,
        rollout_nodes=tuple(sorted({node for nodes in rollout for node in nodes})),
        train_nodes=tuple(sorted({node for nodes in train for node in nodes})),
        placements=tuple(
            JobPlacement(job_id=job.job_id, rollout_pins=r, train_pins=t, starts_s=starts)
            for job, r, t, starts in zip(members, rollout, train, schedule.starts_s, strict=True)
        ),
    )


def _check(group: GroupVersion, table: JobTable, cluster: Cluster) -> None:
    """Raise unless the group keeps every rule but the SLO, which is lifted here."""
    slo = np.maximum(table.slo, group.period_s / table.solo_s * (1 + _CLOSE))
    usd = cluster.usd_per_hour(len(group.rollout_nodes), len(group.train_nodes))
    plan = Plan(
        policy="group",
        durations="snapshot",
        cluster=cluster,
        jobs=table.replace(slo=slo),
        limits=Limits(max_group_size=0),
        groups=(group,),
        usd_total=SNAPSHOT_HOURS * usd,
    )
    for violation in check_plan(plan).violations:
        if violation.rule == "residency":
            raise InfeasibleError(violation.message)
    require_rules(plan, "The schedule of one group")
