"""GPUs, nodes, pools and links, with their default numbers.

:mod:`instances.cluster_file` reads a :class:`Cluster` from TOML.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "DEFAULT_CLUSTER",
    "DEFAULT_MODELS",
    "H20",
    "H800",
    "Cluster",
    "GpuType",
    "Links",
    "ModelDefaults",
    "NodeType",
]


@dataclass(frozen=True, kw_only=True)
class GpuType:
    """One kind of GPU: memory in GB (1e9 bytes), bandwidth in TB/s, price in $/GPU-hour.

    Attributes
    ----------
    name : str
        As it is printed.
    hbm_gb : float
        Memory, GB (1e9 bytes).
    hbm_tb_per_s : float
        Memory bandwidth, TB/s.
    bf16_tflops : float
        Dense bf16 peak, TFLOPS.
    usd_per_gpu_hour : float
        Price, $ per GPU and hour.
    """

    name: str
    hbm_gb: float
    hbm_tb_per_s: float
    bf16_tflops: float
    usd_per_gpu_hour: float


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """One kind of whole node; ``host_dram_gb`` is ``M`` (GB = 1e9 bytes).

    Attributes
    ----------
    gpu : GpuType
        Its GPUs.
    gpus_per_node : int
        How many.
    host_dram_gb : float
        ``M``: host memory, GB.
    """

    gpu: GpuType
    gpus_per_node: int = 8
    host_dram_gb: float = 2000.0

    @property
    def usd_per_hour(self) -> float:
        """Price of one node, $/h."""
        return self.gpus_per_node * self.gpu.usd_per_gpu_hour


@dataclass(frozen=True, kw_only=True)
class Links:
    """Network inside a cluster and between the two clusters, Gb/s.

    Attributes
    ----------
    intra_gbps : float
        One link inside a cluster, Gb/s.
    inter_gbps : float
        One link between the clusters, Gb/s.
    links : int or None
        Links between the clusters; ``None``: one per 16 nodes of the larger pool (a guess).
    flat_over_hierarchical : float or None
        Measured sync seconds, flat over hierarchical; ``None``: nobody measured it, and
        flat sync follows the simple model of :mod:`instances.network`.
    """

    intra_gbps: float = 400.0
    inter_gbps: float = 20.0
    links: int | None = None
    flat_over_hierarchical: float | None = None

    def count(self, rollout_nodes: int, train_nodes: int) -> int:
        """Return the number of links for pools of these sizes (at least 1)."""
        if self.links is not None:
            return self.links
        return max(1, math.ceil(max(rollout_nodes, train_nodes) / 16))


@dataclass(frozen=True, kw_only=True)
class ModelDefaults:
    """Per-node state (GB) and warm-switch seconds of one model size.

    Used for columns that a trace leaves out but whose ``model_b`` it gives; linear between
    stated sizes and constant outside. Values so obtained are labelled estimated.

    Attributes
    ----------
    model_b : float
        Parameters, 1e9.
    rollout_state_gb : float
        Host DRAM per rollout node, GB.
    train_state_gb : float
        Host DRAM per train node, GB.
    rollout_switch_s : float
        Warm-start seconds of a rollout.
    train_switch_s : float
        Warm-start seconds of train.
    """

    model_b: float
    rollout_state_gb: float
    train_state_gb: float
    rollout_switch_s: float
    train_switch_s: float


H20: Final = GpuType(
    name="H20", hbm_gb=96.0, hbm_tb_per_s=4.0, bf16_tflops=148.0, usd_per_gpu_hour=1.85
)
H800: Final = GpuType(
    name="H800", hbm_gb=80.0, hbm_tb_per_s=3.35, bf16_tflops=989.0, usd_per_gpu_hour=5.28
)


def _points() -> tuple[ModelDefaults, ...]:
    """Return the stated points, with the gaps between them filled.

    Rollout state: 3B 200 and 14B 350 are guesses, 7B 275.7 and 32B 490.3 are published.
    Train state: 240 (7B) and 520.4 (32B) are published. Switches: 0.9 to 1.9 s (rollout) and
    4.1 to 5.9 s (train) are published as the range of 7B to 70B.
    """

    def line(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
        share = (min(max(x, x0), x1) - x0) / (x1 - x0)
        return round(y0 + share * (y1 - y0), 4)

    rollout_state = {3.0: 200.0, 7.0: 275.7, 14.0: 350.0, 32.0: 490.3, 70.0: 490.3}
    return tuple(
        ModelDefaults(
            model_b=b,
            rollout_state_gb=gb,
            train_state_gb=line(b, 7.0, 240.0, 32.0, 520.4),
            rollout_switch_s=line(b, 7.0, 0.9, 70.0, 1.9),
            train_switch_s=line(b, 7.0, 4.1, 70.0, 5.9),
        )
        for b, gb in rollout_state.items()
    )


DEFAULT_MODELS: Final = _points()


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Two GPU pools and the links between them.

    Attributes
    ----------
    rollout : NodeType
        A node of the rollout pool.
    train : NodeType
        A node of the train pool.
    links : Links
        Inside and between the two clusters.
    models : tuple of ModelDefaults
        State and switches by model size, for columns that a trace leaves out.
    """

    rollout: NodeType = NodeType(gpu=H20)
    train: NodeType = NodeType(gpu=H800)
    links: Links = Links()
    models: tuple[ModelDefaults, ...] = DEFAULT_MODELS

    def usd_per_hour(self, rollout_nodes: float, train_nodes: float) -> float:
        """Return the price of that many nodes of each pool, $/h."""
        return rollout_nodes * self.rollout.usd_per_hour + train_nodes * self.train.usd_per_hour

    def gpus(self, rollout_nodes: int, train_nodes: int) -> dict[str, int]:
        """Return GPU counts keyed by GPU name (summed when both pools use one kind)."""
        out = {self.rollout.gpu.name: rollout_nodes * self.rollout.gpus_per_node}
        name = self.train.gpu.name
        out[name] = out.get(name, 0) + train_nodes * self.train.gpus_per_node
        return out

    def replace(self, **changes: Any) -> Cluster:
        """Return a copy with some fields replaced."""
        return dataclasses.replace(self, **changes)


DEFAULT_CLUSTER: Final = Cluster()
