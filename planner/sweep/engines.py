"""Who does the runs of a study: this process, processes on this machine, or a Dask cluster.

All engines yield finished runs in any order, each with the seconds it took. Runs are handed out
in units of some 100 ms, few at a time, so that an engine's cost per unit matters little and the
last units end together. The size of a unit follows the mean time of the runs so far.

A worker that dies takes a unit with it, and nobody can tell which of the units in work was the
cause: all of them are suspects, and each of their runs is done again alone. Alone, a death can
be blamed: a run that has lost its worker three times in all is recorded as failed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import re
import signal
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Final, Protocol

from instances.errors import FleetPlannerError, InputError
from instances.trace_files import optional_module
from planner.output.ctrl_c import ctrl_c_held
from planner.sweep.expand import Inputs, Run
from planner.sweep.run import Cell, failed, row_of

__all__ = ["MAX_DEATHS", "Done", "Finished", "dask_cluster", "in_process", "local_processes"]

#: A run that has lost its worker so often is recorded as failed.
MAX_DEATHS: Final = 3
#: And on a cluster, whose scheduler has tried it on several workers each time.
_MAX_KILLED: Final = 2
#: Times that a pool is started again before its start is at fault.
_STARTS: Final = 2
#: Seconds of work that a unit aims at, and the most runs in one.
_UNIT_S: Final = 0.2
_MAX_UNIT: Final = 32
#: Units handed out per worker: one in work, one waiting.
_AHEAD: Final = 2
#: Seconds that a scheduler, or the first worker of one, may take to answer.
_CONNECT_S: Final = 10.0
#: Seconds between two looks at whether the scheduler still answers.
_LOOK_S: Final = 1.0
#: Seconds without any worker before that is said.
_LONELY_S: Final = 10.0


_CLIENT_LOG: Final = logging.getLogger("distributed.client")
_ADDRESS: Final = re.compile(
    r"(?:(?:tcp|tls|ws|wss)://)?(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run: its figures, and the seconds they took."""

    run_id: str
    figures: Mapping[str, Cell]
    seconds: float


Unit = Sequence[Run]
#: What an engine yields: units as they finish. Closing it ends the work.
Finished = Generator[list[Done], None, None]
Note = Callable[[str], None]


# --- in a worker ----------------------------------------------------------------------------------

#: One replay at a time in a process: solvers keep global state, and threads gain nothing here.
_ALONE: Final = threading.Lock()


def _unit_done(unit: Unit, inputs: Inputs) -> list[Done]:
    """Do the runs of a unit."""
    out = []
    for run in unit:
        with _ALONE:
            began = time.perf_counter()
            figures = row_of(run, inputs)
            out.append(Done(run.run_id, figures, time.perf_counter() - began))
    return out


def _packed(inputs: Inputs) -> bytes:
    return zlib.compress(pickle.dumps(inputs), 1)


def _unpacked(blob: bytes) -> Inputs:
    inputs: Inputs = pickle.loads(zlib.decompress(blob))
    return inputs


class _Worker:
    """What a local worker process holds."""

    inputs: Inputs | None = None


