"""``planner import``: traces from logs of arrivals, or from step timings that were measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from instances.errors import InputError, did_you_mean
from planner.cli import completion
from planner.cli.options import (
    ClusterOption,
    ForceOption,
    QuietOption,
    SeedOption,
    VerboseOption,
    cluster_of,
    out_file_option,
)
from planner.cli.parsing import Group
from planner.cli.traces import require_new, write_jobs
from planner.output.terminal import EXIT_BAD_INPUT, Reporter, fail, guarded

__all__ = ["FormatGroup", "import_generic_log", "import_philly_log", "import_verl_logs"]

#: Headings of the options of ``verl``.
_JOB: Final = "Job"
_TIMINGS: Final = "Timings"

_LogArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Arrival log (CSV).")]
_OutOption = Annotated[Path, out_file_option("Trace to write.")]
_HoursOption = Annotated[
    float | None,
    typer.Option(
        "--hours", help="Length of the window of arrivals, hours; several times the longest stay."
    ),
]
_StartOption = Annotated[
    float, typer.Option("--start-h", help="Start of the window, hours into the log.")
]
_JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Keep the first so many jobs.")
]
_MinGpusOption = Annotated[int, typer.Option("--min-gpus", min=1, help="Fewest GPUs.")]
_MinHoursOption = Annotated[float, typer.Option("--min-hours", min=0, help="Least duration, h.")]
_ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        autocompletion=completion.profiles,
        help="production, mixed, balanced, ... (synthetic).",
    ),
]
_SingleNodeOption = Annotated[
    bool, typer.Option("--single-node", help="One node of each kind, whatever the GPUs.")
]


class FormatGroup(Group):
    """The formats of ``planner import``; an unknown one is told which are known."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of that format."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not ctx.resilient_parsing:
            fail(
                f"Unknown format '{args[0]}'.{did_you_mean(args[0], known)} "
                f"Known formats: {', '.join(known)}.",
                EXIT_BAD_INPUT,
            )
        return super().resolve_command(ctx, args)


def _import(
    layout: str, log: Path, out: Path, *, force: bool, reporter: Reporter, **choices: Any
) -> None:
    from instances.importers import IMPORTERS

    require_new(out, force=force)
    with reporter.step(f"read {log.name}"):
        table, summary = IMPORTERS[layout](log, **choices)
    for line in summary.lines():
        reporter.note(line)
    write_jobs(table, out, force=force, reporter=reporter)


