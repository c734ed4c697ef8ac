"""Sets and parameters of fleet sizing, by the symbols of :mod:`models.sizing.milp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from instances.errors import UnsupportedError
from models.sizing.problem import SizingProblem

__all__ = ["MOST_CELLS", "MOST_LEASE_CELLS", "Parameters", "Row"]

#: Levels and cells in all beyond which a model is refused.
MOST_CELLS: Final = 200_000
#: Cells of leases beyond which they enter as levels.
MOST_LEASE_CELLS: Final = 500


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of levels or cells of a pool in a period: demand, $/h of one, cells of a lease."""

    pool: int
    k: int
    nodes: tuple[int, ...]
    usd: tuple[float, ...]
    per_lease: int


class Parameters:
    """Everything the constraints are written in.

    Attributes
    ----------
    rows : list of Row
    cells : list of (int, int)
        Every ``i``: its row and its place there.
    most : (int, int)
        Most nodes worth owning, (rollout, train).
    """

    def __init__(self, problem: SizingProblem) -> None:
        self.problem = problem
        self.keys = [(p, k) for p in (0, 1) for k in problem.periods]
        lease_cells = sum(len(c) for rows in problem.lease_cells.values() for _, c, _ in rows)
        as_levels = lease_cells > MOST_LEASE_CELLS
        self.rows = [row for p, k in self.keys for row in _rows(problem, p, k, as_levels)]
        self.cells = [(a, i) for a, row in enumerate(self.rows) for i in range(len(row.nodes))]
        self.most = problem.most_owned(0), problem.most_owned(1)
        self.last = len(problem.period_weights) - 1
        if len(self.cells) > MOST_CELLS:
            raise UnsupportedError(
                f"Expected at most {MOST_CELLS:,} levels and lease cells, got {len(self.cells):,}: "
                "take fewer scenarios or longer leases."
            )

    def left(self, k: int) -> float:
        """Return ``y_k + .. + y_K``."""
        return sum(self.problem.share(later) for later in self.problem.periods[k:])


def _rows(problem: SizingProblem, pool: int, k: int, as_levels: bool) -> list[Row]:
    """Return ``I^P_k`` with ``c_i``: one row of levels, or one row of cells per scenario."""
    terms = problem.pools[pool]
    usd = problem.share(k) * terms.rent_usd[k]
    leases = problem.lease_cells.get((pool, k))
    if leases is None or as_levels:
        merged = problem.merged[pool, k]
        levels, shares = merged if leases is None else problem.lease_levels(pool, k)
        kept = (shares > 0) & (levels > 0)
        price = tuple((usd * shares[kept]).tolist())
        return [Row(pool=pool, k=k, nodes=tuple(levels[kept].tolist()), usd=price, per_lease=0)]
    return [
        Row(
            pool=pool,
            k=k,
            nodes=tuple(cells.tolist()),
            usd=(usd * rate,) * len(cells),
            per_lease=per_lease,
        )
        for rate, cells, per_lease in leases
    ]
