"""Replay of a trace under a policy: an event loop, and exact accounts of what it cost.

The loop is :mod:`planner.replay.loop`. Two conventions, never mixed:

* ``work``: a job leaves when it has done its number of iterations, so co-execution, and the
  pauses of a moved job, stretch its stay;
* ``wallclock``: a job leaves ``duration_s`` after it arrived, whatever it has done by then; each
  of its pauses makes that later by its own length.

With a fixed fleet (``PolicyOptions.fleet``) there is nothing to rent: jobs that do not fit wait
(:mod:`planner.replay.admission_queue`), and a stay begins at its job's start. ``work`` is unchanged
by that; ``wallclock`` counts ``duration_s`` from the start. Costs stay those of nodes while held.

Whatever the policy answers is recorded as versions of groups, ``[from_s, to_s)``; all figures
are sums over these versions. Plans of a policy that promises valid ones are checked version by
version as they are made, and as a whole with their price at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from instances.checker import check_plan
from instances.errors import CheckError, InputError, did_you_mean
from instances.jobs import JobTable
from instances.plan import DURATION_CONVENTIONS, Plan
from models.bounds.volume import VOLUME, VolumeSums
from planner.output.ctrl_c import CtrlC
from planner.policies.policy import PolicyOptions
from planner.policies.registry import make_policy
from planner.policies.replay_result import Convention, JobRecord, ReplayResult, Timeline
from planner.policies.wait_target import WaitTarget
from planner.replay.admission_queue import AdmissionQueue, require_within_fleet
from planner.replay.loop import DEPARTURE, ReplayLoop

__all__ = [
    "Convention",
    "JobRecord",
    "Progress",
    "ReplayResult",
    "Timeline",
    "queue_of",
    "replay",
    "require_convention",
    "run_to_end",
]

Progress = Callable[[int, int], None]

_HOUR_S: Final = 3600.0


def require_convention(convention: str) -> None:
    """Raise InputError for an unknown duration convention, with the nearest known one."""
    if convention not in DURATION_CONVENTIONS:
        raise InputError(
            f"Expected convention in {', '.join(DURATION_CONVENTIONS)}, got '{convention}'."
            f"{did_you_mean(convention, DURATION_CONVENTIONS)}"
        )


def replay(
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    *,
    convention: Convention = "work",
    check: bool = True,
    progress: Progress | None = None,
    target: WaitTarget | None = None,
) -> ReplayResult:
    """Replay a trace under a policy.

    Parameters
    ----------
    jobs : JobTable
        In order of arrival; async jobs get dedicated nodes.
    policy : str
        Name in ``planner.policies.registry.POLICIES``.
    options : PolicyOptions
    convention : {"work", "wallclock"}
    check : bool
        Check every version as it is made and the whole plan at the end.
    progress : callable, optional
        Called with (jobs departed, jobs) now and then.
    target : WaitTarget, optional
        Under ``options.fleet``: give up as soon as it is missed.

    Raises
    ------
    InputError
        For an unknown convention, or when there are no jobs.
    UnsupportedError
        When the policy cannot keep to a fleet.
    InfeasibleError
        When a job cannot run even alone, or is larger than the fleet.
    TargetMissed
        When more jobs have waited too long than ``target`` allows.
    CheckError
        When a policy that promises valid plans breaks a rule.
    KeyboardInterrupt
        At Ctrl-C, even if the policy has taken it for the end of a search of its own.
    """
    require_convention(convention)
    if not len(jobs):
        raise InputError("Expected at least one job, got none.")
    options = replace(options, convention=convention)
    loop = ReplayLoop(
        jobs,
        make_policy(policy, options),
        options,
        convention,
        check,
        VolumeSums(options.cluster, options.limits),
        queue_of(jobs, options, target),
    )
    if options.fleet is not None:
        require_within_fleet(jobs, loop.policy, options.fleet)
    return run_to_end(loop, progress)


def run_to_end(loop: ReplayLoop, progress: Progress | None = None) -> ReplayResult:
    """Take every event of a loop and return what it found; see :func:`replay`."""
    n = len(loop.jobs)
    departed, every = 0, max(1, n // 200)
    with CtrlC() as ctrl_c:
        while loop.heap:
            if loop.step() == DEPARTURE:
                departed += 1
                if progress is not None and (departed % every == 0 or departed == n):
                    progress(departed, n)
            ctrl_c.check()  # a search within the policy takes it for its own end
    return _result(loop)


def queue_of(
    jobs: JobTable, options: PolicyOptions, target: WaitTarget | None = None
) -> AdmissionQueue | None:
    """Return the queue for a fixed fleet, if there is one."""
    if options.fleet is None:
        return None
    return AdmissionQueue(options.fleet, options.queue, jobs.arrival_s.tolist(), target)


def _admission(loop: ReplayLoop) -> dict[str, int] | None:
    """Return jobs by kind of admission, every kind that the policy could have used."""
    kinds = loop.policy.admission_kinds
    return {kind: loop.admission[kind] for kind in kinds} if kinds else None


def _result(loop: ReplayLoop) -> ReplayResult:
    columns = list(zip(*loop.rows, strict=True))
    timeline = Timeline(
        time_s=np.array(columns[0]),
        jobs=np.array(columns[1], dtype=np.int64),
        rollout_nodes=np.array(columns[2], dtype=np.int64),
        train_nodes=np.array(columns[3], dtype=np.int64),
        bound_usd_per_hour=np.array(columns[4]),
        sync_gbps=np.maximum(np.array(columns[5]), 0.0),
        waiting=np.array(columns[6], dtype=np.int64),
    )
    cluster = loop.options.cluster
    usd_per_hour = cluster.rollout.usd_per_hour * timeline.rollout_nodes
    usd_per_hour = usd_per_hour + cluster.train.usd_per_hour * timeline.train_nodes
    usd_total = float(np.dot(usd_per_hour[:-1], timeline.hours))
    plan = Plan(
        policy=loop.policy.name,
        durations=loop.convention,
        cluster=cluster,
        jobs=loop.jobs,
        limits=loop.options.limits,
        groups=tuple(loop.versions),
        usd_total=usd_total,
        dedicated=tuple(loop.dedicated),
        pins_fixed=loop.pins_fixed,
        pauses=tuple(loop.pauses),
        held=tuple(loop.held),
        fleet=loop.options.fleet,
        starts=tuple(loop.starts),
        losses=tuple(loop.losses),
        outages=tuple(loop.outages),
    )
    breaches = dict(loop.breaches)
    if loop.check and loop.policy.promises_valid:
        report = check_plan(plan)
        if not report.ok:
            first = "; ".join(v.message for v in report.violations[:3])
            raise CheckError(f"Policy {plan.policy} made an invalid plan: {first}")
    return ReplayResult(
        policy=loop.policy.name,
        convention=loop.convention,
        jobs=loop.jobs,
        cluster=cluster,
        limits=loop.options.limits,
        plan=plan,
        records=tuple(loop.records),
        timeline=timeline,
        usd_total=usd_total,
        dedicated_usd_total=math.fsum(
            cluster.usd_per_hour(d.rollout_nodes, d.train_nodes) * (d.to_s - d.from_s) / _HOUR_S
            for d in loop.dedicated
        ),
        bound_usd_total=float(np.dot(timeline.bound_usd_per_hour[:-1], timeline.hours)),
        bound_method=VOLUME,
        admission=_admission(loop),
        run_node_s={"rollout": loop.run_rollout_s, "train": loop.run_train_s},
        held_node_s={
            "rollout": math.fsum(h.rollout_nodes * (h.to_s - h.from_s) for h in loop.held),
            "train": math.fsum(h.train_nodes * (h.to_s - h.from_s) for h in loop.held),
        },
        promises_valid=loop.policy.promises_valid,
        checked=loop.check and loop.policy.promises_valid,
        breaches=breaches,
        decision_s=tuple(getattr(loop.policy, "decision_s", ())),
        pins_fixed=loop.pins_fixed,
        fleet=loop.options.fleet,
        queue=loop.options.queue,
    )
