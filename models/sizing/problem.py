"""Fleet sizing: the problem as arrays, and what any owned counts cost, without a solver.

Sets and parameters
-------------------
``P``
    pools, rollout and train, in this order wherever there is a pair.
``k in K``
    purchase periods, in time; ``y_k`` is the share of the horizon that period ``k`` takes.
``s in S``
    scenarios of probability ``q_s``: one demand per period each.
``i``
    intervals of one scenario and period: ``h_i`` hours, ``d^P_i`` nodes needed, ``H`` their sum.
``o^P_k, r^P_k, b^P_k``
    $/h of a node bought in period ``k`` (from then to the horizon's end, used or not), $/h of a
    node rented in period ``k``, $ to buy a node in period ``k``.
``U^P, V^P, B^P, E_k``
    most nodes owned and most rented at once, hours of a lease (0: none, paid as used), $ that
    purchases of period ``k`` may cost.

With ``n^P_k`` nodes owned, ``max(d^P_i - n^P_k, 0)`` are rented. All purchases are decided before
the scenario is known (first stage); renting follows it (second stage).

Leases
------
With ``B > 0`` a rented node is taken for ``B`` hours and paid in full, also past the horizon's
end. Time is cut into cells of ``B / m`` hours (:func:`grid_of`); the demand of a cell is its
highest, and leases start at the beginning of a cell. The grid errs on the dear side only: a finer
one that divides it never costs more. Fewest leases: from left to right, start one whenever a cell
lacks a node. Some lease must begin no later than at the first cell that lacks one, and beginning
later never covers less of what follows. No more are ever held than some cell lacks, so ``V`` asks
for no more than ``n >= peak - V``.

Separable
---------
With one period and no binding budget each pool is on its own, and its cost is convex in ``n``:
the value of a linear program in its right-hand side, exact at whole ``n``
(:mod:`models.sizing.milp` proves that). So the unconstrained optimum, clamped to its limits, is
optimal (:func:`least_separable`). Without leases the ``n``-th node earns its keep exactly when it
is needed for a share of the time above ``o / r``: the newsvendor's quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InfeasibleError, InputError

__all__ = [
    "POOLS",
    "Aim",
    "DemandArrays",
    "Owned",
    "PoolTerms",
    "Scenario",
    "SizingCosts",
    "SizingProblem",
    "breaches",
    "cells_of",
    "cost_of",
    "grid_of",
    "lease_starts",
    "least_separable",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: Nodes of (rollout, train) owned in each period, counted from the first purchase on.
Owned = tuple[tuple[int, int], ...]
#: What is wanted of a fleet.
Aim = Literal["cost", "fewest-train", "fewest-nodes", "most-even"]

POOLS: Final = ("rollout", "train")
#: Cells of a lease, and of a horizon, that :func:`grid_of` aims for.
_CELLS_PER_LEASE: Final = 24
_CELLS_PER_HORIZON: Final = 1_000
#: Round-off of summed shares, and of a budget met exactly.
_REL: Final = 1e-9


def _frozen(values: npt.ArrayLike, dtype: type[np.float64 | np.int64]) -> npt.NDArray[np.generic]:
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class DemandArrays:
    """Nodes needed over time, one scenario and period; order is that of time.

    Attributes
    ----------
    hours : ndarray, (n,)
        Above 0; no interval at all means no demand.
    rollout_nodes, train_nodes : ndarray, (n,)
        Whole nodes.
    """

    hours: FloatArray
    rollout_nodes: IntArray
    train_nodes: IntArray

    def __post_init__(self) -> None:
        for name, dtype in (
            ("hours", np.float64),
            ("rollout_nodes", np.int64),
            ("train_nodes", np.int64),
        ):
            object.__setattr__(self, name, _frozen(getattr(self, name), dtype))
        if len({self.hours.shape, self.rollout_nodes.shape, self.train_nodes.shape}) != 1:
            raise InputError("Expected hours and nodes of a demand to have one length.")
        if len(self.hours) and not (np.isfinite(self.hours).all() and self.hours.min() > 0):
            raise InputError("Expected hours > 0 of every interval of a demand.")
        if min(self.rollout_nodes.min(initial=0), self.train_nodes.min(initial=0)) < 0:
            raise InputError("Expected nodes >= 0 in every interval of a demand.")

    @cached_property
    def total_h(self) -> float:
        """``H``, hours."""
        return float(self.hours.sum())

    def nodes(self, pool: int) -> IntArray:
        """Return ``d^P_i``, ``(n,)``; pool 0 is rollout, 1 train."""
        return self.train_nodes if pool else self.rollout_nodes


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One future: its probability, and its demand in each purchase period."""

    probability: float
    demand: tuple[DemandArrays, ...]


