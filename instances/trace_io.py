"""CSV, JSON Lines, Parquet and data frames to :class:`~instances.trace_table.RawTable`.

Line numbers are those of an editor: a cell with a line break in quotes counts all its
lines, and wholly empty lines carry no row but are counted.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.trace_files import SAVE_AS, optional_module, utf8_text
from instances.trace_table import (
    MAX_SHOWN,
    NUMBER_COLUMNS,
    Column,
    Fault,
    FaultLog,
    RawTable,
    TraceError,
    log_empty_rows,
    plain,
    short,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CsvText",
    "jsonl_table",
    "parquet_table",
    "table_from_frame",
]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_CHUNK: Final = 1 << 23
#: What else spreadsheets put between cells, and how much of a file is looked at for it.
_SEPARATORS: Final = (b";", b"\t", b"|")
_HEAD: Final = 1 << 16
_DECIMAL_COMMA: Final = re.compile(
    rb"(?:^|[;\t|])\s*[+-]?\d+,\d+\s*(?:[;\t|\r\n]|\Z)", re.MULTILINE
)
#: Lines in which the names of columns are looked for, how many there are at least, and what a
#: cell begins with that is no name.
_TITLE_LINES: Final = 6
_LEAST_NAMES: Final = 3
_DIGITS: Final = re.compile(r"\s*[+-]?[\d.]")
_JSON_BLOCK: Final = 5_000


# -- CSV -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Records:
    """Where each record starts and stops, its cells, its first line, and all ends."""

    start: IntArray
    stop: IntArray
    cells: IntArray
    line: IntArray
    ends: IntArray


def _scan(data: bytes, source: str) -> _Records:
    """Find the records of a CSV text in one vectorised pass, empty lines left out."""
    quoted = b'"' in data
    lone_cr = data.count(b"\r") != data.count(b"\r\n")
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends, commas, breaks, quotes = [], [], [], []
    n_commas = 0
    inside_before = 0
    for offset in range(0, len(buffer), _CHUNK):
        chunk = buffer[offset : offset + _CHUNK]
        newline = chunk == 10
        if lone_cr:
            after = np.append(chunk[1:], buffer[offset + len(chunk) :][:1])
            after = np.append(after, np.zeros(len(chunk) - len(after), dtype=np.uint8))
            newline |= (chunk == 13) & (after != 10)
        comma = chunk == 44
        if quoted:
            quote = chunk == 34
            quotes.append(np.flatnonzero(quote) + offset)
            breaks.append(np.flatnonzero(newline) + offset)
            inside = (np.cumsum(quote, dtype=np.uint8) + np.uint8(inside_before)) & 1
            inside_before = int(inside[-1])
            newline &= inside == 0
            comma &= inside == 0
        end = np.flatnonzero(newline)
        at = np.flatnonzero(comma)
        ends.append(end + offset)
        commas.append(np.searchsorted(at, end) + n_commas)
        n_commas += len(at)
    none: list[IntArray] = [np.zeros(0, dtype=np.int64)]
    if quoted:
        _check_quotes(data, np.concatenate(quotes), np.concatenate(breaks), source)
    stop = np.concatenate(ends or none)
    until = np.concatenate(commas or none)
    if len(data) and (not len(stop) or stop[-1] != len(data) - 1):
        stop = np.append(stop, len(data))
        until = np.append(until, n_commas)
    start = np.concatenate([[0], stop[:-1] + 1]).astype(np.int64)[: len(stop)]
    cells = np.diff(until, prepend=0) + 1
    line = np.arange(1, len(stop) + 1)
    if quoted:
        line = np.searchsorted(np.concatenate(breaks), start) + 1
    blank = start == stop
    one = np.flatnonzero(stop - start == 1)
    blank[one] = buffer[start[one]] == 13
    keep = ~blank
    return _Records(
        start=start[keep],
        stop=stop[keep],
        cells=cells[keep],
        line=line[keep],
        ends=np.concatenate(ends or none),
    )


def _check_quotes(data: bytes, at: IntArray, breaks: IntArray, source: str) -> None:
    """Refuse quotes inside an unquoted cell and a quote that never closes.

    Past such a place no record has a certain end, so this is reported alone.
    """
    buffer = np.frombuffer(data, dtype=np.uint8)
    neighbour = np.where(np.arange(len(at)) % 2 == 0, at - 1, at + 1)
    inner = (neighbour >= 0) & (neighbour < len(data))
    beside = np.full(len(at), 10, dtype=np.uint8)
    beside[inner] = buffer[neighbour[inner]]
    stray = np.flatnonzero(~np.isin(beside, np.frombuffer(b',\n\r"', dtype=np.uint8)))
    if len(stray):
        where = int(at[stray[0]])
        rule = "quotes only around a whole cell and doubled inside it"
    elif len(at) % 2:
        k = len(at) - 1
        while k > 0 and at[k] - at[k - 1] == 1:
            k -= 2
        where = int(at[k])
        rule = "a closing quote before the end of the file"
    else:
        return
    low = max(where - 20, data.rfind(b"\n", 0, where) + 1)
    high = data.find(b"\n", where)
    text = data[low : min(high if high >= 0 else len(data), where + 20)].decode("utf-8", "ignore")
    fault = Fault(
        row=int(np.searchsorted(breaks, where)) + 1,
        column="",
        value=text,
        rule=rule,
        hint=" Nothing after it was read.",
    )
    raise TraceError(source, [fault], 1)


def _fault_of_file(text: str) -> Fault:
    return Fault(row=None, column="", value="", rule=text)


def _refuse_separator(data: bytes, source: str) -> None:
    """Refuse, alone, cells with something else than commas between them.

    The first line tells, or the second where the first is a title.
    """
    for number, line in enumerate(data[:_HEAD].splitlines()[:2], start=1):
        found = b"" if b"," in line else min(_SEPARATORS, key=lambda mark: -line.count(mark))
        if found and line.count(found) >= number:
            where = "the header (line 1)" if number == 1 else f"line {number}"
            text = (
                f"Expected commas between cells, got {found.decode()!r} in {where}. In Excel: "
                f"{SAVE_AS}."
            )
            if _DECIMAL_COMMA.search(data, 0, _HEAD):
                text = f"{text[:-1]}, with a point before decimals."
            raise TraceError(source, [_fault_of_file(text)], 1)
        if found == b"" and b"," in line:
            return


class CsvText:
    """One CSV text: scanned once, then read as typed columns or as raw text."""

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        self.data = utf8_text(data, source)
        _refuse_separator(self.data, source)
        self.records = _scan(self.data, source)
        if self.data.count(b"\r") != self.data.count(b"\r\n"):
            # pandas loses an empty first cell after a line that ends in a carriage return.
            buffer = np.frombuffer(self.data, dtype=np.uint8).copy()
            buffer[self.records.ends] = 10
            self.data = buffer.tobytes()
        if not len(self.records.start):
            text = "Expected a header line and at least one job, got an empty file."
            raise TraceError(source, [_fault_of_file(text)], 1)
        self.header = tuple(self._split(0))
        self._refuse_title()

    def _refuse_title(self) -> None:
        """Refuse, alone, a line above the names of the columns."""
        above = [cell for cell in self.header if cell.strip()]
        for k in range(1, min(_TITLE_LINES, len(self.records.start))):
            cells = [cell for cell in self._split(k) if cell.strip()]
            names = len(cells) >= _LEAST_NAMES and not any(map(_DIGITS.match, cells))
            if names and len(above) <= len(cells) // _LEAST_NAMES:
                first, found = int(self.records.line[0]), int(self.records.line[k])
                text = (
                    f"Expected the column names in line {first}, got "
                    f"{short(above[0]) if above else 'empty cells'}; they seem to be in line "
                    f"{found}."
                )
                raise TraceError(self.source, [_fault_of_file(text)], 1)

    def _split(self, k: int) -> list[str]:
        start, stop = int(self.records.start[k]), int(self.records.stop[k])
        text = self.data[start:stop].decode("utf-8").removesuffix("\r")
        if '"' not in text:
            return text.split(",")
        try:
            return next(csv.reader(io.StringIO(text, newline="")))
        except csv.Error as error:
            line = int(self.records.line[k])
            raise InputError(f"{self.source}: Cannot read line {line}: {error}.") from error

    @cached_property
    def _body(self) -> tuple[BoolArray, IntArray]:
        """Return which data records have the right number of cells, and all their lines."""
        return self.records.cells[1:] == len(self.header), self.records.line[1:]

    def _log(self) -> FaultLog:
        log = FaultLog()
        _log_duplicates(log, self.header, int(self.records.line[0]))
        good, lines = self._body
        length = (self.records.stop - self.records.start)[1:]
        empty = ~good & (length <= self.records.cells[1:])  # commas, and a carriage return
        log_empty_rows(log, lines[empty], "line")
        bad = np.flatnonzero(~good & ~empty)
        log.total += len(bad)
        id_at = self.header.index("job_id") if "job_id" in self.header else len(self.header)
        for k in map(int, bad[:MAX_SHOWN]):
            cells = self._split(k + 1)
            fault = Fault(
                row=int(lines[k]),
                column="",
                value=",".join(cells),
                rule=f"{len(self.header)} cells",
                job_id=cells[id_at] if id_at < len(cells) else None,
                got=str(len(cells)),
            )
            log.add(fault, count=0)
        return log

    def _good_bytes(self) -> io.BytesIO:
        """Return the data records with the right number of cells."""
        good, _ = self._body
        if good.all():
            buffer = io.BytesIO(self.data)
            buffer.seek(int(self.records.start[1]) if len(good) else len(self.data))
            return buffer
        edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0))
        start, stop = self.records.start[1:], self.records.stop[1:]
        parts = [self.data[start[a] : stop[b - 1]] for a, b in edges.reshape(-1, 2)]
        return io.BytesIO(b"\n".join(parts))

    def _frame(self, number_at: frozenset[int]) -> pd.DataFrame:
        import pandas as pd

        names = [f"c{i}" for i in range(len(self.header))]
        options: dict[str, Any] = {}
        if tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1):
            options["float_precision"] = "round_trip"  # later versions always read exactly
        frame: pd.DataFrame = pd.read_csv(
            self._good_bytes(),
            header=None,
            names=names,
            index_col=False,
            dtype={c: ("float64" if i in number_at else object) for i, c in enumerate(names)},
            keep_default_na=False,
            na_values={names[i]: [""] for i in number_at},
            encoding="utf-8",
            engine="c",
            **options,
        )
        return frame

    def _table(self, number_at: frozenset[int]) -> RawTable:
        good, lines = self._body
        rows = lines[good]
        cells: dict[str, Column] = {}
        if len(rows) and len(self.header) > 1:
            frame = self._frame(number_at)
            if len(frame) != len(rows):
                raise ValueError("pandas found other records than the scan did")
            for i, name in enumerate(self.header):
                column = frame.iloc[:, i]
                if i in number_at:
                    cell = Column(numbers=column.to_numpy(dtype=np.float64))
                else:
                    cell = Column(texts=column.tolist())
                cells.setdefault(name, cell)
        else:
            rows = rows[:0]
            cells = {name: Column(texts=[]) for name in self.header}
        return RawTable(
            source=self.source, columns=self.header, cells=cells, rows=rows, log=self._log()
        )

    def table(self, *, typed: bool) -> RawTable | None:
        """Return every cell as it stands or, with ``typed``, numbers as pandas reads them.

        The typed table is None where a cell resists. pandas may take the words nan, true and
        false for numbers; a file that holds such a word and a column that could have
        swallowed it is left to the untyped reading.
        """
        if not typed:
            return self.text()
        number_at = frozenset(i for i, c in enumerate(self.header) if c in NUMBER_COLUMNS)
        try:
            table = self._table(number_at)
        except (ValueError, TypeError, OverflowError):
            return None
        numbers = [c.numbers for c in table.cells.values() if c.numbers is not None]
        if any(np.isnan(a).any() for a in numbers) and self._mentions("nan"):
            return None
        binary = any(np.isin(a, (0.0, 1.0)).all() for a in numbers)
        if binary and (self._mentions("true") or self._mentions("false")):
            return None
        return table

    def _mentions(self, word: str) -> bool:
        letters = product(*((c.lower(), c.upper()) for c in word))
        return any("".join(variant).encode() in self.data for variant in letters)

    def text(self) -> RawTable:
        """Return the table with every cell as it stands."""
        try:
            return self._table(frozenset())
        except ValueError as error:
            raise InputError(f"{self.source}: Not readable as CSV: {error}.") from error


def _log_duplicates(log: FaultLog, header: Sequence[str], row: int | None) -> None:
    unnamed = [str(i) for i, name in enumerate(header, start=1) if not name.strip()]
    if len(unnamed) > 1:
        text = f"Columns {', '.join(unnamed)} have no name: remove or name them."
        log.add(_fault_of_file(text))
    seen: dict[str, int] = {}
    for i, name in enumerate(header):
        if not name.strip():
            continue
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            fault = Fault(
                row=row,
                column=name,
                value=name,
                rule="each column name once",
                got=f"{name!r} again as column {i + 1}",
            )
            log.add(fault, i)


# -- JSON Lines ----------------------------------------------------------------------------


class _DuplicateKeyError(ValueError):
    """A JSON object that gives one key twice."""


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return out


def _objects(data: bytes, log: FaultLog, typed: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    # Numbers stay the text they are in the file: ids keep their digits, cells are quoted raw.
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_pairs, parse_int=str, parse_float=str, parse_constant=str
    )
    for number, line in enumerate(io.BytesIO(data), start=1):
        text = line.decode("utf-8").strip(" \t\r\n")
        if not text:
            continue
        rule, got, hint = "a JSON object", "", ""
        try:
            value, end = decoder.raw_decode(text)
        except _DuplicateKeyError as error:
            rule, got = "each key once", f"{str(error)!r} twice"
        except json.JSONDecodeError as error:
            hint = f" Not valid JSON: {error.msg} at character {error.pos + 1}."
        except RecursionError:
            hint = " Nested too deeply."
        else:
            if end == len(text) and isinstance(value, dict):
                if not typed and any(type(v) in (list, dict) for v in value.values()):
                    # A fault to come: quote the numbers inside as numbers.
                    value = {
                        k: json.loads(text)[k] if type(v) in (list, dict) else v
                        for k, v in value.items()
                    }
                yield number, value
                continue
            if end != len(text):
                hint = f" Not valid JSON: more text at character {end + 1}."
        log.add(Fault(row=number, column="", value=text, rule=rule, got=got, hint=hint))


def jsonl_table(data: bytes, source: str, *, typed: bool) -> RawTable | None:
    """Read JSON Lines: one object a line; null and a missing key are empty cells.

    With ``typed``, known numbers are kept as floats only, and None is returned where a cell
    resists; without it, every cell is kept as it stands.
    """
    data = utf8_text(data, source)
    log = FaultLog()
    rows: list[int] = []
    parts: dict[str, list[Column]] = {}
    objects = _objects(data, log, typed)
    while block := list(islice(objects, _JSON_BLOCK)):
        for name in dict.fromkeys(key for _, value in block for key in value):
            if name not in parts:
                absent = Column(texts=[""] * len(rows))
                parts[name] = [absent]
        rows.extend(number for number, _ in block)
        for name, columns in parts.items():
            column = _column_of([value.get(name) for _, value in block], _json_words)
            if typed and name in NUMBER_COLUMNS:
                numbers, malformed = column.as_numbers()
                if malformed.any() or column.malformed is not None:
                    return None
                column = Column(numbers=numbers)
            columns.append(column)
    if not rows and not log.total:
        text = "Expected at least one job, got an empty file."
        raise TraceError(source, [Fault(row=None, column="", value="", rule=text)], 1)
    return RawTable(
        source=source,
        columns=tuple(parts),
        cells={name: _joined(columns) for name, columns in parts.items()},
        rows=np.array(rows, dtype=np.int64),
        log=log,
    )


def _joined(parts: Sequence[Column]) -> Column:
    """Return the columns of all blocks as one."""
    if parts[-1].numbers is not None:
        return Column(numbers=np.concatenate([part.as_numbers()[0] for part in parts]))
    texts = [text for part in parts for text in part.as_texts()]
    masks = [
        np.zeros(len(part.as_texts()), dtype=np.bool_) if part.malformed is None else part.malformed
        for part in parts
    ]
    malformed = np.concatenate(masks)
    return Column(texts=texts, malformed=malformed if malformed.any() else None)


def _json_words(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _column_of(values: Sequence[Any], words: Callable[[object], str]) -> Column:
    """Return a column of texts; what is neither text nor None is malformed."""
    kinds = set(map(type, values))
    if kinds <= {str}:
        return Column(texts=values)
    texts = [v if type(v) is str else ("" if v is None else words(v)) for v in values]
    if kinds <= {str, type(None)}:
        return Column(texts=texts)
    wrong = np.array([v is not None and type(v) is not str for v in values], dtype=np.bool_)
    return Column(texts=texts, malformed=wrong)


# -- Parquet and data frames ---------------------------------------------------------------


def parquet_table(data: bytes, source: str) -> RawTable:
    """Read a Parquet file; null and NaN are empty cells."""
    optional_module(("pyarrow",), "A .parquet file", "parquet")
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(f"{source}: Not a readable Parquet file: {reason}.") from error
    pairs: list[tuple[str, Column]] = []
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        kind = chunked.type
        if name in NUMBER_COLUMNS and (
            pa.types.is_float64(kind) or pa.types.is_float32(kind) or pa.types.is_integer(kind)
        ):
            values = chunked.cast(pa.float64(), safe=False).to_numpy()
            pairs.append((name, Column(numbers=np.asarray(values, dtype=np.float64))))
        else:
            pairs.append((name, _column_of([_cell(v) for v in chunked.to_pylist()], repr)))
    return _row_table(pairs, table.num_rows, source)


def table_from_frame(frame: pd.DataFrame, source: str) -> RawTable:
    """Read a pandas data frame; None, NaN and NA are empty cells."""
    pairs: list[tuple[str, Column]] = []
    for i, label in enumerate(frame.columns):
        if not isinstance(label, str):
            raise InputError(f"{source}: Expected column names to be text, got {label!r}.")
        column = frame.iloc[:, i]
        dtype = column.dtype
        if label in NUMBER_COLUMNS and isinstance(dtype, np.dtype) and dtype.kind in "iuf":
            pairs.append((label, Column(numbers=column.to_numpy(dtype=np.float64))))
        else:
            values = column.astype(object).tolist()
            pairs.append((label, _column_of([_cell(v) for v in values], repr)))
    return _row_table(pairs, len(frame), source)


def _row_table(pairs: Sequence[tuple[str, Column]], n: int, source: str) -> RawTable:
    log = FaultLog()
    header = tuple(name for name, _ in pairs)
    _log_duplicates(log, header, None)
    cells: dict[str, Column] = {}
    for name, column in pairs:
        cells.setdefault(name, column)
    rows = np.arange(1, n + 1)
    return RawTable(source=source, columns=header, cells=cells, rows=rows, place="row", log=log)


def _cell(value: Any) -> Any:
    """Return a typed cell as text, None where empty; bools, bytes and nested cells as they are."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return None if value != value else plain(value)
    if isinstance(value, (bool, bytes, Mapping, Sequence, set, np.ndarray)):
        return value
    return str(value)
