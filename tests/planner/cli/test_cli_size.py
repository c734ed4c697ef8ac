"""``planner size``: sentences, tables, JSON, files, refusals, interrupts, exit codes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from builders import job_of, trace_of
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
from instances.trace import write_trace
from planner.replay.demand import POOLS

HOUR_S = 3600.0
PLAIN = ("--baselines", "solo", "--processes", "1")
#: Two jobs that share one node of each kind all the time.
SHOP = ("size", "--trace", OPEN_SHOP, *PLAIN)
#: Everything, with little effort.
QUICK = (
    "--replications", "4", "--growth", "1,2", "--samples", "1", "--moments", "1",
    "--dram-tb", "1,2", "--slo-scales", "0,1", "--links-gbps", "20", "--links", "1",
    "--group-sizes", "1,5", "--price-ratios", "1,2,4", "--waits", "0,1h",
)  # fmt: skip
TABLES = [
    "alternatives.csv", "changes.csv", "demand.csv", "duration_curves.csv", "frontier.csv",
    "owned_and_rented.csv", "prices.csv", "replications.csv", "tokens.csv", "uncertainty.csv",
    "worth.csv",
]  # fmt: skip
#: No level changes the cost of jobs that share nothing, so there are no changes to draw.
FIGURES = [
    "alternatives.svg", "demand.svg", "fleet.svg", "price_map.svg", "prices.svg",
    "tokens.svg", "uncertainty.svg", "worth.svg",
]  # fmt: skip


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One job for 10 h, a second for 1 h of them, a third for 6; no two fit one node."""
    apart = {"rollout_state_gb": 1500.0, "train_state_gb": 1500.0}
    hours = {"a": 10, "b": 1, "c": 6}
    jobs = [job_of(name, 100.0, 90.0, duration_s=h * HOUR_S, **apart) for name, h in hours.items()]
    path = tmp_path_factory.mktemp("stepped") / "stepped.csv"
    write_trace(trace_of(*jobs).jobs, path)
    return path


