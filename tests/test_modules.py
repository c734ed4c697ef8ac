"""What a module of the three packages gives away is what its ``__all__`` says, and is used."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("planner", "models", "instances")
#: Files that only use the packages.
USERS = ("tests", "notebooks", ".ci")


@dataclass
class Module:
    """One module by its text: names it defines or imports, and those it uses."""

    name: str
    public: list[str] | None = None
    defined: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    used: Counter[str] = field(default_factory=Counter)
    #: (module, name) of every import by name, wherever it stands.
    takes: set[tuple[str, str]] = field(default_factory=set)


def bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def read(path: Path) -> Module:
    """Return a module as its text has it."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    module, tree = Module(".".join(parts)), ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        names = set(bound(node))
        module.defined |= names
        if isinstance(node, ast.Assign) and names == {"__all__"}:
            if isinstance(node.value, ast.List):
                module.public = ast.literal_eval(node.value)
        elif isinstance(node, ast.ImportFrom):
            module.imported |= {alias.asname or alias.name for alias in node.names}
    take(module, tree)
    return module


def take(module: Module, tree: ast.Module) -> None:
    """Note what a module takes from others, and the names it uses itself."""
    modules: dict[str, str] = {}  # local name of an imported module
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module.takes |= {(node.module, alias.name) for alias in node.names}
            modules |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.Name):
            module.used[node.id] += isinstance(node.ctx, ast.Load)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module.takes.add((modules.get(node.value.id, ""), node.attr))


@cache
def ours() -> dict[str, Module]:
    """Return every module that gives something away: neither a folder's own nor ``__main__``."""
    return {
        module.name: module
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
        for module in [read(path)]
    }


@cache
def all_takes() -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return what is imported by name: within the packages, and by their users."""
    inside = {(taken, name) for module in ours().values() for taken, name in module.takes}
    homes = [ROOT / package / "__init__.py" for package in PACKAGES]
    inside |= {taken for home in homes for taken in read(home).takes}
    outside = {
        taken
        for folder in USERS
        for path in (ROOT / folder).rglob("*.py")
        for taken in read(path).takes
    }
    return inside, outside


def test_every_module_says_what_is_public() -> None:
    assert [name for name, module in ours().items() if module.public is None] == []


def test_public_names_exist_once() -> None:
    wrong = [
        (name, public)
        for name, module in ours().items()
        for public, count in Counter(module.public).items()
        if count > 1 or public not in module.defined | module.imported
    ]
    assert wrong == []


def test_what_is_imported_is_public_where_it_comes_from() -> None:
    """Modules of the packages import no private name of each other; tests may, and do."""
    inside, outside = all_takes()
    wrong = [
        (home, name)
        for home, name in sorted(inside | outside)
        if home in ours() and name not in (ours()[home].public or ())
        if name in ours()[home].defined
        if (home, name) in inside or not name.startswith("_")
    ]
    assert wrong == []


def test_public_names_are_used() -> None:
    """By another module, by its own beyond the definition, or by tests and studies."""
    inside, outside = all_takes()
    api = (ROOT / "planner" / "__init__.py").read_text(encoding="utf-8")
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    unused = [
        (name, public)
        for name, module in ours().items()
        for public in module.public or ()
        if (name, public) not in inside | outside
        and not module.used[public]
        and f'"{public}"' not in api
        and f"{name}:{public}" not in scripts
    ]
    assert unused == []
