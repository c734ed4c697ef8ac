"""The period of one co-execution group: lower bound, exact special cases, construction.

Sets and parameters (design sections 2 and 3)
---------------------------------------------
jobs ``j`` of one group, ``k_j`` iterations per period (``rates``); per iteration one rollout
of ``p_j`` seconds and one train of ``q_j`` seconds (switch included where a node is shared),
then ``s_j`` seconds of sync; ``R_j`` and ``T_j`` the rollout and train nodes it is pinned to.

Variables
---------
``C`` the period; ``x_ji``, ``y_ji`` the start of rollout and train of iteration ``i``, seconds
on the unrolled circle.

Constraints
-----------
* chain:      ``y_ji >= x_ji + p_j``, ``x_j(i+1) >= y_ji + q_j + s_j``, and
  ``x_j0 + C >= y_j(k-1) + q_j + s_j``;
* no overlap: phases pinned to one node are disjoint arcs of the circle of length ``C``.

Everything here takes phases that already include their switches (:class:`GroupShape`), so a
schedule never depends on hidden state. Three ways to a schedule:

* :func:`open_shop`: one rollout node, one train node, no sync, one iteration each: optimal,
  period ``max(sum p, sum q, max(p + q))`` (Gonzalez and Sahni 1976; built by the "longest
  alternate processing time first" rule of Pinedo, *Scheduling*, theorem 8.1.1).
* :func:`least_period`: the least period of *given* cyclic orders and laps, a maximum cycle
  ratio, by Newton's iteration on positive cycles.
* :func:`construct`: a constructive schedule for any pins and rates, at or below a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from instances.errors import InputError
from instances.jobs import Job
from models.packing import first_turn, one_node_first, pack, place_one

__all__ = [
    "CyclicOrder",
    "GroupShape",
    "LowerBound",
    "Schedule",
    "construct",
    "insert",
    "least_period",
    "lower_bound",
    "lower_bound_s",
    "open_shop",
    "order_of",
]

#: Relative slack for comparisons of sums of seconds (round-off, far below the checker's).
REL_EPS: Final = 1e-11

#: Orders of the shared node, and of every other node, tried by "one node first".
_ONE_NODE_ORDERS: Final = 24

Pins = tuple[int, ...]
Starts = tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Phases and pins of one group; index ``j`` runs over its jobs.

    Attributes
    ----------
    rollout_s, train_s : tuple of float
        Phase seconds ``p_j``, ``q_j``, switches included where the phase pays them.
    sync_s : tuple of float
        Seconds ``s_j`` from the end of train to the earliest next rollout.
    rollout_pins, train_pins : tuple of tuple of int
        Nodes each phase occupies, all at once.
    rates : tuple of int
        Iterations per period ``k_j >= 1``.
    """

    rollout_s: tuple[float, ...]
    train_s: tuple[float, ...]
    sync_s: tuple[float, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    rates: tuple[int, ...]

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        rollout_pins: Sequence[Sequence[int]],
        train_pins: Sequence[Sequence[int]],
        rates: Sequence[int] | None = None,
    ) -> GroupShape:
        """Return the shape of ``jobs`` on these pins; shared nodes cost their switch.

        Raises
        ------
        InputError
            When lengths differ, a pin set is empty or repeats a node, or a rate is below 1.
        """
        n = len(jobs)
        rates = tuple(rates) if rates is not None else (1,) * n
        if not (len(rollout_pins) == len(train_pins) == len(rates) == n):
            raise InputError(f"Expected pins and rates for {n} jobs.")
        for pins in (*rollout_pins, *train_pins):
            if not pins or len(set(pins)) != len(pins):
                raise InputError(f"Expected distinct nodes and at least one, got {tuple(pins)}.")
        if any(rate < 1 for rate in rates):
            raise InputError(f"Expected rates >= 1, got {rates}.")
        r_pins = tuple(tuple(pins) for pins in rollout_pins)
        t_pins = tuple(tuple(pins) for pins in train_pins)
        r_shared, t_shared = _shared(r_pins), _shared(t_pins)
        return cls(
            rollout_s=tuple(
                job.rollout_s + (job.rollout_switch_s if shared else 0.0)
                for job, shared in zip(jobs, r_shared, strict=True)
            ),
            train_s=tuple(
                job.train_s + (job.train_switch_s if shared else 0.0)
                for job, shared in zip(jobs, t_shared, strict=True)
            ),
            sync_s=tuple(job.sync_s for job in jobs),
            rollout_pins=r_pins,
            train_pins=t_pins,
            rates=rates,
        )

    def __len__(self) -> int:
        return len(self.rates)


