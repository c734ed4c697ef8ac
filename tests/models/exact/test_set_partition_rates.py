"""Set partitioning with rates: against exhaustive search, refuted groups, limits, Ctrl-C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from builders import PAIR_USD
from clocks import Ticking
from instances.checker import check_plan
from instances.generate import production
from instances.plan import Limits
from models.exact import exhaustive, set_partition
from models.exact.rate_sets import RateSetPool
from models.exact.set_partition import METHOD, solve
from models.exact.single_node_sets import SetPool, is_for
from models.group.group_cost import GroupCost
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.result import Result, StoppedBy, Termination
from models.problem.snapshot import Snapshot
from rate_cases import rate_cases, rated
from small_snapshots import jobs_of

OPTIONS = SolveOptions()


def assert_as_exhaustive(snapshot: Snapshot) -> Result:
    """Return the result: valid, proved, the cost that exhaustive search finds."""
    expected, result = exhaustive.solve(snapshot, OPTIONS), solve(snapshot, OPTIONS)
    assert result.termination is expected.termination, snapshot
    if expected.usd_per_hour is not None:
        assert result.plan is not None
        assert check_plan(result.plan).ok
        assert (result.method, result.stopped_by) == (METHOD, None)
        assert result.usd_per_hour == result.bound_usd_per_hour == result.plan.usd_total
        assert result.usd_per_hour == pytest.approx(expected.usd_per_hour, rel=1e-9), snapshot
    return result


def production_snapshot(n: int, seed: int, max_rate: int, size: int = 5) -> Snapshot:
    limits = Limits(max_group_size=size, max_rate=max_rate)
    return Snapshot(table=production(n_jobs=n, seed=seed), limits=limits)


def pooled() -> Iterator[Snapshot]:
    """Yield the single-node cases with groups of at most five: decided when chosen."""
    for case in rate_cases():
        limits = case.snapshot.limits
        limits = replace(limits, max_group_size=limits.max_group_size or 5)
        snapshot = replace(case.snapshot, limits=limits)
        if is_for(snapshot):
            yield snapshot


def iterations(result: Result) -> list[int]:
    """Return the rates of all jobs of the plan, ascending."""
    assert result.plan is not None
    return sorted(p.rate for group in result.plan.groups for p in group.placements)


# --- against exhaustive search ------------------------------------------------------------------


@pytest.mark.parametrize(("n", "seed", "max_rate"), [(7, 3, 2), (7, 1, 3), (7, 2, 4), (8, 3, 4)])
def test_production_snapshots_cost_what_exhaustive_search_finds(
    n: int, seed: int, max_rate: int
) -> None:
    result = assert_as_exhaustive(production_snapshot(n, seed, max_rate))
    assert max(iterations(result)) > 1


def test_small_snapshots_cost_what_exhaustive_search_finds() -> None:
    """Single-node jobs of every family, in groups of at most five; some groups are refuted."""
    solved = several = 0
    for snapshot in pooled():
        result = assert_as_exhaustive(snapshot)
        if result.plan is not None:
            solved += 1
            several += iterations(result)[-1] > 1
    assert solved >= 60
    assert several >= 20


def test_gangs_and_groups_of_any_size_are_decided_beforehand() -> None:
    several = 0
    for case in rate_cases():
        if not is_for(case.snapshot) and len(case.snapshot) <= 4:
            result = assert_as_exhaustive(case.snapshot)
            several += result.plan is not None and iterations(result)[-1] > 1
    assert several >= 20


def test_a_job_runs_as_often_as_its_deadline_asks() -> None:
    """(6, 2) once and (1, 1) four times, D = 9 and 9 / 4: they share the train node (8 s are not
    enough, ``test_rate_sets``). So two rollout nodes and one train node; strict rounds, none."""
    jobs = jobs_of((6, 1), (2, 1), slo=(9 / 8,) * 2)
    shared = assert_as_exhaustive(rated(jobs, 4, size=2))
    assert iterations(shared) == [1, 4]
    strict = solve(rated(jobs, 1, size=2), OPTIONS)
    assert strict.usd_per_hour == pytest.approx(2 * PAIR_USD)
    assert shared.usd_per_hour is not None
    assert shared.usd_per_hour < 2 * PAIR_USD


def test_more_iterations_never_cost_more() -> None:
    for seed in range(3):
        costs = [solve(production_snapshot(12, seed, k), OPTIONS).usd_per_hour for k in (1, 2, 4)]
        assert None not in costs
        assert costs == sorted(costs, key=lambda usd: -(usd or 0))
        assert costs[0] > costs[2]  # type: ignore[operator]


# --- refuted groups -----------------------------------------------------------------------------


def run_of(snapshot: Snapshot) -> set_partition._Run:
    return set_partition._Run(
        snapshot=snapshot,
        options=OPTIONS,
        deadline=OPTIONS.start(),
        cost=GroupCost(snapshot),
        held=None,
    )


def test_groups_refuted_leave_the_least_cost() -> None:
    """Ten production jobs: loads admit groups that have no schedule and would be cheaper."""
    for seed in (0, 5):
        result = assert_as_exhaustive(production_snapshot(10, seed, 4))
        assert result.counts["refuted"] >= 1


def test_a_smaller_set_is_blamed_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five jobs that share everything; pretend that what holds 0, 1, 2 and 3 does not."""
    snapshot = rated(jobs_of((1,) * 6, (1,) * 6, deadline_s=30), 2, size=5)
    run = run_of(snapshot)
    decide = GroupCost.decide

    def without(cost: GroupCost, members: tuple[int, ...], nodes: Any) -> Any:
        return None if {0, 1, 2, 3} <= set(members) else decide(cost, members, nodes)

    monkeypatch.setattr(GroupCost, "decide", without)
    blamed = set_partition._refutations(run, (0, 1, 2, 3, 4), (1, 1))
    assert blamed == [((0, 1, 2, 3), (1, 1))]
    strict = run_of(rated(list(snapshot.jobs), 1, size=5))
    assert set_partition._refutations(strict, (0, 1, 2, 3, 4), (1, 1)) == [
        ((0, 1, 2, 3, 4), (1, 1))
    ]


