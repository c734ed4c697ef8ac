"""The cost of one set of jobs as one group, against the oracle and by hand."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest

from builders import ROLLOUT_USD, TRAIN_USD, cluster_of
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job
from models.group import group_cost
from models.group.group_cost import GroupCost, Nodes
from models.problem.snapshot import PlacedGroup, Snapshot, plan_of
from oracles.least_snapshot import all_kinds, group_feasible, pinnings
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    five_gangs,
    full_jobs,
    gangs_that_all_meet,
    jobs_of,
    oracle_front,
    random_snapshot,
    snapshot_of,
)


def everyone(snapshot: Snapshot) -> tuple[int, ...]:
    return tuple(range(len(snapshot)))


def subsets(n: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, n + 1):
        yield from combinations(range(n), size)


def front_of(
    jobs: Sequence[Job], nodes: tuple[int | None, int | None] = (None, None)
) -> list[Nodes]:
    """Return the front of all the jobs as one group; each group is checked."""
    snapshot = snapshot_of(jobs, nodes=nodes)
    found = GroupCost(snapshot).front(everyone(snapshot))
    for group in found:
        assert_valid(snapshot, group)
    return [group.nodes for group in found]


def assert_valid(snapshot: Snapshot, group: PlacedGroup) -> None:
    """The checker accepts the group as the plan of its own jobs."""
    alone = Snapshot(
        table=snapshot.table.take(group.members), cluster=snapshot.cluster, limits=snapshot.limits
    )
    plan_of(alone, [dataclasses.replace(group, members=everyone(alone))], "test")


# --- facts of FORMULATION section 4, derived beside the oracle's own tests ----------------------


def test_loads_admit_the_precedence_group_and_it_costs_one_node_more() -> None:
    """On (1, 1) both loads are the deadline, 11 s, and the least period is 11.5 s."""
    snapshot = snapshot_of(PRECEDENCE)
    cost = GroupCost(snapshot)
    assert cost.least_nodes((0, 1, 2)) == (1, 1)
    assert cost.decide((0, 1, 2), (1, 1)) is None
    assert cost.counts == {"cpsat_infeasible": 1}
    assert [group.nodes for group in cost.front((0, 1, 2))] == [(1, 2), (2, 1)]
    relaxed = [dataclasses.replace(job, slo=11.5 / job.solo_s) for job in PRECEDENCE]
    assert front_of(relaxed) == [(1, 1)]


def test_neither_pools_least_nodes_need_go_with_the_others() -> None:
    """Loads admit (2, 2); rollouts on two nodes need three train nodes, and the reverse."""
    cost = GroupCost(snapshot_of(FIVE_FRONT))
    assert cost.least_nodes((0, 1, 2, 3, 4)) == (2, 2)
    assert front_of(FIVE_FRONT) == [(2, 3), (3, 2)]


@pytest.mark.parametrize(("deadline_s", "front"), [(33, []), (33.5, []), (34, [(3, 1)])])
def test_gangs_that_all_meet_on_three_nodes_take_turns(
    deadline_s: float, front: list[Nodes]
) -> None:
    """Widths 3, 2, 3, 2, 2: on three nodes any two meet, so the rollouts take 34 s in turn. Trains
    take 21 s on one node, s = 0, so only each job's own two phases matter: open shop, 34 s."""
    jobs = gangs_that_all_meet(deadline_s)
    assert front_of(jobs, nodes=(3, None)) == front


def test_a_fourth_node_lets_two_gangs_run_at_once() -> None:
    """Jobs of 3 and 9 s and two nodes each side by side save 3 s: 31 s <= 33."""
    assert front_of(gangs_that_all_meet(33)) == [(4, 1)]


