"""The snapshot oracle: facts of design.md section 3 derived by hand, the oracle against a second
enumeration of whole plans, and its answers against the independent checker."""

import dataclasses
import math
import random
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from instances.checker import check_plan
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.plan import SNAPSHOT_HOURS, GroupVersion, JobPlacement, Limits, Plan
from oracles.least_period import least_period_brute
from oracles.least_snapshot import (
    Least,
    all_kinds,
    group_feasible,
    group_front,
    least_snapshot,
    partitions,
    pinnings,
)

CLUSTER = DEFAULT_CLUSTER  # 2,000 GB a node, 8 x $1.85 = $14.80/h and 8 x $5.28 = $42.24/h
NO_LIMIT = Limits(max_group_size=0)


def usd(rollout_nodes: int, train_nodes: int) -> Any:
    """What so many nodes cost, $/h."""
    return pytest.approx(14.80 * rollout_nodes + 42.24 * train_nodes)


def jobs_of(
    rollout_s: Sequence[float],
    train_s: Sequence[float],
    sync_s: Sequence[float] | None = None,
    *,
    deadline_s: float | None = None,
    **columns: Sequence[Any],
) -> list[Job]:
    """Jobs from columns; a common deadline sets slo = deadline / T."""
    n = len(rollout_s)
    sync_s = [0.0] * n if sync_s is None else sync_s
    jobs = []
    for j, (r, t, s) in enumerate(zip(rollout_s, train_s, sync_s, strict=True)):
        slo = 1.0 if deadline_s is None else deadline_s / (r + t + s)
        more = {"slo": slo, **{name: values[j] for name, values in columns.items()}}
        jobs.append(Job(job_id=f"j{j}", rollout_s=r, train_s=t, sync_s=s, **more))
    return jobs


def cluster_of(dram_gb: float = 2000.0, prices: tuple[float, float] = (1.85, 5.28)) -> Cluster:
    """The default cluster with other DRAM (both pools) or GPU prices."""
    pools = [
        dataclasses.replace(
            pool, host_dram_gb=dram_gb, gpu=dataclasses.replace(pool.gpu, usd_per_gpu_hour=price)
        )
        for pool, price in zip((CLUSTER.rollout, CLUSTER.train), prices, strict=True)
    ]
    return CLUSTER.replace(rollout=pools[0], train=pools[1])


def random_jobs(rng: random.Random, n: int, *, gang: bool = True) -> list[Job]:
    """Jobs of few distinct values: ties, exact deadlines, full DRAM, switches, sync, gangs."""
    choices: dict[str, tuple[Any, ...]] = {
        "rollout_s": tuple(range(1, 7)),
        "train_s": tuple(range(1, 7)),
        "sync_s": (0.0, 0.0, 1.0, 3.0),
        "slo": (1.0, 1.25, 1.5, 2.0, 3.0),
        "rollout_nodes": (1, 1, 2) if gang else (1,),
        "train_nodes": (1, 1, 1, 2) if gang else (1,),
        "rollout_state_gb": (0.0, 500.0, 1000.0, 1500.0),
        "train_state_gb": (0.0, 500.0, 1000.0, 1500.0),
        "rollout_switch_s": (0.0, 0.0, 0.5),
        "train_switch_s": (0.0, 0.0, 0.5),
    }
    return [
        Job(job_id=f"j{j}", **{name: rng.choice(values) for name, values in choices.items()})
        for j in range(n)
    ]


PRECEDENCE = jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=11)
FRONT = jobs_of((4, 1, 3, 1, 3), (1, 4, 1, 4, 2), (1, 1, 2, 0, 1), deadline_s=6)


# --- facts of section 3, by hand ---------------------------------------------------------------


def test_loads_admit_the_precedence_group_and_no_schedule_exists() -> None:
    """On one node of each kind both loads are 11 = C, so no node is ever idle. Job 1 takes 11 s:
    say rollout [0, 5), train [5, 8). The trains of 0 (2 s) and 2 (6 s) then fill [8, 16) and start
    at 8 and 10, or at 14 and 8: that of job 0 starts at 8 or 14, mod 11 at 8 or 3. Its rollout
    fills [5, 10) or [6, 11), so its train may start in [10, 12] or [11, 13] only.
    """
    assert not group_feasible(PRECEDENCE, CLUSTER, 1, 1)


