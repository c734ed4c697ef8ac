"""All exact methods on all small cases: the same cost, proved, and a plan that the checker takes.

What is expected comes from the oracle up to four jobs, which shares no code with the methods,
and beyond that from the exhaustive method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from agreement_cases import FAMILIES, GRID_S, Case, cases, least_usd, without_precedence
from instances.checker import check_plan
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion
from models.backends.pyomo_highs import Ended, options_of
from models.backends.pyomo_highs import solve as run_highs
from models.group_cost import GroupCost
from models.methods import METHODS, solve
from models.milp import build
from models.options import SolveOptions
from models.result import Result, Termination
from models.snapshot import FleetCaps, Snapshot
from small_snapshots import oracle_of

#: The methods of this suite, and the most jobs each is given. 8 is all of them: a lower number
#: would leave cases out, here and nowhere else.
SUITE: Final[Mapping[str, int]] = {"exhaustive": 8, "milp": 8, "cpsat": 8, "set-partition": 8}
ORACLE_JOBS: Final = 4
OPTIONS: Final = SolveOptions()
#: Families whose single-node jobs fill nodes, so that precedence may matter.
FILLED: Final = ("precedence", "five front", "full", "two full", "nearly full", "front")


@cache
def solved(method: str, snapshot: Snapshot) -> Result:
    return solve(method, snapshot, OPTIONS)


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterable[None]:
    """Results are kept for this module only."""
    yield
    solved.cache_clear()


def expected_usd(snapshot: Snapshot) -> float | None:
    """Return the least cost; ``None`` where no plan exists."""
    if len(snapshot) <= ORACLE_JOBS:
        return oracle_of(snapshot).usd_per_hour
    return solved("exhaustive", snapshot).usd_per_hour


# --- the suite --------------------------------------------------------------------------------


def test_no_method_is_forgotten() -> None:
    """A method added to METHODS has to be added to SUITE, which gives it every case."""
    assert set(SUITE) == set(METHODS)
    assert max(len(case.snapshot) for case in cases()) == min(SUITE.values())


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("method", SUITE)
def test_every_method_proves_the_least_cost(method: str, case: Case) -> None:
    if len(case.snapshot) > SUITE[method]:
        pytest.skip(f"{method} is given at most {SUITE[method]} jobs")
    expected = expected_usd(case.snapshot)
    result = solved(method, case.snapshot)
    assert (result.method, result.stopped_by) == (method, None)
    assert (result.limits, result.caps) == (case.snapshot.limits, case.snapshot.caps)
    if expected is None:
        assert result.termination is Termination.INFEASIBLE
        assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None,) * 3
        return
    assert result.termination is Termination.OPTIMAL
    assert result.usd_per_hour == pytest.approx(expected, abs=1e-6, rel=0)
    assert result.bound_usd_per_hour == pytest.approx(expected, abs=1e-6, rel=0)
    assert_valid(case.snapshot, result)


def assert_valid(snapshot: Snapshot, result: Result) -> None:
    """The plan covers the jobs within limits and caps, and its nodes cost what the result says."""
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.plan.jobs.job_id == snapshot.table.job_id
    assert (result.plan.limits, result.plan.cluster) == (snapshot.limits, snapshot.cluster)
    rollout, train = fleet_of(result)
    assert snapshot.caps.allow(rollout, train)
    assert snapshot.usd_per_hour(rollout, train) == pytest.approx(result.usd_per_hour)


def fleet_of(result: Result) -> tuple[int, int]:
    assert result.plan is not None
    groups = result.plan.groups
    return sum(len(g.rollout_nodes) for g in groups), sum(len(g.train_nodes) for g in groups)


def test_cpsat_needs_no_finer_grid() -> None:
    """All data are multiples of its grid of 1 ms, so cost of bound and of plan are one."""
    for case in cases():
        assert solved("cpsat", case.snapshot).counts["halvings"] == 0, case


# --- what the cases are -----------------------------------------------------------------------


def test_there_are_enough_cases_of_every_kind() -> None:
    sizes = Counter(len(case.snapshot) for case in cases())
    assert sizes.keys() == {3, 4, 5, 6, 7, 8}
    assert sizes.total() >= 200
    assert sum(count for n, count in sizes.items() if n >= 5) >= 100
    assert min(sizes.values()) >= 12
    assert {case.family for case in cases()} >= FAMILIES.keys()
    assert len({case.name for case in cases()}) == len(cases())
    limits = Counter(case.snapshot.limits.max_group_size for case in cases())
    assert limits.keys() == {0, 1, 2, 3, 4, 5}
    assert min(limits.values()) >= 10
    counts = Counter(kind for case in cases() for kind, holds in KINDS.items() if holds(case))
    for kind in KINDS:
        assert counts[kind] >= 12, (kind, counts)


def _some(asks: Callable[[Job], bool]) -> Callable[[Case], bool]:
    return lambda case: any(asks(job) for job in case.snapshot.jobs)


def _all(asks: Callable[[Job], bool]) -> Callable[[Case], bool]:
    return lambda case: all(asks(job) for job in case.snapshot.jobs)


KINDS: Final[Mapping[str, Callable[[Case], bool]]] = {
    "single-node jobs": _all(lambda job: job.rollout_nodes == job.train_nodes == 1),
    "rollout gangs": _some(lambda job: job.rollout_nodes > 1),
    "train gangs": _some(lambda job: job.train_nodes > 1),
    "sync": _some(lambda job: job.sync_s > 0),
    "rollout switches": _some(lambda job: job.rollout_switch_s > 0),
    "train switches": _some(lambda job: job.train_switch_s > 0),
    "rollout states": _some(lambda job: job.rollout_state_gb > 0),
    "train states": _some(lambda job: job.train_state_gb > 0),
    "slo 1": _all(lambda job: job.slo == 1),
    "slo 1 and looser": lambda case: len({job.slo == 1 for job in case.snapshot.jobs}) == 2,
    "all equal": lambda case: (
        len({replace(job, job_id="", arrival_s=0.0) for job in case.snapshot.jobs}) == 1
    ),
    "ties of deadlines": lambda case: (
        1 < len({job.deadline_s for job in case.snapshot.jobs}) < len(case.snapshot)
    ),
    "node limits": lambda case: (
        (case.snapshot.limits.max_rollout_nodes, case.snapshot.limits.max_train_nodes)
        != (None, None)
    ),
    "fleet caps": lambda case: case.snapshot.caps.any,
}


def test_data_are_multiples_of_the_grid() -> None:
    for case in cases():
        for job in case.snapshot.jobs:
            for seconds in (
                job.rollout_s, job.train_s, job.sync_s, job.deadline_s,
                job.rollout_switch_s, job.train_switch_s,
            ):  # fmt: skip
                assert seconds / GRID_S == pytest.approx(round(seconds / GRID_S), rel=1e-12), case


def _limits(**changes: int | None) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: replace(snapshot, limits=replace(snapshot.limits, **changes))


def _jobs(change: Callable[[Job], dict[str, float]]) -> Callable[[Snapshot], Snapshot]:
    """Change every job, at the same deadline in seconds."""

    def changed(job: Job) -> Job:
        other = replace(job, **change(job))
        return replace(other, slo=max(job.deadline_s / other.solo_s, 1.0))

    return lambda snapshot: replace(
        snapshot, table=JobTable.from_jobs([changed(job) for job in snapshot.jobs])
    )


#: The snapshot without a rule.
NEUTRAL: Final[Mapping[str, Callable[[Snapshot], Snapshot]]] = {
    "group size": _limits(max_group_size=0),
    "node limits": _limits(max_rollout_nodes=None, max_train_nodes=None),
    "fleet caps": lambda snapshot: replace(snapshot, caps=FleetCaps()),
    "rollout gangs": _jobs(lambda job: {"rollout_nodes": 1}),
    "train gangs": _jobs(lambda job: {"train_nodes": 1}),
    "rollout dram": _jobs(lambda job: {"rollout_state_gb": 0.0}),
    "train dram": _jobs(lambda job: {"train_state_gb": 0.0}),
    "sync": _jobs(lambda job: {"sync_s": 0.0}),
    "rollout switches": _jobs(lambda job: {"rollout_switch_s": 0.0}),
    "train switches": _jobs(lambda job: {"train_switch_s": 0.0}),
    "switches only on shared nodes": _jobs(
        lambda job: {
            "rollout_s": job.rollout_s + job.rollout_switch_s,
            "train_s": job.train_s + job.train_switch_s,
            "rollout_switch_s": 0.0,
            "train_switch_s": 0.0,
        }
    ),
    "deadlines": lambda snapshot: replace(
        snapshot,
        table=JobTable.from_jobs([replace(job, slo=10 * job.slo) for job in snapshot.jobs]),
    ),
}


def test_there_are_enough_optima_of_every_kind() -> None:
    """Shared nodes, nodes full of state or of time, mixed widths, and no plan at all."""
    counts: Counter[str] = Counter()
    for case in cases():
        snapshot = case.snapshot
        result = solved("exhaustive", snapshot)
        if result.plan is None:
            counts["infeasible"] += 1
            continue
        jobs = snapshot.jobs
        alone = sum(j.rollout_nodes for j in jobs), sum(j.train_nodes for j in jobs)
        fleet = fleet_of(result)
        counts["shares nodes"] += fleet != alone
        counts["shares both pools"] += fleet[0] < alone[0] and fleet[1] < alone[1]
        counts["several groups"] += len(result.plan.groups) > 1
        counts["full dram"] += any(_fullest_gb(jobs, g) == 2000 for g in result.plan.groups)
        counts["period at the deadline"] += any(
            _at_the_deadline(jobs, g) for g in result.plan.groups
        )
    assert counts["shares nodes"] >= 100
    assert counts["shares both pools"] >= 100
    assert counts["several groups"] >= 100
    assert counts["full dram"] >= 12
    assert counts["period at the deadline"] >= 100
    assert counts["infeasible"] >= 8


def _fullest_gb(jobs: Iterable[Job], group: GroupVersion) -> float:
    """Return the most state on a node that two or more jobs share, GB."""
    by_id = {job.job_id: job for job in jobs}
    states: dict[tuple[str, int], list[float]] = {}
    for placement in group.placements:
        job = by_id[placement.job_id]
        for node in placement.rollout_pins:
            states.setdefault(("rollout", node), []).append(job.rollout_state_gb)
        for node in placement.train_pins:
            states.setdefault(("train", node), []).append(job.train_state_gb)
    return max((sum(each) for each in states.values() if len(each) > 1), default=0.0)


def _at_the_deadline(jobs: Iterable[Job], group: GroupVersion) -> bool:
    """Whether two or more jobs run exactly as slowly as one of them tolerates."""
    ids = {placement.job_id for placement in group.placements}
    least = min(job.deadline_s for job in jobs if job.job_id in ids)
    return len(ids) > 1 and group.period_s == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("rule", NEUTRAL)
def test_every_rule_matters_in_enough_cases(rule: str) -> None:
    """Without it the least cost is another. Up to six jobs, as more without limits take long."""
    matters = 0
    for case in cases():
        other = NEUTRAL[rule](case.snapshot)
        same = other.jobs == case.snapshot.jobs and (other.limits, other.caps, other.cluster) == (
            case.snapshot.limits, case.snapshot.caps, case.snapshot.cluster
        )  # fmt: skip
        if not same and len(case.snapshot) <= 6:
            usd = solve("exhaustive", other, OPTIONS).usd_per_hour
            matters += usd != solved("exhaustive", case.snapshot).usd_per_hour
    assert matters >= 10


# --- what precedence is worth -----------------------------------------------------------------


def test_loads_admit_what_precedence_rejects_in_enough_cases() -> None:
    """Counted: cases where the front of some set of jobs is another without precedence, and those
    of them where the least cost is; with a limit on the group and without. Jobs of one node each.
    A front knows no fleet caps; costs are compared where there are none."""
    fronts: Counter[bool] = Counter()
    optima: Counter[bool] = Counter()
    for case in cases():
        snapshot = case.snapshot
        if case.family not in FILLED:
            continue
        cost = GroupCost(snapshot)
        loose = without_precedence(snapshot)
        limited = snapshot.limits.max_group_size > 0
        fronts[limited] += any(
            [g.nodes for g in cost.front(jobs)] != [loose[jobs]] for jobs in loose
        )
        usd = solved("exhaustive", snapshot).usd_per_hour
        if not snapshot.caps.any:
            assert usd is not None
            assert least_usd(snapshot, loose) <= usd + 1e-6
            optima[limited] += least_usd(snapshot, loose) < usd - 1e-6
    assert fronts.total() >= 50
    assert optima.total() >= 40
    assert min(fronts[True], fronts[False], optima[True], optima[False]) >= 12


def test_the_milp_without_precedence_costs_what_loads_alone_do() -> None:
    """Two ways to drop precedence: leave its rows out, or look at each pool by itself."""
    differ = 0
    for case in cases():
        snapshot = case.snapshot
        if case.family not in FILLED or snapshot.caps.any or len(snapshot) > 5:
            continue
        model = build(snapshot, without={"precedence"})
        found = run_highs(model, options_of(), OPTIONS.start())
        assert found.ended is Ended.OPTIMAL
        assert found.objective == pytest.approx(least_usd(snapshot, without_precedence(snapshot)))
        differ += found.objective != pytest.approx(solved("exhaustive", snapshot).usd_per_hour)
    assert differ >= 20
