"""Shares of time from a linear program: max-min fairness over effective throughputs.

The scheme is that of Narayanan, Santhanam, Kazhamiaka, Phanishayee and Zaharia,
*Heterogeneity-aware cluster scheduling policies for deep learning workloads* (OSDI 2020),
sections 3 and 4.1: a policy is an optimisation problem over the share of time that every
combination of jobs spends on every kind of placement; what a job gets is its *effective
throughput*, its throughput in each combination weighted by the shares; the default policy
maximises the least effective throughput, each over what the job asks for. A round-based
mechanism then gives turns that follow the shares (here :mod:`planner.policies.time_slots`).

Sets
----
jobs ``j``; *combinations* ``c``: sets of jobs that run at once because no two of them share a
node. Only maximal ones are needed: a job more takes nothing from the others.

Parameters
----------
``e_jc``  speed of job ``j`` in combination ``c``: its iterations per second there over those it
    does alone on nodes of both kinds; 0 where it is not in ``c``;
``w_j``   weight: the slowdown that the job tolerates, so that ``w_j`` times its effective speed
    is at least 1 exactly where its SLO is kept.

Variables
---------
``y_c >= 0`` share of time of combination ``c``; ``z`` the least weighted speed.

Constraints
-----------
* time (:func:`_add_rows`):      ``sum_c y_c <= 1``;
* fairness (:func:`_add_rows`):  ``w_j sum_c e_jc y_c - z >= 0`` for every job.

Objective
---------
``max z``; then, with ``z`` held, ``max sum_j w_j sum_c e_jc y_c``, so that no time is left over
that somebody could use.

Assumptions
-----------
Shares are fluid: turns take whole iterations, and a switch between jobs takes time, which the
rounds pay for and not the program. With one job a combination and ``e = 1`` the answer has a
closed form: ``y_j = (1 / w_j) / sum_i 1 / w_i``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import FleetPlannerError, InputError
from models.backends.highs_model import INFINITY, Ended, HighsModel

__all__ = ["MOST_JOBS", "TimeShares", "combinations_of", "time_shares"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

#: Most jobs whose combinations are listed: there may be ``3^(n / 3)`` of them.
MOST_JOBS: Final = 24
#: Relative distance by which ``z`` may fall below its optimum in the second program.
_HELD: Final = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeShares:
    """What the program gives.

    Attributes
    ----------
    shares : (n_combinations,) float64
        Share of time of each combination, read-only.
    speeds : (n_jobs,) float64
        Effective speed of each job over what it does alone, read-only.
    least : float
        ``z``: the least weight x speed; at least 1 where every job gets what it asks for.
    """

    shares: FloatArray
    speeds: FloatArray
    least: float


def combinations_of(conflicts: BoolArray) -> tuple[tuple[int, ...], ...]:
    """Return the maximal sets of jobs no two of which are in conflict, in ascending order.

    Bron and Kerbosch (1973) with a pivot, on the complement of the conflicts.

    Parameters
    ----------
    conflicts : (n, n) bool
        Symmetric; the diagonal is ignored.

    Raises
    ------
    InputError
        For another shape, or more than ``MOST_JOBS`` jobs.
    """
    n = len(conflicts)
    if conflicts.shape != (n, n) or not np.array_equal(conflicts, conflicts.T):
        raise InputError(f"Expected a symmetric square of conflicts, got {conflicts.shape}.")
    if n > MOST_JOBS:
        raise InputError(f"Expected at most {MOST_JOBS} jobs that share time, got {n}.")
    free = [{i for i in range(n) if i != j and not conflicts[j, i]} for j in range(n)]

    def grow(chosen: list[int], open_: set[int], done: set[int]) -> Iterator[tuple[int, ...]]:
        if not open_ and not done:
            yield tuple(sorted(chosen))
            return
        pivot = max(sorted(open_ | done), key=lambda j: len(free[j] & open_))
        for j in sorted(open_ - free[pivot]):
            yield from grow([*chosen, j], open_ & free[j], done & free[j])
            open_ = open_ - {j}
            done = done | {j}

    return tuple(sorted(grow([], set(range(n)), set()))) if n else ()


def time_shares(speed: FloatArray, weight: Sequence[float] | FloatArray) -> TimeShares:
    """Return the max-min fair shares of time of the combinations.

    Parameters
    ----------
    speed : (n_jobs, n_combinations) float64
        ``e_jc >= 0``; every job has a combination in which it runs.
    weight : (n_jobs,) float64
        ``w_j > 0``.

    Raises
    ------
    InputError
        For other shapes or numbers.
    FleetPlannerError
        When the solver fails: the program always has an optimum.
    """
    e, w = np.asarray(speed, dtype=np.float64), np.asarray(weight, dtype=np.float64)
    _require(e, w)
    n, combinations = e.shape
    model = HighsModel()
    _add_rows(model, n)
    _add_columns(model, e, w)
    least = float(_values(model)[combinations])
    model.column_bounds(
        np.array([combinations]), np.array([least * (1 - _HELD)]), np.array([INFINITY])
    )
    model.costs(np.arange(combinations + 1), np.append(-(w @ e), 0.0))
    shares = np.maximum(_values(model)[:combinations], 0.0)
    shares /= max(1.0, float(shares.sum()))
    speeds = e @ shares
    for array in (shares, speeds):
        array.setflags(write=False)
    return TimeShares(shares=shares, speeds=speeds, least=float((w * speeds).min()))


def _require(e: FloatArray, w: FloatArray) -> None:
    if e.ndim != 2 or w.shape != (len(e),) or not e.size:
        raise InputError(
            f"Expected speeds of shape (jobs, combinations) and as many weights, got {e.shape} "
            f"and {w.shape}."
        )
    if not (np.isfinite(e).all() and (e >= 0).all() and (e.max(axis=1) > 0).all()):
        raise InputError("Expected finite speeds >= 0, and one above 0 for every job.")
    if not (np.isfinite(w).all() and (w > 0).all()):
        raise InputError("Expected finite weights > 0.")


def _add_rows(model: HighsModel, n: int) -> None:
    """Time, ``sum_c y_c <= 1``, then fairness, ``w_j sum_c e_jc y_c - z >= 0`` per job."""
    lower = np.concatenate(([-INFINITY], np.zeros(n)))
    upper = np.concatenate(([1.0], np.full(n, INFINITY)))
    model.add_rows(lower, upper)


def _add_columns(model: HighsModel, e: FloatArray, w: FloatArray) -> None:
    """``y_c``, one entry of time and its weighted speeds; then ``z``, which is maximised."""
    n, combinations = e.shape
    shares = np.hstack((np.ones((combinations, 1)), (w[:, None] * e).T))
    least = np.concatenate(([0.0], np.full(n, -1.0)))[None, :]
    model.add_columns(np.zeros(combinations), shares)
    model.add_columns(np.array([-1.0]), least)


def _values(model: HighsModel) -> FloatArray:
    ended = model.run()
    if ended is Ended.INTERRUPT:
        raise KeyboardInterrupt
    if ended is not Ended.OPTIMAL:
        raise FleetPlannerError(f"Expected optimal shares of time, got {model.status}.")
    return model.values()
