"""Write ``planner/API.md`` from the docstrings of the public names, ``planner.__all__``.

    python .ci/api_page.py            renew the page
    python .ci/api_page.py --check    exit 1 where the page is not what the docstrings say

The source is parsed, not run (griffe, numpydoc), so the page is the same on every machine.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "planner" / "API.md"
COMMAND = "python .ci/api_page.py"

#: Heading and the packages whose names stand under it; of several that fit the longest counts.
GROUPS = {
    "Plan a trace": ("planner", "planner.plan", "planner.placement", "planner.policies"),
    "Replays and demand": ("planner.replay", "planner.policies.replay_result"),
    "The least-cost plan of one moment": ("planner.snapshot", "models", "planner.replay.moment"),
    "How far from optimal": ("planner.gap",),
    "How many GPUs": ("planner.size", "instances.bootstrap", "planner.policies.wait_target"),
    "Run time": ("planner.simulate", "planner.reproduce", "planner.sweep"),
    "Moves of running jobs": ("planner.repack", "planner.policies.repack_params"),
    "Pages, pictures and first steps": ("planner.report", "planner.output", "planner.first_run"),
    "Traces, jobs, plans and the checker": ("instances",),
    "Hardware and estimates": (
        "instances.hardware",
        "instances.cluster_file",
        "instances.coefficients",
        "instances.estimate",
    ),
    "Errors": ("instances.errors",),
}

_ROLE = re.compile(r":(?:\w+:)?\w+:`~?([\w.]+)`")
_ENTRIES = ("attributes", "parameters", "other parameters")


def public_homes() -> dict[str, str]:
    """Return every public name with the module it is loaded from, in order of the alphabet.

    Both are read from the source of ``planner/__init__.py``.
    """
    tree = ast.parse((ROOT / "planner" / "__init__.py").read_text("utf-8"))
    found = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in ("__all__", "_HOME"):
            found[target.id] = ast.literal_eval(node.value)
    homes = found["_HOME"]
    return {name: homes[name] for name in sorted(found["__all__"], key=str.lower)}


@cache
def public_objects() -> dict[str, griffe.Object]:
    """Return what each public name stands for, as griffe parsed it."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], docstring_parser="numpy")
    for package in ("planner", "models", "instances"):
        loader.load(package)
    return {
        name: _target(loader.modules_collection[home][name])
        for name, home in public_homes().items()
    }


