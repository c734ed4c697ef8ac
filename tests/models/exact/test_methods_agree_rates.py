"""All methods that take ``max_rate`` above 1, on all small cases of it: the same cost, proved.

As ``test_methods_agree``, which holds the methods to one another at one iteration per period.
What is expected comes from the oracle, which tries all rates of ``{1, .., K}^n`` and shares no
code with the methods, up to three jobs (four at ``max_rate`` 2), and beyond that from the
exhaustive method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Final

import pytest

from agreement_cases import KINDS, NEUTRAL, Case, assert_proved, fullest_gb, is_on_grid
from instances.errors import UnsupportedError
from instances.plan import GroupVersion, Limits
from models.exact.exhaustive import fleet_front
from models.exact.methods import METHODS, solve
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.result import Result, Termination
from models.problem.snapshot import FleetCaps, Snapshot
from rate_cases import RATE_FAMILIES, RATE_METHODS, nodes_by_load, rate_cases, sets_of
from small_snapshots import fleets_of, oracle_fronts, oracle_of, pareto

#: The methods that take ``max_rate``, and the most jobs each is given: 6 is all cases.
SUITE: Final[Mapping[str, int]] = {"exhaustive": 6, "cpsat": 6, "set-partition": 6}
#: The methods that refuse it by name.
REFUSE: Final = ("milp",)
#: The most jobs the oracle is given by ``max_rate``; all cases of four jobs with -m slow.
ORACLE_JOBS: Final[Mapping[int, int]] = {2: 4, 3: 3, 4: 3}
OPTIONS: Final = SolveOptions()


@cache
def solved(method: str, snapshot: Snapshot) -> Result:
    return solve(method, snapshot, OPTIONS)


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterable[None]:
    """Results are kept for this module only."""
    yield
    solved.cache_clear()


def at_rate(snapshot: Snapshot, max_rate: int) -> Snapshot:
    return replace(snapshot, limits=replace(snapshot.limits, max_rate=max_rate))


def is_oracled(snapshot: Snapshot) -> bool:
    return len(snapshot) <= ORACLE_JOBS[snapshot.limits.max_rate]


def expected_usd(snapshot: Snapshot) -> float | None:
    """Return the least cost; ``None`` where no plan exists."""
    if is_oracled(snapshot):
        return oracle_of(snapshot).usd_per_hour
    return solved("exhaustive", snapshot).usd_per_hour


def usd_of(snapshot: Snapshot) -> float:
    """Return the least cost by the exhaustive method; infinite where no plan exists."""
    usd = solved("exhaustive", snapshot).usd_per_hour
    return float("inf") if usd is None else usd


def groups_of(result: Result) -> tuple[GroupVersion, ...]:
    return () if result.plan is None else result.plan.groups


def rates_of(result: Result) -> list[int]:
    return [placement.rate for group in groups_of(result) for placement in group.placements]


# --- the suite ----------------------------------------------------------------------------------


def test_no_method_is_forgotten() -> None:
    """A method added to METHODS has to be added to SUITE, or to refuse rates by name."""
    assert sorted((*SUITE, *REFUSE)) == sorted(METHODS)
    assert set(SUITE) == set(RATE_METHODS)
    assert max(len(case.snapshot) for case in rate_cases()) == min(SUITE.values())


@pytest.mark.parametrize("case", rate_cases(), ids=str)
@pytest.mark.parametrize("method", SUITE)
def test_every_method_proves_the_least_cost(method: str, case: Case) -> None:
    if len(case.snapshot) > SUITE[method]:
        pytest.skip(f"{method} is given at most {SUITE[method]} jobs")
    expected = expected_usd(case.snapshot)
    result = solved(method, case.snapshot)
    assert_proved(result, method, case.snapshot, expected)
    assert max(rates_of(result), default=1) <= case.snapshot.limits.max_rate
    for group in groups_of(result):
        for placement in group.placements:
            assert len(placement.starts_s) == placement.rate


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in rate_cases() if len(case.snapshot) == 4], ids=str
)
def test_the_oracle_agrees_at_four_jobs(case: Case) -> None:
    assert solved("exhaustive", case.snapshot).usd_per_hour == pytest.approx(
        oracle_of(case.snapshot).usd_per_hour, abs=1e-6, rel=0
    )


@pytest.mark.parametrize("max_rate", [2, 4])
@pytest.mark.parametrize("method", REFUSE)
def test_what_takes_no_rates_says_so_and_who_does(method: str, max_rate: int) -> None:
    snapshot = at_rate(rate_cases()[0].snapshot, max_rate)
    with pytest.raises(UnsupportedError, match=f"max_rate 1 .*, got {max_rate}") as refused:
        solve(method, snapshot, OPTIONS)
    for other in SUITE:
        assert other in str(refused.value)
    assert solve(method, at_rate(snapshot, 1), OPTIONS).termination is Termination.OPTIMAL


def test_cpsat_needs_no_finer_grid() -> None:
    """All data are multiples of its grid of 1 ms, so cost of bound and of plan are one."""
    for case in rate_cases():
        assert solved("cpsat", case.snapshot).counts["halvings"] == 0, case


@pytest.mark.parametrize(
    "case", [case for case in rate_cases() if len(case.snapshot) <= 3], ids=str
)
def test_the_front_of_fleets_is_the_oracles(case: Case) -> None:
    """Every Pareto-minimal fleet, not the cheapest alone: fronts of all sets of jobs, combined."""
    free = replace(case.snapshot, caps=FleetCaps())
    fleets = fleets_of(oracle_fronts(free), range(len(free)))
    assert fleet_front(free, OPTIONS) == pareto(fleets)


# --- max_rate -----------------------------------------------------------------------------------


def test_one_iteration_per_period_is_the_strict_problem() -> None:
    """The MILP, which knows no rates, costs the same; and no job runs twice in a period.

    Up to four jobs for the MILP: it takes a minute for all cases of more.
    """
    compared = 0
    for case in rate_cases():
        strict = at_rate(case.snapshot, 1)
        results = [solved(method, strict) for method in SUITE]
        if len(strict) <= 4:
            results.append(solved("milp", strict))
            compared += 1
        assert len({result.termination for result in results}) == 1, case
        for result in results:
            if result.usd_per_hour is not None:
                assert result.usd_per_hour == pytest.approx(results[0].usd_per_hour), case
            assert set(rates_of(result)) <= {1}
    assert compared >= 80


def test_max_rate_1_changes_nothing_of_a_result() -> None:
    """Not a count, not a start: that of limits which do not speak of rates."""
    for case in rate_cases():
        limits = case.snapshot.limits
        silent = Limits(
            max_group_size=limits.max_group_size,
            max_rollout_nodes=limits.max_rollout_nodes,
            max_train_nodes=limits.max_train_nodes,
        )
        for method in SUITE:
            old = solve(method, replace(case.snapshot, limits=silent), OPTIONS)
            new = solved(method, at_rate(case.snapshot, 1))
            assert replace(old, seconds={}, solver=None) == replace(new, seconds={}, solver=None)


def test_a_higher_max_rate_never_costs_more() -> None:
    cheaper: Counter[int] = Counter()
    for case in rate_cases():
        usd = [usd_of(at_rate(case.snapshot, rate)) for rate in (1, 2, 3, 4)]
        for rate, (lower, higher) in zip((2, 3, 4), pairwise(usd), strict=True):
            assert higher <= lower + 1e-6, (case, rate)
            cheaper[rate] += higher < lower - 1e-6
    assert cheaper[2] >= 30
    assert cheaper[3] >= 20
    assert cheaper[4] >= 10


# --- what the cases are -------------------------------------------------------------------------


def test_there_are_enough_cases_of_every_kind() -> None:
    sizes = Counter(len(case.snapshot) for case in rate_cases())
    assert sizes.keys() == {2, 3, 4, 5, 6}
    assert sizes.total() >= 120
    assert min(sizes.values()) >= 12
    assert sum(is_oracled(case.snapshot) for case in rate_cases()) >= 80
    assert {case.family for case in rate_cases()} >= RATE_FAMILIES.keys()
    assert len({case.name for case in rate_cases()}) == len(rate_cases())
    rates = Counter(case.snapshot.limits.max_rate for case in rate_cases())
    assert rates.keys() == {2, 3, 4}
    assert min(rates.values()) >= 30
    counts = Counter(kind for case in rate_cases() for kind, holds in KINDS.items() if holds(case))
    gangs = [KINDS["rollout gangs"](case) or KINDS["train gangs"](case) for case in rate_cases()]
    assert sum(gangs) >= 15
    for kind in KINDS.keys() - {"all equal"}:  # lengths always differ
        assert counts[kind] >= 8, (kind, counts)


def test_data_are_multiples_of_the_grid() -> None:
    for case in rate_cases():
        assert is_on_grid(case.snapshot), case


def test_rates_pay_in_enough_cases() -> None:
    """The optimum is strictly cheaper than at one iteration per period, or exists only so."""
    paid = [
        case.family
        for case in rate_cases()
        if usd_of(case.snapshot) < usd_of(at_rate(case.snapshot, 1)) - 1e-6
    ]
    assert len(paid) >= 40
    assert len(set(paid)) >= 12


def test_there_are_enough_optima_of_every_kind() -> None:
    counts: Counter[str] = Counter()
    for case in rate_cases():
        result = solved("exhaustive", case.snapshot)
        if result.plan is None:
            counts["infeasible"] += 1
            continue
        rates = rates_of(result)
        counts["rates"] += max(rates) > 1
        counts["at max_rate"] += max(rates) == case.snapshot.limits.max_rate
        counts["several groups"] += len(result.plan.groups) > 1
        shared = [group for group in result.plan.groups if len(group.placements) > 1]
        counts["three rates"] += any(
            len({placement.rate for placement in group.placements}) > 2 for group in shared
        )
        counts["full dram"] += any(
            fullest_gb(case.snapshot.jobs, group) == 2000
            and max(p.rate for p in group.placements) > 1
            for group in shared
        )
        by_id = {job.job_id: job for job in case.snapshot.jobs}
        counts["gangs with rates"] += any(
            placement.rate > 1 and len(placement.rollout_pins + placement.train_pins) > 2
            for group in shared
            for placement in group.placements
        )
        counts["switches with rates"] += any(
            placement.rate > 1 and by_id[placement.job_id].train_switch_s > 0
            for group in shared
            for placement in group.placements
        )
    assert counts["rates"] >= 60, counts
    assert counts["at max_rate"] >= 40, counts
    assert counts["several groups"] >= 60, counts
    assert counts["three rates"] >= 3, counts
    assert counts["full dram"] >= 3, counts
    assert counts["gangs with rates"] >= 3, counts
    assert counts["switches with rates"] >= 3, counts
    assert counts["infeasible"] >= 3, counts


@pytest.mark.parametrize("rule", NEUTRAL)
def test_every_rule_matters_in_enough_cases(rule: str) -> None:
    """Without it the least cost is another. Up to five jobs, as more without limits take long."""
    matters = 0
    for case in rate_cases():
        if len(case.snapshot) > 5:
            continue
        other = NEUTRAL[rule](case.snapshot)
        same = other.jobs == case.snapshot.jobs and (other.limits, other.caps) == (
            case.snapshot.limits, case.snapshot.caps
        )  # fmt: skip
        matters += not same and abs(usd_of(other) - usd_of(case.snapshot)) > 1e-6
    assert matters >= 4, matters


def test_loads_admit_what_no_schedule_has_in_enough_cases() -> None:
    """Some set of up to four single-node jobs has rates at which both pools' loads, DRAM and all
    chains are within fewer nodes than any schedule needs."""
    differ: Counter[str] = Counter()
    for case in rate_cases():
        snapshot = case.snapshot
        if not KINDS["single-node jobs"](case):
            continue
        cost = GroupCost(snapshot)
        differ[case.family] += any(
            not any(g.nodes[0] <= rollout and g.nodes[1] <= train for g in cost.front(members))
            for members in sets_of(len(snapshot), min(len(snapshot), 4))
            for rollout, train in nodes_by_load(snapshot, members)
        )
    assert differ.total() >= 20
    assert sum(count > 0 for count in differ.values()) >= 8
