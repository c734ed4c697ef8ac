"""How long do jobs still stay? Fitted from the departures seen so far, never from the future.

The survival function ``S`` of a stay is the Kaplan-Meier estimate (Kaplan and Meier 1958): stays
that ended are exact, those of the jobs present are censored at their age. The mean residual life
at age ``a`` is ``m(a) = integral of S over (a, inf) / S(a)``. Beyond the longest stay or age seen
the tail is exponential with the mean of the whole sample, total time on test over departures.

While little was seen one stay of ``FIRST_STAY_H`` is counted as well: a job lasts about a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.stats import CensoredData, ecdf

__all__ = ["FIRST_STAY_H", "ResidualLife"]

FloatArray = npt.NDArray[np.float64]

#: The stay that is taken for seen before any was, hours (a guess).
FIRST_STAY_H: Final = 24.0


class ResidualLife:
    """Stays seen so far, hours."""

    def __init__(self) -> None:
        self._stays_h: list[float] = [FIRST_STAY_H]

    def saw(self, stay_h: float) -> None:
        """Take note of a stay that ended."""
        self._stays_h.append(stay_h)

    def means_h(self, ages_h: Sequence[float]) -> FloatArray:
        """Return the mean residual life of jobs present, ``(n,)`` hours, by their ages.

        Parameters
        ----------
        ages_h : sequence of float
            How long each has been there; censored stays of the fit.
        """
        ages = np.asarray(ages_h, dtype=np.float64)
        if not ages.size:
            return ages
        stays = np.array(self._stays_h)
        survival = ecdf(CensoredData(uncensored=stays, right=ages)).sf
        mean_h = (stays.sum() + ages.sum()) / len(stays)
        return _mean_residual(survival.quantiles, survival.probabilities, ages, float(mean_h))


def _mean_residual(
    times: FloatArray, survival: FloatArray, ages: FloatArray, tail_h: float
) -> FloatArray:
    """Return ``m(a)``: ``survival[i]`` holds from ``times[i]`` to the next, the tail beyond.

    Every age is one of the times, and ``S`` is above 0 there: who is present is still at risk.
    """
    starts = np.concatenate(([0.0], times))
    levels = np.concatenate(([1.0], survival))
    steps = np.append(np.diff(starts) * levels[:-1], 0.0)  # areas, the tail's apart
    # area from the end of each step on, the exponential tail included
    after = np.append(np.cumsum(steps[:0:-1])[::-1], 0.0) + levels[-1] * tail_h
    at = np.searchsorted(starts, ages, side="right") - 1
    out: FloatArray = (steps[at] + after[at]) / levels[at]
    return out
