"""The distribution: metadata, lock files, README commands, and solvers sharing a process."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("planner", "models", "instances")
LOCKS = ("requirements.txt", "requirements-dev.txt")

HIGHSPY = """
import highspy
highs = highspy.Highs()  # prints its banner on file descriptor 1
highs.setOptionValue("output_flag", False)
x = highs.addVariable(lb=0, ub=3)
highs.maximize(2 * x)
print("highspy", highs.getInfo().objective_function_value)
"""

CP_SAT = """
from ortools.sat.python import cp_model
model = cp_model.CpModel()
y = model.new_int_var(0, 5, "y")
model.maximize(2 * y)
solver = cp_model.CpSolver()
solver.parameters.num_workers = 1
assert solver.solve(model) == cp_model.OPTIMAL
print("cp_sat", solver.objective_value)
"""


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def dependency(name: str) -> Requirement:
    return next(
        requirement
        for requirement in map(Requirement, project()["dependencies"])
        if requirement.name == name
    )


def locked(name: str) -> dict[str, set[str]]:
    """Versions of each package in a lock file (several where environments differ)."""
    versions: dict[str, set[str]] = {}
    for line in (ROOT / ".ci" / name).read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==([^ \\;]+)", line):
            versions.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return versions


def readme_block(mark: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count(f"<!-- {mark} -->") == 1
    match = re.search(rf"^<!-- {mark} -->\n```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert match, f"no fenced bash block after <!-- {mark} -->"
    return match[1].splitlines()


@pytest.mark.parametrize(
    ("version", "allowed"),
    [("1.14.0", True), ("1.15.0", False), ("1.15.1", False), ("1.16.0", True)],
)
def test_highspy_range_leaves_out_the_releases_that_clash_with_ortools(version, allowed):
    assert (version in dependency("highspy").specifier) is allowed


@pytest.mark.parametrize(
    ("first", "second"),
    [(HIGHSPY, CP_SAT), (CP_SAT, HIGHSPY)],
    ids=["highspy-then-ortools", "ortools-then-highspy"],
)
def test_both_solvers_work_in_one_process(first, second):
    done = subprocess.run(
        [sys.executable, "-I", "-c", first + second],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "highspy 6.0" in lines  # max 2x with x <= 3
    assert "cp_sat 10.0" in lines  # max 2y with y <= 5


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_every_package_with_hashes(name):
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    entries = code.replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert re.fullmatch(r"\S+==[^;]+?( ; .+?)?(\s+--hash=sha256:[0-9a-f]{64})+", entry), entry


@pytest.mark.parametrize("name", LOCKS)
def test_lock_names_no_address_and_no_machine_path(name):
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    for word in ("http", "file:", "--index", "--extra-index", "--find-links"):
        assert word not in text
    assert not re.search(r"(?:^|[\s=@])(?:/|[A-Za-z]:\\)\w", text, re.MULTILINE)


def test_locks_satisfy_the_declared_ranges_and_agree():
    runtime, dev = (locked(name) for name in LOCKS)
    for requirement in map(Requirement, project()["dependencies"]):
        versions = runtime[canonicalize_name(requirement.name)]
        assert all(version in requirement.specifier for version in versions), requirement
    for extra in project()["optional-dependencies"].values():
        for requirement in map(Requirement, extra):
            if requirement.name != project()["name"]:
                versions = dev[canonicalize_name(requirement.name)]
                assert all(version in requirement.specifier for version in versions), requirement
    assert {name: dev[name] for name in runtime} == runtime


@pytest.mark.parametrize("mark", ["plan-command", "test-command"])
def test_readme_command_is_one_line_without_root(mark):
    lines = readme_block(mark)
    assert len(lines) == 1
    assert lines[0].startswith("python3 -m venv .venv && ")
    assert "sudo" not in lines[0]


def test_readme_plan_command_names_a_shipped_trace():
    match = re.search(r"--trace (\S+)", readme_block("plan-command")[0])
    assert match
    assert (ROOT / match[1]).is_file()


def test_readme_names_every_runtime_dependency():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for requirement in map(Requirement, project()["dependencies"]):
        assert f"| {requirement.name} |" in text


def test_installed_version_is_the_declared_one():
    assert metadata.version("rl-fleet-planner") == project()["version"]


def test_console_scripts_can_be_loaded():
    scripts = {
        entry.name: entry for entry in metadata.distribution("rl-fleet-planner").entry_points
    }
    assert set(scripts) == set(project()["scripts"]) == {"plan", "planner"}
    assert all(callable(entry.load()) for entry in scripts.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_typed(package):
    assert (ROOT / package / "__init__.py").is_file()
    assert (ROOT / package / "py.typed").is_file()


def test_checker_reaches_only_the_problem():
    """What decides validity shares no code with what makes plans or reads input."""
    graph = grimp.build_graph("instances", cache_dir=None)
    names = ("hardware", "jobs", "restarts", "plan", "errors")
    problem = {"instances"} | {f"instances.{name}" for name in names}
    assert graph.find_upstream_modules("instances.group_checker") <= problem
    reached = graph.find_upstream_modules("instances.checker")
    halves = {f"instances.{half}_checker" for half in ("fleet", "group", "loss", "pause")}
    assert reached <= problem | halves
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    forbidden = {
        module
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("The checker")
        for module in contract["forbidden_modules"]
    }
    rest = graph.modules - problem - halves - {"instances.checker"}
    assert forbidden == {"planner", "models"} | rest


def test_licence_is_complete():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "9. Accepting Warranty or Additional Liability" in text
