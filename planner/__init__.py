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
    from instances.verl_import import import_verl
    from models.problem.group_shape import LowerBound
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
    from planner.policies.registry import POLICIES
    from planner.policies.repack_params import RepackParams
    from planner.policies.replay_result import JobRecord, ReplayResult, Timeline
    from planner.policies.wait_target import WaitTarget
    from planner.replay.demand import Demand, demand_of
    from planner.replay.interval import Interval
    from planner.replay.moment import Selection
    from planner.report.files import report_figures, write_report
    from planner.simulate.simulating import SimulationParams, SimulationReport, simulate_trace
    from planner.size.cost_file import read_costs
    from planner.size.economics import Newsvendor, OwnRent, newsvendor, owned_and_rented
    from planner.size.fleet_answer import FleetAnswer
    from planner.size.fleet_search import cheapest_fleet, cheapest_fleets
    from planner.size.params import SizeParams
    from planner.size.pool_costs import CostModel, Period, PoolCosts, default_costs
    from planner.size.price_crossover import PriceCrossover, price_crossover
    from planner.size.report import SizeReport
    from planner.size.sizing import size_trace
    from planner.size.uncertainty import UncertaintyReport, fleet_uncertainty
    from planner.snapshot.bounds import SnapshotBound, snapshot_bounds
    from planner.snapshot.gantt import gantt_figure
    from planner.snapshot.one_group import GroupSchedule, schedule_group, why_no_group
    from planner.snapshot.solving import SNAPSHOT_METHODS

_HOME = {
    "DEFAULT_CLUSTER": "instances.hardware",
    "POLICIES": "planner.policies.registry",
    "SNAPSHOT_METHODS": "planner.snapshot.solving",
    "CheckError": "instances.errors",
    "CheckReport": "instances.checker",
    "Cluster": "instances.hardware",
    "Coefficients": "instances.coefficients",
    "Conflict": "models.problem.result",
    "CostModel": "planner.size.pool_costs",
    "Decision": "planner.placement.placer",
    "Demand": "planner.replay.demand",
    "Estimate": "instances.estimate",
    "Fleet": "instances.plan",
    "FleetAnswer": "planner.size.fleet_answer",
    "FleetCaps": "models.problem.snapshot",
    "FleetPlannerError": "instances.errors",
    "GapReport": "planner.api",
    "GpuType": "instances.hardware",
    "GroupSchedule": "planner.snapshot.one_group",
    "GroupState": "planner.placement.group_state",
    "GroupVersion": "instances.plan",
    "InfeasibleError": "instances.errors",
    "InputError": "instances.errors",
    "Interval": "planner.replay.interval",
    "Job": "instances.jobs",
    "JobRecord": "planner.policies.replay_result",
    "JobTable": "instances.jobs",
    "Limits": "instances.plan",
    "Links": "instances.hardware",
    "LowerBound": "models.problem.group_shape",
    "ModelDefaults": "instances.hardware",
    "Newsvendor": "planner.size.economics",
    "NodeType": "instances.hardware",
    "OwnRent": "planner.size.economics",
    "Period": "planner.size.pool_costs",
    "Placer": "planner.placement.placer",
    "PlacerParams": "planner.placement.placer",
    "Plan": "instances.plan",
    "PlanReport": "planner.api",
    "PolicyOptions": "planner.policies.policy",
    "PoolCosts": "planner.size.pool_costs",
    "PriceCrossover": "planner.size.price_crossover",
    "RepackParams": "planner.policies.repack_params",
    "ReplayResult": "planner.policies.replay_result",
    "Result": "models.problem.result",
    "Selection": "planner.replay.moment",
    "SimulationParams": "planner.simulate.simulating",
    "SimulationReport": "planner.simulate.simulating",
    "SizeParams": "planner.size.params",
    "SizeReport": "planner.size.report",
    "SnapshotBound": "planner.snapshot.bounds",
    "SnapshotReport": "planner.api",
    "StoppedBy": "models.problem.result",
    "Termination": "models.problem.result",
    "Timeline": "planner.policies.replay_result",
    "Trace": "instances.trace",
    "TraceError": "instances.trace",
    "UncertaintyReport": "planner.size.uncertainty",
    "UnsupportedError": "instances.errors",
    "Violation": "instances.checker",
    "WaitTarget": "planner.policies.wait_target",
    "bootstrap_trace": "instances.bootstrap",
    "catalog_path": "instances.catalog",
    "cheapest_fleet": "planner.size.fleet_search",
    "cheapest_fleets": "planner.size.fleet_search",
    "check_plan": "instances.checker",
    "default_costs": "planner.size.pool_costs",
    "demand_of": "planner.replay.demand",
    "estimate": "instances.estimate",
    "fleet_uncertainty": "planner.size.uncertainty",
    "gantt_figure": "planner.snapshot.gantt",
    "import_generic": "instances.importers",
    "import_philly": "instances.importers",
    "import_verl": "instances.verl_import",
    "jobs_from_frame": "instances.trace",
    "newsvendor": "planner.size.economics",
    "optimality_gap": "planner.api",
    "owned_and_rented": "planner.size.economics",
    "plan_trace": "planner.api",
    "price_crossover": "planner.size.price_crossover",
    "production": "instances.generate",
    "profiles": "instances.generate",
    "read_cluster": "instances.cluster_file",
    "read_coefficients": "instances.coefficients",
    "read_costs": "planner.size.cost_file",
    "read_plan": "instances.plan_file",
    "read_trace": "instances.trace",
    "report_figures": "planner.report.files",
    "schedule_group": "planner.snapshot.one_group",
    "simulate_trace": "planner.simulate.simulating",
    "size_trace": "planner.size.sizing",
    "snapshot_bounds": "planner.snapshot.bounds",
    "solve_snapshot": "planner.api",
    "why_no_group": "planner.snapshot.one_group",
    "write_plan_json": "instances.plan_file",
    "write_report": "planner.report.files",
    "write_trace": "instances.trace",
}

__all__ = [
    "DEFAULT_CLUSTER",
    "POLICIES",
    "SNAPSHOT_METHODS",
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
    "GroupSchedule",
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
    "LowerBound",
    "ModelDefaults",
    "Newsvendor",
    "NodeType",
    "OwnRent",
    "Period",
    "Placer",
    "PlacerParams",
    "Plan",
    "PlanReport",
    "PolicyOptions",
    "PoolCosts",
    "PriceCrossover",
    "RepackParams",
    "ReplayResult",
    "Result",
    "Selection",
    "SimulationParams",
    "SimulationReport",
    "SizeParams",
    "SizeReport",
    "SnapshotBound",
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
    "cheapest_fleets",
    "check_plan",
    "default_costs",
    "demand_of",
    "estimate",
    "fleet_uncertainty",
    "gantt_figure",
    "import_generic",
    "import_philly",
    "import_verl",
    "jobs_from_frame",
    "newsvendor",
    "optimality_gap",
    "owned_and_rented",
    "plan_trace",
    "price_crossover",
    "production",
    "profiles",
    "read_cluster",
    "read_coefficients",
    "read_costs",
    "read_plan",
    "read_trace",
    "report_figures",
    "schedule_group",
    "simulate_trace",
    "size_trace",
    "snapshot_bounds",
    "solve_snapshot",
    "why_no_group",
    "write_plan_json",
    "write_report",
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
