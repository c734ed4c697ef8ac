"""Laws of phase seconds, and plans run with sampled ones: by hand, by simpy, by properties."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job_of, options_of, table_of
from instances.errors import InputError
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement, Limits, Pause
from models.problem.compiled import plain
from planner.replay.replaying import replay
from planner.size import sampled_runtimes as module
from planner.size.sampled_runtimes import JobLaw, Law, job_laws, run_sampled, run_version
from sampled_cases import simpy_starts
from snapshot_cases import fast_and_slow, group_of, rich_group

FloatArray = npt.NDArray[np.float64]
SCORE95 = NormalDist().inv_cdf(0.95)


def jobs_with(optional: dict[str, list[float]], *jobs: Job) -> JobTable:
    columns = {name: np.array(values) for name, values in optional.items()}
    return table_of(*jobs).replace(optional=columns)


ONE = job_of("a", 100, 20)


# --- laws -----------------------------------------------------------------------------------------


def test_quantiles_given_are_met_and_the_worst_case_is_the_end() -> None:
    (law,) = job_laws(jobs_with({"rollout_p50_s": [40], "rollout_p95_s": [80]}, ONE))
    assert law.source == "rollout columns"
    assert law.rollout.seconds(0.5) == pytest.approx(40)
    assert law.rollout.seconds(0.95) == pytest.approx(80)
    # a lognormal between: half the score of p95 is the geometric mean of 40 and 80
    assert law.rollout.seconds(NormalDist().cdf(SCORE95 / 2)) == pytest.approx(40 * 2**0.5)
    assert law.rollout.seconds(0.9999) == law.rollout.seconds(1) == 100
    assert not law.train_varies
    assert law.train.seconds(0.01) == 20


def test_the_longest_of_a_batch_follows_from_one_response() -> None:
    columns = {
        "response_p50_tokens": [1000.0],
        "response_p95_tokens": [4000.0],
        "max_tokens": [8000.0],
        "prompts_per_step": [4.0],
        "samples_per_prompt": [2.0],
    }
    (law,) = job_laws(jobs_with(columns, ONE))
    assert law.source == "response columns"
    # the longest of 8 is within the q-quantile of one with probability q^8
    assert law.rollout.seconds(0.95**8) == pytest.approx(100 * 4000 / 8000)
    assert law.rollout.seconds(0.5**8) == pytest.approx(100 * 1000 / 8000)
    assert law.response.seconds(0.95) == pytest.approx(100 * 4000 / 8000)


def test_the_tail_goes_on_as_its_last_two_quantiles() -> None:
    columns = {
        "response_p50_tokens": [100.0],
        "response_p95_tokens": [200.0],
        "response_p99_tokens": [400.0],
        "max_tokens": [1e6],
        "prompts_per_step": [1.0],
        "samples_per_prompt": [1.0],
    }
    (law,) = job_laws(jobs_with(columns, ONE))
    score99 = NormalDist().inv_cdf(0.99)
    slope = log(2) / (score99 - SCORE95)
    beyond = NormalDist().inv_cdf(0.999)
    assert law.rollout.seconds(0.999) == pytest.approx(
        100 * 400 * exp(slope * (beyond - score99)) / 1e6
    )
    assert law.rollout.seconds(0.95) == pytest.approx(100 * 200 / 1e6)


def test_without_columns_there_is_a_guess_that_says_so() -> None:
    (law,) = job_laws(table_of(ONE))
    assert law.source == "guess"
    # the median longest of 512: one response's quantile 0.5^(1/512), score 2.9996; beyond p99
    # with slope log(0.38 / 0.17) / (2.3263 - 1.6449): 0.38 exp(1.1806 x 0.6733) = 0.8414
    assert law.rollout.seconds(0.5) == pytest.approx(84.14, abs=0.05)
    assert law.rollout.seconds(0.95) == 100


def test_half_given_columns_do_not_count() -> None:
    empty = float("nan")
    columns = {"rollout_p50_s": [40.0], "rollout_p95_s": [empty], "response_p50_tokens": [100.0]}
    (law,) = job_laws(jobs_with({**columns, "max_tokens": [1000.0]}, ONE))
    assert law.source == "guess"


def test_train_seconds_vary_with_columns_of_their_own() -> None:
    (law,) = job_laws(jobs_with({"train_p50_s": [10], "train_p95_s": [15]}, ONE))
    assert law.train_varies
    assert law.train.seconds(0.95) == pytest.approx(15)
    assert law.train.seconds(1) == 20


@settings(deadline=None)
@given(st.floats(1, 1000), st.floats(0.01, 1), st.floats(0, 1), st.floats(1, 1e5), st.floats(0, 1))
def test_quantiles_never_fall_nor_pass_the_worst_case(
    most: float, low: float, between: float, longest_of: float, share: float
) -> None:
    p50 = low * most
    p95 = p50 + between * (most - p50)
    law = Law(most, (0.0, SCORE95), (log(p50), log(p95)), longest_of)
    values = [law.seconds(q) for q in sorted((0.0, share, 0.5, 1.0))]
    assert values == sorted(values)
    assert 0 <= values[0] <= values[-1] == most


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_shares_outside_are_refused(share: float) -> None:
    with pytest.raises(InputError, match="Expected a share"):
        Law(1.0).seconds(share)


# --- one version ----------------------------------------------------------------------------------


def worst(version: GroupVersion, jobs: JobTable, periods: int) -> FloatArray:
    """Return worst-case seconds, as ``run_version`` wants them."""
    rates = [len(p.starts_s) for p in version.placements]
    seconds = np.zeros((2, len(rates), (periods + 1) * max(rates)))
    seconds[0] = jobs.rollout_s[:, None]
    seconds[1] = jobs.train_s[:, None]
    return seconds


def version_of(period_s: float, starts_s: Sequence[tuple[float, float]]) -> GroupVersion:
    """Return jobs j0, j1, ... on one node of each kind, planned to start so."""
    return GroupVersion(
        group_id="g1",
        from_s=0.0,
        to_s=3600.0,
        period_s=period_s,
        rollout_nodes=(0,),
        train_nodes=(0,),
        placements=tuple(
            JobPlacement(job_id=f"j{j}", rollout_pins=(0,), train_pins=(0,), starts_s=(pair,))
            for j, pair in enumerate(starts_s)
        ),
    )


def test_alone_by_hand() -> None:
    # sync 1: rollout 10, train 5 -> 16; rollout 4, train 2 -> 16 + 7 = 23; all from the planned 3
    jobs = [job_of("j0", 10, 5, sync_s=1)]
    seconds = np.array([[[10.0, 4.0, 10.0]], [[5.0, 2.0, 5.0]]])
    assert run_version(version_of(16, [(3, 13)]), jobs, seconds, 2).tolist() == [[3, 19, 26]]


def test_two_jobs_keep_their_order_by_hand() -> None:
    # C = 10: a rolls out 0-4 and trains 4-10; b rolls out 4-10 and trains 10-14, that is 0-4.
    # a's first rollout takes 2: it trains 2-8 and is ready at 8, but b, which waits for its
    # planned start at 4, holds the rollout node to 10. b's second rollout takes 3: 14-17, so a
    # might roll out at 17; it trains 14-20 and is ready at 20. b trains 20-23, its third rollout
    # waits for a's, 20-24, and for its own train: 24.
    jobs = [job_of("j0", 4, 6), job_of("j1", 6, 4)]
    version = version_of(10, [(0, 4), (4, 10)])
    seconds = np.array([[[2.0, 4, 4], [6, 3, 6]], [[6.0, 6, 6], [4, 3, 4]]])
    assert run_version(version, jobs, seconds, 2).tolist() == [[0, 10, 20], [4, 14, 24]]


def test_a_switch_is_paid_on_shared_nodes_only() -> None:
    # alone 4 + 6 = 10 a turn; beside another job 1 s more for rollout and 2 for train
    jobs = [job_of(f"j{j}", 4, 6, rollout_switch_s=1, train_switch_s=2) for j in (0, 1)]
    alone = run_version(version_of(10, [(0, 4)]), jobs[:1], np.array([[[4.0] * 2], [[6.0] * 2]]), 1)
    assert alone.tolist() == [[0, 10]]
    both = run_version(
        version_of(16, [(0, 5), (8, 13)]), jobs, np.array([[[4.0] * 2] * 2, [[6.0] * 2] * 2]), 1
    )
    # j0 5 + 8 = 13 at the earliest, when j1's rollout 8-13 has ended; j1 trains 13-21
    assert both.tolist() == [[0, 13], [8, 21]]


def random_group(
    rng: random.Random, modes: Sequence[str] = ("sync",)
) -> tuple[GroupVersion, JobTable]:
    """Return two to four jobs on shared nodes with gangs, sync and switches."""
    n = rng.randint(2, 4)
    jobs = [
        job_of(
            f"j{j}",
            rng.randint(1, 20),
            rng.randint(1, 20),
            50.0,
            sync_s=rng.choice((0.0, 3.0)),
            rollout_switch_s=rng.choice((0.0, 0.5)),
            train_switch_s=rng.choice((0.0, 1.0)),
            mode=rng.choice(modes),
        )
        for j in range(n)
    ]
    pins = [
        [tuple(sorted(rng.sample(range(2), rng.choice((1, 1, 2))))) for _ in range(n)]
        for _ in range(2)
    ]
    return group_of(jobs, *pins)


def seconds_of(rng: random.Random, longest: FloatArray) -> FloatArray:
    shares = np.array([rng.random() for _ in range(longest.size)]).reshape(longest.shape)
    return longest * (0.05 + 0.95 * shares)


CASES = [
    rich_group,
    fast_and_slow,
    *(lambda s=s: random_group(random.Random(s)) for s in range(25)),
    *(lambda s=s: random_group(random.Random(s), ("sync", "one-step")) for s in range(25)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_starts_agree_with_events_run_by_simpy(case: int) -> None:
    version, jobs = CASES[case]()
    members, periods = list(jobs), 6
    seconds = seconds_of(random.Random(case), worst(version, jobs, periods))
    ours = run_version(version, members, seconds, periods)
    theirs = simpy_starts(version, members, seconds, periods)
    for j, placement in enumerate(version.placements):
        last = periods * len(placement.starts_s)
        for i in range(last + 1):
            assert ours[j, i] == pytest.approx(theirs[j, 0, i], abs=1e-9)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_worst_case_is_the_plan(case: int) -> None:
    # the planned starts satisfy every constraint, and these are the least that do
    version, jobs = CASES[case]()
    periods = 8
    starts = run_version(version, list(jobs), worst(version, jobs, periods), periods)
    for j, placement in enumerate(version.placements):
        rate = len(placement.starts_s)
        for i in range(periods * rate + 1):
            planned = placement.starts_s[i % rate][0] + (i // rate) * version.period_s
            assert starts[j, i] <= planned + 1e-6
        assert starts[j, 0] == pytest.approx(placement.starts_s[0][0])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(CASES) - 1), st.integers(0, 10**6))
def test_shorter_phases_never_start_anything_later(case: int, seed: int) -> None:
    version, jobs = CASES[case]()
    rng, members, periods = random.Random(seed), list(jobs), 5
    long = seconds_of(rng, worst(version, jobs, periods))
    short = seconds_of(rng, long)
    earlier = run_version(version, members, short, periods)
    later = run_version(version, members, long, periods)
    for j, placement in enumerate(version.placements):
        last = periods * len(placement.starts_s) + 1
        assert (earlier[j, :last] <= later[j, :last] + 1e-9).all()


def test_the_compiled_kernel_is_its_plain_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    version, jobs = rich_group()
    seconds = seconds_of(random.Random(1), worst(version, jobs, 5))
    fast = run_version(version, list(jobs), seconds, 5)
    monkeypatch.setattr(module, "_run", plain(module._run))
    assert run_version(version, list(jobs), seconds, 5).tolist() == fast.tolist()


# --- a whole plan ---------------------------------------------------------------------------------


def law_of(rollout_s: float, train_s: float) -> JobLaw:
    """Return a job whose iterations are all alike."""
    return JobLaw(Law(float(rollout_s)), Law(float(train_s)), Law(1.0), "guess", False)


def replayed(n_jobs: int = 20, seed: int = 3, **options: Any) -> Any:
    jobs = production(n_jobs=n_jobs, seed=seed, horizon_h=60.0, mean_duration_h=6.0)
    return jobs, options_of(**options)


@pytest.mark.parametrize("policy", ["solo", "weave", "repack"])
@pytest.mark.parametrize("convention", ["work", "wallclock"])
def test_planned_at_worst_nobody_misses(policy: str, convention: Any) -> None:
    # with every phase as long as planned, and with shorter ones
    jobs, options = replayed()
    plan = replay(jobs, policy, options, convention=convention).plan
    assert plan is not None
    always = [law_of(r, t) for r, t in zip(jobs.rollout_s, jobs.train_s, strict=True)]
    for laws in (always, job_laws(jobs)):
        found = run_sampled(plan, jobs, laws, seed=(0,), most_periods=20)
        assert not found.missed.any()
        assert found.late_share == 0
        assert len(found.job_id) == len(jobs)


def test_with_rates_the_mean_keeps_the_promise() -> None:
    jobs, options = replayed(limits=Limits(max_rate=3))
    plan = replay(jobs, "weave", options, convention="wallclock").plan
    assert plan is not None
    assert max(p.rate for g in plan.groups for p in g.placements) > 1
    found = run_sampled(plan, jobs, job_laws(jobs), seed=(0,), most_periods=20)
    assert not found.missed.any()


def test_worst_case_seconds_give_the_plan_s_own_iteration_times() -> None:
    # solo: every iteration takes T_j, and there are stay / T_j of them
    jobs, options = replayed(n_jobs=5)
    plan = replay(jobs, "solo", options, convention="wallclock").plan
    assert plan is not None
    always = [law_of(r, t) for r, t in zip(jobs.rollout_s, jobs.train_s, strict=True)]
    found = run_sampled(plan, jobs, always, seed=(0,))
    assert found.mean_iteration_s == pytest.approx(jobs.solo_s)
    assert found.iterations == pytest.approx(jobs.iterations)


def test_pauses_make_no_iterations() -> None:
    # a stay of ten iterations, of which half is paused: five are done, 2 T_j each
    jobs = table_of(job_of("a", 60, 40, duration_s=1000))
    plan = replay(jobs, "solo", options_of(), convention="wallclock").plan
    assert plan is not None
    paused = replace(plan, pauses=(Pause(job_id="a", from_s=200, to_s=700),))
    always = [law_of(60.0, 40.0)]
    found = run_sampled(paused, jobs, always, seed=(0,))
    assert found.iterations == pytest.approx([5])
    assert found.mean_iteration_s == pytest.approx([200])


def test_too_long_phases_are_found_late() -> None:
    # planned at 50 + 50, D = 1.2 x 100 = 120; run at 80 + 50 = 130 > 120 each time
    jobs = table_of(job_of("a", 50, 50, 1.2, duration_s=1000))
    plan = replay(jobs, "solo", options_of(), convention="wallclock").plan
    assert plan is not None
    found = run_sampled(plan, jobs, [law_of(80.0, 50.0)], seed=(0,))
    assert found.missed.tolist() == [True]
    assert found.mean_iteration_s == pytest.approx([130])
    assert found.late_share == 1


def test_draws_repeat_and_differ_by_seed() -> None:
    jobs, options = replayed(n_jobs=10)
    plan = replay(jobs, "weave", options, convention="work").plan
    assert plan is not None
    runs = [
        run_sampled(plan, jobs, job_laws(jobs), seed=seed).mean_iteration_s.tolist()
        for seed in ((0, 1), (0, 1), (0, 2))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_jobs_without_rollout_nodes_are_refused() -> None:
    jobs = table_of(job_of("a", 50, 50))
    plan = replay(jobs, "colocated", options_of(), convention="work").plan
    assert plan is not None
    with pytest.raises(InputError, match="Expected every job on nodes of both pools"):
        run_sampled(plan, jobs, job_laws(jobs), seed=(0,))
    with pytest.raises(InputError, match="most_periods"):
        run_sampled(plan, jobs, job_laws(jobs), seed=(0,), most_periods=0)


def test_progress_ends_at_the_last_version() -> None:
    jobs, options = replayed(n_jobs=10)
    plan = replay(jobs, "weave", options, convention="work").plan
    assert plan is not None
    told: list[tuple[int, int]] = []
    run_sampled(plan, jobs, job_laws(jobs), seed=(0,), progress=lambda *at: told.append(at))
    assert told[-1] == (len(plan.groups), len(plan.groups))
