"""The checker on one group: hand-checked schedules, and properties of random ones."""

from __future__ import annotations

import dataclasses
import math
import sys
import timeit
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker_cases import (
    GROUP,
    PLACE_A,
    PLACE_B,
    check,
    facts,
    group_of,
    pinned,
    plan_of,
    simple_group,
    with_starts,
)
from instances import checker, fleet_checker, group_checker, loss_checker, pause_checker
from instances.checker import Violation, check_group, check_plan
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement, Limits

# --- Hand-checked plans ------------------------------------------------------------------------

SYNC_PHASES = [(5.0, 2.0, 2.0), (5.0, 3.0, 3.0), (1.0, 6.0, 0.0)]
#: Period 11.5. Rollouts [0, 5), [5, 10), [10, 11). Trains [7.5, 9.5), [10, 13), [13, 19), that is
#: around the circle [1.5, 7.5), [7.5, 9.5), [10, 1.5). Job 0 ends its sync at 11.5 = its next
#: rollout; job 1 at 16 <= 16.5; job 2 at 19 <= 21.5.
SYNC_STARTS = [(0.0, 7.5), (5.0, 10.0), (10.0, 13.0)]


def test_sync_example_at_its_least_period_and_squeezed() -> None:
    assert check(*simple_group(SYNC_PHASES, SYNC_STARTS, 11.5)) == []
    # At 11: job 0's sync ends at 11.5, and train 2 around the circle is [2, 8), over [7.5, 9.5).
    broken = check(*simple_group(SYNC_PHASES, SYNC_STARTS, 11.0))
    assert facts(broken) == [
        ("precedence", "0", None, pytest.approx(0.5)),
        ("overlap", "0", "train 0", pytest.approx(0.5)),
    ]


def test_gang_example_at_34() -> None:
    # All rollout pins pairwise intersect: rollouts one after the other take 34 in any order.
    # Each train follows its rollout: [5, 8), [8, 12), [19, 25), [25, 30), [34, 37) = [0, 3).
    phases = [(5.0, 3.0, 0.0), (3.0, 4.0, 0.0), (11.0, 6.0, 0.0), (6.0, 5.0, 0.0), (9.0, 3.0, 0.0)]
    pins: list[tuple[int, ...]] = [(0, 1, 2), (1, 2), (0, 1, 2), (0, 1), (0, 2)]
    starts = [(0.0, 5.0), (5.0, 8.0), (8.0, 19.0), (19.0, 25.0), (25.0, 34.0)]
    assert check(*simple_group(phases, starts, 34.0, pins)) == []
    # At 33 the last rollout [25, 34) meets the first on the nodes they share, 0 and 2.
    broken = check(*simple_group(phases, starts, 33.0, pins))
    assert facts(broken) == [
        ("overlap", "0", "rollout 0", pytest.approx(1.0)),
        ("overlap", "0", "rollout 2", pytest.approx(1.0)),
    ]


def test_orders_alone_do_not_fix_the_period() -> None:
    # A = (5, 1), B = (1, 5): at 6, B's rollout is [5, 6) and its train [6, 11) = [0, 5).
    phases = [(5.0, 1.0, 0.0), (1.0, 5.0, 0.0)]
    assert check(*simple_group(phases, [(0.0, 5.0), (5.0, 6.0)], 6.0)) == []
    broken = check(*simple_group(phases, [(0.0, 5.0), (5.0, 6.0)], 5.9))
    assert {v.rule for v in broken} == {"precedence", "overlap"}


def test_a_phase_longer_than_the_period_overlaps_itself() -> None:
    broken = check(*simple_group([(12.0, 1.0, 0.0)], [(0.0, 12.0)], 10.0))
    assert facts(broken) == [
        ("precedence", "0", None, 3.0),
        ("overlap", "0", "rollout 0", 2.0),
    ]


def test_a_long_arc_meets_every_arc_inside_it() -> None:
    # Rollout of 0 is [0, 9); 1 is [2, 3), 2 is [5, 6): only pairs with 0 meet.
    group, jobs = simple_group(
        [(9.0, 1.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 0.0)],
        [(0.0, 9.0), (2.0, 3.0), (5.0, 6.0)],
        10.0,
    )
    broken = check(group, jobs)
    assert facts(broken) == [
        ("overlap", "1", "rollout 0", 1.0),
        ("overlap", "2", "rollout 0", 1.0),
    ]


