"""Rates of one group on given pins: at one period, or the best of all when a member has left.

At a period ``C`` every member runs ``ceil(C / D_j)`` iterations (:mod:`models.group.rate_vectors`).
Most choices fail a cheap necessary condition: chains, node loads and cliques
(:func:`models.problem.group_shape.lower_bound_s`), or the gaps between the iterations of two jobs
of different rates (:func:`models.group.rate_bound.pair_bound_s`). For the rest a schedule is sought
among interleavings only (:mod:`models.group.self_timed`): with the exact search more are found, at
several times the effort, and plans of production-200 cost the same within 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from models.group.period import construct, interleaved, tightened
from models.group.rate_bound import gaps_s, least_bound_s, pair_s
from models.group.rate_vectors import rate_vectors, rates_at
from models.problem.group_shape import GroupShape, Schedule, lower_bound_s
from planner.placement.group_state import GroupState

__all__ = ["at_best_rates", "possible_shape", "schedule_at"]

#: Relative slack of a bound against a period: round-off of sums.
_EPS: Final = 1e-11
#: Interleavings tried when a member has left.
_LEFT_ORDERS: Final = 4
#: Relative difference of mean slowdowns below which rates are not changed.
_SAME: Final = 1e-9


def possible_shape(
    shape: GroupShape, deadline_s: Sequence[float], period_s: float
) -> tuple[GroupShape, float] | None:
    """Return the shape with its rates at a period, and LB(g); None when a bound excludes it.

    None too when the rates have a common divisor: that period over the divisor is another
    candidate, and interleavings rarely find more in several of its rounds than in one.

    Parameters
    ----------
    shape : GroupShape
        The newcomer last; only its pairs are looked at. Its rates are not.
    deadline_s : sequence of float
        Longest mean iteration time allowed for each member.
    period_s : float
    """
    rates = rates_at(period_s, deadline_s)
    if math.gcd(*rates) > 1:  # a period of fewer rounds, tried by itself, run several times
        return None
    rated, most = _at(shape, rates), period_s * (1 + _EPS)
    bound = lower_bound_s(rated)
    if bound > most or (rates.count(rates[-1]) < len(rates) and not _gaps_hold(rated, most)):
        return None
    return rated, bound


def _gaps_hold(shape: GroupShape, most_s: float) -> bool:
    """Return whether the last job and each other on a node of its fit, by their gaps.

    The bound of :func:`models.group.rate_bound.pair_bound_s` for these pairs alone.
    """
    last, rates = len(shape) - 1, shape.rates
    mine = rates[last]
    for pins, own_s, other_s in (
        (shape.train_pins, shape.train_s, shape.rollout_s),
        (shape.rollout_pins, shape.rollout_s, shape.train_s),
    ):
        gaps = gaps_s(shape, other_s)
        held, ours = pins[last], (mine, own_s[last], gaps[last])
        for j in range(last):
            rate, nodes = rates[j], pins[j]
            if rate == mine or not (nodes == held or not set(held).isdisjoint(nodes)):
                continue
            theirs = rate, own_s[j], gaps[j]
            if pair_s(ours, theirs) > most_s or pair_s(theirs, ours) > most_s:
                return False
    return True


def _at(shape: GroupShape, rates: tuple[int, ...]) -> GroupShape:
    pins = shape.rollout_pins, shape.train_pins
    return GroupShape(shape.rollout_s, shape.train_s, shape.sync_s, *pins, rates, shape.lags)


def schedule_at(shape: GroupShape, bound_s: float, limit_s: float, orders: int) -> Schedule | None:
    """Return a schedule at a shape's rates, or None when none is found; ``bound_s`` is LB(g)."""
    if max(shape.rates) == 1:
        return construct(shape, limit_s=limit_s, orders=orders, refine=0)
    return interleaved(shape, bound_s, limit_s, orders)


def at_best_rates(state: GroupState, max_rate: int) -> GroupState:
    """Return a group on the same pins with rates and offsets chosen anew, none of them worse.

    Nobody's mean iteration ``C / k_j`` gets longer; the least mean slowdown found is taken, the
    fewest iterations where it is the same. The starts as they are remain valid, so there always
    is a result.
    """
    shape = state.shape()
    held = Schedule(period_s=state.period_s, starts_s=state.starts_s, bound_s=lower_bound_s(shape))
    best, rates = tightened(shape, held), state.rates
    chains = [shape.own_s(j) for j in range(len(shape))]
    least = _slowdown(best.period_s, rates, chains)
    now_s = [best.period_s / rate for rate in rates]
    options = []
    for limit, vector in rate_vectors(now_s, chains, max_rate):
        rated = _at(shape, vector)
        bound = least_bound_s(rated)
        if bound <= limit * (1 + _EPS):
            options.append((_slowdown(bound, vector, chains), limit, rated))
    options.sort(key=lambda option: option[:2])
    for bound, limit, rated in options:
        if bound > least * (1 + _SAME):
            break
        found = schedule_at(rated, lower_bound_s(rated), limit, _LEFT_ORDERS)
        if found is not None:
            slowdown = _slowdown(found.period_s, rated.rates, chains)
            fewer = slowdown <= least * (1 + _SAME) and sum(rated.rates) < sum(rates)
            if fewer or slowdown < least * (1 - _SAME):
                best, rates, least = found, rated.rates, slowdown
    return replace(state, rates=rates, period_s=best.period_s, starts_s=best.starts_s)


def _slowdown(period_s: float, rates: Sequence[int], chains_s: Sequence[float]) -> float:
    """Return the mean of mean iteration time over the time without waiting."""
    each = [period_s / (k * chain) for k, chain in zip(rates, chains_s, strict=True)]
    return sum(each) / len(each)
