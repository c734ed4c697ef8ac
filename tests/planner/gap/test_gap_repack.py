"""The optimality gap of policies that move running jobs: moments, what pauses cost, words."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of, table_of, trace_of
from command_line import invoke, ok, refused
from gap_cases import fragmented, random_trace
from instances.errors import FleetPlannerError
from instances.jobs import Job
from instances.trace import Trace, write_trace
from models.exact import exhaustive
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
from moving_cases import fragments, restless, scripted
from planner.gap.document import gap_document
from planner.gap.files import write_gap_files
from planner.gap.moments import moments_of
from planner.gap.proving import GapReport, optimality_gap
from planner.gap.tables import print_gap
from planner.policies.policy import NodesToHold, Policy, PolicyOptions
from planner.policies.registry import POLICIES
from planner.replay.replaying import Convention
from replay_cases import CONVENTIONS, HOUR_S, both_conventions

Make = Callable[[PolicyOptions], Policy]

#: c, alone since 1 h in group 3, moves to b's group when a has left; or b to c's.
C_TO_B = {"+b": {1: "ab"}, "-a": {1: "bc"}}
B_TO_C = {"+b": {1: "ab"}, "-a": {3: "cb"}}


def gap_of(
    make: Make, jobs: list[Job] | None = None, durations: Convention = "wallclock", **more: Any
) -> GapReport:
    """Return the gap of a policy that stands in for repack."""
    trace = trace_of(*(fragments() if jobs is None else jobs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, "repack", make)
        return optimality_gap(trace, policy="repack", durations=durations, **more)


def prices(report: GapReport) -> list[tuple[float, ...]]:
    """Return hours, and the four prices of every moment in pairs of nodes."""
    return [
        tuple(
            round(value, 6)
            for value in (
                row.moment.from_s / HOUR_S,
                row.policy_usd / PAIR_USD,
                row.replanned_usd / PAIR_USD,
                row.held_usd / PAIR_USD,
                row.bound_usd / PAIR_USD,
            )
        )
        for row in report.every
    ]


def text_of(report: GapReport, width: int = 80, **more: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_gap(report, console, **more)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


# --- moments --------------------------------------------------------------------------------------


def test_a_move_in_time_leaves_no_gap() -> None:
    """c moves at 2 h. Its pause keeps it to 3.1 h, on a pair that b holds anyway."""
    report = gap_of(scripted(C_TO_B))
    assert prices(report) == [(0, 1, 1, 1, 1), (1, 2, 2, 2, 2), (2, 1, 1, 1, 1), (3, 1, 1, 1, 1)]
    assert [row.moment.jobs for row in report.rows] == [(0, 1), (0, 1, 2), (1, 2), (1,)]
    assert report.ratio == 1.0
    assert report.late == ()
    assert report.result.moves == 1


def test_what_is_paid_after_the_last_unpaused_departure_counts() -> None:
    """b moves at 2 h, so it leaves at 4.1 h: 1 + 2 + 1 + 1 + 0.1 pair-hours against 5."""
    report = gap_of(scripted(B_TO_C))
    assert prices(report) == [
        (0, 1, 1, 1, 1),
        (1, 2, 2, 2, 2),
        (2, 1, 1, 1, 1),
        (3, 1, 1, 1, 1),
        (4, 1, 0, 0, 0),
    ]
    (late,) = report.late
    assert late.moment.jobs == ()
    assert late.ratio is None
    assert late.moment.hours == pytest.approx(0.1)
    assert report.ratio == pytest.approx(5.1 / 5)
    totals = report.totals
    assert totals.policy_usd == pytest.approx(report.result.usd_total)
    assert totals.online_regret == pytest.approx(5.1 / 5)
    assert (totals.heuristic_loss, totals.unproved_rest) == (1.0, 1.0)
    # counts are of moments with jobs
    assert (len(report.rows), report.distinct, report.n_proved, report.n_unsolved) == (4, 3, 4, 0)
    assert report.n_reused == 1  # b and c are as good as a and b
    assert [(least, most) for least, most, _ in report.by_jobs()] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 4),
    ]


def test_a_price_that_changes_within_a_moment_is_its_mean() -> None:
    """c moves at 2.5 h: two pairs for half of the third hour."""
    make = scripted({"+b": {1: "ab"}, "r5": {1: "bc"}}, review_s=HOUR_S / 2)
    report = gap_of(make)
    assert prices(report)[2] == (2, 1.5, 1, 1, 1)
    assert report.ratio == pytest.approx(5.5 / 5)


def test_a_paused_job_beyond_its_stay_costs_and_does_not_count() -> None:
    """c moves to a pair of its own at 2 h, and holds it to 3.1 h: 0.1 h of the fourth hour."""
    report = gap_of(scripted({"+b": {1: "ab"}, "-a": {1: "b", 4: "c"}}))
    assert prices(report)[2:] == [(2, 2, 1, 1, 1), (3, 1.1, 1, 1, 1)]
    assert report.rows[-1].moment.jobs == (1,)
    assert report.ratio == pytest.approx((1 + 2 + 2 + 1.1) / 5)


def test_nodes_held_for_an_overlap_are_paid_for() -> None:
    """c's old pair for 0.2 h more, from 2 h on."""
    held = {"-a": [NodesToHold("g3", 0.2 * HOUR_S, 1, 1)]}
    report = gap_of(scripted(C_TO_B, held=held))
    assert prices(report)[2] == (2, 1.2, 1, 1, 1)
    assert report.totals.policy_usd == pytest.approx(report.result.usd_total)


