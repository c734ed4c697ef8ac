"""``planner simulate``: what happens to a plan at run time, part by part.

* *runtime*: plans made for the worst case, or for less, run with sampled lengths
  (:mod:`planner.simulate.runtime_report`);
* *failures*: jobs and nodes fail, over checkpoint intervals
  (:mod:`planner.simulate.failure_report`);
* *drift*: lengths change over a job's life (:mod:`planner.simulate.drift`);
* *migration*: the last responses of a rollout move together
  (:mod:`planner.simulate.migration_study`).

Each part is answered by its own module; Ctrl-C keeps what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from instances.errors import FleetPlannerError, InputError, UnsupportedError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.trace import Trace
from planner.output.report_parts import parts_in_order
from planner.policies.policy import PolicyOptions
from planner.policies.registry import require_policy
from planner.replay.failures import GUESSED_JOB_MTBF_H, GUESSED_NODE_MTBF_H, FailureParams
from planner.replay.replaying import Convention, replay, require_convention
from planner.simulate.drift import DriftParams, DriftStudy, drift_study, require_drift_policy
from planner.simulate.drift_templates import require_setting
from planner.simulate.failure_report import CheckpointRow, each_checkpoint
from planner.simulate.lengths import LengthLaw, PhaseSampler
from planner.simulate.runtime import GroupRun, simulate_group
from planner.simulate.runtime_report import Execution, SloRow, slo_study
from planner.size.plan_at import LEVELS, PlanLevel

__all__ = [
    "PARTS",
    "SimulationParams",
    "SimulationReport",
    "fullest_group_run",
    "simulate_trace",
]

Progress = Callable[[str, int, int], None]

#: Most iterations between checkpoints: longer than any trace.
_MOST_CHECKPOINT: Final = 10**9
_SEED_LIMIT: Final = 2**64
#: Of a picture of one group.
_MOST_EVENTS: Final = 10_000
#: In order of making.
PARTS: Final = ("runtime", "failures", "migration", "drift")


@dataclass(frozen=True, kw_only=True)
class SimulationParams:
    """What is simulated, and with how much effort.

    Attributes
    ----------
    parts : tuple of str
        Of :data:`PARTS`.
    levels : tuple of str
        Of ``p50``, ``p95``, ``p99``, ``max``: what plans are made for; ``max`` is always there.
    execution : Execution
        Replications, discipline and interference of the runs.
    histogram : Path or None
        Shape of the lengths of jobs without response columns, in place of the guess.
    failures : FailureParams
        How often what fails; the defaults of the command are guesses.
    checkpoints : tuple of int
        Iterations between checkpoints, one row each.
    drift : DriftParams
        How lengths grow.
    drift_settings : tuple of str
        Settings of growth, by name.
    drift_policies : tuple of str
        Policies compared under growth.
    seeds : int
        Seeds of failures and of drift, from ``seed`` on.
    seed : int
        Of every draw.
    """

    parts: tuple[str, ...] = ("runtime", "failures", "migration")
    levels: tuple[str, ...] = ("p50", "p95", "p99", "max")
    execution: Execution = field(default_factory=Execution)
    histogram: Path | None = None
    failures: FailureParams = field(
        default_factory=lambda: FailureParams(
            job_mtbf_h=GUESSED_JOB_MTBF_H, node_mtbf_h=GUESSED_NODE_MTBF_H
        )
    )
    checkpoints: tuple[int, ...] = (1, 5, 20, 50)
    drift: DriftParams = field(default_factory=DriftParams)
    drift_settings: tuple[str, ...] = ("increasing", "decreasing", "mixed")
    drift_policies: tuple[str, ...] = ("weave", "regroup", "payback", "resubmit")
    seeds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", parts_in_order(self.parts, PARTS))
        known = tuple(level.label for level in LEVELS)
        for name in self.levels:
            if name not in known:
                raise InputError(
                    f"Expected a level in {', '.join(known)}, got '{name}' (--plan-at)."
                    f"{did_you_mean(name, known)}"
                )
        if not self.checkpoints:
            raise InputError("Expected at least one checkpoint interval, got none (--checkpoints).")
        for every in self.checkpoints:
            if not 1 <= every <= _MOST_CHECKPOINT:
                raise InputError(
                    f"Expected checkpoints >= 1 and <= {_MOST_CHECKPOINT:g}, got {every:g} "
                    "(--checkpoints)."
                )
        if self.histogram is not None:
            LengthLaw.from_histogram(self.histogram)  # refused before anything is computed
        self._check_seeds()
        self._check_drift()

    def _check_seeds(self) -> None:
        """Every seed is one that all generators take."""
        if self.seeds < 1 or self.seed < 0 or self.seed + self.seeds > _SEED_LIMIT:
            raise InputError(
                f"Expected seeds >= 1, seed >= 0 and their sum <= 2^64, got {self.seeds} (--seeds) "
                f"and {self.seed} (--seed)."
            )

    def _check_drift(self) -> None:
        """Settings and policies of drift are known, and there are some where drift is asked for."""
        for setting in self.drift_settings:
            require_setting(setting)
        for policy in self.drift_policies:
            require_drift_policy(policy)
        if "drift" not in self.parts:
            return
        for option, names in (
            ("--drift-settings", self.drift_settings),
            ("--drift-policies", self.drift_policies),
        ):
            if not names:
                raise InputError(f"Expected at least one name with {option}, got none.")

    @property
    def plan_levels(self) -> tuple[PlanLevel, ...]:
        """The levels to plan at, the worst case last: savings are counted from it."""
        wanted = [level for level in LEVELS[:-1] if level.label in self.levels]
        return (*wanted, LEVELS[-1])

    @property
    def all_seeds(self) -> range:
        """Seeds of failures and of drift."""
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """What was found; parts not asked for, or not reached, are ``None``.

    Attributes
    ----------
    trace : Trace
        The jobs.
    options : PolicyOptions
        Cluster, limits and parameters of the policies.
    policy : str
        Whose plan is run.
    convention : Convention
        What ends a stay in the plan.
    params : SimulationParams
        What was asked.
    runtime : tuple of SloRow
        One a level, the worst case last.
    failures : tuple of CheckpointRow
        One a checkpoint interval.
    drift : dict of str to DriftStudy
        By setting.
    migration : tuple of Row
        Gains by pairing, beside what is published.
    failed, left_out : dict of str to str
        Parts without an answer, and parts that policy or trace do not allow, in words.
    interrupted : str or None
        The part that Ctrl-C ended.
    """

    trace: Trace
    options: PolicyOptions
    policy: str
    convention: Convention
    params: SimulationParams
    runtime: tuple[SloRow, ...] | None = None
    failures: tuple[CheckpointRow, ...] | None = None
    drift: dict[str, DriftStudy] | None = None
    migration: tuple[Any, ...] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    interrupted: str | None = None


_PARAMS: Final = SimulationParams()


def simulate_trace(
    trace: Trace | JobTable,
    *,
    policy: str = "weave",
    options: PolicyOptions | None = None,
    durations: Convention = "work",
    params: SimulationParams = _PARAMS,
    progress: Progress | None = None,
) -> SimulationReport:
    """Simulate what happens to plans of a trace at run time.

    Parameters
    ----------
    trace : Trace or JobTable
        The jobs.
    policy : str
        Whose plans are run; drift has its own policies.
    options : PolicyOptions, optional
        Cluster, limits and parameters of the policies.
    durations : {"work", "wallclock"}
        Convention of the replays; drift is always by ``wallclock``.
    params : SimulationParams
        Parts and their levels.
    progress : callable, optional
        Called with (part, done, total).

    Returns
    -------
    SimulationReport
        At Ctrl-C what is known by then.

    Raises
    ------
    InputError
        For an unknown policy or convention.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> trace = read_trace(catalog_path("tiny-open-shop"))
    >>> report = simulate_trace(trace, params=SimulationParams(parts=("runtime",), levels=("max",)))
    >>> len(report.runtime)
    1
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    require_policy(policy)
    require_convention(durations)
    options = options or PolicyOptions(cluster=DEFAULT_CLUSTER)
    maker = _Maker(trace, policy, options, durations, params, progress)
    for part in params.parts:
        if maker.interrupted is None:
            maker.make(part)
    return maker.report()


