"""Columns of re-planning: which jobs, on which running group's nodes, and who stays.

Sets and parameters
-------------------
jobs ``j`` with a *credit* ``m_j``, $: what its move would cost, 0 for a newcomer and for a job
that may not move (it costs the same in every plan, whatever its price); running groups
(hosts) ``h``; sets ``S`` of jobs on node counts ``n_S`` (:mod:`models.replan.sets`); ``c^P`` $/h of
a node, ``L`` hours. A *column* ``g = (S, h, K, n)``: the jobs ``S`` as one group, of which the
stayers ``K``, all members of ``h``, keep their pins; ``h`` is none when ``K`` is empty. With
``pinned^P(K)`` the number of nodes that ``K`` is pinned to,

    n^P = max(n^P_S, pinned^P(K)),    v_g = L sum_P c^P n^P - sum_{j in K} m_j.

So a plan costs ``sum_j m_j + sum_g v_g``: moves are charged by what is not credited. The same
plan by columns with their movers' prices costs as much, but with credits a job that moves costs
nothing more in a second column: a superset is never dearer than its subsets, and maximal sets
stand for theirs.

Columns of one set and host: ``K = S & h`` whole; and where these pin more nodes than ``n_S``, the
smaller ``K`` with fewer nodes (all of them where ``S & h`` has up to ``MOST_STAYERS`` jobs, else
those with one job less). Others are dominated: as many nodes, less credit. *Host columns* are
parts of a host as they are, ``S = K``: all of them for up to ``_MOST_PARTS`` members, else the
whole and those without one or two members. They need no proof: the running schedule is one.

A job that may not move counts as covered where it stays only.

Pricing. Rows of the table are many, so they are not all written out as columns. With duals
``pi_j >= 0`` of jobs, ``mu_h <= 0`` of hosts, ``sigma^P <= L c^P`` of totals of nodes and
``lambda >= 0`` of the number of stayers, a bound of the reduced cost of all columns of a row is

    sum_P (L c^P - sigma^P) n^P_S - sum_{j in S} pi_j
        - max(0, max_h (sum_{j in S & h} (m_j + lambda) + mu_h));

only rows where it is below what is asked for are expanded (:meth:`Rows.bound`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from models.problem.compiled import compiled
from models.problem.snapshot import Snapshot
from models.replan.running import Host

__all__ = [
    "MOST_STAYERS",
    "BoolArray",
    "Columns",
    "FloatArray",
    "HostArrays",
    "IntArray",
    "Rows",
    "all_parts",
    "column_costs",
    "expand",
    "first_columns",
    "row_bounds",
]

#: Most jobs in common with a host for which all sets of stayers are looked at.
MOST_STAYERS: Final = 6
#: Most members of a host for which all its parts are columns.
_MOST_PARTS: Final = 6
#: Bits of a word.
_BITS: Final = 62

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class HostArrays:
    """Hosts as arrays over jobs; index ``n`` is no job.

    Attributes
    ----------
    home : (n + 1,) int64
        Host of each job, -1 for newcomers.
    credit : (n + 1,) float64
        Move of each job, $; 0 for newcomers and jobs that may not move.
    fixed : (n + 1,) bool
        Running jobs that may not move.
    """

    def __init__(
        self, snapshot: Snapshot, hosts: Sequence[Host], move_usd: FloatArray, may_move: BoolArray
    ) -> None:
        n = len(snapshot)
        self.n, self.n_hosts = n, len(hosts)
        self.home: IntArray = np.full(n + 1, -1, dtype=np.int64)
        for h, host in enumerate(hosts):
            self.home[list(host.members)] = h
        self.running: BoolArray = self.home[:n] >= 0
        self.fixed: BoolArray = np.append(self.running & ~may_move, False)
        moves = self.running & may_move
        self.credit: FloatArray = np.append(np.where(moves, move_usd, 0.0), 0.0)
        # per pool and word: nodes of each job, a bit each; how many nodes a bit stands for
        self._words: tuple[list[tuple[IntArray, IntArray]], ...] = ([], [])
        for pool, words in enumerate(self._words):
            kinds = [_kinds(host, pool) for host in hosts]
            for first in range(0, max(map(len, kinds), default=0), _BITS):
                bits = np.zeros(n + 1, dtype=np.int64)
                weights = np.zeros((len(hosts), _BITS), dtype=np.int64)
                for h, by_jobs in enumerate(kinds):
                    for bit, (jobs, count) in enumerate(by_jobs[first : first + _BITS]):
                        bits[list(jobs)] |= 1 << bit
                        weights[h, bit] = count
                words.append((bits, weights[:, weights.any(axis=0)]))

    def pinned(self, host: IntArray, stayers: IntArray, keep: BoolArray) -> IntArray:
        """Return the nodes that the kept ones of these jobs are pinned to, ``(m, 2)``."""
        out = np.zeros((len(host), 2), dtype=np.int64)
        for pool, words in enumerate(self._words):
            for bits_of, weights in words:
                bits = np.bitwise_or.reduce(np.where(keep, bits_of[stayers], 0), axis=1, initial=0)
                for bit in range(weights.shape[1]):
                    out[:, pool] += weights[host, bit] * (bits >> bit & 1)
        return out


def _kinds(host: Host, pool: int) -> list[tuple[tuple[int, ...], int]]:
    """Return the sets of members that share a node, and how many nodes each has."""
    jobs_of: dict[int, list[int]] = {}
    for member, pins in zip(host.members, host.pins[pool], strict=True):
        for node in pins:
            jobs_of.setdefault(node, []).append(member)
    count: dict[tuple[int, ...], int] = {}
    for jobs in jobs_of.values():
        count[tuple(jobs)] = count.get(tuple(jobs), 0) + 1
    return sorted(count.items())


class Columns:
    """Columns, row by row.

    Attributes
    ----------
    members : (m, k) int64
        ``S``, ascending, padded with ``n``.
    keep : (m, k) bool
        Which of them stay.
    nodes : (m, 2) int64
    host : (m,) int64
        -1 for none.
    """

    def __init__(self, members: IntArray, keep: BoolArray, nodes: IntArray, host: IntArray) -> None:
        self.members, self.keep, self.nodes, self.host = members, keep, nodes, host

    def __len__(self) -> int:
        return len(self.host)

    def take(self, at: IntArray | BoolArray) -> Columns:
        """Return some of the columns."""
        return Columns(self.members[at], self.keep[at], self.nodes[at], self.host[at])

    @staticmethod
    def joined(parts: Sequence[Columns], n: int, width: int) -> Columns:
        """Return all columns of some parts, ``width`` jobs wide or more."""
        sizes = [len(part) for part in parts]
        width = max([width, *(part.members.shape[1] for part in parts)])
        members = np.full((sum(sizes), width), n, dtype=np.int64)
        keep = np.zeros((sum(sizes), width), dtype=np.bool_)
        begin = 0
        for part, size in zip(parts, sizes, strict=True):
            members[begin : begin + size, : part.members.shape[1]] = part.members
            keep[begin : begin + size, : part.members.shape[1]] = part.keep
            begin += size
        return Columns(
            members,
            keep,
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([part.host for part in parts]),
        )


def _row_bounds(  # noqa: PLR0913, PLR0917 - a kernel takes plain arguments
    members: IntArray,
    nodes: IntArray,
    home: IntArray,
    credit: FloatArray,
    count: FloatArray,
    pi: FloatArray,
    mu: FloatArray,
    node: FloatArray,
    stay: float,
    out: FloatArray,
) -> None:
    """Write the bound of each row (:meth:`Rows.bound`)."""
    for row in range(len(members)):
        best = 0.0
        covered = 0.0
        for slot in range(members.shape[1]):
            covered += pi[members[row, slot]]
            saved = credit[row, slot] + mu[home[row, slot]] + stay * count[row, slot]
            best = max(best, saved)
        out[row] = nodes[row, 0] * node[0] + nodes[row, 1] * node[1] - covered - best


row_bounds = compiled(_row_bounds)


def _column_costs(  # noqa: PLR0913, PLR0917 - a kernel takes plain arguments
    covers: IntArray,
    host: IntArray,
    nodes: IntArray,
    stays: FloatArray,
    value: FloatArray,
    pi: FloatArray,
    mu: FloatArray,
    dual: FloatArray,
    stay: float,
    out: FloatArray,
) -> None:
    """Write the reduced cost of each column; ``dual`` is that of the totals of nodes."""
    for row in range(len(covers)):
        covered = mu[host[row]] + stay * stays[row]
        for slot in range(covers.shape[1]):
            covered += pi[covers[row, slot]]
        out[row] = value[row] - covered - nodes[row, 0] * dual[0] - nodes[row, 1] * dual[1]


column_costs = compiled(_column_costs)


class Rows:
    """Rows of the table, priced without being written out.

    ``members`` ``(m, k)`` padded with ``n``.
    """

    def __init__(
        self, members: IntArray, nodes: IntArray, hosts: HostArrays, credit: FloatArray
    ) -> None:
        self.members, self.nodes = members, nodes
        home = hosts.home[members]
        self.home = np.where(home < 0, hosts.n_hosts, home)
        credit = credit[members]
        m, k = members.shape
        #: per slot the credits, and the number, of the members of that slot's host
        self.credit = np.zeros((m, k))
        self.count = np.zeros((m, k))
        for slot in range(k):
            same = home == home[:, slot : slot + 1]
            running = home[:, slot] >= 0
            self.credit[:, slot] = np.where(running, (credit * same).sum(axis=1), 0.0)
            self.count[:, slot] = np.where(running, same.sum(axis=1), 0)

    def __len__(self) -> int:
        return len(self.members)

    def bound(self, pi: FloatArray, mu: FloatArray, node: FloatArray, stay: float) -> FloatArray:
        """Return a bound of the reduced cost of all columns of each row, ``(m,)``.

        ``pi`` and ``mu`` end with a 0; ``node`` is the price of a node of each pool, its dual
        taken off.
        """
        out: FloatArray = np.empty(len(self.members))
        row_bounds(self.members, self.nodes, self.home, self.credit, self.count,
                   pi, mu, node, stay, out)  # fmt: skip
        return out


def expand(members: IntArray, nodes: IntArray, hosts: HostArrays, *, subsets: bool) -> Columns:
    """Return the columns of sets on node counts, those dominated left out.

    Parameters
    ----------
    members : (m, k) int64
        Padded with ``n``.
    subsets : bool
        Whether every subset is a row itself: a column with a member that may neither move nor
        stays is left out then.
    """
    home = hosts.home[members]
    m, k = members.shape
    fixed = hosts.fixed[members]
    parts: list[Columns] = []

    def add(rows: IntArray, keep: BoolArray, counts: IntArray, host: IntArray) -> None:
        lost = np.any(fixed[rows] & ~keep & subsets, axis=1)
        parts.append(Columns(members[rows], keep, counts, host).take(~lost))

    every = np.arange(m)
    add(every, np.zeros((m, k), dtype=np.bool_), nodes, np.full(m, -1))
    for slot in range(k):
        first = home[:, slot] >= 0
        first &= ~(home[:, :slot] == home[:, slot : slot + 1]).any(axis=1)
        rows = np.flatnonzero(first)
        if not len(rows):
            continue
        host = home[rows, slot]
        common = home[rows] == host[:, None]
        pinned = hosts.pinned(host, members[rows], common)
        counts = np.maximum(nodes[rows], pinned)
        add(rows, common, counts, host)
        more = (pinned > nodes[rows]).any(axis=1) & (common.sum(axis=1) > 1)
        at = np.flatnonzero(more)
        for keep, of in _fewer(common[at]):
            sub = at[of]
            fewer = np.maximum(nodes[rows[sub]], hosts.pinned(host[sub], members[rows[sub]], keep))
            ok = (fewer < counts[sub]).any(axis=1)
            add(rows[sub][ok], keep[ok], fewer[ok], host[sub][ok])
    return Columns.joined(parts, hosts.n, k)


def _fewer(common: BoolArray) -> list[tuple[BoolArray, IntArray]]:
    """Return proper parts of each row's stayers, never none, and of which rows they are."""
    out: list[tuple[BoolArray, IntArray]] = []
    size_of = common.sum(axis=1)
    for size in np.unique(size_of).tolist():
        of = np.flatnonzero(size_of == size)
        slots = np.nonzero(common[of])[1].reshape(-1, size)
        most = size if size <= MOST_STAYERS else 2
        for count in range(1, most):
            for left in combinations(range(size), count):
                keep = common[of]
                np.put_along_axis(keep, slots[:, left], False, axis=1)
                out.append((keep, of))
    return out


