"""The state of a plan by loads, and its elementary changes, as kernels see them.

Jobs of one node in each pool and one iteration per period; a plan is a partition of jobs into
groups and, in each pool of each group, into bins (nodes). :mod:`models.loads.plan_moves` has sets,
parameters and constraints, and the moves made of these changes. Sums over bins are taken anew
after each change, in list order: they do not drift. The generator is xorshift128 (Marsaglia,
2003) in 32-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.problem.compiled import compiled

__all__ = [
    "Fleet",
    "LoadData",
    "attach",
    "below",
    "change_group",
    "detach",
    "draw",
    "enter_bin",
    "fill",
    "leave_bin",
    "need_paid_s",
    "need_s",
    "refresh",
    "sum_bin",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class LoadData(NamedTuple):
    """What stays as it is; pools in rows.

    Attributes
    ----------
    chain_s : (2, 2, n) float64
        ``T_j`` with the rollout switch paid (first index 1), and the train switch.
    deadline_s : (n,) float64
        With the slack of seconds.
    paid_s, state_gb, value : (2, n) float64
        ``paid_s``: phase and switch.
    dram_gb, usd : (2,) float64
        ``dram_gb`` with the slack of GB.
    rank, order : (n,) int64
        Position of each job in order of deadlines, and the job at each position.
    limits : (5,) int64
        Most jobs of a group, most rollout and train bins of a group, most rollout and train
        bins in all.
    deviates : (m,) float64
        Exponential deviates, ``m`` a power of 2.
    """

    chain_s: FloatArray
    deadline_s: FloatArray
    paid_s: FloatArray
    state_gb: FloatArray
    value: FloatArray
    dram_gb: FloatArray
    usd: FloatArray
    rank: IntArray
    order: IntArray
    limits: IntArray
    deviates: FloatArray


class Fleet(NamedTuple):
    """The state; lists are doubly linked, -1 ends them. At most ``n`` groups, bins of a pool.

    Attributes
    ----------
    group, bin : (n,), (2, n) int64
        Of each job; -1 when it is not placed.
    bin_next, bin_prev : (2, n) int64
        Links between the jobs of a bin.
    mate_next, mate_prev : (n,) int64
        Links between the jobs of a group.
    b_group, b_count, b_head : (2, n) int64
        Of each bin: its group, jobs, first job.
    b_load, b_state, b_value : (2, n) float64
        Sums over its jobs; loads with switches.
    b_next, b_prev : (2, n) int64
        Links between the bins of a group.
    g_count, g_head : (n,) int64
        Of each group: jobs, first job.
    g_bins, g_first : (2, n) int64
        Of each group and pool: bins, first bin.
    g_period, g_top : (n,) float64
    g_load : (2, n) float64
        Least load of a bin of each group and pool: where a job cannot join, at once.
    free_bins : (2, n) int64
    free_groups : (n,) int64
        Stacks of what is not in use.
    used : (3,) int64
        Rollout bins, train bins, groups in use.
    rng : (4,) int64
        State of the generator, below 2^32.
    best_group, best_bin : (n,), (2, n) int64
        The cheapest plan met.
    """

    group: IntArray
    bin: IntArray
    bin_next: IntArray
    bin_prev: IntArray
    mate_next: IntArray
    mate_prev: IntArray
    b_group: IntArray
    b_count: IntArray
    b_head: IntArray
    b_load: FloatArray
    b_state: FloatArray
    b_value: FloatArray
    b_next: IntArray
    b_prev: IntArray
    g_count: IntArray
    g_head: IntArray
    g_bins: IntArray
    g_first: IntArray
    g_period: FloatArray
    g_top: FloatArray
    g_load: FloatArray
    free_bins: IntArray
    free_groups: IntArray
    used: IntArray
    rng: IntArray
    best_group: IntArray
    best_bin: IntArray


# --- the generator ------------------------------------------------------------------------------


@compiled
def draw(rng: IntArray) -> int:
    """Return 32 random bits."""
    x = rng[0]
    t = x ^ ((x << 11) & 0xFFFFFFFF)
    rng[0] = rng[1]
    rng[1] = rng[2]
    w = rng[3]
    rng[2] = w
    w = w ^ (w >> 19) ^ t ^ (t >> 8)
    rng[3] = w
    return int(w)


@compiled
def below(rng: IntArray, n: int) -> int:
    """Return a random whole number of ``0 .. n - 1``."""
    return (draw(rng) * n) >> 32


# --- changes ------------------------------------------------------------------------------------


@compiled
def sum_bin(data: LoadData, fleet: Fleet, p: int, b: int) -> None:
    """Take the sums over a bin anew."""
    load = 0.0
    state = 0.0
    value = 0.0
    j = fleet.b_head[p, b]
    while j >= 0:
        load += data.paid_s[p, j]
        state += data.state_gb[p, j]
        value += data.value[p, j]
        j = fleet.bin_next[p, j]
    fleet.b_load[p, b] = load
    fleet.b_state[p, b] = state
    fleet.b_value[p, b] = value


@compiled
def leave_bin(data: LoadData, fleet: Fleet, p: int, j: int) -> None:
    """Take a job out of its bin of one pool; the bin goes when it is empty."""
    b = fleet.bin[p, j]
    before, after = fleet.bin_prev[p, j], fleet.bin_next[p, j]
    if before >= 0:
        fleet.bin_next[p, before] = after
    else:
        fleet.b_head[p, b] = after
    if after >= 0:
        fleet.bin_prev[p, after] = before
    fleet.bin[p, j] = -1
    fleet.b_count[p, b] -= 1
    if fleet.b_count[p, b] > 0:
        sum_bin(data, fleet, p, b)
        return
    g = fleet.b_group[p, b]
    before, after = fleet.b_prev[p, b], fleet.b_next[p, b]
    if before >= 0:
        fleet.b_next[p, before] = after
    else:
        fleet.g_first[p, g] = after
    if after >= 0:
        fleet.b_prev[p, after] = before
    fleet.g_bins[p, g] -= 1
    fleet.b_group[p, b] = -1
    fleet.used[p] -= 1
    fleet.free_bins[p, fleet.used[p]] = b


@compiled
def enter_bin(data: LoadData, fleet: Fleet, p: int, j: int, b: int) -> None:
    """Put a job into a bin of its group; -1: a new one."""
    if b < 0:
        g = fleet.group[j]
        b = fleet.free_bins[p, fleet.used[p]]
        fleet.used[p] += 1
        first = fleet.g_first[p, g]
        fleet.b_group[p, b] = g
        fleet.b_count[p, b] = 0
        fleet.b_head[p, b] = -1
        fleet.b_prev[p, b] = -1
        fleet.b_next[p, b] = first
        if first >= 0:
            fleet.b_prev[p, first] = b
        fleet.g_first[p, g] = b
        fleet.g_bins[p, g] += 1
    head = fleet.b_head[p, b]
    fleet.bin_prev[p, j] = -1
    fleet.bin_next[p, j] = head
    if head >= 0:
        fleet.bin_prev[p, head] = j
    fleet.b_head[p, b] = j
    fleet.b_count[p, b] += 1
    fleet.bin[p, j] = b
    sum_bin(data, fleet, p, b)


@compiled
def need_s(data: LoadData, fleet: Fleet, j: int) -> float:
    """Return the seconds of a job's iteration, with the switches that it pays."""
    rollout = 1 if fleet.b_count[0, fleet.bin[0, j]] > 1 else 0
    train = 1 if fleet.b_count[1, fleet.bin[1, j]] > 1 else 0
    return float(data.chain_s[rollout, train, j])


