"""How the placer admits a job, on cases small enough for hand arithmetic."""

from __future__ import annotations

import dataclasses

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of, members, violations
from instances.generate import tiny_gang, tiny_open_shop, tiny_sync_gap
from instances.plan import Limits
from placer_cases import facts, placer_of
from planner.placement.placer import Placer

# --- Each kind of admission ------------------------------------------------------------------


def test_the_first_job_is_isolated_on_nodes_of_its_own() -> None:
    decision = Placer().place(job_of("a", 200, 100, rollout_nodes=2, train_nodes=3))
    assert decision.kind == "isolated"
    assert decision.attempts == 0  # nobody to share with
    assert decision.usd_per_hour == pytest.approx(2 * ROLLOUT_USD + 3 * TRAIN_USD)
    assert decision.group.rollout_pins == ((0, 1),)
    assert decision.group.train_pins == ((0, 1, 2),)
    # alone: T = 300, train right after rollout
    assert decision.group.period_s == 300
    assert decision.group.starts_s == (((0, 200),),)


def test_direct_packing_buys_nothing() -> None:
    """Loads 300 and 250, T = 300 and 250, both deadlines (450, 375) hold at period 300."""
    placer = placer_of(job_of("a", 200, 100, 1.5))
    decision = placer.place(job_of("b", 100, 150, 1.5))
    assert facts(decision) == ("direct", 0.0, 1)
    assert decision.attempts == 1
    assert decision.group.period_s == 300  # open shop: max(300, 250, 300)
    assert violations(decision.group) == []


def test_rollout_scaling_shares_train_nodes_only() -> None:
    """Rollouts 200 + 200 exceed both deadlines of 300; trains 100 + 100 do not."""
    placer = placer_of(job_of("a", 200, 100, 1))
    decision = placer.place(job_of("b", 200, 100, 1))
    assert facts(decision) == ("rollout_scaled", ROLLOUT_USD, 1)
    assert decision.group.rollout_pins == ((0,), (1,))
    assert decision.group.train_pins == ((0,), (0,))
    assert decision.group.period_s == 300
    assert violations(decision.group) == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(False, ("isolated", PAIR_USD, 2)), (True, ("train_scaled", TRAIN_USD, 1))],
)
def test_train_scaling_only_when_asked(asked: bool, expected: tuple[str, float, int]) -> None:
    """Trains 200 + 200 exceed both deadlines of 300; rollouts 100 + 100 do not."""
    placer = placer_of(job_of("a", 100, 200, 1), train_scaling=asked)
    decision = placer.place(job_of("b", 100, 200, 1))
    assert facts(decision) == expected
    if asked:
        assert decision.group.rollout_pins == ((0,), (0,))
        assert decision.group.train_pins == ((0,), (1,))
    assert violations(decision.group) == []


@pytest.mark.parametrize("train_scaling", [False, True])
def test_isolated_when_neither_pool_can_be_shared(train_scaling: bool) -> None:
    """Rollouts 160 + 160 and trains 140 + 161 both exceed the deadline 300 of a."""
    placer = placer_of(job_of("a", 160, 140, 1), train_scaling=train_scaling)
    decision = placer.place(job_of("b", 160, 161, 1))
    assert facts(decision) == ("isolated", PAIR_USD, 2)


def test_least_kind_first() -> None:
    """Where all kinds are possible the free one is taken: loads 110, deadline 400."""
    placer = placer_of(job_of("a", 100, 100), train_scaling=True)
    assert placer.place(job_of("b", 10, 10, 100)).kind == "direct"


def test_cheapest_kind_wins_over_older_groups() -> None:
    """Group 1 would need a rollout node for c (200 + 150 > 300); group 2 takes it for free."""
    placer = placer_of(
        job_of("a", 200, 100, 1, train_state_gb=1200), job_of("b", 100, 100, 3, train_state_gb=1200)
    )
    assert members(placer.groups()) == {1: ["a"], 2: ["b"]}
    assert facts(placer.place(job_of("c", 150, 100, 3))) == ("direct", 0.0, 2)


# --- Saturated groups ------------------------------------------------------------------------


@pytest.mark.parametrize(("skip", "kind"), [(True, "isolated"), (False, "direct")])
def test_saturated_groups_are_skipped_unless_told(skip: bool, kind: str) -> None:
    """a and b load the rollout node 300 s and the longest T is 300 s: saturated. c would make
    it 350 s, within all deadlines (450, 375, 400).
    """
    placer = placer_of(job_of("a", 200, 100, 1.5), job_of("b", 100, 150, 1.5), skip_saturated=skip)
    assert placer.place(job_of("c", 50, 50, 4)).kind == kind


