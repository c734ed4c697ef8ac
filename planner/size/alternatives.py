"""Fleets that cost nearly the least: fewest training nodes, fewest nodes, most even.

Near the optimum the cost is flat: a node whose keep is about its rent may be owned or not. What is
easier to buy, to house or to explain may then decide. Each alternative is the best of its kind
among all fleets within a stated share of the least cost, and the cheapest of those, both proved
by :mod:`models.sizing.milp`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from instances.errors import InputError
from models.problem.options import Deadline
from models.problem.result import StoppedBy, Termination
from models.problem.whole_import import whole_import
from models.sizing.problem import Aim, Owned, SizingCosts, SizingProblem
from planner.replay.demand import Demand
from planner.size.economics import sizing_problem
from planner.size.pool_costs import CostModel

__all__ = ["SHARES", "Alternative", "alternatives", "alternatives_of"]

#: How much dearer than the least an alternative may be.
SHARES: Final = (0.01, 0.05)


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One fleet near the least cost; pairs are (rollout, train).

    Attributes
    ----------
    aim : str
        ``cost`` (the least), ``fewest-train``, ``fewest-nodes`` or ``most-even``.
    within : float
        Share above the least cost that was allowed; 0 of the least itself.
    owned : tuple of (int, int)
        Nodes owned in each purchase period.
    usd_per_hour : float
    above_least : float
        Share above the least cost.
    rented_share : (float or None, float or None)
        Rented share of the node-hours needed; ``None`` where none are.
    capex_usd : float or None
        All purchases, $; ``None`` without purchase prices.
    proved : bool
        No fleet within the share is better in this respect. ``False`` when time ran out.
    """

    aim: Aim
    within: float
    owned: Owned
    usd_per_hour: float
    above_least: float
    rented_share: tuple[float | None, float | None]
    capex_usd: float | None
    proved: bool

    @property
    def nodes(self) -> tuple[int, int]:
        """Nodes owned in the end."""
        return self.owned[-1]


def alternatives(
    demand: Demand,
    costs: CostModel,
    *,
    shares: Sequence[float] = SHARES,
    deadline: Deadline | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Alternative, ...]:
    """Return the least-cost fleet for one demand and its alternatives.

    See :func:`alternatives_of`.
    """
    problem = sizing_problem([demand], costs)
    return alternatives_of(problem, shares=shares, deadline=deadline, progress=progress)


def alternatives_of(
    problem: SizingProblem,
    *,
    shares: Sequence[float] = SHARES,
    deadline: Deadline | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Alternative, ...]:
    """Return the least-cost fleet, then for each share and aim the best one.

    Parameters
    ----------
    shares : sequence of float
        How much dearer than the least cost is allowed, such as 0.05.
    deadline : Deadline, optional
        When it passes, the rows found so far are returned.
    progress : callable, optional
        Called with solves done and in all.

    Raises
    ------
    InfeasibleError
        When no fleet is within the limits.
    InputError
        For a share below 0.
    KeyboardInterrupt
        When Ctrl-C was pressed.
    """
    whole_import("models.sizing.milp")
    from models.sizing.milp import solve_sizing

    if any(share < 0 for share in shares):
        raise InputError(f"Expected shares >= 0 above the least cost, got {tuple(shares)}.")
    aims = [(share, aim) for share in shares for aim in get_args(Aim) if aim != "cost"]
    wanted: list[tuple[float, Aim]] = [(0.0, "cost"), *aims]
    rows: list[Alternative] = []
    least: float | None = None
    for done, (share, aim) in enumerate(wanted, start=1):
        cap = None if least is None else least * (1 + share)
        result = solve_sizing(problem, objective=aim, cost_cap=cap, deadline=deadline)
        if result.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        if result.owned is None or result.costs is None:
            break
        if least is None:
            least = result.costs.usd_per_hour
        proved = result.termination is Termination.OPTIMAL
        rows.append(_row(aim, share, result.owned, result.costs, least, proved))
        if progress is not None:
            progress(done, len(wanted))
    return tuple(rows)


def _row(
    aim: Aim, share: float, owned: Owned, costs: SizingCosts, least: float, proved: bool
) -> Alternative:
    usd = costs.usd_per_hour
    return Alternative(
        aim=aim,
        within=share,
        owned=owned,
        usd_per_hour=usd,
        above_least=max(usd / least - 1, 0.0) if least > 0 else 0.0,
        rented_share=costs.rented_share,
        capex_usd=None if costs.capex_usd is None else sum(costs.capex_usd),
        proved=proved,
    )
