"""Interleaved iterations of a group, each phase as early as its order allows.

For jobs with several iterations per period. An order is a sequence of jobs, job ``j`` in it
``k_j`` times; it repeats for ever, and every node serves its phases in this sequence. The
start of every phase in turn ``m + 1`` then follows from those of turn ``m`` (a max-plus linear
map ``A``), and for *any* starts ``x`` the largest ``(A x - x)_u`` is a period in which ``x`` is
a valid schedule: ``x + C >= A x`` is what all its constraints say. It never grows from turn to
turn and tends to the least period of the order (the eigenvalue of ``A``), which three turns
reached for each of 2,400 orders of production-like groups. So an order costs ``8 sum k_j``
steps, and no period need be given in advance.

A one-step job's rollout waits for the train of two iterations before, so turn ``m + 1`` may follow
from turn ``m - 1`` too: where the job has one iteration. Then ``x_j + 2 C >= y_j + q_j + s_j`` is
asked of ``C`` beside the rest.

Orders (:func:`interleavings`): iteration ``i`` of a job is put at the share ``(i + f) / k_j``
of the turn. The jobs' offsets ``f`` are multiples of the golden ratio, which keeps any number
of them apart, fewest iterations first, then longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import sub
from typing import Final

from models.group.packing import first_turn
from models.problem.group_shape import GroupShape, Starts

__all__ = ["interleavings", "self_timed"]

#: Offset of the first job, order by order.
_SHIFTS: Final = (0.5, 0.75, 0.25, 0.0)
_GOLDEN: Final = (5**0.5 - 1) / 2
#: Turns after the first.
_TURNS: Final = 3


def interleavings(shape: GroupShape, most: int) -> Iterator[list[int]]:
    """Yield up to ``most`` orders, four at most, duplicates left out."""
    rates = shape.rates
    ranked = sorted(
        range(len(rates)),
        key=lambda j: (rates[j], -shape.own_s(j)),
    )
    seen: list[list[int]] = []
    for shift in _SHIFTS[:most]:
        places = []
        for rank, j in enumerate(ranked):
            offset = (shift + rank * _GOLDEN) % 1.0
            places += [((i + offset) / rates[j], rank, j) for i in range(rates[j])]
        places.sort()
        order = [j for _, _, j in places]
        if order not in seen:
            seen.append(order)
            yield order


def self_timed(shape: GroupShape, order: Sequence[int]) -> tuple[float, Starts]:
    """Return a period and starts of an order, the shortest period of the turns tried.

    Parameters
    ----------
    shape : GroupShape
    order : sequence of int
        Every job as often as it has iterations.

    Returns
    -------
    (float, tuple)
        Seconds, and starts that are valid for them.
    """
    turn = _gang_turn if _has_gangs(shape) or shape.lags else _turn
    free = (
        dict.fromkeys((node for nodes in shape.rollout_pins for node in nodes), 0.0),
        dict.fromkeys((node for nodes in shape.train_pins for node in nodes), 0.0),
        [[0.0] * shape.lag(j) for j in range(len(shape))],
    )
    before = turn(shape, order, free)
    best, period = before, float("inf")
    for _ in range(_TURNS):
        now = turn(shape, order, free)
        longest = max(map(sub, now, before))
        if shape.lags:
            longest = max(longest, _two_turns_s(shape, order, before))
        if longest < period:
            best, period = before, longest
        before = now
    pairs: list[list[tuple[float, float]]] = [[] for _ in shape.rates]
    for j, pair in zip(order, zip(best[::2], best[1::2], strict=True), strict=True):
        pairs[j].append(pair)
    return period, tuple(first_turn(tuple(job), period) for job in pairs)


#: When each rollout node and each train node is free, and each job may start its next rollouts.
Free = tuple[dict[int, float], dict[int, float], list[list[float]]]


def _two_turns_s(shape: GroupShape, order: Sequence[int], starts: Sequence[float]) -> float:
    """Return what one-step jobs of one iteration ask of the period, by these starts of a turn."""
    longest = 0.0
    for at, j in enumerate(order):
        if shape.rates[j] < shape.lag(j):
            end = starts[2 * at + 1] + shape.train_s[j] + shape.sync_s[j]
            longest = max(longest, (end - starts[2 * at]) / shape.lag(j))
    return longest


def _has_gangs(shape: GroupShape) -> bool:
    return max(map(len, shape.rollout_pins)) > 1 or max(map(len, shape.train_pins)) > 1


def _turn(shape: GroupShape, order: Sequence[int], free: Free) -> list[float]:
    """Return the starts of one turn, rollout and train by turns; every phase on one node."""
    free_r, free_t, ready = free
    jobs = list(
        zip(
            shape.rollout_s,
            shape.train_s,
            shape.sync_s,
            [nodes[0] for nodes in shape.rollout_pins],
            [nodes[0] for nodes in shape.train_pins],
            strict=True,
        )
    )
    now: list[float] = []
    for j in order:
        rollout_s, train_s, sync_s, r_node, t_node = jobs[j]
        start, busy = ready[j][0], free_r[r_node]
        if busy > start:
            start = busy
        now.append(start)
        free_r[r_node] = start = start + rollout_s
        busy = free_t[t_node]
        if busy > start:
            start = busy
        now.append(start)
        free_t[t_node] = start = start + train_s
        ready[j][0] = start + sync_s
    return now


def _gang_turn(shape: GroupShape, order: Sequence[int], free: Free) -> list[float]:
    """Return the starts of one turn, rollout and train by turns."""
    free_r, free_t, ready = free
    now: list[float] = []
    for j in order:
        start = ready[j].pop(0)
        for node in shape.rollout_pins[j]:
            if free_r[node] > start:
                start = free_r[node]
        now.append(start)
        start += shape.rollout_s[j]
        for node in shape.rollout_pins[j]:
            free_r[node] = start
        for node in shape.train_pins[j]:
            if free_t[node] > start:
                start = free_t[node]
        now.append(start)
        start += shape.train_s[j]
        for node in shape.train_pins[j]:
            free_t[node] = start
        ready[j].append(start + shape.sync_s[j])
    return now
