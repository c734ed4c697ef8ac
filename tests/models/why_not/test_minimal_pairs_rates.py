"""What each rule is worth where jobs run several iterations per period, by every method.

As ``test_minimal_pairs``: two snapshots that differ in one thing, of which the second needs more
nodes. All of them cost more still, or have no plan of one group, at one iteration per period.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pytest

from agreement_cases import fleet_of
from instances.jobs import Job
from models.exact.methods import solve
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.result import Result, Termination
from models.problem.snapshot import Snapshot
from rate_cases import RATE_METHODS, nodes_by_load, rated
from small_snapshots import jobs_of

OPTIONS: Final = SolveOptions()
Fleet = tuple[int, int]  # rollout nodes, train nodes


def assert_least(method: str, snapshot: Snapshot, fleet: Fleet) -> Result:
    """The method proves that this fleet is the cheapest."""
    result = solve(method, snapshot, OPTIONS)
    assert result.termination is Termination.OPTIMAL
    assert fleet_of(result) == fleet
    assert result.usd_per_hour == pytest.approx(snapshot.usd_per_hour(*fleet), rel=1e-9)
    return result


def rates_of(result: Result) -> dict[str, int]:
    assert result.plan is not None
    return {p.job_id: p.rate for group in result.plan.groups for p in group.placements}


def short_and_long(
    short_slo: float = 1.05, long_sync_s: float = 210.0, **columns: tuple[float, float]
) -> list[Job]:
    """Return a job (20, 80) and one of 75 + 15 + 210 s within 315 s.

    They share one node of each kind at rates (3, 1) only: rollouts of job 0 at 0, 105, 210 and
    trains 20 s later; job 1 rolls [20, 95), trains [100, 115).
    """
    jobs = jobs_of((20, 75), (80, 15), (0, long_sync_s), **columns)
    slos = short_slo, 315 / jobs[1].solo_s
    return [replace(job, slo=slo) for job, slo in zip(jobs, slos, strict=True)]


def gap(deadline_s: float = 9.0, sync_s: float = 0.0) -> list[Job]:
    """Return a job (6, 2) within this deadline, and one (1, 1) within a quarter of it.

    Rollouts do not fit on one node (10 s). On one train node: C >= 2 + 4 + 3 (1 + sync), as
    between two trains of job 0 lie all four of job 1 and three rollouts and syncs of it.
    """
    jobs = jobs_of((6, 1), (2, 1), (0, sync_s))
    deadlines = deadline_s, deadline_s / 4
    return [replace(job, slo=due / job.solo_s) for job, due in zip(jobs, deadlines, strict=True)]


def switching(switch_s: float) -> list[Job]:
    """Return (1, 1) within 4 s and 2 + 1 + 2 s within 8 s: rates (2, 1) and C = 8.

    On one rollout node: two rollouts of 1 + w with a train of 1 s between, and one of 2 + w.
    """
    return jobs_of((1, 2), (1, 1), (0, 2), rollout_switch_s=(switch_s,) * 2, slo=(2, 1.6))


@dataclass(frozen=True)
class Pair:
    """A rule, why it binds, and the two snapshots with their cheapest fleets."""

    rule: str
    why: str
    free: Snapshot
    free_fleet: Fleet
    bound: Snapshot
    bound_fleet: Fleet

    def __str__(self) -> str:
        return self.rule


PAIRS: Final = (
    Pair(
        "max_rate",
        "300 s of job 1 are within 105 k seconds of job 0 for k = 3, not 2.",
        *(rated(short_and_long(), 3), (1, 1)),
        *(rated(short_and_long(), 2), (2, 2)),
    ),
    Pair(
        "slo",
        "The chain of job 1, 301 s, is within 3 x 101 s and not within 3 x 100 s. At 303: job 0 at "
        "0, 101, 202; job 1 rolls [25, 100), trains [100, 115), syncs to 326 <= 25 + 303.",
        *(rated(short_and_long(1.01, 211.0), 3), (1, 1)),
        *(rated(short_and_long(1.0, 211.0), 3), (2, 2)),
    ),
    Pair(
        "precedence",
        "The gap asks for 9 s; loads and chains for 8.",
        *(rated(gap(9.0), 4), (2, 1)),
        *(rated(gap(8.5), 4), (2, 2)),
    ),
    Pair(
        "sync",
        "Three syncs lie in the gap: 9.75 s of 9, though the chain, 4 x 2.25, just fits.",
        *(rated(gap(9.0, 0.0), 4), (2, 1)),
        *(rated(gap(9.0, 0.25), 4), (2, 2)),
    ),
    Pair(
        "switches of each iteration",
        "5 + 3 w <= 8 iff w <= 1; loads alone, 4 + 3 w, would admit 1.125.",
        *(rated(switching(1.0), 2), (1, 1)),
        *(rated(switching(1.125), 2), (2, 1)),
    ),
    Pair(
        "residency of rollouts",
        "1200 + 800 GB fill a node, whatever the rates; one GB more needs a second.",
        *(rated(short_and_long(rollout_state_gb=(1200, 800)), 3), (1, 1)),
        *(rated(short_and_long(rollout_state_gb=(1200, 801)), 3), (2, 1)),
    ),
    Pair(
        "residency of trains",
        "As of rollouts.",
        *(rated(short_and_long(train_state_gb=(1200, 800)), 3), (1, 1)),
        *(rated(short_and_long(train_state_gb=(1200, 801)), 3), (1, 2)),
    ),
    Pair(
        "gang",
        "A job on two rollout nodes; the other shares one of them.",
        *(rated(short_and_long(), 3), (1, 1)),
        *(rated(short_and_long(rollout_nodes=(2, 1)), 3), (2, 1)),
    ),
    Pair(
        "group size",
        "Jobs alone have nodes of their own.",
        *(rated(short_and_long(), 3, size=2), (1, 1)),
        *(rated(short_and_long(), 3, size=1), (2, 2)),
    ),
    Pair(
        "rollout nodes of a group",
        "The pair needs two.",
        *(rated(gap(), 4, nodes=(2, None)), (2, 1)),
        *(rated(gap(), 4, nodes=(1, None)), (2, 2)),
    ),
)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("method", RATE_METHODS)
def test_a_rule_costs_nodes(method: str, pair: Pair) -> None:
    free = assert_least(method, pair.free, pair.free_fleet)
    assert max(rates_of(free).values()) > 1
    assert_least(method, pair.bound, pair.bound_fleet)
    assert pair.free.usd_per_hour(*pair.free_fleet) < pair.bound.usd_per_hour(*pair.bound_fleet)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_first_of_a_pair_needs_several_iterations(pair: Pair) -> None:
    strict = replace(pair.free, limits=replace(pair.free.limits, max_rate=1))
    assert_least("exhaustive", strict, (2, 2))


@pytest.mark.parametrize("method", RATE_METHODS)
def test_the_rates_of_the_short_and_the_long_job(method: str) -> None:
    """(3, 1) is the only vector up to 4: 300 k_1 <= 105 k_0."""
    result = assert_least(method, rated(short_and_long(), 4), (1, 1))
    assert rates_of(result) == {"j0": 3, "j1": 1}


@pytest.mark.parametrize("method", RATE_METHODS)
def test_a_fleet_that_only_several_iterations_fit(method: str) -> None:
    assert_least(method, rated(short_and_long(), 3, caps=(1, 1)), (1, 1))
    result = solve(method, rated(short_and_long(), 2, caps=(1, 1)), OPTIONS)
    assert (result.termination, result.plan) == (Termination.INFEASIBLE, None)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.rule in ("precedence", "sync")])
def test_loads_admit_what_the_gap_does_not(pair: Pair) -> None:
    """Rates (1, 4) on two rollout nodes and one train node: 6 of 8.5 or 9 s, chains 8 or 9."""
    assert (2, 1) in nodes_by_load(pair.bound, (0, 1))
    cost = GroupCost(pair.bound)
    assert cost.decide((0, 1), (2, 1)) is None
    assert [group.nodes for group in cost.front((0, 1))] == [(2, 2)]
