"""The figures of the pages: shown, small, and what their commands draw today.

``python .ci/figures.py`` renews them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

from documents import PAGES, ROOT

#: Of one figure, so that pages load and clones stay small.
MOST_BYTES = 150_000


@cache
def drawer() -> ModuleType:
    spec = spec_from_file_location("figure_drawer", ROOT / ".ci" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown() -> dict[Path, str]:
    """Return every picture that a page shows, with the words in its place."""
    return {
        (page.parent / target).resolve(): words
        for page in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8"))
    }


def test_every_figure_is_shown_and_every_one_shown_is_there() -> None:
    assert sorted(shown()) == sorted(drawer().FOLDER.iterdir())
    assert all(len(words.split()) > 3 for words in shown().values())
    assert {path.name for path in shown()} - set(drawer().DRAWN) == {"repack.svg"}


def test_figures_are_small_and_of_no_machine_or_date() -> None:
    for path in shown():
        text = path.read_text("utf-8")
        assert len(text.encode()) < MOST_BYTES, path.name
        assert "<dc:date>" not in text
        assert "/home/" not in text


def version_of(picture: str) -> str | None:
    found = re.search(r"Matplotlib v([\d.]+\d)", picture)
    return found.group(1) if found else None


#: The fleet's takes a search of 15 s.
SLOW = {"fleet.svg"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(sorted(set(drawer().DRAWN) - SLOW), id="quick"),
        pytest.param(sorted(SLOW), id="slow", marks=pytest.mark.slow),
    ],
)
def test_figures_are_what_their_commands_draw(names: list[str]) -> None:
    of = version_of((drawer().FOLDER / names[0]).read_text("utf-8"))
    if of != mpl.__version__:
        pytest.skip(f"drawn by matplotlib {of}, not {mpl.__version__}")
    stale = [
        name
        for name, picture in drawer().drawn(names).items()
        if (drawer().FOLDER / name).read_bytes() != picture
    ]
    assert stale == [], f"renew them: python .ci/figures.py {' '.join(stale)}"


def test_a_stale_figure_is_found_and_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawer(), "FOLDER", tmp_path)
    monkeypatch.setattr(drawer(), "ROOT", tmp_path)
    monkeypatch.setattr(drawer(), "drawn", lambda names: dict.fromkeys(names, b"<svg/>"))

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["figures.py", *arguments])
        return drawer().main(), capsys.readouterr().err

    assert run("--check", "cost.svg") == (1, "stale: cost.svg\n")
    assert not (tmp_path / "cost.svg").exists()
    assert run("cost.svg") == (0, "drawn: cost.svg\n")
    assert (tmp_path / "cost.svg").read_bytes() == b"<svg/>"
    assert run("--check", "cost.svg") == (0, "")
    with pytest.raises(SystemExit):
        run("cots.svg")
    assert "Expected names among cost.svg, group.svg" in capsys.readouterr().err
