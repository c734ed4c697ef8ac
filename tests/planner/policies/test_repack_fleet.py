"""``repack`` on a fixed fleet: never more nodes, nobody forgotten, and the same where none lack."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from builders import job_of, options_of, table_of
from command_line import PAIR_USD
from fleet_cases import fixed, require_kept
from instances.errors import UnsupportedError
from instances.generate import production
from instances.jobs import Job, JobTable
from instances.plan import Fleet
from models.replan.replanning import Replan, replan
from moving_cases import group_of
from oracles.least_replan import Replanning, Running
from oracles.least_snapshot import Block, Counts, _phases, _take, partitions
from planner.policies.policy import Change, Room
from planner.policies.repack import Repack
from planner.policies.repack_fleet import least_nodes
from planner.policies.repack_ledger import JobLedger
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention
from planner.policies.wait_target import WaitTarget
from planner.replay.replaying import replay
from planner.size.fleet_search import bound_of, cheapest_fleet
from planner.size.node_loss import survives_loss
from repack_cases import MOVE_USD, twin
from repack_policy_cases import NOW_S, homes, random_jobs
from replan_cases import Case, never, problems, random_case
from replay_cases import both_conventions

#: Ways to decide: every rule and limit, reviews, overlaps, and parts of a fleet.
WAYS: dict[str, dict[str, Any]] = {
    "residual": {},
    "break-even": {"rule": "break-even", "review_h": 0.05, "overlap_s": 60.0},
    "oracle": {"oracle": "remaining", "max_moves_per_job_day": 1},
    "parts": {"lasting_h": 20.0, "max_scope": 5, "scopes": 3, "overlap_s": 90.0},
    "few": {"moves_per_job": 0.3, "review_h": 0.5},
}
every_way = pytest.mark.parametrize("way", WAYS)


def on(
    fleet: Room, *groups: list[Job], convention: Convention = "wallclock", **params: Any
) -> Repack:
    """Return the policy on a fleet with groups 1, 2, ... that run on a node of each kind."""
    options = options_of(fleet=Fleet(*fleet), repack=RepackParams(**params), convention=convention)
    policy, ledger, states = Repack(options), JobLedger(convention), []
    for number, jobs in enumerate(groups, start=1):
        state = group_of(jobs, number)
        assert state is not None
        for job in jobs:
            ledger.arrive(job, job.arrival_s)
        ledger.run(state, 0.0)
        states.append(state)
    policy.adopt(states, ledger, 0.0)
    return policy


def light(job_id: str) -> Job:
    """Return a twin of which two share the 2,000 GB of a node, and none with :func:`lone`."""
    return twin(job_id, rollout_state_gb=900.0, train_state_gb=900.0)


def lone(job_id: str, **more: Any) -> Job:
    """Return a twin that shares with nobody."""
    return twin(job_id, rollout_state_gb=1900.0, train_state_gb=1900.0, **more)


def coming(policy: Repack, now_s: float, room: Room | None = None) -> Change | None:
    """Let a lone job c come."""
    return policy.arrive(lone("c", arrival_s=now_s), now_s, room)


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lasting_h", "placed"), [(0.09, False), (0.11, True)])
def test_moves_make_room_where_they_earn_their_price(lasting_h: float, placed: bool) -> None:
    # Putting two twins together saves PAIR_USD an hour and costs a tenth of that: 0.1 h.
    assert pytest.approx(PAIR_USD / 10) == MOVE_USD
    policy = on((2, 2), [light("a")], [light("b")], lasting_h=lasting_h)
    change = coming(policy, NOW_S, (0, 0))
    if placed:
        assert change is not None
        assert (len(change.moved), change.admission) == (1, "isolated")
        assert sorted(map(len, homes(policy))) == [1, 2]
    else:
        assert change is None
        assert homes(policy) == [["a"], ["b"]]


def test_who_does_not_fit_leaves_nothing_behind() -> None:
    a = light("a")
    policy = on((2, 2), [a], [light("b")], lasting_h=0.01)
    before = dict(policy.groups), policy.ledger.arrived, policy.ledger.moves
    assert coming(policy, NOW_S, (0, 0)) is None
    assert (dict(policy.groups), policy.ledger.arrived, policy.ledger.moves) == before
    assert set(policy.ledger.running) == {"a", "b"}
    # It comes again once there is room, and again is as new.
    change = policy.depart(a, NOW_S + 1)
    assert change.ended == (1,)
    again = coming(policy, NOW_S + 1, (1, 1))
    assert again is not None
    assert again.admission == "isolated"


def test_no_search_where_no_plan_has_room() -> None:
    # DRAM: three jobs of 1,999 GB need three nodes of 2,000.
    policy = on(
        (2, 2),
        [
            lone(
                "a",
            )
        ],
        [lone("b")],
        lasting_h=100.0,
    )
    assert policy.arrive(lone("c"), NOW_S + 1, (0, 0)) is None
    assert policy.searches == 0


def test_old_nodes_count_while_they_are_held() -> None:
    # a moves to b: for 60 s its old pair exists beside theirs, so c has no room before.
    policy = on((2, 2), [light("a")], [light("b")], lasting_h=10.0, overlap_s=60.0)
    assert coming(policy, NOW_S, (0, 0)) is None
    assert homes(policy) == [["a"], ["b"]]
    (held,) = policy.review(NOW_S).held
    assert (held.rollout_nodes, held.train_nodes, held.seconds) == (1, 1, 60.0)
    for after_s, room, placed in ((59.0, (0, 0), False), (60.0, (1, 1), True)):
        assert (coming(policy, NOW_S + after_s, room) is not None) is placed


def test_nodes_of_others_are_not_taken() -> None:
    # The fleet has two pairs, and jobs of others hold one: c has to wait though only a runs.
    policy = on((2, 2), [lone("a")], lasting_h=10.0)
    policy.reserve((1, 1))
    assert coming(policy, NOW_S) is None
    policy.reserve((0, 1))
    assert coming(policy, NOW_S) is None
    policy.reserve((0, 0))
    assert coming(policy, NOW_S) is not None


def test_backfilling_is_refused_by_name() -> None:
    jobs = table_of(twin("a"))
    with pytest.raises(UnsupportedError, match="'repack' does not backfill"):
        fixed(jobs, "repack", (1, 1), queue="backfill")
    with pytest.raises(UnsupportedError, match="'repack' does not backfill"):
        on((1, 1)).fork()


def test_the_fewest_nodes_by_volume() -> None:
    # Rollout: 2 x 30 / 40 + 10 / 40 = 1.75 nodes; train: 0.25 + 0.75 = 1; DRAM: 0.75 and 0.5.
    wide = job_of("a", 30, 10, 1.0, rollout_nodes=2, rollout_state_gb=500.0)
    other = job_of("b", 10, 30, 1.0, rollout_state_gb=500.0, train_state_gb=1000.0)
    options = options_of()
    assert least_nodes([wide, other], options.cluster, options.limits) == (2, 1)
    pairs = replace(options.limits, max_group_size=1)
    assert least_nodes([wide, other], options.cluster, pairs) == (3, 2)


# --- replays --------------------------------------------------------------------------------------


@both_conventions
@every_way
def test_a_fleet_keeps_its_promises(way: str, convention: Convention) -> None:
    """The fleet that nobody has to wait for changes nothing; on smaller ones all jobs end."""
    jobs, options = random_jobs(2, n=9), RepackParams(**WAYS[way])
    free = replay(jobs, "repack", options_of(repack=options), convention=convention)
    assert free.plan is not None
    peak = free.peak_nodes["rollout"], free.peak_nodes["train"]
    result = fixed(jobs, "repack", peak, convention=convention, repack=options)
    assert result.plan == replace(free.plan, fleet=Fleet(*peak))
    widest = int(jobs.rollout_nodes.max()), int(jobs.train_nodes.max())
    fleet = max(widest[0], peak[0] - 2), max(widest[1], peak[1] - 2)
    result = fixed(jobs, "repack", fleet, convention=convention, repack=options)
    require_kept(result)
    assert result.slo_attainment == 1.0
    assert result.waits_s.any()


def test_production_waits_less_than_where_nobody_moves() -> None:
    jobs = production(n_jobs=50, seed=1)
    repack = fixed(jobs, "repack", (9, 6))
    require_kept(repack)
    weave = fixed(jobs, "weave", (9, 6))
    assert repack.wait_quantile(0.95) < weave.wait_quantile(0.95)
    assert sum(record.moves for record in repack.records) > 0


# --- the cheapest fleet ---------------------------------------------------------------------------


@both_conventions
def test_the_cheapest_fleet_is_the_one_that_trying_all_finds(convention: Convention) -> None:
    jobs, options = random_jobs(7, n=5), options_of()
    target = WaitTarget(600.0, 0.75)
    found = cheapest_fleet(jobs, "repack", options, target, convention=convention, with_worth=False)
    most = found.box.most
    bound = bound_of(jobs, "repack", options, target, convention)
    widest = int(jobs.rollout_nodes.max()), int(jobs.train_nodes.max())
    best = math.inf
    for rollout, train in product(
        range(widest[0], most.rollout_nodes + 1), range(widest[1], most.train_nodes + 1)
    ):
        result = fixed(jobs, "repack", (rollout, train), convention=convention)
        late = int(np.count_nonzero(result.waits_s > target.wait_s))
        if late <= target.late_allowed(len(jobs)):
            assert not bound.excludes(rollout, train)
            best = min(best, options.cluster.usd_per_hour(rollout, train))
    assert found.usd_per_hour == pytest.approx(best)


@both_conventions
def test_the_loss_of_a_node_is_answered(convention: Convention) -> None:
    jobs = production(n_jobs=20, seed=4)
    result = fixed(jobs, "repack", (6, 4), convention=convention)
    assert sum(record.moves for record in result.records) > 0
    options = options_of(fleet=Fleet(6, 4))
    report = survives_loss(result, options, search_s=0.0)
    assert report.states > len(jobs)
    assert report.counts("rollout")["none"] < report.states
    # With one node more of each there is always one free.
    spare = survives_loss(result, options, spare=Fleet(1, 1), search_s=0.0)
    assert {loss.how for loss in spare.losses} == {"spare"}


# --- the search, against enumeration --------------------------------------------------------------


class Capped(Replanning):
    """The oracle with the most nodes of a plan; a block may be had on other nodes, dearer ones."""

    def within(self, most: Counts, most_moves: int | None) -> float:
        limit = math.inf if most_moves is None else most_moves
        best = math.inf
        for blocks in partitions(len(self.work)):
            options = [self._fronts(block) for block in blocks]
            best = min(best, self._least(options, frozenset(), limit, most))
        return best

    @functools.cache  # noqa: B019 - as short-lived as the test
    def _fronts(self, block: Block) -> list[tuple[int | None, Counts, float, int]]:
        work = _take(self.work, block)
        size, limits = self.limits.max_group_size, self.limits
        if size and len(block) > size:
            return []
        most = [sum(phase.width for phase in pool) for pool in _phases(work)]
        for pool, limit in enumerate((limits.max_rollout_nodes, limits.max_train_nodes)):
            most[pool] = most[pool] if limit is None else min(most[pool], limit)
        out = []
        for host, stayers in self._continued(block):
            movers = [j for j in block if j in self.home and j not in stayers]
            if not all(self.may_move[j] for j in movers):
                continue
            usd = sum(self.move_usd[j] for j in movers)
            for pair in product(range(1, most[0] + 1), range(1, most[1] + 1)):
                if self._feasible(work, block, pair, host, stayers):
                    out.append((host, pair, usd + self._price(pair), len(movers)))
        return out

    def _least(
        self,
        options: list[list[tuple[int | None, Counts, float, int]]],
        used: frozenset[int],
        moves: float,
        most: Counts,
    ) -> float:
        if min(most) < 0:
            return math.inf
        if not options:
            return 0.0
        best = math.inf
        for host, nodes, usd, made in options[0]:
            if made <= moves and host not in used:
                more = used if host is None else used | {host}
                left = most[0] - nodes[0], most[1] - nodes[1]
                best = min(best, usd + self._least(options[1:], more, moves - made, left))
        return best


def capped(case: Case, most: Room) -> tuple[Replan, float]:
    """Return the search's answer and the least value by enumeration, both within ``most``."""
    found = replan(
        case.snapshot,
        case.hosts,
        lasting_h=case.lasting_h,
        move_usd=case.move_usd,
        may_move=case.may_move,
        most_moves=case.most_moves,
        most_nodes=most,
        deadline=never(),
    )
    assert problems(case.snapshot, case.hosts, found) == []
    runs = [Running(host.members, host.rollout_pins, host.train_pins) for host in case.hosts]
    oracle = Capped(
        case.snapshot.jobs,
        case.snapshot.cluster,
        case.snapshot.limits,
        runs,
        lasting_h=case.lasting_h,
        move_usd=case.move_usd.tolist(),
        may_move=case.may_move.tolist(),
    )
    return found, oracle.within(most, case.most_moves)