@dataclass(frozen=True, kw_only=True)
class PoolTerms:
    """What one pool's nodes cost; tuples have one entry per period.

    Attributes
    ----------
    own_usd : tuple of float, or None
        ``o^P_k``, $/h; ``None``: cannot be owned.
    rent_usd : tuple of float
        ``r^P_k``, $/h.
    capex_usd : tuple of float, optional
        ``b^P_k``, $; needed where there is a budget.
    max_owned, max_rented : int or None
        ``U^P`` and ``V^P``.
    lease_block_h : float
        ``B^P``, hours; 0: paid as used.
    """

    own_usd: tuple[float, ...] | None
    rent_usd: tuple[float, ...]
    capex_usd: tuple[float, ...] | None = None
    max_owned: int | None = None
    max_rented: int | None = None
    lease_block_h: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SizingProblem:
    """What to own and what to rent.

    Attributes
    ----------
    rollout, train : PoolTerms
    scenarios : tuple of Scenario
        Probabilities sum to 1.
    period_weights : tuple of float
        Lengths of the purchase periods, in any unit; scaled to ``y_k``.
    capex_budget_usd : tuple of (float or None), optional
        ``E_k``; left out: none in any period. What one period leaves is not carried over.

    Raises
    ------
    InputError
        When lengths differ, a number is out of range, or a budget meets unknown purchase prices.
    """

    rollout: PoolTerms
    train: PoolTerms
    scenarios: tuple[Scenario, ...]
    period_weights: tuple[float, ...] = (1.0,)
    capex_budget_usd: tuple[float | None, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.period_weights)
        if not count or min(self.period_weights) <= 0:
            raise InputError("Expected at least one purchase period, each of length > 0.")
        total = sum(s.probability for s in self.scenarios)
        if any(s.probability < 0 for s in self.scenarios) or abs(total - 1) > 1e-6:
            raise InputError(f"Expected probabilities >= 0 that sum to 1, got a sum of {total:g}.")
        if any(len(s.demand) != count for s in self.scenarios):
            raise InputError(f"Expected {count} demands of every scenario, one per period.")
        if self.capex_budget_usd is not None and len(self.capex_budget_usd) != count:
            raise InputError(f"Expected {count} budgets, got {len(self.capex_budget_usd)}.")
        for name, terms in zip(POOLS, self.pools, strict=True):
            _require_terms(name, terms, count, self.has_budget)

    @property
    def pools(self) -> tuple[PoolTerms, PoolTerms]:
        """Return the terms of (rollout, train)."""
        return self.rollout, self.train

    @property
    def periods(self) -> range:
        """``K``."""
        return range(len(self.period_weights))

    @property
    def has_budget(self) -> bool:
        """Whether purchases of any period are limited."""
        return any(self.budget(k) is not None for k in self.periods)

    def budget(self, k: int) -> float | None:
        """Return ``E_k``, $, or ``None``."""
        return None if self.capex_budget_usd is None else self.capex_budget_usd[k]

    def share(self, k: int) -> float:
        """Return ``y_k``."""
        return self.period_weights[k] / sum(self.period_weights)

    @cached_property
    def peaks(self) -> tuple[tuple[int, int], ...]:
        """Highest demand of any scenario that can happen, per period, (rollout, train)."""

        def peak(k: int, pool: int) -> int:
            likely = (s.demand[k].nodes(pool) for s in self.scenarios if s.probability > 0)
            return max((int(nodes.max(initial=0)) for nodes in likely), default=0)

        return tuple((peak(k, 0), peak(k, 1)) for k in self.periods)

    def most_owned(self, pool: int) -> int:
        """Return the most nodes worth owning: never more than the peak, nor than ``U``."""
        terms = self.pools[pool]
        if terms.own_usd is None:
            return 0
        peak = max(pair[pool] for pair in self.peaks)
        return peak if terms.max_owned is None else min(peak, terms.max_owned)

    def least_owned(self, k: int, pool: int) -> int:
        """Return the nodes that must be owned in period ``k``: the peak less ``V``."""
        most_rented = self.pools[pool].max_rented
        return 0 if most_rented is None else max(self.peaks[k][pool] - most_rented, 0)

    def only(self, scenario: int) -> SizingProblem:
        """Return the problem of someone who knows that this scenario comes."""
        return replace(self, scenarios=(replace(self.scenarios[scenario], probability=1.0),))

    def require_capacity(self) -> None:
        """Raise InfeasibleError where owned and rented nodes together cannot meet the peak."""
        faults = []
        for k in self.periods:
            for pool, name in enumerate(POOLS):
                least, most = self.least_owned(k, pool), self.most_owned(pool)
                if least > most:
                    faults.append(
                        f"{name} pool{self.where(k)}: its peak of {self.peaks[k][pool]} nodes is "
                        f"{least - most} more than the {most} that can be owned and the "
                        f"{self.pools[pool].max_rented} that can be rented"
                    )
        if faults:
            raise InfeasibleError(
                f"No fleet meets the demand of the {'; '.join(faults)}. Raise max_rented_nodes or "
                "max_owned_nodes."
            )

    def where(self, k: int) -> str:
        """Return `` in period 2``, or nothing where there is but one."""
        return f" in period {k + 1}" if len(self.period_weights) > 1 else ""

    @cached_property
    def merged(self) -> dict[tuple[int, int], tuple[IntArray, FloatArray]]:
        """Demand levels and expected shares of time by (pool, period), all scenarios as one.

        What is rented without leases depends on the level alone, so that equal levels of
        different scenarios are one. Levels rise; shares sum to at most 1.
        """
        return {(p, k): self._merge(p, k) for p in (0, 1) for k in self.periods}

    @cached_property
    def lease_cells(self) -> dict[tuple[int, int], tuple[tuple[float, IntArray, int], ...]]:
        """Cells of each scenario by (pool, period), for pools with leases.

        Each with the expected share of a node that one lease is, ``q_s B / H``, and ``m``.
        """
        out = {}
        for pool, terms in enumerate(self.pools):
            for k in self.periods if terms.lease_block_h > 0 else ():
                rows = []
                for scenario in self.scenarios:
                    demand = scenario.demand[k]
                    if scenario.probability > 0 and len(demand.hours):
                        rate = scenario.probability * terms.lease_block_h / demand.total_h
                        rows.append((rate, *cells_of(demand, pool, terms.lease_block_h)))
                out[pool, k] = tuple(rows)
        return out

    @cached_property
    def _leased(self) -> dict[tuple[int, int, int], float]:
        """What :meth:`leased_nodes` has found."""
        return {}

    def leased_nodes(self, pool: int, k: int, nodes: int) -> float:
        """Return the expected nodes paid for by leases, on average over a period."""
        key = pool, k, nodes
        if key not in self._leased:
            self._leased[key] = sum(
                rate * int(lease_starts(cells - nodes, per_lease).sum())
                for rate, cells, per_lease in self.lease_cells[pool, k]
            )
        return self._leased[key]

    def lease_levels(self, pool: int, k: int) -> tuple[IntArray, FloatArray]:
        """Return levels, and shares of the time, at which renting by use costs what leases do.

        The nodes that leases pay for, ``c(n)`` with ``n`` owned, are convex in ``n``. With shares
        ``(c(i-1) - c(i)) - (c(i) - c(i+1))`` of level ``i``, ``>= 0`` by convexity, the expected
        excess over ``n`` is ``c(n)`` again.
        """
        peak = self.peaks[k][pool]
        paid = np.array([self.leased_nodes(pool, k, nodes) for nodes in range(peak + 1)])
        saved = np.append(paid[:-1] - paid[1:], 0.0)
        return np.arange(1, peak + 1, dtype=np.int64), np.maximum(saved[:-1] - saved[1:], 0.0)

    def _merge(self, pool: int, k: int) -> tuple[IntArray, FloatArray]:
        likely = [s for s in self.scenarios if s.probability > 0 and len(s.demand[k].hours)]
        if not likely:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        nodes = np.concatenate([s.demand[k].nodes(pool) for s in likely])
        shares = np.concatenate(
            [s.probability * s.demand[k].hours / s.demand[k].total_h for s in likely]
        )
        weights: FloatArray = np.bincount(nodes, weights=shares).astype(np.float64)
        return np.arange(len(weights), dtype=np.int64), weights


