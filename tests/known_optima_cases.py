"""Bin packing instances with published optima, as snapshots; read beside the project, never copied.

Two embeddings of packing in group formation (the README of the data says which). Both
allow a group one node of each kind, so a group is a bin: it costs one pair of nodes, and the
least number of groups is the least number of bins.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from builders import cluster_of
from instances.jobs import Job
from models.problem.snapshot import Snapshot
from small_snapshots import snapshot_of

__all__ = [
    "BINPACK",
    "VECTORPACK",
    "Packing",
    "binpack",
    "needs",
    "one_size",
    "vectorpack",
    "vectors",
]

_DATA: Final = Path(__file__).resolve().parents[1].parent / "shared" / "data"
BINPACK: Final = _DATA / "binpack"
VECTORPACK: Final = _DATA / "vectorpack"


def needs(folder: Path) -> pytest.MarkDecorator:
    """Skip without the data, and say where they are looked for."""
    return pytest.mark.skipif(not folder.is_dir(), reason=f"the instances are not there: {folder}")


@dataclass(frozen=True)
class Packing:
    """Items of one or three sizes, ``sizes[i]`` each at most ``capacity``; whole numbers."""

    name: str
    capacity: int
    sizes: tuple[tuple[int, ...], ...]
    optimum: int

    def __str__(self) -> str:
        return self.name


def binpack(file: str) -> list[Packing]:
    """Read a file of the OR-Library: their number; per problem name; capacity, items, best known
    number of bins; one size a line."""
    words = iter((BINPACK / file).read_text(encoding="ascii").split())
    out = []
    for _ in range(int(next(words))):
        name, capacity, items, best = next(words), *(int(next(words)) for _ in range(3))
        sizes = tuple((int(next(words)),) for _ in range(items))
        out.append(Packing(name, capacity, sizes, best))
    return out


def vectorpack() -> list[Packing]:
    """Read all three-dimensional instances; capacities are equal in every dimension."""
    with (VECTORPACK / "optima.csv").open(encoding="utf-8", newline="") as lines:
        optima = {row["instance"]: int(row["optimum"]) for row in csv.DictReader(lines)}
    return [_vbp(name, optimum) for name, optimum in sorted(optima.items())]


def _vbp(name: str, optimum: int) -> Packing:
    """Read dimensions; capacities; number of kinds; per kind its sizes and demand (always 1)."""
    text = (VECTORPACK / "instances" / f"{name}.vbp").read_text(encoding="ascii")
    words = [int(word) for word in text.split()]
    dimensions, capacities, items = words[0], words[1 : 1 + words[0]], words[1 + words[0]]
    rows, width = words[2 + dimensions :], dimensions + 1
    assert len(set(capacities)) == 1
    assert len(rows) == items * width
    sizes = [tuple(rows[i : i + dimensions]) for i in range(0, len(rows), width)]
    assert set(rows[dimensions::width]) == {1}
    return Packing(name, capacities[0], tuple(sizes), optimum)


def vectors(packing: Packing) -> Snapshot:
    """Return the snapshot whose groups are the bins of a three-dimensional instance.

    The sizes are rollout state, train state and train seconds; ``C = capacity + 1/2``. Sizes are
    whole numbers, and the ``n`` rollouts (and trains of size 0) of ``1/(4n)`` s take 1/4 s at
    most, so trains fit ``C`` exactly when sizes fit the capacity, and then load and chains are
    within ``C`` and an open shop schedule of that length exists (FORMULATION section 4).
    """
    least_s = 1 / (4 * len(packing.sizes))
    period_s = packing.capacity + 0.5
    jobs = []
    for i, (rollout_gb, train_gb, seconds) in enumerate(packing.sizes):
        train_s = max(float(seconds), least_s)
        jobs.append(
            Job(
                job_id=f"i{i}",
                rollout_s=least_s,
                train_s=train_s,
                slo=period_s / (least_s + train_s),
                rollout_state_gb=float(rollout_gb),
                train_state_gb=float(train_gb),
            )
        )
    return snapshot_of(jobs, cluster=cluster_of(host_dram_gb=packing.capacity), nodes=(1, 1))


def one_size(capacity: int, sizes: Sequence[int]) -> Snapshot:
    """Return the snapshot whose groups are the bins of items of one size.

    The size is train state; phases of 1 ms and deadlines of an hour let any jobs share. Rollout
    nodes are free, so the cost is that of the train nodes, and each of these with its jobs and a
    free rollout node is a group: one node of each kind is no limit.
    """
    jobs = [
        Job(job_id=f"i{i}", rollout_s=0.001, train_s=0.001, slo=1.8e6, train_state_gb=float(size))
        for i, size in enumerate(sizes)
    ]
    cluster = cluster_of(rollout_usd=0.0, host_dram_gb=capacity)
    return snapshot_of(jobs, cluster=cluster, nodes=(1, 1))
