"""What this machine offers: packages, cores, memory, terminal; and whether both solvers fit.

Nothing here raises for a package that is missing or broken: that is a :class:`Package` that says
so. Versions are compared with the ranges that the distribution itself declares.
"""

from __future__ import annotations

import importlib
import locale
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from instances.errors import FleetPlannerError

__all__ = [
    "DISTRIBUTION",
    "USES",
    "Machine",
    "Package",
    "Terminal",
    "machine",
    "meets",
    "one_line",
    "packages",
    "solvers_together",
]

DISTRIBUTION: Final = "rl-fleet-planner"
#: What each package is for; for an optional one, what it would bring.
USES: Final[Mapping[str, str]] = {
    "highspy": "HiGHS: linear and mixed-integer programs",
    "jinja2": "the page of a report",
    "matplotlib": "figures: SVG, PNG and PDF",
    "numpy": "job tables, placer, replay",
    "ortools": "CP-SAT: order inside a period",
    "pandas": "traces and tables",
    "pydantic": "configuration files",
    "pyomo": "compact models, MPS and LP files",
    "rich": "tables and progress",
    "scipy": "intervals over seeds",
    "typer": "the command line",
    "distributed": "sweeps on a Dask cluster",
    "ipykernel": "notebooks",
    "jupytext": "notebooks",
    "nbclient": "notebooks",
    "numba": "compiled bounds and local search",
    "pyarrow": "Parquet traces and tables",
    "zstandard": "traces in .csv.zst",
}
_NEEDLESS: Final = ("dev",)  # an extra of developers
#: Each order of importing both solvers, and using them, as a program of its own.
_HIGHS: Final = """
import os
import highspy
kept = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its banner
highs = highspy.Highs()
os.dup2(kept, 1)
highs.setOptionValue("output_flag", False)
highs.maximize(2 * highs.addVariable(lb=0, ub=3))
assert highs.getInfo().objective_function_value == 6
"""
_CP_SAT: Final = """
from ortools.sat.python import cp_model
model = cp_model.CpModel()
model.maximize(2 * model.new_int_var(0, 5, "y"))
solver = cp_model.CpSolver()
solver.parameters.num_workers = 1
assert solver.solve(model) == cp_model.OPTIMAL
assert solver.objective_value == 10
"""
_ORDERS: Final = {"HiGHS first": _HIGHS + _CP_SAT, "CP-SAT first": _CP_SAT + _HIGHS}
_PATIENCE_S: Final = 60.0
_MOST_LETTERS: Final = 200


def one_line(error: BaseException | str) -> str:
    """Return what an error says on one line, its kind first unless it is one of ours."""
    ours = isinstance(error, str | FleetPlannerError)
    kind = "" if ours else type(error).__name__
    text = " ".join(str(error).split())
    text = ": ".join(filter(None, (kind, text)))
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 3]}..."


# --- packages -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Package:
    """One package: is it there, and does it work?

    Attributes
    ----------
    extra : str or None
        The extra that installs it; ``None``: it is required.
    version : str or None
        ``None``: not installed.
    fault : str
        Why it does not work; empty where it does, or where it is not installed.
    """

    name: str
    wanted: str
    extra: str | None
    version: str | None
    fault: str
    use: str

    @property
    def state(self) -> str:
        """One word: ok, absent or FAILED."""
        if self.fault:
            return "FAILED"
        return "absent" if self.version is None else "ok"

    @property
    def broken(self) -> bool:
        """Whether the planner cannot do without it, and has to."""
        return self.extra is None and self.state != "ok"

    @property
    def advice(self) -> str:
        """What to do where it is not ok; empty where it is."""
        if self.state == "ok":
            return ""
        if self.extra is None:
            return f"python -m pip install --force-reinstall '{self.name}{self.wanted}'"
        return f"python -m pip install '.[{self.extra}]'"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, zeros at the end left out: 1.15.0 is 1.15."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    found = [int(part) for part in match[0].split(".")] if match else []
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def meets(version: str, wanted: str) -> bool:
    """Return whether a version is within a range such as ``>=1.14,!=1.15.0``."""
    ours = _numbers(version)
    for sign, text in re.findall(r"([<>=!~]=|[<>])\s*([\w.]+)", wanted):
        other = _numbers(text)
        fits = {
            ">=": ours >= other,
            "~=": ours >= other,
            "<=": ours <= other,
            ">": ours > other,
            "<": ours < other,
            "==": ours == other,
            "!=": ours != other,
        }[sign]
        if not fits:
            return False
    return True


