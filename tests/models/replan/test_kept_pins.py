"""Groups that keep the pins of stayers, against enumeration and by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from instances.plan import Limits
from models.bounds.covering_lp import Ending
from models.group.group_cost import GroupCost
from models.problem.snapshot import PlacedGroup, Snapshot, solo_group
from models.replan.kept_pins import extended, kept, relabelled, remaining
from models.replan.replanning import Host, NewGroup, Replan
from oracles.least_replan import Replanning, Running
from replan_cases import host_of, never, problems, random_case
from small_snapshots import BRIDGE, PRECEDENCE, jobs_of, snapshot_of


def valid(snapshot: Snapshot, hosts: list[Host], group: NewGroup) -> bool:
    """Whether the checker accepts a group; the jobs it lacks run alone."""
    rest = [j for j in range(len(snapshot)) if j not in group.members]
    alone = [
        NewGroup(
            host=None,
            members=solo.members,
            rollout_pins=solo.rollout_pins,
            train_pins=solo.train_pins,
            rates=(1,),
            period_s=solo.period_s,
            starts_s=solo.starts_s,
            movers=tuple(j for j in solo.members if any(j in host.members for host in hosts)),
        )
        for solo in (solo_group(snapshot, j) for j in rest)
    ]
    plan = Replan(
        groups=(group, *alone), value_usd=0.0, moves=0, ending=Ending.OPTIMAL, proved=False
    )
    return problems(snapshot, hosts, plan) == []


@pytest.mark.parametrize("seed", range(40))
def test_extension_finds_what_enumeration_finds(seed: int) -> None:
    """All jobs as one group of the first host, on every number of nodes.

    What is found is valid, with the stayers where they were; where nothing is found and that is
    called a proof, enumeration of all pinnings and orders finds nothing either. On these small
    cases the search is whole: it answers as enumeration does.
    """
    case = random_case(random.Random(seed), 3)
    snapshot, host = case.snapshot, case.hosts[0]
    members = tuple(range(len(snapshot)))
    if snapshot.limits.max_group_size and len(members) > snapshot.limits.max_group_size:
        snapshot = replace(snapshot, limits=replace(snapshot.limits, max_group_size=0))
    running = [any(j in each.members for each in case.hosts) for j in members]
    oracle = Replanning(
        snapshot.jobs,
        snapshot.cluster,
        replace(snapshot.limits, max_rollout_nodes=None, max_train_nodes=None),
        [Running(host.members, host.rollout_pins, host.train_pins)],
        lasting_h=1.0,
        move_usd=[0.0] * len(members),
        may_move=[True] * len(members),
    )
    most = GroupCost(snapshot).most_nodes(members)
    for nodes in product(range(1, most[0] + 1), range(1, most[1] + 1)):
        found = extended(snapshot, members, host.members, 0, host, nodes, running, deadline=never())
        # exactly so many nodes: what fits fewer fits these, while any job shares one
        below = product(range(1, nodes[0] + 1), range(1, nodes[1] + 1))
        possible = any(
            oracle._feasible(oracle.work, members, pair, 0, host.members) for pair in below
        )
        assert (found.group is not None) == possible
        assert found.proved == (not possible)
        if found.group is not None:
            assert all(a <= b for a, b in zip(found.group.nodes, nodes, strict=True))
            assert set(found.group.movers).isdisjoint(host.members)
            assert valid(snapshot, list(case.hosts), found.group)


def test_a_mover_takes_a_new_node_where_the_old_one_is_full() -> None:
    """Job 1 shares a train node with job 2 only, and no rollout node with job 0 (BRIDGE)."""
    snapshot = snapshot_of(BRIDGE)
    host = host_of(solo_group(snapshot, 0), first=4)
    found = extended(snapshot, (0, 1, 2), (0,), 0, host, (2, 2), [True] * 3, deadline=never())
    assert found.group is not None
    assert found.group.rollout_pins[0] == (4,)
    assert {node for pins in found.group.rollout_pins for node in pins} == {4, 50}
    assert not extended(
        snapshot, (0, 1, 2), (0,), 0, host, (1, 2), [True] * 3, deadline=never()
    ).group


def test_loads_do_not_prove_an_extension() -> None:
    """Loads admit one node of each kind, no schedule does (PRECEDENCE): refuted by search."""
    snapshot = snapshot_of(PRECEDENCE)
    host = host_of(solo_group(snapshot, 0))
    found = extended(snapshot, (0, 1, 2), (0,), 0, host, (1, 1), [True] * 3, deadline=never())
    assert (found.group, found.proved) == (None, True)
    assert (
        extended(snapshot, (0, 1, 2), (0,), 0, host, (2, 1), [True] * 3, deadline=never()).group
        is not None
    )


def test_rates_are_chosen_with_the_pins() -> None:
    """Deadlines 3 s and 6 s, and 4 s of the long job alone: the short one has to run twice."""
    jobs = jobs_of((1, 2), (1, 2), slo=(1.5, 1.5))
    host = host_of(solo_group(snapshot_of(jobs), 1), first=3)
    twice = Snapshot.of(jobs, limits=Limits(max_rate=2))
    found = extended(twice, (0, 1), (1,), 0, host, (1, 1), [False, True], deadline=never())
    assert found.group is not None
    assert found.group.rates == (2, 1)
    assert valid(twice, [host], found.group)
    once = extended(
        snapshot_of(jobs), (0, 1), (1,), 0, host, (1, 1), [False, True], deadline=never()
    )
    assert (once.group, once.proved) == (None, True)


# --- renaming ---------------------------------------------------------------------------------


def shared() -> tuple[Snapshot, PlacedGroup]:
    """Jobs 0 and 1 on one rollout node, 2 on another, all on one train node."""
    snapshot = snapshot_of(jobs_of((2, 2, 2), (1, 1, 1), deadline_s=6))
    group = PlacedGroup(
        members=(0, 1, 2),
        rollout_pins=((0,), (0,), (1,)),
        train_pins=((0,), (0,), (0,)),
        period_s=6.0,
        starts_s=(((0.0, 2.0),), ((2.0, 4.0),), ((3.0, 5.0),)),
    )
    return snapshot, group


def test_renaming_keeps_the_dearer_jobs_in_place() -> None:
    """In the host 0 and 2 share node 8, 1 is on 9; in the new group 0 and 1 share.

    Node 0 becomes 8 (job 0 stays) or 9 (job 1 stays), node 1 the other one: at 8 and 9 also job 2
    would have to be on 9. So 0 stays with node 1 new, or 1 and 2 stay: 9 and 8.
    """
    snapshot, group = shared()
    host = Host(
        members=(0, 1, 2),
        rollout_pins=((8,), (9,), (8,)),
        train_pins=((5,), (5,), (5,)),
        rates=(1, 1, 1),
        period_s=6.0,
        starts_s=group.starts_s,
        fresh_rollout=10,
        fresh_train=6,
    )
    for credit, movers in (((5.0, 3.0, 1.0), (1, 2)), ((3.0, 3.0, 1.0), (0,))):
        found = relabelled(group, 0, host, credit, [True] * 3, [True] * 3)
        assert found is not None
        assert found.movers == movers
        assert valid(snapshot, [host], found)
    assert relabelled(group, 0, host, (5.0, 3.0, 1.0), [True, False, True], [True] * 3) is None


def test_renaming_without_a_match_is_a_group_of_movers() -> None:
    """A host of one job on two rollout nodes; in the group it has one."""
    _, group = shared()
    host = Host(
        members=(0,),
        rollout_pins=((1, 2),),
        train_pins=((1,),),
        rates=(1,),
        period_s=6.0,
        starts_s=(((0.0, 2.0),),),
        fresh_rollout=3,
        fresh_train=2,
    )
    found = relabelled(group, 0, host, (5.0, 0.0, 0.0), [True] * 3, [True, False, False])
    assert found is not None
    assert (found.host, found.movers) == (None, (0,))


# --- members that left ------------------------------------------------------------------------


def test_remaining_members_run_no_slower() -> None:
    """Of three jobs at 6 s two are left: 2 + 2 s of rollout and of train are 4 s."""
    snapshot = snapshot_of(jobs_of((2, 2, 2), (2, 2, 2), deadline_s=6))
    group = GroupCost(snapshot).decide((0, 1, 2), (1, 1))
    assert group is not None
    host = host_of(group, first=2)
    assert kept(0, host).starts_s == host.starts_s
    assert remaining(snapshot, 0, host, (0, 1, 2)) == kept(0, host)
    fewer = remaining(snapshot, 0, host, (0, 2))
    assert fewer.period_s == pytest.approx(4.0)
    assert fewer.rollout_pins == ((2,), (2,))


@pytest.mark.parametrize("seed", range(20))
def test_remaining_members_never_run_slower(seed: int) -> None:
    case = random_case(random.Random(seed), 4, max_rate=1 + seed % 2)
    for number, host in enumerate(case.hosts):
        for dropped in host.members[1:]:
            members = tuple(j for j in host.members if j != dropped)
            group = remaining(case.snapshot, number, host, members)
            assert group.period_s <= host.period_s
            assert group.rates == tuple(
                k for k, j in zip(host.rates, host.members, strict=True) if j != dropped
            )
            assert valid(case.snapshot, list(case.hosts), group)
