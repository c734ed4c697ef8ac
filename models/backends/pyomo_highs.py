"""HiGHS through Pyomo's current interface: one solve call, its options, its statuses.

What this hides from the models, each measured (Pyomo 6.10.1, highspy 1.16.0):

* Pyomo discards the ``kError`` with which HiGHS refuses an option, so a misspelt one would
  be ignored and the run reported optimal. Options are set on the HiGHS object itself, each
  answer checked.
* HiGHS prints to file descriptor 1, its banner and now and then a line of its internals,
  whatever its log options say. Pyomo captures that descriptor, but gives it back before C has
  flushed its buffer, and the line comes out later. See :func:`silenced`.
* HiGHS 1.16's MIP presolve is wrong now and then. Given an earlier form of our model and a
  highest price, it called 3 of about 1,800 small snapshots infeasible that were not. Switching
  off one presolve rule cured some and broke others; ERGO-Code/HiGHS issue 3216 is a fault of
  that kind. Presolve is off, for about half as much time again.
* With exact fits (an SLO met exactly, a full node), a tolerance of 1e-9 and no room beside it,
  HiGHS missed the optimum of 2 of them. The model leaves ten times the tolerance of room.
* Pyomo raises on any end but optimal, and loads a solution by itself: both are switched off.
* Python runs signal handlers between two bytecodes, and HiGHS runs none: Ctrl-C would wait
  for the end, or, raised inside a callback, turn into a solver error. See
  :mod:`models.backends.interrupt`.
* The number of HiGHS threads is one for the whole process, and changing it fails later and
  silently: it is always 1. File descriptors are the process's too: solve from one thread at a
  time, and let no other thread print meanwhile.
"""

from __future__ import annotations

import ctypes
import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any, Final

import highspy
import pyomo
from pyomo.common.log import LoggingIntercept
from pyomo.contrib.solver.common.factory import SolverFactory
from pyomo.contrib.solver.common.results import SolutionStatus, TerminationCondition

from instances.errors import InputError
from models.backends.interrupt import Interrupt
from models.problem.options import Deadline

__all__ = [
    "ENDED",
    "FEASIBILITY_TOLERANCE",
    "HELD",
    "Ended",
    "Solved",
    "options_of",
    "set_option",
    "silenced",
    "solve",
]

#: Largest violation of a row, bound or integrality.
FEASIBILITY_TOLERANCE: Final = 1e-8

#: Pyomo warns here of statuses it does not know.
_LOGGER: Final = "pyomo.contrib.solver.solvers.highs"

OptionValue = bool | int | float | str


