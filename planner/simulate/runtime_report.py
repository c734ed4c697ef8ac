"""SLOs in reality: what planning for less than the worst case saves, and whose promise it breaks.

A trace is planned at several levels, as in :mod:`planner.size.plan_at`: with a quantile of each
job's phase seconds in place of the worst case, the promises in seconds unchanged. Each plan is then
run by :mod:`planner.simulate.runtime`, ``replications`` times, with lengths drawn by
:mod:`planner.simulate.lengths`; replication ``r`` draws the same for every level, so differences
between levels are paired. Means over replications come with a 95 % interval
(:mod:`planner.replay.interval`); the price of a plan does not vary with the draws and has none.

*What is planned with*. ``columns``: the laws of :mod:`planner.size.sampled_runtimes`, where train
always takes the worst case unless the trace gives its percentiles. ``profile``: percentiles
measured on ``PROFILE_ITERATIONS`` iterations drawn apart, of both phases, so that train is planned
as short as its tokens are.

The last level is what savings are counted from. Versions last as planned: who is done sooner than
planned stays all the same, and who is later leaves before its work is done
(``iterations_over_planned``). So ``usd_total`` alone misleads, under ``work`` above all, where
stays are planned by the same short phases; ``usd_per_work_hour`` is what the work really costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import log
from statistics import NormalDist
from typing import Any, Final, Literal

import numpy as np

from instances.errors import InputError, UnsupportedError
from instances.jobs import JobTable
from models.problem.options import Deadline
from planner.policies.policy import PolicyOptions
from planner.policies.registry import make_policy
from planner.policies.replay_result import Convention, ReplayResult
from planner.replay.interval import Interval, interval
from planner.replay.replaying import replay, require_convention
from planner.simulate.lengths import PhaseSampler
from planner.simulate.runtime import Discipline, RuntimeReport, Switches, simulate_plan
from planner.simulate.runtime_setup import WARM, require_discipline
from planner.size.plan_at import LEVELS, PlanLevel, jobs_at
from planner.size.sampled_runtimes import JobLaw, Law, job_laws

__all__ = ["PROFILE_ITERATIONS", "Execution", "SloRow", "profiled_laws", "slo_study"]

Progress = Callable[[int, int], None]
PlanWith = Literal["columns", "profile"]

#: Iterations of a profile.
PROFILE_ITERATIONS: Final = 1024
#: Number of a profile's first iteration: far beyond any that is run.
_PROFILE_FROM: Final = 2**40
_SHARES: Final = (0.05, 0.5, 0.95, 0.99)
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How plans are run.

    Attributes
    ----------
    replications : int
    discipline : {"round-robin", "fifo"}
    interference : float
        Share by which runs on shared nodes take longer; plans do not know of it.
    switches : Switches
    most_iterations : int or None
        Most periods that one version is run for.
    """

    replications: int = 5
    discipline: Discipline = "round-robin"
    interference: float = 0.0
    switches: Switches = WARM
    most_iterations: int | None = None

    def __post_init__(self) -> None:
        count = self.replications
        if isinstance(count, bool) or count < 1:
            raise InputError(f"Expected replications >= 1, got {count!r}.")
        require_discipline(self.discipline, self.interference)


_EXECUTION: Final = Execution()


