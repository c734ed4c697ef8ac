"""Pool decomposition: against the LP of all feasible sets, against optima, stopped anywhere."""

from __future__ import annotations

import dataclasses
import itertools
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from builders import cluster_of
from clocks import Ticking
from instances import generate
from instances.errors import InputError
from instances.plan import Limits
from models.bounds import columns
from models.bounds.columns import (
    Until,
    pool_bound,
    pool_decomposition,
    whole_nodes,
)
from models.bounds.first_fit import first_fit, packings
from models.bounds.pool_duals import dual_bound, easier_pairs
from models.bounds.pool_items import POOLS, PoolItems
from models.bounds.pool_packings import is_packing, price_and_branch
from models.bounds.volume import volume
from models.exact.methods import solve
from models.problem.options import Deadline, SolveOptions
from models.problem.result import StoppedBy
from models.problem.snapshot import Snapshot
from small_snapshots import MIXES, jobs_of, random_snapshot, snapshot_of

#: Of LP solvers, relative.
NEAR = 1e-6


def endless() -> Deadline:
    return SolveOptions().start()


def feasible_sets(items: PoolItems) -> Iterator[tuple[int, ...]]:
    for size in range(1, len(items) + 1):
        for members in itertools.combinations(range(len(items)), size):
            if size == 1 or items.feasible(members):
                yield members


def lp_of_all_sets(items: PoolItems) -> float:
    """Return the best fractional packing by another solver over all feasible sets."""
    sets = list(feasible_sets(items))
    cover = np.zeros((len(items), len(sets)))
    for at, members in enumerate(sets):
        cover[list(members), at] = 1.0
    found = linprog(np.ones(len(sets)), A_ub=-cover, b_ub=-items.width, method="highs")
    return float(found.fun)


def random_items(seed: int, n: int, mix: str, pool: Any = "train", rate: int = 1) -> PoolItems:
    rng = random.Random(seed)
    snapshot = random_snapshot(rng, n, MIXES[mix], limited=True)
    limits = Limits(max_group_size=snapshot.limits.max_group_size, max_rate=rate)
    return PoolItems.of(Snapshot(table=snapshot.table, limits=limits), pool)


def items_of(n: int, size: int = 0, pool: Any = "train", seed: int = 0) -> PoolItems:
    table = generate.production(n_jobs=n, seed=seed)
    return PoolItems.of(Snapshot(table=table, limits=Limits(max_group_size=size)), pool)


