"""The table of a study: resumed after any loss, in the order of the study, one writer at a time."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from command_line import names, write
from instances.errors import FleetPlannerError, InputError
from planner.sweep.expand import Study
from planner.sweep.run import COLUMNS, FIGURES, Cell, failed
from planner.sweep.store import Lock, ResultTable
from sweep_cases import study_of

HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None
needs_parquet = pytest.mark.skipif(not HAS_PARQUET, reason="needs pyarrow")
BOTH = pytest.mark.parametrize("suffix", [".csv", pytest.param(".parquet", marks=needs_parquet)])


def study(folder: Path, *sizes: int, name: str = "sizes") -> Study:
    return study_of(folder, name=name, axes={"max_group_size": list(sizes or (1, 2, 3, 4))})


def figures(number: int) -> dict[str, Cell]:
    """Return figures made up of a number, among them all that a CSV file may trip over."""
    out: dict[str, Cell] = {}
    for at, column in enumerate(FIGURES):
        value: Cell = number * 100 + at
        if column.kind == "number":
            value = (number + 1) / (3 * (at + 1))  # most need all of their digits
        elif column.kind == "text":
            value = None
        out[column.name] = value
    return out


def error(number: int) -> dict[str, Cell]:
    return dict(failed("ValueError", f'run {number}: "quoted", with a comma'))


def fill(
    path: Path,
    of: Study,
    numbers: Mapping[int, dict[str, Cell]] | range,
    *,
    finish: bool = True,
    retry: bool = False,
) -> None:
    """Add rows in an order of their own, in two parts."""
    rows = numbers if isinstance(numbers, Mapping) else {n: figures(n) for n in numbers}
    with ResultTable(path, of, retry_failed=retry) as table:
        table.begin()
        order = sorted(rows, key=lambda n: (n % 2, n))
        for part in (order[:2], order[2:]):
            table.add({of.runs[n].run_id: rows[n] for n in part})
        if finish:
            table.finish()


def held(path: Path, of: Study, **options: bool) -> tuple[list[int], list[str]]:
    """Return the numbers (from 0) of the rows taken over, and what was said."""
    notes: list[str] = []
    with ResultTable(path, of, note=notes.append, **options) as table:
        return [int(str(row["run"])) - 1 for row in table.ordered], notes


@BOTH
def test_rows_come_back_as_they_were(suffix: str, tmp_path: Path) -> None:
    path, of = tmp_path / f"t{suffix}", study(tmp_path)
    rows = {0: figures(0), 1: error(1), 2: figures(2), 3: figures(3)}
    fill(path, of, rows)
    with ResultTable(path, of) as table:
        assert [row["run"] for row in table.ordered] == [1, 2, 3, 4]
        for number, row in enumerate(table.ordered):
            assert {key: row[key] for key in rows[number]} == rows[number]
            assert row["max_group_size"] == number + 1
            assert row["run_id"] == of.runs[number].run_id
    assert names(tmp_path) == [f"t{suffix}"]


def test_the_file_is_in_order_with_one_line_a_run(tmp_path: Path) -> None:
    path, of = tmp_path / "t.csv", study(tmp_path)
    fill(path, of, range(4))
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == [column.name for column in COLUMNS]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]


@BOTH
def test_equal_bytes_however_it_came_about(suffix: str, tmp_path: Path) -> None:
    of = study(tmp_path)
    at_once, by_parts = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    fill(at_once, of, range(4))
    fill(by_parts, of, range(2, 4), finish=False)
    fill(by_parts, of, {0: figures(0)})
    fill(by_parts, of, {1: figures(1)})
    assert by_parts.read_bytes() == at_once.read_bytes()


def test_rows_are_on_disk_when_they_are_added(tmp_path: Path) -> None:
    path, of = tmp_path / "t.csv", study(tmp_path)
    with ResultTable(path, of) as table:
        table.begin()
        for number in (2, 0):
            table.add({of.runs[number].run_id: figures(number)})
            assert path.read_bytes().count(b"\n") == 2 + (number == 0)


def test_cut_at_any_byte(tmp_path: Path) -> None:
    """Whatever is left of the file, whole rows are kept, and the table ends up the same."""
    path, of = tmp_path / "t.csv", study(tmp_path)
    rows = {0: figures(0), 1: error(1), 2: figures(2), 3: figures(3)}
    fill(path, of, rows)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 0x0A]
    draws = random.Random(1)
    cuts = {0, 1, len(whole), *ends, *(end - 1 for end in ends)}
    for cut in sorted(cuts | {draws.randrange(len(whole)) for _ in range(60)}):
        path.write_bytes(whole[:cut])
        found, notes = held(path, of)
        # rows end at all line ends but that of the header
        assert found == list(range(sum(end <= cut for end in ends[1:]))), cut
        assert bool(notes) == (cut not in (0, *ends)), cut
        fill(path, of, {n: row for n, row in rows.items() if n not in found})
        assert path.read_bytes() == whole, cut


@needs_parquet
def test_a_parquet_table_goes_on_from_its_journal(tmp_path: Path) -> None:
    path, of = tmp_path / "t.parquet", study(tmp_path)
    fill(path, of, range(3), finish=False)
    journal = tmp_path / "t.parquet.part.csv"
    assert names(tmp_path) == [journal.name]
    journal.write_bytes(journal.read_bytes()[:-5])
    found, notes = held(path, of)
    # they were added in the order 0, 2, 1
    assert found == [0, 2]
    assert notes == ["Dropped the last line of t.parquet.part.csv, which was cut short."]


def test_a_study_that_grows_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    fill(path, study(tmp_path, 2, 3), range(2))
    larger = study(tmp_path, 1, 3, 2, 9)
    # 3 and 2 are runs 2 and 3 of the larger study
    assert held(path, larger) == ([1, 2], [])


@BOTH
def test_a_table_of_another_study_is_refused_by_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    fill(path, study(tmp_path, 1, 2, name="first"), range(2))
    other = study(tmp_path, 2, 3, name="second")
    with pytest.raises(InputError) as caught:
        held(path, other)
    for part in (path.name, "1 runs that are not of study 'second'", "'first'", "--force"):
        assert part in str(caught.value)
    found, notes = held(path, other, force=True)
    assert found == [0]
    assert notes == [f"Dropped 1 runs of another study from {path.name}."]


def test_failed_runs_are_tried_again_when_asked(tmp_path: Path) -> None:
    path, of = tmp_path / "t.csv", study(tmp_path)
    fill(path, of, {0: figures(0), 1: error(1), 2: figures(2), 3: error(3)})
    assert held(path, of) == ([0, 1, 2, 3], [])
    assert held(path, of, retry_failed=True) == ([0, 2], [])


@BOTH
def test_a_failed_run_tried_again_has_the_new_row(suffix: str, tmp_path: Path) -> None:
    path, of = tmp_path / f"t{suffix}", study(tmp_path)
    fill(path, of, {0: figures(0), 1: error(1), 2: figures(2), 3: figures(3)})
    fill(path, of, {1: figures(1)}, retry=True, finish=False)
    with ResultTable(path, of) as table:
        assert table.rows[of.runs[1].run_id]["error_type"] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job_id,arrival_s\na,0\n", "no table of planner sweep"),
        ("run\n", "no table of planner sweep"),
        ("no line end", "no table of planner sweep"),
    ],
)
def test_a_file_of_something_else_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", text)
    for force in (False, True):
        with pytest.raises(InputError, match=words):
            held(path, study(tmp_path), force=force)
    assert path.read_text() == text
    assert names(tmp_path) == ["t.csv"]


def test_a_damaged_row_is_refused_by_line(tmp_path: Path) -> None:
    path, of = tmp_path / "t.csv", study(tmp_path)
    fill(path, of, range(4))
    lines = path.read_text().splitlines(keepends=True)
    for broken, words in (
        (lines[2].replace("2,", "x,", 1), "'x' .line 3."),
        (lines[2].replace(",", ";", 1), f"{len(COLUMNS)} cells, got {len(COLUMNS) - 1} .line 3."),
        ('"' + lines[2], "Not a whole table"),
    ):
        write(path, "".join([*lines[:2], broken, *lines[3:]]))
        with pytest.raises(InputError, match=words):
            held(path, of)


@needs_parquet
def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", "nothing of the kind")
    with pytest.raises(InputError, match="Not a whole Parquet file"):
        held(path, study(tmp_path))
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"run": [1]}), path)
    with pytest.raises(InputError, match="no table of planner sweep"):
        held(path, study(tmp_path))


@needs_parquet
def test_parquet_has_types(tmp_path: Path) -> None:
    import pyarrow.parquet

    path, of = tmp_path / "t.parquet", study(tmp_path)
    fill(path, of, {0: error(0), 1: error(1)})
    types = {f.name: str(f.type) for f in pyarrow.parquet.read_schema(path)}
    kinds = {"text": "string", "whole": "int64", "number": "double"}
    assert types == {column.name: kinds[column.kind] for column in COLUMNS}


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="the extra 'parquet'"):
        ResultTable(tmp_path / "t.parquet", study(tmp_path))


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    of = study(tmp_path)
    with pytest.raises(InputError, match=r"end in \.csv or \.parquet"):
        ResultTable(tmp_path / "t.txt", of)
    with pytest.raises(InputError, match="Create it first"):
        ResultTable(tmp_path / "none" / "t.csv", of)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(InputError, match="name a file"):
        ResultTable(tmp_path / "d.csv", of)


def test_a_disk_that_refuses_ends_the_study_in_words(tmp_path: Path) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    of = study(tmp_path)
    with ResultTable(tmp_path / "t.csv", of) as table:
        table._file = Full()  # type: ignore[assignment]
        with pytest.raises(FleetPlannerError, match="No space left on device"):
            table.add({of.runs[0].run_id: figures(0)})


# --- one writer -----------------------------------------------------------------------------------


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path, of = tmp_path / "t.csv", study(tmp_path)
    with (
        ResultTable(path, of),
        pytest.raises(FleetPlannerError, match=r"Another sweep is writing .*t\.csv"),
    ):
        ResultTable(path, of).__enter__()
    assert held(path, of) == ([], [])
    assert names(tmp_path) == []


def test_another_process_is_kept_out_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    script = (
        "import sys, pathlib; from planner.sweep.store import Lock\n"
        "with Lock(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(FleetPlannerError, match="Another sweep"):
            Lock(path).__enter__()
        process.kill()
        process.wait()
    assert names(tmp_path) == [".t.csv.lock"]  # left behind, but nobody holds it
    with Lock(path):
        pass
    assert names(tmp_path) == []


def test_without_system_locks_the_file_itself_is_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    path = tmp_path / "t.csv"
    with Lock(path), pytest.raises(FleetPlannerError, match=r"remove .*\.t\.csv\.lock"):
        Lock(path).__enter__()
    with Lock(path):
        pass
    assert names(tmp_path) == []


def test_the_study_name_in_the_table_is_the_current_one(tmp_path: Path) -> None:
    path, of = tmp_path / "t.csv", study(tmp_path)
    fill(path, of, range(4))
    renamed = dataclasses.replace(of, name="renamed")
    with ResultTable(path, renamed) as table:
        table.finish()
    with open(path, newline="") as file:
        assert {row["study"] for row in csv.DictReader(file)} == {"renamed"}
