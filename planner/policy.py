"""What a policy is: told of arrivals and departures, it answers with the groups that changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from instances.errors import InputError
from instances.hardware import Cluster
from instances.jobs import Job
from instances.plan import Limits
from planner.group_state import GroupState
from planner.placer import AdmissionKind, PlacerParams

__all__ = ["Change", "Policy", "PolicyOptions"]


_MAX_FACTOR: Final = 1e6


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
    seed : int
        Seed of policies that draw.
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
    seed: int = 0
    clock: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.colocated_factor <= _MAX_FACTOR:
            raise InputError(
                f"Expected colocated_factor > 0 and <= {_MAX_FACTOR:g}, got "
                f"{self.colocated_factor:g}."
            )


class Policy(Protocol):
    """One policy in the middle of a replay.

    Attributes
    ----------
    promises_valid : bool
        Whether every plan it makes satisfies section 3; if so each is checked as it happens.
    admission_kinds : tuple of str
        Kinds of admission it may report; empty where the mix means nothing.
    uses_seed : bool
        Whether it draws from ``PolicyOptions.seed``.
    """

    name: str
    promises_valid: bool
    admission_kinds: tuple[AdmissionKind, ...]
    uses_seed: bool

    def arrive(self, job: Job, now_s: float) -> Change:
        """Take an arriving job at ``now_s`` seconds."""
        ...

    def depart(self, job: Job, now_s: float) -> Change:
        """Let a finished job go at ``now_s`` seconds."""
        ...
