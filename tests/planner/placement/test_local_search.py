"""The local search: never dearer than its start, always valid, the same for the same seed."""

from __future__ import annotations

import dataclasses
import random
import re
import signal
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import Ticking
from instances.checker import check_plan
from instances.errors import InfeasibleError, InputError
from instances.generate import production
from instances.plan import Limits
from models.backends.interrupt import Interrupt
from models.exact.methods import solve
from models.problem.options import Deadline, SolveOptions
from models.problem.result import Result, usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, solo_group
from planner.placement import local_search as local_search_module
from planner.placement import neighbourhoods
from planner.placement.local_search import (
    LocalSearchParams,
    LocalSearchResult,
    MaxIterations,
    MaxSeconds,
    NoImprovement,
    SearchState,
    local_search,
)
from planner.placement.warm_start import warm_start
from small_snapshots import MIXES, jobs_of, random_snapshot, snapshot_of

#: Rounds short enough for small snapshots to see many.
BRISK = LocalSearchParams(round_moves=300)
#: Cycles so short that neighbourhoods are solved soon, several of them.
POLISHED = LocalSearchParams(moves_per_job=100, polish_jobs=12)


def require_valid(snapshot: Snapshot, found: LocalSearchResult) -> None:
    """Require a valid plan within the caps, priced right, no dearer than the start."""
    assert check_plan(found.plan).ok
    assert found.plan.limits == snapshot.limits
    nodes = [group.nodes for group in found.groups]
    assert snapshot.caps.allow(sum(r for r, _ in nodes), sum(t for _, t in nodes))
    assert found.usd_per_hour == pytest.approx(usd_of(snapshot, found.groups))
    assert found.usd_per_hour <= found.start_usd * (1 + 1e-12)
    prices = [usd for _, usd in found.trajectory]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] == found.start_usd
    assert prices[-1] == pytest.approx(found.usd_per_hour)
    assert [at for at, _ in found.trajectory] == sorted(at for at, _ in found.trajectory)
    assert found.accepted == len(prices) - 1


def solo(snapshot: Snapshot) -> list[PlacedGroup]:
    return [solo_group(snapshot, j) for j in range(len(snapshot))]


# --- valid, and never worse ---------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 7),
    mix=st.sampled_from(sorted(MIXES)),
    limited=st.booleans(),
    capped=st.booleans(),
    rate=st.sampled_from([1, 1, 2, 3]),
)
def test_any_snapshot_gets_a_valid_plan(
    seed: int, n: int, mix: str, limited: bool, capped: bool, rate: int
) -> None:
    snapshot = random_snapshot(random.Random(seed), n, MIXES[mix], limited=limited, capped=capped)
    limits = dataclasses.replace(snapshot.limits, max_rate=rate)
    snapshot = dataclasses.replace(snapshot, limits=limits)
    try:
        found = local_search(snapshot, params=BRISK, stop=MaxIterations(60), seed=seed)
    except InfeasibleError:
        assert warm_start(snapshot) is None
        return
    require_valid(snapshot, found)
    assert found.iterations <= 60


@pytest.mark.parametrize("size", [0, 3, 5])
def test_starts_of_any_kind_are_improved(size: int) -> None:
    snapshot = Snapshot(table=production(n_jobs=30, seed=2), limits=Limits(max_group_size=size))
    plan = warm_start(snapshot)
    assert plan is not None
    found = local_search(snapshot, solo(snapshot), stop=MaxIterations(400_000), seed=1)
    require_valid(snapshot, found)
    assert found.start_usd == pytest.approx(snapshot.usd_per_hour(30, 30))
    assert found.usd_per_hour < plan.usd_total  # cheaper than the placer's plan
    again = local_search(snapshot, found.plan, stop=MaxIterations(1_000), seed=1)
    require_valid(snapshot, again)
    assert again.start_usd == pytest.approx(found.usd_per_hour)


def test_a_start_within_the_caps_stays_within() -> None:
    """Caps of the placer's own node counts: what is found has no more of either."""
    free = Snapshot(table=production(n_jobs=25, seed=3))
    plan = warm_start(free)
    assert plan is not None
    held = [sum(len(g.rollout_nodes) for g in plan.groups), len(plan.groups)]
    held[1] = sum(len(g.train_nodes) for g in plan.groups)
    snapshot = snapshot_of(free.jobs, caps=(held[0], held[1]), size=5)
    found = local_search(snapshot, stop=MaxIterations(200_000), seed=0)
    require_valid(snapshot, found)
    assert found.usd_per_hour < plan.usd_total


