"""The compact MILP: known optima, symmetry, exact timing, limits, and the written model.

What each family of constraints is worth is in ``test_minimal_pairs``, agreement with the other
methods in ``test_methods_agree``.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import highspy
import pyomo.environ as pyo
import pytest

from builders import PAIR_USD, ROLLOUT_USD, cluster_of
from instances.checker import check_plan
from instances.errors import InputError, UnsupportedError
from instances.generate import production, tiny_gang, tiny_open_shop, tiny_sync_gap
from models.backends import pyomo_highs
from models.backends.pyomo_highs import Ended, options_of
from models.exact import milp, milp_parameters
from models.exact.milp import MOST_JOBS, OMISSIBLE, build, seek_cheaper, solve, write
from models.exact.milp_parameters import Parameters
from models.exact.milp_solution import AttainableCosts, choices, refute, timed
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination
from models.problem.snapshot import Snapshot, plan_of
from small_snapshots import (
    MIXES,
    PRECEDENCE,
    gangs_that_all_meet,
    jobs_of,
    oracle_of,
    random_snapshot,
    snapshot_of,
)

OPTIONS = SolveOptions()
Fleet = tuple[int, int]


def fleet_of(result: Result) -> Fleet:
    assert result.plan is not None
    groups = result.plan.groups
    return sum(len(g.rollout_nodes) for g in groups), sum(len(g.train_nodes) for g in groups)


def solved(model: Any) -> pyomo_highs.Solved:
    return pyomo_highs.solve(model, options_of(), OPTIONS.start())


def optimum(snapshot: Snapshot, without: Sequence[str] = ()) -> float:
    found = solved(build(snapshot, without=without))
    assert found.ended is Ended.OPTIMAL
    assert found.objective is not None
    return found.objective


# --- known optima -----------------------------------------------------------------------------

#: A job that fills both pools half: r = t = 1, T = 2, deadline 4.
HALF = jobs_of((1,) * 4, (1,) * 4, deadline_s=4)
FULL = {"rollout_state_gb": (1000.0, 1000.0), "train_state_gb": (700.1, 1299.9)}

KNOWN = {
    # loads 1.0 and 1.0 of both phases within D = 10; two-machine open shop reaches loads
    "open shop": (Snapshot(table=tiny_open_shop()), (1, 1)),
    # loads admit (1, 1), no schedule of 11 exists; FORMULATION section 4
    "precedence": (Snapshot(table=tiny_sync_gap()), (2, 1)),
    # rollouts pairwise meet on three nodes and take 34 s, the deadline
    "gangs that all meet": (Snapshot(table=tiny_gang()), (3, 1)),
    # 1000 + 1000 and 700.1 + 1299.9 GB on nodes of 2000 GB
    "DRAM exactly full": (snapshot_of(jobs_of((1, 1), (1, 1), deadline_s=4, **FULL)), (1, 1)),
    # each job's iteration is the period, 10 s, and so is each pool's load
    "slo exactly 1": (snapshot_of(jobs_of((6, 4), (4, 6))), (1, 1)),
    # the same with numbers that are no binary fractions: 0.7 + 0.3 + 0.1 and 0.3 + 0.1 + 0.7
    "slo exactly 1, decimals": (snapshot_of(jobs_of((0.7, 0.3), (0.3, 0.1), (0.1, 0.7))), (1, 1)),
    # four jobs alike fill one node of each kind: 4 x 1 s within 4 s
    "ties": (snapshot_of(HALF), (1, 1)),
    # at most two, or one, to a group: a pair of nodes per group
    "group limit 2": (snapshot_of(HALF, size=2), (2, 2)),
    "group limit 1": (snapshot_of(HALF, size=1), (4, 4)),
    # rollouts of 6 s within 10 s take a node each; with two to a group, the third is apart
    "node limit": (
        snapshot_of(jobs_of((6,) * 3, (2,) * 3, deadline_s=10), nodes=(2, None)),
        (3, 2),
    ),
    # the front is (2, 1) and (1, 2); the cap leaves the dearer one
    "fleet cap": (snapshot_of(PRECEDENCE, caps=(1, None)), (1, 2)),
    # free rollout nodes: as few train nodes as precedence allows
    "a free pool": (snapshot_of(PRECEDENCE, cluster=cluster_of(rollout_usd=0.0)), (None, 1)),
    "one job": (snapshot_of(jobs_of((3,), (2,), rollout_nodes=(3,), train_nodes=(2,))), (3, 2)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_optimum(name: str) -> None:
    snapshot, (rollout, train) = KNOWN[name]
    result = solve(snapshot, OPTIONS)
    assert (result.termination, result.stopped_by, result.method) == ("optimal", None, "milp")
    found = fleet_of(result)
    assert found == ((found[0] if rollout is None else rollout), train)
    assert result.plan is not None
    assert check_plan(result.plan).ok
    usd = snapshot.usd_per_hour(*found)
    assert result.usd_per_hour == result.bound_usd_per_hour == pytest.approx(usd)
    assert result.ratio == 1


ALONE = jobs_of((1,), (1,), rollout_nodes=(2,), rollout_state_gb=(1500.0,))
INFEASIBLE = {
    "DRAM": snapshot_of(ALONE, cluster=cluster_of(host_dram_gb=1499.0)),
    "node limit": snapshot_of(ALONE, nodes=(1, None)),
    "fleet cap": snapshot_of(PRECEDENCE, caps=(1, 1)),
    "no nodes at all": snapshot_of(PRECEDENCE, caps=(0, None)),
}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible_yields_no_numbers(name: str) -> None:
    result = solve(INFEASIBLE[name], OPTIONS)
    assert result.termination is Termination.INFEASIBLE
    assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None, None, None)


def test_no_jobs_cost_nothing() -> None:
    result = solve(Snapshot.of([]), OPTIONS)
    assert (result.termination, result.usd_per_hour, fleet_of(result)) == ("optimal", 0, (0, 0))


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    for mix in MIXES.values():
        snapshot = random_snapshot(rng, rng.randint(2, 4), mix, limited=True, capped=seed % 2 == 0)
        result = solve(snapshot, OPTIONS)
        least = oracle_of(snapshot).usd_per_hour
        assert result.usd_per_hour == (None if least is None else pytest.approx(least)), snapshot
        assert result.termination == ("infeasible" if least is None else "optimal")


#: Phases, slo, sync; nodes; states; switches of each pool. HiGHS was wrong about each of them.
_COLUMNS = (
    *("rollout_s", "train_s", "slo", "sync_s", "rollout_nodes", "train_nodes"),
    *("rollout_state_gb", "train_state_gb", "rollout_switch_s", "train_switch_s"),
)
CALLED_INFEASIBLE_BY_PRESOLVE = (
    (20, 3, 1.5, 3, 1, 2, 0, 0, 0.5, 0),
    (4, 12, 1.5, 1, 3, 1, 400, 1000, 0, 0.5),
    (10, 7, 1.0, 1, 1, 1, 400, 400, 0.5, 1),
    (8, 7, 1.5, 0, 1, 1, 1000, 1000, 0, 1),
)
TOO_TIGHT_AT_1E_9 = (
    (5, 16, 1.5, 1, 1, 1, 1000, 400, 0.5, 1),
    (4, 4, 4.0, 0, 1, 1, 400, 0, 0.5, 0.5),
    (19, 12, 1.2, 0, 1, 1, 400, 400, 0.5, 1),
    (10, 13, 2.0, 0, 1, 1, 400, 1000, 0.5, 0.5),
    (14, 5, 2.0, 0, 2, 2, 1000, 400, 0.5, 0.5),
)


@pytest.mark.parametrize(
    ("rows", "rollout_usd", "dram_gb"),
    [(CALLED_INFEASIBLE_BY_PRESOLVE, 40.0, 2000.0), (TOO_TIGHT_AT_1E_9, ROLLOUT_USD, 3000.0)],
)
def test_snapshots_that_highs_was_wrong_about(
    rows: Sequence[Sequence[float]], rollout_usd: float, dram_gb: float
) -> None:
    """An earlier form of the model, with MIP presolve, or at 1e-9, when held to some price."""
    columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
    cluster = cluster_of(rollout_usd=rollout_usd, host_dram_gb=dram_gb)
    snapshot = snapshot_of(jobs_of(**columns), cluster=cluster)  # type: ignore[arg-type]
    least = oracle_of(snapshot).usd_per_hour
    assert least is not None
    costs = AttainableCosts(snapshot).usd
    first = bisect(costs, least - 1e-6)
    for usd in costs[first - 1 : first + 3]:
        model = build(snapshot)
        seek_cheaper(model, usd)
        objective = solved(model).objective
        assert objective == (None if usd < least - 1e-6 else pytest.approx(least))


# --- symmetry ---------------------------------------------------------------------------------

SYMMETRY = ("first_appearance", "connected", "anchor", "alike")


def of_two_kinds(rng: random.Random) -> Snapshot:
    """Five jobs of two kinds, mixed, so that exchanging jobs meets all other rules."""
    kinds = [
        jobs_of(
            *((rng.randint(1, 6),), (rng.randint(1, 6),), (rng.choice((0, 1)),)),
            slo=(rng.choice((1.5, 2.0, 3.0)),),
            rollout_nodes=(rng.choice((1, 2)),),
            rollout_switch_s=(rng.choice((0, 0.5)),),
            train_state_gb=(rng.choice((0, 1000.0)),),
        )[0]
        for _ in range(2)
    ]
    jobs = [replace(rng.choice(kinds), job_id=f"j{j}") for j in range(5)]
    return snapshot_of(jobs, size=rng.choice((0, 2, 3)))


@pytest.mark.parametrize("seed", range(4))
def test_breaking_symmetry_costs_nothing(seed: int) -> None:
    snapshot = of_two_kinds(random.Random(seed))
    assert optimum(snapshot) == pytest.approx(optimum(snapshot, SYMMETRY))


def test_jobs_alike_are_those_that_differ_in_name_and_stay_only() -> None:
    a, b = jobs_of((1, 2), (2, 1), deadline_s=6)
    jobs = [a, b, replace(a, job_id="x", duration_s=9.0), replace(b, job_id="y"), a]
    jobs[4] = replace(a, job_id="z", train_state_gb=1.0)
    assert Parameters(snapshot_of(jobs)).alike == [(0, 2), (1, 3)]


def test_the_leader_has_the_least_deadline_and_followers_fit_its_turn() -> None:
    """Deadlines 9, 8, 9: job 1 leads job 0 (T = 8); job 2 (T = 9) fits no turn but 9 s ones."""
    jobs = jobs_of((4, 4, 5), (4, 4, 4), slo=(9 / 8, 1.0, 1.0))
    d = Parameters(snapshot_of(jobs))
    assert d.members == {1: (1, 0), 0: (0, 2), 2: (2,)}
    assert d.leaders == {0: [1, 0], 1: [1], 2: [0, 2]}


def test_reach_counts_the_widest_jobs_that_fit_in_between() -> None:
    """Widths 1, 3, 2, 2 in order of rank. With three jobs to a group the last one reaches
    1 + 2 and the widest of the two between, 3."""
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=4, rollout_nodes=(1, 3, 2, 2))
    d = Parameters(snapshot_of(jobs, size=3))
    assert [d.reach["R", j, 0] for j in range(4)] == [1, 4, 1 + 2 + 3, 1 + 2 + 3]
    assert [Parameters(snapshot_of(jobs, size=2)).reach["R", j, 0] for j in (1, 3)] == [4, 3]
    assert Parameters(snapshot_of(jobs, nodes=(2, None))).reach["R", 3, 0] == 2


# --- exact timing -----------------------------------------------------------------------------


def test_what_only_the_longer_turn_admits_is_refuted() -> None:
    """The three need 11.5 s; their deadline is less by half of the slack of a turn."""
    jobs = jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=11.5 * (1 - 5e-8))
    result = solve(snapshot_of(jobs), OPTIONS)
    assert result.counts["refuted"] > 0
    assert (result.termination, fleet_of(result)) == ("optimal", (2, 1))


def test_a_node_overfull_by_less_than_the_slack_is_refuted() -> None:
    """2000.00005 GB of rollout state on 2000 GB: trains share a node, rollouts do not."""
    jobs = jobs_of((1, 1), (1, 1), deadline_s=4, rollout_state_gb=(1000.0, 1000.00005))
    result = solve(snapshot_of(jobs), OPTIONS)
    assert result.counts["refuted"] > 0
    assert (result.termination, fleet_of(result)) == ("optimal", (2, 1))


def test_any_slack_gives_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of 11.55 s where deadlines are 11 s: the group of 11.5 s is found, and refuted."""
    monkeypatch.setattr(milp_parameters, "SLACK", 0.05)
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert result.counts["refuted"] > 0
    assert (result.termination, fleet_of(result)) == ("optimal", (2, 1))


