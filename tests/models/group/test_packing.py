"""The two kernels alone: insertion against all whole starts, one node first against the oracle."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.group.packing import first_turn, one_node_first, pack, place_one
from oracles.least_period import least_period, lower_bound, verify

Arcs = list[tuple[float, float]]


def seconds_of(arcs: Arcs, circle: int) -> int:
    """Return a bit per second of the circle, set where an arc is."""
    busy = {second % circle for a, b in arcs for second in range(int(a), int(b))}
    return sum(1 << second for second in busy)


def every_placement(
    circle: int, busy_r: Arcs, busy_t: Arcs, p: int, q: int, s: int
) -> list[tuple[int, int]]:
    """Return all whole (rollout start, train start), the rollout in the first turn.

    Free seconds and rows ``y >= x + p``, ``x + C >= y + q + s`` are differences with whole
    right-hand sides, so whole starts exist if any do.
    """
    rollout, train = seconds_of(busy_r, circle), seconds_of(busy_t, circle)

    def arc(start: int, length: int) -> int:
        return sum(1 << ((start + x) % circle) for x in range(length))

    return [
        (x, y)
        for x in range(circle)
        for y in range(x + p, x + circle - q - s + 1)
        if not arc(x, p) & rollout and not arc(y, q) & train
    ]


@st.composite
def arcs(draw: st.DrawFn, circle: int) -> Arcs:
    """Busy arcs: disjoint as on one node, or overlapping as on the nodes of a gang."""
    pieces = draw(st.lists(st.integers(0, circle - 1), max_size=6, unique=True).map(sorted))
    if len(pieces) < 2:
        return []
    turn = draw(st.integers(0, circle - 1))
    out = [((a + turn) % circle, b - a) for a, b in zip(pieces[::2], pieces[1::2], strict=False)]
    if draw(st.booleans()):
        start, length = draw(st.integers(0, circle - 1)), draw(st.integers(1, 3))
        out.append((start, min(length, circle)))
    return sorted((float(a), float(a + length)) for a, length in out)


@st.composite
def insertions(draw: st.DrawFn) -> tuple[int, Arcs, Arcs, int, int, int]:
    circle = draw(st.integers(4, 16))
    busy_r, busy_t = draw(arcs(circle)), draw(arcs(circle))
    p, q, s = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 5))
    return circle, busy_r, busy_t, p, q, s


@settings(max_examples=1500, deadline=None)
@given(insertions(), st.sampled_from([1.0, 0.1, 1e-4, 1e5 / 3]))
def test_one_job_is_inserted_exactly_when_it_fits(
    problem: tuple[int, Arcs, Arcs, int, int, int], unit: float
) -> None:
    """All pairs of gaps are tried, so nothing that fits is missed; in any unit of time."""
    circle, busy_r, busy_t, p, q, s = problem
    possible = every_placement(circle, busy_r, busy_t, p, q, s)
    found = place_one(
        circle * unit,
        [(a * unit, b * unit) for a, b in busy_r],
        [(a * unit, b * unit) for a, b in busy_t],
        p * unit,
        q * unit,
        s * unit,
    )
    assert (found is not None) is bool(possible)
    if found is None:
        return
    x, y = (start / unit for start in found)
    assert x + p - 1e-7 <= y <= x + circle - q - s + 1e-7
    for busy, start, length in ((busy_r, x, p), (busy_t, y, q)):
        for a, b in busy:  # this arc's next start after that one's, around the circle
            ahead = (a - start) % circle
            assert ahead >= length - 1e-7 or circle - ahead < 1e-7
            assert ahead <= circle - (b - a) + 1e-7


@pytest.mark.parametrize(
    ("circle", "busy_r", "busy_t", "job", "expected"),
    [
        (10.0, [], [], (4, 3, 1), (0.0, 4.0)),  # an empty group: at 0, train at once
        (10.0, [(0.0, 3.0)], [], (4, 3, 1), (3.0, 7.0)),  # after the only rollout
        (10.0, [], [(0.0, 3.0)], (4, 3, 1), (9.0, 13.0)),  # ends when the train node is free
        (10.0, [(0.0, 10.0)], [], (1, 1, 0), None),  # full
        (10.0, [(0.0, 5.0)], [], (5.5, 1, 0), None),  # gap 5
        (10.0, [], [], (4, 4, 2.5), None),  # longer than a turn
        # the smaller of two gaps: [9, 10) of 1 s rather than [4, 6) of 2 s
        (10.0, [(0.0, 4.0), (6.0, 9.0)], [], (1, 1, 0), (9.0, 10.0)),
        # rollout only in [8, 10), train only in [9, 11) = [9, 10) and [0, 1): wait 9 after it
        (10.0, [(0.0, 8.0)], [(1.0, 9.0)], (2, 1, 0), (8.0, 10.0)),
    ],
)
def test_places_by_hand(
    circle: float,
    busy_r: Arcs,
    busy_t: Arcs,
    job: tuple[float, float, float],
    expected: tuple[float, float] | None,
) -> None:
    found = place_one(circle, busy_r, busy_t, *job)
    assert (found and first_turn((found,), circle)[0]) == expected


def test_an_iteration_without_slack_fits_where_both_gaps_meet() -> None:
    """p + q + s = C: the train starts as the rollout ends; the gaps [3, 5), [5, 6) allow it."""
    busy_r, busy_t = [(0.0, 3.0), (5.0, 10.0)], [(0.0, 5.0), (6.0, 10.0)]
    assert place_one(10.0, busy_r, busy_t, 2.0, 1.0, 7.0) == (3.0, 5.0)
    assert place_one(10.0, busy_r, busy_t, 2.0, 1.0, 7.0 + 1e-6) is None


@pytest.mark.parametrize(
    ("pairs", "circle", "expected"),
    [
        (((3.0, 5.0),), 10.0, ((3.0, 5.0),)),
        (((-1.0, 5.0),), 10.0, ((9.0, 15.0),)),
        (((10.0, 12.0),), 10.0, ((0.0, 2.0),)),
        (((27.0, 29.0), (31.0, 35.0)), 10.0, ((7.0, 9.0), (11.0, 15.0))),
        (((-1e-18, 2.0),), 10.0, ((0.0, 2.0),)),  # -1e-18 + 10 is 10, which is no first turn
    ],
)
def test_first_turn(
    pairs: tuple[tuple[float, float], ...],
    circle: float,
    expected: tuple[tuple[float, float], ...],
) -> None:
    assert first_turn(pairs, circle) == expected


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e7, 1e7), st.floats(1e-3, 1e6))
def test_the_first_turn_begins_at_0_and_ends_before_the_period(x: float, circle: float) -> None:
    ((start, _),) = first_turn(((x, x + 1.0),), circle)
    assert 0.0 <= start < circle


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.booleans())
def test_what_is_packed_is_valid(seed: int, n: int, whole: bool) -> None:
    """Gangs and sync in a random order; a job that does not fit makes it None."""
    rng = random.Random(seed)

    def seconds(low: float) -> list[float]:
        return [
            float(rng.randint(int(low), 6)) if whole else rng.uniform(low, 6.0) for _ in range(n)
        ]

    def pins(nodes: int) -> list[tuple[int, ...]]:
        return [tuple(sorted(rng.sample(range(nodes), rng.randint(1, nodes)))) for _ in range(n)]

    p, q, s = seconds(1), seconds(1), seconds(0)
    r_pins, t_pins = pins(3), pins(2)
    serial = sum(a + b + c for a, b, c in zip(p, q, s, strict=True))
    circle = serial * rng.uniform(0.3, 1.0)
    order = rng.sample(range(n), n)
    found = pack(circle, p, q, s, r_pins, t_pins, order)
    if found is not None:
        assert [len(pairs) for pairs in found] == [1] * n
        assert all(0.0 <= pairs[0][0] < circle for pairs in found)
        assert verify(circle, found, p, q, s, r_pins, t_pins) == []
    longest = max(a + b + c for a, b, c in zip(p, q, s, strict=True))
    if circle < longest * (1 - 1e-9):
        assert found is None


# --- one node first ------------------------------------------------------------------------


def laid_out(
    circle: float, p: list[float], q: list[float], s: list[float], pins: list[tuple[int, ...]]
) -> list[tuple[float, float]] | None:
    """Lay out a shared rollout node first; trains (q) are pinned to ``pins``."""
    slack = [max(circle - a - b - c, 0.0) for a, b, c in zip(p, q, s, strict=True)]
    return one_node_first(circle, p, q, [0.0] * len(p), slack, pins, 24)


@pytest.mark.parametrize("whole", [True, False])
def test_one_node_first_finds_every_full_node(whole: bool) -> None:
    """When the shared node is busy all the time its phases follow each other anyway.

    So all orders of up to four jobs (6 of each node) decide whether that period is possible.
    """
    rng = random.Random(f"one node {whole}")
    decided = 0
    while decided < 60:
        n = rng.randint(2, 4)

        def seconds(low: int, high: int, n: int = n) -> list[float]:
            return [
                float(rng.randint(low, high)) if whole else rng.uniform(low, high) for _ in range(n)
            ]

        p, q, s = seconds(1, 9), seconds(1, 9), seconds(0, 6)
        pins = [(rng.randint(0, 1),) for _ in range(n)]
        one = [(0,)] * n
        circle = sum(p)
        if lower_bound(p, q, s, one, pins) > circle:
            continue
        decided += 1
        found = laid_out(circle, p, q, s, pins)
        exists = least_period(p, q, s, one, pins)[0] <= circle * (1 + 1e-7)
        assert (found is not None) is exists, (p, q, s, pins)


def test_one_node_first_knows_the_smallest_group_that_its_loads_admit_wrongly() -> None:
    """FORMULATION 4: r = (5, 5, 1), t = (2, 3, 6), s = (2, 3, 0): 11 s of load, least 11.5."""
    p, q, s, pins = [5.0, 5.0, 1.0], [2.0, 3.0, 6.0], [2.0, 3.0, 0.0], [(0,)] * 3
    assert laid_out(11.0, p, q, s, pins) is None
    assert laid_out(11.5, p, q, s, pins) is not None


@settings(max_examples=500, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.floats(1.0, 1.5),
    st.sampled_from([1, 0.1, 1e4 / 3]),
)
def test_what_one_node_first_lays_out_is_valid(
    seed: int, n: int, stretch: float, unit: float
) -> None:
    """Starts on the shared node within the first turn, the others (modulo it) in their windows."""
    rng = random.Random(seed)
    p, q, s = ([unit * rng.randint(low, 7) for _ in range(n)] for low in (1, 1, 0))
    pins = [(rng.randint(0, 2),) for _ in range(n)]
    circle = stretch * lower_bound(p, q, s, [(0,)] * n, pins)
    found = laid_out(circle, p, q, s, pins)
    if found is None:
        return
    eps = 1e-9 * circle
    starts = []
    for (x, y), a, b, c in zip(found, p, q, s, strict=True):
        assert -eps <= x < circle
        wait = (y - x - a + eps) % circle - eps  # within the window, whatever the turn
        assert wait <= circle - a - b - c + eps
        starts.append([(x, x + a + wait)])
    assert verify(circle, starts, p, q, s, [(0,)] * n, pins, tolerance_s=eps) == []
