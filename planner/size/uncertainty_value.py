"""What not knowing the future costs: one purchase for many futures, or several as demand grows.

Two stages: nodes are bought before it is known which future comes, and what they lack is rented
once it has come. The problem, its prices and its limits are those of :mod:`models.sizing.problem`;
the value of planning for all futures (VSS) and of knowing the one that comes (EVPI) are those of
:mod:`planner.size.two_stage`. Here are added

* the purchase a buyer makes who is told a mean: the mean number of nodes, over all time and
  futures, to the nearest whole node within the limits of nodes owned and rented. Its regret is what
  it costs above the best single purchase. The mean future of :mod:`planner.size.two_stage` still
  varies over time, and is a much smaller mistake;
* growth in time (:func:`staged_purchase`): the demand of growth ``g_k`` holds from the year in
  which it is reached to the next, the last as long as the one before. A purchase may be made in
  each of these years, but all are decided now; prices and budget of a purchase, each time in full,
  are those of the cost model's period that the year falls in. Future r is one at every growth
  (:mod:`planner.size.uncertainty_runs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from instances.errors import InfeasibleError, UnsupportedError
from models.problem.whole_import import whole_import
from models.sizing.problem import Owned, SizingProblem, breaches, cost_of
from planner.replay.demand import POOLS, Demand
from planner.size.economics import sizing_problem
from planner.size.pool_costs import CostModel, Period
from planner.size.two_stage import StochasticValue, value_of

__all__ = [
    "Choice",
    "PurchaseValue",
    "StagedPurchase",
    "above",
    "best_purchase",
    "priced_purchase",
    "purchase_value",
    "staged_purchase",
]

#: Round-off of a mean that is half a node, and of summed years.
_REL: Final = 1e-12


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Owned counts, decided before the future is known, and what they cost on average.

    Attributes
    ----------
    owned : tuple of (int, int)
        (rollout, train) in each purchase period; empty where the limits admit no such purchase.
    usd_per_hour : float or None
        Expected; ``None`` where some future would break a limit, or there is no purchase.
    breaches : tuple of str
        Which, in words.
    """

    owned: Owned
    usd_per_hour: float | None
    breaches: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PurchaseValue:
    """One purchase for many futures; money is $/h, on average over futures and time.

    Attributes
    ----------
    stochastic : StochasticValue
        The best single purchase, the one for the mean future, and the best of each future.
    foresight_usd_per_hour : tuple of float
        What each future costs a buyer who knows it.
    mean_nodes : Choice
        The mean number of nodes, owned.
    """

    stochastic: StochasticValue
    foresight_usd_per_hour: tuple[float, ...]
    mean_nodes: Choice

    @property
    def owned(self) -> tuple[int, int]:
        """The best single purchase, (rollout, train)."""
        return self.stochastic.owned[0]

    @property
    def usd_per_hour(self) -> float:
        """Its expected cost."""
        return self.stochastic.rp

    @property
    def regret_of_mean(self) -> float | None:
        """What owning the mean number of nodes costs above the best single purchase."""
        return above(self.mean_nodes.usd_per_hour, self.stochastic.rp)


def above(usd: float | None, best_usd: float | None) -> float | None:
    """Return the difference; below 0 it is round-off: nothing is better than the best."""
    return None if usd is None or best_usd is None else max(usd - best_usd, 0.0)


@dataclass(frozen=True, kw_only=True)
class StagedPurchase:
    """Buying step by step as demand grows, against buying once.

    Attributes
    ----------
    growths, years : tuple of float
        When each growth is reached, years from now; a purchase may be made then.
    weights : tuple of float
        Years that each period lasts.
    staged : Choice or None
        Least cost of all plans of purchases.
    at_once : Choice
        Least cost of all that buy everything now.
    for_growth : tuple of Choice
        For each growth: buy now what would be best if it held all the time.
    note : str
        Why ``staged`` is ``None``.
    """

    growths: tuple[float, ...]
    years: tuple[float, ...]
    weights: tuple[float, ...]
    staged: Choice | None
    at_once: Choice
    for_growth: tuple[Choice, ...]
    note: str = ""

    @property
    def value_of_staging(self) -> float | None:
        """What buying step by step saves, $/h."""
        if self.staged is None:
            return None
        return above(self.at_once.usd_per_hour, self.staged.usd_per_hour)


# -- one purchase ----------------------------------------------------------------------------


def _today(costs: CostModel) -> CostModel:
    """Return the costs for one purchase now, at today's prices and budget."""
    return replace(costs, periods=(replace(costs.periods[0], growth=1.0),))


def purchase_value(
    demands: Sequence[Demand], costs: CostModel, probabilities: Sequence[float] | None = None
) -> PurchaseValue:
    """Return the best single purchase for several futures, and what knowing more is worth.

    Parameters
    ----------
    demands : sequence of Demand
        One per future.
    costs : CostModel
        Of its periods the first counts.
    probabilities : sequence of float, optional
        Of the futures; left out, equal.

    Raises
    ------
    InfeasibleError
        When no purchase within the limits serves every future.
    """
    problem = sizing_problem(demands, _today(costs), probabilities=probabilities)
    found = value_of(problem)
    mean = (_mean_nodes(problem, demands, 0), _mean_nodes(problem, demands, 1))
    return PurchaseValue(
        stochastic=found,
        foresight_usd_per_hour=tuple(
            cost_of(problem.only(s), owned).usd_per_hour
            for s, owned in enumerate(found.scenario_owned)
        ),
        mean_nodes=_priced(problem, (mean,)),
    )


