"""Reading what verl's trackers write: JSON Lines, CSV, console logs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from instances.errors import InputError
from instances.trace_table import TraceError
from instances.verl_log import VerlLog, read_verl_log
from verl_cases import CONSOLE, csv_of, jsonl, put, step_of

TWO = [(1, step_of(10.5, 20.0)), (2, step_of(11.0, 21.0))]


def cells(log: VerlLog, key: str) -> list[tuple[int, str]]:
    return [(step.step, step.cells.get(key, "")) for step in log.steps]


def test_the_file_tracker_and_flat_objects_say_the_same(tmp_path: Path) -> None:
    nested = read_verl_log(put(tmp_path / "a.jsonl", jsonl(TWO)))
    flat = '{"_step": 1, "timing_s/gen": 10.5}\n\n{"_step": 2, "timing_s/gen": 11.0}\n'
    other = read_verl_log(put(tmp_path / "b.jsonl", flat))
    assert cells(nested, "timing_s/gen") == [(1, "10.5"), (2, "11.0")]
    assert cells(other, "timing_s/gen") == cells(nested, "timing_s/gen")
    assert nested.form == other.form == "JSON Lines"
    assert [step.line for step in nested.steps] == [1, 2]
    assert [step.line for step in other.steps] == [1, 3]  # an empty line counts


def test_the_number_of_a_step_may_be_written_as_a_float(tmp_path: Path) -> None:
    text = '{"training/global_step": 7.0, "timing_s/gen": 1}\n'
    log = read_verl_log(put(tmp_path / "a.json", text))
    assert [step.step for step in log.steps] == [7]


def test_csv_with_and_without_the_name_of_the_run(tmp_path: Path) -> None:
    plain = read_verl_log(put(tmp_path / "a.csv", csv_of(TWO)))
    named = read_verl_log(put(tmp_path / "b.csv", csv_of(TWO, run="grpo - 7b")))
    assert cells(plain, "timing_s/gen") == cells(named, "timing_s/gen")
    assert cells(plain, "timing_s/gen") == [(1, "10.5"), (2, "11.0")]
    assert plain.keys == named.keys == ("timing_s/gen", "timing_s/update_actor", "timing_s/step")
    assert not plain.sampled


def test_min_and_max_columns_are_no_keys_but_tell_of_sampling(tmp_path: Path) -> None:
    head = '"Step","r - timing_s/gen","r - timing_s/gen__MIN","r - timing_s/gen__MAX"\n'
    same = read_verl_log(put(tmp_path / "a.csv", head + "1,10,10,10\n2,11,11,11\n"))
    wide = read_verl_log(put(tmp_path / "b.csv", head + "1,10,10,10\n5,11,9,13\n"))
    assert same.keys == wide.keys == ("timing_s/gen",)
    assert (same.sampled, wide.sampled) == (False, True)


def test_two_runs_in_one_file_are_refused_by_name(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", '"Step","x - timing_s/gen","y - timing_s/gen"\n1,10,12\n')
    with pytest.raises(InputError, match="columns of one run, got 2: 'x', 'y'"):
        read_verl_log(path)


def test_console_lines_are_found_behind_what_ray_and_tqdm_print(tmp_path: Path) -> None:
    log = read_verl_log(put(tmp_path / "a.out", CONSOLE))
    assert log.form == "console"
    # Line 2 and line 4 hold no step; tqdm's carriage return starts no new line.
    assert [(step.step, step.line, step.timed) for step in log.steps] == [
        (0, 1, False),
        (1, 3, True),
        (2, 5, True),
        (3, 6, True),
    ]
    # np.float64(35.0) is a number; what follows the last one on a line is not part of it.
    assert cells(log, "timing_s/update_actor")[2] == (2, "35.0")
    assert cells(log, "response_length/clip_ratio")[1] == (1, "0.070")
    assert "timing_per_token_ms/gen" in log.seen
    assert "timing_per_token_ms/gen" not in log.keys


def test_a_global_step_is_not_taken_for_the_step(tmp_path: Path) -> None:
    text = "training/global_step:5 - timing_s/gen:1.0\nmy_step:6 - timing_s/gen:1.0\n"
    with pytest.raises(InputError, match=r"Expected lines with 'step:1 - .*read as console"):
        read_verl_log(put(tmp_path / "a.log", text))


def test_a_console_log_may_hold_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff\xfe\x00 noise\nstep:4 - timing_s/gen:2.5\n")
    assert cells(read_verl_log(path), "timing_s/gen") == [(4, "2.5")]


def test_a_name_without_ending_is_read_by_its_first_character(tmp_path: Path) -> None:
    assert read_verl_log(put(tmp_path / "a", jsonl(TWO))).form == "JSON Lines"
    assert read_verl_log(put(tmp_path / "b", CONSOLE)).form == "console"


def test_compressed_logs(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    whole = read_verl_log(put(tmp_path / "a.jsonl", jsonl(TWO)))
    for name, data in (
        ("a.jsonl.gz", gzip.compress(jsonl(TWO).encode())),
        ("a.log.gz", gzip.compress(CONSOLE.encode())),
        ("a.csv.zst", zstandard.ZstdCompressor().compress(csv_of(TWO).encode())),
    ):
        (tmp_path / name).write_bytes(data)
        read = read_verl_log(tmp_path / name)
        if ".log" not in name:
            assert cells(read, "timing_s/gen") == cells(whole, "timing_s/gen")
        else:
            assert len(read.steps) == 4


def test_every_fault_of_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    text = (
        '{"step": 1, "data": {"timing_s/gen": 1}}\n'
        '{"data": {"timing_s/gen": 1}}\n'
        '{"step": -2, "data": {}}\n'
        '{"step": 3, "data": 4}\n'
        '{"step": 4, "data": {"timing_s/gen": 1, "timing_s/gen": 2}}\n'
        '{"step": 5, "da\n'
        "[1]\n"
    )
    with pytest.raises(TraceError) as caught:
        read_verl_log(put(tmp_path / "a.jsonl", text))
    assert caught.value.total == 6
    assert [fault.row for fault in caught.value.faults] == [2, 3, 4, 5, 6, 7]
    words = str(caught.value)
    assert "a step number under one of step" in words
    assert "Expected step to be a whole number >= 0, got '-2' (line 3, column step)." in words
    assert "the key 'timing_s/gen' twice" in words
    assert "Not valid JSON: Unterminated string" in words


def test_the_first_twenty_faults_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", '{"timing_s/gen": 1}\n' * 30)
    with pytest.raises(TraceError, match="30 faults, the first 20") as caught:
        read_verl_log(path)
    assert len(caught.value.faults) == 20


def test_csv_without_a_step_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"named step, Step.*got none\. Did you mean 'Steps'"):
        read_verl_log(put(tmp_path / "a.csv", "Steps,timing_s/gen\n1,2\n"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.parquet", "PAR1", "got Parquet"),
        ("a.jsonl", "\n", r"Expected a step, got none \(read as JSON Lines\)"),
        ("a.csv", "Step,timing_s/gen\n", r"Expected a step, got none \(read as CSV\)"),
        ("a.log", "", "got none"),
    ],
)
def test_files_without_steps(name: str, text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        read_verl_log(put(tmp_path / name, text))
