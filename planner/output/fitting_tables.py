"""Tables that fit the terminal: in parts where it is narrow, so that no figure is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

__all__ = ["bare_table", "show_table", "text_table"]

#: Columns of a terminal that any table fits.
_WIDE: Final = 10_000


def text_table(title: str | None, headers: Sequence[str], *, left: int = 1) -> Table:
    """Return a table whose first ``left`` columns are text."""
    table = bare_table(title)
    for i, header in enumerate(headers):
        table.add_column(header, justify="left" if i < left else "right", no_wrap=i >= left)
    return table


def bare_table(title: object = None) -> Table:
    """Return a table without columns, as all of ours look."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(
        title=title,  # type: ignore[arg-type]
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def show_table(console: Console, table: Table) -> None:
    """Print a table; on a narrow terminal in parts, so that no figure is cut."""
    console.print()
    for part in _fitting(console, table):
        console.print(part)


def _fitting(console: Console, table: Table) -> list[Table]:
    """Return the table, or parts of its columns that fit, each with the columns of text."""
    texts = [column for column in table.columns if not column.no_wrap]
    parts: list[list[Column]] = []
    for column in table.columns[len(texts) :]:
        if parts and _fits(console, table, texts, [*parts[-1], column]):
            parts[-1].append(column)
        else:
            parts.append([column])
    tables = [_of_columns(table, [*texts, *part]) for part in parts]
    for later in tables[1:]:
        later.title = None
    return tables


def _fits(
    console: Console, table: Table, texts: Sequence[Column], figures: Sequence[Column]
) -> bool:
    """Whether figures fit as they are beside texts, which may wrap between words."""
    from rich.measure import Measurement

    wide = console.options.update(width=_WIDE)
    least = Measurement.get(console, wide, _of_columns(table, texts)).minimum
    least += Measurement.get(console, wide, _of_columns(table, figures)).maximum
    return least <= console.width


def _of_columns(table: Table, columns: Sequence[Column]) -> Table:
    part = bare_table(table.title)
    for column in columns:
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap)
    cells = [list(column.cells) for column in columns]
    for i, row in enumerate(table.rows):
        part.add_row(*(column[i] for column in cells), style=row.style)
    return part
