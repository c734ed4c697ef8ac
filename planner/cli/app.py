"""The command line: ``planner`` with its commands, and ``plan`` for the one used most.

Commands are thin: parse, call a library function, print. Data goes to standard output, words
and progress to standard error. Whatever is slow to import is imported inside the command that
needs it, so that ``--help`` stays fast.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instances.errors import InputError, did_you_mean
from planner.cli.fleet import FleetOption, QueueOption, fleet_of
from planner.cli.gap import gap
from planner.cli.options import (
    ClusterOption,
    CoefficientsOption,
    ForceOption,
    JsonOption,
    MaxGroupSizeOption,
    MaxRateOption,
    MaxRolloutNodesOption,
    MaxTrainNodesOption,
    PackSaturatedOption,
    QuietOption,
    SeedOption,
    StrictOption,
    TieRuleOption,
    TraceOption,
    TrainScalingOption,
    cluster_of,
    print_json,
    read_jobs,
    stdout_console,
    trace_warnings,
)
from planner.cli.repack import repack as repack_now
from planner.cli.repack_options import (
    FreezeOption,
    LastingHoursOption,
    MaxMovesPerJobDayOption,
    MinGainUsdOption,
    MoveOptions,
    MovesPerJobOption,
    OracleOption,
    OverlapSecondsOption,
    PanelCommand,
    RepackRuleOption,
    RestartSecondsOption,
    ReviewHoursOption,
    repack_params,
    with_restarts,
)
from planner.cli.reproduce import profile, reproduce
from planner.cli.simulate import simulate
from planner.cli.size import size
from planner.cli.snapshot import export, snapshot
from planner.cli.sweep import sweep
from planner.output.terminal import EXIT_FAILED, Reporter, guarded

if TYPE_CHECKING:
    from instances.jobs import JobTable
    from instances.trace import Trace
    from planner.plan.planning import PlanReport

__all__ = ["app", "main", "plan_app", "plan_main"]

_SETTINGS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}

app = typer.Typer(
    name="planner",
    help="How many GPUs an RL post-training cluster must own: plan, check, generate, import.",
    no_args_is_help=True,
    **_SETTINGS,
)
plan_app = typer.Typer(name="plan", **_SETTINGS)


class Durations(StrEnum):
    """How long a co-executed job stays (design section 10)."""

    work = "work"
    wallclock = "wallclock"


class Objective(StrEnum):
    """What the placer minimises."""

    per_hour = "per-hour"
    per_iteration = "per-iteration"


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"rl-fleet-planner {version('rl-fleet-planner')}\n")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
]


@app.callback()
def _root(version: VersionOption = False) -> None:
    """How many GPUs an RL post-training cluster must own: plan, check, generate, import."""


# --- plan -------------------------------------------------------------------------------


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _warnings(trace: Trace, report: PlanReport) -> list[str]:
    """Return what a reader of the answer must know."""
    out = trace_warnings(trace.jobs, report.options.cluster)
    for convention, policy, result in report:
        peak = result.link_utilisation["peak"]
        if peak > 1:
            out.append(
                f"{policy} ({convention}): sync traffic peaks at {100 * peak:.0f} % of "
                f"{result.links} links; sync seconds assume a free link. Set [links] links."
            )
    options = report.options
    if not options.placer.skip_saturated and options.limits.max_rate == 1:
        out.append("saturated groups are packed too (--pack-saturated): not the published rule.")
    return out


@app.command("plan", cls=PanelCommand)
@plan_app.command(cls=PanelCommand)
@guarded
def plan(
    trace: TraceOption,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="weave, repack, regroup, solo, colocated, random, most-idle, gavel or swapping.",
        ),
    ] = "weave",
    baselines: Annotated[
        str, typer.Option("--baselines", metavar="A,B", help="Policies to set beside it.")
    ] = "",
    cluster: ClusterOption = None,
    durations: Annotated[
        Durations, typer.Option("--durations", help="Whose plan is written; both are shown.")
    ] = Durations.work,
    objective: Annotated[
        Objective, typer.Option("--objective", help="What placing a job minimises.")
    ] = Objective.per_hour,
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
    colocated_factor: Annotated[
        float,
        typer.Option("--colocated-factor", help="Iteration time of colocated over solo."),
    ] = 1.0,
    fleet: FleetOption = None,
    queue: QueueOption = None,
    seed: SeedOption = 0,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=1, help="Replays of policies that draw (random), from --seed on."
        ),
    ] = 5,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write plan.json, jobs.csv, timeline.csv."),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Add seconds and decision times (ms) to --json.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check every plan as it is made.")
    ] = True,
    quiet: QuietOption = False,
    version: VersionOption = False,
) -> None:
    """Replay a trace of jobs: nodes, cost, SLO, savings, and how far from least.

    One row a job: job_id, arrival_s, duration_s (or iterations), slo, rollout_s, train_s, and
    model_b or state, switch and sync columns. Costs are $/h of all nodes held, mean over time.
    """
    from instances.plan import Limits
    from planner.output.folder import require_writable
    from planner.placement.placer import PlacerParams
    from planner.plan.files import PLAN_FILES, write_plan_files
    from planner.plan.planning import plan_trace
    from planner.policies.registry import require_policy

    reporter = Reporter(quiet=quiet)
    names = _names(baselines)
    for name in (policy, *names):
        require_policy(name)
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
    repack = repack_params(moves, (policy, *names))
    owned = fleet_of(fleet, queue)
    params = PlacerParams(
        objective=objective.value,
        tie_rule=tie_rule,
        train_scaling=train_scaling,
        skip_saturated=not pack_saturated,
    )
    if out is not None:
        require_writable(out, PLAN_FILES, force=force)
    if not check:
        reporter.warn("--no-check: plans are NOT checked; do not trust these figures.")
    machines = cluster_of(cluster)
    jobs = with_restarts(moves, read_jobs(trace, machines, coefficients, strict=strict))
    with reporter.progress() as progress:
        report = plan_trace(
            jobs,
            policy=policy,
            baselines=names,
            cluster=machines,
            limits=Limits(
                max_group_size=max_group_size,
                max_rollout_nodes=max_rollout_nodes,
                max_train_nodes=max_train_nodes,
                max_rate=max_rate,
            ),
            placer=params,
            repack=repack,
            colocated_factor=colocated_factor,
            fleet=owned,
            queue="fifo" if queue is None else queue.value,
            durations=durations.value,
            seeds=range(seed, seed + seeds),
            check=check,
            progress=progress,
            clock=time.perf_counter if timings else None,
        )
    if out is not None:
        write_plan_files(report, out, force=force)
    for text in _warnings(jobs, report):
        reporter.warn(text)
    if as_json:
        from planner.plan.document import plan_document

        print_json(plan_document(report, timings=timings))
    else:
        from planner.plan.tables import print_plan

        print_plan(report, stdout_console())
    if timings and not as_json:
        reporter.note("--timings shows in --json only.")
    if out is not None:
        reporter.note(f"Wrote {', '.join(PLAN_FILES)} to {out}.")


app.command("snapshot")(snapshot)
app.command("gap", cls=PanelCommand)(gap)
app.command("repack", cls=PanelCommand)(repack_now)
app.command("size", cls=PanelCommand)(size)
app.command("simulate", cls=PanelCommand)(simulate)
app.command("sweep")(sweep)


# --- check ------------------------------------------------------------------------------


@app.command("check")
@guarded
def check(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")],
    as_json: JsonOption = False,
    most: Annotated[
        int, typer.Option("--most", min=1, help="Violations to print; all are counted.")
    ] = 20,
) -> None:
    """Check a plan against every rule of a valid plan, and re-derive its price.

    Exit code 0: valid; 1: some rule is broken; 2: not a plan file.
    """
    from instances.checker import check_plan
    from instances.plan_file import read_plan
    from planner.plan.document import check_document

    loaded = read_plan(plan)
    report = check_plan(loaded)
    if as_json:
        print_json(check_document(loaded, report, plan.name))
    else:
        from planner.plan.tables import print_check

        print_check(plan.name, loaded, report, stdout_console(), most)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


# --- generate and import ----------------------------------------------------------------


def _require_new(out: Path, *, force: bool) -> None:
    from planner.output.folder import exists

    if exists(out) and not force:
        raise InputError(f"{out} is already there. Give --force to replace it.")


def _write(jobs: JobTable, out: Path, *, force: bool, reporter: Reporter) -> None:
    from instances.trace import write_trace

    write_trace(jobs, out, force=force)
    reporter.note(f"Wrote {len(jobs)} jobs to {out}.")


@app.command("generate")
@guarded
def generate(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="production, profiles, or a tiny-* example.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Trace to write.", show_default=False)
    ],
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Number of jobs.")] = None,
    seed: SeedOption = 0,
    gangs: Annotated[
        bool, typer.Option("--gangs", help="production: phases on 1, 2 or 4 nodes.")
    ] = False,
    concurrent: Annotated[
        bool, typer.Option("--concurrent", help="production: all jobs present at once.")
    ] = False,
    kind: Annotated[
        str,
        typer.Option("--kind", help="profiles: balanced, rollout-heavy, train-heavy or mixed."),
    ] = "mixed",
    cluster: ClusterOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Generate a synthetic trace; the same seed gives the same bytes.

    Distributions and their sources: instances/generate.py and the catalogue's README.
    """
    from instances.generate import GENERATORS

    if name not in GENERATORS:
        raise InputError(
            f"Unknown generator '{name}'.{did_you_mean(name, GENERATORS)} "
            f"Known generators: {', '.join(GENERATORS)}."
        )
    _require_new(out, force=force)
    offered = {"production": {"jobs", "seed", "gangs", "concurrent", "cluster"}}
    offered["profiles"] = {"jobs", "seed", "kind", "cluster"}
    given: dict[str, Any] = {
        "jobs": jobs,
        "seed": seed or None,
        "gangs": gangs or None,
        "concurrent": concurrent or None,
        "kind": None if kind == "mixed" else kind,
        "cluster": cluster,
    }
    given = {key: value for key, value in given.items() if value is not None}
    for key in given:
        if key not in offered.get(name, set()):
            raise InputError(f"--{key} does not apply to '{name}'.")
    if "cluster" in given:
        given["cluster"] = cluster_of(cluster)
    if "jobs" in given:
        given["n_jobs"] = given.pop("jobs")
    _write(GENERATORS[name](**given), out, force=force, reporter=Reporter(quiet=quiet))


