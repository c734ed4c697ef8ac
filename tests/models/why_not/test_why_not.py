"""Why jobs cannot be one group: each rule by hand, each cure decided again, at random too."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count

import pytest

from builders import cluster_of
from instances.jobs import Job
from models.group.cycle_ratio import critical_cycle, least_period, order_of
from models.group.group_cost import GroupCost, Nodes
from models.group.period import construct
from models.problem.options import Deadline
from models.problem.snapshot import Snapshot
from models.why_not.conflict import Cure, Explanation, group_explanation, why_not
from oracles.least_snapshot import Block
from period_cases import FIVE_CYCLE, GANG, SYNC, Case, random_cases
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    five_gangs,
    gangs_that_all_meet,
    jobs_of,
    oracle_front,
    random_snapshot,
    snapshot_of,
)

# --- helpers ------------------------------------------------------------------------------------


def feasible(
    snapshot: Snapshot, members: Block, nodes: Nodes | None, cure: Cure | None = None
) -> bool:
    """Decide the members as one group after a change, by a cost of its own."""
    cure = Cure() if cure is None else cure
    cost = GroupCost(cure.applied(snapshot))
    size = cost.snapshot.limits.max_group_size
    if size and len(members) > size:
        return False
    most = cost.most_nodes(members)
    if nodes is not None:
        most = (max(nodes[0], cure.nodes[0] or 0), max(nodes[1], cure.nodes[1] or 0))
    return cost.decide(members, most) is not None


def lesser(cure: Cure) -> Iterator[Cure]:
    """Each number of a cure by itself a little smaller: a node, 0.02 GB, or 0.0002 of an SLO."""
    if cure.max_group_size is not None:
        yield replace(cure, max_group_size=cure.max_group_size - 1)
    for pool in (0, 1):
        nodes, gb = cure.nodes[pool], cure.dram_gb[pool]
        if nodes is not None and nodes > 1:
            yield cure.with_nodes(pool, nodes - 1)
        if gb is not None:
            yield cure.with_dram(pool, gb - 0.02)
    for i, (job_id, slo) in enumerate(cure.slo):
        if slo - 2e-4 >= 1:
            yield replace(cure, slo=(*cure.slo[:i], (job_id, slo - 2e-4), *cure.slo[i + 1 :]))


def assert_holds(snapshot: Snapshot, nodes: Nodes | None, found: Explanation, asked: Block) -> None:
    """The set named is a least one in conflict; each cure cures it, and nothing less does.

    Of jobs that cannot run alone one is named, and the cure is for all that were asked about.
    """
    members = found.members
    sets = [(i,) for i in asked] if len(members) == 1 else [members]
    assert not feasible(snapshot, members, nodes)
    for size in range(1, len(members)):
        for some in combinations(members, size):
            assert feasible(snapshot, some, nodes), some
    assert len(found.conflict.relaxations) == len(found.cures) > 0
    for cure in found.cures:
        assert cure.least
        assert all(feasible(snapshot, some, nodes, cure) for some in sets), cure
        assert list(lesser(cure))
        for less in lesser(cure):
            assert not all(feasible(snapshot, some, nodes, less) for some in sets), less


def told(
    snapshot: Snapshot, nodes: Nodes | None = None, members: Block | None = None
) -> Explanation:
    """Return the explanation of all the jobs, or of some, checked."""
    members = tuple(range(len(snapshot))) if members is None else members
    found = group_explanation(GroupCost(snapshot), members, nodes)
    assert found is not None
    assert_holds(snapshot, nodes, found, members)
    assert why_not(GroupCost(snapshot), members, nodes) == found.conflict
    assert found.conflict.job_ids == tuple(snapshot.jobs[i].job_id for i in found.members)
    return found


def ticking(limit_s: float) -> Deadline:
    """Return a deadline whose clock goes on by one second whenever it is read."""
    ticks = count()
    return Deadline(lambda: float(next(ticks)), limit_s)


# --- each rule by hand --------------------------------------------------------------------------


def test_jobs_that_can_be_one_group_have_no_conflict() -> None:
    """The precedence example fits (1, 2) and (2, 1)."""
    cost = GroupCost(snapshot_of(PRECEDENCE))
    assert why_not(cost, (0, 1, 2)) is None
    assert why_not(cost, (0, 1, 2), (1, 2)) is None
    assert why_not(cost, (0, 1, 2), (2, 1)) is None
    assert why_not(cost, (1,), (1, 1)) is None


def test_group_size() -> None:
    """Three jobs of the same kind, two allowed; deadlines of 3 T leave room for all on one node."""
    found = told(snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=8), size=3))
    assert found.conflict.rule == "max_group_size"
    assert found.conflict.message == (
        "Jobs j0, j1, j2 and j3 are 4 jobs; a group holds at most 3 (max_group_size). No fewer of "
        "the jobs are in conflict."
    )
    assert found.conflict.relaxations == ("Raise max_group_size from 3 to 4.",)


def test_group_size_and_one_thing_more() -> None:
    """4 jobs of 4 + 3 s in deadlines of 10.5 s: one train node carries 12 s.

    Two train nodes or 12 s: slo 12 / 7 = 1.71429, rounded up.
    """
    jobs = jobs_of((4,) * 4, (3,) * 4, deadline_s=10.5)
    found = told(snapshot_of(jobs, size=3, nodes=(None, 1)))
    assert found.cures == (
        Cure(max_group_size=4, nodes=(None, 2)),
        Cure(max_group_size=4, slo=tuple((f"j{j}", 1.7143) for j in range(4))),
    )
    assert found.conflict.relaxations[0] == (
        "Raise max_group_size from 3 to 4 and raise max_train_nodes from 1 to 2."
    )


def test_deadline_says_which_two_jobs_and_by_how_much() -> None:
    """T_0 = 20 s; D_1 = 1.5 x 10 = 15 s. Job 1 needs slo 20 / 10. Job 2 (D = 50) is not named."""
    jobs = jobs_of((10, 5, 3), (10, 5, 2), slo=(1.0, 1.5, 10.0))
    found = told(snapshot_of(jobs))
    assert found.members == (0, 1)
    assert found.conflict.rule == "slo"
    assert found.conflict.message == (
        "Job j0 takes 20 s an iteration even alone, 5 s more than the 15 s that the SLO of job j1 "
        "allows (1.5 x 10 s); in one group all iterate at one pace. So no group holds all 3 jobs "
        "asked about."
    )
    assert found.conflict.relaxations == (
        "Loosen the SLO of job j1 from 1.5 to 2. Enough for all 3 jobs.",
    )


def test_a_cure_of_the_jobs_named_need_not_cure_all() -> None:
    """As above, but job 2's deadline is 2 x 5 = 10 s: looser SLOs of job 1 do not help job 0."""
    jobs = jobs_of((10, 5, 3), (10, 5, 2), slo=(1.0, 1.5, 2.0))
    found = told(snapshot_of(jobs))
    assert found.members == (0, 1)
    assert found.conflict.relaxations == (
        "Loosen the SLO of job j1 from 1.5 to 2. Not enough for all 3 jobs.",
    )