def test_it_gives_up_when_too_many_solutions_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp_parameters, "SLACK", 0.05)
    monkeypatch.setattr("models.exact.milp_solution._MOST_REFUTED", 0)
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert (result.termination, fleet_of(result)) == (Termination.ERROR, (3, 3))
    assert result.bound_usd_per_hour == pytest.approx(PAIR_USD)


def test_a_refuted_choice_does_not_come_back() -> None:
    """Two jobs on one pair of nodes: the optimum stays, by another order or lap."""
    model = build(snapshot_of(HALF[:2]))
    seen = set()
    for _ in range(4):
        assert solved(model).objective == pytest.approx(PAIR_USD)
        (choice,) = choices(model)
        seen.add((choice.rollout_pins, choice.train_pins, choice.order))
        refute(model, choice)
    assert len(seen) == 4


def test_orders_that_contradict_each_other_are_not_trusted() -> None:
    """Job 1 rolls out before job 0, and trains a whole turn after it: no period does that."""
    snapshot = snapshot_of(HALF[:2])
    model = build(snapshot)
    solved(model)
    (choice,) = choices(model)
    order = replace(
        choice.order,
        rollout=(((1, 0), (0, 0)),),
        train=(((0, 0), (1, 0)),),
        laps=(((0, 0),), ((0, 1),)),
    )
    group = timed(snapshot, replace(choice, order=order))
    assert group is not None
    plan_of(snapshot, [group], "by construction")


