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
    """Return names in as many columns as fit, each as wide as it must be, read downwards."""
    for rows in range(1, len(names) + 1):
        columns = [names[start : start + rows] for start in range(0, len(names), rows)]
        widths = [max(map(len, column)) + _GAP for column in columns]
        if sum(widths) - _GAP <= width or rows == len(names):
            break
    lines = (
        "".join(
            column[row].ljust(wide)
            for column, wide in zip(columns, widths, strict=True)
            if row < len(column)
        )
        for row in range(rows)
    )
    return [f"  {line.rstrip()}" for line in lines]


def listed(width: int, kinds: Iterable[str] = KINDS) -> str:
    """Return the words of some kinds, in columns, and which kinds there are besides."""
    chosen = [kind for kind in KINDS if kind in set(kinds)]
    blocks, rest = [], []
    for kind, words in KINDS.items():
        found = {entry.name for entry in every_entry() if entry.kind == kind}
        names = sorted(found, key=lambda name: (name.lower(), name))
        head = f"{kind} ({len(names)}): {words}"
        if kind in chosen:
            blocks.append("\n".join([head, *_columns(names, width - _GAP)]))
        else:
            rest.append(f"{head}\n  planner explain --kind {kind} lists them.")
    return "\n\n".join([*blocks, *rest])


def explain_document(found: Iterable[Entry]) -> dict[str, Any]:
    """Return the document of ``planner explain --json``."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "command": "explain",
        "entries": [dataclasses.asdict(entry) for entry in found],
    }
