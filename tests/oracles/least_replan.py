"""Least value of re-planning a few running groups by enumeration (oracle).

Problem (module `models.replan.replanning`, stated anew). All jobs are split into groups; a group
may continue one running group (host), no two the same. Of the group's jobs that are members of the
host, some keep their pins (stayers, at least one); every other running job of it moves. Without a
host all its running jobs move. Value: hours x $/h of all nodes + the price of each job that moves.
A job that may not move is a stayer; jobs that run nowhere are free to place.

Method. Every set partition, every choice of one (host, stayers) per block, every host at most
once. The cheapest nodes of a block: node counts in order of price, pinnings of
`oracles.least_snapshot` (multisets of nodes, each the set of its jobs) that keep the stayers: the
nodes of the host and those of the new pinning, both without all jobs but the stayers, are the
same multiset. That is all that pins are, up to names of nodes. A pinning is decided by its least
period for each vector of rates.

`connected`: leave out groups with a mover or newcomer whose sharing graph falls apart (jobs joined
where they share a node).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from instances.hardware import Cluster
from instances.jobs import Job
from instances.plan import Limits
from oracles.least_period import lower_bound
from oracles.least_snapshot import (
    REL,
    UNSURE_REL,
    Block,
    Counts,
    Pinning,
    Work,
    _data,
    _dram_gb,
    _kinds,
    _least_period,
    _phases,
    _pins,
    _take,
    _work,
    partitions,
    pinnings,
)


class Running(NamedTuple):
    """A running group: jobs, and per job its nodes of each pool."""

    members: Block
    rollout_pins: tuple[tuple[int, ...], ...]
    train_pins: tuple[tuple[int, ...], ...]


class Choice(NamedTuple):
    """What a block becomes: its host or None, its stayers, value and moves."""

    host: int | None
    stayers: Block
    usd: float
    moves: int


class Replanning:
    """One instance; blocks are decided once."""

    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: Cluster,
        limits: Limits,
        hosts: Sequence[Running],
        *,
        lasting_h: float,
        move_usd: Sequence[float],
        may_move: Sequence[bool],
        connected: bool = False,
    ) -> None:
        self.work, self.limits, self.hosts = _work(jobs, limits.max_rate), limits, hosts
        self.dram_gb = _dram_gb(cluster)
        self.prices = [
            lasting_h * pool.gpus_per_node * pool.gpu.usd_per_gpu_hour
            for pool in (cluster.rollout, cluster.train)
        ]
        self.move_usd, self.may_move, self.connected = move_usd, may_move, connected
        self.home = {j: h for h, host in enumerate(hosts) for j in host.members}
        self.choices: dict[Block, list[Choice]] = {}

    def least(self, most_moves: int | None = None) -> float:
        """Least value within so many moves; infinite if there is no plan."""
        limit = math.inf if most_moves is None else most_moves
        best = math.inf
        for blocks in partitions(len(self.work)):
            options = [self._choices(block) for block in blocks]
            if all(options):
                best = min(best, self._best(options, frozenset(), limit))
        return best

    def _best(self, options: list[list[Choice]], used: frozenset[int], moves: float) -> float:
        if not options:
            return 0.0
        best = math.inf
        for choice in options[0]:
            if choice.moves <= moves and choice.host not in used:
                more = used if choice.host is None else used | {choice.host}
                rest = self._best(options[1:], more, moves - choice.moves)
                best = min(best, choice.usd + rest)
        return best

    def _choices(self, block: Block) -> list[Choice]:
        if block not in self.choices:
            self.choices[block] = [
                choice
                for host, stayers in self._continued(block)
                for choice in [self._choice(block, host, stayers)]
                if choice is not None
            ]
        return self.choices[block]

    def _continued(self, block: Block) -> Iterator[tuple[int | None, Block]]:
        """Hosts that the block may continue, with every set of stayers."""
        yield None, ()
        for h, host in enumerate(self.hosts):
            common = [j for j in block if j in host.members]
            for size in range(1, len(common) + 1):
                for stayers in combinations(common, size):
                    yield h, stayers

    def _choice(self, block: Block, host: int | None, stayers: Block) -> Choice | None:
        movers = [j for j in block if j in self.home and j not in stayers]
        if not all(self.may_move[j] for j in movers):
            return None
        usd = self._nodes_usd(block, host, stayers)
        if usd is None:
            return None
        return Choice(host, stayers, usd + sum(self.move_usd[j] for j in movers), len(movers))

    def _nodes_usd(self, block: Block, host: int | None, stayers: Block) -> float | None:
        """Price of the cheapest nodes on which the block is a group that keeps the stayers."""
        limits, work = self.limits, _take(self.work, block)
        if limits.max_group_size and len(block) > limits.max_group_size:
            return None
        most = [sum(phase.width for phase in pool) for pool in _phases(work)]
        for pool, limit in enumerate((limits.max_rollout_nodes, limits.max_train_nodes)):
            most[pool] = most[pool] if limit is None else min(most[pool], limit)
        counts = product(range(1, most[0] + 1), range(1, most[1] + 1))
        for pair in sorted(counts, key=self._price):
            if self._feasible(work, block, pair, host, stayers):
                return self._price(pair)
        return None

    def _price(self, counts: Counts) -> float:
        return counts[0] * self.prices[0] + counts[1] * self.prices[1]

    def _feasible(
        self, work: tuple[Work, ...], block: Block, counts: Counts, host: int | None, stayers: Block
    ) -> bool:
        place = {j: i for i, j in enumerate(block)}
        kept = {place[j] for j in stayers}
        if host is None:
            given = [(), ()]
        else:
            given = [_parts(_nodes_of(self.hosts[host], pool, place), kept) for pool in (0, 1)]
        for rates in product(range(1, self.limits.max_rate + 1), repeat=len(work)):
            most_s = min(k * job.deadline_s for k, job in zip(rates, work, strict=True))
            most_s *= 1 + REL
            found = []
            for pool, gb, n_nodes, keep in zip(
                _phases(work), self.dram_gb, counts, given, strict=True
            ):
                kinds = _kinds(pool, rates, gb, most_s)
                widths = [phase.width for phase in pool]
                found.append(
                    [p for p in pinnings(widths, n_nodes, kinds) if _parts(p, kept) == keep]
                )
            for rollout, train in product(*found):
                if self.connected and len(stayers) < len(block) and not _joined(rollout, train):
                    continue
                if self._fits(work, rollout, train, rates, most_s):
                    return True
        return False

    def _fits(
        self,
        work: tuple[Work, ...],
        rollout: Pinning,
        train: Pinning,
        rates: tuple[int, ...],
        most_s: float,
    ) -> bool:
        data = _data(work, _pins(len(work), rollout), _pins(len(work), train), rates)
        if lower_bound(*data) > most_s:
            return False
        period, _ = _least_period(data)
        if most_s < period <= most_s * (1 + UNSURE_REL):
            raise RuntimeError(f"Too close to call: least period {period}, deadline {most_s}.")
        return period <= most_s


def _nodes_of(host: Running, pool: int, place: dict[int, int]) -> list[tuple[int, ...]]:
    """The host's nodes, each the set of its jobs that are in the block."""
    nodes: dict[int, list[int]] = {}
    for job, pins in zip(host.members, host[1 + pool], strict=True):
        for node in pins:
            nodes.setdefault(node, [])
            if job in place:
                nodes[node].append(place[job])
    return [tuple(sorted(jobs)) for jobs in nodes.values()]


def _parts(nodes: Sequence[tuple[int, ...]], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    """The nodes without all jobs but the kept ones, as a multiset; empty ones left out."""
    parts = Counter(tuple(j for j in node if j in kept) for node in nodes)
    del parts[()]
    return tuple(sorted(parts.elements()))


def _joined(rollout: Pinning, train: Pinning) -> bool:
    """Are all jobs joined by shared nodes?"""
    nodes = [set(node) for node in (*rollout, *train)]
    reached = nodes[0]
    while True:
        more = set().union(reached, *(node for node in nodes if node & reached))
        if more == reached:
            return all(node <= reached for node in nodes)
        reached = more
