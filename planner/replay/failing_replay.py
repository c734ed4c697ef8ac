"""Replay of a trace while jobs and nodes fail.

The loop is that of :mod:`planner.replay.loop` with three more kinds of events, which come after
the departures of a moment and before its arrivals. When and what fails, and the assumptions, are
in :mod:`planner.replay.failures`.

* ``FAIL_JOB``: the job leaves its group, its iterations since its last checkpoint are undone,
  and it comes back at once as a new arrival: its policy places it as it would any, and it
  restarts, making no progress for its ``restart_s``;
* ``FAIL_NODE``: the same for every job pinned to the node, in the order of the group, once all of
  them have left. Nodes are named for good, so nobody is pinned to the failed one again;
* ``REPAIR``: under a fixed fleet (``PolicyOptions.fleet``) it is a node smaller from the failure
  until then. Jobs that do not fit go to the end of the queue.

Others of the group keep their nodes, and their period never gets longer by it; their SLO counts
as ever. For a job that fails the time of its restarts and of iterations done again counts, the
queue apart: the SLO that comes out is a figure, not a promise. Under ``work`` a job leaves when
its iterations less those undone are done; under ``wallclock`` after ``duration_s`` and its
pauses, with what is undone missing from its iterations (that convention loses work, not time).

Recorded are :class:`~instances.plan.Loss` and :class:`~instances.plan.Outage`, and the checker
verifies them. The bound is that of the jobs in groups at each moment, as the stays came out.
Nothing fails: the plain replay, to the last bit.

Policies: ``weave`` and ``solo``. Queue: ``fifo``, since what backfilling promises the head is
computed from stays that failures change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.jobs import Job, JobTable
from instances.plan import Fleet, Loss, Outage, Pause, Pool
from models.bounds.volume import VolumeSums
from planner.placement.group_state import GroupState
from planner.policies.policy import PolicyOptions, Room
from planner.policies.registry import make_policy, require_policy
from planner.policies.replay_result import Convention, ReplayResult
from planner.replay.admission_queue import require_within_fleet
from planner.replay.failures import FailureClocks, FailureEvent, FailureKind, FailureParams
from planner.replay.loop import DEPARTURE, FAIL_JOB, FAIL_NODE, REPAIR, ReplayLoop
from planner.replay.replaying import (
    Progress,
    queue_of,
    replay,
    require_convention,
    run_to_end,
)

__all__ = [
    "FAILING_POLICIES",
    "FailingLoop",
    "FailureCounts",
    "FailureRun",
    "failing_loop",
    "replay_with_failures",
]

#: Policies that can replay failures.
FAILING_POLICIES: Final = ("weave", "solo")

_POOLS: Final[tuple[Pool, ...]] = ("rollout", "train")
_HOUR_S: Final = 3600.0
#: Work left that is only the round-off of a sum: such a job is about to leave.
_NEARLY_DONE: Final = 1e-9

#: Group number and pins of a job: what a move changes.
Home = tuple[int, frozenset[int], frozenset[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureCounts:
    """Failures that struck something, by kind.

    Attributes
    ----------
    jobs : int
        Failures of jobs.
    rollout_nodes, train_nodes : int
        Failures of nodes that somebody was pinned to.
    idle_nodes : int
        Failures of nodes of a fixed fleet that nobody used.
    """

    jobs: int = 0
    rollout_nodes: int = 0
    train_nodes: int = 0
    idle_nodes: int = 0


@dataclass(frozen=True, kw_only=True)
class FailureRun:
    """A replay with failures, and what struck."""

    result: ReplayResult
    params: FailureParams
    counts: FailureCounts


@dataclass(slots=True)
class FailingLoop(ReplayLoop):
    """The event loop with failures.

    Attributes
    ----------
    counts : Counter
        Failures that struck, by name in :class:`FailureCounts`.
    away : dict of int to int
        Jobs that have failed and are not back, and the place of their loss in ``losses``.
    homes : dict of int to Home
        Where those jobs were.
    pause_at : dict of int to int
        Place in ``pauses`` of each job's last restart.
    down : list of int
        Failed nodes of the fleet, by pool.
    places : list of int
        Clocks of nodes that run, by pool.
    departed : int
        Jobs that have left for good.
    """

    failures: FailureParams = field(default_factory=FailureParams)
    counts: Counter[str] = field(default_factory=Counter)
    away: dict[int, int] = field(default_factory=dict)
    homes: dict[int, Home] = field(default_factory=dict)
    pause_at: dict[int, int] = field(default_factory=dict)
    down: list[int] = field(default_factory=lambda: [0, 0])
    places: list[int] = field(default_factory=lambda: [0, 0])
    departed: int = 0
    clocks: FailureClocks = field(init=False)

    # super() without arguments does not work in a class with slots made by dataclass

    def __post_init__(self) -> None:
        ReplayLoop.__post_init__(self)
        self.clocks = FailureClocks(self.failures, float(self.jobs.arrival_s.min()))
        for event in self.failures.events:
            self.await_failure(event)
        if self.clocks.runs("job"):
            for i, record in enumerate(self.records):
                if record.job.mode != "async":
                    self._wind("job", i, record.job.arrival_s)

    def await_failure(self, event: FailureEvent) -> None:
        """Queue a failure of the moments to come: of this one all failures are over."""
        if event.job_id is not None:
            self._push(event.at_s, FAIL_JOB, self.index[event.job_id])
        elif event.node is not None:
            self._push(event.at_s, FAIL_NODE, 2 * event.node + (event.kind == "train"))

    @property
    def pins_fixed(self) -> bool:
        """Whether no running job was moved: no failure struck one."""
        return self.policy.pins_fixed and not self.losses

    def step(self) -> int:
        """Take the next event and return its kind; -1 when there was nothing to do."""
        kind = ReplayLoop.step(self)
        self._wind_places()
        return kind

    # -- clocks -------------------------------------------------------------------------

    def _wind(self, kind: FailureKind, number: int, after_s: float) -> None:
        """Queue the next strike of a clock."""
        at_s = self.clocks.next_s(kind, number, after_s)
        if kind == "job":
            self._push(at_s, FAIL_JOB, number)
        else:
            self._push(at_s, FAIL_NODE, 2 * number + (kind == "train"))

    def _wind_places(self) -> None:
        """Start the clocks of places that there were not before."""
        if self.departed == len(self.records):
            return
        fleet = self.options.fleet
        used = (self.rollout_nodes, self.train_nodes)
        if fleet is not None:
            used = (fleet.rollout_nodes, fleet.train_nodes)
        for p, pool in enumerate(_POOLS):
            if used[p] > self.places[p] and self.clocks.runs(pool):
                for place in range(self.places[p], used[p]):
                    self._wind(pool, place, self.now_s)
                self.places[p] = used[p]

    # -- events -------------------------------------------------------------------------

    def _failed(self, kind: int, item: int) -> bool:
        """Take a failure or a repair; return whether anything changed."""
        if self.departed == len(self.records):
            return False
        if kind == REPAIR:
            self._set_down(item, -1)
            return True
        if kind == FAIL_JOB:
            struck = self.fail_job(item)
            if self.clocks.runs("job") and not self._is_over(item):
                self._wind("job", item, self.now_s)
            return struck
        place, p = divmod(item, 2)
        if self.clocks.runs(_POOLS[p]):
            self._wind(_POOLS[p], place, self.now_s)
        return self.fail_node(_POOLS[p], place)

    def _is_over(self, i: int) -> bool:
        """Return whether a job has left for good."""
        record = self.records[i]
        return bool(record.group_id) and i not in self.home and i not in self.away

    def fail_job(self, i: int) -> bool:
        """Fail a job now, if it is in a group; return whether it was struck."""
        if i not in self.home or self._nearly_done(i):
            return False
        self.counts["jobs"] += 1
        self._strike([i])
        return True

    def fail_node(self, pool: Pool, place: int) -> bool:
        """Fail the node at a place of a pool now; return whether there was one that can fail."""
        p = _POOLS.index(pool)
        for number in sorted(self.running):
            state = self.running[number].state
            nodes = (state.rollout_nodes, state.train_nodes)[p]
            if place < len(nodes):
                pins = (state.rollout_pins, state.train_pins)[p]
                self._fail_pinned(p, nodes[place], state, pins)
                return True
            place -= len(nodes)
        place -= self.dedicated_nodes[p]
        if self.queue is None or place < 0:
            return False
        if place >= self.queue.room(self.rollout_nodes, self.train_nodes)[p]:
            return False  # down already, or none
        self.counts["idle_nodes"] += 1
        self._take_down(p)
        return True

    def _fail_pinned(
        self, p: int, node: int, state: GroupState, pins: tuple[tuple[int, ...], ...]
    ) -> None:
        """Fail a node of a group: its jobs leave, and come back elsewhere."""
        self.counts[f"{_POOLS[p]}_nodes"] += 1
        hit = [
            self.index[job.job_id] for job, own in zip(state.jobs, pins, strict=True) if node in own
        ]
        if self.queue is not None:
            self._take_down(p)
        self._strike(hit)

    def _take_down(self, p: int) -> None:
        """Take a node out of the fleet until it is repaired."""
        seconds = self.failures.repair_h * _HOUR_S
        if self.queue is None or seconds <= 0:
            return
        until_s = self.now_s + seconds
        self.outages.append(Outage(pool=_POOLS[p], from_s=self.now_s, to_s=until_s))
        self._push(until_s, REPAIR, p)
        self._set_down(p, 1)

    def _set_down(self, p: int, by: int) -> None:
        """Change the number of failed nodes of a pool."""
        fleet, queue = self.options.fleet, self.queue
        assert fleet is not None
        assert queue is not None
        self.down[p] += by
        queue.fleet = Fleet(fleet.rollout_nodes - self.down[0], fleet.train_nodes - self.down[1])

    # -- a job that fails ---------------------------------------------------------------

    def _end_s(self, i: int) -> float:
        """Return when a job leaves under ``wallclock`` if nothing happens to it any more."""
        record = self.records[i]
        return record.start_s + record.job.duration_s + record.paused_s + record.requeued_s

    def _nearly_done(self, i: int) -> bool:
        """Return whether only round-off keeps a job from leaving at this moment."""
        record = self.records[i]
        if self.convention == "wallclock":
            return self._end_s(i) <= self.now_s
        self._account(self.running[self.home[i]])
        iterations = record.job.iterations
        return iterations - record.iterations <= _NEARLY_DONE * iterations

    def _strike(self, hit: list[int]) -> None:
        """Let jobs fail together: all leave, then each comes back as a new arrival.

        Those who would have left at this moment anyway leave for good.
        """
        done = {i for i in hit if self._nearly_done(i)}
        for i in hit:
            if i in done:
                self.stamp[i] += 1
                self._depart(i)
            else:
                self._lose(i)
        for i in hit:
            if i in done:
                continue
            if self.queue is not None:
                self.queue.waiting.append(i)
                self._call_queue()
            else:
                back = self._resume(i, None)
                assert back  # with no end of room a job can always be alone

    def _depart(self, i: int) -> None:
        """Handle a departure."""
        ReplayLoop._depart(self, i)
        self.departed += 1

    def _lose(self, i: int) -> None:
        """Take a job out of its group and undo its iterations since its last checkpoint."""
        record = self.records[i]
        state = self.running[self.home.pop(i)].state
        self._account(self.running[state.number])
        self.homes[i] = _home_of(state, record.job.job_id)
        lost = self.failures.undone(record.iterations)
        record.iterations -= lost
        record.lost_iterations += lost
        record.failures += 1
        if record.failures > self.failures.max_failures_per_job:
            raise InfeasibleError(
                f"Expected job '{record.job.job_id}' to end, got {record.failures} failures of it "
                f"by {self.now_s / _HOUR_S:,.1f} h (max_failures_per_job): with a checkpoint every "
                f"{self.failures.checkpoint_iterations} iterations it loses what it does."
            )
        self._cut_pause(i)
        self.stamp[i] += 1  # its departure is void
        self.sums.remove(record.job)
        self.away[i] = len(self.losses)
        self.losses.append(
            Loss(job_id=record.job.job_id, at_s=self.now_s, iterations=lost, back_s=self.now_s)
        )
        self.present -= 1
        self._apply(self.policy.depart(record.job, self.now_s))

    def _cut_pause(self, i: int) -> None:
        """End a job's restart now, if it is in one."""
        record = self.records[i]
        if record.paused_until_s <= self.now_s:
            return
        record.paused_s -= record.paused_until_s - self.now_s
        record.paused_until_s = self.now_s
        at = self.pause_at.pop(i)
        if self.pauses[at].from_s < self.now_s:
            self.pauses[at] = replace(self.pauses[at], to_s=self.now_s)
            return
        del self.pauses[at]  # it failed twice at one moment
        self.pause_at = {j: k - (k > at) for j, k in self.pause_at.items()}

    def _start(self, i: int, room: Room | None) -> bool:
        """Start a job now if it fits, or let one that has failed come back."""
        if i in self.away:
            return self._resume(i, room)
        return ReplayLoop._start(self, i, room)

    def _resume(self, i: int, room: Room | None) -> bool:
        """Place a job that has failed and restart it, if it fits; return whether it does."""
        record = self.records[i]
        change = self.policy.arrive(self._as_left(i), self.now_s, room)
        if change is None:
            return False
        at = self.away.pop(i)
        waited_s = self.now_s - self.losses[at].at_s
        if waited_s > 0:
            self.losses[at] = replace(self.losses[at], back_s=self.now_s)
            record.requeued_s += waited_s
        self.present += 1
        self.sums.add(record.job)
        job_id = record.job.job_id
        state = next(s for s in change.groups if any(job.job_id == job_id for job in s.jobs))
        record.moves += _home_of(state, job_id) != self.homes.pop(i)
        self._restart(i)
        self._apply(change)
        return True

    def _as_left(self, i: int) -> Job:
        """Return a job as a policy sees it when it comes back: a new one, with what is left."""
        record = self.records[i]
        job = record.job
        left_s = (job.iterations - record.iterations) * job.solo_s
        if self.convention == "wallclock":
            left_s = self._end_s(i) - self.losses[self.away[i]].at_s
        return replace(job, arrival_s=self.now_s, duration_s=left_s)

    def _restart(self, i: int) -> None:
        """Pause a job for its restart; under ``wallclock`` it leaves later by that."""
        record = self.records[i]
        restart_s = record.job.restart_s
        if restart_s > 0:
            record.paused_s += restart_s
            record.paused_until_s = self.now_s + restart_s
            self.pause_at[i] = len(self.pauses)
            self.pauses.append(
                Pause(job_id=record.job.job_id, from_s=self.now_s, to_s=record.paused_until_s)
            )
        if self.convention == "wallclock":
            self._push(self._end_s(i), DEPARTURE, i)


