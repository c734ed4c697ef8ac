"""A mean over seeds with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from instances.errors import InputError

__all__ = ["Interval", "interval"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Mean of ``n`` values and its 95 % confidence interval.

    Attributes
    ----------
    mean : float
        Of the values.
    n : int
        How many values.
    low, high : float or None
        Student's t interval of the mean; ``None`` with fewer than two values.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    def meets(self, low: float, high: float) -> bool:
        """Whether the interval (the mean alone without one) meets ``[low, high]``."""
        mine = (
            (self.mean, self.mean)
            if self.low is None or self.high is None
            else (
                self.low,
                self.high,
            )
        )
        return mine[0] <= high and low <= mine[1]


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and its 95 % Student's t interval.

    Parameters
    ----------
    values : sequence of float
        One value per seed, independent.

    Raises
    ------
    InputError
        When there is no value.
    """
    if not len(values):
        raise InputError("Expected at least one value, got none.")
    data = np.asarray(values, dtype=np.float64)
    if data.min() == data.max():  # whose mean a sum might miss by a rounding
        mean = float(data[0])
        end = None if len(data) < 2 else mean
        return Interval(mean=mean, low=end, high=end, n=len(data))
    mean = math.fsum(data) / len(data)
    from scipy import stats

    half = float(stats.t.ppf(0.975, len(data) - 1) * data.std(ddof=1) / np.sqrt(len(data)))
    return Interval(mean=mean, low=mean - half, high=mean + half, n=len(data))
