"""The choice of groups: against a table over all sets of jobs, stopped anywhere, cut and dived."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from clocks import Ticking
from cover_cases import (
    PRICES,
    assert_honest,
    assert_right,
    hard_problems,
    least_usd,
    no_limit,
    problem_of,
    problems,
    production_problem,
)
from models.backends.highs_model import Ended, HighsModel
from models.bounds import covering, covering_lp
from models.bounds.covering import CoverProblem, Ending, solve_cover
from models.bounds.covering_lp import Relaxation
from models.problem.options import Deadline

IntArray = npt.NDArray[np.int64]


# --- random covers ------------------------------------------------------------------------------


def test_random_covers_cost_what_the_table_says() -> None:
    seen: Counter[str] = Counter()
    for problem in problems(1, 400):
        least = least_usd(problem)
        cover = solve_cover(problem, no_limit())
        assert_right(problem, cover, least)
        capped = problem.caps != (None, None)
        seen["infeasible under caps"] += capped and least == inf
        seen["capped"] += capped and least < inf
        seen["gangs"] += int(problem.nodes.max()) > 2
        seen["free pool"] += 0 < sum(price == 0 for price in problem.usd) < 2
        seen["free"] += problem.usd == (0.0, 0.0)
        seen["equal prices"] += problem.usd == (8.0, 8.0)
        sizes = (problem.members >= 0).sum(axis=1)
        alone = set(problem.members[sizes == 1].max(axis=1).tolist())
        seen["a job never alone"] += len(alone) < problem.n_jobs and least < inf
        for count in ("pairs", "cuts"):
            seen[count] += cover.counts[count] > 0
    assert {name for name, number in seen.items() if number < 15} == set(), seen


@pytest.mark.parametrize("few_columns", [2_000, 2])
def test_branch_and_bound_alone_decides_pairs_too(
    few_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dives and cuts, which settle nearly every small pair before; with the search on few
    columns first, and without."""
    monkeypatch.setattr(Relaxation, "dive", lambda *_: None)
    monkeypatch.setattr(Relaxation, "violated", lambda _: np.zeros((0, 3), dtype=np.int64))
    monkeypatch.setattr(covering, "_FEW_COLUMNS", few_columns)
    branched = dearer = 0
    for problem in problems(2, 150):
        least = least_usd(problem)
        cover = solve_cover(problem, no_limit())
        assert_right(problem, cover, least)
        branched += cover.counts["left"] > 0
        dearer += cover.counts["pairs"] > 1
    assert branched >= 75
    assert dearer >= 10


#: The ten triples of a 2-(6, 3, 2) design. Any two meet, so two never cover six points, though a
#: fifth of each does (every point is in five): LP 2, least 3.
MEETING = (
    (0, 1, 2), (0, 1, 3), (0, 2, 4), (0, 3, 5), (0, 4, 5),
    (1, 2, 5), (1, 3, 4), (1, 4, 5), (2, 3, 4), (2, 3, 5),
)  # fmt: skip


def test_the_triples_of_the_design_meet() -> None:
    assert all(set(a) & set(b) for a, b in combinations(MEETING, 2))
    assert Counter(job for triple in MEETING for job in triple) == dict.fromkeys(range(6), 5)


@pytest.mark.parametrize("usd", PRICES)
def test_a_total_that_no_number_of_other_nodes_helps_is_given_up(usd: tuple[float, float]) -> None:
    """With two nodes of a pool there is no cover, at any number of the other and any price. Neither
    the LP nor cuts see that: branch and bound does, and the search does not go on for ever."""
    columns = [(triple, (1, 1)) for triple in MEETING]
    problem = problem_of(6, columns, usd)
    assert_right(problem, solve_cover(problem, no_limit()), 3 * sum(usd))
    for caps in ((2, None), (None, 2), (2, 2), (2, 9), (9, 2)):
        problem = problem_of(6, columns, usd, caps)
        cover = solve_cover(problem, no_limit())
        assert_right(problem, cover, inf)
        assert cover.counts["left"] > 0


# --- by hand ------------------------------------------------------------------------------------


def test_no_jobs_need_no_groups() -> None:
    cover = solve_cover(problem_of(0, []), no_limit())
    assert (cover.ending, cover.chosen, cover.bound_usd) == (Ending.OPTIMAL, (), 0.0)


def test_a_job_in_no_group_is_infeasible_without_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "Relaxation", None)
    for columns in ([((0, 2), (1, 1))], []):
        cover = solve_cover(problem_of(3, columns), no_limit())
        assert (cover.ending, cover.chosen, cover.bound_usd) == (Ending.INFEASIBLE, None, inf)


def test_a_cover_may_hold_a_job_twice() -> None:
    """Pairs (0, 1) and (1, 2), each on one node of each kind; jobs alone are not there."""
    problem = problem_of(3, [((0, 1), (1, 1)), ((1, 2), (1, 1))])
    cover = solve_cover(problem, no_limit())
    assert cover.chosen == (0, 1)
    assert cover.bound_usd == pytest.approx(2 * (14.8 + 42.24))


