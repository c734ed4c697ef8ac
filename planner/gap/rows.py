"""One moment with its four prices, and their integrals over several moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from models.problem.result import proved, ratio_of
from planner.gap.moments import Moment
from planner.gap.solve import Solved

__all__ = ["GapRow", "GapTotals"]


@dataclass(frozen=True, kw_only=True)
class GapRow:
    """One moment with jobs that may share, and its four prices, $/h, dedicated nodes left out.

    Attributes
    ----------
    solved : Solved or None
        What is known of its snapshot; ``None`` when the run ended before. Then ``replanned_usd``
        and ``held_usd`` are the policy's price: nothing is known to be cheaper.
    """

    moment: Moment
    policy_usd: float
    replanned_usd: float
    held_usd: float
    bound_usd: float
    bound_method: str
    solved: Solved | None

    @property
    def n_jobs(self) -> int:
        """Jobs that may share nodes."""
        return len(self.moment.jobs)

    @property
    def proved(self) -> bool:
        """Whether the cheapest plan known is proved to cost the least."""
        return proved(self.held_usd, self.bound_usd)

    @property
    def ratio(self) -> float | None:
        """Policy over bound."""
        return ratio_of(self.policy_usd, self.bound_usd)

    @property
    def open_ratio(self) -> float | None:
        """Held over bound: 1 where proved."""
        return ratio_of(self.held_usd, self.bound_usd)


@dataclass(frozen=True, kw_only=True)
class GapTotals:
    """Prices of some moments integrated over time, $, dedicated nodes left out.

    Ratios are ``None`` where the bound is nothing.
    """

    hours: float
    policy_usd: float
    replanned_usd: float
    held_usd: float
    bound_usd: float

    @classmethod
    def of(cls, rows: Sequence[GapRow]) -> GapTotals:
        """Integrate these moments."""
        hours = [row.moment.hours for row in rows]

        def total(prices: Sequence[float]) -> float:
            return fsum(usd * h for usd, h in zip(prices, hours, strict=True))

        return cls(
            hours=fsum(hours),
            policy_usd=total([row.policy_usd for row in rows]),
            replanned_usd=total([row.replanned_usd for row in rows]),
            held_usd=total([row.held_usd for row in rows]),
            bound_usd=total([row.bound_usd for row in rows]),
        )

    @property
    def ratio(self) -> float | None:
        """Policy over bound."""
        return self.policy_usd / self.bound_usd if self.bound_usd > 0 else None

    @property
    def online_regret(self) -> float | None:
        """Policy over the same jobs re-planned."""
        return self.policy_usd / self.replanned_usd if self.bound_usd > 0 else None

    @property
    def heuristic_loss(self) -> float | None:
        """Re-planned over the cheapest plans known."""
        return self.replanned_usd / self.held_usd if self.bound_usd > 0 else None

    @property
    def unproved_rest(self) -> float | None:
        """The cheapest plans known over their bounds: 1 where all are proved."""
        return self.held_usd / self.bound_usd if self.bound_usd > 0 else None
