"""Every rule of a trace's cells: the exact message, the line an editor shows, and nothing less."""

import json

import numpy as np
import pandas as pd
import pytest

from instances.hardware import DEFAULT_CLUSTER, NodeType
from instances.network import sync_seconds
from instances.trace import TraceError, jobs_from_frame
from trace_cases import GOOD, csv_text, messages

# One bad cell in an otherwise good row on line 3: (column, cell, expected message); what to do
# about it stands behind a bar.
SEPARATORS = " | Write numbers without separators, with a point before decimals."
SINCE = " | arrival_s is in seconds from any common start."
CELLS = [
    ("train_s", "-3", "Expected train_s > 0, got '-3'"),
    ("train_s", "0", "Expected train_s > 0, got '0'"),
    ("train_s", "-0.0", "Expected train_s > 0, got '-0.0'"),
    ("train_s", "", "Expected train_s > 0, got an empty cell"),
    ("train_s", "abc", "Expected train_s to be a number, got 'abc'"),
    ("train_s", "nan", "Expected a finite train_s > 0, got 'nan'"),
    ("train_s", "NaN", "Expected a finite train_s > 0, got 'NaN'"),
    ("train_s", "-nAn", "Expected a finite train_s > 0, got '-nAn'"),
    ("train_s", "inf", "Expected a finite train_s > 0, got 'inf'"),
    ("train_s", "-Infinity", "Expected a finite train_s > 0, got '-Infinity'"),
    ("train_s", "1e400", "Expected a finite train_s > 0, got '1e400'"),
    ("train_s", "1e-400", "Expected train_s > 0, got '1e-400'"),
    ("train_s", "1_000", "Expected train_s to be a number, got '1_000'" + SEPARATORS),
    ("train_s", "1,000", "Expected train_s to be a number, got '1,000'" + SEPARATORS),
    ("train_s", "1,5", "Expected train_s to be a number, got '1,5'" + SEPARATORS),
    ("train_s", "0x10", "Expected train_s to be a number, got '0x10'"),
    ("train_s", "1 000", "Expected train_s to be a number, got '1 000'"),
    ("train_s", "\u0661", "Expected train_s to be a number, got '\u0661'"),  # Arabic digit one
    (
        "train_s",
        "NA",
        "Expected train_s to be a number, got 'NA' | train_s is needed in every row.",
    ),
    ("train_s", "true", "Expected train_s to be a number, got 'true'"),
    ("train_s", "50s", "Expected train_s to be a number, got '50s' | train_s is in seconds: 50."),
    ("rollout_s", "0", "Expected rollout_s > 0, got '0'"),
    ("duration_s", "0", "Expected duration_s > 0, got '0'"),
    ("duration_s", "", "Expected duration_s or iterations, got an empty cell"),
    ("arrival_s", "-1", "Expected arrival_s >= 0, got '-1'"),
    ("arrival_s", "", "Expected arrival_s >= 0, got an empty cell"),
    ("arrival_s", "inf", "Expected a finite arrival_s >= 0, got 'inf'"),
    ("slo", "0.99", "Expected slo >= 1, got '0.99'"),
    ("slo", "", "Expected slo >= 1, got an empty cell"),
    ("slo", "inf", "Expected a finite slo >= 1, got 'inf'"),
    ("model_b", "0", "Expected model_b > 0, got '0'"),
    ("sync_s", "-1", "Expected sync_s >= 0, got '-1'"),
    ("sync_gb", "-1", "Expected sync_gb >= 0, got '-1'"),
    ("restart_s", "-0.1", "Expected restart_s >= 0, got '-0.1'"),
    ("restart_s", "inf", "Expected a finite restart_s >= 0, got 'inf'"),
    (
        "restart_s",
        "5m",
        "Expected restart_s to be a number, got '5m' | restart_s is in seconds: 300.",
    ),
    # 24 h x 3,600 s, 1.5 h, 2 d x 86,400 s, 90 min x 60 s, and Excel's way of showing a length.
    (
        "duration_s",
        "24h",
        "Expected duration_s to be a number, got '24h' | duration_s is in seconds: 86400.",
    ),
    (
        "duration_s",
        "1.5 H",
        "Expected duration_s to be a number, got '1.5 H' | duration_s is in seconds: 5400.",
    ),
    (
        "duration_s",
        "2d",
        "Expected duration_s to be a number, got '2d' | duration_s is in seconds: 172800.",
    ),
    (
        "duration_s",
        "90min",
        "Expected duration_s to be a number, got '90min' | duration_s is in seconds: 5400.",
    ),
    (
        "duration_s",
        "24:00:30",
        "Expected duration_s to be a number, got '24:00:30' | duration_s is in seconds: 86430.",
    ),
    (
        "duration_s",
        "n/a",
        "Expected duration_s to be a number, got 'n/a' | duration_s is needed in every row.",
    ),
    (
        "duration_s",
        "2026-11-30",
        "Expected duration_s to be a number, got '2026-11-30' | duration_s is in seconds.",
    ),
    (
        "arrival_s",
        "2026-11-30 08:15",
        "Expected arrival_s to be a number, got '2026-11-30 08:15'" + SINCE,
    ),
    (
        "arrival_s",
        "30.11.2026",
        "Expected arrival_s to be a number, got '30.11.2026'" + SINCE,
    ),
    (
        "arrival_s",
        "11/30/26 8:15",
        "Expected arrival_s to be a number, got '11/30/26 8:15'" + SINCE,
    ),
    ("restart_s", "-", "Expected restart_s to be a number, got '-' | Leave the cell empty."),
    ("model_b", "N/A", "Expected model_b to be a number, got 'N/A' | Leave the cell empty."),
    ("model_b", "7h", "Expected model_b to be a number, got '7h'"),
    ("slo", "180%", "Expected slo to be a number, got '180%' | slo is a ratio: 1.8."),
    ("rollout_state_gb", "-1", "Expected rollout_state_gb >= 0, got '-1'"),
    ("train_switch_s", "-1", "Expected train_switch_s >= 0, got '-1'"),
    (
        "rollout_nodes",
        "2.5",
        "Expected rollout_nodes to be a whole number from 1 to 1000000, got '2.5'",
    ),
    ("train_nodes", "0", "Expected train_nodes to be a whole number from 1 to 1000000, got '0'"),
    (
        "train_nodes",
        "1e300",
        "Expected train_nodes to be a whole number from 1 to 1000000, got '1e300'",
    ),
    ("mode", "asnyc", "Expected mode to be sync, one-step or async, got 'asnyc'#async"),
    ("mode", "one_step", "Expected mode to be sync, one-step or async, got 'one_step'#one-step"),
    ("mode", "SYNC", "Expected mode to be sync, one-step or async, got 'SYNC'#sync"),
    ("mode", "pipeline", "Expected mode to be sync, one-step or async, got 'pipeline'"),
    ("mode", " ", "Expected mode to be sync, one-step or async, got ' '"),
    ("rollout_p50_s", "-1", "Expected rollout_p50_s > 0, got '-1'"),
    ("prompts_per_step", "x", "Expected prompts_per_step to be a number, got 'x'"),
    ("train_p95_s", "50.5", "Expected train_p95_s <= train_s = 50, got '50.5'"),
    (
        "rollout_state_gb",
        "2000.5",
        "Expected rollout_state_gb <= 2000 (host DRAM of one H20 node), got '2000.5'",
    ),
    (
        "train_state_gb",
        "2400",
        "Expected train_state_gb <= 2000 (host DRAM of one H800 node), got '2400'",
    ),
    ("slo", "1e308", "Expected slo <= 1e+12, got '1e308'"),
    (
        "arrival_s",
        "1790000000000",
        "Expected arrival_s <= 1e+10 (seconds, not milliseconds), got '1790000000000'",
    ),
]


