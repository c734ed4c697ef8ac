"""Least-cost choice of groups that cover all jobs: LP bounds, cuts, diving, branch and bound.

Sets and parameters
-------------------
jobs ``j``; columns (groups) ``g`` on ``n^R_g`` rollout and ``n^T_g`` train nodes; prices ``c^P``
of a node, $/h; fleet caps ``F^P``. The *lead* pool ``L`` is the dearer one, the *lag* pool
``K`` the other.

Problem
-------
``min sum_g (c^R n^R_g + c^T n^T_g) z_g`` over ``z_g in {0,1}`` with ``sum_{g holds j} z_g >= 1``
for every job and ``sum_g n^P_g z_g <= F^P``.

Method
------
A cost is ``c^L t + c^K a`` for whole totals ``t`` of lead and ``a`` of lag nodes, and the LP
relaxation is weak mostly because it mixes fractional totals. So the totals are branched on
first, best bound first (:class:`_Search`):

1. an *interval* of ``t`` has the LP bound of the covering LP with ``t`` in the interval; popped,
   it is split at the LP's ``t``;
2. a single ``t`` has the least ``a`` by LP with at most ``t`` lead nodes, rounded up: a *pair*
   ``(t, a)``, whose price is a bound;
3. a pair popped is *decided*: is there a cover within ``t`` and ``a``? Columns whose reduced cost
   exceeds ``a`` minus the LP value are in none: they are left out. A dive (fix the largest
   fractional column, solve again, a few times back) looks for one. Chvatal-Gomory cuts on
   three jobs, half the sum of their rows rounded up, ``sum_g ceil(k_g / 2) z_g >= 2`` with
   ``k_g`` the number of the three in ``g``, raise the LP value, and so leave out more. What
   is left goes to branch and bound. A pair without a cover becomes ``(t, a + 1)``, up to one
   group per job (where lag nodes are free, that at once); the first with one is optimal.

The LPs are solved by pricing the columns against a part of them (:mod:`models.bounds.covering_lp`).
At any moment the least price in the queue is a valid bound, and the best cover found so far is
held.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

import numpy as np
import numpy.typing as npt

from models.backends.highs_model import INFINITY, VERSION, Ended, HighsModel
from models.bounds.covering_lp import EPS, CoverProblem, Ending, Relaxation, StoppedError
from models.problem.options import Deadline, OutOfTimeError

__all__ = ["VERSION", "Cover", "CoverProblem", "Ending", "solve_cover"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Rounds of cuts; a round that gains less nodes ends them.
_ROUNDS: Final = 10
_GAIN: Final = 2e-3
#: Steps back of a dive before it gives up, and dives with perturbed choices.
_STEPS_BACK: Final = (10, 20)
_DIVES: Final = 3
#: Lag nodes beyond a pair that are dived for before its branch and bound.
_PROBES: Final = 4
#: Branch and bound on few columns first: how many, for how many nodes and share of the time.
_FEW_COLUMNS: Final = 2_000
_FEW_NODES: Final = 50
_SHARE: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class Cover:
    """What was found.

    Attributes
    ----------
    chosen : tuple of int or None
        Columns of the best cover found, cheaper than the incumbent given; ``None`` if none.
    bound_usd : float
        No cover costs less, $/h; infinite when there is none at all.
    """

    ending: Ending
    chosen: tuple[int, ...] | None
    bound_usd: float
    counts: dict[str, int]
    status: str


def solve_cover(
    problem: CoverProblem,
    deadline: Deadline,
    *,
    incumbent_usd: float | None = None,
    node_limit: int | None = None,
    seed: int = 0,
    progress: Callable[[float, float | None], None] | None = None,
) -> Cover:
    """Return a proved least-cost cover, or the best one and the best bound at a limit.

    Parameters
    ----------
    deadline : Deadline
        When to stop.
    incumbent_usd : float, optional
        Cost of a cover already held; only cheaper ones are looked for.
    node_limit : int, optional
        Branch-and-bound nodes of HiGHS in all.
    seed : int
        Of HiGHS, and of perturbed dives.
    progress : callable, optional
        Called with (bound, best cost or None), $/h.
    """
    return _Search(problem, deadline, incumbent_usd, node_limit, seed, progress).run()


@dataclass(order=True)
class _Node:
    """An interval of lead nodes ``least..most``, or a pair ``(least, lag)`` when ``lag >= 0``."""

    usd: float
    least: int
    most: int = field(compare=False, default=0)
    lag: int = field(compare=False, default=-1)
    total: float = field(compare=False, default=0.0)


class _Search:
    """Best-first search over totals of nodes (module docstring)."""

    def __init__(
        self,
        problem: CoverProblem,
        deadline: Deadline,
        incumbent_usd: float | None,
        node_limit: int | None,
        seed: int,
        progress: Callable[[float, float | None], None] | None,
    ) -> None:
        self.problem = problem
        self.deadline = deadline
        # the dearer node costs 1: tolerances must not depend on the unit of money
        self.unit_usd = max(problem.usd) or 1.0
        self.usd = np.array(problem.usd) / self.unit_usd
        self.best_usd = inf if incumbent_usd is None else incumbent_usd / self.unit_usd
        self.best: tuple[int, ...] | None = None
        self.nodes_left = node_limit
        self.seed = seed
        self.progress = progress
        lead = 1 if problem.usd[1] >= problem.usd[0] else 0
        self.lead = lead
        self.usd_lead, self.usd_lag = float(self.usd[lead]), float(self.usd[1 - lead])
        self.cap_lead, self.cap_lag = problem.caps[lead], problem.caps[1 - lead]
        # a cover without a group to spare has at most one group per job
        self.most_lag = problem.n_jobs * int(problem.nodes[:, 1 - lead].max(initial=0))
        if self.cap_lag is not None:
            self.most_lag = min(self.most_lag, self.cap_lag)
        self.heap: list[_Node] = []
        self.undecided = inf  # least price of a pair given up
        self.counts = {
            "columns": len(problem.members),
            "left": 0,
            "cuts": 0,
            "pairs": 0,
            "nodes": 0,
        }
        self.working = 0.0  # price of the node that is being worked on
        self.mip_status = ""
        self.stopped: StoppedError | None = None

    # --- the loop ---------------------------------------------------------------------------

    def run(self) -> Cover:
        """Search until proved or stopped."""
        n = self.problem.n_jobs
        if n == 0:
            return self._answer(Ending.OPTIMAL, 0.0, ())
        covered = np.zeros(n + 1, dtype=np.bool_)
        covered[self.problem.members] = True
        if not covered[:n].all():
            return self._answer(Ending.INFEASIBLE, inf, None)
        try:
            self.lp = Relaxation(self.problem, self.lead, self.deadline, self.seed)
            sizes = (self.problem.members >= 0).sum(axis=1)
            self.everything = np.ones(len(sizes), dtype=np.bool_)
            self.lp.price_in(np.flatnonzero(sizes <= 2))
            most = int(self.lp.lead.sum()) if self.cap_lead is None else self.cap_lead
            self._interval(0, most)
            self.working = inf
            self._dive(inf, 0)  # something to hold, however dear
            self._loop()
        except StoppedError as stop:
            self.stopped = stop
        except OutOfTimeError:
            self.stopped = StoppedError(Ending.TIME)
        except KeyboardInterrupt:
            self.stopped = StoppedError(Ending.INTERRUPT)
        bound = min(self._open_usd(), self.best_usd)
        if self.stopped is not None and bound < self.best_usd:
            return self._answer(self.stopped.ending, bound, self.best, self.stopped.status)
        if self.undecided < self.best_usd:
            return self._answer(Ending.NODES, bound, self.best)
        if self.best_usd == inf:
            return self._answer(Ending.INFEASIBLE, inf, None)
        return self._answer(Ending.OPTIMAL, self.best_usd, self.best)

    def _open_usd(self) -> float:
        """Return the least price not yet ruled out."""
        return min(self.heap[0].usd if self.heap else inf, self.undecided, self.working)

    def _loop(self) -> None:
        while self.heap and self.heap[0].usd < self.best_usd * (1 - 1e-9):
            self.working = self.heap[0].usd  # first: Ctrl-C may come between the two
            node = heapq.heappop(self.heap)
            if self.progress is not None:
                best = None if self.best_usd == inf else self.best_usd * self.unit_usd
                self.progress(self._open_usd() * self.unit_usd, best)
            if node.lag < 0:
                self._split(node)
            else:
                self._decide(node)
            self.working = inf

    def _interval(self, least: int, most: int) -> None:
        """Queue the totals ``least..most`` of lead nodes at their LP bound."""
        if least > most:
            return
        self.lp.leave_out(self.everything)
        self.lp.objective(self.usd_lead, self.usd_lag)
        self.lp.within(least, most)
        usd = self.lp.solve()
        if usd < inf:
            total = float(self.lp.x @ self.lp.lead[self.lp.columns])
            heapq.heappush(self.heap, _Node(usd=usd, least=least, most=most, total=total))

    def _split(self, node: _Node) -> None:
        """Split an interval at the LP's total of lead nodes; queue that total as a pair."""
        at = min(max(round(node.total), node.least), node.most)
        self._interval(node.least, at - 1)
        self._interval(at + 1, node.most)
        value = self._single(at)
        if value < inf:
            self._pair(at, ceil(value - EPS))

    def _single(self, lead: int) -> float:
        """Return the fewest lag nodes by LP with at most so many lead nodes."""
        self.lp.leave_out(self.everything)
        self.lp.objective(0.0, 1.0)
        self.lp.within(0, lead)
        return self.lp.solve()

    def _pair(self, lead: int, lag: int) -> None:
        if lag <= self.most_lag:
            usd = self.usd_lead * lead + self.usd_lag * lag
            heapq.heappush(self.heap, _Node(usd=usd, least=lead, lag=lag))

    def _dearer(self, node: _Node) -> None:
        """Queue what follows a pair ruled out: one lag node more, all there may be if free."""
        free = self.usd_lag == 0 and node.lag < self.most_lag
        self._pair(node.least, self.most_lag if free else node.lag + 1)

    # --- one pair ---------------------------------------------------------------------------

    def _decide(self, node: _Node) -> None:
        """Find a cover within the pair's totals, or rule the pair out."""
        self.counts["pairs"] += 1
        most = node.lag
        value = self._single(node.least)
        if value == inf:  # whatever the lag nodes
            return
        before = value
        for round_ in range(_ROUNDS + 1):
            if value > most + EPS:
                self._dearer(node)
                return
            self._leave_out(most - value)
            if round_ == 0 and self._dive(most, _STEPS_BACK[0]):
                return
            value = self.lp.solve()
            if value > most + EPS:
                continue
            cuts = self.lp.violated()
            if not len(cuts) or round_ == _ROUNDS:
                break
            self.lp.add_cuts(cuts)
            self.counts["cuts"] += len(cuts)
            value = self.lp.solve()
            if round_ >= 2 and value - before < _GAIN:
                break
            before = value
        if value > most + EPS:
            self._dearer(node)
            return
        self._leave_out(most - value)
        for dive in range(_DIVES):
            rng = np.random.default_rng((self.seed, dive))
            if self._dive(most, _STEPS_BACK[1], rng):
                return
        self.lp.solve()
        left, reduced = self.lp.alive.copy(), self.lp.reduced.copy()
        self._probe(node, value, reduced)
        self._branch(node, left, reduced)

    def _probe(self, node: _Node, value: float, reduced: FloatArray) -> None:
        """Dive for covers a few lag nodes dearer, to hold one before the branch and bound."""
        for more in range(1, _PROBES + 1):
            usd = self.usd_lead * node.least + self.usd_lag * (node.lag + more)
            if usd >= self.best_usd * (1 - 1e-9):
                return
            self.lp.leave_out(self.everything & (reduced <= node.lag + more - value + EPS))
            if self._dive(node.lag + more, _STEPS_BACK[0]):
                return

    def _leave_out(self, slack: float) -> None:
        """Leave out the columns whose reduced cost exceeds what the pair has left."""
        self.lp.leave_out(self.lp.alive & (self.lp.reduced <= slack + EPS))

    def _dive(self, most: float, steps_back: int, rng: np.random.Generator | None = None) -> bool:
        found = self.lp.dive(most, steps_back, rng)
        if found is not None:
            self._hold(found)
        return found is not None

    def _hold(self, chosen: tuple[int, ...]) -> None:
        """Keep a cover if it is the cheapest."""
        nodes = self.problem.nodes[list(chosen)].sum(axis=0)
        usd = float(nodes @ self.usd)
        if usd < self.best_usd * (1 - 1e-9):
            self.best_usd, self.best = usd, chosen

    def _branch(self, node: _Node, left: BoolArray, reduced: FloatArray) -> None:
        """Decide a pair by branch and bound on the columns left.

        First, where they are many, on those of least reduced cost and for a few nodes only: a
        cover found there settles the pair as well.
        """
        columns = np.flatnonzero(left)
        self.counts["left"] = max(self.counts["left"], len(columns))
        if len(columns) > 2 * _FEW_COLUMNS and self.nodes_left is None:
            few = columns[np.argsort(reduced[columns], kind="stable")[:_FEW_COLUMNS]]
            remaining = self.deadline.remaining_s()
            share = None if remaining is None else _SHARE * remaining
            if self._mip(node, np.sort(few), _FEW_NODES, share) is Ended.OPTIMAL:
                return
        ended = self._mip(node, columns, self.nodes_left, self.deadline.remaining_s())
        if ended is Ended.OPTIMAL:
            return
        if ended is not Ended.INFEASIBLE:
            self.undecided = min(self.undecided, node.usd)
            if self.nodes_left == 0 and self.best_usd < inf:
                raise StoppedError(Ending.NODES, self.mip_status)
        if ended in (Ended.INFEASIBLE, Ended.NODES):
            self._dearer(node)  # a dearer cover may still be found
            return
        raise StoppedError(Ending(ended.value), self.mip_status)

    def _mip(
        self, node: _Node, columns: IntArray, node_limit: int | None, seconds: float | None
    ) -> Ended:
        """Look for a cover within the pair's totals; ``OPTIMAL`` when there is one, then held."""
        self.deadline.check()
        model = HighsModel(seed=self.seed, options={"mip_max_improving_sols": 1})
        if node_limit is not None:
            model.set("mip_max_nodes", node_limit)
        n, cuts = self.lp.n, self.lp.cuts
        lower = np.concatenate([np.ones(n), [-INFINITY, -INFINITY], np.full(len(cuts), 2.0)])
        upper = np.full(len(lower), INFINITY)
        upper[n], upper[n + 1] = node.least, node.lag
        model.add_rows(lower, upper)
        matrix = np.concatenate(
            [
                self.lp.holds[:n, columns].T.astype(np.float64),
                self.lp.lead[columns][:, None],
                self.lp.lag[columns][:, None],
                self.lp.in_cuts(columns, cuts),
            ],
            axis=1,
        )
        model.add_columns(self.lp.lag[columns], matrix, 1.0, whole=True)
        ended = model.run(seconds, lp=False)
        self.mip_status = model.status
        self.counts["nodes"] += model.nodes
        if self.nodes_left is not None:
            self.nodes_left = max(self.nodes_left - model.nodes, 0)
        if model.holds_solution:  # any cover within the totals will do, whatever its value
            self._hold(tuple(columns[model.values() > 0.5].tolist()))
        if model.interrupted:
            raise StoppedError(Ending.INTERRUPT, model.status)
        return Ended.OPTIMAL if model.holds_solution else ended

    def _answer(
        self, ending: Ending, bound: float, chosen: tuple[int, ...] | None, status: str = ""
    ) -> Cover:
        return Cover(
            ending=ending,
            chosen=chosen,
            bound_usd=bound * self.unit_usd,
            counts=self.counts,
            status=status or ending.value,
        )
