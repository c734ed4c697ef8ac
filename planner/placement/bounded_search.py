"""A plan and a bound at any size: column generation below, local search above.

Two methods of ``planner snapshot``, for what the exact ones refuse or cannot finish:

``column-generation``
    Bounds, each starting from the one before: volume, pool decomposition
    (:mod:`models.bounds.columns`), then the group LP (:mod:`models.bounds.group_lp`, where groups
    are limited) or the coupled LP (:mod:`models.bounds.coupled`, where they are not). The plan is a
    cover by the columns of the group LP where there is one, else the plan it started from.
``local-search``
    A first search of ``_FIRST_SHARE`` of the time, so that there is a plan to hold; the same
    bounds, in at most ``_BOUND_SHARE`` of the rest; then local search
    (:mod:`planner.placement.local_search`) until the time is over, the bound is met, or it stalls.

Every stage is anytime: at a time limit or Ctrl-C the best plan held and the best bound proved
by then are returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Final

from instances.errors import InfeasibleError
from models.bounds.volume import VOLUME, least_fleet_usd, volume
from models.group.group_cost import GroupCost
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Result, StoppedBy, first_incumbent, proved, result_of, usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, solo_group
from planner.placement.placer import require_feasible_alone

if TYPE_CHECKING:
    from models.bounds.columns import DecompositionBound
    from models.bounds.group_lp import GroupLpBound

__all__ = ["DEFAULT_TIME_S", "LOCAL_SEARCH", "METHODS", "solve"]

COLUMN_GENERATION: Final = "column-generation"
LOCAL_SEARCH: Final = "local-search"
METHODS: Final = (COLUMN_GENERATION, LOCAL_SEARCH)

#: Part of the time that bounds may take when a search follows.
_BOUND_SHARE: Final = 0.4
#: Seconds of the whole where nobody set a limit: these methods improve as long as they run.
DEFAULT_TIME_S: Final = 300.0
#: Part of that which the pool decomposition may take; where it ends before, the rest is left.
_POOL_SHARE: Final = 0.75
#: Part of the whole time that a first search may take, before the bounds.
_FIRST_SHARE: Final = 0.05
#: Part of a search with several iterations a period that looks at one iteration only.
_STRICT_SHARE: Final = 0.6
#: Most jobs of the tighter LPs; beyond, what they add costs more time than it is worth.
_MOST_JOBS: Final = 400
#: Moves a job without a cheaper plan after which a search ends, and the first one; with gangs or
#: rates a move is a ruin, and takes a thousand times as long.
_STALLED_PER_JOB: Final = 500_000
_FIRST_PER_JOB: Final = 20_000
_MOVES_PER_RUIN: Final = 1_000


@dataclass
class _Run:
    """One solve: what is held, what is proved, and what it took."""

    snapshot: Snapshot
    options: SolveOptions
    deadline: Deadline
    search_follows: bool
    held: tuple[PlacedGroup, ...] | None = None
    held_usd: float = inf
    hopeless: bool = False
    bound_usd: float = 0.0
    bound_method: str = VOLUME
    least_nodes: tuple[int, int] = (0, 0)
    groups: GroupLpBound | None = None
    stopped: StoppedBy | None = None
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def hold(self, groups: tuple[PlacedGroup, ...]) -> None:
        """Keep a plan if it is the cheapest."""
        usd = usd_of(self.snapshot, groups)
        if usd < self.held_usd * (1 - 1e-12):
            self.held, self.held_usd = groups, usd

    def prove(self, usd: float, method: str) -> None:
        """Keep a bound, raised to a price of whole nodes, if it says the most."""
        usd = least_fleet_usd(usd, *self.least_nodes, self.snapshot.cluster)
        if usd > self.bound_usd * (1 + 1e-12):
            self.bound_usd, self.bound_method = usd, method

    def note(self, *stopped: StoppedBy | None) -> None:
        """Remember that Ctrl-C stopped a bound; its time limit is only its share."""
        if StoppedBy.INTERRUPT in stopped:
            self.stopped = StoppedBy.INTERRUPT

    def count(self, rollout_nodes: int, train_nodes: int) -> None:
        """Keep bounds of the nodes of each pool."""
        least = self.least_nodes
        self.least_nodes = (max(least[0], rollout_nodes), max(least[1], train_nodes))

    @property
    def infeasible(self) -> bool:
        """Whether no plan exists: a job cannot run, or too few nodes are within the caps."""
        return self.hopeless or not self.snapshot.caps.allow(*self.least_nodes)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: proved, or asked to stop."""
        if self.stopped is StoppedBy.INTERRUPT or self.infeasible:
            return True
        return proved(self.held_usd, self.bound_usd)


