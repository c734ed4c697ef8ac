"""The relaxation of the choice of groups: its value, its cuts, and dives."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, product
from math import inf

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from clocks import Ticking
from cover_cases import (
    assert_right,
    least_usd,
    meeting_problem,
    no_limit,
    problem_of,
    problems,
    relaxation_of,
)
from models.bounds import covering_lp
from models.bounds.covering import CoverProblem, solve_cover
from models.bounds.covering_lp import EPS, StoppedError
from models.problem.options import Deadline, OutOfTimeError

# --- the relaxation -----------------------------------------------------------------------------


def lp_value(problem: CoverProblem, lead: int, most_lead: float, usd: tuple[float, float]) -> float:
    """Return the LP value by another solver interface, all columns at once; ``inf`` if none."""
    n, m = problem.n_jobs, len(problem.members)
    holds = np.zeros((n, m))
    for column, row in enumerate(problem.members.tolist()):
        holds[[job for job in row if job >= 0], column] = 1
    cap = problem.caps[1 - lead]
    totals = problem.nodes[:, [lead, 1 - lead]].T
    found = milp(
        usd[0] * totals[0] + usd[1] * totals[1],
        constraints=[
            LinearConstraint(holds, 1, np.inf),
            LinearConstraint(totals, -np.inf, [most_lead, np.inf if cap is None else cap]),
        ],
        bounds=Bounds(0, np.inf),
    )
    return float(found.fun) if found.success else inf


def test_the_value_is_that_of_the_lp_over_all_columns() -> None:
    """Priced in a few at a time; infinite where it has no solution: artificial columns cost so much
    that here no LP is cheaper with them."""
    infeasible = feasible = 0
    rng = random.Random(13)
    for problem in problems(13, 120):
        covered = set(problem.members[problem.members >= 0].tolist())
        if covered != set(range(problem.n_jobs)):
            continue
        lead, most = rng.randint(0, 1), rng.randint(1, 6)
        relaxation = relaxation_of(problem, lead)
        for usd in ((0.0, 1.0), (3.0, 2.0)):
            relaxation.objective(*usd)
            relaxation.within(0, most)
            value = relaxation.solve()
            expected = lp_value(problem, lead, most, usd)
            if expected == inf:
                assert value == inf
                infeasible += 1
            else:
                assert relaxation.feasible
                assert value == pytest.approx(expected, abs=1e-6)
                feasible += 1
    assert min(infeasible, feasible) >= 40


def test_columns_beyond_the_first_are_priced_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column at a time, from none: every value is still that over all columns."""
    monkeypatch.setattr(covering_lp, "_PRICED", 1)
    for problem in problems(14, 40):
        assert_right(problem, solve_cover(problem, no_limit()), least_usd(problem))


def test_cuts_hold_for_every_cover() -> None:
    """All 0/1 choices of at most twelve columns: a cover meets every cut that is added."""
    rng, cuts = random.Random(15), 0
    for _ in range(60):
        whole = meeting_problem(rng)
        kept = rng.sample(range(len(whole.members)), min(12, len(whole.members)))
        problem = CoverProblem(
            n_jobs=7, members=whole.members[kept], nodes=whole.nodes[kept], usd=(1.0, 1.0)
        )
        relaxation = relaxation_of(problem)
        relaxation.objective(1.0, 1.0)
        relaxation.solve()
        found = relaxation.violated()
        if not relaxation.feasible or not len(found):
            continue
        before = relaxation.value
        relaxation.add_cuts(found)
        assert relaxation.solve() >= before - 1e-9
        columns = np.arange(len(kept))
        coefficients = relaxation.in_cuts(columns, found)
        for chosen in product((0, 1), repeat=len(kept)):
            z = np.array(chosen)
            holds = relaxation.holds[:7, columns] @ z
            if (holds >= 1).all():
                assert (coefficients.T @ z >= 2).all()
        cuts += len(found)
    assert cuts >= 40


def test_coefficients_of_a_cut_are_half_the_jobs_rounded_up() -> None:
    """Groups with none, one, two or three of jobs 0, 1, 2."""
    columns = [((3,), (1, 1)), ((0, 3), (1, 1)), ((1, 2), (1, 1)), ((0, 1, 2, 3), (1, 1))]
    relaxation = relaxation_of(problem_of(4, columns))
    cut = np.array([[0, 1, 2]])
    assert relaxation.in_cuts(np.arange(4), cut)[:, 0].tolist() == [0, 1, 1, 2]


