"""What runs at a moment of a plan, and what its jobs have done by then."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from builders import options_of
from command_line import write
from instances.errors import FleetPlannerError, InputError
from instances.generate import production
from instances.plan import HeldNodes
from instances.trace_table import TraceError
from models.bounds.volume import VolumeSums
from planner.policies.registry import make_policy
from planner.policies.repack import Repack
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention
from planner.repack.progress import read_progress
from planner.repack.running_plan import RunningPlan, running_plan
from planner.replay.loop import ReplayLoop
from planner.replay.replaying import replay
from repack_cases import HOUR_S, RESTART_S, apart, moved, pair, replayed, twin, with_async


def ids(running: RunningPlan) -> dict[str, list[str]]:
    """Return the jobs of each running group by the plan's name of it."""
    return {running.names[s.number]: [j.job_id for j in s.jobs] for s in running.groups}


# --- the moment -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "want"),
    [
        (0.0, {"g1": ["a"], "g2": ["b"], "g3": ["c"]}),
        (0.999, {"g1": ["a"], "g2": ["b"], "g3": ["c"]}),
        (1.0, {"g1": ["a"], "g2": ["b"]}),  # c left at 1 h: gone at that moment
        (2.0, {"g2": ["b"]}),
    ],
)
def test_a_group_runs_from_its_start_until_just_before_its_end(
    hours: float, want: dict[str, list[str]]
) -> None:
    running = running_plan(replayed(), at_hours=hours)
    assert ids(running) == want
    assert running.moment_s == running.clock_s == hours * HOUR_S


def test_now_is_the_end_of_the_last_group_with_those_that_run_until_then() -> None:
    running = running_plan(replayed(), now=True)
    assert ids(running) == {"g2": ["b"]}
    assert running.moment_s == 3 * HOUR_S
    assert running.ledger["b"].iterations == pytest.approx(3 * HOUR_S / 20)


def test_a_snapshot_is_one_moment_whether_it_is_asked_for_or_not() -> None:
    for now in (False, True):
        running = running_plan(pair(), now=now)
        assert ids(running) == {"g1": ["a"], "g2": ["b"]}
        assert running.moment_s is None


@pytest.mark.parametrize(
    ("hours", "now", "words"),
    [
        (None, False, "Expected --now or --at-hours"),
        (1.0, True, "Expected one of --now and --at-hours"),
        (float("nan"), False, "finite number of hours"),
        (float("inf"), False, "finite number of hours"),
    ],
)
def test_a_replay_needs_one_moment(hours: float | None, now: bool, words: str) -> None:
    with pytest.raises(InputError, match=words):
        running_plan(replayed(), at_hours=hours, now=now)


def test_a_snapshot_has_no_hours() -> None:
    with pytest.raises(InputError, match="it is one moment"):
        running_plan(pair(), at_hours=0.0)


@pytest.mark.parametrize("hours", [-1.0, 3.0, 99.0])
def test_nobody_at_a_moment_is_no_bad_input(hours: float) -> None:
    with pytest.raises(FleetPlannerError, match="from 0 h on, the last until 3 h") as error:
        running_plan(replayed(), at_hours=hours)
    assert not isinstance(error.value, InputError)


def test_jobs_on_dedicated_nodes_are_present_but_in_no_group() -> None:
    running = running_plan(with_async())
    assert running.jobs.job_id == ("a", "b", "free")
    assert running.dedicated_nodes == {"rollout": 2, "train": 1}
    assert set(running.ledger.running) == {"a", "b"}


def test_new_groups_are_named_after_the_last_of_the_plan_whatever_its_names() -> None:
    plan = replayed()
    assert running_plan(plan, at_hours=2.5).new_names([9, 8]) == {8: "g4", 9: "g5"}
    odd = ["team", "g2", "g4"]
    groups = [dataclasses.replace(g, group_id=n) for g, n in zip(plan.groups, odd, strict=True)]
    running = running_plan(dataclasses.replace(plan, groups=tuple(groups)), at_hours=0.5)
    assert ids(running) == {"team": ["a"], "g2": ["b"], "g4": ["c"]}
    assert running.new_names([4, 5]) == {4: "g5", 5: "g6"}  # 4 is taken by a name of the file


# --- history --------------------------------------------------------------------------------------


