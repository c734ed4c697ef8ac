"""The choice of groups: against a table over all sets of jobs, stopped anywhere, cut and dived."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from clocks import Ticking
from instances.generate import production
from instances.plan import Limits
from models.backends.highs_model import Ended, HighsModel
from models.bounds import covering, covering_lp
from models.bounds.covering import Cover, CoverProblem, Ending, solve_cover
from models.bounds.covering_lp import EPS, Relaxation, StoppedError
from models.exact.single_node_sets import SetPool
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.snapshot import FleetCaps, Snapshot

IntArray = npt.NDArray[np.int64]
Nodes = tuple[int, int]


def no_limit() -> Deadline:
    return Deadline(lambda: 0.0, None)


def problem_of(
    n_jobs: int,
    columns: Sequence[tuple[Sequence[int], Nodes]],
    usd: tuple[float, float] = (14.8, 42.24),
    caps: tuple[int | None, int | None] = (None, None),
    width: int | None = None,
) -> CoverProblem:
    widest = width or max((len(members) for members, _ in columns), default=1)
    padded = [[*members, *[-1] * (widest - len(members))] for members, _ in columns]
    return CoverProblem(
        n_jobs=n_jobs,
        members=np.array(padded, dtype=np.int64).reshape(-1, widest),
        nodes=np.array([nodes for _, nodes in columns], dtype=np.int64).reshape(-1, 2),
        usd=usd,
        caps=caps,
    )


def least_usd(problem: CoverProblem) -> float:
    """Return the least cost of a cover, by a table: per set of jobs the Pareto-minimal totals.

    Every cover adds, at some point, a column with the lowest job that is not covered yet.
    """
    masks = [sum(1 << j for j in row if j >= 0) for row in problem.members.tolist()]
    everyone = (1 << problem.n_jobs) - 1
    totals: list[set[Nodes]] = [set() for _ in range(everyone + 1)]
    totals[0].add((0, 0))
    for done in range(everyone):
        totals[done] = pareto(totals[done])
        lowest = ~done & (done + 1)
        for mask, (rollout, train) in zip(masks, problem.nodes.tolist(), strict=True):
            if mask & lowest:
                totals[done | mask] |= {(r + rollout, t + train) for r, t in totals[done]}
    within = [
        pair
        for pair in totals[everyone]
        if all(cap is None or nodes <= cap for nodes, cap in zip(pair, problem.caps, strict=True))
    ]
    return min((r * problem.usd[0] + t * problem.usd[1] for r, t in within), default=inf)


def pareto(totals: set[Nodes]) -> set[Nodes]:
    out: list[Nodes] = []
    for rollout, train in sorted(totals):
        if not out or train < out[-1][1]:
            out.append((rollout, train))
    return set(out)


def usd_of(problem: CoverProblem, chosen: Sequence[int]) -> float:
    """Check that these columns are a cover within the caps, each once, and return their cost."""
    assert len(set(chosen)) == len(chosen)
    rows = problem.members[list(chosen)]
    assert set(rows[rows >= 0].tolist()) == set(range(problem.n_jobs))
    totals = problem.nodes[list(chosen)].sum(axis=0)
    for nodes, cap in zip(totals.tolist(), problem.caps, strict=True):
        assert cap is None or nodes <= cap
    return float(totals @ np.array(problem.usd))


def assert_right(problem: CoverProblem, cover: Cover, least: float) -> None:
    """Proved: the least cost, or that there is none."""
    if least == inf:
        assert (cover.ending, cover.chosen, cover.bound_usd) == (Ending.INFEASIBLE, None, inf)
        return
    assert cover.ending is Ending.OPTIMAL, problem
    assert cover.bound_usd == pytest.approx(least, rel=1e-9, abs=1e-9), problem
    assert cover.chosen is not None
    assert usd_of(problem, cover.chosen) == pytest.approx(least, rel=1e-9, abs=1e-9), problem


def assert_honest(
    problem: CoverProblem, cover: Cover, least: float, held_usd: float | None = None
) -> None:
    """Stopped or not: the bound holds; what is chosen is a cover, cheaper than what was held."""
    slack = 1e-9 * max(least, 1.0) if least < inf else 0.0
    assert cover.bound_usd <= least + slack, (problem, cover)
    if cover.chosen is not None:
        usd = usd_of(problem, cover.chosen)
        assert usd >= least - slack
        assert held_usd is None or usd < held_usd
        assert cover.ending is not Ending.OPTIMAL or usd == pytest.approx(cover.bound_usd)
    if cover.ending is Ending.OPTIMAL:
        best = min(least, inf if held_usd is None else held_usd)
        assert cover.bound_usd == pytest.approx(best, rel=1e-9, abs=1e-9)


# --- random covers ------------------------------------------------------------------------------

PRICES = ((14.8, 42.24), (42.24, 14.8), (8.0, 8.0), (0.0, 5.0), (5.0, 0.0), (0.0, 0.0), (1.0, 3.0))


def random_problem(rng: random.Random, n: int) -> CoverProblem:
    """Groups of one to five jobs in any order; with every job alone, or only by chance; on one or
    two nodes of each kind, or up to four as gangs are; prices and caps by chance."""
    most = rng.choice((2, 2, 4))
    columns = [
        (rng.sample(range(n), rng.randint(1, min(n, 5))), nodes(rng, most))
        for _ in range(rng.randint(1, 4 * n + 6))
    ]
    if rng.random() < 0.7:
        columns += [([job], nodes(rng, most) if most > 2 else (1, 1)) for job in range(n)]
    caps = rng.randint(0, 2 * n), rng.randint(0, 2 * n)
    kept = rng.choice(((0, 0), (0, 0), (1, 0), (0, 1), (1, 1)))
    return problem_of(
        n,
        columns,
        rng.choice(PRICES),
        tuple(cap if keep else None for cap, keep in zip(caps, kept, strict=True)),  # type: ignore[arg-type]
        width=rng.choice((None, 6)),
    )


def nodes(rng: random.Random, most: int) -> Nodes:
    return rng.randint(1, most), rng.randint(1, most)


def meeting_problem(rng: random.Random) -> CoverProblem:
    """Seven jobs in few groups, all of two jobs or all of three, none alone: a least cover holds a
    job twice, and the LP bound, which mixes halves of such groups, is weak."""
    sets = list(combinations(range(7), rng.choice((2, 3))))
    columns = [(jobs, nodes(rng, 2)) for jobs in rng.sample(sets, rng.choice((8, 12, 16)))]
    caps = rng.choice(((None, None), (None, None), (6, None), (None, 5)))
    return problem_of(7, columns, rng.choice(PRICES), caps)


def problems(seed: int, count: int) -> Iterator[CoverProblem]:
    """Random and meeting problems by turns."""
    rng = random.Random(seed)
    for i in range(count):
        yield meeting_problem(rng) if i % 2 else random_problem(rng, rng.randint(3, 8))


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


def hard_problems(seed: int, count: int) -> list[CoverProblem]:
    """Return problems that take more than one pair, so many moments to stop at."""
    out = []
    for problem in problems(seed, 100 * count):
        cover = solve_cover(problem, no_limit())
        if any(problem.usd) and cover.counts["pairs"] > 1 and cover.counts["cuts"] > 0:
            out.append(problem)
        if len(out) == count:
            return out
    raise AssertionError(f"only {len(out)} of {count}")


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


# --- the relaxation -----------------------------------------------------------------------------


def relaxation_of(problem: CoverProblem, lead: int = 1) -> Relaxation:
    out = Relaxation(problem, lead, no_limit(), seed=0)
    out.price_in(np.flatnonzero((problem.members >= 0).sum(axis=1) <= 2))
    return out


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


# --- production snapshots -----------------------------------------------------------------------


def production_problem(
    n: int, seed: int, caps: tuple[int | None, int | None] = (None, None)
) -> CoverProblem:
    """Return every set of at most five jobs that loads admit, cheaper than its splits."""
    fleet = FleetCaps(max_rollout_nodes_total=caps[0], max_train_nodes_total=caps[1])
    snapshot = Snapshot(table=production(n_jobs=n, seed=seed), limits=Limits(), caps=fleet)
    options = SolveOptions()
    pool = SetPool(snapshot, options, options.start())
    columns = pool.columns()
    return CoverProblem(
        n_jobs=n,
        members=pool.members[columns],
        nodes=pool.nodes[columns],
        usd=(snapshot.usd_per_hour(1, 0), snapshot.usd_per_hour(0, 1)),
        caps=caps,
    )


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
