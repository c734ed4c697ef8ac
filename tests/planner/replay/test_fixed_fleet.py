"""The replay on a fixed fleet: jobs that do not fit wait, first come first served."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job_of, options_of, table_of
from fleet_cases import POLICIES, QUEUES, NodeQueue, fixed, random_jobs, require_kept
from instances.checker import check_plan
from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.jobs import Job, JobTable
from instances.plan import Fleet, Limits, Start
from planner.placement.placer import PlacerParams
from planner.policies.policy import Change, PolicyOptions, QueueRule, Room
from planner.policies.registry import POLICIES as REGISTERED
from planner.policies.weave import Weave
from planner.replay.replaying import Convention, ReplayResult, replay
from replay_cases import CONVENTIONS, HOUR_S, TRACES, both_conventions, jobs_of

all_policies = pytest.mark.parametrize("policy", POLICIES)
both_queues = pytest.mark.parametrize("queue", QUEUES)
ROOMY = 10_000


def lone(job_id: str, arrival_s: float, duration_s: float, **more: Any) -> Job:
    """Return a job with an SLO of 1 that fills its nodes: nobody can join it."""
    more = {"slo": 1.0, "rollout_state_gb": 1500.0, "train_state_gb": 1500.0, **more}
    return job_of(job_id, 10, 10, arrival_s=arrival_s, duration_s=duration_s, **more)


# --- By hand --------------------------------------------------------------------------------------


@all_policies
@both_conventions
@both_queues
def test_the_second_of_two_jobs_waits_until_the_first_leaves(
    policy: str, convention: Convention, queue: QueueRule
) -> None:
    # One node of each kind. a holds them 0 to 100 s; b comes at 10, starts at 100, ends at 150.
    jobs = table_of(lone("a", 0.0, 100.0), lone("b", 10.0, 50.0))
    result = fixed(jobs, policy, (1, 1), convention=convention, queue=queue)
    a, b = result.records
    assert (a.start_s, a.departure_s, b.start_s, b.departure_s) == (0.0, 100.0, 100.0, 150.0)
    assert result.waits_s.tolist() == [0.0, 90.0]
    assert (b.elapsed_s, b.wait_s, b.slowdown) == (50.0, 90.0, 1.0)
    assert result.admitted_at_once == 0.5
    assert [result.wait_quantile(share) for share in (0.01, 0.5, 0.51, 1.0)] == [0, 0, 90, 90]
    # Queueing apart both keep their SLO of 1; from its arrival b takes 140 s for 50 s of work.
    assert (result.slo_attainment, result.slo_attainment_with_wait) == (1.0, 0.5)
    line = result.timeline
    assert line.time_s.tolist() == [0.0, 10.0, 100.0, 150.0]
    assert line.waiting.tolist() == [0, 1, 0, 0]
    assert line.jobs.tolist() == [1, 1, 1, 0]
    assert result.horizon_h * HOUR_S == pytest.approx(150.0)
    assert result.plan is not None
    assert (result.plan.fleet, result.plan.starts) == (Fleet(1, 1), (Start("b", 100.0),))
    require_kept(result)


def test_a_slo_with_wait_counts_from_the_arrival() -> None:
    # b works 50 s and may take 2 x 50 = 100: it leaves 100 s after an arrival at 50, not at 49.
    for arrival_s, met in ((50.0, 1.0), (49.0, 0.5)):
        jobs = table_of(lone("a", 0.0, 100.0), lone("b", arrival_s, 50.0, slo=2.0))
        result = fixed(jobs, "solo", (1, 1))
        assert (result.slo_attainment, result.slo_attainment_with_wait) == (1.0, met)


@both_conventions
def test_who_can_share_does_not_wait(convention: Convention) -> None:
    # Two jobs of 10 + 10 s interleave in a period of 20 s: no slower than alone, no more nodes.
    jobs = table_of(
        job_of("a", 10, 10, duration_s=100), job_of("b", 10, 10, arrival_s=10, duration_s=100)
    )
    weave = fixed(jobs, "weave", (1, 1), convention=convention)
    assert weave.admitted_at_once == 1
    assert weave.records[1].admission == "direct"
    assert fixed(jobs, "solo", (1, 1), convention=convention).waits_s.tolist() == [0, 90]


def test_a_group_that_would_buy_too_much_is_skipped() -> None:
    # b needs 2 rollout nodes; a's group has one, so b would buy one more (rollout scaled).
    a = job_of("a", 10, 10, 4.0, duration_s=100)
    b = job_of("b", 10, 10, 4.0, arrival_s=10, duration_s=100, rollout_nodes=2)
    for fleet, admission, wait_s in (
        ((3, 2), "rollout_scaled", 0),  # the same choice as without a fleet: the cheapest
        ((2, 1), "rollout_scaled", 0),
    ):
        result = fixed(table_of(a, b), "weave", fleet, convention="wallclock")
        assert (result.records[1].admission, result.records[1].wait_s) == (admission, wait_s)
    # Two rollout nodes at most of which a's group has one: c brings the other, b waits for it.
    c = lone("c", 5.0, 50.0)
    result = fixed(table_of(a, c, b), "weave", (2, 2), convention="wallclock")
    assert (result.records[2].admission, result.records[2].start_s) == ("rollout_scaled", 55.0)


def test_a_job_joins_where_it_may_not_be_alone() -> None:
    # $/h x s: b alone 57.04 x 35 = 1,996; on a's nodes, 114.08 x (40 - 20) = 2,282; on a new
    # rollout node and a's train nodes, 128.88 x 35 - 114.08 x 20 = 2,229. Both keep their SLO.
    a = job_of("a", 10, 10, 4.0, duration_s=200, rollout_nodes=2, train_nodes=2)
    b = job_of("b", 30, 5, 4.0, arrival_s=10, duration_s=200)
    dear = PlacerParams(objective="per-iteration")
    jobs = table_of(a, b)
    free = replay(jobs, "weave", options_of(placer=dear))
    assert free.records[1].admission == "isolated"
    for fleet, admission in (
        ((3, 3), "isolated"),
        ((3, 2), "rollout_scaled"),
        ((2, 3), "direct"),
        ((2, 2), "direct"),
    ):
        result = fixed(jobs, "weave", fleet, placer=dear)
        assert (result.records[1].admission, result.records[1].wait_s) == (admission, 0)


@both_conventions
def test_nobody_passes_the_head_of_a_fifo_queue(convention: Convention) -> None:
    # 2 + 2 nodes, a on one of each. b needs two; c, which would fit at once, stays behind it.
    jobs = table_of(
        lone("a", 0.0, 100.0),
        lone("b", 10.0, 10.0, rollout_nodes=2, train_nodes=2),
        lone("c", 20.0, 10.0),
    )
    result = fixed(jobs, "solo", (2, 2), convention=convention)
    assert [r.start_s for r in result.records] == [0.0, 100.0, 110.0]


@both_conventions
def test_async_jobs_queue_for_the_same_nodes(convention: Convention) -> None:
    jobs = table_of(
        lone("a", 0.0, 100.0),
        lone("b", 10.0, 30.0, mode="async"),
        lone("c", 20.0, 10.0),
    )
    result = fixed(jobs, "weave", (1, 1), convention=convention)
    assert [r.start_s for r in result.records] == [0.0, 100.0, 130.0]
    assert result.plan is not None
    (nodes,) = result.plan.dedicated
    assert (nodes.from_s, nodes.to_s) == (100.0, 130.0)
    assert result.records[1].iterations == 30.0 / 10.0  # its phases of 10 s run side by side
    require_kept(result)


def test_who_leaves_and_who_comes_at_one_moment_are_seen_together() -> None:
    # a and b leave at 100, when c arrives: d, which needs both nodes, is first, then c waits.
    jobs = table_of(
        lone("a", 0.0, 100.0),
        lone("b", 0.0, 100.0),
        lone("d", 10.0, 10.0, rollout_nodes=2, train_nodes=2),
        lone("c", 100.0, 10.0),
    )
    result = fixed(jobs, "solo", (2, 2), convention="wallclock")
    assert {r.job.job_id: r.start_s for r in result.records} == {
        "a": 0.0, "b": 0.0, "d": 100.0, "c": 110.0,
    }  # fmt: skip


def test_to_a_policy_a_job_that_waited_arrives_when_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rules that look at how long jobs will stay count from there."""
    seen: list[tuple[str, float, float]] = []

    class Watching(Weave):
        def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
            change = super().arrive(job, now_s, room)
            if change is not None:
                seen.append((job.job_id, job.arrival_s, now_s))
            return change

    monkeypatch.setitem(REGISTERED, "weave", Watching)
    fixed(table_of(lone("a", 0.0, 100.0), lone("b", 10.0, 50.0)), "weave", (1, 1))
    assert seen == [("a", 0.0, 0.0), ("b", 100.0, 100.0)]


