"""Plans and bounds at any size: which bounds are asked, in how much time, and what is held."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import models.bounds.columns
import models.bounds.coupled
import models.bounds.group_lp
import planner.placement.local_search
from clocks import Ticking
from instances.generate import production
from instances.plan import Limits
from models.exact.methods import solve as solve_exactly
from models.problem.options import Deadline, SolveOptions
from models.problem.result import StoppedBy, Termination
from models.problem.snapshot import Snapshot
from planner.placement import bounded_search
from planner.placement.bounded_search import METHODS, solve
from planner.snapshot.solving import solve_snapshot, warm_start
from small_snapshots import MIXES, jobs_of, random_snapshot, snapshot_of

#: The stages after the start: where each is called.
STAGES = [
    (models.bounds.columns, "pool_decomposition"),
    (models.bounds.group_lp, "group_lp_bound"),
    (models.bounds.coupled, "coupled_bound"),
    (models.bounds.group_lp, "cover_of_columns"),
    (planner.placement.local_search, "local_search"),
]


def snapshot(n_jobs: int, size: int = 5, **limits: Any) -> Snapshot:
    """Return jobs of the production generator, all present at once."""
    return Snapshot(
        table=production(n_jobs=n_jobs, seed=1), limits=Limits(max_group_size=size, **limits)
    )


def options(problem: Snapshot, **more: Any) -> SolveOptions:
    """Return options that start from the placer's plan."""
    return SolveOptions(warm_start=warm_start(problem), **{"time_limit_s": 5.0, **more})


def _watch(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, see: Callable[..., object]
) -> None:
    """Let a function tell of its arguments before it is called."""
    real = getattr(module, name)

    def watched(*arguments: Any, **named: Any) -> Any:
        see(name, *arguments, **named)
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, watched)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [0, 3])
def test_the_bound_is_below_the_optimum_and_the_plan_above(method: str, size: int) -> None:
    """Twelve jobs, judged by exhaustive search."""
    problem = snapshot(12, size)
    best = solve_exactly("exhaustive", problem, SolveOptions()).usd_per_hour
    assert best is not None
    found = solve(method, problem, options(problem))
    assert found.bound_usd_per_hour is not None
    assert found.usd_per_hour is not None
    assert found.bound_usd_per_hour <= best * (1 + 1e-9) <= found.usd_per_hour * (1 + 2e-9)
    assert found.method == method


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mix", MIXES)
def test_small_snapshots_of_all_kinds(mix: str, seed: int) -> None:
    """Gangs, full nodes, exact deadlines: bound <= optimum <= cost."""
    rng = random.Random(f"{mix} {seed}")
    problem = random_snapshot(rng, 5, MIXES[mix], limited=True, capped=seed == 0)
    exact = solve_exactly("exhaustive", problem, SolveOptions())
    for method in METHODS:
        found = solve(method, problem, SolveOptions(time_limit_s=1.0))
        if exact.termination is Termination.INFEASIBLE:
            assert found.plan is None
            continue
        assert exact.usd_per_hour is not None
        assert (found.bound_usd_per_hour or 0.0) <= exact.usd_per_hour * (1 + 1e-9)
        if found.usd_per_hour is not None:
            assert found.usd_per_hour >= exact.usd_per_hour * (1 - 1e-9)


@pytest.mark.parametrize(
    ("size", "rate", "asked"),
    [(5, 1, {"group_lp_bound"}), (0, 1, {"coupled_bound"}), (5, 2, set()), (0, 2, set())],
)
def test_which_bounds_are_asked(
    size: int, rate: int, asked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group LP needs a group limit, the coupled LP none; both one iteration a period."""
    seen: set[str] = set()
    for module, name in STAGES[:3]:
        _watch(monkeypatch, module, name, lambda name, *_, **__: seen.add(name))
    problem = snapshot(14, size, max_rate=rate)
    solve("column-generation", problem, options(problem))
    assert seen == {"pool_decomposition"} | asked


@pytest.mark.parametrize(("module", "name"), STAGES, ids=[name for _, name in STAGES])
def test_ctrl_c_in_any_stage_keeps_plan_and_bound(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, interrupted)
    problem = snapshot(40, 0 if name == "coupled_bound" else 5)  # not proved by the pools alone
    method = "column-generation" if name == "cover_of_columns" else "local-search"
    start = options(problem, time_limit_s=2.0)
    found = solve(method, problem, start)
    assert found.stopped_by is StoppedBy.INTERRUPT
    assert start.warm_start is not None
    assert found.usd_per_hour is not None
    assert found.usd_per_hour <= start.warm_start.usd_total * (1 + 1e-9)
    assert found.bound_usd_per_hour is not None
    if name in {"pool_decomposition", "local_search"}:  # both before any other bound
        assert found.bound_method == "volume"
    else:
        assert found.bound_method != "volume"


def test_no_time_leaves_the_start_and_the_volume_bound() -> None:
    problem = snapshot(30)
    start = options(problem, time_limit_s=0.0)
    found = solve("local-search", problem, start)
    assert found.stopped_by is StoppedBy.TIME
    assert found.plan is not None
    assert start.warm_start is not None
    assert found.usd_per_hour == pytest.approx(start.warm_start.usd_total)
    assert found.bound_usd_per_hour is not None


def test_bounds_get_their_share_of_the_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 s 50 for a first search, 0.4 of the rest for bounds, 3/4 of these for the pools."""
    left: dict[str, float | None] = {}

    def see(name: str, *arguments: Any, **named: Any) -> None:
        deadline = named.get("deadline") or arguments[1]
        assert isinstance(deadline, Deadline)
        left[name] = deadline.remaining_s()

    for module, name in (STAGES[0], STAGES[1], STAGES[4]):
        _watch(monkeypatch, module, name, see)
    problem = snapshot(40)
    solve("local-search", problem, options(problem, time_limit_s=1000.0, clock=Ticking()))
    assert left["pool_decomposition"] == pytest.approx(0.3 * 950, abs=10)
    group_lp, search = left["group_lp_bound"], left["local_search"]
    assert group_lp is not None
    assert search is not None
    assert group_lp < 0.4 * 950


def test_more_nodes_than_the_caps_are_a_proof() -> None:
    """Four jobs of 6 + 6 s, deadline 12: two on a rollout node at most, and one is allowed."""
    alone = jobs_of((6, 6, 6, 6), (6, 6, 6, 6), deadline_s=12)
    problem = snapshot_of(alone, caps=(1, None))
    for method in METHODS:
        found = solve(method, problem, SolveOptions())
        assert found.termination is Termination.INFEASIBLE
        assert (found.plan, found.bound_usd_per_hour) == (None, None)


def test_a_search_that_stalls_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a proof it ends by its own rule, not by a limit."""
    monkeypatch.setattr(bounded_search, "_STALLED_PER_JOB", 10)
    problem = snapshot(30, 0)
    found = solve("local-search", problem, options(problem, time_limit_s=60.0))
    assert found.termination is Termination.FEASIBLE_LIMIT
    assert found.stopped_by is StoppedBy.SEARCH


def test_the_report_names_who_proved_the_bound() -> None:
    table = production(n_jobs=20, seed=2)
    report = solve_snapshot(table, method="column-generation", time_limit_s=10.0)
    assert report.bound_method in {"group-lp", "pool-decomposition"}
    assert report.result.method == "column-generation"
