"""The size report: parts, accounting, what has no answer, and Ctrl-C."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import pytest

from builders import job_of, table_of
from instances.errors import InfeasibleError, InputError
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.plan import Fleet
from instances.trace import Trace
from planner.output.pictures import drawing, save_picture
from planner.policies.policy import PolicyOptions
from planner.policies.wait_target import WaitTarget
from planner.replay.demand import POOLS
from planner.size.document import size_document
from planner.size.figures import FIGURES
from planner.size.params import PARTS, SizeParams
from planner.size.pool_costs import Period, default_costs
from planner.size.report import SizeReport
from planner.size.rows import TABLES
from planner.size.sizing import size_trace

COSTS = default_costs(DEFAULT_CLUSTER)
OPTIONS = PolicyOptions(cluster=DEFAULT_CLUSTER)
QUICK = SizeParams(
    replications=3,
    samples=2,
    moments=2,
    growths=(1.0, 2.0),
    price_ratios=(1.0, 2.0, 4.0),
    dram_tb=(1.0, 2.0),
    slo_scales=(0.0, 1.0),
    link_gbps=(20.0,),
    links=(1,),
    group_sizes=(1, 5),
    ladder_s=(0.0, 3600.0),
)
HOUR_S = 3600.0


def only(*parts: str, **changes: object) -> SizeParams:
    return dataclasses.replace(QUICK, parts=parts, **changes)


@pytest.fixture(scope="module")
def full() -> SizeReport:
    return size_trace(production(n_jobs=24, seed=3), params=QUICK, baselines=("solo", "colocated"))


def test_one_job_needs_its_own_nodes_all_the_time() -> None:
    """Needed all the time, one node of each kind: owned, as owning is cheaper than renting."""
    job = job_of("a", rollout_s=100.0, train_s=50.0, slo=1.5, duration_s=10 * HOUR_S)
    report = size_trace(table_of(job), baselines=(), params=only())
    assert report.split.owned == (1, 1)
    assert report.split.rent_usd_per_hour == 0
    own = [COSTS.pool(pool).own_usd_per_node_hour for pool in POOLS]
    assert report.split.usd_per_hour == pytest.approx(sum(own))


def test_two_levels_of_demand_are_owned_up_to_the_one_that_pays() -> None:
    """One job for 10 h, a second for one of them: its nodes are needed 10 % of the time.

    Owning pays above own / rent, 47 % for H20 and 33 % for H800, so the second pair is rented.
    """
    apart = {"rollout_state_gb": 1500.0, "train_state_gb": 1500.0}  # no node holds both
    long = job_of("a", 100.0, 90.0, duration_s=10 * HOUR_S, **apart)
    short = job_of("b", 100.0, 90.0, duration_s=HOUR_S, **apart)
    report = size_trace(table_of(long, short), baselines=(), params=only(), durations="wallclock")
    assert report.split.owned == (1, 1)
    assert (report.split.rollout.rented_node_hours, report.split.train.rented_node_hours) == (
        pytest.approx(1.0),
        pytest.approx(1.0),
    )
    rent = sum(COSTS.pool(pool).rent_usd_per_node_hour for pool in POOLS)
    assert report.split.rent_usd_per_hour == pytest.approx(rent / 10)


def test_owned_and_rented_node_hours_are_those_needed(full: SizeReport) -> None:
    for row in full.demand:
        assert row.split is not None
        for pool in POOLS:
            side = row.split.pool(pool)
            used = side.owned_used_node_hours + side.rented_node_hours
            assert used == pytest.approx(row.demand.node_hours(pool))
            held = side.owned_used_node_hours + side.owned_idle_node_hours
            assert held == pytest.approx(side.owned * row.demand.horizon_h)


def test_every_part_is_there(full: SizeReport) -> None:
    assert not full.failed
    assert not full.left_out
    assert full.interrupted is None
    for part in PARTS:
        assert getattr(full, part) is not None, part
    assert {row.name for row in full.demand} == {"weave", "solo", "colocated", "volume bound"}
    assert full.demand[0].name == "weave"


def test_no_policy_costs_less_than_the_bound(full: SizeReport) -> None:
    bound = full.row("volume bound", "wallclock")
    assert bound.split is not None
    for name in ("weave", "solo"):
        row = full.row(name, "wallclock")
        assert row.split is not None
        assert row.split.usd_per_hour >= bound.split.usd_per_hour - 1e-9


def test_the_fleet_meets_the_target_and_its_replay_was_checked(full: SizeReport) -> None:
    assert full.fleet is not None
    answer = full.fleet.answer
    assert answer.proved
    assert answer.result.checked
    assert answer.figures.wait_quantile(0.95) <= QUICK.target.wait_s
    points = full.fleet.frontier
    assert all(a.usd_per_hour <= b.usd_per_hour for a, b in pairwise(points))
    assert all(a.wait_s > b.wait_s for a, b in pairwise(points))
    assert full.fleet.priced_by == "own"
    assert answer.usd_per_hour == pytest.approx(
        COSTS.fleet_usd_per_hour(answer.fleet.rollout_nodes, answer.fleet.train_nodes)
    )


def test_what_changes_most_is_the_largest_change_of_each_factor(full: SizeReport) -> None:
    found = full.most_influential
    sizes = [abs(row.own_rent_change or 0) for row in found]
    assert sizes == sorted(sizes, reverse=True)
    rows = [row for row in full.changes or () if row.factor == "slo_scale"]
    largest = max(abs(row.own_rent_change or 0) for row in rows)
    mine = [row for row in found if getattr(row, "factor", "") == "slo_scale"]
    assert [abs(row.own_rent_change or 0) for row in mine] == ([largest] if largest else [])


def test_equal_inputs_give_equal_documents(full: SizeReport) -> None:
    again = size_trace(production(n_jobs=24, seed=3), params=QUICK, baselines=("solo", "colocated"))
    first, second = (json.dumps(size_document(r), allow_nan=False) for r in (full, again))
    assert first == second


def test_the_document_holds_every_part(full: SizeReport) -> None:
    document = size_document(full)
    for key in (
        "recommendation", "owned_and_rented", "alternatives", "fixed_fleet", "node_loss", "prices",
        "changes", "tokens", "worth", "uncertainty",
    ):  # fmt: skip
        assert document[key], key
    own = document["recommendation"]["owned_nodes"]
    assert (own["rollout"], own["train"]) == full.split.owned
    policies = document["conventions"]["work"]["policies"]
    assert policies["weave"]["own_rent_usd_per_hour"] == full.split.usd_per_hour
    assert document["inputs"]["options"]["replications"] == QUICK.replications
    assert "timings" not in document


def test_every_table_has_rows_with_one_set_of_columns(full: SizeReport) -> None:
    for name, table in TABLES.items():
        rows = list(table.rows(full))
        assert rows, name
        assert all(list(row) == list(rows[0]) for row in rows), name


def test_pictures_are_drawn_and_repeat(full: SizeReport, tmp_path: Path) -> None:
    with drawing():
        for name, (_, make) in FIGURES.items():
            for folder in ("one", "two"):
                (tmp_path / folder).mkdir(exist_ok=True)
                figure = make(full)
                assert figure is not None
                save_picture(figure, tmp_path / folder / name)
            one, two = ((tmp_path / f / name).read_bytes() for f in ("one", "two"))
            assert one == two
            assert one.startswith(b"<?xml")


@pytest.mark.parametrize("part", [part for part in PARTS if part != "loss"])
def test_parts_not_asked_for_are_not_made(part: str) -> None:
    report = size_trace(production(n_jobs=8, seed=1), params=only(part), baselines=())
    made = {name for name in PARTS if getattr(report, name) is not None}
    assert made == {part}


@pytest.mark.parametrize("last", ["demand", "fixed fleet", "what changes it", "uncertainty"])
def test_ctrl_c_keeps_what_is_known(last: str) -> None:
    names = {"fixed fleet": "fleet", "what changes it": "changes"}

    def progress(label: str, done: int, total: int) -> None:
        if label == last and done:
            raise KeyboardInterrupt

    report = size_trace(
        production(n_jobs=24, seed=3), params=QUICK, baselines=("solo",), progress=progress
    )
    part = names.get(last, last)
    assert report.interrupted == part
    assert report.split.usd_per_hour > 0  # the main policy's demand was there
    after = PARTS[PARTS.index(part) + 1 :] if part in PARTS else PARTS
    assert all(getattr(report, name) is None for name in after)


def test_ctrl_c_before_anything_is_known_is_ctrl_c() -> None:
    def progress(label: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        size_trace(production(n_jobs=4, seed=1), params=only(), progress=progress)


def test_a_fleet_that_cannot_be_is_said_in_words() -> None:
    params = only("fleet", "loss", most_nodes=(1, 1), target=WaitTarget(0.0))
    report = size_trace(production(n_jobs=24, seed=3), params=params, baselines=())
    assert report.fleet is None
    assert report.loss is None
    assert "No fleet of at most 1" in report.failed["fleet"]


def test_a_budget_below_the_least_is_infeasible() -> None:
    costs = dataclasses.replace(
        COSTS,
        rollout=dataclasses.replace(COSTS.rollout, max_rented_nodes=0),
        train=dataclasses.replace(COSTS.train, max_rented_nodes=0),
        periods=(Period(capex_usd=1000.0),),
    )
    with pytest.raises(InfeasibleError, match=r"budget|capex"):
        size_trace(production(n_jobs=8, seed=1), params=only(), baselines=(), costs=costs)


def test_a_pool_without_a_price_of_owning_is_rented() -> None:
    rollout = dataclasses.replace(COSTS.rollout, usd_per_node=None, own_usd_per_gpu_hour=None)
    costs = dataclasses.replace(COSTS, rollout=rollout)
    report = size_trace(
        production(n_jobs=8, seed=1), params=only("fleet"), baselines=(), costs=costs
    )
    assert report.split.rollout.owned == 0
    assert report.fleet is not None
    assert report.fleet.priced_by == "rent"
    fleet: Fleet = report.fleet.answer.fleet
    assert report.fleet.answer.usd_per_hour == pytest.approx(
        DEFAULT_CLUSTER.usd_per_hour(fleet.rollout_nodes, fleet.train_nodes)
    )


def test_rent_is_that_of_the_cost_model_throughout() -> None:
    """One job; owning is barred, so owned and rented is renting all, at the file's price."""
    barred = {"rent_usd_per_gpu_hour": 7.0, "max_owned_nodes": 0}
    costs = dataclasses.replace(
        COSTS,
        rollout=dataclasses.replace(COSTS.rollout, **barred),
        train=dataclasses.replace(COSTS.train, **barred),
    )
    job = job_of("a", rollout_s=100.0, train_s=50.0, slo=1.5, duration_s=10 * HOUR_S)
    report = size_trace(table_of(job), baselines=(), params=only(), costs=costs)
    assert report.main.usd_per_hour_mean == pytest.approx(2 * 8 * 7.0)
    assert report.split.usd_per_hour == pytest.approx(report.main.usd_per_hour_mean)


