"""Running groups, plans of re-planning and their check, for the tests of re-planning."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from instances.group_checker import check_group
from instances.plan import GroupVersion, JobPlacement
from models.group.group_cost import GroupCost
from models.problem.options import Deadline
from models.problem.snapshot import PlacedGroup, Snapshot
from models.replan.replanning import Host, NewGroup, Replan, replan
from oracles.least_replan import Replanning, Running
from small_snapshots import MIXES, random_snapshot

__all__ = [
    "Case",
    "host_of",
    "never",
    "problems",
    "random_case",
    "replanned",
    "stays",
]


def never() -> Deadline:
    """Return a deadline that never passes."""
    return Deadline(time.monotonic, None)


def host_of(group: PlacedGroup, *, first: int = 0, step: int = 1, fresh: int = 50) -> Host:
    """Return a running group on nodes named ``first``, ``first + step``, ..."""
    return Host(
        members=group.members,
        rollout_pins=tuple(tuple(first + step * v for v in pins) for pins in group.rollout_pins),
        train_pins=tuple(tuple(first + step * v for v in pins) for pins in group.train_pins),
        rates=group.rates or (1,) * len(group.members),
        period_s=group.period_s,
        starts_s=group.starts_s,
        fresh_rollout=fresh,
        fresh_train=fresh,
    )


def stays(group: NewGroup, hosts: Sequence[Host]) -> tuple[int, ...]:
    """Return the members that are in the group's host on the same nodes."""
    if group.host is None:
        return ()
    host = hosts[group.host]
    pins = {
        job: (set(r), set(t))
        for job, r, t in zip(host.members, host.rollout_pins, host.train_pins, strict=True)
    }
    return tuple(
        job
        for job, r, t in zip(group.members, group.rollout_pins, group.train_pins, strict=True)
        if pins.get(job) == (set(r), set(t))
    )


def problems(snapshot: Snapshot, hosts: Sequence[Host], found: Replan) -> list[str]:
    """Return what is wrong with an answer, by the independent checker and by counting."""
    out: list[str] = []
    covered = sorted(job for group in found.groups for job in group.members)
    if covered != list(range(len(snapshot))):
        out.append(f"jobs {covered} are covered")
    used = [group.host for group in found.groups if group.host is not None]
    if len(used) > len(set(used)):
        out.append(f"hosts {used} are continued")
    running = {job for host in hosts for job in host.members}
    for group in found.groups:
        movers = {job for job in group.members if job in running} - set(stays(group, hosts))
        if movers != set(group.movers):
            out.append(f"{group.movers} are called movers, {movers} are")
        if group.host is not None:
            out += _names(group, hosts[group.host])
        out += [v.message for v in check_group(_version(snapshot, group), snapshot.table,
                                               snapshot.cluster, snapshot.limits)]  # fmt: skip
    return out


def _names(group: NewGroup, host: Host) -> list[str]:
    """A node is one of the host's, or was never used."""
    out = []
    for new, old, fresh in (
        (group.rollout_pins, host.rollout_pins, host.fresh_rollout),
        (group.train_pins, host.train_pins, host.fresh_train),
    ):
        known = {node for pins in old for node in pins}
        out += [
            f"node {node} is used again"
            for pins in new
            for node in pins
            if node not in known and node < fresh
        ]
    return out


