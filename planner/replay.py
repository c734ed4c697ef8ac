"""Replay of a trace under a policy: an event loop, and exact accounts of what it cost.

Events are departures and arrivals, ordered by (time, priority, sequence); at one moment
departures come first. Between events every job of a group with period ``C_g`` and rate ``k``
does ``k / C_g`` iterations per second, whatever each of the ``k`` takes. Two conventions (design
section 10), never mixed:

* ``work``: a job leaves when it has done its number of iterations, so co-execution stretches
  its stay;
* ``wallclock``: a job leaves ``duration_s`` after it arrived, whatever it has done by then.

Whatever the policy answers is recorded as versions of groups, ``[from_s, to_s)``; all figures
are sums over these versions. Plans of a policy that promises valid ones are checked version by
version as they are made, and as a whole with their price at the end.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from instances.checker import Violation, check_group, check_plan
from instances.errors import CheckError, InputError, UnsupportedError, did_you_mean
from instances.jobs import Job, JobTable
from instances.plan import DURATION_CONVENTIONS, DedicatedNodes, GroupVersion, Plan
from models.bounds import VOLUME, VolumeSums
from planner.group_state import GroupState
from planner.iterations import iteration_seconds_of
from planner.policies import Change, Policy, PolicyOptions, make_policy
from planner.replay_result import Convention, JobRecord, ReplayResult, Timeline

__all__ = [
    "Convention",
    "JobRecord",
    "ReplayResult",
    "Timeline",
    "replay",
    "require_convention",
]

Progress = Callable[[int, int], None]

_HOUR_S: Final = 3600.0
_DEPARTURE, _ARRIVAL = 0, 1
_GBIT_PER_GB: Final = 8.0


@dataclass(slots=True)
class _Running:
    """One group between two events."""

    state: GroupState
    since_s: float
    accounted_s: float
    records: list[JobRecord]
    rollout_nodes: int
    train_nodes: int
    sync_gbps: float


@dataclass(slots=True)
class _Loop:
    """The event loop's state."""

    jobs: JobTable
    policy: Policy
    options: PolicyOptions
    convention: Convention
    check: bool
    now_s: float = 0.0
    sequence: int = 0
    heap: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    running: dict[int, _Running] = field(default_factory=dict)
    home: dict[int, int] = field(default_factory=dict)
    stamp: list[int] = field(default_factory=list)
    records: list[JobRecord] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    versions: list[GroupVersion] = field(default_factory=list)
    dedicated: list[DedicatedNodes] = field(default_factory=list)
    rows: list[tuple[float, int, int, int, float, float]] = field(default_factory=list)
    admission: Counter[str] = field(default_factory=Counter)
    breaches: Counter[str] = field(default_factory=Counter)
    run_rollout_s: float = 0.0
    run_train_s: float = 0.0
    present: int = 0
    rollout_nodes: int = 0
    train_nodes: int = 0
    sync_gbps: float = 0.0
    dedicated_nodes: tuple[int, int] = (0, 0)

    def push(self, time_s: float, priority: int, job: int) -> None:
        """Queue an event; a later stamp of the job makes it void."""
        self.sequence += 1
        heapq.heappush(self.heap, (time_s, priority, self.sequence, job, self.stamp[job]))

    # -- accounts -----------------------------------------------------------------------

    def account(self, group: _Running) -> None:
        """Credit a group's jobs and nodes with the time since it was last accounted."""
        seconds = self.now_s - group.accounted_s
        if seconds <= 0:
            return
        group.accounted_s = self.now_s
        state = group.state
        periods = seconds / state.period_s
        shared_r = Counter(node for pins in state.rollout_pins for node in pins)
        shared_t = Counter(node for pins in state.train_pins for node in pins)
        for record, rate, r_pins, t_pins in zip(
            group.records, state.rates, state.rollout_pins, state.train_pins, strict=True
        ):
            iterations = rate * periods
            record.iterations += iterations
            record.rollout_node_s += seconds * sum(1 / shared_r[node] for node in r_pins)
            record.train_node_s += seconds * sum(1 / shared_t[node] for node in t_pins)
            job = record.job
            if r_pins:
                self.run_rollout_s += iterations * job.rollout_s * len(r_pins)
                self.run_train_s += iterations * job.train_s * len(t_pins)
            else:  # both phases on the train nodes
                factor = state.period_s / job.solo_s
                both = factor * (job.rollout_s + job.train_s)
                self.run_train_s += iterations * both * len(t_pins)

    def close(self, number: int) -> _Running:
        """End a group's current version at this moment."""
        group = self.running.pop(number)
        self.account(group)
        if self.now_s > group.since_s:
            self._record(group)
        self.rollout_nodes -= group.rollout_nodes
        self.train_nodes -= group.train_nodes
        self.sync_gbps -= group.sync_gbps
        return group

    def _record(self, group: _Running) -> None:
        """Keep a version that lasted: what it did to its jobs, and which rules it broke."""
        version = group.state.version(group.since_s, self.now_s)
        self.versions.append(version)
        state = group.state
        for record, rate, starts in zip(group.records, state.rates, state.starts_s, strict=True):
            record.group_size_max = max(record.group_size_max, len(group.records))
            record.worst_iteration_s = max(record.worst_iteration_s, state.period_s / rate)
            single_s = max(iteration_seconds_of(starts, state.period_s))
            record.worst_single_s = max(record.worst_single_s, single_s)
        if not self.policy.promises_valid:
            self.breaches.update(v.rule for v in self._violations(version))

    def open(self, state: GroupState) -> None:
        """Start a new version of a group at this moment."""
        members = [self.index[job.job_id] for job in state.jobs]
        gbit = sum(
            rate * job.sync_gb * _GBIT_PER_GB
            for job, rate, pins in zip(state.jobs, state.rates, state.rollout_pins, strict=True)
            if pins
        )
        records = [self.records[i] for i in members]
        group = _Running(
            state=state,
            since_s=self.now_s,
            accounted_s=self.now_s,
            records=records,
            rollout_nodes=len(state.rollout_nodes),
            train_nodes=len(state.train_nodes),
            sync_gbps=gbit / state.period_s,
        )
        self.running[state.number] = group
        self.rollout_nodes += group.rollout_nodes
        self.train_nodes += group.train_nodes
        self.sync_gbps += group.sync_gbps
        for i, record, rate in zip(members, records, state.rates, strict=True):
            self.home[i] = state.number
            record.group_id = state.group_id
            if self.convention == "work":
                self.stamp[i] += 1
                left = max(record.job.iterations - record.iterations, 0.0)
                self.push(self.now_s + left * state.period_s / rate, _DEPARTURE, i)

    def apply(self, change: Change) -> None:
        """Put a policy's answer into effect, checking what promises to be valid."""
        for number in change.ended:
            self.close(number)
        for state in change.groups:
            if state.number in self.running:
                self.close(state.number)
            if self.check and self.policy.promises_valid:
                self._require_valid(state)
            self.open(state)

    def _violations(self, version: GroupVersion) -> list[Violation]:
        return check_group(
            version, self.jobs, self.options.cluster, self.options.limits, index=self.index
        )

    def _require_valid(self, state: GroupState) -> None:
        """Refuse an invalid group at once, before anything is built on it."""
        found = self._violations(state.version(self.now_s, self.now_s + state.period_s))
        if found:
            first = "; ".join(v.message for v in found[:3])
            raise CheckError(
                f"Policy {self.policy.name} made an invalid plan at {self.now_s:.1f} s: {first}"
            )

    # -- events -------------------------------------------------------------------------

    def arrive(self, i: int) -> None:
        """Handle an arrival."""
        record = self.records[i]
        job = record.job
        self.present += 1
        if job.mode == "async":
            record.group_id = "dedicated"
            record.group_size_max = 1
            record.worst_iteration_s = record.worst_single_s = job.solo_s
            self._hold_dedicated(job, 1)
            self.push(job.arrival_s + job.duration_s, _DEPARTURE, i)
            return
        if self.convention == "wallclock":
            self.push(job.arrival_s + job.duration_s, _DEPARTURE, i)
        change = self.policy.arrive(job, self.now_s)
        if change.admission is not None:
            record.admission = change.admission
            self.admission[change.admission] += 1
        self.apply(change)

    def depart(self, i: int) -> None:
        """Handle a departure."""
        record = self.records[i]
        job = record.job
        self.present -= 1
        record.departure_s = self.now_s
        if job.mode == "async":
            self._leave_dedicated(record)
            return
        self.account(self.running[self.home.pop(i)])
        if self.convention == "work":
            record.iterations = job.iterations
        self.apply(self.policy.depart(job, self.now_s))

    def _leave_dedicated(self, record: JobRecord) -> None:
        job = record.job
        seconds = self.now_s - job.arrival_s
        record.iterations = seconds / job.solo_s
        record.rollout_node_s = seconds * job.rollout_nodes
        record.train_node_s = seconds * job.train_nodes
        self._hold_dedicated(job, -1)
        self.dedicated.append(
            DedicatedNodes(
                job_id=job.job_id,
                from_s=job.arrival_s,
                to_s=self.now_s,
                rollout_nodes=job.rollout_nodes,
                train_nodes=job.train_nodes,
            )
        )

    def _hold_dedicated(self, job: Job, sign: int) -> None:
        """Take (sign 1) or release (-1) an async job's nodes, and count its sync traffic."""
        self.rollout_nodes += sign * job.rollout_nodes
        self.train_nodes += sign * job.train_nodes
        held = self.dedicated_nodes
        self.dedicated_nodes = (
            held[0] + sign * job.rollout_nodes,
            held[1] + sign * job.train_nodes,
        )
        self.sync_gbps += sign * _GBIT_PER_GB * job.sync_gb / job.solo_s

    def row(self, bound_usd_per_hour: float) -> None:
        """Record the state after all events of this moment."""
        values = (
            self.now_s,
            self.present,
            self.rollout_nodes,
            self.train_nodes,
            bound_usd_per_hour,
            self.sync_gbps if self.present else 0.0,
        )
        if self.rows and self.rows[-1][0] == self.now_s:
            self.rows[-1] = values
        else:
            self.rows.append(values)


