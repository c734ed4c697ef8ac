"""What every plan of one moment has in common: the nodes of async jobs, and the last check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from instances.checker import CheckReport, check_plan
from instances.errors import CheckError
from instances.jobs import Job
from instances.plan import SNAPSHOT_HOURS, DedicatedNodes, Plan

__all__ = ["dedicated_of", "require_rules"]

_SECONDS: Final = 3600.0 * SNAPSHOT_HOURS


def dedicated_of(held: Iterable[Job | DedicatedNodes]) -> tuple[DedicatedNodes, ...]:
    """Return the nodes of async jobs over the interval of a snapshot plan."""
    return tuple(
        DedicatedNodes(
            job_id=each.job_id,
            from_s=0.0,
            to_s=_SECONDS,
            rollout_nodes=each.rollout_nodes,
            train_nodes=each.train_nodes,
        )
        for each in held
    )


def require_rules(plan: Plan, what: str) -> CheckReport:
    """Return the checker's report of a plan that keeps all rules; ``what`` names it.

    Raises
    ------
    CheckError
        When it breaks one: a fault of the program.
    """
    report = check_plan(plan)
    if not report.ok:
        first = report.violations[0]
        raise CheckError(
            f"{what} broke {len(report.violations)} rules; the first: "
            f"[{first.rule}] {first.message} This is a fault of the program, not of the input."
        )
    return report
