"""``planner simulate``: tables, JSON, files, refusals, interrupts, exit codes."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from builders import job_of, trace_of
from command_line import (
    OPEN_SHOP,
    PAIR_USD,
    Outcome,
    command,
    environment,
    invoke,
    ok,
    refused,
    run,
    write,
)
from instances.trace import write_trace
from planner.replay.interval import interval
from planner.replay.published import AGREES, DIFFERS, Row
from planner.simulate.simulating import PARTS, SimulationParams, SimulationReport

HOUR_S = 3600.0
SHOP = ("simulate", "--trace", OPEN_SHOP)
#: Each part with little effort; migration is of no trace, and is tested by itself.
QUICK = (
    "--replications", "2", "--seeds", "2", "--checkpoints", "1,5", "--plan-at", "p50",
    "--only", "runtime,failures,drift", "--drift-settings", "mixed",
    "--drift-policies", "weave,regroup", "--job-mtbf-hours", "20",
)  # fmt: skip


def _trace(path: Path, *modes: str, **more: Any) -> Path:
    """Write one job a mode, of 100 s and 90 s, staying 5 h, 4 h and so on."""
    jobs = [
        job_of(f"{i}-{mode}", 100.0, 90.0, 2.5, mode=mode, duration_s=(5 - i) * HOUR_S, **more)
        for i, mode in enumerate(modes)
    ]
    write_trace(trace_of(*jobs).jobs, path)
    return path


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trace(tmp_path_factory.mktemp("four") / "four.csv", *["sync"] * 4)


@pytest.fixture(scope="module")
def whole(four: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """Every part but migration, as JSON and as files."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return ok(
        "simulate", "--trace", four, *QUICK, "--json", "--quiet", "--out", out, "--no-html"
    ), out


def plain(text: str) -> str:
    return " ".join(text.split())


# --- numbers and files ------------------------------------------------------------------------


def test_files_say_what_the_document_says(whole: tuple[Outcome, Path]) -> None:
    outcome, out = whole
    assert outcome.err == ""
    assert sorted(path.name for path in out.iterdir()) == [
        "drift.csv", "failures.csv", "runtime.csv",
    ]  # fmt: skip
    document = outcome.json
    assert document["migration"] is None
    for part in ("runtime", "failures", "drift"):
        frame = pd.read_csv(out / f"{part}.csv")
        assert list(frame.columns) == list(document[part][0])
        assert len(frame) == len(document[part])
        for column in frame.select_dtypes("number").columns:
            for value, row in zip(frame[column], document[part], strict=True):
                expected = row[column]
                assert pd.isna(value) if expected is None else value == pytest.approx(expected)


def test_savings_follow_from_the_rows(whole: tuple[Outcome, Path]) -> None:
    """Savings are shares of the worst case, which is planned last and saves nothing."""
    rows = whole[0].json["runtime"]
    assert [row["level"] for row in rows] == ["p50", "max"]
    for row in rows:
        worst = rows[-1]
        assert row["usd_saved_share"] == pytest.approx(1 - row["usd_total"] / worst["usd_total"])
        work = row["usd_per_work_hour"] / worst["usd_per_work_hour"]
        assert row["work_saved_share"] == pytest.approx(1 - work)
    assert rows[-1]["slo_attainment"] == 1  # planned for the worst, nobody is late
    assert rows[-1]["late_iterations_share"] == 0


@pytest.mark.parametrize(("slo", "met"), [(1.1, 0.0), (1.2, 1.0)])
def test_two_that_always_reach_the_limit_by_hand(tmp_path: Path, slo: float, met: float) -> None:
    """Every response is the longest, so phases take 100 s and 90 s, and 110 s and 99 s disturbed.

    Two jobs share a node of each kind: the rollouts fill a period of 220 s, longer than
    ``1.1 x 190 = 209 s`` and shorter than ``1.2 x 190 = 228 s``. Trains leave 22 s of it idle. In a
    period two iterations of 190 s are done.
    """
    jobs = [job_of(name, 100.0, 90.0, slo, duration_s=40 * HOUR_S) for name in "ab"]
    trace = tmp_path / "two.csv"
    write_trace(trace_of(*jobs).jobs, trace)
    longest = write(tmp_path / "longest.csv", "tokens,share\n0,0\n100,1\n")
    row = ok(
        "simulate", "--trace", trace, "--only", "runtime", "--plan-at", "max", "--json",
        "--lengths", longest, "--interference", "0.1", "--replications", "1",
    ).json["runtime"][0]  # fmt: skip
    assert row["usd_per_hour_mean"] == pytest.approx(PAIR_USD)  # they do share
    assert row["slo_attainment"] == met
    assert row["late_iterations_share"] == pytest.approx(1 - met, abs=0.01)  # the first starts late
    assert row["worst_over_deadline"] == pytest.approx(220 / (slo * 190), rel=1e-3)
    assert row["idle_rollout"] == pytest.approx(0, abs=1e-3)
    assert row["idle_train"] == pytest.approx(0.1, abs=1e-3)
    assert row["usd_per_work_hour"] == pytest.approx(PAIR_USD / (2 * 190 / 220), rel=2e-3)


