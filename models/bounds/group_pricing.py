"""Pricing of whole groups of a snapshot: the problems of all leaders, on several threads.

The problem of a leader, and its search, are those of :mod:`models.bounds.group_search`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.plan import Limits
from models.bounds.group_search import Data, Found, price_leader
from models.bounds.pool_items import PoolItems
from models.problem.options import Deadline
from models.problem.snapshot import Snapshot

__all__ = ["GroupPricing", "Groups", "PricedGroups"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Shapes times jobs between two looks at the clock.
_WORK: Final = 1_000_000


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups: ``members`` (m, B) int64 ascending, padded with -1; ``nodes`` (m, 2) int64."""

    members: IntArray
    nodes: IntArray

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, eq=False)
class PricedGroups:
    """Answer of pricing.

    Attributes
    ----------
    excess : (n,) float64
        Leader by leader, ``r_i`` or more, not below the floor; ``inf`` where the clock came first.
    exact : (n,) bool
        Whether ``excess`` is ``max(r_i, floor)``.
    groups : Groups
        Worth more than the floor above their nodes.
    """

    excess: FloatArray
    exact: BoolArray
    groups: Groups


class GroupPricing:
    """The pricing problems of a snapshot with a limit of group size."""

    def __init__(self, snapshot: Snapshot) -> None:
        items = (PoolItems.of(snapshot, "rollout"), PoolItems.of(snapshot, "train"))
        limits, cluster = snapshot.limits, snapshot.cluster
        rank = np.empty(len(snapshot), dtype=np.int64)
        rank[items[0].leaders] = np.arange(len(snapshot))
        self.n = len(snapshot)
        self.most = min(limits.max_group_size, max(self.n, 1))

        def rows(field: str) -> FloatArray:
            return np.stack([getattr(pool, field) for pool in items]).astype(np.float64)

        room_gb = np.array([pool.room_gb for pool in items])
        self.data = Data(
            run=rows("run_s"),
            switch=rows("switch_s"),
            state=rows("state_gb"),
            width=rows("width").astype(np.int64),
            chain=np.ascontiguousarray(snapshot.table.paid_s, dtype=np.float64),
            deadline=np.ascontiguousarray(snapshot.table.deadline_s, dtype=np.float64),
            rank=rank,
            leaders=items[0].leaders,
            room_gb=room_gb,
            usd=np.array([cluster.rollout.usd_per_hour, cluster.train.usd_per_hour]),
            shapes=_shapes(items, self.most, limits),
            most=self.most,
        )

    def price(
        self,
        y: FloatArray,
        floor: float,
        *,
        budget: int,
        keep: int,
        threads: int,
        deadline: Deadline,
    ) -> PricedGroups:
        """Solve the problems of all leaders; the answer does not depend on ``threads``."""
        n = self.n
        found = Found(
            excess=np.full(n, np.inf),
            exact=np.zeros(n, dtype=np.bool_),
            held=np.zeros(n, dtype=np.int64),
            gain=np.zeros((n, keep)),
            sets=np.full((n, keep, self.most), -1, dtype=np.int64),
            nodes=np.zeros((n, keep, 2), dtype=np.int64),
            left=np.full(n, budget, dtype=np.int64),
        )
        shapes = len(self.data.shapes)
        step = max(1, _WORK // max(n, 1))
        y = np.ascontiguousarray(y, dtype=np.float64)

        stopped = Event()

        def solve(leader: int) -> None:
            for first in range(0, shapes, step):
                if stopped.is_set() or deadline.expired:
                    found.excess[leader], found.exact[leader] = np.inf, False
                    return
                last = min(first + step, shapes)
                price_leader(leader, first, last, self.data, y, floor, found)

        if threads > 1 and n > 1:
            with ThreadPoolExecutor(threads) as pool:
                try:
                    list(pool.map(solve, range(n)))
                finally:  # Ctrl-C: the pool ends when the leaders in work have stopped
                    stopped.set()
        else:
            for leader in range(n):
                solve(leader)
        some = np.arange(keep)[None, :] < found.held[:, None]
        sets = np.sort(np.where(found.sets[some] < 0, n, found.sets[some]), axis=1)
        return PricedGroups(
            excess=found.excess,
            exact=found.exact,
            groups=Groups(np.where(sets == n, -1, sets), found.nodes[some]),
        )


def _shapes(items: tuple[PoolItems, PoolItems], most: int, limits: Limits) -> IntArray:
    """Return the shapes that at most so many jobs may connect, within the limits, ``(s, 2)``."""
    widths = [np.sort(pool.width)[::-1][:most] for pool in items]
    together = np.sort(items[0].width + items[1].width - 1)[::-1][:most]
    top = [
        int(width.sum()) if limit is None else min(int(width.sum()), limit)
        for width, limit in zip(
            widths, (limits.max_rollout_nodes, limits.max_train_nodes), strict=True
        )
    ]
    rollout, train = (
        counts.ravel()
        for counts in np.meshgrid(
            *(np.arange(1, t + 1, dtype=np.int64) for t in top), indexing="ij"
        )
    )
    connected = rollout + train <= int(together.sum()) + 1
    return np.stack((rollout[connected], train[connected]), axis=1)
