"""``planner generate``: synthetic traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from planner.output.terminal import Reporter, guarded

if TYPE_CHECKING:
    from instances.jobs import JobTable

__all__ = ["generate", "require_new", "write_jobs"]


def require_new(out: Path, *, force: bool) -> None:
    """Refuse a file that is there, unless it may be replaced."""
    from planner.output.folder import exists

    if exists(out) and not force:
        raise InputError(f"{out} is already there. Give --force to replace it.")


def write_jobs(jobs: JobTable, out: Path, *, force: bool, reporter: Reporter) -> None:
    """Write a trace, and say so."""
    from instances.trace import write_trace

    with reporter.step(f"write {out.name}"):
        write_trace(jobs, out, force=force)
    reporter.note(f"Wrote {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} to {out}.")


@guarded
def generate(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=completion.generators,
            help="production, profiles, or a tiny-* example.",
        ),
    ],
    out: Annotated[Path, out_file_option("Trace to write.")],
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
        typer.Option(
            "--kind",
            autocompletion=completion.profile_kinds,
            help="profiles: balanced, rollout-heavy, train-heavy or mixed.",
        ),
    ] = "mixed",
    cluster: ClusterOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
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
    require_new(out, force=force)
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
    reporter = Reporter(quiet=quiet, verbose=verbose)
    with reporter.step(f"generate {name}"):
        table = GENERATORS[name](**given)
    write_jobs(table, out, force=force, reporter=reporter)
