"""From a declared study to runs: every one with its full specification, an id and a place.

The id is a digest of all that a run's figures depend on: the bytes of the trace or the arguments
of its generator, the cluster, the axis values and the version of this package. So the same run
has the same id in every study, and a study that grows keeps what it has.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from instances.cluster_file import cluster_to_dict, read_cluster
from instances.coefficients import DEFAULT_COEFFICIENTS, Coefficients, read_coefficients
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster, NodeType
from instances.schema_faults import MAX_SHOWN, refuse
from instances.trace import read_trace
from instances.trace_files import read_bytes
from planner.policies.registry import POLICIES
from planner.sweep.study import AXES, CaseTable, StudyFile, TraceTable, read_study

__all__ = ["MAX_RUNS", "Inputs", "Run", "Study", "TraceSource", "expand", "read_runs"]

#: A larger product is taken for a mistake; all rows are held in memory, some 4 KB each.
MAX_RUNS: Final = 250_000
_ID_CHARS: Final = 16


@dataclass(frozen=True, kw_only=True)
class TraceSource:
    """Where jobs come from: the bytes of a file, or a generator.

    Attributes
    ----------
    name : str
        For people.
    file : str or None
        Name of the file without folders: its suffix tells the format.
    data : bytes or None
        Contents of the file: workers need not see the disk.
    sha256 : str or None
        Of the file's bytes.
    generator : str or None
    arguments : tuple of (str, value)
        Of the generator, the seed apart.
    seed : int or None
    """

    name: str
    file: str | None = None
    data: bytes | None = field(default=None, repr=False)
    sha256: str | None = None
    generator: str | None = None
    arguments: tuple[tuple[str, Any], ...] = ()
    seed: int | None = None

    @property
    def specification(self) -> dict[str, Any]:
        """What the jobs depend on; the name of a file is no part of it."""
        if self.generator is None:
            return {"sha256": self.sha256}
        return {"generator": self.generator, "seed": self.seed, **dict(self.arguments)}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What all runs of a study share; pickled to workers once.

    Attributes
    ----------
    version : str
        Of this package, where the runs were expanded.
    """

    traces: tuple[TraceSource, ...]
    cluster: Cluster
    coefficients: Coefficients
    block_h: float
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One replay, every value that it depends on in place.

    Attributes
    ----------
    number : int
        Its place in the study, from 1.
    run_id : str
    source : int
        Index of its trace in :class:`Inputs`.
    seed : int or None
        Of a policy that draws; ``None`` for others.
    replication, bootstrap_seed, growth : int, int and float, or None
        Which bootstrapped copy of the trace; ``None``: the trace as it is.
    runtime_replication : int or None
        Which draw of lengths the plan is run with, from 1; ``None``: it is not run.
    fleet : (int, int) or None
        Rollout and train nodes that there are.
    queue : str or None
        How jobs wait for a fixed fleet.
    """

    number: int = 0
    run_id: str = ""
    case: str
    source: int
    policy: str
    convention: str
    seed: int | None
    replication: int | None
    bootstrap_seed: int | None
    runtime_replication: int | None
    growth: float | None
    max_group_size: int
    max_rate: int
    rollout_host_dram_gb: float
    train_host_dram_gb: float
    rollout_usd_per_gpu_hour: float
    train_usd_per_gpu_hour: float
    slo_scale: float
    inter_gbps: float
    objective: str
    tie_rule: str
    fleet: tuple[int, int] | None
    queue: str | None

    def cluster(self, base: Cluster) -> Cluster:
        """Return the cluster of this run."""

        def pool(node: NodeType, usd_per_gpu_hour: float, host_dram_gb: float) -> NodeType:
            gpu = dataclasses.replace(node.gpu, usd_per_gpu_hour=usd_per_gpu_hour)
            return dataclasses.replace(node, gpu=gpu, host_dram_gb=host_dram_gb)

        return dataclasses.replace(
            base,
            rollout=pool(base.rollout, self.rollout_usd_per_gpu_hour, self.rollout_host_dram_gb),
            train=pool(base.train, self.train_usd_per_gpu_hour, self.train_host_dram_gb),
            links=dataclasses.replace(base.links, inter_gbps=self.inter_gbps),
        )


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study expanded.

    Attributes
    ----------
    runs : tuple of Run
        In order; ids are distinct.
    axes : tuple of str
        Axes that some case names.
    repeated : int
        Combinations left out because another one says the same.
    """

    name: str
    inputs: Inputs
    runs: tuple[Run, ...]
    axes: tuple[str, ...]
    repeated: int = 0


