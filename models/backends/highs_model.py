"""Raw HiGHS: one small wrapper, the only place that calls highspy for our own models.

What this hides, each measured (highspy 1.16.0):

* creating a ``Highs`` object prints two lines to file descriptor 1 whatever ``output_flag``
  says: the descriptor points elsewhere meanwhile (one thread at a time);
* a misspelt option only returns ``kError``: every status is looked at;
* ``threads`` is one number for the whole process and changing it fails silently later: 1;
* the time limit of an LP counts over the life of the object, that of a MIP per run;
* Python runs no signal handler while HiGHS runs: Ctrl-C asks HiGHS to stop, through
  :class:`models.backends.interrupt.Interrupt`, and what it holds is returned.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, Final

import highspy
import numpy as np
import numpy.typing as npt

from instances.errors import FleetPlannerError, InputError
from models.backends.interrupt import Interrupt

__all__ = ["ENDED", "INFINITY", "VERSION", "Ended", "HighsModel"]

INFINITY: Final = float(highspy.kHighsInf)
VERSION: Final = version("highspy")

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Ended(StrEnum):
    """How a run ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    TIME = "time"
    NODES = "nodes"
    INTERRUPT = "interrupt"
    FAILED = "failed"


_STATUS: Final = highspy.HighsModelStatus
#: Every status of HiGHS; limits that are never set are failures.
ENDED: Final[Mapping[Any, Ended]] = {
    _STATUS.kNotset: Ended.FAILED,
    _STATUS.kLoadError: Ended.FAILED,
    _STATUS.kModelError: Ended.FAILED,
    _STATUS.kPresolveError: Ended.FAILED,
    _STATUS.kSolveError: Ended.FAILED,
    _STATUS.kPostsolveError: Ended.FAILED,
    _STATUS.kModelEmpty: Ended.FAILED,
    _STATUS.kMemoryLimit: Ended.FAILED,
    _STATUS.kOptimal: Ended.OPTIMAL,
    _STATUS.kInfeasible: Ended.INFEASIBLE,
    _STATUS.kUnboundedOrInfeasible: Ended.FAILED,
    _STATUS.kUnbounded: Ended.FAILED,
    _STATUS.kObjectiveBound: Ended.FAILED,
    _STATUS.kObjectiveTarget: Ended.FAILED,
    _STATUS.kTimeLimit: Ended.TIME,
    _STATUS.kIterationLimit: Ended.FAILED,
    _STATUS.kSolutionLimit: Ended.NODES,  # mip_max_nodes is reported so
    _STATUS.kInterrupt: Ended.INTERRUPT,
    _STATUS.kHighsInterrupt: Ended.INTERRUPT,  # type: ignore[attr-defined] # not in its stubs
    _STATUS.kUnknown: Ended.FAILED,
}