@pytest.mark.parametrize(("column", "cell", "message"), CELLS)
def test_one_bad_cell_is_one_fault_in_the_projects_voice(refused, column, cell, message):
    error = refused(csv_text({}, {column: cell}))
    words, _, near = message.partition("#")
    words, _, hint = words.partition(" | ")
    hint = f" Did you mean '{near}'?" if near else f" {hint}" if hint else ""
    assert messages(error) == [f"{words} (job 'j1', line 3, column {column}).{hint}"]
    assert error.total == 1
    fault = error.faults[0]
    assert (fault.row, fault.column, fault.value, fault.job_id) == (3, column, cell, "j1")


@pytest.mark.parametrize(("column", "cell", "message"), CELLS)
def test_json_lines_finds_the_same_fault_on_its_own_line(refused, column, cell, message):
    rows = [{**GOOD, "job_id": "j0"}, {**GOOD, "job_id": "j1", column: cell}]
    error = refused("\n".join(map(json.dumps, rows)), "jsonl")
    assert error.total == 1
    words = message.partition("#")[0].partition(" | ")[0]
    assert messages(error)[0].startswith(f"{words} (job 'j1', line 2, column {column}).")


@pytest.mark.parametrize(("column", "cell", "message"), CELLS)
def test_data_frames_find_the_same_fault_in_their_row(column, cell, message):
    rows = [{**GOOD, "job_id": "j0"}, {**GOOD, "job_id": "j1", column: cell}]
    with pytest.raises(TraceError) as caught:
        jobs_from_frame(pd.DataFrame(rows).fillna(""))
    assert caught.value.total == 1
    words = message.partition("#")[0].partition(" | ")[0]
    assert messages(caught.value)[0].startswith(f"{words} (job 'j1', row 2, column {column}).")


