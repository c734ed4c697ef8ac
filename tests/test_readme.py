"""The README and the studies show what the commands print today, and name what figures are from.

A block ```` ```text ```` that follows ``<!-- NAME -->`` is compared with the command's standard
output at 80 columns. To renew them: ``python tests/test_readme.py [NAME ...]``. Every command is
run, here, by hand (``-m slow``) or by ``.ci/run``; one that no list below names fails. Every
paragraph and table with figures says what they are from (:mod:`documents`), and cheap ones are
computed anew (:mod:`readme_numbers`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
import typer

from command_line import PRODUCTION, ok, write
from documents import (
    PAGES,
    README,
    ROOT,
    STUDIES,
    WORDS,
    Block,
    blocks,
    command_lines,
    inline_commands,
    split_words,
)
from instances.catalog import catalog_path
from planner.cli.app import app
from readme_numbers import CHECKS

TRACE = "--trace instances/catalog/production-200.csv"
SIZE = f"planner size {TRACE} --only alternatives,fleet,loss --baselines solo,colocated"
#: Marked block -> the command whose output it shows.
COMMANDS = {
    "plan-output": f"planner plan {TRACE} --baselines solo,colocated",
    "snapshot-output": f"planner snapshot {TRACE} --at-hours 20",
    "gap-output": f"planner gap {TRACE}",
    "size-answer": SIZE,
    "size-output": SIZE,
    "simulate-output": f"planner simulate {TRACE} --only runtime,failures",
    "repack-output": "planner repack --plan replay/plan.json --at-hours 60",
    "reproduce-output": "planner reproduce",
    "profile-output": (
        "planner profile --model-b=7 --max-tokens=8192 "
        "--prompts-per-step=128 --samples-per-prompt=8"
    ),
}
#: What the README runs before.
BEFORE = {"repack-output": f"plan {TRACE} --out replay"}
#: Blocks that show the first paragraph only.
FIRST_PARAGRAPH = {"size-answer"}

#: Commands of `.ci/run`, which reads them by their marks.
BY_CI = {"plan-command", "test-command"}
#: Commands run in seconds, as they stand, in a folder with the files they name.
FAST = (
    f"planner snapshot {TRACE} --at-hours 20 --gantt group.svg",
    f"plan {TRACE} --fleet 24,13",
    f"planner snapshot {TRACE} --at-hours 20 --max-rate 4",
    f"planner plan {TRACE} --max-rate 4 --baselines solo,colocated",
    "plan --help",
    "planner snapshot --trace t.csv",
    "planner gap --trace t.csv",
    "planner size --trace t.csv",
    "planner sweep study.toml --out r.csv",
    "planner repack --plan plan.json",
    "planner export --trace t.csv --out m.mps",
    "planner check plan.json",
    "planner generate production --out t.csv",
    "planner import philly log.csv --out t.csv",
    "planner profile --model-b 7 ...",
    "planner explain slo",
)
#: Commands of minutes, run with ``-m slow``.
SLOW = (
    f"planner size {TRACE}",
    f"planner gap {TRACE} --policy repack",
    f"plan {TRACE} --policy repack --baselines solo,colocated,weave",
    "planner snapshot --trace instances/catalog/large-2000.csv.gz --all-jobs --max-group-size 0 "
    "--time-limit 5m",
    "planner reproduce --studies micro,migration,drift",
    "planner simulate --trace t.csv",
    f"planner report {TRACE} --out page",
)
#: Commands with a name in place of a file, or on the log of Philly, which is not shipped (a log of
#: the same form stands for it): what is run instead.
PLACEHOLDERS = {
    "planner init DIR": "planner init start",
    "planner report --trace t.csv --out DIR": (
        "planner report --trace t.csv --skip size,simulate,gap --out DIR"
    ),
    "planner import verl run.jsonl --slo 1.5 --model-b 7 --out t.csv": (
        "planner import verl run.jsonl --slo 1.5 --model-b 7 --skip-steps 0 --out t.csv"
    ),
    "planner sweep STUDY.toml --out results.csv": "planner sweep study.toml --out results.csv",
    "planner size --out DIR": "planner size --trace t.csv --only alternatives --out DIR",
    "planner import philly philly.csv --start-h 1000 --hours 580 --single-node "
    "--out philly-trace.csv": "planner import philly log.csv --start-h 0 --hours 580 "
    "--single-node --out philly-trace.csv",
    "planner import philly philly.csv --start-h 1000 --hours 580 --single-node": (
        "planner import philly log.csv --start-h 0 --hours 580 --single-node --out other.csv"
    ),
}
STUDY = """\
policies = ["weave"]
conventions = ["work"]
[[trace]]
file = "t.csv"
"""
STEPS = """\
{"step": 1, "timing_s/gen": 200.0, "timing_s/update_actor": 100.0}
{"step": 2, "timing_s/gen": 210.0, "timing_s/update_actor": 105.0}
"""
LOG = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-01 00:00:00,7200,8,57600,a
2017-10-01 01:00:00,9000,8,72000,a
"""


