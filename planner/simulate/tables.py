"""What ``planner simulate`` prints: one table a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.output.fitting_tables import show_table, text_table
from planner.plan.tables import data_notes
from planner.replay.interval import Interval
from planner.replay.published import DIFFERS
from planner.size.words import signed_percent

if TYPE_CHECKING:
    from rich.console import Console

    from planner.simulate.simulating import SimulationReport

__all__ = ["print_simulation"]


def print_simulation(report: SimulationReport, console: Console) -> None:
    """Print what was found."""
    jobs = len(report.trace.jobs)
    console.print(
        f"{report.trace.name}: {jobs:,} job{'s' * (jobs != 1)}, plans of policy {report.policy} "
        f"at run time ({report.convention} convention)",
        style="bold",
        markup=False,
    )
    _runtime(report, console)
    _failures(report, console)
    _migration(report, console)
    _drift(report, console)
    console.print()
    for part, why in report.left_out.items():
        console.print(f"Part {part} is left out: {why}", markup=False)
    for line in data_notes(report.trace.jobs):
        console.print(line, markup=False)


def _percent(value: Interval, digits: int = 1) -> str:
    """Return a share as a percentage, with half the width of its interval."""
    mean = f"{100 * value.mean:.{digits}f}"
    half = "" if value.low is None or value.high is None else _half(value, 100, digits)
    return f"{mean}{half}%"


def _spread(value: Interval, digits: int = 3) -> str:
    mean = f"{value.mean:.{digits}f}"
    half = "" if value.low is None or value.high is None else _half(value, 1, digits)
    return f"{mean}{half}"


def _half(value: Interval, scale: float, digits: int) -> str:
    """Return half the width of an interval as `` ±0.1``; nothing where it would be 0."""
    assert value.low is not None
    assert value.high is not None
    half = f"{scale * (value.high - value.low) / 2:.{digits}f}"
    return f" ±{half}" if float(half) else ""


def _runtime(report: SimulationReport, console: Console) -> None:
    if not report.runtime:
        return
    first = report.runtime[0]
    runs = first.replications
    table = text_table(
        f"Planned for tokens at, and run {runs} time{'s' * (runs != 1)} with sampled lengths "
        f"({first.discipline})",
        (
            "planned\nat",
            "$/h",
            "cost of\nwork",
            "SLOs met",
            "late\niterations",
            "worst over\ndeadline",
            "idle R",
            "idle T",
        ),
    )
    for row in report.runtime:
        table.add_row(
            row.level,
            f"{row.usd_per_hour_mean:,.2f}",
            signed_percent(-row.work_saved_share),
            _percent(row.slo_attainment),
            _percent(row.late_iterations_share, 2),
            f"{row.worst_over_deadline:.3f}",
            _percent(row.idle_rollout, 0),
            _percent(row.idle_train, 0),
        )
    show_table(console, table)
    console.print(
        "cost of work: per iteration done, each worth its worst case, against planning at max. "
        "± is half of a 95% interval over runs.",
        markup=False,
    )


def _failures(report: SimulationReport, console: Console) -> None:
    if not report.failures:
        return
    first = report.failures[0].reports[0].params
    what, seeds = f"{len(first.events)} listed", len(report.failures[0].reports)
    if not first.events:  # these are drawn
        parts = [
            f"a {kind} every {hours:g} h"
            for kind, hours in (("job", first.job_mtbf_h), ("node", first.node_mtbf_h))
            if hours is not None
        ]
        what = f"{' and '.join(parts)}, {seeds} seed{'s' * (seeds != 1)}"
    table = text_table(
        f"Failures ({what})",
        (
            "iterations a\ncheckpoint",
            "cost\nratio",
            "SLOs met",
            "available",
            "job-h\nredone",
            "job-h\nrestarts",
            "moves",
        ),
    )
    for row in report.failures:
        over = row.over_seeds
        table.add_row(
            f"{row.checkpoint_iterations:,}",
            _spread(over(lambda r: r.cost_ratio)),
            _percent(over(lambda r: r.slo_attainment)),
            _percent(over(lambda r: r.availability), 2),
            f"{over(lambda r: r.lost_h).mean:,.1f}",
            f"{over(lambda r: r.restarting_h).mean:,.1f}",
            f"{over(lambda r: float(r.moves)).mean:,.0f}",
        )
    show_table(console, table)
    console.print(
        "cost ratio: over the same without failures. Checkpoints cost nothing here, so the more "
        "the better; mean times between failures are inputs (defaults are guesses).",
        markup=False,
    )


def _migration(report: SimulationReport, console: Console) -> None:
    if not report.migration:
        return
    table = text_table(
        "Moving the last responses of a rollout together",
        ("pairing", "throughput", "published", "verdict"),
    )
    for row in report.migration:
        ours = next(iter(row.ours.values()), None)
        table.add_row(
            row.item,
            "-" if ours is None else f"{_spread(ours, 2)} {row.unit}",
            row.published,
            row.verdict.partition(" ")[0],  # agrees, differs: short enough for any terminal
        )
    show_table(console, table)
    console.print(
        "Pairings are examples, not jobs of this trace; over the family: half of the range over "
        "inputs that are not published.",
        markup=False,
    )
    differing = [row.why for row in report.migration if row.verdict == DIFFERS and row.why]
    for why in dict.fromkeys(differing):
        console.print(f"Stated reason: {why}.", markup=False)


def _drift(report: SimulationReport, console: Console) -> None:
    if not report.drift:
        return
    table = text_table(
        "Drift of lengths over a job's life (wallclock)",
        ("setting", "policy", "$/h", "over\nregroup", "SLOs met", "moves\na job", "late\ntime"),
        left=2,
    )
    for setting, study in report.drift.items():
        for policy in study.runs:
            ratio = (
                _spread(study.cost_ratio(policy, "regroup"), 2) if "regroup" in study.runs else "-"
            )
            table.add_row(
                setting,
                policy,
                f"{study.of(policy, lambda r: r.usd_per_hour_mean).mean:,.2f}",
                ratio,
                _percent(study.of(policy, lambda r: r.slo_attainment)),
                f"{study.of(policy, lambda r: r.moves / max(len(r.jobs), 1)).mean:.2f}",
                _percent(study.of(policy, lambda r: r.late_share), 1),
            )
    show_table(console, table)
    console.print(
        "over regroup: total cost over that of planning everybody anew every hour, seed by seed.",
        markup=False,
    )