def test_a_departure_unsaturates() -> None:
    """Without b the rollout node carries 200 s of T_a = 300 s."""
    placer = placer_of(job_of("a", 200, 100, 1.5), job_of("b", 100, 150, 1.5))
    placer.remove("b")
    assert facts(placer.place(job_of("c", 50, 50, 4))) == ("direct", 0.0, 1)


# --- Old members' and newcomers' deadlines ---------------------------------------------------


@pytest.mark.parametrize(("slo", "kind"), [(1.25, "direct"), (1.249, "isolated")])
def test_deadlines_of_old_members_hold(slo: float, kind: str) -> None:
    """b alone takes 250 s, so a (T = 200) must bear 250 = 1.25 x 200."""
    placer = placer_of(job_of("a", 100, 100, slo))
    assert placer.place(job_of("b", 125, 125, 4)).kind == kind


@pytest.mark.parametrize(("slo", "kind"), [(2.0, "direct"), (1.999, "isolated")])
def test_deadline_of_the_newcomer_holds(slo: float, kind: str) -> None:
    """a takes 200 s, so b (T = 100) must bear 200 = 2 x 100."""
    placer = placer_of(job_of("a", 100, 100, 4))
    assert placer.place(job_of("b", 50, 50, slo)).kind == kind


@pytest.mark.parametrize(("load", "kind"), [(100, "direct"), (100.001, "rollout_scaled")])
def test_a_full_node_is_exact(load: float, kind: str) -> None:
    """200 + 100 = 300 = both deadlines; a thousandth of a second more does not fit."""
    placer = placer_of(job_of("a", 200, 100, 1))
    assert placer.place(job_of("b", load, 50, 300 / (load + 50))).kind == kind


@pytest.mark.parametrize(
    ("switches", "kind"),
    [
        ({}, "direct"),
        # Whoever shares a's train node makes a pay 0.5 s, and a bears nothing.
        ({"train_switch_s": 0.5}, "isolated"),
        ({"rollout_switch_s": 0.5, "train_switch_s": 0.5}, "isolated"),
        # The train node is shared for free; sharing the rollout node is not.
        ({"rollout_switch_s": 0.5}, "rollout_scaled"),
    ],
)
def test_a_member_without_slack_cannot_pay_a_switch(switches: dict[str, float], kind: str) -> None:
    placer = placer_of(job_of("a", 100, 100, 1, **switches))
    assert placer.place(job_of("b", 50, 50, 4)).kind == kind


@pytest.mark.parametrize(
    ("switches", "kind"),
    [
        ({}, "direct"),
        ({"train_switch_s": 0.5}, "isolated"),
        ({"rollout_switch_s": 0.5}, "rollout_scaled"),
    ],
)
def test_a_newcomer_without_slack_cannot_pay_a_switch(
    switches: dict[str, float], kind: str
) -> None:
    decision = placer_of(job_of("a", 50, 50, 4)).place(job_of("b", 100, 100, 1, **switches))
    assert decision.kind == kind
    assert decision.attempts == (kind != "isolated")  # seen before any offsets are tried


@pytest.mark.parametrize(("slo", "kind"), [(1.0025, "direct"), (1.002, "isolated")])
def test_just_enough_slack_for_the_switch(slo: float, kind: str) -> None:
    """T_a = 200 and its switch 0.5 s need D_a >= 200.5 = 1.0025 x 200."""
    placer = placer_of(job_of("a", 100, 100, slo, train_switch_s=0.5))
    assert placer.place(job_of("b", 50, 50, 4)).kind == kind


# --- Switches --------------------------------------------------------------------------------


def test_switches_count_once_a_node_is_shared_and_only_there() -> None:
    """Alone a takes 200 s. With b both rollouts take 101 and both trains 102 s: loads 202 and
    204, cycles 203; open shop reaches the largest, 204. When b leaves, 200 again.
    """
    switches = {"rollout_switch_s": 1.0, "train_switch_s": 2.0}
    placer = placer_of(job_of("a", 100, 100, **switches))
    assert placer.group_of("a").period_s == 200
    joined = placer.place(job_of("b", 100, 100, **switches))
    assert joined.kind == "direct"
    assert joined.group.period_s == 204
    assert joined.group.shape().rollout_s == (101, 101)
    left = placer.remove("b")
    assert left is not None
    assert left.period_s == 200
    assert left.shape().train_s == (100,)


