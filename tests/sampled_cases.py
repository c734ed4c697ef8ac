"""An independent run of a group's fixed orders with given seconds, by simpy's events."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from instances.jobs import Job
from instances.plan import GroupVersion

__all__ = ["simpy_starts"]

Phase = tuple[int, int, int]


def simpy_starts(
    version: GroupVersion, jobs: Sequence[Job], seconds: npt.NDArray[np.float64], periods: int
) -> dict[Phase, float]:
    """Return when each phase (job, 0 rollout or 1 train, iteration) starts.

    Every phase is a process that waits for its job's phase before it (of a one-step job's rollout
    that is the train two iterations before) and, on each of its nodes,
    for the phase planned before it there. Order on a node is that of the planned starts written
    out for all periods; nothing is taken modulo the period.
    """
    return _Run(version, jobs, seconds, periods).starts


def _planned(version: GroupVersion, periods: int) -> dict[Phase, float]:
    """Return the planned start of every phase, in all periods and one more."""
    out = {}
    for j, placement in enumerate(version.placements):
        rate = len(placement.starts_s)
        for turn, (i, pair) in product(range(periods + 1), enumerate(placement.starts_s)):
            for pool in (0, 1):
                out[j, pool, turn * rate + i] = pair[pool] + turn * version.period_s
    return out


def _users(version: GroupVersion, pool: int) -> dict[int, set[int]]:
    """Return the jobs on each node of a pool."""
    users: dict[int, set[int]] = {}
    for j, placement in enumerate(version.placements):
        for node in placement.train_pins if pool else placement.rollout_pins:
            users.setdefault(node, set()).add(j)
    return users


class _Run:
    def __init__(
        self,
        version: GroupVersion,
        jobs: Sequence[Job],
        seconds: npt.NDArray[np.float64],
        periods: int,
    ) -> None:
        planned = _planned(version, periods)
        self.version, self.jobs, self.seconds = version, jobs, seconds
        self.before: dict[Phase, set[Phase]] = {}
        for j, pool, i in planned:
            lag = self.lag(j)
            own = {(j, 0, i)} if pool else {(j, 1, i - lag)} if i >= lag else set()
            self.before[j, pool, i] = own
        self.shared: set[tuple[int, int]] = set()
        for pool in (0, 1):
            for users in _users(version, pool).values():
                if len(users) > 1:
                    self.shared |= {(j, pool) for j in users}
                here = [phase for phase in planned if phase[1] == pool and phase[0] in users]
                for first, second in pairwise(sorted(here, key=planned.__getitem__)):
                    self.before[second].add(first)
        self.starts: dict[Phase, float] = {}
        self.env = simpy.Environment()
        self.done = {phase: self.env.event() for phase in planned}
        for phase in planned:
            self.env.process(self.run(phase))
        self.env.run()

    def lag(self, j: int) -> int:
        """Iterations from a train to the rollout that waits for it."""
        return 2 if self.jobs[j].mode == "one-step" else 1

    def length(self, j: int, pool: int, i: int) -> float:
        switch_s = (self.jobs[j].rollout_switch_s, self.jobs[j].train_switch_s)[pool]
        return float(self.seconds[pool, j, i]) + (switch_s if (j, pool) in self.shared else 0.0)

    def run(self, phase: Phase) -> Any:
        j, pool, i = phase
        if pool == 0 and i == 0:
            yield self.env.timeout(self.version.placements[j].starts_s[0][0])
        yield self.env.all_of([self.done[other] for other in self.before[phase]])
        last = i - self.lag(j)
        if pool == 0 and last >= 0:
            trained_s = self.starts[j, 1, last] + self.length(j, 1, last)
            yield self.env.timeout(max(trained_s + self.jobs[j].sync_s - self.env.now, 0.0))
        self.starts[phase] = self.env.now
        yield self.env.timeout(self.length(j, pool, i))
        self.done[phase].succeed()
