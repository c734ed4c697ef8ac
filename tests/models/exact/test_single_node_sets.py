"""Sets of single-node jobs by loads: the same sets as one by one, and refuted ones replaced."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from builders import cluster_of, job_of
from instances.errors import UnsupportedError
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job
from models.exact import exhaustive
from models.exact.candidate_groups import enumerate_groups
from models.exact.single_node_sets import MOST_SIZE, SetPool, is_for
from models.group.group_cost import GroupCost, Nodes
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.snapshot import Snapshot
from oracles.least_snapshot import partitions
from small_snapshots import (
    BRIDGE,
    MIXES,
    PRECEDENCE,
    full_jobs,
    jobs_of,
    oracle_fronts,
    pareto,
    random_jobs,
    snapshot_of,
)

Rows = list[tuple[tuple[int, ...], Nodes]]
SINGLE = [mix for mix in MIXES.values() if not mix.gangs]


def pool_of(snapshot: Snapshot, **options: Any) -> SetPool:
    made = SolveOptions(**options)
    return SetPool(snapshot, made, made.start())


def rows_of(pool: SetPool) -> Rows:
    return sorted(pool.group(i) for i in range(len(pool)))


def columns_of(pool: SetPool) -> Rows:
    return sorted(pool.group(i) for i in pool.columns().tolist())


def one_switch_jobs(rng: random.Random, n: int) -> list[Job]:
    """T of 8 or 7.5 s, deadline 8.75: there is time for one switch, and not for every two."""
    rollout_s, train_s = ([rng.choice((0.5, 1.0, 3.0)) for _ in range(n)] for _ in range(2))
    sync_s = [8 - r - t - rng.choice((0, 0.5)) for r, t in zip(rollout_s, train_s, strict=True)]
    switches = ([rng.choice((0.25, 0.5, 0.75)) for _ in range(n)] for _ in range(2))
    return jobs_of(
        rollout_s,
        train_s,
        sync_s,
        deadline_s=8.75,
        rollout_switch_s=next(switches),
        train_switch_s=next(switches),
    )


def cases(seed: int, count: int, n: int) -> Iterator[Snapshot]:
    """Single-node jobs of every mix, or filling their nodes, or with time for one switch only;
    every size of a group."""
    rng = random.Random(seed)
    for i in range(count):
        if i % 4 < 2:
            jobs = random_jobs(rng, n, SINGLE[i // 2 % len(SINGLE)], together=i % 4 == 0)
        elif i % 4 == 2:
            jobs = full_jobs(rng, n, rng.choice(((1, 1), (2, 1))))
        else:
            jobs = one_switch_jobs(rng, n)
        limits = rng.choice((None, None, 1, 2)), rng.choice((None, None, 1, 2))
        yield snapshot_of(jobs, size=1 + i % MOST_SIZE, nodes=limits)


# --- for which snapshots ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "size", "fits"),
    [
        (jobs_of((1,), (1,)), 1, True),
        (jobs_of((1,), (1,)), 5, True),
        (jobs_of((1,), (1,)), 6, False),
        (jobs_of((1,), (1,)), 0, False),
        ([], 5, False),
        (jobs_of((1, 1), (1, 1), rollout_nodes=(1, 2)), 5, False),
        (jobs_of((1, 1), (1, 1), train_nodes=(2, 1)), 5, False),
    ],
)
def test_it_is_for_single_node_jobs_and_groups_of_one_to_five(
    jobs: Sequence[Job], size: int, fits: bool
) -> None:
    assert is_for(snapshot_of(jobs, size=size)) is fits


# --- which sets, on how many nodes --------------------------------------------------------------


def least_nodes(
    snapshot: Snapshot, members: Sequence[int], pool: str, other: str | None = None
) -> float:
    """The fewest blocks, over all partitions of the members, each one node by the rules.

    With ``other`` every job pays the switch of that pool too.
    """
    jobs = [snapshot.jobs[i] for i in members]
    period = min(job.deadline_s for job in jobs) * (1 + 1e-9)
    dram = getattr(snapshot.cluster, pool).host_dram_gb

    def on_one_node(block: Sequence[Job]) -> bool:
        if sum(getattr(job, f"{pool}_state_gb") for job in block) > dram:
            return False
        if len(block) == 1:
            return True
        seconds = sum(getattr(job, f"{pool}_s") + getattr(job, f"{pool}_switch_s") for job in block)
        chains = [
            job.solo_s
            + getattr(job, f"{pool}_switch_s")
            + (getattr(job, f"{other}_switch_s") if other else 0)
            for job in block
        ]
        return max(seconds, *chains) <= period

    return min(
        (
            len(blocks)
            for blocks in partitions(len(jobs))
            if all(on_one_node([jobs[i] for i in block]) for block in blocks)
        ),
        default=math.inf,
    )


def pairs_by_loads(snapshot: Snapshot, members: Sequence[int]) -> list[Nodes]:
    """The least node counts that loads, DRAM and chains admit: one rollout node, one train node,
    or two and more of both."""
    rollout, train = (least_nodes(snapshot, members, pool) for pool in ("rollout", "train"))
    if math.inf in (rollout, train):
        return []
    if len(members) == 1:
        return [(1, 1)]
    pairs = [(max(rollout, 2), max(train, 2))]
    if train == 1:
        pairs.append((least_nodes(snapshot, members, "rollout", "train"), 1))
    if rollout == 1:
        pairs.append((1, least_nodes(snapshot, members, "train", "rollout")))
    return [(int(r), int(t)) for r, t in pareto(pairs) if max(r, t) <= len(members)]


def admitted(snapshot: Snapshot) -> Rows:
    """Every set that loads admit as a connected group within the limits, one by one."""
    limits = snapshot.limits
    rows = []
    for size in range(1, min(limits.max_group_size, len(snapshot)) + 1):
        for members in combinations(range(len(snapshot)), size):
            jobs = [snapshot.jobs[i] for i in members]
            if max(job.solo_s for job in jobs) > min(job.deadline_s for job in jobs) * (1 + 1e-9):
                continue
            most = limits.max_rollout_nodes or size, limits.max_train_nodes or size
            rows += [
                (members, (rollout, train))
                for rollout, train in pairs_by_loads(snapshot, members)
                if rollout + train <= size + 1 and rollout <= most[0] and train <= most[1]
            ]
    return sorted(rows)


def test_the_sets_are_those_that_loads_admit_each_on_its_fewest_nodes() -> None:
    """Five or six jobs; sets one by one over all partitions into nodes."""
    several = wide = double = 0
    for snapshot in [*cases(1, 40, 5), *cases(2, 20, 6)]:
        expected = admitted(snapshot)
        pool = pool_of(snapshot)
        assert rows_of(pool) == expected, snapshot
        assert len(pool) == len(expected)
        several += sum(len(members) > 2 for members, _ in expected)
        wide += sum(sum(nodes) > 2 for members, nodes in expected)
        double += len(expected) - len({members for members, _ in expected})
    assert several >= 200
    assert wide >= 100
    assert double >= 20


def test_a_switch_paid_in_both_pools_leaves_one_of_them_shared() -> None:
    """Two jobs r = t = 1, s = 2, switches 0.5, D = 4.5: a pool shared is 1.5 + 1 + 2 = 4.5 s, both
    are 5 s. So (1, 2) and (2, 1), as the true front; with D = 5 it is (1, 1), with 4 none."""
    half = (0.5, 0.5)
    for deadline_s, pairs in ((4.5, [(1, 2), (2, 1)]), (5, [(1, 1)]), (4, [])):
        jobs = jobs_of(
            (1, 1), (1, 1), (2, 2), deadline_s=deadline_s, rollout_switch_s=half,
            train_switch_s=half,
        )  # fmt: skip
        rows = rows_of(pool_of(snapshot_of(jobs, size=2)))
        assert [nodes for members, nodes in rows if members == (0, 1)] == pairs


def test_no_point_of_a_true_front_is_below_every_row_of_its_set() -> None:
    """So that a choice of rows is a bound: the oracle's fronts of four jobs, connected points."""
    points = above = 0
    for snapshot in cases(8, 24, 4):
        rows = rows_of(pool_of(snapshot))
        for members, front in oracle_fronts(snapshot).items():
            for rollout, train in front:
                if rollout + train > len(members) + 1:
                    continue
                pairs = [nodes for s, nodes in rows if s == members]
                assert any(r <= rollout and t <= train for r, t in pairs), (snapshot, members)
                points += len(members) > 1
                above += (rollout, train) not in pairs
    assert points >= 50
    assert above >= 1


