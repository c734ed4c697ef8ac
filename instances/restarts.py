"""How long a job takes to restart after a move: measured, from its model's size, or guessed.

The paper gives 197 s for a 7 B model and 419 s for 32 B to move or restart.
Between these it is linear in ``model_b`` here, and constant outside. A job of unknown size gets
the larger of the two, so that a move is never thought cheaper than any published one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["RESTART_POINTS", "RESTART_S", "restart_seconds", "restart_sources"]

FloatArray = npt.NDArray[np.float64]

#: Published points: billions of parameters, and seconds of a restart.
RESTART_POINTS: Final = ((7.0, 197.0), (32.0, 419.0))
#: Seconds of a restart of a job whose model is unknown: the largest published, a guess.
RESTART_S: Final = RESTART_POINTS[-1][1]


class _Columns(Protocol):
    """What is read of a :class:`~instances.jobs.JobTable`, which builds on this module."""

    @property
    def optional(self) -> Mapping[str, FloatArray]: ...

    def __len__(self) -> int: ...


def _column(jobs: _Columns, name: str) -> FloatArray:
    """Return an optional column, ``(n_jobs,)``, NaN where there is none."""
    values = jobs.optional.get(name)
    return np.full(len(jobs), np.nan) if values is None else values


def restart_seconds(jobs: _Columns) -> FloatArray:
    """Return the restart seconds of each job, ``(n_jobs,)``.

    Parameters
    ----------
    jobs : JobTable
        Its optional columns ``restart_s`` and ``model_b`` are read, in this order.
    """
    given, model_b = _column(jobs, "restart_s"), _column(jobs, "model_b")
    sizes, seconds = zip(*RESTART_POINTS, strict=True)
    by_size = np.where(np.isnan(model_b), RESTART_S, np.interp(model_b, sizes, seconds))
    return np.where(np.isnan(given), by_size, given)


def restart_sources(jobs: _Columns) -> dict[str, int]:
    """Return how many restarts are ``measured``, from ``model_b`` and ``guessed``."""
    measured = ~np.isnan(_column(jobs, "restart_s"))
    sized = ~measured & ~np.isnan(_column(jobs, "model_b"))
    counts = {"measured": int(measured.sum()), "model_b": int(sized.sum())}
    return {**counts, "guessed": len(jobs) - sum(counts.values())}
