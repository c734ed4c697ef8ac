"""Search of whole groups: which group of at most ``B`` jobs is worth most above its nodes?

Problem of one *leader* ``i``, the job of least (deadline, index) of its groups
------------------------------------------------------------------------------
Period ``C = D_i``; candidates ``j``: later ones with ``T_j <= C`` and ``y_j > 0``. A *shape* is a
pair of node counts ``(n^R, n^T)`` within the limits of a group, of price ``c``. The leader alone
has the shape of its widths. A set ``S`` of the leader and candidates, ``2 <= |S| <= B``, has a
shape when, per pool,

* each width ``a_j <= n``;
* ``sum_S a_j phase_j <= n C`` and ``sum_S a_j m_j <= n M``, with switches where ``n = 1``;
* the jobs of width 1 pack into ``n`` nodes: on a node of two or more
  ``sum (phase_j + switch_j) <= C``, ``sum m_j <= M`` and ``T_j + switch_j <= C``, and where the
  other pool has a single node ``T_j`` and both switches are within ``C``
  (:class:`models.exact.single_node_sets.LoadPool`);

and when it may be connected: ``n^R + n^T <= sum_S (a^R_j + a^T_j) - |S| + 1``, as a tree of jobs
and nodes has so many edges less one. Groups that are not connected are no better than their
parts. Find

    r_i = max over shapes and sets of  sum_S y_j - c.

All of it is a relaxation of the groups of valid plans; precedence is left out. Whether jobs pack
is bin packing: a search for a packing that takes too many steps is cut short, and the set admitted.

Search of a leader and a shape: with the four resources of the second rule as shares ``s_jr`` of
their capacities and multipliers ``u >= 0``, no set is worth more than

    y_i + sum_r u_r (1 - s_ir) + (the B - 1 largest of max(0, y_j - sum_r u_r s_jr)),

minimised by subgradient steps towards ``c`` and the floor (Lagrangian relaxation; Polyak's
step). Where that is enough, or where it is with one candidate forced in, the shape or the
candidate is left out. The others are searched depth first, cut by the same bound of what
completes a set and by the rules themselves, which only bind more as sets grow. At the end of its
budget the search returns the largest bound of what is open.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.group.pinnings import REL_SLACK
from models.problem.compiled import compiled

__all__ = ["Data", "Found", "price_leader"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Most steps of the multipliers of a shape.
_STEPS: Final = 40
#: Resources of a shape: time and DRAM of both pools.
_RESOURCES: Final = 4
#: Slack of sums of shares.
_EPS: Final = 1e-9
#: Most steps of a search for a packing, and how many count as a node of the search of groups.
_MOST_TRIES: Final = 1000
_TRIES_A_NODE: Final = 50


class Data(NamedTuple):
    """What the kernel reads; pools are rows 0 (rollout) and 1 (train).

    ``chain``, ``(2, 2, n)``: ``T_j`` with the rollout switch paid (first index 1), and the train's.
    """

    run: FloatArray
    switch: FloatArray
    state: FloatArray
    width: IntArray
    chain: FloatArray
    deadline: FloatArray
    rank: IntArray
    leaders: IntArray
    room_gb: FloatArray
    usd: FloatArray
    shapes: IntArray
    most: int


class Found(NamedTuple):
    """What the kernel writes, leader by leader, in the order of ``Data.leaders``.

    ``left``: nodes of the budget of each; the caller sets it.
    """

    excess: FloatArray
    exact: BoolArray
    held: IntArray
    gain: FloatArray
    sets: IntArray
    nodes: IntArray
    left: IntArray


class Work(NamedTuple):
    """Room of one search."""

    later: IntArray
    name: IntArray
    share: FloatArray
    net: FloatArray
    table: FloatArray
    largest: FloatArray
    top: IntArray
    price: FloatArray
    trial: FloatArray
    slope: FloatArray
    chosen: IntArray
    packed: IntArray
    at: IntArray
    value: FloatArray
    used: FloatArray
    bin_load: FloatArray
    bin_state: FloatArray
    bin_count: IntArray
    bin_of: IntArray
    alone: BoolArray
    tries: IntArray


@compiled
def _next_node(
    d: Data, pool: int, w: Work, j: int, b: int, bins: int, period: float, lonely: bool
) -> int:
    """Return the first node from ``b`` on that takes the job; ``bins`` if none does.

    Nodes without a job are all the same, so no other follows the first of them.
    """
    load, state = d.run[pool, j] + d.switch[pool, j], d.state[pool, j]
    for at in range(b, bins):
        if w.bin_count[at] == 0:
            return at if state <= d.room_gb[pool] else bins
        shared = not lonely and not w.alone[at] and w.bin_load[at] + load <= period
        if shared and w.bin_state[at] + state <= d.room_gb[pool]:
            return at
    return bins


@compiled
def _packs(d: Data, pool: int, w: Work, k: int, period: float, paid: bool, bins: int) -> bool:
    """Return whether the jobs ``packed[:k]``, of width 1, may pack into so many nodes.

    ``paid``: every job pays the other pool's switch as well. They may where the search is cut
    short. Its steps are added to ``tries``.
    """
    most = w.tries[0] + _MOST_TRIES
    for b in range(bins):
        w.bin_load[b] = 0.0
        w.bin_state[b] = 0.0
        w.bin_count[b] = 0
        w.alone[b] = False
    t = 0
    w.bin_of[0] = -1
    while t >= 0:
        w.tries[0] += 1
        if w.tries[0] > most:
            return True
        j = w.packed[t]
        also = 1 if paid else 0
        chain = d.chain[1, also, j] if pool == 0 else d.chain[also, 1, j]
        lonely = chain > period
        load, state = d.run[pool, j] + d.switch[pool, j], d.state[pool, j]
        b = w.bin_of[t]
        if b >= 0:  # take it out again
            w.bin_count[b] -= 1
            w.bin_load[b] -= load
            w.bin_state[b] -= state
            if w.bin_count[b] == 0:
                w.bin_load[b] = 0.0
                w.bin_state[b] = 0.0
                w.alone[b] = False
                b = bins  # an empty node more is the same node
        b = _next_node(d, pool, w, j, b + 1, bins, period, lonely)
        if b >= bins:
            t -= 1
            continue
        if w.bin_count[b] == 0:
            w.alone[b] = lonely
        w.bin_count[b] += 1
        w.bin_load[b] += load
        w.bin_state[b] += state
        w.bin_of[t] = b
        t += 1
        if t == k:
            return True
        w.bin_of[t] = -1
    return False


@compiled
def _fits(d: Data, w: Work, k: int, shape: IntArray, period: float) -> bool:
    """Return whether the jobs of width 1 among ``chosen[:k]`` pack into both pools of a shape."""
    for pool in range(2):
        single = 0
        for t in range(k):
            if d.width[pool, w.chosen[t]] == 1:
                w.packed[single] = w.chosen[t]
                single += 1
        paid = shape[1 - pool] == 1
        if single > shape[pool] and not _packs(d, pool, w, single, period, paid, shape[pool]):
            return False
    return True


@compiled
def _admit(d: Data, w: Work, j: int, q: int, shape: IntArray, period: float) -> bool:
    """Write a job's shares of a shape to row ``q``; return whether it may be in it with others."""
    chain = d.chain[1 if shape[0] == 1 else 0, 1 if shape[1] == 1 else 0, j]
    for pool in range(2):
        bins = shape[pool]
        a = d.width[pool, j]
        run = d.run[pool, j]
        if bins == 1:
            run += d.switch[pool, j]
        if a > bins:
            return False
        w.share[q, 2 * pool] = a * run / (bins * period)
        w.share[q, 2 * pool + 1] = a * d.state[pool, j] / (bins * d.room_gb[pool])
    if chain > period:
        return False
    for r in range(_RESOURCES):
        first = w.share[0, r] if q > 0 else 0.0
        if first + w.share[q, r] > 1.0 + _EPS:
            return False
    w.name[q] = j
    return True


