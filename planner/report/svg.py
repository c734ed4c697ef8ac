"""Figures as SVG text that stands inside a page: several of them never share an id.

Text stays text, in the font of the page. What scripts need to read values off a picture, the
places of its axes, comes with it.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from planner.output.pictures import FORMATS, drawing
from planner.report.parts import Chart, Readout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "picture_of", "readable"]

_SVG: Final = "{http://www.w3.org/2000/svg}"
_HREF: Final = "{http://www.w3.org/1999/xlink}href"
#: What neither XML nor UTF-8 can hold, and what turns the direction of the text that follows, so
#: that a reader sees another name, or another number: a job's name may hold both.
_UNREADABLE: Final = re.compile(
    "[^\t\n\r\u0020-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
#: Elements in which a space may be a word.
_WORDS: Final = {f"{_SVG}text", f"{_SVG}tspan"}
#: Numbers after each letter of a path that matplotlib writes.
_PLACES: Final = {"M": 2, "L": 2, "Q": 4, "C": 6, "z": 0}
#: Of matplotlib's SVG files.
_SVG_DPI: Final = 72
#: Significant digits of a value in the page; a reader is shown fewer.
_DIGITS: Final = 7


@dataclass(frozen=True)
class Picture:
    """A figure ready to stand in a page.

    Parameters
    ----------
    svg : str
        One ``svg`` element.
    width_pt : float
        Its width, in points, where nothing is scaled.
    readouts : tuple of dict
        For the page's script: ``box`` (left, top, right, bottom of the axes, as fractions of the
        picture), ``limits`` and ``log`` of the x axis, ``x``, ``label``, ``unit``, ``series``.
    """

    svg: str
    width_pt: float
    readouts: tuple[dict[str, Any], ...]


def readable(text: str) -> str:
    """Return a text with a replacement sign for each character that a page cannot hold."""
    return _UNREADABLE.sub("\ufffd", text)


def picture_of(chart: Chart, described_by: str) -> Picture:
    """Return the picture of a chart.

    Parameters
    ----------
    chart : Chart
        Its name sets the ids apart from those of other charts.
    described_by : str
        Id of the element with the chart's words.
    """
    text = _drawn(chart.figure)  # first: the layout is settled by drawing
    root = ET.fromstring(readable(text))
    _tidy(root)
    _add_tips(root, chart)
    _set_apart(root, f"{chart.name}--")
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {
            "viewBox": box,
            "role": "img",
            "aria-label": readable(chart.title),
            "aria-describedby": described_by,
            "focusable": "false",
        }
    )
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    return Picture(
        svg=ET.tostring(root, encoding="unicode"),
        width_pt=float(box.split()[2]),
        readouts=tuple(_place(readout, chart.name) for readout in chart.readouts),
    )


def _drawn(figure: Figure) -> str:
    import matplotlib as mpl

    text = io.StringIO()
    with drawing(), mpl.rc_context({"svg.fonttype": "none"}):
        _lay_out(figure)
        figure.savefig(text, format="svg", metadata=FORMATS["svg"])
    return text.getvalue()


def _lay_out(figure: Figure) -> None:
    """Run the layout engine of a figure, once and for all.

    ``savefig`` would draw all of it once more to do so. The engine starts from the last layout:
    another run would move the axes a little.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        return
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)  # texts are measured as they are drawn
    dpi = figure.dpi
    figure.dpi = _SVG_DPI
    engine.execute(figure)
    figure.dpi = dpi
    figure.set_layout_engine("none")


def _tidy(root: ET.Element) -> None:
    """Drop what a page does not need, or must not have: its styles hold for the whole page."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {f"{_SVG}metadata", f"{_SVG}style"}:
                parent.remove(child)
    for element in root.iter():
        spaces = len(element) or element.tag not in _WORDS
        if spaces and not (element.text or "").strip():
            element.text = None
        if not (element.tail or "").strip():
            element.tail = None
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        if "d" in element.attrib:
            element.set("d", _short_path(element.attrib["d"]))
        if element.tag == f"{_SVG}use":
            for place in ("x", "y"):
                element.set(place, _short(element.get(place, "0")))
        if "style" in element.attrib:
            element.set("style", ";".join(_declarations(element.attrib["style"])))


def _short(number: str) -> str:
    """Return a number of points to a hundredth."""
    return f"{float(number):.2f}".rstrip("0").rstrip(".")


def _short_path(path: str) -> str:
    """Return a path with places to a hundredth of a point, and steps as steps.

    A line over time goes across and up by turns: one number for each is half the text.
    """
    tokens = iter(path.split())
    parts = []
    here = ["", ""]
    for letter in tokens:
        places = [_short(next(tokens)) for _ in range(_PLACES[letter])]
        end = places[-2:]
        if letter == "L" and end[1] == here[1]:
            parts.append(f"H{end[0]}")
        elif letter == "L" and end[0] == here[0]:
            parts.append(f"V{end[1]}")
        else:
            parts.append(f"{letter}{' '.join(places)}")
        here = end or ["", ""]
    return "".join(parts)


def _declarations(style: str) -> Iterator[str]:
    """Yield the declarations of a style, but not the default font: the page's stands in."""
    for declaration in style.split(";"):
        name, _, value = declaration.partition(":")
        first = value.split(",")[0].strip().strip("'\"")
        if name.strip() != "font-family" or first != "DejaVu Sans":
            yield f"{name.strip()}:{value.strip()}"


def _add_tips(root: ET.Element, chart: Chart) -> None:
    marked = {element.get("id"): element for element in root.iter()}
    for gid, words in chart.tips.items():
        if gid not in marked:
            raise ValueError(f"Expected an artist with the gid '{gid}' (chart '{chart.name}').")
        title = ET.Element(f"{_SVG}title")
        title.text = readable(words)
        marked[gid].insert(0, title)


def _set_apart(root: ET.Element, prefix: str) -> None:
    """Start all ids and references with a prefix, and drop ids that nothing refers to."""
    used: set[str] = set()
    for element in root.iter():
        href = element.attrib.pop(_HREF, None)
        if href is not None:
            if href.startswith("#"):
                used.add(href[1:])
                href = f"#{prefix}{href[1:]}"
            element.set("href", "".join(href.split()))
        for name, value in element.attrib.items():
            if "url(#" in value:
                used.update(part.partition(")")[0] for part in value.split("url(#")[1:])
                element.set(name, value.replace("url(#", f"url(#{prefix}"))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.set("id", f"{prefix}{own}")


def _place(readout: Readout, name: str) -> dict[str, Any]:
    """Return where a readout's axes are in the drawn picture, and its values."""
    axes = readout.axes
    scale = axes.get_xscale()
    if scale not in {"linear", "log"}:
        raise ValueError(f"Expected a linear or log x axis, got {scale} (chart '{name}').")
    box = axes.get_position()
    return {
        "box": [_rounded(v) for v in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)],
        "limits": [_rounded(v) for v in axes.get_xlim()],
        "log": scale == "log",
        "label": readable(readout.x_label),
        "unit": readable(readout.x_unit),
        "x": [_rounded(x) for x in readout.x],
        "series": [
            {
                "name": readable(series.name),
                "unit": readable(series.unit),
                "steps": series.steps,
                "values": [None if v is None else _rounded(v) for v in series.values],
            }
            for series in readout.series
        ],
    }


def _rounded(value: float) -> float | int:
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() else short