def test_a_cap_trades_one_pool_for_the_other() -> None:
    """One group on (1, 3) or on (3, 1) nodes: $141.52 or $86.64 an hour; two train nodes leave
    (3, 1), two rollout nodes (1, 3), and two of each neither."""
    columns = [((0, 1), (1, 3)), ((0, 1), (3, 1))]
    for caps, chosen in (
        ((None, None), (1,)),
        ((None, 2), (1,)),
        ((2, None), (0,)),
        ((2, 2), None),
        ((0, None), None),
    ):
        cover = solve_cover(problem_of(2, columns, caps=caps), no_limit())
        assert cover.chosen == chosen
        usd = {(0,): 14.8 + 3 * 42.24, (1,): 3 * 14.8 + 42.24, None: inf}[chosen]
        assert cover.bound_usd == pytest.approx(usd)


@pytest.mark.parametrize(
    ("held", "found", "bound"),
    [(200.0, True, 171.12), (171.12, False, 171.12), (99.0, False, 99.0)],
)
def test_only_cheaper_covers_than_the_one_held_are_looked_for(
    held: float, found: bool, bound: float
) -> None:
    """Three jobs alone cost $171.12; what is held costs more, as much, or less."""
    problem = problem_of(3, [((job,), (1, 1)) for job in range(3)])
    cover = solve_cover(problem, no_limit(), incumbent_usd=held)
    assert cover.ending is Ending.OPTIMAL
    assert cover.chosen == ((0, 1, 2) if found else None)
    assert cover.bound_usd == pytest.approx(bound)


def test_what_is_held_changes_no_bound() -> None:
    rng = random.Random(3)
    for problem in problems(3, 60):
        least = least_usd(problem)
        if least == inf:
            continue
        held = least + rng.choice((0.0, 0.0, 1.0, 50.0, -0.5))
        if held >= 0:
            cover = solve_cover(problem, no_limit(), incumbent_usd=held)
            assert cover.ending is Ending.OPTIMAL
            assert_honest(problem, cover, least, held)
            assert (cover.chosen is None) == (held <= least)


def test_equal_problems_give_equal_covers() -> None:
    for problem in [*problems(4, 40), production_problem(25, 1)]:
        one, two = (solve_cover(problem, no_limit(), seed=3) for _ in range(2))
        assert one == two


def test_the_seed_is_that_of_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    class Watched(HighsModel):
        def __init__(self, *, seed: int = 0, **more: Any) -> None:
            seeds.append(seed)
            super().__init__(seed=seed, **more)

    monkeypatch.setattr(covering_lp, "HighsModel", Watched)
    monkeypatch.setattr(covering, "HighsModel", Watched)
    monkeypatch.setattr(Relaxation, "dive", lambda *_: None)
    problem = next(problem for problem in problems(5, 20) if least_usd(problem) < inf)
    solve_cover(problem, no_limit(), seed=7)
    assert len(seeds) > 1
    assert set(seeds) == {7}


def test_progress_is_told_bounds_that_rise_and_costs_that_fall() -> None:
    told: list[tuple[float, float | None]] = []
    several = 0
    for problem in problems(6, 80):
        told.clear()
        cover = solve_cover(problem, no_limit(), progress=lambda *call: told.append(call))
        bounds = [bound for bound, _ in told]
        costs = [cost for _, cost in told if cost is not None]
        assert (np.diff(bounds) >= -1e-9).all()
        assert costs == sorted(costs, reverse=True)
        assert all(bound <= cover.bound_usd + 1e-6 for bound in bounds)
        assert all(cost >= cover.bound_usd - 1e-6 for cost in costs)
        several += len(told) > 1
    assert several >= 10


# --- stopped ------------------------------------------------------------------------------------


def test_whenever_the_time_ends_the_bound_holds() -> None:
    """A clock that counts its calls: the search ends at its first look, its second, ..."""
    stopped: Counter[str] = Counter()
    for problem in [*hard_problems(7, 6), *problems(8, 8)]:
        least = least_usd(problem)
        for ticks in range(10_000):
            clock = Ticking()
            cover = solve_cover(problem, Deadline(clock, float(ticks)))
            assert_honest(problem, cover, least)
            if clock.now < ticks:  # it ended by itself
                assert_right(problem, cover, least)
                break
            assert cover.ending in (Ending.TIME, Ending.OPTIMAL, Ending.INFEASIBLE)
            assert (cover.ending is Ending.INFEASIBLE) <= (least == inf)
            if cover.ending is Ending.TIME:
                stopped["bound" if cover.bound_usd > 0 else "no bound"] += 1
                stopped["cover" if cover.chosen is not None else "no cover"] += 1
    assert all(stopped[how] >= 20 for how in ("bound", "no bound", "cover", "no cover")), stopped


