"""The commands as processes: bytes, signals, pipes, and what starting them costs."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from command_line import (
    ESTIMATED,
    GANG,
    OPEN_SHOP,
    PRODUCTION,
    command,
    environment,
    names,
    ok,
    refused,
    run,
    write,
)
from instances.catalog import catalog_path
from planner.cli.app import app

FILES = ["jobs.csv", "plan.json", "timeline.csv"]
SCRIPTS = Path(sys.executable).parent
COMMANDS = sorted(str(item.name) for item in app.registered_commands)
ESCAPE = "\x1b"


def script(name: str) -> list[str]:
    """Return the words that start an installed console script."""
    path = SCRIPTS / name
    if not path.is_file():
        pytest.skip(f"the project is not installed: no {path}")
    return [str(path)]


# --- bytes ------------------------------------------------------------------------------------


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    options = ["--trace", str(PRODUCTION), "--baselines", "solo,colocated", "--json", "--out"]
    runs = {
        "module": command("plan", *options),
        "again": command("plan", *options),
        "planner": [*script("planner"), "plan", *options],
        "plan": [*script("plan"), *options],
    }
    outcomes, files = {}, {}
    for seed, (name, words) in enumerate(runs.items()):
        # Neither the order of hashes nor the folder nor the clock's zone may matter.
        folder = tmp_path / name
        folder.mkdir()
        outcomes[name] = run(
            cwd=folder, words=[*words, "o"], PYTHONHASHSEED=str(seed), TZ=f"UTC{seed}"
        )
        assert outcomes[name].code == 0, outcomes[name].err
        files[name] = {file: (folder / "o" / file).read_bytes() for file in FILES}
    assert len({outcome.out for outcome in outcomes.values()}) == 1
    assert all(files[name] == files["module"] for name in runs)
    document = json.loads(outcomes["plan"].out)
    assert list(document)[:3] == ["schema_version", "command", "inputs"]
    assert "timings" not in document


def test_stdout_is_one_json_document_and_words_go_to_stderr(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", ESTIMATED)
    got = run(
        "plan", "--trace", "t.csv", "--json", "--no-check", "--out", "o", "--no-html", cwd=tmp_path
    )
    assert got.code == 0
    assert got.json["inputs"]["trace"] == "t.csv"
    assert got.out.startswith("{\n")
    assert got.out.endswith("}\n")
    lines = got.err.splitlines()
    assert lines[0].startswith("warning: --no-check")
    assert any(line.startswith("warning: estimated") for line in lines)
    assert lines[-1] == "Wrote plan.json, jobs.csv, timeline.csv to o."


def test_nothing_is_written_but_what_is_asked_for(tmp_path: Path) -> None:
    got = run("plan", "--trace", OPEN_SHOP, "--json", cwd=tmp_path)
    assert (got.code, got.err) == (0, "")
    assert names(tmp_path) == []


def test_other_scripts_and_spaces_in_paths(tmp_path: Path) -> None:
    here = tmp_path / "a folder 試行"
    here.mkdir()
    (here / "Größe 1.csv").write_bytes(GANG.read_bytes())
    got = run(
        "plan", "--trace", "Größe 1.csv", "--json", "--out", "Ergebnis é", "--no-html", cwd=here
    )
    assert got.code == 0, got.err
    assert got.json["inputs"]["trace"] == "Größe 1.csv"
    assert names(here / "Ergebnis é") == FILES
    assert run("check", "Ergebnis é/plan.json", cwd=here).code == 0


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "table"])
def test_an_output_that_is_not_utf8(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "Größe 試.csv").write_bytes(GANG.read_bytes())
    got = run("plan", "--trace", "Größe 試.csv", *options, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert "Traceback" not in got.err
    assert got.code == 0


# --- exit codes -------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path) -> None:
    assert run("plan", "--trace", OPEN_SHOP, "--out", "o", "--no-html", cwd=tmp_path).code == 0
    plan = json.loads((tmp_path / "o" / "plan.json").read_text(encoding="utf-8"))
    plan["usd_total"] += 1
    write(tmp_path / "dear.json", json.dumps(plan))
    invalid = run("check", "dear.json", "--json", cwd=tmp_path)
    assert (invalid.code, invalid.json["breaches"]) == (1, {"cost": 1})
    write(tmp_path / "half.json", json.dumps(plan)[:100])
    refused(run("check", "half.json", cwd=tmp_path), "half.json: Not valid JSON")
    write(tmp_path / "bad.csv", ESTIMATED.replace("1.5", "0.5"))
    bad = run("plan", "--trace", "bad.csv", "--json", cwd=tmp_path)
    refused(bad, "bad.csv: 2 faults", "line 2", "line 3")
    refused(run("plan", "--trace", OPEN_SHOP, "--policy", "weeve", cwd=tmp_path), "'weave'?")
    refused(run("plan", "--trace", OPEN_SHOP, "--bogus", cwd=tmp_path), "--bogus")


def test_arguments_of_any_bytes_end_in_words(tmp_path: Path) -> None:
    words = [*command("plan", "--trace"), b"\xff.csv", "--policy", "weave"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"error: ")


# --- signals and pipes --------------------------------------------------------------------------


#: Undoes what a shell does to its background jobs, which this test may be one of.
HEARS_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@contextlib.contextmanager
def started(*arguments: str | Path, cwd: Path, stderr: int = subprocess.PIPE) -> Iterator[Any]:
    """Start a process that hears Ctrl-C, and leave none behind."""
    python, *words = command(*arguments)
    process = subprocess.Popen(
        [python, "-c", HEARS_CTRL_C, *words],
        cwd=cwd,
        env=environment(TERM="xterm", COLUMNS="80"),
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_terminal(terminal: int) -> bytes:
    """Return what a terminal shows until the process on its other side has closed it."""
    shown = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        if not more:
            break
        shown += more
    os.close(terminal)
    return shown


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 20,000 jobs: many seconds of work."""
    path = tmp_path_factory.mktemp("large") / "large.csv"
    ok("generate", "production", "--jobs", "20000", "--out", path)
    return path


