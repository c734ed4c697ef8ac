"""What a node costs owned: by hand, and where each default number is from."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from math import expm1, log1p
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from planner.size.pool_costs import (
    HOURS_PER_YEAR,
    CostModel,
    Period,
    PoolCosts,
    default_costs,
)

#: $87,660 over 2 years is $5/h; no power, hosting, staff, interest or residual.
BARE = PoolCosts(
    gpu="X",
    gpus_per_node=8,
    rent_usd_per_gpu_hour=2.0,
    usd_per_node=87_660.0,
    watts_per_gpu=0.0,
    watts_per_node=0.0,
    depreciation_years=2.0,
    interest=0.0,
    residual_share=0.0,
    hosting_usd_per_node_month=0.0,
    staff_usd_per_node_year=0.0,
)


def bare(**changes: Any) -> PoolCosts:
    return replace(BARE, **changes)


def test_without_interest_the_price_is_spread_evenly() -> None:
    assert BARE.own_usd_per_node_hour == pytest.approx(5.0)


def test_a_residual_is_not_spread() -> None:
    assert bare(residual_share=0.2).own_usd_per_node_hour == pytest.approx(4.0)


def test_the_annuity_is_that_of_two_payments() -> None:
    """$87,660 at 10 % in 2 yearly payments: P / (1/1.1 + 1/1.21) = 50,508.857.. a year."""
    yearly = 87_660.0 / (1 / 1.1 + 1 / 1.21)
    assert bare(interest=0.1).capital_usd_per_node_hour == pytest.approx(yearly / HOURS_PER_YEAR)


def test_a_residual_is_worth_its_sinking_fund() -> None:
    """20 % after 2 years at 10 %: payments of F with F x 1.1 + F = 17,532 are saved."""
    yearly = 87_660.0 / (1 / 1.1 + 1 / 1.21) - 0.2 * 87_660.0 / 2.1
    found = bare(interest=0.1, residual_share=0.2).capital_usd_per_node_hour
    assert found == pytest.approx(yearly / HOURS_PER_YEAR)


@settings(max_examples=300)
@example(interest=5e-324, years=1.0, residual=0.0)
@given(st.floats(0.0, 0.5), st.floats(0.5, 20.0), st.floats(0.0, 1.0))
def test_payments_and_residual_are_worth_the_price(
    interest: float, years: float, residual: float
) -> None:
    """The present value of all hourly payments, yearly in arrears, plus the sale is the price."""
    costs = bare(interest=interest, depreciation_years=years, residual_share=residual)
    yearly = costs.capital_usd_per_node_hour * HOURS_PER_YEAR
    discount = (1 + interest) ** -years
    annuities = years if interest < 1e-12 else -expm1(-years * log1p(interest)) / interest
    worth = yearly * annuities + residual * 87_660.0 * discount
    assert worth == pytest.approx(87_660.0, rel=1e-9)


def test_power_is_that_of_all_gpus_and_the_rest_of_the_node() -> None:
    """(8 x 400 + 1,800) W = 5 kW, x PUE 1.2 x $0.10 = $0.60/h."""
    costs = bare(watts_per_gpu=400.0, watts_per_node=1_800.0, pue=1.2, usd_per_kwh=0.1)
    assert costs.power_usd_per_node_hour == pytest.approx(0.6)
    assert costs.own_usd_per_node_hour == pytest.approx(5.6)


def test_hosting_is_by_the_month_and_staff_by_the_year() -> None:
    """12 x $365.25 + $4,383 = $8,766 a year = $1/h."""
    costs = bare(hosting_usd_per_node_month=365.25, staff_usd_per_node_year=4_383.0)
    assert costs.own_usd_per_node_hour == pytest.approx(6.0)


def test_a_stated_price_of_owning_replaces_all_others() -> None:
    costs = bare(own_usd_per_gpu_hour=0.5, hosting_usd_per_node_month=1_000.0)
    assert costs.own_usd_per_node_hour == 4.0
    assert costs.own_usd_at(0.5) == 2.0


def test_a_price_factor_is_for_the_purchase_alone() -> None:
    """Half of $5/h, and all of $1/h upkeep."""
    costs = bare(staff_usd_per_node_year=8_766.0)
    assert costs.own_usd_at(0.5) == pytest.approx(3.5)


def test_rent_is_that_of_all_gpus() -> None:
    assert BARE.rent_usd_per_node_hour == 16.0


def test_without_a_price_a_pool_can_only_be_rented() -> None:
    costs = bare(usd_per_node=None)
    assert not costs.can_own
    assert costs.own_usd_per_node_hour is None
    model = CostModel(rollout=BARE, train=costs)
    assert model.fleet_usd_per_hour(2, 0) == pytest.approx(10.0)
    with pytest.raises(InputError, match=r"Missing \[train\] usd_per_node .* owning GPU 'X'"):
        model.fleet_usd_per_hour(2, 1)


def test_a_budget_needs_purchase_prices() -> None:
    with pytest.raises(InputError, match=r"Missing \[train\] usd_per_node"):
        CostModel(
            rollout=BARE,
            train=bare(usd_per_node=None, own_usd_per_gpu_hour=1.0),
            periods=(Period(capex_usd=1.0),),
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"interest": -0.1}, r"interest >= 0 \(X\), got -0.1"),
        ({"usd_per_node": float("nan")}, r"usd_per_node >= 0 \(X\), got nan"),
        ({"pue": 0.9}, "pue >= 1"),
        ({"gpus_per_node": 0}, "gpus_per_node >= 1"),
        ({"depreciation_years": 0.0}, "depreciation_years > 0"),
        ({"residual_share": 1.1}, "residual_share <= 1"),
        ({"watts_per_gpu": None}, r"Missing watts_per_gpu \(W\): there is no default for GPU 'X'"),
    ],
)
def test_a_number_out_of_range_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        bare(**change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"years": 0.0}, "years > 0"),
        ({"growth": float("inf")}, "growth > 0"),
        ({"own_price_factor": -1.0}, "own_price_factor >= 0"),
        ({"capex_usd": -1.0}, "capex_usd"),
    ],
)
def test_a_period_out_of_range_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Period(**change)


def test_no_period_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="at least one purchase period"):
        CostModel(rollout=BARE, train=BARE, periods=())


# --- defaults -----------------------------------------------------------------------------------


def test_every_default_number_has_a_source() -> None:
    """All that enter the price of owning or renting; guesses say so, and the rest does not."""
    costs = default_costs(DEFAULT_CLUSTER)
    for pool in (costs.rollout, costs.train):
        numbers = {
            f.name
            for f in dataclasses.fields(pool)
            if isinstance(getattr(pool, f.name), float) and f.name != "lease_block_h"
        }
        assert numbers == set(pool.sources)
        assert set(pool.guesses()) == numbers - {"rent_usd_per_gpu_hour", "watts_per_gpu"}
    assert "rollout.pue" in costs.guesses()


def test_default_purchase_prices_are_the_quotes() -> None:
    """1,200,000 and 2,700,000 CNY at 7.25 CNY/$, typed in."""
    costs = default_costs(DEFAULT_CLUSTER)
    assert costs.rollout.capex_usd == pytest.approx(165_517.24, abs=0.01)
    assert costs.train.capex_usd == pytest.approx(372_413.79, abs=0.01)
    assert (costs.rollout.watts_per_gpu, costs.train.watts_per_gpu) == (400.0, 700.0)
    assert costs.capex_budget_usd is None


def test_rent_is_the_clusters_price() -> None:
    costs = default_costs(DEFAULT_CLUSTER)
    assert costs.rollout.rent_usd_per_node_hour == pytest.approx(14.80)
    assert costs.train.rent_usd_per_node_hour == pytest.approx(42.24)


def cluster_with(gpu: str, gpus: int = 8) -> Any:
    old = DEFAULT_CLUSTER.train
    return DEFAULT_CLUSTER.replace(
        train=replace(old, gpu=replace(old.gpu, name=gpu), gpus_per_node=gpus)
    )


def test_another_gpu_can_only_be_rented_and_says_so() -> None:
    train = default_costs(cluster_with("B200")).train
    assert not train.can_own
    assert "no purchase price of GPU 'B200' is known" in train.sources["usd_per_node"]
    assert train.guesses() == {}  # none of them is used


def test_a_node_of_other_width_is_scaled_and_labelled() -> None:
    train = default_costs(cluster_with("H800", gpus=4)).train
    assert train.usd_per_node == pytest.approx(372_413.79 / 2, abs=0.01)
    assert "scaled to 4 GPUs (guess)" in train.sources["usd_per_node"]
