"""All exact methods on all small cases: the same cost, proved, and a plan that the checker takes.

What is expected comes from the oracle up to four jobs, which shares no code with the methods,
and beyond that from the exhaustive method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import pytest

from agreement_cases import (
    FAMILIES,
    KINDS,
    NEUTRAL,
    Case,
    assert_proved,
    cases,
    fleet_of,
    fullest_gb,
    is_on_grid,
    least_usd,
    without_precedence,
)
from instances.jobs import Job
from instances.plan import GroupVersion
from models.backends.pyomo_highs import Ended, options_of
from models.backends.pyomo_highs import solve as run_highs
from models.exact.methods import METHODS, solve
from models.exact.milp import build
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.result import Result
from models.problem.snapshot import Snapshot
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
    assert_proved(result, method, case.snapshot, expected)


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


def test_data_are_multiples_of_the_grid() -> None:
    for case in cases():
        assert is_on_grid(case.snapshot), case


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
        counts["full dram"] += any(fullest_gb(jobs, g) == 2000 for g in result.plan.groups)
        counts["period at the deadline"] += any(
            _at_the_deadline(jobs, g) for g in result.plan.groups
        )
    assert counts["shares nodes"] >= 100
    assert counts["shares both pools"] >= 100
    assert counts["several groups"] >= 100
    assert counts["full dram"] >= 12
    assert counts["period at the deadline"] >= 100
    assert counts["infeasible"] >= 8


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
