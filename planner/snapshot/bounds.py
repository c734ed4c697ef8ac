"""Every lower bound of a snapshot, side by side: who proves how much, in how long.

:func:`planner.snapshot.solving.solve_snapshot` reports the best bound alone; this is for those who
want to see what each step from the volume bound to the linear programs is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from instances.trace import Trace
from models.bounds.volume import VOLUME, least_fleet_usd, volume
from models.problem.options import SolveOptions
from models.problem.snapshot import FleetCaps, Snapshot
from planner.replay.moment import Selection, problem_of

__all__ = ["SnapshotBound", "snapshot_bounds"]

_LIMITS: Final = Limits()
_PEAK: Final = Selection.peak()
_NO_CAPS: Final = FleetCaps()


@dataclass(frozen=True, kw_only=True)
class SnapshotBound:
    """One bound of one snapshot.

    Attributes
    ----------
    method : str
        ``volume``, ``pool-decomposition``, and ``group-lp`` where groups are limited, or
        ``coupled`` where they are not.
    usd_per_hour : float
        No valid plan within the limits costs less, $/h; dedicated nodes of async jobs included.
    finished : bool
        Whether the method ended by itself; stopped by the time limit it proves less.
    seconds : float or None
        When a clock was given.
    """

    method: str
    usd_per_hour: float
    finished: bool
    seconds: float | None = None


def snapshot_bounds(
    trace: Trace | JobTable,
    *,
    select: Selection = _PEAK,
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    time_limit_s: float | None = None,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
) -> tuple[SnapshotBound, ...]:
    """Return every lower bound of the least cost of one moment, the weakest first.

    Each is raised to the least price of whole nodes. With ``max_rate`` above 1 only the first two
    hold.

    Parameters
    ----------
    trace : Trace or JobTable
        From :func:`read_trace`, or jobs made in Python.
    select : Selection
        Which moment; by default the earliest with the most jobs present.
    cluster, limits
        GPUs and prices, limits on one group.
    time_limit_s : float, optional
        Of all bounds together.
    seed : int
        Of solvers.
    clock : callable, optional
        Seconds from an arbitrary origin; given, each bound is timed.

    Returns
    -------
    tuple of SnapshotBound

    Raises
    ------
    InputError
        When nobody is present at that moment, or an argument is out of its range.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> trace = read_trace(catalog_path("tiny-open-shop"))
    >>> [(bound.method, round(bound.usd_per_hour, 2)) for bound in snapshot_bounds(trace)]
    [('volume', 57.04), ('pool-decomposition', 57.04), ('group-lp', 57.04)]
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    problem = problem_of(trace, select, cluster, limits, _NO_CAPS)
    options = SolveOptions(time_limit_s=time_limit_s, seed=seed)
    dedicated = problem.dedicated_nodes
    usd = cluster.usd_per_hour(dedicated["rollout"], dedicated["train"])
    if not len(problem.snapshot):  # async jobs only
        return (SnapshotBound(method=VOLUME, usd_per_hour=usd, finished=True),)
    return _bounds(problem.snapshot, options, usd, clock)


def _bounds(
    snapshot: Snapshot,
    options: SolveOptions,
    dedicated_usd: float,
    clock: Callable[[], float] | None,
) -> tuple[SnapshotBound, ...]:
    from models.bounds.columns import pool_decomposition
    from models.bounds.coupled import coupled_bound
    from models.bounds.group_lp import group_lp_bound

    deadline, began = options.start(), clock() if clock else 0.0
    out: list[SnapshotBound] = []

    def add(method: str, usd: float, *, finished: bool) -> None:
        nonlocal began
        now = clock() if clock else 0.0
        out.append(
            SnapshotBound(
                method=method,
                usd_per_hour=usd + dedicated_usd,
                finished=finished,
                seconds=now - began if clock else None,
            )
        )
        began = now

    weak = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    add(VOLUME, weak.usd_per_hour, finished=True)
    pools = pool_decomposition(snapshot, deadline, threads=options.threads, seed=options.seed)
    stopped = pools.rollout.stopped_by or pools.train.stopped_by
    add(pools.method, max(pools.usd_per_hour, weak.usd_per_hour), finished=stopped is None)
    if snapshot.limits.max_rate == 1:
        tighter = group_lp_bound if snapshot.limits.max_group_size else coupled_bound
        last = tighter(snapshot, deadline, start=pools, threads=options.threads, seed=options.seed)
        usd = least_fleet_usd(
            last.usd_per_hour, pools.rollout.nodes, pools.train.nodes, snapshot.cluster
        )
        usd = max(usd, out[-1].usd_per_hour - dedicated_usd)
        add(last.method, usd, finished=last.stopped_by is None)
    return tuple(out)
