"""The whole snapshot by CP-SAT: by hand, against the oracle, its time grid, and what stops it."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of
from instances import generate
from instances.checker import check_plan
from instances.errors import InputError
from instances.jobs import Job
from instances.plan_file import plan_to_dict
from models.backends.cp_sat import run
from models.exact import cpsat, cpsat_model
from models.exact.cpsat import METHOD, solve
from models.exact.cpsat_data import Data
from models.exact.cpsat_model import build
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination, usd_of
from models.problem.snapshot import Snapshot, groups_of, plan_of, solo_group
from small_snapshots import (
    BRIDGE,
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    five_gangs,
    gangs_that_all_meet,
    jobs_of,
    oracle_of,
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


def optimum(snapshot: Snapshot, options: SolveOptions = OPTIONS) -> float:
    result = solve(snapshot, options)
    assert_optimal(result)
    assert result.usd_per_hour is not None
    return result.usd_per_hour


def scaled(jobs: Sequence[Job], factor: float) -> list[Job]:
    """The same jobs in another unit of time."""
    return [
        replace(
            job,
            rollout_s=job.rollout_s * factor,
            train_s=job.train_s * factor,
            sync_s=job.sync_s * factor,
            rollout_switch_s=job.rollout_switch_s * factor,
            train_switch_s=job.train_switch_s * factor,
        )
        for job in jobs
    ]


# --- by hand --------------------------------------------------------------------------------------


def test_no_job_costs_nothing() -> None:
    result = solve(snapshot_of([]), OPTIONS)
    assert result.termination is Termination.OPTIMAL
    assert (result.usd_per_hour, result.bound_usd_per_hour) == (0.0, 0.0)


def test_one_job_takes_its_own_nodes() -> None:
    assert optimum(snapshot_of(jobs_of((5,), (1,), rollout_nodes=(3,)))) == usd(3, 1)


def test_an_open_shop_pair_shares_one_node_of_each() -> None:
    """(5, 1) and (1, 5): loads and iterations are 6, which an open shop reaches."""
    assert optimum(snapshot_of(jobs_of((5, 1), (1, 5), deadline_s=6))) == usd(1, 1)
    # rollouts take 7 s; the second job has no slack, its train leaves 2 s for the other's
    assert optimum(snapshot_of(jobs_of((5, 2), (1, 4.9), deadline_s=6.9))) == usd(2, 1)


def test_precedence_costs_a_rollout_node() -> None:
    """Least period 11.5 on one pair (FORMULATION section 4); (2, 1) reaches 11."""
    assert optimum(snapshot_of(PRECEDENCE)) == usd(2, 1)


def test_the_cheaper_point_of_a_front() -> None:
    """(2, 3) and (3, 2) for all five; (2, 2) is not even reached by two groups."""
    assert optimum(snapshot_of(FIVE_FRONT)) == usd(3, 2)


def test_a_group_that_one_job_holds_together() -> None:
    """Two nodes of each kind for three jobs of which two share nothing."""
    assert optimum(snapshot_of(BRIDGE)) == usd(2, 2)


@pytest.mark.parametrize(
    ("deadline_s", "nodes"),
    [
        (34.0, (3, 1)),  # 5 + 3 + 11 + 6 + 9 = 34
        (33.9, (5, 2)),  # two groups, one has a gang of 3 and the other one of 2
    ],
)
def test_gangs_that_all_meet(deadline_s: float, nodes: tuple[int, int]) -> None:
    snapshot = snapshot_of(gangs_that_all_meet(deadline_s), nodes=(3, None))
    assert optimum(snapshot) == usd(*nodes)


@pytest.mark.parametrize(
    ("deadline_s", "most", "nodes"),
    [
        (2.5, 5, (5, 1)),  # a ring of five
        # Two gangs to a node, so k gangs take k nodes or more; three on three nodes pairwise meet
        # (3 s), so they take 4. Apart: 2 + 4 or 4 + 2 nodes, and two train nodes.
        (2.4, 5, (6, 2)),
        (2.4, None, (6, 1)),  # the same nodes in one group
    ],
)
def test_five_gangs(deadline_s: float, most: int | None, nodes: tuple[int, int]) -> None:
    assert optimum(snapshot_of(five_gangs(deadline_s), nodes=(most, None))) == usd(*nodes)


def test_an_slo_of_1_needs_no_multiple_of_the_grid() -> None:
    """Each job's deadline is its own iteration, in seconds no grid has; none fits another's."""
    jobs = jobs_of((math.pi, math.e, 7 / 3), (1 / 7, 1.1, 0.1))
    for grid_s in (10.0, 0.001):
        result = solve(snapshot_of(jobs), SolveOptions(grid_s=grid_s))
        assert_optimal(result)
        assert result.usd_per_hour == usd(3, 3)
        assert result.counts["halvings"] == 0


def test_equal_jobs_at_slo_1_interleave() -> None:
    """(1, 1) and (1, 1) with no slack alternate on one pair; three do not."""
    assert optimum(snapshot_of(jobs_of((1,) * 2, (1,) * 2))) == usd(1, 1)
    assert optimum(snapshot_of(jobs_of((1,) * 3, (1,) * 3))) == usd(2, 2)


def test_dram_exactly_full() -> None:
    """0.1 + 0.2 is above 0.3 in binary, and is 0.3."""
    jobs = jobs_of((1, 1), (1, 1), rollout_state_gb=(0.1, 0.2))
    assert optimum(snapshot_of(jobs, cluster=cluster_of(host_dram_gb=0.3))) == usd(1, 1)
    assert optimum(snapshot_of(jobs, cluster=cluster_of(host_dram_gb=0.2999))) == usd(2, 1)


def test_prices_decide_which_nodes() -> None:
    """PRECEDENCE takes (2, 1) or (1, 2); also at prices that no decimals hold, and at nothing."""
    for rollout_usd, train_usd, nodes in (
        (10.0, 20.0, (2, 1)),
        (20.0, 10.0, (1, 2)),
        (10 * math.pi, 10 * math.e, (1, 2)),
        (math.e / 1000, math.pi * 1000, (2, 1)),
        (0.0, 10.0, (2, 1)),
        (10.0, 0.0, (1, 2)),
        (0.0, 0.0, (0, 0)),
    ):
        cluster = cluster_of(rollout_usd=rollout_usd, train_usd=train_usd)
        expected = nodes[0] * rollout_usd + nodes[1] * train_usd
        assert optimum(snapshot_of(PRECEDENCE, cluster=cluster)) == pytest.approx(expected)


# --- minimal pairs: the optimum with and without one rule -----------------------------------------


def modelled(snapshot: Snapshot) -> float:
    """The optimum of the model as it is stated, $/h."""
    data = Data.of(snapshot, 0.001, for_bound=True)
    answer = run(build(data, snapshot, OPTIONS.start()).cp)
    assert answer.objective is not None
    return float(answer.objective / data.per_usd)


#: Rollouts of 3 s keep a node each in 4 s, trains of 1 s share one.
TRAINS_SHARE = jobs_of((3, 3), (1, 1), deadline_s=4)
#: Two states of 800 GB fit 2,000 GB, so five take three train nodes; the sum says two.
HEAVY = jobs_of((1,) * 5, (1,) * 5, deadline_s=5, train_state_gb=(800,) * 5)


@pytest.mark.parametrize(
    ("family", "snapshot", "held", "dropped"),
    [
        ("_residency", snapshot_of(HEAVY), (1, 3), (1, 2)),
        # without either rule only loads (11) and iterations (11) are left
        ("_chains", snapshot_of(PRECEDENCE), (2, 1), (1, 1)),
        ("_order", snapshot_of(PRECEDENCE), (2, 1), (1, 1)),
        ("_node_limits", snapshot_of(TRAINS_SHARE, nodes=(1, None)), (2, 2), (2, 1)),
        ("_fleet_caps", snapshot_of(FIVE_FRONT, caps=(2, None)), (2, 3), (3, 2)),
    ],
)
def test_what_one_rule_costs(
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    snapshot: Snapshot,
    held: tuple[int, int],
    dropped: tuple[int, int],
) -> None:
    assert modelled(snapshot) == usd(*held)
    monkeypatch.setattr(cpsat_model, family, lambda *_: None)
    assert modelled(snapshot) == usd(*dropped)


def test_what_a_group_limit_costs() -> None:
    """Five (1, 1) at 5 s fill one pair; groups of at most k take 5 / k pairs, rounded up."""
    jobs = jobs_of((1,) * 5, (1,) * 5, deadline_s=5)
    pairs = {size: optimum(snapshot_of(jobs, size=size)) / PAIR_USD for size in range(6)}
    assert pairs == pytest.approx({0: 1, 1: 5, 2: 3, 3: 2, 4: 2, 5: 1})


def test_what_a_switch_costs() -> None:
    """(2, 2) twice within 5 s: 4 on each node; with a switch of 1 s the train node has 6."""
    for switch_s, nodes in ((0.0, (1, 1)), (0.5, (1, 1)), (1.0, (1, 2))):
        jobs = jobs_of((2, 2), (2, 2), deadline_s=5, train_switch_s=(switch_s,) * 2)
        assert optimum(snapshot_of(jobs)) == usd(*nodes)


@pytest.mark.parametrize("family", ["_loads", "_connected", "_volume"])
def test_implied_rules_change_no_optimum(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    rng = random.Random(8)
    snapshots = [
        random_snapshot(rng, rng.randint(2, 5), MIXES["all"], limited=i % 2 == 0) for i in range(20)
    ]
    feasible = [each for each in snapshots if solve(each, OPTIONS).plan is not None]
    assert len(feasible) >= 12
    with_it = [modelled(each) for each in feasible]
    monkeypatch.setattr(cpsat_model, family, lambda *_: None)
    assert [modelled(each) for each in feasible] == pytest.approx(with_it)


# --- against the oracle ---------------------------------------------------------------------------


def test_random_snapshots_against_the_oracle() -> None:
    """All kinds of jobs, limits and caps; sharing and infeasible ones counted."""
    rng = random.Random(17)
    shared = infeasible = 0
    for number in range(60):
        mix = MIXES[sorted(MIXES)[number % len(MIXES)]]
        n = rng.randint(2, 4) if number % 3 else 3
        snapshot = random_snapshot(
            rng, n, mix, limited=rng.random() < 0.4, capped=rng.random() < 0.4
        )
        expected = oracle_of(snapshot).usd_per_hour
        result = solve(snapshot, OPTIONS)
        if expected is None:
            assert result.termination is Termination.INFEASIBLE, snapshot
            infeasible += 1
            continue
        assert_optimal(result)
        assert result.usd_per_hour == pytest.approx(expected), snapshot
        assert result.plan is not None
        shared += len(result.plan.groups) < n
    assert shared >= 20
    assert infeasible >= 5


@pytest.mark.parametrize("grid_s", [0.001, 0.05, 0.7])
def test_seconds_that_no_grid_divides(grid_s: float) -> None:
    """Another unit of time changes no cost; in units of pi no decimal grid holds the data."""
    rng = random.Random(23)
    for _ in range(12):
        snapshot = random_snapshot(rng, rng.randint(2, 5), MIXES["all"])
        other = snapshot_of(scaled(snapshot.jobs, math.pi / 3), size=0)
        assert optimum(other, SolveOptions(grid_s=grid_s)) == pytest.approx(optimum(snapshot))


def test_permuting_jobs_changes_no_cost() -> None:
    rng = random.Random(29)
    for _ in range(15):
        snapshot = random_snapshot(rng, 5, MIXES["all"], limited=True, capped=True)
        shuffled = replace(snapshot, table=snapshot.table.take(rng.sample(range(5), 5)))
        ours, theirs = solve(snapshot, OPTIONS), solve(shuffled, OPTIONS)
        assert ours.termination is theirs.termination
        assert ours.usd_per_hour == (
            None if theirs.usd_per_hour is None else pytest.approx(theirs.usd_per_hour)
        )


def test_a_production_snapshot_repeats_to_the_byte() -> None:
    snapshot = Snapshot(table=generate.production(n_jobs=18, seed=1))
    first, second = (solve(snapshot, SolveOptions(seed=5)) for _ in range(2))
    assert_optimal(first)
    assert json.dumps(plan_to_dict(first.plan)) == json.dumps(plan_to_dict(second.plan))
    assert first.counts == second.counts
    two = solve(snapshot, SolveOptions(seed=6, threads=2))
    assert_optimal(two)
    assert two.usd_per_hour == first.usd_per_hour


# --- the time grid --------------------------------------------------------------------------------


def test_one_solve_where_the_grid_divides_the_data() -> None:
    result = solve(snapshot_of(scaled(PRECEDENCE, 0.1)), OPTIONS)
    assert_optimal(result)
    assert result.counts == {
        "solves": 1,
        "variables": result.counts["variables"],
        "conflicts": result.counts["conflicts"],
        "halvings": 0,
    }


def test_a_coarse_grid_is_halved_until_the_costs_agree() -> None:
    """In units of 4 s the durations (5, 5, 1), (2, 3, 6) are 1, 1, 0 and 0, 0, 1, sync is none:
    one pair seems to do. Units of 1 s hold the data."""
    result = solve(snapshot_of(PRECEDENCE), SolveOptions(grid_s=4.0))
    assert_optimal(result)
    assert result.usd_per_hour == usd(2, 1)
    assert result.counts["halvings"] in (1, 2)
    assert result.counts["solves"] > 2


def test_where_halving_does_not_settle_it_the_interval_is_reported() -> None:
    """1e-8 below its least period of 11.5 s the grid, at last 4 / 1024 s, cannot tell: at most
    usd(2, 1), found on a grid that rounds up, and at least usd(1, 1)."""
    jobs = [replace(job, slo=11.5 * (1 - 1e-8) / job.solo_s) for job in PRECEDENCE]
    result = solve(snapshot_of(jobs), SolveOptions(grid_s=4.0))
    assert (result.termination, result.stopped_by) == (
        Termination.FEASIBLE_LIMIT,
        StoppedBy.GRID,
    )
    assert result.counts["halvings"] == 10
    assert (result.usd_per_hour, result.bound_usd_per_hour) == (usd(2, 1), usd(1, 1))
    assert result.plan is not None
    assert check_plan(result.plan).ok


def test_deadlines_too_long_for_the_grid_coarsen_it() -> None:
    """11e9 s are 11e12 units of 0.001 s."""
    assert optimum(snapshot_of(scaled(PRECEDENCE, 1e9))) == usd(2, 1)


def test_the_coarsened_grid_is_not_halved() -> None:
    """1.2e-9 below its least period the longest deadline's 2^30 units are too few."""
    deadline_s = 11.5e9 * (1 - 1.2e-9)
    jobs = [replace(job, slo=deadline_s / job.solo_s) for job in scaled(PRECEDENCE, 1e9)]
    result = solve(snapshot_of(jobs), SolveOptions(grid_s=1e-3))
    assert result.stopped_by is StoppedBy.GRID
    assert (result.usd_per_hour, result.bound_usd_per_hour) == (usd(2, 1), usd(1, 1))
    assert (result.counts["halvings"], result.counts["solves"]) == (0, 2)


