"""The cheapest valid plan of a search so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from models.problem.result import usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, plan_of

__all__ = ["HeldPlan"]

_POLICY: Final = "local-search"
#: Relative distance within which two prices are the same.
_SAME: Final = 1e-12

#: Groups, their price, the moment and price of every plan held.
_Best = tuple[tuple[PlacedGroup, ...], float, tuple[tuple[int, float], ...]]


class HeldPlan:
    """What a search holds: valid at any moment, also in the midst of an interrupt.

    Attributes
    ----------
    groups : tuple of PlacedGroup
    usd : float
        Price, $/h.
    iterations : int
        Of the search, set by it: the moment of what is offered next.
    trajectory : tuple of (int, float)
        Moment and price of every plan held, the last one's included.
    """

    def __init__(self, snapshot: Snapshot, groups: tuple[PlacedGroup, ...]) -> None:
        self.snapshot = snapshot
        self.iterations = 0
        usd = usd_of(snapshot, groups)
        self._best: _Best = groups, usd, ((0, usd),)

    @property
    def groups(self) -> tuple[PlacedGroup, ...]:
        """The groups held."""
        return self._best[0]

    @property
    def usd(self) -> float:
        """Their price, $/h."""
        return self._best[1]

    @property
    def trajectory(self) -> tuple[tuple[int, float], ...]:
        """Moment and price of every plan held so far."""
        return self._best[2]

    def offer(self, groups: Sequence[PlacedGroup]) -> bool:
        """Hold these groups if they are cheaper and within the fleet caps; return whether.

        Raises
        ------
        CheckError
            When they are not a valid plan: a fault of the program.
        """
        found = tuple(groups)
        usd = usd_of(self.snapshot, found)
        if usd >= self.usd * (1 - _SAME):
            return False
        nodes = [group.nodes for group in found]
        if not self.snapshot.caps.allow(sum(r for r, _ in nodes), sum(t for _, t in nodes)):
            return False
        plan_of(self.snapshot, found, _POLICY)
        trajectory = (*self.trajectory, (self.iterations, usd))
        self._best = found, usd, trajectory  # at once: an interrupt comes before it or after it
        return True