@app.command("import")
@guarded
def import_log(
    layout: Annotated[str, typer.Argument(metavar="FORMAT", help="philly or generic.")],
    log: Annotated[Path, typer.Argument(metavar="FILE", help="Arrival log (CSV).")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Trace to write.", show_default=False)
    ],
    seed: SeedOption = 0,
    hours: Annotated[
        float | None, typer.Option("--hours", help="Length of the window of arrivals, hours.")
    ] = None,
    start_h: Annotated[
        float, typer.Option("--start-h", help="Start of the window, hours into the log.")
    ] = 0.0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Keep the first so many jobs.")
    ] = None,
    min_gpus: Annotated[
        int | None,
        typer.Option(
            "--min-gpus", min=1, help="Fewest GPUs [philly: 8, generic: 1].", show_default=False
        ),
    ] = None,
    min_hours: Annotated[
        float | None,
        typer.Option(
            "--min-hours",
            min=0,
            help="Least duration, h [philly: 1, generic: 0].",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="production, mixed, balanced, ... (synthetic).")
    ] = "mixed",
    single_node: Annotated[
        bool, typer.Option("--single-node", help="One node of each kind, whatever the GPUs.")
    ] = False,
    cluster: ClusterOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn an arrival log into a trace; RL phases are drawn, and labelled synthetic.

    philly: timestamp,duration,num_gpus,gpu_time,cluster. generic: job_id, arrival_s,
    service_sec, gpu_count. GPU counts are rounded up to whole nodes.
    """
    from instances.importers import IMPORTERS

    if layout not in IMPORTERS:
        raise InputError(
            f"Unknown format '{layout}'.{did_you_mean(layout, IMPORTERS)} "
            f"Known formats: {', '.join(IMPORTERS)}."
        )
    _require_new(out, force=force)
    optional = {"min_gpus": min_gpus, "min_hours": min_hours}
    table, summary = IMPORTERS[layout](
        log,
        seed=seed,
        hours=hours,
        start_h=start_h,
        jobs=jobs,
        profile=profile,
        single_node=single_node,
        cluster=cluster_of(cluster),
        **{key: value for key, value in optional.items() if value is not None},
    )
    reporter = Reporter(quiet=quiet)
    for line in summary.lines():
        reporter.note(line)
    _write(table, out, force=force, reporter=reporter)


app.command("profile")(profile)
app.command("reproduce")(reproduce)
app.command("export")(export)


def main() -> None:
    """Run ``planner``."""
    _run(app, "planner")


def plan_main() -> None:
    """Run ``plan``, the same as ``planner plan``."""
    _run(plan_app, "plan")


def _run(application: typer.Typer, name: str) -> None:
    try:
        application(prog_name=name)
    except KeyboardInterrupt:  # before the command itself has begun
        sys.exit(130)
    finally:  # the answer is out: Ctrl-C while Python shuts down must not change the exit code
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
