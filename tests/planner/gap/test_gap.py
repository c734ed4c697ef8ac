"""The optimality gap of a replay: by hand, against another method, and its identities."""

from __future__ import annotations

import dataclasses
import io
import multiprocessing
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from math import isclose, prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of, job_of, trace_of
from clocks import Ticking
from gap_cases import (
    HOUR,
    even,
    fragmented,
    overlapping,
    random_trace,
    saturated,
    short_production,
    with_async,
)
from instances.errors import FleetPlannerError, InfeasibleError, InputError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import Limits
from instances.trace import Trace, read_trace
from models.backends.interrupt import Interrupt
from models.bounds.volume import volume
from models.exact import exhaustive, set_partition
from models.group.group_cost import GroupCost
from models.group.known_groups import KnownGroups, RememberingCost
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy
from models.problem.snapshot import PlacedGroup, Snapshot
from planner.gap import proving as gap
from planner.gap import solve as gap_solve
from planner.gap import workers as gap_workers
from planner.gap.document import gap_notes
from planner.gap.moments import moments_of
from planner.gap.proving import GapReport, GapRow, GapTotals, optimality_gap
from planner.gap.solve import ChainSolver, Effort, Link, Replayed
from planner.gap.store import Store
from planner.gap.tables import print_gap
from planner.placement.placer import PlacerParams
from planner.policies.policy import PolicyOptions
from planner.replay.replaying import replay


def prices(report: GapReport) -> list[tuple[float, ...]]:
    """Return the four prices of every moment, in pairs of nodes."""
    return [
        tuple(
            round(usd / PAIR_USD, 9)
            for usd in (row.policy_usd, row.replanned_usd, row.held_usd, row.bound_usd)
        )
        for row in report.rows
    ]


def replayed_of(trace: Trace, **changes: Any) -> Replayed:
    values = {
        "jobs": tuple(trace.jobs),
        "cluster": cluster_of(),
        "limits": Limits(),
        "placer": PlacerParams(),
        "effort": Effort(),
    }
    return Replayed(**{**values, **changes})


def snapshot_of(report: GapReport, row: GapRow) -> Snapshot:
    return Snapshot(
        table=report.trace.jobs.take(row.moment.jobs),
        cluster=report.replayed.cluster,
        limits=report.replayed.limits,
    )


# --- by hand ----------------------------------------------------------------------------------


def test_two_overlapping_jobs_cost_one_pair_of_nodes() -> None:
    # a alone, both, b alone: one pair each hour, and no less is possible.
    report = optimality_gap(overlapping())
    assert prices(report) == [(1, 1, 1, 1)] * 3
    assert report.ratio == 1.0
    assert [row.moment.jobs for row in report.rows] == [(0,), (0, 1), (1,)]
    assert [row.moment.hours for row in report.rows] == [1.0, 1.0, 1.0]
    assert report.mean_usd_per_hour(report.totals.bound_usd) == pytest.approx(PAIR_USD)


def test_solo_pays_a_pair_too_many_while_both_are_there() -> None:
    # 1 + 2 + 1 pair-hours against 1 + 1 + 1; re-planned, solo is as dear: all heuristic loss.
    report = optimality_gap(overlapping(), policy="solo")
    assert prices(report) == [(1, 1, 1, 1), (2, 2, 1, 1), (1, 1, 1, 1)]
    totals = report.totals
    assert totals.ratio == pytest.approx(4 / 3)
    assert totals.online_regret == 1.0
    assert totals.heuristic_loss == pytest.approx(4 / 3)
    assert totals.unproved_rest == 1.0


def test_fragments_left_by_departures_are_online_regret() -> None:
    # policy 1 + 2 + 2 + 1 = 6 pair-hours; placed anew 1 + 2 + 1 + 1 = 5, which is the least.
    report = optimality_gap(fragmented())
    assert prices(report) == [(1, 1, 1, 1), (2, 2, 2, 2), (2, 1, 1, 1), (1, 1, 1, 1)]
    totals = report.totals
    assert totals.ratio == pytest.approx(6 / 5)
    assert totals.online_regret == pytest.approx(6 / 5)
    assert totals.heuristic_loss == 1.0
    (worst,) = report.worst(1)
    assert worst.moment.from_s == 2 * HOUR
    assert worst.ratio == pytest.approx(2.0)


