"""The optimality gap of a replay: by hand, against another method, and its identities."""

from __future__ import annotations

import dataclasses
import multiprocessing
from itertools import pairwise
from math import isclose
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of, job_of, trace_of
from gap_cases import (
    HOUR,
    even,
    fragmented,
    overlapping,
    prices,
    random_trace,
    replayed_of,
    saturated,
    short_production,
    snapshot_of,
    split,
    with_async,
)
from instances.errors import FleetPlannerError
from instances.plan import Limits
from instances.trace import Trace, read_trace
from models.exact import exhaustive, set_partition
from models.group.group_cost import GroupCost
from models.group.known_groups import KnownGroups, RememberingCost
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
from planner.gap import proving as gap
from planner.gap import workers as gap_workers
from planner.gap.proving import optimality_gap
from planner.gap.solve import Link
from planner.placement.placer import PlacerParams

# --- by hand ----------------------------------------------------------------------------------


def test_two_overlapping_jobs_cost_one_pair_of_nodes() -> None:
    # a alone, both, b alone: one pair each hour, and no less is possible.
    report = optimality_gap(overlapping())
    assert prices(report) == [(1, 1, 1, 1)] * 3
    assert report.ratio == 1.0
    assert [row.moment.jobs for row in report.rows] == [(0,), (0, 1), (1,)]
    assert [row.moment.hours for row in report.rows] == [1.0, 1.0, 1.0]
    assert report.mean_usd_per_hour(report.totals.bound_usd) == pytest.approx(PAIR_USD)


def test_solo_pays_a_pair_too_many_while_both_are_there() -> None:
    # 1 + 2 + 1 pair-hours against 1 + 1 + 1; re-planned, solo is as dear: all heuristic loss.
    report = optimality_gap(overlapping(), policy="solo")
    assert prices(report) == [(1, 1, 1, 1), (2, 2, 1, 1), (1, 1, 1, 1)]
    totals = report.totals
    assert totals.ratio == pytest.approx(4 / 3)
    assert totals.online_regret == 1.0
    assert totals.heuristic_loss == pytest.approx(4 / 3)
    assert totals.unproved_rest == 1.0


def test_fragments_left_by_departures_are_online_regret() -> None:
    # policy 1 + 2 + 2 + 1 = 6 pair-hours; placed anew 1 + 2 + 1 + 1 = 5, which is the least.
    report = optimality_gap(fragmented())
    assert prices(report) == [(1, 1, 1, 1), (2, 2, 2, 2), (2, 1, 1, 1), (1, 1, 1, 1)]
    totals = report.totals
    assert totals.ratio == pytest.approx(6 / 5)
    assert totals.online_regret == pytest.approx(6 / 5)
    assert totals.heuristic_loss == 1.0
    (worst,) = report.worst(1)
    assert worst.moment.from_s == 2 * HOUR
    assert worst.ratio == pytest.approx(2.0)


def test_what_the_saturation_rule_costs_is_heuristic_loss() -> None:
    published = optimality_gap(saturated())
    assert prices(published) == [(2, 2, 1, 1)]
    assert published.totals.online_regret == 1.0
    assert published.totals.heuristic_loss == pytest.approx(2.0)
    packed = optimality_gap(saturated(), placer=PlacerParams(skip_saturated=False))
    assert prices(packed) == [(1, 1, 1, 1)]


def test_sharing_stretches_stays_under_work() -> None:
    # alone an iteration takes 60 s, all four on one pair 120 s: an hour of work takes two.
    packed = PlacerParams(skip_saturated=False)
    fixed = optimality_gap(saturated(), placer=packed)
    stretched = optimality_gap(saturated(), placer=packed, durations="work")
    assert fixed.totals.hours == 1.0
    assert stretched.totals.hours == pytest.approx(2.0)
    assert stretched.ratio == 1.0


def test_async_jobs_are_in_prices_and_not_in_the_ratio() -> None:
    # 2 + 1 dedicated nodes for all three hours, beside 4 pair-hours of solo against 3.
    report = optimality_gap(with_async(), policy="solo")
    dedicated = 2 * ROLLOUT_USD + TRAIN_USD
    assert report.ratio == pytest.approx(4 / 3)
    assert [row.moment.dedicated_usd_per_hour for row in report.rows] == [dedicated] * 3
    assert report.mean_usd_per_hour(report.totals.policy_usd) == pytest.approx(
        4 / 3 * PAIR_USD + dedicated
    )
    assert report.result.usd_per_hour_mean == pytest.approx(4 / 3 * PAIR_USD + dedicated)


