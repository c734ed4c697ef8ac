"""Policies: what decides where jobs run, behind one protocol.

A policy is told of arrivals and departures, in order of time, and answers with the groups that
changed. It never sees the future. ``weave`` keeps section 3 of the design; ``solo`` gives every
job nodes of its own; ``colocated`` runs both phases of a job on its train nodes, outside
section 3, so its plans are reported ``checked: false`` with the breaches counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from instances.errors import InputError, did_you_mean
from instances.hardware import Cluster
from instances.jobs import Job
from instances.plan import Limits
from planner.group_state import GroupState
from planner.placer import AdmissionKind, Placer, PlacerParams

__all__ = [
    "POLICIES",
    "Change",
    "Colocated",
    "Policy",
    "PolicyOptions",
    "Solo",
    "Weave",
    "make_policy",
    "require_policy",
]


@dataclass(frozen=True, slots=True)
class Change:
    """What one event did.

    Attributes
    ----------
    groups : tuple of GroupState
        New states of the groups that changed, the arrived job's among them.
    ended : tuple of int
        Numbers of the groups that are gone.
    admission : str or None
        How the arrived job was admitted; ``None`` on departures and where meaningless.
    """

    groups: tuple[GroupState, ...] = ()
    ended: tuple[int, ...] = ()
    admission: AdmissionKind | None = None


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Everything a policy may need; each takes what concerns it.

    Attributes
    ----------
    colocated_factor : float
        Iteration time of a co-located job over its solo time.
    clock : callable, optional
        Seconds from an arbitrary origin; given, decisions are timed.

    Raises
    ------
    InputError
        When ``colocated_factor`` is not a positive number.
    """

    cluster: Cluster
    limits: Limits = field(default_factory=Limits)
    placer: PlacerParams = field(default_factory=PlacerParams)
    colocated_factor: float = 1.0
    clock: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.colocated_factor) and self.colocated_factor > 0):
            raise InputError(f"Expected colocated_factor > 0, got {self.colocated_factor:g}.")


class Policy(Protocol):
    """One policy in the middle of a replay.

    Attributes
    ----------
    promises_valid : bool
        Whether every plan it makes satisfies section 3; if so each is checked as it happens.
    admits : bool
        Whether the admission mix means anything.
    """

    name: str
    promises_valid: bool
    admits: bool

    def arrive(self, job: Job, now_s: float) -> Change:
        """Take an arriving job at ``now_s`` seconds."""
        ...

    def depart(self, job: Job, now_s: float) -> Change:
        """Let a finished job go at ``now_s`` seconds."""
        ...


class Weave:
    """The placer of design section 5; running jobs never move."""

    name = "weave"
    promises_valid = True
    admits = True

    def __init__(self, options: PolicyOptions) -> None:
        self.placer = Placer(options.cluster, options.limits, options.placer)
        self.decision_s: list[float] = []
        self._clock = options.clock

    def arrive(self, job: Job, now_s: float) -> Change:
        """Place the job."""
        began = self._clock() if self._clock else 0.0
        decision = self.placer.place(job)
        if self._clock:
            self.decision_s.append(self._clock() - began)
        return Change((decision.group,), (), decision.kind)

    def depart(self, job: Job, now_s: float) -> Change:
        """Remove the job and re-optimise the offsets of those left."""
        number = self.placer.group_of(job.job_id).number
        left = self.placer.remove(job.job_id)
        return Change((), (number,)) if left is None else Change((left,))


class _OneGroupEach:
    """Common part of the policies in which jobs do not meet."""

    name = ""
    promises_valid = True
    admits = False

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self._created = 0
        self._number: dict[str, int] = {}

    def arrive(self, job: Job, now_s: float) -> Change:
        """Open a group for the job."""
        self._created += 1
        self._number[job.job_id] = self._created
        return Change((self._group(job, self._created),))

    def depart(self, job: Job, now_s: float) -> Change:
        """Close the job's group."""
        return Change((), (self._number.pop(job.job_id),))

    def _group(self, job: Job, number: int) -> GroupState:
        raise NotImplementedError


class Solo(_OneGroupEach):
    """Dedicated pools: every job alone on nodes of both kinds (design section 5)."""

    name = "solo"

    def _group(self, job: Job, number: int) -> GroupState:
        return GroupState.alone(job, number)


class Colocated(_OneGroupEach):
    """Every job alone on its train nodes for both phases, iteration time x factor."""

    name = "colocated"
    promises_valid = False

    def _group(self, job: Job, number: int) -> GroupState:
        factor = self.options.colocated_factor
        train = tuple(range(job.train_nodes))
        start = (0.0, factor * job.rollout_s)
        return GroupState(number, (job,), ((),), (train,), (1,), factor * job.solo_s, ((start,),))


POLICIES: Final[dict[str, Callable[[PolicyOptions], Policy]]] = {
    "weave": Weave,
    "solo": Solo,
    "colocated": Colocated,
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
