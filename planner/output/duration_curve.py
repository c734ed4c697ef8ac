"""The demand duration curve: for how much of the time at least so many nodes are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.output.charts import whole_numbers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes

__all__ = ["draw_duration_curve", "label_duration_axes"]


def draw_duration_curve(
    axes: Axes,
    nodes: npt.NDArray[np.int64],
    hours: npt.NDArray[np.float64],
    horizon_h: float,
    **look: Any,
) -> None:
    """Draw one curve: at x % of the time at least so many nodes are needed.

    Parameters
    ----------
    axes : Axes
    nodes, hours : ndarray, (peak,)
        Counts 1, 2, ... and for how many hours at least so many are needed.
    horizon_h : float
        Hours in all.
    **look
        Label, colour and the like of the line.
    """
    share = 100 * hours / horizon_h if len(hours) else hours
    steps = [0, *nodes.tolist()]
    axes.step([100.0, *share.tolist(), 0.0], [*steps, steps[-1]], where="post", **look)


def label_duration_axes(axes: Axes, of_what: str) -> None:
    """Set the limits and labels of axes whose curves are all drawn."""
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    whole_numbers(axes.yaxis)
    axes.set_xlabel("% of the time in which at least so many nodes are needed")
    axes.set_ylabel(of_what)
