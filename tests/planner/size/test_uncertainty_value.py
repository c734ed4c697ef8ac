"""One purchase for many futures, and several as demand grows: by hand and by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InfeasibleError
from planner.size.pool_costs import Period
from planner.size.uncertainty_value import (
    best_purchase,
    priced_purchase,
    purchase_value,
    staged_purchase,
)
from uncertainty_cases import costs_of, demand_of

ONE = demand_of((1, 1, 0))
THREE = demand_of((1, 3, 0))
REL = 1e-9


def test_identical_futures_leave_nothing_to_know():
    """Whatever varies within a future varies alike in all: only the mean number misses it.

    4 h of 1 node, 1 h of 6: own 1, rent 4, so a node needed for 1/5 < 1/4 of the time is rented:
    own 1, 1 + 4 x 5 / 5 = 5. The mean is 2 nodes: 2 + 4 x 4 / 5 = 5.2.
    """
    value = purchase_value([demand_of((4, 1, 0), (1, 6, 0))] * 3, costs_of(1, 4))
    assert value.owned == (1, 0)
    assert value.usd_per_hour == pytest.approx(5.0, rel=REL)
    assert value.stochastic.vss == pytest.approx(0, abs=1e-12)
    assert value.stochastic.evpi == pytest.approx(0, abs=1e-12)
    assert value.mean_nodes.owned == ((2, 0),)
    assert value.regret_of_mean == pytest.approx(0.2, rel=REL)


def test_identical_constant_futures_leave_no_regret_at_all():
    value = purchase_value([THREE] * 4, costs_of(1, 4))
    assert value.owned == (3, 0)
    assert value.regret_of_mean == pytest.approx(0, abs=1e-12)


def test_one_node_or_three_with_dear_rent():
    """Own 1, rent 4, 1 or 3 nodes with equal chances.

    Owning n costs 1 + 4 = 5, 2 + 2 = 4 and 3 for n = 1, 2, 3: buy 3. Known: 1 or 3, 2 on average.
    The mean is 2, at 4.
    """
    value = purchase_value([ONE, THREE], costs_of(1, 4))
    assert value.owned == (3, 0)
    assert value.usd_per_hour == pytest.approx(3, rel=REL)
    assert value.foresight_usd_per_hour == pytest.approx((1, 3), rel=REL)
    assert value.stochastic.ws == pytest.approx(2, rel=REL)
    assert value.stochastic.evpi == pytest.approx(1, rel=REL)
    assert value.stochastic.mean_owned == ((2, 0),)
    assert value.stochastic.vss == pytest.approx(1, rel=REL)
    assert value.mean_nodes.usd_per_hour == pytest.approx(4, rel=REL)
    assert value.regret_of_mean == pytest.approx(1, rel=REL)


def test_one_node_or_three_with_cheap_rent():
    """Own 1, rent 1.5: n = 1, 2, 3 cost 1 + 1.5 = 2.5, 2 + 0.75 = 2.75 and 3: buy 1."""
    value = purchase_value([ONE, THREE], costs_of(1, 1.5))
    assert value.owned == (1, 0)
    assert value.usd_per_hour == pytest.approx(2.5, rel=REL)
    assert value.stochastic.vss == pytest.approx(0.25, rel=REL)
    assert value.stochastic.evpi == pytest.approx(0.5, rel=REL)
    assert value.regret_of_mean == pytest.approx(0.25, rel=REL)


def test_probabilities_count():
    """Three nodes with chance 1/5 only: the second and third pay no more at rent 4 (1/5 < 1/4)."""
    value = purchase_value([ONE, THREE], costs_of(1, 4), (0.8, 0.2))
    assert value.owned == (1, 0)
    assert value.usd_per_hour == pytest.approx(1 + 0.2 * 8, rel=REL)
    assert value.mean_nodes.owned == ((1, 0),)  # 1.4


def test_a_mean_of_half_a_node_is_rounded_up():
    value = purchase_value([ONE, demand_of((1, 2, 0))], costs_of(1, 4))
    assert value.mean_nodes.owned == ((2, 0),)


def test_limits_of_nodes_bound_the_mean_too():
    """At most 1 rented: 3 nodes must leave 2 owned, though 0 x 3/4 + 3 x 1/4 is 1 on the mean."""
    futures = [demand_of((1, 0, 0)), demand_of((1, 3, 0))]
    free = purchase_value(futures, costs_of(1, 4), (0.75, 0.25))
    assert free.mean_nodes.owned == ((1, 0),)
    bound = purchase_value(futures, costs_of(1, 4, max_rented_nodes=1), (0.75, 0.25))
    assert bound.mean_nodes.owned == ((2, 0),)
    assert bound.mean_nodes.usd_per_hour == pytest.approx(2 + 0.25 * 4, rel=REL)


def test_what_no_purchase_can_serve_is_refused():
    with pytest.raises(InfeasibleError, match="peak of 3 nodes"):
        purchase_value([ONE, THREE], costs_of(1, 4, max_owned_nodes=1, max_rented_nodes=1))


def test_a_purchase_that_breaks_a_limit_has_no_price():
    choice = priced_purchase([ONE, THREE], costs_of(1, 4, max_rented_nodes=1), (1, 0))
    assert choice.usd_per_hour is None
    assert "rents 2 of at most 1" in choice.breaches[0]


def test_prices_are_those_of_the_first_period():
    costs = costs_of(1, 4, Period(growth=7.0), Period(own_price_factor=9.0))
    assert best_purchase(THREE, costs) == (3, 0)
    assert priced_purchase([THREE], costs, (3, 0)).usd_per_hour == pytest.approx(3, rel=REL)


# --- as demand grows --------------------------------------------------------------------------

TWO = demand_of((1, 2, 0))


def test_buying_step_by_step_by_hand():
    """1 node for a year, then 2; own 1, rent 3.

    Step by step: (1 + 2) / 2 = 1.5. Once: n = 1 costs 1 + 3 / 2 = 2.5, n = 2 costs 2.
    """
    found = staged_purchase([[ONE, TWO]], costs_of(1, 3), (1, 2), (0, 1))
    assert found.weights == (1, 1)
    assert found.staged is not None
    assert found.staged.owned == ((1, 0), (2, 0))
    assert found.staged.usd_per_hour == pytest.approx(1.5, rel=REL)
    assert found.at_once.owned == ((2, 0), (2, 0))
    assert found.at_once.usd_per_hour == pytest.approx(2, rel=REL)
    assert [c.usd_per_hour for c in found.for_growth] == pytest.approx([2.5, 2], rel=REL)
    assert found.value_of_staging == pytest.approx(0.5, rel=REL)


def test_prices_of_later_years_are_those_of_their_period():
    """Rent 1.5 today and twice that from year 1: n = 1 costs 1 + 3 / 2 = 2.5, n = 2 costs 2.

    At today's rent n = 1 would cost 1 + 1.5 / 2 = 1.75 and be the better.
    """
    dearer = costs_of(1, 1.5, Period(years=1), Period(years=5, rent_price_factor=2.0))
    found = staged_purchase([[ONE, TWO]], dearer, (1, 2), (0, 1))
    assert found.at_once.owned == ((2, 0), (2, 0))
    assert found.at_once.usd_per_hour == pytest.approx(2, rel=REL)
    same = staged_purchase([[ONE, TWO]], costs_of(1, 1.5), (1, 2), (0, 1))
    assert same.at_once.owned == ((1, 0), (1, 0))
    assert same.at_once.usd_per_hour == pytest.approx(1.75, rel=REL)


def test_a_budget_that_is_enough_only_step_by_step():
    """A node at $1, $1 to spend a period, nothing to rent: 1 node now and 1 more later, not 2 now.

    Own 1: (1 + 2) / 2 = 1.5. One node now is too few later; two at once are beyond the budget.
    """
    step = Period(capex_usd=1.0)
    costs = costs_of(1, 3, step, step, usd_per_node=1.0, max_rented_nodes=0)
    found = staged_purchase([[ONE, TWO]], costs, (1, 2), (0, 1))
    assert found.staged is not None
    assert found.staged.owned == ((1, 0), (2, 0))
    assert found.staged.usd_per_hour == pytest.approx(1.5, rel=REL)
    assert [c.usd_per_hour for c in (found.at_once, *found.for_growth)] == [None] * 3
    assert "budget" in found.at_once.breaches[0]
    assert found.for_growth[0].owned == ((1, 0), (1, 0))
    assert found.value_of_staging is None


def test_free_rent_buys_nothing():
    found = staged_purchase([[ONE, TWO]], costs_of(1, 0), (1, 2), (0, 1))
    assert found.at_once.owned == ((0, 0), (0, 0))
    assert found.value_of_staging == 0


def test_periods_last_until_the_next_growth():
    found = staged_purchase([[ONE, TWO, THREE]], costs_of(1, 3), (1, 1.5, 3), (0, 0.5, 2))
    assert found.weights == (0.5, 1.5, 1.5)
    assert found.staged is not None
    # 1 node for 1/7 of the time, 2 and 3 for 3/7 each
    assert found.staged.usd_per_hour == pytest.approx((1 + 6 + 9) / 7, rel=REL)


ROW = st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 3), st.just(1))
FUTURE = st.lists(ROW, min_size=1, max_size=3).map(lambda rows: demand_of(*rows))


@settings(max_examples=25, deadline=None)
@given(
    futures=st.lists(st.tuples(FUTURE, FUTURE), min_size=1, max_size=3),
    rent=st.sampled_from([0.5, 1.5, 2.5, 6.0]),
    later=st.sampled_from([0.5, 1.0, 3.0]),
    year=st.sampled_from([0.5, 1.0, 4.0]),
)
def test_purchases_are_the_best_of_all(futures, rent, later, year):
    """Every pair of purchases of up to 3 nodes is priced from its definition."""
    costs = costs_of(1, rent, Period(years=year), Period(years=year, rent_price_factor=later))
    found = staged_purchase(futures, costs, (1, 2), (0, year))

    def lacking(k: int, nodes: int) -> float:
        over = [np.dot(np.maximum(f[k].rollout_nodes - nodes, 0), f[k].hours) for f in futures]
        return float(np.mean([o / f[k].horizon_h for o, f in zip(over, futures, strict=True)]))

    def usd(first: int, second: int) -> float:
        own = 0.5 * first + 0.5 * second
        return own + 0.5 * rent * (lacking(0, first) + later * lacking(1, second))

    plans = [(a, b) for a, b in itertools.product(range(4), repeat=2) if a <= b]
    # one train node at all times: bought now, in the second year or never, and not sold
    train = min(1.0, 0.5 * (rent + 1.0), 0.5 * rent * (1 + later))
    once = min(1, 0.5 * rent * (1 + later))
    assert found.staged is not None
    assert found.staged.usd_per_hour == pytest.approx(
        min(usd(a, b) for a, b in plans) + train, rel=1e-6
    )
    assert found.at_once.usd_per_hour == pytest.approx(
        min(usd(a, a) for a in range(4)) + once, rel=1e-6
    )
    for k in (0, 1):
        assert found.for_growth[k].usd_per_hour >= found.at_once.usd_per_hour - 1e-9
    alone = purchase_value([f[0] for f in futures], costs)
    assert alone.usd_per_hour == pytest.approx(
        min(n + rent * lacking(0, n) for n in range(4)) + min(1, rent), rel=1e-6
    )
    assert alone.stochastic.vss is not None
    assert min(alone.stochastic.vss, alone.stochastic.evpi) >= -1e-9