def test_what_the_saturation_rule_costs_is_heuristic_loss() -> None:
    published = optimality_gap(saturated())
    assert prices(published) == [(2, 2, 1, 1)]
    assert published.totals.online_regret == 1.0
    assert published.totals.heuristic_loss == pytest.approx(2.0)
    packed = optimality_gap(saturated(), placer=PlacerParams(skip_saturated=False))
    assert prices(packed) == [(1, 1, 1, 1)]


def test_sharing_stretches_stays_under_work() -> None:
    # alone an iteration takes 60 s, all four on one pair 120 s: an hour of work takes two.
    packed = PlacerParams(skip_saturated=False)
    fixed = optimality_gap(saturated(), placer=packed)
    stretched = optimality_gap(saturated(), placer=packed, durations="work")
    assert fixed.totals.hours == 1.0
    assert stretched.totals.hours == pytest.approx(2.0)
    assert stretched.ratio == 1.0


def test_async_jobs_are_in_prices_and_not_in_the_ratio() -> None:
    # 2 + 1 dedicated nodes for all three hours, beside 4 pair-hours of solo against 3.
    report = optimality_gap(with_async(), policy="solo")
    dedicated = 2 * ROLLOUT_USD + TRAIN_USD
    assert report.ratio == pytest.approx(4 / 3)
    assert [row.moment.dedicated_usd_per_hour for row in report.rows] == [dedicated] * 3
    assert report.mean_usd_per_hour(report.totals.policy_usd) == pytest.approx(
        4 / 3 * PAIR_USD + dedicated
    )
    assert report.result.usd_per_hour_mean == pytest.approx(4 / 3 * PAIR_USD + dedicated)


def test_async_jobs_alone_leave_no_ratio() -> None:
    free = job_of("free", 60, 40, 1.0, duration_s=HOUR, mode="async")
    report = optimality_gap(trace_of(free))
    assert report.rows == ()
    assert report.ratio is None
    assert report.worst_open is None
    assert report.mean_usd_per_hour(report.totals.bound_usd) == pytest.approx(PAIR_USD)


def test_nothing_to_pay_leaves_no_ratio() -> None:
    report = optimality_gap(overlapping(), cluster=cluster_of(rollout_usd=0, train_usd=0))
    assert report.ratio is None
    assert report.n_proved == len(report.rows) == 3


def test_one_step_jobs_take_part() -> None:
    """Two that are as busy as their rollout nodes for half their deadline share one of each."""
    jobs = [job_of(name, 60, 40, slo=2.0, mode="one-step") for name in ("odd", "even")]
    report = optimality_gap(trace_of(*jobs))
    assert report.ratio == pytest.approx(1.0)
    assert [row.solved.usd_per_hour for row in report.rows] == pytest.approx([57.04])


def test_the_same_jobs_later_are_one_snapshot() -> None:
    # a, both, a again: two different sets, three moments.
    trace = trace_of(even("a", 0, 3, 45, 1.2), even("b", 1, 1, 45, 1.2))
    report = optimality_gap(trace)
    assert (len(report.rows), report.distinct) == (3, 2)
    assert report.rows[0].solved is report.rows[2].solved


def test_classes_of_jobs_present() -> None:
    report = optimality_gap(fragmented())
    assert [(least, most, part.hours) for least, most, part in report.by_jobs()] == [
        (1, 1, 1.0),
        (2, 2, 2.0),
        (3, 4, 1.0),
    ]


# --- identities -------------------------------------------------------------------------------


def split(totals: GapTotals) -> float:
    parts = (totals.online_regret, totals.heuristic_loss, totals.unproved_rest)
    assert None not in parts
    return prod(part for part in parts if part is not None)


