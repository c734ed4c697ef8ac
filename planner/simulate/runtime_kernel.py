"""The event loop of one running group, over arrays.

*Lines*. Every job has two: its rollouts and its trains, line ``l = 2 j + pool`` (0 rollout, 1
train). A line does one phase after the other and is, in turn,

* ``BLOCKED``: its next phase waits for a phase of the same job;
* ``COMING``: that phase asks for its nodes at ``at[l]``;
* ``QUEUED``: it has asked, at ``at[l]``;
* ``RUNNING``: it holds all its nodes until ``at[l]``.

*Own order*. Train ``i`` asks when rollout ``i`` and train ``i - 1`` have ended; rollout ``i`` when
rollout ``i - 1`` has ended and sync after train ``i - lag`` is over; ``lag`` is 1, and 2 for a
one-step-off-policy job.

*Nodes*. A phase starts when all its nodes are free and it is its turn on each of them:

* ``fifo``: nobody who asked for that node before is still waiting; ties to the lower job index. A
  gang keeps its place in all its queues, so it never starves, and a node that waits with it for
  the others stands idle;
* ``round-robin``: it is next in the node's cyclic order, given as ``order``, one entry a phase:
  job, iteration within the period, and lap: how many turns after its iteration's own it comes.

*One moment*. All ends and requests of a moment come before all starts.

*Measured*. A job's iterations count from ``opens_s``, start of rollout to start of rollout, until
the first that starts at ``closes_s`` or later: the job is done then, the iteration that spans
``closes_s`` counted by its part before. It goes on, as others meet it, until all are done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.problem.compiled import compiled

__all__ = [
    "BINS",
    "BINS_PER_OCTAVE",
    "BLOCKED",
    "COMING",
    "DONE",
    "FAULT",
    "MORE",
    "OCTAVES_BELOW",
    "QUEUED",
    "RUNNING",
    "STUCK",
    "Found",
    "Layout",
    "State",
    "Window",
    "run_events",
    "settle",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BLOCKED, COMING, QUEUED, RUNNING = 0, 1, 2, 3
#: Why the loop returned.
DONE, MORE, STUCK, FAULT = 0, 1, 2, 3
#: Iteration times over ``T_j`` are counted in bins of equal ratio, from ``2^-8`` to ``2^8``.
BINS_PER_OCTAVE, OCTAVES_BELOW, BINS = 64, 8, 1024
_NONE = -1
#: Slack of a single iteration against its deadline: relative, and seconds.
_REL, _EPS_S = 1e-9, 1e-6


class Layout(NamedTuple):
    """What stays: one group, ``n`` jobs, ``2 n`` lines.

    Attributes
    ----------
    fifo : bool
    pin_from, pins : ndarray
        Nodes of line ``l`` are ``pins[pin_from[l]:pin_from[l + 1]]``, numbered over both pools.
    order_from : ndarray, (nodes + 1,)
    order : ndarray, (entries, 3)
        Entries of node ``x`` are rows ``order_from[x]`` to ``order_from[x + 1]``; fifo reads none.
    rates, lag : ndarray, (n,)
    switch_s, first_switch_s : ndarray, (2 n,)
        What a phase takes before it runs, and what the first one does.
    sync_s, solo_s, deadline_s : ndarray, (n,)
    """

    fifo: bool
    pin_from: IntArray
    pins: IntArray
    order_from: IntArray
    order: IntArray
    rates: IntArray
    lag: IntArray
    switch_s: FloatArray
    first_switch_s: FloatArray
    sync_s: FloatArray
    solo_s: FloatArray
    deadline_s: FloatArray


class Window(NamedTuple):
    """What is measured.

    Attributes
    ----------
    opens_s, closes_s : ndarray, (n,)
        Within which a job's iterations count.
    busy_to_s : float
        Until which nodes' work counts, from 0 on.
    """

    opens_s: FloatArray
    closes_s: FloatArray
    busy_to_s: float


class State(NamedTuple):
    """Where a run stands; changed in place.

    Attributes
    ----------
    now : ndarray, (1,)
    stage, ended : ndarray, (2 n,)
        Of every line, and how many of its phases have ended.
    at : ndarray, (2 n,)
    synced : ndarray, (n,)
        End of the last sync.
    holder, place, turn : ndarray, (nodes,)
        The line that holds a node, -1 without; the entry of ``order`` it waits for, and its turn.
    began : ndarray, (n,)
        Start of the last rollout.
    done : ndarray, (n,)
    """

    now: FloatArray
    stage: IntArray
    at: FloatArray
    ended: IntArray
    synced: FloatArray
    holder: IntArray
    place: IntArray
    turn: IntArray
    began: FloatArray
    done: IntArray


class Found(NamedTuple):
    """What was measured so far; changed in place.

    Attributes
    ----------
    sums : ndarray, (n, 6)
        Iterations counted, their seconds, squares of these, the longest, how many are late; and
        iterations done, the last one in part.
    bins : ndarray, (n, BINS)
    work : ndarray, (2 n, 2)
        Seconds of running and of switching of the iterations done.
    last : ndarray, (2 n, 2)
        The same of the last phase of each line.
    busy : ndarray, (nodes, 2)
        Seconds of running and of switching.
    events : ndarray, (most, 6)
        Job, pool, iteration, start, run's start, end of the first phases by start.
    counts : ndarray, (3,)
        Events kept, phases started, jobs done.
    """

    sums: FloatArray
    bins: IntArray
    work: FloatArray
    last: FloatArray
    busy: FloatArray
    events: FloatArray
    counts: IntArray


@compiled
def settle(node: int, layout: Layout, state: State) -> None:
    """Pass over entries of a node's order that belong to iterations before the first."""
    begin, end = layout.order_from[node], layout.order_from[node + 1]
    while begin < end and state.turn[node] < layout.order[state.place[node], 2]:
        state.place[node] += 1
        if state.place[node] == end:
            state.place[node] = begin
            state.turn[node] += 1