@pytest.mark.parametrize("prices", [(14.8, 42.24), (8.0, 0.0), (0.0, 8.0)])
def test_the_columns_are_those_of_one_by_one_where_loads_decide(
    prices: tuple[float, float],
) -> None:
    """Where a schedule exists on every row, the exact enumeration keeps the same sets at the same
    price: those cheaper than every way to split them. Free nodes make many splits as cheap."""
    compared = several = 0
    cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
    for plain in [*cases(3, 40, 5), *cases(4, 20, 6)]:
        snapshot = replace(plain, cluster=cluster)
        cost, pool = GroupCost(snapshot), pool_of(snapshot)
        if any(cost.decide(*pool.group(i)) is None for i in range(len(pool))):
            continue
        options = SolveOptions()
        exact = enumerate_groups(cost, options, options.start(), fronts=False)
        usd: dict[tuple[int, ...], float] = {}
        for members, nodes in columns_of(pool):
            usd[members] = min(usd.get(members, math.inf), snapshot.usd_per_hour(*nodes))
        assert usd == {
            members: pytest.approx(snapshot.usd_per_hour(*nodes))
            for members, nodes in zip(exact.members, exact.nodes, strict=True)
        }, snapshot
        compared += 1
        several += sum(len(members) > 1 for members in exact.members)
    assert compared >= 40
    assert several >= 75


