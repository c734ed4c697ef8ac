"""When the responses of each rollout end, drawn once and kept for every migration tried on them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from heapq import heapreplace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from models.problem.compiled import compiled
from planner.simulate.lengths import PhaseSource

__all__ = ["ResponseSource", "RolloutDraws", "on_slots"]

FloatArray = npt.NDArray[np.float64]

#: Iterations drawn at a time.
_BLOCK: Final = 128


class ResponseSource(PhaseSource, Protocol):
    """Phases, and when each response of a rollout ends."""

    @property
    def seed(self) -> int:
        """The seed of all draws."""

    @property
    def slots(self) -> Sequence[int]:
        """Decode slots of each job's gang."""

    def finish_s(self, job: int, iteration_from: int, count: int) -> FloatArray:
        """Return when responses end, ascending, ``(count, n_responses)`` seconds."""


class RolloutDraws:
    """Draws of a source, kept: the same for every migration that is tried on them."""

    def __init__(self, source: ResponseSource) -> None:
        self.source, self.jobs = source, source.jobs
        self._seconds: dict[tuple[int, int], tuple[FloatArray, FloatArray]] = {}
        self._ends: dict[tuple[int, int], FloatArray] = {}
        self._key = [
            int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
            for name in self.jobs.job_id
        ]

    def phases(self, job: int, iteration: int) -> tuple[float, float]:
        """Return rollout and train seconds of one iteration."""
        block, at = divmod(iteration, _BLOCK)
        if (job, block) not in self._seconds:
            self._seconds[job, block] = self.source.phases(job, block * _BLOCK, _BLOCK)
        rollout_s, train_s = self._seconds[job, block]
        return float(rollout_s[at]), float(train_s[at])

    def finish_s(self, job: int, iteration: int) -> FloatArray:
        """Return when the responses of one rollout end at full width, ascending."""
        block, at = divmod(iteration, _BLOCK)
        if (job, block) not in self._ends:
            ends = self.source.finish_s(job, block * _BLOCK, _BLOCK)
            if ends.shape[1] > self.source.slots[job]:
                raise UnsupportedError(
                    f"Expected at most {self.source.slots[job]} responses, one per slot, to move "
                    f"the rest, got {ends.shape[1]} (job '{self.jobs.job_id[job]}')."
                )
            self._ends[job, block] = ends
        finish_s: FloatArray = self._ends[job, block][at]
        return finish_s

    def in_turn_s(self, job: int, iteration: int) -> FloatArray:
        """Return the lengths in seconds in the order in which responses start."""
        seeds = np.random.SeedSequence((self.source.seed, self._key[job], iteration))
        rng = np.random.Generator(np.random.Philox(seeds))
        order: FloatArray = rng.permutation(self.finish_s(job, iteration))
        return order


@compiled
def on_slots(lengths: FloatArray, free: FloatArray) -> FloatArray:
    """Return when responses end that take the next free slot in turn, not sorted.

    Parameters
    ----------
    lengths : ndarray, (n,)
    free : ndarray, (slots,)
        When each slot is free, ascending.
    """
    heap = [0.0] * len(free)
    for s in range(len(free)):
        heap[s] = free[s]
    ends = np.empty_like(lengths)
    for i in range(len(lengths)):
        ends[i] = heap[0] + lengths[i]
        heapreplace(heap, ends[i])
    return ends
