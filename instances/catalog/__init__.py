"""Traces that ship with the planner, every one written by :mod:`instances.generate`.

:data:`CATALOG` records how each file was made; a test makes them again and compares bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from instances.errors import InputError, did_you_mean

__all__ = ["CATALOG", "CatalogEntry", "catalog_path"]


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """One file of the catalog.

    Attributes
    ----------
    filename : str
        Name of the file in this folder.
    description : str
        One sentence.
    command : str
        The exact command that writes the file.
    generator : str
        Key of :data:`instances.generate.GENERATORS`.
    arguments : mapping of str to object
        Keyword arguments of that generator, equal to the command's options.
    """

    filename: str
    description: str
    command: str
    generator: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def _entry(
    filename: str, generator: str, options: str, description: str, **arguments: Any
) -> tuple[str, CatalogEntry]:
    command = " ".join(f"planner generate {generator} {options} --out {filename}".split())
    return filename.partition(".")[0], CatalogEntry(
        filename=filename,
        description=description,
        command=command,
        generator=generator,
        arguments=MappingProxyType(arguments),
    )


#: Catalog name -> how the file was made.
CATALOG: Final[Mapping[str, CatalogEntry]] = MappingProxyType(
    dict(
        (
            _entry(
                "production-200.csv",
                "production",
                "--seed 0",
                "200 jobs to the marginals of the published production trace, one node of "
                "each kind per job.",
                seed=0,
            ),
            _entry(
                "production-gang.csv",
                "production",
                "--seed 0 --gangs",
                "The jobs of production-200 on 1, 2 or 4 nodes of each kind.",
                seed=0,
                gangs=True,
            ),
            _entry(
                "large-2000.csv.gz",
                "production",
                "--jobs 2000 --seed 0 --concurrent",
                "2,000 jobs that arrive within an hour and are all present at hour 1.",
                n_jobs=2000,
                seed=0,
                concurrent=True,
            ),
            _entry(
                "mixed-300.csv",
                "profiles",
                "--seed 0 --kind mixed",
                "300 jobs to the marginals of the published simulation, synthetic arrivals.",
                seed=0,
                kind="mixed",
            ),
            _entry(
                "tiny-open-shop.csv",
                "tiny-open-shop",
                "",
                "Two jobs that fill one node of each kind without an idle second.",
            ),
            _entry(
                "tiny-sync-gap.csv",
                "tiny-sync-gap",
                "",
                "Three jobs that loads admit on one pair of nodes and sync does not.",
            ),
            _entry(
                "tiny-gang.csv",
                "tiny-gang",
                "",
                "Five gangs that need 34 s where node loads say 31 s.",
            ),
        )
    )
)


def catalog_path(name: str) -> Path:
    """Return the path of a catalog file.

    Parameters
    ----------
    name : str
        Catalog name such as ``production-200``, or the file's full name.

    Raises
    ------
    InputError
        When there is no such entry; the message suggests the nearest name.
    """
    entry = CATALOG.get(name)
    if entry is None:
        entry = next((e for e in CATALOG.values() if e.filename == name), None)
    if entry is None:
        raise InputError(
            f"Unknown catalog trace '{name}'.{did_you_mean(name, CATALOG)} "
            f"Known: {', '.join(CATALOG)}."
        )
    return Path(str(files(__name__).joinpath(entry.filename)))
