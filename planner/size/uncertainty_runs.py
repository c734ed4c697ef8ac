"""Replays of drawn traces: the sample that :mod:`planner.size.uncertainty` is about.

Replication r has one seed, derived from the study's seed and r alone, and is replayed at every
growth. Drawn traces of equal seeds are nested (:mod:`instances.bootstrap`), so a replication is
one possible future, seen at several sizes; more growths or replications never change those
there already.

Replays go replication by replication, and only the longest run of whole replications from the
first on is kept: in whichever order processes finish, and wherever Ctrl-C falls, the sample is
what one process would have made first. Keeping all that happened to be done instead would favour
short replays, which are small traces.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from instances.bootstrap import Bursts, arrival_window_s, bootstrap_trace, require_bursts
from instances.errors import (
    CheckError,
    FleetPlannerError,
    InfeasibleError,
    InputError,
    UnsupportedError,
)
from instances.jobs import JobTable
from planner.output.ctrl_c import ctrl_c_held
from planner.policies.policy import PolicyOptions
from planner.policies.registry import require_policy
from planner.policies.replay_result import Convention, ReplayResult
from planner.replay.demand import Demand, demand_of
from planner.replay.replaying import replay, require_convention

__all__ = ["DemandSample", "Replication", "Study", "observed_demand", "replication_seed", "sample"]

Progress = Callable[[int, int], None]

_HOUR_S: Final = 3600.0
#: Bits of a replication's seed: every JSON reader holds so large a number exactly.
_SEED_BITS: Final = 53
_ERRORS: Final = (CheckError, InfeasibleError, UnsupportedError, InputError)


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is replayed.

    Attributes
    ----------
    jobs : JobTable
        The trace to draw from.
    growths : tuple of float
        Increasing.
    replications, seed : int
    block_h : float
    bursts : {"independent", "coincident"}
    warm_up_h : float or None
        ``None``: demand over the whole replay, which begins and ends empty, as everywhere else.
        A number: demand between so many hours after the window of arrivals opens and the moment
        it closes, which leaves out filling and draining.
    check : bool
        Check every version of every plan.
    wait_share : float or None
        With a fixed fleet in ``options``: the share of jobs whose longest wait is noted.

    Raises
    ------
    InputError
        When there is no job, or ``policy``, ``convention`` or a number is not one there can be.
    """

    jobs: JobTable
    policy: str
    options: PolicyOptions
    convention: Convention
    growths: tuple[float, ...]
    replications: int
    seed: int
    block_h: float
    warm_up_h: float | None
    check: bool
    bursts: Bursts = "independent"
    wait_share: float | None = None

    def __post_init__(self) -> None:
        require_policy(self.policy)
        require_convention(self.convention)
        if not len(self.jobs):
            raise InputError("Expected at least one job, got none.")
        require_bursts(self.bursts)
        _require_least("replications", self.replications, 1)
        _require_least("seed", self.seed, 0)


def _require_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"Expected {name} >= {least}, got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class Replication:
    """One drawn trace, replayed.

    Attributes
    ----------
    seed : int
        ``bootstrap_trace(jobs, seed=seed, block_h=..., growth=growth, bursts=...)`` draws it again.
    jobs : int
        Jobs drawn.
    demand : Demand
        In order of time.
    wait_s : float or None
        The least w such that the share of jobs asked about waited at most w seconds.
    """

    number: int
    growth: float
    seed: int
    jobs: int
    demand: Demand
    wait_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class DemandSample:
    """Whole replications, from the first on.

    Attributes
    ----------
    by_growth : tuple of tuple of Replication
        Per growth, in the order of their numbers; equally many at every growth.
    interrupted : bool
        Whether Ctrl-C ended it early.
    """

    growths: tuple[float, ...]
    by_growth: tuple[tuple[Replication, ...], ...]
    interrupted: bool

    @property
    def replications(self) -> int:
        """Replications done."""
        return len(self.by_growth[0])


def replication_seed(seed: int, number: int) -> int:
    """Return the seed of replication ``number`` (from 0) of a study: of these two alone.

    Parameters
    ----------
    seed, number : int
        At least 0.

    Returns
    -------
    int
        Below 2^53, from ``numpy.random.SeedSequence``.
    """
    words = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)
    return int(words[0]) >> (64 - _SEED_BITS)


def observed_demand(study: Study) -> Demand:
    """Return the demand of the trace itself, over the same part of time."""
    result = _replayed(study, study.jobs, None)
    assert result is not None  # a trace has jobs
    return _demand(study, result)


