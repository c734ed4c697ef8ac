"""Why a snapshot has no plan: by hand, against the oracle, and every claim decided again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.jobs import Job
from models.exact import exhaustive
from models.group.group_cost import GroupCost, Nodes
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Result, StoppedBy, result_of
from models.problem.snapshot import Snapshot
from models.why_not import conflict as module
from models.why_not.conflict import (
    Cure,
    Explanation,
    Subset,
    explain,
    explanation,
    smallest_conflict,
)
from oracles.least_snapshot import Block, partitions
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    jobs_of,
    oracle_of,
    random_snapshot,
    snapshot_of,
)
from snapshot_cases import use_method

# --- helpers ------------------------------------------------------------------------------------


class Fleets:
    """Brute force: the fleets of a set of jobs, over all set partitions and fronts of groups."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cost = GroupCost(snapshot)
        self.fronts: dict[Block, list[Nodes]] = {}

    def front(self, members: Block) -> list[Nodes]:
        if members not in self.fronts:
            self.fronts[members] = [group.nodes for group in self.cost.front(members)]
        return self.fronts[members]

    def of(self, members: Block) -> Iterator[Nodes]:
        for blocks in partitions(len(members)):
            totals = {(0, 0)}
            for block in blocks:
                front = self.front(tuple(members[i] for i in block))
                totals = {(r + a, t + b) for r, t in totals for a, b in front}
            yield from totals

    def fit(self, members: Block) -> bool:
        return any(self.cost.snapshot.caps.allow(*nodes) for nodes in self.of(members))


def fits(snapshot: Snapshot, cure: Cure | None = None) -> bool:
    changed = snapshot if cure is None else cure.applied(snapshot)
    return Fleets(changed).fit(tuple(range(len(snapshot))))


def lesser(cure: Cure) -> Iterator[Cure]:
    """The cure with one number a step smaller; an SLO factor above 1 by at least a step."""
    for pool in (0, 1):
        total, gb = cure.totals[pool], cure.dram_gb[pool]
        if total is not None:
            less = (total - 1, cure.totals[1]) if pool == 0 else (cure.totals[0], total - 1)
            yield replace(cure, totals=less)
        if gb is not None:
            yield cure.with_dram(pool, gb - 0.02)
    if cure.slo_factor is not None:
        yield replace(cure, slo_factor=max(cure.slo_factor - 0.01, 1.0))
    if cure.max_group_size is not None:
        yield replace(cure, max_group_size=cure.max_group_size - 1)


def assert_holds(snapshot: Snapshot, found: Explanation) -> None:
    """The set is a least one in conflict with the caps; each cure cures it, nothing less does."""
    fleets = Fleets(snapshot)
    assert not fleets.fit(found.members)
    for size in range(1, len(found.members)):
        for some in combinations(range(len(snapshot)), size):
            assert fleets.fit(some), some
    assert found.conflict.job_ids == tuple(snapshot.jobs[i].job_id for i in found.members)
    assert len(found.cures) == len(found.conflict.relaxations) > 0
    for cure in found.cures:
        assert cure.least
        assert fits(snapshot, cure), cure
        assert list(lesser(cure))
        for less in lesser(cure):
            assert not fits(snapshot, less), less


def told(snapshot: Snapshot) -> Explanation:
    """Return the explanation, checked."""
    found = explanation(snapshot)
    assert found is not None
    assert_holds(snapshot, found)
    assert explain(snapshot) == found.conflict
    return found


def ticking(limit_s: float) -> Deadline:
    """Return a deadline whose clock goes on by one second whenever it is read."""
    ticks = count()
    return Deadline(lambda: float(next(ticks)), limit_s)


# --- a job that cannot run even alone -----------------------------------------------------------


def test_a_plan_exists() -> None:
    """Without caps always; with caps of every job alone; with caps of a group."""
    assert explain(snapshot_of(PRECEDENCE)) is None
    assert explain(snapshot_of(PRECEDENCE, caps=(3, 3))) is None
    assert explain(snapshot_of(PRECEDENCE, caps=(1, 2))) is None
    assert explain(snapshot_of(PRECEDENCE, caps=(2, 1))) is None
    assert explain(snapshot_of(FIVE_FRONT, caps=(2, 3))) is None
    assert explain(snapshot_of([])) is None


