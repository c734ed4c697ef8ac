"""Signals at the terminal: none is lost."""

from __future__ import annotations

import signal
import sys
import time
import weakref
from collections.abc import Iterator

import pytest

from instances.errors import InputError
from planner.output.terminal import Reporter, ending_as_interrupt, guarded, with_options


class Watched:
    """Something that a weak reference may watch."""


def lose(number: signal.Signals) -> None:
    """Send a signal within the callback of a weak reference: what a handler raises is lost."""
    watched = [Watched()]

    def callback(_: object) -> None:
        signal.raise_signal(number)
        for _i in range(1000):  # the handler runs between two of these
            pass

    watching = weakref.ref(watched[0], callback)
    watched.clear()
    assert watching() is None  # the callback has run


@pytest.fixture
def usual_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


NEEDS_TIMERS = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals")


@NEEDS_TIMERS
@pytest.mark.usefixtures("usual_ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_python_would_lose_is_given_again(number: signal.Signals) -> None:
    def struck() -> None:
        with ending_as_interrupt():
            lose(number)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        struck()


@NEEDS_TIMERS
@pytest.mark.usefixtures("usual_ctrl_c")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("seconds", [5, 0], ids=["at work", "just done"])
def test_a_command_ends_though_its_signal_was_lost(
    number: signal.Signals, code: int, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        lose(number)
        time.sleep(seconds)

    alarm, hook = signal.getsignal(signal.SIGALRM), sys.unraisablehook
    with pytest.raises(SystemExit) as ended:
        guarded(work)()
    assert ended.value.code == code
    assert "Traceback" not in capsys.readouterr().err
    assert signal.getsignal(signal.SIGALRM) is alarm
    assert sys.unraisablehook is hook
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.usefixtures("usual_ctrl_c")
def test_other_faults_that_python_forgets_are_reported_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = []
    monkeypatch.setattr(sys, "unraisablehook", lambda fault: faults.append(fault.exc_value))

    def work() -> None:
        watched = [Watched()]
        watching = weakref.ref(watched[0], lambda _: 1 / 0)
        watched.clear()
        assert watching() is None

    guarded(work)()
    assert [type(fault) for fault in faults] == [ZeroDivisionError]


# --- verbose, quiet and option names --------------------------------------------------------------


def test_verbose_says_what_took_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    """The seconds up to a call are of its task, unless it only begins: 1 + 2, then 4 and 8."""
    times = iter([0.0, 1.0, 3.0, 7.0, 15.0])
    reporter = Reporter(verbose=True, clock=lambda: next(times))
    with reporter.progress("gap") as progress:
        assert progress is not None
        progress("replay", 1, 2)
        progress("replay: of jobs", 2, 2)
        progress("snapshots", 0, 1_000)
    err = capsys.readouterr().err.splitlines()
    assert "ortools" in err[0]
    assert "highspy" in err[0]
    assert err[1:] == ["   15.00 s  gap", "    7.00 s    replay (2 of 2)"]


def test_quiet_and_usual_say_nothing_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        reporter = Reporter(quiet=quiet)
        with reporter.progress("gap") as progress:
            assert progress is None  # no terminal
        with reporter.step("read"):
            reporter.detail("only with --verbose")
    assert capsys.readouterr() == ("", "")


def test_quiet_and_verbose_are_one_too_many() -> None:
    with pytest.raises(InputError, match="one of --quiet and --verbose"):
        Reporter(quiet=True, verbose=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Expected max_rate >= 1, got 0.", "Expected --max-rate >= 1, got 0."),
        ("raise max_rate (max_rate)", "raise --max-rate (--max-rate)"),
        ("Expected policy in weave, got 'x'.", "Expected --policy in weave, got 'x'."),
        ("Expected policy repack with --freeze.", "Expected policy repack with --freeze."),
        ("the policy in use", "the policy in use"),
        ("Unknown key '[axes] max_rate'.", "Unknown key '[axes] max_rate'."),
        ("max_rate_s and s_max_rate", "max_rate_s and s_max_rate"),
        ("--max-rate", "--max-rate"),
    ],
)
def test_errors_name_options_not_parameters(text: str, said: str) -> None:
    assert with_options(text, {"max_rate", "policy"}) == said
