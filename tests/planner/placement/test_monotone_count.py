"""Counts of a dearer placer; and least costs and bounds, which relief never makes dearer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import PAIR_USD, cluster_of, job_of, table_of
from instances.errors import InputError
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import Limits
from models.bounds.columns import pool_decomposition
from models.bounds.volume import volume
from models.exact.methods import solve
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
from planner.placement import monotone_count as module
from planner.placement.monotone_count import count_dearer, placed_usd
from small_snapshots import MIXES, random_jobs

LEVELS_GB = (1500.0, 2000.0, 3000.0)


# --- counting -------------------------------------------------------------------------------------


def test_prices_by_hand_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # draws: 100 -> 90 -> 99; None -> 50 -> 50; 80 -> 100 -> 100. Then all jobs against one fewer:
    # 99 -> 100, 50 -> 50, 100 -> 60
    prices = iter([100, 90, 99, 99, 100, None, 50, 50, 50, 50, 80, 100, 100, 100, 60])
    monkeypatch.setattr(module, "placed_usd", lambda *_: next(prices))
    first, second, fewer = count_dearer(
        table_of(*(job_of(name, 1, 1) for name in "abc")), draws=3, n_jobs=2, dram_gb=(1, 2, 3)
    )
    assert (first.draws, first.dearer, first.cheaper) == (2, 1, 1)
    assert first.worst_share == pytest.approx(0.25)
    assert first.dearer_share == 0.5
    assert (second.draws, second.dearer, second.cheaper) == (3, 1, 0)
    assert second.worst_share == pytest.approx(0.1)
    assert (fewer.draws, fewer.dearer, fewer.cheaper) == (3, 1, 1)
    assert fewer.worst_share == pytest.approx(1 / 99)
    assert first.relief == "host DRAM 1 -> 2 GB"
    assert fewer.row["relief"] == "one job fewer"


def test_nothing_to_compare_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "placed_usd", lambda *_: None)
    counts = count_dearer(
        table_of(*(job_of(name, 1, 1) for name in "ab")), draws=2, n_jobs=2, dram_gb=(1, 2)
    )
    assert [(c.draws, c.dearer_share, c.worst_share) for c in counts] == [(0, None, 0.0)] * 2


def test_the_placed_price() -> None:
    # 100 + 100 s in D = 200 share one pair, and 1,200 GB each do not; 2,100 GB fit no node
    pair = [job_of(name, 100, 100, 1.0) for name in "ab"]
    assert placed_usd(table_of(*pair)) == pytest.approx(PAIR_USD)
    heavy = [job_of(name, 100, 100, 1.0, train_state_gb=1200) for name in "ab"]
    assert placed_usd(table_of(*heavy)) == pytest.approx(2 * PAIR_USD)
    assert placed_usd(table_of(*heavy), cluster_of(host_dram_gb=1000)) is None


def test_counts_repeat_and_differ_by_seed() -> None:
    jobs = production(n_jobs=30, seed=4)
    runs = [count_dearer(jobs, draws=10, n_jobs=8, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert all(count.draws == 10 for count in runs[0])


def test_progress_counts_draws() -> None:
    told: list[tuple[int, int]] = []
    jobs = production(n_jobs=5, seed=4)
    count_dearer(jobs, draws=2, n_jobs=2, progress=lambda *at: told.append(at))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("changes", [{"draws": 0}, {"n_jobs": 1}, {"n_jobs": 6}])
def test_senseless_studies_are_refused(changes: Any) -> None:
    with pytest.raises(InputError, match="Expected draws"):
        count_dearer(production(n_jobs=5, seed=4), **{"draws": 2, "n_jobs": 2, **changes})


# --- what is never dearer -------------------------------------------------------------------------


def least_usd(jobs: list[Job], dram_gb: float) -> float:
    """Return the proved least cost."""
    snapshot = Snapshot.of(jobs, cluster_of(host_dram_gb=dram_gb), Limits(max_group_size=4))
    result = solve("exhaustive", snapshot, SolveOptions())
    assert result.usd_per_hour == result.bound_usd_per_hour is not None
    return float(result.usd_per_hour)


def volume_usd(jobs: list[Job], dram_gb: float) -> float:
    cluster = cluster_of(host_dram_gb=dram_gb)
    return volume(JobTable.from_jobs(jobs), cluster, Limits(max_group_size=4)).usd_per_hour


def pools_usd(jobs: list[Job], dram_gb: float) -> float:
    snapshot = Snapshot.of(jobs, cluster_of(host_dram_gb=dram_gb), Limits(max_group_size=4))
    return pool_decomposition(snapshot, SolveOptions().start()).usd_per_hour


PRICES = {"least cost": least_usd, "volume bound": volume_usd, "pool bound": pools_usd}


@pytest.mark.parametrize("price", PRICES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 5), mix=st.sampled_from(["states", "all"]))
def test_more_dram_and_fewer_jobs_never_cost_more(price: str, seed: int, n: int, mix: str) -> None:
    usd_of = PRICES[price]
    rng = random.Random(seed)
    jobs = random_jobs(rng, n, MIXES[mix])
    by_dram = [usd_of(jobs, gb) for gb in LEVELS_GB]
    assert by_dram[0] >= by_dram[1] - 1e-6
    assert by_dram[1] >= by_dram[2] - 1e-6
    gone = rng.randrange(n)
    fewer = [job for i, job in enumerate(jobs) if i != gone]
    assert usd_of(fewer, 2000.0) <= by_dram[1] + 1e-6


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 5))
def test_a_looser_slo_never_costs_more(seed: int, n: int) -> None:
    jobs = random_jobs(random.Random(seed), n, MIXES["all"])
    looser = [replace(job, slo=job.slo + 0.25) for job in jobs]
    for usd_of in PRICES.values():
        assert usd_of(looser, 2000.0) <= usd_of(jobs, 2000.0) + 1e-6
