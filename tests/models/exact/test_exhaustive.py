"""Exhaustive group formation: against the oracle, under caps, and what it holds when stopped."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of
from instances.checker import check_plan
from instances.errors import InputError, UnsupportedError
from models.exact import candidate_groups, exhaustive
from models.exact.exhaustive import METHOD, MOST_JOBS, fleet_front, solve
from models.group import cyclic_cpsat
from models.group.cyclic_cpsat import decide
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination, first_incumbent, usd_of
from models.problem.snapshot import Snapshot, groups_of, plan_of
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    fleets_of,
    full_jobs,
    gangs_that_all_meet,
    jobs_of,
    oracle_fronts,
    oracle_of,
    pareto,
    random_jobs,
    random_snapshot,
    snapshot_of,
)

OPTIONS = SolveOptions()


def usd(rollout: int, train: int) -> Any:
    return pytest.approx(rollout * ROLLOUT_USD + train * TRAIN_USD)


def assert_optimal(result: Result) -> None:
    """Proved, and the plan held is valid, complete and costs what the result says."""
    assert (result.termination, result.stopped_by) == (Termination.OPTIMAL, None)
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.usd_per_hour == result.bound_usd_per_hour == result.plan.usd_total
    assert (result.method, result.plan.policy, result.ratio) == (METHOD, METHOD, 1.0)


def nodes_of(result: Result) -> tuple[int, int]:
    assert result.plan is not None
    groups = result.plan.groups
    return sum(len(g.rollout_nodes) for g in groups), sum(len(g.train_nodes) for g in groups)


def members_of(result: Result) -> list[list[str]]:
    assert result.plan is not None
    return [[p.job_id for p in group.placements] for group in result.plan.groups]


# --- against the oracle -------------------------------------------------------------------------


def cases(seed: int, count: int) -> Iterator[Snapshot]:
    """Two to four jobs: every mix by turns, with group limits, fleet caps, both or neither; every
    fifth with full nodes."""
    rng = random.Random(seed)
    mixes = list(MIXES.values())
    for i in range(count):
        n = rng.choice((2, 3, 3, 4))
        if i % 5 == 4:
            yield snapshot_of(full_jobs(rng, max(n, 3)), caps=rng.choice(((None, None), (1, None))))
        else:
            yield random_snapshot(
                rng, n, mixes[i % len(mixes)], limited=i % 2 == 0, capped=i % 3 == 0
            )


def test_costs_are_those_of_the_oracle() -> None:
    """Infeasible where it finds none. Counted: that the cases are not all of one kind."""
    seen: Counter[str] = Counter()
    for snapshot in cases(1, 150):
        expected = oracle_of(snapshot)
        result = solve(snapshot, OPTIONS)
        if expected.usd_per_hour is None:
            assert result.termination is Termination.INFEASIBLE, snapshot
            assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None,) * 3
            seen["infeasible"] += 1
            continue
        assert_optimal(result)
        assert result.usd_per_hour == pytest.approx(expected.usd_per_hour), snapshot
        seen["shared"] += len(members_of(result)) < len(snapshot)
        seen["capped"] += snapshot.caps.any
        seen["gangs"] += any(job.rollout_nodes + job.train_nodes > 2 for job in snapshot.jobs)
        seen["precedence"] += result.counts.get("decided_cpsat_infeasible", 0) > 0
    assert seen["infeasible"] >= 10
    assert seen["shared"] >= 80
    assert seen["capped"] >= 20
    assert seen["gangs"] >= 20
    assert seen["precedence"] >= 8


@pytest.mark.parametrize("prices", [(14.8, 42.24), (8.0, 8.0), (40.0, 1.0)])
def test_costs_follow_the_prices(prices: tuple[float, float]) -> None:
    rng = random.Random(2)
    cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
    for _ in range(10):
        snapshot = snapshot_of(full_jobs(rng, 4), cluster=cluster)
        result = solve(snapshot, OPTIONS)
        assert_optimal(result)
        assert result.usd_per_hour == pytest.approx(oracle_of(snapshot).usd_per_hour)


def test_the_order_of_the_jobs_changes_no_cost() -> None:
    rng = random.Random(3)
    for mix in MIXES.values():
        jobs = random_jobs(rng, 5, mix, together=True)
        first = solve(snapshot_of(jobs, size=3), OPTIONS)
        for _ in range(3):
            rng.shuffle(jobs)
            again = solve(snapshot_of(jobs, size=3), OPTIONS)
            assert again.usd_per_hour == pytest.approx(first.usd_per_hour)


@pytest.mark.parametrize("function", [solve, fleet_front])
def test_the_seed_is_that_of_the_options(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The precedence group needs one decision by CP-SAT."""
    seeds = []

    def watched(*args: Any, seed: int, **more: Any) -> Any:
        seeds.append(seed)
        return decide(*args, seed=seed, **more)

    monkeypatch.setattr(cyclic_cpsat, "decide", watched)
    function(snapshot_of(PRECEDENCE), SolveOptions(seed=5))
    assert seeds == [5]


