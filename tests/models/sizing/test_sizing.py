"""What owned counts cost, by arithmetic: by hand, and against an oracle written apart."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InfeasibleError, InputError
from models.sizing.problem import (
    DemandArrays,
    Scenario,
    SizingProblem,
    breaches,
    cells_of,
    cost_of,
    grid_of,
    lease_starts,
    least_separable,
)
from oracles.least_fleet import (
    Prices,
    allowed,
    fewest_leases,
    fleets,
    highest_in_cells,
    least_fleet,
)
from sizing_cases import arrays, demand_st, problem, problems, terms

# --- by hand ------------------------------------------------------------------------------------


def test_a_constant_demand_is_owned_when_owning_is_cheaper() -> None:
    """2 and 5 nodes at all times at $1/h owned or $3/h rented: own all, $7/h."""
    of = problem((10.0, 2, 5))
    assert least_separable(of) == ((2, 5),)
    assert cost_of(of, ((2, 5),)).usd_per_hour == 7.0


def test_a_peak_shorter_than_own_over_rent_is_rented() -> None:
    """4 nodes for 3 h, 1 for 7 h: own / rent = 1/3 > 0.3, so own 1 and rent 3 for 0.3 of the time.

    1 x $1 + 3 x 0.3 x $3 = $3.70/h, against $4/h for owning the peak.
    """
    of = problem((3.0, 4, 0), (7.0, 1, 0))
    assert least_separable(of) == ((1, 0),)
    costs = cost_of(of, ((1, 0),))
    assert costs.own_usd_per_hour == (1.0, 0.0)
    assert costs.rent_usd_per_hour == pytest.approx((2.7, 0.0))
    assert costs.rented_share == (pytest.approx(9 / 19), None)  # 9 of 12 + 7 node-hours


def test_a_tie_goes_to_fewer_nodes() -> None:
    """4 nodes for 1 of 4 h, own / rent = 1/4 exactly: owned or rented costs $1 x N either way."""
    of = problem((1.0, 4, 0), (3.0, 0, 0), rollout=terms(own=1.0, rent=4.0))
    assert least_separable(of) == ((0, 0),)
    assert {cost_of(of, ((n, 0),)).usd_per_hour for n in range(5)} == {4.0}


def test_no_demand_needs_nothing() -> None:
    of = problem()
    assert least_separable(of) == ((0, 0),)
    assert cost_of(of, ((0, 0),)).usd_per_hour == 0
    assert cost_of(of, ((0, 0),)).rented_share == (None, None)


def test_a_rental_limit_forces_what_would_not_pay() -> None:
    """Owning at $9/h never pays against $3/h, but at most 1 of 4 nodes can be rented."""
    of = problem((1.0, 4, 0), rollout=terms(own=9.0, max_rented=1))
    assert least_separable(of) == ((3, 0),)


def test_a_pool_that_cannot_be_owned_is_rented() -> None:
    of = problem((1.0, 4, 1), rollout=terms(own=None))
    assert least_separable(of) == ((0, 1),)
    assert "owns 2 of at most 0" in breaches(of, ((2, 1),))[0]


def test_a_binding_budget_is_left_to_the_milp() -> None:
    """All 4 + 5 nodes pay; at $10 each $90 is enough and $89 is not."""
    side = terms(capex=10.0)
    rows = (1.0, 4, 5)
    assert least_separable(problem(rows, rollout=side, train=side, budget=90.0)) == ((4, 5),)
    assert least_separable(problem(rows, rollout=side, train=side, budget=89.0)) is None


def test_a_peak_beyond_all_limits_says_by_how_much() -> None:
    of = problem((1.0, 9, 1), rollout=terms(max_owned=3, max_rented=4))
    words = r"rollout pool: its peak of 9 nodes is 2 more than the 3 .* owned and the 4 .* rented"
    with pytest.raises(InfeasibleError, match=words):
        least_separable(of)


def test_a_scenario_that_cannot_happen_counts_for_nothing() -> None:
    sure = Scenario(probability=1.0, demand=(arrays((1.0, 1, 1)),))
    never = Scenario(probability=0.0, demand=(arrays((1.0, 9, 9)),))
    of = SizingProblem(rollout=terms(max_rented=0), train=terms(), scenarios=(sure, never))
    assert of.peaks == ((1, 1),)
    assert least_separable(of) == ((1, 1),)


# --- leases -------------------------------------------------------------------------------------


def test_a_lease_is_paid_in_full() -> None:
    """1 node for 1 h of every 10, leases of 5 h at $2/h: one lease, 2 x 5 / 10 = $1/h."""
    of = problem((1.0, 1, 0), (9.0, 0, 0), rollout=terms(own=9.0, rent=2.0, lease_block_h=5.0))
    assert cost_of(of, ((0, 0),)).rent_usd_per_hour == (1.0, 0.0)


def test_one_lease_serves_two_needs_within_its_hours() -> None:
    """Needs at hours 0 and 4 of leases of 5 h: one; at 0 and 5: two."""
    near = problem((1.0, 1, 0), (3.0, 0, 0), (1.0, 1, 0), rollout=terms(lease_block_h=5.0))
    far = problem((1.0, 1, 0), (4.0, 0, 0), (1.0, 1, 0), rollout=terms(lease_block_h=5.0))
    assert near.leased_nodes(0, 0, 0) * 5.0 == pytest.approx(5.0)  # one lease of 5 h in 5 h
    assert far.leased_nodes(0, 0, 0) * 6.0 == pytest.approx(10.0)


def test_a_cell_needs_its_highest_demand() -> None:
    """Leases of 24 h in cells of 1 h: an hour split in half has the higher half's need."""
    cells, per_lease = cells_of(arrays((0.5, 1, 0), (1.0, 3, 0), (0.5, 2, 0)), 0, 24.0)
    assert (cells.tolist(), per_lease) == ([3, 3], 24)


