"""``planner doctor``: versions, solvers, cores, and a self-check of seconds."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

import typer

from planner.cli.options import (
    JsonOption,
    QuietOption,
    VerboseOption,
    print_json,
    stdout_console,
    timings_option,
)
from planner.output.terminal import EXIT_FAILED, Reporter, guarded

__all__ = ["doctor"]


@guarded
def doctor(
    as_json: JsonOption = False,
    timings: Annotated[bool, timings_option("Add seconds to --json.")] = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check this installation: versions, solvers, cores, and a tiny problem solved every way.

    Takes about ten seconds. Exit code 0: all is well; 1: something failed, and what to do next.
    A package that is missing and optional is a note. --verbose adds tracebacks of what failed.
    """
    from planner.first_run.doctor import Diagnosis, advice_lines, doctor_document, print_doctor
    from planner.first_run.machine import machine, packages
    from planner.first_run.self_check import self_check

    reporter = Reporter(quiet=quiet, verbose=verbose)
    if "numba" not in sys.modules:  # compiling takes up to a minute where nothing is kept yet
        os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
    with reporter.progress("Self-check") as progress:
        outcomes = self_check(clock=time.perf_counter, progress=progress)
        diagnosis = Diagnosis(machine=machine(), packages=packages(), outcomes=outcomes)
    if as_json:
        print_json(doctor_document(diagnosis, timings=timings))
    else:
        print_doctor(diagnosis, stdout_console())
    for outcome in diagnosis.outcomes:
        if outcome.details:
            reporter.detail(f"{outcome.name}: {outcome.details.rstrip()}")
    for line in advice_lines(diagnosis):
        reporter.warn(line)
    if not diagnosis.ok:
        raise typer.Exit(EXIT_FAILED)
