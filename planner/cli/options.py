"""Options and small helpers that several commands share."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from instances.errors import InputError, did_you_mean
from planner.cli import completion
from planner.output.terminal import Reporter

if TYPE_CHECKING:
    from rich.console import Console

    from instances.coefficients import Coefficients
    from instances.hardware import Cluster
    from instances.jobs import JobTable
    from instances.plan import Limits
    from instances.trace import Trace
    from planner.placement.placer import PlacerParams

__all__ = [
    "GROUPS_PANEL",
    "OUTPUT_PANEL",
    "BaselinesOption",
    "ClusterOption",
    "CoefficientsOption",
    "ColocatedFactorOption",
    "Durations",
    "ForceOption",
    "JsonOption",
    "MaxGroupSizeOption",
    "MaxRateOption",
    "MaxRolloutNodesOption",
    "MaxTrainNodesOption",
    "Objective",
    "ObjectiveOption",
    "PackSaturatedOption",
    "ProcessesOption",
    "QuietOption",
    "SeedOption",
    "StrictOption",
    "TieRuleOption",
    "TraceOption",
    "TrainScalingOption",
    "VerboseOption",
    "VersionOption",
    "cluster_of",
    "coefficients_of",
    "durations_option",
    "limits_of",
    "names_of",
    "out_file_option",
    "out_option",
    "per_snapshot_option",
    "placer_of",
    "plan_path",
    "policy_option",
    "print_json",
    "read_jobs",
    "seconds_of",
    "split_names",
    "stdout_console",
    "timings_option",
    "trace_path",
    "trace_warnings",
]

#: Headings of options in ``--help``.
GROUPS_PANEL: Final = "Groups"
OUTPUT_PANEL: Final = "Output"


class Durations(StrEnum):
    """How long a job that shares nodes stays."""

    work = "work"
    wallclock = "wallclock"


class Objective(StrEnum):
    """What placing a job minimises."""

    per_hour = "per-hour"
    per_iteration = "per-iteration"


TraceOption = Annotated[
    Path,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Jobs: CSV(.gz/.zst), Parquet or JSON Lines, or the name of a shipped trace.",
        show_default=False,
        autocompletion=completion.catalog_names,
    ),
]
ClusterOption = Annotated[
    Path | None,
    typer.Option("--cluster", metavar="TOML", help="GPUs, prices ($/GPU-h), DRAM (GB), links."),
]
BaselinesOption = Annotated[
    str,
    typer.Option(
        "--baselines",
        autocompletion=completion.listed(completion.policies),
        metavar="A,B",
        help="Policies to set beside it.",
    ),
]
ObjectiveOption = Annotated[
    Objective, typer.Option("--objective", help="What placing a job minimises.")
]
ColocatedFactorOption = Annotated[
    float, typer.Option("--colocated-factor", help="Iteration time of colocated over solo.")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", min=1, help="Processes [one per processor].", show_default=False),
]
MaxGroupSizeOption = Annotated[
    int,
    typer.Option(
        "--max-group-size",
        min=0,
        help="Most jobs in a group; 0: no limit.",
        rich_help_panel=GROUPS_PANEL,
    ),
]
MaxRolloutNodesOption = Annotated[
    int | None,
    typer.Option(
        "--max-rollout-nodes",
        min=1,
        help="Most rollout nodes in a group.",
        rich_help_panel=GROUPS_PANEL,
    ),
]
MaxTrainNodesOption = Annotated[
    int | None,
    typer.Option(
        "--max-train-nodes",
        min=1,
        help="Most train nodes in a group.",
        rich_help_panel=GROUPS_PANEL,
    ),
]
MaxRateOption = Annotated[
    int,
    typer.Option(
        "--max-rate",
        min=1,
        max=16,
        help="Most iterations of a job per period of its group; above 1 the SLO holds for their "
        "mean, single ones may be longer.",
        rich_help_panel=GROUPS_PANEL,
    ),
]
TieRuleOption = Annotated[
    str,
    typer.Option(
        "--tie-rule",
        help="Order of equally dear groups: tightest, least-shrink, most-room, nearest-deadline, "
        "nearest-departure or oldest.",
        metavar="RULE",
        autocompletion=completion.tie_rules,
        rich_help_panel=GROUPS_PANEL,
    ),
]
TrainScalingOption = Annotated[
    bool,
    typer.Option(
        "--train-scaling", help="Let groups buy train nodes, too.", rich_help_panel=GROUPS_PANEL
    ),
]
PackSaturatedOption = Annotated[
    bool,
    typer.Option(
        "--pack-saturated",
        help="Let deadlines alone decide who joins.",
        rich_help_panel=GROUPS_PANEL,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No notes and no progress.", rich_help_panel=OUTPUT_PANEL),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Say what is done and what it takes, seconds, on stderr.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Replace files that are there.", rich_help_panel=OUTPUT_PANEL),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout.", rich_help_panel=OUTPUT_PANEL)
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random draw.")]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse a trace with estimated values.")
]
CoefficientsOption = Annotated[
    Path | None,
    typer.Option(
        "--coefficients",
        metavar="TOML",
        help="Numbers of the phase estimator, such as train_mfu = 0.4.",
    ),
]


def policy_option(words: str) -> Any:
    """Return ``--policy``: which ones a command takes is its own."""
    return typer.Option("--policy", autocompletion=completion.policies, help=words)


def durations_option(words: str) -> Any:
    """Return ``--durations``: what it decides differs between commands."""
    return typer.Option("--durations", help=words)


def per_snapshot_option(words: str, panel: str | None = None) -> Any:
    """Return ``--time-limit-per-snapshot``, in a panel of the help where there are many."""
    return typer.Option("--time-limit-per-snapshot", metavar="T", help=words, rich_help_panel=panel)


def out_option(words: str) -> Any:
    """Return ``--out DIR``: which files it writes is said there."""
    return typer.Option("--out", metavar="DIR", help=words, rich_help_panel=OUTPUT_PANEL)


def out_file_option(words: str) -> Any:
    """Return ``--out FILE`` of a command that writes one file and nothing else."""
    return typer.Option(
        "--out", metavar="FILE", help=words, show_default=False, rich_help_panel=OUTPUT_PANEL
    )


def timings_option(words: str) -> Any:
    """Return ``--timings``: what is measured differs between commands."""
    return typer.Option("--timings", help=words, rich_help_panel=OUTPUT_PANEL)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"rl-fleet-planner {version('rl-fleet-planner')}\n")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
]

#: Files of a folder that an error names.
_MOST_NAMED: Final = 5


def cluster_of(path: Path | None) -> Cluster:
    """Return the cluster of a file, or the default one."""
    from instances.hardware import DEFAULT_CLUSTER

    if path is None:
        return DEFAULT_CLUSTER
    from instances.cluster_file import read_cluster

    return read_cluster(path)


def limits_of(
    max_group_size: int,
    max_rollout_nodes: int | None,
    max_train_nodes: int | None,
    max_rate: int,
) -> Limits:
    """Return the limits of a group that the options name."""
    from instances.plan import Limits

    return Limits(
        max_group_size=max_group_size,
        max_rollout_nodes=max_rollout_nodes,
        max_train_nodes=max_train_nodes,
        max_rate=max_rate,
    )


def placer_of(
    objective: Objective, tie_rule: str, train_scaling: bool, pack_saturated: bool
) -> PlacerParams:
    """Return how the placer places, as the options say."""
    from planner.placement.placer import PlacerParams

    return PlacerParams(
        objective=objective.value,
        tie_rule=tie_rule,
        train_scaling=train_scaling,
        skip_saturated=not pack_saturated,
    )


def coefficients_of(path: Path | None) -> Coefficients:
    """Return the estimator's coefficients of a file, or the default ones."""
    from instances.coefficients import DEFAULT_COEFFICIENTS, read_coefficients

    return DEFAULT_COEFFICIENTS if path is None else read_coefficients(path)


