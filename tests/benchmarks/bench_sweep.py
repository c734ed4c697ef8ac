"""Runs per second of a sweep by engine and workers; prints tables, asserts nothing about time.

    python tests/benchmarks/bench_sweep.py [RUNS]

Two studies: replays of 200 jobs, of some 100 ms each, and replays of two jobs, of about a
millisecond, which show what an engine costs. Every engine does the same runs of bootstrapped
copies (default 100, and 20 times as many small ones); workers are warm: they have done a few runs
before. Then:

* runs a second, by the wall clock, from the first unit handed out to the last that came back;
* overhead: (workers x wall - seconds inside of replays) / runs: waiting, passing on, unpacking.
  Replays on a machine that others use are slower, and that is not overhead;
* CPU of this process per run: what hands out and takes back. In the plain loop and in process,
  CPU beyond that of the replays themselves. Dask's scheduler is in this process, too.

Last, what the table on disk costs per row (one line and an ``fsync`` per unit of work).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from rich.console import Console
from rich.table import Table

from planner.sweep.engines import Finished, dask_cluster, in_process, local_processes
from planner.sweep.expand import Run, Study, expand
from planner.sweep.run import row_of
from planner.sweep.store import ResultTable
from planner.sweep.study import study_from_dict

_WARM = 8
Engine = Callable[[Study, Sequence[Run]], Finished]


@dataclass
class Measured:
    """What one engine took for the runs after the first few."""

    runs: int
    wall_s: float
    inside_s: float
    cpu_s: float


def study(runs: int, trace: dict[str, object]) -> Study:
    """Return a study of bootstrapped copies, and a few more to warm up."""
    tables = {"policies": "weave", "replications": runs + _WARM, "trace": [trace]}
    return expand(study_from_dict(tables, "bench", Path()))


def measure(of: Study, engine: Engine) -> Measured:
    """Do all runs; count from the moment when the first few are back."""
    finished = engine(of, of.runs)
    skipped = 0
    while skipped < _WARM:
        skipped += len(next(finished))
    began, cpu, inside, runs = perf_counter(), process_time(), 0.0, 0
    for unit in finished:
        runs += len(unit)
        inside += sum(done.seconds for done in unit)
    return Measured(runs, perf_counter() - began, inside, process_time() - cpu)


def plain(of: Study) -> Measured:
    """Do all runs in a loop."""
    for run in of.runs[:_WARM]:
        row_of(run, of.inputs)
    inside, began, cpu = 0.0, perf_counter(), process_time()
    for run in of.runs[_WARM:]:
        at = perf_counter()
        row_of(run, of.inputs)
        inside += perf_counter() - at
    runs = len(of.runs) - _WARM
    return Measured(runs, perf_counter() - began, inside, process_time() - cpu)


def engines() -> dict[tuple[str, int], Engine]:
    """Return the engines that need no cluster."""
    return {
        ("in process", 1): lambda of, runs: in_process(of.inputs, runs),
        ("processes", 1): lambda of, runs: local_processes(of.inputs, runs, 1),
        ("processes", 2): lambda of, runs: local_processes(of.inputs, runs, 2),
    }


def on_dask(address: str, of: Study, runs: Sequence[Run]) -> Finished:
    """Do the runs on a Dask cluster."""
    return dask_cluster(of.inputs, runs, address)


def table_cost(of: Study) -> float:
    """Return milliseconds per row of the table on disk, a unit of one run each."""
    figures = row_of(of.runs[0], of.inputs)
    with tempfile.TemporaryDirectory() as folder:
        with ResultTable(Path(folder) / "t.csv", of) as table:
            table.begin()
            began = perf_counter()
            for run in of.runs:
                table.add({run.run_id: figures})
            table.finish()
        return (perf_counter() - began) / len(of.runs) * 1e3


def show(title: str, found: dict[tuple[str, int], Measured], console: Console) -> None:
    """Print one row an engine."""
    table = Table(title=title)
    for name in (
        "engine",
        "workers",
        "runs/s",
        "replay, ms",
        "overhead, ms/run",
        "CPU here, ms/run",
    ):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for (engine, workers), m in found.items():
        here = m.cpu_s - (m.inside_s if engine in ("plain loop", "in process") else 0.0)
        table.add_row(
            engine,
            str(workers),
            f"{m.runs / m.wall_s:.1f}",
            f"{m.inside_s / m.runs * 1e3:.2f}",
            f"{(workers * m.wall_s - m.inside_s) / m.runs * 1e3:.2f}",
            f"{max(here, 0.0) / m.runs * 1e3:.2f}",
        )
    console.print(table)


def main() -> None:
    """Print a table per study."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    console = Console(width=100)
    studies = {
        "replays of 200 jobs": study(runs, {"generator": "production", "jobs": 200}),
        "replays of two jobs": study(20 * runs, {"generator": "tiny-open-shop"}),
    }
    found: dict[str, dict[tuple[str, int], Measured]] = {}
    for title, of in studies.items():
        found[title] = {("plain loop", 1): plain(of)}
        for key, engine in engines().items():
            found[title][key] = measure(of, engine)
    try:
        from distributed import LocalCluster
    except ImportError:
        console.print("Dask: not installed (extra 'cluster').")
    else:
        for workers in (1, 2):
            with LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
            ) as cluster:
                on_cluster = partial(on_dask, cluster.scheduler_address)
                for title, of in studies.items():
                    found[title]["Dask", workers] = measure(of, on_cluster)
    for title, rows in found.items():
        show(f"{len(studies[title].runs) - _WARM:,} {title}", rows, console)
    cost = table_cost(studies["replays of two jobs"])
    console.print(f"table on disk: {cost:.2f} ms per row, a line and an fsync each")


if __name__ == "__main__":
    main()
