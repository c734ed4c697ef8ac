"""Traces drawn from a trace: what another fortnight of the same business might have been.

Arrivals and jobs are resampled apart. The arrivals come in blocks, so that bursts and quiet hours
within a block survive; which job arrives is drawn job by job, all its columns together, its
duration among them.

Sets and parameters
    n jobs at positions ``p_i = arrival_s[i] - arrival_s[0]`` on a circle of ``W`` seconds;
    L seconds in a block (``block_h``), at most W; growth g.
The circle
    ``W = n / (n - 1) x (last arrival - first arrival)``: the gap that closes the circle is the
    mean gap, so that n gaps of mean W / n take the place of n - 1. Without it the first and the
    last job would coincide.
One layer (the circular block bootstrap of Politis and Romano, 1992 [1]_; blocks of a dependent
series: Künsch, 1989 [2]_)
    ``ceil(W / L)`` blocks, each the arrivals of ``[u, u + L)`` on the circle for a start u uniform
    on it, laid one after another over ``[0, W)``; the last is cut at W. Every point of the circle
    is equally likely to be covered, so a layer has n arrivals in expectation, and every stretch of
    the window its share of them. At L = W a layer is the trace, turned.
Growth
    ``floor(g)`` layers, and one more each of whose arrivals stays with probability
    ``g - floor(g)``: g n arrivals in expectation.

Assumptions, each of them a limit
    * Blocks start at any hour, so a daily rhythm is kept within a block but not from block to
      block: hours of the day mean nothing in a drawn trace.
    * Which job arrives depends neither on when, nor on who came before. Where late jobs are short
      because the trace was cut off, drawn traces take longer to drain than the trace.
    * Growth with ``bursts="independent"`` is more customers, none like the others: bursts of g
      layers partly cancel, and the count's relative deviation falls as 1 / sqrt(g). With
      ``"coincident"`` all layers have the arrivals of the first: the same customers send more jobs
      at the same moments, bursts grow with g, and more nodes are needed at the peak. The truth
      lies between.
    * Nothing is drawn that the trace does not hold: no job longer than its longest.

Layer k draws from its own child of the seed, and numbers its arrivals after those of layer k - 1.
Equal seeds therefore give nested traces: every job of a smaller growth is in the larger, with its
id and its moment. Differences between growths are then due to growth and not to chance (common
random numbers).

.. [1] D. N. Politis and J. P. Romano (1992). A circular block-resampling procedure for stationary
   data. In R. LePage and L. Billard (eds), Exploring the Limits of Bootstrap, 263-270. Wiley.
.. [2] H. R. Künsch (1989). The jackknife and the bootstrap for general stationary observations.
   Annals of Statistics 17(3), 1217-1241.
"""

from __future__ import annotations

import math
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.jobs import JobTable
from instances.trace_rules import MAX_ARRIVAL_S, MAX_ID_LENGTH

