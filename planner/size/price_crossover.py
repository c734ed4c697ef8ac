"""Who is cheapest at which price of a train GPU: solo, colocated or co-executed jobs.

The price of a rollout GPU stays; that of a train GPU is ``ratio`` times as much. Solo and
colocated hold the same nodes whatever they cost, so one replay of each prices all ratios; the
placer of the sharing policy minds prices, so it replays the trace at every ratio looked at.
Costs are ``usd_total`` of the same jobs under one convention.

*Crossovers* are where the cheapest policy changes, and where the cheaper of two does: found on a
grid, then by bisection with replays until ratios are within ``tolerance``. As placement changes
with prices in jumps, a crossover may be a jump and not an equality, and the grid may step over two
that are closer together than its points.

*Fixed plans*. With the node-hours ``R_p, T_p`` that policy p holds at the cluster's own prices
kept, p and q cost the same at ``ratio = g_R (R_q - R_p) / (g_T (T_p - T_q))``, where g is GPUs of a
node. That is what a calculation on paper finds; it differs from the replayed crossover by what
placing anew is worth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import inf, isfinite
from typing import Any, Final

from instances.errors import InputError
from instances.hardware import Cluster
from instances.jobs import JobTable
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention
from planner.replay.replaying import replay, require_convention

__all__ = [
    "Crossover",
    "FixedCrossover",
    "PriceCrossover",
    "PricePoint",
    "at_price_ratio",
    "price_crossover",
    "price_ratio",
]

Progress = Callable[[int, int], None]

#: Policies whose nodes do not depend on prices.
_PRICE_BLIND: Final = ("solo", "colocated")
_OPTIONS: Final = PolicyOptions()
_GRID: Final = tuple(1.0 + 0.25 * i for i in range(29))


def price_ratio(cluster: Cluster) -> float:
    """Return the price of a train GPU over that of a rollout GPU."""
    return cluster.train.gpu.usd_per_gpu_hour / cluster.rollout.gpu.usd_per_gpu_hour


def at_price_ratio(cluster: Cluster, ratio: float) -> Cluster:
    """Return the cluster with a train GPU ``ratio`` times as dear as a rollout GPU."""
    usd = ratio * cluster.rollout.gpu.usd_per_gpu_hour
    gpu = dataclasses.replace(cluster.train.gpu, usd_per_gpu_hour=usd)
    return cluster.replace(train=dataclasses.replace(cluster.train, gpu=gpu))


@dataclass(frozen=True, kw_only=True)
class PricePoint:
    """Costs at one ratio.

    Attributes
    ----------
    ratio : float
        Price of a train GPU over that of a rollout GPU.
    usd_total, usd_per_hour_mean : tuple of float
        By policy, in the order of ``PriceCrossover.policies``.
    cheapest : str
        The earlier policy where two cost the same.
    """

    ratio: float
    usd_per_train_gpu_hour: float
    usd_total: tuple[float, ...]
    usd_per_hour_mean: tuple[float, ...]
    cheapest: str


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Where the cheaper of some policies changes, between two ratios that were replayed."""

    low_ratio: float
    high_ratio: float
    cheaper_below: str
    cheaper_above: str

    @property
    def ratio(self) -> float:
        """The middle of the two."""
        return (self.low_ratio + self.high_ratio) / 2


@dataclass(frozen=True, kw_only=True)
class FixedCrossover:
    """Where two policies cost the same with the nodes that they hold at the cluster's prices.

    Attributes
    ----------
    ratio : float or None
        ``None`` where one is cheaper at every ratio above 0, or both always cost the same.
    replayed : tuple of float
        The crossovers of the same two with placing anew, within the grid.
    differs : bool
        Whether the two answers differ by more than the tolerance, within the grid.
    """

    first: str
    second: str
    ratio: float | None
    replayed: tuple[float, ...]
    differs: bool


