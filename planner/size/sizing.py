"""Fleet sizing: how many nodes of each pool to own, to rent, at what price, and why.

:func:`size_trace` asks one question after the other of one trace, each answered by a module of
its own, and keeps what is answered when Ctrl-C ends it:

* *demand*: what each policy, and a perfect system, needs of each pool over time;
* *own and rent*: the least-cost owned counts, the rest rented (:mod:`planner.size.economics`), and
  fleets nearly as cheap (:mod:`planner.size.alternatives`);
* *fleet*: nothing to rent, jobs wait: the cheapest fleet for a waiting target, and the frontier of
  cost against wait (:mod:`planner.size.fleet_search`); *loss*: any one node fails
  (:mod:`planner.size.node_loss`);
* *prices*, *changes*, *tokens*, *worth*: what changes the answer
  (:mod:`planner.size.price_crossover`, :mod:`planner.size.what_changes`,
  :mod:`planner.size.plan_at`, :mod:`planner.size.shadow_prices`);
* *uncertainty*: other traces like this one, and growth (:mod:`planner.size.uncertainty`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import Fleet
from instances.trace import Trace
from planner.gap.proving import optimality_gap
from planner.policies.change_factors import (
    Factor,
    group_size,
    host_dram,
    link_count,
    link_speed,
    slo_scale,
    switch_times,
    sync_kind,
)
from planner.policies.policy import PolicyOptions
from planner.policies.registry import require_policy
from planner.replay.demand import POOLS, Demand, demand_of
from planner.replay.replaying import Convention, ReplayResult, replay, require_convention
from planner.size.alternatives import Alternative, alternatives
from planner.size.drain import drain_of
from planner.size.economics import owned_and_rented
from planner.size.fleet_replays import FleetReplays
from planner.size.fleet_search import (
    FrontierPoint,
    SearchBox,
    cheapest_fleet,
    undominated,
    wait_frontier,
)
from planner.size.node_loss import NMinus1Fleet, n_minus_1_fleet
from planner.size.params import SizeParams
from planner.size.perfect_demand import optimum_demand, volume_demand
from planner.size.plan_at import LEVELS, PlanAtRow, PlanLevel, Sampling, plan_at
from planner.size.pool_costs import CostModel, at_rent, default_costs
from planner.size.price_crossover import PriceCrossover, price_crossover
from planner.size.report import DemandRow, FixedFleet, ShadowPrices, SizeReport
from planner.size.shadow_prices import shadow_prices
from planner.size.uncertainty import UncertaintyReport, fleet_uncertainty
from planner.size.uncertainty_waits import FleetConfidence, fleet_confidence
from planner.size.what_changes import ChangeRow, what_changes

__all__ = ["size_trace"]

#: Called with (what is being made, done, total).
Progress = Callable[[str, int, int], None]

_PARAMS: Final = SizeParams()
#: More nodes than any fleet has: the peak of the plain replay is the limit then.
_NO_LIMIT: Final = 1_000_000_000


def size_trace(  # noqa: PLR0913 - one argument per question of the command
    trace: Trace | JobTable,
    *,
    policy: str = "weave",
    baselines: Sequence[str] = ("repack", "solo", "colocated"),
    options: PolicyOptions | None = None,
    costs: CostModel | None = None,
    durations: Convention = "work",
    params: SizeParams = _PARAMS,
    progress: Progress | None = None,
    clock: Callable[[], float] | None = None,
) -> SizeReport:
    """Size the fleet for a trace.

    Parameters
    ----------
    trace : Trace or JobTable
        The jobs.
    policy : str
        Whose fleet is sized; see ``planner.policies.registry.POLICIES``.
    baselines : sequence of str
        Policies whose demand stands beside it.
    options : PolicyOptions, optional
        Cluster, limits and parameters of the policies; ``queue`` is that of a fixed fleet. GPUs
        cost what ``costs`` rents them for.
    costs : CostModel, optional
        What nodes cost, owned and rented; default: :func:`planner.size.pool_costs.default_costs`.
    durations : {"work", "wallclock"}
        The convention of every answer but the demand, which is shown under both.
    params : SizeParams
        Parts and their levels.
    progress : callable, optional
        Called with (label, done, total).
    clock : callable, optional
        Seconds from an arbitrary origin; given, parts are timed.

    Returns
    -------
    SizeReport
        At Ctrl-C what is answered by then, once the demand of the policy is known.

    Raises
    ------
    InputError
        For an unknown policy or convention, or options out of their range.
    InfeasibleError
        When a job cannot run even alone, or no owned and rented nodes meet the demand: a budget
        or cap below the least.
    CheckError
        When a policy that promises valid plans breaks a rule.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> trace = read_trace(catalog_path("tiny-open-shop"))
    >>> report = size_trace(trace, baselines=(), params=SizeParams(parts=()))
    >>> report.split.owned  # two jobs that share one node of each kind all the time
    (1, 1)
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    names = tuple(dict.fromkeys((policy, *baselines)))
    for name in names:
        require_policy(name)
    require_convention(durations)
    options = options or PolicyOptions(cluster=DEFAULT_CLUSTER)
    costs = costs or default_costs(options.cluster)
    # one price of renting: what placing, comparing and splitting go by
    options = dataclasses.replace(options, cluster=at_rent(options.cluster, costs))
    maker = _Maker(trace, policy, options, costs, durations, params, progress, clock)
    maker.demand(names)
    for part in params.parts:
        if not maker.interrupted:
            maker.make(part)
    return maker.report()


