"""Parameters of the local search."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from instances.errors import InputError

__all__ = ["LocalSearchParams"]


@dataclass(frozen=True, kw_only=True)
class LocalSearchParams:
    """How the local search moves.

    A change that makes the energy ``d`` $/h larger is made when ``d <= e t``, ``e`` an
    exponential deviate (Metropolis). Energy is the price of all nodes less ``fill_reward`` times
    that price times the squared fill of each. The temperature ``t`` falls geometrically from
    ``hot`` to ``cold``, in prices of one node of each pool, over the first nine tenths of a
    cycle, round by round. A cycle takes ``moves_per_job`` attempts a job, or what is left of the
    search where that is less than one and a half cycles; the next starts from the plan held, at
    ``reheat`` times ``hot``. Ruin and recreate accepts by the same rule, over the whole search.

    Attributes
    ----------
    hot, cold : float
        Temperature at the start and at the end of a cycle, as a share of the price of a
        rollout and a train node together. Beyond 100 jobs annealing starts at
        ``hot sqrt(100 / n)``, but not below ``cold``: the more jobs, the fewer attempts for
        each in the same time. The square root is a choice, not a measured optimum.
    reheat : float
        First temperature of later cycles over ``hot``.
    fill_reward : float
        In ``[0, 1]``; 0: energy is the price alone.
    reach : int
        Positions apart, in order of deadlines, of jobs whose groups are related.
    merging : int
        Attempts of 1024 that merge two groups; none where the snapshot limits the jobs of a
        group.
    most_jobs : int
        Most jobs of a group of the annealing, beside the snapshot's limit; as many as the
        largest group of the start where that is more.
    moves_per_job : int
        Attempts a job in a cycle.
    round_moves : int
        Most attempts at one temperature, a round, and at most 500 a job; a plan is held between
        rounds only.
    schedule_steps : int
        Placements tried to schedule one group.
    polish_jobs : int
        Most jobs of a neighbourhood that is solved exactly, and at most 7 where jobs have
        several nodes of a pool or iterations a period; below 2: none is.
    polish_seconds : float
        Most seconds of one of them, where the search has a time limit; without one, work
        alone stops it.
    ruin_groups : int
        Most groups taken apart at once by ruin and recreate.

    Raises
    ------
    InputError
        When a number is out of its range.
    """

    hot: float = 0.08
    cold: float = 0.001
    reheat: float = 0.5
    fill_reward: float = 0.7
    reach: int = 200
    merging: int = 2
    most_jobs: int = 12
    moves_per_job: int = 200_000
    round_moves: int = 200_000
    schedule_steps: int = 20_000
    polish_jobs: int = 30
    polish_seconds: float = 5.0
    ruin_groups: int = 4

    def __post_init__(self) -> None:
        for name in ("hot", "cold", "reheat", "fill_reward", "polish_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isfinite(value) and value >= 0):
                raise InputError(f"Expected {name} >= 0, got {value!r}.")
        for name in ("hot", "cold", "reheat"):
            if getattr(self, name) == 0:
                raise InputError(f"Expected {name} > 0, got 0.")
        if self.cold > self.hot:
            raise InputError(f"Expected cold <= hot, got {self.cold!r} > {self.hot!r}.")
        for name in ("reheat", "fill_reward"):
            if getattr(self, name) > 1:
                raise InputError(f"Expected {name} <= 1, got {getattr(self, name)!r}.")
        for name, least in (
            ("reach", 1), ("merging", 0), ("most_jobs", 1), ("moves_per_job", 1),
            ("round_moves", 1), ("schedule_steps", 1), ("polish_jobs", 0), ("ruin_groups", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")
        if self.merging > 1024:
            raise InputError(f"Expected merging <= 1024, got {self.merging}.")
