"""Pool bounds and price-and-branch on bin packing with published optima.

Each instance is one pool: its items are the jobs' train states (or, of three sizes, the states of
both pools and the seconds of the train pool), so the bound of its bins is that of the train pool.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from known_optima_cases import (
    BINPACK,
    VECTORPACK,
    Packing,
    binpack,
    needs,
    one_size,
    vectorpack,
    vectors,
)
from models.bounds.columns import PoolBound, pool_bound, pool_decomposition
from models.bounds.pool_items import PoolItems
from models.bounds.pool_packings import is_packing, price_and_branch
from models.problem.options import SolveOptions

PACKINGS = [*binpack("binpack1.txt"), *binpack("binpack11.txt")] if BINPACK.is_dir() else []
VECTORS = vectorpack() if VECTORPACK.is_dir() else []


@cache
def bounded(name: str) -> tuple[PoolItems, PoolBound]:
    packing = next(p for p in PACKINGS if p.name == name)
    sizes = [size for (size,) in packing.sizes]
    items = PoolItems.of(one_size(packing.capacity, sizes), "train")
    return items, pool_bound(items, SolveOptions().start())


@needs(BINPACK)
def test_all_instances_are_read() -> None:
    assert len(PACKINGS) == 30
    assert [len(p.sizes) for p in PACKINGS] == [120] * 20 + [200] * 10


def cases(quick: tuple[str, ...]) -> list[Any]:
    """Return all instances; those whose names begin otherwise are marked slow."""
    return [
        pytest.param(p, marks=() if p.name.startswith(quick) else pytest.mark.slow, id=p.name)
        for p in PACKINGS
    ]


@needs(BINPACK)
@pytest.mark.parametrize("packing", cases(("u120", "HARD0", "HARD2")))
def test_the_bound_rounds_up_to_the_optimum(packing: Packing) -> None:
    """None of these has a gap between the rounded LP and the optimum."""
    _, bound = bounded(packing.name)
    assert bound.exact
    assert bound.nodes == packing.optimum


@needs(BINPACK)
@pytest.mark.parametrize("packing", cases(("u120", "HARD0")))
def test_packings_are_whole_and_near(packing: Packing) -> None:
    """All u120 are packed best, and so were all HARD ones; of these one bin more is let pass, as a
    dive may be cut short by its 20 s."""
    items, bound = bounded(packing.name)
    bins = price_and_branch(items, bound, SolveOptions(time_limit_s=20).start())
    assert is_packing(items, bins)
    assert packing.optimum <= len(bins) <= packing.optimum + packing.name.startswith("HARD")


@needs(VECTORPACK)
@pytest.mark.parametrize("packing", VECTORS, ids=str)
def test_three_sizes_are_bounded_from_below(packing: Packing) -> None:
    """The bound of each pool sees two or one of the three sizes, so it may be below the optimum."""
    bound = pool_decomposition(vectors(packing), SolveOptions().start())
    assert max(bound.rollout.nodes, bound.train.nodes) <= packing.optimum
    assert (bound.rollout.exact, bound.train.exact) == (True, True)
