"""Files that commands write: whole or not at all, and never over others unless asked."""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from instances.errors import InputError
from instances.plan_file import write_plan_json
from planner.api import PlanReport
from planner.replay import JobRecord, ReplayResult

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_writer", "exists", "require_writable", "write_files", "write_plan_files"]

PLAN_FILES = ("plan.json", "jobs.csv", "timeline.csv")

_HOUR_S = 3600.0
Writer = Callable[[Path], None]


def exists(path: Path) -> bool:
    """Return whether a path exists; one the system refuses to look up is bad input.

    Raises
    ------
    InputError
        When the name is too long, say.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}.") from error
    return True


def require_writable(directory: Path, names: tuple[str, ...], *, force: bool) -> None:
    """Refuse a directory that holds one of these files, or that is not a directory.

    Called before long work, so that nobody waits for a refusal.

    Raises
    ------
    InputError
        Naming the files in the way and the flag that allows to replace them.
    """
    if exists(directory) and not directory.is_dir():
        raise InputError(f"Expected --out to name a directory, but {directory} is a file.")
    there = [name for name in names if exists(directory / name)]
    if there and not force:
        raise InputError(
            f"{directory} already holds {', '.join(there)}. Give --force to replace them, or "
            f"another --out."
        )
    parent = directory.absolute().parent
    if not parent.is_dir():
        raise InputError(f"Expected the folder {parent} of --out to exist. Create it first.")


def write_files(directory: Path, writers: Mapping[str, Writer], *, force: bool) -> None:
    """Write all files, or none: into a hidden folder first, then moved into place at once.

    A folder that is not there yet appears by one rename. In one that is, the hidden folder is
    inside (it may be a mount point), and signals wait while the files are moved.

    Raises
    ------
    InputError
        When a file is in the way (see :func:`require_writable`) or the disk refuses.
    """
    directory = directory.absolute()
    require_writable(directory, tuple(writers), force=force)
    token = f".{secrets.token_hex(4)}"
    there = directory.exists()
    staging = directory / token if there else directory.parent / token
    try:
        try:
            staging.mkdir(mode=0o755)
            for name, write in writers.items():
                write(staging / name)
            with _signals_wait():
                if there:
                    for name in writers:
                        os.replace(staging / name, directory / name)
                else:
                    os.rename(staging, directory)
        finally:
            with _signals_wait(), contextlib.suppress(FileNotFoundError):
                shutil.rmtree(staging)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror or error}.") from error


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP, where the system can, until the block is done."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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


def csv_writer(frame: pd.DataFrame) -> Writer:
    """Return what writes a table as CSV, quoting where a cell would end a record."""
    # a lone CR ends a record for many readers, and the writer quotes it only when told to
    text = frame.select_dtypes(exclude=["number", "bool"]).astype(str)
    odd = any(text[name].str.contains("\r", regex=False).any() for name in text)
    odd = odd or any("\r" in str(name) for name in frame.columns)
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    return lambda path: frame.to_csv(path, index=False, lineterminator="\n", quoting=quoting)


def write_plan_files(report: PlanReport, directory: Path, *, force: bool) -> None:
    """Write plan.json (main policy, primary convention), jobs.csv and timeline.csv.

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
    }
    write_files(directory, writers, force=force)
