"""The least-period oracle against itself, against a search on an integer grid, and the facts of
FORMULATION sections 3 and 4. Groups are `Data` tuples; random ones come from fixed seeds."""

import math
import random
from collections.abc import Hashable, Iterator
from itertools import product
from typing import Any

import pytest

from oracles.least_period import (
    Data,
    build,
    least_period,
    least_period_brute,
    lower_bound,
    period_of_heights,
    verify,
)

REL = 1e-8
SYNC = Data((5, 5, 1), (2, 3, 6), (2, 3, 0), [[0]] * 3, [[0]] * 3)
UNSATURATED_SYNC = Data((3, 2, 6), (4, 6, 1), (4, 1, 5), [[0]] * 3, [[0]] * 3)
GANG_PINS = [{0, 1, 2}, {1, 2}, {0, 1, 2}, {0, 1}, {0, 2}]
GANG = Data((5, 3, 11, 6, 9), (3, 4, 6, 5, 3), (0,) * 5, GANG_PINS, [[0]] * 5)
FIVE_CYCLE = Data(
    (1,) * 5, (0.25,) * 5, (0,) * 5, [{i, (i + 1) % 5} for i in range(5)], [[i] for i in range(5)]
)
TWO_BY_ONE = Data((10, 1), (10, 1), (0, 0), [[0], [1]], [[0], [0]])