def solve(method: str, snapshot: Snapshot, options: SolveOptions) -> Result:
    """Return a plan and a bound, however many jobs there are.

    Parameters
    ----------
    method : str
        One of ``METHODS``.
    options : SolveOptions
        Without ``time_limit_s`` it runs for ``DEFAULT_TIME_S`` at most.

    Raises
    ------
    InputError
        When the warm start is not a valid plan of the snapshot.
    """
    limit = DEFAULT_TIME_S if options.time_limit_s is None else options.time_limit_s
    run = _Run(
        snapshot,
        options,
        Deadline(options.clock, limit),
        search_follows=method == LOCAL_SEARCH,
    )
    stages: list[tuple[str, Callable[[_Run], None]]] = [
        ("start", _start),
        ("bounds", _bounds),
        ("plan", _cover),
    ]
    if method == LOCAL_SEARCH:
        stages[1:] = [("first", _search_first), ("bounds", _bounds), ("plan", _search)]
    for name, stage in stages:
        began = run.deadline.elapsed_s
        try:
            if not run.finished:
                stage(run)
        except OutOfTimeError:
            run.stopped = StoppedBy.TIME
        except KeyboardInterrupt:
            run.stopped = StoppedBy.INTERRUPT
        run.seconds[name] = run.deadline.elapsed_s - began
    if run.stopped is None:
        run.stopped = StoppedBy.TIME if run.deadline.expired else StoppedBy.SEARCH
    return result_of(
        snapshot,
        options,
        method,
        groups=run.held,
        bound_usd=run.bound_usd,
        bound_method=run.bound_method,
        stopped_by=run.stopped,
        infeasible=run.infeasible,
        counts=run.counts,
        seconds=run.seconds,
    )


# --- stages -------------------------------------------------------------------------------------


def _start(run: _Run) -> None:
    """Hold the warm start, and the volume bound."""
    weak = volume(run.snapshot.table, run.snapshot.cluster, run.snapshot.limits)
    run.count(weak.rollout_nodes, weak.train_nodes)
    run.prove(weak.usd_per_hour, VOLUME)
    held = first_incumbent(run.snapshot, run.options)
    if held is not None:
        run.hold(held)
        return
    try:
        for job in run.snapshot.jobs:
            require_feasible_alone(job, run.snapshot.cluster, run.snapshot.limits)
    except InfeasibleError:  # nor with others, by heredity
        run.hopeless = True


def _bounds(run: _Run) -> None:
    """Prove bounds, the quickest first, within their share of the time."""
    from models.bounds.columns import pool_decomposition

    snapshot, options = run.snapshot, run.options
    share = run.deadline.share(_BOUND_SHARE if run.search_follows else 1.0)
    pools = pool_decomposition(
        snapshot,
        share.share(_POOL_SHARE),
        threads=options.threads,
        seed=options.seed,
        progress=options.progress,
    )
    run.count(pools.rollout.nodes, pools.train.nodes)
    run.prove(pools.usd_per_hour, pools.method)
    run.note(pools.rollout.stopped_by, pools.train.stopped_by)
    if snapshot.limits.max_rate > 1 or len(snapshot) > _MOST_JOBS or run.finished:
        return
    if snapshot.limits.max_group_size:
        _bound_groups(run, share, pools)
    else:
        _bound_coupled(run, share, pools)


