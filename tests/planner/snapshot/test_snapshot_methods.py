"""Which method ``solve_snapshot`` asks, with what, and what is held when it stops."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of, trace_of
from instances.checker import check_plan
from instances.errors import UnsupportedError
from instances.jobs import JobTable
from instances.plan import Limits, Plan
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination, first_incumbent, result_of
from models.problem.snapshot import FleetCaps, Snapshot
from planner.replay.moment import Selection
from planner.snapshot.solving import solve_snapshot, warm_start
from snapshot_cases import A, B, held, interrupted, many, refuses, use_method

# --- who is asked, and with what ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "method"), [(16, "exhaustive"), (17, "set-partition"), (41, "set-partition")]
)
def test_auto_asks_by_size(jobs: int, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {
        name: use_method(monkeypatch, name, lambda s, o: held(s, o, StoppedBy.TIME))
        for name in ("exhaustive", "set-partition")
    }
    solve_snapshot(many(jobs))
    assert {name: len(seen) for name, seen in calls.items() if seen} == {method: 1}


def test_auto_searches_before_set_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """42 jobs: half of the time for the search, the rest from its plan and under its bound."""
    begun: list[SolveOptions] = []

    def search(method: str, snapshot: Snapshot, options: SolveOptions) -> Result:
        begun.append(options)
        groups = first_incumbent(snapshot, options)
        return result_of(
            snapshot, options, method, groups=groups, bound_usd=2000.0, stopped_by=StoppedBy.TIME
        )

    monkeypatch.setattr("planner.placement.bounded_search.solve", search)
    calls = use_method(monkeypatch, "set-partition", lambda s, o: held(s, o, StoppedBy.TIME))
    report = solve_snapshot(many(42), time_limit_s=100.0)
    assert begun[0].time_limit_s == pytest.approx(50.0, abs=5)
    assert len(calls) == 1
    assert (report.bound_usd_per_hour, report.bound_method) == (2000.0, "local-search")
    assert report.result.options.time_limit_s == 100.0
    assert report.placer_usd_per_hour == pytest.approx(42 * PAIR_USD)


def test_auto_keeps_what_the_search_found_where_set_partition_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_method(monkeypatch, "set-partition", refuses)
    monkeypatch.setattr(
        "planner.placement.bounded_search.solve",
        lambda method, snapshot, options: result_of(
            snapshot,
            options,
            method,
            groups=first_incumbent(snapshot, options),
            bound_usd=2000.0,
            stopped_by=StoppedBy.SEARCH,
        ),
    )
    report = solve_snapshot(many(42))
    assert report.result.method == "local-search"
    assert report.usd_per_hour == pytest.approx(42 * PAIR_USD)
    assert "too large for an exact method" in report.notes[0]


def test_auto_asks_no_exact_method_of_very_many() -> None:
    """101 jobs, each of 0.6 nodes: alone, and proved by the pools."""
    report = solve_snapshot(many(101))
    assert report.result.method == "local-search"
    assert (report.result.termination, report.notes) == (Termination.OPTIMAL, ())


def test_auto_asks_set_partition_where_exhaustive_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    first = use_method(monkeypatch, "exhaustive", refuses)
    second = use_method(monkeypatch, "set-partition", lambda s, o: held(s, o, StoppedBy.TIME))
    report = solve_snapshot(trace_of(A, B))
    assert (len(first), len(second)) == (1, 1)
    assert report.result.method == "made-up"
    assert report.notes == ()


def test_auto_searches_where_exact_methods_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventeen jobs of 0.6 rollout and 0.5005 train nodes of work: no two share a node."""
    use_method(monkeypatch, "set-partition", refuses)
    report = solve_snapshot(many(17))
    result = report.result
    assert (result.method, result.termination) == ("local-search", Termination.OPTIMAL)
    assert result.usd_per_hour == pytest.approx(17 * PAIR_USD)
    assert report.bound_method == "pool-decomposition"
    (note,) = report.notes
    assert "too large for an exact method, so local-search was asked" in note
    assert "Expected fewer than 17 jobs" in note


def test_a_method_asked_for_says_itself_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    use_method(monkeypatch, "set-partition", refuses)
    with pytest.raises(UnsupportedError, match="fewer than 17 jobs"):
        solve_snapshot(many(17), method="set-partition")


def test_methods_start_from_the_placers_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = use_method(monkeypatch, "exhaustive", lambda s, o: held(s, o, StoppedBy.TIME))
    report = solve_snapshot(trace_of(A, B, job_of("c", 60, 40, 1.0)))
    start = calls[0].warm_start
    assert start is not None
    assert (start.policy, start.durations, check_plan(start).ok) == ("weave", "snapshot", True)
    # the pair shares, c has no slack for anybody
    assert start.usd_total == pytest.approx(2 * PAIR_USD)
    assert report.usd_per_hour == report.placer_usd_per_hour == pytest.approx(2 * PAIR_USD)
    assert [sorted(p.job_id for p in g.placements) for g in start.groups] == [["a", "b"], ["c"]]