# --- optima -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mix", "seed"),
    [("open-shop", 3), ("sync", 1), ("switches", 5), ("states", 2), ("gangs", 4), ("all", 6)],
)
def test_proved_optimum_is_found_from_jobs_alone(mix: str, seed: int) -> None:
    """The set-partition optimum; the start, every job alone, is dearer."""
    snapshot = random_snapshot(random.Random(seed), 6, MIXES[mix])
    best = solve("set-partition", snapshot, SolveOptions())
    assert best.usd_per_hour == best.bound_usd_per_hour
    start = solo(snapshot)
    assert best.usd_per_hour is not None
    assert usd_of(snapshot, start) > best.usd_per_hour
    found = local_search(snapshot, start, stop=MaxIterations(600), params=BRISK, seed=0)
    require_valid(snapshot, found)
    assert found.usd_per_hour == pytest.approx(best.usd_per_hour)


def test_moves_alone_find_the_optimum() -> None:
    """No neighbourhood is solved exactly, and the placer's plan is not the optimum."""
    snapshot = Snapshot(table=production(n_jobs=16, seed=0), limits=Limits(max_group_size=4))
    best = solve("set-partition", snapshot, SolveOptions())
    plan = warm_start(snapshot)
    assert plan is not None
    assert best.usd_per_hour is not None
    assert plan.usd_total > best.usd_per_hour * 1.01
    params = LocalSearchParams(polish_jobs=0)
    found = local_search(snapshot, stop=MaxIterations(800_000), params=params, seed=0)
    assert found.usd_per_hour == pytest.approx(best.usd_per_hour)


# --- determinism and stopping -------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1, 2])
def test_same_seed_same_search(rate: int) -> None:
    n_jobs, iterations = (40, 100_000) if rate == 1 else (14, 60)
    snapshot = Snapshot(table=production(n_jobs=n_jobs, seed=5), limits=Limits(max_rate=rate))
    runs = [
        local_search(snapshot, solo(snapshot), stop=MaxIterations(iterations), seed=seed)
        for seed in (7, 7, 8)
    ]
    assert runs[0].groups == runs[1].groups
    assert runs[0].trajectory == runs[1].trajectory
    assert runs[0].trajectory != runs[2].trajectory


def test_no_iterations_return_the_start() -> None:
    snapshot = Snapshot(table=production(n_jobs=9, seed=5))
    found = local_search(snapshot, solo(snapshot), stop=MaxIterations(0), seed=0)
    assert found.groups == tuple(solo(snapshot))
    assert (found.stopped_by, found.iterations, found.accepted) == ("iterations", 0, 0)
    assert found.trajectory == ((0, found.start_usd),)


def test_the_deadline_stops_it() -> None:
    """A clock that ticks with every look: the search ends though no rule says so."""
    snapshot = Snapshot(table=production(n_jobs=9, seed=5))
    found = local_search(snapshot, seed=0, deadline=Deadline(Ticking(), 60.0), params=BRISK)
    require_valid(snapshot, found)
    assert found.stopped_by == "deadline"
    late = local_search(snapshot, seed=0, deadline=Deadline(Ticking(), 0.0))
    assert (late.stopped_by, late.iterations) == ("deadline", 0)


def test_the_first_rule_met_is_named() -> None:
    snapshot = Snapshot(table=production(n_jobs=9, seed=5))
    start = solo(snapshot)
    price = usd_of(snapshot, start)

    def name(*stop: Any, bound: float | None = None) -> str:
        return local_search(
            snapshot, start, BRISK, stop, seed=0, bound_usd=bound,
            deadline=Deadline(Ticking(), None),
        ).stopped_by  # fmt: skip

    assert name(MaxIterations(2_000), NoImprovement(100_000)) == "iterations"
    assert name(NoImprovement(2_000)) == "no-improvement"
    assert name(MaxSeconds(50)) == "seconds"
    assert name(bound=price) == "optimal"


def test_rules_say_how_much_is_over() -> None:
    state = SearchState(iterations=30, since_better=10, seconds=2.0, usd=12.0, bound_usd=10.0)
    assert MaxIterations(120).share(state) == 0.25
    assert MaxIterations(120).left(state) == 90
    assert MaxIterations(0).share(state) == 1
    assert MaxSeconds(8).share(state) == 0.25
    assert MaxSeconds(0).share(state) == 1
    assert NoImprovement(10).share(state) == 1
    assert NoImprovement(11).share(state) == 0
    assert NoImprovement(11).left(state) == 1
    assert MaxSeconds(8).left(state) is None


