"""``planner explain``: what a column, key, rule, method, policy or word means."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from instances.errors import InputError, did_you_mean
from planner.cli import completion
from planner.cli.options import JsonOption, print_json, split_names, stdout_console
from planner.first_run.entry import KINDS
from planner.output.terminal import guarded

__all__ = ["explain"]

#: The kind that has more words than all others, listed when asked for.
_LONG: Final = "output"


@guarded
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            help="A column, key, rule, method, policy or word.",
            autocompletion=completion.explained_words,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="A,B",
            help=f"List the words of these kinds: {', '.join(KINDS)}.",
            autocompletion=completion.listed(completion.explained_kinds),
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List the words of every kind.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a word means: unit, default, source, and where it shows.

    Case, dashes and underscores do not matter. Without a word all but those of outputs are
    listed, by kind.
    """
    from planner.first_run.explaining import explain_document, listed, said
    from planner.first_run.glossary import every_entry, find

    asked = words or []
    kinds = _kinds(kind, everything)
    if asked and kinds is not None:
        raise InputError("Expected words, or --kind or --all to list them, got both.")
    found, faults = [], []
    for word in dict.fromkeys(asked):
        try:
            found += find(word)
        except InputError as error:
            faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    if as_json:
        chosen = tuple(KINDS) if kinds is None else kinds
        print_json(
            explain_document(found if asked else [e for e in every_entry() if e.kind in chosen])
        )
        return
    width = stdout_console().width
    usual = [name for name in KINDS if name != _LONG]
    blocks = [said(entry, width) for entry in found] or [listed(width, kinds or usual)]
    sys.stdout.write("\n\n".join(blocks) + "\n")


def _kinds(text: str | None, everything: bool) -> list[str] | None:
    """Return the kinds asked for, singular or plural; None: none was asked for."""
    if everything:
        return list(KINDS)
    if text is None:
        return None
    by_name = {name: kind for kind in KINDS for name in (kind, f"{kind}s")}
    by_name |= {"columns": "input", "keys": "setting", "policies": "policy", "words": "term"}
    names = [name.lower() for name in split_names(text)]
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        got = unknown[0] if unknown else text
        raise InputError(
            f"Expected --kind in {', '.join(KINDS)}, got '{got}'.{did_you_mean(got, by_name)}"
        )
    return [by_name[name] for name in names]
