"""``solve_snapshot``: who is present, who is asked, and what is held when a method stops."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import models.why_not.conflict
from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of, job_of, table_of, trace_of
from instances.checker import check_plan
from instances.errors import CheckError, InputError
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import DedicatedNodes, Limits
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination, result_of
from models.problem.snapshot import FleetCaps, Snapshot, solo_group
from planner.replay.moment import Selection
from planner.snapshot.solving import solve_snapshot
from snapshot_cases import ALL, A, B, held, ids, many, refuses, use_method

# One fills the other's gap: together they need one node of each kind, alone two.
ASYNC = job_of("async", 100, 50, 1, rollout_nodes=2, mode="async")


# --- who is present -----------------------------------------------------------------------------

HOUR = 3600.0
STAYS = trace_of(
    job_of("first", 60, 40, arrival_s=0, duration_s=2 * HOUR),
    job_of("second", 60, 40, arrival_s=HOUR, duration_s=HOUR),
    job_of("third", 60, 40, arrival_s=2 * HOUR, duration_s=2 * HOUR),
    job_of("late", 60, 40, arrival_s=9 * HOUR, duration_s=HOUR),
)


@pytest.mark.parametrize(
    ("hours", "present"),
    [
        (0, ["first"]),
        (0.999, ["first"]),
        (1, ["first", "second"]),  # from its arrival on
        (1.999, ["first", "second"]),
        (2, ["third"]),  # both leave at 2 h, when the third arrives
        (9.5, ["late"]),
    ],
)
def test_a_job_is_present_from_arrival_until_it_would_leave(
    hours: float, present: list[str]
) -> None:
    report = solve_snapshot(STAYS, select=Selection.at(hours))
    assert ids(report) == present
    assert report.problem.moment_s == hours * HOUR


def test_the_peak_is_the_earliest_moment_with_the_most_jobs() -> None:
    """Two at 1 h; again two from 20 h on, which is later."""
    again = trace_of(
        *STAYS.jobs,
        *(job_of(name, 60, 40, arrival_s=20 * HOUR, duration_s=HOUR) for name in ("x", "y")),
    )
    report = solve_snapshot(again)
    assert (report.problem.moment_s, ids(report)) == (HOUR, ["first", "second"])
    # departures go before arrivals: at 2 h one is there, not three
    assert solve_snapshot(STAYS).problem.moment_s == HOUR


def test_all_jobs_are_taken_as_if_present_at_once() -> None:
    report = solve_snapshot(STAYS, select=ALL)
    assert ids(report) == ["first", "second", "third", "late"]
    assert report.problem.moment_s is None


@pytest.mark.parametrize("hours", [-1, 5, 10, 1e9])
def test_a_moment_without_jobs_names_the_first_and_the_last_with_some(hours: float) -> None:
    with pytest.raises(InputError, match=f"at {hours:.10g} h, got none") as error:
        solve_snapshot(STAYS, select=Selection.at(hours))
    assert "from 0 h on" in str(error.value)
    assert "until 10 h" in str(error.value)


def test_a_trace_without_jobs_has_no_moment() -> None:
    for select in (ALL, Selection.peak(), Selection.at(1)):
        with pytest.raises(InputError, match=r"Expected jobs in a snapshot, got none \(jobs\)"):
            solve_snapshot(table_of(), select=select)


def test_selections_are_validated() -> None:
    assert Selection.at(3).at_hours == 3
    for hours in (float("nan"), float("inf")):
        with pytest.raises(InputError, match="finite number of at_hours"):
            Selection.at(hours)
    for kind, given_hours in (("peak", 3), ("at", None), ("all", 0)):
        with pytest.raises(InputError, match="at_hours with kind at only"):
            Selection(kind=kind, at_hours=given_hours)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="kind in peak, at, all, got 'noon'"):
        Selection(kind="noon")  # type: ignore[arg-type]


# --- the answer ---------------------------------------------------------------------------------


def test_a_pair_that_shares_is_proved_least() -> None:
    """No plan has less than one node of each kind."""
    report = solve_snapshot(trace_of(A, B))
    assert report.result.termination is Termination.OPTIMAL
    assert report.usd_per_hour == report.bound_usd_per_hour == pytest.approx(PAIR_USD)
    assert (report.ratio, report.saving) == (1.0, pytest.approx(2.0))
    assert report.nodes == {"rollout": 1, "train": 1}
    assert report.plan is report.result.plan
    assert report.plan is not None
    assert (report.plan.durations, check_plan(report.plan).ok) == ("snapshot", True)
    assert not report.interrupted
    assert report.seconds is None


def test_a_table_made_in_python_is_a_trace() -> None:
    """In whatever order: the placer gets the jobs by arrival, the plan keeps the table's order."""
    table = JobTable.from_jobs([dataclasses.replace(B, arrival_s=50.0), A])
    report = solve_snapshot(table)
    assert (report.trace.name, report.trace.sha256, ids(report)) == ("jobs", None, ["b", "a"])
    assert report.plan is not None
    assert report.plan.jobs.job_id == ("b", "a")


