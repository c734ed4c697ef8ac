"""Small snapshots with ``max_rate`` 2 to 4, on which all methods that take it have to agree.

Iterations are a few times one another's, so that jobs that cannot share at one iteration each
may at several. As in ``agreement_cases``: families by name, seeded, in order; every number of
seconds, deadlines included, is a multiple of ``GRID_S`` up to round-off, and values are few.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import combinations, product
from typing import Final

from agreement_cases import GRID_S, Case, Family
from builders import cluster_of
from instances.jobs import Job
from models.problem.snapshot import Snapshot
from oracles.least_snapshot import Counts, partitions
from small_snapshots import jobs_of, snapshot_of

__all__ = ["RATE_FAMILIES", "RATE_METHODS", "nodes_by_load", "rate_cases", "rated", "sets_of"]

#: The methods that take ``max_rate``; test_methods_agree_rates holds it to METHODS.
RATE_METHODS: Final = ("exhaustive", "cpsat", "set-partition")

#: Lengths of jobs, in multiples of the shortest.
LENGTHS: Final = (1, 1, 2, 3, 4)
SLOS: Final = (1.0, 1.125, 1.25, 1.5, 2.0)
DRAM_GB: Final = 2000.0


def rated(
    jobs: list[Job],
    max_rate: int,
    *,
    size: int = 0,
    nodes: tuple[int | None, int | None] = (None, None),
    caps: tuple[int | None, int | None] = (None, None),
) -> Snapshot:
    """Return a snapshot of renamed jobs; see ``snapshot_of``."""
    jobs = [replace(job, job_id=f"j{i}") for i, job in enumerate(jobs)]
    free = snapshot_of(jobs, size=size, nodes=nodes, caps=caps)
    return replace(free, limits=replace(free.limits, max_rate=max_rate))


# --- jobs ---------------------------------------------------------------------------------------


def spread(
    rng: random.Random, n: int, *, sync: bool = False, slos: tuple[float, ...] = SLOS
) -> list[Job]:
    """Return single-node jobs of different lengths, at least one short and one long.

    Deadlines are slo x T, rounded up to the grid.
    """
    lengths = [1, rng.choice((2, 3, 4)), *(rng.choice(LENGTHS) for _ in range(n - 2))]
    rng.shuffle(lengths)
    jobs = []
    for length in lengths:
        rollout, train = rng.choice((0.5, 1, 1.5, 2)), rng.choice((0.5, 1, 1, 1.5))
        rest = rng.choice((0, 0, 0.5, 1)) if sync else 0
        solo = length * (rollout + train + rest)
        deadline = math.ceil(rng.choice(slos) * solo / GRID_S) * GRID_S
        phases = (length * rollout,), (length * train,), (length * rest,)
        jobs += jobs_of(*phases, deadline_s=deadline)
    return jobs


def _max_rate(rng: random.Random, n: int) -> int:
    """Return ``max_rate``; the oracle takes long at 4, so less often where it is asked."""
    return rng.choice((2, 2, 3, 3, 4) if n <= 4 else (2, 3, 4))


def _size(rng: random.Random) -> int:
    return rng.choice((0, 0, 5, 4, 3))


# --- families: n jobs each ----------------------------------------------------------------------


def lengths(rng: random.Random, n: int) -> Snapshot:
    """Single-node jobs, no sync."""
    return rated(spread(rng, n), _max_rate(rng, n), size=_size(rng))


def synced(rng: random.Random, n: int) -> Snapshot:
    return rated(spread(rng, n, sync=True), _max_rate(rng, n), size=_size(rng))


def switched(rng: random.Random, n: int) -> Snapshot:
    """A job that runs several iterations pays its switches as often."""
    jobs = [
        replace(
            job,
            rollout_switch_s=rng.choice((0.0, 0.25, 0.5, 1.0)),
            train_switch_s=rng.choice((0.0, 0.25, 0.5, 1.0)),
        )
        for job in spread(rng, n, sync=True, slos=SLOS[2:])
    ]
    return rated(jobs, _max_rate(rng, n), size=_size(rng))


def gangs(rng: random.Random, n: int) -> Snapshot:
    """Gangs of two nodes, of rollouts or of trains; one of them at least."""
    wide = rng.randrange(n)
    jobs = []
    for i, job in enumerate(spread(rng, n, slos=SLOS[1:])):
        rollout, train = rng.choice(((1, 1), (1, 1), (2, 1), (1, 2)))
        jobs.append(replace(job, rollout_nodes=2 if i == wide else rollout, train_nodes=train))
    return rated(jobs, _max_rate(rng, n), size=rng.choice((0, 3)))


def full_dram(rng: random.Random, n: int) -> Snapshot:
    """States of a quarter to three quarters of a node: some nodes are full to the last GB."""
    states = (0.0, 500.0, 1000.0, 1000.0, 1500.0)
    jobs = [
        replace(job, rollout_state_gb=rng.choice(states[1:]), train_state_gb=rng.choice(states))
        for job in spread(rng, n, slos=SLOS[2:])
    ]
    return rated(jobs, _max_rate(rng, n), size=_size(rng))


def limited(rng: random.Random, n: int) -> Snapshot:
    """Few nodes to a group."""
    nodes = rng.choice(((1, None), (None, 1), (1, 1), (2, 1), (1, 2)))
    return rated(spread(rng, n, sync=True), _max_rate(rng, n), nodes=nodes)


def capped(rng: random.Random, n: int) -> Snapshot:
    """Fleet caps, some of which only several iterations keep, and some nothing does."""
    caps = rng.choice(((n - 1, None), (None, n - 1), (n - 1, n - 1), (2, None), (None, 1)))
    return rated(spread(rng, n, slos=SLOS[1:]), _max_rate(rng, n), caps=caps)


def sized(rng: random.Random, n: int) -> Snapshot:
    """At most one, two or three jobs to a group."""
    return rated(spread(rng, n, sync=True), _max_rate(rng, n), size=rng.choice((1, 2, 2, 3)))


def tied(rng: random.Random, n: int) -> Snapshot:
    """Jobs of two kinds, equal within a kind; deadlines that are multiples of one another."""
    kinds = spread(rng, 2, slos=(rng.choice(SLOS),))
    return rated([kinds[i % 2] for i in range(n)], _max_rate(rng, n), size=_size(rng))


def no_slack(rng: random.Random, n: int) -> Snapshot:
    """slo = 1 exactly: a job's iterations follow one another without a pause."""
    return rated(spread(rng, n, sync=True, slos=(1.0,)), _max_rate(rng, n), size=_size(rng))


