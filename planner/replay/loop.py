"""The event loop of a replay: who runs where between two events, and the accounts of it.

Between events every job of a group with period ``C_g`` and rate ``k`` does ``k / C_g`` iterations
per second, whatever each of the ``k`` takes; a paused job (a restart after a move) does none,
while its group goes on around it. Events are ordered by (time, kind, sequence): at one moment
departures come first, then ends of stays as they would be without pauses, nodes that are let go,
repairs and failures (:mod:`planner.replay.failing_replay`), arrivals, starts of jobs that waited,
and reviews.

Under a fixed fleet jobs queue (:mod:`planner.replay.admission_queue`); a policy sees a job that
waited as one that arrives when it starts.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from instances.checker import Violation, check_group
from instances.errors import CheckError
from instances.jobs import Job, JobTable
from instances.plan import (
    DedicatedNodes,
    GroupVersion,
    HeldNodes,
    Loss,
    Outage,
    Pause,
    Start,
)
from models.bounds.volume import VolumeSums
from planner.placement.group_state import GroupState
from planner.policies.policy import Change, NodesToHold, Policy, PolicyOptions, Room, fits
from planner.policies.replay_result import Convention, JobRecord
from planner.replay.admission_queue import AdmissionQueue
from planner.replay.backfill import Backfill, Forecast
from planner.replay.iterations import iteration_seconds_of

__all__ = [
    "ADMIT",
    "ARRIVAL",
    "DEPARTURE",
    "FAIL_JOB",
    "FAIL_NODE",
    "RELEASE",
    "REPAIR",
    "REVIEW",
    "UNPAUSED_END",
    "ReplayLoop",
]

#: Kinds of events, in their order at one moment.
DEPARTURE, UNPAUSED_END, RELEASE, REPAIR, FAIL_NODE, FAIL_JOB, ARRIVAL, ADMIT, REVIEW = range(9)

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
class ReplayLoop:
    """The event loop's state.

    Attributes
    ----------
    sums : VolumeSums
        Volume bound of the jobs that would be present without pauses: what no policy can beat.
        A job counts from its start.
    queue : AdmissionQueue or None
        Jobs that wait for a fixed fleet.
    left : dict of str to tuple
        Per group when its last recorded version ended, s, and its rollout and train nodes.
    """

    jobs: JobTable
    policy: Policy
    options: PolicyOptions
    convention: Convention
    check: bool
    sums: VolumeSums
    queue: AdmissionQueue | None = None
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
    pauses: list[Pause] = field(default_factory=list)
    held: list[HeldNodes] = field(default_factory=list)
    left: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    rows: list[tuple[float, int, int, int, float, float, int]] = field(default_factory=list)
    admission: Counter[str] = field(default_factory=Counter)
    breaches: Counter[str] = field(default_factory=Counter)
    run_rollout_s: float = 0.0
    run_train_s: float = 0.0
    present: int = 0
    rollout_nodes: int = 0
    train_nodes: int = 0
    sync_gbps: float = 0.0
    dedicated_nodes: tuple[int, int] = (0, 0)
    backfill: Backfill = field(init=False)

    def __post_init__(self) -> None:
        self.records = [JobRecord(job) for job in self.jobs]
        self.backfill = Backfill(self.forecast)
        self.index = {job_id: i for i, job_id in enumerate(self.jobs.job_id)}
        self.stamp = [0] * len(self.records)
        for i, record in enumerate(self.records):
            self._push(record.job.arrival_s, ARRIVAL, i)
        if self.policy.review_s is not None:
            self._push(float(self.jobs.arrival_s.min()) + self.policy.review_s, REVIEW, -1)

    def _push(self, time_s: float, kind: int, item: int) -> None:
        """Queue an event of a job, or of nodes held; a later stamp of the job makes it void."""
        self.sequence += 1
        stamp = self.stamp[item] if kind == DEPARTURE else 0
        heapq.heappush(self.heap, (time_s, kind, self.sequence, item, stamp))

    def step(self) -> int:
        """Take the next event and return its kind; -1 when there was nothing to do."""
        time_s, kind, _, item, stamp = heapq.heappop(self.heap)
        if kind == DEPARTURE and stamp != self.stamp[item]:
            return -1
        self.now_s = time_s
        if kind == REVIEW and not self._review():
            return -1
        if REPAIR <= kind <= FAIL_JOB and not self._failed(kind, item):
            return -1
        if kind == DEPARTURE:
            self.stamp[item] += 1
            self._depart(item)
        elif kind == ARRIVAL:
            self._arrive(item)
        elif kind == ADMIT:
            self._admit()
        elif kind == UNPAUSED_END:
            self.sums.remove(self.records[item].job)
        elif kind == RELEASE:
            self._release(self.held[item])
        if kind == REVIEW or (DEPARTURE <= kind <= FAIL_JOB and kind != UNPAUSED_END):
            self._nodes_changed()
        self._row()
        return kind

    def _failed(self, kind: int, item: int) -> bool:
        """Take a failure or a repair; return whether anything changed. Here nothing ever fails."""
        return False

    @property
    def pins_fixed(self) -> bool:
        """Whether no running job was moved."""
        return self.policy.pins_fixed

    # -- accounts -----------------------------------------------------------------------

    def _account(self, group: _Running) -> None:
        """Credit a group's jobs and nodes with the time since it was last accounted."""
        since_s, seconds = group.accounted_s, self.now_s - group.accounted_s
        if seconds <= 0:
            return
        group.accounted_s = self.now_s
        state = group.state
        shared_r = Counter(node for pins in state.rollout_pins for node in pins)
        shared_t = Counter(node for pins in state.train_pins for node in pins)
        for record, rate, r_pins, t_pins, starts in zip(
            group.records,
            state.rates,
            state.rollout_pins,
            state.train_pins,
            state.starts_s,
            strict=True,
        ):
            running_s = seconds
            if record.paused_until_s > since_s:
                running_s = max(self.now_s - record.paused_until_s, 0.0)
            iterations = rate * (running_s / state.period_s)
            record.iterations += iterations
            record.rollout_node_s += seconds * sum(1 / shared_r[node] for node in r_pins)
            record.train_node_s += seconds * sum(1 / shared_t[node] for node in t_pins)
            job = record.job
            if r_pins:
                self.run_rollout_s += iterations * job.rollout_s * len(r_pins)
                self.run_train_s += iterations * job.train_s * len(t_pins)
            else:  # both phases on the train nodes, train right after rollout
                factor = (starts[0][1] - starts[0][0]) / job.rollout_s
                both = factor * (job.rollout_s + job.train_s)
                self.run_train_s += iterations * both * len(t_pins)

    def _close(self, number: int) -> _Running:
        """End a group's current version at this moment."""
        group = self.running.pop(number)
        self._account(group)
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
        self.left[state.group_id] = (self.now_s, group.rollout_nodes, group.train_nodes)
        for record, rate, starts in zip(group.records, state.rates, state.starts_s, strict=True):
            record.group_size_max = max(record.group_size_max, len(group.records))
            record.worst_iteration_s = max(record.worst_iteration_s, state.period_s / rate)
            single_s = max(iteration_seconds_of(starts, state.period_s))
            record.worst_single_s = max(record.worst_single_s, single_s)
        if not self.policy.promises_valid:
            self.breaches.update(v.rule for v in self._violations(version))

    def _open(self, state: GroupState) -> None:
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
                from_s = max(self.now_s, record.paused_until_s)
                self._push(from_s + left * state.period_s / rate, DEPARTURE, i)

    # -- what a policy answers ----------------------------------------------------------

    def _apply(self, change: Change) -> None:
        """Put a policy's answer into effect, checking what promises to be valid."""
        for number in change.ended:
            self._close(number)
        again = [state for state in change.groups if state.number in self.running]
        for state in again:
            self._close(state.number)
        for job_id in change.moved:
            self._pause(self.index[job_id])
        for state in change.groups:
            if self.check and self.policy.promises_valid:
                self._require_valid(state)
            self._open(state)
        for nodes in change.held:
            self._hold(nodes)

    def _pause(self, i: int) -> None:
        """Restart a moved job: no progress for its restart seconds, which lengthen its stay."""
        record = self.records[i]
        job = record.job
        record.moves += 1
        if job.restart_s <= 0:
            return
        if record.paused_until_s > self.now_s:
            raise CheckError(
                f"Policy {self.policy.name} moved job '{job.job_id}' at {self.now_s:.1f} s, while "
                f"it restarts until {record.paused_until_s:.1f} s."
            )
        record.paused_s += job.restart_s
        record.paused_until_s = self.now_s + job.restart_s
        self.pauses.append(Pause(job_id=job.job_id, from_s=self.now_s, to_s=record.paused_until_s))
        if self.convention == "wallclock":
            self.stamp[i] += 1
            self._push(record.start_s + job.duration_s + record.paused_s, DEPARTURE, i)

    def _hold(self, nodes: NodesToHold) -> None:
        """Keep paying for nodes that a group has left, if it ever had them for any time."""
        ended_s, rollout, train = self.left.get(nodes.group_id, (-math.inf, 0, 0))
        rollout, train = min(nodes.rollout_nodes, rollout), min(nodes.train_nodes, train)
        if ended_s < self.now_s or not rollout + train:
            return
        held = HeldNodes(
            group_id=nodes.group_id,
            from_s=self.now_s,
            to_s=self.now_s + nodes.seconds,
            rollout_nodes=rollout,
            train_nodes=train,
        )
        self.rollout_nodes += held.rollout_nodes
        self.train_nodes += held.train_nodes
        self.held.append(held)
        self._push(held.to_s, RELEASE, len(self.held) - 1)

    def _release(self, held: HeldNodes) -> None:
        self.rollout_nodes -= held.rollout_nodes
        self.train_nodes -= held.train_nodes

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

    def _arrive(self, i: int) -> None:
        """Handle an arrival: the job starts, or queues if there is a fleet to wait for."""
        if self.queue is None:
            self._start(i, None)
        else:
            self.queue.waiting.append(i)
            self._call_queue()

    def _start(self, i: int, room: Room | None) -> bool:
        """Start a job now if it fits; return whether it did."""
        record = self.records[i]
        job = self._as_started(i)
        if job.mode == "async":
            if not fits((job.rollout_nodes, job.train_nodes), room):
                return False
            record.group_id = "dedicated"
            record.group_size_max = 1
            record.worst_iteration_s = record.worst_single_s = job.solo_s
            self._hold_dedicated(job, 1)
            self._push(self.now_s + job.duration_s, DEPARTURE, i)
        else:
            change = self.policy.arrive(job, self.now_s, room)
            if change is None:
                return False
            self.sums.add(job)
            if self.convention == "wallclock":
                end_s = self.now_s + job.duration_s
                self._push(end_s, DEPARTURE, i)
                if not self.policy.pins_fixed:  # pauses may lengthen the stay, not the bound
                    self._push(end_s, UNPAUSED_END, i)
            if change.admission is not None:
                record.admission = change.admission
                self.admission[change.admission] += 1
            self._apply(change)
        self.present += 1
        record.start_s = self.now_s
        if record.wait_s > 0:
            self.starts.append(Start(job.job_id, self.now_s))
        return True

    def _as_started(self, i: int) -> Job:
        """Return a job as a policy sees it if it starts now: one that arrives now."""
        job = self.records[i].job
        return job if job.arrival_s == self.now_s else replace(job, arrival_s=self.now_s)

    def _nodes_changed(self) -> None:
        """Have the queue looked at: somebody who waits may fit now."""
        self.backfill.forget()
        if self.queue is not None and self.queue.waiting:
            self._call_queue()

    def _call_queue(self) -> None:
        """Have the queue looked at once all else of this moment has happened."""
        assert self.queue is not None
        if not self.queue.called:
            self.queue.called = True
            self._push(self.now_s, ADMIT, -1)

    def _admit(self) -> None:
        """Start whoever may start now."""
        queue = self.queue
        assert queue is not None
        queue.called = False
        while queue.waiting:
            at = self._start_one(queue)
            if at is None:
                break
            queue.start(at, self.now_s)
            self.backfill.forget()
        queue.check(self.now_s)

    def _start_one(self, queue: AdmissionQueue) -> int | None:
        """Start the head if it fits, else who may pass it; return the place in the queue."""
        room = queue.room(self.rollout_nodes, self.train_nodes)
        if self._start(queue.waiting[0], room):
            return 0
        if queue.rule == "fifo":
            return None
        at = self.backfill.next(queue.waiting, self._as_started, self.now_s)
        if at is not None:
            started = self._start(queue.waiting[at], room)
            assert started  # as in the forecast
        return at

    def forecast(self) -> Forecast:
        """Return when the jobs that run would leave if nobody else started."""
        assert self.queue is not None
        return Forecast(
            self.policy.fork(),
            self.convention,
            self.queue.fleet,
            (self.rollout_nodes, self.train_nodes),
            [(group.state, group.since_s) for group in self.running.values()],
            {
                record.job.job_id: record.iterations
                for group in self.running.values()
                for record in group.records
            },
            [
                (time_s, sequence, self.records[item].job)
                for time_s, kind, sequence, item, stamp in self.heap
                if kind == DEPARTURE and stamp == self.stamp[item]
            ],
        )

    def _depart(self, i: int) -> None:
        """Handle a departure."""
        record = self.records[i]
        job = record.job
        self.present -= 1
        record.departure_s = self.now_s
        if job.mode == "async":
            self._leave_dedicated(record)
            return
        if self.policy.pins_fixed or self.convention == "work":
            self.sums.remove(job)
        self._account(self.running[self.home.pop(i)])
        if self.convention == "work":
            record.iterations = job.iterations
        self._apply(self.policy.depart(job, self.now_s))

    def _review(self) -> bool:
        """Let the policy think again, and come back; return whether anybody was present."""
        if self.heap and self.policy.review_s is not None:
            self._push(self.now_s + self.policy.review_s, REVIEW, -1)
        if not self.present:
            return False
        self._apply(self.policy.review(self.now_s))
        return True

    def _leave_dedicated(self, record: JobRecord) -> None:
        job = record.job
        seconds = self.now_s - record.start_s
        record.iterations = seconds / job.solo_s
        record.rollout_node_s = seconds * job.rollout_nodes
        record.train_node_s = seconds * job.train_nodes
        self._hold_dedicated(job, -1)
        self.dedicated.append(
            DedicatedNodes(
                job_id=job.job_id,
                from_s=record.start_s,
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
        self.policy.reserve(self.dedicated_nodes)
        self.sync_gbps += sign * _GBIT_PER_GB * job.sync_gb / job.solo_s

    def _row(self) -> None:
        """Record the state after all events of this moment."""
        cluster = self.options.cluster
        values = (
            self.now_s,
            self.present,
            self.rollout_nodes,
            self.train_nodes,
            self.sums.usd_per_hour() + cluster.usd_per_hour(*self.dedicated_nodes),
            self.sync_gbps if self.present else 0.0,
            0 if self.queue is None else len(self.queue.waiting),
        )
        if self.rows and self.rows[-1][0] == self.now_s:
            self.rows[-1] = values
        else:
            self.rows.append(values)