def test_a_rollout_scaled_job_pays_the_train_switch_only() -> None:
    """Rollouts 202 + 262 exceed 450, so b gets a node of its own: phases 200 + 102 and
    260 + 102, longest 362 s, trains 204 s.
    """
    switches = {"rollout_switch_s": 2.0, "train_switch_s": 2.0}
    placer = placer_of(job_of("a", 200, 100, 1.5, **switches))
    decision = placer.place(job_of("b", 260, 100, 1.25, **switches))
    assert decision.kind == "rollout_scaled"
    assert decision.group.shape().rollout_s == (200, 260)
    assert decision.group.shape().train_s == (102, 102)
    assert decision.group.period_s == 362
    assert violations(decision.group) == []


# --- DRAM ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "gb", "kind"),
    [
        ("rollout", 800.0, "direct"),
        ("rollout", 800.001, "rollout_scaled"),
        ("train", 800.0, "direct"),
        ("train", 800.001, "isolated"),
    ],
)
def test_dram_exactly_full_is_full_enough(pool: str, gb: float, kind: str) -> None:
    """1200 of 2000 GB are taken."""
    state = f"{pool}_state_gb"
    placer = placer_of(job_of("a", 100, 100, **{state: 1200.0}))
    assert placer.place(job_of("b", 50, 50, **{state: gb})).kind == kind


def test_a_departure_frees_dram() -> None:
    placer = placer_of(
        job_of("a", 100, 100, 4, train_state_gb=800), job_of("b", 50, 50, 8, train_state_gb=1200)
    )
    assert members(placer.groups()) == {1: ["a", "b"]}
    placer.remove("b")
    assert placer.place(job_of("c", 50, 50, 8, train_state_gb=1200)).kind == "direct"


# --- Limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "groups"),
    # 12 jobs of (1, 1) s with deadlines 200 s would all fit in one group
    [(0, 1), (1, 12), (2, 6), (3, 4), (4, 3), (5, 3)],
)
def test_max_group_size(size: int, groups: int) -> None:
    jobs = [job_of(f"j{i}", 1, 1, 100) for i in range(12)]
    placer = placer_of(*jobs, limits=Limits(max_group_size=size), skip_saturated=False)
    assert len(placer.groups()) == groups
    assert sum(len(g.jobs) for g in placer.groups()) == len(placer) == 12


