"""A trace before any rule: its cells, and the faults that rules find in them.

:mod:`instances.trace_io` makes a :class:`RawTable` from a file of any format,
:mod:`instances.trace_rules` checks it. Column names and their kinds live here too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, OPTIONAL_FIELDS

__all__ = [
    "ESTIMABLE",
    "KNOWN_COLUMNS",
    "MAX_SHOWN",
    "NUMBER_COLUMNS",
    "TEXT_COLUMNS",
    "Column",
    "Fault",
    "FaultLog",
    "RawTable",
    "TraceError",
    "log_empty_rows",
    "plain",
    "short",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_SHOWN: Final = 20
#: The columns that are estimated from ``model_b`` where a trace leaves them out.
ESTIMABLE: Final = (
    "rollout_state_gb",
    "train_state_gb",
    "rollout_switch_s",
    "train_switch_s",
)
TEXT_COLUMNS: Final = ("job_id", "mode")
NUMBER_COLUMNS: Final = (*FLOAT_FIELDS, "iterations", *INT_FIELDS, *OPTIONAL_FIELDS)
KNOWN_COLUMNS: Final = (*TEXT_COLUMNS, *NUMBER_COLUMNS)

_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_NOT_FINITE = re.compile(r"[ \t]*[+-]?(?:inf|infinity|nan)[ \t]*", re.IGNORECASE)
_UNUSUAL = re.compile(r"[^0-9eE+\-. \t\x00]")


#: Names that one sentence gives.
_MOST_NAMED: Final = 3


def plain(value: float) -> str:
    """Return the shortest text that reads back as ``value``, without a trailing ``.0``."""
    return repr(value).removesuffix(".0")


def short(text: str) -> str:
    """Return the text quoted, cut after 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One place where a trace breaks a rule.

    Attributes
    ----------
    row : int or None
        Line of the file that an editor shows (CSV with its header, JSON Lines), or the
        1-based row (Parquet, data frames); None for a fault of the whole file.
    column : str
        Column name, empty where a rule is about a whole row or file.
    value : str
        The cell as it stands in the file.
    rule : str
        What was expected. A rule that ends with a full stop is a sentence of its own.
    job_id : str or None
        The job of that row, where it has an id.
    got : str
        What to print in place of the quoted value, where that says more.
    hint : str
        A sentence after the fault, such as the nearest known name.
    place : str
        ``line`` or ``row``: what ``row`` counts.
    """

    row: int | None
    column: str
    value: str
    rule: str
    job_id: str | None = None
    got: str = ""
    hint: str = ""
    place: str = "line"

    def __str__(self) -> str:
        """Return the fault as one line in the project's voice."""
        if self.rule.endswith("."):
            return f"{self.rule}{self.hint}"
        got = self.got or (short(self.value) if self.value else "an empty cell")
        where = []
        if self.job_id:
            where.append(f"job {short(self.job_id)}")
        if self.row is not None:
            where.append(f"{self.place} {self.row}")
        if self.column:
            where.append(f"column {self.column}")
        at = f" ({', '.join(where)})" if where else ""
        return f"Expected {self.rule}, got {got}{at}.{self.hint}"


class TraceError(InputError):
    """A trace that breaks rules; ``faults`` holds the first 20 of ``total``.

    Attributes
    ----------
    source : str
        File the trace was read from.
    faults : tuple of Fault
        The first ones, in order of rows.
    total : int
        How many there are.
    """

    def __init__(self, source: str, faults: Sequence[Fault], total: int) -> None:
        self.source = source
        self.faults = tuple(faults[:MAX_SHOWN])
        self.total = total
        count = "1 fault" if total == 1 else f"{total} faults"
        shown = f", the first {len(self.faults)}" if total > len(self.faults) else ""
        super().__init__("\n".join([f"{source}: {count}{shown}:", *map(str, self.faults)]))


class FaultLog:
    """Counts every fault and keeps the first ones by row, then column."""

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[tuple[int, int, Fault]] = []

    def add(self, fault: Fault, column_index: int = -1, count: int = 1) -> None:
        """Keep ``fault`` and add ``count`` to the total (0 where it is counted elsewhere)."""
        self.total += count
        row = -1 if fault.row is None else fault.row
        self._kept.append((row, column_index, fault))

    def first(self) -> list[Fault]:
        """Return the faults to show: whole-file ones, then by row and column."""
        ordered = sorted(self._kept, key=lambda entry: entry[:2])
        return [fault for _, _, fault in ordered[:MAX_SHOWN]]

    def raise_any(self, source: str) -> None:
        """Raise :class:`TraceError` if anything was added."""
        if self.total:
            raise TraceError(source, self.first(), self.total)


