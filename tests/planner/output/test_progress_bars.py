"""Bars: nothing for quick work, something for all that is slow, and a clean screen after it."""

from __future__ import annotations

import io
import re
import threading

import pytest
from rich.console import Console

from planner.output import progress_bars
from planner.output.progress_bars import Bars, span_words

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Screen:
    """A terminal in memory, and whether bars have come to it."""

    def __init__(self, width: int) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, force_terminal=True, width=width)
        self.came = threading.Event()

    def __call__(self) -> Console:
        self.came.set()
        return self.console

    @property
    def lines(self) -> list[str]:
        """What was ever drawn, without control sequences."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.file.getvalue())
        return [line.rstrip() for line in text.replace("\r", "\n").split("\n") if line.strip()]


def appeared(bars: Bars, screen: Screen) -> None:
    assert screen.came.wait(20)
    with bars._lock:  # until the bars are drawn
        pass


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bars, "QUIET_FOR_S", 0.0)


def test_quick_work_shows_nothing() -> None:
    screen = Screen(80)
    bars = Bars("read", screen)
    bars.show("replay", 1, 2)
    bars.close()
    assert screen.file.getvalue() == ""
    assert not screen.came.is_set()


def test_a_step_without_progress_is_shown_and_cleared(at_once: None) -> None:
    screen = Screen(80)
    bars = Bars("read big.csv", screen)
    appeared(bars, screen)
    bars.close()
    out = screen.file.getvalue()
    assert any(line.startswith("read big.csv") for line in screen.lines)
    assert out.count(HIDE_CURSOR) == out.count(SHOW_CURSOR) == 1
    assert out.rindex(SHOW_CURSOR) > out.rindex("read big.csv")
    assert out.endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize("width", [80, 160])
def test_labels_give_way_and_figures_stay(width: int, at_once: None) -> None:
    screen = Screen(width)
    bars = Bars("working", screen)
    appeared(bars, screen)
    bars.show("a task: " + "with a very long story " * 9, 1_234, 20_000)
    bars.show("share", 44, 100)
    bars.close()
    assert max(map(len, screen.lines)) <= width
    assert any("1,234/20,000" in line and "…" in line for line in screen.lines)
    assert any("44%" in line for line in screen.lines)
    assert not any(line.startswith("working") for line in screen.lines[-2:])


def test_progress_made_before_bars_come_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bars, "QUIET_FOR_S", 0.2)
    screen = Screen(80)
    bars = Bars("working", screen)
    bars.show("replay", 7, 9)
    appeared(bars, screen)
    bars.close()
    assert any("replay" in line and "7/9" in line for line in screen.lines)


def test_time_is_of_the_limit(at_once: None) -> None:
    """42 s have gone when the bars come, of 2 minutes."""
    times = iter([0.0])
    screen = Screen(80)
    bars = Bars("search", screen, 120.0, lambda: next(times, 42.0))
    appeared(bars, screen)
    bars.close()
    assert any("42s of 2m00s" in line for line in screen.lines)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0s"), (0.4, "0s"), (59.6, "1m00s"), (125, "2m05s"), (3599, "59m59s"), (4830, "1h20m")],
)
def test_spans(seconds: float, words: str) -> None:
    assert span_words(seconds) == words
