"""Columns, their pricing, and the search among them, each against a plain enumeration."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product
from math import inf
from typing import Any

import numpy as np
import pytest

from models.problem.compiled import plain
from models.replan.columns import (
    Columns,
    HostArrays,
    Rows,
    all_parts,
    column_costs,
    expand,
    first_columns,
    row_bounds,
)
from models.replan.replanning import Host
from models.replan.search import SearchData, SearchState, search_choices
from replan_cases import Case, random_case
from small_snapshots import jobs_of, snapshot_of


def arrays_of(case: Case) -> HostArrays:
    return HostArrays(case.snapshot, case.hosts, case.move_usd, case.may_move)


def sets_of(case: Case, rng: random.Random) -> tuple[Any, Any]:
    """Every set of jobs, padded with n, on random node counts."""
    n = len(case.snapshot)
    sets = [s for size in range(1, n + 1) for s in combinations(range(n), size)]
    members = np.full((len(sets), n), n, dtype=np.int64)
    for row, jobs in enumerate(sets):
        members[row, : len(jobs)] = jobs
    nodes = np.array([[rng.randint(1, 3), rng.randint(1, 2)] for _ in sets], dtype=np.int64)
    return members, nodes


def keys_of(columns: Columns, n: int) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Nodes by (host, jobs, stayers)."""
    out = {}
    for at in range(len(columns)):
        jobs = tuple(j for j in columns.members[at].tolist() if j < n)
        stayers = tuple(columns.members[at][columns.keep[at]].tolist())
        key = (int(columns.host[at]), jobs, stayers)
        assert key not in out
        out[key] = tuple(columns.nodes[at].tolist())
    return out


def pinned(case: Case, host: int, stayers: Any) -> tuple[int, int]:
    """Nodes that these members are pinned to."""
    found = case.hosts[host]
    at = [found.members.index(j) for j in stayers]
    return (
        len({v for i in at for v in found.rollout_pins[i]}),
        len({v for i in at for v in found.train_pins[i]}),
    )


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_those_of_the_definition(seed: int) -> None:
    """Whole stayers of each host, fewer of them only on fewer nodes, and none; in plain loops."""
    rng = random.Random(seed)
    case = random_case(rng, 5)
    n = len(case.snapshot)
    arrays = arrays_of(case)
    members, nodes = sets_of(case, rng)
    found = keys_of(expand(members, nodes, arrays, subsets=False), n)
    expected = {}
    for row in range(len(members)):
        jobs = tuple(j for j in members[row].tolist() if j < n)
        counts = tuple(nodes[row].tolist())
        expected[-1, jobs, ()] = counts
        for h, host in enumerate(case.hosts):
            common = tuple(j for j in jobs if j in host.members)
            for size in range(1, len(common) + 1):
                for stayers in combinations(common, size):
                    pair = tuple(map(max, counts, pinned(case, h, stayers)))
                    whole = tuple(map(max, counts, pinned(case, h, common)))
                    if stayers == common or any(a < b for a, b in zip(pair, whole, strict=True)):
                        expected[h, jobs, stayers] = pair
    assert found == expected
    # with all subsets at hand, members that may not move are stayers or the column is left out
    left = keys_of(expand(members, nodes, arrays, subsets=True), n)
    fixed = {j for j in range(n) if arrays.fixed[j]}
    assert left == {
        key: pair for key, pair in expected.items() if not (fixed & set(key[1])) - set(key[2])
    }


def test_few_stayers_among_many_slots_are_all_looked_at() -> None:
    """Three stayers on a node each: 1 to 3 of them, also where other rows fill other slots."""
    n = 9
    snapshot = snapshot_of(jobs_of((1,) * n, (1,) * n, deadline_s=20))
    host = Host(
        members=(0, 1, 2),
        rollout_pins=((0,), (1,), (2,)),
        train_pins=((0,), (0,), (0,)),
        rates=(1,) * 3,
        period_s=20.0,
        starts_s=(((0.0, 1.0),), ((0.0, 2.0),), ((0.0, 3.0),)),
        fresh_rollout=3,
        fresh_train=1,
    )
    # a second host of all others puts stayers in every slot of the other row
    other = replace(
        host,
        members=tuple(range(3, n)),
        rollout_pins=tuple((i,) for i in range(6)),
        train_pins=((0,),) * 6,
        rates=(1,) * 6,
        starts_s=host.starts_s * 2,
    )
    arrays = HostArrays(snapshot, [host, other], np.ones(n), np.ones(n, dtype=np.bool_))
    members = np.array([range(n), [*range(2, n), n, n]], dtype=np.int64)
    found = keys_of(expand(members, np.ones((2, 2), dtype=np.int64), arrays, subsets=True), n)
    for h, each in enumerate((host, other)):
        stayers = {key[2] for key in found if key[:2] == (h, tuple(range(n)))}
        every = {
            part
            for size in range(1, len(each.members) + 1)
            for part in combinations(each.members, size)
        }
        assert stayers == every


