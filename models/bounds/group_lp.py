"""Lower bound of the cost of any valid plan by the LP over whole groups (a limit on group size).

Pool decomposition (:mod:`models.bounds.columns`) packs each pool for itself. Here a column is a
whole group: its jobs, its nodes in both pools, one period.

Sets and parameters
-------------------
Jobs ``j``; groups ``g = (S, n^R, n^T)`` of at most ``B`` jobs, of price
``c_g = p^R n^R + p^T n^T``; which node counts a set of jobs may have is relaxed to what loads,
DRAM, chains with their switches, the group's connectedness and its node limits tell
(:mod:`models.bounds.group_search`). Let ``c = p^R + p^T``, at most the price of any group.

Variables, constraints
----------------------
``z_g >= 0``:

    min sum_g c_g z_g    s.t.  sum_{g with j} z_g >= 1    jobs j    (y_j)

A valid plan is a solution, each connected part of a group of its own, so the LP value is a bound.

Bound, at any moment and for any ``y >= 0``
-------------------------------------------
Let ``r_i >= 0`` be at least ``y(S) - c_g`` of every group that ``i`` leads (the job of least
deadline and index). A group without one of its jobs, in connected parts, is a group or several, and
no dearer; so some optimal ``z`` over the groups of valid plans covers every job exactly once, and
the groups that ``i`` leads are at most one. For ``0 <= h <= 1``

    sum_g c_g z_g  >=  h sum_j y_j + sum_i min(0, (1 - h) c - h r_i),

since ``c_g - h y(S) >= (1 - h) c_g - h r_i``. This is :func:`models.bounds.columns.dual_bound` in
units of ``c`` with ``V_i = 1 + r_i / c``. The largest bound of all rounds is kept; the first is
that of the sum of both pools' LP values by pool decomposition. Its prices ``y_j = sum_P p^P a^P_j
v^P_j`` are where pricing starts: a group of a valid plan is a union of bins, so none is worth more
than its price.

Where the groups of all sets are enumerated (:mod:`models.exact.set_partition`) the LP value is the
value at the root of its search.

Method: column generation; prices smoothed towards the best (see :mod:`models.bounds.coupled`); all
pricing problems exact within a budget of nodes, else bounded.

Assumptions: ``max_rate`` 1, ``max_group_size`` > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from instances.plan import Limits
from models.backends.highs_model import INFINITY, Ended, HighsModel
from models.bounds.anytime_bound import AnytimeBound, pools_first
from models.bounds.columns import STOPPED, DecompositionBound, Until, dual_bound
from models.bounds.covering import CoverProblem, solve_cover
from models.bounds.group_pricing import GroupPricing, Groups, PricedGroups
from models.problem.options import Deadline, Progress
from models.problem.result import StoppedBy
from models.problem.snapshot import Snapshot

__all__ = ["GROUP_LP", "GroupLpBound", "cover_of_columns", "group_lp_bound"]

GROUP_LP: Final = "group-lp"

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: A group is added when it is worth this share of a pair of nodes more than its price.
_GAIN: Final = 1e-8
#: First columns: the groups per leader short by at most this share of a pair of nodes.
_SEEDS: Final = 20
_SHORT: Final = 0.4
#: Groups a leader may add in a round.
_KEEP: Final = 8
#: Weight of the best prices in those that are priced first.
_SMOOTH: Final = 0.6
#: Nodes of one leader's search at first, and the factor when searches end too early.
_BUDGET: Final = 50_000
_MORE: Final = 10
#: Beyond this one search takes too long between two looks at the clock.
_MOST_BUDGET: Final = 500_000
#: Jobs beyond which the master is solved by interior point, cold and without crossover.
_MOST_SIMPLEX: Final = 400
#: Most columns that a cover is chosen from.
_MOST_COVER: Final = 30_000
_UNTIL: Final = Until()


@dataclass(frozen=True, kw_only=True)
class GroupLpBound:
    """What is proved, and the groups generated.

    Attributes
    ----------
    usd_per_hour : float
        No valid plan costs less, $/h.
    lp_usd : float or None
        Least value of a master: the LP value is at most this, $/h; ``None``: no master ended.
    exact : bool
        Whether the bound is at the LP value, or above it: among gangs and in large groups, which
        are relaxed more than the nodes of pool decomposition, that bound may be the higher one.
    rounds : int
        Of pricing.
    columns : Groups
        Generated, each job alone among them.
    duals : (n,) float64
        Price of each job at the best bound, $/h.
    stopped_by : StoppedBy or None
        ``None`` when it ended by itself.
    limits : Limits
        What the bound holds for; never compare it with a plan made under looser limits.
    """

    usd_per_hour: float
    lp_usd: float | None
    exact: bool
    rounds: int
    columns: Groups
    duals: FloatArray
    stopped_by: StoppedBy | None
    limits: Limits
    method: str = GROUP_LP


class _Master:
    """The covering LP over the groups generated so far; a pair of nodes costs 1."""

    def __init__(self, snapshot: Snapshot, size: int, seed: int) -> None:
        self._n = len(snapshot)
        self._large = self._n > _MOST_SIMPLEX
        options = {"solver": "ipx", "run_crossover": "off"} if self._large else {}
        self.model = HighsModel(seed=seed, options=options)
        self.model.add_rows(np.ones(self._n), np.full(self._n, INFINITY))
        cluster = snapshot.cluster
        self.usd = np.array([cluster.rollout.usd_per_hour, cluster.train.usd_per_hour])
        self.unit_usd = float(self.usd.sum()) or 1.0
        self._seen: set[bytes] = set()
        self.groups = Groups(np.zeros((0, size), dtype=np.int64), np.zeros((0, 2), dtype=np.int64))

    def add(self, groups: Groups) -> int:
        """Add groups that are not there yet; return how many."""
        fresh = []
        rows = np.concatenate((groups.members, groups.nodes), axis=1)
        for i, row in enumerate(rows):
            key = row.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(i)
        if not fresh:
            return 0
        members, nodes = groups.members[fresh], groups.nodes[fresh]
        held = members >= 0
        sizes = held.sum(axis=1)
        index = members[held]
        cost = (nodes @ self.usd) / self.unit_usd
        self.model.add_sparse_columns(cost, np.cumsum(sizes) - sizes, index, np.ones(len(index)))
        self.groups = Groups(
            np.concatenate((self.groups.members, members)),
            np.concatenate((self.groups.nodes, nodes)),
        )
        return len(fresh)

    def solve(self, deadline: Deadline) -> tuple[Ended, float, FloatArray]:
        """Return how it ended, and value and duals, $/h, where optimal."""
        if self._large:
            self.model.forget()
        ended = self.model.run(deadline.remaining_s())
        if ended is not Ended.OPTIMAL:
            return ended, math.nan, np.zeros(self._n)
        duals = np.maximum(self.model.duals(), 0.0) * self.unit_usd
        return ended, self.model.objective * self.unit_usd, duals


class _Generation(AnytimeBound):
    """Column generation; :meth:`run` returns at any stop what is held."""

    def __init__(
        self,
        snapshot: Snapshot,
        deadline: Deadline,
        start: DecompositionBound,
        *,
        threads: int,
        seed: int,
        progress: Progress | None,
        until: Until,
    ) -> None:
        super().__init__(snapshot, deadline, start, progress=progress, until=until)
        self.threads = threads
        self.pricing = GroupPricing(snapshot)
        table = snapshot.table
        self.master = _Master(snapshot, self.pricing.most, seed)
        usd = self.master.usd
        self.master.add(_alone(snapshot, self.pricing.most))
        self.best: FloatArray = (
            usd[0] * table.rollout_nodes * start.rollout.duals
            + usd[1] * table.train_nodes * start.train.duals
        )
        self.budget = _BUDGET

    def generate(self) -> None:
        """Generate until bound and LP value meet, or a limit."""
        if self.at_limit():
            return
        floor = -_SHORT * self.master.unit_usd
        self.master.add(self._priced(self.best, floor, _SEEDS).groups)
        while not self.at_limit():
            ended, value, y = self.master.solve(self.deadline)
            if ended is not Ended.OPTIMAL:
                self.stopped_by = STOPPED[ended]
                return
            self.lp_usd = min(self.lp_usd, value)
            if self.met or self.master.model.interrupted:
                break
            if not self._round(y):
                break
        if self.stopped_by is None and self.master.model.interrupted:
            self.stopped_by = StoppedBy.INTERRUPT

    def _round(self, y: FloatArray) -> bool:
        """Price smoothed prices, then the master's own; return whether there is more to do."""
        self.rounds += 1
        complete = True
        for weight in (_SMOOTH, 0.0):
            priced = self._priced(
                weight * self.best + (1 - weight) * y, _GAIN * self.master.unit_usd, _KEEP
            )
            complete = bool(priced.exact.all())
            if self.progress is not None:
                self.progress("groups", len(self.master.groups), self.rounds)
            if self.master.add(priced.groups):
                return True
            if self.at_limit(rounds=False):
                return False
        if self.met or complete:
            return False
        if self.budget >= _MOST_BUDGET:
            self.stopped_by = StoppedBy.SEARCH
            return False
        self.budget *= _MORE
        return True

    def _priced(self, y: FloatArray, floor: float, keep: int) -> PricedGroups:
        """Solve the pricing problems and raise the bound."""
        priced = self.pricing.price(
            y,
            floor,
            budget=self.budget,
            keep=keep,
            threads=self.threads,
            deadline=self.deadline,
        )
        unit = self.master.unit_usd
        most = 1.0 + np.maximum(priced.excess, 0.0) / unit
        ones = np.ones(len(y), dtype=np.int64)
        value = unit * dual_bound(y / unit, ones, most)
        if value > self.bound:
            self.bound, self.best = value, y
        return priced


