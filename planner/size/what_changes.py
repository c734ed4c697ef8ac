"""What would change the answer: one replay per level of each factor, held against the base.

A row is one level of one factor (:mod:`planner.policies.change_factors`), everything else as in the
base. Rows come factor by factor in the order given, levels in the factor's order, the base's own
level once per factor and marked. Costs of a row:

* ``usd_per_hour_mean``, ``usd_total``: every node paid exactly while it is held;
* ``own_rent_usd_per_hour``: the least-cost owned counts with rented overflow, where a cost model
  is given (:func:`planner.size.economics.owned_and_rented`).

Under ``work`` a level may stretch stays and with them the horizon, over which both hourly prices
are means. So changes are told of totals, which pay for the same work: ``usd_total_change``, and
``own_rent_change`` of what is owned and rented over the level's whole horizon.
``usd_per_hour_change`` is of means over different horizons. Where a job fits no node of a level, no
replay is possible; the row says in words how many do not fit and why, and has no figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from instances.errors import InfeasibleError
from instances.jobs import JobTable
from planner.policies.change_factors import Case, Factor, Level, default_factors
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention, ReplayResult
from planner.replay.demand import Demand, demand_of
from planner.replay.replaying import replay, require_convention

if TYPE_CHECKING:
    from planner.size.economics import CostModel

__all__ = [
    "ChangeRow",
    "OwnedNodes",
    "each_change",
    "owned_nodes",
    "paid_and_held",
    "what_changes",
    "who_does_not_fit",
]

Progress = Callable[[int, int], None]

#: The placer's own slack of host DRAM, GB.
_EPS_GB: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class ChangeRow:
    """One level of one factor.

    Attributes
    ----------
    factor, title, unit, label : str
    value : float
        The level as a number, in ``unit``.
    is_base : bool
        Whether this is the level of the base.
    usd_per_hour_mean, usd_total : float or None
        Nodes paid while held; ``None`` where the level cannot run.
    usd_total_change, usd_per_hour_change : float or None
        Share by which ``usd_total`` and ``usd_per_hour_mean`` exceed the base's.
    own_rent_change : float or None
        Share by which ``own_rent_usd_per_hour`` times ``horizon_h`` exceeds the base's.
    horizon_h : float or None
    peak_rollout_nodes, ... : int or None
        Each pool at its own peak and p95 of time.
    owned_rollout_nodes, owned_train_nodes, own_rent_usd_per_hour
        ``None`` without a cost model.
    links : int or None
    link_utilisation_mean, link_utilisation_peak : float or None
    slo_attainment : float or None
    wait_p95_s : float or None
        Of a fixed fleet: 95 % of the jobs waited no longer.
    cannot_run : str
        Who does not fit and why; empty where all do.
    notes : tuple of str
        How the level was made, and warnings.
    """

    factor: str
    title: str
    unit: str
    label: str
    value: float
    is_base: bool
    usd_per_hour_mean: float | None = None
    usd_total: float | None = None
    usd_total_change: float | None = None
    usd_per_hour_change: float | None = None
    horizon_h: float | None = None
    peak_rollout_nodes: int | None = None
    peak_train_nodes: int | None = None
    p95_rollout_nodes: int | None = None
    p95_train_nodes: int | None = None
    owned_rollout_nodes: int | None = None
    owned_train_nodes: int | None = None
    own_rent_usd_per_hour: float | None = None
    own_rent_change: float | None = None
    links: int | None = None
    link_utilisation_mean: float | None = None
    link_utilisation_peak: float | None = None
    slo_attainment: float | None = None
    wait_p95_s: float | None = None
    cannot_run: str = ""
    notes: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """The row as plain values, notes joined by a semicolon."""
        return {**asdict(self), "notes": "; ".join(self.notes)}


# --- who does not fit -----------------------------------------------------------------------------


def who_does_not_fit(jobs: JobTable, options: PolicyOptions) -> str:
    """Return in words how many jobs cannot run even alone, and why; empty when all can."""
    reasons: list[str] = []
    out: set[int] = set()
    cluster, limits, fleet = options.cluster, options.limits, options.fleet
    for pool, node in (("rollout", cluster.rollout), ("train", cluster.train)):
        gb = getattr(jobs, f"{pool}_state_gb")
        over = [i for i in range(len(jobs)) if gb[i] > node.host_dram_gb + _EPS_GB]
        if over:
            worst = max(over, key=lambda i: float(gb[i]))
            reasons.append(
                f"{len(over)} need more host DRAM than the {node.host_dram_gb:g} GB of a {pool} "
                f"node (up to {gb[worst]:g} GB, job '{jobs.job_id[worst]}')"
            )
            out.update(over)
    for pool, most, whose in (
        ("rollout", limits.max_rollout_nodes, "a group"),
        ("train", limits.max_train_nodes, "a group"),
        ("rollout", fleet and fleet.rollout_nodes, "the fleet"),
        ("train", fleet and fleet.train_nodes, "the fleet"),
    ):
        width = getattr(jobs, f"{pool}_nodes")
        over = [] if most is None else [i for i in range(len(jobs)) if width[i] > most]
        if over:
            worst = max(over, key=lambda i: int(width[i]))
            reasons.append(
                f"{len(over)} need more {pool} nodes than the {most} of {whose} (up to "
                f"{width[worst]}, job '{jobs.job_id[worst]}')"
            )
            out.update(over)
    if not out:
        return ""
    return f"{len(out)} of {len(jobs)} jobs do not fit: {'; '.join(reasons)}"


# --- one row --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnedNodes:
    """Least-cost owned counts, and what they and rented overflow cost, $/h; ``None``: unknown."""

    rollout_nodes: int | None = None
    train_nodes: int | None = None
    usd_per_hour: float | None = None

    def usd_over(self, hours: float) -> float | None:
        """Return what they cost over so many hours, $."""
        return None if self.usd_per_hour is None else self.usd_per_hour * hours


def owned_nodes(demand: Demand, costs: CostModel | None) -> OwnedNodes:
    """Return the least-cost owned counts of a demand; all ``None`` without a cost model."""
    if costs is None:
        return OwnedNodes()
    from planner.size.economics import owned_and_rented

    found = owned_and_rented(demand, costs)
    return OwnedNodes(*found.owned, found.usd_per_hour)


def paid_and_held(result: ReplayResult, demand: Demand, owned: OwnedNodes) -> dict[str, Any]:
    """Return what a replay pays and holds, by the names that rows of such studies have."""
    return {
        "usd_per_hour_mean": result.usd_per_hour_mean,
        "usd_total": result.usd_total,
        "horizon_h": result.horizon_h,
        "peak_rollout_nodes": demand.peak("rollout"),
        "peak_train_nodes": demand.peak("train"),
        "p95_rollout_nodes": demand.quantile("rollout", 0.95),
        "p95_train_nodes": demand.quantile("train", 0.95),
        "owned_rollout_nodes": owned.rollout_nodes,
        "owned_train_nodes": owned.train_nodes,
        "own_rent_usd_per_hour": owned.usd_per_hour,
    }


def _share(value: float | None, base: float | None) -> float | None:
    """Return by what share a value exceeds the base's; ``None`` where one is unknown or 0."""
    return None if value is None or not base else value / base - 1.0


