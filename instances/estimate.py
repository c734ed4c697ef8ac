"""Phase seconds of a job that nobody measured: a roofline with named coefficients.

The name differs from :mod:`instances.profiles`, which *draws* phases for generated traces;
here they are *derived* from a model size, a token limit and a batch. Everything is an estimate
and is labelled so wherever it goes (``JobTable.estimated``).

Symbols: P parameters, A = layers x hidden, K KV-cache bytes per token, p prompt tokens,
L ``max_tokens``, N = prompts x samples sequences a step, G GPUs of a pool, and per GPU the peak
bandwidth BW and peak bf16 FLOP/s F (:class:`~instances.hardware.GpuType`); efficiencies e are
:class:`~instances.coefficients.Coefficients`.

**Rollout.** The pool is G // g replicas of g GPUs; a replica decodes n = ceil(N / replicas)
sequences, at most ``slots`` at a time (memory left after weights, 2P bytes)::

    slots = min(max_running, floor((g x HBM x hbm_share - 2P) / (K (p + L))))
    step(b, c) = max((2P + b K c) / (g BW e_bw),           memory roof: weights + KV cache
                     b (2P + 4 A c) / (g F e_c))           compute roof
                 + [g > 1] x overhead x nodes spanned

for b sequences with contexts of c tokens (roofline model: Williams, Waterman & Patterson, 2009;
2P FLOPs a token and 4 A c for attention: Kaplan et al., 2020; bandwidth-bound decoding:
Pope et al., 2022).

* *Worst case*, every response reaches L: W = ceil(n / slots) equal waves, each
  ``sum over k < L of step(n / W, p + k)``.
* *Expected*: the share of responses longer than x, S(x), falls log-linearly through
  (0, 1), the given percentiles and on to the limit, where the rest is cut off; without
  percentiles S is exponential with mean ``mean_to_max_ratio`` x L after the cut. Sequences
  beyond ``slots`` wait and refill freed slots at full batch; then the batch drains,
  ``sum over k < L of step(min(n, slots) S(k), p + k)``: the stragglers set the end. Slots count
  the mean context of a running sequence instead of p + L.
* Prefill adds n p 2P / (g F e_c) to both (compute-bound; no prefix is shared).
* g is the power of two with the least worst case among those that fit, or as given.

**Train.** 6 P FLOPs a token for the update (Kaplan et al., 2020) and 2 P for each of the
log-prob passes, plus causal attention, at the MFU of the GPU::

    (6 + 2 passes) N (P s + A s^2) / (MFU F G),   s = p + L, or its mean in the expected case

**Memory and sync** follow from ``model_b`` (:func:`~instances.profiles.model_estimates`).

Left out: mixture-of-experts models (dense only), reward and environment time, pipeline bubbles,
whether the *optimiser* fits the training GPUs, framework start-up, and any loss of MFU with more
nodes. tests/benchmarks/calibrate_estimator.py measures how far off the *expected* seconds are
(in sample, all rows from one source, none on an H800; "guessed" is 0.7 of the bandwidth and MFU
0.4; quality as in the data's README; the worst case has no measured counterpart):

| figure | rows | n | median error, guessed | p90, guessed | median error, fitted | p90, fitted |
|---|---|---|---|---|---|---|
| rollout | all | 24 | 25 % | 47 % | 4 % | 40 % |
| rollout | quality A | 4 | 38 % | 55 % | 20 % | 41 % |
| rollout | quality B-length-from-mfu | 20 | 25 % | 42 % | 3 % | 35 % |
| rollout | on H20 | 2 | 25 % | 29 % | 22 % | 23 % |
| rollout | tp4 | 5 | 42 % | 55 % | 34 % | 49 % |
| train | all | 14 | 50 % | 78 % | 11 % | 40 % |
| train | quality A | 4 | 47 % | 68 % | 29 % | 58 % |
| train | quality B-train-only | 10 | 50 % | 81 % | 11 % | 20 % |
| train | other settings | 12 | 47 % | 79 % | 11 % | 20 % |
| train | poor settings | 2 | 66 % | 70 % | 55 % | 61 % |

The calibration rows differ from their median MFU by settings alone: 0.11 to 0.33 on H100, 0.53 to
0.72 on H20 (:data:`~instances.coefficients.MFU_RANGES`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.coefficients import (
    DEFAULT_COEFFICIENTS,
    Coefficients,
    attention_width_of,
    kv_bytes_per_token_of,
)
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster, NodeType
from instances.profiles import model_estimates

__all__ = [
    "COMPUTE_BOUND",
    "MEMORY_BOUND",
    "Estimate",
    "PhaseEstimates",
    "Workload",
    "estimate",
    "estimate_phases",
    "misfit_words",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MEMORY_BOUND: Final = "memory-bound"
COMPUTE_BOUND: Final = "compute-bound"

#: Largest tensor-parallel group that is tried.
_MOST_PARALLEL: Final = 512
_PERCENTILES: Final = (0.50, 0.95, 0.99)


def _quadrature(n: int) -> tuple[list[float], list[float]]:
    """Return nodes x in (0, 1), dense near 0 where responses end, and weights: x = u^2."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    u = (nodes + 1) / 2
    return (u * u).tolist(), (weights * u).tolist()


