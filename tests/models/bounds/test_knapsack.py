"""Knapsacks of several resources against enumeration, and the compiled search against its twin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import Ticking
from instances.errors import InputError
from models.bounds import knapsack, knapsack_search
from models.bounds.knapsack import EPS, Knapsacks, Prices
from models.problem.compiled import plain
from models.problem.options import Deadline

#: Above round-off of a sum of a dozen values below 100, far below any difference of values.
NEAR = 1e-9


def best_by_enumeration(
    loads: npt.NDArray[np.float64],
    capacity: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    eligible: npt.NDArray[np.int64],
    most: int,
    forced: int,
) -> float:
    """Return the most value of a set by the definition alone."""
    own = [] if forced < 0 else [forced]
    best = float(values[own].sum())
    others = [j for j in eligible.tolist() if j != forced]
    for size in range(1, len(others) + 1):
        for chosen in itertools.combinations(others, size):
            jobs = [*own, *chosen]
            if len(jobs) <= most and (loads[jobs].sum(axis=0) <= capacity).all():
                best = max(best, float(values[jobs].sum()))
    return best


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Whole loads, so that full resources are common; values in eighths, so that ties are."""
    n = draw(st.integers(1, 9))
    resources = draw(st.integers(1, 4))
    count = draw(st.integers(1, 3))

    def numbers(low: int, high: int, *shape: int) -> npt.NDArray[np.int64]:
        size = int(np.prod(shape))
        return np.array(
            draw(st.lists(st.integers(low, high), min_size=size, max_size=size)), dtype=np.int64
        ).reshape(shape)

    return {
        "loads": numbers(0, 9, n, resources).astype(float),
        "capacity": numbers(0, 25, count, resources).astype(float),
        "values": numbers(0, 9, n) / 8,
        "eligible": [np.flatnonzero(numbers(0, 3, n)).astype(np.int64) for _ in range(count)],
        "most": numbers(1, n + 1, count),
        "forced": numbers(-1, n - 1, count),
        "floor": draw(st.integers(0, 16)) / 8,
        "budget": draw(st.sampled_from((0, 1, 3, 100_000))),
    }


def priced(problem: dict[str, Any], **more: Any) -> Prices:
    packs = Knapsacks(
        problem["loads"],
        problem["eligible"],
        problem["capacity"],
        most=problem["most"],
        forced=problem["forced"],
    )
    options = {"budget": problem["budget"], **more}
    return packs.price(problem["values"], problem["floor"], **options)


@given(problems())
@settings(max_examples=300, deadline=None)
def test_bound_and_sets_are_those_of_enumeration(problem: dict[str, Any]) -> None:
    prices = priced(problem)
    floor, values, loads = problem["floor"], problem["values"], problem["loads"]
    for p, eligible in enumerate(problem["eligible"]):
        forced, most = int(problem["forced"][p]), int(problem["most"][p])
        capacity = problem["capacity"][p]
        best = best_by_enumeration(loads, capacity, values, eligible, most, forced)
        assert prices.bound[p] >= best - NEAR
        found = np.flatnonzero(prices.problem == p)
        if problem["budget"] == 100_000:  # above 2^9 sets, so the search always ends
            assert prices.exact[p]
        if prices.exact[p]:
            assert prices.bound[p] <= max(best, floor) + 2 * EPS
            assert bool(len(found)) == (best > floor + NEAR)
            if len(found):
                assert prices.value[found[0]] == pytest.approx(best, abs=NEAR)
        for row in found:
            jobs = prices.sets[row][prices.sets[row] >= 0]
            assert len(set(jobs.tolist())) == len(jobs)
            assert values[jobs].sum() == pytest.approx(prices.value[row], abs=NEAR)
            assert prices.value[row] > floor
            assert forced < 0 or jobs[0] == forced
            if len(jobs) > 1 or forced < 0:
                assert (loads[jobs].sum(axis=0) <= capacity).all()
                assert len(jobs) <= most
        assert (np.diff(prices.value[found]) <= 0).all()


@given(problems())
@settings(max_examples=25, deadline=None)
def test_the_plain_function_is_the_twin(problem: dict[str, Any]) -> None:
    """Every function of the kernel as plain Python gives the same numbers, bit by bit."""
    names = [
        name for name in vars(knapsack_search) if hasattr(vars(knapsack_search)[name], "py_func")
    ]
    fast = priced(problem)
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(knapsack_search, name, plain(getattr(knapsack_search, name)))
        patch.setattr(knapsack, "price_range", knapsack_search.price_range)
        slow = priced(problem)
    for field in ("bound", "exact", "problem", "value", "sets"):
        assert np.array_equal(getattr(fast, field), getattr(slow, field)), field


