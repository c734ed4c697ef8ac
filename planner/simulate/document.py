"""The JSON document of ``planner simulate --json``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from instances.cluster_file import cluster_to_dict
from planner.plan.document import SCHEMA_VERSION, bound_options, inputs_document
from planner.simulate.drift import UNKNOWN_INPUTS
from planner.simulate.rows import TABLES
from planner.size.document import without_infinities

if TYPE_CHECKING:
    from planner.simulate.simulating import SimulationReport

__all__ = ["simulation_document"]


def simulation_document(report: SimulationReport) -> dict[str, Any]:
    """Return the whole document; parts not asked for, or not reached, are null."""
    params, options = report.params, report.options
    inputs = inputs_document(report.trace)
    inputs["seed"] = params.seed
    inputs["cluster"] = cluster_to_dict(options.cluster)
    failures = dataclasses.asdict(params.failures)
    failures["events"] = len(params.failures.events)
    inputs["options"] = {
        "policy": report.policy,
        "durations": report.convention,
        **bound_options(options.limits),
        "parts": list(params.parts),
        "levels": list(params.levels),
        "execution": dataclasses.asdict(params.execution),
        "histogram": None if params.histogram is None else params.histogram.name,
        "failures": failures,
        "checkpoints": list(params.checkpoints),
        "drift_settings": list(params.drift_settings),
        "drift_policies": list(params.drift_policies),
        "seeds": list(params.all_seeds),
    }
    out: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "simulate",
        "inputs": inputs,
    }
    for part, rows in TABLES.items():
        out[part] = None if getattr(report, part) is None else list(rows(report))
    out["not_published"] = list(UNKNOWN_INPUTS) if report.drift is not None else []
    out["failed"], out["left_out"] = dict(report.failed), dict(report.left_out)
    out["interrupted"] = report.interrupted
    return without_infinities(out)  # type: ignore[no-any-return]
