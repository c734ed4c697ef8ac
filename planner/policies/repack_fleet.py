"""The nodes of a fixed fleet as ``repack`` counts them, and what it does when they run short.

An event is decided as if nodes could be rent. If what comes of it keeps to the fleet, that is the
answer: **a fleet that is never short changes nothing**. If not, the event is decided again:

* searches choose among plans within the fleet only;
* a newcomer is placed where that is cheapest without a move. If it fits nowhere, changes that
  make room are *judged by the same money as always*: the saving, $/h at the cluster's prices, is
  against placing it as if nodes could be rent, and has to earn the moves back in the time it
  lasts. That somebody waits is worth nothing beyond the price of the nodes it waits for;
* a change is made only if the nodes that exist then are no more than the fleet, in both pools.
  Old nodes that are paid for during an overlap exist, too;
* a newcomer for whom there is no room waits, and nothing is changed for its sake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from instances.hardware import Cluster
from instances.jobs import Job
from instances.plan import Fleet, Limits
from planner.placement.group_state import GroupState
from planner.policies.policy import NodesToHold, Room
from planner.policies.repack_change import Proposal, left_behind

__all__ = [
    "EventRoom",
    "FleetNodes",
    "least_nodes",
    "nodes_of",
    "numbered",
    "placing",
    "within",
]

#: The checker's slack of a node's time and host DRAM, relative, and of sums of nodes.
_REL: Final = 1e-6
_SLACK_NODES: Final = 1e-6


def plus(a: Room, b: Room) -> Room:
    """Return the sum, pool by pool."""
    return a[0] + b[0], a[1] + b[1]


def minus(a: Room, b: Room) -> Room:
    """Return the difference, pool by pool."""
    return a[0] - b[0], a[1] - b[1]


def within(nodes: Room, most: Room, before: Room) -> bool:
    """Return whether there are no more nodes than allowed, or than before, in both pools."""
    return all(n <= max(m, b) for n, m, b in zip(nodes, most, before, strict=True))


def nodes_of(groups: Iterable[GroupState], held: Iterable[NodesToHold] = ()) -> Room:
    """Return the nodes of some groups, and of nodes held beside them."""
    out = 0, 0
    for state in groups:
        out = plus(out, (len(state.rollout_nodes), len(state.train_nodes)))
    for nodes in held:
        out = plus(out, (nodes.rollout_nodes, nodes.train_nodes))
    return out


def least_nodes(jobs: Sequence[Job], cluster: Cluster, limits: Limits) -> Room:
    """Return the nodes that jobs need at least, by volume (:mod:`models.bounds.volume`), slack
    taken off.

    A plan that the checker admits may fill a node up to its tolerance.
    """
    out = []
    for pool, gb in (("rollout", cluster.rollout), ("train", cluster.train)):
        time = memory = 0.0
        width = 0
        for job in jobs:
            nodes = job.rollout_nodes if pool == "rollout" else job.train_nodes
            phase_s = job.rollout_s if pool == "rollout" else job.train_s
            state_gb = job.rollout_state_gb if pool == "rollout" else job.train_state_gb
            time += nodes * phase_s / job.deadline_s
            memory += nodes * state_gb / gb.host_dram_gb
            width += nodes
        size = width / limits.max_group_size if limits.max_group_size else 0.0
        out.append(ceil(max(time, memory, size) / (1 + _REL) - _SLACK_NODES))
    return out[0], out[1]


def numbered(proposal: Proposal, running: Mapping[int, GroupState], created: int) -> Proposal:
    """Return a proposal whose new groups have numbers that nobody had.

    Proposals of two plans, or some of one plan's, may else claim the same.
    """
    after = []
    for state in proposal.after:
        if state.number not in running and state.number <= created:
            state = replace(state, number=created + 1)
        created = max(created, state.number)
        after.append(state)
    return replace(proposal, after=tuple(after))


def placing(states: Sequence[GroupState], job_id: str, home: GroupState) -> Proposal:
    """Return the change that puts a newcomer where it goes without a move; free of charge."""
    return Proposal(
        before=tuple(state for state in states if state.number == home.number),
        after=(home,),
        moved=(),
        newcomers=(job_id,),
        usd_per_hour_before=0.0,
        usd_per_hour_after=0.0,
    )


@dataclass(frozen=True)
class EventRoom:
    """The nodes that groups may have in one event, those held for moves of it among them.

    Attributes
    ----------
    most : (int, int)
    before : mapping of int to GroupState
        Groups before the event.
    moved : list of str
        Jobs moved so far in it.
    overlaps : bool
        Whether old nodes are held.
    """

    most: Room
    before: Mapping[int, GroupState]
    moved: list[str]
    overlaps: bool

    def _total(self, groups: Mapping[int, GroupState], moved: Sequence[str] = ()) -> Room:
        """Return the nodes that exist with these groups when these jobs have moved as well."""
        out = nodes_of(groups.values())
        if self.overlaps:
            for _, rollout, train in left_behind(self.before, groups, {*self.moved, *moved}):
                out = plus(out, (rollout, train))
        return out

    def room_of(self, part: Sequence[int], groups: Mapping[int, GroupState]) -> Room:
        """Return the nodes that a part of the groups may have, at least its own."""
        own = nodes_of(groups[number] for number in part)
        free = minus(self.most, self._total(groups))
        return own[0] + max(free[0], 0), own[1] + max(free[1], 0)

    def admits(
        self, proposal: Proposal, groups: Mapping[int, GroupState], moved: Sequence[str]
    ) -> bool:
        """Return whether there are nodes enough for a change; ``moved`` were after :attr:`moved`.

        What frees nodes of a pool that has too few is not refused for it.
        """
        gone = {state.number for state in proposal.before}
        after = {number: state for number, state in groups.items() if number not in gone}
        # by object, not number: new groups of several proposals may claim the same
        for at, state in enumerate(proposal.after):
            after[state.number if state.number in gone else -1 - at] = state
        now = self._total(groups, moved)
        return within(self._total(after, [*moved, *proposal.moved]), self.most, now)


@dataclass
class FleetNodes:
    """Who has the nodes of a fixed fleet.

    Attributes
    ----------
    others : (int, int)
        Nodes of jobs that the policy does not place: async ones.
    """

    fleet: Fleet
    others: Room = (0, 0)
    _held: list[tuple[float, Room]] = field(default_factory=list)

    def most(self, now_s: float) -> Room:
        """Return the nodes that groups may have, with those to be held from now on."""
        self._held = [(until_s, nodes) for until_s, nodes in self._held if until_s > now_s]
        out = minus((self.fleet.rollout_nodes, self.fleet.train_nodes), self.others)
        for _, nodes in self._held:
            out = minus(out, nodes)
        return out

    def see(self, room: Room, used: Room, now_s: float) -> None:
        """Tell what others have from the room there is beside the nodes of groups."""
        self.others = plus(self.others, minus(self.most(now_s), plus(used, room)))

    def hold(self, held: Iterable[NodesToHold], now_s: float) -> None:
        """Take note of nodes that go on being paid for."""
        for nodes in held:
            counts = nodes.rollout_nodes, nodes.train_nodes
            self._held.append((now_s + nodes.seconds, counts))