def sample(study: Study, *, processes: int = 1, progress: Progress | None = None) -> DemandSample:
    """Replay every replication at every growth.

    Parameters
    ----------
    study : Study
    processes : int
        1: in this process. The sample does not depend on it.
    progress : callable, optional
        Called with (replays done, replays).

    Raises
    ------
    InputError
        When ``processes`` is below 1.
    FleetPlannerError
        When a replay cannot run, naming the seed of its trace; or when a process died.
    KeyboardInterrupt
        At Ctrl-C before one replication was whole.
    """
    _require_least("processes", processes, 1)
    units = [(r, g) for r in range(study.replications) for g in range(len(study.growths))]
    done: dict[tuple[int, int], Replication] = {}
    interrupted = False
    runs = _one_by_one if processes == 1 else _in_processes
    try:
        with contextlib.closing(runs(study, units, processes)) as made:
            for unit, run in made:
                done[unit] = run
                if progress is not None:
                    progress(len(done), len(units))
    except KeyboardInterrupt:
        interrupted = True
    whole = 0
    while all((whole, g) in done for g in range(len(study.growths))):
        whole += 1
    if not whole:
        raise KeyboardInterrupt
    return DemandSample(
        growths=study.growths,
        by_growth=tuple(tuple(done[r, g] for r in range(whole)) for g in range(len(study.growths))),
        interrupted=interrupted,
    )


# -- one replay ------------------------------------------------------------------------------


def _run(study: Study, number: int, growth: float, stop: Progress | None) -> Replication:
    """Draw and replay one trace.

    Raises
    ------
    FleetPlannerError
        Naming the replication and the seed.
    """
    seed = replication_seed(study.seed, number)
    try:
        jobs = bootstrap_trace(
            study.jobs, seed=seed, block_h=study.block_h, growth=growth, bursts=study.bursts
        )
        result = _replayed(study, jobs, stop)
    except FleetPlannerError as error:
        kind = type(error) if type(error) in _ERRORS else FleetPlannerError
        raise kind(
            f"Replication {number} at growth {growth:g} (bootstrap seed {seed}, block_h "
            f"{study.block_h:g}) cannot be replayed: {error}"
        ) from error
    wait_s = None
    if study.wait_share is not None:
        wait_s = 0.0 if result is None else result.wait_quantile(study.wait_share)
    return Replication(
        number=number,
        growth=growth,
        seed=seed,
        jobs=len(jobs),
        demand=_demand(study, result),
        wait_s=wait_s,
    )


def _replayed(study: Study, jobs: JobTable, stop: Progress | None) -> ReplayResult | None:
    if not len(jobs):
        return None
    return replay(
        jobs,
        study.policy,
        study.options,
        convention=study.convention,
        check=study.check,
        progress=stop,
    )


def _demand(study: Study, result: ReplayResult | None) -> Demand:
    """Return the demand over the part of time asked for; without jobs, none in the window."""
    begin_s = float(study.jobs.arrival_s[0])
    end_s = begin_s + arrival_window_s(study.jobs)
    if study.warm_up_h is None and result is not None:
        return demand_of(result)
    begin_s += _HOUR_S * (study.warm_up_h or 0.0)
    if result is None:
        moments, rollout, train = np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64)
    else:
        line = result.timeline
        moments, rollout, train = line.time_s, line.rollout_nodes, line.train_nodes
    # before its first moment and after its last a replay holds nothing
    edges = np.concatenate(([-np.inf], moments, [np.inf])).clip(begin_s, end_s)
    hours = np.diff(edges) / _HOUR_S
    lasts = hours > 0
    return Demand(
        name=study.policy,
        hours=hours[lasts],
        rollout_nodes=np.concatenate(([0], rollout))[lasts],
        train_nodes=np.concatenate(([0], train))[lasts],
    )


# -- many replays ----------------------------------------------------------------------------

_Unit = tuple[int, int]
_Runs = Generator[tuple[_Unit, Replication], None, None]


def _one_by_one(study: Study, units: list[_Unit], _processes: int) -> _Runs:
    for number, g in units:
        yield (number, g), _run(study, number, study.growths[g], None)


class _StoppedError(Exception):
    """The starting process asked a worker to stop."""


#: What a worker process was started with: the study, and the event that ends it.
_worker: dict[str, Any] = {}


def _start_worker(study: Study, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.update(study=study, stop=stop)


def _work(number: int, g: int) -> Replication:
    study: Study = _worker["study"]
    return _run(study, number, study.growths[g], _stop_if_asked)


def _stop_if_asked(_done: int, _jobs: int) -> None:
    if _worker["stop"].is_set():
        raise _StoppedError


def _in_processes(study: Study, units: list[_Unit], processes: int) -> _Runs:
    """Yield replications as spawned processes finish them; end them whatever happens here."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    # a clock only times decisions, and may be a function that cannot be sent
    sent = replace(study, options=replace(study.options, clock=None))
    pool = ProcessPoolExecutor(
        min(processes, len(units)), context, initializer=_start_worker, initargs=(sent, stop)
    )
    try:
        with ctrl_c_held():
            futures: dict[Future[Replication], _Unit] = {
                pool.submit(_work, *unit): unit for unit in units
            }
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise FleetPlannerError(
            "A worker process ended: out of memory, or killed. Fewer processes need less memory."
        ) from None
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
