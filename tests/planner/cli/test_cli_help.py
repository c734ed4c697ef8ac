"""``--help`` of every command: it fits, it is grouped, and its example runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from command_line import Outcome, invoke, ok
from planner.cli.app import app

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
FORMATS = ("philly", "generic", "verl")
PAGES = [(), *((name,) for name in COMMANDS), *(("import", name) for name in FORMATS)]
#: Options of a command beyond which they are grouped.
MOST = 18
#: Examples of more than a few seconds, whose help is checked only.
LONG = {"size", "report", "reproduce", "doctor"}


def page(words: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    return ok(*words, "--help").out


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
@pytest.mark.parametrize("width", [80, 160])
def test_it_fits(words: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page(words, width, monkeypatch)
    assert max(map(len, text.splitlines())) <= width
    assert "\u2011" not in text  # no hyphen of our own making is left
    assert not re.search(r"\w-\n +\w", text.partition("Options:")[2])  # no broken name
    assert not re.search(r"<(int|float|str|path|list)", text)  # Python's types are not shown


@pytest.mark.parametrize("words", [w for w in PAGES if w], ids=" ".join)
def test_long_lists_are_grouped(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    text = page(words, 80, monkeypatch)
    for part in re.split(r"\n(?=\S)", text):
        assert len(re.findall(r"^  -", part, re.M)) <= MOST, part


@pytest.mark.parametrize("name", [c for c in COMMANDS if c != "import"])
def test_its_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page((name,), 80, monkeypatch)
    example = text.partition("\nExample:\n")[2]
    assert example
    if name in LONG:
        return
    monkeypatch.chdir(tmp_path)
    for line in example.replace("\\\n", " ").strip().splitlines():
        program, *words = shlex.split(line)
        done: Outcome = invoke(*words, plan=program == "plan")
        assert done.code == 0, done.err


#: The log that the example of each format reads: the least that makes a job.
LOGS = {
    "philly": (
        "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 00:00:00,7200,8,57600,a\n",
    ),
    "generic": ("arrivals.csv", "job_id,arrival_s,service_sec,gpu_count\na,0,7200,8\n"),
    "verl": (
        "run-1.jsonl",
        "".join(
            f'{{"step": {step}, "timing_s/gen": 30, "timing_s/update_actor": 40}}\n'
            for step in range(1, 5)
        ),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_example_of_a_format_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *words = shlex.split(
        page(("import", name), 80, monkeypatch).partition("\nExample:\n")[2]
    )
    file, text = LOGS[name]
    (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert program == "planner"
    ok(*words)
    assert (tmp_path / "trace.csv").is_file()
