"""Sets of single-node jobs with rates: the same as one by one, never below the oracle's fronts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from instances.errors import UnsupportedError
from instances.generate import production
from instances.jobs import Job
from instances.plan import Limits
from models.exact import rate_sets
from models.exact.rate_sets import RateSetPool
from models.exact.single_node_sets import SetPool, is_for
from models.group.group_cost import GroupCost, Nodes
from models.group.rate_bound import pair_bound_s
from models.group.rate_vectors import RateVector, rate_vectors
from models.problem.group_shape import GroupShape
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.snapshot import Snapshot
from oracles.least_snapshot import partitions
from rate_cases import rate_cases, rated
from small_snapshots import jobs_of, oracle_fronts, pareto

Rows = list[tuple[tuple[int, ...], Nodes]]
SLACK = 1 + 1e-9


def pool_of(snapshot: Snapshot, **options: Any) -> RateSetPool:
    made = SolveOptions(**options)
    return RateSetPool(snapshot, GroupCost(snapshot), made, made.start())


def rows_of(pool: SetPool) -> Rows:
    return sorted(pool.group(i) for i in range(len(pool)))


def cases(most: int) -> Iterator[Snapshot]:
    """Yield the single-node snapshots of at most so many jobs, groups of at most five."""
    for case in rate_cases():
        limits = case.snapshot.limits
        snapshot = replace(
            case.snapshot, limits=replace(limits, max_group_size=limits.max_group_size or 5)
        )
        if is_for(snapshot) and len(snapshot) <= most:
            yield snapshot


# --- which sets, on how many nodes: loads -------------------------------------------------------


def may_share(
    jobs: Sequence[Job], rates: Sequence[int], most_s: float, pool: int, others_paid: bool
) -> bool:
    """Whether loads, chains and pair bounds let these jobs share a node of a pool."""
    n = len(jobs)
    one, apart = [(0,)] * n, [(i,) for i in range(n)]
    pins = (one, apart) if pool == 0 else (apart, one)
    if others_paid:  # a switch paid in the other pool: part of the phase there
        jobs = [
            replace(job, train_s=job.train_s + job.train_switch_s)
            if pool == 0
            else replace(job, rollout_s=job.rollout_s + job.rollout_switch_s)
            for job in jobs
        ]
    shape = GroupShape.of(jobs, *pins, rates)
    phases = (shape.rollout_s, shape.train_s)[pool]
    load = sum(k * seconds for k, seconds in zip(rates, phases, strict=True))
    chains = [
        k * (p + q + s)
        for k, p, q, s in zip(rates, shape.rollout_s, shape.train_s, shape.sync_s, strict=True)
    ]
    return max(load, *chains, pair_bound_s(shape)) <= most_s * SLACK


def fewest(
    snapshot: Snapshot, members: Sequence[int], vector: RateVector, pool: int, others_paid: bool
) -> float:
    """The fewest nodes of a pool over all partitions of the members into nodes."""
    jobs = [snapshot.jobs[i] for i in members]
    dram = (snapshot.cluster.rollout, snapshot.cluster.train)[pool].host_dram_gb
    states = [(job.rollout_state_gb, job.train_state_gb)[pool] for job in jobs]

    def fits(block: Sequence[int]) -> bool:
        if sum(states[i] for i in block) > dram:
            return False
        return len(block) == 1 or may_share(
            [jobs[i] for i in block],
            [vector.rates[i] for i in block],
            vector.period_s,
            pool,
            others_paid,
        )

    return min(
        (len(blocks) for blocks in partitions(len(jobs)) if all(map(fits, blocks))),
        default=math.inf,
    )


def pairs_by_loads(snapshot: Snapshot, members: tuple[int, ...]) -> list[tuple[float, float]]:
    """The pairs that some candidate admits: one rollout node, one train node, or more of both."""
    jobs = [snapshot.jobs[i] for i in members]
    found: list[tuple[float, float]] = []
    for vector in rate_vectors(
        [job.deadline_s for job in jobs], [job.solo_s for job in jobs], snapshot.limits.max_rate
    ):
        free = [fewest(snapshot, members, vector, pool, False) for pool in (0, 1)]
        if len(members) == 1:
            found.append((free[0], free[1]))
            continue
        found.append((max(free[0], 2), max(free[1], 2)))
        if free[1] == 1:
            found.append((fewest(snapshot, members, vector, 0, True), 1))
        if free[0] == 1:
            found.append((1, fewest(snapshot, members, vector, 1, True)))
    return [pair for pair in found if math.inf not in pair]


def admitted(snapshot: Snapshot) -> Rows:
    """Every connected set within the limits, one by one: by loads, and as its subsets are."""
    limits = snapshot.limits
    grids: dict[tuple[int, ...], set[Nodes]] = {}
    rows: Rows = []
    for size in range(1, min(limits.max_group_size, len(snapshot)) + 1):
        for members in combinations(range(len(snapshot)), size):
            pairs = pairs_by_loads(snapshot, members)
            every = [(r, t) for r in range(1, size + 1) for t in range(1, size + 1)]
            grid = {
                (r, t)
                for r, t in every
                if any(a <= r and b <= t for a, b in pairs)
                and (
                    size < 3
                    or all(
                        (min(r, size - 1), min(t, size - 1)) in grids[fewer]
                        for fewer in combinations(members, size - 1)
                    )
                )
            }
            grids[members] = grid
            most = limits.max_rollout_nodes or size, limits.max_train_nodes or size
            rows += [
                (members, (r, t))
                for r, t in grid
                if (r - 1, t) not in grid and (r, t - 1) not in grid
                if r + t <= size + 1 and r <= most[0] and t <= most[1]
            ]
    return sorted(rows)


def test_the_sets_are_those_that_loads_admit_each_on_its_fewest_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is decided here: loads, chains, pair bounds and subsets only."""
    monkeypatch.setattr(rate_sets, "DECIDED_SIZE", 1)
    several = wide = 0
    for snapshot in cases(6):
        expected = admitted(snapshot)
        assert rows_of(pool_of(snapshot)) == expected, snapshot
        several += sum(len(members) > 2 for members, _ in expected)
        wide += sum(sum(nodes) > 2 for _, nodes in expected)
    assert several >= 200
    assert wide >= 100


