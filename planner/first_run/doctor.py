"""What ``planner doctor`` answers: is this installation fit for work? As table and as document."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from planner.first_run.machine import Machine, Package
from planner.first_run.self_check import PROBLEM, Outcome
from planner.output.fitting_tables import bare_table

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Diagnosis", "advice_lines", "doctor_document", "print_doctor"]

_SCHEMA_VERSION: Final = 1
_LEAST_COLUMNS: Final = 80


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything that was looked at."""

    machine: Machine
    packages: tuple[Package, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed and no required package is broken."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of required packages that are broken, and of checks that failed."""
        return (
            *(package.name for package in self.packages if package.broken),
            *(outcome.name for outcome in self.outcomes if not outcome.ok),
        )


def advice_lines(diagnosis: Diagnosis) -> list[str]:
    """Return, for what failed, what is wrong and what to do next, one line each."""
    out = [
        f"{package.name}: {_ended(package.fault)} Next: {package.advice}"
        for package in diagnosis.packages
        if package.broken
    ]
    out += [
        f"{outcome.name}: {_ended(outcome.found)} Next: {outcome.advice}"
        for outcome in diagnosis.outcomes
        if not outcome.ok
    ]
    return out


def _ended(words: str) -> str:
    return words if words.endswith(".") else f"{words}."


def doctor_document(diagnosis: Diagnosis, *, timings: bool = False) -> dict[str, Any]:
    """Return the document of ``planner doctor --json``; what is unknown is null."""
    checks = []
    for outcome in diagnosis.outcomes:
        kept = dataclasses.asdict(outcome)
        kept.pop("details")
        seconds = kept.pop("seconds")
        checks.append({**kept, "seconds": seconds} if timings else kept)
    return {
        "schema_version": _SCHEMA_VERSION,
        "command": "doctor",
        "inputs": {"trace": PROBLEM},
        "ok": diagnosis.ok,
        "failed": list(diagnosis.failed),
        "machine": dataclasses.asdict(diagnosis.machine),
        "packages": [
            {**dataclasses.asdict(package), "state": package.state}
            for package in diagnosis.packages
        ],
        "checks": checks,
    }


# --- in print -------------------------------------------------------------------------------------


def _rows_of(machine: Machine) -> list[tuple[str, str]]:
    terminal, memory = machine.terminal, machine.memory_gb
    where = "a terminal" if terminal.is_terminal else "not a terminal"
    colour = "colour" if terminal.colour else "no colour"
    limits = ", ".join(f"{name}={value}" for name, value in machine.threads.items())
    narrow = f"; tables want {_LEAST_COLUMNS}" if terminal.columns < _LEAST_COLUMNS else ""
    return [
        ("planner", machine.version),
        ("Python", machine.python),
        ("platform", machine.platform),
        ("cores", f"{machine.cores} usable"),
        ("memory", "unknown" if memory is None else f"{memory:g} GB"),
        ("threads", f"solvers use 1 each; {limits or 'no limit set for libraries'}"),
        (
            "output",
            f"{where}, {terminal.columns} columns{narrow}, {terminal.encoding}, {colour}",
        ),
    ]


def _table(title: str, heads: Sequence[str], *, right: Sequence[str] = ()) -> Any:

    table = bare_table(title)
    for head in heads:
        last = head == heads[-1]  # words: what is left of the line
        table.add_column(head, justify="right" if head in right else "left", no_wrap=not last)
    return table


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _state(words: str) -> Any:
    from rich.text import Text

    return Text(words, style={"ok": "green", "FAILED": "bold red"}.get(words, "dim"))


def print_doctor(diagnosis: Diagnosis, console: Console) -> None:
    """Print the answer, the machine, the packages and the checks."""
    from rich.text import Text

    failed = diagnosis.failed
    answer = (
        f"Ready: {len(diagnosis.outcomes)} checks passed."
        if diagnosis.ok
        else f"NOT ready: {len(failed)} failed: {', '.join(failed)}."
    )
    console.print(Text(answer, style="bold"))
    console.print()
    for name, words in _rows_of(diagnosis.machine):
        console.print(Text(f"{name:<9} {words}"))
    _print_packages(diagnosis.packages, console)
    _print_checks(diagnosis.outcomes, console)


def _print_packages(packages: Sequence[Package], console: Console) -> None:
    from rich.text import Text

    table = _table("Packages", ("package", "version", "", "for"), right=("version",))
    for package in packages:
        use = f"{package.use} (optional)" if package.extra else package.use
        if package.extra and package.state != "ok":
            fault = _ended(package.fault) if package.fault else ""
            use = " ".join(filter(None, (f"{use}.", fault, f"Get it: {package.advice}")))
        words = package.fault if package.broken else use
        table.add_row(package.name, package.version or "-", _state(package.state), Text(words))
    console.print()
    console.print(table)


def _print_checks(outcomes: Sequence[Outcome], console: Console) -> None:
    from rich.text import Text

    heads = ("check", "cost $/h", "bound $/h", "", "s", "what was found")
    table = _table(f"Self-check on {PROBLEM}", heads, right=("cost $/h", "bound $/h", "s"))
    for outcome in outcomes:
        table.add_row(
            outcome.name,
            _usd(outcome.usd_per_hour),
            _usd(outcome.bound_usd_per_hour),
            _state("ok" if outcome.ok else "FAILED"),
            f"{outcome.seconds:.2f}",
            Text(outcome.found),
        )
    console.print()
    console.print(table)