@pytest.mark.parametrize("prices", [(8.0, 8.0), (40.0, 8.0), (0.0, 8.0)])
def test_columns_are_cheaper_than_a_split_at_these_prices(prices: tuple[float, float]) -> None:
    """(5, 1), (5, 1) with deadline 6: two rollout nodes and one train node, so one train node is
    what sharing saves; at equal prices, at dear rollout nodes, and where they cost nothing."""
    cluster = cluster_of(rollout_usd=prices[0], train_usd=prices[1])
    jobs = jobs_of((5, 5), (1, 1))
    assert columns_of(pool_of(snapshot_of(jobs, size=2, cluster=cluster))) == [
        ((0,), (1, 1)),
        ((0, 1), (2, 1)),
        ((1,), (1, 1)),
    ]


def test_a_set_as_dear_as_its_parts_is_no_column() -> None:
    """Train nodes are free: sharing one saves nothing, and rollouts of 5 s in 6 do not share."""
    cluster = cluster_of(rollout_usd=8.0, train_usd=0.0)
    pool = pool_of(snapshot_of(jobs_of((5, 5), (1, 1)), size=2, cluster=cluster))
    assert rows_of(pool) == [((0,), (1, 1)), ((0, 1), (2, 1)), ((1,), (1, 1))]
    assert columns_of(pool) == [((0,), (1, 1)), ((1,), (1, 1))]


def test_under_fleet_caps_every_set_is_a_column() -> None:
    """Price alone does not decide there: the same snapshot, with a cap."""
    cluster = cluster_of(rollout_usd=8.0, train_usd=0.0)
    jobs = jobs_of((5, 5), (1, 1))
    pool = pool_of(snapshot_of(jobs, size=2, cluster=cluster, caps=(None, 1)))
    assert columns_of(pool) == rows_of(pool)
    assert len(pool) == 3


def test_a_job_that_fits_no_node_alone_is_in_no_set() -> None:
    jobs = jobs_of((1,) * 3, (1,) * 3, deadline_s=6, train_state_gb=(0, 2001, 0))
    pool = pool_of(snapshot_of(jobs, size=3))
    assert rows_of(pool) == [((0,), (1, 1)), ((0, 2), (1, 1)), ((2,), (1, 1))]
    assert pool.sets_grown == 3 + 1


def test_each_pool_has_its_own_dram() -> None:
    """Two jobs of 800 GB in each pool: rollout nodes hold 2000 GB, train nodes 1000 GB."""
    small = replace(DEFAULT_CLUSTER.train, host_dram_gb=1000.0)
    both = (800, 800)
    jobs = jobs_of((1, 1), (1, 1), deadline_s=8, rollout_state_gb=both, train_state_gb=both)
    snapshot = snapshot_of(jobs, size=2, cluster=DEFAULT_CLUSTER.replace(train=small))
    assert ((0, 1), (1, 2)) in rows_of(pool_of(snapshot))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_job_may_join_two_that_share_nothing(order: tuple[int, ...]) -> None:
    """All three are connected and cheaper than any split; the pair of 1500 GB jobs is neither."""
    pool = pool_of(snapshot_of([BRIDGE[i] for i in order], size=3))
    assert ((0, 1, 2), (2, 2)) in columns_of(pool)
    apart = tuple(sorted((order.index(0), order.index(1))))
    assert apart not in [members for members, _ in rows_of(pool)]


