"""Import a large module whole, whatever signal comes meanwhile."""

from __future__ import annotations

import contextlib
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any, Final

__all__ = ["whole_import"]

_HELD: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def whole_import(name: str) -> Any:
    """Return a module; signals that come while it is imported wait until it is.

    An import that Ctrl-C cuts in half leaves parts behind, and a second one of numba fails on
    them, where all that was asked for is to end with what is held.

    Raises
    ------
    ImportError
        When there is no such module.
    """
    if name in sys.modules:  # nothing to cut, and solvers ask at every solve
        return import_module(name)
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    with contextlib.suppress(ValueError):  # not the main thread, which alone hears of signals
        for number in _HELD:
            if signal.getsignal(number) is not None:  # else it was not Python that set it
                before[number] = signal.signal(number, note)
    try:
        return import_module(name)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)
