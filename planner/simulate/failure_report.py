"""What failures cost: one replay beside the same without failures, and over checkpoint intervals.

Hours are of jobs in groups: *lost* is what is done again, at the job's own pace alone
(``lost_iterations x T_j``: sharing stretches it by ``C_g / T_j``), *restarting* the pauses, and
*requeued* the time from a failure until there were nodes again (fixed fleets only).
Availability is the share of the jobs' time, that queue included, in which they made progress:
``1 - (restarting + requeued) / (stays + requeued)``; iterations done again count as progress.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from instances.errors import InputError
from instances.jobs import JobTable
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention, JobRecord, ReplayResult
from planner.replay.failing_replay import FailureCounts, FailureRun, replay_with_failures
from planner.replay.failures import FailureParams
from planner.replay.interval import Interval, interval
from planner.replay.replaying import replay

__all__ = [
    "CheckpointRow",
    "FailureReport",
    "each_checkpoint",
    "failure_report",
]

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class FailureReport:
    """One replay with failures beside the same without.

    Attributes
    ----------
    params : FailureParams
    counts : FailureCounts
        Failures that struck, by kind.
    jobs : int
        Jobs in groups: async jobs are left out of all that follows but the price.
    jobs_hit : int
        Jobs that failed, or lost a node, at least once.
    jobs_moved : int
        Jobs that came back to another group or other nodes at least once; ``moves``: how often.
    lost_iterations : float
    lost_h, restarting_h, requeued_h, stay_h : float
        Hours (module docstring); ``stay_h`` from start to departure, ``requeued_h`` left out.
    slo_attainment, slo_attainment_without : float
        With failures and without.
    slo_attainment_spared : float or None
        With failures, of the jobs that none has hit.
    usd_total, usd_total_without : float
    down_node_h : dict of str to float
        Node-hours of the fixed fleet that were out of service, by pool, up to the last departure.
    fleet_node_h : dict of str to float or None
        Node-hours of the fixed fleet in that time; ``None`` without one.
    """

    policy: str
    convention: Convention
    params: FailureParams
    counts: FailureCounts
    jobs: int
    jobs_hit: int
    jobs_moved: int
    moves: int
    lost_iterations: float
    lost_h: float
    restarting_h: float
    requeued_h: float
    stay_h: float
    slo_attainment: float
    slo_attainment_without: float
    slo_attainment_spared: float | None
    usd_total: float
    usd_total_without: float
    down_node_h: dict[str, float]
    fleet_node_h: dict[str, float] | None

    @property
    def hours_lost(self) -> float:
        """Job-hours that failures cost: done again, restarting, and in the queue again."""
        return self.lost_h + self.restarting_h + self.requeued_h

    @property
    def availability(self) -> float:
        """Share of the jobs' time in which they made progress (module docstring)."""
        hours = self.stay_h + self.requeued_h
        return 1 - (self.restarting_h + self.requeued_h) / hours if hours else 1.0

    @property
    def node_availability(self) -> dict[str, float | None] | None:
        """Share of the fixed fleet's node-hours in service, by pool; ``None`` without a fleet."""
        if self.fleet_node_h is None:
            return None
        return {
            pool: 1 - self.down_node_h[pool] / hours if hours else None
            for pool, hours in self.fleet_node_h.items()
        }

    @property
    def cost_ratio(self) -> float:
        """Cost with failures over cost without."""
        return self.usd_total / self.usd_total_without

    @property
    def row(self) -> dict[str, Any]:
        """Plain values by name."""
        params, nodes = self.params, self.node_availability
        return {
            "policy": self.policy,
            "convention": self.convention,
            "job_mtbf_h": params.job_mtbf_h,
            "node_mtbf_h": params.node_mtbf_h,
            "listed_failures": len(params.events),
            "checkpoint_iterations": params.checkpoint_iterations,
            "restart_s": params.restart_s,
            "repair_h": params.repair_h,
            "seed": params.seed,
            **{f"failures_{name}": n for name, n in asdict(self.counts).items()},
            "jobs": self.jobs,
            "jobs_hit": self.jobs_hit,
            "jobs_moved": self.jobs_moved,
            "moves": self.moves,
            "lost_iterations": self.lost_iterations,
            "lost_h": self.lost_h,
            "restarting_h": self.restarting_h,
            "requeued_h": self.requeued_h,
            "hours_lost": self.hours_lost,
            "availability": self.availability,
            "node_availability_rollout": None if nodes is None else nodes["rollout"],
            "node_availability_train": None if nodes is None else nodes["train"],
            "slo_attainment": self.slo_attainment,
            "slo_attainment_without": self.slo_attainment_without,
            "slo_attainment_spared": self.slo_attainment_spared,
            "usd_total": self.usd_total,
            "usd_total_without": self.usd_total_without,
            "cost_ratio": self.cost_ratio,
        }


