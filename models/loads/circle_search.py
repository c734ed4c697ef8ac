"""Starts of many single-node jobs on one circle, by ejection.

Where insertion in fixed orders (:mod:`models.group.packing`) fails, usually a schedule exists all
the same: nodes are full, so the few orders that fit are not met by chance. Here a job that
fits nowhere is put where it displaces least; what it displaces is put elsewhere in turn.

Sets and parameters: jobs ``j`` of one group, each on one rollout node and one train node;
phases ``p_j``, ``q_j`` with the switches they pay; sync ``s_j``; the period ``C``.

Variables: starts ``x_j``, ``y_j`` in ``[0, C)``; the wait ``(y_j - x_j - p_j) mod C`` is at most
``C - p_j - q_j - s_j``, of a one-step job ``2 C - p_j - q_j - s_j``, which may be any; phases on a
node are disjoint arcs.

Candidates of a job: its rollout right behind or right before a phase on its node, its train
likewise on its node, and each right next to the other. The cost of a candidate is the sum of
the weights of the jobs it displaces; the weight of a job grows whenever it is displaced, so
that the same jobs do not take each other's place for ever (breakout local search). Ties are
broken by a generator with explicit state: same seed, same schedule, compiled or not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.group.packing import first_turn
from models.loads.load_state import below
from models.problem.compiled import COMPILED, compiled
from models.problem.group_shape import GroupShape, Schedule, lower_bound_s
from models.problem.options import Deadline

__all__ = ["schedule_on_circle"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Relative slack of seconds: round-off only, far below the checker's tolerance.
_EPS: Final = 1e-12
#: Placements per call of the kernel, below 0.3 s.
_CALL: Final = 2_000 if COMPILED else 50


class Side(NamedTuple):
    """The phases of one pool.

    Attributes
    ----------
    phase_s : (n,) float64
    start_s : (n,) float64
        In ``[0, C)``; negative: not placed.
    node : (n,) int64
    jobs : (nodes, k) int64
        Of each node, padded with -1.
    held : (nodes,) int64
        Jobs of each node.
    """

    phase_s: FloatArray
    start_s: FloatArray
    node: IntArray
    jobs: IntArray
    held: IntArray


class Queue(NamedTuple):
    """Jobs that wait to be placed, and what they weigh."""

    jobs: IntArray
    length: IntArray
    weight: FloatArray


@compiled
def _turned(x: float, circle: float) -> float:
    """Return a moment within one turn of ``[0, C)`` as one in it."""
    if x < 0.0:
        x += circle
    if x >= circle:
        x -= circle
    return x


@compiled
def _clash(a: float, a_s: float, b: float, b_s: float, circle: float) -> bool:
    """Return whether two arcs of the circle, from ``a`` and from ``b``, meet."""
    eps = _EPS * circle
    ahead = _turned(b - a, circle)
    behind = circle - ahead
    return (ahead < a_s - eps and behind > eps) or behind < b_s - eps


@compiled
def _displaced(
    j: int, start: float, side: Side, weight: FloatArray, circle: float, most: float
) -> float:
    """Return the weight of the placed jobs that a phase meets on its node, cut off at ``most``."""
    total = 0.0
    node = side.node[j]
    for i in range(side.held[node]):
        k = side.jobs[node, i]
        at = side.start_s[k]
        if k == j or at < 0.0:
            continue
        if _clash(start, side.phase_s[j], at, side.phase_s[k], circle):
            total += weight[k]
            if total > most:
                break
    return total


@compiled
def _spots(j: int, side: Side, circle: float, out: FloatArray) -> int:
    """List the starts of a phase next to the placed phases on its node; return how many."""
    found = 0
    node = side.node[j]
    for i in range(side.held[node]):
        k = side.jobs[node, i]
        if k != j and side.start_s[k] >= 0.0:
            out[found] = _turned(side.start_s[k] + side.phase_s[k], circle)
            out[found + 1] = _turned(side.start_s[k] - side.phase_s[j], circle)
            found += 2
    return found


@compiled
def _eject(j: int, start: float, side: Side, other: Side, queue: Queue, circle: float) -> None:
    """Unplace, in both pools, what a phase meets on its node."""
    node = side.node[j]
    for i in range(side.held[node]):
        k = side.jobs[node, i]
        at = side.start_s[k]
        if k == j or at < 0.0:
            continue
        if _clash(start, side.phase_s[j], at, side.phase_s[k], circle):
            side.start_s[k] = -1.0
            other.start_s[k] = -1.0
            queue.weight[k] += 1.0
            queue.jobs[queue.length[0]] = k
            queue.length[0] += 1


@compiled
def _candidates(
    j: int,
    rollout: Side,
    train: Side,
    slack: float,
    circle: float,
    xs: FloatArray,
    ys: FloatArray,
) -> tuple[int, int]:
    """List rollout starts and train starts of a job; return how many of each."""
    nx = _spots(j, rollout, circle, xs)
    ny = _spots(j, train, circle, ys)
    if nx + ny == 0:
        xs[0] = 0.0
        nx = 1
    next_to_x, next_to_y = nx, ny
    for i in range(next_to_x):  # the train as early, and as late, as this rollout lets it
        early = _turned(xs[i] + rollout.phase_s[j], circle)
        ys[ny] = early
        ys[ny + 1] = _turned(early + slack, circle)
        ny += 2
    for i in range(next_to_y):
        late = _turned(ys[i] - rollout.phase_s[j], circle)
        xs[nx] = late
        xs[nx + 1] = _turned(late - slack, circle)
        nx += 2
    return nx, ny


@compiled
def _place(
    j: int, rollout: Side, train: Side, slack: float, circle: float, queue: Queue, rng: IntArray
) -> None:
    """Place a job where it displaces least, ties at random, and unplace what it displaces."""
    n = len(queue.weight)
    xs = np.empty(4 * n + 4)
    ys = np.empty(4 * n + 4)
    nx, ny = _candidates(j, rollout, train, slack, circle, xs, ys)
    eps = _EPS * circle
    best = np.inf
    best_x = 0.0
    best_y = 0.0
    ties = 0
    for i in range(nx):
        left = _displaced(j, xs[i], rollout, queue.weight, circle, best)
        if left > best:
            continue
        ready = _turned(xs[i] + rollout.phase_s[j], circle)
        for k in range(ny):
            wait = _turned(ys[k] - ready, circle)
            if wait > slack + eps and circle - wait > eps:
                continue
            cost = left + _displaced(j, ys[k], train, queue.weight, circle, best - left)
            if cost < best:
                best = cost
                ties = 0
            if cost == best:
                ties += 1
                if below(rng, ties) == 0:
                    best_x = xs[i]
                    best_y = ys[k]
    if best > 0.0:
        _eject(j, best_x, rollout, train, queue, circle)
        _eject(j, best_y, train, rollout, queue, circle)
    rollout.start_s[j] = best_x
    train.start_s[j] = best_y


@compiled
def search_circle(
    circle: float,
    slack_s: FloatArray,
    rollout: Side,
    train: Side,
    queue: Queue,
    steps: int,
    rng: IntArray,
) -> int:
    """Place all jobs of the queue, the last first; return the steps left, 0 when out of them.

    Parameters
    ----------
    slack_s : (n,) float64
        Longest wait of each job between its rollout and its train.
    rollout, train : Side
        Starts are written.
    queue : Queue
        Room for ``2 n`` jobs.
    """
    while queue.length[0] > 0:
        if steps == 0:
            return 0
        steps -= 1
        queue.length[0] -= 1
        j = queue.jobs[queue.length[0]]
        _place(j, rollout, train, slack_s[j], circle, queue, rng)
        last = queue.length[0] - 1
        if last > 0:  # any of those that wait comes next
            i = below(rng, last + 1)
            queue.jobs[i], queue.jobs[last] = queue.jobs[last], queue.jobs[i]
    return steps + 1


def _side(phase_s: tuple[float, ...], pins: tuple[tuple[int, ...], ...]) -> Side:
    node = np.array([nodes[0] for nodes in pins], dtype=np.int64)
    count = np.bincount(node).astype(np.int64)
    jobs = np.full((len(count), count.max()), -1, dtype=np.int64)
    for n in range(len(count)):
        jobs[n, : count[n]] = np.flatnonzero(node == n)
    return Side(np.array(phase_s, dtype=np.float64), np.full(len(node), -1.0), node, jobs, count)


def schedule_on_circle(
    shape: GroupShape,
    period_s: float,
    *,
    steps: int,
    seed: int = 0,
    deadline: Deadline | None = None,
) -> Schedule | None:
    """Return a schedule of exactly this period, or ``None`` when none was found.

    Parameters
    ----------
    shape : GroupShape
        Of single-node jobs at rate 1; nodes numbered from 0 in each pool.
    period_s : float
    steps : int
        Most placements.
    seed : int
    deadline : Deadline, optional

    Raises
    ------
    OutOfTimeError
        When the deadline passes before it is known.
    """
    bound = lower_bound_s(shape)
    if bound > period_s:
        return None
    n = len(shape)
    rollout = _side(shape.rollout_s, shape.rollout_pins)
    train = _side(shape.train_s, shape.train_pins)
    busy = rollout.phase_s + train.phase_s + np.array(shape.sync_s, dtype=np.float64)
    slack = np.maximum(period_s - busy, 0.0)
    for j, lag in enumerate(shape.lags):
        if lag > 1:
            slack[j] = min(max(lag * period_s - busy[j], 0.0), period_s)
    waiting = np.full(2 * n, -1, dtype=np.int64)
    waiting[:n] = np.argsort(busy, kind="stable")
    queue = Queue(waiting, np.array([n], dtype=np.int64), np.ones(n))
    rng = np.random.SeedSequence((seed, n)).generate_state(4).astype(np.int64)
    rng[0] |= 1  # never all zero
    for done in range(0, steps, _CALL):
        if deadline is not None:
            deadline.check()
        some = min(_CALL, steps - done)
        if search_circle(period_s, slack, rollout, train, queue, some, rng):
            break
    else:
        return None
    starts = []
    for j in range(n):
        begin, phase = float(rollout.start_s[j]), shape.rollout_s[j]
        wait = float(train.start_s[j] - begin - phase) % period_s
        if wait > slack[j]:  # round-off: before the window begins, or after it ends
            wait = 0.0 if period_s - wait < wait - slack[j] else float(slack[j])
        starts.append(first_turn(((begin, begin + phase + wait),), period_s))
    return Schedule(period_s=period_s, starts_s=tuple(starts), bound_s=bound)
