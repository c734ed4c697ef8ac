"""Fleets near the least cost: each the best of its kind, within what was allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InfeasibleError, InputError
from instances.hardware import DEFAULT_CLUSTER
from models.problem.options import SolveOptions
from models.sizing import milp as sizing_milp
from planner.size.alternatives import SHARES, alternatives
from planner.size.economics import (
    CostModel,
    Period,
    PoolCosts,
    default_costs,
    owned_and_rented,
    split,
)
from sizing_cases import demand, row_st


def model(*periods: Period, **more: Any) -> CostModel:
    """Own $1/h, rent $3/h of a node of one GPU."""
    side = PoolCosts(
        gpu="X", gpus_per_node=1, rent_usd_per_gpu_hour=3.0, own_usd_per_gpu_hour=1.0, **more
    )
    return CostModel(rollout=side, train=side, periods=periods or (Period(),))


#: The upper 2 nodes of either pool are needed for 34 of 100 h: renting costs $1.02/h, owning $1.
FLAT = demand((66.0, 2, 2), (34.0, 4, 4))


def test_a_flat_optimum_has_alternatives() -> None:
    """Of 8 nodes owned at $8/h, each of 4 may be rented for $0.02/h more: 1 % allows all 4."""
    rows = alternatives(FLAT, model(), shares=(0.01,))
    assert [(row.aim, row.nodes) for row in rows] == [
        ("cost", (4, 4)),
        ("fewest-train", (4, 2)),
        ("fewest-nodes", (2, 2)),
        ("most-even", (4, 4)),
    ]
    assert [row.above_least for row in rows] == pytest.approx([0.0, 0.005, 0.01, 0.0])
    # upper 2 nodes x 34 h of 2 x 66 + 4 x 34 node-hours
    assert rows[2].rented_share == pytest.approx((68 / 268, 68 / 268))
    assert all(row.proved for row in rows)
    assert rows[0].capex_usd is None


@settings(max_examples=8, deadline=None)
@given(st.lists(row_st, min_size=1, max_size=5))
def test_every_row_keeps_its_promise(rows: list[Any]) -> None:
    of, costs = demand(*rows), default_costs(DEFAULT_CLUSTER)
    found = alternatives(of, costs)
    least = owned_and_rented(of, costs)
    assert [(row.within, row.aim) for row in found] == [
        (0.0, "cost"),
        *((s, a) for s in SHARES for a in ("fewest-train", "fewest-nodes", "most-even")),
    ]
    assert found[0].usd_per_hour == pytest.approx(least.usd_per_hour)
    for row in found:
        assert row.usd_per_hour == pytest.approx(split(of, *row.nodes, costs).usd_per_hour)
        assert row.above_least <= row.within + 1e-6
    for close, far in zip(found[1:4], found[4:], strict=True):  # more room is never worse
        assert far.nodes[1] <= close.nodes[1] or far.aim != "fewest-train"
        assert sum(far.nodes) <= sum(close.nodes) or far.aim != "fewest-nodes"
        unevenness = [abs(row.nodes[0] - row.nodes[1]) for row in (far, close)]
        assert unevenness[0] <= unevenness[1] or far.aim != "most-even"


def test_a_budget_binds_alternatives_too() -> None:
    costs = model(Period(capex_usd=50.0), usd_per_node=10.0)
    for row in alternatives(FLAT, costs):
        assert row.capex_usd is not None
        assert row.capex_usd <= 50.0


def test_purchases_of_later_periods_are_counted() -> None:
    """2 nodes now and 4 later, at $10 each and then $5."""
    costs = model(Period(), Period(growth=2.0, own_price_factor=0.5), usd_per_node=10.0)
    least = alternatives(demand((1.0, 2, 0)), costs, shares=())[0]
    assert least.owned == ((2, 0), (4, 0))
    assert least.capex_usd == 2 * 10.0 + 2 * 5.0


def test_progress_counts_every_row() -> None:
    seen: list[tuple[int, int]] = []
    alternatives(FLAT, model(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 7) for k in range(1, 8)]


def test_without_time_what_is_held_is_not_called_proved() -> None:
    rows = alternatives(FLAT, model(), deadline=SolveOptions(time_limit_s=0).start())
    assert rows
    assert not any(row.proved for row in rows)


def test_ctrl_c_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sizing_milp, "run_highs", pressed)
    with pytest.raises(KeyboardInterrupt):
        alternatives(FLAT, model())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="shares >= 0"):
        alternatives(FLAT, model(), shares=(-0.1,))
    tight = model()
    tight = replace(tight, train=replace(tight.train, max_owned_nodes=1, max_rented_nodes=1))
    with pytest.raises(InfeasibleError, match="train pool: its peak of 4"):
        alternatives(FLAT, tight)
