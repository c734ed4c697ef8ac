"""The least-cost fleet by trying every count: slow, and nothing shared with the models.

Written from the statement alone: plain loops over every interval of every scenario, exact cells by
fractions, and the fewest leases from the *dual* side. Leases of ``m`` cells that cover ``need_i``
nodes in each cell number at least the needs of any cells that are ``m`` or more apart (no lease
serves two of them), and the best such sum is attained: rows with their ones in a row form a
totally unimodular matrix, so both linear programs have whole optima of one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil

from models.sizing.problem import DemandArrays, Owned, SizingProblem


def fewest_leases(need: Sequence[int], per_lease: int) -> int:
    """Return the largest sum of needs of cells that are at least a lease apart."""
    best = [0] * (len(need) + 1)
    for i, nodes in enumerate(need):
        best[i + 1] = max(best[i], max(nodes, 0) + best[max(i + 1 - per_lease, 0)])
    return best[-1]


def highest_in_cells(demand: DemandArrays, pool: int, cell_h: Fraction) -> list[int]:
    """Return the highest demand of each cell, by comparing every cell with every interval."""
    at, spans = Fraction(0), []
    for hours, nodes in zip(demand.hours.tolist(), demand.nodes(pool).tolist(), strict=True):
        spans.append((at, at + Fraction(hours), nodes))
        at += Fraction(hours)
    return [
        max(n for low, high, n in spans if low < (c + 1) * cell_h and high > c * cell_h)
        for c in range(ceil(at / cell_h))
    ]


class Prices:
    """Expected $/h of any owned counts of one problem; ``cells(B, H)`` cuts a lease."""

    def __init__(self, problem: SizingProblem, cells: Callable[[float, float], int]) -> None:
        self.problem, self.cells = problem, cells
        self.rents: dict[tuple[int, int, int], float] = {}
        self.needs: dict[tuple[int, int, int], tuple[list[int], int]] = {}

    def usd(self, owned: Owned) -> float:
        """Return what owned counts cost."""
        years = sum(self.problem.period_weights)
        usd = 0.0
        for pool, terms in enumerate((self.problem.rollout, self.problem.train)):
            for k, weight in enumerate(self.problem.period_weights):
                for bought_in in range(k + 1):
                    before = owned[bought_in - 1][pool] if bought_in else 0
                    price = 0.0 if terms.own_usd is None else terms.own_usd[bought_in]
                    usd += weight / years * price * (owned[bought_in][pool] - before)
                key = pool, k, owned[k][pool]
                if key not in self.rents:
                    self.rents[key] = self._rent(*key)
                usd += weight / years * self.rents[key]
        return usd

    def _rent(self, pool: int, k: int, nodes: int) -> float:
        terms = (self.problem.rollout, self.problem.train)[pool]
        usd = 0.0
        for s, scenario in enumerate(self.problem.scenarios):
            d = scenario.demand[k]
            total_h = sum(d.hours.tolist())
            if not total_h:
                continue
            paid = 0.0
            if terms.lease_block_h:
                if (pool, k, s) not in self.needs:
                    per_lease = self.cells(terms.lease_block_h, total_h)
                    cell_h = Fraction(terms.lease_block_h) / per_lease
                    self.needs[pool, k, s] = highest_in_cells(d, pool, cell_h), per_lease
                needs, per_lease = self.needs[pool, k, s]
                paid = fewest_leases([n - nodes for n in needs], per_lease) * terms.lease_block_h
            else:
                for hours, needed in zip(d.hours.tolist(), d.nodes(pool).tolist(), strict=True):
                    paid += hours * max(needed - nodes, 0)
            usd += scenario.probability * terms.rent_usd[k] * paid / total_h
        return usd


def allowed(problem: SizingProblem, owned: Owned) -> bool:
    """Return whether owned counts break no limit."""
    for pool, terms in enumerate((problem.rollout, problem.train)):
        before = 0
        for k, counts in enumerate(owned):
            nodes = counts[pool]
            if nodes < before or (terms.own_usd is None and nodes):
                return False
            if terms.max_owned is not None and nodes > terms.max_owned:
                return False
            for scenario in problem.scenarios:
                peak = max(scenario.demand[k].nodes(pool).tolist(), default=0)
                if terms.max_rented is not None and peak - nodes > terms.max_rented:
                    return False
            before = nodes
    for k in range(len(owned)):
        limit = problem.capex_budget_usd[k] if problem.capex_budget_usd else None
        if limit is None:
            continue
        spent = 0.0
        for pool, terms in enumerate((problem.rollout, problem.train)):
            if terms.capex_usd is not None:
                before = owned[k - 1][pool] if k else 0
                spent += terms.capex_usd[k] * (owned[k][pool] - before)
        if spent > limit:
            return False
    return True


def fleets(problem: SizingProblem) -> Iterator[Owned]:
    """Yield every fleet within the limits that owns no more than the highest demand."""
    tops = [0, 0]
    for scenario in problem.scenarios:
        for d in scenario.demand:
            for pool in (0, 1):
                tops[pool] = max([tops[pool], *d.nodes(pool).tolist()])
    pairs = list(product(range(tops[0] + 1), range(tops[1] + 1)))
    for owned in product(pairs, repeat=len(problem.period_weights)):
        if allowed(problem, owned):
            yield owned


def least_fleet(problem: SizingProblem, cells: Callable[[float, float], int]) -> float | None:
    """Return the least expected $/h, or ``None`` when no fleet is within the limits."""
    prices = Prices(problem, cells)
    return min((prices.usd(owned) for owned in fleets(problem)), default=None)
