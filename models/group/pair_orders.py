"""Exact search for a schedule of given pins, rates and period.

Sets and parameters
-------------------
phases ``u`` of ``d_u`` seconds, those of one job in a closed chain around the circle of length
``C``; pairs ``(u, v)`` of phases of different jobs with a node in common. A phase that shares
its nodes with no job gets no variable: its seconds are part of the distance of its neighbours.

Variables
---------
``x_u`` the start of phase ``u`` on the unrolled circle, seconds; per pair an integer ``K``, at
once the order of the two and the turns between them.

Constraints
-----------
* chain (:func:`_chains`): ``x_v - x_u >= w`` for a phase and the next one of its job, and
  ``x_u + C - x_v >= w`` for its first and its last; a one-step job's rollout waits for the train
  of two iterations before, and the rollouts, like the trains, follow one another
  (:func:`_one_step`): all its phases get variables;
* pair (:func:`_settle`): ``d_u - K C <= x_v - x_u <= C - d_v - K C``, the arcs are disjoint;
* numbering (:func:`_number`): ``K = 0`` between one phase of a job and all of the next job.

With every ``K`` given these are differences, which longest paths decide. The search keeps for
all ``u, v`` the largest proved lower bound ``rows[u][v]`` of ``x_v - x_u`` (:func:`_post`). So
a pair allows only those ``K`` whose interval meets ``[rows[u][v], -rows[v][u]]``: none is a
contradiction, a single one is posted. When nothing more is forced, starts halfway between
earliest and latest are tried. If phases overlap in them, the search branches on the overlapping
pair whose freest ``K`` is the least free, and takes that ``K`` first. Chains leave little
freedom: groups of up to five jobs mostly take fewer than twenty branches, with a schedule or
without one.

This is precedence posting in a distance graph (Dechter, Meiri and Pearl 1991; branching like
Cheng and Smith 1997), made cyclic by ``K``.

Assumptions
-----------
Phases are longer than 0 s. Jobs that no sequence of shared nodes joins are decided apart. A
job's iterations are alike, and it may be turned by whole periods: so its first iteration may be
the first one after some phase of another job, which numbering says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from models.group.packing import EPS, first_turn
from models.problem.group_shape import GroupShape, Pins, Starts

__all__ = ["Decision", "decide_orders"]

INFINITY: Final = float("inf")

Rows = list[list[float]]
#: Two phases with a node in common, and their seconds: (u, v, d_u, d_v).
Pair = tuple[int, int, float, float]
#: A pair and its K: a whole number, kept as a float.
Choice = tuple[Pair, float]
#: (0 rollout or 1 train, job, another job that shares a node with it).
Link = tuple[int, int, int]


class Decision(NamedTuple):
    """Answer of the search.

    Attributes
    ----------
    starts_s : tuple or None
        Starts of all jobs; ``None`` when there are none, or the search was cut short.
    proved : bool
        Whether ``None`` proves that no schedule of this period, or of a shorter one, exists.
    branches : int
        Nodes of the search tree.
    """

    starts_s: Starts | None
    proved: bool
    branches: int


class _Places(NamedTuple):
    """Where the phases of a part are found: ``base[phase, job] + i * step[job]``."""

    base: dict[tuple[int, int], int]
    step: dict[int, int]
    size: int


def decide_orders(shape: GroupShape, period_s: float, most: int) -> Decision:
    """Decide whether a group has a schedule of this period.

    Parameters
    ----------
    shape : GroupShape
    period_s : float
        Seconds.
    most : int
        Branches after which the search gives up.

    Returns
    -------
    Decision
        Its starts break no rule by more than ``1e-10 x period_s``; a proof allows as much.
    """
    solo = [shape.own_s(j) for j in range(len(shape))]
    if any(k * t > period_s * (1 + EPS) for k, t in zip(shape.rates, solo, strict=True)):
        return Decision(None, True, 0)
    partners = _partners(shape.rollout_pins), _partners(shape.train_pins)
    starts: list[tuple[tuple[float, float], ...]] = [()] * len(shape)
    branches = 0
    for jobs, links in _parts(shape.rates, solo, partners):
        if not links:
            (j,) = jobs
            p, t = shape.rollout_s[j], solo[j]
            starts[j] = tuple((i * t, i * t + p) for i in range(shape.rates[j]))
            continue
        places, rows = _chains(shape, period_s, jobs, partners)
        x = None
        if _number(shape, period_s, links, places, rows):
            pairs = _pairs(shape, jobs, links, partners, places)
            x, used = _search(rows, pairs, period_s, most - branches)
            branches += used
        if x is None:
            return Decision(None, branches <= most, min(branches, most))
        for j in jobs:
            starts[j] = first_turn(_starts_of(shape, j, places, x), period_s)
    return Decision(tuple(starts), True, branches)


def _partners(pins: Sequence[Pins]) -> list[list[int]]:
    """Return per job the others that share a node with it in one pool."""
    return [
        [i for i, b in enumerate(pins) if i != j and (a == b or any(node in b for node in a))]
        for j, a in enumerate(pins)
    ]


def _parts(
    rates: Sequence[int], solo: Sequence[float], partners: tuple[list[list[int]], list[list[int]]]
) -> Iterator[tuple[list[int], list[Link]]]:
    """Yield jobs joined by shared nodes, and for each but the first its link to one before.

    Fewest iterations first, then longest: what is numbered from a job with one iteration has
    no twins left.
    """
    left = sorted(range(len(rates)), key=lambda j: (rates[j], -solo[j]))
    while left:
        jobs: list[int] = [left.pop(0)]
        links: list[Link] = []
        link: Link | None = (0, 0, 0)
        while link is not None:
            link = next(
                (
                    (phase, i, j)
                    for j in left
                    for phase in (1, 0)
                    for i in jobs
                    if j in partners[phase][i]
                ),
                None,
            )
            if link is not None:
                links.append(link)
                jobs.append(link[2])
                left.remove(link[2])
        yield jobs, links


def _chains(
    shape: GroupShape,
    circle: float,
    jobs: Sequence[int],
    partners: tuple[list[list[int]], list[list[int]]],
) -> tuple[_Places, Rows]:
    """Number the phases that share nodes, and close the chain of each job.

    From a phase forward to a later one: the seconds between them, nothing waiting; back to an
    earlier one: a whole turn less, ``k_j (p_j + q_j + s_j) - C`` more.
    """
    base: dict[tuple[int, int], int] = {}
    step: dict[int, int] = {}
    size = 0
    for j in jobs:
        step[j] = 0
        for phase in (0, 1):
            if partners[phase][j] or shape.lag(j) > 1:
                base[phase, j] = size + step[j]
                step[j] += 1
        size += shape.rates[j] * step[j]
    rows: Rows = []
    for j in jobs:
        if shape.lag(j) > 1:
            begin = len(rows)
            for own in _one_step(shape, j, circle):
                row = [-INFINITY] * size
                row[begin : begin + len(own)] = own
                rows.append(row)
            continue
        p = shape.rollout_s[j]
        turn = p + shape.train_s[j] + shape.sync_s[j]
        within = [phase * p for phase in (0, 1) if partners[phase][j]]
        after = [i * turn + x for i in range(shape.rates[j]) for x in within]
        back = min(shape.rates[j] * turn - circle, 0.0)
        begin = len(rows)
        for u, x in enumerate(after):
            row = [-INFINITY] * size
            row[begin : begin + u] = [y - x + back for y in after[:u]]
            row[begin + u : begin + len(after)] = [y - x for y in after[u:]]
            rows.append(row)
    return _Places(base, step, size), rows


def _one_step(shape: GroupShape, j: int, circle: float) -> Rows:
    """Return the closed rows of a one-step job, rollout and train by turns: longest paths."""
    rate, p, q = shape.rates[j], shape.rollout_s[j], shape.train_s[j]
    circle = max(circle, rate * shape.own_s(j))  # round-off: no positive cycle
    rows = [[-INFINITY] * (2 * rate) for _ in range(2 * rate)]
    for i in range(rate):
        x, y = 2 * i, 2 * i + 1
        for u, ahead, phase, weight in (
            (x, 0, 1, p),
            (y, shape.lag(j), 0, q + shape.sync_s[j]),
            (x, 1, 0, p),
            (y, 1, 1, q),
        ):
            turns, k = divmod(i + ahead, rate)
            v = 2 * k + phase
            rows[u][v] = max(rows[u][v], weight - turns * circle)
    for at, beyond in enumerate(rows):
        for row in rows:
            reach = row[at]
            row[:] = [a if a > reach + b else reach + b for a, b in zip(row, beyond, strict=True)]
    for at, row in enumerate(rows):
        row[at] = 0.0
    return rows


def _number(
    shape: GroupShape, circle: float, links: Sequence[Link], places: _Places, rows: Rows
) -> bool:
    """Post ``K = 0`` between one phase of a job and the first and last of the next job."""
    eps = EPS * circle
    seconds = shape.rollout_s, shape.train_s
    for phase, i, j in links:
        u, first = places.base[phase, i], places.base[phase, j]
        last = first + (shape.rates[j] - 1) * places.step[j]
        if not _post(rows, u, first, seconds[phase][i], eps):
            return False
        if not _post(rows, last, u, seconds[phase][j] - circle, eps):
            return False
    return True


def _pairs(
    shape: GroupShape,
    jobs: Sequence[int],
    links: Sequence[Link],
    partners: tuple[list[list[int]], list[list[int]]],
    places: _Places,
) -> list[Pair]:
    """Return the pairs of a part that numbering has not decided."""
    out: list[Pair] = []
    rates, base, step = shape.rates, places.base, places.step
    for phase, seconds in enumerate((shape.rollout_s, shape.train_s)):
        for j in jobs:
            for i in partners[phase][j]:
                if i > j:
                    continue
                # the first phase of the earlier job of a link has its pairs decided
                skip_u, skip_v = (phase, i, j) in links, (phase, j, i) in links
                out += [
                    (base[phase, i] + a * step[i], base[phase, j] + b * step[j], d_u, d_v)
                    for d_u, d_v in ((seconds[i], seconds[j]),)
                    for a in range(skip_u, rates[i])
                    for b in range(skip_v, rates[j])
                ]
    return out


def _post(rows: Rows, u: int, v: int, weight: float, eps: float) -> bool:
    """Add ``x_v - x_u >= weight`` to closed rows; False when they contradict it.

    Rows are replaced, not changed, so that a copy of the list keeps the old ones.
    """
    beyond = rows[v]
    if weight + beyond[u] > 0.0:
        if weight + beyond[u] > eps:
            return False
        weight = -beyond[u]
    for i, row in enumerate(rows):
        reach = row[u] + weight
        if reach > row[v]:
            rows[i] = [x if x > reach + y else reach + y for x, y in zip(row, beyond, strict=False)]
    return True


def _settle(rows: Rows, pairs: list[Pair], circle: float) -> list[Pair] | None:
    """Post every pair that has one ``K`` left; return the others, None on a contradiction.

    What moves a bound furthest is posted first: it often implies the rest.
    """
    eps = EPS * circle
    while True:
        news: list[tuple[float, int, int, float]] = []
        still_open = []
        for pair in pairs:
            u, v, d_u, d_v = pair
            low, back = rows[u][v], rows[v][u]
            least = -((eps - back - d_u) // circle)
            most = (circle - d_v - low + eps) // circle
            if least < most:
                still_open.append(pair)
                continue
            if least > most:
                return None
            after, before = d_u - least * circle, d_v - circle + least * circle
            if after > low + eps:
                news.append((after - low, u, v, after))
            if before > back + eps:
                news.append((before - back, v, u, before))
        if not news:
            return still_open
        pairs = still_open
        news.sort(reverse=True)
        for _, u, v, weight in news:
            if rows[u][v] + eps < weight and not _post(rows, u, v, weight, eps):
                return None


def _choices(rows: Rows, pairs: list[Pair], circle: float, x: list[float]) -> list[Choice]:
    """Return the pair to branch on with each of its K, freest last; nothing if x is valid."""
    eps = EPS * circle
    tightest, chosen = INFINITY, None
    for pair in pairs:
        u, v, d_u, d_v = pair
        if d_u - eps <= (x[v] - x[u]) % circle <= circle - d_v + eps:
            continue
        low, high = rows[u][v], -rows[v][u]
        k, most = -((eps + high - d_u) // circle), (circle - d_v - low + eps) // circle
        found = []
        while k <= most:
            after, before = d_u - k * circle, circle - d_v - k * circle
            found.append((min(before, high) - max(after, low), k))
            k += 1.0
        freest = max(found)[0]
        if freest < tightest:
            tightest, chosen = freest, (pair, found)
    if chosen is None:
        return []
    return [(chosen[0], k) for _, k in sorted(chosen[1])]


def _take(rows: Rows, choice: Choice, circle: float) -> bool:
    """Post the two differences of a pair with its K; False when they contradict the rows."""
    (u, v, d_u, d_v), k = choice
    eps = EPS * circle
    return _post(rows, u, v, d_u - k * circle, eps) and _post(
        rows, v, u, d_v - circle + k * circle, eps
    )


def _search(
    rows: Rows, pairs: list[Pair], circle: float, most: int
) -> tuple[list[float] | None, int]:
    """Return starts or None, and the branches used, ``most + 1`` when they ran out."""
    stack: list[tuple[Rows, list[Pair], Choice | None]] = [(rows, pairs, None)]
    branches = 0
    while stack:
        rows, pairs, choice = stack.pop()
        branches += 1
        if branches > most:
            return None, branches
        rows = rows.copy()
        if choice is not None and not _take(rows, choice, circle):
            continue
        still_open = _settle(rows, pairs, circle)
        if still_open is None:
            continue
        # halfway between earliest and latest, counted from the first phase
        x = [(ahead - row[0]) / 2 for ahead, row in zip(rows[0], rows, strict=False)]
        choices = _choices(rows, still_open, circle, x)
        if not choices:
            return x, branches
        stack += [(rows, still_open, choice) for choice in choices]
    return None, branches


def _starts_of(
    shape: GroupShape, j: int, places: _Places, x: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Return a job's starts; a phase that shares no node is next to the one that does."""
    p, step = shape.rollout_s[j], places.step[j]
    rollout, train = (places.base.get((phase, j)) for phase in (0, 1))
    out = []
    for i in range(shape.rates[j]):
        if rollout is None:
            assert train is not None
            start = x[train + i * step]
            out.append((start - p, start))
        else:
            start = x[rollout + i * step]
            out.append((start, start + p if train is None else x[train + i * step]))
    return tuple(out)