def log_empty_rows(log: FaultLog, rows: IntArray, place: str) -> None:
    """Add one fault for each run of rows that have nothing but empty cells."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
        first, last = int(run[0]), int(run[-1])
        text = f"{place.capitalize()} {first} is empty: remove it."
        if last > first:
            text = f"{place.capitalize()}s {first} to {last} are empty: remove them."
        log.add(Fault(row=first, column="", value="", rule=text, place=place))


@dataclass(frozen=True, kw_only=True)
class Column:
    """The cells of one column: texts as they stand in the file, or typed numbers.

    ``malformed`` marks cells that are neither number nor text (``true``, a list).
    """

    texts: Sequence[str] | None = None
    numbers: FloatArray | None = None
    malformed: BoolArray | None = None

    def raw(self, index: int) -> str:
        """Return one cell as text, empty where there is none."""
        if self.texts is not None:
            return self.texts[index]
        assert self.numbers is not None
        value = float(self.numbers[index])
        return "" if value != value else plain(value)

    def as_texts(self) -> Sequence[str]:
        """Return every cell as text."""
        if self.texts is not None:
            return self.texts
        assert self.numbers is not None
        return ["" if value != value else plain(value) for value in self.numbers.tolist()]

    def as_numbers(self) -> tuple[FloatArray, BoolArray]:
        """Return the cells as numbers and the mask of those that are no number.

        An empty cell is NaN; the words nan and inf are infinite, so that no rule takes them.
        """
        if self.numbers is not None:
            return self.numbers, np.zeros(len(self.numbers), dtype=np.bool_)
        assert self.texts is not None
        return _parse_numbers(self.texts)

    def take(self, rows: IntArray) -> Column:
        """Return some cells, in the order of ``rows``."""
        return Column(
            texts=None if self.texts is None else [self.texts[i] for i in rows],
            numbers=None if self.numbers is None else self.numbers[rows],
            malformed=None if self.malformed is None else self.malformed[rows],
        )


def _parse_numbers(texts: Sequence[str]) -> tuple[FloatArray, BoolArray]:
    n = len(texts)
    if not _UNUSUAL.search("\x00".join(texts)):
        try:
            fast = list(map(float, texts if "" not in texts else [t or "nan" for t in texts]))
        except ValueError:
            pass
        else:
            return np.array(fast, dtype=np.float64), np.zeros(n, dtype=np.bool_)
    numbers = np.full(n, np.nan)
    malformed = np.zeros(n, dtype=np.bool_)
    for i, text in enumerate(texts):
        if not text.strip(" \t"):
            continue
        if _NUMBER.fullmatch(text):
            numbers[i] = float(text)
        elif _NOT_FINITE.fullmatch(text):
            numbers[i] = np.inf
        else:
            malformed[i] = True
    return numbers, malformed


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """A trace before any rule: ``columns`` in file order, ``rows`` as a person counts them."""

    source: str
    columns: tuple[str, ...]
    cells: Mapping[str, Column]
    rows: IntArray
    place: str = "line"
    log: FaultLog = field(default_factory=FaultLog)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the columns that no rule knows."""
        return tuple(name for name in self.cells if name not in KNOWN_COLUMNS)

    def tidied(self, known: Sequence[str], key: str) -> RawTable:
        """Return the table without what is one fault each, so that no other rule meets it.

        Blanks around a name of ``known`` and rows of empty cells are faults of ``log``. Rows are
        looked at only where the cell of column ``key`` is empty.
        """
        names = {name: name.strip() for name in self.columns if name.strip() != name}
        names = {
            raw: name for raw, name in names.items() if name in known and name not in self.cells
        }
        if names:
            words = ", ".join(map(repr, list(names)[:_MOST_NAMED]))
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            at = "" if self.place == "row" else f" ({self.place} 1)"
            text = f"Expected column names without blanks around them, got {words}{more}{at}."
            self.log.add(Fault(row=None, column="", value=words, rule=text))
        kept = self._filled_rows(key)
        cells = {
            names.get(name, name): cell if kept is None else cell.take(kept)
            for name, cell in self.cells.items()
        }
        return replace(
            self,
            columns=tuple(names.get(name, name) for name in self.columns),
            cells=cells,
            rows=self.rows if kept is None else self.rows[kept],
        )

    def _filled_rows(self, key: str) -> IntArray | None:
        """Return the rows that have any cell, each run of others a fault; None: all have."""
        if key not in self.cells or all(map(str.strip, texts := self.cells[key].as_texts())):
            return None
        empty = np.array(
            [
                not text.strip() and not any(cell.raw(i).strip() for cell in self.cells.values())
                for i, text in enumerate(texts)
            ],
            dtype=np.bool_,
        )
        log_empty_rows(self.log, self.rows[empty], self.place)
        return np.flatnonzero(~empty)

    def suggest(self, missing: str) -> str:
        """Return a sentence naming the unknown column nearest to a missing one."""
        for name in self.unknown:
            if name.strip().casefold() == missing:
                return f" Did you mean {name!r}?"
        return did_you_mean(missing, self.unknown)
