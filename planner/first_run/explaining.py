"""How entries of the glossary are printed, and listed."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from planner.first_run.entry import KINDS, Entry
from planner.first_run.glossary import every_entry

__all__ = ["explain_document", "listed", "said"]

_SCHEMA_VERSION: Final = 1
_MOST: Final = 100
_GAP: Final = 2


def said(entry: Entry, width: int) -> str:
    """Return one entry in words: name, kind and unit, text, then default, source and place."""
    room = min(width, _MOST)
    head = f"{entry.name} ({entry.kind}{f', {entry.unit}' if entry.unit else ''})"
    lines = [head]
    for label, text in (
        ("", entry.text),
        ("Default: ", entry.default),
        ("Source: ", entry.source),
        ("Where: ", entry.where),
    ):
        if text:
            lines += textwrap.wrap(
                f"{label}{text}",
                room,
                initial_indent="  ",
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def _columns(names: Sequence[str], width: int) -> list[str]:
    """Return names in columns, read downwards."""
    widest = max(map(len, names)) + _GAP
    number = max(1, (width - _GAP + _GAP) // widest)
    rows = -(-len(names) // number)
    return [
        "  " + "".join(name.ljust(widest) for name in names[row::rows]).rstrip()
        for row in range(rows)
    ]


def listed(width: int) -> str:
    """Return every word by kind, in columns."""
    lines = []
    for kind, words in KINDS.items():
        names = sorted({entry.name for entry in every_entry() if entry.kind == kind})
        lines += [f"{kind} ({len(names)}): {words}", *_columns(names, width - _GAP), ""]
    return "\n".join(lines[:-1])


def explain_document(found: Iterable[Entry]) -> dict[str, Any]:
    """Return the document of ``planner explain --json``."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "command": "explain",
        "entries": [dataclasses.asdict(entry) for entry in found],
    }
