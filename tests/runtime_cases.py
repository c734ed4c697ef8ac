"""Groups to run, an independent run of them first come first served, by simpy's resources, and a
check of the events of any run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from builders import job_of, table_of
from instances.errors import CheckError
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement
from models.group.period import Schedule
from period_cases import Case
from planner.simulate.runtime import POOLS, Event, GroupRun
from planner.simulate.runtime_run import SLO_EPS_S

__all__ = ["Given", "check_events", "fifo_starts", "long_and_short", "version_of_case"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Given:
    """Phases by a table: ``seconds[pool, job, iteration]``; beyond it the last one again."""

    jobs: JobTable
    seconds: FloatArray

    def phases(self, job: int, iteration_from: int, count: int) -> tuple[FloatArray, FloatArray]:
        """Return rollout and train seconds."""
        last = self.seconds.shape[2] - 1
        which = np.minimum(np.arange(iteration_from, iteration_from + count), last)
        return self.seconds[0, job, which], self.seconds[1, job, which]


def long_and_short() -> tuple[GroupVersion, JobTable]:
    """(10, 10) and (1, 1) on rollout nodes of their own, sharing one train node; period 20."""
    jobs = table_of(job_of("long", 10, 10), job_of("short", 1, 1, slo=20))
    placements = tuple(
        JobPlacement(job_id=name, rollout_pins=(node,), train_pins=(0,), starts_s=((0.0, train),))
        for name, node, train in (("long", 0, 10.0), ("short", 1, 1.0))
    )
    version = GroupVersion(
        group_id="g1",
        from_s=0.0,
        to_s=4000.0,
        period_s=20.0,
        rollout_nodes=(0, 1),
        train_nodes=(0,),
        placements=placements,
    )
    return version, jobs


def version_of_case(case: Case, schedule: Schedule, to_s: float = 3600.0) -> GroupVersion:
    """Return a group as a version with these starts."""
    return GroupVersion(
        group_id="g",
        from_s=0.0,
        to_s=to_s,
        period_s=schedule.period_s,
        rollout_nodes=tuple(sorted({x for pins in case.rollout_pins for x in pins})),
        train_nodes=tuple(sorted({x for pins in case.train_pins for x in pins})),
        placements=tuple(
            JobPlacement(job_id=job.job_id, rollout_pins=r, train_pins=t, starts_s=s, rate=k)
            for job, r, t, s, k in zip(
                case.jobs,
                case.rollout_pins,
                case.train_pins,
                schedule.starts_s,
                case.rates,
                strict=True,
            )
        ),
    )


def fifo_starts(
    version: GroupVersion, jobs: Sequence[Job], seconds: FloatArray, until_s: float
) -> dict[tuple[int, int, int], float]:
    """Return starts by (job, 0 rollout or 1 train, iteration), first come first served.

    Every node is a simpy resource of its own. A phase asks all its nodes at once and holds those it
    gets while it waits for the others; as all are asked in the same order no two wait for each
    other. Whoever asks at the same moment does so by job number, after all ends of that moment.
    """
    env = simpy.Environment()
    nodes: dict[tuple[int, int], Any] = {}
    users: dict[tuple[int, int], int] = {}
    for placement in version.placements:
        for pool, pins in enumerate((placement.rollout_pins, placement.train_pins)):
            for node in pins:
                nodes.setdefault((pool, node), simpy.Resource(env))
                users[pool, node] = users.get((pool, node), 0) + 1
    starts: dict[tuple[int, int, int], float] = {}

    def later(j: int) -> Any:
        """An event of this moment, after all of usual priority, by job number."""
        event = simpy.Event(env)
        event._ok, event._value = True, None
        env.schedule(event, priority=10 + j)
        return event

    def job(j: int) -> Any:
        placement = version.placements[j]
        warm = (jobs[j].rollout_switch_s, jobs[j].train_switch_s)
        for i in range(seconds.shape[2]):
            for pool, pins in enumerate((placement.rollout_pins, placement.train_pins)):
                yield later(j)
                asked = [nodes[pool, node].request() for node in pins]
                yield env.all_of(asked)
                starts[j, pool, i] = env.now
                shared = any(users[pool, node] > 1 for node in pins)
                yield env.timeout(float(seconds[pool, j, i]) + (warm[pool] if shared else 0.0))
                for node, request in zip(pins, asked, strict=True):
                    nodes[pool, node].release(request)
            yield env.timeout(jobs[j].sync_s)

    for j in range(len(jobs)):
        env.process(job(j))
    env.run(until=until_s)
    return starts


def check_events(run: GroupRun, jobs: JobTable) -> None:
    """Check the events of a run again, by other means than the loop's own.

    Every phase of a job once and in order, rollout, train, sync, rollout, and no two phases on a
    node at once.

    Raises
    ------
    CheckError
        Naming the first fault.
    """
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    placements = run.version.placements
    on_node: dict[tuple[str, int], list[Event]] = defaultdict(list)
    of_job: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in run.events:
        of_job[event.job, event.pool].append(event)
        placement = placements[event.job]
        for node in placement.rollout_pins if event.pool == POOLS[0] else placement.train_pins:
            on_node[event.pool, node].append(event)
    for (pool, node), events in on_node.items():
        for before, after in pairwise(sorted(events, key=lambda e: (e.start_s, e.end_s))):
            if after.start_s < before.end_s:
                raise CheckError(f"Expected one phase at once, got two ({pool} node {node}).")
    for j, placement in enumerate(placements):
        job = jobs.job(index[placement.job_id])
        _check_own_order(job, of_job[j, POOLS[0]], of_job[j, POOLS[1]])


def _check_own_order(job: Job, rollouts: Sequence[Event], trains: Sequence[Event]) -> None:
    """Check that a job's phases come one after the other."""
    lag = 1 + (job.mode == "one-step")
    for events in (rollouts, trains):
        if [event.iteration for event in events] != list(range(len(events))):
            raise CheckError(f"Expected iterations in order (job '{job.job_id}').")
        if any(b.start_s < a.end_s for a, b in pairwise(events)):
            raise CheckError(f"Expected a phase after the one before (job '{job.job_id}').")
    for rollout, train in zip(rollouts, trains, strict=False):
        if train.start_s < rollout.end_s:
            raise CheckError(f"Expected train after its rollout (job '{job.job_id}').")
    for train, rollout in zip(trains, rollouts[lag:], strict=False):
        if rollout.start_s < train.end_s + job.sync_s - SLO_EPS_S:
            raise CheckError(f"Expected rollout after train and sync (job '{job.job_id}').")
