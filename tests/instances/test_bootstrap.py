"""Drawn traces: what they keep in expectation, exactly, and always."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.bootstrap import BURSTS, SOURCE_COLUMN, arrival_window_s, bootstrap_trace
from instances.catalog import catalog_path
from instances.errors import InputError
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, Job, JobTable
from instances.trace import read_trace, write_trace
from instances.trace_rules import MAX_ID_LENGTH

HOUR_S = 3600.0
MS = 0.001
PRODUCTION = read_trace(catalog_path("production-200")).jobs
#: The fields that belong to a job, whenever it arrives.
OF_A_JOB = (*(name for name in FLOAT_FIELDS if name != "arrival_s"), *INT_FIELDS)


def job(name: str, arrival_s: float, duration_s: float = 3600.0, mode: str = "sync") -> Job:
    return Job(
        job_id=name,
        arrival_s=arrival_s,
        duration_s=duration_s,
        rollout_s=100.0,
        train_s=50.0,
        slo=2.0,
        mode=mode,
    )


def table(*arrivals_s: float) -> JobTable:
    return JobTable.from_jobs(
        [
            job(f"j{i}", at, 60.0 * (i + 1), "async" if i % 3 == 2 else "sync")
            for i, at in enumerate(sorted(arrivals_s))
        ]
    )


def csv_bytes(jobs: JobTable, folder) -> bytes:
    write_trace(jobs, folder / "drawn.csv", force=True)
    return (folder / "drawn.csv").read_bytes()


def count_variance(jobs: JobTable, block_s: float) -> float:
    """Variance of the number of jobs of one layer, from its definition.

    Blocks are independent, so their variances add. Block k counts the arrivals in [u, u + l_k) on
    the circle, u uniform; the count changes only where u or u + l meets an arrival, so between
    these points it is constant and the two moments are sums.
    """
    window_s = arrival_window_s(jobs)
    position = jobs.arrival_s - jobs.arrival_s[0]
    total = 0.0
    for k in range(math.ceil(window_s / block_s)):
        length = min(block_s, window_s - k * block_s)
        cuts = np.unique(np.concatenate(([0, window_s], position, (position - length) % window_s)))
        middle = (cuts[1:] + cuts[:-1]) / 2
        inside = ((position[None, :] - middle[:, None]) % window_s < length).sum(axis=1)
        weight = np.diff(cuts) / window_s
        total += float(weight @ inside**2 - (weight @ inside) ** 2)
    return total


# --- expectation: over many seeds, intervals of five standard errors ------------------------


@pytest.mark.parametrize("growth", [0.4, 1.0, 1.5, 3.0])
def test_expected_number_of_jobs_is_growth_times_n(growth):
    """A layer thinned with share q has variance q^2 V + q (1 - q) n (the law of total variance)."""
    seeds, n = 300, len(PRODUCTION)
    variance = count_variance(PRODUCTION, 24 * HOUR_S)
    whole, q = math.floor(growth), growth - math.floor(growth)
    expected_variance = whole * variance + q**2 * variance + q * (1 - q) * n
    counts = [len(bootstrap_trace(PRODUCTION, seed=s, growth=growth)) for s in range(seeds)]
    error = math.sqrt(expected_variance / seeds)
    assert abs(np.mean(counts) - growth * n) < 5 * error
    # 300 draws estimate a variance with a relative error of about sqrt(2 / 300) = 8 %
    assert np.var(counts) == pytest.approx(expected_variance, rel=0.5)


def test_every_stretch_of_the_window_gets_its_share_of_arrivals():
    """Each twelfth of the window holds n / 12 in expectation, whatever the trace's own rhythm."""
    crowded = table(*np.linspace(0, 1000, 60), *np.linspace(90_000, 100_000, 20))
    window_s, n = arrival_window_s(crowded), len(crowded)
    seeds, parts = 600, 12
    counts = np.zeros((seeds, parts))
    for seed in range(seeds):
        drawn = bootstrap_trace(crowded, seed=seed, block_h=5.0)
        counts[seed] = np.histogram(drawn.arrival_s, parts, (0, window_s))[0]
    error = counts.std(axis=0, ddof=1) / math.sqrt(seeds)
    assert np.all(np.abs(counts.mean(axis=0) - n / parts) < 5 * error)


def test_the_mix_of_jobs_is_that_of_the_trace_in_expectation():
    """Jobs are drawn independently: a mean over m of them has error sigma / sqrt(m)."""
    drawn = [bootstrap_trace(PRODUCTION, seed=seed) for seed in range(60)]
    for name in ("duration_s", "rollout_s", "slo", "rollout_nodes"):
        values = np.concatenate([getattr(jobs, name) for jobs in drawn])
        source = getattr(PRODUCTION, name)
        error = source.std() / math.sqrt(len(values))
        assert abs(values.mean() - source.mean()) <= 5 * error


