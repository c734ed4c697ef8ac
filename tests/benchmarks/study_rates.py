"""Where several iterations per period pay: which jobs can share nodes with rates up to 4.

Run ``python tests/benchmarks/study_rates.py [pairs|snapshots|all]`` (default all; the first
takes half a minute, the second two). Jobs are production-like, one node of each kind.

* ``pairs``: 6,000 random pairs of jobs of ten traces, each decided exactly on one node of each
  kind, by length ratio (longer iteration over shorter), rollout share of the iterations, SLO of
  the longer job, switch seconds (of every job, in each pool) and host DRAM. Columns: pairs that
  share in strict rounds, with rates up to 4, and as far as loads alone say; of the pairs that
  share only with rates the worst single iteration over the mean (median and largest), and the
  part of them where it is longer than the deadline.
* ``snapshots``: twelve jobs at once, seeds 0 to 4: proved optimum with rates up to 2 and 4 over
  the proved strict optimum, over the same variants.

All figures depend on nothing but the seeds.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from models.exact.methods import solve
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.result import Termination
from models.problem.snapshot import PlacedGroup, Snapshot
from planner.replay.iterations import iteration_seconds_of

PAIRS = 600
TRACES = range(10)
TRACE_JOBS = 60
SNAPSHOT_JOBS = 12
SNAPSHOT_SEEDS = range(5)
MOST_RATE = 4

Change = Callable[[JobTable], JobTable]


@dataclass(frozen=True)
class Pair:
    """Two jobs, and the groups they can be on one node of each kind."""

    ratio: float
    rollout_share: float
    slo: float
    strict: bool
    loads: bool
    group: PlacedGroup | None
    deadline_s: tuple[float, ...]

    @property
    def only_with_rates(self) -> bool:
        """Whether the pair shares, but not in strict rounds."""
        return self.group is not None and not self.strict

    def worst(self) -> tuple[float, float]:
        """Return the worst single iteration over the mean, and over the deadline."""
        assert self.group is not None
        over_mean, over_deadline = 0.0, 0.0
        for starts, deadline in zip(self.group.starts_s, self.deadline_s, strict=True):
            longest = max(iteration_seconds_of(starts, self.group.period_s))
            over_mean = max(over_mean, longest * len(starts) / self.group.period_s)
            over_deadline = max(over_deadline, longest / deadline)
        return over_mean, over_deadline


def with_switch(seconds: float) -> Change:
    """Every job pays so many seconds in each pool."""

    def change(table: JobTable) -> JobTable:
        each = [seconds] * len(table)
        return table.replace(rollout_switch_s=each, train_switch_s=each)

    return change


def with_slo(slo: float) -> Change:
    """Every job has this SLO."""
    return lambda table: table.replace(slo=[slo] * len(table))


def as_it_is(table: JobTable) -> JobTable:
    """No change."""
    return table


def dram(gb: float) -> Cluster:
    """Nodes of so much host DRAM."""
    rollout, train = DEFAULT_CLUSTER.rollout, DEFAULT_CLUSTER.train
    return DEFAULT_CLUSTER.replace(
        rollout=replace(rollout, host_dram_gb=gb), train=replace(train, host_dram_gb=gb)
    )


def pairs(change: Change = as_it_is, cluster: Cluster = DEFAULT_CLUSTER) -> Iterator[Pair]:
    """Yield the pairs of every trace, decided."""
    for seed in TRACES:
        table = change(production(n_jobs=TRACE_JOBS, seed=seed))
        rng = np.random.default_rng(seed)
        for _ in range(PAIRS):
            members = rng.choice(TRACE_JOBS, size=2, replace=False)
            two = table.take(sorted(members.tolist()))
            yield decided(two, cluster)


def decided(two: JobTable, cluster: Cluster) -> Pair:
    """Decide one pair on one node of each kind, strictly and with rates."""
    jobs = tuple(two)
    solo = [job.solo_s for job in jobs]
    costs = [
        GroupCost(Snapshot(table=two, cluster=cluster, limits=Limits(max_rate=rate)))
        for rate in (1, MOST_RATE)
    ]
    longer = max(jobs, key=lambda job: job.solo_s)
    return Pair(
        ratio=max(solo) / min(solo),
        rollout_share=sum(job.rollout_s for job in jobs) / sum(solo),
        slo=longer.slo,
        strict=costs[0].decide((0, 1), (1, 1)) is not None,
        loads=costs[1].least_nodes((0, 1)) == (1, 1),
        group=costs[1].decide((0, 1), (1, 1)),
        deadline_s=tuple(job.deadline_s for job in jobs),
    )


def percent(part: int, whole: int) -> str:
    """Return a share, or a dash of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def print_pairs(words: str, found: Sequence[Pair]) -> None:
    """Print one row."""
    new = [pair.worst() for pair in found if pair.only_with_rates]
    over_mean = [mean for mean, _ in new]
    late = sum(deadline > 1 + 1e-9 for _, deadline in new)
    spread = f"{statistics.median(over_mean):.2f}, {max(over_mean):.2f}" if new else "-"
    print(
        f"| {words} | {len(found):,} | {percent(sum(p.strict for p in found), len(found))} | "
        f"{percent(sum(p.group is not None for p in found), len(found))} | "
        f"{percent(sum(p.loads for p in found), len(found))} | {spread} | "
        f"{percent(late, len(new))} |",
        flush=True,
    )