def _version(snapshot: Snapshot, group: NewGroup) -> GroupVersion:
    return GroupVersion(
        group_id="g",
        from_s=0.0,
        to_s=3600.0,
        period_s=group.period_s,
        rollout_nodes=tuple(sorted({node for pins in group.rollout_pins for node in pins})),
        train_nodes=tuple(sorted({node for pins in group.train_pins for node in pins})),
        placements=tuple(
            JobPlacement(
                job_id=snapshot.jobs[job].job_id,
                rollout_pins=group.rollout_pins[i],
                train_pins=group.train_pins[i],
                starts_s=group.starts_s[i],
                rate=group.rates[i],
            )
            for i, job in enumerate(group.members)
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One instance of re-planning."""

    snapshot: Snapshot
    hosts: tuple[Host, ...]
    lasting_h: float
    move_usd: Any
    may_move: Any
    most_moves: int | None = None

    def oracle(self, *, connected: bool = False) -> float:
        """Return the least value by enumeration."""
        runs = [Running(host.members, host.rollout_pins, host.train_pins) for host in self.hosts]
        return Replanning(
            self.snapshot.jobs,
            self.snapshot.cluster,
            self.snapshot.limits,
            runs,
            lasting_h=self.lasting_h,
            move_usd=self.move_usd.tolist(),
            may_move=self.may_move.tolist(),
            connected=connected,
        ).least(self.most_moves)

    def kept_usd(self) -> float:
        """Return the value of every host as it is and each newcomer alone."""
        running = {job for host in self.hosts for job in host.members}
        nodes = [
            (
                len({node for pins in host.rollout_pins for node in pins}),
                len({node for pins in host.train_pins for node in pins}),
            )
            for host in self.hosts
        ]
        nodes += [
            (job.rollout_nodes, job.train_nodes)
            for j, job in enumerate(self.snapshot.jobs)
            if j not in running
        ]
        totals = [sum(pair[pool] for pair in nodes) for pool in (0, 1)]
        return self.lasting_h * self.snapshot.usd_per_hour(totals[0], totals[1])


def replanned(case: Case, **more: Any) -> Replan:
    """Re-plan a case, and check the answer's validity and value."""
    found = replan(
        case.snapshot,
        case.hosts,
        lasting_h=case.lasting_h,
        move_usd=case.move_usd,
        may_move=case.may_move,
        most_moves=case.most_moves,
        deadline=never(),
        **more,
    )
    assert problems(case.snapshot, case.hosts, found) == []
    movers = [job for group in found.groups for job in group.movers]
    assert all(case.may_move[movers])
    assert found.moves == len(movers)
    assert case.most_moves is None or found.moves <= case.most_moves
    nodes = [sum(group.nodes[pool] for group in found.groups) for pool in (0, 1)]
    usd = case.lasting_h * case.snapshot.usd_per_hour(nodes[0], nodes[1])
    assert abs(usd + case.move_usd[movers].sum() - found.value_usd) < 1e-6
    return found


def random_case(rng: random.Random, most_jobs: int, *, max_rate: int = 1) -> Case:
    """Return a few running groups, some of whose members left, and sometimes a newcomer."""
    while True:
        n = rng.randint(2, most_jobs)
        mix = MIXES[rng.choice(list(MIXES))]
        whole = random_snapshot(rng, n + 1, mix, limited=rng.random() < 0.4)
        whole = replace(whole, limits=replace(whole.limits, max_rate=max_rate))
        cost = GroupCost(whole)
        if all(cost.cheapest((j,), inf) is not None for j in range(n + 1)):
            break
    left = rng.sample(range(n + 1), n + 1)
    groups: list[PlacedGroup] = []
    while len(left) > rng.randint(0, 1):
        members = tuple(sorted(left[: rng.randint(1, 3)]))
        group = _some_group(rng, cost, members) or _some_group(rng, cost, members[:1])
        assert group is not None
        groups.append(group)
        left = [job for job in left if job not in group.members]
    gone = rng.randrange(n + 1)
    running = [group for group in (each.without([gone]) for each in groups) if group is not None]
    snapshot = replace(whole, table=whole.table.take([j for j in range(n + 1) if j != gone]))
    return Case(
        snapshot=snapshot,
        hosts=tuple(
            host_of(
                replace(group, members=tuple(j - (j > gone) for j in group.members)),
                first=rng.randint(0, 3),
                step=rng.randint(1, 2),
            )
            for group in running
        ),
        lasting_h=rng.choice((0.1, 1.0, 5.0, 24.0)),
        move_usd=np.array([rng.choice((0.0, 1.0, 5.0, 20.0, 60.0)) for _ in range(n)]),
        may_move=np.array([rng.random() < 0.8 for _ in range(n)]),
        most_moves=rng.choice((None, None, 0, 1, 2)),
    )


def _some_group(
    rng: random.Random, cost: GroupCost, members: tuple[int, ...]
) -> PlacedGroup | None:
    """Return these jobs as a group on some node counts, seldom the fewest."""
    most = cost.most_nodes(members)
    pairs = [(r, t) for r in range(1, most[0] + 1) for t in range(1, most[1] + 1)]
    if not cost.within_size(members):
        return None
    for pair in rng.sample(pairs, len(pairs)):
        group = cost.decide(members, pair)
        if group is not None:
            return group
    return None
