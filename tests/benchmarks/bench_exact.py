"""Seconds and ratio of the exact methods by number of jobs, worst of several seeds.

Run ``python tests/benchmarks/bench_exact.py [part] [seconds]`` with a part of ``exhaustive``,
``compact``, ``set-partition``, ``all`` (these three, the default) and ``rates``; 120 s a solve
unless said. One row is one kind of snapshot and number of jobs, all jobs of a
generated trace present at once, seeds 0 to 4:

* ``exhaustive``: 4 to 20 jobs, also with gangs and with no group limit;
* ``compact``: ``milp`` and ``cpsat`` from 4 jobs on, until a seed runs into the limit;
* ``set-partition``: 15 to 80 jobs, production and mixed profiles, with and without the limit
  of one node of each kind in a group;
* ``rates``: 15 to 41 jobs, groups of at most four and five, one row per seed: the optimum at
  one iteration per period and at most four, by ``set-partition``. Up to ``CROSS_CHECKED`` jobs
  exhaustive search finds the second too, and has to agree.

Figures: worst and median CPU seconds (one process, one thread); proved optimal; worst ratio
(cost over bound); candidate groups of the worst seed; share of its time by step. Importing the
solver is not counted. The literature's brute force gave up beyond 5 h at 13 jobs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.generate import production, profiles
from instances.jobs import JobTable
from instances.plan import Limits
from models.exact.methods import solve
from models.problem.options import SolveOptions
from models.problem.result import Result, Termination
from models.problem.snapshot import Snapshot

SEEDS = range(5)
#: Most iterations per period of part ``rates``, and the jobs up to which it is cross-checked.
MAX_RATE = 4
CROSS_CHECKED = 16
ONE_NODE = Limits(max_rollout_nodes=1, max_train_nodes=1)


def gangs(*, n_jobs: int, seed: int) -> JobTable:
    """Production jobs of 1, 2 or 4 nodes."""
    return production(n_jobs=n_jobs, seed=seed, gangs=True)


def row(
    method: str,
    words: str,
    table: Callable[..., JobTable],
    n_jobs: int,
    limits: Limits,
    limit_s: float,
) -> bool:
    """Print one row; return whether every seed was proved optimal."""
    runs: list[tuple[float, Result]] = []
    for seed in SEEDS:
        snapshot = Snapshot(table=table(n_jobs=n_jobs, seed=seed), limits=limits)
        began = time.process_time()
        result = solve(method, snapshot, SolveOptions(time_limit_s=limit_s))
        runs.append((time.process_time() - began, result))
    seconds, worst = max(runs, key=lambda run: run[0])
    proved = sum(result.termination is Termination.OPTIMAL for _, result in runs)
    ratios = [result.ratio for _, result in runs if result.ratio is not None]
    spent = sum(worst.seconds.values()) or 1.0
    steps = ", ".join(f"{100 * s / spent:.0f} % {step}" for step, s in worst.seconds.items())
    print(
        f"| {method} | {words} | {n_jobs} | {seconds:.2f} | "
        f"{statistics.median(s for s, _ in runs):.2f} | {proved}/{len(runs)} | "
        f"{max(ratios):.4f} | {worst.counts.get('groups', 0):,} | {steps} |",
        flush=True,
    )
    return proved == len(runs)


def until_it_fails(method: str, sizes: Iterable[int], limit_s: float) -> None:
    """Print rows of growing size, the last being the first that is not proved throughout."""
    for n_jobs in sizes:
        if not row(method, "production", production, n_jobs, Limits(), limit_s):
            return


def usd_of(result: Result) -> float:
    """Return the cost of a plan, $/h; jobs alone are one always, so there is one."""
    assert result.usd_per_hour is not None
    return result.usd_per_hour


def rate_row(n_jobs: int, seed: int, size: int, limit_s: float) -> None:
    """Print one row of part ``rates``.

    Raises
    ------
    AssertionError
        When exhaustive search finds another optimum.
    """
    table = production(n_jobs=n_jobs, seed=seed)
    options = SolveOptions(time_limit_s=limit_s)
    strict = solve(
        "set-partition", Snapshot(table=table, limits=Limits(max_group_size=size)), options
    )
    snapshot = Snapshot(table=table, limits=Limits(max_group_size=size, max_rate=MAX_RATE))
    began = time.process_time()
    several = solve("set-partition", snapshot, options)
    seconds = time.process_time() - began
    checked = "-"
    if n_jobs <= CROSS_CHECKED:
        began = time.process_time()
        expected = solve("exhaustive", snapshot, options)
        checked = f"{time.process_time() - began:.1f}"
        proved = expected.termination is several.termination is Termination.OPTIMAL
        if proved and abs(usd_of(expected) / usd_of(several) - 1) > 1e-9:
            raise AssertionError(f"{n_jobs} jobs, seed {seed}: {expected} and {several}")
        checked += "" if proved else " (not proved)"
    bound = several.bound_usd_per_hour
    print(
        f"| {n_jobs} | {seed} | {size} | {usd_of(strict):.2f} | {usd_of(several):.2f} | "
        f"{'none' if bound is None else f'{bound:.2f}'} | "
        f"{usd_of(several) / usd_of(strict):.3f} | {several.termination} | "
        f"{seconds:.1f} | {several.counts.get('groups', 0):,} | "
        f"{several.counts.get('refuted', 0)} | {checked} |",
        flush=True,
    )


def rates(limit_s: float) -> None:
    """Print the table of part ``rates``."""
    print(
        "| jobs | seed | group size | strict, $/h | max_rate 4, $/h | bound, $/h | ratio to strict "
        "| termination | s | groups | refuted | exhaustive, s |\n" + "|---" * 12 + "|"
    )
    for n_jobs in (15, 16, 18, 20, 30, 41):
        for size in (4, 5):
            for seed in SEEDS:
                rate_row(n_jobs, seed, size, limit_s)


def main(part: str = "all", limit: str = "120") -> None:
    """Print the table."""
    limit_s = float(limit)
    for method in ("exhaustive", "milp", "cpsat", "set-partition"):  # imports are not counted
        solve(method, Snapshot(table=production(n_jobs=3, seed=0)), SolveOptions())
    if part == "rates":
        rates(limit_s)
        return
    print(
        "| method | snapshot | jobs | s, worst | s, median | proved | ratio, worst | groups | "
        "time of the worst |\n|---|---|---|---|---|---|---|---|---|"
    )
    if part in ("all", "exhaustive"):
        for n_jobs in (4, 6, 8, 10, 13, 16, 20):
            row("exhaustive", "production", production, n_jobs, Limits(), limit_s)
        for n_jobs in (13, 16):
            row("exhaustive", "production, gangs", gangs, n_jobs, Limits(), limit_s)
            free = Limits(max_group_size=0)
            row("exhaustive", "production, any group size", production, n_jobs, free, limit_s)
    if part in ("all", "compact"):
        until_it_fails("milp", range(4, 17), limit_s)
        until_it_fails("cpsat", range(4, 17), limit_s)
    if part in ("all", "set-partition"):
        for n_jobs in (15, 20, 30, 41, 60, 80):
            row("set-partition", "production", production, n_jobs, Limits(), limit_s)
            row("set-partition", "production, 1 + 1 nodes", production, n_jobs, ONE_NODE, limit_s)
            row("set-partition", "mixed", profiles, n_jobs, Limits(), limit_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