def test_values_that_are_not_whole_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = pyomo_highs.solve

    def spoiled(model: Any, *more: Any) -> Any:
        found = run(model, *more)
        model.x[0, 0].value = 0.9
        return found

    monkeypatch.setattr(pyomo_highs, "solve", spoiled)
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert (result.termination, fleet_of(result)) == (Termination.ERROR, (3, 3))


# --- limits and what is held ------------------------------------------------------------------


def late() -> Any:
    """A clock on which every look takes a second."""
    return itertools.count(0.0, 1.0).__next__


def test_no_time_returns_every_job_alone_and_no_bound() -> None:
    result = solve(snapshot_of(PRECEDENCE), SolveOptions(time_limit_s=0.01, clock=late()))
    assert (result.termination, result.stopped_by) == ("feasible-limit", StoppedBy.TIME)
    assert (fleet_of(result), result.bound_usd_per_hour, result.ratio) == ((3, 3), None, None)


def test_a_hundredth_of_a_second_returns_a_plan() -> None:
    """However far it gets: the plan is valid and a bound, if any, is below it."""
    table = production(n_jobs=10, seed=0)
    result = solve(Snapshot(table=table), SolveOptions(time_limit_s=0.01))
    assert result.plan is not None
    assert result.ratio is None or result.ratio >= 1


