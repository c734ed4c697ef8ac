"""The choice of columns when running groups are re-planned: LP by pricing, branching, search.

Sets, parameters and columns: :mod:`models.replan.columns`. Variables ``z_g in {0, 1}``.

    min  sum_g v_g z_g
    subject to  sum_{g covers j} z_g >= 1              jobs ``j``
                sum_{g on h} z_g <= 1                  hosts ``h``
                least^P <= sum_g n^P_g z_g <= most^P   totals of nodes, given and branched on
                sum_g |K_g| z_g >= stayers             where moves are limited: running jobs
                                                       less the most moves

Covering loses nothing. A job covered twice is dropped from a column where it does not stay (it
stays in one at most, hosts being used once): by heredity the column is a group without it, its
nodes are no more, and a job that moves costs its credit once, whatever covers it. So where all
sets and all parts of hosts are columns, a best choice covers every job once.

Method (:meth:`Choice.best`). The LP is solved over a part of the columns, the rest priced
(:meth:`Choice._solve`). A choice better than the plan held uses only columns whose reduced cost is
below what separates the LP value from it, and :mod:`models.replan.search` looks through these,
first within small distances of the LP value, then larger ones. Where that takes too many nodes,
good choices are looked for: by fixing columns one by one (:meth:`Choice._dive`) and by searching
a few groups at a time (:meth:`Choice._improve`). The LP is too weak then, mostly because it mixes
fractional totals of nodes: so they are branched on, best bound first, each part with its own LP
and search. A part may be filled up to its least
total with idle nodes at their price: a relaxation that keeps reduced costs rising with nodes, as
pricing assumes.

Money is divided by the dearest of a node and a move, so tolerances do not depend on its unit.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from math import floor
from typing import Final

import numpy as np

from models.backends.highs_model import INFINITY, Ended, HighsModel
from models.bounds.covering_lp import EPS, Ending, StoppedError
from models.problem.options import Deadline, OutOfTimeError
from models.replan.columns import (
    BoolArray,
    Columns,
    FloatArray,
    HostArrays,
    IntArray,
    Rows,
    all_parts,
    column_costs,
    expand,
)
from models.replan.search import CALL_NODES, SearchData, SearchState, search_choices
from models.replan.sets import SetTable

__all__ = ["Best", "Choice"]

#: Rows expanded, and columns priced in, to begin with.
_FIRST_ROWS: Final = 600
_FIRST_COLUMNS: Final = 400
#: Columns priced in, and rows expanded, at once.
_PRICED: Final = 150
_EXPANDED: Final = 400
#: Price of a node beyond a most total, in units: more than any plan.
_BEYOND: Final = 1e3
#: Idle nodes: one column per pool; nodes beyond: one more.
_ARTIFICIAL: Final = 4
#: Nodes of the search of one part before its totals are branched on.
_FEW_NODES: Final = 4_000
#: Nodes of the search that take as long as one run of the LP.
_LP_NODES: Final = 150
#: Re-planning of a few groups: jobs, nodes of the search, and times in vain before it ends.
_NEAR_JOBS: Final = 15
_AGAIN_NODES: Final = 2_000
_IN_VAIN: Final = 4
#: Distances searched, as shares of the whole one.
_SHARES: Final = (1 / 16, 1 / 4, 1.0)


@dataclass(frozen=True, kw_only=True)
class Best:
    """Outcome of one choice.

    Attributes
    ----------
    chosen : tuple of int or None
        Columns of a better choice than the one held; ``None`` where none was found.
    bound : float or None
        No choice is worth less, in the units of the LP; ``None`` where none is known.
    ending : Ending
        ``NODES`` when some part was given up.
    """

    chosen: tuple[int, ...] | None
    bound: float | None
    ending: Ending


@dataclass(order=True)
class _Part:
    """Choices with totals of nodes within limits; ``split`` is the pool and total to split at."""

    value: float = 0.0
    number: int = 0
    least: tuple[float, float] = field(compare=False, default=(0.0, 0.0))
    most: tuple[float, float] = field(compare=False, default=(INFINITY, INFINITY))
    split: tuple[int, float] = field(compare=False, default=(-1, 0.0))


class Choice:
    """Columns and the LP over them; grows by pricing and by refutation.

    Parameters
    ----------
    first : Columns
        In the LP from the start: the hosts as they are, in order; each newcomer alone; others.
    pi_usd : (n,) float64
        What each job may cost, $: columns that look cheap then are in the LP from the start.
    node_usd : (2,) float64
        Price of a rollout and of a train node, $.
    most_nodes : (float, float)
        Most rollout and train nodes of a choice; infinite: any number.

    Attributes
    ----------
    columns : Columns
    value : (m,) float64
        ``v_g`` in units.
    alive : (m,) bool
        False where refuted.
    """

    def __init__(  # noqa: PLR0913 - the problem and its limits
        self,
        table: SetTable,
        arrays: HostArrays,
        first: Columns,
        *,
        pi_usd: FloatArray,
        node_usd: FloatArray,
        most_moves: int | None,
        most_nodes: tuple[float, float] = (INFINITY, INFINITY),
        deadline: Deadline,
        seed: int,
    ) -> None:
        self.most_nodes = most_nodes
        self.table, self.arrays, self.deadline = table, arrays, deadline
        self.n, self.n_hosts = arrays.n, arrays.n_hosts
        self.unit = max(float(node_usd.max()), float(arrays.credit.max(initial=0.0))) or 1.0
        self.node_usd = node_usd / self.unit
        self.credit = arrays.credit / self.unit
        self.stayers = None
        if most_moves is not None:
            self.stayers = float(arrays.running.sum() - most_moves)
        self.nodes = self.left = self.lps = 0
        self._held = self._root = self.lp_value = -INFINITY
        self._chosen: tuple[int, ...] = ()
        self._spare: int | None = None
        self._given_up = INFINITY
        self._width = max(table.members.shape[1], first.members.shape[1])
        self.columns = first = Columns.joined((first,), self.n, self._width)
        self.covers = self._covered(first)
        self.value = self._values(first)
        self.stays = first.keep.sum(axis=1).astype(np.float64)
        self.alive: BoolArray = np.ones(len(first), dtype=np.bool_)
        self._inside: IntArray = np.full(len(first), -1, dtype=np.int64)
        members = np.where(table.members < 0, self.n, table.members)
        self._rows = Rows(members, table.nodes, arrays, self.credit)
        self._waiting: BoolArray = table.alive.copy()
        #: whether a best choice covers every job once
        self._once = table.subsets and all_parts(arrays)
        self._kept_columns = np.arange(self.n_hosts + self.n - arrays.running.sum())
        self._current = self._kept_columns
        self._seed = seed
        self._set_duals(pi_usd)
        self._expanded(INFINITY, _FIRST_ROWS)
        self._model = HighsModel(seed=seed, options={"presolve": "off"})
        self._start(len(first))

    # --- columns ----------------------------------------------------------------------------

    def _covered(self, columns: Columns) -> IntArray:
        """Return the jobs that each column covers: a job that may not move where it stays only."""
        lost = self.arrays.fixed[columns.members] & ~columns.keep
        return np.where(lost, self.n, columns.members)

    def _values(self, columns: Columns) -> FloatArray:
        kept = np.where(columns.keep, self.credit[columns.members], 0.0).sum(axis=1)
        out: FloatArray = columns.nodes @ self.node_usd - kept
        return out

    def append(self, more: Columns) -> IntArray:
        """Add columns; return their indices."""
        first = len(self.columns)
        if len(more):
            self.columns = Columns.joined((self.columns, more), self.n, self._width)
            self.covers = np.concatenate((self.covers, self._covered(self.columns.take(
                np.arange(first, len(self.columns))))))  # fmt: skip
            self.value = np.append(self.value, self._values(more))
            self.stays = np.append(self.stays, more.keep.sum(axis=1))
            self.alive = np.append(self.alive, np.ones(len(more), dtype=np.bool_))
            self._inside = np.append(self._inside, np.full(len(more), -1, dtype=np.int64))
        return np.arange(first, len(self.columns))

    def expand(self, rows: IntArray) -> IntArray:
        """Write out rows of the table; return the indices of their columns."""
        self._waiting[rows] = False
        rows = rows[self.table.alive[rows]]
        members = np.where(self.table.members[rows] < 0, self.n, self.table.members[rows])
        more = expand(members, self.table.nodes[rows], self.arrays, subsets=self.table.subsets)
        return self.append(more)

    def replace(self, gone: IntArray, added: IntArray) -> IntArray:
        """Leave columns out, and expand rows that refutation added to the table."""
        self.leave_out(gone)
        self._waiting = np.append(self._waiting, np.zeros(len(added), dtype=np.bool_))
        return self.expand(added)

    def leave_out(self, gone: IntArray) -> None:
        """Leave columns out for good."""
        self.alive[gone] = False
        inside = gone[self._inside[gone] >= 0]
        if len(inside):
            zeros = np.zeros(len(inside))
            self._model.column_bounds(self._inside[inside], zeros, zeros)

    # --- rows of the LP ---------------------------------------------------------------------

    def _set_duals(self, pi_usd: FloatArray) -> None:
        """Set duals as they may be, before there are any."""
        self._pi = np.append(pi_usd / self.unit, 0.0)
        self._mu = np.zeros(self.n_hosts + 1)
        self._node = self.node_usd
        self._stay = 0.0

    @property
    def pi_usd(self) -> FloatArray:
        """What the LP says each job costs, $."""
        return self._pi[: self.n] * self.unit

    def _start(self, first: int) -> None:
        """State the rows, artificial columns, the first columns and those that look cheapest."""
        n, h = self.n, self.n_hosts
        self._totals = slice(n + h, n + h + 2)
        lower = np.concatenate((np.ones(n), np.full(h + 2, -INFINITY)))
        upper = np.concatenate((np.full(n, INFINITY), np.ones(h), np.full(2, INFINITY)))
        if self.stayers is not None:
            lower, upper = np.append(lower, self.stayers), np.append(upper, INFINITY)
        self._model.add_rows(lower, upper)
        artificial = np.zeros((_ARTIFICIAL, len(lower)))
        artificial[:2, self._totals] = np.eye(2)
        artificial[2:, self._totals] = -np.eye(2)
        self._model.add_columns(np.append(self.node_usd, [_BEYOND, _BEYOND]), artificial)
        self._in_model: IntArray = np.zeros(0, dtype=np.int64)
        reduced = self._reduced()
        reduced[:first] = -INFINITY
        order = np.argsort(reduced, kind="stable")[: first + _FIRST_COLUMNS]
        self._price_in(np.sort(order))

    def _matrix(self, at: IntArray) -> FloatArray:
        """Return the coefficients of columns, ``(columns, rows)``."""
        jobs = np.zeros((len(at), self.n + 1))
        np.put_along_axis(jobs, self.covers[at], 1.0, axis=1)
        hosts = np.zeros((len(at), self.n_hosts + 1))
        hosts[np.arange(len(at)), self.columns.host[at]] = 1.0
        parts = [jobs[:, : self.n], hosts[:, : self.n_hosts], self.columns.nodes[at]]
        if self.stayers is not None:
            parts.append(self.stays[at][:, None])
        return np.concatenate(parts, axis=1)

    def _price_in(self, at: IntArray) -> None:
        self._model.add_columns(self.value[at], self._matrix(at))
        self._inside[at] = _ARTIFICIAL + len(self._in_model) + np.arange(len(at))
        self._in_model = np.concatenate((self._in_model, at))

    def _within(self, part: _Part) -> None:
        """Bound the totals of nodes."""
        for pool in (0, 1):
            self._model.row_bounds(self._totals.start + pool, part.least[pool], part.most[pool])

    # --- LP ---------------------------------------------------------------------------------

    def _solve(self) -> float:
        """Solve the LP over all columns; keep its duals and return its value.

        Raises
        ------
        StoppedError
            At a limit, or on Ctrl-C.
        """
        while True:
            self.deadline.check()
            ended = self._model.run(self.deadline.remaining_s())
            self.lps += 1
            if self._model.interrupted:  # though it may have ended before it was asked to
                raise StoppedError(Ending.INTERRUPT)
            if ended is not Ended.OPTIMAL:
                raise StoppedError(Ending(ended.value), self._model.status)
            duals = self._model.duals()
            n, h = self.n, self.n_hosts
            self._pi = np.append(np.maximum(duals[:n], 0.0), 0.0)
            self._mu = np.append(np.minimum(duals[n : n + h], 0.0), 0.0)
            self._node = np.maximum(self.node_usd - duals[self._totals], 0.0)
            if self.stayers is not None:
                self._stay = max(float(duals[-1]), 0.0)
            grown = self._expanded(-EPS, _EXPANDED)
            self.reduced = self._reduced()
            missing = np.flatnonzero(self.alive & (self._inside < 0) & (self.reduced < -EPS))
            if len(missing):
                order = np.argsort(self.reduced[missing], kind="stable")
                self._price_in(missing[order[:_PRICED]])
            elif not grown:
                self.lp_value = self._model.objective
                return self.lp_value

    def _expanded(
        self, below: float, most: int | None = None, within: BoolArray | None = None
    ) -> int:
        """Expand waiting rows whose reduced cost may be below this; return how many.

        ``within``, ``(n + 1,)``: only rows all of whose jobs are among these.
        """
        bound = self._rows.bound(self._pi, self._mu, self._node, self._stay)
        rows = np.flatnonzero(self._waiting[: len(bound)] & (bound < below))
        if within is not None:
            rows = rows[within[self._rows.members[rows]].all(axis=1)]
        if most is not None and len(rows) > most:
            rows = rows[np.argpartition(bound[rows], most)[:most]]
            rows.sort()
        if len(rows):
            self.expand(rows)
        return len(rows)

    def _reduced(self) -> FloatArray:
        """Return the reduced costs of all columns at the last duals."""
        out: FloatArray = np.empty(len(self.value))
        column_costs(self.covers, self.columns.host, self.columns.nodes, self.stays, self.value,
                     self._pi, self._mu, self.node_usd - self._node, self._stay, out)  # fmt: skip
        return out

    # --- branching --------------------------------------------------------------------------

    def best(self, held: float, node_limit: int | None) -> Best:
        """Return a choice worth less than the one held, the best one unless nodes run out.

        Parameters
        ----------
        held : float
            In units, all credits taken off.
        node_limit : int or None
            Effort beyond the first LP, dive and improvement: nodes of the search, a run of the LP
            counted as ``_LP_NODES``.
        """
        self._begin(held, node_limit)
        ending = Ending.OPTIMAL
        try:
            self._branch()
        except OutOfTimeError:
            ending = Ending.TIME
        except KeyboardInterrupt:
            ending = Ending.INTERRUPT
        except StoppedError as stop:
            ending = stop.ending
        if ending is not Ending.OPTIMAL:
            self._given_up = self._root
        elif self._given_up < self._held:
            ending = Ending.NODES
        bound = min(self._given_up, self._held)
        return Best(
            chosen=self._chosen or None,
            bound=bound if bound > -INFINITY else None,
            ending=ending,
        )

    def _begin(self, held: float, node_limit: int | None) -> None:
        self._held, self._spare, self._chosen = held - EPS, node_limit, ()
        self._given_up, self._root = INFINITY, -INFINITY

    def _branch(self) -> None:
        """Split totals of nodes, the part of the least bound first."""
        heap: list[_Part] = []
        self._look(_Part(most=self.most_nodes), heap)
        number = 1
        while heap and heap[0].value < self._held:
            if self._spare is not None and self._spare <= 0:
                self._given_up = min(self._given_up, heap[0].value)
                break
            part = heapq.heappop(heap)
            pool, total = part.split
            below = _moved(part.most, pool, floor(total))
            above = _moved(part.least, pool, floor(total) + 1)
            self._look(replace(part, number=number, most=below), heap)
            self._look(replace(part, number=number + 1, least=above), heap)
            number += 2

    def _look(self, part: _Part, heap: list[_Part]) -> None:
        """Solve the LP of a part and search it; where that is too long, queue it to be split."""
        self._within(part)
        before = self.lps
        part.value = self._solve()
        if part.number == 0:
            self._root = part.value
        elif self._spare is not None:
            self._spare = max(self._spare - _LP_NODES * (self.lps - before), 0)
        if part.value >= self._held:
            return
        part.split = self._split()
        if self._search(part, _FEW_NODES if part.split[0] >= 0 else None):
            return
        if part.number == 0:
            self._improve()
            self._dive()
            self._improve()
        if part.split[0] < 0 or self._spare == 0:
            self._given_up = min(self._given_up, part.value)
        else:
            heapq.heappush(heap, part)

    def _split(self) -> tuple[int, float]:
        """Return a pool whose total is fractional, the dearer one first, and its total."""
        x = self._model.values()
        totals = x[_ARTIFICIAL:] @ self.columns.nodes[self._in_model] + x[:2] - x[2:4]
        pools = (0, 1) if self.node_usd[0] > self.node_usd[1] else (1, 0)
        for pool in pools:
            if abs(totals[pool] - round(totals[pool])) > EPS:
                return pool, float(totals[pool])
        return -1, 0.0

    def _improve(self) -> None:
        """Re-plan a few groups at a time, the others fixed, at the duals of the whole LP.

        A group's reduced cost is what it wastes by the LP: groups are drawn by it. The search of
        a part has the fixed columns taken from the start.
        """
        rng = np.random.default_rng(self._seed)
        if self.lp_value != self._root:
            self._solve()
        current = np.array(self._chosen) if self._chosen else self._current
        if not self.alive[current].all():
            current = self._kept_columns
        in_vain, spare, self._spare = 0, self._spare, None
        while in_vain < _IN_VAIN:
            self.reduced = self._reduced()
            waste = np.maximum(self.reduced[current], 0.0) + 1e-3
            drawn = np.argsort(-waste * rng.random(len(current)), kind="stable")
            sizes = (self.covers[current[drawn]] < self.n).sum(axis=1)
            part = drawn[np.cumsum(sizes) <= _NEAR_JOBS]
            found = self._again(current, np.isin(np.arange(len(current)), part))
            in_vain += 1
            if found is not None:
                current, in_vain = found, 0
        self._current, self._spare = current, spare
        self._keep(current)

    def _again(self, current: IntArray, free: BoolArray) -> IntArray | None:
        """Return a better choice of the same columns but the free ones, if one is found."""
        fixed = current[~free]
        open_jobs = np.zeros(self.n + 1, dtype=np.bool_)
        open_jobs[self.covers[current[free]]] = True
        open_jobs[self.covers[fixed]] = False
        open_jobs[self.n] = True
        slack = float(self.value[current].sum()) - self.lp_value - EPS
        spent = float(self.reduced[fixed].sum())
        self._expanded(slack - spent, within=open_jobs)
        self.reduced = self._reduced()
        near = np.flatnonzero(self.alive & (self.reduced < slack - spent))
        near = near[open_jobs[self.covers[near]].all(axis=1)]
        if not len(near):
            return None
        state = SearchState.start(self.n, self.n_hosts, len(near), slack)
        state.times[: self.n] = ~open_jobs[: self.n]
        state.numbers[1] = state.times.sum()
        state.total[0], state.value[0] = spent, self.value[fixed].sum()
        state.used[: self.n_hosts] = np.isin(np.arange(self.n_hosts), self.columns.host[fixed])
        state.sums[:2] = self.columns.nodes[fixed].sum(axis=0)
        state.sums[2] = self.stays[fixed].sum()
        self._run(_Part(most=self.most_nodes), near, state, _AGAIN_NODES)
        if not state.found:
            return None
        return np.concatenate((fixed, near[state.chosen[: state.found]]))

    def _dive(self) -> None:
        """Fix the largest fractional column, solve again, until the choice is whole; hold it.

        Columns fixed may leave too few stayers: that is the end too.
        """
        fixed: list[int] = []
        try:
            while self._solve() < self._held:
                x = self._model.values()
                columns = x[_ARTIFICIAL:]
                fractional = np.where((columns > EPS) & (columns < 1 - EPS), columns, 0.0)
                if not fractional.any():
                    if x[2:_ARTIFICIAL].max() < EPS:
                        self._keep(self._in_model[columns > 0.5])
                    return
                at = _ARTIFICIAL + int(np.argmax(fractional))
                fixed.append(at)
                self._model.column_bounds(np.array([at]), np.ones(1), np.ones(1))
        except StoppedError as stop:
            if stop.ending is not Ending.INFEASIBLE:
                raise
        finally:
            if fixed:
                at_all = np.array(fixed)
                self._model.column_bounds(
                    at_all, np.zeros(len(fixed)), np.full(len(fixed), INFINITY)
                )

    def _keep(self, chosen: IntArray) -> None:
        """Keep a choice if it is better, and within the most nodes."""
        value = float(self.value[chosen].sum()) - EPS
        within = (self.columns.nodes[chosen].sum(axis=0) <= self.most_nodes).all()
        if within and value < self._held:
            self._held, self._chosen = value, tuple(sorted(chosen.tolist()))

    # --- search -----------------------------------------------------------------------------

    def _search(self, part: _Part, most: int | None) -> bool:
        """Look for a better choice at the last duals; return whether there is no other."""
        whole = self._held - self.lp_value
        for share in _SHARES:
            slack = share * whole
            self._expanded(slack)
            self.reduced = self._reduced()
            left = np.flatnonzero(self.alive & (self.reduced < slack))
            self.left = max(self.left, len(left))
            state = SearchState.start(self.n, self.n_hosts, len(left), slack)
            finished = self._run(part, left, state, most)
            if state.found:
                self._keep(left[state.chosen[: state.found]])
            if not finished:
                return False
            if state.found:
                return True
        return True

    def _run(self, part: _Part, left: IntArray, state: SearchState, most: int | None) -> bool:
        """Search these columns, call by call; return whether to the end."""
        covers, n, reduced = self.covers[left], self.n, self.reduced[left]
        row, slot = np.nonzero(covers < n)
        job = covers[row, slot]
        pi = self._pi
        if self._once:
            pi = np.append(np.full(n, np.inf), 0.0)
        else:
            added = np.flatnonzero(self.value[left] < 0)
            row, job = np.append(row, added), np.append(job, np.full(len(added), n))
        host = self.columns.host[left]
        data = SearchData(
            members=covers,
            host=np.where(host < 0, self.n_hosts, host),
            counts=np.column_stack((self.columns.nodes[left], self.stays[left].astype(np.int64))),
            values=self.value[left],
            reduced=reduced,
            first=np.searchsorted(np.sort(job), np.arange(n + 2)),
            entries=row[np.lexsort((reduced[row], job))],
            pi=pi,
            least=np.array([*part.least, self.stayers or 0.0]),
            most=np.array([*part.most, INFINITY]),
            lp_value=self.lp_value,
        )
        while True:
            budget = CALL_NODES if most is None else min(most - state.nodes, CALL_NODES)
            if self._spare is not None:
                budget = min(budget, self._spare)
            if budget <= 0:
                return False
            self.deadline.check()
            before = state.nodes
            finished = search_choices(data, state, budget)
            self.nodes += state.nodes - before
            if self._spare is not None:
                self._spare -= state.nodes - before
            if finished:
                return True


def _moved(limits: tuple[float, float], pool: int, edge: int) -> tuple[float, float]:
    """Return the limits of two totals with one of them changed."""
    return (float(edge), limits[1]) if pool == 0 else (limits[0], float(edge))
