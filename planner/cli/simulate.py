"""``planner simulate``: what happens to a plan at run time."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from instances.errors import InputError
from planner.cli import completion
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
    QuietOption,
    SeedOption,
    StrictOption,
    TraceOption,
    VerboseOption,
    cluster_of,
    durations_option,
    limits_of,
    names_of,
    out_option,
    policy_option,
    print_json,
    read_jobs,
    stdout_console,
    trace_warnings,
)
from planner.cli.report_options import (
    FiguresOption,
    HtmlOption,
    html_names,
    html_writers,
    refuse_figures,
)
from planner.cli.size_options import counts_of
from planner.output.report_parts import end_by_parts
from planner.output.terminal import Reporter, ending_as_interrupt, guarded

if TYPE_CHECKING:
    from planner.replay.failures import FailureParams
    from planner.simulate.drift import DriftParams
    from planner.simulate.simulating import SimulationReport

__all__ = ["simulate"]

_RUNTIME: Final = "Runtime"
_FAILURES: Final = "Failures"
_DRIFT: Final = "Drift"
#: Of a picture of one group.
_PERIODS: Final = 4


class Discipline(StrEnum):
    """Who is next on a node."""

    round_robin = "round-robin"
    fifo = "fifo"


class DriftLengths(StrEnum):
    """How phases follow drifting lengths."""

    law = "law"
    proportion = "proportion"


@guarded
def simulate(
    context: typer.Context,
    trace: TraceOption,
    policy: Annotated[str, policy_option("Whose plans are run.")] = "weave",
    durations: Annotated[
        Durations, durations_option("Of the replay; drift is always by wallclock.")
    ] = Durations.work,
    only: Annotated[
        str,
        typer.Option(
            "--only",
            autocompletion=completion.listed(completion.simulate_parts),
            metavar="A,B",
            help="Parts: runtime, failures, migration, drift (minutes).",
        ),
    ] = "runtime,failures,migration",
    cluster: ClusterOption = None,
    max_group_size: MaxGroupSizeOption = 5,
    max_rollout_nodes: MaxRolloutNodesOption = None,
    max_train_nodes: MaxTrainNodesOption = None,
    max_rate: MaxRateOption = 1,
    plan_at: Annotated[
        str,
        typer.Option(
            "--plan-at",
            autocompletion=completion.listed(completion.levels),
            metavar="A,B",
            help="Plan for rollouts of p50, p95, p99 or max tokens.",
            rich_help_panel=_RUNTIME,
        ),
    ] = "p50,p95,p99,max",
    replications: Annotated[
        int,
        typer.Option("--replications", min=1, help="Runs of each plan.", rich_help_panel=_RUNTIME),
    ] = 5,
    discipline: Annotated[
        Discipline,
        typer.Option(
            "--discipline",
            help="round-robin keeps the order of a period; fifo never idles, and promises nothing.",
            rich_help_panel=_RUNTIME,
        ),
    ] = Discipline.round_robin,
    interference: Annotated[
        float,
        typer.Option(
            "--interference",
            metavar="X",
            help="Runs on shared nodes take this share longer (published: 0.016 to 0.098).",
            rich_help_panel=_RUNTIME,
        ),
    ] = 0.0,
    lengths: Annotated[
        Path | None,
        typer.Option(
            "--lengths",
            metavar="CSV",
            help="Histogram of response lengths, in place of the guessed shape.",
            rich_help_panel=_RUNTIME,
        ),
    ] = None,
    job_mtbf_hours: Annotated[
        float | None,
        typer.Option(
            "--job-mtbf-hours",
            metavar="H",
            help="Mean hours between failures of a job. [200, a guess]",
            show_default=False,
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    node_mtbf_hours: Annotated[
        float | None,
        typer.Option(
            "--node-mtbf-hours",
            metavar="H",
            help="Mean hours between failures of a node. [1000, a guess]",
            show_default=False,
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    failures: Annotated[
        Path | None,
        typer.Option(
            "--failures",
            metavar="CSV",
            help="A list of failures instead: at_s, kind (job, rollout, train), job_id, node.",
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    checkpoints: Annotated[
        str,
        typer.Option(
            "--checkpoints",
            metavar="N,N",
            help="Iterations between checkpoints, one row each.",
            rich_help_panel=_FAILURES,
        ),
    ] = "1,5,20,50",
    restart_seconds: Annotated[
        float | None,
        typer.Option(
            "--restart-seconds",
            metavar="S",
            help="Pause after a failure, instead of column restart_s.",
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    drift_settings: Annotated[
        str,
        typer.Option(
            "--drift-settings",
            autocompletion=completion.listed(completion.drift_settings),
            metavar="A,B",
            help="none, increasing, decreasing or mixed.",
            rich_help_panel=_DRIFT,
        ),
    ] = "increasing,decreasing,mixed",
    drift_policies: Annotated[
        str,
        typer.Option(
            "--drift-policies",
            autocompletion=completion.listed(completion.drift_policies),
            metavar="A,B",
            help="weave (static), regroup (hourly), payback, resubmit, repack, random, "
            "most-idle, solo.",
            rich_help_panel=_DRIFT,
        ),
    ] = "weave,regroup,payback,resubmit",
    drift_lengths: Annotated[
        DriftLengths,
        typer.Option(
            "--drift-lengths",
            help="Phases follow the laws of lengths, or grow in proportion.",
            rich_help_panel=_DRIFT,
        ),
    ] = DriftLengths.law,
    drift_shape: Annotated[
        Path | None,
        typer.Option(
            "--drift-shape",
            metavar="CSV",
            help="Growth over a life: life_share, relative_length; else a guess.",
            rich_help_panel=_DRIFT,
        ),
    ] = None,
    gantt: Annotated[
        Path | None,
        typer.Option(
            "--gantt",
            metavar="FILE",
            help="Draw and print four periods of the fullest group as it runs (SVG, PNG or PDF).",
            rich_help_panel=_RUNTIME,
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Seeds of failures and drift, from --seed on.")
    ] = 3,
    seed: SeedOption = 0,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    out: Annotated[Path | None, out_option("Write every table as CSV, and report.html.")] = None,
    figures: FiguresOption = None,
    html: HtmlOption = True,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run plans with sampled lengths, failures, long-tail migration and drift.

    What planning for less than the worst case saves and risks, what failures cost by checkpoint
    interval, what moving the last responses of a rollout gains, what drift does to cost and SLO.

    Exit code 0: done; 1: a job cannot run, or a check failed; 2: bad input; 130: Ctrl-C, SIGTERM
    or SIGHUP (what is known by then is printed).
    """
    from planner.output.folder import require_writable
    from planner.policies.policy import PolicyOptions
    from planner.simulate.files import simulation_files, write_simulation_files
    from planner.simulate.runtime_report import Execution
    from planner.simulate.simulating import SimulationParams, simulate_trace

    reporter = Reporter(quiet=quiet, verbose=verbose)
    machines = cluster_of(cluster)
    jobs = read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    from planner.replay.failures import read_failures

    listed = () if failures is None else read_failures(failures, jobs.jobs)
    params = SimulationParams(
        parts=names_of(only),
        levels=names_of(plan_at),
        execution=Execution(
            replications=replications,
            discipline=discipline.value,
            interference=interference,
        ),
        histogram=lengths,
        failures=_failure_params(job_mtbf_hours, node_mtbf_hours, listed, restart_seconds, seed),
        checkpoints=counts_of(checkpoints, "--checkpoints"),
        drift=_drift_params(drift_lengths, drift_shape),
        drift_settings=names_of(drift_settings),
        drift_policies=names_of(drift_policies),
        seeds=seeds,
        seed=seed,
    )
    if out is not None:
        require_writable(out, (*simulation_files(params), *html_names(html=html)), force=force)
    refuse_figures(out, figures, html=html, force=force)
    if gantt is not None:
        from planner.output.pictures import require_format
        from planner.output.single_file import require_new_file

        require_format(gantt)
        require_new_file(gantt, "--gantt", force=force)
    with ending_as_interrupt(), reporter.progress(f"simulate {policy}") as progress:
        report = simulate_trace(
            jobs,
            policy=policy,
            options=PolicyOptions(
                cluster=machines,
                limits=limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
                seed=seed,
            ),
            durations=durations.value,
            params=params,
            progress=progress,
        )
    for text in trace_warnings(jobs.jobs, machines):
        reporter.warn(text)
    if as_json:
        from planner.simulate.document import simulation_document

        print_json(simulation_document(report))
    else:
        from planner.simulate.tables import print_simulation

        print_simulation(report, stdout_console())
    if out is not None:
        with reporter.step(f"write {out}"):
            more = html_writers(context, figures, html=html, simulation=report)
            written = write_simulation_files(report, out, force=force, more=more)
        reporter.note(f"Wrote {', '.join(written)} to {out}.")
    if gantt is not None and report.interrupted is None:
        _draw(report, gantt, force=force, show=not as_json, reporter=reporter)
    end_by_parts(report.failed, report.interrupted, reporter)