@dataclass(frozen=True, kw_only=True)
class SloRow:
    """Planning at one level.

    Attributes
    ----------
    level : str
    share : float
    of : {"iteration", "response"}
    plan_with : {"columns", "profile"}
    usd_saved_share : float
        Of ``usd_total``, against the last level.
    usd_per_work_hour : Interval
        ``usd_total`` over the work done, each iteration worth its worst-case ``T_j``: under
        ``work`` a plan made for short phases ends stays before their iterations are done.
    work_saved_share : float
        Of the mean of that, against the last level.
    slo_attainment : Interval
        Share of sync jobs whose mean iteration time keeps the promise.
    jobs_missed_least, jobs_missed_most : int
        Over replications.
    jobs_ever_missed : int
        Jobs that miss in any replication.
    late_iterations_share : Interval
        Single iterations longer than ``D_j``.
    worst_over_deadline : float
        The largest mean iteration time over ``D_j`` of any job and replication.
    iterations_over_planned : Interval
    idle_rollout, idle_train : Interval
        Share of the provisioned node-seconds in which no phase runs.
    slowdowns, over_deadline : tuple of float
        Of every job its mean iteration time over worst-case ``T_j`` and over ``D_j``, mean over
        replications; infinite where one does no iteration. Not in ``row``.
    replications, seed : int
    """

    level: str
    share: float
    of: str
    plan_with: str
    convention: str
    policy: str
    discipline: str
    interference: float
    usd_total: float
    usd_per_hour_mean: float
    usd_saved_share: float
    usd_per_work_hour: Interval
    work_saved_share: float
    jobs: int
    slo_attainment: Interval
    jobs_missed_least: int
    jobs_missed_most: int
    jobs_ever_missed: int
    late_iterations_share: Interval
    worst_over_deadline: float
    iterations_over_planned: Interval
    idle_rollout: Interval
    idle_train: Interval
    replications: int
    seed: int
    slowdowns: tuple[float, ...] = ()
    over_deadline: tuple[float, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """The row as plain values: an interval is its mean, low and high."""
        out: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name in ("slowdowns", "over_deadline"):
                continue
            if isinstance(value, dict):
                out[name] = value["mean"]
                out[f"{name}_low"], out[f"{name}_high"] = value["low"], value["high"]
            else:
                out[name] = value
        return out


def profiled_laws(
    sampler: PhaseSampler, *, iterations: int = PROFILE_ITERATIONS
) -> tuple[JobLaw, ...]:
    """Return laws of both phases measured on iterations that no run reaches, one per job.

    Their quantiles at 5, 50, 95 and 99 % are those of the profile, and no more than the worst case.
    """
    laws = []
    for j, law in enumerate(job_laws(sampler.jobs)):
        rollout_s, train_s = sampler.phases(j, _PROFILE_FROM, iterations)
        laws.append(
            replace(
                law,
                rollout=_measured(rollout_s, float(sampler.jobs.rollout_s[j])),
                train=_measured(train_s, float(sampler.jobs.train_s[j])),
                train_varies=True,
            )
        )
    return tuple(laws)


def _measured(seconds: np.ndarray[Any, np.dtype[np.float64]], most_s: float) -> Law:
    """Return the law through the quantiles of a sample."""
    points = np.quantile(seconds, _SHARES)
    return Law(
        most_s,
        tuple(_NORMAL.inv_cdf(share) for share in _SHARES),
        tuple(log(max(float(point), 1e-300)) for point in points),
    )


def slo_study(  # noqa: PLR0913 - one argument per question of the study
    jobs: JobTable,
    sampler_of: Callable[[int], PhaseSampler],
    *,
    policy: str,
    options: PolicyOptions,
    convention: Convention,
    levels: Sequence[PlanLevel] = LEVELS,
    execution: Execution = _EXECUTION,
    plan_with: PlanWith = "columns",
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> Iterator[SloRow]:
    """Yield what planning at each level saves and risks, the last level first.

    Parameters
    ----------
    jobs : JobTable
    sampler_of : callable
        From the number of a replication to its draws; number 0 also gives the profile.
    policy : str
        One that promises valid plans.
    options : PolicyOptions
    convention : {"work", "wallclock"}
    levels : sequence of PlanLevel
        The last is what savings are counted from.
    execution : Execution
    plan_with : {"columns", "profile"}
        What is planned with (module docstring).
    deadline : Deadline, optional
        A row of which only some replications are done by then has those; without any there is
        no row.
    progress : callable, optional
        Called with (runs done, runs).

    Raises
    ------
    InputError
        For no levels, or an unknown policy or convention.
    UnsupportedError
        When the policy has no order of phases to run, such as ``colocated``, or no job has one.
    """
    require_convention(convention)
    if not levels:
        raise InputError("Expected at least one level to plan at, got none.")
    if plan_with not in ("columns", "profile"):
        raise InputError(f"Expected plan_with columns or profile, got '{plan_with}'.")
    if not make_policy(policy, options).promises_valid:
        raise UnsupportedError(
            f"Expected a policy that promises valid plans, got '{policy}': there is no order of "
            "phases to run."
        )
    if all(mode == "async" for mode in jobs.mode):
        raise UnsupportedError(
            "Expected a job that runs in phases, got async jobs alone: there is no order to run."
        )
    samplers = [sampler_of(number) for number in range(execution.replications)]
    laws = job_laws(jobs) if plan_with == "columns" else profiled_laws(samplers[0])
    total, done = len(levels) * len(samplers), 0
    base: SloRow | None = None
    for level in (levels[-1], *levels[:-1]):
        result = replay(
            jobs_at(jobs, laws, level, convention), policy, options, convention=convention
        )
        reports: list[RuntimeReport] = []
        for sampler in samplers:
            report = _run(result, sampler, execution, deadline)
            if not report.complete:
                break
            reports.append(report)
            done += 1
            if progress is not None:
                progress(done, total)
        if reports:
            row = _row(level, plan_with, result, execution, samplers[0].seed, reports)
            base = row if base is None else base
            yield replace(
                row,
                usd_saved_share=1 - row.usd_total / base.usd_total,
                work_saved_share=1 - row.usd_per_work_hour.mean / base.usd_per_work_hour.mean,
            )
        if len(reports) < len(samplers):
            return


def _run(
    result: ReplayResult, sampler: PhaseSampler, execution: Execution, deadline: Deadline | None
) -> RuntimeReport:
    assert result.plan is not None  # a replay keeps its plan
    return simulate_plan(
        result.plan,
        sampler,
        discipline=execution.discipline,
        interference=execution.interference,
        switches=execution.switches,
        most_iterations=execution.most_iterations,
        deadline=deadline,
    )


def _row(
    level: PlanLevel,
    plan_with: str,
    result: ReplayResult,
    execution: Execution,
    seed: int,
    reports: Sequence[RuntimeReport],
) -> SloRow:
    """Return the row, what is saved not yet filled in."""
    missed = np.array([report.missed for report in reports])
    each = missed.sum(axis=1)
    return SloRow(
        level=level.label,
        share=level.share,
        of=level.of,
        plan_with=plan_with,
        convention=result.convention,
        policy=result.policy,
        discipline=execution.discipline,
        interference=execution.interference,
        usd_total=result.usd_total,
        usd_per_hour_mean=result.usd_per_hour_mean,
        usd_saved_share=0.0,
        usd_per_work_hour=interval([result.usd_total / report.work_h for report in reports]),
        work_saved_share=0.0,
        jobs=missed.shape[1],
        slo_attainment=interval([report.slo_attainment for report in reports]),
        jobs_missed_least=int(each.min()),
        jobs_missed_most=int(each.max()),
        jobs_ever_missed=int(missed.any(axis=0).sum()),
        late_iterations_share=interval([report.late_share for report in reports]),
        worst_over_deadline=max(report.worst_over_deadline for report in reports),
        iterations_over_planned=interval([report.done_over_planned for report in reports]),
        idle_rollout=interval([report.idle_fraction["rollout"] for report in reports]),
        idle_train=interval([report.idle_fraction["train"] for report in reports]),
        replications=len(reports),
        seed=seed,
        slowdowns=tuple(np.mean([report.slowdown for report in reports], axis=0).tolist()),
        over_deadline=tuple(
            np.mean([r.mean_iteration_s / r.deadline_s for r in reports], axis=0).tolist()
        ),
    )