def test_larger_groups_are_decided_with_a_node_for_each_job_first() -> None:
    """In one pool at a time, within the limits of a group; strict and small ones only as given."""
    jobs = jobs_of((1,) * 5, (1,) * 5, deadline_s=30)
    five = (0, 1, 2, 3, 4)
    for max_rate, limits, members, nodes, turns in (
        (2, (None, None), five, (3, 1), [(5, 1), (3, 5), (3, 1)]),
        (2, (4, 2), five, (3, 1), [(4, 1), (3, 2), (3, 1)]),
        (2, (None, None), five, (5, 1), [(5, 1)]),
        (2, (None, None), (0, 1, 2), (2, 1), [(2, 1)]),
        (1, (None, None), five, (3, 1), [(3, 1)]),
    ):
        run = run_of(rated(jobs, max_rate, size=5, nodes=limits))
        assert set_partition._in_turn(run, members, nodes) == turns


def test_jobs_of_a_refuted_group_run_in_two_parts() -> None:
    """Five jobs r = t = 1, D = 2: a node takes two phases, so two jobs hold one node of each kind
    and three hold two; (3, 3) together."""
    snapshot = rated(jobs_of((1,) * 5, (1,) * 5, deadline_s=2), 2, size=5)
    groups = set_partition._instead(run_of(snapshot), (0, 1, 2, 3, 4))
    assert sorted(job for group in groups for job in group.members) == [0, 1, 2, 3, 4]
    assert sorted(len(group.members) for group in groups) == [2, 3]
    assert [sum(group.nodes[pool] for group in groups) for pool in (0, 1)] == [3, 3]


# --- limits and what is held --------------------------------------------------------------------


