"""Small snapshots on which all exact methods have to agree: families by name, seeded, in order.

Every number of seconds, deadlines included, is a multiple of ``GRID_S`` up to round-off, so
CP-SAT's grid of 1 ms holds each case exactly. Values are few, so that ties, full nodes and
deadlines met to the second are common.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

import pytest

from builders import cluster_of
from instances.checker import check_plan
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion
from models.bounds.volume import volume
from models.group.group_cost import GroupCost, Nodes
from models.problem.result import Result, Termination
from models.problem.snapshot import FleetCaps, Snapshot
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    five_gangs,
    full_jobs,
    gangs_that_all_meet,
    jobs_of,
    random_jobs,
    snapshot_of,
)

__all__ = [
    "FAMILIES",
    "GRID_S",
    "KINDS",
    "NEUTRAL",
    "Case",
    "Family",
    "assert_proved",
    "cases",
    "fleet_of",
    "fullest_gb",
    "is_on_grid",
    "least_usd",
    "subsets",
    "without_precedence",
]

GRID_S: Final = 0.125
HALVES: Final = tuple(x / 2 for x in range(1, 13))
DRAM_GB: Final = 2000


@dataclass(frozen=True)
class Case:
    """One snapshot; ``name`` is its family and number."""

    name: str
    family: str
    snapshot: Snapshot

    def __str__(self) -> str:
        return self.name


Family = Callable[[random.Random, int], Snapshot]


# --- families: n jobs each --------------------------------------------------------------------


def mixed(mix: str, rng: random.Random, n: int) -> Snapshot:
    """One of the mixes; in three of four cases deadlines let all jobs be together."""
    together = rng.random() < 0.75
    return snapshot_of(random_jobs(rng, n, MIXES[mix], together=together), size=_size(rng))


def limited(rng: random.Random, n: int) -> Snapshot:
    """Few nodes to a group; some limits forbid a gang."""
    jobs = random_jobs(
        rng, n, MIXES[rng.choice(("sync", "sync", "switches", "gangs"))], together=True
    )
    return snapshot_of(jobs, nodes=rng.choice(((1, None), (None, 1), (1, 1), (2, 1), (2, 2))))


def capped(rng: random.Random, n: int) -> Snapshot:
    """Fleet caps at the volume bound or a node above it; some leave no plan."""
    free = mixed(rng.choice(("sync", "switches", "states", "gangs")), rng, n)
    least = volume(free.table, free.cluster, free.limits)
    rollout, train = least.rollout_nodes + rng.randint(0, 1), least.train_nodes + rng.randint(0, 1)
    caps = rng.choice(((rollout, None), (None, train), (rollout, train), (rollout + 1, train + 1)))
    return snapshot_of(free.jobs, caps=caps, size=free.limits.max_group_size)


def full(rng: random.Random, n: int) -> Snapshot:
    """Nodes full to the last second: loads admit groups that precedence rejects."""
    nodes = {3: (1, 1), 4: (1, 1), 5: (2, 1), 6: (2, 1)}.get(n, (2, 2))
    jobs = full_jobs(rng, n, nodes, rng.choice((0, 0, 0, 1)))
    return snapshot_of(jobs, size=rng.choice((0, 5)))


def two_full(rng: random.Random, n: int) -> Snapshot:
    """Two sets of jobs, each of which fills a node of each kind, and they may mix."""
    n = max(n, 5)
    first = full_jobs(rng, n // 2, slack_s=0)
    second = full_jobs(rng, n - n // 2, slack_s=0)
    return snapshot_of(_renamed([*first, *second]), size=rng.choice((0, 3, 4)))


def nearly_full(rng: random.Random, n: int) -> Snapshot:
    """Half a second of slack on the nodes of a full group, unequal deadlines."""
    jobs = full(rng, n).jobs
    period = jobs[0].deadline_s
    shorter = rng.randrange(n)
    pool = rng.choice(("rollout_s", "train_s"))
    out = []
    for i, job in enumerate(jobs):
        late = period if i < n // 2 else period + rng.choice((0, 0.5, 1))
        if i == shorter:
            job = replace(job, **{pool: getattr(job, pool) - 0.5})
        out.append(replace(job, slo=late / job.solo_s))
    return snapshot_of(out, size=rng.choice((0, 3, 5)))


def equal(rng: random.Random, n: int) -> Snapshot:
    """All jobs alike."""
    job = random_jobs(rng, 1, MIXES[rng.choice(("sync", "switches", "states", "gangs"))])[0]
    job = replace(job, slo=rng.choice((1.0, 1.5, 2.0, 3.0)))
    return snapshot_of(_renamed([job] * n), size=_size(rng))


def no_slack(rng: random.Random, n: int) -> Snapshot:
    """slo = 1 exactly; jobs of equal T may share."""
    jobs = []
    for _ in range(n):
        solo = rng.choice((6.0, 6.0, 8.0))
        rollout = rng.choice(HALVES[:8])
        train = rng.choice([x for x in HALVES if x <= solo - rollout])
        sync = rng.choice((0.0, solo - rollout - train))
        jobs += jobs_of((rollout,), (solo - rollout - sync,), (sync,))
    return snapshot_of(_renamed(jobs), size=_size(rng))


def paid(rng: random.Random, n: int) -> Snapshot:
    """Switches beside which deadlines are tight: some jobs can afford one, some none. Up to six
    jobs, as these take long."""
    n = min(n, 6)
    deadline = rng.choice((6.0, 8.0))
    jobs: list[Job] = []
    for _ in range(n):
        solo = deadline - rng.choice((0.0, 0.5, 0.5, 1.0, 2.0))
        rollout = rng.choice(HALVES[:6])
        train = rng.choice([x for x in HALVES[:6] if x < solo - rollout])
        jobs += jobs_of(
            (rollout,),
            (train,),
            (rng.choice((0.0, solo - rollout - train)),),
            deadline_s=deadline,
            rollout_switch_s=(rng.choice((0.0, 0.5, 1.0)),),
            train_switch_s=(rng.choice((0.0, 0.5, 1.0)),),
            rollout_nodes=(rng.choice((1, 1, 2)),),
        )
    return snapshot_of(_renamed(jobs), size=_size(rng))


def full_dram(rng: random.Random, n: int) -> Snapshot:
    """States that fill nodes to the last GB, and time in plenty."""
    jobs = jobs_of(
        [rng.choice(HALVES[:4]) for _ in range(n)],
        [rng.choice(HALVES[:4]) for _ in range(n)],
        deadline_s=rng.choice((6, 10)),
        rollout_state_gb=_states(rng, n),
        train_state_gb=_states(rng, n),
    )
    return snapshot_of(jobs, size=_size(rng))


def wide(rng: random.Random, n: int) -> Snapshot:
    """Gangs of up to three rollout nodes that share, with a limit on nodes of a group."""
    jobs = [
        replace(job, rollout_nodes=rng.choice((1, 2, 3)), train_nodes=rng.choice((1, 1, 2)))
        for job in random_jobs(rng, n, MIXES["sync"], together=True)
    ]
    return snapshot_of(jobs, size=rng.choice((2, 3, 4)), nodes=(rng.choice((None, 3, 4)), None))


def front(rng: random.Random, n: int) -> Snapshot:
    """Jobs that fill two nodes of each kind, under caps that ask for one end of the front."""
    caps = rng.choice(((2, 3), (3, 2), (2, None), (None, 2), (2, 2)))
    return snapshot_of(full_jobs(rng, max(n, 5), (2, 2)), caps=caps)


def priced(rng: random.Random, n: int) -> Snapshot:
    """Other prices: both pools alike, or rollout nodes the dearer."""
    free = mixed(rng.choice(("sync", "gangs", "all")), rng, n)
    usd = rng.choice(((8.0, 8.0), (40.0, 8.0)))
    return replace(free, cluster=cluster_of(rollout_usd=usd[0], train_usd=usd[1]))


def _size(rng: random.Random) -> int:
    return rng.choice((0, 0, 5, 4, 3, 3, 2, 1))


def _states(rng: random.Random, n: int) -> list[float]:
    """Return ``n`` states, most of which come in sets that fill a node."""
    out: list[float] = []
    while len(out) < n:
        parts = rng.randint(2, 3)
        cuts = sorted(rng.sample(range(200, DRAM_GB, 200), parts - 1))
        out += [float(b - a) for a, b in zip([0, *cuts], [*cuts, DRAM_GB], strict=True)]
    rng.shuffle(out)
    return out[:n]


def _renamed(jobs: list[Job]) -> list[Job]:
    return [replace(job, job_id=f"j{i}") for i, job in enumerate(jobs)]


#: Jobs of the cases of a family, by turns: fewer of those that take long.
_JOBS: Final = (3, 4, 5, 6, 5, 4, 3, 5, 6, 7, 4, 5, 6, 3, 5, 4, 6, 8)
#: Family by name, and how many cases of it.
FAMILIES: Final[Mapping[str, tuple[Family, int]]] = {
    **{name: (partial(mixed, name), 12) for name in MIXES},
    "limits": (limited, 24),
    "caps": (capped, 24),
    "full": (full, 48),
    "two full": (two_full, 12),
    "nearly full": (nearly_full, 24),
    "equal": (equal, 12),
    "no slack": (no_slack, 12),
    "paid": (paid, 30),
    "full dram": (full_dram, 12),
    "wide": (wide, 12),
    "front": (front, 6),
    "prices": (priced, 6),
}


def _by_hand() -> Iterator[tuple[str, Snapshot]]:
    """Yield the examples of FORMULATION section 4."""
    for caps in ((None, None), (1, None), (None, 1), (1, 1)):
        yield "precedence", snapshot_of(PRECEDENCE, caps=caps)
    for caps in ((None, None), (2, None), (None, 2), (2, 2)):
        yield "five front", snapshot_of(FIVE_FRONT, caps=caps)
    for deadline_s in (34, 33):
        yield "meeting gangs", snapshot_of(gangs_that_all_meet(deadline_s), nodes=(3, None))
    for deadline_s in (2.5, 2.375):
        yield "five gangs", snapshot_of(five_gangs(deadline_s), nodes=(5, None))


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases: equal on every call and every machine."""
    out = [Case(f"{name} {i}", name, snapshot) for i, (name, snapshot) in enumerate(_by_hand())]
    for offset, (name, (family, count)) in enumerate(FAMILIES.items()):
        for i in range(count):
            rng = random.Random(f"{name} {i}")
            n = _JOBS[(5 * offset + i) % len(_JOBS)]
            out.append(Case(f"{name} {i}", name, family(rng, n)))
    return tuple(out)


