"""The fleet oracle itself: values derived by hand, and leases by trying every start."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.least_fleet import Prices, fewest_leases, fleets, highest_in_cells, least_fleet
from sizing_cases import arrays, problem, terms


def one_cell(_block_h: float, _total_h: float) -> int:
    return 1


def test_values_by_hand() -> None:
    """4 nodes for 3 h, 1 for 7 h; own $1/h, rent $3/h: own 1 and rent 3 for 0.3 of the time."""
    of = problem((3.0, 4, 0), (7.0, 1, 0))
    assert round(Prices(of, one_cell).usd(((1, 0),)), 9) == 3.7
    assert least_fleet(of, one_cell) == Prices(of, one_cell).usd(((1, 0),))


def test_leases_by_hand() -> None:
    """Leases of 5 h in one cell each: 10 h with needs in both halves take 2, $3 x 2 x 5 / 10."""
    of = problem((1.0, 1, 0), (8.0, 0, 0), (1.0, 1, 0), rollout=terms(own=9.0, lease_block_h=5.0))
    assert Prices(of, one_cell).usd(((0, 0),)) == 3.0


def test_limits_by_hand() -> None:
    """At most 1 of 2 nodes rented and $10 for one node at most: only owning 1 remains."""
    of = problem(
        *((1.0, 2, 0),),
        rollout=terms(capex=10.0, max_rented=1),
        train=terms(capex=1.0),
        budget=10.0,
    )
    assert list(fleets(of)) == [((1, 0),)]
    assert (
        least_fleet(problem((1.0, 2, 0), rollout=terms(max_rented=0, max_owned=1)), one_cell)
        is None
    )


def test_a_cell_that_is_only_touched_is_not_covered() -> None:
    cells = highest_in_cells(arrays((1.0, 5, 0), (1.5, 2, 0)), 0, Fraction(1))
    assert cells == [5, 2, 2]


def by_trying(need: Sequence[int], per_lease: int) -> int:
    """Return the fewest leases of all numbers of starts in each cell."""
    best = None
    for starts in product(range(max([0, *need]) + 1), repeat=len(need)):
        held = [sum(starts[max(i - per_lease + 1, 0) : i + 1]) for i in range(len(need))]
        if all(have >= want for have, want in zip(held, need, strict=True)):
            best = min(sum(starts), best if best is not None else sum(starts))
    assert best is not None
    return best


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-1, 2), max_size=6), st.integers(1, 4))
def test_the_dual_of_leases_is_their_fewest(need: list[int], per_lease: int) -> None:
    assert fewest_leases(need, per_lease) == by_trying(need, per_lease)