@pytest.mark.parametrize(
    ("deadline_s", "front"), [(2, []), (2.25, []), (2.375, []), (2.5, [(5, 1)])]
)
def test_five_gangs_of_two_on_five_nodes_choose_the_five_cycle(
    deadline_s: float, front: list[Nodes]
) -> None:
    """Below 3 s a node holds at most two rollouts of 1 s, so ten pins on five nodes are two on
    each: with nodes as vertices and jobs as edges, cycles. Three and two: a triangle meets
    pairwise, 3 s. Five: of the five arcs no three are disjoint, 5 / 2 = 2.5 s, and starts 0, 1,
    2, 0.5, 1.5 around the cycle reach it; trains of 0.25 s follow each rollout on one node. Four
    nodes have one with three. So 2.5 s is the least whatever the pinning."""
    assert front_of(five_gangs(deadline_s), nodes=(5, None)) == front


def test_a_sixth_node_lets_five_gangs_meet_two_seconds_and_three_seconds_need_four() -> None:
    """Six nodes: a path, alternately [0, 1) and [1, 2). Within 3 s three jobs may meet on a node:
    four nodes do (pins 3, 3, 2, 2); on three any two meet, 5 s."""
    assert front_of(five_gangs(2)) == [(6, 1)]
    assert front_of(five_gangs(3)) == [(4, 1)]


def test_dram_decides_where_seconds_do_not() -> None:
    """1200 + 800 and 1100 + 900 GB fill two nodes of 2000 GB; a GB more needs a third."""
    states = (1200, 1100, 800, 900)
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=8, rollout_state_gb=states)
    assert front_of(jobs) == [(2, 1)]
    jobs[2] = dataclasses.replace(jobs[2], rollout_state_gb=801)
    assert front_of(jobs) == [(3, 1)]


def test_each_pool_has_its_own_dram() -> None:
    """Two jobs of 800 GB in each pool: rollout nodes hold 2000 GB, train nodes 1000 GB."""
    small = dataclasses.replace(DEFAULT_CLUSTER.train, host_dram_gb=1000.0)
    both = (800, 800)
    jobs = jobs_of((1, 1), (1, 1), deadline_s=8, rollout_state_gb=both, train_state_gb=both)
    snapshot = snapshot_of(jobs, cluster=DEFAULT_CLUSTER.replace(train=small))
    cost = GroupCost(snapshot)
    assert [group.nodes for group in cost.front((0, 1))] == [(1, 2)]
    assert cost.decide((0, 1), (1, 1)) is None


@pytest.mark.parametrize(
    ("rollout_switch_s", "train_switch_s", "front"),
    [(1, 0, [(2, 1)]), (0, 1, [(1, 2)]), (0, 0, [(1, 1)])],
)
def test_each_pool_has_its_own_switches(
    rollout_switch_s: float, train_switch_s: float, front: list[Nodes]
) -> None:
    """Two jobs (2, 2) within T = 4 s fill one node each way; a switch is too much in its pool."""
    jobs = jobs_of(
        (2, 2),
        (2, 2),
        rollout_switch_s=(rollout_switch_s,) * 2,
        train_switch_s=(train_switch_s,) * 2,
    )
    assert front_of(jobs) == front


@pytest.mark.parametrize(("switch_s", "front"), [(0.5, [(1, 1)]), (1, [(1, 2), (2, 1)]), (3, [])])
def test_a_switch_lengthens_chain_and_load_of_a_shared_node_only(
    switch_s: float, front: list[Nodes]
) -> None:
    """Two jobs (2, 2), sync 1, within 6 s, equal switches: one shared pool takes 5 + w <= 6, both
    5 + 2 w <= 6; loads 4 + 2 w <= 6. With w = 3 nothing can be shared: (2, 2), which is the
    front of two groups as one."""
    jobs = jobs_of((2, 2), (2, 2), (1, 1), deadline_s=6, rollout_switch_s=(switch_s,) * 2,
                   train_switch_s=(switch_s,) * 2)  # fmt: skip
    assert front_of(jobs) == (front or [(2, 2)])