def test_front_of_the_precedence_group() -> None:
    """(2, 1): trains 1, 2, 0 at 5, 8, 14; rollouts 1 and 2 at 0 and 5 on one node; that of job 0
    at 7 on the other: ends 12 <= 14, and 14 + 2 + 2 = 18 = 7 + 11. (1, 2): rollouts 1, 0, 2 at 0,
    5, 10; trains 1 and 0 at 5 and 10 on one node (0: 10 + 2 + 2 <= 5 + 11), 2 at 11 on the other.
    """
    assert group_front(PRECEDENCE, CLUSTER, NO_LIMIT) == [(1, 2), (2, 1)]


def test_precedence_costs_one_rollout_node() -> None:
    """Loads alone allow (1, 1). Any split has at least two nodes of each kind, so (2, 1) is best,
    and (1, 2) where a rollout node costs more than a train node."""
    answer = least_snapshot(PRECEDENCE, CLUSTER, NO_LIMIT)
    assert answer.usd_per_hour == usd(2, 1)
    assert [group.members for group in answer.groups] == [(0, 1, 2)]
    dear = least_snapshot(PRECEDENCE, cluster_of(prices=(5.0, 1.0)), NO_LIMIT)
    assert dear.usd_per_hour == pytest.approx(8 * (5 + 2 * 1))


def test_front_of_five_jobs_with_deadline_6() -> None:
    """Rollouts and trains sum to 12, so fewer than two nodes of a kind never do.

    (2, 2): all nodes are always busy; jobs 0, 1, 2, 4 have T = 6 and so fixed offsets; only the
    train of job 3 may start 1 or 2 s after its rollout starts. Rollout nodes: {0, 1, 3}, {2, 4}.
    Let 0 roll [0, 4), and 1 at b = 4 or 5 with 3 at the other, and 2 at c with 4 at c + 3. Trains
    mod 6: 0 [4, 5), 1 [b + 1, b + 5), 2 [c + 3, c + 4), 4 [c, c + 2). Train nodes, each of load 6:
    * {3, 4}, {0, 1, 2}, b = 4: 2 must fill [3, 4), c = 0, 4 has [0, 2) and 3, rolling [5, 6),
      needs [2, 6), but may start in [0, 1] only.
    * the same, b = 5: 2 must fill [5, 6), c = 2, 4 has [2, 4) and 3, rolling [4, 5), needs
      [4, 8), but may start in [5, 6] only.
    * {1, 4}, {0, 2, 3}, b = 4: 4 must fill [3, 5), c = 3, 2 has [0, 1), 0 has [4, 5): no gap of 4.
    * the same, b = 5: 4 must fill [4, 6), c = 4, 2 has [1, 2), 0 has [4, 5): no gap of 4.
    (2, 3): in the first case give 3 the third train node, at 6. (3, 2): 0 rolls [0, 4), 1 [4, 5),
    3 [5, 6) on one node, 2 [2, 5) and 4 [0, 3) on two more; trains 1 [5, 9), 4 [3, 5) on one node,
    0 [4, 5), 2 [5, 6), 3 [6, 10) on the other.
    """
    assert group_feasible(FRONT, CLUSTER, 2, 3)
    assert group_feasible(FRONT, CLUSTER, 3, 2)
    assert not group_feasible(FRONT, CLUSTER, 2, 2)
    assert group_front(FRONT, CLUSTER, NO_LIMIT) == [(2, 3), (3, 2)]


def test_open_shop_pair() -> None:
    """(5, 1), (1, 5), s = 0: loads and T are 6; rollouts at 0, 5 and trains at 5, 6 reach it.
    (4, 2), (3, 3) within 6.5: the rollouts take 7 s, so two rollout nodes; the trains take 5 s, and
    with rollouts at will they go one after the other."""
    assert group_front(jobs_of((5, 1), (1, 5)), CLUSTER, NO_LIMIT) == [(1, 1)]
    jobs = jobs_of((4, 3), (2, 3), deadline_s=6.5)
    assert group_front(jobs, CLUSTER, NO_LIMIT) == [(2, 1)]
    assert least_snapshot(jobs, CLUSTER, NO_LIMIT).usd_per_hour == usd(2, 1)


