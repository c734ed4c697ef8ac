"""Real job logs, imported with synthetic RL phase profiles on top.

A cluster log has arrivals, durations and GPU counts but no rollout, train or sync seconds.
Those are drawn, seeded, from :mod:`instances.profiles`, and the extra column
``profile_source`` says so in every row: ``synthetic:<profile>:seed=<n>``. The fields of the
log are kept as extra text columns (``philly_timestamp``, ``generic_gpu_count``, ...).

Choices of ours: GPU counts are rounded up to whole nodes of each pool and both phases get that many
nodes (``single_node`` makes it one and one); ``duration_s`` is the log's duration; arrival 0 is
the first job kept. Profiles are drawn for every row of the file and then selected, so a
job keeps its profile when the window or a filter changes.

A row that a filter leaves out is counted by reason, and the counts and the rows kept sum up to
the rows read. A row that breaks a rule is an error: nothing is repaired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.profiles import Stays, build_jobs, draw_phases, require_profile
from instances.trace_files import decompress, read_bytes
from instances.trace_io import CsvText
from instances.trace_rules import Fault, RawTable

__all__ = ["IMPORTERS", "ImportChoices", "ImportSummary", "import_generic", "import_philly"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_MOST_GPUS: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1)
_PHILLY_COLUMNS: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_GENERIC_COLUMNS: Final = ("job_id", "arrival_s", "service_sec", "gpu_count")


@dataclass(frozen=True, kw_only=True)
class ImportSummary:
    """What an import read, kept and left out.

    Attributes
    ----------
    source : str
        File name.
    rows_read, kept : int
        Rows after the header, and jobs in the table.
    dropped : mapping of str to int
        Reason -> rows, each row under the first reason it meets: ``min_gpus``,
        ``min_hours``, ``window`` (hours), ``jobs`` (beyond the first n). ``kept`` and these
        sum up to ``rows_read``.
    gpus : mapping of int to (int, int)
        GPU count -> (rollout nodes, train nodes, jobs kept), ascending.
    seed : int
        Seed of the profiles.
    profile : str
        Profile they were drawn from.
    window : tuple of (str, str)
        First and last arrival kept, as the log writes them.
    running : int
        Jobs left out that arrived before the window and still run at its start, those that the
        other filters leave out not counted.
    pools : tuple of (str, int)
        GPU and GPUs of a node, of the rollout and of the train pool.
    """

    source: str
    rows_read: int
    kept: int
    dropped: Mapping[str, int]
    gpus: Mapping[int, tuple[int, int, int]]
    seed: int
    profile: str
    window: tuple[str, str]
    running: int
    pools: tuple[tuple[str, int], tuple[str, int]]

    def lines(self) -> tuple[str, ...]:
        """Return the summary as lines of text."""
        dropped = ", ".join(f"{reason} {rows}" for reason, rows in self.dropped.items())
        gpus = ", ".join(
            f"{count} GPUs as {rollout}+{train} nodes: {jobs}"
            for count, (rollout, train, jobs) in self.gpus.items()
        )
        still: tuple[str, ...] = ()
        if self.running:
            one = self.running == 1
            still = (
                f"{self.running} {'job' if one else 'jobs'} that arrived earlier still "
                f"{'runs' if one else 'run'} at the start of the window and "
                f"{'is' if one else 'are'} left out: the cluster starts empty.",
            )
        return (
            f"{self.source}: {self.rows_read} rows read, {self.kept} kept.",
            f"Left out: {dropped}.",
            f"Arrivals kept: {self.window[0]} to {self.window[1]}.",
            *still,
            f"Jobs by size: {gpus}.",
            self._hardware(),
            f"RL phase profiles are synthetic: {self.profile}, seed {self.seed}.",
        )

    def _hardware(self) -> str:
        """Return what a job of the commonest size becomes, in nodes and GPUs."""
        count = max(self.gpus, key=lambda size: (self.gpus[size][2], -size))
        nodes = self.gpus[count][:2]
        kinds = zip(nodes, ("rollout", "train"), strict=True)
        words = " and ".join(f"{n} {kind} {'node' if n == 1 else 'nodes'}" for n, kind in kinds)
        pools = zip(nodes, self.pools, strict=True)
        gpus = " + ".join(f"{n * per_node} {gpu}" for n, (gpu, per_node) in pools)
        return f"A job of {count} {'GPU' if count == 1 else 'GPUs'} becomes {words} ({gpus} GPUs)."


class ImportChoices(TypedDict, total=False):
    """The options every format shares; only the seed has no default.

    Attributes
    ----------
    seed : int
        Seed of the synthetic profiles.
    hours : float, optional
        Length of the window of arrivals kept; ``None`` means up to the end.
    start_h : float
        Start of the window, hours after the earliest timestamp of the file.
    jobs : int, optional
        Keep only the first ``jobs`` of what the other filters leave.
    min_gpus : int
        Leave out jobs with fewer GPUs.
    min_hours : float
        Leave out jobs shorter than this.
    profile : str
        One of :data:`instances.profiles.PROFILES`.
    single_node : bool
        Give every job one node of each kind, whatever its GPU count.
    cluster : Cluster
        Gives the estimated columns.
    """

    seed: Required[int]
    hours: float | None
    start_h: float
    jobs: int | None
    min_gpus: int
    min_hours: float
    profile: str
    single_node: bool
    cluster: Cluster


@dataclass(frozen=True, kw_only=True)
class _Options:
    """:class:`ImportChoices` with their defaults: nothing is left out."""

    seed: int
    hours: float | None = None
    start_h: float = 0.0
    jobs: int | None = None
    min_gpus: int = 1
    min_hours: float = 0.0
    profile: str = "mixed"
    single_node: bool = False
    cluster: Cluster = DEFAULT_CLUSTER

    def check(self) -> None:
        rules = (
            (self.seed >= 0, "seed >= 0", self.seed),
            (self.hours is None or 0 < self.hours < math.inf, "hours > 0", self.hours),
            (0 <= self.start_h < math.inf, "start_h >= 0", self.start_h),
            (self.jobs is None or self.jobs >= 1, "jobs >= 1", self.jobs),
            (self.min_gpus >= 0, "min_gpus >= 0", self.min_gpus),
            (0 <= self.min_hours < math.inf, "min_hours >= 0", self.min_hours),
        )
        for holds, rule, got in rules:
            if not holds:
                raise InputError(f"Expected {rule}, got {got}.")
        require_profile(self.profile)

    def select(
        self, arrival_s: FloatArray, duration_s: FloatArray, gpus: IntArray
    ) -> tuple[IntArray, dict[str, int]]:
        """Return the kept rows in arrival order (ties in file order) and the drop counts."""
        start_s = arrival_s.min(initial=math.inf) + 3600 * self.start_h
        end_s = math.inf if self.hours is None else start_s + 3600 * self.hours
        tests: tuple[tuple[str, BoolArray], ...] = (
            ("min_gpus", gpus >= self.min_gpus),
            ("min_hours", duration_s >= 3600 * self.min_hours),
            ("window", (arrival_s >= start_s) & (arrival_s < end_s)),
        )
        kept = np.ones(len(arrival_s), dtype=np.bool_)
        dropped: dict[str, int] = {}
        for reason, passes in tests:
            dropped[reason] = int((kept & ~passes).sum())
            kept &= passes
        rows = np.flatnonzero(kept)
        rows = rows[np.argsort(arrival_s[rows], kind="stable")]
        first = rows[: self.jobs]
        dropped["jobs"] = len(rows) - len(first)
        return first, dropped

    def running(self, arrival_s: FloatArray, duration_s: FloatArray, gpus: IntArray) -> int:
        """Return how many jobs arrived before the window and run at its start."""
        start_s = arrival_s.min() + 3600 * self.start_h
        runs = (arrival_s < start_s) & (arrival_s + duration_s > start_s)
        runs &= (gpus >= self.min_gpus) & (duration_s >= 3600 * self.min_hours)
        return int(runs.sum())


def _read_log(path: str | Path, required: Sequence[str]) -> RawTable:
    """Read a CSV log (``.gz`` and ``.zst`` too); refuse a header without ``required``.

    Rows of the wrong length and other faults of the file as such are in ``log``.
    """
    source = Path(path).name
    suffix = Path(path).suffix.lower().removeprefix(".")
    packed = suffix if suffix in ("gz", "zst") else ""
    table = CsvText(decompress(read_bytes(path), packed, source), source).text()
    table = table.tidied(required, required[0])
    missing = [name for name in required if name not in table.cells]
    for name in missing:
        rule = f"Missing column {name!r}."
        hint = f"{table.suggest(name)} Expected columns: {', '.join(required)}."
        table.log.add(Fault(row=None, column=name, value="", rule=rule, hint=hint))
    if missing:
        table.log.raise_any(source)
    return table


def _add_fault(table: RawTable, row: int, column: str, rule: str) -> None:
    fault = Fault(
        row=int(table.rows[row]),
        column=column,
        value=table.cells[column].raw(row),
        rule=rule,
        place=table.place,
    )
    table.log.add(fault, table.columns.index(column))


def _numbers(
    table: RawTable, column: str, rule: str, holds: Callable[[FloatArray], BoolArray]
) -> FloatArray:
    """Return a column; cells that are no finite number or break the rule are faults, and 0."""
    values, malformed = table.cells[column].as_numbers()
    values = np.where(malformed | ~np.isfinite(values), np.nan, values)
    good = np.isfinite(values) & holds(values)
    for row in np.flatnonzero(~good):
        _add_fault(table, int(row), column, f"{column} {rule}")
    return np.where(good, values, 0.0)


def _seconds(table: RawTable, column: str) -> FloatArray:
    return _numbers(table, column, "> 0 seconds", lambda v: v > 0)


def _gpu_counts(table: RawTable, column: str) -> IntArray:
    rule = f"a whole number from 1 to {_MOST_GPUS:,}"
    counts = _numbers(
        table, column, rule, lambda v: (v >= 1) & (v <= _MOST_GPUS) & (v == np.floor(v))
    )
    return counts.astype(np.int64)


def _texts(table: RawTable, prefix: str, rows: IntArray) -> dict[str, tuple[str, ...]]:
    """Return every column of the log at these rows as text, its name prefixed."""
    cells = {name: table.cells[name].as_texts() for name in table.cells}
    return {f"{prefix}_{name}": tuple(texts[i] for i in rows) for name, texts in cells.items()}


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The checked rows of a log, in file order; arrays ``(n_rows,)``."""

    prefix: str
    job_id: Sequence[str]
    arrival_column: str
    arrival_s: FloatArray
    duration_s: FloatArray
    gpus: IntArray


