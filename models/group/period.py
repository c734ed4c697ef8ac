"""The period of one co-execution group: lower bound, exact special cases, construction.

Sets and parameters (FORMULATION sections 1 and 2)
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
  ``x_j0 + C >= y_j(k-1) + q_j + s_j``; of a one-step job (lag 2) ``x_j(i+2) >= y_ji + q_j + s_j``
  with ``x_j(i+k) = x_ji + C``, and its rollouts follow one another, as do its trains;
* no overlap: phases pinned to one node are disjoint arcs of the circle of length ``C``.

Everything here takes phases that already include their switches (:class:`GroupShape`), so a
schedule never depends on hidden state. Three ways to a schedule:

* :func:`open_shop`: one rollout node, one train node, no sync, one iteration each: optimal,
  period ``max(sum p, sum q, max(p + q))`` (Gonzalez and Sahni 1976; built by the "longest
  alternate processing time first" rule of Pinedo, *Scheduling*, theorem 8.1.1). Not with one-step
  jobs: their own arcs may overlap.
* :func:`least_period`: the least period of *given* cyclic orders and laps, a maximum cycle
  ratio, by Newton's iteration on positive cycles.
* :func:`construct`: a schedule for any pins and rates, at or below a limit, by construction;
  with rates above 1 also by an exact search, cut short (:mod:`models.group.pair_orders`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from instances.errors import InputError
from models.group.cycle_ratio import CyclicOrder, least_period, order_of
from models.group.open_shop import open_shop
from models.group.packing import first_turn, one_node_first, pack, place_chain, place_one
from models.group.pair_orders import decide_orders
from models.group.rate_bound import is_overfull, pair_bound_s
from models.group.self_timed import interleavings, self_timed
from models.problem.group_shape import (
    REL_EPS,
    GroupShape,
    LowerBound,
    Pins,
    Schedule,
    Starts,
    lower_bound,
    lower_bound_s,
)

__all__ = [
    "CyclicOrder",
    "GroupShape",
    "LowerBound",
    "Schedule",
    "construct",
    "insert",
    "interleaved",
    "least_period",
    "lower_bound",
    "lower_bound_s",
    "open_shop",
    "order_of",
    "tightened",
]

#: Orders of the shared node, and of every other node, tried by "one node first".
_ONE_NODE_ORDERS: Final = 24
#: With rates: branches that a search is allowed, beside one per iteration of all jobs.
_BRANCHES: Final = 8
#: With rates: relative difference below which a period is not shortened.
_SAME: Final = 1e-9
#: With rates: the next period searched, on the way from what is too short to the best held.
_NEXT: Final = 0.7


def _insertion_orders(shape: GroupShape, most: int) -> Iterator[Sequence[int]]:
    """Yield up to ``most`` of the documented insertion orders, duplicates left out.

    Longest iteration first, longest train first, longest rollout first, widest gang first; ties
    by index.
    """
    p, q, s = shape.rollout_s, shape.train_s, shape.sync_s
    keys: tuple[Callable[[int], float | tuple[float, float]], ...] = (
        lambda j: -p[j] - q[j] - s[j],
        lambda j: -q[j],
        lambda j: -p[j],
        lambda j: (-len(shape.rollout_pins[j]) - len(shape.train_pins[j]), -p[j] - q[j] - s[j]),
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
        The group with the new job last; switches as they are once it is there.
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
    lag = shape.lag(-1)
    phases = shape.rollout_s[-1], shape.train_s[-1], shape.sync_s[-1] - (lag - 1) * period_s
    if shape.rates[-1] > 1:
        if lag > 1:  # its iterations are no chain; they are interleaved anew
            return None
        chain = place_chain(period_s, busy_r, busy_t, *phases, shape.rates[-1])
        return None if chain is None else (*starts_s, first_turn(chain, period_s))
    pair = place_one(period_s, busy_r, busy_t, *phases)
    return None if pair is None else (*starts_s, first_turn((pair,), period_s))


def _disjoint(a: Pins, b: Pins) -> bool:
    return a != b and not any(node in b for node in a)


def _pack_any(shape: GroupShape, circle: float, orders: int) -> Starts | None:
    """Return starts within a circle by the first of the documented ways that finds some."""
    starts = _one_node_first(shape, circle)
    if starts is not None:
        return starts
    sync_s: Sequence[float] = shape.sync_s
    if shape.lags:
        sync_s = [s - (lag - 1) * circle for s, lag in zip(sync_s, shape.lags, strict=True)]
    for order in _insertion_orders(shape, orders):
        found = pack(
            circle,
            shape.rollout_s,
            shape.train_s,
            sync_s,
            shape.rollout_pins,
            shape.train_pins,
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
    if max(map(len, pins)) > 1:
        return None
    slack = [max(circle - a - b - c, 0.0) for a, b, c in zip(p, q, s, strict=True)]
    for j, lag in enumerate(shape.lags):
        if lag > 1:  # a circle is as good as any longer window
            slack[j] = min(max(lag * circle - p[j] - q[j] - s[j], 0.0), circle)
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
        pair = (start - shape.lag(j) * circle, begin) if by_train else (begin, start)
        out.append(first_turn((pair,), circle))
    return tuple(out)


def _all_on_one(pins: Sequence[Pins]) -> bool:
    first = pins[0]
    return len(first) == 1 and all(nodes == first for nodes in pins)


def _is_open_shop(shape: GroupShape) -> bool:
    return (
        not shape.lags
        and not any(shape.sync_s)
        and len(set(shape.rollout_pins)) == len(set(shape.train_pins)) == 1
        and len(shape.rollout_pins[0]) == len(shape.train_pins[0]) == 1
    )


def construct(
    shape: GroupShape,
    *,
    limit_s: float | None = None,
    orders: int = 5,
    refine: int = 3,
) -> Schedule | None:
    """Return a schedule of period at most ``limit_s``, as short as this construction finds.

    First at LB(g) itself, which when it succeeds is optimal; else at the limit, then the
    least period of the orders so found, then up to ``refine`` attempts halfway between LB(g)
    and the best period held. At each length: one node first where all jobs share a node,
    then insertion in up to ``orders`` orders (:mod:`models.group.packing`).

    With a rate above 1: the best of up to ``orders`` interleavings
    (:mod:`models.group.self_timed`); if it exceeds the limit, the search of
    :mod:`models.group.pair_orders` at the limit, and the least period of the orders it finds; then
    up to ``refine`` such searches between the longest period known to be too short
    (:mod:`models.group.rate_bound`) or tried in vain and the best held.

    Parameters
    ----------
    shape : GroupShape
    limit_s : float, optional
        Largest period allowed, seconds, usually ``min_j D_j`` (``min_j k_j D_j`` with rates).
        Left out: one iteration after the other, which always works.
    orders : int
        How many of the documented insertion orders to try per period. With a rate above 1: how
        many interleavings; the search at the limit takes ``orders x (8 + sum k_j)`` branches at
        most, one for a shorter period ``8 + sum k_j``.
    refine : int
        Attempts at shorter periods.

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
    if max(shape.rates) > 1:
        return _construct_rates(shape, bound, limit, orders, refine)
    if _is_open_shop(shape):
        return open_shop(shape.rollout_s, shape.train_s)
    starts = _pack_any(shape, bound, orders)
    if starts is not None:
        return Schedule(period_s=bound, starts_s=starts, bound_s=bound)
    starts = _pack_any(shape, limit, orders)
    if starts is None:
        return None
    best = Schedule(period_s=limit, starts_s=starts, bound_s=bound)
    best = tightened(shape, best)
    for _ in range(refine):
        if best.at_bound:
            break
        middle = (bound + best.period_s) / 2
        starts = _pack_any(shape, middle, orders)
        if starts is None:
            break
        found = Schedule(period_s=middle, starts_s=starts, bound_s=bound)
        best = tightened(shape, found)
    return best


