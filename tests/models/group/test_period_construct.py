"""Construction of a group's schedule, insertion into it, and round-off, against the oracle."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.group.period import GroupShape, Schedule, construct, insert, tightened
from oracles.least_period import Data, verify
from oracles.least_period import lower_bound as oracle_lower_bound
from period_cases import (
    EXACT,
    EXACT_AND_ONE,
    KINDS,
    POSITIVE,
    REL,
    SOLVED,
    Case,
    case_of,
    cases,
    solved_cases,
)

# --- construction --------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_constructed_schedules_are_valid_and_never_below_the_least_period(name: str) -> None:
    for case, least, _ in solved_cases()[name]:
        shape = case.shape()
        for orders, refine in ((5, 3), (2, 0)):  # the defaults, and what the placer asks for
            schedule = construct(shape, orders=orders, refine=refine)
            assert schedule is not None, case  # without a limit something is always found
            case.assert_valid(schedule)
            assert schedule.period_s >= least * (1 - REL), case
            bound = oracle_lower_bound(*case.data())
            assert schedule.bound_s == pytest.approx(bound, rel=1e-12)
            assert schedule.at_bound is (schedule.period_s <= bound * (1 + 1e-9)), case
            assert schedule == construct(shape, orders=orders, refine=refine)  # no chance in it


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("factor", [0.9, 1 - 1e-5, 1 + 1e-7, 1.02, 1.2, 3.0])
def test_a_limit_is_kept(name: str, factor: float) -> None:
    """Below the least period nothing may be found; above it what is found keeps the limit."""
    for case, least, _ in solved_cases()[name]:
        limit = factor * least
        schedule = construct(case.shape(), limit_s=limit)
        if factor < 1:
            assert schedule is None, case
        elif schedule is not None:
            assert schedule.period_s <= limit * (1 + 1e-9), case
            case.assert_valid(schedule, limit)


@pytest.mark.parametrize("name", KINDS)
def test_how_often_the_construction_is_optimal(
    name: str, record_property: pytest.RecordProperty
) -> None:
    """Shares of 60 groups: period optimal without a limit; found when the limit is the least.

    Floor for single-node jobs with k = 1: 95 % of both. Measured, here and on thousands of
    groups (tests/benchmarks/bench_period.py): 99.8 to 100 %. Others are only reported: gangs
    97 to 100 %, rates 100 %. Where nothing is found although LB is within the limit,
    that is wrong only if the oracle's period is within it too: ``missed`` counts these of 180
    limits per kind (0 for single nodes and 1 to 5 for gangs; with rates 0).
    """
    solved = solved_cases()[name]
    optimal = found = rightly = missed = 0
    for case, least, _ in solved:
        schedule = construct(case.shape())
        assert schedule is not None
        optimal += schedule.period_s <= least * (1 + REL)
        found += construct(case.shape(), limit_s=least * (1 + 1e-7)) is not None
        for factor in (1.0, 1.05, 1.2):
            limit = factor * schedule.bound_s
            if construct(case.shape(), limit_s=limit) is None:
                exists = least <= limit * (1 + REL)
                missed, rightly = missed + exists, rightly + (not exists)
    record_property("optimal", optimal / len(solved))
    record_property("found", found / len(solved))
    print(f"{name}: {optimal=} {found=} {missed=} {rightly=} of {len(solved)}")
    if KINDS[name].single:
        assert optimal >= 0.95 * len(solved)
        assert found >= 0.95 * len(solved)
        assert missed <= 0.05 * 3 * len(solved)
    if name == "open-shop":
        assert optimal == found == len(solved)
        assert missed == 0


def test_a_larger_limit_rarely_turns_success_into_failure() -> None:
    """Starts stretch to any larger period, the insertion does not: counted, not forbidden.

    Measured: none in 1,673 here; on 60,000 other groups 1 with k = 1.
    """
    failures = tries = 0
    for solved in solved_cases().values():
        for case, least, _ in solved:
            fits = [
                construct(case.shape(), limit_s=factor * least) is not None
                for factor in (1.0001, 1.02, 1.1, 1.3, 2.0)
            ]
            tries += sum(fits[:-1])
            failures += sum(a and not b for a, b in pairwise(fits))
    print(f"{failures} failures in {tries} tries")
    assert failures <= 0.01 * tries


@settings(max_examples=400, deadline=None)
@given(cases(most=7))
@example(EXACT)
def test_without_a_limit_a_schedule_is_always_found(case: Case) -> None:
    """One iteration after the other is a schedule; none that is longer is ever returned."""
    schedule = construct(case.shape())
    assert schedule is not None
    serial = sum(
        k * (p + q + s)
        for k, p, q, s in zip(
            case.rates,
            case.shape().rollout_s,
            case.shape().train_s,
            case.shape().sync_s,
            strict=True,
        )
    )
    assert schedule.period_s <= serial * (1 + 1e-9)
    case.assert_valid(schedule)


def test_a_lone_job_takes_its_solo_time() -> None:
    """T = 7 + 2 + 1 at k = 1; k rounds of it are k times as long."""
    for rate in (1, 2, 5):
        case = case_of((7,), (2,), (1,), ((0, 1),), ((3,),), (rate,), (9,), (9,))
        schedule = construct(case.shape(), limit_s=10 * rate)
        assert schedule is not None
        assert schedule.period_s == 10 * rate
        assert schedule.starts_s == (tuple((10 * i, 10 * i + 7) for i in range(rate)),)


# --- insertion -----------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(cases(most=6), st.floats(1.0, 2.0), st.booleans())
@example(EXACT_AND_ONE, 1.0, True)
def test_an_inserted_job_moves_no_other(case: Case, stretch: float, fresh: bool) -> None:
    """Members run with the switches they pay once the new job is there."""
    case = replace(case, rates=(*case.rates[:-1], 1))
    n = len(case.jobs) - 1
    if n == 0:
        return
    shape = case.shape()
    members = GroupShape(*(getattr(shape, name)[:n] for name in GroupShape.__slots__))
    running = construct(members)
    assert running is not None
    period = stretch * running.period_s
    starts = tuple(
        tuple((stretch * x, stretch * y) for x, y in pairs) for pairs in running.starts_s
    )
    if fresh:  # on nodes of its own it fits exactly when its iteration is short enough
        case = replace(
            case,
            rollout_pins=(*case.rollout_pins[:n], (90,)),
            train_pins=(*case.train_pins[:n], (90,)),
        )
        jobs = (*case.jobs[:n], replace(case.jobs[n], rollout_nodes=1, train_nodes=1))
        case = replace(case, jobs=jobs)
        shape = replace(
            shape,
            rollout_s=(*shape.rollout_s[:n], jobs[n].rollout_s),
            train_s=(*shape.train_s[:n], jobs[n].train_s),
            rollout_pins=case.rollout_pins,
            train_pins=case.train_pins,
        )
    found = insert(shape, period, starts)
    if fresh and jobs[n].solo_s <= period:
        assert found is not None
    if found is None:
        return
    assert found[:n] == starts
    assert len(found) == n + 1
    assert 0 <= found[n][0][0] < period
    data = Data(*(getattr(shape, name) for name in GroupShape.__slots__[:6]))
    assert verify(period, found, *data) == []
    if shape == case.shape():
        assert case.faults(period, found) == []


def test_insertion_into_a_full_circle_fails_and_into_an_exact_gap_succeeds() -> None:
    """Rollouts 5 + 3 fill 8 of 10 s: 2 s more fit exactly, 2.01 s do not, whatever the trains."""
    members = case_of((5, 3), (1, 1))
    starts = (((0.0, 5.0),), ((5.0, 8.0),))
    assert members.faults(10.0, starts) == []
    exact = case_of((5, 3, 2), (1, 1, 1))
    found = insert(exact.shape(), 10.0, starts)
    assert found is not None
    assert found[2][0][0] == 8.0
    assert exact.faults(10.0, found) == []
    assert insert(case_of((5, 3, 2.01), (1, 1, 1)).shape(), 10.0, starts) is None
    assert insert(case_of((5, 3, 2), (1, 1, 7.01)).shape(), 10.0, starts) is None
    assert insert(case_of((5, 3, 2, 0.01), (1, 1, 1, 1)).shape(), 10.0, found) is None


def test_insertion_waits_for_the_sync() -> None:
    """2 + 1 + 7 is the whole circle of 10: the train must start when the rollout ends."""
    starts = (((0.0, 5.0),), ((5.0, 8.0),))  # trains [5, 6) and [8, 9)
    for sync, fits in ((7.0, True), (7.01, False)):
        case = case_of((5, 3, 2), (1, 1, 1), (0, 0, sync))
        found = insert(case.shape(), 10.0, starts)
        assert (found is not None) is fits
    # a train in [9, 11) meets every start in the rollout's gap, [8, 10), but not its end
    blocked = case_of((5, 3, 2), (1, 2, 2), (0, 0, 6))
    assert insert(blocked.shape(), 10.0, (((0.0, 5.0),), ((5.0, 9.5),))) is None


# --- round-off, magnitudes, equal jobs -----------------------------------------------------


@pytest.mark.parametrize("unit", [1e-3, 0.1, 1.0, 1 / 3, 1e3, 1e6 / 7])
@pytest.mark.parametrize("n", [2, 3, 5, 7])
def test_equal_jobs_fill_their_nodes_exactly(unit: float, n: int) -> None:
    """n jobs of r = t = unit on one node of each kind: both nodes busy all of n x unit.

    With sync (n - 2) x unit every iteration has slack 0 too, and still fits: job i rolls out
    in slot i and trains in slot i + 1.
    """
    for sync in (0.0, (n - 2) * unit):
        case = case_of((unit,) * n, (unit,) * n, (sync,) * n)
        for limit in (None, n * unit, sum([unit] * n)):
            schedule = construct(case.shape(), limit_s=limit)
            assert schedule is not None
            assert schedule.period_s == pytest.approx(n * unit, rel=1e-12)
            assert schedule.at_bound
            case.assert_valid(schedule)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("exponent", [-20, -10, 10, 20])
def test_scaling_the_seconds_scales_the_schedule(name: str, exponent: int) -> None:
    """By a power of two, exactly, from 1e-6 to 1e7 s: tolerances are relative.

    All but one: insertion prefers a cost (s x s) only when it is less by 1e-10 C (s), so that
    rarely another of two almost equal places is taken. Measured: 1 of 60 groups with rates.
    """
    factor, same = 2.0**exponent, 0
    for case, _, _ in solved_cases()[name]:
        shape = case.shape()
        scaled = replace(
            shape,
            rollout_s=tuple(factor * x for x in shape.rollout_s),
            train_s=tuple(factor * x for x in shape.train_s),
            sync_s=tuple(factor * x for x in shape.sync_s),
        )
        data = Data(*(getattr(scaled, field) for field in GroupShape.__slots__[:6]))
        one, other = construct(shape), construct(scaled)
        assert one is not None
        assert other is not None
        slack = 1e-9 * other.period_s
        assert verify(other.period_s, other.starts_s, *data, tolerance_s=slack) == []
        same += other.period_s == factor * one.period_s and other.starts_s == tuple(
            tuple((factor * x, factor * y) for x, y in pairs) for pairs in one.starts_s
        )
    assert same >= 0.9 * SOLVED


@pytest.mark.parametrize(
    ("case", "period"),
    [
        (EXACT, 1.1),
        # the shared train node carries 0.2 + 0.1 + 0.3 + 0.2, rollouts 0.7 + 0.7 on each node
        (
            case_of(
                (0.3, 0.7, 0.7, 0.7),
                (0.2, 0.1, 0.3, 0.2),
                (0, 0, 0, 0),
                ((2,), (0,), (1,), (1,)),
            ),
            1.4,
        ),
    ],
)
def test_a_window_that_ends_exactly_where_a_phase_must_start(case: Case, period: float) -> None:
    """The last possible start is taken, round-off or not."""
    schedule = construct(case.shape())
    assert schedule is not None
    assert schedule.period_s == pytest.approx(period, rel=1e-12)
    case.assert_valid(schedule)


@settings(max_examples=300, deadline=None)
@example(
    phases=[
        (46231.0, 34603.046429351525, 146707.37910818312),
        (34603.046429351525, 50239.0, 0.0),
        (50239.0, 1.0, 46229.0),
    ],
    nodes=[0] * 5,
    rates=[1] * 5,
)
@given(
    st.lists(st.tuples(POSITIVE, POSITIVE, st.floats(0, 1e6)), min_size=1, max_size=5),
    st.lists(st.integers(0, 1), min_size=5, max_size=5),
    st.lists(st.integers(1, 3), min_size=5, max_size=5),
)
def test_milliseconds_and_megaseconds_in_one_group(
    phases: list[tuple[float, float, float]], nodes: list[int], rates: list[int]
) -> None:
    """Phases of 1e-3 to 1e6 s side by side, each k."""
    r, t, s = zip(*phases, strict=True)
    n = len(phases)
    for k in ((1,) * n, tuple(rates[:n])):
        case = case_of(r, t, s, [(node,) for node in nodes[:n]], rates=k)
        schedule = construct(case.shape())
        assert schedule is not None
        assert schedule.period_s >= oracle_lower_bound(*case.data()) * (1 - 1e-9)
        case.assert_valid(schedule)
        again = construct(case.shape(), limit_s=schedule.period_s)
        if again is not None:
            assert again.period_s <= schedule.period_s * (1 + 1e-9)
            case.assert_valid(again)


@pytest.mark.parametrize(
    "thirds", [(0.1, 0.2, 0.7), (1 / 3, 1 / 3, 1 / 3), (0.3, 0.3, 0.4), (1e-3, 1 - 2e-3, 1e-3)]
)
def test_an_exact_fit_is_not_lost_to_round_off(thirds: tuple[float, float, float]) -> None:
    """Rollouts of sum 1, whatever the order of addition, fit into a limit of 1."""
    for order in permutations(thirds):
        case = case_of(order, [x / 2 for x in order])
        for sync in (0.0, 1e-4):  # open shop, and the insertion
            synced = replace(case, jobs=tuple(replace(job, sync_s=sync) for job in case.jobs))
            if max(job.solo_s for job in synced.jobs) > 1:
                continue
            schedule = construct(synced.shape(), limit_s=1.0)
            assert schedule is not None
            assert schedule.period_s == pytest.approx(1.0, rel=1e-12)
            synced.assert_valid(schedule, 1.0)


def test_tightening_never_lengthens_a_schedule() -> None:
    """Phases that are nothing beside the period may be read in another order than laid out."""
    rng = random.Random(5)
    shorter = 0
    for _ in range(500):
        n = rng.randint(2, 6)
        p, q = (tuple(rng.choice((1e-6, 1e-3, 1.0, 1e3, 1e6)) for _ in range(n)) for _ in range(2))
        pins = [tuple((rng.randrange(2),) for _ in range(n)) for _ in range(2)]
        shape = GroupShape(p, q, (0.0,) * n, pins[0], pins[1], (1,) * n)
        loose = construct(shape, limit_s=4 * sum(p + q), orders=1, refine=0)
        assert loose is not None
        held = Schedule(
            period_s=2 * loose.period_s,
            starts_s=tuple(tuple((2 * x, 2 * y) for x, y in job) for job in loose.starts_s),
            bound_s=loose.bound_s,
        )
        found = tightened(shape, held)
        assert found.period_s <= held.period_s
        shorter += found.period_s < held.period_s
    assert shorter > 400
