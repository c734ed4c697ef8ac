"""``planner doctor``: all is well here, and what is not is told, each thing by itself."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from command_line import invoke, run
from instances.errors import CheckError
from models.exact import methods
from planner.first_run import machine as machine_module
from planner.first_run import self_check as checks_module
from planner.first_run.doctor import Diagnosis, advice_lines, doctor_document, print_doctor
from planner.first_run.machine import (
    DISTRIBUTION,
    USES,
    Package,
    machine,
    meets,
    one_line,
    packages,
    solvers_together,
)
from planner.first_run.self_check import Outcome, method_names, self_check

NOTHING_SLOW: Callable[[], dict[str, str]] = lambda: {"in one order": ""}  # noqa: E731


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """The checks of one run in this process, by name; the exact methods alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks_module, "method_names", lambda: tuple(methods.METHODS))
        patch.setattr(checks_module, "solvers_together", NOTHING_SLOW)
        ticks = iter(range(1000))
        return {o.name: o for o in self_check(clock=lambda: float(next(ticks)))}


def failing(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, Outcome]:
    """The checks where only these methods are asked."""
    monkeypatch.setattr(checks_module, "method_names", lambda: names)
    monkeypatch.setattr(checks_module, "solvers_together", NOTHING_SLOW)
    return {outcome.name: outcome for outcome in self_check(clock=lambda: 0.0)}


# --- the command ----------------------------------------------------------------------------------