def test_a_replay_tells_what_its_jobs_have_done() -> None:
    # b: 180 iterations of 20 s in its first hour; moved, it pauses 360 s; then on in g1
    running = running_plan(moved(), at_hours=1.5)
    known = running.ledger["b"]
    assert known.iterations == pytest.approx(180 + (1800 - RESTART_S) / 20)
    assert known.moved_s == [HOUR_S]
    assert known.paused_s == RESTART_S
    assert known.paused_until_s == HOUR_S + RESTART_S
    assert known.speed == 1 / 20
    # credit: sigma T x iterations - elapsed = 40 x 252 - 5400
    assert known.credit_s(running.clock_s) == pytest.approx(40 * 252 - 5400)
    assert running.since_s == {1: HOUR_S}
    assert running.ledger["a"].moved_s == []


def test_within_a_pause_nothing_is_done_and_nobody_moves() -> None:
    running = running_plan(moved(), at_hours=1.05)
    assert running.ledger["b"].iterations == pytest.approx(180)
    assert running.ledger.why_not("b", running.clock_s, None) == "restarting"
    assert running.ledger.why_not("a", running.clock_s, None) is None
    later = running_plan(moved(), at_hours=1.2)
    assert later.ledger.why_not("b", later.clock_s, 1) == "moves-per-day"
    assert later.ledger.why_not("b", later.clock_s, 2) is None


def test_only_what_was_by_the_moment_is_used() -> None:
    running = running_plan(moved(), at_hours=0.9)
    assert running.ledger["b"].moved_s == []
    assert running.ledger["b"].paused_s == 0.0
    assert running_plan(replayed(), at_hours=0.9).ledger.departed == 0
    assert running_plan(replayed(), at_hours=1.9).ledger.departed == 1


def test_held_nodes_are_those_still_paid_for() -> None:
    (held,) = running_plan(moved(held=True), at_hours=1.1).held
    assert isinstance(held, HeldNodes)
    assert running_plan(moved(held=True), at_hours=1.2).held == ()


def test_a_given_restart_replaces_those_of_the_plan() -> None:
    running = running_plan(replayed(), at_hours=0.5, restart_s=17.0)
    assert {job.restart_s for state in running.groups for job in state.jobs} == {17.0}
    assert set(running.jobs.restart_s.tolist()) == {RESTART_S}  # the table is the plan's


@pytest.mark.parametrize("convention", ["work", "wallclock"])
def test_the_ledger_read_from_a_plan_is_the_one_the_policy_kept(convention: Convention) -> None:
    """Between any two events: iterations, pauses, moves, credit, and what stays were seen."""
    jobs = production(n_jobs=24, seed=1)
    options = options_of(repack=RepackParams(overlap_s=600.0), convention=convention)
    plan = replay(jobs, "repack", options, convention=convention).plan
    assert plan is not None
    assert plan.pauses  # so there is something to read
    policy = make_policy("repack", options)
    assert isinstance(policy, Repack)
    sums = VolumeSums(options.cluster, options.limits)
    loop = ReplayLoop(jobs, policy, options, convention, True, sums)
    seen = 0
    while loop.heap:
        loop.step()
        if not loop.heap or loop.heap[0][0] <= loop.now_s or not loop.running:
            continue
        running = running_plan(plan, at_hours=(loop.now_s + loop.heap[0][0]) / 2 / HOUR_S)
        at_s = running.clock_s
        seen += 1
        assert {state.number: state for state in running.groups} == policy.groups
        assert set(running.ledger.running) == set(policy.ledger.running)
        for job_id, kept in policy.ledger.running.items():
            read = running.ledger[job_id]
            assert read.moved_s == kept.moved_s
            assert read.paused_until_s == kept.paused_until_s
            assert read.paused_s == pytest.approx(kept.paused_s)
            assert read.done(at_s) == pytest.approx(kept.done(at_s), abs=1e-6)
            assert read.credit_s(at_s) == pytest.approx(kept.credit_s(at_s), abs=1e-3)
        want = policy.ledger.first_leaving_h(at_s, 2)
        assert running.ledger.first_leaving_h(at_s, 2) == pytest.approx(want)
    assert seen > len(jobs)


# --- a snapshot without progress ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slo", "restart_s", "payback_h"),
    [
        (2.0, 360.0, 0.1),  # at C = T a second earns sigma - 1 = 1 s: 360 s
        (1.05, 360.0, 2.0),  # 0.05 s a second: 7200 s
        (1.0, 360.0, float("inf")),
        (1.0, 0.0, 0.0),
    ],
)
def test_a_job_earns_its_restart_back_at_its_pace(
    slo: float, restart_s: float, payback_h: float
) -> None:
    ledger = running_plan(apart(twin("a", slo, restart_s=restart_s))).ledger
    assert ledger.payback_of_s("a") == pytest.approx(payback_h * HOUR_S)
    assert ledger.why_not("a", 0.0, None) == "payback"  # before it is known how long savings last
    ledger.payback_s = 2.0 * HOUR_S + 1e-6
    assert (ledger.why_not("a", 0.0, None) is None) == (payback_h <= 2.0)
    assert ledger.copy().payback_of_s("a") == ledger.payback_of_s("a")


