"""The independent checker's half for a fixed fleet: jobs that waited, and nodes that exist.

Where there is nothing to rent, a job may start after it arrives. A plan names each such job with
its start; all others start on arrival. Dedicated, held and failed nodes count against the fleet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite

from instances.group_checker import TOLERANCE_S, Log, show
from instances.loss_checker import check_outages
from instances.plan import Plan

__all__ = ["check_fleet", "node_levels", "starts_of"]

#: (from_s, to_s, rollout nodes, train nodes) of nodes that somebody holds.
Holding = tuple[float, float, int, int]


def starts_of(plan: Plan, index: Mapping[str, int], log: Log) -> dict[str, float]:
    """Return when jobs start that waited; each is known, has one start, and none too early.

    A start is at or after the job's arrival. A snapshot is one moment: nobody waits in it.
    """
    starts: dict[str, float] = {}
    if plan.durations == "snapshot":
        if n := len(plan.starts):
            log.add("start", f"Expected no starts in a snapshot, got {n}.", n, "starts")
        return starts
    for start in plan.starts:
        job_id, at_s = start.job_id, start.at_s
        if (i := index.get(job_id)) is None:
            text = f"Expected starts of jobs of the plan's table, got unknown job '{job_id}'."
            log.add("start", text, 1, "jobs", job_id)
        elif job_id in starts:
            log.add(
                "start", f"Expected one start of job '{job_id}', got more.", 1, "starts", job_id
            )
        elif not isfinite(at_s):
            text = f"Expected a finite start of job '{job_id}', got {at_s}."
            log.add("start", text, inf, "s", job_id)
        else:
            starts[job_id] = at_s
            arrival_s = plan.jobs.arrival_s.item(i)
            if not at_s >= arrival_s - TOLERANCE_S:
                what = f"start of job '{job_id}' >= its arrival,"
                log.off("start", what, arrival_s, at_s, "s", "early", job_id)
    return starts


def node_levels(holdings: Iterable[Holding]) -> Iterator[tuple[float, int, int]]:
    """Yield ``(time, rollout nodes, train nodes)`` after each change; ends go before starts."""
    events: list[tuple[float, int, int]] = []
    for from_s, to_s, rollout, train in holdings:
        if -inf < from_s < to_s < inf:
            events += [(from_s, rollout, train), (to_s - TOLERANCE_S, -rollout, -train)]
    rollout_now = train_now = 0
    for at_s, rollout, train in sorted(events):
        rollout_now += rollout
        train_now += train
        yield at_s, rollout_now, train_now


def check_fleet(plan: Plan, holdings: Iterable[Holding], log: Log) -> None:
    """Nodes that exist at once, of each pool, are at most the fleet's: one violation a pool."""
    fleet, failed = plan.fleet, check_outages(plan, log)
    if fleet is None:
        return
    levels = list(node_levels([*holdings, *failed]))
    for i, (pool, most) in enumerate(
        (("rollout", fleet.rollout_nodes), ("train", fleet.train_nodes)), start=1
    ):
        over = [level for level in levels if level[i] > most]
        if over:
            what = f"{pool} nodes at once (over the fleet from {show(over[0][0])} s on) <="
            log.off("fleet", what, most, max(level[i] for level in over), "nodes", "many")
