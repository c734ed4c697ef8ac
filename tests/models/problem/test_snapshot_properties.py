"""What holds for every least cost, whatever the snapshot: properties of exact optima.

Costs are those of the exhaustive method, which test_methods_agree.py holds the others to. No
plan at all counts as an infinite cost. A greedy placer breaks some of these.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import cluster_of
from instances.errors import CheckError
from instances.jobs import Job
from instances.plan import Limits
from models.bounds.volume import volume
from models.exact.exhaustive import solve
from models.group.period import construct
from models.problem.group_shape import GroupShape, Pins
from models.problem.options import SolveOptions
from models.problem.result import Termination
from models.problem.snapshot import FleetCaps, PlacedGroup, Snapshot, placed, plan_of, solo_group
from planner.snapshot.solving import warm_start
from small_snapshots import FIVE_FRONT, MIXES, random_snapshot, snapshot_of

SETTINGS: Final = settings(max_examples=150, deadline=None, derandomize=True)
OPTIONS: Final = SolveOptions()
#: Costs are sums of few prices; equal fleets may differ by their order of addition.
ROUND_OFF_USD: Final = 1e-6


def least(snapshot: Snapshot) -> float:
    """Return the least cost, $/h; infinite where no plan exists."""
    result = solve(snapshot, OPTIONS)
    if result.termination is Termination.INFEASIBLE:
        return inf
    assert result.termination is Termination.OPTIMAL
    assert result.usd_per_hour is not None
    return result.usd_per_hour


def no_dearer(first: float, second: float) -> bool:
    return first <= second + ROUND_OFF_USD


# --- snapshots --------------------------------------------------------------------------------

SECONDS: Final = st.integers(1, 12).map(lambda x: x / 2)


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    """Few values, so that nodes are often full and deadlines met to the second."""
    return Job(
        job_id=f"j{number}",
        rollout_s=draw(SECONDS),
        train_s=draw(SECONDS),
        sync_s=draw(st.sampled_from((0.0, 0.5, 2.0))),
        slo=draw(st.sampled_from((1.0, 1.5, 2.0, 3.0, 6.0))),
        rollout_nodes=draw(st.sampled_from((1, 1, 1, 2))),
        train_nodes=draw(st.sampled_from((1, 1, 1, 2))),
        rollout_state_gb=draw(st.sampled_from((0.0, 0.0, 500.0, 1000.0, 1500.0))),
        train_state_gb=draw(st.sampled_from((0.0, 0.0, 500.0, 1000.0, 1500.0))),
        rollout_switch_s=draw(st.sampled_from((0.0, 0.0, 0.5, 2.0))),
        train_switch_s=draw(st.sampled_from((0.0, 0.0, 0.5, 2.0))),
    )


@st.composite
def snapshots(draw: st.DrawFn, least_jobs: int = 1) -> Snapshot:
    """Up to five jobs, with limits of a group and caps of the fleet that may bind."""
    n = draw(st.integers(least_jobs, 5))
    return Snapshot.of(
        [draw(jobs(number)) for number in range(n)],
        limits=replace(
            Snapshot.of([]).limits,
            max_group_size=draw(st.sampled_from((0, 2, 3, 5))),
            max_rollout_nodes=draw(st.sampled_from((None, None, None, 2, 3))),
            max_train_nodes=draw(st.sampled_from((None, None, None, 2, 3))),
        ),
        caps=FleetCaps(
            max_rollout_nodes_total=draw(st.sampled_from((None, None, None, 2, 3, 5))),
            max_train_nodes_total=draw(st.sampled_from((None, None, None, 2, 3, 5))),
        ),
    )


def with_jobs(snapshot: Snapshot, changed: Sequence[Job]) -> Snapshot:
    return Snapshot.of(changed, snapshot.cluster, snapshot.limits, snapshot.caps)


# --- no valid plan is cheaper -----------------------------------------------------------------


def random_groups(snapshot: Snapshot, rng: random.Random) -> list[PlacedGroup]:
    """Return random sets of jobs on random pins with a constructed schedule; where one breaks a
    rule, its jobs alone."""
    members = list(range(len(snapshot)))
    rng.shuffle(members)
    out: list[PlacedGroup] = []
    while members:
        size = rng.randint(1, len(members))
        chosen, members = sorted(members[:size]), members[size:]
        group = _random_group(snapshot, chosen, rng)
        out += [group] if group else [solo_group(snapshot, member) for member in chosen]
    return out


def _random_group(
    snapshot: Snapshot, members: Sequence[int], rng: random.Random
) -> PlacedGroup | None:
    chosen = [snapshot.jobs[i] for i in members]
    rollout = _random_pins([job.rollout_nodes for job in chosen], rng)
    train = _random_pins([job.train_nodes for job in chosen], rng)
    shape = GroupShape.of(chosen, rollout, train)
    found = construct(shape, limit_s=min(job.deadline_s for job in chosen))
    if found is None:
        return None
    group = placed(members, (rollout, train), found)
    alone = replace(snapshot, table=snapshot.table.take(members), caps=FleetCaps())
    try:
        plan_of(alone, [replace(group, members=tuple(range(len(members))))], "random")
    except CheckError:  # DRAM, or a limit of a group
        return None
    return group


def _random_pins(widths: Sequence[int], rng: random.Random) -> list[Pins]:
    nodes = range(rng.randint(max(widths), sum(widths)))
    pins = [tuple(sorted(rng.sample(nodes, width))) for width in widths]
    number = {node: i for i, node in enumerate(sorted({x for each in pins for x in each}))}
    return [tuple(number[node] for node in each) for each in pins]


def plan_usd(snapshot: Snapshot, groups: Sequence[PlacedGroup]) -> float:
    """Return the cost of a plan; infinite where it breaks DRAM, a limit or a cap."""
    try:
        return plan_of(snapshot, groups, "random").usd_total
    except CheckError:
        return inf


@SETTINGS
@given(snapshots(), st.integers(0, 2**32))
def test_no_valid_plan_costs_less(snapshot: Snapshot, seed: int) -> None:
    """Not the placer's, nor that of every job alone, nor any at random."""
    usd = least(snapshot)
    placer = warm_start(snapshot)
    if placer is not None:
        assert no_dearer(usd, placer.usd_total)
    assert no_dearer(
        usd, plan_usd(snapshot, [solo_group(snapshot, i) for i in range(len(snapshot))])
    )
    rng = random.Random(seed)
    for _ in range(10):
        assert no_dearer(usd, plan_usd(snapshot, random_groups(snapshot, rng)))


