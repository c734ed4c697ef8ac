"""A small valid plan and ways to change it, for the tests of the checker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from instances.checker import CheckReport, Violation, check_group, recost
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement, Limits, Pause, Plan

#: Two jobs on one rollout node and train nodes 0 and 3, where b shares only node 3 with a.
#: Every phase pays its switch (0.5 and 0.25 s): a 4.5 + 2.25 + sync 1, b 3.5 + 3.25.
#: Period 10: rollouts a [0, 4.5), b [4.5, 8); trains a [4.5, 6.75), b [8, 11.25).
#: T_a = 7, D_a = 10.5; T_b = 6, D_b = 12. Train state on node 3: 1200 + 700 of 2000 GB.
JOB_A = Job(
    job_id="a",
    rollout_s=4.0,
    train_s=2.0,
    sync_s=1.0,
    slo=1.5,
    duration_s=70.0,  # 10 iterations, in 100 s at period 10
    train_nodes=2,
    rollout_state_gb=500.0,
    train_state_gb=1200.0,
    rollout_switch_s=0.5,
    train_switch_s=0.25,
)
JOB_B = dataclasses.replace(
    JOB_A,
    job_id="b",
    rollout_s=3.0,
    train_s=3.0,
    sync_s=0.0,
    slo=2.0,
    duration_s=60.0,
    train_nodes=1,
    train_state_gb=700.0,
)
PLACE_A = JobPlacement(
    job_id="a", rollout_pins=(0,), train_pins=(0, 3), starts_s=((0.0, 4.5),), rate=1
)
PLACE_B = JobPlacement(
    job_id="b", rollout_pins=(0,), train_pins=(3,), starts_s=((4.5, 8.0),), rate=1
)
GROUP = GroupVersion(
    group_id="g",
    from_s=0.0,
    to_s=100.0,
    period_s=10.0,
    rollout_nodes=(0,),
    train_nodes=(0, 3),
    placements=(PLACE_A, PLACE_B),
)
GROUP_USD_PER_HOUR = 8 * 1.85 + 2 * 8 * 5.28


def plan_of(*groups: GroupVersion, jobs: tuple[Job, ...] = (JOB_A, JOB_B), **changes: Any) -> Plan:
    """Return a plan of these groups, priced right unless ``usd_total`` is given."""
    plan = Plan(
        **{
            "policy": "test",
            "durations": "work",
            "cluster": DEFAULT_CLUSTER,
            "jobs": JobTable.from_jobs(jobs),
            "limits": Limits(),
            "groups": groups or (GROUP,),
            "usd_total": 0.0,
            **changes,
        }
    )
    return plan if "usd_total" in changes else dataclasses.replace(plan, usd_total=recost(plan))


#: Job b alone: period 6, no switch paid, D_b = 12.
ALONE_B = JobPlacement(job_id="b", rollout_pins=(0,), train_pins=(3,), starts_s=((0.0, 3.0),))


def alone_b(group_id: str, from_s: float, to_s: float, **changes: Any) -> GroupVersion:
    """Return a version of job b alone."""
    group = dataclasses.replace(
        GROUP,
        group_id=group_id,
        from_s=from_s,
        to_s=to_s,
        period_s=6.0,
        train_nodes=(3,),
        placements=(ALONE_B,),
    )
    return dataclasses.replace(group, **changes)


def moved_plan(
    *,
    move_s: float = 30.0,
    end_s: float = 80.0,
    pauses: tuple[tuple[float, float], ...] = ((30.0, 50.0),),
    slo: float = 2.0,
    **changes: Any,
) -> Plan:
    """Return job b alone, 30 s in group g and 30 s in group h, with 20 s of restart between.

    The 60 s it runs are its 10 iterations and its duration, so the plan is valid by both
    conventions. Its slowdown is 80 / 60.
    """
    job = dataclasses.replace(JOB_B, train_s=2.0, sync_s=1.0, slo=slo, restart_s=20.0)
    return plan_of(
        alone_b("g", 0.0, move_s),
        alone_b("h", move_s, end_s),
        **{
            "jobs": (job,),
            "pins_fixed": False,
            "pauses": tuple(Pause(job_id="b", from_s=a, to_s=b) for a, b in pauses),
            **changes,
        },
    )


def with_starts(placement: JobPlacement, *starts: tuple[float, float]) -> JobPlacement:
    return dataclasses.replace(placement, starts_s=starts, rate=len(starts))


def group_of(*placements: JobPlacement, **changes: Any) -> GroupVersion:
    return dataclasses.replace(GROUP, placements=placements or GROUP.placements, **changes)


def cluster_of(host_dram_gb: float) -> Cluster:
    """Return the default cluster with this much DRAM on train nodes."""
    train = dataclasses.replace(DEFAULT_CLUSTER.train, host_dram_gb=host_dram_gb)
    return DEFAULT_CLUSTER.replace(train=train)


def only(report: CheckReport) -> Violation:
    """Return the single violation of a report."""
    assert len(report.violations) == 1, [v.message for v in report.violations]
    return report.violations[0]


def simple_group(
    phases: list[tuple[float, float, float]],
    starts: list[tuple[float, float]],
    period_s: float,
    pins: list[tuple[int, ...]] | None = None,
) -> tuple[GroupVersion, JobTable]:
    """Return jobs (r, t, s) sharing train node 0, on these rollout pins, with a loose SLO."""
    pins = pins or [(0,)] * len(phases)
    jobs = [
        Job(job_id=str(i), rollout_s=r, train_s=t, sync_s=s, slo=1e3, rollout_nodes=len(p))
        for i, ((r, t, s), p) in enumerate(zip(phases, pins, strict=True))
    ]
    placements = tuple(
        JobPlacement(job_id=job.job_id, rollout_pins=p, train_pins=(0,), starts_s=(pair,))
        for job, p, pair in zip(jobs, pins, starts, strict=True)
    )
    nodes = tuple(sorted({n for p in pins for n in p}))
    group = group_of(
        *placements, period_s=period_s, rollout_nodes=nodes, train_nodes=(0,), group_id="hand"
    )
    return group, JobTable.from_jobs(jobs)


def facts(violations: Iterable[Violation]) -> list[tuple[Any, ...]]:
    """Return rule, job, node and amount of each violation."""
    return [(v.rule, v.job_id, v.node, v.amount) for v in violations]


def check(group: GroupVersion, jobs: JobTable, **limits: Any) -> list[Violation]:
    return check_group(group, jobs, DEFAULT_CLUSTER, Limits(**limits))


def pinned(placement: JobPlacement, **changes: Any) -> JobPlacement:
    return dataclasses.replace(placement, **changes)
