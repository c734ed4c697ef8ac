"""The checker on whole plans: each rule broken by a little, stays, coverage and cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker_cases import (
    GROUP,
    GROUP_USD_PER_HOUR,
    JOB_A,
    JOB_B,
    PLACE_A,
    PLACE_B,
    cluster_of,
    facts,
    group_of,
    only,
    pinned,
    plan_of,
    with_starts,
)
from instances.checker import RULES, CheckReport, check_group, check_plan, recost
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job
from instances.plan import (
    DedicatedNodes,
    GroupVersion,
    HeldNodes,
    JobPlacement,
    Limits,
    Pause,
    Plan,
)


def test_the_base_plan_is_valid() -> None:
    report = check_plan(plan_of())
    assert report.ok
    assert report.violations == ()
    assert report.counts == {}
    assert (report.n_groups, report.n_jobs) == (1, 2)
    assert report.peak_nodes == {"rollout": 1, "train": 2}
    assert report.usd_total_recomputed == pytest.approx(GROUP_USD_PER_HOUR * 100 / 3600)


# --- Broken by a little: x beyond the limit, caught above the tolerance only -----------------


def late_arrival(x: float) -> Plan:
    return plan_of(jobs=(dataclasses.replace(JOB_A, arrival_s=-x), JOB_B))


def gap(x: float) -> Plan:
    """Job b, alone in its own group, is absent for x seconds after 40 s."""
    place = dataclasses.replace(PLACE_B, starts_s=((0.0, 3.0),))
    one = group_of(place, train_nodes=(3,), period_s=6.0, to_s=40.0)
    two = dataclasses.replace(one, from_s=40.0 + x, to_s=60.0 + x)
    return plan_of(one, two, jobs=(JOB_B,))


def double(x: float) -> Plan:
    """Job b, which restarts at once, is in two groups during x seconds (pins may change)."""
    plan = gap(-x)
    other = dataclasses.replace(plan.groups[1], group_id="h")
    job = dataclasses.replace(JOB_B, restart_s=0.0)
    return plan_of(plan.groups[0], other, jobs=(job,), pins_fixed=False)


def residency(x: float) -> Plan:
    return plan_of(cluster=cluster_of(1900.0 - x))


def early_train(x: float) -> Plan:
    return plan_of(group_of(with_starts(PLACE_A, (0.0, 4.5 - x)), PLACE_B))


def early_next_rollout(x: float) -> Plan:
    """Job a's sync of 3.25 + x seconds ends x after its next rollout starts."""
    job = dataclasses.replace(JOB_A, sync_s=3.25 + x, duration_s=10 * (9.25 + x))
    return plan_of(jobs=(job, JOB_B))


def overlap(x: float) -> Plan:
    return plan_of(group_of(PLACE_A, with_starts(PLACE_B, (4.5 - x, 8.0))))


def wrapped_overlap(x: float) -> Plan:
    """Train of b, [11.25 + x, 14.5 + x), runs into a's next one at 14.5 (on node 3, not 0)."""
    return plan_of(group_of(PLACE_A, with_starts(PLACE_B, (6.5, 11.25 + x))))


def slo(x: float) -> Plan:
    return plan_of(jobs=(dataclasses.replace(JOB_A, slo=(10.0 - x) / 7.0), JOB_B))


def negative_start(x: float) -> Plan:
    return plan_of(group_of(with_starts(PLACE_A, (-x, 4.5)), PLACE_B))


def start_past_the_period(x: float) -> Plan:
    later = with_starts(PLACE_B, (5.0, 8.5))
    return plan_of(group_of(with_starts(PLACE_A, (10.0 + x, 14.5 + x)), later))


def versions_at_once(x: float) -> Plan:
    """Group g serves b from x seconds before a leaves it."""
    a = with_starts(dataclasses.replace(PLACE_A), (0.0, 4.0))
    b = with_starts(dataclasses.replace(PLACE_B), (0.0, 3.0))
    one = group_of(a, period_s=7.0, to_s=70.0)
    two = group_of(b, train_nodes=(3,), period_s=6.0, from_s=70.0 - x, to_s=130.0 - x)
    return plan_of(one, two, jobs=(JOB_A, dataclasses.replace(JOB_B, arrival_s=70.0 - x)))


