"""Coupled bound: against the whole LP by scipy, exhaustive search, pools; stopped anywhere."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of, job_of
from clocks import Ticking
from instances.errors import UnsupportedError
from instances.generate import production
from instances.plan import Limits
from models.bounds.columns import Until, pool_decomposition
from models.bounds.coupled import CoupledBound, coupled_bound
from models.bounds.coupled_lp import Master, Periods, refined, whole_windows
from models.exact import methods
from models.problem.options import Deadline, SolveOptions
from models.problem.result import StoppedBy, Termination
from models.problem.snapshot import Snapshot
from small_snapshots import MIXES, Mix, jobs_of, random_jobs, snapshot_of

UNTIL = Until(gap_rel=3e-6)


def bound_of(snapshot: Snapshot, until: Until = UNTIL, **more: Any) -> CoupledBound:
    return coupled_bound(snapshot, SolveOptions().start(), until=until, **more)


def trace_of(n_jobs: int, seed: int) -> Snapshot:
    return Snapshot(table=production(n_jobs=n_jobs, seed=seed), limits=Limits(max_group_size=0))


def columns_of(snapshot: Snapshot) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return every column (pool, period, set), from the rules alone."""
    jobs, cluster = snapshot.jobs, snapshot.cluster
    periods = sorted({job.deadline_s for job in jobs})
    out = []
    for c, period in enumerate(periods):
        most = period * (1 + 1e-9)
        window = [
            j for j, job in enumerate(jobs) if job.solo_s <= most and job.deadline_s >= period
        ]
        for pool, dram in enumerate((cluster.rollout.host_dram_gb, cluster.train.host_dram_gb)):
            loads = [
                (job.rollout_s, job.rollout_switch_s, job.rollout_state_gb)
                if pool == 0
                else (job.train_s, job.train_switch_s, job.train_state_gb)
                for job in jobs
            ]
            for size in range(1, len(window) + 1):
                for some in combinations(window, size):
                    time = sum(loads[j][0] + loads[j][1] for j in some)
                    chain = max(jobs[j].solo_s + loads[j][1] for j in some)
                    state = sum(loads[j][2] for j in some)
                    fits = max(time, chain) <= most and state <= dram * (1 + 1e-10)
                    if size == 1 or fits:
                        out.append((pool, c, some))
    return out


def lp_by_scipy(snapshot: Snapshot) -> float:
    """Return the LP of the docstring, every row and column of it, by another solver."""
    jobs = snapshot.jobs
    periods = sorted({job.deadline_s for job in jobs})
    pairs = [
        (j, c)
        for j, job in enumerate(jobs)
        for c, period in enumerate(periods)
        if job.solo_s <= period * (1 + 1e-9) and job.deadline_s >= period
    ]
    row = {pair: i for i, pair in enumerate(pairs)}
    columns = columns_of(snapshot)
    n, m = len(jobs), len(pairs)
    left = np.zeros((n + 2 * m, m + len(columns)))
    right = np.zeros(n + 2 * m)
    right[:n] = -1.0
    for (j, _), i in row.items():
        left[j, i] = -1.0
        left[n + i, i] = jobs[j].rollout_nodes
        left[n + m + i, i] = jobs[j].train_nodes
    cost = np.zeros(m + len(columns))
    for k, (pool, c, some) in enumerate(columns):
        cost[m + k] = (snapshot.usd_per_hour(1, 0), snapshot.usd_per_hour(0, 1))[pool]
        for j in some:
            left[n + pool * m + row[j, c], m + k] = -1.0
    found = linprog(cost, A_ub=left, b_ub=right, method="highs")
    assert found.status == 0, found.message
    return float(found.fun)


# --- against the whole LP and the optimum -------------------------------------------------------


@pytest.mark.parametrize("mix", MIXES.values(), ids=repr)
def test_equals_the_lp_over_all_columns(mix: Mix) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        jobs = random_jobs(rng, rng.randint(1, 9), mix, together=rng.random() < 0.5)
        snapshot = snapshot_of(jobs, size=0)
        bound = bound_of(snapshot)
        assert bound.usd_per_hour == pytest.approx(lp_by_scipy(snapshot), rel=3e-6)
        assert bound.exact
        assert bound.lp_usd == pytest.approx(bound.usd_per_hour, rel=3e-6)


