"""Groups of jobs with different rates: exact search, interleavings, bounds, insertion of chains."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import models.group.period
from instances.generate import production
from models.group.packing import place_chain, place_one
from models.group.pair_orders import Decision, decide_orders
from models.group.period import (
    GroupShape,
    Schedule,
    Starts,
    construct,
    insert,
    lower_bound_s,
    tightened,
)
from models.group.rate_bound import is_overfull, pair_bound_s
from models.group.self_timed import interleavings, self_timed
from oracles.least_period import least_period as oracle_least_period
from period_cases import REL, Case, case_of, cases, random_cases

#: More branches than any search of these tests needs.
UNCUT = 100_000

#: Job 1 never waits within 8 s, and leaves gaps of 1 s between its trains; job 0's train takes
#: 2 s. One gap of 2 s more: 9. LB(g) is 8, the chains 6 + 2 and 4 x (1 + 1).
NINE = case_of((6, 1), (2, 1), rollout_pins=((0,), (1,)), rates=(1, 4))
#: Job 0 trains twice, 5 s apart; trains of 4, 4 and 2 s go into its two gaps: 4 + 2 in one of
#: them, so that it is 6 long, and C >= 2 x 1 + 6 + 5 = 13. Node load 12, chain of job 0 12.
THIRTEEN = case_of(
    (5, 1, 1, 1), (1, 4, 4, 2), rollout_pins=((0,), (1,), (2,), (3,)), rates=(2, 1, 1, 1)
)
#: Job 0 as above. With one train of 4 s, two of job 2 of 2 s, at least 2 s apart: 4 + 2 or
#: 2 + 2 + 2 in one gap of 5 s, so 13 again. Node load 10, chain of job 0 12.
THREE_JOBS = case_of((5, 1, 2), (1, 4, 2), rollout_pins=((0,), (1,), (2,)), rates=(2, 1, 2))
#: Both trains of job 1, 2 + 0.5 + 2 s, in one gap of 5 s of job 0, three of 1.6 s in the other:
#: 12, the chain of job 0. With one train of job 1 in each gap, 2 + 1.6 + 1.6 does not fit.
TOGETHER = case_of(
    (5, 0.5, 1, 1, 1),
    (1, 2, 1.6, 1.6, 1.6),
    rollout_pins=((0,), (1,), (2,), (3,), (4,)),
    rates=(2, 2, 1, 1, 1),
)


def serial_s(shape: GroupShape) -> float:
    return sum(
        k * (p + q + s)
        for k, p, q, s in zip(
            shape.rates, shape.rollout_s, shape.train_s, shape.sync_s, strict=True
        )
    )


@cache
def solved() -> list[tuple[Case, float]]:
    """Groups of 1 to 3 jobs, with rates and without, and their least period by the oracle."""
    names = ("rates", "rates-all", "rates", "rates-all", "gangs-all", "nodes")
    found = random_cases(77, 72, 3, names)
    return [(case, oracle_least_period(*case.data())[0]) for case in found]


# --- the exact search ----------------------------------------------------------------------


def test_the_search_agrees_with_the_oracle_on_both_sides_of_the_least_period() -> None:
    """Below it nothing is found, and that is proved; from it on a valid schedule is found."""
    below = 0
    for case, least in solved():
        shape = case.shape()
        for factor in (1 + 1e-7, 1.01, 1.3):
            decision = decide_orders(shape, factor * least, UNCUT)
            assert decision.starts_s is not None, case
            assert case.faults(factor * least, decision.starts_s) == [], case
            assert all(0 <= pairs[0][0] < factor * least for pairs in decision.starts_s)
        for factor in (1 - 1e-6, 0.99, 0.8):
            decision = decide_orders(shape, factor * least, UNCUT)
            assert decision.starts_s is None, case
            assert decision.proved, case
            below += factor * least > lower_bound_s(shape)
    assert below >= 25  # the loads alone would admit these


@pytest.mark.parametrize(
    ("case", "least"),
    [
        (NINE, 9.0),
        (THIRTEEN, 13.0),
        (THREE_JOBS, 13.0),
        (TOGETHER, 12.0),
        # three trains of job 1 leave 4 s of its 8 s unused: a gap of 2 s is there, C = LB = 8
        (case_of((6, 1), (2, 1), rollout_pins=((0,), (1,)), rates=(1, 3)), 8.0),
        # both pools shared: the rollouts alone need 6 + 7 s, then those of job 1 follow without
        # a pause, and between its trains is 1 s for job 0's train of 2 s: 1 s more
        (case_of((6, 1), (2, 1), rates=(1, 4)), 14.0),
        # no node shared: the longer chain
        (
            case_of(
                (6, 1), (2, 1), rollout_pins=((0,), (1,)), train_pins=((0,), (1,)), rates=(1, 5)
            ),
            10.0,
        ),
    ],
)
def test_least_periods_by_hand(case: Case, least: float) -> None:
    assert oracle_least_period(*case.data())[0] == pytest.approx(least, rel=1e-9)
    assert decide_orders(case.shape(), least, UNCUT).starts_s is not None
    assert decide_orders(case.shape(), least * (1 - 1e-8), UNCUT)[:2] == (None, True)
    schedule = construct(case.shape())
    assert schedule is not None
    assert schedule.period_s == pytest.approx(least, rel=1e-9)
    case.assert_valid(schedule)


def test_a_search_cut_short_proves_nothing() -> None:
    shape = NINE.shape()
    assert decide_orders(shape, 9.0, 0) == (None, False, 0)
    assert decide_orders(shape, 7.9, 0) == (None, True, 0)  # a chain of 8 s needs no search


def test_unrelated_jobs_are_decided_apart() -> None:
    """Twice the same two jobs on nodes of their own: as possible as once, in both halves."""
    twice = case_of(
        (6, 1, 6, 1),
        (2, 1, 2, 1),
        rollout_pins=((0,), (1,), (2,), (3,)),
        train_pins=((0,), (0,), (1,), (1,)),
        rates=(1, 4, 1, 4),
    )
    found = decide_orders(twice.shape(), 9.0, UNCUT)
    assert found.starts_s is not None
    assert found.starts_s[:2] == found.starts_s[2:]
    assert twice.faults(9.0, found.starts_s) == []
    once = decide_orders(NINE.shape(), 8.9, UNCUT)
    impossible = decide_orders(twice.shape(), 8.9, UNCUT)
    assert impossible == once == (None, True, once.branches)


@settings(max_examples=150, deadline=None)
@given(cases(most=5, most_rate=4), st.floats(0.95, 1.5), st.floats(1.0, 1.5))
def test_what_the_search_finds_is_valid_and_remains_so_in_a_longer_period(
    case: Case, factor: float, longer: float
) -> None:
    """Starts stretch, so a proof for the longer period would contradict the shorter one."""
    shape = case.shape()
    period = factor * lower_bound_s(shape)
    decision = decide_orders(shape, period, 200)
    if decision.starts_s is not None:
        assert case.faults(period, decision.starts_s) == []
        later = decide_orders(shape, longer * period, 200)
        assert later.starts_s is not None or not later.proved


def test_found_schedules_of_uneven_seconds_are_valid() -> None:
    """At LB(g) and up to 30 % above it, where many differences are small."""
    rng = random.Random(21)
    found = 0
    for case in random_cases(21, 500, 5, ("rates", "rates-all")):
        period = lower_bound_s(case.shape()) * rng.uniform(1.0, 1.3)
        decision = decide_orders(case.shape(), period, 60)
        if decision.starts_s is not None:
            assert case.faults(period, decision.starts_s) == [], case
            found += 1
    assert found > 250


# --- interleavings -------------------------------------------------------------------------


def test_interleavings_spread_every_job_over_the_turn() -> None:
    """k = 1, 2, 4, offsets 0.5, 0.118, 0.736: job 0 at 0.5, job 1 at 0.06, 0.56, job 2 at 0.18,
    0.43, 0.68, 0.93.
    """
    shape = case_of((1, 1, 1), (1, 1, 1), rates=(1, 2, 4)).shape()
    orders = list(interleavings(shape, 9))
    assert orders[0] == [1, 2, 2, 0, 1, 2, 2]
    assert len(orders) == len({tuple(order) for order in orders}) <= 4
    assert all(sorted(order) == [0, 1, 1, 2, 2, 2, 2] for order in orders)
    assert list(interleavings(shape, 1)) == orders[:1]
    # ranked by rate, then by length, whatever the index
    swapped = case_of((1, 1, 1), (1, 1, 1), rates=(4, 2, 1)).shape()
    assert next(interleavings(swapped, 1)) == [1, 0, 0, 2, 1, 0, 0]


@settings(max_examples=200, deadline=None)
@given(cases(most=6, most_rate=4), st.integers(0, 2**32))
def test_any_order_gives_a_valid_schedule_no_longer_than_one_after_the_other(
    case: Case, seed: int
) -> None:
    shape = case.shape()
    order = [j for j, k in enumerate(case.rates) for _ in range(k)]
    random.Random(seed).shuffle(order)
    period, starts = self_timed(shape, order)
    schedule = Schedule(period_s=period, starts_s=starts, bound_s=lower_bound_s(shape))
    case.assert_valid(schedule)
    assert lower_bound_s(shape) * (1 - 1e-9) <= period
    assert tightened(shape, schedule).period_s <= serial_s(shape) * (1 + 1e-9)


def test_three_turns_reach_the_least_period_of_an_order() -> None:
    """The maximum cycle ratio says what it is. Measured: in all of 1,000."""
    rng = random.Random(8)
    reached = 0
    for case in random_cases(8, 300, 5, ("rates", "rates-all")):
        order = [j for j, k in enumerate(case.rates) for _ in range(k)]
        rng.shuffle(order)
        shape = case.shape()
        period, starts = self_timed(shape, order)
        held = Schedule(period_s=period, starts_s=starts, bound_s=lower_bound_s(shape))
        reached += tightened(shape, held).period_s >= period * (1 - 1e-9)
    assert reached >= 0.98 * 300


# --- bounds --------------------------------------------------------------------------------


def test_bounds_never_exceed_the_least_period() -> None:
    sharper = 0
    for case, least in solved():
        shape = case.shape()
        assert pair_bound_s(shape) <= least * (1 + REL), case
        assert not is_overfull(shape, least * (1 + REL)), case
        sharper += pair_bound_s(shape) > lower_bound_s(shape) * (1 + REL)
    assert sharper >= 5  # and it often says more than LB(g)


@pytest.mark.parametrize(
    ("case", "bound"),
    [
        (NINE, 9.0),
        # swapped: job 1 of rate 1, the same pair
        (case_of((1, 6), (1, 2), rollout_pins=((0,), (1,)), rates=(4, 1)), 9.0),
        # rollouts share: job 0 leaves 2 + 1 s between its rollouts, job 1's take 5 s: 3 x 4 for
        # job 0 at rate 3, and 5 - 3 = 2 s more for each of two rollouts
        (case_of((1, 5), (2, 1), (1, 0), train_pins=((0,), (1,)), rates=(3, 2)), 16.0),
        # equal rates: nothing beyond LB(g)
        (case_of((6, 1), (2, 1), rates=(2, 2)), 0.0),
        # no node shared
        (
            case_of(
                (6, 1), (2, 1), rollout_pins=((0,), (1,)), train_pins=((0,), (1,)), rates=(1, 4)
            ),
            0.0,
        ),
    ],
)
def test_pair_bounds_by_hand(case: Case, bound: float) -> None:
    assert pair_bound_s(case.shape()) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(
    ("case", "bound"), [(THIRTEEN, 13.0), (THREE_JOBS, 13.0), (TOGETHER, 12.0)]
)
def test_a_node_is_overfull_by_hand(case: Case, bound: float) -> None:
    """In either pool; loads, chains and pairs say 12 of all three."""
    shape = case.shape()
    other = GroupShape(
        shape.train_s,
        shape.rollout_s,
        shape.sync_s,
        shape.train_pins,
        shape.rollout_pins,
        shape.rates,
    )
    for one in (shape, other):
        assert max(lower_bound_s(one), pair_bound_s(one)) == 12.0
        assert is_overfull(one, bound * (1 - 1e-9))
        assert not is_overfull(one, bound)


@settings(max_examples=200, deadline=None)
@given(cases(most=5, most_rate=4), st.floats(0.9, 1.3))
def test_what_the_bounds_exclude_the_search_never_finds(case: Case, factor: float) -> None:
    shape = case.shape()
    period = factor * lower_bound_s(shape)
    if is_overfull(shape, period) or pair_bound_s(shape) > period * (1 + 1e-9):
        assert decide_orders(shape, period, 300).starts_s is None


# --- construct -----------------------------------------------------------------------------


def test_construct_finds_a_schedule_whenever_one_exists() -> None:
    """At limits on both sides of the least period, and without one.

    Measured on these groups: all found, 98 % of the periods without a limit optimal, here and
    on thousands of production-like groups (tests/benchmarks/bench_period.py). Floors: 98, 95 %.
    """
    found = optimal = 0
    for case, least in solved():
        shape = case.shape()
        for orders, refine in ((1, 0), (2, 0), (5, 3)):
            schedule = construct(shape, limit_s=least * (1 + 1e-7), orders=orders, refine=refine)
            found += schedule is not None
            if schedule is not None:
                assert least * (1 - REL) <= schedule.period_s <= least * (1 + 2e-7)
                case.assert_valid(schedule, least * (1 + 1e-7))
            assert construct(shape, limit_s=least * (1 - 1e-5), orders=orders) is None
        free = construct(shape)
        assert free is not None
        case.assert_valid(free)
        optimal += free.period_s <= least * (1 + REL)
    assert found >= 0.98 * 3 * len(solved())
    assert optimal >= 0.95 * len(solved())


@settings(max_examples=200, deadline=None)
@given(cases(most=5, most_rate=4), st.floats(1.0, 1.6), st.sampled_from([(1, 0), (2, 1), (5, 3)]))
@example(NINE, 1.125, (1, 0))
def test_a_limit_is_kept_and_chance_has_no_part(
    case: Case, factor: float, effort: tuple[int, int]
) -> None:
    shape, (orders, refine) = case.shape(), effort
    limit = factor * lower_bound_s(shape)
    schedule = construct(shape, limit_s=limit, orders=orders, refine=refine)
    assert schedule == construct(shape, limit_s=limit, orders=orders, refine=refine)
    if schedule is not None:
        assert schedule.period_s <= limit * (1 + 1e-9)
        assert schedule.bound_s == lower_bound_s(shape)
        if max(case.rates) > 1:
            assert schedule.period_s >= schedule.bound_s
        case.assert_valid(schedule, limit)
    if limit >= serial_s(shape):
        assert schedule is not None
        assert schedule.period_s <= serial_s(shape) * (1 + 1e-9)


def test_more_attempts_never_lengthen_a_period() -> None:
    for case, _ in solved():
        periods = []
        for refine in range(4):
            schedule = construct(case.shape(), refine=refine)
            assert schedule is not None
            periods.append(schedule.period_s)
        assert periods == sorted(periods, reverse=True), case


def test_no_period_is_searched_in_vain_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search is at a period above all that failed and below all that were found."""
    tried: list[tuple[float, Schedule | None]] = []
    search = models.group.period._searched

    def spy(shape: GroupShape, bound: float, period_s: float, most: int) -> Schedule | None:
        failed = [at for at, found in tried if found is None]
        held = [found.period_s for _, found in tried if found is not None]
        assert all(at < period_s for at in failed)
        assert all(period_s < at for at in held)
        tried.append((period_s, search(shape, bound, period_s, most)))
        return tried[-1][1]

    monkeypatch.setattr(models.group.period, "_searched", spy)
    searches = 0
    for case, _ in solved():
        tried.clear()
        construct(case.shape(), refine=6)
        searches += len(tried)
    assert searches > 60


