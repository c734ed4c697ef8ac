"""What one more of something is worth: by hand, by oracle, and as intervals."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ROLLOUT_USD, TRAIN_USD, cluster_of, job_of, options_of, table_of
from instances.errors import InputError
from instances.jobs import Job, JobTable
from instances.plan import Limits
from planner.gap.moments import Moment
from planner.replay.replaying import replay
from planner.size.shadow_prices import (
    QUESTIONS,
    ChosenMoment,
    MomentWorth,
    Worth,
    _Least,
    _relaxed,
    chosen_moments,
    shadow_prices,
    weighted,
)
from small_snapshots import MIXES, PRECEDENCE, oracle_of, random_jobs, snapshot_of

HOUR_S = 3600.0


def moment_of(
    hours: float, usd: float, from_h: float = 0.0, jobs: tuple[int, ...] = (0,)
) -> Moment:
    return Moment(
        from_s=from_h * HOUR_S,
        to_s=(from_h + hours) * HOUR_S,
        jobs=jobs,
        usd_per_hour=usd,
        dedicated_usd_per_hour=0.0,
    )


def worths_of(jobs: JobTable, *, policy: str = "weave", **more: Any) -> dict[str, Worth]:
    """Return what everything is worth at the only moment of jobs that are there together."""
    result = replay(jobs, policy, options_of(), convention="wallclock")
    prices, moments = shadow_prices(result, time_limit_s=None, **more)
    (moment,) = moments
    assert (moment.chosen.weight, moment.chosen.is_peak) == (1, True)
    assert [price.weight for price in prices] == [
        float(w.low_usd_per_hour is not None) for w in moment.worths
    ]
    return {worth.question: worth for worth in moment.worths}


# --- worths by hand -------------------------------------------------------------------------------


def test_slack_is_worth_a_rollout_node() -> None:
    # 300 s of rollouts fit D = 1.2 x 250 on one node, not 1.1 x 250; trains share in either case
    worths = worths_of(table_of(*(job_of(name, 150, 100, 1.1) for name in "ab")))
    for question in ("slo>=1.2", "slo+0.1"):
        assert worths[question].low_usd_per_hour == pytest.approx(ROLLOUT_USD)
        assert worths[question].proved
    assert worths["dram+256"].high_usd_per_hour == 0


def test_dram_is_worth_a_train_node() -> None:
    # train states of 1,100 GB: two fit 2,256 GB, not 2,000; loads share one pair at D = 200
    jobs = table_of(*(job_of(name, 100, 100, 1.0, train_state_gb=1100) for name in "ab"))
    worth = worths_of(jobs)["dram+256"]
    assert worth.low_usd_per_hour == worth.high_usd_per_hour == pytest.approx(TRAIN_USD)


def present(jobs: list[Job]) -> JobTable:
    return table_of(*jobs)


def test_train_nodes_are_worth_the_rollout_nodes_they_save() -> None:
    # fronts (rollout, train) of the three jobs: (1, 2) and (2, 1). With two train nodes one
    # rollout node does, with one it takes two, and with none nothing runs
    two = worths_of(present(PRECEDENCE), owned_train=2)
    assert two["train-1"].low_usd_per_hour == pytest.approx(ROLLOUT_USD)
    assert two["train+1"].low_usd_per_hour == 0
    one = worths_of(present(PRECEDENCE), owned_train=1)
    assert one["train-1"].low_usd_per_hour is None
    assert one["train-1"].note == "no plan exists with 0 train nodes"
    assert one["train+1"].low_usd_per_hour == pytest.approx(ROLLOUT_USD)
    none = worths_of(present(PRECEDENCE), owned_train=0)
    assert none["train-1"].note == "there are no train nodes to lose"
    assert none["train+1"].note == "no plan exists with 0 train nodes"


def test_the_fleet_is_that_of_the_least_cost_plan_unless_given() -> None:
    # solo holds three train nodes; the least-cost plan has one, as a second saves one rollout node
    worths = worths_of(present(PRECEDENCE), policy="solo")
    assert worths["train-1"].note == "no plan exists with 0 train nodes"
    assert worths["train+1"].low_usd_per_hour == pytest.approx(ROLLOUT_USD)


def test_nodes_of_async_jobs_are_not_of_the_fleet() -> None:
    jobs = table_of(*PRECEDENCE, job_of("apart", 5, 5, train_nodes=4, mode="async"))
    result = replay(jobs, "solo", options_of(), convention="wallclock")
    _, moments = shadow_prices(result, time_limit_s=None, questions=["train-1"])
    assert moments[0].owned_train_nodes == 1


# --- against the oracle ---------------------------------------------------------------------------


@pytest.mark.parametrize("mix", ["sync", "states", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_worths_are_differences_of_the_oracle_s_optima(mix: str, seed: int) -> None:
    drawn = random_jobs(random.Random(seed), 4, MIXES[mix])
    jobs = table_of(*drawn)
    result = replay(jobs, "weave", options_of(limits=Limits(max_group_size=0)), convention="work")
    _, moments = shadow_prices(
        result, k=1, time_limit_s=None, questions=["dram+256", "slo>=1.2", "slo+0.1"]
    )
    for moment in moments:
        here = [jobs.job(i) for i in moment.chosen.moment.jobs]
        base = _least_usd(here)
        raised = [_with_slo(job, max(job.slo, 1.2)) for job in here]
        added = [_with_slo(job, job.slo + 0.1) for job in here]
        by_hand = {
            "dram+256": base - _least_usd(here, dram_gb=2256),
            "slo>=1.2": base - _least_usd(raised),
            "slo+0.1": base - _least_usd(added),
        }
        for worth in moment.worths:
            assert worth.low_usd_per_hour == pytest.approx(by_hand[worth.question], abs=1e-6)
            assert worth.proved


def _with_slo(job: Job, slo: float) -> Job:
    return replace(job, slo=slo)


def _least_usd(jobs: list[Job], dram_gb: float = 2000.0) -> float:
    return oracle_of(snapshot_of(jobs, cluster=cluster_of(host_dram_gb=dram_gb))).usd_per_hour


# --- intervals ------------------------------------------------------------------------------------


def test_an_interval_holds_every_difference_that_bounds_allow() -> None:
    # tight in [80, 100], loose in [60, 90]: at least 0, as tight may be 85 and loose 85; at most 40
    worth = _relaxed("slo+0.1", _Least(80, 100, (1, 1)), _Least(60, 90, (1, 1)))
    assert (worth.low_usd_per_hour, worth.high_usd_per_hour) == (0, 40)
    assert not worth.proved
    # tight at least 95, loose at most 90: at least 5
    worth = _relaxed("slo+0.1", _Least(95, 100, (1, 1)), _Least(60, 90, (1, 1)))
    assert (worth.low_usd_per_hour, worth.high_usd_per_hour) == (5, 40)
    # no plan of the loose problem was found: the tight one's is a plan of it
    worth = _relaxed("slo+0.1", _Least(95, 95, (1, 1)), "no plan was found")
    assert (worth.low_usd_per_hour, worth.high_usd_per_hour) == (0, 95)


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=2),
    st.lists(st.floats(0, 50), min_size=4, max_size=4),
)
def test_intervals_hold_the_true_worth(optima: list[float], off: list[float]) -> None:
    # whatever bounds and costs are around the true optima
    loose, tight = sorted(optima)
    worth = _relaxed(
        "slo+0.1",
        _Least(tight - off[0], tight + off[1], (1, 1)),
        _Least(loose - off[2], loose + off[3], (1, 1)),
    )
    assert worth.low_usd_per_hour is not None
    assert worth.high_usd_per_hour is not None
    assert worth.low_usd_per_hour - 1e-9 <= tight - loose <= worth.high_usd_per_hour + 1e-9


def test_without_time_there_is_an_interval_around_the_proved_worth() -> None:
    jobs = table_of(*(job_of(name, 150, 100, 1.1) for name in "abcd"))
    result = replay(jobs, "weave", options_of(), convention="wallclock")
    questions = ["dram+256", "slo>=1.2", "slo+0.1"]
    proved, _ = shadow_prices(result, time_limit_s=None, questions=questions)
    rushed, _ = shadow_prices(result, time_limit_s=0.0, questions=questions)
    for exact, wide in zip(proved, rushed, strict=True):
        assert exact.low_usd_per_hour == exact.high_usd_per_hour
        assert wide.low_usd_per_hour <= exact.low_usd_per_hour + 1e-9  # type: ignore[operator]
        assert wide.high_usd_per_hour >= exact.high_usd_per_hour - 1e-9  # type: ignore[operator]


# --- moments --------------------------------------------------------------------------------------


def test_moments_stand_for_equal_parts_of_time() -> None:
    # by price 10 (4 h), 20 (4 h), 30 (1.5 h), 40 (0.5 h); parts of 5 h with middles at 2.5 and
    # 7.5 h: prices 10 and 20; the peak, 40, on its own. The moment without jobs is no moment.
    moments = [
        moment_of(4, 20, 0),
        moment_of(0.5, 40, 4),
        moment_of(4, 10, 5),
        moment_of(1.5, 30, 9),
        moment_of(90, 0, 11, jobs=()),
    ]
    chosen = chosen_moments(moments, 2)
    assert [(c.moment.usd_per_hour, c.weight, c.is_peak) for c in chosen] == [
        (10, 0.5, False),
        (20, 0.5, False),
        (40, 0.0, True),
    ]


def test_few_moments_stand_for_several_parts() -> None:
    chosen = chosen_moments([moment_of(3, 10), moment_of(1, 20, 3)], 4)
    assert [(c.moment.usd_per_hour, c.weight, c.is_peak) for c in chosen] == [
        (10, 0.75, False),
        (20, 0.25, True),
    ]
    assert chosen_moments([moment_of(1, 0, jobs=())], 3) == ()


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 5)), min_size=1, max_size=20))
def test_weights_sum_to_one_and_the_peak_is_there(parts: list[tuple[float, int]]) -> None:
    moments = [moment_of(hours, usd, 20.0 * i) for i, (hours, usd) in enumerate(parts)]
    chosen = chosen_moments(moments, 5)
    assert sum(c.weight for c in chosen) == pytest.approx(1)
    assert [c.moment.usd_per_hour for c in chosen if c.is_peak] == [
        max(m.usd_per_hour for m in moments)
    ]


def test_a_price_is_the_weighted_sum_over_the_moments_that_have_one() -> None:
    def worth(low: float | None, high: float | None) -> tuple[Worth, ...]:
        return (Worth(question="train-1", low_usd_per_hour=low, high_usd_per_hour=high),)

    moments = [
        MomentWorth(
            chosen=ChosenMoment(moment=moment_of(1, 1), weight=weight, is_peak=peak),
            least_low_usd_per_hour=1,
            least_high_usd_per_hour=1,
            nodes=(1, 1),
            owned_train_nodes=1,
            worths=worths,
        )
        for weight, peak, worths in (
            (0.5, False, worth(2, 2)),
            (0.25, False, worth(4, 8)),
            (0.25, False, worth(None, None)),
            (0.0, True, worth(50, 60)),
        )
    ]
    (price,) = weighted(moments)
    # (0.5 x 2 + 0.25 x 4) / 0.75 and (0.5 x 2 + 0.25 x 8) / 0.75
    assert price.low_usd_per_hour == pytest.approx(8 / 3)
    assert price.high_usd_per_hour == pytest.approx(4)
    assert (price.peak_low_usd_per_hour, price.peak_high_usd_per_hour) == (50, 60)
    assert (price.moments, price.proved, price.weight) == (2, 1, 0.75)
    assert price.row["label"] == QUESTIONS["train-1"]
    assert moments[1].rows[0]["question"] == "train-1"


def test_progress_counts_answers() -> None:
    told: list[tuple[int, int]] = []
    result = replay(present(PRECEDENCE), "weave", options_of(), convention="wallclock")
    shadow_prices(result, questions=["dram+256", "slo+0.1"], progress=lambda *at: told.append(at))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("changes", [{"k": 0}, {"questions": ["dram"]}])
def test_senseless_questions_are_refused(changes: Any) -> None:
    result = replay(present(PRECEDENCE), "weave", options_of(), convention="wallclock")
    with pytest.raises(InputError, match="Expected"):
        shadow_prices(result, **changes)
