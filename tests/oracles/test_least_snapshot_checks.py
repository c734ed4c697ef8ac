"""The snapshot oracle against other programs: counts of its enumeration, whole plans enumerated
otherwise, and the independent checker."""

from __future__ import annotations

import dataclasses
import math
import random
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from instances.checker import check_plan
from instances.hardware import DEFAULT_CLUSTER as CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import SNAPSHOT_HOURS, GroupVersion, JobPlacement, Limits, Plan
from oracles.least_period import least_period_brute
from oracles.least_snapshot import (
    Least,
    all_kinds,
    group_feasible,
    group_front,
    least_snapshot,
    partitions,
    pinnings,
)
from small_snapshots import FIVE_FRONT, PRECEDENCE, jobs_of

NO_LIMIT = Limits(max_group_size=0)


def random_jobs(rng: random.Random, n: int, *, gang: bool = True) -> list[Job]:
    """Jobs of few distinct values: ties, exact deadlines, full DRAM, switches, sync, gangs."""
    choices: dict[str, tuple[Any, ...]] = {
        "rollout_s": tuple(range(1, 7)),
        "train_s": tuple(range(1, 7)),
        "sync_s": (0.0, 0.0, 1.0, 3.0),
        "slo": (1.0, 1.25, 1.5, 2.0, 3.0),
        "rollout_nodes": (1, 1, 2) if gang else (1,),
        "train_nodes": (1, 1, 1, 2) if gang else (1,),
        "rollout_state_gb": (0.0, 500.0, 1000.0, 1500.0),
        "train_state_gb": (0.0, 500.0, 1000.0, 1500.0),
        "rollout_switch_s": (0.0, 0.0, 0.5),
        "train_switch_s": (0.0, 0.0, 0.5),
    }
    return [
        Job(job_id=f"j{j}", **{name: rng.choice(values) for name, values in choices.items()})
        for j in range(n)
    ]


# --- the enumeration ---------------------------------------------------------------------------


def test_partitions_are_counted_by_bell_numbers() -> None:
    for n, bell in enumerate((1, 1, 2, 5, 15, 52)):
        found = list(partitions(n))
        assert len(found) == len({frozenset(blocks) for blocks in found}) == bell
        assert all(sorted(j for block in blocks for j in block) == [*range(n)] for blocks in found)


def test_pinnings_of_one_node_jobs_are_counted_by_stirling_numbers() -> None:
    """Four jobs of one node each on k alike nodes, none empty: S(4, k)."""
    counts = [sum(1 for _ in pinnings((1,) * 4, k, all_kinds(4))) for k in range(6)]
    assert counts == [0, 1, 7, 6, 1, 0]


def named_pinnings(widths: Sequence[int]) -> Iterator[tuple[frozenset[int], ...]]:
    """Every choice of nodes per job, out of as many named nodes as could be used."""
    chosen = [combinations(range(sum(widths)), width) for width in widths]
    return (tuple(map(frozenset, pins)) for pins in product(*chosen))


def nodes_of(pins: Sequence[Collection[int]]) -> tuple[tuple[int, ...], ...]:
    """The jobs on each node in use, sorted: equal for pinnings that differ in names only."""
    used = set().union(*pins)
    return tuple(sorted(tuple(j for j, p in enumerate(pins) if i in p) for i in used))


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 1), (2, 2), (3, 2, 1), (2, 2, 2)])
def test_pinnings_are_all_choices_of_nodes_up_to_names(widths: tuple[int, ...]) -> None:
    expected = sorted({nodes_of(pins) for pins in named_pinnings(widths)})
    counts = range(1, sum(widths) + 1)
    found = [p for m in counts for p in pinnings(widths, m, all_kinds(len(widths)))]
    assert sorted(tuple(sorted(pinning)) for pinning in found) == expected


# --- the oracle against other programs ---------------------------------------------------------


