"""Reports made of parts: which were asked for, and how a command ends that made some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from instances.errors import InputError, did_you_mean
from planner.output.terminal import EXIT_FAILED, EXIT_INTERRUPTED, Reporter

__all__ = ["end_by_parts", "parts_in_order"]


def parts_in_order(
    names: Sequence[str], known: Sequence[str], called: tuple[str, str] = ("part", "parts")
) -> tuple[str, ...]:
    """Return parts in their own order; ``called`` says what one and several of them are.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    for name in names:
        if name not in known:
            raise InputError(
                f"Unknown {called[0]} '{name}'.{did_you_mean(name, known)} Known {called[1]}: "
                f"{', '.join(known)}."
            )
    return tuple(name for name in known if name in names)


def end_by_parts(failed: Mapping[str, str], interrupted: str | None, reporter: Reporter) -> None:
    """Say what has no answer, and end with the exit code that says so.

    Parameters
    ----------
    failed : mapping of str to str
        Parts without an answer, in words.
    interrupted : str or None
        The part that Ctrl-C ended.
    """
    for part, why in failed.items():
        reporter.warn(f"{part}: {why}")
    if interrupted is not None:
        reporter.warn(f"interrupted in part {interrupted}: the rest is missing.")
        raise typer.Exit(EXIT_INTERRUPTED)
    if failed:
        raise typer.Exit(EXIT_FAILED)