def test_orders_that_contradict_themselves_are_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """So may phases below one unit come out; a constructed schedule on the same pins will do."""

    def contradictory(*_: Any) -> None:
        raise InputError("The laps of these orders contradict each other.")

    monkeypatch.setattr(cpsat, "least_of_positions", contradictory)
    assert optimum(snapshot_of(PRECEDENCE)) == usd(2, 1)


def test_rounding_for_a_bound_and_for_a_plan() -> None:
    jobs = jobs_of((0.3, 1.01), (0.2, 0.19), (0.1, 0.0), deadline_s=1.25, train_switch_s=(0.05, 0))
    snapshot = snapshot_of(jobs)
    bound, plan = (Data.of(snapshot, 0.1, for_bound=each) for each in (True, False))
    assert (bound.phase, plan.phase) == (((3, 10), (2, 1)), ((3, 11), (2, 2)))
    assert (bound.switch[1], plan.switch[1]) == ((0, 0), (1, 0))
    assert (bound.sync, plan.sync) == ((1, 0), (1, 0))
    assert (bound.period, plan.period) == ((13, 13), (12, 12))


# --- infeasible, and what stops it ----------------------------------------------------------------


def assert_infeasible(result: Result) -> None:
    assert (result.termination, result.stopped_by) == (Termination.INFEASIBLE, None)
    assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None, None, None)


