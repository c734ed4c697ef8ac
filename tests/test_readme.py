"""The README shows what the commands print today, not what they once printed.

A block ```` ```text ```` that follows ``<!-- NAME -->`` is compared with the command's standard
output at 80 columns. To renew them: ``python tests/test_readme.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

COMMANDS = {
    "plan-output": (
        "plan",
        "--trace",
        "instances/catalog/production-200.csv",
        "--baselines",
        "solo,colocated",
    ),
    "snapshot-output": (
        "snapshot",
        "--trace",
        "instances/catalog/production-200.csv",
        "--at-hours",
        "20",
    ),
    "gap-output": ("gap", "--trace", "instances/catalog/production-200.csv"),
    "size-output": (
        "size",
        "--trace",
        "instances/catalog/production-200.csv",
        "--only",
        "alternatives,fleet,loss",
        "--baselines",
        "solo,colocated",
    ),
    "simulate-output": (
        "simulate",
        "--trace",
        "instances/catalog/production-200.csv",
        "--only",
        "runtime,failures",
    ),
    "repack-output": ("repack", "--plan", "replay/plan.json", "--at-hours", "60"),
    "reproduce-output": ("reproduce",),
    "profile-output": (
        "profile",
        "--model-b=7",
        "--max-tokens=8192",
        "--prompts-per-step=128",
        "--samples-per-prompt=8",
    ),
}
#: What the README runs before.
BEFORE = {
    "repack-output": ("plan", "--trace", "instances/catalog/production-200.csv", "--out", "replay")
}


def run(words: tuple[str, ...], folder: Path) -> str:
    """Return what a command prints; its output files, ``replay``, go to ``folder``."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    words = tuple(
        re.sub(r"^replay(?=$|/)", lambda _: str(folder / "replay"), word) for word in words
    )
    return subprocess.run(
        [sys.executable, "-m", "planner", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=True,
    ).stdout


def printed(name: str) -> str:
    """Return what a command prints, without spaces at line ends and blank lines at the end."""
    with tempfile.TemporaryDirectory() as folder:
        if name in BEFORE:
            run(BEFORE[name], Path(folder))
        out = run(COMMANDS[name], Path(folder))
    return "\n".join(line.rstrip() for line in out.splitlines()).strip()


def block(text: str, name: str) -> re.Match[str]:
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)\n```", text, flags=re.DOTALL)
    assert found is not None, f"README.md has no ```text block after <!-- {name} -->"
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_shows_what_is_printed(name: str) -> None:
    assert block(README.read_text("utf-8"), name).group(1) == printed(name)


def test_every_file_the_readme_names_is_there() -> None:
    text = README.read_text("utf-8")
    named = set(re.findall(r"`((?:instances|models|planner|tests|\.ci)/[\w./-]*\w)`", text))
    named |= set(re.findall(r"python (tests/[\w./-]+\.py)", text))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_no_placeholder_is_left() -> None:
    assert re.findall(r"\b[A-Z]+_(?:TABLE|TIME)\b", README.read_text("utf-8")) == []


def main() -> None:
    """Renew the blocks."""
    text = README.read_text("utf-8")
    for name in COMMANDS:
        start, end = block(text, name).span(1)
        text = text[:start] + printed(name) + text[end:]
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