def _require_terms(name: str, terms: PoolTerms, periods: int, budget: bool) -> None:
    """Raise InputError where the terms of one pool break a rule."""
    for key in ("own_usd", "rent_usd", "capex_usd"):
        values = getattr(terms, key)
        if values is None:
            continue
        if len(values) != periods:
            raise InputError(f"Expected {periods} {key} of the {name} pool, got {len(values)}.")
        if not all(isfinite(value) and value >= 0 for value in values):
            raise InputError(f"Expected {key} >= 0 of the {name} pool, got {values}.")
    for key in ("max_owned", "max_rented"):
        value = getattr(terms, key)
        if value is not None and value < 0:
            raise InputError(f"Expected {key} >= 0 of the {name} pool, got {value}.")
    if not (isfinite(terms.lease_block_h) and terms.lease_block_h >= 0):
        raise InputError(
            f"Expected lease_block_h >= 0 of the {name} pool, got {terms.lease_block_h}."
        )
    if budget and terms.own_usd is not None and terms.capex_usd is None:
        raise InputError(
            f"Missing the purchase price of a node of the {name} pool: a budget needs it."
        )


# --- leases -----------------------------------------------------------------------------------


def grid_of(block_h: float, total_h: float) -> int:
    """Return ``m``, cells of a lease: 24, or fewer to keep the horizon near 1,000 cells."""
    fitting = int(_CELLS_PER_HORIZON * block_h / total_h) if total_h > 0 else _CELLS_PER_LEASE
    return max(1, min(_CELLS_PER_LEASE, fitting))