@given(st.integers(0, 10**6), st.sampled_from(sorted(MIXES)), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_never_above_the_optimum(seed: int, mix: str, n: int) -> None:
    rng = random.Random(seed)
    jobs = random_jobs(rng, n, MIXES[mix], together=rng.random() < 0.75)
    snapshot = snapshot_of(jobs, size=0)
    best = methods.solve("exhaustive", snapshot, SolveOptions())
    if best.termination is Termination.INFEASIBLE:
        return
    assert best.usd_per_hour is not None
    assert bound_of(snapshot).usd_per_hour <= best.usd_per_hour * (1 + 1e-9)


@given(st.integers(0, 10**6), st.sampled_from(sorted(MIXES)))
@settings(max_examples=30, deadline=None)
def test_never_below_pool_decomposition(seed: int, mix: str) -> None:
    rng = random.Random(seed)
    jobs = random_jobs(rng, rng.randint(1, 12), MIXES[mix], together=rng.random() < 0.5)
    snapshot = snapshot_of(jobs, size=0)
    pools = pool_decomposition(snapshot, SolveOptions().start(), until=UNTIL)
    least = ROLLOUT_USD * pools.rollout.nodes_lp + TRAIN_USD * pools.train.nodes_lp
    bound = bound_of(snapshot, start=pools)
    assert bound.usd_per_hour >= least
    assert bound.exact


def test_gains_over_pool_decomposition_on_a_trace() -> None:
    # how much is the instance's business; that it gains is the method's
    snapshot = trace_of(30, 0)
    pools = pool_decomposition(snapshot, SolveOptions().start(), until=UNTIL)
    least = ROLLOUT_USD * pools.rollout.nodes_lp + TRAIN_USD * pools.train.nodes_lp
    bound = bound_of(snapshot, start=pools)
    assert bound.exact
    assert bound.usd_per_hour > least * 1.005


# --- minimal pairs ------------------------------------------------------------------------------


def test_pools_that_fit_at_different_periods_only() -> None:
    # Windows: a {10}, b {10, 12}, c {12}. Rollouts (3, 6, 7): a and b share a node at 10 (9 s), b
    # and c never (13 s). Trains (7, 4, 4): b and c share at 12 (8 s), a and b never (11 s).
    # Decomposed: rollouts {a, b}, {c} and trains {a}, {b, c}. Coupled, of b a share h has period
    # 10: 3 - h rollout and 2 + h train nodes, least at h = 0, where b goes with c.
    jobs = [job_of("a", 3, 7, 1.0), job_of("b", 6, 4, 12 / 10), job_of("c", 7, 4, 12 / 11)]
    snapshot = snapshot_of(jobs)
    assert pool_decomposition(snapshot, SolveOptions().start()).usd_per_hour == pytest.approx(
        2 * PAIR_USD
    )
    least = 3 * ROLLOUT_USD + 2 * TRAIN_USD
    assert bound_of(snapshot).usd_per_hour == pytest.approx(least)
    best = methods.solve("exhaustive", snapshot, SolveOptions())
    assert best.usd_per_hour == pytest.approx(least)
    # a as late as 12: of the trains any two share (11, 11, 8 s), so the LP counts 3/2 nodes, and 2
    # of rollouts, as b and c still do not share
    later = snapshot_of([job_of("a", 3, 7, 1.2), *jobs[1:]])
    assert bound_of(later).usd_per_hour == pytest.approx(2 * ROLLOUT_USD + 1.5 * TRAIN_USD)


def test_a_gang_needs_its_width() -> None:
    # alone: 2 rollout nodes and 3 train nodes, whatever the period
    snapshot = snapshot_of(jobs_of((4,), (3,), rollout_nodes=(2,), train_nodes=(3,)))
    assert bound_of(snapshot).usd_per_hour == pytest.approx(2 * ROLLOUT_USD + 3 * TRAIN_USD)


def test_a_switch_ends_sharing() -> None:
    # D = 6: two jobs of 3 + 3 fill one node of each kind, unless each phase pays 0.5 s more
    free = jobs_of((3, 3), (3, 3), deadline_s=6)
    paid = jobs_of((3, 3), (3, 3), deadline_s=6, rollout_switch_s=(0.5, 0.5))
    assert bound_of(snapshot_of(free)).usd_per_hour == pytest.approx(PAIR_USD)
    assert bound_of(snapshot_of(paid)).usd_per_hour == pytest.approx(2 * ROLLOUT_USD + TRAIN_USD)


@pytest.mark.parametrize(
    ("rollout_usd", "train_usd"), [(0.0, TRAIN_USD), (ROLLOUT_USD, 0.0), (0, 0)]
)
def test_a_pool_that_costs_nothing(rollout_usd: float, train_usd: float) -> None:
    cluster = cluster_of(rollout_usd=rollout_usd, train_usd=train_usd)
    snapshot = snapshot_of(jobs_of((3, 3, 4), (3, 2, 2), deadline_s=6.5), cluster=cluster)
    # rollouts 10 s and trains 7 s in 6.5 s: the LP counts 2 nodes of each, from whole sets
    assert bound_of(snapshot).usd_per_hour == pytest.approx(lp_by_scipy(snapshot), abs=1e-9)


# --- rows as needed -----------------------------------------------------------------------------


def test_segments_are_cut_where_the_pools_differ() -> None:
    window = np.array([[True, True, True, True], [False, True, True, False]])
    segments = whole_windows(window)
    assert segments.tolist() == [[0, 0, 0, 0], [-1, 1, 1, -1]]
    # job 0: rollout covers it at periods 0 and 1, train at 2 and 3: cut between, and no further
    # cut matters more than 0.3; job 1 is covered at the same period by both
    left = np.array([[0.75, 0.25, -0.75, -0.25], [0.0, 0.0, 0.0, 0.0]])
    cut = refined(segments, left, np.array([1.0, 1.0]), 0.8)
    assert cut.tolist() == [[0, 0, 1, 1], [-1, 2, 2, -1]]
    assert refined(segments, left, np.array([0.5, 1.0]), 0.8).tolist() == segments.tolist()


def test_a_master_of_whole_windows_is_pool_decomposition() -> None:
    snapshot = trace_of(12, 1)
    pools = pool_decomposition(snapshot, SolveOptions().start(), until=UNTIL)
    periods = Periods(snapshot)
    master = Master(periods, whole_windows(periods.window), 0)
    deadline = SolveOptions().start()
    for _ in range(100):
        master.solve(1e-9, deadline)
        _, u = master.duals()
        priced = [periods.price(pool, u[pool], 1 + 1e-9, 5, 1, deadline) for pool in (0, 1)]
        if not sum(master.add(pool, priced[pool].columns) for pool in (0, 1)):
            break
    least = ROLLOUT_USD * pools.rollout.nodes_lp + TRAIN_USD * pools.train.nodes_lp
    assert master.objective_usd == pytest.approx(least, rel=3e-6)


# --- stopped anywhere ---------------------------------------------------------------------------


def test_valid_and_monotone_after_every_round() -> None:
    snapshot = trace_of(25, 2)
    final = bound_of(snapshot)
    assert final.exact
    held = [
        bound_of(snapshot, Until(rounds=rounds, gap_rel=1e-6)) for rounds in range(final.rounds)
    ]
    values = [bound.usd_per_hour for bound in held]
    assert values == sorted(values)
    assert values[-1] <= final.usd_per_hour * (1 + 1e-9)
    assert values[0] < final.usd_per_hour
    assert {bound.stopped_by for bound in held} == {StoppedBy.WORK}
    assert (held[0].lp_usd, held[0].exact) == (None, False)


@pytest.mark.parametrize("ticks", [0.0, 1.0, 5.0, 20.0, 60.0, 150.0])
def test_valid_whenever_time_ends(ticks: float) -> None:
    snapshot = trace_of(25, 2)
    stopped = coupled_bound(snapshot, Deadline(Ticking(), ticks))
    assert stopped.stopped_by is StoppedBy.TIME
    assert 0 < stopped.usd_per_hour <= bound_of(snapshot).usd_per_hour * (1 + 1e-9)


def test_ctrl_c_leaves_what_is_held() -> None:
    def interrupt(_what: str, _done: int, rounds: int) -> None:
        if rounds == 3:
            raise KeyboardInterrupt

    snapshot = trace_of(25, 2)
    pools = pool_decomposition(snapshot, SolveOptions().start())
    bound = bound_of(snapshot, start=pools, progress=interrupt)
    assert (bound.stopped_by, bound.rounds, bound.exact) == (StoppedBy.INTERRUPT, 3, False)
    assert 0 < bound.usd_per_hour <= bound_of(snapshot).usd_per_hour * (1 + 1e-9)


def test_same_seed_same_answer_on_any_threads() -> None:
    snapshot = trace_of(20, 3)
    one, two = bound_of(snapshot), bound_of(snapshot, threads=2)
    assert one == two


def test_an_empty_snapshot_costs_nothing() -> None:
    bound = bound_of(snapshot_of([]))
    assert (bound.usd_per_hour, bound.exact, bound.stopped_by) == (0.0, True, None)


@pytest.mark.parametrize("limits", [Limits(max_group_size=5), Limits(max_group_size=0, max_rate=2)])
def test_refuses_other_limits(limits: Limits) -> None:
    snapshot = Snapshot.of([job_of("a", 1, 1)], limits=limits)
    with pytest.raises(UnsupportedError, match="coupled bound"):
        bound_of(snapshot)
