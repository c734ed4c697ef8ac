"""Replays of one trace under fixed fleets, each fleet replayed as seldom as possible.

A replay given up because too many jobs waited longer than ``W`` says that the fleet misses every
target that is as strict or stricter; one that went to its end tells the waits of all jobs, and so
what is true of any target. :class:`FleetReplays` remembers both, so that several searches share
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from instances.jobs import JobTable
from instances.plan import Fleet
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention, ReplayResult
from planner.policies.wait_target import TargetMissed, WaitTarget, jobs_in_share
from planner.replay.demand import POOLS, Pool
from planner.replay.replaying import replay

__all__ = ["Evaluate", "FleetFigures", "FleetReplays", "figures_of"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetFigures:
    """What a replay to the end found about a fleet.

    Attributes
    ----------
    waits_s : ndarray, (n_jobs,)
        Seconds each job waited, ascending.
    admitted_at_once : float
        Share of the jobs.
    slo_attainment, slo_attainment_with_wait : float
        Share of the jobs within their SLO, queueing apart and from arrival on.
    utilisation : dict of str to float or None
        By pool: mean nodes in use over the horizon / nodes of the fleet; ``None`` without nodes.
    """

    fleet: Fleet
    waits_s: FloatArray
    admitted_at_once: float
    slo_attainment: float
    slo_attainment_with_wait: float
    utilisation: dict[str, float | None]

    def wait_quantile(self, share: float) -> float:
        """Return the least ``w`` such that at least ``share`` of the jobs waited ``w`` or less."""
        return float(self.waits_s[max(jobs_in_share(len(self.waits_s), share), 1) - 1])

    def meets(self, target: WaitTarget) -> bool:
        """Return whether no more jobs than allowed waited longer."""
        waited = int(np.count_nonzero(self.waits_s > target.wait_s))
        return waited <= target.late_allowed(len(self.waits_s))


#: Replay a fleet to its end, or raise TargetMissed once it is sure to miss.
Evaluate = Callable[[Fleet, WaitTarget], FleetFigures]


def figures_of(result: ReplayResult) -> FleetFigures:
    """Return the figures of a replay under a fixed fleet."""
    assert result.fleet is not None
    line = result.timeline
    used = {"rollout": line.mean(line.rollout_nodes), "train": line.mean(line.train_nodes)}
    there = {"rollout": result.fleet.rollout_nodes, "train": result.fleet.train_nodes}
    return FleetFigures(
        fleet=result.fleet,
        waits_s=np.sort(np.asarray(result.waits_s, dtype=np.float64)),
        admitted_at_once=result.admitted_at_once,
        slo_attainment=result.slo_attainment,
        slo_attainment_with_wait=result.slo_attainment_with_wait,
        utilisation={pool: used[pool] / there[pool] if there[pool] else None for pool in POOLS},
    )


class FleetReplays:
    """Replays of one trace, policy, queue and convention by fleet.

    Parameters
    ----------
    jobs : JobTable
    policy : str
    options : PolicyOptions
        Its ``fleet`` is replaced.
    convention : {"work", "wallclock"}
    evaluate : callable, optional
        Instead of the replay itself; for tests of what searches.

    Attributes
    ----------
    ended : dict of Fleet to FleetFigures
        Fleets replayed to the end.
    """

    def __init__(
        self,
        jobs: JobTable,
        policy: str,
        options: PolicyOptions,
        *,
        convention: Convention = "work",
        evaluate: Evaluate | None = None,
    ) -> None:
        self.jobs = jobs
        self.policy = policy
        self.options = replace(options, fleet=None)
        self.convention: Convention = convention
        self.ended: dict[Fleet, FleetFigures] = {}
        #: Per fleet the targets it is known to miss: (jobs allowed to be late, seconds).
        self._missed: dict[Fleet, list[tuple[int, float]]] = {}
        self._evaluate = evaluate or self._replayed
        self._plain_peak: dict[Pool, int] | None = None

    @property
    def plain_peak(self) -> Fleet:
        """Most nodes of each pool that exist at once when nobody has to wait."""
        if self._plain_peak is None:
            plain = replay(
                self.jobs, self.policy, self.options, convention=self.convention, check=False
            )
            self._plain_peak = {pool: plain.peak_nodes[pool] for pool in POOLS}
        return Fleet(self._plain_peak["rollout"], self._plain_peak["train"])

    def known(self, fleet: Fleet, target: WaitTarget) -> bool | None:
        """Return whether the fleet meets the target, ``None`` where only a replay can tell."""
        figures = self.ended.get(fleet)
        if figures is not None:
            return figures.meets(target)
        late = target.late_allowed(len(self.jobs))
        missed = self._missed.get(fleet, ())
        return False if any(late <= n and target.wait_s <= s for n, s in missed) else None

    def replayed(self) -> list[Fleet]:
        """Return the fleets replayed, to the end or not."""
        return list(dict.fromkeys((*self.ended, *self._missed)))

    def meets(self, fleet: Fleet, target: WaitTarget) -> bool:
        """Return whether the fleet meets the target, by a replay where that is not known yet.

        Raises
        ------
        InfeasibleError
            When a job is larger than the fleet.
        """
        known = self.known(fleet, target)
        if known is not None:
            return known
        try:
            figures = self._evaluate(fleet, target)
        except TargetMissed:
            late = target.late_allowed(len(self.jobs))
            self._missed.setdefault(fleet, []).append((late, target.wait_s))
            return False
        self.ended[fleet] = figures
        return figures.meets(target)

    def result(self, fleet: Fleet) -> ReplayResult:
        """Replay a fleet to the end with every check, plan and all."""
        options = replace(self.options, fleet=fleet)
        return replay(self.jobs, self.policy, options, convention=self.convention, check=True)

    def _replayed(self, fleet: Fleet, target: WaitTarget) -> FleetFigures:
        options = replace(self.options, fleet=fleet)
        return figures_of(
            replay(
                self.jobs,
                self.policy,
                options,
                convention=self.convention,
                check=False,
                target=target,
            )
        )
