"""``import planner``: what is public, where it comes from, and that it is ours."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import planner

SOURCE = Path(planner.__file__)
ROOT = SOURCE.resolve().parents[1]


def typed_imports() -> dict[str, str]:
    """Return name -> module of the imports under ``if TYPE_CHECKING``."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.asname or alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_all_is_sorted_as_ruff_sorts_it() -> None:
    # Constants, then classes, then functions; in each the alphabet.
    def key(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert list(planner.__all__) == sorted(planner.__all__, key=key)
    assert len(set(planner.__all__)) == len(planner.__all__)


def test_the_three_lists_of_names_agree() -> None:
    assert set(planner.__all__) == set(planner._HOME)
    assert typed_imports() == planner._HOME


@pytest.mark.parametrize("name", planner.__all__)
def test_every_name_is_that_of_its_home_and_documented(name: str) -> None:
    value = getattr(planner, name)
    home = importlib.import_module(planner._HOME[name])
    assert value is getattr(home, name)
    assert name in home.__all__
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__, name
        first = value.__doc__.strip().splitlines()[0]
        assert len(first) > 15
        # A dataclass without words gets its signature as docstring.
        assert not first.startswith(f"{name}(")


#: Public functions whose docstring has an example, which is run here.
SHOWN = (
    "cheapest_fleet",
    "cheapest_fleets",
    "fleet_uncertainty",
    "gantt_figure",
    "newsvendor",
    "optimality_gap",
    "owned_and_rented",
    "plan_trace",
    "price_crossover",
    "schedule_group",
    "simulate_trace",
    "size_trace",
    "snapshot_bounds",
    "solve_snapshot",
)


@pytest.mark.parametrize("name", SHOWN)
def test_examples_of_public_functions_hold(name: str) -> None:
    home = importlib.import_module(planner._HOME[name])
    (test,) = (
        found
        for found in doctest.DocTestFinder(recurse=False).find(
            getattr(home, name), name, home, vars(home)
        )
        if found.examples
    )
    words: list[str] = []
    assert doctest.DocTestRunner().run(test, out=words.append).failed == 0, "".join(words)


def test_names_are_listed_and_others_are_refused() -> None:
    assert set(planner.__all__) <= set(dir(planner))
    with pytest.raises(AttributeError, match="module 'planner' has no attribute 'plan_trce'"):
        planner.plan_trce  # noqa: B018
    with pytest.raises(ImportError, match="plan_trce"):
        exec("from planner import plan_trce")


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_importing_planner_is_light(tmp_path: Path) -> None:
    code = (
        "import sys, planner; "
        "print([m for m in ('numpy', 'pandas', 'pydantic', 'rich', 'typer', 'ortools', 'pyomo', "
        "'highspy') if m in sys.modules])"
    )
    got = python(code, tmp_path)
    assert (got.returncode, got.stdout) == (0, "[]\n")


def test_star_gives_the_public_names_only(tmp_path: Path) -> None:
    code = (
        "before = set(dir()) | {'before'}\nfrom planner import *\n"
        "import planner\n"
        "print(set(dir()) - before - {'planner'} == set(planner.__all__))"
    )
    got = python(code, tmp_path)
    assert got.stdout == "True\n", got.stderr


def test_a_trace_is_planned_from_python(tmp_path: Path) -> None:
    code = """
from pathlib import Path
import planner
trace = planner.jobs_from_frame  # both ways in are public
from instances.catalog import catalog_path
trace = planner.read_trace(catalog_path("tiny-open-shop"))
report = planner.plan_trace(trace, baselines=["solo"], limits=planner.Limits(max_group_size=2))
plan = report.result("weave").plan
planner.write_plan_json(plan, "plan.json")
print(planner.check_plan(planner.read_plan("plan.json")).ok, report.saving("solo", "work"))
"""
    got = python(code, tmp_path)
    assert got.stdout == "True 2.0\n", got.stderr


@pytest.mark.parametrize("name", ["models", "instances"])
@pytest.mark.parametrize("kind", ["module", "package", "namespace"])
def test_a_decoy_is_refused_by_name(name: str, kind: str, tmp_path: Path) -> None:
    # ``python -m`` puts the working folder first on the path: the decoy wins.
    decoy = tmp_path / f"{name}.py"
    if kind == "package":
        decoy = tmp_path / name / "__init__.py"
    if kind == "namespace":  # no __init__.py: the real package wins, and all is well
        decoy = tmp_path / name / "notes.txt"
    decoy.parent.mkdir(exist_ok=True)
    decoy.write_text("raise SystemExit('the decoy was run')\n", encoding="utf-8")
    got = subprocess.run(
        [sys.executable, "-m", "planner", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "the decoy was run" not in got.stderr
    if kind == "namespace":
        assert got.returncode == 0, got.stderr
        return
    assert got.returncode == 1
    assert got.stdout == ""
    last = got.stderr.splitlines()[-1]
    assert last.startswith("ImportError: rl-fleet-planner needs its own package")
    assert f"'{name}' from {ROOT / name}" in last
    assert str(decoy) in last
    assert "Run from another folder, or rename" in last


def test_a_decoy_that_is_already_loaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("", encoding="utf-8")
    got = python("import models\nimport planner", tmp_path)
    assert got.returncode == 1
    assert str(tmp_path / "models.py") in got.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["plan", "planner"])
def test_console_scripts_do_not_see_the_working_folder(name: str, tmp_path: Path) -> None:
    script = Path(sys.executable).parent / name
    if not script.is_file():
        pytest.skip(f"the project is not installed: no {script}")
    (tmp_path / "models.py").write_text("raise SystemExit('the decoy was run')\n")
    got = subprocess.run(
        [str(script), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith("rl-fleet-planner ")
