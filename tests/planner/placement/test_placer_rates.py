"""The placer with several iterations a period: rates by hand, random lives, accounts, filter."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from builders import PAIR_USD, job_of, options_of, random_job, table_of, violations
from instances.errors import UnsupportedError
from instances.generate import production
from instances.jobs import Job
from instances.plan import JobPlacement, Limits
from models.group.period import construct, interleaved
from models.group.rate_bound import pair_bound_s
from models.group.rate_vectors import rate_vectors
from models.group.self_timed import interleavings, self_timed
from models.problem.group_shape import GroupShape, lower_bound_s
from placer_cases import placer_of
from planner.placement.group_state import GroupState
from planner.placement.placer import Placer
from planner.policies.replay_result import JobRecord
from planner.replay.iterations import iteration_seconds
from planner.replay.replaying import Convention, replay

# T = 300, D = 360 and T = 100, D = 120: one period of 360 s holds one iteration of the long job
# and three of the short one, so max_rate 3 is what they need. Long leaves room on each node.
LONG = job_of("long", 30, 20, 1.2, sync_s=250, duration_s=3000)
SHORT = job_of("short", 10, 10, 1.2, sync_s=80, duration_s=3000)


def rated(*jobs: Job, max_rate: int, **params: object) -> Placer:
    return placer_of(*jobs, limits=Limits(max_group_size=5, max_rate=max_rate), **params)


def mean_s(group: GroupState) -> list[float]:
    return [group.period_s / rate for rate in group.rates]


# --- By hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(LONG, SHORT), (SHORT, LONG)])
@pytest.mark.parametrize("max_rate", [1, 2, 3, 4])
def test_a_short_job_joins_a_long_one_only_with_three_iterations(
    order: tuple[Job, Job], max_rate: int
) -> None:
    """C is at least T = 300 of the long job and at most max_rate x 120 of the short one."""
    placer = rated(order[0], max_rate=max_rate)
    decision = placer.place(order[1])
    if max_rate < 3:
        assert decision.kind == "isolated"
        return
    assert (decision.kind, decision.usd_per_hour) == ("direct", 0)
    group = decision.group
    assert group.rates == tuple({"long": 1, "short": 3}[job.job_id] for job in order)
    assert 300 <= group.period_s <= 360 * (1 + 1e-9)
    assert violations(group, limits=placer.limits) == []


def test_a_group_gets_new_rates_for_all_when_a_job_joins() -> None:
    """Two jobs of T = 100 share at rate 1; with the long job both need three iterations."""
    twin = job_of("twin", 12, 10, 1.2, sync_s=78)
    placer = rated(SHORT, twin, max_rate=3)
    assert placer.group_of("twin").rates == (1, 1)
    group = placer.place(LONG).group
    assert group.rates == (3, 3, 1)
    assert violations(group, limits=placer.limits) == []


@pytest.mark.parametrize(
    ("leaves", "stays", "period_s"), [("long", "short", 100), ("short", "long", 300)]
)
def test_the_last_one_runs_as_if_alone(leaves: str, stays: str, period_s: float) -> None:
    """Alone: one iteration per period of T_j, on the nodes it has."""
    placer = rated(LONG, SHORT, max_rate=3)
    before = placer.group_of(stays)
    pins = dict(zip([j.job_id for j in before.jobs], before.rollout_pins, strict=True))[stays]
    left = placer.remove(leaves)
    assert left is not None
    assert (left.rates, left.period_s) == ((1,), pytest.approx(period_s))
    assert left.rollout_pins == (pins,)


def test_rates_do_not_make_room_for_work_that_is_not_there() -> None:
    """Train 60 of every 120 s and 200 of every 360: 60/120 + 200/360 > 1, at any rates."""
    busy = job_of("busy", 10, 60, 1.2, sync_s=30)
    heavy = job_of("heavy", 30, 200, 1.2, sync_s=70)
    assert rated(heavy, max_rate=8).place(busy).kind == "isolated"


def test_a_gang_joins_at_rates_with_new_rollout_nodes() -> None:
    """The long gang brings one node more than there is: one is shared, one is bought."""
    gang = job_of("gang", 30, 20, 1.2, sync_s=250, rollout_nodes=2)
    placer = rated(SHORT, max_rate=3)
    decision = placer.place(gang)
    assert decision.kind == "rollout_scaled"
    assert decision.group.rates == (3, 1)
    assert len(decision.group.rollout_nodes) in (2, 3)  # one shared, or none
    assert violations(decision.group, limits=placer.limits) == []


def test_switches_count_in_every_iteration() -> None:
    """Three chains of 100 + 5 + 5 s fit in 3 x 120; with 11 + 11 s they do not: 366 > 360."""
    for seconds, kind in ((5.0, "direct"), (11.0, "isolated")):
        short = job_of(
            "short", 10, 10, 1.2, sync_s=80, rollout_switch_s=seconds, train_switch_s=seconds
        )
        placer = rated(LONG, max_rate=3)
        decision = placer.place(short)
        if kind == "isolated":  # the train switch alone, 111 s, is within 120: a new rollout node
            kind = "rollout_scaled"
        assert decision.kind == kind
        assert violations(decision.group, limits=placer.limits) == []


@pytest.mark.parametrize("max_rate", [1, 3])
def test_per_iteration_prices_the_mean_iteration_time(max_rate: int) -> None:
    """Sharing one pair: $/h x mean of C / k, against each on its own pair at T_j; the mean is
    (300 + 100) / 2 where nobody waits, so sharing costs half of what two pairs do.
    """
    placer = rated(LONG, max_rate=max_rate, objective="per-iteration")
    decision = placer.place(SHORT)
    assert decision.kind == ("direct" if max_rate == 3 else "isolated")
    if max_rate == 3:
        group = decision.group
        assert group.iteration_s == pytest.approx(np.mean(mean_s(group)))
        assert group.iteration_s >= 200 * (1 - 1e-9)


def test_train_scaling_is_refused_with_rates() -> None:
    """Rates are not chosen for groups that would buy train nodes; without rates it is taken."""
    assert rated(LONG, max_rate=1, train_scaling=True).group_of("long").rates == (1,)
    with pytest.raises(UnsupportedError, match="max_rate 1 with train_scaling, got 2"):
        rated(LONG, max_rate=2, train_scaling=True)


# --- The filter loses nothing ----------------------------------------------------------------


def possible(group: GroupState, job: Job, pins: tuple[int, int], max_rate: int) -> bool:
    """Whether some rates pass all bounds with the job on one existing node of each pool."""
    jobs = (*group.jobs, job)
    rollout = (*group.rollout_pins, (pins[0],))
    train = (*group.train_pins, (pins[1],))
    for held, limit in ((rollout, "rollout_state_gb"), (train, "train_state_gb")):
        for node in {held[-1][0]}:
            gb = sum(getattr(j, limit) for j, p in zip(jobs, held, strict=True) if node in p)
            if gb > 2000:
                return False
    shape = GroupShape.of(jobs, rollout, train)
    chains = [shape.own_s(j) for j in range(len(jobs))]
    for period, rates in rate_vectors([j.deadline_s for j in jobs], chains, max_rate):
        at = GroupShape.of(jobs, rollout, train, rates)
        if max(lower_bound_s(at), pair_bound_s(at)) <= period:
            return True
    return False


@pytest.mark.parametrize("max_rate", [2, 4])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("modes", [("sync",), ("sync", "one-step")])
def test_no_group_that_bounds_admit_is_left_out(
    seed: int, max_rate: int, modes: tuple[str, ...]
) -> None:
    rng = random.Random(seed)
    placer = rated(max_rate=max_rate)
    seen = 0
    for i in range(30):
        job = random_job(rng, f"j{i}", mode=modes[i % len(modes)])
        if job.rollout_nodes == job.train_nodes == 1:
            slates = {s.kind: set(s.slots.tolist()) for s in placer._finder.slates(job)}
            for group in placer.groups():
                nodes = itertools.product(group.rollout_nodes, group.train_nodes)
                if len(group.jobs) < 5 and any(
                    possible(group, job, pins, max_rate) for pins in nodes
                ):
                    slot = placer._fleet.slot_of[group.jobs[0].job_id]
                    assert slot in slates[0]
                    assert slot in slates[1]
                    seen += 1
        placer.place(job)
    assert seen > (4 if len(modes) == 1 else 2)


# --- Savings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5])
def test_gangs_of_any_width_are_placed_at_rates(size: int) -> None:
    """Groups of many nodes, whose tables grow by themselves; every group is valid."""
    limits = Limits(max_group_size=size, max_rate=4)
    placer = Placer(limits=limits)
    for job in production(n_jobs=80, seed=1, gangs=True, concurrent=True):
        placer.place(job)
    groups = placer.groups()
    assert [violations(group, limits=limits) for group in groups] == [[]] * len(groups)
    assert any(max(group.rates) > 1 and len(group.rollout_nodes) > 5 for group in groups)


def test_rates_above_one_occur_and_save_nodes() -> None:
    """On 60 random jobs at once; fewer $/h than strict, since short and long jobs meet."""
    usd = {}
    for max_rate in (1, 4):
        rng = random.Random(3)
        placer = rated(*(random_job(rng, f"j{i}") for i in range(60)), max_rate=max_rate)
        usd[max_rate] = sum(
            placer.cluster.usd_per_hour(len(g.rollout_nodes), len(g.train_nodes))
            for g in placer.groups()
        )
        assert (max(k for g in placer.groups() for k in g.rates) > 1) == (max_rate > 1)
    assert usd[4] < usd[1]


# --- Accounts --------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", ["work", "wallclock"])
def test_a_replay_counts_mean_iteration_times(convention: Convention) -> None:
    """Nobody waits: C = 300 holds 1 + 3 iterations, so 3,000 s hold 10 + 30 of them, on one node
    of each kind. Busy per period: rollout 30 + 3 x 10, train 20 + 3 x 10 of 300 s.
    """
    result = replay(
        table_of(LONG, SHORT),
        "weave",
        options_of(limits=Limits(max_group_size=5, max_rate=3)),
        convention=convention,
    )
    long, short = result.records
    assert [r.worst_iteration_s for r in result.records] == pytest.approx([300, 100])
    assert (long.iterations, short.iterations) == pytest.approx((10, 30))
    assert (long.elapsed_s, short.elapsed_s) == pytest.approx((3000, 3000))
    assert result.usd_total == pytest.approx(PAIR_USD * 3000 / 3600)
    assert result.idle_fraction == pytest.approx({"rollout": 1 - 60 / 300, "train": 1 - 50 / 300})
    assert result.slo_attainment == 1
    assert result.checked


def test_worst_single_iteration_of_a_plan() -> None:
    """The largest over versions and jobs, found again in the plan's own starts."""
    rng = random.Random(1)
    jobs = table_of(
        *(
            random_job(
                rng, f"j{i}", arrival_s=float(10 * i), duration_s=float(rng.randint(50, 900))
            )
            for i in range(40)
        )
    )
    result = replay(jobs, "weave", options_of(limits=Limits(max_group_size=5, max_rate=4)))
    assert result.plan is not None
    deadline = {job.job_id: job.deadline_s for job in jobs}
    worst: dict[str, float] = dict.fromkeys(deadline, 0.0)
    for version in result.plan.groups:
        for placement in version.placements:
            starts = [rollout for rollout, _ in placement.starts_s]
            starts.append(starts[0] + version.period_s)
            longest = max(np.diff(starts)) / deadline[placement.job_id]
            worst[placement.job_id] = max(worst[placement.job_id], longest)
    assert result.worst_single_iteration == pytest.approx(max(worst.values()))
    assert result.worst_single_iteration > 1.001  # this trace has one: or nothing is shown
    assert result.jobs_with_late_iterations == sum(w > 1 + 1e-6 for w in worst.values())
    assert result.slo_attainment == 1  # the mean holds all the same