# --- value --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", sorted(MIXES))
@pytest.mark.parametrize("rate", [1, 2])
def test_the_bound_is_the_lp_of_all_sets(mix: str, rate: int) -> None:
    rng = random.Random(mix)
    for pool in POOLS:
        for _ in range(4):
            items = random_items(rng.randrange(10**6), rng.randint(1, 10), mix, pool, rate)
            bound = pool_bound(items, endless())
            value = lp_of_all_sets(items)
            assert bound.exact
            assert bound.stopped_by is None
            assert bound.nodes_lp == pytest.approx(value, rel=NEAR)
            assert bound.lp_value == pytest.approx(value, rel=NEAR)
            assert bound.nodes == whole_nodes(value)


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_interior_point_gives_the_same(mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master and the smoothed duals of many jobs, here made those of few."""
    monkeypatch.setattr(columns, "_MOST_SIMPLEX", 0)
    monkeypatch.setattr(columns, "_MOST_SIMPLEX_DIVE", 0)
    rng = random.Random(mix)
    for _ in range(4):
        items = random_items(rng.randrange(10**6), 9, mix)
        bound = pool_bound(items, endless())
        assert bound.nodes_lp == pytest.approx(lp_of_all_sets(items), rel=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(sorted(MIXES)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_bound_is_at_most_the_optimum(seed: int, n: int, mix: str, more: bool) -> None:
    rng = random.Random(seed)
    snapshot = random_snapshot(rng, n, MIXES[mix], limited=True, capped=more)
    result = solve("exhaustive", snapshot, SolveOptions())
    bound = pool_decomposition(snapshot, endless())
    assert bound.limits == snapshot.limits
    if result.usd_per_hour is not None:
        assert bound.usd_per_hour <= result.usd_per_hour * (1 + 1e-9)
    least = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    assert bound.rollout.nodes >= least.rollout_nodes
    assert bound.train.nodes >= least.train_nodes
    assert bound.usd_per_hour == pytest.approx(
        snapshot.usd_per_hour(bound.rollout.nodes, bound.train.nodes)
    )


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(sorted(MIXES)))
@settings(max_examples=25, deadline=None)
def test_with_rates_the_bound_is_at_most_the_optimum(seed: int, n: int, mix: str) -> None:
    drawn = random_snapshot(random.Random(seed), n, MIXES[mix])
    snapshot = Snapshot(table=drawn.table, limits=Limits(max_group_size=3, max_rate=3))
    result = solve("exhaustive", snapshot, SolveOptions())
    bound = pool_decomposition(snapshot, endless())
    if result.usd_per_hour is not None:
        assert bound.usd_per_hour <= result.usd_per_hour * (1 + 1e-9)


def test_three_jobs_of_half_a_node_and_a_bit() -> None:
    """Train loads 4, 3, 3 of C = 6: pairs (3, 3) only, so 2 nodes where the volume is 10/6."""
    items = PoolItems.of(snapshot_of(jobs_of((1, 1, 1), (4, 3, 3), deadline_s=6)), "train")
    bound = pool_bound(items, endless())
    assert items.volume() == pytest.approx(10 / 6)
    assert (bound.nodes_lp, bound.nodes, bound.exact) == (pytest.approx(2.0), 2, True)


def test_every_pair_of_three_shares_a_node() -> None:
    """State 1000 of 2000 GB each: three pairs at 1/2, 1.5 nodes, so 2."""
    jobs = jobs_of((1, 1, 1), (1, 1, 1), deadline_s=60, train_state_gb=(1000,) * 3)
    bound = pool_bound(PoolItems.of(snapshot_of(jobs), "train"), endless())
    assert (bound.nodes_lp, bound.nodes) == (pytest.approx(1.5), 2)


def test_no_job_needs_no_node() -> None:
    bound = pool_decomposition(snapshot_of([]), endless())
    assert (bound.usd_per_hour, bound.rollout.nodes, bound.rollout.exact) == (0.0, 0, True)


# --- parts --------------------------------------------------------------------------------------


def test_the_dual_bound_takes_the_best_height() -> None:
    """Duals 1, 1, widths 3, 1; V = (1, 2): at 1 it is 4 + 1 (1 - 2) = 3, by Farley 4 / 2 = 2."""
    found = dual_bound(np.array([1.0, 1.0]), np.array([3, 1]), np.array([1.0, 2.0]))
    assert found == pytest.approx(3.0)
    assert dual_bound(np.ones(2), np.array([3, 1]), np.array([np.inf, 1.0])) == 0.0
    assert dual_bound(np.ones(2), np.array([3, 1]), np.array([0.2, 0.3])) == pytest.approx(4.0)


@given(st.integers(0, 10**6), st.sampled_from(sorted(MIXES)))
@settings(max_examples=40, deadline=None)
def test_any_duals_give_a_bound(seed: int, mix: str) -> None:
    """Random duals, and the true most value of the sets that each job leads."""
    items = random_items(seed, 6, mix)
    duals = np.random.default_rng(seed).uniform(0, 1.5, len(items))
    rank = {int(j): i for i, j in enumerate(items.leaders)}
    most = np.zeros(len(items))
    for members in feasible_sets(items):
        leader = min(members, key=rank.__getitem__)
        most[leader] = max(most[leader], duals[list(members)].sum())
    assert dual_bound(duals, items.width, most) <= lp_of_all_sets(items) * (1 + NEAR)


@given(st.integers(0, 10**6), st.sampled_from(sorted(MIXES)))
@settings(max_examples=40, deadline=None)
def test_easier_jobs_may_replace_harder_ones(seed: int, mix: str) -> None:
    items = random_items(seed, 6, mix)
    sets = set(feasible_sets(items))
    for a, b in easier_pairs(items).tolist():
        assert items.width[a] <= items.width[b]
        for members in sets:
            if b in members and a not in members:
                assert tuple(sorted({a, *members} - {b})) in sets


def test_easier_pairs_skip_what_others_imply() -> None:
    """Loads 1 < 2 < 3, else alike: 0 -> 1 -> 2 and not 0 -> 2; equal jobs go by index."""
    jobs = jobs_of((1, 1, 1, 1), (1, 2, 3, 3), (5, 4, 3, 3), deadline_s=20)
    pairs = easier_pairs(PoolItems.of(snapshot_of(jobs), "train"))
    assert pairs.tolist() == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_columns_are_feasible_and_distinct(mix: str) -> None:
    rng = random.Random(mix)
    for _ in range(5):
        items = random_items(rng.randrange(10**6), 10, mix)
        bound = pool_bound(items, endless())
        sets = [tuple(row[row >= 0].tolist()) for row in bound.columns]
        assert len(set(sets)) == len(sets) == bound.columns_generated
        assert all(items.feasible(members) for members in sets)


# --- stopped ------------------------------------------------------------------------------------


def test_more_rounds_never_lower_the_bound_nor_raise_the_master() -> None:
    items = items_of(80)
    found = [pool_bound(items, endless(), until=Until(rounds=r)) for r in range(12)]
    best = pool_bound(items, endless())
    for fewer, more in itertools.pairwise([*found, best]):
        assert fewer.nodes_lp <= more.nodes_lp
        if fewer.lp_value is not None and more.lp_value is not None:
            assert fewer.lp_value >= more.lp_value - NEAR
    assert [bound.rounds for bound in found[:4]] == [0, 1, 2, 3]
    assert {bound.stopped_by for bound in found[:4]} == {StoppedBy.WORK}
    assert found[0].nodes_lp == items.volume() < best.nodes_lp
    assert best.exact
    assert not found[1].exact


@pytest.mark.parametrize("ticks", [1, 2, 3, 5, 9, 14, 20, 40])
def test_stopped_by_a_clock_it_is_a_bound(ticks: int) -> None:
    """The clock ticks at every look, so the limit is hit at ever later steps."""
    items = items_of(80)
    whole = pool_bound(items, endless())
    bound = pool_bound(items, Deadline(Ticking(), float(ticks)))
    assert items.volume() <= bound.nodes_lp <= whole.nodes_lp * (1 + NEAR)
    assert (bound.stopped_by is StoppedBy.TIME) is not bound.exact


def test_a_past_deadline_returns_the_volume_bound() -> None:
    snapshot = snapshot_of(jobs_of((1, 1, 1), (4, 3, 3), deadline_s=6))
    bound = pool_decomposition(snapshot, Deadline(Ticking(), 0.0))
    least = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    assert bound.usd_per_hour == least.usd_per_hour
    assert (bound.rollout.stopped_by, bound.train.stopped_by) == (StoppedBy.TIME, StoppedBy.TIME)
    assert (bound.train.lp_value, bound.train.exact) == (None, False)


def pressing(at: int) -> tuple[list[int], Any]:
    """Return a progress callback that presses Ctrl-C at its so-manieth call, and its calls."""
    calls: list[int] = []

    def press(_what: str, done: int, _total: int) -> None:
        calls.append(done)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)

    return calls, press


@pytest.mark.parametrize("rounds", [1, 3])
def test_ctrl_c_returns_what_is_held(rounds: int) -> None:
    items = items_of(80)
    calls, press = pressing(rounds)
    bound = pool_bound(items, endless(), progress=press)
    assert (len(calls), bound.rounds, bound.stopped_by) == (rounds, rounds, StoppedBy.INTERRUPT)
    same = pool_bound(items, endless(), until=Until(rounds=rounds))
    assert (bound.nodes_lp, bound.lp_value) == (same.nodes_lp, same.lp_value)


def test_after_ctrl_c_the_other_pool_is_not_begun() -> None:
    table = generate.production(n_jobs=80, seed=0)
    snapshot = Snapshot(table=table, limits=Limits(max_group_size=0))
    calls, press = pressing(1)
    bound = pool_decomposition(snapshot, endless(), progress=press)
    assert len(calls) == 1
    assert (bound.rollout.stopped_by, bound.train.stopped_by) == (StoppedBy.INTERRUPT,) * 2
    assert bound.train.nodes_lp == PoolItems.of(snapshot, "train").volume()


def test_a_bound_that_rounds_up_as_high_as_the_master_is_enough() -> None:
    items = items_of(200)
    whole, best = (pool_bound(items, endless(), until=Until(whole=w)) for w in (True, False))
    assert whole.nodes == best.nodes
    assert whole.rounds < best.rounds


def test_the_same_seed_gives_the_same_and_threads_change_nothing() -> None:
    items = items_of(90, 5)
    one, again, two = (pool_bound(items, endless(), seed=4, threads=t) for t in (1, 1, 2))
    for other in (again, two):
        assert np.array_equal(one.duals, other.duals)
        assert np.array_equal(one.columns, other.columns)
        assert (one.nodes_lp, one.lp_value, one.rounds) == (
            other.nodes_lp,
            other.lp_value,
            other.rounds,
        )


def test_purging_does_not_change_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(80)
    whole = pool_bound(items, endless())
    monkeypatch.setattr(columns, "_PURGE_ABOVE", 3)
    purged = pool_bound(items, endless())
    assert len(purged.columns) <= 3 * 80 < len(whole.columns)
    assert purged.nodes_lp == pytest.approx(whole.nodes_lp, rel=1e-5)


def test_search_budgets_only_loosen_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(80, 5)
    whole = pool_bound(items, endless())
    monkeypatch.setattr(columns, "_BUDGET", 1)
    monkeypatch.setattr(columns, "_MOST_BUDGET", 1)
    short = pool_bound(items, endless())
    assert items.volume() <= short.nodes_lp <= whole.nodes_lp * (1 + NEAR)


@pytest.mark.parametrize("bad", [{"rounds": -1}, {"rounds": True}, {"gap_rel": 0.0}])
def test_a_wrong_rule_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Expected"):
        Until(**bad)


# --- whole packings -----------------------------------------------------------------------------


@pytest.mark.parametrize("mix", sorted(MIXES))
@pytest.mark.parametrize("rate", [1, 2])
def test_packings_hold_every_job(mix: str, rate: int) -> None:
    rng = random.Random(mix)
    draw = np.random.default_rng(1)
    for _ in range(6):
        items = random_items(rng.randrange(10**6), 9, mix, rate=rate)
        for packing in packings(items, draw, 4):
            assert is_packing(items, packing)
        bound = pool_bound(items, endless())
        bins = price_and_branch(items, bound, endless())
        assert is_packing(items, bins)
        assert len(bins) >= bound.nodes


def test_first_fit_goes_on_from_open_bins() -> None:
    """Loads 3, 3, 2 of 6; bin (0) is open: 1 joins it, 2 opens the next."""
    items = PoolItems.of(snapshot_of(jobs_of((1, 1, 1), (3, 3, 2), deadline_s=6)), "train")
    assert first_fit(items, np.arange(3), [(0,)]) == [(0, 1), (2,)]


def test_not_a_packing() -> None:
    jobs = jobs_of((1, 1), (3, 3), deadline_s=6, train_nodes=(2, 1))
    items = PoolItems.of(snapshot_of(jobs), "train")
    assert is_packing(items, [(0, 1), (0,)])
    assert not is_packing(items, [(0, 1)])
    assert not is_packing(items, [(0, 0), (1,)])


def test_a_late_or_stopped_dive_still_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(80)
    bound = pool_bound(items, endless())
    whole = price_and_branch(items, bound, endless())
    assert whole == price_and_branch(items, bound, endless())
    for ticks in (0, 3, 30):
        assert is_packing(items, price_and_branch(items, bound, Deadline(Ticking(), float(ticks))))
    monkeypatch.setattr(columns.Generation, "_price", _press)
    bins = price_and_branch(items, dataclasses.replace(bound, nodes=0), endless())
    assert is_packing(items, bins)
    assert len(bins) >= len(whole)


def _press(*_: object) -> npt.NDArray[np.float64]:
    raise KeyboardInterrupt


def test_prices_and_dram_scale_the_bound() -> None:
    """Twice the price, twice the cost; more DRAM never costs more."""
    table = generate.production(n_jobs=40, seed=2)
    limits = Limits(max_group_size=0)
    usd = [
        pool_decomposition(Snapshot(table=table, cluster=cluster, limits=limits), endless())
        for cluster in (
            cluster_of(),
            cluster_of(rollout_usd=2 * 14.80, train_usd=2 * 42.24),
            cluster_of(host_dram_gb=4000),
        )
    ]
    assert usd[1].usd_per_hour == pytest.approx(2 * usd[0].usd_per_hour)
    assert usd[2].usd_per_hour <= usd[0].usd_per_hour
