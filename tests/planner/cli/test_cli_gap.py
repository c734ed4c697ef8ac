"""``planner gap``: sentences, tables, JSON, files, processes, interrupts, exit codes."""

from __future__ import annotations

import csv
import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, job_of, trace_of
from command_line import (
    OPEN_SHOP,
    Outcome,
    command,
    environment,
    invoke,
    names,
    ok,
    refused,
    run,
    write,
)
from gap_cases import fragmented, overlapping, saturated, short_production, with_async
from instances.trace import Trace, write_trace
from planner.gap.solve import ChainSolver

GAP_KEYS = [
    "policy", "durations", "horizon_h", "usd_per_hour_mean", "replanned_usd_per_hour_mean",
    "held_usd_per_hour_mean", "bound_usd_per_hour_mean", "ratio", "split", "snapshots",
    "snapshots_distinct", "snapshots_proved_optimal", "snapshots_within_1_percent",
    "snapshots_not_solved", "stopped_by", "worst_open_ratio", "bound_methods", "bound_options",
    "dedicated", "by_jobs", "worst", "interrupted", "notes", "checked",
]  # fmt: skip


def file_of(trace: Trace, folder: Path, name: str = "t.csv") -> Path:
    path = folder / name
    write_trace(trace.jobs, path)
    return path


def words(text: str) -> str:
    return " ".join(text.split())


def gap_of(*arguments: str | Path) -> Any:
    return ok("gap", *arguments, "--json", "--processes", "1").json["gap"]


# --- JSON -------------------------------------------------------------------------------------


def test_document(folder: Path) -> None:
    trace = file_of(fragmented(), folder)
    document = ok("gap", "--trace", trace, "--json").json
    assert list(document) == ["schema_version", "command", "inputs", "gap"]
    assert document["command"] == "gap"
    assert document["inputs"]["jobs"] == 3
    assert document["inputs"]["options"]["durations"] == "wallclock"
    gap = document["gap"]
    assert list(gap) == GAP_KEYS
    # 6, 5, 5 and 5 pair-hours in 4 hours (gap_cases.fragmented)
    assert gap["usd_per_hour_mean"] == pytest.approx(6 / 4 * PAIR_USD)
    assert gap["replanned_usd_per_hour_mean"] == pytest.approx(5 / 4 * PAIR_USD)
    assert gap["bound_usd_per_hour_mean"] == pytest.approx(5 / 4 * PAIR_USD)
    assert gap["ratio"] == pytest.approx(6 / 5)
    assert gap["split"] == {
        "online_regret": pytest.approx(6 / 5),
        "heuristic_loss": 1.0,
        "unproved_rest": 1.0,
    }
    assert (gap["snapshots"], gap["snapshots_proved_optimal"]) == (4, 4)
    assert gap["worst"][0]["from_h"] == 2.0
    assert gap["worst"][0]["n_jobs"] == 2
    assert gap["notes"] == []


def test_the_policy_pays_what_plan_says(folder: Path) -> None:
    trace = short_production(folder)
    plan = ok("plan", "--trace", trace, "--json").json["conventions"]
    for durations in ("work", "wallclock"):
        gap = gap_of("--trace", trace, "--durations", durations)
        weave = plan[durations]["policies"]["weave"]
        assert gap["usd_per_hour_mean"] == pytest.approx(weave["usd_per_hour_mean"])
        # the volume bound is never above the best one
        assert gap["bound_usd_per_hour_mean"] >= weave["bound_usd_per_hour_mean"] * (1 - 1e-9)


def test_under_work_the_ratio_is_that_of_the_trajectory(folder: Path) -> None:
    gap = gap_of("--trace", file_of(fragmented(), folder), "--durations", "work")
    assert "ratio" not in gap
    assert gap["trajectory_ratio"] >= 1.0
    assert all("trajectory_ratio" in part for part in gap["by_jobs"])


def test_options_of_the_placer_are_obeyed(folder: Path) -> None:
    trace = file_of(saturated(), folder)
    assert gap_of("--trace", trace)["ratio"] == pytest.approx(2.0)
    assert gap_of("--trace", trace, "--pack-saturated")["ratio"] == 1.0
    # groups of two: two pairs are the least for four jobs
    assert gap_of("--trace", trace, "--max-group-size", "2")["ratio"] == 1.0
    assert gap_of("--trace", trace, "--policy", "solo")["ratio"] == pytest.approx(4.0)


