"""Demand over time: quantiles, duration curves and node-hours against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.catalog import catalog_path
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from instances.plan import Limits
from instances.trace import read_trace
from planner.gap.proving import optimality_gap
from planner.replay.demand import POOLS, Demand, demand_of
from planner.size.perfect_demand import optimum_demand, volume_demand, work_node_hours
from replay_cases import TRACES, both_conventions, jobs_of, replayed


def demand(*rows: tuple[float, int, int]) -> Demand:
    hours, rollout, train = zip(*rows, strict=True) if rows else ((), (), ())
    return Demand(
        name="by hand",
        hours=np.array(hours, dtype=np.float64),
        rollout_nodes=np.array(rollout, dtype=np.int64),
        train_nodes=np.array(train, dtype=np.int64),
    )


rows = st.lists(
    st.tuples(st.integers(1, 50).map(lambda n: n / 8), st.integers(0, 6), st.integers(0, 4)),
    min_size=1,
    max_size=12,
)


def test_two_levels_by_hand() -> None:
    two = demand((3, 2, 1), (1, 4, 0))
    assert two.horizon_h == 4
    assert two.node_hours("rollout") == 3 * 2 + 1 * 4
    assert two.mean("train") == 3 / 4
    assert (two.quantile("rollout", 0.75), two.quantile("rollout", 0.76)) == (2, 4)
    assert (two.hours_above("rollout", 2), two.node_hours_above("rollout", 1)) == (1, 3 + 3)
    nodes, hours = two.duration_curve("rollout")
    assert nodes.tolist() == [1, 2, 3, 4]
    assert hours.tolist() == [4, 4, 1, 1]


def test_no_time_needs_no_nodes() -> None:
    none = demand()
    for pool in POOLS:
        assert (none.mean(pool), none.peak(pool), none.quantile(pool, 0.95)) == (0, 0, 0)
        assert len(none.duration_curve(pool)[0]) == 0
    assert none.horizon_h == 0
    assert len(none.levels().hours) == 0


@given(rows)
def test_figures_follow_their_definitions(cells: list[tuple[float, int, int]]) -> None:
    found = demand(*cells)
    for pool, column in (("rollout", 1), ("train", 2)):
        nodes, hours = found.duration_curve(pool)
        assert hours.sum() == found.node_hours(pool)
        for n, h in zip(nodes.tolist(), hours.tolist(), strict=True):
            assert h == sum(row[0] for row in cells if row[column] >= n)
            assert found.hours_above(pool, n - 1) == h
        for share in (0.0, 0.5, 0.95, 1.0):
            least = found.quantile(pool, share)
            within = found.horizon_h - found.hours_above(pool, least)
            assert within >= share * found.horizon_h * (1 - 1e-9)
            if least:
                below = found.horizon_h - found.hours_above(pool, least - 1)
                assert below < share * found.horizon_h or share == 0
        assert found.node_hours_above(pool, 2) == sum(max(r[column] - 2, 0) * r[0] for r in cells)


@given(rows)
def test_levels_keep_hours_of_every_pair(cells: list[tuple[float, int, int]]) -> None:
    levels = demand(*cells).levels()
    pairs = list(zip(levels.rollout_nodes.tolist(), levels.train_nodes.tolist(), strict=True))
    assert pairs == sorted({row[1:] for row in cells})
    for pair, hours in zip(pairs, levels.hours.tolist(), strict=True):
        assert hours == pytest.approx(sum(row[0] for row in cells if row[1:] == pair))


@pytest.mark.parametrize(
    ("hours", "rollout", "words"),
    [([1.0], [1, 2], "one length"), ([0.0], [1], "hours > 0"), ([1.0], [-1], "nodes >= 0")],
)
def test_malformed_demand_is_refused(hours: list[float], rollout: list[int], words: str) -> None:
    counts = np.array(rollout)
    with pytest.raises(InputError, match=words):
        Demand(name="x", hours=np.array(hours), rollout_nodes=counts, train_nodes=counts)


@both_conventions
@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("policy", ["weave", "solo"])
def test_demand_of_a_replay_has_its_node_hours_and_peaks(trace, policy, convention) -> None:
    result = replayed(trace, policy, convention)
    found = demand_of(result)
    for pool in POOLS:
        assert found.node_hours(pool) == pytest.approx(result.node_hours[pool])
        assert found.peak(pool) == result.peak_nodes[pool]
        assert found.quantile(pool, 0.95) == result.p95_nodes[pool]


@pytest.mark.parametrize("trace", TRACES)
def test_no_policy_holds_less_than_the_perfect_system(trace: str) -> None:
    """Volume bound <= snapshot optimum in $/h; both policies hold at least the bound, per pool."""
    least = volume_demand(jobs_of(trace), DEFAULT_CLUSTER, Limits())
    busy = work_node_hours(jobs_of(trace))
    for policy in ("weave", "solo"):
        for pool in POOLS:
            found = demand_of(replayed(trace, policy, "wallclock"))
            assert found.horizon_h == pytest.approx(least.horizon_h)
            assert found.node_hours(pool) >= least.node_hours(pool) - 1e-9
            assert found.peak(pool) >= least.peak(pool)
            worked = demand_of(replayed(trace, policy, "work"))
            assert worked.node_hours(pool) >= busy[pool] * (1 - 1e-9)


@pytest.mark.parametrize("trace", ["tiny-open-shop", "tiny-sync-gap", "mixed-modes"])
def test_demand_of_the_optimum_costs_what_the_gap_says(trace: str) -> None:
    report = optimality_gap(jobs_of(trace), policy="weave")
    found = optimum_demand(report)
    usd = DEFAULT_CLUSTER.usd_per_hour(found.node_hours("rollout"), found.node_hours("train"))
    assert usd == pytest.approx(report.totals.held_usd + report.result.dedicated_usd_total)


def test_solo_needs_its_widths_and_nothing_shared() -> None:
    jobs = read_trace(catalog_path("tiny-open-shop")).jobs
    found = demand_of(replayed("tiny-open-shop", "solo", "wallclock"))
    assert found.node_hours("rollout") == pytest.approx(
        float((jobs.duration_s * jobs.rollout_nodes).sum()) / 3600
    )
