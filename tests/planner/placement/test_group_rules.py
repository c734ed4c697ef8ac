"""The tightest rule of a group and how busy its nodes are, by hand."""

from __future__ import annotations

import pytest

from builders import cluster_of, job_of
from instances.hardware import DEFAULT_CLUSTER
from planner.placement.group_rules import (
    Tightness,
    rule_words,
    rules_of,
    slack_words,
    tightest,
    utilisation,
)
from snapshot_cases import fast_and_slow, group_of, rich_group


def alone(slo: float) -> Tightness:
    group, jobs = group_of([job_of("a", 60, 40, slo)], [(0,)], [(0,)])
    return tightest(group, jobs, DEFAULT_CLUSTER)


def test_a_job_alone_is_held_by_its_own_slo() -> None:
    """Period T = 100 s of a deadline of 125 s: a fifth is left; at slo 1 nothing."""
    rule = alone(1.25)
    assert (rule.rule, rule.job_id, rule.used, rule.limit) == ("slo", "a", 100, 125)
    assert rule.slack == pytest.approx(0.2)
    assert alone(1.0).slack == pytest.approx(0.0)
    assert rule_words(rule) == "SLO of a"
    assert slack_words(rule) == "the period is 20.0 % below its deadline"


def test_the_fullest_node_is_named() -> None:
    """Train node: 64 + 80 = 144 s of the least deadline 160 (b); rollout nodes 30 and 20."""
    jobs = [job_of("a", 30, 64, 2), job_of("b", 20, 80, 1.6)]
    group, table = group_of(jobs, [(0,), (1,)], [(0,), (0,)])
    rule = tightest(group, table, DEFAULT_CLUSTER)
    assert (rule.rule, rule.node, rule.used, rule.limit) == ("train_load", 0, 144, 160)
    assert rule.deadline_of == "b"
    assert rule_words(rule) == "load of train node 0"
    assert slack_words(rule) == "10.0 % below the deadline of b"


def test_switches_are_part_of_a_load() -> None:
    """70 + 80 s and switches of 2 s and 3 s on the shared train node: 155 s."""
    jobs = [
        job_of("a", 30, 70, 2, train_switch_s=2, rollout_switch_s=9),
        job_of("b", 20, 80, 1.6, train_switch_s=3, rollout_switch_s=9),
    ]
    group, table = group_of(jobs, [(0,), (1,)], [(0,), (0,)])
    loads = {
        (rule.rule, rule.node): rule.used
        for rule in rules_of(group, table, DEFAULT_CLUSTER)
        if rule.rule.endswith("load")
    }
    assert loads == {
        ("rollout_load", 0): 30,
        ("rollout_load", 1): 20,
        ("train_load", 0): 155,
    }


@pytest.mark.parametrize(
    ("gb", "rule", "slack"), [(900, "train_load", 0.0625), (999, "train_dram", 0.001)]
)
def test_memory_counts_against_the_host_dram(gb: float, rule: str, slack: float) -> None:
    """The train node holds 150 s of 160 (6.25 % left) and 2 x 900 of 2,000 GB (10 % left): time
    is nearer its limit. At 2 x 999 GB (0.1 % left) memory is.
    """
    jobs = [
        job_of("a", 30, 70, 2, train_state_gb=gb),
        job_of("b", 20, 80, 1.6, train_state_gb=gb),
    ]
    group, table = group_of(jobs, [(0,), (1,)], [(0,), (0,)])
    found = tightest(group, table, DEFAULT_CLUSTER)
    assert found.rule == rule
    assert found.slack == pytest.approx(slack)
    if rule == "train_dram":
        assert (found.node, found.unit, found.deadline_of) == (0, "GB", None)
        assert rule_words(found) == "DRAM of train node 0"
        assert slack_words(found) == "0.1 % of host DRAM left"


def test_the_chain_of_one_job_against_the_deadline_of_another() -> None:
    """b takes 60 + 50 = 110 s an iteration; a's deadline is 2 x 60 = 120 s. Loads: 90 and 80."""
    jobs = [job_of("a", 30, 30, 2), job_of("b", 60, 50, 3)]
    group, table = group_of(jobs, [(0,), (0,)], [(0,), (0,)])
    rule = tightest(group, table, DEFAULT_CLUSTER)
    assert (rule.rule, rule.job_id, rule.deadline_of) == ("chain", "b", "a")
    assert (rule.used, rule.limit) == (110, 120)
    assert rule_words(rule, str.upper) == "chain of B"
    assert slack_words(rule, str.upper) == "8.3 % below the deadline of A"


def test_a_period_that_only_the_order_explains_names_the_slo() -> None:
    """The gang of two shares a node with each of the others: no load and no chain is as long as
    the period, so the rule nearest its limit is the period's own.
    """
    group, table = rich_group()
    rule = tightest(group, table, DEFAULT_CLUSTER)
    longest = max(r.used for r in rules_of(group, table, DEFAULT_CLUSTER) if r.rule != "slo")
    assert (rule.rule, rule.used) == ("slo", group.period_s)
    assert longest < group.period_s


def test_rates_multiply_loads_chains_and_deadlines() -> None:
    """fast: 3 x (30 + 12 + 4) = 138 s a period, deadline 3 x 88 = 264; slow: 120 + 52 + 10 = 182
    of a deadline of 270. Train node: 3 x 12 + 52 = 88 s.
    """
    group, table = fast_and_slow()
    found = {(r.rule, r.node, r.job_id): r for r in rules_of(group, table, DEFAULT_CLUSTER)}
    assert {r.limit for r in found.values() if r.unit == "s"} == {264}
    assert found["rollout_load", 0, None].used == 90
    assert found["train_load", 0, None].used == 88
    assert found["chain", None, "slow"].used == 182
    assert ("chain", None, "fast") not in found  # its own deadline is the limit: that is its SLO
    rule = tightest(group, table, DEFAULT_CLUSTER)
    assert (rule.rule, rule.job_id) == ("chain", "slow")
    assert slack_words(rule) == "31.1 % below 3 deadlines of fast"  # 182 of 264
    assert slack_words(found["slo", None, "fast"]).endswith("below 3 of its deadlines")


def test_a_limit_of_nothing_is_used_up() -> None:
    group, table = group_of([job_of("a", 60, 40, 4)], [(0,)], [(0,)])
    rule = tightest(group, table, cluster_of(host_dram_gb=0.0))
    assert (rule.rule, rule.slack) == ("rollout_dram", 0.0)


def test_utilisation_counts_runs_only() -> None:
    """rich_group: 300 + 200 + 2 x 150 s of rollout on two nodes, 90 + 120 + 180 s of train."""
    group, table = rich_group()
    busy = utilisation(group, table)
    assert busy["rollout"] == pytest.approx(800 / (2 * group.period_s))
    assert busy["train"] == pytest.approx(390 / group.period_s)
    group, table = fast_and_slow()
    assert utilisation(group, table)["train"] == pytest.approx((3 * 10 + 50) / group.period_s)