def test_no_time_and_no_plan_to_begin_with() -> None:
    options = SolveOptions(time_limit_s=0.01, clock=late())
    result = solve(snapshot_of(PRECEDENCE, caps=(1, None)), options)
    assert (result.termination, result.plan) == (Termination.NO_PLAN_LIMIT, None)


def test_the_warm_start_is_held_and_proved() -> None:
    snapshot = snapshot_of(PRECEDENCE)
    best = solve(snapshot, OPTIONS).plan
    stopped = solve(snapshot, SolveOptions(warm_start=best, time_limit_s=0.01, clock=late()))
    assert (stopped.termination, fleet_of(stopped)) == ("feasible-limit", (2, 1))
    proved = solve(snapshot, SolveOptions(warm_start=best))
    assert (proved.termination, fleet_of(proved)) == ("optimal", (2, 1))
    assert proved.solver is not None
    assert proved.solver.status == "Infeasible"  # nothing cheaper exists


def test_a_node_limit_leaves_a_bound_and_a_plan() -> None:
    """A second short of what three nodes take: 4 and 1 nodes are found, 3 and 1 not ruled out."""
    result = solve(snapshot_of(gangs_that_all_meet(33)), SolveOptions(node_limit=2))
    assert (result.termination, result.stopped_by) == ("feasible-limit", StoppedBy.NODES)
    assert result.counts["nodes"] == 2
    assert result.ratio is not None
    assert result.ratio > 1


