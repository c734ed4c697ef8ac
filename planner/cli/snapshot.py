"""``planner snapshot`` and ``planner export``: the least-cost plan of one moment, as a question."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from instances.errors import InputError
from planner.cli import completion
from planner.cli.options import (
    ClusterOption,
    CoefficientsOption,
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
    limits_of,
    out_file_option,
    out_option,
    print_json,
    read_jobs,
    seconds_of,
    stdout_console,
    timings_option,
    trace_warnings,
)
from planner.cli.report_options import (
    FiguresOption,
    HtmlOption,
    given_command,
    html_names,
    page_writers,
    refuse_figures,
)
from planner.output.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Reporter,
    ending_as_interrupt,
    guarded,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.output.folder import Writer
    from planner.replay.moment import Selection
    from planner.snapshot.solving import SnapshotReport

__all__ = ["export", "snapshot"]

_PLAN_FILE: Final = "plan.json"

PeakOption = Annotated[
    bool,
    typer.Option("--peak", help="The earliest moment with the most jobs present (default)."),
]
AtHoursOption = Annotated[
    float | None,
    typer.Option("--at-hours", metavar="H", help="A moment, hours from the trace's origin."),
]
AllJobsOption = Annotated[
    bool, typer.Option("--all-jobs", help="All jobs of the trace, as if present at once.")
]
MaxRolloutTotalOption = Annotated[
    int | None,
    typer.Option("--max-rollout-nodes-total", min=0, help="Most rollout nodes of all groups."),
]
MaxTrainTotalOption = Annotated[
    int | None,
    typer.Option("--max-train-nodes-total", min=0, help="Most train nodes of all groups."),
]


def _selection(peak: bool, at_hours: float | None, all_jobs: bool) -> Selection:
    from planner.replay.moment import Selection

    given = [
        name
        for name, yes in (
            ("--peak", peak),
            ("--at-hours", at_hours is not None),
            ("--all-jobs", all_jobs),
        )
        if yes
    ]
    if len(given) > 1:
        raise InputError(f"Expected one of --peak, --at-hours, --all-jobs, got {', '.join(given)}.")
    if at_hours is not None:
        return Selection.at(at_hours)
    return Selection.all_jobs() if all_jobs else Selection.peak()


# --- snapshot -------------------------------------------------------------------------------------


@guarded
def snapshot(
    context: typer.Context,
    trace: TraceOption,
    peak: PeakOption = False,
    at_hours: AtHoursOption = None,
    all_jobs: AllJobsOption = False,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            autocompletion=completion.methods,
            help="auto (by size); exhaustive, milp, cpsat and set-partition prove the same least "
            "cost; column-generation and local-search take any size and tell how far from it.",
        ),
    ] = "auto",
    cluster: ClusterOption = None,
    max_group_size: MaxGroupSizeOption = 5,
    max_rollout_nodes: MaxRolloutNodesOption = None,
    max_train_nodes: MaxTrainNodesOption = None,
    max_rate: MaxRateOption = 1,
    max_rollout_nodes_total: MaxRolloutTotalOption = None,
    max_train_nodes_total: MaxTrainTotalOption = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="T",
            help="90, 90s, 5m or 1.5h; then the best plan held is printed, as at Ctrl-C.",
        ),
    ] = None,
    seed: SeedOption = 0,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    out: Annotated[Path | None, out_option("Write plan.json and report.html.")] = None,
    figures: FiguresOption = None,
    html: HtmlOption = True,
    gantt: Annotated[
        Path | None,
        typer.Option("--gantt", metavar="FILE", help="Draw a group: .svg, .png or .pdf."),
    ] = None,
    gantt_group: Annotated[
        str | None,
        typer.Option(
            "--gantt-group", metavar="ID", help="Group to draw, such as g2 [the largest]."
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    timings: Annotated[bool, timings_option("Add seconds by step to --json.")] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Find the least-cost plan of the jobs present at one moment, and prove it.

    A job is present from arrival_s until arrival_s + duration_s. Exit code 0: a plan is held;
    1: none exists, or none was found; 2: bad input; 130: Ctrl-C, SIGTERM or SIGHUP (the plan and
    the bound held are printed).
    """
    from models.problem.snapshot import FleetCaps
    from planner.output.folder import require_writable
    from planner.snapshot.solving import require_method, solve_snapshot

    reporter = Reporter(quiet=quiet, verbose=verbose)
    select = _selection(peak, at_hours, all_jobs)
    require_method(method, "--method")
    seconds = None if time_limit is None else seconds_of(time_limit, "--time-limit")
    if out is not None:
        require_writable(out, (_PLAN_FILE, *html_names(html=html)), force=force)
    refuse_figures(out, figures, html=html, force=force)
    _require_gantt(gantt, gantt_group, force=force)
    machines = cluster_of(cluster)
    jobs = read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    with (
        ending_as_interrupt(),
        reporter.progress(f"method {method}", time_limit_s=seconds) as progress,
    ):
        report = solve_snapshot(
            jobs,
            select=select,
            method=method,
            cluster=machines,
            limits=limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
            caps=FleetCaps(
                max_rollout_nodes_total=max_rollout_nodes_total,
                max_train_nodes_total=max_train_nodes_total,
            ),
            time_limit_s=seconds,
            seed=seed,
            progress=progress,
            clock=time.perf_counter if timings else None,
        )
    solver = report.result.solver
    with_what = "our own code" if solver is None else f"{solver.name}, {solver.version}"
    reporter.detail(f"Method {report.result.method}: {with_what}.")
    for text in (*trace_warnings(jobs.jobs, machines), *_warnings(report)):
        reporter.warn(text)
    if out is not None:
        page: dict[str, Writer] = {}
        if html and report.plan is not None:
            from planner.report.moment_pages import snapshot_page

            with reporter.step(f"draw {out}"):
                page.update(page_writers(snapshot_page(report, given_command(context)), figures))
        _write_plan(report, out, page, force=force, reporter=reporter)
    if as_json:
        from planner.snapshot.document import snapshot_document

        print_json(snapshot_document(report, timings=timings))
    else:
        from planner.snapshot.tables import print_snapshot

        print_snapshot(report, stdout_console())
    if timings and not as_json:
        reporter.note("--timings shows in --json only.")
    if gantt is not None:
        _draw(report, gantt, gantt_group, force=force, reporter=reporter)
    if report.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if report.plan is None:
        raise typer.Exit(EXIT_FAILED)


