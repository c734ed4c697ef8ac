"""Fleet sizing by MILP: against trying every fleet, against the closed form, limits in words."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import CheckError, InfeasibleError, InputError, UnsupportedError
from models.backends.pyomo_highs import Ended, Solved
from models.problem.options import SolveOptions
from models.problem.result import StoppedBy, Termination
from models.sizing import milp as sizing_milp
from models.sizing import parameters as sizing_parameters
from models.sizing.milp import least_owned, solve_sizing
from models.sizing.problem import (
    Aim,
    DemandArrays,
    PoolTerms,
    Scenario,
    SizingProblem,
    breaches,
    cost_of,
    grid_of,
    least_separable,
)
from oracles.least_fleet import Prices, fleets, least_fleet
from sizing_cases import arrays, problem, problems, terms

# --- by hand ------------------------------------------------------------------------------------


def test_a_binding_budget_goes_where_a_dollar_saves_most() -> None:
    """Each node owned saves $2/h in rollout ($10 each) and $5/h in train ($20 each).

    $40 buys 2 train nodes (saves 10) or 4 rollout nodes (saves 8) or 2 and 1 (saves 9).
    """
    of = problem(
        (1.0, 4, 4),
        rollout=terms(own=1.0, rent=3.0, capex=10.0),
        train=terms(own=1.0, rent=6.0, capex=20.0),
        budget=40.0,
    )
    found = solve_sizing(of)
    assert found.termination is Termination.OPTIMAL
    assert found.owned == ((0, 2),)
    assert found.usd_per_hour == 2 * 1.0 + 2 * 6.0 + 4 * 3.0
    assert found.costs is not None
    assert found.costs.capex_usd == (40.0,)
    assert found.bound_usd_per_hour == pytest.approx(26.0)


def test_growth_is_bought_when_it_comes() -> None:
    """2 nodes now, 4 later: buying all 4 at once would idle 2 of them for half of the time."""
    of = SizingProblem(
        rollout=PoolTerms(own_usd=(1.0, 1.0), rent_usd=(3.0, 3.0)),
        train=PoolTerms(own_usd=(1.0, 1.0), rent_usd=(3.0, 3.0)),
        scenarios=(Scenario(probability=1.0, demand=(arrays((1.0, 2, 0)), arrays((1.0, 4, 0)))),),
        period_weights=(1.0, 1.0),
    )
    found = solve_sizing(of)
    assert found.owned == ((2, 0), (4, 0))
    assert found.usd_per_hour == pytest.approx((2 + 4) / 2)


def test_nothing_is_sold_so_a_shrinking_demand_is_rented() -> None:
    """4 nodes for the first quarter: owned they cost 4 x $1 to the end, rented 4 x $3 / 4."""
    of = SizingProblem(
        rollout=PoolTerms(own_usd=(1.0, 1.0), rent_usd=(3.0, 3.0)),
        train=terms_of_two(),
        scenarios=(Scenario(probability=1.0, demand=(arrays((1.0, 4, 0)), arrays((1.0, 0, 0)))),),
        period_weights=(1.0, 3.0),
    )
    found = solve_sizing(of)
    assert found.owned == ((0, 0), (0, 0))
    assert found.usd_per_hour == pytest.approx(3.0)


def terms_of_two() -> PoolTerms:
    return PoolTerms(own_usd=(1.0, 1.0), rent_usd=(3.0, 3.0))


def test_no_demand_needs_nothing() -> None:
    found = solve_sizing(problem())
    assert (found.owned, found.usd_per_hour) == (((0, 0),), 0)
    assert found.termination is Termination.OPTIMAL


#: Owning and renting the 3rd and 4th node of either pool costs about the same.
FLAT = problem(
    *((66.0, 2, 2), (34.0, 4, 4)), rollout=terms(own=1.0, rent=3.0), train=terms(own=1.0, rent=3.0)
)


@pytest.mark.parametrize(
    ("aim", "expected"),
    [
        # all owned: 8; each of the upper nodes rented: 3 x 0.34 = 1.02 instead of 1
        ("fewest-train", (4, 2)),
        ("fewest-nodes", (2, 2)),
        ("most-even", (4, 4)),
    ],
)
def test_each_aim_takes_its_best_fleet_under_the_cap(aim: Aim, expected: tuple[int, int]) -> None:
    found = solve_sizing(FLAT, objective=aim, cost_cap=8.0 * 1.01)  # 4 x 0.02 = 1 % of 8
    assert found.termination is Termination.OPTIMAL
    assert found.owned == (expected,)


def test_a_cap_at_the_least_cost_leaves_the_least_cost_fleet() -> None:
    assert solve_sizing(FLAT, objective="fewest-train", cost_cap=8.0).owned == ((4, 4),)


# --- against trying every fleet -----------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(problems(), st.booleans())
def test_the_cost_is_the_least_of_all_fleets(of: SizingProblem, as_levels: bool) -> None:
    """Scenarios, periods, limits, budgets and leases: any mix; leases as cells and as levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing_parameters, "MOST_LEASE_CELLS", 0 if as_levels else 10**9)
        _compare_with_all_fleets(of)


