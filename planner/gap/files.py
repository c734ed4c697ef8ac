"""Files of ``planner gap --out``: a row per moment, and the plan found for the worst one.

Moments without jobs that may share are there only if the policy pays for nodes in them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from instances.plan_file import write_plan_json
from planner.gap.proving import GapReport
from planner.output.folder import Writer, write_files

__all__ = ["GAP_FILES", "gap_writers", "write_gap_files"]

_ROWS, _WORST = "gap.csv", "worst_plan.json"
GAP_FILES: Final = (_ROWS, _WORST)
_COLUMNS: Final = (
    "from_s", "to_s", "jobs", "dedicated_usd_per_hour", "usd_per_hour", "replanned_usd_per_hour",
    "held_usd_per_hour", "bound_usd_per_hour", "ratio", "proved_optimal", "solved",
    "bound_method", "stopped_by",
)  # fmt: skip


def gap_writers(report: GapReport) -> dict[str, Writer]:
    """Return what writes gap.csv and, where a worst moment is solved, its plan."""
    writers: dict[str, Writer] = {_ROWS: lambda path: _write_rows(report, path)}
    solved = [row for row in report.worst(len(report.rows)) if row.solved is not None]
    plan = report.plan_at(solved[0]) if solved else None
    if plan is not None:
        writers[_WORST] = lambda path: write_plan_json(plan, path)
    return writers


def write_gap_files(
    report: GapReport,
    directory: Path,
    *,
    force: bool,
    more: Mapping[str, Writer] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write gap.csv and, where a worst moment is solved, its plan; return what was written.

    Prices of a moment leave out the dedicated nodes of async jobs, which have their own column.
    Files of ``more`` are written with them: all or none.

    Raises
    ------
    InputError
        When a file is in the way and ``force`` is not set, or the disk refuses.
    """
    writers = {**gap_writers(report), **more}
    write_files(directory, writers, force=force)
    return tuple(writers)


def _write_rows(report: GapReport, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(_COLUMNS)
        for row in report.every:
            moment, solved = row.moment, row.solved
            stopped = "" if solved is None else solved.stopped_by or ""
            lines.writerow(
                (
                    moment.from_s,
                    moment.to_s,
                    row.n_jobs,
                    moment.dedicated_usd_per_hour,
                    row.policy_usd,
                    row.replanned_usd,
                    row.held_usd,
                    row.bound_usd,
                    "" if row.ratio is None else row.ratio,
                    row.proved,
                    solved is not None or not row.n_jobs,
                    row.bound_method,
                    stopped,
                )
            )