class _Study:
    """One policy and convention: replays, each made once, and rows against the base."""

    def __init__(
        self, policy: str, base: Case, costs: CostModel | None, convention: Convention
    ) -> None:
        self._policy, self._convention, self._costs = policy, convention, costs
        self.base_case = base
        self.base = self._replayed(base)
        self._base_usd: tuple[float | None, float | None] = None, None
        self._base_own_rent_usd: float | None = None
        if self.base is not None:
            self._base_usd = self.base.usd_total, self.base.usd_per_hour_mean
            owned = owned_nodes(demand_of(self.base), costs)
            self._base_own_rent_usd = owned.usd_over(self.base.horizon_h)

    def _replayed(self, case: Case) -> ReplayResult | None:
        """Return the replay of a case; ``None`` where a job does not fit."""
        try:
            found = replay(case.jobs, self._policy, case.options, convention=self._convention)
        except InfeasibleError:
            return None
        return found.without_plan()

    def row(self, factor: Factor, level: Level, is_base: bool) -> ChangeRow:
        """Return the row of a level."""
        case = self.base_case if is_base else factor.change(self.base_case, level.value)
        empty = ChangeRow(
            factor=factor.name,
            title=factor.title,
            unit=factor.unit,
            label=level.label,
            value=level.value,
            is_base=is_base,
            notes=case.notes,
        )
        if is_base:
            result = self.base
        elif not factor.replays:
            result = self.base and replace(self.base, cluster=case.options.cluster)
        else:
            result = self._replayed(case)
        if result is None:
            why = who_does_not_fit(case.jobs, case.options)
            return replace(empty, cannot_run=why or "a job does not fit")
        return self._filled(empty, result)

    def _filled(self, row: ChangeRow, result: ReplayResult) -> ChangeRow:
        demand = demand_of(result)
        owned = owned_nodes(demand, self._costs)
        used = result.link_utilisation
        notes = row.notes
        if used["peak"] > 1:
            notes += (f"the links are overbooked: {used['peak']:.2f} of their capacity at peak",)
        return replace(
            row,
            **paid_and_held(result, demand, owned),
            usd_total_change=_share(result.usd_total, self._base_usd[0]),
            usd_per_hour_change=_share(result.usd_per_hour_mean, self._base_usd[1]),
            own_rent_change=_share(owned.usd_over(result.horizon_h), self._base_own_rent_usd),
            links=result.links,
            link_utilisation_mean=used["mean"],
            link_utilisation_peak=used["peak"],
            slo_attainment=result.slo_attainment,
            wait_p95_s=None if result.fleet is None else result.wait_quantile(0.95),
            notes=notes,
        )