def short_wallclock_stay(x: float) -> Plan:
    job_a = dataclasses.replace(JOB_A, duration_s=100.0 + x)
    return plan_of(
        jobs=(job_a, dataclasses.replace(JOB_B, duration_s=100.0)), durations="wallclock"
    )


def dedicated_stay(x: float) -> Plan:
    """An async job, 2 + 1 nodes, stays x seconds less than its duration."""
    job = Job(
        job_id="c", rollout_s=5, train_s=5, slo=1, duration_s=50 + x, rollout_nodes=2, mode="async"
    )
    item = DedicatedNodes(job_id="c", from_s=0.0, to_s=50.0, rollout_nodes=2, train_nodes=1)
    return plan_of(jobs=(JOB_A, JOB_B, job), dedicated=(item,))


def snapshot_end(x: float) -> Plan:
    group = group_of(from_s=7200.0, to_s=10800.0)
    one = dataclasses.replace(PLACE_A, job_id="c", starts_s=((0.0, 4.0),))
    other = group_of(one, group_id="h", from_s=7200.0, to_s=10800.0 - x, period_s=7.0)
    jobs = (JOB_A, JOB_B, dataclasses.replace(JOB_A, job_id="c"))
    return plan_of(group, other, jobs=jobs, durations="snapshot")


LITTLE: list[tuple[Callable[[float], Plan], str, str | None, str | None, str]] = [
    (late_arrival, "coverage", "a", None, "s"),
    (gap, "coverage", "b", None, "s"),
    (double, "coverage", "b", None, "s"),
    (snapshot_end, "coverage", "c", None, "s"),
    (residency, "residency", None, "train 3", "GB"),
    (early_train, "precedence", "a", None, "s"),
    (early_next_rollout, "precedence", "a", None, "s"),
    (overlap, "overlap", "b", "rollout 0", "s"),
    (wrapped_overlap, "overlap", "a", "train 3", "s"),
    (slo, "slo", "a", None, "s"),
    (negative_start, "format", "a", None, "s"),
    (start_past_the_period, "format", "a", None, "s"),
    (versions_at_once, "pins", None, None, "s"),
    (short_wallclock_stay, "stay", "a", None, "s"),
    (dedicated_stay, "mode", "c", None, "s"),
]


@pytest.mark.parametrize(
    ("build", "rule", "job_id", "node", "unit"), LITTLE, ids=[case[0].__name__ for case in LITTLE]
)
def test_a_little_beyond_a_limit(
    build: Callable[[float], Plan], rule: str, job_id: str | None, node: str | None, unit: str
) -> None:
    # Tolerances: 1e-6 GB; 1e-6 s plus 1e-9 of the period or duration (here at most 1e-7 s).
    assert check_plan(build(0.0)).ok
    assert check_plan(build(0.9e-6)).ok
    for x in (1.2e-6, 0.01):
        broken = only(check_plan(build(x)))
        assert (broken.rule, broken.job_id, broken.node, broken.unit) == (rule, job_id, node, unit)
        assert broken.amount == pytest.approx(x, rel=1e-6, abs=1e-9)
        assert broken.message.startswith("Expected ")
        assert broken.message.endswith(".")


def test_iterations_done_are_compared_relatively() -> None:
    # 10 iterations wanted; 1e-6 relative is 1e-5 of an iteration.
    def report(x: float) -> CheckReport:
        return check_plan(
            plan_of(jobs=(dataclasses.replace(JOB_A, duration_s=70 * (1 + x)), JOB_B))
        )

    assert report(0.9e-6).ok
    assert report(-0.9e-6).ok
    for x in (1.1e-6, -1.1e-6):
        broken = only(report(x))
        assert (broken.rule, broken.job_id, broken.unit) == ("stay", "a", "iterations")
        assert broken.amount == pytest.approx(10 * abs(x), rel=1e-4)


def test_cost_is_compared_relatively() -> None:
    usd = GROUP_USD_PER_HOUR * 100 / 3600
    assert check_plan(plan_of(usd_total=usd * (1 + 0.9e-9))).ok
    broken = only(check_plan(plan_of(usd_total=usd * (1 + 1.1e-9))))
    assert (broken.rule, broken.group_id, broken.unit) == ("cost", None, "$")
    assert broken.amount == pytest.approx(1.1e-9 * usd, rel=1e-3)


