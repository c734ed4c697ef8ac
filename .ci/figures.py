"""Renew the pictures that pages show, ``notebooks/figures``: ``python .ci/figures.py [NAME ...]``.

Each is a file that a command of the planner writes for the shipped trace; which one, :data:`DRAWN`
says. ``--check`` writes nothing and fails where a picture is not what its command draws. (The
figure of the study of moves is drawn by ``tests/benchmarks/study_repack.py --figure``, from runs
of an hour.)
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks" / "figures"
TRACE = "instances/catalog/production-200.csv"
PLAN = f"plan --trace {TRACE} --baselines solo,colocated --figures svg"
SIZE = f"size --trace {TRACE} --baselines solo,colocated --only"
#: Picture -> the command, without ``--out``, and the file it writes.
DRAWN = {
    "cost.svg": (PLAN, "cost-work.svg"),
    "group.svg": (PLAN, "group-1.svg"),
    "demand.svg": (f"{SIZE} alternatives", "demand.svg"),
    "fleet.svg": (f"{SIZE} fleet", "fleet.svg"),
}


def drawn(names: list[str]) -> dict[str, bytes]:
    """Return the pictures as their commands draw them now; each command runs once."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = dict.fromkeys(DRAWN[name][0] for name in names)
        for number, command in enumerate(commands):
            out = Path(folder) / str(number)
            words = [sys.executable, "-m", "planner", *command.split(), "--out", str(out)]
            done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")
            for name in names:
                of, file = DRAWN[name]
                if of == command:
                    found[name] = (out / file).read_bytes()
    return found


def main() -> int:
    """Write every picture, or those named, or with ``--check`` compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DRAWN))
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in DRAWN]:
        parser.error(f"Expected names among {', '.join(DRAWN)}, got {', '.join(unknown)}.")
    stale = 0
    for name, picture in drawn(given.names or list(DRAWN)).items():
        path = FOLDER / name
        if path.is_file() and path.read_bytes() == picture:
            continue
        stale += 1
        print(f"{'stale' if given.check else 'drawn'}: {path.relative_to(ROOT)}", file=sys.stderr)
        if not given.check:
            path.write_bytes(picture)
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