@pytest.mark.parametrize(
    ("limit", "nodes", "relaxation"),
    [
        ((None, 2), None, "Raise max_train_nodes from 2 to 3."),
        ((None, None), (2, 2), "Use 3 train nodes instead of 2."),
        ((None, 2), (2, 5), "Raise max_train_nodes from 2 to 3."),
        ((None, 3), (2, 2), "Use 3 train nodes instead of 2."),
    ],
)
def test_gang_wider_than_its_group(
    limit: tuple[int | None, int | None], nodes: Nodes | None, relaxation: str
) -> None:
    """Job 1 trains on 3 nodes; 2 are allowed, by the limits or by the question."""
    snapshot = snapshot_of(jobs_of((1, 1), (1, 1), train_nodes=(1, 3)), nodes=limit)
    found = told(snapshot, nodes)
    assert found.members == (1,)
    assert found.conflict.rule == "gang"
    assert found.conflict.message == "Job j1 needs 3 train nodes at once; its group may hold 2."
    assert found.conflict.relaxations == (relaxation,)


def test_jobs_that_cannot_run_alone_are_all_named_and_cured_at_once() -> None:
    """Job 0 is wider than the group; job 2's state is more than a train node's 2,000 GB."""
    jobs = jobs_of((1,) * 3, (1,) * 3, rollout_nodes=(3, 1, 1), train_state_gb=(0, 0, 2500.5))
    found = told(snapshot_of(jobs), (2, 1))
    assert found.conflict.job_ids == ("j0",)
    assert found.conflict.message == (
        "Job j0 needs 3 rollout nodes at once; its group may hold 2. Nor can job j2 run even alone."
    )
    assert found.conflict.relaxations == (
        "Use 3 rollout nodes instead of 2 and give each train node 2,500.5 instead of 2,000 GB of "
        "host DRAM.",
    )


