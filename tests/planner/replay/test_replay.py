"""Replay by hand and by event: order, SLOs, modes, checking, progress and determinism."""

from __future__ import annotations

import dataclasses
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    PAIR_USD,
    ROLLOUT_USD,
    TRAIN_USD,
    cluster_of,
    job_of,
    options_of,
    random_job,
    table_of,
)
from instances.checker import check_plan, recost
from instances.errors import CheckError, InputError
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER, Links
from instances.jobs import Job
from instances.plan import Limits
from instances.plan_file import plan_to_dict
from planner.placement.group_state import GroupState
from planner.placement.placer import PlacerParams
from planner.policies.dedicated import Solo
from planner.policies.policy import Change, PolicyOptions, Room
from planner.policies.registry import POLICIES
from planner.policies.weave import Weave
from planner.replay.replaying import Convention, replay
from replay_cases import (
    CONVENTIONS,
    HOUR_S,
    all_policies,
    both_conventions,
    jobs_of,
    of,
    replayed,
    valid_policies,
)

# --- By hand -----------------------------------------------------------------------------------

# T = 150 s; together the rollout node carries 200 s, so C = 200 s. Alone a has 10 iterations
# in 1500 s, b 20 in 3000 s; one iteration syncs 10 GB = 80 Gbit.
A = job_of("a", 100, 50, 2, duration_s=1500, sync_gb=10)
B = job_of("b", 100, 50, 2, duration_s=3000, sync_gb=10)


def test_two_jobs_by_work() -> None:
    """a: 10 x 200 s, to 2000. b has then 10 left, at 150 s: to 3500. One pair of nodes."""
    result = of(A, B)
    assert [r.departure_s for r in result.records] == pytest.approx([2000, 3500])
    assert result.usd_total == pytest.approx(PAIR_USD * 3500 / HOUR_S)
    assert result.admission == {"direct": 1, "rollout_scaled": 0, "isolated": 1}
    assert [r.slowdown for r in result.records] == pytest.approx([2000 / 1500, 3500 / 3000])
    assert [r.worst_iteration_s for r in result.records] == [200, 200]
    # shared evenly: 1000 s each while both are there, b alone for 1500 s more
    assert [r.rollout_node_s for r in result.records] == pytest.approx([1000, 2500])
    assert [r.train_node_s for r in result.records] == pytest.approx([1000, 2500])
    # 30 rollouts of 100 s and trains of 50 s in 3500 s
    assert result.idle_fraction == pytest.approx({"rollout": 1 / 7, "train": 4 / 7})
    assert result.timeline.time_s.tolist() == pytest.approx([0, 2000, 3500])
    assert result.timeline.jobs.tolist() == [2, 1, 0]


def test_two_jobs_by_wallclock() -> None:
    """a leaves at 1500 after 7.5 iterations; b does 7.5 more by then and 1500 / 150 = 10 after."""
    result = of(A, B, convention="wallclock")
    assert [r.departure_s for r in result.records] == [1500, 3000]
    assert [r.iterations for r in result.records] == pytest.approx([7.5, 17.5])
    assert result.usd_total == pytest.approx(PAIR_USD * 3000 / HOUR_S)
    # 25 rollouts of 100 s and trains of 50 s in 3000 s
    assert result.idle_fraction == pytest.approx({"rollout": 1 / 6, "train": 7 / 12})
    # elapsed / (iterations x T)
    assert [r.slowdown for r in result.records] == pytest.approx([4 / 3, 3000 / 2625])


def test_switches_and_sync_are_not_run_time() -> None:
    """Switches 10 s each, sync 20 s: rollouts 2 x 110, trains 2 x 60, cycles 110 + 60 + 20: the
    rollout node is full at C = 220 s and runs 200 of them, the train node 100.
    """
    more = {"rollout_switch_s": 10.0, "train_switch_s": 10.0, "sync_s": 20.0}
    twins = [dataclasses.replace(job, **more, duration_s=1700) for job in (A, B)]
    result = of(*twins)  # 10 iterations of T = 170 each
    assert [r.departure_s for r in result.records] == pytest.approx([2200, 2200])
    assert result.idle_fraction == pytest.approx({"rollout": 20 / 220, "train": 120 / 220})


