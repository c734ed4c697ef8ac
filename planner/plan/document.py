"""The JSON document of ``plan --json``: names, units, no timings."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from instances.checker import CheckReport
from instances.cluster_file import cluster_to_dict
from instances.coefficients import Coefficients
from instances.estimate import Estimate
from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.plan import Limits, Plan
from instances.restarts import restart_sources
from instances.trace import Trace
from planner.plan.planning import PlanReport
from planner.policies.repack_params import RepackParams
from planner.replay.replaying import Convention, ReplayResult

__all__ = [
    "SCHEMA_VERSION",
    "bound_options",
    "check_document",
    "finite",
    "inputs_document",
    "moves_document",
    "package_versions",
    "plan_document",
    "policy_document",
    "profile_document",
    "repack_options",
    "waiting_document",
]

SCHEMA_VERSION: Final = 1
_PACKAGES: Final = ("rl-fleet-planner", "numpy", "pandas")


def bound_options(limits: Limits) -> dict[str, int | None]:
    """Return the options a bound holds for."""
    return {
        "max_rate": limits.max_rate,
        "max_group_size": limits.max_group_size,
        "max_rollout_nodes": limits.max_rollout_nodes,
        "max_train_nodes": limits.max_train_nodes,
    }


def repack_options(params: RepackParams, jobs: JobTable) -> dict[str, Any]:
    """Return when ``repack`` moves jobs, and where the seconds of their restarts come from.

    What has no limit is null.
    """
    seconds = jobs.restart_s
    return {
        **{name: finite(value) for name, value in dataclasses.asdict(params).items()},
        "freeze": sorted(params.freeze),
        "restarts": {
            **restart_sources(jobs),
            "least_s": float(seconds.min()),
            "most_s": float(seconds.max()),
        },
    }


def moves_document(result: ReplayResult) -> dict[str, Any]:
    """Return the moves of a policy that moves running jobs; async jobs left out."""
    return {
        "total": result.moves,
        "per_job": result.moves_per_job,
        "jobs_moved": result.jobs_moved,
        "max_per_job": result.max_moves_per_job,
        "paused_h": result.paused_h,
        "job_hours": result.job_hours,
    }


def waiting_document(result: ReplayResult) -> dict[str, Any]:
    """Return how long jobs wait for a fixed fleet, and the price of owning it."""
    fleet = result.fleet
    assert fleet is not None
    usd_per_hour = result.cluster.usd_per_hour(fleet.rollout_nodes, fleet.train_nodes)
    return {
        "fleet_nodes": {"rollout": fleet.rollout_nodes, "train": fleet.train_nodes},
        "fleet_usd_per_hour": usd_per_hour,
        "fleet_usd_total": usd_per_hour * result.horizon_h,
        "waiting": {
            "p50_s": result.wait_quantile(0.5),
            "p95_s": result.wait_quantile(0.95),
            "max_s": result.wait_quantile(1.0),
            "admitted_at_once": result.admitted_at_once,
            "slo_attainment_with_wait": result.slo_attainment_with_wait,
        },
    }


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def inputs_document(trace: Trace) -> dict[str, Any]:
    """Return what identifies the input: name, sha256, counts, estimated columns, versions.

    ``coefficients`` are the estimator's where it estimated phases, else null.
    """
    jobs = trace.jobs
    phases = {"rollout_s", "train_s"} & set(jobs.estimated_columns())
    return {
        "trace": trace.name,
        "sha256": trace.sha256,
        "jobs": len(jobs),
        "async_jobs": len(jobs.where_mode("async")),
        "estimated_columns": list(jobs.estimated_columns()),
        "seed": None,
        "coefficients": dataclasses.asdict(trace.coefficients) if phases else None,
        "package_versions": package_versions(),
    }


def _fleet(result: ReplayResult, nodes: dict[str, int]) -> dict[str, Any]:
    cluster = result.cluster
    return {
        "nodes": nodes,
        "gpus": {
            "rollout": nodes["rollout"] * cluster.rollout.gpus_per_node,
            "train": nodes["train"] * cluster.train.gpus_per_node,
        },
        "usd_per_hour": cluster.usd_per_hour(nodes["rollout"], nodes["train"]),
    }


def policy_document(result: ReplayResult) -> dict[str, Any]:
    """Return one policy's figures under one convention."""
    peak = result.peak_nodes
    within = result.promises_valid
    admission = None
    if result.admission is not None:
        placed = sum(result.admission.values())
        admission = {k: n / placed if placed else 0.0 for k, n in result.admission.items()}
    out: dict[str, Any] = {
        "usd_per_hour_mean": result.usd_per_hour_mean,
        "usd_total": result.usd_total,
        "horizon_h": result.horizon_h,
        "peak_gpus": result.cluster.gpus(peak["rollout"], peak["train"]),
        "peak_nodes": peak,
        "slo_attainment": result.slo_attainment,
        "slo_attainment_worst_period": result.slo_attainment_worst_period,
        "admission": admission,
        "idle_fraction": result.idle_fraction,
        "fleet": {"peak": _fleet(result, peak), "p95": _fleet(result, result.p95_nodes)},
        "node_hours": result.node_hours,
        "dedicated": {
            "jobs": sum(r.job.mode == "async" for r in result.records),
            "usd_total": result.dedicated_usd_total,
        },
        "link_utilisation": result.link_utilisation,
        "links": result.links,
        "bound_usd_per_hour_mean": result.bound_usd_total / result.horizon_h if within else None,
        "bound_method": result.bound_method if within else None,
        "bound_options": bound_options(result.limits) if within else None,
        "checked": result.checked,
    }
    if result.fleet is not None:
        out |= waiting_document(result)
    if not result.pins_fixed:
        out["moves"] = moves_document(result)
    if result.limits.max_rate > 1:
        out["single_iterations"] = {
            "worst_over_deadline": result.worst_single_iteration,
            "jobs_over_deadline": result.jobs_with_late_iterations,
        }
    if result.convention == "wallclock":
        out["ratio"] = result.ratio
    else:
        out["trajectory_ratio"] = result.ratio
        out["bound_usd_total"] = result.work_bound_usd_total if within else None
    if not within:
        out["breaches"] = result.breaches
    return out


