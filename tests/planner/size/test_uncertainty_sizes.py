"""The least fleet that is enough with stated confidence, against enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InputError
from planner.replay.demand import Demand
from planner.size.uncertainty_sizes import covered_share, replications_needed, sure_size

USD = {"rollout": 1.0, "train": 3.0}


def demand(*rows: tuple[float, int, int]) -> Demand:
    """Rows of (hours, rollout nodes, train nodes)."""
    hours, rollout, train = zip(*rows, strict=True) if rows else ((), (), ())
    return Demand(
        name="hand",
        hours=np.array(hours, dtype=np.float64),
        rollout_nodes=np.array(rollout, dtype=np.int64),
        train_nodes=np.array(train, dtype=np.int64),
    )


def size(demands, coverage, confidence, usd=None):
    answer = sure_size(
        demands, coverage=coverage, confidence=confidence, usd_per_node_hour=usd or USD
    )
    return answer, (answer.rollout_nodes, answer.train_nodes)


def test_one_demand_at_full_coverage_needs_both_peaks():
    answer, nodes = size([demand((1, 5, 2), (9, 1, 4))], 1.0, 1.0)
    assert nodes == (5, 4)
    assert answer.alone == {"rollout": 5, "train": 4}


def test_the_pools_do_not_miss_different_hours():
    """Each pool alone may miss its own tenth of the time; together they would miss two tenths.

    10 h: 8 h at (1, 1), 1 h at (5, 1), 1 h at (1, 5). 90 % of 10 h may leave one hour out. Leaving
    out the train peak gives (5, 1) at 5 + 3 = 8, the rollout peak (1, 5) at 1 + 15 = 16.
    """
    answer, nodes = size([demand((8, 1, 1), (1, 5, 1), (1, 1, 5))], 0.9, 1.0)
    assert answer.alone == {"rollout": 1, "train": 1}
    assert nodes == (5, 1)


def test_the_pools_do_not_miss_different_replications():
    """Ten futures, 90 % confidence: one may be missed, not one per pool.

    Eight need (1, 1), one (5, 1), one (1, 5): as above, (5, 1).
    """
    futures = [demand((1, 1, 1))] * 8 + [demand((1, 5, 1)), demand((1, 1, 5))]
    answer, nodes = size(futures, 1.0, 0.9)
    assert nodes == (5, 1)
    assert (answer.met, answer.replications, answer.share) == (9, 10, 0.9)
    assert answer.alone == {"rollout": 1, "train": 1}


def test_prices_decide_which_pool_is_raised():
    futures = [demand((1, 1, 1))] * 8 + [demand((1, 5, 1)), demand((1, 1, 5))]
    assert size(futures, 1.0, 0.9, {"rollout": 3.0, "train": 1.0})[1] == (1, 5)
    # at equal prices (5, 1) and (1, 5) cost the same: the one with fewer train nodes
    assert size(futures, 1.0, 0.9, {"rollout": 1.0, "train": 1.0})[1] == (5, 1)


def test_the_interval_of_the_share_met_is_that_of_clopper_and_pearson():
    """All of n met: the lower end solves p^n = 0.025, the upper is 1. None missed of 30: 0.884."""
    answer, _ = size([demand((1, 1, 1))] * 30, 1.0, 0.95)
    assert answer.met == 30
    assert answer.low == pytest.approx(0.025 ** (1 / 30), rel=1e-9)
    assert answer.high == 1.0


def test_no_time_and_no_nodes_are_enough():
    assert size([demand(), demand((2, 0, 0))], 0.95, 0.95)[1] == (0, 0)
    assert covered_share(demand(), 0, 0) == 1.0


ROW = st.tuples(st.sampled_from([0.1, 0.5, 1.0, 3.0]), st.integers(0, 5), st.integers(0, 5))


@settings(max_examples=150, deadline=None)
@given(
    futures=st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=7),
    coverage=st.sampled_from([0.3, 0.5, 0.9, 0.95, 1.0]),
    confidence=st.sampled_from([0.1, 0.5, 0.8, 0.95, 1.0]),
    usd=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_the_cheapest_of_all_fleets(futures, coverage, confidence, usd):
    """Enumerate every fleet up to the peaks and count what each is enough for."""
    demands = [demand(*rows) for rows in futures]
    prices = {"rollout": float(usd[0]), "train": float(usd[1])}
    answer, nodes = size(demands, coverage, confidence, prices)
    least = math.inf
    for fleet in itertools.product(range(6), repeat=2):
        met = sum(covered_share(d, *fleet) >= coverage - 1e-9 for d in demands)
        if met >= confidence * len(demands) - 1e-9:
            least = min(least, usd[0] * fleet[0] + usd[1] * fleet[1])
    assert usd[0] * nodes[0] + usd[1] * nodes[1] == least
    assert answer.met >= confidence * len(demands) - 1e-9
    assert answer.low <= answer.share <= answer.high
    for pool, nodes_of_pool in zip(("rollout", "train"), nodes, strict=True):
        assert answer.alone[pool] <= nodes_of_pool


def test_replications_needed_is_the_least_number():
    assert replications_needed(0.95) == 59  # 0.95^58 = 0.0510, 0.95^59 = 0.0485
    assert replications_needed(0.5, 0.75) == 2  # 1 - 0.25, exactly
    for confidence, assurance in ((0.9, 0.95), (0.99, 0.9), (0.3, 0.99)):
        n = replications_needed(confidence, assurance)
        assert 1 - confidence**n >= assurance > 1 - confidence ** (n - 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coverage": 0.0}, "0 < coverage <= 1, got 0.0"),
        ({"confidence": 1.2}, "0 < confidence <= 1, got 1.2"),
        ({"usd_per_node_hour": {"rollout": -1.0, "train": 1.0}}, r"got -1.0 \(rollout\)"),
    ],
)
def test_shares_and_prices_out_of_range_are_refused(change, words):
    arguments = {"coverage": 0.9, "confidence": 0.9, "usd_per_node_hour": USD, **change}
    with pytest.raises(InputError, match=words):
        sure_size([demand((1, 1, 1))], **arguments)


def test_no_replication_is_refused():
    with pytest.raises(InputError, match="at least one replication"):
        sure_size([], coverage=0.9, confidence=0.9, usd_per_node_hour=USD)
    with pytest.raises(InputError, match="0 < confidence < 1, got 1"):
        replications_needed(1)


@pytest.mark.parametrize(
    ("n", "confidence", "met"),
    [
        (59, 0.95, 59),  # 1 - 0.95^59 = 0.9515: the largest of 59, Wilks (1941)
        (58, 0.95, 58),  # 1 - 0.95^58 = 0.949: no number is sure, so all of them
        (93, 0.95, 92),  # P(Binomial(93, 0.95) <= 91) = 0.9500..: the second largest of 93
        (10, 0.5, 9),  # P(Binomial(10, 0.5) <= 7) = 1 - 56 / 1024 = 0.945; <= 8: 0.989
    ],
)
def test_an_assured_size_is_an_order_statistic(n: int, confidence: float, met: int) -> None:
    """Demands of 1 to n nodes of one pool: the size is the number of demands it is enough for."""
    demands = [demand((1, i, 0)) for i in range(1, n + 1)]
    size = sure_size(
        demands, coverage=1.0, confidence=confidence, usd_per_node_hour=USD, assurance=0.95
    )
    below = sum(
        math.comb(n, i) * confidence**i * (1 - confidence) ** (n - i) for i in range(size.met)
    )
    assert below >= 0.95 or size.met == n
    one_less = below - math.comb(n, size.met - 1) * confidence ** (size.met - 1) * (
        1 - confidence
    ) ** (n - size.met + 1)
    assert one_less < 0.95
    assert (size.rollout_nodes, size.met) == (met, met)


def test_what_is_assured_is_the_tolerance_limit() -> None:
    size = sure_size(
        [demand((1, i, 0)) for i in range(1, 60)],
        coverage=1.0,
        confidence=0.95,
        usd_per_node_hour=USD,
        assurance=0.95,
    )
    assert size.assured == pytest.approx(0.05 ** (1 / 59))