def test_messages_name_place_and_amount() -> None:
    broken = only(check_plan(residency(104.2)))
    assert broken.message == (
        "Expected train state on train node 3 of group 'g' <= 1795.8 GB, got 1900 "
        "(104.2 GB too much)."
    )
    assert (broken.group_id, broken.from_s) == ("g", 0.0)
    assert only(check_plan(slo(1.0))).message == (
        "Expected iteration time of job 'a' in group 'g' <= 9 s, got 10 (1 s too long)."
    )


# --- Whole numbers and names: each case has one fault, and a neighbour without it --------------

THREE = dataclasses.replace(JOB_A, train_nodes=3)
WIDE = dataclasses.replace(JOB_A, rollout_nodes=2)
ASYNC = dataclasses.replace(JOB_A, mode="async")
HELD = DedicatedNodes(job_id="c", from_s=0.0, to_s=70.0, rollout_nodes=1, train_nodes=2)
JOB_C = dataclasses.replace(ASYNC, job_id="c")
WITH_C = (JOB_A, JOB_B, JOB_C)
HELD_SYNC = dataclasses.replace(JOB_C, mode="sync")


def hold(**changes: Any) -> dict[str, Any]:
    return {"jobs": WITH_C, "dedicated": (dataclasses.replace(HELD, **changes),)}


def grouped(*placements: JobPlacement, **changes: Any) -> dict[str, Any]:
    return {"groups": (group_of(*placements, **changes),)}


WHOLE: list[tuple[str, dict[str, Any], tuple[str, str | None, str | None, float | None]]] = [
    # Gang: the job wants one node more than it is pinned to.
    ("few pins", {"jobs": (THREE, JOB_B)}, ("gang", "a", None, 1)),
    ("no rollout pins", {"jobs": (WIDE, JOB_B)}, ("gang", "a", None, 1)),
    # Nodes.
    ("idle node", grouped(train_nodes=(0, 3, 5)), ("nodes", None, "train 5", 1)),
    ("alien pin", grouped(train_nodes=(3,)), ("nodes", "a", "train 0", 1)),
    ("node twice", grouped(train_nodes=(0, 3, 0)), ("nodes", None, "train 0", 1)),
    (
        "pin twice",
        grouped(pinned(PLACE_A, train_pins=(0, 3, 3)), PLACE_B),
        ("nodes", "a", None, 1),
    ),
    # Rate.
    ("rate 0", grouped(pinned(PLACE_A, rate=0, starts_s=()), PLACE_B), ("rate", "a", None, 1)),
    ("no pair", grouped(pinned(PLACE_A, starts_s=()), PLACE_B), ("rate", "a", None, 1)),
    # Limits: one below what the plan has.
    ("size", {"limits": Limits(max_group_size=1)}, ("limits", None, None, 1)),
    ("train", {"limits": Limits(max_train_nodes=1)}, ("limits", None, None, 1)),
    (
        "rollout",
        {
            **grouped(PLACE_A, pinned(PLACE_B, rollout_pins=(1,)), rollout_nodes=(0, 1)),
            "limits": Limits(max_rollout_nodes=1),
        },
        ("limits", None, None, 1),
    ),
    # Mode.
    ("async in group", {"jobs": (ASYNC, JOB_B)}, ("mode", "a", None, 1)),
    ("async counts", hold(train_nodes=5), ("mode", "c", None, 3)),
    (
        "sync dedicated",
        {**hold(), "jobs": (JOB_A, JOB_B, HELD_SYNC)},
        ("mode", "c", None, 1),
    ),
    # Coverage.
    ("missing", {"jobs": WITH_C}, ("coverage", "c", None, 1)),
    ("unknown held", {"jobs": (JOB_A, JOB_B), "dedicated": (HELD,)}, ("coverage", "c", None, 1)),
    ("table repeats", {"jobs": (JOB_A, JOB_B, JOB_B)}, ("coverage", None, None, 1)),
    # Format.
    ("no jobs", {"groups": (GROUP, dataclasses.replace(GROUP, group_id="h", placements=(),
        rollout_nodes=(), train_nodes=()))}, ("format", None, None, 1)),
    ("held backwards", hold(from_s=70.0, to_s=69.0), ("format", "c", None, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), [c[1:] for c in WHOLE], ids=[c[0] for c in WHOLE])
def test_whole_number_rules(
    changes: dict[str, Any], expected: tuple[str, str | None, str | None, float | None]
) -> None:
    changes = dict(changes)
    broken = [
        v
        for v in check_plan(plan_of(*changes.pop("groups", ()), **changes)).violations
        if v.rule not in {"stay"} or expected[0] == "stay"  # rate 0 does no iterations
    ]
    assert facts(broken) == [expected]


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": Limits(max_group_size=2, max_rollout_nodes=1, max_train_nodes=2)},
        {"limits": Limits(max_group_size=0)},
        hold(),
    ],
)
def test_the_limits_themselves_are_allowed(changes: dict[str, Any]) -> None:
    assert check_plan(plan_of(**changes)).ok


