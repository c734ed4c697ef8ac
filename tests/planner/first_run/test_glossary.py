"""The glossary and the code have the same words: nothing is missing, nothing is left over.

Documents and files are those of small runs; lists of rules, methods, policies and columns
are the code's own.
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import GANG, OPEN_SHOP, invoke, ok
from instances.checker import RULES
from instances.cluster_file import ClusterTables
from instances.coefficients import coefficient_rows
from instances.plan import DURATION_CONVENTIONS
from instances.trace_table import KNOWN_COLUMNS
from models.bounds.columns import POOL_DECOMPOSITION
from models.bounds.coupled import COUPLED
from models.bounds.group_lp import GROUP_LP
from models.bounds.volume import VOLUME
from planner.first_run.doctor import Diagnosis, doctor_document
from planner.first_run.entry import KINDS
from planner.first_run.explaining import explain_document
from planner.first_run.glossary import every_entry, find, found_words, plain
from planner.first_run.machine import Package, machine
from planner.first_run.self_check import Outcome
from planner.placement.placer import OBJECTIVES, TIE_RULES
from planner.policies.policy import QUEUES
from planner.policies.registry import POLICIES
from planner.policies.repack_params import RepackParams
from planner.replay.published import Row as PublishedRow
from planner.reproduce.document import reproduce_document
from planner.simulate.drift import DriftRun
from planner.simulate.rows import migration_rows
from planner.size.cost_file import CostTables
from planner.size.rows import TABLES as SIZE_TABLES
from planner.snapshot.solving import SNAPSHOT_METHODS
from planner.sweep.run import COLUMNS as SWEEP_COLUMNS

#: Keys whose own keys are names out of the data: of packages, policies, rules, bounds, steps.
DATA = {
    "package_versions", "policies", "savings", "peak_gpus", "breaches", "counts", "steps_s",
    "bound_methods", "stopped_by", "replay_s", "decision_ms", "sources", "failed", "left_out",
    "immovable", "conventions", "perfect", "fixed", "threads",
}  # fmt: skip


def keys_in(value: Any, *, named: bool = True) -> Iterator[str]:
    """Every key of a document that the code names, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if named:
                yield key
            yield from keys_in(inner, named=key not in DATA)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner, named=named)


