"""Lengths of time as people write them: ``90``, ``90s``, ``5m``, ``1.5h``, ``2d``."""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["duration_s"]

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h|d|)", re.ASCII)
_UNIT_S: Final = {
    "ms": 0.001,
    "s": 1.0,
    "": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def duration_s(text: str) -> float | None:
    """Return seconds, or None where the text is no finite length of time."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else math.inf
    return seconds if math.isfinite(seconds) else None
