"""Choices of groups for tests: by hand, random and hard, and their least costs by a table."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf

import numpy as np
import pytest

from instances.generate import production
from instances.plan import Limits
from models.bounds.covering import Cover, CoverProblem, Ending, solve_cover
from models.bounds.covering_lp import Relaxation
from models.exact.single_node_sets import SetPool
from models.problem.options import Deadline, SolveOptions
from models.problem.snapshot import FleetCaps, Snapshot

__all__ = [
    "PRICES",
    "Nodes",
    "assert_honest",
    "assert_right",
    "hard_problems",
    "least_usd",
    "meeting_problem",
    "no_limit",
    "nodes",
    "pareto",
    "problem_of",
    "problems",
    "production_problem",
    "random_problem",
    "relaxation_of",
    "usd_of",
]

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


def relaxation_of(problem: CoverProblem, lead: int = 1) -> Relaxation:
    out = Relaxation(problem, lead, no_limit(), seed=0)
    out.price_in(np.flatnonzero((problem.members >= 0).sum(axis=1) <= 2))
    return out
