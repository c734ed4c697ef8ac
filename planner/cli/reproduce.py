"""``planner profile`` and ``planner reproduce``: phases never measured, and published figures."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from planner.cli import completion
from planner.cli.options import (
    ClusterOption,
    CoefficientsOption,
    JsonOption,
    QuietOption,
    VerboseOption,
    cluster_of,
    coefficients_of,
    names_of,
    print_json,
    stdout_console,
    timings_option,
)
from planner.output.terminal import Reporter, guarded

__all__ = ["profile", "reproduce"]


@guarded
def profile(
    model_b: Annotated[
        float, typer.Option("--model-b", help="Parameters, 1e9.", show_default=False)
    ],
    max_tokens: Annotated[
        float, typer.Option("--max-tokens", help="Token limit of a response.", show_default=False)
    ],
    prompts_per_step: Annotated[
        float, typer.Option("--prompts-per-step", help="Prompts of one step.", show_default=False)
    ],
    samples_per_prompt: Annotated[
        float,
        typer.Option("--samples-per-prompt", help="Responses a prompt.", show_default=False),
    ],
    rollout_nodes: Annotated[
        int, typer.Option("--rollout-nodes", min=1, help="Nodes of the rollout pool.")
    ] = 1,
    train_nodes: Annotated[
        int, typer.Option("--train-nodes", min=1, help="Nodes of the train pool.")
    ] = 1,
    cluster: ClusterOption = None,
    coefficients: CoefficientsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate one job without measurements: phase seconds, state and sync, all estimated.

    A roofline model, calibrated on few published timings (README, "Estimates"): three measured
    numbers of your job beat it.
    """
    from instances.estimate import estimate
    from planner.plan.document import profile_document

    machines, reached = cluster_of(cluster), coefficients_of(coefficients)
    found = estimate(
        model_b=model_b,
        max_tokens=max_tokens,
        prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt,
        rollout_nodes=rollout_nodes,
        train_nodes=train_nodes,
        cluster=machines,
        coefficients=reached,
    )
    if as_json:
        print_json(profile_document(found, machines, reached))
    else:
        from planner.plan.tables import print_profile

        print_profile(found, stdout_console())


@guarded
def reproduce(
    seeds: Annotated[
        int, typer.Option("--seeds", min=2, help="Generated traces of each study, seeds 0, 1, ...")
    ] = 10,
    studies: Annotated[
        str,
        typer.Option(
            "--studies",
            autocompletion=completion.listed(completion.studies),
            metavar="A,B",
            help="Beyond placement: micro (micro-benchmarks), migration, drift (minutes each).",
        ),
    ] = "micro",
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    timings: Annotated[
        bool, timings_option("Also time decisions with 2,000 jobs resident.")
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Set every published figure of the placement study beside ours, with a verdict per row.

    Means over seeds with 95 % intervals, by both duration conventions; no parameter is chosen to
    hit a number.
    """
    from planner.reproduce.placement_study import reproduce as compare

    machines = cluster_of(cluster)
    with Reporter(quiet=quiet, verbose=verbose).progress("reproduce") as progress:
        rows = compare(
            seeds=seeds,
            cluster=machines,
            studies=names_of(studies),
            progress=progress,
            clock=time.perf_counter if timings else None,
        )
    if as_json:
        from planner.reproduce.document import reproduce_document

        print_json(reproduce_document(rows, seeds, machines))
    else:
        from planner.reproduce.tables import print_reproduce

        print_reproduce(rows, seeds, stdout_console())