#: What an axis is worth that a study does not name; the cluster's values come from its file.
_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "max_group_size": 5,
        "max_rate": 1,
        "slo_scale": 1.0,
        "objective": "per-hour",
        "tie_rule": "tightest",
        "fleet": "none",
        "queue": "fifo",
        "growth": 1.0,
    }
)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sources(table: TraceTable, folder: Path) -> Iterator[TraceSource]:
    """Yield the traces of one table: one, or one per seed of a generator."""
    if table.file is not None:
        path = folder / table.file
        data = read_bytes(path)
        sha256 = hashlib.sha256(data).hexdigest()
        name = table.name or path.name
        yield TraceSource(name=name, file=path.name, data=data, sha256=sha256)
        return
    assert table.generator is not None
    given: dict[str, Any] = {
        "n_jobs": table.jobs,
        "gangs": table.gangs,
        "concurrent": table.concurrent,
        "kind": table.kind,
    }
    arguments = tuple((key, value) for key, value in given.items() if value is not None)
    takes_seed = not table.generator.startswith("tiny-")
    for seed in dict.fromkeys(table.seeds or [0]) if takes_seed else [None]:
        yield TraceSource(
            name=table.name or table.generator,
            generator=table.generator,
            arguments=arguments,
            seed=seed,
        )


def _traces(file: StudyFile, roomy: Cluster, coefficients: Coefficients) -> list[TraceSource]:
    """Return all traces; files are read to the last row, so that faults are known now.

    Parameters
    ----------
    roomy : Cluster
        With the most host DRAM of any run: what is too large for some fails there.
    """
    faults: list[str] = []
    out: list[TraceSource] = []
    for number, table in enumerate(file.traces, 1):
        try:
            if table.file is not None:
                read_trace(file.folder / table.file, roomy, coefficients)
            out.extend(_sources(table, file.folder))
        except InputError as error:
            faults.extend(f"[trace #{number}] {line}" for line in str(error).splitlines())
    if faults:
        refuse(faults[:MAX_SHOWN], len(faults), file.source)
    return out


def _values(case: CaseTable, axis: str) -> list[Any]:
    """Return the values of an axis; ``[None]`` where nothing is said."""
    given = getattr(case, axis)
    return [None] if given is None else list(dict.fromkeys(given))


def _fields(given: Mapping[str, Any], base: Cluster, *, copies: bool) -> dict[str, Any]:
    """Return the fields of a :class:`Run` from one value of each axis."""
    value: dict[str, Any] = {k: _DEFAULTS.get(k) if v is None else v for k, v in given.items()}
    both = value["host_dram_gb"]

    def first(*choices: float | None) -> float:
        return float(next(choice for choice in choices if choice is not None))

    rollout_usd = first(value["rollout_usd_per_gpu_hour"], base.rollout.gpu.usd_per_gpu_hour)
    ratio = value["price_ratio"]
    scaled = None if ratio is None else ratio * rollout_usd
    train_usd = first(value["train_usd_per_gpu_hour"], scaled, base.train.gpu.usd_per_gpu_hour)
    nodes = None if value["fleet"] == "none" else tuple(map(int, value["fleet"].split(",")))
    return {
        "growth": float(value["growth"]) if copies else None,
        "max_group_size": value["max_group_size"],
        "max_rate": value["max_rate"],
        "rollout_host_dram_gb": first(
            both, value["rollout_host_dram_gb"], base.rollout.host_dram_gb
        ),
        "train_host_dram_gb": first(both, value["train_host_dram_gb"], base.train.host_dram_gb),
        "rollout_usd_per_gpu_hour": rollout_usd,
        "train_usd_per_gpu_hour": train_usd,
        "slo_scale": float(value["slo_scale"]),
        "inter_gbps": first(value["inter_gbps"], base.links.inter_gbps),
        "objective": value["objective"],
        "tie_rule": value["tie_rule"],
        "fleet": nodes,
        "queue": None if nodes is None else value["queue"],
    }


def _draws(policy: str) -> bool:
    """Return whether a policy draws; one made by a function is imported late and does not."""
    return bool(getattr(POLICIES[policy], "uses_seed", False))


def _drawn(file: StudyFile, policy: str) -> list[int | None]:
    """Return the draws of lengths that plans of a policy are run with, where it has an order."""
    ordered = getattr(POLICIES[policy], "promises_valid", policy in ("repack", "regroup"))
    if not file.runtime_replications or not ordered:
        return [None]
    return list(range(1, file.runtime_replications + 1))


