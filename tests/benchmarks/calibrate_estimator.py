"""Calibrate and test the phase estimator on published step timings.

Run ``python tests/benchmarks/calibrate_estimator.py [path of phase_timings.csv]`` (default
``../shared/data/timings/phase_timings.csv`` beside the repository).

Rules of the data (its README, column ``quality``), and ours:

* A: both phases and the token count are known: rollout and training.
* B-train-only: ``update_actor_s`` only; rollout oversamples.
* B-length-from-mfu: the token count was derived from the reported MFU: rollout only, circular
  for training.
* B-no-length: ratios only: log-prob pass over update, an outside check.
* Mixture-of-experts rows are left out: the estimator is for dense models.
* *Poor settings*: rows without dynamic batching, slow on purpose. They count in the errors of
  training, not in its fit: MFU_RANGES brackets them.
* Known per row, so given to the estimator: GPU count and type, tensor-parallel size, mean length.

``rollout_s`` is the wall clock of the phase in *colocated* runs, resharding and offloading
included; ``generation_s`` leaves that out and is an average over workers. The fit takes the
former. Two coefficients are fitted by median ratio: the bandwidth efficiency so that the median
of estimated over measured rollout is 1, the MFU as the median of what the wall clock implies.

What this does not show: every usable row comes from one repository (three of its files), so there
is no leave-one-source-out figure, and errors are **in sample**. No row is an H800: it takes the
numbers of the H100 (same bf16 peak, bandwidth and HBM; its slower NVLink is ignored). Two rollout
rows are on an H20, the default rollout GPU; the rest are on H100. All rollout rows are near-repeats
of one workload (7.6B, 512 x 16 samples, limit 8,192), so how the estimate scales with model, batch
and limit is untested, and so is the worst case: every row is an expected case. Training covers
7.6B and 14.8B.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.coefficients import Coefficients
from instances.estimate import Workload, estimate_phases
from instances.hardware import DEFAULT_CLUSTER, H20, GpuType, NodeType

ROOT: Final = Path(__file__).resolve().parents[2]
TIMINGS: Final = ROOT.parent / "shared" / "data" / "timings" / "phase_timings.csv"

#: As in shared/data/prices/gpu_specs.csv; the price plays no part.
H100: Final = GpuType(
    name="H100", hbm_gb=80.0, hbm_tb_per_s=3.35, bf16_tflops=989.0, usd_per_gpu_hour=0.0
)
GPUS: Final = {"H100": H100, "H20": H20}

#: What one would have guessed: 0.7 of the bandwidth, MFU 0.4 on any GPU.
BEFORE: Final = Coefficients(bandwidth_efficiency=0.7, train_mfu=0.4, train_mfu_low_balance=0.4)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One row of the data, as numbers; None where a cell is empty."""

    row_id: str
    file: str
    quality: str
    gpu: str
    gpus: int
    model_b: float
    max_response: float | None
    prompts: float | None
    samples: float | None
    tensor_parallel: int | None
    tokens: float | None
    mean_response: float | None
    rollout_s: float | None
    generation_s: float | None
    logprob_s: float | None
    update_s: float | None
    reported_mfu: float | None
    dense: bool
    oversampled: bool
    poor: bool

    def workload(self) -> Workload:
        """Return what the estimator is asked."""
        assert self.max_response is not None
        assert self.prompts is not None
        assert self.samples is not None
        return Workload.of(
            {
                "model_b": self.model_b,
                "max_tokens": self.max_response,
                "prompts_per_step": self.prompts,
                "samples_per_prompt": self.samples,
                "rollout_nodes": self.gpus / 8,
                "train_nodes": self.gpus / 8,
            }
        )

    def estimates(self, coefficients: Coefficients) -> tuple[float, float]:
        """Return the expected rollout and update seconds for this row's mean length."""
        assert self.tokens is not None
        assert self.max_response is not None
        ratio = min(1.0, (self.tokens - coefficients.prompt_tokens) / self.max_response)
        mine = coefficients.replace(
            mean_to_max_ratio=ratio,
            tensor_parallel=float(self.tensor_parallel or 0),
            logprob_passes=0.0,
        )
        node = NodeType(gpu=GPUS[self.gpu])
        cluster = DEFAULT_CLUSTER.replace(rollout=node, train=node)
        phases = estimate_phases(self.workload(), cluster, mine)
        return float(phases.rollout_expected_s[0]), float(phases.train_expected_s[0])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_timings(path: Path = TIMINGS) -> list[Timing]:
    """Read the rows whose GPU count is one number."""
    rows = []
    with open(path, encoding="utf-8", newline="") as handle:
        for cells in csv.DictReader(handle):
            if not cells["n_gpus"].isdigit():
                continue
            parallel = cells["rollout_parallel"].removeprefix("tp")
            rows.append(
                Timing(
                    row_id=cells["id"],
                    file=cells["source"].partition(" row")[0].split(" ")[-1].split("/")[-1],
                    quality=cells["quality"],
                    gpu=cells["gpu"],
                    gpus=int(cells["n_gpus"]),
                    model_b=float(cells["params_b"]),
                    max_response=_number(cells["max_response"]),
                    prompts=_number(cells["prompts_per_step"]),
                    samples=_number(cells["samples_per_prompt"]),
                    tensor_parallel=int(parallel) if parallel.isdigit() else None,
                    tokens=_number(cells["derived_tokens_per_sample"]),
                    mean_response=_number(cells["mean_response"]),
                    rollout_s=_number(cells["rollout_s"]),
                    generation_s=_number(cells["generation_s"]),
                    logprob_s=_number(cells["old_logprob_s"]),
                    update_s=_number(cells["update_actor_s"]),
                    reported_mfu=_number(cells["mfu_actor"]),
                    dense=cells["params_b"] == cells["active_params_b"],
                    oversampled=cells["oversampled_rollout"].startswith("yes"),
                    poor="dyn_bsz=FALSE" in cells["notes"]
                    or "no dynamic batching" in cells["notes"],
                )
            )
    return rows