def many(n: int = 60, seed: int = 3) -> tuple[Knapsacks, npt.NDArray[np.float64]]:
    """One problem per forced item of items with real loads, values near the first load."""
    rng = np.random.default_rng(seed)
    loads = rng.uniform(0.05, 0.5, (n, 2))
    packs = Knapsacks(
        loads,
        [np.arange(i + 1, n, dtype=np.int64) for i in range(n)] * 3,
        np.ones((3 * n, 2)),
        forced=np.tile(np.arange(n, dtype=np.int64), 3),
    )
    return packs, loads[:, 0] * rng.uniform(0.9, 1.1, n)


def test_two_threads_give_the_same_answer() -> None:
    packs, values = many()
    one, two = (packs.price(values, 0.9, threads=threads) for threads in (1, 2))
    assert len(one.problem) > 100
    for field in ("bound", "exact", "problem", "value", "sets"):
        assert np.array_equal(getattr(one, field), getattr(two, field)), field


def test_more_nodes_never_loosen_a_bound_and_end_exact() -> None:
    packs, values = many()
    bounds = [packs.price(values, 0.9, budget=budget) for budget in (0, 10, 100, 10**6)]
    for looser, tighter in itertools.pairwise(bounds):
        assert (tighter.bound <= looser.bound + 2 * EPS).all()
    assert not bounds[0].exact.all()
    assert bounds[-1].exact.all()


def test_at_a_past_deadline_nothing_is_known() -> None:
    packs, values = many()
    prices = packs.price(values, 0.9, deadline=Deadline(Ticking(), 0.0))
    assert np.isinf(prices.bound).all()
    assert not prices.exact.any()
    assert not len(prices.problem)


def test_values_of_each_problem_and_floors_of_each() -> None:
    """The same two items, worth 1 + 2 in the first problem and 5 + 1 in the second; capacity 3
    takes one of the loads 2 and 3, so 2 and 5; only the second is above its floor."""
    items = np.array([0, 1], dtype=np.int64)
    packs = Knapsacks(np.array([[2.0], [3.0]]), [items, items], np.full((2, 1), 3.0))
    prices = packs.price(np.array([1.0, 2.0, 5.0, 1.0]), np.array([2.0, 4.0]))
    assert packs.start.tolist() == [0, 2, 4]
    assert packs.item.tolist() == [0, 1, 0, 1]
    assert prices.bound == pytest.approx([2.0, 5.0])
    assert (prices.problem.tolist(), prices.sets[:, 0].tolist()) == ([1], [0])


def test_a_forced_item_too_large_to_share_is_a_set_of_its_own() -> None:
    packs = Knapsacks(
        np.array([[5.0], [1.0]]),
        [np.array([1], dtype=np.int64)],
        np.array([[3.0]]),
        forced=np.array([0], dtype=np.int64),
    )
    prices = packs.price(np.array([1.5, 9.0]), 1.0)
    assert prices.bound.tolist() == [1.5]
    assert prices.sets.tolist() == [[0] + [-1] * (prices.sets.shape[1] - 1)]


@pytest.mark.parametrize(
    ("loads", "capacity", "match"),
    [
        ([[1.0], [-1.0]], [[1.0]], "loads >= 0"),
        ([[1.0], [np.inf]], [[1.0]], "loads >= 0"),
        ([[1.0], [1.0]], [[1.0, 2.0]], r"capacities of shape \(1, 1\), got \(1, 2\)"),
    ],
)
def test_wrong_input_is_refused(loads: Any, capacity: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Knapsacks(np.array(loads), [np.arange(2)], np.array(capacity))


def test_many_items_of_hardly_any_value_count() -> None:
    # 200 items of 9e-11, all of which fit: the set of all is worth 1.8e-8
    packs = Knapsacks(np.full((200, 1), 0.001), [np.arange(200)], np.ones((1, 1)))
    prices = packs.price(np.full(200, 9e-11), 0.0)
    assert prices.bound[0] >= 200 * 9e-11 * (1 - 1e-12)