def test_blocks_keep_bursts_that_single_arrivals_would_lose():
    """Ten jobs a minute once a day: a block of a day holds one whole burst or its two halves.

    So two of three gaps and more stay within a burst; independent arrivals of 100 jobs over ten
    days would be an hour or more apart in most cases.
    """
    bursts = table(*(86_400.0 * day + 6.0 * k for day in range(10) for k in range(10)))
    gaps = np.concatenate(
        [np.diff(bootstrap_trace(bursts, seed=seed, block_h=24).arrival_s) for seed in range(20)]
    )
    assert np.mean(gaps < 60) > 2 / 3


def test_coincident_bursts_grow_and_independent_ones_partly_cancel():
    """With the first layer's arrivals four times, the variance of the count is 16 V; else 4 V.

    400 draws estimate a variance with a relative error of about sqrt(2 / 400) = 7 %; in between,
    at 8 V, is twice and half of what is expected.
    """
    variance = count_variance(PRODUCTION, 24 * HOUR_S)
    for bursts, factor in (("independent", 4), ("coincident", 16)):
        counts = [
            len(bootstrap_trace(PRODUCTION, seed=s, growth=4, bursts=bursts)) for s in range(400)
        ]
        assert abs(np.mean(counts) - 800) < 5 * math.sqrt(factor * variance / 400)
        assert factor / math.sqrt(2) < np.var(counts) / variance < factor * math.sqrt(2)


def test_coincident_layers_share_their_moments_and_not_their_jobs():
    jobs = table(*(100.0 * k for k in range(30)))
    drawn = bootstrap_trace(jobs, seed=2, block_h=0.25, growth=3, bursts="coincident")
    first = bootstrap_trace(jobs, seed=2, block_h=0.25, growth=1)
    moments, counts = np.unique(drawn.arrival_s, return_counts=True)
    ones, once = np.unique(first.arrival_s, return_counts=True)
    assert moments.tolist() == ones.tolist()
    assert counts.tolist() == (3 * once).tolist()
    rows = np.array(drawn.extra[SOURCE_COLUMN], dtype=int).reshape(-1, 3)
    assert np.any(rows[:, 0] != rows[:, 1])


# --- exact ------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_bytes_and_other_seeds_do_not(tmp_path):
    first = csv_bytes(bootstrap_trace(PRODUCTION, seed=5, growth=1.5), tmp_path)
    assert csv_bytes(bootstrap_trace(PRODUCTION, seed=5, growth=1.5), tmp_path) == first
    assert csv_bytes(bootstrap_trace(PRODUCTION, seed=6, growth=1.5), tmp_path) != first


def test_a_block_as_long_as_the_window_turns_the_trace():
    """One block: the gaps on the circle are those of the trace, from another start."""
    jobs = table(0, 10, 30, 60, 100)  # the circle closes with the mean gap, 25 s: W = 125
    assert arrival_window_s(jobs) == 125
    for block_h in (125 / HOUR_S, 1.0, 1e9):
        drawn = bootstrap_trace(jobs, seed=3, block_h=block_h)
        assert len(drawn) == 5
        gaps = np.diff(drawn.arrival_s)
        around = [*gaps, 125 - gaps.sum()]
        turns = [np.roll([10, 20, 30, 40, 25], k) for k in range(5)]
        assert any(np.allclose(around, turn, atol=2 * MS) for turn in turns)
    assert len(bootstrap_trace(jobs, seed=3, block_h=1.0, growth=4)) == 20


@pytest.mark.parametrize("growth", [1, 2, 5])
def test_one_job_is_drawn_growth_times_at_its_moment(growth):
    drawn = bootstrap_trace(table(7.5), seed=0, growth=growth)
    assert drawn.arrival_s.tolist() == [7.5] * growth
    assert drawn.job_id == tuple(f"b{k:04d}-j0" for k in range(1, growth + 1))


def test_jobs_at_one_time_stay_at_one_time():
    drawn = bootstrap_trace(table(40, 40, 40), seed=1, growth=2)
    assert drawn.arrival_s.tolist() == [40] * 6
    assert set(drawn.mode) == {"sync", "async"}  # three of six rows at least


def test_half_of_one_job_is_there_half_of_the_time():
    """200 fair draws: 100 with a standard error of 7.1; five of them is 36."""
    counts = [len(bootstrap_trace(table(0), seed=seed, growth=0.5)) for seed in range(200)]
    assert set(counts) == {0, 1}
    assert abs(sum(counts) - 100) <= 36