def test_no_set_at_all_is_an_answer_too() -> None:
    pool = pool_of(snapshot_of(jobs_of((1,), (1,), train_state_gb=(2001,)), size=3))
    assert (len(pool), columns_of(pool)) == (0, [])


@pytest.mark.parametrize(("size", "sets"), [(1, 6), (2, 21), (3, 41), (4, 56), (5, 62)])
def test_sets_are_no_larger_than_a_group_may_be(size: int, sets: int) -> None:
    """Six jobs that share everything: 6 + 15 + 20 + 15 + 6 sets of 1 to 5."""
    pool = pool_of(snapshot_of(jobs_of((1,) * 6, (1,) * 6, deadline_s=20), size=size))
    assert (len(pool), pool.sets_grown) == (sets, sets)


def test_a_group_size_above_the_number_of_jobs_is_none() -> None:
    pool = pool_of(snapshot_of(jobs_of((1, 1), (1, 1), deadline_s=20), size=5))
    assert rows_of(pool) == [((0,), (1, 1)), ((0, 1), (1, 1)), ((1,), (1, 1))]


def test_a_set_is_only_grown_from_sets_that_were_admitted() -> None:
    """Job 1 (T = 3) is beyond the deadline 2 of job 0: of five jobs, 8 sets hold both. Three jobs
    of 1000 GB do not share the one rollout node allowed: triples are looked at, the four not."""
    jobs = [job_of("a", 1, 1, 1.0), *(job_of(f"b{i}", 2 - (i > 0), 1, 9.0) for i in range(4))]
    assert pool_of(snapshot_of(jobs, size=5)).sets_grown == 31 - 8
    jobs = jobs_of((1,) * 4, (1,) * 4, deadline_s=9, rollout_state_gb=(1000,) * 4)
    pool = pool_of(snapshot_of(jobs, size=4, nodes=(1, None)))
    assert (len(pool), pool.sets_grown) == (4 + 6, 4 + 6 + 4)


def test_a_pair_beyond_the_node_limits_is_never_extended() -> None:
    """Rollouts of 4, 4 and 2 s within 6: jobs 0 and 1 need two rollout nodes, one is allowed. Of
    the pairs two are looked at, and not the triple, though it has both of them."""
    jobs = jobs_of((4, 4, 2), (1, 1, 1), deadline_s=6)
    pool = pool_of(snapshot_of(jobs, size=3, nodes=(1, None)))
    assert [members for members, _ in rows_of(pool)] == [(0,), (0, 2), (1,), (1, 2), (2,)]
    assert pool.sets_grown == 3 + 2


# --- limits of the enumeration ------------------------------------------------------------------


def test_too_many_sets_are_refused_with_the_alternatives() -> None:
    snapshot = snapshot_of(jobs_of((1,) * 5, (1,) * 5, deadline_s=20), size=5)
    assert len(pool_of(snapshot, max_groups=31)) == 31
    words = (
        r"^Expected at most 30 candidate groups, got more among 5 jobs: lower max_group_size or "
    )
    with pytest.raises(UnsupportedError, match=words):
        pool_of(snapshot, max_groups=30)


def test_the_sets_end_when_the_time_does() -> None:
    snapshot = snapshot_of(jobs_of((1, 1), (1, 1), deadline_s=20), size=2)
    with pytest.raises(OutOfTimeError):
        pool_of(snapshot, time_limit_s=0)


def test_progress_is_told_by_size_of_the_sets() -> None:
    told: list[tuple[str, int, int]] = []
    snapshot = snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), size=3)
    pool_of(snapshot, progress=lambda *call: told.append(call))
    assert told == [("groups of jobs", 2, 3), ("groups of jobs", 3, 3)]


# --- refutation ---------------------------------------------------------------------------------


def precedence_and_one(nodes: tuple[int | None, int | None] = (None, None)) -> SetPool:
    """The precedence triple and a short job that no switch or load keeps away: r = t = 0.5 on
    (2, 2) nodes at most beside it, deadline 11."""
    jobs = [*PRECEDENCE, job_of("j3", 0.5, 0.5, 11.0)]
    return pool_of(snapshot_of(jobs, size=4, nodes=nodes))