@given(seed=st.integers(0, 10**6), gangless=st.booleans(), work=st.booleans())
@settings(max_examples=15, deadline=None)
def test_all_prices_are_right_on_random_traces(seed: int, gangless: bool, work: bool) -> None:
    trace = random_trace(seed)
    if gangless:
        jobs = [dataclasses.replace(job, rollout_nodes=1, train_nodes=1) for job in trace.jobs]
        trace = trace_of(*jobs)
    report = optimality_gap(trace, durations="work" if work else "wallclock")
    result = report.result
    # the policy's price is the replay's
    assert report.mean_usd_per_hour(report.totals.policy_usd) == pytest.approx(
        result.usd_per_hour_mean
    )
    # every optimum is what exhaustive search finds, which shares no code with set partitioning
    for row in report.rows:
        assert row.proved
        found = exhaustive.solve(snapshot_of(report, row), SolveOptions())
        assert found.usd_per_hour == pytest.approx(row.held_usd)
        plan = report.plan_at(row)
        assert plan is not None
        assert plan.usd_total == pytest.approx(row.held_usd)
        assert row.bound_usd <= row.held_usd <= row.policy_usd
    assert report.ratio is not None
    assert isclose(split(report.totals), report.ratio, rel_tol=1e-12)
    parts = [part for _, _, part in report.by_jobs()]
    assert sum(part.policy_usd for part in parts) == pytest.approx(report.totals.policy_usd)


def test_optima_are_monotone(tmp_path: Path) -> None:
    """More jobs never cost less, and one more at most its price alone."""
    report = optimality_gap(read_trace(short_production(tmp_path)))
    assert report.n_proved == len(report.rows) > 40
    grown = shrunk = 0
    for before, after in pairwise(report.rows):
        old, new = set(before.moment.jobs), set(after.moment.jobs)
        if old < new:
            grown += 1
            more = len(new - old) * PAIR_USD
            assert before.held_usd <= after.held_usd * (1 + 1e-9)
            assert after.held_usd <= (before.held_usd + more) * (1 + 1e-9)
        elif new < old:
            shrunk += 1
            assert after.held_usd <= before.held_usd * (1 + 1e-9)
    assert grown > 15
    assert shrunk > 15


def test_neighbours_change_no_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read_trace(short_production(tmp_path))
    chained = optimality_gap(trace)
    assert any(row.solved.reused for row in chained.rows if row.solved is not None)
    monkeypatch.setattr(gap, "CHAIN", 1)  # every snapshot by itself
    single = optimality_gap(trace)
    assert not any(row.solved.reused for row in single.rows if row.solved is not None)
    assert prices(single) == prices(chained)


# --- limits -----------------------------------------------------------------------------------


def full_and(tmp_path: Path, **options: Any) -> tuple[GapReport, GapReport]:
    trace = read_trace(short_production(tmp_path))
    return optimality_gap(trace), optimality_gap(trace, **options)


def assert_bounds_hold(part: GapReport, full: GapReport) -> None:
    """What is known of a part of the work never says more than all of it."""
    for some, all_ in zip(part.rows, full.rows, strict=True):
        assert some.moment == all_.moment
        assert some.bound_usd <= all_.held_usd * (1 + 1e-9)
        assert some.held_usd >= all_.held_usd * (1 - 1e-9)
        assert some.policy_usd == all_.policy_usd
    assert isclose(split(part.totals), part.ratio or 0.0, rel_tol=1e-12)


def test_without_time_placer_and_bounds_are_left(tmp_path: Path) -> None:
    full, hasty = full_and(tmp_path, time_limit_per_snapshot_s=0.0)
    assert_bounds_hold(hasty, full)
    assert 0 < hasty.n_proved < full.n_proved
    assert sum(hasty.stopped_by.values()) == len(hasty.rows) - hasty.n_proved
    assert set(hasty.stopped_by) == {"time"}
    assert hasty.worst_open is not None
    assert hasty.worst_open > 1.0


def test_tolerance_is_kept(tmp_path: Path) -> None:
    full, near = full_and(tmp_path, tolerance=0.3)
    assert_bounds_hold(near, full)
    assert near.n_proved < full.n_proved
    assert near.n_within(0.3) == len(near.rows)
    assert set(near.stopped_by) == {"tolerance"}


