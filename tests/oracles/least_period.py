"""Least period of one co-execution group, computed independently of the project (test oracle).

Problem (FORMULATION section 2). Job j runs k_j iterations per period C; each is a rollout and then
a train. A phase lasts d = run seconds, plus its switch if any of the job's nodes in that pool has
two or more jobs pinned. A gang phase occupies all its nodes at once; on each node the phases are
disjoint arcs of the circle of length C (an arc of length 0 meets nothing). Rollout and train
nodes are different name spaces.

Every rule is one kind of row, an edge u -> v with a lag and a height:

    s_v - s_u + height * C >= lag                                                          (1)

* chain of a job: (rollout i, train i, d, 0), (train i, rollout i+1, d + sync, 0) and, from the
  last train to the first rollout of the next period, (train k, rollout 1, d + sync, 1).
* u, v of different jobs share a node: their arcs are disjoint iff (s_v - s_u) mod C lies in
  [d_u, C - d_v], that is iff some integer K has d_u <= s_v - s_u + K C <= C - d_v: the edges
  (u, v, d_u, K) and (v, u, d_v, 1 - K). K is at once the order and the height of the pair.
  One job's own arcs need no row: its chain is ordered and no longer than C.
* a one-step job (lag 2): its rollout i+2 waits for its train i instead, so (train i, rollout i+2,
  d + sync, h), h the periods that i+2 lies ahead. Its own arcs need rows now: (rollout i, rollout
  i+1, d, h) and (train i, train i+1, d, h). That order loses nothing: given any matching of
  disjoint rollouts to trains, the one in order of time obeys (1) as well.

Range of K. Moving a whole job by a multiple of C changes nothing, so let its rollout 1 start in
[0, C). Its chain ends before rollout 1 + C, so all its starts lie in [0, 2C), a difference of two
starts lies in (-2C, 2C), and as the middle of the K inequality lies in [0, C]: K in {-1, .., 2}.
Route A uses this. Route B also relabels the iterations of a job (they are alike) so that
iteration 1 has the rollout with the least start mod C: then every rollout starts in [0, C), so
does every train but the last of its job (a later rollout follows it), and only last trains reach
[0, 2C). A time turn puts rollout 1 of job 0 at 0, and so the last train of job 0 in [0, C) too.
A train i of lag 2 ends before rollout i+2, which is in [0, 2C), or with k = 1 in [2C, 3C): all its
trains are in [0, 2C), or [0, 3C).
With starts in [0, U_u C) and [0, U_v C): -U_v < K < 1 + U_u, that is 1 - U_v <= K <= U_u.

Routes, which share only rows (1):
A. `least_period_brute`: depth first over the pairs and the K of each, minimising C by LP (K is
   fixed, so K C is linear); a branch is cut once its LP value reaches the incumbent.
B. `least_period`: with tau = 1/C and sigma = s/C a pair is d_u tau <= sigma_v - sigma_u + K
   <= 1 - d_v tau: a MILP maximising tau. The LP of its K then gives C and starts to about 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

Starts = list[list[tuple[float, float]]]
AnyStarts = Sequence[Sequence[tuple[float, float]]]
Pins = Sequence[Collection[Hashable]]
Row = tuple[int, int, float, int]  # (u, v, lag, height) of (1)
Heights = dict[tuple[int, int], int]  # K of each pair of phases
TOL = 1e-9  # relative to a time unit near C


class Data(NamedTuple):
    """The arguments of `least_period`, in its order; every public function takes them so."""

    rollout_s: Sequence[float]
    train_s: Sequence[float]
    sync_s: Sequence[float]
    rollout_pins: Pins
    train_pins: Pins
    rates: Sequence[int] | None = None
    rollout_switch_s: Sequence[float] | None = None
    train_switch_s: Sequence[float] | None = None
    lags: Sequence[int] | None = None  # 1, or 2 of a one-step job

    def lag(self, j: int) -> int:
        """Iterations from a train of job j to the rollout that waits for it."""
        return 1 if self.lags is None else self.lags[j]

    def k(self) -> list[int]:
        """Iterations per period of each job."""
        return [1] * len(self.rollout_s) if self.rates is None else list(self.rates)

    def pools(self) -> list[tuple[list[float], list[set[Hashable]]]]:
        """Phase seconds (switch included) and pins of each job: of rollouts, then of trains."""
        n = len(self.rollout_s)
        rollout = (self.rollout_s, self.rollout_pins, self.rollout_switch_s)
        train = (self.train_s, self.train_pins, self.train_switch_s)
        result = []
        for run, pins, switch in (rollout, train):
            nodes = [set(p) for p in pins]
            warm = [0.0] * n if switch is None else switch
            if not {n} == {len(x) for x in (run, self.sync_s, nodes, warm, self.k())}:
                raise ValueError("Expected one entry per job in every argument.")
            if not (n and all(nodes)) or min(self.k()) < 1 or min(*run, *warm, *self.sync_s) < 0:
                raise ValueError("Expected a job, nodes for each job, rates >= 1, times >= 0.")
            pays = [any(x & y for i, y in enumerate(nodes) if i != j) for j, x in enumerate(nodes)]
            result.append(([run[j] + (warm[j] if pays[j] else 0.0) for j in range(n)], nodes))
        return result


class Group(NamedTuple):
    """Phases of a group: those of job j are rollout 1, train 1, ..., train k_j, consecutively."""

    seconds: tuple[float, ...]  # per phase, switch included
    jobs: tuple[tuple[int, ...], ...]  # per job, its phases in chain order
    chain: tuple[Row, ...]
    pairs: tuple[tuple[int, int], ...]  # phases u < v of different jobs which share a node


def build(data: Data, *, unit_s: float = 1.0) -> Group:
    """Phases, chain rows and conflicting pairs; all times are divided by `unit_s`."""
    pools, jobs, chain = data.pools(), [], []
    seconds: list[float] = []
    owner: list[tuple[int, int]] = []  # (job, pool) of each phase
    for j, k in enumerate(data.k()):
        own = tuple(range(len(seconds), len(seconds) + 2 * k))
        for i, u in enumerate(own):
            pool, last = i % 2, u == own[-1]
            seconds.append(pools[pool][0][j] / unit_s)
            owner.append((j, pool))
            lag = seconds[u] + pool * data.sync_s[j] / unit_s
            if data.lag(j) == 1:
                chain.append((u, own[0] if last else u + 1, lag, int(last)))
                continue
            turns, waiting = divmod(i // 2 + data.lag(j) * pool, k)
            chain.append((u, own[2 * waiting + 1 - pool], lag, turns))
            turns, after = divmod(i // 2 + 1, k)
            chain.append((u, own[2 * after + pool], seconds[u], turns))
        jobs.append(own)

    def meet(u: int, v: int) -> bool:
        (i, pool), (j, other) = owner[u], owner[v]
        shared = pool == other and pools[pool][1][i] & pools[pool][1][j]
        return i != j and bool(shared) and min(seconds[u], seconds[v]) > 0

    pairs = tuple(pair for pair in combinations(range(len(seconds)), 2) if meet(*pair))
    return Group(seconds=tuple(seconds), jobs=tuple(jobs), chain=tuple(chain), pairs=pairs)


def _pair_rows(group: Group, pair: tuple[int, int], k: int) -> list[Row]:
    """Rows (u, v, d_u, K) and (v, u, d_v, 1 - K): the arcs of u and v are disjoint."""
    u, v = pair
    return [(u, v, group.seconds[u], k), (v, u, group.seconds[v], 1 - k)]


def _all_rows(group: Group, heights: Heights) -> list[Row]:
    """Rows of the chains and of every pair at its given K."""
    return [*group.chain, *(r for p in group.pairs for r in _pair_rows(group, p, heights[p]))]


def _incidence(rows: Sequence[Row], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrix of s_v - s_u, one line per row, with the lags and heights of the rows."""
    u, v, lag, height = (np.array(column) for column in zip(*rows, strict=True))
    matrix = np.zeros((len(rows), n))
    np.add.at(matrix, (np.arange(len(rows)), v), 1.0)  # a row of u = v is of C alone
    np.add.at(matrix, (np.arange(len(rows)), u), -1.0)
    return matrix, lag, height


