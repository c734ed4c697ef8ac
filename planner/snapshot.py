"""The least-cost plan of one moment: choose a method, start it warm, keep what is held.

The exact methods are in :mod:`models.methods`; this module says which jobs they get, which one
is asked (``auto``: by size), what they start from (the placer's plan of the same jobs), and
what a person gets when they are stopped: the best plan held and the best bound proved.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Final

from instances.checker import check_plan
from instances.errors import CheckError, InfeasibleError, UnsupportedError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import SNAPSHOT_HOURS, DedicatedNodes, Limits, Plan
from instances.trace import Trace
from models.bounds import VOLUME, volume
from models.methods import require_method, solve
from models.options import Clock, Deadline, Progress, SolveOptions
from models.result import (
    Result,
    StoppedBy,
    Termination,
    first_incumbent,
    proved,
    ratio_of,
    result_of,
)
from models.snapshot import FleetCaps, PlacedGroup, Snapshot, plan_of
from planner.moment import Problem, Selection, problem_of
from planner.placer import Placer

__all__ = ["AUTO", "SnapshotReport", "solve_snapshot", "warm_start"]

AUTO: Final = "auto"
#: Most jobs that ``auto`` gives to the exhaustive method; with rates it decides far more sets.
_EXHAUSTIVE_JOBS: Final = 16
_EXHAUSTIVE_JOBS_WITH_RATES: Final = 8
#: Policy name of the placer's plan.
_PLACER: Final = "weave"
_GBIT_PER_GB: Final = 8.0
_SECONDS: Final = SNAPSHOT_HOURS * 3600.0

_LIMITS: Final = Limits()
_CAPS: Final = FleetCaps()
_PEAK: Final = Selection.peak()


@dataclass(frozen=True, kw_only=True)
class SnapshotReport:
    """A snapshot and what is known about its least cost.

    Nodes and prices include the dedicated nodes of async jobs; the ratio leaves them out, as
    nothing about them can be planned.

    Attributes
    ----------
    problem : Problem
        Jobs, moment, limits and caps.
    asked : str
        The method asked for, such as ``auto``.
    result : Result
        What the method found for the jobs that may share nodes.
    plan : Plan or None
        What is held, dedicated nodes included; checked as a whole.
    bound_method : str or None
        Who proved the bound: a method, or ``volume``.
    interrupted : bool
        Whether Ctrl-C stopped the method, whatever is held or proved by then.
    notes : tuple of str
        What a reader must know about how the answer came about.
    seconds : float or None
        Of the whole solve, when a clock was given.
    """

    problem: Problem
    asked: str
    result: Result
    plan: Plan | None
    bound_method: str | None
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def trace(self) -> Trace:
        """The trace the jobs come from."""
        return self.problem.trace

    @property
    def jobs(self) -> JobTable:
        """The jobs present, async jobs included."""
        return self.problem.jobs

    @property
    def cluster(self) -> Cluster:
        """GPUs and prices."""
        return self.problem.snapshot.cluster

    @property
    def dedicated_usd_per_hour(self) -> float:
        """Price of the dedicated nodes of async jobs, $/h."""
        held = self.problem.dedicated_nodes
        return self.cluster.usd_per_hour(held["rollout"], held["train"])

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all nodes, $/h; ``None`` when no plan is held."""
        usd = self.result.usd_per_hour
        return None if usd is None else usd + self.dedicated_usd_per_hour

    @property
    def bound_usd_per_hour(self) -> float | None:
        """Proved: no valid plan costs less, $/h, dedicated nodes included."""
        bound = self.result.bound_usd_per_hour
        return None if bound is None else bound + self.dedicated_usd_per_hour

    @property
    def ratio(self) -> float | None:
        """Cost over bound of the jobs that may share, dedicated nodes left out of both."""
        return self.result.ratio

    @property
    def nodes(self) -> dict[str, int] | None:
        """Nodes of the plan held, by pool."""
        if self.plan is None:
            return None
        held = self.problem.dedicated_nodes
        return {
            "rollout": held["rollout"] + sum(len(g.rollout_nodes) for g in self.plan.groups),
            "train": held["train"] + sum(len(g.train_nodes) for g in self.plan.groups),
        }

    @property
    def solo_usd_per_hour(self) -> float:
        """Price of every job on nodes of its own, $/h, fleet caps aside."""
        return self.cluster.usd_per_hour(
            int(self.jobs.rollout_nodes.sum()), int(self.jobs.train_nodes.sum())
        )

    @property
    def placer_usd_per_hour(self) -> float | None:
        """Price of the placer's plan of the same jobs, the start of the method, $/h.

        ``None`` where it has none within the limits and caps.
        """
        start = self.result.options.warm_start
        return None if start is None else start.usd_total + self.dedicated_usd_per_hour

    @property
    def saving(self) -> float | None:
        """Price of every job alone over the plan's."""
        usd = self.usd_per_hour
        return self.solo_usd_per_hour / usd if usd else None

    @property
    def links(self) -> int | None:
        """Links between the clusters that utilisation is measured against."""
        nodes = self.nodes
        return None if nodes is None else self.cluster.links.count(nodes["rollout"], nodes["train"])

    @property
    def link_utilisation(self) -> float | None:
        """Sync traffic of the plan over the capacity of all links."""
        if self.plan is None or self.links is None:
            return None
        gb = dict(zip(self.jobs.job_id, self.jobs.sync_gb.tolist(), strict=True))
        gbps = sum(job.sync_gb / job.solo_s for job in self.problem.dedicated)
        for group in self.plan.groups:
            gbps += sum(p.rate * gb[p.job_id] for p in group.placements) / group.period_s
        return _GBIT_PER_GB * gbps / (self.links * self.cluster.links.inter_gbps)


