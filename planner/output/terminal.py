"""Words on standard error: progress, notes, warnings, and how errors end a command."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TextIO, TypeVar

from instances.errors import FleetPlannerError, InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "Reporter",
    "end_without_stdout",
    "ending_as_interrupt",
    "fail",
    "guarded",
    "with_options",
]

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
#: Seconds until an ending that Python would lose is asked for again.
_AGAIN_S: Final = 0.02

#: Signals that end a command in order: files are whole or not there.
_ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)

P = ParamSpec("P")
R = TypeVar("R")


class Reporter:
    """Notes, warnings, steps and progress on standard error.

    Parameters
    ----------
    quiet : bool
        Drop notes and progress; warnings stay.
    verbose : bool
        Say which versions are at work, and what each step takes, seconds.
    clock : callable
        Seconds from an arbitrary origin.

    Raises
    ------
    InputError
        When both are asked for.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if quiet and verbose:
            raise InputError("Expected one of --quiet and --verbose, got both.")
        self._quiet, self._verbose = quiet, verbose
        self._clock = clock
        self._held: Console | None = None
        if verbose:
            self.detail(_versions())

    def _console(self) -> Console:
        from rich.console import Console

        if self._held is None:
            self._held = Console(stderr=True, soft_wrap=True, highlight=False)
        return self._held

    def note(self, text: str) -> None:
        """Say something useful, unless quiet."""
        if not self._quiet:
            self._say(text, "dim")

    def warn(self, text: str) -> None:
        """Say something that must not be missed."""
        self._say(f"warning: {text}", "yellow")

    def detail(self, text: str) -> None:
        """Say what only ``--verbose`` asks for."""
        if self._verbose:
            self._say(text, "dim")

    def _say(self, text: str, style: str) -> None:
        with contextlib.suppress(OSError):  # words that cannot be said must not cost the answer
            self._console().print(text, style=style, markup=False)

    @contextlib.contextmanager
    def step(self, label: str) -> Iterator[None]:
        """Show a step that reports no progress of its own, once it has taken a second."""
        with self.progress(label):
            yield

    @contextlib.contextmanager
    def progress(
        self, label: str = "working", *, time_limit_s: float | None = None
    ) -> Iterator[Callable[[str, int, int], None] | None]:
        """Give a callback (label, done, total) that draws bars, on a terminal only.

        One bar for labels that are the same up to a colon; what follows it may change. Until
        the first call the label of the work itself is shown.
        """
        drawn = not self._quiet and _is_terminal(sys.stderr)
        steps = _Steps(label, self.detail, self._clock) if self._verbose else None
        if not drawn:
            with steps or contextlib.nullcontext():
                yield None if steps is None else steps.show
            return
        from planner.output.progress_bars import Bars

        bars = Bars(label, self._console, time_limit_s, self._clock)

        def show(label: str, done: int, total: int) -> None:
            bars.show(label, done, total)
            if steps is not None:
                steps.show(label, done, total)

        try:
            with steps or contextlib.nullcontext():
                yield show
        finally:
            bars.close()


