"""What a plan is: groups with pins, period, rates and starts, over intervals of time.

A plan carries everything needed to check it without solving anything.
Nodes are whole numbers that are unique within one group for the group's whole life;
``rollout`` and ``train`` nodes are two name spaces. Nodes of different groups are different
nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from instances.errors import InputError
from instances.hardware import Cluster
from instances.jobs import JobTable

__all__ = [
    "DURATION_CONVENTIONS",
    "SNAPSHOT_HOURS",
    "DedicatedNodes",
    "Durations",
    "Fleet",
    "GroupVersion",
    "HeldNodes",
    "JobPlacement",
    "Limits",
    "Loss",
    "Outage",
    "Pause",
    "Plan",
    "Pool",
    "Start",
]

Durations = Literal["work", "wallclock", "snapshot"]
Pool = Literal["rollout", "train"]
DURATION_CONVENTIONS: Final = ("work", "wallclock")
#: A snapshot plan is one interval of this length, so ``usd_total`` equals its $/h.
SNAPSHOT_HOURS: Final = 1.0

NodeId = int
StartPair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a plan or a bound holds for.

    Attributes
    ----------
    max_group_size : int
        Most jobs in a group; 0 means no limit.
    max_rollout_nodes, max_train_nodes : int or None
        Most nodes of a pool in one group; ``None`` means no limit.
    max_rate : int
        Most iterations of one job per period (1 = strict meta-iterations).

    Raises
    ------
    InputError
        When a limit is not a whole number, or below 0 (group size) or 1 (the others).
    """

    max_group_size: int = 5
    max_rollout_nodes: int | None = None
    max_train_nodes: int | None = None
    max_rate: int = 1

    def __post_init__(self) -> None:
        for name, least in (
            ("max_group_size", 0),
            ("max_rollout_nodes", 1),
            ("max_train_nodes", 1),
            ("max_rate", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("max_rollout_nodes", "max_train_nodes"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes that are owned, with nothing to rent: no more of a pool exist at once.

    Attributes
    ----------
    rollout_nodes : int
        Rollout nodes there are.
    train_nodes : int
        Train nodes there are.

    Raises
    ------
    InputError
        When a count is not a whole number, or below 0.
    """

    rollout_nodes: int
    train_nodes: int

    def __post_init__(self) -> None:
        for pool in ("rollout", "train"):
            value = getattr(self, f"{pool}_nodes")
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(
                    f"Expected {pool}_nodes of a fleet a whole number >= 0, got {value!r}."
                )

    def __str__(self) -> str:
        return f"{self.rollout_nodes} rollout + {self.train_nodes} train nodes"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlacement:
    """One job in a group: its pins, its rate and one (rollout, train) start per iteration.

    Starts are seconds on the unrolled circle: the first rollout starts in ``[0, period_s)``,
    and each later start is not before the end of what precedes it, so a train may start
    after ``period_s``. A start is the start of the switch where one is paid.
    """

    job_id: str
    rollout_pins: tuple[NodeId, ...]
    train_pins: tuple[NodeId, ...]
    starts_s: tuple[StartPair, ...]
    rate: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupVersion:
    """One group between two membership changes, ``[from_s, to_s)`` seconds of the trace.

    Attributes
    ----------
    group_id : str
        The same in all versions of a group.
    from_s : float
        When the version begins, seconds of the trace.
    to_s : float
        When it ends.
    period_s : float
        C_g: seconds after which its schedule repeats.
    rollout_nodes : tuple of NodeId
        Rollout nodes of the group, each with a pin.
    train_nodes : tuple of NodeId
        Train nodes of the group.
    placements : tuple of JobPlacement
        Pins, rate and starts of each job.
    """

    group_id: str
    from_s: float
    to_s: float
    period_s: float
    rollout_nodes: tuple[NodeId, ...]
    train_nodes: tuple[NodeId, ...]
    placements: tuple[JobPlacement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DedicatedNodes:
    """Nodes held by one fully asynchronous job, which has no bubble to share."""

    job_id: str
    from_s: float
    to_s: float
    rollout_nodes: int
    train_nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """A job that makes no progress in ``[from_s, to_s)``: its restart after a move.

    It keeps its place in its group and its nodes, whose phases of it stand empty.
    """

    job_id: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """A job that waited: its stay begins at ``at_s``, seconds of the trace, not on arrival."""

    job_id: str
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A failure of a job, or of a node it is on: what it had done since its checkpoint is undone.

    Attributes
    ----------
    at_s : float
        When it fails, seconds of the trace: it leaves its nodes.
    iterations : float
        Iterations undone: they are in the versions up to ``at_s``, and are done again.
    back_s : float
        When it has nodes again and starts its restart: ``at_s``, unless it waits for a fleet.
    """

    job_id: str
    at_s: float
    iterations: float
    back_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outage:
    """One node of a fixed fleet that has failed: nobody has it in ``[from_s, to_s)``."""

    pool: Pool
    from_s: float
    to_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldNodes:
    """Nodes paid for after the last job has moved off them, ``[from_s, to_s)``.

    ``group_id`` is the group they belonged to.
    """

    group_id: str
    from_s: float
    to_s: float
    rollout_nodes: int
    train_nodes: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole plan: cluster, jobs, every version of every group, and the price claimed.

    Attributes
    ----------
    policy : str
        Who made it.
    cluster : Cluster
        Nodes, their host DRAM and prices, links.
    jobs : JobTable
        Every job of the trace.
    limits : Limits
        What a group may hold, and the highest rate.
    groups : tuple of GroupVersion
        Every version of every group.
    dedicated : tuple of DedicatedNodes
        Nodes of async jobs.
    durations : {"work", "wallclock", "snapshot"}
        The convention by which stays were computed; ``snapshot`` is one
        interval of ``SNAPSHOT_HOURS``.
    pins_fixed : bool
        Whether the policy promises that a running job never changes group or nodes. A plan with
        ``losses`` moves jobs, but each of them only where it, or a node it is on, has failed.
    usd_total : float
        Price of all nodes over all intervals, $; the checker re-derives it.
    pauses : tuple of Pause
        Restarts of moved or failed jobs.
    held : tuple of HeldNodes
        Old nodes that overlap with the new ones.
    fleet : Fleet or None
        Nodes there are, dedicated and held ones included; ``None``: any number may be rented.
    starts : tuple of Start
        Jobs that waited; all others start when they arrive.
    losses : tuple of Loss
        Failures that hit jobs.
    outages : tuple of Outage
        Failed nodes of the fleet until they are repaired. Whatever is rented is replaced at once.
    """

    policy: str
    durations: Durations
    cluster: Cluster
    jobs: JobTable
    limits: Limits
    groups: tuple[GroupVersion, ...]
    usd_total: float
    dedicated: tuple[DedicatedNodes, ...] = ()
    pins_fixed: bool = True
    pauses: tuple[Pause, ...] = ()
    held: tuple[HeldNodes, ...] = ()
    fleet: Fleet | None = None
    starts: tuple[Start, ...] = ()
    losses: tuple[Loss, ...] = ()
    outages: tuple[Outage, ...] = ()
