"""Plan RL post-training on two GPU pools: what to share, what to own, how far from least.

The public API; ``models`` and ``instances`` are this project's own inner packages.

Names are loaded when first used, so that ``plan --help`` starts fast.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

_HERE = Path(__file__).resolve().parent.parent


def _require_own(package: str) -> None:
    """Refuse to run on a foreign package that happens to have the name of one of ours."""
    loaded = sys.modules.get(package)
    origin = getattr(loaded, "__file__", None) if loaded else None
    if loaded is None:
        spec = find_spec(package)
        origin = spec.origin if spec else None
    if origin is None or Path(origin).resolve().parent != _HERE / package:
        raise ImportError(
            f"rl-fleet-planner needs its own package '{package}' from {_HERE / package}, but "
            f"'{package}' is {origin or 'missing'}. Run from another folder, or rename that file."
        )


for _package in ("instances", "models"):
    _require_own(_package)

if TYPE_CHECKING:
    from instances.bootstrap import bootstrap_trace
    from instances.catalog import catalog_path
    from instances.checker import CheckReport, Violation, check_plan
    from instances.cluster_file import read_cluster
    from instances.coefficients import Coefficients, read_coefficients
    from instances.errors import (
        CheckError,
        FleetPlannerError,
        InfeasibleError,
        InputError,
        UnsupportedError,
    )
    from instances.estimate import Estimate, estimate
    from instances.generate import production, profiles
    from instances.hardware import DEFAULT_CLUSTER, Cluster, GpuType, Links, ModelDefaults, NodeType
    from instances.importers import import_generic, import_philly
    from instances.jobs import Job, JobTable
    from instances.plan import Fleet, GroupVersion, Limits, Plan
    from instances.plan_file import read_plan, write_plan_json
    from instances.trace import Trace, TraceError, jobs_from_frame, read_trace, write_trace
    from models.problem.result import Conflict, Result, StoppedBy, Termination
    from models.problem.snapshot import FleetCaps
    from planner.api import (
        GapReport,
        PlanReport,
        SnapshotReport,
        optimality_gap,
        plan_trace,
        solve_snapshot,
    )
    from planner.placement.group_state import GroupState
    from planner.placement.placer import Decision, Placer, PlacerParams
    from planner.policies.policy import PolicyOptions
    from planner.policies.repack_params import RepackParams
    from planner.policies.replay_result import JobRecord, ReplayResult, Timeline
    from planner.policies.wait_target import WaitTarget
    from planner.replay.demand import Demand, demand_of
    from planner.replay.interval import Interval
    from planner.replay.moment import Selection
    from planner.size.cost_file import read_costs
    from planner.size.fleet_answer import FleetAnswer
    from planner.size.fleet_search import cheapest_fleet
    from planner.size.params import SizeParams
    from planner.size.pool_costs import CostModel, Period, PoolCosts, default_costs
    from planner.size.report import SizeReport
    from planner.size.sizing import size_trace
    from planner.size.uncertainty import UncertaintyReport, fleet_uncertainty

_HOME = {
    "bootstrap_trace": "instances.bootstrap",
    "Fleet": "instances.plan",
    "Demand": "planner.replay.demand",
    "CostModel": "planner.size.pool_costs",
    "PoolCosts": "planner.size.pool_costs",
    "Period": "planner.size.pool_costs",
    "default_costs": "planner.size.pool_costs",
    "read_costs": "planner.size.cost_file",
    "cheapest_fleet": "planner.size.fleet_search",
    "FleetAnswer": "planner.size.fleet_answer",
    "PolicyOptions": "planner.policies.policy",
    "SizeParams": "planner.size.params",
    "SizeReport": "planner.size.report",
    "size_trace": "planner.size.sizing",
    "fleet_uncertainty": "planner.size.uncertainty",
    "UncertaintyReport": "planner.size.uncertainty",
    "WaitTarget": "planner.policies.wait_target",
    "demand_of": "planner.replay.demand",
    "catalog_path": "instances.catalog",
    "CheckReport": "instances.checker",
    "Violation": "instances.checker",
    "check_plan": "instances.checker",
    "read_cluster": "instances.cluster_file",
    "Coefficients": "instances.coefficients",
    "read_coefficients": "instances.coefficients",
    "CheckError": "instances.errors",
    "FleetPlannerError": "instances.errors",
    "InfeasibleError": "instances.errors",
    "InputError": "instances.errors",
    "UnsupportedError": "instances.errors",
    "Estimate": "instances.estimate",
    "estimate": "instances.estimate",
    "production": "instances.generate",
    "profiles": "instances.generate",
    "Cluster": "instances.hardware",
    "DEFAULT_CLUSTER": "instances.hardware",
    "GpuType": "instances.hardware",
    "Links": "instances.hardware",
    "ModelDefaults": "instances.hardware",
    "NodeType": "instances.hardware",
    "import_generic": "instances.importers",
    "import_philly": "instances.importers",
    "Job": "instances.jobs",
    "JobTable": "instances.jobs",
    "GroupVersion": "instances.plan",
    "Limits": "instances.plan",
    "Plan": "instances.plan",
    "read_plan": "instances.plan_file",
    "write_plan_json": "instances.plan_file",
    "Trace": "instances.trace",
    "TraceError": "instances.trace",
    "jobs_from_frame": "instances.trace",
    "read_trace": "instances.trace",
    "write_trace": "instances.trace",
    "Conflict": "models.problem.result",
    "Result": "models.problem.result",
    "StoppedBy": "models.problem.result",
    "Termination": "models.problem.result",
    "FleetCaps": "models.problem.snapshot",
    "GapReport": "planner.api",
    "PlanReport": "planner.api",
    "SnapshotReport": "planner.api",
    "optimality_gap": "planner.api",
    "plan_trace": "planner.api",
    "solve_snapshot": "planner.api",
    "GroupState": "planner.placement.group_state",
    "Interval": "planner.replay.interval",
    "Selection": "planner.replay.moment",
    "Decision": "planner.placement.placer",
    "Placer": "planner.placement.placer",
    "PlacerParams": "planner.placement.placer",
    "RepackParams": "planner.policies.repack_params",
    "JobRecord": "planner.policies.replay_result",
    "ReplayResult": "planner.policies.replay_result",
    "Timeline": "planner.policies.replay_result",
}

__all__ = [
    "DEFAULT_CLUSTER",
    "CheckError",
    "CheckReport",
    "Cluster",
    "Coefficients",
    "Conflict",
    "CostModel",
    "Decision",
    "Demand",
    "Estimate",
    "Fleet",
    "FleetAnswer",
    "FleetCaps",
    "FleetPlannerError",
    "GapReport",
    "GpuType",
    "GroupState",
    "GroupVersion",
    "InfeasibleError",
    "InputError",
    "Interval",
    "Job",
    "JobRecord",
    "JobTable",
    "Limits",
    "Links",
    "ModelDefaults",
    "NodeType",
    "Period",
    "Placer",
    "PlacerParams",
    "Plan",
    "PlanReport",
    "PolicyOptions",
    "PoolCosts",
    "RepackParams",
    "ReplayResult",
    "Result",
    "Selection",
    "SizeParams",
    "SizeReport",
    "SnapshotReport",
    "StoppedBy",
    "Termination",
    "Timeline",
    "Trace",
    "TraceError",
    "UncertaintyReport",
    "UnsupportedError",
    "Violation",
    "WaitTarget",
    "bootstrap_trace",
    "catalog_path",
    "cheapest_fleet",
    "check_plan",
    "default_costs",
    "demand_of",
    "estimate",
    "fleet_uncertainty",
    "import_generic",
    "import_philly",
    "jobs_from_frame",
    "optimality_gap",
    "plan_trace",
    "production",
    "profiles",
    "read_cluster",
    "read_coefficients",
    "read_costs",
    "read_plan",
    "read_trace",
    "size_trace",
    "solve_snapshot",
    "write_plan_json",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'planner' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
