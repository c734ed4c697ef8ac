"""The first seconds of a run, in letters and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import job_of, table_of
from instances.errors import InputError
from instances.jobs import JobTable
from planner.simulate.lengths import WorstCase
from planner.simulate.runtime import GroupRun, simulate_group
from planner.simulate.runtime_gantt import run_rows, shown_s, write_run
from runtime_cases import long_and_short


def run_of(jobs: JobTable | None = None, **more: Any) -> GroupRun:
    version, given = long_and_short()
    jobs = jobs or given
    return simulate_group(version, jobs, WorstCase(jobs), **{"events": 1000, **more})


def test_every_second_in_its_letter() -> None:
    rows = run_rows(run_of(discipline="fifo"), 40.0, width=40)
    assert rows == [
        "rollout 0 |AAAAAAAAAA..........AAAAAAAAAA..........|",
        "rollout 1 |B.B.B.B.B.B..........B.B.B.B.B..........|",
        "train 0   |.B.B.B.B.BAAAAAAAAAAB.B.B.B.B.AAAAAAAAAA|",
        "           0                                   40 s",
        "           A  long",
        "           B  short",
    ]


def test_a_cell_holds_what_takes_most_of_it() -> None:
    rows = run_rows(run_of(), 40.0, width=10)  # 4 s a cell
    # train: short in [1, 2), long in [10, 20), short in [21, 22)
    assert rows[2] == "train 0   |...AA...AA|"  # half of [8, 12): idle first among equals
    assert rows[0] == "rollout 0 |AA...AA...|"


def test_switches_have_a_sign_of_their_own() -> None:
    more = {"train_switch_s": 5.0}
    jobs = table_of(job_of("long", 10, 10, **more), job_of("short", 1, 1, slo=20, **more))
    rows = run_rows(run_of(jobs, discipline="fifo"), 30.0, width=30)
    assert rows[2].startswith("train 0   |.-----B")


def test_nothing_is_drawn_beyond_what_events_tell() -> None:
    short = run_of(events=6)
    assert shown_s(short, 1e9) == short.events[-1].start_s == 20
    assert shown_s(run_of(events=100_000), 1e9) == 4000  # the horizon
    assert shown_s(short, 5.0) == 5


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kept events, got none"):
        run_rows(run_of(events=0), 10.0)
    with pytest.raises(InputError, match="kept more events"):
        run_rows(run_of(events=1), 10.0)
    with pytest.raises(InputError, match="seconds > 0"):
        run_rows(run_of(), 0.0)
    with pytest.raises(InputError, match="width >= 10"):
        run_rows(run_of(), 10.0, width=9)
    with pytest.raises(InputError, match="end in"):
        write_run(run_of(), 10.0, tmp_path / "run.gif")


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    more = {"train_switch_s": 2.0}
    jobs = table_of(job_of("long", 10, 10, **more), job_of("short", 1, 1, slo=20, **more))
    for name in ("a.svg", "b.svg"):
        write_run(run_of(jobs), 60.0, tmp_path / name)
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    write_run(run_of(jobs), 30.0, tmp_path / "c.svg")
    assert first != (tmp_path / "c.svg").read_bytes()


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    run = run_of()
    odd = replace(run.version.placements[0], job_id="$x_1$ & <b>")
    run = replace(run, version=replace(run.version, placements=(odd, run.version.placements[1])))
    write_run(run, 30.0, tmp_path / "run.svg")
    assert (tmp_path / "run.svg").stat().st_size > 1000
    assert run_rows(run, 30.0)[-2].endswith("A  $x_1$ & <b>")
