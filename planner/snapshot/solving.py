"""The least-cost plan of one moment: choose a method, start it warm, keep what is held.

The exact methods are in :mod:`models.exact.methods`; this module says which jobs they get, which
one is asked (``auto``: by size), what they start from (the placer's plan of the same jobs), and
what a person gets when they are stopped: the best plan held and the best bound proved. Beyond the
exact methods there are bounds and local search (:mod:`planner.placement.bounded_search`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from dataclasses import dataclass
from typing import Final

from instances.errors import InputError, UnsupportedError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import SNAPSHOT_HOURS, Limits, Plan
from instances.trace import Trace
from models.backends.interrupt import Interrupt
from models.bounds.volume import VOLUME, volume
from models.exact.methods import METHODS, solve
from models.problem.options import Clock, Deadline, Progress, SolveOptions
from models.problem.result import (
    Result,
    StoppedBy,
    Termination,
    first_incumbent,
    proved,
    ratio_of,
    result_of,
)
from models.problem.snapshot import FleetCaps, Snapshot
from planner.placement import bounded_search
from planner.placement.checked_plan import dedicated_of, require_rules
from planner.placement.warm_start import warm_start
from planner.replay.moment import Problem, Selection, problem_of

__all__ = ["AUTO", "SNAPSHOT_METHODS", "SnapshotReport", "require_method", "solve_snapshot"]

AUTO: Final = "auto"
#: What ``method`` may be.
SNAPSHOT_METHODS: Final = (AUTO, *METHODS, *bounded_search.METHODS)
#: Most jobs that ``auto`` gives to the exhaustive method; with rates it decides far more sets.
_EXHAUSTIVE_JOBS: Final = 16
_EXHAUSTIVE_JOBS_WITH_RATES: Final = 8
#: Most jobs that ``auto`` gives to set partitioning at once; up to the last number, with what
#: bounds and local search found: beyond, listing the groups takes long.
_ALONE_JOBS: Final = 41
_ALONE_JOBS_WITH_RATES: Final = 20
_SET_PARTITION_JOBS: Final = 100
#: What local search may take before an exact method goes on: of a time limit, else seconds.
_FIRST_SHARE: Final = 0.5
_FIRST_S: Final = 60.0
_GBIT_PER_GB: Final = 8.0

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


def require_method(name: str, argument: str = "method") -> None:
    """Raise InputError unless there is such a method."""
    if name not in SNAPSHOT_METHODS:
        raise InputError(
            f"Expected {argument} in {', '.join(SNAPSHOT_METHODS)}, got '{name}'."
            f"{did_you_mean(name, SNAPSHOT_METHODS)}"
        )


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
        ``auto`` (exhaustive up to 16 jobs, with rates up to 8; set-partition up to 41, with rates
        up to 20; local-search and then set-partition up to 100; local-search beyond, and where
        the others refuse the size) or another of ``SNAPSHOT_METHODS``.
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
        When the snapshot is beyond what ``method`` takes.
    CheckError
        When the plan breaks a rule: a fault of the program.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> report = solve_snapshot(read_trace(catalog_path("tiny-open-shop")))
    >>> report.result.termination.value, round(report.usd_per_hour, 2), report.saving
    ('optimal', 57.04, 2.0)
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    require_method(method)
    began = clock() if clock else 0.0
    with Interrupt() as early:  # from here on Ctrl-C gets an answer
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
    result = _solved(problem, () if early.hit else _methods(method, problem), options, notes)
    interrupted = result.stopped_by is StoppedBy.INTERRUPT
    notes += _speed(result)
    result = _explained(result, problem.snapshot, deadline, notes, progress)
    if result.conflict is not None and problem.dedicated and problem.caps.any:
        gone = problem.dedicated_nodes
        notes.append(
            f"async jobs hold {gone['rollout']} rollout and {gone['train']} train nodes. What is "
            "said of the fleet's caps is of what they leave: add their nodes to a cap."
        )
    with Interrupt() as late:  # what is held is reported, however late Ctrl-C comes
        result, bound_method = _bounded(result, problem.snapshot)
        plan = _whole_plan(problem, result)
    return SnapshotReport(
        problem=problem,
        asked=method,
        result=result,
        plan=plan,
        bound_method=bound_method,
        interrupted=interrupted or late.hit,
        notes=tuple(notes),
        seconds=clock() - began if clock else None,
    )


# --- the method ---------------------------------------------------------------------------------


def _methods(asked: str, problem: Problem) -> tuple[str, ...]:
    """Return the methods to ask, in order: the next where one refuses the size.

    After a search comes the exact method that goes on from what it found.
    """
    if asked != AUTO:
        return (asked,)
    snapshot = problem.snapshot
    most = _EXHAUSTIVE_JOBS if snapshot.limits.max_rate == 1 else _EXHAUSTIVE_JOBS_WITH_RATES
    if len(snapshot) <= most:
        return ("exhaustive", "set-partition", bounded_search.LOCAL_SEARCH)
    alone = _ALONE_JOBS if snapshot.limits.max_rate == 1 else _ALONE_JOBS_WITH_RATES
    if len(snapshot) <= alone:
        return ("set-partition", bounded_search.LOCAL_SEARCH)
    if len(snapshot) <= _SET_PARTITION_JOBS:
        return (bounded_search.LOCAL_SEARCH, "set-partition")
    return (bounded_search.LOCAL_SEARCH,)


def _solve(method: str, snapshot: Snapshot, options: SolveOptions) -> Result:
    if method in bounded_search.METHODS:
        return bounded_search.solve(method, snapshot, options)
    return solve(method, snapshot, options)


def _solved(
    problem: Problem, methods: tuple[str, ...], options: SolveOptions, notes: list[str]
) -> Result:
    """Return what the first method that takes the size found, or what was held at Ctrl-C.

    No methods: Ctrl-C came before the first.
    """
    snapshot = problem.snapshot
    name = methods[0] if methods else AUTO
    overdrawn = problem.overdrawn()
    if overdrawn is not None:
        return result_of(
            snapshot,
            options,
            name,
            groups=None,
            bound_usd=None,
            infeasible=True,
            conflict=overdrawn,
        )
    if not len(snapshot):  # async jobs only: nothing to decide
        return result_of(snapshot, options, name, groups=(), bound_usd=0.0)
    deadline = options.start()  # one for the placer and every method asked
    asked, held = options, None
    with contextlib.suppress(KeyboardInterrupt):  # answered below
        if methods:
            asked = dataclasses.replace(options, warm_start=warm_start(snapshot))
        for method in methods:
            try:
                held = _merged(held, _next(held, method, methods, snapshot, asked, deadline))
            except UnsupportedError as error:
                if method == methods[-1] and held is None:
                    raise
                if method in methods[-2:]:
                    notes.append(
                        f"too large for an exact method, so {bounded_search.LOCAL_SEARCH} was "
                        f"asked. {error}"
                    )
                continue
            if not _goes_on(held, method):
                break
        if held is not None:
            return dataclasses.replace(held, options=asked)
    if held is not None:  # Ctrl-C in a method that has no answer to it
        return dataclasses.replace(held, options=asked, stopped_by=StoppedBy.INTERRUPT)
    notes.append("Ctrl-C: what was held before the method began is all there is.")
    return result_of(
        snapshot,
        asked,
        name,
        groups=first_incumbent(snapshot, asked),
        bound_usd=None,
        stopped_by=StoppedBy.INTERRUPT,
    )


def _next(
    held: Result | None,
    method: str,
    methods: tuple[str, ...],
    snapshot: Snapshot,
    asked: SolveOptions,
    deadline: Deadline,
) -> Result:
    """Return the result of a method that begins with the plan held, in its share of the time."""
    left = deadline.remaining_s()
    if method in bounded_search.METHODS and method != methods[-1]:
        left = _FIRST_S if left is None else _FIRST_SHARE * left
    start = asked.warm_start if held is None or held.plan is None else held.plan
    return _solve(method, snapshot, dataclasses.replace(asked, time_limit_s=left, warm_start=start))


def _goes_on(result: Result, method: str) -> bool:
    """Whether the next method is asked: after a search that proved nothing and was not ended."""
    if method not in bounded_search.METHODS or result.stopped_by is StoppedBy.INTERRUPT:
        return False
    return result.termination in (Termination.FEASIBLE_LIMIT, Termination.NO_PLAN_LIMIT)


def _merged(before: Result | None, result: Result) -> Result:
    """Return the result of a method that began with the plan of another, under the better bound."""
    if before is None or result.termination is not Termination.FEASIBLE_LIMIT:
        return result
    own, bound = result.bound_usd_per_hour, before.bound_usd_per_hour
    if bound is None or (own is not None and own >= bound):
        return result
    optimal = proved(result.usd_per_hour, bound)
    return dataclasses.replace(
        result,
        termination=Termination.OPTIMAL if optimal else result.termination,
        stopped_by=None if optimal else result.stopped_by,
        bound_usd_per_hour=result.usd_per_hour if optimal else bound,
        bound_method=before.bound_method or before.method,
    )


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
        return result, result.bound_method or result.method
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


def _speed(result: Result) -> list[str]:
    """Return what a reader must know of how fast inner loops ran."""
    # not imported anew: Ctrl-C may have cut that
    module = sys.modules.get("models.problem.compiled")
    if result.method not in bounded_search.METHODS or module is None or module.COMPILED:
        return []
    return ["numba is not installed (extra speed), so inner loops ran many times slower."]


def _explained(
    result: Result,
    snapshot: Snapshot,
    deadline: Deadline,
    notes: list[str],
    progress: Progress | None,
) -> Result:
    """Return the result with the conflict in words where no plan exists and it has none."""
    if result.termination is not Termination.INFEASIBLE or result.conflict is not None:
        return result
    from models.why_not.conflict import explain

    if progress is not None:
        progress("why no plan exists", 0, 1)
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
        dedicated=dedicated_of(problem.dedicated),
        usd_total=result.plan.usd_total + SNAPSHOT_HOURS * usd,
    )
    require_rules(plan, "The plan of a snapshot")
    return plan