__all__ = [
    "BURSTS",
    "SOURCE_COLUMN",
    "Bursts",
    "arrival_window_s",
    "bootstrap_trace",
    "require_bursts",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Bursts = Literal["independent", "coincident"]
BURSTS: Final[tuple[Bursts, ...]] = get_args(Bursts)
#: The extra column that holds the row a job was drawn from, counted from 1.
SOURCE_COLUMN: Final = "bootstrap_row"

_HOUR_S: Final = 3600.0
_MS: Final = 1000.0
#: Beyond these a trace no longer fits in memory, or takes more time than anyone has.
_MAX_JOBS: Final = 10_000_000
_MAX_BLOCKS: Final = 10_000_000


def arrival_window_s(jobs: JobTable) -> float:
    """Return W, the seconds of the circle that arrivals are drawn from.

    Parameters
    ----------
    jobs : JobTable
        In order of arrival.

    Returns
    -------
    float
        ``n / (n - 1)`` times the seconds between the first arrival and the last; 0 with one job,
        or when all arrive at once.
    """
    n = len(jobs)
    if n < 2:
        return 0.0
    return float(jobs.arrival_s[-1] - jobs.arrival_s[0]) * (n / (n - 1))


def bootstrap_trace(
    jobs: JobTable,
    *,
    seed: int,
    block_h: float = 24.0,
    growth: float = 1.0,
    bursts: Bursts = "independent",
) -> JobTable:
    """Draw a trace by resampling arrivals in blocks, and the jobs one by one.

    Parameters
    ----------
    jobs : JobTable
        In order of arrival, of any mode.
    seed : int
        Of ``numpy.random.PCG64``: equal seeds, equal bytes; other growths of the same seed are
        nested.
    block_h : float
        Hours of a block. Longer ones keep longer bursts and give fewer different traces; from the
        arrival window on, arrivals are those of the trace, turned.
    growth : float
        Expected arrivals over those of the trace.
    bursts : {"independent", "coincident"}
        How the arrivals that growth adds fall beside those there already.

    Returns
    -------
    JobTable
        Arrivals within ``[arrival_s[0], arrival_s[0] + W]``, in whole milliseconds after
        ``arrival_s[0]``; ids ``b0001-<old id>`` (the old one cut where the whole would be too
        long), extra column ``bootstrap_row``, estimated cells marked as they were. Valid by the
        rules of a trace but for one: when every block falls on quiet hours, or growth below 1
        lets nobody stay, it holds no job. Drawing again instead would raise the mean.

    Raises
    ------
    InputError
        When there is no job, jobs are out of order, an argument is out of range, or the window
        would end later than a trace may.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> jobs = read_trace(catalog_path("tiny-open-shop")).jobs
    >>> bootstrap_trace(jobs, seed=0, growth=2).job_id
    ('b0001-shop-2', 'b0002-shop-2', 'b0003-shop-2', 'b0004-shop-2')
    """
    require_bursts(bursts)
    _require_arguments(jobs, seed, block_h, growth)
    window_s = arrival_window_s(jobs)
    if float(jobs.arrival_s[0]) + window_s > MAX_ARRIVAL_S:
        raise InputError(
            f"Expected arrivals within {MAX_ARRIVAL_S:g} s, got a window that ends at "
            f"{float(jobs.arrival_s[0]) + window_s:g} s."
        )
    at_s, row, number = _drawn(jobs, seed, block_h * _HOUR_S, growth, bursts)
    order = np.argsort(at_s, kind="stable")
    at_s, row, number = at_s[order], row[order], number[order]
    drawn = jobs.take(row)
    ids = (f"b{k:04d}-{old}"[:MAX_ID_LENGTH] for k, old in zip(number, drawn.job_id, strict=True))
    return drawn.replace(
        job_id=tuple(ids),
        arrival_s=jobs.arrival_s[0] + at_s,
        extra={**drawn.extra, SOURCE_COLUMN: tuple(str(i + 1) for i in row)},
    )


def require_bursts(bursts: str) -> None:
    """Raise InputError for an unknown way of growing, with the nearest known one."""
    if bursts not in BURSTS:
        raise InputError(
            f"Expected bursts in {', '.join(BURSTS)}, got '{bursts}'.{did_you_mean(bursts, BURSTS)}"
        )


def _require_arguments(jobs: JobTable, seed: int, block_h: float, growth: float) -> None:
    if not len(jobs):
        raise InputError("Expected at least one job to draw from, got none.")
    if np.any(np.diff(jobs.arrival_s) < 0):
        raise InputError("Expected jobs in order of arrival.")
    if seed < 0:
        raise InputError(f"Expected seed a whole number >= 0, got {seed!r}.")
    if not 0 < block_h < math.inf:
        raise InputError(f"Expected block_h > 0, got {block_h!r}.")
    if not 0 < growth < math.inf:
        raise InputError(f"Expected growth > 0, got {growth!r}.")
    if growth * len(jobs) > _MAX_JOBS:
        raise InputError(
            f"Expected at most {_MAX_JOBS} jobs, got {len(jobs)} times growth {growth:g}."
        )
    if arrival_window_s(jobs) / (block_h * _HOUR_S) > _MAX_BLOCKS:
        raise InputError(f"Expected at most {_MAX_BLOCKS} blocks, got block_h {block_h!r}.")


def _drawn(
    jobs: JobTable, seed: int, block_s: float, growth: float, bursts: Bursts
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return moments after the first arrival, rows drawn from, and numbers, layer by layer."""
    position, window_s = jobs.arrival_s - jobs.arrival_s[0], arrival_window_s(jobs)
    whole = math.floor(growth)
    shares = [1.0] * whole + ([growth - whole] if growth > whole else [])
    moments: list[FloatArray] = []
    rows: list[IntArray] = []
    numbers: list[IntArray] = []
    before = 0
    children = np.random.SeedSequence(seed).spawn(len(shares))
    for share, child in zip(shares, children, strict=True):
        rng = np.random.Generator(np.random.PCG64(child))
        if bursts == "independent" or not moments:
            at_s = _layer(rng, position, block_s, window_s)
        row = rng.integers(len(jobs), size=len(at_s))
        number = before + np.arange(1, len(at_s) + 1)
        before += len(at_s)
        # thinned after all else is drawn: what stays is what the whole layer would hold
        stays = rng.random(len(at_s)) < share
        moments.append(at_s[stays])
        rows.append(row[stays])
        numbers.append(number[stays])
    return np.concatenate(moments), np.concatenate(rows), np.concatenate(numbers)


def _layer(
    rng: np.random.Generator, position: FloatArray, block_s: float, window_s: float
) -> FloatArray:
    """Return the moments of one circular block resampling, block by block, whole milliseconds.

    Parameters
    ----------
    position : ndarray, (n,)
        Sorted seconds on the circle, the first at 0.
    """
    n = len(position)
    if window_s <= 0:
        return np.zeros(n)
    block_s = min(block_s, window_s)
    blocks = math.ceil(window_s / block_s)
    out_s: list[FloatArray] = []
    # turned twice round: arrival i of the second turn is n places on, W seconds later
    twice = np.concatenate((position, position + window_s))
    for k, start_s in enumerate(rng.random(blocks) * window_s):
        length_s = max(min(block_s, window_s - k * block_s), 0.0)
        first = int(np.searchsorted(position, start_s))
        last_s = start_s + length_s
        end = first + n if length_s >= window_s else int(np.searchsorted(twice, last_s))
        within_s = np.clip(twice[first:end] - start_s, 0.0, length_s)
        out_s.append(np.floor((k * block_s + within_s) * _MS) / _MS)
    return np.concatenate(out_s)
