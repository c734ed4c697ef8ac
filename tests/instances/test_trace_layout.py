"""Whole files of every format: layout, line numbers, JSON Lines and data frames."""

import json

import numpy as np
import pandas as pd
import pytest

from instances import trace_io
from instances.errors import InputError
from instances.jobs import JobTable
from instances.trace import TraceError, jobs_from_frame
from trace_cases import GOOD, csv_text, messages

# -- whole files ---------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["job_id", "arrival_s", "slo", "rollout_s", "train_s"])
def test_missing_required_column(refused, missing):
    error = refused(csv_text({}, without=(missing,)))
    assert messages(error) == [f"Missing column {missing}."]
    assert (error.faults[0].row, error.faults[0].column) == (None, missing)


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ("train_sec", "train_s"),
        ("rollout_S", "rollout_s"),
        ("ROLLOUT_S", "rollout_s"),
        ("arival_s", "arrival_s"),
        ("SLO", "slo"),
    ],
)
def test_a_missing_column_suggests_the_nearest_unknown_one(refused, written, missing):
    text = csv_text({}).replace(missing, written, 1)
    assert messages(refused(text)) == [f"Missing column {missing}. Did you mean '{written}'?"]


def test_missing_length_suggests_either_name(refused):
    text = csv_text({}).replace("duration_s", "iteration", 1)
    assert messages(refused(text)) == [
        "Missing column duration_s or iterations. Did you mean 'iteration'?"
    ]


def test_several_missing_columns_and_bad_cells_are_reported_together(refused):
    error = refused(csv_text({"slo": "0"}, {"arrival_s": "x"}, without=("train_s", "job_id")))
    assert messages(error) == [
        "Missing column job_id.",
        "Missing column train_s.",
        "Expected slo >= 1, got '0' (line 2, column slo).",
        "Expected arrival_s to be a number, got 'x' (line 3, column arrival_s).",
    ]


def test_a_missing_phase_names_the_estimator_columns_that_are_missing_too(refused):
    error = refused(csv_text({"max_tokens": "8000"}, without=("rollout_s", "train_s")))
    lacking = "and to estimate it prompts_per_step and samples_per_prompt."
    assert messages(error) == [
        f"Missing column rollout_s, {lacking}",
        f"Missing column train_s, {lacking}",
    ]


def test_duplicate_columns(refused):
    text = csv_text({}).replace("model_b", "slo", 1)
    assert "Expected each column name once, got 'slo' again as column 7 (line 1, column slo)." in (
        messages(refused(text))
    )


def test_duplicate_unknown_columns_are_faults_too(refused):
    lines = csv_text({}).splitlines()
    error = refused(f"{lines[0]},team,team\n{lines[1]},x,y\n")
    assert messages(error) == [
        "Expected each column name once, got 'team' again as column 9 (line 1, column team)."
    ]