class Ended(StrEnum):
    """How a run ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    TIME = "time"
    NODES = "nodes"
    INTERRUPT = "interrupt"
    FAILED = "failed"


#: Every way Pyomo says a run may end. Limits that are never set, and answers that a bounded
#: MILP cannot have, are failures.
ENDED: Final[Mapping[TerminationCondition, Ended]] = {
    TerminationCondition.convergenceCriteriaSatisfied: Ended.OPTIMAL,
    TerminationCondition.maxTimeLimit: Ended.TIME,
    TerminationCondition.iterationLimit: Ended.NODES,
    TerminationCondition.objectiveLimit: Ended.FAILED,
    TerminationCondition.minStepLength: Ended.FAILED,
    TerminationCondition.unbounded: Ended.FAILED,
    TerminationCondition.provenInfeasible: Ended.INFEASIBLE,
    TerminationCondition.locallyInfeasible: Ended.FAILED,
    # every variable of our models has two finite bounds, so "unbounded" is out
    TerminationCondition.infeasibleOrUnbounded: Ended.INFEASIBLE,
    TerminationCondition.error: Ended.FAILED,
    TerminationCondition.interrupted: Ended.INTERRUPT,
    TerminationCondition.licensingProblems: Ended.FAILED,
    TerminationCondition.emptyModel: Ended.FAILED,
    TerminationCondition.unknown: Ended.FAILED,
}

#: Whether a status says that the values held satisfy the model.
HELD: Final[Mapping[SolutionStatus, bool]] = {
    SolutionStatus.noSolution: False,
    SolutionStatus.unknown: False,
    SolutionStatus.infeasible: False,
    SolutionStatus.feasible: True,
    SolutionStatus.optimal: True,
}


@dataclass(frozen=True, kw_only=True)
class Solved:
    """What one run says; numbers are ``None`` unless it proved or holds them.

    Attributes
    ----------
    objective : float or None
        Of the solution, whose values are then loaded into the model.
    bound : float or None
        Proved lower bound of the objective.
    interrupted : bool
        Ctrl-C was pressed during the run, however it ended.
    status, version : str
        The solver's own words.
    nodes : int
        Branch-and-bound nodes.
    """

    ended: Ended
    objective: float | None
    bound: float | None
    interrupted: bool
    status: str
    version: str
    nodes: int


def options_of(*, seed: int = 0, node_limit: int | None = None) -> dict[str, OptionValue]:
    """Return the HiGHS options of a proof without a gap, on one thread."""
    options: dict[str, OptionValue] = {
        "threads": 1,
        "random_seed": seed,
        "mip_rel_gap": 0.0,
        "mip_feasibility_tolerance": FEASIBILITY_TOLERANCE,
        "primal_feasibility_tolerance": FEASIBILITY_TOLERANCE,
        "presolve": "off",
    }
    if node_limit is not None:
        options["mip_max_nodes"] = node_limit
    return options


def solve(model: Any, options: Mapping[str, OptionValue], deadline: Deadline) -> Solved:
    """Minimise a Pyomo model whose variables are all bounded.

    Parameters
    ----------
    model : ConcreteModel
        The solution, if there is one, is loaded into its variables.
    options : mapping of str to value
        By HiGHS's own names.
    deadline : Deadline
        Handing the model over counts.

    Raises
    ------
    InputError
        When HiGHS refuses an option.
    """
    opt: Any = SolverFactory("highs")
    opt.config.load_solutions = False
    opt.config.raise_exception_on_nonoptimal_result = False
    said = io.StringIO()
    warnings = LoggingIntercept(said, _LOGGER, logging.WARNING)
    with Interrupt() as interrupt, silenced(), warnings:
        opt.set_instance(model)
        highs = opt._solver_model  # Pyomo has no public way to it
        set_option(highs, "output_flag", False)  # first: refusals are printed to stdout
        for name, value in options.items():
            set_option(highs, name, value)
        remaining_s = deadline.remaining_s()
        if remaining_s is not None:
            set_option(highs, "time_limit", remaining_s)
        interrupt.calls(highs.cancelSolve)
        answer = opt.solve(model)
    ended = ENDED[answer.termination_condition]
    if interrupt.hit and ended is Ended.FAILED:  # Pyomo has no word for HiGHS's kInterrupt
        ended = Ended.INTERRUPT
    status = str(highs.modelStatusToString(highs.getModelStatus()))
    if ended is Ended.FAILED:
        status = " ".join([status, *said.getvalue().split()])
    held = HELD[answer.solution_status] and ended is not Ended.FAILED
    if held:
        answer.solution_loader.load_vars()
    return Solved(
        ended=ended,
        objective=float(answer.incumbent_objective) if held else None,
        bound=_bound(answer.objective_bound, ended),
        interrupted=interrupt.hit,
        status=status,
        version=f"HiGHS {'.'.join(map(str, answer.solver_version))}, Pyomo {pyomo.__version__}",
        nodes=max(int(highs.getInfo().mip_node_count), 0),
    )


def _bound(bound: float | None, ended: Ended) -> float | None:
    """Return the bound if this run proved one: never the numbers of a run that did not."""
    if bound is None or ended in (Ended.INFEASIBLE, Ended.FAILED) or not isfinite(bound):
        return None
    return float(bound)


def set_option(highs: Any, name: str, value: OptionValue) -> None:
    """Set one option of a HiGHS object.

    Raises
    ------
    InputError
        When HiGHS refuses it; HiGHS itself only returns ``kError`` and runs without it.
    """
    if highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
        raise InputError(f"Expected an option and a value HiGHS takes, got {name} = {value!r}.")


@contextmanager
def silenced() -> Iterator[None]:
    """Send what C code prints to file descriptor 1 nowhere, its buffer included."""
    if sys.stdout is not None:
        sys.stdout.flush()
    _flush_c()
    try:
        kept = os.dup(1)
    except OSError:  # there is no descriptor 1 to keep clean
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    try:
        yield
    finally:
        _flush_c()
        os.dup2(kept, 1)
        os.close(kept)


def _flush_c() -> None:
    library = None if os.name == "posix" else "ucrtbase"
    ctypes.CDLL(library).fflush(None)
