"""What spreadsheets make of a trace: each mistake is one fault that says what to do."""

import pandas as pd
import pytest

from instances.errors import InputError
from instances.importers import import_generic
from instances.trace import TraceError, jobs_from_frame, read_trace
from trace_cases import csv_text, messages

SAVE = "In Excel: Save As, CSV UTF-8 (comma delimited)"
TWELVE = csv_text(*[{}] * 12)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_separators_are_one_fault(refused, mark):
    error = refused(TWELVE.replace(",", mark))
    assert messages(error) == [
        f"Expected commas between cells, got {mark!r} in the header (line 1). {SAVE}."
    ]
    assert error.total == 1


def test_semicolons_with_decimal_commas_are_one_fault(refused):
    text = csv_text(*[{"slo": "1,5", "train_s": "50,25"}] * 12)
    error = refused(text.replace('"', "~").replace(",", ";").replace("1;5", "1,5").replace("~", ""))
    assert messages(error) == [
        "Expected commas between cells, got ';' in the header (line 1). "
        f"{SAVE}, with a point before decimals."
    ]


def test_a_title_above_semicolons_hides_nothing(refused):
    error = refused("Our RL jobs Q3\n" + TWELVE.replace(",", ";"))
    assert messages(error) == [f"Expected commas between cells, got ';' in line 2. {SAVE}."]


def test_one_column_is_not_taken_for_another_separator(refused):
    said = messages(refused("job_id\na;b\nc|d\n"))
    assert "Missing column arrival_s." in said
    assert not any("commas between cells" in line for line in said)


@pytest.mark.parametrize(
    ("above", "got", "line"),
    [
        ("Our RL jobs Q3\n", "'Our RL jobs Q3'", 2),
        ("Our RL jobs Q3,,,,,,\n", "'Our RL jobs Q3'", 2),  # as Excel pads it
        ("Our RL jobs Q3,,,,,2026-11-30,\n,,,,,,\n", "'Our RL jobs Q3'", 3),
        ("Our RL jobs Q3\n\n", "'Our RL jobs Q3'", 3),
        (",,,,,,\n", "empty cells", 2),
    ],
)
def test_a_title_above_the_names_is_one_fault(refused, above, got, line):
    error = refused(above + TWELVE)
    assert messages(error) == [
        f"Expected the column names in line 1, got {got}; they seem to be in line {line}."
    ]


def test_rows_of_empty_cells_are_one_fault_each_run(refused):
    """Seven columns, so six commas; Excel also ends rows early, or keeps blanks."""
    head, *rows = csv_text(*[{}] * 5).splitlines()
    text = "\n".join([head, *rows[:2], ",,,,,,", rows[2], ",, ,,,,", ",,,,,,", *rows[3:]])
    assert messages(refused(text)) == [
        "Line 4 is empty: remove it.",
        "Lines 6 to 7 are empty: remove them.",
    ]
    assert messages(refused("\n".join([head, *rows, ",,,"]))) == ["Line 7 is empty: remove it."]
    assert messages(refused("\r\n".join([head, *rows, ",,,", ""]))) == [
        "Line 7 is empty: remove it."
    ]


def test_other_faults_are_reported_beside_an_empty_row(refused):
    text = csv_text({}, {"slo": "0.5"}) + ",,,,,,\n"
    assert messages(refused(text)) == [
        "Expected slo >= 1, got '0.5' (job 'j1', line 3, column slo).",
        "Line 4 is empty: remove it.",
    ]


def test_a_frame_with_an_empty_row_names_the_row():
    frame = pd.DataFrame({"job_id": ["a", None], "arrival_s": [0.0, None], "slo": [2.0, None]})
    frame = frame.assign(duration_s=[3600.0, None], rollout_s=[9.0, None], train_s=[9.0, None])
    with pytest.raises(TraceError) as caught:
        jobs_from_frame(frame.assign(model_b=[7.0, None]))
    assert messages(caught.value) == ["Row 2 is empty: remove it."]


def test_blanks_around_names_are_one_fault_and_hide_none(refused):
    text = csv_text({}, {"slo": "0.5"})
    for name, written in (("slo", " slo"), ("job_id", "job_id ")):
        assert messages(refused(text.replace(name, written, 1))) == [
            f"Expected column names without blanks around them, got {written!r} (line 1).",
            "Expected slo >= 1, got '0.5' (job 'j1', line 3, column slo).",
        ]
    head, _, rows = csv_text({}).partition("\n")
    assert messages(refused(head.replace(",", ", ") + "\n" + rows)) == [
        "Expected column names without blanks around them, got ' arrival_s', ' duration_s', "
        "' slo' and 3 more (line 1)."
    ]


def test_decimal_commas_in_quotes_are_one_fault_a_column(refused):
    rows = [{"slo": "1,5"}, {"slo": "1,8"}, {"slo": "abc"}]
    assert messages(refused(csv_text(*rows))) == [
        "Expected slo to be a number, got '1,5' (job 'j0', line 2, column slo). Write numbers "
        "without separators, with a point before decimals. 2 cells of the column have a comma.",
        "Expected slo to be a number, got 'abc' (job 'j2', line 4, column slo).",
    ]


def test_a_cell_may_be_left_empty_where_another_column_stands_for_it(refused):
    text = csv_text({"iterations": "20", "duration_s": "n/a"})
    said = messages(refused(text))
    assert said[0].endswith("(job 'j0', line 2, column duration_s). Leave the cell empty.")


@pytest.mark.parametrize("name", ["jobs.xlsx", "jobs.XLS", "jobs.ods"])
def test_workbooks_are_told_how_to_be_saved(name):
    with pytest.raises(InputError, match=r"ending in \.csv.*In Excel: Save As, CSV UTF-8"):
        read_trace(name)


def test_logs_of_arrivals_get_the_same_words(tmp_path):
    log = "job_id, arrival_s,service_sec,gpu_count\na,0,7200,8\n,,,\n,,,\nb,5,7200,8\n"
    (tmp_path / "log.csv").write_text(log)
    with pytest.raises(TraceError) as caught:
        import_generic(tmp_path / "log.csv", seed=0)
    assert messages(caught.value) == [
        "Expected column names without blanks around them, got ' arrival_s' (line 1).",
        "Lines 3 to 4 are empty: remove them.",
    ]


def test_columns_without_a_name_are_one_fault(refused):
    text = csv_text({}, {}).replace("\n", ",,,\n")
    assert messages(refused(text)) == ["Columns 8, 9, 10 have no name: remove or name them."]
