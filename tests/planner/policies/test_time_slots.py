"""Rounds of turns: by hand, and by their own definition on random jobs."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job_of, options_of, random_job
from instances.errors import InputError
from instances.jobs import Job
from planner.policies.gavel import Gavel
from planner.policies.time_slots import (
    TimeShareParams,
    TimeTable,
    conflicts_of,
    switch_seconds,
    time_table,
)

#: T = 300 s, and 5 s for both switches of a turn.
TWIN = {"rollout_s": 200.0, "train_s": 100.0, "rollout_switch_s": 1.0, "train_switch_s": 4.0}
ONE = ((0,), (0,))


def table_of_jobs(
    jobs: list[Job],
    rollout_pins: tuple[tuple[int, ...], ...],
    train_pins: tuple[tuple[int, ...], ...],
    **params: float,
) -> TimeTable:
    policy = Gavel(options_of(), TimeShareParams(**params))  # type: ignore[arg-type]
    turns = [policy.turn(job) for job in jobs]
    return time_table(turns, conflicts_of(rollout_pins, train_pins), policy.params)


def twins(slo: float) -> list[Job]:
    return [job_of(i, slo=slo, **TWIN) for i in "ab"]


def test_two_equal_jobs_take_turns() -> None:
    """Half of 360 s each is 0.6 iterations, so one: a round of 2 x (5 + 300) s.

    The rollout starts with its switch, the train after rollout and both of its own: at 0 and 201.
    """
    table = table_of_jobs(twins(2.1), ONE, ONE)
    assert table.shares.shares == pytest.approx([0.5, 0.5])
    assert (table.period_s, table.rates) == (610.0, (1, 1))
    assert table.starts_s == (((0.0, 201.0),), ((305.0, 506.0),))
    assert table.least == pytest.approx(2.1 * 300 / 610)
    assert table.keeps_slos


def test_rounds_grow_until_switches_fit_the_deadlines() -> None:
    """A round of k turns each is 2 (5 + 300 k) s, 600 + 10 / k an iteration; D = 603 asks k >= 4.

    Half of 360, 720, 1,440 and 2,880 s is 0.6, 1.2, 2.4 and 4.8 iterations: 1, 1, 2, then 5.
    """
    table = table_of_jobs(twins(2.01), ONE, ONE)
    assert (table.rates, table.period_s) == ((5, 5), 3010.0)
    assert table.keeps_slos
    # The second iteration of a turn starts where the first, switch included, ends.
    assert table.starts_s[0][:2] == ((0.0, 201.0), (305.0, 505.0))


def test_without_a_round_in_time_the_closest_is_returned() -> None:
    """At slo 2 the switches always exceed: least = 2 k 300 / (2 (5 + 300 k)), best at k = 24.

    Half of 14,400 s is 24 iterations.
    """
    table = table_of_jobs(twins(2.0), ONE, ONE)
    assert not table.keeps_slos
    assert table.rates == (24, 24)
    assert table.least == pytest.approx(7200 / 7205)


def test_unequal_needs_get_unequal_turns() -> None:
    """Slowdowns 1.5 and 3, T = 300 s: 2 / 3 and 1 / 3 of the time, so 2 iterations and 1.

    Of 360 s that is 0.8 and 0.4, one each, too few for D = 450; of 720 s 1.6 and 0.8.
    """
    jobs = [job_of("a", 200, 100, 1.5), job_of("b", 100, 200, 3.0)]
    table = table_of_jobs(jobs, ONE, ONE)
    assert (table.rates, table.period_s, table.least) == ((2, 1), 900.0, 1.0)


def test_narrow_jobs_run_side_by_side() -> None:
    """A wide job of 300 s in one slot, two narrow ones of 100 s in the other, no switches.

    Half of 360 s is 0.6 and 1.8 iterations, so 1 and 2 each: a round of 300 + 200 s.
    """
    wide = job_of("w", 200, 100, 9, rollout_nodes=2, train_nodes=2)
    narrow = [job_of(i, 60, 40, 9) for i in "xy"]
    pins = ((0, 1), (0,), (1,))
    table = table_of_jobs([wide, *narrow], pins, pins)
    assert (table.period_s, table.rates) == (500.0, (1, 2, 2))
    assert table.starts_s[1] == table.starts_s[2] == ((300.0, 360.0), (400.0, 460.0))


def test_who_meets_nobody_pays_no_switch_and_always_runs() -> None:
    """Three jobs, the third apart: it is in both slots of 305 s, one iteration of 300 s each."""
    jobs = [job_of(i, slo=9, **TWIN) for i in "abc"]
    pins = ((0,), (0,), (1,))
    table = table_of_jobs(jobs, pins, pins)
    assert table.rates == (1, 1, 2)
    assert table.starts_s[2] == ((0.0, 200.0), (305.0, 505.0))


def test_conflicts_are_common_nodes_of_either_pool() -> None:
    found = conflicts_of(((0,), (0, 1), (2,)), ((0,), (1,), (1,)))
    assert found.tolist() == [[False, True, False], [True, False, True], [False, True, False]]


def test_cold_switches_are_the_published_ratio() -> None:
    """135.8 / 1.9 and 116 / 5.9 times the warm seconds."""
    job = job_of("a", 200, 100, rollout_switch_s=1.9, train_switch_s=5.9)
    assert switch_seconds(job, "warm") == (1.9, 5.9)
    assert switch_seconds(job, "cold") == pytest.approx((135.8, 116.0))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"round_s": 0.0}, "0 < round_s <= max_round_s"),
        ({"round_s": 20.0, "max_round_s": 10.0}, "got 20 and 10"),
        ({"max_round_s": np.inf}, "both finite"),
        ({"round_s": np.nan}, "both finite"),
        ({"switch": "wram"}, "got 'wram'. Did you mean 'warm'"),
    ],
)
def test_refusals(params: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TimeShareParams(**params)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 5), round_s=st.sampled_from((1.0, 40.0)))
def test_turns_never_meet_and_are_whole(seed: int, n: int, round_s: float) -> None:
    """Told from the starts alone: who shares a node is never in two turns at once.

    An iteration holds all nodes of its job from its rollout's start (the switch's, where the
    train starts later than r after it) for T, and switches, if any.
    """
    rng = random.Random(seed)
    jobs = [random_job(rng, f"j{i}") for i in range(n)]
    pins = tuple(
        tuple(tuple(sorted(rng.sample(range(4), getattr(job, f"{pool}_nodes")))) for job in jobs)
        for pool in ("rollout", "train")
    )
    table = table_of_jobs(jobs, *pins, round_s=round_s, max_round_s=800.0)
    conflicts = conflicts_of(*pins)
    held = []
    for job, pairs in zip(jobs, table.starts_s, strict=True):
        mine = []
        for rollout, train in pairs:
            switched = train - rollout > job.rollout_s + 1e-9
            tail_s = job.train_s + job.sync_s + (job.train_switch_s if switched else 0.0)
            mine.append((rollout, train + tail_s))
        held.append(mine)
    everyone = [(a, b, j) for j, mine in enumerate(held) for a, b in mine]
    for i, (a, b, j) in enumerate(everyone):
        assert -1e-9 <= a < b <= table.period_s + 1e-6
        for c, d, k in everyone[i + 1 :]:
            if j == k or conflicts[j, k]:
                assert b <= c + 1e-6 or d <= a + 1e-6
    assert table.rates == tuple(len(pairs) for pairs in table.starts_s)
    least = min(
        k * job.deadline_s / table.period_s for k, job in zip(table.rates, jobs, strict=True)
    )
    assert table.least == pytest.approx(least)