def _target(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def group_of(path: str) -> str:
    """Return the heading under which the name of this dotted path stands."""
    fits = [
        (len(package), heading)
        for heading, packages in GROUPS.items()
        for package in packages
        if path.startswith(f"{package}.")
    ]
    return max(fits)[1]


# --- text ------------------------------------------------------------------------------


def markdown(text: str) -> str:
    """Turn the little reStructuredText of our docstrings into Markdown."""
    text = _ROLE.sub(lambda found: f"`{found.group(1).rpartition('.')[2]}`", text)
    text = text.replace("``", "`")
    lines, code = [], False
    for line in text.split("\n"):
        # `::` ends a paragraph that an indented block of code follows; Markdown needs no mark.
        code = line.startswith("    ") or (code and not line.strip())
        lines.append(line if code else re.sub(r"::$", ":", line))
    return "\n".join(lines).strip()


def _cell(text: str) -> str:
    return " ".join(markdown(text).split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    lines = [head, ("---",) * len(head), *rows]
    return [*("| " + " | ".join(cells) + " |" for cells in lines), ""]


# --- parts of a docstring --------------------------------------------------------------


def sections(found: griffe.Object, kind: str) -> list[griffe.DocstringSection]:
    """Return the sections of that kind of an object's docstring."""
    parsed = found.docstring.parsed if found.docstring else []
    return [part for part in parsed if part.kind.value == kind]


def entries(found: griffe.Object) -> dict[str, str]:
    """Return what a docstring says of each parameter or attribute."""
    return {
        name: item.description
        for kind in _ENTRIES
        for part in sections(found, kind)
        for item in part.value
        for name in (part_name.strip().lstrip("*") for part_name in item.name.split(","))
    }


def _text(found: griffe.Object) -> list[str]:
    lines: list[str] = []
    for part in sections(found, "text"):
        lines += [markdown(part.value), ""]
    return lines


def _results(found: griffe.Object) -> list[str]:
    lines = []
    for kind, word in (("returns", "Returns"), ("yields", "Yields"), ("raises", "Raises")):
        rows = []
        for part in sections(found, kind):
            for item in part.value:
                of = str(item.annotation) if item.annotation else ""
                rows.append((_code(of), _cell(item.description)))
        lines += _table((word, "what"), rows)
    return lines


def _notes(found: griffe.Object) -> list[str]:
    lines: list[str] = []
    for part in sections(found, "admonition"):
        lines += [f"*{part.title or 'Note'}.* {markdown(part.value.contents)}", ""]
    return lines


def _examples(found: griffe.Object) -> list[str]:
    lines: list[str] = []
    for part in sections(found, "examples"):
        for kind, text in part.value:
            if kind.value == "examples":
                lines += ["```pycon", text, "```", ""]
            else:
                lines += [markdown(text), ""]
    return lines


# --- objects ---------------------------------------------------------------------------


def parameters(found: griffe.Function) -> Iterator[griffe.Parameter]:
    """Yield what a caller gives: neither ``self`` nor ``cls``."""
    return (item for item in found.parameters if item.name not in ("self", "cls"))


def _default(found: griffe.Function, item: griffe.Parameter) -> str:
    """Return a default; of a constant that is not public, its value, of a table of them ``...``."""
    text = str(item.default)
    if re.match(r"_\w+\[", text):
        return "..."
    constant = found.module.members.get(text) if text.startswith("_") else None
    return str(constant.value) if constant is not None and constant.is_attribute else text


def signature(found: griffe.Function, name: str) -> str:
    """Return ``name(...) -> type``, one parameter a line where it would be long."""
    words, keyword_only = [], False
    for item in parameters(found):
        kind = item.kind.value if item.kind else ""
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        if kind == "keyword-only" and not keyword_only:
            words.append("*")
        keyword_only = keyword_only or kind in ("keyword-only", "variadic positional")
        of = f": {item.annotation}" if item.annotation is not None else ""
        plain = item.default is None or star
        words.append(f"{star}{item.name}{of}" + ("" if plain else f" = {_default(found, item)}"))
    end = f" -> {found.returns}" if found.returns is not None else ""
    line = f"{name}({', '.join(words)}){end}"
    if len(line) <= 88:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){end}"])


def function_lines(found: griffe.Function) -> list[str]:
    """Return the entry of a function."""
    said = entries(found)
    rows = [
        (_code(item.name), _code(str(item.annotation or "")), _cell(said.get(item.name, "")))
        for item in parameters(found)
    ]
    lines = ["```python", signature(found, found.name), "```", "", *_text(found)]
    lines += _table(("parameter", "type", "meaning"), rows)
    return [*lines, *_results(found), *_notes(found), *_examples(found)]


def _is_property(member: griffe.Object) -> bool:
    return member.is_attribute and "property" in member.labels


def _members(found: griffe.Class) -> dict[str, griffe.Object]:
    return {
        name: _target(member)
        for name, member in found.members.items()
        if not name.startswith("_") and not _target(member).is_class
    }


def _fields(found: griffe.Class) -> list[tuple[str, ...]]:
    """Return the rows of a class's fields and properties, in the order of the source."""
    said, rows = entries(found), []
    for name, member in _members(found).items():
        if not member.is_attribute:
            continue
        own = member.docstring.value if member.docstring else ""
        value = "" if member.value is None else str(member.value)
        if _is_property(member) or value.startswith("field("):
            value = ""
        rows.append(
            (
                _code(name),
                _code(str(member.annotation or "")),
                _code(value),
                _cell(said.get(name) or own.partition("\n\n")[0]),
            )
        )
    return rows


def class_lines(found: griffe.Class) -> list[str]:
    """Return the entry of a class: its words, fields, properties and methods."""
    bases = [str(base) for base in found.bases]
    lines = [f"Bases: {', '.join(f'`{base}`' for base in bases)}.", ""] if bases else []
    lines += _text(found)
    start = found.members.get("__init__")
    rows = _fields(found)
    if start is not None and start.is_function:
        head = signature(start, found.name).removesuffix(" -> None")
        lines += ["```python", head, "```", ""]
        said, fields = entries(found) | entries(start), {row[0] for row in rows}
        given = [
            (_code(item.name), _code(str(item.annotation or "")), _cell(said.get(item.name, "")))
            for item in parameters(start)
            if _code(item.name) not in fields
        ]
        lines += _table(("parameter", "type", "meaning"), given)
    lines += _table(("field", "type", "default", "meaning"), rows)
    lines += _results(found)
    methods = []
    for name, member in _members(found).items():
        if member.is_function:
            head = " ".join(signature(member, name).split()).replace("( ", "(")
            words = member.docstring.value.partition("\n\n")[0] if member.docstring else ""
            methods.append((_code(head.replace(",)", ")")), _cell(words)))
    lines += _table(("method", "what it does"), methods)
    return [*lines, *_notes(found), *_examples(found)]


def _value(found: griffe.Object) -> str:
    """Return the value of a constant; of a table the keys."""
    value = ast.parse(str(found.value), mode="eval").body
    if not isinstance(value, ast.Dict):
        return ast.unparse(value)
    return "{" + ", ".join(f"{ast.unparse(key)}: ..." for key in value.keys if key) + "}"


def entry(name: str, found: griffe.Object) -> list[str]:
    """Return the lines of one public name."""
    lines = [f"### {name}", "", f"From `{found.path.rpartition('.')[0]}`.", ""]
    if found.is_function:
        return lines + function_lines(found)
    if found.is_class:
        return lines + class_lines(found)
    return [*lines, "```python", f"{name} = {_value(found)}", "```", "", *_text(found)]


def _anchors(names: list[str]) -> dict[str, str]:
    """Return the anchor of each heading; the second of two alike in lower case has a number."""
    seen: dict[str, int] = {}
    anchors = {}
    for name in names:
        anchor = name.lower()
        anchors[name] = f"{anchor}-{seen[anchor]}" if anchor in seen else anchor
        seen[anchor] = seen.get(anchor, 0) + 1
    return anchors


def page() -> str:
    """Return the whole page."""
    grouped: dict[str, list[str]] = {heading: [] for heading in GROUPS}
    for name, found in public_objects().items():
        grouped[group_of(found.path)].append(name)
    grouped = {heading: names for heading, names in grouped.items() if names}
    anchors = _anchors([name for names in grouped.values() for name in names])
    lines = [
        "# The public API",
        "",
        f"<!-- Written by `{COMMAND}` from the docstrings; do not edit. -->",
        "",
        "`from planner import ...` gives the names below, and only these are public. Units are in",
        "the names: `_s` seconds, `_h` hours, `_gb` 1e9 bytes, `_usd` dollars. A name starting",
        "with an underscore, and everything else in `planner`, `models` and `instances`, may",
        "change at any time.",
        "",
        "| group | names |",
        "|---|---|",
    ]
    for heading, names in grouped.items():
        links = ", ".join(f"[`{name}`](#{anchors[name]})" for name in names)
        lines.append(f"| {heading} | {links} |")
    for heading, names in grouped.items():
        lines += ["", f"## {heading}"]
        for name in names:
            lines += ["", *entry(name, public_objects()[name])]
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; write nothing")
    new = page()
    if not parser.parse_args().check:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text("utf-8") == new:
        return 0
    print(f"Expected {PAGE.relative_to(ROOT)} as the docstrings say. {COMMAND}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
