"""Engines: the same table from every one, and nothing lost when workers die."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import write
from instances.errors import FleetPlannerError, InputError
from planner.sweep import engines as sweep_engines
from planner.sweep.engines import Done, dask_cluster, in_process, local_processes
from planner.sweep.expand import Run, Study, read_runs
from planner.sweep.run import row_of
from planner.sweep.sweeping import sweep, timings_path
from sweep_cases import LARGE_STATE, SMALL, study_of, with_deadly_trace

#: Of distributed: a socket of a worker that was killed, found open by the garbage collector.
dask_warnings = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def small(tmp_path: Path) -> Study:
    return read_runs(write(tmp_path / "small.toml", SMALL))


def longer(folder: Path) -> Study:
    """Return runs that take a while: 16 copies of a trace of 60 jobs."""
    return study_of(
        folder, trace=[{"generator": "production", "jobs": 60}], replications=16, policies="weave"
    )


def table_of(study: Study, folder: Path, name: str, **options: Any) -> bytes:
    out = folder / f"{name}.csv"
    outcome = sweep(study, out, **options)
    assert len(outcome.rows) == len(study.runs)
    return out.read_bytes()


def ids(units: Iterator[list[Done]] | Any) -> list[str]:
    return [done.run_id for unit in units for done in unit]


# --- what is in the table ------------------------------------------------------------------------


def test_a_failed_run_is_recorded_and_the_rest_go_on(tmp_path: Path) -> None:
    write(tmp_path / "jobs.csv", LARGE_STATE)
    study = study_of(
        tmp_path, trace=[{"file": "jobs.csv"}], axes={"rollout_host_dram_gb": [1000, 2000, 3000]}
    )
    outcome = sweep(study, tmp_path / "t.csv", processes=1)
    assert [row["error_type"] for row in outcome.rows] == ["TraceError", None, None]
    assert [row["run"] for row in outcome.failed] == [1]


def test_a_parquet_table_holds_what_the_csv_table_holds(small: Study, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = sweep(small, tmp_path / "t.csv", processes=1).rows
    sweep(dataclasses.replace(small, runs=small.runs[:5]), tmp_path / "t.parquet", processes=1)
    assert sweep(small, tmp_path / "t.parquet", processes=1).rows == rows
    table = parquet.read_table(tmp_path / "t.parquet")
    assert isinstance(table, pyarrow.Table)
    assert table.to_pylist() == rows


def test_seconds_are_in_a_file_of_their_own(small: Study, tmp_path: Path) -> None:
    plain = table_of(small, tmp_path, "plain", processes=1)
    assert table_of(small, tmp_path, "timed", processes=1, timings=True) == plain
    header, *lines = timings_path(tmp_path / "timed.csv").read_text().splitlines()
    assert header == "run_id,seconds"
    assert sorted(line.split(",")[0] for line in lines) == sorted(r.run_id for r in small.runs)
    assert all(float(line.split(",")[1]) > 0 for line in lines)
    assert not timings_path(tmp_path / "plain.csv").exists()


def test_a_file_in_the_way_of_seconds_is_left_alone(small: Study, tmp_path: Path) -> None:
    path = write(timings_path(tmp_path / "t.csv"), "mine\n")
    with pytest.raises(InputError, match="no file of seconds"):
        sweep(small, tmp_path / "t.csv", processes=1, timings=True)
    assert path.read_text() == "mine\n"


def test_progress_counts_what_is_left(small: Study, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    part = dataclasses.replace(small, runs=small.runs[:5])
    sweep(part, out, processes=1)
    calls: list[tuple[str, int, int]] = []
    outcome = sweep(small, out, processes=1, progress=lambda *call: calls.append(call))
    assert outcome.kept == 5
    assert calls[-1] == ("runs", 7, 7)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_finished_runs_are_never_repeated(
    small: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.csv"
    sweep(small, out, processes=1)
    before = out.read_bytes()

    def refuse(*_: object) -> None:
        raise AssertionError("a finished run was repeated")

    monkeypatch.setattr(sweep_engines, "row_of", refuse)
    assert sweep(small, out, processes=1).kept == len(small.runs)
    assert out.read_bytes() == before


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 4, 12])
def test_ctrl_c_keeps_what_was_finished(
    at: int, small: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = table_of(small, tmp_path, "whole", processes=1)
    calls = itertools.count(1)

    def interrupted(run: Run, inputs: Any) -> Any:
        if next(calls) == at:
            raise KeyboardInterrupt
        return row_of(run, inputs)

    monkeypatch.setattr(sweep_engines, "_UNIT_S", 0.0)  # units of one run
    monkeypatch.setattr(sweep_engines, "row_of", interrupted)
    out = tmp_path / "t.csv"
    outcome = sweep(small, out, processes=1)
    assert outcome.interrupted
    assert len(outcome.rows) == at - 1
    after = sweep(small, out, processes=1)
    assert (after.kept, after.interrupted) == (at - 1, False)
    assert out.read_bytes() == whole


def test_local_workers_are_gone_when_the_engine_is_closed(tmp_path: Path) -> None:
    study = longer(tmp_path)
    engine = local_processes(study.inputs, study.runs, 2)
    next(engine)
    assert len(multiprocessing.active_children()) >= 1
    engine.close()
    assert multiprocessing.active_children() == []


# --- deaths: processes of this machine ------------------------------------------------------------


def test_a_killed_local_worker_loses_nothing(tmp_path: Path) -> None:
    study = longer(tmp_path)
    found: list[str] = []
    killed = 0
    for unit in local_processes(study.inputs, study.runs, 2):
        found += ids([unit])
        if killed < 2 and len(found) > 4 * killed:
            children = multiprocessing.active_children()
            os.kill(children[0].pid or 0, signal.SIGKILL)
            killed += 1
    assert killed == 2
    assert sorted(found) == sorted(run.run_id for run in study.runs)


def test_a_run_that_kills_local_workers_is_recorded(tmp_path: Path) -> None:
    study = study_of(
        tmp_path, trace=[{"generator": "production", "jobs": 5, "seeds": [0, 1, 2, 3]}]
    )
    outcome = sweep(with_deadly_trace(study, 1), tmp_path / "t.csv", processes=2)
    assert [(row["run"], row["error_type"]) for row in outcome.failed] == [(2, "WorkerDied")]
    assert len(outcome.rows) == len(study.runs)


def test_workers_that_cannot_start_end_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_engines, "_packed", lambda _: b"not to be unpacked")
    study = study_of(tmp_path, axes={"max_group_size": [1, 2, 3]})
    with pytest.raises(FleetPlannerError, match="end as soon as they start"):
        list(local_processes(study.inputs, study.runs, 2))


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; import multiprocessing\n"
        "from sweep_cases import study_of\n"
        "from planner.sweep.engines import local_processes\n"
        "study = study_of(Path(sys.argv[1]), axes={'max_group_size': list(range(1, 4000))})\n"
        "for _ in local_processes(study.inputs, study.runs, 2):\n"
        "    print(*(c.pid for c in multiprocessing.active_children()), flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert pids
    for _ in range(200):
        if not any(_alive(pid) for pid in pids):
            break
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    """Return whether a process runs: one that has ended may still wait to be taken note of."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# --- a Dask cluster -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes, given up on at the first death that can be blamed."""
    pytest.importorskip("distributed")
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as found,
    ):
        yield found


