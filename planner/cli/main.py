"""Where ``planner`` and ``plan`` start: next to nothing is imported before Ctrl-C is in hand.

The command line takes a few tenths of a second to import and to read. Nothing has been done by
then, so Ctrl-C simply ends the process, without Python's traceback.
"""

import gc
import os
import signal
from types import FrameType

__all__ = ["main", "plan_main"]

_EXIT_INTERRUPTED = 130
#: Objects made between two searches for cycles. A command makes millions and leaves few cycles;
#: Python's 700 cost a sixth of the time of a report.
_BETWEEN_SEARCHES = 50_000


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
    from planner.output.terminal import end_without_stdout

    gc.set_threshold(_BETWEEN_SEARCHES)
    try:
        getattr(app, application)(prog_name=name)  # a command handles Ctrl-C once it has begun
    except OSError as error:  # of --help and --version; commands have ended theirs
        end_without_stdout(error)
    finally:  # the answer is out: Ctrl-C while Python shuts down must not change the exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
