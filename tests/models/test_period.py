"""The period of one group: the facts of design section 3, and our code against the oracle.

Groups are :class:`Case`, jobs with pins and rates; the oracle gets their run and switch seconds
apart, so it also checks what :meth:`GroupShape.of` adds. Every schedule is judged twice, by the
oracle's ``verify`` and by ``instances.checker``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, permutations, product
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instances.checker import check_group
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement, Limits
from models.period import (
    CyclicOrder,
    GroupShape,
    Schedule,
    Starts,
    construct,
    insert,
    least_period,
    lower_bound,
    lower_bound_s,
    open_shop,
    order_of,
)
from oracles.least_period import Data, build, period_of_heights, verify
from oracles.least_period import least_period as oracle_least_period
from oracles.least_period import lower_bound as oracle_lower_bound

#: Remove with the fix: ``models.period._one_node_first`` puts a start that is past the end of
#: its window by round-off at the *begin* of the window instead of the end.
#: Relative difference between our periods and the oracle's (its LP is good to about 1e-9).
REL = 1e-6
Pins = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """Jobs of one group with their pins and rates."""

    jobs: tuple[Job, ...]
    rollout_pins: Pins
    train_pins: Pins
    rates: tuple[int, ...]

    def shape(self) -> GroupShape:
        return GroupShape.of(self.jobs, self.rollout_pins, self.train_pins, self.rates)

    def data(self) -> Data:
        return Data(
            [job.rollout_s for job in self.jobs],
            [job.train_s for job in self.jobs],
            [job.sync_s for job in self.jobs],
            self.rollout_pins,
            self.train_pins,
            self.rates,
            [job.rollout_switch_s for job in self.jobs],
            [job.train_switch_s for job in self.jobs],
        )

    def first(self, n: int) -> Case:
        """The same group with its first ``n`` jobs only."""
        return Case(self.jobs[:n], self.rollout_pins[:n], self.train_pins[:n], self.rates[:n])

    def faults(self, period_s: float, starts_s: Starts, limit_s: float | None = None) -> list[str]:
        """What the oracle's verifier and the project's checker find wrong.

        Deadlines are such that the period may be ``limit_s``, or the period itself.
        """
        limit = period_s if limit_s is None else limit_s
        jobs = [
            replace(job, slo=limit / (rate * job.solo_s))
            for job, rate in zip(self.jobs, self.rates, strict=True)
        ]
        group = GroupVersion(
            group_id="g",
            from_s=0.0,
            to_s=3600.0,
            period_s=period_s,
            rollout_nodes=tuple(sorted({x for pins in self.rollout_pins for x in pins})),
            train_nodes=tuple(sorted({x for pins in self.train_pins for x in pins})),
            placements=tuple(
                JobPlacement(job_id=job.job_id, rollout_pins=r, train_pins=t, starts_s=s, rate=k)
                for job, r, t, s, k in zip(
                    jobs, self.rollout_pins, self.train_pins, starts_s, self.rates, strict=True
                )
            ),
        )
        limits = Limits(max_group_size=0, max_rate=max(self.rates))
        found = check_group(group, JobTable.from_jobs(jobs), DEFAULT_CLUSTER, limits)
        # the checker's tolerance, so that a long period is judged alike by both
        tolerance_s = 1e-6 + 1e-9 * period_s
        return [
            *verify(period_s, starts_s, *self.data(), tolerance_s=tolerance_s),
            *(violation.message for violation in found),
        ]

    def assert_valid(self, schedule: Schedule, limit_s: float | None = None) -> None:
        assert self.faults(schedule.period_s, schedule.starts_s, limit_s) == [], self
        assert all(0 <= pairs[0][0] < schedule.period_s for pairs in schedule.starts_s), self


def case_of(
    rollout_s: Sequence[float],
    train_s: Sequence[float],
    sync_s: Sequence[float] | None = None,
    rollout_pins: Sequence[Sequence[int]] | None = None,
    train_pins: Sequence[Sequence[int]] | None = None,
    rates: Sequence[int] | None = None,
    rollout_switch_s: Sequence[float] | None = None,
    train_switch_s: Sequence[float] | None = None,
) -> Case:
    """Return a group from columns; all on one node of each kind unless told otherwise."""
    n = len(rollout_s)
    zeros, ones = (0.0,) * n, ((0,),) * n
    r_pins = tuple(tuple(pins) for pins in rollout_pins or ones)
    t_pins = tuple(tuple(pins) for pins in train_pins or ones)
    jobs = tuple(
        Job(
            job_id=f"j{i}",
            rollout_s=rollout_s[i],
            train_s=train_s[i],
            sync_s=(sync_s or zeros)[i],
            slo=1.0,
            rollout_nodes=len(r_pins[i]),
            train_nodes=len(t_pins[i]),
            rollout_switch_s=(rollout_switch_s or zeros)[i],
            train_switch_s=(train_switch_s or zeros)[i],
        )
        for i in range(n)
    )
    return Case(jobs, r_pins, t_pins, tuple(rates or (1,) * n))


#: Node loads and longest iteration are 11; no schedule of 11 exists (design section 3).
SYNC = case_of((5, 5, 1), (2, 3, 6), (2, 3, 0))
#: Unsaturated: loads 11 below the longest iteration 12 (job 2: 6 + 1 + 5); least 12.5.
UNSATURATED_SYNC = case_of((3, 2, 6), (4, 6, 1), (4, 1, 5))
#: The rollouts' pins pairwise intersect: 5 + 3 + 11 + 6 + 9 = 34; no node has more than 31.
GANG = case_of(
    (5, 3, 11, 6, 9),
    (3, 4, 6, 5, 3),
    rollout_pins=((0, 1, 2), (1, 2), (0, 1, 2), (0, 1), (0, 2)),
)
#: Each rollout meets two others, no three meet pairwise, so LB is 2; two arcs of length 1 at
#: a time for five phases take 5 / 2.
FIVE_CYCLE = case_of(
    (1,) * 5,
    (0.25,) * 5,
    rollout_pins=[(i, (i + 1) % 5) for i in range(5)],
    train_pins=[(i,) for i in range(5)],
)
#: Exact fits: job 0's iteration is 0.7 + 0.3 + 0.1 = 1.1, job 1's rollout has 0.1 of slack.
EXACT = case_of((0.7, 0.3), (0.3, 0.1), (0.1, 0.3))
#: The same with a third job.
EXACT_AND_ONE = case_of((0.7, 0.3, 0.1), (0.3, 0.1, 0.1), (0.1, 0.3, 0.0))
#: Orders alone do not fix the period: 6 or 12.
TWO = case_of((5, 1), (1, 5))


class Kind(NamedTuple):
    """What random groups of one kind have; ``single`` = single-node jobs, k = 1."""

    rollout_nodes: int = 1
    train_nodes: int = 1
    gang: bool = False
    most_sync_s: int = 0
    most_switch_s: int = 0
    most_rate: int = 1

    @property
    def single(self) -> bool:
        return not self.gang and self.most_rate == 1


KINDS = {
    "open-shop": Kind(),
    "sync": Kind(most_sync_s=4),
    "nodes": Kind(2, 2, most_sync_s=4, most_switch_s=1),
    "gangs": Kind(3, 2, gang=True),
    "gangs-all": Kind(4, 2, gang=True, most_sync_s=4, most_switch_s=1),
    "rates": Kind(2, 1, most_sync_s=2, most_rate=2),
    "rates-all": Kind(3, 2, gang=True, most_sync_s=2, most_switch_s=1, most_rate=3),
}


def random_case(rng: random.Random, n: int, kind: Kind, *, whole: bool) -> Case:
    """Return a group of ``n`` jobs, phases 1 to 9 s, in whole seconds or not."""

    def seconds(low: int, high: int) -> list[float]:
        return [
            float(rng.randint(low, high)) if whole else rng.uniform(low, high) for _ in range(n)
        ]

    def pins(nodes: int) -> list[list[int]]:
        return [
            sorted(rng.sample(range(nodes), rng.randint(1, nodes if kind.gang else 1)))
            for _ in range(n)
        ]

    return case_of(
        seconds(1, 9),
        seconds(1, 9),
        seconds(0, kind.most_sync_s),
        pins(kind.rollout_nodes),
        pins(kind.train_nodes),
        [rng.randint(1, kind.most_rate) for _ in range(n)],
        seconds(0, kind.most_switch_s),
        seconds(0, kind.most_switch_s),
    )


def random_cases(seed: int, count: int, most: int, names: Sequence[str] = ()) -> list[Case]:
    """Return ``count`` groups of 1 to ``most`` jobs, kind after kind, whole every second time."""
    rng = random.Random(seed)
    kinds = [KINDS[name] for name in names or KINDS]
    return [
        random_case(rng, rng.randint(1, most), kinds[i % len(kinds)], whole=i % 2 == 0)
        for i in range(count)
    ]


@st.composite
def cases(draw: st.DrawFn, most: int = 5, *, most_rate: int = 3) -> Case:
    """Groups of any kind, whole or other seconds, for properties that need no oracle."""
    kind = Kind(
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        gang=draw(st.booleans()),
        most_sync_s=draw(st.sampled_from((0, 4))),
        most_switch_s=draw(st.sampled_from((0, 2))),
        most_rate=draw(st.integers(1, most_rate)),
    )
    rng = random.Random(draw(st.integers(0, 2**32)))
    return random_case(rng, draw(st.integers(1, most)), kind, whole=draw(st.booleans()))


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
POSITIVE = st.floats(1e-3, 1e6)
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


# --- the examples of design section 3 ------------------------------------------------------


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
    for case, least, starts in _solved()["sync"] + _solved()["gangs-all"] + _solved()["rates"]:
        shape = case.shape()
        stretched = tuple(tuple((1.4 * x, 1.4 * y) for x, y in pairs) for pairs in starts)
        schedule = least_period(shape, order_of(shape, 1.4 * least, stretched))
        assert schedule.period_s == pytest.approx(least, rel=REL), case


# --- construction --------------------------------------------------------------------------

#: Random groups per kind that the oracle solves (1 to 4 jobs); 60 x 7 take about 10 s.
SOLVED = 60


@cache
def _solved() -> dict[str, list[tuple[Case, float, Starts]]]:
    """Return random groups per kind with their least period and a schedule of it."""
    out = {}
    for number, name in enumerate(KINDS):
        out[name] = []
        for case in random_cases(900 + number, SOLVED, 4, [name]):
            least, starts = oracle_least_period(*case.data())
            out[name].append((case, least, tuple(tuple(pairs) for pairs in starts)))
    return out


@pytest.mark.parametrize("name", KINDS)
def test_constructed_schedules_are_valid_and_never_below_the_least_period(name: str) -> None:
    for case, least, _ in _solved()[name]:
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
    for case, least, _ in _solved()[name]:
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
    97 to 100 %, rates 50 to 70 %. Where nothing is found although LB is within the limit,
    that is wrong only if the oracle's period is within it too: ``missed`` counts these of 180
    limits per kind (0 for single nodes and 1 to 5 for gangs; with rates about 30).
    """
    solved = _solved()[name]
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

    Measured: 1 in 1,574 here; on 60,000 other groups 1 with k = 1 and 15 with rates.
    """
    failures = tries = 0
    for solved in _solved().values():
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
    data = Data(*(getattr(shape, name) for name in GroupShape.__slots__))
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
    for case, _, _ in _solved()[name]:
        shape = case.shape()
        scaled = replace(
            shape,
            rollout_s=tuple(factor * x for x in shape.rollout_s),
            train_s=tuple(factor * x for x in shape.train_s),
            sync_s=tuple(factor * x for x in shape.sync_s),
        )
        data = Data(*(getattr(scaled, field) for field in GroupShape.__slots__))
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
