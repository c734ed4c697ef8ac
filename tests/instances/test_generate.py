"""The generators: published marginals held, seeds reproduce, arguments are checked."""

import subprocess
import sys

import numpy as np
import pytest

from instances.errors import InputError
from instances.generate import (
    GENERATORS,
    production,
    profiles,
    tiny_gang,
    tiny_open_shop,
    tiny_sync_gap,
)
from instances.hardware import DEFAULT_CLUSTER, Links
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, JobTable
from instances.profiles import PROFILE_TABLE

SEEDS = range(5)
ESTIMATED = {
    "rollout_state_gb",
    "rollout_switch_s",
    "sync_gb",
    "sync_s",
    "train_state_gb",
    "train_switch_s",
}


def horizon_h(jobs: JobTable) -> float:
    return float((jobs.arrival_s + jobs.duration_s).max()) / 3600


def columns(jobs: JobTable) -> dict[str, object]:
    """Everything a table holds, comparable with ==."""
    arrays = {name: getattr(jobs, name).tolist() for name in (*FLOAT_FIELDS, *INT_FIELDS)}
    optional = {name: values.tolist() for name, values in jobs.optional.items()}
    return {"job_id": jobs.job_id, **arrays, **optional, **jobs.extra}


# --- production ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_production_count_span_and_mean_duration_are_published_exactly(seed):
    jobs = production(seed=seed)
    assert len(jobs) == 200
    assert jobs.arrival_s[0] == 0
    assert np.all(np.diff(jobs.arrival_s) >= 0)
    assert horizon_h(jobs) == 370.2  # whole milliseconds: no tolerance needed
    # 200 terms of about 1e5 s: float summation errs by less than 1e-9 h.
    assert jobs.duration_s.mean() / 3600 == pytest.approx(27.9, abs=1e-9)
    assert jobs.duration_s.min() >= 3600


@pytest.mark.parametrize("seed", SEEDS)
def test_production_phases_span_the_published_range(seed):
    jobs = production(seed=seed)
    shortest = min(jobs.rollout_s.min(), jobs.train_s.min())
    # 50 s is the floor; among 58 jobs of 4k tokens some lie close to it.
    assert 50 <= shortest < 55
    assert jobs.rollout_s.max() > 900
    assert (jobs.rollout_s + jobs.train_s).max() <= 1500.001


def test_production_shares_at_a_large_n():
    """20,000 draws: a share p has a standard error of at most 0.0036; 0.015 is four of them."""
    jobs = production(n_jobs=20_000, seed=1)
    model_b, max_tokens = jobs.optional["model_b"], jobs.optional["max_tokens"]
    for size, share in zip((3, 7, 14, 32), (0.20, 0.40, 0.25, 0.15), strict=True):
        assert np.mean(model_b == size) == pytest.approx(share, abs=0.015)
    for tokens, share in zip((4096, 8192, 16384, 32768), (0.29, 0.30, 0.30, 0.11), strict=True):
        assert np.mean(max_tokens == tokens) == pytest.approx(share, abs=0.015)
    # Published mean 12.1k; the shares give 12,165, standard error 8.9k / sqrt(20,000) = 63.
    assert max_tokens.mean() == pytest.approx(12_100, rel=0.03)
    # U(1, 2): mean 1.5, standard error 0.29 / 141 = 0.002.
    assert jobs.slo.mean() == pytest.approx(1.5, abs=0.01)
    assert jobs.slo.min() >= 1
    assert jobs.slo.max() <= 2
    assert jobs.slo.tolist() == np.round(jobs.slo, 4).tolist()
    # T includes sync; phases are rounded to 1 ms of at least 100 s, so f errs below 1e-5.
    share = jobs.train_s / jobs.solo_s
    assert share.min() >= 0.15 - 1e-5
    assert share.max() <= 0.55 + 1e-5
    assert np.mean(share < 0.33) == pytest.approx(0.8, abs=0.015)


def test_production_at_200_jobs_has_the_published_mean_length():
    """One draw of 200: standard error of the mean 8.9k / sqrt(200) = 630 tokens, 5 %."""
    for seed in SEEDS:
        assert production(seed=seed).optional["max_tokens"].mean() == pytest.approx(
            12_100, rel=0.15
        )


def test_production_iterations_grow_with_max_tokens():
    """Rank correlation: weight 0.6 on the rank against 0.4 on noise leaves it above one half."""
    jobs = production(n_jobs=5000, seed=2)
    means = [
        (jobs.rollout_s + jobs.train_s)[jobs.optional["max_tokens"] == tokens].mean()
        for tokens in (4096, 8192, 16384, 32768)
    ]
    assert means == sorted(means)
    assert means[-1] > 2 * means[0]


def test_production_estimates_follow_from_model_b():
    jobs = production(seed=0)
    assert set(jobs.estimated_columns()) == ESTIMATED
    seven = int(np.flatnonzero(jobs.optional["model_b"] == 7)[0])
    job = jobs.job(seven)
    assert (job.rollout_state_gb, job.train_state_gb) == (275.7, 240.0)  # published
    assert (job.rollout_switch_s, job.train_switch_s) == (0.9, 4.1)
    assert job.sync_gb == 14.0
    assert job.sync_s == pytest.approx(14 * 8 / 20 + 14 * 8 / 400)  # 5.88 s


