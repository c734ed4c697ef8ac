"""Lower bound of the nodes of each pool by column generation (pool decomposition).

Without the coupling of the two pools every node is a bin of
:class:`models.bounds.pool_items.PoolItems`, and ``usd_per_hour >= p^R bins^R + p^T bins^T``. Per
pool:

Sets: jobs ``j``, feasible sets ``S`` of jobs (columns). Parameters: widths ``a_j``. Variables:
``z_S >= 0``, nodes that hold ``S``. Master problem, restricted to the columns generated so far:

    min sum_S z_S    s.t.  sum_{S with j} z_S >= a_j  for all j          (:class:`_Master`)

with duals ``y >= 0``. Pricing (:mod:`models.bounds.knapsack`): one problem per *leader* ``i``, the
job of least (deadline, index) of a set: the most valuable set that ``i`` leads.

Bound, at any moment and for any ``y >= 0`` (:func:`dual_bound`): let ``V_i`` be at least the value
``y(S)`` of every set that ``i`` leads. Subsets of feasible sets are feasible, so some optimal
``z`` covers each job exactly ``a_j`` times, and the sets that ``i`` leads are at most ``a_i``
then. Hence for every ``0 <= h <= 1``

    sum_S z_S >= h sum_j a_j y_j + sum_i a_i min(0, 1 - h V_i).

At ``h = 1 / max V_i`` the last sum is nothing and this is Farley's bound (Farley, 1990); the best
``h`` is at a breakpoint ``1 / V_i`` or at 1. The largest bound of all rounds is kept, and the
volume bound to begin with, so what is returned is a true bound wherever it was stopped.

Stabilisation: where job ``a`` asks no more than ``b`` in any respect (load, chain, state and width;
deadline no less), ``b`` may be replaced by ``a`` in every set, so some optimal dual has
``y_a <= y_b`` for all such pairs at once (of the optimal duals the one of least
``sum_j a_j y_j^2``: averaging a pair against the order would lessen it). As columns of cost 0
these inequalities join the master; only covering pairs of the order are needed
(dual-optimal inequalities: Ben Amor, Desrosiers, Valério de Carvalho, *Operations Research*
54, 2006). At 2,000 jobs they decide: without them the bound had not left the volume bound after
36 rounds, with them it met the master in 22. With many jobs prices are asked between the best
duals and the master's (:meth:`Generation._found`), and the master is solved by interior point.

Assumptions: those of :mod:`models.bounds.pool_items`. Precedence, coupling, limits of nodes and
caps of the fleet only make plans dearer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.plan import Limits
from models.backends.highs_model import INFINITY, Ended, HighsModel
from models.bounds.first_fit import packings
from models.bounds.knapsack import Knapsacks, Prices
from models.bounds.pool_duals import dual_bound, easier_pairs
from models.bounds.pool_items import POOLS, Pool, PoolItems
from models.problem.options import Deadline, Progress
from models.problem.result import StoppedBy
from models.problem.snapshot import Snapshot

__all__ = [
    "POOL_DECOMPOSITION",
    "STOPPED",
    "DecompositionBound",
    "Generation",
    "PoolBound",
    "Until",
    "dual_bound",
    "padded",
    "pool_bound",
    "pool_decomposition",
    "whole_nodes",
]

POOL_DECOMPOSITION: Final = "pool-decomposition"

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: A column is added when its value exceeds 1 by more.
_GAIN: Final = 1e-7
#: A fractional bound is rounded up only beyond this many nodes of slack, as in the volume bound.
_SLACK_NODES: Final = 1e-6
#: Jobs beyond which the master is solved by interior point, cold and without crossover: as fast
#: as the simplex method at 200 jobs, twice as fast at 400. In dives, which live on vertices, later.
_MOST_SIMPLEX: Final = 150
_MOST_SIMPLEX_DIVE: Final = 400
#: Weight of the best duals where prices are asked, and the relative gap at which it ends: with
#: thousands of jobs the bound is near after two thirds of the rounds, with hundreds none is saved.
_SMOOTH: Final = 0.5
_SMOOTH_ABOVE: Final = 1e-4
#: First fit packings whose bins are first columns.
_PACKINGS: Final = 12
#: Sets that one leader may add in a round.
_PER_LEADER: Final = 2
#: Nodes of one leader's search at first, the factor when searches end too early, and the most.
_BUDGET: Final = 100_000
_MORE: Final = 10
_MOST_BUDGET: Final = 1_000_000
#: The pool is purged beyond so many columns per job.
_PURGE_ABOVE: Final = 10
#: Share of the time that the rollout pool may take.
_FIRST_SHARE: Final = 0.4


@dataclass(frozen=True, kw_only=True)
class Until:
    """When a bound is good enough.

    Attributes
    ----------
    rounds : int or None
        Most rounds of pricing; the same number gives the same bound on every machine.
    gap_rel : float
        Stop when master value and bound are relatively so near.
    whole : bool
        Stop as soon as a better bound would not round up to more nodes.

    Raises
    ------
    InputError
        When a number is out of its range.
    """

    rounds: int | None = None
    gap_rel: float = 1e-6
    whole: bool = False

    def __post_init__(self) -> None:
        if self.rounds is not None and (isinstance(self.rounds, bool) or self.rounds < 0):
            raise InputError(f"Expected rounds >= 0, got {self.rounds!r}.")
        if not 0 < self.gap_rel < 1:
            raise InputError(f"Expected 0 < gap_rel < 1, got {self.gap_rel!r}.")


_UNTIL: Final = Until()

#: Why a column generation stopped, by how its master ended.
STOPPED: Final = {
    Ended.TIME: StoppedBy.TIME,
    Ended.NODES: StoppedBy.NODES,
    Ended.INTERRUPT: StoppedBy.INTERRUPT,
    Ended.INFEASIBLE: StoppedBy.SEARCH,
    Ended.FAILED: StoppedBy.SEARCH,
}


@dataclass(frozen=True, kw_only=True)
class PoolBound:
    """What is proved of one pool.

    Attributes
    ----------
    nodes_lp : float
        Proved: no fractional packing, so no valid plan, has fewer nodes.
    nodes : int
        Rounded up.
    lp_value : float or None
        Least value of a master; not below the best fractional packing. ``None``: no master ended.
    exact : bool
        Whether bound and master met, so that ``nodes_lp`` is the best fractional packing.
    duals : (n,) float64
        Price of each job, nodes, at the best bound; 0 where no master ended.
    columns : (m, k) int64
        Feasible sets generated and kept, padded with -1.
    rounds, columns_generated : int
    stopped_by : StoppedBy or None
        ``None`` when it ended by itself.
    """

    nodes_lp: float
    nodes: int
    lp_value: float | None
    exact: bool
    duals: FloatArray
    columns: IntArray
    rounds: int
    columns_generated: int
    stopped_by: StoppedBy | None


@dataclass(frozen=True, kw_only=True)
class DecompositionBound:
    """The bounds of both pools and what their nodes cost.

    Attributes
    ----------
    rollout, train : PoolBound
    usd_per_hour : float
        No valid plan costs less.
    limits : Limits
        What the bound holds for; never compare it with a plan made under looser limits.
    """

    rollout: PoolBound
    train: PoolBound
    usd_per_hour: float
    limits: Limits
    method: str = POOL_DECOMPOSITION


def whole_nodes(nodes: float) -> int:
    """Return a bound rounded up, round-off never adding a node."""
    return math.ceil(nodes - _SLACK_NODES * max(1.0, 1e-3 * nodes))


class _Sets:
    """Distinct sets of jobs in the order of their arrival; ``add`` returns the new ones."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen: set[bytes] = set()
        self.rows = np.zeros((0, size), dtype=np.int64)
        self.generated = 0

    def fresh(self, rows: IntArray) -> IntArray:
        """Return the rows, each ascending, that were never added, and note them."""
        if not len(rows):
            return np.zeros((0, self._size), dtype=np.int64)
        padded = np.full((len(rows), self._size), -1, dtype=np.int64)
        padded[:, : rows.shape[1]] = rows[:, : self._size]
        padded = np.where(padded < 0, np.iinfo(np.int64).max, padded)
        padded.sort(axis=1)
        padded[padded == np.iinfo(np.int64).max] = -1
        new = []
        for at, row in enumerate(padded):
            key = row.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                new.append(at)
        self.generated += len(new)
        out: IntArray = padded[new]
        self.rows = np.concatenate((self.rows, out))
        return out

    def drop(self, gone: npt.NDArray[np.bool_]) -> None:
        """Forget sets, so that they may be generated anew."""
        for row in self.rows[gone]:
            self._seen.discard(row.tobytes())
        self.rows = self.rows[~gone]

    def values(self, duals: FloatArray) -> FloatArray:
        """Return the value of every set."""
        out: FloatArray = np.append(duals, 0.0)[self.rows].sum(axis=1)
        return out


