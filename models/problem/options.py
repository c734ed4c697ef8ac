"""Options of every exact method, and the one clock that a time limit is read from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

from instances.errors import InputError
from instances.plan import Plan

__all__ = ["Clock", "Deadline", "OutOfTimeError", "Progress", "SolveOptions"]

Clock = Callable[[], float]
#: Called with (what is being done, done, total).
Progress = Callable[[str, int, int], None]


class OutOfTimeError(Exception):
    """The time limit passed inside our own code; methods catch it and return what they hold."""


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """What a solve may spend, and what it starts from.

    Attributes
    ----------
    time_limit_s : float or None
        Seconds for the whole method, enumeration and model building included.
    node_limit : int or None
        Branch-and-bound nodes (HiGHS).
    work_limit : float or None
        Deterministic time (CP-SAT): unlike seconds, it stops at the same point every run.
    max_groups : int
        Most candidate groups an enumeration may hold before it refuses.
    threads : int
        Of CP-SAT; HiGHS always runs on one, its number being one for the whole process.
    seed : int
    warm_start : Plan or None
        A valid plan of the same jobs, held until something better is found.
    grid_s : float
        Unit of CP-SAT's integer time grid, seconds.
    clock : callable
        Seconds from an arbitrary origin.
    progress : callable or None

    Raises
    ------
    InputError
        When a limit is out of its range.
    """

    time_limit_s: float | None = None
    node_limit: int | None = None
    work_limit: float | None = None
    max_groups: int = 2_000_000
    threads: int = 1
    seed: int = 0
    warm_start: Plan | None = None
    grid_s: float = 0.001
    clock: Clock = time.monotonic
    progress: Progress | None = None

    def __post_init__(self) -> None:
        for name in ("time_limit_s", "work_limit"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and isfinite(value)):
                raise InputError(f"Expected {name} >= 0, got {value!r}.")
        if not (0 < self.grid_s < inf):
            raise InputError(f"Expected grid_s > 0, got {self.grid_s!r}.")
        for name, least in (("node_limit", 0), ("max_groups", 1), ("threads", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is None and name == "node_limit":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")
        if self.seed >= 2**31:
            raise InputError(f"Expected seed < 2^31, got {self.seed}.")

    def start(self) -> Deadline:
        """Start the clock of one solve."""
        return Deadline(self.clock, self.time_limit_s)


class Deadline:
    """The moment one solve has to end."""

    def __init__(self, clock: Clock, time_limit_s: float | None) -> None:
        self._clock = clock
        self._began = clock()
        self._limit = time_limit_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the solve began."""
        return self._clock() - self._began

    def remaining_s(self) -> float | None:
        """Seconds left, never below 0; ``None`` without a limit."""
        return None if self._limit is None else max(self._limit - self.elapsed_s, 0.0)

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self._limit is not None and self.elapsed_s >= self._limit

    def later(self, seconds: float) -> Deadline:
        """Return the deadline so much later, of the same clock and beginning."""
        other = Deadline.__new__(Deadline)
        other._clock, other._began = self._clock, self._began
        other._limit = None if self._limit is None else self._limit + seconds
        return other

    def share(self, fraction: float) -> Deadline:
        """Return the deadline when this fraction of the time left is spent, of the same clock."""
        other = self.later(0.0)
        left = self.remaining_s()
        if left is not None:
            other._limit = self.elapsed_s + fraction * left
        return other

    def check(self) -> None:
        """Raise :class:`OutOfTimeError` when no time is left."""
        if self.expired:
            raise OutOfTimeError
