"""What may share a node of one pool, by hand and against whole plans."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from builders import cluster_of, job_of
from instances.plan import Limits
from models.bounds.columns import whole_nodes
from models.bounds.pool_items import POOLS, PoolItems
from models.bounds.volume import volume
from models.exact.exhaustive import solve
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
from small_snapshots import MIXES, jobs_of, random_snapshot, snapshot_of


def test_the_numbers_of_each_pool() -> None:
    job = job_of("a", 3, 4, 2, sync_s=1, rollout_switch_s=0.5, train_switch_s=2, rollout_nodes=3,
                 rollout_state_gb=10, train_state_gb=20)  # fmt: skip
    snapshot = Snapshot.of([job], cluster_of(host_dram_gb=50), Limits(max_group_size=4))
    rollout, train = (PoolItems.of(snapshot, pool) for pool in POOLS)
    assert [float(x[0]) for x in (rollout.run_s, rollout.switch_s, rollout.chain_s)] == [
        3,
        0.5,
        8.5,
    ]
    assert [float(x[0]) for x in (train.run_s, train.switch_s, train.chain_s)] == [4, 2, 10]
    assert (float(train.deadline_s[0]), float(train.load[0])) == (16, 6)
    assert [float(items.state_gb[0]) for items in (rollout, train)] == [10, 20]
    assert [int(items.width[0]) for items in (rollout, train)] == [3, 1]
    assert (train.dram_gb, train.most, train.rates) == (50, 4, False)


#: Rollouts of 2 + switch 1, T = 4, D = 6: two fill a node to the last second.
PAIR = {"rollout_s": (2, 2, 2), "train_s": (2, 2, 2), "rollout_switch_s": (1, 1, 1)}


@pytest.mark.parametrize(
    ("deadline_s", "changes", "size", "together"),
    [
        (6, {}, 0, True),
        (5.9, {}, 0, False),  # 3 + 3 > 5.9
        (6, {}, 1, False),  # groups of one
        (6, {"rollout_state_gb": (1000, 1000, 0)}, 0, True),  # 2000 GB, exactly full
        (6, {"rollout_state_gb": (1000, 1000.1, 0)}, 0, False),
        (6, {"train_state_gb": (2000, 2000, 0)}, 0, True),  # of the other pool
        (6, {"sync_s": (1, 0, 0)}, 0, True),  # chain 2 + 2 + 1 + 1 = 6
        (6, {"sync_s": (1.1, 0, 0)}, 0, False),
    ],
)  # fmt: skip
def test_two_jobs_share_a_rollout_node(
    deadline_s: float, changes: dict[str, tuple[float, ...]], size: int, together: bool
) -> None:
    jobs = jobs_of(**{"deadline_s": deadline_s, **PAIR, **changes})
    items = PoolItems.of(snapshot_of(jobs, size=size), "rollout")
    assert items.feasible((0, 1)) is together
    assert items.feasible((0,))
    first, other = items.leaders[np.isin(items.leaders, (0, 1))]
    assert (other in items.followers(int(first))) is together


def test_alone_only_dram_counts() -> None:
    """Switches make the chain 4 + 3 > 4 = D, but alone a job pays none."""
    jobs = jobs_of((2, 2), (2, 2), deadline_s=4, rollout_switch_s=(3, 0))
    items = PoolItems.of(snapshot_of(jobs), "rollout")
    assert items.feasible((0,))
    assert not items.shares_node[0]
    assert not items.feasible((0, 1))
    large = jobs_of((2,), (2,), rollout_state_gb=(2001,))
    assert not PoolItems.of(snapshot_of(large), "rollout").feasible((0,))


def test_with_rates_shares_of_the_own_deadline_count() -> None:
    """2 of 8 seconds and 12 of 16: at C = 8 they take 14, as shares 1/4 + 3/4 = 1."""
    jobs = [job_of("a", 2, 2, 2), job_of("b", 12, 4, 1)]
    one, many = (
        PoolItems.of(Snapshot.of(jobs, limits=Limits(max_rate=rate)), "rollout") for rate in (1, 2)
    )
    assert not one.feasible((0, 1))
    assert many.feasible((0, 1))
    assert many.load.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("mix", ["switches", "states", "all"])
@pytest.mark.parametrize("rate", [1, 2])
def test_subsets_of_feasible_sets_are_feasible_and_led_by_one(mix: str, rate: int) -> None:
    rng = random.Random(7)
    seen = 0
    for _ in range(25):
        drawn = random_snapshot(rng, 6, MIXES[mix], limited=True)
        limits = Limits(max_group_size=drawn.limits.max_group_size, max_rate=rate)
        items = PoolItems.of(Snapshot(table=drawn.table, limits=limits), "train")
        rank = {int(j): i for i, j in enumerate(items.leaders)}
        for size in range(2, 7):
            for members in itertools.combinations(range(6), size):
                if items.feasible(members):
                    seen += 1
                    assert all(
                        items.feasible(rest) for rest in itertools.combinations(members, size - 1)
                    )
                    leader = min(members, key=rank.__getitem__)
                    assert set(members) - {leader} <= set(items.followers(leader).tolist())
    assert seen > 50


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_nodes_of_optimal_plans_are_feasible_bins(mix: str) -> None:
    """Whatever the exact method pins to one node is a bin here, in both pools."""
    rng = random.Random(5)
    shared = 0
    for _ in range(6):
        snapshot = random_snapshot(rng, 5, MIXES[mix], limited=True)
        result = solve(snapshot, SolveOptions())
        if result.plan is None:
            continue
        index = {job_id: i for i, job_id in enumerate(snapshot.table.job_id)}
        for pool in POOLS:
            items = PoolItems.of(snapshot, pool)
            for group in result.plan.groups:
                on_node: dict[int, list[int]] = {}
                for placement in group.placements:
                    for node in getattr(placement, f"{pool}_pins"):
                        on_node.setdefault(node, []).append(index[placement.job_id])
                assert all(items.feasible(members) for members in on_node.values())
                shared += sum(len(members) > 1 for members in on_node.values())
    assert shared > 0


@pytest.mark.parametrize("size", [0, 2])
def test_volume_is_that_of_the_bounds(size: int) -> None:
    rng = random.Random(11)
    for _ in range(20):
        snapshot = random_snapshot(rng, 6, MIXES["all"])
        snapshot = Snapshot(table=snapshot.table, limits=Limits(max_group_size=size))
        bound = volume(snapshot.table, snapshot.cluster, snapshot.limits)
        rollout, train = (whole_nodes(PoolItems.of(snapshot, p).volume()) for p in POOLS)
        assert (rollout, train) == (bound.rollout_nodes, bound.train_nodes)