def test_async_jobs_alone_leave_no_ratio() -> None:
    free = job_of("free", 60, 40, 1.0, duration_s=HOUR, mode="async")
    report = optimality_gap(trace_of(free))
    assert report.rows == ()
    assert report.ratio is None
    assert report.worst_open is None
    assert report.mean_usd_per_hour(report.totals.bound_usd) == pytest.approx(PAIR_USD)


def test_nothing_to_pay_leaves_no_ratio() -> None:
    report = optimality_gap(overlapping(), cluster=cluster_of(rollout_usd=0, train_usd=0))
    assert report.ratio is None
    assert report.n_proved == len(report.rows) == 3


def test_one_step_jobs_take_part() -> None:
    """Two that are as busy as their rollout nodes for half their deadline share one of each."""
    jobs = [job_of(name, 60, 40, slo=2.0, mode="one-step") for name in ("odd", "even")]
    report = optimality_gap(trace_of(*jobs))
    assert report.ratio == pytest.approx(1.0)
    assert [row.solved.usd_per_hour for row in report.rows] == pytest.approx([57.04])


def test_the_same_jobs_later_are_one_snapshot() -> None:
    # a, both, a again: two different sets, three moments.
    trace = trace_of(even("a", 0, 3, 45, 1.2), even("b", 1, 1, 45, 1.2))
    report = optimality_gap(trace)
    assert (len(report.rows), report.distinct) == (3, 2)
    assert report.rows[0].solved is report.rows[2].solved


def test_classes_of_jobs_present() -> None:
    report = optimality_gap(fragmented())
    assert [(least, most, part.hours) for least, most, part in report.by_jobs()] == [
        (1, 1, 1.0),
        (2, 2, 2.0),
        (3, 4, 1.0),
    ]


# --- identities -------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), gangless=st.booleans(), work=st.booleans())
@settings(max_examples=15, deadline=None)
def test_all_prices_are_right_on_random_traces(seed: int, gangless: bool, work: bool) -> None:
    trace = random_trace(seed)
    if gangless:
        jobs = [dataclasses.replace(job, rollout_nodes=1, train_nodes=1) for job in trace.jobs]
        trace = trace_of(*jobs)
    report = optimality_gap(trace, durations="work" if work else "wallclock")
    result = report.result
    # the policy's price is the replay's
    assert report.mean_usd_per_hour(report.totals.policy_usd) == pytest.approx(
        result.usd_per_hour_mean
    )
    # every optimum is what exhaustive search finds, which shares no code with set partitioning
    for row in report.rows:
        assert row.proved
        found = exhaustive.solve(snapshot_of(report, row), SolveOptions())
        assert found.usd_per_hour == pytest.approx(row.held_usd)
        plan = report.plan_at(row)
        assert plan is not None
        assert plan.usd_total == pytest.approx(row.held_usd)
        assert row.bound_usd <= row.held_usd <= row.policy_usd
    assert report.ratio is not None
    assert isclose(split(report.totals), report.ratio, rel_tol=1e-12)
    parts = [part for _, _, part in report.by_jobs()]
    assert sum(part.policy_usd for part in parts) == pytest.approx(report.totals.policy_usd)


def test_optima_are_monotone(tmp_path: Path) -> None:
    """More jobs never cost less, and one more at most its price alone."""
    report = optimality_gap(read_trace(short_production(tmp_path)))
    assert report.n_proved == len(report.rows) > 40
    grown = shrunk = 0
    for before, after in pairwise(report.rows):
        old, new = set(before.moment.jobs), set(after.moment.jobs)
        if old < new:
            grown += 1
            more = len(new - old) * PAIR_USD
            assert before.held_usd <= after.held_usd * (1 + 1e-9)
            assert after.held_usd <= (before.held_usd + more) * (1 + 1e-9)
        elif new < old:
            shrunk += 1
            assert after.held_usd <= before.held_usd * (1 + 1e-9)
    assert grown > 15
    assert shrunk > 15