def test_unknown_and_repeated_jobs_in_a_group() -> None:
    report = check_plan(plan_of(jobs=(JOB_A,)))
    assert [(v.rule, v.job_id, v.group_id) for v in report.violations] == [("coverage", "b", "g")]
    twice = check_group(
        group_of(PLACE_A, PLACE_B, PLACE_B), plan_of().jobs, DEFAULT_CLUSTER, Limits()
    )
    assert ("coverage", "b", None, 1) in facts(twice)
    assert {v.rule for v in twice} == {"coverage", "overlap", "residency"}
    # In the plan b is there once, not twice at a time: no second count of the same fault.
    report = check_plan(plan_of(group_of(PLACE_A, PLACE_B, PLACE_B)))
    assert report.counts == {"coverage": 1, "residency": 1, "overlap": 2}


def test_each_rule_has_a_case_here() -> None:
    covered = {case[1] for case in LITTLE} | {case[2][0] for case in WHOLE} | {"cost", "stay"}
    elsewhere = {"pause", "held", "start", "fleet", "loss"}  # tests of pauses, fleets, losses
    assert covered == set(RULES) - elsewhere


def test_versions_inside_another_are_each_named_once() -> None:
    # b: [0, 40) in g, again [10, 20) and [25, 30), then [40, 60): no gap after 20 s or 30 s.
    plan = gap(0.0)
    inside = [
        dataclasses.replace(plan.groups[0], from_s=at, to_s=to)
        for at, to in ((10.0, 20.0), (25.0, 30.0))
    ]
    report = check_plan(plan_of(*plan.groups, *inside, jobs=(JOB_B,)))
    assert facts(report.violations) == [
        ("pins", None, None, 10.0),
        ("pins", None, None, 5.0),
        ("coverage", "b", None, 10.0),
        ("coverage", "b", None, 5.0),
        ("stay", "b", None, pytest.approx(15 / 6)),
    ]


def test_giving_up_a_node_is_a_change_of_pins() -> None:
    # Job a keeps one of its two train nodes: its gang is short, and its pins changed.
    one = group_of(pinned(PLACE_A, starts_s=((0.0, 4.0),)), period_s=7.0, to_s=35.0)
    two = dataclasses.replace(
        one,
        from_s=35.0,
        to_s=70.0,
        train_nodes=(0,),
        placements=(pinned(one.placements[0], train_pins=(0,)),),
    )
    broken = check_plan(plan_of(one, two, jobs=(JOB_A,))).violations
    assert facts(broken) == [("gang", "a", None, 1.0), ("pins", "a", "train 3", 1.0)]


def test_pins_change_group_or_node() -> None:
    # b alone: 5 iterations at period 6 on train node 3, then 5 more on node 0.
    here = group_of(
        pinned(PLACE_B, starts_s=((0.0, 3.0),)), train_nodes=(3,), period_s=6.0, to_s=30.0
    )
    there = dataclasses.replace(here, from_s=30.0, to_s=60.0)
    moved = dataclasses.replace(
        there, train_nodes=(0,), placements=(pinned(here.placements[0], train_pins=(0,)),)
    )
    elsewhere = dataclasses.replace(there, group_id="h")
    assert check_plan(plan_of(here, there, jobs=(JOB_B,))).ok
    broken = only(check_plan(plan_of(here, moved, jobs=(JOB_B,))))
    assert (broken.rule, broken.group_id, broken.job_id, broken.node, broken.from_s) == (
        "pins", "g", "b", "train 0", 30.0,
    )  # fmt: skip
    assert broken.message == ("Expected train pins of job 'b' in group 'g' to stay [3], got [0].")
    broken = only(check_plan(plan_of(here, elsewhere, jobs=(JOB_B,))))
    assert (broken.rule, broken.group_id, broken.job_id) == ("pins", "h", "b")
    job = dataclasses.replace(JOB_B, restart_s=0.0)
    for second in (moved, elsewhere):  # a policy that may move jobs
        assert check_plan(plan_of(here, second, jobs=(job,), pins_fixed=False)).ok


