"""How far placement is from the optimum, by workload, SLO, group size and number of jobs.

Run ``python tests/benchmarks/study_optimality.py FOLDER [--jobs 7,15,41] [--kinds mixed]
[--slo U,1.5] [--sizes 5] [--seeds 0,1,2] [--seconds 60] [--table]``. ``FOLDER`` is a folder
outside the project; the results are its ``optimality.csv.gz``, one row a cell (kind, SLO, group
size, jobs, seed), in the order of the cells. A run continues where the last one was stopped:
cells on file are not repeated. ``--table`` prints the file as Markdown and runs nothing.

A cell is one snapshot: all jobs of a generated trace (``instances.generate.profiles``) present
at once, one node of each kind, with the SLO given (``U``: uniform on 1 to 2, as drawn). Over
the bound of the cheapest valid plan, proved by the exact methods up to ``EXACT_JOBS`` jobs and
by ``local-search`` beyond, in at most ``--seconds`` each:

* ``weave``: the placer, jobs in order of arrival; nobody moves;
* ``random``, ``most-idle``: the literature's baselines, which do not look at time, with the
  share of jobs whose SLO holds (``random`` with the seed of the cell);
* ``best``: the best plan found, and whether it is proved optimal.

Figures depend on nothing but the seeds where every cell is proved; where time ran out, on the
machine too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.generate import profiles
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import Limits
from models.problem.result import Termination
from planner.policies.policy import PolicyOptions
from planner.policies.registry import make_policy
from planner.replay.moment import Selection
from planner.snapshot.solving import solve_snapshot

KINDS = ("balanced", "rollout-heavy", "train-heavy", "mixed")
SLOS = ("1.2", "1.5", "2.0", "U")
SIZES = (2, 3, 4, 5)
JOBS = (7, 15, 41, 100, 500, 2000)
SEEDS = (0, 1, 2)
#: Jobs up to which an exact method is asked.
EXACT_JOBS = 41
KEYS = ["kind", "slo", "group_size", "jobs", "seed"]
FILE = "optimality.csv.gz"
POLICIES = ("weave", "random", "most-idle")


def workload(kind: str, slo: str, n_jobs: int, seed: int) -> JobTable:
    """Return the jobs of a cell."""
    table = profiles(n_jobs=n_jobs, seed=seed, kind=kind)
    return table if slo == "U" else replace(table, slo=np.full(n_jobs, float(slo)))


def placed(policy: str, table: JobTable, limits: Limits, seed: int) -> tuple[float, float]:
    """Return $/h of a policy with all jobs present, and the share of jobs whose SLO holds."""
    made = make_policy(policy, PolicyOptions(cluster=DEFAULT_CLUSTER, limits=limits, seed=seed))
    groups = {}
    for job in sorted(table, key=lambda job: job.arrival_s):
        change = made.arrive(job, 0.0)
        groups |= {group.number: group for group in change.groups}
    nodes = [
        sum(len(getattr(group, f"{pool}_nodes")) for group in groups.values())
        for pool in ("rollout", "train")
    ]
    kept = sum(
        group.period_s <= job.deadline_s * (1 + 1e-9)
        for group in groups.values()
        for job in group.jobs
    )
    return DEFAULT_CLUSTER.usd_per_hour(*nodes), kept / len(table)


def cell(kind: str, slo: str, size: int, n_jobs: int, seed: int, seconds: float) -> dict[str, Any]:
    """Return the row of a cell."""
    table = workload(kind, slo, n_jobs, seed)
    limits = Limits(max_group_size=size)
    row: dict[str, Any] = dict(zip(KEYS, (kind, slo, size, n_jobs, seed), strict=True))
    for policy in POLICIES:
        usd, kept = placed(policy, table, limits, seed)
        row[f"{policy}_usd_per_hour"], row[f"{policy}_slo_attainment"] = usd, kept
    began = time.process_time()
    report = solve_snapshot(
        table,
        select=Selection.all_jobs(),
        method="auto" if n_jobs <= EXACT_JOBS else "local-search",
        limits=limits,
        time_limit_s=seconds,
        seed=seed,
    )
    row["best_usd_per_hour"] = report.usd_per_hour
    row["bound_usd_per_hour"] = report.bound_usd_per_hour
    row["bound_method"] = report.bound_method
    row["proved"] = report.result.termination is Termination.OPTIMAL
    row["cpu_s"] = time.process_time() - began
    return row


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write the whole file or leave it as it was; equal rows, equal bytes."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".csv.gz")
    os.close(handle)
    compression = {"method": "gzip", "mtime": 0}
    frame.to_csv(name, index=False, compression=compression, lineterminator="\n")
    Path(name).replace(path)


def run(path: Path, cells: list[tuple[str, str, int, int, int]], seconds: float) -> None:
    """Work on the cells that are not on file."""
    frame = pd.read_csv(path, dtype={"slo": str}) if path.exists() else pd.DataFrame(columns=KEYS)
    done = set(frame[KEYS].itertuples(index=False, name=None))
    left = [each for each in cells if each not in done]
    print(f"{len(cells) - len(left)} of {len(cells)} cells are on file", file=sys.stderr)
    for number, each in enumerate(left, start=1):
        row = cell(*each, seconds)
        frame = (
            pd.concat([frame, pd.DataFrame([row])], ignore_index=True)
            if len(frame)
            else (pd.DataFrame([row]))
        )
        save(frame, path)
        ratio = row["best_usd_per_hour"] / row["bound_usd_per_hour"]
        print(f"{number}/{len(left)} {each}: {ratio:.4f}, {row['cpu_s']:.1f} s", file=sys.stderr)


def table(frame: pd.DataFrame, by: list[str]) -> str:
    """Return the study as Markdown: means over the cells of each row, and the worst."""
    for policy in (*POLICIES, "best"):
        frame[policy] = frame[f"{policy}_usd_per_hour"] / frame["bound_usd_per_hour"]
    lines = [
        f"| {' | '.join(by)} | cells | weave | weave, worst | random (SLOs held) | "
        "most-idle (SLOs held) | best found | proved |",
        "|---" * (len(by) + 7) + "|",
    ]
    for key, rows in frame.groupby(by, sort=True):
        words = key if isinstance(key, tuple) else (key,)
        lines.append(
            f"| {' | '.join(map(str, words))} | {len(rows)} | {rows['weave'].mean():.3f} | "
            f"{rows['weave'].max():.3f} | "
            + " | ".join(
                f"{rows[name].mean():.2f} ({rows[f'{name}_slo_attainment'].mean():.0%})"
                for name in ("random", "most-idle")
            )
            + f" | {rows['best'].mean():.3f} | {rows['proved'].mean():.0%} |"
        )
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    """Return whole numbers separated by commas."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Run the cells asked for, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=numbers, default=list(JOBS))
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--slo", type=lambda text: text.split(","), default=list(SLOS))
    parser.add_argument("--sizes", type=numbers, default=list(SIZES))
    parser.add_argument("--seeds", type=numbers, default=list(SEEDS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    path = asked.folder / FILE
    if not asked.table:
        cells = list(product(asked.kinds, asked.slo, asked.sizes, asked.jobs, asked.seeds))
        cells.sort(key=lambda each: each[3])  # small snapshots first
        run(path, cells, asked.seconds)
    frame = pd.read_csv(path, dtype={"slo": str})
    for by in (["jobs"], ["kind", "jobs"], ["slo", "jobs"], ["group_size", "jobs"]):
        print(f"\n{table(frame, by)}")


if __name__ == "__main__":
    main()
