"""The checker's rules of failures: losses, the restarts and waits after them, failed nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from builders import PAIR_USD
from instances.checker import check_plan, recost
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import (
    Fleet,
    GroupVersion,
    JobPlacement,
    Limits,
    Loss,
    Outage,
    Pause,
    Plan,
)
from instances.plan_file import plan_from_dict, plan_to_dict

#: Alone it iterates in 10 s. It fails at 35 s with 3.5 iterations done, a checkpoint every two:
#: 1.5 are undone. Back at once on other nodes, it restarts until 55 s; 8 iterations are left.
JOB = Job(job_id="a", rollout_s=6.0, train_s=4.0, slo=1.0, duration_s=100.0, restart_s=20.0)
FAIL_S, LOST = 35.0, 1.5
HOUR_S = 3600.0


def version(group_id: str, from_s: float, to_s: float, job_id: str = "a") -> GroupVersion:
    place = JobPlacement(job_id=job_id, rollout_pins=(0,), train_pins=(0,), starts_s=((0.0, 6.0),))
    return GroupVersion(
        group_id=group_id,
        from_s=from_s,
        to_s=to_s,
        period_s=10.0,
        rollout_nodes=(0,),
        train_nodes=(0,),
        placements=(place,),
    )


def failed(
    *,
    durations: str = "work",
    at_s: float = FAIL_S,
    iterations: float = LOST,
    back_s: float | None = None,
    restart_s: float = 20.0,
    end_s: float | None = None,
    **changes: Any,
) -> Plan:
    """Return the job's plan; ``back_s`` later than the failure: it waited."""
    back_s = FAIL_S if back_s is None else back_s
    if end_s is None:
        # work: 10 - (3.5 - 1.5) iterations of 10 s; wallclock: 100 s in all and the pause
        left_s = 80.0 if durations == "work" else 65.0
        end_s = back_s + restart_s + left_s
    values: dict[str, Any] = {
        "policy": "weave",
        "durations": durations,
        "cluster": DEFAULT_CLUSTER,
        "jobs": JobTable.from_jobs([JOB]),
        "limits": Limits(),
        "groups": (version("g1", 0.0, FAIL_S), version("g2", back_s, end_s)),
        "usd_total": 0.0,
        "pins_fixed": False,
        "pauses": (Pause(job_id="a", from_s=back_s, to_s=back_s + restart_s),),
        "losses": (Loss(job_id="a", at_s=at_s, iterations=iterations, back_s=back_s),),
    }
    plan = Plan(**{**values, **changes})
    return dataclasses.replace(plan, usd_total=recost(plan))


def rules(plan: Plan) -> set[str]:
    return set(check_plan(plan).counts)


@pytest.mark.parametrize("durations", ["work", "wallclock"])
@pytest.mark.parametrize("back_s", [FAIL_S, 70.0])
def test_a_job_that_fails_and_comes_back_is_valid(durations: str, back_s: float) -> None:
    """Its slowdown (135 s or more for 10 iterations of 10 s, slo 1) is no fault of the plan."""
    plan = failed(durations=durations, back_s=back_s)
    assert check_plan(plan).violations == ()
    # 35 s and the rest on a node of each kind; nothing is paid while it waits
    seconds = 35.0 + 20.0 + (80.0 if durations == "work" else 65.0)
    assert check_plan(plan).usd_total_recomputed == pytest.approx(PAIR_USD * seconds / HOUR_S)


