"""Placers that have placed jobs, for the tests of the placer."""

from __future__ import annotations

from typing import Any

import pytest

from builders import job_of
from instances.jobs import Job
from instances.plan import Limits
from planner.placement.placer import Decision, Placer, PlacerParams

# Two groups that cannot merge (train states 1200 GB each): "slack" has T = 200, D = 400,
# "long" has T = 280, D = 560. Both take the newcomer (20, 20) for free.
SLACK = job_of("slack", 100, 100, 2, train_state_gb=1200, duration_s=10_000)
LONG = job_of("long", 140, 140, 2, train_state_gb=1200, duration_s=30_000)


def placer_of(*jobs: Job, limits: Limits | None = None, **params: Any) -> Placer:
    """Return a placer that has placed these jobs, in that order."""
    placer = Placer(limits=limits or Limits(), params=PlacerParams(**params))
    for job in jobs:
        placer.place(job)
    return placer


def facts(decision: Decision) -> tuple[str, float, int]:
    return decision.kind, pytest.approx(decision.usd_per_hour, abs=1e-9), decision.group.number