def random_group(
    rng: random.Random,
    n: int,
    *,
    nodes: tuple[int, int] = (1, 1),
    gang: bool = False,
    sync: bool = True,
    rates: bool = False,
    switches: bool = False,
    whole: bool = False,
    top: int = 9,
) -> Data:
    """A group of n jobs; `whole` seconds in 1..top or uniform ones."""

    def seconds(low: float = 1.0) -> list[float]:
        return [
            rng.randint(int(low), top) if whole else rng.uniform(low, float(top)) for _ in range(n)
        ]

    def pins(m: int) -> list[set[int]]:
        return [set(rng.sample(range(m), rng.randint(1, m if gang else 1))) for _ in range(n)]

    return Data(
        seconds(),
        seconds(),
        [x / 2 if not whole else x // 2 for x in seconds(0)] if sync else [0] * n,
        pins(nodes[0]),
        pins(nodes[1]),
        [rng.randint(1, 2) for _ in range(n)] if rates else None,
        seconds(0) if switches else None,
        seconds(0) if switches else None,
    )


KINDS: list[dict[str, Any]] = [
    {},
    {"sync": False, "nodes": (2, 2)},
    {"nodes": (2, 2), "switches": True},
    {"nodes": (3, 2), "gang": True, "switches": True},
    {"nodes": (2, 1), "rates": True},
]


def groups(seed: int, count: int, n: int) -> Iterator[Data]:
    """`count` random groups of n jobs, over all KINDS, with whole and other seconds."""
    rng = random.Random(seed)
    for i in range(count):
        yield random_group(rng, n, whole=i % 2 == 0, **KINDS[i % len(KINDS)])


def scaled(data: Data, factor: float) -> Data:
    def times(x: Any) -> Any:
        return None if x is None else [factor * v for v in x]

    return data._replace(
        rollout_s=times(data.rollout_s),
        train_s=times(data.train_s),
        sync_s=times(data.sync_s),
        rollout_switch_s=times(data.rollout_switch_s),
        train_switch_s=times(data.train_switch_s),
    )


def without(data: Data, j: int) -> Data:
    fields: list[Any] = [x and [v for i, v in enumerate(x) if i != j] for x in data]
    return Data(*fields)


def node_load(data: Data) -> float:
    """The largest node load, part (b) of LB; k = 1 and no switches."""
    return max(
        sum(d for d, p in zip(run, pins, strict=True) if node in p)
        for run, pins in ((data.rollout_s, data.rollout_pins), (data.train_s, data.train_pins))
        for node in set().union(*map(set, pins))
    )


def natural_cycle(data: Data) -> float:
    return max(map(sum, zip(*data[:3], strict=True)))


def fits_on_grid(data: Data, period: int) -> bool:
    """Is there a schedule of this period with whole starts? k = 1, whole times, no switches.

    Sets of seconds are bit masks. For a whole period and whole times the rows of the oracle are
    difference constraints with whole right-hand sides, so whole starts exist if any do.
    """

    def arc(start: int, d: int) -> int:
        return sum(1 << ((start + x) % period) for x in range(d))

    def place(j: int, busy: dict[tuple[str, Hashable], int]) -> bool:
        if j == len(data.rollout_s):
            return True
        r, t, s = (int(x[j]) for x in data[:3])
        for a in range(period if j else 1):
            for b in range(a + r, a + period - t - s + 1):
                arcs: dict[tuple[str, Hashable], int] = {
                    ("R", p): arc(a, r) for p in data.rollout_pins[j]
                }
                arcs |= {("T", p): arc(b, t) for p in data.train_pins[j]}
                if all(busy.get(node, 0) & mask == 0 for node, mask in arcs.items()) and place(
                    j + 1, busy | {node: busy.get(node, 0) | m for node, m in arcs.items()}
                ):
                    return True
        return False

    return place(0, {})


def pinnings(n: int, nodes: int) -> Iterator[list[list[int]]]:
    """All ways to pin n one-node jobs to at most `nodes` alike nodes."""

    def extend(pins: list[list[int]]) -> Iterator[list[list[int]]]:
        if len(pins) == n:
            yield pins
            return
        used = len({p[0] for p in pins})
        for node in range(min(used + 1, nodes)):
            yield from extend([*pins, [node]])

    yield from extend([])


def some_pinning_fits(times: tuple[Any, Any, Any], r: int, t: int, period: float) -> bool:
    n = len(times[0])
    return any(
        lower_bound(*times, a, b) <= period and least_period(*times, a, b)[0] <= period + 1e-6
        for a, b in product(pinnings(n, r), pinnings(n, t))
    )


# --- the oracle against itself -----------------------------------------------------------------


@pytest.mark.parametrize(("n", "count"), [(1, 5), (2, 50), (3, 60), (4, 14)])
def test_both_routes_agree_and_their_schedules_are_valid(n: int, count: int) -> None:
    for data in groups(100 + n, count, n):
        period, starts = least_period(*data)
        brute, brute_starts = least_period_brute(*data)
        assert period == pytest.approx(brute, rel=REL), data
        assert verify(period, starts, *data) == []
        assert verify(brute, brute_starts, *data) == []


@pytest.mark.parametrize("factor", [1, 2])
def test_grid_search_agrees(factor: int) -> None:
    """No K, no LP: whole times x factor; the least whole period is the rounded-up period."""
    rng = random.Random(11)
    kinds: list[dict[str, Any]] = [{}, {"nodes": (2, 2)}, {"nodes": (3, 1), "gang": True}]
    for i in range(24):
        data = scaled(random_group(rng, 3, whole=True, top=4, **kinds[i % 3]), factor)
        least = math.ceil(least_period(*data)[0] - 1e-6)
        assert fits_on_grid(data, least), data
        assert not fits_on_grid(data, least - 1), data


@pytest.mark.parametrize("n", [2, 3, 4])
def test_period_is_at_least_the_lower_bound_and_scales_with_the_times(n: int) -> None:
    for data in groups(200 + n, 20, n):
        period = least_period(*data)[0]
        assert period >= lower_bound(*data) * (1 - REL), data
        for factor in (0.013, 1e4):
            assert least_period(*scaled(data, factor))[0] == pytest.approx(factor * period, rel=REL)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_removing_a_job_never_increases_the_period(n: int) -> None:
    """Infeasibility is hereditary; without the job, switches can only disappear."""
    for data in groups(300 + n, 20, n):
        period = least_period(*data)[0]
        for j in range(n):
            assert least_period(*without(data, j))[0] <= period * (1 + REL), (data, j)


def test_a_larger_period_never_hurts() -> None:
    """Starts times C'/C are a schedule of period C' > C, for k = 1 and with rates."""
    for data in groups(400, 40, 3):
        period, starts = least_period(*data)
        for f in (1.001, 1.5, 3.0):
            stretched = [[(f * a, f * b) for a, b in job] for job in starts]
            assert verify(f * period, stretched, *data) == []


def test_switch_is_paid_exactly_when_some_node_is_shared() -> None:
    """Job 0 shares one of its two rollout nodes with job 1: 4 + 2 + 1 = 7 s; alone 5 s."""
    data = Data((4, 1), (1, 1), (0, 0), [{0, 1}, {1}], [[0], [1]], None, (2, 0), (50, 50))
    assert least_period(*data)[0] == lower_bound(*data) == pytest.approx(7)
    apart = data._replace(rollout_pins=[{0, 1}, {2}])
    assert least_period(*apart)[0] == lower_bound(*apart) == pytest.approx(5)


@pytest.mark.parametrize(
    ("period", "starts", "part"),
    [
        (11.5, [[(0, 7.5)], [(5, 10)], [(10, 13)]], None),
        (11.4, [[(0, 7.5)], [(5, 10)], [(10, 13)]], "next rollout starts"),
        (11.5, [[(0, 4.9)], [(5, 10)], [(10, 13)]], "train starts before"),
        (11.5, [[(0, 7.5)], [(4.9, 10)], [(10, 13)]], "rollout node 0"),
        (11.5, [[(0, 7.5)], [(5, 10)], [(10.6, 13)]], "rollout node 0"),
        (11.5, [[(0, 7.5)], [(5, 10)], [(10, 12.9)]], "train node 0"),
        (11.5, [[(0, 7.5)], [(5, 10)], []], "start pairs"),
        (11.5, [[(0, 7.5)], [(5, 10)], [(10, math.nan)]], "finite"),
    ],
)
def test_verify_finds_each_fault(period: float, starts: list[Any], part: str | None) -> None:
    faults = verify(period, starts, *SYNC)
    assert faults == [] if part is None else any(part in fault for fault in faults)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one entry per job"):
        least_period((1, 2), (1,), (0, 0), [[0], [0]], [[0], [0]])
    with pytest.raises(ValueError, match="rates >= 1"):
        least_period((1,), (1,), (0,), [[0]], [[0]], (0,))


# --- facts of section 3 ------------------------------------------------------------------------


def test_lower_bound_is_reached_with_one_node_of_each_kind_and_no_sync() -> None:
    """Two-machine open shop: max(sum r, sum t, max(r + t)) (Gonzalez & Sahni 1976)."""
    rng = random.Random(1976)
    for i in range(240):
        data = random_group(rng, 2 + i % 4, sync=False, whole=i % 3 == 0)
        r, t = data.rollout_s, data.train_s
        expected = max(sum(r), sum(t), natural_cycle(data))
        assert lower_bound(*data) == pytest.approx(expected)
        assert least_period(*data)[0] == pytest.approx(expected, rel=REL), data


@pytest.mark.parametrize(
    ("data", "bound", "least"),
    [(SYNC, 11, 11.5), (UNSATURATED_SYNC, 12, 12.5), (GANG, 34, 34), (FIVE_CYCLE, 2, 2.5)],
    ids=["sync", "unsaturated-sync", "gang", "5-cycle"],
)
def test_groups_above_their_loads(data: Data, bound: float, least: float) -> None:
    assert lower_bound(*data) == pytest.approx(bound)
    assert least_period(*data)[0] == pytest.approx(least, rel=REL)
    assert least_period_brute(*data)[0] == pytest.approx(least, rel=REL)


def test_loads_of_those_groups() -> None:
    """Gang: node loads say 31 and the natural cycle 17. Unsaturated: loads below natural cycle."""
    assert (node_load(GANG), natural_cycle(GANG)) == (31, 17)
    assert (node_load(SYNC), natural_cycle(SYNC)) == (11, 11)
    assert (node_load(UNSATURATED_SYNC), natural_cycle(UNSATURATED_SYNC)) == (11, 12)
    assert node_load(FIVE_CYCLE) == 2


@pytest.mark.parametrize(("data", "twice"), [(SYNC, 23), (UNSATURATED_SYNC, 25)])
def test_sync_examples_on_a_grid_of_half_seconds(data: Data, twice: int) -> None:
    """11.5 and 12.5 without LP or K."""
    assert fits_on_grid(scaled(data, 2), twice)
    assert not fits_on_grid(scaled(data, 2), twice - 1)


def test_round_robin_is_optimal_for_unsaturated_groups_with_one_node_of_each_kind() -> None:
    """Without sync: loads below the natural cycle max_j T_j, then the period is max_j T_j."""
    rng = random.Random(31)
    seen = 0
    while seen < 40:
        data = random_group(rng, 3, sync=False, top=4 + seen % 9)
        long = rng.uniform(4, 12)
        data = data._replace(rollout_s=[long, *data.rollout_s[1:]])
        if node_load(data) < natural_cycle(data):
            seen += 1
            assert least_period(*data)[0] == pytest.approx(natural_cycle(data), rel=REL)


def test_orders_alone_do_not_fix_the_period() -> None:
    """A = (5, 1), B = (1, 5): two jobs have one cyclic order; the heights give 6 or 12."""
    group = build(Data((5, 1), (1, 5), (0, 0), [[0], [0]], [[0], [0]]))
    rollouts, trains = group.pairs
    found = {k: period_of_heights(group, {rollouts: 0, trains: k}) for k in range(-4, 5)}
    periods = {k: pytest.approx(c[0]) for k, c in found.items() if c is not None}
    assert periods == {-1: 12, 0: 6, 1: 12}


def test_strict_rounds_give_55_percent_fifo_75_and_multi_rate_75() -> None:
    """(10, 10) and (1, 1), own rollout nodes, one train node. Strict: 11 of 20 s train."""
    strict = least_period(*TWO_BY_ONE)[0]
    assert 11 / strict == pytest.approx(0.55)
    multi = [least_period(*TWO_BY_ONE._replace(rates=(1, k)))[0] for k in (5, 6)]
    assert multi == pytest.approx([20, 21])  # five short trains fit between two long ones
    assert 15 / multi[0] == pytest.approx(0.75)
    ready: list[float] = [10, 1]
    free, busy = 0.0, []  # FIFO on the train node, ties to the lower index
    while free < 2000:
        start, j = min((max(x, free), x, j) for j, x in enumerate(ready))[::2]
        free = start + TWO_BY_ONE.train_s[j]
        busy.append((start, free))
        ready[j] = free + TWO_BY_ONE.rollout_s[j]
    trained = sum(max(0, min(b, 1600) - max(a, 400)) for a, b in busy)
    assert trained / 1200 == pytest.approx(0.75)


FRONT = ((4, 1, 3, 1, 3), (1, 4, 1, 4, 2), (1, 1, 2, 0, 1))


@pytest.mark.parametrize(
    ("rollout_nodes", "train_nodes", "fits"), [(2, 3, True), (3, 2, True), (2, 2, False)]
)
def test_front_of_five_jobs_with_deadline_6(
    rollout_nodes: int, train_nodes: int, fits: bool
) -> None:
    assert some_pinning_fits(FRONT, rollout_nodes, train_nodes, 6) is fits


def test_loads_admit_two_and_two_nodes_in_that_front() -> None:
    """Two pinnings have LB <= 6; the better one needs 6.25."""
    pins = [
        (a, b) for a, b in product(pinnings(5, 2), pinnings(5, 2)) if lower_bound(*FRONT, a, b) <= 6
    ]
    assert len(pins) == 2
    assert min(least_period(*FRONT, a, b)[0] for a, b in pins) == pytest.approx(6.25)


@pytest.mark.parametrize(
    ("rollout_nodes", "train_nodes", "fits"), [(1, 2, True), (2, 1, True), (1, 1, False)]
)
def test_front_of_the_sync_example_with_deadline_11(
    rollout_nodes: int, train_nodes: int, fits: bool
) -> None:
    assert some_pinning_fits(SYNC[:3], rollout_nodes, train_nodes, 11) is fits
