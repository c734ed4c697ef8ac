"""The covering LP of :mod:`models.bounds.covering`: priced columns, cuts, and diving for a cover.

Sets and parameters: as there. Over the columns that may be used (``alive``), with ``t`` lead
nodes in an interval:

    min  sum_g (p^L n^L_g + p^K n^K_g) z_g     p: prices, or (0, 1) to count lag nodes
    subject to  sum_{g holds j} z_g >= 1                       jobs j
                least <= sum_g n^L_g z_g <= most               lead nodes
                sum_g n^K_g z_g <= F^K                         lag nodes, where capped
                sum_g ceil(k_g / 2) z_g >= 2                   cuts: k_g of three jobs in g
                z_g >= 0

A cut holds for every cover: half the sum of three covering rows has coefficients ``k_g / 2``
and right-hand side 3/2; round the former up, then the latter, as the left side is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from models.backends.highs_model import INFINITY, Ended, HighsModel
from models.problem.options import Deadline

__all__ = ["EPS", "CoverProblem", "Ending", "Relaxation", "StoppedError"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Slack of whole numbers and reduced costs, in nodes.
EPS: Final = 1e-6
#: Columns priced in at once, cuts added at once, cuts a job may be in at once.
_PRICED: Final = 300
_CUTS: Final = 100
_CUTS_PER_JOB: Final = 6
#: Cuts violated by less are left out.
_VIOLATION: Final = 1e-3
#: Jobs beyond which cuts on three of them are too many to look through.
_MOST_CUT_JOBS: Final = 150
#: Artificial columns on node totals.
_SLACKS: Final = 3


class Ending(StrEnum):
    """Why the choice stopped."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    TIME = "time"
    NODES = "nodes"
    INTERRUPT = "interrupt"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class CoverProblem:
    """The columns.

    Attributes
    ----------
    n_jobs : int
    members : (m, k) int64
        Job indices of each group, padded with -1.
    nodes : (m, 2) int64
        Rollout and train nodes.
    usd : (float, float)
        Price of a rollout and of a train node, $/h.
    caps : (int or None, int or None)
        Most nodes of each pool.
    """

    n_jobs: int
    members: IntArray
    nodes: IntArray
    usd: tuple[float, float]
    caps: tuple[int | None, int | None] = (None, None)


class StoppedError(Exception):
    """A limit or Ctrl-C."""

    def __init__(self, ending: Ending, status: str = "") -> None:
        super().__init__(ending)
        self.ending = ending
        self.status = status


