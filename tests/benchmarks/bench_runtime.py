"""How fast groups run; prints a table, asserts nothing about time.

    python tests/benchmarks/bench_runtime.py [REPLICATIONS]

One group of five jobs, and the plans of weave for ``production-200`` (15 days of arrivals) and for
a generated trace of 2,000 jobs, lengths drawn (512 responses an iteration), both disciplines.
*First* draws all lengths, *again* has them already: other plans of a replication do. Seconds are
those of the processor, on one core. REPLICATIONS (default 10) of the whole trace follow.
"""

from __future__ import annotations

import sys
import tracemalloc
from importlib.resources import files
from time import process_time

from rich.console import Console
from rich.table import Table

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import Plan
from instances.trace import read_trace
from planner.policies.policy import PolicyOptions
from planner.replay.replaying import replay
from planner.simulate.lengths import PhaseSampler, WorstCase
from planner.simulate.runtime import DISCIPLINES, Discipline, simulate_group, simulate_plan


def plan_of(jobs: JobTable) -> Plan:
    """Return the plan of weave, convention work."""
    plan = replay(jobs, "weave", PolicyOptions(cluster=DEFAULT_CLUSTER)).plan
    assert plan is not None
    return plan


def one_group(plan: Plan, jobs: JobTable, discipline: Discipline) -> tuple[float, float, float]:
    """Return iterations, seconds and peak MB of the largest group, run for 100,000 periods."""
    version = max(plan.groups, key=lambda v: len(v.placements))
    source = WorstCase(jobs)
    simulate_group(version, jobs, source, discipline=discipline, iterations=1)  # compiles
    began = process_time()
    run = simulate_group(version, jobs, source, discipline=discipline, iterations=100_000)
    seconds = process_time() - began
    tracemalloc.start()
    simulate_group(version, jobs, source, discipline=discipline, iterations=10_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return run.iterations, seconds, peak / 1e6


def main() -> None:
    """Print the tables."""
    replications = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    path = files("instances.catalog") / "production-200.csv"
    traces = {
        "production-200": read_trace(str(path)).jobs,
        "production, 2,000 jobs": production(n_jobs=2_000, seed=0),
    }
    plans = {name: plan_of(jobs) for name, jobs in traces.items()}
    table = Table(title="Running groups")
    for name in ("what", "discipline", "iterations", "first, s", "again, s", "per second, again"):
        table.add_column(name, justify="left" if name in ("what", "discipline") else "right")
    for discipline in DISCIPLINES:
        plan, jobs = plans["production-200"], traces["production-200"]
        done, seconds, peak = one_group(plan, jobs, discipline)
        what = f"five jobs, peak {peak:.1f} MB"
        table.add_row(
            what, discipline, f"{done:,.0f}", "", f"{seconds:.2f}", f"{done / seconds:,.0f}"
        )
    for name, jobs in traces.items():
        for discipline in DISCIPLINES:
            sampler = PhaseSampler(jobs)
            seconds_of = []
            for _ in range(2):
                began = process_time()
                report = simulate_plan(plans[name], sampler, discipline=discipline)
                seconds_of.append(process_time() - began)
            done = float(report.iterations.sum())
            table.add_row(
                name,
                discipline,
                f"{done:,.0f}",
                f"{seconds_of[0]:.2f}",
                f"{seconds_of[1]:.2f}",
                f"{done / seconds_of[1]:,.0f}",
            )
    console = Console(width=110)
    console.print(table)
    jobs, plan = traces["production-200"], plans["production-200"]
    began = process_time()
    for replication in range(replications):
        simulate_plan(plan, PhaseSampler(jobs, replication=replication))
    console.print(f"{replications} replications of production-200: {process_time() - began:.1f} s")


if __name__ == "__main__":
    main()
