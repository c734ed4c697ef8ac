"""Drift: what becomes of cost and SLO when response lengths change over a job's life.

*Lengths* of every job follow a template of a growth shape
(:mod:`planner.simulate.drift_templates`); jobs draw theirs from those of a setting, by seed, the
same whatever the policy (common random numbers).

*What is planned*. ``envelope``: ``arrival`` plans a job with its phase seconds when it arrives, so
growth breaks the plan; ``limit`` with those at the token limit, the worst case, which no length
exceeds unless ``beyond_limit``.

*Policies*.

* ``weave``: static, the replay of the planned seconds as it is;
* ``regroup``: every hour the optimum of the jobs present; ``payback``: the same where the saving
  pays for its moves; ``resubmit``: jobs out of their envelope come back as new arrivals
  (:mod:`planner.policies.regroup`). At envelope ``arrival`` these measure phase seconds anew at
  every review, and after a move a job's envelope is what was measured; at ``limit`` there is
  nothing to measure, the worst case stays what it is;
* ``repack``, ``random``, ``most-idle``, ``solo``: as in a replay, by the planned seconds.

*What happens* is measured by :mod:`planner.simulate.drift_measure`.

Convention ``wallclock``: stays are fixed but for restarts, so a job's share of
life does not depend on the policy, and costs compare the nodes held. Under ``work`` a drifting job
would have another number of iterations to do for every template: refused.

Async jobs do not drift; one-step jobs take part where a policy takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any, Final

from instances.errors import InputError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from models.bounds.volume import VolumeSums
from models.problem.options import Deadline, OutOfTimeError
from models.problem.result import StoppedBy
from planner.placement.placer import PlacerParams
from planner.policies.policy import Policy, PolicyOptions
from planner.policies.registry import make_policy
from planner.policies.regroup import Profile, Regroup, Regrouping, RegroupParams, Resubmit
from planner.policies.replay_result import ReplayResult
from planner.replay.interval import Interval, interval
from planner.replay.loop import ReplayLoop
from planner.replay.published import AGREES, DIFFERS, NOT_COMPARED, Row
from planner.replay.replaying import run_to_end
from planner.simulate.drift_measure import JobDrift, measured
from planner.simulate.drift_templates import (
    DEFAULT_SHAPE,
    START_SHARE,
    GrowthShape,
    LawFactors,
    Lengths,
    drawn_templates,
    require_setting,
)

__all__ = [
    "DRIFT_POLICIES",
    "ENVELOPES",
    "UNKNOWN_INPUTS",
    "DriftParams",
    "DriftRun",
    "DriftStudy",
    "drift_replay",
    "drift_rows",
    "drift_run",
    "drift_study",
    "require_drift_policy",
]

Progress = Callable[[str, int, int], None]

DRIFT_POLICIES: Final = (
    "weave",
    "regroup",
    "payback",
    "resubmit",
    "repack",
    "random",
    "most-idle",
    "solo",
)
ENVELOPES: Final = ("arrival", "limit")
#: What the publication does not say and these figures depend on.
UNKNOWN_INPUTS: Final = (
    "the growth shape: shown as a curve, without numbers",
    "the lengths at arrival over the token limit, and how phases follow lengths",
    "which templates the jobs of a setting have, and how many of each",
    "whether plans hold the phase seconds at arrival or the worst case",
    "whether an SLO is held against the job alone at its present or at its planned lengths",
    "how newcomers are placed between two hourly regroupings, and whether the optimum minds moves",
    "the trace, node counts and profiles of the jobs",
)

_HOUR_S: Final = 3600.0
_WITH_PARAMS: Final = ("regroup", "payback", "resubmit")


@dataclass(frozen=True, kw_only=True)
class DriftParams:
    """What drifts, how it is planned, and how policies decide.

    Attributes
    ----------
    shape : GrowthShape
    start_share : float
        Length at arrival over the token limit, where phases do not follow laws.
    envelope : {"arrival", "limit"}
        The phase seconds that jobs are planned with.
    beyond_limit : bool
        Whether lengths may pass the token limit; not by laws.
    by_law : bool
        Whether phases follow the trace's laws of lengths, the rollout the longest response of a
        batch and train the tokens; both in proportion to the length otherwise.
    limits : Limits
        Of every group; the publication simulates groups of at most five.
    regroup : RegroupParams
        Of ``regroup``, ``payback`` and ``resubmit``; ``keep_slo`` is for the worst case only.

    Raises
    ------
    InputError
        For an unknown envelope, or lengths by law that pass the limit.
    """

    shape: GrowthShape = DEFAULT_SHAPE
    start_share: float = START_SHARE
    envelope: str = "arrival"
    beyond_limit: bool = False
    by_law: bool = True
    cluster: Cluster = DEFAULT_CLUSTER
    limits: Limits = field(default_factory=lambda: Limits(max_group_size=5))
    placer: PlacerParams = field(default_factory=PlacerParams)
    regroup: RegroupParams = field(default_factory=lambda: RegroupParams(keep_slo=False))

    def __post_init__(self) -> None:
        if self.envelope not in ENVELOPES:
            raise InputError(
                f"Expected envelope in {', '.join(ENVELOPES)}, got '{self.envelope}'."
                f"{did_you_mean(self.envelope, ENVELOPES)}"
            )

        if self.by_law and self.beyond_limit:
            raise InputError("Expected one of by_law and beyond_limit, got both: laws are cut off.")

    def lengths(self, jobs: JobTable, templates: Sequence[float]) -> Lengths:
        """Return the lengths of jobs under their templates."""
        return Lengths(
            jobs=jobs,
            template=tuple(templates),
            shape=self.shape,
            start_share=self.start_share,
            beyond_limit=self.beyond_limit,
            factors=LawFactors.of(jobs) if self.by_law else None,
        )


@dataclass(frozen=True, kw_only=True)
class DriftRun:
    """One policy on one trace under drift.

    Attributes
    ----------
    templates : tuple of float
        Per job.
    jobs : mapping of str to JobDrift
        Async jobs left out.
    usd_total : float
        Nodes held, $.
    moves, moved_jobs : int
    paused_h : float
        Hours of restarts, over jobs.
    regroupings : tuple of Regrouping
        Reviews that changed something.
    """

    policy: str
    setting: str
    seed: int
    usd_total: float
    horizon_h: float
    templates: tuple[float, ...]
    jobs: Mapping[str, JobDrift]
    moves: int
    moved_jobs: int
    paused_h: float
    checked: bool
    regroupings: tuple[Regrouping, ...] = ()

    def _share(self, count: int) -> float:
        return count / len(self.jobs) if self.jobs else 1.0

    @property
    def usd_per_hour_mean(self) -> float:
        """Mean price, $/h."""
        return self.usd_total / self.horizon_h

    @property
    def slo_attainment(self) -> float:
        """Share of jobs whose slowdown is within their SLO."""
        return self._share(sum(job.attained for job in self.jobs.values()))

    @property
    def slo_attainment_fixed(self) -> float:
        """Share of jobs within the deadline planned at arrival."""
        return self._share(sum(job.attained_fixed for job in self.jobs.values()))

    @property
    def late_share(self) -> float:
        """Share of job-hours in which the mean iteration is longer than the SLO allows."""
        total = fsum(job.elapsed_s for job in self.jobs.values())
        return fsum(job.late_s for job in self.jobs.values()) / total if total else 0.0

    @property
    def usd_per_alone_hour(self) -> float | None:
        """Cost of what one hour alone gets done, $; ``None`` where nothing was done."""
        hours = fsum(job.alone_s for job in self.jobs.values()) / _HOUR_S
        return self.usd_total / hours if hours else None

    @property
    def break_even_h(self) -> float | None:
        """Hours that the savings of all reviews must last to pay for their moves.

        ``None`` where they save nothing: moves that repair groups do not pay by price.
        """
        saving = fsum(r.usd_per_hour_before - r.usd_per_hour_after for r in self.regroupings)
        return fsum(r.move_usd for r in self.regroupings) / saving if saving > 0 else None

    @property
    def row(self) -> dict[str, Any]:
        """Plain values, units in the names."""
        return {
            "policy": self.policy,
            "setting": self.setting,
            "seed": self.seed,
            "usd_total": self.usd_total,
            "usd_per_hour_mean": self.usd_per_hour_mean,
            "usd_per_alone_hour": self.usd_per_alone_hour,
            "slo_attainment": self.slo_attainment,
            "slo_attainment_fixed": self.slo_attainment_fixed,
            "late_share": self.late_share,
            "moves": self.moves,
            "moved_jobs": self.moved_jobs,
            "paused_h": self.paused_h,
            "reviews_with_changes": len(self.regroupings),
            "reviews_proved": sum(r.proved for r in self.regroupings),
            "break_even_h": self.break_even_h,
            "checked": self.checked,
        }


# --- one run --------------------------------------------------------------------------------------


def drift_run(
    lengths: Lengths,
    policy: str,
    params: DriftParams,
    *,
    setting: str = "given",
    seed: int = 0,
    deadline: Deadline | None = None,
) -> DriftRun:
    """Replay a trace whose lengths drift under a policy, and measure what happened.

    Parameters
    ----------
    lengths : Lengths
        Jobs with the phase seconds at the token limit, and a template for each.
    policy : str
        One of ``DRIFT_POLICIES``.
    setting : str
        Name of the run in outputs.
    seed : int
        Of policies that draw.
    deadline : Deadline, optional

    Raises
    ------
    OutOfTimeError
        When the deadline passes.
    InputError
        For an unknown policy, or no jobs.
    UnsupportedError
        When a policy meets a mode of job that it does not take.
    CheckError
        When a policy that promises valid plans breaks a rule at the seconds it planned with.
    """
    result, made = drift_replay(lengths, policy, params, seed=seed, deadline=deadline)
    assert result.plan is not None
    anew = isinstance(made, Resubmit)
    epoch_s = params.regroup.review_h * _HOUR_S
    return DriftRun(
        policy=policy,
        setting=setting,
        seed=seed,
        usd_total=result.usd_total,
        horizon_h=result.horizon_h,
        templates=lengths.template,
        jobs=measured(result.plan, lengths, _stays(result), epoch_s),
        moves=sum(record.moves for record in result.records),
        moved_jobs=sum(record.moves > 0 for record in result.records),
        paused_h=result.paused_h,
        checked=result.checked or anew,  # these check every group they make
        regroupings=tuple(made.regroupings) if isinstance(made, Resubmit) else (),
    )


def drift_replay(
    lengths: Lengths,
    policy: str,
    params: DriftParams,
    *,
    seed: int = 0,
    deadline: Deadline | None = None,
) -> tuple[ReplayResult, Policy]:
    """Return the replay of a drifting trace by the planned seconds, and the policy at its end.

    Parameters and errors are those of :func:`drift_run`.
    """
    require_drift_policy(policy)
    if not len(lengths.jobs):
        raise InputError("Expected at least one job, got none.")
    planned = lengths.jobs if params.envelope == "limit" else lengths.at_arrival()
    options = PolicyOptions(
        cluster=params.cluster,
        limits=params.limits,
        placer=params.placer,
        seed=seed,
        convention="wallclock",
    )
    made = _policy(policy, options, params, _profile(lengths, params))
    sums = VolumeSums(params.cluster, params.limits)
    loop = ReplayLoop(planned, made, options, "wallclock", True, sums)

    def on_departure(done: int, total: int) -> None:
        if deadline is not None:
            deadline.check()

    result = run_to_end(loop, on_departure)
    return result, made


def require_drift_policy(policy: str) -> None:
    """Raise InputError for a policy that has no drift, with the nearest that has."""
    if policy not in DRIFT_POLICIES:
        raise InputError(
            f"Expected drift_policies in {', '.join(DRIFT_POLICIES)}, got '{policy}'."
            f"{did_you_mean(policy, DRIFT_POLICIES)}"
        )


def _profile(lengths: Lengths, params: DriftParams) -> Profile | None:
    """Return how policies measure phase seconds; ``None`` where the worst case is planned."""
    if params.envelope == "limit":
        return None
    index = {job_id: i for i, job_id in enumerate(lengths.jobs.job_id)}

    def phases_s(job_id: str, running_s: float) -> tuple[float, float]:
        return lengths.phases_s(index[job_id], running_s)

    return phases_s


def _policy(
    name: str, options: PolicyOptions, params: DriftParams, profile: Profile | None
) -> Policy:
    if name not in _WITH_PARAMS:
        return make_policy(name, options)
    how = replace(params.regroup, pays_back=name == "payback")
    kind = Resubmit if name == "resubmit" else Regroup
    return kind(options, how, profile)


def _stays(result: ReplayResult) -> dict[str, tuple[float, float]]:
    """Return when each sync job started and left."""
    return {
        record.job.job_id: (record.start_s, record.departure_s)
        for record in result.records
        if record.job.mode != "async"
    }


# --- a study over seeds ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DriftStudy:
    """Runs of some policies in one setting, the same seeds for all: differences are paired.

    Attributes
    ----------
    seeds : tuple of int
        Those that all policies were run with.
    runs : mapping of str to tuple of DriftRun
        By policy, one per seed.
    stopped_by : StoppedBy or None
        What ended the study before the seeds asked for.
    """

    setting: str
    params: DriftParams
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[DriftRun, ...]]
    stopped_by: StoppedBy | None = None

    def of(self, policy: str, figure: Callable[[DriftRun], float]) -> Interval:
        """Return a figure of a policy, mean and interval over seeds."""
        return interval([figure(run) for run in self.runs[policy]])

    def cost_ratio(self, above: str, below: str) -> Interval:
        """Return the cost of one policy over that of another, pair by pair."""
        return interval(
            [
                a.usd_total / b.usd_total
                for a, b in zip(self.runs[above], self.runs[below], strict=True)
            ]
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every run as plain values."""
        return [run.row for runs in self.runs.values() for run in runs]


