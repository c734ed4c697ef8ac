"""From groups that loads admit to groups with schedules, repaired where there is none.

A plan by loads (:mod:`models.loads.load_plan`) says who shares which node. Its groups, taken apart
where they share no node, are scheduled at the least deadline of their members: insertion
(:func:`models.group.period.construct`) where it is quick, then ejection
(:mod:`models.loads.circle_search`). Where both fail, a job leaves the group, one after the other
until the rest is scheduled; it goes to another group that is scheduled with it and buys nothing, or
stays alone. Verdicts are kept, so that only groups that changed are worked on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from models.group.period import construct, tightened
from models.group.pinnings import DRAM_SLACK, REL_SLACK
from models.loads.circle_search import schedule_on_circle
from models.loads.load_plan import LoadGroup, components
from models.problem.group_shape import GroupShape, Schedule
from models.problem.options import Deadline
from models.problem.snapshot import PlacedGroup, Snapshot, solo_group

__all__ = ["GroupScheduler"]

#: Most jobs of a group that insertion is tried on first.
_FEW: Final = 5
#: Most jobs tried to leave a group, and groups tried to take one.
_LEAVERS: Final = 12
_TAKERS: Final = 30
#: Verdicts kept.
_CACHE: Final = 200_000


class GroupScheduler:
    """Schedules groups that loads admit; every verdict is kept.

    Parameters
    ----------
    snapshot : Snapshot
        Single-node jobs, one iteration per period.
    steps : int
        Placements tried per group.
    seed : int
    deadline : Deadline
        Read between groups and while one is worked on: ``OutOfTimeError`` beyond it.

    Attributes
    ----------
    failed : list of LoadGroup
        Groups of the last call of :meth:`repaired` that no schedule was found for.
    """

    def __init__(self, snapshot: Snapshot, *, steps: int, seed: int, deadline: Deadline) -> None:
        self.snapshot = snapshot
        self._jobs = snapshot.jobs
        self._steps = steps
        self._seed = seed
        self._ends = deadline
        self._known: dict[LoadGroup, PlacedGroup | None] = {}
        cluster = snapshot.cluster
        self._dram = cluster.rollout.host_dram_gb, cluster.train.host_dram_gb
        limits = snapshot.limits
        self._most_nodes = limits.max_rollout_nodes, limits.max_train_nodes
        dearer = cluster.train.usd_per_hour < cluster.rollout.usd_per_hour
        self._cheaper_first = (1, 0) if dearer else (0, 1)
        self.failed: list[LoadGroup] = []

    def known(self) -> list[PlacedGroup]:
        """Return all groups scheduled so far, in order of their first scheduling."""
        return [found for found in self._known.values() if found is not None]

    def placed(self, group: LoadGroup) -> PlacedGroup | None:
        """Return a connected group with its schedule; ``None`` where none was found."""
        if group not in self._known:
            self._ends.check()
            if len(self._known) >= _CACHE:
                self._known.clear()
            self._known[group] = self._placed(group)
        return self._known[group]

    def _placed(self, group: LoadGroup) -> PlacedGroup | None:
        members, rollout, train = group
        if len(members) == 1:
            return solo_group(self.snapshot, members[0])
        jobs = [self._jobs[i] for i in members]
        shape = GroupShape.of(jobs, [(n,) for n in rollout], [(n,) for n in train])
        limit = min(job.deadline_s for job in jobs) * (1 + REL_SLACK)
        found: Schedule | None = None
        if len(members) <= _FEW:
            found = construct(shape, limit_s=limit, refine=0)
        if found is None:
            found = schedule_on_circle(
                shape, limit, steps=self._steps, seed=self._seed, deadline=self._ends
            )
        if found is None:
            return None
        if len(members) <= _FEW:
            found = tightened(shape, found)
        return PlacedGroup(
            members=members,
            rollout_pins=shape.rollout_pins,
            train_pins=shape.train_pins,
            period_s=found.period_s,
            starts_s=found.starts_s,
            rates=shape.rates,
        )

    def repaired(self, groups: Sequence[LoadGroup]) -> tuple[list[LoadGroup], list[PlacedGroup]]:
        """Return scheduled groups of the same jobs: by loads, and as a plan takes them."""
        good: list[LoadGroup] = []
        out: list[int] = []
        self.failed = []
        for group in groups:
            for part in components(group):
                if self.placed(part) is None:
                    self.failed.append(part)
                    kept, left = self._thinned(part)
                    good += kept
                    out += left
                else:
                    good.append(part)
        for job in sorted(out, key=lambda j: -self._jobs[j].deadline_s):
            self._settle(job, good)
        placed = [found for part in good if (found := self.placed(part)) is not None]
        return good, placed

    def _thinned(self, group: LoadGroup) -> tuple[list[LoadGroup], list[int]]:
        """Return the scheduled parts of a group without some jobs, and these."""
        jobs = self._jobs
        out: list[int] = []
        while True:
            members = group[0]
            period = min(jobs[i].deadline_s for i in members)
            order = sorted(range(len(members)), key=lambda i: -jobs[members[i]].solo_s / period)
            rest: list[LoadGroup] = []
            for at in order[:_LEAVERS]:
                rest = components(_without(group, at))
                if all(self.placed(part) is not None for part in rest):
                    return rest, [*out, members[at]]
            out.append(members[order[0]])
            rest = components(_without(group, order[0]))
            done = [part for part in rest if self.placed(part) is not None]
            bad = [part for part in rest if self.placed(part) is None]
            if len(bad) != 1 or done:
                for part in bad:
                    kept, left = self._thinned(part)
                    done += kept
                    out += left
                return done, out
            group = bad[0]

    def _settle(self, job: int, groups: list[LoadGroup]) -> None:
        """Put a job into one of the groups, buying nothing or one node; else into its own."""
        for bought in (None, *self._cheaper_first):
            for at, group in islice(self._takers(job, groups, bought), _TAKERS):
                if self.placed(group) is not None:
                    groups[at] = group
                    return
        groups.append(((job,), (0,), (0,)))

    def _takers(
        self, job: int, groups: Sequence[LoadGroup], bought: int | None
    ) -> Iterator[tuple[int, LoadGroup]]:
        """Yield groups with the job in them that loads admit, nearest deadlines first.

        ``bought``: the pool in which the job gets a new node.
        """
        jobs, most = self._jobs, self.snapshot.limits.max_group_size
        own = jobs[job]
        periods = [min(jobs[i].deadline_s for i in group[0]) for group in groups]
        for at in sorted(range(len(groups)), key=lambda g: abs(periods[g] - own.deadline_s)):
            group = groups[at]
            if most and len(group[0]) >= most:
                continue
            period = min(periods[at], own.deadline_s) * (1 + REL_SLACK)
            if own.solo_s > period or max(jobs[i].solo_s for i in group[0]) > period:
                continue
            rooms = [
                self._fresh(pool, group)
                if pool == bought
                else self._rooms(pool, job, group, period)
                for pool in (0, 1)
            ]
            for r in rooms[0]:
                for t in rooms[1]:
                    yield at, _with(group, job, r, t)

    def _fresh(self, pool: int, group: LoadGroup) -> list[int]:
        """Return the number of a new node, if the group may have one more."""
        count = max(group[1 + pool]) + 1
        most = self._most_nodes[pool]
        return [count] if most is None or count < most else []

    def _rooms(self, pool: int, job: int, group: LoadGroup, period: float) -> list[int]:
        """Return the nodes of one pool whose load and DRAM admit the job, fullest first."""
        load: dict[int, float] = {}
        state: dict[int, float] = {}
        for i, node in zip(group[0], group[1 + pool], strict=True):
            load[node] = load.get(node, 0.0) + self._paid(pool, i)
            state[node] = state.get(node, 0.0) + self._state(pool, i)
        room = period - self._paid(pool, job)
        dram = self._dram[pool] * (1 + DRAM_SLACK) - self._state(pool, job)
        fits = [node for node in load if load[node] <= room and state[node] <= dram]
        return sorted(fits, key=lambda node: (-load[node], node))

    def _paid(self, pool: int, j: int) -> float:
        job = self._jobs[j]
        if pool == 0:
            return job.rollout_s + job.rollout_switch_s
        return job.train_s + job.train_switch_s

    def _state(self, pool: int, j: int) -> float:
        job = self._jobs[j]
        return job.rollout_state_gb if pool == 0 else job.train_state_gb


def _without(group: LoadGroup, at: int) -> LoadGroup:
    members, rollout, train = group
    return (
        members[:at] + members[at + 1 :],
        rollout[:at] + rollout[at + 1 :],
        train[:at] + train[at + 1 :],
    )


def _with(group: LoadGroup, job: int, r: int, t: int) -> LoadGroup:
    rows = sorted(zip((*group[0], job), (*group[1], r), (*group[2], t), strict=True))
    members, rollout, train = zip(*rows, strict=True)
    return components((members, rollout, train))[0]