# --- what is printed -------------------------------------------------------------------


def run(command: str, folder: Path) -> str:
    """Return what a command prints; its output files, ``replay``, go to ``folder``."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    words = command.removeprefix("planner ").split()
    words = [re.sub(r"^replay(?=$|/)", lambda _: str(folder / "replay"), word) for word in words]
    return subprocess.run(
        [sys.executable, "-m", "planner", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=True,
    ).stdout


def printed(command: str, before: str | None = None) -> str:
    """Return what a command prints, without spaces at line ends and blank lines at the end."""
    with tempfile.TemporaryDirectory() as folder:
        if before is not None:
            run(before, Path(folder))
        out = run(command, Path(folder))
    return "\n".join(line.rstrip() for line in out.splitlines()).strip()


def shown(mark: str, out: str) -> str:
    """Return the part of the output that a marked block shows."""
    return out.partition("\n\n")[0] if mark in FIRST_PARAGRAPH else out


def marked(mark: str) -> Block:
    """Return the block after ``<!-- mark -->``, in whichever page it is."""
    found = [b for page in PAGES for b in blocks(page) if b.mark == mark and b.fence == "text"]
    assert len(found) == 1, f"Expected one ```text block after <!-- {mark} -->, got {len(found)}"
    return found[0]


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS.values()))
def test_the_pages_show_what_is_printed(command: str) -> None:
    marks = [mark for mark in COMMANDS if COMMANDS[mark] == command]
    before = next((BEFORE[mark] for mark in marks if mark in BEFORE), None)
    out = printed(command, before)
    for mark in marks:
        assert marked(mark).text == shown(mark, out), mark


def test_every_marked_output_has_a_command() -> None:
    marks = {b.mark for page in PAGES for b in blocks(page) if b.fence == "text" and b.mark}
    assert marks == set(COMMANDS)


# --- commands --------------------------------------------------------------------------


def bare(command: str) -> str:
    """Return a command as the lists above spell it."""
    return " ".join(command.split())


def known() -> set[str]:
    """Return every command that is run somewhere."""
    named = {*COMMANDS.values(), *BEFORE.values(), *FAST, *SLOW, *PLACEHOLDERS}
    return named | {f"planner {line}" for line in named if line.startswith("plan ")}


@cache
def whole() -> object:
    """Return all commands."""
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[object, list[str]]:
    """Return the command that the words start, and the rest of them."""
    found = whole()
    words = words[1:] if words[0] == "planner" else words
    while words and words[0] in getattr(found, "commands", {}):
        found, words = found.commands[words[0]], words[1:]
    return found, words


def options_of(command: object) -> set[str]:
    """Return the options of a command."""
    found = {"--help"}
    for parameter in command.params:
        found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def unknown_options(text: str) -> list[str]:
    """Return the options in a command line that its command does not have."""
    command, rest = command_of(split_words(text))
    assert not getattr(command, "commands", {}), f"no such command: {text}"
    return [
        word
        for word in (part.partition("=")[0] for part in rest)
        if word.startswith("--") and word not in options_of(command)
    ]


def ours(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(place, text) for place, text in lines if re.match(r"(plan|planner)\b", text)]


def is_mention(text: str) -> bool:
    """Tell whether a command is only named, without anything to give it."""
    return len(command_of(split_words(text))[1]) == 0 or text == "plan --policy"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_run_somewhere(page: Path) -> None:
    in_ci = {b.text for b in blocks(page) if b.mark in BY_CI}
    lines = [line for line in command_lines(page) if line[1] not in in_ci]
    lines += [line for line in ours(inline_commands(page)) if not is_mention(line[1])]
    assert [line for line in lines if bare(line[1]) not in known()] == []
    assert len(lines) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_the_options_it_is_given(page: Path) -> None:
    lines = ours(command_lines(page)) + ours(inline_commands(page))
    assert {text: unknown_options(text) for _, text in lines if unknown_options(text)} == {}


def test_the_readme_names_every_command() -> None:
    lines = command_lines(README) + inline_commands(README)
    named = {split_words(text)[1] for _, text in lines if text.startswith("planner ")}
    assert set(whole().commands) - named == set()


def test_no_list_names_a_command_that_no_page_has() -> None:
    said = {bare(text) for page in PAGES for _, text in command_lines(page) + inline_commands(page)}
    spelled = said | {f"planner {text}" for text in said if text.startswith("plan ")}
    assert [line for line in (*FAST, *SLOW, *PLACEHOLDERS) if line not in spelled] == []


def test_ci_runs_the_two_commands_of_the_quick_start() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for mark in sorted(BY_CI):
        assert f"readme_command {mark}" in script
        assert any(b.mark == mark and b.fence == "bash" for b in blocks(README))


def test_every_option_in_the_text_is_one_of_a_command() -> None:
    every = {"--out", "--table", "--figure"}  # of tests/benchmarks/study_repack.py
    todo = [whole()]
    while todo:
        command = todo.pop()
        every |= options_of(command)
        todo += getattr(command, "commands", {}).values()
    said = {
        (page.name, option)
        for page in PAGES
        for block in blocks(page)
        if block.fence is None
        for code in re.findall(r"`([^`]+)`", block.text)
        if not code.startswith(("python ", "pip "))
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", code)
    }
    assert sorted(item for item in said if item[1] not in every) == []


def test_the_list_of_options_of_plan_is_of_plan() -> None:
    listed = next(b for b in blocks(README) if b.text.startswith("* `--cluster"))
    options = set(re.findall(r"^\* `(--[\w-]+)", listed.text, re.MULTILINE))
    plan, _ = command_of(["planner", "plan"])
    assert len(options) > 5
    assert options <= options_of(plan)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, the current one, with the files that short commands name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write(tmp_path / "t.csv", catalog_path("tiny-open-shop").read_text("utf-8"))
    write(tmp_path / "study.toml", STUDY)
    write(tmp_path / "log.csv", LOG)
    write(tmp_path / "run.jsonl", STEPS)
    return tmp_path


def run_here(text: str) -> None:
    """Run a command of a page in the current folder, and succeed."""
    words = [word for word in split_words(PLACEHOLDERS.get(text, text)) if word != "..."]
    words = [
        str(PRODUCTION.parent / word.rpartition("/")[2]) if "instances/catalog/" in word else word
        for word in words
    ]
    if any(word.startswith("plan.json") for word in words):
        ok("snapshot", "--trace", "t.csv", "--all-jobs", "--out", "planned")
        words = [word.replace("plan.json", "planned/plan.json") for word in words]
    if words[:3] == ["planner", "profile", "--model-b"]:
        words += ["--max-tokens=8192", "--prompts-per-step=128", "--samples-per-prompt=8"]
    if "t.csv" in words[words.index("--out") :] if "--out" in words else False:
        Path("t.csv").unlink()  # it is made anew
    ok(*(words[1:] if words[0] == "planner" else words))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("text", [*FAST, *PLACEHOLDERS])
def test_a_command_runs(text: str) -> None:
    run_here(text)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("text", SLOW)
def test_a_slow_command_runs(text: str) -> None:
    run_here(text)


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    programs = [block for block in blocks(README) if block.fence == "python"]
    assert len(programs) == 2
    for block in programs:
        text = block.text.replace('"instances/catalog/production-200.csv"', repr(str(PRODUCTION)))
        exec(compile(text, block.place, "exec"), {})
    out = capsys.readouterr().out
    assert "True" in out
    assert "optimal" in out


# --- figures ---------------------------------------------------------------------------


def figures() -> list[Block]:
    return [b for page in PAGES for b in blocks(page) if b.fence is None and b.numbers]


def source_fault(source: str) -> str | None:
    """Return what is wrong with a source, None where it is one."""
    source = source.removeprefix("measured ")
    if source in WORDS or source in ("pyproject", ".ci/run"):
        return None
    if source.startswith("checked "):
        return None if source.removeprefix("checked ") in CHECKS else "no such check"
    words = split_words(source)
    if words[0] in ("plan", "planner"):
        return ", ".join(unknown_options(source)) or None
    path = words[1] if words[0] == "python" else words[0].partition("#")[0]
    if not (ROOT / path).is_file():
        return "no such file"
    if words[0] == "python":
        script = (ROOT / path).read_text("utf-8")
        return ", ".join(w for w in words[2:] if w.startswith("--") and w not in script) or None
    return None


def test_every_paragraph_and_table_with_figures_says_what_they_are_from() -> None:
    assert [block.place for block in figures() if not block.sources] == []
    assert len(figures()) > 50


def test_every_source_exists() -> None:
    faults = {
        (block.place, source): fault
        for page in PAGES
        for block in blocks(page)
        for source in block.sources
        if (fault := source_fault(source))
    }
    assert faults == {}


def test_timings_are_said_to_be_measured() -> None:
    # Seconds and milliseconds differ from machine to machine: no check, so "measured" it must be,
    # or a definition (a limit, a phase) or a value of the literature.
    timed = re.compile(r"\d (?:ms|us)\b|\d s (?:on|each|once)|decisions? takes?")
    allowed = ("measured ", "published", "definition", "tests/benchmarks/STUDIES.md")
    assert [
        block.place
        for block in figures()
        if timed.search(block.text)
        and not any(s.startswith(allowed) for s in block.sources)
        and "bench_period" not in " ".join(block.sources)
    ] == []


def matches(pattern: str, name: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return (place, cells) wherever a pattern of a check is found in a block that names it."""
    return [
        (block.place, tuple(cell.strip() for cell in found.groups()))
        for block in figures()
        if f"checked {name}" in block.sources
        for found in re.finditer(pattern, " ".join(block.text.split()))
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_figures_are_those_computed_now(name: str) -> None:
    seen: set[str] = set()
    for pattern, cells in CHECKS[name]():
        found = matches(pattern, name)
        assert found, f"no block that names 'checked {name}' has {pattern}"
        for place, shown_cells in found:
            assert shown_cells == cells, place
            seen.add(place)
    assert seen == {b.place for b in figures() if f"checked {name}" in b.sources}


def numbers(line: str) -> list[str]:
    return re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", line)


#: Table -> what prints it, and the rows that so short a run has.
SLOW_TABLES = {
    "| pairs | number": (("tests/benchmarks/study_rates.py", "pairs"), ""),
    "| 12 jobs | strict": (("tests/benchmarks/study_rates.py", "snapshots"), ""),
    "| variant | work": (("tests/benchmarks/bench_tie_rules.py",), ""),
    "| figure | rows": (("tests/benchmarks/calibrate_estimator.py",), ""),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("head", SLOW_TABLES)
def test_a_table_is_what_its_script_prints(head: str) -> None:
    words, rows = SLOW_TABLES[head]
    data = ROOT.parent / "shared" / "data" / "timings" / "phase_timings.csv"
    if "calibrate_estimator" in words[0] and not data.is_file():
        pytest.skip(f"the published step timings are not at {data}")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    lines = [numbers(line) for line in done.stdout.splitlines()]
    table = next(b for b in blocks(STUDIES) if b.fence is None and b.text.startswith(head))
    missing = [
        row
        for row in table.text.split("\n")[2:]
        if row.startswith(f"| {rows}") and not any(is_within(numbers(row), line) for line in lines)
    ]
    assert missing == []


def is_within(few: list[str], many: list[str]) -> bool:
    """Tell whether the figures of a row stand in a line in their order."""
    rest = iter(many)
    return all(number in rest for number in few)


# --- how pages are read ----------------------------------------------------------------


def test_blocks_of_a_page(tmp_path: Path) -> None:
    # An empty fence ends where it ends: a block is never renewed up to the end of the next one.
    text = "# 3 is no figure\n<!-- from: published; pyproject -->\n12 H20 nodes, `7`\n\n"
    page = write(tmp_path / "page.md", text + "<!-- empty -->\n```text\n```\n\nno source: 1,5.\n")
    first, empty, last = blocks(page)
    assert (first.sources, first.numbers, first.line) == (("published", "pyproject"), ["12"], 3)
    assert (empty.fence, empty.text, empty.mark, empty.line) == ("text", "", "empty", 6)
    assert (last.sources, last.numbers, last.mark) == ((), ["1", "5"], None)


def test_an_open_fence_is_refused(tmp_path: Path) -> None:
    page = write(tmp_path / "page.md", "```text\nnever closed\n\n```bash\nls\n")
    with pytest.raises(AssertionError, match="a fence is not closed"):
        blocks(page)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("published", None),
        ("measured planner reproduce", None),
        ("planner gap --trace t.csv", None),
        ("planner gap --tracee t.csv", "--tracee"),
        ("python tests/benchmarks/study_rates.py pairs", None),
        ("python tests/benchmarks/study_rate.py", "no such file"),
        ("python tests/benchmarks/study_repack.py FOLDER --tabel", "--tabel"),
        ("checked nothing", "no such check"),
    ],
)
def test_faults_of_a_source(source: str, fault: str | None) -> None:
    assert source_fault(source) == fault


# --- files and words -------------------------------------------------------------------


def test_no_placeholder_is_left() -> None:
    for page in PAGES:
        assert re.findall(r"\b[A-Z]+_(?:TABLE|TIME)\b", page.read_text("utf-8")) == []


def main(names: list[str]) -> None:
    """Renew the blocks, all of them or those named."""
    outputs: dict[str, str] = {}
    for mark, command in COMMANDS.items():
        if names and mark not in names:
            continue
        if command not in outputs:
            outputs[command] = printed(command, BEFORE.get(mark))
        block = marked(mark)
        lines = block.page.read_text("utf-8").split("\n")
        end = lines.index("```", block.line)
        lines[block.line : end] = shown(mark, outputs[command]).split("\n")
        block.page.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