def test_open_shop_groups_reach_their_bound() -> None:
    """Gonzalez & Sahni (1976): with s = 0, one node of each kind does iff the deadline is at
    least max(sum r, sum t, max T)."""
    rng = random.Random(1976)
    outcomes = []
    for i in range(40):
        r, t = ([rng.randint(1, 9) for _ in range(2 + i % 3)] for _ in range(2))
        solo = max(map(sum, zip(r, t, strict=True)))
        bound = max(sum(r), sum(t), solo)
        deadline = max(solo, bound - i % 2)
        fits = group_feasible(jobs_of(r, t, deadline_s=deadline), CLUSTER, 1, 1)
        assert fits is (deadline >= bound)
        outcomes.append(fits)
    assert min(outcomes.count(True), outcomes.count(False)) >= 10


@pytest.mark.parametrize(
    ("states_gb", "front"),
    [((1000, 1000), [(1, 1)]), ((1000, 1001), [(2, 1)]), ((2001, 0), [])],
)
def test_rollout_states_share_a_node_up_to_its_dram(
    states_gb: tuple[float, float], front: list[tuple[int, int]]
) -> None:
    """2,000 GB a node: exactly full fits, one GB more needs a second node, and a state above
    2,000 GB fits nowhere. Loads are 2 of 4 s."""
    jobs = jobs_of((1, 1), (1, 1), deadline_s=4, rollout_state_gb=states_gb)
    assert group_front(jobs, CLUSTER, NO_LIMIT) == front
    alone = least_snapshot(jobs, CLUSTER, NO_LIMIT).usd_per_hour
    assert alone == (usd(*front[0]) if front else None)


def test_pins_are_chosen_by_dram() -> None:
    """1200 + 800 and 1100 + 900 GB fill two nodes; every other way needs three."""
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=8, rollout_state_gb=(1200, 1100, 800, 900))
    (group,) = least_snapshot(jobs, CLUSTER, NO_LIMIT).groups
    assert group.nodes == (2, 1)
    assert group.rollout_pins[0] == group.rollout_pins[2] != group.rollout_pins[1]
    assert group.rollout_pins[1] == group.rollout_pins[3]


@pytest.mark.parametrize(
    ("switch_s", "deadline_s", "front"),
    [(0.5, 5, [(1, 1)]), (0.6, 5, [(2, 1)]), (0.1, 4, [(2, 1)]), (0, 4, [(1, 1)])],
)
def test_rollout_switch_is_paid_on_a_shared_node_only(
    switch_s: float, deadline_s: float, front: list[tuple[int, int]]
) -> None:
    """Two jobs (2, 2). Sharing the rollout node takes 2 (2 + w) <= D and, as D leaves out the
    switch, 2 + w + 2 <= D: w = 0.5 just fits D = 5, and at D = T = 4 no switch does."""
    jobs = jobs_of((2, 2), (2, 2), deadline_s=deadline_s, rollout_switch_s=(switch_s,) * 2)
    assert group_front(jobs, CLUSTER, NO_LIMIT) == front


def test_a_job_alone_pays_no_switch() -> None:
    """(1, 1), slo 1: with either switch of 5 s its phase alone would exceed D = 2."""
    solo = jobs_of((1,), (1,), rollout_switch_s=(5,), train_switch_s=(5,))
    assert group_front(solo, CLUSTER, NO_LIMIT) == [(1, 1)]


@pytest.mark.parametrize(("switch_s", "front"), [(1, [(2, 1)]), (1.5, [(3, 1)])])
def test_a_gang_pays_its_switch_when_one_of_its_nodes_is_shared(
    switch_s: float, front: list[tuple[int, int]]
) -> None:
    """Job 0 (2, 1) on two rollout nodes, job 1 (1, 1) on one, deadlines 4. On one of the two:
    job 0 takes 2 + w + 1 <= 4 iff w <= 1, and then the node 2 + w + 1 = 4 too."""
    jobs = jobs_of(
        (2, 1), (1, 1), deadline_s=4, rollout_nodes=(2, 1), rollout_switch_s=(switch_s, 0)
    )
    assert group_front(jobs, CLUSTER, NO_LIMIT) == front


