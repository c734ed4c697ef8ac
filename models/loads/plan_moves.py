"""Fast moves of an annealing over plans of single-node jobs, by loads alone.

The *load layer*: a plan is a partition of jobs into groups, and in each pool of each group
into bins (nodes). Whether the phases of a group can be put in order is left to the caller.

Sets and parameters
-------------------
jobs ``j``, pools ``p`` (0 rollout, 1 train); ``T_j`` solo seconds, ``D_j`` deadline, ``w_pj``
switch seconds, ``l_pj`` phase and switch seconds, ``m_pj`` state, ``M_p`` host DRAM, ``c_p``
price of a node, ``v_pj`` the *value* of a job in a bin (a share of a node, as duals are).

State (:class:`models.loads.load_state.Fleet`)
-----------------------------------------
Each job is in one group and in one bin of each pool of that group. ``C_g = min D_j`` over the
members; a bin is *shared* when it holds two jobs or more. Kept for each group: its *top*, the
longest of the loads of its shared bins and of ``T_j`` with the switches that ``j`` pays.

Constraints
-----------
* ``top_g <= C_g``, up to the slack of seconds of every exact method;
* ``sum m_pj <= M_p`` over the jobs of a bin, up to the slack of GB;
* limits on the jobs of a group and on its bins of each pool; fleet caps on bins.

Energy
------
``sum over bins of c_p (1 - a f^2)``, ``f`` the sum of the values in the bin: the price of the
bins less a reward for full ones, concave, so that bins are emptied into others.

Moves (:func:`anneal`): a job to another group and bins there, to another bin of its group,
two jobs exchanged between groups or within one, two groups merged. A move that makes the
energy larger by ``d`` is made when ``d <= e t``, ``t`` the temperature, ``e`` drawn from a table of
exponential deviates: the rule of Metropolis without a call of ``exp``, so that compiled and
plain code agree bit for bit. The changes are those of
:mod:`models.loads.load_state`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from models.loads.load_state import (
    Fleet,
    LoadData,
    attach,
    below,
    change_group,
    detach,
    draw,
    enter_bin,
    leave_bin,
    need_paid_s,
    refresh,
    sum_bin,
)
from models.problem.compiled import compiled

__all__ = ["Annealing", "anneal"]

#: Kinds of attempts of 1024: exchanges below the first, other bins of the group below the second,
#: other groups above; the last kind is a new group.
_SWAPS: Final = 400
_REBINS: Final = 600


class Annealing(NamedTuple):
    """How moves are drawn and judged.

    Attributes
    ----------
    heat : float
        Temperature, $/h.
    reward : float
        ``a`` of the energy.
    reach : int
        Most positions between two jobs, in order of deadlines, whose groups are related.
    merging : int
        Attempts of 1024 that merge two groups.
    """

    heat: float
    reward: float
    reach: int
    merging: int


# --- differences of energy ----------------------------------------------------------------------


@compiled
def _leaving(data: LoadData, fleet: Fleet, p: int, j: int, reward: float) -> float:
    """Return the change of energy when a job leaves its bin."""
    b = fleet.bin[p, j]
    before = fleet.b_value[p, b]
    if fleet.b_count[p, b] == 1:
        return float(-data.usd[p] * (1.0 - reward * before * before))
    after = before - data.value[p, j]
    return float(data.usd[p] * reward * (before * before - after * after))


@compiled
def _entering(data: LoadData, fleet: Fleet, p: int, j: int, b: int, reward: float) -> float:
    """Return the change of energy when a job enters a bin; -1: a new one."""
    value = data.value[p, j]
    if b < 0:
        return float(data.usd[p] * (1.0 - reward * value * value))
    before = fleet.b_value[p, b]
    after = before + value
    return float(data.usd[p] * reward * (before * before - after * after))


@compiled
def _fits(data: LoadData, fleet: Fleet, p: int, j: int, b: int, period: float) -> bool:
    """Return whether a job fits into a bin at a period, and who is there alone bears it."""
    if fleet.b_load[p, b] + data.paid_s[p, j] > period:
        return False
    if fleet.b_state[p, b] + data.state_gb[p, j] > data.dram_gb[p]:
        return False
    if fleet.b_count[p, b] == 1:
        other = fleet.b_head[p, b]
        return bool(need_paid_s(data, fleet, other, p) <= period)
    return True


@compiled
def _choose_bin(
    data: LoadData, fleet: Fleet, p: int, j: int, g: int, period: float, greedy: bool
) -> int:
    """Return a bin of a group that takes a job: the fullest, or any; -1 when there is none."""
    if (data.chain_s[1, 0, j] if p == 0 else data.chain_s[0, 1, j]) > period:
        return -1
    own = fleet.bin[p, j]
    chosen = -1
    found = 0
    fullest = -1.0
    b = fleet.g_first[p, g]
    while b >= 0:
        if b != own and _fits(data, fleet, p, j, b, period):
            found += 1
            if greedy:
                if fleet.b_value[p, b] > fullest:
                    fullest = fleet.b_value[p, b]
                    chosen = b
            elif below(fleet.rng, found) == 0:
                chosen = b
        b = fleet.b_next[p, b]
    return chosen


# --- moves --------------------------------------------------------------------------------------


@compiled
def _may_open(data: LoadData, fleet: Fleet, p: int, g: int, frees: bool, own: bool) -> bool:
    """Return whether a group may have one bin more, when another is freed or not."""
    count = fleet.g_bins[p, g]
    total = fleet.used[p]
    if frees:
        total -= 1
        if own:
            count -= 1
    return bool(count < data.limits[1 + p] and total < data.limits[3 + p])


@compiled
def _least_change(
    data: LoadData, fleet: Fleet, j: int, g: int, period: float, reward: float
) -> float:
    """Return the least change of energy when a job enters bins of a group, by a quick look.

    A pool whose emptiest bin is too full takes a new one; elsewhere the bin is filled to a
    value of 1.
    """
    change = 0.0
    for p in range(2):
        value = data.value[p, j]
        if fleet.g_load[p, g] + data.paid_s[p, j] > period:
            change += data.usd[p] * (1.0 - reward * value * value)
        else:
            change -= data.usd[p] * reward * value * (2.0 - value)
    return float(change)


@compiled
def _bears_switches(data: LoadData, fleet: Fleet, j: int, r: int, t: int, period: float) -> bool:
    """Return whether a job that joins shared bins of both pools, and who is alone there, can.

    Each switch by itself fits (:func:`_fits`); here both are paid at once.
    """
    if data.chain_s[1, 1, j] > period:
        return False
    other = fleet.b_head[0, r]
    alone = fleet.b_count[0, r] == 1 and fleet.b_count[1, t] == 1
    if not alone or other != fleet.b_head[1, t]:
        return True
    return bool(data.chain_s[1, 1, other] <= period)


@compiled
def _may_buy(data: LoadData, fleet: Fleet, p: int, j: int, g: int) -> bool:
    """Return whether a job that leaves its bin may have a new one in a group; -1: a new one."""
    frees = fleet.b_count[p, fleet.bin[p, j]] == 1
    if g >= 0:
        return _may_open(data, fleet, p, g, frees, False)
    return bool(frees or fleet.used[p] < data.limits[3 + p])


@compiled
def _relocate(data: LoadData, fleet: Fleet, j: int, g: int, slack: float, reward: float) -> bool:
    """Move a job to another group, -1: a new one, if energy grows by at most ``slack``."""
    change = _leaving(data, fleet, 0, j, reward) + _leaving(data, fleet, 1, j, reward)
    r = -1
    t = -1
    if g >= 0:
        period = min(data.deadline_s[j], fleet.g_period[g])
        if (
            fleet.g_count[g] >= data.limits[0]
            or max(fleet.g_top[g], data.chain_s[0, 0, j]) > period
            or change + _least_change(data, fleet, j, g, period, reward) > slack
        ):
            return False
        greedy = (draw(fleet.rng) & 3) > 0
        r = _choose_bin(data, fleet, 0, j, g, period, greedy)
        t = _choose_bin(data, fleet, 1, j, g, period, greedy)
        if r < 0 and t < 0:
            return False
        if r >= 0 and t >= 0 and not _bears_switches(data, fleet, j, r, t, period):
            return False
    if r < 0 and not _may_buy(data, fleet, 0, j, g):
        return False
    if t < 0 and not _may_buy(data, fleet, 1, j, g):
        return False
    change += _entering(data, fleet, 0, j, r, reward) + _entering(data, fleet, 1, j, t, reward)
    if change > slack:
        return False
    detach(data, fleet, j)
    attach(data, fleet, j, g, r, t)
    return True


@compiled
def _rebin(data: LoadData, fleet: Fleet, j: int, p: int, slack: float, reward: float) -> bool:
    """Move a job to another bin of its group in one pool; sometimes to a new one."""
    g = fleet.group[j]
    period = fleet.g_period[g]
    own = fleet.bin[p, j]
    word = draw(fleet.rng)
    b = -1
    if (word & 15) == 0:
        if fleet.b_count[p, own] == 1 or not _may_open(data, fleet, p, g, False, True):
            return False
    else:
        b = _choose_bin(data, fleet, p, j, g, period, (word & 16) > 0)
        if b < 0:
            return False
        if need_paid_s(data, fleet, j, p) > period:
            return False
    change = _leaving(data, fleet, p, j, reward) + _entering(data, fleet, p, j, b, reward)
    if change > slack:
        return False
    leave_bin(data, fleet, p, j)
    enter_bin(data, fleet, p, j, b)
    refresh(data, fleet, g)
    return True


@compiled
def _trades(data: LoadData, fleet: Fleet, p: int, out: int, into: int, period: float) -> bool:
    """Return whether the bin of ``out`` bears ``into`` in its place."""
    b = fleet.bin[p, out]
    state = fleet.b_state[p, b] - data.state_gb[p, out] + data.state_gb[p, into]
    if state > data.dram_gb[p]:
        return False
    load = fleet.b_load[p, b] - data.paid_s[p, out] + data.paid_s[p, into]
    return bool(fleet.b_count[p, b] == 1 or load <= period)


@compiled
def _traded(data: LoadData, fleet: Fleet, p: int, out: int, into: int, reward: float) -> float:
    """Return the change of energy of the bin of ``out`` with ``into`` in its place."""
    before = fleet.b_value[p, fleet.bin[p, out]]
    after = before - data.value[p, out] + data.value[p, into]
    return float(data.usd[p] * reward * (before * before - after * after))


@compiled
def _period_without(data: LoadData, fleet: Fleet, j: int) -> float:
    """Return the least deadline of a job's group but for its own."""
    g = fleet.group[j]
    if data.deadline_s[j] > fleet.g_period[g]:
        return float(fleet.g_period[g])
    period = np.inf
    i = fleet.g_head[g]
    while i >= 0:
        if i != j:
            period = min(period, data.deadline_s[i])
        i = fleet.mate_next[i]
    return period


