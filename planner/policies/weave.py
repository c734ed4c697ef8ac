"""Policy ``weave``: the placer of this project, and running jobs never move."""

from __future__ import annotations

import copy
from typing import Self

from instances.jobs import Job
from planner.placement.placer import AdmissionKind, Placer
from planner.policies.policy import Change, FixedPins, PolicyOptions, Room

__all__ = ["Weave"]


class Weave(FixedPins):
    """The placer (FORMULATION section 14); running jobs never move."""

    name = "weave"
    promises_valid = True
    uses_seed = False

    def __init__(self, options: PolicyOptions) -> None:
        scaled: tuple[AdmissionKind, ...] = ("rollout_scaled",)
        if options.placer.train_scaling:
            scaled += ("train_scaled",)
        self.admission_kinds: tuple[AdmissionKind, ...] = ("direct", *scaled, "isolated")
        self.placer = Placer(options.cluster, options.limits, options.placer)
        self.decision_s: list[float] = []
        self._clock = options.clock

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Place the job."""
        began = self._clock() if self._clock else 0.0
        decision = self.placer.try_place(job, room)
        if self._clock:
            self.decision_s.append(self._clock() - began)
        return None if decision is None else Change((decision.group,), (), decision.kind)

    def depart(self, job: Job, now_s: float) -> Change:
        """Remove the job and re-optimise the offsets of those left."""
        number = self.placer.group_of(job.job_id).number
        left = self.placer.remove(job.job_id)
        return Change((), (number,)) if left is None else Change((left,))

    def fork(self) -> Self:
        """Return an independent copy; its decisions are not timed."""
        other = copy.copy(self)
        other.placer = self.placer.fork()
        other.decision_s = []
        other._clock = None
        return other
