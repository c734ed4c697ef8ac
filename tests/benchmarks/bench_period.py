"""Quality and speed of the constructive schedule against the least period of the oracle.

Run ``python tests/benchmarks/bench_period.py [groups per row] [most jobs] [seed]`` (default
200, 4 and 1, ten minutes; five jobs take hours).

First table: each row is one kind of random group: phases uniform in 50 to 900 s (rollout) and
50 to 400 s (train), 2 jobs to the most. ``at LB`` and ``optimal`` are shares of the groups
whose period with no limit equals LB(g) and the least period; the gap is ``period / least - 1``;
``decided`` is the share of groups for which a schedule is found when the limit *is* the least
period, so that every rejection is a wrong one. ``orders`` is how many insertion orders (with
rates: interleavings, and branches) are tried: 5 by default, 2 in the placer.

Second table: groups of production-like jobs that could iterate at different rates. For every
job ``i`` and ``k`` up to 4, ``C = k D_i`` is a candidate with ``k_j = ceil(C / D_j)``, if all are
at most 4, not all 1, ``k_j T_j <= C`` and LB(g), switches included, is at most ``C``. ``exist``
is the share that has a schedule of period ``C``, ``found`` how many of these are found, as the
placer asks (2 orders, no refinement).
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.generate import production
from instances.jobs import Job
from models.group.period import GroupShape, construct, lower_bound_s
from oracles.least_period import Data, least_period, lower_bound, verify

#: Relative difference below which two periods are equal.
SAME = 1e-7


class Kind(NamedTuple):
    """What random groups of one kind have; no rollout nodes: each job has its own."""

    name: str
    rollout_nodes: int = 1
    train_nodes: int = 1
    width: int = 1
    most_sync_s: float = 0.0
    most_rate: int = 1


KINDS = (
    Kind("single-node, one of each, no sync"),
    Kind("single-node, several, short sync", 2, 2, 1, 30.0),
    Kind("gangs", 4, 2, 3, 30.0),
    Kind("sync, one of each", 1, 1, 1, 400.0),
    Kind("multi-rate", 2, 1, 1, 30.0, 3),
    Kind("multi-rate, one of each", 1, 1, 1, 30.0, 3),
    Kind("multi-rate, own rollout nodes", 0, 1, 1, 30.0, 4),
    Kind("multi-rate, gangs", 4, 2, 3, 30.0, 3),
)
#: Most iterations per period of a candidate of the second table.
MOST_RATE = 4


def random_group(rng: random.Random, kind: Kind, n: int) -> Data:
    """Return a group of ``n`` jobs."""

    def pins(nodes: int) -> list[set[int]]:
        return [
            set(rng.sample(range(nodes), rng.randint(1, min(kind.width, nodes)))) for _ in range(n)
        ]

    return Data(
        [rng.uniform(50, 900) for _ in range(n)],
        [rng.uniform(50, 400) for _ in range(n)],
        [rng.uniform(0, kind.most_sync_s) for _ in range(n)],
        pins(kind.rollout_nodes) if kind.rollout_nodes else [{j} for j in range(n)],
        pins(kind.train_nodes),
        [rng.randint(1, kind.most_rate) for _ in range(n)],
    )


def shape_of(data: Data) -> GroupShape:
    """Return the project's view of a group without switches."""
    return GroupShape(
        rollout_s=tuple(data.rollout_s),
        train_s=tuple(data.train_s),
        sync_s=tuple(data.sync_s),
        rollout_pins=tuple(tuple(sorted(nodes)) for nodes in data.rollout_pins),
        train_pins=tuple(tuple(sorted(nodes)) for nodes in data.train_pins),
        rates=tuple(data.k()),
    )


def measure(groups: list[Data], least: list[float], orders: int) -> dict[str, Any]:
    """Return the figures of one row."""
    shapes = [shape_of(data) for data in groups]
    began = time.thread_time()
    found = [construct(shape, orders=orders) for shape in shapes]
    seconds = time.thread_time() - began
    gaps, at_bound, invalid = [], 0, 0
    for data, schedule, period in zip(groups, found, least, strict=True):
        if schedule is None:
            continue
        gaps.append(schedule.period_s / period - 1)
        at_bound += schedule.period_s <= lower_bound(*data) * (1 + SAME)
        invalid += bool(verify(schedule.period_s, schedule.starts_s, *data))
    decided = sum(
        construct(shape, limit_s=period * (1 + SAME), orders=orders) is not None
        for shape, period in zip(shapes, least, strict=True)
    )
    n = len(groups)
    return {
        "none": n - len(gaps),
        "invalid": invalid,
        "at LB": at_bound / n,
        "optimal": sum(gap <= SAME for gap in gaps) / n,
        "decided": decided / n,
        "mean gap": sum(gaps) / max(len(gaps), 1),
        "worst gap": max(gaps, default=0.0),
        "us": seconds / n * 1e6,
    }