# --- what a case has ---------------------------------------------------------------------------


def _some(asks: Callable[[Job], bool]) -> Callable[[Case], bool]:
    return lambda case: any(asks(job) for job in case.snapshot.jobs)


def _all(asks: Callable[[Job], bool]) -> Callable[[Case], bool]:
    return lambda case: all(asks(job) for job in case.snapshot.jobs)


KINDS: Final[Mapping[str, Callable[[Case], bool]]] = {
    "single-node jobs": _all(lambda job: job.rollout_nodes == job.train_nodes == 1),
    "rollout gangs": _some(lambda job: job.rollout_nodes > 1),
    "train gangs": _some(lambda job: job.train_nodes > 1),
    "sync": _some(lambda job: job.sync_s > 0),
    "rollout switches": _some(lambda job: job.rollout_switch_s > 0),
    "train switches": _some(lambda job: job.train_switch_s > 0),
    "rollout states": _some(lambda job: job.rollout_state_gb > 0),
    "train states": _some(lambda job: job.train_state_gb > 0),
    "slo 1": _all(lambda job: job.slo == 1),
    "slo 1 and looser": lambda case: len({job.slo == 1 for job in case.snapshot.jobs}) == 2,
    "all equal": lambda case: (
        len({replace(job, job_id="", arrival_s=0.0) for job in case.snapshot.jobs}) == 1
    ),
    "ties of deadlines": lambda case: (
        1 < len({job.deadline_s for job in case.snapshot.jobs}) < len(case.snapshot)
    ),
    "node limits": lambda case: (
        (case.snapshot.limits.max_rollout_nodes, case.snapshot.limits.max_train_nodes)
        != (None, None)
    ),
    "fleet caps": lambda case: case.snapshot.caps.any,
}


