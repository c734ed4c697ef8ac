"""Buy before the future is known, rent after: what knowing it would be worth.

Of a set of scenarios with probabilities, all in expected $/h:

``rp``
    the recourse problem: owned counts that cost the least in expectation.
``eev``
    what the plan for the *mean demand* costs in expectation. For each share ``u`` of the time
    the mean demand is the mean over scenarios of the nodes exceeded for ``u`` of the time (the
    mean of their quantile functions, each pool by itself), rounded up to whole nodes, over the
    mean of their hours. It is what a planner would take for typical: peaks that come at different
    times do not cancel out. The order of time is lost (highest first), so that leases of the
    mean demand look cheaper than they are.
``ws``
    wait and see: the mean cost of the plans that know their scenario.

``vss = eev - rp >= 0`` is the value of the stochastic solution, ``evpi = rp - ws >= 0`` that of
perfect information (Birge and Louveaux, Introduction to Stochastic Programming, chapter 4). The
plan for the mean demand may break a rental limit in some scenario: then it costs no stated
amount, and ``eev`` and ``vss`` are ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from models.problem.options import Deadline
from models.problem.whole_import import whole_import
from models.sizing.problem import (
    DemandArrays,
    Owned,
    Scenario,
    SizingProblem,
    breaches,
    cost_of,
)

__all__ = ["StochasticValue", "mean_demand", "value_of"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: Round-off below which a mean of whole numbers is that whole number.
_REL: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class StochasticValue:
    """What planning for all scenarios is worth, expected $/h.

    Attributes
    ----------
    owned : tuple of (int, int)
        Nodes of (rollout, train) of the recourse problem's plan in each purchase period.
    mean_owned : tuple of (int, int)
        Of the plan for the mean demand.
    scenario_owned : tuple
        Of the plan that knows its scenario, one per scenario.
    rp, ws : float
    eev : float or None
        ``None`` when the plan for the mean demand breaks a limit in some scenario.
    breaches : tuple of str
        These limits, in words.
    """

    owned: Owned
    mean_owned: Owned
    scenario_owned: tuple[Owned, ...]
    rp: float
    ws: float
    eev: float | None
    breaches: tuple[str, ...]

    @property
    def vss(self) -> float | None:
        """Value of the stochastic solution, $/h."""
        return None if self.eev is None else self.eev - self.rp

    @property
    def evpi(self) -> float:
        """Expected value of perfect information, $/h."""
        return self.rp - self.ws


def mean_demand(demands: Sequence[DemandArrays], probabilities: Sequence[float]) -> DemandArrays:
    """Return the mean of the quantile functions, in nodes rounded up, highest first."""
    present = [
        (d, q) for d, q in zip(demands, probabilities, strict=True) if len(d.hours) and q > 0
    ]
    empty = np.zeros(0, dtype=np.int64)
    if not present:
        return DemandArrays(hours=np.zeros(0), rollout_nodes=empty, train_nodes=empty)
    curves = [[_curve(demand, pool) for demand, _ in present] for pool in (0, 1)]
    cuts = np.unique(np.concatenate([ends for side in curves for ends, _ in side]))
    keep = np.diff(cuts, prepend=0.0) > _REL
    keep[-1] = True
    cuts = cuts[keep]
    hours = np.diff(cuts, prepend=0.0)
    middles = cuts - hours / 2

    def mean(side: list[tuple[FloatArray, IntArray]]) -> IntArray:
        total = np.zeros(len(middles))
        for (ends, nodes), (_, chance) in zip(side, present, strict=True):
            place = np.minimum(np.searchsorted(ends, middles), len(nodes) - 1)
            total += chance * nodes[place]
        return np.ceil(total - _REL).astype(np.int64)

    weight = sum(chance for _, chance in present)
    total_h = sum(chance * demand.total_h for demand, chance in present) / weight
    return DemandArrays(
        hours=hours * total_h, rollout_nodes=mean(curves[0]), train_nodes=mean(curves[1])
    )


def _curve(demand: DemandArrays, pool: int) -> tuple[FloatArray, IntArray]:
    """Return the duration curve, highest first: where each step ends (share of time), and nodes."""
    nodes = demand.nodes(pool)
    hours = np.bincount(nodes, weights=demand.hours)[::-1]
    levels = np.arange(len(hours), dtype=np.int64)[::-1]
    ends = np.cumsum(hours) / demand.total_h
    ends[-1] = 1.0
    return ends, levels


def value_of(
    problem: SizingProblem,
    *,
    deadline: Deadline | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StochasticValue:
    """Return the two-stage values of a sizing problem.

    Parameters
    ----------
    deadline : Deadline, optional
        Where HiGHS is needed (budgets, several periods); plans held then need not be the best.
    progress : callable, optional
        Called with problems solved and in all.

    Raises
    ------
    InfeasibleError
        When no fleet is within the limits.
    KeyboardInterrupt
        When Ctrl-C was pressed.
    """
    whole_import("models.sizing.milp")
    from models.sizing.milp import least_owned

    count = len(problem.scenarios)
    tell = progress or (lambda _done, _total: None)
    owned = least_owned(problem, deadline=deadline)
    tell(1, count + 2)
    mean_owned = least_owned(_mean_problem(problem), deadline=deadline)
    tell(2, count + 2)
    broken = breaches(problem, mean_owned)
    rp = cost_of(problem, owned).usd_per_hour
    eev = None if broken else cost_of(problem, mean_owned).usd_per_hour
    if eev is not None and eev < rp:  # a limit stopped the solver: the better plan is held
        owned, rp = mean_owned, eev
    known: list[Owned] = []
    least: list[float] = []
    for s in range(count):
        alone = problem.only(s)
        best = least_owned(alone, deadline=deadline)
        usd, held = cost_of(alone, best).usd_per_hour, cost_of(alone, owned).usd_per_hour
        if held < usd and not breaches(alone, owned):  # a limit stopped the solver
            best, usd = owned, held
        known.append(best)
        least.append(usd)
        tell(s + 3, count + 2)
    chances = [scenario.probability for scenario in problem.scenarios]
    return StochasticValue(
        owned=owned,
        mean_owned=mean_owned,
        scenario_owned=tuple(known),
        rp=rp,
        ws=sum(q * usd for q, usd in zip(chances, least, strict=True)),
        eev=eev,
        breaches=broken,
    )


def _mean_problem(problem: SizingProblem) -> SizingProblem:
    chances = [scenario.probability for scenario in problem.scenarios]
    demand = tuple(
        mean_demand([scenario.demand[k] for scenario in problem.scenarios], chances)
        for k in problem.periods
    )
    return replace(problem, scenarios=(Scenario(probability=1.0, demand=demand),))
