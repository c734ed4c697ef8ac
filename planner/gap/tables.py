"""What ``planner gap`` prints: the gap in sentences, by number of jobs, and the worst moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from models.problem.snapshot import FleetCaps
from planner.gap.document import WITHIN
from planner.gap.proving import GapReport
from planner.gap.rows import GapRow, GapTotals
from planner.output.fitting_tables import bare_table
from planner.plan.tables import data_notes, moves_sentence
from planner.snapshot.tables import many, rounded_up, scope_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["gap_legend", "gap_lines", "gap_table", "moments_table", "print_gap"]

_HOUR_S: Final = 3600.0
_LEGEND_MOVES: Final = (
    "policy: what it pays; again: exact search from scratch, so the plan held; held: the cheapest "
    "plan known; bound: no valid plan costs less ($/h, nodes of async jobs left out). Ratios: "
    "policy/bound = regret (policy/again) x loss (again/held) x rest (held/bound)."
)
_LEGEND: Final = (
    "policy: what it pays; again: it places the same jobs from scratch; held: the cheapest plan "
    "known; bound: no valid plan costs less ($/h, nodes of async jobs left out). Ratios: policy/"
    "bound = regret (policy/again) x loss (again/held) x rest (held/bound)."
)


def _times(ratio: float | None) -> str:
    """Return a ratio with three decimals."""
    return "-" if ratio is None else f"{ratio:.3f}"


# --- sentences ------------------------------------------------------------------------------------


def _cost(report: GapReport) -> str:
    mean, totals = report.mean_usd_per_hour, report.totals
    present = "jobs present at each moment"
    if _unpaused(report):
        present = "jobs that would be present at each moment without pauses"
    return (
        f"{report.policy} pays ${mean(totals.policy_usd):,.2f}/h on average; no valid plan of the "
        f"{present} costs less than ${mean(totals.bound_usd):,.2f}/h, "
        f"{scope_words(report.replayed.limits, FleetCaps())}."
    )


def _unpaused(report: GapReport) -> bool:
    """Return whether moments are those of the trace without the pauses that the policy makes."""
    return report.convention == "wallclock" and not report.result.pins_fixed


def _moves(report: GapReport) -> Iterator[str]:
    """Yield how many jobs were moved, and what is paid beyond the bound's moments for it."""
    if report.result.pins_fixed:
        return
    yield moves_sentence(report.result)
    late = GapTotals.of(report.late)
    if late.policy_usd:
        yield (
            f"${late.policy_usd:,.2f} of what it pays falls in {late.hours:,.2f} h in which nobody "
            "needs a node: jobs kept there by pauses, or nodes held for an overlap."
        )


def _gap(report: GapReport) -> Iterator[str]:
    """Yield the ratio, whom it holds against, and its parts."""
    totals = report.totals
    if totals.ratio is None:
        yield "No jobs that may share nodes, or nothing to pay: no ratio."
        return
    ratio = rounded_up(totals.ratio)
    if _unpaused(report):
        yield (
            f"Integrated ratio: {ratio} x the bound. Pauses lengthen stays; the bound is that of "
            "the stays without them, so it holds against every policy whose plans are valid, "
            "those that move jobs and those that do not."
        )
    elif report.convention == "wallclock":
        yield (
            f"Integrated ratio: {ratio} x the bound. Stays are fixed, so every policy "
            "whose plans are valid meets the same moments, and the same bound."
        )
    else:
        yield (
            f"Ratio along its own trajectory: {ratio} x the bound. Sharing stretches "
            "stays, so another policy meets other moments: no bound on what it may save."
        )
    if report.n_unsolved:
        yield (
            f"Ended early: {report.n_unsolved:,} of {many(len(report.rows), 'moment')} were not "
            "looked at. What they cost counts as placed anew and as held, so the parts of the gap "
            "are not known yet."
        )
        return
    if not report.result.pins_fixed:
        yield (
            f"Of it, online regret {_times(totals.online_regret)} (against the cheapest plan "
            "known, anew at every moment: moves made late or never, and what moves cost), "
            f"unproved rest {_times(totals.unproved_rest)}."
        )
        return
    yield (
        f"Of it, online regret {_times(totals.online_regret)} (against the same jobs placed anew), "
        f"heuristic loss {_times(totals.heuristic_loss)} (placed anew against the cheapest plan "
        f"known), unproved rest {_times(totals.unproved_rest)}."
    )