def test_quiet_blocks_give_a_trace_without_jobs():
    """Two jobs ten days apart, blocks of an hour: most of the circle's hours are empty."""
    far = table(0, 864_000)
    sizes = [len(bootstrap_trace(far, seed=seed, block_h=24)) for seed in range(50)]
    assert 0 in sizes
    assert max(sizes) > 2


def test_long_ids_are_cut_and_stay_distinct():
    long = JobTable.from_jobs([job("x" * MAX_ID_LENGTH, 0), job("x" * 199 + "y", 1)])
    drawn = bootstrap_trace(long, seed=0, growth=10)
    assert max(map(len, drawn.job_id)) == MAX_ID_LENGTH
    assert len(set(drawn.job_id)) == len(drawn)


def test_a_drawn_trace_can_be_drawn_from():
    once = bootstrap_trace(PRODUCTION, seed=0)
    twice = bootstrap_trace(once, seed=1)
    rows = np.array(twice.extra[SOURCE_COLUMN], dtype=int) - 1
    assert twice.duration_s.tolist() == once.duration_s[rows].tolist()


# --- always -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    seed=st.integers(0, 2**64),
    block_h=st.floats(0.5, 400),
    growths=st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)),
    bursts=st.sampled_from(BURSTS),
)
def test_drawn_traces_are_valid_nested_and_name_their_source(
    arrivals, seed, block_h, growths, bursts
):
    jobs = table(*arrivals)
    small, large = (
        bootstrap_trace(jobs, seed=seed, block_h=block_h, growth=g, bursts=bursts)
        for g in sorted(growths)
    )
    assert set(zip(small.job_id, small.arrival_s, small.extra[SOURCE_COLUMN], strict=True)) <= set(
        zip(large.job_id, large.arrival_s, large.extra[SOURCE_COLUMN], strict=True)
    )
    assert len(set(large.job_id)) == len(large)
    assert np.all(np.diff(large.arrival_s) >= 0)
    if len(large):
        first = jobs.arrival_s[0]
        assert large.arrival_s[0] >= first
        assert large.arrival_s[-1] <= first + arrival_window_s(jobs)
    rows = np.array(large.extra[SOURCE_COLUMN], dtype=np.int64) - 1
    for name in OF_A_JOB:
        assert getattr(large, name).tolist() == getattr(jobs, name)[rows].tolist()
    assert large.mode == tuple(jobs.mode[row] for row in rows)
    for drawn_id, row in zip(large.job_id, rows, strict=True):
        assert drawn_id.split("-", 1)[1] == jobs.job_id[row]


def test_columns_marks_and_extras_are_carried_and_the_file_reads_back(tmp_path):
    source = production(n_jobs=40, seed=2)
    drawn = bootstrap_trace(source, seed=9, growth=2.0)
    rows = np.array(drawn.extra[SOURCE_COLUMN], dtype=int) - 1
    for name, mask in source.estimated.items():
        assert drawn.estimated[name].tolist() == mask[rows].tolist()
    for name, values in source.optional.items():
        assert drawn.optional[name].tolist() == values[rows].tolist()
    assert drawn.extra["profile_source"] == ("synthetic:production:seed=2",) * len(drawn)
    write_trace(drawn, tmp_path / "drawn.csv")
    again = read_trace(tmp_path / "drawn.csv", DEFAULT_CLUSTER).jobs
    assert again.job_id == drawn.job_id
    for name in (*FLOAT_FIELDS, *INT_FIELDS):
        assert getattr(again, name).tolist() == getattr(drawn, name).tolist(), name
    assert again.estimated_columns() == drawn.estimated_columns()


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": -1}, "seed a whole number >= 0, got -1"),
        ({"block_h": 0.0}, "block_h > 0, got 0.0"),
        ({"block_h": math.nan}, "block_h > 0, got nan"),
        ({"block_h": 1e-12}, "at most 10000000 blocks"),
        ({"growth": 0.0}, "growth > 0, got 0.0"),
        ({"growth": math.inf}, "growth > 0, got inf"),
        ({"bursts": "coincidnt"}, "Did you mean 'coincident'"),
        ({"growth": 1e7}, "at most 10000000 jobs, got 2 times growth 1e\\+07"),
    ],
)
def test_arguments_out_of_range_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        bootstrap_trace(table(0, 100), **{"seed": 0, **change})


def test_tables_that_are_no_trace_are_refused():
    with pytest.raises(InputError, match="at least one job to draw from"):
        bootstrap_trace(table(0).take([]), seed=0)
    with pytest.raises(InputError, match="in order of arrival"):
        bootstrap_trace(table(0, 5).take([1, 0]), seed=0)
    with pytest.raises(InputError, match=r"window that ends at 1\.8e\+10 s"):
        bootstrap_trace(table(0, 9e9), seed=0)