def candidates(jobs: Sequence[Job]) -> list[tuple[tuple[int, ...], float]]:
    """Return rates and period ``C`` of every candidate of a group."""
    found = set()
    for deadline in (k * job.deadline_s for job in jobs for k in range(1, MOST_RATE + 1)):
        rates = tuple(math.ceil(deadline / job.deadline_s * (1 - 1e-12)) for job in jobs)
        period = min(k * job.deadline_s for k, job in zip(rates, jobs, strict=True))
        fits = all(k * job.solo_s <= period for k, job in zip(rates, jobs, strict=True))
        if 1 < max(rates) <= MOST_RATE and fits:
            found.add((rates, period))
    return sorted(found)


def rollout_pins(jobs: Sequence[Job], nodes: int) -> list[tuple[int]]:
    """Return one node for each job: its own (0 nodes), or longest first on the emptier one."""
    if not nodes:
        return [(j,) for j in range(len(jobs))]
    pins, load = [(0,)] * len(jobs), [0.0] * nodes
    for j in sorted(range(len(jobs)), key=lambda j: -jobs[j].rollout_s):
        node = load.index(min(load))
        pins[j] = (node,)
        load[node] += jobs[j].rollout_s / jobs[j].deadline_s
    return pins


def production_row(nodes: int, n: int, count: int, seed: int) -> str:
    """Return the figures of ``count`` candidates of ``n`` jobs that share one train node."""
    rng = random.Random(f"production {nodes} {n} {seed}")
    jobs = list(production(n_jobs=200, seed=seed))
    exist = found = tried = 0
    micros: list[float] = []
    gaps: list[float] = []
    while len(micros) < count and tried < 200_000:
        group = rng.sample(jobs, n)
        tried += 1
        for rates, period in candidates(group):
            pins = rollout_pins(group, nodes), [(0,)] * n
            shape = GroupShape.of(group, *pins, rates)
            if lower_bound_s(shape) > period or len(micros) == count:
                continue
            data = Data(*(getattr(shape, name) for name in GroupShape.__slots__[:6]))
            least = least_period(*data)[0]
            began = time.thread_time()
            schedule = construct(shape, limit_s=period, orders=2, refine=0)
            micros.append((time.thread_time() - began) * 1e6)
            exists = least <= period * (1 + SAME)
            exist += exists
            found += schedule is not None
            if schedule is not None:
                assert exists
                assert verify(schedule.period_s, schedule.starts_s, *data) == []
            shortest = construct(shape)
            assert shortest is not None
            gaps.append(shortest.period_s / least - 1)
    micros.sort()
    size = len(micros)
    return (
        f"{size:>6} {exist / size:>7.1%} {found / max(exist, 1):>7.1%} "
        f"{micros[size // 2]:>7.0f} {micros[size * 99 // 100]:>7.0f} "
        f"{sum(gap <= SAME for gap in gaps) / size:>8.1%} {sum(gaps) / size:>8.2%} "
        f"{max(gaps):>7.1%}"
    )


def main() -> None:
    """Print the tables."""
    given = [int(x) for x in sys.argv[1:]]
    count, most, seed = (*given, *(200, 4, 1)[len(given) :])
    random_groups(count, most, seed)
    print(f"\nproduction-like, rates up to {MOST_RATE}, one train node, seed {seed}")
    print(
        f"{'rollout nodes':<14} {'jobs':>4} {'groups':>6} {'exist':>7} {'found':>7} {'us p50':>7} "
        f"{'us p99':>7} {'optimal':>8} {'mean gap':>8} {'worst':>7}"
    )
    for name, nodes, sizes in (("one", 1, (2, 3)), ("two", 2, (3, 4)), ("own", 0, (2, 3, 4))):
        for n in sizes:
            if n <= most:
                print(f"{name:<14} {n:>4} {production_row(nodes, n, count, seed)}")


def random_groups(count: int, most: int, seed: int) -> None:
    """Print the first table."""
    print(f"{count} groups a row, 2 to {most} jobs, seed {seed}")
    print(
        f"{'kind':<34} {'orders':>6} {'none':>4} {'bad':>3} {'LB = least':>10} {'at LB':>7} "
        f"{'optimal':>7} {'decided':>7} {'mean gap':>8} {'worst':>7} "
        f"{'us/call':>8} {'oracle ms':>9}"
    )
    for kind in KINDS:
        rng = random.Random(f"{kind.name} {seed}")
        groups = [random_group(rng, kind, 2 + i % (most - 1)) for i in range(count)]
        began = time.perf_counter()
        least = [least_period(*data)[0] for data in groups]
        oracle_ms = (time.perf_counter() - began) / count * 1e3
        reached = sum(
            period <= lower_bound(*data) * (1 + SAME)
            for data, period in zip(groups, least, strict=True)
        )
        for orders in (5, 2):
            row = measure(groups, least, orders)
            print(
                f"{kind.name:<34} {orders:>6} {row['none']:>4} {row['invalid']:>3} "
                f"{reached / count:>10.1%} {row['at LB']:>7.1%} {row['optimal']:>7.1%} "
                f"{row['decided']:>7.1%} {row['mean gap']:>8.2%} {row['worst gap']:>7.1%} "
                f"{row['us']:>8.0f} {oracle_ms:>9.1f}"
            )


if __name__ == "__main__":
    main()