def test_equal_snapshots_give_equal_plans() -> None:
    for snapshot in cases(4, 12):
        one, two = solve(snapshot, OPTIONS), solve(snapshot, OPTIONS)
        assert one.counts == two.counts
        assert (one.plan and one.plan.groups) == (two.plan and two.plan.groups)


# --- by hand ------------------------------------------------------------------------------------


def test_the_precedence_group_costs_a_rollout_node_more_than_its_loads() -> None:
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert_optimal(result)
    assert result.usd_per_hour == usd(2, 1)
    assert members_of(result) == [["j0", "j1", "j2"]]


def test_with_one_node_of_each_kind_per_group_the_precedence_group_is_split() -> None:
    """Jobs 1 and 2 share a pair of nodes, job 0 has one of its own (the oracle's tests)."""
    result = solve(snapshot_of(PRECEDENCE, nodes=(1, 1)), OPTIONS)
    assert_optimal(result)
    assert result.usd_per_hour == usd(2, 2)


@pytest.mark.parametrize(("deadline_s", "rollout"), [(34, 3), (33, 4)])
def test_gangs_that_all_meet(deadline_s: float, rollout: int) -> None:
    """One group, as one train node serves all: three rollout nodes at 34 s, four below."""
    result = solve(snapshot_of(gangs_that_all_meet(deadline_s)), OPTIONS)
    assert_optimal(result)
    assert nodes_of(result) == (rollout, 1)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
def test_group_size(size: int) -> None:
    """Four jobs that share everything: ceil(4 / size) pairs of nodes."""
    result = solve(snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=8), size=size), OPTIONS)
    assert_optimal(result)
    pairs = -(-4 // (size or 4))
    assert result.usd_per_hour == usd(pairs, pairs)
    assert len(members_of(result)) == pairs


def test_thirteen_jobs_that_fit_seven_pairs_of_nodes() -> None:
    """Seven jobs (5, 1) and six (1, 5), deadlines 6: rollouts take 41 s and trains 37 s, so seven
    nodes of each kind are needed, and pairs of (5, 1) and (1, 5) reach that. Alone: 13 pairs."""
    jobs = jobs_of((5,) * 7 + (1,) * 6, (1,) * 7 + (5,) * 6)
    snapshot = snapshot_of(jobs, size=5)
    held = first_incumbent(snapshot, OPTIONS)
    assert held is not None
    assert usd_of(snapshot, held) == usd(13, 13)
    result = solve(snapshot, OPTIONS)
    assert_optimal(result)
    assert nodes_of(result) == (7, 7)


def test_no_jobs_cost_nothing() -> None:
    for caps in ((None, None), (0, 0)):
        result = solve(snapshot_of([], caps=caps), OPTIONS)
        assert_optimal(result)
        assert (result.usd_per_hour, members_of(result)) == (0, [])


@pytest.mark.parametrize(
    "snapshot",
    [
        snapshot_of(jobs_of((1, 1), (1, 1), train_state_gb=(0, 2001))),
        snapshot_of(jobs_of((1, 1), (1, 1), rollout_nodes=(1, 2)), nodes=(1, None)),
        snapshot_of(jobs_of((5, 5), (1, 1)), caps=(1, None)),
        snapshot_of(jobs_of((1,), (1,)), caps=(None, 0)),
        snapshot_of(jobs_of((1,), (1,), train_nodes=(5,)), caps=(None, 3)),
        snapshot_of(PRECEDENCE, caps=(1, 1)),
    ],
    ids=["dram", "node limit", "rollout cap", "no train node", "train gang", "precedence"],
)
def test_infeasible_snapshots_are_proved_so(snapshot: Snapshot) -> None:
    result = solve(snapshot, OPTIONS)
    assert (result.termination, result.stopped_by) == (Termination.INFEASIBLE, None)
    assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None, None, None)
    assert result.ratio is None


