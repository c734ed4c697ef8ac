"""Run the command line: in this process, or as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from instances.catalog import catalog_path
from planner.cli.app import app, plan_app

OPEN_SHOP = catalog_path("tiny-open-shop")
GANG = catalog_path("tiny-gang")
PRODUCTION = catalog_path("production-200")

PAIR_USD = 8 * 1.85 + 8 * 5.28  # $/h of one node of each kind

#: Two jobs whose state, switches and sync are estimated from ``model_b``.
ESTIMATED = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b
a,0,1000,1.5,30,40,7
b,50,1000,1.5,30,40,7
"""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


@contextlib.contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Commands set a handler of SIGTERM; the test process keeps its own."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def invoke(*arguments: str | Path, plan: bool = False) -> Outcome:
    """Run ``planner`` (or ``plan``) in this process."""
    with _restored_sigterm():
        runner = CliRunner()
        result = runner.invoke(
            plan_app if plan else app,
            [str(argument) for argument in arguments],
            prog_name="plan" if plan else "planner",
        )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def ok(*arguments: str | Path, plan: bool = False) -> Outcome:
    """Run in this process, and succeed."""
    outcome = invoke(*arguments, plan=plan)
    assert outcome.code == 0, outcome.err
    return outcome


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without what changes how things are printed."""
    printing = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "TERM")
    kept = {name: value for name, value in os.environ.items() if name not in printing}
    return {**kept, "TERM": "dumb", **changes}


def command(*arguments: str | Path) -> list[str]:
    """Return the words that start ``planner`` as a process."""
    return [sys.executable, "-m", "planner", *map(str, arguments)]


def run(*arguments: str | Path, cwd: Path, words: list[str] | None = None, **env: str) -> Outcome:
    """Run ``planner`` (or other words) as a process in a folder."""
    done = subprocess.run(
        words or command(*arguments),
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


def names(folder: Path) -> list[str]:
    """Return what a folder holds, hidden files included, sorted."""
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, text: str) -> Path:
    """Write a text file, and return its path."""
    path.write_text(text, encoding="utf-8")
    return path


def refused(outcome: Outcome, *parts: str, code: int = 2) -> None:
    """Nothing on standard output, these words on standard error, no traceback, this code."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err
