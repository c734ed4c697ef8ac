"""``planner init``: files to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import ForceOption, QuietOption, VerboseOption
from planner.output.terminal import Reporter, guarded

__all__ = ["init"]


@guarded
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to start in; made if it is not there.")
    ],
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write a small trace, a cluster, costs and a study to edit, and say what to run next.

    The jobs are an example typed by hand. Every key and column is explained where it stands.
    """
    from planner.first_run.project import COMMANDS, FILES, write_project

    reporter = Reporter(quiet=quiet, verbose=verbose)
    with reporter.step(f"write {directory}"):
        write_project(directory, force=force)
    reporter.note(f"Wrote {', '.join(FILES)} to {directory}.")
    reporter.note("Next:")
    there = f"./{directory}" if str(directory).startswith("-") else str(directory)
    reporter.note(f"  cd {shlex.quote(there)}")
    for command in COMMANDS:
        reporter.note(f"  {command}")
