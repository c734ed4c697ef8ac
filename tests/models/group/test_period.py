"""The period of one group: the facts of FORMULATION section 4, and our code against the oracle."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instances.errors import InputError
from models.group.period import (
    CyclicOrder,
    GroupShape,
    construct,
    least_period,
    lower_bound,
    lower_bound_s,
    open_shop,
    order_of,
)
from oracles.least_period import build, period_of_heights, verify
from oracles.least_period import least_period as oracle_least_period
from oracles.least_period import lower_bound as oracle_lower_bound
from period_cases import (
    EXACT,
    FIVE_CYCLE,
    GANG,
    KINDS,
    POSITIVE,
    REL,
    SYNC,
    TWO,
    UNSATURATED_SYNC,
    Case,
    Pins,
    case_of,
    cases,
    random_case,
    random_cases,
    solved_cases,
)

# --- shapes and lower bounds ---------------------------------------------------------------


def test_a_shared_node_makes_the_whole_gang_pay_its_switch_and_a_lone_job_pays_none() -> None:
    """Job 0 shares rollout node 1 with job 1; trains are apart. 4 + 2 and 1 + 0.5; 1, 1."""
    shared = case_of(
        (4, 1),
        (1, 1),
        rollout_pins=((0, 1), (1,)),
        train_pins=((0,), (1,)),
        rollout_switch_s=(2, 0.5),
        train_switch_s=(50, 50),
    )
    assert (shared.shape().rollout_s, shared.shape().train_s) == ((6, 1.5), (1, 1))
    alone = shared.first(1).shape()
    assert (alone.rollout_s, alone.train_s, alone.rates) == ((4,), (1,), (1,))


def test_a_job_pays_in_one_pool_and_not_in_the_other_and_a_third_job_changes_nothing() -> None:
    """Nodes of the two pools are different name spaces: train node 0 is not rollout node 0."""
    columns = ((3, 3, 3), (2, 2, 2), (0, 0, 0), ((0,), (1,), (2,)), ((0,), (0,), (0,)))
    case = case_of(*columns, rollout_switch_s=(1, 1, 1), train_switch_s=(0.5, 0.25, 0.125))
    assert case.shape().rollout_s == (3, 3, 3)
    assert case.shape().train_s == (2.5, 2.25, 2.125)
    assert case.first(2).shape().train_s == (2.5, 2.25)


@pytest.mark.parametrize(
    ("rollout_pins", "train_pins", "rates", "words"),
    [
        (((0,),), ((0,), (0,)), None, "pins and rates for 2 jobs"),
        (((0,), (0,)), ((0,), (0,)), (1,), "pins and rates for 2 jobs"),
        (((0,), ()), ((0,), (0,)), None, "at least one"),
        (((0,), (0,)), ((0, 0), (0,)), None, "distinct nodes"),
        (((0,), (0,)), ((0,), (0,)), (1, 0), "rates >= 1"),
    ],
)
def test_a_shape_refuses_what_is_no_group(
    rollout_pins: Pins, train_pins: Pins, rates: tuple[int, ...] | None, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        GroupShape.of(TWO.jobs, rollout_pins, train_pins, rates)


@pytest.mark.parametrize(
    ("case", "chain", "node", "clique"),
    [
        # one job, two iterations: 2 (5 + 3 + 2); its rollout node is busy 2 x 5
        (case_of((5,), (3,), (2,), rates=(2,)), 20, 10, 10),
        # rollouts 4 + 5 + 6 on one node; job 2's iteration is 6 + 1 + 1
        (case_of((4, 5, 6), (1, 1, 1), (0, 0, 1)), 8, 15, 15),
        # the train node decides: 2 (3 + 1 switch) + (4 + 1 switch); job 0: 2 (2 + 4)
        (
            case_of((2, 3), (3, 4), rollout_pins=((0,), (1,)), rates=(2, 1), train_switch_s=(1, 1)),
            12,
            13,
            13,
        ),
        # a triangle: nodes 0, 1, 2 are busy 4 + 4, 4 + 2 x 4, 2 x 4 + 4; all meet: 4 + 8 + 4
        (
            case_of(
                (4, 4, 4),
                (0.5, 0.5, 0.5),
                rollout_pins=((0, 1), (1, 2), (0, 2)),
                rates=(1, 2, 1),
            ),
            9,
            12,
            16,
        ),
        (SYNC, 11, 11, 11),  # job 1: 5 + 3 + 3; loads 5 + 5 + 1 and 2 + 3 + 6
        (UNSATURATED_SYNC, 12, 11, 11),
        (GANG, 17, 31, 34),  # job 2: 11 + 6; node 0: 5 + 11 + 6 + 9
        (FIVE_CYCLE, 1.25, 2, 2),
        (TWO, 6, 6, 6),
    ],
)
def test_the_three_parts_of_the_lower_bound(
    case: Case, chain: float, node: float, clique: float
) -> None:
    bound = lower_bound(case.shape())
    assert (bound.chain_s, bound.node_s, bound.clique_s) == (chain, node, clique)
    assert bound.period_s == lower_bound_s(case.shape()) == max(chain, node, clique)


def test_lower_bounds_agree_with_the_oracle() -> None:
    for case in random_cases(1, 400, 6):
        expected = oracle_lower_bound(*case.data())
        assert lower_bound(case.shape()).period_s == pytest.approx(expected, rel=1e-12), case
        assert lower_bound_s(case.shape()) == pytest.approx(expected, rel=1e-12), case


# --- open shop -----------------------------------------------------------------------------

WHOLE = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=7)
FLOATS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=7)


@settings(max_examples=400, deadline=None)
@given(WHOLE | FLOATS)
def test_open_shop_reaches_its_bound(phases: list[tuple[float, float]]) -> None:
    """Gonzalez and Sahni (1976): max(sum r, sum t, max(r + t)), whatever the jobs."""
    r, t = zip(*phases, strict=True)
    expected = max(math.fsum(r), math.fsum(t), *(a + b for a, b in phases))
    schedule = open_shop(r, t)
    assert schedule.period_s == pytest.approx(expected, rel=1e-12)
    assert schedule.bound_s == pytest.approx(expected, rel=1e-12)
    assert schedule.at_bound
    case_of(r, t).assert_valid(schedule)
    assert construct(case_of(r, t).shape()) == schedule  # no other way is as good


def test_open_shop_by_hand() -> None:
    """The other pool is as free as can be: 6 = 5 + 1 on either node, both always busy."""
    schedule = open_shop((5, 1), (1, 5))
    assert (schedule.period_s, schedule.bound_s) == (6, 6)
    TWO.assert_valid(schedule)


# --- the examples of FORMULATION section 4 ------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "bound", "least"),
    [
        (SYNC, 11, 11.5),
        (UNSATURATED_SYNC, 12, 12.5),
        (GANG, 34, 34),
        (FIVE_CYCLE, 2, 2.5),
        (TWO, 6, 6),
    ],
    ids=["sync", "unsaturated-sync", "gang", "5-cycle", "two"],
)
def test_examples_above_their_bounds(case: Case, bound: float, least: float) -> None:
    """The least periods are the oracle's (and its own tests', by a search on a grid)."""
    schedule = construct(case.shape())
    assert schedule is not None
    assert schedule.bound_s == bound
    assert schedule.period_s == pytest.approx(least, rel=1e-9)
    assert schedule.at_bound is (least == bound)
    case.assert_valid(schedule)
    assert oracle_least_period(*case.data())[0] == pytest.approx(least, rel=REL)


@pytest.mark.parametrize(
    ("case", "limit", "fits"),
    [
        (SYNC, 10.9, False),  # below LB
        (SYNC, 11, False),  # loads admit it, no schedule exists
        (SYNC, 11.49, False),
        (SYNC, 11.5, True),
        (UNSATURATED_SYNC, 12.49, False),
        (UNSATURATED_SYNC, 12.5, True),
        (GANG, 33.9, False),
        (GANG, 34, True),
        (FIVE_CYCLE, 2.49, False),
        (FIVE_CYCLE, 2.5, True),
    ],
)
def test_examples_within_a_limit(case: Case, limit: float, fits: bool) -> None:
    schedule = construct(case.shape(), limit_s=limit)
    assert (schedule is not None) is fits
    if schedule is not None:
        case.assert_valid(schedule, limit)


def test_strict_rounds_of_two_rollout_nodes_and_one_train_node() -> None:
    """(10, 10) and (1, 1): C = 20, trains busy 11 of 20 s; five short rounds still fit in 20."""
    strict = case_of((10, 1), (10, 1), rollout_pins=((0,), (1,)))
    schedule = construct(strict.shape())
    assert schedule is not None
    assert (schedule.period_s, 11 / schedule.period_s) == (20, 0.55)
    five = replace(strict, rates=(1, 5))
    assert oracle_least_period(*five.data())[0] == pytest.approx(20)
    schedule = construct(five.shape())
    assert schedule is not None
    assert schedule.period_s == 20
    five.assert_valid(schedule)


# --- given orders and laps -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("train_lap_of_b", "period"),
    [
        # A rolls out in [0, 5), B in [5, 6) and trains in the next lap, [6, 11); A in [5, 6)
        (1, 6),
        # B trains before A in the same lap: 5 + 1 + 5, then A's train 1, then A again: 12
        (0, 12),
    ],
)
def test_the_same_orders_give_6_or_12(train_lap_of_b: int, period: float) -> None:
    order = CyclicOrder(
        rollout=(((0, 0), (1, 0)),),
        train=(((1, 0), (0, 0)),),
        laps=(((0, 0),), ((0, train_lap_of_b),)),
    )
    schedule = least_period(TWO.shape(), order)
    assert schedule.period_s == pytest.approx(period, rel=1e-12)
    assert schedule.at_bound is (period == 6)
    TWO.assert_valid(schedule)


@pytest.mark.parametrize(
    ("height", "period"), [(-5, None), (-2, None), (-1, 12), (0, 6), (1, 12), (2, None), (3, None)]
)
def test_laps_that_contradict_each_other_raise(height: int, period: float | None) -> None:
    """A's train ``height`` laps after B's, A first in the period.

    ``yB - yA + height C`` must lie in [1, C - 5]. It is ``(yB - xB) + (xB - xA) - (yA - xA)
    + height C`` with terms in [1, C - 5], [5, C - 1] and [5, C - 1]: between ``7 - C`` and
    ``2C - 11`` without the height, so no height beyond -1, 0 and 1 fits any C.
    """
    order = CyclicOrder(
        rollout=(((0, 0), (1, 0)),), train=(((0, 0), (1, 0)),), laps=(((0, height),), ((0, 0),))
    )
    if period is None:
        with pytest.raises(InputError, match="contradict"):
            least_period(TWO.shape(), order)
    else:
        assert least_period(TWO.shape(), order).period_s == pytest.approx(period, rel=1e-12)


def _random_order(rng: random.Random, case: Case) -> tuple[CyclicOrder, list[float]]:
    """Return orders of random moments, and each phase's moment in turns (whole part: the lap).

    Phases are numbered as by the oracle: rollout 1, train 1, ... of job 0, then job 1. The
    moments of one job ascend within one turn, as those of its own phases do in any schedule;
    a train of a job with k = 1 may be later, which some orders of other jobs contradict.
    """
    turns: list[float] = []
    laps = []
    on_node: tuple[dict[int, list[tuple[float, int, int]]], ...] = ({}, {})
    for j, rate in enumerate(case.rates):
        begin = rng.uniform(0, 2)
        within = 3.0 if rate == 1 else 1.0
        moments = sorted(begin + rng.uniform(0, within) for _ in range(2 * rate))
        turns += moments
        own = [math.floor(moment) for moment in moments]
        laps.append(tuple(zip(own[::2], own[1::2], strict=True)))
        for place, moment in enumerate(moments):
            i, pool = divmod(place, 2)
            for node in (case.rollout_pins, case.train_pins)[pool][j]:
                on_node[pool].setdefault(node, []).append((moment % 1, j, i))
    rollout, train = (
        tuple(tuple((j, i) for _, j, i in sorted(nodes[node])) for node in sorted(nodes))
        for nodes in on_node
    )
    return CyclicOrder(rollout=rollout, train=train, laps=tuple(laps)), turns


def test_least_period_of_given_orders_agrees_with_the_oracle() -> None:
    """The oracle takes a height K per pair: the least with ``s_v - s_u + K C`` not negative."""
    rng = random.Random(8)
    feasible = contradictory = 0
    for case in random_cases(7, 350, 4):
        order, turns = _random_order(rng, case)
        group = build(case.data())
        heights = {(u, v): math.ceil(turns[u] - turns[v]) for u, v in group.pairs}
        found = period_of_heights(group, heights)
        if found is None:
            contradictory += 1
            with pytest.raises(InputError, match="contradict"):
                least_period(case.shape(), order)
            continue
        feasible += 1
        schedule = least_period(case.shape(), order)
        assert schedule.period_s == pytest.approx(found[0], rel=REL), case
        case.assert_valid(schedule)
    assert feasible > 100  # measured: the sample must test both answers
    assert contradictory > 20


@pytest.mark.parametrize("name", ["open-shop", "sync"])
def test_the_best_of_all_orders_is_the_least_period(name: str) -> None:
    """All orders of two nodes and all laps: rollouts in lap 0, trains in lap 0 or 1."""
    rng = random.Random(f"all orders {name}")
    for i in range(14):
        case = random_case(rng, 2 + i % 2, KINDS[name], whole=i < 8)
        n, best = len(case.jobs), math.inf
        orders = [tuple((j, 0) for j in order) for order in permutations(range(n))]
        for rollout, train, laps in product(orders, orders, product((0, 1), repeat=n)):
            order = CyclicOrder(
                rollout=(rollout,), train=(train,), laps=tuple(((0, lap),) for lap in laps)
            )
            try:
                schedule = least_period(case.shape(), order)
            except InputError:
                continue
            best = min(best, schedule.period_s)
            assert case.faults(schedule.period_s, schedule.starts_s) == []
        assert best == pytest.approx(oracle_least_period(*case.data())[0], rel=REL), case


@settings(max_examples=300, deadline=None)
@given(cases(), st.floats(1.0, 3.0), st.floats(0.0, 1.0))
@example(EXACT, 1.0, 0.0)
def test_the_order_of_a_schedule_never_lengthens_it(
    case: Case, stretch: float, turn: float
) -> None:
    """Stretched by a factor (a larger C never hurts) and turned, a schedule stays valid."""
    shape = case.shape()
    short = construct(shape)
    assert short is not None
    period = stretch * short.period_s
    starts = tuple(
        tuple((stretch * x + turn * period, stretch * y + turn * period) for x, y in pairs)
        for pairs in short.starts_s
    )
    assert verify(period, starts, *case.data()) == []
    schedule = least_period(shape, order_of(shape, period, starts))
    assert schedule.period_s <= period * (1 + 1e-9)
    case.assert_valid(schedule)
    again = least_period(shape, order_of(shape, schedule.period_s, schedule.starts_s))
    assert again.period_s == pytest.approx(schedule.period_s, rel=1e-9)  # nothing is left to gain


def test_the_order_of_an_optimal_schedule_has_the_least_period() -> None:
    for case, least, starts in (
        solved_cases()["sync"] + solved_cases()["gangs-all"] + solved_cases()["rates"]
    ):
        shape = case.shape()
        stretched = tuple(tuple((1.4 * x, 1.4 * y) for x, y in pairs) for pairs in starts)
        schedule = least_period(shape, order_of(shape, 1.4 * least, stretched))
        assert schedule.period_s == pytest.approx(least, rel=REL), case