def test_async_jobs_are_counted_apart(folder: Path) -> None:
    gap = gap_of("--trace", file_of(with_async(), folder))
    dedicated = 2 * ROLLOUT_USD + TRAIN_USD
    assert gap["dedicated"] == {"jobs": 1, "usd_per_hour_mean": pytest.approx(dedicated)}
    assert gap["bound_usd_per_hour_mean"] == pytest.approx(PAIR_USD + dedicated)
    assert gap["ratio"] == 1.0


def test_timings_only_when_asked(folder: Path) -> None:
    trace = file_of(overlapping(), folder)
    timed = ok("gap", "--trace", trace, "--json", "--timings").json
    assert sorted(timed["timings"]["steps_s"]) == ["read", "replay", "solve"]
    plain = ok("gap", "--trace", trace, "--json").json
    assert timed.pop("timings")
    assert timed == plain
    assert "--timings shows in --json only." in ok("gap", "--trace", trace, "--timings").err


def test_worst_rows(folder: Path) -> None:
    trace = file_of(fragmented(), folder)
    assert len(gap_of("--trace", trace, "--worst", "2")["worst"]) == 2
    assert gap_of("--trace", trace, "--worst", "0")["worst"] == []


# --- words ------------------------------------------------------------------------------------


def test_sentences(folder: Path) -> None:
    out = words(ok("gap", "--trace", file_of(fragmented(), folder)).out)
    assert "t.csv: 3 jobs over 4.0 h, policy weave (wallclock convention)" in out
    assert "weave pays $85.56/h on average" in out
    assert "costs less than $71.30/h, with groups of at most 5 jobs" in out
    assert "Integrated ratio: 1.200 x the bound." in out
    assert "online regret 1.200" in out
    assert "heuristic loss 1.000" in out
    assert "4 moments, 3 different sets of jobs: the optimum of every one is proved." in out
    assert "Worst moments" in out


def test_sentences_under_work(folder: Path) -> None:
    out = words(ok("gap", "--trace", file_of(with_async(), folder), "--durations", "work").out)
    assert "Ratio along its own trajectory: 1.000 x the bound." in out
    assert "Integrated" not in out
    assert "1 async job holds dedicated nodes for $71.84/h on average" in out


def test_every_moment(folder: Path) -> None:
    trace = file_of(fragmented(), folder)
    shown = ok("gap", "--trace", trace, "--show").out
    assert "Every moment" in shown
    assert sum(line.rstrip().endswith(" proved") for line in shown.splitlines()) == 4


def test_what_is_open_is_said(folder: Path) -> None:
    trace = file_of(saturated(), folder)
    got = ok("gap", "--trace", trace, "--time-limit-per-snapshot", "0s")
    assert "1 moment was stopped by the time limit" in got.err
    assert "0 proved optimal, 0 within 1% of their bound, the worst within 2.000 x" in words(
        got.out
    )


