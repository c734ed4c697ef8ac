"""What ``planner sweep`` prints: $/h by policy, and by every axis with more than one value.

Means are over the runs of a cell that did not fail, each counted once: over all other axes,
traces and seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from planner.output.fitting_tables import bare_table
from planner.plan.document import SCHEMA_VERSION
from planner.sweep.run import Cell, Row
from planner.sweep.sweeping import SweepOutcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["axis_value", "failure_lines", "print_sweep", "sweep_document"]

_MAX_SHOWN: Final = 12
#: Most policies whose best is shown beside the mean, and the widest value of an axis.
_MAX_PAIRS: Final = 3
_WIDEST: Final = 20
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Mean and least $/h of some runs; ``None`` where none succeeded."""

    runs: int
    failed: int
    mean: float | None
    least: Row | None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Cost:
        """Sum up rows."""
        good = [row for row in rows if not row["error_type"]]
        usd = _values(good, "usd_per_hour_mean")
        return cls(
            runs=len(rows),
            failed=len(rows) - len(good),
            mean=_mean(usd),
            least=min(good, key=_usd) if good else None,
        )

    @property
    def best(self) -> float | None:
        """The least $/h."""
        return None if self.least is None else _usd(self.least)


def _usd(row: Row) -> float:
    value = row["usd_per_hour_mean"]
    return float(value) if value is not None else float("inf")


def _values(rows: Sequence[Row], column: str) -> list[float]:
    """Return the numbers of a column, the empty cells left out."""
    return [float(row[column]) for row in rows if row[column] is not None]  # type: ignore[arg-type]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _fleet(row: Row) -> Cell:
    """Return the fleet of a run as a study writes it."""
    rollout, train = row["fleet_rollout_nodes"], row["fleet_train_nodes"]
    return "none" if rollout is None else f"{rollout},{train}"


def axis_value(row: Row, axis: str) -> Cell:
    """Return the value of an axis of a study in a row of its table."""
    if axis == "fleet":
        return _fleet(row)
    return row["rollout_host_dram_gb" if axis == "host_dram_gb" else axis]


def _conventions(outcome: SweepOutcome) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each convention: these are never mixed."""
    for convention in dict.fromkeys(str(row["convention"]) for row in outcome.rows):
        yield convention, [row for row in outcome.rows if row["convention"] == convention]


def _varied(outcome: SweepOutcome) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the axes of the study with more than one value, and these."""
    for axis in ("case", "trace", *outcome.study.axes):
        values = list(dict.fromkeys(axis_value(row, axis) for row in outcome.rows))
        if len(values) > 1:
            yield axis, values


def _by(rows: Sequence[Row], column: str) -> dict[Cell, list[Row]]:
    """Return rows by the value of an axis or a column, in order."""
    out: dict[Cell, list[Row]] = {}
    for row in rows:
        out.setdefault(axis_value(row, column), []).append(row)
    return out


# --- words ----------------------------------------------------------------------------------------


def _money(usd: float | None) -> str:
    if usd is None:
        return "-"
    return f"{usd:,.1f}" if abs(usd) < 1000 else f"{usd:,.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _shown(value: Cell) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(text: str, width: int = _WIDEST) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _empty(title: str, headers: Sequence[str]) -> Table:
    from rich.markup import escape

    table = bare_table(escape(title))
    table.add_column(headers[0], no_wrap=True)
    for header in headers[1:]:
        table.add_column(escape(header), justify="right", no_wrap=True)
    return table


def _policy_table(outcome: SweepOutcome, convention: str, rows: Sequence[Row]) -> Table:
    waits = any(run.fleet is not None for run in outcome.study.runs)
    table = _empty(
        f"{_short(outcome.study.name, 40)}: {len(rows):,} runs, durations {convention}",
        (
            "policy",
            "runs",
            "$/h\nmean",
            "$/h\nbest",
            "p95 nodes\nrollout",
            "p95 nodes\ntrain",
            "SLO met\n%",
            *(("p95 wait\nmin",) if waits else ()),
            "failed",
        ),
    )
    for policy, found in _by(rows, "policy").items():
        cost = Cost.of(found)
        nodes = [_mean(_values(found, f"{pool}_nodes_p95")) for pool in ("rollout", "train")]
        wait_s = _mean(_values(found, "wait_p95_s"))
        wait = "-" if wait_s is None else f"{wait_s / _MINUTE_S:,.1f}"
        table.add_row(
            str(policy),
            f"{cost.runs:,}",
            _money(cost.mean),
            _money(cost.best),
            *("-" if n is None else f"{n:,.1f}" for n in nodes),
            _share(_mean(_values(found, "slo_attainment"))),
            *((wait,) if waits else ()),
            f"{cost.failed:,}",
        )
    return table