def test_cluster_changes_sync_and_keeps_the_train_share():
    slow = DEFAULT_CLUSTER.replace(links=Links(inter_gbps=10.0))
    jobs = production(seed=0, cluster=slow)
    plain = production(seed=0)
    assert np.all(jobs.sync_s > plain.sync_s)
    shares = (jobs.train_s / jobs.solo_s, plain.train_s / plain.solo_s)
    np.testing.assert_allclose(*shares, atol=1e-5)


def test_horizon_scales_with_the_number_of_jobs_and_holds_the_longest_twice():
    assert horizon_h(production(n_jobs=400, seed=0)) == pytest.approx(740.4, abs=1e-9)
    few = production(n_jobs=5, seed=0)
    longest_h = few.duration_s.max() / 3600
    assert 2 * longest_h > 370.2 * 5 / 200  # so the second rule decides
    assert horizon_h(few) == pytest.approx(2 * longest_h, abs=1e-9)
    # Mean concurrency of the published trace: 200 x 27.9 / 370.2 = 15.07 jobs.
    large = production(n_jobs=1000, seed=3)
    assert large.duration_s.sum() / 3600 / horizon_h(large) == pytest.approx(15.07, abs=0.01)


def test_one_job():
    jobs = production(n_jobs=1, seed=0)
    assert jobs.arrival_s.tolist() == [0.0]
    assert jobs.duration_s.tolist() == [27.9 * 3600]


def test_gangs_change_only_the_node_counts():
    gangs, plain = production(seed=0, gangs=True), production(seed=0)
    for name in FLOAT_FIELDS:
        np.testing.assert_array_equal(getattr(gangs, name), getattr(plain, name))
    assert set(plain.rollout_nodes) == set(plain.train_nodes) == {1}
    assert np.all(gangs.train_nodes <= gangs.rollout_nodes)


def test_gang_widths():
    """20,000 draws, tolerance as above: 50/30/20 %; train 1 has 1/2 + 0.3/2 + 0.2/3."""
    jobs = production(n_jobs=20_000, seed=1, gangs=True)
    for nodes, share in ((1, 0.5), (2, 0.3), (4, 0.2)):
        assert np.mean(jobs.rollout_nodes == nodes) == pytest.approx(share, abs=0.015)
    for nodes, share in ((1, 0.7167), (2, 0.2167), (4, 0.0667)):
        assert np.mean(jobs.train_nodes == nodes) == pytest.approx(share, abs=0.015)


def test_concurrent_jobs_are_all_present_at_hour_one():
    jobs = production(n_jobs=2000, seed=0, concurrent=True)
    assert len(jobs) == 2000
    assert jobs.arrival_s.max() < 3600
    assert jobs.duration_s.min() >= 7200
    assert np.all(jobs.arrival_s + jobs.duration_s > 3600)
    assert jobs.duration_s.mean() / 3600 == pytest.approx(27.9, abs=1e-9)


# --- profiles --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_profiles_hold_the_published_simulation_marginals(seed):
    jobs = profiles(seed=seed)
    assert len(jobs) == 300
    assert jobs.arrival_s[0] == 0
    assert np.all(np.diff(jobs.arrival_s) >= 0)
    # 300 arrivals in 580 h, 1.9 h apart on average: the last is within 30 h of the end.
    assert 550 < jobs.arrival_s[-1] / 3600 <= 580
    assert jobs.duration_s.mean() / 3600 == pytest.approx(14.4, abs=1e-9)
    assert jobs.duration_s.max() / 3600 == 142.9
    assert jobs.duration_s.min() >= 3600
    # About 7 jobs present: 300 x 14.4 h over 580 h plus the stay of the last ones.
    assert 6 < jobs.duration_s.sum() / 3600 / horizon_h(jobs) < 8


def test_durations_are_heavy_tailed():
    """The longest is 9.9 x the mean; a median under 0.6 x the mean says skewed."""
    duration_s = profiles(seed=0).duration_s
    assert np.median(duration_s) < 0.6 * duration_s.mean()


@pytest.mark.parametrize("kind", PROFILE_TABLE)
def test_one_kind_draws_only_its_sizes_within_the_jitter(kind):
    jobs = profiles(n_jobs=100, seed=4, kind=kind)
    assert set(jobs.extra["profile"]) == {f"{kind}/{size}" for size in "SML"}
    for i, label in enumerate(jobs.extra["profile"]):
        row = PROFILE_TABLE[kind][label.split("/")[1]]
        # Jitter U(0.9, 1.1), then 1 ms of rounding.
        assert jobs.rollout_s[i] == pytest.approx(row.rollout_s, rel=0.1, abs=0.001)
        assert jobs.train_s[i] == pytest.approx(row.train_s, rel=0.1, abs=0.001)
        assert jobs.optional["model_b"][i] == row.model_b
        assert jobs.optional["max_tokens"][i] == row.max_tokens


