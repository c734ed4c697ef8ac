"""How fast the placer decides; prints tables, asserts nothing about time.

    python tests/benchmarks/bench_placer.py [--quick] [--max-rate 1,2,4]

1. One decision with 2,000 jobs resident: departures of random jobs alternate with arrivals
   drawn from the same table, with up to ``--max-rate`` iterations a period. ``place`` is timed
   whole: candidates, pins, offsets, state update; also in CPU time of its thread, which leaves
   out what else the machine does. Checking a decision and writing it out are timed apart.
   Every decision's offsets are the ones checked.
2. Placing n jobs one by one into an empty cluster, n up to 100,000, with the growth exponent
   fitted by least squares on the logarithms, and the memory of the state per job.

The published system needs 591 ms for a decision with 2,000 concurrent jobs (published).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import sys
import tracemalloc
from collections import Counter
from time import perf_counter_ns, thread_time_ns

import numpy as np
from rich.console import Console
from rich.table import Table

from instances.catalog import catalog_path
from instances.checker import check_group
from instances.generate import production, profiles
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import Limits
from instances.trace import read_trace
from planner.placement.placer import Placer

PUBLISHED_MS = 591.0


def steady_state(
    jobs: JobTable, size: int, max_rate: int, decisions: int, seed: int
) -> dict[str, object]:
    """Alternate departures with arrivals; return times (us) by column and the admission mix."""
    limits = Limits(max_group_size=size, max_rate=max_rate)
    placer = Placer(limits=limits)
    pool = list(jobs)
    for job in pool:
        placer.place(job)
    rng = np.random.default_rng(seed)
    resident = [job.job_id for job in pool]
    leaving = rng.integers(len(resident), size=decisions)
    arriving = rng.integers(len(pool), size=decisions)
    newcomers = [
        dataclasses.replace(pool[j], job_id=f"new-{k}") for k, j in enumerate(arriving.tolist())
    ]
    place, cpu, remove, check, write = [], [], [], [], []
    mix: Counter[str] = Counter()
    invalid = 0
    gc.collect()
    for out, job in zip(leaving.tolist(), newcomers, strict=True):
        t0 = perf_counter_ns()
        placer.remove(resident[out])
        t1, c1 = perf_counter_ns(), thread_time_ns()
        decision = placer.place(job)
        c2, t2 = thread_time_ns(), perf_counter_ns()
        resident[out] = job.job_id
        mix[decision.kind] += 1
        version = decision.group.version(0.0, 1.0)
        table = JobTable.from_jobs(decision.group.jobs)
        index = {member: i for i, member in enumerate(table.job_id)}
        t3 = perf_counter_ns()
        invalid += bool(check_group(version, table, DEFAULT_CLUSTER, limits, index=index))
        t4 = perf_counter_ns()
        json.dumps(dataclasses.asdict(version))
        t5 = perf_counter_ns()
        remove.append(t1 - t0)
        place.append(t2 - t1)
        cpu.append(c2 - c1)
        check.append(t4 - t3)
        write.append(t5 - t4)
    columns = {"place": place, "cpu": cpu, "remove": remove, "check": check, "write": write}
    return {
        "us": {name: np.array(ns) / 1e3 for name, ns in columns.items()},
        "mix": mix,
        "invalid": invalid,
        "groups": len(placer.groups()),
        "nbytes": placer.nbytes(),
    }


def print_steady(
    console: Console, jobs: dict[str, JobTable], decisions: int, max_rates: list[int]
) -> None:
    """Print table 1."""
    table = Table(title=f"One decision, 2,000 jobs resident, {decisions:,} decisions (us)")
    for name in ("trace", "group limit", "max rate", "place p50", "p99", "max", "CPU p99"):
        table.add_column(name, justify="right")
    for name in ("remove p50", "check p50"):
        table.add_column(name, justify="right")
    for name in ("write p50", "direct / scaled / new", "groups", "invalid", "vs 591 ms"):
        table.add_column(name, justify="right")
    for label, trace in jobs.items():
        for size, max_rate in itertools.product((5, 0), max_rates):
            out = steady_state(trace, size, max_rate, decisions, seed=0)
            us, mix = out["us"], out["mix"]
            shares = [mix[k] / decisions for k in ("direct", "rollout_scaled", "isolated")]
            p50, p99, most = np.percentile(us["place"], [50, 99, 100])
            table.add_row(
                label,
                str(size or "none"),
                str(max_rate),
                *(f"{v:,.0f}" for v in (p50, p99, most, np.percentile(us["cpu"], 99))),
                *(f"{np.median(us[c]):,.0f}" for c in ("remove", "check", "write")),
                " / ".join(f"{100 * s:.0f}%" for s in shares),
                f"{out['groups']}",
                f"{out['invalid']}",
                f"{PUBLISHED_MS * 1e3 / p99:,.0f}x at p99",
            )
    console.print(table)


def print_growth(console: Console, sizes: list[int]) -> None:
    """Print table 2."""
    table = Table(title="Placing n jobs one by one into an empty cluster, group limit 5")
    for name in ("jobs", "seconds", "us / job", "groups", "arrays, B / job", "all, B / job"):
        table.add_column(name, justify="right")
    seconds = []
    for n in sizes:
        pool = list(production(n_jobs=n, seed=0, concurrent=True))
        placer = Placer()
        gc.collect()
        t0 = perf_counter_ns()
        for job in pool:
            placer.place(job)
        seconds.append((perf_counter_ns() - t0) / 1e9)
        everything = "-"
        if n <= 20_000:
            groups, nbytes = len(placer.groups()), placer.nbytes()
            del placer
            tracemalloc.start()
            placer = Placer()
            for job in pool:
                placer.place(job)
            everything = f"{tracemalloc.get_traced_memory()[0] / n:,.0f}"
            tracemalloc.stop()
        groups, nbytes = len(placer.groups()), placer.nbytes()
        table.add_row(
            f"{n:,}",
            f"{seconds[-1]:.3f}",
            f"{seconds[-1] / n * 1e6:.0f}",
            f"{groups:,}",
            f"{nbytes / n:,.0f}",
            everything,
        )
    console.print(table)
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    console.print(f"fitted growth: seconds ~ n^{exponent:.2f}")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer decisions, sizes to 20,000")
    parser.add_argument("--max-rate", default="1", help="comma-separated; one row each in table 1")
    options = parser.parse_args()
    quick = options.quick
    max_rates = [int(each) for each in options.max_rate.split(",")]
    console = Console(width=170)
    jobs = {
        "large-2000": read_trace(catalog_path("large-2000")).jobs,
        "mixed profiles": profiles(n_jobs=2000, seed=0),
        "gangs 1/2/4": production(n_jobs=2000, seed=0, concurrent=True, gangs=True),
    }
    print_steady(console, jobs, 1_000 if quick else 5_000, max_rates)
    print_growth(console, [2_000, 20_000] if quick else [2_000, 5_000, 20_000, 100_000])


if __name__ == "__main__":
    sys.exit(main())