def test_small_gang() -> None:
    """Rollouts of 2 s, widths 2, 1, 1, deadline 4: each of the two nodes holds the gang and one
    more job (4 s); the trains of 0.5 s share a node. One rollout node cannot hold the gang. A job
    alone uses exactly its widths."""
    jobs = jobs_of((2, 2, 2), (0.5, 0.5, 0.5), deadline_s=4, rollout_nodes=(2, 1, 1))
    assert group_front(jobs, CLUSTER, NO_LIMIT) == [(2, 1)]
    assert group_front(jobs, CLUSTER, Limits(max_rollout_nodes=1)) == []
    solo = jobs_of((1,), (1,), rollout_nodes=(2,), train_nodes=(3,))
    assert group_front(solo, CLUSTER, NO_LIMIT) == [(2, 3)]
    assert not group_feasible(solo, CLUSTER, 3, 3)  # a node without a job


def test_gangs_whose_pins_all_meet() -> None:
    """Widths 3, 2, 3, 2, 2 on three rollout nodes: any two meet, so the rollouts take turns: 34,
    where the design's pins have node loads of 31. Trains 21, and s = 0."""
    for deadline, fits in ((33, False), (34, True)):
        jobs = jobs_of(
            (5, 3, 11, 6, 9), (3, 4, 6, 5, 3), deadline_s=deadline, rollout_nodes=(3, 2, 3, 2, 2)
        )
        assert group_feasible(jobs, CLUSTER, 3, 1) is fits


def test_five_gangs_of_two_nodes() -> None:
    """Rollouts of 1 s, two nodes each, on five nodes within 2 s: 10 of 10 node-seconds are used,
    so each node has exactly two jobs. Jobs with nodes as edges then form cycles: a triangle with a
    pair, where three rollouts pairwise meet (3 s), or the 5-cycle (2.5 s). On six nodes they form
    a path: rollouts of jobs 0, 2, 4 in [0, 1), of 1, 3 in [1, 2), and trains of 0.25 s opposite.
    """
    five = {"rollout_nodes": (2,) * 5}
    jobs = jobs_of((1,) * 5, (0.25,) * 5, deadline_s=2, **five)
    assert not group_feasible(jobs, CLUSTER, 5, 1)
    assert group_feasible(jobs, CLUSTER, 6, 1)
    assert group_feasible(jobs_of((1,) * 5, (0.25,) * 5, deadline_s=2.5, **five), CLUSTER, 5, 1)


# --- limits and caps ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 0])
def test_group_size(size: int) -> None:
    """Four jobs (1, 1), deadline 8: any number share a pair of nodes, so ceil(4 / size) pairs."""
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=8)
    pairs = math.ceil(4 / (size or 4))
    answer = least_snapshot(jobs, CLUSTER, Limits(max_group_size=size))
    assert answer.usd_per_hour == usd(pairs, pairs)
    assert len(group_front(jobs, CLUSTER, Limits(max_group_size=size))) == (size in (0, 4))


def test_node_limits_of_a_group() -> None:
    """The front (1, 2), (2, 1), cut; with (1, 1) the triple is split. Jobs 1 and 2 share a pair
    (rollouts 1, 2 at 0, 5; trains at 5, 8; as in the triple), so two pairs of nodes do."""
    assert group_front(PRECEDENCE, CLUSTER, Limits(max_rollout_nodes=1)) == [(1, 2)]
    assert group_front(PRECEDENCE, CLUSTER, Limits(max_train_nodes=1)) == [(2, 1)]
    ones = Limits(max_rollout_nodes=1, max_train_nodes=1)
    assert group_front(PRECEDENCE, CLUSTER, ones) == []
    assert least_snapshot(PRECEDENCE, CLUSTER, ones).usd_per_hour == usd(2, 2)


