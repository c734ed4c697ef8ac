"""Time and peak memory of reading and writing traces.

Run ``python tests/benchmarks/bench_trace.py [rows]`` (default 100000). Every reading runs in
a fresh process, so that its peak resident memory is its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.errors import InputError
from instances.jobs import JobTable
from instances.trace import TraceError, read_trace, write_trace


def make_jobs(n: int, seed: int = 1) -> JobTable:
    """Return ``n`` jobs with every column given and one extra column."""
    rng = np.random.default_rng(seed)
    return JobTable(
        job_id=tuple(f"job-{i:07d}" for i in range(n)),
        arrival_s=np.sort(rng.uniform(0, 1e6, n)),
        duration_s=rng.uniform(3600, 2e5, n),
        slo=rng.uniform(1, 2, n),
        rollout_s=rng.uniform(50, 900, n),
        train_s=rng.uniform(50, 300, n),
        sync_s=rng.uniform(1, 30, n),
        rollout_nodes=rng.integers(1, 5, n),
        train_nodes=rng.integers(1, 5, n),
        rollout_state_gb=rng.uniform(200, 490, n),
        train_state_gb=rng.uniform(240, 520, n),
        rollout_switch_s=rng.uniform(0.9, 1.9, n),
        train_switch_s=rng.uniform(4.1, 5.9, n),
        sync_gb=rng.uniform(6, 140, n),
        mode=("sync",) * n,
        optional={"model_b": rng.choice([3.0, 7.0, 14.0, 32.0], n)},
        extra={"team": tuple(f"team {i % 7}" for i in range(n))},
    )


def peak_mb() -> float:
    """Return the peak resident memory of this process, MB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reset_peak_mb() -> float:
    """Forget the peak so far where Linux allows it, and return the memory in use, MB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def measure(path: str) -> tuple[float, float, str]:
    """Return seconds and MB of one reading, after everything is imported once."""
    import pandas as pd

    pd.DataFrame({"a": [1.0]})
    before = reset_peak_mb()
    start = time.perf_counter()
    try:
        said = f"{len(read_trace(path).jobs)} jobs"
    except TraceError as error:
        said = f"{error.total} fault"
    seconds = time.perf_counter() - start
    return seconds, peak_mb() - before, said


def main(rows: int) -> None:
    """Write, read and print a small table."""
    jobs = make_jobs(rows)
    with tempfile.TemporaryDirectory() as folder:
        paths: list[tuple[Path, float]] = []
        for suffix in ("csv", "csv.gz", "csv.zst", "jsonl", "parquet"):
            path = Path(folder) / f"valid.{suffix}"
            start = time.perf_counter()
            try:
                write_trace(jobs, path)
            except InputError as error:
                print(f"{suffix}: {error}")
                continue
            paths.append((path, time.perf_counter() - start))
        faulty = Path(folder) / "one_fault.csv"
        text = (Path(folder) / "valid.csv").read_text()
        cut = text.rstrip("\n").rfind("\n") + 1
        faulty.write_text(text[:cut] + text[cut:].replace(",", ",x", 1))
        paths.append((faulty, 0.0))
        print(f"{'file':<14}{'MB':>8}{'write s':>9}{'read s':>9}{'read peak MB':>14}  result")
        spawn = multiprocessing.get_context("spawn")
        for path, wrote in paths:
            with spawn.Pool(1) as pool:
                seconds, peak, said = pool.apply(measure, (str(path),))
            size = path.stat().st_size / 1e6
            print(f"{path.name:<14}{size:>8.1f}{wrote:>9.2f}{seconds:>9.2f}{peak:>14.0f}  {said}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
