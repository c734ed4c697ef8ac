"""Files of ``planner simulate --out``: one CSV a part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from planner.output.folder import Writer, csv_writer, write_files
from planner.simulate.rows import TABLES

if TYPE_CHECKING:
    from planner.simulate.simulating import SimulationParams, SimulationReport

__all__ = ["simulation_files", "write_simulation_files"]


def simulation_files(params: SimulationParams) -> tuple[str, ...]:
    """Return the names of the files that a simulation of these parts may have."""
    return tuple(f"{name}.csv" for name in TABLES if name in params.parts)


def write_simulation_files(
    report: SimulationReport,
    directory: Path,
    *,
    force: bool,
    more: Mapping[str, Writer] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write the tables that have rows, and return the names of their files.

    Files of ``more`` are written with them: all or none.

    Raises
    ------
    InputError
        When a file is in the way and ``force`` is not set, or the disk refuses.
    """
    import pandas as pd

    writers: dict[str, Writer] = {}
    for name, table in TABLES.items():
        rows = list(table(report))
        if rows:
            writers[f"{name}.csv"] = csv_writer(pd.DataFrame(rows))
    writers |= more
    write_files(directory, writers, force=force)
    return tuple(writers)