def test_more_iterations_admit_more_sets() -> None:
    """Production jobs: every strict pair stays within the limits of a pair with rates."""
    table = production(n_jobs=12, seed=3)
    sizes = []
    for max_rate in (2, 3, 4):
        rows = rows_of(pool_of(Snapshot(table=table, limits=Limits(max_rate=max_rate))))
        sizes.append(len({members for members, _ in rows}))
    assert sizes[0] < sizes[1] < sizes[2]


# --- exact for small sets, a relaxation for larger ones -----------------------------------------


def test_small_sets_are_decided_and_no_point_of_a_larger_front_is_below_every_row() -> None:
    """The oracle's fronts of up to four jobs, connected points: those of two and three jobs are
    the rows, node for node; those of four are on no fewer nodes than some row."""
    exact = several = larger = 0
    for i, snapshot in enumerate(cases(4)):
        if snapshot.limits.max_rate > 2 and (len(snapshot) == 4 or (len(snapshot) == 3 and i % 6)):
            continue  # the oracle tries every rate vector
        fronts = {
            members: [(r, t) for r, t in front if r + t <= len(members) + 1]
            for members, front in oracle_fronts(snapshot).items()
        }
        rows = rows_of(pool_of(snapshot))
        small = sorted(
            (members, nodes)
            for members, front in fronts.items()
            for nodes in front
            if len(members) <= rate_sets.DECIDED_SIZE
        )
        assert [row for row in rows if len(row[0]) <= rate_sets.DECIDED_SIZE] == small, snapshot
        exact += sum(len(members) > 1 for members, _ in small)
        for members, front in fronts.items():
            pairs = [nodes for held, nodes in rows if held == members]
            several += len(pareto(pairs)) > 1
            larger += len(members) > rate_sets.DECIDED_SIZE and bool(front)
            for rollout, train in front:
                assert any(r <= rollout and t <= train for r, t in pairs), (snapshot, members)
    assert exact >= 50
    assert several >= 3
    assert larger >= 2


