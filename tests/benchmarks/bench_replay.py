"""How fast a trace is replayed; prints a table, asserts nothing about time.

    python tests/benchmarks/bench_replay.py [JOBS ...]

Generated production traces of the given sizes (default 200, 2,000, 20,000 and 100,000 jobs;
about 15 jobs present at once, as published), policy weave, convention work, every version
checked. Each size runs in a process of its own, so that peak memory is its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from planner.policies.policy import PolicyOptions
from planner.replay.replaying import replay


def measure(n_jobs: int, check: bool) -> tuple[float, int, float]:
    """Return seconds, group versions and peak memory (MB) of one replay."""
    jobs = production(n_jobs=n_jobs, seed=0)
    began = perf_counter()
    result = replay(jobs, "weave", PolicyOptions(cluster=DEFAULT_CLUSTER), check=check)
    seconds = perf_counter() - began
    assert result.plan is not None
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds, len(result.plan.groups), peak_mb


def main() -> None:
    """Print one row per size."""
    sizes = [int(a) for a in sys.argv[1:]] or [200, 2_000, 20_000, 100_000]
    table = Table(title="Replay of generated production traces, weave")
    for name in ("jobs", "seconds", "us / event", "without checks, s", "versions", "peak MB"):
        table.add_column(name, justify="right")
    seconds = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for n in sizes:
            checked, versions, peak_mb = pool.apply(measure, (n, True))
            plain, _, _ = pool.apply(measure, (n, False))
            seconds.append(checked)
            table.add_row(
                f"{n:,}",
                f"{checked:.2f}",
                f"{checked / (2 * n) * 1e6:.0f}",
                f"{plain:.2f}",
                f"{versions:,}",
                f"{peak_mb:,.0f}",
            )
    console = Console(width=110)
    console.print(table)
    if len(sizes) > 1:
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        console.print(f"fitted growth: seconds ~ jobs^{exponent:.2f}")


if __name__ == "__main__":
    main()