def _alone(snapshot: Snapshot, size: int) -> Groups:
    """Return every job as a group of its own."""
    n = len(snapshot)
    members = np.full((n, size), -1, dtype=np.int64)
    members[:, 0] = np.arange(n)
    table = snapshot.table
    nodes = np.stack((table.rollout_nodes, table.train_nodes), axis=1).astype(np.int64)
    return Groups(members, nodes)


def group_lp_bound(
    snapshot: Snapshot,
    deadline: Deadline,
    *,
    start: DecompositionBound | None = None,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    until: Until = _UNTIL,
) -> GroupLpBound:
    """Return a lower bound of the cost of any valid plan, whatever stops it (module docstring).

    Parameters
    ----------
    snapshot : Snapshot
    deadline : Deadline
    start : DecompositionBound, optional
        Of the same snapshot; left out, it is computed with a part of the time.
    threads : int
        That price; the answer does not depend on it unless time stops it.
    seed : int
    progress : callable, optional
        Called with ("groups", held, rounds) after each pricing.
    until : Until
        ``whole`` has no meaning here.

    Raises
    ------
    UnsupportedError
        When groups are not limited in size, or jobs may run several iterations per period.
    """
    limits = snapshot.limits
    if not limits.max_group_size or limits.max_rate > 1:
        raise UnsupportedError(
            "Expected max_group_size > 0 and max_rate 1 for the group LP, got "
            f"{limits.max_group_size} and {limits.max_rate}."
        )
    if start is None:
        start, deadline = pools_first(snapshot, deadline, threads=threads, seed=seed)
    generation = _Generation(
        snapshot, deadline, start, threads=threads, seed=seed, progress=progress, until=until
    )
    if len(snapshot):
        generation.run()
    return GroupLpBound(
        usd_per_hour=generation.bound,
        lp_usd=generation.lp_usd if math.isfinite(generation.lp_usd) else None,
        exact=not len(snapshot) or generation.met,
        rounds=generation.rounds,
        columns=generation.master.groups,
        duals=generation.best,
        stopped_by=generation.stopped_by,
        limits=limits,
    )