def test_prices_and_limits_are_passed_on() -> None:
    """Groups of one job: each alone, $9/h for a pair of nodes."""
    cluster = cluster_of(rollout_usd=4, train_usd=5)
    report = solve_snapshot(trace_of(A, B), cluster=cluster, limits=Limits(max_group_size=1))
    assert report.usd_per_hour == pytest.approx(18)
    assert report.saving == pytest.approx(1)
    assert report.plan is not None
    assert report.plan.limits.max_group_size == 1


def test_options_reach_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = use_method(monkeypatch, "milp", lambda s, o: held(s, o, StoppedBy.NODES))
    shown: list[Any] = []
    report = solve_snapshot(
        many(3),
        method="milp",
        time_limit_s=7,
        node_limit=3,
        work_limit=2.5,
        seed=11,
        progress=lambda *words: shown.append(words),
        clock=iter(range(100)).__next__,
    )
    (options,) = calls
    assert (options.node_limit, options.work_limit) == (3, 2.5)
    assert options.time_limit_s is not None
    assert 0 < options.time_limit_s < 7  # the placer's warm start took its share
    assert (options.seed, report.result.seed) == (11, 11)
    assert options.progress is not None
    assert report.seconds is not None
    assert report.seconds > 0
    assert (report.asked, report.result.stopped_by) == ("milp", StoppedBy.NODES)


@pytest.mark.parametrize("changes", [{"time_limit_s": -1}, {"seed": -1}, {"node_limit": 0.5}])
def test_options_out_of_range_are_refused(changes: Any) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        solve_snapshot(trace_of(A), **changes)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="Did you mean 'exhaustive'"):
        solve_snapshot(trace_of(A), method="exhaustiv")


def test_one_step_jobs_share_and_async_ones_do_not() -> None:
    """(50, 40) alone: 50 s one-step, as busy as its rollout node; twice slo 2: one of each kind."""
    jobs = [job_of(name, 50, 40, slo=2.0, mode="one-step") for name in ("a", "b")]
    report = solve_snapshot(trace_of(*jobs, job_of("c", 50, 40, mode="async")), select=ALL)
    assert report.plan is not None
    (group,) = report.plan.groups
    assert (group.period_s, len(group.rollout_nodes), len(group.train_nodes)) == (100.0, 1, 1)
    assert [item.job_id for item in report.plan.dedicated] == ["c"]


@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 5))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_plan_is_valid_and_between_bound_and_solo(seed: int, jobs: int) -> None:
    table = production(n_jobs=jobs, seed=seed, concurrent=True, gangs=seed % 2 == 1)
    report = solve_snapshot(table, limits=Limits(max_group_size=3))
    assert report.plan is not None
    assert report.bound_usd_per_hour is not None
    assert check_plan(report.plan).ok
    assert sorted(p.job_id for g in report.plan.groups for p in g.placements) == sorted(ids(report))
    assert report.bound_usd_per_hour <= report.usd_per_hour <= report.solo_usd_per_hour + 1e-9
    assert report.usd_per_hour == pytest.approx(report.plan.usd_total)


# --- async jobs ---------------------------------------------------------------------------------


