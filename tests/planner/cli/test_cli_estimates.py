"""Estimates at the command line: ``profile``, ``--coefficients``, ``--strict``, and labels."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import OPEN_SHOP, Outcome, invoke, names, ok, refused, write
from instances.coefficients import Coefficients
from instances.estimate import estimate
from instances.hardware import DEFAULT_CLUSTER
from instances.plan_file import read_plan
from instances.trace import read_trace

BATCH: dict[str, float] = {
    "model_b": 7.0,
    "max_tokens": 8192.0,
    "prompts_per_step": 64.0,
    "samples_per_prompt": 8.0,
}
#: The options of ``profile`` for BATCH.
JOB = ("--model-b", "7", "--max-tokens", "8192", "--prompts-per-step", "64",
       "--samples-per-prompt", "8")  # fmt: skip
#: What follows from ``model_b`` where a trace leaves it out, and the phases.
STATES = ("rollout_state_gb", "rollout_switch_s", "sync_gb", "sync_s", "train_state_gb",
          "train_switch_s")  # fmt: skip
ALL = tuple(sorted((*STATES, "rollout_s", "train_s")))

#: Two jobs of the same batch, no phase columns.
PHASELESS = """\
job_id,arrival_s,duration_s,slo,model_b,max_tokens,prompts_per_step,samples_per_prompt
a,0,9000,2,7,8192,64,8
b,50,9000,2,7,8192,64,8
"""
#: Everything estimated of ``a``, phases measured of ``b``, everything measured of ``c``.
MIXED = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b,max_tokens,prompts_per_step,\
samples_per_prompt,rollout_state_gb,train_state_gb,rollout_switch_s,train_switch_s,sync_s,sync_gb
a,0,9000,2,,,7,8192,64,8,,,,,,
b,50,9000,2,30,40,7,,,,,,,,,
c,60,9000,2,30,40,7,,,,100,100,1,1,5,14
"""
MEASURED = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,\
rollout_switch_s,train_switch_s,sync_s,sync_gb
a,0,9000,2,30,40,100,100,1,1,5,14
"""


def words(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


def jobs_csv(folder: str) -> list[dict[str, str]]:
    """Return the rows of a written jobs.csv."""
    text = Path(folder, "jobs.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def plan_jobs(folder: str) -> dict[str, Any]:
    """Return the job table of a written plan.json."""
    jobs: dict[str, Any] = json.loads(Path(folder, "plan.json").read_text())["jobs"]
    return jobs


# --- profile ------------------------------------------------------------------------------------


def test_profile_json_is_the_estimate() -> None:
    document = ok("profile", *JOB, "--json").json
    assert set(document) == {"schema_version", "command", "inputs", "estimated"}
    assert (document["schema_version"], document["command"]) == (1, "profile")
    inputs = document["inputs"]
    assert {key: inputs[key] for key in BATCH} == BATCH
    assert (inputs["rollout_nodes"], inputs["train_nodes"]) == (1, 1)
    assert set(inputs["package_versions"]) == {"python", "rl-fleet-planner", "numpy", "pandas"}
    found = estimate(**BATCH)  # type: ignore[arg-type]
    got = document["estimated"]
    assert got == {key: getattr(found, key) for key in got}
    assert set(got) == {
        "rollout_s", "rollout_expected_s", "train_s", "train_expected_s", "rollout_state_gb",
        "train_state_gb", "sync_gb", "sync_s", "rollout_roof", "train_roof", "tensor_parallel",
        "decode_slots",
    }  # fmt: skip
    # Published: 7B keeps 275.7 and 240 GB; 14 GB are 5.6 s at 20 Gb/s, 0.28 s at 400.
    assert (got["rollout_state_gb"], got["train_state_gb"], got["sync_gb"]) == (275.7, 240, 14)
    assert got["sync_s"] == pytest.approx(5.88)
    assert 0 < got["rollout_expected_s"] < got["rollout_s"]
    assert 0 < got["train_expected_s"] < got["train_s"]


def test_profile_table_has_the_same_figures_labelled(folder: Path) -> None:
    out = ok("profile", *JOB).out
    found = estimate(**BATCH)  # type: ignore[arg-type]
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert out.splitlines()[0].rstrip() == (
        "7B, 8192 tokens, 64 x 8 responses a step (all figures estimated)"
    )
    cells = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert cells["rollout"] == [
        "1", f"{found.rollout_s:.0f}", f"{found.rollout_expected_s:.0f}", "276", "memory-bound",
    ]  # fmt: skip
    assert cells["train"] == [
        "1", f"{found.train_s:.0f}", f"{found.train_expected_s:.0f}", "240", "compute-bound",
    ]  # fmt: skip
    assert "Sync: 14 GB, 5.9 s." in words(out)
    for column in BATCH:
        assert column in words(out)  # how to use them in a trace


def test_profile_of_gangs_and_other_machines(folder: Path) -> None:
    plain = ok("profile", *JOB, "--json").json["estimated"]
    wide = ok("profile", *JOB, "--train-nodes", "2", "--rollout-nodes", "2", "--json").json
    assert (wide["inputs"]["rollout_nodes"], wide["inputs"]["train_nodes"]) == (2, 2)
    assert wide["estimated"]["train_s"] == pytest.approx(plain["train_s"] / 2)
    assert wide["estimated"]["rollout_s"] < plain["rollout_s"]
    # Twice the link speed: 112 Gb at 40 and 400 Gb/s.
    fast = write(folder / "c.toml", "[links]\ninter_gbps = 40\n")
    got = ok("profile", *JOB, "--cluster", fast, "--json").json["estimated"]
    assert got["sync_s"] == pytest.approx(2.8 + 0.28)
    assert got["rollout_s"] == plain["rollout_s"]


PROFILE_REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "missing": (JOB[2:], ("--model-b",)),
    "zero": (("--model-b", "0", *JOB[2:]), ("--model-b", "finite number > 0, got 0.0")),
    "negative": ((*JOB[:2], "--max-tokens", "-1", *JOB[4:]), ("--max-tokens", "-1.0")),
    "nan": (("--model-b", "nan", *JOB[2:]), ("--model-b", "nan")),
    "a word": (("--model-b", "7B", *JOB[2:]), ("--model-b",)),
    "no nodes": ((*JOB, "--train-nodes", "0"), ("--train-nodes",)),
    "half a node": ((*JOB, "--train-nodes", "1.5"), ("--train-nodes",)),
    "too large": (
        ("--model-b", "1000", *JOB[2:]),
        ("a model that fits", "--model-b 1000", "8 H20 of 96 GB"),
    ),
}


@pytest.mark.parametrize(
    ("arguments", "parts"), PROFILE_REFUSED.values(), ids=PROFILE_REFUSED.keys()
)
def test_profile_refuses_in_words(
    arguments: tuple[str, ...], parts: tuple[str, ...], folder: Path
) -> None:
    refused(invoke("profile", *arguments), *parts)
    refused(invoke("profile", *arguments, "--json"), *parts)


@pytest.mark.parametrize("what", ["cluster", "coefficients"])
def test_profile_names_all_its_inputs(what: str, folder: Path) -> None:
    """Other inputs give other figures, so they must not give the same ``inputs``."""
    text = "train_mfu = 0.15\n" if what == "coefficients" else "[links]\ninter_gbps = 40\n"
    path = write(folder / "x.toml", text)
    plain = ok("profile", *JOB, "--json").json
    other = ok("profile", *JOB, f"--{what}", path, "--json").json
    assert other["estimated"] != plain["estimated"]
    assert other["inputs"] != plain["inputs"]


# --- traces without phase columns ---------------------------------------------------------------


def test_phaseless_trace_is_planned_with_the_profiled_phases(folder: Path) -> None:
    trace = write(folder / "t.csv", PHASELESS)
    got = ok("plan", "--trace", trace, "--out", "o", "--no-html", "--json")
    profiled = ok("profile", *JOB, "--json").json["estimated"]
    jobs = plan_jobs("o")
    for column in set(ALL) & set(profiled):
        assert jobs[column] == [profiled[column]] * 2, column
    assert got.json["inputs"]["estimated_columns"] == list(ALL)
    assert jobs["estimated"] == {column: ["a", "b"] for column in ALL}
    weave = got.json["conventions"]["wallclock"]["policies"]["weave"]
    assert weave["checked"] is True
    # Shared or not: 9,000 s each, from 0 and 50 s.
    assert weave["horizon_h"] == pytest.approx(9050 / 3600)


def test_a_written_plan_of_estimates_passes_the_check_and_keeps_its_labels(folder: Path) -> None:
    trace = write(folder / "t.csv", MIXED)
    ok("plan", "--trace", trace, "--out", "o", "--no-html")
    checked = ok("check", "o/plan.json", "--json").json
    assert (checked["checked"], checked["jobs"], checked["violations"]) == (True, 3, [])
    loaded, given = read_plan("o/plan.json").jobs, read_trace(trace).jobs
    assert loaded.estimated_columns() == given.estimated_columns() == ALL
    for column in ALL:
        assert loaded.estimated[column].tolist() == given.estimated[column].tolist()


def test_labels_are_cell_by_cell(folder: Path) -> None:
    trace = write(folder / "t.csv", MIXED)
    got = ok("plan", "--trace", trace, "--baselines", "random", "--seeds", "2",
             "--out", "o", "--no-html", "--json")  # fmt: skip
    assert got.json["inputs"]["estimated_columns"] == list(ALL)
    phases = {"rollout_s": ["a"], "train_s": ["a"]}
    assert plan_jobs("o")["estimated"] == phases | {column: ["a", "b"] for column in STATES}
    rows = jobs_csv("o")
    assert len(rows) == 2 * 2 * 3  # conventions, policies, jobs
    want = {"a": ";".join(ALL), "b": ";".join(STATES), "c": ""}
    assert all(row["estimated"] == want[row["job_id"]] for row in rows)


def test_the_table_and_the_warning_name_what_is_estimated(folder: Path) -> None:
    got = ok("plan", "--trace", write(folder / "t.csv", MIXED))
    listed = ", ".join(ALL)
    assert f"Estimated, not measured: {listed}." in words(got.out)
    assert f"warning: estimated, not measured: {listed}." in words(got.err)
    assert "--strict refuses them" in words(got.err)


def test_measured_traces_have_no_label(folder: Path) -> None:
    trace = write(folder / "t.csv", MEASURED)
    got = ok("plan", "--trace", trace, "--out", "o", "--no-html")
    assert "stimated" not in got.out + got.err
    assert plan_jobs("o")["estimated"] == {}
    assert {row["estimated"] for row in jobs_csv("o")} == {""}
    assert ok("plan", "--trace", trace, "--json").json["inputs"]["estimated_columns"] == []


def test_a_column_of_the_trace_called_estimated_is_kept_beside_ours(folder: Path) -> None:
    text = PHASELESS.replace("samples_per_prompt\n", "samples_per_prompt,estimated\n")
    text = text.replace(",64,8\n", ",64,8,mine\n")
    ok("plan", "--trace", write(folder / "t.csv", text), "--out", "o", "--no-html")
    for row in jobs_csv("o"):
        assert (row["estimated"], row["trace_estimated"]) == (";".join(ALL), "mine")


def test_a_misfit_is_refused_by_row(folder: Path) -> None:
    trace = write(folder / "t.csv", PHASELESS.replace("2,7,8192", "2,1000,8192", 1))
    refused(invoke("plan", "--trace", trace), "t.csv", "line 2", "model_b 1000")


def test_phases_missing_without_the_four_columns_are_refused(folder: Path) -> None:
    text = re.sub(r",[^,\n]*$", "", PHASELESS, flags=re.MULTILINE)  # no samples_per_prompt
    refused(invoke("plan", "--trace", write(folder / "t.csv", text)), "rollout_s",
            "samples_per_prompt")  # fmt: skip


# --- strict -------------------------------------------------------------------------------------


def test_strict_refuses_estimates_by_column_and_writes_nothing(folder: Path) -> None:
    trace = write(folder / "t.csv", MIXED)
    got = invoke("plan", "--trace", trace, "--strict", "--out", "o", "--no-html")
    refused(got, "Expected every value to be given", "rollout_s (1 of 3)", "train_s (1 of 3)",
            *(f"{column} (2 of 3)" for column in STATES))  # fmt: skip
    assert names(folder) == ["t.csv"]
    refused(invoke("plan", "--trace", trace, "--strict", "--json"), "train_s (1 of 3)")


def test_strict_changes_nothing_for_measured_traces(folder: Path) -> None:
    for trace in (OPEN_SHOP, write(folder / "t.csv", MEASURED)):
        plain = ok("plan", "--trace", trace, "--json")
        assert ok("plan", "--trace", trace, "--strict", "--json") == plain


def test_strict_on_plan_too(folder: Path) -> None:
    trace = write(folder / "t.csv", PHASELESS)
    refused(invoke("--trace", trace, "--strict", plan=True), "rollout_s (2 of 2)")


# --- coefficients -------------------------------------------------------------------------------


@pytest.fixture
def half_mfu(folder: Path) -> Path:
    """Half of the default train MFU, 0.30."""
    return write(folder / "half.toml", "train_mfu = 0.15\n")


def test_coefficients_change_the_profile(half_mfu: Path) -> None:
    plain = ok("profile", *JOB, "--json").json["estimated"]
    slow = ok("profile", *JOB, "--coefficients", half_mfu, "--json").json["estimated"]
    for key in ("train_s", "train_expected_s"):
        assert slow.pop(key) == pytest.approx(2 * plain.pop(key))
    assert slow == plain
    found = estimate(**BATCH, coefficients=Coefficients(train_mfu=0.15))  # type: ignore[arg-type]
    assert f" {found.train_s:.0f} " in ok("profile", *JOB, "--coefficients", half_mfu).out


def test_coefficients_change_estimated_phases_only(half_mfu: Path, folder: Path) -> None:
    trace = write(folder / "t.csv", MIXED)
    ok("plan", "--trace", trace, "--out", "plain", "--no-html")
    ok("plan", "--trace", trace, "--coefficients", half_mfu, "--out", "slow", "--no-html")
    plain, slow = plan_jobs("plain"), plan_jobs("slow")
    changed = {key for key in plain if plain[key] != slow[key]}
    assert changed == {"train_s"}
    assert slow["train_s"] == pytest.approx([2 * plain["train_s"][0], 40, 40])
    measured = write(folder / "m.csv", MEASURED)
    assert ok("plan", "--trace", measured, "--json", "--coefficients", half_mfu) == ok(
        "plan", "--trace", measured, "--json"
    )


def test_an_empty_coefficients_file_is_the_defaults(folder: Path) -> None:
    empty = write(folder / "c.toml", "# nothing\n")
    assert ok("profile", *JOB, "--coefficients", empty) == ok("profile", *JOB)


def test_plan_json_names_its_coefficients(half_mfu: Path, folder: Path) -> None:
    trace = write(folder / "t.csv", PHASELESS)
    plain = ok("plan", "--trace", trace, "--json").json
    slow = ok("plan", "--trace", trace, "--coefficients", half_mfu, "--json").json
    assert slow["conventions"] != plain["conventions"]
    assert slow["inputs"] != plain["inputs"]


BAD_FILES = {
    "a misspelt name": (
        "train_mfuu = 0.4",
        ("c.toml", "Unknown coefficient 'train_mfuu'. Did you mean 'train_mfu'?"),
    ),
    "a name like nothing": ("zzzz = 1", ("c.toml", "Unknown coefficient 'zzzz'", "hbm_share")),
    "a table": ("[train]\nmfu = 0.4", ("c.toml", "Unknown coefficient 'train'")),
    "a word": ("train_mfu = 'high'", ("c.toml", "train_mfu to be a number, got 'high'")),
    "a truth": ("train_mfu = true", ("c.toml", "train_mfu to be a number, got True")),
    "out of range": ("train_mfu = 1.5", ("c.toml", "train_mfu > 0 and <= 1, got 1.5")),
    "not finite": ("prompt_tokens = inf", ("c.toml", "prompt_tokens", "inf")),
    "half a GPU": ("tensor_parallel = 1.5", ("c.toml", "whole number", "1.5")),
    "no TOML": ("train_mfu 0.4", ("c.toml",)),
}


def _with(path: Path | str, command: str, trace: Path) -> Outcome:
    options = JOB if command == "profile" else ("--trace", trace)
    return invoke(command, *options, "--coefficients", path)


@pytest.mark.parametrize("command", ["plan", "profile"])
@pytest.mark.parametrize(("text", "parts"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_coefficients_are_refused_by_name(
    command: str, text: str, parts: tuple[str, ...], folder: Path
) -> None:
    path, trace = write(folder / "c.toml", text + "\n"), write(folder / "t.csv", PHASELESS)
    refused(_with(path, command, trace), *parts)


@pytest.mark.parametrize("command", ["plan", "profile"])
def test_no_file_of_coefficients_is_refused(command: str, folder: Path) -> None:
    refused(_with("absent.toml", command, write(folder / "t.csv", PHASELESS)), "absent.toml")


def test_estimates_are_for_the_cluster_given(folder: Path) -> None:
    """A train GPU of half the FLOP/s: twice the train seconds, in profile and plan alike."""
    tflops = DEFAULT_CLUSTER.train.gpu.bf16_tflops / 2
    slow = write(folder / "c.toml", f"[train]\nbf16_tflops = {tflops}\n")
    plain = ok("profile", *JOB, "--json").json["estimated"]["train_s"]
    got = ok("profile", *JOB, "--cluster", slow, "--json").json["estimated"]["train_s"]
    assert got == pytest.approx(2 * plain)
    trace = write(folder / "t.csv", PHASELESS)
    ok("plan", "--trace", trace, "--cluster", slow, "--out", "o", "--no-html")
    assert plan_jobs("o")["train_s"] == pytest.approx([2 * plain] * 2)
