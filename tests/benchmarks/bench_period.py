"""Quality and speed of the constructive schedule against the least period of the oracle.

Run ``python tests/benchmarks/bench_period.py [groups per row] [most jobs] [seed]`` (default
200, 4 and 1; five jobs take minutes). Each row is one kind of random group: phases uniform in
50 to 900 s (rollout) and 50 to 400 s (train), 2 jobs to the most.

``at LB`` and ``optimal`` are shares of the groups whose period with no limit equals LB(g) and
the least period; the gap is ``period / least - 1``; ``decided`` is the share of groups for
which a schedule is found when the limit *is* the least period, so that every rejection is a
wrong one. ``orders`` is how many insertion orders are tried: 5 by default, 2 in the placer.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.period import GroupShape, construct
from oracles.least_period import Data, least_period, lower_bound, verify

#: Relative difference below which two periods are equal.
SAME = 1e-7


class Kind(NamedTuple):
    """What random groups of one kind have."""

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
)


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
        pins(kind.rollout_nodes),
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
    began = time.perf_counter()
    found = [construct(shape, orders=orders) for shape in shapes]
    seconds = time.perf_counter() - began
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


def main() -> None:
    """Print the table."""
    given = [int(x) for x in sys.argv[1:]]
    count, most, seed = (*given, *(200, 4, 1)[len(given) :])
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
