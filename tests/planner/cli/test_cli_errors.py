"""What is misspelt is answered with the nearest right name, and with what to do next."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import OPEN_SHOP, PRODUCTION, environment, invoke, ok, refused, run, write
from instances.cluster_file import ClusterTables
from instances.coefficients import Coefficients
from instances.file_kinds import KEYS
from planner.size.cost_file import CostTables
from planner.sweep import study

CLUSTER = '[rollout]\ngpu = "H20"\nhbm_gb = 96\n[train]\ngpu = "H800"\n[links]\nlinks = 4\n'
TRACE = ("--trace", OPEN_SHOP)
TO_CLUSTER = "a cluster file: give it to --cluster."
HEADER, *ROWS = OPEN_SHOP.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, and work in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


MISSPELT = {
    "command": (("snapshto",), ("Unknown command 'snapshto'. Did you mean 'snapshot'?", "size")),
    "format": (("import", "phily", "x"), ("'phily'. Did you mean 'philly'?",)),
    "option": (
        ("plan", "--trace", OPEN_SHOP, "--baseline", "solo"),
        ("Unknown option '--baseline'. Did you mean '--baselines'? planner plan -h",),
    ),
    "option, in part": (("gap", "--max-group", "3"), ("Did you mean '--max-group-size'?",)),
    "no option": (("gap", "--zzz"), ("Unknown option '--zzz'. planner gap -h explains",)),
    "missing option": (("plan",), ("Expected --trace FILE, got nothing. planner plan -h",)),
    "missing argument": (("check",), ("Expected PLAN, got nothing.",)),
    "one too many": (("check", "a", "b"), ("(b)", "planner check -h")),
    "choice": (
        ("plan", "--trace", OPEN_SHOP, "--durations", "wallclok"),
        ("Expected --durations in work, wallclock, got 'wallclok'. Did you mean 'wallclock'?",),
    ),
    "number": (
        ("plan", "--trace", OPEN_SHOP, "--max-rate", "17"),
        ("Expected --max-rate <= 16, got '17'. Most iterations of a job per period of its group.",),
    ),
    "no number": (
        ("import", "philly", "log.csv", "--out", "t.csv", "--hours", "1w"),
        ("Expected --hours to be a number, got '1w'. Length of the window of arrivals, hours.",),
    ),
    "no whole number": (
        ("import", "philly", "log.csv", "--out", "t.csv", "--min-gpus", "2.5"),
        ("Expected --min-gpus to be a whole number, got '2.5'. Fewest GPUs.",),
    ),
    "too small": (
        ("import", "philly", "log.csv", "--out", "t.csv", "--min-hours", "-1"),
        ("Expected --min-hours >= 0, got '-1'. Least duration, h.",),
    ),
    "policy": (("plan", "--trace", OPEN_SHOP, "--policy", "weav"), ("Did you mean 'weave'?",)),
    "baseline": (
        ("plan", "--trace", OPEN_SHOP, "--baselines", "solo,collocated"),
        ("Did you mean 'colocated'?",),
    ),
    "convention": (
        ("gap", "--trace", OPEN_SHOP, "--durations", "wallclok"),
        ("Expected --durations in work, wallclock, got 'wallclok'.",),
    ),
    "objective": (
        ("gap", "--trace", OPEN_SHOP, "--objective", "per-hou"),
        ("Expected --objective in per-hour,", "Did you mean 'per-hour'?"),
    ),
    "tie rule": (
        ("gap", "--trace", OPEN_SHOP, "--tie-rule", "tighest"),
        ("Expected --tie-rule in ", "Did you mean 'tightest'?"),
    ),
    "method": (
        ("snapshot", "--trace", OPEN_SHOP, "--method", "set-partiton"),
        ("Expected --method in ", "Did you mean 'set-partition'?"),
    ),
    "part of size": (("size", "--trace", OPEN_SHOP, "--only", "flet"), ("mean 'fleet'?",)),
    "part of simulate": (
        ("simulate", "--trace", OPEN_SHOP, "--only", "driftt"),
        ("Did you mean 'drift'?",),
    ),
    "study": (("reproduce", "--studies", "micr"), ("Did you mean 'micro'?",)),
    "generator": (("generate", "productoin", "--out", "y.csv"), ("mean 'production'?",)),
    "kind": (
        ("generate", "profiles", "--kind", "balancd", "--out", "y.csv"),
        ("Expected --kind in ", "Did you mean 'balanced'?"),
    ),
    "shipped trace": (
        ("plan", "--trace", "production-20"),
        ("No such file, and no shipped trace", "Did you mean 'production-200'?", "tiny-gang"),
    ),
    "a folder for a trace": (
        ("plan", "--trace", OPEN_SHOP.parent),
        ("Expected --trace a file, got a folder. It has ", "mixed-300.csv"),
    ),
    "a plan for a trace": (("gap", "--trace", "plan.json"), ("got JSON. planner check and",)),
    "settings for a trace": (("gap", "--trace", "c.toml"), ("got TOML. --cluster, --costs and",)),
    "a trace for a plan": (
        ("check", "jobs.csv"),
        ("Expected a plan (plan.json), got a trace. plan --trace jobs.csv --out DIR writes one.",),
    ),
    "a trace to repack": (("repack", "--plan", "jobs.csv"), ("Expected a plan (plan.json)",)),
    "quiet and verbose": (
        ("plan", "--trace", OPEN_SHOP, "-q", "-v"),
        ("Expected one of --quiet and --verbose, got both.",),
    ),
}


@pytest.mark.parametrize(("words", "parts"), MISSPELT.values(), ids=MISSPELT)
def test_what_is_misspelt(
    words: tuple[str | Path, ...], parts: tuple[str, ...], folder: Path
) -> None:
    got = invoke(*words)
    refused(got, *parts)
    assert got.err.startswith("error: ")
    assert len(got.err.splitlines()) == 1


@pytest.mark.parametrize(("right", "wrong"), [("rollout_s", "rolout_s"), ("slo", "sloo")])
def test_a_misspelt_column_that_is_needed(right: str, wrong: str, folder: Path) -> None:
    header = re.sub(rf"\b{right}\b", wrong, HEADER)
    write(folder / "t.csv", "\n".join([header, *ROWS]) + "\n")
    refused(invoke("plan", "--trace", "t.csv"), f"Missing column {right}", f"mean '{wrong}'?")


@pytest.mark.parametrize(
    ("words", "text", "guess"),
    [
        (("plan", "--trace", OPEN_SHOP, "--cluster"), "[rolout]\n", "rollout"),
        (("plan", "--trace", OPEN_SHOP, "--coefficients"), "train_mfuu = 0.4\n", "train_mfu"),
        (("size", "--trace", OPEN_SHOP, "--costs"), "[site]\npuee = 1.2\n", "pue"),
        (("sweep", "--out", "t.csv"), 'policys = ["weave"]\n', "policies"),
    ],
    ids=["cluster", "coefficients", "costs", "study"],
)
def test_a_misspelt_key(words: tuple[str, ...], text: str, guess: str, folder: Path) -> None:
    write(folder / "s.toml", text)
    refused(invoke(*words, "s.toml"), "s.toml: Unknown", f"Did you mean '{guess}'?")


@pytest.mark.parametrize(
    ("words", "kind", "text", "said"),
    [
        (("size", *TRACE, "--costs"), "cost file", CLUSTER, TO_CLUSTER),
        (("plan", *TRACE, "--coefficients"), "file of coefficients", CLUSTER, TO_CLUSTER),
        (("sweep",), "study", CLUSTER, TO_CLUSTER),
        (("plan", *TRACE, "--cluster"), "cluster file", "[site]\npue = 1.2\n",
         "a cost file: give it to --costs."),
        (("plan", *TRACE, "--cluster"), "cluster file", "train_mfu = 0.4\n",
         "a file of coefficients: give it to --coefficients."),
        (("plan", *TRACE, "--cluster"), "cluster file", 'policies = ["weave"]\n',
         "a study: give it to planner sweep."),
    ],
)  # fmt: skip
def test_a_file_for_another_option_is_one_fault(
    words: tuple[str, ...], kind: str, text: str, said: str, folder: Path
) -> None:
    got = invoke(*words, write(folder / "f.toml", text))
    refused(got, f"f.toml: Expected a {kind}; these are keys of {said}")
    assert len(got.err.splitlines()) == 1


def test_one_misplaced_key_is_still_named(folder: Path) -> None:
    """Two keys of a cluster and one of costs: the latter is the fault."""
    text = '[rollout]\ngpu = "X"\nhbm_gb = 96\ninterest = 0.1\n'
    got = invoke("plan", "--trace", OPEN_SHOP, "--cluster", write(folder / "f.toml", text))
    refused(got, "Unknown key '[rollout] interest'.")


def test_the_keys_of_each_kind_are_those_of_its_schema() -> None:
    schemas = {"cluster": ClusterTables, "costs": CostTables}
    for kind, tables in KEYS.items():
        known = {table: set(keys.split()) for table, keys in tables.items()}
        if kind == "coefficients":
            assert known == {"": {field.name for field in dataclasses.fields(Coefficients)}}
        elif kind == "study":
            assert known == {table: set(keys) for table, keys in study._KNOWN_KEYS.items()}
        else:
            schema = schemas[kind].model_json_schema()
            assert known.pop("") == set(schema["properties"])
            of = {"rollout": "PoolTable", "train": "PoolTable"}
            for table, keys in known.items():
                name = of.get(table, f"{table.capitalize()}Table")
                assert keys == set(schema["$defs"][name]["properties"]), (kind, table)


def test_a_shipped_trace_by_its_name(folder: Path) -> None:
    named = ok("plan", "--trace", "production-200", "--json")
    assert named.out == ok("plan", "--trace", PRODUCTION, "--json").out


def test_a_file_comes_before_a_shipped_trace(folder: Path) -> None:
    write(folder / "tiny-gang", "")
    refused(invoke("plan", "--trace", "tiny-gang"), "Expected a file name ending in .csv")


def test_a_folder_with_a_plan_is_told_where(folder: Path) -> None:
    ok("plan", "--trace", OPEN_SHOP, "--out", "o", "--no-html")
    refused(invoke("check", "o"), "Expected a plan file, got a folder. Did you mean 'o/plan.json'?")


@pytest.mark.parametrize(
    ("env", "red"),
    [
        ({}, False),  # no terminal
        ({"FORCE_COLOR": "1", "TERM": "xterm"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_errors_are_red_where_asked_for(env: dict[str, str], red: bool, tmp_path: Path) -> None:
    got = run("plan", cwd=tmp_path, **env)
    assert got.err.startswith("\x1b[31merror:\x1b[0m Expected" if red else "error: Expected")


@pytest.mark.parametrize(
    "words", [["-m", "planner"], ["-c", "from planner.cli.main import main; main()"]]
)
def test_ctrl_c_while_the_command_line_is_imported(words: list[str], tmp_path: Path) -> None:
    """The import of typer, of all moments: a plain exit code, and no traceback."""
    write(
        tmp_path / "typer.py",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True:\n    pass\n",
    )
    done = subprocess.run(
        [sys.executable, *words],
        env=environment(PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[3]}"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, b"error: Interrupted.\n")
