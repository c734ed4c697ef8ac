"""Rows of what changes the answer: by hand, against the base, and in words where nothing runs."""

from __future__ import annotations

from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of, options_of, table_of
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import Fleet, Limits
from planner.policies.change_factors import default_factors, group_size, host_dram, slo_scale
from planner.replay.demand import demand_of
from planner.replay.replaying import replay
from planner.size.economics import owned_and_rented
from planner.size.pool_costs import default_costs
from planner.size.what_changes import (
    ChangeRow,
    each_change,
    what_changes,
    who_does_not_fit,
)


def pair(**more: Any) -> JobTable:
    """Two jobs r = 150, t = 100, D = 300, there together for an hour.

    One node of each kind: 300 s of rollouts in D = 300, so they share for one pair of nodes.
    """
    return table_of(*(job_of(name, 150, 100, 1.2, **more) for name in "ab"))


def rows_of(jobs: JobTable, *factors: Any, **options: Any) -> dict[str, ChangeRow]:
    rows = what_changes(
        jobs,
        policy="weave",
        options=options_of(**options),
        convention="wallclock",
        factors=factors,
    )
    return {row.label: row for row in rows}


def test_less_slack_buys_a_rollout_node() -> None:
    # slack x 0.5: D = 275 < 300, so a second rollout node, 2 x 14.80 + 42.24; x 0: D = 250, and
    # rollouts 150 s, trains 100 + 100 <= 250 still share the train node
    rows = rows_of(pair(), slo_scale([0, 0.5, 1]))
    two = 2 * ROLLOUT_USD + TRAIN_USD
    assert [row.usd_per_hour_mean for row in rows.values()] == pytest.approx([two, two, PAIR_USD])
    assert rows["0 x slack"].usd_total_change == pytest.approx(two / PAIR_USD - 1)
    assert rows["1 x slack"].usd_total_change == rows["1 x slack"].usd_per_hour_change == 0
    assert [row.is_base for row in rows.values()] == [False, False, True]
    assert (rows["0 x slack"].peak_rollout_nodes, rows["0 x slack"].peak_train_nodes) == (2, 1)
    assert (rows["0 x slack"].p95_rollout_nodes, rows["0 x slack"].p95_train_nodes) == (2, 1)


def test_dram_in_figures_and_in_words() -> None:
    # 1,200 GB each: 2,400 on a node fit 3 TB, not 2; and neither job fits 1 TB
    rows = rows_of(pair(train_state_gb=1200), host_dram([1, 2, 3]))
    assert rows["2 TB"].usd_per_hour_mean == pytest.approx(2 * PAIR_USD)
    assert rows["3 TB"].usd_per_hour_mean == pytest.approx(PAIR_USD)
    assert rows["3 TB"].usd_total_change == pytest.approx(-0.5)
    assert rows["1 TB"].cannot_run == (
        "2 of 2 jobs do not fit: 2 need more host DRAM than the 1000 GB of a train node (up to "
        "1200 GB, job 'a')"
    )
    assert rows["1 TB"].usd_per_hour_mean is None
    assert rows["1 TB"].usd_total_change is None


def test_a_base_that_cannot_run_leaves_changes_unknown() -> None:
    rows = rows_of(pair(train_state_gb=2500), host_dram([2, 3]))
    assert rows["2 TB"].is_base
    assert rows["2 TB"].cannot_run
    assert rows["3 TB"].usd_per_hour_mean == pytest.approx(PAIR_USD + PAIR_USD)
    assert rows["3 TB"].usd_total_change is None


def test_everything_that_keeps_a_job_out_is_told() -> None:
    jobs = table_of(
        job_of("wide", 10, 10, rollout_nodes=4, train_nodes=3),
        job_of("fat", 10, 10, rollout_state_gb=2100),
        job_of("fine", 10, 10),
    )
    words = who_does_not_fit(
        jobs,
        options_of(limits=Limits(max_rollout_nodes=3), fleet=Fleet(rollout_nodes=9, train_nodes=2)),
    )
    assert words.startswith("2 of 3 jobs do not fit: ")
    assert "1 need more host DRAM than the 2000 GB of a rollout node" in words
    assert "1 need more rollout nodes than the 3 of a group (up to 4, job 'wide')" in words
    assert "1 need more train nodes than the 2 of the fleet (up to 3, job 'wide')" in words
    assert who_does_not_fit(jobs.take([2]), options_of()) == ""


def test_a_group_of_one_is_solo() -> None:
    rows = rows_of(pair(), group_size([1, 5]))
    solo = replay(pair(), "solo", options_of(), convention="wallclock")
    assert rows["1 job"].usd_total == pytest.approx(solo.usd_total)