@pytest.mark.parametrize("most_nodes", [None, (99, 99)])
def test_a_fixed_fleet_is_within_what_can_be_owned(most_nodes: tuple[int, int] | None) -> None:
    jobs, free = production(n_jobs=24, seed=3), only("fleet", target=WaitTarget(0.0, 1.0))
    fleet = size_trace(jobs, params=free, baselines=()).fleet
    assert fleet is not None
    most = fleet.answer.fleet.train_nodes - 1
    costs = dataclasses.replace(COSTS, train=dataclasses.replace(COSTS.train, max_owned_nodes=most))
    params = dataclasses.replace(free, most_nodes=most_nodes)
    held = size_trace(jobs, params=params, baselines=(), costs=costs)
    if held.fleet is not None:
        assert held.fleet.answer.fleet.train_nodes <= most
    else:
        assert f"+ {most} train nodes" in held.failed["fleet"]


def test_changes_by_tokens_are_counted_from_the_worst_case_whatever_is_asked_for() -> None:
    report = size_trace(
        production(n_jobs=8, seed=1), params=only("tokens", plan_at=("p50",)), baselines=()
    )
    assert report.tokens is not None
    assert [row.label for row in report.tokens] == ["p50", "max"]
    assert report.tokens[1].own_rent_change == 0


