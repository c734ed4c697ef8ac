"""What is known of groups, kept from one snapshot to the next that shares jobs with it.

Whether a set of jobs can be one group on so many nodes depends on these jobs, the cluster and
the limits of a group, not on who else is present. Snapshots of one replay differ by a job, so
nearly all their sets were looked at before. Where every candidate is decided beforehand (gangs,
rates) that is most of the work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from models.group.group_cost import GroupCost, Nodes
from models.problem.options import Deadline
from models.problem.snapshot import PlacedGroup, Snapshot

__all__ = ["KnownGroups", "RememberingCost"]

#: Facts kept of either kind; beyond, all are forgotten.
_MOST: Final = 500_000

_Ids = tuple[str, ...]


class KnownGroups:
    """Facts by job ids in the order of the trace.

    For snapshots of one trace on one cluster within one set of limits: an id means one job.

    Attributes
    ----------
    verdicts : dict
        By ids and nodes: a group on at most so many nodes, or ``None`` when there is none.
    least : dict
        By ids: the fewest nodes that loads admit, or ``None``.
    """

    def __init__(self) -> None:
        self.verdicts: dict[tuple[_Ids, Nodes], PlacedGroup | None] = {}
        self.least: dict[_Ids, Nodes | None] = {}

    def put_verdict(self, ids: _Ids, nodes: Nodes, group: PlacedGroup | None) -> None:
        """Keep whether these jobs can be one group on so many nodes."""
        if len(self.verdicts) >= _MOST:
            self.verdicts.clear()
        self.verdicts[ids, nodes] = group

    def put_least(self, ids: _Ids, nodes: Nodes | None) -> None:
        """Keep the fewest nodes that loads admit."""
        if len(self.least) >= _MOST:
            self.least.clear()
        self.least[ids] = nodes

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget the sets that hold another job."""
        present = frozenset(job_ids)
        self.verdicts = {
            key: group for key, group in self.verdicts.items() if present.issuperset(key[0])
        }
        self.least = {ids: nodes for ids, nodes in self.least.items() if present.issuperset(ids)}


class RememberingCost(GroupCost):
    """Group costs of one snapshot that ask ``known`` first, and tell it what they find."""

    def __init__(
        self,
        snapshot: Snapshot,
        known: KnownGroups,
        *,
        seed: int = 0,
        deadline: Deadline | None = None,
    ) -> None:
        super().__init__(snapshot, seed=seed, deadline=deadline)
        self._known = known
        self._ids = [job.job_id for job in snapshot.jobs]

    def _of(self, members: Sequence[int]) -> _Ids:
        return tuple([self._ids[i] for i in members])

    def least_nodes(self, members: Sequence[int]) -> Nodes | None:
        """Return the fewest nodes of each pool that loads and DRAM admit; ``None`` if none."""
        ids = self._of(members)
        if ids in self._known.least:
            return self._known.least[ids]
        found = super().least_nodes(members)
        self._known.put_least(ids, found)
        return found

    def _decide(self, members: tuple[int, ...], nodes: Nodes) -> PlacedGroup | None:
        if len(members) == 1:
            return super()._decide(members, nodes)
        ids = self._of(members)
        if (ids, nodes) in self._known.verdicts:
            self.counts["known"] += 1
            group = self._known.verdicts[ids, nodes]
            return None if group is None else replace(group, members=members)
        found = super()._decide(members, nodes)
        self._known.put_verdict(ids, nodes, found)
        return found