# --- fleets -------------------------------------------------------------------------------------


def test_fleet_fronts_are_those_of_all_partitions_of_the_oracles_groups() -> None:
    wide = 0
    for snapshot in cases(5, 30):
        everyone = range(len(snapshot))
        expected = pareto(fleets_of(oracle_fronts(snapshot), everyone))
        assert fleet_front(snapshot, OPTIONS) == expected, snapshot
        wide += len(expected) > 1
    assert wide >= 4


@pytest.mark.parametrize(
    ("jobs", "front"),
    [
        ([], [(0, 0)]),
        (PRECEDENCE, [(1, 2), (2, 1)]),
        (FIVE_FRONT, [(2, 3), (3, 2)]),
        (jobs_of((1, 1), (1, 1), train_state_gb=(0, 2001)), []),
    ],
    ids=["no jobs", "precedence", "five", "dram"],
)
def test_fleet_fronts_by_hand(jobs: list[Any], front: list[tuple[int, int]]) -> None:
    """FORMULATION 4; parts of the five jobs are no cheaper. A job too large has no fleet."""
    assert fleet_front(snapshot_of(jobs), OPTIONS) == front


def test_the_cheapest_point_of_the_fleet_front_within_the_caps_is_taken() -> None:
    """Two groups of front (1, 2), (2, 1) as in the oracle's tests: (2, 4), (3, 3), (4, 2). All
    caps; at two prices, so that both ends and the middle of the front are cheapest in turn."""
    half = (0.5,) * 4
    jobs = jobs_of(
        (1,) * 4, (1,) * 4, (2,) * 4, deadline_s=4.5, rollout_switch_s=half, train_switch_s=half
    )
    front = [(2, 4), (3, 3), (4, 2)]
    assert fleet_front(snapshot_of(jobs, size=2), OPTIONS) == front
    seen = set()
    for prices, most_r, most_t in product(
        ((ROLLOUT_USD, TRAIN_USD), (40.0, 8.0)), (None, 1, 2, 3, 4, 9), (None, 1, 2, 3, 4, 9)
    ):
        cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
        snapshot = snapshot_of(jobs, size=2, caps=(most_r, most_t), cluster=cluster)
        within = [(r, t) for r, t in front if snapshot.caps.allow(r, t)]
        result = solve(snapshot, OPTIONS)
        if not within:
            assert result.termination is Termination.INFEASIBLE
            continue
        assert_optimal(result)
        assert nodes_of(result) == min(within, key=lambda nodes: snapshot.usd_per_hour(*nodes))
        seen.add(nodes_of(result))
    assert seen == set(front)


def test_caps_that_do_not_bind_change_no_cost() -> None:
    for plain in cases(6, 20):
        free = replace(plain, caps=snapshot_of([]).caps)
        wide = replace(plain, caps=snapshot_of([], caps=(99, 99)).caps)
        one, two = solve(free, OPTIONS), solve(wide, OPTIONS)
        assert one.termination is two.termination
        assert one.usd_per_hour == (two.usd_per_hour and pytest.approx(two.usd_per_hour))


# --- sizes it refuses ---------------------------------------------------------------------------


def test_more_jobs_than_its_table_holds_are_refused_with_the_alternative() -> None:
    n = MOST_JOBS + 1
    snapshot = snapshot_of(jobs_of((1,) * n, (1,) * n))
    for function in (solve, fleet_front):
        with pytest.raises(UnsupportedError) as caught:
            function(snapshot, OPTIONS)
        assert str(caught.value) == (
            "Expected at most 20 jobs for method exhaustive, got 21: use method set-partition."
        )


