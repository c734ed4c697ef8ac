"""What ``repack`` keeps on every trace: rules, SLOs, budgets, prices, and no look ahead.

Random jobs, gangs among them, restarts of half a minute and two; replayed step by step, every
version checked as it is made.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import planner.policies.repack
from builders import options_of
from gap_cases import HOUR
from instances.checker import check_plan, recost
from instances.jobs import JobTable
from instances.plan import GroupVersion, Limits
from instances.plan_file import write_plan_json
from models.bounds.covering_lp import Ending
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention, ReplayResult
from planner.replay.replaying import replay
from repack_policy_cases import changes, random_jobs, repack_of, steps, watched

CONVENTIONS: tuple[Convention, ...] = ("work", "wallclock")
#: Ways to decide; between them every rule, limit and oracle.
WAYS: dict[str, dict[str, Any]] = {
    "residual": {},
    "break-even": {"rule": "break-even", "review_h": 0.05, "overlap_s": 60.0},
    "oracle": {"oracle": "remaining", "max_moves_per_job_day": 1},
    "parts": {"lasting_h": 20.0, "max_scope": 5, "scopes": 3, "overlap_s": 90.0},
    "few": {"moves_per_job": 0.3, "review_h": 0.5},
}

#: A moment in the middle of trace 2: jobs have moved before it, and others arrive after it.
UNTIL_S = 5000.0

both_conventions = pytest.mark.parametrize("convention", CONVENTIONS)
every_way = pytest.mark.parametrize("way", WAYS)


def run(
    jobs: JobTable, convention: Convention, limits: Limits | None = None, **params: Any
) -> ReplayResult:
    options = options_of(repack=RepackParams(**params), limits=limits or Limits())
    return replay(jobs, "repack", options, convention=convention)


@functools.cache
def whole(way: str, convention: Convention, seed: int = 2) -> ReplayResult:
    """Return one replay per way and convention, for all tests that only look at it."""
    return run(random_jobs(seed), convention, **WAYS[way])


def stays(result: ReplayResult) -> dict[str, list[GroupVersion]]:
    """Return the versions of each job in order of time."""
    assert result.plan is not None
    out: dict[str, list[GroupVersion]] = {job_id: [] for job_id in result.jobs.job_id}
    for version in sorted(result.plan.groups, key=lambda version: version.from_s):
        for placement in version.placements:
            out[placement.job_id].append(version)
    return out


def moves_seen(result: ReplayResult) -> Counter[str]:
    """Count the changes of group or pins that the plan shows, by job."""
    out: Counter[str] = Counter()
    for job_id, versions in stays(result).items():
        homes = [
            (version.group_id, set(p.rollout_pins), set(p.train_pins))
            for version in versions
            for p in version.placements
            if p.job_id == job_id
        ]
        out[job_id] = sum(before != after for before, after in pairwise(homes))
    return out


@both_conventions
@every_way
def test_rules_slos_and_accounts(way: str, convention: Convention) -> None:
    """The checker passes; no pause breaks an SLO; each pause is a move and each move a pause."""
    result = whole(way, convention)
    plan = result.plan
    assert plan is not None
    assert check_plan(plan).ok
    assert recost(plan) == pytest.approx(result.usd_total)
    assert result.slo_attainment == 1.0
    assert all(record.slowdown <= record.job.slo * (1 + 1e-9) for record in result.records)
    assert moves_seen(result) == Counter({r.job.job_id: r.moves for r in result.records})
    assert result.moves == len(plan.pauses)
    assert sum((result.admission or {}).values()) == len(result.records)
    for job_id in plan.jobs.job_id:
        spans = sorted((p.from_s, p.to_s) for p in plan.pauses if p.job_id == job_id)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


@both_conventions
def test_something_moves_in_every_way(convention: Convention) -> None:
    """Otherwise the tests here would say nothing."""
    assert min(whole(way, convention).moves for way in WAYS) >= 3


@both_conventions
@every_way
def test_the_price_is_never_above_dedicated_nodes_and_the_moves(
    way: str, convention: Convention
) -> None:
    """Every node has a job pinned to it, or is held after a move.

    So at any time the price is at most that of the jobs present on nodes of their own. Under
    ``wallclock`` stays are those of ``solo`` and the restarts.
    """
    params = WAYS[way]
    result = whole(way, convention)
    most = 0.0
    for record in result.records:
        own = result.cluster.usd_per_hour(record.job.rollout_nodes, record.job.train_nodes)
        held_s = record.moves * params.get("overlap_s", 0.0)
        most += own * (record.elapsed_s + held_s) / HOUR
        if convention == "wallclock":
            stay_s = record.job.duration_s + record.moves * record.job.restart_s
            assert record.elapsed_s == pytest.approx(stay_s)
    assert result.usd_total <= most * (1 + 1e-9)


@both_conventions
@pytest.mark.parametrize("moves_per_job", [0.0, 0.25, 1.0])
def test_moves_are_within_their_budget_at_every_moment(
    moves_per_job: float, convention: Convention
) -> None:
    policy = repack_of(convention, moves_per_job=moves_per_job, lasting_h=20.0, review_h=0.2)
    for _ in steps(random_jobs(3), policy, convention):
        assert policy.ledger.moves <= moves_per_job * policy.ledger.arrived
    assert (policy.ledger.moves > 0) is (moves_per_job > 0)


@both_conventions
def test_moves_of_a_job_within_any_24_hours(convention: Convention) -> None:
    """The trace is stretched twentyfold, so that jobs may move again on another day."""
    jobs = [
        replace(job, arrival_s=20 * job.arrival_s, duration_s=20 * job.duration_s)
        for job in random_jobs(2, n=10)
    ]
    free, limited = (
        run(JobTable.from_jobs(jobs), convention, lasting_h=50.0, max_moves_per_job_day=limit)
        for limit in (None, 1)
    )
    assert most_in_a_day(limited) == 1 < most_in_a_day(free)


def most_in_a_day(result: ReplayResult) -> int:
    assert result.plan is not None
    times: dict[str, list[float]] = {}
    for pause in result.plan.pauses:
        times.setdefault(pause.job_id, []).append(pause.from_s)
    return max(
        sum(at <= other < at + 24 * HOUR for other in moved)
        for moved in times.values()
        for at in moved
    )


@both_conventions
def test_frozen_jobs_never_move(convention: Convention) -> None:
    jobs = random_jobs(2)
    moved = {r.job.job_id for r in whole("residual", convention).records if r.moves}
    assert len(moved) > 3
    frozen = frozenset(sorted(moved)[::2])
    result = run(jobs, convention, freeze=frozen)
    assert result.moves > 0
    assert all(r.moves == 0 for r in result.records if r.job.job_id in frozen)


@both_conventions
def test_nobody_moves_twice_in_an_event_though_restarts_take_no_time(
    monkeypatch: pytest.MonkeyPatch, convention: Convention
) -> None:
    """Several parts an event. Who has just come does not move either."""
    seen = changes(monkeypatch)
    moves = 0
    for seed in (0, 2, 3):
        jobs = random_jobs(seed, restarts_s=(0.0,))
        result = run(jobs, convention, lasting_h=20.0, max_scope=4, scopes=6)
        assert moves_seen(result) == Counter({r.job.job_id: r.moves for r in result.records})
        moves += result.moves
    assert sum(len(change.moved) for change in seen) == moves > 5
    for change in seen:
        assert len(set(change.moved)) == len(change.moved)


@both_conventions
@pytest.mark.parametrize("limits", [Limits(max_rate=3), Limits(max_group_size=2)])
def test_other_limits(limits: Limits, convention: Convention) -> None:
    result = run(random_jobs(7, n=9), convention, limits)
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.slo_attainment == 1.0
    assert result.plan.limits == limits


# --- the same again -------------------------------------------------------------------------------


@both_conventions
def test_equal_input_gives_equal_bytes_whatever_the_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, convention: Convention
) -> None:
    """Work ends searches, not time: none ends for want of it, and patience makes no difference."""
    first = whole("residual", convention)
    monkeypatch.setattr(planner.policies.repack, "_PATIENCE_S", 1e6)
    seen = watched(monkeypatch)
    again = run(random_jobs(2), convention)
    files = [tmp_path / "first.json", tmp_path / "again.json"]
    for result, file in zip((first, again), files, strict=True):
        assert result.plan is not None
        write_plan_json(result.plan, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert {found.ending for found in seen} <= {Ending.OPTIMAL, Ending.NODES}


def clipped(result: ReplayResult, until_s: float) -> set[GroupVersion]:
    assert result.plan is not None
    return {
        replace(version, to_s=min(version.to_s, until_s))
        for version in result.plan.groups
        if version.from_s < until_s
    }


@both_conventions
@every_way
def test_the_future_decides_nothing(way: str, convention: Convention) -> None:
    """Cut after a moment, the plan up to it is the same: arrivals later are not known.

    Nor is, without an oracle, when the jobs present leave: those that leave later leave still
    later in the other trace.
    """
    full = whole(way, convention)
    here = [record for record in full.records if record.job.arrival_s < UNTIL_S]
    assert 3 < len(here) < len(full.records)
    assert full.plan is not None
    assert any(pause.from_s < UNTIL_S for pause in full.plan.pauses)
    cut = [record.job for record in here]
    if way != "oracle":
        later = {r.job.job_id for r in here if r.departure_s > UNTIL_S}
        assert len(later) > 2
        cut = [
            replace(job, duration_s=3 * job.duration_s) if job.job_id in later else job
            for job in cut
        ]
    part = run(JobTable.from_jobs(cut), convention, **WAYS[way])
    assert clipped(part, UNTIL_S) == clipped(full, UNTIL_S)


def test_the_oracle_does_look_at_who_leaves_when() -> None:
    """As above, with the oracle: here it matters, so the test above can fail."""
    full = whole("oracle", "wallclock")
    other = [
        replace(r.job, duration_s=20 * r.job.duration_s) if r.departure_s > UNTIL_S else r.job
        for r in full.records
    ]
    part = run(JobTable.from_jobs(other), "wallclock", **WAYS["oracle"])
    assert clipped(part, UNTIL_S) != clipped(full, UNTIL_S)


def test_moves_are_paid_for_and_the_fleet_is_still_cheaper() -> None:
    """In sum over some traces moves earn more than they cost, as they are meant to."""
    seeds = (2, 7, 11)
    free = [whole("residual", "wallclock", seed) for seed in seeds]
    still = [run(random_jobs(seed), "wallclock", moves_per_job=0.0) for seed in seeds]
    assert sum(result.moves for result in free) > 20
    assert sum(r.usd_total for r in free) < 0.97 * sum(r.usd_total for r in still)