def put_earlier(folder: Path) -> None:
    """Put an earlier answer into ``o``."""
    (folder / "o").mkdir()
    for name in FILES:
        write(folder / "o" / name, "earlier")


def assert_untouched(folder: Path) -> None:
    assert names(folder) == ["o"]
    assert names(folder / "o") == FILES
    assert {(folder / "o" / name).read_text() for name in FILES} == {"earlier"}


SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "terminate"]
)


@SIGNALS
@pytest.mark.parametrize("old", [True, False], ids=["over", "new"])
def test_a_signal_amid_the_work(
    number: int, code: int, old: bool, large: Path, tmp_path: Path
) -> None:
    if old:
        put_earlier(tmp_path)
    terminal, stderr = pty.openpty()
    options = ("--trace", large, "--out", "o", "--force")
    with started("plan", *options, cwd=tmp_path, stderr=stderr) as process:
        os.close(stderr)
        shown = b""
        while b"work/weave" not in shown:  # the progress bar
            shown += os.read(terminal, 4096)
        process.send_signal(number)
        shown += read_terminal(terminal)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == b""
    assert b"/20,000" in shown  # jobs done of all
    assert b"Traceback" not in shown
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h") > 0  # the cursor is back
    said = b" Interrupted. Files are written whole or not at all."
    assert shown.rstrip().endswith(said) == (number == signal.SIGINT)
    if old:
        assert_untouched(tmp_path)
    else:
        assert names(tmp_path) == []


