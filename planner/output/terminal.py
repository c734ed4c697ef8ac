"""Words on standard error: progress, notes, warnings, and how errors end a command."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar

from instances.errors import FleetPlannerError, InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "Reporter",
    "ending_as_interrupt",
    "guarded",
]

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
#: Progress is shown only for work that takes longer than this, seconds.
_QUIET_FOR_S = 1.0
#: Seconds until a signal that Python would lose is given again.
_AGAIN_S: Final = 0.02

#: Signals that end a command in order: files are whole or not there.
_ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)

P = ParamSpec("P")
R = TypeVar("R")


class Reporter:
    """Notes, warnings and progress on standard error.

    Parameters
    ----------
    quiet : bool
        Drop notes and progress; warnings stay.
    clock : callable
        Seconds from an arbitrary origin.
    """

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock

    @staticmethod
    def _console() -> Console:
        from rich.console import Console

        return Console(stderr=True, soft_wrap=True, highlight=False)

    def note(self, text: str) -> None:
        """Say something useful, unless quiet."""
        if not self._quiet:
            self._say(text, "dim")

    def warn(self, text: str) -> None:
        """Say something that must not be missed."""
        self._say(f"warning: {text}", "yellow")

    def _say(self, text: str, style: str) -> None:
        with contextlib.suppress(OSError):  # words that cannot be said must not cost the answer
            self._console().print(text, style=style, markup=False)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Callable[[str, int, int], None] | None]:
        """Give a callback (label, done, total) that draws bars, on a terminal only.

        One bar for labels that are the same up to a colon; what follows it may change.
        """
        if self._quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console(),
            transient=True,
        )
        began, tasks, shown = self._clock(), {}, False

        def show(label: str, done: int, total: int) -> None:
            nonlocal shown
            if not shown:
                if self._clock() - began < _QUIET_FOR_S:
                    return
                bar.start()
                shown = True
            task = label.partition(":")[0]
            if task not in tasks:
                tasks[task] = bar.add_task(label, total=total)
            bar.update(tasks[task], description=label, completed=done, total=total)

        try:
            yield show
        finally:
            if shown:
                bar.stop()


@contextlib.contextmanager
def ending_as_interrupt() -> Iterator[None]:
    """Within this context SIGTERM and SIGHUP act as Ctrl-C: what is held is printed.

    Whoever handles Ctrl-C at that moment, Python or a solver, is asked to stop. A signal that
    comes where Python would lose an exception is given again a moment later.
    """

    def interrupt(_signum: int, frame: FrameType | None) -> None:
        if _is_lost(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            signal.raise_signal(signal.SIGINT)

    def ctrl_c(signum: int, frame: FrameType | None) -> None:
        if _is_lost(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            signal.default_int_handler(signum, frame)

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread: leave signals alone
        before = {n: signal.signal(n, interrupt) for n in _ENDING}
        if hasattr(signal, "SIGALRM"):
            before[signal.SIGALRM] = signal.signal(signal.SIGALRM, interrupt)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                before[signal.SIGINT] = signal.signal(signal.SIGINT, ctrl_c)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_lost(frame: FrameType | None) -> bool:
    """Whether an exception raised in this frame would be printed and forgotten.

    The callback that Python's import system has for each module's lock is such a place.
    """
    code = None if frame is None else frame.f_code
    return (
        code is not None
        and code.co_name == "cb"
        and code.co_filename == "<frozen importlib._bootstrap>"
        and hasattr(signal, "setitimer")
    )


def _fail(text: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # a full disk under stderr must not change the exit code
        for line in text.splitlines() or [""]:
            sys.stderr.write(f"error: {line}\n")
        sys.stderr.flush()
    sys.exit(code)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: our errors become one line and an exit code, signals clean up.

    Exit codes: 1 infeasible or check failed, 2 bad input or usage, 130 Ctrl-C, 143 SIGTERM.
    """

    def terminate(signum: int, frame: FrameType | None) -> None:
        sys.exit(128 + signum)

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        before: dict[int, Any] = {}
        with contextlib.suppress(ValueError):  # not the main thread: leave signals alone
            before = {n: signal.signal(n, terminate) for n in _ENDING}
        # a closed stream is a silent one: words that nobody hears must not cost the answer
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        try:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except InputError as error:
            _fail(str(error), EXIT_BAD_INPUT)
        except FleetPlannerError as error:
            _fail(str(error), EXIT_FAILED)
        except KeyboardInterrupt:
            _fail("Interrupted. Files are written whole or not at all.", EXIT_INTERRUPTED)
        except MemoryError:
            _fail("Not enough memory for this input.", EXIT_FAILED)
        except OSError as error:
            # standard output is gone: quietly when its reader left (plan | head), else in words;
            # into the void with the rest, or Python would fail once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                sys.exit(EXIT_FAILED)
            _fail(f"{error.filename or 'standard output'}: {error.strerror}.", EXIT_FAILED)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    return run
