"""Policies in which jobs do not meet: ``solo`` and ``colocated``."""

from __future__ import annotations

import copy
from typing import Self

from instances.jobs import Job
from planner.placement.group_state import GroupState
from planner.placement.placer import AdmissionKind, require_feasible_alone
from planner.policies.policy import Change, FixedPins, PolicyOptions, Room, fits

__all__ = ["Colocated", "Solo"]


class _OneGroupEach(FixedPins):
    """Common part of the policies in which jobs do not meet."""

    name = ""
    promises_valid = True
    admission_kinds: tuple[AdmissionKind, ...] = ()
    uses_seed = False

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self._created = 0
        self._number: dict[str, int] = {}

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Open a group for the job."""
        group = self._group(job, self._created + 1)
        if not fits(self.nodes_alone(job), room):
            return None
        self._created += 1
        self._number[job.job_id] = self._created
        return Change((group,))

    def depart(self, job: Job, now_s: float) -> Change:
        """Close the job's group."""
        return Change((), (self._number.pop(job.job_id),))

    def fork(self) -> Self:
        """Return an independent copy."""
        other = copy.copy(self)
        other._number = dict(self._number)
        return other

    def _group(self, job: Job, number: int) -> GroupState:
        raise NotImplementedError


class Solo(_OneGroupEach):
    """Dedicated pools: every job alone on nodes of both kinds."""

    name = "solo"

    def _group(self, job: Job, number: int) -> GroupState:
        require_feasible_alone(job, self.options.cluster, self.options.limits)
        return GroupState.alone(job, number)


class Colocated(_OneGroupEach):
    """Every job alone on its train nodes for both phases, iteration time x factor."""

    name = "colocated"
    promises_valid = False

    def nodes_alone(self, job: Job) -> Room:
        """Return train nodes only: both phases run there."""
        return 0, job.train_nodes

    def _group(self, job: Job, number: int) -> GroupState:
        factor = self.options.colocated_factor
        train = tuple(range(job.train_nodes))
        start = (0.0, factor * job.rollout_s)
        # on the same nodes nothing runs side by side, one-step or not
        period_s = factor * (job.rollout_s + job.train_s + job.sync_s)
        return GroupState(number, (job,), ((),), (train,), (1,), period_s, ((start,),))