@pytest.mark.parametrize(("most", "nodes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (None, [3])])
def test_max_rollout_nodes(most: int | None, nodes: list[int]) -> None:
    """Three jobs (200, 100) without slack share one train node (300 s) if each has a rollout
    node of its own.
    """
    jobs = [job_of(i, 200, 100, 1) for i in "abc"]
    placer = placer_of(*jobs, limits=Limits(max_rollout_nodes=most))
    assert [len(g.rollout_nodes) for g in placer.groups()] == nodes


@pytest.mark.parametrize(("most", "nodes"), [(1, [1, 1, 1]), (2, [2, 1]), (None, [3])])
def test_max_train_nodes(most: int | None, nodes: list[int]) -> None:
    jobs = [job_of(i, 100, 200, 1) for i in "abc"]
    placer = placer_of(*jobs, limits=Limits(max_train_nodes=most), train_scaling=True)
    assert [len(g.train_nodes) for g in placer.groups()] == nodes


# --- Gangs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "kind", "usd", "pins"),
    [
        (1, "direct", 0.0, (0,)),
        (2, "direct", 0.0, (0, 1)),
        (3, "rollout_scaled", ROLLOUT_USD, (0, 1, 2)),  # just the one that is missing
        (4, "rollout_scaled", 2 * ROLLOUT_USD, (0, 1, 2, 3)),
    ],
)
def test_a_gang_buys_just_enough_rollout_nodes(
    width: int, kind: str, usd: float, pins: tuple[int, ...]
) -> None:
    """a holds two rollout nodes 100 s of its 300 s; b adds 150 s to any it shares."""
    placer = placer_of(job_of("a", 100, 50, 2, rollout_nodes=2))
    decision = placer.place(job_of("b", 150, 50, 1.5, rollout_nodes=width))
    assert facts(decision) == (kind, usd, 1)
    assert decision.group.rollout_pins[1] == pins
    assert violations(decision.group) == []


def test_a_gang_that_can_share_no_rollout_node_buys_all() -> None:
    """100 + 250 exceeds 300 on a's nodes."""
    placer = placer_of(job_of("a", 100, 50, 2, rollout_nodes=2))
    decision = placer.place(job_of("b", 250, 50, 1, rollout_nodes=3))
    assert facts(decision) == ("rollout_scaled", 3 * ROLLOUT_USD, 1)
    assert decision.group.rollout_pins == ((0, 1), (2, 3, 4))


def test_a_train_gang_needs_all_its_train_nodes_in_the_group() -> None:
    placer = placer_of(job_of("a", 100, 50, 2, train_nodes=2))
    assert placer.place(job_of("b", 50, 50, 2, train_nodes=3)).kind == "isolated"
    assert facts(placer.place(job_of("c", 50, 50, 2, train_nodes=2))) == ("direct", 0.0, 1)


def test_a_train_gang_buys_just_enough_train_nodes_when_asked() -> None:
    """b wants three train nodes, a's two have room (50 + 50 of 200)."""
    placer = placer_of(job_of("a", 50, 50, 2, train_nodes=2), train_scaling=True)
    decision = placer.place(job_of("b", 50, 50, 2, train_nodes=3))
    assert facts(decision) == ("train_scaled", TRAIN_USD, 1)
    assert decision.group.train_pins == ((0, 1), (0, 1, 2))
    assert violations(decision.group) == []


def test_tightest_node_first() -> None:
    """Node 0 carries 100, node 1 210 s of 300 s (310 together): c (50 s) goes to the fuller one,
    d (100 s) fits only the other.
    """
    placer = placer_of(job_of("a", 100, 20, 2.5), job_of("b", 210, 20, 2), skip_saturated=False)
    assert placer.group_of("b").rollout_pins == ((0,), (1,))
    assert placer.place(job_of("c", 50, 20, 5)).group.rollout_pins[2] == (1,)
    assert placer.place(job_of("d", 100, 20, 3)).group.rollout_pins[3] == (0,)


def test_the_gang_example_of_the_catalog_is_one_group() -> None:
    """Rollouts queue (any two gangs share one of three nodes): 5 + 3 + 11 + 6 + 9 = 34 s, the
    deadline of all five; see instances/catalog/README.md.
    """
    placer = placer_of(*tiny_gang(), skip_saturated=False)
    assert [len(g.jobs) for g in placer.groups()] == [5]
    assert placer.groups()[0].period_s == pytest.approx(34)
    assert violations(placer.groups()[0]) == []


def test_the_open_shop_example_fills_both_nodes() -> None:
    """Rollouts 120 + 60 and trains 60 + 120: period 180, nothing idle."""
    placer = placer_of(*tiny_open_shop())
    assert [g.period_s for g in placer.groups()] == [180]


# --- FORMULATION section 4: loads admit, precedence rejects ---------------------------------------


def test_sync_example_loads_admit_what_no_schedule_holds() -> None:
    """r = (5, 5, 1), t = (2, 3, 6), s = (2, 3, 0), deadlines 11: both loads are 11, the least
    period is 11.5, so the direct candidate is tried and refused.

    So is a rollout node for the third job: with the second, without slack, at 0-5, 5-8, 8-11
    the first rolls out from 5 or 6 on, so it trains (2 s, then 2 s of sync) within 10-15, and
    the 6 s of the third job's train no longer fit the rest of the train node's free 8-16.
    """
    first, second, third = tiny_sync_gap()
    placer = placer_of(first, second)
    assert members(placer.groups()) == {1: [first.job_id, second.job_id]}
    decision = placer.place(third)
    assert facts(decision) == ("isolated", PAIR_USD, 2)
    assert decision.attempts == 2


def test_sync_example_in_an_order_that_needs_only_a_rollout_node() -> None:
    """With the *first* job alone on the second rollout node 11 s is enough
    (instances/catalog/README.md): direct is refused, rollout scaling is not.
    """
    first, second, third = tiny_sync_gap()
    decision = placer_of(second, third).place(first)
    assert facts(decision) == ("rollout_scaled", ROLLOUT_USD, 1)
    assert decision.attempts == 2
    assert decision.group.period_s == pytest.approx(11)
    assert violations(decision.group) == []


@pytest.mark.parametrize(("attempts", "expected"), [(2, ("direct", 1)), (1, ("isolated", 3))])
def test_max_attempts_bounds_the_candidates_of_one_kind(
    attempts: int, expected: tuple[str, int]
) -> None:
    """Group 2 (the sync example, full at 11 s) is tighter than group 1 (fill (3 + 8) / 11) and
    tried first; it has no offsets, direct or scaled. A second direct attempt finds group 1.
    """
    a, b, c = (dataclasses.replace(job, train_state_gb=600) for job in tiny_sync_gap())
    room = job_of("room", 2, 2, 5.5, train_state_gb=1500)
    c = dataclasses.replace(c, train_state_gb=100)
    placer = placer_of(room, a, b, max_attempts=attempts)
    assert members(placer.groups()) == {1: ["room"], 2: [a.job_id, b.job_id]}
    decision = placer.place(c)
    assert (decision.kind, decision.group.number) == expected
    assert decision.attempts == 2