@pytest.mark.parametrize("limit", [0, 1])
def test_whatever_branch_and_bound_may_spend_the_bound_holds(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are spent on pairs in order of price; pairs given up keep the bound down. Small pairs
    are settled in no node at all unless presolve, heuristics, cuts and dives are off; only the
    first dive, however dear its cover, is left."""

    class Bare(HighsModel):
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.set("presolve", "off")
            self.set("mip_heuristic_effort", 0.0)

    dive = Relaxation.dive

    def dear(self: Relaxation, most: float, *more: Any) -> tuple[int, ...] | None:
        return dive(self, most, *more) if most == inf else None

    monkeypatch.setattr(covering, "HighsModel", Bare)
    monkeypatch.setattr(Relaxation, "dive", dear)
    monkeypatch.setattr(Relaxation, "violated", lambda _: np.zeros((0, 3), dtype=np.int64))
    endings: Counter[Ending] = Counter()
    for problem in problems(9, 120):
        least = least_usd(problem)
        cover = solve_cover(problem, no_limit(), node_limit=limit)
        assert_honest(problem, cover, least)
        assert cover.counts["nodes"] <= limit + 1
        endings[cover.ending] += 1
        if cover.ending is Ending.INFEASIBLE:
            assert least == inf
    assert endings[Ending.NODES] >= 3
    assert endings[Ending.OPTIMAL] >= 50


def test_no_time_at_all_proves_nothing() -> None:
    cover = solve_cover(problem_of(2, [((0, 1), (1, 1))]), Deadline(lambda: 0.0, 0.0))
    assert (cover.ending, cover.chosen, cover.bound_usd) == (Ending.TIME, None, 0.0)


def at_call(number: int, raises: BaseException) -> Callable[..., None]:
    """Return a hook that raises at its so manieth call."""
    calls = 0

    def hook(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise raises

    return hook


def test_ctrl_c_in_our_own_code_keeps_bound_and_cover() -> None:
    """Raised where progress is told, at every call of it; the node at hand is not lost."""
    for problem in hard_problems(10, 6):
        least, ended = least_usd(problem), 0
        for call in range(1, 100):
            hook = at_call(call, KeyboardInterrupt())
            cover = solve_cover(problem, no_limit(), progress=hook)
            assert_honest(problem, cover, least)
            if cover.ending is not Ending.INTERRUPT:
                assert_right(problem, cover, least)
                break
            assert cover.bound_usd > 0
            ended += 1
        assert ended >= 2


@pytest.mark.parametrize(
    ("ended", "ending"), [(Ended.INTERRUPT, Ending.INTERRUPT), (Ended.FAILED, Ending.FAILED)]
)
def test_a_solver_that_stops_early_leaves_bound_and_cover(
    ended: Ended, ending: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HiGHS ends so at its first run, its second, ...; LPs and branch and bound alike."""
    run, left = HighsModel.run, [0]

    def stopping(self: HighsModel, seconds: float | None = None, *, lp: bool = True) -> Ended:
        left[0] -= 1
        return ended if left[0] < 0 else run(self, seconds, lp=lp)

    monkeypatch.setattr(HighsModel, "run", stopping)
    seen = 0
    for problem in hard_problems_of(monkeypatch, left):
        least = least_usd(problem)
        for runs in range(1_000):
            left[0] = runs
            cover = solve_cover(problem, no_limit())
            assert_honest(problem, cover, least)
            if left[0] >= 0:
                break
            assert cover.ending in (ending, Ending.OPTIMAL)
            assert cover.status != ""
            seen += cover.ending is ending
    assert seen >= 50


def hard_problems_of(monkeypatch: pytest.MonkeyPatch, left: list[int]) -> list[CoverProblem]:
    left[0] = 10**9
    return hard_problems(11, 4)


def test_ctrl_c_during_a_run_that_ended_all_the_same_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LPs take milliseconds: the signal nearly always comes when HiGHS no longer looks."""
    run, left = HighsModel.run, [0]

    def noting(self: HighsModel, seconds: float | None = None, *, lp: bool = True) -> Ended:
        ended = run(self, seconds, lp=lp)
        left[0] -= 1
        self.interrupted = self.interrupted or left[0] < 0
        return ended

    monkeypatch.setattr(HighsModel, "run", noting)
    left[0] = 10**9
    problem = hard_problems(12, 1)[0]
    least, seen = least_usd(problem), 0
    for runs in range(1_000):
        left[0] = runs
        cover = solve_cover(problem, no_limit())
        assert_honest(problem, cover, least)
        if left[0] >= 0:
            break
        assert cover.ending in (Ending.INTERRUPT, Ending.OPTIMAL)
        seen += cover.ending is Ending.INTERRUPT
    assert seen >= 5
