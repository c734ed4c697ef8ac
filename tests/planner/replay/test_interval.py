"""Means with Student's t intervals, by hand and by table."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InputError
from planner.replay.interval import Interval, interval

#: 97.5 % points of Student's t by degrees of freedom, from a printed table.
T_975 = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 29: 2.045}


def test_one_to_five_by_hand() -> None:
    """Mean 3, s = sqrt(10 / 4) = 1.5811, half width 2.776 x 1.5811 / sqrt(5) = 1.963."""
    got = interval([1, 2, 3, 4, 5])
    assert (got.mean, got.n) == (3.0, 5)
    assert got.low == pytest.approx(3 - 1.963, abs=5e-4)
    assert got.high == pytest.approx(3 + 1.963, abs=5e-4)


def test_two_values_are_very_wide() -> None:
    """Mean 1, s = sqrt(2), half width 12.706 x sqrt(2) / sqrt(2)."""
    got = interval([0.0, 2.0])
    assert got.low == pytest.approx(1 - 12.706, abs=5e-4)
    assert got.high == pytest.approx(1 + 12.706, abs=5e-4)


@pytest.mark.parametrize("df", T_975)
def test_the_t_points_are_those_of_the_table(df: int) -> None:
    values = [random.Random(df).gauss(10, 3) for _ in range(df + 1)]
    got = interval(values)
    half = T_975[df] * statistics.stdev(values) / math.sqrt(df + 1)
    assert got.mean == pytest.approx(statistics.fmean(values))
    assert got.low == pytest.approx(got.mean - half, rel=1e-3)
    assert got.high == pytest.approx(got.mean + half, rel=1e-3)


def test_one_value_has_no_interval() -> None:
    assert interval([2.5]) == Interval(mean=2.5, low=None, high=None, n=1)


@pytest.mark.parametrize("values", [[], ()])
def test_no_value_is_refused(values: list[float]) -> None:
    with pytest.raises(InputError, match="at least one value, got none"):
        interval(values)


def test_results_are_plain_frozen_numbers() -> None:
    got = interval([1, 2])
    assert all(type(x) is float for x in (got.mean, got.low, got.high))
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.mean = 0.0  # type: ignore[misc]


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.5, 2.0, 8.0]),
)
def test_moves_and_scales_with_the_values(values: list[float], by: float, scale: float) -> None:
    got, moved = interval(values), interval([scale * v + by for v in values])
    assert moved.mean == pytest.approx(scale * got.mean + by, abs=1e-6)
    for ours, theirs in ((got.low, moved.low), (got.high, moved.high)):
        assert ours is not None
        assert theirs == pytest.approx(scale * ours + by, abs=1e-5)
    assert got.low is not None
    assert got.high is not None
    assert got.low <= got.mean <= got.high
    assert interval(values[::-1]).low == pytest.approx(got.low, abs=1e-6)


def test_covers_the_truth_in_about_95_of_100_samples() -> None:
    """4,000 samples of 5 from a normal: 95 % within 5 standard deviations (0.34 % each)."""
    rng, samples = random.Random(0), 4000
    hits = 0
    for _ in range(samples):
        hits += interval([rng.gauss(7, 2) for _ in range(5)]).meets(7, 7)
    assert abs(hits / samples - 0.95) < 5 * math.sqrt(0.95 * 0.05 / samples)


# --- meets --------------------------------------------------------------------------------------

BOTH_ENDS = Interval(mean=5.0, low=4.0, high=6.0, n=3)
MEAN_ONLY = Interval(mean=5.0, low=None, high=None, n=1)


@pytest.mark.parametrize(
    ("low", "high", "wide", "alone"),
    [
        (1.0, 3.9, False, False),  # below
        (1.0, 4.0, True, False),  # touches the end
        (4.5, 4.6, True, False),  # inside, beside the mean
        (5.0, 5.0, True, True),  # one number, the mean itself
        (1.0, 9.0, True, True),  # around it
        (6.0, 7.0, True, False),
        (6.1, 7.0, False, False),  # above
    ],
)
def test_meets_when_the_two_ranges_touch(low: float, high: float, wide: bool, alone: bool) -> None:
    assert BOTH_ENDS.meets(low, high) is wide
    assert MEAN_ONLY.meets(low, high) is alone


@pytest.mark.parametrize("value", [12_100.0, 100.0, 0.25])
def test_equal_values_meet_themselves(value: float) -> None:
    for n in range(1, 60):
        got = interval([value] * n)
        assert got.meets(value, value), n
        assert got.mean == value


@pytest.mark.parametrize("value", [27.9, 14.4])
def test_equal_values_meet_themselves_whatever_their_digits(value: float) -> None:
    for n in range(1, 60):
        assert interval([value] * n).meets(value, value), n
