"""The time after the last arrival: what it is, and the answer without it."""

from __future__ import annotations

import numpy as np
import pytest

from builders import job_of, options_of, table_of
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from planner.replay.demand import Demand
from planner.replay.replaying import replay
from planner.size.drain import drain_of
from planner.size.params import SizeParams
from planner.size.pool_costs import default_costs
from planner.size.sizing import size_trace
from planner.size.words import drain_lines, recommendation

COSTS = default_costs(DEFAULT_CLUSTER)
QUICK = SizeParams(parts=(), perfect="none")


def trace(stay_h: float) -> JobTable:
    """Nine jobs of an hour, one after another from 0 to 8 h, and one that stays on from 9 h."""
    short = [
        job_of(f"s{i}", rollout_s=10, train_s=10, slo=1, arrival_s=3600.0 * i, duration_s=3600.0)
        for i in range(9)
    ]
    last = job_of(
        "last", rollout_s=10, train_s=10, slo=1, arrival_s=3600.0 * 9, duration_s=3600.0 * stay_h
    )
    return table_of(*short, last)


def test_a_demand_is_cut_at_a_moment() -> None:
    whole = Demand(
        name="d",
        hours=np.array([2.0, 3.0, 5.0]),
        rollout_nodes=np.array([1, 2, 3]),
        train_nodes=np.array([4, 5, 6]),
    )
    before, after = whole.split_at(4.0)
    assert before.hours.tolist() == [2.0, 2.0]
    assert after.hours.tolist() == [1.0, 5.0]
    assert after.rollout_nodes.tolist() == [2, 3]
    for pool in ("rollout", "train"):
        parts = before.node_hours(pool) + after.node_hours(pool)
        assert parts == pytest.approx(whole.node_hours(pool))
    assert whole.split_at(0.0)[0].horizon_h == 0
    assert whole.split_at(99.0)[1].horizon_h == 0


def test_the_drain_is_what_comes_after_the_last_arrival() -> None:
    """One job at a time: 9 h until the last arrival, then 27 h of one job alone."""
    result = replay(trace(27.0), "solo", options_of(), convention="wallclock")
    drain = drain_of(result, COSTS)
    assert drain is not None
    assert drain.hours == pytest.approx(27.0)
    assert drain.share == pytest.approx(27.0 / 36.0)
    assert drain.mean_before == pytest.approx((1.0, 1.0))
    assert drain.mean_after == pytest.approx((1.0, 1.0))
    assert drain.owned == (1, 1)


def test_jobs_that_arrive_at_once_have_no_load_that_goes_on() -> None:
    jobs = table_of(job_of("a", rollout_s=10, train_s=10, slo=1, duration_s=3600.0))
    assert drain_of(replay(jobs, "solo", options_of(), convention="work"), COSTS) is None


@pytest.mark.parametrize(("stay_h", "warned"), [(2.0, False), (27.0, True)])
def test_a_long_drain_is_warned_of(stay_h: float, warned: bool) -> None:
    """2 of 11 h are 18 %; 27 of 36 h are 75 %."""
    report = size_trace(trace(stay_h), baselines=(), params=QUICK)
    assert (len(list(drain_lines(report))) == 1) == warned
    lines = list(recommendation(report))
    assert ("after the last arrival" in lines[1]) == warned
    if warned:
        assert "27.0 of the 36.0 h (75%)" in lines[1]
        assert "own 1 + 1" in lines[1]