def test_one_iteration_after_the_other_always_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the search is cut short at once, and turns have not reached an order's period."""

    def slow(shape: GroupShape, order: list[int]) -> tuple[float, Starts]:
        period_s, starts = self_timed(shape, order)
        factor = 3 * serial_s(shape) / period_s
        return factor * period_s, tuple(
            tuple((factor * x, factor * y) for x, y in pairs) for pairs in starts
        )

    monkeypatch.setattr(models.group.period, "self_timed", slow)
    monkeypatch.setattr(models.group.period, "decide_orders", lambda *_: Decision(None, False, 0))
    for case in random_cases(4, 100, 5, ("rates", "rates-all")):
        if max(case.rates) > 1:
            schedule = construct(case.shape())
            assert schedule is not None
            assert schedule.period_s <= serial_s(case.shape()) * (1 + 1e-9)
            case.assert_valid(schedule)


@pytest.mark.parametrize("unit", [0.1, 1.0, 1 / 3, 1e5 / 7])
@pytest.mark.parametrize(
    ("rates", "sync"), [((2, 2), (0, 0)), ((2, 1), (0, 2)), ((4, 2), (0, 2)), ((4, 1), (0, 6))]
)
def test_chains_without_slack_fit_exactly(
    unit: float, rates: tuple[int, int], sync: tuple[int, int]
) -> None:
    """All phases take one unit, and neither job ever waits: the rollouts of job 0 take the even
    units and its trains the odd ones, so those of job 1 begin in odd and in even ones.
    """
    case = case_of((unit,) * 2, (unit,) * 2, [x * unit for x in sync], rates=rates)
    least = 2 * rates[0] * unit
    decision = decide_orders(case.shape(), least, UNCUT)
    assert decision.starts_s is not None
    assert case.faults(least, decision.starts_s) == []
    schedule = construct(case.shape(), limit_s=least)
    assert schedule is not None
    assert schedule.at_bound
    case.assert_valid(schedule, least)