BROKEN: dict[str, tuple[Callable[[], Plan], set[str]]] = {
    "lost more than done": (lambda: failed(iterations=3.6, end_s=35 + 20 + 101), {"loss"}),
    "lost but not done again": (lambda: failed(end_s=35 + 20 + 65), {"stay"}),
    "done again but not lost": (lambda: failed(iterations=0.0), {"stay"}),
    "restart too short": (lambda: failed(restart_s=19.0), {"loss", "pause"}),
    "no restart": (lambda: failed(pauses=(), end_s=35 + 80), {"loss", "pause"}),
    "moved without a failure": (
        lambda: failed(at_s=30.0, iterations=0.0, end_s=35 + 20 + 65),
        {"loss"},
    ),
    "waits without a failure": (
        lambda: failed(back_s=70.0, losses=(), end_s=70 + 20 + 65),
        {"coverage", "slo"},
    ),
    "waits longer than its failure": (
        lambda: failed(
            back_s=70.0,
            losses=(Loss(job_id="a", at_s=FAIL_S, iterations=LOST, back_s=60.0),),
        ),
        {"coverage", "loss", "slo"},
    ),
    "runs while it waits": (
        lambda: failed(losses=(Loss(job_id="a", at_s=FAIL_S, iterations=LOST, back_s=40.0),)),
        {"loss", "slo"},
    ),
    "unknown job": (
        lambda: failed(
            losses=(*failed().losses, Loss(job_id="b", at_s=1.0, iterations=0.0, back_s=1.0))
        ),
        {"loss"},
    ),
    "negative loss": (lambda: failed(iterations=-1.0, end_s=35 + 20 + 55), {"loss"}),
    "endless loss": (lambda: failed(iterations=float("inf")), {"loss"}),
    "back before it fails": (
        lambda: failed(losses=(Loss(job_id="a", at_s=FAIL_S, iterations=LOST, back_s=30.0),)),
        {"loss", "slo"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_loss_must_be(name: str) -> None:
    build, expected = BROKEN[name]
    assert rules(build()) == expected


def test_nothing_runs_between_a_failure_and_the_return() -> None:
    """In one group all along, 25 s of them while it is said to be away: 2.5 - 1.5 of 10 more."""
    groups = (version("g", 0.0, 35.0), version("g", 35.0, 60.0), version("g", 60.0, 60 + 20 + 55.0))
    pauses = (Pause(job_id="a", from_s=60.0, to_s=80.0),)
    away = Loss(job_id="a", at_s=FAIL_S, iterations=LOST, back_s=60.0)
    found = check_plan(failed(groups=groups, pauses=pauses, losses=(away,))).violations
    assert [(v.rule, v.amount) for v in found] == [("loss", pytest.approx(25.0))]


def test_a_plan_with_losses_moves_a_job_nowhere_else() -> None:
    """It fails at 35 s and stays; at 60 s it moves, with a pause as any move has: 7.5 are left."""
    jobs = JobTable.from_jobs([dataclasses.replace(JOB, slo=2.0)])
    groups = (version("g", 0.0, 35.0), version("g", 35.0, 60.0), version("h", 60.0, 80 + 75.0))
    pauses = (*failed().pauses, Pause(job_id="a", from_s=60.0, to_s=80.0))
    found = check_plan(failed(jobs=jobs, groups=groups, pauses=pauses)).violations
    assert [(v.rule, v.group_id) for v in found] == [("loss", "h")]
    assert "to move only where it or a node of it fails" in found[0].message


def test_who_fails_comes_back() -> None:
    """Without a restart nothing but a version shows it: a failure at the end of all is none."""
    jobs = JobTable.from_jobs([dataclasses.replace(JOB, restart_s=0.0)])
    real = Loss(job_id="a", at_s=FAIL_S, iterations=LOST, back_s=FAIL_S)
    last = Loss(job_id="a", at_s=115.0, iterations=0.0, back_s=115.0)
    plan = failed(jobs=jobs, pauses=(), losses=(real,), end_s=115.0)
    assert check_plan(plan).ok
    assert rules(dataclasses.replace(plan, losses=(real, last))) == {"loss"}


def test_a_restart_may_be_cut_short_by_the_next_failure() -> None:
    """Fails at 35 s, and at 45 s again, ten seconds into its restart; nothing more to undo."""
    again_s, end_s = 45.0, 45.0 + 20.0 + 80.0
    parts: dict[str, Any] = {
        "groups": (
            version("g1", 0.0, FAIL_S),
            version("g2", FAIL_S, again_s),
            version("g3", again_s, end_s),
        ),
        "pauses": (
            Pause(job_id="a", from_s=FAIL_S, to_s=again_s),
            Pause(job_id="a", from_s=again_s, to_s=again_s + 20.0),
        ),
    }
    first, second = (
        Loss(job_id="a", at_s=FAIL_S, iterations=LOST, back_s=FAIL_S),
        Loss(job_id="a", at_s=again_s, iterations=0.0, back_s=again_s),
    )
    assert check_plan(failed(losses=(second, first), **parts)).ok
    assert rules(failed(losses=(first,), **parts)) == {"loss", "pause", "slo"}
    # 2 and 2 of the 3.5 done, each less and together more: 10.5 would be left, of 10
    more = tuple(dataclasses.replace(loss, iterations=2.0) for loss in (first, second))
    parts["groups"] = (*parts["groups"][:2], version("g3", again_s, again_s + 20.0 + 105.0))
    assert rules(failed(losses=more, **parts)) == {"loss"}


def test_time_lost_otherwise_still_counts_against_the_slo() -> None:
    """A pause that no failure starts is charged: 20 s of restart apart, 5 more are too many."""
    extra = Pause(job_id="a", from_s=100.0, to_s=105.0)
    plan = failed(pauses=(*failed().pauses, extra), end_s=35 + 20 + 80 + 5)
    assert rules(plan) == {"slo"}


def test_async_jobs_and_snapshots_have_no_losses() -> None:
    jobs = JobTable.from_jobs([dataclasses.replace(JOB, mode="async")])
    messages = [v.message for v in check_plan(failed(jobs=jobs)).violations if v.rule == "loss"]
    assert "Expected losses of jobs in groups, got one of job 'a', async." in messages
    assert "loss" in rules(failed(durations="snapshot"))


def test_messages_name_job_moment_expected_and_got() -> None:
    found = check_plan(failed(iterations=3.6, end_s=35 + 20 + 101)).violations
    assert [(v.rule, v.job_id, v.unit) for v in found] == [("loss", "a", "iterations")]
    assert found[0].amount == pytest.approx(0.1)
    assert "iterations of job 'a' lost by 35" in found[0].message


# --- Failed nodes of a fleet ---------------------------------------------------------------


def test_a_failed_node_is_not_there() -> None:
    """Two train nodes, one in use: one may be down at a time, and neither costs a cent more."""
    one = Outage(pool="train", from_s=50.0, to_s=90.0)
    fleet = Fleet(1, 2)
    plan = failed(fleet=fleet, outages=(one,))
    assert check_plan(plan).ok
    assert check_plan(plan).usd_total_recomputed == failed().usd_total
    twice = failed(fleet=fleet, outages=(one, dataclasses.replace(one, from_s=80.0)))
    assert rules(twice) == {"fleet"}
    rollout = failed(fleet=fleet, outages=(dataclasses.replace(one, pool="rollout"),))
    assert rules(rollout) == {"fleet"}


@pytest.mark.parametrize(
    "changes",
    [
        {"fleet": None},
        {"outages": (Outage(pool="gpu", from_s=1.0, to_s=2.0),)},  # type: ignore[arg-type]
        {"outages": (Outage(pool="train", from_s=2.0, to_s=2.0),)},
        {"outages": (Outage(pool="train", from_s=0.0, to_s=float("inf")),)},
    ],
)
def test_what_outages_must_be(changes: dict[str, Any]) -> None:
    outage = Outage(pool="train", from_s=1.0, to_s=2.0)
    plan = failed(**{"fleet": Fleet(2, 2), "outages": (outage,), **changes})
    assert rules(plan) == {"fleet"}


def test_losses_and_outages_survive_the_file_and_old_files_have_none() -> None:
    outage = Outage(pool="train", from_s=50.0, to_s=90.0)
    plan = failed(fleet=Fleet(2, 2), outages=(outage,))
    data = plan_to_dict(plan)
    again = plan_from_dict(data)
    assert (again.losses, again.outages) == (plan.losses, plan.outages)
    del data["losses"], data["outages"]
    old = plan_from_dict(data)
    assert (old.losses, old.outages) == ((), ())