def test_nobody_to_share(folder: Path) -> None:
    text = (
        "job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,"
        "rollout_switch_s,train_switch_s,sync_gb,mode\nfree,0,3600,1,60,40,1,1,0,0,0,async\n"
    )
    got = ok("gap", "--trace", write(folder / "t.csv", text))
    assert "no ratio" in words(got.out)
    assert "the optimum of every one" not in words(got.out)  # of no moments
    assert gap_of("--trace", folder / "t.csv")["ratio"] is None


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--policy", "random"), ("weave, repack, solo", "'random'")),
        (("--policy", "waeve"), ("'weave'",)),
        (("--durations", "wall"), ("work, wallclock", "'wall'")),
        (("--tolerance", "2"), ("tolerance", "2.0")),
        (("--time-limit-per-snapshot", "soon"), ("--time-limit-per-snapshot", "'soon'")),
        (("--tie-rule", "best"), ("--tie-rule", "'best'")),
        (("--show", "--json"), ("--show and --json",)),
        (("--resume", "."), ("--resume", "folder")),
        (("--resume", "words.txt"), ("--resume", "words.txt")),
        (("--resume", "none/store"), ("Create it first",)),
    ],
)
def test_bad_input(folder: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    write(folder / "words.txt", "these are words, not a store\n" * 100)
    refused(invoke("gap", "--trace", OPEN_SHOP, *arguments), *parts)
    assert names(folder) == ["words.txt"]


def test_one_step_jobs_take_part(folder: Path) -> None:
    trace = file_of(trace_of(job_of("odd", 60, 40, mode="one-step")), folder)
    assert invoke("gap", "--trace", trace).code == 0


# --- files ------------------------------------------------------------------------------------


def test_files(folder: Path) -> None:
    trace = file_of(fragmented(), folder)
    got = ok("gap", "--trace", trace, "--out", "out", "--no-html")
    assert names(folder / "out") == ["gap.csv", "worst_plan.json"]
    assert "Wrote gap.csv, worst_plan.json to out." in got.err
    with (folder / "out" / "gap.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["jobs"]) for row in rows] == [2, 3, 2, 1]
    assert [float(row["usd_per_hour"]) for row in rows] == pytest.approx(
        [PAIR_USD, 2 * PAIR_USD, 2 * PAIR_USD, PAIR_USD]
    )
    assert [float(row["bound_usd_per_hour"]) for row in rows] == pytest.approx(
        [PAIR_USD, 2 * PAIR_USD, PAIR_USD, PAIR_USD]
    )
    assert {row["proved_optimal"] for row in rows} == {"True"}
    checked = ok("check", folder / "out" / "worst_plan.json", "--json").json
    assert checked["checked"] is True
    assert checked["usd_total"] == pytest.approx(PAIR_USD)
    refused(invoke("gap", "--trace", trace, "--out", "out", "--no-html"), "gap.csv", "--force")
    ok("gap", "--trace", trace, "--out", "out", "--no-html", "--force")


# --- processes, stores, interrupts ------------------------------------------------------------


def finished(folder: Path, *arguments: str | Path) -> Outcome:
    return run("gap", "--trace", short_production(folder), *arguments, cwd=folder)


def test_equal_bytes_whatever_the_processes(folder: Path) -> None:
    one = finished(folder, "--json", "--processes", "1", "--out", "one", "--no-html")
    two = finished(
        folder, "--json", "--processes", "2", "--out", "two", "--no-html", "--resume", "store"
    )
    assert (one.code, two.code) == (0, 0), two.err
    assert one.out == two.out
    for name in ("gap.csv", "worst_plan.json"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()
    again = ok("gap", "--trace", "short.csv", "--json", "--resume", "store")
    assert again.out == two.out
    distinct = again.json["gap"]["snapshots_distinct"]
    assert f"Read {distinct} of {distinct} snapshots from store." in again.err


def test_a_run_that_goes_on_gives_equal_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = short_production(folder)
    whole = ok("gap", "--trace", trace, "--json", "--processes", "1").out
    solve, calls = ChainSolver._completed, [0]

    def sometimes(self: Any, link: Any, recent: Any) -> Any:
        calls[0] += link.solved is None
        if calls[0] == 12:
            raise KeyboardInterrupt
        return solve(self, link, recent)

    monkeypatch.setattr(ChainSolver, "_completed", sometimes)
    left = None
    for _ in range(20):
        calls[0] = 0
        part = invoke("gap", "--trace", trace, "--json", "--processes", "1", "--resume", "store")
        if part.code == 0:
            assert part.out == whole
            break
        assert part.code == 130
        gap = part.json["gap"]
        assert gap["interrupted"] is True
        assert left is None or gap["snapshots_not_solved"] < left
        left = gap["snapshots_not_solved"]
        assert gap["bound_usd_per_hour_mean"] <= json.loads(whole)["gap"]["bound_usd_per_hour_mean"]
    else:
        pytest.fail("it never came to an end")


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals")
@pytest.mark.parametrize("processes", [1, 2])
def test_interrupted_at_any_time(folder: Path, processes: int) -> None:
    trace = short_production(folder, 40)
    arguments = ("gap", "--trace", trace, "--json", "--processes", str(processes))
    rng = random.Random()  # any moment must do
    child = subprocess.Popen(
        command(*arguments, "--resume", "store"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    time.sleep(rng.uniform(0.8, 2.5))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert b"Traceback" not in err
    assert child.returncode in (0, 130), err
    if out:  # else Ctrl-C came before the replay was done
        gap = json.loads(out)["gap"]
        assert gap["interrupted"] is (child.returncode == 130)
        assert gap["ratio"] >= 1.0
    rest = ok(*arguments, "--resume", "store").json
    assert rest["gap"]["interrupted"] is False
    assert rest["gap"]["snapshots_proved_optimal"] == rest["gap"]["snapshots"]


def test_killed_it_loses_what_was_in_work_only(folder: Path) -> None:
    trace = short_production(folder, 40)
    child = subprocess.Popen(
        command("gap", "--trace", trace, "--json", "--processes", "1", "--resume", "store"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while child.poll() is None:
        if (folder / "store").exists() and (folder / "store").stat().st_size > 30_000:
            child.kill()
            break
        time.sleep(0.02)
    child.wait(timeout=60)
    rest = ok("gap", "--trace", trace, "--json", "--processes", "1", "--resume", "store")
    read = int(rest.err.split("Read ")[1].split()[0])
    assert read > 0
    assert rest.json["gap"]["snapshots_not_solved"] == 0
