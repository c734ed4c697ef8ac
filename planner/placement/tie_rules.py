"""Tie rules of the placer: which of equally dear groups comes first.

The default was chosen by measurement (``tests/benchmarks/bench_tie_rules.py``, README).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.jobs import Job
from planner.placement.candidates import Slate
from planner.placement.fleet_state import FleetState

__all__ = ["TIE_RULES", "TieRule"]

FloatArray = npt.NDArray[np.float64]


def _tightest(slate: Slate) -> FloatArray:
    """Return minus the share of the period that the job's nodes are busy, both pools summed.

    With rates, of the longest period that deadlines allow.
    """
    load = slate.shared.train_load_s if slate.kind != 2 else slate.shared.rollout_load_s
    if slate.kind == 0:
        load = load + slate.shared.rollout_load_s
    fill: FloatArray = -(load / slate.shared.limit_s)[slate.at]
    return fill


def _shrink_s(slate: Slate, fleet: FleetState, job: Job) -> FloatArray:
    """Return by how much the job shortens the group's least deadline, seconds."""
    deadline = fleet.deadline_s[slate.slots]
    shrink: FloatArray = deadline - np.minimum(deadline, job.deadline_s)
    return shrink


TieRule = Callable[[Slate, FleetState, Job], tuple[FloatArray, ...]]

#: Name -> keys, most important first, smaller is better. ``age`` (order of creation) is last
#: in all of them.
TIE_RULES: Final[dict[str, TieRule]] = {
    "least-shrink": lambda slate, fleet, job: (_shrink_s(slate, fleet, job), _tightest(slate)),
    "tightest": lambda slate, fleet, job: (_tightest(slate),),
    "most-room": lambda slate, fleet, job: (-_tightest(slate),),
    "nearest-deadline": lambda slate, fleet, job: (
        np.abs(fleet.deadline_s[slate.slots] - job.deadline_s),
    ),
    "nearest-departure": lambda slate, fleet, job: (
        np.abs(fleet.last_end_s[slate.slots] - job.arrival_s - job.duration_s),
    ),
    "oldest": lambda slate, fleet, job: (),
}
