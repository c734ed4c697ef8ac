"""A report as one HTML page: no file beside it, no request, and nothing that a name can break.

Texts are escaped by the template. Scripts run only when their hash is the one stated in the
page, and the page may load nothing at all, so a job called ``<script>`` stays a job.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, assert_never

from planner.report.parts import (
    Block,
    Chart,
    Code,
    Folded,
    Page,
    Picker,
    Rows,
    Words,
    charts_of,
)
from planner.report.svg import picture_of, readable

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.figure import Figure

__all__ = ["figures_of", "render"]

#: CSS pixels for each point of a picture's width: the most, and the least before it scrolls.
_WIDEST_PX: Final = 1.5
_NARROWEST_PX: Final = 1.1
#: A table of so many rows stays on one sheet of paper.
_SMALL_TABLE: Final = 15


def render(page: Page) -> str:
    """Return the whole page."""
    numbers = _Numbers()
    sections = [
        {
            "name": section.name,
            "title": section.title,
            "answer": section.answer,
            "blocks": _views(section.blocks, numbers),
        }
        for section in page.sections
    ]
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = _template().render(
        page=page,
        sections=sections,
        style=_file("page.css"),
        script=script,
        script_hash=digest,
        readouts=any(chart.readouts for s in page.sections for chart in charts_of(s.blocks)),
    )
    return readable(text)


def figures_of(page: Page) -> dict[str, Figure]:
    """Return the figures by the names of their charts, in reading order."""
    return {
        chart.name: chart.figure for section in page.sections for chart in charts_of(section.blocks)
    }


def _file(name: str) -> str:
    # a hash of the script is stated, and a browser reads every end of line as \n
    text = (files("planner.report") / name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    environment.filters["as_is"] = Markup
    # $/node-h is one word; a browser would break it at its hyphen
    environment.filters["unbroken"] = lambda text: text.replace("-h", "\u2011h")
    return environment.from_string(_file("page.html.j2"))


class _Numbers:
    """Counts figures and tables in reading order."""

    def __init__(self) -> None:
        self._last = {"Figure": 0, "Table": 0}

    def next(self, kind: str) -> int:
        self._last[kind] += 1
        return self._last[kind]


def _views(blocks: Iterable[Block], numbers: _Numbers) -> list[dict[str, Any]]:
    """Return the blocks as the template reads them."""
    return [_view(block, numbers) for block in blocks]


def _view(block: Block, numbers: _Numbers) -> dict[str, Any]:
    match block:
        case Chart():
            return _chart(block, numbers.next("Figure"))
        case Picker():
            number = numbers.next("Figure")
            options = [(option, _chart(chart, number)) for option, chart in block.options]
            return {"kind": "picker", "part": block, "options": options}
        case Rows():
            return _table(block, numbers.next("Table"))
        case Words():
            return {"kind": "words", "part": block}
        case Code():
            return {"kind": "code", "part": block}
        case Folded():
            return {"kind": "folded", "part": block, "blocks": _views(block.blocks, numbers)}
        case _:
            assert_never(block)


def _chart(chart: Chart, number: int) -> dict[str, Any]:
    picture = picture_of(chart, described_by=f"words-{chart.name}")
    return {
        "kind": "chart",
        "part": chart,
        "number": number,
        "svg": picture.svg,
        "readouts": picture.readouts,
        "widest_px": round(picture.width_pt * _WIDEST_PX),
        "narrowest_px": round(picture.width_pt * _NARROWEST_PX),
    }


def _table(table: Rows, number: int) -> dict[str, Any]:
    numeric = table.numeric
    if numeric is None:
        numeric = tuple(
            _is_numeric([row[i] for row in table.rows]) for i in range(len(table.header))
        )
    return {
        "kind": "table",
        "part": table,
        "number": number,
        "numeric": numeric,
        "small": len(table.rows) <= _SMALL_TABLE,
    }


def _is_numeric(cells: Iterable[str]) -> bool:
    """Whether all cells that say something start like a number, and one does."""
    telling = [cell.strip().lstrip("$€+-−–~≈<>≤≥ ") for cell in cells]
    digits = [cell[0].isdigit() for cell in telling if cell]
    return bool(digits) and all(digits)