def _requirements() -> Iterator[tuple[str, str, str | None]]:
    """Yield name, range and extra of what the distribution declares, without what tests need."""
    for line in metadata.requires(DISTRIBUTION) or ():
        text, _, marker = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[[^]]*])?\s*(.*)", text)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        below = re.search(r"python_version\s*<\s*['\"]([\d.]+)['\"]", marker)
        if match is None or (extra and extra[1] in _NEEDLESS):
            continue
        if below and sys.version_info[:2] >= _numbers(below[1]):
            continue
        yield match[1], match[2].strip(" ()"), extra[1] if extra else None


def _fault(name: str, version: str, wanted: str) -> str:
    if not meets(version, wanted):
        return f"Expected {name}{wanted}, got {version}."
    try:
        with warnings.catch_warnings():  # what a package says of itself is not ours to judge
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    except Exception as error:  # whatever it is, the other packages are looked at too
        return one_line(error)
    return ""


def packages() -> tuple[Package, ...]:
    """Return every package that the planner declares, required ones first, each imported."""
    found = []
    for name, wanted, extra in _requirements():
        version = None
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(name)
        missing = "Not installed." if version is None and extra is None else ""
        fault = missing if version is None else _fault(name, version, wanted)
        found.append(
            Package(
                name=name,
                wanted=wanted,
                extra=extra,
                version=version,
                fault=fault,
                use=USES.get(name, ""),
            )
        )
    return tuple(sorted(found, key=lambda package: (package.extra is not None, package.name)))


def solvers_together() -> dict[str, str]:
    """Return, by order of import, why both solvers do not work in one process; else empty text.

    highspy 1.15.0 and 1.15.1 have a library of the same name as one of ortools 9.15. Each order is
    tried in a process of its own, since the clash may end it.
    """
    out = {}
    for order, program in _ORDERS.items():
        try:
            done = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            out[order] = one_line(error)
            continue
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = words[-1] if words else f"the process ended with code {done.returncode}"
        out[order] = one_line(last) if done.returncode else ""
    return out


# --- the machine ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """Where standard output goes."""

    is_terminal: bool
    columns: int
    encoding: str
    colour: bool


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Python, processor, memory and terminal.

    Attributes
    ----------
    cores : int
        That this process may use: affinity and a container's quota counted.
    memory_gb : float or None
        GB = 1e9 bytes, a container's limit counted; ``None``: unknown.
    threads : dict of str to str
        Environment variables that limit the threads of libraries.
    """

    version: str
    python: str
    platform: str
    cores: int
    memory_gb: float | None
    threads: dict[str, str]
    terminal: Terminal


_CGROUP: Final = Path("/sys/fs/cgroup")


def _words_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no such limit here
        return []


def _cores(cgroup: Path = _CGROUP) -> int:
    """Return the cores that this process may use, at least 1."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    quota = _words_of(cgroup / "cpu.max")
    if len(quota) == 2 and all(word.isdigit() for word in quota) and int(quota[1]):
        cores = min(cores, -(-int(quota[0]) // int(quota[1])))
    return max(cores, 1)


def _memory_gb(cgroup: Path = _CGROUP) -> float | None:
    """Return the memory that this process may use, GB; ``None`` where nobody says."""
    known = []
    with suppress(AttributeError, OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    known += [int(word) for word in _words_of(cgroup / "memory.max") if word.isdigit()]
    return round(min(known) / 1e9, 1) if known else None


def _terminal() -> Terminal:
    from rich.console import Console

    out = sys.stdout
    return Terminal(
        is_terminal=out.isatty(),
        columns=shutil.get_terminal_size().columns,
        encoding=getattr(out, "encoding", None) or locale.getpreferredencoding(False),
        colour=Console().color_system is not None,
    )


def machine() -> Machine:
    """Return what this machine offers."""
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return Machine(
        version=metadata.version(DISTRIBUTION),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        cores=_cores(),
        memory_gb=_memory_gb(),
        threads={name: os.environ[name] for name in limits if name in os.environ},
        terminal=_terminal(),
    )