def components(n: int, pins: Sequence[Sequence[Collection[int]]]) -> list[list[int]]:
    """Jobs joined by shared nodes; `pins` of each pool."""
    group = list(range(n))
    for i, j in combinations(range(n), 2):
        if any(set(pool[i]) & set(pool[j]) for pool in pins):
            group = [group[i] if g == group[j] else g for g in group]
    return [[j for j in range(n) if group[j] == g] for g in sorted(set(group))]


@cache
def route_a(*data: Any) -> float:
    """Least period by the oracle's other route, over all heights by LP."""
    return least_period_brute(*data)[0]


def is_group(
    jobs: Sequence[Job], pins: Sequence[Sequence[Collection[int]]], limits: Limits
) -> bool:
    """Do these pins, of exactly these jobs, make a valid group on the default cluster?"""
    used = [set().union(*pool) for pool in pins]
    most = [len(jobs), limits.max_rollout_nodes or 99, limits.max_train_nodes or 99]
    if len(jobs) > (limits.max_group_size or most[0]):
        return False
    if len(used[0]) > most[1] or len(used[1]) > most[2]:
        return False
    states = [[getattr(job, f"{pool}_state_gb") for job in jobs] for pool in ("rollout", "train")]
    for nodes, pool, gb in zip(used, pins, states, strict=True):
        if any(sum(g for p, g in zip(pool, gb, strict=True) if i in p) > 2000 for i in nodes):
            return False
    columns = zip(
        *((x.rollout_s, x.train_s, x.sync_s, x.rollout_switch_s, x.train_switch_s) for x in jobs),
        strict=True,
    )
    r, t, s, r_switch, t_switch = columns
    for rates in product(range(1, limits.max_rate + 1), repeat=len(jobs)):
        most_s = min(k * job.deadline_s for k, job in zip(rates, jobs, strict=True))
        period = route_a(r, t, s, tuple(pins[0]), tuple(pins[1]), rates, r_switch, t_switch)
        if period <= most_s * (1 + 1e-9):
            return True
    return False


def least_by_components(
    jobs: Sequence[Job], limits: Limits, caps: tuple[float, float]
) -> tuple[int, int] | None:
    """Nodes of the cheapest plan, without partitions, fronts, checks or the MILP.

    All jobs are pinned to one fleet; the groups are the jobs joined by shared nodes. (A group of
    two such components may be split at equal cost, and then each part keeps within the limits.)
    Pairs of pinnings are tried in order of cost; the first valid one is the cheapest.
    """
    pools = []
    for widths in ([job.rollout_nodes for job in jobs], [job.train_nodes for job in jobs]):
        pools.append(list({nodes_of(pins): pins for pins in named_pinnings(widths)}.values()))
    pairs = []
    for pins in product(*pools):
        r, t = (len(set().union(*pool)) for pool in pins)
        if r <= caps[0] and t <= caps[1]:
            pairs.append((14.80 * r + 42.24 * t, (r, t), pins))
    for _, nodes, pins in sorted(pairs, key=lambda pair: pair[0]):
        if all(
            is_group([jobs[j] for j in block], [[pool[j] for j in block] for pool in pins], limits)
            for block in components(len(jobs), pins)
        ):
            return nodes
    return None


def test_whole_plans_enumerated_otherwise_cost_the_same() -> None:
    """Three jobs, by `least_by_components`: none of the oracle's own steps are used."""
    rng = random.Random(2026)
    groups = []
    for i in range(32):
        jobs = random_jobs(rng, 3, gang=i % 4 == 0)
        limits = Limits(
            max_group_size=rng.choice((0, 0, 2)),
            max_rollout_nodes=rng.choice((None, None, 2)),
            max_train_nodes=rng.choice((None, 2)),
        )
        caps = [rng.choice((None, None, None, 2, 3)) for _ in range(2)]
        answer = least_snapshot(
            jobs, CLUSTER, limits, max_rollout_nodes_total=caps[0], max_train_nodes_total=caps[1]
        )
        nodes = least_by_components(jobs, limits, (caps[0] or math.inf, caps[1] or math.inf))
        assert answer.usd_per_hour == (nodes and pytest.approx(CLUSTER.usd_per_hour(*nodes))), (
            jobs,
            limits,
            caps,
        )
        groups.append(len(answer.groups))
    assert min(map(groups.count, range(4))) >= 2  # no plan, one group, two, three


