"""The document of ``planner report --json``: those of its commands, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.plan.document import SCHEMA_VERSION, plan_document

if TYPE_CHECKING:
    from planner.report.whole import WholeReport

__all__ = ["whole_document"]


def whole_document(found: WholeReport) -> dict[str, Any]:
    """Return one document; a part that was not made is null."""
    from planner.gap.document import gap_document
    from planner.simulate.document import simulation_document
    from planner.size.document import size_document

    return {
        "schema_version": SCHEMA_VERSION,
        "command": "report",
        "plan": plan_document(found.plan),
        "size": None if found.size is None else size_document(found.size),
        "gap": None if found.gap is None else gap_document(found.gap),
        "simulate": None if found.simulation is None else simulation_document(found.simulation),
        "failed": dict(found.failed),
        "interrupted": found.interrupted,
    }