def test_by_work_a_paused_job_is_present() -> None:
    """C = T throughout, so stays are those of wallclock, and the pause is part of c's."""
    report = gap_of(scripted(C_TO_B), durations="work")
    assert [round(row.moment.from_s / HOUR_S, 6) for row in report.rows] == [0, 1, 2, 3.1]
    assert [row.moment.jobs for row in report.rows] == [(0, 1), (0, 1, 2), (1, 2), (1,)]
    assert report.ratio == 1.0
    assert report.late == ()


@both_conventions
def test_reviews_that_change_nothing_make_no_moments(convention: Convention) -> None:
    often = gap_of(scripted({"+b": {1: "ab"}}, review_s=600.0), durations=convention)
    never = gap_of(scripted({"+b": {1: "ab"}}), durations=convention)
    assert len(often.result.timeline.time_s) > 2 * len(never.result.timeline.time_s)
    assert [row.moment for row in often.rows] == [row.moment for row in never.rows]


def test_a_hole_that_a_pause_fills_is_no_moment_of_the_bound() -> None:
    """a from 0 to 1 h, moved at 0.5 h and there to 1.1 h; d comes at 2 h. Nobody from 1 to 2 h."""
    a = replace(fragments()[0], duration_s=HOUR_S)
    d = replace(a, job_id="d", arrival_s=2 * HOUR_S)
    report = gap_of(scripted({"r1": {5: "a"}}, review_s=HOUR_S / 2), [a, d])
    assert prices(report) == [(0, 1, 1, 1, 1), (1, 0.1, 0, 0, 0), (2, 1, 1, 1, 1)]
    assert report.ratio == pytest.approx(2.1 / 2)


def test_async_jobs_are_no_part_of_it() -> None:
    """Of the first four hours; 2 + 1 dedicated nodes."""
    free = job_of("free", 60, 40, 1.0, duration_s=4 * HOUR_S, rollout_nodes=2, mode="async")
    report = gap_of(scripted(B_TO_C), [*fragments(), free])
    assert report.ratio == pytest.approx(5.1 / 5)
    dedicated = 4 * (2 * ROLLOUT_USD + TRAIN_USD)
    total = report.mean_usd_per_hour(report.totals.policy_usd) * report.result.horizon_h
    assert total == pytest.approx(5.1 * PAIR_USD + dedicated)
    assert total == pytest.approx(report.result.usd_total)


def test_a_timeline_that_does_not_know_of_a_job_is_a_fault() -> None:
    result = gap_of(scripted(C_TO_B)).result
    wrong = replace(result.timeline, jobs=result.timeline.jobs + 1)
    with pytest.raises(FleetPlannerError, match="jobs present"):
        moments_of(replace(result, timeline=wrong))
    gone = [replace(record, departure_s=record.departure_s + 1) for record in result.records]
    with pytest.raises(FleetPlannerError, match="jobs present"):
        moments_of(replace(result, records=tuple(gone)))