def _home_of(state: GroupState, job_id: str) -> Home:
    """Return the group number and pins of a member."""
    at = next(k for k, job in enumerate(state.jobs) if job.job_id == job_id)
    return state.number, frozenset(state.rollout_pins[at]), frozenset(state.train_pins[at])


def replay_with_failures(
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    failures: FailureParams,
    *,
    convention: Convention = "work",
    check: bool = True,
    progress: Progress | None = None,
) -> FailureRun:
    """Replay a trace under a policy while jobs and nodes fail.

    Parameters are those of :func:`planner.replay.replaying.replay`, and ``failures``. When nothing
    ever fails the result is that of the plain replay; ``failures.restart_s`` is of no use then.

    Raises
    ------
    InputError, InfeasibleError, CheckError, KeyboardInterrupt
        As :func:`planner.replay.replaying.replay` does; InputError also for a listed failure of an
        unknown job, InfeasibleError when a job fails ``max_failures_per_job`` times.
    UnsupportedError
        For a policy that is not in ``FAILING_POLICIES``, for the queue ``backfill``, and for a
        listed failure of an async job.
    """
    require_policy(policy)
    if policy not in FAILING_POLICIES:
        raise UnsupportedError(
            f"Expected a policy in {', '.join(FAILING_POLICIES)} to replay failures, got "
            f"'{policy}'."
        )
    if failures.never:
        result = replay(
            jobs, policy, options, convention=convention, check=check, progress=progress
        )
        return FailureRun(result=result, params=failures, counts=FailureCounts())
    loop = failing_loop(jobs, policy, options, failures, convention=convention, check=check)
    result = run_to_end(loop, progress)
    return FailureRun(result=result, params=failures, counts=FailureCounts(**loop.counts))