@compiled
def _may_start(line: int, layout: Layout, state: State, met: IntArray, stamp: int) -> bool:
    """Whether all nodes of a phase are free and it is its turn there; marks them as met."""
    ready, job = True, line // 2
    for k in range(layout.pin_from[line], layout.pin_from[line + 1]):
        node = layout.pins[k]
        if state.holder[node] != _NONE:
            ready = False
        if layout.fifo:
            if met[node] == stamp:  # somebody before it waits there
                ready = False
            met[node] = stamp
        else:
            entry = state.place[node]
            period = state.turn[node] - layout.order[entry, 2]
            due = period * layout.rates[job] + layout.order[entry, 1]
            if layout.order[entry, 0] != job or due != state.ended[line]:
                ready = False
    return ready


@compiled
def _end(line: int, layout: Layout, state: State) -> None:
    """End a phase: free its nodes, and let the job's own next phases come."""
    job, pool, now = line // 2, line % 2, state.now[0]
    for k in range(layout.pin_from[line], layout.pin_from[line + 1]):
        state.holder[layout.pins[k]] = _NONE
    state.ended[line] += 1
    state.stage[line] = BLOCKED
    if pool == 1:
        state.synced[job] = now + layout.sync_s[job]
    rollout, train = 2 * job, 2 * job + 1
    rollouts, trains = state.ended[rollout], state.ended[train]
    if state.stage[rollout] == BLOCKED and trains > rollouts - layout.lag[job]:
        state.stage[rollout] = COMING
        state.at[rollout] = max(now, state.synced[job])
    if state.stage[train] == BLOCKED and trains < rollouts:
        state.stage[train] = COMING
        state.at[train] = now


@compiled
def _advance(state: State, layout: Layout) -> bool:
    """Go to the next moment and take its ends and requests; False when there is none."""
    lines = len(state.stage)
    moment = np.inf
    for line in range(lines):
        if state.stage[line] == COMING or state.stage[line] == RUNNING:
            moment = min(moment, state.at[line])
    if moment == np.inf:
        return False
    state.now[0] = moment
    again = True
    while again:  # an end may let another phase ask at once
        again = False
        for line in range(lines):
            if state.stage[line] == RUNNING and state.at[line] <= moment:
                _end(line, layout, state)
                again = True
        for line in range(lines):
            if state.stage[line] == COMING and state.at[line] <= moment:
                state.stage[line] = QUEUED
    return True


@compiled
def _waiting(pool: int, state: State, queue: IntArray) -> int:
    """Write the lines of a pool that wait into ``queue``, by (asked at, job); return how many."""
    count = 0
    for line in range(pool, len(state.stage), 2):
        if state.stage[line] == QUEUED:
            i = count
            while i > 0 and state.at[queue[i - 1]] > state.at[line]:
                queue[i] = queue[i - 1]
                i -= 1
            queue[i] = line
            count += 1
    return count


