"""The README and the studies as blocks: what each shows, and what it says it is from.

A block is a run of lines between blank ones, outside fences. A line ``<!-- from: A; B -->`` right
before a block, or before a fence, names what produces the figures in it: a command or a script of
this repository, a source file, or where else a figure is from (:data:`WORDS`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
STUDIES = ROOT / "tests" / "benchmarks" / "STUDIES.md"
PAGES = (README, STUDIES)

#: Sources that are neither a command nor a file.
WORDS = {
    "published": "a value of the literature, typed from it",
    "arithmetic": "follows from figures of the same block or the one before",
    "definition": "part of a definition, an example or a default that the text gives",
}

_FROM = re.compile(r"<!-- from: (.+?) -->")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?=x\b|\W|$)")


@dataclass(frozen=True)
class Block:
    """Some lines of a page; ``fence`` is the language of a fenced block, None of text."""

    page: Path
    line: int
    text: str
    fence: str | None
    mark: str | None
    sources: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return where it stands, for messages."""
        return f"{self.page.name}:{self.line}: {self.text.splitlines()[0][:60]}"

    @property
    def numbers(self) -> list[str]:
        """Return the figures of the text: not those in code, links or names (``H20``, ``p95``)."""
        plain = re.sub(r"`[^`]*`", "", self.text)
        plain = re.sub(r"\]\([^)]*\)", "]", plain)
        return _NUMBER.findall(plain)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order, headings and comments left out."""
    found: list[Block] = []
    lines: list[str] = []
    fence: str | None = None
    start, mark, sources = 0, None, ()

    def close(kind: str | None) -> None:
        nonlocal mark, sources
        if lines or kind is not None:
            found.append(Block(page, start, "\n".join(lines), kind, mark, sources))
            mark, sources = None, ()
        lines.clear()

    for number, line in enumerate(page.read_text("utf-8").split("\n"), start=1):
        if line.startswith("```") and (fence is None or line == "```"):
            if fence is None:
                close(None)
                fence, start = line[3:], number
            else:
                close(fence)
                fence = None
        elif fence is not None:
            lines.append(line)
        elif told := _FROM.fullmatch(line):
            close(None)
            sources = tuple(part.strip() for part in told.group(1).split(";"))
        elif named := re.fullmatch(r"<!-- ([\w-]+) -->", line):
            close(None)
            mark = named.group(1)
        elif not line.strip() or line.startswith("#"):
            close(None)
        else:
            if not lines:
                start = number
            lines.append(line)
    assert fence is None, f"{page.name}: a fence is not closed: ```{fence}"
    close(None)
    return found


def split_words(command: str) -> list[str]:
    """Return the words of a command line, a comment left out."""
    return shlex.split(command, comments=True)


def command_lines(page: Path) -> list[tuple[str, str]]:
    """Return (place, command) of every line of the ``bash`` blocks of a page."""
    return [
        (f"{page.name}:{block.line}", line)
        for block in blocks(page)
        if block.fence == "bash"
        for line in block.text.split("\n")
        if line.strip()
    ]


def inline_commands(page: Path) -> list[tuple[str, str]]:
    """Return (place, command) of code in the text that starts with one of our commands."""
    return [
        (f"{page.name}:{block.line}", " ".join(code.split()))
        for block in blocks(page)
        if block.fence is None
        for code in re.findall(r"`((?:plan|planner|python tests/)[^`]*)`", block.text)
        if re.match(r"(plan|planner) [^`]|python tests/", code)
    ]
