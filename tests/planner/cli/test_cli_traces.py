"""``check``, ``generate`` and ``import``, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import (
    GANG,
    Outcome,
    invoke,
    names,
    ok,
    refused,
    write,
)
from instances.generate import GENERATORS
from instances.trace import read_trace

BASELINES = "solo,colocated,random,most-idle"
DATA = Path(__file__).parents[3].parent / "shared" / "data"


@pytest.fixture
def planned(folder: Path) -> Any:
    """A valid plan.json, as data to break."""
    ok("plan", "--trace", GANG, "--out", "o", "--no-html")
    return json.loads((folder / "o" / "plan.json").read_text(encoding="utf-8"))


def check_of(data: Any, folder: Path, *options: str) -> Outcome:
    write(folder / "p.json", json.dumps(data))
    return invoke("check", folder / "p.json", *options)


def test_check_of_a_valid_plan_is_0(planned: Any, folder: Path) -> None:
    got = check_of(planned, folder)
    assert (got.code, got.err) == (0, "")
    assert got.out.startswith("p.json: valid\n")
    document = check_of(planned, folder, "--json").json
    assert set(document) >= {"inputs", "checked", "breaches", "violations", "usd_total"}
    assert (document["schema_version"], document["command"]) == (1, "check")
    assert (document["checked"], document["breaches"], document["violations"]) == (True, {}, [])
    assert document["usd_total_recomputed"] == pytest.approx(document["usd_total"])


def test_check_of_an_invalid_plan_is_1(planned: Any, folder: Path) -> None:
    planned["usd_total"] += 100
    planned["groups"][0]["placements"][0]["starts_s"][0][1] += 1e6
    got = check_of(planned, folder)
    assert (got.code, got.err) == (1, "")
    assert "NOT valid" in got.out
    assert "[cost] Expected usd_total = " in got.out
    assert "[precedence] " in got.out
    got = check_of(planned, folder, "--json")
    assert got.code == 1
    assert got.json["checked"] is False
    assert got.json["breaches"]["cost"] == 1
    assert sum(got.json["breaches"].values()) == len(got.json["violations"])
    for violation in got.json["violations"]:
        assert set(violation) >= {"rule", "group_id", "job_id", "node", "amount", "unit", "message"}


def test_check_shows_the_first_and_counts_all(planned: Any, folder: Path) -> None:
    for column in ("rollout_state_gb", "train_state_gb"):
        planned["jobs"][column] = [5000.0] * len(planned["jobs"]["job_id"])
    everything = check_of(planned, folder, "--most", "1000").out
    shown = [line for line in everything.splitlines() if line.startswith("- [")]
    assert len(shown) > 3
    few = check_of(planned, folder, "--most", "2")
    assert few.code == 1
    assert len([line for line in few.out.splitlines() if line.startswith("- [")]) == 2
    assert f"... and {len(shown) - 2} more." in few.out


def test_check_of_a_broken_file_is_2(planned: Any, folder: Path) -> None:
    planned["jobs"]["slo"][0] = "3"
    del planned["groups"][0]["period_s"]
    got = check_of(planned, folder)
    refused(got, "error: p.json: Expected jobs.slo.0 to be a number, got '3'.")
    assert "error: p.json: Missing groups.0.period_s." in got.err
    write(folder / "q.json", json.dumps(planned)[:-20])
    refused(invoke("check", "q.json"), "q.json: Not valid JSON", "line 1")
    write(folder / "q.json", "[" * 100_000)
    refused(invoke("check", "q.json"), "nested too deeply")


def test_check_messages_are_not_taken_for_markup(planned: Any, folder: Path) -> None:
    planned["policy"] = "[red]weave[/red]"
    planned["usd_total"] += 1
    got = check_of(planned, folder)
    assert got.code == 1
    assert "[red]weave[/red]" in got.out


def test_check_json_of_a_price_that_is_not_finite(planned: Any, folder: Path) -> None:
    planned["groups"][0]["from_s"], planned["groups"][0]["to_s"] = -1e308, 1e308
    got = check_of(planned, folder, "--json")
    assert got.code == 1
    assert got.json["usd_total_recomputed"] is None


# --- generate and import ----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_generate_is_deterministic_and_never_overwrites(name: str, folder: Path) -> None:
    got = ok("generate", name, "--out", "a.csv")
    assert got.out == ""
    jobs = read_trace(folder / "a.csv").jobs
    assert f"Wrote {len(jobs)} jobs to a.csv." in got.err
    before = (folder / "a.csv").read_bytes()
    ok("generate", name, "--seed", "0", "--out", "b.csv")
    assert (folder / "b.csv").read_bytes() == before
    if name in ("production", "profiles"):
        refused(invoke("generate", name, "--seed", "1", "--out", "a.csv"), "a.csv", "--force")
        assert (folder / "a.csv").read_bytes() == before
        ok("generate", name, "--seed", "1", "--jobs", "7", "--out", "a.csv", "--force")
        assert len(read_trace(folder / "a.csv").jobs) == 7
    assert names(folder) == ["a.csv", "b.csv"]


def test_generate_compresses_by_name(folder: Path) -> None:
    for name in ("t.csv", "t.csv.gz", "t.jsonl"):
        ok("generate", "production", "--jobs", "5", "--gangs", "--seed", "3", "--out", name)
    tables = [list(read_trace(folder / n).jobs) for n in ("t.csv", "t.csv.gz", "t.jsonl")]
    assert tables[0] == tables[1] == tables[2]


def test_generate_over_a_link_that_leads_nowhere(folder: Path) -> None:
    (folder / "x.csv").symlink_to(folder / "nowhere")
    refused(invoke("generate", "tiny-gang", "--out", "x.csv"), "x.csv")
    assert (folder / "x.csv").is_symlink()


GENERIC = """\
job_id,arrival_s,service_sec,gpu_count
x,100,3600,8
y,200,7200,17
z,300,50,2
"""


def test_import_generic(folder: Path) -> None:
    write(folder / "log.csv", GENERIC)
    larger = ("import", "generic", "log.csv", "--min-gpus", "4", "--out", "t.csv")
    got = ok(*larger)
    assert got.out == ""
    assert "log.csv: 3 rows read, 2 kept." in got.err
    assert "min_gpus 1" in got.err
    assert "synthetic" in got.err
    jobs = read_trace(folder / "t.csv").jobs
    assert jobs.job_id == ("x", "y")
    assert jobs.train_nodes.tolist() == jobs.rollout_nodes.tolist() == [1, 3]  # 17 GPUs: 3 nodes
    assert jobs.duration_s.tolist() == [3600.0, 7200.0]
    assert all(text.startswith("synthetic:") for text in jobs.extra["profile_source"])
    before = (folder / "t.csv").read_bytes()
    refused(invoke(*larger, "--seed", "9"), "--force")
    assert (folder / "t.csv").read_bytes() == before
    ok(*larger, "--force", "-q")
    assert (folder / "t.csv").read_bytes() == before
    ok("plan", "--trace", "t.csv")


def test_import_refuses_another_layout(folder: Path) -> None:
    write(folder / "log.csv", GENERIC)
    refused(invoke("import", "philly", "log.csv", "--out", "t.csv"), "log.csv", "timestamp")
    assert names(folder) == ["log.csv"]


@pytest.mark.skipif(
    not (DATA / "philly" / "philly.csv").is_file(),
    reason=f"the Philly log is not beside the project ({DATA / 'philly'})",
)
def test_import_of_the_philly_log_can_be_planned(folder: Path) -> None:
    log = DATA / "philly" / "philly.csv"
    window = ("--jobs", "60", "--seed", "5")
    got = ok("import", "philly", log, "--out", "t.csv", *window)
    assert "82247 rows read, 60 kept" in got.err
    ok("import", "philly", log, "--out", "again.csv", *window, "-q")
    assert (folder / "t.csv").read_bytes() == (folder / "again.csv").read_bytes()
    jobs = read_trace(folder / "t.csv").jobs
    assert len(jobs) == 60
    assert jobs.duration_s.min() >= 3600  # the default: at least an hour on at least 8 GPUs
    document = ok("plan", "--trace", "t.csv", "--baselines", BASELINES, "--json").json
    for convention in document["conventions"].values():
        assert convention["policies"]["weave"]["checked"] is True
        assert convention["savings"]["solo"] >= 1.0
