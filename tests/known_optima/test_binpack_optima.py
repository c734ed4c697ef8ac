"""Bin packing of the OR-Library with published optima, whole and cut short.

Set partitioning proves every u120 instance (120 items, capacity 150): in 1 to 19 s of one core
and at most half a GB each, two minutes in all. Those of two seconds are in the default run, the
others are marked slow. The ten HARD instances (200 items, three or four to a bin) have too many
sets of items to enumerate, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from builders import TRAIN_USD
from instances.checker import check_plan
from instances.errors import UnsupportedError
from known_optima_cases import BINPACK, Packing, binpack, needs, one_size
from models.exact.set_partition import solve
from models.problem.options import SolveOptions
from models.problem.result import Termination

pytestmark = needs(BINPACK)

PACKINGS = binpack("binpack1.txt") if BINPACK.is_dir() else []
#: The quickest to prove.
QUICK = ("u120_10", "u120_16", "u120_17")


def sizes_of(packing: Packing) -> list[int]:
    return [size for (size,) in packing.sizes]


def assert_proved(capacity: int, sizes: Sequence[int], bins: int) -> None:
    """Proved optimal, and the groups are so many bins, none above its capacity."""
    result = solve(one_size(capacity, sizes), SolveOptions())
    assert result.termination is Termination.OPTIMAL
    assert result.plan is not None
    assert check_plan(result.plan).ok
    packed = [
        [int(p.job_id.removeprefix("i")) for p in group.placements] for group in result.plan.groups
    ]
    assert sorted(item for items in packed for item in items) == list(range(len(sizes)))
    assert all(sum(sizes[item] for item in items) <= capacity for items in packed)
    assert len(packed) == bins
    assert result.bound_usd_per_hour == pytest.approx(bins * TRAIN_USD)


def test_all_instances_are_read() -> None:
    assert len(PACKINGS) == 20
    for packing in PACKINGS:
        assert (len(packing.sizes), packing.capacity) == (120, 150)
        assert all(20 <= size <= 100 for size in sizes_of(packing))
        assert lower_bound(150, sizes_of(packing)) <= packing.optimum
        assert packing.optimum <= len(best_fit(150, sizes_of(packing)))


@pytest.mark.parametrize(
    "packing",
    [
        pytest.param(p, marks=() if p.name in QUICK else pytest.mark.slow, id=p.name)
        for p in PACKINGS
    ],
)
def test_the_published_optimum_is_reached_and_proved(packing: Packing) -> None:
    assert_proved(packing.capacity, sizes_of(packing), packing.optimum)


# --- cut short: optima of our own, by others' means ---------------------------------------------


def lower_bound(capacity: int, sizes: Sequence[int]) -> int:
    """Return the bound L2 of Martello and Toth (1990).

    For a threshold ``k <= capacity / 2``: items above ``capacity - k`` have a bin each, so have
    others above ``capacity / 2``; those from ``k`` to ``capacity / 2`` fill what the latter leave.
    """
    best = 0
    for k in range(capacity // 2 + 1):
        alone = [s for s in sizes if s > capacity - k]
        large = [s for s in sizes if capacity / 2 < s <= capacity - k]
        rest = sum(s for s in sizes if k <= s <= capacity / 2)
        left = rest - (len(large) * capacity - sum(large))
        best = max(best, len(alone) + len(large) + max(0, math.ceil(left / capacity)))
    return best


def best_fit(capacity: int, sizes: Sequence[int]) -> list[int]:
    """Return the loads of the bins of best fit decreasing."""
    loads: list[int] = []
    for size in sorted(sizes, reverse=True):
        rooms = [i for i, load in enumerate(loads) if load + size <= capacity]
        if rooms:
            loads[max(rooms, key=lambda i: loads[i])] += size
        else:
            loads.append(size)
    return loads


@pytest.mark.parametrize("items", [20, 30, 40])
def test_the_first_items_take_as_many_bins_as_bound_and_heuristic_say(items: int) -> None:
    """Where L2 and best fit decreasing meet, so that the optimum is known without a solver: in at
    least half of the instances. In the others the optimum lies between."""
    met = 0
    for packing in PACKINGS:
        sizes = sizes_of(packing)[:items]
        least, most = lower_bound(150, sizes), len(best_fit(150, sizes))
        if least == most:
            assert_proved(150, sizes, least)
            met += 1
            continue
        result = solve(one_size(150, sizes), SolveOptions())
        assert result.termination is Termination.OPTIMAL
        assert result.usd_per_hour is not None
        assert least <= round(result.usd_per_hour / TRAIN_USD) <= most
    assert met >= 10


@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ((75,) * 4, 2),
        ((76,) * 4, 4),
        ((50,) * 7, 3),
        ((60, 60, 50, 50, 40, 40), 2),
        ((150, 1), 2),
        ((100, 100, 50, 50), 2),
        ((90, 80, 70, 60), 2),
    ],
)
def test_by_hand(sizes: tuple[int, ...], bins: int) -> None:
    """Capacity 150: exactly full bins, and one unit too much."""
    assert_proved(150, sizes, bins)


def test_too_many_sets_of_items_are_refused() -> None:
    """HARD0: 200 items of 20,000 to 35,000 in bins of 100,000, so 1.3 million triples alone."""
    packing = binpack("binpack11.txt")[0]
    assert (packing.name, len(packing.sizes), packing.capacity) == ("HARD0", 200, 100_000)
    with pytest.raises(UnsupportedError, match="lower max_group_size or take fewer jobs"):
        solve(one_size(packing.capacity, sizes_of(packing)), SolveOptions(max_groups=200_000))