def _least_c(rows: Sequence[Row], n: int) -> tuple[float, np.ndarray] | None:
    """Least C and the n starts, phase 0 at 0, satisfying the rows, by LP; None without such C."""
    matrix, lag, height = _incidence(rows, n)
    result = linprog(
        np.eye(n + 1)[n],  # columns: starts, C
        A_ub=-np.column_stack([matrix, height]),
        b_ub=-lag,
        bounds=[(0, 0), *[(None, None)] * (n - 1), (0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status not in (0, 2):
        raise RuntimeError(f"LP of the period failed: {result.message}")
    return None if result.status == 2 else (float(result.x[n]), result.x[:n])


def period_of_heights(group: Group, heights: Heights) -> tuple[float, np.ndarray] | None:
    """Least C and starts of given orders and heights K per pair of `group.pairs`, if any."""
    return _least_c(_all_rows(group, heights), len(group.seconds))


def _as_starts(group: Group, period: float, s: np.ndarray, unit_s: float) -> Starts:
    """Start pairs per job and iteration in seconds; rollout 1 of each job is moved into [0, C)."""
    starts: Starts = []
    for own in group.jobs:
        x = s[list(own)] - period * math.floor(s[own[0]] / period + 1e-12)
        x = ((x + max(0.0, -x[0])) * unit_s).tolist()
        starts.append(list(zip(x[::2], x[1::2], strict=True)))
    return starts


def least_period(
    rollout_s: Sequence[float],
    train_s: Sequence[float],
    sync_s: Sequence[float],
    rollout_pins: Pins,
    train_pins: Pins,
    rates: Sequence[int] | None = None,
    rollout_switch_s: Sequence[float] | None = None,
    train_switch_s: Sequence[float] | None = None,
    lags: Sequence[int] | None = None,
) -> tuple[float, Starts]:
    """Least period in seconds and, per job and iteration, its (rollout, train) starts. Route B.

    Times are measured in LB, which holds for every schedule, so tau <= 1. As the MILP accepts
    integers within 1e-6, another K could be better by a relative 1e-6 or so (never seen, 4e-16 at
    most against route A), not more: the LP of the chosen K is held against the dual bound.
    """
    first = (rollout_s, train_s, sync_s, rollout_pins, train_pins)
    data = Data(*first, rates, rollout_switch_s, train_switch_s, lags)
    unit = lower_bound(*data)
    group = build(data, unit_s=unit)
    n, pairs = len(group.seconds), group.pairs
    top = np.ones(n)  # U: starts lie in [0, U C)
    top[[own[-1] for own in group.jobs[1:]]] = 2.0
    for j, own in enumerate(group.jobs):
        if data.lag(j) > 1:
            top[list(own[1::2])] = 3.0 if len(own) == 2 else 2.0
    lower = np.concatenate([np.zeros(n + 1), [1.0 - top[v] for _, v in pairs]])
    upper = np.concatenate([[0.0], top[1:], [1.0], [top[u] for u, _ in pairs]])
    matrix, lag, height = _incidence(_all_rows(group, dict.fromkeys(pairs, 0)), n)
    heights = np.kron(np.eye(len(pairs)), [[1.0], [-1.0]])  # K, then 1 - K, of each pair
    heights = np.vstack([np.zeros((len(group.chain), len(pairs))), heights])
    result = milp(  # columns: sigma, tau, K
        -1000.0 * np.eye(n + 1 + len(pairs))[n],  # HiGHS stops at a gap of 1e-6: 1e-9 of tau
        integrality=np.repeat([0, 1], [n + 1, len(pairs)]),
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(np.column_stack([matrix, -lag, heights]), -height, np.inf),
        options={"mip_rel_gap": 0.0},
    )
    if result.status != 0:
        raise RuntimeError(f"MILP of the period failed: {result.message}")
    chosen = {pair: round(k) for pair, k in zip(pairs, result.x[n + 1 :], strict=True)}
    found = period_of_heights(group, chosen)
    bound = result.x[n] if result.mip_dual_bound is None else -result.mip_dual_bound / 1000.0
    if found is None or found[0] * bound > 1.0 + 5e-6:
        raise RuntimeError(f"The LP of the MILP's heights gives {found}, its tau is {bound}.")
    period, starts = found[0] * unit, _as_starts(group, *found, unit)
    faults = verify(period, starts, *data, tolerance_s=1e-8 * period)
    if faults:
        raise RuntimeError(f"The oracle's own schedule is invalid: {faults}")
    return period, starts


def least_period_brute(*args: Any, **kwargs: Any) -> tuple[float, Starts]:
    """Route A: as `least_period`, by enumeration of all K. For three or four jobs.

    At a node of the tree the LP takes the rows of the pairs decided so far. If its solution has
    no overlap, no descendant is better; else the pair that overlaps most is decided next.
    """
    data = Data(*args, **kwargs)
    unit = float(max(data.rollout_s) + max(data.train_s) + max(data.sync_s))
    group = build(data, unit_s=unit)
    best: list[tuple[float, np.ndarray]] = []
    heights = (0, 1, -1, 2) if data.lags is None else (0, 1, -1, 2, -2, 3)

    def descend(rows: list[Row], undecided: set[tuple[int, int]]) -> None:
        found = _least_c(rows, len(group.seconds))
        if found is None or (best and found[0] >= best[0][0] - TOL):
            return
        c, s = found
        overlaps = [(-math.inf, (0, 0))]
        for u, v in sorted(undecided):
            gap = (s[v] - s[u]) % c  # an overlap unless in [d_u, C - d_v]
            overlaps.append((max(group.seconds[u] - gap, gap + group.seconds[v] - c), (u, v)))
        overlap, worst = max(overlaps)
        if overlap <= TOL:
            best[:] = [found]
            return
        for k in heights:
            descend([*rows, *_pair_rows(group, worst, k)], undecided - {worst})

    firsts = [own[0] for own in group.jobs[1:]]  # start in [0, C], to which all K can be reduced
    gauge = [row for f in firsts for row in ((0, f, 0.0, 0), (f, 0, 0.0, 1))]
    descend([*group.chain, *gauge], set(group.pairs))
    return best[0][0] * unit, _as_starts(group, *best[0], unit)


def lower_bound(*args: Any, **kwargs: Any) -> float:
    """LB(g): largest (a) k_j chain / lag, (b) node load, (c) load of pairwise meeting pins."""
    data = Data(*args, **kwargs)
    n, k, pools = len(data.rollout_s), data.k(), data.pools()
    chains = [pools[0][0][j] + pools[1][0][j] + data.sync_s[j] for j in range(n)]
    best = max(k[j] * chains[j] / data.lag(j) for j in range(n))
    for seconds, nodes in pools:
        for node in sorted(set().union(*nodes), key=repr):
            best = max(best, sum(k[j] * seconds[j] for j in range(n) if node in nodes[j]))
        for size in range(2, n + 1):
            for subset in combinations(range(n), size):
                if all(nodes[i] & nodes[j] for i, j in combinations(subset, 2)):
                    best = max(best, sum(k[j] * seconds[j] for j in subset))
    return best


def verify(
    period: float, starts: AnyStarts, *args: Any, tolerance_s: float = 1e-6, **kwargs: Any
) -> list[str]:
    """Faults of a schedule, empty if it obeys every rule of section 3; it looks at no K."""
    data = Data(*args, **kwargs)
    k, pools, faults = data.k(), data.pools(), []
    if [len(pairs) for pairs in starts] != k:
        return [f"Expected {k} start pairs per job, got {[len(x) for x in starts]}."]
    if not (period > 0 and all(math.isfinite(x) for job in starts for pair in job for x in pair)):
        return [f"Expected a period > 0 and finite starts, got period {period}."]
    for j, job in enumerate(starts):
        for i, (a, b) in enumerate(job):
            if b < a + pools[0][0][j] - tolerance_s:
                faults.append(f"job {j} iteration {i}: train starts before its rollout ends")
            turns, waiting = divmod(i + data.lag(j), k[j])
            after = job[waiting][0] + turns * period
            if after < b + pools[1][0][j] + data.sync_s[j] - tolerance_s:
                faults.append(f"job {j} iteration {i}: next rollout starts before the sync ends")
    faults += _own_faults(period, starts, data, tolerance_s)
    for pool, (seconds, nodes) in enumerate(pools):
        for node in sorted(set().union(*nodes), key=repr):
            arcs = sorted(
                (pair[pool] % period, seconds[j], j)
                for j in range(len(k))
                if node in nodes[j] and seconds[j] > 0
                for pair in starts[j]
            )
            for i, (start, d, j) in enumerate(arcs):
                follower = arcs[i + 1][0] if i + 1 < len(arcs) else arcs[0][0] + period
                if start + d > follower + tolerance_s:
                    kind = ("rollout", "train")[pool]
                    faults.append(f"{kind} node {node}: job {j} overlaps the next phase")
    return faults


def _own_faults(period: float, starts: AnyStarts, data: Data, tolerance_s: float) -> list[str]:
    """Faults of one-step jobs whose rollouts, or trains, do not follow one another in order."""
    faults = []
    for j, job in enumerate(starts):
        for i, pair in enumerate(job) if data.lag(j) > 1 else ():
            turns, after = divmod(i + 1, len(job))
            for pool, (seconds, _) in enumerate(data.pools()):
                if job[after][pool] + turns * period < pair[pool] + seconds[j] - tolerance_s:
                    faults.append(f"job {j} iteration {i}: its next phase starts before it ends")
    return faults
