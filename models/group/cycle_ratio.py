"""Given cyclic orders and laps, the least period: a maximum cycle ratio (max-plus algebra)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from instances.errors import InputError
from models.group.packing import first_turn
from models.problem.group_shape import REL_EPS, GroupShape, Pins, Schedule, Starts, lower_bound_s

__all__ = ["CycleStep", "CyclicOrder", "critical_cycle", "least_period", "order_of"]

#: One phase: (0 rollout or 1 train, job, iteration).
Op = tuple[int, int, int]
#: A critical cycle is looked for at a period shorter by this share, where it is positive.
_SHORTER: Final = 1e-7


class CycleStep(NamedTuple):
    """One phase of a cycle, and what the next phase of the cycle waits for.

    Attributes
    ----------
    phase, job, iteration : int
        ``phase`` is 0 for rollout, 1 for train.
    seconds : float
        From this phase's start to the earliest start of the next one: switch and run, and
        sync where the next one is the same job's rollout.
    laps : int
        Periods that the step goes forward.
    """

    phase: int
    job: int
    iteration: int
    seconds: float
    laps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CyclicOrder:
    """Cyclic orders on every node, and the lap each phase starts in.

    Attributes
    ----------
    rollout, train : tuple of tuple of (int, int)
        Per node the (job, iteration) pairs in the order of their start *within* the period.
    laps : mapping (tuple of tuple of (int, int))
        Per job one (rollout lap, train lap) pair per iteration: the start lies in
        ``[lap x C, (lap + 1) x C)``. Orders alone do not fix the period; the differences of
        laps are the heights.
    """

    rollout: tuple[tuple[tuple[int, int], ...], ...]
    train: tuple[tuple[tuple[int, int], ...], ...]
    laps: tuple[tuple[tuple[int, int], ...], ...]


def order_of(shape: GroupShape, period_s: float, starts_s: Starts) -> CyclicOrder:
    """Return the cyclic orders and laps that a schedule follows."""
    eps = REL_EPS * period_s
    laps = tuple(
        tuple((math.floor((x + eps) / period_s), math.floor((y + eps) / period_s)) for x, y in job)
        for job in starts_s
    )

    def orders(phase: int, pins: Sequence[Pins]) -> tuple[tuple[tuple[int, int], ...], ...]:
        on_node: dict[int, list[tuple[float, float, int, int]]] = {}
        seconds = (shape.rollout_s, shape.train_s)[phase]
        for j, job in enumerate(starts_s):
            for i, pair in enumerate(job):
                within = pair[phase] - laps[j][i][phase] * period_s
                for node in pins[j]:
                    # a zero-length phase at the same instant goes first
                    on_node.setdefault(node, []).append((within, seconds[j], j, i))
        return tuple(
            tuple((j, i) for _, _, j, i in sorted(ops)) for _, ops in sorted(on_node.items())
        )

    return CyclicOrder(
        rollout=orders(0, shape.rollout_pins), train=orders(1, shape.train_pins), laps=laps
    )


class _Graph:
    """Constraints ``start[v] >= start[u] + w - h C`` of given orders and laps."""

    def __init__(self, shape: GroupShape, order: CyclicOrder) -> None:
        self.base = [0] * len(shape)
        size = 0
        for j, rate in enumerate(shape.rates):
            self.base[j] = size
            size += 2 * rate
        self.size = size
        edges: dict[tuple[int, int, int], float] = {}

        def add(u: int, v: int, weight: float, height: int) -> None:
            key = (u, v, height)
            edges[key] = max(edges.get(key, -math.inf), weight)

        for j, rate in enumerate(shape.rates):
            p, q, s = shape.rollout_s[j], shape.train_s[j], shape.sync_s[j]
            first, lag = self.base[j], shape.lag(j)
            for i in range(rate):
                x, y = first + 2 * i, first + 2 * i + 1
                add(x, y, p, 0)
                turns, waiting = divmod(i + lag, rate)
                add(y, first + 2 * waiting, q + s, turns)
        for phase, nodes in enumerate((order.rollout, order.train)):
            seconds = (shape.rollout_s, shape.train_s)[phase]
            for ops in nodes:
                if len(ops) < 2 and shape.lag(ops[0][0]) == 1:
                    continue  # the chain says more
                for position, (j, i) in enumerate(ops):
                    wrap = position == len(ops) - 1
                    b, c = ops[0 if wrap else position + 1]
                    height = order.laps[j][i][phase] - order.laps[b][c][phase] + wrap
                    add(
                        self.base[j] + 2 * i + phase,
                        self.base[b] + 2 * c + phase,
                        seconds[j],
                        height,
                    )
        self.edges = [(u, v, w, h) for (u, v, h), w in edges.items()]

    def steps(self, cycle: Sequence[int]) -> tuple[CycleStep, ...]:
        """Return a cycle of edges, in any order, as steps from its lowest vertex on."""
        leaving = {self.edges[e][0]: self.edges[e] for e in cycle}
        first = v = min(leaving)
        out: list[CycleStep] = []
        while not out or v != first:
            _, after, seconds, laps = leaving[v]
            job = max(j for j, base in enumerate(self.base) if base <= v)
            iteration, phase = divmod(v - self.base[job], 2)
            out.append(CycleStep(phase, job, iteration, seconds, laps))
            v = after
        return tuple(out)

    def longest_paths(self, period_s: float) -> tuple[list[float], list[int] | None]:
        """Return potentials, and the edges of a positive cycle when there is one."""
        start = [0.0] * self.size
        parent = [-1] * self.size
        eps = REL_EPS * max(period_s, 1e-300)
        for _ in range(self.size + 1):
            changed = -1
            for e, (u, v, w, h) in enumerate(self.edges):
                reach = start[u] + w - h * period_s
                if reach > start[v] + eps:
                    start[v], parent[v], changed = reach, e, v
            if changed < 0:
                return start, None
            cycle = self._cycle(parent)
            if cycle is not None:
                return start, cycle
        return start, self._cycle(parent)

    def _cycle(self, parent: Sequence[int]) -> list[int] | None:
        """Return the edges of a cycle of the parent graph, if it has one."""
        seen = [0] * self.size
        for root in range(self.size):
            path, v = [], root
            while seen[v] == 0 and parent[v] >= 0:
                seen[v] = root + 1
                path.append(v)
                v = self.edges[parent[v]][0]
            if parent[v] >= 0 and seen[v] == root + 1:
                cycle = []
                u = v
                while True:
                    cycle.append(parent[u])
                    u = self.edges[parent[u]][0]
                    if u == v:
                        return cycle
            for u in path:
                seen[u] = root + 1
            if seen[v] == 0:
                seen[v] = root + 1
        return None


def least_period(
    shape: GroupShape, order: CyclicOrder, *, start_s: float | None = None
) -> Schedule:
    """Return the least period of given cyclic orders and laps, with earliest starts.

    The constraints are differences ``start[v] >= start[u] + w - h C``; the least ``C`` is the
    largest ratio ``sum w / sum h`` over the cycles of that graph (max-plus algebra). Newton's
    iteration: at a ``C`` too small find a positive cycle, raise ``C`` to its ratio, repeat;
    every step is exact for one cycle, so it ends.

    Parameters
    ----------
    start_s : float, optional
        A known lower bound of the period to start from; LB(g) when left out.

    Raises
    ------
    InputError
        When the laps contradict each other, so that no period works.
    """
    graph = _Graph(shape, order)
    bound = lower_bound_s(shape) if start_s is None else start_s
    period = bound
    while True:
        starts, cycle = graph.longest_paths(period)
        if cycle is None:
            break
        weight = sum(graph.edges[e][2] for e in cycle)
        height = sum(graph.edges[e][3] for e in cycle)
        if height <= 0:
            raise InputError("The laps of these orders contradict each other: no period works.")
        if weight / height <= period:  # a cycle positive only by round-off
            break
        period = weight / height
    return Schedule(
        period_s=period,
        starts_s=tuple(
            first_turn(
                tuple(
                    (starts[graph.base[j] + 2 * i], starts[graph.base[j] + 2 * i + 1])
                    for i in range(rate)
                ),
                period,
            )
            for j, rate in enumerate(shape.rates)
        ),
        bound_s=bound,
    )


def critical_cycle(
    shape: GroupShape, order: CyclicOrder, period_s: float
) -> tuple[CycleStep, ...] | None:
    """Return a cycle whose seconds over laps are the least period of these orders.

    It is the proof that these orders allow nothing shorter. Newton's iteration, begun just
    below the least period, where only cycles of (nearly) the largest ratio are positive.

    Parameters
    ----------
    period_s : float
        The least period of these orders (:func:`least_period`).

    Returns
    -------
    tuple of CycleStep or None
        From its first phase in (job, iteration, phase) order; ``None`` when ``period_s`` is
        not the least period of these orders, or their laps contradict each other.
    """
    graph = _Graph(shape, order)
    period, best = period_s * (1 - _SHORTER), None
    while True:
        _, cycle = graph.longest_paths(period)
        if cycle is None:
            break
        weight = sum(graph.edges[e][2] for e in cycle)
        height = sum(graph.edges[e][3] for e in cycle)
        if height <= 0 or weight / height > period_s * (1 + _SHORTER):
            return None
        if weight / height <= period:  # positive only by round-off
            break
        period, best = weight / height, cycle
    return None if best is None else graph.steps(best)