# --- interrupts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("gangs", [False, True])
def test_interrupted_at_any_look_at_the_clock(gangs: bool) -> None:
    """Ctrl-C comes at the k-th look, for many k: a valid plan each time."""
    snapshot = Snapshot(table=production(n_jobs=10, seed=6))
    if gangs:
        jobs = [dataclasses.replace(job, train_nodes=1 + i % 2) for i, job in
                enumerate(snapshot.jobs)]  # fmt: skip
        snapshot = Snapshot.of(jobs)
    seen = set()
    for k in (2, 3, 4, 5, 7, 11, 17, 26, 40, 60, 90):
        looks = count()

        def clock(looks: Any = looks, k: int = k) -> float:
            now = next(looks)
            if now == k:
                raise KeyboardInterrupt
            return float(now)

        found = local_search(
            snapshot, solo(snapshot), BRISK, MaxIterations(2_000), seed=0,
            deadline=Deadline(clock, 1e9),
        )  # fmt: skip
        require_valid(snapshot, found)
        seen.add(found.stopped_by)
    assert seen <= {"interrupt", "iterations"}
    assert "interrupt" in seen


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_interrupted_in_its_progress(k: int) -> None:
    snapshot = Snapshot(table=production(n_jobs=10, seed=6))
    told: list[tuple[str, int, int]] = []

    def progress(words: str, done: int, total: int) -> None:
        told.append((words, done, total))
        if len(told) == k:
            raise KeyboardInterrupt

    found = local_search(
        snapshot, solo(snapshot), BRISK, MaxIterations(100_000), seed=0, progress=progress,
        bound_usd=1.0,
    )  # fmt: skip
    require_valid(snapshot, found)
    assert found.stopped_by == "interrupt"
    assert len(told) == k
    words, done, total = told[0]
    start = found.start_usd
    assert words == (f"local search: ${start:,.2f}/h, bound $1.00/h, ratio {start:.4f}")
    assert (done, total) == (0, 100)


def test_ctrl_c_that_a_finishing_solver_took_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def finishing(method: str, part: Snapshot, options: SolveOptions) -> Result:
        calls.append(method)
        with Interrupt():  # as a solver's: noted, and the answer is there all the same
            signal.raise_signal(signal.SIGINT)
        return solve(method, part, options)

    monkeypatch.setattr(neighbourhoods, "solve", finishing)
    snapshot = Snapshot(table=production(n_jobs=60, seed=6))
    found = local_search(snapshot, stop=MaxIterations(200_000), params=POLISHED, seed=0)
    require_valid(snapshot, found)
    assert (found.stopped_by, len(calls)) == ("interrupt", 1)


def test_ctrl_c_at_the_very_end_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return plan_of(*arguments)

    plan_of = local_search_module.plan_of
    snapshot = Snapshot(table=production(n_jobs=6, seed=6))
    start = warm_start(snapshot)
    monkeypatch.setattr(local_search_module, "plan_of", pressed)
    found = local_search(snapshot, start, stop=MaxIterations(0), seed=0)
    assert found.stopped_by == "interrupt"


# --- faults of the caller -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hot": 0.0}, "Expected hot > 0, got 0"),
        ({"hot": float("nan")}, "Expected hot >= 0, got nan"),
        ({"cold": 0.5}, "Expected cold <= hot, got 0.5 > "),
        ({"reheat": 1.5}, "Expected reheat <= 1, got 1.5"),
        ({"fill_reward": 2}, "Expected fill_reward <= 1, got 2"),
        ({"fill_reward": -1}, "Expected fill_reward >= 0, got -1"),
        ({"reach": 0}, "Expected reach a whole number >= 1, got 0"),
        ({"round_moves": 1.5}, "Expected round_moves a whole number >= 1, got 1.5"),
        ({"most_jobs": True}, "Expected most_jobs a whole number >= 1, got True"),
        ({"merging": 2000}, "Expected merging <= 1024, got 2000"),
        ({"polish_jobs": -1}, "Expected polish_jobs a whole number >= 0, got -1"),
    ],
)
def test_params_out_of_range_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        LocalSearchParams(**values)


def test_arguments_out_of_range_are_refused() -> None:
    snapshot = Snapshot(table=production(n_jobs=3, seed=0))
    with pytest.raises(InputError, match="Expected seed a whole number >= 0, got -1"):
        local_search(snapshot, seed=-1)
    with pytest.raises(InputError, match="Expected bound_usd >= 0, got nan"):
        local_search(snapshot, seed=0, bound_usd=float("nan"))
    with pytest.raises(InputError, match=r"Expected iterations a whole number >= 0, got 1.5"):
        MaxIterations(1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Expected iterations a whole number >= 1, got 0"):
        NoImprovement(0)
    with pytest.raises(InputError, match="Expected seconds >= 0, got inf"):
        MaxSeconds(float("inf"))


def test_a_start_that_is_no_plan_is_refused() -> None:
    snapshot = Snapshot(table=production(n_jobs=4, seed=0))
    with pytest.raises(InputError, match="The start is not a valid plan"):
        local_search(snapshot, solo(snapshot)[:-1], seed=0)
    other = warm_start(Snapshot(table=production(n_jobs=5, seed=0)))
    with pytest.raises(InputError):
        local_search(snapshot, other, seed=0)


def test_no_start_within_the_caps_is_said() -> None:
    snapshot = snapshot_of(jobs_of([5, 5], [5, 5], deadline_s=10), caps=(1, 1))
    assert warm_start(snapshot) is not None  # one node of each holds both
    tight = snapshot_of(jobs_of([5, 5], [5, 5], deadline_s=10), caps=(0, 0))
    with pytest.raises(InfeasibleError, match="Expected a plan to start from, got none"):
        local_search(tight, seed=0)
