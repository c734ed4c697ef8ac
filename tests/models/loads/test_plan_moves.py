"""The moves of the load layer keep its state whole and its plans feasible by loads."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import Ticking
from instances.generate import production
from instances.plan import Limits
from models.loads.circle_search import schedule_on_circle
from models.loads.load_groups import GroupScheduler
from models.loads.load_plan import LoadGroup, LoadPlan, components, is_for, load_data, node_values
from models.loads.load_state import below
from models.loads.plan_moves import Annealing
from models.problem.compiled import COMPILED, plain
from models.problem.group_shape import GroupShape
from models.problem.options import Deadline, OutOfTimeError
from models.problem.snapshot import FleetCaps, Snapshot, plan_of, solo_group
from small_snapshots import MIXES, full_jobs, jobs_of, random_jobs, snapshot_of

SINGLE = ("open-shop", "sync", "switches", "states")


def never() -> float:
    return 0.0


def alone(n: int) -> list[LoadGroup]:
    return [((j,), (0,), (0,)) for j in range(n)]


def require_whole(plan: LoadPlan, snapshot: Snapshot, groups: list[LoadGroup]) -> None:
    """Require every constraint of the module's docstring of some groups, from scratch."""
    jobs, limits, caps = snapshot.jobs, snapshot.limits, snapshot.caps
    assert sorted(j for members, _, _ in groups for j in members) == list(range(len(jobs)))
    totals = [0, 0]
    for members, rollout, train in groups:
        period = min(jobs[j].deadline_s for j in members) * (1 + 1e-9)
        pays: dict[int, set[str]] = {j: set() for j in members}
        for pool, nodes in enumerate((rollout, train)):
            totals[pool] += len(set(nodes))
            most = (limits.max_rollout_nodes, limits.max_train_nodes)[pool]
            assert most is None or len(set(nodes)) <= most
            for node in set(nodes):
                held = [j for j, n in zip(members, nodes, strict=True) if n == node]
                state = plan.data.state_gb[pool, held].sum()
                assert state <= plan.data.dram_gb[pool] * (1 + 1e-12)
                if len(held) > 1:
                    assert plan.data.paid_s[pool, held].sum() <= period * (1 + 1e-12)
                    for j in held:
                        pays[j].add(("rollout", "train")[pool])
        need = [jobs[j].paid_s(**dict.fromkeys(paid, True)) for j, paid in pays.items()]
        assert max(need) <= period * (1 + 1e-12)
        if limits.max_group_size:
            assert len(members) <= limits.max_group_size
    assert caps.allow(*totals)