def test_the_odd_triangle_is_cut_to_its_optimum() -> None:
    """Three pairs of three jobs: half of each is 1.5 lead nodes, and 2 are needed."""
    problem = problem_of(3, [((0, 1), (1, 1)), ((1, 2), (1, 1)), ((0, 2), (1, 1))])
    relaxation = relaxation_of(problem)
    relaxation.objective(1.0, 0.0)
    assert relaxation.solve() == pytest.approx(1.5)
    found = relaxation.violated()
    assert found.tolist() == [[0, 1, 2]]
    relaxation.add_cuts(found)
    assert relaxation.solve() == pytest.approx(2.0)
    assert not len(relaxation.violated())


def test_violated_cuts_are_those_below_two() -> None:
    """By their definition, at the LP's solution; few of them on one job."""
    seen = 0
    for problem in problems(16, 60):
        relaxation = relaxation_of(problem)
        relaxation.objective(1.0, 1.0)
        relaxation.solve()
        value = {
            three: float(
                relaxation.in_cuts(relaxation.columns, np.array([three]))[:, 0] @ relaxation.x
            )
            for three in combinations(range(problem.n_jobs), 3)
        }
        below = {three for three, left in value.items() if left < 2 - covering_lp._VIOLATION}
        found = [tuple(row) for row in relaxation.violated().tolist()]
        assert set(found) <= below
        assert bool(found) == bool(below)
        values = np.array([value[three] for three in found])
        assert (np.diff(values) >= -1e-9).all()  # most violated first
        on = Counter(job for three in found for job in three)
        assert max(on.values(), default=0) <= covering_lp._CUTS_PER_JOB
        seen += len(found) > 1
    assert seen >= 5


def test_a_dive_leaves_the_lp_as_it_was() -> None:
    """Also one that steps back, and one that the time ends: the same value comes again."""
    gave_up = found = timed_out = 0
    for problem in problems(17, 120):
        relaxation = relaxation_of(problem)
        relaxation.objective(0.0, 1.0)
        relaxation.within(0, 4)
        value = relaxation.solve()
        if not relaxation.feasible:
            continue
        alive = relaxation.alive.copy()
        for most, rng in ((inf, None), (value + 0.5, np.random.default_rng(1))):
            chosen = relaxation.dive(most, 3, rng)
            assert (relaxation.alive == alive).all()
            assert relaxation.solve() == pytest.approx(value)
            if chosen is None:
                gave_up += 1
                continue
            found += 1
            totals = problem.nodes[list(chosen)].sum(axis=0)
            assert totals[1] <= 4
            assert totals[0] <= most + EPS
            rows = problem.members[list(chosen)]
            assert set(rows[rows >= 0].tolist()) == set(range(problem.n_jobs))
        relaxation.deadline = Deadline(Ticking(), 5.0)
        with np.errstate(all="raise"):
            try:
                relaxation.dive(value, 10, None)
            except (OutOfTimeError, StoppedError):
                timed_out += 1
        relaxation.deadline = no_limit()
        assert (relaxation.alive == alive).all()
        assert relaxation.solve() == pytest.approx(value)
    assert min(gave_up, found) >= 15
    assert timed_out >= 5


def test_reduced_costs_leave_out_no_column_of_a_cover() -> None:
    """Every cover within the totals consists of columns that stay, whatever the cuts."""
    left_out = 0
    for problem in problems(18, 60):
        if len(problem.members) > 12:
            continue
        relaxation = relaxation_of(problem)
        relaxation.objective(0.0, 1.0)
        relaxation.within(0, 4)
        value = relaxation.solve()
        if not relaxation.feasible:
            continue
        found = relaxation.violated()
        if len(found):
            relaxation.add_cuts(found)
            value = relaxation.solve()
        most = np.ceil(value - EPS)
        stay = relaxation.reduced <= most - value + EPS
        for chosen in product((0, 1), repeat=len(problem.members)):
            z = np.array(chosen)
            covers = (relaxation.holds[: problem.n_jobs] @ z >= 1).all()
            if covers and z @ relaxation.lead <= 4 and z @ relaxation.lag <= most:
                assert stay[z > 0].all()
        left_out += not stay.all()
    assert left_out >= 5