class _Maker:
    """Makes the parts of a report, one after the other."""

    def __init__(
        self,
        trace: Trace,
        policy: str,
        options: PolicyOptions,
        costs: CostModel,
        convention: Convention,
        params: SizeParams,
        progress: Progress | None,
        clock: Callable[[], float] | None,
    ) -> None:
        self._trace, self._policy, self._options = trace, policy, options
        self._costs, self._convention, self._params = costs, convention, params
        self._progress, self._clock = progress, clock
        self._rows: list[DemandRow] = []
        self._main: ReplayResult | None = None
        self._found: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self.interrupted: str | None = None

    # -- demand -------------------------------------------------------------------------

    def demand(self, names: Sequence[str]) -> None:
        """Replay every policy under both conventions, the main one first."""
        began = self._now()
        both: tuple[Convention, Convention] = ("work", "wallclock")
        if self._convention == "wallclock":
            both = ("wallclock", "work")
        todo = [(convention, name) for convention in both for name in names]
        try:
            for done, (convention, name) in enumerate(todo):
                self._tell("demand", done, len(todo))
                self._rows.append(self._replayed(name, convention))
            self._perfect()
            self._tell("demand", len(todo), len(todo))
        except KeyboardInterrupt:
            if not self._rows:
                raise
            self.interrupted = "demand"
        self._seconds["demand"] = self._now() - began

    def _replayed(self, name: str, convention: Convention) -> DemandRow:
        result = replay(self._trace.jobs, name, self._options, convention=convention)
        is_main = (name, convention) == (self._policy, self._convention)
        if is_main:
            self._main = result
        row = self._row(name, "policy", convention, demand_of(result))
        if is_main and row.split is None:
            raise InfeasibleError(row.why_not)
        return dataclasses.replace(
            row, slo_attainment=result.slo_attainment, checked=result.checked
        )

    def _row(self, name: str, kind: str, convention: Convention, demand: Demand) -> DemandRow:
        split, why_not = None, ""
        try:
            split = owned_and_rented(demand, self._costs)
        except InfeasibleError as error:
            why_not = str(error)
        usd = self._options.cluster.usd_per_hour(demand.mean("rollout"), demand.mean("train"))
        return DemandRow(
            name=name,
            kind=kind,
            convention=convention,
            demand=demand,
            split=split,
            why_not=why_not,
            usd_per_hour_mean=usd,
        )

    def _perfect(self) -> None:
        """Add what a perfect system would need, stays as long as alone."""
        jobs, options = self._trace.jobs, self._options
        if self._params.perfect == "none":
            return
        bound = volume_demand(jobs, options.cluster, options.limits)
        self._rows.append(self._row(bound.name, "bound", "wallclock", bound))
        if self._params.perfect == "bound":
            return
        report = optimality_gap(
            self._trace,
            policy="weave",
            cluster=options.cluster,
            limits=options.limits,
            placer=options.placer,
            time_limit_per_snapshot_s=self._params.time_limit_s,
            seed=self._params.seed,
            progress=self._progress,
        )
        if report.interrupted:
            raise KeyboardInterrupt
        held = optimum_demand(report)
        if report.n_proved < len(report.rows):
            held = dataclasses.replace(held, name="best plans known")
        self._rows.append(self._row(held.name, "optimum", "wallclock", held))

    # -- parts --------------------------------------------------------------------------

    def make(self, part: str) -> None:
        """Make one part; what it cannot answer is noted in words."""
        began = self._now()
        try:
            self._found[part] = getattr(self, f"_{part}")()
        except UnsupportedError as error:  # an InputError too, so it comes first
            self._left_out[part] = str(error)
        except (InfeasibleError, InputError) as error:
            # what the trace refuses in one part must not cost the others
            self._failed[part] = str(error)
        except KeyboardInterrupt:
            self.interrupted = part
        self._seconds[part] = self._now() - began

    def report(self) -> SizeReport:
        """Return all that was made."""
        return SizeReport(
            trace=self._trace,
            options=self._options,
            policy=self._policy,
            convention=self._convention,
            costs=self._costs,
            params=self._params,
            demand=tuple(self._rows),
            drain=None if self._main is None else drain_of(self._main, self._costs),
            failed=self._failed,
            left_out=self._left_out,
            interrupted=self.interrupted,
            seconds=self._seconds if self._clock else {},
            **self._found,
        )

    def _alternatives(self) -> tuple[Alternative, ...]:
        return alternatives(
            self._rows[0].demand,
            self._costs,
            shares=self._params.near,
            progress=self._told("alternatives"),
        )

    def _fleet(self) -> FixedFleet:
        params, jobs = self._params, self._trace.jobs
        options = dataclasses.replace(self._options, convention=self._convention)
        price, priced_by = self._fleet_price()
        box = SearchBox(most=self._most_nodes(priced_by))
        replays = FleetReplays(jobs, self._policy, options, convention=self._convention)
        answer = cheapest_fleet(
            jobs,
            self._policy,
            options,
            params.target,
            convention=self._convention,
            price=price,
            progress=self._told("fixed fleet"),
            box=box,
            replays=replays,
        )
        frontier: tuple[FrontierPoint, ...] = ()
        if not answer.interrupted:
            frontier = self._frontier(options, price, box, replays)
        if answer.interrupted:
            self.interrupted = "fleet"
        return FixedFleet(answer=answer, frontier=frontier, priced_by=priced_by)

    def _frontier(
        self,
        options: PolicyOptions,
        price: Callable[[Fleet], float],
        box: SearchBox,
        replays: FleetReplays,
    ) -> tuple[FrontierPoint, ...]:
        """Return the frontier of cost against wait, at Ctrl-C of the fleets replayed by then."""
        targets = sorted({*self._params.ladder_s, self._params.target.wait_s})
        try:
            return wait_frontier(
                self._trace.jobs,
                self._policy,
                options,
                targets,
                share=self._params.target.share,
                convention=self._convention,
                price=price,
                progress=self._told("frontier"),
                box=box,
                replays=replays,
            )
        except KeyboardInterrupt:
            self.interrupted = "fleet"
            return undominated(replays, share=self._params.target.share, price=price)

    def _fleet_price(self) -> tuple[Callable[[Fleet], float], str]:
        """Return what a fleet costs, $/h: owned, or rented where owning has no price."""
        costs = self._costs
        if costs.rollout.can_own and costs.train.can_own:
            return lambda f: costs.fleet_usd_per_hour(f.rollout_nodes, f.train_nodes), "own"
        cluster = self._options.cluster
        return lambda f: cluster.usd_per_hour(f.rollout_nodes, f.train_nodes), "rent"

    def _most_nodes(self, priced_by: str) -> Fleet | None:
        """Return the most nodes of a fixed fleet: those asked for, and, owned, those to be had."""
        most = list(self._params.most_nodes or (None, None))
        if priced_by == "own":
            for i, pool in enumerate(POOLS):
                owned = self._costs.pool(pool).max_owned_nodes
                most[i] = min((n for n in (most[i], owned) if n is not None), default=None)
        if most == [None, None]:
            return None
        rollout, train = (_NO_LIMIT if n is None else n for n in most)
        return Fleet(rollout, train)

    def _loss(self) -> NMinus1Fleet | None:
        fixed: FixedFleet | None = self._found.get("fleet")
        if fixed is None:
            return None
        options = dataclasses.replace(
            self._options, convention=self._convention, fleet=fixed.answer.fleet
        )
        return n_minus_1_fleet(
            fixed.answer.result,
            options,
            price=self._fleet_price()[0],
            search_s=self._params.time_limit_s,
            progress=self._told("node loss"),
        )

    def _prices(self) -> PriceCrossover:
        return price_crossover(
            self._trace.jobs,
            options=self._options,
            convention=self._convention,
            policies=tuple(dict.fromkeys(("solo", "colocated", self._policy))),
            ratios=self._params.price_ratios,
            progress=self._told("price ratios"),
        )

    def _changes(self) -> tuple[ChangeRow, ...]:
        return what_changes(
            self._trace.jobs,
            policy=self._policy,
            options=self._options,
            convention=self._convention,
            costs=self._costs,
            factors=_factors(self._params),
            progress=self._told("what changes it"),
        )

    def _tokens(self) -> tuple[PlanAtRow, ...]:
        return plan_at(
            self._trace.jobs,
            policy=self._policy,
            options=self._options,
            convention=self._convention,
            costs=self._costs,
            levels=_levels(self._params),
            sampling=Sampling(samples=self._params.samples, seed=self._params.seed),
            progress=self._told("sampled runtimes"),
        )

    def _worth(self) -> ShadowPrices:
        assert self._main is not None
        prices, moments = shadow_prices(
            self._main,
            k=self._params.moments,
            time_limit_s=self._params.time_limit_s,
            progress=self._told("shadow prices"),
        )
        return ShadowPrices(prices=prices, moments=moments)

    def _uncertainty(self) -> UncertaintyReport:
        params = self._params
        found = fleet_uncertainty(
            self._trace.jobs,
            policy=self._policy,
            options=self._options,
            costs=self._costs,
            convention=self._convention,
            growths=params.growths,
            replications=params.replications,
            seed=params.seed,
            block_h=params.block_h,
            confidence=params.confidence,
            coverage=params.coverage,
            growth_time_years=params.growth_years,
            bursts=params.bursts,
            warm_up_h=params.warm_up_h,
            processes=params.processes,
            progress=self._told("uncertainty"),
        )
        if found.interrupted:
            self.interrupted = "uncertainty"
        else:
            self._found["waits"] = self._waits(found)
        return found

    def _waits(self, found: UncertaintyReport) -> tuple[FleetConfidence, ...]:
        """Return how often fleets without renting keep the waiting target on drawn traces."""
        fixed: FixedFleet | None = self._found.get("fleet")
        first = found.growths[0]
        if fixed is None or first.growth != 1.0:
            return ()
        sure = Fleet(first.size.rollout_nodes, first.size.train_nodes)
        params, out = self._params, []
        try:
            for fleet in dict.fromkeys((fixed.answer.fleet, sure)):
                out.append(
                    fleet_confidence(
                        self._trace.jobs,
                        fleet=fleet,
                        target=params.target,
                        policy=self._policy,
                        options=self._options,
                        convention=self._convention,
                        replications=params.replications,
                        seed=params.seed,
                        block_h=params.block_h,
                        bursts=params.bursts,
                        confidence=params.confidence,
                        processes=params.processes,
                        progress=self._told(f"waits: {fleet}"),
                    )
                )
        except InfeasibleError as error:
            self._failed["waits"] = str(error)
        except KeyboardInterrupt:
            self.interrupted = "uncertainty"
        return tuple(out)

    # -- progress -----------------------------------------------------------------------

    def _now(self) -> float:
        return self._clock() if self._clock else 0.0

    def _tell(self, label: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(label, done, total)

    def _told(self, label: str) -> Callable[[int, int], None]:
        return lambda done, total: self._tell(label, done, total)


def _levels(params: SizeParams) -> tuple[PlanLevel, ...]:
    """Return the levels to plan at; the worst case, which changes are counted from, is last."""
    return tuple(lv for lv in LEVELS[:-1] if lv.label in params.plan_at) + LEVELS[-1:]


def _factors(params: SizeParams) -> tuple[Factor, ...]:
    """Return the factors of the table of changes; one without levels is left out."""
    found: list[Factor] = []
    if params.dram_tb:
        found.append(host_dram(params.dram_tb))
    if params.slo_scales:
        found.append(slo_scale(params.slo_scales))
    if params.group_sizes:
        found.append(group_size(params.group_sizes))
    if params.link_gbps:
        found.append(link_speed(params.link_gbps))
    if params.links:
        found.append(link_count(params.links))
    for names, factor in ((params.sync_kinds, sync_kind()), (params.switches, switch_times())):
        levels = tuple(level for level in factor.levels if level.label in names)
        if levels:
            found.append(dataclasses.replace(factor, levels=levels))
    return tuple(found)
