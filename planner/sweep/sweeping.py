"""Do a study: expand it, do the runs that are not yet in its table, write each as it ends.

The table does not depend on the engine, on the number of workers, or on how often the study was
interrupted (:mod:`planner.sweep.store`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from instances.errors import InputError
from planner.gap.workers import cpus
from planner.sweep.engines import Done, Finished, dask_cluster, in_process, local_processes
from planner.sweep.expand import Run, Study
from planner.sweep.run import Row
from planner.sweep.store import ResultTable

__all__ = ["SweepOutcome", "sweep", "timings_path"]

_SECONDS_HEADER: Final = "run_id,seconds\n"
Progress = Callable[[str, int, int], None]
Note = Callable[[str], None]
KeepSeconds = Callable[[Iterable[Done]], None]


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """What is in the table now.

    Attributes
    ----------
    rows : list of row
        In the order of the study.
    kept : int
        Runs that an earlier process had finished.
    interrupted : bool
        Whether Ctrl-C ended it before the last run.
    """

    study: Study
    rows: list[Row]
    kept: int
    interrupted: bool

    @property
    def failed(self) -> list[Row]:
        """Runs that failed."""
        return [row for row in self.rows if row["error_type"]]


def timings_path(out: Path) -> Path:
    """Return the file of seconds beside a table."""
    return out.with_name(f"{out.stem}.timings.csv")


def _engine(
    study: Study, runs: Sequence[Run], scheduler: str | None, processes: int | None, note: Note
) -> Finished:
    if scheduler is not None:
        return dask_cluster(study.inputs, runs, scheduler, note)
    workers = min(processes or cpus(), len(runs))
    if workers <= 1:
        return in_process(study.inputs, runs)
    return local_processes(study.inputs, runs, workers)


def sweep(  # noqa: PLR0913 - one argument per option of the command
    study: Study,
    out: Path,
    *,
    scheduler: str | None = None,
    processes: int | None = None,
    force: bool = False,
    retry_failed: bool = False,
    timings: bool = False,
    progress: Progress | None = None,
    note: Note = lambda _: None,
) -> SweepOutcome:
    """Do the runs of a study that its table does not hold yet.

    Parameters
    ----------
    study : Study
        From :func:`planner.sweep.expand.read_runs`.
    out : Path
        The table, ``.csv`` or ``.parquet``; one that is there is gone on with.
    scheduler : str, optional
        Address of a Dask scheduler; without one, processes of this machine.
    processes : int, optional
        Processes of this machine; 1: this one. By default one per processor.
    force : bool
        Drop runs of another study from ``out`` rather than refuse it.
    retry_failed : bool
        Do failed runs again.
    timings : bool
        Add the seconds of each run to a file of their own beside ``out``.
    progress : callable, optional
        Called with (label, runs done now, runs to do now).
    note : callable
        Told of what is worth a word.

    Returns
    -------
    SweepOutcome
        After Ctrl-C of what was finished; the table on disk can be gone on with.

    Raises
    ------
    InputError
        When ``out`` cannot be used, or nobody answers at ``scheduler``.
    FleetPlannerError
        When workers or the scheduler are lost for good; finished runs are kept.
    """
    if scheduler is not None and processes is not None:
        raise InputError("Expected --scheduler or --processes, not both.")
    interrupted = False
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(
            ResultTable(out, study, force=force, retry_failed=retry_failed, note=note)
        )
        kept = len(table.rows)
        todo = [run for run in study.runs if run.run_id not in table.rows]
        try:
            if todo:
                engine = _engine(study, todo, scheduler, processes, note)
                with contextlib.closing(engine), _seconds_file(out, wanted=timings) as keep:
                    _collect(table, engine, len(todo), progress, keep)
            table.finish()
        except KeyboardInterrupt:
            interrupted = True
            table.reread()
        rows = table.ordered
    return SweepOutcome(study=study, rows=rows, kept=kept, interrupted=interrupted)


def _collect(
    table: ResultTable,
    engine: Finished,
    total: int,
    progress: Progress | None,
    keep_seconds: KeepSeconds,
) -> None:
    """Write what the engine yields, until it has no more; nothing before it has begun."""
    done = 0
    for unit in engine:
        if not done:
            table.begin()
        table.add({one.run_id: one.figures for one in unit})
        keep_seconds(unit)
        done += len(unit)
        if progress is not None:
            progress("runs", done, total)


@contextlib.contextmanager
def _seconds_file(out: Path, *, wanted: bool) -> Iterator[KeepSeconds]:
    """Give what adds lines ``run_id,seconds``; a later process adds to the same file."""
    if not wanted:
        yield lambda _: None
        return
    path = timings_path(out)
    try:
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as there:
            if there.readline() not in ("", _SECONDS_HEADER):
                raise InputError(f"{path} is no file of seconds. Move it away, or drop --timings.")
        with open(path, "a", encoding="utf-8", newline="\n") as file:

            def keep(unit: Iterable[Done]) -> None:
                if file.tell() == 0:
                    file.write(_SECONDS_HEADER)
                file.writelines(f"{one.run_id},{one.seconds:.6f}\n" for one in unit)
                file.flush()

            yield keep
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}.") from error