def test_a_turn_without_a_row_is_a_fault() -> None:
    """b is said to stay a second longer, of which the timeline knows nothing."""
    result = gap_of(scripted(C_TO_B)).result
    jobs = result.jobs.replace(duration_s=result.jobs.duration_s + np.array([0.0, 0.0, 1.0]))
    with pytest.raises(FleetPlannerError, match="Expected a row"):
        moments_of(replace(result, jobs=jobs))


# --- the bound holds whatever is moved ------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    convention=st.sampled_from(CONVENTIONS),
    overlap_s=st.sampled_from([0.0, 45.0]),
)
@settings(max_examples=15, deadline=None)
def test_no_moves_beat_the_optimum_of_the_unpaused_jobs(
    seed: int, convention: Convention, overlap_s: float
) -> None:
    jobs = [
        replace(job, restart_s=120.0, slo=2 * job.slo, rollout_nodes=1, train_nodes=1)
        for job in random_trace(seed, 7).jobs
    ]
    report = gap_of(restless(seed, overlap_s), jobs, convention)
    for row in report.rows:  # exhaustive search shares no code with set partitioning
        table = report.trace.jobs.take(row.moment.jobs)
        snapshot = Snapshot(
            table=table, cluster=report.replayed.cluster, limits=report.replayed.limits
        )
        least = exhaustive.solve(snapshot, SolveOptions()).usd_per_hour
        assert least == pytest.approx(row.bound_usd)
        assert row.policy_usd >= least * (1 - 1e-9)
    assert report.totals.policy_usd == pytest.approx(report.result.usd_total)
    assert report.totals.hours <= report.result.horizon_h * (1 + 1e-9)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_by_wallclock_the_moments_are_those_of_every_policy(seed: int) -> None:
    jobs = [replace(job, restart_s=120.0, slo=2 * job.slo) for job in random_trace(seed, 7).jobs]
    moving = gap_of(restless(seed), jobs)
    fixed = optimality_gap(table_of(*jobs), policy="solo")
    assert [row.moment.jobs for row in moving.rows] == [row.moment.jobs for row in fixed.rows]
    assert [row.moment.hours for row in moving.rows] == [row.moment.hours for row in fixed.rows]
    assert moving.totals.bound_usd == fixed.totals.bound_usd


# --- stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["weave", "repack"])
def test_weave_and_repack_share_a_store(tmp_path: Path, first: str) -> None:
    store = tmp_path / "store"
    trace = trace_of(*fragments())
    runs = {
        "weave": lambda: optimality_gap(trace, resume=store),
        "repack": lambda: gap_of(scripted(B_TO_C), resume=store),
    }
    second = "repack" if first == "weave" else "weave"
    assert runs[first]().read == 0
    report = runs[second]()
    # by weave the third moment is b and c, too, as nothing depends on who is where
    assert report.read == report.distinct
    assert report.ratio == pytest.approx({"weave": 6 / 5, "repack": 5.1 / 5}[second])


# --- words, JSON, files ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 160])
def test_sentences(width: int) -> None:
    text = text_of(gap_of(scripted(B_TO_C)), width)
    out = words(text)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "no valid plan of the jobs that would be present at each moment without pauses" in out
    assert "Integrated ratio: 1.020 x the bound. Pauses lengthen stays" in out
    assert "online regret 1.020 (against the cheapest plan known" in out
    assert "repack makes 1 move, 0.33 a job: 1 of 3 jobs moved, none more than 1 time." in out
    # stays of 2, 4.1 and 2 h
    assert "paused for 0.1 of 8.1 job-hours (1.23%)" in out
    assert "$5.70 of what it pays falls in 0.10 h in which nobody needs a node" in out
    assert "4 moments, 3 different sets of jobs: the optimum of every one is proved." in out
    assert "Stays are fixed" not in out
    assert "heuristic loss" not in out
    assert "again: exact search from scratch" in out