def test_a_refuted_set_and_its_supersets_get_one_node_more() -> None:
    """The triple has no schedule on (1, 1) (FORMULATION 4). With the fourth job loads are 11.5
    on one node of each kind, so that set is on (2, 2) already and stays."""
    pool = precedence_and_one()
    before = rows_of(pool)
    assert ((0, 1, 2), (1, 1)) in before
    assert ((0, 1, 2, 3), (2, 2)) in before
    assert pool.refute((0, 1, 2), (1, 1)) == 1
    after = rows_of(pool)
    assert sorted(set(after) - set(before)) == [((0, 1, 2), (1, 2)), ((0, 1, 2), (2, 1))]
    assert set(before) - set(after) == {((0, 1, 2), (1, 1))}
    assert len(after) == len(before) + 1


def test_supersets_on_no_more_nodes_are_refuted_with_a_set() -> None:
    """Four alike jobs on (1, 1). A pair is called infeasible there: the pair, two triples and the
    four hold it. A pair on three nodes is still connected, on four it is not."""
    pool = pool_of(snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), size=4))
    assert pool.refute((1, 2), (1, 1)) == 4
    refuted = {(1, 2), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3)}
    rows = rows_of(pool)
    for members, nodes in rows:
        assert (nodes != (1, 1)) == (members in refuted)
    assert len(rows) == 15 + 4
    assert pool.refute((1, 2), (2, 1)) == 4  # those with (2, 1); those with (1, 2) stay
    assert [nodes for members, nodes in rows_of(pool) if members == (1, 2)] == [(1, 2)]
    assert pool.refute((1, 2), (1, 2)) > 0
    assert [nodes for members, nodes in rows_of(pool) if members == (1, 2)] == []
    assert pool.refute((1, 2), (1, 1)) == 0


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ((1, None), [(1, 2)]),
        ((None, 1), [(2, 1)]),
        ((1, 1), []),
        ((2, 2), [(1, 2), (2, 1)]),
    ],
)
def test_a_refuted_set_stays_within_the_node_limits(
    nodes: tuple[int | None, int | None], left: list[Nodes]
) -> None:
    pool = precedence_and_one(nodes)
    assert pool.refute((0, 1, 2), (1, 1)) == 1
    assert [found for members, found in rows_of(pool) if members == (0, 1, 2)] == left


def test_no_row_is_held_twice_whatever_is_refuted() -> None:
    """(2, 2) is one node more than (1, 2) and than (2, 1)."""
    pool = pool_of(snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), size=4))
    for nodes in ((1, 1), (1, 2), (2, 1), (2, 2)):
        pool.refute((0, 1, 2), nodes)
        rows = rows_of(pool)
        assert len(rows) == len(set(rows))


def test_a_part_counts_at_the_cheapest_of_its_rows() -> None:
    """Four alike jobs. Pairs are refuted on (1, 1): $71.84 at (2, 1) and $99.28 at (1, 2) are left,
    both below $114.08 for two jobs alone. Triples are refuted wherever they are connected, and so
    the four up to (1, 4), (2, 3), (3, 2), (4, 1): $183.76, $156.32, $128.88, $101.44. Two pairs
    cost $143.68."""
    pool = pool_of(snapshot_of(jobs_of((1,) * 4, (1,) * 4, deadline_s=20), size=4))
    for pair in combinations(range(4), 2):
        pool.refute(pair, (1, 1))
    for triple in combinations(range(4), 3):
        for nodes in ((1, 2), (2, 1), (2, 2), (1, 3), (3, 1)):
            pool.refute(triple, nodes)
    four = [nodes for members, nodes in rows_of(pool) if len(members) == 4]
    assert four == [(1, 4), (2, 3), (3, 2), (4, 1)]
    assert columns_of(pool) == sorted(
        [((i,), (1, 1)) for i in range(4)]
        + [(pair, nodes) for pair in combinations(range(4), 2) for nodes in ((1, 2), (2, 1))]
        + [((0, 1, 2, 3), (3, 2)), ((0, 1, 2, 3), (4, 1))]
    )


