"""Where ``planner`` and ``plan`` start: next to nothing is imported before Ctrl-C is in hand.

The command line takes a few tenths of a second to import. Nothing has been done by then, so
Ctrl-C simply ends the process, without Python's traceback.
"""

import os
import signal
from types import FrameType

__all__ = ["main", "plan_main"]

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Run ``planner``."""
    _run("app", "planner")


def plan_main() -> None:
    """Run ``plan``, the same as ``planner plan``."""
    _run("plan_app", "plan")


def _end(_signum: int, _frame: FrameType | None) -> None:
    os.write(2, b"error: Interrupted.\n")
    os._exit(_EXIT_INTERRUPTED)


def _run(application: str, name: str) -> None:
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else: ignored
    if usual:
        signal.signal(signal.SIGINT, _end)
    from planner.cli import app

    try:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        getattr(app, application)(prog_name=name)
    except KeyboardInterrupt:  # before the command itself has begun
        _end(signal.SIGINT, None)
    finally:  # the answer is out: Ctrl-C while Python shuts down must not change the exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