def production_cases(count: int) -> list[tuple[Case, float]]:
    """Groups of 2 to 4 production-like jobs on one train node, and the period their SLOs allow.

    ``C = k D_i`` for a job ``i``; every job iterates as often as its deadline asks.
    """
    rng = random.Random(12)
    jobs = [
        replace(job, rollout_state_gb=0.0, train_state_gb=0.0)
        for job in production(n_jobs=120, seed=12)
    ]
    out: list[tuple[Case, float]] = []
    while len(out) < count:
        group = rng.sample(jobs, rng.choice((2, 3, 3, 4)))
        deadline = rng.choice(group).deadline_s * rng.randint(1, 4)
        rates = tuple(math.ceil(deadline / job.deadline_s * (1 - 1e-12)) for job in group)
        own = tuple((j,) for j in range(len(group)))
        one = ((0,),) * len(group)
        pins = one if rng.random() < 0.4 else own
        case = Case(tuple(group), pins, one, rates)
        if 1 < max(rates) <= 4 and lower_bound_s(case.shape()) <= deadline:
            out.append((case, deadline))
    return out


def test_groups_of_production_like_jobs_are_found_with_little_effort() -> None:
    """As the placer asks. Loads admit all of these groups; what exists the exact search says."""
    exist = found = 0
    for case, deadline in production_cases(150):
        shape = case.shape()
        truth = decide_orders(shape, deadline, UNCUT)
        assert truth.starts_s is not None or truth.proved
        exist += truth.starts_s is not None
        schedule = construct(shape, limit_s=deadline, orders=1, refine=0)
        if schedule is not None:
            assert truth.starts_s is not None
            case.assert_valid(schedule, deadline)
            found += 1
    print(f"{found=} {exist=} of 150")
    assert 60 <= exist <= 140  # both answers occur
    assert found >= 0.97 * exist


