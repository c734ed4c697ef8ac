"""Response lengths, and the phases that follow from them."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job_of, table_of
from instances.errors import InputError
from instances.jobs import JobTable
from models.problem.compiled import plain
from planner.simulate import lengths as module
from planner.simulate.lengths import (
    LengthLaw,
    PhaseSampler,
    PhaseSource,
    WorstCase,
)
from planner.size.sampled_runtimes import job_laws

ALWAYS_LONGEST = LengthLaw(limit_tokens=1000.0)


def jobs_with(**optional: float) -> JobTable:
    """Return one job of 100 s of rollout and 20 s of train with optional columns."""
    columns = {name: np.array([value]) for name, value in optional.items()}
    return table_of(job_of("a", 100, 20)).replace(optional=columns)


# --- lengths --------------------------------------------------------------------------------------


def test_percentiles_are_met_and_the_limit_is_the_end() -> None:
    law = LengthLaw.through(8000.0, [(0.5, 1000.0), (0.95, 4000.0)])
    assert law.quantile(0.5) == pytest.approx(1000)
    assert law.quantile(0.95) == pytest.approx(4000)
    score = NormalDist().inv_cdf
    # a lognormal: the same factor for the same step of the score
    beyond = 4000 * exp(log(4) / score(0.95) * (score(0.97) - score(0.95)))
    assert law.quantile(0.97) == pytest.approx(beyond)
    assert law.quantile(0.9999) == 8000


def test_three_percentiles_are_all_met_by_draws() -> None:
    law = LengthLaw.through(1e6, [(0.5, 100.0), (0.95, 400.0), (0.99, 3000.0)])
    tokens = law.draw(np.random.default_rng(0), (200_000,)) * law.limit_tokens
    for share, want in ((0.5, 100), (0.95, 400), (0.99, 3000)):
        # binomial: four deviations of the share found below
        assert abs((tokens <= want).mean() - share) < 4 * (share * (1 - share) / 200_000) ** 0.5


def test_a_histogram_keeps_its_shape_at_another_limit(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    # bins 100 wide; 300 to 399 is empty, 500 is the file's limit
    path.write_text("tokens,share\n0,2\n100,1\n200,4\n400,2\n500,1\n", encoding="utf-8")
    law = LengthLaw.from_histogram(path, 5000.0)
    assert law.quantile(0.1) == pytest.approx(500)  # half of the first bin, times ten
    assert law.quantile(0.2) == pytest.approx(1000)
    assert law.quantile(0.7 - 1e-9) == pytest.approx(3000)
    assert law.quantile(0.7 + 1e-9) == pytest.approx(4000)
    assert law.quantile(0.95) == 5000
    assert law.scaled(500.0).quantile(0.1) == pytest.approx(50)
    tokens = law.draw(np.random.default_rng(1), (50_000,)) * law.limit_tokens
    assert not ((tokens > 3000.01) & (tokens < 3999.99)).any()
    assert (tokens == 5000).mean() == pytest.approx(0.1, abs=0.006)
    # 0.2 x 50 + 0.1 x 150 + 0.4 x 250 + 0.2 x 450 + 0.1 x 500 = 265, sd about 150
    assert tokens.mean() == pytest.approx(2650, abs=4 * 1500 / 50_000**0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n0,1\n", "two rows"),
        ("a,b\n0,x\n1,1\n", "two numbers in a row of a histogram, got '0,x'.*line 2"),
        ("0,1\n1,1\n2,1\n", "a header, got '0,1'"),  # else its first bin would be lost
        ("a,b\n0,1\n1,inf\n", "two numbers in a row of a histogram, got '1,inf'.*line 3"),
        ("a,b\n0,1\nnan,1\n", "line 3"),
        ("a,b\n0,1\n1,1\0\n", "NUL byte"),
        ("a,b\n1,1\n0,1\n", "rising bins"),
        ("a,b\n0,0\n1,0\n", "rising bins"),
        ("a,b\n0,1\n1\n", "histogram"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        LengthLaw.from_histogram(path)


def test_laws_that_make_no_sense_are_refused() -> None:
    for percentiles in ([(0.5, 1.0)], [(0.9, 1.0), (0.5, 2.0)], [(0.0, 1.0), (0.5, 2.0)]):
        with pytest.raises(InputError, match="rising shares"):
            LengthLaw.through(10.0, percentiles)
    for tokens in ((2.0, 1.0), (0.0, 1.0)):
        with pytest.raises(InputError, match="tokens > 0"):
            LengthLaw.through(10.0, [(0.5, tokens[0]), (0.9, tokens[1])])
    with pytest.raises(InputError, match="limit_tokens > 0"):
        LengthLaw.through(0.0, [(0.5, 1.0), (0.9, 2.0)])
    with pytest.raises(InputError, match="two points"):
        LengthLaw(limit_tokens=1.0, at=(0.5,), log_tokens=(0.0,))
    with pytest.raises(InputError, match="share in"):
        ALWAYS_LONGEST.quantile(1.0)


# --- phases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("responses", [1, 7, 512])
@pytest.mark.parametrize("slots", [1, 3, 256])
def test_all_responses_at_the_limit_take_the_worst_case(responses: int, slots: int) -> None:
    jobs = jobs_with(prompts_per_step=responses, samples_per_prompt=1.0)
    sampler = PhaseSampler(jobs, lengths=[ALWAYS_LONGEST], slots_per_gpu=slots, gpus_per_node=1)
    rollout_s, train_s = sampler.phases(0, 3, 5)
    assert (rollout_s == 100.0).all()
    assert (train_s == 20.0).all()
    assert len(rollout_s) == len(train_s) == 5


def test_a_response_takes_the_next_free_slot() -> None:
    # two slots: 5 and 1 start; 2 follows 1 at 1, ends at 3; 4 follows it, ends at 7
    ends = module._finish(np.array([[5.0, 1.0, 2.0, 4.0]]), 2)
    assert ends.tolist() == [[5, 1, 3, 7]]


def test_the_compiled_slots_are_their_plain_twins() -> None:
    lengths = np.random.default_rng(0).random((3, 50))
    assert (module._finish(lengths, 7) == plain(module._finish)(lengths, 7)).all()


def test_train_is_linear_in_the_tokens() -> None:
    jobs = jobs_with(prompts_per_step=4.0, samples_per_prompt=2.0, max_tokens=8000.0)
    sampler = PhaseSampler(jobs, seed=1)
    finish_s = sampler.finish_s(0, 0, 50)  # every response has a slot: as long as its length
    rollout_s, train_s = sampler.phases(0, 0, 50)
    assert train_s == pytest.approx(20 * finish_s.mean(axis=1) / 100)
    assert rollout_s == pytest.approx(finish_s.max(axis=1))
    fixed = PhaseSampler(jobs, seed=1, train_fixed_share=0.25)
    assert fixed.phases(0, 0, 50)[1] == pytest.approx(5 + 0.75 * train_s)


def test_the_rollout_follows_the_law_of_the_longest_response() -> None:
    jobs = jobs_with(
        response_p50_tokens=1000.0, response_p95_tokens=4000.0, max_tokens=32_000.0,
        prompts_per_step=8.0, samples_per_prompt=2.0,
    )  # fmt: skip
    (law,) = job_laws(jobs)
    sampler = PhaseSampler(jobs, seed=2)
    assert sampler.sources == ("response columns",)
    assert sampler.responses == (16,)
    rollout_s, _ = sampler.phases(0, 0, 20_000)
    for share in (0.05, 0.5, 0.9):
        below = (rollout_s <= law.rollout.seconds(share)).mean()
        assert abs(below - share) < 4 * (share * (1 - share) / 20_000) ** 0.5


def test_measured_seconds_go_first() -> None:
    jobs = jobs_with(
        rollout_p50_s=40.0, rollout_p95_s=80.0, train_p50_s=5.0, train_p95_s=10.0,
        max_tokens=100.0,
    )  # fmt: skip
    (law,) = job_laws(jobs)
    sampler = PhaseSampler(jobs, seed=3)
    assert sampler.sources == ("rollout columns",)
    rollout_s, train_s = sampler.phases(0, 0, 20_000)
    for share in (0.2, 0.5, 0.95):
        deviation = 4 * (share * (1 - share) / 20_000) ** 0.5
        assert abs((rollout_s <= law.rollout.seconds(share)).mean() - share) < deviation
        assert abs((train_s <= law.train.seconds(share)).mean() - share) < deviation
    assert rollout_s.max() == 100  # beyond p95 by the lognormal, cut off
    # both at the same quantile: by rising rollouts, trains rise, but where one is cut off
    inner = rollout_s < 99.999
    assert (np.diff(train_s[inner][np.argsort(rollout_s[inner])]) > -1e-6).all()
    assert sampler.finish_s(0, 7, 1)[0, -1] == pytest.approx(rollout_s[7])


def test_measured_rollouts_take_train_with_them() -> None:
    jobs = jobs_with(rollout_p50_s=40.0, rollout_p95_s=80.0)
    sampler = PhaseSampler(jobs, seed=3)
    rollout_s, train_s = sampler.phases(0, 0, 500)
    finish_s = sampler.finish_s(0, 0, 500)
    assert finish_s[:, -1] == pytest.approx(rollout_s)
    assert train_s == pytest.approx(20 * finish_s.mean(axis=1) / 100)


def test_a_shape_stands_in_for_the_guess_only(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("tokens,share\n0,1\n10,1\n", encoding="utf-8")
    assert PhaseSampler(jobs_with(), histogram=path).sources == ("histogram",)
    assert PhaseSampler(jobs_with()).sources == ("guess",)
    given = jobs_with(response_p50_tokens=1.0, response_p95_tokens=2.0, max_tokens=5.0)
    assert PhaseSampler(given, histogram=path).sources == ("response columns",)
    assert PhaseSampler(jobs_with(max_tokens=70.0), histogram=path).lengths[0].limit_tokens == 70


# --- seeds ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 700), st.integers(0, 300), st.integers(0, 10))
def test_any_iteration_is_the_same_whatever_was_drawn_before(first: int, n: int, seed: int) -> None:
    jobs = table_of(job_of("a", 100, 20), job_of("b", 50, 30))
    whole = PhaseSampler(jobs, seed=seed).phases(1, 0, 1000)
    # alone in its table, from the middle
    part = PhaseSampler(jobs.take([1]), seed=seed).phases(0, first, n)
    for got, want in zip(part, whole, strict=True):
        assert got.shape == (n,)
        assert (got == want[first : first + n]).all()


def test_jobs_seeds_and_replications_draw_apart() -> None:
    jobs = table_of(job_of("a", 100, 20), job_of("b", 100, 20))
    drawn = [
        PhaseSampler(jobs, **more).phases(job, 0, 20)[1]  # type: ignore[arg-type]
        for job, more in ((0, {}), (1, {}), (0, {"seed": 1}), (0, {"replication": 1}))
    ]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.9
            assert (one != other).all()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 300)
    sampler = PhaseSampler(table_of(job_of("a", 100, 20)))
    first = sampler.phases(0, 0, 2000)
    assert sampler._held <= 300 + 128
    assert (sampler.phases(0, 0, 2000)[0] == first[0]).all()


# --- finishing times ------------------------------------------------------------------------------


def test_finishing_times_belong_to_its_iteration() -> None:
    sampler = PhaseSampler(table_of(job_of("a", 100, 20)), seed=5, slots_per_gpu=16)
    rollout_s, _ = sampler.phases(0, 120, 20)
    many = sampler.finish_s(0, 120, 20)
    assert many.shape == (20, 512)
    assert (np.diff(many, axis=1) >= 0).all()
    for i in range(20):
        (one,) = sampler.finish_s(0, 120 + i, 1)
        assert one[-1] == pytest.approx(rollout_s[i])
        assert (one == many[i]).all()


def test_the_worst_case_is_a_source_too() -> None:
    source: PhaseSource = WorstCase(jobs_with())
    rollout_s, train_s = source.phases(0, 10, 3)
    assert rollout_s.tolist() == [100, 100, 100]
    assert train_s.tolist() == [20, 20, 20]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"seed": -1}, "seed a whole number"),
        ({"slots_per_gpu": 0}, "slots_per_gpu"),
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"replication": True}, "replication"),
        ({"train_fixed_share": 1.1}, "train_fixed_share"),
        ({"lengths": []}, "1 laws of lengths, got 0"),
    ],
)
def test_samplers_that_make_no_sense_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PhaseSampler(jobs_with(), **more)
