"""The table of a study on disk: rows are added as they finish, and nothing finished is lost.

While runs are going on, rows stand in the order in which they finished in a CSV file, each
flushed to the disk: the table itself (``.csv``), or a file beside it (``.parquet``). A line
without its end was torn by whatever ended the process, and is dropped. In the end the table is
written anew in the order of the study, whole or not at all, so that equal studies give equal
bytes however they came about. Columns that say what a run is are never read back: they follow
from the study.

One process writes at a time: a lock file, locked by the system where it can, so that a process
that was killed leaves nothing locked.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from instances.errors import FleetPlannerError, InputError
from planner.output.folder import exists
from planner.sweep.expand import Study
from planner.sweep.run import COLUMNS, FIGURES, Cell, Column, Row, specification

__all__ = ["SUFFIXES", "Lock", "ResultTable"]

SUFFIXES: Final = (".csv", ".parquet")
_NAMES: Final = [column.name for column in COLUMNS]
_FIGURES: Final = {column.name for column in FIGURES}


def _line(cells: Iterable[Any]) -> bytes:
    """Return one line of CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()


def _cells(row: Mapping[str, Cell]) -> list[str]:
    """Return the cells of a row as they are written; numbers read back exactly."""
    values = (row[name] for name in _NAMES)
    return ["" if v is None else repr(v) if isinstance(v, float) else str(v) for v in values]


_HEADER: Final = _line(_NAMES)


def _value(column: Column, text: str) -> Cell:
    if text == "":
        return None
    if column.kind == "text":
        return text
    return int(text) if column.kind == "whole" else float(text)


