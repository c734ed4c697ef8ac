"""A group after a member has left: pins stay, offsets (and rates, where there are any) are new."""

from __future__ import annotations

from dataclasses import replace

from models.group.period import construct, tightened
from models.problem.group_shape import Schedule, lower_bound_s
from planner.placement.group_rates import at_best_rates
from planner.placement.group_state import GroupState

__all__ = ["left_of", "retimed"]


def left_of(state: GroupState, job_id: str, max_rate: int) -> GroupState | None:
    """Return the group without one member, or ``None`` when it was the last.

    The period is never longer than before: the old starts without the job are still valid.
    """
    if len(state.jobs) == 1:
        return None
    return retimed(state.without(job_id), max_rate)


def retimed(state: GroupState, max_rate: int) -> GroupState:
    """Return a group whose starts are valid with better ones: its period is never longer.

    With rates, the rates of least mean slowdown, nobody's mean iteration longer than before.
    """
    if max(state.rates) > 1:
        return at_best_rates(state, max_rate)
    shape = state.shape()
    schedule = construct(shape, limit_s=state.period_s)
    if schedule is None:
        held = Schedule(
            period_s=state.period_s, starts_s=state.starts_s, bound_s=lower_bound_s(shape)
        )
        schedule = tightened(shape, held)
    return replace(state, period_s=schedule.period_s, starts_s=schedule.starts_s)
