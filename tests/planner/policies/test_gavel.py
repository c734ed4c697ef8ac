"""``gavel`` and ``swapping``: who takes turns with whom, and what their plans keep."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    PAIR_USD,
    ROLLOUT_USD,
    TRAIN_USD,
    cluster_of,
    job_of,
    members,
    options_of,
    random_job,
    table_of,
    trace_of,
)
from instances.checker import check_plan
from instances.errors import InfeasibleError
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import Limits
from planner.plan.document import plan_document
from planner.plan.planning import plan_trace
from planner.policies.gavel import Gavel, TakesTurns
from planner.policies.swapping import Swapping
from planner.policies.time_slots import TimeShareParams, conflicts_of, time_table
from planner.replay.replaying import Convention, ReplayResult, replay

#: What the checker has against turns: see :mod:`planner.policies.gavel`.
BREACHES = {"rate", "precedence", "overlap"}
CONVENTIONS: tuple[Convention, ...] = ("work", "wallclock")


def easy(job_id: str, slo: float = 4.0, **more: float) -> Job:
    """T = 300 s."""
    return job_of(job_id, 200, 100, slo, **more)


def random_trace(seed: int, n: int = 12) -> JobTable:
    rng = random.Random(seed)
    return table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=float(rng.randint(0, 60)),
                duration_s=float(rng.choice((20, 60, 100, 250))),
            )
            for i in range(n)
        )
    )


def kinds_of(policy: TakesTurns, *jobs: Job) -> list[str | None]:
    out = []
    for job in jobs:
        change = policy.arrive(job, 0.0)
        assert change is not None
        out.append(change.admission)
    return out


# --- joining -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Gavel, Swapping])
def test_two_jobs_share_where_their_shares_add_up_to_one(make: type[TakesTurns]) -> None:
    """1 / 2 + 1 / 2 = 1 fits, and nobody fits with them; 1 / 1.9 + 1 / 2 does not."""
    assert kinds_of(make(options_of()), easy("a", 2), easy("b", 2), easy("c", 9)) == [
        "isolated",
        "direct",
        "isolated",
    ]
    assert kinds_of(make(options_of()), easy("a", 2), easy("b", 1.9)) == ["isolated"] * 2


@pytest.mark.parametrize(("switch_s", "kind"), [(3.0, "direct"), (3.1, "isolated")])
def test_switches_are_paid_from_the_deadlines(switch_s: float, kind: str) -> None:
    """At most 24 iterations a turn (half of 4 h): ``C / k = 600 + 2 x / 24`` for a switch of x s.

    The deadline of 600.25 s allows 3 s.
    """
    jobs = [easy(i, 600.25 / 300, train_switch_s=switch_s) for i in "ab"]
    assert kinds_of(Gavel(options_of()), *jobs) == ["isolated", kind]


def test_a_round_of_three() -> None:
    """Slowdown 4 each asks a quarter of the time; they get a third: a round of 3 x 300 s."""
    policy = Gavel(options_of())
    jobs = [easy(i) for i in "abc"]
    assert kinds_of(policy, *jobs) == ["isolated", "direct", "direct"]
    (group,) = policy._groups.values()
    assert (group.rollout_nodes, group.train_nodes) == ((0,), (0,))
    assert (group.period_s, group.rates) == (900.0, (1, 1, 1))
    assert [pairs[0] for pairs in group.starts_s] == [(0, 200), (300, 500), (600, 800)]


def test_the_cheapest_group_is_joined_before_an_older_one() -> None:
    """A job of two train nodes: beside ``n`` it would buy one, beside ``x`` (0.77 + 0.1) none."""
    policy = Gavel(options_of())
    wide = easy("x", 1.3, train_nodes=2)
    assert kinds_of(policy, easy("n"), wide, easy("y", 10, train_nodes=2)) == [
        "isolated",
        "isolated",  # 1 / 4 + 1 / 1.3 > 1
        "direct",
    ]
    assert members(policy._groups.values()) == {1: ["n"], 2: ["x", "y"]}


def test_the_oldest_is_joined_on_ties() -> None:
    policy = Gavel(options_of())
    assert kinds_of(policy, easy("a", 2), easy("b", 1.6), easy("c", 3)) == [
        "isolated",
        "isolated",
        "direct",
    ]
    assert members(policy._groups.values()) == {1: ["a", "c"], 2: ["b"]}


def test_a_wider_job_buys_what_is_missing() -> None:
    wide = easy("w", rollout_nodes=2, train_nodes=3)
    policy = Gavel(options_of())
    assert kinds_of(policy, easy("a"), wide, easy("b")) == ["isolated", "rollout_scaled", "direct"]
    (group,) = policy._groups.values()
    assert (group.rollout_nodes, group.train_nodes) == ((0, 1), (0, 1, 2))
    # b takes the emptiest nodes, so that it never meets a: two slots of 300 s, not three.
    assert group.rollout_pins[2] == group.train_pins[2] == (1,)
    assert (group.period_s, group.rates) == (600.0, (1, 1, 1))


def test_nodes_without_time_left_are_passed_over() -> None:
    """Slowdown 2 each: ``w`` on train nodes 0 and 1, ``a`` on 0, which is full with them.

    ``b``, two train nodes wide, takes node 1 and buys one, and a rollout node, as the only one is
    full too; so it runs beside ``a``, and two slots of 300 s keep all deadlines of 600 s.
    """
    policy = Gavel(options_of())
    jobs = [easy("w", 2, train_nodes=2), easy("a", 2), easy("b", 2, train_nodes=2)]
    assert kinds_of(policy, *jobs) == ["isolated", "direct", "rollout_scaled"]
    (group,) = policy._groups.values()
    assert (group.rollout_pins, group.train_pins) == (
        ((0,), (0,), (1,)),
        ((0, 1), (0,), (1, 2)),
    )
    assert group.period_s == 600.0


def test_a_factor_counts_as_lost_speed() -> None:
    """Half of the time at 1.25 times the seconds is 0.4 of the speed alone; x 4 is 1.6."""
    policy = Swapping(options_of(colocated_factor=1.25))
    turns = [policy.turn(easy(i)) for i in "ab"]
    shares = time_table(turns, conflicts_of(((), ()), ((0,), (0,)))).shares
    assert shares.speeds == pytest.approx([0.4, 0.4])
    assert shares.least == pytest.approx(1.6)


@pytest.mark.parametrize(("make", "gb"), [(Gavel, 1000.0), (Swapping, 500.0)])
def test_states_stay_resident_unless_switches_are_cold(make: type[TakesTurns], gb: float) -> None:
    """2,000 GB a node hold two train states of 1,000 GB; of both phases only half as much each."""
    fit = [easy(i, rollout_state_gb=gb, train_state_gb=gb) for i in "ab"]
    large = [replace(job, train_state_gb=gb + 1, rollout_state_gb=gb + 1) for job in fit]
    assert kinds_of(make(options_of()), *fit) == ["isolated", "direct"]
    assert kinds_of(make(options_of()), *large) == ["isolated"] * 2
    cold = make(options_of(), TimeShareParams(switch="cold"))
    assert kinds_of(cold, *large) == ["isolated", "direct"]


def test_one_pool_may_be_shared_alone() -> None:
    """Rollout states do not fit together, train states do: a rollout node more."""
    policy = Gavel(options_of())
    jobs = [easy(i, rollout_state_gb=1500.0) for i in "ab"]
    assert kinds_of(policy, *jobs) == ["isolated", "rollout_scaled"]
    (group,) = policy._groups.values()
    assert (group.rollout_pins, group.train_pins) == (((0,), (1,)), ((0,), (0,)))
    assert group.period_s == 600.0  # in turns all the same


@pytest.mark.parametrize(
    "limits",
    [Limits(max_group_size=1), Limits(max_rollout_nodes=2), Limits(max_train_nodes=2)],
)
def test_limits_are_kept(limits: Limits) -> None:
    """A second job of one node, and one of two that would need a third node of the group."""
    policy = Gavel(options_of(limits=limits))
    if limits.max_group_size == 1:
        assert kinds_of(policy, easy("a"), easy("b")) == ["isolated"] * 2
        return
    gb = 1500.0  # no two states together: whoever joins buys that pool's nodes
    rollout = limits.max_rollout_nodes is not None
    more = {"rollout_nodes": 2, "rollout_state_gb": gb} if rollout else {}
    more = more or {"train_nodes": 2, "train_state_gb": gb}
    pool_gb = {"rollout_state_gb": gb} if rollout else {"train_state_gb": gb}
    assert kinds_of(policy, easy("a", **pool_gb), easy("b", **more)) == ["isolated"] * 2


def test_room_of_a_fleet() -> None:
    """What exceeds the free nodes is no choice: neither to join nor to open; nothing changes."""
    policy = Gavel(options_of())
    assert policy.arrive(easy("a"), 0.0, (1, 0)) is None
    assert policy.arrive(easy("a"), 0.0, (1, 1)) is not None
    assert policy.arrive(easy("w", train_nodes=2), 0.0, (0, 0)) is None
    joined = policy.arrive(easy("b"), 0.0, (0, 0))
    assert joined is not None
    assert joined.admission == "direct"
    swaps = Swapping(options_of())
    assert swaps.arrive(easy("a"), 0.0, (0, 1)) is not None  # no rollout node at all


def test_a_job_that_cannot_run_alone_is_refused() -> None:
    small = options_of(cluster=cluster_of(host_dram_gb=100))
    with pytest.raises(InfeasibleError, match="host DRAM of a train node"):
        Gavel(small).arrive(easy("a", train_state_gb=101.0), 0.0)


# --- leaving -------------------------------------------------------------------------------------


def test_who_is_left_gets_a_new_round_and_pays_for_no_empty_node() -> None:
    policy = Gavel(options_of())
    wide = easy("w", rollout_nodes=2, train_nodes=2)
    kinds_of(policy, easy("a"), wide, easy("c"))
    (left,) = policy.depart(wide, 1.0).groups
    assert [job.job_id for job in left.jobs] == ["a", "c"]
    assert (left.rollout_nodes, left.period_s, left.rates) == ((0, 1), 300.0, (1, 1))
    (alone,) = policy.depart(easy("a"), 2.0).groups
    assert (alone.rollout_nodes, alone.period_s, alone.starts_s) == ((1,), 300.0, (((0, 200),),))
    assert policy.depart(easy("c"), 3.0).ended == (1,)
    assert policy._groups == {}


def test_an_old_round_is_kept_where_no_new_one_keeps_the_slos() -> None:
    """Members of no slack at all, as rounding may leave them: any new round of two is late."""
    policy = Gavel(options_of())
    jobs = [easy(i) for i in "abc"]
    kinds_of(policy, *jobs)
    (before,) = policy._groups.values()
    policy._groups[1] = replace(before, jobs=tuple(replace(job, slo=1.0) for job in jobs))
    (left,) = policy.depart(jobs[2], 0.0).groups
    assert [job.job_id for job in left.jobs] == ["a", "b"]
    assert (left.period_s, left.starts_s) == (before.period_s, before.starts_s[:2])


# --- whole replays -------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), convention=st.sampled_from(CONVENTIONS))
def test_gavel_keeps_slos_gangs_residency_and_accounts(seed: int, convention: Convention) -> None:
    result = replay(random_trace(seed), "gavel", options_of(), convention=convention)
    assert result.plan is not None
    assert set(check_plan(result.plan).counts) <= BREACHES
    assert set(result.breaches) <= BREACHES
    assert result.slo_attainment == result.slo_attainment_worst_period == 1.0
    assert (result.checked, result.ratio) == (False, None)
    cost = sum(
        (ROLLOUT_USD * len(g.rollout_nodes) + TRAIN_USD * len(g.train_nodes))
        * (g.to_s - g.from_s)
        / 3600
        for g in result.plan.groups
    )
    assert result.usd_total == pytest.approx(cost)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), convention=st.sampled_from(CONVENTIONS))
def test_without_switches_and_with_rates_a_gavel_plan_is_valid(
    seed: int, convention: Convention
) -> None:
    """Turns are then a schedule of section 3: the independent checker finds nothing at all."""
    jobs = random_trace(seed)
    none = [0.0] * len(jobs)
    jobs = jobs.replace(rollout_switch_s=none, train_switch_s=none)
    options = options_of(limits=Limits(max_rate=10**6))
    result = replay(jobs, "gavel", options, convention=convention)
    assert result.plan is not None
    assert check_plan(result.plan).counts == {}


def test_gavel_shares_something_on_these_traces() -> None:
    """So that the properties above say something: fewer dollars than solo, switches or not."""
    cheaper = 0
    for seed in range(8):
        jobs = random_trace(seed)
        gavel, solo = (
            replay(jobs, name, options_of(), convention="wallclock") for name in ("gavel", "solo")
        )
        assert gavel.usd_total <= solo.usd_total * (1 + 1e-9)
        cheaper += gavel.usd_total < solo.usd_total * 0.99
    assert cheaper >= 6


@pytest.mark.parametrize(("name", "alone"), [("gavel", "solo"), ("swapping", "colocated")])
def test_slowdowns_below_two_leave_everybody_alone(name: str, alone: str) -> None:
    """1 / sigma_1 + 1 / sigma_2 > 1: the published U(1, 2) allows no job-level turns."""
    jobs = production(n_jobs=25, seed=1)
    assert jobs.slo.max() < 2
    turns, own = (replay(jobs, policy, options_of()) for policy in (name, alone))
    assert turns.usd_total == pytest.approx(own.usd_total)
    assert turns.admission is not None
    assert turns.admission["isolated"] == 25


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_swapping_accounts_run_seconds_of_every_turn(factor: float) -> None:
    """Two jobs of 10 iterations each, 300 s alone, swaps of 5 s, at slowdown 4: a turn each.

    A round is 2 (5 + 300 f) s and both leave after 10 rounds; the node runs 2 x 10 x 300 f s.
    """
    jobs = table_of(
        *(easy(i, duration_s=3000.0, rollout_switch_s=1.0, train_switch_s=4.0) for i in "ab")
    )
    result = replay(jobs, "swapping", options_of(colocated_factor=factor))
    round_s = 2 * (5 + 300 * factor)
    assert [r.departure_s for r in result.records] == pytest.approx([10 * round_s] * 2)
    assert result.peak_nodes == {"rollout": 0, "train": 1}
    assert result.run_node_s == pytest.approx({"rollout": 0.0, "train": 6000 * factor})
    assert result.idle_fraction["train"] == pytest.approx(10 / round_s)
    assert result.usd_total == pytest.approx(10 * round_s / 3600 * TRAIN_USD)
    assert result.slo_attainment == 1.0
    assert set(result.breaches) == {"gang"}


def test_swapping_costs_no_more_than_colocated() -> None:
    """At fixed stays; and its groups are late only where jobs alone already are."""
    for seed in range(8):
        jobs = random_trace(seed)
        swaps, alone = (
            replay(jobs, name, options_of(colocated_factor=1.1), convention="wallclock")
            for name in ("swapping", "colocated")
        )
        assert swaps.usd_total <= alone.usd_total * (1 + 1e-9)
        late = [r.job.job_id for r in swaps.records if not r.slo_met]
        assert late == [r.job.job_id for r in alone.records if not r.slo_met]


def test_two_easy_jobs_cost_half() -> None:
    """Both there for an hour at fixed stays: one pair of nodes, where solo has two."""
    jobs = table_of(easy("a"), easy("b"))
    gavel = replay(jobs, "gavel", options_of(), convention="wallclock")
    assert gavel.usd_total == pytest.approx(PAIR_USD)
    assert [r.iterations for r in gavel.records] == pytest.approx([6.0, 6.0])


# --- determinism and copies ----------------------------------------------------------------------


def versions(result: ReplayResult) -> str:
    assert result.plan is not None
    return repr(result.plan.groups)


@pytest.mark.parametrize("name", ["gavel", "swapping"])
def test_same_trace_same_plan(name: str) -> None:
    jobs = random_trace(5)
    assert versions(replay(jobs, name, options_of())) == versions(replay(jobs, name, options_of()))


@pytest.mark.parametrize("make", [Gavel, Swapping])
def test_a_copy_goes_its_own_way(make: type[TakesTurns]) -> None:
    policy = make(options_of())
    kinds_of(policy, easy("a"), easy("b"))
    before = dict(policy._groups)
    copy = policy.fork()
    copy.depart(easy("a"), 1.0)
    copy.arrive(easy("w", rollout_nodes=3, train_nodes=3), 1.0)
    assert policy._groups == before
    twin = policy.fork()
    assert twin.arrive(easy("c"), 1.0) == policy.arrive(easy("c"), 1.0)


def test_documents_say_what_is_not_checked() -> None:
    report = plan_trace(trace_of(easy("a"), easy("b")), policy="gavel", baselines=["swapping"])
    document = json.loads(json.dumps(plan_document(report)))
    for figures in document["conventions"]["wallclock"]["policies"].values():
        assert figures["checked"] is False
        assert figures["ratio"] is None
        assert figures["slo_attainment"] == 1.0