def require_convention(convention: str) -> None:
    """Raise InputError for an unknown duration convention, with the nearest known one."""
    if convention not in DURATION_CONVENTIONS:
        raise InputError(
            f"Expected convention in {', '.join(DURATION_CONVENTIONS)}, got '{convention}'."
            f"{did_you_mean(convention, DURATION_CONVENTIONS)}"
        )


def refuse_one_step(jobs: JobTable) -> None:
    """Refuse one-step-off-policy jobs by name.

    Raises
    ------
    UnsupportedError
        Naming the first such jobs and their count.
    """
    found = jobs.where_mode("one-step")
    if len(found):
        names = ", ".join(f"'{jobs.job_id[i]}'" for i in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise UnsupportedError(
            f"One-step-off-policy jobs are not supported yet: {names}{more} have mode "
            f"'one-step'. Use mode 'sync' (a shorter pipeline than real) or leave them out."
        )


def replay(
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    *,
    convention: Convention = "work",
    check: bool = True,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay a trace under a policy.

    Parameters
    ----------
    jobs : JobTable
        In order of arrival; async jobs get dedicated nodes.
    policy : str
        Name in ``planner.policies.POLICIES``.
    options : PolicyOptions
    convention : {"work", "wallclock"}
    check : bool
        Check every version as it is made and the whole plan at the end.
    progress : callable, optional
        Called with (jobs departed, jobs) now and then.

    Raises
    ------
    InputError
        For an unknown convention, or when there are no jobs.
    UnsupportedError
        When the trace has one-step-off-policy jobs.
    CheckError
        When a policy that promises valid plans breaks a rule.
    """
    require_convention(convention)
    if not len(jobs):
        raise InputError("Expected at least one job, got none.")
    refuse_one_step(jobs)
    loop = _Loop(jobs, make_policy(policy, options), options, convention, check)
    loop.records = [JobRecord(job) for job in jobs]
    loop.index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    loop.stamp = [0] * len(jobs)
    for i, record in enumerate(loop.records):
        loop.push(record.job.arrival_s, _ARRIVAL, i)
    sums = VolumeSums(options.cluster, options.limits)
    departed, every = 0, max(1, len(jobs) // 200)
    while loop.heap:
        time_s, kind, _, i, stamp = heapq.heappop(loop.heap)
        if kind == _DEPARTURE and stamp != loop.stamp[i]:
            continue
        loop.now_s = time_s
        job = loop.records[i].job
        if job.mode != "async":
            (sums.add if kind == _ARRIVAL else sums.remove)(job)
        if kind == _ARRIVAL:
            loop.arrive(i)
        else:
            loop.stamp[i] += 1
            loop.depart(i)
            departed += 1
            if progress is not None and (departed % every == 0 or departed == len(jobs)):
                progress(departed, len(jobs))
        loop.row(sums.usd_per_hour() + options.cluster.usd_per_hour(*loop.dedicated_nodes))
    return _result(loop)


def _admission(loop: _Loop) -> dict[str, int] | None:
    """Return jobs by kind of admission, every kind that the policy could have used."""
    kinds = loop.policy.admission_kinds
    return {kind: loop.admission[kind] for kind in kinds} if kinds else None


def _result(loop: _Loop) -> ReplayResult:
    columns = list(zip(*loop.rows, strict=True))
    timeline = Timeline(
        time_s=np.array(columns[0]),
        jobs=np.array(columns[1], dtype=np.int64),
        rollout_nodes=np.array(columns[2], dtype=np.int64),
        train_nodes=np.array(columns[3], dtype=np.int64),
        bound_usd_per_hour=np.array(columns[4]),
        sync_gbps=np.maximum(np.array(columns[5]), 0.0),
    )
    cluster = loop.options.cluster
    usd_per_hour = cluster.rollout.usd_per_hour * timeline.rollout_nodes
    usd_per_hour = usd_per_hour + cluster.train.usd_per_hour * timeline.train_nodes
    usd_total = float(np.dot(usd_per_hour[:-1], timeline.hours))
    plan = Plan(
        policy=loop.policy.name,
        durations=loop.convention,
        cluster=cluster,
        jobs=loop.jobs,
        limits=loop.options.limits,
        groups=tuple(loop.versions),
        usd_total=usd_total,
        dedicated=tuple(loop.dedicated),
    )
    breaches = dict(loop.breaches)
    if loop.check and loop.policy.promises_valid:
        report = check_plan(plan)
        if not report.ok:
            first = "; ".join(v.message for v in report.violations[:3])
            raise CheckError(f"Policy {plan.policy} made an invalid plan: {first}")
    return ReplayResult(
        policy=loop.policy.name,
        convention=loop.convention,
        jobs=loop.jobs,
        cluster=cluster,
        limits=loop.options.limits,
        plan=plan,
        records=tuple(loop.records),
        timeline=timeline,
        usd_total=usd_total,
        dedicated_usd_total=math.fsum(
            cluster.usd_per_hour(d.rollout_nodes, d.train_nodes) * (d.to_s - d.from_s) / _HOUR_S
            for d in loop.dedicated
        ),
        bound_usd_total=float(np.dot(timeline.bound_usd_per_hour[:-1], timeline.hours)),
        bound_method=VOLUME,
        admission=_admission(loop),
        run_node_s={"rollout": loop.run_rollout_s, "train": loop.run_train_s},
        promises_valid=loop.policy.promises_valid,
        checked=loop.check and loop.policy.promises_valid,
        breaches=breaches,
        decision_s=tuple(getattr(loop.policy, "decision_s", ())),
    )