def rollout_rows(rows: Iterable[Timing]) -> list[Timing]:
    """Return the rows that may judge the rollout."""
    return [
        row
        for row in rows
        if row.quality in ("A", "B-length-from-mfu")
        and row.dense
        and not row.oversampled
        and row.rollout_s is not None
    ]


def train_rows(rows: Iterable[Timing]) -> list[Timing]:
    """Return the rows that may judge the update: their token count does not hang on the MFU."""
    return [row for row in rows if row.quality in ("A", "B-train-only") and row.dense]


def implied_mfu(row: Timing) -> float:
    """Return the MFU at which the estimated update takes as long as measured."""
    at_one = Coefficients(train_mfu=1.0, train_mfu_low_balance=1.0)
    assert row.update_s is not None
    return row.estimates(at_one)[1] / row.update_s


def fit_bandwidth(rollouts: Sequence[Timing]) -> float:
    """Return the bandwidth efficiency at which the median of estimated / measured is 1."""
    low, high = 0.05, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        at = Coefficients(bandwidth_efficiency=middle)
        ratios = [row.estimates(at)[0] / row.rollout_s for row in rollouts if row.rollout_s]
        low, high = (middle, high) if statistics.median(ratios) > 1 else (low, middle)
    return (low + high) / 2


def fit(rows: Sequence[Timing]) -> Coefficients:
    """Return the default coefficients with the two efficiencies fitted, not rounded."""
    mfu = {
        gpu: statistics.median(
            implied_mfu(row) for row in train_rows(rows) if row.gpu == gpu and not row.poor
        )
        for gpu in GPUS
    }
    return Coefficients(
        bandwidth_efficiency=fit_bandwidth(rollout_rows(rows)),
        train_mfu=mfu["H100"],
        train_mfu_low_balance=mfu["H20"],
    )


class ErrorRow(NamedTuple):
    """Relative errors of one group of rows, before and after fitting."""

    figure: str
    group: str
    n: int
    before: tuple[float, float]
    after: tuple[float, float]

    def markdown(self) -> str:
        """Return one line of the table; errors in per cent."""
        cells = [f"{100 * error:.0f} %" for error in (*self.before, *self.after)]
        return f"| {self.figure} | {self.group} | {self.n} | {' | '.join(cells)} |"


HEADER: Final = (
    "| figure | rows | n | median error, guessed | p90, guessed | median error, fitted "
    "| p90, fitted |\n|---|---|---|---|---|---|---|"
)


def errors(
    figure: str,
    group: str,
    rows: Sequence[Timing],
    pair: Callable[[Timing, Coefficients], tuple[float, float]],
) -> ErrorRow:
    """Return median and p90 of |estimated - measured| / measured."""

    def summary(coefficients: Coefficients) -> tuple[float, float]:
        pairs = [pair(row, coefficients) for row in rows]
        relative = [abs(got - measured) / measured for got, measured in pairs]
        return float(np.median(relative)), float(np.percentile(relative, 90))

    return ErrorRow(figure, group, len(rows), summary(BEFORE), summary(Coefficients()))


def error_table(rows: Sequence[Timing]) -> list[ErrorRow]:
    """Return the errors of both figures: in all, per quality, per file, and where it matters."""

    def rollout(row: Timing, c: Coefficients) -> tuple[float, float]:
        assert row.rollout_s is not None
        return row.estimates(c)[0], row.rollout_s

    def generation(row: Timing, c: Coefficients) -> tuple[float, float]:
        assert row.generation_s is not None
        return row.estimates(c)[0], row.generation_s

    def update(row: Timing, c: Coefficients) -> tuple[float, float]:
        assert row.update_s is not None
        return row.estimates(c)[1], row.update_s

    out = []
    for figure, chosen, pair in (
        ("rollout", rollout_rows(rows), rollout),
        ("train", train_rows(rows), update),
    ):
        groups: dict[str, list[Timing]] = {"all": chosen}
        for row in chosen:
            for key in (f"quality {row.quality}", f"file {row.file}", f"on {row.gpu}"):
                groups.setdefault(key, []).append(row)
        if figure == "rollout":
            for size in (1, 4):
                groups[f"tp{size}"] = [row for row in chosen if row.tensor_parallel == size]
        else:
            groups["poor settings"] = [row for row in chosen if row.poor]
            groups["other settings"] = [row for row in chosen if not row.poor]
        order = sorted(groups, key=lambda key: (key != "all", key))
        out += [errors(figure, key, groups[key], pair) for key in order]
    generated = [row for row in rollout_rows(rows) if row.generation_s is not None]
    out.append(errors("generation only", "all", generated, generation))
    return out


