"""Whether Ctrl-C was pressed, whoever handled it; and how to start what never sees it.

A solver that is asked to stop while it is finishing may end with a proof all the same, and says
so: the right answer where nothing follows, but where it is one solve of many the rest would go
on as if nothing had happened. Python notes every signal before any handler runs
(:func:`signal.set_wakeup_fd`); that is what is read here.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Final

__all__ = ["CtrlC", "ctrl_c_held"]

_CHUNK: Final = 4096


class CtrlC:
    """Within this context Ctrl-C is noted; what it does is not changed.

    Signals reach the main thread only; elsewhere, or where the process ignores SIGINT, nothing
    is noted.
    """

    def __init__(self) -> None:
        self._pressed = False
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._before = -1

    @property
    def pressed(self) -> bool:
        """Whether it was pressed since the context began."""
        if self._pair is not None and not self._pressed:
            with suppress(BlockingIOError):  # nothing came
                self._pressed = signal.SIGINT in self._pair[0].recv(_CHUNK)
        return self._pressed

    def check(self) -> None:
        """Raise KeyboardInterrupt when it was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    def __enter__(self) -> CtrlC:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
            pair = socket.socketpair()
            for end in pair:
                end.setblocking(False)
            self._before = signal.set_wakeup_fd(pair[1].fileno(), warn_on_full_buffer=False)
            self._pair = pair
        return self

    def __exit__(self, *_: object) -> None:
        if self._pair is not None:
            self._pressed = self.pressed  # the last word, before its ends are closed
            signal.set_wakeup_fd(self._before)
            pair, self._pair = self._pair, None
            for end in pair:
                end.close()


@contextmanager
def ctrl_c_held() -> Iterator[None]:
    """Hold back Ctrl-C, where the system can: what is started meanwhile never sees it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python starts it with the first process, and lets Ctrl-C through again when it has
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