def _axis_table(axis: str, convention: str, values: Sequence[Cell], rows: Sequence[Row]) -> Table:
    """Return the $/h of every value of an axis: mean and best by policy, of many the mean."""
    from rich.markup import escape

    policies = list(_by(rows, "policy"))
    best = len(policies) <= _MAX_PAIRS
    headers = ["value"]
    for policy in policies:
        headers += [f"{policy}\n$/h mean", *(["\n$/h best"] if best else [])]
    table = _empty(f"{axis}, durations {convention}", headers)
    by_value = _by(rows, axis)
    for value in values[:_MAX_SHOWN]:
        by_policy = _by(by_value.get(value, []), "policy")
        cells = []
        for policy in policies:
            cost = Cost.of(by_policy.get(policy, []))
            cells += [_money(cost.mean), *([_money(cost.best)] if best else [])]
        table.add_row(escape(_short(_shown(value))), *cells)
    if len(values) > _MAX_SHOWN:
        table.caption = f"{len(values) - _MAX_SHOWN:,} more values are in the file."
        table.caption_justify = "left"
    return table


def _best_sentence(outcome: SweepOutcome, convention: str, rows: Sequence[Row]) -> str | None:
    """Return the cheapest run in words: of those that meet every SLO, where some do."""
    keeping = [row for row in rows if row["slo_attainment"] == 1]
    least = Cost.of(keeping or rows).least
    if least is None:
        return None
    axes = ", ".join(f"{axis} {_shown(axis_value(least, axis))}" for axis, _ in _varied(outcome))
    of = f" with {axes}" if axes else ""
    slo = "every SLO met" if keeping else "no run meets every SLO"
    if least["wait_p95_s"] is not None:
        slo += ", waiting apart"
    return (
        f"Cheapest ({convention}; {slo}): {least['policy']}{of}: ${_usd(least):,.2f}/h on average "
        f"(run {least['run']})."
    )


def print_sweep(outcome: SweepOutcome, console: Console) -> None:
    """Print the tables of a study."""
    if not outcome.rows:
        console.print("No run has finished.", markup=False)
        return
    for convention, rows in _conventions(outcome):
        console.print(_policy_table(outcome, convention, rows))
        for axis, values in _varied(outcome):
            console.print(_axis_table(axis, convention, values, rows))
        sentence = _best_sentence(outcome, convention, rows)
        if sentence is not None:
            console.print(sentence, markup=False)
    console.print(
        "$/h: price of all nodes held, mean over time; mean and best are over runs.", markup=False
    )


def failure_lines(outcome: SweepOutcome) -> Iterator[str]:
    """Yield a line per run that failed, the first few."""
    found = outcome.failed
    for row in found[:_MAX_SHOWN]:
        yield (
            f"run {row['run']} ({row['policy']}, trace {row['trace']}) failed: "
            f"{row['error_type']}: {row['error']}"
        )
    if len(found) > _MAX_SHOWN:
        yield f"{len(found) - _MAX_SHOWN:,} more runs failed: see the column error."


# --- JSON -----------------------------------------------------------------------------------------


def _cost_document(rows: Sequence[Row]) -> dict[str, Any]:
    cost = Cost.of(rows)
    return {
        "runs": cost.runs,
        "failed": cost.failed,
        "usd_per_hour_mean": cost.mean,
        "usd_per_hour_best": cost.best,
        "best_run": None if cost.least is None else cost.least["run"],
    }


def sweep_document(outcome: SweepOutcome, study_file: str, out: str) -> dict[str, Any]:
    """Return the document of ``planner sweep --json``; what is unknown is null."""
    rows = outcome.rows
    cells = {
        (policy, convention): found
        for convention, part in _conventions(outcome)
        for policy, found in _by(part, "policy").items()
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "sweep",
        "inputs": {"study": study_file, "name": outcome.study.name},
        "out": out,
        "runs": len(outcome.study.runs),
        "finished": len(rows),
        "kept": outcome.kept,
        "failed": len(outcome.failed),
        "interrupted": outcome.interrupted,
        "policies": [
            {
                "policy": policy,
                "convention": convention,
                **_cost_document(found),
                "slo_attainment_mean": _mean(_values(found, "slo_attainment")),
            }
            for (policy, convention), found in cells.items()
        ],
        "axes": [
            {
                "axis": axis,
                "value": value,
                "policy": policy,
                "convention": convention,
                **_cost_document(part),
            }
            for axis, _ in _varied(outcome)
            for (policy, convention), found in cells.items()
            for value, part in _by(found, axis).items()
        ],
        "failures": [
            {key: row[key] for key in ("run", "run_id", "error_type", "error")}
            for row in outcome.failed
        ],
    }