@pytest.mark.parametrize(
    ("column", "cell", "number"),
    [
        ("train_s", " 50\t", 50.0),
        ("train_s", "+5e1", 50.0),
        ("train_s", ".5", 0.5),
        ("train_s", "5.", 5.0),
        ("train_s", "0.1", 0.1),
        ("train_s", "0.1000000000000000055511151231257827021181583404541015625", 0.1),
        ("arrival_s", "0", 0.0),
        ("slo", "1", 1.0),
        ("sync_s", "0", 0.0),
        ("sync_gb", "0", 0.0),
        ("rollout_state_gb", "0", 0.0),
        ("rollout_state_gb", "2000", 2000.0),
        ("train_switch_s", "0", 0.0),
        ("rollout_nodes", "2.0", 2),
        ("rollout_nodes", "", 1),
        ("train_nodes", "3", 3),
    ],
)
def test_accepted_spellings_and_limits(read, column, cell, number):
    jobs = read(csv_text({column: cell}))
    assert getattr(jobs, column)[0] == number
    assert column not in jobs.estimated


def test_a_typed_column_of_nothing_but_true_is_not_taken_for_ones(refused):
    error = refused(csv_text({"sync_s": "True"}, {"sync_s": "FALSE"}))
    assert [fault.value for fault in error.faults] == ["True", "FALSE"]


def test_an_optional_cell_with_the_word_nan_is_not_taken_for_empty(refused):
    error = refused(csv_text({"sync_s": "nan"}, {"sync_s": ""}))
    assert [str(fault) for fault in error.faults] == [
        "Expected a finite sync_s >= 0, got 'nan' (job 'j0', line 2, column sync_s)."
    ]


