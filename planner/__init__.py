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
    from models.result import Conflict, Result, StoppedBy, Termination
    from models.snapshot import FleetCaps
    from planner.api import (
        GapReport,
        PlanReport,
        SnapshotReport,
        optimality_gap,
        plan_trace,
        solve_snapshot,
    )
    from planner.cost_file import read_costs
    from planner.demand import Demand, demand_of
    from planner.fleet_answer import FleetAnswer
    from planner.fleet_search import cheapest_fleet
    from planner.group_state import GroupState
    from planner.interval import Interval
    from planner.moment import Selection
    from planner.placer import Decision, Placer, PlacerParams
    from planner.policy import PolicyOptions
    from planner.pool_costs import CostModel, Period, PoolCosts, default_costs
    from planner.repack_params import RepackParams
    from planner.replay_result import JobRecord, ReplayResult, Timeline
    from planner.size_params import SizeParams
    from planner.size_report import SizeReport
    from planner.sizing import size_trace
    from planner.uncertainty import UncertaintyReport, fleet_uncertainty
    from planner.wait_target import WaitTarget

_HOME = {
    "bootstrap_trace": "instances.bootstrap",
    "Fleet": "instances.plan",
    "Demand": "planner.demand",
    "CostModel": "planner.pool_costs",
    "PoolCosts": "planner.pool_costs",
    "Period": "planner.pool_costs",
    "default_costs": "planner.pool_costs",
    "read_costs": "planner.cost_file",
    "cheapest_fleet": "planner.fleet_search",
    "FleetAnswer": "planner.fleet_answer",
    "PolicyOptions": "planner.policy",
    "SizeParams": "planner.size_params",
    "SizeReport": "planner.size_report",
    "size_trace": "planner.sizing",
    "fleet_uncertainty": "planner.uncertainty",
    "UncertaintyReport": "planner.uncertainty",
    "WaitTarget": "planner.wait_target",
    "demand_of": "planner.demand",
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
    "Conflict": "models.result",
    "Result": "models.result",
    "StoppedBy": "models.result",
    "Termination": "models.result",
    "FleetCaps": "models.snapshot",
    "GapReport": "planner.api",
    "PlanReport": "planner.api",
    "SnapshotReport": "planner.api",
    "optimality_gap": "planner.api",
    "plan_trace": "planner.api",
    "solve_snapshot": "planner.api",
    "GroupState": "planner.group_state",
    "Interval": "planner.interval",
    "Selection": "planner.moment",
    "Decision": "planner.placer",
    "Placer": "planner.placer",
    "PlacerParams": "planner.placer",
    "RepackParams": "planner.repack_params",
    "JobRecord": "planner.replay_result",
    "ReplayResult": "planner.replay_result",
    "Timeline": "planner.replay_result",
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
