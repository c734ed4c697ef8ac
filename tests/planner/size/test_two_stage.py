"""The value of planning for all scenarios: by hand, and its two inequalities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InfeasibleError
from models.sizing.problem import DemandArrays, SizingProblem, breaches, cost_of
from planner.replay.demand import Demand
from planner.size.economics import (
    CostModel,
    Period,
    PoolCosts,
    owned_and_rented,
    sizing_problem,
)
from planner.size.two_stage import StochasticValue, mean_demand, value_of
from sizing_cases import arrays, demand, problems


def model(*periods: Period, own: float = 1.0, rent: float = 3.0, **more: Any) -> CostModel:
    """$/h of a node of one GPU."""
    side = PoolCosts(
        gpu="X", gpus_per_node=1, rent_usd_per_gpu_hour=rent, own_usd_per_gpu_hour=own, **more
    )
    return CostModel(rollout=side, train=side, periods=periods or (Period(),))


def value(demands: list[Demand], costs: CostModel, **more: Any) -> StochasticValue:
    """Return the values of scenarios, equally likely unless ``probabilities`` say otherwise."""
    return value_of(sizing_problem(demands, costs, **more))


def test_two_equally_likely_futures() -> None:
    """0 or 10 rollout nodes; own $1/h, rent $4/h, so a node pays when needed above 1/4 of the time.

    Recourse: own 10, $10/h. Mean demand 5: own 5, which costs 5 + 5 x 4 / 2 = $15/h. Wait and
    see: own 0 or 10, $5/h on average. So VSS = 5 and EVPI = 5.
    """
    found = value([demand((1.0, 0, 0)), demand((1.0, 10, 0))], model(rent=4.0))
    assert (found.owned, found.mean_owned) == (((10, 0),), ((5, 0),))
    assert found.scenario_owned == (((0, 0),), ((10, 0),))
    assert (found.rp, found.eev, found.ws) == (10.0, 15.0, 5.0)
    assert (found.vss, found.evpi) == (5.0, 5.0)


def test_probabilities_weigh() -> None:
    """10 nodes with a chance of 0.2 < 1/4: own nothing, rent 10 x 4 x 0.2 = $8/h."""
    found = value(
        [demand((1.0, 0, 0)), demand((1.0, 10, 0))], model(rent=4.0), probabilities=[0.8, 0.2]
    )
    assert found.owned == ((0, 0),)
    assert found.rp == pytest.approx(8.0)
    assert found.ws == pytest.approx(2.0)


def test_one_scenario_leaves_nothing_to_know() -> None:
    of = demand((3.0, 5, 1), (7.0, 2, 3))
    found = value([of], model())
    assert (found.vss, found.evpi) == (0.0, 0.0)
    assert found.owned == (owned_and_rented(of, model()).owned,)
    assert found.rp == pytest.approx(owned_and_rented(of, model()).usd_per_hour)


def test_a_mean_plan_that_cannot_serve_has_no_cost() -> None:
    """At most 2 of 10 nodes can be rented; the plan for the mean of 5 owns 5."""
    found = value([demand((1.0, 0, 0)), demand((1.0, 10, 0))], model(max_rented_nodes=2))
    assert found.owned == ((10, 0),)
    assert (found.eev, found.vss) == (None, None)
    assert found.breaches == ("rollout pool: rents 5 of at most 2",)


# --- the mean demand ----------------------------------------------------------------------------


def test_peaks_at_different_times_do_not_cancel_out() -> None:
    """4 nodes for the first or the second half: half of the time 4, not all of it 2."""
    found = mean_demand(
        [arrays((1.0, 4, 0), (1.0, 0, 0)), arrays((1.0, 0, 0), (1.0, 4, 0))], [0.5] * 2
    )
    assert found.rollout_nodes.tolist() == [4, 0]
    assert found.hours.tolist() == [1.0, 1.0]


def test_the_mean_is_by_share_of_the_time_and_rounded_up() -> None:
    """4 for a quarter of 4 h and 1 for all of 8 h: 2.5 -> 3, then 0.5 -> 1; 6 h in all."""
    found = mean_demand([arrays((1.0, 4, 0), (3.0, 0, 0)), arrays((8.0, 1, 0))], [0.5, 0.5])
    assert found.rollout_nodes.tolist() == [3, 1]
    assert found.hours.tolist() == [1.5, 4.5]


def test_no_demand_has_no_mean() -> None:
    assert len(mean_demand([arrays(), arrays()], [0.5, 0.5]).hours) == 0


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_the_mean_of_equal_demands_is_their_duration_curve(rows: Any) -> None:
    of = arrays(*((float(h), r, t) for h, r, t in rows))
    found = mean_demand([of, of], [0.25, 0.75])
    for pool in (0, 1):
        assert _curve(found, pool) == pytest.approx(_curve(of, pool))


def _curve(of: DemandArrays, pool: int) -> Any:
    return np.bincount(of.nodes(pool), weights=of.hours, minlength=10)


# --- inequalities -------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(problems())
def test_neither_value_is_negative(of: SizingProblem) -> None:
    """WS <= RP <= EEV for any costs, limits, budgets, leases and periods."""
    try:
        found = value_of(of)
    except InfeasibleError:
        return
    assert found.evpi >= -1e-9
    assert found.vss is None or found.vss >= -1e-9
    assert (found.eev is None) == bool(found.breaches)
    assert breaches(of, found.owned) == ()
    assert found.rp == pytest.approx(cost_of(of, found.owned).usd_per_hour)
    alone = [
        scenario.probability * cost_of(of.only(s), found.scenario_owned[s]).usd_per_hour
        for s, scenario in enumerate(of.scenarios)
    ]
    assert found.ws == pytest.approx(sum(alone), abs=1e-9)


# --- several periods ----------------------------------------------------------------------------


def test_purchases_follow_growth() -> None:
    """2 nodes for a year, x 2 for another: 2 bought now, 2 then; $1/h each while owned."""
    found = value([demand((1.0, 2, 0))], model(Period(), Period(growth=2.0)))
    assert found.owned == ((2, 0), (4, 0))
    assert found.rp == pytest.approx(3.0)


def test_progress_counts_every_problem() -> None:
    seen: list[tuple[int, int]] = []
    scenarios = [demand((1.0, n, 0)) for n in range(3)]
    problem = sizing_problem(scenarios, model())
    value_of(problem, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 5) for k in range(1, 6)]
