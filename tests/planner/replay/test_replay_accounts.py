"""Replay: every account by an identity that another part of the project can recompute."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from builders import ROLLOUT_USD, TRAIN_USD, job_of
from instances.checker import check_plan, recost
from instances.jobs import Job
from instances.plan_file import read_plan, write_plan_json
from planner.replay.replaying import Convention, Timeline
from replay_cases import (
    HOUR_S,
    all_policies,
    all_traces,
    both_conventions,
    jobs_of,
    of,
    replayed,
    valid_policies,
    versions_by_job,
)

# --- Accounting identities ---------------------------------------------------------------------


@all_traces
@all_policies
@both_conventions
def test_total_is_the_integral_of_the_timeline_and_the_price_of_the_plan(
    trace: str, policy: str, convention: Convention
) -> None:
    result = replayed(trace, policy, convention)
    line = result.timeline
    by_rows = math.fsum(
        (r * ROLLOUT_USD + t * TRAIN_USD) * (end - begin) / HOUR_S
        for r, t, begin, end in zip(
            line.rollout_nodes.tolist(),
            line.train_nodes.tolist(),
            line.time_s.tolist(),
            line.time_s.tolist()[1:],
            strict=False,
        )
    )
    assert result.plan is not None
    assert result.usd_total == pytest.approx(by_rows, rel=1e-12)
    assert recost(result.plan) == pytest.approx(result.usd_total, rel=1e-12)
    assert result.plan.usd_total == result.usd_total
    assert result.usd_per_hour_mean * result.horizon_h == pytest.approx(result.usd_total)


@all_traces
@all_policies
@both_conventions
def test_node_hours_by_job_add_up(trace: str, policy: str, convention: Convention) -> None:
    result = replayed(trace, policy, convention)
    records, hours = result.records, result.node_hours
    assert math.fsum(r.rollout_node_s for r in records) / HOUR_S == pytest.approx(hours["rollout"])
    assert math.fsum(r.train_node_s for r in records) / HOUR_S == pytest.approx(hours["train"])
    spent = hours["rollout"] * ROLLOUT_USD + hours["train"] * TRAIN_USD
    assert spent == pytest.approx(result.usd_total)


@all_traces
@both_conventions
def test_solo_cost_in_closed_form(trace: str, convention: Convention) -> None:
    """Alone, every job holds its own nodes for duration_s, under both conventions."""
    expected = math.fsum(
        job.duration_s / HOUR_S * (job.rollout_nodes * ROLLOUT_USD + job.train_nodes * TRAIN_USD)
        for job in jobs_of(trace)
    )
    assert replayed(trace, "solo", convention).usd_total == pytest.approx(expected)


@all_traces
@both_conventions
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_colocated_cost_in_closed_form(trace: str, convention: Convention, factor: float) -> None:
    """Its train nodes alone; under work the iterations take factor as long. Async as solo.

    On the same nodes nothing runs side by side: ``r + t + s`` of one-step jobs too.
    """

    def stretch(job: Job) -> float:
        around_s = job.rollout_s + job.train_s + job.sync_s
        return factor * around_s / job.solo_s if convention == "work" else 1.0

    expected = math.fsum(
        job.duration_s
        / HOUR_S
        * (
            job.rollout_nodes * ROLLOUT_USD + job.train_nodes * TRAIN_USD
            if job.mode == "async"
            else stretch(job) * job.train_nodes * TRAIN_USD
        )
        for job in jobs_of(trace)
    )
    result = replayed(trace, "colocated", convention, factor)
    assert result.usd_total == pytest.approx(expected)


@all_traces
@all_policies
def test_work_every_job_does_exactly_its_iterations(trace: str, policy: str) -> None:
    """It leaves when sum (to - from) / C_g over the versions of its group = duration_s / T_j."""
    result = replayed(trace, policy, "work")
    versions = versions_by_job(result)
    for record in result.records:
        job = record.job
        if job.mode == "async":
            assert record.departure_s == job.arrival_s + job.duration_s
            assert record.iterations == pytest.approx(job.iterations)
            continue
        assert record.iterations == job.iterations  # no round-off of sums
        mine = versions[job.job_id]
        assert mine[0][0].from_s == job.arrival_s
        assert mine[-1][0].to_s == record.departure_s
        done = math.fsum((v.to_s - v.from_s) / v.period_s * rate for v, rate in mine)
        assert done == pytest.approx(job.iterations, rel=1e-9)


@all_traces
@all_policies
def test_wallclock_every_job_stays_its_duration(trace: str, policy: str) -> None:
    result = replayed(trace, policy, "wallclock")
    jobs, versions = jobs_of(trace), versions_by_job(result)
    for record in result.records:
        job = record.job
        assert record.departure_s == job.arrival_s + job.duration_s
        if job.mode != "async":
            mine = versions[job.job_id]
            done = math.fsum((v.to_s - v.from_s) / v.period_s * rate for v, rate in mine)
            assert record.iterations == pytest.approx(done)
    ends = jobs.arrival_s + jobs.duration_s
    assert result.horizon_h * HOUR_S == pytest.approx(ends.max() - jobs.arrival_s.min())


@all_traces
@both_conventions
def test_horizon_is_first_arrival_to_last_departure(trace: str, convention: Convention) -> None:
    result = replayed(trace, "weave", convention)
    first = min(r.job.arrival_s for r in result.records)
    last = max(r.departure_s for r in result.records)
    assert result.timeline.time_s[0] == first
    assert result.timeline.time_s[-1] == last
    assert result.horizon_h == pytest.approx((last - first) / HOUR_S)


@all_traces
@pytest.mark.parametrize("policy", ["weave", "colocated"])
def test_wallclock_presence_does_not_depend_on_the_policy(trace: str, policy: str) -> None:
    one = replayed(trace, policy, "wallclock").timeline
    solo = replayed(trace, "solo", "wallclock").timeline
    np.testing.assert_array_equal(one.time_s, solo.time_s)
    np.testing.assert_array_equal(one.jobs, solo.jobs)


@all_traces
@all_policies
@both_conventions
def test_timeline_counts_the_jobs_and_nodes_of_the_plan(
    trace: str, policy: str, convention: Convention
) -> None:
    """Each row against a count over the plan's intervals at that moment; the last row is empty."""
    result = replayed(trace, policy, convention)
    line, plan = result.timeline, result.plan
    assert plan is not None
    assert (np.diff(line.time_s) > 0).all()
    for k, now in enumerate(line.time_s):
        groups = [g for g in plan.groups if g.from_s <= now < g.to_s]
        alone = [d for d in plan.dedicated if d.from_s <= now < d.to_s]
        assert line.jobs[k] == sum(len(g.placements) for g in groups) + len(alone)
        nodes = sum(len(g.rollout_nodes) for g in groups) + sum(d.rollout_nodes for d in alone)
        assert line.rollout_nodes[k] == nodes
        nodes = sum(len(g.train_nodes) for g in groups) + sum(d.train_nodes for d in alone)
        assert line.train_nodes[k] == nodes
    assert (line.jobs[-1], line.rollout_nodes[-1], line.train_nodes[-1]) == (0, 0, 0)
    assert result.peak_nodes == check_plan(plan).peak_nodes


