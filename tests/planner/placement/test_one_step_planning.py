"""One-step jobs in the placer, the replay and what is read from plans: by hand and at random."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import (
    PAIR_USD,
    ROLLOUT_USD,
    TRAIN_USD,
    cluster_of,
    job_of,
    options_of,
    random_job,
    table_of,
    trace_of,
    violations,
)
from instances.checker import check_plan
from instances.jobs import Job, JobTable
from instances.plan import Limits
from models.group.period import construct
from placer_cases import facts, placer_of
from planner.gap.proving import optimality_gap
from planner.placement.fleet_state import FleetState
from planner.placement.group_rules import rules_of
from planner.placement.group_state import GroupState
from planner.placement.placer import Placer
from planner.replay.replaying import replay
from planner.size.sampled_runtimes import run_version
from planner.snapshot.gantt import bars_of
from replay_cases import both_conventions, replayed
from sampled_cases import simpy_starts


def step(job_id: str, rollout_s: float, train_s: float, slo: float = 2.0, **more: Any) -> Job:
    return job_of(job_id, rollout_s, train_s, slo, mode="one-step", **more)


# --- the placer ---------------------------------------------------------------------------------


def test_alone_at_its_own_pace() -> None:
    """(100, 40) and sync 30: T = max(100, 170 / 2)."""
    placer = placer_of(step("a", 100, 40, sync_s=30))
    (group,) = placer.groups()
    assert group.period_s == 100
    assert violations(group) == []


def test_two_share_both_nodes_where_their_slo_allows() -> None:
    """(50, 40) each: alone 50 s, together 100 s, the rollout node never idle."""
    placer = placer_of(step("a", 50, 40), skip_saturated=False)
    assert facts(placer.place(step("b", 50, 40)))[0] == "direct"
    (group,) = placer.groups()
    assert group.period_s == 100
    assert violations(group) == []
    strict = placer_of(step("a", 50, 40, 1.9), skip_saturated=False)
    assert facts(strict.place(step("b", 50, 40, 1.9)))[0] == "rollout_scaled"


@pytest.mark.parametrize(
    ("job", "kind"),
    [
        # its rollouts fill their node: no window there, one of 60 s on the train node
        (step("a", 100, 40, 1.0), "rollout_scaled"),
        # both phases fill their nodes: no window at all
        (step("a", 100, 100, 1.0), "isolated"),
        # windows of 20 and 80 s in 120 = 240 / 2: too short for b's rollout, not for its train
        (step("a", 100, 40, 1.0, sync_s=100), "rollout_scaled"),
    ],
)
def test_who_shares_is_a_matter_of_idle_windows(job: Job, kind: str) -> None:
    """b = (70, 30) sync, 100 s alone and 120 s at most, fits where a leaves it a window."""
    windows = job.idle_window_s
    assert (min(windows) > 0) == (job.job_id == "a" and job.sync_s > 0)
    placer = placer_of(job)
    assert facts(placer.place(job_of("b", 70, 30, 1.2)))[0] == kind
    assert [violations(group) for group in placer.groups()] == [[]] * len(placer.groups())


def test_a_group_without_a_window_is_saturated() -> None:
    """Per pool: both nodes as busy as the longest iteration. Sync groups as published."""
    for job, closed in (
        (step("a", 100, 40), False),
        (step("a", 100, 100), True),
        (step("a", 40, 100), False),
        (step("a", 100, 40, sync_s=100), False),
    ):
        fleet = FleetState()
        state = GroupState.alone(job, 1)
        fleet.add(state, state.shape())
        least = np.full((7, 1), np.inf)
        least[-1] = 0.0
        assert (fleet.open_to(least).size == 0) == closed, job


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_every_group_is_valid_as_jobs_come_and_go(seed: int, max_rate: int, scaling: bool) -> None:
    rng = random.Random(seed)
    limits = Limits(max_group_size=5, max_rate=max_rate)
    placer = placer_of(limits=limits, train_scaling=scaling and max_rate == 1)
    here: list[str] = []
    for i in range(20):
        job = random_job(rng, f"j{i}", mode=rng.choice(("sync", "one-step")))
        placer.place(job)
        here.append(job.job_id)
        if rng.random() < 0.4:
            placer.remove(here.pop(rng.randrange(len(here))))
        for group in placer.groups():
            assert violations(group, limits=limits) == []


# --- the replay ---------------------------------------------------------------------------------


@both_conventions
@pytest.mark.parametrize("policy", ["weave", "solo", "repack"])
def test_plans_are_valid_and_priced_between_bound_and_solo(policy: str, convention: Any) -> None:
    jobs = [
        random_job(
            random.Random(i),
            f"j{i:02}",
            arrival_s=200.0 * i,
            duration_s=2000.0 + 150 * i,
            mode=("one-step", "sync", "one-step", "async")[i % 4],
        )
        for i in range(16)
    ]
    result = replay(table_of(*jobs), policy, options_of(), convention=convention)
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.slo_attainment == 1
    assert result.usd_total >= result.bound_usd_total - 1e-9
    if convention == "wallclock":
        solo = replay(table_of(*jobs), "solo", options_of(), convention=convention)
        assert result.usd_total <= solo.usd_total + 1e-6


def test_work_is_its_own_iterations() -> None:
    """36 iterations of 100 s in its hour; beside another at 150 s they take 5,400 s."""
    jobs = [step(name, 75, 50, duration_s=3600, slo=2.0) for name in ("a", "b")]
    options = options_of()
    alone = replay(table_of(jobs[0]), "weave", options)
    assert alone.records[0].iterations == pytest.approx(48)  # T = 75
    assert alone.usd_total == pytest.approx(PAIR_USD)
    both = replay(table_of(*jobs), "weave", options)
    assert both.slo_attainment == 1
    assert [record.iterations for record in both.records] == pytest.approx([48, 48])


def test_colocated_runs_one_phase_after_the_other() -> None:
    """Both phases on the same nodes: r + t + s = 170 s an iteration, not 100."""
    job = step("a", 100, 40, duration_s=1000, sync_s=30)
    result = replay(table_of(job), "colocated", options_of())
    assert result.records[0].iterations == pytest.approx(10)
    assert result.usd_total == pytest.approx(1700 / 3600 * TRAIN_USD)


def test_the_gap_of_a_trace_of_both_modes() -> None:
    """All three at once are proved, between the bound and each job alone."""
    jobs = [step("a", 60, 40, 2.0), step("b", 60, 30, 2.0), job_of("c", 30, 60, 2.0)]
    report = optimality_gap(trace_of(*jobs))
    assert report.ratio is not None
    assert report.ratio >= 1
    assert all(row.solved.usd_per_hour <= 3 * PAIR_USD + 1e-9 for row in report.rows)
    assert report.n_proved == len(report.rows)


# --- what is read from a plan -------------------------------------------------------------------


def pair() -> tuple[Any, JobTable, list[Job]]:
    """(40, 10) one-step with sync 90, T = 70, and (20, 30) sync, on one node of each kind."""
    jobs = [step("a", 40, 10, sync_s=90), job_of("b", 20, 30)]
    placer = placer_of(*jobs)
    (group,) = placer.groups()
    return group.version(0.0, 3600.0), table_of(*jobs), jobs


def test_the_pair_by_hand() -> None:
    """Loads 60 and 40, chains 70 (140 in two periods) and 50: 70 s."""
    version, table, _ = pair()
    assert version.period_s == 70
    tight = {(rule.rule, rule.job_id): rule.used for rule in rules_of(version, table, cluster_of())}
    assert tight["chain", "a"] == 70
    assert tight["rollout_load", None] == 60
    for bar in bars_of(version, table):  # the sync of 90 s goes around the circle more than once
        assert bar.length_s <= version.period_s


def test_worst_case_runs_are_the_plan_and_shorter_ones_are_earlier() -> None:
    """Or earlier: a's rollouts wait for every second train, and so may come in pairs."""
    version, _, jobs = pair()
    seconds = np.array([[[40.0] * 9, [20.0] * 9], [[10.0] * 9, [30.0] * 9]])
    starts = run_version(version, jobs, seconds, 8)
    for j, placement in enumerate(version.placements):
        planned = placement.starts_s[0][0] + 70.0 * np.arange(9)
        assert starts[j, ::2] == pytest.approx(planned[::2])
        assert (starts[j] <= planned + 1e-9).all()
    rng = np.random.default_rng(1)
    shorter = seconds * rng.uniform(0.2, 1.0, seconds.shape)
    earlier = run_version(version, jobs, shorter, 8)
    assert (earlier <= starts + 1e-9).all()
    events = simpy_starts(version, jobs, shorter, 8)
    for j in range(2):
        for i in range(9):
            assert earlier[j, i] == pytest.approx(events[j, 0, i], abs=1e-9)