@compiled
def _worth(y: FloatArray, w: Work, q: int, price: FloatArray) -> float:
    """Return ``y_j - sum_r u_r s_jr`` of a candidate."""
    net = float(y[w.name[q]])
    for r in range(_RESOURCES):
        net -= price[r] * w.share[q, r]
    return net


@compiled
def _lagrangian(d: Data, y: FloatArray, w: Work, n: int, price: FloatArray) -> float:
    """Return the bound of these multipliers; ``top`` and ``net`` are left: the largest first."""
    taken = 0
    for q in range(1, n):
        net = _worth(y, w, q, price)
        w.net[q] = net
        if net <= 0.0 or (taken == d.most - 1 and net <= w.net[w.top[taken - 1]]):
            continue
        m = min(taken, d.most - 2)
        while m > 0 and w.net[w.top[m - 1]] < net:
            w.top[m] = w.top[m - 1]
            m -= 1
        w.top[m] = q
        taken = min(taken + 1, d.most - 1)
    w.top[d.most - 1] = taken
    bound = float(y[w.name[0]])
    for r in range(_RESOURCES):
        bound += price[r] * (1.0 + _EPS - w.share[0, r])
    for m in range(taken):
        bound += w.net[w.top[m]]
    return bound


@compiled
def _weigh(d: Data, y: FloatArray, w: Work, n: int, shape: IntArray, enough: float) -> float:
    """Return the least bound found of a shape, its multipliers in ``price``."""
    for r in range(_RESOURCES):
        # the scarcer resource of each pool at the price of its nodes to begin with
        heavy = 0.0
        for q in range(n):
            heavy += w.share[q, r] - w.share[q, r + 1 if r % 2 == 0 else r - 1]
        first = heavy > 0.0 or (heavy == 0.0 and r % 2 == 0)
        w.trial[r] = d.usd[r // 2] * shape[r // 2] if first else 0.0
    least = np.inf
    for _ in range(_STEPS):
        bound = _lagrangian(d, y, w, n, w.trial)
        if bound < least:
            least = bound
            for r in range(_RESOURCES):
                w.price[r] = w.trial[r]
        if least <= enough:
            break
        length = 0.0
        for r in range(_RESOURCES):
            w.slope[r] = 1.0 - w.share[0, r]
            for m in range(w.top[d.most - 1]):
                w.slope[r] -= w.share[w.top[m], r]
            if w.trial[r] <= 0.0 and w.slope[r] > 0.0:
                w.slope[r] = 0.0
            length += w.slope[r] * w.slope[r]
        if length <= 1e-18:
            break
        for r in range(_RESOURCES):
            step = (bound - enough) / length * w.slope[r]
            w.trial[r] = max(0.0, w.trial[r] - step)
    return least


@compiled
def _swap(w: Work, a: int, b: int) -> None:
    """Swap two candidates."""
    w.name[a], w.name[b] = w.name[b], w.name[a]
    w.net[a], w.net[b] = w.net[b], w.net[a]
    for r in range(_RESOURCES):
        w.share[a, r], w.share[b, r] = w.share[b, r], w.share[a, r]


@compiled
def _tabulate(d: Data, y: FloatArray, w: Work, n: int) -> None:
    """Fill ``table[h, q, m]``, the ``m`` largest values of candidates ``q`` on.

    Values are net of the multipliers (``h = 0``), or the prices ``y`` themselves (``h = 1``).
    """
    for h in range(2):
        tops = w.largest
        for m in range(d.most):
            tops[m] = 0.0
        for m in range(d.most):
            w.table[h, n, m] = 0.0
        for q in range(n - 1, 0, -1):
            net = w.net[q] if h == 0 else y[w.name[q]]
            m = d.most - 1
            if net > tops[m]:
                while m > 0 and tops[m - 1] < net:
                    tops[m] = tops[m - 1]
                    m -= 1
                tops[m] = net
            w.table[h, q, 0] = 0.0
            for m in range(1, d.most):
                w.table[h, q, m] = w.table[h, q, m - 1] + tops[m - 1]


@compiled
def _thin(d: Data, y: FloatArray, w: Work, n: int, enough: float) -> int:
    """Drop the candidates whose every set is at or below ``enough``; sort; return how many."""
    least = _lagrangian(d, y, w, n, w.price)
    taken = w.top[d.most - 1]
    last = w.net[w.top[taken - 1]] if taken == d.most - 1 else 0.0
    kept = 1
    for q in range(1, n):
        forced = least + min(0.0, w.net[q] - last)
        if forced > enough:
            w.name[kept] = w.name[q]
            w.net[kept] = w.net[q]
            for r in range(_RESOURCES):
                w.share[kept, r] = w.share[q, r]
            kept += 1
    for q in range(2, kept):  # by net value, the largest first; equals stay in order
        m = q
        while m > 1 and w.net[m - 1] < w.net[m]:
            _swap(w, m - 1, m)
            m -= 1
    _tabulate(d, y, w, kept)
    return kept


@compiled
def _bound(d: Data, w: Work, depth: int, q: int) -> float:
    """Return a bound of the value of what adds candidates ``q`` on to ``chosen[:depth]``."""
    bound = float(w.value[depth] + w.table[0, q, d.most - depth])
    for r in range(_RESOURCES):
        bound += w.price[r] * (1.0 + _EPS - w.used[depth, r])
    return min(bound, float(w.value[depth] + w.table[1, q, d.most - depth]))


@compiled
def _record(found: Found, p: int, w: Work, depth: int, gain: float, shape: IntArray) -> None:
    """Keep the set among the best of its leader."""
    keep = found.gain.shape[1]
    m = min(found.held[p], keep - 1)
    while m > 0 and found.gain[p, m - 1] < gain:
        found.gain[p, m] = found.gain[p, m - 1]
        for t in range(found.sets.shape[2]):
            found.sets[p, m, t] = found.sets[p, m - 1, t]
        for pool in range(2):
            found.nodes[p, m, pool] = found.nodes[p, m - 1, pool]
        m -= 1
    found.gain[p, m] = gain
    for t in range(found.sets.shape[2]):
        found.sets[p, m, t] = w.chosen[t] if t < depth else -1
    for pool in range(2):
        found.nodes[p, m, pool] = shape[pool]
    found.held[p] = min(found.held[p] + 1, keep)


@compiled
def _enter(y: FloatArray, w: Work, q: int, depth: int) -> bool:
    """Put candidate ``q`` at this depth; return whether the sums allow it."""
    w.chosen[depth] = w.name[q]
    w.at[depth] = q
    w.value[depth + 1] = w.value[depth] + y[w.name[q]]
    fits = True
    for r in range(_RESOURCES):
        w.used[depth + 1, r] = w.used[depth, r] + w.share[q, r]
        fits = fits and w.used[depth + 1, r] <= 1.0 + _EPS
    return fits


@compiled
def _connected(d: Data, w: Work, k: int, shape: IntArray) -> bool:
    """Return whether the jobs may connect so many nodes."""
    most = 1 - k
    for t in range(k):
        most += d.width[0, w.chosen[t]] + d.width[1, w.chosen[t]]
    return bool(shape[0] + shape[1] <= most)


@compiled
def _dive(  # noqa: PLR0913, PLR0917 - a kernel takes plain arguments
    d: Data,
    y: FloatArray,
    p: int,
    w: Work,
    n: int,
    shape: IntArray,
    floor: float,
    budget: int,
    found: Found,
) -> int:
    """Search a leader and a shape; return how many nodes of the budget are left."""
    period = d.deadline[d.leaders[p]] * (1.0 + REL_SLACK)
    usd = d.usd[0] * shape[0] + d.usd[1] * shape[1]
    keep = found.gain.shape[1]
    w.value[0] = 0.0
    for r in range(_RESOURCES):
        w.used[0, r] = 0.0
    _enter(y, w, 0, 0)
    depth, q = 1, 1
    while depth > 0:
        cut = found.gain[p, keep - 1] if found.held[p] == keep else floor
        if depth == d.most or q >= n or _bound(d, w, depth, q) - usd <= cut:
            depth -= 1
            q = w.at[depth] + 1
            continue
        if budget <= 0:
            found.exact[p] = False
            found.excess[p] = max(found.excess[p], _bound(d, w, depth, q) - usd)
            depth -= 1
            q = w.at[depth] + 1
            continue
        w.tries[0] = 0
        if _enter(y, w, q, depth) and _fits(d, w, depth + 1, shape, period):
            depth += 1
            gain = w.value[depth] - usd
            if gain > cut and _connected(d, w, depth, shape):
                found.excess[p] = max(found.excess[p], gain)
                _record(found, p, w, depth, gain, shape)
        budget -= 1 + w.tries[0] // _TRIES_A_NODE
        q += 1
    return budget


@compiled
def _search(
    d: Data, y: FloatArray, p: int, w: Work, first: int, last: int, floor: float, found: Found
) -> None:
    """Search shapes ``first..last - 1`` of a leader."""
    leader = d.leaders[p]
    period = d.deadline[leader] * (1.0 + REL_SLACK)
    keep = found.gain.shape[1]
    if first == 0:
        found.exact[p] = True
        # what is cut is at or below the floor, or below enough better ones
        found.excess[p] = floor
    count = 0
    for j in range(len(y)):
        if d.rank[j] > d.rank[leader] and y[j] > 0.0 and d.chain[0, 0, j] <= period:
            w.later[count] = j
            count += 1
    for s in range(first, last):
        shape = d.shapes[s]
        usd = d.usd[0] * shape[0] + d.usd[1] * shape[1]
        if shape[0] == d.width[0, leader] and shape[1] == d.width[1, leader]:
            w.chosen[0] = leader
            gain = y[leader] - usd
            cut = found.gain[p, keep - 1] if found.held[p] == keep else floor
            if gain > cut:
                found.excess[p] = max(found.excess[p], gain)
                _record(found, p, w, 1, gain, shape)
        if d.most == 1 or not _admit(d, w, leader, 0, shape, period):
            continue
        n = 1
        for c in range(count):
            if _admit(d, w, w.later[c], n, shape, period):
                n += 1
        cut = found.gain[p, keep - 1] if found.held[p] == keep else floor
        least = _weigh(d, y, w, n, shape, usd + cut)
        if n == 1 or least <= usd + cut:
            continue
        n = _thin(d, y, w, n, usd + cut)
        found.left[p] = _dive(d, y, p, w, n, shape, floor, found.left[p], found)


@compiled
def price_leader(
    p: int, first: int, last: int, d: Data, y: FloatArray, floor: float, found: Found
) -> None:
    """Solve the problem of leader ``p`` over shapes ``first..last - 1``, after those before."""
    n, most = len(y), d.most
    w = Work(
        later=np.empty(n, dtype=np.int64),
        name=np.empty(n, dtype=np.int64),
        share=np.empty((n, _RESOURCES)),
        net=np.empty(n),
        table=np.zeros((2, n + 1, most + 1)),
        largest=np.zeros(most),
        top=np.empty(most + 1, dtype=np.int64),
        price=np.empty(_RESOURCES),
        trial=np.empty(_RESOURCES),
        slope=np.empty(_RESOURCES),
        chosen=np.empty(most + 1, dtype=np.int64),
        packed=np.empty(most + 1, dtype=np.int64),
        at=np.empty(most + 1, dtype=np.int64),
        value=np.empty(most + 2),
        used=np.empty((most + 2, _RESOURCES)),
        bin_load=np.empty(most + 1),
        bin_state=np.empty(most + 1),
        bin_count=np.empty(most + 1, dtype=np.int64),
        bin_of=np.empty(most + 1, dtype=np.int64),
        alone=np.empty(most + 1, dtype=np.bool_),
        tries=np.zeros(1, dtype=np.int64),
    )
    _search(d, y, p, w, first, last, floor, found)
