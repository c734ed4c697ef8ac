"""Make notebooks/*.ipynb from the Python files beside them: ``python .ci/notebooks.py``.

The .py files (jupytext's percent format) are the sources. A notebook made from one has no outputs
and no execution counts, cell ids that count from 1, and no metadata but the kernel's: the same
source gives the same bytes, whatever the versions here. ``--check`` writes nothing and fails where
a notebook is not what its source gives.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import jupytext

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def sources() -> list[Path]:
    """Return the Python files that are notebooks."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def notebook_text(source: Path) -> str:
    """Return the text of the notebook that a Python file gives."""
    cells = []
    for number, cell in enumerate(jupytext.read(source, fmt="py:percent").cells, start=1):
        made = {
            "cell_type": cell.cell_type,
            "id": f"cell-{number:02d}",
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        if cell.cell_type == "code":
            made |= {"execution_count": None, "outputs": []}
        cells.append(made)
    document = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Write every notebook, or with ``--check`` compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    stale = 0
    for source in sources():
        path, text = source.with_suffix(".ipynb"), notebook_text(source)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'stale' if check else 'made'}: {path.relative_to(FOLDER.parent)}", file=sys.stderr)
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