def test_a_job_that_cannot_run_alone_is_infeasible() -> None:
    assert_infeasible(solve(snapshot_of(jobs_of((1,), (1,), rollout_state_gb=(2001,))), OPTIONS))
    assert_infeasible(
        solve(snapshot_of(jobs_of((1, 1), (1, 1), train_nodes=(1, 3)), nodes=(None, 2)), OPTIONS)
    )


def test_caps_that_cannot_hold_the_jobs_are_infeasible() -> None:
    """PRECEDENCE takes (2, 1) or (1, 2) or more."""
    for caps, cost in (
        ((1, 1), None),
        ((2, 1), usd(2, 1)),
        ((1, 2), usd(1, 2)),
        ((1, None), usd(1, 2)),
        ((None, 0), None),
    ):
        result = solve(snapshot_of(PRECEDENCE, caps=caps), OPTIONS)
        if cost is None:
            assert_infeasible(result)
        else:
            assert_optimal(result)
            assert result.usd_per_hour == cost


def test_a_plan_valid_by_the_checkers_tolerance_alone_stands() -> None:
    """States 5e-7 GB above the DRAM pass the checker, not the model: nothing is cheaper."""
    jobs = jobs_of((1, 1), (1, 1), train_state_gb=(10.0000005,) * 2)
    snapshot = snapshot_of(jobs, cluster=cluster_of(host_dram_gb=10.0))
    result = solve(snapshot, OPTIONS)
    assert_optimal(result)
    assert result.usd_per_hour == usd(2, 2)
    assert result.solver is not None
    assert result.solver.status == "infeasible"


