"""Which groups could take a job at some rates? Vectorised over groups and periods.

The shares of :mod:`planner.placement.fleet_state` are a condition that holds at any rates. This
table decides it rate by rate: a group with the job in it has its period among ``k D_i`` of a member
or of the job, at which everybody runs ``ceil(C / D_j)`` iterations
(:mod:`models.group.rate_vectors`). At one such period at least

* every ``k_j`` is at most ``max_rate`` and every chain ``k_j (T_j + switches)`` at most ``C``;
* as many train nodes as the job needs, and for direct packing as many rollout nodes, carry
  ``sum_j k_j phase_j <= C`` with the job, switches included.

Periods of the members, at which they have to be valid by themselves, are kept with the loads
they cause; periods of the job are worked out when it comes. What is left to the schedule of the
one group that is chosen: precedence, switches that only some choices of nodes would add, and
which nodes go together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.jobs import Job
from models.group.pinnings import REL_SLACK
from models.group.rate_bound import least_bound_s, pairs_s
from models.group.rate_vectors import rate_arrays, rate_vectors
from models.problem.group_shape import GroupShape, Pins, own_seconds

__all__ = ["MOST_FILL", "RateFit", "RateTable"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Deadline of a member, load of a node and so on that do not exist: finite, but never within.
_ABSENT: Final = 1e100
#: Members, periods, rollout nodes and train nodes of a group that there is room for at first.
_FIRST: Final = (5, 8, 4, 1)
#: Decimals of load over period that are told apart.
_DIGITS: Final = 9
#: Load over period up to which a group is possible.
MOST_FILL: Final = 1 + 2 * REL_SLACK


@dataclass(slots=True)
class RateFit:
    """How full groups would be with the job, ``(n, periods)`` each.

    Attributes
    ----------
    period_s : array
        Candidate periods ``C``, seconds.
    direct, scaled : array
        The longest of chains and loads of nodes it would join over ``C``, on existing nodes
        and with new rollout nodes. Above 1: impossible at this period.
    node : (n, periods) int64
        Column of the existing rollout node that a job of one node would fill most, where direct
        packing is possible.
    """

    period_s: FloatArray
    direct: FloatArray
    scaled: FloatArray
    node: IntArray

    def fill(self, kind: int) -> FloatArray:
        """Return ``direct`` (kind 0) or ``scaled``."""
        return self.scaled if kind else self.direct

    def choices(self, position: int, kind: int) -> list[tuple[float, int]]:
        """Return (period, ``node``) of one group where it is possible, the least full first.

        Round-off of fullness decides nothing.
        """
        found = zip(
            self.fill(kind)[position].tolist(),
            self.period_s[position].tolist(),
            self.node[position].tolist(),
            strict=True,
        )
        possible = [(round(fill, _DIGITS), *rest) for fill, *rest in found if fill <= MOST_FILL]
        return [(period, node) for _, period, node in sorted(possible)]


class RateTable:
    """Rates and loads of all groups, one slot each.

    Attributes
    ----------
    period_s : (capacity, periods) float64
        Periods at which the members could run, 1 where there are no more.
    busy_s : (capacity, periods) float64
        What the members need in each of these periods by themselves: chains, loads, gaps.
    deadline_s, chain_s : (capacity, members) float64
        ``D_j``, and ``T_j`` with the switches that are certain if a job joins.
    loads : (capacity, train nodes, periods) float64
        Train seconds of each node in each of these periods if one more job joins.
    phases : two of (capacity, nodes, members) float64
        Rollout and train seconds, switch included, of the members pinned to each node.
    waits : (capacity, members) float64
        1 where a phase waits for the other pool's before it, 0 of one-step jobs.
    """

    __slots__ = (
        "busy_s", "chain_s", "deadline_s", "loads", "max_rate", "period_s", "phases", "waits",
    )  # fmt: skip

    def __init__(self, capacity: int, max_rate: int) -> None:
        members, periods, rollout, train = _FIRST
        self.max_rate = max_rate
        self.period_s = np.ones((capacity, periods))
        self.busy_s = np.full((capacity, periods), _ABSENT)
        self.deadline_s = np.full((capacity, members), _ABSENT)
        self.chain_s = np.zeros((capacity, members))
        self.waits = np.ones((capacity, members))
        self.loads = np.full((capacity, train, periods), _ABSENT)
        self.phases = [np.zeros((capacity, nodes, members)) for nodes in (rollout, train)]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (
            self.period_s,
            self.busy_s,
            self.deadline_s,
            self.chain_s,
            self.waits,
            self.loads,
            *self.phases,
        )
        return sum(int(each.nbytes) for each in arrays)

    def grow(self, capacity: int) -> None:
        """Make room for more groups."""
        self._resize(capacity, self.period_s.shape[1], self.deadline_s.shape[1], self._widths())

    def _widths(self) -> list[int]:
        return [int(each.shape[1]) for each in self.phases]

    def _resize(self, capacity: int, periods: int, members: int, widths: Sequence[int]) -> None:
        self.period_s = _enlarged(self.period_s, (capacity, periods), 1.0)
        self.busy_s = _enlarged(self.busy_s, (capacity, periods), _ABSENT)
        self.deadline_s = _enlarged(self.deadline_s, (capacity, members), _ABSENT)
        self.chain_s = _enlarged(self.chain_s, (capacity, members), 0.0)
        self.waits = _enlarged(self.waits, (capacity, members), 1.0)
        self.loads = _enlarged(self.loads, (capacity, widths[1], periods), _ABSENT)
        for pool, nodes in enumerate(widths):
            self.phases[pool] = _enlarged(self.phases[pool], (capacity, nodes, members), 0.0)

    def write(
        self, slot: int, jobs: Sequence[Job], shape: GroupShape, node_ids: tuple[Pins, Pins]
    ) -> None:
        """Write one group, its nodes in column order."""
        joined = (
            [job.rollout_s + job.rollout_switch_s for job in jobs],
            [job.train_s + job.train_switch_s for job in jobs],
        )
        # one train node: whoever joins shares it, so its members' switch is certain
        train_s = joined[1] if len(node_ids[1]) == 1 else shape.train_s
        chains = [
            own_seconds(p, q, s, shape.lag(j))
            for j, (p, q, s) in enumerate(zip(shape.rollout_s, train_s, shape.sync_s, strict=True))
        ]
        phases_s = shape.rollout_s, tuple(train_s), shape.sync_s
        deadlines = [job.deadline_s for job in jobs]
        pins = (shape.rollout_pins, shape.train_pins)
        phases = [
            [[s if node in held else 0.0 for s, held in zip(joined[i], pins[i], strict=True)]
             for node in node_ids[i]]
            for i in (0, 1)
        ]  # fmt: skip
        periods: list[float] = []
        busy: list[float] = []
        loads: list[list[float]] = []
        for vector in rate_vectors(deadlines, chains, self.max_rate):
            periods.append(vector.period_s)
            rated = GroupShape(*phases_s, *pins, vector.rates, shape.lags)
            busy.append(least_bound_s(rated))
            loads.append(
                [sum([k * s for k, s in zip(vector.rates, row, strict=True)]) for row in phases[1]]
            )
        self._make_room(len(jobs), len(periods), node_ids)
        self.period_s[slot] = 1.0
        self.period_s[slot, : len(periods)] = periods
        self.busy_s[slot] = _ABSENT
        self.busy_s[slot, : len(periods)] = busy
        self.deadline_s[slot] = _ABSENT
        self.deadline_s[slot, : len(jobs)] = deadlines
        self.chain_s[slot] = 0.0
        self.chain_s[slot, : len(jobs)] = chains
        self.waits[slot] = 1.0
        self.waits[slot, : len(jobs)] = [float(job.lag == 1) for job in jobs]
        self.loads[slot] = _ABSENT
        if periods:
            self.loads[slot, : len(node_ids[1]), : len(periods)] = np.array(loads).T
        for pool in (0, 1):
            n = len(node_ids[pool])
            self.phases[pool][slot] = 0.0
            self.phases[pool][slot, :n, : len(jobs)] = phases[pool]

    def _make_room(self, members: int, periods: int, node_ids: tuple[Pins, Pins]) -> None:
        widths = self._widths()
        has = [self.period_s.shape[1], self.deadline_s.shape[1], *widths]
        needs = [periods, members, *map(len, node_ids)]
        if any(need > room for need, room in zip(needs, has, strict=True)):
            room = [
                width if need <= width else max(need, width + width // 2)
                for need, width in zip(needs, has, strict=True)
            ]
            self._resize(len(self.period_s), room[0], room[1], room[2:])

    def fits(
        self, slots: IntArray, job: Job, rollout_ok: BoolArray, train_ok: BoolArray
    ) -> RateFit:
        """Return at which periods which groups could take the job.

        Parameters
        ----------
        slots : (n,) int64
        rollout_ok, train_ok : (n, nodes) bool
            Existing nodes the job may use, by DRAM and shares.
        """
        train_s = job.train_s + job.train_switch_s
        parts = []
        for period, loads, busy in (self._members(slots), self._newcomer(slots, job)):
            rate = rate_arrays(period, job.deadline_s)
            rate[rate > self.max_rate] = _ABSENT
            busy = np.maximum(busy, rate * job.paid_s(train=True))
            train = _nth_load(loads, train_ok, job.train_nodes) + rate * train_s
            parts.append((period, np.maximum(busy, train) / period))
        period, scaled = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        if self.phases[1].shape[1] == 1:
            self._spread(period, scaled, slots, job)
        fit = RateFit(period, scaled.copy(), scaled, np.zeros(scaled.shape, dtype=np.int64))
        self._direct(fit, slots, job, rollout_ok)
        return fit

    def _direct(self, fit: RateFit, slots: IntArray, job: Job, rollout_ok: BoolArray) -> None:
        """Raise ``fit.direct`` by what the job needs on existing rollout nodes; name the node.

        Only where groups are possible with new ones: loads, and between the job and each member
        of a node the bound of :func:`models.group.rate_bound.pair_bound_s`. Of the nodes that are
        possible the fullest is named.
        """
        at, column = (fit.scaled <= MOST_FILL).nonzero()
        period, where = fit.period_s[at, column][:, None], slots[at]
        rates = rate_arrays(period, self.deadline_s[where])
        rate = rate_arrays(period, job.deadline_s)
        phases = self.phases[0][where]
        rollout_s = job.rollout_s + job.rollout_switch_s
        loads = (phases @ rates[:, :, None])[:, :, 0] + rate * rollout_s
        width = min(rollout_ok.shape[1], loads.shape[1])  # of two tables, each with room to grow
        full = np.where(rollout_ok[at, :width], loads[:, :width] / period, _ABSENT)
        some = np.flatnonzero(full.min(axis=1) <= MOST_FILL)
        if len(some):
            there = phases[some, :width]
            held = where[some]
            gaps = (self.chain_s[held, None] - there) * self.waits[held, None]
            theirs = rates[some, None], there, gaps
            own = job.train_s + job.train_switch_s + job.sync_s if job.lag == 1 else 0.0
            ours = rate[some, :, None], rollout_s, own
            pairs = np.maximum(pairs_s(ours, theirs), pairs_s(theirs, ours))
            pairs[there == 0.0] = 0.0  # not on this node
            full[some] = np.maximum(full[some], pairs.max(axis=2) / period[some])
        if job.rollout_nodes > 1:
            nth = job.rollout_nodes - 1
            fill = np.full(len(at), _ABSENT)
            if nth < width:
                fill = np.partition(full, nth, axis=1)[:, nth]
        else:
            fill = full.min(axis=1)
            fit.node[at, column] = np.where(full <= MOST_FILL, full, -1.0).argmax(axis=1)
        fit.direct[at, column] = np.maximum(fit.direct[at, column], fill)

    def _spread(self, period_s: FloatArray, fill: FloatArray, slots: IntArray, job: Job) -> None:
        """Raise ``fill`` by what the job and a member on the only train node need together.

        The bound of :func:`models.group.rate_bound.pair_bound_s`, for every member both ways round.
        """
        at, column = (fill <= MOST_FILL).nonzero()
        period, where = period_s[at, column], slots[at]
        theirs = (
            rate_arrays(period[:, None], self.deadline_s[where]),
            self.phases[1][where, 0],
            (self.chain_s[where] - self.phases[1][where, 0]) * self.waits[where],
        )
        ours = (
            rate_arrays(period, job.deadline_s)[:, None],
            job.train_s + job.train_switch_s,
            job.rollout_s + job.sync_s if job.lag == 1 else 0.0,
        )
        both = np.maximum(pairs_s(ours, theirs), pairs_s(theirs, ours))
        fill[at, column] = np.maximum(fill[at, column], _reduced(np.maximum, both) / period)

    def _members(self, slots: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the members' periods, loads of train nodes in them, and the longest chain."""
        return self.period_s[slots], self.loads[slots], self.busy_s[slots]

    def _newcomer(self, slots: IntArray, job: Job) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the same of the job's periods ``k D``."""
        period: FloatArray = job.deadline_s * np.arange(1, self.max_rate + 1, dtype=np.float64)
        rates = rate_arrays(period, self.deadline_s[slots][:, :, None])
        rates[rates > self.max_rate] = _ABSENT
        busy = _reduced(np.maximum, rates * self.chain_s[slots][:, :, None])
        loads = self.phases[1][slots] @ rates
        return np.broadcast_to(period, (len(slots), len(period))), loads, busy


def _reduced(ufunc: np.ufunc, values: FloatArray) -> FloatArray:
    """Return ``ufunc.reduce(values, axis=1)``, slice by slice: the axis is short, so faster."""
    out = values[:, 0]
    for i in range(1, values.shape[1]):
        out = ufunc(out, values[:, i])
    return out


def _nth_load(loads: FloatArray, usable: BoolArray, nth: int) -> FloatArray:
    """Return the load of the ``nth`` roomiest usable node in each period, ``(n, periods)``."""
    width = min(usable.shape[1], loads.shape[1])
    found = np.where(usable[:, :width, None], loads[:, :width], _ABSENT)
    if nth == 1:
        out = _reduced(np.minimum, found)
    elif nth <= width:
        out = np.partition(found, nth - 1, axis=1)[:, nth - 1]
    else:
        out = np.full((len(loads), loads.shape[2]), _ABSENT)
    return out


def _enlarged(old: FloatArray, shape: tuple[int, ...], fill: float) -> FloatArray:
    new = np.full(shape, fill)
    new[tuple(slice(n) for n in old.shape)] = old
    return new