# --- progress -------------------------------------------------------------------------------------

FINE = "job_id,elapsed_s,iterations\na,4000,110\nb,1000,50\n"


def test_progress_gives_credit_ages_and_moves(folder: Path) -> None:
    text = (
        "job_id,elapsed_s,iterations,moves_last_day,remaining_s\na,4000,110,2,60\nb,1000,50,0,7\n"
    )
    running = running_plan(pair(), progress=write(folder / "p.csv", text))
    ledger, now_s = running.ledger, running.clock_s
    assert ledger.known
    # sigma T x iterations - elapsed: 40 x 110 - 4000 and 40 x 50 - 1000
    assert ledger["a"].credit_s(now_s) == pytest.approx(400)
    assert ledger["b"].credit_s(now_s) == pytest.approx(1000)
    assert ledger.why_not("a", now_s, None) is None  # 400 >= 360
    assert ledger.why_not("a", now_s, 2) == "moves-per-day"
    assert ledger.remaining_h(["a", "b"], now_s) == pytest.approx(60 / HOUR_S)


def test_a_job_just_behind_its_restart_may_not_move(folder: Path) -> None:
    # 40 x 109 - 4000 = 360 covers the restart, 40 x 108 - 4000 = 320 does not
    for iterations, reason in ((109, None), (108, "slo-credit")):
        text = FINE.replace("110", str(iterations))
        running = running_plan(pair(), progress=write(folder / "p.csv", text))
        assert running.ledger.why_not("a", running.clock_s, None) == reason


def test_progress_belongs_to_a_snapshot(folder: Path) -> None:
    path = write(folder / "p.csv", FINE)
    with pytest.raises(InputError, match="has its history"):
        running_plan(replayed(), at_hours=1.0, progress=path)


def test_jobs_on_dedicated_nodes_may_have_a_row(folder: Path) -> None:
    path = write(folder / "p.csv", FINE + "free,9,9\n")
    running = running_plan(with_async(), progress=path)
    assert set(running.ledger.running) == {"a", "b"}


def test_all_faults_of_a_progress_file_are_told_at_once(folder: Path) -> None:
    text = (
        "job_id,elapsed_s,iterations,moves_last_day,remaining_s\n"
        "a,-1,x,1.5,\n"
        "a,1,1,0,1\n"
        "zed,inf,1,0,1\n"
        "b,1,1,0\n"
    )
    with pytest.raises(TraceError) as error:
        read_progress(write(folder / "p.csv", text), ["a", "b"], [])
    assert error.value.total == 9
    assert str(error.value).splitlines() == [
        "p.csv: 9 faults:",
        "Missing row of job 'b', which runs.",
        "Expected elapsed_s a number >= 0 and <= 1e+12, got '-1' (job 'a', line 2, column "
        "elapsed_s).",
        "Expected iterations to be a number, got 'x' (job 'a', line 2, column iterations).",
        "Expected moves_last_day a whole number >= 0 and <= 1e+12, got '1.5' (job 'a', line 2, "
        "column moves_last_day).",
        "Expected remaining_s a number >= 0 and <= 1e+12, got an empty cell (job 'a', line 2, "
        "column remaining_s).",
        "Expected a job_id used once, got 'a', first used in line 2 (line 3, column job_id).",
        "Expected the job_id of a running job of the plan, got 'zed' (line 4, column job_id).",
        "Expected elapsed_s a number >= 0 and <= 1e+12, got 'inf' (job 'zed', line 4, column "
        "elapsed_s).",
        "Expected 5 cells, got 4 (job 'b', line 5).",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job_id,elapsed,iterations\na,1,1\nb,1,1\n", "Missing column elapsed_s. Did you mean"),
        ("elapsed_s,iterations\n1,1\n", "Missing column job_id."),
        ("job_id,elapsed_s,iterations\n", "Missing row of job 'a', which runs."),
        ("", "got an empty file"),
    ],
)
def test_what_a_progress_file_lacks_is_named(folder: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_progress(write(folder / "p.csv", text), ["a", "b"], [])


def test_columns_that_are_not_read_are_known(folder: Path) -> None:
    text = "team,job_id,elapsed_s,iterations\nred,a,1,2\nblue,b,3,4\n"
    progress = read_progress(write(folder / "p.csv", text), ["b", "a"], [])
    assert progress.unknown == ("team",)
    assert progress.elapsed_s == {"a": 1.0, "b": 3.0}
    assert progress.remaining_s is None
    assert np.isclose(progress.iterations["b"], 4.0)