def cells_of(demand: DemandArrays, pool: int, block_h: float) -> tuple[IntArray, int]:
    """Return the highest demand of each cell, ``(c,)``, and the cells of a lease ``m``."""
    per_lease = grid_of(block_h, demand.total_h)
    cell_h = block_h / per_lease
    ends = np.cumsum(demand.hours) / cell_h
    count = int(np.ceil(ends[-1] - _REL)) if len(ends) else 0
    cells = np.zeros(count, dtype=np.int64)
    starts = np.concatenate(([0.0], ends[:-1])) if len(ends) else ends
    first = np.floor(starts + _REL).astype(np.int64)
    last = np.maximum(np.ceil(ends - _REL).astype(np.int64) - 1, first)
    for nodes, low, high in zip(demand.nodes(pool), first, last, strict=True):
        np.maximum(cells[low : high + 1], nodes, out=cells[low : high + 1])
    return cells, per_lease


def lease_starts(lacking: npt.ArrayLike, per_lease: int) -> IntArray:
    """Return the fewest leases that cover ``lacking`` nodes per cell, by the cell they start in.

    Parameters
    ----------
    lacking : array_like, (c,)
        Nodes to rent in each cell; below 0 counts as 0.
    per_lease : int
        Cells of a lease.
    """
    need = np.maximum(np.asarray(lacking, dtype=np.int64), 0).tolist()
    starts = [0] * len(need)
    held = 0
    for cell, nodes in enumerate(need):
        if cell >= per_lease:
            held -= starts[cell - per_lease]
        if nodes > held:
            starts[cell] = nodes - held
            held = nodes
    return np.array(starts, dtype=np.int64)


# --- what owned counts cost -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SizingCosts:
    """Expected cost of given owned counts; pairs are (rollout, train).

    Attributes
    ----------
    own_usd_per_hour, rent_usd_per_hour : (float, float)
        $/h on average over the horizon.
    rented_share : (float or None, float or None)
        Rented share of the node-hours needed; ``None`` where none are needed.
    capex_usd : tuple of float, or None
        $ spent on purchases in each period; ``None`` without purchase prices.
    """

    own_usd_per_hour: tuple[float, float]
    rent_usd_per_hour: tuple[float, float]
    rented_share: tuple[float | None, float | None]
    capex_usd: tuple[float, ...] | None

    @property
    def usd_per_hour(self) -> float:
        """Expected cost, $/h."""
        return sum(self.own_usd_per_hour) + sum(self.rent_usd_per_hour)


def _bought(owned: Owned) -> list[tuple[int, int]]:
    """Return the nodes bought in each period."""
    before = [(0, 0), *owned[:-1]]
    return [(now[0] - was[0], now[1] - was[1]) for now, was in zip(owned, before, strict=True)]


def _own_usd(problem: SizingProblem, pool: int, bought: Sequence[tuple[int, int]]) -> float:
    own = problem.pools[pool].own_usd
    if own is None:
        return 0.0
    left = [sum(problem.share(later) for later in problem.periods[k:]) for k in problem.periods]
    return sum(left[k] * own[k] * bought[k][pool] for k in problem.periods)