def test_drift_costs_are_paired_by_seed(four: Path, whole: tuple[Outcome, Path]) -> None:
    """The ratio printed is the mean over seeds of the ratio of costs."""
    rows = whole[0].json["drift"]
    usd = {(row["policy"], row["seed"]): row["usd_total"] for row in rows}
    ratios = [usd["weave", seed] / usd["regroup", seed] for seed in (0, 1)]
    text = ok("simulate", "--trace", four, *QUICK, "--only", "drift").out
    line = next(
        line.split() for line in text.splitlines() if line.split()[:2] == ["mixed", "weave"]
    )
    assert line[3] == f"{sum(ratios) / 2:.2f}"


def test_a_listed_failure_costs_what_it_undoes(tmp_path: Path) -> None:
    """One job alone, ``T_j`` 190 s, fails after 1000 s: 5 iterations are done, 50 s of the sixth.

    A checkpoint after every iteration keeps five, one after every third keeps three. Restarts take
    no time, so the stay and its price grow by what is done again, over 18,000 s.
    """
    trace = _trace(tmp_path / "one.csv", "sync")
    listed = write(tmp_path / "f.csv", "at_s,kind,job_id\n1000,job,0-sync\n")
    rows = ok(
        "simulate", "--trace", trace, "--only", "failures", "--failures", listed,
        "--restart-seconds", "0", "--checkpoints", "1,3", "--json",
    ).json["failures"]  # fmt: skip
    assert [row["seeds"] for row in rows] == [1, 1]  # nothing is drawn
    for row, undone_s in zip(rows, (1000 - 5 * 190, 1000 - 3 * 190), strict=True):
        assert row["lost_h"] == pytest.approx(undone_s / 3600)
        assert row["cost_ratio"] == pytest.approx(1 + undone_s / 18_000)
        assert row["availability"] == 1  # doing it again counts as progress


