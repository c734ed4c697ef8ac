"""How long jobs may wait for a fixed fleet, and how a replay that misses the target ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from instances.errors import InputError

__all__ = ["TargetMissed", "WaitTarget", "jobs_in_share"]

#: Jobs: round-off of ``share * n_jobs`` never adds one.
_EPS_JOBS: Final = 1e-9


def jobs_in_share(n_jobs: int, share: float) -> int:
    """Return the least number of jobs that is at least ``share`` of ``n_jobs``."""
    return math.ceil(share * n_jobs - _EPS_JOBS)


@dataclass(frozen=True, slots=True)
class WaitTarget:
    """At least ``share`` of all jobs wait no longer than ``wait_s`` seconds.

    Attributes
    ----------
    wait_s : float
        Longest wait, seconds.
    share : float
        Share of jobs, in (0, 1].

    Raises
    ------
    InputError
        When ``wait_s`` is negative or no number, or ``share`` is not in (0, 1].
    """

    wait_s: float
    share: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.wait_s < math.inf:
            raise InputError(f"Expected wait_s >= 0 of a waiting target, got {self.wait_s:g}.")
        if not 0 < self.share <= 1:
            raise InputError(f"Expected share > 0 and <= 1 of a target, got {self.share:g}.")

    def late_allowed(self, n_jobs: int) -> int:
        """Return how many of ``n_jobs`` jobs may wait longer."""
        return n_jobs - jobs_in_share(n_jobs, self.share)


class TargetMissed(Exception):  # noqa: N818 - an answer of the replay, not a fault
    """More jobs than allowed have waited too long at ``at_s``, seconds of the trace."""

    def __init__(self, at_s: float) -> None:
        super().__init__(f"The waiting target is missed at {at_s:.1f} s.")
        self.at_s = at_s