def _assemble(log: RawTable, read: _Rows, options: _Options) -> tuple[JobTable, ImportSummary]:
    """Filter, draw the profiles and build the table; the part that every format shares."""
    seed, profile, cluster = options.seed, options.profile, options.cluster
    arrival_s, gpus = read.arrival_s, read.gpus
    rows, dropped = options.select(arrival_s, read.duration_s, gpus)
    if not len(rows):
        left_out = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        hours = float(np.ptp(arrival_s)) / 3600 if len(arrival_s) else 0.0
        raise InputError(
            f"{log.source}: Expected at least one job to keep, got none of {len(log.rows)} rows "
            f"(left out: {left_out}). Arrivals span {hours:.4g} h."
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    phases = draw_phases(rng, len(log.rows), profile, cluster).take(rows)
    pools = (cluster.rollout.gpus_per_node, cluster.train.gpus_per_node)
    widths = tuple(-(-gpus[rows] // per_node) for per_node in pools)
    if options.single_node:
        widths = (np.ones(len(rows), dtype=np.int64),) * 2
    extra: dict[str, tuple[str, ...]] = {
        "profile": phases.label,
        "profile_source": (f"synthetic:{profile}:seed={seed}",) * len(rows),
        **_texts(log, read.prefix, rows),
    }
    stays = Stays(
        job_id=tuple(read.job_id[row] for row in rows),
        arrival_s=np.round(arrival_s[rows] - arrival_s[rows[0]], 3),
        duration_s=read.duration_s[rows],
        rollout_nodes=widths[0],
        train_nodes=widths[1],
        extra=extra,
    )
    arrivals = log.cells[read.arrival_column].as_texts()
    counts, first, jobs = np.unique(gpus[rows], return_index=True, return_counts=True)
    summary = ImportSummary(
        source=log.source,
        rows_read=len(log.rows),
        kept=len(rows),
        dropped=dropped,
        gpus={
            int(c): (int(widths[0][i]), int(widths[1][i]), int(k))
            for c, i, k in zip(counts, first, jobs, strict=True)
        },
        seed=seed,
        profile=profile,
        window=(arrivals[rows[0]], arrivals[rows[-1]]),
        running=options.running(arrival_s, read.duration_s, gpus),
        pools=(
            (cluster.rollout.gpu.name, cluster.rollout.gpus_per_node),
            (cluster.train.gpu.name, cluster.train.gpus_per_node),
        ),
    )
    return build_jobs(stays, phases, cluster), summary


def _wall_clock_seconds(table: RawTable, column: str) -> FloatArray:
    """Return the seconds of local timestamps; a clock change is not corrected for."""
    texts = table.cells[column].as_texts()
    out = np.zeros(len(texts))
    for row, text in enumerate(texts):
        try:
            when = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            _add_fault(table, row, column, f"{column} as YYYY-MM-DD HH:MM:SS")
        else:
            out[row] = (when - _EPOCH) / timedelta(seconds=1)
    return out


def import_philly(
    path: str | Path, **choices: Unpack[ImportChoices]
) -> tuple[JobTable, ImportSummary]:
    """Import a Philly log: columns timestamp, duration, num_gpus, gpu_time, cluster.

    The log has no job ids: ``philly-000123`` is the 123rd row after the header. Rows need not
    be sorted. Timestamps are local wall time and are taken as they are. ``gpu_time`` must be
    duration x num_gpus (relative tolerance 1e-6).

    Parameters
    ----------
    path : str or Path
        CSV file, plain or ``.gz``.
    **choices
        See :class:`ImportChoices`; ``min_gpus`` is 8 and ``min_hours`` 1 unless chosen.

    Returns
    -------
    tuple of (JobTable, ImportSummary)

    Raises
    ------
    InputError
        When the file cannot be read or breaks a rule (every fault counted, the first 20 shown
        with line, column, value and rule), when an option breaks its rule, or when no row is
        left.
    """
    choices.setdefault("min_gpus", 8)
    choices.setdefault("min_hours", 1.0)
    options = _Options(**choices)
    options.check()
    log = _read_log(path, _PHILLY_COLUMNS)
    arrival_s = _wall_clock_seconds(log, "timestamp")
    duration_s = _seconds(log, "duration")
    gpus = _gpu_counts(log, "num_gpus")
    gpu_time_s = _seconds(log, "gpu_time")
    product = duration_s * gpus
    # A cell already at fault is 0 here and is not reported twice.
    known = (product > 0) & (gpu_time_s > 0)
    for row in np.flatnonzero(known & ~np.isclose(gpu_time_s, product, rtol=1e-6, atol=0.0)):
        rule = f"gpu_time = duration x num_gpus = {product[row]:g}"
        _add_fault(log, int(row), "gpu_time", rule)
    log.log.raise_any(log.source)
    read = _Rows(
        prefix="philly",
        job_id=[f"philly-{row:06d}" for row in range(1, len(log.rows) + 1)],
        arrival_column="timestamp",
        arrival_s=arrival_s,
        duration_s=duration_s,
        gpus=gpus,
    )
    return _assemble(log, read, options)


def import_generic(
    path: str | Path, **choices: Unpack[ImportChoices]
) -> tuple[JobTable, ImportSummary]:
    """Import a plain log: columns job_id, arrival_s, service_sec, gpu_count.

    Job ids must be distinct and not empty, arrivals any finite seconds on one clock. Nothing is
    left out unless asked. Further columns are kept as extra text.

    Parameters
    ----------
    path : str or Path
        CSV file, plain or ``.gz``.
    **choices
        See :class:`ImportChoices`; every filter is off unless chosen.

    Returns
    -------
    tuple of (JobTable, ImportSummary)

    Raises
    ------
    InputError
        As of :func:`import_philly`.
    """
    options = _Options(**choices)
    options.check()
    log = _read_log(path, _GENERIC_COLUMNS)
    arrival_s = _numbers(log, "arrival_s", "a finite number", np.isfinite)
    duration_s = _seconds(log, "service_sec")
    gpus = _gpu_counts(log, "gpu_count")
    job_id = log.cells["job_id"].as_texts()
    seen: dict[str, int] = {}
    for row, name in enumerate(job_id):
        if not name:
            _add_fault(log, row, "job_id", "job_id not empty")
        elif name in seen:
            rule = f"job_id not used before (line {log.rows[seen[name]]})"
            _add_fault(log, row, "job_id", rule)
        seen.setdefault(name, row)
    log.log.raise_any(log.source)
    read = _Rows(
        prefix="generic",
        job_id=job_id,
        arrival_column="arrival_s",
        arrival_s=arrival_s,
        duration_s=duration_s,
        gpus=gpus,
    )
    return _assemble(log, read, options)


#: Format name, as the command line spells it, -> function.
IMPORTERS: Final[Mapping[str, Callable[..., tuple[JobTable, ImportSummary]]]] = {
    "generic": import_generic,
    "philly": import_philly,
}