def _compare_with_all_fleets(of: SizingProblem) -> None:
    least = least_fleet(of, grid_of)
    if least is None:
        with pytest.raises(InfeasibleError):
            solve_sizing(of)
        return
    found = solve_sizing(of)
    assert found.termination is Termination.OPTIMAL
    assert found.owned is not None
    assert found.usd_per_hour == pytest.approx(least, rel=1e-7, abs=1e-7)
    assert breaches(of, found.owned) == ()


@settings(max_examples=30, deadline=None)
@given(
    problems(periods=1),
    st.sampled_from([0.01, 0.05, 0.5]),
    st.sampled_from(["fewest-train", "fewest-nodes", "most-even"]),
)
def test_each_aim_is_the_best_of_all_fleets_under_the_cap(
    of: SizingProblem, share: float, aim: Aim
) -> None:
    prices = Prices(of, grid_of)
    known = {owned: prices.usd(owned) for owned in fleets(of)}
    if not known:
        return
    cap = min(known.values()) * (1 + share)

    def key(owned: Any) -> tuple[int, float]:
        rollout, train = owned[-1]
        wanted = {
            "fewest-train": train,
            "fewest-nodes": rollout + train,
            "most-even": abs(rollout - train),
        }
        return wanted[aim], known[owned]

    best = min(key(owned) for owned, usd in known.items() if usd <= cap + 1e-9)
    found = solve_sizing(of, objective=aim, cost_cap=cap)
    assert found.owned is not None
    assert key(found.owned) == pytest.approx(best, rel=1e-6, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(problems(periods=1, leases=False))
def test_the_milp_agrees_with_the_closed_form(of: SizingProblem) -> None:
    of = replace(of, capex_budget_usd=None)
    try:
        owned = least_separable(of)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            solve_sizing(of)
        return
    assert owned is not None
    found = solve_sizing(of)
    assert found.usd_per_hour == pytest.approx(cost_of(of, owned).usd_per_hour, abs=1e-7)


@settings(max_examples=12, deadline=None)
@given(problems(), st.integers(0, 12))
def test_a_larger_budget_never_costs_more(of: SizingProblem, budget: int) -> None:
    last = (None,) * (len(of.period_weights) - 1)
    costs = []
    for usd in (budget, budget + 5):
        try:
            found = solve_sizing(replace(of, capex_budget_usd=(float(usd), *last)))
        except InfeasibleError:
            costs.append(np.inf)
            continue
        costs.append(found.usd_per_hour)
    assert costs[1] <= costs[0] + 1e-7


# --- what cannot be had, in words ---------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(problems(periods=1, leases=False), st.integers(0, 3))
def test_the_budget_that_would_do_is_the_least(of: SizingProblem, most: int) -> None:
    """Refused without a cent; granted exactly what is asked for it is enough."""
    poor = replace(
        of,
        rollout=replace(of.rollout, max_rented=most),
        train=replace(of.train, max_rented=most),
        capex_budget_usd=(0.0,),
    )
    if any(poor.least_owned(0, pool) > poor.most_owned(pool) for pool in (0, 1)):
        return
    forced = sum(
        side.capex_usd[0] * poor.least_owned(0, pool)
        for pool, side in enumerate(poor.pools)
        if side.capex_usd is not None
    )
    if forced > 0:
        with pytest.raises(InfeasibleError, match=rf"at least \${ceil(forced):,} \("):
            solve_sizing(poor)
    found = solve_sizing(replace(poor, capex_budget_usd=(forced,)))
    assert found.termination is Termination.OPTIMAL


def test_a_budget_below_the_least_says_what_would_do() -> None:
    """5 of 9 nodes can be rented, so 4 must be bought, at $100 each."""
    of = problem(
        (1.0, 9, 0), rollout=terms(capex=100.0, max_rented=5), budget=250.0, train=terms(capex=1.0)
    )
    with pytest.raises(
        InfeasibleError, match=r"at least \$400 \(\$150 more than the \$250 given\) must be spent"
    ):
        solve_sizing(of)


def test_a_cost_cap_below_the_least_says_the_least() -> None:
    with pytest.raises(InfeasibleError, match=r"at most \$7\.90/h: the least is \$8\.00/h"):
        solve_sizing(FLAT, cost_cap=7.9)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"objective": "cheapest"}, "objective in cost, fewest-train"),
        ({"objective": "fewest-nodes"}, "Expected a cost_cap with the objective fewest-nodes"),
    ],
)
def test_an_unknown_question_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        solve_sizing(FLAT, **asked)


