"""Periods of groups with one-step jobs: by hand, against the oracle, and what routines keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from instances.hardware import DEFAULT_CLUSTER
from models.group.cycle_ratio import critical_cycle, least_period, order_of
from models.group.cyclic_cpsat import decide
from models.group.pair_orders import decide_orders
from models.group.period import construct, insert
from models.group.rate_bound import is_overfull, least_bound_s
from models.group.self_timed import interleavings, self_timed
from models.loads.circle_search import schedule_on_circle
from models.problem.group_shape import GroupShape, lower_bound, lower_bound_s
from one_step_cases import mixed_groups, one_step
from oracles.least_period import least_period as oracle_least_period
from oracles.least_period import lower_bound as oracle_lower_bound
from oracles.least_snapshot import rates_feasible
from period_cases import REL, Case, case_of

#: Branches that no search of these groups comes near.
MANY = 50_000


@cache
def solved() -> tuple[tuple[Case, float], ...]:
    """Return random groups, rates and gangs among them, with their least period by the oracle."""
    return tuple((case, oracle_least_period(*case.data())[0]) for case in mixed_groups(61, 150, 4))


@pytest.mark.parametrize(
    ("case", "period"),
    [
        (one_step(case_of((10,), (10,))), 10.0),
        (one_step(case_of((10,), (4,), (3,))), 10.0),  # max(10, 17 / 2)
        (one_step(case_of((10,), (4,), (8,))), 11.0),  # max(10, 22 / 2)
        (one_step(case_of((10, 10), (10, 10))), 20.0),  # both nodes are full
        (one_step(case_of((2, 2), (2, 2), (9, 0)), 0), 6.5),  # 13 in two periods
        # a long sync of b is no matter where its rollout does not wait for it: loads say 11
        (one_step(case_of((5, 5, 1), (2, 3, 6), (2, 3, 0)), 0, 1), 11.0),
        # three iterations of (4, 4, 9) in one period, 3 x 17 / 2
        (one_step(case_of((4,), (4,), (9,), rates=(3,))), 25.5),
    ],
)
def test_periods_by_hand(case: Case, period: float) -> None:
    schedule = construct(case.shape())
    assert schedule is not None
    assert schedule.period_s == pytest.approx(period, rel=1e-12)
    assert oracle_least_period(*case.data())[0] == pytest.approx(period, rel=1e-8)
    case.assert_valid(schedule)


def test_parts_of_the_lower_bound() -> None:
    """(a) counts half of a one-step chain; (b) and (c) are those of sync jobs."""
    shape = one_step(case_of((10, 1), (4, 1), (8, 0)), 0).shape()
    assert shape.lags == (2, 1)
    found = lower_bound(shape)
    assert (found.chain_s, found.node_s) == (11.0, 11.0)
    assert case_of((10,), (4,)).shape().lags == ()


def test_bounds_are_the_oracles_and_below_the_least_period() -> None:
    for case, least in solved():
        shape = case.shape()
        assert lower_bound_s(shape) == pytest.approx(oracle_lower_bound(*case.data()), rel=1e-12)
        assert least_bound_s(shape) <= least * (1 + 1e-8), case
        assert not is_overfull(shape, least * (1 + 1e-8)), case


def test_construction_is_valid_and_mostly_the_least() -> None:
    least_found = 0
    for case, least in solved():
        for limit in (None, least * (1 + 1e-8), 1.3 * least):
            schedule = construct(case.shape(), limit_s=limit)
            if schedule is None:
                assert limit is not None
                continue
            case.assert_valid(schedule, limit)
            assert schedule.period_s >= least * (1 - REL), case
        least_found += schedule is not None and schedule.period_s <= least * (1 + REL)
    assert least_found >= 0.9 * len(solved())


def test_the_exact_search_of_orders_is_exact() -> None:
    for case, least in solved():
        shape = case.shape()
        found = decide_orders(shape, least * (1 + 1e-7), MANY)
        assert found.starts_s is not None, case
        assert case.faults(least * (1 + 1e-7), found.starts_s) == []
        none = decide_orders(shape, least * (1 - 1e-6), MANY)
        assert (none.starts_s, none.proved) == (None, True), case


def test_interleavings_are_valid() -> None:
    """One iteration or several: what a turn of two before allows counts too."""
    looked_at = 0
    for case, least in solved():
        shape = case.shape()
        for order in interleavings(shape, 4):
            period, starts = self_timed(shape, order)
            assert case.faults(period, starts) == [], (case, order)
            assert period >= least * (1 - REL)
            looked_at += bool(shape.lags)
    assert looked_at > 100


def test_orders_and_laps_of_the_least_schedule_give_its_period_and_a_cycle() -> None:
    for case, least in solved():
        shape = case.shape()
        period, starts = oracle_least_period(*case.data())
        order = order_of(shape, period, tuple(tuple(pairs) for pairs in starts))
        again = least_period(shape, order)
        assert again.period_s == pytest.approx(least, rel=1e-8), case
        cycle = critical_cycle(shape, order, again.period_s)
        assert cycle is not None, case
        seconds, laps = sum(s.seconds for s in cycle), sum(s.laps for s in cycle)
        assert seconds / laps == pytest.approx(again.period_s, rel=1e-9)


def test_an_inserted_job_moves_no_other() -> None:
    inserted = 0
    for case, _ in solved():
        case = replace(case, rates=(1,) * len(case.rates))
        shape, n = case.shape(), len(case.jobs) - 1
        if n == 0:
            continue
        fields = [getattr(shape, name)[:n] for name in GroupShape.__slots__]
        running = construct(GroupShape(*fields))
        assert running is not None
        for stretch in (1.0, 1.5):
            period = stretch * running.period_s
            starts = tuple(
                tuple((stretch * x, stretch * y) for x, y in job) for job in running.starts_s
            )
            found = insert(shape, period, starts)
            if found is not None:
                inserted += 1
                assert found[:n] == starts
                assert case.faults(period, found) == [], case
    assert inserted > 50


def test_a_phase_longer_than_the_period_is_not_inserted() -> None:
    """On train nodes of its own, (3, 9) does not fit a period of 8, though 2 x 8 >= 3 + 9."""
    case = one_step(case_of((5, 3), (2, 9), train_pins=((0,), (1,))), 1)
    assert insert(case.shape(), 8.0, (((0.0, 5.0),),)) is None
    found = insert(case.shape(), 9.0, (((0.0, 5.0),),))
    assert found is not None
    assert case.faults(9.0, found) == []


def decisions() -> Iterator[tuple[Case, float, bool]]:
    """Yield groups with a deadline, and whether the oracle finds a schedule on their nodes."""
    for number, case in enumerate(mixed_groups(62, 45, 3)):
        longest = max(k * job.solo_s for k, job in zip(case.rates, case.jobs, strict=True))
        limit = longest * (1.0, 1.25, 1.5, 1.8)[number % 4]
        jobs = tuple(
            replace(job, slo=limit / (k * job.solo_s))
            for k, job in zip(case.rates, case.jobs, strict=True)
        )
        case = replace(case, jobs=jobs)
        try:
            found = any(
                rates_feasible(jobs, DEFAULT_CLUSTER, r, t, case.rates)
                for r in (1, 2)
                for t in (1, 2)
            )
        except RuntimeError:  # too close for the oracle to call
            continue
        yield case, limit, found


def test_cpsat_decides_as_the_oracle() -> None:
    counts = [0, 0]
    for case, limit, exists in decisions():
        found = decide(case.jobs, 2, 2, (2000.0, 2000.0), limit, rates=case.rates)
        assert (found is not None) == exists, case
        counts[exists] += 1
        if found is not None:
            rollout, train, schedule = found
            again = Case(case.jobs, rollout, train, case.rates)
            again.assert_valid(schedule, limit * (1 + 1e-9))
    assert min(counts) >= 5


def test_ejection_on_a_circle_is_valid() -> None:
    """Single-node groups at the oracle's least period, a little stretched."""
    found = 0
    for case, least in solved():
        narrow = all(job.rollout_nodes == job.train_nodes == 1 for job in case.jobs)
        if not narrow or max(case.rates) > 1:
            continue
        dense = replace(
            case,
            rollout_pins=_numbered(case.rollout_pins),
            train_pins=_numbered(case.train_pins),
        )
        schedule = schedule_on_circle(dense.shape(), 1.05 * least, steps=500)
        if schedule is not None:
            found += 1
            dense.assert_valid(schedule)
    assert found >= 20


def _numbered(pins: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    number: dict[int, int] = {}
    return tuple(tuple(number.setdefault(node, len(number)) for node in nodes) for nodes in pins)
