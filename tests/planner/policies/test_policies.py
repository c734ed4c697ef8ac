"""The three policies behind one protocol, event by event."""

from __future__ import annotations

import itertools
import math

import pytest

from builders import cluster_of, job_of, options_of, violations
from instances.errors import InputError
from instances.plan import Limits
from planner.placement.placer import PlacerParams
from planner.policies.dedicated import Colocated, Solo
from planner.policies.policy import Change
from planner.policies.registry import POLICIES, make_policy, require_policy
from planner.policies.weave import Weave

A = job_of("a", 200, 100, 1.5)
B = job_of("b", 100, 150, 1.5)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_listed_under_its_own_name(name: str) -> None:
    policy = make_policy(name, options_of())
    assert policy.name == name
    assert make_policy(name, options_of()) is not policy  # fresh: a policy has a memory


@pytest.mark.parametrize(
    ("name", "promises_valid", "kinds"),
    [
        ("weave", True, ("direct", "rollout_scaled", "isolated")),
        ("repack", True, ("direct", "rollout_scaled", "train_scaled", "isolated", "repacked")),
        ("regroup", True, ("direct", "rollout_scaled", "isolated")),
        ("solo", True, ()),  # jobs do not meet
        ("colocated", False, ()),  # both phases on one pool: outside section 3
        ("random", False, ("direct", "rollout_scaled", "train_scaled", "isolated")),
        ("most-idle", False, ("direct", "rollout_scaled", "train_scaled", "isolated")),
        ("gavel", False, ("direct", "rollout_scaled", "train_scaled", "isolated")),
        ("swapping", False, ("direct", "rollout_scaled", "train_scaled", "isolated")),
    ],
)
def test_what_a_policy_promises(name: str, promises_valid: bool, kinds: tuple[str, ...]) -> None:
    policy = make_policy(name, options_of())
    assert (policy.promises_valid, policy.admission_kinds) == (promises_valid, kinds)
    assert policy.uses_seed == (name == "random")


@pytest.mark.parametrize("ask", [require_policy, lambda name: make_policy(name, options_of())])
def test_unknown_policy_names_the_nearest(ask: object) -> None:
    with pytest.raises(InputError) as caught:
        ask("weav")  # type: ignore[operator]
    assert str(caught.value).startswith(
        "Unknown policy 'weav'. Did you mean 'weave'? Known policies: weave, repack, regroup, solo"
    )


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_colocated_factor_is_a_positive_number(factor: float) -> None:
    with pytest.raises(InputError, match="colocated_factor > 0"):
        options_of(colocated_factor=factor)


# --- weave -----------------------------------------------------------------------------------


def test_weave_reports_what_changed() -> None:
    policy = make_policy("weave", options_of())
    first = policy.arrive(A, 0.0)
    assert (first.admission, first.ended) == ("isolated", ())
    second = policy.arrive(B, 1.0)
    assert second.admission == "direct"
    (group,) = second.groups
    assert [job.job_id for job in group.jobs] == ["a", "b"]
    left = policy.depart(A, 2.0)
    assert (left.admission, left.ended) == (None, ())
    assert [job.job_id for job in left.groups[0].jobs] == ["b"]
    assert left.groups[0].period_s == 250  # T_b
    assert policy.depart(B, 3.0) == Change((), (1,))


def test_weave_passes_limits_and_parameters_on() -> None:
    alone = make_policy("weave", options_of(limits=Limits(max_group_size=1)))
    assert [alone.arrive(job, 0.0).admission for job in (A, B)] == ["isolated"] * 2
    scaled = make_policy("weave", options_of(placer=PlacerParams(train_scaling=True)))
    twins = [job_of(i, 100, 200, 1) for i in "ab"]
    assert [scaled.arrive(job, 0.0).admission for job in twins] == ["isolated", "train_scaled"]
    small = make_policy("weave", options_of(cluster=cluster_of(host_dram_gb=100)))
    full = [job_of(i, 100, 150, 1.5, train_state_gb=60) for i in "ab"]
    assert [small.arrive(job, 0.0).admission for job in full] == ["isolated"] * 2


def test_weave_times_decisions_by_the_clock_it_is_given() -> None:
    """A clock that ticks once per look: one second between the two looks of a decision."""
    ticks = itertools.count()
    policy = Weave(options_of(clock=lambda: float(next(ticks))))
    policy.arrive(A, 0.0)
    policy.arrive(B, 0.0)
    policy.depart(A, 1.0)
    assert policy.decision_s == [1.0, 1.0]
    untimed = Weave(options_of())
    untimed.arrive(A, 0.0)
    assert untimed.decision_s == []


# --- solo and colocated ----------------------------------------------------------------------


def test_solo_gives_every_job_nodes_of_its_own() -> None:
    policy = Solo(options_of())
    for number, job in enumerate((A, B), start=1):
        change = policy.arrive(job, 0.0)
        assert (change.admission, change.ended) == (None, ())
        (group,) = change.groups
        assert (group.number, group.jobs) == (number, (job,))
        assert group.period_s == job.solo_s
        assert violations(group) == []
    assert policy.depart(A, 1.0) == Change((), (1,))
    assert policy.depart(B, 1.0) == Change((), (2,))


def test_solo_gangs() -> None:
    (group,) = (
        Solo(options_of()).arrive(job_of("g", 1, 2, rollout_nodes=3, train_nodes=2), 0).groups
    )
    assert (group.rollout_nodes, group.train_nodes) == ((0, 1, 2), (0, 1))


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
def test_colocated_runs_on_train_nodes_alone_at_factor_times_solo(factor: float) -> None:
    """T = 200 + 100 + 10 = 310 s, rollout first, train at factor x 200."""
    policy = Colocated(options_of(colocated_factor=factor))
    job = job_of("a", 200, 100, 1.5, sync_s=10, rollout_nodes=4, train_nodes=2)
    (group,) = policy.arrive(job, 0.0).groups
    assert (group.rollout_nodes, group.train_nodes) == ((), (0, 1))
    assert group.period_s == pytest.approx(factor * 310)
    assert group.starts_s == (((0.0, factor * 200),),)
    assert {v.rule for v in violations(group)} >= {"gang"}
    assert policy.depart(job, 1.0) == Change((), (1,))