def test_a_policy_without_orders_of_phases_is_left_out_by_name() -> None:
    report = size_trace(
        production(n_jobs=8, seed=1), policy="colocated", params=only("tokens"), baselines=()
    )
    assert report.tokens is None
    assert "colocated" in report.left_out["tokens"]


def test_the_optimum_is_the_cheapest_demand() -> None:
    report = size_trace(
        Trace(name="t", sha256=None, jobs=production(n_jobs=12, seed=2)),
        params=only(perfect="optimum"),
        baselines=("solo",),
    )
    optimum = report.row("snapshot optimum", "wallclock")
    bound = report.row("volume bound", "wallclock")
    for name in ("weave", "solo"):
        assert report.row(name, "wallclock").usd_per_hour_mean >= optimum.usd_per_hour_mean - 1e-9
    assert optimum.usd_per_hour_mean >= bound.usd_per_hour_mean - 1e-9


def test_parts_are_known_by_name() -> None:
    with pytest.raises(InputError, match=r"Unknown part 'flet'.*'fleet'"):
        SizeParams(parts=("flet",))
    with pytest.raises(InputError, match="part fleet with part loss"):
        SizeParams(parts=("loss",))
    with pytest.raises(InputError, match="Unknown policy 'wave'"):
        size_trace(production(n_jobs=2, seed=1), policy="wave")
    with pytest.raises(InputError, match="Expected a policy of this report"):
        size_trace(production(n_jobs=2, seed=1), params=only(), baselines=()).row("solo")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": 0}, "samples >= 1"),
        ({"seed": -1}, "seed >= 0"),
        ({"switches": ("hot",)}, "switches in none, warm, cold, got 'hot'"),
        ({"near": (-0.1,)}, "shares >= 0"),
        ({"ladder_s": (-1.0,)}, "waits >= 0"),
    ],
)
def test_params_out_of_range_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        SizeParams(**changes)
