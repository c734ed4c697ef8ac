"""What ``plan`` leaves behind: files that add up, and tables that fit."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import (
    ESTIMATED,
    GANG,
    OPEN_SHOP,
    PRODUCTION,
    invoke,
    names,
    ok,
    refused,
    write,
)
from instances.checker import check_plan
from instances.plan_file import read_plan
from instances.trace import read_trace

FILES = ["jobs.csv", "plan.json", "timeline.csv"]

JOB_COLUMNS = [
    "convention", "policy", "job_id", "mode", "arrival_s", "departure_s", "duration_s",
    "iterations", "slo", "slowdown", "slo_met", "solo_s", "deadline_s", "worst_iteration_s",
    "worst_single_iteration_s",
    "admission", "group_id", "group_size_max", "moves", "paused_s", "rollout_nodes", "train_nodes",
    "rollout_node_hours", "train_node_hours", "usd", "estimated",
]  # fmt: skip
TIMELINE_COLUMNS = [
    "convention", "policy", "time_s", "jobs", "rollout_nodes", "train_nodes", "rollout_gpus",
    "train_gpus", "usd_per_hour", "bound_usd_per_hour", "sync_gbps",
]  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder and the JSON of the shipped production trace under three policies."""
    out = tmp_path_factory.mktemp("real") / "out"
    got = ok(
        "plan", "--trace", PRODUCTION, "--baselines", "solo,colocated", "--out", out,
        "--no-html", "--json",
    )  # fmt: skip
    return out, got.json


def by_policy(document: Any) -> list[tuple[str, str, Any]]:
    return [
        (convention, name, figures)
        for convention, part in document["conventions"].items()
        for name, figures in part["policies"].items()
    ]


def test_out_writes_three_files_and_nothing_else(real: tuple[Path, Any]) -> None:
    out, _ = real
    assert names(out) == FILES
    assert names(out.parent) == ["out"]
    for name in FILES:
        data = (out / name).read_bytes()
        assert data.endswith(b"\n")
        assert b"\r" not in data
        assert (out / name).stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_jobs_csv_adds_up_to_the_json(real: tuple[Path, Any]) -> None:
    out, document = real
    table = pd.read_csv(out / "jobs.csv", keep_default_na=False)
    assert list(table.columns[: len(JOB_COLUMNS)]) == JOB_COLUMNS
    jobs = read_trace(PRODUCTION).jobs
    for convention, policy, figures in by_policy(document):
        rows = table[(table["convention"] == convention) & (table["policy"] == policy)]
        assert list(rows["job_id"]) == list(jobs.job_id)
        assert rows["usd"].sum() == pytest.approx(figures["usd_total"])
        for pool in ("rollout", "train"):
            hours = rows[f"{pool}_node_hours"].sum()
            assert hours == pytest.approx(figures["node_hours"][pool])
        assert (rows["slo_met"].astype(str) == "True").mean() == figures["slo_attainment"]
        span_s = rows["departure_s"].max() - rows["arrival_s"].min()
        assert span_s / 3600 == pytest.approx(figures["horizon_h"])
        np.testing.assert_allclose(rows["solo_s"], jobs.solo_s)
        np.testing.assert_allclose(rows["deadline_s"], jobs.deadline_s)
        np.testing.assert_allclose(rows["duration_s"], jobs.duration_s)
        stay = rows["departure_s"] - rows["arrival_s"]
        if convention == "work":
            np.testing.assert_allclose(rows["iterations"], jobs.iterations)
            np.testing.assert_allclose(stay / rows["duration_s"], rows["slowdown"])
        else:
            np.testing.assert_allclose(stay, jobs.duration_s)
        if figures["admission"] is not None:
            shares = rows["admission"].value_counts(normalize=True)
            assert dict(shares) == pytest.approx(
                {kind: share for kind, share in figures["admission"].items() if share}
            )
    assert set(table["estimated"]) == {";".join(document["inputs"]["estimated_columns"])}
    assert list(table["model_b"][:200]) == list(jobs.optional["model_b"])


def test_timeline_csv_adds_up_to_the_json(real: tuple[Path, Any]) -> None:
    out, document = real
    table = pd.read_csv(out / "timeline.csv")
    assert list(table.columns) == TIMELINE_COLUMNS
    for convention, policy, figures in by_policy(document):
        rows = table[(table["convention"] == convention) & (table["policy"] == policy)]
        times = rows["time_s"].to_numpy()
        assert (np.diff(times) > 0).all()
        hours = np.diff(times) / 3600
        assert hours.sum() == pytest.approx(figures["horizon_h"])
        usd = rows["usd_per_hour"].to_numpy()
        assert usd[:-1] @ hours == pytest.approx(figures["usd_total"])
        for pool in ("rollout", "train"):
            nodes = rows[f"{pool}_nodes"].to_numpy()
            assert nodes.max() == figures["peak_nodes"][pool]
            assert nodes[:-1] @ hours == pytest.approx(figures["node_hours"][pool])
            assert (rows[f"{pool}_gpus"] == 8 * nodes).all()
        last = rows.iloc[-1]
        assert (last["jobs"], last["rollout_nodes"], last["train_nodes"]) == (0, 0, 0)
        bound = rows["bound_usd_per_hour"].to_numpy()
        if policy == "colocated":
            assert np.isnan(bound).all()
        else:
            mean = bound[:-1] @ hours / hours.sum()
            assert mean == pytest.approx(figures["bound_usd_per_hour_mean"])
            assert (bound <= usd + 1e-9).all()


