"""Which fleets no queue can save: the bound of waiting targets, by hand and against replays."""

from __future__ import annotations

import random

import pytest

from builders import cluster_of, job_of, random_job, table_of
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import Fleet, Limits
from models.sizing.wait_bound import Cut, WaitBound, wait_bound
from planner.policies.policy import PolicyOptions
from planner.policies.wait_target import WaitTarget
from planner.replay.replaying import replay
from planner.size.fleet_search import bound_of

#: Three quarters of a node's DRAM in both pools: two of them need two nodes of each.
BIG = {"rollout_state_gb": 1500.0, "train_state_gb": 1500.0}


def big(name: str, arrival_s: float, duration_s: float = 100.0, **more: object) -> Job:
    return job_of(name, 1, 1, 10, arrival_s=arrival_s, duration_s=duration_s, **{**BIG, **more})


def bound(*jobs: Job, wait_s: float = 0.0, late: int = 0, **more: object) -> WaitBound:
    limits = more.pop("limits", Limits())
    assert isinstance(limits, Limits)
    table = table_of(*jobs)
    return wait_bound(
        table, DEFAULT_CLUSTER, limits, wait_s=wait_s, late_allowed=late, **more  # type: ignore[arg-type]
    )  # fmt: skip


def nodes(found: WaitBound) -> tuple[int, int]:
    return found.rollout_nodes, found.train_nodes


def test_no_wait_is_the_volume_of_the_jobs_present():
    # 1500 + 1500 GB on nodes of 2000 GB: 1.5 nodes, so 2.
    found = bound(big("a", 0), big("b", 50))
    assert nodes(found) == (2, 2)
    assert found.excludes(1, 2)
    assert found.excludes(2, 1)
    assert not found.excludes(2, 2)
    assert "host DRAM" in (found.why(1, 2) or "")
    assert found.why(2, 2) is None


@pytest.mark.parametrize(("wait_s", "expected"), [(40, 2), (49, 2), (50, 1), (60, 1), (100, 1)])
def test_waiting_shortens_the_time_that_a_job_is_sure_to_be_there(wait_s, expected):
    # Due in [W, 100) and in [50 + W, 150): both only while 50 + W < 100.
    assert nodes(bound(big("a", 0), big("b", 50), wait_s=wait_s)) == (expected, expected)


def test_who_leaves_at_a_moment_makes_room_for_who_comes_then():
    assert nodes(bound(big("a", 0), big("b", 100))) == (1, 1)


def test_late_jobs_are_left_out_the_largest_first():
    # Of 1500, 1500 and 100 GB one is left out: 1600 GB fit one node.
    jobs = big("a", 0), big("b", 0), big("c", 0, rollout_state_gb=100.0, train_state_gb=100.0)
    assert nodes(bound(*jobs)) == (2, 2)
    assert nodes(bound(*jobs, late=1)) == (1, 1)


def test_one_late_job_cannot_relieve_two_moments():
    # Each pair alone: one late job leaves 0.75 nodes. But one late job relieves one pair, and the
    # other keeps 1.5 nodes: with both moments weighed by 1/2, 4 x 0.375 - 0.375 = 1.125 nodes.
    jobs = big("a", 0), big("b", 0), big("c", 1000), big("d", 1000)
    found = bound(*jobs, late=1)
    assert nodes(found) == (2, 2)
    assert "2 moments" in (found.why(1, 2) or "")
    assert nodes(bound(*jobs, late=2)) == (1, 1)


def test_one_late_job_cannot_relieve_both_pools():
    # At 0 two jobs need two rollout nodes, at 1000 two others two train nodes. The late job
    # relieves one of the moments: 2 + 1 or 1 + 2 nodes may do, 1 + 1 may not. Price: 14.80 a
    # rollout node, 42.24 a train node. The LP takes a share x of the late job from the train side:
    # N_T = 1.5 - 0.75 x >= 1, so x = 2/3 and N_R = 1.5 - 0.75 / 3 = 1.25: 18.50 + 42.24 = 60.74.
    rollout = {"rollout_state_gb": 1500.0, "train_state_gb": 0.0}
    train = {"rollout_state_gb": 0.0, "train_state_gb": 1500.0}
    found = bound(
        big("a", 0, **rollout), big("b", 0, **rollout),
        big("c", 1000, **train), big("d", 1000, **train), late=1,
    )  # fmt: skip
    assert nodes(found) == (1, 1)
    assert found.excludes(1, 1)
    assert not found.excludes(2, 1)
    assert not found.excludes(1, 2)
    assert found.cuts[-1].least == pytest.approx(60.74, rel=1e-4)


def test_the_widest_job_needs_its_gang_even_if_it_may_be_late():
    found = bound(job_of("a", 1, 1, duration_s=10, rollout_nodes=4, train_nodes=3), late=1)
    assert nodes(found) == (4, 3)
    assert "widest" in (found.why(3, 3) or "")


