"""Step metrics as verl's trackers write them: JSON Lines, CSV and console logs.

verl is a framework for RL post-training. Its trainer hands one dictionary a step to trackers;
what they leave behind is read here, number by number as it stands:

* JSON Lines: ``{"step": 3, "data": {"timing_s/gen": 12.3, ...}}`` (the file tracker), or flat
  objects with the step under one of :data:`STEP_KEYS`.
* CSV: one column a key and one for the step, such as the history of a run exported from a
  tracking service. Keys may stand behind the run's name, ``run - timing_s/gen``; columns that end
  in ``__MIN`` or ``__MAX`` are what the exporter saw within a row.
* Console logs: lines with ``step:3 - timing_s/gen:12.3 - ...``, whatever stands before them on
  the line. Values may be wrapped, ``np.float64(12.3)``.

Each also with ``.gz`` or ``.zst``. Only keys that this project uses are kept. What a key means is
said in :mod:`instances.verl_import`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from instances.errors import InputError
from instances.trace_files import decompress, read_bytes, utf8_text
from instances.trace_io import CsvText
from instances.trace_rules import Fault
from instances.trace_table import FaultLog, short

__all__ = ["STEP_KEYS", "TIMING", "LoggedStep", "VerlLog", "read_verl_log"]

TIMING: Final = "timing_s/"
#: Where a step's number stands, best first.
STEP_KEYS: Final = ("step", "Step", "_step", "training/global_step", "global_step")
_KEPT: Final = (
    TIMING,
    "response_length/",
    "prompt_length/",
    "fully_async/",
    "training/off_policy/",
)
_TEXT: Final = (".csv", ".jsonl", ".ndjson", ".json")
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEP: Final = re.compile(r"(?<![\w/:.-])step:(\d+) - ")
_WRAPPED: Final = re.compile(r"[A-Za-z_][\w.]*\(([^()]*)\)")
_WHOLE: Final = re.compile(r"\d+(?:\.0*)?")
_RUN: Final = re.compile(r"(.*?) - ((?:timing_s|response_length|prompt_length)/.*)", re.DOTALL)
_SPREAD: Final = ("__MIN", "__MAX")
_MOST_STEP: Final = 10**12


@dataclass(frozen=True, kw_only=True)
class LoggedStep:
    """What a log says about one step.

    Attributes
    ----------
    step : int
        Its number.
    line : int
        Where it stands in the file, from 1.
    cells : mapping of str to str
        Key -> number as it stands, keys without one left out.
    """

    step: int
    line: int
    cells: Mapping[str, str]

    @property
    def timed(self) -> bool:
        """Whether any time is logged; a step of validation alone has none."""
        return any(key.startswith(TIMING) for key in self.cells)


@dataclass(frozen=True, kw_only=True)
class VerlLog:
    """One log, in file order.

    Attributes
    ----------
    source : str
        File name.
    form : str
        ``JSON Lines``, ``CSV`` or ``console``.
    steps : tuple of LoggedStep
    seen : tuple of str
        Every key, those that are not kept included, in the order met.
    sampled : bool
        Whether rows of a CSV stand for several steps each, by its MIN and MAX columns.
    keys : tuple of str
        The keys kept, in the order met, derived.
    """

    source: str
    form: str
    steps: tuple[LoggedStep, ...]
    seen: tuple[str, ...] = ()
    sampled: bool = False
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        keys = dict.fromkeys(key for step in self.steps for key in step.cells)
        object.__setattr__(self, "keys", tuple(keys))


def read_verl_log(path: str | Path) -> VerlLog:
    """Read a log; the format follows from the name, or else from the first character.

    Parameters
    ----------
    path : str or Path
        ``.csv``, ``.jsonl``, ``.ndjson`` or anything else, each also with ``.gz`` or ``.zst``.
        Anything else is JSON Lines when it begins with ``{``, else a console log.

    Raises
    ------
    InputError
        When the file cannot be read, breaks a rule of its format (every fault counted, the
        first 20 shown) or holds no step at all.
    """
    source = Path(path).name
    name = source.lower()
    packed = next((s for s in ("gz", "zst") if name.endswith(f".{s}")), "")
    base = Path(name.removesuffix(f".{packed}") if packed else name).suffix
    if base == ".parquet":
        raise InputError(f"{source}: Expected CSV, JSON Lines or a console log, got Parquet.")
    data = decompress(read_bytes(path), packed, source)
    faults = FaultLog()
    seen: dict[str, None] = {}
    sampled = False
    if base == ".csv":
        form = "CSV"
        steps, sampled = _csv_steps(text := CsvText(data, source), faults)
        seen = dict.fromkeys(text.header)
    elif base in _TEXT or data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        form = "JSON Lines"
        steps = list(_json_steps(utf8_text(data, source), faults, seen))
    else:
        form = "console"
        # Other programs print into the same log: only what stands on a step's line must be text.
        steps = list(_console_steps(data.decode("utf-8", "replace"), seen))
    faults.raise_any(source)
    if not steps:
        lines = "lines with 'step:1 - key:value - ...'" if form == "console" else "a step"
        raise InputError(f"{source}: Expected {lines}, got none (read as {form}).")
    return VerlLog(source=source, form=form, steps=tuple(steps), seen=tuple(seen), sampled=sampled)


def _kept(key: str) -> bool:
    return key.startswith(_KEPT)


def _step_number(text: str) -> int | None:
    """Return a step's number, or None for what is none."""
    word = text.strip()
    if not _WHOLE.fullmatch(word) or float(word) > _MOST_STEP:
        return None
    return int(float(word))


def _add_fault(faults: FaultLog, line: int, key: str, value: str, rule: str) -> None:
    faults.add(Fault(row=line, column=key, value=value, rule=rule))


# -- JSON Lines ----------------------------------------------------------------------------


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys = [key for key, _ in pairs]
        again = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {short(again)} twice")
    return out


def _json_steps(data: bytes, faults: FaultLog, seen: dict[str, None]) -> Iterator[LoggedStep]:
    # Numbers stay the text they are in the file, so that a fault can quote them.
    decoder = json.JSONDecoder(
        object_pairs_hook=_once, parse_int=str, parse_float=str, parse_constant=str
    )
    for line, raw in enumerate(data.decode("utf-8").split("\n"), start=1):
        text = raw.strip(" \t\r")
        if not text:
            continue
        hint = ""
        value = None
        try:
            value = decoder.decode(text)
        except json.JSONDecodeError as error:
            hint = f" Not valid JSON: {error.msg} at character {error.pos + 1}."
        except RecursionError:
            hint = " Nested too deeply."
        except ValueError as error:
            hint = f" Not valid JSON: {error}."
        if not isinstance(value, dict):
            rule = "a JSON object"
            faults.add(Fault(row=line, column="", value=text, rule=rule, hint=hint))
            continue
        cells = value.get("data", value)
        if not isinstance(cells, dict):
            _add_fault(faults, line, "data", str(cells), "data to be a JSON object")
            continue
        seen.update(dict.fromkeys(cells))
        number = _found_step({**cells, **value}, line, faults)
        if number is not None:
            yield LoggedStep(step=number, line=line, cells=_json_cells(cells))


def _json_cells(cells: Mapping[str, Any]) -> dict[str, str]:
    kept = {key: cell for key, cell in cells.items() if _kept(key) and cell is not None}
    return {key: cell if isinstance(cell, str) else json.dumps(cell) for key, cell in kept.items()}


def _found_step(cells: Mapping[str, Any], line: int, faults: FaultLog) -> int | None:
    """Return the number of a step, or add a fault."""
    key = next((key for key in STEP_KEYS if cells.get(key) not in (None, "")), None)
    if key is None:
        _add_fault(faults, line, "step", "", f"a step number under one of {', '.join(STEP_KEYS)}")
        return None
    number = _step_number(str(cells[key]))
    if number is None:
        _add_fault(faults, line, key, str(cells[key]), f"{key} to be a whole number >= 0")
    return number


# -- CSV -----------------------------------------------------------------------------------


def _csv_steps(text: CsvText, faults: FaultLog) -> tuple[list[LoggedStep], bool]:
    table = text.text()
    table.log.raise_any(text.source)
    keys = _csv_keys(table.columns, text.source)
    numbered = [name for name in table.columns if name in STEP_KEYS]
    if not numbered:
        raise InputError(
            f"{text.source}: Expected a column named {', '.join(STEP_KEYS[:-1])} or "
            f"{STEP_KEYS[-1]}, got none.{table.suggest('step')}"
        )
    columns = {name: table.cells[name].as_texts() for name in (*numbered, *keys)}
    steps = []
    for i, line in enumerate(table.rows.tolist()):
        number = _found_step({name: columns[name][i] for name in numbered}, line, faults)
        if number is not None:
            row = {key: columns[name][i] for name, key in keys.items()}
            cells = {key: cell for key, cell in row.items() if cell.strip()}
            steps.append(LoggedStep(step=number, line=line, cells=cells))
    spread = [
        (table.cells[name + low].as_texts(), table.cells[name + high].as_texts())
        for name in keys
        for low, high in (_SPREAD,)
        if name + low in table.cells and name + high in table.cells
    ]
    return steps, any(list(low) != list(high) for low, high in spread)


def _csv_keys(columns: Sequence[str], source: str) -> dict[str, str]:
    """Return column -> key of the columns to keep; refuse those of several runs."""
    keys: dict[str, str] = {}
    runs: dict[str, None] = {}
    for name in columns:
        if name.endswith(_SPREAD):
            continue
        run, key = "", name
        if match := _RUN.fullmatch(name):
            run, key = match.groups()
        if _kept(key):
            keys[name] = key
            runs[run] = None
    if len(runs) > 1:
        names = ", ".join(repr(run) if run else "no name" for run in runs)
        raise InputError(
            f"{source}: Expected the columns of one run, got {len(runs)}: {names}. "
            "Export each run to a file of its own."
        )
    return keys


# -- console -------------------------------------------------------------------------------


def _console_steps(text: str, seen: dict[str, None]) -> Iterator[LoggedStep]:
    for line, raw in enumerate(text.split("\n"), start=1):
        if "step:" not in raw:
            continue
        match = _STEP.search(clean := _ANSI.sub("", raw))
        if match is None or len(match[1]) > len(str(_MOST_STEP)):
            continue
        cells = {}
        for part in clean[match.end() :].split(" - "):
            key, _, value = part.strip().partition(":")
            seen[key] = None
            if _kept(key):
                word = value.split()[0] if value.split() else ""
                inner = _WRAPPED.fullmatch(word)
                cells[key] = inner[1] if inner else word
        yield LoggedStep(step=int(match[1]), line=line, cells=cells)