def _warnings(report: SnapshotReport) -> list[str]:
    """Return what a reader of the answer must know."""
    out = list(report.notes)
    used = report.link_utilisation
    if used is not None and used > 1:
        out.append(
            f"sync traffic is {100 * used:.0f} % of {report.links} links; sync seconds assume a "
            "free link. Set [links] links."
        )
    return out


def _write_plan(
    report: SnapshotReport,
    out: Path,
    page: Mapping[str, Writer],
    *,
    force: bool,
    reporter: Reporter,
) -> None:
    from instances.plan_file import write_plan_json
    from planner.output.folder import write_files

    plan = report.plan
    if plan is None:
        reporter.warn(f"no plan is held, so nothing was written to {out}.")
        return
    files = {_PLAN_FILE: lambda path: write_plan_json(plan, path), **page}
    write_files(out, files, force=force)
    reporter.note(f"Wrote {', '.join(files)} to {out}.")


def _require_gantt(gantt: Path | None, group: str | None, *, force: bool) -> None:
    """Refuse what cannot be drawn, before the work."""
    if gantt is None:
        if group is not None:
            raise InputError(f"Expected --gantt with --gantt-group {group}.")
        return
    from planner.output.pictures import require_format
    from planner.output.single_file import require_new_file

    require_format(gantt)
    require_new_file(gantt, "--gantt", force=force)
    if group is not None and not re.fullmatch(r"g[1-9][0-9]*", group):
        raise InputError(f"Expected --gantt-group such as g1, got '{group}'.")