def test_a_time_limit_returns_what_is_held_and_the_volume_bound() -> None:
    """Each job alone, and loads: 1 node of each kind."""
    for time_limit_s in (0.0, 1e-9):
        result = solve(snapshot_of(PRECEDENCE), SolveOptions(time_limit_s=time_limit_s))
        assert (result.termination, result.stopped_by) == (
            Termination.FEASIBLE_LIMIT,
            StoppedBy.TIME,
        )
        assert (result.usd_per_hour, result.bound_usd_per_hour) == (usd(3, 3), usd(1, 1))
        assert result.solver is None


def test_a_time_limit_may_pass_while_the_model_is_built() -> None:
    """The clock gains a second each time it is read."""
    ticks = count()
    options = SolveOptions(time_limit_s=20.0, clock=lambda: float(next(ticks)))
    snapshot = Snapshot(table=generate.production(n_jobs=12, seed=0))
    result = solve(snapshot, options)
    assert result.stopped_by is StoppedBy.TIME
    assert result.counts["solves"] == 0
    assert result.seconds["build"] > 0


@pytest.mark.parametrize("time_limit_s", [0.0, 0.01])
def test_a_time_limit_returns_the_warm_start(time_limit_s: float) -> None:
    best = solve(snapshot_of(PRECEDENCE), OPTIONS)
    options = SolveOptions(time_limit_s=time_limit_s, warm_start=best.plan)
    result = solve(snapshot_of(PRECEDENCE), options)
    assert result.usd_per_hour == usd(2, 1)
    assert result.bound_usd_per_hour is not None
    assert result.bound_usd_per_hour <= result.usd_per_hour


