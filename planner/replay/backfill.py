"""Backfilling: who may start while the head of the queue waits, without delaying it.

The stays of the jobs present are taken as known: they are the trace's own (what users ask for is
not in a trace), so this is backfilling with perfect estimates of runtimes, the best a scheduler
could do. Nothing else of the future is used: no arrival that has not happened.

* The head's *promise* is when it would start if nobody else started before it: the jobs present
  leave one by one, the policy re-times the groups they leave, and the head is tried after each
  moment at which somebody leaves.
* A later job starts now only if, with it in place, the same simulation starts the head no later
  than the promise. What comes out is the new promise.

The replay is deterministic, and until the next backfilled job it does exactly what the simulation
did: new arrivals only queue behind. So a promise is kept, and no promise is later than the one
before: **from the moment it becomes the head a job starts no later than if nobody were
backfilled any more**. (Backfilling that happened before it was the head may well have delayed it:
that is the difference to conservative backfilling, where every job has a promise. EASY, after
Lifka 1995, makes the same promise by nodes alone; here groups are simulated, since a job may
delay the head without taking a node, by stretching a period.)

Later jobs are tried in the order of the queue: when they arrive, and whenever nodes or groups
have changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from math import inf

from instances.jobs import Job
from instances.plan import Fleet
from planner.placement.group_state import GroupState
from planner.policies.policy import Change, Policy
from planner.policies.replay_result import Convention

__all__ = ["Backfill", "Forecast"]

#: (time, sequence, stamp, job) of a departure.
Departure = tuple[float, int, int, Job]


class Forecast:
    """The jobs that run, and when each leaves: the replay's arithmetic without its accounts.

    Every sum is formed as :mod:`planner.replay.loop` forms it, in the same order, so that moments
    agree to the last bit.

    Parameters
    ----------
    policy : Policy
        Its own: it is told of departures and starts.
    used : (int, int)
        Nodes in use.
    groups : iterable of (GroupState, float)
        Running groups and since when.
    done : dict of str to float
        Iterations of the jobs in them until then.
    departures : iterable of (float, int, Job)
        (time, sequence, job), in any order.
    """

    __slots__ = (
        "_convention", "_done", "_fleet", "_groups", "_heap", "_policy", "_sequence", "_stamp",
        "_used", "now_s",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        convention: Convention,
        fleet: Fleet,
        used: tuple[int, int],
        groups: Iterable[tuple[GroupState, float]],
        done: dict[str, float],
        departures: Iterable[tuple[float, int, Job]],
    ) -> None:
        self._policy = policy
        self._convention = convention
        self._fleet = fleet
        self._used = used
        self._groups = {state.number: (state, since_s) for state, since_s in groups}
        self._done = done
        self._heap: list[Departure] = [(at, number, 0, job) for at, number, job in departures]
        heapq.heapify(self._heap)
        self._sequence = max((number for _, number, _, _ in self._heap), default=0)
        self._stamp: dict[str, int] = {}
        self.now_s = -inf

    def fork(self, now_s: float) -> Forecast:
        """Return an independent copy at ``now_s``, until which nobody has left."""
        other = Forecast.__new__(Forecast)
        other._policy = self._policy.fork()
        other._convention, other._fleet = self._convention, self._fleet
        other._used, other._sequence = self._used, self._sequence
        other._groups, other._done = dict(self._groups), dict(self._done)
        other._heap, other._stamp = list(self._heap), dict(self._stamp)
        other.now_s = now_s
        return other

    def start(self, job: Job) -> bool:
        """Start a job now if it fits; return whether it did."""
        room = (
            self._fleet.rollout_nodes - self._used[0],
            self._fleet.train_nodes - self._used[1],
        )
        if job.mode == "async":
            if job.rollout_nodes > room[0] or job.train_nodes > room[1]:
                return False
            self._use(job.rollout_nodes, job.train_nodes)
            self._push(self.now_s + job.duration_s, job)
            return True
        change = self._policy.arrive(job, self.now_s, room)
        if change is None:
            return False
        self._done[job.job_id] = 0.0
        if self._convention == "wallclock":
            self._push(self.now_s + job.duration_s, job)
        self._apply(change)
        return True

    def first_start(self, job: Job, until_s: float = inf) -> float:
        """Return when a job starts that is tried after every departure, none before it.

        ``inf`` when that is after ``until_s``.
        """
        while self._heap and self._heap[0][0] <= until_s:
            self.now_s = self._heap[0][0]
            left = 0
            while self._heap and self._heap[0][0] == self.now_s:
                _, _, stamp, leaving = heapq.heappop(self._heap)
                if stamp == self._stamp.get(leaving.job_id, 0):
                    self._depart(leaving)
                    left += 1
            if left and self.start(job):
                return self.now_s
        return inf

    # -- one event ------------------------------------------------------------------------

    def _push(self, at_s: float, job: Job) -> None:
        self._sequence += 1
        stamp = self._stamp.get(job.job_id, 0)
        heapq.heappush(self._heap, (at_s, self._sequence, stamp, job))

    def _use(self, rollout_nodes: int, train_nodes: int) -> None:
        self._used = (self._used[0] + rollout_nodes, self._used[1] + train_nodes)

    def _depart(self, job: Job) -> None:
        if job.mode == "async":
            self._use(-job.rollout_nodes, -job.train_nodes)
            return
        self._apply(self._policy.depart(job, self.now_s))
        del self._done[job.job_id]

    def _apply(self, change: Change) -> None:
        for number in change.ended:
            self._close(number)
        for state in change.groups:
            if state.number in self._groups:
                self._close(state.number)
        for state in change.groups:
            self._open(state)

    def _close(self, number: int) -> None:
        """Credit the jobs of a group with what they did in it."""
        state, since_s = self._groups.pop(number)
        seconds = self.now_s - since_s
        if seconds > 0:
            for job, rate in zip(state.jobs, state.rates, strict=True):
                self._done[job.job_id] += rate * (seconds / state.period_s)
        self._use(-len(state.rollout_nodes), -len(state.train_nodes))

    def _open(self, state: GroupState) -> None:
        self._groups[state.number] = (state, self.now_s)
        self._use(len(state.rollout_nodes), len(state.train_nodes))
        if self._convention == "wallclock":
            return
        for job, rate in zip(state.jobs, state.rates, strict=True):
            self._stamp[job.job_id] = self._stamp.get(job.job_id, 0) + 1
            left = max(job.iterations - self._done[job.job_id], 0.0)
            self._push(self.now_s + left * state.period_s / rate, job)


class Backfill:
    """Finds jobs that may pass the head, remembering what it knows until something changes.

    Parameters
    ----------
    forecast : callable
        The forecast of the jobs that run now.
    """

    def __init__(self, forecast: Callable[[], Forecast]) -> None:
        self._forecast = forecast
        self._base: Forecast | None = None
        self._promise_s: float | None = None
        self._tried = 1

    def forget(self) -> None:
        """Nodes or groups have changed: everybody is to be tried again."""
        self._base = self._promise_s = None
        self._tried = 1

    def next(
        self, waiting: Sequence[int], as_started: Callable[[int], Job], now_s: float
    ) -> int | None:
        """Return the place in the queue of the next job that may start now, if any.

        Parameters
        ----------
        waiting : sequence of int
            The queue, its head first, which does not fit.
        as_started : callable
            Returns a job of the queue as a policy sees it if it starts now.
        now_s : float
        """
        if len(waiting) <= self._tried:
            return None
        if self._base is None:
            self._base = self._forecast()
        first, self._tried = self._tried, len(waiting)
        head, trial = as_started(waiting[0]), self._base.fork(now_s)
        for at in range(first, len(waiting)):
            if not trial.start(as_started(waiting[at])):
                continue  # and nothing has changed
            if self._promise_s is None:
                self._promise_s = self._base.fork(now_s).first_start(head)
            if trial.start(head) or trial.first_start(head, self._promise_s) < inf:
                return at
            trial = self._base.fork(now_s)
        return None
