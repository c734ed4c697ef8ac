"""Pinnings of jobs to the nodes of one pool of one group that loads and DRAM admit.

Sets and parameters: jobs ``i`` of one group in one pool, each needing ``a_i`` distinct nodes
(``widths``), ``p_i`` phase seconds and ``w_i`` switch seconds of all its iterations in a period,
``m_i`` GB of state per node; ``C`` the period, ``M`` the host DRAM. A node with the set ``S`` of
jobs pinned to it obeys

* load: ``sum_S p_i <= C``, and ``sum_S (p_i + w_i) <= C`` when ``|S| >= 2`` (each of them then
  pays its switch);
* residency: ``sum_S m_i <= M``.

Nodes are alike, so pinnings are made up to relabelling: nodes are numbered in the order in
which jobs first use them, and of nodes that hold the same jobs, as those of a gang do at
first, a job joins the lowest. Every pinning onto exactly ``n`` nodes is yielded once. Depth
first, a node is left out as soon as one of the two sums is exceeded: both only grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from models.problem.group_shape import Pins

__all__ = ["DRAM_SLACK", "REL_SLACK", "PoolLoads", "least_nodes", "pinnings"]

#: Relative slack of seconds against a deadline, the same in every exact method: an SLO of 4/3
#: may be written 1.333333333. The checker allows a little more.
REL_SLACK: Final = 1e-9
#: Relative slack of GB against the host DRAM: round-off of exact fits.
DRAM_SLACK: Final = 1e-10


@dataclass(frozen=True, slots=True)
class PoolLoads:
    """What jobs ask of one pool, index by index.

    Attributes
    ----------
    widths : tuple of int
        Nodes held at once.
    seconds, switch_s : tuple of float
        Phase and switch seconds.
    state_gb : tuple of float
        State per node.
    """

    widths: tuple[int, ...]
    seconds: tuple[float, ...]
    switch_s: tuple[float, ...]
    state_gb: tuple[float, ...]

    def take(self, members: Sequence[int], rates: Sequence[int] | None = None) -> PoolLoads:
        """Return the loads of some of the jobs in a period, with ``k_j`` phases of each.

        ``rates`` left out: one phase each.
        """
        times = (1,) * len(members) if rates is None else rates
        return PoolLoads(
            tuple([self.widths[i] for i in members]),
            tuple([k * self.seconds[i] for i, k in zip(members, times, strict=True)]),
            tuple([k * self.switch_s[i] for i, k in zip(members, times, strict=True)]),
            tuple([self.state_gb[i] for i in members]),
        )


class _Search:
    """Depth first over jobs, widest and longest first; nodes hold running sums."""

    def __init__(self, loads: PoolLoads, n_nodes: int, period_s: float, dram_gb: float) -> None:
        self.loads = loads
        self.n_nodes = n_nodes
        self.most_s = period_s * (1 + REL_SLACK)
        self.most_gb = dram_gb * (1 + DRAM_SLACK)
        self.order = sorted(
            range(len(loads.widths)),
            key=lambda i: (-loads.widths[i], -loads.seconds[i] - loads.switch_s[i], i),
        )
        self.width_left = [0] * (len(self.order) + 1)
        for at in range(len(self.order) - 1, -1, -1):
            self.width_left[at] = self.width_left[at + 1] + loads.widths[self.order[at]]
        self.shared_s = [0.0] * n_nodes  # with switches
        self.state_gb = [0.0] * n_nodes
        self.jobs = [0] * n_nodes  # masks
        self.gangs = max(loads.widths) > 1
        self.pins: list[Pins] = [()] * len(self.order)

    def _room(self, i: int, used: int) -> list[int]:
        """Return the nodes in use that job ``i`` may join."""
        paid = self.loads.seconds[i] + self.loads.switch_s[i]
        state = self.loads.state_gb[i]
        return [
            node
            for node in range(used)
            if self.shared_s[node] + paid <= self.most_s
            and self.state_gb[node] + state <= self.most_gb
        ]

    def _shift(self, i: int, nodes: Pins, sign: int) -> None:
        seconds, state = self.loads.seconds[i], self.loads.state_gb[i]
        paid = seconds + self.loads.switch_s[i]
        for node in nodes:
            self.shared_s[node] += sign * paid
            self.state_gb[node] += sign * state
            self.jobs[node] ^= 1 << i
            if not self.jobs[node]:
                self.shared_s[node] = self.state_gb[node] = 0.0

    def _skips_a_twin(self, nodes: Pins) -> bool:
        """Return whether a node is chosen and one before it with the same jobs is not.

        Nodes with the same jobs are neighbours: they were opened together, and of them the
        lowest are joined first.
        """
        return any(
            node and self.jobs[node] == self.jobs[node - 1] and node - 1 not in nodes
            for node in nodes
        )

    def run(self, at: int, used: int) -> Iterator[tuple[Pins, ...]]:
        if at == len(self.order):
            yield tuple(self.pins)
            return
        i = self.order[at]
        width = self.loads.widths[i]
        if self.loads.seconds[i] > self.most_s or self.loads.state_gb[i] > self.most_gb:
            return
        room = self._room(i, used)
        must_open = self.n_nodes - used - self.width_left[at + 1]
        for opened in range(max(width - len(room), must_open, 0), width + 1):
            if used + opened > self.n_nodes:
                return
            fresh = tuple(range(used, used + opened))
            for old in combinations(room, width - opened):
                if self.gangs and self._skips_a_twin(old):
                    continue
                nodes = old + fresh
                self.pins[i] = nodes
                self._shift(i, nodes, 1)
                yield from self.run(at + 1, used + opened)
                self._shift(i, nodes, -1)


def pinnings(
    loads: PoolLoads, n_nodes: int, period_s: float, dram_gb: float
) -> Iterator[tuple[Pins, ...]]:
    """Yield every pinning onto exactly ``n_nodes`` nodes that loads and DRAM admit.

    Parameters
    ----------
    loads : PoolLoads
        Of the jobs of the group.
    n_nodes : int
        At least the largest width.
    period_s, dram_gb : float
        ``C`` and ``M``.

    Yields
    ------
    tuple of tuple of int
        Per job its nodes, ascending.
    """
    if max(loads.widths) <= n_nodes <= sum(loads.widths):
        yield from _Search(loads, n_nodes, period_s, dram_gb).run(0, 0)


def least_nodes(loads: PoolLoads, most: int, period_s: float, dram_gb: float) -> int | None:
    """Return the fewest nodes that loads and DRAM admit, at most ``most``; ``None`` if none.

    What is admitted on ``n`` nodes is on ``n + 1``, up to the sum of widths: move one pin from
    a shared node to a fresh one.
    """
    for n_nodes in range(max(loads.widths), min(most, sum(loads.widths)) + 1):
        for _ in pinnings(loads, n_nodes, period_s, dram_gb):
            return n_nodes
    return None
