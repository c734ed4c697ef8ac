"""``planner export``: the model in a file that any solver reads to the same optimum."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD
from command_line import GANG, OPEN_SHOP, invoke, names, ok, refused, run, write
from instances.catalog import catalog_path
from instances.errors import UnsupportedError
from models.problem.snapshot import Snapshot

SYNC_GAP = catalog_path("tiny-sync-gap")
SHOP = ("export", "--trace", OPEN_SHOP)
HEAD = "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b,mode\n"
#: A pair that shares, and an async job on dedicated nodes.
MIXED = HEAD + "a,0,9000,2,60,40,7,sync\nb,0,9000,2,40,60,7,sync\nfree,0,9000,2,60,40,7,async\n"


def optimum(path: Path) -> float:
    """Solve a model file with HiGHS alone: no Pyomo, none of our code."""
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)  # one number for the whole process: as the product has it
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    assert highs.run() == highspy.HighsStatus.kOk
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(highs.getInfo().objective_function_value)


@pytest.mark.parametrize("layout", ["mps", "lp"])
@pytest.mark.parametrize("trace", [OPEN_SHOP, SYNC_GAP, GANG], ids=["shop", "gap", "gang"])
def test_the_file_has_the_optimum_of_the_snapshot(layout: str, trace: Path, folder: Path) -> None:
    got = ok("export", "--trace", trace, "--out", f"m.{layout}")
    found = ok("snapshot", "--trace", trace, "--json").json["snapshot"]
    assert found["termination"] == "optimal"
    assert optimum(folder / f"m.{layout}") == pytest.approx(found["usd_per_hour"], rel=1e-6)
    assert got.out == ""
    assert "rows" in got.err
    assert "columns" in got.err
    assert names(folder) == [f"m.{layout}"]


def test_both_formats_are_the_same_problem(folder: Path) -> None:
    """The catalogue's gang fits three rollout nodes and one train node; two groups cost more."""
    limits = ("--max-group-size", "2", "--max-rollout-nodes-total", "9")
    for name in ("m.mps", "m.lp"):
        ok("export", "--trace", GANG, "--out", name, *limits)
    one, two = (optimum(folder / name) for name in ("m.mps", "m.lp"))
    found = ok("snapshot", "--trace", GANG, *limits, "--json").json["snapshot"]
    assert one == pytest.approx(two) == pytest.approx(found["usd_per_hour"])
    assert one > 3 * ROLLOUT_USD + TRAIN_USD


def test_the_selection_is_that_of_snapshot(folder: Path) -> None:
    """Of STAYS only the second is there at 2 h: one job alone."""
    trace = write(
        folder / "t.csv",
        HEAD + "a,0,3600,2,60,40,7,sync\nb,5400,3600,2,40,60,7,sync\nc,0,3600,2,40,60,7,sync\n",
    )
    got = ok("export", "--trace", trace, "--out", "m.lp", "--at-hours", "2")
    assert "m.lp: 1 jobs" in got.err
    assert optimum(folder / "m.lp") == pytest.approx(PAIR_USD)
    got = ok("export", "--trace", trace, "--out", "all.lp", "--all-jobs")
    assert "all.lp: 3 jobs" in got.err
    assert "2 jobs" in ok("export", "--trace", trace, "--out", "peak.lp").err
    refused(invoke("export", "--trace", trace, "--out", "n.lp", "--at-hours", "9"), "at 9 h")
    refused(
        invoke("export", "--trace", trace, "--out", "n.lp", "--peak", "--all-jobs"), "--all-jobs"
    )


def test_async_jobs_are_left_out_and_caps_are_less_theirs(folder: Path) -> None:
    trace = write(folder / "t.csv", MIXED)
    got = ok("export", "--trace", trace, "--out", "m.mps", "--max-train-nodes-total", "2")
    assert "warning: 1 async job" in got.err
    assert "its cost is less their price" in got.err
    assert optimum(folder / "m.mps") == pytest.approx(PAIR_USD)
    short = invoke("export", "--trace", trace, "--out", "n.mps", "--max-train-nodes-total", "0")
    refused(short, "<= 0 (--max-train-nodes-total), got 1", code=1)
    assert names(folder) == ["m.mps", "t.csv"]


def test_the_format_follows_from_the_name_unless_given(folder: Path) -> None:
    ok(*SHOP, "--out", "a.lp")
    ok(*SHOP, "--out", "b.LP")
    ok(*SHOP, "--out", "c.txt", "--format", "lp")
    assert len({(folder / name).read_bytes() for name in ("a.lp", "b.LP", "c.txt")}) == 1
    ok(*SHOP, "--out", "d.mps")
    assert (folder / "d.mps").read_bytes() != (folder / "a.lp").read_bytes()


def test_equal_inputs_give_equal_bytes_on_a_pure_stdout(tmp_path: Path) -> None:
    found = set()
    for seed in ("0", "1"):
        got = run(
            "export", "--trace", GANG, "--out", f"m{seed}.mps", cwd=tmp_path, PYTHONHASHSEED=seed
        )
        assert (got.code, got.out) == (0, "")
        found.add((tmp_path / f"m{seed}.mps").read_bytes())
    assert len(found) == 1


def test_files_are_refused_before_the_work(folder: Path) -> None:
    write(folder / "m.lp", "mine")
    (folder / "d.lp").mkdir()
    for out, said in (
        ("m.lp", "m.lp is already there. Give --force"),
        ("d.lp", "d.lp is a folder"),
        ("no/m.lp", "of --out to exist"),
        ("m.txt", "Expected --out to end in .mps or .lp"),
        ("m", "Expected --out to end in .mps or .lp"),
    ):
        got = invoke("export", "--trace", "absent.csv", "--out", out)
        refused(got, said)
        assert "absent.csv" not in got.err
    refused(invoke(*SHOP, "--out", "m.lp", "--format", "nl"), "--format mps or lp, got 'nl'")
    refused(invoke(*SHOP), "--out")
    refused(invoke("export", "--out", "x.lp"), "--trace")
    assert (folder / "m.lp").read_text() == "mine"
    ok(*SHOP, "--out", "m.lp", "--force")
    assert optimum(folder / "m.lp") == pytest.approx(PAIR_USD)


def test_a_failure_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written under another name first."""

    def half(snapshot: Snapshot, path: Path, fmt: str) -> None:
        path.write_text("half", encoding="utf-8")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("models.exact.milp.write", half)
    write(folder / "m.lp", "mine")
    refused(invoke(*SHOP, "--out", "m.lp", "--force"), "m.lp: Cannot write: No space left")
    assert names(folder) == ["m.lp"]
    assert (folder / "m.lp").read_text() == "mine"


def test_a_model_beyond_all_sense_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def huge(snapshot: Snapshot) -> None:
        raise UnsupportedError("Expected at most 5 rows.")

    monkeypatch.setattr("models.exact.milp.build", huge)
    refused(invoke(*SHOP, "--out", "m.lp"), "Expected at most 5 rows.")
    assert names(folder) == []


def test_all_jobs_of_a_large_trace_are_beyond_all_sense(folder: Path) -> None:
    got = invoke("export", "--trace", catalog_path("large-2000"), "--all-jobs", "--out", "m.lp")
    refused(got, "Expected at most 60 jobs in a model file, got 2,000")
    assert names(folder) == []