@pytest.mark.parametrize(
    ("block_h", "total_h", "expected"),
    [
        (24.0, 370.0, 24),  # 370 cells of 1 h
        (1.0, 370.0, 2),  # 740 cells; 3 would make 1,110
        (0.1, 370.0, 1),  # 3,700 cells: a lease has at least one
        (24.0, 0.0, 24),
    ],
)
def test_the_grid_has_about_a_thousand_cells(block_h: float, total_h: float, expected: int) -> None:
    assert grid_of(block_h, total_h) == expected


@given(st.lists(st.integers(-2, 6), max_size=30), st.integers(1, 7))
def test_leases_cover_and_their_dual_proves_them_fewest(need: list[int], per_lease: int) -> None:
    starts = lease_starts(need, per_lease).tolist()
    for cell, nodes in enumerate(need):
        held = sum(starts[max(cell - per_lease + 1, 0) : cell + 1])
        assert held >= nodes
        assert held <= max([0, *need])  # never more than some cell lacks
    assert sum(starts) == fewest_leases(need, per_lease)


@given(demand_st, st.sampled_from([0.75, 1.0, 2.5]))
def test_cells_are_those_found_by_comparing_all_with_all(
    demand: DemandArrays, block_h: float
) -> None:
    cells, per_lease = cells_of(demand, 0, block_h)
    assert cells.tolist() == highest_in_cells(demand, 0, Fraction(block_h) / per_lease)


# --- against the oracle -------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(problems())
def test_arithmetic_agrees_with_plain_loops(of: SizingProblem) -> None:
    """Every fleet: its cost, and whether it is within the limits."""
    prices = Prices(of, grid_of)
    for place, owned in enumerate(fleets(of)):
        assert cost_of(of, owned).usd_per_hour == pytest.approx(prices.usd(owned), abs=1e-9)
        assert breaches(of, owned) == ()
        if place > 20:
            break
    for owned in (((0, 0),) * len(of.period_weights), ((5, 5),) * len(of.period_weights)):
        assert (breaches(of, owned) == ()) == allowed(of, owned)


@settings(max_examples=60, deadline=None)
@given(problems(periods=1))
def test_the_closed_form_is_the_least_of_all_fleets(of: SizingProblem) -> None:
    least = least_fleet(of, grid_of)
    try:
        owned = least_separable(of)
    except InfeasibleError:
        assert least is None
        return
    if owned is None:  # the budget binds
        assert of.has_budget
        return
    assert cost_of(of, owned).usd_per_hour == pytest.approx(least, abs=1e-9)