def require_consistent(plan: LoadPlan) -> None:
    """Require that what the state keeps is what a fresh state of the same plan has."""
    fleet = plan.fleet
    fresh = LoadPlan(plan.data, plan.groups(best=False), 0).fleet
    n = len(plan.data.order)
    assert fleet.used.tolist() == fresh.used.tolist()
    for j in range(n):
        g, h = fleet.group[j], fresh.group[j]
        assert fleet.g_count[g] == fresh.g_count[h] == (fleet.group == g).sum()
        assert fleet.g_period[g] == fresh.g_period[h]
        assert fleet.g_top[g] == pytest.approx(fresh.g_top[h], rel=1e-12)
        for p in range(2):
            assert fleet.g_bins[p, g] == fresh.g_bins[p, h]
            b, c = fleet.bin[p, j], fresh.bin[p, j]
            assert fleet.b_group[p, b] == g
            assert fleet.b_count[p, b] == fresh.b_count[p, c] == (fleet.bin[p] == b).sum()
            for kept, anew in (
                (fleet.b_load, fresh.b_load),
                (fleet.b_state, fresh.b_state),
                (fleet.b_value, fresh.b_value),
            ):
                assert kept[p, b] == pytest.approx(anew[p, c], rel=1e-12, abs=1e-12)
    for p in range(2):  # what is not in use is free, once
        free = set(fleet.free_bins[p, fleet.used[p] :].tolist())
        assert free == set(range(n)) - set(fleet.bin[p].tolist())
    free = set(fleet.free_groups[fleet.used[2] :].tolist())
    assert free == set(range(n)) - set(fleet.group.tolist())


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 14),
    mix=st.sampled_from(SINGLE),
    size=st.sampled_from([0, 2, 3, 5]),
    nodes=st.sampled_from([(None, None), (2, None), (None, 1), (2, 2)]),
    capped=st.booleans(),
)
def test_state_is_whole_after_many_moves(
    seed: int, n: int, mix: str, size: int, nodes: tuple[int | None, int | None], capped: bool
) -> None:
    rng = random.Random(seed)
    jobs = random_jobs(rng, n, MIXES[mix], together=bool(seed % 2))
    caps = (n, n) if capped else (None, None)
    snapshot = snapshot_of(jobs, caps=caps, size=size, nodes=nodes)
    assert is_for(snapshot)
    fits = [
        job.rollout_state_gb <= snapshot.cluster.rollout.host_dram_gb
        and job.train_state_gb <= snapshot.cluster.train.host_dram_gb
        for job in snapshot.jobs
    ]
    if not all(fits):
        return
    plan = LoadPlan(load_data(snapshot, 6), alone(n), seed)
    price = plan.usd
    for heat in (30.0, 3.0, 0.01):
        plan.anneal(600, Annealing(heat, 0.7, 5, 0 if size else 20))
        require_consistent(plan)
        require_whole(plan, snapshot, plan.groups(best=False))
        require_whole(plan, snapshot, plan.groups())
        assert plan.best_usd <= min(price, plan.usd) + 1e-9
    before = plan.usd, plan.best_usd
    plan.split()
    assert (plan.usd, plan.best_usd) == before
    require_consistent(plan)
    require_whole(plan, snapshot, plan.groups(best=False))


def test_two_jobs_that_pay_two_switches_are_refused() -> None:
    """T = 10 and 10, C = 14: one switch of 3 s in one pool fits, one in each does not.

    Together on one node of each pool both jobs' iterations would take 16 s.
    """
    jobs = jobs_of(
        [3, 3], [3, 3], [4, 4], deadline_s=14, rollout_switch_s=[3, 3], train_switch_s=[3, 3]
    )
    snapshot = snapshot_of(jobs)
    plan = LoadPlan(load_data(snapshot, 5), alone(2), 0)
    plan.anneal(5_000, Annealing(0.01, 0.5, 1, 50))
    shared = [len(set(nodes)) == 1 for _, *pools in plan.groups() for nodes in pools]
    # cheapest: a train node (the dearer) for both, rollouts apart
    assert plan.best_usd == pytest.approx(snapshot.usd_per_hour(2, 1))
    assert sorted(shared) == [False, True]


def test_a_full_node_is_found_by_exchange() -> None:
    """Rollouts 5, 5, 4, 4, 3, 3 fill two nodes of 12 only as 5 + 4 + 3 twice.

    From 5 + 5 and 4 + 4 + 3 and 3 no job can join another node: jobs are exchanged.
    """
    jobs = jobs_of([5, 5, 4, 4, 3, 3], [1, 1, 1, 1, 1, 1], deadline_s=12)
    snapshot = snapshot_of(jobs)
    start: list[LoadGroup] = [((0, 1, 2, 3, 4, 5), (0, 0, 1, 1, 1, 2), (0, 0, 0, 0, 0, 0))]
    plan = LoadPlan(load_data(snapshot, 6), start, 0)
    assert plan.usd == pytest.approx(snapshot.usd_per_hour(3, 1))
    plan.anneal(2_000, Annealing(0.1, 0.7, 5, 0))
    assert plan.best_usd == pytest.approx(snapshot.usd_per_hour(2, 1))