def test_a_job_longer_than_anothers_deadline_is_in_no_group_with_it() -> None:
    """T = 4 and D = 4 beside T = 4.5: nothing is searched. T = 4 is just admitted."""
    cost = GroupCost(snapshot_of(jobs_of((2, 2.5, 1), (2, 2, 3))))
    assert cost.rate_vectors((0, 1)) == []
    assert cost.least_nodes((0, 1)) is None
    assert cost.front((0, 1)) == ()
    assert cost.decide((0, 1), (2, 2)) is None
    assert cost.cheapest((0, 1), 1e9) is None
    assert cost.rate_vectors((0, 2)) == [(4, (1, 1))]
    assert cost.front((0, 2)) != ()


@pytest.mark.parametrize("size", [1, 2, 3, 0])
def test_a_group_has_no_more_jobs_than_its_limit(size: int) -> None:
    """Whichever way it is asked for: these jobs share one node of each kind."""
    cost = GroupCost(snapshot_of(jobs_of((1,) * 3, (1,) * 3, deadline_s=6), size=size))
    for members in subsets(3):
        allowed = size == 0 or len(members) <= size
        assert bool(cost.front(members)) is allowed
        assert (cost.least_nodes(members) == (1, 1)) is allowed
        assert (cost.decide(members, (1, 1)) is not None) is allowed
        assert (cost.cheapest(members, 1e9) is not None) is allowed


@pytest.mark.parametrize(
    ("states_gb", "nodes", "front"),
    [
        ((2000, 2000), (None, None), [(2, 3)]),
        ((2000, 2000), (2, 3), [(2, 3)]),
        ((2000, 2000), (1, None), []),
        ((2000, 2000), (None, 2), []),
        ((2001, 0), (None, None), []),
        ((0, 2001), (None, None), []),
    ],
)
def test_a_job_alone_takes_its_widths_or_is_impossible(
    states_gb: tuple[float, float], nodes: tuple[int | None, int | None], front: list[Nodes]
) -> None:
    jobs = jobs_of(
        (1,),
        (1,),
        rollout_nodes=(2,),
        train_nodes=(3,),
        rollout_state_gb=states_gb[:1],
        train_state_gb=states_gb[1:],
    )
    snapshot = snapshot_of(jobs, nodes=nodes)
    cost = GroupCost(snapshot)
    assert [group.nodes for group in cost.front((0,))] == front
    assert (cost.decide((0,), (2, 3)) is None) == (not front)
    assert cost.decide((0,), (1, 3)) is None
    assert cost.decide((0,), (2, 2)) is None


# --- how many nodes are worth having ------------------------------------------------------------


def test_more_nodes_than_pins_or_than_a_limit_are_not_worth_having() -> None:
    jobs = jobs_of((1, 1), (1, 1), deadline_s=9, rollout_nodes=(2, 1), train_nodes=(1, 3))
    assert GroupCost(snapshot_of(jobs)).most_nodes((0, 1)) == (3, 4)
    assert GroupCost(snapshot_of(jobs, nodes=(2, 3))).most_nodes((0, 1)) == (2, 3)
    assert GroupCost(snapshot_of(jobs, nodes=(9, 9))).most_nodes((0, 1)) == (3, 4)
    cost = GroupCost(snapshot_of(jobs))
    assert cost.decide((0, 1), (50, 60)) is cost.decide((0, 1), (3, 4))


@pytest.mark.parametrize(
    ("rollout", "train"),
    [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1, 1), (1, 1, 1)), ((2, 1, 1), (1, 2, 1))],
)
def test_the_most_nodes_of_a_connected_group_are_reached_and_never_passed(
    rollout: tuple[int, ...], train: tuple[int, ...]
) -> None:
    """All pinnings of both pools, the connected among them by repeated merging."""
    n = len(rollout)
    jobs = jobs_of((1,) * n, (1,) * n, rollout_nodes=rollout, train_nodes=train)
    every = [
        [p for k in range(1, sum(widths) + 1) for p in pinnings(widths, k, all_kinds(n))]
        for widths in (rollout, train)
    ]
    most = 0
    for r, t in product(*every):
        blocks = [{j} for j in range(n)]
        for node in (*r, *t):
            joined = [block for block in blocks if block & set(node)]
            blocks = [block for block in blocks if not block & set(node)]
            blocks.append(set().union(*joined))
        if len(blocks) == 1:
            most = max(most, len(r) + len(t))
    cost = GroupCost(snapshot_of(jobs))
    assert cost.connected_nodes(tuple(range(n))) == most


