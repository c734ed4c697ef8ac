"""Maximal sets on one node of each kind: as by a search over all sets, and what refuting leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from builders import cluster_of, job_of
from instances.errors import UnsupportedError
from instances.hardware import DEFAULT_CLUSTER
from models.exact import maximal_sets
from models.exact.maximal_sets import MaximalSets, is_for
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.snapshot import Snapshot
from small_snapshots import MIXES, PRECEDENCE, full_jobs, jobs_of, random_jobs, snapshot_of

Sets = set[tuple[int, ...]]
SINGLE = [mix for mix in MIXES.values() if not mix.gangs]


def pool_of(snapshot: Snapshot, **options: Any) -> MaximalSets:
    made = SolveOptions(**options)
    return MaximalSets(snapshot, made, made.start())


def sets_of(pool: MaximalSets) -> Sets:
    """Return the sets of a pool; each once, on one node of each kind, padded at the end."""
    members, nodes = pool.arrays()
    assert (nodes == 1).all()
    assert len(nodes) == len(members)
    out = []
    for row in members.tolist():
        jobs = [job for job in row if job >= 0]
        assert row == [*sorted(jobs), *[-1] * (len(row) - len(jobs))]
        out.append(tuple(jobs))
    assert len(set(out)) == len(out)
    return set(out)


def admitted(snapshot: Snapshot) -> Sets:
    """Return every set that loads admit on one node of each kind, one by one."""
    n = len(snapshot)
    size = snapshot.limits.max_group_size or n
    return {
        members
        for k in range(1, size + 1)
        for members in combinations(range(n), k)
        if fits(snapshot, members)
    }


def fits(snapshot: Snapshot, members: Sequence[int]) -> bool:
    jobs = [snapshot.jobs[i] for i in members]
    period = min(job.deadline_s for job in jobs) * (1 + 1e-9)
    shared = len(jobs) > 1
    chains = [job.solo_s + shared * (job.rollout_switch_s + job.train_switch_s) for job in jobs]
    for pool in ("rollout", "train"):
        switch = [getattr(job, f"{pool}_switch_s") * shared for job in jobs]
        seconds = sum(getattr(job, f"{pool}_s") for job in jobs) + sum(switch)
        state = sum(getattr(job, f"{pool}_state_gb") for job in jobs)
        dram = getattr(snapshot.cluster, pool).host_dram_gb
        if seconds > period or state > dram:
            return False
    return max(chains) <= period


def maximal(sets: Sets) -> Sets:
    return {s for s in sets if not any(set(s) < set(other) for other in sets)}


def below(sets: Sets) -> Sets:
    """Return all non-empty subsets of these sets."""
    return {part for s in sets for k in range(1, len(s) + 1) for part in combinations(s, k)}


def cases(seed: int, count: int, n: int) -> Iterator[Snapshot]:
    """Single-node jobs of every mix, or filling their nodes; every size of a group and none."""
    rng = random.Random(seed)
    for i in range(count):
        if i % 3:
            jobs = random_jobs(rng, n, SINGLE[i % len(SINGLE)], together=i % 3 == 1)
        else:
            jobs = full_jobs(rng, n, (1, 1) if n < 7 else (2, 2))
        yield snapshot_of(jobs, size=i % (n + 2), nodes=(1, 1))


@pytest.mark.parametrize(
    ("jobs", "nodes", "fits"),
    [
        (jobs_of((1,), (1,)), (1, 1), True),
        ([], (1, 1), True),
        (jobs_of((1,), (1,)), (1, None), False),
        (jobs_of((1,), (1,)), (None, 1), False),
        (jobs_of((1,), (1,)), (1, 2), False),
        (jobs_of((1,), (1,)), (2, 2), False),
        (jobs_of((1,), (1,)), (None, None), False),
        (jobs_of((1, 1), (1, 1), rollout_nodes=(1, 2)), (1, 1), False),
        (jobs_of((1, 1), (1, 1), train_nodes=(2, 1)), (1, 1), False),
    ],
)
def test_it_is_for_single_node_jobs_in_groups_of_a_node_of_each_kind(
    jobs: Any, nodes: Any, fits: bool
) -> None:
    assert is_for(snapshot_of(jobs, nodes=nodes)) is fits


@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_the_sets_are_the_maximal_ones_that_loads_admit(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six or seven jobs, all sets one by one; a row of sets at a time, and all at once."""
    monkeypatch.setattr(maximal_sets, "_CHUNK", chunk)
    several = alone = 0
    for snapshot in [*cases(1, 60, 6), *cases(2, 30, 7)]:
        every = admitted(snapshot)
        pool = pool_of(snapshot)
        assert sets_of(pool) == maximal(every), snapshot
        assert pool.sets_grown == len(every)
        several += sum(len(members) > 2 for members in sets_of(pool))
        alone += sum(len(members) == 1 for members in sets_of(pool))
    assert several >= 100
    assert alone >= 50


@pytest.mark.parametrize(
    ("size", "sets"), [(1, 6), (2, 15), (3, 20), (5, 6), (6, 1), (0, 1), (9, 1)]
)
def test_sets_of_the_largest_size_are_maximal(size: int, sets: int) -> None:
    """Six jobs that share everything: all choices of so many of six."""
    jobs = jobs_of((1,) * 6, (1,) * 6, deadline_s=20)
    assert len(sets_of(pool_of(snapshot_of(jobs, size=size, nodes=(1, 1))))) == sets