class Relaxation:
    """The covering LP over a part of the columns, with cuts, in the units of its objective.

    Rows: jobs, lead nodes, lag nodes, cuts. Columns: artificials, two on lead nodes, one on lag
    nodes and one per job (a group of that job alone, also in cuts), then the groups priced in
    so far. With artificials every LP has a solution, whatever is fixed or left out.
    """

    def __init__(self, problem: CoverProblem, lead: int, deadline: Deadline, seed: int) -> None:
        self.n = problem.n_jobs
        self.deadline = deadline
        self.lead = problem.nodes[:, lead].astype(np.float64)
        self.lag = problem.nodes[:, 1 - lead].astype(np.float64)
        self.padded = np.where(problem.members >= 0, problem.members, self.n)
        m = len(problem.members)
        self.holds = np.zeros((self.n + 1, m), dtype=np.int8)
        for column in range(self.padded.shape[1]):
            self.holds[self.padded[:, column], np.arange(m)] = 1
        self.holds[self.n] = 0
        self.n_artificial = _SLACKS + self.n
        self.position = np.full(m, -1, dtype=np.int64)
        self.columns: IntArray = np.zeros(0, dtype=np.int64)
        self.alive: BoolArray = np.ones(m, dtype=np.bool_)
        self.cuts: IntArray = np.zeros((0, 3), dtype=np.int64)
        self.cost: FloatArray = np.zeros(m)
        self.model = HighsModel(seed=seed)
        most_lag = problem.caps[1 - lead]
        lower = np.append(np.ones(self.n), [0.0, -INFINITY])
        upper = np.append(
            np.full(self.n, INFINITY), [INFINITY, INFINITY if most_lag is None else float(most_lag)]
        )
        self.model.add_rows(lower, upper)
        artificial = np.zeros((self.n_artificial, self.n + 2))
        artificial[0, self.n], artificial[1, self.n], artificial[2, self.n + 1] = 1.0, -1.0, -1.0
        artificial[_SLACKS:, : self.n] = np.eye(self.n)
        self.model.add_columns(np.zeros(self.n_artificial), artificial)
        self.value = self.most = self.least_lead = self.most_lead = 0.0
        self.most_lag = inf if most_lag is None else float(most_lag)
        self.feasible = True
        self.x: FloatArray = np.zeros(0)
        self.duals: FloatArray = np.zeros(0)
        self.reduced: FloatArray = np.zeros(m)

    def objective(self, lead: float, lag: float) -> None:
        """Set the price of lead and of lag nodes."""
        self.cost = lead * self.lead + lag * self.lag
        dearest = float(self.cost.max(initial=0.0))
        self.most = self.n * dearest  # of a cover without a group to spare: one group per job
        penalty = 1e3 * max(dearest, 1.0)
        self.model.costs(np.arange(self.n_artificial), np.full(self.n_artificial, penalty))
        if len(self.columns):
            self.model.costs(self.position[self.columns], self.cost[self.columns])

    def within(self, least: float, most: float) -> None:
        """Bound the lead nodes."""
        self.least_lead, self.most_lead = float(least), float(most)
        self.model.row_bounds(self.n, least, most)

    def leave_out(self, alive: BoolArray) -> None:
        """Let only these columns be used."""
        changed = self.columns[self.alive[self.columns] != alive[self.columns]]
        self.alive = alive.copy()
        if len(changed):
            self.model.column_bounds(
                self.position[changed],
                np.zeros(len(changed)),
                np.where(alive[changed], INFINITY, 0.0),
            )

    def in_cuts(self, columns: IntArray, cuts: IntArray) -> FloatArray:
        """Return coefficients ``ceil(k / 2)``, shape ``(columns, cuts)``."""
        holds = self.holds[:, columns]
        k = holds[cuts[:, 0]] + holds[cuts[:, 1]] + holds[cuts[:, 2]]
        return ((k + 1) >> 1).T.astype(np.float64)

    def price_in(self, columns: IntArray) -> None:
        """Add columns that are not there yet."""
        columns = columns[self.position[columns] < 0]
        if not len(columns):
            return
        matrix = np.concatenate(
            [
                self.holds[: self.n, columns].T.astype(np.float64),
                self.lead[columns][:, None],
                self.lag[columns][:, None],
                self.in_cuts(columns, self.cuts),
            ],
            axis=1,
        )
        self.model.add_columns(self.cost[columns], matrix)
        self.position[columns] = self.n_artificial + len(self.columns) + np.arange(len(columns))
        self.columns = np.concatenate([self.columns, columns])

    def _reduced_costs(self) -> FloatArray:
        y = self.duals
        out: FloatArray = self.cost - self.lead * y[self.n] - self.lag * y[self.n + 1]
        out -= np.append(y[: self.n], 0.0)[self.padded].sum(axis=1)
        for cut in np.flatnonzero(y[self.n + 2 :] > 1e-12):
            a, b, c = self.cuts[cut]
            k = (self.holds[a] + self.holds[b] + self.holds[c] + 1) >> 1
            out -= y[self.n + 2 + cut] * k
        return out

    def _safe_value(self) -> float:
        """Return a bound that holds for the duals as they are, whatever the solver's tolerance.

        For any duals ``y`` of the right signs, ``y b + sum_g min(0, reduced_g) z_g`` is no more
        than the cost of a cover, and a cover without a group to spare has at most one per job.
        """
        n, y = self.n, self.duals
        value = float(y[:n].sum()) + 2.0 * float(y[n + 2 :].sum())
        value += float(y[n]) * (self.least_lead if y[n] > 0 else self.most_lead)
        if y[n + 1] < 0:
            value += float(y[n + 1]) * self.most_lag
        usable = self.reduced[self.alive]
        return value + n * min(0.0, float(usable.min(initial=0.0)))

    def _signed(self, duals: FloatArray) -> FloatArray:
        """Return duals with round-off of the wrong sign left out."""
        duals[: self.n] = np.maximum(duals[: self.n], 0.0)
        duals[self.n + 1] = min(duals[self.n + 1], 0.0) if self.most_lag < inf else 0.0
        duals[self.n + 2 :] = np.maximum(duals[self.n + 2 :], 0.0)
        return duals

    def solve(self) -> float:
        """Return a bound of all covers by columns that may be used: the LP value, made safe.

        With artificials in use it is still a bound, and infinite where it exceeds the cost of
        every cover without a group to spare: then there is none.
        """
        while True:
            self.deadline.check()
            ended = self.model.run(self.deadline.remaining_s())
            if self.model.interrupted:
                raise StoppedError(Ending.INTERRUPT, self.model.status)
            if ended is not Ended.OPTIMAL:
                raise StoppedError(Ending(ended.value), self.model.status)
            self.duals = self._signed(self.model.duals())
            self.reduced = self._reduced_costs()
            eps = 1e-9 * max(1.0, float(self.cost.max(initial=0.0)))
            missing = np.flatnonzero(
                (self.reduced < -eps - 1e-7) & self.alive & (self.position < 0)
            )
            if not len(missing):
                break
            order = np.argsort(self.reduced[missing], kind="stable")
            self.price_in(missing[order[:_PRICED]])
        values = self.model.values()
        self.x = values[self.n_artificial :]
        self.feasible = float(values[: self.n_artificial].max()) < EPS
        self.value = self._safe_value()
        if self.value > self.most + EPS:
            self.value = inf
        return self.value

    def chosen(self) -> tuple[int, ...]:
        """Return the columns of a whole solution."""
        return tuple(sorted(self.columns[self.x > 0.5].tolist()))

    def violated(self) -> IntArray:
        """Return the most violated cuts, ``(cuts, 3)`` jobs, few of them on one job.

        None beyond ``_MOST_CUT_JOBS`` jobs, where all threes take too much time and memory.
        """
        if self.n > _MOST_CUT_JOBS:
            return np.zeros((0, 3), dtype=np.int64)
        self.deadline.check()
        n, used = self.n, np.flatnonzero(self.x > 1e-7)
        x, columns = self.x[used], self.columns[used]
        holds = self.holds[:n, columns].T.astype(np.float64)
        pairs = (holds * x[:, None]).T @ holds
        single = np.diag(pairs)
        # sum ceil(k/2) x = those that hold some of the three + those that hold all
        left = single[:, None, None] + single[None, :, None] + single[None, None, :]
        left -= pairs[:, :, None] + pairs[:, None, :] + pairs[None, :, :]
        for column, weight in zip(columns, x, strict=True):
            jobs = np.flatnonzero(self.holds[:n, column])
            for three in combinations(jobs.tolist(), 3):
                left[three] += 2 * weight
        rows = np.array(list(combinations(range(n), 3)), dtype=np.int64).reshape(-1, 3)
        value = left[rows[:, 0], rows[:, 1], rows[:, 2]]
        found = np.flatnonzero(value < 2 - _VIOLATION)
        count = np.zeros(n, dtype=np.int64)
        out = []
        for row in found[np.argsort(value[found], kind="stable")]:
            if (count[rows[row]] < _CUTS_PER_JOB).all():
                out.append(rows[row])
                count[rows[row]] += 1
            if len(out) >= _CUTS:
                break
        return np.array(out, dtype=np.int64).reshape(-1, 3)

    def add_cuts(self, cuts: IntArray) -> None:
        """Add cuts; those that are slack are deleted first."""
        slack = np.flatnonzero(self.duals[self.n + 2 :] < 1e-9)
        if len(slack):
            self.model.delete_rows(slack + self.n + 2)
            self.cuts = np.delete(self.cuts, slack, axis=0)
        matrix = np.zeros((len(cuts), self.n_artificial + len(self.columns)))
        matrix[:, self.n_artificial :] = self.in_cuts(self.columns, cuts).T
        np.put_along_axis(matrix, cuts + _SLACKS, 1.0, axis=1)
        self.model.add_rows(np.full(len(cuts), 2.0), np.full(len(cuts), INFINITY), matrix)
        self.cuts = np.concatenate([self.cuts, cuts])

    def dive(
        self, most: float, steps_back: int, rng: np.random.Generator | None
    ) -> tuple[int, ...] | None:
        """Return a cover of value at most ``most``, by fixing the largest fractional columns."""
        fixed: list[int] = []
        banned: list[int] = []
        try:
            while True:
                self.solve()
                if self.feasible and self.model.objective <= most + EPS:
                    fractional = np.where((self.x > EPS) & (self.x < 1 - EPS), self.x, 0.0)
                    if not fractional.any():
                        return self.chosen()
                    if rng is not None:
                        fractional = fractional * (1 + 0.3 * rng.random(len(fractional)))
                    at = int(np.argmax(fractional))
                    self._fix(at, 1.0, 1.0)
                    fixed.append(at)
                elif len(banned) >= steps_back or not fixed:
                    return None
                else:
                    at = fixed.pop()
                    self._fix(at, 0.0, 0.0)
                    self.alive[self.columns[at]] = False
                    banned.append(at)
        finally:
            for at in fixed + banned:
                self._fix(at, 0.0, INFINITY)
            self.alive[self.columns[banned]] = True

    def _fix(self, at: int, lower: float, upper: float) -> None:
        column = np.array([self.n_artificial + at])
        self.model.column_bounds(column, np.array([lower]), np.array([upper]))
