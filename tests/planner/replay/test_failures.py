"""When jobs and nodes fail: parameters, clocks, and lists from outside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import job_of, table_of
from instances.errors import InputError
from instances.trace import TraceError
from planner.replay.failures import FailureClocks, FailureEvent, FailureParams, read_failures

JOBS = table_of(job_of("a", 6, 4), job_of("b", 6, 4), job_of("dedicated", 6, 4, mode="async"))
HOUR_S = 3600.0


# --- Parameters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job_mtbf_h": 0.0}, "Expected job_mtbf_h > 0 and finite, got 0.0."),
        ({"node_mtbf_h": math.inf}, "Expected node_mtbf_h > 0 and finite, got inf."),
        ({"restart_s": -1.0}, "Expected restart_s >= 0 and finite, got -1.0."),
        ({"repair_h": math.nan}, "Expected repair_h >= 0 and finite, got nan."),
        (
            {"checkpoint_iterations": 0},
            "Expected checkpoint_iterations a whole number >= 1, got 0.",
        ),
        ({"seed": True}, "Expected seed a whole number >= 0, got True."),
        ({"seed": 2**64}, f"Expected seed < 2^64, got {2**64}."),
        (
            {"job_mtbf_h": 1.0, "events": (FailureEvent(1.0, "job", job_id="a"),)},
            "Expected MTBFs or a list of failures, got both.",
        ),
    ],
)
def test_a_number_out_of_range_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        FailureParams(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1.0, "gpu"), "Expected kind of a failure in job, rollout, train, got 'gpu'."),
        ((-1.0, "job", "a"), "Expected at_s of a failure >= 0 and <= 1e+10, got -1.0."),
        ((1.0, "job"), "Expected job_id, and no node, of a failure of a job."),
        ((1.0, "train", "a"), "Expected node, and no job_id, of a failure of a train node."),
        ((1.0, "train", None, -1), "Expected node >= 0 and <= 1000000, got -1."),
    ],
)
def test_an_event_out_of_range_is_named(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        FailureEvent(*values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("done", "every", "lost"),
    [
        (3.5, 1, 0.5),  # the iteration under way
        (3.5, 2, 1.5),  # and those since the checkpoint after the second
        (3.5, 4, 3.5),  # no checkpoint yet
        (4.0, 2, 0.0),  # just written
        (4.0 - 1e-12, 2, 0.0),  # the round-off of a sum is no iteration
        (0.0, 5, 0.0),
    ],
)
def test_what_is_undone(done: float, every: int, lost: float) -> None:
    assert FailureParams(checkpoint_iterations=every).undone(done) == lost


def test_restarts_are_the_jobs_own_or_all_alike() -> None:
    assert FailureParams().of_jobs(JOBS) is JOBS
    assert FailureParams(restart_s=30.0).of_jobs(JOBS).restart_s.tolist() == [30.0] * 3


# --- Clocks ---------------------------------------------------------------------------------


def strikes(kind: Any, number: int, until_s: float, **params: Any) -> list[float]:
    clocks = FailureClocks(FailureParams(**params), 0.0)
    found = [clocks.next_s(kind, number, 0.0)]
    while found[-1] < until_s:
        found.append(clocks.next_s(kind, number, found[-1]))
    return found


def test_gaps_are_exponential_with_the_stated_mean() -> None:
    """Of 4,000 gaps: mean within 4 standard errors (sd = mean), and 1/e of them above it."""
    n, mean_s = 4000, 2.0 * HOUR_S
    gaps = np.diff([0.0, *strikes("job", 0, n * mean_s, job_mtbf_h=2.0)])
    assert abs(gaps.mean() / mean_s - 1) < 4 / math.sqrt(len(gaps))
    share, expected = float((gaps > mean_s).mean()), math.exp(-1)
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / len(gaps))


def test_a_clock_depends_on_kind_number_and_seed_alone() -> None:
    params = {"job_mtbf_h": 1.0, "node_mtbf_h": 1.0}
    until_s = 50 * HOUR_S
    kinds = [("job", 0), ("job", 1), ("rollout", 0), ("train", 0), ("train", 1)]
    alone = [strikes(kind, number, until_s, **params) for kind, number in kinds]
    assert len({tuple(times) for times in alone}) == len(kinds)
    assert strikes("job", 0, until_s, **params, seed=1) != alone[0]
    clocks = FailureClocks(FailureParams(**params), 0.0)  # asked in turn
    now = [0.0] * len(kinds)
    for turn in range(10):
        for k, (kind, number) in enumerate(kinds):
            now[k] = clocks.next_s(kind, number, now[k])  # type: ignore[arg-type]
            assert now[k] == alone[k][turn]


def test_moments_scale_with_the_mean_time() -> None:
    """Common random numbers: half the MTBF strikes at half the moments."""
    one = strikes("job", 3, 100 * HOUR_S, job_mtbf_h=1.0)
    half = strikes("job", 3, 50 * HOUR_S, job_mtbf_h=0.5)
    assert half == pytest.approx([at / 2 for at in one])


def test_a_clock_wound_late_has_struck_unseen() -> None:
    early = strikes("train", 0, 100 * HOUR_S, node_mtbf_h=1.0)
    clocks = FailureClocks(FailureParams(node_mtbf_h=1.0), 0.0)
    assert clocks.next_s("train", 0, 20 * HOUR_S) == min(t for t in early if t > 20 * HOUR_S)
    assert clocks.runs("rollout")
    assert not clocks.runs("job")


# --- Lists ----------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_is_read_in_order_of_time(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f.csv",
        "kind,at_s,node,job_id\ntrain,7.5,2,\njob,3,,b\njob,7.5,,a\nrollout,1e2,0,\n",
    )
    assert read_failures(path, JOBS) == (
        FailureEvent(3.0, "job", job_id="b"),
        FailureEvent(7.5, "train", node=2),
        FailureEvent(7.5, "job", job_id="a"),
        FailureEvent(100.0, "rollout", node=0),
    )


def test_a_column_that_no_row_needs_may_be_absent(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "at_s,kind,job_id\n3,job,b\n")
    assert read_failures(path, JOBS) == (FailureEvent(3.0, "job", job_id="b"),)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("-1,job,a,", "Expected a number >= 0 and <= 1e+10, got '-1' (line 2, column at_s)."),
        ("x,job,a,", "Expected a number >= 0 and <= 1e+10, got 'x' (line 2, column at_s)."),
        ("inf,job,a,", "Expected a number >= 0 and <= 1e+10, got 'inf' (line 2, column at_s)."),
        (",job,a,", "Expected a number >= 0, got an empty cell (line 2, column at_s)."),
        ("1,gpu,a,", "Expected one of job, rollout, train, got 'gpu' (line 2, column kind)."),
        ("1,job,,", "Expected a value (kind job), got an empty cell (line 2, column job_id)."),
        ("1,job,aa,", "Expected a job of the trace, got 'aa' (line 2, column job_id). Did"),
        (
            "1,job,dedicated,",
            "Expected a job that is not async (these do not fail here), got 'dedicated' (line 2",
        ),
        ("1,job,a,3", "Expected an empty cell (kind job), got '3' (line 2, column node)."),
        ("1,train,,", "Expected a value (kind train), got an empty cell (line 2, column node)."),
        (
            "1,train,,0.5",
            "Expected a whole number >= 0 and <= 1e+06, got '0.5' (line 2, column node).",
        ),
        ("1,train,a,0", "Expected an empty cell (kind train), got 'a' (line 2, column job_id)."),
        ("1,train", "Expected 4 cells, got 2 (line 2)."),
    ],
)
def test_a_fault_names_line_column_value_and_rule(tmp_path: Path, row: str, fault: str) -> None:
    path = write(tmp_path / "f.csv", f"at_s,kind,job_id,node\n{row}\n2,job,a,\n")
    with pytest.raises(TraceError) as caught:
        read_failures(path, JOBS)
    assert caught.value.total == 1
    assert str(caught.value).startswith(f"f.csv: 1 fault:\n{fault}")


def test_all_faults_are_counted_and_the_header_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "at,kind,job_id\n1,job,zz\n2,gpu,\n")
    with pytest.raises(TraceError) as caught:
        read_failures(path, JOBS)
    lines = str(caught.value).splitlines()
    assert lines[0] == "f.csv: 4 faults:"
    assert "Missing column at_s. Did you mean 'at'?" in lines
    assert "Unknown column 'at'. Did you mean 'at_s'?" in lines


def test_an_empty_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="Expected at least one failure, got none"):
        read_failures(write(tmp_path / "f.csv", "at_s,kind,job_id,node\n"), JOBS)
