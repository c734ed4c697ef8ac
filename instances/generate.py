"""Seeded job generators: traces made to published marginals, and tiny hand-checked ones.

The published production trace is not public; :func:`production` draws one to its marginals
and :func:`profiles` one like the published simulation. The marginals are facts, the shapes
around them are guesses, and each docstring says which is which. The phase profiles have their
own table in :mod:`instances.profiles`.

Randomness is ``numpy.random.Generator(PCG64(seed))`` only: same seed, same bytes. Seconds are
whole milliseconds, so that a CSV file is short and reads back exactly. ``job_id`` counts in
arrival order from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.profiles import KINDS, Stays, build_jobs, draw_phases

__all__ = [
    "GENERATORS",
    "production",
    "profiles",
    "tiny_gang",
    "tiny_open_shop",
    "tiny_sync_gap",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_MS_PER_HOUR: Final = 3_600_000
_PRODUCTION_JOBS: Final = 200
_PROFILES_JOBS: Final = 300
_SIGMA: Final = 0.8
_Z_LIMIT: Final = 2.5
_WIDTHS: Final = np.array([1, 2, 4])
_WIDTH_SHARE: Final = np.array([0.5, 0.3, 0.2])


def _require(rule: bool, expected: str, got: object) -> None:
    if not rule:
        raise InputError(f"Expected {expected}, got {got}.")


def _require_seed_and_count(seed: int, n_jobs: int) -> None:
    _require(n_jobs >= 1, "n_jobs >= 1", n_jobs)
    _require(seed >= 0, "seed >= 0", seed)


def _ids(prefix: str, n_jobs: int) -> tuple[str, ...]:
    return tuple(f"{prefix}-{i:04d}" for i in range(1, n_jobs + 1))


def _milliseconds(hours: FloatArray, mean_h: float) -> IntArray:
    """Round to milliseconds and give the middle job what is missing from the exact mean."""
    out = np.rint(hours * _MS_PER_HOUR).astype(np.int64)
    middle = np.argsort(out, kind="stable")[(len(out) - 1) // 2]
    out[middle] += round(mean_h * len(out) * _MS_PER_HOUR) - int(out.sum())
    return out


def _lognormal_hours(
    rng: np.random.Generator, n_jobs: int, mean_h: float, least_h: float
) -> FloatArray:
    """Draw ``least_h`` plus a lognormal cut at 2.5 sigma, scaled to the exact mean."""
    z = rng.standard_normal(n_jobs)
    while (beyond := np.abs(z) > _Z_LIMIT).any():
        z[beyond] = rng.standard_normal(int(beyond.sum()))
    x = np.exp(_SIGMA * z)
    out: FloatArray = least_h + (mean_h - least_h) * x / x.mean()
    return out


def _arrivals_to_horizon(position: FloatArray, duration_ms: IntArray, horizon_ms: int) -> IntArray:
    """Stretch sorted positions (the first is 0) until the last departure is the horizon."""
    later = position > 0
    if not later.any():
        return np.zeros(len(position), dtype=np.int64)
    stretch = float(np.min((horizon_ms - duration_ms[later]) / position[later]))
    # The critical job's product is whole but for float error, hence the 1e-6 ms.
    return np.floor(stretch * position + 1e-6).astype(np.int64)


def _draw_widths(rng: np.random.Generator, n_jobs: int) -> tuple[IntArray, IntArray]:
    """Return rollout and train widths in nodes; no train width exceeds its rollout width."""
    rank = rng.choice(len(_WIDTHS), size=n_jobs, p=_WIDTH_SHARE)
    train_rank = rng.integers(0, rank + 1)
    return _WIDTHS[rank], _WIDTHS[train_rank]


def production(
    *,
    n_jobs: int = 200,
    seed: int = 0,
    gangs: bool = False,
    horizon_h: float = 370.2,
    mean_duration_h: float = 27.9,
    concurrent: bool = False,
    cluster: Cluster = DEFAULT_CLUSTER,
) -> JobTable:
    """Draw a trace like the published production trace.

    ==============  ========================================================  =================
    quantity        distribution                                              source
    ==============  ========================================================  =================
    number, span    ``n_jobs`` jobs; 370.2 h from the first arrival (0) to    published marginal
                    the last departure, every job running alone
    arrival_s       sorted uniform, stretched until the last departure is     guess
                    the horizon exactly
    duration_s      1 h + lognormal (sigma 0.8, cut at 2.5 sigma), scaled     mean: published
                    to a mean of exactly 27.9 h                               marginal;
                                                                              shape: guess
    model_b,        profile ``production`` of :mod:`instances.profiles`       see there
    max_tokens,
    slo, phases
    node counts     1 and 1; with ``gangs`` rollout 1 / 2 / 4 nodes with      guess
                    50 / 30 / 20 %, train 1, 2 or 4 nodes with equal
                    chances among those that do not exceed it
    states,         from ``model_b`` and ``cluster``, flagged estimated       published; guesses
    switches, sync
    ==============  ========================================================  =================

    With other than 200 jobs the horizon is ``horizon_h * n_jobs / 200``, so that the mean
    number of jobs present stays that of the published trace, but at least twice the longest
    job. ``gangs`` changes the node counts and nothing else.

    Parameters
    ----------
    n_jobs, seed : int
        Number of jobs and seed.
    gangs : bool
        Draw node counts above 1.
    horizon_h : float
        Hours from first arrival to last departure at 200 jobs.
    mean_duration_h : float
        Mean hours a job runs alone.
    concurrent : bool
        All jobs arrive in the first hour (sorted uniform) and stay at least 2 h, so that all
        are present at hour 1; ``horizon_h`` is then not used.
    cluster : Cluster
        Gives the estimated columns.

    Returns
    -------
    JobTable

    Raises
    ------
    InputError
        When an argument breaks its rule.
    """
    least_h = 2.0 if concurrent else 1.0
    _require_seed_and_count(seed, n_jobs)
    _require(mean_duration_h >= least_h, f"mean_duration_h >= {least_h:g}", mean_duration_h)
    _require(0 < horizon_h < np.inf, "horizon_h > 0", horizon_h)
    rng = np.random.Generator(np.random.PCG64(seed))
    position = np.sort(rng.random(n_jobs))
    hours = _lognormal_hours(rng, n_jobs, mean_duration_h, least_h)
    duration_ms = _milliseconds(hours, mean_duration_h)
    if concurrent:
        arrival_ms = np.floor((position - position[0]) * _MS_PER_HOUR).astype(np.int64)
    else:
        horizon_ms = max(
            round(horizon_h * n_jobs / _PRODUCTION_JOBS * _MS_PER_HOUR),
            2 * int(duration_ms.max()),
        )
        arrival_ms = _arrivals_to_horizon(position - position[0], duration_ms, horizon_ms)
    phases = draw_phases(rng, n_jobs, "production", cluster)
    one = np.ones(n_jobs, dtype=np.int64)
    rollout_nodes, train_nodes = _draw_widths(rng, n_jobs) if gangs else (one, one)
    stays = Stays(
        job_id=_ids("prod", n_jobs),
        arrival_s=arrival_ms / 1000,
        duration_s=duration_ms / 1000,
        rollout_nodes=rollout_nodes,
        train_nodes=train_nodes,
        extra={"profile_source": (f"synthetic:production:seed={seed}",) * n_jobs},
    )
    return build_jobs(stays, phases, cluster)


def _diurnal_arrivals_h(rng: np.random.Generator, n_jobs: int, span_h: float) -> FloatArray:
    """Draw sorted arrival hours of a Poisson process with a daily and a weekly rhythm.

    Given their number, the arrivals of a Poisson process are independent draws from its
    normalised rate: here the inverse of the cumulated rate, linear within each quarter hour.
    """
    edges = np.append(np.arange(0.0, span_h, 0.25), span_h)
    middle = (edges[:-1] + edges[1:]) / 2
    rate = 1.0 + 0.5 * np.cos(2 * np.pi * (middle - 15.0) / 24.0)
    rate *= np.where(middle % 168.0 < 120.0, 1.0, 0.6)
    cumulated = np.append(0.0, np.cumsum(rate * np.diff(edges)))
    arrivals = np.interp(np.sort(rng.random(n_jobs)) * cumulated[-1], cumulated, edges)
    out: FloatArray = arrivals - arrivals[0]
    return out


def _heavy_tail_hours(
    rng: np.random.Generator, n_jobs: int, mean_h: float, longest_h: float, least_h: float
) -> FloatArray:
    """Draw ``least_h`` plus a lognormal whose sigma gives both the mean and the longest.

    With z standard normal, d = least + (longest - least) exp(-sigma (max z - z)); the sample
    mean falls from ``longest_h`` as sigma grows, so sigma is found by bisection.
    """
    z = rng.standard_normal(n_jobs)
    below = z.max() - z
    longest_h = min(longest_h, least_h + (mean_h - least_h) * max(1.0, n_jobs / 3))

    def hours(sigma: float) -> FloatArray:
        out: FloatArray = least_h + (longest_h - least_h) * np.exp(-sigma * below)
        return out

    low, high = 0.0, 1.0
    while high < 1e6 and hours(high).mean() > mean_h:
        high *= 2
    for _ in range(200):
        sigma = (low + high) / 2
        low, high = (sigma, high) if hours(sigma).mean() > mean_h else (low, sigma)
    return hours(low)


def profiles(
    *,
    n_jobs: int = 300,
    seed: int = 0,
    kind: str = "mixed",
    span_h: float = 580.0,
    mean_duration_h: float = 14.4,
    longest_h: float = 142.9,
    cluster: Cluster = DEFAULT_CLUSTER,
) -> JobTable:
    """Draw a trace like the published simulation, with synthetic arrivals in place of Philly's.

    ==============  ========================================================  =================
    quantity        distribution                                              source
    ==============  ========================================================  =================
    number, span    300 jobs arriving within 580 h                            published marginal
    arrival_s       Poisson with rate 1 + 0.5 cos(2 pi (hour - 15) / 24),     guess (the published
                    0.6 of that on two days of seven; first arrival at 0      arrivals are
                                                                              Philly's)
    duration_s      1 h + lognormal whose sigma makes the mean exactly        mean and longest:
                    14.4 h and the longest exactly 142.9 h                    published marginal;
                                                                              shape: guess
    profile         kind x size of ``PROFILE_TABLE``, equal chances           kinds and sizes:
                                                                              published marginal;
                                                                              numbers: guess
    slo             U(1, 2), four decimals                                    published marginal
    node counts     1 and 1                                                   guess
    states,         from ``model_b`` and ``cluster``, flagged estimated       published; guesses
    switches, sync
    ==============  ========================================================  =================

    With other than 300 jobs the span is ``span_h * n_jobs / 300``, so that the mean number of
    jobs present stays about 7. With few jobs (below 32 at the defaults) the longest is at
    most 1 h + (mean - 1 h) x max(1, n_jobs / 3): one job of 142.9 h would exceed the mean.

    Parameters
    ----------
    n_jobs, seed : int
        Number of jobs and seed.
    kind : {"mixed", "balanced", "rollout-heavy", "train-heavy"}
        Which profiles to draw; ``mixed`` draws all. The extra column ``profile`` keeps the
        drawn one, for example ``rollout-heavy/M``.
    span_h : float
        Hours within which 300 jobs arrive.
    mean_duration_h, longest_h : float
        Mean and longest hours a job runs alone.
    cluster : Cluster
        Gives the estimated columns.

    Returns
    -------
    JobTable

    Raises
    ------
    InputError
        When an argument breaks its rule.
    """
    least_h = 1.0
    _require_seed_and_count(seed, n_jobs)
    if kind not in KINDS:
        raise InputError(
            f"Expected kind in {', '.join(KINDS)}, got '{kind}'.{did_you_mean(kind, KINDS)}"
        )
    _require(0 < span_h < np.inf, "span_h > 0", span_h)
    _require(mean_duration_h > least_h, f"mean_duration_h > {least_h:g}", mean_duration_h)
    _require(mean_duration_h <= longest_h < np.inf, f"longest_h >= {mean_duration_h:g}", longest_h)
    rng = np.random.Generator(np.random.PCG64(seed))
    arrival_h = _diurnal_arrivals_h(rng, n_jobs, span_h * n_jobs / _PROFILES_JOBS)
    hours = _heavy_tail_hours(rng, n_jobs, mean_duration_h, longest_h, least_h)
    phases = draw_phases(rng, n_jobs, kind, cluster)
    stays = Stays(
        job_id=_ids("prof", n_jobs),
        arrival_s=np.floor(arrival_h * _MS_PER_HOUR) / 1000,
        duration_s=_milliseconds(hours, mean_duration_h) / 1000,
        rollout_nodes=np.ones(n_jobs, dtype=np.int64),
        train_nodes=np.ones(n_jobs, dtype=np.int64),
        extra={
            "profile": phases.label,
            "profile_source": (f"synthetic:{kind}:seed={seed}",) * n_jobs,
        },
    )
    return build_jobs(stays, phases, cluster)


def tiny_open_shop() -> JobTable:
    """Return two jobs that fill one node of each kind: r = (120, 60), t = (60, 120), s = 0.

    Both have T = 180 s and a deadline of 225 s. Loads are 180 s on each node, so no period
    below 180 s exists; job 1 rolls out at 0 and trains at 120, job 2 rolls out at 120 and
    trains at 180: period 180 s, no idle second.
    """
    return JobTable.from_jobs(
        [
            _tiny("shop-1", rollout_s=120, train_s=60, slo=1.25),
            _tiny("shop-2", rollout_s=60, train_s=120, slo=1.25),
        ]
    )


def tiny_sync_gap() -> JobTable:
    """Return the three jobs of FORMULATION section 4 that sync keeps off one pair of nodes.

    r = (5, 5, 1), t = (2, 3, 6), s = (2, 3, 0), deadlines 11 s. Loads are 11 s on each node and
    the longest T is 11 s, yet the least period is 11.5 s: loads admit the group, no schedule
    exists. ``slo`` is 11 / T, so deadlines are 11 s up to float error.
    """
    rows = ((5, 2, 2), (5, 3, 3), (1, 6, 0))
    return JobTable.from_jobs(
        [
            _tiny(f"gap-{i}", rollout_s=r, train_s=t, sync_s=s, slo=11 / (r + t + s))
            for i, (r, t, s) in enumerate(rows, start=1)
        ]
    )


def tiny_gang() -> JobTable:
    """Return the five gangs of FORMULATION section 4 that need 34 s where node loads say 31 s.

    r = (5, 3, 11, 6, 9), t = (3, 4, 6, 5, 3), s = 0, on 3, 2, 3, 2, 2 rollout nodes and 1 train
    node. In a group of three rollout nodes any two gangs share a node, so rollouts queue: 34 s.
    Deadlines are 34 s (``slo`` = 34 / T), so three rollout nodes and one train node suffice,
    and at any smaller deadline they would not.
    """
    rows = ((5, 3, 3), (3, 4, 2), (11, 6, 3), (6, 5, 2), (9, 3, 2))
    return JobTable.from_jobs(
        [
            _tiny(f"gang-{i}", rollout_s=r, train_s=t, slo=34 / (r + t), rollout_nodes=nodes)
            for i, (r, t, nodes) in enumerate(rows, start=1)
        ]
    )


def _tiny(
    job_id: str,
    *,
    rollout_s: float,
    train_s: float,
    slo: float,
    sync_s: float = 0.0,
    rollout_nodes: int = 1,
) -> Job:
    """Return a job of 1,000 iterations with 100 GB of state per node and free switches."""
    return Job(
        job_id=job_id,
        rollout_s=rollout_s,
        train_s=train_s,
        sync_s=sync_s,
        slo=slo,
        duration_s=1000.0 * (rollout_s + train_s + sync_s),
        rollout_nodes=rollout_nodes,
        rollout_state_gb=100.0,
        train_state_gb=100.0,
    )


#: Generator name, as the command line spells it, -> function. ``production`` and ``profiles``
#: take keyword arguments; the ``tiny-*`` ones take none.
GENERATORS: Final[Mapping[str, Callable[..., JobTable]]] = MappingProxyType(
    {
        "production": production,
        "profiles": profiles,
        "tiny-gang": tiny_gang,
        "tiny-open-shop": tiny_open_shop,
        "tiny-sync-gap": tiny_sync_gap,
    }
)
