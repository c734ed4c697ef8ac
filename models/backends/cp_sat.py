"""OR-Tools CP-SAT: the only place that calls it, sets its parameters and reads its statuses.

What was measured (ortools 9.15) and is kept out here:

* After INFEASIBLE or UNKNOWN the solver answers objective 0.0 and bound 0.0 without an error.
  :class:`Answer` holds ``None`` for both then, and :meth:`Answer.value` raises.
* By default it replaces the C handler of SIGINT and puts the *system's* one back, so that after
  any solve the next Ctrl-C kills Python without a KeyboardInterrupt. With that switched off, a
  Ctrl-C in the main thread raises KeyboardInterrupt and loses the solver's incumbent. So the
  solver runs in a thread of its own, the caller waits in Python, and a Ctrl-C stops the search:
  the incumbent is returned with ``stopped_by`` INTERRUPT, and nothing is raised later.
* One worker, a seed and a limit of deterministic time repeat exactly, and so do several workers
  with ``interleave_search``; several plain workers do not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from typing import Final

from ortools.sat.python import cp_model

from instances.errors import FleetPlannerError, InputError, did_you_mean
from models.problem.result import SolverInfo, StoppedBy

__all__ = ["NAME", "STATUS", "Answer", "Status", "run"]

NAME: Final = "CP-SAT"
#: Seconds between two looks at a search that was told to stop.
_POLL_S: Final = 0.05

Parameter = bool | int | float


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"  #: solved; without an objective: a solution
    FEASIBLE = "feasible"  #: a limit or Ctrl-C came first; a solution is held
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"  #: a limit or Ctrl-C came first; no solution is held
    INVALID = "invalid"  #: the model or a parameter was refused


#: Every status of the solver.
STATUS: Final[Mapping[cp_model.CpSolverStatus, Status]] = {
    cp_model.OPTIMAL: Status.OPTIMAL,
    cp_model.FEASIBLE: Status.FEASIBLE,
    cp_model.INFEASIBLE: Status.INFEASIBLE,
    cp_model.UNKNOWN: Status.UNKNOWN,
    cp_model.MODEL_INVALID: Status.INVALID,
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one solve found.

    Attributes
    ----------
    status : Status
    stopped_by : StoppedBy or None
        What ended a FEASIBLE or UNKNOWN solve.
    objective, bound : int or None
        ``None`` unless a solution is held and the model has an objective.
    solution : tuple of int
        Value of each variable by its index; empty when no solution is held.
    conflicts : int
    work : float
        Deterministic time spent.
    """

    status: Status
    stopped_by: StoppedBy | None
    objective: int | None
    bound: int | None
    solution: tuple[int, ...]
    conflicts: int
    work: float

    @property
    def solved(self) -> bool:
        """Whether a solution is held."""
        return self.status in (Status.OPTIMAL, Status.FEASIBLE)

    @property
    def info(self) -> SolverInfo:
        """Solver, version and status."""
        return SolverInfo(name=NAME, version=_version(), status=self.status.value)

    def value(self, variable: cp_model.IntVar) -> int:
        """Return the value of a variable.

        Raises
        ------
        FleetPlannerError
            When no solution is held.
        """
        if not self.solved:
            raise FleetPlannerError(
                f"A solve that ended {self.status} holds no values: a fault of the program."
            )
        return self.solution[variable.index]


@cache
def _version() -> str:
    return version("ortools")


