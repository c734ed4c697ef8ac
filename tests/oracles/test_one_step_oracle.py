"""The least-period oracle with one-step jobs: by hand, and its two routes against each other."""

from __future__ import annotations

import pytest

from one_step_cases import mixed_groups
from oracles.least_period import Data, least_period, least_period_brute, verify

ONE = [[0]]
TWO = [[0], [0]]


@pytest.mark.parametrize(
    ("data", "least"),
    [
        # Rollouts fill the rollout node, each beside the train of the one before.
        (Data((10,), (10,), (0,), ONE, ONE, lags=(2,)), 10.0),
        (Data((10,), (10,), (0,), ONE, ONE), 20.0),
        # r + t + s = 17 in two periods: 8.5, less than the rollout.
        (Data((10,), (4,), (3,), ONE, ONE, lags=(2,)), 10.0),
        (Data((10,), (4,), (8,), ONE, ONE, lags=(2,)), 11.0),
        # Two on one node of each kind: both nodes are full at 20.
        (Data((10, 10), (10, 10), (0, 0), TWO, TWO, lags=(2, 2)), 20.0),
        # (2, 2) and sync 9 beside the same without: 13 / 2, or alone 13.
        (Data((2, 2), (2, 2), (9, 0), TWO, TWO, lags=(2, 1)), 6.5),
        (Data((2, 2), (2, 2), (9, 0), TWO, TWO), 13.0),
        # Two iterations per period: 2 x 17 / 2, and the rollouts 20.
        (Data((10,), (4,), (3,), ONE, ONE, [2], lags=(2,)), 20.0),
        (Data((4,), (4,), (9,), ONE, ONE, [3], lags=(2,)), 25.5),
    ],
)
def test_by_hand(data: Data, least: float) -> None:
    for route in (least_period, least_period_brute):
        period, starts = route(*data)
        assert period == pytest.approx(least, rel=1e-8)
        assert verify(period * (1 + 1e-9), starts, *data) == []


def test_both_routes_agree() -> None:
    """Groups of one and two jobs; three at one iteration each."""
    for case in mixed_groups(51, 60, 2) + mixed_groups(52, 14, 3):
        if sum(case.rates) <= 4:
            period, _ = least_period(*case.data())
            brute, _ = least_period_brute(*case.data())
            assert brute == pytest.approx(period, rel=1e-7), case


def test_the_verifier_sees_each_rule() -> None:
    """(10, 4) and sync 3, twice in 20: rollouts 0 and 10, trains 10 and 20."""
    data = Data((10,), (4,), (3,), ONE, ONE, [2], lags=(2,))
    assert verify(20.0, [[(0, 10), (10, 20)]], *data) == []
    assert "before its rollout ends" in verify(20.0, [[(0, 9), (10, 20)]], *data)[0]
    assert "before the sync ends" in verify(20.0, [[(0, 10), (10, 34)]], *data)[0]
    faults = verify(20.0, [[(0, 10), (-10, 20)]], *data)
    assert any("next phase starts" in fault for fault in faults)
