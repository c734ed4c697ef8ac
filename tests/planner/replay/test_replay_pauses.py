"""Replays of policies that move running jobs: pauses, stays, iterations, held nodes, reviews."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import PAIR_USD, ROLLOUT_USD, job_of, options_of, table_of
from gap_cases import random_trace
from instances.checker import check_plan
from instances.errors import CheckError
from instances.jobs import Job, JobTable
from instances.plan import HeldNodes, Pause
from moving_cases import A, B, Groups, Scripted, fragments, restless, scripted
from planner.policies.policy import Change, NodesToHold, Policy, PolicyOptions
from planner.policies.registry import POLICIES
from planner.replay.replaying import Convention, ReplayResult, replay
from replay_cases import CONVENTIONS, HOUR_S, both_conventions

Make = Callable[[PolicyOptions], Policy]


def replay_of(
    jobs: Sequence[Job] | JobTable, make: Make, convention: Convention = "work"
) -> ReplayResult:
    """Replay under a policy that no other test knows of."""
    table = jobs if isinstance(jobs, JobTable) else table_of(*jobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, "mover", make)
        return replay(table, "mover", options_of(), convention=convention)


def after_600(
    script: Mapping[str, Groups],
    convention: Convention,
    *,
    b: Job = B,
    held: Mapping[str, Sequence[NodesToHold]] | None = None,
) -> ReplayResult:
    """Replay a and b, each alone from 0 s on, reviewed every 600 s."""
    return replay_of([A, b], scripted(script, held=held, review_s=600.0), convention)


# --- one move -------------------------------------------------------------------------------------

MERGED = {"r1": {1: "ab"}}


def test_a_pause_by_work() -> None:
    """a: 4 iterations by 600, 6 x 200 s more: to 1800. b: 4 by 600, none to 700, 5.5 to 1800, and
    10.5 x 150 s alone: to 3375. Nodes: one pair to 3375, another to 600.
    """
    result = after_600(MERGED, "work")
    assert [r.departure_s for r in result.records] == pytest.approx([1800, 3375])
    assert [r.iterations for r in result.records] == [10, 20]
    assert [r.slowdown for r in result.records] == pytest.approx([1800 / 1500, 3375 / 3000])
    assert result.usd_total == pytest.approx(PAIR_USD * (3375 + 600) / HOUR_S)
    # shared evenly from 600 to 1800: 600 s each, the pause included
    assert [r.rollout_node_s for r in result.records] == pytest.approx([1200, 2775])
    # 30 rollouts of 100 s and trains of 50 s in 3975 s of each pool
    assert result.idle_fraction == pytest.approx(
        {"rollout": 1 - 3000 / 3975, "train": 1 - 1500 / 3975}
    )


def test_a_pause_by_wallclock() -> None:
    """a leaves at 1500: 4 + 900 / 200 iterations. b stays 3000 + 100: 4, none to 700, 4 to 1500,
    and 1600 / 150.
    """
    result = after_600(MERGED, "wallclock")
    assert [r.departure_s for r in result.records] == [1500, 3100]
    assert [r.iterations for r in result.records] == pytest.approx([8.5, 8 + 1600 / 150])
    assert result.usd_total == pytest.approx(PAIR_USD * (3100 + 600) / HOUR_S)


@both_conventions
def test_what_is_recorded_of_a_move(convention: Convention) -> None:
    result = after_600(MERGED, convention)
    assert result.plan is not None
    assert not result.pins_fixed
    assert not result.plan.pins_fixed
    assert result.plan.pauses == (Pause(job_id="b", from_s=600, to_s=700),)
    assert [(r.moves, r.paused_s, r.group_id) for r in result.records] == [
        (0, 0, "g1"),
        (1, 100, "g1"),
    ]
    assert (result.moves, result.jobs_moved, result.max_moves_per_job) == (1, 1, 1)
    assert result.moves_per_job == 0.5
    assert result.paused_h == pytest.approx(100 / HOUR_S)
    assert result.job_hours == pytest.approx(sum(r.elapsed_s for r in result.records) / HOUR_S)
    assert result.checked
    assert check_plan(result.plan).ok


@both_conventions
def test_a_policy_that_never_moves_has_no_moves(convention: Convention) -> None:
    result = replay(table_of(A, B), "weave", options_of(), convention=convention)
    assert (result.moves, result.moves_per_job, result.paused_h) == (0, 0, 0)
    assert result.pins_fixed


def test_a_job_may_restart_within_no_time() -> None:
    """As with a pause, without it: b is done at 600 + 1200 + (16 - 6) x 150 = 3300."""
    result = after_600(MERGED, "work", b=replace(B, restart_s=0.0))
    assert [r.departure_s for r in result.records] == pytest.approx([1800, 3300])
    assert result.moves == 1
    assert result.plan is not None
    assert result.plan.pauses == ()


# --- pauses and other events ----------------------------------------------------------------------


def test_a_pause_outlasts_a_group_mate_by_work() -> None:
    """b pauses from 600 to 1900, a is gone at 1800: then 16 x 150 s from 1900 on."""
    result = after_600(MERGED, "work", b=replace(B, restart_s=1300.0))
    assert [r.departure_s for r in result.records] == pytest.approx([1800, 1900 + 2400])
    assert result.plan is not None
    assert result.plan.pauses == (Pause(job_id="b", from_s=600, to_s=1900),)


def test_a_pause_outlasts_a_group_mate_by_wallclock() -> None:
    """b pauses from 600 to 1600, a is gone at 1500: b stays to 4000, 4 + 2400 / 150 iterations."""
    result = after_600(MERGED, "wallclock", b=replace(B, restart_s=1000.0))
    assert [r.departure_s for r in result.records] == [1500, 4000]
    assert [r.iterations for r in result.records] == pytest.approx([8.5, 20])


TWICE = {"r1": {1: "ab"}, "r2": {1: "a", 3: "b"}}


def test_two_moves_by_work() -> None:
    """b: 4 by 600, 2.5 from 700 to 1200, 13.5 x 150 s from 1300. a: 4, 3 by 1200, 3 x 150 s."""
    result = after_600(TWICE, "work")
    assert [r.departure_s for r in result.records] == pytest.approx([1650, 1300 + 2025])
    assert [(r.moves, r.paused_s) for r in result.records] == [(0, 0), (2, 200)]
    assert result.records[1].group_id == "g3"
    # one pair for a, to 1650; another for b, to 600 and from 1200 to 3325
    assert result.usd_total == pytest.approx(PAIR_USD * (1650 + 600 + 2125) / HOUR_S)


def test_two_moves_by_wallclock() -> None:
    """b stays 200 s longer, and has 4 + 2.5 + (3200 - 1300) / 150 iterations."""
    result = after_600(TWICE, "wallclock")
    assert [r.departure_s for r in result.records] == [1500, 3200]
    assert result.records[1].iterations == pytest.approx(6.5 + 1900 / 150)
    assert (result.moves, result.max_moves_per_job, result.jobs_moved) == (2, 2, 1)


@both_conventions
def test_moved_at_the_moment_of_a_departure(convention: Convention) -> None:
    """C = T = 90 s throughout: c moves at 2 h, pauses 0.1 h, and leaves at 3.1 h either way."""
    result = replay_of(fragments(), scripted({"+b": {1: "ab"}, "-a": {1: "bc"}}), convention)
    departures_h = [r.departure_s / HOUR_S for r in result.records]
    assert departures_h == pytest.approx([2, 4, 3.1])
    assert result.records[2].iterations == pytest.approx(2 * HOUR_S / 90)
    # the pair of a and b for 4 h, c's for 1 h
    assert result.usd_total == pytest.approx(5 * PAIR_USD)
    assert result.peak_nodes == {"rollout": 2, "train": 2}


# --- SLO ------------------------------------------------------------------------------------------


def slow(restart_s: float, slo: float) -> list[Job]:
    """Return a, and b with another restart and SLO; alone it runs at T = 150 s."""
    return [A, replace(B, restart_s=restart_s, slo=slo)]


APART = {"r1": {1: "a", 3: "b"}}


@both_conventions
def test_slo_counts_pauses_to_the_second(convention: Convention) -> None:
    """b runs alone all along: 20 iterations of 150 s and a pause of 600 s, slowdown 1.2."""
    result = replay_of(slow(600.0, 1.2), scripted(APART, review_s=600.0), convention)
    assert result.records[1].slowdown == pytest.approx(1.2)
    assert result.slo_attainment == 1.0


@both_conventions
def test_a_pause_that_breaks_an_slo_is_refused(convention: Convention) -> None:
    with pytest.raises(CheckError, match=r"slowdown of job 'b', pauses counted, <= slo 1\.2"):
        replay_of(slow(601.0, 1.2), scripted(APART, review_s=600.0), convention)


@both_conventions
def test_a_pause_that_breaks_an_slo_counts_unchecked(convention: Convention) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, "mover", scripted(APART, review_s=600.0))
        jobs = table_of(*slow(601.0, 1.2))
        result = replay(jobs, "mover", options_of(), convention=convention, check=False)
    assert result.slo_attainment == 0.5


# --- held nodes -----------------------------------------------------------------------------------


def held_of(seconds: float, group_id: str = "g2") -> dict[str, list[NodesToHold]]:
    return {"r1": [NodesToHold(group_id, seconds, 1, 1)]}


@both_conventions
def test_old_nodes_are_paid_for_while_they_overlap(convention: Convention) -> None:
    """b moves from one pair to another, and keeps the first 300 s: three pairs meanwhile."""
    plain = after_600(APART, convention)
    result = after_600(APART, convention, held=held_of(300.0))
    assert result.usd_total - plain.usd_total == pytest.approx(PAIR_USD * 300 / HOUR_S)
    assert (plain.peak_nodes, result.peak_nodes) == (
        {"rollout": 2, "train": 2},
        {"rollout": 3, "train": 3},
    )
    assert result.held_node_s == {"rollout": 300, "train": 300}
    # a pair for 1500 s, another for 3100 s, the third for 300 s; 30 rollouts of 100 s in all
    assert plain.idle_fraction["rollout"] == pytest.approx(1 - 3000 / 4600)
    assert result.idle_fraction["rollout"] == pytest.approx(1 - 3000 / 4900)
    assert result.plan is not None
    assert result.plan.held == (
        HeldNodes(group_id="g2", from_s=600, to_s=900, rollout_nodes=1, train_nodes=1),
    )
    assert check_plan(result.plan).ok
    line = result.timeline
    assert line.rollout_nodes[line.time_s.tolist().index(600)] == 3
    assert line.rollout_nodes[line.time_s.tolist().index(900)] == 2


def test_nodes_held_beyond_the_last_departure_are_paid_for() -> None:
    """b leaves at 3100 s; the nodes it has left at 600 are held to 4000."""
    result = after_600(APART, "wallclock", held=held_of(3400.0))
    assert result.timeline.time_s[-1] == 4000
    assert result.timeline.jobs[-2:].tolist() == [0, 0]
    assert result.usd_total == pytest.approx(PAIR_USD * (1500 + 3100 + 3400) / HOUR_S)


def test_more_nodes_than_there_were_are_not_held() -> None:
    held = {"r1": [NodesToHold("g2", 300.0, 2, 0)]}
    result = after_600(APART, "wallclock", held=held)
    assert result.held_node_s == {"rollout": 300, "train": 0}
    plain = after_600(APART, "wallclock")
    assert result.usd_total - plain.usd_total == pytest.approx(ROLLOUT_USD * 300 / HOUR_S)


def test_nodes_of_a_group_that_lasted_no_time_are_not_held() -> None:
    """a is alone for no second: b comes at the same moment, and a moves to its group."""
    jobs = [replace(A, restart_s=0.0), B]
    held = {"+b": [NodesToHold("g1", 300.0, 1, 1)]}
    result = replay_of(jobs, scripted({"+b": {2: "ba"}}, held=held))
    assert result.plan is not None
    assert result.plan.held == ()
    assert {version.group_id for version in result.plan.groups} == {"g2"}


# --- refusals -------------------------------------------------------------------------------------


@both_conventions
def test_a_job_is_not_moved_in_its_pause(convention: Convention) -> None:
    script = {"r1": {1: "ab"}, "r2": {1: "a", 3: "b"}}
    with pytest.raises(CheckError, match=r"moved job 'b' at 1200\.0 s, .* until 1300\.0 s"):
        after_600(script, convention, b=replace(B, restart_s=700.0))


def test_the_end_of_a_pause_is_soon_enough() -> None:
    script = {"r1": {1: "ab"}, "r2": {1: "a", 3: "b"}}
    result = after_600(script, "work", b=replace(B, restart_s=600.0))
    assert result.records[1].paused_s == 1200


class Silent(Scripted):
    """Moves jobs and does not say so."""

    def then(self, event: str, before: dict[int, object]) -> Change:  # type: ignore[override]
        return replace(super().then(event, before), moved=())  # type: ignore[arg-type]


@both_conventions
def test_a_move_without_a_pause_is_refused(convention: Convention) -> None:
    def make(options: PolicyOptions) -> Policy:
        return Silent(options, MERGED, {}, 600.0)

    with pytest.raises(CheckError, match="pause of job 'b', moved to"):
        replay_of([A, B], make, convention)


@both_conventions
def test_a_policy_that_promised_fixed_pins_must_not_move(convention: Convention) -> None:
    def make(options: PolicyOptions) -> Policy:
        policy = Scripted(options, MERGED, {}, 600.0)
        policy.pins_fixed = True
        return policy

    with pytest.raises(CheckError, match="'b'"):
        replay_of([A, B], make, convention)


class Deaf(Scripted):
    """Takes Ctrl-C for the end of a search of its own."""

    def then(self, event: str, before: dict[int, object]) -> Change:  # type: ignore[override]
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return super().then(event, before)  # type: ignore[arg-type]


def test_ctrl_c_is_not_lost_in_a_search() -> None:
    made: list[Deaf] = []

    def make(options: PolicyOptions) -> Policy:
        made.append(Deaf(options, {}, {}, None))
        return made[-1]

    with pytest.raises(KeyboardInterrupt):
        replay_of([A, B], make)
    assert list(made[-1].jobs) == ["a"]  # the first event was the last


# --- reviews --------------------------------------------------------------------------------------


@both_conventions
def test_reviews_come_at_the_hours_asked_for(convention: Convention) -> None:
    """a to 1500 s; nobody from then on to 4000, when b comes, for 3000 s."""
    made: list[Scripted] = []
    jobs = [A, replace(B, arrival_s=4000.0)]
    result = replay_of(jobs, scripted({}, review_s=600.0, made=made), convention)
    assert made[-1].reviewed == [600, 1200, 4200, 4800, 5400, 6000, 6600]
    assert result.timeline.time_s[-1] == 7000
    assert result.records[1].departure_s == 7000


def test_reviews_count_from_the_first_arrival() -> None:
    made: list[Scripted] = []
    replay_of([replace(A, arrival_s=50.0)], scripted({}, review_s=600.0, made=made))
    assert made[-1].reviewed == [650, 1250]


def test_departures_that_moved_forward_leave_no_rows_behind() -> None:
    """By work b, which slows a down, is gone at 1200 + ...: what a was to do later is void."""
    long = replace(A, duration_s=15000.0)
    short = replace(B, duration_s=300.0)
    result = replay_of([long, short], scripted({"+b": {1: "ab"}}, review_s=600.0))
    # b: 2 x 200 s; a: 2 by then, 98 x 150 s more
    assert [r.departure_s for r in result.records] == pytest.approx([15100, 400])
    assert result.timeline.time_s[-1] == pytest.approx(15100)


# --- the bound ------------------------------------------------------------------------------------


def test_the_bound_leaves_pauses_out_by_wallclock() -> None:
    """b pauses 0.1 h at 2 h and leaves at 4.1 h; without that nobody is there after 4 h."""
    script = {"+b": {1: "ab"}, "-a": {3: "cb"}}
    result = replay_of(fragments(), scripted(script), "wallclock")
    assert [r.departure_s / HOUR_S for r in result.records] == pytest.approx([2, 4.1, 3])
    line = result.timeline
    bound = {
        round(at / HOUR_S, 6): round(usd / PAIR_USD, 6)
        for at, usd in zip(line.time_s, line.bound_usd_per_hour, strict=True)
    }
    # three jobs load a node 3 x 45 / 108 = 1.25: two pairs; after 4 h nothing
    assert bound == {0: 1, 1: 2, 2: 1, 3: 1, 4: 0, 4.1: 0}
    assert result.usd_total == pytest.approx(5.1 * PAIR_USD)
    assert result.bound_usd_total == pytest.approx(5 * PAIR_USD)
    assert result.ratio == pytest.approx(5.1 / 5)


def test_by_work_a_paused_job_counts_in_the_bound() -> None:
    script = {"+b": {1: "ab"}, "-a": {3: "cb"}}
    result = replay_of(fragments(), scripted(script), "work")
    assert result.bound_usd_total == pytest.approx(5.1 * PAIR_USD)


# --- at random ------------------------------------------------------------------------------------


def with_restarts(jobs: JobTable, restart_s: float, modes: bool) -> JobTable:
    """Return the jobs with restarts, room in their SLOs, and, if asked for, async ones."""
    return table_of(
        *(
            replace(
                job,
                restart_s=restart_s,
                slo=2 * job.slo,
                mode="async" if modes and i % 4 == 3 else "sync",
            )
            for i, job in enumerate(jobs)
        )
    )


@given(
    seed=st.integers(0, 10**6),
    convention=st.sampled_from(CONVENTIONS),
    restart_s=st.sampled_from([0.0, 60.0, 300.0]),
    overlap_s=st.sampled_from([0.0, 45.0]),
    modes=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_accounts_add_up_whatever_moves(
    seed: int, convention: Convention, restart_s: float, overlap_s: float, modes: bool
) -> None:
    jobs = with_restarts(random_trace(seed, 9).jobs, restart_s, modes)
    result = replay_of(jobs, restless(seed, overlap_s), convention)  # checked as it goes
    assert result.plan is not None
    assert result.slo_attainment == 1.0
    # every node-hour is somebody's, or held
    for pool, hours in result.node_hours.items():
        ours = math.fsum(getattr(r, f"{pool}_node_s") for r in result.records)
        assert hours * HOUR_S == pytest.approx(ours + result.held_node_s[pool])
    pauses = dict.fromkeys(jobs.job_id, 0.0)
    for pause in result.plan.pauses:
        pauses[pause.job_id] += pause.to_s - pause.from_s
    for record in result.records:
        job = record.job
        assert record.paused_s == pytest.approx(pauses[job.job_id])
        assert record.paused_s == pytest.approx(record.moves * restart_s)
        if convention == "wallclock":
            assert record.elapsed_s == pytest.approx(job.duration_s + record.paused_s)
        elif job.mode == "sync":
            assert record.iterations == pytest.approx(job.iterations)
            assert record.elapsed_s >= job.duration_s + record.paused_s - 1e-6
    line, cluster = result.timeline, result.cluster
    for rollout, train, bound in zip(
        line.rollout_nodes.tolist(), line.train_nodes.tolist(), line.bound_usd_per_hour, strict=True
    ):  # heredity: at every moment
        assert cluster.usd_per_hour(rollout, train) >= bound * (1 - 1e-9)


def test_random_moves_do_move() -> None:
    """The test above would say nothing of a policy that hardly moves."""
    moves = [
        replay_of(with_restarts(random_trace(seed, 9).jobs, 60.0, False), restless(seed)).moves
        for seed in range(10)
    ]
    assert sum(moves) > 50


def test_a_dedicated_job_is_never_paused() -> None:
    free = job_of("free", 60, 40, 1.0, duration_s=3600.0, mode="async")
    result = replay_of([A, B, free], scripted(MERGED, review_s=600.0), "wallclock")
    assert result.moves_per_job == 0.5  # of the two that may share
    assert result.records[2].paused_s == 0
