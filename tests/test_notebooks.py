"""The notebooks: public names only, made from their sources, and every cell runs.

Sources are ``notebooks/*.py``; ``python .ci/notebooks.py`` makes the ``.ipynb`` from them.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import planner

nbformat = pytest.importorskip("nbformat", reason="the extra notebooks is not installed")
pytest.importorskip("jupytext", reason="the extra notebooks is not installed")

ROOT: Final = Path(__file__).parents[1]
#: Notebook, and how many pictures it shows.
NOTEBOOKS: Final = {"01_plan_a_trace": 4, "02_optimality_study": 5, "03_fleet_sizing": 6}
#: What a notebook may import beside the standard library and ``planner``.
TOOLS: Final = {"matplotlib", "numpy", "pandas"}
#: Of one cell, so that a notebook that hangs is stopped.
CELL_S: Final = 120


def _maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebook_maker", ROOT / ".ci" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = _maker()


def source_of(name: str) -> Path:
    return ROOT / "notebooks" / f"{name}.py"


def test_every_source_is_tested() -> None:
    assert [path.stem for path in maker.sources()] == list(NOTEBOOKS)
    made = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert made == list(NOTEBOOKS)


def outside_names(source: str) -> list[str]:
    """Return the imports of a source that a notebook must not have, as they are written."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if top not in TOOLS and top not in sys.stdlib_module_names:
                    found.append(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or "."
            if module == "planner":
                found += [f"planner.{a.name}" for a in node.names if a.name not in planner.__all__]
            elif module.partition(".")[0] not in TOOLS | sys.stdlib_module_names:
                found.append(module)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            found.append(node.attr)
    return found


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_only_public_names_are_used(name: str) -> None:
    source = source_of(name).read_text(encoding="utf-8")
    assert "from planner import" in source
    assert outside_names(source) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from models.problem.snapshot import Snapshot", ["models.problem.snapshot"]),
        ("import instances.jobs", ["instances.jobs"]),
        ("import planner", ["planner"]),
        ("from planner.api import plan_trace", ["planner.api"]),
        ("from planner import api, plan_trace", ["planner.api"]),
        ("trace._hidden", ["_hidden"]),
        ("from pathlib import Path\nimport matplotlib.pyplot as plt", []),
    ],
)
def test_other_names_would_be_found(source: str, found: list[str]) -> None:
    assert outside_names(source) == found


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_is_what_its_source_gives(name: str) -> None:
    text = source_of(name).with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == maker.notebook_text(source_of(name)), "run python .ci/notebooks.py"
    document = json.loads(text)
    nbformat.validate(document)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    assert document["cells"][0]["source"][0].startswith("# ")  # a heading comes first
    for cell in document["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_a_stale_notebook_is_found_and_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(maker, "FOLDER", folder)
    (folder / "01_a.py").write_text("# %% [markdown]\n# # A\n\n# %%\n1 + 1\n", encoding="utf-8")

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["notebooks.py", *arguments])
        return maker.main(), capsys.readouterr().err

    assert run("--check") == (1, "stale: notebooks/01_a.ipynb\n")
    assert not (folder / "01_a.ipynb").exists()
    assert run() == (0, "made: notebooks/01_a.ipynb\n")
    first = (folder / "01_a.ipynb").read_bytes()
    assert run("--check") == (0, "")
    assert run() == (0, "")
    (folder / "01_a.py").write_text("# %% [markdown]\n# # B\n", encoding="utf-8")
    assert run("--check") == (1, "stale: notebooks/01_a.ipynb\n")
    assert (folder / "01_a.ipynb").read_bytes() == first


def failure(notebook: Any) -> str | None:
    """Return the first cell that failed, with its source and what it raised."""
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                return f"cell {number} raised {output.ename}: {output.evalue}\n\n{cell.source}"
    return None


def run_notebook(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a notebook that was run in a kernel of its own, without anybody's settings."""
    nbclient = pytest.importorskip("nbclient", reason="the extra notebooks is not installed")
    pytest.importorskip("ipykernel", reason="the extra notebooks is not installed")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.reads(text, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError:
        pytest.fail(failure(notebook) or "a cell failed without a word", pytrace=False)
    except nbclient.exceptions.CellTimeoutError as error:
        pytest.fail(str(error), pytrace=False)
    return notebook


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = run_notebook(maker.notebook_text(source_of(name)), tmp_path, monkeypatch)
    kinds = [
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for kind in output.get("data", ())
    ]
    assert kinds.count("image/png") == NOTEBOOKS[name]
    assert kinds.count("text/html") >= 2  # tables
    words = "".join(
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == "stderr"
    )
    assert words == ""  # no warning
    assert notebook.cells[-1].outputs[0].text.strip()  # ends in words made of numbers
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(("ipy", "jup"))}
    assert left == set()


def test_a_failing_cell_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "bad.py"
    source.write_text("# %%\na = 1\n\n# %%\nassert a == 2, 'two'\n", encoding="utf-8")
    text = maker.notebook_text(source)
    source.unlink()
    with pytest.raises(pytest.fail.Exception) as caught:
        run_notebook(text, tmp_path, monkeypatch)
    assert "cell 2 raised AssertionError: two" in str(caught.value)
    assert "assert a == 2" in str(caught.value)