def test_bounds_count_a_job_from_its_start() -> None:
    jobs = table_of(lone("a", 0.0, 100.0), lone("b", 10.0, 50.0))
    result = fixed(jobs, "solo", (1, 1), convention="wallclock")
    # one node of each kind is the least for one job, all the time: the bound is the cost
    assert result.bound_usd_total == pytest.approx(result.usd_total)
    assert result.ratio == pytest.approx(1.0)


# --- Against the plain replay ---------------------------------------------------------------------


def same(fleet: ReplayResult, plain: ReplayResult) -> None:
    """Require that nothing but the fleet's name differs."""
    assert fleet.plan is not None
    assert plain.plan is not None
    assert fleet.records == plain.records
    assert fleet.plan.groups == plain.plan.groups
    assert fleet.plan.dedicated == plain.plan.dedicated
    assert fleet.plan.starts == ()
    for name in ("time_s", "jobs", "rollout_nodes", "train_nodes", "bound_usd_per_hour",
                 "sync_gbps", "waiting"):  # fmt: skip
        got, want = getattr(fleet.timeline, name), getattr(plain.timeline, name)
        np.testing.assert_array_equal(got, want, err_msg=name)
    assert fleet.usd_total == plain.usd_total
    assert fleet.bound_usd_total == plain.bound_usd_total
    assert (fleet.admission, fleet.breaches) == (plain.admission, plain.breaches)
    assert (fleet.admitted_at_once, fleet.waits_s.max()) == (1.0, 0.0)
    assert fleet.slo_attainment_with_wait == plain.slo_attainment


