"""``planner repack``: which running jobs to move now, and what each move earns. A dry run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instances.errors import CheckError
from planner.cli.options import (
    ForceOption,
    JsonOption,
    QuietOption,
    SeedOption,
    VerboseOption,
    out_option,
    plan_path,
    print_json,
    seconds_of,
    stdout_console,
    timings_option,
)
from planner.cli.repack_options import (
    FreezeOption,
    LastingHoursOption,
    MaxMovesPerJobDayOption,
    MinGainUsdOption,
    MoveOptions,
    OracleOption,
    OverlapSecondsOption,
    RepackRuleOption,
    RestartSecondsOption,
    repack_params,
)
from planner.cli.report_options import (
    FiguresOption,
    HtmlOption,
    given_command,
    html_names,
    page_writers,
    refuse_figures,
)
from planner.output.terminal import EXIT_INTERRUPTED, Reporter, ending_as_interrupt, guarded

if TYPE_CHECKING:
    from instances.plan import Plan
    from planner.output.folder import Writer

__all__ = ["repack"]


@guarded
def repack(
    context: typer.Context,
    plan: Annotated[
        Path,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="A plan.json: of planner snapshot, or of a replay (plan --out).",
            show_default=False,
        ),
    ],
    now: Annotated[
        bool,
        typer.Option("--now", help="The last moment with running groups; of a snapshot its own."),
    ] = False,
    at_hours: Annotated[
        float | None,
        typer.Option("--at-hours", metavar="H", help="A moment, hours from the trace's origin."),
    ] = None,
    progress: Annotated[
        Path | None,
        typer.Option(
            "--progress",
            metavar="CSV",
            help="job_id, elapsed_s, iterations[, moves_last_day][, remaining_s] of every job "
            "of a snapshot.",
        ),
    ] = None,
    moves: Annotated[
        int | None,
        typer.Option("--moves", min=0, metavar="N", help="Most moves in all proposals together."),
    ] = None,
    repack_rule: RepackRuleOption = None,
    oracle: OracleOption = None,
    lasting_hours: LastingHoursOption = None,
    max_moves_per_job_day: MaxMovesPerJobDayOption = None,
    min_gain_usd: MinGainUsdOption = None,
    overlap_seconds: OverlapSecondsOption = None,
    restart_seconds: RestartSecondsOption = None,
    freeze: FreezeOption = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="T",
            help="Of the search for moves [60s], and again of the proof of the least price [up to "
            "41 jobs 30s, beyond only the volume bound]: 90, 90s, 5m or 1.5h.",
            show_default=False,
        ),
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, out_option("Write repacked.json, moves.csv and report.html there.")
    ] = None,
    figures: FiguresOption = None,
    html: HtmlOption = True,
    force: ForceOption = False,
    as_json: JsonOption = False,
    timings: Annotated[bool, timings_option("Add the seconds taken to --json.")] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Say which running jobs to move now, and what each move earns; nothing is moved.

    Limits and prices are those of the plan. Exit code 0: done, whether a move pays or not; 1: the
    plan breaks a rule, or nothing runs at that moment; 2: bad input; 130: Ctrl-C, SIGTERM or
    SIGHUP.
    """
    from instances.plan_file import read_plan
    from planner.output.folder import require_writable
    from planner.repack.document import REPACK_FILES, repack_notes, write_repack_files
    from planner.repack.report import repack_report
    from planner.repack.running_plan import running_plan

    reporter = Reporter(quiet=quiet, verbose=verbose)
    given = MoveOptions(
        rule=repack_rule,
        oracle=oracle,
        lasting_h=lasting_hours,
        max_moves_per_job_day=max_moves_per_job_day,
        min_gain_usd=min_gain_usd,
        overlap_s=overlap_seconds,
        restart_s=restart_seconds,
        freeze=freeze,
    )
    params = repack_params(given, ("repack",))
    seconds = None if time_limit is None else seconds_of(time_limit, "--time-limit")
    if out is not None:
        require_writable(out, (*REPACK_FILES, *html_names(html=html)), force=force)
    refuse_figures(out, figures, html=html, force=force)
    path = plan_path(plan)
    with reporter.step(f"check {path.name}"):
        loaded = read_plan(path)
        _require_valid(loaded, path)
    running = running_plan(
        loaded, at_hours=at_hours, now=now, restart_s=restart_seconds, progress=progress
    )
    with ending_as_interrupt(), reporter.progress("search for moves", time_limit_s=seconds) as show:
        report = repack_report(
            running,
            params=params,
            most_moves=moves,
            seed=seed,
            time_limit_s=seconds,
            progress=show,
            clock=time.perf_counter if timings else None,
        )
    for text in repack_notes(report):
        reporter.warn(text)
    if out is not None:
        page: dict[str, Writer] = {}
        if html:
            from planner.report.moment_pages import repack_page

            with reporter.step(f"draw {out}"):
                words = given_command(context)
                page.update(
                    page_writers(repack_page(report, plan.name, _sha256(plan), words), figures)
                )
        written = write_repack_files(report, out, force=force, more=page)
    if as_json:
        from planner.repack.document import repack_document

        print_json(repack_document(report, plan.name, _sha256(plan), timings=timings))
    else:
        from planner.repack.tables import print_repack

        print_repack(report, plan.name, stdout_console())
    if timings and not as_json:
        reporter.note("--timings shows in --json only.")
    if out is not None:
        reporter.note(f"Wrote {', '.join(written)} to {out}.")
    if report.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _require_valid(plan: Plan, path: Path) -> None:
    """Refuse a plan that breaks a rule, before anything is built on it.

    Raises
    ------
    CheckError
        Naming the first broken rules.
    """
    from instances.checker import check_plan

    report = check_plan(plan)
    if report.ok:
        return
    first = "\n".join(f"- [{v.rule}] {v.message}" for v in report.violations[:3])
    n = len(report.violations)
    raise CheckError(
        f"{path.name}: NOT valid: {n} violation{'s' * (n != 1)}; planner check shows all. The "
        f"first:\n{first}"
    )


def _sha256(path: Path) -> str | None:
    """Return the digest of the plan file; ``None`` of a pipe, which is read once."""
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