def bucketed(
    name: str, key: Callable[[Pair], float], edges: Sequence[float], found: Sequence[Pair]
) -> None:
    """Print one row per interval between edges."""
    for low, high in pairwise(edges):
        within = [pair for pair in found if low <= key(pair) < high]
        print_pairs(f"{name} {low:g} to {high:g}", within)


def study_pairs() -> None:
    """Print the table of pairs."""
    print("| pairs | number | strict | rates to 4 | loads alone | worst over mean | late |")
    print("|---|---|---|---|---|---|---|")
    base = list(pairs())
    print_pairs("all", base)
    bucketed("length ratio", lambda pair: pair.ratio, (1, 1.25, 1.5, 2, 3, 4, 20), base)
    bucketed("rollout share", lambda pair: pair.rollout_share, (0.3, 0.5, 0.6, 0.7, 0.9), base)
    bucketed("SLO of the longer", lambda pair: pair.slo, (1, 1.25, 1.5, 1.75, 2.01), base)
    for seconds in (0.0, 5.0, 20.0):
        print_pairs(f"switches {seconds:g} s", list(pairs(with_switch(seconds))))
    for gb in (600.0, 800.0, 1000.0):
        print_pairs(f"host DRAM {gb:g} GB", list(pairs(cluster=dram(gb))))


def optimum(table: JobTable, cluster: Cluster, rate: int) -> float:
    """Return the proved least cost, $/h."""
    snapshot = Snapshot(table=table, cluster=cluster, limits=Limits(max_rate=rate))
    result = solve("exhaustive", snapshot, SolveOptions())
    assert result.termination is Termination.OPTIMAL
    assert result.usd_per_hour is not None
    return result.usd_per_hour


def study_snapshots() -> None:
    """Print the table of snapshots."""
    print("| 12 jobs at once | strict over solo | to 2 over strict | to 4 over strict | range |")
    print("|---|---|---|---|---|")
    variants: list[tuple[str, Change, Cluster]] = [
        ("SLO uniform in 1 to 2, default switches, 2,000 GB", as_it_is, DEFAULT_CLUSTER)
    ]
    variants += [(f"SLO {slo:g}", with_slo(slo), DEFAULT_CLUSTER) for slo in (1.1, 1.25, 1.5, 2.0)]
    variants += [
        (f"switches {seconds:g} s", with_switch(seconds), DEFAULT_CLUSTER)
        for seconds in (0.0, 5.0, 20.0)
    ]
    variants += [(f"host DRAM {gb:g} GB", as_it_is, dram(gb)) for gb in (600.0, 1000.0)]
    for words, change, cluster in variants:
        shares: list[float] = []
        more: dict[int, list[float]] = {2: [], 4: []}
        for seed in SNAPSHOT_SEEDS:
            table = change(production(n_jobs=SNAPSHOT_JOBS, seed=seed))
            strict = optimum(table, cluster, 1)
            solo = len(table) * cluster.usd_per_hour(1, 1)
            shares.append(strict / solo)
            for rate, ratios in more.items():
                ratios.append(optimum(table, cluster, rate) / strict)
        print(
            f"| {words} | {statistics.mean(shares):.2f} | {statistics.mean(more[2]):.2f} | "
            f"{statistics.mean(more[4]):.2f} | {min(more[4]):.2f} to {max(more[4]):.2f} |",
            flush=True,
        )


def main() -> None:
    """Print what is asked for."""
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    if what in ("pairs", "all"):
        study_pairs()
    if what in ("snapshots", "all"):
        study_snapshots()


if __name__ == "__main__":
    main()
