"""The cheapest fixed fleet of a waiting target: against full grids, with fakes and by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of, options_of, random_job, table_of
from instances.catalog import catalog_path
from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import Fleet
from instances.trace import read_trace
from planner.policies.registry import POLICIES
from planner.policies.wait_target import TargetMissed, WaitTarget
from planner.replay.replaying import replay
from planner.size.fleet_answer import SearchBox
from planner.size.fleet_replays import FleetFigures, FleetReplays, figures_of
from planner.size.fleet_search import (
    _SHARING,
    LADDER_S,
    cheapest_fleet,
    cheapest_fleets,
    undominated,
    wait_frontier,
)

#: Two jobs that overlap. D = T leaves no time for the switches of sharing, and no bound knows.
TIGHT = {"duration_s": 100.0, "slo": 1.0, "rollout_switch_s": 1.0, "train_switch_s": 1.0}
TWO = table_of(
    job_of("a", 5, 5, arrival_s=0.0, **TIGHT), job_of("b", 5, 5, arrival_s=40.0, **TIGHT)
)


def many(rng: random.Random, n: int) -> JobTable:
    return table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=float(rng.randint(0, 150)),
                duration_s=float(rng.randint(30, 200)),
            )
            for i in range(n)
        )
    )


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait_s", "fleet"), [(0.0, Fleet(2, 2)), (59.0, Fleet(2, 2)), (60.0, Fleet(1, 1))]
)
def test_two_jobs_that_cannot_share(wait_s, fleet):
    # "b" comes at 40 and can have the nodes of "a" at 100.
    answer = cheapest_fleet(TWO, "weave", options_of(), WaitTarget(wait_s, 1.0))
    assert answer.fleet == fleet
    assert answer.usd_per_hour == pytest.approx(fleet.rollout_nodes * PAIR_USD)
    assert answer.proved
    assert not answer.interrupted
    assert answer.result.fleet == fleet
    assert answer.result.checked
    assert answer.figures.waits_s.tolist() == [0.0, 60.0 if fleet == Fleet(1, 1) else 0.0]
    assert answer.box.plain_peak == answer.box.most == Fleet(2, 2)
    assert answer.box.points == 9


def test_a_share_of_late_jobs_needs_fewer_nodes():
    answer = cheapest_fleet(TWO, "weave", options_of(), WaitTarget(0.0, 0.5))
    assert answer.fleet == Fleet(1, 1)
    assert answer.figures.admitted_at_once == 0.5


def test_what_a_node_more_is_worth():
    """A rollout node more lets nobody do with fewer train nodes, nor the other way round."""
    answer = cheapest_fleet(TWO, "solo", options_of(), WaitTarget(0.0, 1.0))
    assert [(w.pool, w.saved, w.worth_usd_per_hour) for w in answer.worth] == [
        ("train", 0, 0.0),
        ("rollout", 0, 0.0),
    ]
    assert [w.node_usd_per_hour for w in answer.worth] == pytest.approx([TRAIN_USD, ROLLOUT_USD])


def test_a_job_wider_than_the_fleet_allowed():
    wide = table_of(job_of("w", 5, 5, rollout_nodes=3, duration_s=50))
    box = SearchBox(most=Fleet(2, 2))
    with pytest.raises(InfeasibleError, match=r"at most 2 rollout.*widest.*3 rollout"):
        cheapest_fleet(wide, "weave", options_of(), WaitTarget(3600.0), box=box)


def test_too_few_nodes_allowed_for_the_target():
    box = SearchBox(most=Fleet(1, 1))
    jobs = table_of(*(job_of(name, 5, 5, rollout_state_gb=1500.0, **TIGHT) for name in "ab"))
    with pytest.raises(InfeasibleError, match=r"2 jobs are present unless.*at least 2"):
        cheapest_fleet(jobs, "weave", options_of(), WaitTarget(0.0), box=box)


def test_replays_alone_can_show_that_nothing_meets_the_target():
    # Loads and DRAM admit both on one node of each kind (0.5 + 0.5), the switch does not.
    box = SearchBox(most=Fleet(1, 1))
    with pytest.raises(InfeasibleError, match="4 fleets 3 are excluded by a bound, and 1 were rep"):
        cheapest_fleet(TWO, "weave", options_of(), WaitTarget(0.0, 1.0), box=box)


def test_no_margin_below_zero():
    with pytest.raises(InputError, match="margin"):
        SearchBox(margin=-1)


def test_every_policy_has_a_bound_or_is_refused():
    without = set(POLICIES) - set(_SHARING)
    assert without == {"swapping", "regroup"}
    for policy in without:
        with pytest.raises(UnsupportedError, match=policy):
            cheapest_fleet(table_of(job_of("a", 10.0, 10.0)), policy, options_of(), WaitTarget(0.0))


# --- against full grids ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_cheapest_fleet_of_a_full_grid(seed):
    """Every fleet of the box with its margin replayed by itself: the same answer, and counts."""
    rng = random.Random(seed)
    jobs = many(rng, 7)
    policy = ("weave", "weave", "solo", "most-idle")[seed % 4]
    convention = ("work", "wallclock")[seed // 4]
    options = options_of(queue=rng.choice(("fifo", "backfill")))
    target = WaitTarget(rng.choice((0.0, 30.0, 100.0)), rng.choice((1.0, 0.7)))
    answer = cheapest_fleet(
        jobs, policy, options, target, convention=convention, box=SearchBox(margin=1)
    )
    most, widest = answer.box.most, (jobs.rollout_nodes.max(), jobs.train_nodes.max())
    late = target.late_allowed(len(jobs))
    meeting = []
    for train, rollout in product(range(most.train_nodes + 1), range(most.rollout_nodes + 1)):
        if rollout < widest[0] or train < widest[1]:
            continue  # a job waits for ever
        fleet = Fleet(rollout, train)
        result = replay(
            jobs, policy, options_of(queue=options.queue, fleet=fleet), convention=convention
        )
        if (result.waits_s > target.wait_s).sum() <= late:
            meeting.append((round(fleet_usd(fleet), 9), train, rollout))
    assert answer.fleet == Fleet(*min(meeting)[:0:-1])
    assert answer.proved
    box = answer.box
    assert box.points == (most.rollout_nodes + 1) * (most.train_nodes + 1)
    assert box.excluded + box.given_up + box.replayed <= box.points
    for worth in answer.worth:
        assert 0 <= worth.worth_usd_per_hour <= worth.node_usd_per_hour + 1e-9


def fleet_usd(fleet: Fleet) -> float:
    return fleet.rollout_nodes * ROLLOUT_USD + fleet.train_nodes * TRAIN_USD


def test_the_fleet_at_the_plain_peak_repeats_the_plain_replay():
    jobs = read_trace(catalog_path("production-200")).jobs
    for convention in ("work", "wallclock"):
        replays = FleetReplays(jobs, "weave", options_of(), convention=convention)
        plain = replay(jobs, "weave", options_of(), convention=convention, check=False)
        fixed = replays.result(replays.plain_peak)
        assert fixed.plan is not None
        assert plain.plan is not None
        assert fixed.plan.groups == plain.plan.groups
        assert not fixed.waits_s.any()


# --- against a fake evaluation --------------------------------------------------------------------

#: Six jobs one after another that share nothing: the plain peak under ``solo`` is 6 + 6, and with
#: a late share of 5 / 6 the bound asks for one node of each pool.
SIX = table_of(*(job_of(f"j{i}", 1, 1, duration_s=100.0) for i in range(6)))
FEW = WaitTarget(0.0, 0.1)


def fake(
    rule: Callable[[Fleet], bool], calls: list[Fleet] | None = None
) -> Callable[[Fleet, WaitTarget], FleetFigures]:
    """Return an evaluation by a rule; it never goes to the end of a fleet that misses."""

    def evaluate(fleet: Fleet, target: WaitTarget) -> FleetFigures:
        if calls is not None:
            calls.append(fleet)
        if not rule(fleet):
            raise TargetMissed(0.0)
        return FleetFigures(
            fleet=fleet,
            waits_s=np.zeros(len(SIX)),
            admitted_at_once=1.0,
            slo_attainment=1.0,
            slo_attainment_with_wait=1.0,
            utilisation={"rollout": 1.0, "train": 1.0},
        )

    return evaluate


def replays_of(rule: Callable[[Fleet], bool], calls: list[Fleet] | None = None) -> FleetReplays:
    return FleetReplays(SIX, "solo", options_of(), evaluate=fake(rule, calls))


def search(rule: Callable[[Fleet], bool], calls: list[Fleet] | None = None, **more):
    return cheapest_fleet(SIX, "solo", options_of(), FEW, replays=replays_of(rule, calls), **more)


@pytest.mark.parametrize("seed", range(30))
def test_any_set_of_meeting_fleets(seed):
    """However they lie, order or none: the cheapest is found, and no fleet is replayed twice."""
    rng = random.Random(seed)
    share = rng.choice((0.05, 0.2, 0.6))
    meeting = {Fleet(r, t) for r in range(1, 7) for t in range(1, 7) if rng.random() < share}
    meeting.add(Fleet(6, 6))
    price = rng.choice((fleet_usd, lambda f: f.rollout_nodes + f.train_nodes))
    calls: list[Fleet] = []
    answer = search(meeting.__contains__, calls, price=price)
    expected = min(meeting, key=lambda f: (round(price(f), 9), f.train_nodes, f.rollout_nodes))
    assert answer.fleet == expected
    assert answer.proved
    assert len(calls) == len(set(calls))
    looked = set(calls)
    wrong = sum(
        a.rollout_nodes <= b.rollout_nodes and a.train_nodes <= b.train_nodes
        for a in looked & meeting
        for b in looked - meeting
    )
    assert answer.pairs_out_of_order == wrong
    assert len(answer.first_pairs) == min(wrong, 5)
    for pair in answer.first_pairs:
        assert pair.meets in meeting
        assert pair.misses not in meeting


def test_a_staircase_is_walked_and_every_cheaper_fleet_looked_at():
    # rollout + 2 train >= 9 with a rollout node at 1 and a train node at 2: cost 9 = (1, 4) or
    # (3, 3) or (5, 2); the fewest train nodes win ties.
    calls: list[Fleet] = []
    progress: list[tuple[int, int]] = []
    answer = search(
        lambda f: f.rollout_nodes + 2 * f.train_nodes >= 9,
        calls,
        price=lambda f: f.rollout_nodes + 2 * f.train_nodes,
        progress=lambda done, total: progress.append((done, total)),
    )
    assert answer.fleet == Fleet(5, 2)
    # Cheaper: rollout + 2 train <= 8 and both >= 1, for t = 1, 2, 3: 6, 4, 2 fleets.
    assert {f for f in calls if f.rollout_nodes + 2 * f.train_nodes < 9} == {
        Fleet(r, t) for r in range(1, 7) for t in range(1, 7) if r + 2 * t < 9
    }
    assert progress[-1][0] == progress[-1][1] > 0
    # With 3 train nodes 3 rollout nodes do, two fewer; with 6 rollout nodes still 2 train nodes.
    assert [(w.pool, w.saved, w.worth_usd_per_hour) for w in answer.worth] == [
        ("train", 2, 2.0),
        ("rollout", 0, 0.0),
    ]


def test_a_node_more_may_be_worse_than_none():
    """With a train node more nothing meets the target: worth nothing, and a pair out of order."""
    answer = search(lambda f: f.train_nodes == 2 or f == Fleet(6, 6))
    assert answer.fleet == Fleet(1, 2)
    train = answer.worth[0]
    assert (train.pool, train.fleet, train.worth_usd_per_hour) == ("train", None, 0.0)
    assert Fleet(1, 3) in {pair.misses for pair in answer.first_pairs}


@pytest.mark.parametrize("after", [1, 2, 5, 10, 17])
def test_ctrl_c_keeps_the_best_fleet(after):
    calls: list[Fleet] = []

    def rule(fleet: Fleet) -> bool:
        if len(calls) > after:
            raise KeyboardInterrupt
        return fleet.rollout_nodes + fleet.train_nodes >= 7

    answer = search(rule, calls)
    assert answer.interrupted
    assert answer.fleet.rollout_nodes + answer.fleet.train_nodes >= 7
    assert answer.proved == (answer.box.cheaper_unexamined == 0)
    assert not answer.proved
    assert answer.worth == ()


def test_ctrl_c_before_any_fleet_is_let_through():
    def rule(fleet: Fleet) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(rule)
    with pytest.raises(KeyboardInterrupt):
        cheapest_fleets(SIX, "solo", options_of(), replays=replays_of(rule))


def test_ctrl_c_in_a_ladder_is_let_through_and_nothing_is_lost():
    def rule(fleet: Fleet) -> bool:
        if len(calls) > 3:
            raise KeyboardInterrupt
        return True

    calls: list[Fleet] = []
    replays = replays_of(rule, calls)
    with pytest.raises(KeyboardInterrupt):
        wait_frontier(SIX, "solo", options_of(), (0.0, 60.0), share=0.1, replays=replays)
    assert [point.fleet for point in undominated(replays)] == [min(calls[:3], key=fleet_usd)]


def test_the_box_is_widened_when_the_plain_peak_misses():
    answer = search(lambda f: f.rollout_nodes == 7)
    assert answer.box.plain_peak == Fleet(6, 6)
    assert answer.box.most == Fleet(7, 7)
    assert answer.fleet == Fleet(7, 1)


# --- several targets ------------------------------------------------------------------------------


def test_what_is_known_of_one_target_serves_others():
    calls: list[Fleet] = []
    replays = replays_of(lambda f: f.rollout_nodes >= 3, calls)
    fleet = Fleet(2, 2)
    assert not replays.meets(fleet, WaitTarget(100.0, 0.9))
    assert replays.known(fleet, WaitTarget(50.0, 0.9)) is False  # stricter
    assert replays.known(fleet, WaitTarget(100.0, 1.0)) is False  # stricter
    assert replays.known(fleet, WaitTarget(101.0, 0.9)) is None
    assert replays.known(fleet, WaitTarget(100.0, 0.5)) is None
    assert not replays.meets(fleet, WaitTarget(50.0, 0.9))
    assert calls == [fleet]
    assert replays.meets(Fleet(3, 1), WaitTarget(0.0, 1.0))
    assert replays.known(Fleet(3, 1), WaitTarget(5.0, 0.5)) is True


def test_figures_are_those_of_the_replay():
    result = replay(TWO, "weave", options_of(fleet=Fleet(1, 1)))
    figures = figures_of(result)
    assert figures.waits_s.tolist() == [0.0, 60.0]
    assert figures.wait_quantile(0.5) == result.wait_quantile(0.5) == 0.0
    assert figures.wait_quantile(0.95) == result.wait_quantile(0.95) == 60.0
    assert figures.utilisation == {"rollout": 1.0, "train": 1.0}  # busy from 0 to 200 s
    assert figures.slo_attainment == 1.0
    assert figures.slo_attainment_with_wait == 0.5
    half = figures_of(replay(TWO, "weave", options_of(fleet=Fleet(4, 2))))
    # 0-140 s; 40 s with one node, 60 with two, 40 with one: 200 / 140 of 4 and of 2.
    assert half.utilisation == pytest.approx({"rollout": 200 / 560, "train": 200 / 280})


@pytest.mark.parametrize("seed", range(3))
def test_a_ladder_is_the_single_answers(seed):
    jobs = many(random.Random(seed), 8)
    waits = (0.0, 20.0, 100.0)
    together = cheapest_fleets(jobs, "weave", options_of(), waits, share=0.8)
    assert [a.target.wait_s for a in together] == list(waits)
    for answer in together:
        alone = cheapest_fleet(jobs, "weave", options_of(), answer.target)
        assert answer.fleet == alone.fleet
        assert answer.proved
    prices = [a.usd_per_hour for a in together]
    assert prices == sorted(prices, reverse=True)


@pytest.mark.parametrize("seed", range(3))
def test_the_frontier_is_undominated_and_holds_every_answer(seed):
    jobs = many(random.Random(seed), 8)
    replays = FleetReplays(jobs, "weave", options_of())
    frontier = wait_frontier(jobs, "weave", options_of(), (0.0, 20.0, 100.0), replays=replays)
    answers = cheapest_fleets(jobs, "weave", options_of(), (0.0, 20.0, 100.0), replays=replays)
    usd = [point.usd_per_hour for point in frontier]
    waits = [point.wait_s for point in frontier]
    assert usd == sorted(set(usd))
    assert waits == sorted(set(waits), reverse=True)
    for answer in answers:
        least = next(p for p in frontier if p.wait_s <= answer.target.wait_s)
        assert least.usd_per_hour == pytest.approx(answer.usd_per_hour)
        assert answer.target.wait_s in least.proved_for_s
    for point in frontier:
        assert point.wait_p50_s <= point.wait_p95_s <= point.wait_max_s
        assert point.slo_attainment_with_wait <= point.slo_attainment


def test_the_ladder_of_the_command():
    assert [wait_s / 60 for wait_s in LADDER_S] == [0, 10, 30, 60, 120, 240, 480]


def test_a_policy_without_a_bound_is_refused_by_name() -> None:
    jobs = table_of(job_of("a", 10.0, 10.0))
    with pytest.raises(UnsupportedError, match="got 'swapping': no bound"):
        cheapest_fleet(jobs, "swapping", options_of(), WaitTarget(0.0))
