"""``planner import verl``: logs of verl on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import invoke, names, ok, refused, write
from instances.trace import read_trace
from verl_cases import CONSOLE, jsonl, step_of

USUAL = ("--slo", "1.5", "--model-b", "7", "--out", "t.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_logs_become_two_jobs_that_are_planned(folder: Path) -> None:
    write(folder / "a.log", CONSOLE)
    write(folder / "b.jsonl", jsonl([(n, step_of(40, 20)) for n in range(1, 6)]))
    got = ok("import", "verl", "a.log", "b.jsonl", *USUAL)
    assert got.out == ""
    assert "a.log: console, 3 steps with timings, 2 used (2-3); job 'a', mode sync." in got.err
    assert "b.jsonl: JSON Lines, 5 steps with timings, 4 used (2-5); job 'b'" in got.err
    assert "warning: a.log: only 2 steps measured; use 3 at least." in got.err
    assert "Wrote 2 jobs to t.csv." in got.err
    jobs = read_trace(folder / "t.csv").jobs
    assert jobs.job_id == ("a", "b")
    assert jobs.rollout_s.tolist() == [25, 40]
    before = (folder / "t.csv").read_bytes()
    refused(invoke("import", "verl", "b.jsonl", *USUAL), "t.csv is already there", "--force")
    quiet = ok("import", "verl", "a.log", "b.jsonl", *USUAL, "--force", "-q")
    assert (folder / "t.csv").read_bytes() == before
    assert all(line.startswith("warning:") for line in quiet.err.splitlines())
    document = ok("plan", "--trace", "t.csv", "--json").json
    assert document["inputs"]["jobs"] == 2
    for convention in document["conventions"].values():
        assert convention["policies"]["weave"]["checked"] is True


def test_options_name_keys_and_the_job(folder: Path) -> None:
    steps = [(n, step_of(10, 20, timing_s__reward=3, timing_s__move=1)) for n in range(1, 5)]
    write(folder / "b.jsonl", jsonl(steps))
    ok(
        *("import", "verl", "b.jsonl", *USUAL, "--job-id", "grpo", "--arrival-s", "30"),
        *("--train-keys", "reward, update_actor", "--sync-keys", "timing_s/move"),
        *("--rollout-nodes", "2", "--iterations", "500", "--skip-steps", "0"),
    )
    (job,) = read_trace(folder / "t.csv").jobs
    assert (job.job_id, job.arrival_s, job.rollout_nodes) == ("grpo", 30, 2)
    # reward is part of train: 10 and 3 + 20; the weights move for 1 s.
    assert (job.rollout_s, job.train_s, job.sync_s) == (10, 23, 1)
    assert job.duration_s == 500 * (10 + 23 + 1)


def test_refusals_write_nothing(folder: Path) -> None:
    write(folder / "a.log", CONSOLE)
    write(folder / "bad.jsonl", jsonl([(1, step_of(-3, 20)), (2, step_of(4, 20))]))
    refused(invoke("import", "verl", "a.log", "--out", "t.csv"), "Expected slo", "job 'a'")
    place = "Expected timing_s/gen to be a finite number >= 0, got '-3' (line 1"
    refused(invoke("import", "verl", "bad.jsonl", *USUAL), "bad.jsonl: 1 fault", place)
    refused(invoke("import", "verl", "none.log", *USUAL), "none.log")
    gap = ("--rollout-keys", "gen,,reward")
    refused(invoke("import", "verl", "a.log", *USUAL, *gap), "--rollout-keys to be names")
    refused(invoke("import", "verl", "a.log", *USUAL, "--at-limit", "max"), "longest or tokens")
    refused(invoke("import", "verls", "a.log", *USUAL), "verls")
    assert names(folder) == ["a.log", "bad.jsonl"]
