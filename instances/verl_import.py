"""Logs of verl to a trace: one log, one job, one row.

``rollout_s`` and ``train_s`` of a trace are worst cases: every response at the token limit. A log
shows what happened, so each is the *largest measured* over the steps that count
(:mod:`instances.verl_phases`), and the summary says whether the limit was reached. Nothing is
extrapolated unless asked for (``at_limit``); then the slowest step of each phase is scaled and the
row says *estimated*:

* rollout, ``longest``: seconds of generation x limit / longest response of that step. A rollout
  lasts as long as its longest response, where every response decodes at once.
* rollout, ``tokens``: x limit / mean response of that step. Every response at the limit, at the
  tokens per second of that step: the safe side, as fuller batches decode faster.
* train, both: x (prompt + limit) / (prompt + response), means of that step: linear in tokens.

Percentiles over steps (``rollout_p50_s``, ``rollout_p95_s``, ``train_...``) are given from 20
steps on; each is a measured value. ``response_p50_tokens`` and the like are of single responses,
and a log has only the mean and extremes of each batch: left empty.

Seconds are those of the GPUs and node counts of the log. Nothing converts them to others.
State, switch and sync columns follow from ``model_b`` as in any trace, or are given in the table
of jobs; ``sync_keys`` makes ``sync_s`` a measured one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Required, TypedDict, Unpack

import numpy as np

from instances.errors import InputError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.trace_files import decompress, read_bytes
from instances.trace_io import CsvText
from instances.trace_rules import Fault, RawTable, jobs_from_table
from instances.trace_table import ESTIMABLE, KNOWN_COLUMNS, Column, plain
from instances.verl_log import VerlLog, read_verl_log
from instances.verl_phases import Phases, chosen_keys, read_phases
from instances.verl_words import Words
from instances.verl_worst_case import AT_LIMIT, Limit, timing_cells

__all__ = ["AT_LIMIT", "VerlChoices", "VerlJob", "VerlSummary", "import_verl"]

#: What the table of jobs may not give: the log does.
_FROM_LOG: Final = ("rollout_s", "train_s")
_ENDINGS: Final = (".gz", ".zst", ".csv", ".jsonl", ".ndjson", ".json", ".log", ".txt", ".out")
_OPTIONS: Final = (
    "slo",
    "arrival_s",
    "iterations",
    "rollout_nodes",
    "train_nodes",
    "model_b",
    "max_tokens",
)


class VerlChoices(TypedDict, total=False):
    """What a log does not say about its job; the table of jobs goes before all of it.

    Attributes
    ----------
    slo : float
        Tolerated slowdown, >= 1. A promise: it has no default.
    job_id : str
        Of a single log; otherwise the file's name without its ending, behind the folder's name
        and a dash where two files have the same name.
    arrival_s : float
        0 unless given.
    iterations : float
        The distinct steps logged unless given.
    rollout_nodes, train_nodes : int
        1 and 1 unless given.
    model_b : float
        Parameters, 1e9: state, switch and sync are estimated from it.
    max_tokens : float
        The limit of a response; else the longest response, where some were cut off there.
    skip_steps : int
        Warm-up steps to leave out after each start, 1 unless given.
    rollout_keys, train_keys, sync_keys : sequence of str
        Timings of each phase instead of the defaults (sync: none).
    at_limit : str
        ``longest`` or ``tokens``: scale to the limit.
    cluster : Cluster
        Gives the estimated columns.
    """

    slo: Required[float | None]
    job_id: str | None
    arrival_s: float
    iterations: float | None
    rollout_nodes: int
    train_nodes: int
    model_b: float | None
    max_tokens: float | None
    skip_steps: int
    rollout_keys: Sequence[str]
    train_keys: Sequence[str]
    sync_keys: Sequence[str]
    at_limit: str | None
    cluster: Cluster


@dataclass(frozen=True, kw_only=True)
class VerlJob:
    """What was made of one log.

    Attributes
    ----------
    job_id, source, form : str
        The job, the file and what it was read as.
    phases : Phases
    row : mapping of str to str
        The cells of its row, as text.
    notes, warnings : tuple of str
        Sentences for a person.
    """

    job_id: str
    source: str
    form: str
    phases: Phases
    row: Mapping[str, str]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class VerlSummary:
    """What an import read, used and left out, job by job in the order of the logs."""

    jobs: tuple[VerlJob, ...]

    def lines(self) -> tuple[str, ...]:
        """Return the account of every log as lines of text, warnings apart."""
        last = (
            "Seconds are those of the logs' own GPUs and node counts; nothing converts them to "
            "another cluster."
        )
        return (*(line for job in self.jobs for line in job.notes), last)

    def warnings(self) -> tuple[str, ...]:
        """Return what must not be missed."""
        return tuple(line for job in self.jobs for line in job.warnings)


def import_verl(
    paths: str | Path | Sequence[str | Path],
    *,
    jobs_table: str | Path | None = None,
    **choices: Unpack[VerlChoices],
) -> tuple[JobTable, VerlSummary]:
    """Import step timings that verl logged, one job from each file.

    Parameters
    ----------
    paths : path or sequence of paths
        CSV, JSON Lines or console logs, each also ``.gz`` or ``.zst``.
    jobs_table : str or Path, optional
        CSV with a row a job: ``job_id`` and any columns of a trace but ``rollout_s`` and
        ``train_s``. A cell that is not empty goes before the option of that name.
    **choices
        See :class:`VerlChoices`; only ``slo`` has no default.

    Returns
    -------
    tuple of (JobTable, VerlSummary)

    Raises
    ------
    InputError
        When a file cannot be read or breaks a rule; of each file every fault is counted and the
        first 20 are shown with line, key, value and rule.
    UnsupportedError
        When a log is that of a fully asynchronous job.
    """
    files = [paths] if isinstance(paths, str | Path) else list(paths)
    _check_choices(files, choices)
    given = {} if jobs_table is None else _read_jobs_table(jobs_table)
    job_id = choices.get("job_id")
    ids = [job_id] if job_id else _job_ids([Path(path) for path in files])
    if jobs_table is not None:
        _check_ids(Path(jobs_table).name, given, ids)
    jobs: list[VerlJob] = []
    errors: list[InputError] = []
    for path, name in zip(files, ids, strict=True):
        try:
            jobs.append(_import_log(path, name, given.get(name, {}), choices))
        except InputError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InputError("\n".join(map(str, errors)))
    table = _raw_table([job.row for job in jobs])
    cluster = choices.get("cluster", DEFAULT_CLUSTER)
    return jobs_from_table(table, cluster), VerlSummary(jobs=tuple(jobs))


def _job_ids(files: Sequence[Path]) -> list[str]:
    """Return the files' names without their endings, with the folder's where two are equal."""
    names = [path.name for path in files]
    for ending in _ENDINGS:
        names = [name.removesuffix(ending) or name for name in names]
    return [
        f"{path.absolute().parent.name}-{name}" if names.count(name) > 1 else name
        for path, name in zip(files, names, strict=True)
    ]


def _check_choices(files: Sequence[str | Path], choices: VerlChoices) -> None:
    if not files:
        raise InputError("Expected at least one log, got none.")
    if choices.get("job_id") and len(files) > 1:
        raise InputError(f"Expected one log with a job id, got {len(files)}.")
    if (skip := choices.get("skip_steps", 1)) < 0:
        raise InputError(f"Expected skip_steps >= 0, got {skip}.")
    at_limit = choices.get("at_limit")
    if at_limit is not None and at_limit not in AT_LIMIT:
        hint = did_you_mean(at_limit, AT_LIMIT)
        raise InputError(
            f"Expected at_limit to be {' or '.join(AT_LIMIT)}, got {at_limit!r}.{hint}"
        )


# -- the table of jobs ---------------------------------------------------------------------


def _read_jobs_table(path: str | Path) -> dict[str, dict[str, str]]:
    """Return job id -> column -> cell, empty cells left out."""
    source = Path(path).name
    suffix = Path(path).suffix.lower().removeprefix(".")
    packed = suffix if suffix in ("gz", "zst") else ""
    table = CsvText(decompress(read_bytes(path), packed, source), source).text()
    table = table.tidied(KNOWN_COLUMNS, "job_id")
    if "job_id" not in table.cells:
        rule = "Missing column job_id."
        table.log.add(Fault(row=None, column="", value="", rule=rule, hint=table.suggest("job_id")))
    for name in table.columns:
        if name in _FROM_LOG:
            rule = f"Expected no column {name}: it comes from the log."
            table.log.add(Fault(row=None, column=name, value="", rule=rule))
        elif name not in KNOWN_COLUMNS:
            known = [column for column in KNOWN_COLUMNS if column not in _FROM_LOG]
            rule = f"Expected columns of a trace, got {name!r}."
            hint = did_you_mean(name, known)
            table.log.add(Fault(row=None, column=name, value="", rule=rule, hint=hint))
    table.log.raise_any(source)
    texts = {name: cell.as_texts() for name, cell in table.cells.items()}
    out: dict[str, dict[str, str]] = {}
    for i, job_id in enumerate(texts["job_id"]):
        if job_id in out:
            rule = "a job_id used once"
            line = int(table.rows[i])
            table.log.add(Fault(row=line, column="job_id", value=job_id, rule=rule))
        out[job_id] = {name: cells[i] for name, cells in texts.items() if cells[i].strip()}
    table.log.raise_any(source)
    return out


def _check_ids(source: str, given: Mapping[str, object], ids: Sequence[str]) -> None:
    """Require a row for every log and a log for every row."""
    missing = [job_id for job_id in ids if job_id not in given]
    unused = [job_id for job_id in given if job_id not in ids]
    if missing or unused:
        parts = []
        if missing:
            parts.append(f"no row for {', '.join(map(repr, missing))}")
        if unused:
            parts.append(f"no log for {', '.join(map(repr, unused))}")
        raise InputError(
            f"{source}: Expected one row for each log, got {' and '.join(parts)} (a log's job_id "
            "is its file's name without the ending)."
        )


# -- one log -------------------------------------------------------------------------------


def _import_log(
    path: str | Path, job_id: str, given: Mapping[str, str], choices: VerlChoices
) -> VerlJob:
    log = read_verl_log(path)
    keys = chosen_keys(
        log,
        rollout=choices.get("rollout_keys", ()),
        train=choices.get("train_keys", ()),
        sync=choices.get("sync_keys", ()),
    )
    skip = choices.get("skip_steps", 1)
    phases = read_phases(log, keys, skip)
    if not phases.steps:
        raise InputError(_no_step(log, phases, skip))
    row = {"job_id": job_id, "mode": keys.mode}
    options: dict[str, float | None] = {"arrival_s": 0.0, "rollout_nodes": 1, "train_nodes": 1}
    for name in _OPTIONS:
        value = choices.get(name, options.get(name))
        if isinstance(value, int | float):
            row[name] = plain(float(value))
    row |= given
    if "slo" not in row:
        raise InputError(
            f"{log.source}: Expected slo, the slowdown promised to job {job_id!r}, as an option "
            "or in the table of jobs, got none."
        )
    if needed := _without_model(row, keys.sync):
        raise InputError(
            f"{log.source}: Expected model_b (--model-b) of job {job_id!r}, or all of "
            f"{', '.join(needed)} in the table of jobs, got neither."
        )
    if "duration_s" in given and "iterations" not in given:
        row.pop("iterations", None)
    counted = "duration_s" not in row and "iterations" not in row
    if counted:
        row["iterations"] = str(phases.logged)
    limit = Limit.of(log, phases, row)
    if limit.found:
        row["max_tokens"] = plain(limit.tokens)
    row |= timing_cells(log, phases, limit, choices.get("at_limit"))
    words = Words(log, phases, limit, row)
    return VerlJob(
        job_id=job_id,
        source=log.source,
        form=log.form,
        phases=phases,
        row=row,
        notes=tuple(words.notes(counted=counted)),
        warnings=tuple(words.warnings(choices.get("at_limit"), counted=counted)),
    )


def _without_model(row: Mapping[str, str], sync_keys: Sequence[str]) -> list[str]:
    """Return the columns that only ``model_b`` could fill in, where it is not given."""
    if "model_b" in row:
        return []
    sync = [] if sync_keys or "sync_s" in row or "sync_gb" in row else ["sync_s"]
    return [*(name for name in ESTIMABLE if name not in row), *sync]


def _no_step(log: VerlLog, phases: Phases, skip: int) -> str:
    why = [f"{len(phases.warm_up)} skipped as warm-up"] if phases.warm_up else []
    why += [f"{len(steps)} without {key}" for key, steps in phases.lacking.items()]
    return (
        f"{log.source}: Expected a step to measure, got none of {phases.logged} "
        f"({', '.join(why)}; skip_steps is {skip})."
    )


def _raw_table(rows: Sequence[Mapping[str, str]]) -> RawTable:
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = {name: Column(texts=[row.get(name, "") for row in rows]) for name in names}
    at = np.arange(1, len(rows) + 1)
    return RawTable(source="verl logs", columns=names, cells=cells, rows=at, place="log")
