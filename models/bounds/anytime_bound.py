"""What the two LPs over both pools share: a start from the pools, limits, and when they met."""

from __future__ import annotations

import math
from typing import Final

from models.bounds.columns import DecompositionBound, Until, pool_decomposition
from models.problem.options import Deadline, Progress
from models.problem.result import StoppedBy
from models.problem.snapshot import Snapshot

__all__ = ["AnytimeBound", "pools_first"]

#: Part of the time that the pool decomposition may take where it was not given.
_START_SHARE: Final = 0.3


def pools_first(
    snapshot: Snapshot, deadline: Deadline, *, threads: int, seed: int
) -> tuple[DecompositionBound, Deadline]:
    """Return the pool decomposition, and the deadline of what follows: at once after Ctrl-C."""
    share = deadline.share(_START_SHARE)
    start = pool_decomposition(snapshot, share, threads=threads, seed=seed)
    if StoppedBy.INTERRUPT in (start.rollout.stopped_by, start.train.stopped_by):
        deadline = deadline.share(0.0)
    return start, deadline


class AnytimeBound:
    """A bound that begins at that of the pools, before rounding, and rises; true at any stop.

    Attributes
    ----------
    bound : float
        Proved, $/h.
    lp_usd : float
        Least LP value known, $/h; infinite before the first.
    rounds : int
    stopped_by : StoppedBy or None
    """

    def __init__(
        self,
        snapshot: Snapshot,
        deadline: Deadline,
        start: DecompositionBound,
        *,
        progress: Progress | None,
        until: Until,
    ) -> None:
        self.deadline = deadline
        self.progress = progress
        self.until = until
        self.bound = snapshot.cluster.usd_per_hour(start.rollout.nodes_lp, start.train.nodes_lp)
        self.lp_usd = math.inf
        self.rounds = 0
        self.stopped_by: StoppedBy | None = None

    def run(self) -> None:
        """Generate until bound and LP value meet, or a limit; Ctrl-C ends it too."""
        try:
            self.generate()
        except KeyboardInterrupt:
            self.stopped_by = StoppedBy.INTERRUPT

    def generate(self) -> None:
        """Generate until bound and LP value meet, or a limit."""
        raise NotImplementedError

    @property
    def met(self) -> bool:
        """Whether bound and LP value met."""
        if not math.isfinite(self.lp_usd):
            return False
        return self.lp_usd - self.bound <= self.until.gap_rel * max(self.lp_usd, 1e-300)

    def at_limit(self, *, rounds: bool = True) -> bool:
        """Whether a limit is reached; notes which."""
        if self.stopped_by is None and self.deadline.expired:
            self.stopped_by = StoppedBy.TIME
        most = self.until.rounds
        if self.stopped_by is None and rounds and most is not None and self.rounds >= most:
            self.stopped_by = StoppedBy.WORK
        return self.stopped_by is not None
