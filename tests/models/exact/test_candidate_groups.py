"""Candidate groups: every group that a least-cost plan may need, and no other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from builders import cluster_of
from instances.errors import UnsupportedError
from instances.jobs import Job
from models.exact.candidate_groups import CandidateGroups, enumerate_groups
from models.group.group_cost import GroupCost, Nodes
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.snapshot import Snapshot
from small_snapshots import (
    BRIDGE,
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    fleets_of,
    full_jobs,
    jobs_of,
    oracle_fronts,
    pareto,
    random_snapshot,
    snapshot_of,
)


def groups_of(snapshot: Snapshot, *, fronts: bool = False, **options: Any) -> CandidateGroups:
    made = SolveOptions(**options)
    return enumerate_groups(GroupCost(snapshot), made, made.start(), fronts=fronts)


def points_of(groups: CandidateGroups) -> dict[tuple[int, ...], list[Nodes]]:
    """Node counts by set, each point once."""
    out: dict[tuple[int, ...], list[Nodes]] = {}
    for members, nodes in zip(groups.members, groups.nodes, strict=True):
        assert nodes not in out.setdefault(members, [])
        out[members].append(nodes)
    return out


def alike(n: int, deadline_s: float = 100.0) -> list[Job]:
    """Jobs of 1 s each phase: any number shares one node of each kind."""
    return jobs_of((1,) * n, (1,) * n, deadline_s=deadline_s)


def cases(seed: int, count: int) -> Iterator[Snapshot]:
    """Two to four jobs by turns: any mix, any mix with limits, full nodes."""
    rng = random.Random(seed)
    mixes = list(MIXES.values())
    for i in range(count):
        if i % 3 < 2:
            mix = mixes[i // 3 % len(mixes)]
            yield random_snapshot(rng, rng.choice((2, 3, 4, 4)), mix, limited=i % 3 == 1)
        else:
            yield snapshot_of(full_jobs(rng, rng.choice((3, 4))))


# --- complete, and nothing more -----------------------------------------------------------------


@pytest.mark.parametrize("prices", [(14.8, 42.24), (8.0, 8.0), (40.0, 8.0), (8.0, 0.0), (0.0, 8.0)])
def test_a_set_is_listed_exactly_when_it_is_cheaper_than_every_way_to_split_it(
    prices: tuple[float, float],
) -> None:
    """Every set of jobs, by the oracle's fronts. Listed at its least price, once; so every set of
    jobs can be served as cheaply by listed groups as by any. Free nodes make many splits as cheap.
    """
    cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
    several = left_out = 0
    for plain in cases(1, 30):
        snapshot = replace(plain, cluster=cluster)
        listed = points_of(groups_of(snapshot))
        fronts = oracle_fronts(snapshot)

        def usd(fleets: Sequence[Nodes] | set[Nodes], snapshot: Snapshot = snapshot) -> float:
            return min((snapshot.usd_per_hour(*fleet) for fleet in fleets), default=float("inf"))

        for size in range(1, len(snapshot) + 1):
            for members in combinations(range(len(snapshot)), size):
                smaller = {s: front for s, front in fronts.items() if len(s) < size}
                split = usd(fleets_of(smaller, members))
                whole = usd(fronts.get(members, []))
                if whole < split - 1e-6:
                    assert len(listed[members]) == 1, (snapshot, members)
                    assert usd(listed[members]) == pytest.approx(whole)
                    several += size > 1
                else:
                    assert members not in listed, (snapshot, members)
                    left_out += whole < float("inf")
    assert several >= 25
    assert left_out >= (10 if 0.0 in prices else 5)


def test_listed_fronts_give_every_pareto_minimal_fleet_of_any_jobs() -> None:
    """As fleet caps need."""
    points = wide = 0
    for snapshot in cases(2, 36):
        listed = points_of(groups_of(snapshot, fronts=True))
        fronts = oracle_fronts(snapshot)
        for members, found in listed.items():
            assert set(found) <= set(fronts[members])
            points += len(found)
            wide += len(found) > 1
        for size in range(1, len(snapshot) + 1):
            for members in combinations(range(len(snapshot)), size):
                expected = pareto(fleets_of(fronts, members))
                assert pareto(fleets_of(listed, members)) == expected, (snapshot, members)
    assert points >= 200
    assert wide >= 5


def test_the_precedence_group_is_listed_with_both_its_points_and_at_the_cheaper() -> None:
    """Front (1, 2), (2, 1); a rollout node is the cheaper one to add."""
    snapshot = snapshot_of(PRECEDENCE)
    assert points_of(groups_of(snapshot))[0, 1, 2] == [(2, 1)]
    assert points_of(groups_of(snapshot, fronts=True))[0, 1, 2] == [(1, 2), (2, 1)]


def test_a_pareto_pair_of_five_jobs_is_listed_whole() -> None:
    """Ten pins of five jobs connect at most 10 - 5 + 1 = 6 nodes; both points have five."""
    listed = points_of(groups_of(snapshot_of(FIVE_FRONT), fronts=True))
    assert listed[0, 1, 2, 3, 4] == [(2, 3), (3, 2)]


def test_gangs_count_by_their_pins() -> None:
    """Two gangs of three rollout nodes, 2 of 3 s each: they share no rollout node, and the train
    node joins them: 6 + 1 nodes = 8 pins - 2 + 1. Cheaper than 6 + 2 apart."""
    jobs = jobs_of((2, 2), (1, 1), deadline_s=3, rollout_nodes=(3, 3))
    assert points_of(groups_of(snapshot_of(jobs))) == {
        (0,): [(3, 1)],
        (1,): [(3, 1)],
        (0, 1): [(6, 1)],
    }


def test_a_job_that_cannot_run_alone_is_in_no_set_and_hinders_no_other() -> None:
    jobs = jobs_of((1,) * 3, (1,) * 3, deadline_s=6, train_state_gb=(0, 2001, 0))
    groups = groups_of(snapshot_of(jobs))
    assert set(points_of(groups)) == {(0,), (2,), (0, 2)}
    assert (groups.sets_grown, groups.sets_admitted) == (3 + 1, 2 + 1)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_job_may_join_two_that_share_nothing(order: tuple[int, ...]) -> None:
    """All three are connected and cheaper than any split; the pair of 1500 GB jobs is neither.
    So the set is grown from the other pairs, whichever job comes first."""
    snapshot = snapshot_of([BRIDGE[i] for i in order])
    assert points_of(groups_of(snapshot))[0, 1, 2] == [(2, 2)]
    apart = tuple(sorted((order.index(0), order.index(1))))
    assert apart not in points_of(groups_of(snapshot))


def test_a_point_whose_group_falls_apart_is_left_to_its_parts() -> None:
    """Loads admit two jobs (2, 2), sync 3, on (1, 1): 2 x 2.5 <= 7 s. But T = D = 7 leaves no
    time for a switch, so their front is (2, 2), of two groups."""
    half = (0.5, 0.5)
    jobs = jobs_of((2, 2), (2, 2), (3, 3), rollout_switch_s=half, train_switch_s=half)
    cost = GroupCost(snapshot_of(jobs))
    assert cost.least_nodes((0, 1)) == (1, 1)
    assert [group.nodes for group in cost.front((0, 1))] == [(2, 2)]
    groups = groups_of(snapshot_of(jobs), fronts=True)
    assert points_of(groups) == {(0,): [(1, 1)], (1,): [(1, 1)]}


# --- how many sets are looked at ----------------------------------------------------------------


def test_all_sets_are_looked_at_where_all_are_feasible() -> None:
    """Five jobs: 31 sets, each once, and each cheaper as one group than split."""
    groups = groups_of(snapshot_of(alike(5)))
    assert (groups.sets_grown, groups.sets_admitted, len(groups)) == (31, 31, 31)


def test_an_infeasible_pair_is_never_extended() -> None:
    """T = 2 and deadline 2 beside T = 3: of five jobs, the 8 sets with both are not looked at."""
    jobs = [*jobs_of((1, 2), (1, 1), slo=(1.0, 9.0)), *alike(3)]
    jobs = [replace(job, job_id=f"j{i}") for i, job in enumerate(jobs)]
    groups = groups_of(snapshot_of(jobs))
    assert groups.sets_grown == 31 - 8
    assert not any({0, 1} <= set(members) for members in groups.members)


def test_an_infeasible_triple_is_never_extended() -> None:
    """Rollouts of 1000 GB: pairs share a node, three do not, with one rollout node at most. Of
    four such jobs all triples are looked at and none is admitted, so the four are not."""
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=9, rollout_state_gb=(1000,) * 4)
    groups = groups_of(snapshot_of(jobs, nodes=(1, None)))
    assert (groups.sets_grown, groups.sets_admitted) == (4 + 6 + 4, 4 + 6)


@pytest.mark.parametrize("fronts", [False, True])
def test_jobs_that_can_share_no_node_are_not_listed_together_nor_extended(fronts: bool) -> None:
    """T = D = 4 leaves no time for a switch. As one group two such jobs have (2, 2), more than the
    three nodes that connect them, and at the price of two groups; triples are not looked at."""
    half = (0.5,) * 3
    jobs = jobs_of((2,) * 3, (2,) * 3, rollout_switch_s=half, train_switch_s=half)
    assert [group.nodes for group in GroupCost(snapshot_of(jobs)).front((0, 1))] == [(2, 2)]
    groups = groups_of(snapshot_of(jobs), fronts=fronts)
    assert points_of(groups) == {(i,): [(1, 1)] for i in range(3)}
    assert groups.sets_grown == 3 + 3


@pytest.mark.parametrize(("size", "sets"), [(1, 4), (2, 10), (3, 14), (4, 15), (5, 15), (0, 15)])
def test_sets_are_no_larger_than_a_group_may_be(size: int, sets: int) -> None:
    """Four jobs: 4 + 6 + 4 + 1 sets; a limit above the number of jobs is none."""
    groups = groups_of(snapshot_of(alike(4), size=size))
    assert (groups.sets_grown, len(groups)) == (sets, sets)


def test_no_jobs_have_no_groups() -> None:
    assert len(groups_of(snapshot_of([]))) == 0
    assert len(groups_of(snapshot_of([]), fronts=True)) == 0


# --- limits of the enumeration ------------------------------------------------------------------


def test_too_many_groups_are_refused_with_the_alternatives() -> None:
    """Five alike jobs have 31 groups."""
    assert len(groups_of(snapshot_of(alike(5)), max_groups=31)) == 31
    words = (
        r"^Expected at most 30 candidate groups, got more among 5 jobs: lower max_group_size or "
    )
    with pytest.raises(UnsupportedError, match=words):
        groups_of(snapshot_of(alike(5)), max_groups=30)


@pytest.mark.parametrize("fronts", [False, True])
def test_an_enumeration_ends_when_its_time_does(fronts: bool) -> None:
    """Eight alike jobs have 255 sets, so the clock is read on the way."""
    with pytest.raises(OutOfTimeError):
        groups_of(snapshot_of(alike(8)), fronts=fronts, time_limit_s=0)


def test_progress_is_told_by_size_of_the_sets() -> None:
    told: list[tuple[str, int, int]] = []
    groups_of(snapshot_of(alike(4), size=3), progress=lambda *call: told.append(call))
    assert told == [("groups of jobs", 2, 3), ("groups of jobs", 3, 3)]


def test_equal_snapshots_list_equal_groups_in_equal_order() -> None:
    for snapshot in cases(3, 12):
        one, two = groups_of(snapshot), groups_of(snapshot)
        assert (one.members, one.nodes) == (two.members, two.nodes)