def test_a_model_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing_parameters, "MOST_CELLS", 3)
    with pytest.raises(UnsupportedError, match="at most 3 levels and lease cells, got 4"):
        solve_sizing(FLAT)


# --- limits of time, Ctrl-C, output -------------------------------------------------------------


def test_without_time_what_must_be_owned_is_held_and_nothing_claimed() -> None:
    of = problem((1.0, 4, 4), rollout=terms(max_rented=1))
    found = solve_sizing(of, deadline=SolveOptions(time_limit_s=0).start())
    assert (found.termination, found.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.TIME)
    assert found.owned == ((3, 0),)
    assert found.bound_usd_per_hour is None


def test_without_time_nothing_is_held_that_breaks_the_cap() -> None:
    found = solve_sizing(FLAT, cost_cap=8.0, deadline=SolveOptions(time_limit_s=0).start())
    assert (found.termination, found.owned) == (Termination.NO_PLAN_LIMIT, None)


def test_ctrl_c_ends_a_solve_with_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sizing_milp, "run_highs", pressed)
    found = solve_sizing(FLAT)
    assert found.stopped_by is StoppedBy.INTERRUPT
    assert found.owned == ((0, 0),)
    two = replace(
        FLAT,
        rollout=terms_of_two(),
        train=terms_of_two(),
        period_weights=(1.0, 1.0),
        scenarios=(Scenario(probability=1.0, demand=(arrays(), arrays())),),
    )
    with pytest.raises(KeyboardInterrupt):
        least_owned(two)


# --- a solver that fails or lies ----------------------------------------------------------------


def answer(ended: Ended, objective: float | None = None, interrupted: bool = False) -> Solved:
    return Solved(
        ended=ended,
        objective=objective,
        bound=None,
        interrupted=interrupted,
        status="",
        version="",
        nodes=0,
    )


def says(patch: pytest.MonkeyPatch, found: Solved, owned: tuple[int, int] = (0, 0)) -> None:
    """Let the solver answer so, whatever the model."""

    def lie(model: Any, *_: Any) -> Solved:
        for pool, nodes in enumerate(owned):
            model.owned[pool, 0].set_value(nodes, skip_validation=True)
        return found

    patch.setattr(sizing_milp, "run_highs", lie)


def test_a_failed_solve_is_an_error_with_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, answer(Ended.FAILED))
    found = solve_sizing(FLAT)
    assert (found.termination, found.owned) == (Termination.ERROR, ((0, 0),))
    assert found.bound_usd_per_hour is None