def test_state_of_one_job_above_a_node() -> None:
    found = told(snapshot_of(jobs_of((1,), (1,), rollout_state_gb=(2200,))))
    assert found.conflict.rule == "residency"
    assert found.conflict.message == (
        "Job j0 keeps 2,200 GB of state on each rollout node, 200 GB more than its host DRAM of "
        "2,000 GB."
    )
    assert found.cures == (Cure(dram_gb=(2200.0, None)),)


@pytest.mark.parametrize("pool", ["rollout", "train"])
def test_residency_on_one_node(pool: str) -> None:
    """1,500 + 700 GB on one node of 2,000 GB."""
    jobs = jobs_of((1, 1), (1, 1), deadline_s=8, **{f"{pool}_state_gb": (1500, 700)})
    found = told(snapshot_of(jobs), (1, 1))
    assert found.conflict.rule == "residency"
    assert found.conflict.message == (
        f"However jobs j0 and j1 are pinned to 1 {pool} node, some node holds at least 2,200 GB "
        "of state (at best, that of jobs j0 and j1); its host DRAM is 2,000 GB."
    )
    assert found.conflict.relaxations == (
        f"Use 2 {pool} nodes instead of 1.",
        f"Give each {pool} node 2,200 instead of 2,000 GB of host DRAM.",
    )


def test_residency_searches_all_pinnings() -> None:
    """900, 700 and 500 GB on two nodes: 900 | 1,200 is better than 1,400 | 700 and 1,600 | 500."""
    jobs = jobs_of((1,) * 3, (1,) * 3, deadline_s=8, rollout_state_gb=(900, 700, 500))
    found = told(snapshot_of(jobs, cluster=cluster_of(host_dram_gb=1000)), (2, 1))
    assert found.conflict.message == (
        "However jobs j0, j1 and j2 are pinned to 2 rollout nodes, some node holds at least 1,200 "
        "GB of state (at best, that of jobs j1 and j2); its host DRAM is 1,000 GB. No fewer of the "
        "jobs are in conflict."
    )
    assert found.cures == (Cure(nodes=(3, None)), Cure(dram_gb=(1200.0, None)))


def test_residency_of_gangs() -> None:
    """A gang keeps 600 GB on both nodes; 500 and 300 GB beside it: 1,100 | 900 at best.

    With three nodes: 600 + 300 | 600 | 500.
    """
    jobs = jobs_of(
        (1,) * 3, (1,) * 3, deadline_s=8, train_nodes=(2, 1, 1), train_state_gb=(600, 500, 300)
    )
    found = told(snapshot_of(jobs, cluster=cluster_of(host_dram_gb=1000)), (1, 2))
    assert found.members == (0, 1)  # 600 + 500 GB already, however wide the rest
    assert found.cures == (Cure(nodes=(None, 3)), Cure(dram_gb=(None, 1100.0)))
    assert found.conflict.relaxations[0].endswith("Enough for all 3 jobs.")