# --- insertion -----------------------------------------------------------------------------


def chain_exists(
    circle: int, busy_r: set[int], busy_t: set[int], phases: tuple[int, int, int], rate: int
) -> bool:
    """Whether whole starts of a chain exist: from every first rollout, all reachable starts.

    Free seconds and the chain's rows are differences with whole right-hand sides, so whole
    starts exist if any do.
    """
    p, q, s = phases

    def free(busy: set[int], start: int, length: int) -> bool:
        return not any((start + x) % circle in busy for x in range(length))

    for first in range(circle):
        reach = {first} if free(busy_r, first, p) else set()
        for i in range(rate):
            if i:
                reach = {
                    x
                    for x in range(min(reach, default=circle * 2), first + circle)
                    if any(x >= y + q + s for y in reach) and free(busy_r, x, p)
                }
            reach = {
                y
                for y in range(min(reach, default=circle * 2), first + circle)
                if any(y >= x + p for x in reach) and free(busy_t, y, q)
            }
        if any(y + q + s <= first + circle for y in reach):
            return True
    return False


def arcs_of(seconds: set[int], circle: int) -> list[tuple[float, float]]:
    """Return busy seconds as arcs, as insertion takes them."""
    out = []
    for second in sorted(seconds):
        if (second - 1) % circle in seconds and len(seconds) < circle:
            continue
        end = second
        while end % circle in seconds and end < second + circle:
            end += 1
        out.append((float(second), float(end)))
    return out[:1] if len(seconds) == circle else out