@pytest.fixture(scope="module")
def whole(stepped: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """Every part, as JSON and as files."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return ok(
        "size", "--trace", stepped, *PLAIN, *QUICK, "--json", "--quiet", "--out", out, "--no-html"
    ), out


def plain(text: str) -> str:
    return " ".join(text.split())


def only(trace: Path, *arguments: str | Path) -> Outcome:
    return ok("size", "--trace", trace, *PLAIN, *arguments)


# --- numbers ----------------------------------------------------------------------------------


def least_by_hand(own: float, rent: float, steps: list[tuple[float, int]]) -> tuple[int, float]:
    """Return the least-cost owned count and its $/h, by trying every count."""
    total = sum(hours for hours, _ in steps)

    def usd(owned: int) -> float:
        return own * owned + rent * sum(h * max(n - owned, 0) for h, n in steps) / total

    best = min(range(5), key=lambda owned: (round(usd(owned), 9), owned))
    return best, usd(best)


def test_owned_counts_are_the_best_of_all(whole: tuple[Outcome, Path]) -> None:
    """3 nodes of each kind for 1 h, 2 for 5 h, 1 for 4 h."""
    steps = [(1.0, 3), (5.0, 2), (4.0, 1)]
    document = whole[0].json
    table = pd.read_csv(whole[1] / "owned_and_rented.csv").set_index("pool")
    for pool in POOLS:
        own, rent = table.loc[pool, ["own_usd_per_node_hour", "rent_usd_per_node_hour"]]
        owned, usd = least_by_hand(own, rent, steps)
        side = document["owned_and_rented"][pool]
        assert side["owned_nodes"] == table.loc[pool, "owned_nodes"] == owned
        assert side["usd_per_hour"] == pytest.approx(usd)
        assert side["needed_node_hours"] == pytest.approx(3 + 10 + 4)


def test_rented_and_owned_make_up_what_is_needed(whole: tuple[Outcome, Path]) -> None:
    table = pd.read_csv(whole[1] / "owned_and_rented.csv")
    both = table["owned_used_node_hours"] + table["rented_node_hours"]
    assert both.to_list() == pytest.approx(table["needed_node_hours"].to_list())
    held = table["owned_used_node_hours"] + table["owned_idle_node_hours"]
    assert held.to_list() == pytest.approx((10 * table["owned_nodes"]).to_list())
    paid = table["rented_node_hours"] * table["rent_usd_per_node_hour"] / 10
    assert paid.to_list() == pytest.approx(table["rented_usd_per_hour"].to_list())


def test_quantiles_are_those_of_the_duration_curve(whole: tuple[Outcome, Path]) -> None:
    """The least N that is exceeded for at most 1 - share of the time."""
    demand = pd.read_csv(whole[1] / "demand.csv")
    curves = pd.read_csv(whole[1] / "duration_curves.csv")
    for row in demand.to_dict("records"):
        for pool in POOLS:
            here = curves[
                (curves["convention"] == row["convention"])
                & (curves["policy"] == row["policy"])
                & (curves["pool"] == pool)
            ]
            assert here["hours_needed"].sum() == pytest.approx(row[f"{pool}_node_hours"])
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                exceeded = (here["share_of_time"] > 1 - share + 1e-9).sum()
                assert row[f"{name}_{pool}_nodes"] == exceeded


def test_files_say_what_the_document_says(whole: tuple[Outcome, Path]) -> None:
    document, out = whole[0].json, whole[1]
    assert names(out) == sorted([*TABLES, *FIGURES])
    for name, rows in (
        ("alternatives", document["alternatives"]),
        ("changes", document["changes"]),
        ("tokens", document["tokens"]),
        ("frontier", document["fixed_fleet"]["frontier"]),
        ("prices", document["prices"]["points"]),
        ("uncertainty", document["uncertainty"]["growths"]),
    ):
        frame = pd.read_csv(out / f"{name}.csv")
        assert list(frame.columns) == list(rows[0])
        assert len(frame) == len(rows)
        for column in frame.select_dtypes("number").columns:
            known = [(a, b[column]) for a, b in zip(frame[column], rows, strict=True)]
            assert all(a == pytest.approx(b) for a, b in known if isinstance(b, float))


def test_sentences_say_what_the_document_says(stepped: Path) -> None:
    arguments = ("--only", "alternatives,fleet", "--quiet")
    text = plain(only(stepped, *arguments).out)
    document = only(stepped, *arguments, "--json").json
    found = document["recommendation"]
    assert f"${found['owned_usd_per_hour']:,.2f}/h owned" in text
    assert f"${found['rented_usd_per_hour']:,.2f}/h rented on average" in text
    assert f"= ${found['usd_per_hour']:,.2f}/h." in text
    assert f"Buying the owned nodes takes ${found['capex_usd']:,.0f}." in text
    fixed = document["fixed_fleet"]
    assert f"start within 30 min: ${fixed['usd_per_hour']:,.2f}/h owned, used or not." in text


# --- words ------------------------------------------------------------------------------------


def test_a_pool_of_which_none_are_owned_is_not_told() -> None:
    text = plain(only(OPEN_SHOP, "--policy", "colocated", "--only", "").out)
    assert "Own 2 H800 nodes (16 GPUs) and rent none:" in text
    assert "0 H20 nodes" not in text
    assert "Colocated runs both phases of sync jobs on H800 nodes" in text


def test_owning_dearer_than_renting_owns_nothing(tmp_path: Path) -> None:
    costs = write(tmp_path / "c.toml", "".join(
        f"[{pool}]\nown_usd_per_gpu_hour = 100\n" for pool in POOLS
    ))  # fmt: skip
    text = plain(only(OPEN_SHOP, "--only", "", "--costs", costs).out)
    assert "Own nothing: rent 1 H20 node (8 GPUs) and 1 H800 node (8 GPUs) at most" in text
    assert "as much as renting every node" not in text


def test_a_budget_that_binds_is_named_and_so_is_a_fleet_beyond_it(tmp_path: Path) -> None:
    costs = write(tmp_path / "c.toml", "[budget]\ncapex_usd = 400_000\n")
    text = plain(only(OPEN_SHOP, "--only", "fleet", "--costs", costs).out)
    assert "The purchase budget of $400,000 allows no cheaper choice." in text
    assert "more than the purchase budget of $400,000." in text


def test_purchase_periods_are_told_apart_from_today(tmp_path: Path) -> None:
    periods = "[[period]]\nyears = 1\n[[period]]\nyears = 2\ngrowth = 2\n"
    costs = write(tmp_path / "c.toml", periods)
    text = plain(only(OPEN_SHOP, "--only", "alternatives", "--costs", costs).out)
    assert "That is for today's demand and prices; the 2 purchase periods" in text
    assert "$/h: on average over their 3 years." in text
    assert "1+1 -> 2+2" in text


def test_a_change_that_prints_as_nothing_is_not_what_changes_most(stepped: Path) -> None:
    text = plain(only(stepped, "--only", "tokens", "--samples", "1").out)
    assert "0%, own" not in text.partition("Nodes needed")[0]


@pytest.mark.parametrize("columns", [40, 60, 80, 160])
def test_no_terminal_cuts_a_figure(
    stepped: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal too narrow for a table gets it in parts, each with the names of its rows."""
    monkeypatch.setenv("COLUMNS", str(columns))
    done = only(stepped, "--only", "alternatives,fleet")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in done.out
    headers = [line for line in lines if line.split()[:1] == ["policy"]]
    parts = 2 if columns >= 80 else len(headers)
    assert len(headers) == parts  # one per convention, more where it is narrow
    assert all(any(name in line for line in headers) for name in ("mean", "p50", "peak", "own"))


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--max-p95-wait", "-1", "a time such as"),
        ("--wait-share", "0", "> 0 and <= 1, got 0"),
        ("--waits", "x", "a time such as"),
        ("--growth", "0", "> 0, got 0"),
        ("--growth", "1,1", "distinct"),
        ("--growth", "", "at least one"),
        ("--price-ratios", "3", "at least two ratios > 0"),
        ("--dram-tb", "x", "a list of numbers"),
        ("--dram-tb", "-1", ">= 0 TB, got -1"),
        ("--slo-scales", "-1", ">= 0, got -1"),
        ("--links", "0", ">= 1, got 0"),
        ("--links-gbps", "0", ">= 1e-09 Gb/s, got 0"),
        ("--group-sizes", "-1", ">= 0, got -1"),
        ("--group-sizes", "1.5", "whole numbers"),
        ("--sync-kinds", "foo", "hierarchical, flat, got 'foo'"),
        ("--switches", "hot", "none, warm, cold, got 'hot'"),
        ("--plan-at", "p51", "got 'p51'"),
        ("--near", "-5", "got -0.05"),
        ("--confidence", "2", "> 0 and <= 1, got 2"),
        ("--coverage", "nan", "> 0 and <= 1, got nan"),
        ("--block-hours", "0", "> 0 h, got 0"),
        ("--warm-up-hours", "-1", ">= 0 h, got -1"),
        ("--max-fleet", "3", "two whole numbers"),
        ("--replications", "0", "--replications >= 1, got '0'"),
        ("--growth-in", "0y", "a time such as 2y or 18mo"),
        ("--only", "foo", "Known parts"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_computed(
    option: str, value: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.size.sizing.size_trace", pytest.fail)
    outcome = invoke(*SHOP, f"{option}={value}")
    refused(outcome, rule)
    assert (option if option != "--only" else "part") in outcome.err


def test_growth_in_needs_growth_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.size.sizing.size_trace", pytest.fail)
    refused(invoke(*SHOP, "--growth", "2", "--growth-in", "2y"), "--growth-in", "from 1")


def test_a_part_that_the_trace_refuses_costs_no_other() -> None:
    """All jobs come at once: there are no hours of arrivals to leave out."""
    outcome = invoke(*SHOP, "--only", "alternatives,uncertainty", "--warm-up-hours", "5")
    assert outcome.code == 1
    assert "Nearly as cheap" in outcome.out
    assert "uncertainty: Expected 0 <= warm_up_h < 0" in outcome.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[rollout]\nusd_per_node = -1\n", "[rollout] usd_per_node ($ a node) >= 0"),
        ("[rollout]\nusd_per_nod = 5\n", "Did you mean 'usd_per_node'?"),
        ("[train]\nusd_per_node = nan\n", "finite"),
        ("[site]\npue = 0.5\n", "[site] pue"),
        ("[[period]]\nyears = 1\n[[period]]\nyears = 0\n", "[period #2] years (years) > 0"),
        ("[budget]\n", "Missing [budget] capex_usd ($)"),
        ("[train]\nlease_block_h = 1e-9\n", "[train] Expected lease_block_h 0"),
        ("x", "Not valid TOML"),
    ],
)
def test_a_wrong_cost_file_is_named_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    costs = write(tmp_path / "mine.toml", text)
    refused(invoke(*SHOP, "--costs", costs), "mine.toml", words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_owned_nodes = 0\nmax_rented_nodes = 0\n", "is 1 more than the 0"),
        ("max_rented_nodes = 0\n[budget]\ncapex_usd = 1000\n", "Raise capex_usd"),
    ],
)
def test_limits_that_no_fleet_meets_end_with_1(tmp_path: Path, text: str, words: str) -> None:
    costs = write(tmp_path / "c.toml", f"[rollout]\n{text}")
    refused(invoke(*SHOP, "--costs", costs), words, code=1)


