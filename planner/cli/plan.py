"""``plan``: replay a trace of jobs by a policy, beside others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from planner.cli.fleet import FleetOption, QueueOption, fleet_of
from planner.cli.options import (
    BaselinesOption,
    ClusterOption,
    CoefficientsOption,
    ColocatedFactorOption,
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
    QuietOption,
    SeedOption,
    StrictOption,
    TieRuleOption,
    TraceOption,
    TrainScalingOption,
    VerboseOption,
    VersionOption,
    cluster_of,
    durations_option,
    limits_of,
    names_of,
    out_option,
    placer_of,
    policy_option,
    print_json,
    read_jobs,
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
from planner.output.terminal import Reporter, guarded

if TYPE_CHECKING:
    from instances.trace import Trace
    from planner.plan.planning import PlanReport

__all__ = ["plan"]

_NEXT: Final = (
    "Next: planner size says what to own and what to rent, planner gap proves a nearer bound, "
    "planner report puts everything on one page."
)


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


@guarded
def plan(
    context: typer.Context,
    trace: TraceOption,
    policy: Annotated[
        str,
        policy_option(
            "weave, repack, regroup, solo, colocated, random, most-idle, gavel or swapping."
        ),
    ] = "weave",
    baselines: BaselinesOption = "",
    cluster: ClusterOption = None,
    durations: Annotated[
        Durations, durations_option("Whose plan is written; both are shown.")
    ] = Durations.work,
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
    colocated_factor: ColocatedFactorOption = 1.0,
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
        Path | None, out_option("Write plan.json, jobs.csv, timeline.csv, report.html.")
    ] = None,
    figures: FiguresOption = None,
    html: HtmlOption = True,
    force: ForceOption = False,
    as_json: JsonOption = False,
    timings: Annotated[
        bool, timings_option("Add seconds and decision times (ms) to --json.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check every plan as it is made.")
    ] = True,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    version: VersionOption = False,
) -> None:
    """Replay a trace of jobs: nodes, cost, SLO, savings, and how far from least.

    One row a job: job_id, arrival_s, duration_s (or iterations), slo, rollout_s, train_s, and
    model_b or state, switch and sync columns. Costs are $/h of all nodes held, mean over time.
    """
    from planner.output.folder import require_writable
    from planner.plan.files import PLAN_FILES, write_plan_files
    from planner.plan.planning import plan_trace
    from planner.policies.registry import require_policy

    reporter = Reporter(quiet=quiet, verbose=verbose)
    names = names_of(baselines)
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
    params = placer_of(objective, tie_rule, train_scaling, pack_saturated)
    if out is not None:
        require_writable(out, (*PLAN_FILES, *html_names(html=html)), force=force)
    refuse_figures(out, figures, html=html, force=force)
    if not check:
        reporter.warn("--no-check: plans are NOT checked; do not trust these figures.")
    machines = cluster_of(cluster)
    jobs = with_restarts(
        moves, read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    )
    with reporter.progress(f"replay by {policy}") as progress:
        report = plan_trace(
            jobs,
            policy=policy,
            baselines=names,
            cluster=machines,
            limits=limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
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
        with reporter.step(f"write {out}"):
            more = html_writers(context, figures, html=html, plan=report)
            written = write_plan_files(report, out, force=force, more=more)
    for text in _warnings(jobs, report):
        reporter.warn(text)
    if as_json:
        from planner.plan.document import plan_document

        print_json(plan_document(report, timings=timings))
    else:
        from planner.plan.tables import print_plan

        print_plan(report, stdout_console())
        reporter.note(_NEXT)
    if timings and not as_json:
        reporter.note("--timings shows in --json only.")
    if out is not None:
        reporter.note(f"Wrote {', '.join(written)} to {out}.")