def test_async_jobs_hold_nodes_of_their_own():
    # Two async jobs of 2 + 1 nodes, and one sync job of 0.75 nodes: 4.75 and 2.75.
    two = [big(name, 0, mode="async", rollout_nodes=2) for name in "ab"]
    assert nodes(bound(*two, big("c", 0))) == (5, 3)


def test_time_and_group_size_count_too():
    # phase / D = 10 / (1.25 x 20) = 0.4 each: three take 1.2 nodes.
    jobs = [job_of(name, 10, 10, 1.25, duration_s=100) for name in "abc"]
    assert nodes(bound(*jobs)) == (2, 2)
    light = [job_of(name, 1, 1, 10, duration_s=100) for name in "abc"]
    assert nodes(bound(*light)) == (1, 1)
    assert nodes(bound(*light, limits=Limits(max_group_size=2))) == (2, 2)


def test_other_kinds_of_policies():
    jobs = [job_of(name, 10, 10, 1.25, duration_s=100, train_nodes=2) for name in "abc"]
    assert nodes(bound(*jobs, sharing="alone")) == (3, 6)
    assert nodes(bound(*jobs, sharing="train-only")) == (0, 6)
    # deadlines are not kept: only the group size counts, 3 / 5 nodes
    assert nodes(bound(*jobs, sharing="room")) == (1, 2)


def test_shorter_stays():
    # Stays of 50 s at least: the first has left when the second comes.
    jobs = big("a", 0), big("b", 50)
    assert nodes(bound(*jobs, stay_factor=0.5)) == (1, 1)
    assert nodes(bound(*jobs, stay_factor=2.0)) == (2, 2)


@pytest.mark.parametrize(
    "wrong", [{"wait_s": -1}, {"wait_s": float("nan")}, {"late_allowed": -1}, {"stay_factor": 0}]
)
def test_refuses_what_is_no_target(wrong):
    with pytest.raises(InputError, match="Expected"):
        wait_bound(
            table_of(big("a", 0)),
            DEFAULT_CLUSTER,
            Limits(),
            **{"wait_s": 0.0, "late_allowed": 0, **wrong},
        )


def test_free_nodes_of_a_pool_do_not_break_the_bound():
    jobs = table_of(big("a", 0), big("b", 0), big("c", 1000), big("d", 1000))
    cluster = cluster_of(rollout_usd=0.0)
    found = wait_bound(jobs, cluster, Limits(), wait_s=0.0, late_allowed=1)
    assert nodes(found) == (2, 2)


def test_a_cut_excludes_what_is_below_it():
    cut = Cut(rollout=1.0, train=2.0, least=5.0, why="")
    assert cut.excludes(0, 2)
    assert not cut.excludes(1, 2)


def trace(rng: random.Random, n: int) -> JobTable:
    """A few jobs that overlap much, some of them async."""
    return table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=float(rng.randint(0, 200)),
                duration_s=float(rng.randint(50, 300)),
                mode=rng.choice(("sync", "sync", "sync", "async")),
            )
            for i in range(n)
        )
    )


@pytest.mark.parametrize("seed", range(8))
def test_no_fleet_that_meets_a_target_is_excluded(seed):
    """Over the whole grid, every policy and queue; and the bound does exclude something."""
    rng = random.Random(seed)
    jobs = trace(rng, 7)
    policy = ("weave", "solo", "colocated", "most-idle")[seed % 4]
    convention = ("work", "wallclock")[seed // 4]
    options = PolicyOptions(
        cluster=DEFAULT_CLUSTER,
        queue=rng.choice(("fifo", "backfill")),
        colocated_factor=rng.choice((0.8, 1.0)),
        limits=Limits(max_group_size=rng.choice((2, 5))),
    )
    widest = int(jobs.rollout_nodes.max()), int(jobs.train_nodes.max())
    for share in (1.0, 0.7):
        for wait_s in (0.0, 60.0):
            target = WaitTarget(wait_s, share)
            found = bound_of(jobs, policy, options, target, convention)  # type: ignore[arg-type]
            assert found.excludes(found.rollout_nodes - 1, 99)
            assert found.excludes(99, found.train_nodes - 1)
            late = target.late_allowed(len(jobs))
            for rollout in range(widest[0], found.rollout_nodes + 3):
                for train in range(widest[1], found.train_nodes + 3):
                    if not found.excludes(rollout, train):
                        continue
                    fleet = Fleet(rollout, train)
                    result = replay(
                        jobs,
                        policy,
                        PolicyOptions(**{**vars(options), "fleet": fleet}),
                        convention=convention,  # type: ignore[arg-type]
                        check=False,
                    )
                    assert (result.waits_s > wait_s).sum() > late, fleet