def test_other_gpus_can_only_be_rented_until_their_price_is_known(tmp_path: Path) -> None:
    cluster = write(tmp_path / "k.toml", "".join(
        f'[{pool}]\ngpu = "B{i}"\nusd_per_gpu_hour = {i}.5\n' for i, pool in enumerate(POOLS, 1)
    ))  # fmt: skip
    outcome = invoke(*SHOP, "--only", "fleet", "--cluster", cluster)
    if outcome.code == 2:
        pytest.fail(outcome.err)
    text = plain(outcome.out)
    assert "Own nothing: rent 1 B1 node (8 GPUs) and 1 B2 node (8 GPUs)" in text
    assert "at rental prices" in text
    assert "no purchase price of GPU 'B1' is known" in text


def test_pools_of_one_gpu_are_told_apart(tmp_path: Path) -> None:
    cluster = write(tmp_path / "k.toml", "".join(
        f'[{pool}]\ngpu = "X"\nusd_per_gpu_hour = 2\n' for pool in POOLS
    ))  # fmt: skip
    text = plain(only(OPEN_SHOP, "--only", "fleet", "--cluster", cluster).out)
    assert "rent 1 X rollout node (8 GPUs) and 1 X train node (8 GPUs) at most" in text
    assert "One X train node more saves no X rollout node" in text