def failing_loop(
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    failures: FailureParams,
    *,
    convention: Convention = "work",
    check: bool = True,
) -> FailingLoop:
    """Return the event loop of :func:`replay_with_failures`, before its first event."""
    require_convention(convention)
    if not len(jobs):
        raise InputError("Expected at least one job, got none.")
    _require_supported(jobs, options, failures)
    jobs = failures.of_jobs(jobs)
    options = replace(options, convention=convention)
    loop = FailingLoop(
        jobs,
        make_policy(policy, options),
        options,
        convention,
        check,
        VolumeSums(options.cluster, options.limits),
        queue_of(jobs, options),
        failures=failures,
    )
    if options.fleet is not None:
        require_within_fleet(jobs, loop.policy, options.fleet)
    return loop


def _require_supported(jobs: JobTable, options: PolicyOptions, failures: FailureParams) -> None:
    """Refuse by name what this replay cannot do."""
    if options.fleet is not None and options.queue == "backfill":
        raise UnsupportedError(
            "Expected queue 'fifo' to replay failures, got 'backfill': what it promises is "
            "computed from stays that failures change."
        )
    mode = dict(zip(jobs.job_id, jobs.mode, strict=True))
    for event in failures.events:
        if event.job_id is None:
            continue
        if event.job_id not in mode:
            raise InputError(f"Expected failures of jobs of the trace, got job '{event.job_id}'.")
        if mode[event.job_id] == "async":
            raise UnsupportedError(
                f"Expected failures of jobs in groups, got one of job '{event.job_id}', async."
            )