@all_traces
@valid_policies
@both_conventions
def test_no_moment_costs_less_than_its_bound(
    trace: str, policy: str, convention: Convention
) -> None:
    result = replayed(trace, policy, convention)
    line = result.timeline
    usd = line.rollout_nodes * ROLLOUT_USD + line.train_nodes * TRAIN_USD
    assert (line.bound_usd_per_hour <= usd + 1e-9).all()
    assert 0 < result.bound_usd_total <= result.usd_total * (1 + 1e-12)
    assert line.bound_usd_per_hour[-1] == pytest.approx(0, abs=1e-9)


def test_the_bound_of_nothing_is_nothing() -> None:
    """Async jobs at 57.04, 71.84 and 86.64 $/h that leave in another order: -1.4e-14 is left."""
    jobs = [
        job_of(f"j{n}", 1, 1, 1, rollout_nodes=n, duration_s=duration_s, mode="async")
        for n, duration_s in ((1, 20.0), (2, 10.0), (3, 30.0))
    ]
    assert of(*jobs).timeline.bound_usd_per_hour[-1] == 0


@all_traces
@all_policies
@both_conventions
def test_run_time_and_idle_fraction(trace: str, policy: str, convention: Convention) -> None:
    """Run node-seconds are iterations x phase x nodes; idle is what is left of what is held.

    Async jobs are counted apart: neither their runs nor their nodes are in it.
    """
    result = replayed(trace, policy, convention)
    run = {"rollout": 0.0, "train": 0.0}
    held = {pool: hours * HOUR_S for pool, hours in result.node_hours.items()}
    for record in result.records:
        job, n = record.job, record.iterations
        if job.mode == "async":
            held["rollout"] -= record.elapsed_s * job.rollout_nodes
            held["train"] -= record.elapsed_s * job.train_nodes
            continue
        if policy == "colocated":
            run["train"] += n * (job.rollout_s + job.train_s) * job.train_nodes
        else:
            run["rollout"] += n * job.rollout_s * job.rollout_nodes
            run["train"] += n * job.train_s * job.train_nodes
    assert result.run_node_s == pytest.approx(run)
    for pool, idle in result.idle_fraction.items():
        if held[pool] < 1e-6:
            assert idle is None
            continue
        assert idle is not None
        assert idle == pytest.approx(1 - run[pool] / held[pool])
        assert -1e-9 <= idle <= 1


@all_traces
@valid_policies
@both_conventions
def test_valid_policies_meet_every_slo(trace: str, policy: str, convention: Convention) -> None:
    result = replayed(trace, policy, convention)
    assert result.slo_attainment == 1.0
    assert result.slo_attainment_worst_period == 1.0
    assert result.checked
    assert result.breaches == {}
    for record in result.records:
        assert 1 - 1e-9 <= record.slowdown <= record.job.slo * (1 + 1e-9)
        assert record.worst_iteration_s >= record.job.solo_s * (1 - 1e-12)


