"""Seconds of a restart: measured, by the size of the model, or the largest published."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.errors import InputError
from instances.jobs import Job, JobTable
from instances.restarts import RESTART_S, restart_seconds, restart_sources
from instances.trace import read_trace, refuse_estimates, write_trace
from trace_cases import csv_text

JOB = Job(job_id="a", rollout_s=4.0, train_s=2.0, slo=1.5)
NAN = float("nan")


def table_of(**optional: list[float]) -> JobTable:
    """Return jobs with these optional columns and the default restart."""
    n = len(next(iter(optional.values())))
    jobs = [dataclasses.replace(JOB, job_id=str(i)) for i in range(n)]
    return JobTable.from_jobs(jobs).replace(optional=optional)


@pytest.mark.parametrize(
    ("model_b", "seconds"),
    [
        (3.0, 197.0),
        (7.0, 197.0),  # published
        (14.0, 259.16),  # 197 + 7 x (419 - 197) / 25
        (19.5, 308.0),  # halfway
        (32.0, 419.0),  # published
        (72.0, 419.0),
        (NAN, 419.0),  # unknown: the largest published
    ],
)
def test_seconds_by_size(model_b: float, seconds: float) -> None:
    assert restart_seconds(table_of(model_b=[model_b])).tolist() == [pytest.approx(seconds)]


def test_a_measurement_comes_before_the_size_and_the_size_before_the_guess() -> None:
    table = table_of(restart_s=[0.0, 5.5, NAN, NAN], model_b=[7.0, NAN, 7.0, NAN])
    assert table.restart_s.tolist() == [0.0, 5.5, 197.0, 419.0]
    assert restart_sources(table) == {"measured": 2, "model_b": 1, "guessed": 1}


def test_without_either_column_every_restart_is_a_guess() -> None:
    table = JobTable.from_jobs([JOB])
    assert table.restart_s.tolist() == [RESTART_S] == [JOB.restart_s] == [419.0]
    assert restart_sources(table) == {"measured": 0, "model_b": 0, "guessed": 1}
    empty = JobTable.from_jobs([])
    assert empty.restart_s.shape == (0,)
    assert restart_sources(empty) == {"measured": 0, "model_b": 0, "guessed": 0}


@given(
    st.lists(
        st.tuples(
            st.just(NAN) | st.floats(0, 1e6),
            st.just(NAN) | st.floats(0.1, 1000.0),
        ),
        max_size=6,
    )
)
def test_restarts_lie_between_the_published_ones_and_each_has_one_source(
    rows: list[tuple[float, float]],
) -> None:
    table = table_of(restart_s=[row[0] for row in rows], model_b=[row[1] for row in rows])
    for (given_s, _), got in zip(rows, table.restart_s.tolist(), strict=True):
        assert got == given_s if given_s == given_s else 197.0 <= got <= 419.0
    assert sum(restart_sources(table).values()) == len(rows)


# --- Jobs and their table ------------------------------------------------------------------------


def test_the_table_has_the_column_only_where_a_job_differs() -> None:
    plain = JobTable.from_jobs([JOB, dataclasses.replace(JOB, job_id="b")])
    assert dict(plain.optional) == {}
    fast = dataclasses.replace(JOB, job_id="b", restart_s=3.0)
    table = JobTable.from_jobs([JOB, fast])
    assert table.optional["restart_s"].tolist() == [419.0, 3.0]
    assert list(table) == [JOB, fast]
    assert list(table.take([1, 0])) == [fast, JOB]


def test_jobs_keep_the_seconds_of_their_size_when_the_size_is_lost() -> None:
    table = table_of(model_b=[7.0, NAN])
    again = JobTable.from_jobs(list(table))
    assert again.restart_s.tolist() == table.restart_s.tolist() == [197.0, 419.0]
    assert "model_b" not in again.optional


def test_replace_forgets_what_followed_from_the_old_column() -> None:
    table = table_of(restart_s=[1.0])
    assert table.restart_s.tolist() == [1.0]
    assert table.replace(optional={"restart_s": [2.0]}).restart_s.tolist() == [2.0]
    assert table.restart_s.tolist() == [1.0]


@pytest.mark.parametrize("bad", [-1e-9, float("inf"), NAN])
def test_a_job_needs_a_finite_restart_of_no_less_than_0(bad: float) -> None:
    dataclasses.replace(JOB, restart_s=0.0).require_valid()
    with pytest.raises(InputError, match=r"^Expected restart_s >= 0, got .* \(job 'a'\)\.$"):
        dataclasses.replace(JOB, restart_s=bad).require_valid()


# --- Traces --------------------------------------------------------------------------------------


def test_a_trace_may_give_restarts(read: Callable[..., JobTable]) -> None:
    jobs = read(csv_text({"restart_s": "0"}, {"restart_s": "12.5"}, {"restart_s": ""}))
    assert jobs.restart_s.tolist() == [0.0, 12.5, 197.0]  # the good job has 7 B
    assert "restart_s" not in jobs.extra
    assert restart_sources(jobs) == {"measured": 2, "model_b": 1, "guessed": 0}


def test_a_restart_is_never_called_estimated(read: Callable[..., JobTable]) -> None:
    given_all: dict[str, Any] = {
        "sync_s": "1",
        "sync_gb": "1",
        "rollout_state_gb": "1",
        "train_state_gb": "1",
        "rollout_switch_s": "1",
        "train_switch_s": "1",
    }
    for row in (given_all, {**given_all, "model_b": ""}, {**given_all, "restart_s": ""}):
        jobs = read(csv_text(row))
        assert jobs.estimated_columns() == ()
        refuse_estimates(jobs)


def test_measured_restarts_are_written_and_read_back(tmp_path: Path) -> None:
    jobs = table_of(restart_s=[0.0, 0.1 + 0.2, NAN])
    write_trace(jobs, tmp_path / "t.csv")
    again = read_trace(tmp_path / "t.csv").jobs
    np.testing.assert_array_equal(again.optional["restart_s"], jobs.optional["restart_s"])
    write_trace(JobTable.from_jobs([JOB]), tmp_path / "plain.csv")
    assert "restart_s" not in (tmp_path / "plain.csv").read_text()