def _construct_rates(
    shape: GroupShape, bound: float, limit: float, orders: int, refine: int
) -> Schedule | None:
    """Return a schedule of several iterations per period, at most ``limit`` long.

    LB(g) is below the least period more often than not, so it is not tried first.
    """
    too_short = max(bound, pair_bound_s(shape))
    if too_short > limit * (1 + REL_EPS):
        return None
    branches = _BRANCHES + sum(shape.rates)
    best = interleaved(shape, bound, limit, orders)
    if best is None:
        best = _searched(shape, bound, limit, orders * branches)
    for _ in range(refine):
        if best is None or best.period_s <= too_short * (1 + _SAME):
            break
        period = too_short + _NEXT * (best.period_s - too_short)
        found = _searched(shape, bound, period, branches)
        if found is None:
            too_short = period
        else:
            best = found
    return best


def interleaved(shape: GroupShape, bound_s: float, limit_s: float, orders: int) -> Schedule | None:
    """Return the best of the interleaved orders, if it is at most ``limit_s`` long.

    The part of :func:`construct` with rates above 1 that does not search: many times as fast.

    Parameters
    ----------
    shape : GroupShape
    bound_s : float
        LB(g), at most ``limit_s``.
    limit_s : float
    orders : int
        How many interleavings to try, four at most.
    """
    best: Schedule | None = None
    for order in interleavings(shape, orders):
        period, starts = self_timed(shape, order)
        if best is None or period < best.period_s * (1 - REL_EPS):
            best = Schedule(period_s=max(period, bound_s), starts_s=starts, bound_s=bound_s)
            if best.at_bound:
                break
    if best is not None and best.period_s > limit_s >= _serial_seconds(shape) * (1 - REL_EPS):
        # the least period of any order is at most that of one iteration after the other
        best = tightened(shape, best)
    return best if best is not None and best.period_s <= limit_s * (1 + REL_EPS) else None


def _searched(shape: GroupShape, bound: float, period_s: float, most: int) -> Schedule | None:
    """Return a schedule of at most this period by the exact search, cut short."""
    if is_overfull(shape, period_s):
        return None
    starts = decide_orders(shape, period_s, most).starts_s
    if starts is None:
        return None
    return tightened(shape, Schedule(period_s=period_s, starts_s=starts, bound_s=bound))


def tightened(shape: GroupShape, schedule: Schedule) -> Schedule:
    """Return the least period of a schedule's orders and laps, never a longer one.

    Phases that are nothing beside the period (by round-off at the same instant as others) may
    be read in another order than they were laid out in, one that is longer or contradictory;
    the schedule itself is returned then.
    """
    try:
        order = order_of(shape, schedule.period_s, schedule.starts_s)
        shorter = least_period(shape, order, start_s=schedule.bound_s)
    except InputError:
        return schedule
    return shorter if shorter.period_s < schedule.period_s else schedule


def _serial_seconds(shape: GroupShape) -> float:
    """Return the period of one iteration after the other, a bound that always works."""
    return sum(
        rate * (p + q + s)
        for rate, p, q, s in zip(
            shape.rates, shape.rollout_s, shape.train_s, shape.sync_s, strict=True
        )
    )