def read_jobs(
    trace: Path,
    cluster: Cluster,
    coefficients: Path | None,
    *,
    strict: bool,
    reporter: Reporter | None = None,
) -> Trace:
    """Return the trace of a file; with ``strict`` one with estimated values is refused."""
    from instances.trace import read_trace, refuse_estimates

    path = trace_path(trace)
    with (reporter or Reporter(quiet=True)).step(f"read {path.name}"):
        jobs = read_trace(path, cluster, coefficients_of(coefficients))
    if strict:
        refuse_estimates(jobs.jobs)
    return jobs


def trace_path(path: Path) -> Path:
    """Return the file of a trace, given by its path or by the name of a shipped one.

    Raises
    ------
    InputError
        For what can be no trace: a folder, a plan, a settings file, an unknown name.
    """
    from instances.catalog import CATALOG, catalog_path

    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if _is_trace(p))
        more = f" It has {', '.join(inside[:_MOST_NAMED])}." if inside else ""
        raise InputError(f"{path}: Expected --trace a file, got a folder.{more}")
    if path.suffix == ".json":
        raise InputError(
            f"{path.name}: Expected --trace a table of jobs, got JSON. planner check and planner "
            "repack read a plan."
        )
    if path.suffix == ".toml":
        raise InputError(
            f"{path.name}: Expected --trace a table of jobs, got TOML. --cluster, --costs and "
            "--coefficients read settings, planner sweep a study."
        )
    if path.suffix or path.exists() or str(path) != path.name:
        return path
    if path.name in CATALOG:
        return catalog_path(path.name)
    raise InputError(
        f"{path}: No such file, and no shipped trace of that name."
        f"{did_you_mean(path.name, CATALOG)} Shipped traces: {', '.join(CATALOG)}."
    )