# -- ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "job_id",
    [
        *("007", "NA", "nan", "null", "None", "1e5", "1.0", "true", "2024-01-01", "=1+1"),
        *("#1", "#", "'", "-", " a ", "a b", "a,b", 'say "hi"', "é漢字🙂", "x" * 200),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_ids_stay_exactly_as_they_stand(read, job_id, suffix):
    row = {**GOOD, "job_id": job_id}
    text = csv_text(row) if suffix == "csv" else json.dumps(row)
    assert read(text, suffix).job_id == (job_id,)


def test_numeric_json_ids_keep_their_digits(read):
    text = json.dumps(GOOD).replace('"a17"', "1.50")
    assert read(text, "jsonl").job_id == ("1.50",)


@pytest.mark.parametrize(
    ("job_id", "message"),
    [
        ("", "Expected a job_id that is not empty, got an empty cell (line 3, column job_id)."),
        (
            "  ",
            "Expected a job_id that is not empty, got '  ' (job '  ', line 3, column job_id).",
        ),
        (
            "a\x07",
            "Expected a job_id without control characters, got 'a\\x07' "
            "(job 'a\\x07', line 3, column job_id).",
        ),
        (
            "a\nb",
            "Expected a job_id without control characters, got 'a\\nb' "
            "(job 'a\\nb', line 3, column job_id).",
        ),
        (
            "x" * 201,
            f"Expected a job_id of at most 200 characters, got 201, '{'x' * 77}...' "
            f"(job '{'x' * 77}...', line 3, column job_id).",
        ),
        (
            "j0",
            "Expected a job_id used once, got 'j0', first used in line 2 "
            "(job 'j0', line 3, column job_id).",
        ),
    ],
)
def test_refused_ids(refused, job_id, message):
    assert messages(refused(csv_text({}, {"job_id": job_id}))) == [message]


def test_empty_ids_are_not_repetitions_of_each_other(refused):
    error = refused(csv_text({"job_id": ""}, {"job_id": ""}))
    assert [fault.rule for fault in error.faults] == ["a job_id that is not empty"] * 2


def test_every_repetition_of_an_id_is_counted(refused):
    error = refused(csv_text(*[{"job_id": "same"}] * 4))
    assert error.total == 3
    assert [fault.row for fault in error.faults] == [3, 4, 5]


# -- rules across cells ----------------------------------------------------------------------


def test_exactly_one_of_duration_and_iterations_in_each_row(read, refused):
    rows = [{"iterations": "10"}, {"duration_s": ""}, {"duration_s": "", "iterations": "10"}, {}]
    assert messages(refused(csv_text(*rows))) == [
        "Expected either duration_s or iterations, got both '3600' and '10' "
        "(job 'j0', line 2, column duration_s).",
        "Expected duration_s or iterations, got an empty cell "
        "(job 'j1', line 3, column duration_s).",
    ]
    jobs = read(csv_text(*rows[2:]))
    # solo_s = 100 + 50 + 5.88 seconds of sync: 14 GB over 20 and 400 Gb/s.
    assert jobs.duration_s.tolist() == [10 * jobs.solo_s[0], 3600.0]
    assert jobs.solo_s[0] == pytest.approx(155.88, abs=1e-9)


@pytest.mark.parametrize("cell", ["0", "-1", "x", "inf"])
def test_iterations_alone_must_be_positive(refused, cell):
    error = refused(csv_text({"iterations": cell}, without=("duration_s",)))
    assert [(f.row, f.column, f.value) for f in error.faults] == [(2, "iterations", cell)]


def test_iterations_of_a_one_step_job_use_its_own_iteration_time(read):
    row = {"mode": "one-step", "iterations": "10", "duration_s": "", "sync_s": "0"}
    assert read(csv_text(row)).duration_s[0] == 10 * 100.0  # max(100, 50, 150 / 2)


def test_iterations_that_overflow(refused):
    error = refused(csv_text({"iterations": "1e308", "duration_s": ""}))
    assert "Expected iterations <= 1e+12, got '1e308'" in str(error)
    row = {"duration_s": "1e12", "rollout_s": "1e-300", "train_s": "1e-300", "sync_s": "0"}
    assert "a finite duration and number of iterations" in str(refused(csv_text(row)))


CHAIN = ("response_p50_tokens", "response_p95_tokens", "response_p99_tokens", "max_tokens")


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [
        (("9", "8", "", ""), 0, 1),
        (("", "9", "8", ""), 1, 2),
        (("", "", "9", "8"), 2, 3),
        (("9", "", "8", ""), 0, 2),  # the empty p95 is skipped
        (("9", "", "", "8"), 0, 3),
        (("9", "8", "8", "8"), 0, 1),  # named once, against its nearest neighbour
    ],
)
def test_percentiles_must_not_decrease(refused, cells, low, high):
    error = refused(csv_text(dict(zip(CHAIN, cells, strict=True))))
    assert messages(error) == [
        f"Expected {CHAIN[low]} <= {CHAIN[high]} = 8, got '9' (job 'j0', line 2, "
        f"column {CHAIN[low]})."
    ]


def test_equal_and_missing_percentiles_are_fine(read):
    row = {**dict.fromkeys(CHAIN, "5"), "rollout_p95_s": "100", "train_p50_s": "1"}
    jobs = read(csv_text(row, {}))
    assert jobs.optional["rollout_p95_s"].tolist()[0] == 100
    assert np.isnan(jobs.optional["rollout_p95_s"][1])


def test_a_bad_percentile_is_skipped_like_an_empty_one(refused):
    error = refused(csv_text({"rollout_p50_s": "200", "rollout_p95_s": "x"}))
    assert messages(error) == [
        "Expected rollout_p50_s <= rollout_s = 100, got '200' (job 'j0', line 2, "
        "column rollout_p50_s).",
        "Expected rollout_p95_s to be a number, got 'x' (job 'j0', line 2, column rollout_p95_s).",
    ]


