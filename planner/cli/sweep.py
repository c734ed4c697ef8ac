"""``planner sweep``: a study of many replays, here or on a cluster, one row a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instances.errors import InputError
from planner.cli.options import (
    OUTPUT_PANEL,
    JsonOption,
    QuietOption,
    VerboseOption,
    print_json,
    stdout_console,
)
from planner.output.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Reporter,
    ending_as_interrupt,
    guarded,
)

if TYPE_CHECKING:
    from planner.sweep.expand import Run, Study
    from planner.sweep.sweeping import SweepOutcome

__all__ = ["sweep"]

_LISTED = 10


@guarded
def sweep(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY.toml", help="Traces, policies, axes and seeds.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            rich_help_panel=OUTPUT_PANEL,
            metavar="FILE",
            help="Table to write, .csv or .parquet; one that is there is gone on with.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask scheduler, such as tcp://host:8786 (extra 'cluster').",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            min=1,
            help="Processes of this machine [one per processor]; 1: this one.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and do none.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Do failed runs again.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Drop runs of another study from the table.")
    ] = False,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings",
            rich_help_panel=OUTPUT_PANEL,
            help="Write the seconds of each run to a second file.",
        ),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Replay every combination of a study's traces, policies and axis values.

    One row a run, written as it finishes. The same command goes on where an earlier one ended; a
    failed run is a row, too. Exit code 1: some run failed.
    """
    from planner.sweep.expand import read_runs
    from planner.sweep.report import failure_lines, print_sweep, sweep_document
    from planner.sweep.sweeping import sweep as do_sweep

    reporter = Reporter(quiet=quiet, verbose=verbose)
    declared = read_runs(study)
    if declared.repeated:
        reporter.note(f"Left out {declared.repeated:,} combinations that repeat another run.")
    if dry_run:
        _print_runs(declared, study, as_json=as_json)
        return
    if out is None:
        raise InputError("Expected --out FILE, a table ending in .csv or .parquet.")
    with ending_as_interrupt(), reporter.progress("sweep") as progress:
        outcome = do_sweep(
            declared,
            out,
            scheduler=scheduler,
            processes=processes,
            force=force,
            retry_failed=retry_failed,
            timings=timings,
            progress=progress,
            note=reporter.note,
        )
    if as_json:
        print_json(sweep_document(outcome, study.name, str(out)))
    else:
        print_sweep(outcome, stdout_console())
    for line in failure_lines(outcome):
        reporter.warn(line)
    _end(outcome, out, reporter)


def _end(outcome: SweepOutcome, out: Path, reporter: Reporter) -> None:
    """Say where the rows are, and leave with the code that fits."""
    total = len(outcome.study.runs)
    if outcome.interrupted:
        reporter.warn(
            f"interrupted: {len(outcome.rows):,} of {total:,} runs are in {out}. The same command "
            "goes on from there."
        )
        raise typer.Exit(EXIT_INTERRUPTED)
    kept = f", {outcome.kept:,} of them from before" if outcome.kept else ""
    reporter.note(f"{total:,} runs are in {out}{kept}.")
    if outcome.failed:
        if outcome.kept:
            reporter.note("Failed runs are done again only with --retry-failed.")
        raise typer.Exit(EXIT_FAILED)


def _words(run: Run, study: Study) -> str:
    """Return one run for the list: what it is, and the values of the study's axes."""
    from planner.sweep.report import axis_value
    from planner.sweep.run import specification

    row = specification(run, study.name, study.inputs)
    words = [f"{row['trace']}", f"{run.policy} ({run.convention})"]
    for name, value in (
        ("case", run.case if len({r.case for r in study.runs}) > 1 else None),
        ("trace seed", row["trace_seed"]),
        ("seed", run.seed),
        ("copy", run.replication),
        *((axis, axis_value(row, axis)) for axis in study.axes),
    ):
        if value is not None:
            words.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(words)


def _print_runs(declared: Study, study: Path, *, as_json: bool) -> None:
    """List what would be done."""
    from planner.plan.document import SCHEMA_VERSION
    from planner.sweep.run import specification

    if as_json:
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "command": "sweep",
                "inputs": {"study": study.name, "name": declared.name},
                "dry_run": True,
                "runs": [specification(r, declared.name, declared.inputs) for r in declared.runs],
            }
        )
        return
    lines = [f"{len(declared.runs):,} runs of study '{declared.name}':"]
    lines += [f"{run.number:>6}  {_words(run, declared)}" for run in declared.runs[:_LISTED]]
    if len(declared.runs) > _LISTED:
        lines.append(f"   ...  {len(declared.runs) - _LISTED:,} more (all with --json)")
    sys.stdout.write("\n".join(lines) + "\n")
