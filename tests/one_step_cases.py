"""Groups and snapshots in which some jobs are one-step (one step off policy), for their tests."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from agreement_cases import GRID_S
from instances.jobs import Job
from models.problem.snapshot import Snapshot
from period_cases import Case, random_cases
from rate_cases import rated, spread
from small_snapshots import MIXES, random_jobs, snapshot_of

__all__ = ["mixed", "mixed_groups", "mixed_rates", "mixed_snapshot", "one_step"]


def one_step(case: Case, *which: int) -> Case:
    """The same group with these jobs one-step; all of them when none is named."""
    chosen = which or range(len(case.jobs))
    jobs = [
        replace(job, mode="one-step") if j in chosen else job for j, job in enumerate(case.jobs)
    ]
    return replace(case, jobs=tuple(jobs))


def mixed_groups(seed: int, count: int, most: int) -> list[Case]:
    """Return random groups of every kind of ``period_cases``, two jobs in three one-step."""
    rng = random.Random(seed)
    cases = random_cases(seed, count, most)
    for i, case in enumerate(cases):
        jobs = [
            replace(job, mode=rng.choice(("sync", "one-step", "one-step"))) for job in case.jobs
        ]
        cases[i] = replace(case, jobs=tuple(jobs))
    return cases


def mixed(rng: random.Random, jobs: list[Job]) -> list[Job]:
    """Make every second job one-step, its deadline on the grid, at least T and often shorter."""
    out = []
    for i, job in enumerate(jobs):
        job = replace(job, job_id=f"j{i}")
        if rng.random() < 0.5:
            deadline = job.deadline_s * rng.choice((0.5, 0.75, 1))
            job = replace(job, mode="one-step")
            deadline = GRID_S * math.ceil(max(deadline, job.solo_s) / GRID_S - 1e-9)
            job = replace(job, slo=deadline / job.solo_s)
        out.append(job)
    return out


def mixed_snapshot(rng: random.Random, n: int) -> Snapshot:
    """Return a snapshot of one of the mixes, sometimes with limits of its groups."""
    jobs = mixed(rng, random_jobs(rng, n, MIXES[rng.choice(list(MIXES))]))
    narrow = all(job.rollout_nodes == job.train_nodes == 1 for job in jobs)
    limits = ((None, None), (None, None), (1, 1), (None, 1), (2, 2)) if narrow else ((None, None),)
    return snapshot_of(jobs, size=rng.choice((0, 0, 2, 3)), nodes=rng.choice(limits))


def mixed_rates(rng: random.Random, n: int, max_rate: int) -> Snapshot:
    """Return a snapshot of single-node jobs of different lengths, with rates."""
    return rated(mixed(rng, spread(rng, n, sync=True)), max_rate, size=rng.choice((0, 0, 2)))
