"""The optimality gap at its limits: time, tolerance, Ctrl-C, size, and options."""

from __future__ import annotations

import dataclasses
import io
import signal
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from builders import cluster_of, job_of, trace_of
from clocks import Ticking
from gap_cases import (
    even,
    overlapping,
    read_trace_first,
    saturated,
    short_production,
    split,
)
from instances.errors import FleetPlannerError, InfeasibleError, InputError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import Limits
from instances.trace import read_trace
from models.backends.interrupt import Interrupt
from models.bounds.volume import volume
from models.exact import set_partition
from models.group.known_groups import KnownGroups
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy
from models.problem.snapshot import Snapshot
from planner.gap import proving as gap
from planner.gap import solve as gap_solve
from planner.gap.document import gap_notes
from planner.gap.moments import moments_of
from planner.gap.proving import GapReport, GapRow, optimality_gap
from planner.gap.solve import ChainSolver, Link
from planner.gap.tables import print_gap
from planner.policies.policy import PolicyOptions
from planner.replay.replaying import replay

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