def test_as_many_jobs_as_its_table_holds_are_solved() -> None:
    """None can share a node, as T = D leaves no time for the switch."""
    more = {"rollout_switch_s": (1,) * MOST_JOBS, "train_switch_s": (1,) * MOST_JOBS}
    snapshot = snapshot_of(jobs_of((1,) * MOST_JOBS, (1,) * MOST_JOBS, **more), size=5)
    result = solve(snapshot, OPTIONS)
    assert_optimal(result)
    assert nodes_of(result) == (MOST_JOBS, MOST_JOBS)


def test_a_table_too_large_for_its_node_counts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs alone hold four train nodes, so 2^3 sets by 0 to 4 nodes: 40 entries; a cap of 2
    needs 24 only."""
    jobs = jobs_of((1,) * 3, (1,) * 3, deadline_s=9, train_nodes=(1, 1, 2))
    monkeypatch.setattr(exhaustive, "_MOST_ENTRIES", 39)
    with pytest.raises(UnsupportedError, match=r"at most 39 table entries .* got 40 \(3 jobs, 4 "):
        solve(snapshot_of(jobs, caps=(9, None)), OPTIONS)
    assert_optimal(solve(snapshot_of(jobs, caps=(9, 2)), OPTIONS))
    assert_optimal(solve(snapshot_of(jobs), OPTIONS))
    monkeypatch.setattr(exhaustive, "_MOST_ENTRIES", 40)
    for train_cap in (None, 99):
        assert_optimal(solve(snapshot_of(jobs, caps=(9, train_cap)), OPTIONS))


def test_too_many_groups_are_refused() -> None:
    snapshot = snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=8))
    with pytest.raises(UnsupportedError, match="at most 14 candidate groups"):
        solve(snapshot, SolveOptions(max_groups=14))
    assert solve(snapshot, SolveOptions(max_groups=15)).counts["groups"] == 15


# --- what is held when it is stopped ------------------------------------------------------------

#: Five jobs that all share one node of each kind: 31 sets.
FIVE = snapshot_of(jobs_of((1,) * 5, (1,) * 5, deadline_s=10), size=5)


class Clock:
    """Reads 0 so many times, then does ``after``: passes the limit, or raises."""

    def __init__(self, reads: int, after: type[BaseException] | None = None) -> None:
        self.left = reads
        self.after = after

    def __call__(self) -> float:
        self.left -= 1
        if self.left >= 0:
            return 0.0
        if self.after is not None:
            raise self.after
        return 100.0


def pairs_plan(snapshot: Snapshot) -> Any:
    """A plan of groups of two, two and one of the five jobs: three pairs of nodes."""
    result = solve(replace(snapshot, limits=replace(snapshot.limits, max_group_size=2)), OPTIONS)
    assert result.plan is not None
    groups = groups_of(snapshot, result.plan)
    plan = plan_of(snapshot, groups, "warm")
    assert plan.usd_total == usd(3, 3)
    return plan


@pytest.mark.parametrize("caps", [(None, None), (9, 9)])
@pytest.mark.parametrize(
    ("after", "stopped_by"), [(None, StoppedBy.TIME), (KeyboardInterrupt, StoppedBy.INTERRUPT)]
)
def test_stopped_at_any_moment_it_returns_what_it_held_or_the_optimum(
    after: type[BaseException] | None,
    stopped_by: StoppedBy,
    caps: tuple[int | None, int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock is read on the way, in the enumeration every four sets here; it runs out, or
    Ctrl-C comes, at each of its reads. The first is the start of the solve itself."""
    monkeypatch.setattr(candidate_groups, "_STRIDE", 4)
    snapshot = replace(FIVE, caps=snapshot_of([], caps=caps).caps)
    warm = pairs_plan(snapshot)
    outcomes: Counter[Termination] = Counter()
    for reads in range(1, 1000):
        clock = Clock(reads, after)
        options = SolveOptions(time_limit_s=10, clock=clock, warm_start=warm)
        result = solve(snapshot, options)
        outcomes[result.termination] += 1
        if result.termination is Termination.OPTIMAL:
            assert_optimal(result)
            assert result.usd_per_hour == usd(1, 1)
            if clock.left >= 0:
                break
            continue
        assert result.termination is Termination.FEASIBLE_LIMIT
        assert result.stopped_by is stopped_by
        assert result.usd_per_hour == usd(3, 3)
        assert (result.bound_usd_per_hour, result.ratio) == (None, None)
        assert result.plan is not None
        assert check_plan(result.plan).ok
    assert outcomes[Termination.OPTIMAL] >= 1
    assert outcomes[Termination.FEASIBLE_LIMIT] >= 20


