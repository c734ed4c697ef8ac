"""What ``planner simulate`` prints: one table a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from planner.output.fitting_tables import show_table, text_table
from planner.plan.tables import data_notes
from planner.replay.interval import Interval
from planner.replay.published import DIFFERS
from planner.size.words import signed_percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from planner.simulate.drift import DriftStudy
    from planner.simulate.failure_report import CheckpointRow
    from planner.simulate.runtime_report import SloRow
    from planner.simulate.simulating import SimulationReport

__all__ = [
    "DRIFT_NOTE",
    "FAILURES_NOTE",
    "MIGRATION_NOTE",
    "RUNTIME_NOTE",
    "drift_table",
    "failures_table",
    "migration_reasons",
    "migration_table",
    "print_simulation",
    "runtime_table",
    "with_half_width",
]

RUNTIME_NOTE: Final = (
    "cost of work: per iteration done, each worth its worst case, against planning at max. "
    "± is half of a 95% interval over runs."
)
FAILURES_NOTE: Final = (
    "cost ratio: over the same without failures. Checkpoints cost nothing here, so the more "
    "the better; mean times between failures are inputs (defaults are guesses)."
)
MIGRATION_NOTE: Final = (
    "Pairings are examples, not jobs of this trace; over the family: half of the range over "
    "inputs that are not published."
)
DRIFT_NOTE: Final = (
    "over regroup: total cost over that of planning everybody anew every hour, seed by seed."
)


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


def with_half_width(value: Interval, digits: int = 1) -> str:
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
    if report.runtime:
        show_table(console, runtime_table(report.runtime))
        console.print(RUNTIME_NOTE, markup=False)


def runtime_table(rows: Sequence[SloRow]) -> Table:
    """Return what planning at each level costs, and whose promise it breaks."""
    first = rows[0]
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
    for row in rows:
        table.add_row(
            row.level,
            f"{row.usd_per_hour_mean:,.2f}",
            signed_percent(-row.work_saved_share),
            with_half_width(row.slo_attainment),
            with_half_width(row.late_iterations_share, 2),
            f"{row.worst_over_deadline:.3f}",
            with_half_width(row.idle_rollout, 0),
            with_half_width(row.idle_train, 0),
        )
    return table


def _failures(report: SimulationReport, console: Console) -> None:
    if report.failures:
        show_table(console, failures_table(report.failures))
        console.print(FAILURES_NOTE, markup=False)


def failures_table(rows: Sequence[CheckpointRow]) -> Table:
    """Return what failures cost at each checkpoint interval."""
    first = rows[0].reports[0].params
    what, seeds = f"{len(first.events)} listed", len(rows[0].reports)
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
    for row in rows:
        over = row.over_seeds
        table.add_row(
            f"{row.checkpoint_iterations:,}",
            _spread(over(lambda r: r.cost_ratio)),
            with_half_width(over(lambda r: r.slo_attainment)),
            with_half_width(over(lambda r: r.availability), 2),
            f"{over(lambda r: r.lost_h).mean:,.1f}",
            f"{over(lambda r: r.restarting_h).mean:,.1f}",
            f"{over(lambda r: float(r.moves)).mean:,.0f}",
        )
    return table


def _migration(report: SimulationReport, console: Console) -> None:
    if report.migration:
        show_table(console, migration_table(report.migration))
        console.print(MIGRATION_NOTE, markup=False)
        for line in migration_reasons(report.migration):
            console.print(line, markup=False)


def migration_table(rows: Sequence[Any]) -> Table:
    """Return the gain of each pairing beside what is published."""
    table = text_table(
        "Moving the last responses of a rollout together",
        ("pairing", "throughput", "published", "verdict"),
    )
    for row in rows:
        ours = next(iter(row.ours.values()), None)
        table.add_row(
            row.item,
            "-" if ours is None else f"{_spread(ours, 2)} {row.unit}",
            row.published,
            row.verdict.partition(" ")[0],  # agrees, differs: short enough for any terminal
        )
    return table


def migration_reasons(rows: Sequence[Any]) -> tuple[str, ...]:
    """Return why gains differ from those published, where they do."""
    differing = [row.why for row in rows if row.verdict == DIFFERS and row.why]
    return tuple(f"Stated reason: {why}." for why in dict.fromkeys(differing))


def _drift(report: SimulationReport, console: Console) -> None:
    if report.drift:
        show_table(console, drift_table(report.drift))
        console.print(DRIFT_NOTE, markup=False)


def drift_table(studies: Mapping[str, DriftStudy]) -> Table:
    """Return the cost and the promises of each policy when lengths drift."""
    table = text_table(
        "Drift of lengths over a job's life (wallclock)",
        ("setting", "policy", "$/h", "over\nregroup", "SLOs met", "moves\na job", "late\ntime"),
        left=2,
    )
    for setting, study in studies.items():
        for policy in study.runs:
            ratio = (
                _spread(study.cost_ratio(policy, "regroup"), 2) if "regroup" in study.runs else "-"
            )
            table.add_row(
                setting,
                policy,
                f"{study.of(policy, lambda r: r.usd_per_hour_mean).mean:,.2f}",
                ratio,
                with_half_width(study.of(policy, lambda r: r.slo_attainment)),
                f"{study.of(policy, lambda r: r.moves / max(len(r.jobs), 1)).mean:.2f}",
                with_half_width(study.of(policy, lambda r: r.late_share), 1),
            )
    return table
