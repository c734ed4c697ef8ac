"""The named numbers behind estimated phase seconds: value, unit, where from, how to replace.

:class:`Coefficients` holds what a GPU and a framework reach; :data:`SHAPES` holds what a model
of some size keeps and multiplies. Both belong to the formulas of :mod:`instances.estimate`.

Every field says how sure it is (``kind`` in :func:`coefficient_rows`):

* ``fitted``: median ratio on published step timings, by
  ``tests/benchmarks/calibrate_estimator.py``. All of them come from **one** source repository,
  and none of its GPUs is an H800; see the notes of that script.
* ``measured``: the median of numbers read off the same timings.
* ``stated``: documented by others, or a definition.
* ``guess``: ours.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.file_kinds import refuse_other_kind
from instances.hardware import GpuType
from instances.toml_file import read_toml

__all__ = [
    "DEFAULT_COEFFICIENTS",
    "MFU_RANGES",
    "SHAPES",
    "CoefficientRow",
    "Coefficients",
    "MfuRange",
    "ModelShape",
    "attention_width_of",
    "coefficient_rows",
    "coefficients_from_dict",
    "kv_bytes_per_token_of",
    "read_coefficients",
]

FloatArray = npt.NDArray[np.float64]

_TIMINGS: Final = "shared/data/timings/phase_timings.csv"


def _number(default: float, unit: str, kind: str, source: str) -> Any:
    return field(default=default, metadata={"unit": unit, "kind": kind, "source": source})


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """What hardware and framework reach; replace any of them by keyword.

    Units and origins of the fields are printed by :func:`coefficient_rows`. Overrides:
    ``Coefficients(train_mfu=0.4)``, :meth:`replace`, or :func:`coefficients_from_dict` for
    names that come from a person.

    Attributes
    ----------
    bandwidth_efficiency : float
        Share of the peak HBM bandwidth that decoding reaches.
    decode_compute_efficiency : float
        Share of the peak bf16 FLOP/s that decoding and prefill reach when compute-bound.
    train_mfu, train_mfu_low_balance : float
        Model FLOPs utilisation of the update and the log-prob passes; the second one for GPUs
        with less than ``low_balance_flop_per_byte`` (an H20 has 37, an H800 295), which reach
        a larger share of their smaller peak.
    low_balance_flop_per_byte : float
        Peak bf16 FLOP per byte of HBM bandwidth below which a GPU counts as such.
    logprob_passes : float
        Forward passes for log-probabilities per training phase (old policy and reference).
    hbm_share : float
        Share of HBM that weights and KV cache may take on a rollout GPU.
    max_running_sequences : float
        Most sequences that one replica decodes at once, whatever memory is left.
    parallel_step_overhead_s : float
        Seconds added to every decode step of a tensor-parallel group, per node it spans.
    prompt_tokens : float
        Tokens of a prompt; part of the context, not of ``max_tokens``.
    mean_to_max_ratio : float
        Mean response over ``max_tokens`` in the expected case, where no percentiles are given.
    tensor_parallel : float
        GPUs of one rollout replica; 0 means the size with the least worst case.
    """

    bandwidth_efficiency: float = _number(
        0.51,
        "of peak HBM bandwidth",
        "fitted",
        f"{_TIMINGS}: rollout_s, quality A and B-length-from-mfu, dense, n = 24 "
        "(22 H100, 2 H20; one source)",
    )
    decode_compute_efficiency: float = _number(
        0.5, "of peak bf16 FLOP/s", "guess", "no row isolates it"
    )
    train_mfu: float = _number(
        0.30,
        "of peak bf16 FLOP/s",
        "fitted",
        f"{_TIMINGS}: update_actor_s, quality A with dynamic batching, n = 2 (H100, one source); "
        "taken over to the H800 because its bf16 peak is the same",
    )
    train_mfu_low_balance: float = _number(
        0.60,
        "of peak bf16 FLOP/s",
        "fitted",
        f"{_TIMINGS}: update_actor_s, quality B-train-only, n = 10 (H20, one source)",
    )
    low_balance_flop_per_byte: float = _number(
        100.0, "FLOP/byte", "guess", "between the H20 (37) and the A100 (153)"
    )
    logprob_passes: float = _number(2.0, "passes", "stated", "old policy and reference (GRPO, PPO)")
    hbm_share: float = _number(0.9, "of HBM", "stated", "default of vLLM (gpu_memory_utilization)")
    max_running_sequences: float = _number(
        1024.0, "sequences", "stated", "default of verl (rollout.max_num_seqs)"
    )
    parallel_step_overhead_s: float = _number(
        0.010,
        "s/step/node",
        "guess",
        f"{_TIMINGS}: the five rows with tp4 lose about 8 to 30 ms a step",
    )
    prompt_tokens: float = _number(
        157.0,
        "tokens",
        "measured",
        f"{_TIMINGS}: tokens per sample less mean response, quality B-train-only, n = 10 "
        "(mathematics; other tasks differ)",
    )
    mean_to_max_ratio: float = _number(
        0.155,
        "of max_tokens",
        "measured",
        f"{_TIMINGS}: mean_response over max_response, quality B-train-only, n = 10, "
        "range 0.04 to 0.18 (one source)",
    )
    tensor_parallel: float = _number(0.0, "GPUs", "guess", "0: the fastest size that fits")

    def __post_init__(self) -> None:
        for name, low, high in (
            ("bandwidth_efficiency", 0.0, 1.0),
            ("decode_compute_efficiency", 0.0, 1.0),
            ("train_mfu", 0.0, 1.0),
            ("train_mfu_low_balance", 0.0, 1.0),
            ("hbm_share", 0.0, 1.0),
            ("mean_to_max_ratio", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not low < value <= high:
                raise InputError(f"Expected {name} > 0 and <= 1, got {value!r}.")
        for name in (
            "low_balance_flop_per_byte",
            "logprob_passes",
            "parallel_step_overhead_s",
            "prompt_tokens",
        ):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise InputError(f"Expected a finite {name} >= 0, got {value!r}.")
        if not 1 <= self.max_running_sequences < math.inf:
            raise InputError(
                f"Expected a finite max_running_sequences >= 1, got {self.max_running_sequences!r}."
            )
        size = self.tensor_parallel
        if not 0 <= size < math.inf or size != int(size):
            raise InputError(f"Expected tensor_parallel to be a whole number >= 0, got {size!r}.")

    def replace(self, **changes: float) -> Coefficients:
        """Return a copy with some coefficients replaced."""
        return dataclasses.replace(self, **changes)

    def mfu_of(self, gpu: GpuType) -> float:
        """Return the training MFU of this kind of GPU, by its FLOPs per byte of bandwidth."""
        low = gpu.bf16_tflops < self.low_balance_flop_per_byte * gpu.hbm_tb_per_s
        return self.train_mfu_low_balance if low else self.train_mfu


DEFAULT_COEFFICIENTS: Final = Coefficients()


class CoefficientRow(NamedTuple):
    """One coefficient as a person reads it."""

    name: str
    value: float
    unit: str
    kind: str
    source: str


def coefficient_rows(
    coefficients: Coefficients = DEFAULT_COEFFICIENTS,
) -> tuple[CoefficientRow, ...]:
    """Return every coefficient with unit, kind and source; changed ones have kind ``given``."""
    rows = []
    for entry in dataclasses.fields(coefficients):
        value = getattr(coefficients, entry.name)
        unit, kind, source = (entry.metadata[k] for k in ("unit", "kind", "source"))
        if value != entry.default:
            kind, source = "given", f"replaces the default {entry.default:g}"
        rows.append(CoefficientRow(entry.name, value, unit, kind, source))
    return tuple(rows)


def read_coefficients(path: str | Path) -> Coefficients:
    """Read a TOML file of coefficients, ``train_mfu = 0.4`` say; the rest keep their defaults.

    Parameters
    ----------
    path : str or Path
        TOML file, coefficient names and numbers.

    Returns
    -------
    Coefficients

    Raises
    ------
    InputError
        When the file cannot be read, is not TOML, or names an unknown or impossible value.
    """
    return coefficients_from_dict(read_toml(path), Path(path).name)


def coefficients_from_dict(
    data: Mapping[str, Any],
    source: str = "coefficients",
    base: Coefficients = DEFAULT_COEFFICIENTS,
) -> Coefficients:
    """Return ``base`` with the named coefficients replaced.

    Raises
    ------
    InputError
        For an unknown name (with the nearest known one), or a value that is no number or out
        of its range.
    """
    known = [entry.name for entry in dataclasses.fields(Coefficients)]
    for name, value in data.items():
        if name not in known:
            refuse_other_kind(data, "coefficients", source)
            raise InputError(
                f"{source}: Unknown coefficient '{name}'.{did_you_mean(name, known)} "
                f"Known coefficients: {', '.join(known)}."
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{source}: Expected {name} to be a number, got {value!r}.")
    try:
        return base.replace(**{name: float(value) for name, value in data.items()})
    except (InputError, OverflowError) as error:
        raise InputError(f"{source}: {error}") from error


class MfuRange(NamedTuple):
    """Training MFU of the calibration rows by wall clock: lowest, median, highest."""

    low: float
    median: float
    high: float
    n: int


#: Of every dense row whose token count is known apart from its MFU (quality A, B-train-only).
#: The low end of the H100 is settings that their authors made poor on purpose (no dynamic
#: batching): a bracket, not something the estimate matches. Scale train seconds by
#: ``coefficient / low`` and ``coefficient / high`` for the range.
MFU_RANGES: Final[Mapping[str, MfuRange]] = {
    "H100": MfuRange(low=0.11, median=0.21, high=0.33, n=4),
    "H20": MfuRange(low=0.53, median=0.60, high=0.72, n=10),
}


class ModelShape(NamedTuple):
    """What decoding needs of a dense model with grouped-query attention."""

    model_b: float
    layers: int
    kv_heads: int
    head_dim: int
    hidden: int

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of one token in bf16: 2 x layers x kv_heads x head_dim x 2 bytes."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * 2.0

    @property
    def attention_width(self) -> float:
        """Layers x hidden: attention spends 4 x this many FLOPs per token and context token."""
        return float(self.layers * self.hidden)


#: Qwen2.5 3B, 7B, 14B, 32B and 72B, from their published config.json files; ``model_b`` is the
#: true parameter count, embeddings included. Other families differ: a model with the same
#: parameters and more KV heads decodes more slowly than estimated here.
SHAPES: Final = (
    ModelShape(3.09, 36, 2, 128, 2048),
    ModelShape(7.62, 28, 4, 128, 3584),
    ModelShape(14.77, 48, 8, 128, 5120),
    ModelShape(32.76, 64, 8, 128, 5120),
    ModelShape(72.71, 80, 8, 128, 8192),
)


def kv_bytes_per_token_of(model_b: FloatArray) -> FloatArray:
    """Return KV cache bytes per token, ``(n,)``: linear between shapes, constant outside."""
    return _of_shapes(model_b, [shape.kv_bytes_per_token for shape in SHAPES])


def attention_width_of(model_b: FloatArray) -> FloatArray:
    """Return layers x hidden, ``(n,)``: linear between shapes, constant outside."""
    return _of_shapes(model_b, [shape.attention_width for shape in SHAPES])


def _of_shapes(model_b: FloatArray, there: list[float]) -> FloatArray:
    known = [shape.model_b for shape in SHAPES]
    return np.asarray(np.interp(model_b, known, there), dtype=np.float64)
