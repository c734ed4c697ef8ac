"""How sure a fleet size is: the same policy on many traces that might have come instead.

Each replication draws a trace (:mod:`instances.bootstrap`) and replays it at every growth
(:mod:`planner.size.uncertainty_runs`). What follows from the demands:

* distributions of demand, of least-cost owned counts and of their cost (:class:`Spread`);
* the cheapest fleet that is enough with stated confidence (:mod:`planner.size.uncertainty_sizes`);
* what buying for the mean costs, and what knowing more is worth, at each growth and when growth
  itself is unknown (:mod:`planner.size.uncertainty_value`);
* buying step by step as demand grows, against buying once, when it is said how fast it grows.

What the figures hold for
    The trace's business going on as it was, within the assumptions of the bootstrap. A quantile of
    a drawn trace's peak says little beyond the trace's own range of jobs: the bootstrap of a
    maximum is not consistent, and longer jobs or wider gangs than any seen never come.
Two intervals, not to be mixed
    ``low, high`` of a :class:`Spread` are the bootstrap's percentile interval: where another such
    trace would fall. ``mean_interval`` is Student's t interval of the mean over replications: how
    far more replications could still move the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from instances.bootstrap import Bursts, arrival_window_s
from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.jobs import JobTable
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention
from planner.replay.demand import POOLS, Demand, Pool
from planner.replay.interval import Interval, interval
from planner.size.pool_costs import CostModel, default_costs
from planner.size.uncertainty_runs import DemandSample, Replication, Study, observed_demand, sample
from planner.size.uncertainty_sizes import SureSize, replications_needed, sure_size
from planner.size.uncertainty_value import (
    Choice,
    PurchaseValue,
    StagedPurchase,
    above,
    best_purchase,
    priced_purchase,
    purchase_value,
    staged_purchase,
)

__all__ = [
    "GrowthUncertainty",
    "PoolUncertainty",
    "Spread",
    "UncertaintyReport",
    "fleet_uncertainty",
    "spread",
]

Progress = Callable[[int, int], None]

_OPTIONS: Final = PolicyOptions()
#: Probability with which a size covers the share of futures asked for.
_ASSURANCE: Final = 0.95
_T = TypeVar("_T")
#: What leaves one question open and not the others: limits nothing meets, a model too large.
_UNANSWERED: Final = (InfeasibleError, UnsupportedError)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """One figure over replications; quantiles are values that occurred.

    Attributes
    ----------
    values : tuple of float
        One per replication, in their order.
    mean, p5, p50, p95 : float
    low, high : float
        Percentile interval at ``confidence``.
    mean_interval : Interval
        95 % interval of the mean.
    """

    values: tuple[float, ...]
    mean: float
    p5: float
    p50: float
    p95: float
    low: float
    high: float
    confidence: float
    mean_interval: Interval


def spread(values: Sequence[float], confidence: float) -> Spread:
    """Return the distribution of one figure over replications.

    Raises
    ------
    InputError
        Without values.
    """
    mean = interval(values)
    tail = (1 - confidence) / 2
    shares = (0.05, 0.5, 0.95, tail, 1 - tail)
    p5, p50, p95, low, high = np.quantile(
        np.asarray(values, dtype=np.float64), shares, method="inverted_cdf"
    ).tolist()
    return Spread(
        values=tuple(map(float, values)),
        mean=mean.mean,
        p5=p5,
        p50=p50,
        p95=p95,
        low=low,
        high=high,
        confidence=confidence,
        mean_interval=mean,
    )


@dataclass(frozen=True, kw_only=True)
class PoolUncertainty:
    """Nodes of one pool over replications.

    Attributes
    ----------
    mean, p95, p99, peak : Spread
        Of the demand over time, within each replication.
    owned : Spread or None
        Least-cost owned count of each replication, known in advance; ``None`` where some
        replication exceeds the limits.
    """

    mean: Spread
    p95: Spread
    p99: Spread
    peak: Spread
    owned: Spread | None


@dataclass(frozen=True, kw_only=True)
class GrowthUncertainty:
    """All figures at one growth.

    Attributes
    ----------
    year : float or None
        Years from now at which it is reached, when it was said how fast demand grows.
    jobs : Spread
        Jobs drawn.
    rollout, train : PoolUncertainty
    usd_per_hour : Spread or None
        Least cost of owned and rented nodes, each replication known in advance, $/h.
    size, peak_size : SureSize
        Enough with stated confidence, bought alone: nothing is rented. For the coverage asked for,
        and for all the time.
    value : PurchaseValue or None
        Owned and rented, bought before the future is known.
    why_not : str
        Why there is no ``value``: a limit of money or nodes, in words.
    """

    growth: float
    year: float | None
    jobs: Spread
    rollout: PoolUncertainty
    train: PoolUncertainty
    usd_per_hour: Spread | None
    size: SureSize
    peak_size: SureSize
    value: PurchaseValue | None
    why_not: str = ""

    def pool(self, name: Pool) -> PoolUncertainty:
        """Return one pool."""
        return self.rollout if name == "rollout" else self.train


@dataclass(frozen=True, kw_only=True)
class UncertaintyReport:
    """What :func:`fleet_uncertainty` found.

    Attributes
    ----------
    policy : str
        Whose demand it is.
    convention : Convention
        What ends a stay.
    seed : int
        Of all drawn traces.
    block_h : float
        Blocks of the bootstrap, h.
    bursts : Bursts
        Whether growth is more customers, or the same ones sending more at the same moments.
    warm_up_h : float or None
        Hours left out while drawn traces fill, and so is their draining; ``None``: nothing is.
    coverage : float
        Share of the time for which a fleet has to be enough.
    confidence : float
        Share of the futures in which it has to be.
    interrupted : bool
        Whether Ctrl-C was pressed.
    growths : tuple of GrowthUncertainty
        Answers by growth of the demand.
    replications, replications_asked : int
        Done at every growth, and asked for; fewer when interrupted.
    replications_needed : int or None
        For any size seen to be assured at 95 %, and then only the one enough in all replications
        (:func:`planner.size.uncertainty_sizes.replications_needed`); ``None`` for a confidence of
        1, which no sample can show.
    observed : Demand
        Of the trace itself.
    trusting_trace : Choice or None
        The purchase that would be best if the trace came again, in the futures of growth 1;
        ``None`` when 1 is not among the growths, or the limits do not allow it.
    any_growth : PurchaseValue or None
        Bought before it is known which growth comes, all of them equally likely (a guess).
    staged : StagedPurchase or None
        When it was said how fast demand grows.
    notes : tuple of str
        What could not be answered, and why.
    sample : DemandSample
        Every demand, with the seed of its trace.
    """

    policy: str
    convention: Convention
    seed: int
    block_h: float
    bursts: Bursts
    warm_up_h: float | None
    coverage: float
    confidence: float
    replications: int
    replications_asked: int
    replications_needed: int | None
    interrupted: bool
    observed: Demand
    growths: tuple[GrowthUncertainty, ...]
    trusting_trace: Choice | None
    any_growth: PurchaseValue | None
    staged: StagedPurchase | None
    notes: tuple[str, ...]
    sample: DemandSample

    def at(self, growth: float) -> GrowthUncertainty:
        """Return the figures at one growth.

        Raises
        ------
        InputError
            When it was not among those asked for.
        """
        for item in self.growths:
            if item.growth == growth:
                return item
        known = ", ".join(f"{item.growth:g}" for item in self.growths)
        raise InputError(f"Expected a growth in {known}, got {growth!r}.")

    @property
    def regret_of_trace(self) -> float | None:
        """What sizing by the trace alone costs above the best single purchase, $/h."""
        if self.trusting_trace is None:
            return None
        value = self.at(1.0).value
        return above(
            self.trusting_trace.usd_per_hour, None if value is None else value.usd_per_hour
        )


def fleet_uncertainty(  # noqa: PLR0913 - one argument per question of the command
    jobs: JobTable,
    *,
    policy: str = "weave",
    options: PolicyOptions = _OPTIONS,
    costs: CostModel | None = None,
    convention: Convention = "work",
    growths: Sequence[float] = (1.0, 1.5, 2.0, 3.0),
    replications: int = 30,
    seed: int = 0,
    block_h: float = 24.0,
    bursts: Bursts = "independent",
    confidence: float = 0.95,
    coverage: float = 0.95,
    warm_up_h: float | None = None,
    growth_time_years: float | None = None,
    processes: int = 1,
    check: bool = True,
    progress: Progress | None = None,
) -> UncertaintyReport:
    """Replay drawn traces and say how sure fleet sizes are.

    Parameters
    ----------
    jobs : JobTable
        The trace, in order of arrival.
    policy, options, convention
        As of :func:`planner.replay.replaying.replay`; without a fixed fleet, for demand is the
        question.
    costs : CostModel, optional
        Default: :func:`planner.size.pool_costs.default_costs` of the cluster.
    growths : sequence of float
        Increasing, above 0: expected arrivals over those of the trace.
    replications, seed : int
        Of each growth; more of either never change those of a smaller run.
    block_h : float
        Hours of arrivals that stay together.
    bursts : {"independent", "coincident"}
        Whether growth is more customers, whose bursts partly cancel, or the same ones sending
        more at the same moments (:mod:`instances.bootstrap`).
    confidence : float
        Share of replications in which a size has to be enough.
    coverage : float
        Share of the time, within a replication; 1: at the peak too.
    warm_up_h : float, optional
        Hours to leave out at the start, and with them the draining after the window of arrivals.
        Left out, demand is that of whole replays, as elsewhere. These begin and end empty, so that
        means and quantiles over time are below those of a cluster that never stops, and the more
        so the longer the last job stays: more jobs, longer tails, so growth seems cheaper than it
        is. For what to buy for years, give two or three times the mean stay.
    growth_time_years : float, optional
        Years until the last growth is reached, in proportion: growth 1 is now.
    processes : int
        More than 1: spawned ones. The report does not depend on it.
    check : bool
        Check every version of every plan, as a replay does.
    progress : callable, optional
        Called with (replays done, replays).

    Returns
    -------
    UncertaintyReport
        After Ctrl-C, of the replications that were whole by then. Each further Ctrl-C leaves the
        question that is being worked on open, with a note.

    Raises
    ------
    InputError
        When an argument is out of range.
    FleetPlannerError
        When a replay cannot run: of the trace itself, or of a drawn one, naming its seed.
    KeyboardInterrupt
        At Ctrl-C before one replication was whole.

    Examples
    --------
    >>> from planner import production
    >>> found = fleet_uncertainty(production(n_jobs=20), growths=(1.0,), replications=4)
    >>> found.replications, len(found.at(1.0).rollout.peak.values)
    (4, 4)
    """
    _require_growths(growths, growth_time_years)
    costs = costs or default_costs(options.cluster)
    study = Study(
        jobs=jobs,
        policy=policy,
        options=options,
        convention=convention,
        growths=tuple(map(float, growths)),
        replications=replications,
        seed=seed,
        block_h=block_h,
        bursts=bursts,
        warm_up_h=warm_up_h,
        check=check,
    )
    _require_shares(study, confidence, coverage)
    observed = observed_demand(study)
    runs = sample(study, processes=processes, progress=progress)
    questions = _Questions()
    years = _years(study.growths, growth_time_years)
    found = tuple(
        _at_growth(of_growth, year, costs, (confidence, coverage), questions)
        for of_growth, year in zip(runs.by_growth, years, strict=True)
    )
    trusting = questions.ask("the trace itself", lambda: _trusting(observed, runs, costs))
    any_growth = questions.ask("any growth", lambda: _any_growth(runs, costs))
    staged = questions.ask("buying as demand grows", lambda: _staged(runs, years, costs))
    if staged is not None and staged.note:
        questions.notes.append(f"buying as demand grows: {staged.note}")
    return UncertaintyReport(
        policy=policy,
        convention=convention,
        seed=seed,
        block_h=block_h,
        bursts=bursts,
        warm_up_h=warm_up_h,
        coverage=coverage,
        confidence=confidence,
        replications=runs.replications,
        replications_asked=replications,
        replications_needed=replications_needed(confidence) if confidence < 1 else None,
        interrupted=runs.interrupted or questions.interrupted,
        observed=observed,
        growths=found,
        trusting_trace=trusting,
        any_growth=any_growth,
        staged=staged,
        notes=tuple(questions.notes),
        sample=runs,
    )


# -- arguments -------------------------------------------------------------------------------


def _require_growths(growths: Sequence[float], growth_time_years: float | None) -> None:
    rising = all(low < high for low, high in pairwise(growths))
    if not growths or not rising or not 0 < growths[0] <= growths[-1] < math.inf:
        raise InputError(f"Expected growths > 0, increasing, at least one, got {list(growths)}.")
    if growth_time_years is None:
        return
    if not 0 < growth_time_years < math.inf:
        raise InputError(f"Expected growth_time_years > 0, got {growth_time_years!r}.")
    if growths[0] != 1 or growths[-1] <= 1:
        raise InputError(
            "Expected growths from 1 (now) to one above 1 with growth_time_years, got "
            f"{list(growths)}."
        )


def _require_shares(study: Study, confidence: float, coverage: float) -> None:
    for name, share in (("confidence", confidence), ("coverage", coverage)):
        if not 0 < share <= 1:
            raise InputError(f"Expected 0 < {name} <= 1, got {share!r}.")
    if study.options.fleet is not None:
        raise InputError("Expected no fixed fleet: what waits in a queue is demand too.")
    window_h = arrival_window_s(study.jobs) / 3600.0
    if study.warm_up_h is not None and not 0 <= study.warm_up_h < window_h:
        raise InputError(
            f"Expected 0 <= warm_up_h < {window_h:g}, the hours of arrivals, got "
            f"{study.warm_up_h!r}."
        )


def _years(growths: Sequence[float], growth_time_years: float | None) -> list[float | None]:
    """Return when each growth is reached: growth 1 now, the last after the time stated."""
    if growth_time_years is None:
        return [None] * len(growths)
    return [growth_time_years * (growth - 1) / (growths[-1] - 1) for growth in growths]


# -- figures ---------------------------------------------------------------------------------


class _Questions:
    """Questions asked one by one: one left open does not take the others with it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.interrupted = False

    def ask(self, label: str, question: Callable[[], _T]) -> _T | None:
        """Return the answer, or ``None`` and a note why there is none."""
        try:
            return question()
        except _UNANSWERED as error:
            self.notes.append(f"{label}: {error}")
        except KeyboardInterrupt:
            self.notes.append(f"{label}: interrupted.")
            self.interrupted = True
        return None