def worker_pids(cluster: Any) -> list[int]:
    return [worker.process.pid for worker in cluster.workers.values() if worker.process]


@dask_warnings
def test_the_table_does_not_depend_on_the_engine(
    small: Study, tmp_path: Path, cluster: Any
) -> None:
    alone = table_of(small, tmp_path, "alone", processes=1)
    assert table_of(small, tmp_path, "two", processes=2) == alone
    assert table_of(small, tmp_path, "dask", scheduler=cluster.scheduler_address) == alone
    assert alone.count(b"\n") == 1 + len(small.runs)


@dask_warnings
def test_a_killed_worker_of_a_cluster_loses_nothing(tmp_path: Path, cluster: Any) -> None:
    study = longer(tmp_path)
    found: list[str] = []
    killed = False
    for unit in dask_cluster(study.inputs, study.runs, cluster.scheduler_address):
        found += ids([unit])
        if not killed:
            os.kill(worker_pids(cluster)[0], signal.SIGKILL)
            killed = True
    assert sorted(found) == sorted(run.run_id for run in study.runs)


@dask_warnings
def test_a_run_that_kills_workers_of_a_cluster_is_recorded(tmp_path: Path, cluster: Any) -> None:
    study = study_of(
        tmp_path, trace=[{"generator": "production", "jobs": 5, "seeds": [0, 1, 2, 3]}]
    )
    outcome = sweep(
        with_deadly_trace(study, 1), tmp_path / "t.csv", scheduler=cluster.scheduler_address
    )
    assert [(row["run"], row["error_type"]) for row in outcome.failed] == [(2, "WorkerDied")]
    assert len(outcome.rows) == len(study.runs)


