"""Response lengths and what they make of an iteration: seconds of rollout and of train, drawn.

*Lengths* (:class:`LengthLaw`). Tokens of one response, all responses independent. From the trace's
``response_p50/p95/p99_tokens`` a lognormal, met at every percentile given: the logarithm is linear
in the normal score between and beyond them. Or an empirical shape, a histogram from a file, every
length scaled by token limit over the file's longest. Else the guess of
:mod:`planner.size.sampled_runtimes`. What is longer than the limit is cut off there.

*Rollout*. A batch of ``n = prompts_per_step x samples_per_prompt`` responses (512 unless given, a
guess) on ``S = rollout_nodes x GPUs per node x slots_per_gpu`` decode slots. A response takes the
next slot that is free, in the order drawn, for seconds in proportion to its length; it frees the
slot when it ends, and the last to end ends the rollout. Scale: all ``n`` at the limit, hence
``ceil(n / S)`` rounds, take exactly ``rollout_s``. So nothing ever takes longer.

*Train*. Linear in the tokens generated, ``train_s`` with all at the limit:
``train_s x (f + (1 - f) x mean length / limit)``, ``f`` the part that no length changes (0 unless
given).

*Measured seconds go first*. With ``rollout_p50_s`` and ``rollout_p95_s`` an iteration's rollout is
drawn from the lognormal through them, and its lengths are scaled so that they take that long; the
same with the two columns of train. Both phases of an iteration then stand at the same quantile.

*Seeds*. Job ``j``'s iterations come in blocks, each from a Philox generator seeded by (seed,
replication, digest of the job's id, number of the block): iteration ``i`` is the same whatever was
drawn before, in any table that has the job, under any plan (common random numbers).

Assumptions: a token takes as long in a full batch as in an empty one, prompts take none, and
slots wait for nothing else.
"""

from __future__ import annotations

import csv
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import heapreplace
from math import isfinite, log
from pathlib import Path
from statistics import NormalDist
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.jobs import JobTable
from instances.trace_files import read_bytes, utf8_text
from models.problem.compiled import compiled
from planner.size.sampled_runtimes import (
    SOURCES,
    JobLaw,
    Law,
    job_laws,
)

__all__ = [
    "SLOTS_PER_GPU",
    "LengthLaw",
    "PhaseSampler",
    "PhaseSource",
    "WorstCase",
]

FloatArray = npt.NDArray[np.float64]

#: Responses that one GPU decodes at once: a guess, a usual cap of inference engines.
SLOTS_PER_GPU: Final = 256
_GPUS_PER_NODE: Final = 8
#: Responses drawn at a time.
_BLOCK_DRAWS: Final = 2**15
#: Iterations whose seconds are remembered.
_REMEMBERED: Final = 2**21
_NORMAL: Final = NormalDist()
_EMPIRICAL: Final = "histogram"


