"""How many nodes of each pool are needed over time: what a fleet is sized for.

A :class:`Demand` is piecewise constant and joint: row ``i`` lasts ``hours[i]`` and needs
``rollout_nodes[i]`` and ``train_nodes[i]`` at once. Order is that of time, where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from planner.policies.replay_result import ReplayResult

__all__ = ["POOLS", "Demand", "IntArray", "Pool", "demand_of"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Pool = Literal["rollout", "train"]

POOLS: Final[tuple[Pool, ...]] = ("rollout", "train")
#: Shares are covered up to this relative round-off of summed hours.
_REL: Final = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """Nodes needed over time.

    Attributes
    ----------
    name : str
        The policy, or what else needs them.
    hours : ndarray, (n,)
        Length of each interval, h, above 0; no interval at all is a trace without jobs.
    rollout_nodes, train_nodes : ndarray, (n,)
        Whole nodes in each interval.

    Raises
    ------
    InputError
        When lengths differ, an interval has no length, or a count is negative.
    """

    name: str
    hours: FloatArray
    rollout_nodes: IntArray
    train_nodes: IntArray

    def __post_init__(self) -> None:
        sizes = {len(self.hours), len(self.rollout_nodes), len(self.train_nodes)}
        if len(sizes) != 1:
            raise InputError(f"Expected one length of all columns of demand, got {sorted(sizes)}.")
        if len(self.hours) and not (np.isfinite(self.hours).all() and self.hours.min() > 0):
            raise InputError("Expected hours > 0 of every interval of demand.")
        if len(self.hours) and min(self.rollout_nodes.min(), self.train_nodes.min()) < 0:
            raise InputError("Expected nodes >= 0 in every interval of demand.")

    @property
    def horizon_h(self) -> float:
        """Hours in all."""
        return float(self.hours.sum())

    def nodes(self, pool: Pool) -> IntArray:
        """Return the nodes of one pool in each interval, ``(n,)``."""
        return self.rollout_nodes if pool == "rollout" else self.train_nodes

    def node_hours(self, pool: Pool) -> float:
        """Return the node-hours of one pool."""
        return float(np.dot(self.nodes(pool), self.hours))

    def mean(self, pool: Pool) -> float:
        """Return the time average of one pool's nodes; 0 without time."""
        return self.node_hours(pool) / self.horizon_h if len(self.hours) else 0.0

    def peak(self, pool: Pool) -> int:
        """Return the most nodes of one pool at once."""
        return int(self.nodes(pool).max(initial=0))

    def quantile(self, pool: Pool, share: float) -> int:
        """Return the least N with ``nodes <= N`` for ``share`` of the time."""
        if not len(self.hours):
            return 0
        nodes = self.nodes(pool)
        order = np.argsort(nodes, kind="stable")
        covered = np.cumsum(self.hours[order])
        position = int(np.searchsorted(covered, share * covered[-1] * (1 - _REL)))
        return int(nodes[order][min(position, len(order) - 1)])

    def hours_above(self, pool: Pool, nodes: int) -> float:
        """Return the hours in which more than ``nodes`` nodes of one pool are needed."""
        return float(self.hours[self.nodes(pool) > nodes].sum())

    def node_hours_above(self, pool: Pool, nodes: int) -> float:
        """Return the node-hours that ``nodes`` nodes of one pool leave uncovered."""
        return float(np.dot(np.maximum(self.nodes(pool) - nodes, 0), self.hours))

    def duration_curve(self, pool: Pool) -> tuple[IntArray, FloatArray]:
        """Return nodes ``1..peak`` and for how many hours at least so many are needed.

        Returns
        -------
        (ndarray, ndarray), (peak,)
            Nodes, and hours, which never increase. Their sum is the node-hours.
        """
        levels = np.arange(1, self.peak(pool) + 1, dtype=np.int64)
        hours = np.zeros(len(levels) + 1)
        np.add.at(hours, self.nodes(pool), self.hours)
        return levels, np.cumsum(hours[::-1])[::-1][1:]

    def split_at(self, hours: float) -> tuple[Demand, Demand]:
        """Return the demand of the first ``hours`` hours, and that of the rest.

        Intervals must be in order of time. The one that holds the moment is cut.
        """
        ends = np.cumsum(self.hours)
        first = np.clip(hours - (ends - self.hours), 0.0, self.hours)
        return self._lasting(first), self._lasting(self.hours - first)

    def _lasting(self, hours: FloatArray) -> Demand:
        kept = hours > 0
        return Demand(
            name=self.name,
            hours=hours[kept],
            rollout_nodes=self.rollout_nodes[kept],
            train_nodes=self.train_nodes[kept],
        )

    def levels(self) -> Demand:
        """Return the same demand with one row per pair of counts, sorted; time is lost."""
        pairs = np.stack((self.rollout_nodes, self.train_nodes), axis=1)
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        hours = np.zeros(len(unique))
        np.add.at(hours, where.reshape(-1), self.hours)
        return Demand(
            name=self.name, hours=hours, rollout_nodes=unique[:, 0], train_nodes=unique[:, 1]
        )


def demand_of(result: ReplayResult) -> Demand:
    """Return the nodes that a replay held over time.

    Parameters
    ----------
    result : ReplayResult
        A replay under any policy and convention.

    Returns
    -------
    Demand
        Both pools, from the first arrival to the last departure.
    """
    line = result.timeline
    return Demand(
        name=result.policy,
        hours=line.hours,
        rollout_nodes=line.rollout_nodes[:-1],
        train_nodes=line.train_nodes[:-1],
    )
