"""What is known of running jobs: progress, SLO credit, moves of a day, and how long they stay."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from gap_cases import HOUR
from instances.jobs import Job
from moving_cases import group_of
from planner.placement.group_state import GroupState
from planner.policies.repack_ledger import JobLedger
from planner.policies.replay_result import Convention
from repack_cases import RESTART_S, twin
from repack_policy_cases import random_jobs, repack_of, steps

DAY = 24 * HOUR


def alone(job: Job, convention: Convention = "wallclock", now_s: float = 0.0) -> JobLedger:
    """Return the ledger of a job that runs alone, at ``T``, since it arrived."""
    ledger = JobLedger(convention)
    ledger.arrive(job, now_s)
    ledger.run(GroupState.alone(job, 1), now_s)
    return ledger


def together(jobs: list[Job], slow: float = 1.0) -> GroupState:
    """Return a group of twins, its period stretched."""
    state = group_of(jobs, 1)
    assert state is not None
    return replace(state, period_s=state.period_s * slow)


# --- credit ---------------------------------------------------------------------------------------


def test_credit_is_the_promise_less_the_time() -> None:
    """D = 40 and an iteration every 20 s: a second earns 40 / 20 - 1 = 1 s of credit."""
    known = alone(twin("a"))["a"]
    assert [known.credit_s(at) for at in (0, 20, 500)] == [0, 20, 500]
    assert known.done(500) == 25


def test_a_job_moves_once_its_credit_covers_its_restart() -> None:
    ledger = alone(twin("a"))
    assert not ledger.may_move("a", RESTART_S - 1e-3, None)
    assert ledger.may_move("a", RESTART_S, None)


def test_a_pause_takes_its_length_at_once_and_then_credit_rests() -> None:
    """At 400 s: 20 iterations, credit 400. The restart takes 360 until 760 s, then it grows."""
    ledger = alone(twin("a"))
    ledger.move("a", 400.0)
    known = ledger["a"]
    assert [known.credit_s(at) for at in (400, 500, 760)] == [40, 40, 40]
    assert [known.done(at) for at in (400, 760, 800)] == [20, 20, 22]
    assert known.credit_s(800) == 80
    assert (known.paused_s, known.paused_until_s, ledger.moves) == (360, 760, 1)


def test_nobody_moves_while_it_restarts() -> None:
    """With D = 200 a second earns 9 s, so that credit does not forbid it."""
    ledger = alone(twin("a", slo=10.0))
    ledger.move("a", 400.0)
    assert not ledger.may_move("a", 759.0, None)
    assert ledger.may_move("a", 760.0, None)


def test_at_the_deadline_no_credit_is_earned() -> None:
    """slo = 1: C = T = D. Nobody could move it but for nothing."""
    ledger = alone(twin("a", slo=1.0))
    assert ledger["a"].credit_s(5000.0) == 0
    assert not ledger.may_move("a", 5000.0, None)
    free = alone(twin("b", slo=1.0, restart_s=0.0))
    assert free.may_move("b", 5000.0, None)


def test_a_group_that_changes_during_a_pause_changes_nothing_for_it() -> None:
    """Paused from 400 to 760 s; at 500 s its group slows to 40 s a period."""
    a, b = twin("a"), twin("b")
    ledger = alone(a)
    ledger.arrive(b, 0.0)
    ledger.move("a", 400.0)
    ledger.run(together([a, b]), 400.0)
    ledger.run(together([a, b], 2.0), 500.0)
    known = ledger["a"]
    assert [known.done(at) for at in (500, 760, 800)] == [20, 20, 21]
    assert known.credit_s(760.0) == known.credit_s(800.0) == 40  # C = D
    assert ledger["b"].done(500) == 5  # 100 s at 20 s; it was in no group before


def test_rates_count() -> None:
    """Two iterations in a period of 40 s are as one in 20 s."""
    a = twin("a")
    state = replace(
        GroupState.alone(a, 1),
        rates=(2,),
        period_s=40.0,
        starts_s=(((0.0, 10.0), (20.0, 30.0)),),
    )
    ledger = JobLedger("work")
    ledger.arrive(a, 0.0)
    ledger.run(state, 0.0)
    assert ledger["a"].done(100.0) == 5


def test_moves_of_a_day() -> None:
    """A window of 24 h holds the moves after its beginning."""
    ledger = alone(twin("a", slo=10.0))
    for at in (HOUR, 2 * HOUR):
        ledger.move("a", at)
    assert ledger.may_move("a", 3 * HOUR, 3)
    assert not ledger.may_move("a", 3 * HOUR, 2)
    assert not ledger.may_move("a", HOUR + DAY - 1, 2)
    assert ledger.may_move("a", HOUR + DAY, 2)
    assert not ledger.may_move("a", HOUR + DAY, 1)
    assert not ledger.may_move("a", 2 * DAY, 0)


def test_a_copy_is_its_own() -> None:
    ledger = alone(twin("a"))
    other = ledger.copy()
    other.move("a", 400.0)
    assert (ledger.moves, ledger["a"].moved_s, ledger["a"].paused_until_s) == (0, [], -inf)


@pytest.mark.parametrize("convention", ["work", "wallclock"])
@pytest.mark.parametrize("seed", range(3))
def test_progress_is_what_the_replay_accounts_for(seed: int, convention: Convention) -> None:
    """After every event, of every job; and credit never falls but by a restart, never below 0."""
    policy = repack_of(convention, lasting_h=50.0, max_scope=4)
    credit: dict[str, float] = {}
    moves = 0
    for loop in steps(random_jobs(seed), policy, convention):
        now_s = loop.now_s
        for group in loop.running.values():
            loop._account(group)
            for record in group.records:
                job = record.job
                known = policy.ledger[job.job_id]
                assert known.done(now_s) == pytest.approx(record.iterations, rel=1e-9, abs=1e-9)
                assert (known.paused_s, len(known.moved_s)) == (record.paused_s, record.moves)
                assert known.paused_until_s == record.paused_until_s
                least_s = credit.get(job.job_id, 0.0)
                if known.moved_s[-1:] == [now_s]:
                    least_s -= job.restart_s
                credit[job.job_id] = known.credit_s(now_s)
                assert credit[job.job_id] >= max(least_s, 0.0) - 1e-6
        moves = policy.ledger.moves
    assert moves == sum(record.moves for record in loop.records) > 0


# --- how long they stay ---------------------------------------------------------------------------


def test_stays_and_ages_leave_pauses_out() -> None:
    """b leaves after 2 h of which 0.1 h was a pause; a is 2 h old, of which 0.5 h a pause.

    Stays 1.9 and 24 (the first guess), age 1.5: three at risk at 1.9 h but for a, which is
    censored before: S = 1/2 from 1.9 h to 24 h. m(1.5) = 0.4 + 22.1 / 2.
    """
    ledger = alone(twin("a", restart_s=0.5 * HOUR))
    b = twin("b")
    ledger.arrive(b, 0.0)
    ledger.move("a", HOUR)
    ledger.move("b", HOUR)
    ledger.depart(b, 2 * HOUR)
    assert ledger.means_h(2 * HOUR) == pytest.approx({"a": 0.4 + 22.1 / 2})


def test_the_first_of_several_leaves_at_the_sum_of_their_rates() -> None:
    """Ages 0 and 12 h before any departure: 24 and 12 h left, so rates 1/24 and 1/12, mean 1/16.

    Of four such jobs the first leaves after 16 / 4 hours.
    """
    ledger = alone(twin("a"))
    ledger.arrive(twin("b", arrival_s=12 * HOUR), 12 * HOUR)
    assert ledger.means_h(12 * HOUR) == pytest.approx({"a": 12.0, "b": 24.0})
    assert ledger.first_leaving_h(12 * HOUR, 4) == pytest.approx(4.0)
    assert ledger.first_leaving_h(12 * HOUR, 1) == pytest.approx(16.0)
    assert ledger.first_leaving_h(12 * HOUR, 0) == inf
    assert JobLedger("work").first_leaving_h(0.0, 3) == inf


def test_what_is_left_by_the_clock() -> None:
    """7,200 s and a pause of 360 s: at 760 s 6,800 s are left, paused or not."""
    ledger = alone(twin("a"))
    ledger.move("a", 400.0)
    assert ledger.remaining_h(["a"], 500.0) == pytest.approx((7560 - 500) / HOUR)
    assert ledger.remaining_h(["a"], 1000.0) == pytest.approx((7560 - 1000) / HOUR)


def test_what_is_left_by_the_work() -> None:
    """7,200 s are 360 iterations; 20 done at 400 s, then a restart until 760 s, then C = 40 s."""
    a, b = twin("a"), twin("b")
    ledger = alone(a, "work")
    ledger.arrive(b, 0.0)
    ledger.move("a", 400.0)
    ledger.run(together([a, b], 2.0), 400.0)
    assert ledger.remaining_h(["a"], 500.0) == pytest.approx((260 + 340 * 40) / HOUR)
    assert ledger.remaining_h(["a"], 1160.0) == pytest.approx(330 * 40 / HOUR)
    # the last of both; b has done 10 by 800 s, of 360
    assert ledger.remaining_h(["a", "b"], 800.0) == pytest.approx(350 * 40 / HOUR)
    assert ledger.remaining_h([], 800.0) == 0.0


def test_a_job_in_no_group_yet_has_its_iterations_to_do_alone() -> None:
    ledger = JobLedger("work")
    ledger.arrive(twin("a"), 0.0)
    assert ledger.remaining_h(["a"], 0.0) == pytest.approx(2.0)
    assert ledger.mean_remaining_h(0.0) == pytest.approx(2.0)


def test_the_mean_of_what_is_left() -> None:
    ledger = alone(twin("a"))
    ledger.arrive(twin("b", duration_s=6 * HOUR), 0.0)
    assert ledger.mean_remaining_h(HOUR) == pytest.approx((1 + 5) / 2)
    assert JobLedger("work").mean_remaining_h(0.0) == 0.0
