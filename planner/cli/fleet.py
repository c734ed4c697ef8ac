"""The options of a fixed fleet: how many nodes there are, and who may pass the queue."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from instances.errors import InputError

if TYPE_CHECKING:
    from instances.plan import Fleet

__all__ = ["FleetOption", "Queue", "QueueOption", "fleet_of", "node_counts"]

_COUNTS: Final = re.compile(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", re.ASCII)


class Queue(StrEnum):
    """Who may start while the first in the queue waits."""

    fifo = "fifo"
    backfill = "backfill"


FleetOption = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="R,T",
        help="Own R rollout and T train nodes and rent none: jobs that do not fit wait.",
    ),
]
QueueOption = Annotated[
    Queue | None,
    typer.Option(
        "--queue",
        help="Order of those who wait for the fleet; backfill lets later jobs pass if that never "
        "delays the first. [fifo]",
        show_default=False,
    ),
]


def node_counts(text: str, option: str) -> tuple[int, int]:
    """Return the rollout and train nodes of ``R,T``.

    Raises
    ------
    InputError
        Naming the option, when they are not two whole numbers.
    """
    counts = _COUNTS.fullmatch(text)
    if counts is None:
        raise InputError(
            f"Expected {option} two whole numbers, rollout and train nodes, such as 20,12, got "
            f"'{text}'."
        )
    return int(counts[1]), int(counts[2])


def fleet_of(text: str | None, queue: Queue | None) -> Fleet | None:
    """Return the fleet of ``R,T``, if any.

    Raises
    ------
    InputError
        When it is not two whole numbers, or there is a queue with nothing to wait for.
    """
    from instances.plan import Fleet

    if text is None:
        if queue is not None:
            raise InputError(
                f"--queue {queue.value} needs --fleet: without one nobody waits. Give --fleet R,T."
            )
        return None
    return Fleet(*node_counts(text, "--fleet"))
