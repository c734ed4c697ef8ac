"""The volume bound: by hand, as running sums, and below every plan the placer makes."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.checker import check_group
from instances.hardware import DEFAULT_CLUSTER, H20, H800, Cluster, NodeType
from instances.jobs import Job, JobTable
from instances.plan import Limits
from models.bounds.volume import VOLUME, VolumeSums, least_fleet_usd, volume
from planner.placement.placer import Placer, PlacerParams

#: Prices of a node, $/h: 8 GPUs at 1.85 and 5.28.
USD_ROLLOUT, USD_TRAIN = 14.8, 42.24
NO_LIMIT = Limits(max_group_size=0)


def table(*jobs: Job, copies: int = 1) -> JobTable:
    """Return the jobs ``copies`` times, with ids of their own."""
    every = [job for job in jobs for _ in range(copies)]
    return JobTable.from_jobs([replace(job, job_id=f"j{i}") for i, job in enumerate(every)])


def job(rollout_s: float = 1.0, train_s: float = 1.0, **other: float) -> Job:
    """Return a job; slo 1 and the rest at the defaults unless told otherwise."""
    return Job(**{"job_id": "j", "rollout_s": rollout_s, "train_s": train_s, "slo": 1.0, **other})


#: One percent of a node's time in each pool: D = 1 + 1 + 98.
LIGHT = job(sync_s=98.0)


@pytest.mark.parametrize(
    ("jobs", "limits", "rollout", "train"),
    [
        # time: r / D = 100 / 150, t / D = 50 / 150; three jobs: 2 and 1 nodes, exactly
        (table(job(100, 50), copies=3), NO_LIMIT, 2, 1),
        # one more: 2.67 and 1.33
        (table(job(100, 50), copies=4), NO_LIMIT, 3, 2),
        # slo 2 halves the shares: 1.33 and 0.67
        (table(job(100, 50, slo=2.0), copies=4), NO_LIMIT, 2, 1),
        # sync lengthens D to 300 s: 1.33 and 0.67 again
        (table(job(100, 50, sync_s=150.0), copies=4), NO_LIMIT, 2, 1),
        # DRAM: 3 x 900 of 2000 GB = 1.35 on rollout nodes, 3 x 600 = 0.9 on train nodes
        (
            table(replace(LIGHT, rollout_state_gb=900.0, train_state_gb=600.0), copies=3),
            NO_LIMIT,
            2,
            1,
        ),
        # a gang counts once per node: 2 nodes x 0.45 x 3 jobs = 2.7 of DRAM
        (
            table(replace(LIGHT, rollout_state_gb=900.0, rollout_nodes=2), copies=3),
            NO_LIMIT,
            3,
            1,
        ),
        # gang time: 4 nodes x 100 / 150 x 2 jobs = 5.33
        (table(job(100, 50, rollout_nodes=4), copies=2), NO_LIMIT, 6, 1),
        # width: one job of 4 + 3 nodes, however light
        (table(replace(LIGHT, rollout_nodes=4, train_nodes=3)), NO_LIMIT, 4, 3),
        # group size: 11 light jobs, 5 in a group: 2.2; without a limit 0.11
        (table(LIGHT, copies=11), Limits(max_group_size=5), 3, 3),
        (table(LIGHT, copies=11), NO_LIMIT, 1, 1),
        # 4 jobs of 2 train nodes, 5 in a group: at most 5 pins on a node, 8 / 5
        (table(replace(LIGHT, train_nodes=2), copies=4), Limits(max_group_size=5), 1, 2),
        # group size 1: everyone's own nodes
        (table(replace(LIGHT, rollout_nodes=3), copies=4), Limits(max_group_size=1), 12, 4),
        # pools may be bound by different things: rollout time 1.9, train DRAM 1.5
        (table(job(95, 1, sync_s=4, train_state_gb=1500.0), copies=2), NO_LIMIT, 2, 2),
        (table(), NO_LIMIT, 0, 0),
    ],
)
def test_by_hand(jobs: JobTable, limits: Limits, rollout: int, train: int) -> None:
    bound = volume(jobs, DEFAULT_CLUSTER, limits)
    assert (bound.rollout_nodes, bound.train_nodes) == (rollout, train)
    assert bound.usd_per_hour == pytest.approx(rollout * USD_ROLLOUT + train * USD_TRAIN)
    assert (bound.limits, bound.method) == (limits, VOLUME)


def test_host_dram_is_each_pool_s_own() -> None:
    """900 GB on nodes of 1000 GB is 0.9 a job; on train nodes of 1800 GB 0.5."""
    cluster = Cluster(
        rollout=NodeType(gpu=H20, host_dram_gb=1000.0),
        train=NodeType(gpu=H800, host_dram_gb=1800.0),
    )
    jobs = table(replace(LIGHT, rollout_state_gb=900.0, train_state_gb=900.0), copies=4)
    bound = volume(jobs, cluster, NO_LIMIT)
    assert (bound.rollout_nodes, bound.train_nodes) == (4, 2)


# --- round-off -----------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [3, 6, 7, 10, 49])
@pytest.mark.parametrize("nodes", [1, 7, 100])
def test_an_exact_filling_is_not_rounded_up(parts: int, nodes: int) -> None:
    """Shares of 1/parts and (parts - 1)/parts, ``parts x nodes`` times, in time and in DRAM."""
    count = parts * nodes
    timed = table(job(0.1, 0.1 * (parts - 1)), copies=count)
    bound = volume(timed, DEFAULT_CLUSTER, NO_LIMIT)
    assert (bound.rollout_nodes, bound.train_nodes) == (nodes, nodes * (parts - 1))
    heavy = replace(LIGHT, sync_s=1e6, rollout_state_gb=2000 / parts, train_state_gb=2000 / parts)
    bound = volume(table(heavy, copies=count), DEFAULT_CLUSTER, NO_LIMIT)
    assert (bound.rollout_nodes, bound.train_nodes) == (nodes, nodes)
    bound = volume(table(LIGHT, copies=count), DEFAULT_CLUSTER, Limits(max_group_size=parts))
    assert bound.rollout_nodes == max(nodes, math.ceil(count / 100))


@pytest.mark.parametrize("nodes", [1, 10, 1000])
def test_a_little_more_than_an_exact_filling_is_rounded_up(nodes: int) -> None:
    """Jobs of half a node each, and one of 1e-4 of a node."""
    jobs = table(*[job(1, 1)] * (2 * nodes), job(1e-4, 1 - 1e-4))
    assert volume(jobs, DEFAULT_CLUSTER, NO_LIMIT).rollout_nodes == nodes + 1


# --- running sums --------------------------------------------------------------------------


def random_job(rng: random.Random, name: str) -> Job:
    """A job that runs alone on the default cluster; phases of seconds to a quarter hour."""
    return Job(
        job_id=name,
        rollout_s=rng.uniform(10, 900),
        train_s=rng.uniform(10, 400),
        sync_s=rng.choice((0.0, rng.uniform(0, 60))),
        slo=rng.choice((1.0, rng.uniform(1, 2), rng.uniform(2, 6))),
        rollout_nodes=rng.choice((1, 1, 1, 2, 4)),
        train_nodes=rng.choice((1, 1, 1, 2)),
        rollout_state_gb=rng.uniform(0, 900),
        train_state_gb=rng.uniform(0, 900),
        rollout_switch_s=rng.choice((0.0, rng.uniform(0.9, 1.9))),
        train_switch_s=rng.choice((0.0, rng.uniform(4.1, 5.9))),
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.booleans(), max_size=60), st.integers(0, 5))
def test_running_sums_equal_the_bound_of_the_jobs_that_remain(
    seed: int, arrivals: list[bool], size: int
) -> None:
    """True: a job arrives; False: one of those present leaves, if any."""
    rng = random.Random(seed)
    limits = Limits(max_group_size=size)
    sums = VolumeSums(DEFAULT_CLUSTER, limits)
    present: list[Job] = []
    for number, arrives in enumerate(arrivals):
        if arrives or not present:
            present.append(random_job(rng, f"j{number}"))
            sums.add(present[-1])
        else:
            sums.remove(present.pop(rng.randrange(len(present))))
        expected = volume(JobTable.from_jobs(present), DEFAULT_CLUSTER, limits)
        assert sums.bound() == expected
        assert sums.usd_per_hour() == expected.usd_per_hour
    for one in present:
        sums.remove(one)
    assert (sums.bound().rollout_nodes, sums.bound().train_nodes) == (0, 0)


def test_running_sums_do_not_drift() -> None:
    """After 20,000 arrivals and departures of other jobs, three jobs still fill 2 nodes and 1."""
    rng = random.Random(5)
    sums = VolumeSums(DEFAULT_CLUSTER, NO_LIMIT)
    for one in table(job(100, 50), copies=3):
        sums.add(one)
    others = [random_job(rng, f"j{i}") for i in range(200)]
    for _ in range(100):
        for one in others:
            sums.add(one)
        rng.shuffle(others)
        for one in others:
            sums.remove(one)
    assert (sums.bound().rollout_nodes, sums.bound().train_nodes) == (2, 1)


# --- against plans -------------------------------------------------------------------------


@pytest.mark.parametrize("train_scaling", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
def test_no_valid_plan_is_below_the_bound(size: int, train_scaling: bool) -> None:
    """All jobs present at once, placed one after the other; every group passes the checker."""
    rng = random.Random(f"{size} {train_scaling}")
    limits, shared = Limits(max_group_size=size), 0
    for trial in range(25):
        jobs = JobTable.from_jobs([random_job(rng, f"j{i}") for i in range(2 + trial)])
        params = PlacerParams(train_scaling=train_scaling, skip_saturated=trial % 2 == 0)
        placer = Placer(limits=limits, params=params)
        for one in jobs:
            placer.place(one)
        groups = placer.groups()
        for group in groups:
            assert check_group(group.version(0.0, 3600.0), jobs, DEFAULT_CLUSTER, limits) == []
        shared += len(groups) < len(jobs)
        rollout = sum(len(group.rollout_nodes) for group in groups)
        train = sum(len(group.train_nodes) for group in groups)
        bound = volume(jobs, DEFAULT_CLUSTER, limits)
        assert bound.rollout_nodes <= rollout
        assert bound.train_nodes <= train
        cost = rollout * USD_ROLLOUT + train * USD_TRAIN
        assert bound.usd_per_hour <= cost * (1 + 1e-12)
        if size == 1:  # everyone's own nodes, which is the only plan
            assert (bound.rollout_nodes, bound.train_nodes) == (rollout, train)
    assert shared > 0 or size == 1


@pytest.mark.parametrize("copies", [2, 4, 6])
def test_the_bound_is_reached_where_jobs_fill_their_nodes(copies: int) -> None:
    """r = t, slo 1: two jobs fill one node of each kind, and no plan has fewer."""
    jobs = table(job(100, 100), copies=copies)
    placer = Placer(params=PlacerParams(skip_saturated=False))
    for one in jobs:
        placer.place(one)
    bound = volume(jobs, DEFAULT_CLUSTER, Limits())
    assert bound.rollout_nodes == bound.train_nodes == copies // 2
    cost = sum(
        DEFAULT_CLUSTER.usd_per_hour(len(g.rollout_nodes), len(g.train_nodes))
        for g in placer.groups()
    )
    assert bound.usd_per_hour == pytest.approx(cost)


# --- monotone ------------------------------------------------------------------------------

SETS = st.builds(
    lambda seed, n: [random_job(random.Random(seed + i), f"j{i}") for i in range(n)],
    st.integers(0, 2**32),
    st.integers(1, 25),
)


@settings(max_examples=150, deadline=None)
@given(SETS)
def test_a_tighter_group_size_never_lowers_the_bound(jobs: list[Job]) -> None:
    """From none (0) over 6 to 1; 1 is every job on its own nodes."""
    every = JobTable.from_jobs(jobs)
    bounds = [
        volume(every, DEFAULT_CLUSTER, Limits(max_group_size=size))
        for size in (0, *range(6, 0, -1))
    ]
    for one, tighter in pairwise(bounds):
        assert one.rollout_nodes <= tighter.rollout_nodes
        assert one.train_nodes <= tighter.train_nodes
        assert one.usd_per_hour <= tighter.usd_per_hour
    assert bounds[-1].rollout_nodes == sum(one.rollout_nodes for one in jobs)
    assert bounds[-1].train_nodes == sum(one.train_nodes for one in jobs)


@settings(max_examples=150, deadline=None)
@given(SETS, st.sampled_from([0, 2, 5]))
def test_what_relaxes_a_plan_never_raises_the_bound(jobs: list[Job], size: int) -> None:
    """A job less, a looser slo, more DRAM; node limits and switches do not enter."""
    limits = Limits(max_group_size=size)

    def usd(some: list[Job], cluster: Cluster = DEFAULT_CLUSTER, within: Limits = limits) -> float:
        return volume(JobTable.from_jobs(some), cluster, within).usd_per_hour

    bound = usd(jobs)
    assert usd(jobs[1:]) <= bound
    assert usd([replace(one, slo=1.5 * one.slo) for one in jobs]) <= bound
    roomy = Cluster(
        rollout=NodeType(gpu=H20, host_dram_gb=4000.0),
        train=NodeType(gpu=H800, host_dram_gb=2500.0),
    )
    assert usd(jobs, roomy) <= bound
    assert usd([replace(one, rollout_switch_s=99.0, train_switch_s=0.0) for one in jobs]) == bound
    bounded = replace(limits, max_rollout_nodes=4, max_train_nodes=2, max_rate=3)
    assert usd(jobs, within=bounded) == bound


@pytest.mark.parametrize(("rollout_usd", "train_usd"), [(0.0, 0.0), (0.0, 1.0), (2.0, 0.0)])
def test_prices(rollout_usd: float, train_usd: float) -> None:
    """4 jobs of 2/3 and 1/3 of a node: 3 and 2 nodes of 8 GPUs, whatever they cost."""
    cluster = Cluster(
        rollout=NodeType(gpu=replace(H20, usd_per_gpu_hour=rollout_usd)),
        train=NodeType(gpu=replace(H800, usd_per_gpu_hour=train_usd)),
    )
    bound = volume(table(job(100, 50), copies=4), cluster, NO_LIMIT)
    assert (bound.rollout_nodes, bound.train_nodes) == (3, 2)
    assert bound.usd_per_hour == 24 * rollout_usd + 16 * train_usd


# --- whole nodes ---------------------------------------------------------------------------------


def priced(rollout_usd: float, train_usd: float) -> Cluster:
    """Return a cluster of these prices per node of 8 GPUs, $/h."""
    return Cluster(
        rollout=NodeType(gpu=replace(H20, usd_per_gpu_hour=rollout_usd / 8)),
        train=NodeType(gpu=replace(H800, usd_per_gpu_hour=train_usd / 8)),
    )


@pytest.mark.parametrize(
    ("usd", "least", "expected"),
    [
        (0.0, (0, 0), 0.0),
        (0.0, (2, 1), 2 * 3 + 5),  # the counts alone
        (11.0, (2, 1), 11.0),  # met exactly: round-off must not add a node
        (11.5, (2, 1), 14.0),  # 3 rollout + 1 train; 2 + 2 cost 16
        (15.5, (2, 1), 16.0),  # 2 + 2; 4 + 1 cost 17
        (1.0, (0, 0), 3.0),
    ],
)
def test_a_bound_is_raised_to_a_price_of_whole_nodes(
    usd: float, least: tuple[int, int], expected: float
) -> None:
    assert least_fleet_usd(usd, *least, priced(3.0, 5.0)) == pytest.approx(expected)


def test_free_nodes_are_no_price_to_reach() -> None:
    """7 $/h of train nodes at 5 are two of them; of free nodes only, nothing."""
    assert least_fleet_usd(7.0, 1, 0, priced(0.0, 5.0)) == pytest.approx(10.0)
    assert least_fleet_usd(7.0, 1, 1, priced(0.0, 0.0)) == 0.0


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 20),
    st.integers(0, 20),
    st.floats(0.0, 900.0),
    st.booleans(),
)
def test_whole_nodes_by_trying_all(
    x: int, y: int, least_x: int, least_y: int, any_usd: float, exact: bool
) -> None:
    """The cheapest attainable price at least the bound, or that of the counts."""
    usd = DEFAULT_CLUSTER.usd_per_hour(x, y) if exact else any_usd
    found = least_fleet_usd(usd, least_x, least_y, DEFAULT_CLUSTER)
    prices = [
        DEFAULT_CLUSTER.usd_per_hour(a, b)
        for a in range(least_x, least_x + 180)
        for b in range(least_y, least_y + 65)
    ]
    assert found <= min(price for price in prices if price >= usd * (1 - 1e-12)) + 1e-9
    assert any(abs(price - found) < 1e-6 for price in prices)
    assert found >= usd * (1 - 1e-6) - 1e-3