def is_on_grid(snapshot: Snapshot) -> bool:
    """Return whether all seconds are multiples of ``GRID_S``, up to round-off."""
    return all(
        seconds / GRID_S == pytest.approx(round(seconds / GRID_S), rel=1e-12)
        for job in snapshot.jobs
        for seconds in (
            job.rollout_s, job.train_s, job.sync_s, job.deadline_s,
            job.rollout_switch_s, job.train_switch_s,
        )
    )  # fmt: skip


# --- without a rule ----------------------------------------------------------------------------


def _limits(**changes: int | None) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: replace(snapshot, limits=replace(snapshot.limits, **changes))


def _jobs(change: Callable[[Job], dict[str, float]]) -> Callable[[Snapshot], Snapshot]:
    """Change every job, at the same deadline in seconds."""

    def changed(job: Job) -> Job:
        other = replace(job, **change(job))
        return replace(other, slo=max(job.deadline_s / other.solo_s, 1.0))

    return lambda snapshot: replace(
        snapshot, table=JobTable.from_jobs([changed(job) for job in snapshot.jobs])
    )


#: The snapshot without a rule.
NEUTRAL: Final[Mapping[str, Callable[[Snapshot], Snapshot]]] = {
    "group size": _limits(max_group_size=0),
    "node limits": _limits(max_rollout_nodes=None, max_train_nodes=None),
    "fleet caps": lambda snapshot: replace(snapshot, caps=FleetCaps()),
    "rollout gangs": _jobs(lambda job: {"rollout_nodes": 1}),
    "train gangs": _jobs(lambda job: {"train_nodes": 1}),
    "rollout dram": _jobs(lambda job: {"rollout_state_gb": 0.0}),
    "train dram": _jobs(lambda job: {"train_state_gb": 0.0}),
    "sync": _jobs(lambda job: {"sync_s": 0.0}),
    "rollout switches": _jobs(lambda job: {"rollout_switch_s": 0.0}),
    "train switches": _jobs(lambda job: {"train_switch_s": 0.0}),
    "switches only on shared nodes": _jobs(
        lambda job: {
            "rollout_s": job.rollout_s + job.rollout_switch_s,
            "train_s": job.train_s + job.train_switch_s,
            "rollout_switch_s": 0.0,
            "train_switch_s": 0.0,
        }
    ),
    "deadlines": lambda snapshot: replace(
        snapshot,
        table=JobTable.from_jobs([replace(job, slo=10 * job.slo) for job in snapshot.jobs]),
    ),
}