@pytest.mark.parametrize("factor", [1.0, 2.0])
@both_conventions
def test_colocated_runs_factor_times_as_long_and_idles_in_sync(
    factor: float, convention: Convention
) -> None:
    """T = 100 + 50 + 30 s: of each iteration 150 / 180 runs, whatever the factor."""
    jobs = table_of(dataclasses.replace(A, sync_s=30.0))
    options = options_of(colocated_factor=factor)
    result = replay(jobs, "colocated", options, convention=convention)
    assert result.idle_fraction == {"rollout": None, "train": pytest.approx(1 / 6)}


def test_fractions_of_iterations_carry_over() -> None:
    """b joins at 75 s, half an iteration into a's first; a: 9.5 x 200 + 75 = 1975 s."""
    result = of(A, dataclasses.replace(B, arrival_s=75.0))
    assert result.records[0].departure_s == pytest.approx(1975)
    # b: 1900 / 200 = 9.5 iterations by then, 10.5 x 150 after
    assert result.records[1].departure_s == pytest.approx(1975 + 1575)


def test_less_than_one_iteration() -> None:
    """30 s of a job with T = 150 s are a fifth of an iteration."""
    result = of(dataclasses.replace(A, duration_s=30.0))
    assert result.records[0].iterations == pytest.approx(0.2)
    assert result.horizon_h == pytest.approx(30 / HOUR_S)


def test_link_utilisation_by_hand() -> None:
    """2 x 80 Gbit each 200 s = 0.8 Gb/s for 2000 s, then 80 / 150 = 0.5333 for 1500 s, on one
    link (two nodes) of 20 Gb/s.
    """
    result = of(A, B)
    assert result.links == 1
    use = result.link_utilisation
    assert use["peak"] == pytest.approx(0.8 / 20)
    assert use["mean"] == pytest.approx((0.8 * 2000 + 80 / 150 * 1500) / 3500 / 20)


@pytest.mark.parametrize(("links", "count"), [(None, 2), (5, 5)])
def test_links_follow_the_larger_pool(links: int | None, count: int) -> None:
    """17 rollout nodes at the peak: one link per 16 begun, unless the cluster says."""
    cluster = DEFAULT_CLUSTER.replace(links=Links(links=links))
    jobs = table_of(job_of("a", 1, 1, 1, rollout_nodes=17))
    result = replay(jobs, "solo", options_of(cluster=cluster))
    assert result.links == count


def test_colocated_syncs_over_no_link() -> None:
    assert of(A, B, policy="colocated").link_utilisation == {"mean": 0.0, "peak": 0.0}


def test_mean_price_and_bound_by_hand() -> None:
    """Bound: both phases of both jobs fill 2 x 100 / 300 of a rollout node and less of a train
    node: one of each, all the time, so weave is optimal here.
    """
    result = of(A, B)
    assert result.usd_per_hour_mean == pytest.approx(PAIR_USD)
    assert result.bound_usd_total == pytest.approx(result.usd_total)
    assert result.bound_method == "volume"
    # solo: two pairs for 1500 s, one for 1500 s more
    solo = of(A, B, policy="solo")
    assert solo.usd_total == pytest.approx(PAIR_USD * 4500 / HOUR_S)
    assert solo.bound_usd_total == pytest.approx(PAIR_USD * 3000 / HOUR_S)


# --- Events at one moment ----------------------------------------------------------------------


@all_policies
@both_conventions
def test_a_departure_frees_its_nodes_before_an_arrival_at_the_same_moment(
    policy: str, convention: Convention
) -> None:
    """a is there from 0 to 1500, b from 1500 on: never two at once, and b finds nobody."""
    result = of(A, dataclasses.replace(B, arrival_s=1500.0), policy=policy, convention=convention)
    assert result.timeline.jobs.tolist() == [1, 1, 0]
    assert result.peak_nodes["train"] == 1
    assert [r.group_size_max for r in result.records] == [1, 1]
    if policy == "weave":
        assert [r.admission for r in result.records] == ["isolated", "isolated"]
        assert result.records[0].group_id != result.records[1].group_id


@both_conventions
def test_arrivals_at_one_moment_come_in_the_order_of_the_trace(convention: Convention) -> None:
    for jobs in ((A, B), (B, A)):
        result = of(*jobs, convention=convention)
        assert [r.job.job_id for r in result.records] == [job.job_id for job in jobs]
        assert [r.admission for r in result.records] == ["isolated", "direct"]
        assert len(result.timeline.time_s) == 3  # one row per moment


