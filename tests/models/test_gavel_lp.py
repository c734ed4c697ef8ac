"""Shares of time: closed forms by hand, the whole program by scipy, brute force over a grid."""

from __future__ import annotations

import itertools
import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from instances.errors import InputError
from models.gavel_lp import MOST_JOBS, combinations_of, time_shares

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


def conflicts(n: int, pairs: list[tuple[int, int]]) -> BoolArray:
    out = np.zeros((n, n), dtype=np.bool_)
    for i, j in pairs:
        out[i, j] = out[j, i] = True
    return out


def clique(n: int) -> BoolArray:
    return conflicts(n, list(itertools.combinations(range(n), 2)))


def speeds_of(n: int, combinations: tuple[tuple[int, ...], ...]) -> FloatArray:
    out = np.zeros((n, len(combinations)))
    for c, members in enumerate(combinations):
        out[list(members), c] = 1.0
    return out


def random_conflicts(seed: int, n: int, share: float) -> BoolArray:
    rng = random.Random(seed)
    return conflicts(n, [p for p in itertools.combinations(range(n), 2) if rng.random() < share])


# --- combinations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "pairs", "expected"),
    [
        (1, [], [(0,)]),
        (3, [], [(0, 1, 2)]),
        (2, [(0, 1)], [(0,), (1,)]),
        (3, [(0, 1), (0, 2)], [(0,), (1, 2)]),  # a wide job over two narrow ones
        (4, [(0, 1), (1, 2), (2, 3)], [(0, 2), (0, 3), (1, 3)]),
    ],
)
def test_combinations_by_hand(
    n: int, pairs: list[tuple[int, int]], expected: list[tuple[int, ...]]
) -> None:
    assert list(combinations_of(conflicts(n, pairs))) == expected


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), share=st.sampled_from((0.2, 0.5, 0.8)))
def test_combinations_are_all_maximal_sets_without_a_conflict(
    seed: int, n: int, share: float
) -> None:
    """By listing every subset: free of conflicts, and nobody can be added."""
    clash = random_conflicts(seed, n, share)

    def free(members: tuple[int, ...]) -> bool:
        return not any(clash[i, j] for i, j in itertools.combinations(members, 2))

    every = [
        members
        for size in range(1, n + 1)
        for members in itertools.combinations(range(n), size)
        if free(members)
    ]
    sets = {frozenset(members) for members in every}
    expected = [m for m in every if not any(set(m) < other for other in sets)]
    assert list(combinations_of(clash)) == sorted(expected)


def test_combinations_refuse_what_is_no_relation_or_too_large() -> None:
    lopsided = np.zeros((2, 2), dtype=np.bool_)
    lopsided[0, 1] = True
    with pytest.raises(InputError, match="symmetric square"):
        combinations_of(lopsided)
    with pytest.raises(InputError, match=f"at most {MOST_JOBS} jobs"):
        combinations_of(clique(MOST_JOBS + 1))


# --- closed forms ---------------------------------------------------------------------------------


def test_two_equal_jobs_share_evenly() -> None:
    """Half each; a tolerated slowdown of 2 is then just kept."""
    shares = time_shares(speeds_of(2, combinations_of(clique(2))), [2.0, 2.0])
    assert shares.shares == pytest.approx([0.5, 0.5])
    assert shares.speeds == pytest.approx([0.5, 0.5])
    assert shares.least == pytest.approx(1.0)


@pytest.mark.parametrize("weight", [(1.5, 3.0), (1.0, 4.0, 4.0), (2.0, 3.0, 6.0, 1.0)])
def test_one_at_a_time_is_proportional_to_what_jobs_need(weight: tuple[float, ...]) -> None:
    """``y_j = (1 / w_j) / sum 1 / w_i``, so that all ``w_j y_j`` are equal: z = 1 / sum 1 / w."""
    n = len(weight)
    total = sum(1 / w for w in weight)
    shares = time_shares(speeds_of(n, combinations_of(clique(n))), weight)
    assert shares.shares == pytest.approx([1 / w / total for w in weight])
    assert shares.least == pytest.approx(1 / total)


def test_jobs_that_fit_side_by_side_share_a_slot() -> None:
    """One over two: half the time each, where three slots would give a third."""
    wide = conflicts(3, [(0, 1), (0, 2)])
    shares = time_shares(speeds_of(3, combinations_of(wide)), [1.0] * 3)
    assert shares.speeds == pytest.approx([0.5] * 3)