def test_both_pools_at_once() -> None:
    """Two jobs of 1,500 GB in both pools: one node of each, or one and two, is never enough."""
    jobs = jobs_of(
        (1, 1), (1, 1), deadline_s=8, rollout_state_gb=(1500,) * 2, train_state_gb=(1500,) * 2
    )
    found = told(snapshot_of(jobs), (1, 1))
    assert found.cures == (Cure(nodes=(2, 2)), Cure(dram_gb=(3000.0, 3000.0)))
    assert found.conflict.relaxations[0] == (
        "Use 2 rollout nodes instead of 1 and use 2 train nodes instead of 1."
    )


def test_slo_and_nodes_where_no_single_kind_is_enough() -> None:
    """1,500 GB each need two rollout nodes; T = 20 s and 10 s need slo 2. One alone is no cure."""
    jobs = jobs_of((10, 5), (10, 5), slo=(1.0, 1.0), rollout_state_gb=(1500, 1500))
    found = told(snapshot_of(jobs), (1, 1))
    assert found.conflict.rule == "slo"
    # with two rollout nodes the trains of 10 and 5 s share a node in 20 s
    assert found.cures == (Cure(nodes=(2, None), slo=(("j1", 2.0),)),)


@pytest.mark.parametrize("pool", ["rollout", "train"])
def test_load(pool: str) -> None:
    """Phases of 6, 5 and 4 s on two nodes: 6 | 9 at best, 8 s allowed. Alone jobs take 7, 6, 5 s.

    The other pool has three nodes, so 9 s are reached: slo 9 / 7, 9 / 6 and 9 / 5.
    """
    phases = (6, 5, 4), (1, 1, 1)
    nodes = (2, 3)
    if pool == "train":
        phases, nodes = phases[::-1], (3, 2)
    found = told(snapshot_of(jobs_of(*phases, deadline_s=8)), nodes)
    assert found.conflict.rule == "load"
    assert found.conflict.message == (
        f"However jobs j0, j1 and j2 are pinned to 2 {pool} nodes within host DRAM, some node "
        f"carries at least 9 s of {pool} phases an iteration (at best, those of jobs j1 and j2), "
        "more than the 8 s that the SLO of job j0 allows (1.1429 x 7 s). No fewer of the jobs are "
        "in conflict."
    )
    more = Cure().with_nodes(0 if pool == "rollout" else 1, 3)
    assert found.cures == (more, Cure(slo=(("j0", 1.2858), ("j1", 1.5), ("j2", 1.8))))


def test_load_counts_the_switches_of_a_shared_node() -> None:
    """3 + 4 s fit 8 s; with switches of 1 + 0.5 s, paid on a shared node only, it is 8.5 s."""
    jobs = jobs_of((3, 4), (1, 1), deadline_s=8, rollout_switch_s=(1, 0.5))
    found = told(snapshot_of(jobs), (1, 2))
    assert found.conflict.rule == "load"
    assert "at least 8.5 s of rollout phases" in found.conflict.message
    assert "(at best, those of jobs j0 and j1, 1.5 s of them switches)" in found.conflict.message
    assert found.cures[0] == Cure(nodes=(2, None))
    # on one node: 8.5 s of the node, chains 3 + 1 + 1 and 4 + 0.5 + 1 s
    assert found.cures[1] == Cure(slo=(("j0", 2.125), ("j1", 1.7)))


def test_load_of_a_job_alone_on_its_node_has_no_switch() -> None:
    """7 | 4 + 4.5 s: the shared node carries 8.5 s; the 3 s of job 0's switch are not paid."""
    jobs = jobs_of((7, 4, 4.5), (1, 1, 1), deadline_s=8, rollout_switch_s=(3, 0, 0))
    found = told(snapshot_of(jobs), (2, 3))
    assert "carries at least 8.5 s of rollout phases" in found.conflict.message
    assert found.cures[0] == Cure(nodes=(3, None))