# --- what a plan has ----------------------------------------------------------------------------


def fleet_of(result: Result) -> tuple[int, int]:
    assert result.plan is not None
    groups = result.plan.groups
    return sum(len(g.rollout_nodes) for g in groups), sum(len(g.train_nodes) for g in groups)


def fullest_gb(jobs: Iterable[Job], group: GroupVersion) -> float:
    """Return the most state on a node that two or more jobs share, GB."""
    by_id = {job.job_id: job for job in jobs}
    states: dict[tuple[str, int], list[float]] = {}
    for placement in group.placements:
        job = by_id[placement.job_id]
        for node in placement.rollout_pins:
            states.setdefault(("rollout", node), []).append(job.rollout_state_gb)
        for node in placement.train_pins:
            states.setdefault(("train", node), []).append(job.train_state_gb)
    return max((sum(each) for each in states.values() if len(each) > 1), default=0.0)


# --- what precedence is worth -----------------------------------------------------------------


def subsets(n: int) -> Iterator[tuple[int, ...]]:
    """Yield all non-empty sets of jobs, ascending tuples."""
    for mask in range(1, 1 << n):
        yield tuple(i for i in range(n) if mask >> i & 1)


def least_usd(snapshot: Snapshot, nodes: Mapping[tuple[int, ...], Nodes]) -> float:
    """Return the least price of a partition into groups of given sizes, fleet caps aside, $/h."""
    n = len(snapshot)
    usd = {sum(1 << i for i in g): snapshot.usd_per_hour(*size) for g, size in nodes.items()}
    least = [0.0]
    for left in range(1, 1 << n):
        within = (mask for mask in usd if mask & left == mask and mask & left & -left)
        least.append(min((usd[mask] + least[left ^ mask] for mask in within), default=float("inf")))
    return least[-1]


def without_precedence(snapshot: Snapshot) -> dict[tuple[int, ...], Nodes]:
    """Return the fewest nodes of every set of single-node jobs when precedence is dropped.

    Phases on one node then only have to fit its load and DRAM, pool by pool, so both minima
    are had at once.
    """
    cost = GroupCost(snapshot)
    found = {members: cost.least_nodes(members) for members in subsets(len(snapshot))}
    return {members: nodes for members, nodes in found.items() if nodes is not None}


# --- what is asserted of a method ---------------------------------------------------------------


def assert_proved(
    result: Result, method: str, snapshot: Snapshot, expected_usd: float | None
) -> None:
    """The method proved this least cost, or that there is no plan, and holds such a plan."""
    assert (result.method, result.stopped_by) == (method, None)
    assert (result.limits, result.caps) == (snapshot.limits, snapshot.caps)
    if expected_usd is None:
        assert result.termination is Termination.INFEASIBLE
        assert (result.plan, result.usd_per_hour, result.bound_usd_per_hour) == (None,) * 3
        return
    assert result.termination is Termination.OPTIMAL
    assert result.usd_per_hour == pytest.approx(expected_usd, abs=1e-6, rel=0)
    assert result.bound_usd_per_hour == pytest.approx(expected_usd, abs=1e-6, rel=0)
    assert_valid(snapshot, result)


def assert_valid(snapshot: Snapshot, result: Result) -> None:
    """The plan covers the jobs within limits and caps, and its nodes cost what the result says."""
    assert result.plan is not None
    assert check_plan(result.plan).ok
    assert result.plan.jobs.job_id == snapshot.table.job_id
    assert (result.plan.limits, result.plan.cluster) == (snapshot.limits, snapshot.cluster)
    rollout, train = fleet_of(result)
    assert snapshot.caps.allow(rollout, train)
    assert snapshot.usd_per_hour(rollout, train) == pytest.approx(result.usd_per_hour)
