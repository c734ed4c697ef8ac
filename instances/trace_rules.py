"""What a valid trace is: every rule, applied to whole columns, all faults at once.

:mod:`instances.trace_io` turns a file of any format into a
:class:`~instances.trace_table.RawTable`; :func:`jobs_from_table` here turns that into a
:class:`~instances.jobs.JobTable` or raises one :class:`~instances.trace_table.TraceError` with
every fault. Nothing is dropped or repaired; cells
left empty are estimated where a rule says so, and flagged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from instances.coefficients import DEFAULT_COEFFICIENTS, Coefficients
from instances.durations import duration_s
from instances.errors import did_you_mean
from instances.estimate import Workload, estimate_phases, misfit_words
from instances.hardware import Cluster
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, MODES, OPTIONAL_FIELDS, JobTable
from instances.network import sync_gb_of_model, sync_seconds
from instances.trace_table import (
    ESTIMABLE,
    KNOWN_COLUMNS,
    MAX_SHOWN,
    NUMBER_COLUMNS,
    Fault,
    RawTable,
    TraceError,
    plain,
    short,
)

__all__ = [
    "ESTIMABLE",
    "ESTIMATOR_COLUMNS",
    "KNOWN_COLUMNS",
    "MAX_ARRIVAL_S",
    "MAX_ID_LENGTH",
    "MAX_NUMBER",
    "NUMBER_COLUMNS",
    "PHASES",
    "Fault",
    "RawTable",
    "TraceError",
    "jobs_from_table",
    "plain",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

MAX_ID_LENGTH: Final = 200
#: Beyond these, sums of seconds lose what the checker's tolerances need.
MAX_NUMBER: Final = 1e12
MAX_ARRIVAL_S: Final = 1e10
MAX_NODES: Final = 1_000_000
#: The phases that are estimated where a row leaves them empty, and from which columns.
PHASES: Final = ("rollout_s", "train_s")
ESTIMATOR_COLUMNS: Final = ("model_b", "max_tokens", "prompts_per_step", "samples_per_prompt")
_REQUIRED: Final = ("arrival_s", "slo", *PHASES)
_AT_LEAST_ZERO: Final = ("arrival_s", "sync_s", "sync_gb", "restart_s", *ESTIMABLE)
#: Each chain must not decrease; empty cells are skipped.
_CHAINS: Final = (
    ("rollout_p50_s", "rollout_p95_s", "rollout_s"),
    ("train_p50_s", "train_p95_s", "train_s"),
    ("response_p50_tokens", "response_p95_tokens", "response_p99_tokens", "max_tokens"),
)
_GROUPED = re.compile(r"[ \t]*[+-]?[0-9]+(?:[,_'][0-9]+)+(?:\.[0-9]*)?[ \t]*")
_GROUPED_HINT: Final = " Write numbers without separators, with a point before decimals."
_COMMA = re.compile(r"[ \t]*[+-]?[0-9]+,[0-9]+[ \t]*")
_PERCENT = re.compile(r"[0-9]+(?:\.[0-9]*)?%")
_DATE = re.compile(
    r"\d{4}[-/]\d\d?[-/]\d\d?(?:[ T].*)?|\d\d?[./-]\d\d?[./-]\d\d(?:\d\d)?(?: .*)?", re.ASCII
)
_CLOCK = re.compile(r"(\d{1,6}):([0-5]\d):([0-5]\d)", re.ASCII)
#: Words for an empty cell.
_NOTHING: Final = frozenset(("n/a", "na", "none", "null", "nil", "-", "--", "?", "unknown"))
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


def jobs_from_table(
    table: RawTable, cluster: Cluster, coefficients: Coefficients = DEFAULT_COEFFICIENTS
) -> JobTable:
    """Check every rule and return the jobs sorted by arrival, file order on ties.

    Cells that the table leaves empty are estimated for ``cluster``, phase seconds with
    ``coefficients``.

    Raises
    ------
    TraceError
        With every fault of the table, the structural ones of ``table.log`` included.
    """
    table = table.tidied(KNOWN_COLUMNS, "job_id")
    check = _Check(table, cluster, coefficients)
    check.header()
    check.job_ids()
    check.numbers()
    check.modes()
    check.extra_texts()
    check.length()
    check.percentiles()
    check.phases()
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

    def __init__(self, table: RawTable, cluster: Cluster, coefficients: Coefficients) -> None:
        self.table = table
        self.cluster = cluster
        self.coefficients = coefficients
        self.n = len(table.rows)
        self.values: dict[str, FloatArray] = {}
        self.bad: dict[str, BoolArray] = {}
        self.estimated: dict[str, BoolArray] = {}
        self.mode: list[str] = ["sync"] * self.n
        self._order = {name: i for i, name in enumerate(table.columns)}
        ids = table.cells.get("job_id")
        self.ids: Sequence[str] = ids.as_texts() if ids else [""] * self.n

    @property
    def estimable(self) -> bool:
        """Whether the table has every column that phase seconds are estimated from."""
        return all(self.has(name) for name in ESTIMATOR_COLUMNS)

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
        lacking = [name for name in ESTIMATOR_COLUMNS if not self.has(name)]
        # model_b alone serves other estimates too: it does not announce estimated phases.
        announced = any(self.has(name) for name in ESTIMATOR_COLUMNS[1:])
        for name in missing:
            text = f"Missing column {name}."
            if name in PHASES and not lacking:
                continue
            if name in PHASES and announced:
                text = f"Missing column {name}, and to estimate it {_and(lacking)}."
            self.sentence(name, text, table.suggest(name))
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
                    f"{short(ids[i])}, first used in {place} {self.table.rows[first[ids[i]]]}"
                ),
            )
        if _CONTROL.search("".join(ids)):
            control = np.array([bool(_CONTROL.search(text)) for text in ids], dtype=np.bool_)
            self.report(control, "job_id", "a job_id without control characters")
        if max(map(len, ids), default=0) > MAX_ID_LENGTH:
            long = np.array([len(text) > MAX_ID_LENGTH for text in ids], dtype=np.bool_)
            rule = f"a job_id of at most {MAX_ID_LENGTH} characters"
            self.report(long, "job_id", rule, got=lambda i: f"{len(ids[i])}, {short(ids[i])}")

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
                self.not_number(name, malformed)
                values = np.where(malformed, np.nan, values)
            missing = np.isnan(values) & ~malformed
            wrong = ~_in_range(name, values) & ~np.isnan(values)
            if name in _REQUIRED and not (name in PHASES and self.estimable):
                wrong |= missing
            if wrong.any():
                infinite = np.isinf(values)
                rule = _range_words(name)
                self.report(wrong & ~infinite, name, rule)
                self.report(wrong & infinite, name, f"a finite {rule}")
                values = np.where(wrong, np.nan, values)
            huge = values > (most := MAX_ARRIVAL_S if name == "arrival_s" else MAX_NUMBER)
            if huge.any():
                words = " (seconds, not milliseconds)" if name == "arrival_s" else ""
                self.report(huge, name, f"{name} <= {most:g}{words}")
                wrong |= huge
                values = np.where(huge, np.nan, values)
            self.values[name] = values
            self.bad[name] = malformed | wrong

    def not_number(self, name: str, malformed: BoolArray) -> None:
        """Report cells that are no number; one fault where several of a column have a comma."""
        commas = np.zeros(self.n, dtype=np.bool_)
        for i in map(int, np.flatnonzero(malformed)):
            commas[i] = bool(_COMMA.fullmatch(self.raw(name, i)))
        rule, many = f"{name} to be a number", int(commas.sum())
        if many > 1:
            first = np.arange(self.n) == np.flatnonzero(commas)[0]
            more = f"{_GROUPED_HINT} {many} cells of the column have a comma."
            self.report(first, name, rule, hint=lambda _: more)
            malformed = malformed & ~commas
        self.report(malformed, name, rule, hint=partial(self.number_hint, name))

    def number_hint(self, name: str, i: int) -> str:
        """Return what to write in place of what is no number."""
        raw = self.raw(name, i).strip()
        if _GROUPED.fullmatch(raw):
            return _GROUPED_HINT
        if raw.lower() in _NOTHING:
            return self.empty_hint(name)
        if name == "slo" and _PERCENT.fullmatch(raw):
            return f" slo is a ratio: {plain(round(float(raw[:-1]) / 100, 9))}."
        if not name.endswith("_s"):
            return ""
        if _DATE.fullmatch(raw):
            since = " from any common start" if name == "arrival_s" else ""
            return f" {name} is in seconds{since}."
        clock = _CLOCK.fullmatch(raw)
        seconds = duration_s(raw.lower())
        if clock:
            seconds = 3600.0 * int(clock[1]) + 60.0 * int(clock[2]) + int(clock[3])
        return "" if seconds is None else f" {name} is in seconds: {plain(round(seconds, 6))}."

    def empty_hint(self, name: str) -> str:
        """Return what to do about a word for nothing in a column of numbers."""
        needed = name in _REQUIRED and not (name in PHASES and self.estimable)
        both = ("duration_s", "iterations")
        needed |= name in both and not all(map(self.has, both))
        return f" {name} is needed in every row." if needed else " Leave the cell empty."

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
                self.sentence(name, f"Expected a printable column name, got {short(name)}.")
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
                f"both {short(self.raw('duration_s', i))} and {short(self.raw('iterations', i))}"
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

    def phases(self) -> None:
        """Phase seconds come from the file, or from the four estimator columns of the row."""
        if not self.estimable:
            return
        needs = (*ESTIMATOR_COLUMNS, *INT_FIELDS)
        absent = {name: np.isnan(self.values[name]) for name in ESTIMATOR_COLUMNS}
        known = ~np.any([self.bad[name] for name in needs], axis=0)
        whole = known & ~np.any(list(absent.values()), axis=0)
        empty = {name: np.isnan(self.values[name]) & ~self.bad[name] for name in PHASES}
        reported = np.zeros(self.n, dtype=np.bool_)
        for column in ESTIMATOR_COLUMNS:
            without = np.any(list(empty.values()), axis=0) & known & absent[column] & ~reported
            reported |= without
            words = partial(self.phase_words, empty)
            self.report(without, column, words, got=partial(self.absent_words, absent))
        self.estimate_phases({name: mask & whole for name, mask in empty.items()})

    def phase_words(self, empty: dict[str, BoolArray], i: int) -> str:
        names = _and([name for name, mask in empty.items() if mask[i]])
        return f"{names}, or {_and(ESTIMATOR_COLUMNS)} to estimate from"

    def absent_words(self, absent: dict[str, BoolArray], i: int) -> str:
        return "no " + _and([name for name, mask in absent.items() if mask[i]])

    def estimate_phases(self, fill: dict[str, BoolArray]) -> None:
        """Estimate the marked cells; a measured percentile is a floor under its worst case."""
        rows = np.flatnonzero(np.any(list(fill.values()), axis=0))
        if not len(rows):
            return
        nodes = {n: np.nan_to_num(self.values[n][rows], nan=1.0) for n in INT_FIELDS}
        work = Workload.of({n: self.values[n][rows] for n in ESTIMATOR_COLUMNS} | nodes)
        got = estimate_phases(work, self.cluster, self.coefficients)
        misfit = np.zeros(self.n, dtype=np.bool_)
        misfit[rows] = ~got.fits
        misfit &= fill["rollout_s"]
        self.report(
            misfit,
            "model_b",
            "a model that fits the rollout GPUs",
            got=lambda i: misfit_words(work, int(np.searchsorted(rows, i)), self.cluster),
        )
        for name, mask in fill.items():
            seconds = np.full(self.n, np.nan)
            seconds[rows] = getattr(got, name)
            self.put_estimate(name, seconds, mask & ~misfit)

    def put_estimate(self, name: str, seconds: FloatArray, mask: BoolArray) -> None:
        if not mask.any():
            return
        for level in ("p50", "p95"):
            floor = self.values[name.replace("_s", f"_{level}_s")]
            seconds = np.fmax(seconds, floor)
        unusable = mask & ~((seconds > 0) & (seconds <= MAX_NUMBER))
        rule, got = (
            f"an estimate of {name} > 0 and <= {MAX_NUMBER:g}",
            lambda i: plain(float(seconds[i])),
        )
        self.report(unusable, "max_tokens", rule, got=got)
        self.values[name] = np.where(mask & ~unusable, seconds, self.values[name])
        self.estimated[name] = mask

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
        # A measured sync_s without any size: the size that takes as long by the link model. It
        # matters only for link utilisation.
        timed = no_size & ~from_model & ~np.isnan(seconds)
        size[timed] = seconds[timed] / sync_seconds(1.0, self.cluster.links)
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
        return f"{value}, estimated from model_b {short(self.raw('model_b', i))}"

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
            np.isinf(jobs.iterations),
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


def _and(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
