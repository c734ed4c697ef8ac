"""Which groups to plan anew together: all of a small fleet, parts of a large one.

Exact search takes so many jobs at once. In a larger fleet a part holds the groups an event has
touched and the *weakest*, those that save least: the price of the group over the price of its
members alone, near 1 where nothing is shared. Weak groups are those that a change dissolves.
Further parts pair the weakest groups with others in turn, so that over many events every group
is looked at beside every weak one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy

from instances.hardware import Cluster
from planner.placement.group_state import GroupState

__all__ = ["ScopeFinder", "price_share"]


def price_share(state: GroupState, cluster: Cluster) -> float:
    """Return the group's price over the price of its members alone; free nodes count 1."""
    alone = sum(cluster.usd_per_hour(job.rollout_nodes, job.train_nodes) for job in state.jobs)
    held = cluster.usd_per_hour(len(state.rollout_nodes), len(state.train_nodes))
    return held / alone if alone else 1.0


class ScopeFinder:
    """Parts of a fleet, event after event.

    Parameters
    ----------
    parts : int
        Most parts per event.
    """

    def __init__(self, cluster: Cluster, parts: int) -> None:
        self._cluster = cluster
        self._parts = parts
        self._turn = 0

    def copy(self) -> ScopeFinder:
        """Return one of its own whose turn is the same."""
        return copy(self)

    def scopes(
        self,
        groups: Mapping[int, GroupState],
        touched: Collection[int],
        newcomers: int,
        most_jobs: int,
    ) -> list[tuple[int, ...]]:
        """Return parts as group numbers, the one with the touched groups first.

        Parameters
        ----------
        groups : mapping of int to GroupState
            All running groups by number.
        touched : collection of int
            Groups that must be in the first part.
        newcomers : int
            Jobs that join the first part.
        most_jobs : int
            Most jobs in a part.
        """
        if sum(len(state.jobs) for state in groups.values()) + newcomers <= most_jobs:
            return [tuple(groups)]
        weak = sorted(groups, key=lambda n: (-price_share(groups[n], self._cluster), n))
        first = [n for n in groups if n in touched]
        out = [self._filled(groups, first, weak, most_jobs - newcomers)]
        for _ in range(self._parts - 1):
            start = self._filled(groups, [], weak, most_jobs // 2)
            turn = self._turn % len(weak)
            others = [*weak[turn:], *weak[:turn]]
            part = self._filled(groups, list(start), others, most_jobs)
            self._turn += max(len(part) - len(start), 1)
            out.append(part)
        return out

    @staticmethod
    def _filled(
        groups: Mapping[int, GroupState], first: list[int], more: Iterable[int], most: int
    ) -> tuple[int, ...]:
        """Return ``first`` and as many of the others, in their order, as there is room for."""
        part = dict.fromkeys(first)
        room = most - sum(len(groups[n].jobs) for n in part)
        for number in more:
            size = len(groups[number].jobs)
            if number not in part and size <= room:
                part[number] = None
                room -= size
        return tuple(sorted(part))
