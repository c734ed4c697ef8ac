"""A progress file: what the jobs of a running fleet have done, told by its operator.

A CSV with a row per running job: ``job_id``, ``elapsed_s`` (seconds since it arrived, pauses
included), ``iterations`` (done so far) and, where known, ``moves_last_day`` (moves within the
last 24 h) and ``remaining_s`` (seconds it still stays). It is read as a trace is: all faults at
once, each with its line, column, value and rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import did_you_mean
from instances.trace_files import read_bytes
from instances.trace_io import CsvText
from instances.trace_rules import MAX_NUMBER
from instances.trace_table import Fault, RawTable, short

__all__ = ["PROGRESS_COLUMNS", "Progress", "read_progress"]

#: Columns of a progress file; the last two may be left out.
PROGRESS_COLUMNS: Final = ("job_id", "elapsed_s", "iterations", "moves_last_day", "remaining_s")
_OPTIONAL: Final = PROGRESS_COLUMNS[-2:]

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a progress file says of the jobs of a snapshot plan.

    Attributes
    ----------
    elapsed_s, iterations : mapping of str to float
        Seconds since the job arrived, and iterations done.
    moves_last_day : mapping of str to int
        Moves within the last 24 h; 0 where the file has no such column.
    remaining_s : mapping of str to float or None
        Seconds the job still stays; ``None`` where the file has no such column.
    unknown : tuple of str
        Columns that are not read.
    """

    name: str
    sha256: str
    elapsed_s: Mapping[str, float]
    iterations: Mapping[str, float]
    moves_last_day: Mapping[str, int]
    remaining_s: Mapping[str, float] | None
    unknown: tuple[str, ...] = ()


def read_progress(path: str | Path, job_ids: Sequence[str], others: Collection[str]) -> Progress:
    """Read and validate a progress file: a CSV with a row per running job.

    Parameters
    ----------
    job_ids : sequence of str
        Jobs that need a row.
    others : collection of str
        Jobs that may have one, which is ignored: those on dedicated nodes.

    Raises
    ------
    TraceError
        When the contents break rules; every fault is counted, the first 20 are kept.
    InputError
        When the file cannot be read at all.
    """
    source = Path(path).name
    data = read_bytes(path)
    table = CsvText(data, source).text()
    check = _ProgressCheck(table, job_ids, others)
    values = check.checked()
    table.log.raise_any(source)
    rows = {job_id: i for i, job_id in enumerate(check.ids)}
    by_job = {
        name: {job_id: float(cells[rows[job_id]]) for job_id in job_ids}
        for name, cells in values.items()
    }
    return Progress(
        name=source,
        sha256=hashlib.sha256(data).hexdigest(),
        elapsed_s=by_job["elapsed_s"],
        iterations=by_job["iterations"],
        moves_last_day={k: int(v) for k, v in by_job.get("moves_last_day", {}).items()},
        remaining_s=by_job.get("remaining_s"),
        unknown=tuple(name for name in table.columns if name not in PROGRESS_COLUMNS),
    )


class _ProgressCheck:
    """The rules of a progress file over its raw table."""

    def __init__(self, table: RawTable, job_ids: Sequence[str], others: Collection[str]) -> None:
        self._table = table
        self._wanted = job_ids
        self._others = others
        self._order = {name: i for i, name in enumerate(table.columns)}
        cells = table.cells.get("job_id")
        self.ids: Sequence[str] = cells.as_texts() if cells else ()

    def checked(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the numbers of each column; faults are in the table's log."""
        columns = self._table.columns
        for name in PROGRESS_COLUMNS:
            if name not in columns and name not in _OPTIONAL:
                near = did_you_mean(name, [c for c in columns if c not in PROGRESS_COLUMNS])
                self._sentence(name, f"Missing column {name}.", near)
        if self.ids or "job_id" in columns:
            self._job_ids()
        return {name: self._numbers(name) for name in PROGRESS_COLUMNS[1:] if name in columns}

    def _sentence(self, column: str, text: str, hint: str = "") -> None:
        fault = Fault(row=None, column=column, value="", rule=text, hint=hint)
        self._table.log.add(fault, self._order.get(column, -1))

    def _report(
        self, mask: BoolArray, column: str, rule: str, got: Callable[[int], str] | None = None
    ) -> None:
        """Add one fault for every row of the mask."""
        table = self._table
        for i in np.flatnonzero(mask).tolist():
            fault = Fault(
                row=int(table.rows[i]),
                column=column,
                value=table.cells[column].raw(i),
                rule=rule,
                job_id=self.ids[i] if self.ids and column != "job_id" else None,
                got=got(i) if got else "",
                place=table.place,
            )
            table.log.add(fault, self._order[column])

    def _job_ids(self) -> None:
        """Each running job has one row; no row is of a job that the plan does not run."""
        first: dict[str, int] = {}
        again = np.array(
            [first.setdefault(job_id, i) != i for i, job_id in enumerate(self.ids)], dtype=np.bool_
        )
        rows = self._table.rows
        self._report(
            again,
            "job_id",
            "a job_id used once",
            lambda i: f"{short(self.ids[i])}, first used in line {rows[first[self.ids[i]]]}",
        )
        known = {*self._wanted, *self._others}
        strange = np.array([job_id not in known for job_id in self.ids], dtype=np.bool_)
        self._report(strange, "job_id", "the job_id of a running job of the plan")
        for job_id in self._wanted:
            if job_id not in first:
                self._sentence("job_id", f"Missing row of job {short(job_id)}, which runs.")

    def _numbers(self, name: str) -> npt.NDArray[np.float64]:
        """Every cell is a finite number >= 0, ``moves_last_day`` a whole one."""
        values, malformed = self._table.cells[name].as_numbers()
        self._report(malformed, name, f"{name} to be a number")
        whole = name == "moves_last_day"
        with np.errstate(invalid="ignore"):
            fine = (values >= 0) & (values <= MAX_NUMBER)
            if whole:
                fine &= values == np.floor(values)
        kind = "a whole number" if whole else "a number"
        self._report(~fine & ~malformed, name, f"{name} {kind} >= 0 and <= {MAX_NUMBER:g}")
        return values
