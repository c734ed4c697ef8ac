"""Drift: closed forms by hand, no drift at all, and rows beside the publication.

Jobs here are 200 s and 100 s, or 200 s and 200 s, at the token limit and begin at half of it.
With the shape ``DOUBLING`` and template 1 their phases double over their life, in a line.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from math import log
from typing import Any

import pytest

from builders import PAIR_USD, job_of, options_of, table_of
from gap_cases import random_trace
from instances.errors import InputError
from instances.generate import production
from instances.jobs import JobTable
from instances.plan import Limits
from models.problem.options import Deadline, OutOfTimeError
from models.problem.result import StoppedBy
from planner.policies.regroup import RegroupParams
from planner.replay.published import AGREES, DIFFERS, NOT_COMPARED
from planner.replay.replaying import replay
from planner.simulate.drift import (
    DRIFT_POLICIES,
    UNKNOWN_INPUTS,
    DriftParams,
    DriftRun,
    DriftStudy,
    drift_replay,
    drift_rows,
    drift_run,
    drift_study,
)
from planner.simulate.drift_measure import JobDrift
from planner.simulate.drift_templates import GrowthShape

HOUR = 3600.0
DOUBLING = GrowthShape(life_share=(0.0, 1.0), relative_length=(1.0, 2.0), source="hand")
PARAMS = DriftParams(shape=DOUBLING, by_law=False)
#: Mean of 1 / (1 + x) over a life: how much less gets done while phases double.
LN2 = log(2)


def run(
    jobs: JobTable, templates: tuple[float, ...], policy: str = "weave", **params: Any
) -> DriftRun:
    """Run a policy; pieces of an hour in lives of 100 h: the midpoint rule errs by about 1e-6."""
    given = replace(PARAMS, **params)
    return drift_run(given.lengths(jobs, templates), policy, given)


def alone(slo: float) -> JobTable:
    return table_of(job_of("a", 200, 100, slo, duration_s=100 * HOUR))


def two(slo_b: float) -> JobTable:
    """Jobs that share a pair of nodes: 100 s each phase at arrival, period 200 s."""
    more = {"duration_s": 100 * HOUR}
    return table_of(job_of("a", 200, 200, 2.0, **more), job_of("b", 200, 200, slo_b, **more))


# --- closed forms ---------------------------------------------------------------------------------


def test_a_job_whose_phases_double_in_a_line() -> None:
    job = run(alone(1.5), (1.0,)).jobs["a"]
    # an iteration takes 150 (1 + x) s at the share x of life
    assert job.iterations == pytest.approx(100 * HOUR / 150 * LN2, rel=1e-5)
    assert job.elapsed_s == 100 * HOUR
    assert job.slowdown == pytest.approx(1.0, rel=1e-9)  # alone it is never slowed down
    assert job.planned_s == pytest.approx(150 * job.iterations, rel=1e-9)
    assert job.late_s == 0.0


@pytest.mark.parametrize(("slo", "met"), [(1.44, False), (1.45, True)])
def test_a_deadline_planned_at_arrival_is_broken_by_growth_alone(slo: float, met: bool) -> None:
    found = run(alone(slo), (1.0,))  # elapsed over planned seconds: 1 / ln 2 = 1.4427
    assert found.slo_attainment_fixed == float(met)
    assert found.slo_attainment == 1.0


def test_sync_does_not_grow() -> None:
    jobs = table_of(job_of("a", 200, 100, 2.0, sync_s=150.0, duration_s=100 * HOUR))
    job = run(jobs, (1.0,)).jobs["a"]
    # 150 (1 + x) + 150 = 150 (2 + x): the mean of 1 / (2 + x) is ln(3 / 2)
    assert job.iterations == pytest.approx(100 * HOUR / 150 * log(1.5), rel=1e-5)


@pytest.mark.parametrize(("slo_b", "met"), [(1.44, 0.5), (1.45, 1.0)])
def test_a_growing_job_slows_down_the_one_beside_it(slo_b: float, met: float) -> None:
    found = run(two(slo_b), (1.0, 0.0))
    a, b = found.jobs["a"], found.jobs["b"]
    # a's own iteration, 200 (1 + x) s, is the group's; b alone would take 200 s
    assert a.iterations == pytest.approx(100 * HOUR / 200 * LN2, rel=1e-5)
    assert b.iterations == a.iterations
    assert a.slowdown == pytest.approx(1.0, rel=1e-9)
    assert b.slowdown == pytest.approx(1 / LN2, rel=1e-5)
    assert found.slo_attainment == met
    assert found.usd_total == pytest.approx(100 * PAIR_USD)
    # b is late once 1 + x is above its SLO; whole pieces of an hour
    assert b.late_s == pytest.approx((2 - slo_b) * 100 * HOUR, abs=HOUR)
    assert found.late_share == pytest.approx(b.late_s / (200 * HOUR))


def test_a_shrinking_job_is_slowed_down_by_the_one_that_stays() -> None:
    shape = GrowthShape(life_share=(0.0, 1.0), relative_length=(1.0, 1.5), source="hand")
    found = run(two(1.3), (0.0, -1.0), shape=shape)
    b = found.jobs["b"]
    # b alone would take 200 (1 - x / 2) s, the group goes on at a's 200: slowdown 1 / (3 / 4)
    assert b.slowdown == pytest.approx(4 / 3, rel=1e-5)
    assert not b.attained
    assert b.attained_fixed  # nothing takes longer than planned
    assert found.slo_attainment == 0.5
    assert found.slo_attainment_fixed == 1.0


def test_resubmission_costs_nodes_and_a_restart() -> None:
    jobs = two(1.2).replace(optional={"restart_s": [360.0, 360.0]})
    found = run(jobs, (1.0, 0.0), "resubmit")
    # b's deadline is 240 s, and 200 (1 + x) is 240 at 20 h: not beyond; at 21 h it is
    (resubmission,) = found.regroupings
    assert (resubmission.at_s, found.moves, found.moved_jobs) == (21 * HOUR, 1, 1)
    assert found.paused_h == pytest.approx(0.1)
    assert found.usd_total == pytest.approx(PAIR_USD * (21 + 79 + 79.1))
    assert found.slo_attainment == 1.0
    assert found.jobs["a"].elapsed_s == pytest.approx(100.1 * HOUR)
    assert found.break_even_h is None  # it buys nodes, it saves none


def test_restarts_take_progress_and_not_life() -> None:
    jobs = two(1.2).replace(optional={"restart_s": [36_000.0, 36_000.0]})
    found = run(jobs, (1.0, 0.0), "resubmit").jobs["a"]
    # its life goes on after 10 h of restart, with as many iterations as without
    assert found.iterations == pytest.approx(100 * HOUR / 200 * LN2, rel=1e-5)
    assert found.slowdown == pytest.approx(1.1, rel=1e-5)


# --- no drift -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["weave", "random", "most-idle", "solo", "repack"])
def test_without_drift_the_plan_is_that_of_a_plain_replay(policy: str) -> None:
    jobs = production(n_jobs=16, seed=1)
    params = DriftParams(envelope="limit")
    lengths = params.lengths(jobs, (0.0,) * len(jobs))
    options = options_of(limits=Limits(max_group_size=5), seed=3)
    plain = replay(jobs, policy, options, convention="wallclock")
    ours, _ = drift_replay(lengths, policy, params, seed=3)
    assert plain.plan is not None
    assert ours.plan is not None
    assert repr(ours.plan.groups) == repr(plain.plan.groups)
    assert repr(ours.usd_total) == repr(plain.usd_total)
    assert ours.plan.pauses == plain.plan.pauses


def test_without_drift_the_measured_progress_is_the_planned_one() -> None:
    jobs = production(n_jobs=40, seed=1)
    params = DriftParams(start_share=1.0, by_law=False)
    found = drift_run(params.lengths(jobs, (0.0,) * len(jobs)), "weave", params)
    plain = replay(jobs, "weave", options_of(limits=params.limits), convention="wallclock")
    for record in plain.records:
        # the orders of a plan may allow a shorter period than it states, never need a longer one
        job = found.jobs[record.job.job_id]
        assert job.iterations >= record.iterations * (1 - 1e-9)
        assert job.iterations <= record.iterations * 1.01
    assert found.slo_attainment == found.slo_attainment_fixed == 1.0
    assert found.late_share == 0.0
    assert found.usd_total == plain.usd_total


@pytest.mark.parametrize("setting", ["increasing", "decreasing", "mixed"])
def test_planned_at_the_limit_no_deadline_is_broken(setting: str) -> None:
    study = drift_study(
        lambda seed: random_trace(seed, n=8).jobs,
        setting,
        ("weave", "repack"),
        (0, 1, 2),
        DriftParams(envelope="limit"),
    )
    for runs in study.runs.values():
        assert [found.slo_attainment_fixed for found in runs] == [1.0, 1.0, 1.0]


def test_beyond_the_limit_even_the_worst_case_is_left() -> None:
    at_limit = {"start_share": 1.0, "envelope": "limit"}
    assert run(alone(1.4), (1.0,), **at_limit).slo_attainment_fixed == 1.0
    beyond = run(alone(1.4), (1.0,), **at_limit, beyond_limit=True)
    assert beyond.slo_attainment_fixed == 0.0  # 1 / ln 2 > 1.4
    assert beyond.jobs["a"].planned_s == pytest.approx(100 * HOUR * LN2, rel=1e-5)


# --- policies on random traces --------------------------------------------------------------------


@pytest.mark.parametrize("policy", DRIFT_POLICIES)
@pytest.mark.parametrize("envelope", ["arrival", "limit"])
def test_every_policy_accounts_for_every_job(policy: str, envelope: str) -> None:
    jobs = random_trace(5, n=9).jobs
    params = DriftParams(envelope=envelope)
    found = drift_run(params.lengths(jobs, (1.5, -1.5, 0.5) * 3), policy, params)
    assert set(found.jobs) == set(jobs.job_id)
    assert all(job.iterations > 0 for job in found.jobs.values())
    assert all(job.slowdown >= 1 - 1e-9 for job in found.jobs.values())
    assert found.checked == (policy not in ("random", "most-idle"))
    elapsed_h = sum(job.elapsed_s for job in found.jobs.values()) / HOUR
    assert elapsed_h == pytest.approx(float(jobs.duration_s.sum()) / HOUR + found.paused_h)
    assert sum(r.moves for r in found.regroupings) in (0, found.moves)
    assert (found.moves > 0) <= (policy in ("regroup", "payback", "resubmit", "repack"))


def test_the_same_seed_gives_the_same_run() -> None:
    jobs = random_trace(2, n=8).jobs
    first, second = (drift_study(jobs, "mixed", ("regroup", "random"), (0, 1)) for _ in range(2))
    assert first.rows == second.rows
    assert len({found.templates for found in first.runs["regroup"]}) == 2
    # common random numbers: the same templates whatever the policy
    for a, b in zip(first.runs["regroup"], first.runs["random"], strict=True):
        assert a.templates == b.templates


def test_a_study_reports_progress() -> None:
    seen: list[tuple[str, int, int]] = []
    drift_study(alone(2.0), "none", ("weave", "solo"), (4,), progress=lambda *a: seen.append(a))
    assert seen == [("none", 1, 2), ("none", 2, 2)]


def ticking(limit_s: float) -> Deadline:
    """Return a deadline on a clock that goes on by a second whenever it is read."""
    seconds = count()
    return Deadline(lambda: float(next(seconds)), limit_s)


def test_at_the_deadline_complete_seeds_are_returned() -> None:
    # one departure a run, at which the clock is read once: the fourth run is too late
    study = drift_study(alone(2.0), "mixed", ("weave", "solo"), (5, 6, 7), deadline=ticking(3.5))
    assert study.seeds == (5,)
    assert [len(found) for found in study.runs.values()] == [1, 1]
    assert study.stopped_by == StoppedBy.TIME
    with pytest.raises(OutOfTimeError):
        drift_study(alone(2.0), "mixed", ("weave", "solo"), (5, 6), deadline=ticking(1.5))


def test_at_ctrl_c_complete_seeds_are_returned() -> None:
    def stop(setting: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    study = drift_study(alone(2.0), "mixed", ("weave", "solo"), (5, 6, 7), progress=stop)
    assert study.seeds == (5,)
    assert study.stopped_by == StoppedBy.INTERRUPT
    with pytest.raises(KeyboardInterrupt):
        drift_study(alone(2.0), "mixed", DRIFT_POLICIES, (5, 6), progress=stop)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"setting": "rising"}, "setting"),
        ({"policies": ("weve",)}, "Did you mean 'weave'"),
        ({"seeds": ()}, "one seed"),
        ({"policies": ("weave", "weave")}, "distinct"),
    ],
)
def test_a_study_is_checked(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        drift_study(alone(2.0), **{"setting": "mixed", **arguments})


def test_parameters_are_checked() -> None:
    with pytest.raises(InputError, match="Did you mean 'arrival'"):
        DriftParams(envelope="arival")
    with pytest.raises(InputError, match="by_law"):
        DriftParams(by_law=True, beyond_limit=True)
    with pytest.raises(InputError, match="one job"):
        drift_run(PARAMS.lengths(alone(2.0).take([]), ()), "weave", PARAMS)
    with pytest.raises(InputError, match="keep_slo"):
        run(alone(2.0), (0.0,), "regroup", regroup=RegroupParams())


# --- rows -----------------------------------------------------------------------------------------


def study_of(weave_usd: tuple[float, ...], met: tuple[float, ...]) -> DriftStudy:
    """Return a study of 1,000 jobs a run: weave of these costs and attainments, regroup of $100."""

    def made(policy: str, usd: float, share: float) -> DriftRun:
        good = JobDrift(slo=1.0, elapsed_s=1.0, iterations=1.0, alone_s=1.0, planned_s=1.0)
        bad = JobDrift(slo=1.0, elapsed_s=1.0, iterations=1.0, alone_s=0.5, planned_s=1.0)
        n_good = round(1000 * share)
        return DriftRun(
            policy=policy, setting="mixed", seed=0, usd_total=usd, horizon_h=1.0, templates=(),
            jobs={str(i): good if i < n_good else bad for i in range(1000)},
            moves=0, moved_jobs=0, paused_h=0.0, checked=True,
        )  # fmt: skip

    return DriftStudy(
        setting="mixed",
        params=PARAMS,
        seeds=tuple(range(len(met))),
        runs={
            "weave": tuple(made("weave", u, s) for u, s in zip(weave_usd, met, strict=True)),
            "regroup": tuple(made("regroup", 100.0, 1.0) for _ in met),
        },
    )


def test_rows_hold_the_published_value_against_the_interval() -> None:
    rows = drift_rows({"mixed": study_of((107.0, 108.0, 109.0), (0.70, 0.71, 0.72))})
    by_item = {row.item: row for row in rows}
    assert len(rows) == 9
    cost = by_item["drift mixed, static over hourly optimum"]
    assert cost.ours["wallclock"].mean == pytest.approx(1.08)
    assert (cost.published, cost.verdict, cost.why) == ("1.08", AGREES, "")
    present = by_item["drift mixed, SLOs met, by present lengths"]
    assert present.ours["wallclock"].mean == pytest.approx(71.0)
    assert (present.published, present.verdict) == ("95.6", DIFFERS)
    assert all(unknown in present.why for unknown in UNKNOWN_INPUTS)
    planned = by_item["drift mixed, SLOs met, by planned lengths"]
    assert planned.ours["wallclock"].mean == 100.0
    assert {row.verdict for row in rows if "mixed" not in row.item} == {NOT_COMPARED}
    assert [row.published for row in rows if "hourly" in row.item] == ["1.11", "1.10", "1.08"]


def test_a_run_is_told_in_plain_values() -> None:
    row = run(two(2.0), (1.0, 0.0)).row
    assert row["policy"] == "weave"
    assert row["usd_per_hour_mean"] == pytest.approx(PAIR_USD)
    # the pair gets done what a and b alone take: a all of the time, b ln 2 of it
    assert row["usd_per_alone_hour"] == pytest.approx(PAIR_USD / (1 + LN2), rel=1e-5)
    assert all(value is None or isinstance(value, int | float | str) for value in row.values())
