"""Groups in which some jobs keep their nodes: pins for the others, and a schedule of all.

Sets and parameters
-------------------
jobs of one group, *stayers* with their pins given and *movers* without; most nodes ``n^P`` of
each pool; per candidate ``(C, k)`` of period and rates (:mod:`models.group.rate_vectors`) a node
with the jobs ``S`` obeys the sums of :mod:`models.group.pinnings`: ``sum_S k_j p_j <= C``, with
switches where ``|S| >= 2``, and ``sum_S m_j <= M``.

Two ways
--------
* :func:`extended`: every stayer keeps its pins. Movers take nodes that a stayer is pinned to, or
  new ones, which are alike: they are numbered in the order in which movers use them. Pinnings
  are listed depth first, widest and longest mover first, and a schedule of each is constructed
  (:func:`models.group.period.construct`), the shortest period of the first few wins. Where none is
  found, the exact search of :mod:`models.group.pair_orders` decides the pinnings one by one. When
  all pinnings were listed and each was ruled out, the answer is a proof.
* :func:`relabelled`: a group decided without regard to pins; nodes of a pool are alike, so its
  nodes are renamed for as many jobs as possible to find all their nodes under their old names
  (an assignment per pool, on the money saved).

:func:`remaining` keeps the pins of jobs that others left, and never lengthens the period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from models.group.group_cost import Nodes
from models.group.pair_orders import decide_orders
from models.group.period import construct, tightened
from models.group.pinnings import DRAM_SLACK, REL_SLACK, PoolLoads
from models.group.rate_bound import least_bound_s
from models.group.rate_vectors import RateVector, rate_vectors
from models.problem.group_shape import REL_EPS, GroupShape, Pins, Schedule, lower_bound_s
from models.problem.options import Deadline
from models.problem.snapshot import PlacedGroup, Snapshot
from models.replan.running import Host, NewGroup

__all__ = ["Extension", "extended", "fresh_group", "kept", "relabelled", "remaining"]

#: Most pinnings of a pool, and pairs of them, looked at per candidate of period and rates.
_POOL_PINNINGS: Final = 64
_PAIRS: Final = 64
#: Schedules found among which the shortest period per iteration wins.
_FOUND: Final = 4
#: Most branches of the exact search of one pinning.
_BRANCHES: Final = 400


class Extension(NamedTuple):
    """A group found, and whether its absence is proved."""

    group: NewGroup | None
    proved: bool


def kept(host_index: int, host: Host) -> NewGroup:
    """Return a running group as it is."""
    return NewGroup(
        host=host_index,
        members=host.members,
        rollout_pins=host.rollout_pins,
        train_pins=host.train_pins,
        rates=host.rates,
        period_s=host.period_s,
        starts_s=host.starts_s,
    )


def fresh_group(group: PlacedGroup, running: Sequence[bool]) -> NewGroup:
    """Return a decided group on new nodes: all its running jobs move."""
    return NewGroup(
        host=None,
        members=group.members,
        rollout_pins=group.rollout_pins,
        train_pins=group.train_pins,
        rates=group.rates or (1,) * len(group.members),
        period_s=group.period_s,
        starts_s=group.starts_s,
        movers=tuple([j for j in group.members if running[j]]),
    )


def remaining(snapshot: Snapshot, host_index: int, host: Host, members: Sequence[int]) -> NewGroup:
    """Return some members of a running group on their pins, at the shortest period found.

    The running schedule without the others is valid, its phases may only be shorter.
    """
    if tuple(members) == host.members:
        return kept(host_index, host)
    at = [host.members.index(j) for j in members]
    rollout = tuple([host.rollout_pins[i] for i in at])
    train = tuple([host.train_pins[i] for i in at])
    rates = tuple([host.rates[i] for i in at])
    shape = GroupShape.of([snapshot.jobs[j] for j in members], rollout, train, rates)
    bound = lower_bound_s(shape)
    starts = tuple([host.starts_s[i] for i in at])
    best = tightened(shape, Schedule(period_s=host.period_s, starts_s=starts, bound_s=bound))
    if not best.at_bound:
        found = construct(shape, limit_s=best.period_s)
        if found is not None and found.period_s < best.period_s:
            best = found
    return NewGroup(
        host=host_index,
        members=tuple(members),
        rollout_pins=rollout,
        train_pins=train,
        rates=rates,
        period_s=best.period_s,
        starts_s=best.starts_s,
    )


# --- stayers fixed ------------------------------------------------------------------------------


class _Pool:
    """Pinnings of the movers to one pool, at one period and rates."""

    def __init__(
        self,
        loads: PoolLoads,
        given: Mapping[int, Pins],
        fresh: int,
        n_nodes: int,
        period_s: float,
        dram_gb: float,
    ) -> None:
        self.loads = loads
        self.most_s = period_s * (1 + REL_SLACK)
        self.most_gb = dram_gb * (1 + DRAM_SLACK)
        self.order = sorted(
            [i for i in range(len(loads.widths)) if i not in given],
            key=lambda i: (-loads.widths[i], -loads.seconds[i] - loads.switch_s[i], i),
        )
        self.names = sorted({node for pins in given.values() for node in pins})
        self.kept = len(self.names)
        self.names += range(fresh, fresh + max(n_nodes - self.kept, 0))
        self.room = self.kept <= n_nodes
        index = {node: at for at, node in enumerate(self.names)}
        self.jobs: list[list[int]] = [[] for _ in self.names]
        for i, pins in given.items():
            for node in pins:
                self.jobs[index[node]].append(i)
        self.pins: list[Pins] = [given.get(i, ()) for i in range(len(loads.widths))]

    def fits(self, node: int) -> bool:
        """Return whether loads and DRAM admit the jobs of a node."""
        jobs, loads = self.jobs[node], self.loads
        seconds = sum([loads.seconds[i] for i in jobs])
        if len(jobs) > 1:
            seconds += sum([loads.switch_s[i] for i in jobs])
        return seconds <= self.most_s and sum([loads.state_gb[i] for i in jobs]) <= self.most_gb

    def run(self) -> Iterator[tuple[Pins, ...]]:
        """Yield the pinnings of all jobs, few new nodes first per mover."""
        if self.room and all(self.fits(node) for node in range(self.kept)):
            yield from self._place(0, self.kept)

    def _place(self, at: int, used: int) -> Iterator[tuple[Pins, ...]]:
        if at == len(self.order):
            yield tuple(self.pins)
            return
        i = self.order[at]
        width = self.loads.widths[i]
        for opened in range(min(width, len(self.names) - used) + 1):
            new = tuple(range(used, used + opened))
            for old in combinations(range(used), width - opened):
                nodes = old + new
                for node in nodes:
                    self.jobs[node].append(i)
                if all(self.fits(node) for node in nodes):
                    self.pins[i] = tuple([self.names[node] for node in nodes])
                    yield from self._place(at + 1, used + opened)
                for node in nodes:
                    self.jobs[node].pop()


class _Task(NamedTuple):
    """A set of jobs of which some stay."""

    snapshot: Snapshot
    members: tuple[int, ...]
    stayers: tuple[int, ...]
    host: Host
    nodes: Nodes
    deadline: Deadline


def extended(
    snapshot: Snapshot,
    members: Sequence[int],
    stayers: Sequence[int],
    host_index: int,
    host: Host,
    nodes: Nodes,
    running: Sequence[bool],
    *,
    deadline: Deadline,
) -> Extension:
    """Return the members as one group on at most so many nodes, stayers on their pins.

    Parameters
    ----------
    members : sequence of int
        Ascending indices of jobs.
    stayers : sequence of int
        Those members of the host that keep their pins.
    nodes : (int, int)
        Most rollout and train nodes, kept ones included.
    running : sequence of bool
        Per job of the snapshot, whether it runs: if so and on other nodes than before, it is a
        mover.
    deadline : Deadline

    Raises
    ------
    OutOfTimeError
        When the deadline passes.
    """
    task = _Task(snapshot, tuple(members), tuple(stayers), host, nodes, deadline)
    jobs = snapshot.jobs
    vectors = rate_vectors(
        [jobs[j].deadline_s for j in members],
        [jobs[j].solo_s for j in members],
        snapshot.limits.max_rate,
    )
    best: tuple[float, GroupShape, Schedule] | None = None
    proved = True
    for vector in vectors:
        found, whole = _constructed(task, vector)
        proved = proved and whole
        if found is not None:
            # several iterations of a period are worth as many short periods
            mean_s = found[1].period_s * len(members) / sum(found[0].rates)
            if best is None or mean_s < best[0] * (1 - REL_EPS):
                best = mean_s, *found
    if best is None:
        return Extension(None, proved)
    _, shape, schedule = best
    movers = [
        j
        for j, *pins in zip(task.members, shape.rollout_pins, shape.train_pins, strict=True)
        if running[j] and not _kept(host, j, pins)
    ]
    return Extension(
        NewGroup(
            host=host_index,
            members=task.members,
            rollout_pins=shape.rollout_pins,
            train_pins=shape.train_pins,
            rates=shape.rates,
            period_s=schedule.period_s,
            starts_s=schedule.starts_s,
            movers=tuple(movers),
        ),
        False,
    )


def _kept(host: Host, job: int, pins: Sequence[Pins]) -> bool:
    """Return whether a job has these nodes in the host; one that was to move may find them."""
    if job not in host.members:
        return False
    at = host.members.index(job)
    return all(set(new) == set(old[at]) for new, old in zip(pins, host.pins, strict=True))


def _constructed(
    task: _Task, vector: RateVector
) -> tuple[tuple[GroupShape, Schedule] | None, bool]:
    """Return a schedule at these rates, or whether all pinnings were ruled out."""
    limit = vector.period_s * (1 + REL_SLACK)
    jobs = [task.snapshot.jobs[j] for j in task.members]
    rollouts = _pinnings(task, vector, 0)
    trains = _pinnings(task, vector, 1) if rollouts else []
    whole = _POOL_PINNINGS not in (len(rollouts), len(trains))
    whole = whole and len(rollouts) * len(trains) <= _PAIRS
    pairs = sorted(product(range(len(rollouts)), range(len(trains))), key=lambda ij: (sum(ij), ij))
    best: tuple[GroupShape, Schedule] | None = None
    left: list[GroupShape] = []
    found = 0
    for a, b in pairs[:_PAIRS]:
        task.deadline.check()
        shape = GroupShape.of(jobs, rollouts[a], trains[b], vector.rates)
        most = limit if best is None else best[1].period_s
        if least_bound_s(shape) > most * (1 + REL_EPS):
            continue
        schedule = construct(shape, limit_s=limit, refine=1)
        if schedule is None:
            left.append(shape)
            continue
        found += 1
        if best is None or schedule.period_s < best[1].period_s * (1 - REL_EPS):
            best = shape, schedule
        if found >= _FOUND:
            break
    if best is not None:
        return best, False
    for shape in left:
        task.deadline.check()
        decision = decide_orders(shape, limit, _BRANCHES)
        if decision.starts_s is not None:
            bound = lower_bound_s(shape)
            loose = Schedule(period_s=limit, starts_s=decision.starts_s, bound_s=bound)
            return (shape, tightened(shape, loose)), False
        whole = whole and decision.proved
    return None, whole


def _pinnings(task: _Task, vector: RateVector, pool: int) -> list[tuple[Pins, ...]]:
    """Return the first pinnings of one pool."""
    jobs = [task.snapshot.jobs[j] for j in task.members]
    node = (task.snapshot.cluster.rollout, task.snapshot.cluster.train)[pool]
    if pool == 0:
        loads = PoolLoads(
            tuple([job.rollout_nodes for job in jobs]),
            tuple([k * job.rollout_s for job, k in zip(jobs, vector.rates, strict=True)]),
            tuple([k * job.rollout_switch_s for job, k in zip(jobs, vector.rates, strict=True)]),
            tuple([job.rollout_state_gb for job in jobs]),
        )
    else:
        loads = PoolLoads(
            tuple([job.train_nodes for job in jobs]),
            tuple([k * job.train_s for job, k in zip(jobs, vector.rates, strict=True)]),
            tuple([k * job.train_switch_s for job, k in zip(jobs, vector.rates, strict=True)]),
            tuple([job.train_state_gb for job in jobs]),
        )
    pins = task.host.pins[pool]
    given = {
        i: pins[task.host.members.index(j)] for i, j in enumerate(task.members) if j in task.stayers
    }
    run = _Pool(
        loads, given, task.host.fresh[pool], task.nodes[pool], vector.period_s, node.host_dram_gb
    ).run()
    return list(islice(run, _POOL_PINNINGS))


# --- nodes renamed ------------------------------------------------------------------------------


def relabelled(
    group: PlacedGroup,
    host_index: int,
    host: Host,
    credit_usd: Sequence[float],
    may_move: Sequence[bool],
    running: Sequence[bool],
) -> NewGroup | None:
    """Return a decided group on nodes of a host, for as many of its jobs as possible to stay.

    Each pool is assigned first in turn, the other one then among the jobs it left in place; the
    better of the two counts. ``None`` when a job that may not move would have to.

    Parameters
    ----------
    credit_usd : sequence of float
        Per job of the snapshot, what it saves by staying.
    """
    best: tuple[float, int, dict[int, int], dict[int, int], tuple[int, ...]] | None = None
    in_host = [j for j in group.members if j in host.members]
    for first in (0, 1):
        names: list[dict[int, int]] = [{}, {}]
        stay = in_host
        for pool in (first, 1 - first):
            names[pool] = _assigned(group, host, pool, stay, credit_usd)
            stay = [j for j in stay if _matches(group, host, pool, j, names[pool])]
        fixed = sum([not may_move[j] for j in stay])
        worth = sum([credit_usd[j] for j in stay]) + 1e-9 * len(stay)
        if best is None or (fixed, worth) > (best[1], best[0]):
            best = worth, fixed, names[0], names[1], tuple(stay)
    if best is None:
        return None
    _, _, rollout, train, stayers = best
    movers = tuple([j for j in group.members if running[j] and j not in stayers])
    if not all(may_move[j] for j in movers):
        return None
    if not stayers:
        return fresh_group(group, running)
    return NewGroup(
        host=host_index,
        members=group.members,
        rollout_pins=tuple([tuple(sorted(rollout[v] for v in p)) for p in group.rollout_pins]),
        train_pins=tuple([tuple(sorted(train[v] for v in p)) for p in group.train_pins]),
        rates=group.rates or (1,) * len(group.members),
        period_s=group.period_s,
        starts_s=group.starts_s,
        movers=movers,
    )


def _pins_of(group: PlacedGroup, host: Host, pool: int, job: int) -> tuple[Pins, Pins]:
    """Return the pins of a job in the decided group and in the host."""
    pins = (group.rollout_pins, group.train_pins)[pool]
    return pins[group.members.index(job)], host.pins[pool][host.members.index(job)]


def _matches(group: PlacedGroup, host: Host, pool: int, job: int, name: dict[int, int]) -> bool:
    new, old = _pins_of(group, host, pool, job)
    return {name[node] for node in new} == set(old)


def _assigned(
    group: PlacedGroup, host: Host, pool: int, stay: Sequence[int], credit_usd: Sequence[float]
) -> dict[int, int]:
    """Return a name for each node of the decided group: those of most money in common."""
    pins = (group.rollout_pins, group.train_pins)[pool]
    new = sorted({node for nodes in pins for node in nodes})
    old = sorted({node for nodes in host.pins[pool] for node in nodes})
    fresh = host.fresh[pool]
    names = [*old, *range(fresh, fresh + len(new))]
    worth = np.zeros((len(new), len(names)))
    # of equal assignments the one that takes old nodes and then low names
    worth[:, len(old) :] -= 1e-9 * (1 + np.arange(len(new)))
    for job in stay:
        ours, theirs = _pins_of(group, host, pool, job)
        if len(ours) == len(theirs):
            rows, columns = [new.index(v) for v in ours], [names.index(v) for v in theirs]
            worth[np.ix_(rows, columns)] += (credit_usd[job] + 1e-6) / len(ours)
    rows, columns = linear_sum_assignment(-worth)
    return {new[row]: names[column] for row, column in zip(rows, columns, strict=True)}
