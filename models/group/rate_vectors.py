"""Which rates a group can have: the few pairs of a period and a rate vector worth trying.

In a group with rates ``k``, job ``j`` runs ``k_j`` iterations in a period ``C`` and keeps its SLO
when ``C <= k_j D_j``. Two facts leave few candidates (FORMULATION.md):

* for given rates a longer period never hurts, so ``C = min_j k_j D_j``: the period is ``k D_i``
  of some member ``i`` and some ``k <= K``;
* at a given period fewer iterations never hurt (leave one out of a job's chain: what is left
  still is a chain), so ``k_j = ceil(C / D_j)``.

So a set of ``n`` jobs has at most ``K n`` candidates, one of them, where there is any, for
``K = 1``. Each of them has to be tried: none implies another, except that a schedule of ``(C,
k)`` run twice is one of ``(2 C, 2 k)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.group.pinnings import REL_SLACK

__all__ = ["RateVector", "rate_arrays", "rate_vectors", "rates_at"]


class RateVector(NamedTuple):
    """Iterations per period of each job, and the longest period they allow.

    Attributes
    ----------
    period_s : float
        ``C = min_j k_j D_j``, seconds.
    rates : tuple of int
        ``k_j``, one per job.
    """

    period_s: float
    rates: tuple[int, ...]


def rates_at(period_s: float, deadline_s: Sequence[float]) -> tuple[int, ...]:
    """Return the fewest iterations in a period that deadlines allow, ``k_j = ceil(C / D_j)``."""
    return tuple([math.ceil(period_s / each * (1 - REL_SLACK)) for each in deadline_s])


def rate_arrays(
    period_s: npt.NDArray[np.float64], deadline_s: npt.NDArray[np.float64] | float
) -> npt.NDArray[np.float64]:
    """Return :func:`rates_at` of arrays that broadcast together."""
    rates: npt.NDArray[np.float64] = np.ceil(period_s / deadline_s * (1 - REL_SLACK))
    return rates


def rate_vectors(
    deadline_s: Sequence[float], solo_s: Sequence[float], max_rate: int
) -> list[RateVector]:
    """Return the rate vectors worth trying, shortest period first.

    Parameters
    ----------
    deadline_s, solo_s : sequence of float
        ``D_j`` and ``T_j`` of each job, seconds.
    max_rate : int
        ``K``, the most iterations per period.

    Returns
    -------
    list of RateVector
        Empty when some chain ``k_j T_j`` is too long for every period: such jobs have no group.
        Seconds are compared with ``REL_SLACK``.
    """
    out: list[RateVector] = []
    longest = max_rate * min(deadline_s) * (1 + REL_SLACK)
    candidates = {
        k * deadline
        for deadline in set(deadline_s)
        for k in range(1, max_rate + 1)
        if k * deadline <= longest
    }
    seen: set[tuple[int, ...]] = set()
    for period in sorted(candidates):
        rates = rates_at(period, deadline_s)
        if rates in seen or max(rates) > max_rate:
            continue
        seen.add(rates)
        exact = min([k * each for k, each in zip(rates, deadline_s, strict=True)])
        most = exact * (1 + REL_SLACK)
        if all(k * each <= most for k, each in zip(rates, solo_s, strict=True)):
            out.append(RateVector(exact, rates))
    return out