def test_a_limit_below_a_width_leaves_no_plan() -> None:
    jobs = jobs_of((1, 1), (1, 1), rollout_nodes=(1, 2))
    assert least_snapshot(jobs, CLUSTER, Limits(max_rollout_nodes=1)) == Least(None, ())


@pytest.mark.parametrize(
    ("cap_r", "cap_t", "nodes"), [(2, 1, (2, 1)), (1, None, None), (None, 0, None)]
)
def test_fleet_cap_that_cannot_hold_the_jobs(
    cap_r: int, cap_t: int | None, nodes: tuple[int, int] | None
) -> None:
    """Two jobs (5, 1), slo 1: rollouts of 10 s do not share 6 s; trains do."""
    answer = least_snapshot(
        jobs_of((5, 5), (1, 1)),
        CLUSTER,
        NO_LIMIT,
        max_rollout_nodes_total=cap_r,
        max_train_nodes_total=cap_t,
    )
    assert answer.usd_per_hour == (nodes and usd(*nodes))


@pytest.mark.parametrize(
    ("cap_r", "cap_t", "nodes"),
    [(None, None, (2, 1)), (1, None, (1, 2)), (None, 1, (2, 1)), (1, 1, None)],
)
def test_fleet_cap_changes_the_front_point(
    cap_r: int | None, cap_t: int | None, nodes: tuple[int, int] | None
) -> None:
    """The front (1, 2), (2, 1) of the precedence group, as in its tests above."""
    answer = least_snapshot(
        PRECEDENCE, CLUSTER, NO_LIMIT, max_rollout_nodes_total=cap_r, max_train_nodes_total=cap_t
    )
    assert answer.usd_per_hour == (nodes and usd(*nodes))


@pytest.mark.parametrize(
    ("caps", "nodes"),
    [((None, None), (4, 2)), ((3, None), (3, 3)), ((2, None), (2, 4)), ((3, 2), None)],
)
def test_fleet_cap_mixes_front_points_of_two_groups(
    caps: tuple[int | None, int | None], nodes: tuple[int, int] | None
) -> None:
    """Four jobs r = t = 1, s = 2, switches 0.5, D = 4.5, groups of two. A pair that shares one
    kind of node takes 1.5 + 1 + 2 = 4.5, both kinds 5: its front is (1, 2), (2, 1). A job alone
    has (1, 1), two of them (2, 2), dominated. Two pairs have (2, 4), (3, 3) or (4, 2)."""
    half = (0.5,) * 4
    jobs = jobs_of(
        (1,) * 4, (1,) * 4, (2,) * 4, deadline_s=4.5, rollout_switch_s=half, train_switch_s=half
    )
    limits = Limits(max_group_size=2)
    assert group_front(jobs[:2], CLUSTER, limits) == [(1, 2), (2, 1)]
    answer = least_snapshot(
        jobs, CLUSTER, limits, max_rollout_nodes_total=caps[0], max_train_nodes_total=caps[1]
    )
    assert answer.usd_per_hour == (nodes and usd(*nodes))


def test_no_jobs_cost_nothing() -> None:
    assert least_snapshot([], CLUSTER, NO_LIMIT) == Least(0.0, ())


# --- the enumeration ---------------------------------------------------------------------------


def test_partitions_are_counted_by_bell_numbers() -> None:
    for n, bell in enumerate((1, 1, 2, 5, 15, 52)):
        found = list(partitions(n))
        assert len(found) == len({frozenset(blocks) for blocks in found}) == bell
        assert all(sorted(j for block in blocks for j in block) == [*range(n)] for blocks in found)


def test_pinnings_of_one_node_jobs_are_counted_by_stirling_numbers() -> None:
    """Four jobs of one node each on k alike nodes, none empty: S(4, k)."""
    counts = [sum(1 for _ in pinnings((1,) * 4, k, all_kinds(4))) for k in range(6)]
    assert counts == [0, 1, 7, 6, 1, 0]


def named_pinnings(widths: Sequence[int]) -> Iterator[tuple[frozenset[int], ...]]:
    """Every choice of nodes per job, out of as many named nodes as could be used."""
    chosen = [combinations(range(sum(widths)), width) for width in widths]
    return (tuple(map(frozenset, pins)) for pins in product(*chosen))