def test_multi_rate_chain() -> None:
    # Period 6: a = (1, 1, 1) twice, rollouts [0, 1) [3, 4), trains [1, 2) [4, 5), no slack at all;
    # b = (2, 1, 1) once, rollout [1, 3), train [3, 4). a iterates in 3 = T_a.
    a = Job(job_id="a", rollout_s=1, train_s=1, sync_s=1, slo=1.0)
    b = Job(job_id="b", rollout_s=2, train_s=1, sync_s=1, slo=1.5)
    jobs = JobTable.from_jobs([a, b])

    def group(*starts: tuple[float, float]) -> GroupVersion:
        return group_of(
            pinned(PLACE_A, train_pins=(0,), starts_s=starts, rate=2),
            pinned(PLACE_B, train_pins=(0,), starts_s=((1.0, 3.0),)),
            period_s=6.0,
            train_nodes=(0,),
        )

    good = group((0.0, 1.0), (3.0, 4.0))
    assert check(good, jobs, max_rate=2) == []
    # In 100 s at period 6, a does 2 * 100 / 6 iterations of 3 s, b 100 / 6 of 4 s.
    timed = (
        dataclasses.replace(a, duration_s=100.0),
        dataclasses.replace(b, duration_s=400.0 / 6),
    )
    assert check_plan(plan_of(good, jobs=timed, limits=Limits(max_rate=2))).ok
    assert facts(check(good, jobs)) == [("rate", "a", None, 1.0)]
    # The second rollout a little early: before the first sync ends, and inside b's rollout.
    early = check(group((0.0, 1.0), (2.75, 4.0)), jobs, max_rate=2)
    assert facts(early) == [
        ("precedence", "a", None, 0.25),
        ("overlap", "a", "rollout 0", 0.25),
    ]
    # The second train a little late: its sync ends after the next period's first rollout.
    late = check(group((0.0, 1.0), (3.0, 4.25)), jobs, max_rate=2)
    assert facts(late) == [("precedence", "a", None, 0.25)]
    # One pair for rate 2.
    short = check(group((0.0, 1.0)), jobs, max_rate=2)
    assert facts(short) == [("rate", "a", None, 1.0)]


def test_switches_are_paid_on_shared_nodes_only() -> None:
    # a alone needs 7 s without switches; with b on train node 3 only, a's train pays, rollout not.
    alone = group_of(pinned(PLACE_A, starts_s=((0.0, 4.0),)), period_s=7.0)
    assert check(alone, plan_of().jobs) == []
    apart = group_of(
        pinned(PLACE_A, starts_s=((0.0, 4.0),)),
        pinned(PLACE_B, rollout_pins=(1,), starts_s=((3.25, 6.25),)),
        rollout_nodes=(0, 1),
        period_s=9.5,
    )
    assert check(apart, plan_of().jobs) == []
    early = dataclasses.replace(
        apart,
        placements=(apart.placements[0], pinned(apart.placements[1], starts_s=((3.0, 6.0),))),
    )
    assert facts(check(early, plan_of().jobs)) == [("overlap", "b", "train 3", 0.25)]


# --- Properties ----------------------------------------------------------------------------------

seconds = st.integers(1, 400).map(lambda n: n / 16)


@st.composite
def sequential(draw: st.DrawFn, gap_s: float = 0.0) -> tuple[GroupVersion, JobTable]:
    """Jobs one after the other on random pins: rollout, gap, train, sync; period = the sum."""
    jobs, placements, at = [], [], 0.0
    for i in range(draw(st.integers(1, 5))):
        pins = [
            tuple(sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)))) for _ in "rt"
        ]
        job = Job(
            job_id=f"j{i}",
            rollout_s=draw(seconds),
            train_s=draw(seconds),
            sync_s=draw(seconds),
            slo=1e6,
            rollout_nodes=len(pins[0]),
            train_nodes=len(pins[1]),
            rollout_switch_s=draw(seconds),
            train_switch_s=draw(seconds),
            train_state_gb=400.0,
        )
        train_at = at + job.rollout_switch_s + job.rollout_s + gap_s
        placements.append(
            JobPlacement(
                job_id=job.job_id,
                rollout_pins=pins[0],
                train_pins=pins[1],
                starts_s=((at, train_at),),
            )
        )
        jobs.append(job)
        at = train_at + job.train_switch_s + job.train_s + job.sync_s
    nodes = [
        tuple(sorted({n for p in placements for n in getattr(p, f"{pool}_pins")}))
        for pool in ("rollout", "train")
    ]
    group = group_of(*placements, period_s=at, rollout_nodes=nodes[0], train_nodes=nodes[1])
    return group, JobTable.from_jobs(jobs)


@given(sequential(), st.floats(0.0, 1e4), st.floats(1.0, 50.0))
def test_sequential_rotated_and_stretched_plans_are_valid(
    case: tuple[GroupVersion, JobTable], turn_s: float, stretch: float
) -> None:
    group, jobs = case
    assert check(group, jobs) == []

    def rotate(placement: JobPlacement) -> JobPlacement:
        rollout_at, train_at = placement.starts_s[0]
        first = (rollout_at + turn_s) % group.period_s
        return with_starts(placement, (first, first + train_at - rollout_at))

    rotated = dataclasses.replace(group, placements=tuple(map(rotate, group.placements)))
    assert check(rotated, jobs) == []
    stretched = dataclasses.replace(
        group,
        period_s=group.period_s * stretch,
        placements=tuple(
            with_starts(p, (p.starts_s[0][0] * stretch, p.starts_s[0][1] * stretch))
            for p in group.placements
        ),
    )
    assert check(stretched, jobs) == []
    tight = jobs.replace(slo=np.ones(len(jobs)))
    assert {v.rule for v in check(stretched, tight)} <= {"slo"}


