"""``planner gap``: how far the policy is from the least cost, over a whole replay."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instances.errors import InputError
from planner.cli.options import (
    ClusterOption,
    CoefficientsOption,
    Durations,
    ForceOption,
    JsonOption,
    MaxGroupSizeOption,
    MaxRateOption,
    MaxRolloutNodesOption,
    MaxTrainNodesOption,
    Objective,
    ObjectiveOption,
    PackSaturatedOption,
    ProcessesOption,
    QuietOption,
    SeedOption,
    StrictOption,
    TieRuleOption,
    TraceOption,
    TrainScalingOption,
    VerboseOption,
    cluster_of,
    durations_option,
    limits_of,
    out_option,
    per_snapshot_option,
    placer_of,
    policy_option,
    print_json,
    read_jobs,
    seconds_of,
    stdout_console,
    timings_option,
    trace_warnings,
)
from planner.cli.repack_options import (
    FreezeOption,
    LastingHoursOption,
    MaxMovesPerJobDayOption,
    MinGainUsdOption,
    MoveOptions,
    MovesPerJobOption,
    OracleOption,
    OverlapSecondsOption,
    RepackRuleOption,
    RestartSecondsOption,
    ReviewHoursOption,
    repack_params,
    with_restarts,
)
from planner.cli.report_options import (
    FiguresOption,
    HtmlOption,
    html_names,
    html_writers,
    refuse_figures,
)
from planner.output.terminal import EXIT_INTERRUPTED, Reporter, ending_as_interrupt, guarded

if TYPE_CHECKING:
    from planner.gap.proving import GapReport

__all__ = ["gap"]


@guarded
def gap(
    context: typer.Context,
    trace: TraceOption,
    policy: Annotated[
        str, policy_option("weave, repack or solo: those whose plans are valid.")
    ] = "weave",
    durations: Annotated[
        Durations,
        durations_option(
            "wallclock: stays are fixed, the ratio holds against every policy; work: sharing "
            "stretches stays, the ratio is along the policy's own trajectory."
        ),
    ] = Durations.wallclock,
    cluster: ClusterOption = None,
    objective: ObjectiveOption = Objective.per_hour,
    tie_rule: TieRuleOption = "tightest",
    max_group_size: MaxGroupSizeOption = 5,
    max_rollout_nodes: MaxRolloutNodesOption = None,
    max_train_nodes: MaxTrainNodesOption = None,
    max_rate: MaxRateOption = 1,
    train_scaling: TrainScalingOption = False,
    pack_saturated: PackSaturatedOption = False,
    repack_rule: RepackRuleOption = None,
    oracle: OracleOption = None,
    lasting_hours: LastingHoursOption = None,
    review_hours: ReviewHoursOption = None,
    moves_per_job: MovesPerJobOption = None,
    max_moves_per_job_day: MaxMovesPerJobDayOption = None,
    min_gain_usd: MinGainUsdOption = None,
    overlap_seconds: OverlapSecondsOption = None,
    restart_seconds: RestartSecondsOption = None,
    freeze: FreezeOption = None,
    time_limit: Annotated[
        str, per_snapshot_option("90, 90s, 5m or 1.5h; then the best plan and bound count.")
    ] = "10s",
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", help="Good enough above the bound: 0.01 is 1 %."),
    ] = 0.0,
    processes: ProcessesOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="FILE", help="Store of finished snapshots: read, and added to."
        ),
    ] = None,
    worst: Annotated[int, typer.Option("--worst", min=0, help="Worst moments to show.")] = 5,
    show: Annotated[bool, typer.Option("--show", help="Show every moment.")] = False,
    seed: SeedOption = 0,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    out: Annotated[
        Path | None, out_option("Write gap.csv, worst_plan.json and report.html there.")
    ] = None,
    figures: FiguresOption = None,
    html: HtmlOption = True,
    force: ForceOption = False,
    as_json: JsonOption = False,
    timings: Annotated[bool, timings_option("Add seconds and reuse by step to --json.")] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Hold a replay against the least cost of the jobs present, at every moment.

    The gap, integrated over time, in two parts: online regret (against the same jobs placed
    anew) and heuristic loss (against the least cost). Of repack, which plans by exact search, all
    is online regret: what moves cost, and what comes of moving late or never.

    Exit code 0: done; 1: a job cannot run, or a check failed; 2: bad input; 130: Ctrl-C, SIGTERM
    or SIGHUP (what is known by then is printed).
    """
    from planner.gap.files import GAP_FILES, write_gap_files
    from planner.gap.proving import optimality_gap
    from planner.output.folder import require_writable

    reporter = Reporter(quiet=quiet, verbose=verbose)
    seconds = seconds_of(time_limit, "--time-limit-per-snapshot")
    if show and as_json:
        raise InputError("Expected one of --show and --json: the table, or the document.")
    moves = MoveOptions(
        rule=repack_rule,
        oracle=oracle,
        lasting_h=lasting_hours,
        review_h=review_hours,
        moves_per_job=moves_per_job,
        max_moves_per_job_day=max_moves_per_job_day,
        min_gain_usd=min_gain_usd,
        overlap_s=overlap_seconds,
        restart_s=restart_seconds,
        freeze=freeze,
    )
    repack = repack_params(moves, (policy,))
    params = placer_of(objective, tie_rule, train_scaling, pack_saturated)
    if out is not None:
        require_writable(out, (*GAP_FILES, *html_names(html=html)), force=force)
    refuse_figures(out, figures, html=html, force=force)
    machines = cluster_of(cluster)
    jobs = with_restarts(
        moves, read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    )
    with ending_as_interrupt(), reporter.progress(f"gap of {policy}") as progress:
        report = optimality_gap(
            jobs,
            policy=policy,
            cluster=machines,
            limits=limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
            placer=params,
            repack=repack,
            durations=durations.value,
            time_limit_per_snapshot_s=seconds,
            tolerance=tolerance,
            seed=seed,
            processes=processes,
            resume=resume,
            progress=progress,
            clock=time.perf_counter if timings else None,
        )
    _say(report, resume, reporter)
    for text in trace_warnings(jobs.jobs, machines):
        reporter.warn(text)
    if as_json:
        from planner.gap.document import gap_document

        print_json(gap_document(report, worst=worst, timings=timings))
    else:
        from planner.gap.tables import print_gap

        print_gap(report, stdout_console(), worst=worst, show=show)
    if timings and not as_json:
        reporter.note("--timings shows in --json only.")
    if out is not None:
        with reporter.step(f"write {out}"):
            more = html_writers(context, figures, html=html, gap=report)
            written = write_gap_files(report, out, force=force, more=more)
        reporter.note(f"Wrote {', '.join(written)} to {out}.")
    if report.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _say(report: GapReport, resume: Path | None, reporter: Reporter) -> None:
    """Say where the answer comes from, and what is missing."""
    from planner.gap.document import gap_notes

    if resume is not None:
        reporter.note(f"Read {report.read:,} of {report.distinct:,} snapshots from {resume}.")
    for text in gap_notes(report):
        reporter.warn(text)
