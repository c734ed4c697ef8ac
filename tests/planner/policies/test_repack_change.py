"""How the difference of two plans falls into changes that can be taken or left one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import PAIR_USD, ROLLOUT_USD, job_of
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job
from moving_cases import group_of
from planner.placement.group_state import GroupState
from planner.policies.repack_change import Proposal, proposals_of, usd_per_hour_of
from repack_cases import twin

JOBS = {name: twin(name, slo=4.0) for name in "abcdefn"}


def state(number: int, names: str) -> GroupState:
    """Return twins as one group, one node of each kind."""
    found = group_of([JOBS[name] for name in names], number)
    assert found is not None
    return found


def changes(
    before: list[GroupState],
    after: list[GroupState],
    placed: dict[str, tuple[int | None, float]] | None = None,
) -> list[Proposal]:
    return proposals_of(before, after, DEFAULT_CLUSTER, placed=placed or {})


def shown(proposal: Proposal) -> tuple[list[int], list[int], tuple[str, ...], tuple[str, ...]]:
    before = [each.number for each in proposal.before]
    after = [each.number for each in proposal.after]
    return before, after, proposal.moved, proposal.newcomers


def test_nothing_changed() -> None:
    same = [state(1, "a"), state(2, "b")]
    assert changes(same, [state(1, "a"), state(2, "b")]) == []
    assert changes([], []) == []


def test_two_merges_are_two_changes() -> None:
    before = [state(1, "a"), state(2, "b"), state(3, "c"), state(4, "d"), state(5, "e")]
    after = [state(3, "cb"), state(1, "ad"), before[4]]
    one, two = changes(before, after)
    assert shown(one) == ([1, 4], [1], ("d",), ())
    assert shown(two) == ([2, 3], [3], ("b",), ())
    for each in (one, two):
        assert each.usd_per_hour_before == pytest.approx(2 * PAIR_USD)
        assert each.saving_usd_per_hour == pytest.approx(PAIR_USD)


def test_a_chain_of_moves_is_one_change() -> None:
    """b makes room for d: neither move is of use without the other."""
    (one,) = changes(
        [state(1, "a"), state(2, "bc"), state(3, "d")], [state(1, "ab"), state(2, "cd")]
    )
    assert shown(one) == ([1, 2, 3], [1, 2], ("b", "d"), ())
    assert one.saving_usd_per_hour == pytest.approx(PAIR_USD)


def test_a_job_moves_too_when_its_nodes_change() -> None:
    """Other starts are no move; nor are the same nodes in another order."""
    wide = job_of("w", 10, 10, 4, rollout_nodes=2)
    old = GroupState.alone(wide, 1)
    (other,) = changes([old], [replace(old, rollout_pins=((0, 2),))])
    assert other.moved == ("w",)
    (train,) = changes([old], [replace(old, train_pins=((1,),))])
    assert train.moved == ("w",)
    (same,) = changes([old], [replace(old, rollout_pins=((1, 0),), period_s=25.0)])
    assert same.moved == ()


def test_a_newcomer_that_moves_nobody() -> None:
    """It joins group 1, or takes a node of its own, at what that adds."""
    (joins,) = changes([state(1, "a")], [state(1, "an")], {"n": (1, 0.0)})
    assert shown(joins) == ([1], [1], (), ("n",))
    assert joins.saving_usd_per_hour == pytest.approx(0.0)
    (alone,) = changes([state(1, "a")], [state(1, "a"), state(2, "n")], {"n": (None, PAIR_USD)})
    assert shown(alone) == ([], [2], (), ("n",))
    assert alone.saving_usd_per_hour == pytest.approx(0.0)


def test_a_newcomer_counts_as_placed_before() -> None:
    """Groups 1 and 2 merge and it joins: one pair where two and its own would be."""
    (one,) = changes([state(1, "a"), state(2, "b")], [state(1, "abn")], {"n": (None, PAIR_USD)})
    assert (one.moved, one.newcomers) == (("b",), ("n",))
    assert one.usd_per_hour_before == pytest.approx(3 * PAIR_USD)
    assert one.saving_usd_per_hour == pytest.approx(2 * PAIR_USD)


def test_where_a_refused_newcomer_goes_is_part_of_its_change() -> None:
    """It joins c here. Without that it would join a, and a is to merge with b: one change.

    Were they two, a and b could merge while the newcomer goes to the group that a had before.
    """
    before = [state(1, "a"), state(2, "b"), state(3, "c")]
    after = [state(1, "ab"), state(3, "cn")]
    (one,) = changes(before, after, {"n": (1, 0.0)})
    assert shown(one) == ([1, 2, 3], [1, 3], ("b",), ("n",))
    merge, joins = changes(before, after, {"n": (3, 0.0)})
    assert (merge.moved, joins.moved) == (("b",), ())
    # a group that nobody touches stays what it was, whatever is taken
    untouched = [*before, state(4, "d")]
    merge, joins = changes(untouched, [*after, untouched[3]], {"n": (4, 0.0)})
    assert (merge.newcomers, joins.newcomers) == ((), ("n",))


def test_a_group_of_number_0_is_one_like_others() -> None:
    """Plans of others may have a g0; a newcomer in a new group does not belong to it."""
    merge, alone = changes(
        [state(0, "a"), state(1, "b")], [state(0, "ab"), state(2, "n")], {"n": (None, PAIR_USD)}
    )
    assert (merge.newcomers, alone.newcomers) == ((), ("n",))
    (both,) = changes(
        [state(0, "a"), state(1, "b")], [state(0, "ab"), state(2, "n")], {"n": (0, 0.0)}
    )
    assert both.newcomers == ("n",)


def test_the_price_is_of_nodes_somebody_is_pinned_to() -> None:
    jobs: tuple[Job, ...] = (job_of("w", 10, 10, 4, rollout_nodes=2), JOBS["a"])
    two = [GroupState.alone(jobs[0], 1), GroupState.alone(jobs[1], 2)]
    assert usd_per_hour_of(two, DEFAULT_CLUSTER) == pytest.approx(2 * PAIR_USD + ROLLOUT_USD)
    assert usd_per_hour_of([], DEFAULT_CLUSTER) == 0