def test_plan_json_is_the_main_policys_and_valid(real: tuple[Path, Any]) -> None:
    out, document = real
    plan = read_plan(out / "plan.json")
    assert (plan.policy, plan.durations, plan.pins_fixed) == ("weave", "work", True)
    report = check_plan(plan)
    assert report.ok
    figures = document["conventions"]["work"]["policies"]["weave"]
    assert report.usd_total_recomputed == pytest.approx(figures["usd_total"])
    assert report.peak_nodes == figures["peak_nodes"]


def test_durations_choose_the_plan_written(folder: Path) -> None:
    ok(
        "plan",
        "--trace",
        GANG,
        "--durations",
        "wallclock",
        "--policy",
        "solo",
        "--out",
        "o",
        "--no-html",
    )
    plan = read_plan(folder / "o" / "plan.json")
    assert (plan.policy, plan.durations) == ("solo", "wallclock")
    assert check_plan(plan).ok


def test_existing_files_are_refused_before_the_work(folder: Path) -> None:
    (folder / "o").mkdir()
    write(folder / "o" / "jobs.csv", "mine")
    # The trace is bad as well: the refusal comes first, nothing was read.
    got = invoke("plan", "--trace", "absent.csv", "--out", "o", "--no-html")
    refused(got, "o already holds jobs.csv", "--force")
    assert "absent.csv" not in got.err
    assert names(folder / "o") == ["jobs.csv"]
    assert (folder / "o" / "jobs.csv").read_text() == "mine"
    assert names(folder) == ["o"]


def test_force_replaces_our_files_only(folder: Path) -> None:
    (folder / "o" / "sub").mkdir(parents=True)
    for name in ("jobs.csv", "notes.txt", "sub/plan.json", ".hidden"):
        write(folder / "o" / name, "mine")
    ok("plan", "--trace", GANG, "--out", "o", "--no-html", "--force")
    assert names(folder / "o") == sorted([*FILES, "notes.txt", "sub", ".hidden"])
    for name in ("notes.txt", "sub/plan.json", ".hidden"):
        assert (folder / "o" / name).read_text() == "mine"
    assert (folder / "o" / "jobs.csv").read_text() != "mine"
    before = {name: (folder / "o" / name).read_bytes() for name in FILES}
    refused(
        invoke("plan", "--trace", GANG, "--out", "o", "--no-html"),
        "jobs.csv",
        "plan.json",
        "timeline.csv",
    )
    ok("plan", "--trace", GANG, "--out", "o", "--no-html", "--force")
    assert {name: (folder / "o" / name).read_bytes() for name in FILES} == before
    assert names(folder) == ["o"]


def test_a_failed_run_leaves_what_was_there(folder: Path) -> None:
    (folder / "o").mkdir()
    for name in FILES:
        write(folder / "o" / name, "mine")
    refused(
        invoke("plan", "--trace", "absent.csv", "--out", "o", "--no-html", "--force"), "absent.csv"
    )
    assert names(folder / "o") == FILES
    assert {(folder / "o" / name).read_text() for name in FILES} == {"mine"}
    assert names(folder) == ["o"]