def cover_of_columns(
    snapshot: Snapshot, bound: GroupLpBound, deadline: Deadline, *, seed: int = 0
) -> tuple[tuple[tuple[int, ...], tuple[int, int]], ...]:
    """Return groups of the bound's columns that hold every job exactly once, of little cost.

    Members and nodes of each. Node counts are those of a relaxation (module docstring): whoever
    makes a plan of them has to look for schedules. A job in two chosen groups stays in the first.
    """
    columns = bound.columns
    usd = (snapshot.cluster.rollout.usd_per_hour, snapshot.cluster.train.usd_per_hour)
    padded = np.append(bound.duals, 0.0)
    reduced = columns.nodes @ np.array(usd) - padded[columns.members].sum(axis=1)
    alone = (columns.members >= 0).sum(axis=1) == 1
    order = np.argsort(np.where(alone, -np.inf, reduced), kind="stable")[:_MOST_COVER]
    problem = CoverProblem(
        n_jobs=len(snapshot),
        members=columns.members[order],
        nodes=columns.nodes[order],
        usd=usd,
        caps=(snapshot.caps.max_rollout_nodes_total, snapshot.caps.max_train_nodes_total),
    )
    cover = solve_cover(problem, deadline, seed=seed)
    chosen = cover.chosen if cover.chosen is not None else tuple(np.flatnonzero(alone[order]))
    groups, placed = [], set[int]()
    for column in chosen:
        members = [int(j) for j in problem.members[column] if j >= 0 and int(j) not in placed]
        if members:
            placed.update(members)
            rollout, train = problem.nodes[column].tolist()
            groups.append((tuple(members), (rollout, train)))
    return tuple(groups)