def test_columns_after_refutation_are_cheaper_than_splits_of_what_is_left() -> None:
    """Rows of one set at several prices: the cheapest counts where the set is a part."""
    rng = random.Random(7)
    several = dear = 0
    for snapshot in cases(6, 20, 5):
        pool = pool_of(snapshot)
        for _ in range(4):
            members, nodes = rng.choice(rows_of(pool))
            if len(members) > 1:
                pool.refute(members, nodes)
        rows = rows_of(pool)
        usd: dict[tuple[int, ...], float] = {}
        for members, nodes in rows:
            usd[members] = min(usd.get(members, math.inf), snapshot.usd_per_hour(*nodes))
        expected = [
            (members, nodes)
            for members, nodes in rows
            if all(
                snapshot.usd_per_hour(*nodes)
                < sum(usd.get(tuple(members[i] for i in b), math.inf) for b in blocks) - 1e-9
                for blocks in partitions(len(members))
                if len(blocks) > 1
            )
        ]
        assert columns_of(pool) == expected, snapshot
        several += len(rows) - len(usd)
        dear += len(rows) - len(expected)
    assert several >= 20
    assert dear >= 5


def cheapest(snapshot: Snapshot, rows: Rows) -> list[tuple[tuple[int, ...], Nodes]] | None:
    """A cheapest partition within the caps by plain recursion."""

    def best(left: tuple[int, ...], caps: tuple[float, float]) -> tuple[float, Rows]:
        if not left:
            return 0.0, []
        found: tuple[float, Rows] = (math.inf, [])
        for members, nodes in rows:
            if members[0] != left[0] or not set(members) <= set(left):
                continue
            room = caps[0] - nodes[0], caps[1] - nodes[1]
            if min(room) < 0:
                continue
            usd, rest = best(tuple(i for i in left if i not in members), room)
            usd += snapshot.usd_per_hour(*nodes)
            if usd < found[0] - 1e-9:
                found = usd, [(members, nodes), *rest]
        return found

    caps = snapshot.caps.max_rollout_nodes_total, snapshot.caps.max_train_nodes_total
    usd, chosen = best(
        tuple(range(len(snapshot))), tuple(math.inf if cap is None else cap for cap in caps)
    )
    return chosen if usd < math.inf else None


@pytest.mark.parametrize("capped", [False, True])
def test_refuting_until_all_chosen_are_feasible_reaches_the_optimum(capped: bool) -> None:
    """What set partitioning relies on: each choice is a bound, and the last one a plan."""
    rng = random.Random(11)
    refuted = shared = none = 0
    for i in range(24):
        jobs = full_jobs(rng, 3 + i % 3, (1, 1) if i % 2 else (2, 1) if i % 3 else (1, 1), 0)
        caps = (rng.choice((1, 2, 3)), rng.choice((None, 1, 2))) if capped else (None, None)
        snapshot = snapshot_of(jobs, size=5, caps=caps)
        cost, pool = GroupCost(snapshot), pool_of(snapshot)
        expected = exhaustive.solve(snapshot, SolveOptions()).usd_per_hour
        while True:
            chosen = cheapest(snapshot, columns_of(pool))
            if chosen is None:
                assert expected is None
                none += 1
                break
            usd = sum(snapshot.usd_per_hour(*nodes) for _, nodes in chosen)
            assert expected is None or usd <= expected + 1e-6
            failed = [row for row in chosen if cost.decide(*row) is None]
            if not failed:
                assert usd == pytest.approx(expected)
                shared += len(chosen) < len(jobs)
                break
            for members, nodes in failed:
                assert pool.refute(members, nodes) >= 1
                refuted += 1
    assert refuted >= 8
    assert shared >= 8
    assert none >= 2 * capped


def test_prices_of_zero_are_no_reason_to_lose_a_set() -> None:
    """Both pools free: every split is as cheap, so jobs alone are all the columns there are."""
    cluster = cluster_of(rollout_usd=0.0, train_usd=0.0)
    pool = pool_of(snapshot_of(jobs_of((1, 1), (1, 1), deadline_s=9), size=2, cluster=cluster))
    assert columns_of(pool) == [((0,), (1, 1)), ((1,), (1, 1))]


def test_a_permutation_of_the_jobs_permutes_the_sets() -> None:
    for snapshot in cases(5, 10, 5):
        order = [3, 0, 4, 1, 2]
        turned = replace(snapshot, table=snapshot.table.take(order))
        back = sorted(
            (tuple(sorted(order[i] for i in members)), nodes)
            for members, nodes in rows_of(pool_of(turned))
        )
        assert back == rows_of(pool_of(snapshot))
