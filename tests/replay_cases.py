"""Traces, one replay of each, and parameters, for the tests of the replay."""

from __future__ import annotations

import functools
import random
from collections import defaultdict

import pytest

from builders import options_of, random_job, table_of
from instances.catalog import catalog_path
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion
from instances.trace import read_trace
from planner.replay.replaying import Convention, ReplayResult, replay

CONVENTIONS: tuple[Convention, ...] = ("work", "wallclock")
HOUR_S = 3600.0


def _mixed_modes() -> JobTable:
    """Sync and async jobs, single nodes and gangs, some at the same instant."""
    rng = random.Random(5)
    return table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=float(rng.randint(0, 9) * 100),
                duration_s=float(rng.randint(1, 2000)),
                mode=rng.choice(("sync", "sync", "async")),
                sync_gb=4.0,
            )
            for i in range(24)
        )
    )


def _one_step() -> JobTable:
    """Generated jobs, half of them one-step, a few async."""
    table = production(n_jobs=60, seed=7)
    rng = random.Random(7)
    modes = tuple(rng.choice(("sync", "one-step")) if i % 12 else "async" for i in range(60))
    return table.replace(mode=modes)


TRACES = {
    **{
        name: functools.partial(lambda name: read_trace(catalog_path(name)).jobs, name)
        for name in ("tiny-open-shop", "tiny-sync-gap", "tiny-gang")
    },
    **{
        f"production-{seed}{'-gangs' if gangs else ''}": functools.partial(
            production, n_jobs=60, seed=seed, gangs=gangs
        )
        for seed in (1, 2)
        for gangs in (False, True)
    },
    "mixed-modes": _mixed_modes,
    "one-step": _one_step,
}


@functools.cache
def jobs_of(trace: str) -> JobTable:
    return TRACES[trace]()


@functools.cache
def replayed(trace: str, policy: str, convention: Convention, factor: float = 1.0) -> ReplayResult:
    return replay(
        jobs_of(trace), policy, options_of(colocated_factor=factor), convention=convention
    )


all_traces = pytest.mark.parametrize("trace", TRACES)
all_policies = pytest.mark.parametrize("policy", ["weave", "solo", "colocated"])
valid_policies = pytest.mark.parametrize("policy", ["weave", "solo"])
both_conventions = pytest.mark.parametrize("convention", CONVENTIONS)


def versions_by_job(result: ReplayResult) -> dict[str, list[tuple[GroupVersion, int]]]:
    """Return the versions each job was part of, in order, with its rate there."""
    assert result.plan is not None
    out = defaultdict(list)
    for version in sorted(result.plan.groups, key=lambda v: v.from_s):
        for placement in version.placements:
            out[placement.job_id].append((version, placement.rate))
    return out


def of(*jobs: Job, policy: str = "weave", convention: Convention = "work") -> ReplayResult:
    return replay(table_of(*jobs), policy, options_of(), convention=convention)