def plan_document(report: PlanReport, *, timings: bool = False) -> dict[str, Any]:
    """Return the whole document of ``plan --json``."""
    options = report.options
    inputs = inputs_document(report.trace)
    drawn = any(report.replicas.values())
    inputs["seed"] = list(report.seeds) if drawn else None
    inputs["cluster"] = cluster_to_dict(options.cluster)
    inputs["options"] = {
        "policy": report.policy,
        "baselines": list(report.baselines),
        "durations": report.primary,
        **bound_options(options.limits),
        "objective": options.placer.objective,
        "tie_rule": options.placer.tie_rule,
        "train_scaling": options.placer.train_scaling,
        "skip_saturated": options.placer.skip_saturated and options.limits.max_rate == 1,
        "max_attempts": options.placer.max_attempts,
        "colocated_factor": options.colocated_factor,
    }
    if options.fleet is not None:
        inputs["options"]["fleet"] = dataclasses.asdict(options.fleet)
        inputs["options"]["queue"] = options.queue
    if "repack" in (report.policy, *report.baselines):
        inputs["options"]["repack"] = repack_options(options.repack, report.trace.jobs)
    conventions: dict[Convention, Any] = {}
    for convention, by_policy in report.results.items():
        conventions[convention] = {
            "policies": {
                name: policy_document(result) | _over_seeds(report, name, convention)
                for name, result in by_policy.items()
            },
            "savings": {name: report.saving(name, convention) for name in report.baselines},
        }
    out: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "plan",
        "inputs": inputs,
        "conventions": conventions,
    }
    if timings:
        out["timings"] = {"replay_s": report.seconds, "decision_ms": _decision_ms(report)}
    return out


def _over_seeds(report: PlanReport, policy: str, convention: Convention) -> dict[str, Any]:
    """Return ``over_seeds`` of a policy that draws: means with their 95 % intervals."""
    if policy not in report.replicas[convention]:
        return {}
    figures: dict[str, Callable[[ReplayResult], float]] = {
        "usd_per_hour_mean": lambda r: r.usd_per_hour_mean,
        "usd_total": lambda r: r.usd_total,
        "slo_attainment": lambda r: r.slo_attainment,
        "slo_attainment_worst_period": lambda r: r.slo_attainment_worst_period,
    }
    out: dict[str, Any] = {"seeds": list(report.seeds)}
    for name, value in figures.items():
        out[name] = dataclasses.asdict(report.mean(policy, convention, value))
    return {"over_seeds": out}


def _decision_ms(report: PlanReport) -> dict[str, dict[str, float]]:
    """Return percentiles of decision times by "convention/policy", milliseconds."""
    out = {}
    for convention, policy, result in report:
        if result.decision_s:
            p50, p99, most = np.percentile(result.decision_s, [50, 99, 100]) * 1e3
            out[f"{convention}/{policy}"] = {
                "p50": float(p50),
                "p99": float(p99),
                "max": float(most),
            }
    return out


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: ``None`` for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_document(plan: Plan, report: CheckReport, name: str) -> dict[str, Any]:
    """Return the document of ``planner check --json``."""
    fleet = {}
    if plan.fleet is not None:
        fleet = {"fleet": dataclasses.asdict(plan.fleet), "jobs_waited": len(plan.starts)}
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "check",
        "inputs": {"plan": name, "policy": plan.policy, "durations": plan.durations},
        "checked": report.ok,
        "breaches": report.counts,
        "violations": [
            {k: finite(v) for k, v in dataclasses.asdict(violation).items()}
            for violation in report.violations
        ],
        "jobs": report.n_jobs,
        "group_versions": report.n_groups,
        "peak_nodes": report.peak_nodes,
        **fleet,
        "usd_total": plan.usd_total,
        "usd_total_recomputed": finite(report.usd_total_recomputed),
    }


def profile_document(
    found: Estimate, cluster: Cluster, coefficients: Coefficients
) -> dict[str, Any]:
    """Return the document of ``planner profile --json``; every figure is an estimate."""
    fields = dataclasses.asdict(found)
    given = ("model_b", "max_tokens", "prompts_per_step", "samples_per_prompt")
    inputs = (*given, "rollout_nodes", "train_nodes")
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "profile",
        "inputs": {name: fields.pop(name) for name in inputs}
        | {
            "cluster": cluster_to_dict(cluster),
            "coefficients": dataclasses.asdict(coefficients),
            "package_versions": package_versions(),
        },
        "estimated": fields,
    }
