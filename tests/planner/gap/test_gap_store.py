"""What is solved once and kept: the store of an optimality gap, and what it refuses."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from builders import cluster_of, trace_of
from gap_cases import (
    fragmented,
    overlapping,
    read_trace_first,
    saturated,
)
from instances.errors import InputError
from instances.plan import Limits
from models.problem.snapshot import PlacedGroup
from planner.gap import solve as gap_solve
from planner.gap.proving import optimality_gap
from planner.gap.store import Store
from planner.placement.placer import PlacerParams

# --- the store --------------------------------------------------------------------------------


def count_solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of jobs of every snapshot solved from now on."""
    solved: list[int] = []
    solve = gap_solve._Snapshot.solve

    def counted(self: Any, placed: tuple[PlacedGroup, ...]) -> Any:
        solved.append(len(self._jobs))
        return solve(self, placed)

    monkeypatch.setattr(gap_solve._Snapshot, "solve", counted)
    return solved


def test_a_store_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    first = optimality_gap(fragmented(), resume=store)
    solved = count_solved(monkeypatch)
    again = optimality_gap(fragmented(), resume=store)
    assert solved == []
    assert (first.read, again.read) == (0, 3)  # a with b is as b with c
    assert again.rows == first.rows


def test_names_and_arrivals_do_not_matter_to_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    optimality_gap(fragmented(), resume=store)
    renamed = [
        dataclasses.replace(job, job_id=f"x{job.job_id}", arrival_s=job.arrival_s + 500.0)
        for job in fragmented().jobs
    ]
    solved = count_solved(monkeypatch)
    assert optimality_gap(trace_of(*renamed), resume=store).read == 3
    assert solved == []


def test_policies_share_what_does_not_depend_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    optimality_gap(fragmented(), resume=store)
    solved = count_solved(monkeypatch)
    solo = optimality_gap(fragmented(), policy="solo", resume=store)
    assert solved == []
    # solo: 2 + 3 + 2 + 1 pair-hours, placed anew as many; the least is 5
    assert solo.ratio == pytest.approx(8 / 5)
    assert solo.totals.online_regret == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"limits": Limits(max_group_size=4)},
        {"cluster": cluster_of(train_usd=40.0)},
        {"cluster": cluster_of(host_dram_gb=1999.0)},
    ],
)
def test_other_problems_are_not_read(tmp_path: Path, change: dict[str, Any]) -> None:
    store = tmp_path / "store"
    optimality_gap(fragmented(), resume=store)
    assert optimality_gap(fragmented(), resume=store, **change).read == 0


def test_what_is_not_proved_is_read_at_the_same_effort_only(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hasty = optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    assert hasty.n_proved == 0
    again = optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    assert (again.read, again.rows) == (1, hasty.rows)
    longer = optimality_gap(saturated(), resume=store)
    assert (longer.read, longer.n_proved) == (0, 1)
    proved = optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    assert (proved.read, proved.n_proved) == (1, 1)


def damaged(store: Path, sql: str) -> None:
    connection = sqlite3.connect(store)
    with connection:
        connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE rows SET text = replace(text, '57.04', '17.04')",
        "UPDATE rows SET digest = 'x'",
        "DROP TABLE rows",
        "ALTER TABLE rows RENAME COLUMN text TO words",
    ],
)
def test_a_damaged_store_is_refused(tmp_path: Path, sql: str) -> None:
    store = tmp_path / "store"
    optimality_gap(overlapping(), resume=store)
    damaged(store, sql)
    with pytest.raises(InputError, match="store"):
        optimality_gap(overlapping(), resume=store)


def test_a_row_says_what_kind_it_is(tmp_path: Path) -> None:
    store = tmp_path / "store"
    optimality_gap(saturated(), resume=store, time_limit_per_snapshot_s=0.0)
    damaged(store, "UPDATE rows SET kind = 'proved' WHERE kind LIKE 'unproved%'")
    with pytest.raises(InputError, match="damaged"):
        optimality_gap(saturated(), resume=store)


def test_departures_matter_where_the_tie_rule_reads_them(tmp_path: Path) -> None:
    store, later = tmp_path / "store", PlacerParams(tie_rule="nearest-departure")
    report = optimality_gap(fragmented(), placer=later, resume=store)
    assert report.distinct == 4  # a with b, and b with c, differ in when they leave
    assert optimality_gap(fragmented(), placer=later, resume=store).read == 4


def test_two_runs_may_make_one_store(tmp_path: Path) -> None:
    """The other run has begun to make it, and is done while this one waits."""
    path, failed = tmp_path / "store", []

    def open_it() -> None:
        try:
            with Store(path):
                pass
        except InputError as error:
            failed.append(error)

    whole = tmp_path / "whole"
    with Store(whole):
        pass
    made = sqlite3.connect(whole)
    (table,) = made.execute("SELECT sql FROM sqlite_master").fetchone()
    (application,) = made.execute("PRAGMA application_id").fetchone()
    made.close()
    other = sqlite3.connect(path)
    with other:
        other.execute("BEGIN IMMEDIATE")
        other.execute(f"PRAGMA application_id = {application}")
        other.execute(table)
        thread = threading.Thread(target=open_it)
        thread.start()
        time.sleep(0.3)  # it has looked, and waits
    thread.join()
    other.close()
    assert failed == []


def test_a_store_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    optimality_gap(overlapping(), resume=store)
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **_: connect(f"{path.as_uri()}?mode=ro", uri=True)
    )
    with pytest.raises(InputError, match=r"Cannot be used as --resume: .*readonly"):
        Store(store)


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("job_id,arrival_s\n" * 400, encoding="utf-8")
    with pytest.raises(InputError, match="words"):
        Store(words)
    other = tmp_path / "other.db"
    damaged(other, "CREATE TABLE mine (a)")
    with pytest.raises(InputError, match="another database"):
        Store(other)
    with pytest.raises(InputError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(InputError, match="Create it first"):
        Store(tmp_path / "none" / "store")
    assert words.read_text(encoding="utf-8").startswith("job_id")  # untouched


def test_a_store_cut_short_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    optimality_gap(read_trace_first(12), resume=store)
    whole = store.read_bytes()
    assert len(whole) > 16384
    store.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"damaged|Cannot be used"):
        optimality_gap(read_trace_first(12), resume=store)
