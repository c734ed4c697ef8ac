"""``planner sweep`` as a command: what it prints, its exit codes, and Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from command_line import Outcome, environment, names, refused, write
from planner.cli.sweep import sweep
from planner.sweep.expand import read_runs
from sweep_cases import LARGE_STATE, SMALL

#: What starts ``planner sweep`` as a process.
SCRIPT = (
    "import typer; from planner.cli.sweep import sweep\n"
    "app = typer.Typer(pretty_exceptions_enable=False); app.command()(sweep); app()"
)
#: One failed run of three: see test_sweep_run.
FAILING = """\
policies = "weave"
[[trace]]
file = "jobs.csv"
[axes]
rollout_host_dram_gb = [1000, 2000, 3000]
"""


def invoke(*arguments: str | Path) -> Outcome:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(sweep)
    handler = signal.getsignal(signal.SIGTERM)
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in arguments])
    signal.signal(signal.SIGTERM, handler)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "small.toml", SMALL)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def fits(done: Outcome) -> None:
    """Nothing is wider than a terminal of 80 columns, and nothing was cut to fit."""
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert "…" not in done.out


def test_tables(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    done = invoke(small, "--out", out, "--processes", "1")
    assert done.code == 0, done.err
    assert f"12 runs are in {out}." in done.err
    fits(done)
    rows = rows_of(out)
    mean = {
        policy: sum(float(r["usd_per_hour_mean"]) for r in rows if r["policy"] == policy) / 6
        for policy in ("weave", "solo")
    }
    lines = done.out.splitlines()
    weave = next(line.split() for line in lines if line.strip().startswith("weave "))
    assert weave[1:3] == ["6", f"{mean['weave']:.1f}"]
    # max_group_size 1: nobody shares, so weave costs what solo does
    (alone,) = (line.split() for line in lines if line.strip().startswith("1 "))
    assert alone[1:3] == alone[3:5]
    best = min(rows, key=lambda r: float(r["usd_per_hour_mean"]))
    assert f"${float(best['usd_per_hour_mean']):,.2f}/h" in done.out.replace("\n", " ")


def test_json(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    document = invoke(small, "--out", out, "--processes", "1", "--json", "--quiet").json
    rows = rows_of(out)
    assert (document["command"], document["runs"], document["finished"]) == ("sweep", 12, 12)
    assert (document["kept"], document["failed"], document["interrupted"]) == (0, 0, False)
    for entry in (*document["policies"], *document["axes"]):
        usd = [
            (float(r["usd_per_hour_mean"]), int(r["run"]))
            for r in rows
            if r["policy"] == entry["policy"]
            and ("axis" not in entry or r[entry["axis"]] == str(entry["value"]))
        ]
        assert entry["runs"] == len(usd)
        assert entry["usd_per_hour_mean"] == pytest.approx(sum(u for u, _ in usd) / len(usd))
        assert (entry["usd_per_hour_best"], entry["best_run"]) == min(usd)
    assert {(e["axis"], e["value"]) for e in document["axes"]} == {
        ("max_group_size", size) for size in (1, 2, 5)
    }


def test_again_does_nothing_and_says_so(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    invoke(small, "--out", out, "--processes", "1")
    before = out.read_bytes()
    again = invoke(small, "--out", out)
    assert again.code == 0
    assert "12 runs are in" in again.err
    assert "12 of them from before" in again.err
    assert out.read_bytes() == before
    assert names(tmp_path) == ["small.toml", "t.csv"]


def test_dry_run_lists_and_writes_nothing(small: Path, tmp_path: Path) -> None:
    done = invoke(small, "--out", tmp_path / "t.csv", "--dry-run")
    assert done.code == 0
    first, one, *_, last = done.out.splitlines()
    assert first == "12 runs of study 'small':"
    assert one.split(maxsplit=1) == [
        "1",
        "production, weave (work), trace seed 0, max_group_size 1",
    ]
    assert "2 more" in last
    listed = invoke(small, "--dry-run", "--json").json["runs"]
    assert [run["run_id"] for run in listed] == [run.run_id for run in read_runs(small).runs]
    assert names(tmp_path) == ["small.toml"]


def test_failed_runs_are_told_and_the_exit_code_is_1(tmp_path: Path) -> None:
    write(tmp_path / "jobs.csv", LARGE_STATE)
    study = write(tmp_path / "study.toml", FAILING)
    out = tmp_path / "t.csv"
    done = invoke(study, "--out", out, "--processes", "1")
    assert done.code == 1
    assert "run 1 (weave, trace jobs.csv) failed: TraceError: " in done.err
    assert "rollout_state_gb" in done.err
    assert [row["error_type"] for row in rows_of(out)] == ["TraceError", "", ""]
    again = invoke(study, "--out", out, "--processes", "1", "--json")
    assert again.code == 1
    assert "--retry-failed" in again.err
    assert [f["run"] for f in again.json["failures"]] == [1]
    assert (again.json["kept"], again.json["policies"][0]["failed"]) == (3, 1)
    retried = invoke(study, "--out", out, "--processes", "1", "--retry-failed", "--json")
    assert (retried.code, retried.json["kept"]) == (1, 2)


def test_nothing_but_failures(tmp_path: Path) -> None:
    write(tmp_path / "jobs.csv", LARGE_STATE)
    study = write(tmp_path / "study.toml", FAILING.replace(", 2000, 3000", ""))
    write(tmp_path / "cluster.toml", "[rollout]\nhost_dram_gb = 2000\n")
    done = invoke(study, "--out", tmp_path / "t.csv", "--processes", "1")
    assert done.code == 1
    assert "Cheapest" not in done.out


def test_fleets_show_waits(tmp_path: Path) -> None:
    study = write(
        tmp_path / "study.toml",
        'conventions = ["work", "wallclock"]\n'
        + SMALL.replace("max_group_size = [1, 2, 5]", 'fleet = ["4,4", "none"]'),
    )
    done = invoke(study, "--out", tmp_path / "t.csv", "--processes", "1")
    assert done.code == 0, done.err
    assert "p95 wait" in done.out
    fits(done)


def test_conventions_are_never_mixed(tmp_path: Path) -> None:
    text = 'conventions = ["work", "wallclock"]\n' + SMALL
    done = invoke(write(tmp_path / "s.toml", text), "--out", tmp_path / "t.csv", "--processes", "1")
    for convention in ("work", "wallclock"):
        assert f"small: 12 runs, durations {convention}" in done.out
        assert f"max_group_size, durations {convention}" in done.out
    fits(done)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["small.toml"], "Expected --out FILE"),
        (["small.toml", "--out", "t.txt"], "end in .csv or .parquet"),
        (["small.toml", "--out", "t.csv", "--scheduler", "host"], "such as tcp://host:8786"),
        (
            ["small.toml", "--out", "t.csv", "--scheduler", "h:1", "--processes", "2"],
            "--scheduler or --processes, not both",
        ),
        (["none.toml", "--out", "t.csv"], "none.toml: No such file"),
        (["bad.toml", "--out", "t.csv"], "bad.toml: Unknown key 'polices'. Did you mean"),
    ],
)
def test_refused(
    arguments: list[str], words: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    write(small.parent / "bad.toml", SMALL.replace("policies", "polices"))
    refused(invoke(*arguments), words)
    assert names(small.parent) == ["bad.toml", "small.toml"]


def test_a_table_of_another_study(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    invoke(small, "--out", out, "--processes", "1")
    other = write(tmp_path / "o.toml", SMALL.replace("small", "other").replace("5]", "4]"))
    refused(invoke(other, "--out", out), "t.csv", "'other'", "'small'", "--force")
    done = invoke(other, "--out", out, "--force", "--processes", "1")
    assert done.code == 0
    assert "Dropped 4 runs" in done.err
    assert [row["max_group_size"] for row in rows_of(out)] == [*"112244"] * 2


# --- Ctrl-C ---------------------------------------------------------------------------------------


def ended(study: Path, out: Path, processes: int, number: signal.Signals) -> tuple[int, str]:
    """Start a sweep and send it a signal once there are rows; return its code and words."""
    words = [sys.executable, "-c", SCRIPT, str(study), "--out", str(out)]
    with subprocess.Popen(
        [*words, "--processes", str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    ) as process:
        for _ in range(600):
            if out.exists() and out.read_bytes().count(b"\n") > 3:
                break
            time.sleep(0.02)
        os.killpg(process.pid, number)  # a terminal signals workers, too
        _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


@pytest.mark.parametrize(("processes", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_ctrl_c_keeps_rows_and_says_how_to_go_on(
    processes: int, number: signal.Signals, tmp_path: Path
) -> None:
    text = SMALL.replace("[[trace]]", "replications = 200\n[[trace]]").replace("12", "30")
    study, out = write(tmp_path / "long.toml", text), tmp_path / "t.csv"
    code, told = ended(study, out, processes, number)
    assert code == 130, told
    assert "Traceback" not in told
    kept = len(rows_of(out))
    assert kept >= 3
    assert f"interrupted: {kept} of 2,400 runs are in {out}. The same command goes on" in told
    assert names(tmp_path) == ["long.toml", "t.csv"]
    listed: list[dict[str, Any]] = json.loads(invoke(study, "--dry-run", "--json").out)["runs"]
    assert {row["run_id"] for row in rows_of(out)} < {run["run_id"] for run in listed}


def test_a_sweep_that_was_killed_ends_with_the_same_bytes(tmp_path: Path) -> None:
    study = write(
        tmp_path / "study.toml", SMALL.replace("[[trace]]", "replications = 30\n[[trace]]")
    )
    out, whole = tmp_path / "t.csv", tmp_path / "whole.csv"
    code, told = ended(study, out, 2, signal.SIGKILL)
    assert code == -signal.SIGKILL, told
    document = invoke(study, "--out", out, "--processes", "1", "--json").json
    assert 0 < document["kept"] < document["runs"] == 360
    invoke(study, "--out", whole, "--processes", "1")
    assert out.read_bytes() == whole.read_bytes()
    assert names(tmp_path) == ["study.toml", "t.csv", "whole.csv"]