def test_random_plans_share_nodes_and_some_are_optimal() -> None:
    """The best of ten, so that the property above compares with more than jobs alone."""
    rng = random.Random(0)
    shared = optimal = 0
    for _ in range(50):
        snapshot = random_snapshot(rng, 3, MIXES["gangs"])
        alone = plan_usd(snapshot, [solo_group(snapshot, i) for i in range(3)])
        best = min(plan_usd(snapshot, random_groups(snapshot, rng)) for _ in range(10))
        shared += best < alone
        optimal += best == pytest.approx(least(snapshot))
    assert shared >= 25
    assert optimal >= 15


@SETTINGS
@given(snapshots())
def test_the_volume_bound_is_no_dearer(snapshot: Snapshot) -> None:
    bound = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    assert no_dearer(bound.usd_per_hour, least(snapshot))


# --- prices -----------------------------------------------------------------------------------


@SETTINGS
@given(snapshots(), st.sampled_from((0.25, 3.0, 1e4)))
def test_the_cost_scales_with_both_prices(snapshot: Snapshot, factor: float) -> None:
    usd = snapshot.usd_per_hour
    dearer = replace(
        snapshot, cluster=cluster_of(rollout_usd=factor * usd(1, 0), train_usd=factor * usd(0, 1))
    )
    assert least(dearer) == pytest.approx(factor * least(snapshot), rel=1e-9)


@SETTINGS
@given(snapshots(), st.sampled_from((0.0, 5.0)), st.sampled_from((0.0, 5.0)))
def test_dearer_nodes_never_cost_less(snapshot: Snapshot, rollout: float, train: float) -> None:
    usd = snapshot.usd_per_hour
    dearer = replace(
        snapshot, cluster=cluster_of(rollout_usd=usd(1, 0) + rollout, train_usd=usd(0, 1) + train)
    )
    assert no_dearer(least(snapshot), least(dearer))


# --- what only makes more plans valid ---------------------------------------------------------


@SETTINGS
@given(snapshots(), st.data())
def test_a_looser_slo_never_costs_more(snapshot: Snapshot, data: st.DataObject) -> None:
    """Of one job, or of all."""
    factor = data.draw(st.sampled_from((1.25, 1.5, 4.0)))
    looser = data.draw(st.sampled_from((*range(len(snapshot)), None)))
    changed = [
        replace(job, slo=factor * job.slo) if looser in (None, i) else job
        for i, job in enumerate(snapshot.jobs)
    ]
    assert no_dearer(least(with_jobs(snapshot, changed)), least(snapshot))


