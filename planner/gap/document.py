"""The JSON document of ``planner gap --json``: no timings unless asked."""

from __future__ import annotations

from typing import Any, Final

from instances.cluster_file import cluster_to_dict
from planner.gap.proving import GapReport
from planner.gap.rows import GapRow, GapTotals
from planner.plan.document import (
    SCHEMA_VERSION,
    bound_options,
    inputs_document,
    moves_document,
    repack_options,
)

__all__ = ["WITHIN", "gap_document", "gap_notes"]

#: How near to its bound a plan counts as near, beside what is proved optimal.
WITHIN: Final = 0.01
_HOUR_S: Final = 3600.0


def gap_notes(report: GapReport) -> list[str]:
    """Return what a reader of the answer must know about how it came about."""
    out = []
    if report.n_unsolved:
        out.append(
            f"Ctrl-C: {report.n_unsolved:,} of {len(report.rows):,} moments not solved. Their "
            "bound is the volume bound or what their neighbours prove, and their whole gap counts "
            "as unproved."
        )
    stopped = report.stopped_by
    if "time" in stopped:
        out.append(
            f"{_moments(stopped['time'])} stopped by the time limit: another machine, or the same "
            "one busier, may prove more or less there."
        )
    if "size" in stopped:
        out.append(
            f"{_moments(stopped['size'])} too large for set partitioning: the plan held there is "
            "the placer's or a neighbour's."
        )
    return out


def _moments(number: int) -> str:
    return f"{number:,} moment{' was' if number == 1 else 's were'}"


def _inputs(report: GapReport) -> dict[str, Any]:
    replayed, effort = report.replayed, report.effort
    inputs = inputs_document(report.trace)
    inputs["seed"] = effort.seed
    inputs["cluster"] = cluster_to_dict(replayed.cluster)
    placer = replayed.placer
    inputs["options"] = {
        "policy": report.policy,
        "durations": report.convention,
        **bound_options(replayed.limits),
        "objective": None if placer is None else placer.objective,
        "tie_rule": None if placer is None else placer.tie_rule,
        "train_scaling": None if placer is None else placer.train_scaling,
        "skip_saturated": None
        if placer is None
        else placer.skip_saturated and replayed.limits.max_rate == 1,
        "time_limit_per_snapshot_s": effort.time_limit_s,
        "tolerance": effort.tolerance,
    }
    if report.repack is not None:
        inputs["options"]["repack"] = repack_options(report.repack, report.trace.jobs)
    return inputs


def _ratio_key(report: GapReport) -> str:
    return "ratio" if report.convention == "wallclock" else "trajectory_ratio"


def _split(totals: GapTotals) -> dict[str, float | None]:
    return {
        "online_regret": totals.online_regret,
        "heuristic_loss": totals.heuristic_loss,
        "unproved_rest": totals.unproved_rest,
    }


def _row(row: GapRow) -> dict[str, Any]:
    return {
        "from_h": row.moment.from_s / _HOUR_S,
        "to_h": row.moment.to_s / _HOUR_S,
        "n_jobs": row.n_jobs,
        "usd_per_hour": row.policy_usd,
        "replanned_usd_per_hour": row.replanned_usd,
        "held_usd_per_hour": row.held_usd,
        "bound_usd_per_hour": row.bound_usd,
        "ratio": row.ratio,
        "proved_optimal": row.proved,
    }


def gap_document(report: GapReport, *, worst: int = 5, timings: bool = False) -> dict[str, Any]:
    """Return the whole document; what is unknown is null.

    Means are over the horizon and include dedicated nodes; ratios leave these out, as do the
    rows of moments.
    """
    totals, result = report.totals, report.result
    n_dedicated = len(report.trace.jobs.where_mode("async"))
    out: dict[str, Any] = {
        "policy": report.policy,
        "durations": report.convention,
        "horizon_h": result.horizon_h,
        "usd_per_hour_mean": report.mean_usd_per_hour(totals.policy_usd),
        "replanned_usd_per_hour_mean": report.mean_usd_per_hour(totals.replanned_usd),
        "held_usd_per_hour_mean": report.mean_usd_per_hour(totals.held_usd),
        "bound_usd_per_hour_mean": report.mean_usd_per_hour(totals.bound_usd),
        _ratio_key(report): totals.ratio,
        "split": _split(totals),
        "snapshots": len(report.rows),
        "snapshots_distinct": report.distinct,
        "snapshots_proved_optimal": report.n_proved,
        "snapshots_within_1_percent": report.n_within(WITHIN),
        "snapshots_not_solved": report.n_unsolved,
        "stopped_by": report.stopped_by,
        "worst_open_ratio": report.worst_open,
        "bound_methods": report.bound_methods,
        "bound_options": bound_options(report.replayed.limits),
        "dedicated": {
            "jobs": n_dedicated,
            "usd_per_hour_mean": result.dedicated_usd_total / result.horizon_h,
        },
        "by_jobs": [
            {
                "least_jobs": least,
                "most_jobs": most,
                "hours": part.hours,
                _ratio_key(report): part.ratio,
                **_split(part),
            }
            for least, most, part in report.by_jobs()
        ],
        "worst": [_row(row) for row in report.worst(worst)],
        "interrupted": report.interrupted,
        "notes": gap_notes(report),
        "checked": result.checked,
    }
    if not result.pins_fixed:
        late = GapTotals.of(report.late)
        out["moves"] = moves_document(result)
        out["without_jobs"] = {"hours": late.hours, "usd_total": late.policy_usd}
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "gap",
        "inputs": _inputs(report),
        "gap": out,
    }
    if timings:
        document["timings"] = {
            "steps_s": report.seconds,
            "snapshots_read": report.read,
            "snapshots_settled_by_neighbours": report.n_reused,
        }
    return document
