"""What a valid trace is: every rule, applied to whole columns, all faults at once.

:mod:`instances.trace_io` turns a file of any format into a :class:`RawTable`;
:func:`jobs_from_table` here turns a :class:`RawTable` into a
:class:`~instances.jobs.JobTable` or raises one :class:`TraceError` with every fault.
The columns are those of design section 10. Nothing is dropped or repaired.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.hardware import Cluster
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, MODES, OPTIONAL_FIELDS, JobTable
from instances.network import sync_gb_of_model, sync_seconds

__all__ = [
    "ESTIMABLE",
    "ESTIMATOR_COLUMNS",
    "KNOWN_COLUMNS",
    "NUMBER_COLUMNS",
    "TEXT_COLUMNS",
    "Column",
    "Fault",
    "FaultLog",
    "RawTable",
    "TraceError",
    "jobs_from_table",
    "plain",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_SHOWN: Final = 20
MAX_ID_LENGTH: Final = 200
MAX_NODES: Final = 1_000_000
#: The columns from which a later issue estimates phase seconds.
ESTIMATOR_COLUMNS: Final = ("model_b", "max_tokens", "prompts_per_step", "samples_per_prompt")
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
_REQUIRED: Final = ("arrival_s", "slo", "rollout_s", "train_s")
_AT_LEAST_ZERO: Final = ("arrival_s", "sync_s", "sync_gb", *ESTIMABLE)
#: Each chain must not decrease; empty cells are skipped.
_CHAINS: Final = (
    ("rollout_p50_s", "rollout_p95_s", "rollout_s"),
    ("train_p50_s", "train_p95_s", "train_s"),
    ("response_p50_tokens", "response_p95_tokens", "response_p99_tokens", "max_tokens"),
)

_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_NOT_FINITE = re.compile(r"[ \t]*[+-]?(?:inf|infinity|nan)[ \t]*", re.IGNORECASE)
_UNUSUAL = re.compile(r"[^0-9eE+\-. \t\x00]")
_GROUPED = re.compile(r"[ \t]*[+-]?[0-9]+(?:[,_'][0-9]+)+(?:\.[0-9]*)?[ \t]*")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


def plain(value: float) -> str:
    """Return the shortest text that reads back as ``value``, without a trailing ``.0``."""
    return repr(value).removesuffix(".0")


def _short(text: str) -> str:
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
        got = self.got or (_short(self.value) if self.value else "an empty cell")
        where = []
        if self.job_id:
            where.append(f"job {_short(self.job_id)}")
        if self.row is not None:
            where.append(f"{self.place} {self.row}")
        if self.column:
            where.append(f"column {self.column}")
        at = f" ({', '.join(where)})" if where else ""
        return f"Expected {self.rule}, got {got}{at}.{self.hint}"


class TraceError(InputError):
    """A trace that breaks rules; ``faults`` holds the first 20 of ``total``."""

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

    def suggest(self, missing: str) -> str:
        """Return a sentence naming the unknown column nearest to a missing one."""
        for name in self.unknown:
            if name.strip().casefold() == missing:
                return f" Did you mean {name!r}?"
        return did_you_mean(missing, self.unknown)


def jobs_from_table(table: RawTable, cluster: Cluster) -> JobTable:
    """Check every rule and return the jobs sorted by arrival, file order on ties.

    Raises
    ------
    TraceError
        With every fault of the table, the structural ones of ``table.log`` included.
    """
    check = _Check(table, cluster)
    check.header()
    check.job_ids()
    check.numbers()
    check.modes()
    check.extra_texts()
    check.length()
    check.percentiles()
    check.estimates()
    check.sync()
    check.state_fits()
    with np.errstate(all="ignore"):
        jobs = check.build()
        check.finite(jobs)
    table.log.raise_any(table.source)
    if np.any(np.diff(jobs.arrival_s) < 0):
        jobs = jobs.take(np.argsort(jobs.arrival_s, kind="stable"))
    return jobs


class _Check:
    """The rules over one table. ``values`` are NaN where empty, ``bad`` marks faulty cells."""

    def __init__(self, table: RawTable, cluster: Cluster) -> None:
        self.table = table
        self.cluster = cluster
        self.n = len(table.rows)
        self.values: dict[str, FloatArray] = {}
        self.bad: dict[str, BoolArray] = {}
        self.estimated: dict[str, BoolArray] = {}
        self.mode: list[str] = ["sync"] * self.n
        self._order = {name: i for i, name in enumerate(table.columns)}
        ids = table.cells.get("job_id")
        self.ids: Sequence[str] = ids.as_texts() if ids else [""] * self.n

    # -- reporting -----------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return name in self.table.cells

    def raw(self, name: str, i: int) -> str:
        return self.table.cells[name].raw(i) if self.has(name) else ""

    def sentence(self, column: str, text: str, hint: str = "") -> None:
        """Add a fault of the whole file."""
        fault = Fault(row=None, column=column, value="", rule=text, hint=hint)
        self.table.log.add(fault, self._order.get(column, -1))

    def report(
        self,
        mask: BoolArray,
        column: str,
        rule: str | Callable[[int], str],
        *,
        got: Callable[[int], str] | None = None,
        hint: Callable[[int], str] | None = None,
    ) -> None:
        """Add one fault for every row of ``mask``; only the first ones are put in words."""
        rows = np.flatnonzero(mask)
        self.table.log.total += len(rows)
        for i in map(int, rows[:MAX_SHOWN]):
            fault = Fault(
                row=int(self.table.rows[i]),
                column=column,
                value=self.raw(column, i),
                rule=rule if isinstance(rule, str) else rule(i),
                job_id=self.ids[i] or None,
                got=got(i) if got else "",
                hint=hint(i) if hint else "",
                place=self.table.place,
            )
            self.table.log.add(fault, self._order.get(column, -1), count=0)

    # -- rules ---------------------------------------------------------------------------

    def header(self) -> None:
        """Every required column is there, and there is at least one job."""
        table = self.table
        if not table.columns and table.log.total:
            return  # not one row could be read
        missing = [name for name in ("job_id", *_REQUIRED) if not self.has(name)]
        phases = {"rollout_s", "train_s"} & set(missing)
        if phases and all(self.has(name) for name in ESTIMATOR_COLUMNS):
            missing = [name for name in missing if name not in phases]
            self.sentence(
                min(phases),
                f"Missing column {' and '.join(sorted(phases))}: phase estimation from model_b, "
                "max_tokens, prompts_per_step and samples_per_prompt is not built yet; "
                "give rollout_s and train_s.",
            )
        for name in missing:
            self.sentence(name, f"Missing column {name}.", table.suggest(name))
        if not self.has("duration_s") and not self.has("iterations"):
            hint = table.suggest("duration_s") or table.suggest("iterations")
            self.sentence("duration_s", "Missing column duration_s or iterations.", hint)
        if not self.n and not table.log.total:
            self.sentence("", "Expected at least one job, got none.")

    def job_ids(self) -> None:
        """Ids are text as it stands, not empty, used once, printable, of sane length."""
        if not self.has("job_id"):
            return
        ids = self.ids
        self.not_text("job_id")
        counts = Counter(ids) if len(set(ids)) < self.n else {}
        if any(not text.strip() for text in set(ids)):
            empty = np.array([not text.strip() for text in ids], dtype=np.bool_)
            self.report(empty, "job_id", "a job_id that is not empty")
        if counts:
            first: dict[str, int] = {}
            again = np.zeros(self.n, dtype=np.bool_)
            for i, text in enumerate(ids):
                again[i] = bool(text.strip()) and first.setdefault(text, i) != i
            place = self.table.place
            self.report(
                again,
                "job_id",
                "a job_id used once",
                got=lambda i: (
                    f"{_short(ids[i])}, first used in {place} {self.table.rows[first[ids[i]]]}"
                ),
            )
        if _CONTROL.search("".join(ids)):
            control = np.array([bool(_CONTROL.search(text)) for text in ids], dtype=np.bool_)
            self.report(control, "job_id", "a job_id without control characters")
        if max(map(len, ids), default=0) > MAX_ID_LENGTH:
            long = np.array([len(text) > MAX_ID_LENGTH for text in ids], dtype=np.bool_)
            rule = f"a job_id of at most {MAX_ID_LENGTH} characters"
            self.report(long, "job_id", rule, got=lambda i: f"{len(ids[i])}, {_short(ids[i])}")

    def not_text(self, name: str) -> None:
        malformed = self.table.cells[name].malformed
        if malformed is not None:
            self.report(malformed, name, f"{name} to be text or a number")

    def numbers(self) -> None:
        """Each number stands in its range; required cells are not empty."""
        empty = np.full(self.n, np.nan)
        for name in NUMBER_COLUMNS:
            if not self.has(name):
                self.values[name] = empty
                self.bad[name] = np.zeros(self.n, dtype=np.bool_)
                continue
            cell = self.table.cells[name]
            values, malformed = cell.as_numbers()
            if cell.malformed is not None:
                malformed = malformed | cell.malformed
            if malformed.any():
                hint = partial(self.grouped, name)
                self.report(malformed, name, f"{name} to be a number", hint=hint)
                values = np.where(malformed, np.nan, values)
            missing = np.isnan(values) & ~malformed
            wrong = ~_in_range(name, values) & ~np.isnan(values)
            if name in _REQUIRED:
                wrong |= missing
            if wrong.any():
                infinite = np.isinf(values)
                rule = _range_words(name)
                self.report(wrong & ~infinite, name, rule)
                self.report(wrong & infinite, name, f"a finite {rule}")
                values = np.where(wrong, np.nan, values)
            self.values[name] = values
            self.bad[name] = malformed | wrong

    def grouped(self, name: str, i: int) -> str:
        if _GROUPED.fullmatch(self.raw(name, i)):
            return " Write numbers without separators, with a point before decimals."
        return ""

    def modes(self) -> None:
        """The mode is one of the known words; an empty cell means sync."""
        if not self.has("mode"):
            return
        texts = self.table.cells["mode"].as_texts()
        self.not_text("mode")
        malformed = self.table.cells["mode"].malformed
        if set(texts) - {"", *MODES}:
            wrong = np.array([bool(t) and t not in MODES for t in texts], dtype=np.bool_)
            if malformed is not None:
                wrong &= ~malformed
            self.report(
                wrong,
                "mode",
                "mode to be sync, one-step or async",
                hint=lambda i: did_you_mean(texts[i].strip().lower().replace("_", "-"), MODES),
            )
        self.mode = [text or "sync" for text in texts]

    def extra_texts(self) -> None:
        """Unknown columns are kept as text, as long as every format can hold it."""
        for name in self.table.unknown:
            self.not_text(name)
            texts = self.table.cells[name].as_texts()
            if _UNWRITABLE.search(name):
                self.sentence(name, f"Expected a printable column name, got {_short(name)}.")
            if _UNWRITABLE.search("".join(texts)):
                wrong = np.array([bool(_UNWRITABLE.search(t)) for t in texts], dtype=np.bool_)
                self.report(wrong, name, "text without NUL or unpaired surrogates")

    def length(self) -> None:
        """Each row gives exactly one of duration_s and iterations."""
        if not self.has("duration_s") and not self.has("iterations"):
            return
        given = [
            ~np.isnan(self.values[name]) | self.bad[name] for name in ("duration_s", "iterations")
        ]
        column = "duration_s" if self.has("duration_s") else "iterations"
        words = {"duration_s": "duration_s or iterations", "iterations": "iterations > 0"}[column]
        self.report(~given[0] & ~given[1], column, words)
        self.report(
            given[0] & given[1],
            column,
            "either duration_s or iterations",
            got=lambda i: (
                f"both {_short(self.raw('duration_s', i))} and {_short(self.raw('iterations', i))}"
            ),
        )

    def percentiles(self) -> None:
        """No percentile is above the next higher one, nor above the worst case."""
        for chain in _CHAINS:
            for k, low in enumerate(chain[:-1]):
                open_rows = ~np.isnan(self.values[low])
                if not open_rows.any():
                    continue
                for high in chain[k + 1 :]:
                    # Rows are compared with the nearest higher cell that is given.
                    given = open_rows & ~np.isnan(self.values[high])
                    above = given & (self.values[low] > self.values[high])
                    self.report(above, low, partial(self.chain_words, low, high))
                    open_rows &= ~given

    def chain_words(self, low: str, high: str, i: int) -> str:
        return f"{low} <= {high} = {self.raw(high, i).strip()}"

    def estimates(self) -> None:
        """State and switches come from the file, or from model_b by the cluster's table."""
        model = self.values["model_b"]
        points = sorted(self.cluster.models, key=lambda point: point.model_b)
        known = np.array([point.model_b for point in points])
        for name in ESTIMABLE:
            empty = self.lacking((name,))
            if empty is None:
                continue
            there = np.array([getattr(point, name) for point in points])
            fill = empty & ~np.isnan(model)
            if fill.any():
                guess = np.interp(model[fill], known, there)
                self.values[name] = self.values[name].copy()
                self.values[name][fill] = guess
                self.estimated[name] = fill

    def lacking(self, names: tuple[str, ...]) -> BoolArray | None:
        """Return the rows where all of ``names`` are empty; report those without model_b.

        None means that neither the columns nor model_b exist, reported once.
        """
        words = " or ".join([", ".join(names), "model_b"])
        if not any(self.has(name) for name in (*names, "model_b")):
            hint = next(filter(None, map(self.table.suggest, (*names, "model_b"))), "")
            self.sentence(names[0], f"Expected column {words}, got none of them.", hint)
            return None
        empty = np.ones(self.n, dtype=np.bool_)
        for name in names:
            empty &= np.isnan(self.values[name]) & ~self.bad[name]
        without = empty & np.isnan(self.values["model_b"]) & ~self.bad["model_b"]
        column = next(name for name in (*names, "model_b") if self.has(name))
        self.report(without, column, words)
        return empty

    def sync(self) -> None:
        """sync_s as measured, else from sync_gb by the link model, else from model_b."""
        empty = self.lacking(("sync_s", "sync_gb"))
        if empty is None:
            return
        seconds, size = self.values["sync_s"].copy(), self.values["sync_gb"].copy()
        no_size = np.isnan(size) & ~self.bad["sync_gb"]
        from_model = no_size & ~np.isnan(self.values["model_b"])
        size[from_model] = sync_gb_of_model(self.values["model_b"][from_model])
        # A measured sync_s without any size: the size matters only for link utilisation.
        size[no_size & ~from_model] = 0.0
        derive = np.isnan(seconds) & ~self.bad["sync_s"]
        seconds[derive] = sync_seconds(size[derive], self.cluster.links)
        self.values["sync_s"], self.values["sync_gb"] = seconds, size
        for name, mask in (("sync_gb", no_size), ("sync_s", derive & no_size)):
            if mask.any():
                self.estimated[name] = mask

    def state_fits(self) -> None:
        """The state of one job alone fits the host DRAM of its pool's node."""
        for name, node in (
            ("rollout_state_gb", self.cluster.rollout),
            ("train_state_gb", self.cluster.train),
        ):
            guessed = self.estimated.get(name, np.zeros(self.n, dtype=np.bool_))
            over = self.values[name] > node.host_dram_gb
            limit = f"{plain(float(node.host_dram_gb))} (host DRAM of one {node.gpu.name} node)"
            self.report(over & ~guessed, name, f"{name} <= {limit}")
            got = partial(self.guess_words, name)
            column = name if self.has(name) else "model_b"
            self.report(over & guessed, column, f"{name} <= {limit}", got=got)

    def guess_words(self, name: str, i: int) -> str:
        value = plain(float(self.values[name][i]))
        return f"{value}, estimated from model_b {_short(self.raw('model_b', i))}"

    def build(self) -> JobTable:
        """Return the jobs in file order; with faults, numbers that stand in for bad cells."""
        numbers: dict[str, Any] = {name: self.values[name] for name in FLOAT_FIELDS}
        for name in INT_FIELDS:
            filled = np.where(np.isnan(self.values[name]), 1.0, self.values[name])
            numbers[name] = filled.astype(np.int64)
        jobs = JobTable(
            job_id=tuple(self.ids),
            mode=tuple(self.mode),
            optional={k: self.values[k] for k in OPTIONAL_FIELDS if self.has(k)},
            extra={k: tuple(self.table.cells[k].as_texts()) for k in self.table.unknown},
            estimated=self.estimated,
            **numbers,
        )
        counted = ~np.isnan(self.values["iterations"])
        if counted.any():
            seconds = self.values["iterations"] * jobs.solo_s
            jobs = jobs.replace(duration_s=np.where(counted, seconds, jobs.duration_s))
        return jobs

    def finite(self, jobs: JobTable) -> None:
        """What follows from the cells (deadline, duration, iterations) is finite too."""
        self.report(np.isinf(jobs.deadline_s), "slo", "a finite deadline slo x solo_s")
        column = "iterations" if self.has("iterations") else "duration_s"
        self.report(
            np.isinf(jobs.duration_s) | np.isinf(jobs.iterations),
            column,
            "a finite duration and number of iterations",
        )


def _in_range(name: str, values: FloatArray) -> BoolArray:
    good: BoolArray = np.isfinite(values)
    if name in INT_FIELDS:
        good &= (values >= 1) & (values <= MAX_NODES) & (np.floor(values) == values)
    elif name == "slo":
        good &= values >= 1
    elif name in _AT_LEAST_ZERO:
        good &= values >= 0
    else:
        good &= values > 0
    return good


def _range_words(name: str) -> str:
    if name in INT_FIELDS:
        return f"{name} to be a whole number from 1 to {MAX_NODES}"
    if name == "slo":
        return "slo >= 1"
    return f"{name} >= 0" if name in _AT_LEAST_ZERO else f"{name} > 0"