def interrupting(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let Ctrl-C come once so many snapshots are done."""
    run, done = ChainSolver.run, [0]

    def counted(self: ChainSolver, chain: Any) -> Iterator[Link]:
        for link in run(self, chain):
            if done[0] == after:
                raise KeyboardInterrupt
            done[0] += 1
            yield link

    monkeypatch.setattr(ChainSolver, "run", counted)


@pytest.mark.parametrize("after", [0, 1, 17])
def test_ctrl_c_keeps_what_was_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    trace = read_trace(short_production(tmp_path))
    full = optimality_gap(trace)
    interrupting(monkeypatch, after)
    part = optimality_gap(trace)
    assert part.interrupted
    assert len(part.rows) - part.n_unsolved == after  # all sets of this trace differ
    assert_bounds_hold(part, full)
    for row in part.rows[:after]:
        assert row.proved
    lost = part.rows[after]
    assert (lost.held_usd, lost.replanned_usd) == (lost.policy_usd, lost.policy_usd)
    assert part.plan_at(lost) is None


def test_parts_of_an_unfinished_gap_are_not_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not looked at counts as held, which would read as no loss."""
    trace = read_trace(short_production(tmp_path))
    told = []
    for after in (None, 17):
        if after is not None:
            interrupting(monkeypatch, after)
        console = Console(file=io.StringIO(), width=200)
        print_gap(optimality_gap(trace), console)
        told.append(console.file.getvalue())  # type: ignore[attr-defined]
    whole, part = told
    assert "Ended early" not in whole
    assert "heuristic loss" in whole
    assert "Ended early: " in part
    assert "heuristic loss" not in part


def test_unsolved_moments_get_their_neighbours_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = read_trace(short_production(tmp_path))
    interrupting(monkeypatch, 17)
    part = optimality_gap(trace)
    raised = 0
    for row in part.rows[17:]:
        weak = volume(trace.jobs.take(row.moment.jobs), cluster_of(), Limits()).usd_per_hour
        assert row.bound_usd >= weak
        raised += row.bound_usd > weak
    assert raised > 0


def test_ctrl_c_inside_a_method_is_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(snapshot: Snapshot, options: SolveOptions, known: KnownGroups) -> Result:
        hasty = dataclasses.replace(options, time_limit_s=0.0)
        return dataclasses.replace(solve(snapshot, hasty, known), stopped_by=StoppedBy.INTERRUPT)

    solve = set_partition.solve
    monkeypatch.setattr(set_partition, "solve", stopped)
    # saturated: the placer's plan (two pairs) is not proved by the volume bound (one pair)
    report = optimality_gap(trace_of(*saturated().jobs, even("late", 2, 1, 30, 2.0)))
    assert report.interrupted
    assert report.rows[0].solved is None


def test_ctrl_c_that_a_finishing_solver_took_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler noted Ctrl-C, and it proved the optimum all the same."""

    def finishing(snapshot: Snapshot, options: SolveOptions, known: KnownGroups) -> Result:
        with Interrupt():
            signal.raise_signal(signal.SIGINT)
        return solve(snapshot, options, known)

    solve = set_partition.solve
    monkeypatch.setattr(set_partition, "solve", finishing)
    report = optimality_gap(read_trace(short_production(tmp_path)))
    assert report.interrupted
    assert 0 < report.n_unsolved < len(report.rows)


def test_ctrl_c_after_the_last_snapshot_still_gets_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pressed(self: Any, moments: Any) -> tuple[GapRow, ...]:
        signal.raise_signal(signal.SIGINT)
        return rows(self, moments)

    rows = gap._Book.rows
    monkeypatch.setattr(gap._Book, "rows", pressed)
    report = optimality_gap(overlapping())
    assert report.interrupted
    assert (report.ratio, report.n_unsolved, gap_notes(report)) == (1.0, 0, [])


def test_beyond_set_partitioning_pools_are_decomposed_and_plans_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(
        snapshot: Snapshot, options: SolveOptions, known: KnownGroups | None = None
    ) -> Result:
        if known is None:  # the local search's own small parts
            return solve(snapshot, options)
        raise UnsupportedError("too many groups")

    trace = read_trace_first(14)
    full = optimality_gap(trace)
    solve = set_partition.solve
    monkeypatch.setattr(set_partition, "solve", refused)
    report = optimality_gap(trace)
    assert_bounds_hold(report, full)
    assert set(report.stopped_by) == {"size"}
    assert "pool-decomposition" in report.bound_methods
    assert "set-partition" not in report.bound_methods
    searched = report.totals.held_usd
    monkeypatch.setattr(gap_solve._Snapshot, "_search", lambda self: None)
    assert searched < optimality_gap(trace).totals.held_usd


def read_trace_first(n: int) -> Trace:
    from command_line import PRODUCTION

    trace = read_trace(PRODUCTION)
    return dataclasses.replace(trace, jobs=trace.jobs.take(range(n)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "random"}, "Expected policy in weave, repack, solo, got 'random'"),
        ({"policy": "waeve"}, "Did you mean 'weave'"),
        ({"durations": "wall"}, "Expected convention in"),
        ({"tolerance": -0.1}, "Expected tolerance >= 0 and < 1, got -0.1"),
        ({"tolerance": float("nan")}, "Expected tolerance"),
        ({"processes": 0}, "Expected processes >= 1, got 0"),
        ({"time_limit_per_snapshot_s": -1.0}, "Expected time_limit_s >= 0"),
        ({"seed": -1}, "Expected seed"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        optimality_gap(overlapping(), **options)


def test_a_job_that_cannot_run_is_named() -> None:
    with pytest.raises(InfeasibleError, match="'big'"):
        optimality_gap(trace_of(job_of("big", 60, 40, rollout_state_gb=3000.0)))


def test_a_table_is_a_trace() -> None:
    jobs: JobTable = overlapping().jobs
    assert optimality_gap(jobs).ratio == 1.0


def test_steps_are_timed_when_there_is_a_clock() -> None:
    report = optimality_gap(overlapping(), clock=Ticking())
    assert report.seconds == {"replay": 1.0, "read": 1.0, "solve": 1.0}
    assert optimality_gap(overlapping()).seconds == {}


def test_progress_counts_snapshots() -> None:
    calls: list[tuple[str, int, int]] = []
    optimality_gap(overlapping(), progress=lambda *call: calls.append(call))
    assert [call for call in calls if call[0] == "snapshots"] == [
        ("snapshots", done, 3) for done in range(4)
    ]


def test_moments_and_records_must_agree() -> None:
    options = PolicyOptions(cluster=cluster_of())
    result = replay(overlapping().jobs, "weave", options, convention="wallclock")
    line = dataclasses.replace(result.timeline, jobs=result.timeline.jobs + 1)
    with pytest.raises(FleetPlannerError, match=r"Expected 2 jobs present at 0\.0 s, got 1"):
        moments_of(dataclasses.replace(result, timeline=line))


# --- rates ------------------------------------------------------------------------------------


def test_rates_are_held_against_rates() -> None:
    # r = t = 10, D = 40 beside r = t = 30, D = 120: strict rounds need T = 60 <= 40: apart. At 2
    # or 3 iterations a period of the short one, one pair of nodes holds both (2 x 10 + 30 <= 80).
    trace = trace_of(
        job_of("short", 10, 10, 2.0, duration_s=HOUR), job_of("long", 30, 30, 2.0, duration_s=HOUR)
    )
    assert optimality_gap(trace).rows[0].held_usd == pytest.approx(2 * PAIR_USD)
    mixed = optimality_gap(trace, limits=Limits(max_rate=3))
    assert mixed.rows[0].proved
    assert mixed.rows[0].held_usd == pytest.approx(PAIR_USD)


# --- verdicts ---------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_known_verdicts_are_those_of_the_snapshot(seed: int) -> None:
    jobs = tuple(random_trace(seed).jobs)
    known = KnownGroups()
    first = Snapshot.of(jobs[:5], cluster_of())
    set_partition.solve(first, SolveOptions(), known)
    second = Snapshot.of(jobs[1:], cluster_of())  # positions move by one
    told = RememberingCost(second, known)
    fresh = GroupCost(second)
    for members in [(0, 1), (1, 2), (0, 2, 3), (1, 3, 4), (2, 5)]:
        assert told.least_nodes(members) == fresh.least_nodes(members)
        for nodes in [(1, 1), (2, 1), (3, 2)]:
            got, wanted = told.decide(members, nodes), fresh.decide(members, nodes)
            assert (got is None) == (wanted is None)
            if got is not None:
                assert got.members == members
    assert (
        set_partition.solve(second, SolveOptions(), known).usd_per_hour
        == set_partition.solve(second, SolveOptions()).usd_per_hour
    )


def test_facts_of_jobs_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownGroups()
    for ids in (("a", "b"), ("b", "c")):
        known.put_verdict(ids, (1, 1), None)
        known.put_least(ids, (1, 1))
    known.keep_only(["b", "c", "d"])
    assert list(known.verdicts) == [(("b", "c"), (1, 1))]
    assert list(known.least) == [("b", "c")]
    monkeypatch.setattr("models.group.known_groups._MOST", 1)
    known.put_verdict(("c", "d"), (1, 1), None)  # full: all others are forgotten
    known.put_least(("c", "d"), None)
    assert list(known.verdicts) == [(("c", "d"), (1, 1))]
    assert list(known.least) == [("c", "d")]


# --- processes --------------------------------------------------------------------------------


def chains(trace: Trace, n: int) -> list[list[Link]]:
    return [[Link(number=at, jobs=tuple(range(at + 1)))] for at in range(min(n, len(trace.jobs)))]


def test_what_a_worker_raises_is_raised_here() -> None:
    trace = trace_of(job_of("a", 60, 40), job_of("big", 60, 40, train_state_gb=3000.0))
    links = gap_workers.solved_links(replayed_of(trace), chains(trace, 2), 2)
    with pytest.raises(FleetPlannerError, match="'big'"):
        list(links)
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_an_error() -> None:
    trace = fragmented()
    links = gap_workers.solved_links(replayed_of(trace), chains(trace, 3), 2)
    next(links)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(FleetPlannerError, match="A worker process ended with code"):
        list(links)
    assert multiprocessing.active_children() == []


def test_no_more_processes_than_chains() -> None:
    links = gap_workers.solved_links(replayed_of(fragmented()), chains(fragmented(), 1), 8)
    assert len(list(links)) == 1
    assert multiprocessing.active_children() == []
    assert gap_workers.cpus() >= 1


# --- the store --------------------------------------------------------------------------------


def count_solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of jobs of every snapshot solved from now on."""
    solved: list[int] = []
    solve = gap_solve._Snapshot.solve

    def counted(self: Any, placed: tuple[PlacedGroup, ...]) -> Any:
        solved.append(len(self._jobs))
        return solve(self, placed)

    monkeypatch.setattr(gap_solve._Snapshot, "solve", counted)
    return solved


def test_a_store_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    first = optimality_gap(fragmented(), resume=store)
    solved = count_solved(monkeypatch)
    again = optimality_gap(fragmented(), resume=store)
    assert solved == []
    assert (first.read, again.read) == (0, 3)  # a with b is as b with c
    assert again.rows == first.rows


def test_names_and_arrivals_do_not_matter_to_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    optimality_gap(fragmented(), resume=store)
    renamed = [
        dataclasses.replace(job, job_id=f"x{job.job_id}", arrival_s=job.arrival_s + 500.0)
        for job in fragmented().jobs
    ]
    solved = count_solved(monkeypatch)
    assert optimality_gap(trace_of(*renamed), resume=store).read == 3
    assert solved == []


def test_policies_share_what_does_not_depend_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    optimality_gap(fragmented(), resume=store)
    solved = count_solved(monkeypatch)
    solo = optimality_gap(fragmented(), policy="solo", resume=store)
    assert solved == []
    # solo: 2 + 3 + 2 + 1 pair-hours, placed anew as many; the least is 5
    assert solo.ratio == pytest.approx(8 / 5)
    assert solo.totals.online_regret == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"limits": Limits(max_group_size=4)},
        {"cluster": cluster_of(train_usd=40.0)},
        {"cluster": cluster_of(host_dram_gb=1999.0)},
    ],
)
def test_other_problems_are_not_read(tmp_path: Path, change: dict[str, Any]) -> None:
    store = tmp_path / "store"
    optimality_gap(fragmented(), resume=store)
    assert optimality_gap(fragmented(), resume=store, **change).read == 0