def test_without_a_plan_a_limit_holds_none() -> None:
    """Jobs alone break the cap of two train nodes, and nothing was searched."""
    result = solve(snapshot_of(PRECEDENCE, caps=(None, 2)), SolveOptions(time_limit_s=0.0))
    assert (result.termination, result.plan) == (Termination.NO_PLAN_LIMIT, None)
    assert (result.usd_per_hour, result.bound_usd_per_hour) == (None, usd(1, 1))


def test_a_limit_of_work_repeats_exactly() -> None:
    """18 jobs take some 0.3 units of deterministic time; the plan held by then is kept."""
    snapshot = Snapshot(table=generate.production(n_jobs=18, seed=0))
    first, second = (solve(snapshot, SolveOptions(work_limit=0.2)) for _ in range(2))
    assert (first.termination, first.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.WORK)
    assert first.plan is not None
    assert first.ratio is not None
    assert first.ratio > 1
    assert plan_to_dict(first.plan) == plan_to_dict(second.plan)
    assert first.bound_usd_per_hour == second.bound_usd_per_hour
    alone = usd_of(snapshot, [solo_group(snapshot, j) for j in range(18)])
    assert first.usd_per_hour is not None
    assert first.usd_per_hour < alone


def test_a_warm_start_is_never_made_worse() -> None:
    """Two groups, (2, 1) and a job alone, against the optimum (2, 1) for all."""
    snapshot = snapshot_of(PRECEDENCE)
    best = solve(snapshot, OPTIONS).plan
    assert best is not None
    (group,) = groups_of(snapshot, best)
    apart = [group.without([2]), solo_group(snapshot, 2)]
    plan = plan_of(snapshot, [each for each in apart if each is not None], "by hand")
    assert plan.usd_total > best.usd_total
    for warm_start in (plan, best):
        assert optimum(snapshot, SolveOptions(warm_start=warm_start)) == usd(2, 1)


