"""A plan file with every field unlike its default, and what it means to be read back equal."""

from __future__ import annotations

import dataclasses

import numpy as np

from instances.hardware import DEFAULT_CLUSTER, Links, ModelDefaults
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, Job, JobTable
from instances.plan import (
    DedicatedNodes,
    Fleet,
    GroupVersion,
    HeldNodes,
    JobPlacement,
    Limits,
    Pause,
    Plan,
    Start,
)

AWKWARD = 0.1 + 0.2  # needs all 17 digits

JOBS = JobTable.from_jobs(
    [
        Job(job_id="a", rollout_s=4.0, train_s=2.0, sync_s=1.0, slo=1.5, duration_s=280.0),
        Job(job_id="b é", rollout_s=AWKWARD, train_s=3.0, slo=2.0, arrival_s=1 / 3, mode="async"),
        Job(job_id="c", rollout_s=9.0, train_s=1.0, slo=1.0, rollout_nodes=2, mode="one-step"),
    ]
).replace(
    optional={
        "model_b": np.array([7.0, np.nan, 32.0]),
        "max_tokens": np.array([np.nan] * 3),
        "restart_s": np.array([0.0, np.nan, AWKWARD]),
    },
    extra={"team": ("red", "", 'blue, "x"'), "Größe": ("1", "2", "3")},
    estimated={"sync_gb": np.array([True, False, True]), "train_s": np.array([False] * 3)},
)

#: Every field differs from its default; it need not be valid.
PLAN = Plan(
    policy="weave",
    durations="wallclock",
    cluster=DEFAULT_CLUSTER.replace(
        train=dataclasses.replace(DEFAULT_CLUSTER.train, host_dram_gb=1234.5, gpus_per_node=4),
        links=Links(intra_gbps=100.0, inter_gbps=AWKWARD, links=3),
        models=(
            ModelDefaults(
                model_b=7.0,
                rollout_state_gb=1.0,
                train_state_gb=2.0,
                rollout_switch_s=0.0,
                train_switch_s=AWKWARD,
            ),
        ),
    ),
    jobs=JOBS,
    limits=Limits(max_group_size=0, max_rollout_nodes=7, max_train_nodes=3, max_rate=4),
    groups=(
        GroupVersion(
            group_id="g0",
            from_s=0.0,
            to_s=AWKWARD,
            period_s=12.5,
            rollout_nodes=(0, 5),
            train_nodes=(2,),
            placements=(
                JobPlacement(
                    job_id="a",
                    rollout_pins=(5,),
                    train_pins=(2,),
                    starts_s=((0.0, AWKWARD), (6.25, 13.0)),
                    rate=2,
                ),
                JobPlacement(
                    job_id="c", rollout_pins=(0, 5), train_pins=(), starts_s=((1.0, 1 / 3),)
                ),
            ),
        ),
        GroupVersion(
            group_id="empty",
            from_s=-1.0,
            to_s=-2.0,
            period_s=0.0,
            rollout_nodes=(),
            train_nodes=(),
            placements=(),
        ),
    ),
    usd_total=1e22 / 3,
    dedicated=(
        DedicatedNodes(job_id="b é", from_s=1 / 3, to_s=9.0, rollout_nodes=2, train_nodes=0),
    ),
    pins_fixed=False,
    pauses=(
        Pause(job_id="a", from_s=AWKWARD, to_s=7.0),
        Pause(job_id="b é", from_s=-1.0, to_s=-2.0),
    ),
    held=(HeldNodes(group_id="g0", from_s=AWKWARD, to_s=9.0, rollout_nodes=2, train_nodes=0),),
    fleet=Fleet(2, 0),
    starts=(Start("a", AWKWARD), Start("b é", -1.0)),
)


def assert_same_jobs(got: JobTable, want: JobTable) -> None:
    """Every column equal, bit for bit; columns without one estimated cell may be left out."""
    assert (got.job_id, got.mode) == (want.job_id, want.mode)
    for name in (*FLOAT_FIELDS, *INT_FIELDS):
        assert getattr(got, name).dtype == getattr(want, name).dtype
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    assert got.optional.keys() == want.optional.keys()
    for name in want.optional:
        np.testing.assert_array_equal(got.optional[name], want.optional[name], err_msg=name)
    assert got.extra == want.extra
    assert got.estimated_columns() == want.estimated_columns()
    for name in want.estimated_columns():
        np.testing.assert_array_equal(got.estimated[name], want.estimated[name], err_msg=name)


def assert_same_plan(got: Plan, want: Plan) -> None:
    assert_same_jobs(got.jobs, want.jobs)
    for field in dataclasses.fields(Plan):
        if field.name != "jobs":
            assert getattr(got, field.name) == getattr(want, field.name), field.name
