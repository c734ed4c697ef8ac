"""Mean residual life: by hand, against an independent sum, and of memoryless stays."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from planner.policies.residual_life import FIRST_STAY_H, ResidualLife


def seen(*stays_h: float) -> ResidualLife:
    life = ResidualLife()
    for stay_h in stays_h:
        life.saw(stay_h)
    return life


def test_by_hand() -> None:
    """Stays 2, 6 and the first guess 24; jobs present at ages 1 and 4.

    At 2 h four are at risk (2, 4+, 6, 24): S = 3/4. At 6 h two (6, 24): S = 3/8. At 24 h one:
    S = 0. Area beyond 6: 18 x 3/8 = 6.75. m(1) = 1 + 4 x 3/4 + 6.75; m(4) = (2 x 3/4 + 6.75) x 4/3.
    """
    assert FIRST_STAY_H == 24
    assert seen(2, 6).means_h([1, 4]).tolist() == pytest.approx([10.75, 11.0])


def test_the_tail_beyond_the_longest_is_exponential() -> None:
    """One stay of 24 h, jobs of ages 0 and 30: time on test 54 h over one departure.

    Two are at risk at 24 h: S = 1/2 from there. m(30) = 54. m(0) = 24 + 6/2 + 54/2.
    """
    assert seen().means_h([0, 30]).tolist() == pytest.approx([54.0, 54.0])


def test_before_anything_was_seen_a_stay_takes_a_day() -> None:
    assert seen().means_h([0.0]).tolist() == pytest.approx([24.0])
    assert seen().means_h([10.0]).tolist() == pytest.approx([14.0])
    # at one moment departures come first: of two at risk one leaves, (24 + 24) / 1 for the other
    assert seen().means_h([24.0]).tolist() == pytest.approx([48.0])


def test_beyond_a_last_departure_the_tail_holds_too() -> None:
    """Ages above every stay are observations themselves, so S never reaches 0 below them."""
    life = seen(1.0)
    # stays 1 and 24 of three and two at risk: S = 1/3; tail (1 + 24 + 40) / 2 = 32.5
    assert life.means_h([40.0]).tolist() == pytest.approx([32.5])


def test_nobody_present() -> None:
    assert seen(3.0).means_h([]).shape == (0,)


def _means(stays: Sequence[int], ages: Sequence[int]) -> list[float]:
    """Kaplan-Meier and its integral in so many words, on a grid of halves of whole hours."""
    times = sorted({*stays, *ages})
    last = times[-1]

    def survival(at: float) -> float:
        level = 1.0
        for time in times:
            if time <= at:
                risk = sum(x >= time for x in stays) + sum(x >= time for x in ages)
                level *= 1 - stays.count(time) / risk
        return level

    tail = (sum(stays) + sum(ages)) / len(stays)
    out = []
    for age in ages:
        if survival(age) == 0:
            out.append(tail)
            continue
        area = sum(survival(half / 2 + 0.25) / 2 for half in range(2 * age, 2 * last))
        out.append((area + survival(last) * tail) / survival(age))
    return out


@pytest.mark.parametrize("seed", range(12))
def test_as_an_independent_sum_has_it(seed: int) -> None:
    """Few whole hours, so that stays and ages tie, among themselves and with each other."""
    rng = random.Random(seed)
    stays = [rng.randint(0, 30) for _ in range(rng.randint(0, 8))]
    ages = [rng.randint(0, 40) for _ in range(rng.randint(1, 8))]
    found = seen(*stays).means_h(ages).tolist()
    assert found == pytest.approx(_means([24, *stays], ages))


@pytest.mark.parametrize("mean_h", [12.0, 30.0])
def test_memoryless_stays_last_as_long_at_every_age(mean_h: float) -> None:
    """Exponential stays, a third of them censored at random ages: m(a) is the mean for all a.

    Some 2,700 departures: the standard error of a mean of them is 2 %, at age 1.5 x the mean,
    where a fifth is left, 4 %. (A mean far below the first guess of 24 h would show that guess.)
    """
    rng = np.random.default_rng(7)
    stays = rng.exponential(mean_h, 4000)
    cut = rng.exponential(2 * mean_h, 4000)
    life = seen(*stays[stays <= cut].tolist())
    ages = np.concatenate(([0.0, 0.5 * mean_h, mean_h, 1.5 * mean_h], cut[stays > cut]))
    assert life.means_h(ages.tolist())[:4] == pytest.approx([mean_h] * 4, rel=0.12)


def test_what_was_seen_later_changes_nothing_before() -> None:
    life = seen(2.0, 6.0)
    before = life.means_h([1.0, 4.0]).tolist()
    life.saw(100.0)
    assert life.means_h([1.0, 4.0]).tolist() > before
