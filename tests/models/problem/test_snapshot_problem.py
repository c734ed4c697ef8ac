"""The snapshot problem: what it refuses, its caps, and groups turned into plans and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of
from instances.checker import check_plan
from instances.errors import CheckError, InputError, UnsupportedError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import Limits, Plan
from models.problem.snapshot import (
    FleetCaps,
    PlacedGroup,
    Snapshot,
    groups_of,
    plan_of,
    solo_group,
)
from small_snapshots import jobs_of, snapshot_of

# --- the problem ------------------------------------------------------------------------------


def test_a_snapshot_holds_its_jobs_in_order_and_prices_nodes_linearly() -> None:
    jobs = jobs_of((1, 2, 3), (3, 2, 1))
    snapshot = Snapshot.of(jobs)
    assert snapshot.jobs == tuple(jobs)
    assert len(snapshot) == 3
    assert snapshot.usd_per_hour(0, 0) == 0
    assert snapshot.usd_per_hour(2, 3) == pytest.approx(2 * ROLLOUT_USD + 3 * TRAIN_USD)
    assert (snapshot.limits, snapshot.caps) == (Limits(), FleetCaps())


def test_async_jobs_are_refused_by_name() -> None:
    jobs = [job_of("a", 1, 1, mode="one-step"), job_of("b", 1, 1, mode="async")]
    with pytest.raises(UnsupportedError, match=r"^Expected mode sync or one-step, got async"):
        Snapshot.of(jobs)


def test_a_repeated_job_id_is_refused() -> None:
    jobs = [job_of("a", 1, 1), job_of("b", 1, 1), job_of("a", 2, 2)]
    with pytest.raises(InputError, match="distinct job ids"):
        Snapshot.of(jobs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slo", 0.99),
        ("rollout_s", 0.0),
        ("train_s", float("nan")),
        ("sync_s", -1.0),
        ("train_nodes", 0),
        ("rollout_state_gb", float("inf")),
        ("train_switch_s", -0.5),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_job_and_field(name: str, value: Any) -> None:
    good = job_of("a", 1, 1)
    bad = dataclasses.replace(job_of("b", 1, 1), **{name: value})
    with pytest.raises(InputError, match=rf"^Expected {name} .*\(job 'b'\)"):
        Snapshot.of([good, bad])


def test_a_snapshot_without_jobs_is_a_problem_too() -> None:
    plan = plan_of(Snapshot.of([]), (), "any")
    assert (plan.usd_total, plan.groups) == (0, ())


# --- caps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_rollout_nodes_total", "max_train_nodes_total"])
@pytest.mark.parametrize("value", [-1, 1.0, True, "2"])
def test_a_cap_that_is_not_a_whole_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        FleetCaps(**{name: value})
    assert str(caught.value) == f"Expected {name} a whole number >= 0, got {value!r}."


@pytest.mark.parametrize(
    ("caps", "any_cap", "allowed"),
    [
        ((None, None), False, [(9, 9)]),
        ((2, None), True, [(2, 9)]),
        ((None, 2), True, [(9, 2)]),
        ((2, 3), True, [(2, 3)]),
        ((0, 0), True, [(0, 0)]),
        ((0, None), True, [(0, 9)]),
        ((None, 0), True, [(9, 0)]),
    ],
)
def test_caps_hold_for_each_pool_and_a_cap_of_0_is_a_cap(
    caps: tuple[int | None, int | None], any_cap: bool, allowed: list[tuple[int, int]]
) -> None:
    made = FleetCaps(max_rollout_nodes_total=caps[0], max_train_nodes_total=caps[1])
    assert made.any is any_cap
    for rollout, train in allowed:
        assert made.allow(rollout, train)
        assert made.allow(rollout + 1, train) is (caps[0] is None)
        assert made.allow(rollout, train + 1) is (caps[1] is None)


# --- groups -----------------------------------------------------------------------------------

#: (5, 1) and (1, 5) in 6 s on one node each, and a gang (2, 1) on nodes of its own: 3 + 2 nodes.
THREE = jobs_of(
    (5, 1, 2), (1, 5, 1), slo=(1.0, 1.0, 1.0), rollout_nodes=(1, 1, 2), train_nodes=(1, 1, 1)
)
SHARED = PlacedGroup(
    members=(0, 1),
    rollout_pins=((0,), (0,)),
    train_pins=((0,), (0,)),
    period_s=6.0,
    starts_s=(((0.0, 5.0),), ((5.0, 6.0),)),
    rates=(1, 1),
)
GANG = PlacedGroup(
    members=(2,),
    rollout_pins=((0, 1),),
    train_pins=((0,),),
    period_s=3.0,
    starts_s=(((0.0, 2.0),),),
    rates=(1,),
)


def test_a_job_alone_runs_at_once_and_pays_no_switch() -> None:
    """Period T = 3 + 2 + 1, whatever the slo; so it meets the tightest, 1."""
    job = job_of(
        "a", 3, 2, 2.0, sync_s=1, rollout_nodes=2, train_nodes=3, rollout_switch_s=9,
        train_switch_s=9,
    )  # fmt: skip
    group = solo_group(Snapshot.of([job_of("b", 1, 1), job]), 1)
    assert group == PlacedGroup((1,), ((0, 1),), ((0, 1, 2),), 6.0, (((0.0, 3.0),),))
    assert group.nodes == (2, 3)
    tight = Snapshot.of([dataclasses.replace(job, slo=1.0)])
    assert check_plan(plan_of(tight, [solo_group(tight, 0)], "p")).ok


def test_nodes_are_counted_once_however_many_jobs_hold_them() -> None:
    group = dataclasses.replace(SHARED, rollout_pins=((0, 2), (2, 7)), train_pins=((1,), (1,)))
    assert group.nodes == (3, 1)


def test_a_group_without_some_members_keeps_the_others_as_they_were() -> None:
    left = SHARED.without([0, 2])
    assert left == PlacedGroup((1,), ((0,),), ((0,),), 6.0, (((5.0, 6.0),),), (1,))
    assert SHARED.without([2]) == SHARED
    assert SHARED.without([1, 0]) is None
    bare = dataclasses.replace(SHARED, rates=()).without([1])
    assert bare is not None
    assert bare.rates == ()


# --- plans ------------------------------------------------------------------------------------


def test_a_plan_is_checked_priced_and_in_order_of_first_jobs() -> None:
    """Rollout nodes 1 + 2, train nodes 1 + 1."""
    snapshot = snapshot_of(THREE, size=2, caps=(3, 2))
    plan = plan_of(snapshot, [GANG, SHARED], "mine")
    assert check_plan(plan).ok
    assert plan.usd_total == pytest.approx(3 * ROLLOUT_USD + 2 * TRAIN_USD)
    assert (plan.policy, plan.durations, plan.limits) == ("mine", "snapshot", snapshot.limits)
    assert [(g.group_id, [p.job_id for p in g.placements]) for g in plan.groups] == [
        ("g1", ["j0", "j1"]),
        ("g2", ["j2"]),
    ]
    assert [(g.from_s, g.to_s, g.rollout_nodes, g.train_nodes) for g in plan.groups] == [
        (0, 3600, (0,), (0,)),
        (0, 3600, (0, 1), (0,)),
    ]


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        ([SHARED], "coverage"),
        ([SHARED, GANG, GANG], "pins"),
        ([dataclasses.replace(SHARED, period_s=6.1), GANG], "slo"),
        ([dataclasses.replace(SHARED, starts_s=(((0.0, 5.0),), ((4.5, 5.5),))), GANG], "overlap"),
        ([dataclasses.replace(SHARED, starts_s=(((0.0, 4.9),), ((5.0, 6.0),))), GANG], "preced"),
        ([SHARED, dataclasses.replace(GANG, rollout_pins=((0,),))], "gang"),
        ([SHARED, dataclasses.replace(GANG, rates=(2,))], "rate"),
    ],
)
def test_groups_that_break_a_rule_are_a_fault_of_the_program(
    groups: Sequence[PlacedGroup], rule: str
) -> None:
    with pytest.raises(CheckError, match=rf"method mine .*\[{rule}.*fault of the program"):
        plan_of(snapshot_of(THREE), groups, "mine")


@pytest.mark.parametrize("more", [{"size": 1}, {"nodes": (1, None)}, {"nodes": (None, 1)}])
def test_limits_of_a_group_are_checked(more: dict[str, Any]) -> None:
    """SHARED has two jobs, GANG two rollout nodes; one train node each is within the limit."""
    snapshot = snapshot_of(THREE, **more)
    if more == {"nodes": (None, 1)}:
        assert plan_of(snapshot, [SHARED, GANG], "mine").limits.max_train_nodes == 1
        return
    with pytest.raises(CheckError, match=r"\[limits\]"):
        plan_of(snapshot, [SHARED, GANG], "mine")


@pytest.mark.parametrize("caps", [(2, None), (None, 1), (2, 1)])
def test_a_fleet_beyond_its_caps_is_a_fault_of_the_program(
    caps: tuple[int | None, int | None],
) -> None:
    with pytest.raises(CheckError, match="3 rollout and 2 train nodes, beyond the fleet caps"):
        plan_of(snapshot_of(THREE, caps=caps), [SHARED, GANG], "mine")


# --- and back ---------------------------------------------------------------------------------


def planned(jobs: Sequence[Job] = THREE) -> Plan:
    return plan_of(snapshot_of(jobs), [SHARED, GANG], "mine")


def test_groups_come_back_from_their_plan() -> None:
    snapshot = snapshot_of(THREE)
    assert groups_of(snapshot, planned()) == (SHARED, GANG)
    bare = [dataclasses.replace(group, rates=()) for group in (SHARED, GANG)]
    assert groups_of(snapshot, plan_of(snapshot, bare, "mine")) == (SHARED, GANG)


def test_groups_come_back_for_the_same_jobs_in_another_order() -> None:
    """Reversed, j2, j1, j0 are 0, 1, 2: members ascend, and everything of a job goes with it."""
    snapshot = snapshot_of(THREE[::-1])
    pair = dataclasses.replace(SHARED, members=(1, 2), starts_s=SHARED.starts_s[::-1])
    assert groups_of(snapshot, planned()) == (pair, dataclasses.replace(GANG, members=(0,)))


@pytest.mark.parametrize(
    ("jobs", "more", "words"),
    [
        (THREE[:2], {}, "places job 'j2', not of this snapshot"),
        ([*THREE, job_of("j3", 1, 1)], {}, "not a valid plan of this snapshot.*coverage"),
        ([*THREE[:2], job_of("j2", 2, 1, rollout_nodes=1)], {}, "not a valid plan.*gang"),
        ([*THREE[:2], job_of("j2", 2.5, 1, 1.0, rollout_nodes=2)], {}, "not a valid plan"),
        (THREE, {"size": 1}, "not a valid plan.*limits"),
        (THREE, {"caps": (2, None)}, "not a valid plan.*beyond the fleet caps"),
    ],
)
def test_a_warm_start_of_another_problem_is_refused(
    jobs: Sequence[Job], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        groups_of(snapshot_of(jobs, **more), planned())


def test_a_warm_start_for_dearer_nodes_is_priced_anew() -> None:
    """Only the groups are taken from a plan, not its prices."""
    dear = dataclasses.replace(
        DEFAULT_CLUSTER.rollout,
        gpu=dataclasses.replace(DEFAULT_CLUSTER.rollout.gpu, usd_per_gpu_hour=10.0),
    )
    snapshot = snapshot_of(THREE, cluster=DEFAULT_CLUSTER.replace(rollout=dear))
    groups = groups_of(snapshot, planned())
    assert plan_of(snapshot, groups, "mine").usd_total == pytest.approx(3 * 80 + 2 * TRAIN_USD)


def test_a_warm_start_with_a_group_of_no_job_is_refused() -> None:
    empty = dataclasses.replace(
        planned().groups[0], group_id="g9", placements=(), rollout_nodes=(), train_nodes=()
    )
    plan = dataclasses.replace(planned(), groups=(*planned().groups, empty))
    with pytest.raises(InputError, match="not a valid plan of this snapshot"):
        groups_of(snapshot_of(THREE), plan)


def test_nodes_that_no_job_of_a_warm_start_uses_are_left_out() -> None:
    first, second = planned().groups
    idle = dataclasses.replace(first, rollout_nodes=(0, 5))
    plan = dataclasses.replace(planned(), groups=(idle, second))
    assert groups_of(snapshot_of(THREE), plan) == (SHARED, GANG)


def test_the_price_of_one_pair_is_that_of_its_nodes() -> None:
    snapshot = Snapshot(table=JobTable.from_jobs(THREE[:2]))
    assert plan_of(snapshot, [SHARED], "mine").usd_total == pytest.approx(PAIR_USD)