def total(found: Replan) -> Room:
    return (
        sum(group.nodes[0] for group in found.groups),
        sum(group.nodes[1] for group in found.groups),
    )


@pytest.mark.parametrize("seed", range(15))
def test_enumeration_within_a_fleet_agrees(seed: int) -> None:
    """The least plan within the nodes, unless the plan to begin with, on more, is worth less."""
    case = random_case(random.Random(seed), 4)
    free, _ = capped(case, (99, 99))
    rollout, train = total(free)
    for most in ((rollout, train), (rollout - 1, train + 1), (rollout + 1, train - 1)):
        if min(most) < 1:
            continue
        found, least = capped(case, most)
        kept = total(found)
        if kept[0] <= most[0] and kept[1] <= most[1]:
            assert found.value_usd == pytest.approx(least, abs=1e-3)
        else:
            assert found.value_usd == pytest.approx(case.kept_usd(), abs=1e-3)
            assert least >= found.value_usd - 1e-3


def test_jobs_wait_for_nodes_not_for_ever() -> None:
    # Jobs that share with nobody on one pair, one after the other.
    jobs = JobTable.from_jobs(
        [replace(lone(f"j{i}", duration_s=100.0), arrival_s=float(i)) for i in range(4)]
    )
    result = fixed(jobs, "repack", (1, 1), convention="wallclock")
    assert [record.start_s for record in result.records] == [0.0, 100.0, 200.0, 300.0]
    require_kept(result)
