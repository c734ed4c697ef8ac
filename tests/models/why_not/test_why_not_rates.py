"""Why jobs cannot be one group when they may run several iterations a period, and what cures it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from builders import cluster_of, job_of
from instances.jobs import Job
from instances.plan import Limits
from models.group.group_cost import GroupCost, Nodes
from models.problem.snapshot import Snapshot
from models.why_not.conflict import Explanation, group_explanation
from small_snapshots import MIXES, random_snapshot

#: T = D = 8 and T = D = 2: only the rates (1, 4) in 8 s keep both SLOs.
SLOW = job_of("slow", 6, 2, slo=1)
FAST = job_of("fast", 1, 1, slo=1)


def snapshot_of(*jobs: Job, max_rate: int = 4, dram_gb: float = 2000.0) -> Snapshot:
    cluster = cluster_of(host_dram_gb=dram_gb)
    return Snapshot.of(jobs, cluster=cluster, limits=Limits(max_group_size=0, max_rate=max_rate))


def explained(snapshot: Snapshot, nodes: Nodes | None = None) -> Explanation:
    """The explanation of all jobs; they are in conflict, and its cures are enough."""
    everyone = tuple(range(len(snapshot)))
    found = group_explanation(GroupCost(snapshot), everyone, nodes)
    assert found is not None
    for cure in found.cures:
        most = nodes and tuple(max(n, more or 0) for n, more in zip(nodes, cure.nodes, strict=True))
        cost = GroupCost(cure.applied(snapshot))
        assert cost.decide(found.members, most or cost.most_nodes(found.members)) is not None
    return found


def test_no_rates_keep_every_slo() -> None:
    """With 2 iterations of the fast job a period has at most 4 s; the slow one needs 8 s."""
    found = explained(snapshot_of(SLOW, FAST, max_rate=2))
    assert found.conflict.rule == "slo"
    assert found.conflict.message == (
        "Jobs slow and fast have no period in common: with at most 2 iterations a period "
        "(max_rate), none keeps every SLO. Job slow takes 8 s an iteration even alone; job fast "
        "may take 2 s at most."
    )
    # the pace of the slow job: 8 s instead of 2 s
    assert found.conflict.relaxations == (
        "Loosen the SLO of job fast from 1 to 4 (enough; not proved the least).",
    )


def test_loads_are_above_the_period_at_all_rates() -> None:
    """Rollouts of 6 + 4 x 1 s on one node in 8 s, trains of 2 + 4 s: one more rollout node
    and one more train node: on one train node the gaps say 9 s (models.group.rate_bound)."""
    found = explained(snapshot_of(SLOW, FAST), (1, 1))
    assert found.conflict.rule == "load"
    assert found.conflict.message == (
        "Jobs slow and fast on 1 rollout node and 1 train node: at all rates that keep every SLO "
        "(1 + 4 iterations in 8 s) some node carries more phases than the period is long."
    )
    assert found.conflict.relaxations == (
        "Use 2 rollout nodes instead of 1 and use 2 train nodes instead of 1.",
    )


def test_loads_admit_rates_that_no_schedule_has() -> None:
    """Trains of 2 + 4 x 1 s fit 8 s, but from first to last of the four are 4 + 3 x 1 = 7 s,
    and the slow job leaves 6 s between its own."""
    found = explained(snapshot_of(SLOW, FAST), (2, 1))
    assert found.conflict.rule == "precedence"
    assert found.conflict.message == (
        "Jobs slow and fast on 2 rollout nodes and 1 train node: each node has time for its phases "
        "at some rates that keep every SLO (1 + 4 iterations in 8 s), but no order of the phases "
        "fits."
    )
    assert found.conflict.relaxations == ("Use 2 train nodes instead of 1.",)


def test_state_is_told_whatever_the_rates() -> None:
    """Both keep 600 GB on every node of a pool; the node has 1,000."""
    jobs = [replace(job, rollout_state_gb=600, slo=4.5) for job in (SLOW, FAST)]
    found = explained(snapshot_of(*jobs, dram_gb=1000), (1, 2))
    assert found.conflict.rule == "residency"
    assert "1,200 GB" in found.conflict.message
    assert found.conflict.relaxations == (
        "Use 2 rollout nodes instead of 1.",
        "Give each rollout node 1,200 instead of 1,000 GB of host DRAM.",
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_sets_name_a_least_conflict_and_cures_that_hold(seed: int) -> None:
    """On one node of each kind; a set is told exactly when it is infeasible."""
    rng = random.Random(seed)
    snapshot = random_snapshot(rng, 3, list(MIXES.values())[seed % len(MIXES)])
    limits = replace(snapshot.limits, max_rate=3, max_group_size=0)
    snapshot = replace(snapshot, limits=limits)
    cost = GroupCost(snapshot)
    everyone = (0, 1, 2)
    nodes = tuple(max(getattr(job, f"{pool}_nodes") for job in snapshot.jobs)
                  for pool in ("rollout", "train"))  # fmt: skip
    found = group_explanation(cost, everyone, nodes)
    assert (found is None) == (cost.decide(everyone, nodes) is not None)
    if found is None:
        return
    assert len(found.members) == 1 or cost.decide(found.members, nodes) is None
    for cure in found.cures:
        relaxed = GroupCost(cure.applied(snapshot))
        most = tuple(max(n, more or 0) for n, more in zip(nodes, cure.nodes, strict=True))
        assert relaxed.decide(found.members, most) is not None