def test_a_host_of_many_nodes_told_apart() -> None:
    """Of 80 jobs on a rollout node each, any part is pinned to as many; more than a word's bits."""
    n = 80
    snapshot = snapshot_of(jobs_of((1,) * n, (1,) * n, deadline_s=100))
    host = Host(
        members=tuple(range(n)),
        rollout_pins=tuple((j,) for j in range(n)),
        train_pins=((0,),) * n,
        rates=(1,) * n,
        period_s=100.0,
        starts_s=tuple(((float(j), j + 1.0),) for j in range(n)),
        fresh_rollout=n,
        fresh_train=1,
    )
    arrays = HostArrays(snapshot, [host], np.ones(n), np.ones(n, dtype=np.bool_))
    keep = np.tri(3, n, 60, dtype=np.bool_)
    stayers = np.tile(np.arange(n), (3, 1))
    pinned_to = arrays.pinned(np.zeros(3, dtype=np.int64), stayers, keep)
    assert pinned_to.tolist() == [[61, 1], [62, 1], [63, 1]]
    assert arrays.pinned(np.zeros(1, dtype=np.int64), stayers[:1], stayers[:1] >= 0)[0, 0] == n


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_hosts_are_all_there(seed: int) -> None:
    """Whole hosts first, newcomers next; here no host has more than six members."""
    case = random_case(random.Random(seed), 5)
    columns = first_columns(case.snapshot, case.hosts, arrays_of(case))
    found = keys_of(columns, len(case.snapshot))
    running = {job for host in case.hosts for job in host.members}
    new = [j for j in range(len(case.snapshot)) if j not in running]
    parts = {
        (h, part, part): pinned(case, h, part)
        for h, host in enumerate(case.hosts)
        for size in range(1, len(host.members) + 1)
        for part in combinations(host.members, size)
    }
    jobs = case.snapshot.jobs
    alone = {(-1, (j,), ()): (jobs[j].rollout_nodes, jobs[j].train_nodes) for j in new}
    assert found == parts | alone
    assert all_parts(arrays_of(case))
    assert columns.host[: len(case.hosts)].tolist() == list(range(len(case.hosts)))
    assert columns.members[len(case.hosts) :][: len(new), 0].tolist() == new


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_of_a_row_is_below_all_its_columns(seed: int) -> None:
    """And equal to the least where no stayer is pinned to more nodes than loads admit."""
    rng = random.Random(seed)
    case = random_case(rng, 5)
    n, arrays = len(case.snapshot), arrays_of(case)
    members, nodes = sets_of(case, rng)
    draw = np.random.default_rng(seed)
    pi, mu = np.append(draw.random(n), 0.0), np.append(-draw.random(len(case.hosts)), 0.0)
    price, dual, stay = np.array([0.3, 1.0]), np.array([0.1, -0.4]), 0.2
    credit = arrays.credit / 60
    bound = Rows(members, nodes, arrays, credit).bound(pi, mu, price - dual, stay)
    for row in range(len(members)):
        columns = expand(members[row : row + 1], nodes[row : row + 1], arrays, subsets=False)
        kept = np.where(columns.keep, credit[columns.members], 0.0).sum(axis=1)
        reduced = np.empty(len(columns))
        column_costs(
            columns.members, columns.host, columns.nodes, columns.keep.sum(axis=1).astype(float),
            columns.nodes @ price - kept, pi, mu, dual, stay, reduced,
        )  # fmt: skip
        assert bound[row] <= reduced.min() + 1e-12
        if (columns.nodes == nodes[row]).all():
            assert bound[row] == pytest.approx(reduced.min())


def test_kernels_and_their_plain_twins_agree() -> None:
    rng = np.random.default_rng(0)
    m, k, n, h = 30, 4, 6, 3
    members = rng.integers(0, n + 1, (m, k))
    host = rng.integers(0, h + 1, m)
    nodes = rng.integers(1, 4, (m, 2))
    pi, mu = np.append(rng.random(n), 0.0), np.append(-rng.random(h), 0.0)
    credit, count = rng.random((m, k)), rng.random((m, k))
    for kernel, given in (
        (row_bounds, (members, nodes, rng.integers(0, h + 1, (m, k)), credit, count, pi, mu,
                      rng.random(2), 0.3)),
        (column_costs, (members, host, nodes, rng.random(m), rng.random(m), pi, mu,
                        rng.random(2), 0.3)),
    ):  # fmt: skip
        outs = [np.empty(m), np.empty(m)]
        kernel(*given, outs[0])
        plain(kernel)(*given, outs[1])
        np.testing.assert_allclose(outs[0], outs[1], rtol=1e-13)


# --- search -----------------------------------------------------------------------------------


