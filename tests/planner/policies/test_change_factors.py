"""What each level of a factor does to jobs and options, by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from builders import job_of, options_of, table_of
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from planner.policies.change_factors import (
    FACTORS,
    Case,
    default_factors,
    derived_sync,
    factor_of,
    group_size,
    host_dram,
    link_speed,
    slo_scale,
)


def case_of(jobs: JobTable, **options: Any) -> Case:
    return Case(jobs, options_of(**options))


def with_links(**links: Any) -> Any:
    return DEFAULT_CLUSTER.replace(links=dataclasses.replace(DEFAULT_CLUSTER.links, **links))


#: One copy of 20 GB: 160 Gb over 20 Gb/s and then 400 Gb/s, 8 + 0.4 s. T = 108.4 s.
ONE = table_of(job_of("a", 60, 40, 1.5, sync_s=8.4, sync_gb=20, duration_s=1084))


def test_host_dram_is_that_of_both_pools() -> None:
    changed = host_dram().change(case_of(ONE), 1.5)
    cluster = changed.options.cluster
    assert (cluster.rollout.host_dram_gb, cluster.train.host_dram_gb) == (1500, 1500)
    assert cluster.rollout.usd_per_hour == DEFAULT_CLUSTER.rollout.usd_per_hour


def test_host_dram_names_a_base_of_two_sizes() -> None:
    rollout = dataclasses.replace(DEFAULT_CLUSTER.rollout, host_dram_gb=1000)
    base = case_of(ONE, cluster=DEFAULT_CLUSTER.replace(rollout=rollout))
    assert host_dram().with_base(base)[0] == (host_dram().base(base), True)
    assert host_dram().base(base).label == "1 / 2 TB"


def test_the_base_is_marked_once_and_comes_first_only_when_it_is_new() -> None:
    for base, first in ((5, False), (6, True)):
        options = options_of()
        limits = dataclasses.replace(options.limits, max_group_size=base)
        marked = group_size().with_base(Case(ONE, dataclasses.replace(options, limits=limits)))
        assert [is_base for _, is_base in marked].count(True) == 1
        assert marked[0][1] == first
        assert len(marked) == 7 + first


@pytest.mark.parametrize(("scale", "slo"), [(0, 1.0), (0.5, 1.25), (1, 1.5), (2, 2.0)])
def test_slo_scales_the_tolerated_slack(scale: float, slo: float) -> None:
    # 1 + f (1.5 - 1)
    assert slo_scale().change(case_of(ONE), scale).jobs.slo.tolist() == [slo]


def test_a_slower_link_keeps_the_promise_in_seconds_and_the_work() -> None:
    # at 10 Gb/s 16 + 0.4 s, so T' = 116.4; D = 1.5 x 108.4 = 162.6 stays; 10 iterations stay
    changed = link_speed().change(case_of(ONE, convention="work"), 10.0)
    assert changed.jobs.sync_s[0] == pytest.approx(16.4)
    assert changed.jobs.deadline_s[0] == pytest.approx(162.6)
    assert changed.jobs.iterations[0] == pytest.approx(10)
    assert changed.options.cluster.links.inter_gbps == 10
    assert changed.notes == ()


def test_a_slower_link_keeps_the_stay_under_wallclock() -> None:
    changed = link_speed().change(case_of(ONE, convention="wallclock"), 10.0)
    assert changed.jobs.duration_s.tolist() == [1084.0]


def test_a_promise_that_breaks_even_alone_becomes_the_solo_time_and_is_told() -> None:
    # D = 1.05 x 108.4 = 113.8 < 116.4
    jobs = ONE.replace(slo=np.array([1.05]))
    changed = link_speed().change(case_of(jobs), 10.0)
    assert changed.jobs.slo.tolist() == [1.0]
    assert changed.notes == ("1 of 1 jobs are later than promised even alone",)


def test_the_same_link_changes_nothing() -> None:
    changed = link_speed().change(case_of(ONE, convention="work"), 20.0).jobs
    for name in ("sync_s", "slo", "duration_s"):
        assert getattr(changed, name).tolist() == pytest.approx(getattr(ONE, name).tolist())


def test_measured_sync_stays_at_every_link() -> None:
    # 5 s for 20 GB is not what the model says
    jobs = table_of(
        job_of("measured", 60, 40, sync_s=5, sync_gb=20), job_of("free", 60, 40, sync_gb=0)
    )
    assert derived_sync(jobs, DEFAULT_CLUSTER.links).tolist() == [False, True]
    changed = link_speed().change(case_of(jobs), 10.0)
    assert changed.jobs.sync_s.tolist() == [5.0, 0.0]
    assert changed.notes == ("sync_s of 1 of 2 jobs is measured and stays",)


def test_marks_of_the_trace_say_what_was_derived() -> None:
    # agrees with the model: by an estimate of both; by a size made from measured seconds
    jobs = ONE.replace(estimated={"sync_s": np.array([True]), "sync_gb": np.array([True])})
    assert derived_sync(jobs, DEFAULT_CLUSTER.links).tolist() == [True]
    jobs = ONE.replace(estimated={"sync_gb": np.array([True])})
    assert derived_sync(jobs, DEFAULT_CLUSTER.links).tolist() == [False]


def test_flat_sync_sends_one_copy_per_gpu() -> None:
    # 8 GPUs: 8 x 160 Gb over 20 Gb/s, 64 s and 160 GB; D = 162.6 < T' = 164 breaks
    changed = factor_of("sync_kind").change(case_of(ONE), 1.0)
    assert changed.jobs.sync_s.tolist() == pytest.approx([64.0])
    assert changed.jobs.sync_gb.tolist() == pytest.approx([160.0])
    assert len(changed.notes) == 2
    assert "known to fail" in changed.notes[0]


def test_flat_sync_follows_a_measured_ratio() -> None:
    # 3 x 8.4 s, in which the link carries 25.2 x 20 / 8 = 63 GB
    base = case_of(ONE, cluster=with_links(flat_over_hierarchical=3.0))
    changed = factor_of("sync_kind").change(base, 1.0)
    assert changed.jobs.sync_s.tolist() == pytest.approx([25.2])
    assert changed.jobs.sync_gb.tolist() == pytest.approx([63.0])
    assert changed.notes == ("flat sync by the measured ratio",)


def test_hierarchical_and_warm_are_the_base() -> None:
    base = case_of(ONE)
    assert factor_of("sync_kind").change(base, 0.0) is base
    assert factor_of("switch_times").change(base, 1.0) is base


def test_cold_switches_reproduce_the_published_maxima() -> None:
    # the longest warm switches, 1.9 and 5.9 s at 70B, become the longest cold starts
    jobs = table_of(job_of("a", 60, 40, rollout_switch_s=1.9, train_switch_s=5.9))
    changed = factor_of("switch_times").change(case_of(jobs), 2.0)
    assert changed.jobs.rollout_switch_s.tolist() == pytest.approx([135.8])
    assert changed.jobs.train_switch_s.tolist() == pytest.approx([116.0])
    assert changed.notes[0].startswith("cold derived")
    none = factor_of("switch_times").change(case_of(jobs), 0.0).jobs
    assert none.rollout_switch_s.tolist() == none.train_switch_s.tolist() == [0.0]


def test_limits_of_a_group() -> None:
    limits = factor_of("max_rollout_nodes").change(case_of(ONE), 2.0).options.limits
    assert (limits.max_rollout_nodes, limits.max_group_size) == (2, 5)
    assert (
        factor_of("max_rollout_nodes").change(case_of(ONE), 0.0).options.limits
        == options_of().limits
    )
    assert factor_of("max_group_size").change(case_of(ONE), 0.0).options.limits.max_group_size == 0


def test_links_change_neither_jobs_nor_speed() -> None:
    changed = factor_of("links").change(case_of(ONE), 4.0)
    assert changed.jobs is ONE
    assert changed.options.cluster.links == dataclasses.replace(DEFAULT_CLUSTER.links, links=4)


def test_every_factor_has_levels_with_labels_of_their_own() -> None:
    for factor in default_factors():
        labels = [level.label for level, _ in factor.with_base(case_of(ONE))]
        assert len(set(labels)) == len(labels) > 1
    assert tuple(factor.name for factor in default_factors()) == tuple(FACTORS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: factor_of("dram"),
        lambda: host_dram([-1.0]),
        lambda: host_dram([float("nan")]),
        lambda: link_speed([0.0]),
        lambda: group_size([2, 2]),
    ],
)
def test_senseless_levels_are_refused(make: Any) -> None:
    with pytest.raises(InputError, match="Expected"):
        make()
