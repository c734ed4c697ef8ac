"""Tables that commands print, as tables of the report: one set of cells for both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.report.parts import Rows

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["rows_of"]


def rows_of(table: Table, *, title: str = "", caption: str = "") -> Rows:
    """Return a printed table as a table of the report.

    Parameters
    ----------
    table : Table
        Of plain texts.
    title : str, optional
        In place of its own.
    caption : str, optional
    """
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return Rows(
        title=title or str(table.title),
        header=tuple(_one_line(str(column.header)) for column in table.columns),
        rows=tuple(zip(*columns, strict=True)),
        caption=caption,
        numeric=tuple(column.justify == "right" for column in table.columns),
    )


def _one_line(header: str) -> str:
    """Return a header without its breaks: ``policy/`` and ``bound`` are one word."""
    return header.replace("/\n", "/").replace("\n", " ")
