"""The JSON document of ``planner snapshot --json``."""

from __future__ import annotations

import dataclasses
from typing import Any

from instances.cluster_file import cluster_to_dict
from instances.plan import GroupVersion
from instances.plan_file import plan_to_dict
from models.problem.snapshot import FleetCaps
from planner.placement.group_rules import tightest, utilisation
from planner.plan.document import SCHEMA_VERSION, bound_options, inputs_document
from planner.replay.iterations import iteration_seconds
from planner.snapshot.solving import SnapshotReport

__all__ = ["snapshot_document"]


def _caps(caps: FleetCaps) -> dict[str, int | None]:
    return {
        "max_rollout_nodes_total": caps.max_rollout_nodes_total,
        "max_train_nodes_total": caps.max_train_nodes_total,
    }


def _inputs(report: SnapshotReport) -> dict[str, Any]:
    problem, options = report.problem, report.result.options
    inputs = inputs_document(report.trace)
    inputs["seed"] = options.seed
    inputs["cluster"] = cluster_to_dict(report.cluster)
    inputs["options"] = {
        "select": problem.selection.kind,
        "at_hours": problem.selection.at_hours,
        "method": report.asked,
        **bound_options(problem.snapshot.limits),
        **_caps(problem.caps),
        "time_limit_s": options.time_limit_s,
        "node_limit": options.node_limit,
        "work_limit": options.work_limit,
    }
    return inputs


def _group(report: SnapshotReport, group: GroupVersion) -> dict[str, Any]:
    rule = tightest(group, report.jobs, report.cluster)
    nodes = {"rollout": len(group.rollout_nodes), "train": len(group.train_nodes)}
    return {
        "group_id": group.group_id,
        "jobs": [placement.job_id for placement in group.placements],
        "nodes": nodes,
        "usd_per_hour": report.cluster.usd_per_hour(nodes["rollout"], nodes["train"]),
        "period_s": group.period_s,
        "rates": [placement.rate for placement in group.placements],
        "worst_single_iteration_s": [
            max(iteration_seconds(placement, group.period_s)) for placement in group.placements
        ],
        "tightest": {**dataclasses.asdict(rule), "slack": rule.slack},
        "utilisation": utilisation(group, report.jobs),
    }


def snapshot_document(report: SnapshotReport, *, timings: bool = False) -> dict[str, Any]:
    """Return the whole document; what is unknown is null, and so is ``checked`` without a plan."""
    result, plan, problem = report.result, report.plan, report.problem
    moment_s = problem.moment_s
    out: dict[str, Any] = {
        "method": result.method,
        "termination": result.termination.value,
        "stopped_by": None if result.stopped_by is None else result.stopped_by.value,
        "moment_h": None if moment_s is None else moment_s / 3600.0,
        "n_jobs": len(report.jobs),
        "usd_per_hour": report.usd_per_hour,
        "bound_usd_per_hour": report.bound_usd_per_hour,
        "bound_method": report.bound_method,
        "bound_options": {**bound_options(problem.snapshot.limits), **_caps(problem.caps)},
        "ratio": report.ratio,
        "solo_usd_per_hour": report.solo_usd_per_hour,
        "saving": report.saving,
        "placer_usd_per_hour": report.placer_usd_per_hour,
        "nodes": report.nodes,
        "groups": [] if plan is None else [_group(report, group) for group in plan.groups],
        "dedicated": {
            "jobs": len(problem.dedicated),
            "nodes": problem.dedicated_nodes,
            "usd_per_hour": report.dedicated_usd_per_hour,
        },
        "link_utilisation": report.link_utilisation,
        "links": report.links,
        "counts": dict(sorted(result.counts.items())),
        "solver": None if result.solver is None else dataclasses.asdict(result.solver),
        "seed": result.seed,
        "conflict": None if result.conflict is None else dataclasses.asdict(result.conflict),
        "notes": list(report.notes),
        "plan": None if plan is None else plan_to_dict(plan),
        "checked": None if plan is None else True,
    }
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "snapshot",
        "inputs": _inputs(report),
        "snapshot": out,
    }
    if timings:
        document["timings"] = {
            "solve_s": report.seconds,
            "steps_s": dict(sorted(result.seconds.items())),
        }
    return document