def test_the_command_finds_this_installation_ready(tmp_path: Path) -> None:
    """One process, the whole of it: every method, and nothing written where it runs."""
    outcome = run("doctor", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["ok"]
    assert found["failed"] == []
    checks = {check["name"]: check for check in found["checks"]}
    assert set(method_names()) <= set(checks)
    assert all(check["ok"] for check in checks.values())
    costs = {checks[name]["usd_per_hour"] for name in methods.METHODS}
    assert max(costs) - min(costs) <= 1e-6 * max(costs)
    assert checks["agreement"]["usd_per_hour"] == pytest.approx(checks["export"]["usd_per_hour"])
    assert "seconds" not in next(iter(checks.values()))
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in outcome.err


def test_it_fails_with_exit_code_1_and_says_what_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers that clash: one check fails, the others go on."""
    clash = {"HiGHS first": "ImportError: symbol not found", "CP-SAT first": ""}
    monkeypatch.setattr(checks_module, "method_names", lambda: ("exhaustive",))
    monkeypatch.setattr(checks_module, "solvers_together", lambda: clash)
    monkeypatch.setattr(machine_module, "packages", lambda: ())
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")  # this process's kernels stay as they are
    outcome = invoke("doctor", "--verbose")
    assert outcome.code == 1
    assert "NOT ready: 1 failed: solvers." in outcome.out
    assert "HiGHS first: ImportError: symbol not found" in outcome.err
    assert "Next: python -m pip install" in outcome.err
    assert "Traceback" in outcome.err  # only because of --verbose
    assert "proved least" in outcome.out  # the others went on


def test_a_broken_optional_package_is_no_failure_and_its_advice_a_sentence_of_its_own() -> None:
    broken = Package(
        name="numba",
        wanted=">=0.61",
        extra="speed",
        version="0.68",
        fault="ImportError: no llvm",
        use="speed",
    )
    found = Diagnosis(machine=machine(), packages=(broken,), outcomes=())
    assert found.ok
    out = io.StringIO()
    print_doctor(found, Console(file=out, width=160))
    assert "speed (optional). ImportError: no llvm. Get it: " in out.getvalue()


# --- the checks -----------------------------------------------------------------------------------


def test_every_check_passes_here(outcomes: dict[str, Outcome]) -> None:
    assert {name: o.found for name, o in outcomes.items() if not o.ok} == {}
    assert set(methods.METHODS) <= set(outcomes)


def test_seconds_are_the_clocks(outcomes: dict[str, Outcome]) -> None:
    """A clock that ticks once a reading: two readings a check, one second apart."""
    assert {outcome.seconds for outcome in outcomes.values()} == {1.0}


def test_a_new_method_is_checked_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.snapshot import solving

    names = (*solving.SNAPSHOT_METHODS, "new-one")
    monkeypatch.setattr(solving, "SNAPSHOT_METHODS", names)
    assert method_names()[-1] == "new-one"
    assert solving.AUTO not in method_names()


def test_a_method_that_breaks_is_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.METHODS, "milp", "models.exact.no_such_module")
    found = failing(monkeypatch, "exhaustive", "milp")
    assert found["exhaustive"].ok
    assert not found["milp"].ok
    assert "no_such_module" in found["milp"].found
    assert "Traceback" in found["milp"].details
    assert "\n" not in found["milp"].found
    assert {name for name, outcome in found.items() if not outcome.ok} == {"milp"}


def test_methods_that_disagree_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that claims an optimum 1 % dearer than the others: it is proved, and wrong."""
    from planner.snapshot import solving

    true = solving.solve_snapshot

    def solve(*args: Any, method: str, **options: Any) -> Any:
        report = true(*args, method="exhaustive", **options)
        if method == "exhaustive":
            return report
        wrong = 1.01 * report.result.usd_per_hour
        result = dataclasses.replace(report.result, usd_per_hour=wrong, bound_usd_per_hour=wrong)
        return dataclasses.replace(report, result=result)

    monkeypatch.setattr(solving, "solve_snapshot", solve)
    found = failing(monkeypatch, "exhaustive", "milp")
    assert not found["agreement"].ok
    assert "Optima differ" in found["agreement"].found
    assert not found["export"].ok  # the model file sides with one of them


def test_a_checker_that_accepts_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from instances import checker

    true = checker.check_plan

    def lenient(plan: Any) -> Any:
        return dataclasses.replace(true(plan), violations=(), counts={})

    monkeypatch.setattr(checker, "check_plan", lenient)
    found = failing(monkeypatch, "exhaustive")
    assert not found["checker"].ok
    assert "accepts a plan that is wrong" in found["checker"].found


def test_without_any_plan_the_rest_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = failing(monkeypatch)
    assert not found["agreement"].ok
    assert not found["picture"].ok
    assert found["placer"].ok


# --- packages -------------------------------------------------------------------------------------


def test_every_package_declared_is_listed_with_its_use() -> None:
    found = {package.name: package for package in packages()}
    declared = {re.split(r"[^\w.-]", line)[0] for line in metadata.requires(DISTRIBUTION) or ()
                if "extra ==" not in line}  # fmt: skip
    assert declared <= set(found)
    assert {"numba", "pyarrow", "distributed"} <= set(found)
    assert all(found[name].extra is None for name in declared)
    assert {package.name for package in found.values() if not package.use} == set()
    assert {package.name for package in found.values() if package.broken} == set()


def test_uses_name_no_package_that_is_gone() -> None:
    import tomllib

    root = Path(__file__).resolve().parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(x for k, v in extras.items() if k != "dev" for x in v)]
    assert set(USES) == {re.split(r"[^\w.-]", line)[0] for line in lines}


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("1.16.0", ">=1.14,!=1.15.0,!=1.15.1", True),
        ("1.15.0", ">=1.14,!=1.15.0,!=1.15.1", False),
        ("1.15.1", "!=1.15.0,!=1.15.1,>=1.14", False),
        ("1.9", ">=1.14", False),
        ("2.0", ">=2", True),
        ("1.27", "<2,>=1.27", True),
        ("2.0.1", "<2", False),
        ("9.15.6755", ">=9.15", True),
        ("3.0rc1", "", True),
    ],
)
def test_ranges(version: str, wanted: str, expected: bool) -> None:
    assert meets(version, wanted) is expected


def declare(monkeypatch: pytest.MonkeyPatch, *lines: str) -> dict[str, Package]:
    monkeypatch.setattr(machine_module.metadata, "requires", lambda _: list(lines))
    return {package.name: package for package in packages()}