def test_no_start_where_the_placer_exceeds_the_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    """'a' takes 100 s alone, the deadline of 'c' is 85 s: two groups, two train nodes, cap 1.

    The volume bound does not see it: 40/150 + 50/85 = 0.85 train nodes.
    """
    calls = use_method(monkeypatch, "exhaustive", interrupted)
    caps = FleetCaps(max_train_nodes_total=1)
    report = solve_snapshot(trace_of(A, job_of("c", 35, 50, 1.0)), caps=caps)
    assert calls[0].warm_start is None
    assert report.placer_usd_per_hour is None
    assert report.result.termination is Termination.NO_PLAN_LIMIT
    assert report.result.stopped_by is StoppedBy.INTERRUPT


def test_no_start_where_a_job_cannot_run_alone() -> None:
    big = job_of("big", 60, 40, train_state_gb=2001)
    assert warm_start(Snapshot.of([A, big])) is None
    wide = job_of("wide", 60, 40, rollout_nodes=3)
    assert warm_start(Snapshot.of([A, wide], limits=Limits(max_rollout_nodes=2))) is None


# --- stopped ------------------------------------------------------------------------------------


def test_ctrl_c_that_escapes_a_method_leaves_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs alone; volume 1.8 and 1.5015 nodes."""
    use_method(monkeypatch, "exhaustive", interrupted)
    report = solve_snapshot(many(3))
    assert report.interrupted
    assert report.result.stopped_by is StoppedBy.INTERRUPT
    assert report.usd_per_hour == pytest.approx(3 * PAIR_USD)
    assert report.bound_usd_per_hour == pytest.approx(2 * PAIR_USD)
    assert "Ctrl-C" in report.notes[0]


def test_ctrl_c_takes_nothing_from_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The placer's plan of the pair reaches the volume bound: optimal, though interrupted."""
    use_method(monkeypatch, "exhaustive", interrupted)
    report = solve_snapshot(trace_of(A, B))
    assert (report.result.termination, report.interrupted) == (Termination.OPTIMAL, True)


def test_ctrl_c_before_the_method_leaves_jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = use_method(monkeypatch, "exhaustive", refuses)
    monkeypatch.setattr("planner.snapshot.solving.warm_start", interrupted_at_once)
    report = solve_snapshot(trace_of(A, B))
    assert calls == []
    assert report.interrupted
    assert report.usd_per_hour == pytest.approx(2 * PAIR_USD)
    assert report.bound_usd_per_hour == pytest.approx(PAIR_USD)


def interrupted_at_once(snapshot: Snapshot) -> Plan | None:
    raise KeyboardInterrupt


def test_caps_are_told_to_be_what_async_jobs_leave() -> None:
    """Two jobs that share nothing, and an async one: two train nodes are needed, one is left."""
    free = job_of(job_id="free", rollout_s=6.0, train_s=4.0, slo=1.0, mode="async")
    jobs = [*many(2), free]
    report = solve_snapshot(
        JobTable.from_jobs(jobs),
        select=Selection.all_jobs(),
        caps=FleetCaps(max_train_nodes_total=2),
    )
    assert report.result.termination is Termination.INFEASIBLE
    assert "async jobs hold 1 rollout and 1 train nodes" in report.notes[-1]


def test_nothing_is_imported_to_say_how_fast_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may have cut the import of numba: a second attempt would fail in other words."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "models.problem.compiled", raising=False)
    monkeypatch.setattr(
        "planner.placement.bounded_search.solve",
        lambda method, s, o: dataclasses.replace(held(s, o, StoppedBy.INTERRUPT), method=method),
    )
    report = solve_snapshot(many(3), method="local-search")
    assert (report.interrupted, report.notes) == (True, ())
    assert "models.problem.compiled" not in sys.modules


def test_slow_loops_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "models.problem.compiled", SimpleNamespace(COMPILED=False))
    monkeypatch.setattr(
        "planner.placement.bounded_search.solve",
        lambda method, s, o: dataclasses.replace(held(s, o, StoppedBy.TIME), method=method),
    )
    (note,) = solve_snapshot(many(3), method="local-search").notes
    assert "numba is not installed" in note


def test_ctrl_c_inside_a_method_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    use_method(monkeypatch, "exhaustive", lambda s, o: held(s, o, StoppedBy.INTERRUPT))
    assert solve_snapshot(many(3)).interrupted


def test_no_time_at_all_still_gives_a_plan_and_a_bound() -> None:
    report = solve_snapshot(many(8), time_limit_s=0.0)
    assert report.result.stopped_by is StoppedBy.TIME
    assert report.usd_per_hour == pytest.approx(8 * PAIR_USD)
    # 8 x 0.6 and 8 x 0.5005 nodes
    assert report.bound_usd_per_hour == pytest.approx(5 * ROLLOUT_USD + 5 * TRAIN_USD)
    assert (report.bound_method, report.interrupted) == ("volume", False)