def gapped(rng: random.Random, n: int) -> Snapshot:
    """Long phases beside several short iterations, nodes nearly full: loads admit, gaps do not.

    Job 0 runs once within ``C``, a second job ``k`` times within ``C / k``, its phases short.
    """
    rate = rng.choice((2, 3, 4))
    period = rate * rng.choice((2.0, 2.5, 3.0))
    long_train = rng.choice((1.0, 2.0, period / 2))
    jobs = [*jobs_of((period - long_train - rng.choice((0, 0.5)),), (long_train,))]
    for i in range(1, n):
        turn = period / rate if i == 1 or rng.random() < 0.5 else period
        train = rng.choice((0.5, 1.0, turn / 4))
        rollout = rng.choice([x / 2 for x in range(1, 13) if train + x / 2 <= turn])
        jobs += jobs_of((rollout,), (train,))
    turns = [period, period / rate, *(None,) * (n - 2)]
    jobs = [
        replace(job, slo=max(turn or rng.choice((period / rate, period)), job.solo_s) / job.solo_s)
        for job, turn in zip(jobs, turns, strict=True)
    ]
    return rated(jobs, rate, size=_size(rng))


def full(rate: int, rng: random.Random, n: int) -> Snapshot:
    """One node of each kind is full to the last second, or nearly, if job 0 runs ``rate`` times.

    Three jobs or more: a second one alone would not fit its own chain into what is left.
    """
    n = max(n, 3)
    while True:
        period = float(rng.choice((6, 9, 12)))
        first = jobs_of((rng.choice((0.5, 1.0, 1.5)),), (0.5,))[0]
        left = period - rate * first.rollout_s, period - rate * 0.5 - rng.choice((0, 1))
        if first.solo_s > period / rate or 2 * min(left) < n:
            continue
        columns = list(zip(*(_parts(rng, seconds, n - 1) for seconds in left), strict=True))
        if all(sum(phases) <= period for phases in columns):
            break
    turn = period / rate
    jobs = [replace(first, slo=turn / first.solo_s)]
    for r, t in columns:
        sync = rng.choice((0.0, period - r - t))
        jobs += jobs_of((r,), (t,), (sync,), deadline_s=period)
    return rated(jobs, max(rate, rng.choice((2, 3))), size=_size(rng))