def test_whenever_the_time_ends_a_plan_and_its_bound_are_held() -> None:
    """A clock that counts its calls: the end comes in enumeration, choice and decisions."""
    snapshot = production_snapshot(7, 2, 4)
    least = exhaustive.solve(snapshot, OPTIONS).usd_per_hour
    assert least is not None
    seen: Counter[str] = Counter()
    for ticks in (*range(40), *range(40, 400, 7), *range(400, 4_000, 101)):
        clock = Ticking()
        result = solve(snapshot, SolveOptions(clock=clock, time_limit_s=float(ticks)))
        assert result.plan is not None
        assert check_plan(result.plan).ok
        assert result.usd_per_hour is not None
        assert result.usd_per_hour >= least - 1e-9
        bound = result.bound_usd_per_hour
        assert bound is None or bound <= least + 1e-9
        if result.termination is Termination.OPTIMAL and clock.now < ticks:
            break
        seen[f"{result.termination}, bound {bound is not None}"] += 1
    assert result.termination is Termination.OPTIMAL
    assert seen["feasible-limit, bound False"] >= 3


def test_time_over_in_the_decisions_leaves_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups chosen are never decided: each job runs alone, and the bound is the cover's."""
    snapshot = production_snapshot(8, 0, 4)
    least = solve(snapshot, OPTIONS).usd_per_hour
    decide, choose = GroupCost.decide, set_partition._choose
    chosen: list[bool] = []

    def choosing(*given: Any) -> Any:
        chosen.append(True)
        return choose(*given)

    def late(cost: GroupCost, members: tuple[int, ...], nodes: Any) -> Any:
        if chosen:
            raise OutOfTimeError
        return decide(cost, members, nodes)

    monkeypatch.setattr(set_partition, "_choose", choosing)
    monkeypatch.setattr(GroupCost, "decide", late)
    result = solve(snapshot, SolveOptions(time_limit_s=1e6))
    assert (result.termination, result.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.TIME)
    assert result.usd_per_hour == pytest.approx(8 * PAIR_USD)
    assert least is not None
    assert result.bound_usd_per_hour is not None
    assert 0 < result.bound_usd_per_hour <= least + 1e-9


def raising(label: str) -> Callable[[str, int, int], None]:
    """Return a progress hook that raises Ctrl-C once this step has begun."""

    def hook(step: str, _done: int, _total: int) -> None:
        if step.partition(":")[0] == label:
            raise KeyboardInterrupt

    return hook


@pytest.mark.parametrize("step", ["groups of jobs", "proved"])
def test_ctrl_c_holds_a_plan(step: str) -> None:
    snapshot = production_snapshot(13, 5, 4)
    least = solve(snapshot, OPTIONS).usd_per_hour
    result = solve(snapshot, SolveOptions(progress=raising(step)))
    assert result.stopped_by is StoppedBy.INTERRUPT
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert least is not None
    assert result.usd_per_hour is not None
    bound = result.bound_usd_per_hour
    assert (bound is None) == (step == "groups of jobs")
    assert bound is None or bound <= least + 1e-9 <= result.usd_per_hour + 2e-9


def test_a_hundredth_of_a_second_holds_the_jobs_alone() -> None:
    result = solve(production_snapshot(20, 0, 4), SolveOptions(time_limit_s=0.01))
    assert result.usd_per_hour is not None
    bound = result.bound_usd_per_hour
    assert bound is None or 0 < bound <= result.usd_per_hour


def test_equal_snapshots_give_equal_plans() -> None:
    snapshot = production_snapshot(12, 1, 4)
    one, two = solve(snapshot, OPTIONS), solve(snapshot, OPTIONS)
    assert one.plan is not None
    assert two.plan is not None
    assert one.plan.groups == two.plan.groups
    assert one.counts == two.counts


@pytest.mark.parametrize(
    ("size", "nodes", "max_rate", "kind"),
    [
        (5, (None, None), 1, SetPool),
        (5, (None, None), 2, RateSetPool),
        (5, (1, 1), 4, RateSetPool),
        (0, (1, 1), 2, None),
        (6, (1, 1), 4, None),
        (0, (None, None), 2, None),
    ],
)
def test_the_candidates_are_those_of_the_snapshot(
    size: int, nodes: tuple[int | None, int | None], max_rate: int, kind: type | None
) -> None:
    """Admitted by loads up to groups of five, decided beforehand beyond."""
    snapshot = rated(jobs_of((1, 1), (1, 1), deadline_s=8), max_rate, size=size, nodes=nodes)
    found = set_partition._candidates(run_of(snapshot))
    if kind is None:
        assert type(found) is set_partition._Decided
    else:
        assert isinstance(found, set_partition._Admitted)
        assert type(found._pool) is kind