# --- streams, files, signals ------------------------------------------------------------------


def test_same_bytes_for_any_number_of_processes(stepped: Path, tmp_path: Path) -> None:
    arguments = ("size", "--trace", stepped, "--baselines", "solo", "--only", "uncertainty")
    runs = [
        run(*arguments, *QUICK[:4], "--json", "--processes", count, cwd=tmp_path)
        for count in ("1", "2")
    ]
    assert [done.code for done in runs] == [0, 0]
    assert runs[0].out == runs[1].out
    assert [done.err for done in runs] == ["", ""]
    assert json.loads(runs[0].out)["command"] == "size"


def test_files_are_not_replaced_unless_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = (*SHOP, "--only", "alternatives", "--out", out, "--no-html")
    assert "Wrote demand.csv" in ok(*arguments).err
    before = (out / "demand.csv").read_bytes()
    refused(invoke(*arguments), "already holds", "alternatives.csv", "--force")
    ok(*arguments, "--force")
    assert (out / "demand.csv").read_bytes() == before
    refused(invoke(*SHOP, "--out", tmp_path / "no" / "folder", "--no-html"), "to exist")


def test_parquet_holds_what_csv_does(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for kind in ("csv", "parquet"):
        ok(*SHOP, "--only", "", "--out", tmp_path / kind, "--no-html", "--format", kind)
    csv = pd.read_csv(tmp_path / "csv" / "duration_curves.csv")
    parquet = pd.read_parquet(tmp_path / "parquet" / "duration_curves.parquet")
    pd.testing.assert_frame_equal(csv, parquet, check_dtype=False)


def _interrupted(cwd: Path, trace: Path, after_s: float, number: int) -> tuple[int, str, str]:
    words = command(
        *("size", "--trace", trace, "--baselines", "solo", "--only", "uncertainty"),
        *("--replications", "400", "--processes", "2"),
    )
    with subprocess.Popen(
        words, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        time.sleep(after_s)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_known_is_printed_when_it_is_ended(
    stepped: Path, tmp_path: Path, number: signal.Signals
) -> None:
    after_s = random.Random(int(number)).uniform(2.5, 4.0)
    code, out, err = _interrupted(tmp_path, stepped, after_s, number)
    assert "Traceback" not in err, err
    if code == 0:  # a machine fast enough to be done by then
        assert "traces drawn like this one" in out
        return
    assert code in (130, 143)
    if "interrupted in part" in err:  # else it had not come so far as the demand
        assert plain(out).startswith("stepped.csv: 3 jobs over 10.0 h")
        assert "Owned and rented" in out


def test_help_explains_every_option() -> None:
    text = ok("size", "--help").out
    options: list[Any] = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    assert {"--costs", "--max-p95-wait", "--growth", "--only", "--near"} <= set(options)
    assert max(map(len, text.splitlines())) <= 80
