"""Search kernel of knapsacks of several resources; :mod:`models.bounds.knapsack` is the way in.

Problem ``p``
-------------
Sets: items ``j`` of its own, and perhaps one *forced* item ``f``. Parameters: values
``v_j >= 0``, loads ``w_jr >= 0`` and capacities ``c_r`` of resources ``r = 1..R``, most items
``B``, a floor. Variables: the set ``S`` of items taken, ``f`` among them. Find

    max  sum_{j in S} v_j    s.t.  sum_{j in S} w_jr <= c_r for all r,  |S| <= B,

where only sets worth more than the floor matter. The forced item alone is a set whatever its
loads are (a job alone on a node pays no switch). The answer is a *valid upper bound* of the
best value always, the best value itself where the search ended within its budget, and sets
above the floor, best first.

Search (:func:`_solve`), each step exact or on the safe side:

1. Shares ``s_jr = w_jr / c_r`` of the room that ``f`` leaves, with ``1 / (B - 1)`` as one more
   resource. For weights ``mu >= 0`` of sum 1 every set has ``sum_j mu s_j <= 1``, so the
   fractional knapsack of that one row is a bound (surrogate relaxation; Martello and Toth,
   *Knapsack Problems*, 1990). The weights start at single resources and move towards those that
   the fractional set overfills. At or below the floor: done.
2. With the critical ratio ``l``, any set has at most ``l + sum_j max(0, v_j - l mu s_j)``, and a
   set with an item of ``v_j < l mu s_j`` so much less: the items whose every set is at or below
   the floor are dropped, and no others.
3. Of two items the one with less value and no less load in any resource is taken only with the
   other (dominance; of equals the later one).
4. A table ``t[k, q, x]``: the most value of at most ``q`` of the items ``k, k + 1, ...`` within
   ``x`` cells, their weights ``mu s_j`` rounded *down* to cells, so a bound of whatever
   completes a set. ``q`` counts only where few items are allowed; ``mu`` then leaves it out.
5. Depth first over the items by value per weight, on the true loads, cut by the table.

Assumption: capacities carry the caller's slack for round-off. Values are told apart by ``EPS``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.problem.compiled import compiled

__all__ = ["EPS", "Answer", "Batch", "price_range"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Values within so much of each other are not told apart: an exact bound may be so much above.
EPS: Final = 1e-10
#: Cells of the completion table.
_CELLS: Final = 400
#: Most items that the table counts.
_LAYERS: Final = 7
#: Most steps of the weights of the resources.
_STEPS: Final = 8
#: Most dominating items that are remembered of one item.
_RIVALS: Final = 4


class Batch(NamedTuple):
    """What :func:`price_range` reads; see :class:`models.bounds.knapsack.Knapsacks`."""

    start: IntArray
    item: IntArray
    value: FloatArray
    loads: FloatArray
    capacity: FloatArray
    most: IntArray
    forced: IntArray
    forced_value: FloatArray
    floor: FloatArray


class Answer(NamedTuple):
    """What :func:`price_range` writes, problem by problem."""

    bound: FloatArray
    exact: BoolArray
    found: IntArray
    value: FloatArray
    sets: IntArray


class Scratch(NamedTuple):
    """Room for the items of one problem; the search reads ``[0, n)`` of each."""

    name: IntArray
    value: FloatArray
    loads: FloatArray
    share: FloatArray
    weight: FloatArray
    mix: FloatArray
    used: FloatArray
    rival: IntArray
    table: npt.NDArray[np.float64]
    room: FloatArray
    worth: FloatArray
    chosen: IntArray
    taken: BoolArray


@compiled
def _copy(source: FloatArray, to: FloatArray) -> None:
    """Copy numbers; a loop compiles ten times faster than an assignment of slices."""
    for r in range(len(to)):
        to[r] = source[r]


@compiled
def _gather(batch: Batch, p: int, s: Scratch) -> int:
    """Copy the items that fit beside the forced one, with their shares; return how many."""
    resources = batch.loads.shape[1]
    f = batch.forced[p]
    left = batch.most[p] - (1 if f >= 0 else 0)
    for r in range(resources):
        s.room[0, r] = batch.capacity[p, r] - (batch.loads[f, r] if f >= 0 else 0.0)
        if s.room[0, r] < 0.0:
            left = 0
    n = 0
    if left <= 0:
        return n
    for at in range(batch.start[p], batch.start[p + 1]):
        j = batch.item[at]
        fits = batch.value[at] > 0.0 and j != f
        for r in range(resources):
            fits = fits and batch.loads[j, r] <= s.room[0, r]
        if not fits:
            continue
        s.name[n] = j
        s.value[n] = batch.value[at]
        for r in range(resources):
            s.loads[n, r] = batch.loads[j, r]
            s.share[n, r] = batch.loads[j, r] / s.room[0, r] if s.room[0, r] > 0.0 else 0.0
        s.share[n, resources] = 1.0 / left
        n += 1
    return n


@compiled
def _fractional(s: Scratch, n: int, mix: FloatArray) -> tuple[float, float]:
    """Return the bound of one row of weights and its critical ratio; note the order and the use."""
    rows = len(mix)
    ratio = np.empty(n)
    for k in range(n):
        weight = 0.0
        for r in range(rows):
            weight += mix[r] * s.share[k, r]
        s.weight[k] = weight
        ratio[k] = -s.value[k] / max(weight, 1e-12)
    for r in range(rows):
        s.used[r] = 0.0
    order = np.argsort(ratio, kind="mergesort")
    room, bound = 1.0, 0.0
    for k in order:
        part = 1.0 if s.weight[k] <= room else room / s.weight[k]
        bound += part * s.value[k]
        for r in range(rows):
            s.used[r] += part * s.share[k, r]
        room = max(room - s.weight[k], 0.0)
        if part < 1.0:
            return bound, -ratio[k]
    return bound, 0.0


@compiled
def _weigh(s: Scratch, n: int, rows: int, enough: float) -> tuple[float, float]:
    """Return the least bound found and its critical ratio; leave its weights in ``s.mix``.

    Starts at the best single resource; then weight moves from the resource least used to the one
    overfilled most, half as much each step (with two resources, a bisection). Stops at a bound of
    ``enough`` or less.
    """
    best, ratio = np.inf, 0.0
    mix, start, used = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for step in range(rows + _STEPS):
        if step < rows:
            for r in range(rows):
                mix[r] = 1.0 if r == step else 0.0
        else:
            if step == rows:
                _copy(s.mix, mix)
                _copy(start, used)
            to, source = 0, -1
            for r in range(rows):
                if used[r] > used[to]:
                    to = r
                if mix[r] > 0.0 and (source < 0 or used[r] < used[source]):
                    source = r
            if used[to] <= 1.0 + 1e-9 or to == source:
                break
            moved = min(mix[source], 0.5 ** (step - rows + 1))
            mix[source] -= moved
            mix[to] += moved
        bound, critical = _fractional(s, n, mix)
        _copy(s.used, used)
        if bound < best:
            best, ratio = bound, critical
            _copy(mix, s.mix)
            _copy(used, start)
        if best <= enough:
            break
    _copy(start, s.used)
    return best, ratio


@compiled
def _keep(s: Scratch, n: int, rows: int, slack: float, ratio: float) -> int:
    """Drop the items that cost more than the slack above the floor, and order the others.

    ``slack``: the bound less the floor. Returns how many are left, most value per weight first.
    """
    ratios, resources = np.empty(n), s.loads.shape[1]
    for k in range(n):
        s.weight[k] = 0.0
        for r in range(rows):
            s.weight[k] += s.mix[r] * s.share[k, r]
        ratios[k] = -s.value[k] / max(s.weight[k], 1e-12)
    old = (s.name[:n].copy(), s.value[:n].copy(), s.weight[:n].copy())
    loads, share = s.loads[:n].copy(), s.share[:n].copy()
    m = 0
    for k in np.argsort(ratios, kind="mergesort"):
        if old[1][k] - ratio * old[2][k] + slack <= 0.0:
            continue
        s.name[m], s.value[m], s.weight[m] = old[0][k], old[1][k], old[2][k]
        for r in range(resources):
            s.loads[m, r] = loads[k, r]
        for r in range(rows):
            s.share[m, r] = share[k, r]
        m += 1
    return m


@compiled
def _uncount(s: Scratch, n: int, resources: int, left: int) -> int:
    """Return the layers of the table; where there are any, no weight counts items any more."""
    if left > min(_LAYERS, n):
        return 0
    s.mix[resources] = 0.0
    total, fullest = 0.0, 0
    for r in range(resources):
        total += s.mix[r]
        if s.used[r] > s.used[fullest]:
            fullest = r
    if total <= 0.0:
        s.mix[fullest] = total = 1.0
    for r in range(resources):
        s.mix[r] /= total
    for k in range(n):
        s.weight[k] = 0.0
        for r in range(resources):
            s.weight[k] += s.mix[r] * s.share[k, r]
    return left


@compiled
def _rank(s: Scratch, n: int, resources: int) -> None:
    """Note up to ``_RIVALS`` earlier items that dominate each; -1 ends the list.

    A later item in order of value per weight is not dominating an earlier one, but for equals.
    """
    for b in range(n):
        found = 0
        s.rival[b, :] = -1
        for a in range(b - 1, -1, -1):
            worse = s.value[a] >= s.value[b]
            for r in range(resources):
                worse = worse and s.loads[a, r] <= s.loads[b, r]
            if worse:
                s.rival[b, found] = a
                found += 1
                if found == s.rival.shape[1]:
                    break


@compiled
def _tabulate(s: Scratch, n: int, layers: int) -> None:
    """Fill the table of completions, ``(n + 1, layers + 1, cells + 1)``.

    Layer ``q`` takes at most ``q`` items; with ``layers = 0`` the number is not limited.
    """
    cells = s.table.shape[2] - 1
    s.table[n, : layers + 1, :] = 0.0
    for k in range(n - 1, -1, -1):
        size = min(int(np.floor(s.weight[k] * cells * (1.0 - 1e-12))), cells + 1)
        gain = s.value[k]
        for q in range(layers + 1):
            if layers > 0 and q == 0:
                s.table[k, q, :] = 0.0
                continue
            without = s.table[k + 1, q]
            within = s.table[k + 1, q - 1 if layers > 0 else q]
            out = s.table[k, q]
            for x in range(size):
                out[x] = without[x]
            for x in range(size, cells + 1):
                taken = gain + within[x - size]
                out[x] = taken if taken > without[x] else without[x]


@compiled
def _cell(s: Scratch, depth: int, rows: int) -> int:
    """Return the cells that are left, rounded so that no set is lost."""
    share = 0.0
    cells: int = s.table.shape[2] - 1
    for r in range(rows):
        if s.room[0, r] > 0.0:
            share += s.mix[r] * s.room[depth, r] / s.room[0, r]
    x: int = int(np.floor(share * cells * (1.0 + 1e-12) + 1e-9))
    return max(0, min(cells, x))


@compiled
def _record(s: Scratch, depth: int, forced: int, answer: Answer, p: int) -> None:
    """Insert the set at hand among those kept of problem ``p``, best first."""
    count, keep = answer.found[p], answer.value.shape[1]
    worth = s.worth[depth]
    at = count
    while at > 0 and answer.value[p, at - 1] < worth:
        at -= 1
    if at == keep:
        return
    last = min(count, keep - 1)
    size = answer.sets.shape[2]
    for row in range(last, at, -1):
        answer.value[p, row] = answer.value[p, row - 1]
        for d in range(size):
            answer.sets[p, row, d] = answer.sets[p, row - 1, d]
    answer.value[p, at] = worth
    for d in range(size):
        answer.sets[p, at, d] = -1
    first = 0
    if forced >= 0:
        answer.sets[p, at, 0] = forced
        first = 1
    for d in range(depth):
        answer.sets[p, at, first + d] = s.name[s.chosen[d]]
    answer.found[p] = min(count + 1, keep)


@compiled
def _may_take(s: Scratch, k: int, depth: int, resources: int) -> bool:
    """Return whether item ``k`` fits and all its remembered rivals are taken."""
    for r in range(resources):
        if s.loads[k, r] > s.room[depth, r]:
            return False
    for at in range(s.rival.shape[1]):
        rival = s.rival[k, at]
        if rival < 0:
            return True
        if not s.taken[rival]:
            return False
    return True


@compiled
def _dive(s: Scratch, layers: int, batch: Batch, p: int, answer: Answer, budget: int) -> float:
    """Search depth first; return a bound of what was left out, above EPS of the best if any."""
    resources = batch.loads.shape[1]
    left = int(batch.most[p]) - (1 if batch.forced[p] >= 0 else 0)
    threshold = max(batch.floor[p], s.worth[0])
    s.room[0, resources] = left
    depth, k, nodes, grew = 0, 0, 0, False
    cell = np.empty(s.room.shape[0], dtype=np.int64)
    cell[0] = s.table.shape[2] - 1
    open_bound = -np.inf
    while True:
        q = left - depth if layers > 0 else 0
        if depth < left and s.worth[depth] + s.table[k, q, cell[depth]] > threshold + EPS:
            nodes += 1
            if nodes > budget:
                for d in range(depth + 1):
                    at = k if d == depth else s.chosen[d] + 1
                    q = left - d if layers > 0 else 0
                    open_bound = max(open_bound, s.worth[d] + s.table[at, q, cell[d]])
                if grew:
                    _record(s, depth, batch.forced[p], answer, p)
                return open_bound
            if _may_take(s, k, depth, resources):
                for r in range(resources):
                    s.room[depth + 1, r] = s.room[depth, r] - s.loads[k, r]
                s.room[depth + 1, resources] = s.room[depth, resources] - 1.0
                s.worth[depth + 1] = s.worth[depth] + s.value[k]
                s.chosen[depth], s.taken[k] = k, True
                depth += 1
                cell[depth] = _cell(s, depth, resources + 1)
                grew = s.worth[depth] > batch.floor[p] + EPS
                threshold = max(threshold, s.worth[depth])
            k += 1
            continue
        if grew:
            _record(s, depth, batch.forced[p], answer, p)
            grew = False
        if depth == 0:
            return open_bound
        depth -= 1
        k = s.chosen[depth]
        s.taken[k] = False
        k += 1


@compiled
def _solve(batch: Batch, p: int, s: Scratch, answer: Answer, budget: int) -> None:
    """Solve problem ``p`` (module docstring)."""
    resources, forced = batch.loads.shape[1], batch.forced[p]
    base, floor = batch.forced_value[p], batch.floor[p]
    answer.found[p], answer.exact[p] = 0, True
    s.worth[0] = base
    n = _gather(batch, p, s)
    if forced >= 0 and base > floor + EPS:
        _record(s, 0, forced, answer, p)
    answer.bound[p] = base
    if n == 0:
        return
    least = max(floor, base)
    bound, ratio = _weigh(s, n, resources + 1, least - base)
    if base + bound <= least:
        answer.bound[p] = base + bound
        return
    n = _keep(s, n, resources + 1, base + bound - least, ratio)
    _rank(s, n, resources)
    layers = _uncount(s, n, resources, int(batch.most[p]) - (1 if forced >= 0 else 0))
    _tabulate(s, n, layers)
    # What was dropped is worth at most the least, so a bound of the rest holds above it only.
    bound = max(min(bound, s.table[0, layers, s.table.shape[2] - 1]), least - base)
    s.taken[:n] = False
    open_bound = _dive(s, layers, batch, p, answer, budget)
    best = answer.value[p, 0] if answer.found[p] > 0 else base
    answer.exact[p] = open_bound <= max(best, least) + EPS
    answer.bound[p] = min(base + bound, max(max(best, least) + EPS, open_bound))


@compiled
def price_range(
    first: int, last: int, batch: Batch, answer: Answer, budget: int, longest: int
) -> None:
    """Solve the problems ``first <= p < last``.

    Parameters
    ----------
    budget : int
        Nodes of the search of each problem.
    longest : int
        Most items any of all problems has.
    """
    resources, size = batch.loads.shape[1], answer.sets.shape[2]
    scratch = Scratch(
        name=np.empty(longest, dtype=np.int64),
        value=np.empty(longest),
        loads=np.empty((longest, resources)),
        share=np.empty((longest, resources + 1)),
        weight=np.empty(longest),
        mix=np.zeros(resources + 1),
        used=np.zeros(resources + 1),
        rival=np.empty((longest, _RIVALS), dtype=np.int64),
        table=np.empty((longest + 1, _LAYERS + 1, _CELLS + 1)),
        room=np.empty((size + 2, resources + 1)),
        worth=np.empty(size + 2),
        chosen=np.empty(size + 2, dtype=np.int64),
        taken=np.zeros(longest, dtype=np.bool_),
    )
    for p in range(first, last):
        _solve(batch, p, scratch, answer, budget)