def drift_study(
    jobs: JobTable | Callable[[int], JobTable],
    setting: str,
    policies: Sequence[str] = ("weave", "regroup", "payback", "resubmit", "random", "most-idle"),
    seeds: Sequence[int] = (0, 1, 2),
    params: DriftParams | None = None,
    *,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> DriftStudy:
    """Run policies on a trace under the templates of a setting, seed by seed.

    Parameters
    ----------
    jobs : JobTable or callable
        Phase seconds at the token limit; or a function from a seed to such jobs.
    setting : {"none", "increasing", "decreasing", "mixed"}
    policies : sequence of str
        Of ``DRIFT_POLICIES``.
    seeds : sequence of int
        Each draws the templates, and what a policy draws.
    deadline : Deadline, optional
        At it, as at Ctrl-C, the seeds that are complete are returned.
    progress : callable, optional
        Called with (setting, runs done, runs).

    Raises
    ------
    InputError
        For an unknown setting or policy, or without seeds or policies.
    OutOfTimeError, KeyboardInterrupt
        When no seed is complete by then.
    """
    require_setting(setting)
    for policy in policies:
        require_drift_policy(policy)
    if not seeds or not policies:
        raise InputError("Expected at least one seed and one policy, got none.")
    if len(set(policies)) < len(policies):
        raise InputError(f"Expected distinct policies, got {', '.join(policies)}.")
    params = DriftParams() if params is None else params
    complete: list[list[DriftRun]] = []
    stopped_by: StoppedBy | None = None
    try:
        for seed in seeds:
            table = jobs if isinstance(jobs, JobTable) else jobs(seed)
            lengths = params.lengths(table, drawn_templates(len(table), setting, seed))
            found: list[DriftRun] = []
            for policy in policies:
                found.append(
                    drift_run(
                        lengths, policy, params, setting=setting, seed=seed, deadline=deadline
                    )
                )
                if progress is not None:
                    done = len(complete) * len(policies) + len(found)
                    progress(setting, done, len(seeds) * len(policies))
            complete.append(found)
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        if not complete:
            raise
        stopped_by = StoppedBy.TIME if isinstance(stop, OutOfTimeError) else StoppedBy.INTERRUPT
    return DriftStudy(
        setting=setting,
        params=params,
        seeds=tuple(seeds[: len(complete)]),
        runs=dict(zip(policies, zip(*complete, strict=True), strict=True)),
        stopped_by=stopped_by,
    )


# --- beside the publication -----------------------------------------------------------------------

#: Setting, static over hourly cost, and SLO attainment of the static plan, %.
_PUBLISHED: Final = (
    ("increasing", "1.11", "98.6"),
    ("decreasing", "1.10", "98.7"),
    ("mixed", "1.08", "95.6"),
)
_WHY: Final = f"not published: {'; '.join(UNKNOWN_INPUTS)}"


def drift_rows(studies: Mapping[str, DriftStudy], *, study: str = "drift") -> list[Row]:
    """Return the published figures beside ours, for ``planner reproduce``.

    Parameters
    ----------
    studies : mapping of str to DriftStudy
        By setting; with policies ``weave`` and ``regroup``. What is missing is not compared.
    """
    out = []
    for setting, ratio, slo in _PUBLISHED:
        found = studies.get(setting)
        cost = present = planned = None
        if found is not None and {"weave", "regroup"} <= set(found.runs):
            cost = found.cost_ratio("weave", "regroup")
        if found is not None and "weave" in found.runs:
            present = found.of("weave", lambda run: 100 * run.slo_attainment)
            planned = found.of("weave", lambda run: 100 * run.slo_attainment_fixed)
        name = f"drift {setting}"
        out += [
            _row(study, f"{name}, static over hourly optimum", ratio, "x", cost),
            _row(study, f"{name}, SLOs met, by present lengths", slo, "%", present),
            _row(study, f"{name}, SLOs met, by planned lengths", slo, "%", planned),
        ]
    return out


def _row(study: str, item: str, published: str, unit: str, ours: Interval | None) -> Row:
    value = float(published)
    if ours is None:
        verdict, why = NOT_COMPARED, "this setting was not run"
    elif ours.meets(value, value):
        verdict, why = AGREES, ""
    else:
        verdict, why = DIFFERS, _WHY
    return Row(
        study=study,
        item=item,
        published=published,
        unit=unit,
        ours={} if ours is None else {"wallclock": ours},
        verdict=verdict,
        why=why,
    )