@SETTINGS
@given(snapshots(), st.sampled_from((2001.0, 2500.0, 4000.0)))
def test_more_dram_never_costs_more(snapshot: Snapshot, dram_gb: float) -> None:
    more = replace(snapshot, cluster=cluster_of(host_dram_gb=dram_gb))
    assert no_dearer(least(more), least(snapshot))


@SETTINGS
@given(snapshots(), st.sampled_from(("max_group_size", "max_rollout_nodes", "max_train_nodes")))
def test_a_higher_limit_of_a_group_never_costs_more(snapshot: Snapshot, name: str) -> None:
    """The lower, the dearer; and no limit is the cheapest."""
    limits = (1, 2, 3, 0 if name == "max_group_size" else None)
    usd = [
        least(replace(snapshot, limits=replace(snapshot.limits, **{name: limit})))
        for limit in limits
    ]
    assert all(no_dearer(higher, lower) for lower, higher in pairwise(usd))


@SETTINGS
@example(snapshot_of(FIVE_FRONT), "max_rollout_nodes_total")  # a node less costs more
@given(snapshots(), st.sampled_from(("max_rollout_nodes_total", "max_train_nodes_total")))
def test_a_fleet_cap_never_makes_it_cheaper(snapshot: Snapshot, name: str) -> None:
    """The lower, the dearer; and no cap is the cheapest."""
    caps: tuple[Any, ...] = (1, 2, 3, 5, None)
    usd = [least(replace(snapshot, caps=replace(snapshot.caps, **{name: cap}))) for cap in caps]
    assert all(no_dearer(higher, lower) for lower, higher in pairwise(usd))


@SETTINGS
@given(snapshots(), st.data())
def test_less_state_or_switch_never_costs_more(snapshot: Snapshot, data: st.DataObject) -> None:
    """Run and sync seconds are left out: the deadline slo x T shrinks with them."""
    name = data.draw(
        st.sampled_from(
            ("rollout_state_gb", "train_state_gb", "rollout_switch_s", "train_switch_s")
        )
    )
    less = data.draw(st.integers(0, len(snapshot) - 1))
    changed = [
        replace(job, **{name: getattr(job, name) / 2}) if i == less else job
        for i, job in enumerate(snapshot.jobs)
    ]
    assert no_dearer(least(with_jobs(snapshot, changed)), least(snapshot))


# --- which jobs there are ---------------------------------------------------------------------


@SETTINGS
@given(snapshots(least_jobs=2), st.data())
def test_a_job_less_never_costs_more(snapshot: Snapshot, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(snapshot) - 1))
    kept = [job for i, job in enumerate(snapshot.jobs) if i != gone]
    assert no_dearer(least(with_jobs(snapshot, kept)), least(snapshot))


@SETTINGS
@given(snapshots(least_jobs=2), st.data())
def test_the_order_of_the_jobs_changes_nothing(snapshot: Snapshot, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(snapshot.jobs))
    usd = least(with_jobs(snapshot, shuffled))
    assert usd == least(snapshot) or usd == pytest.approx(least(snapshot), rel=1e-9)


@SETTINGS
@given(snapshots(least_jobs=2), st.data())
def test_two_halves_cost_no_less_than_the_whole(snapshot: Snapshot, data: st.DataObject) -> None:
    """Plans of two sets of jobs, side by side, are a plan of both (fleet caps aside)."""
    free = replace(snapshot, caps=FleetCaps())
    cut = data.draw(st.integers(1, len(snapshot) - 1))
    halves = [with_jobs(free, free.jobs[:cut]), with_jobs(free, free.jobs[cut:])]
    assert no_dearer(least(free), sum(map(least, halves)))


# --- several iterations per period --------------------------------------------------------------

RATED: Final = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def rated(draw: st.DrawFn, least_jobs: int = 1) -> Snapshot:
    """Up to four jobs, some of them longer, at ``max_rate`` 2 to 4."""
    n = draw(st.integers(least_jobs, 4))
    drawn = [draw(jobs(number)) for number in range(n)]
    longer = [draw(st.sampled_from((1, 1, 2, 3))) for _ in drawn]
    return Snapshot.of(
        [
            replace(
                job, rollout_s=x * job.rollout_s, train_s=x * job.train_s, sync_s=x * job.sync_s
            )
            for x, job in zip(longer, drawn, strict=True)
        ],
        limits=Limits(
            max_rate=draw(st.sampled_from((2, 2, 3, 4))),
            max_group_size=draw(st.sampled_from((0, 2, 3))),
            max_rollout_nodes=draw(st.sampled_from((None, None, None, 2, 3))),
            max_train_nodes=draw(st.sampled_from((None, None, None, 2, 3))),
        ),
        caps=FleetCaps(
            max_rollout_nodes_total=draw(st.sampled_from((None, None, None, 2, 3))),
            max_train_nodes_total=draw(st.sampled_from((None, None, None, 2, 3))),
        ),
    )