@all_policies
@both_conventions
def test_departures_at_one_moment(policy: str, convention: Convention) -> None:
    """Twins leave together: one row with two jobs, one with none; no version of zero length."""
    twin = dataclasses.replace(A, job_id="twin")
    result = of(A, twin, policy=policy, convention=convention)
    assert result.timeline.jobs.tolist() == [2, 0]
    assert result.plan is not None
    assert all(g.from_s < g.to_s for g in result.plan.groups)
    assert result.records[0].departure_s == result.records[1].departure_s


def test_many_at_once() -> None:
    """50 arrivals at 0, 50 departures at 1500 (wallclock) as 50 newcomers arrive."""
    first = [dataclasses.replace(A, job_id=f"a{i}") for i in range(50)]
    second = [dataclasses.replace(A, job_id=f"b{i}", arrival_s=1500.0) for i in range(50)]
    result = of(*first, *second, convention="wallclock")
    assert result.timeline.jobs.tolist() == [50, 50, 0]
    halves = [
        [g for g in result.plan.groups if g.from_s == at]  # type: ignore[union-attr]
        for at in (0.0, 1500.0)
    ]
    assert [[len(g.placements) for g in half] for half in halves] == [[2] * 25] * 2


def test_arrivals_far_from_zero() -> None:
    """Unix seconds as arrivals: the same figures, and the checker still agrees."""
    near = of(A, dataclasses.replace(B, arrival_s=75.0))
    at = 1.7e9
    far = of(dataclasses.replace(A, arrival_s=at), dataclasses.replace(B, arrival_s=at + 75.0))
    assert far.checked
    assert far.usd_total == pytest.approx(near.usd_total)


# --- SLO ---------------------------------------------------------------------------------------


@both_conventions
def test_slo_attainment_counts_misses(convention: Convention) -> None:
    """Factor 2: slowdown 2 misses 1.5 and exactly meets 2."""
    jobs = table_of(dataclasses.replace(A, slo=1.5), B)
    result = replay(jobs, "colocated", options_of(colocated_factor=2.0), convention=convention)
    assert [r.slo_met for r in result.records] == [False, True]
    assert result.slo_attainment == 0.5
    assert result.slo_attainment_worst_period == 0.5
    assert not result.checked
    assert result.breaches["slo"] == 1


def test_a_slow_hour_may_be_made_up_for() -> None:
    """The SLO is on the mean, the second key on the worst period: b iterates at 200 s beside a,
    at 150 s afterwards; with slo 1.2 its mean 3500 / 20 = 175 <= 180 holds, its worst does not.
    """
    result = of(A, B)
    record = dataclasses.replace(result.records[1], job=dataclasses.replace(B, slo=1.2))
    assert record.slo_met
    assert not record.worst_within_slo


# --- Async ------------------------------------------------------------------------

ASYNC = job_of(
    "async", 100, 50, 1, duration_s=3600, arrival_s=60, rollout_nodes=2, mode="async", sync_gb=10
)


@all_policies
@both_conventions
def test_async_jobs_get_dedicated_nodes(policy: str, convention: Convention) -> None:
    """2 x 14.80 + 42.24 = $71.84 for its hour, beside and never with the others; its rollouts
    (100 of T = max(r, t) = 100 s) keep its nodes busy, its trains half.
    """
    alone = of(A, B, policy=policy, convention=convention)
    result = of(A, ASYNC, B, policy=policy, convention=convention)
    assert result.dedicated_usd_total == pytest.approx(2 * ROLLOUT_USD + TRAIN_USD)
    assert result.usd_total == pytest.approx(alone.usd_total + result.dedicated_usd_total)
    assert result.bound_usd_total == pytest.approx(
        alone.bound_usd_total + result.dedicated_usd_total
    )
    record = result.records[2]  # in order of arrival
    assert (record.job.job_id, record.group_id, record.admission) == ("async", "dedicated", None)
    assert record.departure_s == 3660
    assert record.iterations == pytest.approx(36)
    assert (record.rollout_node_s, record.train_node_s) == (7200, 3600)
    assert record.slowdown == pytest.approx(1)
    assert result.plan is not None
    (item,) = result.plan.dedicated
    assert (item.from_s, item.to_s, item.rollout_nodes, item.train_nodes) == (60, 3660, 2, 1)
    if result.promises_valid:
        assert check_plan(result.plan).ok


@both_conventions
def test_only_async_jobs(convention: Convention) -> None:
    """The bound is what they hold; nothing else can idle, or miss an SLO, or be compared."""
    result = of(ASYNC, convention=convention)
    assert result.usd_total == pytest.approx(result.bound_usd_total) == 71.84
    assert result.idle_fraction == {"rollout": None, "train": None}
    assert result.ratio is None
    assert result.admission == {"direct": 0, "rollout_scaled": 0, "isolated": 0}
    assert result.slo_attainment == 1