def test_same_bytes_for_every_run(whole: tuple[Outcome, Path], four: Path, tmp_path: Path) -> None:
    again = run("simulate", "--trace", four, *QUICK, "--json", "--quiet", cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert again.out == whole[0].out


def test_files_are_not_replaced_unless_asked(tmp_path: Path) -> None:
    arguments = (*SHOP, "--only", "failures", "--checkpoints", "1", "--seeds", "1")
    out = tmp_path / "out"
    assert "Wrote failures.csv" in ok(*arguments, "--out", out, "--no-html").err
    before = (out / "failures.csv").read_bytes()
    refused(invoke(*arguments, "--out", out, "--no-html"), "already holds failures.csv", "--force")
    ok(*arguments, "--out", out, "--no-html", "--force")
    assert (out / "failures.csv").read_bytes() == before
    refused(invoke(*arguments, "--out", tmp_path / "no" / "folder", "--no-html"), "to exist")


@pytest.mark.parametrize("columns", [40, 60, 80, 160])
def test_no_terminal_cuts_a_figure(
    four: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = ok("simulate", "--trace", four, *QUICK).out
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    for name in ("p50", "max", "mixed", "regroup"):
        assert name in out


def test_pairings_are_not_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest word of a pairing's name stands whole beside every column."""

    def rows(**_: object) -> Iterator[Row]:
        for verdict in (AGREES, DIFFERS):
            yield Row(
                study="s", item="rollout-heavy and train-heavy: gain over the family",
                published="1.06-1.28", unit="x", verdict=verdict,
                why="because", ours={"work": interval([1.0, 1.5])},
            )  # fmt: skip

    monkeypatch.setattr("planner.simulate.migration_study.each_migration_row", rows)
    monkeypatch.setenv("COLUMNS", "40")
    out = ok(*SHOP, "--only", "migration").out
    assert max(map(len, out.splitlines())) <= 40
    assert "…" not in out
    assert {"rollout-heavy", "train-heavy:", "agrees", "differs"} <= set(out.split())


def test_help_fits_a_terminal_and_names_every_part() -> None:
    text = ok("simulate", "--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert all(part in text for part in PARTS)


# --- what cannot be answered ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["colocated", "random", "gavel", "swapping"])
def test_parts_that_a_policy_does_not_allow_are_left_out_in_words(policy: str) -> None:
    done = ok(*SHOP, "--policy", policy, "--only", "runtime,failures", "--quiet")
    text = plain(done.out)
    assert "Part runtime is left out: Expected a policy that promises valid plans" in text
    assert "Part failures is left out: Expected a policy in weave, solo to replay" in text
    assert text.count(f"got '{policy}'") == 2


def test_a_trace_without_phases_is_left_out_in_words(tmp_path: Path) -> None:
    trace = _trace(tmp_path / "async.csv", "async", "async")
    document = ok("simulate", "--trace", trace, *QUICK, "--json").json
    for part in ("runtime", "failures", "drift"):
        assert document[part] is None
        assert "got async jobs alone" in document["left_out"][part]


@pytest.mark.parametrize(
    ("modes", "more"),
    [
        (["one-step"], {}),
        (["one-step", "sync", "async"], {}),
        (["sync", "sync"], {"rollout_nodes": 2, "train_nodes": 2}),
    ],
)
def test_one_step_jobs_and_gangs_are_answered(
    tmp_path: Path, modes: list[str], more: dict[str, int]
) -> None:
    trace = _trace(tmp_path / "t.csv", *modes, **more)
    document = ok("simulate", "--trace", trace, *QUICK, "--json").json
    assert document["failed"] == document["left_out"] == {}
    assert document["runtime"][-1]["slo_attainment"] == 1
    assert document["runtime"][-1]["jobs"] == len(modes) - modes.count("async")


# --- refusals ---------------------------------------------------------------------------------


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.simulate.simulating.simulate_trace", pytest.fail)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--plan-at", "p42", "got 'p42' (--plan-at)"),
        ("--checkpoints", "0", ">= 1 and <= 1e+09, got 0 (--checkpoints)"),
        ("--checkpoints", "", "at least one checkpoint interval, got none (--checkpoints)"),
        ("--checkpoints", "1.5", "--checkpoints a list of whole numbers"),
        ("--checkpoints", "1e300", "got 1e+300 (--checkpoints)"),
        ("--interference", "-1", "interference >= 0 and <= 1000, got -1"),
        ("--interference", "nan", "interference >= 0 and <= 1000, got nan"),
        ("--interference", "1e308", "interference >= 0 and <= 1000, got 1e+308"),
        ("--job-mtbf-hours", "0", "--job-mtbf-hours > 0 and finite, got 0"),
        ("--node-mtbf-hours", "inf", "--node-mtbf-hours > 0 and finite, got inf"),
        ("--restart-seconds", "-1", "--restart-seconds >= 0 and finite, got -1"),
        ("--lengths", "missing.csv", "missing.csv: No such file"),
        ("--failures", "missing.csv", "missing.csv: No such file"),
        ("--drift-shape", "missing.csv", "missing.csv: No such file"),
        ("--drift-settings", "mixd", "Did you mean 'mixed'?"),
        ("--drift-policies", "wave", "Did you mean 'weave'?"),
        ("--only", "drifd", "Unknown part 'drifd'. Did you mean 'drift'?"),
        ("--seeds", "0", "--seeds"),
        ("--seed", str(2**64 - 1), "their sum <= 2^64"),
        ("--replications", "0", "--replications"),
        ("--discipline", "lifo", "--discipline"),
        ("--drift-lengths", "long", "--drift-lengths"),
        ("--durations", "days", "got 'days'"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_computed(
    option: str, value: str, rule: str
) -> None:
    refused(invoke(*SHOP, f"{option}={value}"), rule)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("option", ["--drift-settings", "--drift-policies"])
def test_drift_needs_settings_and_policies(option: str) -> None:
    refused(invoke(*SHOP, "--only", "drift", option, ""), f"with {option}, got none")


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("option", ["--lengths", "--drift-shape", "--failures"])
@pytest.mark.parametrize("data", [b"", b"a\n1\n", b"\xff\xfe\x00", b"a,b\n1,x\n2,y\n"])
def test_files_of_another_kind_are_named(tmp_path: Path, option: str, data: bytes) -> None:
    path = tmp_path / "other.csv"
    path.write_bytes(data)
    refused(invoke(*SHOP, option, path), "other.csv")


@pytest.mark.usefixtures("nothing_runs")
def test_every_fault_of_a_list_of_failures_is_told(tmp_path: Path) -> None:
    listed = write(
        tmp_path / "f.csv",
        "at_s,kind,job_id,node\nx,job,shop-1,\n1,disk,,0\n1,job,shop-3,\n1,rollout,,-1\n",
    )
    refused(
        invoke(*SHOP, "--failures", listed),
        "f.csv: 4 faults",
        "got 'x' (line 2, column at_s)",
        "one of job, rollout, train, got 'disk' (line 3, column kind)",
        "got 'shop-3' (line 4, column job_id)",
        "got '-1' (line 5, column node)",
    )
    listed = write(tmp_path / "g.csv", "at_s,kind,node\n0,rollout,0\n")
    refused(invoke(*SHOP, "--failures", listed, "--node-mtbf-hours", "9"), "--failures", "both")


def test_an_unknown_policy_is_refused() -> None:
    refused(invoke(*SHOP, "--policy", "foo"), "Unknown policy 'foo'", "weave")


@pytest.mark.parametrize("policy", ["gavel", "swapping", "regroup"])
def test_a_gap_is_refused_for_policies_that_cannot_have_one(policy: str) -> None:
    refused(invoke("gap", "--trace", OPEN_SHOP, "--policy", policy), policy)


def test_an_unknown_study_is_refused() -> None:
    refused(invoke("reproduce", "--studies", "micr"), "Unknown study 'micr'. Did you mean 'micro'?")


# --- interrupts -------------------------------------------------------------------------------


def test_what_is_known_is_printed_at_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first row of a part keeps that row, and ends with 130."""

    def rows(**_: object) -> Iterator[Row]:
        yield Row(
            study="s",
            item="first pairing",
            published="1-2",
            unit="x",
            verdict=DIFFERS,
            why="because",
        )
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.simulate.migration_study.each_migration_row", rows)
    done = invoke(*SHOP, "--only", "failures,migration", "--checkpoints", "1", "--seeds", "1")
    assert done.code == 130
    assert "Failures (a job every 200 h and a node every 1000 h, 1 seed)" in done.out
    assert "first pairing" in done.out
    assert "Pairings are examples, not jobs of this trace" in done.out
    assert "Stated reason: because." in done.out
    assert "interrupted in part migration: the rest is missing" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_words(four: Path, tmp_path: Path, number: signal.Signals) -> None:
    words = command("simulate", "--trace", four, *QUICK[2:], "--replications", "100000")
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        time.sleep(random.Random(int(number)).uniform(1.0, 2.0))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode in (130, 143)
    if "interrupted in part" in err:  # else it had not begun
        assert plain(out).startswith("four.csv: 4 jobs, plans of policy weave")


# --- parameters -------------------------------------------------------------------------------


def test_parts_have_an_order_of_their_own() -> None:
    assert SimulationParams(parts=("drift", "runtime")).parts == ("runtime", "drift")
    assert SimulationReport.__dataclass_fields__.keys() >= set(PARTS)


def test_a_group_is_drawn_as_it_runs(folder: Path) -> None:
    done = ok(
        "simulate", "--trace", OPEN_SHOP, "--only", "runtime", "--plan-at", "max",
        "--replications", "1", "--gantt", "g.svg",
    )  # fmt: skip
    rows = done.out.partition("as it runs:\n")[2].splitlines()
    assert rows[0].startswith("rollout 0 |")
    assert "A" in rows[0]
    assert all(len(row) <= 80 for row in rows)
    assert Path("g.svg").read_bytes().startswith(b"<?xml")
    again = ("simulate", "--trace", OPEN_SHOP, "--only", "runtime", "--gantt", "g.svg")
    assert invoke(*again).code == 2  # nothing is replaced without being asked
    refused(
        invoke("simulate", "--trace", OPEN_SHOP, "--gantt", "g.txt"),
        "Expected a picture's name to end in .svg, .png, .pdf, got 'g.txt'.",
    )