def test_what_is_not_proved_is_read_at_the_same_effort_only(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hasty = optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    assert hasty.n_proved == 0
    again = optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    assert (again.read, again.rows) == (1, hasty.rows)
    longer = optimality_gap(saturated(), resume=store)
    assert (longer.read, longer.n_proved) == (0, 1)
    proved = optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    assert (proved.read, proved.n_proved) == (1, 1)


def damaged(store: Path, sql: str) -> None:
    connection = sqlite3.connect(store)
    with connection:
        connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE rows SET text = replace(text, '57.04', '17.04')",
        "UPDATE rows SET digest = 'x'",
        "DROP TABLE rows",
        "ALTER TABLE rows RENAME COLUMN text TO words",
    ],
)
def test_a_damaged_store_is_refused(tmp_path: Path, sql: str) -> None:
    store = tmp_path / "store"
    optimality_gap(overlapping(), resume=store)
    damaged(store, sql)
    with pytest.raises(InputError, match="store"):
        optimality_gap(overlapping(), resume=store)


def test_a_row_says_what_kind_it_is(tmp_path: Path) -> None:
    store = tmp_path / "store"
    optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    damaged(store, "UPDATE rows SET kind = 'proved' WHERE kind LIKE 'unproved%'")
    with pytest.raises(InputError, match="damaged"):
        optimality_gap(saturated(), resume=store)