def test_empty_table() -> None:
    with pytest.raises(InputError, match="at least one job"):
        of()


# --- Checking ----------------------------------------------------------------------------------


@valid_policies
def test_check_can_be_switched_off_and_says_so(policy: str) -> None:
    jobs = table_of(A, B)
    off = replay(jobs, policy, options_of(), check=False)
    on = replay(jobs, policy, options_of())
    assert (off.checked, on.checked) == (False, True)
    assert off.usd_total == on.usd_total


class Hurried(Solo):
    """Promises valid plans, but iterates twice as fast as the job can."""

    name = "hurried"

    def _group(self, job: Job, number: int) -> GroupState:
        group = super()._group(job, number)
        return dataclasses.replace(group, period_s=group.period_s / 2)


class Mover(Weave):
    """Moves whoever stays to rollout node 9 when somebody leaves: valid at any moment, but the
    plan as a whole moves a running job.
    """

    name = "mover"

    def depart(self, job: Job, now_s: float) -> Change:
        change = super().depart(job, now_s)
        moved = tuple(
            dataclasses.replace(g, rollout_pins=tuple((9,) for _ in g.jobs)) for g in change.groups
        )
        return dataclasses.replace(change, groups=moved)


class Forgetful(Weave):
    """Keeps the newcomer's pins but forgets to give it a train node of the group."""

    name = "forgetful"

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        change = super().arrive(job, now_s, room)
        assert change is not None
        (group,) = change.groups
        pins = (*group.train_pins[:-1], ())
        return dataclasses.replace(change, groups=(dataclasses.replace(group, train_pins=pins),))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Hurried, r"Policy hurried made an invalid plan at 0\.0 s: .*'a'"),
        (Mover, r"Policy mover made an invalid plan: .*rollout pins of job 'b'.*stay \[0\]"),
        (Forgetful, r"Policy forgetful made an invalid plan at 0\.0 s: .*'a'"),
    ],
)
def test_a_policy_that_breaks_its_promise_is_caught(
    policy: type[Weave] | type[Solo], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLICIES, policy.name, policy)
    with pytest.raises(CheckError, match=message):
        of(A, B, policy=policy.name)


def test_no_check_lets_it_pass_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "hurried", Hurried)
    result = replay(table_of(A, B), "hurried", options_of(), check=False)
    assert not result.checked
    assert result.plan is not None
    assert not check_plan(result.plan).ok


def test_breaches_of_a_policy_that_promises_nothing_are_counted() -> None:
    """Each job is one group version without rollout pins: "gang" once per job."""
    result = of(A, B, policy="colocated")
    assert not result.promises_valid
    assert result.breaches["gang"] == 2
    assert replay(table_of(A, B), "colocated", options_of(), check=False).breaches == (
        result.breaches
    )


def test_unknown_convention() -> None:
    with pytest.raises(InputError, match="wallclok"):
        of(A, convention="wallclok")  # type: ignore[arg-type]


# --- Progress, determinism, scaling ------------------------------------------------------------


@all_policies
@pytest.mark.parametrize("n_jobs", [1, 60, 450])
def test_progress_is_monotone(policy: str, n_jobs: int) -> None:
    seen: list[tuple[int, int]] = []
    jobs = production(n_jobs=n_jobs, seed=4)
    replay(jobs, policy, options_of(), check=False, progress=lambda *a: seen.append(a))
    done = [d for d, _ in seen]
    assert done == sorted(set(done))
    assert 1 <= done[0] <= done[-1] <= n_jobs
    assert {total for _, total in seen} == {n_jobs}
    assert done[-1] > n_jobs * 0.99
    assert len(seen) <= 300  # now and then


@both_conventions
def test_two_runs_are_equal(convention: Convention) -> None:
    first = replayed("production-1-gangs", "weave", convention)
    second = replay(jobs_of("production-1-gangs"), "weave", options_of(), convention=convention)
    assert first.plan is not None
    assert second.plan is not None
    assert json.dumps(plan_to_dict(first.plan)) == json.dumps(plan_to_dict(second.plan))
    assert first.records == second.records
    assert (first.usd_total, first.bound_usd_total) == (second.usd_total, second.bound_usd_total)