class _Master:
    """The restricted master; the exchange columns come first and stay."""

    def __init__(self, items: PoolItems, sets: _Sets, seed: int, pairs: IntArray | None) -> None:
        """Without ``pairs`` it is a master of a dive."""
        self._large = len(items) > (_MOST_SIMPLEX_DIVE if pairs is None else _MOST_SIMPLEX)
        options = {"solver": "ipm", "run_crossover": "off"} if self._large else {}
        self._model = HighsModel(seed=seed, options=options)
        width = items.width.astype(np.float64)
        self._model.add_rows(width, np.full(len(items), INFINITY))
        self._sets = sets
        self._fixed = 0
        if pairs is not None and len(pairs):
            self._fixed = len(pairs)
            rows = np.sort(pairs, axis=1)
            signs = np.where(rows == pairs[:, :1], 1.0, -1.0)
            self._model.add_sparse_columns(
                np.zeros(len(pairs)), 2 * np.arange(len(pairs)), rows.ravel(), signs.ravel()
            )

    def add(self, rows: IntArray) -> None:
        """Add columns of these sets."""
        if not len(rows):
            return
        held = rows >= 0
        count = held.sum(axis=1)
        starts = np.cumsum(count) - count
        # -1 pads at the end, so the entries of a row are in ascending order.
        index = rows[held]
        self._model.add_sparse_columns(np.ones(len(rows)), starts, index, np.ones(len(index)))

    def purge(self, duals: FloatArray, most: int) -> None:
        """Drop the sets of least value down to ``most``; singletons stay."""
        rows = self._sets.rows
        if len(rows) <= most:
            return
        value = self._sets.values(duals)
        value[rows[:, 1] < 0] = np.inf if rows.shape[1] > 1 else 0.0
        gone = np.zeros(len(rows), dtype=np.bool_)
        gone[np.argsort(value, kind="stable")[: len(rows) - most]] = True
        self._model.delete_columns(np.flatnonzero(gone) + self._fixed)
        self._sets.drop(gone)

    def solve(self, deadline: Deadline) -> tuple[Ended, float, FloatArray]:
        """Return how it ended, and value and duals where optimal."""
        if self._large:
            self._model.forget()
        ended = self._model.run(deadline.remaining_s())
        if ended is not Ended.OPTIMAL:
            return ended, math.nan, np.zeros(0)
        return ended, self._model.objective, np.maximum(self._model.duals(), 0.0)

    def weights(self) -> FloatArray:
        """Return the value of each set in the solution held."""
        return self._model.values()[self._fixed :]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed in a run."""
        return self._model.interrupted


@dataclass(slots=True)
class _Held:
    """What a column generation holds at any moment."""

    bound: float
    duals: FloatArray
    value: float = math.inf
    #: Of ``weighed``, the sets of the last master.
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    weighed: IntArray = field(default_factory=lambda: np.zeros((0, 1), dtype=np.int64))
    rounds: int = 0
    stopped_by: StoppedBy | None = None


class Generation:
    """Column generation of one pool; ``run`` returns at any stop what is held."""

    def __init__(
        self,
        items: PoolItems,
        deadline: Deadline,
        *,
        threads: int,
        seed: int,
        progress: Progress | None,
        until: Until,
        start: IntArray | None = None,
        exchange: bool = True,
    ) -> None:
        self._start = start
        self._exchange = exchange
        self._items = items
        self._deadline = deadline
        self._threads = threads
        self._seed = seed
        self._progress = progress
        self._until = until
        self._budget = _BUDGET
        self.held = _Held(bound=items.volume(), duals=np.zeros(len(items)))
        self.sets = _Sets(1)

    def run(self) -> None:
        """Generate until nothing is left to gain or a limit; Ctrl-C ends it too."""
        try:
            self._generate()
        except KeyboardInterrupt:
            self.held.stopped_by = StoppedBy.INTERRUPT

    def _generate(self) -> None:
        items, held = self._items, self.held
        if self._expired():
            return
        knapsacks = _leader_problems(items)
        self.sets = _Sets(knapsacks.most_items)
        pairs = easier_pairs(items) if self._exchange else None
        if self._expired():
            return
        master = _Master(items, self.sets, self._seed, pairs)
        master.add(self.sets.fresh(np.arange(len(items), dtype=np.int64)[:, None]))
        rng = np.random.default_rng(self._seed)
        for packing in packings(items, rng, _PACKINGS):
            master.add(self.sets.fresh(padded(packing)))
        if self._start is not None:
            master.add(self.sets.fresh(self._start))
        while not self._is_enough() and not self._at_limit():
            ended, value, duals = master.solve(self._deadline)
            if ended is not Ended.OPTIMAL:
                held.stopped_by = STOPPED[ended]
                return
            held.value = min(held.value, value)
            held.weights, held.weighed = master.weights(), self.sets.rows
            if master.interrupted:
                held.stopped_by = StoppedBy.INTERRUPT
                return
            prices, found = self._found(knapsacks, duals)
            held.rounds += 1
            if self._progress is not None:
                self._progress("columns", len(self.sets.rows), self.sets.generated)
            fresh = self.sets.fresh(found)
            if not len(fresh) and self._is_over(prices):
                return
            if not prices.exact.all() and len(fresh) < len(items):
                self._budget = min(_MORE * self._budget, _MOST_BUDGET)
            master.add(fresh)
            master.purge(duals, _PURGE_ABOVE * len(items))

    def _found(self, knapsacks: Knapsacks, duals: FloatArray) -> tuple[Prices, IntArray]:
        """Return the answers of the pricing problems and the sets that the master lacks.

        Prices first between the master's duals and the best known, then, where the master has all
        that was found, at its own (in-out separation: Ben-Ameur and Neto, *Networks* 49, 2007).
        """
        gap = self.held.value - self.held.bound
        large = len(duals) > _MOST_SIMPLEX_DIVE
        if large and self.held.duals.any() and gap > _SMOOTH_ABOVE * self.held.value:
            between = _SMOOTH * self.held.duals + (1 - _SMOOTH) * duals
            prices = self._price(knapsacks, between)
            worth = np.append(duals, 0.0)[prices.sets].sum(axis=1)
            if (worth > 1.0 + _GAIN).any():
                return prices, prices.sets[worth > 1.0 + _GAIN]
        prices = self._price(knapsacks, duals)
        return prices, prices.sets[prices.value > 1.0 + _GAIN]

    def _price(self, knapsacks: Knapsacks, duals: FloatArray) -> Prices:
        """Solve the pricing problems and raise the bound."""
        prices = knapsacks.price(
            duals,
            1.0,
            budget=self._budget,
            keep=_PER_LEADER,
            threads=self._threads,
            deadline=self._deadline,
        )
        most_value = np.empty(len(duals))
        most_value[self._items.leaders] = prices.bound
        bound = dual_bound(duals, self._items.width, most_value)
        if bound > self.held.bound:
            self.held.bound, self.held.duals = bound, duals
        return prices

    def _is_over(self, prices: Prices) -> bool:
        """Whether nothing is left to try in a round without a new column; notes why."""
        if self._expired() or prices.exact.all():
            return True
        if self._budget >= _MOST_BUDGET:
            self.held.stopped_by = StoppedBy.SEARCH
        return self._budget >= _MOST_BUDGET

    def met(self) -> bool:
        """Whether bound and master are as near as was asked."""
        gap = self.held.value - self.held.bound
        return gap <= self._until.gap_rel * max(self.held.value, 1.0) < math.inf

    def _is_enough(self) -> bool:
        """Whether the bound is good enough."""
        value = self.held.value
        if not self._until.whole or not math.isfinite(value):
            return self.met()
        return self.met() or whole_nodes(self.held.bound) >= whole_nodes(value)

    def _at_limit(self) -> bool:
        """Whether a limit is reached; notes which."""
        rounds = self._until.rounds
        if rounds is not None and self.held.rounds >= rounds:
            self.held.stopped_by = StoppedBy.WORK
            return True
        return self._expired()

    def _expired(self) -> bool:
        if self._deadline.expired:
            self.held.stopped_by = StoppedBy.TIME
        return self.held.stopped_by is not None


def _leader_problems(items: PoolItems) -> Knapsacks:
    """Return the pricing problem of each leader, in the order of ``items.leaders``."""
    leaders = items.leaders
    room = np.stack((items.room[leaders], np.full(len(items), items.room_gb)), axis=1)
    return Knapsacks(
        np.stack((items.load, items.state_gb), axis=1),
        [items.followers(int(leader)) for leader in leaders],
        room,
        most=np.full(len(items), max(items.most_jobs, 1), dtype=np.int64),
        forced=leaders,
    )


def padded(sets: Iterable[Sequence[int]]) -> IntArray:
    """Return sets as rows, padded with -1."""
    rows = list(sets)
    out = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int64)
    for row, members in zip(out, rows, strict=True):
        row[: len(members)] = members
    return out


def pool_bound(
    items: PoolItems,
    deadline: Deadline,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    until: Until = _UNTIL,
) -> PoolBound:
    """Return a lower bound of the nodes of one pool, whatever stops it (module docstring).

    Parameters
    ----------
    items : PoolItems
    deadline : Deadline
    threads : int
        That price; the answer does not depend on it unless time stops it.
    seed : int
        Of the first packings.
    progress : callable, optional
        Called with ("columns", held, generated) after each round.
    until : Until
    """
    generation = Generation(
        items, deadline, threads=threads, seed=seed, progress=progress, until=until
    )
    if len(items):
        generation.run()
    return _bound_of(generation)


def _bound_of(generation: Generation) -> PoolBound:
    """Return what a generation holds."""
    held = generation.held
    bound = min(held.bound, held.value)
    known = math.isfinite(held.value)
    return PoolBound(
        nodes_lp=bound,
        nodes=whole_nodes(bound),
        lp_value=held.value if known else None,
        exact=generation.met() if known else not len(held.duals),
        duals=held.duals,
        columns=generation.sets.rows,
        rounds=held.rounds,
        columns_generated=generation.sets.generated,
        stopped_by=held.stopped_by,
    )


def pool_decomposition(
    snapshot: Snapshot,
    deadline: Deadline,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    until: Until = _UNTIL,
) -> DecompositionBound:
    """Return the bound of both pools of a snapshot, whatever stops it (module docstring).

    The rollout pool goes first, as its nodes hold fewer jobs and its columns are soon all there;
    it may take a share of the time, and the train pool has all that is left.
    """
    bounds: dict[Pool, PoolBound] = {}
    interrupted = False
    for turn, pool in enumerate(POOLS):
        generation = Generation(
            PoolItems.of(snapshot, pool),
            deadline.share(_FIRST_SHARE) if turn == 0 else deadline,
            threads=threads,
            seed=seed,
            progress=progress,
            until=until,
        )
        if interrupted:
            generation.held.stopped_by = StoppedBy.INTERRUPT
        elif len(snapshot):
            generation.run()
        interrupted = generation.held.stopped_by is StoppedBy.INTERRUPT
        bounds[pool] = _bound_of(generation)
    rollout, train = bounds["rollout"], bounds["train"]
    return DecompositionBound(
        rollout=rollout,
        train=train,
        usd_per_hour=snapshot.usd_per_hour(rollout.nodes, train.nodes),
        limits=snapshot.limits,
    )