# --- lengths --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LengthLaw:
    """Tokens of one response.

    Attributes
    ----------
    limit_tokens : float
        No response is longer; 1 where the limit is not known: lengths are shares of it then.
    at : tuple of float
        Ascending. Lognormal: normal scores. Empirical: cumulative shares, from 0 to 1.
    log_tokens : tuple of float
        Lognormal: logarithms of the tokens there; no scores: always the limit.
    tokens : tuple of float
        Empirical: the tokens there, linear between. One of the two is empty.
    source : str
    """

    limit_tokens: float
    at: tuple[float, ...] = ()
    log_tokens: tuple[float, ...] = ()
    tokens: tuple[float, ...] = ()
    source: str = SOURCES[1]

    def __post_init__(self) -> None:
        if not (self.limit_tokens > 0 and isfinite(self.limit_tokens)):
            raise InputError(f"Expected limit_tokens > 0, got {self.limit_tokens!r}.")
        if len(self.at) not in (len(self.log_tokens), len(self.tokens)) or len(self.at) == 1:
            raise InputError(f"Expected two points of a law at least, got {len(self.at)}.")

    @classmethod
    def through(cls, limit_tokens: float, percentiles: Sequence[tuple[float, float]]) -> LengthLaw:
        """Return the lognormal through (share, tokens) pairs, two at least, truncated.

        Raises
        ------
        InputError
            When shares do not rise within (0, 1), or tokens fall or are not above 0.
        """
        shares = [share for share, _ in percentiles]
        tokens = [value for _, value in percentiles]
        if len(shares) < 2 or not all(0 < s < 1 for s in shares) or shares != sorted(set(shares)):
            raise InputError(f"Expected two rising shares in (0, 1) at least, got {shares}.")
        if min(tokens) <= 0 or tokens != sorted(tokens):
            raise InputError(f"Expected tokens > 0 that do not fall, got {tokens}.")
        return cls(
            limit_tokens=limit_tokens,
            at=tuple(_NORMAL.inv_cdf(share) for share in shares),
            log_tokens=tuple(log(value) for value in tokens),
        )

    @classmethod
    def from_histogram(cls, path: Path, limit_tokens: float = 1.0) -> LengthLaw:
        """Return the shape of a histogram, its longest length scaled to a limit.

        Parameters
        ----------
        path : Path
            CSV with a header and rows (bin's lowest tokens, probability), ascending. Bins are as
            wide as the narrowest step between two of them; those left out are empty. What is in
            the last bin has reached the file's limit, its lowest value.
        limit_tokens : float

        Raises
        ------
        InputError
            When the file is not such a table.
        """
        low, share = _histogram(path)
        width, longest = float(np.diff(low).min()), float(low[-1])
        edges = np.stack([low, np.minimum(low + width, longest)], axis=1).reshape(-1)
        done = np.cumsum(share / share.sum())
        cumulative = np.stack([done - share / share.sum(), done], axis=1).reshape(-1)
        cumulative = np.maximum.accumulate(np.clip(cumulative, 0.0, 1.0))
        cumulative[-1] = 1.0
        scaled = edges * (limit_tokens / longest)
        return cls(
            limit_tokens=limit_tokens,
            at=tuple(cumulative.tolist()),
            tokens=tuple(np.minimum(scaled, limit_tokens).tolist()),
            source=_EMPIRICAL,
        )

    def scaled(self, limit_tokens: float) -> LengthLaw:
        """Return the same shape with another limit."""
        factor = limit_tokens / self.limit_tokens
        return replace(
            self,
            limit_tokens=limit_tokens,
            log_tokens=tuple(value + log(factor) for value in self.log_tokens),
            tokens=tuple(min(value * factor, limit_tokens) for value in self.tokens),
        )

    def quantile(self, share: float) -> float:
        """Return the tokens that a ``share`` in (0, 1) of all responses do not exceed."""
        if not 0 < share < 1:
            raise InputError(f"Expected a share in (0, 1), got {share!r}.")
        at = share if self.tokens else _NORMAL.inv_cdf(share)
        return float(self.of(np.array([at]))[0]) * self.limit_tokens

    def of(self, draws: FloatArray) -> FloatArray:
        """Return shares of the limit at normal scores (lognormal) or cumulative shares."""
        if self.tokens:
            tokens: FloatArray = np.interp(draws, self.at, self.tokens)
            return tokens / self.limit_tokens
        return _truncated(draws, self.at, self.log_tokens, self.limit_tokens)

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> FloatArray:
        """Return lengths drawn, as shares of the limit."""
        return self.of(rng.random(size) if self.tokens else rng.standard_normal(size))


def _truncated(
    scores: FloatArray, at: Sequence[float], logs: Sequence[float], most: float
) -> FloatArray:
    """Return shares of ``most`` at normal scores; the logarithm is linear by pieces."""
    if not at:
        return np.ones_like(scores)
    slope = np.diff(logs) / np.diff(at)
    base = np.array(logs[:-1]) - slope * np.array(at[:-1]) - log(most)
    if len(slope) == 1:
        shares = slope[0] * scores + base[0]
    else:
        piece = np.zeros(scores.shape, dtype=np.int64)
        for known in at[1:-1]:
            piece += scores > known
        shares = slope[piece] * scores + base[piece]
    np.minimum(shares, 0.0, out=shares)
    lengths: FloatArray = np.exp(shares, out=shares)
    return lengths


def _histogram(path: Path) -> tuple[FloatArray, FloatArray]:
    """Return lowest tokens and probability of every bin."""
    text = utf8_text(read_bytes(path), path.name).decode("utf-8")
    pairs: list[tuple[float, float]] = []
    for line, row in enumerate(csv.reader(text.splitlines()), start=1):
        try:
            numbers = [float(cell) for cell in row]
        except ValueError:
            numbers = []
        if line == 1 and numbers:
            raise InputError(f"Expected a header, got {','.join(row)!r} ({path.name}, line 1).")
        if line == 1 or not row:
            continue
        if len(numbers) != 2 or not all(map(isfinite, numbers)):
            raise InputError(
                f"Expected two numbers in a row of a histogram, got {','.join(row)!r} "
                f"({path.name}, line {line})."
            )
        pairs.append((numbers[0], numbers[1]))
    if len(pairs) < 2:
        raise InputError(f"Expected two rows of two columns at least ({path.name}).")
    low, share = np.array(pairs).T
    if not (np.diff(low) > 0).all() or low[0] < 0 or (share < 0).any() or not share.sum() > 0:
        raise InputError(f"Expected rising bins and probabilities >= 0 ({path.name}).")
    return low, share


