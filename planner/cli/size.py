"""``planner size``: how many nodes of each pool to own, to rent, at what price, and why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.fleet import Queue, node_counts
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
    names_of,
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
from planner.cli.report_options import (
    FiguresOption,
    HtmlOption,
    html_names,
    html_writers,
    refuse_figures,
)
from planner.cli.size_options import (
    CHANGES_PANEL,
    BlockHoursOption,
    Bursts,
    BurstsOption,
    ConfidenceOption,
    CostsOption,
    CoverageOption,
    DetailsOption,
    DramOption,
    FormatOption,
    GroupSizesOption,
    GrowthOption,
    GrowthYearsOption,
    LadderOption,
    LinkGbpsOption,
    LinksOption,
    MaxFleetOption,
    MaxWaitOption,
    MomentsOption,
    NearOption,
    OnlyOption,
    PerfectOption,
    PerfectSystem,
    PlanAtOption,
    PriceRatiosOption,
    ReplicationsOption,
    SamplesOption,
    SkipOption,
    SloScalesOption,
    SwitchesOption,
    SyncKindsOption,
    TableFormat,
    WaitShareOption,
    WarmUpOption,
    costs_of,
    counts_of,
    growth_years_of,
    numbers_of,
    parts_of,
    percents_of,
    ratios_of,
    wait_share_of,
)
from planner.output.report_parts import end_by_parts
from planner.output.terminal import (
    Reporter,
    ending_as_interrupt,
    guarded,
)

__all__ = ["size"]


@guarded
def size(
    context: typer.Context,
    trace: TraceOption,
    policy: Annotated[str, policy_option("Whose fleet is sized: weave, solo, ...")] = "weave",
    baselines: BaselinesOption = "repack,solo,colocated",
    durations: Annotated[
        Durations, durations_option("Of the answer; demand is shown under both.")
    ] = Durations.work,
    cluster: ClusterOption = None,
    costs: CostsOption = None,
    perfect: PerfectOption = PerfectSystem.bound,
    near: NearOption = "1,5",
    only: OnlyOption = None,
    skip: SkipOption = None,
    objective: ObjectiveOption = Objective.per_hour,
    tie_rule: TieRuleOption = "tightest",
    max_group_size: MaxGroupSizeOption = 5,
    max_rollout_nodes: MaxRolloutNodesOption = None,
    max_train_nodes: MaxTrainNodesOption = None,
    max_rate: MaxRateOption = 1,
    train_scaling: TrainScalingOption = False,
    pack_saturated: PackSaturatedOption = False,
    colocated_factor: ColocatedFactorOption = 1.0,
    max_p95_wait: MaxWaitOption = "30m",
    wait_share: WaitShareOption = 0.95,
    waits: LadderOption = "0,10m,30m,1h,2h,4h,8h",
    queue: Annotated[
        Queue,
        typer.Option(
            "--queue",
            help="Order of those who wait; backfill lets later jobs pass if that never delays the "
            "first.",
            rich_help_panel="Fixed fleet (nothing to rent)",
        ),
    ] = Queue.fifo,
    max_fleet: MaxFleetOption = None,
    price_ratios: PriceRatiosOption = "1-8",
    dram_tb: DramOption = "0.5,1,1.5,2,3",
    slo_scales: SloScalesOption = "0,0.5,1,1.5,2",
    links_gbps: LinkGbpsOption = "10,20,100,400",
    links: LinksOption = "1,2,4",
    sync_kinds: SyncKindsOption = "hierarchical,flat",
    switches: SwitchesOption = "none,warm,cold",
    group_sizes: GroupSizesOption = "1,2,3,4,5,8,0",
    plan_at: PlanAtOption = "p50,p95,p99,max",
    samples: SamplesOption = 5,
    moments: MomentsOption = 5,
    time_limit: Annotated[
        str,
        per_snapshot_option("90, 90s, 5m or 1.5h for each moment solved exactly.", CHANGES_PANEL),
    ] = "5s",
    growth: GrowthOption = "1,1.5,2,3",
    growth_in: GrowthYearsOption = None,
    replications: ReplicationsOption = 60,
    block_hours: BlockHoursOption = 24.0,
    bursts: BurstsOption = Bursts.independent,
    warm_up_hours: WarmUpOption = None,
    confidence: ConfidenceOption = 0.95,
    coverage: CoverageOption = 0.95,
    processes: ProcessesOption = None,
    seed: SeedOption = 0,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    out: Annotated[
        Path | None, out_option("Write every table, the figures as SVG, and report.html.")
    ] = None,
    figures: FiguresOption = None,
    html: HtmlOption = True,
    file_format: FormatOption = TableFormat.csv,
    force: ForceOption = False,
    details: DetailsOption = False,
    as_json: JsonOption = False,
    timings: Annotated[bool, timings_option("Add seconds by part to --json.")] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """How many nodes of each pool to own, to rent, at what price, and why.

    Demand of every policy; least-cost owned nodes with the rest rented; the cheapest fleet for a
    waiting target with nothing to rent; what changes the answer; how sure it is. Parts can be left
    out (--skip) or asked for alone (--only).

    Exit code 0: done; 1: a job cannot run, or no fleet meets a budget, cap or target; 2: bad input;
    130: Ctrl-C, SIGTERM or SIGHUP (what is known by then is printed).
    """
    from planner.gap.workers import cpus
    from planner.output.folder import require_writable
    from planner.policies.policy import PolicyOptions
    from planner.policies.wait_target import WaitTarget
    from planner.size.files import size_files, write_size_files
    from planner.size.params import SizeParams
    from planner.size.sizing import size_trace

    reporter = Reporter(quiet=quiet, verbose=verbose)
    params = SizeParams(
        parts=parts_of(only, skip),
        perfect=perfect.value,
        target=WaitTarget(seconds_of(max_p95_wait, "--max-p95-wait"), wait_share_of(wait_share)),
        ladder_s=tuple(seconds_of(text, "--waits") for text in names_of(waits)),
        most_nodes=None if max_fleet is None else node_counts(max_fleet, "--max-fleet"),
        near=percents_of(near, "--near"),
        price_ratios=ratios_of(price_ratios, "--price-ratios"),
        dram_tb=numbers_of(dram_tb, "--dram-tb"),
        slo_scales=numbers_of(slo_scales, "--slo-scales"),
        link_gbps=numbers_of(links_gbps, "--links-gbps"),
        links=counts_of(links, "--links"),
        group_sizes=counts_of(group_sizes, "--group-sizes"),
        sync_kinds=names_of(sync_kinds),
        switches=names_of(switches),
        plan_at=names_of(plan_at),
        samples=samples,
        moments=moments,
        time_limit_s=seconds_of(time_limit, "--time-limit-per-snapshot"),
        growths=tuple(sorted(numbers_of(growth, "--growth"))),
        growth_years=growth_years_of(growth_in, "--growth-in"),
        replications=replications,
        processes=cpus() if processes is None else processes,
        block_h=block_hours,
        bursts=bursts.value,
        warm_up_h=warm_up_hours,
        confidence=confidence,
        coverage=coverage,
        seed=seed,
    )
    placer = placer_of(objective, tie_rule, train_scaling, pack_saturated)
    if out is not None:
        require_writable(
            out, (*size_files(params, file_format.value), *html_names(html=html)), force=force
        )
    refuse_figures(out, figures, html=html, force=force)
    machines = cluster_of(cluster)
    prices = costs_of(costs, machines)
    jobs = read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    with ending_as_interrupt(), reporter.progress(f"size for {policy}") as progress:
        report = size_trace(
            jobs,
            policy=policy,
            baselines=names_of(baselines),
            options=PolicyOptions(
                cluster=machines,
                limits=limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
                placer=placer,
                colocated_factor=colocated_factor,
                queue=queue.value,
                seed=seed,
            ),
            costs=prices,
            durations=durations.value,
            params=params,
            progress=progress,
            clock=time.perf_counter if timings else None,
        )
    for text in trace_warnings(jobs.jobs, machines):
        reporter.warn(text)
    if as_json:
        from planner.size.document import size_document

        print_json(size_document(report, timings=timings))
    else:
        from planner.size.tables import print_size

        print_size(report, stdout_console(), details=details)
    if timings and not as_json:
        reporter.note("--timings shows in --json only.")
    if out is not None:
        with reporter.step(f"write {out}"):
            more = html_writers(context, figures, html=html, size=report)
            written = write_size_files(report, out, file_format.value, force=force, more=more)
        reporter.note(f"Wrote {', '.join(written)} to {out}.")
    for part, why in report.left_out.items():
        reporter.note(f"{part} is left out: {why}")
    end_by_parts(report.failed, report.interrupted, reporter)
