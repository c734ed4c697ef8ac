"""Signals at the terminal: none is lost."""

from __future__ import annotations

import signal
import time
import weakref
from typing import Any

import pytest

from planner.output.terminal import ending_as_interrupt


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_python_would_lose_is_given_again(number: signal.Signals) -> None:
    """In the import system's callback exceptions are printed and forgotten, signals with them."""
    scope: dict[str, Any] = {"signal": signal, "number": number}
    source = (
        "def cb(_):\n    signal.raise_signal(number)\n    for _ in range(1000):\n        pass\n"
    )
    exec(compile(source, "<frozen importlib._bootstrap>", "exec"), scope)

    class Watched:
        pass

    watched = [Watched()]
    watching = weakref.ref(watched[0], scope["cb"])

    def struck() -> None:
        with ending_as_interrupt():
            watched.clear()
            assert watching() is None  # the callback has run, and nothing was lost in it
            time.sleep(5)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            struck()
    finally:
        signal.signal(signal.SIGINT, before)