def test_caps_are_never_exceeded_on_the_way() -> None:
    """With caps at the start's own nodes no bin is ever opened beyond them."""
    jobs = jobs_of([4, 4, 3, 3], [2, 2, 2, 2], deadline_s=12)
    snapshot = snapshot_of(jobs, caps=(3, 2))
    start: list[LoadGroup] = [((0, 1), (0, 1), (0, 0)), ((2, 3), (0, 0), (0, 0))]
    plan = LoadPlan(load_data(snapshot, 4), start, 0)
    for _ in range(200):
        plan.anneal(20, Annealing(100.0, 0.5, 3, 10))
        assert plan.fleet.used[0] <= 3
        assert plan.fleet.used[1] <= 2


@pytest.mark.parametrize("n", [1, 2, 3, 1000])
def test_draws_are_even(n: int) -> None:
    rng = np.random.SeedSequence(5).generate_state(4).astype(np.int64)
    drawn = [below(rng, n) for _ in range(3000)]
    assert min(drawn) >= 0
    assert max(drawn) < n
    if n > 1:  # a mean of 3,000 even draws lies within five of its standard deviations
        mean, deviation = (n - 1) / 2, (((n * n - 1) / 12) / 3000) ** 0.5
        assert abs(np.mean(drawn) - mean) < 5 * deviation


TWIN = """
import numpy as np
from instances.generate import production
from models.loads.circle_search import schedule_on_circle
from models.problem.compiled import COMPILED
from models.problem.group_shape import GroupShape
from models.loads.load_plan import LoadPlan, load_data
from models.loads.plan_moves import Annealing
from models.problem.snapshot import Snapshot

snapshot = Snapshot(table=production(n_jobs=30, seed=1))
plan = LoadPlan(load_data(snapshot, 6), [((j,), (0,), (0,)) for j in range(30)], 3)
made = plan.anneal(4000, Annealing(0.1, 0.7, 10, 0))
print(made, plan.usd.hex(), plan.best_usd.hex(), plan.fleet.rng.tolist(), plan.groups())
for members, rollout, train in plan.groups():
    jobs = [snapshot.jobs[j] for j in members]
    shape = GroupShape.of(jobs, [(r,) for r in rollout], [(t,) for t in train])
    found = schedule_on_circle(shape, min(job.deadline_s for job in jobs), steps=50, seed=2)
    print(None if found is None else found.starts_s)
print(COMPILED)
"""


@pytest.mark.skipif(not COMPILED, reason="numba is not installed: there is one twin only")
def test_compiled_and_plain_are_twins() -> None:
    """All of it without numba, in a process of its own: the same bits come out."""
    out = []
    for disable in ("0", "1"):
        env = {**os.environ, "NUMBA_DISABLE_JIT": disable}
        ran = subprocess.run(
            [sys.executable, "-c", TWIN], env=env, capture_output=True, text=True, check=True
        )
        out.append(ran.stdout.rsplit(maxsplit=1))
    assert out[0][1] == "True"
    assert out[1][1] == "False"
    assert out[0][0] == out[1][0]
    assert plain(below) is not below


def test_values_of_a_node_are_at_most_one() -> None:
    """A node within its deadline and DRAM holds values of at most 1: both shares are."""
    snapshot = Snapshot(table=production(n_jobs=60, seed=4), limits=Limits(max_group_size=0))
    plan = LoadPlan(load_data(snapshot, 20), alone(60), 0)
    plan.anneal(50_000, Annealing(0.1, 0.7, 20, 2))
    values = node_values(snapshot)
    for members, rollout, train in plan.groups():
        for pool, nodes in enumerate((rollout, train)):
            for node in set(nodes):
                held = [j for j, n in zip(members, nodes, strict=True) if n == node]
                assert values[pool, held].sum() <= 1 + 1e-9


def test_components_are_groups_of_their_own() -> None:
    """0 and 2 share a rollout node, 2 and 5 a train node; 3 and 4 share one; 7 is alone."""
    group: LoadGroup = ((0, 2, 3, 4, 5, 7), (0, 0, 1, 2, 3, 4), (0, 1, 2, 2, 1, 3))
    assert components(group) == [
        ((0, 2, 5), (0, 0, 1), (0, 1, 1)),
        ((3, 4), (0, 1), (0, 0)),
        ((7,), (0,), (0,)),
    ]


