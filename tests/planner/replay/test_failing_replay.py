"""A replay while jobs and nodes fail, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from builders import PAIR_USD, job_of, options_of, table_of
from instances.checker import check_plan
from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import Fleet, Loss, Outage, Pause, Plan
from instances.plan_file import plan_to_dict
from planner.policies.registry import POLICIES
from planner.replay.failing_replay import FAILING_POLICIES, FailureRun, replay_with_failures
from planner.replay.failures import FailureEvent, FailureParams
from planner.replay.replaying import Convention, replay
from planner.simulate.failure_report import each_checkpoint, failure_report
from replay_cases import CONVENTIONS, jobs_of

HOUR_S = 3600.0

#: 10 iterations of 10 s alone; it restarts in 20 s.
ONE = job_of("a", 6, 4, duration_s=100.0, restart_s=20.0)
#: ``ONE`` and a job that fits into its bubbles: together they take no more than 10 s a round.
OTHER = job_of("b", 4, 6, duration_s=100.0, restart_s=20.0)


def run_of(
    *jobs: Any,
    events: tuple[FailureEvent, ...] = (),
    policy: str = "weave",
    convention: Convention = "work",
    fleet: Fleet | None = None,
    **params: Any,
) -> FailureRun:
    return replay_with_failures(
        table_of(*jobs),
        policy,
        options_of(fleet=fleet),
        FailureParams(events=events, **params),
        convention=convention,
    )


def plan_of(run: FailureRun) -> Plan:
    assert run.result.plan is not None
    return run.result.plan


# --- Nothing fails --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", FAILING_POLICIES)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_without_failures_it_is_the_plain_replay(policy: str, convention: Convention) -> None:
    """So it is when no failure strikes: one before anybody came, one after all have left."""
    jobs, options = jobs_of("mixed-modes"), options_of()
    plain = replay(jobs, policy, options, convention=convention)
    job_id = next(j.job_id for j in jobs if j.mode == "sync")
    missed = (FailureEvent(0.0, "job", job_id=job_id), FailureEvent(1e9, "train", node=0))
    for failures in (FailureParams(), FailureParams(events=missed)):
        run = replay_with_failures(jobs, policy, options, failures, convention=convention)
        assert plan_to_dict(plan_of(run)) == plan_to_dict(plain.plan)  # type: ignore[arg-type]
        assert run.result.records == plain.records
        assert run.result.bound_usd_total == plain.bound_usd_total
        assert sum(dataclasses.astuple(run.counts)) == 0


# --- One job --------------------------------------------------------------------------------


def test_a_job_that_fails_does_its_lost_iterations_again() -> None:
    """At 35 s it has done 3.5; the checkpoint was after 2: 8 are left after 20 s of restart."""
    event = FailureEvent(35.0, "job", job_id="a")
    run = run_of(ONE, events=(event,), checkpoint_iterations=2)
    record = run.result.records[0]
    assert record.departure_s == pytest.approx(35 + 20 + 80)
    assert (record.failures, record.lost_iterations) == (1, pytest.approx(1.5))
    assert record.iterations == 10.0
    assert plan_of(run).losses == (
        Loss(job_id="a", at_s=35.0, iterations=pytest.approx(1.5), back_s=35.0),
    )
    assert plan_of(run).pauses == (Pause(job_id="a", from_s=35.0, to_s=55.0),)
    assert not plan_of(run).pins_fixed
    assert run.result.usd_total == pytest.approx(PAIR_USD * 135 / HOUR_S)
    assert check_plan(plan_of(run)).ok


def test_wallclock_loses_work_and_not_time() -> None:
    """100 s and the restart; of 100 s at 10 s an iteration 1.5 are undone."""
    event = FailureEvent(35.0, "job", job_id="a")
    run = run_of(ONE, events=(event,), checkpoint_iterations=2, convention="wallclock")
    record = run.result.records[0]
    assert record.departure_s == pytest.approx(120.0)
    assert record.iterations == pytest.approx(10 - 1.5)


def test_restart_seconds_may_be_given() -> None:
    run = run_of(ONE, events=(FailureEvent(35.0, "job", job_id="a"),), restart_s=7.0)
    assert run.result.records[0].departure_s == pytest.approx(35 + 7 + 70)  # 0.5 undone


def test_failing_while_it_restarts_starts_the_restart_again() -> None:
    events = tuple(FailureEvent(at_s, "job", job_id="a") for at_s in (35.0, 45.0, 45.0))
    run = run_of(ONE, events=events)
    record = run.result.records[0]
    assert (record.failures, record.paused_s) == (3, pytest.approx(10 + 20))
    assert record.lost_iterations == pytest.approx(0.5)
    assert record.departure_s == pytest.approx(45 + 20 + 70)
    assert check_plan(plan_of(run)).ok


def test_restarts_at_one_moment_are_kept_apart() -> None:
    """a, b, and a again fail at 35 s; b once more at 45 s, in its restart and not in that of a."""
    second = job_of("b", 50, 50, slo=1.0, duration_s=1000.0, restart_s=30.0)
    fails = ((35.0, "a"), (35.0, "b"), (35.0, "a"), (45.0, "b"))
    events = tuple(FailureEvent(at_s, "job", job_id=job_id) for at_s, job_id in fails)
    run = run_of(ONE, second, events=events)
    assert sorted(plan_of(run).pauses, key=lambda p: (p.from_s, p.job_id)) == [
        Pause(job_id="a", from_s=35.0, to_s=55.0),
        Pause(job_id="b", from_s=35.0, to_s=45.0),
        Pause(job_id="b", from_s=45.0, to_s=75.0),
    ]
    assert check_plan(plan_of(run)).ok


def test_failing_as_it_leaves_is_too_late() -> None:
    run = run_of(ONE, events=(FailureEvent(100.0, "job", job_id="a"),))
    assert run.counts.jobs == 0
    assert run.result.records[0].departure_s == 100.0


# --- A node ---------------------------------------------------------------------------------


def test_the_jobs_of_a_failed_node_are_placed_again_and_nobody_else() -> None:
    """Both share one node of each kind in one group; a third has nodes of its own."""
    third = job_of("c", 50, 50, slo=1.0, duration_s=1000.0)
    for node, hit in ((0, {"a", "b"}), (1, {"c"}), (2, set())):
        run = run_of(ONE, OTHER, third, events=(FailureEvent(30.0, "train", node=node),))
        records = {record.job.job_id: record for record in run.result.records}
        assert {job_id for job_id, r in records.items() if r.failures} == hit
        assert {job_id for job_id, r in records.items() if r.moves} == hit
        assert run.counts.train_nodes == bool(hit)
        for job_id in set(records) - hit:
            assert records[job_id].slowdown == pytest.approx(1.0)
        used = {(g.group_id, g.from_s): g.train_nodes for g in plan_of(run).groups}
        before = {g for (g, from_s), _ in used.items() if from_s < 30}
        assert len(before) == 2  # a and b in one, c in the other


def test_a_rented_node_is_replaced_at_once_and_one_of_a_fleet_after_its_repair() -> None:
    """The one train node fails at 35 s, for 36 s; only then is there a place, and a restart."""
    event = FailureEvent(35.0, "train", node=0)
    rented = run_of(ONE, events=(event,))
    assert plan_of(rented).outages == ()
    assert rented.result.records[0].requeued_s == 0
    owned = run_of(ONE, events=(event,), fleet=Fleet(1, 1), repair_h=0.01)
    record = owned.result.records[0]
    assert record.requeued_s == pytest.approx(36.0)
    assert record.departure_s == pytest.approx(35 + 36 + 20 + 70)
    assert record.elapsed_s == pytest.approx(35 + 20 + 70)  # the queue apart
    assert plan_of(owned).outages == (Outage(pool="train", from_s=35.0, to_s=71.0),)
    assert plan_of(owned).losses[0].back_s == 71.0
    assert owned.result.usd_total == pytest.approx(PAIR_USD * 125 / HOUR_S)
    line = owned.result.timeline
    state = zip(line.time_s.tolist(), line.jobs.tolist(), line.waiting.tolist(), strict=True)
    assert [(s, n, w) for s, n, w in state] == [(0, 1, 0), (35, 0, 1), (71, 1, 0), (161, 0, 0)]
    # the bound, too, is of the jobs that have nodes: one of each kind
    assert line.bound_usd_per_hour.tolist() == pytest.approx([PAIR_USD, 0, PAIR_USD, 0])
    assert check_plan(plan_of(owned)).ok


def test_who_fails_goes_behind_those_who_wait() -> None:
    """A fleet for one job at a time: b has waited since 10 s, and starts when a fails."""
    alone = [dataclasses.replace(job, slo=1.0) for job in (ONE, OTHER)]
    second = dataclasses.replace(alone[1], rollout_s=6.0, train_s=4.0, arrival_s=10.0)
    event = FailureEvent(35.0, "job", job_id="a")
    run = run_of(alone[0], second, events=(event,), fleet=Fleet(1, 1))
    a, b = run.result.records
    assert (b.start_s, b.departure_s) == (35.0, 135.0)
    assert a.requeued_s == pytest.approx(100.0)
    assert a.departure_s == pytest.approx(135 + 20 + 70)


def test_idle_nodes_of_a_fleet_fail_too() -> None:
    """Of three train nodes one is in use: the second place is idle, the fourth does not exist."""
    events = tuple(FailureEvent(30.0, "train", node=node) for node in (1, 3))
    run = run_of(ONE, events=events, fleet=Fleet(1, 3))
    assert run.counts.idle_nodes == 1
    assert run.counts.train_nodes == 0
    assert len(plan_of(run).outages) == 1
    assert run.result.records[0].departure_s == 100.0


def test_places_of_async_jobs_do_not_fail() -> None:
    apart = job_of("x", 6, 4, duration_s=100.0, mode="async")
    events = tuple(FailureEvent(30.0, "train", node=node) for node in (0, 1))
    run = run_of(ONE, apart, events=events)
    assert run.counts.train_nodes == 1
    assert run.result.records[1].departure_s == 100.0
    # of three train nodes of a fleet the async job has the second, and the third is idle
    owned = run_of(ONE, apart, events=events[1:], fleet=Fleet(2, 3))
    assert owned.counts.idle_nodes == owned.counts.train_nodes == 0
    idle = run_of(ONE, apart, events=(FailureEvent(30.0, "train", node=2),), fleet=Fleet(2, 3))
    assert idle.counts.idle_nodes == 1


# --- What is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - set(FAILING_POLICIES)))
def test_other_policies_are_refused_by_name(policy: str) -> None:
    with pytest.raises(UnsupportedError, match=f"weave, solo to replay failures, got '{policy}'"):
        run_of(ONE, policy=policy, job_mtbf_h=1.0)


def test_backfilling_is_refused_by_name() -> None:
    options = options_of(fleet=Fleet(1, 1), queue="backfill")
    with pytest.raises(UnsupportedError, match="Expected queue 'fifo' to replay failures"):
        replay_with_failures(table_of(ONE), "weave", options, FailureParams(job_mtbf_h=1.0))


def test_listed_failures_are_of_jobs_that_can_fail() -> None:
    with pytest.raises(InputError, match="got job 'z'"):
        run_of(ONE, events=(FailureEvent(1.0, "job", job_id="z"),))
    with pytest.raises(UnsupportedError, match="got one of job 'x', async"):
        run_of(
            ONE,
            job_of("x", 6, 4, mode="async"),
            events=(FailureEvent(1.0, "job", job_id="x"),),
        )


def test_a_job_that_never_ends_is_given_up() -> None:
    """A failure a second and an iteration of ten: it loses all it does, for ever."""
    with pytest.raises(InfeasibleError, match="Expected job 'a' to end, got 51 failures of it"):
        run_of(ONE, job_mtbf_h=1 / HOUR_S, max_failures_per_job=50)


# --- By the clock ----------------------------------------------------------------------------


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_failures_come_once_per_mean_time_of_hours(convention: Convention) -> None:
    """Counts against exposure: job-hours in groups and node-hours, within 4 sd of a Poisson."""
    jobs = jobs_of("production-1")
    job_hours = node_hours = jobs_failed = nodes_failed = 0.0
    for seed in range(2):
        params = FailureParams(job_mtbf_h=20.0, node_mtbf_h=40.0, seed=seed)
        run = replay_with_failures(jobs, "weave", options_of(), params, convention=convention)
        job_hours += run.result.job_hours
        node_hours += sum(run.result.node_hours.values())
        jobs_failed += run.counts.jobs
        nodes_failed += run.counts.rollout_nodes + run.counts.train_nodes
    for failed, expected in ((jobs_failed, job_hours / 20), (nodes_failed, node_hours / 40)):
        assert abs(failed - expected) < 4 * expected**0.5


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    jobs = jobs_of("production-1")
    runs = [
        replay_with_failures(jobs, "weave", options_of(), FailureParams(job_mtbf_h=50.0, seed=seed))
        for seed in (0, 0, 1)
    ]
    assert plan_to_dict(plan_of(runs[0])) == plan_to_dict(plan_of(runs[1]))
    assert plan_of(runs[0]).losses != plan_of(runs[2]).losses


# --- Figures ---------------------------------------------------------------------------------


def report_of(jobs: JobTable, params: FailureParams, fleet: Fleet | None = None) -> Any:
    options = options_of(fleet=fleet)
    run = replay_with_failures(jobs, "weave", options, params)
    return failure_report(run, replay(jobs, "weave", options))


def test_figures_of_one_failure() -> None:
    """35 s, 36 s away, 20 s of restart, 70 s: 125 s of stay for 10 iterations of 10 s."""
    params = FailureParams(events=(FailureEvent(35.0, "train", node=0),), repair_h=0.01)
    report = report_of(table_of(ONE), params, Fleet(1, 2))
    # the second train node takes it at once: no queue; the other is down from 35 to 71 of 125 s
    row = report.row
    assert row["requeued_h"] == 0
    assert row["restarting_h"] == pytest.approx(20 / HOUR_S)
    assert row["lost_h"] == pytest.approx(0.5 * 10 / HOUR_S)
    assert row["hours_lost"] == pytest.approx(25 / HOUR_S)
    assert row["availability"] == pytest.approx(1 - 20 / 125)
    assert row["node_availability_train"] == pytest.approx(1 - 36 / 250)
    assert row["node_availability_rollout"] == 1
    assert row["cost_ratio"] == pytest.approx(1.25)
    assert (row["jobs_hit"], row["jobs_moved"], row["moves"]) == (1, 1, 1)
    assert (row["slo_attainment"], row["slo_attainment_without"]) == (1.0, 1.0)  # slo 2
    assert row["slo_attainment_spared"] is None
    waits = report_of(table_of(ONE), params, Fleet(1, 1))
    assert waits.availability == pytest.approx(1 - (20 + 36) / (125 + 36))


def test_the_slo_of_jobs_that_nothing_hits_is_kept() -> None:
    params = FailureParams(job_mtbf_h=30.0, checkpoint_iterations=50)
    report = report_of(jobs_of("production-2-gangs"), params)
    assert 0 < report.jobs_hit < report.jobs
    assert report.slo_attainment < report.slo_attainment_spared == 1.0


def test_reports_compare_like_with_like() -> None:
    run = run_of(ONE, job_mtbf_h=1.0)
    with pytest.raises(InputError, match="Expected policy weave"):
        failure_report(run, replay(table_of(ONE), "solo", options_of()))
    with pytest.raises(InputError, match="Expected the same jobs"):
        failure_report(run, replay(table_of(OTHER), "weave", options_of()))


def test_rarer_checkpoints_lose_more() -> None:
    """Alone on their nodes jobs fail at the same moments of their stays, up to its end."""
    done = []
    study = each_checkpoint(
        jobs_of("production-1"),
        "solo",
        options_of(),
        FailureParams(job_mtbf_h=40.0),
        checkpoints=(1, 10, 40),
        seeds=(0, 1),
        progress=lambda k, n: done.append((k, n)),
    )
    rows = list(study)
    lost = [row.row["lost_h"] for row in rows]
    assert lost == sorted(lost)
    assert lost[0] < lost[1] < lost[2]
    assert [row.row["seeds"] for row in rows] == [2, 2, 2]
    assert done == [(k, 6) for k in range(1, 7)]
    with pytest.raises(InputError, match="at least one checkpoint interval"):
        next(
            each_checkpoint(
                table_of(ONE), "solo", options_of(), FailureParams(), checkpoints=(), seeds=(0,)
            )
        )
