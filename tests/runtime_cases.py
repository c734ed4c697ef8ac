"""Groups to run, and an independent run of them first come first served, by simpy's resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from builders import job_of, table_of
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement
from models.group.period import Schedule
from period_cases import Case

__all__ = ["Given", "fifo_starts", "long_and_short", "version_of_case"]

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