def _start(blob: bytes) -> None:
    """Set up a local worker: Ctrl-C is for its parent, without which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def outlived() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=outlived, daemon=True).start()
    _Worker.inputs = _unpacked(blob)


def _local_unit(unit: Unit) -> list[Done]:
    assert _Worker.inputs is not None
    return _unit_done(unit, _Worker.inputs)


# --- what is to be done ---------------------------------------------------------------------------


class _Work:
    """Runs not yet handed out, and those to be done alone since they may kill.

    Attributes
    ----------
    suspects : deque of Run
        To be done alone, with nothing else in work.
    """

    def __init__(self, runs: Sequence[Run], max_deaths: int = MAX_DEATHS) -> None:
        self._waiting = deque(runs)
        self._max_deaths = max_deaths
        self.suspects: deque[Run] = deque()
        self._deaths: Counter[str] = Counter()
        self._seconds, self._finished = 0.0, 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next_unit(self, workers: int) -> Unit:
        """Return the next runs, in order: single ones at first and at the end."""
        mean = self._seconds / self._finished if self._finished else _UNIT_S
        size = int(_UNIT_S / max(mean, 1e-9))
        size = max(1, min(size, _MAX_UNIT, len(self._waiting) // (_AHEAD * workers)))
        return [self._waiting.popleft() for _ in range(size)]

    def finished(self, done: Sequence[Done]) -> None:
        """Learn how long runs take."""
        self._seconds += sum(one.seconds for one in done)
        self._finished += len(done)

    def lost(self, unit: Unit) -> list[Done]:
        """Suspect the runs of a unit whose worker died; return those that have died too often."""
        out = []
        for run in unit:
            self._deaths[run.run_id] += 1
            if self._deaths[run.run_id] >= self._max_deaths:
                text = "Its worker died every time it was tried: out of memory, or killed."
                out.append(Done(run.run_id, failed("WorkerDied", text), 0.0))
            else:
                self.suspects.append(run)
        return out


class _Pool(Protocol):
    """Workers that units are handed out to; ``F`` of the engine is its kind of future."""

    @property
    def workers(self) -> int:
        """How many there are."""
        ...

    def submit(self, unit: Unit) -> Any:
        """Hand out a unit; return a future."""
        ...

    def first(self, busy: Collection[Any]) -> Collection[Any]:
        """Wait for the first of these futures; return all that are ready."""
        ...

    def result(self, future: Any) -> list[Done] | None:
        """Return what a unit gave; ``None``: its worker died."""
        ...


def _driven(pool: _Pool, work: _Work) -> Finished:
    """Hand out all work, and yield what comes back."""
    busy: dict[Any, Unit] = {}
    while work or work.suspects or busy:
        if work.suspects:
            if not busy:  # a suspect only with nothing else in work
                unit: Unit = [work.suspects.popleft()]
                busy[pool.submit(unit)] = unit
        else:
            while work and len(busy) < _AHEAD * pool.workers:
                unit = work.next_unit(pool.workers)
                busy[pool.submit(unit)] = unit
        for future in pool.first(busy):
            unit = busy.pop(future)
            done = pool.result(future)
            if done is None:
                done = work.lost(unit)
            else:
                work.finished(done)
            if done:
                yield done


# --- in this process ------------------------------------------------------------------------------


def in_process(inputs: Inputs, runs: Sequence[Run]) -> Finished:
    """Yield the runs, done here one after another."""
    work = _Work(runs)
    while work:
        done = _unit_done(work.next_unit(1), inputs)
        work.finished(done)
        yield done


# --- processes of this machine --------------------------------------------------------------------


def _ready() -> None:
    """Do nothing: a worker that does it can work."""


class _Recorded(SpawnContext):
    """Spawns processes, and knows which: nobody else's may be ended."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[BaseProcess] = []

    def Process(self, *args: Any, **options: Any) -> BaseProcess:  # type: ignore[override]  # noqa: N802
        """Return a new process, not started yet."""
        process = SpawnContext.Process(*args, **options)
        self.processes.append(process)
        return process


class _Processes:
    """A pool of spawned processes, made anew when one of them dies; use as a context."""

    def __init__(self, processes: int, blob: bytes) -> None:
        self.workers = processes
        self._blob = blob
        self._executor: ProcessPoolExecutor | None = None
        self._broken = False
        self._context = _Recorded()

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._context = _Recorded()
            self._executor = ProcessPoolExecutor(
                self.workers, self._context, initializer=_start, initargs=(self._blob,)
            )
        return self._executor

    def _renewed(self) -> None:
        """Start again after a death, and make sure that it was not the start that failed."""
        for _ in range(_STARTS):
            self._end()
            try:
                with ctrl_c_held():
                    future = self._started().submit(_ready)
                future.result()
            except BrokenProcessPool:
                continue
            self._broken = False
            return
        raise FleetPlannerError(
            "Worker processes end as soon as they start: out of memory, or a script without "
            "'if __name__ == \"__main__\":'. With --processes 1 there are none."
        )

    def submit(self, unit: Unit) -> Future[list[Done]]:
        """Hand out a unit."""
        if self._broken:
            self._renewed()
        try:
            with ctrl_c_held():  # processes are started here
                return self._started().submit(_local_unit, unit)
        except BrokenProcessPool:  # one died with nothing to do, or a moment ago
            self._renewed()
        with ctrl_c_held():
            return self._started().submit(_local_unit, unit)

    def first(self, busy: Collection[Future[list[Done]]]) -> Collection[Future[list[Done]]]:
        """Wait for the first of these futures."""
        return wait(busy, return_when=FIRST_COMPLETED).done

    def result(self, future: Future[list[Done]]) -> list[Done] | None:
        """Return what a unit gave; ``None``: a worker died, perhaps its own."""
        try:
            return future.result()
        except BrokenProcessPool:
            self._broken = True
            return None

    def _end(self) -> None:
        """End all processes at once, whatever they are doing."""
        if self._executor is None:
            return
        executor, self._executor = self._executor, None
        for process in self._context.processes:
            if process.pid is not None:
                process.kill()
        executor.shutdown(wait=True, cancel_futures=True)  # it takes note of their end


def local_processes(inputs: Inputs, runs: Sequence[Run], processes: int) -> Finished:
    """Yield the runs, done by spawned processes of this machine.

    Raises
    ------
    FleetPlannerError
        When processes cannot be started.
    """
    with _Processes(min(processes, max(1, len(runs))), _packed(inputs)) as pool:
        yield from _driven(pool, _Work(runs))


