"""Two ways to fill a circle of given length: the kernels of ``models.group.period.construct``.

**One node first** (:func:`one_node_first`), for single-node jobs with one iteration each that
all share one node of one pool. That node's phases are laid one after the other without idle
time; then job ``j``'s other phase may start in a window of length ``C - p_j - q_j - s_j`` right
after the first (and its sync). The other pool's nodes are now independent: on each, a cyclic
order of its phases fits or not, decided by pushing starts forward. Orders of the shared node
are tried one after the other. On groups met by the placer this finds the lower bound almost
always, mostly with the first order.

**Insertion** (:func:`pack`), for any pins and one iteration each. A node's busy time is a
sorted list of arcs ``(start, end)`` with ``0 <= start < C`` and ``end`` possibly past ``C``; a
gang's is the union over its nodes. Jobs are inserted one after the other. For one job, all
pairs of a rollout gap and a train gap are tried; within a pair the feasible (rollout start,
train start) form a polygon, and only its vertices are tried: there at least one phase touches
a neighbour. The cost of a choice is the smaller leftover piece on either side plus a tenth of
the gap's leftover, weighted by how full that pool's node is. A job of several iterations is
inserted as one chain (:func:`place_chain`).

A job whose next rollout but one waits for its train (lag 2) has a circle more of room: with one
iteration per period it is a job of ``s - C`` seconds of sync, its window ``2 C - p - q - s``.

Both are plain Python on short lists: a group has a handful of jobs, where NumPy's call overhead
exceeds the work.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import islice, permutations
from typing import Final

__all__ = ["EPS", "first_turn", "one_node_first", "pack", "place_chain", "place_one"]

#: Relative slack of comparisons, far below the checker's tolerance.
EPS: Final = 1e-10
#: Weight of a gap's total leftover against its smaller leftover piece.
LEFTOVER_WEIGHT: Final = 0.1
#: How often the first phase of a node is pushed back to make room for the last.
_PUSHES: Final = 6
INFINITY: Final = float("inf")

Arc = tuple[float, float]
Pins = tuple[int, ...]
Pairs = tuple[tuple[float, float], ...]


def _busy(arcs: dict[int, list[Arc]], pins: Pins) -> list[Arc]:
    """Return the sorted busy arcs of a set of nodes."""
    if len(pins) == 1:
        return arcs.setdefault(pins[0], [])
    merged = {arc for node in pins for arc in arcs.setdefault(node, [])}
    return sorted(merged)


def _gaps(busy: list[Arc], circle: float, least: float) -> list[Arc]:
    """Return free ``(begin, length)`` of at least ``least``; ``begin`` may exceed the circle.

    ``busy`` is not empty.
    """
    out = []
    begin = busy[-1][1] - circle  # where the arcs of the last turn end
    if len(busy) > 1:
        begin = max(end for _, end in busy) - circle
    for start, end in busy:
        if start - begin >= least:
            out.append((begin, start - begin))
        if end > begin:
            begin = end
    return out


def place_one(
    circle: float, busy_r: list[Arc], busy_t: list[Arc], p: float, q: float, s: float
) -> Arc | None:
    """Return (rollout start, train start) of one iteration inserted into both pools.

    Parameters
    ----------
    circle : float
        Length of the circle, seconds.
    busy_r, busy_t : list of (float, float)
        Sorted busy arcs of the rollout and of the train nodes of the job.
    p, q, s : float
        Rollout, train and sync seconds; of a job of lag 2, sync less a circle.
    """
    eps = EPS * circle
    slack = circle - p - q - s
    if slack < -eps:
        return None
    if s < 0.0:  # else the slack says that both phases fit
        if p > circle + eps or q > circle + eps:
            return None
        slack = min(slack, circle)  # any wait, modulo the circle
    if not busy_t:
        begin = _smallest(busy_r, circle, p - eps)
        return None if begin is None else (begin, begin + p)
    if not busy_r:
        begin = _smallest(busy_t, circle, q - eps)
        return None if begin is None else (begin - p, begin)
    gaps_r, gaps_t = _gaps(busy_r, circle, p - eps), _gaps(busy_t, circle, q - eps)
    if not gaps_r or not gaps_t:
        return None
    weight_r, weight_t = p, q
    for start, end in busy_r:
        weight_r += end - start
    for start, end in busy_t:
        weight_t += end - start
    return _between(gaps_r, gaps_t, circle, (p, q, max(slack, 0.0)), (weight_r, weight_t))


def _between(
    gaps_r: list[Arc],
    gaps_t: list[Arc],
    circle: float,
    phases: tuple[float, float, float],
    weights: Arc,
) -> Arc | None:
    """Return the starts of least cost over all pairs of gaps; ``phases`` is (p, q, slack)."""
    p, q, slack = phases
    weight_r, weight_t = weights
    eps = EPS * circle
    best_cost, best = INFINITY, None
    for a, length_r in gaps_r:
        room_r = length_r - p if length_r > p else 0.0
        for c, length_t in gaps_t:
            room_t = length_t - q if length_t > q else 0.0
            floor = LEFTOVER_WEIGHT * (weight_r * room_r + weight_t * room_t)
            if floor >= best_cost:
                continue
            # train start - rollout end, modulo the circle, with both flush left; from the
            # least turn at which some (u, v) makes it non-negative
            wait = (c - a - p) % circle
            if wait + room_t >= circle - eps:
                wait -= circle
            while wait - room_r <= slack + eps:
                for u, v in _vertices(wait, slack, room_r, room_t, eps):
                    cut_r = u if u + u <= room_r else room_r - u
                    cut_t = v if v + v <= room_t else room_t - v
                    cost = floor + weight_r * cut_r + weight_t * cut_t
                    if cost < best_cost - eps * circle:
                        best_cost = cost
                        end = a + u + p
                        delay = wait - u + v
                        best = (a + u, end + delay if delay > 0.0 else end)
                wait += circle
    return best


def _smallest(busy: list[Arc], circle: float, least: float) -> float | None:
    """Return where the smallest gap of at least ``least`` begins; 0 on a free circle."""
    if not busy:
        return 0.0
    gaps = _gaps(busy, circle, least)
    if not gaps:
        return None
    return min(gaps, key=_length)[0]


def _length(gap: Arc) -> float:
    return gap[1]


def _vertices(
    base: float, slack: float, room_r: float, room_t: float, eps: float
) -> list[tuple[float, float]]:
    """Return vertices of ``{0<=u<=room_r, 0<=v<=room_t, 0 <= base - u + v <= slack}``."""
    out = []
    low, high = -eps, slack + eps
    for u in (0.0, room_r) if room_r > 0.0 else (0.0,):
        w = base - u
        if low <= w <= high:
            out.append((u, 0.0))
        if low <= w + room_t <= high:
            out.append((u, room_t))
        if 0.0 < -w < room_t:
            out.append((u, -w))
        if 0.0 < slack - w < room_t:
            out.append((u, slack - w))
    for v in (0.0, room_t) if room_t > 0.0 else (0.0,):
        w = base + v
        if 0.0 < w < room_r:
            out.append((w, v))
        if 0.0 < w - slack < room_r:
            out.append((w - slack, v))
    return out


def _windows(busy: list[Arc], circle: float, length: float, eps: float) -> list[Arc]:
    """Return the earliest and the latest start of a phase in every gap that holds it."""
    if not busy:
        return []
    return [
        (begin, begin + gap - length if gap > length else begin)
        for begin, gap in _gaps(busy, circle, length - eps)
    ]


def _earliest(windows: list[Arc], circle: float, now: float, eps: float) -> float:
    """Return the earliest start from ``now`` on, in whatever turn; infinity without windows."""
    best = INFINITY
    for first, last in windows:
        start = first - ((last - now + eps) // circle) * circle
        if start <= now:
            return now
        if start < best:
            best = start
    return best


def place_chain(
    circle: float, busy_r: list[Arc], busy_t: list[Arc], p: float, q: float, s: float, rate: int
) -> Pairs | None:
    """Return starts of ``rate`` iterations inserted into both pools, ``None`` when none fit.

    A chain that fits may start earlier as a whole until one of its phases follows another job's
    at once. So one phase starts where a gap begins, of the first iteration, as all are alike;
    after it each phase is as early as it fits. Nothing that fits is missed. Of the chains that
    close within one turn the one that waits least is taken.

    Parameters
    ----------
    circle : float
        Length of the circle, seconds.
    busy_r, busy_t : list of (float, float)
        Sorted busy arcs of the rollout and of the train nodes of the job.
    p, q, s : float
        Rollout, train and sync seconds.
    rate : int
        Iterations per period, at least 1.
    """
    eps = EPS * circle
    turn = p + q + s
    if rate * turn > circle + eps:
        return None
    if not busy_r and not busy_t:
        return tuple((i * turn, i * turn + p) for i in range(rate))
    windows = _windows(busy_r, circle, p, eps), _windows(busy_t, circle, q, eps)
    free, lasts = (not busy_r, not busy_t), (p, q + s)
    best: Pairs | None = None
    best_span = circle + eps
    for first in (0, 1):
        for anchor, _ in windows[first]:
            starts, phase = [anchor], first
            now = anchor + lasts[phase]
            while now - anchor <= best_span and len(starts) < 2 * rate:
                phase = 1 - phase
                if not free[phase]:
                    now = _earliest(windows[phase], circle, now, eps)
                starts.append(now)
                now += lasts[phase]
            if now - anchor <= best_span:
                if first == 1:  # the last rollout is that of the first train, a turn later
                    starts.insert(0, starts.pop() - circle)
                best = tuple(zip(starts[::2], starts[1::2], strict=True))
                best_span = now - anchor - eps
    return best


def one_node_first(
    circle: float,
    first: Sequence[float],
    rest: Sequence[float],
    gap: Sequence[float],
    slack: Sequence[float],
    rest_pins: Sequence[Pins],
    most: int,
) -> list[tuple[float, float]] | None:
    """Schedule jobs that share one node of one pool, by laying out that node first.

    Parameters
    ----------
    circle : float
        Length of the circle, seconds; at least ``sum(first)``.
    first, rest : sequence of float
        Phase seconds on the shared node, and in the other pool.
    gap : sequence of float
        Seconds between the end of the first phase and the earliest start of the other.
    slack : sequence of float
        Width of the window for the start of the other phase.
    rest_pins : sequence of (int,)
        Node of the other pool of each job.
    most : int
        Orders of the shared node, and of each other node, to try.

    Returns
    -------
    list of (float, float), or None
        Per job the start on the shared node in ``[0, circle)``, and the start of the other
        phase modulo the circle, within its window up to round-off.
    """
    eps = EPS * circle
    n = len(first)
    nodes: dict[int, list[int]] = {}
    for j in range(n):
        nodes.setdefault(rest_pins[j][0], []).append(j)
    crowded = [jobs for jobs in nodes.values() if len(jobs) > 1]
    lead, *others = sorted(range(n), key=lambda j: -len(nodes[rest_pins[j][0]]))
    starts, opens = [0.0] * n, [0.0] * n
    for order in islice(permutations(others), most):
        now = first[lead]
        opens[lead] = now + gap[lead]
        for j in order:
            starts[j] = now
            now += first[j]
            opens[j] = now + gap[j]
        out = opens.copy()
        for jobs in crowded:
            if not _fill_node(circle, jobs, rest, opens, slack, out, most, eps):
                break
        else:
            return list(zip(starts, out, strict=True))
    return None


def _fill_node(
    circle: float,
    jobs: list[int],
    seconds: Sequence[float],
    opens: list[float],
    slack: Sequence[float],
    out: list[float],
    most: int,
    eps: float,
) -> bool:
    """Start these phases on one node within ``[opens, opens + slack]``, modulo the circle.

    For each cyclic order: the first phase starts as early as it may, every other as early as
    its window and the phase before allow; while the last runs into the next turn of the
    first, the first starts later. Exact for the order. Starts are written to ``out``.
    """
    lead, *others = jobs
    latest = opens[lead] + slack[lead] + eps
    for order in islice(permutations(others), most):
        begin = opens[lead]
        for _ in range(_PUSHES):
            if begin > latest:
                break
            now = begin + seconds[lead]
            for j in order:
                # the first window of j, modulo the circle, that is still open
                turn = -((opens[j] + slack[j] - now + eps) // circle) * circle
                start = opens[j] + turn
                if start < now:
                    start = now
                if start > opens[j] + turn + slack[j] + eps:
                    break
                out[j] = start
                now = start + seconds[j]
            else:
                excess = now - begin - circle
                if excess <= eps:
                    out[lead] = begin
                    return True
                begin += excess
                continue
            break
    return False


def pack(
    circle: float,
    p: Sequence[float],
    q: Sequence[float],
    s: Sequence[float],
    rollout_pins: Sequence[Pins],
    train_pins: Sequence[Pins],
    order: Sequence[int],
) -> list[Pairs] | None:
    """Insert the jobs, one iteration each, in ``order`` into a circle of length ``circle``.

    ``s`` as in :func:`place_one`.

    Returns
    -------
    list of tuple of (float, float), or None
        Per job its starts, first rollout in ``[0, circle)``; ``None`` when one did not fit.
    """
    arcs_r: dict[int, list[Arc]] = {}
    arcs_t: dict[int, list[Arc]] = {}
    out: list[Pairs] = [()] * len(p)
    for j in order:
        busy_r, busy_t = _busy(arcs_r, rollout_pins[j]), _busy(arcs_t, train_pins[j])
        pair = place_one(circle, busy_r, busy_t, p[j], q[j], s[j])
        if pair is None:
            return None
        out[j] = first_turn((pair,), circle)
        for x, y in out[j]:
            _occupy(arcs_r, rollout_pins[j], x % circle, p[j])
            _occupy(arcs_t, train_pins[j], y % circle, q[j])
    return out


def first_turn(pairs: Pairs, circle: float) -> Pairs:
    """Return the starts moved by whole turns so that the first lies in ``[0, circle)``."""
    x0 = pairs[0][0]
    if 0.0 <= x0 < circle:
        return pairs
    turn = (x0 // circle) * circle
    if x0 - turn >= circle:
        turn += circle
    return tuple((x - turn if x > turn else 0.0, y - turn) for x, y in pairs)


def _occupy(arcs: dict[int, list[Arc]], pins: Pins, start: float, length: float) -> None:
    arc = (start, start + length)
    for node in pins:
        insort(arcs[node], arc)