@compiled
def _swap_groups(data: LoadData, fleet: Fleet, j: int, k: int, slack: float, reward: float) -> bool:
    """Exchange two jobs of different groups, each into the other's bins."""
    change = 0.0
    for p in range(2):
        change += _traded(data, fleet, p, j, k, reward) + _traded(data, fleet, p, k, j, reward)
    if change > slack:
        return False
    out, into = j, k
    for _ in range(2):
        g = fleet.group[out]
        period = min(_period_without(data, fleet, out), data.deadline_s[into])
        if period < fleet.g_period[g] and fleet.g_top[g] > period:
            return False
        for p in range(2):
            if not _trades(data, fleet, p, out, into, period):
                return False
        rollout = 1 if fleet.b_count[0, fleet.bin[0, out]] > 1 else 0
        train = 1 if fleet.b_count[1, fleet.bin[1, out]] > 1 else 0
        if data.chain_s[rollout, train, into] > period:
            return False
        out, into = k, j
    g, h = fleet.group[j], fleet.group[k]
    # into the bins first: no bin, and no group, may become empty in between
    b0, b1 = fleet.bin[0, j], fleet.bin[1, j]
    c0, c1 = fleet.bin[0, k], fleet.bin[1, k]
    _hand_over(data, fleet, 0, j, c0, k, b0)
    _hand_over(data, fleet, 1, j, c1, k, b1)
    change_group(fleet, j, h)
    change_group(fleet, k, g)
    refresh(data, fleet, g)
    refresh(data, fleet, h)
    return True