def test_whole_plans_of_rates_enumerated_otherwise_cost_the_same() -> None:
    """As above, of two jobs, the second of which takes two to four times as long."""
    rng = random.Random(2027)
    rates: list[tuple[int, ...]] = []
    for i in range(24):
        first, second = random_jobs(rng, 2, gang=i % 3 == 0)
        longer = rng.choice((2, 3, 4))
        second = dataclasses.replace(
            second, rollout_s=longer * second.rollout_s, sync_s=longer * second.sync_s
        )
        limits = Limits(max_group_size=0, max_rate=rng.choice((2, 3)))
        answer = least_snapshot([first, second], CLUSTER, limits)
        nodes = least_by_components([first, second], limits, (math.inf, math.inf))
        assert answer.usd_per_hour == (nodes and pytest.approx(CLUSTER.usd_per_hour(*nodes))), (
            first,
            second,
            limits,
        )
        rates += [group.rates for group in answer.groups]
    assert sum(len(each) == 2 and max(each) > 1 for each in rates) >= 6
    assert sum(max(each) == 1 for each in rates) >= 4


def plan_of(jobs: Sequence[Job], limits: Limits, answer: Least) -> Plan:
    """The answer as a plan of one snapshot interval."""
    assert answer.usd_per_hour is not None
    groups = [
        GroupVersion(
            group_id=f"g{number}",
            from_s=0.0,
            to_s=3600 * SNAPSHOT_HOURS,
            period_s=group.period_s,
            rollout_nodes=tuple(sorted(set().union(*group.rollout_pins))),
            train_nodes=tuple(sorted(set().union(*group.train_pins))),
            placements=tuple(
                JobPlacement(
                    job_id=jobs[j].job_id,
                    rollout_pins=group.rollout_pins[i],
                    train_pins=group.train_pins[i],
                    starts_s=group.starts_s[i],
                    rate=group.rates[i],
                )
                for i, j in enumerate(group.members)
            ),
        )
        for number, group in enumerate(answer.groups)
    ]
    return Plan(
        policy="oracle",
        durations="snapshot",
        cluster=CLUSTER,
        jobs=JobTable.from_jobs(jobs),
        limits=limits,
        groups=tuple(groups),
        usd_total=SNAPSHOT_HOURS * answer.usd_per_hour,
    )


def test_the_checker_accepts_every_answer_at_its_cost() -> None:
    """Four jobs; a job alone always fits here, so there is always a plan."""
    rng = random.Random(7)
    shared = 0
    for _ in range(20):
        jobs = random_jobs(rng, 4)
        answer = least_snapshot(jobs, CLUSTER, NO_LIMIT)
        report = check_plan(plan_of(jobs, NO_LIMIT, answer))
        assert report.ok, report.violations
        shared += len(answer.groups) < 4
    assert shared >= 10


def test_the_checker_accepts_every_answer_of_rates_at_its_cost() -> None:
    rng = random.Random(8)
    limits = Limits(max_group_size=0, max_rate=3)
    several = 0
    for _ in range(12):
        jobs = random_jobs(rng, 3)
        answer = least_snapshot(jobs, CLUSTER, limits)
        report = check_plan(plan_of(jobs, limits, answer))
        assert report.ok, report.violations
        several += any(max(group.rates) > 1 for group in answer.groups)
    assert several >= 3


def test_the_checker_accepts_the_examples() -> None:
    for jobs in (PRECEDENCE, FIVE_FRONT[:4]):
        assert check_plan(plan_of(jobs, NO_LIMIT, least_snapshot(jobs, CLUSTER, NO_LIMIT))).ok