def fullest_group_run(report: SimulationReport, *, periods: int = 4) -> GroupRun | None:
    """Return the first periods of the fullest group of the policy's plan, with its events.

    Parameters
    ----------
    periods : int
        Planned periods of that group.

    Returns
    -------
    GroupRun or None
        ``None`` where no jobs share nodes in turn, as of async jobs only.

    Raises
    ------
    InfeasibleError
        When a job cannot run even alone.
    UnsupportedError
        When the policy has no order of phases to run.
    """
    jobs, params = report.trace.jobs, report.params
    plan = replay(jobs, report.policy, report.options, convention=report.convention).plan
    assert plan is not None  # a replay keeps its plan
    if not plan.groups:
        return None
    version = max(plan.groups, key=lambda group: len(group.placements))
    return simulate_group(
        version,
        jobs,
        PhaseSampler(jobs, seed=params.seed, histogram=params.histogram),
        discipline=params.execution.discipline,
        interference=params.execution.interference,
        iterations=periods,
        events=_MOST_EVENTS,
    )


class _Maker:
    """Makes the parts of a report, one after the other."""

    def __init__(
        self,
        trace: Trace,
        policy: str,
        options: PolicyOptions,
        convention: Convention,
        params: SimulationParams,
        progress: Progress | None,
    ) -> None:
        self._trace, self._policy, self._options = trace, policy, options
        self._convention, self._params, self._progress = convention, params, progress
        self._found: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self.interrupted: str | None = None

    def make(self, part: str) -> None:
        """Make one part; what it cannot answer is noted in words."""
        try:
            getattr(self, f"_{part}")()
        except UnsupportedError as error:  # an InputError too, so it comes first
            self._left_out[part] = str(error)
        except FleetPlannerError as error:  # of any kind: it must not cost the other parts
            self._failed[part] = str(error)
        except KeyboardInterrupt:
            self.interrupted = part

    def report(self) -> SimulationReport:
        """Return all that was made."""
        return SimulationReport(
            trace=self._trace,
            options=self._options,
            policy=self._policy,
            convention=self._convention,
            params=self._params,
            failed=self._failed,
            left_out=self._left_out,
            interrupted=self.interrupted,
            **self._found,
        )

    def _runtime(self) -> None:
        params, jobs = self._params, self._trace.jobs

        def sampler_of(number: int) -> PhaseSampler:
            return PhaseSampler(
                jobs, seed=params.seed, replication=number, histogram=params.histogram
            )

        rows: list[SloRow] = []
        try:
            for row in slo_study(
                jobs,
                sampler_of,
                policy=self._policy,
                options=self._options,
                convention=self._convention,
                levels=params.plan_levels,
                execution=params.execution,
                progress=self._told("runtime"),
            ):
                rows.append(row)
        finally:  # the worst case comes first, and is shown last
            if rows:
                self._found["runtime"] = (*rows[1:], rows[0])

    def _failures(self) -> None:
        params = self._params
        self._require_phases("async jobs do not fail here")
        rows = each_checkpoint(
            self._trace.jobs,
            self._policy,
            self._options,
            params.failures,
            checkpoints=params.checkpoints,
            # a list of failures draws nothing
            seeds=params.all_seeds[:1] if params.failures.events else params.all_seeds,
            convention=self._convention,
            progress=self._told("failures"),
        )
        self._keep("failures", rows)

    def _drift(self) -> None:
        params, options = self._params, self._options
        drift = replace(
            params.drift, cluster=options.cluster, limits=options.limits, placer=options.placer
        )
        self._require_phases("async jobs keep their nodes")
        studies: dict[str, DriftStudy] = {}
        for setting in params.drift_settings:
            study = drift_study(
                self._trace.jobs,
                setting,
                params.drift_policies,
                params.all_seeds,
                drift,
                progress=self._setting_told,
            )
            studies[setting] = study
            self._found["drift"] = studies
            if study.stopped_by is not None:
                raise KeyboardInterrupt

    def _migration(self) -> None:
        from planner.simulate.migration_study import each_migration_row

        rows = each_migration_row(
            seeds=self._params.all_seeds,
            cluster=self._options.cluster,
            progress=self._told("migration"),
        )
        self._keep("migration", rows)

    def _keep(self, part: str, rows: Iterable[Any]) -> None:
        """Keep each row once it is made, whatever ends the part."""
        for row in rows:
            self._found[part] = (*self._found.get(part, ()), row)

    def _require_phases(self, why: str) -> None:
        """Refuse a trace of which the part says nothing."""
        if all(mode == "async" for mode in self._trace.jobs.mode):
            raise UnsupportedError(
                f"Expected a job that runs in phases, got async jobs alone: {why}."
            )

    def _setting_told(self, setting: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(f"drift {setting}", done, total)

    def _told(self, label: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(label, done, total)

        return tell