@compiled
def _hand_over(data: LoadData, fleet: Fleet, p: int, j: int, c: int, k: int, b: int) -> None:
    """Exchange job ``j`` of bin ``b`` with job ``k`` of bin ``c``: they swap their links."""
    jp, jn = fleet.bin_prev[p, j], fleet.bin_next[p, j]
    kp, kn = fleet.bin_prev[p, k], fleet.bin_next[p, k]
    fleet.bin_prev[p, j] = kp
    fleet.bin_next[p, j] = kn
    fleet.bin_prev[p, k] = jp
    fleet.bin_next[p, k] = jn
    if kp >= 0:
        fleet.bin_next[p, kp] = j
    else:
        fleet.b_head[p, c] = j
    if kn >= 0:
        fleet.bin_prev[p, kn] = j
    if jp >= 0:
        fleet.bin_next[p, jp] = k
    else:
        fleet.b_head[p, b] = k
    if jn >= 0:
        fleet.bin_prev[p, jn] = k
    fleet.bin[p, j] = c
    fleet.bin[p, k] = b
    sum_bin(data, fleet, p, b)
    sum_bin(data, fleet, p, c)


@compiled
def _swap_bins(
    data: LoadData, fleet: Fleet, j: int, k: int, p: int, slack: float, reward: float
) -> bool:
    """Exchange two jobs of one group in one pool."""
    b, c = fleet.bin[p, j], fleet.bin[p, k]
    if b == c:
        return False
    change = _traded(data, fleet, p, j, k, reward) + _traded(data, fleet, p, k, j, reward)
    if change > slack:
        return False
    g = fleet.group[j]
    period = fleet.g_period[g]
    if not (_trades(data, fleet, p, j, k, period) and _trades(data, fleet, p, k, j, period)):
        return False
    if (fleet.b_count[p, b] > 1) != (fleet.b_count[p, c] > 1):  # one of them pays more now
        payer = k if fleet.b_count[p, b] > 1 else j
        if need_paid_s(data, fleet, payer, p) > period:
            return False
    _hand_over(data, fleet, p, j, c, k, b)
    refresh(data, fleet, g)
    return True


