"""The exact methods by name; each is imported when it is used."""

from __future__ import annotations

from typing import Final, Protocol, cast

from instances.errors import InputError, did_you_mean
from models.group.known_groups import KnownGroups
from models.problem.options import SolveOptions
from models.problem.result import Result
from models.problem.snapshot import Snapshot
from models.problem.whole_import import whole_import

__all__ = ["METHODS", "require_method", "solve"]

#: Name of a method, and the module whose ``solve`` it is.
METHODS: Final[dict[str, str]] = {
    "exhaustive": "models.exact.exhaustive",
    "milp": "models.exact.milp",
    "cpsat": "models.exact.cpsat",
    "set-partition": "models.exact.set_partition",
}


class _Solve(Protocol):
    def __call__(
        self, snapshot: Snapshot, options: SolveOptions, *known: KnownGroups
    ) -> Result: ...


def require_method(name: str) -> None:
    """Raise InputError unless there is such a method."""
    if name not in METHODS:
        raise InputError(
            f"Expected method in {', '.join(METHODS)}, got '{name}'.{did_you_mean(name, METHODS)}"
        )


def solve(
    method: str, snapshot: Snapshot, options: SolveOptions, known: KnownGroups | None = None
) -> Result:
    """Solve a snapshot by one method.

    Parameters
    ----------
    method : str
    snapshot : Snapshot
    options : SolveOptions
    known : KnownGroups, optional
        Of ``set-partition`` alone: verdicts on groups, in other snapshots with these jobs too.

    Raises
    ------
    InputError
        For an unknown method, or a warm start that is not a valid plan of the snapshot.
    UnsupportedError
        When the snapshot is beyond what the method takes.
    """
    require_method(method)
    function = cast(_Solve, whole_import(METHODS[method]).solve)
    return function(snapshot, options, *(() if known is None else (known,)))
