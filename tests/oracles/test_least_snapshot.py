"""The snapshot oracle: facts about groups and limits, each derived by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from builders import cluster_of
from instances.hardware import DEFAULT_CLUSTER
from instances.plan import Limits
from oracles.least_snapshot import (
    Least,
    group_feasible,
    group_front,
    least_snapshot,
)
from small_snapshots import FIVE_FRONT, PRECEDENCE, jobs_of

CLUSTER = DEFAULT_CLUSTER  # 2,000 GB a node, 8 x $1.85 = $14.80/h and 8 x $5.28 = $42.24/h
NO_LIMIT = Limits(max_group_size=0)


def usd(rollout_nodes: int, train_nodes: int) -> Any:
    """What so many nodes cost, $/h."""
    return pytest.approx(14.80 * rollout_nodes + 42.24 * train_nodes)


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
    dear = least_snapshot(PRECEDENCE, cluster_of(rollout_usd=40.0, train_usd=8.0), NO_LIMIT)
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
    assert group_feasible(FIVE_FRONT, CLUSTER, 2, 3)
    assert group_feasible(FIVE_FRONT, CLUSTER, 3, 2)
    assert not group_feasible(FIVE_FRONT, CLUSTER, 2, 2)
    assert group_front(FIVE_FRONT, CLUSTER, NO_LIMIT) == [(2, 3), (3, 2)]


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
    where those of the known example have node loads of 31. Trains 21, and s = 0."""
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