SMALL = DEFAULT_CLUSTER.replace(
    rollout=NodeType(gpu=DEFAULT_CLUSTER.rollout.gpu, host_dram_gb=250.0)
)


def test_an_estimated_state_that_does_not_fit_says_so(refused):
    error = refused(csv_text({}), cluster=SMALL)
    assert messages(error) == [
        "Expected rollout_state_gb <= 250 (host DRAM of one H20 node), got 275.7, estimated "
        "from model_b '7' (job 'j0', line 2, column model_b)."
    ]


# -- estimates -------------------------------------------------------------------------------


def test_estimates_from_model_b_are_linear_between_points_and_constant_outside(read):
    jobs = read(csv_text(*[{"model_b": b} for b in ("7", "5", "1", "100")]))
    # Rollout state: 3B 200, 7B 275.7 (so 5B 237.85), constant below 3B and above 70B.
    assert jobs.rollout_state_gb.tolist() == pytest.approx([275.7, 237.85, 200.0, 490.3])
    assert jobs.train_switch_s.tolist() == [4.1, 4.1, 4.1, 5.9]
    assert jobs.sync_gb.tolist() == [14.0, 10.0, 2.0, 200.0]
    assert jobs.sync_s[0] == sync_seconds(14.0, DEFAULT_CLUSTER.links)
    assert jobs.estimated_columns() == (
        "rollout_state_gb",
        "rollout_switch_s",
        "sync_gb",
        "sync_s",
        "train_state_gb",
        "train_switch_s",
    )
    assert all(mask.all() for mask in jobs.estimated.values())


def test_only_empty_cells_are_estimated(read):
    jobs = read(csv_text({"rollout_state_gb": "300"}, {"rollout_state_gb": ""}))
    assert jobs.rollout_state_gb.tolist() == [300.0, 275.7]
    assert jobs.estimated["rollout_state_gb"].tolist() == [False, True]


GIVEN = {
    "rollout_state_gb": "1",
    "train_state_gb": "1",
    "rollout_switch_s": "1",
    "train_switch_s": "1",
    "sync_s": "2",
}


@pytest.mark.parametrize("left_out", sorted(GIVEN))
def test_neither_column_nor_model_b_names_what_is_missing(refused, left_out):
    given = {k: v for k, v in GIVEN.items() if k != left_out}
    names = "sync_s, sync_gb" if left_out == "sync_s" else left_out
    error = refused(csv_text(given, without=("model_b",)))
    assert messages(error) == [f"Expected column {names} or model_b, got none of them."]


def test_an_empty_cell_without_model_b_is_a_fault_of_its_row(refused):
    error = refused(
        csv_text({**GIVEN, "model_b": ""}, {**GIVEN, "model_b": "", "train_state_gb": ""})
    )
    assert messages(error) == [
        "Expected train_state_gb or model_b, got an empty cell "
        "(job 'j1', line 3, column train_state_gb)."
    ]


def test_a_bad_model_b_is_one_fault_not_six(refused):
    error = refused(csv_text({"model_b": "x"}))
    assert error.total == 1


@pytest.mark.parametrize(
    ("cells", "sync_s", "sync_gb", "estimated"),
    [
        ({"sync_s": "2", "sync_gb": "3"}, 2.0, 3.0, ()),
        ({"sync_s": "2"}, 2.0, 14.0, ("sync_gb",)),
        # 2 s by the link model: 2 / (8 / 20 + 8 / 400) GB
        ({"sync_s": "2", "model_b": ""}, 2.0, 2 / 0.42, ("sync_gb",)),
        ({"sync_gb": "10"}, 4.2, 10.0, ()),  # 80 Gb / 20 + 80 Gb / 400
        ({"sync_gb": "0"}, 0.0, 0.0, ()),
        ({}, 5.88, 14.0, ("sync_gb", "sync_s")),
    ],
)
def test_where_sync_comes_from(read, cells, sync_s, sync_gb, estimated):
    others = {k: v for k, v in GIVEN.items() if k != "sync_s"}
    jobs = read(csv_text({**others, **cells}))
    assert jobs.sync_s[0] == pytest.approx(sync_s, abs=1e-12)
    assert jobs.sync_gb[0] == sync_gb
    assert jobs.estimated_columns() == estimated
