"""Pinnings of one pool: every one once, up to the names of the nodes, by loads and DRAM."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.group.pinnings import REL_SLACK, PoolLoads, least_nodes, pinnings
from models.problem.group_shape import Pins
from oracles.least_snapshot import all_kinds
from oracles.least_snapshot import pinnings as oracle_pinnings

#: The jobs on each node, sorted: equal for pinnings that differ in the nodes' names only.
Nodes = tuple[tuple[int, ...], ...]
FREE = 1e9  # seconds or GB that never bind


def loads_of(
    widths: Sequence[int],
    seconds: Sequence[float] | None = None,
    switch_s: Sequence[float] | None = None,
    state_gb: Sequence[float] | None = None,
) -> PoolLoads:
    """Return loads; what is not given is 0."""
    zeros = (0.0,) * len(widths)
    columns = (tuple(column or zeros) for column in (seconds, switch_s, state_gb))
    return PoolLoads(tuple(widths), *columns)


def nodes_of(pins: Sequence[Pins]) -> Nodes:
    used = {node for nodes in pins for node in nodes}
    return tuple(sorted(tuple(j for j, p in enumerate(pins) if node in p) for node in used))


def labelled(widths: Sequence[int], n_nodes: int) -> Iterator[tuple[Pins, ...]]:
    """Every choice of named nodes per job that uses all of them."""
    for pins in product(*(combinations(range(n_nodes), width) for width in widths)):
        if len({node for nodes in pins for node in nodes}) == n_nodes:
            yield pins


def admitted(loads: PoolLoads, nodes: Nodes, period_s: float, dram_gb: float) -> bool:
    """The rules of the module docstring, node by node."""
    for jobs in nodes:
        switch = len(jobs) > 1
        seconds = sum(loads.seconds[j] + switch * loads.switch_s[j] for j in jobs)
        if seconds > period_s or sum(loads.state_gb[j] for j in jobs) > dram_gb:
            return False
    return True


def by_oracle(loads: PoolLoads, n_nodes: int, period_s: float, dram_gb: float) -> set[Nodes]:
    """The rules applied to the oracle's list, which is made node by node and not job by job."""
    found = oracle_pinnings(loads.widths, n_nodes, all_kinds(len(loads.widths)))
    every = {tuple(sorted(nodes)) for nodes in found}
    return {nodes for nodes in every if admitted(loads, nodes, period_s, dram_gb)}


def found_by(loads: PoolLoads, n_nodes: int, period_s: float, dram_gb: float) -> set[Nodes]:
    """What the search yields, each once; pins are ascending, in range and of the right width."""
    found: Counter[Nodes] = Counter()
    for pins in pinnings(loads, n_nodes, period_s, dram_gb):
        assert [len(set(nodes)) for nodes in pins] == list(loads.widths)
        assert all(list(nodes) == sorted(nodes) for nodes in pins)
        assert {node for nodes in pins for node in nodes} == set(range(n_nodes))
        found[nodes_of(pins)] += 1
    assert max(found.values(), default=1) == 1, found.most_common(1)
    return set(found)


# --- every pinning once -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "widths", [(1,), (3,), (1, 1, 1), (2, 1), (2, 2), (2, 1, 1), (3, 2, 1), (2, 2, 2), (1, 2, 1, 1)]
)
def test_every_pinning_is_yielded_once_up_to_the_names_of_nodes(widths: tuple[int, ...]) -> None:
    loads = loads_of(widths)
    for n_nodes in range(1, sum(widths) + 1):
        expected = {nodes_of(pins) for pins in labelled(widths, n_nodes)}
        assert found_by(loads, n_nodes, FREE, FREE) == expected
        assert bool(expected) == (n_nodes >= max(widths))


def test_nodes_of_a_gang_are_alike_for_the_next_job() -> None:
    """A gang of two and a job of one node, on two nodes: joining either node is the same."""
    assert len(list(pinnings(loads_of((2, 1)), 2, FREE, FREE))) == 1


def test_jobs_of_one_node_are_counted_by_stirling_numbers() -> None:
    """Five jobs on k alike nodes, none empty: S(5, k)."""
    counts = [len(found_by(loads_of((1,) * 5), k, FREE, FREE)) for k in range(1, 6)]
    assert counts == [1, 15, 25, 10, 1]


@pytest.mark.parametrize(("n_nodes", "count"), [(0, 0), (1, 0), (2, 1), (5, 1), (6, 0)])
def test_no_pinning_onto_fewer_nodes_than_a_width_or_more_than_there_are_pins(
    n_nodes: int, count: int
) -> None:
    """Widths 2, 2, 1. Two nodes hold both gangs, and the third job is on either: one way, as they
    are alike; five are all apart."""
    assert len(list(pinnings(loads_of((2, 2, 1)), n_nodes, FREE, FREE))) == count


