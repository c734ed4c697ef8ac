"""The checker on moves: pauses, the stays and SLO they change, and held nodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checker_cases import (
    ALONE_B,
    JOB_A,
    JOB_B,
    alone_b,
    facts,
    moved_plan,
    only,
    pinned,
    plan_of,
)
from instances.checker import check_plan, recost
from instances.jobs import JobTable
from instances.pause_checker import Pauses
from instances.plan import DedicatedNodes, GroupVersion, HeldNodes, Pause, Plan

both_conventions = pytest.mark.parametrize("durations", ["work", "wallclock"])
ROLLOUT_USD, TRAIN_USD = 8 * 1.85, 8 * 5.28
OLD = HeldNodes(group_id="g", from_s=30.0, to_s=45.0, rollout_nodes=1, train_nodes=1)


@both_conventions
def test_a_move_with_its_pause_is_valid(durations: str) -> None:
    report = check_plan(moved_plan(durations=durations))
    assert report.violations == ()
    assert report.usd_total_recomputed == pytest.approx((ROLLOUT_USD + TRAIN_USD) * 80 / 3600)


# --- Broken by a little --------------------------------------------------------------------------


def short_pause(x: float) -> Plan:
    return moved_plan(pauses=((30.0, 50.0 - x),), end_s=80.0 - x)


def two_pauses_at_once(x: float) -> Plan:
    """The second pause, of 5 s, begins before the restart ends."""
    return moved_plan(pauses=((30.0, 50.0), (50.0 - x, 55.0)), end_s=85.0)


def pause_after_the_stay(x: float) -> Plan:
    return moved_plan(pauses=((30.0, 50.0), (80.0, 85.0 + x)), end_s=85.0)


def pause_before_the_stay(x: float) -> Plan:
    return moved_plan(pauses=((-x, 5.0), (35.0, 55.0)), move_s=35.0, end_s=85.0)


def tight_slo(x: float) -> Plan:
    return moved_plan(slo=(80.0 - x) / 60.0)


LITTLE: list[tuple[Callable[[float], Plan], str]] = [
    (short_pause, "pause"),
    (two_pauses_at_once, "pause"),
    (pause_after_the_stay, "pause"),
    (pause_before_the_stay, "pause"),
    (tight_slo, "slo"),
]


@both_conventions
@pytest.mark.parametrize(("build", "rule"), LITTLE, ids=[case[0].__name__ for case in LITTLE])
def test_a_little_beyond_a_limit(build: Callable[[float], Plan], rule: str, durations: str) -> None:
    # Moments within 1e-6 s; the SLO within 1e-6 s and 1e-9 of 80 s.
    def report(x: float) -> Any:
        return check_plan(dataclasses.replace(build(x), durations=durations))

    assert report(0.0).ok
    assert report(0.9e-6).ok
    for x in (1.2e-6, 0.01):
        broken = only(report(x))
        assert (broken.rule, broken.job_id, broken.unit) == (rule, "b", "s")
        assert broken.amount == pytest.approx(x, rel=1e-6, abs=1e-9)
        assert broken.message.startswith("Expected ")
        assert broken.message.endswith(".")


def test_a_stay_is_longer_by_its_pauses_and_no_more() -> None:
    # wallclock: 60 s and 20 s of pause; work: 60 s outside pauses, at 6 s an iteration.
    assert facts(check_plan(moved_plan(durations="wallclock", end_s=80.01)).violations) == [
        ("stay", "b", None, pytest.approx(0.01))
    ]
    assert facts(check_plan(moved_plan(durations="wallclock", end_s=60.0)).violations) == [
        ("stay", "b", None, pytest.approx(20.0))
    ]
    broken = only(check_plan(moved_plan(end_s=60.0)))
    assert (broken.rule, broken.unit) == ("stay", "iterations")
    assert broken.amount == pytest.approx(20 / 6)


def test_messages_name_job_moment_expected_and_got() -> None:
    broken = only(check_plan(short_pause(1.0)))
    assert broken.message == (
        "Expected pause of job 'b', moved to group 'h' at 30 s, >= 20 s, got 19 (1 s too short)."
    )
    assert (broken.group_id, broken.from_s) == ("h", 30.0)
    assert only(check_plan(tight_slo(8.0))).message == (
        "Expected attained slowdown of job 'b', pauses counted, <= slo 1.2, got 1.333333333 "
        "(8 s too long)."
    )


# --- Each move has its pause ---------------------------------------------------------------------


def test_a_move_without_a_pause_is_refused() -> None:
    # 60 s and 10 iterations: all else is right.
    plan = moved_plan(pauses=(), end_s=60.0)
    assert facts(check_plan(plan).violations) == [("pause", "b", None, 20.0)]
    fixed = dataclasses.replace(plan, pins_fixed=True)  # then no move is right at all
    assert [v.rule for v in check_plan(fixed).violations] == ["pins"]
    at_once = plan.jobs.replace(optional={"restart_s": [0.0]})
    assert check_plan(dataclasses.replace(plan, jobs=at_once)).ok


def test_a_pause_starts_with_its_move_within_the_tolerance() -> None:
    for x in (0.9e-6, -0.9e-6):
        assert check_plan(moved_plan(pauses=((30.0 + x, 50.0),))).ok
    for x in (1.2e-6, -1.2e-6):
        broken = only(check_plan(moved_plan(pauses=((30.0 + x, 50.0),))))
        assert (broken.rule, broken.amount) == ("pause", 20.0)
    # A sliver at the same moment, within the tolerance, does not stand for the pause.
    for sliver in ((30.0, 30.0 + 5e-7), (30.0 - 5e-7, 30.0)):
        assert check_plan(moved_plan(pauses=(sliver, (30.0, 50.0)))).ok


@pytest.mark.parametrize("from_s", [29.0, 31.0])
def test_a_pause_at_another_moment_is_not_that_of_the_move(from_s: float) -> None:
    plan = moved_plan(pauses=((from_s, from_s + 20.0),))
    assert facts(check_plan(plan).violations) == [("pause", "b", None, 20.0)]


def test_a_change_of_pins_within_the_group_is_a_move() -> None:
    def second(**pins: tuple[int, ...]) -> GroupVersion:
        nodes = {f"{pool.split('_')[0]}_nodes": nodes for pool, nodes in pins.items()}
        return alone_b("g", 30.0, 60.0, placements=(pinned(ALONE_B, **pins),), **nodes)

    def report(*groups: GroupVersion) -> list[tuple[Any, ...]]:
        plan = moved_plan(pauses=(), end_s=60.0)
        plan = dataclasses.replace(plan, groups=groups)
        return facts(check_plan(plan).violations)

    first = alone_b("g", 0.0, 30.0)
    assert report(first, second()) == []
    assert report(first, second(train_pins=(0,))) == [("pause", "b", None, 20.0)]
    assert report(first, second(rollout_pins=(1,))) == [("pause", "b", None, 20.0)]


def test_pins_in_another_order_are_the_same_pins() -> None:
    # Job a on train nodes 0 and 3, T_a = 7, twice 35 s.
    place = pinned(ALONE_B, job_id="a", train_pins=(0, 3), starts_s=((0.0, 4.0),))
    first = alone_b("g", 0.0, 35.0, placements=(place,), train_nodes=(0, 3), period_s=7.0)
    turned = pinned(place, train_pins=(3, 0))
    second = dataclasses.replace(first, from_s=35.0, to_s=70.0, placements=(turned,))
    assert check_plan(plan_of(first, second, jobs=(JOB_A,), pins_fixed=False)).ok


def test_only_the_job_that_moves_pauses() -> None:
    # a stays in g, alone once b has left for h; a: 30 s at period 10 and 28 s at period 7.
    shared = plan_of().groups[0]
    plan = plan_of(
        dataclasses.replace(shared, to_s=30.0),
        dataclasses.replace(
            shared,
            from_s=30.0,
            to_s=58.0,
            period_s=7.0,
            placements=(pinned(shared.placements[0], starts_s=((0.0, 4.0),)),),
        ),
        alone_b("h", 30.0, 80.0),
        jobs=(
            dataclasses.replace(JOB_A, duration_s=49.0),  # 3 + 4 iterations of 7
            dataclasses.replace(JOB_B, duration_s=48.0, restart_s=20.0),  # 3 + 5 of 6
        ),
        pins_fixed=False,
        pauses=(Pause(job_id="b", from_s=30.0, to_s=50.0),),
    )
    assert check_plan(plan).violations == ()
    report = check_plan(dataclasses.replace(plan, pauses=()))
    assert [(v.rule, v.job_id) for v in report.violations] == [("pause", "b"), ("stay", "b")]


def test_a_second_move_waits_for_the_first_restart() -> None:
    def report(again_s: float) -> list[tuple[Any, ...]]:
        """Move at 30 s and at again_s; 30 s of running before the first, 30 s after both."""
        plan = moved_plan(pauses=((30.0, 50.0), (again_s, again_s + 20.0)))
        end_s = again_s + 20.0 + 30.0
        groups = (
            alone_b("g", 0.0, 30.0),
            alone_b("h", 30.0, again_s),
            alone_b("i", again_s, end_s),
        )
        return facts(check_plan(plan_of(*groups, jobs=tuple(plan.jobs), pins_fixed=False,
                                        pauses=plan.pauses)).violations)  # fmt: skip

    assert report(50.0) == []
    assert report(45.0) == [("pause", "b", None, 5.0)]


@both_conventions
def test_a_pause_needs_no_move(durations: str) -> None:
    group = alone_b("g", 0.0, 70.0)
    pauses = (Pause(job_id="b", from_s=20.0, to_s=30.0),)
    for pins_fixed in (True, False):
        plan = plan_of(
            group, jobs=(JOB_B,), pauses=pauses, pins_fixed=pins_fixed, durations=durations
        )
        assert check_plan(plan).ok


def test_a_pause_across_versions_counts_in_each() -> None:
    # Paused [10, 30) over a change of period at 20: 10 / 6 + 12 / 12 iterations, 16 s alone.
    slow = alone_b("g", 20.0, 42.0, period_s=12.0)
    job = dataclasses.replace(JOB_B, duration_s=16.0, slo=42 / 16)
    plan = plan_of(
        alone_b("g", 0.0, 20.0),
        slow,
        jobs=(job,),
        pauses=(Pause(job_id="b", from_s=10.0, to_s=30.0),),
    )
    assert check_plan(plan).ok


def test_joints_of_a_stay_within_the_tolerance_are_no_way_out_of_it() -> None:
    # Twice 0.9e-6 s between versions, both inside the pause.
    joints = (0.0, 30.0, 40.0, 45.0, 80.0)
    groups = [
        alone_b("g" if k == 0 else "h", at + (0.9e-6 if k >= 2 else 0.0), joints[k + 1])
        for k, at in enumerate(joints[:-1])
    ]
    plan = moved_plan()
    plan = plan_of(*groups, jobs=tuple(plan.jobs), pins_fixed=False, pauses=plan.pauses)
    assert check_plan(plan).ok


# --- What a pause must be ------------------------------------------------------------------------


def test_pauses_are_of_known_synchronous_jobs() -> None:
    stranger = Pause(job_id="z", from_s=0.0, to_s=1.0)
    broken = only(check_plan(plan_of(pauses=(stranger,))))
    assert (broken.rule, broken.job_id) == ("pause", "z")
    job = dataclasses.replace(JOB_A, job_id="c", mode="async")
    nodes = DedicatedNodes(job_id="c", from_s=0.0, to_s=70.0, rollout_nodes=1, train_nodes=2)
    parallel = Pause(job_id="c", from_s=0.0, to_s=1.0)
    plan = plan_of(jobs=(JOB_A, JOB_B, job), dedicated=(nodes,), pauses=(parallel,))
    broken = only(check_plan(plan))
    assert (broken.rule, broken.job_id) == ("pause", "c")


@pytest.mark.parametrize(
    ("from_s", "to_s", "amount"),
    [(30.0, 30.0, 0.0), (30.0, 29.0, 1.0), (30.0, math.inf, None), (math.nan, 50.0, None)],
)
def test_a_malformed_pause_is_named_alone(from_s: float, to_s: float, amount: float | None) -> None:
    # What its job does instead is unknown: neither the move nor the stay is judged.
    plan = moved_plan(pauses=((from_s, to_s), (60.0, 61.0)))
    assert facts(check_plan(plan).violations) == [("pause", "b", None, amount)]


def test_pauses_inside_another_are_each_named() -> None:
    plan = moved_plan(pauses=((30.0, 50.0), (31.0, 32.0), (40.0, 42.0)))
    assert facts(check_plan(plan).violations) == [
        ("pause", "b", None, 1.0),
        ("pause", "b", None, 2.0),
    ]


def test_pauses_of_a_job_without_a_stay_are_not_judged() -> None:
    # Nowhere, or somewhere unknown: that is said, and nothing follows from it.
    pauses = (Pause(job_id="b", from_s=0.0, to_s=1.0),)
    only_a = alone_b(
        "g",
        0.0,
        70.0,
        period_s=7.0,
        train_nodes=(0, 3),
        placements=(pinned(ALONE_B, job_id="a", train_pins=(0, 3), starts_s=((0.0, 4.0),)),),
    )
    assert facts(check_plan(plan_of(only_a, pauses=pauses)).violations) == [
        ("coverage", "b", None, 1.0)
    ]
    twice = (alone_b("g", 0.0, 60.0), alone_b("h", 100.0, 99.0))
    report = check_plan(plan_of(*twice, jobs=(JOB_B,), pauses=(pauses[0],)))
    assert report.counts == {"format": 1}


def test_a_snapshot_has_no_pauses_and_no_held_nodes() -> None:
    hour = alone_b("g", 0.0, 3600.0)
    kept = dataclasses.replace(OLD, from_s=3600.0, to_s=3700.0)
    changes: dict[str, Any] = {"jobs": (JOB_B,), "durations": "snapshot", "pins_fixed": False}
    assert check_plan(plan_of(hour, **changes)).ok
    pauses = (Pause(job_id="b", from_s=0.0, to_s=20.0),) * 2
    assert facts(check_plan(plan_of(hour, pauses=pauses, **changes)).violations) == [
        ("pause", None, None, 2.0)
    ]
    assert facts(check_plan(plan_of(hour, held=(kept,), **changes)).violations) == [
        ("held", None, None, 1.0)
    ]


def test_being_in_two_groups_of_a_snapshot_is_no_move() -> None:
    twice = (alone_b("g", 0.0, 3600.0), alone_b("h", 0.0, 3600.0))
    plan = plan_of(*twice, jobs=(JOB_B,), durations="snapshot", pins_fixed=False)
    assert only(check_plan(plan)).rule == "coverage"


@pytest.mark.parametrize("bad", [-1.0, math.inf])
def test_no_restart_is_negative_or_endless(bad: float) -> None:
    plan = moved_plan()
    plan = dataclasses.replace(plan, jobs=plan.jobs.replace(optional={"restart_s": [bad]}))
    assert [(v.rule, v.job_id) for v in check_plan(plan).violations] == [("pause", "b")]


def test_a_job_paused_to_its_end_has_no_slowdown() -> None:
    # No iteration done at all: 80 s > slo x 0.
    report = check_plan(moved_plan(pauses=((0.0, 30.0), (30.0, 80.0))))
    assert [(v.rule, v.job_id) for v in report.violations] == [("stay", "b"), ("slo", "b")]
    assert report.violations[1].amount == 80.0
    assert "got inf" in report.violations[1].message


# --- Held nodes ----------------------------------------------------------------------------------


def test_held_nodes_are_paid_and_counted() -> None:
    plan = moved_plan(held=(OLD,))
    report = check_plan(plan)
    assert report.violations == ()
    usd = (ROLLOUT_USD + TRAIN_USD) * (80 + 15) / 3600
    assert report.usd_total_recomputed == recost(plan) == pytest.approx(usd)
    assert report.peak_nodes == {"rollout": 2, "train": 2}  # the old and the new ones
    assert check_plan(moved_plan()).peak_nodes == {"rollout": 1, "train": 1}
    free = dataclasses.replace(plan, usd_total=moved_plan().usd_total)
    assert [v.rule for v in check_plan(free).violations] == ["cost"]


def test_held_nodes_start_at_the_end_of_a_version() -> None:
    def report(x: float) -> Any:
        return check_plan(moved_plan(held=(dataclasses.replace(OLD, from_s=30.0 + x),)))

    for x in (0.9e-6, -0.9e-6):
        assert report(x).ok
    for x in (1.2e-6, -1.2e-6, 0.01):
        broken = only(report(x))
        assert (broken.rule, broken.group_id, broken.unit) == ("held", "g", "s")
        assert broken.amount == pytest.approx(abs(x), rel=1e-6)


HELD_FAULTS: list[tuple[str, dict[str, Any], float | None]] = [
    ("a rollout node too many", {"rollout_nodes": 2}, 1.0),
    ("two train nodes too many", {"train_nodes": 3}, 2.0),
    ("none", {"rollout_nodes": 0, "train_nodes": 0}, 1.0),
    ("less than none", {"rollout_nodes": -2}, 2.0),
    ("unknown group", {"group_id": "z"}, 1.0),
    ("backwards", {"to_s": 29.0}, 1.0),
    ("empty", {"to_s": 30.0}, 0.0),
]


@pytest.mark.parametrize(
    ("changes", "amount"), [c[1:] for c in HELD_FAULTS], ids=[c[0] for c in HELD_FAULTS]
)
def test_what_held_nodes_must_be(changes: dict[str, Any], amount: float | None) -> None:
    item = dataclasses.replace(OLD, **changes)
    broken = only(check_plan(moved_plan(held=(item,))))
    assert (broken.rule, broken.group_id, broken.amount) == ("held", item.group_id, amount)


def test_held_nodes_are_those_of_the_version_that_ended() -> None:
    # Group g has 2 + 3 nodes until a leaves at 30 s, then 1 + 1 until 60 s.
    a, b = plan_of().groups[0].placements
    both = (pinned(a, rollout_pins=(1,), train_pins=(0, 1, 3)), b)
    shared = alone_b("g", 0.0, 30.0, period_s=10.0, placements=both)
    shared = dataclasses.replace(shared, rollout_nodes=(0, 1), train_nodes=(0, 1, 3))
    groups = (shared, alone_b("g", 30.0, 60.0))
    jobs = (
        dataclasses.replace(
            JOB_A, duration_s=21.0, train_nodes=3
        ),  # 3 iterations of 7 in 3 periods
        dataclasses.replace(JOB_B, duration_s=48.0),  # 3 of 6, and 5 alone
    )

    def report(from_s: float, rollout: int, train: int) -> list[tuple[Any, ...]]:
        item = HeldNodes(
            group_id="g", from_s=from_s, to_s=90.0, rollout_nodes=rollout, train_nodes=train
        )
        return facts(check_plan(plan_of(*groups, jobs=jobs, held=(item,))).violations)

    assert report(30.0, 2, 3) == []
    assert report(60.0, 1, 1) == []
    assert report(60.0, 1, 2) == report(60.0, 2, 1) == [("held", None, None, 1.0)]
    assert report(30.0, 3, 3) == report(30.0, 2, 4) == [("held", None, None, 1.0)]


def test_endless_held_nodes_have_no_price() -> None:
    item = dataclasses.replace(OLD, to_s=math.inf)
    assert check_plan(moved_plan(held=(item,))).counts == {"held": 1, "cost": 1}


@pytest.mark.parametrize("counts", [(1, 0), (0, 1), (1, 1)])
def test_nodes_of_one_pool_may_be_held_alone(counts: tuple[int, int]) -> None:
    item = dataclasses.replace(OLD, rollout_nodes=counts[0], train_nodes=counts[1])
    assert check_plan(moved_plan(held=(item,))).ok


# --- Properties ----------------------------------------------------------------------------------

#: Seconds run before each move or at last, and seconds of the restart that follows.
steps = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), min_size=2, max_size=6)


def plan_of_moves(rows: list[tuple[int, int]], durations: str) -> Plan:
    """Return b moved between the rows, each pause as long as the longest restart of all."""
    restart_s = float(max(seconds for _, seconds in rows))
    groups, pauses, now_s = [], [], 0.0
    for k, (run_s, _) in enumerate(rows):
        start_s = now_s
        if k and restart_s:
            pauses.append(Pause(job_id="b", from_s=now_s, to_s=now_s + restart_s))
            now_s += restart_s
        now_s += run_s
        groups.append(alone_b(f"g{k}", start_s, now_s))
    ran_s = float(sum(run_s for run_s, _ in rows))
    job = dataclasses.replace(JOB_B, duration_s=ran_s, restart_s=restart_s, slo=now_s / ran_s)
    return plan_of(
        *groups, jobs=(job,), pauses=tuple(pauses), pins_fixed=False, durations=durations
    )


@given(steps, st.sampled_from(["work", "wallclock"]), st.data())
def test_moves_each_with_its_pause_are_valid_and_each_pause_is_needed(
    rows: list[tuple[int, int]], durations: str, data: st.DataObject
) -> None:
    plan = plan_of_moves(rows, durations)
    assert check_plan(plan).violations == ()
    if not plan.pauses:
        return
    gone = data.draw(st.integers(0, len(plan.pauses) - 1))
    rest = tuple(p for k, p in enumerate(plan.pauses) if k != gone)
    report = check_plan(dataclasses.replace(plan, pauses=rest))
    # Without it the stay is too long as well; the SLO is met the more.
    assert [(v.rule, v.job_id) for v in report.violations] == [("pause", "b"), ("stay", "b")]
    assert report.violations[0].from_s == plan.pauses[gone].from_s


@example([(0, 8), (1, 2)], 0, 10)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=5),
    st.integers(0, 20),
    st.integers(1, 10),
)
def test_paused_seconds_are_those_of_the_union(
    rows: list[tuple[int, int]], from_s: int, length_s: int
) -> None:
    spans = [(start, start + length) for start, length in rows]
    plan = plan_of(
        pauses=tuple(Pause(job_id="b", from_s=float(a), to_s=float(b)) for a, b in spans)
    )
    pauses = Pauses(plan, {"a": 0, "b": 1})
    paused = {second for a, b in spans for second in range(a, b)}
    within = paused & set(range(from_s, from_s + length_s))
    assert pauses.seconds("b", from_s, from_s + length_s) == len(within)
    assert pauses.seconds("a", from_s, from_s + length_s) == 0.0
    assert ("b" in pauses, "a" in pauses) == (bool(rows), False)


def test_the_order_of_pauses_does_not_matter() -> None:
    plan = moved_plan(pauses=((30.0, 50.0), (60.0, 61.0), (5.0, 6.0)), move_s=30.0, end_s=82.0)
    back = dataclasses.replace(plan, pauses=plan.pauses[::-1])
    assert check_plan(plan).violations == check_plan(back).violations == ()


def test_the_table_of_a_plan_holds_the_restarts() -> None:
    table = JobTable.from_jobs([dataclasses.replace(JOB_B, restart_s=20.0)])
    assert moved_plan().jobs.restart_s.tolist() == table.restart_s.tolist() == [20.0]
