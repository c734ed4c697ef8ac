"""The distinct states of a replay, who runs where, for the question of what a lost node does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from instances.jobs import Job
from instances.plan import DedicatedNodes, GroupVersion, Plan
from planner.placement.group_state import GroupState
from planner.placement.placer import Room
from planner.replay.demand import POOLS, Pool

__all__ = [
    "State",
    "group_of",
    "less",
    "lost_jobs",
    "nodes_of",
    "only",
    "renamed",
    "shape_key",
    "states_of",
]

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class State:
    """Who runs where, over all the time that this holds."""

    at_s: float
    hours: float
    groups: tuple[GroupState, ...]
    dedicated: tuple[Job, ...]

    @property
    def jobs(self) -> list[Job]:
        """The jobs that may share nodes, in order of arrival."""
        found = [job for group in self.groups for job in group.jobs]
        return sorted(found, key=lambda job: (job.arrival_s, job.job_id))

    def used(self) -> Room:
        """Return the nodes of each pool in use."""
        own, shared = self.own(), nodes_of(self.groups)
        return own[0] + shared[0], own[1] + shared[1]

    def own(self) -> Room:
        """Return the dedicated nodes of each pool."""
        return (
            sum(job.rollout_nodes for job in self.dedicated),
            sum(job.train_nodes for job in self.dedicated),
        )


def nodes_of(groups: Iterable[GroupState]) -> Room:
    """Return the nodes of each pool that groups hold."""
    groups = tuple(groups)
    return (
        sum(len(group.rollout_nodes) for group in groups),
        sum(len(group.train_nodes) for group in groups),
    )


def pins_of(group: GroupState, pool: Pool) -> tuple[tuple[int, ...], ...]:
    return group.rollout_pins if pool == "rollout" else group.train_pins


def states_of(plan: Plan) -> list[State]:
    """Return the distinct states of a plan with jobs, in order of time."""
    index = {job_id: i for i, job_id in enumerate(plan.jobs.job_id)}
    jobs: dict[str, Job] = {}

    def job_of(job_id: str) -> Job:
        if job_id not in jobs:
            jobs[job_id] = plan.jobs.job(index[job_id])
        return jobs[job_id]

    items: list[GroupVersion | DedicatedNodes] = [*plan.groups, *plan.dedicated]
    ends = [(x.to_s, 0, i) for i, x in enumerate(items)]
    events = sorted(ends + [(x.from_s, 1, i) for i, x in enumerate(items)])
    now: dict[int, None] = {}
    found: dict[frozenset[object], State] = {}
    for (time_s, begins, i), (next_s, _, _) in pairwise(events):
        if begins:
            now[i] = None
        else:
            del now[i]
        if next_s <= time_s or not now:
            continue
        hours = (next_s - time_s) / _HOUR_S
        key = frozenset(_key(items[k]) for k in now)
        old = found.get(key)
        if old is not None:
            found[key] = replace(old, hours=old.hours + hours)
            continue
        there = [items[k] for k in sorted(now)]
        found[key] = State(
            at_s=time_s,
            hours=hours,
            groups=tuple(group_of(x, job_of) for x in there if isinstance(x, GroupVersion)),
            dedicated=tuple(job_of(x.job_id) for x in there if isinstance(x, DedicatedNodes)),
        )
    return list(found.values())


def _key(item: GroupVersion | DedicatedNodes) -> object:
    """Return what makes a group or an async job the same in two states: members and pins."""
    if isinstance(item, DedicatedNodes):
        return item.job_id
    return frozenset((p.job_id, p.rollout_pins, p.train_pins) for p in item.placements)


def group_of(version: GroupVersion, job_of: Callable[[str], Job]) -> GroupState:
    """Return a recorded version of a group as the planner holds it."""
    placements = version.placements
    return GroupState(
        number=int(version.group_id[1:]),
        jobs=tuple(job_of(p.job_id) for p in placements),
        rollout_pins=tuple(p.rollout_pins for p in placements),
        train_pins=tuple(p.train_pins for p in placements),
        rates=tuple(p.rate for p in placements),
        period_s=version.period_s,
        starts_s=tuple(p.starts_s for p in placements),
    )


def less(nodes: Room, taken: Room) -> Room:
    """Return the nodes of each pool that are left."""
    return nodes[0] - taken[0], nodes[1] - taken[1]


def lost_jobs(state: State, pool: Pool) -> Iterator[frozenset[str]]:
    """Yield the jobs on each node of a pool: of every group, then of the async jobs."""
    for group in state.groups:
        there: dict[int, list[str]] = {}
        for job, pins in zip(group.jobs, pins_of(group, pool), strict=True):
            for node in pins:
                there.setdefault(node, []).append(job.job_id)
        for node in sorted(there):
            yield frozenset(there[node])
    for job in state.dedicated:
        width = job.rollout_nodes if pool == "rollout" else job.train_nodes
        yield from [frozenset({job.job_id})] * width


def renamed(groups: Sequence[GroupState], pool: Pool) -> tuple[GroupState, ...]:
    """Return the groups with the first node of one of them replaced by a free one."""
    for at, group in enumerate(groups):
        nodes = group.rollout_nodes if pool == "rollout" else group.train_nodes
        if not nodes:
            continue
        fresh = {nodes[0]: nodes[-1] + 1}
        pins = tuple(
            tuple(sorted(fresh.get(node, node) for node in each)) for each in pins_of(group, pool)
        )
        other = (
            replace(group, rollout_pins=pins)
            if pool == "rollout"
            else replace(group, train_pins=pins)
        )
        return (*groups[:at], other, *groups[at + 1 :])
    return tuple(groups)


def only(groups: Sequence[GroupState], names: frozenset[str]) -> tuple[GroupState, ...]:
    """Return the groups with only these jobs left in them; what is left is valid."""
    out = []
    for group in groups:
        left = group
        for job in group.jobs:
            if job.job_id not in names:
                left = left.without(job.job_id)
        if left.jobs:
            out.append(left)
    return tuple(out)


def shape_key(group: GroupState) -> object:
    """Return who shares which nodes with whom, whatever the nodes are called."""
    out = []
    for pool in POOLS:
        there: dict[int, list[str]] = {}
        for job, pins in zip(group.jobs, pins_of(group, pool), strict=True):
            for node in pins:
                there.setdefault(node, []).append(job.job_id)
        out.append(tuple(sorted(tuple(sorted(names)) for names in there.values())))
    return tuple(out)
