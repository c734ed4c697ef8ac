"""What a report rests on, and how to get it again: sections for any trace and cluster."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from instances.trace import Trace
from planner.plan.tables import data_notes, short_jobs
from planner.report.parts import Block, Code, Folded, Rows, Section, Words

__all__ = ["caveats", "inputs_section", "reproduce_section"]

_HOUR_S: Final = 3600.0
_OPTION: Final = re.compile(r"(--?[A-Za-z][A-Za-z0-9-]*=)(.*)", re.DOTALL)


def caveats(trace: Trace, cluster: Cluster) -> tuple[str, ...]:
    """Return in a sentence what of the input nobody measured, and what of it looks wrong.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster
        Its prices are called defaults where they are.
    """
    parts = []
    if "profile_source" in trace.jobs.extra:
        parts.append("phases are synthetic")
    estimated = len(trace.jobs.estimated_columns())
    if estimated:
        parts.append(f"{estimated} column{'s hold' if estimated != 1 else ' holds'} estimates")
    usual = (DEFAULT_CLUSTER.rollout.gpu, DEFAULT_CLUSTER.train.gpu)
    if [gpu.usd_per_gpu_hour for gpu in usual] == [
        pool.gpu.usd_per_gpu_hour for pool in (cluster.rollout, cluster.train)
    ]:
        parts.append("rents are defaults, from a secondary report")
    short = tuple(f"Mind: {text}" for text in short_jobs(trace.jobs))
    if not parts:
        return short
    words = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return (*short, f"Mind: {words}; see Assumptions and inputs.")


def inputs_section(
    trace: Trace,
    cluster: Cluster,
    *,
    limits: Limits | None = None,
    colocated_factor: float | None = None,
) -> Section:
    """Return what the figures assume, and what of the trace nobody measured.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster
        Prices, nodes and links.
    limits : Limits, optional
        Of groups, where groups are made.
    colocated_factor : float, optional
        Iteration time of a co-located job over its time alone, where that is compared.

    Returns
    -------
    Section
    """
    jobs = trace.jobs
    estimated = jobs.estimated_columns()
    synthetic = "profile_source" in jobs.extra
    parts = [
        f"{len(estimated)} column{'s' * (len(estimated) != 1)} of {len(jobs):,} "
        f"job{'s' * (len(jobs) != 1)} "
        f"{'hold' if len(estimated) != 1 else 'holds'} estimates"
        if estimated
        else f"no column of {len(jobs):,} job{'s' * (len(jobs) != 1)} is estimated",
        "phases are synthetic" if synthetic else "no column is marked synthetic",
    ]
    answer = (
        f"In {trace.name} {' and '.join(parts)}; prices are "
        f"${cluster.rollout.gpu.usd_per_gpu_hour:g} and "
        f"${cluster.train.gpu.usd_per_gpu_hour:g} a GPU-hour: put in your own."
    )
    blocks: list[Block] = [_cluster_rows(cluster), Words(tuple(_assumptions(cluster)))]
    choices = tuple(_choices(limits, colocated_factor))
    if choices:
        blocks.append(Words(choices))
    blocks.append(_trace_rows(jobs))
    notes = data_notes(jobs)
    if notes:
        blocks.append(Words(tuple(notes)))
    if estimated:
        blocks.append(_estimated_rows(jobs))
    return Section("inputs", "Assumptions and inputs", answer, tuple(blocks))


def _cluster_rows(cluster: Cluster) -> Rows:
    return Rows(
        title="The two pools",
        header=(
            "pool",
            "GPU",
            "price, $/GPU-hour",
            "GPUs a node",
            "node, $/h",
            "host DRAM a node, GB",
        ),
        rows=tuple(
            (
                pool,
                node.gpu.name,
                f"{node.gpu.usd_per_gpu_hour:g}",
                f"{node.gpus_per_node}",
                f"{node.usd_per_hour:,.2f}",
                f"{node.host_dram_gb:,g}",
            )
            for pool, node in (("rollout", cluster.rollout), ("train", cluster.train))
        ),
        caption=(
            "Prices are inputs, and those of the defaults come from a secondary report: no public "
            "hourly price of an H20 was found. Put in your own (--cluster)."
        ),
    )


def _assumptions(cluster: Cluster) -> Iterator[str]:
    """Yield what holds whatever the command."""
    yield (
        "Durations. work: a job's number of iterations is fixed, so sharing stretches its stay. "
        "wallclock: its stay is fixed, so sharing lets it do fewer iterations. Both are reported, "
        "never mixed."
    )
    yield (
        "Phases are the planned, worst-case ones: each response as long as its limit. A node is "
        "paid while some job is on it, and is to be had at once where no fleet is fixed."
    )
    links = cluster.links
    count = "one per 16 nodes of the larger pool, a guess" if links.links is None else links.links
    yield (
        f"Network: {links.intra_gbps:g} Gb/s inside a pool, {links.inter_gbps:g} Gb/s for each "
        f"link between the pools; links: {count}. Seconds of a sync assume that its link is free."
    )


def _choices(limits: Limits | None, colocated_factor: float | None) -> Iterator[str]:
    if limits is not None:
        size = limits.max_group_size
        nodes = [
            f"at most {most} {pool} nodes"
            for pool, most in (
                ("rollout", limits.max_rollout_nodes),
                ("train", limits.max_train_nodes),
            )
            if most is not None
        ]
        yield (
            f"Groups: {f'at most {size} jobs' if size else 'any number of jobs'}, "
            f"{', '.join(nodes) or 'any number of nodes'}, at most {limits.max_rate} "
            f"iteration{'s' * (limits.max_rate != 1)} of a job a period."
        )
    if colocated_factor is not None:
        yield (
            f"Co-located jobs are assumed to iterate in {colocated_factor:g} x their time alone on "
            "two pools (--colocated-factor): measure it."
        )


def _trace_rows(jobs: JobTable) -> Rows:
    columns: tuple[tuple[str, npt.NDArray[Any], str], ...] = (
        ("rollout_s: rollout, s", jobs.rollout_s, ",.1f"),
        ("train_s: train, s", jobs.train_s, ",.1f"),
        ("sync_s: sync, s", jobs.sync_s, ",.1f"),
        ("slo: slowdown allowed, x alone", jobs.slo, ",.2f"),
        ("duration_s: stay alone, h", jobs.duration_s / _HOUR_S, ",.1f"),
        ("rollout_nodes: nodes", jobs.rollout_nodes, ",.0f"),
        ("train_nodes: nodes", jobs.train_nodes, ",.0f"),
    )
    modes = [f"{mode} {jobs.mode.count(mode):,}" for mode in sorted(set(jobs.mode))]
    return Rows(
        title="The jobs of the trace",
        header=("column", "least", "median", "p95", "most"),
        rows=tuple((name, *_spread(values, form)) for name, values, form in columns),
        caption=(
            f"{len(jobs):,} job{'s' * (len(jobs) != 1)}, by mode: {', '.join(modes)}; p95: the "
            "least value that 95 % of the jobs do not exceed."
        ),
    )


def _spread(values: npt.NDArray[Any], form: str) -> tuple[str, ...]:
    """Return the least, median, p95 and greatest of values: values of jobs, none between two."""
    found = np.quantile(values, (0.0, 0.5, 0.95, 1.0), method="inverted_cdf")
    return tuple(format(float(value), form) for value in found)


def _estimated_rows(jobs: JobTable) -> Rows:
    counts = {
        name: int(np.count_nonzero(jobs.estimated[name])) for name in jobs.estimated_columns()
    }
    return Rows(
        title="Estimated, not measured",
        header=("column", "estimated, jobs", "share, % of jobs"),
        rows=tuple(
            (name, f"{count:,}", f"{100 * count / len(jobs):.1f}") for name, count in counts.items()
        ),
        caption="Give the column in the trace, and it is used as given.",
    )


# --- again ----------------------------------------------------------------------------------------


def reproduce_section(
    command: Sequence[str], inputs: Mapping[str, Any], *, timed: bool = False
) -> Section:
    """Return how to get the same report again, and how to check it.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments; folders of files are left out. Empty: made from Python.
    inputs : mapping
        ``inputs`` of the command's JSON document: trace or plan, sha256, package versions, seed,
        options.
    timed : bool
        Whether a time limit ended some proofs: a faster machine may prove more.

    Returns
    -------
    Section
    """
    what = "plan" if "plan" in inputs else "trace"
    sha256 = inputs.get("sha256")
    versions = ", ".join(f"{name} {v}" for name, v in inputs["package_versions"].items())
    seed = inputs.get("seed")
    answer = (
        f"The same command, {what} and versions give the same figures"
        if sha256
        else f"The same {'job' if inputs['jobs'] == 1 else 'jobs'} and versions give the same "
        "figures"
    )
    answer += ", but for proofs that a time limit ended." if timed else "."
    facts = [
        (what, str(inputs[what])),
        ("sha256", sha256 or "none: the jobs come from no file"),
        ("jobs", f"{inputs['jobs']:,}, of which async {inputs['async_jobs']:,}"),
        ("seed", "none: nothing is drawn" if seed is None else _shown(seed)),
        ("versions", versions),
    ]
    how: Block = (
        Code(" ".join(shlex.quote(_without_folder(word)) for word in command))
        if command
        else Words(("Made from Python: the input and the options below say what of.",))
    )
    blocks: list[Block] = [
        how,
        Rows(
            title="What identifies the input",
            header=("what", "value"),
            rows=tuple(facts),
            numeric=(False, False),
        ),
    ]
    options = inputs.get("options")
    if options:
        rows = tuple((str(name), _shown(value)) for name, value in options.items())
        blocks.append(
            Folded(
                "All options",
                (Rows("Options", ("option", "value"), rows, numeric=(False, False)),),
            )
        )
    if {"plan", "report"} & set(command[:2]):
        blocks.append(
            Code(
                "planner check plan.json",
                "Checks every version of every group, and derives the price again.",
            )
        )
    return Section("reproduce", "How to reproduce this", answer, tuple(blocks))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _without_folder(word: str) -> str:
    """Return an argument without the folders of the machine: ``--out=/a/b`` as ``--out=b``."""
    option = _OPTION.fullmatch(word)
    if option:
        return option[1] + _without_folder(option[2])
    if "://" in word:
        return word
    name = PureWindowsPath(word).name if "\\" in word else PurePosixPath(word).name
    return name or word
