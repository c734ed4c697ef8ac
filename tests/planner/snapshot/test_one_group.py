"""The shortest schedule of one group: known periods, proofs, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from builders import cluster_of, job_of
from instances.catalog import catalog_path
from instances.errors import InfeasibleError, InputError
from instances.jobs import Job
from instances.plan import Limits
from instances.trace import read_trace
from oracles.least_period import least_period
from planner.placement.group_rules import slack_words, tightest
from planner.snapshot.one_group import schedule_group, why_no_group

GANG_PINS = [(0, 1, 2), (1, 2), (0, 1, 2), (0, 1), (0, 2)]


def test_open_shop_reaches_its_bound() -> None:
    """Rollouts 120 + 60, trains 60 + 120: both nodes carry 180 s, and so does each chain."""
    found = schedule_group(read_trace(catalog_path("tiny-open-shop")).jobs)
    assert found.bound.period_s == found.period_s == pytest.approx(180)
    assert found.proved
    assert found.within_slo  # deadlines 1.25 x 180
    assert found.deadline_s == pytest.approx(225)


def test_sync_makes_the_bound_unreachable() -> None:
    """FORMULATION section 4: LB 11, least 11.5; all three deadlines are 11."""
    found = schedule_group(read_trace(catalog_path("tiny-sync-gap")).jobs)
    assert (found.bound.chain_s, found.bound.node_s) == (11, 11)
    assert found.period_s == pytest.approx(11.5, rel=1e-9)
    assert found.proved
    assert not found.within_slo
    rule = tightest(found.group, found.jobs, cluster_of())
    assert slack_words(rule) == "the period is 4.5 % above its deadline"  # 0.5 of 11


def test_gangs_that_all_meet_add_up() -> None:
    """Node loads 31; every two of the five rollouts share a node, and all are 34 s long."""
    jobs = read_trace(catalog_path("tiny-gang")).jobs
    found = schedule_group(jobs, rollout_pins=GANG_PINS)
    assert (found.bound.node_s, found.bound.clique_s) == (31, 34)
    assert found.period_s == pytest.approx(34, rel=1e-9)
    assert found.proved
    assert [p.rollout_pins for p in found.group.placements] == GANG_PINS


def five_cycle() -> list[Job]:
    """Return five unit rollouts of two nodes each; trains and slo do not matter."""
    return [job_of(f"u{i}", 1.0, 0.001, 3000.0, rollout_nodes=2) for i in range(5)]


def test_a_five_cycle_needs_two_and_a_half() -> None:
    """On the edges of a 5-cycle at most two of five are at once: 5 / 2; no bound says so."""
    pins = [(i, (i + 1) % 5) for i in range(5)]
    found = schedule_group(five_cycle(), rollout_pins=pins, train_pins=[(i,) for i in range(5)])
    assert found.bound.period_s == pytest.approx(2)
    assert found.period_s == pytest.approx(2.5, rel=1e-9)
    assert found.proved


def hard_group() -> tuple[list[Job], dict[str, list[tuple[int, ...]]]]:
    """Return a group whose first schedule, 19.5 s, is not the shortest, 19 s (LB 19)."""
    times = [(6, 8, 2), (6, 9, 4), (1, 2, 2), (5, 5, 0), (1, 7, 4)]
    jobs = [
        job_of(f"j{i}", r, t, 9, sync_s=s, rollout_nodes=2) for i, (r, t, s) in enumerate(times)
    ]
    return jobs, {
        "rollout_pins": [(1, 0), (0, 1), (0, 2), (1, 2), (2, 0)],
        "train_pins": [(1,), (0,), (0,), (0,), (1,)],
    }


def test_a_search_cut_short_proves_nothing() -> None:
    """One branch is too few to find what more branches, and the oracle, find."""
    jobs, pins = hard_group()
    short = schedule_group(jobs, max_branches=1, **pins)
    whole = schedule_group(jobs, **pins)
    assert whole.proved
    assert whole.period_s == pytest.approx(oracle_s(jobs, **pins), rel=1e-6)
    assert short.period_s > whole.period_s * (1 + 1e-6)
    assert not short.proved


def oracle_s(
    jobs: list[Job], rollout_pins: list[tuple[int, ...]], train_pins: list[tuple[int, ...]]
) -> float:
    """Return the least period by an independent MILP."""
    return least_period(
        [job.rollout_s for job in jobs],
        [job.train_s for job in jobs],
        [job.sync_s for job in jobs],
        rollout_pins,
        train_pins,
    )[0]


@pytest.mark.parametrize("seed", range(12))
def test_periods_are_those_of_an_independent_milp(seed: int) -> None:
    rng = random.Random(seed)
    jobs, rollout_pins, train_pins = [], [], []
    for i in range(rng.choice((2, 3, 4))):
        width = rng.choice((1, 1, 2))
        seconds = rng.randint(1, 9), rng.randint(1, 9), 9
        jobs.append(job_of(f"j{i}", *seconds, sync_s=rng.choice((0, 2, 5)), rollout_nodes=width))
        rollout_pins.append(tuple(rng.sample(range(3), width)))
        train_pins.append((rng.randrange(2),))
    found = schedule_group(jobs, rollout_pins=rollout_pins, train_pins=train_pins)
    assert found.proved
    assert found.period_s == pytest.approx(oracle_s(jobs, rollout_pins, train_pins), rel=3e-6)


def test_pins_are_by_default_the_first_nodes() -> None:
    jobs = [job_of("a", 10, 10, 4, rollout_nodes=2), job_of("b", 10, 10, 4)]
    found = schedule_group(jobs)
    assert [p.rollout_pins for p in found.group.placements] == [(0, 1), (0,)]
    assert [p.train_pins for p in found.group.placements] == [(0,), (0,)]
    assert found.period_s == pytest.approx(20)


def test_switches_are_paid_on_shared_nodes_only() -> None:
    """Two jobs (10, 10) with switches of 1 s: 2 x 11 s a node; on train nodes apart 10 + 11."""
    jobs = [
        job_of(name, 10, 10, 4, rollout_switch_s=1.0, train_switch_s=1.0) for name in ("a", "b")
    ]
    assert schedule_group(jobs).period_s == pytest.approx(22)
    apart = schedule_group(jobs, train_pins=[(0,), (1,)])
    assert apart.bound.chain_s == pytest.approx(21)
    assert apart.period_s == pytest.approx(22)  # the rollout node still carries 2 x 11


def test_state_beyond_the_dram_is_refused() -> None:
    jobs = [job_of(name, 10, 10, 4, train_state_gb=600.0) for name in ("a", "b")]
    assert schedule_group(jobs, cluster=cluster_of(host_dram_gb=1200.0)).proved
    with pytest.raises(InfeasibleError, match=r"1199|1,199"):
        schedule_group(jobs, cluster=cluster_of(host_dram_gb=1199.0))


@pytest.mark.parametrize(
    ("jobs", "options", "words"),
    [
        ([], {}, "at least one job in a group, got none"),
        ([job_of("a", 1, 1, 2, mode="async")], {}, r"sync or one-step, got async \(job 'a'\)"),
        ([job_of("a", 1, 1, 2)], {"max_branches": 0}, "max_branches >= 1, got 0"),
        ([job_of("a", 1, 1, 2)], {"train_pins": [(0, 1)]}, r"train_pins of 1 nodes.* got \[\(0, 1"),
        ([job_of("a", 1, 1, 2)], {"rollout_pins": []}, r"rollout_pins of 1 nodes.* got \[\]"),
    ],
)
def test_what_is_no_group_is_refused(jobs: list[Job], options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        schedule_group(jobs, **options)


# --- why there is no group ----------------------------------------------------------------------


def test_why_three_jobs_need_more_than_a_pair() -> None:
    """Loads are 11 s, as are the deadlines; the least period is 11.5 s (FORMULATION section 4).

    Cures: a node more of either pool, or SLOs of 11.5 s over ``T`` = 9, 11 and 7 s.
    """
    jobs = read_trace(catalog_path("tiny-sync-gap")).jobs
    found = why_no_group(jobs, nodes=(1, 1))
    assert found is not None
    assert (found.rule, found.job_ids) == ("precedence", tuple(jobs.job_id))
    assert "11.5 s, 0.5 s more than the 11 s" in found.message
    rollout, train, slo = found.relaxations
    assert (rollout, train) == (
        "Use 2 rollout nodes instead of 1.",
        "Use 2 train nodes instead of 1.",
    )
    assert [f"{11.5 / solo_s:.4f}" in slo for solo_s in (9, 11, 7)] == [True] * 3
    assert why_no_group(jobs, nodes=(2, 1)) is None
    assert why_no_group(tuple(jobs)) is None


def test_what_is_told_obeys_limits_and_host_dram() -> None:
    pair = [job_of(name, 10, 10, 4, rollout_state_gb=600, train_state_gb=10) for name in "ab"]
    assert why_no_group(pair, nodes=(1, 1)) is None
    small = why_no_group(pair, nodes=(1, 1), cluster=cluster_of(host_dram_gb=1000))
    assert small is not None
    assert small.rule == "residency"
    alone = why_no_group(pair, limits=Limits(max_group_size=1))
    assert alone is not None
    assert alone.rule == "max_group_size"


def test_no_group_is_asked_about_of_nobody_and_of_async_jobs() -> None:
    with pytest.raises(InputError, match="at least one job"):
        why_no_group([])
    with pytest.raises(InputError, match="got async"):
        why_no_group([job_of("a", 1, 1, mode="async")])