def _count(file: StudyFile, case: CaseTable, traces: int) -> int:
    """Return the number of combinations of a case."""
    policies = case.policies or []
    seeds = sum(
        (len(file.seeds) if _draws(policy) else 1) * len(_drawn(file, policy))
        for policy in policies
    )
    axes = math.prod(len(_values(case, axis)) for axis in AXES)
    return traces * seeds * len(case.conventions or []) * axes * max(1, file.replications)


def _runs(file: StudyFile, case: CaseTable, inputs: Inputs) -> Iterator[Run]:
    """Yield the runs of one case, the trace outermost: workers keep the one they are at."""
    copies = range(1, file.replications + 1) if file.replications else [None]
    axes = [dict(zip(AXES, v, strict=True)) for v in itertools.product(*_axes(case))]
    fields = [_fields(given, inputs.cluster, copies=file.replications > 0) for given in axes]
    for source, copy, values, policy, convention in itertools.product(
        range(len(inputs.traces)), copies, fields, case.policies or [], case.conventions or []
    ):
        seeds = file.seeds if _draws(policy) else [None]
        for seed, drawn in itertools.product(seeds, _drawn(file, policy)):
            yield Run(
                case=case.name,
                source=source,
                policy=policy,
                convention=convention,
                seed=seed,
                replication=copy,
                runtime_replication=drawn,
                bootstrap_seed=None if copy is None else file.bootstrap.seed + copy - 1,
                **values,
            )


def _axes(case: CaseTable) -> list[list[Any]]:
    return [_values(case, axis) for axis in AXES]


def _specification(run: Run, inputs: Inputs, base: dict[str, Any]) -> dict[str, Any]:
    """Return all that the figures of a run depend on."""
    spec = {f.name: getattr(run, f.name) for f in dataclasses.fields(Run)}
    for key in ("number", "run_id", "case", "source", "replication"):
        del spec[key]
    spec["trace"] = inputs.traces[run.source].specification
    spec["block_h"] = None if run.bootstrap_seed is None else inputs.block_h
    return {**spec, **base}


def expand(file: StudyFile) -> Study:
    """Return the runs of a study, in order.

    Raises
    ------
    InputError
        When a file it names is missing or wrong, or there are more than ``MAX_RUNS`` runs.
    """
    cluster = DEFAULT_CLUSTER if file.cluster is None else read_cluster(file.folder / file.cluster)
    coefficients = DEFAULT_COEFFICIENTS
    if file.coefficients is not None:
        coefficients = read_coefficients(file.folder / file.coefficients)
    inputs = Inputs(
        traces=tuple(_traces(file, _roomy(file, cluster), coefficients)),
        cluster=cluster,
        coefficients=coefficients,
        block_h=file.bootstrap.block_h,
        version=version("rl-fleet-planner"),
    )
    total = sum(_count(file, case, len(inputs.traces)) for case in file.cases)
    if total > MAX_RUNS:
        raise InputError(
            f"{file.source}: Expected at most {MAX_RUNS:,} runs, got {total:,}: axes, traces, "
            "policies, seeds and replications multiply."
        )
    base = {
        "version": inputs.version,
        "cluster": cluster_to_dict(cluster),
        "coefficients": dataclasses.asdict(coefficients),
    }
    # digested once: it is the same for every run
    base = {"base": _digest(base)}
    runs: dict[str, Run] = {}
    for case in file.cases:
        for run in _runs(file, case, inputs):
            run_id = _digest(_specification(run, inputs, base))[:_ID_CHARS]
            if run_id not in runs:
                runs[run_id] = dataclasses.replace(run, number=len(runs) + 1, run_id=run_id)
    return Study(
        name=file.name,
        inputs=inputs,
        runs=tuple(runs.values()),
        axes=tuple(a for a in AXES if any(getattr(c, a) is not None for c in file.cases)),
        repeated=total - len(runs),
    )


def _roomy(file: StudyFile, cluster: Cluster) -> Cluster:
    """Return the cluster with the most host DRAM per node that any run has."""

    def most(pool: NodeType, *axes: str) -> NodeType:
        values = [v for case in file.cases for axis in axes for v in _values(case, axis)]
        given = [value for value in values if value is not None]
        return dataclasses.replace(pool, host_dram_gb=max(*given, pool.host_dram_gb, 0.0))

    return dataclasses.replace(
        cluster,
        rollout=most(cluster.rollout, "host_dram_gb", "rollout_host_dram_gb"),
        train=most(cluster.train, "host_dram_gb", "train_host_dram_gb"),
    )


def read_runs(path: str | Path) -> Study:
    """Read a study and expand it.

    Raises
    ------
    InputError
        When the study, or a file it names, is missing or wrong.
    """
    return expand(read_study(path))
