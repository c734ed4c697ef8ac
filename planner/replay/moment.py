"""Which jobs of a trace a snapshot holds, and the problem they pose.

A job is present during ``[arrival_s, arrival_s + duration_s)``: from its arrival on, and no
longer at the moment it would leave if it ran alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.hardware import Cluster
from instances.jobs import Job, JobTable
from instances.plan import Limits
from instances.trace import Trace
from models.problem.result import Conflict
from models.problem.snapshot import FleetCaps, Snapshot

__all__ = ["Problem", "Selection", "problem_of"]

BoolArray = npt.NDArray[np.bool_]
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which jobs of a trace to plan for: made by :meth:`peak`, :meth:`at` or :meth:`all_jobs`.

    Attributes
    ----------
    kind : {"peak", "at", "all"}
        The moment with most jobs, the one at ``hours``, or all jobs at once.
    at_hours : float or None
        The moment of kind ``at``, hours from the trace's time origin (``arrival_s`` = 0).

    Raises
    ------
    InputError
        When the kind is unknown, or the moment missing, not finite or given in vain.
    """

    kind: Literal["peak", "at", "all"]
    at_hours: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("peak", "at", "all"):
            raise InputError(f"Expected kind in peak, at, all, got {self.kind!r}.")
        if (self.at_hours is not None) != (self.kind == "at"):
            raise InputError(f"Expected at_hours with kind at only, got {self.at_hours!r}.")
        if self.at_hours is not None and not isfinite(self.at_hours):
            raise InputError(f"Expected a finite number of at_hours, got {self.at_hours!r}.")

    @classmethod
    def peak(cls) -> Selection:
        """Return the earliest moment at which the most jobs are present."""
        return cls(kind="peak")

    @classmethod
    def at(cls, hours: float) -> Selection:
        """Return the moment so many hours from the trace's time origin."""
        return cls(kind="at", at_hours=hours)

    @classmethod
    def all_jobs(cls) -> Selection:
        """Return all jobs of the trace, as if present at once."""
        return cls(kind="all")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The jobs selected, and the snapshot of those that may share nodes.

    Attributes
    ----------
    moment_s : float or None
        Seconds of the trace; ``None`` where all jobs are taken.
    jobs : JobTable
        All jobs present, in the trace's order.
    dedicated : tuple of Job
        Those of mode async: nodes of their own, taken off the caps first.
    snapshot : Snapshot
        The others, under what the caps leave them.
    caps : FleetCaps
        As given.
    """

    trace: Trace
    selection: Selection
    moment_s: float | None
    jobs: JobTable
    dedicated: tuple[Job, ...]
    snapshot: Snapshot
    caps: FleetCaps

    @property
    def dedicated_nodes(self) -> dict[str, int]:
        """Nodes of the async jobs, by pool."""
        return {
            "rollout": sum(job.rollout_nodes for job in self.dedicated),
            "train": sum(job.train_nodes for job in self.dedicated),
        }

    def overdrawn(self) -> Conflict | None:
        """Return why the async jobs alone exceed the caps, or ``None`` when they do not."""
        for pool, nodes in self.dedicated_nodes.items():
            name = f"max_{pool}_nodes_total"
            most = getattr(self.caps, name)
            if most is not None and nodes > most:
                return Conflict(
                    job_ids=tuple(job.job_id for job in self.dedicated),
                    rule=name,
                    message=f"Expected dedicated {pool} nodes of {len(self.dedicated)} async jobs "
                    f"<= {most} ({name}), got {nodes}.",
                    relaxations=(f"Raise {name} from {most} to {nodes} or more.",),
                )
        return None


def problem_of(
    trace: Trace, selection: Selection, cluster: Cluster, limits: Limits, caps: FleetCaps
) -> Problem:
    """Return the snapshot problem that a selection of a trace poses.

    Raises
    ------
    InputError
        When nobody is present, naming the first and the last moment with jobs.
    """
    moment_s, present = _present(trace.jobs, selection)
    if not present.any():
        raise InputError(_nobody(trace, moment_s))
    jobs = trace.jobs.take(np.flatnonzero(present))
    dedicated = tuple(jobs.job(int(i)) for i in jobs.where_mode("async"))
    snapshot = Snapshot(
        table=jobs.take(jobs.where_sharing()),
        cluster=cluster,
        limits=limits,
        caps=_left(caps, dedicated),
    )
    return Problem(
        trace=trace,
        selection=selection,
        moment_s=moment_s,
        jobs=jobs,
        dedicated=dedicated,
        snapshot=snapshot,
        caps=caps,
    )


def _left(caps: FleetCaps, dedicated: tuple[Job, ...]) -> FleetCaps:
    """Return the caps less dedicated nodes, at least 0 (:meth:`Problem.overdrawn` says if not)."""
    rollout, train = caps.max_rollout_nodes_total, caps.max_train_nodes_total
    held_r = sum(job.rollout_nodes for job in dedicated)
    held_t = sum(job.train_nodes for job in dedicated)
    return FleetCaps(
        max_rollout_nodes_total=None if rollout is None else max(rollout - held_r, 0),
        max_train_nodes_total=None if train is None else max(train - held_t, 0),
    )


def _present(jobs: JobTable, selection: Selection) -> tuple[float | None, BoolArray]:
    """Return the moment, seconds of the trace, and who is present then, ``(n_jobs,)``."""
    if selection.kind == "all":
        return None, np.ones(len(jobs), dtype=np.bool_)
    leaves_s = jobs.arrival_s + jobs.duration_s
    if selection.at_hours is not None:
        moment_s = selection.at_hours * _HOUR_S
    else:
        moment_s = _peak_s(jobs, leaves_s)
    present: BoolArray = (jobs.arrival_s <= moment_s) & (moment_s < leaves_s)
    return moment_s, present


def _peak_s(jobs: JobTable, leaves_s: npt.NDArray[np.float64]) -> float:
    """Return the earliest moment with the most jobs present: the number grows at arrivals only."""
    moments = np.unique(jobs.arrival_s)
    come = np.searchsorted(np.sort(jobs.arrival_s), moments, side="right")
    gone = np.searchsorted(np.sort(leaves_s), moments, side="right")
    return float(moments[np.argmax(come - gone)]) if len(moments) else 0.0


def _nobody(trace: Trace, moment_s: float | None) -> str:
    jobs = trace.jobs
    if moment_s is None or not len(jobs):
        return f"Expected jobs in a snapshot, got none ({trace.name})."
    first = float(jobs.arrival_s.min()) / _HOUR_S
    last = float((jobs.arrival_s + jobs.duration_s).max()) / _HOUR_S
    return (
        f"Expected jobs present at {moment_s / _HOUR_S:.10g} h, got none ({trace.name}): the "
        f"first is there from {first:.10g} h on, the last until {last:.10g} h. Choose a moment "
        "in between, the peak, or all jobs."
    )
