"""How many nodes of each pool to own and to rent for one demand.

With ``N`` nodes owned the cost of a demand ``d(t)`` is ``own N + rent mean(max(d - N, 0))``, the
newsvendor's. One more node pays exactly when it is needed for more than ``own / rent`` of the
time, so the least-cost ``N`` is the least with ``share of time d > N`` at most ``own / rent``: the
quantile of the demand at the critical ratio ``1 - own / rent``. Ties go to fewer nodes.

The pools are independent until a purchase budget binds: then, and with several purchase periods,
:mod:`models.sizing.milp` decides. Costs of a node are those of :mod:`planner.size.pool_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from instances.errors import InfeasibleError, InputError
from models.problem.options import Deadline
from models.problem.whole_import import whole_import
from models.sizing.problem import (
    DemandArrays,
    PoolTerms,
    Scenario,
    SizingProblem,
    breaches,
    cost_of,
    least_separable,
)
from planner.replay.demand import Demand, Pool
from planner.size.pool_costs import CostModel, Period, PoolCosts, default_costs

__all__ = [
    "CostModel",
    "Newsvendor",
    "OwnRent",
    "Period",
    "PoolCosts",
    "PoolSplit",
    "default_costs",
    "newsvendor",
    "owned_and_rented",
    "sizing_problem",
    "split",
]

#: Round-off of summed hours: a node needed for exactly ``own / rent`` of the time does not pay.
_REL: Final = 1e-12


# --- one pool, in closed form -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Newsvendor:
    """The least-cost number of nodes of one pool.

    Attributes
    ----------
    nodes : int
        To own.
    critical_ratio : float
        ``1 - own / rent``, within [0, 1]: the quantile of the demand that ``nodes`` is.
    share_above : float
        Share of the time that more than ``nodes`` are needed.
    own_usd_per_hour, rent_usd_per_hour : float
        $/h on average.
    """

    nodes: int
    critical_ratio: float
    share_above: float
    own_usd_per_hour: float
    rent_usd_per_hour: float

    @property
    def usd_per_hour(self) -> float:
        """Owned and rented, $/h."""
        return self.own_usd_per_hour + self.rent_usd_per_hour


def newsvendor(
    demand: Demand,
    pool: Pool,
    own_usd: float,
    rent_usd: float,
    *,
    max_rented_nodes: int | None = None,
    max_owned_nodes: int | None = None,
) -> Newsvendor:
    """Return how many nodes of a pool to own when the rest is rented by the hour.

    The cost is convex in the number owned, so limits clamp the optimum.

    Parameters
    ----------
    demand : Demand
        Nodes held over time.
    pool : {"rollout", "train"}
        Whose nodes.
    own_usd, rent_usd : float
        $/h of a node, owned at all times or rented.
    max_rented_nodes, max_owned_nodes : int, optional
        Most nodes of that kind at any time.

    Raises
    ------
    InfeasibleError
        When owned and rented nodes cannot meet the peak.

    Examples
    --------
    Two nodes for 8 hours of 10, a third for 2; owning one costs half of what renting it does:

    >>> demand = Demand(
    ...     name="example",
    ...     hours=np.array([8.0, 2.0]),
    ...     rollout_nodes=np.array([2, 3]),
    ...     train_nodes=np.array([1, 1]),
    ... )
    >>> found = newsvendor(demand, "rollout", own_usd=5.0, rent_usd=10.0)
    >>> found.nodes, found.critical_ratio, found.usd_per_hour
    (2, 0.5, 12.0)
    """
    peak, hours = demand.peak(pool), demand.horizon_h
    least = 0 if max_rented_nodes is None else max(peak - max_rented_nodes, 0)
    most = peak if max_owned_nodes is None else min(peak, max_owned_nodes)
    if least > most:
        raise InfeasibleError(
            f"No fleet meets the demand of the {pool} pool: its peak of {peak} "
            f"node{'s' * (peak != 1)} is "
            f"{least - most} more than the {most} that can be owned and the {max_rented_nodes} "
            "that can be rented. Raise max_rented_nodes or max_owned_nodes."
        )
    _, needed_h = demand.duration_curve(pool)
    pays = rent_usd * needed_h > own_usd * hours * (1 + _REL)
    nodes = min(max(int(pays.sum()) if own_usd < rent_usd else 0, least), most)
    return Newsvendor(
        nodes=nodes,
        critical_ratio=max(1 - own_usd / rent_usd, 0.0) if rent_usd > 0 else 0.0,
        share_above=demand.hours_above(pool, nodes) / (hours or 1.0),
        own_usd_per_hour=own_usd * nodes,
        rent_usd_per_hour=rent_usd * demand.node_hours_above(pool, nodes) / (hours or 1.0),
    )


# --- both pools ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PoolSplit:
    """Owned and rented nodes of one pool over a demand.

    ``owned_used_node_hours + rented_node_hours`` is what was needed. Leases are paid for whole
    blocks, ``paid_node_hours``: as much as rented, or more.

    Attributes
    ----------
    owned, peak, rented_peak : int
        Nodes owned, and most needed and most rented at once.
    mean : float
        Nodes needed on average.
    owned_used_node_hours, owned_idle_node_hours, rented_node_hours, paid_node_hours : float
    own_usd_per_hour, rent_usd_per_hour : float
        $/h on average.
    capex_usd : float or None
        $ to buy the nodes; ``None`` without a purchase price.
    """

    owned: int
    peak: int
    rented_peak: int
    mean: float
    owned_used_node_hours: float
    owned_idle_node_hours: float
    rented_node_hours: float
    paid_node_hours: float
    own_usd_per_hour: float
    rent_usd_per_hour: float
    capex_usd: float | None

    @property
    def needed_node_hours(self) -> float:
        """Node-hours of the demand."""
        return self.owned_used_node_hours + self.rented_node_hours

    @property
    def usd_per_hour(self) -> float:
        """Owned and rented, $/h."""
        return self.own_usd_per_hour + self.rent_usd_per_hour

    @property
    def rented_share(self) -> float | None:
        """Rented share of the node-hours needed; ``None`` when none are."""
        return self.rented_node_hours / self.needed_node_hours if self.needed_node_hours else None


@dataclass(frozen=True, kw_only=True)
class OwnRent:
    """Owned and rented nodes of both pools over a demand.

    Attributes
    ----------
    name : str
        Of the demand.
    method : str
        ``newsvendor``, ``bisection`` (leases), ``milp`` (a budget binds) or ``given``.
    horizon_h : float
        Hours of the demand.
    rollout : PoolSplit
        The rollout pool.
    train : PoolSplit
        The train pool.
    breaches : tuple of str
        Limits that given counts break, in words; empty for a fleet that can be had.
    """

    name: str
    method: str
    horizon_h: float
    rollout: PoolSplit
    train: PoolSplit
    breaches: tuple[str, ...] = ()

    def pool(self, name: Pool) -> PoolSplit:
        """Return one pool."""
        return self.rollout if name == "rollout" else self.train

    @property
    def owned(self) -> tuple[int, int]:
        """Owned nodes of (rollout, train)."""
        return self.rollout.owned, self.train.owned

    @property
    def own_usd_per_hour(self) -> float:
        """What owning costs, $/h."""
        return self.rollout.own_usd_per_hour + self.train.own_usd_per_hour

    @property
    def rent_usd_per_hour(self) -> float:
        """What renting costs on average, $/h."""
        return self.rollout.rent_usd_per_hour + self.train.rent_usd_per_hour

    @property
    def usd_per_hour(self) -> float:
        """Owned and rented, $/h."""
        return self.own_usd_per_hour + self.rent_usd_per_hour

    @property
    def usd_total(self) -> float:
        """Over the horizon, $."""
        return self.usd_per_hour * self.horizon_h

    @property
    def capex_usd(self) -> float | None:
        """Purchases of both pools, $; ``None`` where a price is unknown."""
        parts = (self.rollout.capex_usd, self.train.capex_usd)
        return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]


def sizing_problem(
    scenarios: Sequence[Demand | Sequence[Demand]],
    costs: CostModel,
    *,
    probabilities: Sequence[float] | None = None,
) -> SizingProblem:
    """Return the arrays that :mod:`models.sizing.problem` and the MILP take.

    Parameters
    ----------
    scenarios : sequence of Demand, or of one Demand per purchase period
        One alone is multiplied by each period's growth, nodes rounded up; several are taken as
        they are.
    probabilities : sequence of float, optional
        Equal ones by default.

    Raises
    ------
    InputError
        When counts differ, or a number is out of its range.
    """
    if not scenarios:
        raise InputError("Expected at least one scenario, got none.")
    chances = probabilities or [1 / len(scenarios)] * len(scenarios)
    if len(chances) != len(scenarios):
        raise InputError(
            f"Expected one probability per scenario, got {len(chances)} for {len(scenarios)}."
        )
    return SizingProblem(
        rollout=_terms(costs.rollout, costs.periods),
        train=_terms(costs.train, costs.periods),
        scenarios=tuple(
            Scenario(probability=chance, demand=_by_period(scenario, costs.periods))
            for chance, scenario in zip(chances, scenarios, strict=True)
        ),
        period_weights=tuple(period.years for period in costs.periods),
        capex_budget_usd=tuple(period.capex_usd for period in costs.periods),
    )


def _by_period(
    scenario: Demand | Sequence[Demand], periods: Sequence[Period]
) -> tuple[DemandArrays, ...]:
    if isinstance(scenario, Demand):
        return tuple(_arrays(scenario, period.growth) for period in periods)
    return tuple(_arrays(demand, 1.0) for demand in scenario)


def _arrays(demand: Demand, growth: float) -> DemandArrays:
    """Return a demand times ``growth``, nodes rounded up (round-off of a whole product apart)."""

    def grown(pool: Pool) -> list[int]:
        return [math.ceil(nodes * growth - 1e-9) for nodes in demand.nodes(pool).tolist()]

    return DemandArrays(
        hours=demand.hours,
        rollout_nodes=np.array(grown("rollout"), dtype=np.int64),
        train_nodes=np.array(grown("train"), dtype=np.int64),
    )


def _terms(costs: PoolCosts, periods: Sequence[Period]) -> PoolTerms:
    own = [costs.own_usd_at(period.own_price_factor) for period in periods]
    known = [usd for usd in own if usd is not None]
    capex = costs.capex_usd
    return PoolTerms(
        own_usd=tuple(known) if len(known) == len(own) else None,
        rent_usd=tuple(costs.rent_usd_per_node_hour * p.rent_price_factor for p in periods),
        capex_usd=None if capex is None else tuple(capex * p.own_price_factor for p in periods),
        max_owned=costs.max_owned_nodes,
        max_rented=costs.max_rented_nodes,
        lease_block_h=costs.lease_block_h,
    )


def _at_once(costs: CostModel) -> CostModel:
    """Return the costs of the first period alone, at the demand of the trace."""
    return replace(costs, periods=(replace(costs.periods[0], growth=1.0),))


def split(demand: Demand, owned_rollout: int, owned_train: int, costs: CostModel) -> OwnRent:
    """Return what a demand costs with any owned counts, the rest rented, at today's prices.

    Counts outside the limits are priced too; ``breaches`` says which limits.

    Raises
    ------
    InputError
        When a count is negative, or owning has no known price.
    """
    if min(owned_rollout, owned_train) < 0:
        raise InputError(f"Expected owned nodes >= 0, got {owned_rollout} and {owned_train}.")
    costs.fleet_usd_per_hour(owned_rollout, owned_train)  # raises where a price is unknown
    return _split(demand, (owned_rollout, owned_train), _at_once(costs), "given")


def _split(demand: Demand, owned: tuple[int, int], costs: CostModel, method: str) -> OwnRent:
    problem = sizing_problem([demand], costs)
    usd = cost_of(problem, (owned,))

    def side(place: int, pool: Pool) -> PoolSplit:
        nodes, peak = owned[place], demand.peak(pool)
        capacity = nodes * demand.horizon_h
        rented = demand.node_hours_above(pool, nodes)
        used = demand.node_hours(pool) - rented
        price = costs.pool(pool).capex_usd
        return PoolSplit(
            owned=nodes,
            peak=peak,
            rented_peak=max(peak - nodes, 0),
            mean=demand.mean(pool),
            owned_used_node_hours=used,
            owned_idle_node_hours=capacity - used,
            rented_node_hours=rented,
            paid_node_hours=_paid_node_hours(problem, place, nodes, rented),
            own_usd_per_hour=usd.own_usd_per_hour[place],
            rent_usd_per_hour=usd.rent_usd_per_hour[place],
            capex_usd=None if price is None and nodes else nodes * (price or 0.0),
        )

    return OwnRent(
        name=demand.name,
        method=method,
        horizon_h=demand.horizon_h,
        rollout=side(0, "rollout"),
        train=side(1, "train"),
        breaches=breaches(problem, (owned,)),
    )


def _paid_node_hours(problem: SizingProblem, pool: int, nodes: int, rented: float) -> float:
    """Return the rented node-hours, or those of whole leases."""
    if problem.pools[pool].lease_block_h == 0:
        return rented
    return problem.leased_nodes(pool, 0, nodes) * problem.scenarios[0].demand[0].total_h


def owned_and_rented(
    demand: Demand, costs: CostModel, *, deadline: Deadline | None = None
) -> OwnRent:
    """Return the least-cost owned counts of both pools for one demand, and what they cost.

    Today's prices and the first period's budget; with several periods
    :func:`planner.size.uncertainty_value.staged_purchase` plans them together.

    Parameters
    ----------
    demand : Demand
        Nodes held over time.
    costs : CostModel
        What nodes cost, and limits of money and nodes.
    deadline : Deadline, optional
        Of the MILP, where a budget binds.

    Raises
    ------
    InfeasibleError
        When no fleet is within the limits, or the time ended before one was found.

    Examples
    --------
    >>> from planner import DEFAULT_CLUSTER
    >>> demand = Demand(
    ...     name="example",
    ...     hours=np.array([90.0, 10.0]),
    ...     rollout_nodes=np.array([2, 3]),
    ...     train_nodes=np.array([1, 1]),
    ... )
    >>> owned_and_rented(demand, default_costs(DEFAULT_CLUSTER)).owned
    (2, 1)
    """
    costs = _at_once(costs)
    problem = sizing_problem([demand], costs)
    owned = least_separable(problem)
    if owned is not None:
        leased = max(costs.rollout.lease_block_h, costs.train.lease_block_h) > 0
        return _split(demand, owned[0], costs, "bisection" if leased else "newsvendor")
    whole_import("models.sizing.milp")
    from models.sizing.milp import least_owned

    return _split(demand, least_owned(problem, deadline=deadline)[0], costs, "milp")
