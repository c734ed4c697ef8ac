"""Options of ``report.html``, and what commands with ``--out`` share to write it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from planner.cli.options import OUTPUT_PANEL

if TYPE_CHECKING:
    from planner.output.folder import Writer
    from planner.report.parts import Page

#: Options by parameter name that change no figure.
_NO_FIGURES: Final = frozenset(
    {"as_json", "figures", "force", "processes", "quiet", "resume", "show", "timings", "verbose"}
)

__all__ = [
    "FiguresOption",
    "HtmlOption",
    "PictureFormat",
    "given_command",
    "html_names",
    "html_writers",
    "page_writers",
    "refuse_figures",
]


class PictureFormat(StrEnum):
    """Formats of ``--figures``."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


FiguresOption = Annotated[
    PictureFormat | None,
    typer.Option(
        "--figures",
        rich_help_panel=OUTPUT_PANEL,
        help="With --out: write each figure of report.html as a picture, too.",
    ),
]
HtmlOption = Annotated[
    bool,
    typer.Option(
        "--html/--no-html",
        rich_help_panel=OUTPUT_PANEL,
        help="With --out: write report.html, which opens offline (some seconds).",
    ),
]


def given_command(context: typer.Context) -> tuple[str, ...]:
    """Return a command as it was typed, its options in the order of ``--help``.

    Options that change no figure, only where words and files go, are left out; the folder of
    ``--out`` is called DIR, so that equal input gives equal pages wherever they are written.
    """
    words = context.command_path.split()
    if words[0] != "planner":  # `plan` is `planner plan`
        words = ["planner", *words]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in _NO_FIGURES:
            continue
        value = "DIR" if name == "out" else context.params[name]
        values = tuple(value) if isinstance(value, tuple | list) else (value,)
        if parameter.param_type_name == "argument":
            words += map(str, values)
        elif isinstance(value, bool):
            words.append(max(parameter.opts if value else parameter.secondary_opts, key=len))
        else:
            words += [word for item in values for word in (max(parameter.opts, key=len), str(item))]
    return tuple(words)


def html_names(*, html: bool) -> tuple[str, ...]:
    """Return the names of the files, besides pictures, that ``--out`` writes for it."""
    from planner.report.files import REPORT_FILE

    return (REPORT_FILE,) if html else ()


def refuse_figures(
    out: Path | None, figures: PictureFormat | None, *, html: bool, force: bool
) -> None:
    """Refuse ``--figures`` where there is nowhere to write them, or pictures are in the way.

    Raises
    ------
    InputError
        In words.
    """
    from instances.errors import InputError
    from planner.report.files import refuse_pictures

    if figures is None:
        return
    if out is None:
        raise InputError("Expected --out DIR with --figures: that is where pictures go.")
    if not html:
        raise InputError("Expected one of --figures and --no-html: figures are the report's.")
    refuse_pictures(out, figures.value, force=force)


def html_writers(
    context: typer.Context, figures: PictureFormat | None, *, html: bool, **reports: Any
) -> Mapping[str, Writer]:
    """Return what writes ``report.html`` and its figures; nothing with ``--no-html``.

    Parameters
    ----------
    **reports
        As of :func:`planner.report.pages.page_of`.
    """
    if not html:
        return {}
    from planner.report.pages import page_of

    page = page_of(command=given_command(context), **reports)
    return page_writers(page, figures)


def page_writers(page: Page, figures: PictureFormat | None) -> Mapping[str, Writer]:
    """Return what writes a page, and its figures where a format is given."""
    from planner.report.files import report_writers

    return report_writers(page, None if figures is None else figures.value)