def _rent_usd(problem: SizingProblem, pool: int, k: int, nodes: int) -> float:
    """Return the expected rent of one pool in one period, $/h of that period."""
    terms = problem.pools[pool]
    if terms.lease_block_h == 0:
        levels, shares = problem.merged[pool, k]
        return terms.rent_usd[k] * float(np.dot(shares, np.maximum(levels - nodes, 0)))
    return terms.rent_usd[k] * problem.leased_nodes(pool, k, nodes)


def cost_of(problem: SizingProblem, owned: Owned) -> SizingCosts:
    """Return what owned counts cost, by arithmetic alone; limits are not looked at.

    Parameters
    ----------
    owned : tuple of (int, int)
        Nodes of (rollout, train) owned in each period.
    """
    bought = _bought(owned)
    rent = [0.0, 0.0]
    shares: list[float | None] = []
    for pool in (0, 1):
        needed = over = 0.0
        for k in problem.periods:
            rent[pool] += problem.share(k) * _rent_usd(problem, pool, k, owned[k][pool])
            levels, time = problem.merged[pool, k]
            needed += problem.share(k) * float(np.dot(time, levels))
            over += problem.share(k) * float(np.dot(time, np.maximum(levels - owned[k][pool], 0)))
        shares.append(over / needed if needed > 0 else None)
    return SizingCosts(
        own_usd_per_hour=(_own_usd(problem, 0, bought), _own_usd(problem, 1, bought)),
        rent_usd_per_hour=(rent[0], rent[1]),
        rented_share=(shares[0], shares[1]),
        capex_usd=_capex(problem, bought),
    )


def _capex(problem: SizingProblem, bought: Sequence[tuple[int, int]]) -> tuple[float, ...] | None:
    totals = []
    for k, pair in enumerate(bought):
        total = 0.0
        for terms, nodes in zip(problem.pools, pair, strict=True):
            if nodes and terms.capex_usd is None:
                return None
            total += nodes * terms.capex_usd[k] if terms.capex_usd is not None else 0.0
        totals.append(total)
    return tuple(totals)


def breaches(problem: SizingProblem, owned: Owned) -> tuple[str, ...]:
    """Return in words every limit that owned counts break; empty for a valid fleet."""
    found = []
    bought = _bought(owned)
    capex = _capex(problem, bought)
    for k in problem.periods:
        for pool, name in enumerate(POOLS):
            nodes, terms = owned[k][pool], problem.pools[pool]
            most = 0 if terms.own_usd is None else terms.max_owned
            if bought[k][pool] < 0:
                found.append(f"{name} pool{problem.where(k)}: sells {-bought[k][pool]} nodes")
            if most is not None and nodes > most:
                found.append(f"{name} pool{problem.where(k)}: owns {nodes} of at most {most}")
            if nodes < problem.least_owned(k, pool):
                found.append(
                    f"{name} pool{problem.where(k)}: rents {problem.peaks[k][pool] - nodes} of at "
                    f"most {terms.max_rented}"
                )
        budget = problem.budget(k)
        if budget is not None and capex is not None and capex[k] > budget * (1 + _REL):
            found.append(f"purchases{problem.where(k)}: ${capex[k]:,.0f} of at most ${budget:,.0f}")
    return tuple(found)


def least_separable(problem: SizingProblem) -> Owned | None:
    """Return the least-cost owned counts where pools are independent; fewest nodes on a tie.

    ``None`` with several periods, or where the budget binds: :mod:`models.sizing.milp` is for
    these.

    Raises
    ------
    InfeasibleError
        When owned and rented nodes cannot meet the peak.
    """
    problem.require_capacity()
    if len(problem.period_weights) > 1:
        return None
    owned: Owned = ((_least_pool(problem, 0), _least_pool(problem, 1)),)
    return None if breaches(problem, owned) else owned


def _least_pool(problem: SizingProblem, pool: int) -> int:
    """Return the fewest nodes at which one more does not pay, by bisection of a convex cost."""
    own = problem.pools[pool].own_usd
    low, high = problem.least_owned(0, pool), problem.most_owned(pool)
    if own is None:
        return low
    while low < high:
        middle = (low + high) // 2
        saved = _rent_usd(problem, pool, 0, middle) - _rent_usd(problem, pool, 0, middle + 1)
        if saved > own[0] * (1 + _REL):
            low = middle + 1
        else:
            high = middle
    return low