def test_what_a_gap_cannot_hold_is_never_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """(6, 2) once and (1, 1) four times: loads and chains need 8 s, the gap between two trains of
    the first job 7 for those of the second, so sharing the train node takes 9. Rollouts: 6 + 4 =
    10 s. So with D = 9 and 9 / 4 only the train node is shared, with 8.5 nothing."""
    monkeypatch.setattr(rate_sets, "DECIDED_SIZE", 1)
    for deadline_s, pairs in ((9.0, [(2, 1)]), (8.5, [])):
        jobs = jobs_of((6, 1), (2, 1), slo=(deadline_s / 8,) * 2)
        rows = rows_of(pool_of(rated(jobs, 4, size=2)))
        assert [nodes for members, nodes in rows if members == (0, 1)] == pairs


def test_a_refuted_pair_is_in_no_larger_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that jobs 0 and 1 never share: of four jobs that share everything, no set on fewer
    nodes than two of each kind holds both."""
    decide = GroupCost.decide

    def without(cost: GroupCost, members: tuple[int, ...], nodes: Nodes) -> Any:
        return None if members == (0, 1) and min(nodes) == 1 else decide(cost, members, nodes)

    monkeypatch.setattr(GroupCost, "decide", without)
    rows = rows_of(pool_of(rated(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), 2, size=4)))
    both = [(members, nodes) for members, nodes in rows if {0, 1} <= set(members)]
    assert both == [((0, 1, 2), (2, 2)), ((0, 1, 2, 3), (2, 2)), ((0, 1, 3), (2, 2))]
    assert ((0, 2, 3), (1, 1)) in rows


def test_a_refuted_set_is_on_no_fewer_nodes_afterwards() -> None:
    """Four jobs that share everything, refuted on (3, 1): one node more is refuted as well, until
    four rollout nodes or two train nodes. Other sets stay."""
    pool = pool_of(rated(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), 2, size=4))
    before = rows_of(pool)
    assert ((0, 1, 2, 3), (1, 1)) in before
    assert pool.refute((0, 1, 2, 3), (3, 1)) >= 3  # on one, two and three rollout nodes
    after = rows_of(pool)
    pairs = [nodes for members, nodes in after if len(members) == 4]
    assert pareto(pairs) == [(1, 2), (4, 1)]
    assert [row for row in after if len(row[0]) < 4] == [row for row in before if len(row[0]) < 4]


# --- limits -------------------------------------------------------------------------------------


def test_too_many_sets_are_refused() -> None:
    snapshot = rated(jobs_of((1,) * 5, (1,) * 5, deadline_s=20), 2, size=5)
    assert len(pool_of(snapshot, max_groups=31)) == 31
    with pytest.raises(UnsupportedError, match=r"^Expected at most 30 candidate groups"):
        pool_of(snapshot, max_groups=30)


def test_the_sets_end_when_the_time_does() -> None:
    snapshot = Snapshot(table=production(n_jobs=8, seed=0), limits=Limits(max_rate=2))
    with pytest.raises(OutOfTimeError):
        pool_of(snapshot, time_limit_s=1e-9)


def test_jobs_may_come_in_any_order() -> None:
    """Sets by job id, and their nodes, are the same."""
    jobs = list(production(n_jobs=9, seed=4))
    found = []
    for order in range(3):
        random.Random(order).shuffle(jobs)
        rows = rows_of(pool_of(Snapshot.of(jobs, limits=Limits(max_rate=3))))
        found.append(
            {(frozenset(jobs[i].job_id for i in members), nodes) for members, nodes in rows}
        )
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 60