def plan_path(path: Path) -> Path:
    """Return the file of a plan.

    Raises
    ------
    InputError
        For what can be no plan: a folder, or a trace.
    """
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.suffix == ".json")
        more = f" Did you mean '{path / inside[0]}'?" if inside else ""
        raise InputError(f"{path}: Expected a plan file, got a folder.{more}")
    if _is_trace(path) and (path.is_file() or not path.exists()):
        raise InputError(
            f"{path.name}: Expected a plan (plan.json), got a trace. plan --trace {path} --out DIR "
            "writes one."
        )
    return path


def _is_trace(path: Path) -> bool:
    from instances.trace_files import SUFFIXES

    return path.name.lower().endswith(tuple(SUFFIXES))


def print_json(document: dict[str, Any]) -> None:
    """Print one document on standard output."""
    sys.stdout.write(json.dumps(document, allow_nan=False, indent=2) + "\n")


def stdout_console() -> Console:
    """Return the console that tables are printed on."""
    from rich.console import Console

    unset = os.environ.get("COLUMNS", "").strip() == "0"  # or rich would print nothing at all
    return Console(highlight=False, soft_wrap=False, width=80 if unset else None)


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of ``a,b``, each once; empty ones are left out."""
    return tuple(dict.fromkeys(split_names(text)))


def split_names(text: str) -> list[str]:
    """Return the parts of ``a,b`` that are not empty."""
    return [part.strip() for part in text.split(",") if part.strip()]


def seconds_of(text: str, option: str) -> float:
    """Return seconds from ``90``, ``90s``, ``5m``, ``1.5h`` or ``2d``.

    Raises
    ------
    InputError
        Naming the option, when the text is something else.
    """
    from instances.durations import duration_s

    seconds = duration_s(text)
    if seconds is None:
        raise InputError(f"Expected {option} a time such as 90, 90s, 5m or 1.5h, got '{text}'.")
    return seconds


def trace_warnings(jobs: JobTable, cluster: Cluster) -> list[str]:
    """Return what a reader of any answer about these jobs must know about their columns."""
    from instances.trace_rules import KNOWN_COLUMNS
    from planner.plan.tables import short_jobs

    out = short_jobs(jobs)
    for column in jobs.extra:
        ours = column.startswith(("philly_", "generic_", "verl_", "profile"))  # of planner import
        guess = "" if ours else did_you_mean(column, KNOWN_COLUMNS)
        if guess:
            out.append(f"column '{column}' is unknown and only carried along.{guess}")
    estimated = jobs.estimated_columns()
    if estimated:
        out.append(
            f"estimated, not measured: {', '.join(estimated)}. Give these columns to replace the "
            f"estimates; --strict refuses them."
        )
    sizes = jobs.optional.get("model_b")
    points = cluster.models
    if sizes is not None and estimated:
        beyond = (sizes < points[0].model_b) | (sizes > points[-1].model_b)
        if beyond.any():
            out.append(
                f"model_b of {int(beyond.sum())} jobs is outside {points[0].model_b:g}-"
                f"{points[-1].model_b:g}: state and switches are those of the nearest size."
            )
    return out