def _bound_groups(run: _Run, share: Deadline, pools: DecompositionBound) -> None:
    """Prove what a group limit and the coupling of the pools add: the group LP."""
    from models.bounds.group_lp import group_lp_bound

    options = run.options
    run.groups = group_lp_bound(
        run.snapshot,
        share,
        start=pools,
        threads=options.threads,
        seed=options.seed,
        progress=options.progress,
    )
    run.prove(run.groups.usd_per_hour, run.groups.method)
    run.note(run.groups.stopped_by)


def _bound_coupled(run: _Run, share: Deadline, pools: DecompositionBound) -> None:
    """Prove what one period for both phases of a job adds: the coupled LP."""
    from models.bounds.coupled import coupled_bound

    options = run.options
    coupled = coupled_bound(
        run.snapshot,
        share,
        start=pools,
        threads=options.threads,
        seed=options.seed,
        progress=options.progress,
    )
    run.prove(coupled.usd_per_hour, coupled.method)
    run.note(coupled.stopped_by)


def _cover(run: _Run) -> None:
    """Hold the cheapest cover by columns of the group LP, where there are any.

    Loads admit the columns; one without a schedule runs as the cheapest group its jobs can be.
    """
    if run.groups is None:
        return
    from models.bounds.group_lp import cover_of_columns

    cost = GroupCost(run.snapshot, seed=run.options.seed, deadline=run.deadline)
    chosen = cover_of_columns(run.snapshot, run.groups, run.deadline, seed=run.options.seed)
    seen: set[int] = set()
    placed: list[PlacedGroup] = []
    for members, nodes in chosen:
        group = cost.decide(members, nodes) or cost.cheapest(members, inf)
        if group is not None:
            left = group.without(seen)
            seen |= set(members)
            placed += [] if left is None else [left]
    placed += [solo_group(run.snapshot, j) for j in range(len(run.snapshot)) if j not in seen]
    totals = [sum(group.nodes[pool] for group in placed) for pool in (0, 1)]
    if run.snapshot.caps.allow(*totals):
        run.hold(tuple(placed))


def _search_first(run: _Run) -> None:
    """Search for a little: whoever stops the bounds gets a better plan than the start."""
    _searched(run, run.deadline.share(_FIRST_SHARE), _FIRST_PER_JOB)


def _search(run: _Run) -> None:
    """Improve the plan by local search until the time is over or the bound is met."""
    _searched(run, run.deadline, _STALLED_PER_JOB)


def _searched(run: _Run, deadline: Deadline, per_job: int) -> None:
    """Search from the plan held; with rates first among strict plans, where moves are fast.

    A plan of one iteration a period is one of at most ``max_rate``, too.
    """
    if run.held is None:  # beyond the caps: nothing to improve
        return
    snapshot, limits = run.snapshot, run.snapshot.limits
    if limits.max_rate > 1:
        strict = replace(snapshot, limits=replace(limits, max_rate=1))
        _improve(run, strict, deadline.share(_STRICT_SHARE), per_job)
    if not run.finished:
        _improve(run, snapshot, deadline, per_job)


def _improve(run: _Run, snapshot: Snapshot, deadline: Deadline, per_job: int) -> None:
    """Search among the plans of a snapshot, from the plan held where it is one of them."""
    from models.loads.load_plan import is_for
    from planner.placement.local_search import NoImprovement, local_search

    moves = per_job * len(snapshot)
    assert run.held is not None
    fits = all(max(group.rates, default=1) <= snapshot.limits.max_rate for group in run.held)
    found = local_search(
        snapshot,
        run.held if fits else None,
        stop=NoImprovement(moves if is_for(snapshot) else max(moves // _MOVES_PER_RUIN, 1)),
        seed=run.options.seed,
        deadline=deadline,
        progress=run.options.progress,
        bound_usd=run.bound_usd,
    )
    run.hold(found.groups)
    for name, number in (("moves", found.iterations), ("plans_held", found.accepted)):
        run.counts[name] = run.counts.get(name, 0) + number
    if found.stopped_by == "interrupt":
        run.stopped = StoppedBy.INTERRUPT
