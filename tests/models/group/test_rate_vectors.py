"""The few rate vectors worth trying, against all of {1, .., K}^n."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.group.rate_vectors import RateVector, rate_vectors

REL = 1e-9
#: Deadline, solo seconds: few values, so that ties and whole multiples are common.
JOB = st.tuples(st.sampled_from((1.0, 1.5, 2.0, 3.0, 4.5, 6.0)), st.sampled_from((1.0, 0.75, 0.4)))


def brute(deadline_s: Sequence[float], solo_s: Sequence[float], most: int) -> list[RateVector]:
    """Return every rate vector whose chains fit into its longest period."""
    out = []
    for rates in product(range(1, most + 1), repeat=len(deadline_s)):
        period = min(k * d for k, d in zip(rates, deadline_s, strict=True))
        if all(k * t <= period * (1 + REL) for k, t in zip(rates, solo_s, strict=True)):
            out.append(RateVector(period, rates))
    return out


def covers(better: RateVector, other: RateVector) -> bool:
    """Whether any schedule of ``other`` is one of ``better``, once iterations are left out."""
    return better.period_s >= other.period_s * (1 - REL) and all(
        a <= b for a, b in zip(better.rates, other.rates, strict=True)
    )


# --- by hand ------------------------------------------------------------------------------------


def test_one_iteration_each_is_the_only_vector_without_rates() -> None:
    """C = min D, and every T within it."""
    assert rate_vectors((4.0, 3.0), (3.0, 2.0), 1) == [RateVector(3.0, (1, 1))]
    assert rate_vectors((4.0, 3.0), (3.5, 2.0), 1) == []


def test_short_beside_long() -> None:
    """D = 105 and 315, T = 100 and 300: 300 k_1 <= 105 k_0 first at (3, 1), C = 315; then not
    before (6, 2)."""
    for most, expected in ((2, []), (3, [(3, 1)]), (5, [(3, 1)]), (6, [(3, 1), (6, 2)])):
        found = rate_vectors((105.0, 315.0), (100.0, 300.0), most)
        assert [vector.rates for vector in found] == expected
        assert [vector.period_s for vector in found] == [315.0 * k for _, k in expected]


def test_multiples_are_kept() -> None:
    """C = 2, 4, 6 and k_j = ceil(C / D_j). (2, 2) stays beside (1, 1): it can have a schedule where
    (1, 1) has none."""
    found = rate_vectors((2.0, 4.0), (2.0, 2.0), 3)
    assert found == [(2.0, (1, 1)), (4.0, (2, 1)), (6.0, (3, 2))]
    assert rate_vectors((2.0, 2.0), (1.0, 1.0), 3) == [
        (2.0, (1, 1)), (4.0, (2, 2)), (6.0, (3, 3))
    ]  # fmt: skip


def test_a_multiple_by_round_off_takes_no_iteration_more() -> None:
    """3 x 0.1 is above 0.3 by 4e-17: one iteration of the second job, not two."""
    assert 3 * 0.1 > 0.3
    assert (3, 1) in [vector.rates for vector in rate_vectors((0.1, 0.3), (0.1, 0.3), 3)]


def test_a_chain_as_long_as_the_period_fits() -> None:
    assert rate_vectors((3.0,), (3.0,), 1) == [(3.0, (1,))]


# --- against all rate vectors -------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(JOB, min_size=1, max_size=4), st.integers(1, 4))
def test_every_vector_has_a_candidate_at_least_as_good(
    jobs: list[tuple[float, float]], most: int
) -> None:
    deadline_s = [deadline for deadline, _ in jobs]
    solo_s = [share * deadline for deadline, share in jobs]
    found = rate_vectors(deadline_s, solo_s, most)
    every = brute(deadline_s, solo_s, most)
    assert bool(found) == bool(every)
    for other in every:
        assert any(covers(vector, other) for vector in found), other


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(JOB, min_size=1, max_size=5), st.integers(1, 5))
def test_candidates_are_vectors_few_distinct_and_in_order(
    jobs: list[tuple[float, float]], most: int
) -> None:
    deadline_s = [deadline for deadline, _ in jobs]
    solo_s = [share * deadline for deadline, share in jobs]
    found = rate_vectors(deadline_s, solo_s, most)
    assert len(found) <= most * len(jobs)
    assert len({vector.rates for vector in found}) == len(found)
    assert [vector.period_s for vector in found] == sorted(vector.period_s for vector in found)
    for period, rates in found:
        assert all(1 <= k <= most for k in rates)
        assert period == min(k * d for k, d in zip(rates, deadline_s, strict=True))
        for k, deadline, solo in zip(rates, deadline_s, solo_s, strict=True):
            assert k == math.ceil(period / deadline - REL)  # no iteration to spare
            assert k * solo <= period * (1 + REL)


def test_a_higher_max_rate_only_adds_candidates() -> None:
    rng = random.Random(3)
    added = 0
    for _ in range(100):
        deadline_s = [rng.choice((1.0, 1.25, 2.0, 3.0, 5.0)) for _ in range(3)]
        solo_s = [rng.choice((0.5, 0.8, 1.0)) * deadline for deadline in deadline_s]
        found = [rate_vectors(deadline_s, solo_s, most) for most in range(1, 6)]
        for fewer, more in pairwise(found):
            assert set(fewer) <= set(more)
        added += len(found[0]) < len(found[-1])
    assert added >= 50


@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_order_of_the_jobs_changes_nothing(most: int) -> None:
    rng = random.Random(4)
    for _ in range(50):
        jobs = [
            (d, d * rng.choice((0.3, 0.6, 1.0))) for d in rng.choices((1.0, 1.5, 2.0, 4.0), k=4)
        ]
        order = rng.sample(range(4), 4)
        there = rate_vectors(*zip(*jobs, strict=True), most)
        back = rate_vectors(*zip(*[jobs[i] for i in order], strict=True), most)
        assert [(c, tuple(k[i] for i in order)) for c, k in there] == back
