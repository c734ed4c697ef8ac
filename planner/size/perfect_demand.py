"""What a perfect system would need over time: bounds of nodes, and the nodes of optimal plans.

Under ``wallclock`` who is present when does not depend on the policy, so every moment has a least
number of nodes of each pool (the volume bound), and a plan of least cost. Under ``work`` sharing
stretches stays, and only the node-hours of all the work have a bound (:func:`work_node_hours`).
"""

from __future__ import annotations

import numpy as np

from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from models.bounds.volume import VolumeSums
from planner.gap.moments import moments_of
from planner.gap.proving import GapReport
from planner.replay.demand import Demand, IntArray, Pool

__all__ = ["optimum_demand", "volume_demand", "work_node_hours"]

_HOUR_S = 3600.0


def volume_demand(jobs: JobTable, cluster: Cluster, limits: Limits) -> Demand:
    """Return the fewest nodes of each pool at every moment, each job staying ``duration_s``.

    The volume bound of the sync jobs present (:mod:`models.bounds.volume`) plus the nodes of the
    async ones: no policy with valid plans holds fewer of either pool at that moment
    (``wallclock``).

    Parameters
    ----------
    jobs : JobTable
    cluster : Cluster
    limits : Limits
        Only ``max_group_size`` enters.

    Returns
    -------
    Demand
        From the first arrival to the last departure.
    """
    ends_s = jobs.arrival_s + jobs.duration_s
    turns = np.unique(np.concatenate([jobs.arrival_s, ends_s]))
    come = np.argsort(jobs.arrival_s, kind="stable").tolist()
    gone = np.argsort(ends_s, kind="stable").tolist()
    sums, dedicated = VolumeSums(cluster, limits), np.zeros(2, dtype=np.int64)
    nodes = np.zeros((max(len(turns) - 1, 0), 2), dtype=np.int64)
    next_come = next_gone = 0
    for row, now_s in enumerate(turns[:-1].tolist()):
        while next_gone < len(gone) and ends_s[gone[next_gone]] <= now_s:
            _shift(jobs, gone[next_gone], -1, sums, dedicated)
            next_gone += 1
        while next_come < len(come) and jobs.arrival_s[come[next_come]] <= now_s:
            _shift(jobs, come[next_come], 1, sums, dedicated)
            next_come += 1
        bound = sums.bound()
        nodes[row] = dedicated
        nodes[row] += np.array([bound.rollout_nodes, bound.train_nodes])
    return Demand(
        name="volume bound",
        hours=np.diff(turns) / _HOUR_S,
        rollout_nodes=nodes[:, 0],
        train_nodes=nodes[:, 1],
    )


def _shift(jobs: JobTable, i: int, sign: int, sums: VolumeSums, dedicated: IntArray) -> None:
    """Count a job that comes (sign 1) or goes (-1)."""
    job = jobs.job(i)
    if job.mode == "async":
        dedicated += sign * np.array((job.rollout_nodes, job.train_nodes))
    elif sign > 0:
        sums.add(job)
    else:
        sums.remove(job)


def optimum_demand(report: GapReport) -> Demand:
    """Return the nodes of the cheapest plan held at every moment, those of async jobs added.

    Parameters
    ----------
    report : GapReport
        Moments that the run did not come to hold the policy's own price and no plan: they are
        refused by :class:`ValueError`.

    Returns
    -------
    Demand
        Of least cost at every moment that is proved; among plans of one cost, of the one found.
    """
    jobs = report.trace.jobs
    apart = [jobs.job(i) for i in jobs.where_mode("async").tolist()]
    solved = {row.moment.from_s: row.solved for row in report.rows}
    hours, nodes = [], []
    for moment in moments_of(report.result):
        held = solved.get(moment.from_s)
        if held is None and moment.jobs:
            raise ValueError("Expected every moment solved.")
        counts = [group.nodes for group in held.groups] if held is not None else []
        counts += [
            (job.rollout_nodes, job.train_nodes)
            for job in apart
            if job.arrival_s <= moment.from_s < job.arrival_s + job.duration_s
        ]
        hours.append(moment.hours)
        nodes.append(np.array(counts, dtype=np.int64).reshape(-1, 2).sum(axis=0))
    found = np.array(nodes, dtype=np.int64).reshape(-1, 2)
    return Demand(
        name="snapshot optimum",
        hours=np.array(hours),
        rollout_nodes=found[:, 0],
        train_nodes=found[:, 1],
    )


def work_node_hours(jobs: JobTable) -> dict[Pool, float]:
    """Return the node-hours that the work of a trace keeps busy, whatever shares them.

    ``sum_j iterations_j a_j phase_j`` of jobs that share nodes (FORMULATION section 3), and the
    whole stays of async ones: no policy with valid plans holds fewer node-hours of either pool.
    """
    sharing, apart = jobs.take(jobs.where_sharing()), jobs.take(jobs.where_mode("async"))
    out: dict[Pool, float] = {}
    for pool, seconds, width, alone in (
        ("rollout", sharing.rollout_s, sharing.rollout_nodes, apart.rollout_nodes),
        ("train", sharing.train_s, sharing.train_nodes, apart.train_nodes),
    ):
        busy_s = float(np.dot(sharing.iterations * seconds, width))
        busy_s += float(np.dot(apart.duration_s, alone))
        out[pool] = busy_s / _HOUR_S  # type: ignore[index]
    return out