def test_odd_cycle() -> None:
    """Five jobs in a ring of conflicts: at most two at once, so 2 / 5 each, reached by rotation."""
    ring = conflicts(5, [(i, (i + 1) % 5) for i in range(5)])
    shares = time_shares(speeds_of(5, combinations_of(ring)), [1.0] * 5)
    assert shares.speeds == pytest.approx([0.4] * 5)


def test_the_faster_combination_gets_the_time() -> None:
    """Speeds 1 and 2 for the only job: all time at 2."""
    shares = time_shares(np.array([[1.0, 2.0]]), [1.5])
    assert shares.shares == pytest.approx([0.0, 1.0])
    assert shares.least == pytest.approx(3.0)


def test_no_time_is_left_that_somebody_could_use() -> None:
    """Job 0 runs at 1 in both, job 1 (weight 10) at 0.5 in the second only: z = 1 anyway.

    With 1 / 5 of the time in the second the least is already 1; all of it there gives job 1 most.
    """
    shares = time_shares(np.array([[1.0, 1.0], [0.0, 0.5]]), [1.0, 10.0])
    assert shares.least == pytest.approx(1.0)
    assert shares.shares == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("speed", "weight", "words"),
    [
        ([[1.0]], [1.0, 1.0], "as many weights"),
        ([[0.0], [1.0]], [1.0, 1.0], "one above 0 for every job"),
        ([[-1.0, 1.0]], [1.0], "finite speeds >= 0"),
        ([[np.inf]], [1.0], "finite speeds >= 0"),
        ([[1.0]], [0.0], "finite weights > 0"),
        ([[1.0]], [np.nan], "finite weights > 0"),
    ],
)
def test_refusals(speed: list[list[float]], weight: list[float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        time_shares(np.array(speed), weight)


# --- against others -------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), share=st.sampled_from((0.3, 0.6, 1.0)))
def test_optimum_over_all_subsets_by_scipy(seed: int, n: int, share: float) -> None:
    """The same program over every subset without a conflict, maximal or not, by another solver."""
    rng = random.Random(seed)
    clash = random_conflicts(seed, n, share)
    weight = [rng.choice((1.0, 1.3, 2.0, 5.0)) for _ in range(n)]
    factor = [rng.choice((1.0, 1.0, 0.8)) for _ in range(n)]
    subsets = [
        members
        for size in range(1, n + 1)
        for members in itertools.combinations(range(n), size)
        if not any(clash[i, j] for i, j in itertools.combinations(members, 2))
    ]
    fair = np.zeros((n, len(subsets) + 1))
    fair[:, -1] = 1.0
    for c, members in enumerate(subsets):
        for j in members:
            fair[j, c] = -weight[j] * factor[j]
    time = np.append(np.ones(len(subsets)), 0.0)[None, :]
    cost = np.append(np.zeros(len(subsets)), -1.0)
    oracle = linprog(
        cost, A_ub=np.vstack((fair, time)), b_ub=np.append(np.zeros(n), 1.0), method="highs"
    )
    speed = speeds_of(n, combinations_of(clash)) * np.array(factor)[:, None]
    ours = time_shares(speed, weight)
    assert ours.least == pytest.approx(-oracle.fun, rel=1e-7)
    assert ours.shares.sum() <= 1 + 1e-12
    assert ours.speeds == pytest.approx(speed @ ours.shares)


@pytest.mark.parametrize("seed", range(12))
def test_optimum_by_brute_force_over_a_grid(seed: int) -> None:
    """Every split of the time into 24ths over three combinations: none is better.

    The best of the grid is no more than ``max w e / 12`` worse: the optimum moved to grid points
    changes the shares by less than 2 / 24 in all.
    """
    rng = random.Random(seed)
    speed = np.array([[rng.choice((0.0, 0.5, 1.0)) for _ in range(3)] for _ in range(3)])
    speed[range(3), range(3)] = 1.0
    weight = np.array([rng.choice((1.0, 1.5, 3.0)) for _ in range(3)])
    grid = [(i / 24, j / 24, (24 - i - j) / 24) for i in range(25) for j in range(25 - i)]
    best = max(float((weight * (speed @ np.array(y))).min()) for y in grid)
    ours = time_shares(speed, weight).least
    assert best <= ours + 1e-9
    assert ours <= best + float((weight[:, None] * speed).max()) / 12 + 1e-9


def test_same_input_same_shares() -> None:
    ring = conflicts(7, [(i, (i + 2) % 7) for i in range(7)])
    speed = speeds_of(7, combinations_of(ring))
    first, second = (time_shares(speed, [1.0, 2.0] * 3 + [1.5]) for _ in range(2))
    assert first.shares.tobytes() == second.shares.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        first.shares[0] = 1.0