def _proofs(report: GapReport) -> Iterator[str]:
    """Yield how much is proved."""
    n = len(report.rows)
    if not n:
        return
    proved, near = report.n_proved, report.n_within(WITHIN)
    text = f"{many(n, 'moment')}, {many(report.distinct, 'different set')} of jobs: "
    if proved == n:
        yield f"{text}the optimum of every one is proved."
        return
    text += f"{proved:,} proved optimal, {near:,} within {100 * WITHIN:g}% of their bound"
    if report.worst_open is not None and report.worst_open > 0:
        text += f", the worst within {rounded_up(report.worst_open)} x"
    yield f"{text}."


def gap_lines(report: GapReport) -> Iterator[str]:
    """Yield the answer in sentences: what is paid and proved, the ratio and its parts."""
    yield _cost(report)
    for lines in (_gap, _proofs, _moves, _apart):
        yield from lines(report)


def gap_legend(report: GapReport) -> str:
    """Return what the columns of the tables are."""
    return _LEGEND if report.result.pins_fixed else _LEGEND_MOVES


def _apart(report: GapReport) -> Iterator[str]:
    n = len(report.trace.jobs.where_mode("async"))
    if n:
        usd = report.result.dedicated_usd_total / report.result.horizon_h
        yield (
            f"{many(n, 'async job')} hold{'s' * (n == 1)} dedicated nodes for ${usd:,.2f}/h on "
            "average: in $/h above, not in ratios."
        )


def print_gap(report: GapReport, console: Console, *, worst: int = 5, show: bool = False) -> None:
    """Print the gap, its parts by number of jobs, and the worst moments (or all)."""
    console.print(
        f"{report.trace.name}: {many(len(report.trace.jobs), 'job')} over "
        f"{report.result.horizon_h:,.1f} h, policy {report.policy} ({report.convention} "
        "convention)",
        style="bold",
        markup=False,
    )
    for line in gap_lines(report):
        console.print(line, markup=False)
    if report.rows:
        console.print(gap_table(report))
        rows = report.every if show else report.worst(worst)
        if rows:
            title = "Every moment" if show else "Worst moments"
            console.print(moments_table(rows, title))
        console.print(gap_legend(report), style="dim", markup=False)
    for note in data_notes(report.trace.jobs):
        console.print(note, style="dim", markup=False)


# --- tables ---------------------------------------------------------------------------------------


def _table(title: str, headers: Sequence[str]) -> Table:

    table = bare_table(title)
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def gap_table(report: GapReport) -> Table:
    """Return the gap by number of jobs present."""
    headers = ("jobs", "hours", "policy\n$/h", "bound\n$/h", "policy/\nbound", "regret", "loss",
               "rest")  # fmt: skip
    table = _table("By jobs present", headers)
    for least, most, part in report.by_jobs():
        table.add_row(
            f"{least}" if least == most else f"{least}-{most}",
            f"{part.hours:,.1f}",
            f"{part.policy_usd / part.hours:,.1f}",
            f"{part.bound_usd / part.hours:,.1f}",
            _times(part.ratio),
            _times(part.online_regret),
            _times(part.heuristic_loss),
            _times(part.unproved_rest),
        )
    return table


def moments_table(rows: Sequence[GapRow], title: str, *, start_s: float = 0.0) -> Table:
    """Return moments with their four prices; hours count from ``start_s``."""
    headers = ("from\nh", "for\nh", "jobs", "policy\n$/h", "again\n$/h", "held\n$/h", "bound\n$/h",
               "policy/\nbound", "")  # fmt: skip
    table = _table(title, headers)
    for row in rows:
        table.add_row(
            f"{(row.moment.from_s - start_s) / _HOUR_S:,.2f}",
            f"{row.moment.hours:,.2f}",
            f"{row.n_jobs}",
            f"{row.policy_usd:,.2f}",
            f"{row.replanned_usd:,.2f}",
            f"{row.held_usd:,.2f}",
            f"{row.bound_usd:,.2f}",
            _times(row.ratio),
            "proved" if row.proved and row.n_jobs else "open" if row.n_jobs else "nobody",
        )
    return table