def failure_report(run: FailureRun, without: ReplayResult) -> FailureReport:
    """Return the figures of a replay with failures.

    Parameters
    ----------
    run : FailureRun
    without : ReplayResult
        The plain replay of the same jobs, policy, options and convention.

    Raises
    ------
    InputError
        When the two are not of the same trace, policy or convention.
    """
    result = run.result
    for name in ("policy", "convention", "fleet"):
        ours, theirs = getattr(result, name), getattr(without, name)
        if ours != theirs:
            raise InputError(
                f"Expected {name} {ours} of the replay without failures, got {theirs}."
            )
    if result.jobs.job_id != without.jobs.job_id:
        raise InputError("Expected the same jobs in the replay without failures, got others.")
    records = [record for record in result.records if record.job.mode != "async"]
    down_h, fleet_h = _node_hours(result)
    return FailureReport(
        policy=result.policy,
        convention=result.convention,
        params=run.params,
        counts=run.counts,
        jobs=len(records),
        jobs_hit=sum(record.failures > 0 for record in records),
        jobs_moved=sum(record.moves > 0 for record in records),
        moves=sum(record.moves for record in records),
        lost_iterations=math.fsum(record.lost_iterations for record in records),
        lost_h=math.fsum(r.lost_iterations * r.job.solo_s for r in records) / _HOUR_S,
        restarting_h=math.fsum(record.paused_s for record in records) / _HOUR_S,
        requeued_h=math.fsum(record.requeued_s for record in records) / _HOUR_S,
        stay_h=math.fsum(record.elapsed_s for record in records) / _HOUR_S,
        slo_attainment=result.slo_attainment,
        slo_attainment_without=without.slo_attainment,
        slo_attainment_spared=_attained([record for record in records if not record.failures]),
        usd_total=result.usd_total,
        usd_total_without=without.usd_total,
        down_node_h=down_h,
        fleet_node_h=fleet_h,
    )


def _attained(records: Sequence[JobRecord]) -> float | None:
    return sum(record.slo_met for record in records) / len(records) if records else None


def _node_hours(result: ReplayResult) -> tuple[dict[str, float], dict[str, float] | None]:
    """Return node-hours out of service by pool, and those of the fleet, over the horizon."""
    end_s = float(result.timeline.time_s[-1])
    outages = result.plan.outages if result.plan is not None else ()
    down_h = {
        pool: math.fsum(max(min(o.to_s, end_s) - o.from_s, 0.0) for o in outages if o.pool == pool)
        / _HOUR_S
        for pool in ("rollout", "train")
    }
    if result.fleet is None:
        return down_h, None
    hours = result.horizon_h
    return down_h, {
        "rollout": result.fleet.rollout_nodes * hours,
        "train": result.fleet.train_nodes * hours,
    }


# -- Over checkpoint intervals ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """What one checkpoint interval costs, over seeds; means with 95 % intervals.

    Attributes
    ----------
    reports : tuple of FailureReport
        One a seed.
    """

    checkpoint_iterations: int
    reports: tuple[FailureReport, ...]

    def over_seeds(self, figure: Callable[[FailureReport], float]) -> Interval:
        """Return the mean of a figure over the seeds, with its interval."""
        return interval([figure(report) for report in self.reports])

    @property
    def row(self) -> dict[str, Any]:
        """Plain values by name."""
        first = self.reports[0]
        figures: dict[str, Callable[[FailureReport], float]] = {
            "cost_ratio": lambda r: r.cost_ratio,
            "slo_attainment": lambda r: r.slo_attainment,
            "availability": lambda r: r.availability,
            "lost_h": lambda r: r.lost_h,
            "restarting_h": lambda r: r.restarting_h,
            "requeued_h": lambda r: r.requeued_h,
            "moves": lambda r: float(r.moves),
        }
        out: dict[str, Any] = {
            "policy": first.policy,
            "convention": first.convention,
            "job_mtbf_h": first.params.job_mtbf_h,
            "node_mtbf_h": first.params.node_mtbf_h,
            "checkpoint_iterations": self.checkpoint_iterations,
            "seeds": len(self.reports),
            "slo_attainment_without": first.slo_attainment_without,
            "usd_total_without": first.usd_total_without,
        }
        for name, figure in figures.items():
            mean = self.over_seeds(figure)
            out |= {name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high}
        return out


def each_checkpoint(
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    params: FailureParams,
    *,
    checkpoints: Sequence[int],
    seeds: Sequence[int],
    convention: Convention = "work",
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[CheckpointRow]:
    """Yield one row per checkpoint interval, each when it is made; failures are those of the seeds.

    Parameters
    ----------
    params : FailureParams
        Its ``checkpoint_iterations`` and ``seed`` are replaced.
    checkpoints : sequence of int
        Iterations between checkpoints, one row each.
    seeds : sequence of int
    progress : callable, optional
        Called with (replays done, replays) after each.
    """
    if not checkpoints or not seeds:
        raise InputError("Expected at least one checkpoint interval and one seed, got none.")
    without = replay(jobs, policy, options, convention=convention)
    done = 0
    for every in checkpoints:
        reports = []
        for seed in seeds:
            now = replace(params, checkpoint_iterations=every, seed=seed)
            run = replay_with_failures(jobs, policy, options, now, convention=convention)
            reports.append(failure_report(run, without))
            done += 1
            if progress is not None:
                progress(done, len(checkpoints) * len(seeds))
        yield CheckpointRow(checkpoint_iterations=every, reports=tuple(reports))