@pytest.mark.parametrize("text", ["", "\n", "\r\n\n", "\ufeff"])
def test_empty_file(refused, text):
    assert messages(refused(text)) == [
        "Expected a header line and at least one job, got an empty file."
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_empty_json_lines(refused, text):
    assert messages(refused(text, "jsonl")) == ["Expected at least one job, got an empty file."]


def test_header_only(refused):
    assert messages(refused(csv_text())) == ["Expected at least one job, got none."]


def test_header_only_frame():
    with pytest.raises(TraceError, match=r"Expected at least one job, got none\."):
        jobs_from_frame(pd.DataFrame({name: [] for name in GOOD}))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
def test_byte_order_mark_and_line_ends(read, refused, end, start, last):
    text = start + csv_text({}, {"slo": "0"}, {}).replace("\n", end)
    text = text if last else text.removesuffix(end)
    assert [fault.row for fault in refused(text).faults] == [3]
    good = text.replace("3600,0,", "3600,2,")
    assert read(good).job_id == ("j0", "j1", "j2")


def test_an_empty_first_cell_after_a_lone_carriage_return(refused):
    # pandas alone would move the cells of that line to the left.
    error = refused(csv_text({}, {"job_id": ""}).replace("\n", "\r\r"))
    assert messages(error) == [
        "Expected a job_id that is not empty, got an empty cell (line 5, column job_id)."
    ]


@pytest.mark.parametrize(("cut", "got"), [(-1, 6), (1, 8)])
def test_rows_with_too_few_or_too_many_cells(refused, cut, got):
    lines = csv_text({}, {}, {"slo": "0"}).splitlines()
    lines[2] = lines[2] + ",9" if cut > 0 else lines[2].rsplit(",", 1)[0]
    error = refused("\n".join(lines))
    assert messages(error) == [
        f"Expected 7 cells, got {got} (job 'j1', line 3).",
        "Expected slo >= 1, got '0' (job 'j2', line 4, column slo).",
    ]


def test_too_few_and_too_many_cells_do_not_cancel_out(refused):
    lines = csv_text({}, {}).splitlines()
    error = refused("\n".join([lines[0], lines[1] + ",9", lines[2].rsplit(",", 1)[0]]))
    assert [str(fault) for fault in error.faults] == [
        "Expected 7 cells, got 8 (job 'j0', line 2).",
        "Expected 7 cells, got 6 (job 'j1', line 3).",
    ]


def test_empty_lines_carry_no_job_but_count(read, refused):
    lines = csv_text({}, {}, {"slo": "0"}).splitlines()
    text = "\n".join(["", lines[0], "", lines[1], lines[2], "", "", lines[3], ""])
    assert [fault.row for fault in refused(text).faults] == [8]
    assert len(read(text.replace("3600,0,", "3600,1,"))) == 3


def test_a_line_of_spaces_is_not_an_empty_line(refused):
    lines = csv_text({}, {}).splitlines()
    error = refused("\n".join([lines[0], "   ", lines[1]]))
    assert messages(error) == ["Expected 7 cells, got 1 (job '   ', line 2)."]


def test_lines_are_those_of_an_editor_after_quoted_line_breaks(read, refused):
    # Job j0 spans lines 2 to 4, j1 is line 5, j2 spans 6 and 7, j3 is line 8.
    rows = [{"note": "a\n\nb"}, {"slo": "0"}, {"note": "c,\n"}, {"train_s": "x"}]
    error = refused(csv_text(*rows))
    assert [(fault.row, fault.column) for fault in error.faults] == [(5, "slo"), (8, "train_s")]
    good = read(csv_text(*[{"note": row.get("note", "")} for row in rows]))
    assert good.extra["note"] == ("a\n\nb", "", "c,\n", "")


def test_a_quote_inside_an_unquoted_cell(refused):
    error = refused(csv_text({}, {}).replace("j1", '7" model'))
    assert messages(error) == [
        "Expected quotes only around a whole cell and doubled inside it, got "
        "'7\" model,0,3600,1.5,1' (line 3). Nothing after it was read."
    ]


def test_text_after_a_closing_quote(refused):
    error = refused(csv_text({}, {}).replace("j1", '"j"1'))
    assert "quotes only around a whole cell" in str(error)
    assert error.faults[0].row == 3


def test_an_unclosed_quote_with_doubled_quotes_names_its_first_line(refused):
    error = refused(csv_text({}, {}, {}).replace("j1", '"j\n""1'))
    assert (error.faults[0].row, error.faults[0].value) == (3, '"j')


@pytest.mark.parametrize("opened", ['"j1', '"j""1', '"""j1', '"'])
def test_a_quote_that_never_closes_names_the_line_where_it_opens(refused, opened):
    error = refused(csv_text({}, {}, {}).replace("j1", opened))
    assert error.faults[0].rule == "a closing quote before the end of the file"
    assert error.faults[0].row == 3


def test_a_cell_of_a_megabyte_is_read(read, refused):
    long = "x" * 1_000_000
    assert read(csv_text({"note": long})).extra["note"] == (long,)
    assert read(csv_text({}).replace("model_b", f"model_b,{long}").replace(",7", ",7,"))
    with pytest.raises(InputError, match="Cannot read line 1: field larger than field limit"):
        read(csv_text({}).replace("model_b", f'model_b,"{long}"').replace(",7", ",7,"))


def test_only_the_first_twenty_faults_are_shown_in_order_of_row_then_column(refused):
    rows = [{"slo": "0", "train_s": "0", "arrival_s": "-1"} for _ in range(30)]
    error = refused(csv_text(*rows))
    assert error.total == 90
    assert str(error).splitlines()[0] == "jobs.csv: 90 faults, the first 20:"
    shown = [(fault.row, fault.column) for fault in error.faults]
    order = ["arrival_s", "slo", "train_s"]  # as in the header
    assert shown == [(2 + k // 3, order[k % 3]) for k in range(20)]


def test_faults_name_rows_of_the_file_although_jobs_are_sorted(refused):
    error = refused(csv_text({"arrival_s": "9"}, {"arrival_s": "1", "slo": "0"}))
    assert error.faults[0].row == 3


# -- JSON Lines and frames ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "Expected a JSON object, got '[1, 2]' (line 2)."),
        ("7", "Expected a JSON object, got '7' (line 2)."),
        (
            "{bad",
            "Expected a JSON object, got '{bad' (line 2). Not valid JSON: Expecting property "
            "name enclosed in double quotes at character 2.",
        ),
        (
            "{} {}",
            "Expected a JSON object, got '{} {}' (line 2). Not valid JSON: more text at "
            "character 3.",
        ),
        ('{"slo": 1, "slo": 2}', "Expected each key once, got 'slo' twice (line 2)."),
        (
            "[" * 100_000,
            f"Expected a JSON object, got '{'[' * 77}...' (line 2). Nested too deeply.",
        ),
    ],
)
def test_bad_json_lines(refused, line, message):
    good = json.dumps(GOOD)
    error = refused(f"{good}\n{line}\n\n{json.dumps({**GOOD, 'job_id': 'b', 'slo': 0})}\n", "jsonl")
    assert messages(error) == [
        message,
        "Expected slo >= 1, got '0' (job 'b', line 4, column slo).",
    ]


@pytest.mark.parametrize("value", [True, False, [1], {"a": 1}])
@pytest.mark.parametrize("column", ["train_s", "job_id", "mode", "team"])
def test_json_booleans_and_nested_values_are_faults(refused, column, value):
    error = refused(json.dumps({**GOOD, column: value}), "jsonl")
    assert error.total == 1
    assert error.faults[0].column == column
    assert error.faults[0].value == json.dumps(value)


def test_json_null_and_missing_keys_are_empty_cells(read, refused):
    lines = [
        {**GOOD, "team": "x", "sync_s": 2},
        {**GOOD, "job_id": "b", "team": None, "sync_s": None},
        {**GOOD, "job_id": "c"},
    ]
    jobs = read("\n".join(map(json.dumps, lines)), "jsonl")
    assert jobs.extra == {"team": ("x", "", "")}
    assert jobs.estimated["sync_s"].tolist() == [False, True, True]
    error = refused(json.dumps({**GOOD, "slo": None}), "jsonl")
    assert messages(error) == [
        "Expected slo >= 1, got an empty cell (job 'a17', line 1, column slo)."
    ]


def test_a_key_that_first_appears_late_is_empty_before(read, monkeypatch):
    monkeypatch.setattr(trace_io, "_JSON_BLOCK", 2)
    lines = [{**GOOD, "job_id": f"j{i}"} for i in range(5)]
    lines[4] |= {"team": "x", "rollout_p50_s": 9}
    jobs = read("\n".join(map(json.dumps, lines)), "jsonl")
    assert jobs.extra == {"team": ("", "", "", "", "x")}
    assert np.isnan(jobs.optional["rollout_p50_s"][:4]).all()
    assert jobs.optional["rollout_p50_s"][4] == 9


def test_json_numbers_are_quoted_as_written(refused):
    text = json.dumps(GOOD).replace('"50"', "-3.00")
    assert refused(text, "jsonl").faults[0].value == "-3.00"
    text = json.dumps(GOOD).replace('"50"', "NaN")
    assert "Expected a finite train_s > 0, got 'NaN'" in str(refused(text, "jsonl"))


def test_json_text_that_no_file_can_hold(refused):
    error = refused(json.dumps({**GOOD, "team": "\ud800"}), "jsonl")
    assert messages(error)[0].startswith("Expected text without NUL or unpaired surrogates")


def test_frames_take_numbers_missing_values_and_text():
    frame = pd.DataFrame(
        {
            "job_id": ["007", "x", "y"],
            "arrival_s": [5, 0, 0],
            "duration_s": [3600.0, None, 3600],
            "iterations": pd.array([None, 10, None], dtype="Int64"),
            "slo": [1.5, 1, 2],
            "rollout_s": ["100", 100, 100.0],
            "train_s": np.array([50, 50, 50], dtype=np.float32),
            "model_b": pd.Categorical([7, 7, 32]),
            "team": [None, pd.NA, 3],
        },
        index=[9, 9, 9],
    )
    jobs = jobs_from_frame(frame)
    assert isinstance(jobs, JobTable)
    assert jobs.job_id == ("x", "y", "007")
    assert jobs.rollout_s.tolist() == [100.0] * 3
    assert jobs.extra == {"team": ("", "3", "")}


def test_frames_report_rows_and_booleans():
    frame = pd.DataFrame([{**GOOD, "slo": 0.5, "train_s": True}])
    with pytest.raises(TraceError) as caught:
        jobs_from_frame(frame, source="my frame")
    assert str(caught.value).splitlines() == [
        "my frame: 2 faults:",
        "Expected slo >= 1, got '0.5' (job 'a17', row 1, column slo).",
        "Expected train_s to be a number, got 'True' (job 'a17', row 1, column train_s).",
    ]


def test_frames_with_duplicate_or_unnamed_columns():
    frame = pd.DataFrame([[*GOOD.values(), "x"]], columns=[*GOOD, "slo"])
    with pytest.raises(TraceError, match="got 'slo' again as column 8"):
        jobs_from_frame(frame)
    with pytest.raises(InputError, match=r"Expected column names to be text, got 3\."):
        jobs_from_frame(pd.DataFrame([GOOD]).assign(**{"z": 1}).rename(columns={"z": 3}))
