"""What a plan takes from the versions of a job: seconds of its pauses, and iterations undone.

A version of a group says how fast its jobs run. In a pause a job does nothing; a failure undoes
what the job had done since its checkpoint (:class:`instances.plan.Loss`), which is in the versions
up to then and is done again in later ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import fsum

from instances.group_checker import TOLERANCE_S
from instances.plan import Plan

__all__ = ["paused_within", "undone_within"]

#: Of a job from one moment to another, seconds of the trace.
Within = Callable[[str, float, float], float]


def paused_within(plan: Plan) -> Within:
    """Return a function: seconds of a job's pauses within an interval."""
    of: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for pause in plan.pauses:
        of[pause.job_id].append((pause.from_s, pause.to_s))

    def within(job_id: str, from_s: float, to_s: float) -> float:
        spans = of.get(job_id, ())
        return fsum(max(min(b, to_s) - max(a, from_s), 0.0) for a, b in spans)

    return within


def undone_within(plan: Plan) -> Within:
    """Return a function: iterations of a job undone after ``from_s``, and not after ``to_s``."""
    of: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for loss in plan.losses:
        of[loss.job_id].append((loss.at_s, loss.iterations))

    def within(job_id: str, from_s: float, to_s: float) -> float:
        return sum(
            iterations
            for at_s, iterations in of.get(job_id, ())
            if from_s + TOLERANCE_S < at_s <= to_s + TOLERANCE_S
        )

    return within
