"""Snapshots with one-step jobs: all methods agree with the oracle, bounds stay below it."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import replan_cases
from instances.jobs import JobTable
from models.bounds.columns import pool_decomposition
from models.bounds.coupled import coupled_bound
from models.bounds.group_lp import group_lp_bound
from models.bounds.volume import volume
from models.exact.methods import METHODS, solve
from models.exact.milp import build
from models.group.group_cost import GroupCost
from models.problem.options import Deadline, SolveOptions
from models.problem.result import Termination
from models.problem.snapshot import Snapshot
from models.why_not.conflict import group_explanation
from one_step_cases import mixed, mixed_rates, mixed_snapshot
from oracles.least_snapshot import Counts
from replan_cases import problems, random_case, replanned
from small_snapshots import jobs_of, oracle_front, oracle_of, snapshot_of

PAIR_USD = 57.04  # $/h of one node of each kind: 14.80 + 42.24
ROLLOUT_USD = 14.80


def never() -> Deadline:
    return SolveOptions().start()


def usd_by_method(snapshot: Snapshot) -> dict[str, float | None]:
    out = {}
    for method in METHODS:
        if method == "milp" and snapshot.limits.max_rate > 1:
            continue
        result = solve(method, snapshot, SolveOptions())
        assert result.termination in (Termination.OPTIMAL, Termination.INFEASIBLE), method
        out[method] = result.usd_per_hour
    return out


# --- by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "slo", "usd"),
    [
        # (6, 6) each: sync alone 12, together 12 on one node of each kind (open shop)
        (("sync", "sync"), 1.0, PAIR_USD),
        # one-step alone 6: both nodes busy all the time, so at slo 1 nothing is shared
        (("one-step", "one-step"), 1.0, 2 * PAIR_USD),
        # at slo 2 they share both nodes, 12 s a period
        (("one-step", "one-step"), 2.0, PAIR_USD),
        # the one-step job's deadline of 6 holds no sync iteration of 12
        (("one-step", "sync"), 1.0, 2 * PAIR_USD),
        (("one-step", "sync"), 2.0, PAIR_USD),
    ],
)
def test_two_jobs_by_hand(modes: tuple[str, str], slo: float, usd: float) -> None:
    jobs = jobs_of((6, 6), (6, 6), mode=modes, slo=(slo, slo))
    snapshot = snapshot_of(jobs)
    for method, found in usd_by_method(snapshot).items():
        assert found == pytest.approx(usd), method
    assert oracle_of(snapshot).usd_per_hour == pytest.approx(usd)


def test_what_waits_less_needs_less() -> None:
    """``r = (5, 5, 1), t = (2, 3, 6), s = (2, 3, 0)`` has no schedule of 11 (FORMULATION 4).

    Where the first rollout does not wait for its own train, it has.
    """
    columns = (5, 5, 1), (2, 3, 6), (2, 3, 0)
    sync = snapshot_of(jobs_of(*columns, deadline_s=11))
    jobs = jobs_of(*columns, mode=("one-step", "sync", "sync"), slo=(11 / 5, 1.0, 11 / 7))
    assert [job.deadline_s for job in jobs] == pytest.approx([11, 11, 11])
    for method, usd in usd_by_method(snapshot_of(jobs)).items():
        assert usd == pytest.approx(PAIR_USD), method
    for method, usd in usd_by_method(sync).items():
        assert usd is not None
        assert usd > PAIR_USD + ROLLOUT_USD - 1e-6, method


def test_a_switch_may_cost_a_one_step_job_no_time() -> None:
    """(8, 2) with a train switch of 6: alone 8 s, and still 8 s when it pays 2 + 6.

    Bounds that added it to T_j would not let it share its train node within 8 s.
    """
    jobs = jobs_of(
        (8, 4), (2, 2), mode=("one-step", "one-step"), slo=(1.25, 2.5), train_switch_s=(6, 0)
    )
    assert [job.deadline_s for job in jobs] == [10, 10]
    snapshot = snapshot_of(jobs, size=2)
    usd = 2 * ROLLOUT_USD + PAIR_USD - ROLLOUT_USD
    assert oracle_of(snapshot).usd_per_hour == pytest.approx(usd)
    for method, found in usd_by_method(snapshot).items():
        assert found == pytest.approx(usd), method
    assert pool_decomposition(snapshot, never()).usd_per_hour <= usd + 1e-6
    assert group_lp_bound(snapshot, never()).usd_per_hour <= usd + 1e-6


def test_the_milp_has_no_other_variable_for_sync_jobs() -> None:
    """One more lap per one-step job; a model of sync jobs is as it was."""
    jobs = jobs_of((3, 4), (2, 2), mode=("sync", "one-step"))
    assert list(build(snapshot_of(jobs)).lap_more) == [1]
    assert not build(snapshot_of(jobs_of((3, 4), (2, 2)))).lap_more


# --- at random ----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_all_methods_agree_with_the_oracle(seed: int, n: int) -> None:
    snapshot = mixed_snapshot(random.Random(seed), n)
    expected = oracle_of(snapshot).usd_per_hour
    for method, usd in usd_by_method(snapshot).items():
        assert usd == (None if expected is None else pytest.approx(expected, rel=1e-9)), method


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(2, 3), st.integers(2, 3))
def test_all_methods_agree_with_rates(seed: int, n: int, max_rate: int) -> None:
    snapshot = mixed_rates(random.Random(seed), n, max_rate)
    expected = oracle_of(snapshot).usd_per_hour
    for method, usd in usd_by_method(snapshot).items():
        assert usd == pytest.approx(expected, rel=1e-9), method


@cache
def optima() -> tuple[tuple[Snapshot, float], ...]:
    """Return snapshots of three to seven jobs that have a plan, each with its least cost."""
    rng = random.Random(71)
    out = []
    while len(out) < 60:
        snapshot = mixed_snapshot(rng, rng.randint(3, 7))
        usd = solve("exhaustive", snapshot, SolveOptions()).usd_per_hour
        if usd is not None:
            out.append((snapshot, usd))
    return tuple(out)


def test_bounds_never_exceed_the_optimum() -> None:
    tight = 0
    for snapshot, usd in optima():
        most = usd * (1 + 1e-9)
        size = snapshot.limits.max_group_size
        best = coupled_bound(snapshot, never()) if not size else group_lp_bound(snapshot, never())
        assert best.usd_per_hour <= most, snapshot.jobs
        assert pool_decomposition(snapshot, never()).usd_per_hour <= most, snapshot.jobs
        assert volume(snapshot.table, snapshot.cluster, snapshot.limits).usd_per_hour <= most
        tight += best.usd_per_hour >= usd * (1 - 1e-6)
    assert tight >= 20


def test_one_step_costs_no_more_at_the_deadlines_of_sync() -> None:
    """Whatever is valid for a sync job is valid for it when fewer things wait (same deadlines)."""
    cheaper = 0
    for seed in range(25):
        rng = random.Random(seed)
        columns = [[float(rng.randint(low, 6)) for _ in range(4)] for low in (1, 1, 0)]
        slo = [rng.choice((1.0, 1.25, 1.5)) for _ in range(4)]
        table = snapshot_of(jobs_of(*columns, slo=slo)).table
        least = solve("exhaustive", Snapshot(table=table), SolveOptions()).usd_per_hour
        stepped = table.replace(mode=("one-step",) * 4)
        stepped = stepped.replace(slo=table.deadline_s / stepped.solo_s)
        found = solve("exhaustive", Snapshot(table=stepped), SolveOptions()).usd_per_hour
        assert least is not None
        assert found is not None
        assert found <= least * (1 + 1e-9)
        cheaper += found < least * (1 - 1e-6)
    assert cheaper >= 3


def _exists(points: list[Counts], nodes: Counts | None) -> bool:
    return any(nodes is None or (r <= nodes[0] and t <= nodes[1]) for r, t in points)


def test_conflicts_are_those_of_the_oracle() -> None:
    told = 0
    for seed in range(40):
        rng = random.Random(seed)
        snapshot = mixed_snapshot(rng, rng.randint(2, 4))
        members, nodes = tuple(range(len(snapshot))), rng.choice((None, (1, 1), (2, 1), (1, 2)))
        found = group_explanation(GroupCost(snapshot), members, nodes)
        size = snapshot.limits.max_group_size
        exists = not (size and len(members) > size) and _exists(
            oracle_front(snapshot, members), nodes
        )
        assert (found is None) == exists, (snapshot.jobs, nodes)
        told += found is not None
    assert told >= 10


def test_replanning_is_never_better_than_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    make = replan_cases.random_snapshot

    def some_one_step(rng: random.Random, *args: Any, **more: Any) -> Snapshot:
        snapshot = make(rng, *args, **more)
        table = JobTable.from_jobs(mixed(rng, list(snapshot.jobs)))
        return Snapshot(table=table, cluster=snapshot.cluster, limits=snapshot.limits)

    monkeypatch.setattr(replan_cases, "random_snapshot", some_one_step)
    rng, equal = random.Random(73), 0
    for _ in range(25):
        case = random_case(rng, 4)
        found, least = replanned(case), case.oracle()
        assert problems(case.snapshot, case.hosts, found) == []
        assert found.value_usd >= least - 1e-3
        equal += math.isclose(found.value_usd, least, abs_tol=1e-3)
    assert equal >= 20