@settings(max_examples=600, deadline=None)
@given(
    st.integers(4, 14),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2)),
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 0.1, 1e5 / 3]),
)
@example(9, (1, 1, 0), 3, 5, 1.0)
def test_a_chain_is_inserted_exactly_when_it_fits(
    circle: int, phases: tuple[int, int, int], rate: int, seed: int, unit: float
) -> None:
    rng = random.Random(seed)
    busy_r, busy_t = (
        {x for x in range(circle) if rng.random() < share}
        for share in (rng.choice((0.0, 0.2, 0.5)), rng.choice((0.0, 0.2, 0.5)))
    )
    scaled = [[(a * unit, b * unit) for a, b in arcs_of(busy, circle)] for busy in (busy_r, busy_t)]
    p, q, s = phases
    found = place_chain(circle * unit, *scaled, p * unit, q * unit, s * unit, rate)
    exists = rate * (p + q + s) <= circle and chain_exists(circle, busy_r, busy_t, phases, rate)
    assert (found is not None) is exists
    if rate == 1:
        one = place_one(circle * unit, *scaled, p * unit, q * unit, s * unit)
        assert (one is not None) is exists
    if found is None:
        return
    assert len(found) == rate
    pairs = [(x / unit, y / unit) for x, y in found]
    for (x, y), (after, _) in zip(pairs, [*pairs[1:], (pairs[0][0] + circle, 0.0)], strict=True):
        assert x + p - 1e-7 <= y <= after - q - s + 1e-7
        for busy, start, length in ((busy_r, x, p), (busy_t, y, q)):
            for second in busy:  # the second's next start after the phase's, around the circle
                ahead = (second - start + 1e-7) % circle
                assert ahead >= length
                assert ahead <= circle - 1 + 2e-7


def test_a_chain_joins_a_running_group() -> None:
    """Job 0: rollout [0, 6), train [6, 8) of 10 s; four trains of 1 s fit into the other 8 s."""
    case = case_of((6, 1), (2, 1), rollout_pins=((0,), (1,)), rates=(1, 4))
    starts = (((0.0, 6.0),),)
    found = insert(case.shape(), 10.0, starts)
    assert found is not None
    assert found[0] == starts[0]
    assert case.faults(10.0, found) == []
    assert insert(case.shape(), 9.0, starts) is not None  # 7 of the other 7 s, exactly
    assert insert(case.shape(), 8.99, starts) is None


@settings(max_examples=150, deadline=None)
@given(cases(most=5, most_rate=4), st.floats(1.0, 2.0))
def test_an_inserted_chain_moves_no_other(case: Case, stretch: float) -> None:
    """What fits beside the members as they run is valid, and they run on as before."""
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
    found = insert(shape, period, starts)
    if found is not None:
        assert found[:n] == starts
        assert 0 <= found[n][0][0] < period
        assert case.faults(period, found) == []