def test_missing_broken_and_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    found = declare(
        monkeypatch,
        "numpy>=999",
        "no-such-package-here>=1",
        "absent-extra-here>=1; extra == 'parquet'",
        "numpy>=1; extra == 'dev'",
    )
    assert set(found) == {"numpy", "no-such-package-here", "absent-extra-here"}
    assert found["numpy"].broken
    assert found["numpy"].fault.startswith("Expected numpy>=999, got ")
    assert found["no-such-package-here"].broken
    optional = found["absent-extra-here"]
    assert (optional.state, optional.broken) == ("absent", False)
    assert optional.advice == "python -m pip install '.[parquet]'"


def test_a_package_that_cannot_be_imported_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true = machine_module.importlib.import_module

    def broken(name: str) -> Any:
        if name == "rich":
            raise OSError("libc.so.9: cannot open\nshared object file")
        return true(name)

    monkeypatch.setattr(machine_module.importlib, "import_module", broken)
    found = declare(monkeypatch, "rich>=13", "typer>=0.1")
    assert found["rich"].fault == "OSError: libc.so.9: cannot open shared object file"
    assert found["typer"].state == "ok"


def test_the_solvers_are_tried_in_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"good": "pass", "bad": "raise ImportError('undefined symbol')", "dies": "1/0"}
    monkeypatch.setattr(machine_module, "_ORDERS", programs)
    found = solvers_together()
    assert found["good"] == ""
    assert found["bad"] == "ImportError: undefined symbol"
    assert "ZeroDivisionError" in found["dies"]


# --- the machine, and how it is told --------------------------------------------------------------


def test_a_container_limits_cores_and_memory(tmp_path: Path) -> None:
    """A quota of 150 ms in 100 ms is two cores at most; without files there is no limit."""
    (tmp_path / "cpu.max").write_text("150000 100000\n", encoding="ascii")
    (tmp_path / "memory.max").write_text("2000000000\n", encoding="ascii")
    assert machine_module._cores(tmp_path) <= 2
    assert machine_module._memory_gb(tmp_path) == 2.0
    (tmp_path / "cpu.max").write_text("max 100000\n", encoding="ascii")
    assert machine_module._cores(tmp_path) == machine_module._cores(tmp_path / "none")


def diagnosis(**changes: Any) -> Diagnosis:
    outcome = Outcome(name="milp", what="method", ok=True, found="proved least", usd_per_hour=1.0)
    broken = Package(
        name="numba", wanted=">=1", extra="speed", version="1", fault="OSError: no", use="speed"
    )
    found = Diagnosis(machine=machine(), packages=(broken,), outcomes=(outcome,))
    return dataclasses.replace(found, **changes)


def printed(found: Diagnosis, width: int) -> str:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    print_doctor(found, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 160])
def test_it_fits_the_terminal(width: int) -> None:
    text = printed(diagnosis(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "Ready: 1 checks passed." in text
    assert "proved least" in text


def test_a_broken_optional_package_is_a_note() -> None:
    found = diagnosis()
    assert found.ok
    assert advice_lines(found) == []
    assert "pip install '.[speed]'" in printed(found, 160)


def test_what_failed_is_told_with_what_to_do() -> None:
    bad = Outcome(name="files", what="x", ok=False, found="OSError: full", advice="Make room.")
    found = diagnosis(outcomes=(bad,))
    assert not found.ok
    assert found.failed == ("files",)
    assert advice_lines(found) == ["files: OSError: full. Next: Make room."]
    assert "NOT ready: 1 failed: files." in printed(found, 80)


def test_seconds_are_in_the_document_only_when_asked() -> None:
    assert "seconds" not in doctor_document(diagnosis())["checks"][0]
    assert "seconds" in doctor_document(diagnosis(), timings=True)["checks"][0]


def test_an_error_is_one_line_and_not_too_long() -> None:
    assert one_line(ValueError("a\n b")) == "ValueError: a b"
    assert one_line(KeyError()) == "KeyError"
    assert one_line(CheckError("No plan.")) == "No plan."
    assert len(one_line("x" * 1000)) == 200
