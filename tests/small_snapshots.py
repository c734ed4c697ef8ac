"""Small snapshots by hand and at random, judged by oracles, for the tests of the exact methods.

Random seconds are multiples of 0.5, and deadlines of 0.125, by an slo in quarters or up to
round-off: on CP-SAT's grid, and far enough from every least period that an oracle never has
to call it close. Values are few, so that ties, full nodes and exact deadlines are common.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job
from instances.plan import Limits
from models.problem.snapshot import FleetCaps, Snapshot
from oracles.least_snapshot import Counts, Least, group_front, least_snapshot

__all__ = [
    "BRIDGE",
    "FIVE_FRONT",
    "MIXES",
    "PRECEDENCE",
    "Mix",
    "Points",
    "five_gangs",
    "fleets_of",
    "full_jobs",
    "gangs_that_all_meet",
    "jobs_of",
    "oracle_front",
    "oracle_fronts",
    "oracle_of",
    "pareto",
    "random_jobs",
    "random_snapshot",
    "snapshot_of",
]


def jobs_of(
    rollout_s: Sequence[float],
    train_s: Sequence[float],
    sync_s: Sequence[float] | None = None,
    *,
    deadline_s: float | None = None,
    **columns: Sequence[Any],
) -> list[Job]:
    """Return jobs ``j0``, ``j1``, ... from columns; a common deadline sets slo = deadline / T.

    What is not given is 0, one node of each kind, slo 1.
    """
    sync_s = (0.0,) * len(rollout_s) if sync_s is None else sync_s
    jobs = []
    for j, (r, t, s) in enumerate(zip(rollout_s, train_s, sync_s, strict=True)):
        slo = 1.0 if deadline_s is None else deadline_s / (r + t + s)
        more = {"slo": slo, **{name: values[j] for name, values in columns.items()}}
        jobs.append(Job(job_id=f"j{j}", rollout_s=r, train_s=t, sync_s=s, **more))
    return jobs


def snapshot_of(
    jobs: Sequence[Job],
    *,
    cluster: Cluster = DEFAULT_CLUSTER,
    caps: tuple[int | None, int | None] = (None, None),
    size: int = 0,
    nodes: tuple[int | None, int | None] = (None, None),
) -> Snapshot:
    """Return a snapshot.

    Parameters
    ----------
    caps : (int or None, int or None)
        Most rollout and train nodes of the fleet.
    size : int
        Most jobs of a group, 0 for no limit.
    nodes : (int or None, int or None)
        Most rollout and train nodes of a group.
    """
    return Snapshot.of(
        jobs,
        cluster,
        Limits(max_group_size=size, max_rollout_nodes=nodes[0], max_train_nodes=nodes[1]),
        FleetCaps(max_rollout_nodes_total=caps[0], max_train_nodes_total=caps[1]),
    )


def oracle_of(snapshot: Snapshot) -> Least:
    """Return the least cost of a snapshot of at most five jobs by the independent oracle."""
    return least_snapshot(
        snapshot.jobs,
        snapshot.cluster,
        snapshot.limits,
        max_rollout_nodes_total=snapshot.caps.max_rollout_nodes_total,
        max_train_nodes_total=snapshot.caps.max_train_nodes_total,
    )


def oracle_front(snapshot: Snapshot, members: Sequence[int]) -> list[Counts]:
    """Return the front of at most five jobs as one group by the independent oracle."""
    jobs = [snapshot.jobs[i] for i in members]
    return group_front(jobs, snapshot.cluster, snapshot.limits)


Points = Mapping[tuple[int, ...], Sequence[Counts]]


def oracle_fronts(snapshot: Snapshot) -> dict[tuple[int, ...], list[Counts]]:
    """Return the front of every set of jobs that can be one group, by the independent oracle."""
    every = range(len(snapshot))
    fronts = {
        members: oracle_front(snapshot, members)
        for size in range(1, len(snapshot) + 1)
        for members in combinations(every, size)
    }
    return {members: front for members, front in fronts.items() if front}


def fleets_of(points: Points, members: Sequence[int]) -> set[Counts]:
    """Return the total nodes of every way to part the jobs into groups at one of their points."""
    if not members:
        return {(0, 0)}
    found = set()
    for group, choices in points.items():
        if members[0] in group and set(group) <= set(members):
            rest = fleets_of(points, [i for i in members if i not in group])
            found |= {(r + a, t + b) for r, t in choices for a, b in rest}
    return found


def pareto(fleets: Iterable[Counts]) -> list[Counts]:
    """Return the pairs that no other is within, fewest rollout nodes first."""
    out: list[Counts] = []
    for rollout, train in sorted(set(fleets)):
        if not out or train < out[-1][1]:
            out.append((rollout, train))
    return out


# --- by hand (FORMULATION section 4; derivations beside the oracle's tests) ---------------------

#: Loads admit one node of each kind, no schedule does: front (1, 2), (2, 1).
PRECEDENCE: Final = jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=11)
#: Front (2, 3), (3, 2): neither pool's least number of nodes goes with the other's.
FIVE_FRONT: Final = jobs_of((4, 1, 3, 1, 3), (1, 4, 1, 4, 2), (1, 1, 2, 0, 1), deadline_s=6)


#: D = 6; jobs 0 and 1 can share no node (1500 GB each); job 2 shares a rollout node with 0 only
#: (5 + 2 > 6 trains) and a train node with 1 only: (2, 2) for all, cheaper than any split.
BRIDGE: Final = jobs_of(
    (1, 5, 2),
    (5, 1, 2),
    deadline_s=6,
    rollout_state_gb=(1500, 1500, 500),
    train_state_gb=(1500, 1500, 500),
)


def gangs_that_all_meet(deadline_s: float) -> list[Job]:
    """Return gangs of 3, 2, 3, 2 and 2 nodes: on three nodes their rollouts take turns, 34 s."""
    return jobs_of(
        (5, 3, 11, 6, 9), (3, 4, 6, 5, 3), deadline_s=deadline_s, rollout_nodes=(3, 2, 3, 2, 2)
    )


def five_gangs(deadline_s: float) -> list[Job]:
    """Return five rollouts of 1 s on two nodes each; five nodes are never enough below 2.5 s."""
    return jobs_of((1,) * 5, (0.25,) * 5, deadline_s=deadline_s, rollout_nodes=(2,) * 5)


# --- at random --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What random jobs may have, apart from phases and slo."""

    sync: bool = False
    switches: bool = False
    states: bool = False
    gangs: bool = False

    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Return the values that each field of a job is drawn from."""
        seconds = tuple(x / 2 for x in range(1, 13))
        states = (0.0, 500.0, 1000.0, 1500.0) if self.states else (0.0,)
        switches = (0.0, 0.0, 0.5) if self.switches else (0.0,)
        return {
            "rollout_s": seconds,
            "train_s": seconds,
            "sync_s": (0.0, 0.5, 1.0, 3.0) if self.sync else (0.0,),
            "slo": (1.0, 1.25, 1.5, 2.0, 3.0),
            "rollout_nodes": (1, 1, 2) if self.gangs else (1,),
            "train_nodes": (1, 1, 1, 2) if self.gangs else (1,),
            "rollout_state_gb": states,
            "train_state_gb": states,
            "rollout_switch_s": switches,
            "train_switch_s": switches,
        }


MIXES: Final = {
    "open-shop": Mix(),
    "sync": Mix(sync=True),
    "switches": Mix(sync=True, switches=True),
    "states": Mix(sync=True, states=True),
    "gangs": Mix(gangs=True),
    "all": Mix(sync=True, switches=True, states=True, gangs=True),
}


def random_jobs(rng: random.Random, n: int, mix: Mix, *, together: bool = False) -> list[Job]:
    """Return ``n`` jobs of one mix.

    Parameters
    ----------
    together : bool
        Raise each slo to where every job's iteration is within every deadline, or by a quarter
        more, so that one group of all jobs is a matter of nodes.
    """
    choices = mix.choices()
    jobs = [
        Job(job_id=f"j{j}", **{name: rng.choice(values) for name, values in choices.items()})
        for j in range(n)
    ]
    if not together:
        return jobs
    longest = max(job.solo_s for job in jobs)
    least = [math.ceil(4 * longest / job.solo_s) / 4 for job in jobs]
    return [
        replace(job, slo=max(job.slo, slo + rng.choice((0, 0, 0.25))))
        for job, slo in zip(jobs, least, strict=True)
    ]


def full_jobs(rng: random.Random, n: int, nodes: Counts = (1, 1), slack_s: int = 1) -> list[Job]:
    """Return ``n`` jobs of one deadline ``C`` that fill so many nodes to the last second.

    Rollouts sum to ``C`` times the rollout nodes, trains likewise, and each iteration takes
    ``C`` less 0 to ``slack_s`` seconds. Loads admit such groups, and often no schedule exists.
    """
    period = rng.choice((6, 8, 11))
    while True:
        rollout_s, train_s = (_whole_parts(rng, pool * period, n) for pool in nodes)
        rest = [period - r - t for r, t in zip(rollout_s, train_s, strict=True)]
        if min(rest) >= 0:
            break
    sync_s = [max(s - rng.randint(0, slack_s), 0) for s in rest]
    return jobs_of(rollout_s, train_s, sync_s, deadline_s=period)


def _whole_parts(rng: random.Random, total: int, n: int) -> list[int]:
    """Return ``n`` whole numbers above 0 of a sum."""
    cuts = sorted(rng.sample(range(1, total), n - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def random_snapshot(
    rng: random.Random, n: int, mix: Mix, *, limited: bool = False, capped: bool = False
) -> Snapshot:
    """Return ``n`` jobs of one mix without limits, or with limits and caps that may bind.

    In three of four cases all jobs may be together as far as deadlines go.

    Parameters
    ----------
    limited : bool
        Draw limits of a group.
    capped : bool
        Draw caps of the fleet; some leave no plan.
    """
    jobs = random_jobs(rng, n, mix, together=rng.random() < 0.75)
    caps: tuple[int | None, int | None] = (None, None)
    size, nodes = 0, caps
    if limited:
        size = rng.randint(0, 3)
        nodes = rng.choice((None, None, 2, 3)), rng.choice((None, None, 1, 2))
    if capped:
        caps = rng.choice((None, *range(1, n + 2))), rng.choice((None, *range(1, n + 1)))
    return snapshot_of(jobs, caps=caps, size=size, nodes=nodes)
