"""Shell completion: commands, options and values, one or in a list, in bash, zsh and fish."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import run
from instances.catalog import CATALOG
from planner.cli import completion
from planner.cli.app import app, plan_app
from planner.policies.registry import POLICIES
from planner.reproduce.runtime_study import STUDIES
from planner.simulate.drift import DRIFT_POLICIES
from planner.simulate.drift_templates import SETTINGS
from planner.simulate.simulating import PARTS
from planner.snapshot.solving import SNAPSHOT_METHODS

#: As the console scripts start, by their own names.
SCRIPT = "import sys; sys.argv[0] = '{0}'; from planner.cli.main import {1}; {1}()"
PLANNER = [sys.executable, "-c", SCRIPT.format("planner", "main")]
PLAN = [sys.executable, "-c", SCRIPT.format("plan", "plan_main")]


def bash(line: str) -> list[str]:
    """Return what bash offers for the last word of a line."""
    name = line.partition(" ")[0]
    env = {
        f"_{name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = CliRunner().invoke(plan_app if name == "plan" else app, prog_name=name, env=env)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("planner sna", ["snapshot"]),
        ("planner plan --basel", ["--baselines"]),
        ("plan --policy so", ["solo"]),
        ("plan --baselines solo,co", ["solo,colocated"]),
        ("planner plan --durations w", ["work", "wallclock"]),
        ("planner snapshot --method ", list(SNAPSHOT_METHODS)),
        ("planner gap --tie-rule o", ["oldest"]),
        ("planner size --only fleet,un", ["fleet,uncertainty"]),
        ("planner size --skip lo", ["loss"]),
        ("planner simulate --drift-settings none,mi", ["none,mixed"]),
        ("planner generate tiny-g", ["tiny-gang"]),
        ("planner import ve", ["verl"]),
        ("planner explain wea", ["weave"]),
        ("planner explain H8", ["H800"]),
        ("planner explain --kind rule,me", ["rule,method"]),
        ("planner gap --trace production-2", ["production-200"]),
        ("planner gap --trace ", []),  # the shell offers files
    ],
)
def test_bash(line: str, offered: list[str]) -> None:
    assert bash(line) == offered


@pytest.mark.parametrize("words", [PLANNER, PLAN], ids=["planner", "plan"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_and_values(shell: str, words: list[str], tmp_path: Path) -> None:
    name = "PLAN" if words is PLAN else "PLANNER"
    line = "plan --policy we" if words is PLAN else "planner plan --policy we"
    script = run(cwd=tmp_path, words=words, **{f"_{name}_COMPLETE": f"source_{shell}"})
    assert f"_{name}_COMPLETE" in script.out
    offered = run(
        cwd=tmp_path,
        words=words,
        **{
            f"_{name}_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        },
    )
    assert "weave" in offered.out
    assert "solo" not in offered.out


def test_names_given_are_not_offered_again() -> None:
    complete = completion.listed(completion.policies)
    assert complete("solo,so") == []
    assert complete("so") == ["solo"]
    assert set(complete("weave,")) == {f"weave,{name}" for name in POLICIES if name != "weave"}


def test_names_that_are_written_down_twice_are_the_same() -> None:
    """Modules that take long to import are not asked at a press of Tab."""
    assert completion.SIMULATE_PARTS == PARTS
    assert completion.STUDIES == STUDIES
    assert completion.DRIFT_POLICIES == DRIFT_POLICIES
    assert set(completion.DRIFT_SETTINGS) == set(SETTINGS)


def test_shipped_traces_by_name() -> None:
    assert completion.catalog_names("tiny-") == [n for n in CATALOG if n.startswith("tiny-")]


def test_nothing_heavy_is_imported_at_a_press_of_tab(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from planner.cli import app, completion as c\n"
        "for names in (c.policies, c.methods, c.tie_rules,\n"
        "              c.size_parts, c.generators, c.profiles, c.catalog_names):\n"
        "    assert names('') or names is c.catalog_names\n"
        "heavy = {'pandas', 'pyomo', 'ortools', 'highspy', 'matplotlib', 'scipy', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert run(cwd=tmp_path, words=[sys.executable, "-c", code]).out == "[]\n"
