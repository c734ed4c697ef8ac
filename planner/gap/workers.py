"""Processes that solve chains of snapshots, and the one that hands them out.

Workers are spawned, ignore Ctrl-C, and are ended by the process that started them, whatever
happens there. Each finished snapshot is sent at once, so little is lost when a run is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final

from instances.errors import FleetPlannerError
from planner.gap.solve import ChainSolver, Link, Replayed
from planner.output.ctrl_c import ctrl_c_held

__all__ = ["cpus", "solved_links"]

#: Seconds a worker may take to end after it was told to.
_ENDING_S: Final = 5.0


def cpus() -> int:
    """Return the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def solved_links(
    replayed: Replayed, chains: Sequence[Sequence[Link]], processes: int
) -> Generator[Link, None, None]:
    """Yield the snapshots of all chains as they are finished, in no order that means anything.

    Parameters
    ----------
    processes : int
        1: in this process.

    Raises
    ------
    FleetPlannerError
        What a worker raised, or that one died.
    """
    if min(processes, len(chains)) <= 1:
        solver = ChainSolver(replayed)
        for chain in chains:
            yield from solver.run(chain)
        return
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(replayed)) for _ in range(min(processes, len(chains)))
        ]
        yield from _handed_out(workers, list(chains))


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    connection: Connection


@contextlib.contextmanager
def _worker(replayed: Replayed) -> Iterator[_Worker]:
    """Start a process, and end it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, replayed), daemon=True)
    try:
        with ctrl_c_held():
            process.start()
        theirs.close()
        yield _Worker(process, ours)
    finally:
        ours.close()
        if process.pid is not None:
            process.terminate()
            process.join(_ENDING_S)
            if process.is_alive():
                process.kill()
                process.join()


def _handed_out(workers: Sequence[_Worker], chains: list[Sequence[Link]]) -> Iterator[Link]:
    """Yield what workers send; give each the next chain when it is done with one."""
    waiting = list(reversed(chains))
    busy = {worker.connection: worker for worker in workers}
    for worker in workers:
        _give(worker, waiting.pop())
    while busy:
        for connection in wait(list(busy)):
            assert isinstance(connection, Connection)
            worker = busy[connection]
            try:
                message = connection.recv()
            except (EOFError, ConnectionResetError):
                raise _died(worker) from None
            if isinstance(message, Link):
                yield message
            elif isinstance(message, Exception):
                raise message
            elif waiting:
                _give(worker, waiting.pop())
            else:
                del busy[connection]


def _give(worker: _Worker, chain: Sequence[Link]) -> None:
    try:
        worker.connection.send(chain)
    except (BrokenPipeError, ConnectionResetError):
        raise _died(worker) from None


def _died(worker: _Worker) -> FleetPlannerError:
    worker.process.join(_ENDING_S)
    return FleetPlannerError(
        f"A worker process ended with code {worker.process.exitcode}: out of memory, or killed. "
        "What was finished is kept with --resume; fewer --processes need less memory."
    )


def _work(connection: Connection, replayed: Replayed) -> None:
    """Solve the chains that come, until nobody is there to send any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        solver = ChainSolver(replayed)
        while True:
            chain = connection.recv()
            try:
                for link in solver.run(chain):
                    connection.send(link)
            except FleetPlannerError as error:
                connection.send(FleetPlannerError(str(error)))
                return
            connection.send(None)
