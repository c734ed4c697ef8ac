"""How long ``repack`` takes to decide, and what its fleet costs, by number of jobs present.

    python tests/benchmarks/bench_repack.py [JOBS,JOBS,..] [EVENTS] [MOST_TOGETHER]

A fleet of generated production jobs (``instances.generate.production``) is built by arrivals and
then kept at its size for EVENTS (default 60) departures, each followed by an arrival, an hour
apart in a fleet of 20 jobs and in proportion oftener in larger ones. Of these events CPU
milliseconds a decision (the machine may be busy otherwise), moves per event, and the price of the
fleet over a lower bound: the least price where set partitioning proves it, mean over every tenth
event, else the bound of local search after the last. ``weave`` takes the same events. Figures are
for comparison within one run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from planner.policies.policy import Change, Policy, PolicyOptions
from planner.policies.registry import make_policy
from planner.policies.repack_params import RepackParams
from planner.replay.moment import Selection
from planner.snapshot.solving import solve_snapshot

_HOUR_S = 3600.0
#: Jobs up to which the least price is proved.
_EXACT_JOBS = 41
_BOUND_S = 60.0


@dataclass
class Fleet:
    """A fleet under one policy: jobs present, nodes by group, moves made."""

    policy: Policy
    here: list[Job] = field(default_factory=list)
    nodes: dict[int, tuple[int, int]] = field(default_factory=dict)
    moves: int = 0

    def apply(self, change: Change) -> None:
        """Take the policy's answer."""
        for number in change.ended:
            self.nodes.pop(number, None)
        for state in change.groups:
            self.nodes[state.number] = (len(state.rollout_nodes), len(state.train_nodes))
        self.moves += len(change.moved)

    @property
    def usd_per_hour(self) -> float:
        """Price of all nodes."""
        rollout, train = np.array(list(self.nodes.values())).sum(axis=0)
        return DEFAULT_CLUSTER.usd_per_hour(int(rollout), int(train))


def churned(
    policy: Policy, jobs: list[Job], present: int, events: int, every: int
) -> Iterator[Fleet]:
    """Build a fleet, keep it at its size, and yield it after every so many departures."""
    fleet = Fleet(policy)
    rng = np.random.default_rng(0)
    for job in jobs[:present]:
        fleet.apply(policy.arrive(job, 0.0))
        fleet.here.append(job)
    fleet.moves = 0
    now_s = 24 * _HOUR_S
    for number, job in enumerate(jobs[present : present + events], start=1):
        now_s += 20 / present * _HOUR_S
        gone = fleet.here.pop(int(rng.integers(len(fleet.here))))
        fleet.apply(policy.depart(gone, now_s))
        fleet.apply(policy.arrive(job, now_s))
        fleet.here.append(job)
        if number % every == 0:
            yield fleet


def bound_of(jobs: list[Job]) -> tuple[float, str]:
    """Return a lower bound of the price of these jobs, $/h, and its method."""
    found = solve_snapshot(
        JobTable.from_jobs(jobs),
        select=Selection.all_jobs(),
        method="set-partition" if len(jobs) <= _EXACT_JOBS else "local-search",
        time_limit_s=_BOUND_S,
    )
    assert found.bound_usd_per_hour is not None
    return found.bound_usd_per_hour, str(found.bound_method)


def main() -> None:
    """Print one row per policy and number of jobs."""
    sizes = [int(n) for n in (sys.argv[1] if len(sys.argv) > 1 else "20,41,100,500").split(",")]
    events = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    params = RepackParams()
    if len(sys.argv) > 3:
        params = RepackParams(max_scope=int(sys.argv[3]))
    out = Table("jobs", "policy", "$/h", "over the bound", "bound", "moves an event", "p50 ms",
                "p90 ms", "max ms")  # fmt: skip
    for present in sizes:
        jobs = [replace(job, arrival_s=0.0) for job in production(n_jobs=present + events, seed=0)]
        every = 10 if present <= _EXACT_JOBS else events
        bounds: list[tuple[float, str]] = []
        for name in ("weave", "repack"):
            options = PolicyOptions(cluster=DEFAULT_CLUSTER, repack=params, clock=time.process_time)
            policy = make_policy(name, options)
            ratios, usd = [], []
            for number, fleet in enumerate(churned(policy, jobs, present, events, every)):
                if name == "weave":
                    bounds.append(bound_of(fleet.here))
                usd.append(fleet.usd_per_hour)
                ratios.append(fleet.usd_per_hour / bounds[number][0])
            took = np.array(policy.decision_s[present:]) * 1e3  # type: ignore[attr-defined]
            p50, p90, most = np.percentile(took, [50, 90, 100])
            out.add_row(
                str(present), name, f"{np.mean(usd):,.0f}", f"{np.mean(ratios):.3f}",
                bounds[-1][1], f"{fleet.moves / (2 * events):.2f}", f"{p50:.1f}", f"{p90:.1f}",
                f"{most:.1f}",
            )  # fmt: skip
    Console(width=110).print(out)


if __name__ == "__main__":
    main()
