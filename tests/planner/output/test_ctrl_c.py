"""Ctrl-C is noted whoever handles it, and what it does is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from models.backends.interrupt import Interrupt
from planner.output.ctrl_c import CtrlC, ctrl_c_held


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_noted_where_a_solver_takes_it() -> None:
    with CtrlC() as ctrl_c:
        ctrl_c.check()
        with Interrupt() as solver:
            press()
        assert solver.hit
        assert ctrl_c.pressed
        assert ctrl_c.pressed  # it stays so
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.check()
    assert ctrl_c.pressed


def test_it_still_interrupts() -> None:
    with CtrlC() as ctrl_c, pytest.raises(KeyboardInterrupt):
        press()
    assert ctrl_c.pressed


def test_other_signals_are_not_ctrl_c() -> None:
    with CtrlC() as ctrl_c:
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
        assert not ctrl_c.pressed
        with Interrupt():
            press()
        assert ctrl_c.pressed


def test_one_within_another_leaves_all_as_it_was() -> None:
    first = signal.set_wakeup_fd(-1)
    with CtrlC() as outer:
        with CtrlC() as inner, Interrupt():
            press()
        assert inner.pressed
        assert not outer.pressed  # whoever asked the inner one tells
        with Interrupt():
            press()
        assert outer.pressed
    assert signal.set_wakeup_fd(first) == -1


def test_other_threads_note_nothing() -> None:
    seen: list[bool] = []

    def run() -> None:
        with CtrlC() as ctrl_c:
            seen.append(ctrl_c.pressed)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="cannot be held back here")
def test_held_back_it_comes_once_all_is_started() -> None:
    done = []

    def start() -> None:
        with ctrl_c_held():
            press()
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals")
def test_ctrl_c_stays_held_while_python_starts_its_own_helper() -> None:
    """With the first process Python starts a tracker of resources, and unblocks SIGINT."""
    code = (
        "import signal\n"
        "from multiprocessing import resource_tracker\n"
        "from planner.output.ctrl_c import ctrl_c_held\n"
        "with ctrl_c_held():\n"
        "    resource_tracker.ensure_running()\n"
        "    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        "print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