#: Exact for polynomials up to degree 23 in x; kinks and steep tails cost below 1 %.
_X, _DX = _quadrature(24)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is estimated: one entry a job, all ``(n,) float64``.

    ``response_tokens`` are the 50th, 95th and 99th percentile of response lengths, NaN where
    unknown; nodes are whole nodes of the pool.
    """

    model_b: FloatArray
    max_tokens: FloatArray
    prompts_per_step: FloatArray
    samples_per_prompt: FloatArray
    rollout_nodes: FloatArray
    train_nodes: FloatArray
    response_tokens: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(
        cls, columns: Mapping[str, npt.ArrayLike], response_tokens: Sequence[npt.ArrayLike] = ()
    ) -> Workload:
        """Build a workload from numbers and arrays by field name, broadcast to one length."""
        names = tuple(columns)
        percentiles = response_tokens or (np.nan, np.nan, np.nan)
        cells = [np.asarray(value, dtype=np.float64) for value in (*columns.values(), *percentiles)]
        arrays = [np.atleast_1d(cell) for cell in np.broadcast_arrays(*cells)]
        return cls(
            **dict(zip(names, arrays[:-3], strict=True)),
            response_tokens=(arrays[-3], arrays[-2], arrays[-1]),
        )

    def __len__(self) -> int:
        return len(self.model_b)

    @property
    def params(self) -> FloatArray:
        """P, parameters."""
        return 1e9 * self.model_b

    @property
    def samples(self) -> FloatArray:
        """N, sequences a step."""
        return self.prompts_per_step * self.samples_per_prompt


@dataclass(frozen=True, kw_only=True)
class PhaseEstimates:
    """Estimated seconds, ``(n,) float64`` each; NaN where the model does not fit the GPUs.

    Attributes
    ----------
    rollout_s, train_s : ndarray
        Worst case: every response reaches ``max_tokens``.
    rollout_expected_s, train_expected_s : ndarray
        With response lengths spread below the limit; never above the worst case.
    tensor_parallel : (n,) int64
        GPUs of one rollout replica, 0 where nothing fits.
    slots : (n,) float64
        Sequences that one replica can decode at once in the worst case.
    compute_bound : (n,) bool
        Whether the compute roof takes longer than the memory roof in the worst-case rollout.
    fits : (n,) bool
        Whether weights and one sequence of full length fit the rollout pool of the job.
    """

    rollout_s: FloatArray
    rollout_expected_s: FloatArray
    train_s: FloatArray
    train_expected_s: FloatArray
    tensor_parallel: IntArray
    slots: FloatArray
    compute_bound: BoolArray
    fits: BoolArray


# -- response lengths ----------------------------------------------------------------------


def _decay_of_mean(ratio: float) -> float:
    """Return d with mean of exp(-d x), cut at x = 1, equal to ``ratio``: (1 - e^-d) / d."""
    if ratio >= 1.0:
        return 0.0
    low, high = 0.0, 1.0 / ratio
    for _ in range(100):
        d = (low + high) / 2
        if -np.expm1(-d) > ratio * d:
            low = d
        else:
            high = d
    return (low + high) / 2


class _Lengths:
    """S(x), the share of responses longer than x times ``max_tokens``, and its moments."""

    def __init__(self, work: Workload, coefficients: Coefficients) -> None:
        self.knots: list[tuple[BoolArray, FloatArray, float]] = []
        unknown = np.ones(len(work), dtype=np.bool_)
        for level, tokens in zip(_PERCENTILES, work.response_tokens, strict=True):
            given = ~np.isnan(tokens)
            unknown &= ~given
            if given.any():
                self.knots.append((given, tokens / work.max_tokens, float(np.log1p(-level))))
        decay = _decay_of_mean(coefficients.mean_to_max_ratio)
        self.unknown_decay = np.where(unknown, decay, 0.0)

    def survival(self, x: float) -> FloatArray:
        """Return S(x), ``(n,)``, for x below 1."""
        log_s = -self.unknown_decay * x
        at, before = np.zeros_like(log_s), np.zeros_like(log_s)
        for given, knot, level in self.knots:
            slope = (level - before) / np.maximum(knot - at, 1e-12)
            beyond = given & (x > at)
            log_s = np.where(beyond, before + slope * (x - at), log_s)
            at, before = np.where(given, knot, at), np.where(given, level, before)
        return np.asarray(np.exp(log_s))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the mean square of min(length, limit) over the limit."""
        mean = np.zeros_like(self.unknown_decay)
        square = np.zeros_like(self.unknown_decay)
        for x, dx in zip(_X, _DX, strict=True):
            longer = self.survival(x)
            mean += dx * longer
            square += dx * 2 * x * longer
        return mean, square


