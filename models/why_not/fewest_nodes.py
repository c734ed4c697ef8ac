"""The fewest nodes of one pool that sets of jobs need, the other pool limited: ``R(S, t)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from instances.hardware import NodeType
from models.exact.candidate_groups import enumerate_groups
from models.exact.exhaustive import least_rollout
from models.exact.methods import solve
from models.group.group_cost import GroupCost, Nodes
from models.group.known_groups import KnownGroups
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Termination
from models.problem.snapshot import FleetCaps, Snapshot
from models.why_not.explanation import POOLS

__all__ = ["MOST_TABLE", "Fleet", "Solved", "Table", "capped", "caps_of", "fits_caps", "solo_nodes"]

#: Jobs up to which the table over all sets is made.
MOST_TABLE: Final = 16


class Fleet(Protocol):
    """Answers about sets of jobs, ascending; may run out of time."""

    def least(self, members: Sequence[int], pool: int, most_other: int | None) -> int | None:
        """Return the fewest nodes of a pool with at most so many of the other; ``None``: never."""


class Table:
    """``R(S, t)`` of every set of jobs: rows by set, one column per number of train nodes."""

    def __init__(self, snapshot: Snapshot, seed: int, deadline: Deadline) -> None:
        options = SolveOptions(seed=seed)
        snapshot = replace(snapshot, caps=FleetCaps())
        cost = GroupCost(snapshot, seed=seed, deadline=deadline)
        groups = enumerate_groups(cost, options, deadline, fronts=True)
        self._most = solo_nodes(snapshot)
        self._least = least_rollout(snapshot, groups, deadline)

    def least(self, members: Sequence[int], pool: int, most_other: int | None) -> int | None:
        """See :class:`Fleet`."""
        most = self._most[1 - pool]
        most = most if most_other is None else min(most_other, most)
        row = self._least[sum(1 << i for i in members)]
        if pool == 0:
            return int(row[most]) if row[most] <= self._most[0] else None
        enough = np.flatnonzero(row <= most)
        return int(enough[0]) if len(enough) else None

    def smallest(self, caps: FleetCaps) -> tuple[int, ...]:
        """Return a smallest set in conflict with the caps, of these the first."""
        rollout, train = (
            most if cap is None else min(cap, most)
            for cap, most in zip(caps_of(caps), self._most, strict=True)
        )
        over = np.flatnonzero(self._least[:, train] > rollout).tolist()
        sets = [tuple(i for i in range(mask.bit_length()) if mask >> i & 1) for mask in over]
        return min(sets, key=lambda members: (len(members), members))


@dataclass(frozen=True, slots=True)
class Solved:
    """The same asked of set partitioning, one solve a question.

    Whether jobs can be one group has the same answer whatever is asked: it is decided once.
    """

    snapshot: Snapshot
    seed: int
    deadline: Deadline
    known: KnownGroups = field(default_factory=KnownGroups)

    def least(self, members: Sequence[int], pool: int, most_other: int | None) -> int | None:
        """See :class:`Fleet`. Raises OutOfTimeError when the solve ends without a proof."""
        self.deadline.check()
        cluster = self.snapshot.cluster
        some = replace(
            self.snapshot,
            table=self.snapshot.table.take(members),
            cluster=cluster.replace(
                rollout=_priced(cluster.rollout, 1.0 - pool), train=_priced(cluster.train, pool)
            ),
            caps=FleetCaps(**{f"max_{POOLS[1 - pool]}_nodes_total": most_other}),
        )
        options = SolveOptions(seed=self.seed, time_limit_s=self.deadline.remaining_s())
        found = solve("set-partition", some, options, self.known)
        if found.termination is Termination.INFEASIBLE:
            return None
        if found.termination is not Termination.OPTIMAL or found.plan is None:
            raise OutOfTimeError
        return sum(len(getattr(group, f"{POOLS[pool]}_nodes")) for group in found.plan.groups)


def _priced(node: NodeType, usd: float) -> NodeType:
    return replace(node, gpu=replace(node.gpu, usd_per_gpu_hour=usd / node.gpus_per_node))


def solo_nodes(snapshot: Snapshot) -> Nodes:
    """Return the nodes of every job alone."""
    return int(snapshot.table.rollout_nodes.sum()), int(snapshot.table.train_nodes.sum())


def caps_of(caps: FleetCaps) -> tuple[int | None, int | None]:
    """Return the caps by pool, rollout first."""
    return caps.max_rollout_nodes_total, caps.max_train_nodes_total


def capped(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Return the pools that have a cap, each with it."""
    return [(pool, cap) for pool, cap in enumerate(caps_of(snapshot.caps)) if cap is not None]


def fits_caps(fleet: Fleet, members: Sequence[int], caps: FleetCaps) -> bool:
    """Return whether jobs fit the caps: ``R(S, F_T) <= F_R``."""
    rollout, train = caps_of(caps)
    pool, cap, other = (0, rollout, train) if rollout is not None else (1, train, None)
    least = fleet.least(members, pool, other)
    return least is not None and (cap is None or least <= cap)
