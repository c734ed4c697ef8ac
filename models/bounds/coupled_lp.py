"""Data, pricing and master problem of the coupled bound (:mod:`models.bounds.coupled`).

Symbols as there. Periods are the distinct deadlines, ascending; *windows* say which job may
have which period. Prices are arrays ``u[P]`` of shape ``(n, periods)``, in nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from models.backends.highs_model import INFINITY, Ended, HighsModel
from models.bounds.knapsack import Knapsacks
from models.bounds.pool_items import POOLS, PoolItems
from models.group.pinnings import REL_SLACK
from models.problem.options import Deadline
from models.problem.snapshot import Snapshot

__all__ = ["Columns", "Master", "Periods", "Priced", "Segments", "refined", "whole_windows"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: Prices of the rollout and of the train pool.
PoolPrices = tuple[FloatArray, FloatArray]

#: Nodes of one knapsack search.
_BUDGET: Final = 100_000
#: Interior point ends at a relative gap between these.
_LOOSEST, _TIGHTEST = 1e-2, 1e-9


@dataclass(frozen=True, eq=False)
class Columns:
    """Sets of jobs that share a node of one pool at one period.

    Attributes
    ----------
    period : (k,) int64
    members : (k, most) int64
        Ascending, padded with -1 behind.
    """

    period: IntArray
    members: IntArray

    def __len__(self) -> int:
        return len(self.period)

    def take(self, which: IntArray | BoolArray) -> Columns:
        """Return some of them."""
        return Columns(self.period[which], self.members[which])

    def joined(self, other: Columns) -> Columns:
        """Return these, then the others."""
        most = max(self.members.shape[1], other.members.shape[1])
        members = [
            np.pad(c.members, ((0, 0), (0, most - c.members.shape[1])), constant_values=-1)
            for c in (self, other)
        ]
        return Columns(np.concatenate((self.period, other.period)), np.concatenate(members))

    def values(self, prices: FloatArray) -> FloatArray:
        """Return ``sum_{j in S} u_jC`` of each, ``(k,)``."""
        held = self.members >= 0
        value: FloatArray = np.where(held, prices[self.members, self.period[:, None]], 0.0)
        return np.asarray(value.sum(axis=1))


@dataclass(frozen=True)
class Priced:
    """Answer of pricing one pool: ``most`` (periods,) is at least the value of every column."""

    most: FloatArray
    columns: Columns


class Periods:
    """Jobs, their windows of periods, and the knapsacks of both pools at every period."""

    def __init__(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        self.items = (PoolItems.of(snapshot, "rollout"), PoolItems.of(snapshot, "train"))
        cluster = snapshot.cluster
        self.usd = (cluster.rollout.usd_per_hour, cluster.train.usd_per_hour)
        self.period_s = np.unique(table.deadline_s)
        most_s = self.period_s * (1 + REL_SLACK)
        self.window: BoolArray = table.solo_s[:, None] <= most_s[None, :]
        self.window &= table.deadline_s[:, None] >= self.period_s[None, :]
        self.knapsacks = tuple(self._knapsacks(items, most_s) for items in self.items)
        self.width = tuple(items.width.astype(np.float64) for items in self.items)

    def __len__(self) -> int:
        return len(self.window)

    def _knapsacks(self, items: PoolItems, most_s: FloatArray) -> Knapsacks:
        fits = self.window & (items.chain_s[:, None] <= most_s[None, :])
        fits &= items.load[:, None] <= most_s[None, :]
        fits &= (items.state_gb <= items.room_gb)[:, None]
        room_gb = np.full(len(most_s), items.room_gb)
        return Knapsacks(
            np.stack((items.load, items.state_gb), axis=1),
            [np.flatnonzero(fits[:, c]) for c in range(len(most_s))],
            np.stack((most_s, room_gb), axis=1),
        )

    def price(
        self, pool: int, u: FloatArray, floor: float, keep: int, threads: int, deadline: Deadline
    ) -> Priced:
        """Return columns of value above the floor, and bounds of all values.

        A job alone on a node is a column whatever its chain and switch: its own price counts.
        """
        packs = self.knapsacks[pool]
        at = np.repeat(np.arange(len(packs)), np.diff(packs.start))
        found = packs.price(
            u[packs.item, at], floor, budget=_BUDGET, keep=keep, threads=threads, deadline=deadline
        )
        alone = np.where(self.window, u, 0.0).max(axis=0)
        members = np.sort(np.where(found.sets < 0, len(self), found.sets), axis=1)
        return Priced(
            most=np.maximum(np.maximum(found.bound, alone), floor),
            columns=Columns(found.problem, np.where(members == len(self), -1, members)),
        )

    def job_usd(self, u: PoolPrices) -> FloatArray:
        """Return ``a^R u^R + a^T u^T`` priced, $/h, ``(n, periods)``; infinite outside windows."""
        rollout, train = (
            usd * width[:, None] * prices
            for usd, width, prices in zip(self.usd, self.width, u, strict=True)
        )
        return np.where(self.window, rollout + train, np.inf)


#: Row of each job and period within its window, ascending; -1 outside.
Segments = IntArray


def whole_windows(window: BoolArray) -> Segments:
    """Return one segment per job: its window."""
    return np.where(window, np.arange(len(window), dtype=np.int64)[:, None], -1)


def refined(segments: Segments, left: FloatArray, weight: FloatArray, least: float) -> Segments:
    """Return the segments cut where the two pools cover a job at different periods.

    Parameters
    ----------
    left : (n, periods) float64
        Coverage by rollout less coverage by train nodes, in jobs. A segment of ``left`` that
        sums to ``d`` up to a period covers ``|d|`` less once it is cut there.
    weight : (n,) float64
        $/h of a job.
    least : float
        Cuts that matter less are not made, $/h.
    """
    out = np.full_like(segments, -1)
    row = 0
    for job in range(len(segments)):
        periods = np.flatnonzero(segments[job] >= 0)
        starts = np.flatnonzero(np.diff(segments[job, periods])) + 1
        stack = list(np.split(periods, starts))[::-1]
        while stack:
            part = stack.pop()
            off = np.abs(np.cumsum(left[job, part])[:-1])
            at = int(np.argmax(off)) if len(off) else 0
            if len(off) and off[at] * weight[job] > least:
                stack += [part[at + 1 :], part[: at + 1]]
                continue
            out[job, part] = row
            row += 1
    return out


class Master:
    """The aggregated master over some columns; see the module docstring of models.bounds.coupled.

    Rows: jobs, then segments of the rollout pool, then of the train pool. Columns: ``x`` of every
    segment, then what :meth:`add` adds. A node of the dearer pool costs 1.
    """

    def __init__(self, periods: Periods, segments: Segments, seed: int) -> None:
        n, count = len(periods), int(segments.max(initial=-1)) + 1
        self.periods, self.segments, self.count = periods, segments, count
        self.unit_usd = max(periods.usd) or 1.0
        self.model = HighsModel(seed=seed, options={"solver": "ipx", "run_crossover": "off"})
        lower = np.concatenate((np.ones(n), np.zeros(2 * count)))
        self.model.add_rows(lower, np.full(len(lower), INFINITY))
        where = segments >= 0
        owner, first = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        jobs, at = np.nonzero(where)
        owner[segments[where]], first[segments[where]] = jobs, at
        rows = np.arange(count)
        entries = np.stack((owner, n + rows, n + count + rows), axis=1)
        values = np.stack((np.ones(count), *(-w[owner] for w in periods.width)), axis=1)
        self.model.add_sparse_columns(
            np.zeros(count), 3 * rows, entries.ravel(), np.ascontiguousarray(values).ravel()
        )
        self._seen: tuple[set[bytes], set[bytes]] = (set(), set())
        self.held = [Columns(first, owner[:, None])] * 2
        self._order: list[tuple[int, int]] = []
        self._duals = self._values = np.zeros(0)
        self.objective_usd = 0.0
        for pool in range(len(POOLS)):
            self.held[pool] = Columns(first[:0], owner[:0, None])
            self.add(pool, Columns(first, owner[:, None]))

    def add(self, pool: int, columns: Columns) -> int:
        """Add columns that are not there yet; return how many."""
        rows = np.where(
            columns.members >= 0, self.segments[columns.members, columns.period[:, None]], -1
        )
        seen, fresh = self._seen[pool], []
        for i, row in enumerate(rows):
            key = row[row >= 0].tobytes()
            if key not in seen:
                seen.add(key)
                fresh.append(i)
        if not fresh:
            return 0
        rows = rows[fresh]
        entries = rows >= 0
        sizes = entries.sum(axis=1)
        index = rows[entries] + len(self.periods) + pool * self.count
        usd = self.periods.usd[pool] / self.unit_usd
        self.model.add_sparse_columns(
            np.full(len(fresh), usd), np.cumsum(sizes) - sizes, index, np.ones(len(index))
        )
        self.held[pool] = self.held[pool].joined(columns.take(np.array(fresh)))
        self._order.append((pool, len(fresh)))
        return len(fresh)

    def solve(self, gap: float, deadline: Deadline) -> Ended:
        """Solve by interior point to about this relative gap; the values need not be optimal."""
        self.model.set("ipm_optimality_tolerance", min(_LOOSEST, max(_TIGHTEST, gap)))
        self.model.forget()
        ended = self.model.run(deadline.remaining_s())
        if ended not in (Ended.OPTIMAL, Ended.FAILED):
            return ended
        # kept, as columns added later make HiGHS forget them
        self._duals, self._values = self.model.duals(), self.model.values()
        self.objective_usd = self.model.objective * self.unit_usd
        # HiGHS calls an interior solution of a looser tolerance unknown: still prices to use
        right = len(self._duals) == len(self.periods) + 2 * self.count
        usable = right and bool(np.isfinite(self._duals).all() and np.isfinite(self._values).all())
        return Ended.OPTIMAL if usable else Ended.FAILED

    def duals(self) -> tuple[FloatArray, PoolPrices]:
        """Return ``y``, $/h, and the prices ``u`` of both pools, nodes; none below 0."""
        n, count = len(self.periods), self.count
        duals = np.maximum(self._duals, 0.0) * self.unit_usd
        u = []
        for pool, usd in enumerate(self.periods.usd):
            own = duals[n + pool * count : n + (pool + 1) * count] / (usd or 1.0)
            u.append(np.where(self.segments >= 0, own[self.segments], 0.0))
        return duals[:n], (u[0], u[1])

    def coverage(self) -> tuple[float, PoolPrices]:
        """Return the price of the nodes used, $/h, and each job's coverage, in jobs, by period."""
        values = np.maximum(self._values[self.count :], 0.0)
        shape = self.segments.shape
        cover = (np.zeros(shape), np.zeros(shape))
        usd, at, taken = 0.0, 0, [0, 0]
        for pool, count in self._order:
            if at >= len(values):
                break  # added after the last solve
            z = values[at : at + count]
            some = self.held[pool].take(np.arange(taken[pool], taken[pool] + count))
            held = some.members >= 0
            row = np.nonzero(held)[0]
            np.add.at(cover[pool], (some.members[held], some.period[row]), z[row])
            usd += self.periods.usd[pool] * float(z.sum())
            at, taken[pool] = at + count, taken[pool] + count
        for pool, width in enumerate(self.periods.width):
            cover[pool][:] /= width[:, None]
        return usd, cover