# --- against the oracle -------------------------------------------------------------------------


def cases(seed: int, count: int) -> Iterator[Snapshot]:
    """Three or four jobs by turns: any mix, any mix with limits, full nodes."""
    rng = random.Random(seed)
    mixes = list(MIXES.values())
    for i in range(count):
        n = rng.choice((3, 4))
        if i % 3 < 2:
            yield random_snapshot(rng, n, mixes[i // 3 % len(mixes)], limited=i % 3 > 0)
        else:
            yield snapshot_of(
                full_jobs(rng, n, rng.choice(((1, 1), (2, 1)) if n > 3 else ((1, 1),)))
            )


def test_fronts_are_those_of_the_oracle_and_every_group_is_valid() -> None:
    """All subsets of random snapshots. Each step but CP-SAT's yes (next test) answers often."""
    counts: Counter[str] = Counter()
    points = wide = 0
    for snapshot in cases(1, 45):
        cost = GroupCost(snapshot)
        for members in subsets(len(snapshot)):
            found = cost.front(members)
            assert [group.nodes for group in found] == oracle_front(snapshot, members), snapshot
            for group in found:
                assert group.members == members
                assert_valid(snapshot, group)
            if len(members) > 1:
                points += len(found)
                wide += len(found) > 1
        counts += cost.counts
    assert points >= 200
    assert wide >= 10
    assert min(counts[how] for how in ("loads", "constructed", "cpsat_infeasible")) >= 5, counts


def test_every_pair_of_node_counts_is_decided_as_the_oracle_does() -> None:
    """Also pairs off the front, below a width, and beyond the limits (capped there)."""
    decided: Counter[bool] = Counter()
    for snapshot in cases(2, 15):
        cost, members = GroupCost(snapshot), everyone(snapshot)
        most = cost.most_nodes(members)
        for nodes in product(range(1, most[0] + 2), range(1, most[1] + 2)):
            capped = min(nodes[0], most[0]), min(nodes[1], most[1])
            expected = cost.within_size(members) and group_feasible(
                snapshot.jobs, snapshot.cluster, *capped
            )
            found = cost.decide(members, nodes)
            assert (found is not None) is expected, (snapshot, nodes)
            if found is not None:
                assert found.nodes[0] <= nodes[0]
                assert found.nodes[1] <= nodes[1]
            decided[expected] += 1
    assert min(decided[True], decided[False]) >= 50


@pytest.mark.parametrize(("pool_pinnings", "pairs"), [(1, 1), (1, 256), (2, 3), (64, 1)])
def test_a_list_of_pinnings_cut_short_never_rules_a_group_out(
    pool_pinnings: int, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What construction does not get to see, CP-SAT decides: equal fronts, other counts."""
    whole, cut = Counter[str](), Counter[str]()
    for snapshot in cases(3, 30):
        members = everyone(snapshot)
        cost = GroupCost(snapshot)
        expected = [group.nodes for group in cost.front(members)]
        whole += cost.counts
        with monkeypatch.context() as patch:
            patch.setattr(group_cost, "_POOL_PINNINGS", pool_pinnings)
            patch.setattr(group_cost, "_PAIRS", pairs)
            cost = GroupCost(snapshot)
            found = cost.front(members)
            assert [group.nodes for group in found] == expected, snapshot
            for group in found:
                assert_valid(snapshot, group)
            cut += cost.counts
    assert cut["cpsat_feasible"] > whole["cpsat_feasible"]
    assert cut["constructed"] < whole["constructed"]


# --- the cheapest -------------------------------------------------------------------------------


@pytest.mark.parametrize("prices", [(ROLLOUT_USD, TRAIN_USD), (8.0, 8.0), (40.0, 8.0)])
def test_the_cheapest_group_is_the_cheapest_point_of_the_front(
    prices: tuple[float, float],
) -> None:
    """Below every price around it, and with every limit on both pools together."""
    found_some = refused = 0
    cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
    for plain in cases(4, 24):
        snapshot = dataclasses.replace(plain, cluster=cluster)
        cost, members = GroupCost(snapshot), everyone(snapshot)
        front = [group.nodes for group in cost.front(members)]
        for together in (None, *range(2, sum(cost.most_nodes(members)) + 1)):
            points = [nodes for nodes in front if together is None or sum(nodes) <= together]
            least = min((snapshot.usd_per_hour(*nodes) for nodes in points), default=None)
            for below in (1e9, least, least and least + 1e-6, least and least - 1e-6):
                if below is None:
                    continue
                found = GroupCost(snapshot).cheapest(members, below, together)
                if least is None or below <= least:
                    assert found is None
                    refused += 1
                else:
                    assert found is not None
                    assert found.nodes in points
                    assert snapshot.usd_per_hour(*found.nodes) == pytest.approx(least, abs=1e-9)
                    assert_valid(snapshot, found)
                    found_some += 1
    assert min(found_some, refused) >= 50


def test_a_group_as_dear_as_what_it_must_be_below_is_not_cheaper() -> None:
    """Equal prices summed in another order differ by round-off: within the slack they are equal."""
    cost = GroupCost(snapshot_of(jobs_of((1, 1), (1, 1), deadline_s=4)))
    usd = cost.snapshot.usd_per_hour(1, 1)
    assert cost.cheapest((0, 1), usd) is None
    assert cost.cheapest((0, 1), usd * (1 + 1e-10 / 2)) is None
    found = cost.cheapest((0, 1), usd * (1 + 2e-10))
    assert found is not None
    assert found.nodes == (1, 1)


def test_pairs_are_decided_by_rising_price_and_no_further_than_the_first_found() -> None:
    """The precedence group at equal prices: (1, 1) fails by CP-SAT, then (1, 2) is found."""
    cluster = cluster_of(rollout_usd=8.0, train_usd=8.0)
    cost = GroupCost(snapshot_of(PRECEDENCE, cluster=cluster))
    found = cost.cheapest((0, 1, 2), 1e9)
    assert found is not None
    assert found.nodes == (1, 2)
    assert cost.counts == {"cpsat_infeasible": 1, "constructed": 1}


# --- the cache ----------------------------------------------------------------------------------


def test_what_was_decided_is_not_decided_again() -> None:
    cost = GroupCost(snapshot_of(PRECEDENCE))
    first = cost.front((0, 1, 2))
    counts = Counter(cost.counts)
    assert counts == {"constructed": 3, "cpsat_infeasible": 1}
    again = cost.front((0, 1, 2))
    assert all(a is b for a, b in zip(first, again, strict=True))
    assert cost.decide((0, 1, 2), (1, 1)) is None
    cost.cheapest((0, 1, 2), 1e9)
    assert cost.counts == counts
    cost.decide((0, 1), (1, 1))
    assert cost.counts.total() == counts.total() + 1


def test_equal_snapshots_and_seeds_give_equal_groups() -> None:
    for snapshot in cases(5, 12):
        members = everyone(snapshot)
        assert GroupCost(snapshot, seed=3).front(members) == GroupCost(snapshot, seed=3).front(
            members
        )


# --- fewer jobs ---------------------------------------------------------------------------------


def test_a_group_without_some_of_its_jobs_is_still_valid() -> None:
    """What heredity rests on: deadlines, DRAM, gangs and starts stay, switches only go."""
    dropped = 0
    for snapshot in cases(6, 24):
        for group in GroupCost(snapshot).front(everyone(snapshot)):
            for gone in subsets(len(snapshot)):
                left = group.without(gone)
                if left is None:
                    assert gone == everyone(snapshot)
                    continue
                assert left.members == tuple(i for i in group.members if i not in gone)
                assert_valid(snapshot, left)
                dropped += 1
    assert dropped >= 150
