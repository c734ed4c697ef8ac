"""The errors a person can meet, one base and few leaves.

The command line maps :class:`InputError` to exit code 2 and every other
:class:`FleetPlannerError` to exit code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckError",
    "FleetPlannerError",
    "InfeasibleError",
    "InputError",
    "UnsupportedError",
    "did_you_mean",
]


class FleetPlannerError(Exception):
    """Base of every error this project raises on purpose."""


class InputError(FleetPlannerError):
    """Input that breaks a stated rule; the message names place, value and rule."""


class UnsupportedError(InputError):
    """Input that is valid but that the chosen method refuses by name."""


class InfeasibleError(FleetPlannerError):
    """No valid plan exists under the given limits."""


class CheckError(FleetPlannerError):
    """A plan that promised to be valid failed the independent checker."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known word, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{found[0]}'?" if found else ""