def with_limits(snapshot: Snapshot, **limits: int | None) -> Snapshot:
    return replace(snapshot, limits=replace(snapshot.limits, **limits))


def test_rates_pay_in_enough_of_these_snapshots() -> None:
    """So that the properties below are about rates."""
    paid: list[bool] = []

    @settings(RATED, database=None)
    @given(rated())
    def look(snapshot: Snapshot) -> None:
        paid.append(least(snapshot) < least(with_limits(snapshot, max_rate=1)) - ROUND_OFF_USD)

    look()
    assert sum(paid) >= 8


@RATED
@given(rated(), st.data())
def test_rates_a_looser_slo_never_costs_more(snapshot: Snapshot, data: st.DataObject) -> None:
    """Of one job, or of all."""
    factor = data.draw(st.sampled_from((1.25, 1.5, 2.0)))
    looser = data.draw(st.sampled_from((*range(len(snapshot)), None)))
    changed = [
        replace(job, slo=factor * job.slo) if looser in (None, i) else job
        for i, job in enumerate(snapshot.jobs)
    ]
    assert no_dearer(least(with_jobs(snapshot, changed)), least(snapshot))


@RATED
@given(rated(), st.sampled_from((2001.0, 2500.0, 4000.0)))
def test_rates_more_dram_never_costs_more(snapshot: Snapshot, dram_gb: float) -> None:
    more = replace(snapshot, cluster=cluster_of(host_dram_gb=dram_gb))
    assert no_dearer(least(more), least(snapshot))


@RATED
@given(rated())
def test_a_higher_max_rate_never_costs_more(snapshot: Snapshot) -> None:
    usd = [least(with_limits(snapshot, max_rate=rate)) for rate in (1, 2, 3, 4)]
    assert all(no_dearer(higher, lower) for lower, higher in pairwise(usd))


@RATED
@given(rated(), st.sampled_from(("max_group_size", "max_rollout_nodes", "max_train_nodes")))
def test_rates_a_higher_limit_of_a_group_never_costs_more(snapshot: Snapshot, name: str) -> None:
    limits = (1, 2, 3, 0 if name == "max_group_size" else None)
    usd = [least(with_limits(snapshot, **{name: limit})) for limit in limits]
    assert all(no_dearer(higher, lower) for lower, higher in pairwise(usd))


@RATED
@given(rated(least_jobs=2), st.data())
def test_rates_a_job_less_never_costs_more(snapshot: Snapshot, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(snapshot) - 1))
    kept = [job for i, job in enumerate(snapshot.jobs) if i != gone]
    assert no_dearer(least(with_jobs(snapshot, kept)), least(snapshot))


@RATED
@given(rated(least_jobs=2), st.data())
def test_rates_the_order_of_the_jobs_changes_nothing(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(snapshot.jobs))
    usd = least(with_jobs(snapshot, shuffled))
    assert usd == least(snapshot) or usd == pytest.approx(least(snapshot), rel=1e-9)


@RATED
@given(rated(), st.sampled_from((0.25, 3.0)))
def test_rates_the_cost_scales_with_both_prices(snapshot: Snapshot, factor: float) -> None:
    usd = snapshot.usd_per_hour
    dearer = replace(
        snapshot, cluster=cluster_of(rollout_usd=factor * usd(1, 0), train_usd=factor * usd(0, 1))
    )
    assert least(dearer) == pytest.approx(factor * least(snapshot), rel=1e-9)


@RATED
@given(rated(), st.sampled_from((0.5, 4.0)))
def test_rates_the_unit_of_time_changes_nothing(snapshot: Snapshot, factor: float) -> None:
    """All seconds times a power of two."""
    names = ("rollout_s", "train_s", "sync_s", "rollout_switch_s", "train_switch_s")
    scaled = [
        replace(job, **{name: factor * getattr(job, name) for name in names})
        for job in snapshot.jobs
    ]
    usd = least(with_jobs(snapshot, scaled))
    assert usd == least(snapshot) or usd == pytest.approx(least(snapshot), rel=1e-9)