def _draw(
    report: SimulationReport, path: Path, *, force: bool, show: bool, reporter: Reporter
) -> None:
    """Draw the fullest group as it runs, and print it."""
    from planner.output.single_file import write_file
    from planner.simulate.runtime_gantt import run_rows, write_run
    from planner.simulate.simulating import fullest_group_run

    run = fullest_group_run(report)
    if run is None:
        reporter.warn(f"no group is held, so {path} was not drawn.")
        return
    seconds = _PERIODS * run.version.period_s
    if show:
        console = stdout_console()
        console.print(f"\nGroup {run.version.group_id} as it runs:", style="bold", markup=False)
        for row in run_rows(run, seconds, width=max(console.width - 16, 20)):
            console.print(row, markup=False, highlight=False, overflow="crop", no_wrap=True)
    write_file(path, "--gantt", lambda file: write_run(run, seconds, file), force=force)
    reporter.note(f"Wrote {path}.")


def _failure_params(
    job_mtbf_h: float | None,
    node_mtbf_h: float | None,
    listed: tuple[object, ...],
    restart_s: float | None,
    seed: int,
) -> FailureParams:
    """Return how often what fails: a list, the rates given, or both guesses."""
    from planner.replay.failures import GUESSED_JOB_MTBF_H, GUESSED_NODE_MTBF_H, FailureParams

    for option, hours in (
        ("--job-mtbf-hours", job_mtbf_h),
        ("--node-mtbf-hours", node_mtbf_h),
    ):
        if hours is not None and not 0 < hours < math.inf:
            raise InputError(f"Expected {option} > 0 and finite, got {hours:g}.")
    if restart_s is not None and not 0 <= restart_s < math.inf:
        raise InputError(f"Expected --restart-seconds >= 0 and finite, got {restart_s:g}.")
    if listed:
        if job_mtbf_h is not None or node_mtbf_h is not None:
            raise InputError("Expected --failures or mean hours between failures, got both.")
        return FailureParams(events=listed, restart_s=restart_s, seed=seed)  # type: ignore[arg-type]
    if job_mtbf_h is None and node_mtbf_h is None:
        job_mtbf_h, node_mtbf_h = GUESSED_JOB_MTBF_H, GUESSED_NODE_MTBF_H
    return FailureParams(
        job_mtbf_h=job_mtbf_h, node_mtbf_h=node_mtbf_h, restart_s=restart_s, seed=seed
    )


def _drift_params(lengths: DriftLengths, shape: Path | None) -> DriftParams:
    """Return how lengths drift."""
    from planner.simulate.drift import DriftParams
    from planner.simulate.drift_templates import DEFAULT_SHAPE, GrowthShape

    return DriftParams(
        by_law=lengths is DriftLengths.law,
        shape=DEFAULT_SHAPE if shape is None else GrowthShape.from_csv(shape),
    )