def _at_growth(
    runs: Sequence[Replication],
    year: float | None,
    costs: CostModel,
    shares: tuple[float, float],
    questions: _Questions,
) -> GrowthUncertainty:
    confidence, coverage = shares
    demands = [run.demand for run in runs]
    label = f"growth {runs[0].growth:g}"
    value = questions.ask(label, lambda: purchase_value(demands, costs))
    why_not = "" if value is not None else questions.notes[-1].removeprefix(f"{label}: ")
    prices = {pool: _node_usd(costs, pool) for pool in POOLS}
    sizes = [
        sure_size(
            demands,
            coverage=share,
            confidence=confidence,
            usd_per_node_hour=prices,
            assurance=_ASSURANCE,
        )
        for share in (coverage, 1.0)
    ]
    pools = {
        pool: PoolUncertainty(
            mean=spread([d.mean(pool) for d in demands], confidence),
            p95=spread([d.quantile(pool, 0.95) for d in demands], confidence),
            p99=spread([d.quantile(pool, 0.99) for d in demands], confidence),
            peak=spread([d.peak(pool) for d in demands], confidence),
            owned=None
            if value is None
            else spread([owned[0][k] for owned in value.stochastic.scenario_owned], confidence),
        )
        for k, pool in enumerate(POOLS)
    }
    return GrowthUncertainty(
        growth=runs[0].growth,
        year=year,
        jobs=spread([run.jobs for run in runs], confidence),
        rollout=pools["rollout"],
        train=pools["train"],
        usd_per_hour=None if value is None else spread(value.foresight_usd_per_hour, confidence),
        size=sizes[0],
        peak_size=sizes[1],
        value=value,
        why_not=why_not,
    )


def _node_usd(costs: CostModel, pool: Pool) -> float:
    """Return what a node costs at all hours: owned, or rented where it cannot be owned."""
    own = costs.pool(pool).own_usd_per_node_hour
    return costs.pool(pool).rent_usd_per_node_hour if own is None else own


def _trusting(observed: Demand, runs: DemandSample, costs: CostModel) -> Choice | None:
    if 1.0 not in runs.growths:
        return None
    of_growth = runs.by_growth[runs.growths.index(1.0)]
    owned = best_purchase(observed, costs)
    return priced_purchase([run.demand for run in of_growth], costs, owned)


def _any_growth(runs: DemandSample, costs: CostModel) -> PurchaseValue | None:
    if len(runs.growths) < 2:
        return None
    return purchase_value([run.demand for of in runs.by_growth for run in of], costs)


def _staged(
    runs: DemandSample, years: Sequence[float | None], costs: CostModel
) -> StagedPurchase | None:
    known = [year for year in years if year is not None]
    if len(known) < 2:
        return None
    futures = [
        [of_growth[r].demand for of_growth in runs.by_growth] for r in range(runs.replications)
    ]
    return staged_purchase(futures, costs, runs.growths, known)
