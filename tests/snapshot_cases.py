"""Methods made up for a test, and a group with switches, sync, a gang and a wrap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from builders import job_of, table_of
from instances.errors import UnsupportedError
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement
from models.exact.methods import METHODS
from models.group.period import construct
from models.problem.group_shape import GroupShape
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, result_of
from models.problem.snapshot import Snapshot, groups_of
from planner.replay.moment import Selection
from planner.snapshot.solving import SnapshotReport

Solve = Callable[[Snapshot, SolveOptions], Result]


def use_method(monkeypatch: pytest.MonkeyPatch, name: str, solve: Solve) -> list[SolveOptions]:
    """Let a method of this name be ``solve``; return the options of its calls, as they come."""
    calls: list[SolveOptions] = []

    def watched(snapshot: Snapshot, options: SolveOptions, _known: object = None) -> Result:
        calls.append(options)
        return solve(snapshot, options)

    home = f"made_up_{name.replace('-', '_')}"
    monkeypatch.setitem(METHODS, name, home)
    monkeypatch.setitem(sys.modules, home, SimpleNamespace(solve=watched))
    return calls


def group_of(
    jobs: Sequence[Job],
    rollout_pins: Sequence[Sequence[int]],
    train_pins: Sequence[Sequence[int]],
    rates: Sequence[int] | None = None,
) -> tuple[GroupVersion, JobTable]:
    """Return a group on these pins with a constructed schedule, and the table of its jobs."""
    counts = [1] * len(jobs) if rates is None else list(rates)
    found = construct(
        GroupShape.of(jobs, rollout_pins, train_pins, counts),
        limit_s=min(k * job.deadline_s for k, job in zip(counts, jobs, strict=True)),
    )
    assert found is not None
    group = GroupVersion(
        group_id="g1",
        from_s=0.0,
        to_s=3600.0,
        period_s=found.period_s,
        rollout_nodes=tuple(sorted({node for pins in rollout_pins for node in pins})),
        train_nodes=tuple(sorted({node for pins in train_pins for node in pins})),
        placements=tuple(
            JobPlacement(
                job_id=job.job_id,
                rollout_pins=tuple(rollout_pins[i]),
                train_pins=tuple(train_pins[i]),
                starts_s=found.starts_s[i],
                rate=counts[i],
            )
            for i, job in enumerate(jobs)
        ),
    )
    return group, JobTable.from_jobs(jobs)


def rich_group() -> tuple[GroupVersion, JobTable]:
    """Three jobs on two rollout nodes and one train node: switches, sync, and a gang of two."""
    jobs = (
        job_of("alpha", 300, 90, 1.9, sync_s=20, rollout_switch_s=1.5, train_switch_s=15),
        job_of("beta", 200, 120, 2, sync_s=45, rollout_switch_s=12, train_switch_s=14),
        job_of("gamma", 150, 180, 2.2, sync_s=12, rollout_switch_s=10, train_switch_s=15,
               rollout_nodes=2),
    )  # fmt: skip
    return group_of(jobs, [(0,), (1,), (0, 1)], [(0,), (0,), (0,)])


def fast_and_slow() -> tuple[GroupVersion, JobTable]:
    """A job of three iterations a period beside one of one, sharing the train node only."""
    jobs = (
        job_of("fast", 30, 10, 2, sync_s=4, train_switch_s=2),
        job_of("slow", 120, 50, 1.5, sync_s=10, train_switch_s=2),
    )
    return group_of(jobs, [(0,), (1,)], [(0,), (0,)], [3, 1])


A = job_of("a", 60, 40, 1.5)


B = job_of("b", 40, 60, 1.5)


ALL = Selection.all_jobs()


def ids(report: SnapshotReport) -> list[str]:
    return list(report.jobs.job_id)


def many(number: int) -> JobTable:
    """Equal jobs of which no two fit the DRAM of one node, by a hair: every job is alone.

    The volume bound counts 0.6 rollout nodes of time, 0.5005 train nodes of DRAM for each.
    """
    state = {"rollout_state_gb": 1001, "train_state_gb": 1001}
    return table_of(*(job_of(f"j{i}", 60, 40, 1.0, **state) for i in range(number)))


def held(snapshot: Snapshot, options: SolveOptions, stopped_by: StoppedBy) -> Result:
    """Return what a method that proves nothing would: its warm start."""
    assert options.warm_start is not None
    groups = groups_of(snapshot, options.warm_start)
    return result_of(
        snapshot, options, "made-up", groups=groups, bound_usd=None, stopped_by=stopped_by
    )


def refuses(snapshot: Snapshot, options: SolveOptions) -> Result:
    raise UnsupportedError(f"Expected fewer than {len(snapshot)} jobs.")


def interrupted(snapshot: Snapshot, options: SolveOptions) -> Result:
    raise KeyboardInterrupt