@all_policies
@both_conventions
@pytest.mark.parametrize("objective", ["per-hour", "per-iteration"])
def test_twice_the_prices_twice_the_cost_and_the_same_decisions(
    policy: str, convention: Convention, objective: str
) -> None:
    placer = PlacerParams(objective=objective)
    once, twice = (
        replay(
            jobs_of("production-2-gangs"),
            policy,
            options_of(
                cluster=cluster_of(rollout_usd=k * ROLLOUT_USD, train_usd=k * TRAIN_USD),
                placer=placer,
            ),
            convention=convention,
        )
        for k in (1, 2)
    )
    assert once.plan is not None
    assert twice.plan is not None
    assert twice.plan.groups == once.plan.groups
    assert twice.usd_total == pytest.approx(2 * once.usd_total, rel=1e-12)
    assert twice.bound_usd_total == pytest.approx(2 * once.bound_usd_total, rel=1e-12)


def test_free_nodes_cost_nothing() -> None:
    result = replay(
        jobs_of("production-1"), "weave", options_of(cluster=cluster_of(rollout_usd=0, train_usd=0))
    )
    assert result.checked
    assert result.usd_total == 0


@both_conventions
def test_decisions_are_timed_only_by_a_clock(convention: Convention) -> None:
    ticks = iter(range(10**6))
    options = options_of(clock=lambda: float(next(ticks)))
    timed = replay(jobs_of("tiny-gang"), "weave", options, convention=convention)
    assert timed.decision_s == (1.0,) * 5
    assert replayed("tiny-gang", "weave", convention).decision_s == ()
    assert timed.usd_total == replayed("tiny-gang", "weave", convention).usd_total


def test_options_reach_the_placer() -> None:
    """Without slack a and b share a rollout node only when train scaling is asked for."""
    jobs = table_of(*(job_of(i, 100, 200, 1) for i in "ab"))
    options = options_of(placer=PlacerParams(train_scaling=True))
    result = replay(jobs, "weave", options)
    assert result.admission == {
        "direct": 0,
        "rollout_scaled": 0,
        "train_scaled": 1,
        "isolated": 1,
    }
    alone = replay(jobs_of("tiny-gang"), "weave", options_of(limits=Limits(max_group_size=1)))
    assert alone.admission is not None
    assert alone.admission["isolated"] == 5
    assert alone.limits.max_group_size == 1


# --- Random traces: everything at once ---------------------------------------------------------


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    n_jobs=st.integers(1, 12),
    convention=st.sampled_from(CONVENTIONS),
    size=st.sampled_from([0, 2, 5]),
    objective=st.sampled_from(["per-hour", "per-iteration"]),
    train_scaling=st.booleans(),
    dram=st.sampled_from([1000.0, 2000.0]),
)
def test_random_traces(
    seed: int,
    n_jobs: int,
    convention: Convention,
    size: int,
    objective: str,
    train_scaling: bool,
    dram: float,
) -> None:
    """Every version and the whole plan pass the checker (or replay raises), accounts add up, and
    per moment weave never holds more than the jobs present would alone.
    """
    rng = random.Random(seed)
    jobs = table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=rng.choice((float(rng.randint(0, 6)) * 40, rng.uniform(0, 200))),
                duration_s=rng.choice((40.0, 80.0, rng.uniform(0.01, 300))),
                mode=rng.choice(("sync",) * 9 + ("async",)),
            )
            for i in range(n_jobs)
        )
    )
    options = PolicyOptions(
        cluster=cluster_of(host_dram_gb=dram),
        limits=Limits(max_group_size=size),
        placer=PlacerParams(objective=objective, train_scaling=train_scaling),
    )
    result = replay(jobs, "weave", options, convention=convention)
    assert result.checked
    assert result.slo_attainment == 1
    assert result.plan is not None
    assert recost(result.plan) == pytest.approx(result.usd_total)
    assert result.bound_usd_total <= result.usd_total * (1 + 1e-9)
    hours = result.node_hours
    for pool in ("rollout", "train"):
        by_job = math.fsum(getattr(r, f"{pool}_node_s") for r in result.records) / HOUR_S
        assert by_job == pytest.approx(hours[pool])
    by_id = {r.job.job_id: r for r in result.records}
    line = result.timeline
    for now, rollout, train in zip(line.time_s, line.rollout_nodes, line.train_nodes, strict=True):
        here = [r.job for r in by_id.values() if r.job.arrival_s <= now < r.departure_s]
        assert rollout <= sum(job.rollout_nodes for job in here)
        assert train <= sum(job.train_nodes for job in here)
