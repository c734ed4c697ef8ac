"""Signals at the terminal: none is lost."""

from __future__ import annotations

import signal
import time
import weakref
from typing import Any

import pytest

from instances.errors import InputError
from planner.output.terminal import Reporter, ending_as_interrupt, with_options


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