@dask_warnings
def test_workers_of_another_version_are_refused(tmp_path: Path, cluster: Any) -> None:
    study = study_of(tmp_path)
    inputs = dataclasses.replace(study.inputs, version="0.0")
    here = importlib.metadata.version("rl-fleet-planner")
    with pytest.raises(FleetPlannerError, match=rf"is {here} there and 0\.0 here"):
        list(dask_cluster(inputs, study.runs, cluster.scheduler_address))


@dask_warnings
def test_a_scheduler_that_is_lost_ends_the_study_in_words(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from distributed import LocalCluster

    study = longer(tmp_path)
    found: list[str] = []
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as cluster:
        engine = dask_cluster(study.inputs, study.runs, cluster.scheduler_address)
        found += ids([next(engine)])
        cluster.close()
        with pytest.raises(FleetPlannerError, match="was lost"):
            found += ids(engine)
    assert 0 < len(found) < len(study.runs)


@dask_warnings
def test_a_scheduler_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address=":0"
    ) as cluster:
        monkeypatch.setattr(sweep_engines, "_CONNECT_S", 0.5)
        with pytest.raises(InputError, match="has had no worker"):
            sweep(study_of(tmp_path), tmp_path / "t.csv", scheduler=cluster.scheduler_address)
    assert not (tmp_path / "t.csv").exists()


def test_nobody_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(sweep_engines, "_CONNECT_S", 0.3)
    with socket.socket() as held:  # bound and not listening: nobody else answers there
        held.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(InputError, match="No Dask scheduler answers"):
            sweep(study_of(tmp_path), tmp_path / "t.csv", scheduler=address)
    assert not (tmp_path / "t.csv").exists()


@pytest.mark.parametrize("address", ["host", "http://host:80", "tcp://host:99999", "tcp://h:1/x"])
def test_no_address(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected --scheduler an address"):
        list(dask_cluster(study_of(tmp_path).inputs, [], address))


def test_without_distributed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="the extra 'cluster'"):
        sweep(study_of(tmp_path), tmp_path / "t.csv", scheduler="tcp://127.0.0.1:1")


def test_one_replay_at_a_time_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a worker take turns: solvers keep global state."""
    inside = threading.Lock()

    def alone(run: Run, inputs: Any) -> Any:
        assert inside.acquire(blocking=False), "two replays at once"
        time.sleep(0.002)
        inside.release()
        return {}

    monkeypatch.setattr(sweep_engines, "row_of", alone)
    study = study_of(tmp_path, axes={"max_group_size": list(range(1, 11))})
    faults: list[object] = []

    def work() -> None:
        try:
            faults.extend(ids(in_process(study.inputs, study.runs))[10:])
        except AssertionError as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# --- units ----------------------------------------------------------------------------------------


def test_units_are_of_some_tenths_of_a_second(tmp_path: Path) -> None:
    study = study_of(tmp_path, axes={"max_group_size": list(range(1, 1001))})

    def sizes(seconds: float) -> list[int]:
        work, out = sweep_engines._Work(study.runs), []
        while work:
            unit = work.next_unit(2)
            out.append(len(unit))
            work.finished([Done(run.run_id, {}, seconds) for run in unit])
        assert sum(out) == 1000
        return out

    assert set(sizes(1.0)) == {1}
    # 0.2 s / 0.05 s = 4 runs, and single ones at first and at the end
    slow = sizes(0.05)
    assert (slow[0], max(slow), slow[-1]) == (1, 4, 1)
    assert max(sizes(0.0001)) == 32