class _Steps:
    """What each step of a piece of work took, said when the work is done.

    The seconds since the call before belong to the task that is told of now, or to the one
    before where a task only begins.
    """

    def __init__(self, label: str, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say, self._clock = say, clock
        self._label = self._task = label
        self._began = self._last = clock()
        self._seconds: dict[str, float] = {}
        self._reached: dict[str, tuple[int, int]] = {}

    def show(self, label: str, done: int, total: int) -> None:
        """Note how far a task is."""
        task = label.partition(":")[0]
        self._pass(task if done else self._task)
        self._task = task
        self._reached[task] = (done, total)

    def _pass(self, task: str) -> None:
        now = self._clock()
        self._seconds[task] = self._seconds.get(task, 0.0) + now - self._last
        self._last = now

    def __enter__(self) -> _Steps:
        return self

    def __exit__(self, *_: object) -> None:
        self._pass(self._label)
        parts = {t: s for t, s in self._seconds.items() if t != self._label}
        self._say(f"{self._last - self._began:8.2f} s  {self._label}")
        for task, seconds in parts.items():
            done, total = self._reached.get(task, (0, 0))
            count = f" ({done:,} of {total:,})" if total else ""
            self._say(f"{seconds:8.2f} s    {task}{count}")


def _versions() -> str:
    """Return what is at work: this package, Python and the solvers."""
    import platform
    from importlib.metadata import version

    names = ("rl-fleet-planner", "highspy", "ortools", "pyomo", "numpy", "pandas")
    found = (f"{name} {version(name)}" for name in names)
    return f"{', '.join(found)}, Python {platform.python_version()}."


def _is_terminal(stream: TextIO) -> bool:
    """Whether a stream can show bars: a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _is_coloured(stream: TextIO) -> bool:
    """Whether a stream takes colours, by the usual variables (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


@contextlib.contextmanager
def ending_as_interrupt() -> Iterator[None]:
    """Within this context SIGTERM and SIGHUP act as Ctrl-C: what is held is printed.

    Whoever handles Ctrl-C at that moment, Python or a solver, is asked to stop.
    """

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    with _handling(dict.fromkeys(_ENDING, interrupt)), _endings_kept():
        yield


@contextlib.contextmanager
def _handling(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Within this context signals have these handlers, where this is the main thread."""
    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread: leave signals alone
        for number, handler in handlers.items():
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _endings_kept() -> Iterator[None]:
    """Within this context no signal that ends a command is lost.

    What a handler raises while Python runs the callback of a weak reference or a finaliser is
    printed and forgotten by Python. Here it is raised again a moment later, where the system has
    timers.
    """
    main = threading.current_thread() is threading.main_thread()  # no other is interrupted
    if not main or not hasattr(signal, "setitimer"):
        yield
        return
    usual = sys.unraisablehook
    lost: list[BaseException] = []

    def kept(fault: Any) -> None:
        if isinstance(fault.exc_value, KeyboardInterrupt | SystemExit):
            lost.append(fault.exc_value)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            usual(fault)

    def again(_signum: int, _frame: FrameType | None) -> None:
        if lost and isinstance(lost[-1], SystemExit):
            raise SystemExit(lost.pop().code)  # type: ignore[attr-defined]
        if lost:
            lost.pop()
            signal.raise_signal(signal.SIGINT)  # a solver may be at work by now

    with _handling({signal.SIGALRM: again}):
        sys.unraisablehook = kept
        try:
            yield
            if lost:
                again(signal.SIGALRM, None)
        finally:
            sys.unraisablehook = usual
            signal.setitimer(signal.ITIMER_REAL, 0)


def fail(text: str, code: int) -> NoReturn:
    """Say what is wrong, and end the command with a code."""
    word = "\x1b[31merror:\x1b[0m" if _is_coloured(sys.stderr) else "error:"
    with contextlib.suppress(OSError):  # a full disk under stderr must not change the exit code
        for line in text.splitlines() or [""]:
            sys.stderr.write(f"{word} {line}\n")
        sys.stderr.flush()
    sys.exit(code)


def end_without_stdout(error: OSError) -> NoReturn:
    """End a command whose standard output is gone: in words, unless its reader left.

    What is still to be printed goes into the void, or Python would fail once more at exit.
    """
    with contextlib.suppress(OSError, ValueError):  # a stream without a file has nothing to divert
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(EXIT_FAILED)
    fail(f"{error.filename or 'standard output'}: {error.strerror}.", EXIT_FAILED)


def with_options(text: str, parameters: Collection[str]) -> str:
    """Return an error that names a command's options, not the parameters behind them.

    A parameter of one plain word is only replaced where a rule on it begins.
    """
    for name in parameters:
        option = "--" + name.replace("_", "-")
        if "_" in name:
            text = re.sub(rf"(?<![\w.'\"-]){name}(?![\w.'\"])", option, text)
        else:
            text = re.sub(rf"\bExpected {name}(?= (?:in|>|>=|<|<=) )", f"Expected {option}", text)
    if "durations" in parameters:
        text = text.replace("Expected convention in", "Expected --durations in")
    return text


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: our errors become one line and an exit code, signals clean up.

    Exit codes: 1 infeasible or check failed, 2 bad input or usage, 130 Ctrl-C, 143 SIGTERM.
    """
    parameters = frozenset(inspect.signature(command).parameters)

    def terminate(signum: int, frame: FrameType | None) -> None:
        sys.exit(128 + signum)

    def heard(*args: P.args, **kwargs: P.kwargs) -> R:
        # a closed stream is a silent one: words that nobody hears must not cost the answer
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        try:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")
            with _endings_kept():
                result = command(*args, **kwargs)
                sys.stdout.flush()
            return result
        except InputError as error:
            fail(with_options(str(error), parameters), EXIT_BAD_INPUT)
        except FleetPlannerError as error:
            fail(with_options(str(error), parameters), EXIT_FAILED)
        except KeyboardInterrupt:
            fail("Interrupted. Files are written whole or not at all.", EXIT_INTERRUPTED)
        except MemoryError:
            fail("Not enough memory for this input.", EXIT_FAILED)
        except OSError as error:
            end_without_stdout(error)

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        handlers: dict[int, Any] = dict.fromkeys(_ENDING, terminate)
        if callable(signal.getsignal(signal.SIGINT)):  # else it is ignored, and stays so
            handlers[signal.SIGINT] = signal.default_int_handler
        with _handling(handlers):
            return heard(*args, **kwargs)

    return run