def _draw(
    report: SnapshotReport, path: Path, group_id: str | None, *, force: bool, reporter: Reporter
) -> None:
    """Draw one group; the plan itself is printed by then."""
    if report.plan is None or not report.plan.groups:
        reporter.warn(f"no group is held, so {path} was not drawn.")
        return
    from planner.output.single_file import write_file
    from planner.snapshot.gantt import choose_group, write_gantt

    group = choose_group(report.plan, group_id)
    write_file(
        path,
        "--gantt",
        lambda temporary: write_gantt(group, report.jobs, report.cluster, temporary),
        force=force,
    )
    reporter.note(f"Drew group {group.group_id} to {path}.")


# --- export ---------------------------------------------------------------------------------------


@guarded
def export(
    trace: TraceOption,
    out: Annotated[Path, out_file_option("Model file to write.")],
    layout: Annotated[
        str, typer.Option("--format", help="mps or lp [from the name of --out].", metavar="F")
    ] = "",
    peak: PeakOption = False,
    at_hours: AtHoursOption = None,
    all_jobs: AllJobsOption = False,
    cluster: ClusterOption = None,
    max_group_size: MaxGroupSizeOption = 5,
    max_rollout_nodes: MaxRolloutNodesOption = None,
    max_train_nodes: MaxTrainNodesOption = None,
    max_rate: MaxRateOption = 1,
    max_rollout_nodes_total: MaxRolloutTotalOption = None,
    max_train_nodes_total: MaxTrainTotalOption = None,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write the least-cost problem of one moment as a MILP, for any solver.

    The same problem as planner snapshot solves: the optimum of the file is its $/h. Names in
    the file are explained in models/exact/milp.py.
    """
    from instances.errors import InfeasibleError
    from models.exact.milp import MOST_JOBS, build, write
    from models.problem.snapshot import FleetCaps
    from planner.output.single_file import require_new_file, write_file
    from planner.replay.moment import problem_of

    reporter = Reporter(quiet=quiet, verbose=verbose)
    select = _selection(peak, at_hours, all_jobs)
    kind = _layout(layout, out)
    require_new_file(out, "--out", force=force)
    machines = cluster_of(cluster)
    jobs = read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    problem = problem_of(
        jobs,
        select,
        machines,
        limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
        FleetCaps(
            max_rollout_nodes_total=max_rollout_nodes_total,
            max_train_nodes_total=max_train_nodes_total,
        ),
    )
    conflict = problem.overdrawn()
    if conflict is not None:
        raise InfeasibleError(conflict.message)
    for text in trace_warnings(jobs.jobs, machines):
        reporter.warn(text)
    if problem.dedicated:
        held = problem.dedicated_nodes
        reporter.warn(
            f"{len(problem.dedicated)} async jobs hold {held['rollout']} + {held['train']} "
            "dedicated nodes, which are not in the model: its cost is less their price, its "
            "caps less their number."
        )
    if len(problem.snapshot) > MOST_JOBS:
        raise InputError(
            f"Expected at most {MOST_JOBS} jobs in a model file, got "
            f"{len(problem.snapshot):,}. Choose another moment, or let planner snapshot solve it."
        )
    model = build(problem.snapshot)
    write_file(out, "--out", lambda path: write(problem.snapshot, path, kind), force=force)
    reporter.note(
        f"Wrote {out}: {len(problem.snapshot)} jobs, {model.nconstraints():,} rows, "
        f"{model.nvariables():,} columns."
    )


def _layout(name: str, out: Path) -> Literal["mps", "lp"]:
    """Return the format asked for, or else the one that the file's name ends in."""
    wanted = name or out.suffix.removeprefix(".").lower()
    if wanted == "mps":
        return "mps"
    if wanted == "lp":
        return "lp"
    if name:
        raise InputError(f"Expected --format mps or lp, got '{name}'.")
    raise InputError(f"Expected --out to end in .mps or .lp, or --format, got '{out.name}'.")