def run(
    model: cp_model.CpModel,
    *,
    seconds: float | None = None,
    work: float | None = None,
    threads: int = 1,
    seed: int = 0,
    parameters: Mapping[str, Parameter] | None = None,
) -> Answer:
    """Solve a model.

    Parameters
    ----------
    model : cp_model.CpModel
        With an integer objective or none.
    seconds : float, optional
        Wall limit.
    work : float, optional
        Limit of deterministic time; with it and one seed a solve repeats exactly.
    threads : int
        Above 1 the workers are interleaved, which repeats exactly too.
    seed : int
    parameters : mapping, optional
        Further parameters of the solver by name.

    Raises
    ------
    InputError
        When the solver does not know a parameter or refuses its value.
    FleetPlannerError
        When the solver refuses the model: a fault of the program.
    """
    solver = cp_model.CpSolver()
    settings: dict[str, Parameter] = {
        "catch_sigint_signal": False,
        "num_workers": threads,
        "interleave_search": threads > 1,
        "random_seed": seed,
        **(parameters or {}),
    }
    if seconds is not None:
        settings["max_time_in_seconds"] = float(seconds)
    if work is not None:
        settings["max_deterministic_time"] = float(work)
    for name, value in settings.items():
        _set_parameter(solver, name, value)
    interrupted = _interruptible(lambda: solver.solve(model), solver.stop_search)
    return _answer(solver, model, interrupted=interrupted, seconds=seconds, work=work)


def _set_parameter(solver: cp_model.CpSolver, name: str, value: Parameter) -> None:
    held = solver.parameters
    if not isinstance(getattr(held, name, None), bool | int | float):
        known = [word for word in dir(held) if isinstance(getattr(held, word), bool | int | float)]
        raise InputError(
            f"Expected a numeric parameter of {NAME}, got '{name}'.{did_you_mean(name, known)}"
        )
    try:
        setattr(held, name, value)
    except (AttributeError, TypeError):
        raise InputError(
            f"Expected a value that {NAME} takes for parameter {name}, got {value!r}."
        ) from None


def _interruptible(work: Callable[[], object], stop: Callable[[], None]) -> bool:
    """Do the work in a thread and wait for it; return whether Ctrl-C stopped it.

    A second Ctrl-C is raised as KeyboardInterrupt once the thread has ended.
    """
    done = threading.Event()
    cancelled = threading.Event()
    failures: list[BaseException] = []

    def body() -> None:
        try:
            if not cancelled.is_set():
                work()
        except BaseException as error:
            failures.append(error)  # raised in the caller's thread below
        finally:
            done.set()

    thread = threading.Thread(target=body, name=NAME, daemon=True)
    interrupts = 0
    try:
        thread.start()
    except KeyboardInterrupt:
        cancelled.set()
        stop()
        raise
    # Not Thread.join: on Python 3.11 an interrupted join marks a live thread as ended.
    while not done.is_set():
        try:
            if interrupts:
                stop()  # every time round: the first may have come before the search began
            # A timeout keeps the wait interruptible on every system.
            done.wait(_POLL_S if interrupts else 3600.0)
        except KeyboardInterrupt:
            interrupts += 1
    thread.join()
    if failures:
        raise failures[0]
    if interrupts > 1:
        raise KeyboardInterrupt
    return interrupts > 0


def _answer(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    *,
    interrupted: bool,
    seconds: float | None,
    work: float | None,
) -> Answer:
    """Read what a solve left, values and numbers only where they mean something."""
    response = solver.response_proto
    status = STATUS[response.status]
    if status is Status.INVALID:
        _refuse(solver.solution_info() or model.validate())
    solved = status in (Status.OPTIMAL, Status.FEASIBLE)
    priced = solved and model.has_objective()
    spent = solver.deterministic_time
    stopped_by = None
    if status in (Status.FEASIBLE, Status.UNKNOWN):
        if interrupted:
            stopped_by = StoppedBy.INTERRUPT
        elif work is not None and spent >= work:
            stopped_by = StoppedBy.WORK
        elif seconds is not None:
            stopped_by = StoppedBy.TIME
    return Answer(
        status=status,
        stopped_by=stopped_by,
        objective=round(solver.objective_value) if priced else None,
        # Objectives are integers: what the solver reports is one, up to round-off.
        bound=math.floor(solver.best_objective_bound + 1e-6) if priced else None,
        solution=tuple(response.solution) if solved else (),
        conflicts=solver.num_conflicts,
        work=spent,
    )


def _refuse(reason: str) -> None:
    if reason.startswith("parameter"):
        raise InputError(f"{NAME} refused a {reason}")
    raise FleetPlannerError(f"{NAME} refused a model, a fault of the program: {reason}")
