"""What a report is made of: a page of sections, each an answer and the blocks that show it.

The parts hold words and drawn figures, no results: sections are made elsewhere, and
:mod:`planner.report.page` turns a page into HTML.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Block",
    "Chart",
    "Code",
    "Folded",
    "Page",
    "Picker",
    "Readout",
    "Rows",
    "Section",
    "Series",
    "Words",
    "charts_of",
]

#: Names are file stems and ids within the page.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


def _require_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"Expected the name of a {what} in lower-case letters, digits and single hyphens, "
            f"got '{name}'."
        )


def _require_text(text: str, what: str) -> None:
    if not text.strip():
        raise ValueError(f"Expected {what}, got none.")


def _require_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"Expected different names of {what}, got '{name}' twice.")
        seen.add(name)


@dataclass(frozen=True)
class Series:
    """What a reader reads off a chart at a place of its x axis.

    Parameters
    ----------
    name : str
        As in the chart's legend.
    values : tuple of float or None
        One for each x of the readout; None where there is nothing to read.
    unit : str, optional
        ``"$/h"`` is printed before and after the number: $452/h.
    steps : bool, optional
        True: the value holds from its x to the next. False: the nearest x is read.
    """

    name: str
    values: tuple[float | None, ...]
    unit: str = ""
    steps: bool = True

    def __post_init__(self) -> None:
        _require_text(self.name, "the name of a series")
        if any(value is not None and not math.isfinite(value) for value in self.values):
            raise ValueError(f"Expected finite values or None (series '{self.name}').")


@dataclass(frozen=True)
class Readout:
    """What can be read off one pair of axes of a chart.

    Parameters
    ----------
    axes : Axes
        Of the chart's figure; with a linear or a logarithmic x axis.
    x : tuple of float
        Ascending, in the units of the x axis.
    x_label, x_unit : str
        What x is, and its unit.
    series : tuple of Series
        Their values are aligned with ``x``.
    """

    axes: Axes
    x: tuple[float, ...]
    x_label: str
    x_unit: str
    series: tuple[Series, ...]

    def __post_init__(self) -> None:
        if not self.x or not all(map(math.isfinite, self.x)):
            raise ValueError(f"Expected one finite x or more (readout of '{self.x_label}').")
        if any(a > b for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError(f"Expected ascending x (readout of '{self.x_label}').")
        _require_unique((series.name for series in self.series), "series")
        for series in self.series:
            if len(series.values) != len(self.x):
                raise ValueError(
                    f"Expected {len(self.x)} values, got {len(series.values)} "
                    f"(series '{series.name}')."
                )


@dataclass(frozen=True)
class Chart:
    """A figure with its words.

    Parameters
    ----------
    name : str
        File stem of the picture and id within the page: lower-case letters, digits, hyphens.
    title : str
        What the figure shows, printed above it.
    figure : Figure
        Drawn within :func:`planner.output.pictures.drawing`, without a title of its own.
    alt : str
        What a reader would see, with numbers, in one to three sentences.
    caption : str, optional
        Printed below.
    readouts : tuple of Readout, optional
        At most one for each pair of axes.
    tips : mapping of str to str, optional
        From the gid of an artist to the words shown when the pointer rests on it.
    """

    name: str
    title: str
    figure: Figure
    alt: str
    caption: str = ""
    readouts: tuple[Readout, ...] = ()
    tips: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_name(self.name, "chart")
        _require_text(self.title, f"a title (chart '{self.name}')")
        _require_text(self.alt, f"words for those who cannot see it (chart '{self.name}')")
        object.__setattr__(self, "tips", MappingProxyType(dict(self.tips)))
        own = self.figure.axes
        for i, readout in enumerate(self.readouts):
            if readout.axes not in own:
                raise ValueError(f"Expected readouts of its own axes (chart '{self.name}').")
            if any(readout.axes is other.axes for other in self.readouts[:i]):
                raise ValueError(f"Expected one readout for each axes (chart '{self.name}').")


@dataclass(frozen=True)
class Picker:
    """Charts of which one is shown at a time; all of them where scripts do not run.

    Parameters
    ----------
    name : str
        Id within the page.
    label : str
        What is chosen, printed before the list.
    options : tuple of (str, Chart)
        What the list shows for a chart, and the chart; the first is shown at first.
    """

    name: str
    label: str
    options: tuple[tuple[str, Chart], ...]

    def __post_init__(self) -> None:
        _require_name(self.name, "picker")
        _require_text(self.label, f"a label (picker '{self.name}')")
        if not self.options:
            raise ValueError(f"Expected one option or more (picker '{self.name}').")
        _require_unique((option for option, _ in self.options), f"options (picker '{self.name}')")


@dataclass(frozen=True)
class Rows:
    """A table.

    Parameters
    ----------
    title : str
        Printed above.
    header : tuple of str
        One for each column, with its unit.
    rows : tuple of tuple of str
        Printed as they are; the first cell names the row.
    caption : str, optional
        Printed below.
    numeric : tuple of bool, optional
        Which columns are set flush right; by default those whose cells start like numbers.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    numeric: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        _require_text(self.title, "the title of a table")
        lengths = {len(row) for row in self.rows}
        if self.numeric is not None:
            lengths.add(len(self.numeric))
        for length in sorted(lengths - {len(self.header)}):
            raise ValueError(
                f"Expected {len(self.header)} cells, got {length} (table '{self.title}')."
            )


@dataclass(frozen=True)
class Words:
    """Paragraphs."""

    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Text to type or to copy, in a fixed-width font: a command, say."""

    text: str
    caption: str = ""


@dataclass(frozen=True)
class Folded:
    """Blocks behind a summary, shown when it is opened, and in print."""

    summary: str
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        _require_text(self.summary, "a summary")


Block = Chart | Picker | Rows | Words | Code | Folded


@dataclass(frozen=True)
class Section:
    """A question answered.

    Parameters
    ----------
    name : str
        Id within the page.
    title : str
        A few words, also in the table of contents.
    answer : str
        One sentence that is true and has the number.
    blocks : tuple of Block
        What shows it.
    """

    name: str
    title: str
    answer: str
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        _require_name(self.name, "section")
        _require_text(self.title, f"a title (section '{self.name}')")


@dataclass(frozen=True)
class Page:
    """A whole report.

    Parameters
    ----------
    title : str
        What was planned.
    answer : tuple of str
        Sentences; the first is the answer.
    sections : tuple of Section
        In reading order.
    subtitle : str, optional
        Printed below the title: the trace, say.
    """

    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]
    subtitle: str = ""

    def __post_init__(self) -> None:
        _require_text(self.title, "the title of a page")
        _require_unique((section.name for section in self.sections), "sections")
        blocks = tuple(block for section in self.sections for block in section.blocks)
        _require_unique((picker.name for picker in _pickers(blocks)), "pickers")
        _require_unique((chart.name for chart in charts_of(blocks)), "charts")


def charts_of(blocks: Iterable[Block]) -> Iterator[Chart]:
    """Yield all charts, in reading order."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Picker):
            yield from (chart for _, chart in block.options)
        elif isinstance(block, Folded):
            yield from charts_of(block.blocks)


def _pickers(blocks: Iterable[Block]) -> Iterator[Picker]:
    for block in blocks:
        if isinstance(block, Picker):
            yield block
        elif isinstance(block, Folded):
            yield from _pickers(block.blocks)