@dataclass(frozen=True, kw_only=True)
class PriceCrossover:
    """Who is cheapest at which price ratio, and where that changes.

    Attributes
    ----------
    convention : Convention
        What ends a stay.
    colocated_factor : float
        Iteration time of a co-located job over its solo time.
    tolerance : float
        Relative width to which a price ratio is found.
    policies : tuple of str
        Compared, by name.
    base_ratio : float
        The cluster's own.
    points : tuple of PricePoint
        The grid, ascending.
    crossovers : tuple of Crossover
        Where the cheapest of all changes.
    fixed : tuple of FixedCrossover
        Of every two policies.
    replays : int
        Replays that were made.
    """

    policies: tuple[str, ...]
    convention: Convention
    colocated_factor: float
    tolerance: float
    base_ratio: float
    points: tuple[PricePoint, ...]
    crossovers: tuple[Crossover, ...]
    fixed: tuple[FixedCrossover, ...]
    replays: int

    @property
    def spans(self) -> tuple[tuple[str, float, float], ...]:
        """Policy, from and to which ratio it is the cheapest, over the grid."""
        first, last = self.points[0], self.points[-1]
        edges = [first.ratio, *(c.ratio for c in self.crossovers), last.ratio]
        names = [first.cheapest, *(c.cheaper_above for c in self.crossovers)]
        return tuple((name, *edge) for name, edge in zip(names, pairwise(edges), strict=True))

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One row a ratio of the grid, plain values."""
        return tuple(
            {
                "ratio": point.ratio,
                "usd_per_train_gpu_hour": point.usd_per_train_gpu_hour,
                **{
                    f"{name}_usd_per_hour_mean": usd
                    for name, usd in zip(self.policies, point.usd_per_hour_mean, strict=True)
                },
                **{
                    f"{name}_usd_total": usd
                    for name, usd in zip(self.policies, point.usd_total, strict=True)
                },
                "cheapest": point.cheapest,
            }
            for point in self.points
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """Node-hours of one replay."""

    rollout_node_h: float
    train_node_h: float
    horizon_h: float


class _Costs:
    """Costs by policy and ratio; nothing is replayed twice."""

    def __init__(
        self,
        jobs: JobTable,
        policies: tuple[str, ...],
        options: PolicyOptions,
        convention: Convention,
    ) -> None:
        self._jobs, self._options, self._convention = jobs, options, convention
        self.policies = policies
        self._held: dict[tuple[str, float], _Held] = {}

    @property
    def replays(self) -> int:
        """Replays made so far."""
        return len(self._held)

    def held(self, policy: str, ratio: float) -> _Held:
        """Return what a policy holds at a ratio."""
        key = (policy, 0.0 if policy in _PRICE_BLIND else ratio)
        if key not in self._held:
            cluster = at_price_ratio(self._options.cluster, ratio)
            found = replay(
                self._jobs,
                policy,
                replace(self._options, cluster=cluster),
                convention=self._convention,
            )
            hours = found.node_hours
            self._held[key] = _Held(hours["rollout"], hours["train"], found.horizon_h)
        return self._held[key]

    def usd(self, policy: str, ratio: float) -> float:
        """Return what a policy costs in all, $."""
        held = self.held(policy, ratio)
        cluster = at_price_ratio(self._options.cluster, ratio)
        return cluster.usd_per_hour(held.rollout_node_h, held.train_node_h)

    def cheapest(self, policies: Sequence[str], ratio: float) -> str:
        """Return the cheapest of some policies, the earlier of two that cost the same."""
        return min(policies, key=lambda policy: self.usd(policy, ratio))

    def point(self, ratio: float) -> PricePoint:
        """Return all costs at one ratio."""
        totals = tuple(self.usd(policy, ratio) for policy in self.policies)
        cluster = at_price_ratio(self._options.cluster, ratio)
        return PricePoint(
            ratio=ratio,
            usd_per_train_gpu_hour=cluster.train.gpu.usd_per_gpu_hour,
            usd_total=totals,
            usd_per_hour_mean=tuple(
                usd / self.held(policy, ratio).horizon_h
                for policy, usd in zip(self.policies, totals, strict=True)
            ),
            cheapest=self.cheapest(self.policies, ratio),
        )


def _changes(
    cheapest: Callable[[float], str], ratios: Sequence[float], tolerance: float
) -> list[Crossover]:
    """Return where the cheapest changes, ascending: between grid points, by bisection."""
    out: list[Crossover] = []
    todo = list(pairwise(ratios))[::-1]
    while todo:
        low, high = todo.pop()
        below, above = cheapest(low), cheapest(high)
        if below == above:
            continue
        middle = (low + high) / 2
        if high - low <= tolerance or not low < middle < high:
            out.append(
                Crossover(low_ratio=low, high_ratio=high, cheaper_below=below, cheaper_above=above)
            )
        else:  # a third policy may win in between
            todo += [(middle, high), (low, middle)]
    return out


def _fixed_ratio(first: _Held, second: _Held, cluster: Cluster) -> float | None:
    """Return the ratio above 0 at which two fixed plans cost the same (module docstring)."""
    rollout_gpu_h = cluster.rollout.gpus_per_node * (second.rollout_node_h - first.rollout_node_h)
    train_gpu_h = cluster.train.gpus_per_node * (first.train_node_h - second.train_node_h)
    if train_gpu_h == 0.0:
        return None
    ratio = rollout_gpu_h / train_gpu_h
    return ratio if 0 < ratio < inf else None


def _fixed(
    costs: _Costs, first: str, second: str, cluster: Cluster, ratios: Sequence[float], tol: float
) -> FixedCrossover:
    base = price_ratio(cluster)
    ratio = _fixed_ratio(costs.held(first, base), costs.held(second, base), cluster)
    found = _changes(lambda at: costs.cheapest((first, second), at), ratios, tol)
    replayed = tuple(crossover.ratio for crossover in found)
    on_paper = () if ratio is None or not ratios[0] <= ratio <= ratios[-1] else (ratio,)
    same = len(on_paper) == len(replayed) and all(
        abs(a - b) <= tol for a, b in zip(on_paper, replayed, strict=True)
    )
    return FixedCrossover(
        first=first, second=second, ratio=ratio, replayed=replayed, differs=not same
    )


def _require(ratios: Sequence[float], tolerance: float, cluster: Cluster) -> None:
    if len(ratios) < 2 or any(not (0 < a < b and isfinite(b)) for a, b in pairwise(ratios)):
        raise InputError(f"Expected at least two ratios > 0, ascending, got {list(ratios)}.")
    if not tolerance > 0:
        raise InputError(f"Expected tolerance > 0, got {tolerance!r}.")
    if not cluster.rollout.gpu.usd_per_gpu_hour > 0:
        raise InputError(
            "Expected usd_per_gpu_hour > 0 of a rollout GPU, got "
            f"{cluster.rollout.gpu.usd_per_gpu_hour!r}: without it there is no ratio of prices."
        )


def price_crossover(
    jobs: JobTable,
    *,
    options: PolicyOptions = _OPTIONS,
    convention: Convention = "work",
    policies: Sequence[str] = ("solo", "colocated", "weave"),
    ratios: Sequence[float] = _GRID,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> PriceCrossover:
    """Find who is cheapest at which ratio of prices (module docstring).

    Parameters
    ----------
    jobs : JobTable
        Of the trace.
    options : PolicyOptions
        ``colocated_factor`` is the iteration time of a co-located job over its solo time.
    convention : {"work", "wallclock"}
        What ends a stay.
    policies : sequence of str
        Who competes; ties go to the earlier.
    ratios : sequence of float
        The grid, ascending, above 0.
    tolerance : float
        Length of the interval of ratios that a crossover is found to.
    progress : callable, optional
        Called with (ratios of the grid done, ratios of the grid).

    Raises
    ------
    InputError
        For a grid, a tolerance or prices that make no sense.
    InfeasibleError
        When a job cannot run even alone.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> jobs = read_trace(catalog_path("tiny-open-shop")).jobs
    >>> found = price_crossover(jobs, policies=("weave", "solo"), ratios=(1.0, 8.0))
    >>> found.spans, found.replays  # solo holds the same nodes whatever they cost
    ((('weave', 1.0, 8.0),), 4)
    """
    require_convention(convention)
    grid, names = tuple(float(ratio) for ratio in ratios), tuple(policies)
    cluster = options.cluster
    _require(grid, tolerance, cluster)
    costs = _Costs(jobs, names, options, convention)
    points = []
    for done, ratio in enumerate(grid, start=1):
        points.append(costs.point(ratio))
        if progress is not None:
            progress(done, len(grid))
    crossovers = _changes(lambda at: costs.cheapest(names, at), grid, tolerance)
    fixed = tuple(
        _fixed(costs, first, second, cluster, grid, tolerance)
        for first, second in combinations(names, 2)
    )
    return PriceCrossover(
        policies=names,
        convention=convention,
        colocated_factor=options.colocated_factor,
        tolerance=tolerance,
        base_ratio=price_ratio(cluster),
        points=tuple(points),
        crossovers=tuple(crossovers),
        fixed=fixed,
        replays=costs.replays,
    )
