"""Set partitioning: against exhaustive search, refuted groups, limits, Ctrl-C, what it holds."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of
from clocks import Ticking
from command_line import environment
from instances.checker import check_plan
from instances.errors import InputError, UnsupportedError
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import Limits, Plan
from instances.plan_file import read_plan
from instances.trace import write_trace
from models.backends.highs_model import VERSION, Ended, HighsModel
from models.bounds.covering_lp import Relaxation
from models.exact import exhaustive, set_partition
from models.exact.maximal_sets import MaximalSets
from models.exact.set_partition import METHOD, solve
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination
from models.problem.snapshot import Snapshot, plan_of, solo_group
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    five_gangs,
    full_jobs,
    gangs_that_all_meet,
    jobs_of,
    random_jobs,
    random_snapshot,
    snapshot_of,
)

OPTIONS = SolveOptions()
SINGLE = [mix for mix in MIXES.values() if not mix.gangs]
Hook = Callable[[str, int, int], None]


def solo_plan(snapshot: Snapshot) -> Plan:
    return plan_of(snapshot, [solo_group(snapshot, i) for i in range(len(snapshot))], "solo")


def assert_optimal(result: Result) -> None:
    """Proved, and the plan held is valid, complete and costs what the result says."""
    assert (result.termination, result.stopped_by) == (Termination.OPTIMAL, None)
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.usd_per_hour == result.bound_usd_per_hour == result.plan.usd_total
    assert (result.method, result.plan.policy, result.ratio) == (METHOD, METHOD, 1.0)


def assert_as_exhaustive(snapshot: Snapshot) -> Result:
    """Return the result; the same cost as exhaustive search finds, or infeasible as there."""
    expected, result = exhaustive.solve(snapshot, OPTIONS), solve(snapshot, OPTIONS)
    assert result.termination is expected.termination, snapshot
    if expected.usd_per_hour is None:
        assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None,) * 3
    else:
        assert_optimal(result)
        assert result.usd_per_hour == pytest.approx(expected.usd_per_hour, rel=1e-9), snapshot
    return result


def members_of(result: Result) -> list[list[str]]:
    assert result.plan is not None
    return [[p.job_id for p in group.placements] for group in result.plan.groups]


def nodes_of(result: Result) -> tuple[int, int]:
    assert result.plan is not None
    groups = result.plan.groups
    return sum(len(g.rollout_nodes) for g in groups), sum(len(g.train_nodes) for g in groups)


# --- against exhaustive search ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [8, 13])
def test_production_snapshots_cost_what_exhaustive_search_finds(n: int, seed: int) -> None:
    result = assert_as_exhaustive(Snapshot(table=production(n_jobs=n, seed=seed), limits=Limits()))
    assert len(members_of(result)) < n
    assert result.solver is not None
    assert (result.solver.name, result.solver.version) == ("HiGHS", VERSION)
    assert result.counts["groups"] >= n
    assert set(result.seconds) == {"enumeration", "solve", "decisions"}


@pytest.mark.parametrize("gangs", [False, True])
def test_sixteen_production_jobs_in_other_groups(gangs: bool) -> None:
    """One node of each kind to a group and any number of jobs; and gangs in groups of three."""
    table = production(n_jobs=16 if not gangs else 10, seed=1, gangs=gangs)
    limits = (
        Limits(max_group_size=3)
        if gangs
        else Limits(max_group_size=0, max_rollout_nodes=1, max_train_nodes=1)
    )
    result = assert_as_exhaustive(Snapshot(table=table, limits=limits))
    assert len(members_of(result)) < len(table)


def random_cases(seed: int, count: int, limits: bool) -> list[Snapshot]:
    """Every mix by turns: groups of 0 (no limit) to 5 jobs, caps in one of three."""
    rng = random.Random(seed)
    out = []
    for i in range(count):
        mix = list(MIXES.values())[i % len(MIXES)]
        free = random_snapshot(rng, rng.randint(3, 6), mix, limited=limits, capped=i % 3 == 0)
        size = i % 6
        out.append(replace(free, limits=replace(free.limits, max_group_size=size)))
    return out


@pytest.mark.parametrize("limits", [False, True])
def test_random_snapshots_cost_what_exhaustive_search_finds(limits: bool) -> None:
    """Gangs, switches, sync, states; with limits of a group, or without. Counted, so that the cases
    are not all of one kind."""
    seen: Counter[str] = Counter()
    for snapshot in random_cases(1 + limits, 90, limits):
        result = assert_as_exhaustive(snapshot)
        seen["infeasible"] += result.plan is None
        seen["capped"] += snapshot.caps.any and result.plan is not None
        seen["gangs"] += any(job.rollout_nodes + job.train_nodes > 2 for job in snapshot.jobs)
        if result.plan is not None:
            seen["shared"] += len(members_of(result)) < len(snapshot)
            seen["states"] += any(job.train_state_gb > 1000 for job in snapshot.jobs)
            seen["as large as allowed"] += snapshot.limits.max_group_size > 1 and any(
                len(group) == snapshot.limits.max_group_size for group in members_of(result)
            )
    least = {"infeasible": 3, "capped": 10, "gangs": 15, "shared": 40, "states": 8}
    assert {name for name, number in least.items() if seen[name] < number} == set(), seen
    assert seen["as large as allowed"] >= 10


def test_one_node_of_each_kind_and_any_number_of_jobs() -> None:
    """The maximal sets; under fleet caps too, and at every size of a group beyond the tabulated."""
    rng = random.Random(3)
    large = infeasible = 0
    for i in range(60):
        jobs = random_jobs(rng, 7, SINGLE[i % len(SINGLE)], together=True)
        looser = rng.choice((1, 1, 4))
        jobs = [replace(job, slo=job.slo * looser) for job in jobs]
        caps = rng.choice(((None, None), (None, None), (4, None), (None, 2), (2, 2)))
        snapshot = snapshot_of(jobs, size=rng.choice((0, 6, 7)), nodes=(1, 1), caps=caps)
        result = assert_as_exhaustive(snapshot)
        infeasible += result.plan is None
        if result.plan is not None:
            large += any(len(group) > 5 for group in members_of(result))
    assert large >= 5
    assert infeasible >= 3


@pytest.mark.parametrize("prices", [(0.0, 42.24), (14.8, 0.0), (0.0, 0.0), (8.0, 8.0), (40.0, 8.0)])
def test_other_prices_and_free_pools(prices: tuple[float, float]) -> None:
    """Where all is free every plan costs the least, nothing, and that is proved."""
    cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
    for snapshot in random_cases(4, 24, limits=False):
        result = assert_as_exhaustive(replace(snapshot, cluster=cluster))
        if prices == (0.0, 0.0) and result.plan is not None:
            assert result.usd_per_hour == result.bound_usd_per_hour == 0.0


def test_no_jobs_cost_nothing() -> None:
    for size, nodes in ((5, (None, None)), (0, (None, None)), (0, (1, 1))):
        result = solve(snapshot_of([], size=size, nodes=nodes), OPTIONS)
        assert_optimal(result)
        assert result.usd_per_hour == 0.0


@pytest.mark.parametrize("size", [0, 2, 5])
def test_a_job_that_fits_no_node_is_infeasible(size: int) -> None:
    jobs = jobs_of((1, 1), (1, 1), deadline_s=8, train_state_gb=(0, 2001))
    for nodes in ((None, None), (1, 1)):
        result = solve(snapshot_of(jobs, size=size, nodes=nodes), OPTIONS)
        assert result.termination is Termination.INFEASIBLE
        assert (result.plan, result.bound_usd_per_hour, result.ratio) == (None, None, None)


# --- what precedence refutes --------------------------------------------------------------------

#: Between loads and schedules: with a limit of five jobs, sets are chosen by loads alone.
FIVE = 5


def test_the_precedence_group_is_chosen_by_loads_and_refuted() -> None:
    """All three on one node of each kind would be $57.04 an hour; no such schedule exists, and two
    rollout nodes and one train node cost $71.84."""
    result = solve(snapshot_of(PRECEDENCE, size=FIVE), OPTIONS)
    assert_optimal(result)
    assert result.usd_per_hour == pytest.approx(2 * ROLLOUT_USD + TRAIN_USD)
    assert result.counts["refuted"] == 1
    assert result.counts["decided_cpsat_infeasible"] == 1


@pytest.mark.parametrize("size", [FIVE, 0])
def test_where_groups_have_one_node_of_each_kind_the_refuted_is_split(size: int) -> None:
    """Two of the three share a pair of nodes, one has its own: $114.08."""
    result = solve(snapshot_of(PRECEDENCE, size=size, nodes=(1, 1)), OPTIONS)
    assert_optimal(result)
    assert result.usd_per_hour == pytest.approx(2 * PAIR_USD)
    assert result.counts["refuted"] == 1


@pytest.mark.parametrize("caps", [(1, 1), (2, 1), (1, 2), (1, None), (None, 1)])
def test_under_caps_another_pair_of_the_front_takes_its_place(
    caps: tuple[int | None, int | None],
) -> None:
    """Its front is (1, 2), (2, 1); one of each kind in the whole fleet holds no plan."""
    result = assert_as_exhaustive(snapshot_of(PRECEDENCE, size=FIVE, caps=caps))
    assert result.counts["refuted"] >= 1
    assert (result.plan is None) == (caps == (1, 1))


def test_many_groups_that_loads_admit_are_refuted() -> None:
    """Jobs that fill nodes to the last second, iterations as long as the deadline; the answer is
    still that of exhaustive search, whatever is refuted, and how often."""
    rng = random.Random(5)
    refuted = again = one_pair = 0
    for i in range(60):
        jobs = full_jobs(rng, 3 + i % 3, (1, 1) if i % 3 < 2 else (2, 1), slack_s=0)
        more = random_jobs(rng, 2, MIXES["sync"], together=True)
        jobs += [replace(job, job_id=f"k{j}") for j, job in enumerate(more)]
        nodes = (1, 1) if i % 2 else (None, None)
        snapshot = snapshot_of(jobs, size=rng.choice((3, 4, 5)) if i % 4 < 3 else 0, nodes=nodes)
        result = assert_as_exhaustive(snapshot)
        count = result.counts.get("refuted", 0)
        refuted += count > 0
        again += count > 1
        one_pair += count > 0 and snapshot.limits.max_group_size == 0
    assert refuted >= 12
    assert again >= 3
    assert one_pair >= 2


def test_the_groups_of_the_design() -> None:
    """By hand, all decided beforehand: the front of five, the 34 s of gangs that all meet, and the
    5-cycle (FORMULATION section 4)."""
    five = assert_as_exhaustive(snapshot_of(FIVE_FRONT))
    assert nodes_of(five) == (3, 2)
    for deadline_s, nodes in ((34, (3, 1)), (33, (4, 1))):
        result = assert_as_exhaustive(snapshot_of(gangs_that_all_meet(deadline_s)))
        assert nodes_of(result) == nodes
    for deadline_s, fits in ((2.5, True), (2.375, False)):
        result = assert_as_exhaustive(snapshot_of(five_gangs(deadline_s), nodes=(5, None)))
        assert (len(members_of(result)) == 1) is fits


def test_a_group_decided_beforehand_is_never_refuted() -> None:
    options = SolveOptions()
    snapshot = snapshot_of(PRECEDENCE)
    cost = set_partition.GroupCost(snapshot)
    decided = set_partition._Decided(cost, options, options.start())
    with pytest.raises(AssertionError, match="decided beforehand was refuted"):
        decided.refute((0, 1, 2), (1, 1))


def test_a_job_covered_twice_leaves_all_but_one_of_its_groups() -> None:
    """Maximal pairs (0, 1), (1, 2), (0, 2) of three jobs: two pairs cover, one job twice."""
    jobs = jobs_of((1,) * 3, (1,) * 3, deadline_s=6, train_state_gb=(1000,) * 3)
    result = assert_as_exhaustive(snapshot_of(jobs, nodes=(1, 1)))
    assert sorted(map(len, members_of(result))) == [1, 2]


# --- limits and what is held --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "nodes"), [(5, (None, None)), (5, (1, 1)), (0, (1, 1)), (4, (2, 2))]
)
def test_a_hundredth_of_a_second_holds_the_warm_start(size: int, nodes: Any) -> None:
    """With its bound, or without one when it was too early for any."""
    table = production(n_jobs=30, seed=1)
    limits = Limits(max_group_size=size, max_rollout_nodes=nodes[0], max_train_nodes=nodes[1])
    snapshot = Snapshot(table=table, limits=limits)
    warm = solo_plan(snapshot)
    result = solve(snapshot, SolveOptions(time_limit_s=0.01, warm_start=warm))
    assert result.plan is not None
    assert result.usd_per_hour is not None
    assert result.usd_per_hour <= warm.usd_total
    if result.termination is not Termination.OPTIMAL:  # a fast machine
        assert (result.termination, result.stopped_by) == (
            Termination.FEASIBLE_LIMIT,
            StoppedBy.TIME,
        )
    bound = result.bound_usd_per_hour
    assert bound is None or 0 < bound <= result.usd_per_hour


@pytest.mark.parametrize(
    ("jobs", "size", "nodes"),
    [
        (PRECEDENCE, 5, (None, None)),
        (PRECEDENCE, 0, (1, 1)),
        (FIVE_FRONT, 0, (None, None)),
    ],
)
def test_whenever_the_time_ends_a_plan_and_its_bound_are_held(
    jobs: Sequence[Job], size: int, nodes: Any
) -> None:
    """A clock that counts its calls, so the end comes in enumeration, choice and decisions, before
    and after groups are refuted."""
    snapshot = snapshot_of(jobs, size=size, nodes=nodes)
    least = exhaustive.solve(snapshot, OPTIONS).usd_per_hour
    assert least is not None
    seen: Counter[str] = Counter()
    for ticks in range(1_000):
        clock = Ticking()
        result = solve(snapshot, SolveOptions(clock=clock, time_limit_s=float(ticks)))
        assert result.plan is not None
        assert check_plan(result.plan).ok
        assert result.usd_per_hour is not None
        assert result.usd_per_hour >= least - 1e-9
        bound = result.bound_usd_per_hour
        assert bound is None or bound <= least + 1e-9
        if result.termination is Termination.OPTIMAL and clock.now < ticks:
            assert_optimal(result)
            break
        seen[f"{result.termination}, bound {bound is not None}"] += 1
    assert result.termination is Termination.OPTIMAL
    assert seen["feasible-limit, bound False"] >= 3
    assert seen["feasible-limit, bound True"] >= 1


def test_a_limit_of_nodes_holds_plan_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """No dives and no cuts, so that branch and bound, without a node to spend, is asked at all."""
    monkeypatch.setattr(Relaxation, "dive", lambda *_: None)
    monkeypatch.setattr(Relaxation, "violated", lambda _: np.zeros((0, 3), dtype=np.int64))
    snapshot = Snapshot(table=production(n_jobs=30, seed=1), limits=Limits())
    least = solve(snapshot, OPTIONS).usd_per_hour
    result = solve(snapshot, SolveOptions(node_limit=0))
    assert result.usd_per_hour is not None
    assert result.bound_usd_per_hour is not None
    assert least is not None
    assert result.bound_usd_per_hour <= least + 1e-9 <= result.usd_per_hour + 2e-9
    assert result.stopped_by in (None, StoppedBy.NODES)


def test_never_a_dearer_plan_than_the_warm_start() -> None:
    """The optimum as warm start: nothing cheaper is found, and it is proved and returned."""
    for snapshot in random_cases(6, 18, limits=False):
        first = solve(snapshot, OPTIONS)
        if first.plan is None:
            continue
        again = solve(snapshot, SolveOptions(warm_start=first.plan))
        assert again.termination is Termination.OPTIMAL
        assert again.usd_per_hour == first.usd_per_hour
        assert members_of(again) == members_of(first)


def test_a_warm_start_of_other_jobs_is_refused() -> None:
    other = solo_plan(snapshot_of(jobs_of((1,), (1,))))
    with pytest.raises(InputError, match="warm start"):
        solve(snapshot_of(PRECEDENCE), SolveOptions(warm_start=other))


@pytest.mark.parametrize(("size", "nodes"), [(5, (None, None)), (0, (1, 1)), (0, (None, None))])
def test_too_many_groups_are_refused_with_the_alternatives(size: int, nodes: Any) -> None:
    jobs = jobs_of((1,) * 5, (1,) * 5, deadline_s=20)
    with pytest.raises(
        UnsupportedError,
        match=r"^Expected at most 9 candidate groups, got more among 5 jobs: lower max_group_size",
    ):
        solve(snapshot_of(jobs, size=size, nodes=nodes), SolveOptions(max_groups=9))


def test_a_failed_solver_is_an_error_that_holds_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HighsModel, "run", lambda *_, **__: Ended.FAILED)
    snapshot = snapshot_of(PRECEDENCE, size=FIVE)
    result = solve(snapshot, OPTIONS)
    assert result.termination is Termination.ERROR
    assert result.usd_per_hour == pytest.approx(3 * PAIR_USD)  # each alone
    assert result.bound_usd_per_hour is None


def test_equal_snapshots_give_equal_plans() -> None:
    """Node for node and start for start."""
    snapshots = [
        *random_cases(7, 12, limits=True),
        snapshot_of(PRECEDENCE, size=FIVE),
        Snapshot(table=production(n_jobs=30, seed=1), limits=Limits()),
    ]
    for snapshot in snapshots:
        one, two = solve(snapshot, OPTIONS), solve(snapshot, OPTIONS)
        assert one.plan is None or two.plan is not None
        assert (one.plan and one.plan.groups) == (two.plan and two.plan.groups)
        assert (one.counts, one.bound_usd_per_hour) == (two.counts, two.bound_usd_per_hour)


def test_progress_is_told_step_by_step() -> None:
    told: list[tuple[str, int, int]] = []
    snapshot = Snapshot(table=production(n_jobs=20, seed=0), limits=Limits())
    solve(snapshot, SolveOptions(progress=lambda *call: told.append(call)))
    steps = [label for label, _, _ in told]
    assert steps[0] == "groups of jobs"
    assert re.fullmatch(r"proved: \$[\d,.]+/h, bound \$[\d,.]+/h", steps[-1])
    assert all(0 <= done <= total for _, done, total in told)


# --- Ctrl-C -------------------------------------------------------------------------------------


def raising(label: str) -> Hook:
    """Return a progress hook that raises Ctrl-C once this step has begun."""

    def hook(step: str, _done: int, _total: int) -> None:
        if step.partition(":")[0] == label:
            raise KeyboardInterrupt

    return hook


@pytest.mark.parametrize(
    ("n", "seed", "size", "nodes"),
    [(16, 5, 5, (None, None)), (16, 5, 0, (1, 1)), (12, 3, 3, (2, 2))],
)
@pytest.mark.parametrize("step", ["groups of jobs", "proved"])
def test_ctrl_c_in_our_own_code_holds_a_plan(
    step: str, n: int, seed: int, size: int, nodes: Any
) -> None:
    """On snapshots that the first LP does not settle."""
    limits = Limits(max_group_size=size, max_rollout_nodes=nodes[0], max_train_nodes=nodes[1])
    snapshot = Snapshot(table=production(n_jobs=n, seed=seed), limits=limits)
    least = solve(snapshot, OPTIONS).usd_per_hour
    result = solve(snapshot, SolveOptions(progress=raising(step)))
    assert (result.termination, result.stopped_by) == (
        Termination.FEASIBLE_LIMIT,
        StoppedBy.INTERRUPT,
    )
    assert result.usd_per_hour is not None
    assert least is not None
    bound = result.bound_usd_per_hour
    assert (bound is None) == (step == "groups of jobs")
    assert bound is None or bound <= least + 1e-9 <= result.usd_per_hour + 2e-9


def test_ctrl_c_between_two_runs_of_the_solver_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    run = HighsModel.run

    def noting(self: HighsModel, *given: Any, **more: Any) -> Ended:
        ended = run(self, *given, **more)
        self.interrupted = True
        return ended

    monkeypatch.setattr(HighsModel, "run", noting)
    result = solve(snapshot_of(PRECEDENCE, size=FIVE), OPTIONS)
    assert result.stopped_by is StoppedBy.INTERRUPT


#: ``planner snapshot`` that says when groups are being chosen.
TELLING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from models.bounds import covering

run = covering._Search.run
def telling(self):
    sys.stderr.write("begun\\n")
    sys.stderr.flush()
    return run(self)
covering._Search.run = telling
from planner.cli.main import main
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("wait_s", [0.0, 3.0])
def test_a_real_ctrl_c_prints_a_valid_plan_and_ends_with_130(wait_s: float, tmp_path: Path) -> None:
    """80 production jobs, of which the proof takes far longer; at its start, and later."""
    write_trace(production(n_jobs=80, seed=0), tmp_path / "trace.csv")
    words = [
        *("snapshot", "--trace", "trace.csv", "--all-jobs", "--method", "set-partition"),
        *("--out", "o", "--json"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *words],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(Path(__file__).parents[3])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(wait_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert '"stopped_by": "interrupt"' in out
    plan = read_plan(tmp_path / "o" / "plan.json")
    assert check_plan(plan).ok
    assert len(plan.jobs) == 80


def test_the_candidates_are_those_of_the_snapshot() -> None:
    """Single-node jobs: admitted by loads up to five of them, maximal beyond; else decided."""
    jobs = jobs_of((1, 1), (1, 1), deadline_s=8)
    gangs = jobs_of((1, 1), (1, 1), deadline_s=8, rollout_nodes=(1, 2))
    for given, size, nodes, kind in (
        (jobs, 5, (None, None), set_partition._Admitted),
        (jobs, 5, (1, 1), set_partition._Admitted),
        (jobs, 6, (1, 1), MaximalSets),
        (jobs, 0, (1, 1), MaximalSets),
        (jobs, 0, (2, 1), set_partition._Decided),
        (jobs, 0, (None, None), set_partition._Decided),
        (gangs, 2, (None, None), set_partition._Decided),
    ):
        snapshot = snapshot_of(given, size=size, nodes=nodes)
        run = set_partition._Run(
            snapshot=snapshot,
            options=OPTIONS,
            deadline=OPTIONS.start(),
            cost=set_partition.GroupCost(snapshot),
            held=None,
        )
        assert type(set_partition._candidates(run)) is kind


def test_jobs_may_come_in_any_order() -> None:
    table = production(n_jobs=20, seed=2)
    jobs = list(table)
    random.Random(8).shuffle(jobs)
    one = solve(Snapshot(table=table, limits=Limits()), OPTIONS)
    two = solve(Snapshot(table=JobTable.from_jobs(jobs), limits=Limits()), OPTIONS)
    assert one.usd_per_hour == pytest.approx(two.usd_per_hour)
