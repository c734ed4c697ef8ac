"""Phases that a trace leaves empty: estimated, flagged, floored, refused, written empty again."""

import dataclasses
import importlib.util

import pandas as pd
import pytest

from instances.coefficients import Coefficients
from instances.errors import InputError
from instances.estimate import estimate
from instances.hardware import DEFAULT_CLUSTER, NodeType
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, Job, JobTable
from instances.trace import (
    TraceError,
    jobs_from_frame,
    read_trace,
    refuse_estimates,
    write_trace,
)

has_pyarrow = importlib.util.find_spec("pyarrow") is not None
needs_pyarrow = pytest.mark.skipif(not has_pyarrow, reason="pyarrow (extra parquet) is absent")
SUFFIXES = ["csv", "csv.gz", "jsonl", pytest.param("parquet", marks=needs_pyarrow)]
GOOD = {
    "job_id": "a17",
    "arrival_s": "0",
    "duration_s": "3600",
    "slo": "1.5",
    "rollout_s": "100",
    "train_s": "50",
    "model_b": "7",
}


def csv_text(*rows, without=()):
    """Return CSV text; each row changes the good job, ``without`` leaves columns out."""
    columns = list(dict.fromkeys([*GOOD, *(c for row in rows for c in row)]))
    columns = [c for c in columns if c not in without]
    lines = [",".join(columns)]
    for i, row in enumerate(rows):
        cells = {**GOOD, "job_id": f"j{i}", **row}
        lines.append(",".join(cells.get(c, "") for c in columns))
    return "\n".join(lines) + "\n"


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a text as a trace file."""

    def call(text, **options):
        path = tmp_path / "jobs.csv"
        path.write_text(text)
        return read_trace(path, **options).jobs

    return call


@pytest.fixture
def refused(read):
    """Return a function that reads a text and returns the TraceError it must raise."""

    def call(text, **options):
        with pytest.raises(TraceError) as caught:
            read(text, **options)
        return caught.value

    return call


def messages(error):
    """Return the faults as a person reads them."""
    return [str(fault) for fault in error.faults]


def content(jobs):
    """Return numbers and masks of a table as plain Python values."""
    columns = {name: getattr(jobs, name).tolist() for name in (*FLOAT_FIELDS, *INT_FIELDS)}
    columns["estimated"] = {k: v.tolist() for k, v in jobs.estimated.items() if v.any()}
    columns["optional"] = {
        k: [None if x != x else x for x in v.tolist()] for k, v in jobs.optional.items()
    }
    return {"job_id": jobs.job_id, **columns}


# -- estimated phases --------------------------------------------------------------------------

BATCH = {"max_tokens": "8192", "prompts_per_step": "64", "samples_per_prompt": "8"}
PHASE_COLUMNS = ("rollout_s", "train_s")


def by_hand(**changes):
    """Return the estimate for the good job with BATCH."""
    numbers = {"model_b": 7.0, **{k: float(v) for k, v in BATCH.items()}}
    return estimate(**numbers | changes)


def test_phases_are_estimated_from_the_four_columns(read):
    jobs = read(csv_text(BATCH, {**BATCH, "rollout_nodes": "2"}, without=PHASE_COLUMNS))
    one, two = by_hand(), by_hand(rollout_nodes=2)
    assert jobs.rollout_s.tolist() == [one.rollout_s, two.rollout_s]
    assert jobs.train_s.tolist() == [one.train_s, one.train_s]
    assert two.rollout_s < one.rollout_s
    for name in PHASE_COLUMNS:
        assert jobs.estimated[name].tolist() == [True, True]
    assert set(PHASE_COLUMNS) < set(jobs.estimated_columns())


def test_only_empty_phase_cells_are_estimated(read):
    rows = [BATCH, {**BATCH, "rollout_s": ""}, {**BATCH, "train_s": ""}]
    jobs = read(csv_text(*rows))
    assert jobs.rollout_s.tolist() == [100.0, by_hand().rollout_s, 100.0]
    assert jobs.train_s.tolist() == [50.0, 50.0, by_hand().train_s]
    assert jobs.estimated["rollout_s"].tolist() == [False, True, False]
    assert jobs.estimated["train_s"].tolist() == [False, False, True]


def test_given_phases_are_left_alone(read):
    jobs = read(csv_text(BATCH))
    assert (jobs.rollout_s[0], jobs.train_s[0]) == (100.0, 50.0)
    assert not set(PHASE_COLUMNS) & set(jobs.estimated)


def test_iterations_count_estimated_seconds(read):
    row = {**BATCH, "iterations": "10", "duration_s": ""}
    jobs = read(csv_text(row, without=PHASE_COLUMNS))
    assert jobs.duration_s[0] == 10 * jobs.solo_s[0]
    got = by_hand()
    assert jobs.solo_s[0] == pytest.approx(got.rollout_s + got.train_s + got.sync_s)


def test_estimated_phases_follow_gpus_and_coefficients(read):
    text = csv_text(BATCH, without=PHASE_COLUMNS)
    base = read(text)
    gpu = dataclasses.replace(DEFAULT_CLUSTER.train.gpu, bf16_tflops=1978.0)
    fast = DEFAULT_CLUSTER.replace(train=NodeType(gpu=gpu))
    assert read(text, cluster=fast).train_s[0] == base.train_s[0] / 2
    half = read(text, coefficients=Coefficients(train_mfu=0.15))
    assert half.train_s[0] == pytest.approx(2 * base.train_s[0])


def test_a_measured_percentile_is_a_floor_under_an_estimated_worst_case(read):
    rows = [
        {**BATCH, "rollout_p95_s": "5000"},
        {**BATCH, "rollout_p95_s": "0.5", "train_p50_s": "9000"},
    ]
    jobs = read(csv_text(*rows, without=PHASE_COLUMNS))
    got = by_hand()
    assert jobs.rollout_s.tolist() == [5000.0, got.rollout_s]
    assert jobs.train_s.tolist() == [got.train_s, 9000.0]


def test_an_absent_estimator_cell_is_named(refused):
    rows = [
        {**BATCH, "max_tokens": "", "samples_per_prompt": ""},
        {**BATCH, "train_s": "", "prompts_per_step": ""},
    ]
    error = refused(csv_text(rows[0] | dict.fromkeys(PHASE_COLUMNS, ""), rows[1]))
    words = "or model_b, max_tokens, prompts_per_step and samples_per_prompt to estimate from"
    assert messages(error) == [
        f"Expected rollout_s and train_s, {words}, got no max_tokens and samples_per_prompt "
        "(job 'j0', line 2, column max_tokens).",
        f"Expected train_s, {words}, got no prompts_per_step "
        "(job 'j1', line 3, column prompts_per_step).",
    ]


def test_a_bad_estimator_cell_is_one_fault(refused):
    for column in (*BATCH, "model_b", "rollout_nodes"):
        error = refused(csv_text({**BATCH, column: "x"}, without=PHASE_COLUMNS))
        assert messages(error) == [
            f"Expected {column} to be a number, got 'x' (job 'j0', line 2, column {column})."
        ]


def test_an_empty_phase_without_the_estimator_columns_is_the_old_fault(refused):
    error = refused(csv_text({"rollout_s": ""}))
    assert messages(error) == [
        "Expected rollout_s > 0, got an empty cell (job 'j0', line 2, column rollout_s)."
    ]


def test_a_model_that_does_not_fit_is_a_fault_of_its_row(refused, read):
    rows = [BATCH, {**BATCH, "model_b": "1000"}, {**BATCH, "model_b": "1000", "rollout_s": "9"}]
    error = refused(csv_text(*[{"rollout_s": "", "train_s": ""} | row for row in rows]))
    assert messages(error) == [
        "Expected a model that fits the rollout GPUs, got model_b 1000 and max_tokens 8192 on "
        "8 H20 of 96 GB: no replica holds the weights and one sequence of full length "
        "(job 'j1', line 3, column model_b)."
    ]


def test_an_estimate_that_is_no_number_is_a_fault(refused):
    huge = {"prompts_per_step": "1e12", "samples_per_prompt": "1e12"}
    error = refused(csv_text({**BATCH, **huge}, without=PHASE_COLUMNS))
    assert [m.partition(", got")[0] for m in messages(error)] == [
        "Expected an estimate of rollout_s > 0 and <= 1e+12",
        "Expected an estimate of train_s > 0 and <= 1e+12",
    ]


def test_a_batch_beyond_all_numbers_is_a_fault(refused):
    error = refused(csv_text({**BATCH, "prompts_per_step": "1e308"}, without=PHASE_COLUMNS))
    assert "Expected prompts_per_step <= 1e+12, got '1e308'" in str(error)


# -- files and refusal ------------------------------------------------------------------------

ESTIMATED = (
    "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b,max_tokens,prompts_per_step,"
    "samples_per_prompt,rollout_p95_s\n"
    "a,0,3600,1.5,,,7,8192,64,8,\n"
    "b,0,3600,1.5,100,,14,4096,64,8,\n"
    "c,0,3600,1.5,,50,32,4096,32,4,9000\n"
)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_estimated_phases_are_written_empty_and_estimated_again(tmp_path, suffix):
    (tmp_path / "a.csv").write_text(ESTIMATED)
    slow_gpu = dataclasses.replace(DEFAULT_CLUSTER.rollout.gpu, hbm_tb_per_s=1.0, hbm_gb=640.0)
    for cluster in (DEFAULT_CLUSTER, DEFAULT_CLUSTER.replace(rollout=NodeType(gpu=slow_gpu))):
        jobs = read_trace(tmp_path / "a.csv", cluster).jobs
        assert jobs.estimated["rollout_s"].tolist() == [True, False, True]
        assert jobs.estimated["train_s"].tolist() == [True, True, False]
        path = tmp_path / f"t.{suffix}"
        write_trace(jobs, path, force=True)
        assert content(read_trace(path, cluster).jobs) == content(jobs)
    # Another cluster gives other estimates, and leaves what was given alone.
    other = read_trace(path).jobs
    assert other.rollout_s[0] != jobs.rollout_s[0]
    assert (other.rollout_s[1], other.train_s[2]) == (100.0, 50.0)


def test_estimated_phase_cells_are_empty_in_the_file(tmp_path):
    (tmp_path / "a.csv").write_text(ESTIMATED)
    write_trace(read_trace(tmp_path / "a.csv").jobs, tmp_path / "b.csv")
    frame = pd.read_csv(tmp_path / "b.csv")
    assert frame["rollout_s"].isna().tolist() == [True, False, True]
    assert frame["train_s"].isna().tolist() == [True, True, False]


def test_a_model_too_large_for_the_default_gpus_is_written_all_the_same(tmp_path):
    """Writing does not know the cluster: what fitted when it was read is not refused."""
    text = ESTIMATED.replace(",32,4096,32,4,9000", ",400,4096,32,4,9000")
    (tmp_path / "a.csv").write_text(text)
    gpu = dataclasses.replace(DEFAULT_CLUSTER.rollout.gpu, hbm_gb=192.0)
    large = DEFAULT_CLUSTER.replace(rollout=NodeType(gpu=gpu))
    jobs = read_trace(tmp_path / "a.csv", large).jobs
    write_trace(jobs, tmp_path / "b.csv")
    assert content(read_trace(tmp_path / "b.csv", large).jobs) == content(jobs)
    with pytest.raises(TraceError, match="Expected a model that fits the rollout GPUs"):
        read_trace(tmp_path / "b.csv")


def test_frames_are_estimated_too(tmp_path):
    (tmp_path / "a.csv").write_text(ESTIMATED)
    frame = pd.read_csv(tmp_path / "a.csv")
    assert content(jobs_from_frame(frame)) == content(read_trace(tmp_path / "a.csv").jobs)


def test_estimates_are_refused_by_name_and_number(tmp_path):
    (tmp_path / "a.csv").write_text(ESTIMATED)
    with pytest.raises(InputError) as caught:
        refuse_estimates(read_trace(tmp_path / "a.csv").jobs)
    assert str(caught.value) == (
        "Expected every value to be given, got estimated cells: rollout_s (2 of 3), "
        "rollout_state_gb (3 of 3), rollout_switch_s (3 of 3), sync_gb (3 of 3), "
        "sync_s (3 of 3), train_s (2 of 3), train_state_gb (3 of 3), train_switch_s (3 of 3)."
    )


def test_a_trace_without_estimates_is_not_refused():
    job = Job(job_id="a", rollout_s=100.0, train_s=50.0, slo=1.5, sync_s=1.0)
    jobs = JobTable.from_jobs([job])
    refuse_estimates(jobs)
    refuse_estimates(jobs.replace(estimated={"sync_s": [False]}))