@guarded
def import_philly_log(
    log: _LogArgument,
    out: _OutOption,
    seed: SeedOption = 0,
    hours: _HoursOption = None,
    start_h: _StartOption = 0.0,
    jobs: _JobsOption = None,
    min_gpus: _MinGpusOption = 8,
    min_hours: _MinHoursOption = 1.0,
    profile: _ProfileOption = "mixed",
    single_node: _SingleNodeOption = False,
    cluster: ClusterOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """A Philly log of arrivals; RL phases are drawn, and labelled synthetic.

    Columns: timestamp, duration, num_gpus, gpu_time, cluster. GPU counts are rounded up to
    whole nodes.
    """
    _import(
        "philly",
        log,
        out,
        force=force,
        reporter=Reporter(quiet=quiet, verbose=verbose),
        seed=seed,
        hours=hours,
        start_h=start_h,
        jobs=jobs,
        min_gpus=min_gpus,
        min_hours=min_hours,
        profile=profile,
        single_node=single_node,
        cluster=cluster_of(cluster),
    )


@guarded
def import_generic_log(
    log: _LogArgument,
    out: _OutOption,
    seed: SeedOption = 0,
    hours: _HoursOption = None,
    start_h: _StartOption = 0.0,
    jobs: _JobsOption = None,
    min_gpus: _MinGpusOption = 1,
    min_hours: _MinHoursOption = 0.0,
    profile: _ProfileOption = "mixed",
    single_node: _SingleNodeOption = False,
    cluster: ClusterOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """A plain log of arrivals; RL phases are drawn, and labelled synthetic.

    Columns: job_id, arrival_s, service_sec, gpu_count. GPU counts are rounded up to whole
    nodes.
    """
    _import(
        "generic",
        log,
        out,
        force=force,
        reporter=Reporter(quiet=quiet, verbose=verbose),
        seed=seed,
        hours=hours,
        start_h=start_h,
        jobs=jobs,
        min_gpus=min_gpus,
        min_hours=min_hours,
        profile=profile,
        single_node=single_node,
        cluster=cluster_of(cluster),
    )


def _names(text: str | None, option: str) -> tuple[str, ...]:
    """Return the names of a list such as ``gen,reward``."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InputError(f"Expected {option} to be names with commas between, got {text!r}.")
    return names


@guarded
def import_verl_logs(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="LOG", help="CSV, JSON Lines or console log; one log, one job."),
    ],
    out: _OutOption,
    slo: Annotated[
        float | None,
        typer.Option(
            "--slo",
            help="Slowdown promised to each job, >= 1; needed, here or in --jobs-table.",
            show_default=False,
            rich_help_panel=_JOB,
        ),
    ] = None,
    jobs_table: Annotated[
        Path | None,
        typer.Option(
            "--jobs-table",
            metavar="CSV",
            help="A row a job: job_id and any columns of a trace; goes before the options.",
            rich_help_panel=_JOB,
        ),
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option(
            "--job-id",
            help="Of a single log [the file's name without its ending].",
            rich_help_panel=_JOB,
        ),
    ] = None,
    arrival_s: Annotated[
        float, typer.Option("--arrival-s", help="Arrival, seconds.", rich_help_panel=_JOB)
    ] = 0.0,
    iterations: Annotated[
        float | None,
        typer.Option(
            "--iterations",
            help="Iterations of the whole run [the steps logged].",
            rich_help_panel=_JOB,
        ),
    ] = None,
    rollout_nodes: Annotated[
        int,
        typer.Option(
            "--rollout-nodes", min=1, help="Rollout nodes of the run.", rich_help_panel=_JOB
        ),
    ] = 1,
    train_nodes: Annotated[
        int,
        typer.Option("--train-nodes", min=1, help="Train nodes of the run.", rich_help_panel=_JOB),
    ] = 1,
    model_b: Annotated[
        float | None,
        typer.Option(
            "--model-b",
            help="Parameters, 1e9: estimates state, switches and sync; needed, unless the table "
            "of jobs has these.",
            rich_help_panel=_JOB,
        ),
    ] = None,
    max_tokens: Annotated[
        float | None,
        typer.Option("--max-tokens", help="Token limit of a response.", rich_help_panel=_JOB),
    ] = None,
    skip_steps: Annotated[
        int,
        typer.Option(
            "--skip-steps",
            min=0,
            help="Warm-up steps left out after each start.",
            rich_help_panel=_TIMINGS,
        ),
    ] = 1,
    at_limit: Annotated[
        str | None,
        typer.Option(
            "--at-limit",
            help="Scale the slowest step to the token limit, as an estimate: longest (rollout "
            "as long as its longest response) or tokens (rollout linear in tokens).",
            rich_help_panel=_TIMINGS,
        ),
    ] = None,
    rollout_keys: Annotated[
        str | None,
        typer.Option(
            "--rollout-keys",
            metavar="A,B",
            help="Timings of rollout, after timing_s/ [gen,reward].",
            rich_help_panel=_TIMINGS,
        ),
    ] = None,
    train_keys: Annotated[
        str | None,
        typer.Option(
            "--train-keys",
            metavar="A,B",
            help="Timings of train, after timing_s/ "
            "[old_log_prob,ref,values,adv,update_critic,update_actor].",
            rich_help_panel=_TIMINGS,
        ),
    ] = None,
    sync_keys: Annotated[
        str | None,
        typer.Option(
            "--sync-keys",
            metavar="A,B",
            help="Timings of the weight transfer, after timing_s/, such as update_weights [none: "
            "estimated].",
            rich_help_panel=_TIMINGS,
        ),
    ] = None,
    cluster: ClusterOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Step timings of verl runs: rollout_s and train_s are the most measured, not drawn.

    A trace's phases are worst cases, every response at the token limit: standard error says
    whether the log got there, which steps and keys were used, and what was left out.

    Keys as verl logs them: timing_s/gen, timing_s/update_actor, response_length/max.
    """
    from instances.verl_import import import_verl

    require_new(out, force=force)
    reporter = Reporter(quiet=quiet, verbose=verbose)
    with reporter.step(f"read {len(logs)} {'log' if len(logs) == 1 else 'logs'}"):
        table, summary = import_verl(
            logs,
            jobs_table=jobs_table,
            slo=slo,
            job_id=job_id,
            arrival_s=arrival_s,
            iterations=iterations,
            rollout_nodes=rollout_nodes,
            train_nodes=train_nodes,
            model_b=model_b,
            max_tokens=max_tokens,
            skip_steps=skip_steps,
            rollout_keys=_names(rollout_keys, "--rollout-keys"),
            train_keys=_names(train_keys, "--train-keys"),
            sync_keys=_names(sync_keys, "--sync-keys"),
            at_limit=at_limit,
            cluster=cluster_of(cluster),
        )
    for line in summary.lines():
        reporter.note(line)
    for line in summary.warnings():
        reporter.warn(line)
    write_jobs(table, out, force=force, reporter=reporter)