def test_departures_matter_where_the_tie_rule_reads_them(tmp_path: Path) -> None:
    store, later = tmp_path / "store", PlacerParams(tie_rule="nearest-departure")
    report = optimality_gap(fragmented(), placer=later, resume=store)
    assert report.distinct == 4  # a with b, and b with c, differ in when they leave
    assert optimality_gap(fragmented(), placer=later, resume=store).read == 4


def test_two_runs_may_make_one_store(tmp_path: Path) -> None:
    """The other run has begun to make it, and is done while this one waits."""
    path, failed = tmp_path / "store", []

    def open_it() -> None:
        try:
            with Store(path):
                pass
        except InputError as error:
            failed.append(error)

    whole = tmp_path / "whole"
    with Store(whole):
        pass
    made = sqlite3.connect(whole)
    (table,) = made.execute("SELECT sql FROM sqlite_master").fetchone()
    (application,) = made.execute("PRAGMA application_id").fetchone()
    made.close()
    other = sqlite3.connect(path)
    with other:
        other.execute("BEGIN IMMEDIATE")
        other.execute(f"PRAGMA application_id = {application}")
        other.execute(table)
        thread = threading.Thread(target=open_it)
        thread.start()
        time.sleep(0.3)  # it has looked, and waits
    thread.join()
    other.close()
    assert failed == []


def test_a_store_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    optimality_gap(overlapping(), resume=store)
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **_: connect(f"{path.as_uri()}?mode=ro", uri=True)
    )
    with pytest.raises(InputError, match=r"Cannot be used as --resume: .*readonly"):
        Store(store)


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("job_id,arrival_s\n" * 400, encoding="utf-8")
    with pytest.raises(InputError, match="words"):
        Store(words)
    other = tmp_path / "other.db"
    damaged(other, "CREATE TABLE mine (a)")
    with pytest.raises(InputError, match="another database"):
        Store(other)
    with pytest.raises(InputError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(InputError, match="Create it first"):
        Store(tmp_path / "none" / "store")
    assert words.read_text(encoding="utf-8").startswith("job_id")  # untouched


def test_a_store_cut_short_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    optimality_gap(read_trace_first(12), resume=store)
    whole = store.read_bytes()
    assert len(whole) > 16384
    store.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"damaged|Cannot be used"):
        optimality_gap(read_trace_first(12), resume=store)