# --- the table ------------------------------------------------------------------------------------


def each_change(
    jobs: JobTable,
    *,
    policy: str,
    options: PolicyOptions,
    convention: Convention,
    costs: CostModel | None = None,
    factors: Sequence[Factor] | None = None,
    progress: Progress | None = None,
) -> Iterator[ChangeRow]:
    """Yield the rows of :func:`what_changes`, each as soon as it is known."""
    require_convention(convention)
    base = Case(jobs, replace(options, convention=convention))
    study = _Study(policy, base, costs, convention)
    todo = [
        (factor, level, is_base)
        for factor in (default_factors() if factors is None else factors)
        for level, is_base in factor.with_base(base)
    ]
    for done, (factor, level, is_base) in enumerate(todo, start=1):
        row = study.row(factor, level, is_base)
        if progress is not None:
            progress(done, len(todo))
        yield row


def what_changes(
    jobs: JobTable,
    *,
    policy: str,
    options: PolicyOptions,
    convention: Convention,
    costs: CostModel | None = None,
    factors: Sequence[Factor] | None = None,
    progress: Progress | None = None,
) -> tuple[ChangeRow, ...]:
    """Return one row per level of each factor (module docstring).

    Parameters
    ----------
    jobs : JobTable
    policy : str
        Name in ``planner.policies.registry.POLICIES``.
    options : PolicyOptions
        Of the base.
    convention : {"work", "wallclock"}
    costs : CostModel, optional
        For owned counts; without, those fields are ``None``.
    factors : sequence of Factor, optional
        :func:`planner.policies.change_factors.default_factors` unless given.
    progress : callable, optional
        Called with (rows done, rows).

    Raises
    ------
    InputError
        For an unknown policy or convention, or no jobs.
    KeyboardInterrupt
        At Ctrl-C; :func:`each_change` yields what is finished.
    """
    return tuple(
        each_change(
            jobs,
            policy=policy,
            options=options,
            convention=convention,
            costs=costs,
            factors=factors,
            progress=progress,
        )
    )
