"""Candidate sets of re-planning: what is remembered is what is grown anew, and refutation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from instances.errors import UnsupportedError
from instances.generate import production
from instances.plan import Limits
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
from models.replan.sets import SetMemory, SetTable, few_sets, set_table
from replan_cases import never
from small_snapshots import jobs_of, snapshot_of

OPTIONS = SolveOptions()


def table_of(snapshot: Snapshot, memory: SetMemory | None = None) -> SetTable:
    return set_table(snapshot, GroupCost(snapshot), OPTIONS, never(), memory)


def rows_of(table: SetTable) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Members and nodes of the rows that stand."""
    return {
        (tuple(j for j in members if j >= 0), tuple(nodes))
        for members, nodes, alive in zip(
            table.members.tolist(), table.nodes.tolist(), table.alive.tolist(), strict=True
        )
        if alive
    }


@pytest.mark.parametrize("gangs", [False, True])
def test_remembered_sets_are_those_grown_anew(gangs: bool) -> None:
    """Jobs leave, join in front and behind, and change their order."""
    jobs = list(production(n_jobs=16, seed=2, concurrent=True, gangs=gangs))
    limits = Limits(max_group_size=3)
    memory = SetMemory()
    for present in ([*range(2, 12)], [*range(2, 9), 10, 11, 12], [0, *range(4, 12), 14], [5, 3, 1]):
        snapshot = Snapshot.of([jobs[j] for j in present], limits=limits)
        table = table_of(snapshot, memory)
        assert rows_of(table) == rows_of(table_of(snapshot))
        assert len(rows_of(table)) > len(present)
        memory.put(snapshot, table)
    other = Snapshot.of(jobs[:5], limits=Limits(max_group_size=2))
    assert rows_of(table_of(other, memory)) == rows_of(table_of(other))


def test_every_connected_set_that_can_be_a_group_is_there() -> None:
    """Gangs: each set that is decided feasible on few nodes has a row on no more nodes."""
    jobs = list(production(n_jobs=7, seed=4, concurrent=True, gangs=True))
    snapshot = Snapshot.of(jobs, limits=Limits(max_group_size=3))
    cost = GroupCost(snapshot)
    rows = rows_of(table_of(snapshot))
    seen = 0
    for size in (1, 2, 3):
        for members in combinations(range(7), size):
            for group in cost.front(members):
                if sum(group.nodes) > cost.connected_nodes(members):
                    continue
                seen += 1
                assert any(
                    jobs == members and all(a <= b for a, b in zip(nodes, group.nodes, strict=True))
                    for jobs, nodes in rows
                )
    assert seen > 7


def test_refutation_adds_a_node() -> None:
    """Three jobs on (1, 1): with 0 and 1 refuted there, (0, 1) goes on to (1, 2) and (2, 1)."""
    snapshot = snapshot_of(jobs_of((2, 2, 2), (2, 2, 2), deadline_s=6), size=3)
    table = table_of(snapshot)
    before = rows_of(table)
    added = table.refute((0, 1), (1, 1))
    gone = {((0, 1), (1, 1)), ((0, 1, 2), (1, 1))}
    assert gone <= before
    assert rows_of(table) - before == {
        (members, nodes) for members, _ in gone for nodes in ((1, 2), (2, 1))
    }
    assert before - rows_of(table) == gone
    assert len(added) == 4
    # connected, two jobs have three nodes at most: no pair of nodes is left for them
    for nodes in ((1, 2), (2, 1)):
        table.refute((0, 1), nodes)
    assert not any(members == (0, 1) for members, _ in rows_of(table))


def test_refutation_of_maximal_sets_takes_a_job_off() -> None:
    jobs = jobs_of((2, 2, 2), (2, 2, 2), deadline_s=6)
    table = table_of(snapshot_of(jobs, nodes=(1, 1)))
    assert rows_of(table) == {((0, 1, 2), (1, 1))}
    table.refute((0, 1), (1, 1))
    assert rows_of(table) == {((0, 2), (1, 1)), ((1, 2), (1, 1))}


def test_too_many_sets_are_those_of_smaller_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten gangs in groups of any size; of at most so many sets, those of the size that allows."""
    jobs = list(production(n_jobs=10, seed=2, concurrent=True, gangs=True))
    snapshot = Snapshot.of(jobs, limits=Limits(max_group_size=0))
    cost = GroupCost(snapshot)
    table, limited = few_sets(snapshot, cost, OPTIONS, never())
    assert limited is snapshot
    assert rows_of(table) == rows_of(table_of(snapshot))
    sizes = {members: len(members) for members, _ in rows_of(table)}
    assert max(sizes.values()) > 3
    few = sum(size <= 3 for size in sizes.values())
    monkeypatch.setattr("models.replan.sets._FEW_SETS", few)
    table, limited = few_sets(snapshot, cost, OPTIONS, never())
    assert limited.limits.max_group_size == 3
    assert {members for members, _ in rows_of(table)} == {m for m, s in sizes.items() if s <= 3}
    monkeypatch.setattr("models.replan.sets._FEW_SETS", 9)
    with pytest.raises(UnsupportedError):
        few_sets(snapshot, cost, OPTIONS, never())


@pytest.mark.parametrize("gangs", [False, True])
def test_too_many_sets_are_refused(gangs: bool) -> None:
    snapshot = Snapshot.of(list(production(n_jobs=12, seed=0, concurrent=True, gangs=gangs)))
    with pytest.raises(UnsupportedError):
        set_table(snapshot, GroupCost(snapshot), SolveOptions(max_groups=3), never())
    assert len(np.unique(table_of(snapshot).members[:, 0])) == 12
