"""The policies, by name.

A policy is told of arrivals and departures, in order of time, and answers with the groups that
changed. It never sees the future, but that ``repack`` may be told when the jobs present leave.
``weave`` keeps section 3 of the design, and so does ``repack``, which moves running jobs where
that pays (:mod:`planner.policies.repack`), and ``regroup``, which moves them every hour for the
least price (:mod:`planner.policies.regroup`); ``solo`` gives every job nodes of its own;
``colocated`` runs both phases of a job on its train nodes; ``random`` and ``most-idle`` share by
room and not by time (:mod:`planner.policies.sharing_baselines`); ``gavel`` shares by time, one job
after the other (:mod:`planner.policies.gavel`), and so does ``swapping``, on train nodes alone
(:mod:`planner.policies.swapping`). The last five are outside section 3, so their plans are reported
``checked: false``, breaches counted by rule.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final, Self

from instances.errors import InputError, did_you_mean
from instances.jobs import Job
from planner.placement.group_state import GroupState
from planner.placement.placer import AdmissionKind, Placer, require_feasible_alone
from planner.policies.policy import Change, FixedPins, Policy, PolicyOptions, Room, fits
from planner.policies.sharing_baselines import MostIdle, RandomGroup

__all__ = [
    "POLICIES",
    "Change",
    "Colocated",
    "MostIdle",
    "Policy",
    "PolicyOptions",
    "RandomGroup",
    "Solo",
    "Weave",
    "make_policy",
    "require_policy",
]


class Weave(FixedPins):
    """The placer of design section 5; running jobs never move."""

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
    """Dedicated pools: every job alone on nodes of both kinds (design section 5)."""

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


def _repack(options: PolicyOptions) -> Policy:
    """Return the policy that moves running jobs; it needs a solver, which takes long to import."""
    from planner.policies.repack import Repack

    return Repack(options)


def _regroup(options: PolicyOptions) -> Policy:
    """Return the policy of hourly optima; it needs a solver too."""
    from planner.policies.regroup import Regroup

    return Regroup(options)


def _gavel(options: PolicyOptions) -> Policy:
    """Return the policy of shares of time; it needs a solver too."""
    from planner.policies.gavel import Gavel

    return Gavel(options)


def _swapping(options: PolicyOptions) -> Policy:
    """Return the policy of shares of time on train nodes; it needs a solver too."""
    from planner.policies.swapping import Swapping

    return Swapping(options)


POLICIES: Final[dict[str, Callable[[PolicyOptions], Policy]]] = {
    "weave": Weave,
    "repack": _repack,
    "regroup": _regroup,
    "solo": Solo,
    "colocated": Colocated,
    "random": RandomGroup,
    "most-idle": MostIdle,
    "gavel": _gavel,
    "swapping": _swapping,
}


def require_policy(name: str) -> None:
    """Raise InputError for an unknown policy, with the nearest known name."""
    if name not in POLICIES:
        raise InputError(
            f"Unknown policy '{name}'.{did_you_mean(name, POLICIES)} "
            f"Known policies: {', '.join(POLICIES)}."
        )


def make_policy(name: str, options: PolicyOptions) -> Policy:
    """Return a fresh policy by name.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    require_policy(name)
    return POLICIES[name](options)