def test_async_jobs_hold_dedicated_nodes() -> None:
    """2 rollout nodes and 1 train node beside the pair, in cost and bound alike."""
    report = solve_snapshot(trace_of(A, ASYNC, B))
    apart = 2 * ROLLOUT_USD + TRAIN_USD
    assert report.dedicated_usd_per_hour == pytest.approx(apart)
    assert report.usd_per_hour == report.bound_usd_per_hour == pytest.approx(PAIR_USD + apart)
    assert report.placer_usd_per_hour == pytest.approx(PAIR_USD + apart)
    assert report.result.usd_per_hour == pytest.approx(PAIR_USD)
    assert report.nodes == {"rollout": 3, "train": 2}
    assert report.solo_usd_per_hour == pytest.approx(2 * PAIR_USD + apart)
    plan = report.plan
    assert plan is not None
    assert plan.jobs.job_id == ("a", "async", "b")
    assert plan.dedicated == (DedicatedNodes(job_id="async", from_s=0.0, to_s=3600.0,
                                             rollout_nodes=2, train_nodes=1),)  # fmt: skip
    assert check_plan(plan).ok
    assert plan.usd_total == pytest.approx(PAIR_USD + apart)


def test_async_jobs_leave_the_ratio_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs alone, $114.08/h, where the volume bound is one pair: 2 with or without them."""
    limit = Limits(max_group_size=2)
    use_method(monkeypatch, "exhaustive", solo)
    for jobs in ((A, B), (A, B, ASYNC)):
        assert solve_snapshot(trace_of(*jobs), limits=limit).ratio == pytest.approx(2)


def solo(snapshot: Snapshot, options: SolveOptions) -> Result:
    """Return each job alone, stopped by the time limit, no bound proved."""
    groups = [solo_group(snapshot, i) for i in range(len(snapshot))]
    return result_of(
        snapshot, options, "exhaustive", groups=groups, bound_usd=None, stopped_by=StoppedBy.TIME
    )


def test_async_jobs_alone_need_no_method(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = use_method(monkeypatch, "exhaustive", refuses)
    report = solve_snapshot(trace_of(ASYNC))
    assert calls == []
    assert report.result.termination is Termination.OPTIMAL
    assert report.usd_per_hour == pytest.approx(2 * ROLLOUT_USD + TRAIN_USD)
    assert report.ratio == 1
    assert report.plan is not None
    assert (report.plan.groups, check_plan(report.plan).ok) == ((), True)


def test_caps_are_for_the_whole_fleet() -> None:
    """Three rollout nodes: two are dedicated, one is left for the pair to share."""
    exact = FleetCaps(max_rollout_nodes_total=3, max_train_nodes_total=2)
    report = solve_snapshot(trace_of(A, ASYNC, B), caps=exact)
    assert report.problem.snapshot.caps == FleetCaps(
        max_rollout_nodes_total=1, max_train_nodes_total=1
    )
    assert (report.problem.caps, report.nodes) == (exact, {"rollout": 3, "train": 2})


def test_dedicated_nodes_beyond_a_cap_are_infeasible() -> None:
    report = solve_snapshot(trace_of(A, ASYNC), caps=FleetCaps(max_rollout_nodes_total=1))
    assert report.result.termination is Termination.INFEASIBLE
    assert (report.plan, report.usd_per_hour, report.bound_usd_per_hour) == (None, None, None)
    conflict = report.result.conflict
    assert conflict is not None
    assert (conflict.job_ids, conflict.rule) == (("async",), "max_rollout_nodes_total")
    assert "<= 1 (max_rollout_nodes_total), got 2" in conflict.message
    assert conflict.relaxations == ("Raise max_rollout_nodes_total from 1 to 2 or more.",)


# --- bounds -------------------------------------------------------------------------------------


def bounded(usd: float) -> Any:
    """Return a method that holds each job alone with a bound, stopped by the time limit."""

    def solve(snapshot: Snapshot, options: SolveOptions) -> Result:
        return dataclasses.replace(solo(snapshot, options), bound_usd_per_hour=usd)

    return solve


@pytest.mark.parametrize(
    ("own", "method", "bound"),
    [(60.0, "exhaustive", 60.0), (10.0, "volume", PAIR_USD)],
)
def test_the_better_bound_is_reported(
    own: float, method: str, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_method(monkeypatch, "exhaustive", bounded(own))
    report = solve_snapshot(trace_of(A, B))
    assert report.bound_method == method
    assert report.bound_usd_per_hour == pytest.approx(bound)
    assert report.ratio == pytest.approx(2 * PAIR_USD / bound)


def test_the_volume_bound_can_prove_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job alone costs a pair of nodes, and none costs less."""
    use_method(monkeypatch, "exhaustive", solo)
    report = solve_snapshot(trace_of(A))
    assert (report.result.termination, report.result.stopped_by) == (Termination.OPTIMAL, None)
    assert (report.bound_method, report.ratio) == ("volume", 1.0)