@all_traces
@both_conventions
def test_admission_sums_to_the_jobs_that_share(trace: str, convention: Convention) -> None:
    result = replayed(trace, "weave", convention)
    sharing = sum(mode != "async" for mode in jobs_of(trace).mode)
    assert result.admission is not None
    assert list(result.admission) == ["direct", "rollout_scaled", "isolated"]
    assert sum(result.admission.values()) == sharing
    each = Counter(r.admission for r in result.records if r.admission)
    assert {k: n for k, n in result.admission.items() if n} == dict(each)
    assert replayed(trace, "solo", convention).admission is None


@all_traces
@both_conventions
def test_records_name_the_group_and_its_largest_size(trace: str, convention: Convention) -> None:
    result = replayed(trace, "weave", convention)
    versions = versions_by_job(result)
    for record in result.records:
        mine = versions[record.job.job_id]
        if record.job.mode == "async":
            assert (record.group_id, record.group_size_max, mine) == ("dedicated", 1, [])
            continue
        assert {v.group_id for v, _ in mine} == {record.group_id}
        assert record.group_size_max == max(len(v.placements) for v, _ in mine)
        assert record.worst_iteration_s == max(v.period_s / rate for v, rate in mine)


@all_traces
@both_conventions
def test_the_plan_survives_its_file(trace: str, convention: Convention, tmp_path: Path) -> None:
    plan = replayed(trace, "weave", convention).plan
    assert plan is not None
    write_plan_json(plan, tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    report = check_plan(again)
    assert report.ok, report.violations[:3]
    assert report.usd_total_recomputed == pytest.approx(plan.usd_total, rel=1e-12)
    assert (again.policy, again.durations) == ("weave", convention)
    assert again.groups == plan.groups


# --- Peaks and quantiles -----------------------------------------------------------------------


def profile(*steps: tuple[float, int]) -> Timeline:
    """Return a timeline of (hours, rollout nodes) steps; twice as many train nodes."""
    hours = [h for h, _ in steps]
    nodes = np.array([n for _, n in steps] + [0], dtype=np.int64)
    return Timeline(
        time_s=np.concatenate([[0.0], np.cumsum(hours)]) * HOUR_S,
        jobs=nodes,
        rollout_nodes=nodes,
        train_nodes=2 * nodes,
        bound_usd_per_hour=np.zeros(len(nodes)),
        sync_gbps=np.zeros(len(nodes)),
        waiting=np.zeros(len(nodes), dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("share", "expected"),
    # 1 node for 2 h, 2 nodes for 1 h, 3 nodes for 1 h
    [(0.25, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.95, 3), (1.0, 3)],
)
def test_quantile_is_the_least_n_that_covers_the_share(share: float, expected: int) -> None:
    line = profile((1, 3), (2, 1), (1, 2))
    assert line.quantile(line.rollout_nodes, share) == expected


@pytest.mark.parametrize(("tail_h", "expected"), [(1.0, 1), (1.01, 7)])
def test_p95_leaves_out_five_percent_and_no_more(tail_h: float, expected: int) -> None:
    """19 h at one node and 1 h at seven: exactly 95 % at one."""
    line = profile(*[(1, 1)] * 19, (tail_h, 7))
    assert line.quantile(line.rollout_nodes, 0.95) == expected


def test_mean_weighs_by_time() -> None:
    line = profile((1, 3), (2, 1), (1, 2))
    assert line.mean(line.rollout_nodes) == pytest.approx(7 / 4)
    assert line.hours.tolist() == [1, 2, 1]


def test_peak_and_p95_of_a_replay() -> None:
    """Solo: one pair for 100 h; for the last 4 of them a gang of 3 + 2 nodes more. Each pool at
    its own peak; 4 % of the time is beyond p95.
    """
    base = job_of("base", 100, 50, 1, duration_s=100 * HOUR_S)
    burst = job_of(
        "burst", 9, 9, 1, arrival_s=96 * HOUR_S, duration_s=4 * HOUR_S, rollout_nodes=3,
        train_nodes=2,
    )  # fmt: skip
    result = of(base, burst, policy="solo")
    assert result.peak_nodes == {"rollout": 4, "train": 3}
    assert result.p95_nodes == {"rollout": 1, "train": 1}
    longer = dataclasses.replace(burst, arrival_s=94 * HOUR_S, duration_s=6 * HOUR_S)
    assert of(base, longer, policy="solo").p95_nodes == {"rollout": 4, "train": 3}


@all_traces
def test_p95_holds_its_promise(trace: str) -> None:
    result = replayed(trace, "weave", "work")
    for pool, nodes in (
        ("rollout", result.timeline.rollout_nodes),
        ("train", result.timeline.train_nodes),
    ):
        n, hours = result.p95_nodes[pool], result.timeline.hours
        assert hours[nodes[:-1] <= n].sum() >= 0.95 * hours.sum() * (1 - 1e-9)
        assert hours[nodes[:-1] < n].sum() < 0.95 * hours.sum()