def test_jobs_that_cannot_run_alone() -> None:
    """Job 1: 2,200 GB of 2,000; job 2: 3 train nodes of 2. The cure is for both."""
    jobs = jobs_of((1,) * 3, (1,) * 3, rollout_state_gb=(0, 2200, 0), train_nodes=(1, 1, 3))
    snapshot = snapshot_of(jobs, nodes=(None, 2))
    found = explanation(snapshot)
    assert found is not None
    assert found.conflict.job_ids == ("j1",)
    assert found.conflict.rule == "residency"
    assert found.conflict.message == (
        "Job j1 keeps 2,200 GB of state on each rollout node, 200 GB more than its host DRAM of "
        "2,000 GB. Nor can job j2 run even alone."
    )
    assert found.conflict.relaxations == (
        "Give each rollout node 2,200 instead of 2,000 GB of host DRAM and raise max_train_nodes "
        "from 2 to 3.",
    )
    assert explain(found.cures[0].applied(snapshot)) is None


# --- fleet caps by hand -------------------------------------------------------------------------


def test_a_gang_wider_than_the_fleet() -> None:
    """Job 0 rolls out on 3 nodes, the fleet may hold 2. Job 1 shares one of 3, as 4 + 2 <= 10 s."""
    jobs = jobs_of((4, 2), (3, 3), slo=(2.0, 2.0), rollout_nodes=(3, 1))
    found = told(snapshot_of(jobs, caps=(2, None)))
    assert found.members == (0,)
    assert found.conflict.rule == "max_rollout_nodes_total"
    assert found.conflict.message == (
        "Job j0 needs 3 rollout nodes; the fleet may hold 2 rollout nodes "
        "(max_rollout_nodes_total). So no plan holds all 2 jobs."
    )
    assert found.conflict.relaxations == ("Raise max_rollout_nodes_total from 2 to 3.",)


def test_slo_of_one_shares_nothing() -> None:
    """Six jobs of 4 + 3 s.

    At slo 1 two jobs carry 8 s on a rollout node in 7 s: no sharing, so four jobs exceed three
    nodes. Two to a node take 8 s: slo 8 / 7 = 1.143, in hundredths 1.15.
    """
    found = told(snapshot_of(jobs_of((4,) * 6, (3,) * 6), caps=(3, 9)))
    assert found.members == (0, 1, 2, 3)
    assert found.conflict.message == (
        "Jobs j0, j1, j2 and j3 together need 4 rollout nodes with at most 9 train nodes; the "
        "fleet may hold 3 rollout nodes (max_rollout_nodes_total) and 9 train nodes "
        "(max_train_nodes_total). So no plan holds all 6 jobs. No fewer of the jobs are in "
        "conflict."
    )
    assert found.conflict.relaxations == (
        "Raise max_rollout_nodes_total from 3 to 6.",
        "Multiply every SLO by 1.15 (to within 0.01).",
    )


def test_precedence_as_a_cap() -> None:
    """Loads would admit one node of each kind; (1, 2) and (2, 1) are the least (FORMULATION 4).

    11.5 s instead of 11 s: every SLO by 1.0455, in hundredths 1.05.
    """
    found = told(snapshot_of(PRECEDENCE, caps=(1, 1)))
    assert found.conflict.rule == "max_rollout_nodes_total and max_train_nodes_total"
    assert found.conflict.message == (
        "Jobs j0, j1 and j2 together need 2 rollout nodes with at most 1 train node, or 2 train "
        "nodes with at most 1 rollout node; the fleet may hold 1 rollout node "
        "(max_rollout_nodes_total) and 1 train node (max_train_nodes_total). No fewer of the jobs "
        "are in conflict."
    )
    assert found.cures == (
        Cure(totals=(2, None)),
        Cure(totals=(None, 2)),
        Cure(slo_factor=1.05, within="0.01"),
    )