@both_queues
@all_policies
@both_conventions
@pytest.mark.parametrize("trace", TRACES)
def test_a_fleet_as_large_as_the_peak_changes_nothing(
    trace: str, policy: str, convention: Convention, queue: QueueRule
) -> None:
    jobs = jobs_of(trace)
    plain = replay(jobs, policy, options_of(), convention=convention)
    peak = plain.peak_nodes
    # random draws among all groups it may join, of which a smaller fleet would leave fewer
    more = ROOMY if policy == "random" else 0
    fleet = (peak["rollout"] + more, peak["train"] + more)
    same(fixed(jobs, policy, fleet, convention=convention, queue=queue), plain)


@pytest.mark.parametrize(
    "options",
    [
        {"placer": PlacerParams(objective="per-iteration")},
        {"placer": PlacerParams(train_scaling=True)},
        {"placer": PlacerParams(objective="per-iteration", train_scaling=True)},
        {"limits": Limits(max_rate=3)},
    ],
    ids=["per-iteration", "train-scaling", "both", "rates"],
)
@both_conventions
def test_the_same_whatever_the_placer_minimises(
    options: dict[str, Any], convention: Convention
) -> None:
    jobs = jobs_of("production-1-gangs")
    plain = replay(jobs, "weave", options_of(**options), convention=convention)
    same(fixed(jobs, "weave", (ROOMY, ROOMY), convention=convention, **options), plain)
    tight = [max(int(jobs.rollout_nodes.max()), plain.peak_nodes["rollout"] * 2 // 3),
             max(int(jobs.train_nodes.max()), plain.peak_nodes["train"] * 2 // 3)]  # fmt: skip
    for queue in QUEUES:
        result = fixed(
            jobs, "weave", (tight[0], tight[1]), convention=convention, queue=queue, **options
        )
        assert result.admitted_at_once < 1
        require_kept(result)


# --- Whatever the jobs ----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(POLICIES),
    convention=st.sampled_from(CONVENTIONS),
    queue=st.sampled_from(QUEUES),
    fleet=st.tuples(st.integers(3, 8), st.integers(2, 6)),
)
def test_nodes_suffice_everybody_ends_and_nobody_is_passed(
    seed: int, policy: str, convention: Convention, queue: QueueRule, fleet: tuple[int, int]
) -> None:
    jobs = random_jobs(seed)
    result = fixed(jobs, policy, fleet, convention=convention, queue=queue)
    require_kept(result)
    starts = [record.start_s for record in result.records]
    if queue == "fifo":
        assert starts == sorted(starts)
    # the timeline counts those that run and those that wait
    line = result.timeline
    for i, at_s in enumerate(line.time_s.tolist()):
        there = [r for r in result.records if r.job.arrival_s <= at_s < r.departure_s]
        assert line.waiting[i] == sum(r.start_s > at_s for r in there)
        assert line.jobs[i] == sum(r.start_s <= at_s for r in there)
    # each does its work: the same seconds (wallclock, async) or iterations (work)
    for record in result.records:
        if convention == "wallclock" or record.job.mode == "async":
            assert record.elapsed_s == pytest.approx(record.job.duration_s, rel=1e-9)
        else:
            assert record.iterations == record.job.iterations


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    convention=st.sampled_from(CONVENTIONS),
    queue=st.sampled_from(QUEUES),
    fleet=st.tuples(st.integers(3, 7), st.integers(2, 5)),
)
def test_solo_is_a_queue_for_nodes(
    seed: int, convention: Convention, queue: QueueRule, fleet: tuple[int, int]
) -> None:
    """An independent simulation that counts nodes alone gives every start."""
    jobs = random_jobs(seed)
    result = fixed(jobs, "solo", fleet, convention=convention, queue=queue, check=False)
    want = NodeQueue(jobs, fleet).starts(queue)
    got = {record.job.job_id: record.start_s for record in result.records}
    assert got == pytest.approx(want, rel=1e-9)


@all_policies
@both_conventions
def test_the_same_input_gives_the_same_replay(policy: str, convention: Convention) -> None:
    jobs = random_jobs(3)
    one, two = (fixed(jobs, policy, (4, 3), convention=convention, queue="backfill") for _ in "12")
    assert one.records == two.records
    assert one.plan is not None
    assert two.plan is not None
    assert one.plan.groups == two.plan.groups


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "fleet", "message"),
    [
        (lone("big", 0.0, 1.0, rollout_nodes=3), (2, 9), r"at least 3 rollout nodes, got 2 rollo"),
        (lone("big", 0.0, 1.0, train_nodes=2), (9, 1), r"at least 2 train nodes, got 9 rollout \+"),
        (lone("big", 0.0, 1.0), (0, 1), r"at least 1 rollout node, got 0 rollout"),
        (lone("big", 0.0, 1.0, mode="async", train_nodes=2), (9, 1), r"job 'big' is larger than"),
    ],
)
def test_a_job_larger_than_the_fleet_is_named(
    job: Job, fleet: tuple[int, int], message: str
) -> None:
    with pytest.raises(InfeasibleError, match=message):
        fixed(table_of(lone("ok", 0.0, 1.0, mode="sync"), job), "weave", fleet)