def test_a_bound_above_the_cost_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    use_method(monkeypatch, "exhaustive", solo)
    wrong = SimpleNamespace(rollout_nodes=9, train_nodes=9, usd_per_hour=999.0)
    monkeypatch.setattr("planner.snapshot.solving.volume", lambda *_: wrong)
    with pytest.raises(Exception, match="exceeds the cost"):
        solve_snapshot(trace_of(A))


def test_a_broken_plan_is_never_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that returns a plan of another price: the whole plan is checked with its price."""

    def dear(snapshot: Snapshot, options: SolveOptions) -> Result:
        found = held(snapshot, options, StoppedBy.TIME)
        assert found.plan is not None
        plan = dataclasses.replace(found.plan, usd_total=1.0)
        return dataclasses.replace(found, plan=plan)

    use_method(monkeypatch, "exhaustive", dear)
    with pytest.raises(CheckError, match=r"\[cost\]"):
        solve_snapshot(trace_of(A, ASYNC))


# --- no plan ------------------------------------------------------------------------------------


def no_plan(snapshot: Snapshot, options: SolveOptions) -> Result:
    return result_of(snapshot, options, "exhaustive", groups=None, bound_usd=None, infeasible=True)


def test_a_conflict_is_explained_in_words() -> None:
    """A state of 2,001 GB on nodes of 2,000 GB."""
    report = solve_snapshot(trace_of(A, job_of("big", 60, 40, train_state_gb=2001)))
    assert report.result.termination is Termination.INFEASIBLE
    conflict = report.result.conflict
    assert conflict is not None
    assert conflict.job_ids == ("big",)
    assert "2001" in conflict.message.replace(",", "")
    assert conflict.relaxations


def test_the_volume_bound_can_prove_that_no_plan_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventeen jobs of 0.6 rollout nodes each need 11; every method refuses, the cap is 10."""
    use_method(monkeypatch, "set-partition", refuses)
    asked: list[Any] = []
    monkeypatch.setattr(models.why_not.conflict, "explain", lambda *a, **k: asked.append((a, k)))
    report = solve_snapshot(many(17), caps=FleetCaps(max_rollout_nodes_total=10))
    assert (report.result.termination, report.result.stopped_by) == (Termination.INFEASIBLE, None)
    assert report.plan is None
    assert len(asked) == 1


def test_ctrl_c_while_a_conflict_is_explained_keeps_the_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_method(monkeypatch, "exhaustive", no_plan)

    def explain(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(models.why_not.conflict, "explain", explain)
    report = solve_snapshot(trace_of(A))
    assert report.result.termination is Termination.INFEASIBLE
    assert report.result.conflict is None
    assert "why no plan exists" in report.notes[0]


# --- links --------------------------------------------------------------------------------------


def test_link_utilisation_is_sync_traffic_over_capacity() -> None:
    """A pair of period 100 s sends 5 + 10 GB a period, an async job 3 GB in 100 s: 18 GB in
    100 s are 1.44 Gb/s, of one link of 20 Gb/s.
    """
    jobs: list[Job] = [
        dataclasses.replace(A, sync_gb=5.0),
        dataclasses.replace(B, sync_gb=10.0),
        dataclasses.replace(ASYNC, sync_gb=3.0),
    ]
    report = solve_snapshot(trace_of(*jobs))
    assert report.plan is not None
    assert report.plan.groups[0].period_s == pytest.approx(100)
    assert report.links == 1
    assert report.link_utilisation == pytest.approx(1.44 / 20)
    none = solve_snapshot(trace_of(ASYNC), caps=FleetCaps(max_rollout_nodes_total=0))
    assert (none.links, none.link_utilisation, none.nodes, none.saving) == (None,) * 4
