"""Jobs: one job, the table of arrays, and the way between them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.errors import InputError
from instances.jobs import (
    FLOAT_FIELDS,
    INT_FIELDS,
    MODES,
    OPTIONAL_FIELDS,
    Job,
    JobTable,
    solo_seconds,
)

#: r 4, t 2, s 3: in turn 9, one step ahead max(4, 2, 9/2), side by side max(4, 2).
SOLO_S = {"sync": 9.0, "one-step": 4.5, "async": 4.0}
#: Of 7 B, unknown size and 32 B, see TABLE; the largest published where the size is unknown.
RESTART_S_OF = (197.0, 419.0, 419.0)
JOBS = [
    Job(
        job_id=f"job-{mode}",
        mode=mode,
        rollout_s=4.0,
        train_s=2.0,
        sync_s=3.0,
        slo=1.5,
        arrival_s=10.0 * i,
        duration_s=90.0,
        rollout_nodes=1 + i,
        train_nodes=4 - i,
        rollout_state_gb=200.0,
        train_state_gb=300.0,
        rollout_switch_s=0.5,
        train_switch_s=0.25,
        sync_gb=14.0,
        restart_s=RESTART_S_OF[i],
    )
    for i, mode in enumerate(MODES)
]
TABLE = JobTable.from_jobs(JOBS).replace(
    optional={"model_b": np.array([7.0, np.nan, 32.0])},
    extra={"team": ("red", "", "Größe")},
    estimated={"sync_gb": np.array([True, False, False]), "slo": np.zeros(3, dtype=bool)},
)
ARRAYS = (*FLOAT_FIELDS, *INT_FIELDS, "solo_s", "deadline_s", "iterations", "restart_s")


# --- Times of one job --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "mode", "solo_s"),
    [
        ((4.0, 2.0, 3.0), "sync", 9.0),
        ((4.0, 2.0, 3.0), "one-step", 4.5),  # two iterations in r + t + s
        ((9.0, 2.0, 3.0), "one-step", 9.0),  # the rollout pool is the bottleneck
        ((2.0, 9.0, 3.0), "one-step", 9.0),  # the train pool is
        ((4.0, 2.0, 30.0), "one-step", 18.0),
        ((4.0, 2.0, 30.0), "async", 4.0),  # the transfer is overlapped
        ((2.0, 4.0, 0.0), "async", 4.0),
    ],
)
def test_solo_seconds_by_mode(phases: tuple[float, float, float], mode: str, solo_s: float) -> None:
    assert solo_seconds(*phases, mode) == solo_s
    r, t, s = phases
    job = Job(job_id="x", rollout_s=r, train_s=t, sync_s=s, slo=2.0, mode=mode, duration_s=36.0)
    assert job.solo_s == solo_s
    assert job.deadline_s == 2 * solo_s
    assert job.iterations == 36.0 / solo_s


def test_solo_seconds_is_of_a_synchronous_job_unless_said() -> None:
    assert solo_seconds(4.0, 2.0, 3.0) == 9.0


def test_switches_are_no_part_of_a_lone_jobs_time() -> None:
    job = JOBS[0]
    assert dataclasses.replace(job, rollout_switch_s=99.0, train_switch_s=99.0).solo_s == 9.0
    assert job.iterations == 10.0  # 90 s in turns of 9
    assert dataclasses.replace(job, duration_s=100.0).iterations == pytest.approx(100 / 9)


@given(*[st.floats(1e-3, 1e6)] * 3, st.floats(1.0, 10.0))
def test_the_modes_are_ordered(r: float, t: float, s: float, slo: float) -> None:
    sync, one_step, parallel = (
        Job(job_id="x", rollout_s=r, train_s=t, sync_s=s, slo=slo, mode=mode) for mode in MODES
    )
    assert parallel.solo_s <= one_step.solo_s <= sync.solo_s
    assert sync.deadline_s >= sync.solo_s


def test_a_job_needs_a_name_two_phases_and_an_slo() -> None:
    job = Job(job_id="x", rollout_s=4.0, train_s=2.0, slo=1.0)
    assert (job.sync_s, job.rollout_nodes, job.train_nodes, job.mode) == (0.0, 1, 1, "sync")
    assert (job.solo_s, job.deadline_s) == (6.0, 6.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.slo = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Job("x", 4.0, 2.0, 1.0)  # type: ignore[misc]  # only by name


# --- The table ------------------------------------------------------------------------------


def test_the_table_gives_back_its_jobs() -> None:
    assert len(TABLE) == 3
    assert list(TABLE) == JOBS
    assert [TABLE.job(i) for i in range(3)] == JOBS
    assert TABLE.job(-1) == JOBS[2]
    again = JobTable.from_jobs(list(TABLE))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(TABLE, name), err_msg=name)
    assert (again.job_id, again.mode) == (TABLE.job_id, TABLE.mode)


def unpickled(table: JobTable) -> JobTable:
    copied: JobTable = pickle.loads(pickle.dumps(table))
    return copied


@pytest.mark.parametrize("again", [unpickled, copy.copy, copy.deepcopy])
def test_a_copy_is_the_same_table_and_read_only_too(again: Any) -> None:
    got = again(TABLE)
    assert list(got) == list(TABLE)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(got, name), getattr(TABLE, name), err_msg=name)
    np.testing.assert_array_equal(got.optional["model_b"], TABLE.optional["model_b"])
    assert got.extra == TABLE.extra
    assert got.estimated["sync_gb"].tolist() == [True, False, False]
    assert set(got.estimated) == {"sync_gb", "slo"}
    for array in (got.slo, got.optional["model_b"], got.estimated["slo"]):
        assert not array.flags.writeable
    for columns in (got.optional, got.extra, got.estimated):
        with pytest.raises(TypeError):
            columns["new"] = ()


def test_cells_of_a_job_are_plain_python_numbers() -> None:
    job = TABLE.job(0)
    for field in dataclasses.fields(Job):
        assert type(getattr(job, field.name)) in (str, float, int), field.name


def test_the_columns_are_those_of_a_job() -> None:
    fields = {field.name for field in dataclasses.fields(Job) if field.init}
    assert fields == {"job_id", "mode", "restart_s", *FLOAT_FIELDS, *INT_FIELDS}
    # A job always has a restart; a table has the column only where a trace gives it.
    assert fields & set(OPTIONAL_FIELDS) == {"restart_s"}


def test_derived_columns_are_those_of_each_job() -> None:
    assert TABLE.solo_s.tolist() == list(SOLO_S.values())
    assert TABLE.deadline_s.tolist() == [1.5 * s for s in SOLO_S.values()]
    assert TABLE.iterations.tolist() == [90 / s for s in SOLO_S.values()]
    assert TABLE.solo_s.tolist() == [job.solo_s for job in JOBS]
    assert TABLE.deadline_s.tolist() == [job.deadline_s for job in JOBS]
    assert TABLE.iterations.tolist() == [job.iterations for job in JOBS]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_read_only(name: str) -> None:
    array = getattr(TABLE, name)
    assert array.shape == (3,)
    assert array.dtype == (np.int64 if name in INT_FIELDS else np.float64)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_tables_in_the_table_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TABLE.optional["model_b"][0] = 1
    with pytest.raises(ValueError, match="read-only"):
        TABLE.estimated["sync_gb"][0] = False
    for tables in (TABLE.optional, TABLE.extra, TABLE.estimated):
        with pytest.raises(TypeError):
            tables["new"] = ()  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        TABLE.slo = np.ones(3)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del TABLE.slo


def test_the_table_copies_what_it_is_given() -> None:
    slo, model_b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])
    extra: dict[str, Any] = {"team": ["a", "b", "c"]}
    table = TABLE.replace(slo=slo, optional={"model_b": model_b}, extra=extra)
    slo[0] = model_b[0] = 99.0
    extra["team"][0] = "z"
    extra["more"] = ("x", "y", "z")
    assert table.slo[0] == table.optional["model_b"][0] == 1.0
    assert table.extra == {"team": ("a", "b", "c")}
    slo[1] = 5.0  # what was given stays the giver's, and writable


def test_replace_changes_one_column_and_what_follows_from_it() -> None:
    assert TABLE.solo_s[0] == 9.0  # computed before, and not kept by the copy
    table = TABLE.replace(train_s=[5.0, 2.0, 2.0])
    assert table.solo_s.tolist() == [12.0, 4.5, 4.0]
    assert table.deadline_s[0] == 18.0
    assert TABLE.solo_s[0] == 9.0
    assert table.extra == TABLE.extra
    assert table.estimated_columns() == ("sync_gb",)
    with pytest.raises(TypeError):
        TABLE.replace(trian_s=[1.0, 2.0, 3.0])


def test_take_selects_every_column_in_the_given_order() -> None:
    table = TABLE.take([2, 0])
    assert list(table) == [JOBS[2], JOBS[0]]
    assert table.optional["model_b"].tolist() == [32.0, 7.0]
    assert table.extra == {"team": ("Größe", "red")}
    assert table.estimated["sync_gb"].tolist() == [False, True]
    assert table.solo_s.tolist() == [4.0, 9.0]
    np.testing.assert_array_equal(table.take(np.array([1, 0])).job_id, ["job-sync", "job-async"])
    assert len(TABLE.take([])) == 0
    assert list(TABLE.take([1, 1])) == [JOBS[1], JOBS[1]]
    assert list(TABLE.take(np.flatnonzero(TABLE.train_nodes > 2))) == JOBS[:2]
    with pytest.raises(IndexError):
        TABLE.take([3])


def test_an_empty_table_is_a_table() -> None:
    empty = JobTable.from_jobs([])
    assert len(empty) == 0
    assert list(empty) == []
    assert empty.solo_s.shape == empty.rollout_nodes.shape == (0,)
    assert empty.rollout_nodes.dtype == np.int64
    assert empty.estimated_columns() == ()


def test_where_mode_and_estimated_columns() -> None:
    for i, mode in enumerate(MODES):
        assert TABLE.where_mode(mode).tolist() == [i]
    assert TABLE.take([0, 0]).where_mode("async").tolist() == []
    assert TABLE.where_mode("async").dtype == np.int64
    # "slo" has a mask without one estimated cell.
    assert TABLE.estimated_columns() == ("sync_gb",)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("slo", [1.0, 2.0], r"Expected slo of shape \(3,\), got \(2,\)\."),
        ("slo", [[1.0, 2.0, 3.0]], r"Expected slo of shape \(3,\), got \(1, 3\)\."),
        ("train_nodes", 3, r"Expected train_nodes of shape \(3,\), got \(\)\."),
        ("mode", ("sync",), r"Expected 3 modes, got 1\."),
        ("optional", {"model_b": [1.0]}, r"Expected model_b of shape \(3,\), got \(1,\)\."),
        ("estimated", {"slo": [True]}, r"Expected slo of shape \(3,\), got \(1,\)\."),
    ],
)
def test_columns_of_another_length_are_refused(column: str, values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TABLE.replace(**{column: values})


def test_extra_columns_of_another_length_are_refused() -> None:
    with pytest.raises(InputError):
        TABLE.replace(extra={"team": ("red",)})
