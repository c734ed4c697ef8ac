"""``planner check``: hold a plan file against every rule, without trusting who made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import (
    JsonOption,
    QuietOption,
    VerboseOption,
    plan_path,
    print_json,
    stdout_console,
)
from planner.output.terminal import EXIT_FAILED, Reporter, guarded

__all__ = ["check"]


@guarded
def check(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")],
    as_json: JsonOption = False,
    most: Annotated[
        int, typer.Option("--most", min=1, help="Violations to print; all are counted.")
    ] = 20,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check a plan against every rule of a valid plan, and re-derive its price.

    Exit code 0: valid; 1: some rule is broken; 2: not a plan file.
    """
    from instances.checker import check_plan
    from instances.plan_file import read_plan
    from planner.plan.document import check_document

    reporter = Reporter(quiet=quiet, verbose=verbose)
    path = plan_path(plan)
    with reporter.step(f"read {path.name}"):
        loaded = read_plan(path)
    with reporter.step(f"check {path.name}"):
        report = check_plan(loaded)
    if as_json:
        print_json(check_document(loaded, report, plan.name))
    else:
        from planner.plan.tables import print_check

        print_check(plan.name, loaded, report, stdout_console(), most)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)
