"""Files of ``planner size --out``: every table as CSV or Parquet, and the figures as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from instances.trace_files import optional_module
from planner.output.folder import csv_writer, write_files
from planner.output.pictures import drawing, save_picture
from planner.size.figures import FIGURES
from planner.size.params import SizeParams
from planner.size.rows import TABLES, Row

if TYPE_CHECKING:
    import pandas as pd

    from planner.size.report import SizeReport

__all__ = ["size_files", "write_size_files"]

Writer = Callable[[Path], None]


def size_files(params: SizeParams, file_format: str) -> tuple[str, ...]:
    """Return the names of the files that a report with these parts may have.

    Raises
    ------
    InputError
        For Parquet without its library.
    """
    if file_format == "parquet":
        optional_module(("pyarrow",), "--format parquet", "parquet")
    tables = [
        f"{name}.{file_format}"
        for name, table in TABLES.items()
        if table.part is None or table.part in params.parts
    ]
    figures = [name for name, (part, _) in FIGURES.items() if part is None or part in params.parts]
    return (*tables, *figures)


def write_size_files(
    report: SizeReport,
    directory: Path,
    file_format: str,
    *,
    force: bool,
    more: Mapping[str, Writer] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write the tables that have rows, and the figures that have something to show.

    Files of ``more`` are written with them: all or none.

    Returns
    -------
    tuple of str
        Names of the files written.

    Raises
    ------
    InputError
        When a file is in the way and ``force`` is not set, or the disk refuses.
    """
    writers: dict[str, Writer] = {}
    for name, table in TABLES.items():
        rows = list(table.rows(report))
        if rows:
            writers[f"{name}.{file_format}"] = _table_writer(rows, file_format)
    with drawing():
        figures = {name: make(report) for name, (_, make) in FIGURES.items()}
        for name, figure in figures.items():
            if figure is not None:
                writers[name] = lambda path, figure=figure: save_picture(figure, path)  # type: ignore[misc]
        writers |= more
        write_files(directory, writers, force=force)
    return tuple(writers)


def _table_writer(rows: list[Row], file_format: str) -> Writer:
    import pandas as pd

    frame: pd.DataFrame = pd.DataFrame(rows)
    if file_format == "csv":
        return csv_writer(frame)
    return lambda path: frame.to_parquet(path, index=False)
