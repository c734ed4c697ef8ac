"""How sure a fixed fleet keeps a promise about waiting: the promise on many drawn traces.

The same futures as in :mod:`planner.size.uncertainty` (equal seeds, equal traces), replayed under a
fleet that exists and no more. A fleet that keeps its target on the trace itself does so on one
sample of one; the share of drawn traces on which it does is what a buyer can count on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from instances.bootstrap import Bursts
from instances.errors import InputError
from instances.jobs import JobTable
from instances.plan import Fleet
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention
from planner.policies.wait_target import WaitTarget
from planner.size.uncertainty import Spread, spread
from planner.size.uncertainty_runs import Study, sample
from planner.size.uncertainty_sizes import clopper_pearson

__all__ = ["FleetConfidence", "fleet_confidence"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class FleetConfidence:
    """How often one fleet kept one target.

    Attributes
    ----------
    met, replications : int
        On how many of how many drawn traces.
    low, high : float
        Clopper-Pearson 95 % interval of the share. It holds for a fleet chosen without these
        traces.
    wait_s : Spread
        Seconds within which the target's share of jobs had started.
    interrupted : bool
    """

    fleet: Fleet
    target: WaitTarget
    growth: float
    met: int
    replications: int
    low: float
    high: float
    wait_s: Spread
    interrupted: bool

    @property
    def share(self) -> float:
        """Share of the drawn traces on which the target was kept."""
        return self.met / self.replications


def fleet_confidence(  # noqa: PLR0913 - one argument per question of the command
    jobs: JobTable,
    *,
    fleet: Fleet,
    target: WaitTarget,
    policy: str,
    options: PolicyOptions,
    convention: Convention,
    growth: float = 1.0,
    replications: int = 30,
    seed: int = 0,
    block_h: float = 24.0,
    bursts: Bursts = "independent",
    confidence: float = 0.95,
    processes: int = 1,
    check: bool = True,
    progress: Progress | None = None,
) -> FleetConfidence:
    """Return on which share of drawn traces a fleet keeps a waiting target.

    Parameters
    ----------
    jobs : JobTable
        The trace to draw from.
    fleet, target
        The promise.
    policy, options, convention
        As of :func:`planner.replay.replaying.replay`; ``options.queue`` is the rule of the queue.
    growth, replications, seed, block_h, bursts
        As of :func:`planner.size.uncertainty.fleet_uncertainty`.
    confidence : float
        Of the percentile interval of ``wait_s``.
    processes, check, progress
        As of :func:`planner.size.uncertainty.fleet_uncertainty`.

    Raises
    ------
    InputError
        When an argument is out of range.
    InfeasibleError
        When a drawn trace has a job larger than the fleet, naming its seed.
    KeyboardInterrupt
        At Ctrl-C before the first replication was done.
    """
    if not 0 < confidence <= 1:
        raise InputError(f"Expected 0 < confidence <= 1, got {confidence!r}.")
    study = Study(
        jobs=jobs,
        policy=policy,
        options=replace(options, fleet=fleet),
        convention=convention,
        growths=(growth,),
        replications=replications,
        seed=seed,
        block_h=block_h,
        bursts=bursts,
        warm_up_h=None,
        check=check,
        wait_share=target.share,
    )
    runs = sample(study, processes=processes, progress=progress)
    waits = [run.wait_s for run in runs.by_growth[0] if run.wait_s is not None]
    met = sum(wait_s <= target.wait_s for wait_s in waits)
    low, high = clopper_pearson(met, len(waits))
    return FleetConfidence(
        fleet=fleet,
        target=target,
        growth=growth,
        met=met,
        replications=len(waits),
        low=low,
        high=high,
        wait_s=spread(waits, confidence),
        interrupted=runs.interrupted,
    )
