"""Lines of thousands of steps, thinned to what can be seen: no peak and no dip is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_STEPS", "places", "thin_steps", "values_at"]

FloatArray = npt.NDArray[np.float64]

#: Most steps of a drawn line; each is two points of its outline.
MOST_STEPS: Final = 750
#: Kept of each segment: its least, its greatest and its last step, and the first unknown one.
_KEPT: Final = 4


def thin_steps(
    x: npt.ArrayLike, y: npt.ArrayLike, most: int = MOST_STEPS
) -> tuple[FloatArray, FloatArray]:
    """Return at most ``most`` steps of a line whose ``y[i]`` holds from ``x[i]`` to the next.

    The range of x is cut into equal segments. Of each, the first step with its least value, the
    first with its greatest, the first unknown (NaN) and the last are kept, so the extremes stay,
    and each segment ends as it did.

    Parameters
    ----------
    x : array-like, (n,)
        Ascending.
    y : array-like, (n,)
        NaN where there is nothing.
    most : int
        5 or more; a line that is no longer stays as it is.

    Returns
    -------
    (ndarray, ndarray)
        Some of the steps, the first and the last among them.
    """
    places_x, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(places_x) <= most:
        return places_x, values
    edges = np.linspace(places_x[0], places_x[-1], (most - 1) // _KEPT + 1)[1:-1]
    kept = {0, len(values) - 1}
    for segment in np.split(np.arange(len(values)), np.searchsorted(places_x, edges)):
        if len(segment):
            kept.update(_telling(segment, values[segment]))
    order = sorted(kept)
    return places_x[order], values[order]


def _telling(segment: npt.NDArray[np.int64], values: FloatArray) -> set[int]:
    unknown = np.isnan(values)
    kept = {int(segment[-1])}
    if unknown.any():
        kept.add(int(segment[int(np.argmax(unknown))]))
    if not unknown.all():
        kept.add(int(segment[int(np.nanargmin(values))]))
        kept.add(int(segment[int(np.nanargmax(values))]))
    return kept


def places(lines: Sequence[FloatArray], most: int = MOST_STEPS) -> FloatArray:
    """Return x at which several lines can be read: all of theirs, or ``most`` spread evenly."""
    together = np.unique(np.concatenate(lines))
    if len(together) <= most:
        return together
    return together[np.unique(np.linspace(0, len(together) - 1, most).round().astype(np.int64))]


def values_at(x: FloatArray, y: npt.ArrayLike, at: FloatArray) -> tuple[float | None, ...]:
    """Return the values of a line at these places: None outside it, or where it has none."""
    values = np.asarray(y, dtype=np.float64)
    steps = np.searchsorted(x, at, side="right") - 1
    found = np.where((steps < 0) | (at > x[-1]), np.nan, values[np.maximum(steps, 0)])
    return tuple(None if np.isnan(value) else float(value) for value in found)