@st.composite
def problems(draw: st.DrawFn) -> tuple[PoolLoads, float, float]:
    """Few distinct values, so that full nodes are common; sums of halves are exact."""
    widths = tuple(draw(st.lists(st.sampled_from((1, 1, 2, 3)), min_size=1, max_size=4)))
    rng = random.Random(draw(st.integers(0, 2**32)))

    def some(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(rng.choice(values) for _ in widths)

    loads = loads_of(widths, some((1, 1.5, 2, 3)), some((0, 0.5)), some((0, 500, 1000, 1500)))
    return loads, draw(st.sampled_from((2.5, 3, 3.5, 4, 5, 6))), draw(st.sampled_from((1500, 2000)))


@settings(max_examples=250, deadline=None)
@given(problems())
def test_loads_and_dram_admit_what_the_oracle_does(
    problem: tuple[PoolLoads, float, float],
) -> None:
    loads, period, dram = problem
    most = sum(loads.widths)
    expected = [by_oracle(loads, n, period, dram) for n in range(1, most + 1)]
    assert [found_by(loads, n, period, dram) for n in range(1, most + 1)] == expected
    feasible = [n for n, found in enumerate(expected, start=1) if found]
    # closed upwards: a pin moved from a shared node to a fresh one
    assert feasible == list(range(min(feasible, default=most + 1), most + 1))
    for limit in range(most + 2):
        least = least_nodes(loads, limit, period, dram)
        assert least == (min(feasible) if feasible and min(feasible) <= limit else None)


# --- the two rules ----------------------------------------------------------------------------


def test_a_node_may_be_full_to_the_last_second_and_gb() -> None:
    """3 + 2 = 5 s and 1200 + 800 = 2000 GB on one node; a little less room and they part."""
    loads = loads_of((1, 1), (3, 2), state_gb=(1200, 800))
    assert least_nodes(loads, 2, 5, 2000) == 1
    assert least_nodes(loads, 2, 4.999, 2000) == 2
    assert least_nodes(loads, 2, 5, 1999.999) == 2


def test_round_off_does_not_overfill_a_node() -> None:
    """0.1 + 0.1 + 0.1 > 0.3 in floating point; ten times the slack is too much."""
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert least_nodes(loads_of((1,) * 3, (0.1,) * 3), 3, 0.3, FREE) == 1
    assert least_nodes(loads_of((1,) * 3, state_gb=(0.1,) * 3), 3, FREE, 0.3) == 1
    too_short = 0.3 * (1 - 10 * REL_SLACK)
    assert least_nodes(loads_of((1,) * 3, (0.1,) * 3), 3, too_short, FREE) == 2


@pytest.mark.parametrize(("switch_s", "least"), [(0.0, 1), (0.5, 1), (0.75, 2), (9.0, 2)])
def test_switches_count_on_a_shared_node_only(switch_s: float, least: int) -> None:
    """Two jobs of 2 s within 5 s: shared 2 (2 + w) <= 5 iff w <= 0.5; alone 2 <= 5 whatever w."""
    loads = loads_of((1, 1), (2, 2), (switch_s,) * 2)
    assert least_nodes(loads, 2, 5, FREE) == least


def test_one_switch_alone_can_part_two_jobs() -> None:
    """2 + 2 fill 4 s; a switch of job 0 or of job 1 only is too much, also where it came first."""
    for switch_s in ((0.5, 0), (0, 0.5)):
        loads = loads_of((1, 1), (2, 2), switch_s)
        assert least_nodes(loads, 2, 4, FREE) == 2
        assert least_nodes(loads, 2, 4.5, FREE) == 1


def test_the_third_job_pays_and_a_node_left_by_all_is_empty_again() -> None:
    """Jobs of 1 s, switch 0.5: three on one node take 4.5 s, two take 3. On two nodes within 3 s
    three ways are left; within 2.9 s none share."""
    loads = loads_of((1,) * 3, (1,) * 3, (0.5,) * 3)
    assert [len(found_by(loads, k, 4.5, FREE)) for k in (1, 2, 3)] == [1, 3, 1]
    assert [len(found_by(loads, k, 3, FREE)) for k in (1, 2, 3)] == [0, 3, 1]
    assert [len(found_by(loads, k, 2.9, FREE)) for k in (1, 2, 3)] == [0, 0, 1]


@pytest.mark.parametrize(("seconds", "state_gb"), [((5, 1), (0, 0)), ((1, 1), (2001, 0))])
def test_a_job_too_long_or_too_large_for_a_node_of_its_own_has_no_pinning(
    seconds: tuple[float, float], state_gb: tuple[float, float]
) -> None:
    loads = loads_of((1, 1), seconds, state_gb=state_gb)
    assert [len(list(pinnings(loads, k, 4, 2000))) for k in (1, 2)] == [0, 0]
    assert least_nodes(loads, 2, 4, 2000) is None


def test_a_gang_is_resident_on_each_of_its_nodes() -> None:
    """1500 GB on two nodes leaves 500 GB on each, so of 2000 GB two jobs of 500 GB take one node
    each; one of 501 GB needs a third node."""
    assert found_by(loads_of((2, 1, 1), state_gb=(1500, 500, 500)), 2, FREE, 2000) == {
        ((0, 1), (0, 2))
    }
    assert least_nodes(loads_of((2, 1), state_gb=(1500, 501)), 3, FREE, 2000) == 3


def test_fewest_nodes_are_sought_up_to_the_limit() -> None:
    """Three jobs that cannot share need three nodes; with two allowed there is no pinning, and
    more than the summed widths are never used."""
    loads = loads_of((1,) * 3, (2,) * 3)
    assert [least_nodes(loads, most, 3, FREE) for most in (0, 1, 2, 3, 9)] == [None] * 3 + [3, 3]


def test_take_picks_jobs_in_the_given_order() -> None:
    loads = loads_of((1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12))
    assert loads.take((2, 0)) == loads_of((3, 1), (6, 4), (9, 7), (12, 10))