def _shared(pins: Sequence[Pins]) -> list[bool]:
    """Return per job whether any of its nodes has two or more jobs pinned."""
    count: dict[int, int] = {}
    for nodes in pins:
        for node in nodes:
            count[node] = count.get(node, 0) + 1
    return [any(count[node] > 1 for node in nodes) for nodes in pins]


@dataclass(frozen=True, kw_only=True, slots=True)
class LowerBound:
    """LB(g) of design section 3, its three parts, seconds.

    Attributes
    ----------
    chain_s : float
        (a) max over jobs of ``k_j (p_j + q_j + s_j)``.
    node_s : float
        (b) the heaviest node: sum of ``k_j x phase`` pinned there.
    clique_s : float
        (c) the heaviest set of phases of one pool whose pins pairwise intersect.
    """

    chain_s: float
    node_s: float
    clique_s: float

    @property
    def period_s(self) -> float:
        """The bound itself, the largest of the three."""
        return max(self.chain_s, self.node_s, self.clique_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A period and its starts.

    Attributes
    ----------
    period_s : float
    starts_s : tuple of tuple of (float, float)
        Per job one (rollout, train) start per iteration, the first rollout in
        ``[0, period_s)``, later starts never before what precedes them.
    bound_s : float
        LB(g); the schedule is optimal when ``period_s`` equals it.
    """

    period_s: float
    starts_s: Starts
    bound_s: float

    @property
    def at_bound(self) -> bool:
        """Whether the period equals LB(g), up to round-off."""
        return self.period_s <= self.bound_s * (1 + 1e-9)


def _node_seconds(phase_s: Sequence[float], pins: Sequence[Pins], rates: Sequence[int]) -> float:
    load: dict[int, float] = {}
    for seconds, nodes, rate in zip(phase_s, pins, rates, strict=True):
        for node in nodes:
            load[node] = load.get(node, 0.0) + rate * seconds
    return max(load.values(), default=0.0)


def _clique_seconds(phase_s: Sequence[float], pins: Sequence[Pins], rates: Sequence[int]) -> float:
    """Return the heaviest set of phases whose pins pairwise intersect (branch and bound)."""
    weight = [rate * seconds for rate, seconds in zip(rates, phase_s, strict=True)]
    order = sorted(range(len(weight)), key=lambda j: -weight[j])
    sets = [frozenset(nodes) for nodes in pins]
    best = 0.0

    def grow(total: float, candidates: list[int]) -> None:
        nonlocal best
        best = max(best, total)
        rest = sum(weight[j] for j in candidates)
        for position, j in enumerate(candidates):
            if total + rest <= best:
                return
            grow(total + weight[j], [i for i in candidates[position + 1 :] if sets[i] & sets[j]])
            rest -= weight[j]

    grow(0.0, order)
    return best


def lower_bound_s(shape: GroupShape) -> float:
    """Return LB(g) in seconds: :func:`lower_bound` in one pass, the cliques only for gangs."""
    best = 0.0
    rollout: dict[int, float] = {}
    train: dict[int, float] = {}
    gangs = False
    for p, q, s, r_pins, t_pins, k in zip(
        shape.rollout_s,
        shape.train_s,
        shape.sync_s,
        shape.rollout_pins,
        shape.train_pins,
        shape.rates,
        strict=True,
    ):
        chain = k * (p + q + s)
        if chain > best:
            best = chain
        if len(r_pins) > 1 or len(t_pins) > 1:
            gangs = True
        for node in r_pins:
            rollout[node] = rollout.get(node, 0.0) + k * p
        for node in t_pins:
            train[node] = train.get(node, 0.0) + k * q
    best = max([best, *rollout.values(), *train.values()])
    return max(best, lower_bound(shape).clique_s) if gangs else best


def lower_bound(shape: GroupShape) -> LowerBound:
    """Return LB(g) in its three parts (design section 3)."""
    rates = shape.rates
    node = max(
        _node_seconds(shape.rollout_s, shape.rollout_pins, rates),
        _node_seconds(shape.train_s, shape.train_pins, rates),
    )
    clique = node
    for phase_s, pins in (
        (shape.rollout_s, shape.rollout_pins),
        (shape.train_s, shape.train_pins),
    ):
        if any(len(nodes) > 1 for nodes in pins):
            clique = max(clique, _clique_seconds(phase_s, pins, rates))
    chain = max(
        (
            rate * (p + q + s)
            for rate, p, q, s in zip(
                rates, shape.rollout_s, shape.train_s, shape.sync_s, strict=True
            )
        ),
        default=0.0,
    )
    return LowerBound(chain_s=chain, node_s=node, clique_s=clique)


# --- one rollout node, one train node, no sync: two-machine open shop -------------------


def _lapt(rollout_s: Sequence[float], train_s: Sequence[float]) -> list[list[float]]:
    """Return start times ``[machine][job]`` of the non-preemptive two-machine open shop.

    Whenever a machine is free it takes, of the jobs that have run on neither machine, the one
    with the longest time on the *other*; when none is left, a job the other machine is done
    with. Optimal for two machines (Pinedo, theorem 8.1.1).
    """
    n = len(rollout_s)
    time = (rollout_s, train_s)
    start = [[-1.0] * n, [-1.0] * n]
    free_at = [0.0, 0.0]
    left = [n, n]
    while left[0] or left[1]:
        m = min((0, 1), key=lambda i: (not left[i], free_at[i], i))
        other, now = 1 - m, free_at[m]

        def rank(j: int, other: int = other) -> tuple[int, float, int]:
            untouched = start[other][j] < 0
            return (0 if untouched else 1, -time[other][j], j)

        waiting = [j for j in range(n) if start[m][j] < 0]
        ready = [
            j for j in waiting if start[other][j] < 0 or start[other][j] + time[other][j] <= now
        ]
        if not ready:
            free_at[m] = min(start[other][j] + time[other][j] for j in waiting)
            continue
        job = min(ready, key=rank)
        start[m][job] = now
        free_at[m] = now + time[m][job]
        left[m] -= 1
    return start


def open_shop(rollout_s: Sequence[float], train_s: Sequence[float]) -> Schedule:
    """Return an optimal schedule of jobs sharing one rollout and one train node, sync 0.

    On a circle only the disjointness of a job's own two arcs matters, so a two-machine open
    shop schedule of length ``C`` is a cyclic schedule of period ``C``; Gonzalez and Sahni
    (1976) give ``C = max(sum p, sum q, max(p + q))``.

    Parameters
    ----------
    rollout_s, train_s : sequence of float
        Phase seconds, one entry per job.

    Returns
    -------
    Schedule
        With ``period_s`` equal to ``bound_s``.
    """
    rollout, train = _lapt(rollout_s, train_s)
    bound = max(
        sum(rollout_s),
        sum(train_s),
        max((p + q for p, q in zip(rollout_s, train_s, strict=True)), default=0.0),
    )
    period = max(
        (max(x + p, y + q) for x, y, p, q in zip(rollout, train, rollout_s, train_s, strict=True)),
        default=0.0,
    )
    starts = tuple(
        first_turn(((x, y if y >= x else y + period),), period)
        for x, y in zip(rollout, train, strict=True)
    )
    return Schedule(period_s=period, starts_s=starts, bound_s=bound)


# --- given orders and laps: maximum cycle ratio -----------------------------------------

#: One phase: (0 rollout or 1 train, job, iteration).
Op = tuple[int, int, int]


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
            first = self.base[j]
            for i in range(rate):
                x, y = first + 2 * i, first + 2 * i + 1
                add(x, y, p, 0)
                last = i == rate - 1
                add(y, first if last else x + 2, q + s, 1 if last else 0)
        for phase, nodes in enumerate((order.rollout, order.train)):
            seconds = (shape.rollout_s, shape.train_s)[phase]
            for ops in nodes:
                if len(ops) < 2:
                    continue
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


# --- construction -----------------------------------------------------------------------


def _insertion_orders(shape: GroupShape, most: int) -> Iterator[Sequence[int]]:
    """Yield up to ``most`` of the documented insertion orders, duplicates left out.

    Longest iteration first, longest train first, longest rollout first, widest gang first,
    least slack (largest share of a turn, ``k_j (p + q + s)``) first; ties by index.
    """
    p, q, s, rates = shape.rollout_s, shape.train_s, shape.sync_s, shape.rates
    keys: tuple[Callable[[int], float | tuple[float, float]], ...] = (
        lambda j: -p[j] - q[j] - s[j],
        lambda j: -q[j],
        lambda j: -p[j],
        lambda j: (-len(shape.rollout_pins[j]) - len(shape.train_pins[j]), -p[j] - q[j] - s[j]),
        lambda j: -rates[j] * (p[j] + q[j] + s[j]),
    )
    seen: list[list[int]] = []
    for key in keys[:most]:
        order = sorted(range(len(p)), key=key)
        if order not in seen:
            seen.append(order)
            yield order


def insert(shape: GroupShape, period_s: float, starts_s: Starts) -> Starts | None:
    """Return a running schedule with one more job in it, all others staying as they are.

    Parameters
    ----------
    shape : GroupShape
        The group with the new job last, at one iteration per period; switches as they are
        once it is there.
    period_s : float
    starts_s : tuple
        Starts of all jobs but the last; valid for their phases in ``shape``.

    Returns
    -------
    tuple or None
        Starts of all jobs, or ``None`` when the last one does not fit.
    """
    new_r, new_t = shape.rollout_pins[-1], shape.train_pins[-1]
    busy_r, busy_t = [], []
    for j, pairs in enumerate(starts_s):
        if not _disjoint(shape.rollout_pins[j], new_r):
            seconds = shape.rollout_s[j]
            busy_r += [(x % period_s, x % period_s + seconds) for x, _ in pairs]
        if not _disjoint(shape.train_pins[j], new_t):
            seconds = shape.train_s[j]
            busy_t += [(y % period_s, y % period_s + seconds) for _, y in pairs]
    busy_r.sort()
    busy_t.sort()
    pair = place_one(
        period_s, busy_r, busy_t, shape.rollout_s[-1], shape.train_s[-1], shape.sync_s[-1]
    )
    return None if pair is None else (*starts_s, first_turn((pair,), period_s))


def _disjoint(a: Pins, b: Pins) -> bool:
    return a != b and not any(node in b for node in a)


def _pack_any(shape: GroupShape, circle: float, orders: int) -> Starts | None:
    """Return starts within a circle by the first of the documented ways that finds some."""
    starts = _one_node_first(shape, circle)
    if starts is not None:
        return starts
    for order in _insertion_orders(shape, orders):
        found = pack(
            circle,
            shape.rollout_s,
            shape.train_s,
            shape.sync_s,
            shape.rollout_pins,
            shape.train_pins,
            shape.rates,
            order,
        )
        if found is not None:
            return tuple(found)
    return None


def _one_node_first(shape: GroupShape, circle: float) -> Starts | None:
    """Return starts by laying out the node that all jobs share first, where there is one."""
    p, q, s = shape.rollout_s, shape.train_s, shape.sync_s
    by_train = _all_on_one(shape.train_pins)
    if not by_train and not _all_on_one(shape.rollout_pins):
        return None
    pins = shape.rollout_pins if by_train else shape.train_pins
    if max(map(len, pins)) > 1 or max(shape.rates) > 1:
        return None
    slack = [max(circle - a - b - c, 0.0) for a, b, c in zip(p, q, s, strict=True)]
    if by_train:
        found = one_node_first(circle, q, p, s, slack, pins, _ONE_NODE_ORDERS)
    else:
        found = one_node_first(circle, p, q, (0.0,) * len(p), slack, pins, _ONE_NODE_ORDERS)
    if found is None:
        return None
    out = []
    for j, (begin, other) in enumerate(found):
        opens = begin + q[j] + s[j] if by_train else begin + p[j]
        wait = (other - opens) % circle
        if wait > slack[j]:  # round-off, past the window's end or before its begin
            wait = slack[j] if wait - slack[j] < circle - wait else 0.0
        start = opens + wait
        pair = (start - circle, begin) if by_train else (begin, start)
        out.append(first_turn((pair,), circle))
    return tuple(out)


def _all_on_one(pins: Sequence[Pins]) -> bool:
    first = pins[0]
    return len(first) == 1 and all(nodes == first for nodes in pins)


def _is_open_shop(shape: GroupShape) -> bool:
    return (
        not any(shape.sync_s)
        and len(set(shape.rollout_pins)) == len(set(shape.train_pins)) == 1
        and len(shape.rollout_pins[0]) == len(shape.train_pins[0]) == 1
        and set(shape.rates) == {1}
    )


def construct(
    shape: GroupShape, *, limit_s: float | None = None, orders: int = 5, refine: int = 3
) -> Schedule | None:
    """Return a schedule of period at most ``limit_s``, as short as this construction finds.

    First at LB(g) itself, which when it succeeds is optimal; else at the limit, then the
    least period of the orders so found, then up to ``refine`` attempts halfway between LB(g)
    and the best period held. At each length: one node first where all jobs share a node,
    then insertion in up to ``orders`` orders (:mod:`models.packing`).

    Parameters
    ----------
    shape : GroupShape
    limit_s : float, optional
        Largest period allowed, seconds, usually ``min_j D_j`` (``min_j k_j D_j`` with rates).
        Left out: one iteration after the other, which always works.
    orders : int
        How many of the documented insertion orders to try per period.
    refine : int
        Attempts at shorter periods once LB(g) itself has failed.

    Returns
    -------
    Schedule or None
        ``None`` means that this construction found nothing, not that nothing exists, unless
        LB(g) exceeds the limit.
    """
    bound = lower_bound_s(shape)
    limit = _serial_seconds(shape) if limit_s is None else limit_s
    if bound > limit * (1 + REL_EPS):
        return None
    if _is_open_shop(shape):
        return open_shop(shape.rollout_s, shape.train_s)
    starts = _pack_any(shape, bound, orders)
    if starts is not None:
        return Schedule(period_s=bound, starts_s=starts, bound_s=bound)
    starts = _pack_any(shape, limit, orders)
    if starts is None:
        return None
    best = least_period(shape, order_of(shape, limit, starts), start_s=bound)
    for _ in range(refine):
        if best.at_bound:
            break
        middle = (bound + best.period_s) / 2
        starts = _pack_any(shape, middle, orders)
        if starts is None:
            break
        shorter = least_period(shape, order_of(shape, middle, starts), start_s=bound)
        best = min(best, shorter, key=lambda schedule: schedule.period_s)
    return best


def _serial_seconds(shape: GroupShape) -> float:
    """Return the period of one iteration after the other, a bound that always works."""
    return sum(
        rate * (p + q + s)
        for rate, p, q, s in zip(
            shape.rates, shape.rollout_s, shape.train_s, shape.sync_s, strict=True
        )
    )