def nodes_of(pins: Sequence[Collection[int]]) -> tuple[tuple[int, ...], ...]:
    """The jobs on each node in use, sorted: equal for pinnings that differ in names only."""
    used = set().union(*pins)
    return tuple(sorted(tuple(j for j, p in enumerate(pins) if i in p) for i in used))


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 1), (2, 2), (3, 2, 1), (2, 2, 2)])
def test_pinnings_are_all_choices_of_nodes_up_to_names(widths: tuple[int, ...]) -> None:
    expected = sorted({nodes_of(pins) for pins in named_pinnings(widths)})
    counts = range(1, sum(widths) + 1)
    found = [p for m in counts for p in pinnings(widths, m, all_kinds(len(widths)))]
    assert sorted(tuple(sorted(pinning)) for pinning in found) == expected


# --- the oracle against other programs ---------------------------------------------------------


def components(n: int, pins: Sequence[Sequence[Collection[int]]]) -> list[list[int]]:
    """Jobs joined by shared nodes; `pins` of each pool."""
    group = list(range(n))
    for i, j in combinations(range(n), 2):
        if any(set(pool[i]) & set(pool[j]) for pool in pins):
            group = [group[i] if g == group[j] else g for g in group]
    return [[j for j in range(n) if group[j] == g] for g in sorted(set(group))]


@cache
def route_a(*data: Any) -> float:
    """Least period by the oracle's other route, over all heights by LP."""
    return least_period_brute(*data)[0]


def is_group(
    jobs: Sequence[Job], pins: Sequence[Sequence[Collection[int]]], limits: Limits
) -> bool:
    """Do these pins, of exactly these jobs, make a valid group on the default cluster?"""
    used = [set().union(*pool) for pool in pins]
    most = [len(jobs), limits.max_rollout_nodes or 99, limits.max_train_nodes or 99]
    if len(jobs) > (limits.max_group_size or most[0]):
        return False
    if len(used[0]) > most[1] or len(used[1]) > most[2]:
        return False
    states = [[getattr(job, f"{pool}_state_gb") for job in jobs] for pool in ("rollout", "train")]
    for nodes, pool, gb in zip(used, pins, states, strict=True):
        if any(sum(g for p, g in zip(pool, gb, strict=True) if i in p) > 2000 for i in nodes):
            return False
    columns = zip(
        *((x.rollout_s, x.train_s, x.sync_s, x.rollout_switch_s, x.train_switch_s) for x in jobs),
        strict=True,
    )
    r, t, s, r_switch, t_switch = columns
    for rates in product(range(1, limits.max_rate + 1), repeat=len(jobs)):
        most_s = min(k * job.deadline_s for k, job in zip(rates, jobs, strict=True))
        period = route_a(r, t, s, tuple(pins[0]), tuple(pins[1]), rates, r_switch, t_switch)
        if period <= most_s * (1 + 1e-9):
            return True
    return False


def least_by_components(
    jobs: Sequence[Job], limits: Limits, caps: tuple[float, float]
) -> tuple[int, int] | None:
    """Nodes of the cheapest plan, without partitions, fronts, checks or the MILP.

    All jobs are pinned to one fleet; the groups are the jobs joined by shared nodes. (A group of
    two such components may be split at equal cost, and then each part keeps within the limits.)
    Pairs of pinnings are tried in order of cost; the first valid one is the cheapest.
    """
    pools = []
    for widths in ([job.rollout_nodes for job in jobs], [job.train_nodes for job in jobs]):
        pools.append(list({nodes_of(pins): pins for pins in named_pinnings(widths)}.values()))
    pairs = []
    for pins in product(*pools):
        r, t = (len(set().union(*pool)) for pool in pins)
        if r <= caps[0] and t <= caps[1]:
            pairs.append((14.80 * r + 42.24 * t, (r, t), pins))
    for _, nodes, pins in sorted(pairs, key=lambda pair: pair[0]):
        if all(
            is_group([jobs[j] for j in block], [[pool[j] for j in block] for pool in pins], limits)
            for block in components(len(jobs), pins)
        ):
            return nodes
    return None