def test_the_shortest_iteration_is_sought_over_all_pinnings() -> None:
    """6, 4.2, 4.1 and 4 s on two nodes: 10.2 | 8.1, 10.1 | 8.2 or 10 | 8.3. Any three fit 9 s.

    slo: 10 / 7 = 1.42857, 10 / 5.2 = 1.92308, 10 / 5.1 = 1.96078 and 10 / 5, each rounded up.
    """
    jobs = jobs_of((6, 4.2, 4.1, 4), (1, 1, 1, 1), deadline_s=9)
    found = told(snapshot_of(jobs), (2, 4))
    assert "carries at least 10 s of rollout phases" in found.conflict.message
    slo = (("j0", 1.4286), ("j1", 1.9231), ("j2", 1.9608), ("j3", 2.0))
    assert found.cures == (Cure(nodes=(3, None)), Cure(slo=slo))


def test_load_within_dram() -> None:
    """Phases 6, 5, 2 s and states 500, 1,500, 1,000 GB on two nodes of 2,000 GB, 7 s allowed.

    Only 5 + 2 s fit, but that is 2,500 GB; within DRAM 6 + 2 = 8 s is best.
    """
    jobs = jobs_of((6, 5, 2), (1, 1, 1), deadline_s=7, rollout_state_gb=(500, 1500, 1000))
    assert why_not(GroupCost(snapshot_of(jobs)), (0, 1, 2)) is None  # three nodes
    found = told(snapshot_of(jobs), (2, 3))
    assert found.conflict.rule == "load"
    assert "at least 8 s of rollout phases" in found.conflict.message
    assert Cure(dram_gb=(2500.0, None)) in found.cures
    assert Cure(nodes=(3, None)) in found.cures


def test_switch_that_a_deadline_has_no_room_for() -> None:
    """Job 0 has slo 1: its 7 s leave nothing for 0.5 s of switch; loads are 5.5 s and 6 s."""
    jobs = jobs_of((4, 2), (3, 3), slo=(1.0, 2.0), train_switch_s=(0.5, 0))
    found = told(snapshot_of(jobs), (2, 1))
    assert found.conflict.rule == "switch"
    assert found.conflict.message == (
        "Jobs j0 and j1 on 2 rollout nodes and 1 train node: a job that shares a node pays its "
        "switches in every iteration. The shortest iteration possible takes 7.5 s, 0.5 s more than "
        "the 7 s that the SLO of job j0 allows (1 x 7 s). What keeps it from being shorter: "
        "rollout of j0 (4 s) -> train of j0 (3.5 s with switch) -> rollout of j0, 7.5 s."
    )
    # 7.5 / 7 = 1.07143 rounded up; job 1 allows 10 s
    assert found.cures == (Cure(nodes=(None, 2)), Cure(slo=(("j0", 1.0715),)))


def test_gangs_that_meet_in_pairs() -> None:
    """Every two rollouts share one of three nodes: 5 + 3 + 11 + 6 + 9 = 34 s, loads only 31 s."""
    found = told(snapshot_of(gangs_that_all_meet(33), nodes=(3, None)), (3, 1))
    assert found.conflict.rule == "overlap"
    assert "phases with a node in common cannot run at once" in found.conflict.message
    assert "takes 34 s, 1 s more than the 33 s" in found.conflict.message
    assert found.conflict.message.endswith("34 s. No fewer of the jobs are in conflict.")
    assert found.conflict.relaxations[0] == "Raise max_rollout_nodes from 3 to 4."
    slo = tuple(
        (f"j{j}", math.ceil(34 / t * 1e4 - 1e-6) / 1e4) for j, t in enumerate((8, 7, 17, 11, 12))
    )
    assert found.cures[1] == Cure(slo=slo)


def test_gangs_around_a_cycle() -> None:
    """Five rollouts of 1 s on the edges of a 5-cycle take 5 / 2 s on five nodes; 2.4 s allowed."""
    found = told(snapshot_of(five_gangs(2.4)), (5, 5))
    assert found.conflict.rule == "precedence"
    assert "takes 2.5 s, 0.1 s more than the 2.4 s" in found.conflict.message
    assert "5 s in 2 iterations" in found.conflict.message
    assert found.cures[0] == Cure(nodes=(6, None))