class Lock:
    """A file that one process holds at a time; use as a context.

    Parameters
    ----------
    path : Path
        Of the table: the lock is a hidden file beside it, gone in the end.

    Raises
    ------
    FleetPlannerError
        When another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._table = path
        self._path = path.with_name(f".{path.name}.lock")
        self._descriptor = -1

    def __enter__(self) -> Lock:
        try:
            import fcntl
        except ImportError:  # Windows: held by being there
            self._descriptor = self._made(os.O_EXCL)
            return self
        while True:
            descriptor = self._made(0)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held, named = os.fstat(descriptor), os.stat(self._path)
            except BlockingIOError:
                os.close(descriptor)
                raise self._taken() from None
            except FileNotFoundError:  # whoever held it removed it meanwhile
                os.close(descriptor)
                continue
            except OSError as error:
                os.close(descriptor)
                raise InputError(f"{self._path}: {error.strerror or error}.") from error
            if held.st_ino == named.st_ino:
                self._descriptor = descriptor
                return self
            os.close(descriptor)

    def _made(self, flags: int) -> int:
        try:
            return os.open(self._path, os.O_CREAT | os.O_RDWR | flags, 0o644)
        except FileExistsError:
            raise self._taken() from None
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}.") from error

    def _taken(self) -> FleetPlannerError:
        return FleetPlannerError(
            f"Another sweep is writing {self._table} now. Wait for it, or give another --out; if "
            f"no sweep is running, remove {self._path}."
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody removed it by hand
            os.unlink(self._path)
        os.close(self._descriptor)


class ResultTable:
    """The rows of a study, on disk and in memory; use as a context.

    Parameters
    ----------
    path : Path
        ``.csv`` or ``.parquet``.
    force : bool
        Drop rows that are not of this study, rather than refuse the file.
    retry_failed : bool
        Take failed runs for not yet run.
    note : callable
        Told of what was dropped.

    Attributes
    ----------
    rows : dict of str to row
        Finished runs by id.

    Raises
    ------
    InputError
        When the file is something else, or of another study.
    FleetPlannerError
        When another process is writing it.
    """

    def __init__(
        self,
        path: Path,
        study: Study,
        *,
        force: bool = False,
        retry_failed: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        path = path.absolute()
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(f"{path.name}: Expected --out to end in {' or '.join(SUFFIXES)}.")
        if exists(path) and not path.is_file():
            raise InputError(f"Expected --out to name a file, but {path} is none.")
        if not path.parent.is_dir():
            raise InputError(
                f"Expected the folder {path.parent} of --out to exist. Create it first."
            )
        self.rows: dict[str, Row] = {}
        self._path, self._study = path, study
        self._parquet = path.suffix.lower() == ".parquet"
        if self._parquet:
            _pyarrow()
        self._journal = path.with_name(f"{path.name}.part.csv") if self._parquet else path
        self._force, self._retry, self._note = force, retry_failed, note
        self._runs = {run.run_id: run for run in study.runs}
        self._lock = Lock(path)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> ResultTable:
        self._lock.__enter__()
        try:
            self._load()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._lock.__exit__(kind, error, trace)

    @property
    def ordered(self) -> list[Row]:
        """Finished rows in the order of the study."""
        return [self.rows[run.run_id] for run in self._study.runs if run.run_id in self.rows]

    # --- reading ----------------------------------------------------------------------------------

    def _load(self) -> None:
        """Take over the finished runs of an earlier process."""
        found = self._on_disk()
        foreign = [row for row in found if row["run_id"] not in self._runs]
        if foreign and not self._force:
            names = sorted({str(row["study"]) for row in foreign})
            raise InputError(
                f"{self._path} holds {len(foreign)} runs that are not of study "
                f"'{self._study.name}': they are of '{names[0]}' as it was declared then. Give "
                "another --out, or --force to drop them."
            )
        if foreign:
            self._note(f"Dropped {len(foreign)} runs of another study from {self._path.name}.")
        self._take(found)
        if self._retry:
            self.rows = {key: row for key, row in self.rows.items() if not row["error_type"]}

    def _on_disk(self) -> list[dict[str, Cell]]:
        found = _parquet_rows(self._path) if self._parquet and self._path.exists() else []
        return found + self._journalled()

    def _take(self, found: Iterable[Mapping[str, Cell]]) -> None:
        """Keep the rows of this study; what a run is follows from the study, not from the file."""
        for row in found:
            run = self._runs.get(str(row["run_id"]))
            if run is not None:
                figures = {name: value for name, value in row.items() if name in _FIGURES}
                spec = specification(run, self._study.name, self._study.inputs)
                self.rows[run.run_id] = {**spec, **figures}

    def reread(self) -> None:
        """Take the rows from the disk: Ctrl-C may have come between writing and taking note."""
        self._take(self._on_disk())

    def _journalled(self) -> list[dict[str, Cell]]:
        """Return the rows of the CSV file; a last line without its end is dropped."""
        try:
            data = self._journal.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{self._journal}: {error.strerror or error}.") from error
        whole = data[: data.rfind(b"\n") + 1]
        if not whole.startswith(_HEADER) and not _HEADER.startswith(data):
            raise InputError(
                f"{self._journal} is no table of planner sweep, or of another version. Give "
                "another --out."
            )
        if len(whole) < len(data):
            self._note(f"Dropped the last line of {self._journal.name}, which was cut short.")
        try:
            lines = list(csv.reader(io.StringIO(whole.decode(), newline=""), strict=True))[1:]
            return [self._parsed(number, cells) for number, cells in enumerate(lines, 2)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{self._journal}: Not a whole table: {error}.") from error

    def _parsed(self, number: int, cells: Sequence[str]) -> dict[str, Cell]:
        if len(cells) != len(COLUMNS):
            raise InputError(
                f"{self._journal}: Expected {len(COLUMNS)} cells, got {len(cells)} (line {number})."
            )
        try:
            return {c.name: _value(c, text) for c, text in zip(COLUMNS, cells, strict=True)}
        except ValueError as error:
            raise InputError(f"{self._journal}: {error} (line {number}).") from error

    # --- writing ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the file ready for more rows: what is kept is written anew, whole."""
        kept = b"".join(_line(_cells(row)) for row in self.ordered)
        _replace(self._journal, lambda path: path.write_bytes(_HEADER + kept))
        try:
            self._file = open(self._journal, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{self._journal}: {error.strerror or error}.") from error

    def add(self, finished: Mapping[str, Mapping[str, Cell]]) -> None:
        """Keep the figures of finished runs, by id: on the disk when this returns.

        Raises
        ------
        FleetPlannerError
            When the disk refuses.
        """
        assert self._file is not None
        rows = {
            key: {**specification(self._runs[key], self._study.name, self._study.inputs), **figures}
            for key, figures in finished.items()
        }
        data = b"".join(_line(_cells(row)) for row in rows.values())
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FleetPlannerError(f"{self._journal}: {error.strerror or error}.") from error
        self.rows.update(rows)

    def finish(self) -> None:
        """Write the table in the order of the study, whole or not at all."""
        if self._file is not None:
            self._file.close()
            self._file = None
        rows = self.ordered
        if self._parquet:
            _replace(self._path, lambda path: _write_parquet(rows, path))
            with contextlib.suppress(FileNotFoundError):
                self._journal.unlink()
            return
        data = _HEADER + b"".join(_line(_cells(row)) for row in rows)
        _replace(self._path, lambda path: path.write_bytes(data))


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file beside ``path`` and put it in its place at once."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            write(beside)
            with open(beside, "rb+") as handle:
                os.fsync(handle.fileno())
            os.replace(beside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error


# --- Parquet --------------------------------------------------------------------------------------


def _pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, or say which extra brings them."""
    from instances.trace_files import optional_module

    return optional_module(("pyarrow",), "A .parquet file", "parquet"), optional_module(
        ("pyarrow.parquet",), "A .parquet file", "parquet"
    )


def _write_parquet(rows: Sequence[Row], path: Path) -> None:
    pa, parquet = _pyarrow()
    types = {"text": pa.string(), "whole": pa.int64(), "number": pa.float64()}
    columns = {c.name: pa.array([row[c.name] for row in rows], type=types[c.kind]) for c in COLUMNS}
    parquet.write_table(pa.table(columns), path)


def _parquet_rows(path: Path) -> list[dict[str, Cell]]:
    pa, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: Not a whole Parquet file: {error}.") from error
    if table.column_names != _NAMES:
        raise InputError(
            f"{path} is no table of planner sweep, or of another version. Give another --out."
        )
    return table.to_pylist()  # type: ignore[no-any-return]
