"""Who reads the versions of a plan takes off what failures undid, or refuses in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job_of, options_of, table_of
from instances.errors import UnsupportedError
from instances.plan import Fleet, Loss, Plan
from planner.gap.moments import moments_of
from planner.policies.replay_result import ReplayResult
from planner.repack.running_plan import running_plan
from planner.replay.failing_replay import replay_with_failures
from planner.replay.failures import FailureEvent, FailureParams
from planner.replay.replaying import replay
from planner.replay.version_losses import undone_within
from planner.simulate.drift_measure import measured
from planner.simulate.drift_templates import Lengths
from planner.simulate.lengths import WorstCase
from planner.simulate.runtime import simulate_plan
from planner.size.node_loss import survives_loss
from planner.size.sampled_runtimes import JobLaw, Law, run_sampled

HOUR_S = 3600.0
#: 10 iterations of 10 s alone; it restarts in 20 s.
JOBS = table_of(job_of("a", 6, 4, duration_s=100.0, restart_s=20.0))
#: At 35 s 3.5 are done, and 1.5 of them undone: 8 are left after the restart, until 135 s.
FAILS = FailureParams(events=(FailureEvent(35.0, "job", job_id="a"),), checkpoint_iterations=2)


def failed(failures: FailureParams = FAILS, fleet: Fleet | None = None) -> ReplayResult:
    return replay_with_failures(JOBS, "weave", options_of(fleet=fleet), failures).result


def plan_of(result: ReplayResult) -> Plan:
    assert result.plan is not None
    return result.plan


def test_a_loss_belongs_to_the_version_that_it_ends() -> None:
    losses = tuple(
        Loss(job_id="a", at_s=at_s, iterations=n, back_s=at_s) for at_s, n in ((35, 1.5), (35, 0.5))
    )
    undone = undone_within(replace(plan_of(failed()), losses=losses))
    assert undone("a", 0, 35) == 2.0
    assert undone("a", 35, 135) == undone("a", 0, 34) == undone("b", 0, 35) == 0


def test_run_with_worst_case_seconds_it_does_what_was_planned() -> None:
    report = simulate_plan(plan_of(failed()), WorstCase(JOBS))
    assert report.iterations == pytest.approx([10])
    assert report.planned_iterations == pytest.approx([10])
    assert report.mean_iteration_s == pytest.approx([13.5])
    sampled = run_sampled(
        plan_of(failed()), JOBS, [JobLaw(Law(6.0), Law(4.0), Law(6.0), "guess", False)], seed=(0,)
    )
    assert sampled.iterations == pytest.approx([10])
    assert sampled.mean_iteration_s == pytest.approx([13.5])


def test_late_iterations_are_undone_with_the_others() -> None:
    """Run at 12 s where D is 11 every iteration is late: 35 / 12 - 1.5 + 80 / 12 of them."""
    jobs = JOBS.replace(slo=[1.1])
    law = JobLaw(Law(8.0), Law(4.0), Law(8.0), "guess", False)
    sampled = run_sampled(plan_of(failed()), jobs, [law], seed=(0,))
    assert sampled.iterations == pytest.approx([115 / 12 - 1.5])
    assert sampled.late_iterations == pytest.approx(sampled.iterations)
    assert sampled.late_share == pytest.approx(1)


def test_a_running_job_has_not_done_what_was_undone_and_was_not_moved() -> None:
    plan = plan_of(failed())
    restarting = running_plan(plan, at_hours=40 / HOUR_S)
    assert restarting.ledger["a"].iterations == pytest.approx(2)
    assert restarting.ledger.why_not("a", restarting.clock_s, None) == "restarting"
    later = running_plan(plan, at_hours=65 / HOUR_S)
    assert later.ledger["a"].iterations == pytest.approx(3)  # 55 s on, one more
    assert later.ledger["a"].moved_s == []
    before = running_plan(plan, at_hours=30 / HOUR_S)
    assert before.ledger["a"].iterations == pytest.approx(3)  # the failure is still to come


def test_a_job_that_waits_after_a_failure_is_refused_in_words() -> None:
    down = FailureParams(events=(FailureEvent(35.0, "rollout", node=0),), repair_h=0.01)
    waits = failed(down, Fleet(1, 1))
    assert waits.records[0].requeued_s == pytest.approx(36)
    with pytest.raises(UnsupportedError, match=r"'a' waiting 0\.01 h when it failed"):
        moments_of(waits)
    with pytest.raises(UnsupportedError, match="for a fixed fleet"):
        running_plan(plan_of(waits), at_hours=0.0)
    rented = replace(plan_of(waits), fleet=None, outages=())
    with pytest.raises(UnsupportedError, match="a job that failed waits"):
        running_plan(rented, at_hours=0.0)


def test_a_job_that_waits_on_arrival_is_refused_in_words() -> None:
    two = table_of(job_of("a", 6, 4, duration_s=360.0), job_of("b", 6, 4, duration_s=360.0))
    waits = replay(two, "solo", options_of(fleet=Fleet(1, 1)))
    with pytest.raises(UnsupportedError, match=r"'b' waiting 0\.1 h on arrival"):
        moments_of(waits)


def test_moments_of_jobs_that_are_back_at_once_are_those_of_their_stays() -> None:
    (moment,) = moments_of(failed())
    assert moment.from_s == 0
    assert moment.to_s == pytest.approx(135)
    assert moment.jobs == (0,)


def test_who_does_not_follow_failures_refuses_in_words() -> None:
    plan = plan_of(failed())
    with pytest.raises(UnsupportedError, match="no job fails"):
        measured(plan, Lengths(jobs=JOBS, template=(1.0,)), {"a": (0.0, 135.0)}, HOUR_S)
    down = FailureParams(events=(FailureEvent(35.0, "rollout", node=0),), repair_h=0.01)
    options = options_of(fleet=Fleet(2, 1))
    broken = replay_with_failures(JOBS, "weave", options, down).result
    with pytest.raises(UnsupportedError, match="fleet is whole"):
        survives_loss(broken, options)
