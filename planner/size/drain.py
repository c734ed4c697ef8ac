"""What a trace needs after its last arrival, when jobs only leave: no load that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from instances.errors import InfeasibleError
from planner.policies.replay_result import ReplayResult
from planner.replay.demand import demand_of
from planner.size.economics import owned_and_rented
from planner.size.pool_costs import CostModel

__all__ = ["LONG_DRAIN", "Drain", "drain_of"]

_HOUR_S: Final = 3600.0
#: A longer drain, as a share of the horizon, is worth a warning.
LONG_DRAIN: Final = 0.25


@dataclass(frozen=True, kw_only=True)
class Drain:
    """The time after the last arrival, and the answer without it.

    Attributes
    ----------
    hours : float
        From the last arrival to the last departure, h.
    share : float
        Of the horizon.
    mean_before, mean_after : tuple of (float, float)
        Mean rollout and train nodes until the last arrival, and after it.
    owned : tuple of (int, int) or None
        Least-cost owned nodes where only the time until the last arrival counts; ``None`` where
        limits of money or nodes admit none.
    """

    hours: float
    share: float
    mean_before: tuple[float, float]
    mean_after: tuple[float, float]
    owned: tuple[int, int] | None


def drain_of(result: ReplayResult, costs: CostModel) -> Drain | None:
    """Return the drain of a replay; ``None`` where all jobs arrive at once, or none stays on.

    Parameters
    ----------
    result : ReplayResult
    costs : CostModel
        What nodes cost, owned and rented.
    """
    demand = demand_of(result)
    until_h = float(result.jobs.arrival_s.max() - result.timeline.time_s[0]) / _HOUR_S
    hours = demand.horizon_h - until_h
    if until_h <= 0 or hours <= 0:
        return None
    before, after = demand.split_at(until_h)
    try:
        owned = owned_and_rented(before, costs).owned
    except InfeasibleError:
        owned = None
    return Drain(
        hours=hours,
        share=hours / demand.horizon_h,
        mean_before=(before.mean("rollout"), before.mean("train")),
        mean_after=(after.mean("rollout"), after.mean("train")),
        owned=owned,
    )