def test_switches_are_paid_by_jobs_that_share_only() -> None:
    """Jobs r = t = 1, s = 2, switches 0.5 in each pool, D: alone 4 s, two chains of 5 s."""
    half = (0.5, 0.5)
    for deadline_s, sets in ((5, {(0, 1)}), (4.5, {(0,), (1,)}), (4, {(0,), (1,)})):
        jobs = jobs_of(
            (1, 1), (1, 1), (2, 2), deadline_s=deadline_s, rollout_switch_s=half,
            train_switch_s=half,
        )  # fmt: skip
        assert sets_of(pool_of(snapshot_of(jobs, nodes=(1, 1)))) == sets


def test_a_job_that_fits_no_node_alone_is_in_no_set() -> None:
    jobs = jobs_of((1,) * 3, (1,) * 3, deadline_s=6, train_state_gb=(0, 2001, 0))
    assert sets_of(pool_of(snapshot_of(jobs, nodes=(1, 1)))) == {(0, 2)}
    none = pool_of(snapshot_of(jobs[1:2], nodes=(1, 1)))
    assert (sets_of(none), none.sets_grown) == (set(), 0)


def test_no_jobs_make_no_sets() -> None:
    assert sets_of(pool_of(snapshot_of([], nodes=(1, 1)))) == set()


def test_each_pool_has_its_own_dram() -> None:
    """Two jobs of 800 GB in each pool: rollout nodes hold 2000 GB, train nodes 1000 GB."""
    small = replace(DEFAULT_CLUSTER.train, host_dram_gb=1000.0)
    both = (800, 800)
    jobs = jobs_of((1, 1), (1, 1), deadline_s=8, rollout_state_gb=both, train_state_gb=both)
    apart = snapshot_of(jobs, nodes=(1, 1), cluster=DEFAULT_CLUSTER.replace(train=small))
    assert sets_of(pool_of(apart)) == {(0,), (1,)}
    whole = snapshot_of(jobs, nodes=(1, 1), cluster=cluster_of(host_dram_gb=1600))
    assert sets_of(pool_of(whole)) == {(0, 1)}


# --- limits of the enumeration ------------------------------------------------------------------


def test_too_many_sets_are_refused_with_the_alternatives() -> None:
    """Five jobs that share everything: 31 sets, of which one is maximal."""
    snapshot = snapshot_of(jobs_of((1,) * 5, (1,) * 5, deadline_s=20), nodes=(1, 1))
    assert pool_of(snapshot, max_groups=31).sets_grown == 31
    words = r"^Expected at most 30 candidate groups, got more among 5 jobs: lower max_group_size or"
    with pytest.raises(UnsupportedError, match=words):
        pool_of(snapshot, max_groups=30)


def test_the_sets_end_when_the_time_does() -> None:
    snapshot = snapshot_of(jobs_of((1, 1), (1, 1), deadline_s=20), nodes=(1, 1))
    with pytest.raises(OutOfTimeError):
        pool_of(snapshot, time_limit_s=0)


def test_progress_is_told_by_size_of_the_sets() -> None:
    told: list[tuple[str, int, int]] = []
    snapshot = snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), size=3, nodes=(1, 1))
    pool_of(snapshot, progress=lambda *call: told.append(call))
    assert told == [("groups of jobs", 2, 3), ("groups of jobs", 3, 3)]


# --- refutation ---------------------------------------------------------------------------------


def test_the_precedence_triple_gives_way_to_its_pairs() -> None:
    """With a job beside it that fits with two of them only: loads are 11 of 11 s with all three."""
    jobs = [*PRECEDENCE, job_of("j3", 0.5, 0.5, 11.0)]
    pool = pool_of(snapshot_of(jobs, nodes=(1, 1)))
    assert sets_of(pool) == {(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)}
    assert pool.refute((0, 1, 2), (1, 1)) == 1
    assert sets_of(pool) == {
        (0, 1), (0, 2), (1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3),
    }  # fmt: skip
    assert pool.refute((0, 1, 2), (1, 1)) == 0


def test_what_lies_within_the_sets_left_is_all_but_the_refuted() -> None:
    """Again and again, at random: so a least cover by them is one by all sets that are left."""
    rng = random.Random(3)
    refuted_any = 0
    for snapshot in cases(4, 40, 6):
        pool = pool_of(snapshot)
        left = admitted(snapshot)
        for _ in range(4):
            choices = sorted(s for s in left if len(s) > 1)
            if not choices:
                break
            members = rng.choice(choices)
            held = sum(set(members) <= set(s) for s in sets_of(pool))
            assert pool.refute(members, (1, 1)) == held > 0
            left = {s for s in left if not set(members) <= set(s)}
            assert below(sets_of(pool)) == left
            refuted_any += 1
    assert refuted_any >= 80


def test_only_groups_of_a_node_of_each_kind_are_refuted() -> None:
    pool = pool_of(snapshot_of(PRECEDENCE, nodes=(1, 1)))
    with pytest.raises(AssertionError, match=r"on \(2, 1\) nodes beyond the limits"):
        pool.refute((0, 1, 2), (2, 1))