# --- a Dask cluster -------------------------------------------------------------------------------


def _shared(blob: bytes) -> Inputs:
    """Return what all runs share: a task, so that it is there again after any loss."""
    return _unpacked(blob)


def _cluster_unit(unit: Unit, inputs: Inputs) -> list[Done]:
    """Do the runs of a unit, where the same version of this package is installed."""
    here = version("rl-fleet-planner")
    if here != inputs.version:
        raise FleetPlannerError(f"rl-fleet-planner is {here} there and {inputs.version} here.")
    return _unit_done(unit, inputs)


class _Cluster:
    """Workers of a Dask scheduler; use as a context.

    Parameters
    ----------
    address : str
        Such as ``tcp://host:8786``.
    note : callable
        Told when no worker is left for a while.

    Raises
    ------
    InputError
        When ``distributed`` is not installed, or nobody answers in time.
    """

    def __init__(self, address: str, inputs: Inputs, note: Note) -> None:
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[1]) >= 1 << 16:
            raise InputError(
                f"Expected --scheduler an address such as tcp://host:8786, got '{address}'."
            )
        distributed = optional_module(("distributed",), "--scheduler", "cluster")
        self._address, self._note = address, note
        self._wait, self._killed = distributed.wait, distributed.KilledWorker
        try:
            self._client: Any = distributed.Client(
                address, timeout=_CONNECT_S, set_as_default=False, name="planner-sweep"
            )
        except OSError as error:
            raise InputError(
                f"No Dask scheduler answers at {address} within {_CONNECT_S:g} s: start one with "
                "'dask scheduler', and workers with 'dask worker'."
            ) from error
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
            self.workers = self._counted()
            self._inputs = self._client.submit(_shared, _packed(inputs), pure=False)
        except TimeoutError as error:
            self._client.close()
            raise InputError(
                f"The scheduler at {address} has had no worker for {_CONNECT_S:g} s. Start some: "
                f"dask worker {address}."
            ) from error
        except BaseException:
            self._client.close()
            raise
        self._looked = self._seen = time.monotonic()

    def _counted(self) -> int:
        return len(self._client.nthreads())

    def __enter__(self) -> _Cluster:
        # what its loss means is said in words here; there it is a traceback
        self._log_level = _CLIENT_LOG.level
        _CLIENT_LOG.setLevel(logging.CRITICAL)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        _CLIENT_LOG.setLevel(self._log_level)

    def submit(self, unit: Unit) -> Any:
        """Hand out a unit."""
        return self._client.submit(_cluster_unit, unit, self._inputs, pure=False)

    def first(self, busy: Collection[Any]) -> Collection[Any]:
        """Wait for the first of these futures, and look after scheduler and workers."""
        while True:
            if time.monotonic() >= self._looked + _LOOK_S:
                self._look()
            try:
                with self._client.as_current():
                    return self._wait(  # type: ignore[no-any-return]
                        list(busy), timeout=_LOOK_S, return_when="FIRST_COMPLETED"
                    ).done
            except TimeoutError:
                continue
            except CancelledError as error:
                raise self._lost() from error

    def _look(self) -> None:
        """Count workers; say once when there has been none for a while."""
        try:
            found = self._counted()
        except (OSError, RuntimeError, ValueError, TimeoutError) as error:
            raise self._lost() from error
        now = self._looked = time.monotonic()
        if found:
            self._seen = now
            self.workers = found
        elif now >= self._seen + _LONELY_S:
            self._note(f"The scheduler at {self._address} has no worker: waiting for one.")
            self._seen = float("inf")

    def _lost(self) -> FleetPlannerError:
        return FleetPlannerError(
            f"The scheduler at {self._address} was lost. What was finished is kept: the same "
            "command goes on from there."
        )

    def result(self, future: Any) -> list[Done] | None:
        """Return what a unit gave; ``None``: it lost its workers."""
        if future.status in ("cancelled", "lost"):
            raise self._lost()
        error = future.exception()
        if error is None:
            done: list[Done] = future.result()
            return done
        if isinstance(error, self._killed):
            return None
        raise FleetPlannerError(
            f"Workers of {self._address} cannot do the work: {type(error).__name__}: {error}. "
            "Install the same version of rl-fleet-planner there as here."
        ) from error


def dask_cluster(
    inputs: Inputs, runs: Sequence[Run], address: str, note: Note = lambda _: None
) -> Finished:
    """Yield the runs, done by the workers of a Dask scheduler.

    Raises
    ------
    InputError
        When ``distributed`` is not installed, or nobody answers at the address.
    FleetPlannerError
        When the scheduler is lost, or its workers lack this package.
    """
    with _Cluster(address, inputs, note) as pool:
        yield from _driven(pool, _Work(runs, _MAX_KILLED))