def test_sentences_by_work() -> None:
    out = words(text_of(gap_of(scripted(B_TO_C), durations="work")))
    assert "Ratio along its own trajectory: 1.000 x the bound." in out
    assert "no valid plan of the jobs present at each moment costs" in out
    assert "without pauses" not in out
    assert "nobody needs a node" not in out


def test_nothing_is_said_of_moves_where_nobody_moves() -> None:
    out = words(text_of(optimality_gap(trace_of(*fragments()))))
    assert "move" not in out
    assert "pause" not in out
    assert "again: it places the same jobs from scratch" in out


def test_every_moment_shows_the_one_without_jobs() -> None:
    lines = text_of(gap_of(scripted(B_TO_C)), show=True).splitlines()
    assert sum(line.rstrip().endswith(" proved") for line in lines) == 4
    assert sum(line.rstrip().endswith(" nobody") for line in lines) == 1


def test_document() -> None:
    document = gap_document(gap_of(scripted(B_TO_C)))
    gap = document["gap"]
    assert gap["ratio"] == pytest.approx(5.1 / 5)
    assert gap["moves"] == {
        "total": 1,
        "per_job": pytest.approx(1 / 3),
        "jobs_moved": 1,
        "max_per_job": 1,
        "paused_h": pytest.approx(0.1),
        "job_hours": pytest.approx(8.1),
    }
    assert gap["without_jobs"] == {
        "hours": pytest.approx(0.1),
        "usd_total": pytest.approx(0.1 * PAIR_USD),
    }
    assert gap["by_jobs"][0]["most_jobs"] == 0
    assert gap["by_jobs"][0]["ratio"] is None
    repack = document["inputs"]["options"]["repack"]
    assert repack["rule"] == "residual"
    assert repack["restarts"] == {
        "measured": 3, "model_b": 0, "guessed": 0, "least_s": 360.0, "most_s": 360.0,
    }  # fmt: skip


def test_the_document_of_weave_is_what_it_was() -> None:
    document = gap_document(optimality_gap(fragmented()))
    assert "moves" not in document["gap"]
    assert "without_jobs" not in document["gap"]
    assert "repack" not in document["inputs"]["options"]


def test_rows_of_the_file_add_up_to_the_total(tmp_path: Path) -> None:
    report = gap_of(scripted(B_TO_C))
    write_gap_files(report, tmp_path / "o", force=False)
    with (tmp_path / "o" / "gap.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    usd = sum(
        (float(row["to_s"]) - float(row["from_s"])) / HOUR_S * float(row["usd_per_hour"])
        for row in rows
    )
    assert usd == pytest.approx(5.1 * PAIR_USD)
    assert (rows[-1]["jobs"], rows[-1]["ratio"], rows[-1]["solved"]) == ("0", "", "True")


# --- the command ----------------------------------------------------------------------------------


def file_of(trace: Trace, folder: Path) -> Path:
    path = folder / "t.csv"
    write_trace(trace.jobs, path)
    return path


def test_the_command_hands_options_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PolicyOptions] = []
    make = scripted(B_TO_C)

    def noted(options: PolicyOptions) -> Policy:
        made.append(options)
        return make(options)

    monkeypatch.setitem(POLICIES, "repack", noted)
    trace = file_of(trace_of(*fragments()), folder)
    got = ok(
        "gap", "--trace", trace, "--policy", "repack", "--processes", "1", "--json",
        "--oracle", "remaining", "--moves-per-job", "1.5", "--restart-seconds", "180",
        "--freeze", "a, c",
    ).json  # fmt: skip
    (options,) = made
    assert options.repack.oracle == "remaining"
    assert options.repack.moves_per_job == 1.5
    assert options.repack.freeze == {"a", "c"}
    assert got["gap"]["moves"]["paused_h"] == pytest.approx(0.05)
    assert got["inputs"]["options"]["repack"]["freeze"] == ["a", "c"]
    assert got["inputs"]["options"]["repack"]["restarts"]["most_s"] == 180


def test_options_of_moves_want_a_policy_that_moves(folder: Path) -> None:
    trace = file_of(fragmented(), folder)
    refused(invoke("gap", "--trace", trace, "--oracle", "none"), "policy repack", "--oracle")
