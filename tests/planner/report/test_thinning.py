"""Lines thinned to what can be seen lose no peak, no dip and no end of a stretch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.thinning import places, thin_steps, values_at

VALUES = st.lists(
    st.one_of(st.integers(-9, 9).map(float), st.just(float("nan"))), min_size=1, max_size=120
)


def _line(values: list[float], gaps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    x = np.cumsum([gaps[i % len(gaps)] for i in range(len(values))]).astype(float)
    return x, np.array(values)


@given(VALUES, st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(5, 60))
def test_thinning_keeps_extremes_and_the_end_of_each_segment(
    values: list[float], gaps: list[int], most: int
) -> None:
    x, y = _line(values, gaps)
    some_x, some_y = thin_steps(x, y, most)
    assert len(some_x) <= max(most, 1)
    at = np.searchsorted(x, some_x)
    np.testing.assert_array_equal(x[at], some_x)  # steps of the line, none made up
    np.testing.assert_array_equal(y[at], some_y)
    assert some_x[0] == x[0]
    assert some_x[-1] == x[-1]
    assert np.isnan(some_y).any() == np.isnan(y).any()
    known = y[~np.isnan(y)]
    if len(known):
        assert np.nanmin(some_y) == known.min()
        assert np.nanmax(some_y) == known.max()
    # each segment ends as it did, so the line is right wherever one begins
    segments = (most - 1) // 4
    if len(x) > most:
        edges = np.linspace(x[0], x[-1], segments + 1)[1:-1]
        for part in np.split(np.arange(len(x)), np.searchsorted(x, edges)):
            if len(part):
                assert x[part[-1]] in some_x


def test_a_short_line_stays_as_it_is() -> None:
    x, y = thin_steps([0.0, 1.0, 2.0], [5, 6, 5], most=5)
    assert x.tolist() == [0, 1, 2]
    assert y.tolist() == [5, 6, 5]


def test_one_spike_among_thousands_of_steps_is_kept() -> None:
    y = np.zeros(5000)
    y[1234] = 77
    x, thinned = thin_steps(np.arange(5000), y, most=50)
    assert thinned.max() == 77
    assert x[int(np.argmax(thinned))] == 1234


def test_values_hold_to_the_next_step_and_are_unknown_outside() -> None:
    x, y = np.array([1.0, 3.0, 4.0]), np.array([10.0, np.nan, 0.0])
    found = values_at(x, y, np.array([0.5, 1.0, 2.9, 3.0, 4.0, 4.5]))
    assert found == (None, 10.0, 10.0, None, 0.0, None)


@pytest.mark.parametrize(("most", "expected"), [(9, 5), (3, 3)])
def test_places_are_all_of_several_lines_or_spread_evenly(most: int, expected: int) -> None:
    found = places([np.array([0.0, 1.0, 4.0]), np.array([0.0, 2.0, 3.0])], most)
    assert len(found) == expected
    assert (found[0], found[-1]) == (0, 4)