def test_ctrl_c_while_the_hidden_folder_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A signal that comes between the making of the folder and the next line of Python.
    make = Path.mkdir

    def interrupted(path: Path, *arguments: Any, **options: Any) -> None:
        make(path, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    assert invoke("plan", "--trace", GANG, "--out", "o", "--no-html").code == 130
    assert names(folder) == []


def test_out_is_an_existing_empty_folder(folder: Path) -> None:
    (folder / "o").mkdir()
    ok("plan", "--trace", GANG, "--out", "o", "--no-html")
    assert names(folder / "o") == FILES
    ok("plan", "--trace", GANG, "--out", ".", "--no-html")
    assert names(folder) == sorted(["o", *FILES])


def test_out_that_cannot_be_a_folder(folder: Path) -> None:
    write(folder / "file", "mine")
    got = invoke("plan", "--trace", GANG, "--out", "file", "--no-html", "--force")
    refused(got, "file is a file")
    assert (folder / "file").read_text() == "mine"
    refused(
        invoke("plan", "--trace", GANG, "--out", "no/o", "--no-html"),
        f"{folder / 'no'} of --out to exist",
    )
    refused(invoke("plan", "--trace", GANG, "--out", "file/o", "--no-html"), "of --out to exist")
    assert names(folder) == ["file"]


@pytest.mark.parametrize("words", [("plan", "--trace", GANG), ("generate", "tiny-gang")])
def test_out_of_a_name_too_long(words: tuple[str | Path, ...], folder: Path) -> None:
    refused(invoke(*words, "--out", "x" * 300 + ".csv"), "File name too long")


@pytest.mark.parametrize("name", ["a folder", "Größe 試行", "--out", 'it\'s "quoted" [bold]'])
def test_paths_with_spaces_and_other_scripts(name: str, folder: Path) -> None:
    trace = folder / f"{name}.csv"
    trace.write_bytes(GANG.read_bytes())
    got = ok("plan", f"--trace={trace}", f"--out={name}", "--no-html", "--json")
    assert got.json["inputs"]["trace"] == trace.name
    assert names(folder / name) == FILES
    assert f"to {name}." in got.err
    assert ok("check", folder / name / "plan.json").code == 0
    assert trace.name in ok("plan", f"--trace={trace}").out


def test_columns_of_the_trace_named_like_ours_are_renamed(folder: Path) -> None:
    trace = write(
        folder / "t.csv",
        "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b,policy,usd,team,estimated\n"
        'a,0,100,1.5,3,4,7,p1,1e3,"x, ""y""",yes\n'
        "b,50,100,1.5,3,4,7,p2,,Größe,no\n",
    )
    ok("plan", "--trace", trace, "--out", "o", "--no-html", "--baselines", "solo")
    with open(folder / "o" / "jobs.csv", encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        first = row["job_id"] == "a"
        assert row["policy"] in ("weave", "solo")
        assert float(row["usd"]) > 0
        assert row["trace_policy"] == ("p1" if first else "p2")
        assert row["trace_usd"] == ("1e3" if first else "")
        assert row["trace_estimated"] == ("yes" if first else "no")
        assert row["team"] == ('x, "y"' if first else "Größe")
        assert row["estimated"].startswith("rollout_state_gb;")
    assert len(rows[0]) == len(JOB_COLUMNS) + 5  # model_b, team and the three renamed


def test_renamed_columns_do_not_meet_others(folder: Path) -> None:
    trace = write(
        folder / "t.csv",
        ESTIMATED.replace("model_b", "model_b,policy,trace_policy").replace(",7\n", ",7,one,two\n"),
    )
    ok("plan", "--trace", trace, "--out", "o", "--no-html")
    row = pd.read_csv(folder / "o" / "jobs.csv").iloc[0]
    assert {"one", "two"} <= set(row.astype(str))


# --- tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("trace", [OPEN_SHOP, PRODUCTION], ids=["tiny", "production"])
def test_tables_fit_the_terminal(
    columns: int, trace: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = ok("plan", "--trace", trace, "--baselines", "solo,colocated").out
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    for word in ("weave", "solo", "colocated", "H20+H800", "100%", "x "):
        assert word in text
    for row in ("weave ", "solo ", "colocated "):  # one row in each of the two tables
        assert len([line for line in text.splitlines() if line.strip().startswith(row)]) >= 2


@pytest.mark.parametrize(
    "gpus",
    [
        ("H20", "H800"),
        ("RTX6000A", "B200-SXM"),
    ],
    ids=["short names", "long names"],
)
def test_figures_of_a_large_fleet_fit_80_columns(gpus: tuple[str, str], folder: Path) -> None:
    cluster = write(
        folder / "c.toml", f'[rollout]\ngpu = "{gpus[0]}"\n[train]\ngpu = "{gpus[1]}"\n'
    )
    ok("generate", "production", "--concurrent", "--jobs", "1000", "--out", "t.csv")
    text = ok("plan", "--trace", "t.csv", "--cluster", cluster, "--baselines", "solo,colocated").out
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"\b\d{4}\+\d{4}\b", text)  # thousands of GPUs of each kind
    assert "…" not in text


def test_the_table_says_what_the_json_says(folder: Path, real: tuple[Path, Any]) -> None:
    text = ok("plan", "--trace", PRODUCTION, "--baselines", "solo,colocated").out
    _, document = real
    for convention in ("work", "wallclock"):
        part = document["conventions"][convention]
        assert f"{part['savings']['solo']:.2f}x" in text
        assert f"{part['savings']['colocated']:.2f}x" in text
        assert f"{part['policies']['weave']['usd_per_hour_mean']:,.1f}" in text
    peak = document["conventions"]["work"]["policies"]["weave"]["peak_gpus"]
    assert f"{peak['H20']}+{peak['H800']}" in text
