"""Failures of jobs and nodes: how often, when, and what they cost. The replay: failing_replay.

Failures come from clocks, or from a list:

* *clocks*: every job has one, and so has every *place* of a pool, each a Poisson process in the
  seconds of the trace with the stated mean time between failures (MTBF). What a clock strikes is
  decided when it does: the job if it is in a group then; the node that has the place's number
  (``FailureEvent.node``). The process has no memory, so a job fails once per MTBF of job-hours in
  groups, restarts included, and a node once per MTBF of node-hours, whatever the policy does;
  and at one seed the moments are the same under every policy, MTBF apart (common random numbers).
* *list*: moments and what fails then, from a CSV file (:func:`read_failures`).

Places of a pool number the nodes in use at a moment, oldest group first and by node id within a
group, then the nodes of async jobs, then, of a fixed fleet, idle nodes and failed ones.

Assumptions. A checkpoint is written after every ``checkpoint_iterations`` iterations of a job, in
the background: it costs no time. A failure undoes what the job has done since, the iteration under
way at least (of a one-step job too: what it has begun of the next one is not counted). A failure of
a job leaves its nodes whole. Fully async jobs, and their nodes, do not fail: they are counted
apart. Idle nodes of a fixed fleet fail like any other. Rented nodes are replaced at once; a failed
node of a fleet is away for ``repair_h``. No number here is published by the paper: MTBFs and repair
times are the user's, and its restarts are those of moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.jobs import JobTable
from instances.trace_files import read_bytes
from instances.trace_io import CsvText
from instances.trace_table import Fault, RawTable

__all__ = [
    "FAILURE_COLUMNS",
    "FAILURE_KINDS",
    "GUESSED_JOB_MTBF_H",
    "GUESSED_NODE_MTBF_H",
    "FailureClocks",
    "FailureEvent",
    "FailureKind",
    "FailureParams",
    "read_failures",
]

FailureKind = Literal["job", "rollout", "train"]
FAILURE_KINDS: Final[tuple[FailureKind, ...]] = ("job", "rollout", "train")
#: Mean hours between failures of a job and of a node, where nobody says: guesses.
GUESSED_JOB_MTBF_H: Final = 200.0
GUESSED_NODE_MTBF_H: Final = 1000.0
#: Columns of a list of failures; ``job_id`` is for jobs, ``node`` for nodes of either pool.
FAILURE_COLUMNS: Final = ("at_s", "kind", "job_id", "node")

_HOUR_S: Final = 3600.0
_MAX_NODE: Final = 1_000_000
_MAX_S: Final = 1e10
_SEED_LIMIT: Final = 2**64
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """One listed failure: of a job, or of the node at a place of a pool (module docstring).

    Attributes
    ----------
    at_s : float
        Seconds of the trace.
    kind : {"job", "rollout", "train"}
        What fails: a job, or a node of that pool.
    job_id : str or None
        The job; it is spared if it is in no group then.
    node : int or None
        The node's place, from 0; nobody is hit where there is none.

    Raises
    ------
    InputError
        When a number is out of its range, or the target does not suit the kind.
    """

    at_s: float
    kind: FailureKind
    job_id: str | None = None
    node: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise InputError(
                f"Expected kind of a failure in {', '.join(FAILURE_KINDS)}, got '{self.kind}'."
            )
        if not 0 <= self.at_s <= _MAX_S:
            raise InputError(f"Expected at_s of a failure >= 0 and <= {_MAX_S:g}, got {self.at_s}.")
        if self.kind == "job":
            if self.job_id is None or self.node is not None:
                raise InputError("Expected job_id, and no node, of a failure of a job.")
        elif self.node is None or self.job_id is not None:
            raise InputError(f"Expected node, and no job_id, of a failure of a {self.kind} node.")
        elif isinstance(self.node, bool) or not 0 <= self.node <= _MAX_NODE:
            raise InputError(f"Expected node >= 0 and <= {_MAX_NODE}, got {self.node}.")


@dataclass(frozen=True, kw_only=True)
class FailureParams:
    """How often what fails, and what that costs (module docstring).

    Attributes
    ----------
    job_mtbf_h, node_mtbf_h : float or None
        Mean hours between failures of a job in a group, and of a node; ``None``: never.
    events : tuple of FailureEvent
        Listed failures; they go with no MTBF.
    checkpoint_iterations : int
        Iterations of a job between its checkpoints. A guess.
    restart_s : float or None
        Seconds of a restart of any job; ``None``: each job's own ``restart_s``.
    repair_h : float
        Hours until a failed node of a fixed fleet is replaced. A guess.
    seed : int
    max_failures_per_job : int
        The replay gives up when a job has failed so often: it will never end.

    Raises
    ------
    InputError
        When a number is out of its range, or both MTBFs and a list are given.
    """

    job_mtbf_h: float | None = None
    node_mtbf_h: float | None = None
    events: tuple[FailureEvent, ...] = ()
    checkpoint_iterations: int = 1
    restart_s: float | None = None
    repair_h: float = 24.0
    seed: int = 0
    max_failures_per_job: int = 10_000

    def __post_init__(self) -> None:
        for name in ("job_mtbf_h", "node_mtbf_h"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"Expected {name} > 0 and finite, got {value}.")
        for name in ("restart_s", "repair_h"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"Expected {name} >= 0 and finite, got {value}.")
        for name, least in (("checkpoint_iterations", 1), ("max_failures_per_job", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")
        if self.seed >= _SEED_LIMIT:
            raise InputError(f"Expected seed < 2^64, got {self.seed}.")
        if self.events and (self.job_mtbf_h is not None or self.node_mtbf_h is not None):
            raise InputError("Expected MTBFs or a list of failures, got both.")

    @property
    def never(self) -> bool:
        """Whether nothing ever fails."""
        return not self.events and self.job_mtbf_h is None and self.node_mtbf_h is None

    def mtbf_h(self, kind: FailureKind) -> float | None:
        """Return the mean hours between failures of a kind; ``None``: never by the clock."""
        return self.job_mtbf_h if kind == "job" else self.node_mtbf_h

    def of_jobs(self, jobs: JobTable) -> JobTable:
        """Return the jobs with the restart seconds of these parameters."""
        if self.restart_s is None:
            return jobs
        restart_s = np.full(len(jobs), self.restart_s)
        return jobs.replace(optional={**jobs.optional, "restart_s": restart_s})

    def undone(self, iterations: float) -> float:
        """Return what a failure undoes of the iterations that a job has done.

        ``done - k floor(done / k)``, up to the round-off of a sum of many versions.
        """
        k = self.checkpoint_iterations
        return max(iterations - k * math.floor(iterations / k + 1e-9), 0.0)


class FailureClocks:
    """When each clock strikes next, by counter-based seeds: kind and number of the clock.

    A clock's strikes are a function of its kind, its number and the seed alone, in hours of its
    MTBF; who asks in which order does not matter.

    Parameters
    ----------
    origin_s : float
        When the clocks start, seconds of the trace.
    """

    __slots__ = ("_at_s", "_draws", "_mtbf_s", "_origin_s", "_seed")

    def __init__(self, params: FailureParams, origin_s: float) -> None:
        self._seed = params.seed
        self._origin_s = origin_s
        mtbf_h = {kind: params.mtbf_h(kind) for kind in FAILURE_KINDS}
        self._mtbf_s = {kind: h * _HOUR_S for kind, h in mtbf_h.items() if h is not None}
        self._draws: dict[tuple[FailureKind, int], np.random.Generator] = {}
        self._at_s: dict[tuple[FailureKind, int], float] = {}

    def runs(self, kind: FailureKind) -> bool:
        """Return whether a kind fails by the clock."""
        return kind in self._mtbf_s

    def next_s(self, kind: FailureKind, number: int, after_s: float) -> float:
        """Return the first strike of a clock after a moment; moments asked for do not decrease."""
        clock = (kind, number)
        if clock not in self._draws:
            # Philox is counter-based: the key names the stream, no stream overlaps another
            key = np.array([self._seed, FAILURE_KINDS.index(kind) << 48 | number], dtype=np.uint64)
            self._draws[clock] = np.random.Generator(np.random.Philox(key=key))
            self._at_s[clock] = self._origin_s
        draw, at_s = self._draws[clock], self._at_s[clock]
        while at_s <= after_s:
            at_s += self._mtbf_s[kind] * float(draw.standard_exponential())
        self._at_s[clock] = at_s
        return at_s


# -- A list from outside -------------------------------------------------------------------


def read_failures(path: str | Path, jobs: JobTable) -> tuple[FailureEvent, ...]:
    """Read a CSV list of failures, one row each, in any order.

    Columns: ``at_s`` (seconds of the trace), ``kind`` (job, rollout or train), ``job_id`` (kind
    job) and ``node`` (the place of a node, from 0; kinds rollout and train). A column that no row
    needs may be absent; a cell that the row's kind does not need must be empty.

    Returns
    -------
    tuple of FailureEvent
        In order of time, file order on ties.

    Raises
    ------
    InputError
        When the file cannot be read.
    TraceError
        With every fault of the file: line, column, value and rule.
    """
    name = Path(path).name
    table = CsvText(read_bytes(path), name).text()
    rows = _Rows(table, jobs)
    rows.check_header()
    events = rows.events()
    table.log.raise_any(table.source)
    return tuple(sorted(events, key=lambda event: event.at_s))


class _Rows:
    """The rules over one table of failures; faults go to its log."""

    def __init__(self, table: RawTable, jobs: JobTable) -> None:
        self.table = table
        self.mode = dict(zip(jobs.job_id, jobs.mode, strict=True))
        self.n = len(table.rows)

    def check_header(self) -> None:
        """The columns needed by every row are there, and no unknown ones."""
        log = self.table.log
        for column in ("at_s", "kind"):
            if column not in self.table.cells:
                hint = did_you_mean(column, self.table.cells)
                rule = f"Missing column {column}."
                log.add(Fault(row=None, column=column, value="", rule=rule, hint=hint))
        for column in self.table.columns:
            if column not in FAILURE_COLUMNS:
                hint = did_you_mean(column, FAILURE_COLUMNS)
                rule = f"Unknown column {column!r}."
                log.add(Fault(row=None, column=column, value="", rule=rule, hint=hint))
        if not self.n and not log.total:
            rule = "Expected at least one failure, got none."
            log.add(Fault(row=None, column="", value="", rule=rule))

    def events(self) -> list[FailureEvent]:
        """Return the events of the rows without faults."""
        at_s = self._numbers("at_s", most=_MAX_S, whole=False)
        node = self._numbers("node", most=_MAX_NODE, whole=True)
        out = []
        for i in range(self.n):
            kind: Any = self._raw("kind", i)
            job_id, place = self._raw("job_id", i), node[i]
            if kind not in FAILURE_KINDS:
                if "kind" in self.table.cells:
                    self._fault(i, "kind", f"one of {', '.join(FAILURE_KINDS)}")
                continue
            if at_s[i] is None and "at_s" in self.table.cells and not self._raw("at_s", i):
                self._fault(i, "at_s", "a number >= 0")
            if not self._target_ok(i, kind, job_id) or at_s[i] is None:
                continue
            if kind == "job":
                out.append(FailureEvent(at_s[i], kind, job_id=job_id))
            elif place is not None:
                out.append(FailureEvent(at_s[i], kind, node=int(place)))
        return out

    def _target_ok(self, i: int, kind: str, job_id: str) -> bool:
        """A row names what its kind needs, and nothing else."""
        own, other = ("job_id", "node") if kind == "job" else ("node", "job_id")
        total = self.table.log.total
        if self._raw(other, i):
            self._fault(i, other, f"an empty cell (kind {kind})")
        if not self._raw(own, i):
            self._fault(i, own, f"a value (kind {kind})")
        elif kind == "job" and job_id not in self.mode:
            self._fault(i, own, "a job of the trace", hint=did_you_mean(job_id, self.mode))
        elif kind == "job" and self.mode[job_id] == "async":
            self._fault(i, own, "a job that is not async (these do not fail here)")
        return self.table.log.total == total

    def _numbers(self, column: str, *, most: float, whole: bool) -> Sequence[Any]:
        """Return a column's numbers in range, ``None`` where empty or at fault."""
        if column not in self.table.cells:
            return [None] * self.n
        values, malformed = self.table.cells[column].as_numbers()
        rule = f"a {'whole ' if whole else ''}number >= 0 and <= {most:g}"
        out: list[float | None] = []
        for i, value in enumerate(values.tolist()):
            bad = bool(malformed[i]) or value < 0 or value > most or (whole and value % 1 > 0)
            if bad:
                self._fault(i, column, rule)
            out.append(None if bad or math.isnan(value) else value)
        return out

    def _raw(self, column: str, i: int) -> str:
        cells = self.table.cells
        return cells[column].raw(i).strip() if column in cells else ""

    def _fault(self, i: int, column: str, rule: str, *, hint: str = "") -> None:
        columns = self.table.columns
        fault = Fault(
            row=int(self.table.rows[i]),
            column=column,
            value=self._raw(column, i),
            rule=rule,
            hint=hint,
            place=self.table.place,
        )
        self.table.log.add(fault, columns.index(column) if column in columns else -1)
