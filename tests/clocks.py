"""Clocks for tests: what time it is depends on how often it was asked."""

from __future__ import annotations


class Ticking:
    """A clock that says 0, 1, 2, ..."""

    def __init__(self) -> None:
        self.now = -1.0

    def __call__(self) -> float:
        self.now += 1
        return self.now