def test_ctrl_c_while_the_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(milp, "build", interrupted)
    result = solve(snapshot_of(PRECEDENCE), OPTIONS)
    assert (result.termination, result.stopped_by) == ("feasible-limit", StoppedBy.INTERRUPT)
    assert fleet_of(result) == (3, 3)


def test_ctrl_c_while_highs_runs() -> None:
    """In a process of its own; 30 jobs take far longer than half a second."""
    code = """
import os, signal, threading
from instances.generate import production
from models.backends import pyomo_highs
from models.exact.milp import solve
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
run = pyomo_highs.solve
def interrupted(*arguments):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return run(*arguments)
pyomo_highs.solve = interrupted
snapshot = Snapshot(table=production(n_jobs=30, seed=0))
result = solve(snapshot, SolveOptions(time_limit_s=100.0))
print(result.termination, result.stopped_by, result.plan is not None, result.solver.status)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("feasible-limit interrupt True Interrupted by user\n", "")


def test_nothing_is_solved_where_nothing_can_be_cheaper() -> None:
    result = solve(snapshot_of(HALF[:1]), OPTIONS)
    assert (result.termination, result.solver) == ("optimal", None)


def test_the_same_seed_gives_the_same_plan() -> None:
    snapshot = Snapshot(table=production(n_jobs=6, seed=3))
    plans = [solve(snapshot, SolveOptions(seed=5)).plan for _ in range(2)]
    assert plans[0] is not None
    assert plans[0].groups == plans[1].groups  # type: ignore[union-attr]


def test_attainable_costs() -> None:
    """One to three nodes of each pool, at $14.80 and $42.24."""
    costs = AttainableCosts(snapshot_of(PRECEDENCE))
    one, more = PAIR_USD, PAIR_USD + ROLLOUT_USD
    assert costs.usd[:2] == pytest.approx([one, more])
    assert costs.usd[-1] == pytest.approx(3 * PAIR_USD)
    assert costs.raised(0) == costs.raised(one) == costs.raised(one + 1e-9) == costs.usd[0]
    assert costs.raised(one + 1e-3) == costs.usd[1]
    assert costs.raised(1000.0) == 1000.0  # no plan: nothing to raise it to
    assert costs.below(one) is costs.below(one + 1e-9) is None
    assert costs.below(more) == costs.usd[0]


# --- the model and its file -------------------------------------------------------------------


def test_every_variable_is_bounded() -> None:
    """So that 'infeasible or unbounded' can only mean infeasible."""
    model = build(Snapshot(table=production(n_jobs=5, seed=1, gangs=True)))
    for variable in model.component_data_objects(pyo.Var):
        assert variable.lb == 0
        assert 0 < variable.ub <= 1


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match=r"got 'precedense'\. Did you mean 'precedence'\?"):
        build(snapshot_of(HALF), without=("precedense",))


def test_every_omissible_family_exists() -> None:
    for name in OMISSIBLE:
        assert name in milp_parameters.RELAXATIONS or callable(getattr(milp, name))


def test_too_large_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = production(n_jobs=MOST_JOBS + 1, seed=0)
    with pytest.raises(UnsupportedError, match=r"at most 60 jobs .* got 61: use method set-part"):
        solve(Snapshot(table=table), OPTIONS)
    monkeypatch.setattr(milp, "_MOST_SHARING_ROWS", 3)
    with pytest.raises(UnsupportedError, match="at most 3 rows of sharing"):
        build(snapshot_of(HALF))


@pytest.mark.parametrize("fmt", ["mps", "lp"])
@pytest.mark.parametrize("jobs", [PRECEDENCE, gangs_that_all_meet(34), HALF], ids=len)
def test_the_written_model_has_the_same_optimum(fmt: Any, jobs: Any, tmp_path: Path) -> None:
    """Read and solved by HiGHS alone, at its own tolerances."""
    snapshot = snapshot_of(jobs)
    path = tmp_path / f"model.{fmt}"
    write(snapshot, path, fmt)
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    assert highs.getObjectiveValue() == pytest.approx(solve(snapshot, OPTIONS).usd_per_hour)


@pytest.mark.parametrize("fmt", ["mps", "lp"])
def test_names_are_readable_and_numbers_exact(
    fmt: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [replace(job, job_id=f"j\u00f6b\n{j}") for j, job in enumerate(PRECEDENCE)]
    path = tmp_path / "model"
    write(snapshot_of(jobs), path, fmt)
    text = path.read_text(encoding="ascii")
    head = ("*" if fmt == "mps" else "\\") + r" job 2 is 'j\xf6b\n2'"
    assert text.splitlines()[2] == head
    for name in ("x(2_0)", "z(R_2_0_1)", "before(T_1_0)", "train_after_rollout(1)", "cost"):
        assert name in text
    turns = Parameters(snapshot_of(jobs)).turns(6.0, 0)  # of the third train
    assert turns in {float(word) for word in text.split() if re.fullmatch(r"\+?0\.\d+", word)}
    assert not caplog.records


def test_the_same_snapshot_gives_the_same_bytes(tmp_path: Path) -> None:
    """In processes with different hash seeds."""
    code = """
from pathlib import Path
from instances.generate import production
from models.exact.milp import write
from models.problem.snapshot import Snapshot
for fmt in ("mps", "lp"):
    write(Snapshot(table=production(n_jobs=5, gangs=True)), Path(NAME + fmt), fmt)
"""
    for seed in "12":
        subprocess.run(
            [sys.executable, "-c", code.replace("NAME", repr(seed))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=tmp_path,
            check=True,
            timeout=120,
        )
    for fmt in ("mps", "lp"):
        assert (tmp_path / f"1{fmt}").read_bytes() == (tmp_path / f"2{fmt}").read_bytes()


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected format mps or lp, got 'gms'"):
        write(snapshot_of(HALF), tmp_path / "m", "gms")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one job"):
        write(Snapshot.of([]), tmp_path / "m", "lp")