# --- true monotonicity --------------------------------------------------------------------------


@given(problems(periods=1, limits=False), st.sampled_from([1.25, 2.0]))
def test_a_dearer_rent_never_lowers_what_is_owned(of: SizingProblem, factor: float) -> None:
    def dearer(side: Any) -> Any:
        return replace(side, rent_usd=tuple(factor * usd for usd in side.rent_usd))

    more = replace(of, rollout=dearer(of.rollout), train=dearer(of.train))
    before, after = least_separable(of), least_separable(more)
    assert before is not None
    assert after is not None
    assert after[0][0] >= before[0][0]
    assert after[0][1] >= before[0][1]


@settings(deadline=None)
@given(problems(periods=1), st.integers(0, 5))
def test_a_looser_rental_limit_never_costs_more(of: SizingProblem, most: int) -> None:
    of = replace(of, capex_budget_usd=None)
    tight = replace(of, rollout=replace(of.rollout, max_rented=most))
    loose = replace(of, rollout=replace(of.rollout, max_rented=most + 1))
    try:
        held = least_separable(tight)
    except InfeasibleError:
        return
    looser = least_separable(loose)
    assert held is not None
    assert looser is not None
    before, after = cost_of(tight, held).usd_per_hour, cost_of(loose, looser).usd_per_hour
    assert after <= before + 1e-9


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scenarios": ()}, "sum to 1, got a sum of 0"),
        ({"period_weights": (0.0,)}, "each of length > 0"),
        ({"period_weights": (1.0, 1.0)}, "Expected 2 demands of every scenario"),
        ({"capex_budget_usd": (1.0, 2.0)}, "Expected 1 budgets, got 2"),
        ({"capex_budget_usd": (1.0,)}, "Missing the purchase price of a node of the rollout pool"),
        ({"train": terms(own=-1.0)}, "own_usd >= 0 of the train pool"),
        ({"train": terms(max_owned=-1)}, "max_owned >= 0 of the train pool, got -1"),
        ({"train": terms(lease_block_h=-1.0)}, "lease_block_h >= 0 of the train pool"),
    ],
)
def test_a_problem_that_breaks_a_rule_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(problem((1.0, 1, 1)), **change)


@pytest.mark.parametrize(
    ("rows", "words"),
    [(((0.0, 1, 1),), "hours > 0"), (((1.0, -1, 1),), "nodes >= 0")],
)
def test_a_demand_that_breaks_a_rule_is_refused(rows: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        arrays(*rows)


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match="to have one length"):
        DemandArrays(
            hours=np.ones(2), rollout_nodes=np.ones(1, np.int64), train_nodes=np.ones(2, np.int64)
        )
    side = terms()
    with pytest.raises(InputError, match="Expected 1 rent_usd of the train pool, got 2"):
        replace(problem((1.0, 1, 1)), train=replace(side, rent_usd=(1.0, 2.0)))


def test_selling_is_a_breach() -> None:
    two = SizingProblem(
        rollout=replace(terms(), own_usd=(1.0, 1.0), rent_usd=(3.0, 3.0)),
        train=replace(terms(), own_usd=(1.0, 1.0), rent_usd=(3.0, 3.0)),
        scenarios=(Scenario(probability=1.0, demand=(arrays((1.0, 2, 2)),) * 2),),
        period_weights=(1.0, 1.0),
    )
    assert breaches(two, ((2, 0), (1, 0))) == ("rollout pool in period 2: sells 1 nodes",)


@given(st.lists(st.integers(0, 6), max_size=20), st.integers(1, 5), st.integers(2, 3))
def test_a_finer_grid_never_takes_more_leases(need: list[int], per_lease: int, cut: int) -> None:
    """The same needs, each cell cut in two or three: leases may start at more moments."""
    finer = [nodes for nodes in need for _ in range(cut)]
    coarse = lease_starts(need, per_lease).sum()
    assert lease_starts(finer, cut * per_lease).sum() <= coarse


def test_arrays_cannot_be_changed() -> None:
    of = arrays((1.0, 1, 1))
    with pytest.raises(ValueError, match="read-only"):
        of.rollout_nodes[0] = 2