def test_whole_plans_enumerated_otherwise_cost_the_same() -> None:
    """Three jobs, by `least_by_components`: none of the oracle's own steps are used."""
    rng = random.Random(2026)
    groups = []
    for i in range(32):
        jobs = random_jobs(rng, 3, gang=i % 4 == 0)
        limits = Limits(
            max_group_size=rng.choice((0, 0, 2)),
            max_rollout_nodes=rng.choice((None, None, 2)),
            max_train_nodes=rng.choice((None, 2)),
        )
        caps = [rng.choice((None, None, None, 2, 3)) for _ in range(2)]
        answer = least_snapshot(
            jobs, CLUSTER, limits, max_rollout_nodes_total=caps[0], max_train_nodes_total=caps[1]
        )
        nodes = least_by_components(jobs, limits, (caps[0] or math.inf, caps[1] or math.inf))
        assert answer.usd_per_hour == (nodes and usd(*nodes)), (jobs, limits, caps)
        groups.append(len(answer.groups))
    assert min(map(groups.count, range(4))) >= 2  # no plan, one group, two, three


def test_whole_plans_of_rates_enumerated_otherwise_cost_the_same() -> None:
    """As above, of two jobs, the second of which takes two to four times as long."""
    rng = random.Random(2027)
    rates: list[tuple[int, ...]] = []
    for i in range(24):
        first, second = random_jobs(rng, 2, gang=i % 3 == 0)
        longer = rng.choice((2, 3, 4))
        second = dataclasses.replace(
            second, rollout_s=longer * second.rollout_s, sync_s=longer * second.sync_s
        )
        limits = Limits(max_group_size=0, max_rate=rng.choice((2, 3)))
        answer = least_snapshot([first, second], CLUSTER, limits)
        nodes = least_by_components([first, second], limits, (math.inf, math.inf))
        assert answer.usd_per_hour == (nodes and usd(*nodes)), (first, second, limits)
        rates += [group.rates for group in answer.groups]
    assert sum(len(each) == 2 and max(each) > 1 for each in rates) >= 6
    assert sum(max(each) == 1 for each in rates) >= 4


def plan_of(jobs: Sequence[Job], limits: Limits, answer: Least) -> Plan:
    """The answer as a plan of one snapshot interval."""
    assert answer.usd_per_hour is not None
    groups = [
        GroupVersion(
            group_id=f"g{number}",
            from_s=0.0,
            to_s=3600 * SNAPSHOT_HOURS,
            period_s=group.period_s,
            rollout_nodes=tuple(sorted(set().union(*group.rollout_pins))),
            train_nodes=tuple(sorted(set().union(*group.train_pins))),
            placements=tuple(
                JobPlacement(
                    job_id=jobs[j].job_id,
                    rollout_pins=group.rollout_pins[i],
                    train_pins=group.train_pins[i],
                    starts_s=group.starts_s[i],
                    rate=group.rates[i],
                )
                for i, j in enumerate(group.members)
            ),
        )
        for number, group in enumerate(answer.groups)
    ]
    return Plan(
        policy="oracle",
        durations="snapshot",
        cluster=CLUSTER,
        jobs=JobTable.from_jobs(jobs),
        limits=limits,
        groups=tuple(groups),
        usd_total=SNAPSHOT_HOURS * answer.usd_per_hour,
    )


def test_the_checker_accepts_every_answer_at_its_cost() -> None:
    """Four jobs; a job alone always fits here, so there is always a plan."""
    rng = random.Random(7)
    shared = 0
    for _ in range(20):
        jobs = random_jobs(rng, 4)
        answer = least_snapshot(jobs, CLUSTER, NO_LIMIT)
        report = check_plan(plan_of(jobs, NO_LIMIT, answer))
        assert report.ok, report.violations
        shared += len(answer.groups) < 4
    assert shared >= 10


def test_the_checker_accepts_every_answer_of_rates_at_its_cost() -> None:
    rng = random.Random(8)
    limits = Limits(max_group_size=0, max_rate=3)
    several = 0
    for _ in range(12):
        jobs = random_jobs(rng, 3)
        answer = least_snapshot(jobs, CLUSTER, limits)
        report = check_plan(plan_of(jobs, limits, answer))
        assert report.ok, report.violations
        several += any(max(group.rates) > 1 for group in answer.groups)
    assert several >= 3