def test_checks_change_nothing() -> None:
    rng = random.Random(11)
    for i in range(10):
        jobs = random_jobs(rng, 3, gang=i % 5 == 0)
        with_checks = group_front(jobs, CLUSTER, NO_LIMIT)
        assert group_front(jobs, CLUSTER, NO_LIMIT, checks=False) == with_checks, jobs
        cost = least_snapshot(jobs, CLUSTER, NO_LIMIT).usd_per_hour
        assert least_snapshot(jobs, CLUSTER, NO_LIMIT, checks=False).usd_per_hour == cost
    assert group_front(PRECEDENCE, CLUSTER, NO_LIMIT, checks=False) == [(1, 2), (2, 1)]


def test_checks_change_nothing_with_rates() -> None:
    rng, rates = random.Random(12), Limits(max_group_size=0, max_rate=2)
    found = []
    for i in range(8):
        jobs = random_jobs(rng, 2, gang=i % 4 == 0)
        front = group_front(jobs, CLUSTER, rates)
        assert group_front(jobs, CLUSTER, rates, checks=False) == front, jobs
        found.append(front != group_front(jobs, CLUSTER, NO_LIMIT))
    assert min(found.count(True), found.count(False)) >= 1


def test_more_nodes_never_hurt_and_fewer_jobs_never_cost_more() -> None:
    """Facts that the oracle does not use: up to the sum of widths a pin can move from a shared
    node to a new one; a group without one of its jobs is valid on the nodes left."""
    rng = random.Random(5)
    points = 0
    for i in range(16):
        jobs = random_jobs(rng, 3, gang=i % 2 == 0)
        most = [sum(job.rollout_nodes for job in jobs), sum(job.train_nodes for job in jobs)]
        front = group_front(jobs, CLUSTER, NO_LIMIT)
        points += len(front)
        for r, t in product(range(1, most[0] + 1), range(1, most[1] + 1)):
            expected = any(a <= r and b <= t for a, b in front)
            assert group_feasible(jobs, CLUSTER, r, t) is expected, jobs
        for j in range(3):
            fewer = group_front([*jobs[:j], *jobs[j + 1 :]], CLUSTER, NO_LIMIT)
            assert all(any(a <= r and b <= t for a, b in fewer) for r, t in front), (jobs, j)
    assert points >= 6


# --- edges -------------------------------------------------------------------------------------


def test_a_deadline_within_the_solver_tolerance_is_not_guessed() -> None:
    """The least period of the precedence group on (1, 1) is 11.5: that deadline is met, one
    lower by a relative 1e-6 is refused, one lower by 1e-4 is not met."""

    def fits(deadline_s: float) -> bool:
        jobs = jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=deadline_s)
        return group_feasible(jobs, CLUSTER, 1, 1)

    assert fits(11.5)
    with pytest.raises(RuntimeError, match="Too close to call"):
        fits(11.5 * (1 - 1e-6))
    assert not fits(11.5 * (1 - 1e-4))


def test_what_is_outside_the_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 5 jobs"):
        group_feasible(jobs_of((1,) * 6, (1,) * 6), CLUSTER, 1, 1)
    with pytest.raises(ValueError, match="mode sync or one-step, got async"):
        least_snapshot(jobs_of((1,), (1,), mode=("async",)), CLUSTER, NO_LIMIT)
    with pytest.raises(ValueError, match="at most 4 jobs at max_rate 2"):
        group_front(jobs_of((1,) * 5, (1,) * 5), CLUSTER, Limits(max_rate=2))


def test_the_oracle_loads_neither_models_nor_planner() -> None:
    code = "import sys, oracles.least_snapshot; print(*{m.split('.')[0] for m in sys.modules})"
    tests = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "instances" in loaded
    assert not loaded & {"models", "planner"}