def test_colocated_breaks_gang_only() -> None:
    # Both phases on the job's train nodes, no rollout nodes at all.
    group = group_of(
        pinned(PLACE_A, rollout_pins=(), starts_s=((0.0, 4.0),)),
        rollout_nodes=(),
        period_s=7.0,
        to_s=70.0,
    )
    broken = only(check_plan(plan_of(group, jobs=(JOB_A,))))
    assert (broken.rule, broken.job_id, broken.amount, broken.unit) == ("gang", "a", 1.0, "nodes")


def test_a_price_without_end_is_no_price() -> None:
    # 1e308 $/GPU-h x 8: no finite price, so no claim of one can be right.
    gpu = dataclasses.replace(DEFAULT_CLUSTER.train.gpu, usd_per_gpu_hour=1e308)
    dear = DEFAULT_CLUSTER.replace(train=dataclasses.replace(DEFAULT_CLUSTER.train, gpu=gpu))
    many = DEFAULT_CLUSTER.replace(
        train=dataclasses.replace(DEFAULT_CLUSTER.train, gpus_per_node=10**400)
    )
    for cluster in (dear, many):
        for usd in (0.0, 5.0, math.inf):
            broken = only(check_plan(plan_of(cluster=cluster, usd_total=usd)))
            assert (broken.rule, broken.amount) == ("cost", None)


def test_a_stay_without_end_is_no_stay() -> None:
    # 70 s in iterations of 1e-320 s are more than a float holds: never "as many as wanted".
    tiny = dataclasses.replace(
        JOB_A, rollout_s=5e-324, train_s=0.0, sync_s=0.0, slo=1e300, duration_s=70.0
    )
    report = check_plan(plan_of(jobs=(tiny, JOB_B)))
    assert ("stay", "a") in {(v.rule, v.job_id) for v in report.violations}


# --- A replay of several versions ----------------------------------------------------------------


def replay_plan(durations: str) -> Plan:
    """Job a alone [0, 100), with b [100, 300), alone [300, 340); async c has 2 + 1 nodes.

    work: a does 100/7 + 200/10 + 40/7 = 40 iterations (280 s alone), b does 20 (120 s alone).
    wallclock: a stays 340 s, b 200 s. c stays its 100 s under both, [50, 150).
    """
    alone = group_of(pinned(PLACE_A, starts_s=((0.0, 4.0),)), period_s=7.0)
    both = group_of(from_s=100.0, to_s=300.0)
    work = durations == "work"
    jobs = (
        dataclasses.replace(JOB_A, duration_s=280.0 if work else 340.0),
        dataclasses.replace(
            JOB_C, arrival_s=50.0, duration_s=100.0, rollout_nodes=2, train_nodes=1
        ),
        dataclasses.replace(JOB_B, arrival_s=100.0, duration_s=120.0 if work else 200.0),
    )
    held = DedicatedNodes(job_id="c", from_s=50.0, to_s=150.0, rollout_nodes=2, train_nodes=1)
    last = dataclasses.replace(alone, from_s=300.0, to_s=340.0)
    return plan_of(alone, both, last, jobs=jobs, dedicated=(held,), durations=durations)