def all_parts(arrays: HostArrays) -> bool:
    """Return whether all parts of every host are columns."""
    return int(np.bincount(arrays.home[arrays.home >= 0], minlength=1).max()) <= _MOST_PARTS


def first_columns(snapshot: Snapshot, hosts: Sequence[Host], arrays: HostArrays) -> Columns:
    """Return the hosts as they are, in order, each newcomer alone, and parts of the hosts."""
    whole = [(h, host.members) for h, host in enumerate(hosts)]
    alone = [(-1, (int(j),)) for j in np.flatnonzero(~arrays.running)]
    parts: list[tuple[int, tuple[int, ...]]] = []
    for h, host in enumerate(hosts):
        size = len(host.members)
        sizes = range(1, size) if size <= _MOST_PARTS else range(size - 2, size)
        parts += [(h, part) for count in sizes for part in combinations(host.members, count)]
    rows = whole + alone + parts
    width = max((len(members) for _, members in rows), default=1)
    members = np.full((len(rows), width), arrays.n, dtype=np.int64)
    for at, (_, jobs) in enumerate(rows):
        members[at, : len(jobs)] = jobs
    host_of = np.array([h for h, _ in rows], dtype=np.int64)
    keep = (members < arrays.n) & (host_of >= 0)[:, None]
    nodes = np.zeros((len(rows), 2), dtype=np.int64)
    kept, new = host_of >= 0, members[host_of < 0, 0]
    nodes[kept] = arrays.pinned(host_of[kept], members[kept], keep[kept])
    jobs_nodes = np.stack((snapshot.table.rollout_nodes, snapshot.table.train_nodes), axis=1)
    nodes[~kept] = jobs_nodes[new]
    return Columns(members, keep, nodes, host_of)
