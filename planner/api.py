"""The public API of three commands: plan a trace, solve a snapshot, state the gap."""

from __future__ import annotations

from planner.gap.proving import GapReport, optimality_gap
from planner.plan.planning import PlanReport, plan_trace
from planner.snapshot.solving import SnapshotReport, solve_snapshot

__all__ = [
    "GapReport",
    "PlanReport",
    "SnapshotReport",
    "optimality_gap",
    "plan_trace",
    "solve_snapshot",
]