def test_dram_under_a_cap() -> None:
    """Five jobs of 900 GB, two to a node of 2,000 GB: all five need three train nodes, not two.

    Three to a node are 2,700 GB; their trains take 3 x 1 of 8 s, their rollouts share likewise.
    """
    jobs = jobs_of((1,) * 5, (1,) * 5, deadline_s=8, train_state_gb=(900,) * 5)
    found = told(snapshot_of(jobs, caps=(None, 2), size=5))
    assert found.members == (0, 1, 2, 3, 4)
    assert found.conflict.rule == "max_train_nodes_total"
    assert found.cures == (Cure(totals=(None, 3)), Cure(dram_gb=(None, 2700.0)))


def test_dram_of_two_jobs_under_a_cap() -> None:
    """1,200 + 1,100.5 GB are more than 2,000."""
    jobs = jobs_of((1,) * 2, (1,) * 2, deadline_s=8, rollout_state_gb=(1200, 1100.5))
    found = told(snapshot_of(jobs, caps=(1, None)))
    assert found.cures == (Cure(totals=(2, None)), Cure(dram_gb=(2300.5, None)))


def test_group_size_under_a_cap() -> None:
    """Four light jobs fit one node of each kind, groups of two need two of each."""
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=8)
    found = told(snapshot_of(jobs, caps=(1, None), size=2))
    assert found.members == (0, 1, 2)
    assert found.cures == (Cure(totals=(2, None)), Cure(max_group_size=4))
    assert found.conflict.relaxations[1] == "Raise max_group_size from 2 to 4."


def jobs_alone(n: int) -> list[Job]:
    """Return jobs that share no node of either pool: 1,500 of 2,000 GB each in both."""
    states = (1500,) * n
    return jobs_of((1,) * n, (1,) * n, deadline_s=8, rollout_state_gb=states, train_state_gb=states)


def test_both_caps_too_small() -> None:
    """Three such jobs need 3 and 3 nodes; two are more than one rollout node already."""
    found = told(snapshot_of(jobs_alone(3), caps=(1, 2)))
    assert found.members == (0, 1)
    assert found.conflict.rule == "max_rollout_nodes_total"
    assert "need 2 rollout nodes with at most 2 train nodes; " in found.conflict.message
    assert found.cures == (Cure(totals=(3, 3)),)
    assert found.conflict.relaxations == (
        "Raise max_rollout_nodes_total from 1 to 3 and raise max_train_nodes_total from 2 to 3.",
    )


def test_both_pools_short_in_the_smallest_set() -> None:
    """Two such jobs with one node of each kind."""
    found = told(snapshot_of(jobs_alone(2), caps=(1, 1)))
    assert found.conflict.message == (
        "Jobs j0 and j1 together need more of both pools, such as 2 rollout nodes and 2 train "
        "nodes; the fleet may hold 1 rollout node (max_rollout_nodes_total) and 1 train node "
        "(max_train_nodes_total)."
    )
    assert found.cures == (Cure(totals=(2, 2)),)


# --- against the oracle, and every claim decided again ------------------------------------------


@pytest.mark.parametrize("mix", MIXES)
def test_none_iff_the_oracle_has_a_plan(mix: str) -> None:
    rng = random.Random(sum(map(ord, mix)))
    found = 0
    for _ in range(25):
        snapshot = random_snapshot(rng, rng.randint(1, 4), MIXES[mix], limited=True, capped=True)
        conflict = explain(snapshot)
        assert (conflict is None) == (oracle_of(snapshot).usd_per_hour is not None), snapshot
        found += conflict is not None
    assert found >= 3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from(sorted(MIXES)))
def test_every_claim_is_true(seed: int, n: int, mix: str) -> None:
    """None iff a plan exists; the set named is in conflict and least; cures cure and are least."""
    snapshot = random_snapshot(random.Random(seed), n, MIXES[mix], limited=True, capped=True)
    found = explanation(snapshot)
    alone = all(Fleets(snapshot).front((i,)) for i in range(n))
    assert (found is None) == fits(snapshot)
    if found is None:
        return
    if alone:
        assert_holds(snapshot, found)
        return
    assert len(found.members) == 1
    assert not Fleets(snapshot).front(found.members)
    cured = found.cures[0].applied(snapshot)
    assert all(Fleets(cured).front((i,)) for i in range(n))


# --- beyond the table of all sets ---------------------------------------------------------------


def by_exhaustion(snapshot: Snapshot, options: SolveOptions) -> Result:
    return exhaustive.solve(snapshot, options)