#: The groups of the short table in the README and in the docstring of instances.estimate.
SHORT: Final = (
    ("rollout", "all"),
    ("rollout", "quality A"),
    ("rollout", "quality B-length-from-mfu"),
    ("rollout", "on H20"),
    ("rollout", "tp4"),
    ("train", "all"),
    ("train", "quality A"),
    ("train", "quality B-train-only"),
    ("train", "other settings"),
    ("train", "poor settings"),
)


def short_table(rows: Sequence[Timing]) -> list[str]:
    """Return the lines of the short table, its header included."""
    known = {(row.figure, row.group): row for row in error_table(rows)}
    return [*HEADER.splitlines(), *(known[key].markdown() for key in SHORT)]


def mfu_ranges(rows: Sequence[Timing]) -> dict[str, tuple[float, float, float, int]]:
    """Return lowest, median and highest implied MFU and n per GPU, poor settings included."""
    out = {}
    for gpu in GPUS:
        implied = [implied_mfu(row) for row in train_rows(rows) if row.gpu == gpu]
        out[gpu] = (min(implied), statistics.median(implied), max(implied), len(implied))
    return out


def outside_checks(rows: Sequence[Timing]) -> list[str]:
    """Return what was not used for any fit, in words."""
    shares = [row.logprob_s / row.update_s for row in rows if row.logprob_s and row.update_s]
    lines = [
        f"log-prob pass over update: estimated 0.33, measured median "
        f"{statistics.median(shares):.2f} (n = {len(shares)}, every quality, MoE included)"
    ]
    files = {row.file: [r for r in rollout_rows(rows) if r.file == row.file] for row in rows}
    learned, other = files["dapo7b.csv"], files["grpo_qwen2.5_7b.csv"]
    at = Coefficients(bandwidth_efficiency=fit_bandwidth(learned))
    relative = [abs(r.estimates(at)[0] / r.rollout_s - 1) for r in other if r.rollout_s]
    lines.append(
        f"rollout: fitted on dapo7b.csv alone (n = {len(learned)}) {at.bandwidth_efficiency:.2f}; "
        f"then the other file of the same source is off by {statistics.median(relative):.0%} "
        f"(median, n = {len(relative)})"
    )
    for gpu in GPUS:
        reported = [
            row.reported_mfu
            for row in rows
            if row.reported_mfu and row.gpu == gpu and row.dense and not row.poor
        ]
        lines.append(
            f"MFU that the frameworks report on {gpu}, dense, not poor: "
            f"{min(reported):.2f} / {statistics.median(reported):.2f} / {max(reported):.2f} "
            f"(n = {len(reported)}); wall clock gives less where both are known"
        )
    return lines


def typical_lengths(rows: Sequence[Timing]) -> tuple[float, float, int]:
    """Return median prompt tokens, median mean-to-max ratio and n of rows that give both."""
    known = [row for row in rows if row.mean_response and row.tokens and row.max_response]
    prompts = [row.tokens - row.mean_response for row in known if row.tokens and row.mean_response]
    ratios = [
        row.mean_response / row.max_response
        for row in known
        if row.mean_response and row.max_response
    ]
    return statistics.median(prompts), statistics.median(ratios), len(known)


def main(arguments: Sequence[str]) -> None:
    """Print fits, errors, ranges and outside checks."""
    rows = read_timings(Path(arguments[0]) if arguments else TIMINGS)
    got, used = fit(rows), Coefficients()
    for name in ("bandwidth_efficiency", "train_mfu", "train_mfu_low_balance"):
        print(
            f"{name}: guessed {getattr(BEFORE, name)}, fitted {getattr(got, name):.4f}, "
            f"in use {getattr(used, name)}"
        )
    prompts, ratio, n = typical_lengths(rows)
    print(f"prompt_tokens {prompts:.1f}, mean_to_max_ratio {ratio:.4f} (n = {n})\n")
    print(HEADER)
    print("\n".join(row.markdown() for row in error_table(rows)))
    print("\nshort:", *short_table(rows), "", sep="\n")
    for gpu, (low, middle, high, count) in mfu_ranges(rows).items():
        print(f"implied MFU on {gpu}: {low:.3f} / {middle:.3f} / {high:.3f} (n = {count})")
    print("\n".join(outside_checks(rows)))
    print(f"not used: {sum(not row.dense for row in rows)} mixture-of-experts rows")


if __name__ == "__main__":
    main(sys.argv[1:])