def test_neighbours_change_no_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read_trace(short_production(tmp_path))
    chained = optimality_gap(trace)
    assert any(row.solved.reused for row in chained.rows if row.solved is not None)
    monkeypatch.setattr(gap, "CHAIN", 1)  # every snapshot by itself
    single = optimality_gap(trace)
    assert not any(row.solved.reused for row in single.rows if row.solved is not None)
    assert prices(single) == prices(chained)


# --- rates ------------------------------------------------------------------------------------


def test_rates_are_held_against_rates() -> None:
    # r = t = 10, D = 40 beside r = t = 30, D = 120: strict rounds need T = 60 <= 40: apart. At 2
    # or 3 iterations a period of the short one, one pair of nodes holds both (2 x 10 + 30 <= 80).
    trace = trace_of(
        job_of("short", 10, 10, 2.0, duration_s=HOUR), job_of("long", 30, 30, 2.0, duration_s=HOUR)
    )
    assert optimality_gap(trace).rows[0].held_usd == pytest.approx(2 * PAIR_USD)
    mixed = optimality_gap(trace, limits=Limits(max_rate=3))
    assert mixed.rows[0].proved
    assert mixed.rows[0].held_usd == pytest.approx(PAIR_USD)


# --- verdicts ---------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_known_verdicts_are_those_of_the_snapshot(seed: int) -> None:
    jobs = tuple(random_trace(seed).jobs)
    known = KnownGroups()
    first = Snapshot.of(jobs[:5], cluster_of())
    set_partition.solve(first, SolveOptions(), known)
    second = Snapshot.of(jobs[1:], cluster_of())  # positions move by one
    told = RememberingCost(second, known)
    fresh = GroupCost(second)
    for members in [(0, 1), (1, 2), (0, 2, 3), (1, 3, 4), (2, 5)]:
        assert told.least_nodes(members) == fresh.least_nodes(members)
        for nodes in [(1, 1), (2, 1), (3, 2)]:
            got, wanted = told.decide(members, nodes), fresh.decide(members, nodes)
            assert (got is None) == (wanted is None)
            if got is not None:
                assert got.members == members
    assert (
        set_partition.solve(second, SolveOptions(), known).usd_per_hour
        == set_partition.solve(second, SolveOptions()).usd_per_hour
    )


def test_facts_of_jobs_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownGroups()
    for ids in (("a", "b"), ("b", "c")):
        known.put_verdict(ids, (1, 1), None)
        known.put_least(ids, (1, 1))
    known.keep_only(["b", "c", "d"])
    assert list(known.verdicts) == [(("b", "c"), (1, 1))]
    assert list(known.least) == [("b", "c")]
    monkeypatch.setattr("models.group.known_groups._MOST", 1)
    known.put_verdict(("c", "d"), (1, 1), None)  # full: all others are forgotten
    known.put_least(("c", "d"), None)
    assert list(known.verdicts) == [(("c", "d"), (1, 1))]
    assert list(known.least) == [("c", "d")]


# --- processes --------------------------------------------------------------------------------


def chains(trace: Trace, n: int) -> list[list[Link]]:
    return [[Link(number=at, jobs=tuple(range(at + 1)))] for at in range(min(n, len(trace.jobs)))]


def test_what_a_worker_raises_is_raised_here() -> None:
    trace = trace_of(job_of("a", 60, 40), job_of("big", 60, 40, train_state_gb=3000.0))
    links = gap_workers.solved_links(replayed_of(trace), chains(trace, 2), 2)
    with pytest.raises(FleetPlannerError, match="'big'"):
        list(links)
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_an_error() -> None:
    trace = fragmented()
    links = gap_workers.solved_links(replayed_of(trace), chains(trace, 3), 2)
    next(links)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(FleetPlannerError, match="A worker process ended with code"):
        list(links)
    assert multiprocessing.active_children() == []


def test_no_more_processes_than_chains() -> None:
    links = gap_workers.solved_links(replayed_of(fragmented()), chains(fragmented(), 1), 8)
    assert len(list(links)) == 1
    assert multiprocessing.active_children() == []
    assert gap_workers.cpus() >= 1
