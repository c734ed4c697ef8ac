"""Who is cheapest at which price of a train GPU."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from builders import job_of, options_of, table_of
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from planner.size import price_crossover as module
from planner.size.price_crossover import at_price_ratio, price_crossover, price_ratio

USD = 8 * 1.85  # of a rollout node


def pair() -> JobTable:
    """Two jobs that share one node of each kind (300 s of rollouts in D = 300), for an hour."""
    return table_of(*(job_of(name, 150, 100, 1.2) for name in "ab"))


def test_prices_change_of_the_train_gpu_alone() -> None:
    cluster = at_price_ratio(DEFAULT_CLUSTER, 4.0)
    assert price_ratio(cluster) == 4.0
    assert cluster.rollout == DEFAULT_CLUSTER.rollout
    assert price_ratio(DEFAULT_CLUSTER) == pytest.approx(5.28 / 1.85)


def test_a_pair_by_hand() -> None:
    # in rollout nodes, ratio x: solo 2 + 2x, colocated 2x, weave 1 + x: weave and colocated cost
    # the same at x = 1; solo is dearer than either at every x
    found = price_crossover(
        pair(), options=options_of(), convention="wallclock", ratios=(0.5, 2.0, 8.0)
    )
    assert [point.cheapest for point in found.points] == ["colocated", "weave", "weave"]
    for point in found.points:
        x = point.ratio
        by_hand = [USD * (2 + 2 * x), USD * 2 * x, USD * (1 + x)]
        assert point.usd_total == pytest.approx(by_hand)
        assert point.usd_per_hour_mean == pytest.approx(by_hand)
        assert point.usd_per_train_gpu_hour == pytest.approx(1.85 * x)
    (change,) = found.crossovers
    assert (change.cheaper_below, change.cheaper_above) == ("colocated", "weave")
    assert change.low_ratio <= 1 <= change.high_ratio + 1e-9
    assert change.high_ratio - change.low_ratio <= found.tolerance
    assert [(name, to) for name, _, to in found.spans] == [
        ("colocated", change.ratio),
        ("weave", 8.0),
    ]
    fixed = {(row.first, row.second): row for row in found.fixed}
    assert fixed["colocated", "weave"].ratio == pytest.approx(1.0)
    assert not any(row.differs for row in found.fixed)
    assert fixed["solo", "colocated"].ratio is None
    assert fixed["solo", "weave"].ratio is None
    assert len(found.rows) == 3
    assert found.rows[1]["weave_usd_total"] == pytest.approx(3 * USD)


def test_a_slower_colocated_job_pays_for_its_longer_stay_under_work_only() -> None:
    # factor 2: 4x against 1.2 + 1.2x (both stretch by 300 / 250): x = 1.2 / 2.8 under work;
    # under wallclock the stay is fixed and the factor changes nothing: x = 1
    for convention, at in (("work", 1.2 / 2.8), ("wallclock", 1.0)):
        found = price_crossover(
            pair(),
            options=options_of(colocated_factor=2.0),
            convention=convention,  # type: ignore[arg-type]
            ratios=(0.1, 2.0),
            tolerance=1e-4,
        )
        assert found.crossovers[0].ratio == pytest.approx(at, abs=1e-4)


def test_equal_costs_go_to_the_earlier_policy() -> None:
    alone = table_of(job_of("a", 150, 100, 1.2))
    found = price_crossover(
        alone, options=options_of(), convention="work", policies=("weave", "solo"), ratios=(1, 8)
    )
    assert [point.cheapest for point in found.points] == ["weave", "weave"]
    assert found.crossovers == ()


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replays with made-up node-hours (rollout, train); the ratios of weave's, as they come."""
    asked: list[float] = []

    def replay(jobs: Any, policy: str, options: Any, *, convention: str) -> Any:
        ratio = price_ratio(options.cluster)
        held = {"solo": (10, 2), "colocated": (0, 7)}.get(policy)
        if held is None:
            asked.append(ratio)
            held = (9, 1) if ratio >= 3 else (1, 6)
        hours = dict(zip(("rollout", "train"), map(float, held), strict=True))
        return SimpleNamespace(node_hours=hours, horizon_h=1.0)

    monkeypatch.setattr(module, "replay", replay)
    return asked


def test_placing_anew_may_jump_and_a_third_may_win_between(made_up: list[float]) -> None:
    # solo 10 + 2x, colocated 7x, weave 1 + 6x below 3 and 9 + x from there on: colocated wins to
    # x = 1; weave wins on [1, 9/4] by 1 + 6x <= 10 + 2x; solo on [9/4, 3); weave from 3 on, with
    # a jump. All within one step of the grid, found by the middles of intervals.
    found = price_crossover(
        pair(), options=options_of(), convention="work", ratios=(0.5, 8.0), tolerance=1e-3
    )
    assert [name for name, _, _ in found.spans] == ["colocated", "weave", "solo", "weave"]
    assert [c.ratio for c in found.crossovers] == pytest.approx([1, 2.25, 3], abs=1e-3)
    assert len(made_up) == len(set(made_up))  # nothing is replayed twice


def test_a_grid_may_step_over_two_crossovers(made_up: list[float]) -> None:
    # weave wins at both ends, so the span of solo between them is not looked for: as documented
    found = price_crossover(
        pair(), options=options_of(), convention="work", ratios=(2.1, 8.0), tolerance=1e-3
    )
    assert [name for name, _, _ in found.spans] == ["weave"]


def test_fixed_plans_differ_from_placing_anew_and_say_so(made_up: list[float]) -> None:
    # at the base ratio 2.85 weave holds (1, 6): against solo equal at x = (10 - 1) / (6 - 2);
    # with placing anew there is the jump at 3 too
    found = price_crossover(pair(), options=options_of(), convention="work", ratios=(0.5, 2.6, 8.0))
    fixed = {(row.first, row.second): row for row in found.fixed}
    assert fixed["solo", "weave"].ratio == pytest.approx(2.25)
    assert fixed["solo", "weave"].replayed == pytest.approx((2.25, 3.0), abs=1e-3)
    assert fixed["solo", "weave"].differs
    # 10 + 2x = 7x at 2, whatever weave does
    assert fixed["solo", "colocated"].ratio == pytest.approx(2.0)
    assert not fixed["solo", "colocated"].differs


@pytest.mark.parametrize(
    "changes",
    [{"ratios": (1.0,)}, {"ratios": (2.0, 1.0)}, {"ratios": (0.0, 1.0)}, {"tolerance": 0.0}],
)
def test_senseless_grids_are_refused(changes: Any) -> None:
    with pytest.raises(InputError, match="Expected"):
        price_crossover(pair(), options=options_of(), convention="work", **changes)


def test_free_rollout_gpus_have_no_ratio() -> None:
    gpu = dataclasses.replace(DEFAULT_CLUSTER.rollout.gpu, usd_per_gpu_hour=0.0)
    node = dataclasses.replace(DEFAULT_CLUSTER.rollout, gpu=gpu)
    with pytest.raises(InputError, match="no ratio of prices"):
        price_crossover(
            pair(),
            options=options_of(cluster=DEFAULT_CLUSTER.replace(rollout=node)),
            convention="work",
        )
