"""What every exact method returns: why it stopped, apart from what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from instances.errors import CheckError, FleetPlannerError
from instances.plan import Limits, Plan
from models.problem.options import SolveOptions
from models.problem.snapshot import FleetCaps, PlacedGroup, Snapshot, groups_of, plan_of, solo_group

__all__ = [
    "OPTIMALITY_REL",
    "Conflict",
    "Result",
    "SolverInfo",
    "StoppedBy",
    "Termination",
    "first_incumbent",
    "proved",
    "ratio_of",
    "result_of",
    "usd_of",
]

#: A cost is proved optimal when its bound is within this relative distance.
OPTIMALITY_REL: Final = 1e-7


class Termination(StrEnum):
    """Why a method stopped.

    Attributes
    ----------
    OPTIMAL : str
        The plan held is proved to cost the least.
    FEASIBLE_LIMIT : str
        A limit or Ctrl-C stopped it; a plan is held.
    INFEASIBLE : str
        Proved: no valid plan exists.
    NO_PLAN_LIMIT : str
        A limit or Ctrl-C stopped it; no plan is held.
    ERROR : str
        The solver failed; whatever is held is still valid.
    """

    OPTIMAL = "optimal"
    FEASIBLE_LIMIT = "feasible-limit"
    INFEASIBLE = "infeasible"
    NO_PLAN_LIMIT = "no-plan-limit"
    ERROR = "error"


class StoppedBy(StrEnum):
    """Which limit stopped a method that proved nothing.

    Attributes
    ----------
    TIME : str
        The time limit.
    NODES : str
        The limit of branch-and-bound nodes.
    WORK : str
        The limit of work: deterministic time, or rounds.
    INTERRUPT : str
        Ctrl-C.
    GRID : str
        The finest time grid leaves an interval (CP-SAT).
    SEARCH : str
        A heuristic ended by its own rule; what it holds may not be the least.
    SIZE : str
        Too many candidate groups; what is held was not made by the method.
    """

    TIME = "time"
    NODES = "nodes"
    WORK = "work"
    INTERRUPT = "interrupt"
    GRID = "grid"
    SEARCH = "search"
    SIZE = "size"


@dataclass(frozen=True, kw_only=True)
class SolverInfo:
    """Which solver answered: ``None`` for our own code.

    Attributes
    ----------
    status : str
        The solver's own word for how it ended.
    """

    name: str
    version: str
    status: str


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Why no plan exists, in words, and what would cure it.

    Attributes
    ----------
    job_ids : tuple of str
        The smallest set of jobs in conflict that was found.
    rule : str
        What they break, such as ``"max_train_nodes_total"`` or ``"residency"``.
    message : str
        The rule as these jobs break it, with numbers and units.
    relaxations : tuple of str
        Each on its own cures it: nodes, GB of DRAM, or SLO.
    """

    job_ids: tuple[str, ...]
    rule: str
    message: str
    relaxations: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a method found.

    Attributes
    ----------
    method : str
        Who found it.
    termination : Termination
        Why it stopped.
    stopped_by : StoppedBy or None
        The limit that stopped it; ``None`` when it finished.
    plan : Plan or None
        What is held: checked and re-costed, whatever the termination; ``None`` when nothing.
    usd_per_hour : float or None
        Its price, $/h.
    bound_usd_per_hour : float or None
        Proved: no valid plan within ``limits`` and ``caps`` costs less, $/h.
    bound_method : str or None
        Who proved the bound, where that is another than ``method``.
    limits, caps
        What plan and bound hold for.
    options : SolveOptions
        Seed, threads and limits it ran with.
    solver : SolverInfo or None
        Name, version and settings of the solver asked, where one was.
    counts : mapping of str to int
        Method's own counts, such as candidate groups enumerated.
    seconds : mapping of str to float
        Seconds by step of the method.
    conflict : Conflict or None
        Explains ``INFEASIBLE`` when known.
    """

    method: str
    termination: Termination
    limits: Limits
    caps: FleetCaps
    options: SolveOptions
    stopped_by: StoppedBy | None = None
    plan: Plan | None = None
    usd_per_hour: float | None = None
    bound_usd_per_hour: float | None = None
    bound_method: str | None = None
    solver: SolverInfo | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    conflict: Conflict | None = None

    @property
    def seed(self) -> int:
        """Seed of every random draw."""
        return self.options.seed

    @property
    def ratio(self) -> float | None:
        """Cost over bound; see :func:`ratio_of`."""
        return ratio_of(self.usd_per_hour, self.bound_usd_per_hour)


def ratio_of(usd: float | None, bound_usd: float | None) -> float | None:
    """Return cost / bound, the optimality gap (1.06: at most 6 % above).

    ``None`` when either is unknown or the bound is nothing while the cost is not; 1 when both
    are nothing. A bound above the cost by round-off counts as equal.

    Raises
    ------
    FleetPlannerError
        When the bound exceeds the cost by more than round-off: one of the two is wrong.
    """
    if usd is None or bound_usd is None:
        return None
    if bound_usd > usd + OPTIMALITY_REL * abs(usd):
        raise FleetPlannerError(
            f"The bound ${bound_usd:,.6f}/h exceeds the cost ${usd:,.6f}/h of a valid plan: a "
            "fault of the program, not of the input."
        )
    if bound_usd <= 0:
        return 1.0 if usd <= 0 else None
    return max(usd / bound_usd, 1.0)


def proved(usd: float | None, bound_usd: float | None) -> bool:
    """Return whether the bound proves the cost optimal."""
    if usd is None or bound_usd is None:
        return False
    return bound_usd >= usd - OPTIMALITY_REL * abs(usd)


def usd_of(snapshot: Snapshot, groups: Iterable[PlacedGroup]) -> float:
    """Return the price of the nodes of these groups, $/h."""
    rollout = train = 0
    for group in groups:
        nodes = group.nodes
        rollout += nodes[0]
        train += nodes[1]
    return snapshot.usd_per_hour(rollout, train)


def first_incumbent(snapshot: Snapshot, options: SolveOptions) -> tuple[PlacedGroup, ...] | None:
    """Return what a method holds before it begins: the warm start, else each job alone.

    ``None`` when there is no warm start and jobs alone break DRAM, node limits or fleet caps.

    Raises
    ------
    InputError
        When the warm start is not a valid plan of the snapshot.
    """
    if options.warm_start is not None:
        return groups_of(snapshot, options.warm_start)
    groups = tuple(solo_group(snapshot, member) for member in range(len(snapshot)))
    try:
        plan_of(snapshot, groups, "solo")
    except CheckError:
        return None
    return groups


def result_of(  # noqa: PLR0913 - one argument per field that a method knows
    snapshot: Snapshot,
    options: SolveOptions,
    method: str,
    *,
    groups: Iterable[PlacedGroup] | None,
    bound_usd: float | None,
    bound_method: str | None = None,
    stopped_by: StoppedBy | None = None,
    claimed_usd: float | None = None,
    infeasible: bool = False,
    failed: bool = False,
    solver: SolverInfo | None = None,
    counts: Mapping[str, int] | None = None,
    seconds: Mapping[str, float] | None = None,
    conflict: Conflict | None = None,
) -> Result:
    """Return the result of a method: plan checked and re-costed, termination derived.

    Parameters
    ----------
    groups : iterable of PlacedGroup or None
        What is held.
    bound_usd : float or None
        Proved bound, $/h.
    bound_method : str, optional
        Who proved it, where that is another.
    claimed_usd : float, optional
        The solver's objective for ``groups``; compared with the re-derived price.
    infeasible, failed : bool
        The method proved that no plan exists; the solver failed.

    Raises
    ------
    CheckError
        When the plan breaks a rule, its price is not the claimed one, a plan is held of a
        problem proved infeasible, or nothing is proved and no limit named.
    """
    plan = usd = None
    if groups is not None:
        plan = plan_of(snapshot, groups, method)
        usd = plan.usd_total
        if claimed_usd is not None and abs(usd - claimed_usd) > 1e-6 * abs(usd):
            raise CheckError(
                f"Method {method} claims ${claimed_usd:,.6f}/h for a plan of ${usd:,.6f}/h: a "
                "fault of the program, not of the input."
            )
        if infeasible:
            raise CheckError(f"Method {method} proved infeasible what it holds a plan of.")
    ratio_of(usd, bound_usd)  # raises when the bound is above the cost
    if infeasible:
        termination, stopped_by, bound_usd = Termination.INFEASIBLE, None, None
    elif proved(usd, bound_usd):
        termination, stopped_by = Termination.OPTIMAL, None
        bound_usd = usd
    elif failed:
        termination = Termination.ERROR
    elif stopped_by is None:
        raise CheckError(
            f"Method {method} ended at no limit and proved nothing: a fault of the program, not "
            "of the input."
        )
    else:
        termination = Termination.NO_PLAN_LIMIT if plan is None else Termination.FEASIBLE_LIMIT
    return Result(
        method=method,
        termination=termination,
        stopped_by=stopped_by,
        plan=plan,
        usd_per_hour=usd,
        bound_usd_per_hour=bound_usd,
        bound_method=bound_method if bound_usd is not None else None,
        limits=snapshot.limits,
        caps=snapshot.caps,
        options=options,
        solver=solver,
        counts=dict(counts or {}),
        seconds=dict(seconds or {}),
        conflict=conflict,
    )
