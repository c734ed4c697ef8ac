"""What to own and what to rent for one demand: by hand, identities, what is monotone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.errors import InfeasibleError, InputError
from instances.hardware import DEFAULT_CLUSTER
from planner.replay.demand import POOLS, Demand
from planner.size.economics import (
    CostModel,
    Period,
    PoolCosts,
    default_costs,
    newsvendor,
    owned_and_rented,
    sizing_problem,
    split,
)
from sizing_cases import demand, hours_st, row_st, usd_st


def pool(own: float = 1.0, rent: float = 3.0, **more: Any) -> PoolCosts:
    """One GPU per node, so that prices are those of nodes."""
    return PoolCosts(
        gpu="X", gpus_per_node=1, rent_usd_per_gpu_hour=rent, own_usd_per_gpu_hour=own, **more
    )


def model(*periods: Period, **more: Any) -> CostModel:
    return CostModel(rollout=pool(**more), train=pool(**more), periods=periods or (Period(),))


demands = st.lists(row_st, min_size=1, max_size=6).map(lambda rows: demand(*rows))

# --- one pool -----------------------------------------------------------------------------------


def test_a_constant_demand_is_owned_in_full() -> None:
    found = newsvendor(demand((10.0, 4, 0)), "rollout", 1.0, 3.0)
    assert (found.nodes, found.share_above) == (4, 0.0)
    assert found.critical_ratio == pytest.approx(2 / 3)
    assert (found.own_usd_per_hour, found.rent_usd_per_hour) == (4.0, 0.0)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (0.0, 5),  # free: the peak
        (0.29, 5),  # 5 nodes for 3 of 10 h, rent $1/h: the upper 3 earn $0.30/h each
        (0.30, 2),  # exactly their keep: a tie, to fewer nodes
        (0.99, 2),  # the lower 2 are needed always
        (1.0, 0),  # as dear as rent
        (2.0, 0),
    ],
)
def test_two_levels(own: float, expected: int) -> None:
    found = newsvendor(demand((3.0, 5, 0), (7.0, 2, 0)), "rollout", own, 1.0)
    assert found.nodes == expected
    assert found.usd_per_hour == pytest.approx(
        own * expected + 0.3 * max(5 - expected, 0) + 0.7 * max(2 - expected, 0)
    )


@pytest.mark.parametrize(("own", "rent"), [(1.0, 0.0), (0.0, 0.0)])
def test_nothing_is_owned_where_rent_is_free(own: float, rent: float) -> None:
    found = newsvendor(demand((1.0, 4, 0)), "rollout", own, rent)
    assert (found.nodes, found.critical_ratio, found.usd_per_hour) == (0, 0.0, 0.0)


def test_no_jobs_need_nothing() -> None:
    found = newsvendor(demand(), "train", 1.0, 3.0)
    assert (found.nodes, found.share_above, found.usd_per_hour) == (0, 0.0, 0.0)
    both = owned_and_rented(demand(), model())
    assert (both.owned, both.usd_per_hour, both.usd_total) == ((0, 0), 0.0, 0.0)
    assert both.rollout.rented_share is None


def test_one_job_is_owned_for_as_long_as_it_lasts() -> None:
    """2 and 1 nodes for 6 h, the whole horizon: owned at $1/h each."""
    both = owned_and_rented(demand((6.0, 2, 1)), model())
    assert (both.method, both.owned, both.usd_per_hour) == ("newsvendor", (2, 1), 3.0)
    assert both.usd_total == 18.0


def test_limits_clamp_the_optimum() -> None:
    of = demand((3.0, 5, 0), (7.0, 2, 0))
    assert newsvendor(of, "rollout", 2.0, 1.0, max_rented_nodes=1).nodes == 4
    assert newsvendor(of, "rollout", 0.0, 1.0, max_owned_nodes=3).nodes == 3
    with pytest.raises(InfeasibleError, match="peak of 5 nodes is 1 more than the 3"):
        newsvendor(of, "rollout", 0.0, 1.0, max_owned_nodes=3, max_rented_nodes=1)


@given(demands, usd_st, usd_st)
def test_the_newsvendor_is_the_least_and_its_quantile(of: Demand, own: float, rent: float) -> None:
    found = newsvendor(of, "rollout", own, rent)

    def usd(nodes: int) -> float:
        return own * nodes + rent * of.node_hours_above("rollout", nodes) / of.horizon_h

    costs = [usd(nodes) for nodes in range(of.peak("rollout") + 1)]
    assert found.usd_per_hour == pytest.approx(min(costs), abs=1e-9)
    assert all(cost > min(costs) + 1e-9 for cost in costs[: found.nodes])  # the fewest such
    if 0 < own < rent:
        assert found.nodes == of.quantile("rollout", found.critical_ratio)


# --- both pools ---------------------------------------------------------------------------------


@given(demands, st.integers(0, 6), st.integers(0, 6), st.sampled_from([0.0, 1.0, 2.5]))
def test_node_hours_add_up(of: Demand, rollout: int, train: int, block_h: float) -> None:
    """Used and rented are what was needed; used and idle are what is owned; leases waste."""
    both = split(of, rollout, train, model(lease_block_h=block_h))
    for name, owned in zip(POOLS, (rollout, train), strict=True):
        side = both.pool(name)
        needed = side.owned_used_node_hours + side.rented_node_hours
        assert needed == pytest.approx(of.node_hours(name))
        capacity = side.owned_used_node_hours + side.owned_idle_node_hours
        assert capacity == pytest.approx(owned * of.horizon_h)
        assert side.paid_node_hours >= side.rented_node_hours - 1e-9
        paid_usd = 3.0 * side.paid_node_hours / of.horizon_h
        assert side.rent_usd_per_hour == pytest.approx(paid_usd)
        assert side.rented_peak == max(of.peak(name) - owned, 0)
    assert both.usd_per_hour == pytest.approx(both.rollout.usd_per_hour + both.train.usd_per_hour)


@given(demands, usd_st, usd_st, st.sampled_from([0.0, 1.0, 2.5]))
def test_no_split_is_cheaper_than_the_best(
    of: Demand, own: float, rent: float, block_h: float
) -> None:
    costs = model(own=own, rent=rent, lease_block_h=block_h)
    best = owned_and_rented(of, costs)
    assert best.method == ("bisection" if block_h else "newsvendor")
    for nodes in range(5):
        assert best.usd_per_hour <= split(of, nodes, nodes, costs).usd_per_hour + 1e-9
    closed = newsvendor(of, "train", own, rent)
    if not block_h:
        assert best.train.owned == closed.nodes
        assert best.train.usd_per_hour == pytest.approx(closed.usd_per_hour)


@given(demands, usd_st, usd_st, st.sampled_from([0.25, 1.0]))
def test_a_dearer_rent_never_lowers_what_is_owned(
    of: Demand, own: float, rent: float, more: float
) -> None:
    before = owned_and_rented(of, model(own=own, rent=rent)).owned
    after = owned_and_rented(of, model(own=own, rent=rent + more)).owned
    assert after[0] >= before[0]
    assert after[1] >= before[1]


def test_a_binding_budget_is_solved_and_kept() -> None:
    """$50 buys 5 nodes at $10; each saves $2/h of rent, wherever it is: 9 - 5 are rented."""
    costs = model(Period(capex_usd=50.0), usd_per_node=10.0)
    both = owned_and_rented(demand((1.0, 4, 5)), costs)
    assert both.method == "milp"
    assert sum(both.owned) == 5
    assert both.usd_per_hour == pytest.approx(5 * 1.0 + 4 * 3.0)
    assert both.capex_usd == 50.0
    assert both.breaches == ()


def test_given_counts_outside_the_limits_are_priced_and_named() -> None:
    costs = model(Period(capex_usd=50.0), usd_per_node=10.0, max_rented_nodes=1)
    both = split(demand((1.0, 4, 5)), 4, 2, costs)
    assert both.breaches == (
        "train pool: rents 3 of at most 1",
        "purchases: $60 of at most $50",
    )


def test_counts_that_cannot_be_priced_are_refused() -> None:
    with pytest.raises(InputError, match="nodes >= 0, got -1 and 0"):
        split(demand((1.0, 1, 1)), -1, 0, model())
    unknown = PoolCosts(gpu="Y", gpus_per_node=1, rent_usd_per_gpu_hour=3.0)
    costs = CostModel(rollout=pool(), train=unknown)
    with pytest.raises(InputError, match=r"Missing \[train\] usd_per_node"):
        split(demand((1.0, 1, 1)), 0, 1, costs)
    both = owned_and_rented(demand((1.0, 1, 2)), costs)
    assert both.owned == (1, 0)
    assert both.capex_usd is None


# --- the arrays for the models ------------------------------------------------------------------


def test_growth_rounds_nodes_up() -> None:
    """2 and 3 nodes x 1.5 are 3 and 5; x 1 exactly themselves."""
    costs = model(Period(years=1.0), Period(years=2.0, growth=1.5, own_price_factor=0.5))
    of = sizing_problem([demand((1.0, 2, 3))], costs)
    assert [d.rollout_nodes.tolist() for d in of.scenarios[0].demand] == [[2], [3]]
    assert [d.train_nodes.tolist() for d in of.scenarios[0].demand] == [[3], [5]]
    assert of.period_weights == (1.0, 2.0)
    assert of.rollout.own_usd == (1.0, 0.5)


def test_a_demand_per_period_is_taken_as_it_is() -> None:
    costs = model(Period(), Period(growth=9.0))
    of = sizing_problem([(demand((1.0, 1, 1)), demand((1.0, 2, 2)))], costs)
    assert of.peaks == ((1, 1), (2, 2))


@pytest.mark.parametrize(
    ("count", "chances", "words"),
    [(0, None, "at least one scenario"), (2, [1.0], "got 1 for 2"), (2, [0.5, 0.4], "sum to 1")],
)
def test_scenarios_that_do_not_fit_are_refused(count: int, chances: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sizing_problem([demand((1.0, 1, 1))] * count, model(), probabilities=chances)


def test_scaling_all_prices_scales_the_cost() -> None:
    of = demand((3.0, 5, 1), (7.0, 2, 3))
    one, ten = owned_and_rented(of, model()), owned_and_rented(of, model(own=10.0, rent=30.0))
    assert ten.owned == one.owned
    assert ten.usd_per_hour == pytest.approx(10 * one.usd_per_hour)


@given(hours_st)
def test_defaults_own_a_constant_demand(hours: float) -> None:
    costs = default_costs(DEFAULT_CLUSTER)
    both = owned_and_rented(demand((hours, 2, 1)), costs)
    assert both.owned == (2, 1)
    assert both.usd_per_hour == pytest.approx(costs.fleet_usd_per_hour(2, 1))
    dear = replace(costs, rollout=replace(costs.rollout, usd_per_node=1e7))
    assert owned_and_rented(demand((hours, 2, 1)), dear).owned == (0, 1)