def in_vain(snapshot: Snapshot, options: SolveOptions) -> Result:
    """A method that is always out of time."""
    return result_of(
        snapshot, options, "set-partition", groups=None, bound_usd=None, stopped_by=StoppedBy.TIME
    )


@pytest.mark.parametrize("mix", MIXES)
def test_asking_a_method_tells_the_same(mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One solve a question, with one pool free of charge: the same least caps, a minimal set."""
    rng = random.Random(len(mix))
    use_method(monkeypatch, "set-partition", by_exhaustion)
    monkeypatch.setattr(module, "_MOST_LOOSER", 0)
    compared = 0
    while compared < 4:
        snapshot = random_snapshot(rng, rng.randint(2, 5), MIXES[mix], capped=True)
        monkeypatch.setattr(module, "MOST_TABLE", 16)
        table = explanation(snapshot)
        monkeypatch.setattr(module, "MOST_TABLE", 0)
        solved = explanation(snapshot)
        assert (table is None) == (solved is None)
        if table is None or solved is None:
            continue
        compared += 1
        assert solved.cures == table.cures
        assert explanation(snapshot, proved=True) == solved
        fleets = Fleets(snapshot)
        assert not fleets.fit(solved.members)
        for i in solved.members:
            rest = tuple(j for j in solved.members if j != i)
            assert not rest or fleets.fit(rest)


def test_the_table_is_used_within_the_jobs_that_ask_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs of 40 + 10 s and slo 1 need two rollout nodes, 80 s in 50; one is held.

    Six jobs of 1 + 1 s have deadlines of 120 s. The two ask most of the cap, 40 / 50 each. In
    groups of at most four, all eight take two rollout nodes: 40 + 3 x 1 s in 50 s on each.
    """
    phases = (1, 1, 1, 40, 40, 1, 1, 1), (1, 1, 1, 10, 10, 1, 1, 1)
    jobs = jobs_of(*phases, slo=(60, 60, 60, 1, 1, 60, 60, 60))
    snapshot = snapshot_of(jobs, caps=(1, None), size=4)
    calls = use_method(monkeypatch, "set-partition", by_exhaustion)
    monkeypatch.setattr(module, "MOST_TABLE", 7)
    monkeypatch.setattr(module, "_MOST_LOOSER", 0)
    found = explanation(snapshot, proved=True)
    assert found is not None
    assert found.members == (3, 4)
    assert found.cures == (Cure(totals=(2, None)),)
    # 4 and 2 jobs in conflict, 1 not; least caps of the two and of all
    assert len(calls) == 5


def test_more_jobs_than_the_table_holds() -> None:
    """18 jobs of slo 1 that share no rollout node (8 s in 7): all 18 are needed to exceed 17."""
    pytest.importorskip("models.exact.set_partition")
    snapshot = snapshot_of(jobs_of((4,) * 18, (3,) * 18), caps=(17, None), size=5)
    found = explanation(snapshot)
    assert found is not None
    assert found.members == tuple(range(18))
    assert found.conflict.message.endswith("Without any one of them there is no conflict.")
    assert found.cures == (Cure(totals=(18, None)),)


def test_no_time_for_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that proves nothing leaves the volume bound, or nothing to say."""
    use_method(monkeypatch, "set-partition", in_vain)
    monkeypatch.setattr(module, "MOST_TABLE", 0)
    monkeypatch.setattr(module, "_MOST_LOOSER", 0)
    with pytest.raises(OutOfTimeError):
        explain(snapshot_of(PRECEDENCE, caps=(1, 1)))
    found = explain(snapshot_of(PRECEDENCE, caps=(1, 1)), proved=True)
    assert found is not None
    assert "together need more than that" in found.message
    assert found.relaxations == (
        "Raise max_rollout_nodes_total from 1 to 3 and raise max_train_nodes_total from 1 to 3 "
        "(enough; not proved the least).",
    )


# --- time ---------------------------------------------------------------------------------------


def test_out_of_time_at_once_tells_the_volume_bound() -> None:
    """Six jobs of slo 1, 4 of 7 s on a rollout node each: 24 / 7 = 3.43, so 4 nodes, of 2 held.

    The smallest such set by volume: 4 jobs are 16 / 7 = 2.29 nodes, 3 jobs only 1.71.
    """
    snapshot = snapshot_of(jobs_of((4,) * 6, (3,) * 6), caps=(2, 9))
    found = explanation(snapshot, deadline=ticking(0.0))
    assert found is not None
    assert found.members == (0, 1, 2, 3)
    assert found.conflict.rule == "max_rollout_nodes_total"
    assert found.conflict.message == (
        "Jobs j0, j1, j2 and j3 together need at least 3 rollout nodes, by time, state, width or "
        "number alone; the fleet may hold 2 rollout nodes (max_rollout_nodes_total) and 9 train "
        "nodes (max_train_nodes_total). So no plan holds all 6 jobs."
    )
    assert found.conflict.relaxations == (
        "Raise max_rollout_nodes_total from 2 to 6 (enough; not proved the least).",
    )


def test_out_of_time_without_a_bound() -> None:
    """The volume of the precedence example fits one node of each kind: 11 s of 11."""
    snapshot = snapshot_of(PRECEDENCE, caps=(1, 1))
    with pytest.raises(OutOfTimeError):
        explain(snapshot, deadline=ticking(0.0))
    found = explain(snapshot, deadline=ticking(0.0), proved=True)
    assert found is not None
    assert found.job_ids == ("j0", "j1", "j2")
    assert found.message == (
        "The 3 jobs do not fit: the fleet may hold 1 rollout node (max_rollout_nodes_total) and 1 "
        "train node (max_train_nodes_total). Which of them are in conflict was not found in the "
        "time given."
    )


def test_a_shorter_deadline_tells_less_and_nothing_wrong() -> None:
    """As time grows, cures are added; each is enough whenever it is told."""
    jobs = jobs_of((4,) * 6, (3,) * 6, rollout_state_gb=(900,) * 6)
    snapshot = snapshot_of(jobs, caps=(3, 9), size=2)
    told_of = []
    for limit in (0.0, 2.0, 8.0, 20.0, 40.0, 80.0, inf):
        found = explanation(snapshot, deadline=ticking(limit), proved=True)
        assert found is not None
        assert not Fleets(snapshot).fit(found.members)
        assert all(fits(snapshot, cure) for cure in found.cures)
        told_of.append(sum(cure.least for cure in found.cures))
    assert told_of == sorted(told_of)
    assert told_of[0] == 0
    assert told_of[-1] == 2  # the cap of 6 and SLO factor 1.15


# --- the smallest set ---------------------------------------------------------------------------


def over(states: Sequence[int], most: int) -> Subset:
    """Return a smallest set of numbers whose sum is above ``most``."""

    def small(some: tuple[int, ...]) -> bool:
        return sum(states[i] for i in some) <= most

    return smallest_conflict(range(len(states)), small, SolveOptions().start())


@given(st.lists(st.integers(1, 20), min_size=1, max_size=7), st.integers(1, 60))
def test_a_smallest_set_is_found(states: list[int], most: int) -> None:
    """As many of the largest numbers as it takes."""
    if sum(states) <= most:
        return
    found = over(states, most)
    largest = sorted(states, reverse=True)
    fewest = next(k for k in range(1, len(states) + 1) if sum(largest[:k]) > most)
    assert found.smallest
    assert len(found.members) == fewest
    assert sum(states[i] for i in found.members) > most


def test_few_tries_leave_a_minimal_set() -> None:
    """Three of 700 conflict in 2,000; no two do; smaller sets are not looked at."""
    states = (700, 700, 700, 1400)
    found = smallest_conflict(
        range(4), lambda some: sum(states[i] for i in some) <= 2000, ticking(inf), most_tries=0
    )
    assert found == Subset(members=(0, 1, 2), minimal=True)
    assert found.words() == " Without any one of them there is no conflict."
    assert over(states, 2000).members == (0, 3)


def test_time_ends_the_search_of_a_smaller_set() -> None:
    """The first look at the clock finds the time out: nothing is left out."""
    found = smallest_conflict(range(5), lambda some: len(some) < 2, ticking(0.0))
    assert found == Subset(members=(0, 1, 2, 3, 4))
    assert found.words() == ""
