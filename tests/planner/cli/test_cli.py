"""The commands, in this process: JSON, words, exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from command_line import (
    ESTIMATED,
    GANG,
    OPEN_SHOP,
    PAIR_USD,
    invoke,
    names,
    ok,
    refused,
    write,
)
from instances.checker import check_plan
from instances.generate import GENERATORS
from instances.importers import IMPORTERS
from instances.plan_file import read_plan
from planner.policies.registry import POLICIES

POLICY_KEYS = {
    "usd_per_hour_mean",
    "usd_total",
    "horizon_h",
    "peak_gpus",
    "peak_nodes",
    "slo_attainment",
    "slo_attainment_worst_period",
    "admission",
    "idle_fraction",
    "fleet",
    "bound_usd_per_hour_mean",
    "bound_method",
    "bound_options",
    "checked",
}  # and, by convention, ratio or trajectory_ratio and bound_usd_total


@pytest.fixture(scope="module")
def three() -> Any:
    """Two jobs that share one node of each kind perfectly, under three policies."""
    return ok("plan", "--trace", OPEN_SHOP, "--baselines", "solo,colocated", "--json").json


def test_json_layout_is_that_of_the_design(three: Any) -> None:
    assert set(three) == {"schema_version", "command", "inputs", "conventions"}
    assert (three["schema_version"], three["command"]) == (1, "plan")
    inputs = three["inputs"]
    assert {"trace", "sha256", "jobs", "cluster", "seed", "package_versions"} <= set(inputs)
    assert (inputs["trace"], inputs["jobs"]) == ("tiny-open-shop.csv", 2)
    assert re.fullmatch(r"[0-9a-f]{64}", inputs["sha256"])
    assert inputs["cluster"]["train"]["usd_per_gpu_hour"] == 5.28
    assert set(three["conventions"]) == {"work", "wallclock"}
    for convention, ratio in (("work", "trajectory_ratio"), ("wallclock", "ratio")):
        policies = three["conventions"][convention]["policies"]
        assert list(policies) == ["weave", "solo", "colocated"]
        for name, got in policies.items():
            assert set(got) >= POLICY_KEYS | {ratio}
            assert ("bound_usd_total" in got) == (convention == "work")
            assert ("ratio" in got) == (convention == "wallclock")
            assert set(got["peak_gpus"]) == {"H20", "H800"}
            assert set(got["peak_nodes"]) == set(got["idle_fraction"]) == {"rollout", "train"}
            assert set(got["fleet"]) == {"peak", "p95"}
            for fleet in got["fleet"].values():
                assert set(fleet) == {"nodes", "gpus", "usd_per_hour"}
            assert got["checked"] is (name != "colocated")
            assert ("breaches" in got) == (name == "colocated")


def test_json_figures_by_hand(three: Any) -> None:
    # Each job, (120, 60) and (60, 120), fills the other's bubble: both run 50 h on one node of
    # each kind, never idle; alone they hold two of each, half idle.
    for convention in ("work", "wallclock"):
        policies = three["conventions"][convention]["policies"]
        weave, solo, colocated = (policies[n] for n in ("weave", "solo", "colocated"))
        assert weave["usd_total"] == pytest.approx(50 * PAIR_USD)
        assert weave["usd_per_hour_mean"] == pytest.approx(PAIR_USD)
        assert weave["horizon_h"] == 50.0
        assert weave["peak_gpus"] == {"H20": 8, "H800": 8}
        assert weave["admission"] == {"direct": 0.5, "rollout_scaled": 0.0, "isolated": 0.5}
        assert weave["idle_fraction"] == pytest.approx({"rollout": 0.0, "train": 0.0})
        assert weave["slo_attainment"] == 1.0
        assert weave["fleet"]["p95"]["usd_per_hour"] == pytest.approx(PAIR_USD)
        assert solo["usd_total"] == pytest.approx(100 * PAIR_USD)
        assert solo["idle_fraction"] == pytest.approx({"rollout": 0.5, "train": 0.5})
        assert solo["admission"] is None
        assert colocated["usd_total"] == pytest.approx(50 * 2 * 8 * 5.28)
        assert colocated["peak_nodes"] == {"rollout": 0, "train": 2}
        for key in ("bound_usd_per_hour_mean", "bound_method", "bound_options"):
            assert colocated[key] is None
        savings = three["conventions"][convention]["savings"]
        assert savings["solo"] == pytest.approx(2.0)
        assert savings["colocated"] == pytest.approx(2 * 8 * 5.28 / PAIR_USD)
    work, wall = (three["conventions"][c]["policies"] for c in ("work", "wallclock"))
    assert wall["weave"]["ratio"] == pytest.approx(1.0)
    assert wall["colocated"]["ratio"] is work["colocated"]["trajectory_ratio"] is None
    # 1,000 iterations of each job, each 120 s of one node and 60 s of the other.
    assert work["weave"]["bound_usd_total"] == pytest.approx(50 * PAIR_USD)
    assert work["colocated"]["bound_usd_total"] is None


def test_options_are_recorded(folder: Path) -> None:
    cluster = write(folder / "c.toml", "[train]\nusd_per_gpu_hour = 2\n[links]\nlinks = 4\n")
    document = ok(
        "plan", "--trace", OPEN_SHOP, "--cluster", cluster, "--durations", "wallclock",
        "--objective", "per-iteration", "--tie-rule", "oldest", "--max-group-size", "3",
        "--max-rollout-nodes", "2", "--max-train-nodes", "1", "--train-scaling",
        "--pack-saturated", "--colocated-factor", "1.5", "--baselines", " colocated ,solo,weave",
        "--json",
    ).json  # fmt: skip
    got = document["inputs"]["options"]
    want = {
        "policy": "weave",
        "baselines": ["colocated", "solo"],
        "durations": "wallclock",
        "objective": "per-iteration",
        "tie_rule": "oldest",
        "max_group_size": 3,
        "max_rollout_nodes": 2,
        "max_train_nodes": 1,
        "max_rate": 1,
        "train_scaling": True,
        "skip_saturated": False,
        "colocated_factor": 1.5,
    }
    assert {key: got[key] for key in want} == want
    assert document["inputs"]["cluster"]["train"]["usd_per_gpu_hour"] == 2.0
    assert document["inputs"]["cluster"]["links"]["links"] == 4
    bound = document["conventions"]["work"]["policies"]["weave"]["bound_options"]
    assert bound == {k: want[k] for k in bound}
    # colocated: 1.5 x the solo time, so 75 h of two train nodes at $16/h each.
    colocated = document["conventions"]["work"]["policies"]["colocated"]
    assert colocated["usd_total"] == pytest.approx(75 * 2 * 16)


def test_timings_only_when_asked() -> None:
    plain = ok("plan", "--trace", OPEN_SHOP, "--json")
    assert "timings" not in plain.json
    assert not re.search(r"_ms|seconds|elapsed|timestamp", plain.out)
    timed = ok("plan", "--trace", OPEN_SHOP, "--json", "--timings").json
    timings = timed.pop("timings")
    assert timed == plain.json
    assert set(timings["replay_s"]) == {"work/weave", "wallclock/weave"}
    assert all(seconds > 0 for seconds in timings["replay_s"].values())
    assert set(timings["decision_ms"]["work/weave"]) == {"p50", "p99", "max"}


def test_plan_is_planner_plan() -> None:
    assert ok("--trace", OPEN_SHOP, "--json", plan=True) == ok(
        "plan", "--trace", OPEN_SHOP, "--json"
    )


def test_a_policy_named_twice_is_run_once() -> None:
    document = ok("plan", "--trace", OPEN_SHOP, "--baselines", "weave,weave,", "--json").json
    assert list(document["conventions"]["work"]["policies"]) == ["weave"]
    assert document["conventions"]["work"]["savings"] == {}


# --- words on standard error ----------------------------------------------------------------


def test_stdout_is_pure_and_stderr_has_the_warnings(folder: Path) -> None:
    trace = write(folder / "t.csv", ESTIMATED)
    got = ok("plan", "--trace", trace, "--json", "--out", "o", "--no-html")
    assert set(got.json) == {"schema_version", "command", "inputs", "conventions"}
    assert got.json["inputs"]["estimated_columns"] == [
        "rollout_state_gb", "rollout_switch_s", "sync_gb", "sync_s", "train_state_gb",
        "train_switch_s",
    ]  # fmt: skip
    warnings = [line for line in got.err.splitlines() if line.startswith("warning: ")]
    assert any("estimated" in line and "train_switch_s" in line for line in warnings)
    assert "Wrote plan.json, jobs.csv, timeline.csv to o." in got.err


def test_quiet_silences_notes_but_not_warnings(folder: Path) -> None:
    trace = write(folder / "t.csv", ESTIMATED)
    loud = ok("plan", "--trace", trace, "--out", "a", "--no-html")
    quiet = ok("plan", "--trace", trace, "--out", "b", "--no-html", "--quiet")
    assert quiet.out == loud.out
    assert "Wrote" in loud.err
    assert "Wrote" not in quiet.err
    assert "warning: estimated" in quiet.err
    assert ok("plan", "--trace", OPEN_SHOP, "-q").err == ""
    assert ok("generate", "tiny-gang", "--out", "g.csv", "-q").err == ""


def test_no_check_warns_loudly_even_when_quiet(folder: Path) -> None:
    plain = ok("plan", "--trace", GANG, "--json")
    for quiet in ([], ["-q"]):
        got = ok("plan", "--trace", GANG, "--json", "--no-check", *quiet)
        first = got.err.splitlines()[0]
        assert first.startswith("warning: --no-check")
        assert "NOT checked" in first
        for convention in got.json["conventions"].values():
            assert convention["policies"]["weave"]["checked"] is False
    assert plain.json["conventions"]["work"]["policies"]["weave"]["checked"] is True
    assert "no-check" not in plain.err


def test_crowded_links_are_warned_of(folder: Path) -> None:
    # 7B, 14 GB a sync, twice per 82.35 s: more than 1 Gb/s.
    trace = write(folder / "t.csv", ESTIMATED)
    slow = write(folder / "c.toml", "[links]\ninter_gbps = 0.5\nlinks = 1\n")
    got = ok("plan", "--trace", trace, "--cluster", slow)
    assert "of 1 links" not in ok("plan", "--trace", trace).err
    assert re.search(r"warning: weave \(work\): sync traffic peaks at \d+ % of 1 links", got.err)


def test_a_column_that_looks_misspelt_is_carried_and_warned_of(folder: Path) -> None:
    text = ESTIMATED.replace("_b\n", "_b,rolout_s\n").replace(",7\n", ",7,x\n")
    trace = write(folder / "t.csv", text)
    got = ok("plan", "--trace", trace, "--out", "o", "--no-html")
    assert re.search(r"warning: .*'rolout_s'.*Did you mean 'rollout_s'\?", got.err)
    assert set(pd.read_csv(folder / "o" / "jobs.csv")["rolout_s"]) == {"x"}


# --- exit codes -------------------------------------------------------------------------------


def test_a_bad_trace_is_2_with_all_its_faults(folder: Path) -> None:
    trace = write(
        folder / "bad.csv",
        "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b\n"
        "a,0,100,0.5,3,4,7\n"
        "a,-1,100,2,-3,4,7\n"
        "c,0,x,2,3,nan,7\n",
    )
    got = invoke("plan", "--trace", trace, "--out", "o", "--no-html")
    refused(got, "bad.csv: 6 faults", "slo >= 1", "line 2", "'-3'", "line 4, column train_s")
    assert len(got.err.splitlines()) == 7
    assert all(line.startswith("error: ") for line in got.err.splitlines())
    assert names(folder) == ["bad.csv"]


SHOP = ("plan", "--trace", OPEN_SHOP)
REFUSED: dict[str, tuple[tuple[str | Path, ...], tuple[str, ...]]] = {
    "no file": (("plan", "--trace", "absent.csv"), ("absent.csv", "No such file or directory")),
    "a folder": (("plan", "--trace", "."), ("error: ",)),
    "an empty name": (("plan", "--trace", ""), ("error: ",)),
    "no trace": (("plan",), ("--trace",)),
    "policy": ((*SHOP, "--policy", "weeve"), ("'weeve'", "Did you mean 'weave'?")),
    "no policy": ((*SHOP, "--policy", ""), ("''", "weave")),
    "baseline": ((*SHOP, "--baselines", "solo,colocate"), ("Did you mean 'colocated'?",)),
    "tie rule": ((*SHOP, "--tie-rule", "tihgtest"), ("Did you mean 'tightest'?",)),
    "objective": ((*SHOP, "--objective", "cheap"), ("--objective", "per-hour")),
    "durations": ((*SHOP, "--durations", "hours"), ("--durations", "wallclock")),
    "option": ((*SHOP, "--polcy", "weave"), ("--polcy", "--policy")),
    "value": ((*SHOP, "--max-group-size", "five"), ("--max-group-size",)),
    "range": ((*SHOP, "--max-group-size", "-1"), ("--max-group-size",)),
    "factor": ((*SHOP, "--colocated-factor", "nan"), ("--colocated-factor > 0 and <= 1e+06, got",)),
    "cluster": ((*SHOP, "--cluster", "absent.toml"), ("absent.toml", "No such file")),
    "command": (("pln",), ("pln",)),
    "check no file": (("check", "absent.json"), ("absent.json", "No such file")),
    "check folder": (("check", "."), ("Expected a plan file, got a folder",)),
    "generator": (
        ("generate", "prodction", "--out", "x.csv"),
        ("'prodction'", "Did you mean 'production'?", *GENERATORS),
    ),
    "format": (
        ("import", "phily", OPEN_SHOP, "--out", "x.csv"),
        ("'phily'", "Did you mean 'philly'?", *IMPORTERS),
    ),
    "no out": (("generate", "production"), ("--out",)),
    "suffix": (("generate", "tiny-gang", "--out", "x.xls"), ("x.xls", ".csv")),
    "no folder": (("generate", "tiny-gang", "--out", "no/x.csv"), ("no/x.csv",)),
    "no such log": (("import", "philly", "absent.csv", "--out", "x.csv"), ("absent.csv",)),
    "fixed size": (("generate", "tiny-gang", "--jobs", "3", "--out", "x.csv"), ("--jobs",)),
    "other option": (("generate", "profiles", "--gangs", "--out", "x.csv"), ("--gangs",)),
    "kind": (
        ("generate", "profiles", "--kind", "blanced", "--out", "x.csv"),
        ("Did you mean 'balanced'?",),
    ),
    "seed": (("generate", "production", "--seed", "-1", "--out", "x.csv"), ("--seed",)),
    "no jobs": (("generate", "production", "--jobs", "0", "--out", "x.csv"), ("--jobs",)),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_is_2_and_says_why(
    arguments: tuple[str | Path, ...], parts: tuple[str, ...], folder: Path
) -> None:
    refused(invoke(*arguments), *parts)
    assert names(folder) == []


def test_one_step_jobs_are_planned(folder: Path) -> None:
    """The same plan of fewer seconds an iteration: T_j = max(r, t, (r + t + s) / 2)."""
    trace = write(
        folder / "t.csv",
        ESTIMATED.replace("model_b", "model_b,mode").replace(",7\n", ",7,one-step\n"),
    )
    assert invoke("plan", "--trace", trace).code == 0


# --- extreme but allowed ----------------------------------------------------------------------

FREE = "[rollout]\nusd_per_gpu_hour = 0\n[train]\nusd_per_gpu_hour = 0\n"
ASYNC = ESTIMATED.replace("model_b", "model_b,mode").replace(",7\n", ",7,async\n")


@pytest.mark.parametrize("output", [[], ["--json"]], ids=["table", "json"])
def test_prices_may_be_zero(output: list[str], folder: Path) -> None:
    cluster = write(folder / "c.toml", FREE)
    ok("plan", "--trace", OPEN_SHOP, "--cluster", cluster, "--baselines", "solo", *output)


def test_async_jobs_are_counted_apart(folder: Path) -> None:
    document = ok(
        "plan", "--trace", write(folder / "t.csv", ASYNC), "--json", "--out", "o", "--no-html"
    ).json
    assert document["inputs"]["async_jobs"] == 2
    figures = document["conventions"]["work"]["policies"]["weave"]
    assert figures["dedicated"]["jobs"] == 2
    # 1,000 s each on one node of each kind of their own.
    assert figures["dedicated"]["usd_total"] == pytest.approx(2000 / 3600 * PAIR_USD)
    assert figures["usd_total"] == pytest.approx(figures["dedicated"]["usd_total"])
    assert check_plan(read_plan(folder / "o" / "plan.json")).ok


def test_async_jobs_only_have_a_table_too(folder: Path) -> None:
    assert "2 async jobs" in ok("plan", "--trace", write(folder / "t.csv", ASYNC)).out


def test_a_single_job_is_a_trace(folder: Path) -> None:
    trace = write(folder / "t.csv", "".join(ESTIMATED.splitlines(keepends=True)[:2]))
    document = ok("plan", "--trace", trace, "--baselines", ",".join(POLICIES), "--json").json
    weave, solo = (document["conventions"]["work"]["policies"][name] for name in ("weave", "solo"))
    assert weave["usd_total"] == pytest.approx(solo["usd_total"])
    assert weave["admission"] == {"direct": 0.0, "rollout_scaled": 0.0, "isolated": 1.0}
