"""What ``planner size`` found: demand, what to own and rent, and every part asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from instances.errors import InputError
from instances.trace import Trace
from planner.policies.policy import PolicyOptions
from planner.replay.demand import Demand
from planner.replay.replaying import Convention
from planner.size.alternatives import Alternative
from planner.size.drain import Drain
from planner.size.economics import OwnRent
from planner.size.fleet_search import FleetAnswer, FrontierPoint
from planner.size.node_loss import NMinus1Fleet
from planner.size.params import SizeParams
from planner.size.perfect_demand import work_node_hours
from planner.size.plan_at import PlanAtRow
from planner.size.pool_costs import CostModel
from planner.size.price_crossover import PriceCrossover
from planner.size.shadow_prices import MomentWorth, ShadowPrice
from planner.size.uncertainty import UncertaintyReport
from planner.size.uncertainty_waits import FleetConfidence
from planner.size.what_changes import ChangeRow

__all__ = ["DemandRow", "FixedFleet", "ShadowPrices", "SizeReport"]


@dataclass(frozen=True, kw_only=True)
class DemandRow:
    """What one policy, or a perfect system, needs under one convention.

    Attributes
    ----------
    kind : {"policy", "bound", "optimum"}
    split : OwnRent or None
        The least-cost owned counts for it; of a bound, a bound of that cost as well.
    why_not : str
        Why there is no split: a limit of money or nodes that this demand exceeds.
    usd_per_hour_mean : float
        Every node rented while it is held, $/h.
    slo_attainment : float or None
        ``None`` where nothing was replayed.
    checked : bool or None
        Whether every plan passed the checker.
    """

    name: str
    kind: str
    convention: Convention
    demand: Demand
    split: OwnRent | None
    why_not: str
    usd_per_hour_mean: float
    slo_attainment: float | None = None
    checked: bool | None = None


@dataclass(frozen=True, kw_only=True)
class FixedFleet:
    """Nothing to rent: the cheapest fleet for the waiting target, and the frontier.

    Attributes
    ----------
    priced_by : {"own", "rent"}
        Whether its nodes cost what owning does, or, where no price of owning is known, their rent.
    """

    answer: FleetAnswer
    frontier: tuple[FrontierPoint, ...]
    priced_by: str


@dataclass(frozen=True, kw_only=True)
class ShadowPrices:
    """What relaxing one limit is worth, and the moments solved for it."""

    prices: tuple[ShadowPrice, ...]
    moments: tuple[MomentWorth, ...]


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """All answers about one trace; parts not asked for, or not reached, are ``None``.

    Attributes
    ----------
    trace : Trace
        The jobs.
    options : PolicyOptions
        Cluster, limits and parameters of the policies.
    costs : CostModel
        What nodes cost, owned and rented.
    params : SizeParams
        What was asked.
    alternatives : tuple of Alternative or None
        Fleets to own of nearly the least cost.
    fleet : FixedFleet or None
        The cheapest fleet with nothing to rent.
    loss : NMinus1Fleet or None
        What spare nodes a lost node takes.
    prices : PriceCrossover or None
        Where the cheaper of two policies changes with the price of a GPU.
    changes : tuple of ChangeRow or None
        The answer with one input changed at a time.
    tokens : tuple of PlanAtRow or None
        Planning for fewer tokens than the limit.
    worth : ShadowPrices or None
        What one more node, GB or looser SLO would save.
    uncertainty : UncertaintyReport or None
        The answer over drawn traces.
    seconds : dict of str to float
        Seconds by part, when a clock was given.
    policy : str
        Whose fleet is sized.
    convention : {"work", "wallclock"}
        Under which; demand is shown under both.
    demand : tuple of DemandRow
        Main policy first, by convention.
    waits : tuple of FleetConfidence
        With ``uncertainty`` and ``fleet``: how often that fleet, and the one that is sure to be
        enough, keep the waiting target on drawn traces.
    drain : Drain or None
        The time after the last arrival, when jobs only leave, and the answer without it.
    failed : dict of str to str
        Parts that have no answer: their limits admit none, in words.
    left_out : dict of str to str
        Parts that the policy or the trace does not allow, in words.
    interrupted : str or None
        The part that Ctrl-C ended.
    """

    trace: Trace
    options: PolicyOptions
    policy: str
    convention: Convention
    costs: CostModel
    params: SizeParams
    demand: tuple[DemandRow, ...]
    alternatives: tuple[Alternative, ...] | None = None
    fleet: FixedFleet | None = None
    loss: NMinus1Fleet | None = None
    prices: PriceCrossover | None = None
    changes: tuple[ChangeRow, ...] | None = None
    tokens: tuple[PlanAtRow, ...] | None = None
    worth: ShadowPrices | None = None
    uncertainty: UncertaintyReport | None = None
    waits: tuple[FleetConfidence, ...] = ()
    drain: Drain | None = None
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    interrupted: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def row(self, name: str, convention: Convention | None = None) -> DemandRow:
        """Return the demand of a policy or perfect system, by default under the main convention.

        Raises
        ------
        InputError
            When there is no such row.
        """
        wanted = convention or self.convention
        for row in self.demand:
            if (row.name, row.convention) == (name, wanted):
                return row
        raise InputError(f"Expected a policy of this report under {wanted}, got '{name}'.")

    @property
    def main(self) -> DemandRow:
        """The demand that the fleet is sized for."""
        return self.row(self.policy)

    @property
    def split(self) -> OwnRent:
        """The least-cost owned and rented nodes of the main policy."""
        found = self.main.split
        assert found is not None  # or there is no report
        return found

    @property
    def work_bound_usd_total(self) -> float:
        """Least that any valid plans of the same work cost, owned or rented, $.

        A node-hour costs at least the cheaper of owning and renting it, and the work keeps
        :func:`planner.size.perfect_demand.work_node_hours` busy whoever shares them, waits or not.
        """
        total = 0.0
        for pool, hours in work_node_hours(self.trace.jobs).items():
            costs = self.costs.pool(pool)
            own = costs.own_usd_per_node_hour
            rent = costs.rent_usd_per_node_hour
            total += hours * (rent if own is None else min(own, rent))
        return total

    @property
    def most_influential(self) -> tuple[ChangeRow | PlanAtRow, ...]:
        """What changes the cost of owning and renting most, one level of each factor, by size."""
        best: dict[str, ChangeRow | PlanAtRow] = {}
        rows: list[ChangeRow | PlanAtRow] = [*(self.changes or ()), *(self.tokens or ())]
        for row in rows:
            if row.own_rent_change is None:
                continue
            name = row.factor if isinstance(row, ChangeRow) else "tokens"
            known = best.get(name)
            if known is None or abs(row.own_rent_change) > abs(known.own_rent_change or 0.0):
                best[name] = row
        found = [row for row in best.values() if row.own_rent_change]
        return tuple(sorted(found, key=lambda row: -abs(row.own_rent_change or 0.0)))
