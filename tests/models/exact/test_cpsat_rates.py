"""The whole snapshot by CP-SAT where jobs may iterate several times per period."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from builders import ROLLOUT_USD, TRAIN_USD
from instances import generate
from instances.checker import check_plan
from instances.errors import InputError, UnsupportedError
from instances.jobs import Job
from instances.plan_file import plan_to_dict
from models.backends.cp_sat import run
from models.exact import cpsat, cpsat_model
from models.exact.cpsat import MOST_JOBS_WITH_RATES, solve
from models.exact.cpsat_data import Data, Label
from models.exact.cpsat_model import build
from models.exact.exhaustive import solve as solve_exhaustively
from models.group.cyclic_cpsat import decide
from models.group.rate_vectors import rate_vectors
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination
from models.problem.snapshot import Snapshot
from small_snapshots import (
    BRIDGE,
    FIVE_FRONT,
    MIXES,
    fleets_of,
    jobs_of,
    random_snapshot,
    snapshot_of,
)

OPTIONS = SolveOptions()


def usd(rollout: int, train: int) -> Any:
    return pytest.approx(rollout * ROLLOUT_USD + train * TRAIN_USD)


def with_rate(snapshot: Snapshot, most: int) -> Snapshot:
    """The same snapshot with so many iterations allowed."""
    return replace(snapshot, limits=replace(snapshot.limits, max_rate=most))


def optimum(snapshot: Snapshot, options: SolveOptions = OPTIONS) -> float:
    """The proved least cost; the plan is valid and costs so much."""
    result = solve(snapshot, options)
    assert (result.termination, result.stopped_by) == (Termination.OPTIMAL, None)
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.usd_per_hour == result.bound_usd_per_hour == result.plan.usd_total
    assert result.usd_per_hour is not None
    return result.usd_per_hour


def rates_of(result: Result) -> dict[str, int]:
    """Iterations per period of each job of a plan."""
    assert result.plan is not None
    return {
        placement.job_id: placement.rate
        for group in result.plan.groups
        for placement in group.placements
    }


# --- by hand --------------------------------------------------------------------------------------

#: T = 8 and 2 s, slo 9/8 and 1.125. Strict rounds of 2.25 s are too short for the first job. With
#: one and four iterations in 9 s the trains, 2 + 4 x 1 s, and their gaps fit one node, 9 s at
#: least (tests of the decision of one group).
NINE = jobs_of((6, 1), (2, 1), slo=(9 / 8, 9 / 8))


def test_a_short_job_iterates_beside_a_long_one() -> None:
    costs = {most: optimum(with_rate(snapshot_of(NINE), most)) for most in (1, 2, 3, 4, 5)}
    assert costs == {1: usd(2, 2), 2: usd(2, 2), 3: usd(2, 2), 4: usd(2, 1), 5: usd(2, 1)}
    assert rates_of(solve(with_rate(snapshot_of(NINE), 4), OPTIONS)) == {"j0": 1, "j1": 4}


def test_precedence_rejects_rates_that_loads_admit() -> None:
    """At 8.9 and 2.225 s loads admit a train node for both, 6 of 8.9 s, and precedence does not."""
    jobs = [replace(job, slo=8.9 / 8) for job in NINE]
    assert optimum(with_rate(snapshot_of(jobs), 4)) == usd(2, 2)


def thirds_and_halves(train_s: float) -> list[Job]:
    """Deadlines 4 and 6: rates (1, 1) at 4 s, (2, 1) at 6, (3, 2) at 12, and (2, 2) at 8."""
    jobs = jobs_of((0.5, 1), (1, train_s))
    return [
        replace(job, slo=deadline_s / job.solo_s)
        for job, deadline_s in zip(jobs, (4, 6), strict=True)
    ]


@pytest.mark.parametrize(
    ("train_s", "nodes"),
    [
        # T = 5.25 of the second job is too long for 4 s, twice for 8 s. In 6 s trains take
        # 2 x 1 + 4.25: they share no node, rollouts do. In 12 s two of the first job's three
        # trains follow each other, 0.5 s apart: 3 x 1 + 0.5 + 2 x 4.25 = 12 s on one train node,
        # and the rollouts, 0.5 s beside its longer gaps and 1 s beside its trains, on one too.
        (4.25, {1: (2, 2), 2: (1, 2), 3: (1, 1), 4: (1, 1)}),
        # 12.02 s; four and three iterations in 16 s take 4 x 1 + 3 x 4.26 = 16.78 s
        (4.26, {1: (2, 2), 2: (1, 2), 3: (1, 2), 4: (1, 2)}),
    ],
)
def test_three_iterations_beside_two(train_s: float, nodes: dict[int, tuple[int, int]]) -> None:
    snapshot = snapshot_of(thirds_and_halves(train_s))
    found = {most: optimum(with_rate(snapshot, most)) for most in nodes}
    assert found == {most: usd(*pair) for most, pair in nodes.items()}


def test_the_leader_may_come_last_in_the_ranking() -> None:
    """Deadlines 2.25 and 9: the period 9 is the second's, and the first job opens the train node.

    Labels (0, 4) and (1, 1) tie, 4 x 2.25 = 9, so only the first in the ranking leads.
    """
    data = Data.of(with_rate(snapshot_of(NINE), 4), 0.001, for_bound=True)
    both = [data.labels[label] for label in data.both(0, 1)]
    assert both == [Label(0, 4)]
    longer = [NINE[0], replace(NINE[1], slo=1.2)]  # D = 2.4, 4 x 2.4 > 9
    data = Data.of(with_rate(snapshot_of(longer), 4), 0.001, for_bound=True)
    assert [data.labels[label] for label in data.both(0, 1)] == [Label(1, 1)]
    assert optimum(with_rate(snapshot_of(longer), 4)) == usd(2, 1)


def test_a_job_alone_has_one_iteration() -> None:
    result = solve(with_rate(snapshot_of(jobs_of((5,), (1,), slo=(2.0,))), 4), OPTIONS)
    assert result.plan is not None
    (group,) = result.plan.groups
    assert (group.period_s, rates_of(result)) == (6.0, {"j0": 1})


def test_rates_change_nothing_where_none_is_useful() -> None:
    """Common deadlines, and what precedence, DRAM and gangs then allow in one round."""
    for jobs, nodes in ((FIVE_FRONT, (3, 2)), (BRIDGE, (2, 2))):
        assert optimum(with_rate(snapshot_of(jobs), 1)) == usd(*nodes)
        assert optimum(with_rate(snapshot_of(jobs), 2)) == usd(*nodes)


def test_one_iteration_states_the_model_without_rates() -> None:
    """``max_rate`` 1, and more where no other rate is possible, add no variable."""
    apart = jobs_of((4, 1), (1, 1))  # 5 s and 2 s at slo 1: neither is a multiple of the other
    for jobs, most in ((NINE, 1), (FIVE_FRONT, 1), (apart, 2)):
        snapshot = with_rate(snapshot_of(jobs), most)
        data = Data.of(snapshot, 0.001, for_bound=True)
        assert data.strict
        assert data.labels == tuple(Label(g, 1) for g in range(len(jobs)))
        model = build(data, snapshot, OPTIONS.start())
        assert (model.there, model.period) == ({}, [])


# --- minimal pairs: the optimum with and without one rule -----------------------------------------


def modelled(snapshot: Snapshot) -> float:
    """The optimum of the model as it is stated, $/h."""
    data = Data.of(snapshot, 0.001, for_bound=True)
    answer = run(build(data, snapshot, OPTIONS.start()).cp)
    assert answer.objective is not None
    return float(answer.objective / data.per_usd)


@pytest.mark.parametrize("family", ["_chains", "_order", "_rates"])
def test_what_one_rule_costs(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """Without chains, order or iterations only loads are left: 2 + 4 x 1 of 8.9 s."""
    jobs = [replace(job, slo=8.9 / 8) for job in NINE]
    snapshot = with_rate(snapshot_of(jobs), 4)
    assert modelled(snapshot) == usd(2, 2)
    monkeypatch.setattr(cpsat_model, family, lambda *_: None)
    assert modelled(snapshot) == usd(2, 1)


@pytest.mark.parametrize("family", ["_loads_with_rates", "_connected", "_volume"])
def test_implied_rules_change_no_optimum(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    rng = random.Random(9)
    drawn = [random_case(rng, 4) for _ in range(15)]
    feasible = [each for each in drawn if solve(each, OPTIONS).plan is not None]
    assert len(feasible) >= 8
    with_it = [modelled(each) for each in feasible]
    monkeypatch.setattr(cpsat_model, family, lambda *_: None)
    assert [modelled(each) for each in feasible] == pytest.approx(with_it)


def test_limits_and_caps_hold_with_rates() -> None:
    """4.25 s above: one node of each kind for both jobs, two of a kind where a group may not."""
    jobs = thirds_and_halves(4.25)
    for most, caps, nodes in ((1, (None, None), (2, 2)), (2, (1, 1), (1, 1))):
        assert optimum(with_rate(snapshot_of(jobs, size=most, caps=caps), 3)) == usd(*nodes)
    capped = solve(with_rate(snapshot_of(jobs, caps=(1, 1)), 2), OPTIONS)
    assert (capped.termination, capped.plan) == (Termination.INFEASIBLE, None)
    # NINE shares a train node, with two rollout nodes: not in a group of one
    assert optimum(with_rate(snapshot_of(NINE, nodes=(1, None)), 4)) == usd(2, 2)


# --- against other methods ------------------------------------------------------------------------


def random_case(rng: random.Random, most_jobs: int) -> Snapshot:
    """A random snapshot of any kind of jobs, of which short ones may iterate up to 4 times."""
    mix = MIXES[rng.choice(sorted(MIXES))]
    snapshot = random_snapshot(
        rng,
        rng.randint(2, most_jobs),
        mix,
        limited=rng.random() < 0.4,
        capped=rng.random() < 0.4,
    )
    if rng.random() < 0.6:  # deadlines of their own
        jobs = [replace(job, slo=rng.choice((1.0, 1.25, 1.5, 2.0))) for job in snapshot.jobs]
        snapshot = replace(snapshot, table=snapshot.table.from_jobs(jobs))
    return with_rate(snapshot, rng.choice((2, 3, 4)))


def front(snapshot: Snapshot, members: Sequence[int]) -> list[tuple[int, int]]:
    """The least nodes of one group of exactly these jobs, over all rates, by single decisions."""
    jobs, limits = [snapshot.jobs[j] for j in members], snapshot.limits
    if limits.max_group_size and len(jobs) > limits.max_group_size:
        return []
    most = [sum(job.rollout_nodes for job in jobs), sum(job.train_nodes for job in jobs)]
    for pool, limit in enumerate((limits.max_rollout_nodes, limits.max_train_nodes)):
        most[pool] = most[pool] if limit is None else min(most[pool], limit)
    vectors = rate_vectors(
        [job.deadline_s for job in jobs], [job.solo_s for job in jobs], limits.max_rate
    )
    dram = (snapshot.cluster.rollout.host_dram_gb, snapshot.cluster.train.host_dram_gb)
    found: list[tuple[int, int]] = []
    train = most[1] + 1
    for rollout in range(1, most[0] + 1):
        while train > 1 and any(
            decide(jobs, rollout, train - 1, dram, vector.period_s, rates=vector.rates) is not None
            for vector in vectors
        ):
            train -= 1
        if train <= most[1] and (not found or train < found[-1][1]):
            found.append((rollout, train))
    return found


def least_usd(snapshot: Snapshot) -> float | None:
    """The least cost over all ways to part the jobs into groups."""
    every = range(len(snapshot))
    points = {
        members: front(snapshot, members)
        for size in range(1, len(snapshot) + 1)
        for members in combinations(every, size)
    }
    fleets = fleets_of({members: each for members, each in points.items() if each}, list(every))
    allowed = [fleet for fleet in fleets if snapshot.caps.allow(*fleet)]
    return min((snapshot.usd_per_hour(*fleet) for fleet in allowed), default=None)


def test_random_snapshots_against_all_partitions() -> None:
    """Infeasible ones, and those where more than one iteration pays, are counted."""
    rng = random.Random(61)
    pays = infeasible = 0
    for _ in range(40):
        snapshot = random_case(rng, 4)
        expected = least_usd(snapshot)
        if expected is None:
            assert solve(snapshot, OPTIONS).termination is Termination.INFEASIBLE, snapshot
            infeasible += 1
            continue
        assert optimum(snapshot) == pytest.approx(expected), snapshot
        strict = solve(with_rate(snapshot, 1), OPTIONS).usd_per_hour
        assert strict is None or expected <= strict + 1e-9
        pays += strict is None or expected < strict - 1e-6
    assert pays >= 5, pays
    assert infeasible >= 4, infeasible


def test_production_like_snapshots_against_exhaustive() -> None:
    """Six jobs with seconds that no grid divides; rates pay in both."""
    for seed in (1, 2):
        snapshot = Snapshot(table=generate.production(n_jobs=6, seed=seed))
        costs = [optimum(with_rate(snapshot, most)) for most in (1, 2, 4)]
        assert costs[0] > costs[1] > costs[2]
        for most, cost in zip((2, 4), costs[1:], strict=True):
            other = solve_exhaustively(with_rate(snapshot, most), OPTIONS)
            assert other.usd_per_hour == pytest.approx(cost)


@pytest.mark.parametrize("grid_s", [0.001, 0.7])
def test_seconds_that_no_grid_divides(grid_s: float) -> None:
    """In units of pi / 3 s every cost is what it is in seconds."""
    rng = random.Random(62)
    names = ("rollout_s", "train_s", "sync_s", "rollout_switch_s", "train_switch_s")
    for _ in range(10):
        snapshot = random_case(rng, 4)
        scaled = [
            replace(job, **{name: getattr(job, name) * math.pi / 3 for name in names})
            for job in snapshot.jobs
        ]
        other = replace(snapshot, table=snapshot.table.from_jobs(scaled))
        result, expected = solve(other, SolveOptions(grid_s=grid_s)), solve(snapshot, OPTIONS)
        assert result.termination is expected.termination
        assert result.usd_per_hour == (
            None if expected.usd_per_hour is None else pytest.approx(expected.usd_per_hour)
        )


def test_permuting_jobs_changes_no_cost() -> None:
    rng = random.Random(63)
    for _ in range(10):
        snapshot = random_case(rng, 4)
        order = rng.sample(range(len(snapshot)), len(snapshot))
        shuffled = replace(snapshot, table=snapshot.table.take(order))
        ours, theirs = solve(snapshot, OPTIONS), solve(shuffled, OPTIONS)
        assert ours.termination is theirs.termination
        assert ours.usd_per_hour == (
            None if theirs.usd_per_hour is None else pytest.approx(theirs.usd_per_hour)
        )


# --- what is lifted, and what stops it ------------------------------------------------------------


def test_orders_that_contradict_themselves_are_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases below one unit may come out so; a schedule constructed with the rates will do."""

    def contradictory(*_: Any) -> None:
        raise InputError("The laps of these orders contradict each other.")

    monkeypatch.setattr(cpsat, "least_of_positions", contradictory)
    snapshot = with_rate(snapshot_of(thirds_and_halves(4.25)), 3)
    result = solve(snapshot, OPTIONS)
    assert result.usd_per_hour == usd(1, 1)
    assert rates_of(result) == {"j0": 3, "j1": 2}