def test_precedence_tells_the_cycle() -> None:
    """Loads and chains are 11 s; no schedule below 11.5 s = 23 s in two turns (FORMULATION 4).

    slo: 11.5 / 9 = 1.27778, 11.5 / 11 = 1.04545 and 11.5 / 7 = 1.64286, each rounded up.
    """
    found = told(snapshot_of(PRECEDENCE), (1, 1))
    assert found.conflict.rule == "precedence"
    assert found.conflict.message == (
        "Jobs j0, j1 and j2 on 1 rollout node and 1 train node: each node has time for its phases "
        "and each job for its iteration, but no order of the phases fits. The shortest iteration "
        "possible takes 11.5 s, 0.5 s more than the 11 s that the SLO of job j0 allows (1.2222 x 9 "
        "s). What keeps it from being shorter: rollout of j0 (5 s) -> rollout of j1 (5 s) -> train "
        "of j1 (3 s) -> train of j2 (6 s) -> train and sync of j0 (4 s) -> rollout of j0, 23 s in "
        "2 iterations. No fewer of the jobs are in conflict."
    )
    assert found.cures == (
        Cure(nodes=(2, None)),
        Cure(nodes=(None, 2)),
        Cure(slo=(("j0", 1.2778), ("j1", 1.0455), ("j2", 1.6429))),
    )


def test_precedence_on_two_nodes_of_each_kind() -> None:
    """Front (2, 3), (3, 2): one node more of either pool."""
    found = told(snapshot_of(FIVE_FRONT), (2, 2))
    assert found.conflict.rule == "precedence"
    assert found.cures[:2] == (Cure(nodes=(3, None)), Cure(nodes=(None, 3)))


# --- the smallest set, and time -----------------------------------------------------------------


def test_a_pair_is_found_where_the_deletion_filter_ends_with_more() -> None:
    """States of 700, 700, 700, 1,400 and 1,400 GB on one node of 2,000 GB.

    Left out from the end, the filter keeps the three of 700 GB; 700 + 1,400 GB are fewer jobs.
    """
    jobs = jobs_of((1,) * 5, (1,) * 5, deadline_s=10, train_state_gb=(700, 700, 700, 1400, 1400))
    found = told(snapshot_of(jobs), (1, 1))
    assert found.members == (0, 3)  # 2,100 GB; of the pairs in conflict the first
    assert "at least 2,100 GB" in found.conflict.message


@pytest.mark.parametrize("limit", [0.0, 3.0, 6.0, 12.0, 25.0, 50.0])
def test_a_deadline_shortens_the_explanation(limit: float) -> None:
    """Whatever is told by then is true; only its being least may be open."""
    jobs = [*PRECEDENCE, replace(PRECEDENCE[0], job_id="j3", slo=4.0)]
    snapshot = snapshot_of(jobs)
    found = group_explanation(GroupCost(snapshot), (0, 1, 2, 3), (1, 1), deadline=ticking(limit))
    assert found is not None
    assert not feasible(snapshot, found.members, (1, 1))
    for cure in found.cures:
        assert feasible(snapshot, found.members, (1, 1), cure)
    if not limit:
        assert found.members == (0, 1, 2, 3)
        assert "shortest iteration possible" not in found.conflict.message


# --- at random ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", MIXES)
def test_conflicts_and_cures_at_random(mix: str) -> None:
    """No conflict iff the oracle's front has a point within the nodes; and all that is claimed."""
    rng = random.Random(sum(map(ord, mix)))
    told_of = 0
    for _ in range(40):
        n = rng.randint(1, 4)
        snapshot = random_snapshot(rng, n, MIXES[mix], limited=True)
        members = tuple(range(n))
        nodes = rng.choice((None, (1, 1), (2, 1), (1, 2), (2, 2)))
        found = group_explanation(GroupCost(snapshot), members, nodes)
        points = oracle_front(snapshot, members)
        size = snapshot.limits.max_group_size
        exists = not (size and n > size) and any(
            nodes is None or (r <= nodes[0] and t <= nodes[1]) for r, t in points
        )
        assert (found is None) == exists, (snapshot.jobs, nodes)
        if found is not None:
            assert_holds(snapshot, nodes, found, members)
            told_of += 1
    assert told_of >= 10


