"""``planner report``: one page with everything about a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import completion
from planner.cli.fleet import node_counts
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
    ProcessesOption,
    QuietOption,
    SeedOption,
    StrictOption,
    TraceOption,
    VerboseOption,
    cluster_of,
    durations_option,
    limits_of,
    names_of,
    per_snapshot_option,
    policy_option,
    print_json,
    read_jobs,
    seconds_of,
    stdout_console,
    trace_warnings,
)
from planner.cli.report_options import FiguresOption, html_names, html_writers, refuse_figures
from planner.cli.size_options import (
    CostsOption,
    MaxFleetOption,
    MaxWaitOption,
    WaitShareOption,
    costs_of,
    wait_share_of,
)
from planner.output.report_parts import end_by_parts, parts_in_order
from planner.output.terminal import Reporter, ending_as_interrupt, guarded

__all__ = ["report"]

#: Parts of sizing that are quick; ``planner size`` has the others.
_SIZE_PARTS = "alternatives,fleet,loss,prices,changes"


@guarded
def report(
    context: typer.Context,
    trace: TraceOption,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write report.html, plan.json, jobs.csv, timeline.csv, gap.csv, worst_plan.json.",
            show_default=False,
        ),
    ],
    policy: Annotated[str, policy_option("Whose plan and fleet: weave, ...")] = "weave",
    baselines: BaselinesOption = "solo,colocated",
    durations: Annotated[
        Durations, durations_option("Of the answer; the gap is always by wallclock.")
    ] = Durations.work,
    skip: Annotated[
        str,
        typer.Option(
            "--skip",
            autocompletion=completion.listed(completion.report_parts),
            metavar="A,B",
            help=f"Leave out: {', '.join(completion.REPORT_PARTS)}.",
        ),
    ] = "",
    size_parts: Annotated[
        str,
        typer.Option(
            "--size-parts",
            autocompletion=completion.listed(completion.size_parts),
            metavar="A,B",
            help="Parts of planner size to make.",
        ),
    ] = _SIZE_PARTS,
    cluster: ClusterOption = None,
    costs: CostsOption = None,
    max_group_size: MaxGroupSizeOption = 5,
    max_rollout_nodes: MaxRolloutNodesOption = None,
    max_train_nodes: MaxTrainNodesOption = None,
    max_rate: MaxRateOption = 1,
    colocated_factor: ColocatedFactorOption = 1.0,
    max_p95_wait: MaxWaitOption = "30m",
    wait_share: WaitShareOption = 0.95,
    max_fleet: MaxFleetOption = None,
    time_limit: Annotated[
        str, per_snapshot_option("90, 90s, 5m or 1.5h for each moment of the gap.")
    ] = "2s",
    processes: ProcessesOption = None,
    seed: SeedOption = 0,
    coefficients: CoefficientsOption = None,
    strict: StrictOption = False,
    figures: FiguresOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one page with everything: plan, fleet to own, run time, distance from the least.

    plan, size, simulate and gap with their defaults, in one file that opens offline; about two
    minutes for 200 jobs. The commands themselves have more options.

    Exit code 0: done; 1: a job cannot run, or a part has no answer; 2: bad input; 130: Ctrl-C,
    SIGTERM or SIGHUP (what is known by then is written).
    """
    from planner.gap.files import GAP_FILES, gap_writers
    from planner.gap.workers import cpus
    from planner.output.folder import require_writable
    from planner.plan.files import PLAN_FILES, write_plan_files
    from planner.policies.policy import PolicyOptions
    from planner.policies.registry import require_policy
    from planner.policies.wait_target import WaitTarget
    from planner.report.whole import whole_report
    from planner.simulate.simulating import SimulationParams
    from planner.size.params import SizeParams

    reporter = Reporter(quiet=quiet, verbose=verbose)
    names = names_of(baselines)
    for name in (policy, *names):
        require_policy(name)
    left_out = parts_in_order(names_of(skip), completion.REPORT_PARTS)
    size_params = SizeParams(
        parts=names_of(size_parts),
        target=WaitTarget(seconds_of(max_p95_wait, "--max-p95-wait"), wait_share_of(wait_share)),
        most_nodes=None if max_fleet is None else node_counts(max_fleet, "--max-fleet"),
        processes=cpus() if processes is None else processes,
        seed=seed,
    )
    seconds = seconds_of(time_limit, "--time-limit-per-snapshot")
    require_writable(out, (*PLAN_FILES, *GAP_FILES, *html_names(html=True)), force=force)
    refuse_figures(out, figures, html=True, force=force)
    machines = cluster_of(cluster)
    prices = costs_of(costs, machines)
    jobs = read_jobs(trace, machines, coefficients, strict=strict, reporter=reporter)
    with ending_as_interrupt(), reporter.progress("plan") as progress:
        found = whole_report(
            jobs,
            policy=policy,
            baselines=names,
            options=PolicyOptions(
                cluster=machines,
                limits=limits_of(max_group_size, max_rollout_nodes, max_train_nodes, max_rate),
                colocated_factor=colocated_factor,
                seed=seed,
            ),
            costs=prices,
            durations=durations.value,
            parts=[part for part in completion.REPORT_PARTS if part not in left_out],
            size=size_params,
            simulation=SimulationParams(parts=("runtime",), seed=seed),
            time_limit_per_snapshot_s=seconds,
            seeds=range(seed, seed + 5),
            processes=processes,
            progress=progress,
        )
    with reporter.step(f"write {out}"):
        html = html_writers(
            context,
            figures,
            html=True,
            plan=found.plan,
            size=found.size,
            gap=found.gap,
            simulation=found.simulation,
            missing=found.failed,
        )
        gap = {} if found.gap is None else gap_writers(found.gap)
        written = write_plan_files(found.plan, out, force=force, more={**html, **gap})
    for text in trace_warnings(jobs.jobs, machines):
        reporter.warn(text)
    if as_json:
        from planner.report.document import whole_document

        print_json(whole_document(found))
    else:
        from planner.report.pages import answer_of

        console = stdout_console()
        for sentence in answer_of(
            plan=found.plan, size=found.size, gap=found.gap, simulation=found.simulation
        ):
            console.print(sentence, markup=False)
    reporter.note(f"Wrote {', '.join(written)} to {out}.")
    end_by_parts(found.failed, found.interrupted, reporter)
