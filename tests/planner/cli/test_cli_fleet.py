"""``plan --fleet R,T``: words, JSON and files of a fixed fleet, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from command_line import OPEN_SHOP, PAIR_USD, PRODUCTION, invoke, ok, refused, write
from instances.checker import check_plan
from instances.plan import Fleet, Start
from instances.plan_file import read_plan
from planner.plan.waiting_tables import shown_wait

#: a and b fill one node of each kind for 100 s, c for 50 s; b comes at 10 s, c at 20 s.
TRACE = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,sync_s,rollout_state_gb,train_state_gb,\
rollout_switch_s,train_switch_s,sync_gb,rollout_nodes,train_nodes
a,0,100,1.5,10,10,0,1500,1500,0,0,0,1,1
b,10,100,1.5,10,10,0,1500,1500,0,0,0,2,2
c,20,50,1.5,10,10,0,1500,1500,0,0,0,1,1
"""


@pytest.fixture
def trace(folder: Path) -> Path:
    return write(folder / "jobs.csv", TRACE)


def policies(document: Any, convention: str = "work") -> Any:
    return document["conventions"][convention]["policies"]


def test_json_tells_the_fleet_its_price_and_the_waits(trace: Path) -> None:
    document = ok("plan", "--trace", trace, "--fleet", "2,2", "--json").json
    options = document["inputs"]["options"]
    assert options["fleet"] == {"rollout_nodes": 2, "train_nodes": 2}
    assert options["queue"] == "fifo"
    for convention in ("work", "wallclock"):
        weave = policies(document, convention)["weave"]
        # b starts when a leaves at 100 and stays until 200; c, behind it, until 250.
        assert weave["fleet_nodes"] == {"rollout": 2, "train": 2}
        assert weave["waiting"] == {
            "p50_s": 90.0,
            "p95_s": 180.0,
            "max_s": 180.0,
            "admitted_at_once": pytest.approx(1 / 3),
            "slo_attainment_with_wait": pytest.approx(1 / 3),
        }
        assert weave["slo_attainment"] == 1
        assert weave["fleet_usd_per_hour"] == pytest.approx(2 * PAIR_USD)
        assert weave["fleet_usd_total"] == pytest.approx(2 * PAIR_USD * 250 / 3600)
        assert weave["usd_total"] == pytest.approx(PAIR_USD * (100 + 200 + 50) / 3600)


def test_backfilling_lets_the_short_job_pass(trace: Path) -> None:
    got = ok("plan", "--trace", trace, "--fleet", "2, 2", "--queue", "backfill", "--json").json
    waiting = policies(got)["weave"]["waiting"]
    assert (waiting["p50_s"], waiting["max_s"]) == (0.0, 90.0)
    assert got["inputs"]["options"]["queue"] == "backfill"


def test_without_a_fleet_nothing_is_said_of_one(trace: Path) -> None:
    document = ok("plan", "--trace", trace, "--out", "o", "--no-html", "--json").json
    assert not {"fleet", "queue"} & set(document["inputs"]["options"])
    assert not {"waiting", "fleet_nodes", "fleet_usd_per_hour"} & set(policies(document)["weave"])
    assert not {"start_s", "wait_s"} & set(pd.read_csv("o/jobs.csv").columns)
    assert "waiting" not in pd.read_csv("o/timeline.csv").columns
    assert "Waiting" not in ok("plan", "--trace", trace).out


def test_files_tell_starts_and_who_waits(trace: Path, folder: Path) -> None:
    ok(
        "plan",
        "--trace",
        trace,
        "--fleet",
        "2,2",
        "--baselines",
        "solo",
        "--out",
        "o",
        "--no-html",
        "-q",
    )
    jobs = pd.read_csv("o/jobs.csv").query("convention == 'work' and policy == 'weave'")
    assert jobs["start_s"].tolist() == [0, 100, 200]
    assert jobs["wait_s"].tolist() == [0, 90, 180]
    assert (jobs["departure_s"] - jobs["start_s"]).tolist() == pytest.approx([100, 100, 50])
    line = pd.read_csv("o/timeline.csv").query("convention == 'work' and policy == 'weave'")
    assert line["waiting"].tolist() == [0, 1, 2, 1, 0, 0]
    assert line["jobs"].tolist() == [1, 1, 1, 1, 1, 0]
    plan = read_plan(folder / "o" / "plan.json")
    assert (plan.fleet, plan.starts) == (Fleet(2, 2), (Start("b", 100.0), Start("c", 200.0)))
    assert check_plan(plan).ok