def priced(rng: random.Random, n: int) -> Snapshot:
    """Both pools alike, or rollout nodes the dearer."""
    usd = rng.choice(((8.0, 8.0), (40.0, 8.0)))
    free = rated(spread(rng, n, sync=True, slos=SLOS[1:]), _max_rate(rng, n))
    return replace(free, cluster=cluster_of(rollout_usd=usd[0], train_usd=usd[1]))


def _parts(rng: random.Random, total: float, n: int) -> list[float]:
    """Return ``n`` multiples of 0.5 above 0 of a sum."""
    halves = round(2 * total)
    cuts = sorted(rng.sample(range(1, halves), n - 1))
    return [(b - a) / 2 for a, b in zip([0, *cuts], [*cuts, halves], strict=True)]


#: Jobs of the cases of a family, by turns.
_JOBS: Final = (2, 3, 5, 4, 3, 6, 4, 5, 3, 2, 4, 6, 3)
#: Family by name, and how many cases of it.
RATE_FAMILIES: Final[Mapping[str, tuple[Family, int]]] = {
    "lengths": (lengths, 12),
    "sync": (synced, 12),
    "switches": (switched, 20),
    "gangs": (gangs, 18),
    "full dram": (full_dram, 18),
    "limits": (limited, 12),
    "caps": (capped, 12),
    "sizes": (sized, 8),
    "ties": (tied, 8),
    "no slack": (no_slack, 8),
    "gaps": (gapped, 18),
    **{f"full {rate}": (partial(full, rate), 6) for rate in (2, 3, 4)},
    "prices": (priced, 6),
}


def _by_hand() -> Iterator[tuple[str, Snapshot]]:
    """Yield the pairs of the oracle's tests: their derivations are there."""
    yield "short and long", rated(jobs_of((20, 75), (80, 15), (0, 210), slo=(1.05, 1.05)), 3)
    for deadline_s in (9.0, 8.5):
        slo = (deadline_s / 8,) * 2
        yield "gap", rated(jobs_of((6, 1), (2, 1), slo=slo), 4)


@cache
def rate_cases() -> tuple[Case, ...]:
    """Return all cases: equal on every call and every machine."""
    out = [Case(f"{name} {i}", name, snapshot) for i, (name, snapshot) in enumerate(_by_hand())]
    for offset, (name, (family, count)) in enumerate(RATE_FAMILIES.items()):
        for i in range(count):
            rng = random.Random(f"rates {name} {i}")
            n = _JOBS[(5 * offset + i) % len(_JOBS)]
            out.append(Case(f"{name} {i}", name, family(rng, n)))
    return tuple(out)


# --- what loads alone admit ---------------------------------------------------------------------


def sets_of(n: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of two to ``most`` of ``n`` jobs."""
    for size in range(2, most + 1):
        yield from combinations(range(n), size)


def nodes_by_load(snapshot: Snapshot, members: tuple[int, ...]) -> list[Counts]:
    """Return what loads, DRAM and chains admit of single-node jobs as one group, precedence aside.

    One pair of node counts per rate vector of ``{1, .., K}^n`` that admits any; for given rates
    both pools have their least number of nodes at once.
    """
    limits = snapshot.limits
    most = len(members)
    if limits.max_group_size and most > limits.max_group_size:
        return []
    jobs = [snapshot.jobs[i] for i in members]
    found = []
    for rates in product(range(1, limits.max_rate + 1), repeat=most):
        period = min(k * job.deadline_s for k, job in zip(rates, jobs, strict=True)) * (1 + 1e-9)
        if any(k * job.solo_s > period for k, job in zip(rates, jobs, strict=True)):
            continue
        rollout = _fewest(
            [k * (j.rollout_s + j.rollout_switch_s) for k, j in zip(rates, jobs, strict=True)],
            [job.rollout_state_gb for job in jobs],
            period,
        )
        train = _fewest(
            [k * (job.train_s + job.train_switch_s) for k, job in zip(rates, jobs, strict=True)],
            [job.train_state_gb for job in jobs],
            period,
        )
        allowed = limits.max_rollout_nodes or most, limits.max_train_nodes or most
        if rollout <= allowed[0] and train <= allowed[1]:
            found.append((rollout, train))
    return found


def _fewest(shared_s: list[float], state_gb: list[float], period_s: float) -> int:
    """Return the fewest nodes of a pool for phases of so many seconds where they share a node."""

    def fits(node: tuple[int, ...]) -> bool:
        return len(node) == 1 or (
            sum(shared_s[j] for j in node) <= period_s and sum(state_gb[j] for j in node) <= DRAM_GB
        )

    ways = partitions(len(shared_s))
    return min(len(nodes) for nodes in ways if all(map(fits, nodes)))
