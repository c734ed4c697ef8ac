"""Running one group: by hand, by simpy, by the period, by properties."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job_of, table_of
from instances.errors import CheckError, InputError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import GroupVersion, JobPlacement
from models.group.period import construct
from models.problem.compiled import plain
from models.problem.options import Deadline
from period_cases import Case, cases, random_cases
from planner.simulate import runtime_kernel
from planner.simulate.lengths import WorstCase
from planner.simulate.runtime import DISCIPLINES, GroupRun, Switches, simulate_group
from planner.simulate.runtime_run import POOLS
from runtime_cases import Given, check_events, fifo_starts, long_and_short, version_of_case
from sampled_cases import simpy_starts


def starts_of(run: GroupRun) -> dict[tuple[int, int, int], float]:
    return {(e.job, POOLS.index(e.pool), e.iteration): e.start_s for e in run.events}


def drawn(case: Case, rng: random.Random, n: int, most: float = 1.0) -> Given:
    """Return seconds in sixteenths, so that sums are exact, at most ``most`` of the planned."""
    jobs = JobTable.from_jobs(case.jobs)
    worst = np.stack([jobs.rollout_s, jobs.train_s])[:, :, None]
    share = np.array([[[rng.random() for _ in range(n)] for _ in case.jobs] for _ in (0, 1)])
    return Given(jobs, np.maximum(np.floor(16 * most * worst * share), 1.0) / 16)


def run_case(case: Case, source: Any, discipline: str = "round-robin", **more: Any) -> GroupRun:
    schedule = construct(case.shape())
    assert schedule is not None
    version = version_of_case(case, schedule)
    return simulate_group(version, source.jobs, source, discipline=discipline, **more)


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("discipline", "share"), [("round-robin", 0.55), ("fifo", 0.75)])
def test_a_short_job_beside_a_long_one(discipline: Any, share: float) -> None:
    # strict: 10 + 1 s of train in every 20; fifo: the short job trains 5 times, every 2 s, while
    # the long one rolls out
    version, jobs = long_and_short()
    run = simulate_group(version, jobs, WorstCase(jobs), discipline=discipline)
    assert run.train_utilisation == {0: pytest.approx(share, rel=1e-12)}
    # the short job's turns: 1 a period, or 5 and one more that the first period begins with
    assert run.jobs[0].iterations == pytest.approx(200)
    assert run.jobs[1].iterations == pytest.approx(200 if share < 0.6 else 1000, abs=1)


def test_a_switch_is_paid_on_shared_nodes_only() -> None:
    version, _ = long_and_short()
    more = {"rollout_switch_s": 3.0, "train_switch_s": 2.0}
    jobs = table_of(job_of("long", 10, 10, **more), job_of("short", 1, 1, slo=20, **more))
    run = simulate_group(version, jobs, WorstCase(jobs), discipline="fifo", events=2)
    assert [(e.start_s, e.run_s, e.end_s) for e in run.events] == [(0, 0, 10), (0, 0, 1)]
    run = simulate_group(version, jobs, WorstCase(jobs), discipline="fifo", events=3)
    assert run.events[2][3:] == (1, 3, 4)  # train on the shared node: 2 s of switch, 1 s of run
    assert run.train_switching[0] > 0
    assert run.rollout_switching == {0: 0.0, 1: 0.0}


def test_switches_may_be_cold_or_nothing_and_a_stay_may_start_cold() -> None:
    version, _ = long_and_short()
    more = {"rollout_switch_s": 3.0, "train_switch_s": 2.0}
    jobs = table_of(job_of("long", 10, 10, **more), job_of("short", 1, 1, slo=20, **more))

    def first(switches: Switches, joins: list[bool]) -> list[float]:
        run = simulate_group(
            version, jobs, WorstCase(jobs), discipline="fifo", switches=switches, joins=joins,
            events=40,
        )  # fmt: skip
        long = [e for e in run.events if e.job == 0]
        return [e.run_s - e.start_s for e in long[:4]]

    factors = {"rollout_cold": 4.0, "train_cold": 5.0}
    assert first(Switches(), [True, True]) == [0, 2, 0, 2]
    assert first(Switches(kind="none"), [True, True]) == [0, 0, 0, 0]
    assert first(Switches(kind="cold", **factors), [True, True]) == [0, 10, 0, 10]
    assert first(Switches(cold_joins=True, **factors), [True, False]) == [12, 10, 0, 2]
    assert first(Switches(cold_joins=True, **factors), [False, True]) == [0, 2, 0, 2]


def test_interference_lengthens_runs_on_shared_nodes_only() -> None:
    version, jobs = long_and_short()
    run = simulate_group(version, jobs, WorstCase(jobs), interference=0.5, events=4000)
    lengths = {(e.job, e.pool): e.end_s - e.run_s for e in run.events}
    assert lengths == {
        (0, "rollout"): 10, (0, "train"): 15, (1, "rollout"): 1, (1, "train"): 1.5,
    }  # fmt: skip
    assert run.jobs[0].mean_iteration_s == pytest.approx(25)  # 10 + 15


def test_single_iterations_are_counted() -> None:
    # rollouts of 1 and 3 s by turns, train 1 s: iterations of 2 and 4 s, deadline 3
    jobs = table_of(job_of("a", 3, 1, slo=0.75))
    seconds = np.ones((2, 1, 400))
    seconds[0, 0, 1::2] = 3.0
    placement = JobPlacement(job_id="a", rollout_pins=(0,), train_pins=(0,), starts_s=((0, 3),))
    version = GroupVersion(
        group_id="g", from_s=0, to_s=600.0, period_s=4.0,
        rollout_nodes=(0,), train_nodes=(0,), placements=(placement,),
    )  # fmt: skip
    (job,) = simulate_group(version, jobs, Given(jobs, seconds)).jobs
    assert job.iterations == pytest.approx(200)  # 600 s, 3 s in the mean
    assert (job.mean_iteration_s, job.sd_s, job.longest_s) == pytest.approx((3, 1, 4))
    assert job.p50_s == pytest.approx(2, rel=0.011)
    assert (job.p95_s, job.p99_s) == (4, 4)
    assert job.late_share == pytest.approx(0.5)
    assert job.slo_met
    assert job.slowdown == pytest.approx(0.75)
    (part,) = simulate_group(version, jobs, Given(jobs, seconds), horizon_s=7.0).jobs
    assert part.iterations == pytest.approx(2.5)  # 2 + 4 s, then 1 of 2 s
    assert part.mean_iteration_s == pytest.approx(2.8)


def test_one_step_jobs_roll_out_one_iteration_ahead() -> None:
    jobs = table_of(job_of("a", 4, 3, sync_s=2, mode="one-step"))
    placement = JobPlacement(job_id="a", rollout_pins=(0,), train_pins=(0,), starts_s=((0, 4),))
    version = GroupVersion(
        group_id="g", from_s=0, to_s=450.0, period_s=4.5,
        rollout_nodes=(0,), train_nodes=(0,), placements=(placement,),
    )  # fmt: skip
    run = simulate_group(version, jobs, WorstCase(jobs), discipline="fifo", events=500)
    check_events(run, jobs)
    # T = max(4, 3, (4 + 3 + 2) / 2): rollout i + 2 waits for train i and sync, 9 s after rollout i
    assert run.jobs[0].mean_iteration_s == pytest.approx(4.5, rel=5e-3)
    rollouts = [e.start_s for e in run.events if e.pool == "rollout"][:5]
    assert rollouts == [0, 4, 9, 13, 18]


# --- against others -------------------------------------------------------------------------------


def test_planned_seconds_give_the_period() -> None:
    periods, first, last = 200, 60, 180  # a difference of 120 periods: of any cyclicity up to 6
    for case in random_cases(5, 350, 5):
        schedule = construct(case.shape())
        assert schedule is not None
        jobs = JobTable.from_jobs(case.jobs)
        version = version_of_case(case, schedule)
        run = simulate_group(
            version, jobs, WorstCase(jobs), iterations=periods, events=2 * periods * 2 * 15
        )
        check_events(run, jobs)
        starts = starts_of(run)
        means = [
            (starts[j, 0, last * k] - starts[j, 0, first * k]) / (last - first)
            for j, k in enumerate(case.rates)
        ]
        # a job that shares nothing iterates by itself, sooner
        assert max(means) == pytest.approx(schedule.period_s, rel=1e-9), case
        for job, rate in zip(run.jobs, case.rates, strict=True):
            assert job.iterations >= periods * rate * (1 - 1e-9)


def test_strict_orders_are_those_of_an_independent_run() -> None:
    rng = random.Random(3)
    for case in random_cases(11, 60, 4):
        schedule = construct(case.shape())
        assert schedule is not None
        version, periods = version_of_case(case, schedule), 6
        source = drawn(case, rng, (periods + 1) * max(case.rates))
        want = simpy_starts(version, case.jobs, source.seconds, periods)
        run = simulate_group(version, source.jobs, source, iterations=periods, events=10_000)
        check_events(run, source.jobs)
        got = starts_of(run)
        # the other run ends with its last period, whose phases then wait for fewer
        whole = [key for key in want if key[2] < periods * case.rates[key[0]]]
        assert len(whole) == 2 * periods * sum(case.rates)
        assert [got[key] for key in whole] == pytest.approx([want[key] for key in whole])


def test_first_come_first_served_is_that_of_an_independent_run() -> None:
    rng = random.Random(4)
    for case in random_cases(12, 80, 5):
        whole = Case(
            tuple(replace(job, sync_s=float(round(job.sync_s)), rollout_switch_s=0.5,
                          train_switch_s=0.25) for job in case.jobs),
            case.rollout_pins, case.train_pins, case.rates,
        )  # fmt: skip
        source = drawn(whole, rng, 200)
        run = run_case(whole, source, "fifo", horizon_s=150.0, events=20_000)
        check_events(run, source.jobs)
        want = fifo_starts(run.version, whole.jobs, source.seconds, 150.0)
        got = {key: at for key, at in starts_of(run).items() if at < 150.0}
        assert got == want  # sixteenths: exact


@settings(deadline=None, max_examples=60)
@given(cases(most_rate=1), st.integers(0, 2**32))
def test_shorter_phases_never_break_a_promise(case: Case, seed: int) -> None:
    schedule = construct(case.shape())
    assert schedule is not None
    source = drawn(case, random.Random(seed), 50)
    run = run_case(case, source, events=3000, iterations=20)
    check_events(run, source.jobs)
    for j, (job, placement) in enumerate(zip(run.jobs, run.version.placements, strict=True)):
        assert job.iterations >= 20 * (1 - 1e-9)
        starts = [e.start_s for e in run.events if e.job == j and e.pool == "rollout"]
        planned = placement.starts_s[0][0]
        assert all(at <= planned + i * schedule.period_s + 1e-6 for i, at in enumerate(starts[:20]))


@settings(deadline=None, max_examples=40)
@given(cases(), st.integers(0, 2**32), st.sampled_from(DISCIPLINES))
def test_phases_never_overlap_nor_reorder(case: Case, seed: int, discipline: str) -> None:
    source = drawn(case, random.Random(seed), 60)
    run = run_case(case, source, discipline, events=4000, interference=0.05, horizon_s=300.0)
    check_events(run, source.jobs)
    total = sum(run.rollout_utilisation.values()) + sum(run.rollout_switching.values())
    assert 0 < total <= len(run.version.rollout_nodes) * (1 + 1e-9)
    assert run.utilisation("train") <= 1 + 1e-9


def test_the_plain_loop_is_the_compiled_ones_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, runs = random.Random(9), []
    chosen = [(case, drawn(case, rng, 60)) for case in random_cases(2, 7, 4)]

    def all_runs() -> list[Any]:
        return [
            (run.jobs, run.events, run.train_utilisation, run.work_s.tolist())
            for case, source in chosen
            for d in DISCIPLINES
            for run in [run_case(case, source, d, horizon_s=100.0, events=500)]
        ]

    runs.append(all_runs())
    for name in dir(runtime_kernel):
        kernel = getattr(runtime_kernel, name)
        if hasattr(kernel, "py_func"):
            monkeypatch.setattr(runtime_kernel, name, plain(kernel))
    monkeypatch.setattr("planner.simulate.runtime.run_events", plain(runtime_kernel.run_events))
    runs.append(all_runs())
    assert runs[0] == runs[1]


# --- limits ---------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_time() -> None:
    version, jobs = long_and_short()

    def peak(horizon_s: float) -> int:
        tracemalloc.start()
        simulate_group(version, jobs, WorstCase(jobs), horizon_s=horizon_s)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100.0)
    assert peak(1e6) < 1.2 * peak(1e4) + 10_000


def test_a_deadline_cuts_a_run_short() -> None:
    version, jobs = long_and_short()
    ticks = count()
    deadline = Deadline(lambda: float(next(ticks)), 3.5)  # three looks at the clock
    run = simulate_group(version, jobs, WorstCase(jobs), horizon_s=1e6, deadline=deadline)
    assert not run.complete
    # three times 256 iterations of 20 s, the last not yet ended
    assert 500 < run.jobs[0].iterations <= 768
    assert run.jobs[0].mean_iteration_s == pytest.approx(20)


def test_ctrl_c_returns_what_is_held() -> None:
    version, jobs = long_and_short()

    class Pressed(WorstCase):
        def phases(self, job: int, iteration_from: int, count: int) -> Any:
            if iteration_from > 500:
                raise KeyboardInterrupt
            return super().phases(job, iteration_from, count)

    run = simulate_group(version, jobs, Pressed(jobs), horizon_s=1e6)
    assert not run.complete
    assert run.jobs[0].iterations > 250


def test_what_makes_no_sense_is_refused() -> None:
    version, jobs = long_and_short()
    source = WorstCase(jobs)
    with pytest.raises(InputError, match="Did you mean 'fifo'"):
        simulate_group(version, jobs, source, discipline="fifoo")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="interference >= 0"):
        simulate_group(version, jobs, source, interference=-0.1)
    with pytest.raises(InputError, match="horizon_s > 0"):
        simulate_group(version, jobs, source, horizon_s=0.0)
    with pytest.raises(InputError, match="iterations >= 1"):
        simulate_group(version, jobs, source, iterations=0)
    with pytest.raises(InputError, match="jobs of the table, got 'long'"):
        simulate_group(version, jobs.take([1]), source)
    with pytest.raises(InputError, match="Expected switches warm, cold, none"):
        Switches(kind="hot")
    with pytest.raises(InputError, match="train_cold >= 0"):
        Switches(train_cold=-1.0)
    bare = replace(version.placements[0], rollout_pins=())
    with pytest.raises(UnsupportedError, match="job 'long'"):
        simulate_group(replace(version, placements=(bare, *version.placements[1:])), jobs, source)


def test_the_check_finds_what_is_wrong() -> None:
    version, jobs = long_and_short()
    run = simulate_group(version, jobs, WorstCase(jobs), events=200)
    check_events(run, jobs)

    def with_event(k: int, **changes: Any) -> GroupRun:
        events = list(run.events)
        events[k] = events[k]._replace(**changes)
        return replace(run, events=tuple(events))

    train = next(k for k, e in enumerate(run.events) if e.job == 0 and e.pool == "train")
    with pytest.raises(CheckError, match="train after its rollout"):
        check_events(with_event(train, start_s=5.0, end_s=6.0), jobs)
    with pytest.raises(CheckError, match="one phase at once"):
        check_events(with_event(train, end_s=500.0), jobs)
    with pytest.raises(CheckError, match="iterations in order"):
        check_events(with_event(train, iteration=7), jobs)
    late = jobs.replace(sync_s=np.array([5.0, 0.0]))
    with pytest.raises(CheckError, match="rollout after train and sync"):
        check_events(run, late)
