"""Read and write a :class:`~instances.hardware.Cluster` as TOML or JSON tables.

Every key carries its unit and every default number can be overridden::

    [rollout]                 # the pool that generates responses
    gpu = "H20"
    usd_per_gpu_hour = 1.85
    host_dram_gb = 2000
    gpus_per_node = 8
    [train]                   # the pool that updates weights
    gpu = "H800"
    usd_per_gpu_hour = 5.28
    [links]
    intra_gbps = 400          # inside a cluster
    inter_gbps = 20           # between the two clusters
    links = 4                 # left out: one per 16 nodes of the larger pool
    flat_over_hierarchical = 2.7 # measured seconds ratio; left out: the simple model
    [[model]]                 # per-node state and switches of one model size
    model_b = 7
    rollout_state_gb = 275.7
    train_state_gb = 240
    rollout_switch_s = 0.9
    train_switch_s = 4.1

Unknown keys are errors that suggest the nearest key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from instances.errors import InputError
from instances.file_kinds import refuse_other_kind
from instances.hardware import DEFAULT_CLUSTER, Cluster, GpuType, Links, ModelDefaults, NodeType
from instances.schema_faults import MAX_SHOWN, refuse, say
from instances.toml_file import read_toml

__all__ = ["ClusterTables", "cluster_from_dict", "cluster_to_dict", "read_cluster"]

Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False, strict=True)]
NonNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Name = Annotated[str, Field(min_length=1, strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class PoolTable(_Table):
    """One pool; a key left out keeps the pool's default."""

    gpu: Name | None = None
    hbm_gb: Positive | None = None
    hbm_tb_per_s: Positive | None = None
    bf16_tflops: Positive | None = None
    usd_per_gpu_hour: NonNegative | None = None
    gpus_per_node: Count | None = None
    host_dram_gb: Positive | None = None

    def over(self, default: NodeType) -> NodeType:
        """Return ``default`` with this table's keys in place."""
        given = self.model_dump(exclude_none=True)
        node = {k: given.pop(k) for k in ("gpus_per_node", "host_dram_gb") if k in given}
        if "gpu" in given:
            given["name"] = given.pop("gpu")
        gpu: GpuType = dataclasses.replace(default.gpu, **given)
        return dataclasses.replace(default, gpu=gpu, **node)


class LinksTable(_Table):
    """The network; ``links`` left out means one per 16 nodes of the larger pool."""

    intra_gbps: Positive = 400.0
    inter_gbps: Positive = 20.0
    links: Count | None = None
    flat_over_hierarchical: Positive | None = None


class ModelTable(_Table):
    """Per-node state (GB) and warm-switch seconds of one model size."""

    model_b: Positive
    rollout_state_gb: NonNegative
    train_state_gb: NonNegative
    rollout_switch_s: NonNegative
    train_switch_s: NonNegative


class ClusterTables(_Table):
    """The whole file."""

    rollout: PoolTable = PoolTable()
    train: PoolTable = PoolTable()
    links: LinksTable = LinksTable()
    model: list[ModelTable] | None = Field(default=None, min_length=1)


_KNOWN_KEYS = {
    "": tuple(ClusterTables.model_fields),
    "rollout": tuple(PoolTable.model_fields),
    "train": tuple(PoolTable.model_fields),
    "links": tuple(LinksTable.model_fields),
    "model": tuple(ModelTable.model_fields),
}


def _place(parts: Sequence[int | str]) -> str:
    """Return ``[rollout] gpu``, or ``[model #2] model_b``: what an editor's reader looks for."""
    words = [f"#{part + 1}" if isinstance(part, int) else part for part in parts] or ["the file"]
    *table, key = words
    return f"[{' '.join(table)}] {key}" if table else key


def _say(error: Any) -> str:
    """Return one fault as a line; an unknown key comes with all that are known."""
    table = str(error["loc"][0]) if len(error["loc"]) > 1 else ""
    known = _KNOWN_KEYS[table]
    line = say(error, _place, known)
    return f"{line} Known keys: {', '.join(known)}." if error["type"] == "extra_forbidden" else line


def cluster_from_dict(data: Any, source: str = "cluster") -> Cluster:
    """Build a :class:`Cluster` from nested tables, as read from TOML or JSON.

    Parameters
    ----------
    data : dict
        Tables ``rollout``, ``train``, ``links`` and a list ``model``; all optional.
    source : str
        Name put in front of every error.

    Raises
    ------
    InputError
        One line per fault: an unknown key (with the nearest known one), or a value that
        breaks its rule.
    """
    try:
        tables = ClusterTables.model_validate(data)
    except ValidationError as error:
        refuse_other_kind(data, "cluster", source)
        errors = error.errors(include_url=False)
        refuse([_say(e) for e in errors[:MAX_SHOWN]], len(errors), source)
    models = DEFAULT_CLUSTER.models
    if tables.model is not None:
        points = sorted(tables.model, key=lambda m: m.model_b)
        for low, high in pairwise(points):
            if low.model_b == high.model_b:
                raise InputError(
                    f"{source}: Expected distinct [model] model_b, got {low.model_b:g} twice."
                )
        models = tuple(ModelDefaults(**m.model_dump()) for m in points)
    return Cluster(
        rollout=tables.rollout.over(DEFAULT_CLUSTER.rollout),
        train=tables.train.over(DEFAULT_CLUSTER.train),
        links=Links(**tables.links.model_dump()),
        models=models,
    )


def cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    """Return the nested tables that :func:`cluster_from_dict` reads back unchanged."""

    def pool(node: NodeType) -> dict[str, Any]:
        gpu = dataclasses.asdict(node.gpu)
        name = gpu.pop("name")
        return {
            "gpu": name,
            **gpu,
            "gpus_per_node": node.gpus_per_node,
            "host_dram_gb": node.host_dram_gb,
        }

    return {
        "rollout": pool(cluster.rollout),
        "train": pool(cluster.train),
        "links": {k: v for k, v in dataclasses.asdict(cluster.links).items() if v is not None},
        "model": [dataclasses.asdict(m) for m in cluster.models],
    }


def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster TOML file.

    Parameters
    ----------
    path : str or Path
        TOML file; keys left out keep the values of :data:`DEFAULT_CLUSTER`.

    Returns
    -------
    Cluster

    Raises
    ------
    InputError
        When the file cannot be read, is not TOML, or breaks a rule.
    """
    return cluster_from_dict(read_toml(path), Path(path).name)
