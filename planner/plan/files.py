"""Files of ``planner plan --out``: the plan, a table of jobs and a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from instances.plan_file import write_plan_json
from planner.output.folder import Writer, csv_writer, write_files
from planner.plan.planning import PlanReport
from planner.policies.replay_result import JobRecord, ReplayResult

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PLAN_FILES", "write_plan_files"]


PLAN_FILES = ("plan.json", "jobs.csv", "timeline.csv")


_HOUR_S = 3600.0


def _jobs_frame(report: PlanReport) -> pd.DataFrame:
    """Return one row per convention, policy and job; the trace's own columns come last.

    A column of the trace that has the name of one of ours is called ``trace_<name>`` here.
    """
    import pandas as pd

    jobs = report.trace.jobs
    rows = [
        {"convention": convention, "policy": policy, **_job_cells(record, result)}
        for convention, policy, result in report
        for record in result.records
    ]
    frame = pd.DataFrame(rows)
    copies = len(frame) // len(jobs)
    marks = jobs.estimated_columns()
    own = {*frame.columns, "estimated"}
    estimated = [";".join(c for c in marks if jobs.estimated[c][i]) for i in range(len(jobs))]
    carried = {"estimated": estimated}
    for name, values in (*jobs.optional.items(), *jobs.extra.items()):
        while name in own:
            name = f"trace_{name}"
        own.add(name)
        carried[name] = list(values)
    for name, column in carried.items():
        frame[name] = column * copies
    return frame


def _job_cells(record: JobRecord, result: ReplayResult) -> dict[str, Any]:
    job = record.job
    waits = {} if result.fleet is None else {"start_s": record.start_s, "wait_s": record.wait_s}
    hours_r, hours_t = record.rollout_node_s / _HOUR_S, record.train_node_s / _HOUR_S
    return {
        "job_id": job.job_id,
        "mode": job.mode,
        "arrival_s": job.arrival_s,
        **waits,
        "departure_s": record.departure_s,
        "duration_s": job.duration_s,
        "iterations": record.iterations,
        "slo": job.slo,
        "slowdown": record.slowdown,
        "slo_met": record.slo_met,
        "solo_s": job.solo_s,
        "deadline_s": job.deadline_s,
        "worst_iteration_s": record.worst_iteration_s,
        "worst_single_iteration_s": record.worst_single_s,
        "admission": record.admission or "",
        "group_id": record.group_id,
        "group_size_max": record.group_size_max,
        "moves": record.moves,
        "paused_s": record.paused_s,
        "rollout_nodes": job.rollout_nodes,
        "train_nodes": job.train_nodes,
        "rollout_node_hours": hours_r,
        "train_node_hours": hours_t,
        "usd": result.cluster.usd_per_hour(hours_r, hours_t),
    }


def _timeline_frame(report: PlanReport) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for convention, policy, result in report:
        line, cluster = result.timeline, result.cluster
        usd = cluster.rollout.usd_per_hour * line.rollout_nodes
        usd = usd + cluster.train.usd_per_hour * line.train_nodes
        waiting = {} if result.fleet is None else {"waiting": line.waiting}
        bound = line.bound_usd_per_hour if result.promises_valid else np.full(len(usd), np.nan)
        frames.append(
            pd.DataFrame(
                {
                    "convention": convention,
                    "policy": policy,
                    "time_s": line.time_s,
                    "jobs": line.jobs,
                    **waiting,
                    "rollout_nodes": line.rollout_nodes,
                    "train_nodes": line.train_nodes,
                    "rollout_gpus": line.rollout_nodes * cluster.rollout.gpus_per_node,
                    "train_gpus": line.train_nodes * cluster.train.gpus_per_node,
                    "usd_per_hour": usd,
                    "bound_usd_per_hour": bound,
                    "sync_gbps": line.sync_gbps,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def write_plan_files(
    report: PlanReport,
    directory: Path,
    *,
    force: bool,
    more: Mapping[str, Writer] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write plan.json (main policy, primary convention), jobs.csv and timeline.csv.

    Parameters
    ----------
    more : mapping of str to Writer, optional
        Files to write with them: all of them or none.

    Returns
    -------
    tuple of str
        Names of the files written.

    Raises
    ------
    InputError
        When a file is in the way and ``force`` is not set, or the disk refuses.
    """
    plan = report.result(report.policy).plan
    assert plan is not None
    writers: dict[str, Writer] = {
        "plan.json": lambda path: write_plan_json(plan, path),
        "jobs.csv": csv_writer(_jobs_frame(report)),
        "timeline.csv": csv_writer(_timeline_frame(report)),
        **more,
    }
    write_files(directory, writers, force=force)
    return tuple(writers)
