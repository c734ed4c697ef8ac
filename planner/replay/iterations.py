"""How long each iteration of a job takes: with rates above 1 they need not be alike."""

from __future__ import annotations

from collections.abc import Sequence

from instances.plan import JobPlacement

__all__ = ["iteration_seconds", "iteration_seconds_of"]


def iteration_seconds(placement: JobPlacement, period_s: float) -> tuple[float, ...]:
    """Return the seconds from the start of each rollout of a job to the start of its next one.

    As many as its rate; they sum to the period. The SLO holds for their mean.
    """
    return iteration_seconds_of(placement.starts_s, period_s)


def iteration_seconds_of(
    starts_s: Sequence[tuple[float, float]], period_s: float
) -> tuple[float, ...]:
    """Return the same from the (rollout, train) starts of one period, ``(k,)`` seconds."""
    rollouts = [rollout for rollout, _ in starts_s]
    following = [*rollouts[1:], rollouts[0] + period_s]
    return tuple(after - each for each, after in zip(rollouts, following, strict=True))
