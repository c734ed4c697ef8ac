"""Bars on a terminal: what is being done, how far it is, and how long it may still take.

Whatever takes longer than a second is seen: a step that reports no progress shows how long it
has been going. Bars clear away when the work is done, and the cursor comes back with them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task, TaskID

__all__ = ["Bars", "span_words"]

#: Progress is shown only for work that takes longer than this, seconds.
QUIET_FOR_S: Final = 1.0
#: Columns of a terminal from which bars are long.
_WIDE: Final = 120
#: Columns that counts and times take, with the spaces between.
_FIGURES: Final = 30


def span_words(seconds: float) -> str:
    """Return a length of time in a few characters: ``8s``, ``2m05s``, ``1h20m``."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Bars:
    """Bars of one piece of work, shown once it has taken a second.

    Parameters
    ----------
    label : str
        Shown until there is something better to show.
    console : callable
        Returns the console; called when bars appear.
    time_limit_s : float, optional
        Of the work, seconds: the time left is shown, at most.
    clock : callable
        Seconds from an arbitrary origin.
    """

    def __init__(
        self,
        label: str,
        console: Callable[[], Console],
        time_limit_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._console, self._clock = label, console, clock
        self._limit_s, self._began = time_limit_s, clock()
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._closed = False
        self._known: dict[str, tuple[str, int, int]] = {}
        self._tasks: dict[str, TaskID] = {}
        self._timer = threading.Timer(QUIET_FOR_S, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def show(self, label: str, done: int, total: int) -> None:
        """Say how far a task is; labels that are the same up to a colon are one task."""
        task = label.partition(":")[0]
        with self._lock:
            self._known[task] = (label, done, total)
            if self._bar is not None and not self._closed:
                self._draw(self._bar, task)

    def close(self) -> None:
        """Clear the bars away."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

    def _draw(self, bar: Progress, task: str) -> None:
        label, done, total = self._known[task]
        if task not in self._tasks:
            if "" in self._tasks:
                bar.remove_task(self._tasks.pop(""))
            self._tasks[task] = bar.add_task(label, total=total)
        bar.update(self._tasks[task], description=label, completed=done, total=total)

    def _appear(self) -> None:
        """Draw what is known so far; called by the timer, on its own thread."""
        with self._lock:
            if self._closed:
                return
            self._bar = bar = self._made(self._console())
            if self._known:
                for task in self._known:
                    self._draw(bar, task)
            else:
                self._tasks[""] = bar.add_task(self._label, total=None)
            bar.start()

    def _made(self, console: Console) -> Progress:
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
        from rich.table import Column
        from rich.text import Text

        words = self._times
        bar_width = 40 if console.width >= _WIDE else 8

        class Count(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(_count(task.completed, task.total), no_wrap=True)

        class Times(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(words(task), no_wrap=True)

        return Progress(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(
                    no_wrap=True,
                    overflow="ellipsis",
                    max_width=max(console.width - bar_width - _FIGURES, 10),
                ),
            ),
            BarColumn(bar_width=bar_width),
            Count(table_column=Column(no_wrap=True)),
            Times(table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
        )

    def _times(self, task: Task) -> str:
        """Return how long a task has been going, and how long it may still take."""
        if self._limit_s is not None and not task.finished:
            return f"{span_words(self._clock() - self._began)} of {span_words(self._limit_s)}"
        if task.total is None:
            return span_words(self._clock() - self._began)
        words = span_words((task.finished_time if task.finished else task.elapsed) or 0.0)
        if task.finished or task.time_remaining is None:
            return words
        return f"{words}, {span_words(task.time_remaining)} left"


def _count(done: float, total: float | None) -> str:
    """Return how much is done: in percent where the total is 100, else the two numbers."""
    if total is None:
        return ""
    return f"{done:.0f}%" if total == 100 else f"{done:,.0f}/{total:,.0f}"
