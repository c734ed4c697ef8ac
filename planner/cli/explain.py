"""``planner explain``: what a column, key, rule, method, policy or word means."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from instances.errors import InputError
from planner.cli.options import JsonOption, print_json, stdout_console
from planner.output.terminal import guarded

__all__ = ["explain"]


@guarded
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="A column, key, rule, method, policy or word."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a word means: unit, default, source, and where it shows.

    Case, dashes and underscores do not matter. Without a word all are listed, by kind.
    """
    from planner.first_run.explaining import explain_document, listed, said
    from planner.first_run.glossary import every_entry, find

    asked = words or []
    found, faults = [], []
    for word in dict.fromkeys(asked):
        try:
            found += find(word)
        except InputError as error:
            faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    if as_json:
        print_json(explain_document(found if asked else every_entry()))
        return
    width = stdout_console().width
    blocks = [said(entry, width) for entry in found] if asked else [listed(width)]
    sys.stdout.write("\n\n".join(blocks) + "\n")
