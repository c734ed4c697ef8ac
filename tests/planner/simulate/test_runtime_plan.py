"""Whole plans run, and what planning for less than the worst case risks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest

from builders import job_of, options_of, table_of
from instances.errors import InputError, UnsupportedError
from instances.generate import production
from instances.jobs import JobTable
from instances.plan import Pause, Plan
from models.problem.options import Deadline
from planner.replay.replaying import replay
from planner.simulate.lengths import PhaseSampler, WorstCase
from planner.simulate.runtime import simulate_group, simulate_plan
from planner.simulate.runtime_report import Execution, profiled_laws, slo_study
from planner.size.plan_at import PlanLevel
from runtime_cases import Given, long_and_short

LEVELS = (PlanLevel("p50", 0.5), PlanLevel("max", 1.0))


def plan_of(jobs: JobTable, policy: str = "weave") -> Plan:
    plan = replay(jobs, policy, options_of()).plan
    assert plan is not None
    return plan


def pair_plan(to_s: float = 4000.0, cut_s: float | None = None) -> Plan:
    """Return the long and the short job as a plan, in one version or in two."""
    version, jobs = long_and_short()
    ends = [0.0, to_s] if cut_s is None else [0.0, cut_s, to_s]
    versions = tuple(replace(version, from_s=a, to_s=b) for a, b in pairwise(ends))
    return replace(plan_of(jobs), groups=versions)


def test_planned_seconds_do_what_was_planned() -> None:
    jobs = production(n_jobs=40, seed=3)
    report = simulate_plan(plan_of(jobs), WorstCase(jobs))
    assert report.complete
    assert report.slo_attainment == 1.0
    # never fewer; more by at most the one iteration a version that may start early
    assert (report.iterations >= report.planned_iterations * (1 - 1e-9)).all()
    assert report.done_over_planned == pytest.approx(1, abs=0.01)
    result = replay(jobs, "weave", options_of())
    for pool, planned in result.idle_fraction.items():
        assert report.idle_fraction[pool] == pytest.approx(planned, abs=0.01)
    for record, done in zip(result.records, report.planned_iterations, strict=True):
        assert done == pytest.approx(record.iterations)


def test_alone_an_iteration_takes_what_is_drawn() -> None:
    jobs = production(n_jobs=12, seed=1)
    sampler = PhaseSampler(jobs, seed=4)
    report = simulate_plan(plan_of(jobs, "solo"), sampler)
    for j, done in enumerate(report.iterations):
        rollout_s, train_s = sampler.phases(j, 0, int(done))
        solo_s = float((rollout_s + train_s).mean() + jobs.sync_s[j])
        assert report.mean_iteration_s[j] == pytest.approx(solo_s, rel=0.01)
    assert (report.slowdown < 1).all()
    assert report.slo_attainment == 1.0


def test_iterations_carry_over_from_version_to_version() -> None:
    # rollouts of 10 s, trains of 10, then 5 s from the long job's iteration 7 on: cut at 150 s, in
    # the middle of iteration 7, it goes on with number 7
    version, jobs = long_and_short()
    seconds = np.ones((2, 2, 40))
    seconds[:, 0, :] = 10.0
    seconds[1, 0, 7:] = 5.0
    plan = pair_plan(to_s=310.0, cut_s=150.0)
    report = simulate_plan(plan, Given(jobs, seconds))
    first = simulate_group(version, jobs, Given(jobs, seconds), horizon_s=150.0).jobs[0]
    assert first.iterations == pytest.approx(7 + 10 / 15)  # 7 of 20 s, then 10 of 15 s
    # 160 s of 15 s each
    assert report.iterations[0] == pytest.approx(7 + 10 / 15 + 160 / 15)
    assert report.mean_iteration_s[0] == pytest.approx(310 / float(report.iterations[0]))
    assert report.planned_iterations[0] == pytest.approx(15.5)


def test_a_capped_version_is_extrapolated() -> None:
    _, jobs = long_and_short()
    plan = pair_plan()
    whole = simulate_plan(plan, WorstCase(jobs))
    capped = simulate_plan(plan, WorstCase(jobs), most_iterations=10)
    assert capped.phases < whole.phases / 10
    assert capped.iterations[0] == pytest.approx(whole.iterations[0])
    assert capped.idle_fraction["train"] == pytest.approx(0.45, abs=0.005)
    assert whole.idle_fraction["train"] == pytest.approx(0.45, abs=0.0005)


def test_a_paused_job_does_nothing_meanwhile() -> None:
    _, jobs = long_and_short()
    plan = replace(pair_plan(), pauses=(Pause(job_id="long", from_s=0.0, to_s=1000.0),))
    report = simulate_plan(plan, WorstCase(jobs))
    assert report.iterations[0] == pytest.approx(150)
    assert report.mean_iteration_s[0] == pytest.approx(4000 / 150)
    # train: 3,000 of 4,000 s with 10 s in 20, and the short job's 1 s in 20
    assert report.idle_fraction["train"] == pytest.approx(1 - 0.375 - 0.05, abs=0.0005)


def test_first_come_first_served_promises_nothing() -> None:
    # a trains 1 s after each rollout of 1 s with slo 1: the first train of b, 10 s, is in its way
    jobs = table_of(job_of("a", 1, 1, slo=1.0), job_of("b", 10, 10, slo=1.0))
    plan = replace(pair_plan(), jobs=jobs)
    version, _ = long_and_short()
    renamed = tuple(
        replace(placement, job_id=name)
        for placement, name in zip(version.placements, ("b", "a"), strict=True)
    )
    plan = replace(plan, groups=(replace(version, placements=renamed),))
    report = simulate_plan(plan, WorstCase(jobs), discipline="fifo")
    # b keeps its promise, being the lower index; a does 5 iterations in 20 s instead of 10
    assert dict(zip(report.job_id, report.missed.tolist(), strict=True)) == {"a": True, "b": False}
    assert report.slo_attainment == 0.5
    assert report.mean_iteration_s[0] == pytest.approx(4, rel=0.01)
    assert report.row["jobs_missed"] == 1
    assert [row["slo_met"] for row in report.rows] == [False, True]
    assert report.worst_over_deadline == pytest.approx(2, rel=0.01)


def test_interference_breaks_a_promise_without_slack() -> None:
    jobs = table_of(job_of("a", 10, 10, slo=1.0), job_of("b", 10, 10, slo=1.0))
    plan = plan_of(jobs)
    assert len(plan.groups[0].placements) == 2  # the first version with both, or the only one
    assert simulate_plan(plan, WorstCase(jobs)).slo_attainment == 1.0
    report = simulate_plan(plan, WorstCase(jobs), interference=0.016)
    assert report.slo_attainment == 0.0
    assert report.worst_over_deadline == pytest.approx(1.016, rel=1e-3)


def test_progress_deadline_and_same_answers() -> None:
    jobs = production(n_jobs=10, seed=2)
    plan, seen = plan_of(jobs), []
    one = simulate_plan(
        plan, PhaseSampler(jobs), progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (len(plan.groups), len(plan.groups))
    assert one.rows == simulate_plan(plan, PhaseSampler(jobs)).rows
    ticks = count()
    cut = simulate_plan(plan, PhaseSampler(jobs), deadline=Deadline(lambda: next(ticks) / 1, 4.5))
    assert not cut.complete
    assert 0 < cut.versions_done < cut.versions


def test_plans_that_cannot_run_are_refused() -> None:
    jobs = production(n_jobs=5, seed=2)
    with pytest.raises(UnsupportedError, match="nodes of both pools"):
        simulate_plan(plan_of(jobs, "colocated"), WorstCase(jobs))
    with pytest.raises(InputError, match="most_iterations >= 1"):
        simulate_plan(plan_of(jobs), WorstCase(jobs), most_iterations=0)


# --- planning at levels ---------------------------------------------------------------------------


def study(jobs: JobTable, **more: Any) -> list[Any]:
    given = {
        "policy": "weave",
        "options": options_of(),
        "convention": "wallclock",
        "levels": LEVELS,
        "execution": Execution(replications=3),
        **more,
    }
    return list(slo_study(jobs, lambda n: PhaseSampler(jobs, replication=n), **given))


def test_planning_for_less_saves_and_the_worst_case_breaks_nothing() -> None:
    jobs = production(n_jobs=30, seed=5)
    worst, half = study(jobs, plan_with="profile")
    assert (worst.level, worst.usd_saved_share, worst.jobs_missed_most) == ("max", 0.0, 0)
    assert worst.slo_attainment.mean == 1.0
    assert half.usd_saved_share > 0
    assert half.usd_total == pytest.approx(worst.usd_total * (1 - half.usd_saved_share))
    assert half.replications == half.slo_attainment.n == 3
    row = half.row
    assert row["slo_attainment_low"] <= row["slo_attainment"] <= row["slo_attainment_high"]


def test_responses_are_not_iterations() -> None:
    # planned at the median response, far below what a batch waits for
    jobs = production(n_jobs=30, seed=5)
    worst, half = study(jobs, levels=(PlanLevel("p50 response", 0.5, "response"), LEVELS[1]))
    assert half.usd_saved_share > 0
    assert half.jobs_missed_most > 0
    assert half.slo_attainment.mean < worst.slo_attainment.mean
    assert half.jobs_ever_missed >= half.jobs_missed_most >= half.jobs_missed_least
    assert half.worst_over_deadline > 1


def test_a_profile_has_the_quantiles_of_what_is_run() -> None:
    jobs = production(n_jobs=2, seed=0)
    sampler = PhaseSampler(jobs)
    law = profiled_laws(sampler)[0]
    rollout_s, train_s = sampler.phases(0, 0, 4000)
    for share in (0.5, 0.95):
        for one, seconds in ((law.rollout, rollout_s), (law.train, train_s)):
            below = float((seconds <= one.seconds(share) * (1 + 1e-9)).mean())
            # of two samples; ties at the limit only raise it
            assert below > share - 4 * (share * (1 - share) * (1 / 1024 + 1 / 4000)) ** 0.5
    assert law.rollout.seconds(1.0) == jobs.rollout_s[0]


def test_a_study_that_runs_out_of_time_keeps_its_rows() -> None:
    jobs = production(n_jobs=10, seed=5)
    ticks = count()
    deadline = Deadline(lambda: float(next(ticks)), 60.0)
    rows = study(jobs, deadline=deadline)
    assert len(rows) <= 1
    assert all(1 <= row.replications <= 3 for row in rows)
    assert study(jobs, deadline=Deadline(lambda: 0.0, 0.0)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"levels": ()}, "at least one level"),
        ({"plan_with": "luck"}, "plan_with"),
        ({"convention": "wall"}, "convention"),
        ({"policy": "colocated"}, "promises valid plans"),
    ],
)
def test_studies_that_make_no_sense_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        study(production(n_jobs=3, seed=0), **more)


def test_replications_are_counted() -> None:
    for value in (0, True):
        with pytest.raises(InputError, match="replications >= 1"):
            Execution(replications=value)