@compiled
def _merge(data: LoadData, fleet: Fleet, g: int, h: int) -> bool:
    """Make one group of two, if it is within the limits at the shorter period."""
    if fleet.g_count[g] + fleet.g_count[h] > data.limits[0]:
        return False
    for p in range(2):
        if fleet.g_bins[p, g] + fleet.g_bins[p, h] > data.limits[1 + p]:
            return False
    if max(fleet.g_top[g], fleet.g_top[h]) > min(fleet.g_period[g], fleet.g_period[h]):
        return False
    while fleet.g_count[h] > 0:
        change_group(fleet, fleet.g_head[h], g)
    for p in range(2):
        b = fleet.g_first[p, h]
        while b >= 0:
            after = fleet.b_next[p, b]
            first = fleet.g_first[p, g]
            fleet.b_group[p, b] = g
            fleet.b_prev[p, b] = -1
            fleet.b_next[p, b] = first
            if first >= 0:
                fleet.b_prev[p, first] = b
            fleet.g_first[p, g] = b
            b = after
        fleet.g_bins[p, g] += fleet.g_bins[p, h]
    fleet.used[2] -= 1
    fleet.free_groups[fleet.used[2]] = h
    refresh(data, fleet, g)
    return True


@compiled
def _near(data: LoadData, fleet: Fleet, j: int, reach: int) -> int:
    """Return another job near in deadline: within ``reach`` positions, nearer ones more often.

    Itself where there is no other.
    """
    n = len(data.order)
    at = data.rank[j]
    within = 1 + below(fleet.rng, reach)
    before = min(within, at)
    both = before + min(within, n - 1 - at)
    if both == 0:
        return j
    offset = below(fleet.rng, both) - before
    if offset >= 0:
        offset += 1
    return int(data.order[at + offset])


@compiled
def _attempt(data: LoadData, fleet: Fleet, how: Annealing, slack: float, kind: int) -> bool:
    """Attempt one move of a kind, ``0 .. 1023``; return whether it was made."""
    j = below(fleet.rng, len(data.order))
    k = _near(data, fleet, j, how.reach)
    p = draw(fleet.rng) & 1
    g, h = fleet.group[j], fleet.group[k]
    if kind < how.merging:
        return g != h and _merge(data, fleet, g, h)
    if kind < _SWAPS:
        if g == h:
            return _swap_bins(data, fleet, j, k, p, slack, how.reward)
        return _swap_groups(data, fleet, j, k, slack, how.reward)
    if kind == 1023:
        return _relocate(data, fleet, j, -1, slack, how.reward)
    if kind < _REBINS or g == h:
        return _rebin(data, fleet, j, p, slack, how.reward)
    return _relocate(data, fleet, j, h, slack, how.reward)


@compiled
def anneal(
    data: LoadData, fleet: Fleet, how: Annealing, moves: int, best_usd: float
) -> tuple[int, float]:
    """Make so many attempts at moves; return how many were made, and the least price met.

    Parameters
    ----------
    moves : int
        Attempts.
    best_usd : float
        Price of ``best_group`` and ``best_bin``, which a cheaper plan replaces.
    """
    mask = len(data.deviates) - 1
    made = 0
    for _ in range(moves):
        word = draw(fleet.rng)
        slack = how.heat * data.deviates[word & mask]
        if _attempt(data, fleet, how, slack, (word >> 16) & 1023):
            made += 1
            usd = fleet.used[0] * data.usd[0] + fleet.used[1] * data.usd[1]
            if usd < best_usd - 1e-9:
                best_usd = usd
                fleet.best_group[:] = fleet.group
                fleet.best_bin[:] = fleet.bin
    return made, best_usd