@pytest.mark.parametrize("durations", ["work", "wallclock"])
def test_replay_of_several_versions(durations: str) -> None:
    plan = replay_plan(durations)
    report = check_plan(plan)
    assert report.violations == ()
    assert (report.n_groups, report.n_jobs) == (3, 3)
    assert report.peak_nodes == {"rollout": 3, "train": 3}  # versions of g never add up
    usd = GROUP_USD_PER_HOUR * 340 / 3600 + (2 * 8 * 1.85 + 8 * 5.28) * 100 / 3600
    assert report.usd_total_recomputed == recost(plan) == pytest.approx(usd)
    # The same intervals under the other convention: both sync jobs' stays are wrong.
    other = dataclasses.replace(plan, durations="wallclock" if durations == "work" else "work")
    broken = check_plan(other).violations
    assert [(v.rule, v.job_id) for v in broken] == [("stay", "a"), ("stay", "b")]
    # The middle version missing: a gap for a, b nowhere, less to pay, fewer iterations.
    cut = dataclasses.replace(plan, groups=(plan.groups[0], plan.groups[2]))
    report = check_plan(cut)
    assert report.counts == {"coverage": 2, "stay": 1, "cost": 1}
    assert report.violations[0].amount == 200.0


# --- Malformed plans never raise -----------------------------------------------------------------

wild = st.sampled_from(
    [0.0, -1.0, 1.0, 3.5, 10.0, 100.0, 1e-300, 1e300, -1e308, 1e308, math.inf, -math.inf, math.nan]
)
nodes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
placements = st.builds(
    JobPlacement,
    job_id=st.sampled_from(["a", "b", "c", "?"]),
    rollout_pins=nodes,
    train_pins=nodes,
    starts_s=st.lists(st.tuples(wild, wild), max_size=3).map(tuple),
    rate=st.sampled_from([-1, 0, 1, 2, 10**400]),
)
versions = st.builds(
    GroupVersion,
    group_id=st.sampled_from(["g", "h"]),
    from_s=wild,
    to_s=wild,
    period_s=wild,
    rollout_nodes=nodes,
    train_nodes=nodes,
    placements=st.lists(placements, max_size=3).map(tuple),
)
held = st.builds(
    DedicatedNodes,
    job_id=st.sampled_from(["a", "c", "?"]),
    from_s=wild,
    to_s=wild,
    rollout_nodes=st.sampled_from([-1, 0, 1, 10**400]),
    train_nodes=st.integers(0, 3),
)
paused = st.builds(Pause, job_id=st.sampled_from(["a", "b", "c", "?"]), from_s=wild, to_s=wild)
kept = st.builds(
    HeldNodes,
    group_id=st.sampled_from(["g", "?"]),
    from_s=wild,
    to_s=wild,
    rollout_nodes=st.sampled_from([-1, 0, 1, 10**400]),
    train_nodes=st.sampled_from([-(10**400), 0, 3]),
)
wild_jobs = st.tuples(
    st.builds(Job, job_id=st.just("a"), rollout_s=wild, train_s=wild, slo=wild, sync_s=wild,
              restart_s=wild, arrival_s=wild, duration_s=wild, train_state_gb=wild,
              rollout_switch_s=wild),
    st.just(JOB_B),
    st.builds(Job, job_id=st.sampled_from(["b", "c"]), rollout_s=wild, train_s=wild, slo=wild,
              mode=st.sampled_from(["sync", "one-step", "async"])),
)  # fmt: skip


@settings(max_examples=300)
@given(
    st.lists(versions, max_size=3).map(tuple),
    st.lists(held, max_size=2).map(tuple),
    st.tuples(st.lists(paused, max_size=3).map(tuple), st.lists(kept, max_size=2).map(tuple)),
    wild_jobs,
    st.sampled_from(["work", "wallclock", "snapshot"]),
    st.booleans(),
    wild,
)
def test_wild_plans_never_raise(
    groups: tuple[GroupVersion, ...],
    dedicated: tuple[DedicatedNodes, ...],
    moves: tuple[tuple[Pause, ...], tuple[HeldNodes, ...]],
    jobs: tuple[Job, ...],
    durations: str,
    pins_fixed: bool,
    number: float,
) -> None:
    plan = plan_of(
        jobs=jobs,
        dedicated=dedicated,
        pauses=moves[0],
        held=moves[1],
        durations=durations,
        pins_fixed=pins_fixed,
        usd_total=number,
        cluster=cluster_of(number),
    )
    report = check_plan(dataclasses.replace(plan, groups=groups))
    assert not report.ok  # b has no valid home in any of these
    for v in report.violations:
        assert v.rule in RULES
        assert v.amount is None or math.isfinite(v.amount)
        assert v.message.startswith("Expected ")
    assert sum(report.counts.values()) == len(report.violations)
    assert list(report.counts) == [rule for rule in RULES if rule in report.counts]
