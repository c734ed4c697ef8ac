"""The pages beside the README: the API, the formulation, the layout, and those of ``.github``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from documents import README, ROOT, STUDIES
from instances import checker, group_checker

FORMULATION = ROOT / "models" / "FORMULATION.md"
API = ROOT / "planner" / "API.md"
GITHUB = ROOT / ".github"
CONTRIBUTING = GITHUB / "CONTRIBUTING.md"
CHANGELOG = GITHUB / "CHANGELOG.md"
LINKED = (README, STUDIES, FORMULATION, API, CONTRIBUTING, CHANGELOG)

PACKAGES = ("planner", "models", "instances")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def section(page: Path, heading: str) -> str:
    """Return the text under a heading, up to the next of its rank or above."""
    text = page.read_text("utf-8")
    rank = heading.split(" ", maxsplit=1)[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(rank)}}} |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"{page.name} has no heading '{heading}'"
    return found.group(1)


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of the first table, its head left out."""
    rows = [line for line in text.split("\n") if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


# --- links and names -------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    seen: dict[str, int] = {}
    found = set()
    plain = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.+)$", plain, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if anchor in seen else anchor)
        seen[anchor] = seen.get(anchor, 0) + 1
    return found


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_file_a_page_names_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    folders = "instances|models|planner|tests|notebooks|\\.ci|\\.github"
    named = set(re.findall(rf"`((?:{folders})/[\w./-]*\w)`", text))
    named |= set(re.findall(r"python ((?:tests|\.ci)/[\w./-]+\.py)", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@cache
def modules() -> frozenset[str]:
    """Return the paths of all modules, without ``.py``."""
    return frozenset(
        str(path.relative_to(ROOT).with_suffix("").as_posix())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )


@cache
def defined() -> dict[str, frozenset[str]]:
    """Return, by module, every name that is bound, a parameter or an attribute in it."""
    found = {}
    for module in modules():
        tree = ast.parse((ROOT / f"{module}.py").read_text("utf-8"))
        names = set()
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef() | ast.ClassDef():
                    names.add(node.name)
                case ast.Name():
                    names.add(node.id)
                case ast.arg():
                    names.add(node.arg)
                case ast.Attribute():
                    names.add(node.attr)
        found[module] = frozenset(names)
    return found


# --- the formulation -------------------------------------------------------------------


def formulation_code() -> list[str]:
    return re.findall(r"`([^`\n]+)`", FORMULATION.read_text("utf-8"))


def test_every_module_of_the_formulation_exists() -> None:
    files = [code for code in formulation_code() if code.endswith(".py")]
    files += [code for code in formulation_code() if re.fullmatch(r"[a-z_]+(/[a-z_]+)+", code)]
    assert len(files) > 30
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert [name for name in files if "/" not in name] == []


def test_every_function_of_the_formulation_exists() -> None:
    missing = []
    dotted = [code for code in formulation_code() if re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)+", code)]
    for code in dotted:
        if code.endswith(".py"):
            continue
        module, _, name = code.rpartition(".")
        homes = [m for m in modules() if f"/{m}".endswith("/" + module.replace(".", "/"))]
        if not any(name in defined()[home] for home in homes):
            missing.append(code)
    assert len(dotted) > 3
    assert missing == []


def test_the_tolerances_of_the_formulation_are_those_of_the_checker() -> None:
    text = " ".join(section(FORMULATION, "## 2. What a group is").split())
    said = re.search(
        r"within `(\S+) s \+ (\S+) C`, GB within `(\S+)`, the price within `(\S+)`", text
    )
    assert said is not None
    assert [float(number) for number in said.groups()] == [
        group_checker.TOLERANCE_S,
        group_checker.TOLERANCE_S_REL,
        group_checker.TOLERANCE_GB,
        checker.TOLERANCE_USD_REL,
    ]


def test_the_symbols_of_the_formulation_are_names_in_code() -> None:
    rows = table_rows(section(FORMULATION, "## 1. Notation"))
    every = frozenset().union(*defined().values())
    names = [code for row in rows for code in re.findall(r"`([A-Za-z_]\w+)`", row[1])]
    assert len(names) > 15
    assert [name for name in names if name not in every] == []


def test_sections_of_the_formulation_are_numbered_and_meant() -> None:
    text = FORMULATION.read_text("utf-8")
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    meant = {
        int(number)
        for said in re.findall(r"[Ss]ections? ((?:\d+(?:, | and | to )?)+)", text)
        for number in re.findall(r"\d+", said)
    }
    assert meant <= set(numbers)
    pages = [README, STUDIES, CONTRIBUTING, *(ROOT / "models").rglob("*.py")]
    told = {
        (page.name, int(number))
        for page in pages
        for number in re.findall(
            r"FORMULATION\.md[^.]{0,40}? section (\d+)", " ".join(page.read_text("utf-8").split())
        )
    }
    assert len(told) > 1
    assert {item for item in told if item[1] not in numbers} == set()


def test_every_method_and_bound_is_in_the_formulation() -> None:
    # The table of section 17, whole: every module of models but the solvers' own.
    table = table_rows(section(FORMULATION, "## 17. Where it is in code"))
    named = [code for row in table for code in re.findall(r"`([^`]+\.py)`", row[2])]
    wanted = [
        f"{module}.py"
        for module in sorted(modules())
        if re.match(r"models/(?!backends/)", module) and not module.endswith("__init__")
    ]
    assert sorted(named) == wanted
    numbers = {int(n) for row in table for n in re.findall(r"\d+", row[1])}
    assert max(numbers) <= 17


# --- the API page ----------------------------------------------------------------------


@cache
def api_page() -> ModuleType:
    spec = spec_from_file_location("api_page", ROOT / ".ci" / "api_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_page_is_current() -> None:
    assert API.read_text("utf-8") == api_page().page(), f"renew it: {api_page().COMMAND}"


def test_the_check_of_the_api_page_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "api_page.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_api_page_has_every_public_name_once() -> None:
    import planner

    headings = re.findall(r"^### (\w+)$", API.read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(planner.__all__)


def test_examples_of_the_api_page_import_public_names_only() -> None:
    import planner

    text = API.read_text("utf-8")
    found = re.findall(r"^>>> from ((?:planner|models|instances)[\w.]*) import (.+)$", text, re.M)
    assert len(found) > 5
    assert [home for home, _ in found if home != "planner"] == []
    names = {name.strip() for _, listed in found for name in listed.split(",")}
    assert names <= set(planner.__all__)


def test_every_parameter_of_a_public_function_is_documented() -> None:
    missing = {}
    for name, found in api_page().public_objects().items():
        if found.is_function:
            given = {item.name for item in api_page().parameters(found)}
            missing[name] = sorted(given - set(api_page().entries(found)))
    assert len(missing) > 15
    assert {name: names for name, names in missing.items() if names} == {}


def test_every_field_and_parameter_has_words() -> None:
    """Tables of three columns or more: name, type, what it is by default, what it means."""
    lines = [line for line in API.read_text("utf-8").splitlines() if line.startswith("| `")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    rows = [row for row in rows if len(row) > 2]
    assert len(rows) > 300
    assert [row[0] for row in rows if not row[-1].strip()] == []


def test_every_public_name_has_a_first_sentence() -> None:
    silent = [
        name
        for name, found in api_page().public_objects().items()
        if not found.is_attribute and not api_page().sections(found, "text")
    ]
    assert silent == []


def test_docstrings_become_markdown() -> None:
    given = "See :func:`~planner.gap.proving.optimality_gap` and ``jobs``::\n\n    a = ``b``"
    assert api_page().markdown(given) == "See `optimality_gap` and `jobs`:\n\n    a = `b`"


# --- layout and dependencies -----------------------------------------------------------


def first_sentence(package: Path) -> str:
    """Return the first paragraph of a package's docstring, as Markdown, without its full stop."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    return " ".join(api_page().markdown(text.partition("\n\n")[0]).split()).rstrip(".")


def test_the_layout_names_every_package_with_its_own_sentence() -> None:
    rows = {row[0].strip("`/"): row[1] for row in table_rows(section(README, "## Layout"))}
    packages = {
        str(path.parent.relative_to(ROOT).as_posix()): first_sentence(path.parent)
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    }
    others = {name for name in rows if name.split("/")[0] not in PACKAGES}
    assert {name: said for name, said in rows.items() if name not in others} == packages
    assert all((ROOT / name).is_dir() for name in others)
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."} >= {
        name for name in others if name[0] != "."
    }


def test_the_table_of_dependencies_is_that_of_pyproject() -> None:
    declared = {}
    for line in project()["dependencies"]:
        need = Requirement(line)
        declared[canonicalize_name(need.name)] = (least(need), None)
    for extra, lines in project()["optional-dependencies"].items():
        if extra != "dev":
            for line in lines:
                need = Requirement(line)
                declared[canonicalize_name(need.name)] = (least(need), extra)
    told = {}
    for name, wanted, why, licence in table_rows(section(README, "## Dependencies")):
        extra = re.search(r"extra `(\w+)`", wanted)
        told[canonicalize_name(name)] = (
            re.match(r">=([\d.]+)", wanted).group(1),
            extra.group(1) if extra else None,
        )
        assert why
        assert licence
    assert told == declared


def least(need: Requirement) -> str:
    return next(part.version for part in need.specifier if part.operator == ">=")


# --- .github ---------------------------------------------------------------------------


def test_the_citation_is_valid_and_of_this_version() -> None:
    cited = yaml.safe_load((GITHUB / "CITATION.cff").read_text("utf-8"))
    # https://github.com/citation-file-format: required keys, and those of this file.
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    allowed = {"abstract", "keywords", "license", "type", "version"}
    assert set(cited) - {"cff-version", "message", "title", "authors"} <= allowed
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    assert cited["title"] == project()["name"]
    assert cited["version"] == project()["version"]
    assert cited["license"] == project()["license"]
    assert all(set(author) == {"name"} and author["name"] for author in cited["authors"])
    assert len(set(cited["keywords"])) == len(cited["keywords"]) > 3


def test_the_commands_for_contributors_have_what_they_name() -> None:
    text = CONTRIBUTING.read_text("utf-8")
    lines = re.findall(r"^\.venv/bin/python (.+?)(?: +#.*)?$", text, re.MULTILINE)
    paths = [word for line in lines for word in line.split() if "/" in word]
    assert len(paths) > 4
    assert [path for path in paths if not (ROOT / path).exists()] == []
    slow = [line.split()[-1] for line in lines if "-m slow" in line]
    assert len(slow) == 1
    assert "pytest.mark.slow" in (ROOT / slow[0]).read_text("utf-8")


def test_the_changelog_keeps_its_form() -> None:
    text = CHANGELOG.read_text("utf-8")
    releases = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", name) for name in releases[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds
    assert f"What will be {project()['version']}" in text or f"[{project()['version']}]" in text


def test_the_changelog_names_commands_that_are_there() -> None:
    from test_readme import command_of

    named = set(re.findall(r"`planner ([a-z]+)`", CHANGELOG.read_text("utf-8")))
    assert len(named) > 8
    assert [name for name in sorted(named) if command_of(["planner", name])[1]] == []
