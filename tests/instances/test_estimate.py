"""Estimated phases: numbers by hand, limits, orders, labels, and the calibration itself."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import calibrate_estimator as calibration
from instances import estimate as module
from instances.coefficients import (
    DEFAULT_COEFFICIENTS,
    MFU_RANGES,
    SHAPES,
    Coefficients,
    attention_width_of,
    coefficient_rows,
    coefficients_from_dict,
    kv_bytes_per_token_of,
)
from instances.errors import InputError
from instances.estimate import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    Workload,
    estimate,
    estimate_phases,
)
from instances.hardware import DEFAULT_CLUSTER, H20, H800, NodeType

#: No prompt, one GPU a replica, half of every peak, MFU 0.3: easy to follow by hand.
HAND = Coefficients(
    bandwidth_efficiency=0.5,
    decode_compute_efficiency=0.5,
    train_mfu=0.3,
    prompt_tokens=0.0,
    tensor_parallel=1.0,
)
#: A 7.62B model keeps 57,344 bytes a token (2 x 28 layers x 4 heads x 128 x 2 bytes) and has
#: an attention width of 28 x 3584 = 100,352.
ONE = {"model_b": 7.62, "max_tokens": 1000.0, "prompts_per_step": 8.0, "samples_per_prompt": 1.0}


def faster(node: NodeType, **changes: float) -> NodeType:
    """Return the node with other GPU numbers."""
    return dataclasses.replace(node, gpu=dataclasses.replace(node.gpu, **changes))


# -- by hand ---------------------------------------------------------------------------------


def test_batch_of_one_is_bound_by_reading_the_weights() -> None:
    got = estimate(**ONE, coefficients=HAND)
    # 8 sequences on 8 H20: each GPU decodes one. A step reads 15.24 GB of weights and, on
    # average, the KV cache of 500 tokens (0.028672 GB), at 0.5 x 4 TB/s; 1000 steps.
    assert got.rollout_s == pytest.approx(1000 * (15.24 + 0.028672) / 2000)
    assert got.rollout_s == pytest.approx(7.634336)
    assert (got.rollout_roof, got.tensor_parallel) == (MEMORY_BOUND, 1)


def test_a_huge_batch_is_bound_by_compute() -> None:
    got = estimate(**ONE | {"samples_per_prompt": 1024.0}, coefficients=HAND)
    # 1024 sequences a GPU: each token takes 2 x 7.62e9 FLOPs and 4 x 100,352 x 500 for
    # attention, at 0.5 x 148 TFLOP/s. Memory: (15.24 + 1024 x 0.028672) GB takes 22 ms only.
    step_s = 1024 * (15.24e9 + 0.200704e9) / 74e12
    assert step_s == pytest.approx(0.21366, abs=1e-5)
    assert got.rollout_s == pytest.approx(1000 * step_s)
    assert got.rollout_roof == COMPUTE_BOUND
    # (96 x 0.9 - 15.24) GB / (57,344 x 1000) = 1240 sequences fit, 1024 may run.
    assert got.decode_slots == 1024


def test_slots_and_waves() -> None:
    long = ONE | {"max_tokens": 10_000.0, "samples_per_prompt": 300.0}
    # At the full bandwidth the compute roof binds all along, also with the longest context.
    got = estimate(**long, coefficients=HAND.replace(bandwidth_efficiency=1.0))
    # floor(71.16 GB / (57,344 x 10,000 B)) = 124 sequences; 300 of them take three waves of 100.
    assert got.decode_slots == 124
    assert (15.24e9 + 100 * 57_344 * 10_000) / 4e12 < 100 * (15.24e9 + 4 * 100_352 * 10_000) / 74e12
    compute_s = 100 * (15.24e9 + 4 * 100_352 * 5000) / 74e12
    assert got.rollout_s == pytest.approx(3 * 10_000 * compute_s)


def test_prefill_reads_every_prompt() -> None:
    with_prompt = HAND.replace(prompt_tokens=200.0)
    got = estimate(**ONE, coefficients=with_prompt).rollout_s
    # 200 tokens x 15.24 GFLOP at 74 TFLOP/s, and 200 more tokens of KV cache in each step.
    decode_s = 1000 * (15.24 + 57_344 * 700 / 1e9) / 2000
    assert got == pytest.approx(decode_s + 200 * 15.24e9 / 74e12)


def test_a_tensor_parallel_group_shares_the_weights_and_pays_every_step() -> None:
    two = HAND.replace(tensor_parallel=2.0, parallel_step_overhead_s=0.01)
    got = estimate(**ONE, coefficients=two)
    # Four replicas of two GPUs, two sequences each; 10 ms in each of the 1000 steps.
    assert got.rollout_s == pytest.approx(1000 * ((15.24 + 2 * 0.028672) / 4000 + 0.01))
    # A group across two nodes pays twice.
    sixteen = HAND.replace(tensor_parallel=16.0, parallel_step_overhead_s=0.01)
    wide = estimate(**ONE, rollout_nodes=2, coefficients=sixteen)
    assert wide.rollout_s == pytest.approx(1000 * ((15.24 + 8 * 0.028672) / 32_000 + 0.02))


def test_training_by_hand() -> None:
    got = estimate(**ONE, coefficients=HAND)
    # 8 sequences of 1000 tokens: 6 + 2 x 2 FLOPs per parameter and token, and causal attention,
    # on 8 H800 at 0.3 x 989 TFLOP/s.
    flop = 10 * 8 * (7.62e9 * 1000 + 100_352 * 1000**2)
    assert got.train_s == pytest.approx(flop / (0.3 * 989e12 * 8))
    assert got.train_roof == COMPUTE_BOUND
    # A prompt of 200 tokens makes each sequence 1200 long.
    longer = estimate(**ONE, coefficients=HAND.replace(prompt_tokens=200.0))
    flop = 10 * 8 * (7.62e9 * 1200 + 100_352 * 1200**2)
    assert longer.train_s == pytest.approx(flop / (0.3 * 989e12 * 8))
    update_only = estimate(**ONE, coefficients=HAND.replace(logprob_passes=0.0))
    assert update_only.train_s == pytest.approx(0.6 * got.train_s)
    assert estimate(**ONE, train_nodes=2, coefficients=HAND).train_s == got.train_s / 2


def test_memory_and_sync_are_those_of_the_design() -> None:
    got = estimate(**ONE | {"model_b": 7.0})
    assert (got.rollout_state_gb, got.train_state_gb, got.sync_gb) == (275.7, 240.0, 14.0)
    assert got.sync_s == pytest.approx(112 / 20 + 112 / 400)


def test_units_scale_as_they_should() -> None:
    """Each hardware number is in the unit of its name: doubling it halves its own time only."""
    base = estimate(**ONE, coefficients=HAND)
    for change, ratio in (({"hbm_tb_per_s": 8.0}, 0.5), ({"bf16_tflops": 296.0}, 1.0)):
        cluster = DEFAULT_CLUSTER.replace(rollout=faster(DEFAULT_CLUSTER.rollout, **change))
        got = estimate(**ONE, coefficients=HAND, cluster=cluster)
        assert got.rollout_s == pytest.approx(ratio * base.rollout_s)
        assert got.train_s == base.train_s
    cluster = DEFAULT_CLUSTER.replace(train=faster(DEFAULT_CLUSTER.train, bf16_tflops=1978.0))
    assert estimate(**ONE, coefficients=HAND, cluster=cluster).train_s == base.train_s / 2
    # Prompts x samples is all that counts of either.
    swapped = ONE | {"prompts_per_step": 1.0, "samples_per_prompt": 8.0}
    assert estimate(**swapped, coefficients=HAND).rollout_s == base.rollout_s


def test_the_mfu_follows_the_balance_of_the_gpu() -> None:
    c = DEFAULT_COEFFICIENTS
    assert H20.bf16_tflops / H20.hbm_tb_per_s == 37.0
    assert c.mfu_of(H20) == c.train_mfu_low_balance
    assert c.mfu_of(H800) == c.train_mfu


# -- response lengths ------------------------------------------------------------------------


def test_the_mean_response_is_the_stated_share_of_the_limit() -> None:
    for ratio in (0.02, 0.155, 0.5, 0.9, 1.0):
        c = HAND.replace(mean_to_max_ratio=ratio)
        work = Workload.of(dict.fromkeys(("rollout_nodes", "train_nodes"), 1.0) | ONE)
        mean, square = module._Lengths(work, c).moments()
        assert mean[0] == pytest.approx(ratio, rel=1e-3)
        assert mean[0] ** 2 <= square[0] * (1 + 1e-9) <= mean[0] * (1 + 2e-9)


def test_if_every_response_reaches_the_limit_the_expected_case_is_the_worst() -> None:
    got = estimate(**ONE, coefficients=HAND.replace(mean_to_max_ratio=1.0))
    assert got.rollout_expected_s == pytest.approx(got.rollout_s)
    assert got.train_expected_s == pytest.approx(got.train_s)


def test_sequences_that_wait_refill_the_slots() -> None:
    # 300 sequences a GPU, 100 at once, all of full length: 200 refill, the last 100 drain, so
    # 3 x 1000 steps of 100 sequences with 500 tokens of context on average (compute-bound).
    c = HAND.replace(mean_to_max_ratio=1.0, max_running_sequences=100.0)
    got = estimate(**ONE | {"samples_per_prompt": 300.0}, coefficients=c)
    step_s = 100 * (15.24e9 + 0.200704e9) / 74e12
    assert got.rollout_expected_s == pytest.approx(3 * 1000 * step_s)
    assert got.rollout_s == pytest.approx(got.rollout_expected_s)


def test_percentiles_of_the_same_exponential_change_nothing() -> None:
    decay = 6.0
    c = HAND.replace(mean_to_max_ratio=(1 - math.exp(-decay)) / decay)
    known = {f"response_p{p}_tokens": -1000 * math.log(1 - p / 100) / decay for p in (50, 95, 99)}
    got, plain = estimate(**ONE, coefficients=c, **known), estimate(**ONE, coefficients=c)
    assert got.rollout_expected_s == pytest.approx(plain.rollout_expected_s)
    assert got.train_expected_s == pytest.approx(plain.train_expected_s)
    assert got.rollout_s == plain.rollout_s  # the worst case does not look at them


def test_longer_responses_and_a_longer_tail_take_longer() -> None:
    many = ONE | {"samples_per_prompt": 512.0}
    short = estimate(**many, response_p50_tokens=100.0)
    long = estimate(**many, response_p50_tokens=300.0)
    tail = estimate(**many, response_p50_tokens=100.0, response_p99_tokens=990.0)
    assert short.rollout_expected_s < long.rollout_expected_s < long.rollout_s
    assert short.rollout_expected_s < tail.rollout_expected_s
    assert short.train_expected_s < tail.train_expected_s
    # Percentiles on one value: half the responses stop there, and none beyond p99.
    cut = dict.fromkeys([f"response_p{p}_tokens" for p in (50, 95, 99)], 500.0)
    assert 0 < estimate(**many, **cut).rollout_expected_s < long.rollout_s


def test_stragglers_set_the_end() -> None:
    """A tenth of the tokens takes far more than a tenth of the time: the batch drains slowly."""
    many = ONE | {"max_tokens": 8192.0, "samples_per_prompt": 64.0}
    got = estimate(**many, coefficients=HAND.replace(mean_to_max_ratio=0.1))
    assert got.rollout_expected_s > 0.3 * got.rollout_s
    assert got.train_expected_s < 0.11 * got.train_s


# -- orders ----------------------------------------------------------------------------------

sizes = st.floats(0.5, 120.0)
tokens = st.floats(64, 65_536)
batches = st.floats(1, 1024)
factors = st.floats(1.0, 8.0)


@settings(max_examples=200, deadline=None)
@given(
    model_b=sizes,
    limit=tokens,
    prompts=batches,
    samples=st.integers(1, 32),
    nodes=st.integers(1, 4),
    more=st.tuples(factors, factors, factors, st.integers(0, 4)),
)
def test_more_work_is_never_faster_and_more_nodes_are_never_slower(
    model_b: float, limit: float, prompts: float, samples: int, nodes: int, more: tuple
) -> None:
    def run(b: float, length: float, n: float, count: int) -> tuple[float, float]:
        got = estimate_phases(
            Workload.of(
                {
                    "model_b": b,
                    "max_tokens": length,
                    "prompts_per_step": n,
                    "samples_per_prompt": samples,
                    "rollout_nodes": count,
                    "train_nodes": count,
                }
            )
        )
        assert not got.fits[0] or got.rollout_expected_s[0] <= got.rollout_s[0]
        assert got.train_expected_s[0] <= got.train_s[0]
        return (float(got.rollout_s[0]) if got.fits[0] else math.inf), float(got.train_s[0])

    base = run(model_b, limit, prompts, nodes)
    rounding = 1 + 1e-9
    for harder in (
        run(model_b * more[0], limit, prompts, nodes),
        run(model_b, limit * more[1], prompts, nodes),
        run(model_b, limit, prompts * more[2], nodes),
    ):
        assert harder[0] * rounding >= base[0]
        assert harder[1] * rounding >= base[1]
    wider = run(model_b, limit, prompts, nodes + more[3])
    assert wider[0] <= base[0] * rounding
    assert wider[1] <= base[1] * rounding


def test_many_jobs_at_once_give_what_each_gives_alone() -> None:
    rng = np.random.default_rng(3)
    n = 40
    columns = {
        "model_b": rng.choice([1.5, 3.0, 7.0, 14.0, 32.0, 72.0], n),
        "max_tokens": rng.integers(256, 32_769, n).astype(float),
        "prompts_per_step": rng.integers(1, 513, n).astype(float),
        "samples_per_prompt": rng.integers(1, 17, n).astype(float),
        "rollout_nodes": rng.integers(1, 5, n).astype(float),
        "train_nodes": rng.integers(1, 5, n).astype(float),
    }
    p50 = np.where(rng.random(n) < 0.5, np.nan, 0.2 * columns["max_tokens"])
    p99 = np.where(rng.random(n) < 0.5, np.nan, 0.9 * columns["max_tokens"])
    table = estimate_phases(Workload.of(columns, (p50, np.nan, p99)))
    assert len(set(table.tensor_parallel.tolist())) > 2  # several sizes are in play
    for i in range(n):
        alone = {name: float(values[i]) for name, values in columns.items()}
        known = {
            name: None if math.isnan(values[i]) else float(values[i])
            for name, values in (("response_p50_tokens", p50), ("response_p99_tokens", p99))
        }
        one = estimate(
            **alone | {k: int(alone[k]) for k in ("rollout_nodes", "train_nodes")}, **known
        )
        for name in ("rollout_s", "rollout_expected_s", "train_s", "train_expected_s"):
            assert getattr(table, name)[i] == pytest.approx(getattr(one, name), rel=1e-12)
        assert table.tensor_parallel[i] == one.tensor_parallel


def test_the_fastest_size_that_fits_is_taken() -> None:
    big = ONE | {"model_b": 72.0, "max_tokens": 8192.0}
    chosen = estimate(**big)
    for size in (2.0, 4.0, 8.0):
        fixed = estimate(**big, coefficients=DEFAULT_COEFFICIENTS.replace(tensor_parallel=size))
        assert chosen.rollout_s <= fixed.rollout_s
    # 144 GB of weights do not fit one H20 of 96 GB.
    with pytest.raises(InputError, match=r"got model_b 72 and max_tokens 8192 on 8 H20 of 96 GB"):
        estimate(**big, coefficients=DEFAULT_COEFFICIENTS.replace(tensor_parallel=1.0))


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_b": 0.0}, "Expected model_b to be a finite number > 0, got 0.0."),
        ({"max_tokens": math.inf}, "Expected max_tokens to be a finite number > 0, got inf."),
        ({"prompts_per_step": math.nan}, "Expected prompts_per_step to be a finite number > 0"),
        ({"rollout_nodes": 1.5}, "Expected rollout_nodes to be a whole number >= 1, got 1.5."),
        ({"train_nodes": 0}, "Expected train_nodes to be a whole number >= 1, got 0."),
        ({"response_p50_tokens": 1001.0}, "response_p50_tokens <= max_tokens, got 1001.0."),
        (
            {"response_p95_tokens": 300.0, "response_p99_tokens": 200.0},
            "Expected response_p95_tokens <= response_p99_tokens <= max_tokens, got 200.0.",
        ),
        ({"model_b": 1000.0}, "no replica holds the weights and one sequence of full length."),
        ({"max_tokens": 1e9}, "no replica holds the weights and one sequence of full length."),
    ],
)
def test_impossible_questions_are_refused(change: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(**ONE | change)
    assert message in str(caught.value)


# -- coefficients ----------------------------------------------------------------------------


def test_every_coefficient_has_unit_kind_and_source() -> None:
    rows = coefficient_rows()
    assert [row.name for row in rows] == [f.name for f in dataclasses.fields(Coefficients)]
    assert {row.kind for row in rows} == {"fitted", "measured", "stated", "guess"}
    assert all(row.unit and row.source for row in rows)
    assert all("n = " in row.source for row in rows if row.kind in ("fitted", "measured"))
    changed = {row.name: row for row in coefficient_rows(Coefficients(train_mfu=0.4))}
    assert changed["train_mfu"][3:] == ("given", "replaces the default 0.3")


def test_coefficients_are_overridden_by_name() -> None:
    got = coefficients_from_dict({"train_mfu": 0.4, "tensor_parallel": 2}, "study.toml")
    assert got == Coefficients(train_mfu=0.4, tensor_parallel=2.0)
    assert coefficients_from_dict({}) == DEFAULT_COEFFICIENTS
    for data, message in (
        ({"train_mf": 0.4}, "study.toml: Unknown coefficient 'train_mf'. Did you mean 'train_mfu'"),
        ({"train_mfu": 1.4}, "study.toml: Expected train_mfu > 0 and <= 1, got 1.4."),
        ({"train_mfu": "a"}, "study.toml: Expected train_mfu to be a number, got 'a'."),
        ({"train_mfu": True}, "study.toml: Expected train_mfu to be a number, got True."),
        ({"prompt_tokens": -1}, "study.toml: Expected a finite prompt_tokens >= 0, got -1.0."),
        ({"max_running_sequences": 0}, "Expected a finite max_running_sequences >= 1, got 0.0."),
        ({"tensor_parallel": 1.5}, "Expected tensor_parallel to be a whole number >= 0, got 1.5."),
        ({"hbm_share": float("nan")}, "Expected hbm_share > 0 and <= 1, got nan."),
    ):
        with pytest.raises(InputError) as caught:
            coefficients_from_dict(data, "study.toml")
        assert message in str(caught.value)


def test_shapes_are_interpolated_and_constant_outside() -> None:
    at = np.array([1.0, 3.09, 7.62, 11.195, 72.71, 400.0])
    # 11.195 is halfway between 7.62 and 14.77.
    expected = [36_864, 36_864, 57_344, (57_344 + 196_608) / 2, 327_680, 327_680]
    assert kv_bytes_per_token_of(at).tolist() == pytest.approx(expected)
    assert attention_width_of(at)[[1, 2, 4]].tolist() == [36 * 2048, 28 * 3584, 80 * 8192]
    assert [shape.kv_bytes_per_token for shape in SHAPES] == sorted(
        shape.kv_bytes_per_token for shape in SHAPES
    )


@pytest.mark.parametrize("model_b", [3.0, 7.0, 14.0, 32.0, 72.0])
@pytest.mark.parametrize("max_tokens", [8192.0, 32_768.0])
def test_expected_rollouts_are_below_the_worst_case(model_b: float, max_tokens: float) -> None:
    found = estimate(
        model_b=model_b, max_tokens=max_tokens, prompts_per_step=128, samples_per_prompt=8
    )
    assert found.rollout_expected_s < found.rollout_s


# -- calibration -----------------------------------------------------------------------------

needs_data = pytest.mark.skipif(
    not calibration.TIMINGS.is_file(), reason=f"{calibration.TIMINGS} is absent"
)


@pytest.fixture(scope="module")
def rows() -> list[calibration.Timing]:
    return calibration.read_timings()


@needs_data
def test_the_coefficients_in_use_are_the_fitted_ones(rows: list) -> None:
    fitted = calibration.fit(rows)
    for name in ("bandwidth_efficiency", "train_mfu", "train_mfu_low_balance"):
        assert round(getattr(fitted, name), 2) == getattr(DEFAULT_COEFFICIENTS, name)
    prompt, ratio, n = calibration.typical_lengths(rows)
    assert n == 10
    assert prompt == pytest.approx(DEFAULT_COEFFICIENTS.prompt_tokens, abs=0.5)
    assert round(ratio, 3) == DEFAULT_COEFFICIENTS.mean_to_max_ratio
    for gpu, found in calibration.mfu_ranges(rows).items():
        assert tuple(round(x, 2) for x in found) == tuple(MFU_RANGES[gpu])


@needs_data
def test_the_quality_rules_are_followed(rows: list) -> None:
    rollout, train = calibration.rollout_rows(rows), calibration.train_rows(rows)
    assert {row.quality for row in rollout} == {"A", "B-length-from-mfu"}
    assert {row.quality for row in train} == {"A", "B-train-only"}
    assert not any(row.oversampled for row in rollout)
    assert all(row.dense for row in rollout + train)
    notes = {row.name: row.source for row in coefficient_rows()}
    by_gpu = {gpu: sum(row.gpu == gpu for row in rollout) for gpu in calibration.GPUS}
    assert (
        f"n = {len(rollout)} ({by_gpu['H100']} H100, {by_gpu['H20']} H20"
        in (notes["bandwidth_efficiency"])
    )
    good = [row for row in train if not row.poor]
    assert f"n = {sum(r.gpu == 'H100' for r in good)} (H100" in notes["train_mfu"]
    assert f"n = {sum(r.gpu == 'H20' for r in good)} (H20" in notes["train_mfu_low_balance"]
    assert "H800" not in {row.gpu for row in rows}


@needs_data
def test_the_documented_errors_are_what_the_script_computes(rows: list) -> None:
    table = calibration.short_table(rows)
    documented = (module.__doc__ or "").splitlines()
    assert [line for line in documented if line.startswith("|")] == table
    readme = (calibration.ROOT / "README.md").read_text(encoding="utf-8")
    if table[0] in readme:
        assert "\n".join(table) in readme


@needs_data
def test_fitting_brings_the_typical_error_down(rows: list) -> None:
    found = {(row.figure, row.group): row for row in calibration.error_table(rows)}
    for figure in ("rollout", "train"):
        whole = found[figure, "all"]
        assert whole.after[0] < whole.before[0]
    # Settings that are poor on purpose stay far off: bracketed, not matched.
    assert found["train", "poor settings"].after[0] > 0.4


@needs_data
def test_the_script_prints_everything(capsys: pytest.CaptureFixture[str]) -> None:
    calibration.main([])
    said = capsys.readouterr().out
    for words in ("fitted", "quality A", "file dapo7b.csv", "implied MFU on H20", "not used: "):
        assert words in said