def test_check_tells_of_the_fleet(trace: Path, folder: Path) -> None:
    ok("plan", "--trace", trace, "--fleet", "2,2", "--out", "o", "--no-html", "-q")
    told = " ".join(ok("check", "o/plan.json").out.split())
    assert "fleet of 2 rollout + 2 train nodes, 2 jobs waited for it" in told
    document = ok("check", "o/plan.json", "--json").json
    assert document["fleet"] == {"rollout_nodes": 2, "train_nodes": 2}
    assert document["jobs_waited"] == 2
    text = (folder / "o" / "plan.json").read_text(encoding="utf-8")
    write(
        folder / "small.json",
        text.replace('"fleet": {"rollout_nodes": 2', '"fleet": {"rollout_nodes": 1'),
    )
    broken = invoke("check", "small.json")
    assert broken.code == 1
    assert "[fleet] Expected rollout nodes at once (over the fleet from 100 s on) <= 1" in " ".join(
        broken.out.split()
    )


def test_words_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("--fleet", "19,11", "--queue", "backfill", "--baselines", "solo,colocated,random")
    got = ok("plan", "--trace", PRODUCTION, *arguments, "--seeds", "2")
    assert max(map(len, got.out.splitlines())) <= 80
    assert "…" not in got.out
    told = " ".join(got.out.split())
    assert "Owning 19 H20 nodes (152 GPUs) and 11 H800 nodes (88 GPUs) costs $745.84/h" in told
    assert "of the jobs start at once (backfill queue). They wait 0 at the median," in told
    for convention in ("work", "wallclock"):
        title = f"Waiting for 19 rollout + 11 train nodes (backfill queue, {convention})"
        assert title in got.out


def test_words_where_nobody_waits() -> None:
    got = " ".join(ok("plan", "--trace", OPEN_SHOP, "--fleet", "1,1").out.split())
    assert "No job waits for this fleet." in got
    assert f"Owning 1 H20 node (8 GPUs) and 1 H800 node (8 GPUs) costs ${PAIR_USD:.2f}/h" in got


def test_a_job_larger_than_the_fleet_is_no_plan(trace: Path) -> None:
    got = invoke("plan", "--trace", trace, "--fleet", "1,2")
    assert (got.code, got.out) == (1, "")
    words = " ".join(got.err.split())
    assert (
        "Expected a fleet of at least 2 rollout nodes, got 1 rollout + 2 train nodes: job 'b' is "
        "larger than the fleet." in words
    )


@pytest.mark.parametrize("text", ["12", "12,", "a,b", "1.5,2", "-1,2", "1,2,3", "", "1 2"])
def test_a_fleet_is_two_whole_numbers(text: str) -> None:
    refused(
        invoke("plan", "--trace", OPEN_SHOP, f"--fleet={text}"),
        "Expected --fleet two whole numbers, rollout and train nodes, such as 20,12, got "
        f"'{text}'.",
    )


def test_refusals() -> None:
    refused(
        invoke("plan", "--trace", OPEN_SHOP, "--queue", "backfill"),
        "--queue backfill needs --fleet: without one nobody waits.",
    )
    refused(
        invoke("plan", "--trace", OPEN_SHOP, "--policy", "regroup", "--fleet", "2,2"),
        "Policy 'regroup' does not keep to a fixed fleet",
    )
    assert invoke("plan", "--trace", OPEN_SHOP, "--fleet", "1,1", "--queue", "lifo").code == 2


def test_moves_are_not_proposed_for_a_plan_of_a_fleet(trace: Path) -> None:
    ok("plan", "--trace", trace, "--fleet", "2,2", "--out", "o", "--no-html", "-q")
    refused(
        invoke("repack", "--plan", "o/plan.json", "--now"),
        "Expected a plan whose nodes are rented, got one for a fixed fleet",
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0"),
        (1e-9, "1 s"),
        (59.4, "59 s"),
        (60.0, "1 min"),
        (3599.0, "60 min"),
        (3600.0, "1.0 h"),
        (360_000.0, "100.0 h"),
    ],
)
def test_a_wait_is_shown_with_its_unit(seconds: float, text: str) -> None:
    assert shown_wait(seconds) == text
