"""Least-cost plan of a few jobs by enumeration, computed independently of the project (oracle).

Problem (FORMULATION section 2). Jobs are split into groups. Each group
has rollout nodes and train nodes of its own, a rate k_j in 1..max_rate for every member, and a
period C <= k_j D_j of every member, D_j = slo (r_j + t_j + s_j). Member j is pinned to exactly a_j
distinct nodes of each pool; every node has a job; the states pinned to a node sum to at most its
host DRAM; a phase with another job on one of its nodes pays its switch, in each iteration. The
phases on a node are disjoint arcs of the circle of length C, and each job's chain of k_j times
rollout, train, sync fits in C. Of a one-step job D_j = slo max(r_j, t_j, (r_j + t_j + s_j) / 2),
and rollout i+2 waits for train i (`least_period`). Cost: $/h of all nodes.

Method, from the inside out; no step assumes that more nodes help or that fewer jobs do.

1. Pinnings (`pinnings`). Nodes of a pool are alike, so a pinning is, up to their names, a multiset
   of nodes, each node the set of jobs pinned to it. Each multiset is made once: its nodes in the
   order of `kinds`, job j in a_j of them. Residency is the sum over one node, so nodes over the
   DRAM never enter.
2. A group on so many nodes of each pool (`group_feasible`): for some rates, all vectors of
   {1, .., max_rate}^n are tried, some pair of a rollout pinning and a train pinning has a least
   period <= min_j k_j D_j. `least_period` finds it over all orders and heights. Any C between the
   two is a valid period of these rates, so nothing else about C matters.
3. The front of a group (`group_front`): all node counts from (1, 1) to the sums of widths (every
   node is used) within the limits, in rising order; counts that a found one dominates are no
   points of the front and are left out, the others are decided.
4. The snapshot (`least_snapshot`): all set partitions of the jobs and, for each, all choices of
   one point per front. Prices and caps only grow with node counts, so dominated counts are never
   needed. Choices beyond a cap fall out.

Checks (`checks=True`) drop pinnings that no schedule can have, before the period is computed:
* the phases on one node are disjoint, so their sum, k_j of job j, is <= C (`_fits_alone`: with the
  switch of every phase there when two or more share the node; switches paid for other nodes only
  add);
* the bound of `least_period.lower_bound`: a job's chain is <= C (one-step: 2 C), and phases whose
  pins pairwise intersect are pairwise disjoint, so their sum is <= C.
They also order the pinnings left. `checks=False` decides each pinning by its least period.

Comparisons allow a relative 1e-9. `least_period` is sure to a relative 5e-6 only, so a least
period above its deadline by less than 1e-5 raises: an oracle must not guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

from instances.hardware import Cluster, NodeType
from instances.jobs import Job
from instances.plan import Limits
from oracles.least_period import Data, least_period, lower_bound

Node = tuple[int, ...]  # the jobs pinned to it, ascending
Pinning = tuple[Node, ...]
Pins = tuple[tuple[int, ...], ...]  # per job its nodes, ascending
Counts = tuple[int, int]  # rollout nodes, train nodes
Rates = tuple[int, ...]  # iterations per period of each job
Block = tuple[int, ...]  # jobs of a group, ascending

REL = 1e-9
UNSURE_REL = 1e-5
MAX_JOBS = 5
MAX_JOBS_OF_RATES = 4


class Phase(NamedTuple):
    """What one job asks of one pool."""

    seconds: float
    switch_s: float
    width: int  # nodes
    state_gb: float  # per node


class Work(NamedTuple):
    """The numbers of a job that the problem depends on."""

    rollout: Phase
    train: Phase
    sync_s: float
    deadline_s: float
    lag: int  # iterations from a train to the rollout that waits for it


class Group(NamedTuple):
    """One group of an answer; pins, rates and starts (one pair per iteration) are per member, nodes
    of a pool count from 0."""

    members: Block
    rollout_pins: Pins
    train_pins: Pins
    rates: Rates
    period_s: float  # the least of these pins and rates
    starts_s: tuple[tuple[tuple[float, float], ...], ...]

    @property
    def nodes(self) -> Counts:
        """Rollout nodes and train nodes."""
        return len(set().union(*self.rollout_pins)), len(set().union(*self.train_pins))


class Least(NamedTuple):
    """Least cost and one plan of that cost; `usd_per_hour` is None if no plan is valid."""

    usd_per_hour: float | None
    groups: tuple[Group, ...]


def least_snapshot(
    jobs: Sequence[Job],
    cluster: Cluster,
    limits: Limits,
    *,
    max_rollout_nodes_total: int | None = None,
    max_train_nodes_total: int | None = None,
    checks: bool = True,
) -> Least:
    """Least-cost valid plan of all the jobs. For up to five jobs (four without checks, or with
    rates)."""
    work, dram_gb = _work(jobs, limits.max_rate), _dram_gb(cluster)
    caps = [
        math.inf if cap is None else cap for cap in (max_rollout_nodes_total, max_train_nodes_total)
    ]
    prices = [pool.gpus_per_node * pool.gpu.usd_per_gpu_hour for pool in _pools(cluster)]
    best = Least(None, ())
    for blocks in partitions(len(work)):
        fronts = [_front(_take(work, block), dram_gb, limits, checks) for block in blocks]
        for choice in product(*fronts):
            totals = [sum(group.nodes[pool] for group in choice) for pool in (0, 1)]
            usd = totals[0] * prices[0] + totals[1] * prices[1]
            within = totals[0] <= caps[0] and totals[1] <= caps[1]
            if within and (best.usd_per_hour is None or usd < best.usd_per_hour):
                pairs = zip(blocks, choice, strict=True)
                best = Least(usd, tuple(group._replace(members=block) for block, group in pairs))
    return best


def group_front(
    jobs: Sequence[Job], cluster: Cluster, limits: Limits, *, checks: bool = True
) -> list[Counts]:
    """Pareto front of the node counts of one group of exactly these jobs, within the limits."""
    work = _work(jobs, limits.max_rate)
    return [group.nodes for group in _front(work, _dram_gb(cluster), limits, checks)]


def group_feasible(
    jobs: Sequence[Job],
    cluster: Cluster,
    n_rollout: int,
    n_train: int,
    *,
    max_rate: int = 1,
    checks: bool = True,
) -> bool:
    """Can these jobs be one group of exactly so many nodes, each of them used?"""
    counts = n_rollout, n_train
    return _decide(_work(jobs, max_rate), _dram_gb(cluster), counts, max_rate, checks) is not None


def rates_feasible(
    jobs: Sequence[Job],
    cluster: Cluster,
    n_rollout: int,
    n_train: int,
    rates: Rates,
    *,
    checks: bool = True,
) -> bool:
    """Can they be, at exactly these rates?"""
    work, counts = _work(jobs, max(rates)), (n_rollout, n_train)
    return _decide_rates(work, _dram_gb(cluster), counts, rates, checks) is not None


# --- enumeration -------------------------------------------------------------------------------


def partitions(n: int) -> Iterator[list[Block]]:
    """All set partitions of jobs 0..n-1: the last job joins a block or opens one."""
    if n == 0:
        yield []
        return
    for blocks in partitions(n - 1):
        for i, block in enumerate(blocks):
            yield [*blocks[:i], (*block, n - 1), *blocks[i + 1 :]]
        yield [*blocks, (n - 1,)]


def pinnings(widths: Sequence[int], nodes: int, kinds: Sequence[Node]) -> Iterator[Pinning]:
    """All multisets of `nodes` nodes, each one of `kinds`, with job j in widths[j] of them."""

    def extend(first: int, left: list[int], count: int) -> Iterator[Pinning]:
        if count == 0:
            if not any(left):
                yield ()
            return
        if max(left) > count or sum(left) < count:
            return  # a job has more nodes to come than there are, or a node would stay empty
        for i in range(first, len(kinds)):
            if all(left[j] for j in kinds[i]):
                after = [x - (j in kinds[i]) for j, x in enumerate(left)]
                for rest in extend(i, after, count - 1):
                    yield (kinds[i], *rest)

    return extend(0, list(widths), nodes)


def all_kinds(n: int) -> list[Node]:
    """All non-empty sets of jobs."""
    return [kind for size in range(1, n + 1) for kind in combinations(range(n), size)]


# --- one group ---------------------------------------------------------------------------------


def _front(
    work: tuple[Work, ...], dram_gb: tuple[float, float], limits: Limits, checks: bool
) -> list[Group]:
    """One valid group per point of the front, in rising order of rollout nodes."""
    if limits.max_group_size and len(work) > limits.max_group_size:
        return []
    most = [sum(job.rollout.width for job in work), sum(job.train.width for job in work)]
    for pool, limit in enumerate((limits.max_rollout_nodes, limits.max_train_nodes)):
        most[pool] = most[pool] if limit is None else min(most[pool], limit)
    front: list[Group] = []
    for counts in product(range(1, most[0] + 1), range(1, most[1] + 1)):
        if any(a <= counts[0] and b <= counts[1] for a, b in (group.nodes for group in front)):
            continue
        group = _decide(work, dram_gb, counts, limits.max_rate, checks)
        if group is not None:
            front.append(group)
    return front


@cache
def _decide(
    work: tuple[Work, ...],
    dram_gb: tuple[float, float],
    counts: Counts,
    max_rate: int,
    checks: bool,
) -> Group | None:
    """A valid group of all these jobs on so many nodes, or None; its members are 0..n-1."""
    vectors = product(range(1, max_rate + 1), repeat=len(work))
    for rates in sorted(vectors, key=lambda rates: (sum(rates), rates)):  # quick ones first
        group = _decide_rates(work, dram_gb, counts, rates, checks)
        if group is not None:
            return group
    return None


@cache
def _decide_rates(
    work: tuple[Work, ...],
    dram_gb: tuple[float, float],
    counts: Counts,
    rates: Rates,
    checks: bool,
) -> Group | None:
    """As `_decide`, at these rates."""
    most_s = min(k * job.deadline_s for k, job in zip(rates, work, strict=True)) * (1 + REL)
    choices = [
        [
            _pins(len(work), pinning)
            for pinning in pinnings([phase.width for phase in pool], n_nodes, kinds)
        ]
        for pool, gb, n_nodes in zip(_phases(work), dram_gb, counts, strict=True)
        for kinds in [_kinds(pool, rates, gb, most_s if checks else math.inf)]
    ]
    pairs = [
        (_data(work, rollout, train, rates), rollout, train) for rollout, train in product(*choices)
    ]
    if checks:
        bounds = {data: lower_bound(*data) for data, _, _ in pairs}
        pairs = [pair for pair in pairs if bounds[pair[0]] <= most_s]
        pairs.sort(key=lambda pair: bounds[pair[0]])
    for data, rollout, train in pairs:
        period, starts = _least_period(data)
        if period <= most_s:
            return Group(tuple(range(len(work))), rollout, train, rates, period, starts)
        if period <= most_s * (1 + UNSURE_REL):
            raise RuntimeError(f"Too close to call: least period {period}, deadline {most_s}.")
    return None


@cache
def _least_period(data: Data) -> tuple[float, tuple[tuple[tuple[float, float], ...], ...]]:
    """As `least_period`; it depends on neither deadlines nor DRAM."""
    period, starts = least_period(*data)
    return period, tuple(tuple(pairs) for pairs in starts)


def _kinds(pool: Sequence[Phase], rates: Rates, dram_gb: float, most_s: float) -> list[Node]:
    """Sets of jobs that one node can hold: by DRAM, and by its load where that is checked."""
    return [
        node
        for node in all_kinds(len(pool))
        if sum(pool[j].state_gb for j in node) <= dram_gb * (1 + REL)
        and _fits_alone([pool[j] for j in node], [rates[j] for j in node], most_s)
    ]


def _fits_alone(phases: Sequence[Phase], rates: Sequence[int], most_s: float) -> bool:
    """Check: the phases of one node, with their switches if two jobs are there, take <= most_s."""
    shared = len(phases) > 1
    loads = [
        k * (phase.seconds + shared * phase.switch_s)
        for k, phase in zip(rates, phases, strict=True)
    ]
    return sum(loads) <= most_s


def _pins(n: int, pinning: Pinning) -> Pins:
    """Per job, the positions of its nodes."""
    return tuple(tuple(i for i, node in enumerate(pinning) if j in node) for j in range(n))


def _data(work: Sequence[Work], rollout_pins: Pins, train_pins: Pins, rates: Rates) -> Data:
    """The arguments of `least_period`, as tuples, so that they can be a key."""
    rollout, train = _phases(work)
    return Data(
        tuple(phase.seconds for phase in rollout),
        tuple(phase.seconds for phase in train),
        tuple(job.sync_s for job in work),
        rollout_pins,
        train_pins,
        rates,
        tuple(phase.switch_s for phase in rollout),
        tuple(phase.switch_s for phase in train),
        tuple(job.lag for job in work) if any(job.lag > 1 for job in work) else None,
    )


# --- plain data --------------------------------------------------------------------------------


def _work(jobs: Sequence[Job], max_rate: int) -> tuple[Work, ...]:
    """The numbers of the jobs, D_j computed here."""
    most = MAX_JOBS if max_rate == 1 else MAX_JOBS_OF_RATES
    if len(jobs) > most:
        raise ValueError(f"Expected at most {most} jobs at max_rate {max_rate}, got {len(jobs)}.")
    for job in jobs:
        if job.mode not in ("sync", "one-step"):
            raise ValueError(f"Expected mode sync or one-step, got {job.mode} ('{job.job_id}').")
    return tuple(
        Work(
            Phase(job.rollout_s, job.rollout_switch_s, job.rollout_nodes, job.rollout_state_gb),
            Phase(job.train_s, job.train_switch_s, job.train_nodes, job.train_state_gb),
            job.sync_s,
            job.slo * _alone_s(job),
            1 if job.mode == "sync" else 2,
        )
        for job in jobs
    )


def _alone_s(job: Job) -> float:
    """T_j: the least period of the job alone."""
    around_s = job.rollout_s + job.train_s + job.sync_s
    return around_s if job.mode == "sync" else max(job.rollout_s, job.train_s, around_s / 2)


def _phases(work: Sequence[Work]) -> tuple[list[Phase], list[Phase]]:
    return [job.rollout for job in work], [job.train for job in work]


def _take(work: tuple[Work, ...], block: Block) -> tuple[Work, ...]:
    return tuple(work[j] for j in block)


def _pools(cluster: Cluster) -> tuple[NodeType, NodeType]:
    return cluster.rollout, cluster.train


def _dram_gb(cluster: Cluster) -> tuple[float, float]:
    return cluster.rollout.host_dram_gb, cluster.train.host_dram_gb
