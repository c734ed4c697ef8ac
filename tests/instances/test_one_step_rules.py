"""One-step jobs (one step off policy) by the rules of a plan: time alone, precedence, stays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker_cases import only
from instances.checker import check_group, check_plan, recost
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable, idle_window_s, solo_seconds
from instances.plan import GroupVersion, JobPlacement, Limits, Plan

#: r + t + s = 17, so two iterations in 17 s at least, and one in 10 s, the rollout: T = 10.
STEP = Job(
    job_id="a", rollout_s=10.0, train_s=4.0, sync_s=3.0, slo=1.5, duration_s=100.0, mode="one-step"
)
#: Its train starts when its rollout ends, at 10, and runs beside the next one.
STARTS = ((0.0, 10.0),)


def version(*placements: JobPlacement, period_s: float, to_s: float = 100.0) -> GroupVersion:
    def nodes(pins: list[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(sorted({node for each in pins for node in each}))

    return GroupVersion(
        group_id="g",
        from_s=0.0,
        to_s=to_s,
        period_s=period_s,
        rollout_nodes=nodes([p.rollout_pins for p in placements]),
        train_nodes=nodes([p.train_pins for p in placements]),
        placements=placements,
    )


def placement(*starts: tuple[float, float], job_id: str = "a") -> JobPlacement:
    return JobPlacement(
        job_id=job_id, rollout_pins=(0,), train_pins=(0,), starts_s=starts, rate=len(starts)
    )


def rules(job: Job, period_s: float, *starts: tuple[float, float]) -> list[str]:
    """Return the rules broken by one job alone, a rate of up to 3 allowed."""
    group = version(placement(*starts), period_s=period_s)
    found = check_group(group, JobTable.from_jobs([job]), DEFAULT_CLUSTER, Limits(max_rate=3))
    return [violation.rule for violation in found]


# --- alone --------------------------------------------------------------------------------------


def test_alone_it_runs_at_its_own_pace() -> None:
    assert STEP.solo_s == 10.0
    assert rules(STEP, 10.0, *STARTS) == []
    # a sync job needs 17 s, and its next rollout waits for the train
    assert rules(dataclasses.replace(STEP, mode="sync"), 10.0, *STARTS) == ["precedence"]


@pytest.mark.parametrize(
    ("period_s", "starts", "broken"),
    [
        (10.0, ((0.0, 9.9),), ["precedence"]),  # before its rollout ends
        (10.0, ((0.0, 13.0),), []),  # 13 + 4 + 3 = 20, when the next but one starts
        (10.0, ((0.0, 13.1),), ["precedence"]),
        (9.9, ((0.0, 10.0),), ["overlap"]),  # the rollout is longer than the period
        (15.0, ((0.0, 10.0),), []),
        (15.1, ((0.0, 10.0),), ["slo"]),  # 1.5 x 10
        (20.0, ((0.0, 10.0), (10.0, 20.0)), []),  # two iterations
        (20.0, ((0.0, 10.0), (10.0, 23.1)), ["precedence"]),  # the second train: 23.1 + 7 > 20 + 10
        (20.0, ((0.0, 13.0), (10.0, 23.0)), []),
        (20.0, ((0.0, 13.1), (10.0, 23.0)), ["precedence"]),  # the first: 13.1 + 7 > 20
        # its own rollouts meet: the second starts 1 s early, or ends 1 s after the next first
        (20.0, ((0.0, 10.0), (9.0, 20.0)), ["precedence", "overlap"]),
        (20.0, ((0.0, 10.0), (11.0, 21.0)), ["precedence", "overlap"]),
        # disjoint arcs, but the second iteration comes before the first: 3 starts too early
        (20.0, ((10.0, 20.0), (0.0, 10.0)), ["precedence"] * 2),
        # rollouts in order, trains 10 to 14 and 14 to 18 + 20, but the later one comes first
        (30.0, ((0.0, 30.0), (10.0, 20.0), (20.0, 42.0)), ["precedence"]),
    ],
)
def test_each_rule_of_precedence(
    period_s: float, starts: tuple[tuple[float, float], ...], broken: list[str]
) -> None:
    assert rules(STEP, period_s, *starts)[: len(broken) or None] == broken


def test_alone_the_longer_phase_sets_the_pace_of_either_pool() -> None:
    """(4, 10) and sync 3, slo 1.5: T = max(4, 10, 8.5), so 15 s are allowed."""
    job = dataclasses.replace(STEP, rollout_s=4.0, train_s=10.0)
    assert rules(job, 15.0, (0.0, 4.0)) == []
    assert rules(job, 15.1, (0.0, 4.0)) == ["slo"]


def test_words() -> None:
    group = version(placement((0.0, 13.5)), period_s=10.0)
    table = JobTable.from_jobs([STEP])
    (found,) = check_group(group, table, DEFAULT_CLUSTER, Limits())
    assert found.message == (
        "Expected next but one rollout start after iteration 1 of job 'a' in group 'g' >= 20.5 s, "
        "got 20 (0.5 s too early)."
    )
    swapped = version(placement((10.0, 20.0), (0.0, 10.0)), period_s=20.0)
    messages = [
        each.message for each in check_group(swapped, table, DEFAULT_CLUSTER, Limits(max_rate=2))
    ]
    assert any("next rollout start after iteration 1 of job 'a'" in text for text in messages)


def test_two_share_both_nodes() -> None:
    """r = t = 10: alone 10 s, together 20, each node never idle."""
    jobs = [
        Job(job_id=name, rollout_s=10.0, train_s=10.0, slo=2.0, mode="one-step") for name in "ab"
    ]
    first, second = placement((0.0, 10.0)), placement((10.0, 20.0), job_id="b")
    table = JobTable.from_jobs(jobs)
    assert (
        check_group(version(first, second, period_s=20.0), table, DEFAULT_CLUSTER, Limits()) == []
    )
    late = placement((10.0, 21.0), job_id="b")
    broken = check_group(version(first, late, period_s=20.0), table, DEFAULT_CLUSTER, Limits())
    assert [each.rule for each in broken] == ["overlap"]


def test_switches_count_in_the_phases() -> None:
    """Paid where a node is shared: 10 + 1 and 4 + 2, so 20 in two periods of at least 11."""
    paid = dataclasses.replace(STEP, rollout_switch_s=1.0, train_switch_s=2.0)
    assert rules(paid, 10.0, *STARTS) == []  # alone it pays none
    table = JobTable.from_jobs([paid])
    assert table.paid_s[:, :, 0].tolist() == [[10.0, 10.0], [11.0, 11.0]]
    for rollout in (False, True):
        for train in (False, True):
            expected = table.paid_s[int(rollout), int(train), 0]
            assert paid.paid_s(rollout=rollout, train=train) == expected


# --- a stay -------------------------------------------------------------------------------------


def plan(job: Job, to_s: float, period_s: float, *starts: tuple[float, float]) -> Plan:
    made = Plan(
        policy="test",
        durations="work",
        cluster=DEFAULT_CLUSTER,
        jobs=JobTable.from_jobs([job]),
        limits=Limits(),
        groups=(version(placement(*starts), period_s=period_s, to_s=to_s),),
        usd_total=0.0,
    )
    return dataclasses.replace(made, usd_total=recost(made))


def test_work_is_iterations_of_its_own_length() -> None:
    """100 s alone are 10 iterations of 10 s, done in 150 s at a period of 15 s."""
    assert check_plan(plan(STEP, 100.0, 10.0, *STARTS)).ok
    assert check_plan(plan(STEP, 150.0, 15.0, *STARTS)).ok
    assert only(check_plan(plan(STEP, 140.0, 15.0, *STARTS))).rule == "stay"


# --- idle windows -------------------------------------------------------------------------------

phase = st.floats(0.1, 1e4)


def test_windows_by_hand() -> None:
    assert idle_window_s(10, 4, 3, "sync") == (7, 13)
    assert idle_window_s(10, 4, 3, "one-step") == (0, 6)  # as busy as its rollout node
    assert idle_window_s(10, 4, 10, "one-step") == (2, 8)  # 24 s in two periods
    assert idle_window_s(10, 4, 3, "async") == (0, 6)
    assert STEP.idle_window_s == (0.0, 6.0)


@given(phase, phase, st.floats(0, 1e4))
def test_windows_exist_as_the_modes_say(r: float, t: float, s: float) -> None:
    """Sync always has both; async never in the pool of its longer phase; one-step in between."""
    sync, step, alone = (idle_window_s(r, t, s, mode) for mode in ("sync", "one-step", "async"))
    assert min(sync) > 0
    assert min(alone) == 0
    for pool in (0, 1):
        assert alone[pool] <= step[pool] <= sync[pool]
    # both pools have one exactly where the chain, not a phase, is the bottleneck
    assert (min(step) > 0) == (max(r, t) < (r + t + s) / 2)


@given(phase, phase, st.floats(0, 1e4), st.floats(0, 50), st.floats(0, 50))
def test_paid_switches_are_phases(r: float, t: float, s: float, u: float, v: float) -> None:
    for mode in ("sync", "one-step"):
        job = Job(job_id="a", rollout_s=r, train_s=t, sync_s=s, slo=1.0, mode=mode,
                  rollout_switch_s=u, train_switch_s=v)  # fmt: skip
        table = JobTable.from_jobs([job])
        for i, j in np.ndindex(2, 2):
            assert table.paid_s[i, j, 0] == pytest.approx(
                solo_seconds(r + i * u, t + j * v, s, mode)
            )