def solve_snapshot(  # noqa: PLR0913 - one argument per question of the command
    trace: Trace | JobTable,
    *,
    select: Selection = _PEAK,
    method: str = AUTO,
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    caps: FleetCaps = _CAPS,
    time_limit_s: float | None = None,
    node_limit: int | None = None,
    work_limit: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> SnapshotReport:
    """Find a least-cost valid plan of the jobs present at one moment, with its bound.

    Parameters
    ----------
    trace : Trace or JobTable
        From :func:`read_trace`, or jobs made in Python.
    select : Selection
        ``Selection.peak()`` (the earliest moment with the most jobs present),
        ``Selection.at(hours)`` or ``Selection.all_jobs()``.
    method : str
        ``auto`` (exhaustive up to 16 jobs, with rates up to 8, else set-partition; the
        placer's plan with the volume bound where both refuse the size) or one of
        ``models.methods.METHODS``.
    cluster, limits, caps
        GPUs and prices, limits on one group, caps on the fleet.
    time_limit_s, node_limit, work_limit
        What the method may spend: seconds, branch-and-bound nodes, deterministic time. At a
        limit, as at Ctrl-C, the best plan held is returned.
    seed : int
        Of solvers.
    progress : callable, optional
        Called with (label, done, total).
    clock : callable, optional
        Seconds from an arbitrary origin; given, the solve is timed.

    Returns
    -------
    SnapshotReport

    Raises
    ------
    InputError
        When nobody is present at that moment, or an argument is out of its range.
    UnsupportedError
        When a one-step job is present, or the snapshot is beyond what ``method`` takes.
    CheckError
        When the plan breaks a rule: a fault of the program.

    Examples
    --------
    >>> from instances.catalog import catalog_path
    >>> from instances.trace import read_trace
    >>> report = solve_snapshot(read_trace(catalog_path("tiny-open-shop")))
    >>> report.result.termination.value, round(report.usd_per_hour, 2), report.saving
    ('optimal', 57.04, 2.0)
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    if method != AUTO:
        require_method(method)
    began = clock() if clock else 0.0
    problem = problem_of(trace, select, cluster, limits, caps)
    options = SolveOptions(
        time_limit_s=time_limit_s,
        node_limit=node_limit,
        work_limit=work_limit,
        seed=seed,
        clock=clock or time.monotonic,
        progress=progress,
    )
    deadline = options.start()
    notes: list[str] = []
    result = _solved(problem, method, options, notes)
    interrupted = result.stopped_by is StoppedBy.INTERRUPT
    result, bound_method = _bounded(result, problem.snapshot)
    result = _explained(result, problem.snapshot, deadline, notes)
    return SnapshotReport(
        problem=problem,
        asked=method,
        result=result,
        plan=_whole_plan(problem, result),
        bound_method=bound_method,
        interrupted=interrupted,
        notes=tuple(notes),
        seconds=clock() - began if clock else None,
    )


# --- the method ---------------------------------------------------------------------------------


def _methods(asked: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the methods to ask, in order: the next where one refuses the size."""
    if asked != AUTO:
        return (asked,)
    most = _EXHAUSTIVE_JOBS if snapshot.limits.max_rate == 1 else _EXHAUSTIVE_JOBS_WITH_RATES
    return ("exhaustive", "set-partition") if len(snapshot) <= most else ("set-partition",)


def _solved(problem: Problem, asked: str, options: SolveOptions, notes: list[str]) -> Result:
    """Return what the method found, or what was held when it was stopped or refused."""
    snapshot = problem.snapshot
    methods = _methods(asked, snapshot)
    overdrawn = problem.overdrawn()
    if overdrawn is not None:
        return result_of(
            snapshot,
            options,
            methods[0],
            groups=None,
            bound_usd=None,
            infeasible=True,
            conflict=overdrawn,
        )
    if not len(snapshot):  # async jobs only: nothing to decide
        return result_of(snapshot, options, methods[0], groups=(), bound_usd=0.0)
    refusal = ""
    deadline = options.start()  # one for the placer and every method asked
    try:
        options = dataclasses.replace(options, warm_start=warm_start(snapshot))
        for method in methods:
            options = dataclasses.replace(options, time_limit_s=deadline.remaining_s())
            try:
                return solve(method, snapshot, options)
            except UnsupportedError as error:
                if asked != AUTO:
                    raise
                refusal = str(error)
    except KeyboardInterrupt:
        notes.append("Ctrl-C: what was held before the method began is all there is.")
        return _held(snapshot, options, methods[0], StoppedBy.INTERRUPT)
    notes.append(
        f"too large for an exact method, so this is the placer's plan, with the {VOLUME} bound. "
        f"{refusal}"
    )
    return _held(snapshot, options, methods[-1], StoppedBy.SIZE)


def _held(snapshot: Snapshot, options: SolveOptions, method: str, stopped_by: StoppedBy) -> Result:
    """Return the result of a method that gave none: the plan it would have started from."""
    groups = first_incumbent(snapshot, options)
    return result_of(
        snapshot, options, method, groups=groups, bound_usd=None, stopped_by=stopped_by
    )


def warm_start(snapshot: Snapshot) -> Plan | None:
    """Return the placer's plan of the jobs in order of arrival; ``None`` where it has none.

    It has none when a job cannot run even alone, or when its plan exceeds the fleet caps,
    which the placer does not know.

    Raises
    ------
    CheckError
        When the placer's plan breaks a rule: a fault of the program.
    """
    placer = Placer(cluster=snapshot.cluster, limits=snapshot.limits)
    index = {job.job_id: i for i, job in enumerate(snapshot.jobs)}
    try:
        for job in sorted(snapshot.jobs, key=lambda job: job.arrival_s):
            placer.place(job)
    except InfeasibleError:
        return None
    groups = []
    for state in placer.groups():
        order = sorted(range(len(state.jobs)), key=lambda i: index[state.jobs[i].job_id])
        groups.append(
            PlacedGroup(
                members=tuple(index[state.jobs[i].job_id] for i in order),
                rollout_pins=tuple(state.rollout_pins[i] for i in order),
                train_pins=tuple(state.train_pins[i] for i in order),
                period_s=state.period_s,
                starts_s=tuple(state.starts_s[i] for i in order),
                rates=tuple(state.rates[i] for i in order),
            )
        )
    nodes = [group.nodes for group in groups]
    if not snapshot.caps.allow(sum(r for r, _ in nodes), sum(t for _, t in nodes)):
        return None
    return plan_of(snapshot, groups, _PLACER)


# --- what is reported ---------------------------------------------------------------------------


def _bounded(result: Result, snapshot: Snapshot) -> tuple[Result, str | None]:
    """Return the result with the volume bound where that says more, and whose its bound is.

    The volume bound can prove a plan optimal, or that no plan is within the caps.
    """
    if result.termination is Termination.INFEASIBLE:
        return result, None
    weak = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    own = result.bound_usd_per_hour
    if own is not None and own >= weak.usd_per_hour:
        return result, result.method
    if result.plan is None and not snapshot.caps.allow(weak.rollout_nodes, weak.train_nodes):
        none = Termination.INFEASIBLE
        result = dataclasses.replace(
            result, termination=none, stopped_by=None, bound_usd_per_hour=None
        )
        return result, None
    ratio_of(result.usd_per_hour, weak.usd_per_hour)  # raises when the bound is above the cost
    if proved(result.usd_per_hour, weak.usd_per_hour):
        best = Termination.OPTIMAL
        usd = result.usd_per_hour
        result = dataclasses.replace(
            result, termination=best, stopped_by=None, bound_usd_per_hour=usd
        )
        return result, VOLUME
    return dataclasses.replace(result, bound_usd_per_hour=weak.usd_per_hour), VOLUME


def _explained(result: Result, snapshot: Snapshot, deadline: Deadline, notes: list[str]) -> Result:
    """Return the result with the conflict in words where no plan exists and it has none."""
    if result.termination is not Termination.INFEASIBLE or result.conflict is not None:
        return result
    from models.conflict import explain

    try:
        conflict = explain(snapshot, deadline=deadline, seed=result.seed, proved=True)
    except KeyboardInterrupt:
        notes.append("Ctrl-C: why no plan exists was not found out.")
        return result
    return dataclasses.replace(result, conflict=conflict)


def _whole_plan(problem: Problem, result: Result) -> Plan | None:
    """Return the plan held with the dedicated nodes in it, checked as a whole.

    Raises
    ------
    CheckError
        When it breaks a rule: a fault of the program.
    """
    if result.plan is None:
        return None
    if not problem.dedicated:
        return result.plan
    held = problem.dedicated_nodes
    usd = problem.snapshot.usd_per_hour(held["rollout"], held["train"])
    plan = dataclasses.replace(
        result.plan,
        jobs=problem.jobs,
        dedicated=tuple(
            DedicatedNodes(
                job_id=job.job_id,
                from_s=0.0,
                to_s=_SECONDS,
                rollout_nodes=job.rollout_nodes,
                train_nodes=job.train_nodes,
            )
            for job in problem.dedicated
        ),
        usd_total=result.plan.usd_total + SNAPSHOT_HOURS * usd,
    )
    report = check_plan(plan)
    if not report.ok:
        first = report.violations[0]
        raise CheckError(
            f"The plan of a snapshot broke {len(report.violations)} rules; the first: "
            f"[{first.rule}] {first.message} This is a fault of the program, not of the input."
        )
    return plan
