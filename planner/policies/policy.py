"""What a policy is: told of arrivals and departures, it answers with the groups that changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from instances.errors import InputError, UnsupportedError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job
from instances.plan import Fleet, Limits
from planner.placement.group_state import GroupState
from planner.placement.placer import AdmissionKind, PlacerParams, Room
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention, QueueRule

__all__ = [
    "QUEUES",
    "Change",
    "FixedPins",
    "NoFleet",
    "NodesToHold",
    "Policy",
    "PolicyOptions",
    "QueueRule",
    "Room",
    "fits",
]

QUEUES: Final[tuple[QueueRule, ...]] = ("fifo", "backfill")

_MAX_FACTOR: Final = 1e6


@dataclass(frozen=True, slots=True)
class NodesToHold:
    """Nodes of a group that jobs have moved off, to be paid for some seconds more."""

    group_id: str
    seconds: float
    rollout_nodes: int
    train_nodes: int


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
    moved : tuple of str
        Running jobs whose group or pins changed: each restarts.
    held : tuple of NodesToHold
        Nodes that go on being paid for although nobody is pinned to them any more.
    """

    groups: tuple[GroupState, ...] = ()
    ended: tuple[int, ...] = ()
    admission: AdmissionKind | None = None
    moved: tuple[str, ...] = ()
    held: tuple[NodesToHold, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Everything a policy may need; each takes what concerns it.

    Attributes
    ----------
    cluster : Cluster
        Nodes, prices and links.
    limits : Limits
        What a group may hold, and the highest rate.
    placer : PlacerParams
        How arriving jobs are placed.
    colocated_factor : float
        Iteration time of a co-located job over its solo time.
    seed : int
        Seed of policies that draw.
    repack : RepackParams
        When ``repack`` moves running jobs.
    convention : {"work", "wallclock"}
        What ends a stay: what is left of a job is told by it.
    fleet : Fleet or None
        Nodes there are, with nothing to rent: jobs that do not fit wait. ``None``: no limit.
    queue : {"fifo", "backfill"}
        Who may start while the first in the queue waits (:mod:`planner.replay.admission_queue`).
    clock : callable, optional
        Seconds from an arbitrary origin; given, decisions are timed.

    Raises
    ------
    InputError
        When ``colocated_factor`` is not a positive number, or for an unknown ``queue``.
    """

    cluster: Cluster = DEFAULT_CLUSTER
    limits: Limits = field(default_factory=Limits)
    placer: PlacerParams = field(default_factory=PlacerParams)
    colocated_factor: float = 1.0
    seed: int = 0
    clock: Callable[[], float] | None = None
    repack: RepackParams = field(default_factory=RepackParams)
    convention: Convention = "work"
    fleet: Fleet | None = None
    queue: QueueRule = "fifo"

    def __post_init__(self) -> None:
        if not 0 < self.colocated_factor <= _MAX_FACTOR:
            raise InputError(
                f"Expected colocated_factor > 0 and <= {_MAX_FACTOR:g}, got "
                f"{self.colocated_factor:g}."
            )
        if self.queue not in QUEUES:
            raise InputError(
                f"Expected queue in {', '.join(QUEUES)}, got '{self.queue}'."
                f"{did_you_mean(self.queue, QUEUES)}"
            )


class Policy(Protocol):
    """One policy in the middle of a replay.

    Attributes
    ----------
    promises_valid : bool
        Whether every plan it makes keeps every rule; if so each is checked as it happens.
    admission_kinds : tuple of str
        Kinds of admission it may report; empty where the mix means nothing.
    uses_seed : bool
        Whether it draws from ``PolicyOptions.seed``.
    pins_fixed : bool
        Whether it never moves a running job.
    review_s : float or None
        Seconds between two calls of :meth:`review`; ``None``: it is never called.
    """

    name: str
    promises_valid: bool
    pins_fixed: bool
    review_s: float | None
    admission_kinds: tuple[AdmissionKind, ...]
    uses_seed: bool

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Take an arriving job at ``now_s`` seconds.

        ``room`` is how many more nodes of each pool may be bought, ``None``: any number. ``None``
        is returned, and nothing has changed, when the job does not fit.
        """
        ...

    def depart(self, job: Job, now_s: float) -> Change:
        """Let a finished job go at ``now_s`` seconds."""
        ...

    def review(self, now_s: float) -> Change:
        """Think again at ``now_s`` seconds, though nobody comes or goes."""
        ...

    def nodes_alone(self, job: Job) -> Room:
        """Return the nodes of each pool that a job takes where it shares nothing."""
        ...

    def reserve(self, nodes: Room) -> None:
        """Take note of how many nodes of each pool jobs have that it does not place."""
        ...

    def fork(self) -> Self:
        """Return an independent copy in the same state: what it does leaves this one alone."""
        ...


class FixedPins:
    """Part of every policy that never moves a running job, and so never thinks again."""

    pins_fixed = True
    review_s: float | None = None

    def review(self, now_s: float) -> Change:
        """Change nothing."""
        return Change()

    def reserve(self, nodes: Room) -> None:
        """Do nothing: it is told of the room when it needs it."""

    def nodes_alone(self, job: Job) -> Room:
        """Return the job's own node counts."""
        return job.rollout_nodes, job.train_nodes


class NoFleet:
    """Part of a policy that cannot keep to a fixed fleet."""

    def reserve(self, nodes: Room) -> None:
        """Do nothing."""

    def nodes_alone(self, job: Job) -> Room:
        """Return the job's own node counts."""
        return job.rollout_nodes, job.train_nodes

    def fork(self) -> Self:
        """Refuse: only the queue for a fixed fleet asks for copies."""
        raise UnsupportedError("This policy keeps to no fixed fleet, and makes no copies.")


def fits(nodes: Room, room: Room | None) -> bool:
    """Return whether so many nodes of each pool may be bought."""
    return room is None or (nodes[0] <= room[0] and nodes[1] <= room[1])
