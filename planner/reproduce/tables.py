"""What ``planner reproduce`` prints on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.output.fitting_tables import bare_table
from planner.policies.replay_result import Convention
from planner.replay.published import Row

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_reproduce"]


def _ours(row: Row, convention: Convention) -> str:
    """Return mean and interval of a row under one convention, or its range over inputs."""
    found = row.ours.get(convention)
    if found is None:
        return "-"
    digits = 2 if abs(found.mean) < 10 else 1 if abs(found.mean) < 100 else 0
    mean = f"{found.mean:,.{digits}f}"
    if found.low is None or found.high is None or found.low == found.high:
        return mean
    if row.over == "inputs":
        return f"{found.low:,.{digits}f} to {found.high:,.{digits}f}"
    return f"{mean} ±{(found.high - found.low) / 2:,.{digits}f}"


def print_reproduce(rows: Sequence[Row], seeds: int, console: Console) -> None:
    """Print the table of ``planner reproduce`` and, numbered, why rows differ."""
    from planner.replay.published import AGREES, DIFFERS, NOT_COMPARED

    short = {AGREES: "agrees", DIFFERS: "differs", NOT_COMPARED: "-"}
    table = bare_table(
        f"Published figures beside ours: mean of {seeds} seeds ± half of the 95 % interval"
    )
    table.add_column("figure")
    table.add_column("published", justify="right")
    for convention in ("work", "wallclock"):
        table.add_column(f"ours,\n{convention}", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    reasons: dict[str, int] = {}
    study = ""
    for row in rows:
        if row.study != study:
            study = row.study
            table.add_row(study, style="bold")
        note = ""
        if row.why:
            note = f" ({reasons.setdefault(row.why, len(reasons) + 1)})"
        table.add_row(
            f"  {row.item}",
            f"{row.published} {row.unit}".strip(),
            _ours(row, "work"),
            _ours(row, "wallclock"),
            short[row.verdict] + note,
        )
    console.print(table)
    console.print(
        "Ours: generated to published marginals, with estimated states, switches and sync. agrees: "
        "the published value meets the interval of our mean by one convention at least (sync: "
        "within 10%); fewer seeds widen it. differs, -: for the reason given (-: cannot be "
        "compared).",
        style="dim",
        markup=False,
    )
    if any(row.over == "inputs" for row in rows):
        console.print(
            "a to b: no interval, but the least and the largest over inputs that are not "
            "published; agrees: some of them give the published value.",
            style="dim",
            markup=False,
        )
    for reason, number in reasons.items():
        console.print(f"({number}) {reason}.", markup=False)