@compiled
def need_paid_s(data: LoadData, fleet: Fleet, j: int, p: int) -> float:
    """Return the same if it pays in pool ``p``, whether or not it does now."""
    paid = 1 if fleet.b_count[1 - p, fleet.bin[1 - p, j]] > 1 else 0
    return float(data.chain_s[1, paid, j] if p == 0 else data.chain_s[paid, 1, j])


@compiled
def refresh(data: LoadData, fleet: Fleet, g: int) -> None:
    """Take period and top of a group anew; a job counts as in its bins."""
    period = np.inf
    top = 0.0
    j = fleet.g_head[g]
    while j >= 0:
        period = min(period, data.deadline_s[j])
        top = max(top, need_s(data, fleet, j))
        j = fleet.mate_next[j]
    for p in range(2):
        least = np.inf
        b = fleet.g_first[p, g]
        while b >= 0:
            least = min(least, fleet.b_load[p, b])
            if fleet.b_count[p, b] > 1:
                top = max(top, fleet.b_load[p, b])
            b = fleet.b_next[p, b]
        fleet.g_load[p, g] = least
    fleet.g_period[g] = period
    fleet.g_top[g] = top


@compiled
def detach(data: LoadData, fleet: Fleet, j: int) -> None:
    """Take a job out of its bins and its group, which goes when it is empty."""
    leave_bin(data, fleet, 0, j)
    leave_bin(data, fleet, 1, j)
    g = fleet.group[j]
    before, after = fleet.mate_prev[j], fleet.mate_next[j]
    if before >= 0:
        fleet.mate_next[before] = after
    else:
        fleet.g_head[g] = after
    if after >= 0:
        fleet.mate_prev[after] = before
    fleet.group[j] = -1
    fleet.g_count[g] -= 1
    if fleet.g_count[g] == 0:
        fleet.used[2] -= 1
        fleet.free_groups[fleet.used[2]] = g
    else:
        refresh(data, fleet, g)