class _Instance:
    """Random columns with reduced costs >= 0: the LP value is 0 and duals are penalties."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.h, m, k = 6, 2, 40, 3
        self.members = np.full((m, k), self.n, dtype=np.int64)
        for row in range(m):
            jobs = rng.choice(self.n, rng.integers(1, k + 1), replace=False)
            self.members[row, : len(jobs)] = np.sort(jobs)
        self.host = rng.integers(0, self.h + 1, m)
        self.counts = rng.integers(1, 3, (m, 3))
        self.pi = np.append(rng.integers(0, 8, self.n) / 8, 0.0)
        # of two equal bounds none is tight: halves of odd numbers
        self.reduced = rng.integers(0, 30, m) / 8 + 1 / 64
        self.values = self.reduced + self.pi[self.members].sum(axis=1)
        self.lp_value = float(self.pi.sum())
        self.least = np.array([0.0, 0.0, rng.integers(0, 5)])
        self.most = np.array([5.0, 6.0, inf])

    def least_value(self, most: int = 4) -> float:
        """Least value of a choice of at most so many columns within the limits, by enumeration."""
        best = inf
        rows = range(len(self.host))
        for size in range(1, most + 1):
            for chosen in combinations(rows, size):
                at = list(chosen)
                hosts = [h for h in self.host[at].tolist() if h < self.h]
                covered = set(self.members[at].ravel().tolist()) - {self.n}
                sums = self.counts[at].sum(axis=0)
                within = (sums >= self.least).all() and (sums <= self.most).all()
                if len(hosts) == len(set(hosts)) and len(covered) == self.n and within:
                    best = min(best, float(self.values[at].sum()))
        return best

    def take_credits(self) -> None:
        """Let hosts earn: columns of theirs cost less, by what their row's dual takes up."""
        on_host = self.host < self.h
        self.values = self.values - 2.0 * on_host
        self.lp_value -= 2.0 * self.h

    def search(self, kernel: Any, slack: float, budget: int) -> SearchState:
        row, slot = np.nonzero(self.members < self.n)
        job = self.members[row, slot]
        added = np.flatnonzero(self.values < 0)
        row, job = np.append(row, added), np.append(job, np.full(len(added), self.n))
        entries = row[np.lexsort((self.reduced[row], job))]
        first = np.searchsorted(np.sort(job), np.arange(self.n + 2))
        data = SearchData(
            self.members, self.host, self.counts, self.values, self.reduced, first, entries,
            self.pi, self.least, self.most, self.lp_value,
        )  # fmt: skip
        state = SearchState.start(self.n, self.h, len(self.host), slack)
        while not kernel(data, state, budget):
            pass
        return state


@pytest.mark.parametrize("seed", range(4))
def test_search_finds_the_best_choice(seed: int) -> None:
    """Five nodes of a pool allow four columns at most, as each has one or more."""
    instance = _Instance(seed)
    instance.most[0] = 4.0
    best = instance.least_value()
    assert best < inf
    state = instance.search(search_choices, 100.0, 10_000)
    assert state.best[0] + instance.lp_value == pytest.approx(best)
    chosen = state.chosen[: state.found]
    assert instance.values[chosen].sum() == pytest.approx(best)
    # in small portions, and without a compiler: the same
    for kernel, budget in ((search_choices, 3), (plain(search_choices), 10_000)):
        other = instance.search(kernel, 100.0, budget)
        assert other.best[0] == state.best[0]
    assert not instance.search(search_choices, float(state.best[0]), 10_000).found


@pytest.mark.parametrize("seed", range(4))
def test_search_adds_columns_that_earn(seed: int) -> None:
    """Hosts have a dual of -2, so unused ones lose: a column of theirs may be worth adding."""
    instance = _Instance(seed)
    instance.most[0] = 4.0
    instance.pi[:] = 0.0
    instance.values = instance.reduced.copy()
    instance.lp_value = 0.0
    instance.take_credits()
    assert (instance.values < 0).sum() > 4
    best = instance.least_value()
    for kernel, budget in (
        (search_choices, 10_000), (search_choices, 3), (plain(search_choices), 10_000)
    ):  # fmt: skip
        state = instance.search(kernel, 100.0, budget)
        assert state.best[0] + instance.lp_value == pytest.approx(best)
        assert instance.values[state.chosen[: state.found]].sum() == pytest.approx(best)


def least_partition(instance: _Instance, left: frozenset[int], used: frozenset[int]) -> float:
    """Least value of columns that cover each job left once, no host twice."""
    if not left:
        return 0.0
    best = inf
    for at in range(len(instance.host)):
        jobs = frozenset(instance.members[at].tolist()) - {instance.n}
        host = int(instance.host[at])
        if min(left) in jobs and jobs <= left and host not in used:
            more = used | {host} if host < instance.h else used
            rest = least_partition(instance, left - jobs, more)
            best = min(best, float(instance.values[at]) + rest)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_search_covers_once_where_it_is_told_to(seed: int) -> None:
    """With infinite duals of jobs, the best partition; by the compiler and without."""
    instance = _Instance(seed)
    instance.least[:], instance.most[:] = 0.0, inf
    best = least_partition(instance, frozenset(range(instance.n)), frozenset())
    assert best < inf
    instance.pi[: instance.n] = inf
    for kernel in (search_choices, plain(search_choices)):
        state = instance.search(kernel, 100.0, 10_000)
        assert state.best[0] + instance.lp_value == pytest.approx(best)


def test_search_of_no_columns_for_a_job_ends() -> None:
    instance = _Instance(0)
    instance.members[instance.members == 5] = instance.n
    for slack, budget in product((0.5, 50.0), (1, 1000)):
        assert not instance.search(search_choices, slack, budget).found