@SIGNALS
def test_a_signal_amid_the_writing(number: int, code: int, tmp_path: Path) -> None:
    put_earlier(tmp_path)
    # The files are written into a hidden folder first: as soon as one is there, interrupt.
    options = ("--trace", catalog_path("large-2000"), "--out", "o", "--force")
    with started("plan", *options, cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("o/.*/*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        inside = names(tmp_path / "o")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert sum(name.startswith(".") for name in inside) == 1  # a mount point may be --out
    assert out == b""
    assert b"Traceback" not in err
    assert_untouched(tmp_path)


@pytest.mark.parametrize("options", [["--json"], [], ["--out", "o"]], ids=["json", "table", "out"])
def test_a_reader_that_leaves_early(options: list[str], tmp_path: Path) -> None:
    words = command("plan", "--trace", PRODUCTION, "--baselines", "solo,colocated", *options)
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # like head that has read enough, whatever is still in the pipe
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=60) in (0, 1)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    assert "Exception ignored" not in err


def test_head_gets_its_line_and_no_traceback(tmp_path: Path) -> None:
    line = " ".join(f"'{word}'" for word in command("plan", "--trace", PRODUCTION, "--json"))
    done = subprocess.run(
        ["sh", "-c", f"{line} | head -n 1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == b"{\n"
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--trace", str(OPEN_SHOP), "--json"],
        ["plan", "--trace", str(OPEN_SHOP)],
        ["--version"],
        ["--help"],
        ["plan", "--help"],
    ],
    ids=["json", "table", "version", "help", "help of a command"],
)
def test_a_full_disk_under_stdout(words: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command(*words),
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode != 0
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


# --- terminals --------------------------------------------------------------------------------


def on_terminal(*arguments: str | Path, cwd: Path, **env: str) -> str:
    """Run with standard output and error on a terminal of 80 columns; return what it shows."""
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": "80", **env}),
        stdout=side,
        stderr=side,
    )
    os.close(side)
    shown = read_terminal(terminal)
    assert process.wait(timeout=60) == 0
    return shown.decode("utf-8").replace("\r\n", "\n")


def test_colours_on_a_terminal_unless_told(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", ESTIMATED)
    options = ("plan", "--trace", "t.csv", "--baselines", "solo,colocated")
    colours = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")  # bold is no colour
    coloured = on_terminal(*options, cwd=tmp_path)
    assert colours.search(coloured)
    plain = on_terminal(*options, cwd=tmp_path, NO_COLOR="1")
    assert not colours.search(plain)
    bare = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
    assert bare.sub("", plain) == bare.sub("", coloured)


def test_no_escapes_in_pipes_and_in_json(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", ESTIMATED)
    table = run("plan", "--trace", "t.csv", cwd=tmp_path, TERM="xterm-256color")
    assert ESCAPE not in table.out + table.err
    document = run("plan", "--trace", "t.csv", "--json", cwd=tmp_path, FORCE_COLOR="1")
    assert ESCAPE not in document.out
    assert document.json["inputs"]["jobs"] == 2


def test_quiet_runs_show_no_progress(tmp_path: Path) -> None:
    # 2,000 jobs take longer than the second after which a bar would appear.
    options = ("plan", "--trace", catalog_path("large-2000"), "--quiet")
    shown = on_terminal(*options, cwd=tmp_path)
    assert "work/weave" not in shown
    assert "/2000" not in shown
    assert "warning: " in shown


# --- help and start -----------------------------------------------------------------------------

HEAVY = ("highspy", "matplotlib", "numpy", "ortools", "pandas", "pyomo", "rich", "scipy")
#: Runs a command line and prints which heavy packages it loaded, and which of our modules asked
#: for pydantic: typer 0.29 itself needs pydantic to read options, which is not ours to change.
WATCHED = """
import runpy, sys
asked = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic":
            frame = sys._getframe(1)
            while frame and frame.f_globals.get("__name__", "").startswith("importlib"):
                frame = frame.f_back
            asked.append(frame.f_globals.get("__name__", "?"))
sys.meta_path.insert(0, Watch())
sys.argv = ["planner", *sys.argv[1:]]
try:
    runpy.run_module("planner", run_name="__main__")
except SystemExit as stop:
    code = stop.code
loaded = [name for name in {heavy} if name in sys.modules]
ours = [name for name in asked if name.split(".")[0] in ("planner", "models", "instances")]
print("HEAVY", code, loaded, ours, file=sys.stderr)
"""


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_0_and_loads_nothing_heavy(name: str, tmp_path: Path) -> None:
    arguments = [name, "--help"] if name else ["--help"]
    words = [sys.executable, "-c", WATCHED.replace("{heavy}", repr(HEAVY)), *arguments]
    got = run(cwd=tmp_path, words=words)
    assert got.err.splitlines()[-1] == "HEAVY 0 [] []"
    assert got.out.startswith(f"Usage: planner {name}".rstrip())
    for option in ("--help",) if name else COMMANDS:
        assert option in got.out
    assert names(tmp_path) == []


def test_version_loads_nothing_heavy(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WATCHED.replace("{heavy}", repr(HEAVY)), "--version"]
    got = run(cwd=tmp_path, words=words)
    assert got.out == f"rl-fleet-planner {metadata.version('rl-fleet-planner')}\n"
    assert got.err.splitlines()[-1] == "HEAVY 0 [] []"


def test_the_two_scripts_have_help_and_a_version(tmp_path: Path) -> None:
    version = f"rl-fleet-planner {metadata.version('rl-fleet-planner')}\n"
    for name in ("planner", "plan"):
        for option in ("--help", "-h"):
            got = run(cwd=tmp_path, words=[*script(name), option])
            assert got.code == 0
            assert got.out.startswith(f"Usage: {name} [OPTIONS]")
        assert run(cwd=tmp_path, words=[*script(name), "--version"]).out == version
    got = run(cwd=tmp_path, words=[*script("plan"), "--trace", "absent.csv"])
    refused(got, "absent.csv: No such file")


def test_help_names_every_option_of_the_design(tmp_path: Path) -> None:
    text = run("plan", "--help", cwd=tmp_path, COLUMNS="80").out
    for option in ("--trace", "--policy", "--baselines", "--cluster", "--out", "--json", "--force",
                   "--timings", "--no-check", "--durations", "--objective", "--quiet",
                   "--no-html", "--figures", "--verbose"):  # fmt: skip
        assert option in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_arguments_the_help_is_shown(tmp_path: Path) -> None:
    got = run(cwd=tmp_path, words=command())
    assert got.code == 2  # usage
    assert all(name in got.out + got.err for name in COMMANDS)
