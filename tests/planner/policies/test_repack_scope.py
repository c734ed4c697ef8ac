"""Which groups of a large fleet are planned anew together."""

from __future__ import annotations

import random

import pytest

from builders import PAIR_USD, cluster_of, job_of
from instances.hardware import DEFAULT_CLUSTER
from moving_cases import group_of
from planner.placement.group_state import GroupState
from planner.policies.repack_scope import ScopeFinder, price_share
from repack_cases import twin


def fleet(sizes: list[int]) -> dict[int, GroupState]:
    """Return groups 1, 2, ... of so many twins on one node of each kind."""
    out = {}
    for number, size in enumerate(sizes, start=1):
        state = group_of([twin(f"j{number}.{i}", slo=8.0) for i in range(size)], number)
        assert state is not None
        out[number] = state
    return out


def test_the_share_of_the_price() -> None:
    """Four jobs on the nodes of one save three quarters."""
    assert [price_share(state, DEFAULT_CLUSTER) for state in fleet([1, 4]).values()] == [1, 0.25]
    wide = GroupState.alone(job_of("w", 10, 10, 4, rollout_nodes=3), 1)
    assert price_share(wide, DEFAULT_CLUSTER) == 1
    assert price_share(wide, cluster_of(rollout_usd=0, train_usd=0)) == 1  # nodes for nothing
    assert PAIR_USD > 0


def test_a_small_fleet_is_one_part() -> None:
    groups = fleet([1, 2, 3])
    assert ScopeFinder(DEFAULT_CLUSTER, 4).scopes(groups, [2], 0, 6) == [(1, 2, 3)]
    assert ScopeFinder(DEFAULT_CLUSTER, 4).scopes({}, [], 1, 6) == [()]
    # a newcomer is a job too
    assert len(ScopeFinder(DEFAULT_CLUSTER, 4).scopes(groups, [2], 1, 6)) == 4


def test_the_first_part_has_what_was_touched_and_then_the_weakest() -> None:
    """Six jobs at once: group 3 (2 jobs), then those of one job; then another of two."""
    groups = fleet([2, 4, 2, 1, 2, 1])
    first = ScopeFinder(DEFAULT_CLUSTER, 1).scopes(groups, [3], 0, 6)
    assert first == [(1, 3, 4, 6)]
    # with a newcomer there is no room for group 1
    assert ScopeFinder(DEFAULT_CLUSTER, 1).scopes(groups, [3], 1, 6) == [(3, 4, 6)]


def test_touched_groups_are_there_whatever_their_size() -> None:
    groups = fleet([4, 1, 1])
    assert ScopeFinder(DEFAULT_CLUSTER, 1).scopes(groups, [1], 0, 2) == [(1,)]


@pytest.mark.parametrize("seed", range(5))
def test_parts_are_no_larger_than_asked_for(seed: int) -> None:
    rng = random.Random(seed)
    groups = fleet([rng.randint(1, 4) for _ in range(12)])
    finder = ScopeFinder(DEFAULT_CLUSTER, 4)
    for _ in range(20):
        most = rng.randint(5, 10)
        touched = rng.sample(sorted(groups), rng.randint(0, 1))
        newcomers = rng.randint(0, 1)
        parts = finder.scopes(groups, touched, newcomers, most)
        assert len(parts) == 4
        assert set(touched) <= set(parts[0])
        for i, part in enumerate(parts):
            assert list(part) == sorted(set(part))
            jobs = sum(len(groups[n].jobs) for n in part) + (newcomers if i == 0 else 0)
            assert jobs <= most


def test_in_time_every_group_is_beside_every_weak_one() -> None:
    """Groups of one job are the weak: two of them fit half a part of four."""
    groups = fleet([1, 1, *[2] * 9])
    finder = ScopeFinder(DEFAULT_CLUSTER, 2)
    seen = {pair for _ in range(11) for pair in finder.scopes(groups, [], 0, 4)[1:]}
    assert {n for part in seen if {1, 2} <= set(part) for n in part} == set(groups)