def _mean_nodes(problem: SizingProblem, demands: Sequence[Demand], pool: int) -> int:
    """Return the mean number of nodes, whole, within the limits of nodes owned and rented."""
    mean = math.fsum(
        scenario.probability * demand.mean(POOLS[pool])
        for scenario, demand in zip(problem.scenarios, demands, strict=True)
    )
    nodes = max(math.floor(mean + 0.5 + _REL), problem.least_owned(0, pool))
    return min(nodes, problem.most_owned(pool))


def best_purchase(demand: Demand, costs: CostModel) -> tuple[int, int]:
    """Return the best purchase, (rollout, train), of a buyer sure of one future.

    Raises
    ------
    InfeasibleError
        When nothing is within the limits.
    """
    return _best(sizing_problem([demand], _today(costs)))[0]


def priced_purchase(demands: Sequence[Demand], costs: CostModel, owned: tuple[int, int]) -> Choice:
    """Return what owning so many (rollout, train) nodes costs in equally likely futures."""
    return _priced(sizing_problem(demands, _today(costs)), (owned,))


def _best(problem: SizingProblem) -> Owned:
    whole_import("models.sizing.milp")
    from models.sizing.milp import least_owned  # brings Pyomo

    return least_owned(problem)


def _priced(problem: SizingProblem, owned: Owned) -> Choice:
    broken = breaches(problem, owned)
    usd = None if broken else cost_of(problem, owned).usd_per_hour
    return Choice(owned=owned, usd_per_hour=usd, breaches=broken)


# -- purchases as demand grows ---------------------------------------------------------------


def staged_purchase(
    futures: Sequence[Sequence[Demand]],
    costs: CostModel,
    growths: Sequence[float],
    years: Sequence[float],
) -> StagedPurchase:
    """Return the best purchases as demand grows, and what buying once costs instead.

    Parameters
    ----------
    futures : sequence of sequence of Demand
        For each future its demand at each growth, equally likely.
    costs : CostModel
    growths, years : sequence of float
        At least two growths, and increasing years in which each is reached.

    Raises
    ------
    InfeasibleError
        When no purchases within the limits serve every future at every growth. One purchase now
        may be beyond a budget that step by step is enough: then that choice alone has no cost.
    """
    steps = np.diff(years).tolist()
    weights = (*steps, steps[-1])
    periods = tuple(
        replace(_in_force(costs, year), years=weight, growth=1.0)
        for year, weight in zip(years, weights, strict=True)
    )
    problem = sizing_problem(futures, replace(costs, periods=periods))
    note, staged = "", None
    try:
        staged = _priced(problem, _best(problem))
    except UnsupportedError as error:
        note = str(error)

    def held(find: Callable[[], tuple[int, int]]) -> Choice:
        """Price one purchase now; where money or nodes do not reach, that is the answer."""
        try:
            owned = find()
        except InfeasibleError as error:
            return Choice(owned=(), usd_per_hour=None, breaches=(str(error),))
        return _priced(problem, (owned,) * len(periods))

    return StagedPurchase(
        growths=tuple(growths),
        years=tuple(years),
        weights=weights,
        staged=staged,
        at_once=held(lambda: _once(futures, costs, periods)),
        for_growth=tuple(held(partial(_best_at, futures, costs, k)) for k in range(len(periods))),
        note=note,
    )


def _best_at(futures: Sequence[Sequence[Demand]], costs: CostModel, k: int) -> tuple[int, int]:
    """Return the best purchase, at today's prices, if growth k held all the time."""
    return _best(sizing_problem([future[k] for future in futures], _today(costs)))[0]


def _in_force(costs: CostModel, year: float) -> Period:
    """Return the period of the cost model that a year from now falls in; the last has no end."""
    end = 0.0
    for period in costs.periods:
        end += period.years
        if year < end * (1 - _REL):
            return period
    return costs.periods[-1]


def _once(
    futures: Sequence[Sequence[Demand]], costs: CostModel, periods: Sequence[Period]
) -> tuple[int, int]:
    """Return the best single purchase now, held in every period.

    Bought now, a period is a future like any other, as likely as it is long. Where its rent is
    ``f_k`` times today's, ``sum_k y_k f_k r E_k`` is one rent of ``r sum_k y_k f_k`` and
    likelihoods in proportion to ``y_k f_k``.
    """
    total = math.fsum(period.years for period in periods)
    shares = [period.years / total for period in periods]
    rents = [y * period.rent_price_factor for y, period in zip(shares, periods, strict=True)]
    factor = math.fsum(rents)
    likely = [rent / factor for rent in rents] if factor > 0 else shares
    now = replace(periods[0], rent_price_factor=factor)
    problem = sizing_problem(
        [demand for future in futures for demand in future],
        replace(costs, periods=(now,)),
        probabilities=[q / len(futures) for _ in futures for q in likely],
    )
    return _best(problem)[0]
