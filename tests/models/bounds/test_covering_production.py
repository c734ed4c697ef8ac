"""The choice of groups in production snapshots, against a plain MIP and at their size."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from cover_cases import (
    assert_right,
    no_limit,
    production_problem,
    relaxation_of,
    usd_of,
)
from models.bounds.covering import CoverProblem, Ending, solve_cover

# --- production snapshots -----------------------------------------------------------------------


def by_milp(problem: CoverProblem) -> float:
    """Return the least cost by a plain MIP over all columns; infinite if there is none."""
    n, m = problem.n_jobs, len(problem.members)
    holds = np.zeros((n, m))
    for column, row in enumerate(problem.members.tolist()):
        holds[[job for job in row if job >= 0], column] = 1
    most = [np.inf if cap is None else cap for cap in problem.caps]
    found = milp(
        problem.nodes @ np.array(problem.usd),
        integrality=np.ones(m),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(holds, 1, np.inf),
            LinearConstraint(problem.nodes.T, -np.inf, most),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert found.status in (0, 2)
    return float(found.fun) if found.success else inf


@pytest.mark.parametrize(
    ("n", "seed"), [(20, 0), (20, 1), (20, 2), (25, 0), (25, 1), (25, 2), (30, 0), (30, 2)]
)
def test_production_snapshots_cost_what_a_plain_mip_says(n: int, seed: int) -> None:
    problem = production_problem(n, seed)
    assert_right(problem, solve_cover(problem, no_limit()), by_milp(problem))


@pytest.mark.parametrize("usd", [(1.0, 0.0), (0.0, 1.0), (42.24, 14.8), (8.0, 8.0)])
def test_production_snapshots_at_other_prices(usd: tuple[float, float]) -> None:
    """The columns at real prices, priced anew: fewest rollout nodes, fewest train nodes, ..."""
    plain = production_problem(20, 0, (20, 20))
    problem = CoverProblem(n_jobs=20, members=plain.members, nodes=plain.nodes, usd=usd)
    assert_right(problem, solve_cover(problem, no_limit()), by_milp(problem))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_production_snapshots_under_caps_that_just_bind(seed: int) -> None:
    """The fewest nodes of a pool, one less (no cover), and with the other pool capped as well."""
    plain = production_problem(20, seed, (20, 20))
    for pool in (0, 1):
        usd = (1.0, 0.0) if pool == 0 else (0.0, 1.0)
        fewest = round(by_milp(CoverProblem(
            n_jobs=20, members=plain.members, nodes=plain.nodes, usd=usd
        )))  # fmt: skip
        for most, other in product((fewest - 1, fewest), (None, 10, 13)):
            caps = (most, other) if pool == 0 else (other, most)
            problem = CoverProblem(
                n_jobs=20, members=plain.members, nodes=plain.nodes, usd=plain.usd, caps=caps
            )
            least = by_milp(problem)
            assert most == fewest or least == inf
            assert_right(problem, solve_cover(problem, no_limit()), least)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_forty_one_jobs_are_proved(seed: int) -> None:
    """7,420 to 16,560 columns; what is chosen costs the bound, and the bound is above the LP's."""
    problem = production_problem(41, seed)
    cover = solve_cover(problem, no_limit())
    assert cover.ending is Ending.OPTIMAL
    assert cover.chosen is not None
    assert usd_of(problem, cover.chosen) == pytest.approx(cover.bound_usd, rel=1e-9)
    relaxation = relaxation_of(problem)
    relaxation.objective(problem.usd[1], problem.usd[0])
    assert relaxation.solve() <= cover.bound_usd + 1e-6