def test_async_windows_are_computed_and_not_used() -> None:
    """(100, 40) async: none on its rollout node, 60 s on its train node; nodes of its own."""
    job = job_of("a", 100, 40, 2.0, mode="async", duration_s=3600)
    assert job.idle_window_s == (0, 60)
    result = replay(table_of(job, job_of("b", 50, 30, duration_s=3600)), "weave", options_of())
    assert result.dedicated_usd_total == pytest.approx(ROLLOUT_USD + TRAIN_USD)
    assert result.usd_total == pytest.approx(2 * PAIR_USD)


def test_the_same_trace_with_rates() -> None:
    """Long and short one-step jobs: more iterations of the short ones; all groups valid."""
    rng = random.Random(2)
    limits = Limits(max_rate=3)
    placer = Placer(limits=limits)
    for i in range(40):
        length = rng.choice((1, 2, 4, 6))
        placer.place(step(f"j{i}", 10 * length, 5 * length, 1.5, sync_s=rng.choice((0, 30))))
    groups = placer.groups()
    assert any(max(group.rates) > 1 for group in groups)
    assert len(groups) < 40
    for group in groups:
        assert violations(group, limits=limits) == []
        schedule = construct(group.shape())
        assert schedule is not None


def test_a_trace_of_all_modes_saves() -> None:
    """Half of 60 generated jobs one-step: weave is cheaper than solo, all SLOs met."""
    weave, solo = (replayed("one-step", policy, "work") for policy in ("weave", "solo"))
    assert weave.usd_total < solo.usd_total
    assert weave.slo_attainment == 1


def test_a_store_of_gaps_tells_modes_apart(tmp_path: Path) -> None:
    """(40, 20) twice at slo 1.5: sync within 90 s, all on one pair; one-step within 60 s.

    There the rollouts of 80 s need two nodes, the trains of 40 s one.
    """
    usd = []
    for mode in ("sync", "one-step", "sync"):
        jobs = [job_of(name, 40, 20, 1.5, mode=mode) for name in ("a", "b")]
        report = optimality_gap(trace_of(*jobs), resume=tmp_path / "store")
        usd += [row.solved.usd_per_hour for row in report.rows]
    assert usd == pytest.approx([PAIR_USD, PAIR_USD + ROLLOUT_USD, PAIR_USD])
