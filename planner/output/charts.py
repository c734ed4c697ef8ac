"""What charts have in common: their size, lines and faces that differ in more than colour.

Widths suit a page on a screen and on a phone, where a figure is scaled down: panels stand one
above the other, and no text is smaller than 9 points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from planner.output.pictures import COLOURS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "LOOKS",
    "NAME_LETTERS",
    "SMALL_PT",
    "WIDTH_IN",
    "Look",
    "as_written",
    "legend_above",
    "pale",
    "panels",
    "shortened",
    "whole_numbers",
]

WIDTH_IN: Final = 7.2
#: The smallest text of a chart.
SMALL_PT: Final = 9.0
#: Names in the label of an axis are cut to so many letters; two of them fit.
NAME_LETTERS: Final = 22


class Look(NamedTuple):
    """One of several things in a chart, told apart without colours too.

    Attributes
    ----------
    colour : str
    line : str or tuple
        Style of a line.
    hatch : str
        Of a face.
    marker : str
        Of a point.
    """

    colour: str
    line: Any
    hatch: str
    marker: str


#: By rank: dark colours first, yellow never; hatches of lines, for dots are 100 times the SVG.
LOOKS: Final = (
    Look(COLOURS[4], "-", "", "o"),
    Look(COLOURS[5], "--", "///", "s"),
    Look(COLOURS[2], "-.", "\\\\\\", "^"),
    Look(COLOURS[6], ":", "|||", "D"),
    Look("#000000", (0, (5, 1, 1, 1, 1, 1)), "xxx", "v"),
    Look(COLOURS[1], (0, (3, 1, 1, 1)), "---", "P"),
    Look(COLOURS[7], (0, (1, 3)), "+++", "X"),
    Look(COLOURS[0], (0, (8, 3)), "//--", "*"),
)


def panels(
    rows: int, height_in: float, *, width_in: float = WIDTH_IN, **more: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels one above the other, each ``height_in`` tall."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, rows * height_in), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, **more)[:, 0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.4, alpha=0.6)
        axis.set_axisbelow(True)
    return figure, list(axes)


def legend_above(
    axis: Axes,
    columns: int = 3,
    *,
    first: Sequence[str] = (),
    others: Sequence[Axes] = (),
    wide: bool = False,
) -> None:
    """Name the artists above the axes, where they hide nothing.

    Parameters
    ----------
    axis : Axes
    columns : int
    first : sequence of str
        Names that come first, in their order.
    others : sequence of Axes
        Whose artists are named too, each name once.
    wide : bool
        From the left edge of the figure: beside long names of an axis there is little room.
    """
    named: dict[str, Artist] = {}
    for each in (axis, *others):
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    handles, labels = list(named.values()), list(named)
    place = {label: i for i, label in enumerate(first)}
    order = sorted(range(len(labels)), key=lambda i: place.get(labels[i], len(place)))
    look: dict[str, Any] = {
        "ncols": columns,
        "frameon": False,
        "fontsize": SMALL_PT,
        "handlelength": 3.2,
        "borderaxespad": 0.2,
        "columnspacing": 1.4,
        "numpoints": 1,
    }
    named_artists = [handles[i] for i in order], [labels[i] for i in order]
    if wide:
        figure = axis.get_figure()
        assert figure is not None  # axes of :func:`panels` have one
        figure.legend(*named_artists, loc="outside upper left", **look)
    else:
        axis.legend(*named_artists, loc="lower left", bbox_to_anchor=(0.0, 1.0), **look)


def shortened(text: str, most: int) -> str:
    """Return a name as it can be drawn: printable, and of at most so many letters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def whole_numbers(axis: Axis) -> None:
    """Mark whole numbers only: there is no half a node, and no half a job."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def pale(colour: str, share: float) -> str:
    """Return a colour mixed with white.

    Not seen through: an SVG drops the opacity of a hatched face, and its hatch would be lost.
    """
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def as_written(figure: Figure) -> Figure:
    """Show every text of a figure as it is written: a ``$`` in a name or a unit is a ``$``."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return figure