# --- schedules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_schedules_of_full_nodes_pass_the_checker(seed: int) -> None:
    """Nodes filled to the last second, schedules by ejection: whatever is found is valid."""
    rng = random.Random(seed)
    found = 0
    for _ in range(20):
        jobs = full_jobs(rng, 5, slack_s=4)
        snapshot = snapshot_of(jobs)
        scheduler = GroupScheduler(snapshot, steps=2_000, seed=seed, deadline=Deadline(never, None))
        group = scheduler.placed(((0, 1, 2, 3, 4), (0,) * 5, (0,) * 5))
        if group is not None:
            found += 1
            assert plan_of(snapshot, [group], "test").usd_total == snapshot.usd_per_hour(1, 1)
    assert found > 0


def test_no_schedule_where_none_exists() -> None:
    """The sync counterexample: loads say 11, least period 11.5."""
    jobs = jobs_of([5, 5, 1], [2, 3, 6], [2, 3, 0], deadline_s=11)
    pins = [(0,)] * 3
    shape = GroupShape.of(jobs, pins, pins)
    assert schedule_on_circle(shape, 11.0, steps=3_000) is None
    assert schedule_on_circle(shape, 11.5 * (1 + 1e-9), steps=3_000) is not None


def test_a_group_without_schedule_is_given_up_at_the_deadline() -> None:
    """The same three jobs: no placement will do, and the clock is read on the way."""
    snapshot = snapshot_of(jobs_of([5, 5, 1], [2, 3, 6], [2, 3, 0], deadline_s=11))
    late = Deadline(Ticking(), 5.0)
    scheduler = GroupScheduler(snapshot, steps=20_000, seed=0, deadline=late)
    with pytest.raises(OutOfTimeError):
        scheduler.placed(((0, 1, 2), (0, 0, 0), (0, 0, 0)))


def test_a_group_without_schedule_is_repaired() -> None:
    """The same three jobs as one group: one gets a rollout node of its own, the cheaper node."""
    jobs = jobs_of([5, 5, 1], [2, 3, 6], [2, 3, 0], deadline_s=11)
    snapshot = snapshot_of(jobs)
    scheduler = GroupScheduler(snapshot, steps=1_000, seed=0, deadline=Deadline(never, None))
    loads, groups = scheduler.repaired([((0, 1, 2), (0, 0, 0), (0, 0, 0))])
    assert [group[0] for group in scheduler.failed] == [(0, 1, 2)]
    assert len(loads) == len(groups) == 1
    assert plan_of(snapshot, groups, "test").usd_total == pytest.approx(snapshot.usd_per_hour(2, 1))


def test_repair_puts_a_job_where_it_buys_nothing() -> None:
    """Beside the three jobs a fourth, (1, 1) with the same deadline: its nodes take one."""
    jobs = jobs_of([5, 5, 1, 1], [2, 3, 6, 1], [2, 3, 0, 0], deadline_s=11)
    snapshot = snapshot_of(jobs)
    scheduler = GroupScheduler(snapshot, steps=1_000, seed=0, deadline=Deadline(never, None))
    _, groups = scheduler.repaired([((0, 1, 2), (0, 0, 0), (0, 0, 0)), ((3,), (0,), (0,))])
    assert plan_of(snapshot, groups, "test").usd_total == pytest.approx(snapshot.usd_per_hour(2, 2))


def test_gangs_and_rates_are_not_for_the_load_layer() -> None:
    gang = jobs_of([1, 1], [1, 1], rollout_nodes=[2, 1])
    assert not is_for(snapshot_of(gang))
    single = jobs_of([1, 1], [1, 1])
    assert is_for(snapshot_of(single))
    assert not is_for(Snapshot.of(single, limits=Limits(max_rate=2)))
    assert is_for(Snapshot.of(single, caps=FleetCaps(max_rollout_nodes_total=1)))
    assert solo_group(snapshot_of(single), 0).nodes == (1, 1)
