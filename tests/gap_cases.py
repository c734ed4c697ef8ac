"""Small traces whose optimality gaps are known by hand, in pair-hours, and random ones."""

from __future__ import annotations

import dataclasses
import random
from math import prod
from pathlib import Path
from typing import Any

from builders import PAIR_USD, cluster_of, job_of, random_job, trace_of
from command_line import PRODUCTION
from instances.jobs import Job
from instances.plan import Limits
from instances.trace import Trace, read_trace, write_trace
from models.problem.snapshot import Snapshot
from planner.gap.proving import GapReport, GapRow, GapTotals
from planner.gap.solve import Effort, Replayed
from planner.placement.placer import PlacerParams

HOUR = 3600.0


def even(job_id: str, arrival_h: float, stay_h: float, seconds: float, slo: float) -> Job:
    """Return a job whose phases are equally long: alone it needs one node of each kind."""
    return job_of(
        job_id, seconds, seconds, slo, arrival_s=arrival_h * HOUR, duration_s=stay_h * HOUR
    )


def overlapping() -> Trace:
    """Two jobs, T = 100, D = 150: a from 0 to 2 h, b from 1 to 3 h.

    Together one node of each kind is loaded 60 + 40 = 100 s in either pool, and open shop
    reaches 100 <= 150: one pair of nodes holds both.
    """
    return trace_of(
        job_of("a", 60, 40, 1.5, arrival_s=0.0, duration_s=2 * HOUR),
        job_of("b", 40, 60, 1.5, arrival_s=HOUR, duration_s=2 * HOUR),
    )


def fragmented() -> Trace:
    """Three jobs, T = 90, D = 108: two fit a pair of nodes (90 <= 108), three do not (135).

    a and b share from 0 h; c comes at 1 h and is alone; a leaves at 2 h, c at 3 h, b at 4 h. In
    the third hour b and c each hold a pair, where one would do.
    """
    return trace_of(even("a", 0, 2, 45, 1.2), even("b", 0, 4, 45, 1.2), even("c", 1, 2, 45, 1.2))


def saturated() -> Trace:
    """Four jobs for an hour, T = 60, D = 120: all fit one pair of nodes (4 x 30 = 120).

    The published rule calls a pair with two of them saturated (load 60 >= T) and opens another.
    """
    return trace_of(*(even(name, 0, 1, 30, 2.0) for name in "abcd"))


def with_async() -> Trace:
    """The overlapping two, and an async job on 2 + 1 nodes from 0 to 3 h."""
    free = job_of(
        "free", 60, 40, 1.0, arrival_s=0.0, duration_s=3 * HOUR, rollout_nodes=2, mode="async"
    )
    return trace_of(*overlapping().jobs, free)


def random_trace(seed: int, n: int = 7) -> Trace:
    """Jobs of few distinct values that come and go within a few hours."""
    rng = random.Random(seed)
    return trace_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=60.0 * rng.randint(0, 120),
                duration_s=60.0 * rng.randint(5, 90),
            )
            for i in range(n)
        )
    )


def short_production(folder: Path, n: int = 24) -> Path:
    """Write the first jobs of the shipped production trace; return the file."""
    path = folder / "short.csv"
    if not path.exists():
        write_trace(read_trace(PRODUCTION).jobs.take(range(n)), path)
    return path


def prices(report: GapReport) -> list[tuple[float, ...]]:
    """Return the four prices of every moment, in pairs of nodes."""
    return [
        tuple(
            round(usd / PAIR_USD, 9)
            for usd in (row.policy_usd, row.replanned_usd, row.held_usd, row.bound_usd)
        )
        for row in report.rows
    ]


def replayed_of(trace: Trace, **changes: Any) -> Replayed:
    values = {
        "jobs": tuple(trace.jobs),
        "cluster": cluster_of(),
        "limits": Limits(),
        "placer": PlacerParams(),
        "effort": Effort(),
    }
    return Replayed(**{**values, **changes})


def snapshot_of(report: GapReport, row: GapRow) -> Snapshot:
    return Snapshot(
        table=report.trace.jobs.take(row.moment.jobs),
        cluster=report.replayed.cluster,
        limits=report.replayed.limits,
    )


def split(totals: GapTotals) -> float:
    parts = (totals.online_regret, totals.heuristic_loss, totals.unproved_rest)
    assert None not in parts
    return prod(part for part in parts if part is not None)


def read_trace_first(n: int) -> Trace:
    from command_line import PRODUCTION

    trace = read_trace(PRODUCTION)
    return dataclasses.replace(trace, jobs=trace.jobs.take(range(n)))
