"""``planner repack --progress``: what an operator tells of running jobs, and what it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import PAIR_USD, write
from repack_cases import answer, movers, ok, pair, saved, words


def test_credit_decides_where_progress_is_known(folder: Path) -> None:
    # 40 x 108 - 4000 = 320 s are less than a restart, 40 x 109 - 4000 = 360 s are enough
    path = saved(pair(), folder)
    for iterations, want in ((108, [["b"]]), (109, [["b"]])):
        text = f"job_id,elapsed_s,iterations\na,4000,{iterations}\nb,4000,109\n"
        document = ok("--plan", path, "--progress", write(folder / "p.csv", text), "--json").json
        assert movers(document) == want
        assert document["immovable"] == ({"a": "slo-credit"} if iterations == 108 else {})
        assert "SLO credit is not known" not in " ".join(document["notes"])
    text = "job_id,elapsed_s,iterations\na,4000,108\nb,4000,108\n"
    outcome = ok("--plan", path, "--progress", write(folder / "p.csv", text))
    assert "2 ahead of the SLO by less than a restart (a, b)" in words(outcome.out)


def test_a_misspelt_column_of_a_progress_file_is_told(folder: Path) -> None:
    text = "job_id,elapsed_s,iterations,moves_lastday\na,4000,200,1\nb,4000,200,1\n"
    outcome = ok("--plan", saved(pair(), folder), "--progress", write(folder / "p.csv", text))
    assert "column 'moves_lastday' of p.csv is not read. Did you mean 'moves_last_day'?" in (
        words(outcome.err)
    )


@pytest.mark.parametrize(("elapsed", "told"), [("4000", False), ("1.2", True)])
def test_a_job_faster_than_planned_is_doubted(folder: Path, elapsed: str, told: bool) -> None:
    """200 iterations of 20 s take 4,000 s; an elapsed_s in hours gives credit that is none."""
    text = f"job_id,elapsed_s,iterations\na,{elapsed},200\nb,4000,200\n"
    progress = write(folder / "p.csv", text)
    err = words(ok("--plan", saved(pair(), folder), "--progress", progress).err)
    said = "1 job of p.csv ran faster than planned alone (first 'a': 200 iterations of 20 s in 1.2"
    assert (said in err) == told


@pytest.mark.parametrize("told", [False, True])
def test_moves_of_the_day_that_nobody_tells_are_said_to_be_missing(
    folder: Path, told: bool
) -> None:
    """Neither without a progress file, nor with one that lacks the column."""
    text = "job_id,elapsed_s,iterations\na,4000,200\nb,4000,200\n"
    given = ("--progress", write(folder / "p.csv", text)) if told else ()
    most = ("--max-moves-per-job-day", "1")
    path = saved(pair(), folder)
    assert "moves made before" in words(ok("--plan", path, *given, *most).err)
    assert "moves made before" not in words(ok("--plan", path, *given).err)


def test_moves_of_the_day_from_a_progress_file_count(folder: Path) -> None:
    text = "job_id,elapsed_s,iterations,moves_last_day\na,4000,200,1\nb,4000,200,0\n"
    progress = write(folder / "p.csv", text)
    document = answer(pair(), folder, "--progress", progress, "--max-moves-per-job-day", "1")
    assert document["immovable"] == {"a": "moves-per-day"}
    assert not any("moves made before" in note for note in document["notes"])
    assert movers(document) == [["b"]]


def test_remaining_time_from_a_progress_file_is_used(folder: Path) -> None:
    text = "job_id,elapsed_s,iterations,remaining_s\na,4000,200,7200\nb,4000,200,36000\n"
    progress = write(folder / "p.csv", text)
    document = answer(pair(), folder, "--progress", progress, "--oracle", "remaining")
    # until the first of the two groups would have ended by itself
    assert document["proposals"][0]["lasting_h"] == pytest.approx(2.0)
    assert document["net_gain_usd"] == pytest.approx(1.9 * PAIR_USD)