def test_a_late_answer_that_is_worse_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing owned costs 6 x 2.68 = $16.08/h of rent; the fleet held stays the cheaper one."""
    dear = replace(FLAT, rollout=terms(own=9.0), train=terms(own=9.0))
    says(monkeypatch, answer(Ended.TIME, objective=72.0), owned=(4, 4))
    found = solve_sizing(dear)
    assert (found.termination, found.stopped_by) == (Termination.FEASIBLE_LIMIT, StoppedBy.TIME)
    assert found.owned == ((0, 0),)


def test_ctrl_c_inside_the_solver_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, answer(Ended.OPTIMAL, objective=8.0, interrupted=True), owned=(4, 4))
    found = solve_sizing(FLAT, objective="most-even", cost_cap=9.0)
    assert (found.stopped_by, found.owned) == (StoppedBy.INTERRUPT, ((4, 4),))


@pytest.mark.parametrize(
    ("found", "owned", "words"),
    [
        (answer(Ended.OPTIMAL, objective=8.0), (3, 9), "owns 9 of at most 5"),
        (answer(Ended.OPTIMAL, objective=7.0), (4, 4), r"claims \$7.0+/h for a fleet of \$8.0+/h"),
        (answer(Ended.INFEASIBLE), (0, 0), "calls a problem infeasible that is not"),
    ],
)
def test_a_wrong_answer_is_caught(
    monkeypatch: pytest.MonkeyPatch, found: Solved, owned: tuple[int, int], words: str
) -> None:
    says(monkeypatch, found, owned)
    limited = replace(FLAT, train=replace(FLAT.train, max_owned=5))
    with pytest.raises(CheckError, match=words):
        solve_sizing(limited)


def test_without_time_no_fleet_is_made_up() -> None:
    """4 of 5 nodes must be bought with $3: nothing valid is held, and nothing is claimed."""
    of = problem(
        (1.0, 5, 0), rollout=terms(capex=1.0, max_rented=1), train=terms(capex=1.0), budget=3.0
    )
    late = SolveOptions(time_limit_s=0).start()
    with pytest.raises(InfeasibleError, match="time ended before a fleet"):
        least_owned(of, deadline=late)


def test_a_cap_below_0_is_refused() -> None:
    with pytest.raises(InputError, match="cost_cap >= 0, got -1"):
        solve_sizing(FLAT, cost_cap=-1.0)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    solve_sizing(FLAT)
    assert capfd.readouterr() == ("", "")


def test_leases_of_many_scenarios_are_levels() -> None:
    """60 scenarios of 40 cells a pool, 4,800 in all: as levels at most the highest demand each."""
    rng = np.random.default_rng(0)
    scenarios = tuple(
        Scenario(
            probability=1 / 60,
            demand=(
                DemandArrays(
                    hours=np.ones(40),
                    rollout_nodes=rng.integers(0, 9, 40),
                    train_nodes=rng.integers(0, 9, 40),
                ),
            ),
        )
        for _ in range(60)
    )
    side = terms(lease_block_h=24.0, capex=1.0)
    of = SizingProblem(rollout=side, train=side, scenarios=scenarios, capex_budget_usd=(5.0,))
    model = sizing_milp.build(of)
    assert len(model.rented) <= 2 * 8
    assert len(model.leases) == 0
    assert solve_sizing(of).owned is not None


def test_scenarios_are_one_set_of_levels() -> None:
    """100 scenarios of 50 levels each make a model of 50 levels a pool, not of 5,000."""
    rng = np.random.default_rng(0)
    scenarios = tuple(
        Scenario(
            probability=0.01,
            demand=(
                DemandArrays(
                    hours=rng.uniform(0.5, 2, 50),
                    rollout_nodes=rng.permutation(50),
                    train_nodes=rng.permutation(50),
                ),
            ),
        )
        for _ in range(100)
    )
    of = SizingProblem(rollout=terms(), train=terms(), scenarios=scenarios)
    model = sizing_milp.build(of)
    assert len(model.rented) == 2 * 49  # levels 1 to 49; level 0 needs nothing
    owned = least_separable(of)
    assert owned is not None
    assert solve_sizing(of).usd_per_hour == pytest.approx(cost_of(of, owned).usd_per_hour)
