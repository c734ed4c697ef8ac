"""Every bound of a snapshot: in order, below the optimum, and the one the solver reports."""

from __future__ import annotations

from itertools import count

import pytest

from builders import job_of
from instances.errors import InputError
from instances.generate import production
from instances.jobs import JobTable
from instances.plan import Limits
from planner.replay.moment import Selection
from planner.snapshot.bounds import snapshot_bounds
from planner.snapshot.solving import solve_snapshot

ALL = Selection.all_jobs()


@pytest.mark.parametrize(("size", "last"), [(5, "group-lp"), (0, "coupled")])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_rise_and_stay_below_the_optimum(size: int, last: str, seed: int) -> None:
    jobs, limits = production(n_jobs=9, seed=seed, concurrent=True), Limits(max_group_size=size)
    bounds = snapshot_bounds(jobs, select=ALL, limits=limits)
    assert [bound.method for bound in bounds] == ["volume", "pool-decomposition", last]
    usd = [bound.usd_per_hour for bound in bounds]
    assert usd == sorted(usd)
    best = solve_snapshot(jobs, select=ALL, limits=limits, method="exhaustive")
    assert best.usd_per_hour is not None
    assert usd[-1] <= best.usd_per_hour + 1e-6
    assert all(bound.finished and bound.seconds is None for bound in bounds)


def test_the_last_bound_is_that_of_column_generation() -> None:
    jobs = production(n_jobs=12, seed=1, concurrent=True)
    found = solve_snapshot(jobs, select=ALL, method="column-generation")
    last = snapshot_bounds(jobs, select=ALL)[-1]
    assert last.usd_per_hour == pytest.approx(found.bound_usd_per_hour)


def test_with_rates_only_bounds_that_hold_are_given() -> None:
    jobs = production(n_jobs=6, seed=0, concurrent=True)
    bounds = snapshot_bounds(jobs, select=ALL, limits=Limits(max_rate=2))
    assert [bound.method for bound in bounds] == ["volume", "pool-decomposition"]


def test_dedicated_nodes_are_in_every_bound() -> None:
    """One async job on one node of each kind: 8 x (1.85 + 5.28) = $57.04/h on top."""
    shared = production(n_jobs=5, seed=0, concurrent=True)
    lone = job_of("lone", 60, 60, 2, mode="async")
    both = JobTable.from_jobs([*shared, lone])
    alone = snapshot_bounds(JobTable.from_jobs([lone]), select=ALL)
    assert [(bound.method, bound.usd_per_hour) for bound in alone] == [
        ("volume", pytest.approx(57.04))
    ]
    for with_it, without in zip(
        snapshot_bounds(both, select=ALL), snapshot_bounds(shared, select=ALL), strict=True
    ):
        assert with_it.usd_per_hour == pytest.approx(without.usd_per_hour + 57.04)


def test_a_clock_times_each_bound() -> None:
    """A clock that goes one second a look: one before the first bound, one after each."""
    ticks = count()
    jobs = production(n_jobs=4, seed=0, concurrent=True)
    bounds = snapshot_bounds(jobs, select=ALL, clock=lambda: float(next(ticks)))
    assert [bound.seconds for bound in bounds] == [1.0, 1.0, 1.0]


def test_nobody_present_is_refused() -> None:
    with pytest.raises(InputError, match="present"):
        snapshot_bounds(production(n_jobs=4, seed=0), select=Selection.at(1e6))