# --- one batch on its slots -----------------------------------------------------------------------


@compiled
def _finish(lengths: FloatArray, slots: int) -> FloatArray:
    """Return when each response ends, ``(batches, n)``: the next in turn takes the next slot."""
    batches, n = lengths.shape
    ends = np.empty_like(lengths)
    for b in range(batches):
        free = [0.0] * slots  # a heap
        for i in range(n):
            end = free[0] + lengths[b, i]
            heapreplace(free, end)
            ends[b, i] = end
    return ends


# --- phases of jobs -------------------------------------------------------------------------------


class PhaseSource(Protocol):
    """Whatever says how long the phases of each iteration take."""

    @property
    def jobs(self) -> JobTable:
        """The jobs, with worst-case seconds: ``D_j`` is theirs."""

    def phases(self, job: int, iteration_from: int, count: int) -> tuple[FloatArray, FloatArray]:
        """Return rollout and train seconds, ``(count,)`` each, switches apart."""


@dataclass(frozen=True)
class WorstCase:
    """Every iteration takes ``rollout_s`` and ``train_s``."""

    jobs: JobTable

    def phases(self, job: int, iteration_from: int, count: int) -> tuple[FloatArray, FloatArray]:
        """Return the same seconds for each iteration."""
        return (
            np.full(count, self.jobs.rollout_s[job]),
            np.full(count, self.jobs.train_s[job]),
        )


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """One block of iterations of a job.

    Attributes
    ----------
    ends : ndarray, (iterations, responses)
        Seconds from the rollout's start.
    rollout_s, train_s : ndarray, (iterations,)
    """

    ends: FloatArray
    rollout_s: FloatArray
    train_s: FloatArray