def test_kinds_are_what_their_names_say():
    for kind, sign in (("rollout-heavy", 1), ("train-heavy", -1)):
        jobs = profiles(n_jobs=50, seed=0, kind=kind)
        assert np.all(sign * (jobs.rollout_s - jobs.train_s) > 0)


def test_mixed_draws_the_nine_profiles_about_equally():
    """9,000 draws, each profile expected 1,000 with a standard deviation of 30."""
    labels, counts = np.unique(profiles(n_jobs=9000, seed=0).extra["profile"], return_counts=True)
    assert len(labels) == 9
    assert counts.min() > 850
    assert counts.max() < 1150


def test_arrivals_have_a_daily_rhythm():
    """A rate 1 + 0.5 cos(w t + phase) gives |mean exp(i w t)| = 0.25, standard error 0.005.

    The phase depends on the hour of the first arrival, which becomes hour 0.
    """
    hour = profiles(n_jobs=20_000, seed=0).arrival_s / 3600
    assert abs(np.exp(2j * np.pi * hour / 24).mean()) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("n_jobs", [1, 2, 5, 31])
def test_few_jobs_keep_the_mean(n_jobs):
    jobs = profiles(n_jobs=n_jobs, seed=0)
    assert jobs.duration_s.mean() / 3600 == pytest.approx(14.4, abs=1e-6)
    assert jobs.duration_s.max() / 3600 <= 142.9


# --- seeds, text, errors ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("production", {}),
        ("production", {"gangs": True}),
        ("production", {"concurrent": True}),
        ("profiles", {}),
        ("profiles", {"kind": "train-heavy"}),
    ],
)
def test_same_seed_same_jobs_and_another_seed_others(name, arguments):
    make = GENERATORS[name]
    assert columns(make(seed=7, **arguments)) == columns(make(seed=7, **arguments))
    first, second = columns(make(seed=7, **arguments)), columns(make(seed=8, **arguments))
    for column in ("arrival_s", "duration_s", "slo", "rollout_s", "train_s"):
        assert first[column] != second[column]


def test_global_random_state_is_neither_read_nor_written():
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    first = columns(production(seed=3))
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(2)
    assert columns(production(seed=3)) == first


@pytest.mark.parametrize("jobs", [production(seed=0), profiles(seed=0)])
def test_seconds_are_whole_milliseconds_and_ids_count(jobs):
    for name in ("arrival_s", "duration_s", "rollout_s", "train_s"):
        values = getattr(jobs, name)
        assert values.tolist() == np.round(values, 3).tolist()
    prefix = jobs.job_id[0].split("-")[0]
    assert jobs.job_id == tuple(f"{prefix}-{i:04d}" for i in range(1, len(jobs) + 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: production(n_jobs=0), "n_jobs >= 1, got 0"),
        (lambda: production(seed=-1), "seed >= 0, got -1"),
        (lambda: production(mean_duration_h=0.5), "mean_duration_h >= 1, got 0.5"),
        (lambda: production(mean_duration_h=float("nan")), "mean_duration_h >= 1, got nan"),
        (lambda: production(mean_duration_h=1.5, concurrent=True), "mean_duration_h >= 2"),
        (lambda: production(horizon_h=0), "horizon_h > 0, got 0"),
        (lambda: profiles(n_jobs=0), "n_jobs >= 1, got 0"),
        (lambda: profiles(kind="rollout-heavvy"), "Did you mean 'rollout-heavy'"),
        (lambda: profiles(kind="production"), "Expected kind in balanced, rollout-heavy"),
        (lambda: profiles(span_h=-1), "span_h > 0, got -1"),
        (lambda: profiles(mean_duration_h=1), "mean_duration_h > 1, got 1"),
        (lambda: profiles(longest_h=10), "longest_h >= 14.4, got 10"),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises(InputError, match=message):
        call()


# --- tiny ------------------------------------------------------------------------------


def test_tiny_numbers_are_those_of_the_design():
    gap = tiny_sync_gap()
    assert gap.rollout_s.tolist() == [5, 5, 1]
    assert gap.train_s.tolist() == [2, 3, 6]
    assert gap.sync_s.tolist() == [2, 3, 0]
    np.testing.assert_allclose(gap.deadline_s, 11, rtol=1e-15)  # 11 / T x T, one rounding each
    gang = tiny_gang()
    assert gang.rollout_s.tolist() == [5, 3, 11, 6, 9]
    assert gang.train_s.tolist() == [3, 4, 6, 5, 3]
    assert gang.rollout_nodes.tolist() == [3, 2, 3, 2, 2]
    np.testing.assert_allclose(gang.deadline_s, 34, rtol=1e-15)
    shop = tiny_open_shop()
    assert shop.rollout_s.sum() == shop.train_s.sum() == shop.solo_s.max() == 180
    assert shop.deadline_s.tolist() == [225, 225]


def test_importing_the_generators_stays_cheap():
    code = (
        "import sys, instances.generate, instances.importers\n"
        "print([m for m in ('pandas', 'scipy', 'pyomo', 'ortools') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
