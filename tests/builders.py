"""Small jobs, clusters and traces for the tests of the planner."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from typing import Any

from instances.checker import Violation, check_group
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.plan import Limits
from instances.trace import Trace
from planner.placement.group_state import GroupState
from planner.policies.policy import PolicyOptions

#: $/h of one node: 8 x $1.85 (H20) and 8 x $5.28 (H800), and of one of each.
ROLLOUT_USD = 14.80
TRAIN_USD = 42.24
PAIR_USD = 57.04


def job_of(job_id: str, rollout_s: float, train_s: float, slo: float = 2.0, **more: Any) -> Job:
    """Return a job; what is not given is 0, one node of each kind, arrival 0."""
    return Job(job_id=job_id, rollout_s=rollout_s, train_s=train_s, slo=slo, **more)


def cluster_of(
    *,
    rollout_usd: float = ROLLOUT_USD,
    train_usd: float = TRAIN_USD,
    host_dram_gb: float = 2000.0,
) -> Cluster:
    """Return the default cluster at other prices ($/h of a node) or with other DRAM."""

    def node(old: Any, usd: float) -> Any:
        gpu = dataclasses.replace(old.gpu, usd_per_gpu_hour=usd / old.gpus_per_node)
        return dataclasses.replace(old, gpu=gpu, host_dram_gb=host_dram_gb)

    return DEFAULT_CLUSTER.replace(
        rollout=node(DEFAULT_CLUSTER.rollout, rollout_usd),
        train=node(DEFAULT_CLUSTER.train, train_usd),
    )


def table_of(*jobs: Job) -> JobTable:
    """Return a table in order of arrival; jobs that arrive together keep their order."""
    return JobTable.from_jobs(sorted(jobs, key=lambda job: job.arrival_s))


def trace_of(*jobs: Job, name: str = "hand.csv") -> Trace:
    """Return a trace as if read from a file."""
    return Trace(name=name, sha256="0" * 64, jobs=table_of(*jobs))


def options_of(**changes: Any) -> PolicyOptions:
    """Return policy options on the default cluster."""
    return PolicyOptions(**{"cluster": DEFAULT_CLUSTER, **changes})


def violations(
    state: GroupState, cluster: Cluster = DEFAULT_CLUSTER, limits: Limits | None = None
) -> list[Violation]:
    """Check one group, as it stands, with the independent checker."""
    return check_group(
        state.version(0.0, state.period_s),
        JobTable.from_jobs(state.jobs),
        cluster,
        Limits() if limits is None else limits,
    )


def members(groups: Iterable[GroupState]) -> dict[int, list[str]]:
    """Return the job ids of each group by group number."""
    return {group.number: [job.job_id for job in group.jobs] for group in groups}


def random_job(rng: random.Random, job_id: str, **more: Any) -> Job:
    """Return a job of few distinct values, so that ties, full nodes and exact SLOs are common."""
    return job_of(
        job_id,
        rng.randint(1, 20),
        rng.randint(1, 20),
        rng.choice((1.0, 1.2, 1.5, 2.0, 4.0)),
        sync_s=rng.choice((0.0, 0.0, 1.0, 3.0)),
        rollout_nodes=rng.choice((1, 1, 1, 2, 3)),
        train_nodes=rng.choice((1, 1, 1, 2)),
        rollout_state_gb=rng.choice((0.0, 400.0, 1000.0)),
        train_state_gb=rng.choice((0.0, 400.0, 1000.0)),
        rollout_switch_s=rng.choice((0.0, 0.5)),
        train_switch_s=rng.choice((0.0, 0.5, 1.0)),
        **more,
    )