def test_the_checker_accepts_the_examples() -> None:
    for jobs in (PRECEDENCE, FRONT[:4]):
        assert check_plan(plan_of(jobs, NO_LIMIT, least_snapshot(jobs, CLUSTER, NO_LIMIT))).ok


def test_checks_change_nothing() -> None:
    rng = random.Random(11)
    for i in range(10):
        jobs = random_jobs(rng, 3, gang=i % 5 == 0)
        with_checks = group_front(jobs, CLUSTER, NO_LIMIT)
        assert group_front(jobs, CLUSTER, NO_LIMIT, checks=False) == with_checks, jobs
        cost = least_snapshot(jobs, CLUSTER, NO_LIMIT).usd_per_hour
        assert least_snapshot(jobs, CLUSTER, NO_LIMIT, checks=False).usd_per_hour == cost
    assert group_front(PRECEDENCE, CLUSTER, NO_LIMIT, checks=False) == [(1, 2), (2, 1)]


def test_checks_change_nothing_with_rates() -> None:
    rng, rates = random.Random(12), Limits(max_group_size=0, max_rate=2)
    found = []
    for i in range(8):
        jobs = random_jobs(rng, 2, gang=i % 4 == 0)
        front = group_front(jobs, CLUSTER, rates)
        assert group_front(jobs, CLUSTER, rates, checks=False) == front, jobs
        found.append(front != group_front(jobs, CLUSTER, NO_LIMIT))
    assert min(found.count(True), found.count(False)) >= 1


def test_more_nodes_never_hurt_and_fewer_jobs_never_cost_more() -> None:
    """Facts that the oracle does not use: up to the sum of widths a pin can move from a shared
    node to a new one; a group without one of its jobs is valid on the nodes left."""
    rng = random.Random(5)
    points = 0
    for i in range(16):
        jobs = random_jobs(rng, 3, gang=i % 2 == 0)
        most = [sum(job.rollout_nodes for job in jobs), sum(job.train_nodes for job in jobs)]
        front = group_front(jobs, CLUSTER, NO_LIMIT)
        points += len(front)
        for r, t in product(range(1, most[0] + 1), range(1, most[1] + 1)):
            expected = any(a <= r and b <= t for a, b in front)
            assert group_feasible(jobs, CLUSTER, r, t) is expected, jobs
        for j in range(3):
            fewer = group_front([*jobs[:j], *jobs[j + 1 :]], CLUSTER, NO_LIMIT)
            assert all(any(a <= r and b <= t for a, b in fewer) for r, t in front), (jobs, j)
    assert points >= 6


# --- edges -------------------------------------------------------------------------------------


def test_a_deadline_within_the_solver_tolerance_is_not_guessed() -> None:
    """The least period of the precedence group on (1, 1) is 11.5: that deadline is met, one
    lower by a relative 1e-6 is refused, one lower by 1e-4 is not met."""

    def fits(deadline_s: float) -> bool:
        jobs = jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=deadline_s)
        return group_feasible(jobs, CLUSTER, 1, 1)

    assert fits(11.5)
    with pytest.raises(RuntimeError, match="Too close to call"):
        fits(11.5 * (1 - 1e-6))
    assert not fits(11.5 * (1 - 1e-4))


def test_what_is_outside_the_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 5 jobs"):
        group_feasible(jobs_of((1,) * 6, (1,) * 6), CLUSTER, 1, 1)
    with pytest.raises(ValueError, match="mode sync or one-step, got async"):
        least_snapshot(jobs_of((1,), (1,), mode=("async",)), CLUSTER, NO_LIMIT)
    with pytest.raises(ValueError, match="at most 4 jobs at max_rate 2"):
        group_front(jobs_of((1,) * 5, (1,) * 5), CLUSTER, Limits(max_rate=2))


def test_the_oracle_loads_neither_models_nor_planner() -> None:
    code = "import sys, oracles.least_snapshot; print(*{m.split('.')[0] for m in sys.modules})"
    tests = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "instances" in loaded
    assert not loaded & {"models", "planner"}