def test_colocated_needs_no_rollout_nodes() -> None:
    jobs = table_of(lone("a", 0.0, 100.0, rollout_nodes=3), lone("b", 10.0, 50.0))
    result = fixed(jobs, "colocated", (0, 1))
    assert result.waits_s.tolist() == [0.0, 90.0]
    require_kept(result)
    with pytest.raises(InfeasibleError, match="at least 1 train node, got 0 rollout"):
        fixed(jobs, "colocated", (0, 0))


def test_what_cannot_keep_to_a_fleet_says_so() -> None:
    jobs = table_of(lone("a", 0.0, 100.0))
    with pytest.raises(UnsupportedError, match="Policy 'regroup' does not keep to a fixed fleet"):
        fixed(jobs, "regroup", (1, 1))
    with pytest.raises(InputError, match=r"Expected queue in fifo, backfill, got 'fifa'\. Did you"):
        PolicyOptions(cluster=options_of().cluster, queue="fifa")  # type: ignore[arg-type]


def test_a_plan_for_a_fleet_is_refused_for_a_smaller_one() -> None:
    result = fixed(random_jobs(1), "weave", (5, 4))
    assert result.plan is not None
    peak = result.peak_nodes
    smaller = Fleet(peak["rollout"] - 1, peak["train"])
    report = check_plan(dataclasses.replace(result.plan, fleet=smaller))
    assert report.counts == {"fleet": 1}


def test_quantiles_are_order_statistics() -> None:
    jobs = table_of(*(lone(f"j{i}", 0.0, 10.0) for i in range(20)))
    result = fixed(jobs, "solo", (1, 1), convention="wallclock")
    # waits 0, 10, .., 190: 19 of 20 jobs are 95 %, the 10th is the median
    assert result.wait_quantile(0.95) == 180.0
    assert result.wait_quantile(0.951) == 190.0
    assert result.wait_quantile(0.5) == 90.0
    assert result.wait_quantile(0.0) == 0.0
    assert not math.isnan(result.admitted_at_once)


def test_a_table_of_one_job_never_waits() -> None:
    result = fixed(JobTable.from_jobs([lone("a", 5.0, 10.0)]), "weave", (1, 1))
    assert (result.waits_s.tolist(), result.admitted_at_once) == ([0.0], 1.0)