def test_single_iterations_by_hand() -> None:
    """Rollouts at 0, 100 and 250 of 360 s: 100, 150 and 110 s, of which 120 may be on average."""
    starts = ((0.0, 10.0), (100.0, 120.0), (250.0, 260.0))
    placement = JobPlacement(
        job_id="short", rollout_pins=(0,), train_pins=(0,), starts_s=starts, rate=3
    )
    assert iteration_seconds(placement, 360) == (100, 150, 110)
    alone = JobPlacement(
        job_id="a", rollout_pins=(0,), train_pins=(0,), starts_s=((5.0, 9.0),), rate=1
    )
    assert iteration_seconds(alone, 70) == (70,)
    record = JobRecord(SHORT, worst_iteration_s=120, worst_single_s=150)
    assert record.worst_within_slo
    assert not record.single_within_slo


# --- Interleavings ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_gang_of_twin_nodes_is_as_one_node(seed: int) -> None:
    """Each node twice over: the same starts, by the way that knows gangs."""
    rng = random.Random(seed)
    n = rng.randint(2, 4)
    phases = [tuple(float(rng.randint(1, 20)) for _ in range(n)) for _ in range(3)]
    rates = tuple(rng.randint(1, 3) for _ in range(n))
    pins = [tuple((rng.randint(0, 1),) for _ in range(n)) for _ in range(2)]
    twins = [tuple((2 * node, 2 * node + 1) for (node,) in pool) for pool in pins]
    one = GroupShape(*phases, *pins, rates)
    two = GroupShape(*phases, *twins, rates)
    for order in interleavings(one, 4):
        assert self_timed(one, order) == self_timed(two, order)


@pytest.mark.parametrize("seed", range(20))
def test_interleavings_within_a_limit(seed: int) -> None:
    """What they find is within the limit, and the full construction does not miss it."""
    rng = random.Random(seed)
    n = rng.randint(2, 3)
    phases = [tuple(float(rng.randint(1, 20)) for _ in range(n)) for _ in range(3)]
    rates = tuple(rng.randint(1, 3) for _ in range(n))
    shape = GroupShape(*phases, ((0,),) * n, ((0,),) * n, rates)
    bound = lower_bound_s(shape)
    limit = 1.15 * bound
    quick = interleaved(shape, bound, limit, 2)
    if quick is not None:
        assert quick.period_s <= limit * (1 + 1e-9)
        assert construct(shape, limit_s=limit, orders=2, refine=0) is not None