def test_a_warm_start_of_other_jobs_is_refused() -> None:
    other = solve(snapshot_of(jobs_of((1,), (1,))), OPTIONS).plan
    with pytest.raises(InputError, match="The warm start is not a valid plan"):
        solve(snapshot_of(PRECEDENCE), SolveOptions(warm_start=other))


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    options = SolveOptions(grid_s=4.0, progress=lambda *step: told.append(step))
    solve(snapshot_of(PRECEDENCE), options)
    assert told[:2] == [("time grids", 0, 11), ("time grids", 1, 11)]


# --- Ctrl-C and standard output -------------------------------------------------------------------


def test_ctrl_c_outside_the_solver_returns_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cpsat, "build", interrupted)
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert (result.termination, result.stopped_by) == (
        Termination.FEASIBLE_LIMIT,
        StoppedBy.INTERRUPT,
    )
    assert result.usd_per_hour == usd(3, 3)


CHILD = """
import json, os, signal, sys, threading
from instances import generate
from models.exact.cpsat import solve
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot

n_jobs, interrupt = int(sys.argv[1]), sys.argv[2] == "interrupt"
snapshot = Snapshot(table=generate.production(n_jobs=n_jobs, seed=0))
if interrupt:
    threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
result = solve(snapshot, SolveOptions())
print(json.dumps([result.termination, result.stopped_by, result.plan is not None]))
"""


def child(n_jobs: int, word: str) -> Any:
    """Solve in a fresh Python whose standard output has to be one document."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(n_jobs), word],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_nothing_else_is_printed() -> None:
    assert child(6, "-") == ["optimal", None, True]


@pytest.mark.skipif(os.name != "posix" or not hasattr(signal, "SIGINT"), reason="POSIX signals")
def test_ctrl_c_returns_the_plan_held() -> None:
    """60 jobs are beyond this method."""
    assert child(60, "interrupt") == ["feasible-limit", "interrupt", True]