def test_links_share_the_traffic_and_overbooked_ones_warn() -> None:
    # both jobs send 100 GB each 300 s: 5.33 Gb/s of a link of 20, and 53.3 with 1,000 GB
    light = rows_of(pair(sync_gb=100), *default_factors(["links"]))
    # one link is the default for so few nodes
    assert light["1 link"].link_utilisation_peak == pytest.approx(1600 / 300 / 20)
    assert light["4 links"].link_utilisation_mean == pytest.approx(1600 / 300 / 80)
    assert light["4 links"].links == 4
    assert light["4 links"].usd_total_change == 0
    heavy = rows_of(pair(sync_gb=1000), *default_factors(["links"]))
    assert "overbooked: 2.67" in heavy["1 link"].notes[-1]
    assert heavy["4 links"].notes == ()


def test_owned_nodes_are_those_of_the_cost_model() -> None:
    costs = default_costs(DEFAULT_CLUSTER)
    rows = what_changes(
        pair(),
        policy="weave",
        options=options_of(),
        convention="wallclock",
        costs=costs,
        factors=[slo_scale([0, 1])],
    )
    base = replay(pair(), "weave", options_of(), convention="wallclock")
    owned = owned_and_rented(demand_of(base), costs)
    assert (rows[1].owned_rollout_nodes, rows[1].owned_train_nodes) == owned.owned
    assert rows[1].own_rent_usd_per_hour == pytest.approx(owned.usd_per_hour)
    assert rows[1].own_rent_change == 0
    # one rollout node more all the time costs more, owned or rented
    assert rows[0].own_rent_change is not None
    assert rows[0].own_rent_change > 0


def test_owning_and_renting_is_compared_for_the_same_work() -> None:
    """Sharing stretches stays, so hourly means are over other hours.

    Each job does 3600 / 250 iterations: 300 s each while they share, 1.2 h on a node of each kind;
    with slack x 0.5 as alone, 1 h on two rollout nodes and a train node. All of it is owned.
    """
    costs = default_costs(DEFAULT_CLUSTER)
    apart, shared = what_changes(
        pair(),
        policy="weave",
        options=options_of(),
        convention="work",
        costs=costs,
        factors=[slo_scale([0.5, 1])],
    )
    assert (apart.horizon_h, shared.horizon_h) == pytest.approx((1.0, 1.2))
    total = costs.fleet_usd_per_hour(2, 1) * 1.0 / (costs.fleet_usd_per_hour(1, 1) * 1.2)
    assert apart.own_rent_change == pytest.approx(total - 1)
    assert shared.own_rent_change == 0


def test_a_fixed_fleet_tells_what_jobs_waited() -> None:
    # a fleet of one pair, jobs that may not share: the second waits the first one's hour
    rows = rows_of(pair(), group_size([1]), fleet=Fleet(rollout_nodes=1, train_nodes=1))
    assert rows["1 job"].wait_p95_s == pytest.approx(3600)
    assert rows_of(pair(), group_size([1]))["1 job"].wait_p95_s is None


def test_rows_come_in_order_one_by_one_and_ctrl_c_comes_through() -> None:
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    each = each_change(
        pair(),
        policy="weave",
        options=options_of(),
        convention="work",
        factors=[slo_scale([0, 1]), group_size([1, 5])],
        progress=stop,
    )
    rows = [next(each), next(each)]
    with pytest.raises(KeyboardInterrupt):
        next(each)
    assert told == [(1, 4), (2, 4), (3, 4)]
    assert [(row.factor, row.value) for row in rows] == [("slo_scale", 0), ("slo_scale", 1)]


def test_all_factors_at_once_repeat_themselves() -> None:
    study = [
        what_changes(pair(sync_gb=10), policy="weave", options=options_of(), convention="work")
        for _ in range(2)
    ]
    assert study[0] == study[1]
    names = [row.factor for row in study[0]]
    assert names == sorted(names, key=[f.name for f in default_factors()].index)
    assert all(row.row["notes"] == "; ".join(row.notes) for row in study[0])


def row_of(factor: str, label: str, change: float | None, owned: float | None = None) -> ChangeRow:
    return ChangeRow(
        factor=factor,
        title=factor,
        unit="",
        label=label,
        value=0.0,
        is_base=False,
        usd_total_change=change,
        own_rent_change=owned,
    )


def test_unknown_conventions_are_refused() -> None:
    with pytest.raises(InputError, match="Expected convention"):
        what_changes(pair(), policy="weave", options=options_of(), convention="wall")  # type: ignore[arg-type]