@compiled
def _in_order(line: int, layout: Layout, state: State) -> bool:
    """Whether a phase that starts now keeps its job's order, and finds its nodes free."""
    job, number = line // 2, state.ended[line]
    for k in range(layout.pin_from[line], layout.pin_from[line + 1]):
        if state.holder[layout.pins[k]] != _NONE:
            return False
    if line % 2 == 1:
        return bool(state.ended[line - 1] > number)
    late = layout.lag[job] == 1 and number > 0 and state.now[0] < state.synced[job]
    return bool(state.ended[line + 1] > number - layout.lag[job]) and not late


@compiled
def _start(
    line: int, seconds: float, layout: Layout, window: Window, state: State, found: Found
) -> None:
    """Start a phase: take its nodes, until its end."""
    number, now = state.ended[line], state.now[0]
    runs = now + (layout.first_switch_s[line] if number == 0 else layout.switch_s[line])
    end = runs + seconds
    for k in range(layout.pin_from[line], layout.pin_from[line + 1]):
        node = layout.pins[k]
        state.holder[node] = line
        if not layout.fifo:
            state.place[node] += 1
            if state.place[node] == layout.order_from[node + 1]:
                state.place[node] = layout.order_from[node]
                state.turn[node] += 1
            settle(node, layout, state)
        found.busy[node, 0] += max(min(end, window.busy_to_s) - runs, 0.0)
        found.busy[node, 1] += max(min(runs, window.busy_to_s) - now, 0.0)
    found.last[line, 0], found.last[line, 1] = seconds, runs - now
    state.stage[line], state.at[line] = RUNNING, end
    kept = found.counts[0]
    if kept < len(found.events):
        found.events[kept, 0], found.events[kept, 1] = line // 2, line % 2
        found.events[kept, 2], found.events[kept, 3] = number, now
        found.events[kept, 4], found.events[kept, 5] = runs, end
        found.counts[0] += 1
    found.counts[1] += 1


@compiled
def _count(job: int, layout: Layout, window: Window, state: State, found: Found) -> None:
    """Count the iteration that ends as the next rollout of a job starts, unless it is done."""
    if state.done[job]:
        return
    number, now = state.ended[2 * job], state.now[0]
    sums, began = found.sums, state.began[job]
    state.began[job] = now
    if number == 0:
        return
    took = now - began
    sums[job, 0] += 1.0
    sums[job, 1] += took
    sums[job, 2] += took * took
    sums[job, 3] = max(sums[job, 3], took)
    if took > layout.deadline_s[job] * (1 + _REL) + _EPS_S:
        sums[job, 4] += 1.0
    octaves = np.log2(max(took / layout.solo_s[job], 1e-9)) + OCTAVES_BELOW
    found.bins[job, min(max(int(octaves * BINS_PER_OCTAVE), 0), BINS - 1)] += 1
    part, closes_s = 1.0, window.closes_s[job]
    if now >= closes_s:
        part = max(closes_s - began, 0.0) / took if took > 0 else 1.0
        state.done[job] = 1
        found.counts[2] += 1
    sums[job, 5] += part
    for line in range(2 * job, 2 * job + 2):
        found.work[line, 0] += part * found.last[line, 0]
        found.work[line, 1] += part * found.last[line, 1]


@compiled
def run_events(
    layout: Layout,
    window: Window,
    state: State,
    found: Found,
    seconds: FloatArray,
    drawn_from: IntArray,
) -> int:
    """Go on until all jobs are done, and return why it stopped.

    Parameters
    ----------
    layout, window, state, found
        The latter two are changed in place: call again to go on.
    seconds : ndarray, (2 n, length)
        Of phases ``drawn_from[l], drawn_from[l] + 1, ...`` of each line.
    drawn_from : ndarray, (2 n,)

    Returns
    -------
    int
        ``DONE``; ``MORE``: seconds are used up; ``STUCK``: the orders contradict each other, so
        nothing can ever start; ``FAULT``: a phase was about to start before its job's own order
        or a node allowed it, which never happens.
    """
    lines = len(state.stage)
    met, stamp = np.zeros(len(state.holder), dtype=np.int64), 0
    queue = np.empty(lines, dtype=np.int64)
    while found.counts[2] < len(state.done):
        for line in range(lines):
            if state.ended[line] - drawn_from[line] >= seconds.shape[1]:
                return MORE
        if not _advance(state, layout):
            return STUCK
        for pool in range(2):
            stamp += 1
            for i in range(_waiting(pool, state, queue)):
                line = queue[i]
                if not _may_start(line, layout, state, met, stamp):
                    continue
                if not _in_order(line, layout, state):
                    return FAULT
                took = seconds[line, state.ended[line] - drawn_from[line]]
                if pool == 0:
                    _count(line // 2, layout, window, state, found)
                _start(line, took, layout, window, state, found)
    return DONE
