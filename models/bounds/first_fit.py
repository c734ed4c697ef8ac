"""First fit of a pool's jobs in a given order, with open bins to begin with.

The greedy packing behind first columns and behind the rounding of a fractional packing. A job
of width ``a`` joins the first ``a`` bins that take it, and opens bins for what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.bounds.pool_items import PoolItems
from models.problem.compiled import compiled

__all__ = ["first_fit", "packings"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Jobs(NamedTuple):
    """What the kernel reads of the jobs."""

    load: FloatArray
    room: FloatArray
    chain: FloatArray
    state: FloatArray
    shares: npt.NDArray[np.bool_]


class Bins(NamedTuple):
    """Bins, open or not; ``jobs`` is ``(bins, most)``, padded with -1."""

    load: FloatArray
    room: FloatArray
    chain: FloatArray
    state: FloatArray
    shares: npt.NDArray[np.bool_]
    held: IntArray
    jobs: IntArray


@compiled
def _fits(jobs: Jobs, bins: Bins, j: int, b: int, room_gb: float) -> bool:
    """Return whether the job may join the bin, which is not empty."""
    if not (jobs.shares[j] and bins.shares[b]) or bins.held[b] >= bins.jobs.shape[1]:
        return False
    room = min(bins.room[b], jobs.room[j])
    fits: bool = bins.load[b] + jobs.load[j] <= room
    fits = fits and max(bins.chain[b], jobs.chain[j]) <= room
    return fits and bins.state[b] + jobs.state[j] <= room_gb


@compiled
def _put(jobs: Jobs, bins: Bins, j: int, b: int) -> None:
    """Put the job into the bin."""
    bins.jobs[b, bins.held[b]] = j
    bins.held[b] += 1
    bins.load[b] += jobs.load[j]
    bins.state[b] += jobs.state[j]
    bins.room[b] = min(bins.room[b], jobs.room[j])
    bins.chain[b] = max(bins.chain[b], jobs.chain[j])
    bins.shares[b] = bins.shares[b] and jobs.shares[j]


@compiled
def _place(
    jobs: Jobs, bins: Bins, order: IntArray, times: IntArray, used: int, room_gb: float
) -> int:
    """Put each job of the order into ``times`` bins, first fit; return how many bins are open.

    Bins that hold the job already do not count and are not joined again.
    """
    for at in range(len(order)):
        j, wanted = order[at], times[at]
        for b in range(used):
            if wanted == 0:
                break
            if not _fits(jobs, bins, j, b, room_gb):
                continue
            twice = False
            for slot in range(bins.held[b]):
                twice = twice or bins.jobs[b, slot] == j
            if not twice:
                _put(jobs, bins, j, b)
                wanted -= 1
        while wanted > 0:
            _put(jobs, bins, j, used)
            used += 1
            wanted -= 1
    return used


def first_fit(
    items: PoolItems, order: IntArray, opened: Iterable[Sequence[int]] = ()
) -> list[tuple[int, ...]]:
    """Return bins that hold every job on as many nodes as it is wide.

    Parameters
    ----------
    items : PoolItems
    order : (m,) int64
        The jobs that are still short of nodes; others of these are passed over.
    opened : iterable of sequences of int
        Bins that hold jobs already, each feasible.
    """
    jobs = Jobs(
        load=items.load,
        room=items.room,
        # With rates a chain is compared with its own deadline only, in ``shares_node``.
        chain=np.zeros(len(items)) if items.rates else items.chain_s,
        state=items.state_gb,
        shares=items.shares_node,
    )
    opened = [tuple(bin_) for bin_ in opened]
    held = np.zeros(len(items), dtype=np.int64)
    for bin_ in opened:
        held[list(bin_)] += 1
    times = np.maximum(items.width[order] - held[order], 0)
    n_bins = len(opened) + int(times.sum())
    most = max(min(items.most_jobs, len(items)), 1)
    bins = Bins(
        load=np.zeros(n_bins),
        room=np.full(n_bins, np.inf),
        chain=np.zeros(n_bins),
        state=np.zeros(n_bins),
        shares=np.ones(n_bins, dtype=np.bool_),
        held=np.zeros(n_bins, dtype=np.int64),
        jobs=np.full((n_bins, most), -1, dtype=np.int64),
    )
    for b, bin_ in enumerate(opened):
        for j in bin_:
            _put(jobs, bins, j, b)
    used = _place(jobs, bins, order.astype(np.int64), times, len(opened), items.room_gb)
    return [tuple(sorted(bins.jobs[b, : bins.held[b]].tolist())) for b in range(used)]


def packings(items: PoolItems, rng: np.random.Generator, count: int) -> list[list[tuple[int, ...]]]:
    """Return first-fit packings in several orders, each shaken a little.

    By load over deadline, by deadline up and down, in turn: the largest first fill bins well,
    neighbours in deadline waste little of it.
    """
    share = items.load / items.room
    keys = (-share, -items.deadline_s, items.deadline_s)
    out = []
    for turn in range(count):
        shake = rng.uniform(0.8, 1.25, len(items)) if turn >= len(keys) else np.ones(len(items))
        order = np.argsort(keys[turn % len(keys)] * shake, kind="stable")
        out.append(first_fit(items, order))
    return out