# --- the critical cycle -------------------------------------------------------------------------


def period_of_cycle(case: Case) -> tuple[float, float]:
    """Return the least period of some orders, and seconds over laps of their critical cycle."""
    shape = case.shape()
    found = construct(shape)
    assert found is not None
    order = order_of(shape, found.period_s, found.starts_s)
    period = least_period(shape, order).period_s
    cycle = critical_cycle(shape, order, period)
    assert cycle is not None
    for step, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        phase = (shape.rollout_s, shape.train_s)[step.phase][step.job]
        if step.phase != after.phase:  # the chain of one job
            assert step.job == after.job
            phase += shape.sync_s[step.job] * (step.phase == 1)
        elif step.job != after.job:  # neighbours on a node
            pins = (shape.rollout_pins, shape.train_pins)[step.phase]
            assert set(pins[step.job]) & set(pins[after.job])
        assert step.seconds == phase
    assert critical_cycle(shape, order, 1.1 * period) is None
    assert critical_cycle(shape, order, 0.9 * period) is None
    return period, math.fsum(s.seconds for s in cycle) / sum(s.laps for s in cycle)


@pytest.mark.parametrize(
    ("case", "seconds"), [(SYNC, 11.5), (GANG, 34.0), (FIVE_CYCLE, 2.5)], ids=["sync", "34", "2.5"]
)
def test_critical_cycle_by_hand(case: Case, seconds: float) -> None:
    assert period_of_cycle(case) == pytest.approx((seconds, seconds), rel=1e-12)


def test_critical_cycle_at_random() -> None:
    for case in random_cases(77, 140, 5):
        period, ratio = period_of_cycle(case)
        assert ratio == pytest.approx(period, rel=1e-9), case


# --- words --------------------------------------------------------------------------------------


def test_words_of_many_jobs_are_cut() -> None:
    """13 equal jobs of 1 + 1 s, at most 12 to a group."""
    jobs: Sequence[Job] = jobs_of((1,) * 13, (1,) * 13, deadline_s=26)
    found = group_explanation(GroupCost(snapshot_of(jobs, size=12)), tuple(range(13)))
    assert found is not None
    assert found.conflict.message.startswith(
        "Jobs j0, j1, j2, j3, j4, j5, j6, j7, j8, j9, j10, j11 and 1 more are 13 jobs; a group"
    )
    assert len(found.conflict.job_ids) == 13


@pytest.mark.parametrize(
    ("cure", "words"),
    [
        (Cure(nodes=(2, None)), "Use 2 rollout nodes."),
        (Cure(nodes=(None, 1), least=False), "Use 1 train node (enough; not proved the least)."),
        (Cure(slo_factor=1.25, within="0.01"), "Multiply every SLO by 1.25 (to within 0.01)."),
        (Cure(totals=(3, 4)), "Raise max_rollout_nodes_total from 1 to 3 and raise "
                              "max_train_nodes_total from 2 to 4."),
    ],
)  # fmt: skip
def test_words_of_cures(cure: Cure, words: str) -> None:
    assert cure.words(snapshot_of(PRECEDENCE, caps=(1, 2))) == words


def test_a_cure_changes_only_what_it_names() -> None:
    snapshot = snapshot_of(PRECEDENCE, caps=(1, 2), size=2, nodes=(1, None))
    assert Cure().applied(snapshot).jobs == snapshot.jobs
    new = Cure(nodes=(3, 3), slo_factor=2.0, slo=(("j1", 4.0),), totals=(None, 7)).applied(snapshot)
    assert [job.slo for job in new.jobs] == [2 * PRECEDENCE[0].slo, 8.0, 2 * PRECEDENCE[2].slo]
    assert (new.limits.max_rollout_nodes, new.limits.max_train_nodes) == (3, None)
    assert (new.caps.max_rollout_nodes_total, new.caps.max_train_nodes_total) == (1, 7)
    assert new.cluster == snapshot.cluster