class PhaseSampler:
    """Draws the phases of any iteration of any job (module docstring).

    Parameters
    ----------
    jobs : JobTable
        Worst-case seconds; optional columns give the laws.
    seed, replication : int
        Other draws for another value of either.
    lengths : sequence of LengthLaw, optional
        One per job, in place of what the columns say.
    histogram : Path, optional
        Shape of the lengths of jobs without response columns, in place of the guess.
    slots_per_gpu : int
        Responses that one GPU decodes at once.
    gpus_per_node : int
    train_fixed_share : float
        Part of ``train_s`` that no length changes, in [0, 1].

    Raises
    ------
    InputError
        For a number out of its range, or lengths that are not one per job.
    """

    def __init__(
        self,
        jobs: JobTable,
        *,
        seed: int = 0,
        replication: int = 0,
        lengths: Sequence[LengthLaw] | None = None,
        histogram: Path | None = None,
        slots_per_gpu: int = SLOTS_PER_GPU,
        gpus_per_node: int = _GPUS_PER_NODE,
        train_fixed_share: float = 0.0,
    ) -> None:
        _require_whole("seed", seed, 0)
        _require_whole("replication", replication, 0)
        _require_whole("slots_per_gpu", slots_per_gpu, 1)
        _require_whole("gpus_per_node", gpus_per_node, 1)
        if not 0 <= train_fixed_share <= 1:
            raise InputError(f"Expected train_fixed_share in [0, 1], got {train_fixed_share!r}.")
        if lengths is not None and len(lengths) != len(jobs):
            raise InputError(f"Expected {len(jobs)} laws of lengths, got {len(lengths)}.")
        self._jobs, self._fixed = jobs, train_fixed_share
        self._seed, self._replication = seed, replication
        self._laws = job_laws(jobs)
        by_length = _without_rollout_seconds(jobs)
        shape = None if histogram is None else LengthLaw.from_histogram(histogram)
        self.lengths = tuple(
            _length_law(jobs, i, law, shape) if lengths is None else lengths[i]
            for i, law in enumerate(by_length)
        )
        self.responses = tuple(round(law.rollout.longest_of) for law in by_length)
        slots = jobs.rollout_nodes * (gpus_per_node * slots_per_gpu)
        self.slots = tuple(int(count) for count in slots)
        self._key = [
            int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in jobs.job_id
        ]
        self._known: OrderedDict[tuple[int, int], tuple[FloatArray, FloatArray]] = OrderedDict()
        self._held = 0

    @property
    def jobs(self) -> JobTable:
        """The jobs, with worst-case seconds."""
        return self._jobs

    @property
    def seed(self) -> int:
        """The seed of all draws."""
        return self._seed

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each job's rollout comes from: ``SOURCES`` or ``histogram``."""
        return tuple(
            law.source if law.source == SOURCES[0] else lengths.source
            for law, lengths in zip(self._laws, self.lengths, strict=True)
        )

    def phases(self, job: int, iteration_from: int, count: int) -> tuple[FloatArray, FloatArray]:
        """Return rollout and train seconds of iterations of a job, ``(count,)`` each."""
        size, rollout_s, train_s = self._size(job), [], []
        last = iteration_from + count
        for number in range(iteration_from // size, -(-last // size)):
            begin = max(iteration_from - number * size, 0)
            end = min(last - number * size, size)
            block = self._seconds(job, number)
            rollout_s.append(block[0][begin:end])
            train_s.append(block[1][begin:end])
        if not rollout_s:
            return np.empty(0), np.empty(0)
        return np.concatenate(rollout_s), np.concatenate(train_s)

    def finish_s(self, job: int, iteration_from: int, count: int) -> FloatArray:
        """Return when responses end, ascending, ``(count, n_responses)`` seconds."""
        size, rows = self._size(job), []
        last = iteration_from + count
        for number in range(iteration_from // size, -(-last // size)):
            begin = max(iteration_from - number * size, 0)
            rows.append(self._draw(job, number).ends[begin : last - number * size])
        return np.sort(np.concatenate(rows), axis=1)

    def _size(self, job: int) -> int:
        """Return the iterations of one block."""
        return max(_BLOCK_DRAWS // self.responses[job], 1)

    def _seconds(self, job: int, number: int) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of a block, remembered for a while."""
        found = self._known.get((job, number))
        if found is None:
            block = self._draw(job, number)
            found = self._known[job, number] = (block.rollout_s, block.train_s)
            self._held += len(block.rollout_s)
            while self._held > _REMEMBERED and len(self._known) > 1:
                _, (oldest, _) = self._known.popitem(last=False)
                self._held -= len(oldest)
        return found

    def _draw(self, job: int, number: int) -> _Drawn:
        """Draw a block: scores of its iterations first, then all lengths."""
        size, n, slots = self._size(job), self.responses[job], self.slots[job]
        seeds = np.random.SeedSequence((self._seed, self._replication, self._key[job], number))
        rng = np.random.Generator(np.random.Philox(seeds))
        scores = rng.standard_normal(size)
        shares = self.lengths[job].draw(rng, (size, n))
        rounds = -(-n // slots)
        ends = shares if n <= slots else _finish(shares, slots) / rounds
        longest = ends.max(axis=1)
        law, rollout_s = self._laws[job], float(self._jobs.rollout_s[job])
        scale = np.ones(size)
        if law.source == SOURCES[0]:
            scale = _of_law(law.rollout, scores) / np.maximum(longest, 1e-300)
        tokens = np.minimum(shares.mean(axis=1) * scale, 1.0)
        train_s = float(self._jobs.train_s[job])
        return _Drawn(
            ends=ends * (scale * rollout_s)[:, None],
            rollout_s=np.minimum(longest * scale, 1.0) * rollout_s,
            train_s=train_s * _of_law(law.train, scores)
            if law.train_varies
            else train_s * (self._fixed + (1 - self._fixed) * tokens),
        )


def _require_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")


def _of_law(law: Law, scores: FloatArray) -> FloatArray:
    """Return the shares of its longest seconds that a law has at normal scores."""
    return _truncated(scores, law.scores, law.log_s, law.most_s)


def _without_rollout_seconds(jobs: JobTable) -> tuple[JobLaw, ...]:
    """Return the laws as they are without measured rollout seconds: by lengths alone."""
    kept = {k: v for k, v in jobs.optional.items() if k not in ("rollout_p50_s", "rollout_p95_s")}
    return job_laws(jobs.replace(optional=kept))


def _length_law(jobs: JobTable, index: int, law: JobLaw, shape: LengthLaw | None) -> LengthLaw:
    """Return one job's lengths from its columns, else the shape, else the guess."""
    limit = 1.0
    if "max_tokens" in jobs.optional and jobs.optional["max_tokens"][index] > 0:
        limit = float(jobs.optional["max_tokens"][index])
    if shape is not None and law.source == SOURCES[2]:
        return shape.scaled(limit)
    response = law.response
    scale = log(limit / response.most_s)
    return LengthLaw(
        limit_tokens=limit,
        at=response.scores,
        log_tokens=tuple(value + scale for value in response.log_s),
        source=law.source,
    )
