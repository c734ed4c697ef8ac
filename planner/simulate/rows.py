"""The tables of a simulation as rows of plain values: for files and for the document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from planner.replay.interval import Interval

if TYPE_CHECKING:
    from planner.simulate.simulating import SimulationReport

__all__ = ["TABLES", "Row", "migration_rows"]

Row = dict[str, Any]


def runtime_rows(report: SimulationReport) -> Iterator[Row]:
    """Yield one row per level planned at, the worst case last."""
    yield from (row.row for row in report.runtime or ())


def failure_rows(report: SimulationReport) -> Iterator[Row]:
    """Yield one row per checkpoint interval."""
    yield from (row.row for row in report.failures or ())


def migration_rows(report: SimulationReport) -> Iterator[Row]:
    """Yield one row per pairing."""
    for row in report.migration or ():
        ours: Interval | None = next(iter(row.ours.values()), None)
        yield {
            "item": row.item,
            "published": row.published,
            "ours": None if ours is None else ours.mean,
            "ours_low": None if ours is None else ours.low,
            "ours_high": None if ours is None else ours.high,
            "unit": row.unit,
            "verdict": row.verdict,
            "why": row.why,
        }


def drift_rows(report: SimulationReport) -> Iterator[Row]:
    """Yield one row per setting, policy and seed."""
    for study in (report.drift or {}).values():
        yield from study.rows


#: Every table, by the part it belongs to, which also names its file.
TABLES: Final[dict[str, Callable[[SimulationReport], Iterator[Row]]]] = {
    "runtime": runtime_rows,
    "failures": failure_rows,
    "migration": migration_rows,
    "drift": drift_rows,
}