@contextlib.contextmanager
def _descriptor_silenced() -> Iterator[None]:
    """Point file descriptor 1 at nothing, where there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no descriptor behind it
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # closed: nothing to silence
        yield
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(nothing)
        os.close(kept)


class HighsModel:
    """An LP or MIP that grows by rows and columns; minimises.

    Parameters
    ----------
    seed : int
        Of the MIP solver.
    options : mapping
        More options, by HiGHS's own names.

    Raises
    ------
    InputError
        When HiGHS refuses an option or its value.
    """

    def __init__(self, *, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        with _descriptor_silenced():
            self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.set("output_flag", False)
        self.set("threads", 1)
        self.set("random_seed", seed)
        for name, value in (options or {}).items():
            self.set(name, value)
        self.interrupted = False
        self._mip = False

    def set(self, name: str, value: bool | float | str) -> None:
        """Set one option; raises InputError when HiGHS refuses it."""
        if self._highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise InputError(f"Expected an option and a value HiGHS takes, got {name} = {value!r}.")

    @staticmethod
    def _require(status: Any, what: str) -> None:
        if status == highspy.HighsStatus.kError:
            raise FleetPlannerError(f"HiGHS refused to {what}: a fault of the program.")

    def add_rows(
        self, lower: FloatArray, upper: FloatArray, matrix: FloatArray | None = None
    ) -> None:
        """Add rows; ``matrix`` is ``(rows, columns)`` over the columns there are."""
        starts, index, value = _sparse(np.zeros((len(lower), 0)) if matrix is None else matrix)
        status = self._highs.addRows(len(lower), lower, upper, len(index), starts, index, value)
        self._require(status, "add rows")

    def add_columns(
        self, cost: FloatArray, matrix: FloatArray, upper: float = INFINITY, *, whole: bool = False
    ) -> None:
        """Add columns in ``[0, upper]``; ``matrix`` is ``(columns, rows)``."""
        starts, index, value = _sparse(matrix)
        n = len(cost)
        first = self._highs.getNumCol()
        status = self._highs.addCols(
            n, cost, np.zeros(n), np.full(n, upper), len(index), starts, index, value
        )
        self._require(status, "add columns")
        if whole:
            self._mip = True
            kinds = np.full(n, int(highspy.HighsVarType.kInteger.value), dtype=np.uint8)
            status = self._highs.changeColsIntegrality(
                n, np.arange(first, first + n, dtype=np.int32), kinds
            )
            self._require(status, "make columns whole")

    def add_sparse_columns(
        self,
        cost: FloatArray,
        starts: IntArray,
        rows: IntArray,
        values: FloatArray,
        upper: float = INFINITY,
    ) -> None:
        """Add columns in ``[0, upper]``; column ``i`` has the entries from ``starts[i]`` on.

        Entries of a column are in ascending order of their rows.
        """
        n = len(cost)
        status = self._highs.addCols(
            n,
            cost,
            np.zeros(n),
            np.full(n, upper),
            len(rows),
            starts.astype(np.int32),
            rows.astype(np.int32),
            values,
        )
        self._require(status, "add columns")

    def delete_columns(self, columns: IntArray) -> None:
        """Delete columns; those after them move up."""
        status = self._highs.deleteCols(len(columns), columns.astype(np.int32))
        self._require(status, "delete columns")

    def forget(self) -> None:
        """Forget basis and solution, so that the next run starts cold."""
        self._require(self._highs.clearSolver(), "clear its solver")

    def delete_rows(self, rows: IntArray) -> None:
        """Delete rows; those after them move up."""
        self._require(self._highs.deleteRows(len(rows), rows.astype(np.int32)), "delete rows")

    def costs(self, columns: IntArray, cost: FloatArray) -> None:
        """Change costs."""
        status = self._highs.changeColsCost(len(columns), columns.astype(np.int32), cost)
        self._require(status, "change costs")

    def column_bounds(self, columns: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        """Change bounds of columns."""
        status = self._highs.changeColsBounds(len(columns), columns.astype(np.int32), lower, upper)
        self._require(status, "change column bounds")

    def row_bounds(self, row: int, lower: float, upper: float) -> None:
        """Change the bounds of one row."""
        self._require(self._highs.changeRowBounds(row, lower, upper), "change row bounds")

    def read(self, path: Path) -> None:
        """Read a model file (MPS or LP), a MIP, in place of what there is."""
        self._require(self._highs.readModel(str(path)), f"read {path.name}")
        self._mip = True

    def run(self, seconds: float | None = None, *, lp: bool = True) -> Ended:
        """Solve; ``seconds`` is what this run may take."""
        limit = INFINITY if seconds is None else seconds
        self.set("time_limit", limit + (self._highs.getRunTime() if lp else 0.0))
        with Interrupt() as interrupt:
            self._highs.HandleUserInterrupt = True
            interrupt.calls(self._highs.cancelSolve)
            status = self._highs.run()
        self.interrupted = self.interrupted or interrupt.hit
        ended = ENDED[self._highs.getModelStatus()]
        if status == highspy.HighsStatus.kError and ended is Ended.OPTIMAL:
            return Ended.FAILED
        return Ended.INTERRUPT if interrupt.hit and ended is not Ended.OPTIMAL else ended

    @property
    def status(self) -> str:
        """HiGHS's own word for how the last run ended."""
        return str(self._highs.modelStatusToString(self._highs.getModelStatus()))

    @property
    def holds_solution(self) -> bool:
        """Whether the values satisfy the model."""
        return int(self._highs.getInfo().primal_solution_status) == 2

    @property
    def objective(self) -> float:
        """Of the solution held."""
        return float(self._highs.getInfo().objective_function_value)

    @property
    def bound(self) -> float | None:
        """Proved lower bound of a MIP; ``None`` where none is, as after every LP (HiGHS: 0.0)."""
        bound = float(self._highs.getInfo().mip_dual_bound)
        return bound if self._mip and isfinite(bound) else None

    @property
    def nodes(self) -> int:
        """Branch-and-bound nodes of the last run."""
        return max(int(self._highs.getInfo().mip_node_count), 0)

    def values(self) -> FloatArray:
        """Values of the columns, where a solution is held."""
        return np.array(self._highs.getSolution().col_value)

    def duals(self) -> FloatArray:
        """Duals of the rows; only after an LP ended optimal."""
        return np.array(self._highs.getSolution().row_dual)


def _sparse(matrix: FloatArray) -> tuple[Any, Any, FloatArray]:
    """Return starts, indices and values of the entries that are not 0, row by row."""
    row, column = np.nonzero(matrix)
    count = np.bincount(row, minlength=len(matrix))
    starts = np.concatenate(([0], np.cumsum(count)))[:-1].astype(np.int32)
    return starts, column.astype(np.int32), matrix[row, column]