def header(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


def doctor_keys() -> dict[str, Any]:
    package = Package(name="x", wanted="", extra=None, version="1", fault="", use="")
    outcome = Outcome(name="x", what="y", ok=True, found="z")
    found = Diagnosis(machine=machine(), packages=(package,), outcomes=(outcome,))
    return doctor_document(found, timings=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Keys of every document and headers of every table, by what made them."""
    folder = tmp_path_factory.mktemp("made")
    study = folder / "study.toml"
    study.write_text(f'policies = ["weave"]\n[[trace]]\nfile = "{OPEN_SHOP}"\n', encoding="utf-8")
    policies = "weave,colocated,random"
    runs: dict[str, tuple[str | Path, ...]] = {
        "plan": ("plan", "--trace", OPEN_SHOP, "--policy", "repack", "--baselines", policies),
        "fleet": ("plan", "--trace", OPEN_SHOP, "--fleet", "2,2", "--max-rate", "2"),
        "snapshot": ("snapshot", "--trace", OPEN_SHOP, "--all-jobs"),
        "conflict": ("snapshot", "--trace", GANG, "--all-jobs", "--max-rollout-nodes-total", "1"),
        "gap": ("gap", "--trace", OPEN_SHOP, "--policy", "repack"),
        "size": (
            "size", "--trace", OPEN_SHOP, "--replications", "3", "--growth", "1",
            "--baselines", "solo",
        ),
        "runtime": ("simulate", "--trace", OPEN_SHOP, "--only", "runtime,failures"),
        "sweep": ("sweep", study, "--dry-run"),
        "swept": ("sweep", study, "--out", folder / "swept.csv"),
        "profile": (
            "profile", "--model-b", "7", "--max-tokens", "8192",
            "--prompts-per-step", "128", "--samples-per-prompt", "8",
        ),
    }  # fmt: skip
    timed, written = ("plan", "snapshot", "gap"), ("plan", "fleet", "gap", "size", "runtime")
    out: dict[str, set[str]] = {}
    for name, words in runs.items():
        more: tuple[str | Path, ...] = ("--timings",) if name in timed else ()
        if name in written:
            more += ("--out", folder / name)
        out[name] = set(keys_in(invoke(*words, "--json", *more).json))
    plan = folder / "plan" / "plan.json"
    out["check"] = set(keys_in(ok("check", plan, "--json").json))
    moved = ok("repack", "--plan", plan, "--at-hours", "0.001", "--json", "--out", folder / "moved")
    out["repack"] = set(keys_in(moved.json))
    out["explain"] = set(keys_in(explain_document(find("slo"))))
    out["doctor"] = set(keys_in(doctor_keys()))
    for path in folder.rglob("*.csv"):
        out[f"{path.parent.name}/{path.name}"] = set(header(path))
    return out


# --- nothing is missing ---------------------------------------------------------------------------


def test_every_key_and_column_that_is_written_has_an_entry(made: dict[str, set[str]]) -> None:
    of = {name: source for source, keys in made.items() for name in keys}
    assert [f"{name} ({of[name]})" for name in sorted(of) if not found_words(name)] == []


def test_the_runs_wrote_what_they_should(made: dict[str, set[str]]) -> None:
    """Guard: the test above must have seen every file and part."""
    tables = {key.partition("/")[2] for key in made if "/" in key}
    assert {"jobs.csv", "timeline.csv", "gap.csv", "moves.csv", "runtime.csv"} <= tables
    assert {"failures.csv", "swept.csv"} <= tables
    assert {f"{name}.csv" for name in SIZE_TABLES} - tables <= {"worth.csv", "alternatives.csv"}
    assert "conflict" in made["conflict"]
    assert "recommendation" in made["size"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("input", KNOWN_COLUMNS),
        ("rule", RULES),
        ("method", (*SNAPSHOT_METHODS, VOLUME, POOL_DECOMPOSITION, GROUP_LP, COUPLED)),
        ("policy", POLICIES),
        ("convention", DURATION_CONVENTIONS),
    ],
    ids=["columns", "rules", "methods", "policies", "conventions"],
)
def test_entries_of_a_kind_are_the_codes_own_list(kind: str, names: Any) -> None:
    assert {entry.name for entry in every_entry() if entry.kind == kind} == set(names)


def test_every_word_an_option_takes_is_explained() -> None:
    options = (*TIE_RULES, *QUEUES, "residual", "break-even")
    known = {entry.name for entry in every_entry() if entry.kind == "term"}
    assert set(options) <= known
    text = find("objective")[0].text
    assert all(name in text for name in OBJECTIVES)


def test_every_setting_of_files_estimator_and_repack_is_explained() -> None:
    known = {entry.name for entry in every_entry() if entry.kind == "setting"}
    for schema in (ClusterTables, CostTables):
        for table in schema.model_json_schema()["$defs"].values():
            assert set(table["properties"]) <= known
    assert {row.name for row in coefficient_rows()} <= known
    assert {field.name for field in dataclasses.fields(RepackParams)} <= known


# --- nothing is left over -------------------------------------------------------------------------


def code() -> str:
    """The packages' text without the glossary and without comments' prose."""
    root = Path(__file__).resolve().parents[3]
    paths = [p for top in ("planner", "models", "instances") for p in (root / top).rglob("*.py")]
    return "\n".join(p.read_text(encoding="utf-8") for p in paths if p.parent.name != "first_run")


def test_no_output_is_explained_that_nothing_writes(made: dict[str, set[str]]) -> None:
    """Written by a run above, or named in the code: as a literal, a field, or a made-up column."""
    written = set().union(*made.values()) | {column.name for column in SWEEP_COLUMNS}
    names = set(re.findall(r"[A-Za-z_]\w+", code()))
    left = {
        entry.name
        for entry in every_entry()
        if entry.kind == "output" and entry.name not in written and entry.name not in names
    }
    assert not left


# --- the entries themselves -----------------------------------------------------------------------


def test_every_entry_is_in_whole_sentences_and_found_by_its_name() -> None:
    for entry in every_entry():
        assert entry.kind in KINDS, entry
        assert entry.text.endswith((".", ")")), entry
        assert "``" not in entry.text, entry
        assert len(entry.text) <= 400, entry  # one to four sentences
        assert entry in found_words(entry.name), entry


def test_no_two_entries_of_a_kind_say_the_same_of_one_name() -> None:
    seen = [(entry.name, entry.kind, entry.text) for entry in every_entry()]
    assert len(seen) == len(set(seen))
    names = [(e.kind, plain(e.name)) for e in every_entry() if e.kind != "setting"]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice


def test_defaults_are_those_of_the_code() -> None:
    """$1.85 and $5.28 a GPU-hour, 2,000 GB a node, 8 GPUs: the stated defaults."""
    prices = next(e for e in find("usd_per_gpu_hour") if "cluster.toml" in e.where)
    assert prices.default == "1.85 (rollout); 5.28 (train)"
    assert next(e for e in find("host_dram_gb") if "cluster.toml" in e.where).default == "2000"
    assert find("pue")[0].default == "1.3"
    assert find("pue")[0].source.startswith("guess")


def test_units_follow_the_names() -> None:
    for name, unit in (
        ("train_state_gb", "GB a node"),
        ("rollout_s", "s"),
        ("usd_total", "$"),
        ("bound_usd_per_hour_mean", "$/h"),
        ("inter_gbps", "Gb/s"),
        ("slo_attainment", "share, 0 to 1"),
        ("rollout_node_hours", "node-hours"),
    ):
        assert find(name)[0].unit == unit, name


def test_rows_of_long_studies_are_explained() -> None:
    """Read from the source: a run of these takes longer than a test may."""
    row = DriftRun.row
    assert isinstance(row, property)
    for source in (reproduce_document, migration_rows, row.fget):
        keys = re.findall(r'"(\w+)":', inspect.getsource(source))
        assert keys
        assert [key for key in keys if not found_words(key)] == []
    assert [f.name for f in dataclasses.fields(PublishedRow) if not found_words(f.name)] == []