# -- rollout -------------------------------------------------------------------------------


class _Replica:
    """One tensor-parallel group of ``gpus`` GPUs, for every job of a workload."""

    def __init__(self, work: Workload, gpus: int, node: NodeType, c: Coefficients) -> None:
        gpu = node.gpu
        self.tokens = work.max_tokens
        self.prompt = c.prompt_tokens
        self.weight_bytes = 2.0 * work.params
        self.kv_bytes = kv_bytes_per_token_of(work.model_b)
        self.width = attention_width_of(work.model_b)
        self.bytes_per_s = gpus * gpu.hbm_tb_per_s * 1e12 * c.bandwidth_efficiency
        self.flop_per_s = gpus * gpu.bf16_tflops * 1e12 * c.decode_compute_efficiency
        nodes = -(-gpus // node.gpus_per_node)
        self.overhead_s = c.parallel_step_overhead_s * nodes if gpus > 1 else 0.0
        replicas = work.rollout_nodes * node.gpus_per_node // gpus
        self.sequences = np.ceil(work.samples / np.maximum(replicas, 1))
        self.free_bytes = gpus * gpu.hbm_gb * 1e9 * c.hbm_share - self.weight_bytes
        self.most = c.max_running_sequences
        self.slots = self.slots_for(self.prompt + self.tokens)
        self.fits: BoolArray = (replicas >= 1) & (self.slots >= 1)
        # A replica that does not fit is computed with one slot and then left out.
        self.slots = np.maximum(self.slots, 1.0)

    def slots_for(self, context: FloatArray) -> FloatArray:
        """Return how many sequences with this context fit beside the weights."""
        fit = np.floor(self.free_bytes / (self.kv_bytes * context))
        return np.asarray(np.minimum(self.most, fit))

    def roofs_s(self, batch: FloatArray, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of one step by the memory roof and by the compute roof."""
        memory = (self.weight_bytes + batch * self.kv_bytes * context) / self.bytes_per_s
        compute = batch * (self.weight_bytes + 4.0 * self.width * context) / self.flop_per_s
        return memory, compute

    def step_s(self, batch: FloatArray, context: FloatArray) -> FloatArray:
        """Return the seconds of one decode step of the whole batch."""
        return np.asarray(np.maximum(*self.roofs_s(batch, context)) + self.overhead_s)

    def prefill_s(self) -> FloatArray:
        """Return the seconds to read every prompt, n p 2P / (F e)."""
        return self.sequences * self.prompt * self.weight_bytes / self.flop_per_s

    def worst_s(self) -> tuple[FloatArray, BoolArray]:
        """Return the worst-case seconds and whether the compute roof binds over the phase."""
        waves = np.ceil(self.sequences / self.slots)
        batch = self.sequences / waves
        seconds = np.zeros_like(batch)
        roofs = np.zeros((2, len(batch)))
        for x, dx in zip(_X, _DX, strict=True):
            pair = self.roofs_s(batch, self.prompt + x * self.tokens)
            seconds += dx * np.maximum(*pair)
            roofs += dx * np.array(pair)
        decode = waves * self.tokens * (seconds + self.overhead_s)
        return decode + self.prefill_s(), roofs[1] > roofs[0]

    def expected_s(self, lengths: _Lengths) -> FloatArray:
        """Return the expected seconds: refilled slots at full batch, then the drain."""
        mean, square = lengths.moments()
        # Mean context of a running sequence: E[X^2] / (2 E[X]) tokens into its response.
        running = self.prompt + self.tokens * square / (2 * np.maximum(mean, 1e-300))
        slots = np.maximum(self.slots_for(running), self.slots)
        batch = np.minimum(self.sequences, slots)
        refilled = (self.sequences - batch) * mean * self.tokens / batch
        drain = np.zeros_like(batch)
        for x, dx in zip(_X, _DX, strict=True):
            drain += dx * self.step_s(batch * lengths.survival(x), self.prompt + x * self.tokens)
        return refilled * self.step_s(batch, running) + self.tokens * drain + self.prefill_s()


def _sizes(work: Workload, node: NodeType, coefficients: Coefficients) -> list[int]:
    """Return the tensor-parallel sizes to try."""
    if coefficients.tensor_parallel:
        return [int(coefficients.tensor_parallel)]
    most = float(np.max(work.rollout_nodes, initial=1.0)) * node.gpus_per_node
    return [2**k for k in range(_MOST_PARALLEL.bit_length()) if 2**k <= most]


# -- train ---------------------------------------------------------------------------------


def _train_s(
    work: Workload, mean: FloatArray, square: FloatArray, node: NodeType, c: Coefficients
) -> FloatArray:
    """Return (6 + 2 passes) N (P E[s] + A E[s^2]) / (MFU F G), s = prompt + response.

    ``mean`` and ``square`` are the moments of the response over ``max_tokens``.
    """
    tokens = c.prompt_tokens + mean * work.max_tokens
    pairs = (
        c.prompt_tokens**2
        + 2 * c.prompt_tokens * mean * work.max_tokens
        + square * work.max_tokens**2
    )
    flop = work.params * tokens + attention_width_of(work.model_b) * pairs
    gpus = work.train_nodes * node.gpus_per_node
    flop_per_s = c.mfu_of(node.gpu) * node.gpu.bf16_tflops * 1e12 * gpus
    return (6.0 + 2.0 * c.logprob_passes) * work.samples * flop / flop_per_s


# -- both ----------------------------------------------------------------------------------


def estimate_phases(
    work: Workload,
    cluster: Cluster = DEFAULT_CLUSTER,
    coefficients: Coefficients = DEFAULT_COEFFICIENTS,
) -> PhaseEstimates:
    """Estimate both phases of many jobs at once; formulas in the module's docstring.

    Parameters
    ----------
    work : Workload
        Positive numbers; not validated here.
    cluster : Cluster
        Gives the GPUs and the GPUs per node of both pools.
    coefficients : Coefficients
        What the hardware reaches.

    Returns
    -------
    PhaseEstimates
    """
    n = len(work)
    lengths = _Lengths(work, coefficients)
    rollout, expected = np.full(n, np.inf), np.full(n, np.nan)
    size, slots = np.zeros(n, dtype=np.int64), np.full(n, np.nan)
    bound, fits = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    with np.errstate(all="ignore"):
        for gpus in _sizes(work, cluster.rollout, coefficients):
            replica = _Replica(work, gpus, cluster.rollout, coefficients)
            seconds, compute = replica.worst_s()
            fits |= replica.fits
            better = replica.fits & (seconds < rollout)
            if not better.any():
                continue
            rollout = np.where(better, seconds, rollout)
            expected = np.where(better, replica.expected_s(lengths), expected)
            size = np.where(better, gpus, size)
            slots = np.where(better, replica.slots, slots)
            bound = np.where(better, compute, bound)
        one = np.ones(n)
        mean, square = lengths.moments()
        train = _train_s(work, one, one, cluster.train, coefficients)
        train_expected = _train_s(work, mean, square, cluster.train, coefficients)
    return PhaseEstimates(
        rollout_s=np.where(fits, rollout, np.nan),
        # Equal up to rounding where every response reaches the limit.
        rollout_expected_s=np.where(fits, np.minimum(expected, rollout), np.nan),
        train_s=train,
        train_expected_s=np.minimum(train_expected, train),
        tensor_parallel=size,
        slots=slots,
        compute_bound=bound,
        fits=fits,
    )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The estimate for one job: what it was asked for, then what it says.

    Attributes
    ----------
    model_b : float
        Parameters, 1e9.
    max_tokens : float
        Token limit of a response.
    prompts_per_step : float
        Prompts of an iteration.
    samples_per_prompt : float
        Responses to each.
    rollout_nodes : int
        Rollout nodes of the job.
    train_nodes : int
        Train nodes of the job.
    rollout_s, train_s : float
        Worst case: every response reaches ``max_tokens``.
    rollout_expected_s, train_expected_s : float
        With response lengths spread below the limit.
    rollout_state_gb, train_state_gb : float
        Host DRAM per node.
    sync_gb, sync_s : float
        One bf16 copy, and its hierarchical transfer.
    rollout_roof, train_roof : str
        Which roof binds in the worst case: ``memory-bound`` or ``compute-bound``.
    tensor_parallel : int
        GPUs of one rollout replica.
    decode_slots : float
        Sequences that one replica can decode at once in the worst case.
    """

    model_b: float
    max_tokens: float
    prompts_per_step: float
    samples_per_prompt: float
    rollout_nodes: int
    train_nodes: int
    rollout_s: float
    rollout_expected_s: float
    train_s: float
    train_expected_s: float
    rollout_state_gb: float
    train_state_gb: float
    sync_gb: float
    sync_s: float
    rollout_roof: str
    train_roof: str
    tensor_parallel: int
    decode_slots: float


def estimate(  # noqa: PLR0913 - one parameter per column of a trace
    *,
    model_b: float,
    max_tokens: float,
    prompts_per_step: float,
    samples_per_prompt: float,
    rollout_nodes: int = 1,
    train_nodes: int = 1,
    cluster: Cluster = DEFAULT_CLUSTER,
    coefficients: Coefficients = DEFAULT_COEFFICIENTS,
    response_p50_tokens: float | None = None,
    response_p95_tokens: float | None = None,
    response_p99_tokens: float | None = None,
) -> Estimate:
    """Estimate one job; the same numbers as :func:`estimate_phases` for a table of one.

    Parameters
    ----------
    model_b : float
        Parameters, 1e9, of a dense model.
    max_tokens : float
        Token limit of a response.
    prompts_per_step, samples_per_prompt : float
        Batch of one step.
    rollout_nodes, train_nodes : int
        Whole nodes of each pool.
    cluster, coefficients
        GPUs and links; what they reach.
    response_p50_tokens, response_p95_tokens, response_p99_tokens : float, optional
        Percentiles of response lengths, for the expected seconds.

    Raises
    ------
    InputError
        For a number that is not positive and finite, percentiles out of order, or a model
        that does not fit the rollout GPUs.
    """
    given: dict[str, float] = {
        "model_b": model_b,
        "max_tokens": max_tokens,
        "prompts_per_step": prompts_per_step,
        "samples_per_prompt": samples_per_prompt,
        "rollout_nodes": rollout_nodes,
        "train_nodes": train_nodes,
    }
    percentiles = {
        "response_p50_tokens": response_p50_tokens,
        "response_p95_tokens": response_p95_tokens,
        "response_p99_tokens": response_p99_tokens,
    }
    _require_positive(given, percentiles)
    work = Workload.of(given, [np.nan if v is None else v for v in percentiles.values()])
    phases = estimate_phases(work, cluster, coefficients)
    if not phases.fits[0]:
        raise InputError(f"Expected a model that fits, got {misfit_words(work, 0, cluster)}.")
    return _first(work, phases, cluster)


def _first(work: Workload, phases: PhaseEstimates, cluster: Cluster) -> Estimate:
    """Return the first job of a workload with its estimates as plain numbers."""
    states = model_estimates(work.model_b, cluster)
    return Estimate(
        model_b=float(work.model_b[0]),
        max_tokens=float(work.max_tokens[0]),
        prompts_per_step=float(work.prompts_per_step[0]),
        samples_per_prompt=float(work.samples_per_prompt[0]),
        rollout_nodes=int(work.rollout_nodes[0]),
        train_nodes=int(work.train_nodes[0]),
        rollout_s=float(phases.rollout_s[0]),
        rollout_expected_s=float(phases.rollout_expected_s[0]),
        train_s=float(phases.train_s[0]),
        train_expected_s=float(phases.train_expected_s[0]),
        rollout_state_gb=float(states["rollout_state_gb"][0]),
        train_state_gb=float(states["train_state_gb"][0]),
        sync_gb=float(states["sync_gb"][0]),
        sync_s=float(states["sync_s"][0]),
        rollout_roof=COMPUTE_BOUND if phases.compute_bound[0] else MEMORY_BOUND,
        train_roof=COMPUTE_BOUND,
        tensor_parallel=int(phases.tensor_parallel[0]),
        decode_slots=float(phases.slots[0]),
    )


def _require_positive(given: dict[str, float], percentiles: dict[str, float | None]) -> None:
    for name, value in given.items():
        whole = not name.endswith("_nodes") or value == np.floor(value)
        if not 0 < value < np.inf or not whole:
            kind = "a whole number >= 1" if name.endswith("_nodes") else "a finite number > 0"
            raise InputError(f"Expected {name} to be {kind}, got {value!r}.")
    below, least = "0", 0.0
    for name, known in percentiles.items():
        if known is None:
            continue
        if not 0 < known <= given["max_tokens"] or known < least:
            raise InputError(f"Expected {below} <= {name} <= max_tokens, got {known!r}.")
        below, least = name, known


def misfit_words(work: Workload, index: int, cluster: Cluster) -> str:
    """Say why a job does not fit the rollout GPUs, for an error message."""
    gpu = cluster.rollout.gpu
    gpus = work.rollout_nodes[index] * cluster.rollout.gpus_per_node
    return (
        f"model_b {work.model_b[index]:g} and max_tokens {work.max_tokens[index]:g} on "
        f"{gpus:g} {gpu.name} of {gpu.hbm_gb:g} GB: no replica holds the weights and one "
        f"sequence of full length"
    )