@compiled
def attach(data: LoadData, fleet: Fleet, j: int, g: int, r: int, t: int) -> None:
    """Put a job into a group and bins of it; -1: a new one. Feasible or not."""
    if g < 0:
        g = fleet.free_groups[fleet.used[2]]
        fleet.used[2] += 1
        fleet.g_count[g] = 0
        fleet.g_head[g] = -1
        for p in range(2):
            fleet.g_bins[p, g] = 0
            fleet.g_first[p, g] = -1
    head = fleet.g_head[g]
    fleet.group[j] = g
    fleet.mate_prev[j] = -1
    fleet.mate_next[j] = head
    if head >= 0:
        fleet.mate_prev[head] = j
    fleet.g_head[g] = j
    fleet.g_count[g] += 1
    enter_bin(data, fleet, 0, j, r)
    enter_bin(data, fleet, 1, j, t)
    refresh(data, fleet, g)


@compiled
def fill(data: LoadData, fleet: Fleet, jobs: IntArray, firsts: IntArray) -> None:
    """Put jobs into an empty state, in turn.

    ``firsts``, ``(m, 3)``: for each a job already there whose group, rollout bin and train
    bin it joins; -1: new ones.
    """
    for i in range(len(jobs)):
        g, r, t = firsts[i, 0], firsts[i, 1], firsts[i, 2]
        if g >= 0:
            g = fleet.group[g]
        if r >= 0:
            r = fleet.bin[0, r]
        if t >= 0:
            t = fleet.bin[1, t]
        attach(data, fleet, jobs[i], g, r, t)


@compiled
def change_group(fleet: Fleet, j: int, g: int) -> None:
    """Move a job between the lists of groups; neither its bins nor sums are looked at."""
    old = fleet.group[j]
    before, after = fleet.mate_prev[j], fleet.mate_next[j]
    if before >= 0:
        fleet.mate_next[before] = after
    else:
        fleet.g_head[old] = after
    if after >= 0:
        fleet.mate_prev[after] = before
    fleet.g_count[old] -= 1
    head = fleet.g_head[g]
    fleet.group[j] = g
    fleet.mate_prev[j] = -1
    fleet.mate_next[j] = head
    if head >= 0:
        fleet.mate_prev[head] = j
    fleet.g_head[g] = j
    fleet.g_count[g] += 1
