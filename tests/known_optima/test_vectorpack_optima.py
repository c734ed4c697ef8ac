"""Vector bin packing with published optima: reached and proved by set partitioning.

All sixteen instances, 20 to 60 items of three sizes; each optimum exceeds the simple bound or is
missed by the best heuristic of the set's authors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from instances.checker import check_plan
from instances.plan import Plan
from known_optima_cases import VECTORPACK, Packing, needs, vectorpack, vectors
from models.exact import exhaustive
from models.exact.set_partition import solve
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.result import Termination

pytestmark = needs(VECTORPACK)

PACKINGS = vectorpack() if VECTORPACK.is_dir() else []


def bins_of(plan: Plan) -> list[list[int]]:
    """Return the items of each group."""
    return [[int(p.job_id.removeprefix("i")) for p in group.placements] for group in plan.groups]


def assert_packs(packing: Packing, bins: Sequence[Sequence[int]]) -> None:
    """Every item once, and no bin above its capacity in any dimension, by the sizes alone."""
    assert sorted(item for items in bins for item in items) == list(range(len(packing.sizes)))
    for items in bins:
        for sizes in zip(*(packing.sizes[item] for item in items), strict=True):
            assert sum(sizes) <= packing.capacity


def simple_bound(packing: Packing) -> int:
    """Return the volume bound: the fullest dimension, rounded up."""
    totals = [sum(sizes) for sizes in zip(*packing.sizes, strict=True)]
    return max(math.ceil(total / packing.capacity) for total in totals)


def test_all_instances_are_read() -> None:
    sizes = [len(packing.sizes) for packing in PACKINGS]
    assert (len(PACKINGS), sizes.count(20), sizes.count(40), sizes.count(60)) == (16, 7, 7, 2)
    for packing in PACKINGS:
        assert all(len(item) == 3 for item in packing.sizes)
        assert all(0 <= size <= packing.capacity for item in packing.sizes for size in item)
        assert simple_bound(packing) <= packing.optimum <= len(packing.sizes)


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
def test_the_published_optimum_is_reached_and_proved(packing: Packing) -> None:
    snapshot = vectors(packing)
    result = solve(snapshot, SolveOptions())
    assert result.termination is Termination.OPTIMAL
    assert result.plan is not None
    assert check_plan(result.plan).ok
    bins = bins_of(result.plan)
    assert_packs(packing, bins)
    assert len(bins) == packing.optimum
    assert result.bound_usd_per_hour == pytest.approx(snapshot.usd_per_hour(*2 * [packing.optimum]))


def test_a_group_is_a_bin() -> None:
    """Sets of three of the first nine items of an instance of each capacity, and whole groups: a
    valid group exists exactly when no dimension exceeds the capacity."""
    by_capacity = {packing.capacity: packing for packing in PACKINGS}
    assert len(by_capacity) >= 3
    seen = {True: 0, False: 0}
    for packing in by_capacity.values():
        cost = GroupCost(vectors(packing))
        for first in range(0, 9, 2):
            for size in range(1, 9 - first):
                items = tuple(range(first, first + size))
                totals = [sum(s) for s in zip(*(packing.sizes[i] for i in items), strict=True)]
                fits = max(totals) <= packing.capacity
                assert (cost.decide(items, (1, 1)) is not None) is fits
                seen[fits] += 1
    assert min(seen.values()) >= 10


@pytest.mark.parametrize("packing", [p for p in PACKINGS if len(p.sizes) == 20][:3], ids=str)
def test_exhaustive_search_packs_ten_items_alike(packing: Packing) -> None:
    """The first ten items: by exhaustive search and by set partitioning."""
    snapshot = vectors(Packing(packing.name, packing.capacity, packing.sizes[:10], 0))
    least = exhaustive.solve(snapshot, SolveOptions()).usd_per_hour
    assert least is not None
    assert solve(snapshot, SolveOptions()).usd_per_hour == pytest.approx(least)