def test_a_limit_of_work_repeats_exactly() -> None:
    snapshot = with_rate(Snapshot(table=generate.production(n_jobs=8, seed=0)), 4)
    first, second = (solve(snapshot, SolveOptions(work_limit=0.05)) for _ in range(2))
    assert (first.termination, first.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.WORK)
    assert plan_to_dict(first.plan) == plan_to_dict(second.plan)
    assert first.bound_usd_per_hour == second.bound_usd_per_hour
    assert first.bound_usd_per_hour is not None
    assert first.usd_per_hour is not None
    assert first.bound_usd_per_hour <= first.usd_per_hour


def test_a_time_limit_returns_what_is_held_and_the_volume_bound() -> None:
    """Each job alone; loads of 0.125 + 1 / 6 and 0.25 + 4.25 / 6 of a node."""
    snapshot = with_rate(snapshot_of(thirds_and_halves(4.25)), 3)
    result = solve(snapshot, SolveOptions(time_limit_s=0.0))
    assert (result.termination, result.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.TIME)
    assert (result.usd_per_hour, result.bound_usd_per_hour) == (usd(2, 2), usd(1, 1))


def test_a_plan_with_rates_is_a_warm_start() -> None:
    """Held without a search, with its rates."""
    snapshot = with_rate(snapshot_of(thirds_and_halves(4.25)), 3)
    best = solve(snapshot, OPTIONS)
    result = solve(snapshot, SolveOptions(warm_start=best.plan, time_limit_s=0.0))
    assert result.usd_per_hour == usd(1, 1)
    assert rates_of(result) == rates_of(best) == {"j0": 3, "j1": 2}


def test_more_jobs_than_the_model_is_built_for_are_refused() -> None:
    snapshot = Snapshot(table=generate.production(n_jobs=MOST_JOBS_WITH_RATES + 1, seed=1))
    message = r"at most 60 jobs for method cpsat with max_rate 2, got 61: use method set-partition"
    with pytest.raises(UnsupportedError, match=message):
        solve(with_rate(snapshot, 2), OPTIONS)