@given(sequential(gap_s=2.0), st.data())
def test_moving_one_start_within_and_beyond_its_slack(
    case: tuple[GroupVersion, JobTable], data: st.DataObject
) -> None:
    # Each train may start up to 2 s earlier when its job's rollout switch is paid (the gap),
    # and by the unpaid switch more when it is not.
    group, jobs = case
    i = data.draw(st.integers(0, len(jobs) - 1))
    p, job = group.placements[i], jobs.job(i)
    users = [n for q in group.placements for n in q.rollout_pins]
    paid = any(users.count(n) > 1 for n in p.rollout_pins)
    slack = 2.0 + (0.0 if paid else job.rollout_switch_s)
    rollout_at, train_at = p.starts_s[0]

    def moved(by_s: float) -> list[Violation]:
        q = with_starts(p, (rollout_at, train_at - by_s))
        return check(
            group_of(
                *group.placements[:i],
                q,
                *group.placements[i + 1 :],
                period_s=group.period_s,
                rollout_nodes=group.rollout_nodes,
                train_nodes=group.train_nodes,
            ),
            jobs,
        )

    assert moved(data.draw(st.floats(0.0, slack))) == []
    beyond = data.draw(st.floats(1e-5, 0.5))
    broken = [v for v in moved(slack + beyond) if v.rule == "precedence"]
    assert [v.job_id for v in broken] == [job.job_id]
    assert broken[0].amount == pytest.approx(beyond, abs=1e-9)


@given(
    st.integers(4, 12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 12)), min_size=1, max_size=4),
)
def test_overlap_equals_counting_seconds(period: int, rollouts: list[tuple[int, int]]) -> None:
    # Whole seconds: two phases share a node iff some second of the circle is taken twice.
    taken = [0] * period
    for start, length in rollouts:
        for second in range(start, start + length):
            taken[second % period] += 1
    group, jobs = simple_group(
        [(float(length), 0.0, 0.0) for _, length in rollouts],
        [(float(start % period), float(start % period + length)) for start, length in rollouts],
        float(period),
    )
    broken = [v for v in check(group, jobs) if v.rule == "overlap"]
    assert bool(broken) == (max(taken) > 1)
    # Pairs (and laps) in excess of one per second, when no arc laps the circle.
    if all(length <= period for _, length in rollouts):
        assert sum(v.amount or 0.0 for v in broken) == sum(n * (n - 1) // 2 for n in taken)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -3.0])
def test_bad_periods_and_numbers_are_format_violations(bad: float) -> None:
    jobs = plan_of().jobs
    assert "format" in {v.rule for v in check(group_of(period_s=bad), jobs)}
    assert "format" in {v.rule for v in check(group_of(to_s=bad), jobs)}
    if not math.isfinite(bad):
        late = group_of(with_starts(PLACE_A, (0.0, bad)), PLACE_B)
        assert [(v.rule, v.job_id) for v in check(late, jobs)] == [("format", "a")]
    if bad != 0.0:
        broken = check(GROUP, jobs.replace(train_s=np.array([bad, 3.0])))
        assert [(v.rule, v.job_id) for v in broken] == [("format", "a")]


@pytest.mark.parametrize(
    "module",
    [checker, group_checker, pause_checker, fleet_checker, loss_checker],
    ids=["plans", "groups", "pauses", "fleets", "losses"],
)
def test_the_checker_imports_only_the_plan_types(module: ModuleType) -> None:
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    lines = [s for s in source.splitlines() if s.startswith(("import ", "from "))]
    ours = {
        s.split()[1] for s in lines if s.split()[1].split(".")[0] not in sys.stdlib_module_names
    }
    problem = {"instances.hardware", "instances.jobs", "instances.plan"}
    halves = {
        checker: {
            "instances.fleet_checker",
            "instances.group_checker",
            "instances.loss_checker",
            "instances.pause_checker",
        },
        pause_checker: {"instances.group_checker"},
        fleet_checker: {"instances.group_checker", "instances.loss_checker"},
        loss_checker: {"instances.group_checker", "instances.pause_checker"},
    }
    assert ours <= problem | halves.get(module, set())


def test_the_names_of_the_checker_are_those_of_its_group_half() -> None:
    assert checker.check_group is group_checker.check_group
    assert checker.Violation is group_checker.Violation
    assert checker.RULES is group_checker.RULES
    assert set(checker.__all__) == {
        "RULES", "TOLERANCE_USD_REL", "CheckReport", "Violation", "check_group", "check_plan",
        "recost",
    }  # fmt: skip


def test_a_replay_can_afford_a_check_after_every_event() -> None:
    group, jobs = simple_group(
        [(5.0, 3.0, 0.0)] * 5, [(6.0 * i, 6.0 * i + 5.0) for i in range(5)], 30.0
    )
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}

    def run() -> list[Violation]:
        return check_group(group, jobs, DEFAULT_CLUSTER, Limits(), index=index)

    assert run() == []
    # Quiet machine: about 30 microseconds; the bound only catches a change of complexity.
    assert min(timeit.repeat(run, number=100, repeat=5)) / 100 < 2e-3
