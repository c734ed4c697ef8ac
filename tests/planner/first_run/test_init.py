"""``planner init``: files that are read back as the defaults, and commands that work on them."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from command_line import invoke, names, ok, refused
from instances.cluster_file import ClusterTables, cluster_from_dict, read_cluster
from instances.hardware import DEFAULT_CLUSTER
from instances.trace import read_trace
from planner.first_run.commented_toml import cluster_toml, costs_toml
from planner.first_run.glossary_settings import CLUSTER, COSTS, STUDY
from planner.first_run.project import COMMANDS, FILES, JOBS
from planner.plan.planning import plan_trace
from planner.size.cost_file import CostTables, costs_from_dict, read_costs
from planner.size.pool_costs import default_costs
from planner.sweep.study import AXES, BootstrapTable, CaseTable, TraceTable, _StudyTable


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my fleet"
    ok("init", folder, "--quiet")
    return folder


def uncommented(text: str) -> str:
    """Every key read: the # before a key or a table is taken away, that before words is not."""
    return re.sub(r"^#(?=[\w\[])", "", text, flags=re.MULTILINE)


def keys_of(schema: type, table: str) -> set[str]:
    """Keys of one table, from the schema's own JSON Schema: no code of ``planner init``."""
    whole = schema.model_json_schema()
    found = re.findall(r"#/\$defs/(\w+)", str(whole["properties"][table]))
    return set(whole["$defs"][found[0]]["properties"])


def test_it_writes_every_file_and_nothing_else(project: Path) -> None:
    assert names(project) == sorted(FILES)


def test_the_cluster_reads_back_as_the_default(project: Path) -> None:
    assert read_cluster(project / "cluster.toml") == DEFAULT_CLUSTER


def test_the_costs_read_back_as_the_defaults_their_guesses_still_guesses(project: Path) -> None:
    costs = read_costs(project / "costs.toml", DEFAULT_CLUSTER)
    assert costs == default_costs(DEFAULT_CLUSTER)
    assert "rollout.pue" in costs.guesses()


def test_every_key_of_the_cluster_is_there_uncommented_or_not() -> None:
    tables = tomllib.loads(uncommented(cluster_toml()))
    assert set(tables) == set(ClusterTables.model_fields)
    for table in ("rollout", "train", "links"):
        assert set(tables[table]) == keys_of(ClusterTables, table)
    for model in tables["model"]:
        assert set(model) == keys_of(ClusterTables, "model")
    cluster_from_dict(tables)  # what stands behind a # is valid, too


def test_every_key_of_the_costs_is_there_behind_a_hash() -> None:
    tables = tomllib.loads(uncommented(costs_toml()))
    assert set(tables) == set(CostTables.model_fields)
    for table in ("site", "rollout", "train", "budget"):
        assert set(tables[table]) == keys_of(CostTables, table)
    assert set(tables["period"][0]) == keys_of(CostTables, "period")
    del tables["budget"]  # a budget and periods exclude each other
    costs = costs_from_dict(tables, DEFAULT_CLUSTER)
    assert costs.rollout.usd_per_node == pytest.approx(
        default_costs(DEFAULT_CLUSTER).rollout.usd_per_node, abs=0.01
    )


def test_words_and_schemas_have_the_same_keys() -> None:
    for schema, words in ((ClusterTables, CLUSTER), (CostTables, COSTS)):
        assert set(words) == set(schema.model_fields)
        for table, keys in words.items():
            assert set(keys) == keys_of(schema, table), table
    schemas = {
        "": _StudyTable,
        "trace": TraceTable,
        "bootstrap": BootstrapTable,
        "case": CaseTable,
    }
    for table, study in schemas.items():
        assert set(STUDY[table]) == set(study.model_fields), table
    assert set(STUDY["axes"]) == set(AXES)


def test_every_number_of_the_files_says_its_unit_or_its_meaning() -> None:
    """A key follows its own comment, or has been explained in the pool before."""
    text = cluster_toml()
    for key in ("usd_per_gpu_hour", "host_dram_gb", "inter_gbps"):
        assert re.search(rf"^{key} = \S+ +# \S", text, re.MULTILINE), key
    assert all(len(line) <= 96 for line in (text + costs_toml()).splitlines())


def test_the_trace_has_measured_and_estimated_jobs(project: Path) -> None:
    jobs = read_trace(project / "jobs.csv").jobs
    assert 8 <= len(jobs) <= 12
    assert jobs.arrival_s.max() <= 2 * 86_400
    estimated = jobs.estimated["rollout_s"]
    assert 0 < estimated.sum() < len(jobs)
    assert jobs.extra["team"]


def test_sharing_pays_in_the_example_as_a_first_reader_expects(project: Path) -> None:
    """By either convention; colocated is the nearer rival, as its iterations are no longer."""
    jobs = read_trace(project / "jobs.csv")
    report = plan_trace(jobs, policy="weave", baselines=("solo", "colocated"))
    for by_policy in report.results.values():
        usd = {name: result.usd_total for name, result in by_policy.items()}
        assert usd["weave"] < usd["colocated"] < usd["solo"]


def test_next_steps_explain_every_column_of_the_trace(project: Path) -> None:
    text = (project / "NEXT_STEPS.md").read_text(encoding="utf-8")
    for column in JOBS.partition("\n")[0].split(","):
        assert f"* `{column}`" in text


def test_every_next_step_works_in_the_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (project / "NEXT_STEPS.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ *```bash\n *(.*)\n *```$", text, re.MULTILINE)
    assert commands == list(COMMANDS)
    assert len(commands) == 5
    monkeypatch.chdir(project)
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program in ("plan", "planner")
        outcome = ok(*arguments, "--quiet", plan=program == "plan")
        assert outcome.out, command
    for made in ("replay", "group.svg", "results.csv"):
        assert (project / made).exists()


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        ok("init", tmp_path / name, "--quiet")
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_it_says_what_comes_next_on_stderr(tmp_path: Path) -> None:
    outcome = ok("init", tmp_path / "a b")
    assert outcome.out == ""
    assert "a b'" in outcome.err  # quoted, to be pasted
    for command in COMMANDS:
        assert command in outcome.err


def test_its_cd_is_no_option_where_the_folder_begins_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "cd ./-new\n" in ok("init", "--", "-new").err


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("mine", encoding="utf-8")
    refused(invoke("init", tmp_path), "already holds jobs.csv", "--force")
    assert names(tmp_path) == ["jobs.csv"]
    ok("init", tmp_path, "--force", "--quiet")
    assert names(tmp_path) == sorted(FILES)
    assert (tmp_path / "jobs.csv").read_text(encoding="utf-8") == JOBS


def test_a_file_or_a_folder_too_deep_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused(invoke("init", tmp_path / "file"), "Expected DIR to name a folder", "is a file.")
    (tmp_path / "link").symlink_to("nowhere")
    refused(invoke("init", tmp_path / "link"), "is a link to nothing.")
    refused(invoke("init", tmp_path / "no" / "such"), "above DIR to exist")
