"""Ctrl-C while a solver runs in C++: ask it to stop, instead of raising inside it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Interrupt"]


class Interrupt:
    """Within this context Ctrl-C asks the solver to stop.

    A handler that only notes the signal and asks: Python runs it in the solver's next callback,
    and the solver returns what it holds. Signals reach the main thread only; elsewhere, or
    where the process ignores SIGINT, nothing is changed.

    Attributes
    ----------
    hit : bool
        Whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.hit = False
        self._ask: Callable[[], object] | None = None
        self._before: Any = None

    def calls(self, ask: Callable[[], object]) -> None:
        """Set what asks the solver to stop; called at once when the signal came before."""
        self._ask = ask
        if self.hit:
            ask()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.hit = True
        if self._ask is not None:
            self._ask()

    def __enter__(self) -> Interrupt:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
