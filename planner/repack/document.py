"""``planner repack --json``, its moves.csv, and what a reader must know of the answer."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from instances.cluster_file import cluster_to_dict
from instances.errors import did_you_mean
from instances.plan_file import plan_to_dict, write_plan_json
from instances.restarts import restart_sources
from instances.trace import Trace
from models.bounds.volume import VOLUME
from planner.output.folder import Writer, write_files
from planner.placement.group_state import GroupState
from planner.plan.document import SCHEMA_VERSION, bound_options, inputs_document
from planner.policies.residual_life import FIRST_STAY_H
from planner.repack.dry_run import Move, ProposedChange
from planner.repack.progress import PROGRESS_COLUMNS
from planner.repack.report import RepackReport

__all__ = ["REPACK_FILES", "repack_document", "repack_notes", "write_repack_files"]

_PLAN, _MOVES = "repacked.json", "moves.csv"
REPACK_FILES: Final = (_PLAN, _MOVES)
_HOUR_S: Final = 3600.0
#: Jobs that are faster than planned by less are not told, relative.
_FAST_REL: Final = 1e-6
_COLUMNS: Final = (
    "proposal", "proposal_needs", "job_id", "from_group", "to_group", "rollout_pins_before",
    "train_pins_before", "rollout_pins_after", "train_pins_after", "restart_s", "restart_usd",
    "overlap_usd", "slo_credit_s", "payback_s", "proposal_saving_usd_per_hour",
    "proposal_lasting_h", "proposal_net_gain_usd",
)  # fmt: skip


# --- notes --------------------------------------------------------------------------------------


def repack_notes(report: RepackReport) -> list[str]:
    """Return what a reader must know about how the answer came about."""
    return [
        *_told(report),
        *_doubtful(report),
        *_named_in_vain(report),
        *_costs(report),
        *_proofs(report),
    ]


def _told(report: RepackReport) -> Iterator[str]:
    """Yield what is not known of the jobs."""
    running, params = report.running, report.params
    if not running.ledger.known:
        yield (
            "SLO credit is not known: the plan does not tell what its jobs have done. A job may "
            "move only if at its present pace it earns its restart back within the hours a "
            "saving lasts. Give --progress CSV (job_id, elapsed_s, iterations)."
        )
    if running.is_snapshot and params.max_moves_per_job_day:
        history = running.progress
        if history is None or not history.moves_last_day:
            yield (
                "--max-moves-per-job-day does not know the moves made before: nobody is taken to "
                "have moved in the last 24 h. Give --progress CSV with moves_last_day."
            )
    by_rule = params.lasting_h is None and params.oracle == "none" and params.rule == "residual"
    if by_rule and not running.ledger.departed:
        ages = "" if running.is_snapshot and running.progress is None else " and the jobs' ages"
        yield (
            f"no departure is known: that a saving lasts {report.lasting_h:.1f} h follows from a "
            f"guessed stay of {FIRST_STAY_H:g} h{ages}. Give --lasting-hours to replace it."
        )


def _doubtful(report: RepackReport) -> Iterator[str]:
    """Yield what a progress file can hardly mean: credit that is none lets moves break an SLO."""
    running, progress = report.running, report.running.progress
    if progress is None:
        return
    fast = [
        job_id
        for job_id, done in progress.iterations.items()
        if done * running.ledger[job_id].job.solo_s > progress.elapsed_s[job_id] * (1 + _FAST_REL)
    ]
    if fast:
        first, n = fast[0], len(fast)
        job = running.ledger[first].job
        yield (
            f"{n} job{'s' * (n != 1)} of {progress.name} ran faster than planned alone (first "
            f"'{first}': {progress.iterations[first]:g} iterations of {job.solo_s:g} s in "
            f"{progress.elapsed_s[first]:g} s). SLO credit counts them in full: check the unit of "
            "elapsed_s."
        )


def _named_in_vain(report: RepackReport) -> Iterator[str]:
    """Yield what was given and has no effect."""
    running = report.running
    present = running.jobs.job_id
    for job_id in sorted(report.params.freeze - set(present)):
        yield f"--freeze names '{job_id}', which is not running.{did_you_mean(job_id, present)}"
    if running.progress is not None:
        for column in running.progress.unknown:
            guess = did_you_mean(column, PROGRESS_COLUMNS)
            yield f"column '{column}' of {running.progress.name} is not read.{guess}"


def _costs(report: RepackReport) -> Iterator[str]:
    """Yield what the prices of moves and of now rest on."""
    running = report.running
    if report.running.restart_s is None:
        guessed = restart_sources(running.jobs.take(running.jobs.where_sharing()))["guessed"]
        if guessed:
            yield (
                f"restart seconds of {guessed} of {report.jobs_in_groups} jobs are guessed (no "
                "restart_s, no model_b). Give --restart-seconds to replace them."
            )
    if running.held:
        rollout = sum(item.rollout_nodes for item in running.held)
        train = sum(item.train_nodes for item in running.held)
        last_h = (max(item.to_s for item in running.held) - running.clock_s) / _HOUR_S
        yield (
            f"{rollout} + {train} old nodes of earlier moves are still held, for {last_h:.2f} h "
            "at most: they are in no price here."
        )


def _proofs(report: RepackReport) -> Iterator[str]:
    """Yield what another run may find otherwise, or more time."""
    if report.ended_early:
        yield (
            "the search for moves was ended early: there may be better ones, and another run may "
            "find others. Give --time-limit to search longer."
        )
    elif report.searches_at_limit:
        yield (
            "the search for moves reached its fixed limit of work before it proved that no others "
            "earn more. Every run gives this answer; more time does not change it."
        )
    least = report.least
    if report.interrupted and report.stopped and least.method == VOLUME:
        yield (
            "Ctrl-C came before the proof of the least price: it is the volume bound, which may "
            "be far below what a plan can reach."
        )
    elif least.method == VOLUME and report.time_limit_s is None:
        yield (
            "the least price is the volume bound, which may be far below what a plan can reach. "
            "Give --time-limit to prove more."
        )
    elif least.stopped_by is not None:
        yield (
            "the proof of the least price was ended early: with more time (--time-limit) the "
            "bound may be higher, and it may differ from run to run."
        )


# --- JSON ---------------------------------------------------------------------------------------


def _inputs(report: RepackReport, name: str, sha256: str | None) -> dict[str, Any]:
    running, params = report.running, report.params
    inputs = inputs_document(Trace(name=name, sha256=sha256, jobs=running.jobs))
    moment_s = running.moment_s
    progress = running.progress
    out: dict[str, Any] = {
        "plan": inputs.pop("trace"),
        "sha256": inputs.pop("sha256"),
        "policy": running.plan.policy,
        "durations": running.plan.durations,
        "moment_s": moment_s,
        "moment_h": None if moment_s is None else moment_s / _HOUR_S,
        "progress": None if progress is None else progress.name,
        "progress_sha256": None if progress is None else progress.sha256,
        **inputs,
    }
    out["seed"] = report.seed
    out["cluster"] = cluster_to_dict(running.plan.cluster)
    out["options"] = {
        **bound_options(running.plan.limits),
        "repack_rule": params.rule,
        "oracle": params.oracle,
        "lasting_hours": params.lasting_h,
        "moves": report.most_moves,
        "max_moves_per_job_day": params.max_moves_per_job_day,
        "min_gain_usd": params.min_gain_usd,
        "overlap_seconds": params.overlap_s,
        "restart_seconds": report.running.restart_s,
        "freeze": sorted(params.freeze),
        "time_limit_s": report.time_limit_s,
    }
    return out


def _group(report: RepackReport, state: GroupState, name: str) -> dict[str, Any]:
    nodes = {"rollout": len(state.rollout_nodes), "train": len(state.train_nodes)}
    return {
        "group_id": name,
        "jobs": [job.job_id for job in state.jobs],
        "nodes": nodes,
        "usd_per_hour": report.running.plan.cluster.usd_per_hour(nodes["rollout"], nodes["train"]),
        "period_s": state.period_s,
    }


def _move(move: Move) -> dict[str, Any]:
    return {
        "job_id": move.job_id,
        "from_group": move.from_group,
        "to_group": move.to_group,
        "pins_before": {"rollout": move.pins_before[0], "train": move.pins_before[1]},
        "pins_after": {"rollout": move.pins_after[0], "train": move.pins_after[1]},
        "restart_s": move.restart_s,
        "restart_usd": move.restart_usd,
        "overlap_usd": move.overlap_usd,
        "slo_credit_s": move.credit_s,
        "payback_s": move.payback_s,
    }


def _change(report: RepackReport, change: ProposedChange) -> dict[str, Any]:
    return {
        "needs": list(change.needs),
        "moves": [_move(move) for move in change.moves],
        "groups_before": [_group(report, s, change.names[s.number]) for s in change.before],
        "groups_after": [_group(report, s, change.names[s.number]) for s in change.after],
        "saving_usd_per_hour": change.saving_usd_per_hour,
        "lasting_h": change.lasting_h,
        "cost_usd": change.cost_usd,
        "net_gain_usd": change.gain_usd,
        "net_gain_usd_per_move": change.gain_usd / len(change.moves),
        "break_even_h": change.break_even_h if isfinite(change.break_even_h) else None,
    }


def repack_document(
    report: RepackReport, name: str, sha256: str | None, *, timings: bool = False
) -> dict[str, Any]:
    """Return the whole document; what is unknown is null.

    Parameters
    ----------
    name, sha256 : str
        Of the plan file.
    """
    running, least = report.running, report.least
    nearest = report.nearest
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "repack",
        "inputs": _inputs(report, name, sha256),
        "usd_per_hour_before": report.usd_per_hour_before,
        "usd_per_hour_after": report.usd_per_hour_after,
        "bound_usd_per_hour": least.bound_usd_per_hour,
        "bound_method": least.method,
        "bound_proved_least": least.proved,
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "n_jobs": len(running.jobs),
        "n_groups_before": len(running.groups),
        "n_groups_after": len(report.plan.groups),
        "dedicated": {
            "jobs": len(running.dedicated),
            "nodes": running.dedicated_nodes,
        },
        "lasting_h": report.lasting_h,
        "slo_credit_known": running.ledger.known,
        "moves": len(report.moves),
        "hours_lost": report.hours_lost,
        "net_gain_usd": sum(change.gain_usd for change in report.changes),
        "proposals": [_change(report, change) for change in report.changes],
        "nearest": None if nearest is None else _change(report, nearest),
        "immovable": dict(report.immovable),
        "notes": repack_notes(report),
        "plan": plan_to_dict(report.plan),
        "checked": True,
    }
    if timings:
        document["timings"] = {"repack_s": report.seconds}
    return document


# --- files --------------------------------------------------------------------------------------


def write_repack_files(
    report: RepackReport,
    directory: Path,
    *,
    force: bool,
    more: Mapping[str, Writer] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write the plan after the moves, and a row per move; return the names of the files.

    Files of ``more`` are written with them: all or none.

    Raises
    ------
    InputError
        When a file is in the way and ``force`` is not set, or the disk refuses.
    """
    writers: dict[str, Writer] = {
        _PLAN: lambda path: write_plan_json(report.plan, path),
        _MOVES: lambda path: _write_moves(report, path),
        **more,
    }
    write_files(directory, writers, force=force)
    return tuple(writers)


def _spaced(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _write_moves(report: RepackReport, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(_COLUMNS)
        for number, change in enumerate(report.changes, start=1):
            for move in change.moves:
                lines.writerow(
                    (
                        number,
                        _spaced(change.needs),
                        move.job_id,
                        move.from_group,
                        move.to_group,
                        *map(_spaced, move.pins_before),
                        *map(_spaced, move.pins_after),
                        move.restart_s,
                        move.restart_usd,
                        move.overlap_usd,
                        "" if move.credit_s is None else move.credit_s,
                        "" if move.payback_s is None else move.payback_s,
                        change.saving_usd_per_hour,
                        change.lasting_h,
                        change.gain_usd,
                    )
                )
