"""Planning for less than the worst case: what it saves, and the SLO risk it takes on.

Planned at the quantile q, the trace is replayed with the q-quantile (over iterations) of each
job's phase seconds in place of the worst case, by the laws of :mod:`planner.size.sampled_runtimes`.
The promise does not move: ``D_j = sigma_j T_j`` with the worst-case ``T_j``, so the planner sees
``sigma' = D_j / T_j(q) >= sigma_j``. Both phases stand at the same quantile, so ``T_j(q)`` is the
q-quantile of ``T_j``. Under ``work`` the number of iterations is kept, hence stays shorten with
``T_j(q)``: part of what is saved there is due to time that worst-case plans overstate, and ``solo``
at the same quantile shows how much. Under ``wallclock`` stays are fixed.

Quantiles are over *iterations*, whose rollouts wait for the longest of a whole batch. The quantile
over single *responses* is far shorter and easily mistaken for it; ``RESPONSE_LEVELS`` plan at it to
show what that risks. Their cost under ``work`` is understated, as stays are spent at the planned
iteration time.

The risk is measured: the plan's fixed orders are run with sampled seconds, ``samples`` times.
Planned at ``max`` nobody misses a promise. Async jobs share nothing; their seconds stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from instances.errors import InputError, UnsupportedError
from instances.jobs import JobTable
from planner.policies.policy import PolicyOptions
from planner.policies.registry import make_policy
from planner.policies.replay_result import Convention, ReplayResult
from planner.replay.demand import demand_of
from planner.replay.replaying import replay, require_convention
from planner.size.sampled_runtimes import SOURCES, JobLaw, job_laws, run_sampled
from planner.size.what_changes import owned_nodes, paid_and_held

if TYPE_CHECKING:
    from planner.size.economics import CostModel

__all__ = [
    "LEVELS",
    "RESPONSE_LEVELS",
    "PlanAtRow",
    "PlanLevel",
    "Sampling",
    "each_level",
    "jobs_at",
    "plan_at",
]

Progress = Callable[[int, int], None]


class PlanLevel(NamedTuple):
    """What one may plan for.

    Attributes
    ----------
    label : str
    share : float
        Of iterations, or of responses, that take no longer; in (0, 1].
    of : {"iteration", "response"}
        Whose quantile it is (module docstring).
    """

    label: str
    share: float
    of: Literal["iteration", "response"] = "iteration"


LEVELS: Final = (
    PlanLevel("p50", 0.5),
    PlanLevel("p95", 0.95),
    PlanLevel("p99", 0.99),
    PlanLevel("max", 1.0),
)
#: By the length of one response: what is easily mistaken for the above.
RESPONSE_LEVELS: Final = (
    PlanLevel("p95 response", 0.95, "response"),
    PlanLevel("p99 response", 0.99, "response"),
    PlanLevel("max", 1.0),
)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a plan is run.

    Attributes
    ----------
    samples : int
        Executions of each plan.
    seed : int
        Of the draws, the same for every plan.
    most_periods : int
        Most periods that one version of a group is run for.
    """

    samples: int = 5
    seed: int = 0
    most_periods: int = 1000

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("seed", 0), ("most_periods", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")


_SAMPLING: Final = Sampling()


@dataclass(frozen=True, kw_only=True)
class PlanAtRow:
    """Planning at one quantile.

    Attributes
    ----------
    label : str
    share : float
    of : str
        As in :class:`PlanLevel`.
    usd_total_change, own_rent_change : float or None
        Share by which ``usd_total``, and ``own_rent_usd_per_hour`` times ``horizon_h``, exceed
        those of the last level, the worst case by default: totals, as horizons differ.
    sync_jobs : int
        Jobs that the risk is about.
    jobs_missed_share : float
        Jobs whose mean iteration time exceeds ``D_j``, share, mean over the samples.
    jobs_missed_least, jobs_missed_most : int
        Over the samples.
    late_iterations_share : float
        Single iterations later than ``D_j``, share.
    worst_over_deadline : float
        The largest mean iteration time over ``D_j``, of any job and sample.
    samples, seed : int
    by_rollout_columns, by_response_columns, by_guess : int
        Jobs by where their rollout's law comes from.
    train_varies : int
        Jobs whose train seconds vary; the others' are always the worst case.
    """

    label: str
    share: float
    of: str
    usd_per_hour_mean: float
    usd_total: float
    usd_total_change: float | None
    horizon_h: float
    peak_rollout_nodes: int
    peak_train_nodes: int
    p95_rollout_nodes: int
    p95_train_nodes: int
    owned_rollout_nodes: int | None
    owned_train_nodes: int | None
    own_rent_usd_per_hour: float | None
    own_rent_change: float | None
    sync_jobs: int
    jobs_missed_share: float
    jobs_missed_least: int
    jobs_missed_most: int
    late_iterations_share: float
    worst_over_deadline: float
    samples: int
    seed: int
    by_rollout_columns: int
    by_response_columns: int
    by_guess: int
    train_varies: int

    @property
    def row(self) -> dict[str, Any]:
        """The row as plain values."""
        return asdict(self)


def _require_levels(levels: Sequence[PlanLevel]) -> None:
    if not levels:
        raise InputError("Expected at least one level to plan at, got none.")
    for level in levels:
        if not 0 < level.share <= 1:
            raise InputError(
                f"Expected a share in (0, 1] to plan at, got {level.share!r} ({level.label})."
            )
        if level.of not in ("iteration", "response"):
            raise InputError(
                f"Expected iteration or response to plan at, got '{level.of}' ({level.label})."
            )


def jobs_at(
    jobs: JobTable, laws: Sequence[JobLaw], level: PlanLevel, convention: Convention
) -> JobTable:
    """Return the jobs as planned at a level: other seconds, the same promises in seconds."""
    share = level.share
    sync = np.array([mode != "async" for mode in jobs.mode], dtype=np.bool_)
    rollouts = [law.rollout if level.of == "iteration" else law.response for law in laws]
    rollout_s = np.array([law.seconds(share) for law in rollouts])
    train_s = np.array([law.train.seconds(share) for law in laws])
    planned = jobs.replace(
        rollout_s=np.where(sync, rollout_s, jobs.rollout_s),
        train_s=np.where(sync, train_s, jobs.train_s),
    )
    ratio = planned.solo_s / jobs.solo_s  # exactly 1 where nothing changes
    planned = planned.replace(slo=jobs.slo / ratio)
    return planned.replace(duration_s=jobs.duration_s * ratio) if convention == "work" else planned


def each_level(
    jobs: JobTable,
    *,
    policy: str,
    options: PolicyOptions,
    convention: Convention,
    costs: CostModel | None = None,
    levels: Sequence[PlanLevel] = LEVELS,
    sampling: Sampling = _SAMPLING,
    progress: Progress | None = None,
) -> Iterator[PlanAtRow]:
    """Yield the rows of :func:`plan_at`, the last level's first: the others are held against it."""
    require_convention(convention)
    _require_levels(levels)
    if not make_policy(policy, options).promises_valid:
        raise UnsupportedError(
            f"Expected a policy that promises valid plans, got '{policy}': there is no order of "
            "phases to run."
        )
    laws = job_laws(jobs)
    total, done = len(levels) * sampling.samples, 0
    base: PlanAtRow | None = None
    for level in (levels[-1], *levels[:-1]):
        study = _Level(jobs, laws, level, policy, options, convention)
        for sample in range(sampling.samples):
            study.run(sample, sampling)
            done += 1
            if progress is not None:
                progress(done, total)
        row = study.row(costs, sampling.seed)
        base = row if base is None else base
        yield replace(
            row,
            usd_total_change=row.usd_total / base.usd_total - 1 if base.usd_total else None,
            own_rent_change=_own_rent_change(row, base),
        )


def _own_rent_change(row: PlanAtRow, base: PlanAtRow) -> float | None:
    """Return by what share a level costs more, owned and rented, for the same work."""
    usd, base_usd = row.own_rent_usd_per_hour, base.own_rent_usd_per_hour
    if usd is None or not base_usd:
        return None
    return usd * row.horizon_h / (base_usd * base.horizon_h) - 1


class _Level:
    """One quantile: the replay planned at it, and its executions."""

    def __init__(
        self,
        jobs: JobTable,
        laws: tuple[JobLaw, ...],
        level: PlanLevel,
        policy: str,
        options: PolicyOptions,
        convention: Convention,
    ) -> None:
        self._jobs, self._laws, self._level = jobs, laws, level
        planned = jobs_at(jobs, laws, level, convention)
        self._result: ReplayResult = replay(planned, policy, options, convention=convention)
        self._missed: list[int] = []
        self._late: list[float] = []
        self._worst = 0.0

    def run(self, sample: int, sampling: Sampling) -> None:
        """Run the plan once with sampled seconds."""
        assert self._result.plan is not None  # a replay keeps its plan
        found = run_sampled(
            self._result.plan,
            self._jobs,
            self._laws,
            seed=(sampling.seed, sample),
            most_periods=sampling.most_periods,
        )
        self._missed.append(int(found.missed.sum()))
        self._late.append(found.late_share)
        over = found.mean_iteration_s / found.deadline_s
        self._worst = max(self._worst, float(over.max(initial=0.0)))

    def row(self, costs: CostModel | None, seed: int) -> PlanAtRow:
        """Return the row, changes not yet filled in."""
        result = self._result
        demand = demand_of(result)
        owned = owned_nodes(demand, costs)
        sync = [
            law for law, mode in zip(self._laws, self._jobs.mode, strict=True) if mode != "async"
        ]
        sources = Counter(law.source for law in sync)
        return PlanAtRow(
            label=self._level.label,
            share=self._level.share,
            of=self._level.of,
            **paid_and_held(result, demand, owned),
            usd_total_change=0.0,
            own_rent_change=None,
            sync_jobs=len(sync),
            jobs_missed_share=float(np.mean(self._missed)) / len(sync) if sync else 0.0,
            jobs_missed_least=min(self._missed),
            jobs_missed_most=max(self._missed),
            late_iterations_share=float(np.mean(self._late)),
            worst_over_deadline=self._worst,
            samples=len(self._missed),
            seed=seed,
            by_rollout_columns=sources[SOURCES[0]],
            by_response_columns=sources[SOURCES[1]],
            by_guess=sources[SOURCES[2]],
            train_varies=sum(law.train_varies for law in sync),
        )


def plan_at(
    jobs: JobTable,
    *,
    policy: str,
    options: PolicyOptions,
    convention: Convention,
    costs: CostModel | None = None,
    levels: Sequence[PlanLevel] = LEVELS,
    sampling: Sampling = _SAMPLING,
    progress: Progress | None = None,
) -> tuple[PlanAtRow, ...]:
    """Return what planning at each quantile costs and risks, in the order of ``levels``.

    Parameters
    ----------
    jobs : JobTable
    policy : str
        One that promises valid plans.
    options : PolicyOptions
    convention : {"work", "wallclock"}
    costs : CostModel, optional
        For owned counts; without, those fields are ``None``.
    levels : sequence of PlanLevel
        The last is what changes are counted from.
    sampling : Sampling
        Executions of each plan; the same draws for every level.
    progress : callable, optional
        Called with (executions done, executions).

    Raises
    ------
    InputError
        For no levels or senseless ones, or an unknown policy or convention.
    UnsupportedError
        When the policy has no order of phases to run, such as ``colocated``.
    """
    rows = tuple(
        each_level(
            jobs,
            policy=policy,
            options=options,
            convention=convention,
            costs=costs,
            levels=levels,
            sampling=sampling,
            progress=progress,
        )
    )
    return (*rows[1:], rows[0])
