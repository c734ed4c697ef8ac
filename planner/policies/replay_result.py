"""What a replay found: one record a job, a timeline, and the figures that commands state."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.hardware import Cluster
from instances.jobs import Job, JobTable
from instances.plan import Fleet, Limits, Plan
from models.bounds.volume import work_usd
from planner.policies.wait_target import jobs_in_share

__all__ = ["Convention", "JobRecord", "QueueRule", "ReplayResult", "Timeline"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Convention = Literal["work", "wallclock"]
QueueRule = Literal["fifo", "backfill"]

_HOUR_S: Final = 3600.0
#: Relative slack of the SLO on attained times (sums of many intervals).
_SLO_EPS: Final = 1e-9
#: And absolute, seconds: arrivals counted from 1970 resolve no finer.
_SLO_EPS_S: Final = 1e-6


@dataclass(slots=True)
class JobRecord:
    """What happened to one job.

    Attributes
    ----------
    job : Job
        As in the trace.
    paused_until_s : float
        End of its last restart, seconds of the trace.
    start_s, departure_s : float
        Seconds of the trace; it starts when it arrives, unless it waits for a fixed fleet.
    iterations : float
        Iterations done during the stay.
    worst_iteration_s : float
        Longest mean iteration time of any version of its group, ``max C_g / k``.
    worst_single_s : float
        Longest single iteration, from one rollout's start to the next, of any version.
    rollout_node_s, train_node_s : float
        Its share of its nodes' time: a node's seconds are split evenly among the jobs pinned.
    admission : str or None
        How it was admitted (``Decision.kind``); ``None`` where meaningless.
    group_id : str
        The group it joined, its last one if it was moved; "dedicated" for async jobs.
    group_size_max : int
        Most jobs its group had at once during its stay.
    moves : int
        Times it was moved.
    paused_s : float
        Seconds of its restarts; ``paused_until_s`` is the end of the last.
    failures : int
        Times that it, or a node it was on, failed.
    lost_iterations : float
        Iterations undone by failures and done again: ``iterations`` leaves them out.
    requeued_s : float
        Seconds in the queue after failures.
    """

    job: Job
    start_s: float = 0.0
    departure_s: float = 0.0
    iterations: float = 0.0
    worst_iteration_s: float = 0.0
    worst_single_s: float = 0.0
    rollout_node_s: float = 0.0
    train_node_s: float = 0.0
    admission: str | None = None
    group_id: str = ""
    group_size_max: int = 0
    moves: int = 0
    paused_s: float = 0.0
    paused_until_s: float = -math.inf
    failures: int = 0
    lost_iterations: float = 0.0
    requeued_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds from start to departure, pauses included: queueing is counted apart."""
        return self.departure_s - self.start_s - self.requeued_s

    @property
    def wait_s(self) -> float:
        """Seconds from arrival to start."""
        return self.start_s - self.job.arrival_s

    @property
    def slowdown(self) -> float:
        """Attained slowdown: elapsed time over iterations done x T_j."""
        return self.elapsed_s / (self.iterations * self.job.solo_s)

    @property
    def slo_met(self) -> bool:
        """Whether the attained slowdown is within the SLO, up to round-off of moments."""
        return self._within_slo(self.elapsed_s)

    @property
    def slo_met_with_wait(self) -> bool:
        """Whether it is within the SLO even if time counts from the arrival."""
        return self._within_slo(self.departure_s - self.job.arrival_s)

    def _within_slo(self, seconds: float) -> bool:
        allowed_s = self.job.slo * self.iterations * self.job.solo_s
        return seconds <= allowed_s * (1 + _SLO_EPS) + _SLO_EPS_S

    @property
    def worst_within_slo(self) -> bool:
        """Whether even the worst version's iteration time is within the deadline."""
        return self.worst_iteration_s <= self.job.deadline_s * (1 + _SLO_EPS)

    @property
    def single_within_slo(self) -> bool:
        """Whether even the longest single iteration is within the deadline."""
        return self.worst_single_s <= self.job.deadline_s * (1 + _SLO_EPS) + _SLO_EPS_S


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Piecewise constant state, ``(n,)`` arrays; row i holds from ``time_s[i]`` to the next.

    The last row is the moment of the last departure, with nothing running; or later, when old
    nodes that a move left are let go after that. ``jobs`` counts those that run, ``waiting``
    those in the queue for a fixed fleet.

    Attributes
    ----------
    time_s : ndarray
        When each row begins, seconds of the trace.
    jobs : ndarray
        Jobs that run.
    rollout_nodes : ndarray
        Rollout nodes paid for.
    train_nodes : ndarray
        Train nodes paid for.
    bound_usd_per_hour : ndarray
        Lower bound of the cost of the jobs present, $/h.
    sync_gbps : ndarray
        Mean weight traffic between the clusters, Gb/s.
    waiting : ndarray
        Jobs in the queue.
    """

    time_s: FloatArray
    jobs: IntArray
    rollout_nodes: IntArray
    train_nodes: IntArray
    bound_usd_per_hour: FloatArray
    sync_gbps: FloatArray
    waiting: IntArray

    @property
    def hours(self) -> FloatArray:
        """Length of each row but the last, hours, ``(n - 1,)``."""
        out: FloatArray = np.diff(self.time_s) / _HOUR_S
        return out

    def mean(self, values: npt.NDArray[np.generic]) -> float:
        """Return the time average of a column over the horizon."""
        total = float(self.hours.sum())
        return float(np.dot(values[:-1], self.hours)) / total if total else 0.0

    def quantile(self, values: IntArray, share: float) -> int:
        """Return the least N with ``values <= N`` for ``share`` of the horizon."""
        order = np.argsort(values[:-1], kind="stable")
        covered = np.cumsum(self.hours[order])
        if not covered.size:
            return 0
        position = int(np.searchsorted(covered, share * covered[-1] * (1 - 1e-12)))
        return int(values[:-1][order][min(position, len(order) - 1)])


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """One policy under one convention: plan, records, timeline and accounts.

    Attributes
    ----------
    policy : str
        Its name.
    convention : Convention
        What ends a stay.
    jobs : JobTable
        The jobs of the trace.
    cluster : Cluster
        Nodes, prices and links.
    limits : Limits
        Of a group.
    records : tuple of JobRecord
        One a job.
    timeline : Timeline
        Jobs and nodes over time.
    bound_method : str
        Who proved the bound.
    plan : Plan or None
        Dropped (``None``) where nobody will ask for it: plans are large.
    usd_total, dedicated_usd_total : float
        Price of all nodes over the horizon, $, and the part held by async jobs.
    bound_usd_total : float
        The snapshot bound integrated over the policy's own timeline, $.
    admission : dict of str to int or None
        Jobs by kind of admission; ``None`` where meaningless.
    run_node_s : dict of str to float
        Node-seconds in which a phase runs (no switch, no sync), by pool.
    held_node_s : dict of str to float
        Node-seconds of old nodes that overlapped with new ones, by pool.
    promises_valid : bool
        Whether the policy's plans are to keep every rule, so that bounds concern it.
    checked : bool
        Whether every version passed the checker.
    breaches : dict of str to int
        Of a policy that promises nothing: rules broken, by count over versions.
    decision_s : tuple of float
        Seconds of each decision, when a clock was given.
    pins_fixed : bool
        Whether the policy never moves a running job.
    fleet : Fleet or None
        Nodes there are; ``None``: nobody waits.
    queue : {"fifo", "backfill"}
        Who may start while the first in the queue waits.
    """

    policy: str
    convention: Convention
    jobs: JobTable
    cluster: Cluster
    limits: Limits
    plan: Plan | None
    records: tuple[JobRecord, ...]
    timeline: Timeline
    usd_total: float
    dedicated_usd_total: float
    bound_usd_total: float
    bound_method: str
    admission: dict[str, int] | None
    run_node_s: dict[str, float]
    held_node_s: dict[str, float]
    promises_valid: bool
    checked: bool
    breaches: dict[str, int]
    decision_s: tuple[float, ...] = ()
    pins_fixed: bool = True
    fleet: Fleet | None = None
    queue: QueueRule = "fifo"

    def without_plan(self) -> ReplayResult:
        """Return the figures alone: plans are large."""
        return replace(self, plan=None)

    @property
    def horizon_h(self) -> float:
        """Hours from the first arrival until nothing is held: to the last departure."""
        return float(self.timeline.time_s[-1] - self.timeline.time_s[0]) / _HOUR_S

    @property
    def usd_per_hour_mean(self) -> float:
        """Mean price, $/h."""
        return self.usd_total / self.horizon_h

    @property
    def ratio(self) -> float | None:
        """Cost over bound of the jobs that may share, dedicated nodes left out of both.

        ``None`` where no bound concerns the policy, or there is nothing to pay for.
        """
        bound = self.bound_usd_total - self.dedicated_usd_total
        if not self.promises_valid or bound <= 0:
            return None
        return (self.usd_total - self.dedicated_usd_total) / bound

    @property
    def work_bound_usd_total(self) -> float:
        """Least any valid plan can spend on the trace's iterations, dedicated nodes added, $."""
        sharing = self.jobs.take(self.jobs.where_sharing())
        return work_usd(sharing, self.cluster) + self.dedicated_usd_total

    @property
    def _sharing(self) -> list[JobRecord]:
        """Records of the jobs that may share: async jobs are counted apart."""
        return [record for record in self.records if record.job.mode != "async"]

    @property
    def node_hours(self) -> dict[str, float]:
        """Provisioned node-hours by pool."""
        line = self.timeline
        return {
            "rollout": float(np.dot(line.rollout_nodes[:-1], line.hours)),
            "train": float(np.dot(line.train_nodes[:-1], line.hours)),
        }

    @property
    def peak_nodes(self) -> dict[str, int]:
        """Most nodes at once, each pool at its own peak."""
        line = self.timeline
        return {"rollout": int(line.rollout_nodes.max()), "train": int(line.train_nodes.max())}

    @property
    def p95_nodes(self) -> dict[str, int]:
        """Least N with provisioned nodes <= N for 95 % of the horizon, by pool."""
        line = self.timeline
        return {
            "rollout": line.quantile(line.rollout_nodes, 0.95),
            "train": line.quantile(line.train_nodes, 0.95),
        }

    @property
    def idle_fraction(self) -> dict[str, float | None]:
        """1 - run node-seconds (no switch, no sync) / provisioned node-seconds, by pool.

        Dedicated nodes of async jobs are left out; ``None`` for a pool without others.
        """
        held_s = {
            "rollout": math.fsum(record.rollout_node_s for record in self._sharing),
            "train": math.fsum(record.train_node_s for record in self._sharing),
        }
        held_s = {pool: seconds + self.held_node_s[pool] for pool, seconds in held_s.items()}
        return {
            pool: 1 - self.run_node_s[pool] / seconds if seconds else None
            for pool, seconds in held_s.items()
        }

    @property
    def moves(self) -> int:
        """Moves of running jobs."""
        return sum(record.moves for record in self.records)

    @property
    def moves_per_job(self) -> float:
        """Moves over jobs, async jobs left out: they never move."""
        jobs = len(self._sharing)
        return self.moves / jobs if jobs else 0.0

    @property
    def jobs_moved(self) -> int:
        """Jobs that were moved at least once."""
        return sum(record.moves > 0 for record in self.records)

    @property
    def max_moves_per_job(self) -> int:
        """Moves of the job that was moved most."""
        return max((record.moves for record in self.records), default=0)

    @property
    def paused_h(self) -> float:
        """Hours that moved jobs spent restarting, summed over jobs."""
        return math.fsum(record.paused_s for record in self.records) / _HOUR_S

    @property
    def job_hours(self) -> float:
        """Hours from start to departure, summed over jobs, async jobs left out."""
        return math.fsum(record.elapsed_s for record in self._sharing) / _HOUR_S

    @property
    def slo_attainment(self) -> float:
        """Share of jobs whose attained slowdown is within their SLO, async jobs left out.

        Queueing apart: time counts from the start.
        """
        jobs = self._sharing
        return sum(r.slo_met for r in jobs) / len(jobs) if jobs else 1.0

    @property
    def slo_attainment_with_wait(self) -> float:
        """The same with time counted from each job's arrival, not its start."""
        jobs = self._sharing
        return sum(r.slo_met_with_wait for r in jobs) / len(jobs) if jobs else 1.0

    @property
    def waits_s(self) -> FloatArray:
        """Seconds from arrival to start of every job, async ones too, ``(n,)``, table order."""
        return np.array([record.wait_s for record in self.records])

    def wait_quantile(self, share: float) -> float:
        """Return the least w such that at least ``share`` of the jobs waited w s or less."""
        waits = np.sort(self.waits_s)
        return float(waits[max(jobs_in_share(len(waits), share), 1) - 1])

    @property
    def admitted_at_once(self) -> float:
        """Share of all jobs that did not wait."""
        return float(np.mean(self.waits_s <= 0))

    @property
    def slo_attainment_worst_period(self) -> float:
        """Share of jobs whose worst iteration time is within their deadline, async left out."""
        jobs = self._sharing
        return sum(r.worst_within_slo for r in jobs) / len(jobs) if jobs else 1.0

    @property
    def worst_single_iteration(self) -> float:
        """The longest single iteration over its deadline, over jobs and versions, async left out.

        With rates above 1 the iterations of a period need not be alike; the SLO is about their
        mean.
        """
        return max((r.worst_single_s / r.job.deadline_s for r in self._sharing), default=0.0)

    @property
    def jobs_with_late_iterations(self) -> int:
        """Jobs some single iteration of which is longer than the deadline, async left out."""
        return sum(not r.single_within_slo for r in self._sharing)

    @property
    def links(self) -> int:
        """Links between the clusters that utilisation is measured against."""
        peak = self.peak_nodes
        return self.cluster.links.count(peak["rollout"], peak["train"])

    @property
    def link_utilisation(self) -> dict[str, float]:
        """Sync traffic over the capacity of all links, mean and peak over time."""
        capacity = self.links * self.cluster.links.inter_gbps
        line = self.timeline
        peak = float(line.sync_gbps.max(initial=0.0))
        return {"mean": line.mean(line.sync_gbps) / capacity, "peak": peak / capacity}