def test_no_time_at_all_returns_each_job_alone_or_the_warm_start() -> None:
    no_time = SolveOptions(time_limit_s=0)
    result = solve(FIVE, no_time)
    assert (result.termination, result.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.TIME)
    assert result.usd_per_hour == pytest.approx(5 * PAIR_USD)
    warm = solve(FIVE, replace(no_time, warm_start=pairs_plan(FIVE)))
    assert warm.termination is Termination.FEASIBLE_LIMIT
    assert warm.usd_per_hour == usd(3, 3)
    assert members_of(warm) == members_of_plan(pairs_plan(FIVE))


def members_of_plan(plan: Any) -> list[list[str]]:
    return [[p.job_id for p in group.placements] for group in plan.groups]


def test_no_time_and_nothing_held_is_no_plan_and_no_number() -> None:
    """Jobs alone break the caps, and there is no warm start; the problem is feasible."""
    capped = replace(FIVE, caps=snapshot_of([], caps=(1, 1)).caps)
    result = solve(capped, SolveOptions(time_limit_s=0))
    assert (result.termination, result.stopped_by) == (Termination.NO_PLAN_LIMIT, StoppedBy.TIME)
    assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None, None, None)
    assert solve(capped, OPTIONS).usd_per_hour == usd(1, 1)


def test_ctrl_c_while_progress_is_shown_returns_what_is_held() -> None:
    calls = []

    def interrupt(*call: Any) -> None:
        calls.append(call)
        if len(calls) == 2:
            raise KeyboardInterrupt

    result = solve(FIVE, SolveOptions(progress=interrupt))
    assert len(calls) == 2
    assert (result.termination, result.stopped_by) == (
        Termination.FEASIBLE_LIMIT,
        StoppedBy.INTERRUPT,
    )
    assert result.usd_per_hour == pytest.approx(5 * PAIR_USD)


def test_a_warm_start_of_other_jobs_is_refused_before_any_work() -> None:
    other = pairs_plan(FIVE)
    calls: list[Any] = []
    options = SolveOptions(warm_start=other, progress=lambda *call: calls.append(call))
    with pytest.raises(InputError, match="not of this snapshot"):
        solve(snapshot_of(jobs_of((1,), (1,))), options)
    assert calls == []


def test_a_warm_start_never_makes_the_optimum_dearer() -> None:
    result = solve(FIVE, SolveOptions(warm_start=pairs_plan(FIVE)))
    assert_optimal(result)
    assert result.usd_per_hour == usd(1, 1)


# --- what is counted ----------------------------------------------------------------------------


def test_counts_and_seconds_are_those_of_the_steps() -> None:
    """Three jobs, seven sets; every one is a group on (1, 1) but the triple, which fails there and
    is then found on (2, 1)."""
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert result.counts == {
        "groups": 7,
        "sets": 7,
        "decided_constructed": 7,
        "decided_cpsat_infeasible": 1,
    }
    assert set(result.seconds) == {"groups", "partition"}
    assert all(value >= 0 for value in result.seconds.values())


def test_without_a_limit_on_time_the_clock_tells_the_steps_apart() -> None:
    """A clock that counts its own reads: groups come first, then the partition."""
    reads = iter(range(10_000))
    result = solve(FIVE, SolveOptions(clock=lambda: float(next(reads))))
    assert result.seconds["groups"] > 0
    assert result.seconds["partition"] > 0
