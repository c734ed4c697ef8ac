"""``planner snapshot``: sentences, table, JSON, files, exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD
from command_line import (
    ESTIMATED,
    GANG,
    OPEN_SHOP,
    command,
    invoke,
    names,
    ok,
    refused,
    run,
    write,
)
from instances.catalog import catalog_path
from instances.checker import check_plan
from instances.errors import InputError, UnsupportedError
from instances.plan import Limits
from instances.plan_file import plan_from_dict, read_plan
from models.exact.methods import METHODS
from models.problem.options import SolveOptions
from models.problem.result import Result, SolverInfo, StoppedBy, result_of
from models.problem.snapshot import FleetCaps, Snapshot, groups_of
from planner.cli.options import seconds_of
from planner.snapshot.tables import scope_words
from snapshot_cases import use_method

SYNC_GAP = catalog_path("tiny-sync-gap")
PRODUCTION = catalog_path("production-200")
SHOP = ("snapshot", "--trace", OPEN_SHOP)

HEAD = (
    "job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,"
    "rollout_switch_s,train_switch_s,sync_gb,sync_s,rollout_nodes,train_nodes,mode\n"
)
#: No two jobs fit the DRAM of one node: each is alone.
ALONE = HEAD + "".join(f"j{i},0,9000,1,60,40,1001,1001,0,0,0,0,1,1,sync\n" for i in range(3))
#: A pair that shares, and an async job.
MIXED = (
    HEAD
    + "a,0,9000,1.5,60,40,100,100,0,0,0,0,1,1,sync\n"
    + "b,0,9000,1.5,40,60,100,100,0,0,0,0,1,1,sync\n"
    + "free,0,9000,1,60,40,100,100,0,0,0,0,2,1,async\n"
)

SNAPSHOT_KEYS = [
    "method", "termination", "stopped_by", "moment_h", "n_jobs", "usd_per_hour",
    "bound_usd_per_hour", "bound_method", "bound_options", "ratio", "solo_usd_per_hour",
    "saving", "placer_usd_per_hour", "nodes", "groups", "dedicated", "link_utilisation", "links",
    "counts", "solver", "seed", "conflict", "notes", "plan", "checked",
]  # fmt: skip


def words(text: str) -> str:
    return " ".join(text.split())


def start_plan(stopped_by: StoppedBy, **more: Any) -> Any:
    """Return a method that holds its warm start when it stops."""

    def solve(snapshot: Snapshot, options: SolveOptions) -> Result:
        assert options.warm_start is not None
        groups = groups_of(snapshot, options.warm_start)
        return result_of(
            snapshot, options, "milp", groups=groups, bound_usd=None, stopped_by=stopped_by, **more
        )

    return solve


# --- JSON -----------------------------------------------------------------------------------------


def test_the_document_has_the_keys_of_the_design() -> None:
    document = ok(*SHOP, "--json").json
    assert list(document) == ["schema_version", "command", "inputs", "snapshot"]
    assert (document["schema_version"], document["command"]) == (1, "snapshot")
    inputs = document["inputs"]
    assert (inputs["trace"], inputs["jobs"], inputs["seed"]) == ("tiny-open-shop.csv", 2, 0)
    assert inputs["options"] == {
        "select": "peak", "at_hours": None, "method": "auto", "max_rate": 1, "max_group_size": 5,
        "max_rollout_nodes": None, "max_train_nodes": None, "max_rollout_nodes_total": None,
        "max_train_nodes_total": None, "time_limit_s": None, "node_limit": None,
        "work_limit": None,
    }  # fmt: skip
    found = document["snapshot"]
    assert list(found) == SNAPSHOT_KEYS
    assert (found["method"], found["termination"]) == ("exhaustive", "optimal")
    assert (found["stopped_by"], found["solver"], found["conflict"]) == (None, None, None)
    assert (found["moment_h"], found["n_jobs"], found["checked"]) == (0.0, 2, True)
    # one node of each kind instead of two, and no plan has fewer
    assert found["usd_per_hour"] == found["bound_usd_per_hour"] == pytest.approx(PAIR_USD)
    assert (found["ratio"], found["saving"]) == (1.0, pytest.approx(2.0))
    assert found["placer_usd_per_hour"] == pytest.approx(PAIR_USD)
    assert found["nodes"] == {"rollout": 1, "train": 1}
    assert found["counts"]["groups"] == 3  # two alone, one of both
    (group,) = found["groups"]
    assert group == {
        "group_id": "g1", "jobs": ["shop-1", "shop-2"], "nodes": {"rollout": 1, "train": 1},
        "usd_per_hour": pytest.approx(PAIR_USD), "period_s": 180.0,
        "rates": [1, 1], "worst_single_iteration_s": [180.0, 180.0],
        "tightest": {
            "rule": "rollout_load", "used": 180.0, "limit": 225.0, "unit": "s", "job_id": None,
            "deadline_of": "shop-1", "deadlines": 1, "node": 0, "slack": pytest.approx(0.2),
        },
        "utilisation": {"rollout": 1.0, "train": 1.0},
    }  # fmt: skip


def test_the_plan_in_the_document_is_valid() -> None:
    found = ok("snapshot", "--trace", GANG, "--json").json["snapshot"]
    plan = plan_from_dict(found["plan"], "document")
    report = check_plan(plan)
    assert report.ok
    assert plan.durations == "snapshot"
    assert report.usd_total_recomputed == pytest.approx(found["usd_per_hour"])
    assert report.peak_nodes == found["nodes"]
    assert sum(group["usd_per_hour"] for group in found["groups"]) == pytest.approx(
        found["usd_per_hour"]
    )


def test_async_jobs_are_in_cost_and_bound_alike(folder: Path) -> None:
    got = ok(
        "snapshot", "--trace", write(folder / "t.csv", MIXED), "--json", "--out", "o", "--no-html"
    )
    found = got.json["snapshot"]
    apart = 2 * ROLLOUT_USD + TRAIN_USD
    assert found["dedicated"] == {
        "jobs": 1, "nodes": {"rollout": 2, "train": 1}, "usd_per_hour": pytest.approx(apart),
    }  # fmt: skip
    assert found["usd_per_hour"] == found["bound_usd_per_hour"] == pytest.approx(PAIR_USD + apart)
    assert (found["n_jobs"], found["nodes"]) == (3, {"rollout": 3, "train": 2})
    assert check_plan(read_plan(folder / "o" / "plan.json")).ok
    text = ok("snapshot", "--trace", "t.csv").out
    assert f"1 async job holds 2 + 1 dedicated nodes for ${apart:.2f}/h" in words(text)


def test_timings_only_when_asked() -> None:
    document = ok(*SHOP, "--json", "--timings").json
    assert document["timings"]["solve_s"] > 0
    assert set(document["timings"]["steps_s"]) == {"groups", "partition"}
    assert "timings" not in ok(*SHOP, "--json").json
    assert "--json only" in ok(*SHOP, "--timings").err


def test_the_solver_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    solver = SolverInfo(name="Solver", version="1.2", status="stopped early")
    use_method(monkeypatch, "milp", start_plan(StoppedBy.NODES, solver=solver, counts={"nodes": 7}))
    words_ = ("snapshot", "--trace", write(folder / "t.csv", ALONE), "--method", "milp")
    found = ok(*words_, "--json", "--seed", "5").json["snapshot"]
    assert found["solver"] == {"name": "Solver", "version": "1.2", "status": "stopped early"}
    assert (found["counts"], found["seed"], found["stopped_by"]) == ({"nodes": 7}, 5, "nodes")


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    outcomes = []
    for seed in ("0", "1"):
        here = tmp_path / seed
        here.mkdir()
        options = ("--trace", GANG, "--json", "--out", "o", "--no-html", "--gantt", "g.svg")
        got = run("snapshot", *options, cwd=here, PYTHONHASHSEED=seed, TZ=f"UTC{seed}")
        assert got.code == 0, got.err
        outcomes.append((got.out, (here / "o/plan.json").read_bytes(),
                         (here / "g.svg").read_bytes()))  # fmt: skip
        assert names(here) == ["g.svg", "o"]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_stdout_is_pure(method: str, tmp_path: Path) -> None:
    """Solvers print banners on file descriptor 1; a process of its own shows it."""
    got = run(*SHOP, "--method", method, "--json", cwd=tmp_path)
    assert got.code == 0, got.err
    assert got.json["snapshot"]["method"] == method.replace("auto", "exhaustive")
    assert got.out.startswith("{\n")
    assert got.err == ""


@pytest.mark.parametrize("method", METHODS)
def test_every_method_proves_the_same_cost(method: str) -> None:
    """Three jobs of which loads say one node of each kind and precedence says no: 71.84 or
    99.28 $/h with a second node of one kind, so a second rollout node.
    """
    found = ok("snapshot", "--trace", SYNC_GAP, "--method", method, "--json").json["snapshot"]
    assert (found["method"], found["termination"]) == (method, "optimal")
    assert found["usd_per_hour"] == pytest.approx(2 * ROLLOUT_USD + TRAIN_USD)
    text = ok("snapshot", "--trace", SYNC_GAP, "--method", method).out
    assert f"costs less ({method}" in words(text)


# --- words ----------------------------------------------------------------------------------------


def test_the_answer_says_what_is_proven() -> None:
    text = words(ok(*SHOP).out)
    assert "tiny-open-shop.csv: 2 of 2 jobs present at 0.00 h (peak), method exhaustive" in text
    assert "1 H20 node (8 GPUs) and 1 H800 node (8 GPUs) in 1 group cost $57.04/h." in text
    scope = "with groups of at most 5 jobs and one iteration a period"
    assert f"Proven least: no valid plan {scope} costs less (exhaustive)." in text
    assert "Each job on nodes of its own costs $114.08/h: sharing saves 50.0% (2.00 x)." in text
    assert "The placer, in order of arrival, pays $57.04/h for the same jobs (1.00 x)." in text


def test_a_limit_is_told_with_its_bound(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Three jobs alone cost 3 x 57.04 = 171.12; volume: 1.8 and 1.5015 nodes, so 114.08."""
    use_method(monkeypatch, "milp", start_plan(StoppedBy.TIME))
    trace = write(folder / "t.csv", ALONE)
    text = words(ok("snapshot", "--trace", trace, "--method", "milp", "--time-limit", "5s").out)
    assert "Stopped by the time limit: not proven to be the least." in text
    assert (
        "Proven: no valid plan with groups of at most 5 jobs and one iteration a period costs less "
        "than $114.08/h (volume "
        "bound), so this one costs at most 1.500 x the least." in text
    )
    assert "Each job on nodes of its own costs $171.12/h: as much." in text


def test_a_ratio_is_not_rounded_down_to_what_is_not_proven(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """171.12 / 171.0 = 1.0007: not proven to be the least, so not 1.000."""

    def solve(snapshot: Snapshot, options: SolveOptions) -> Result:
        groups = groups_of(snapshot, options.warm_start)  # type: ignore[arg-type]
        return result_of(
            snapshot, options, "milp", groups=groups, bound_usd=171.0, stopped_by=StoppedBy.WORK
        )

    use_method(monkeypatch, "milp", solve)
    trace = write(folder / "t.csv", ALONE)
    text = words(ok("snapshot", "--trace", trace, "--method", "milp").out)
    assert "less than $171.00/h (milp), so this one costs at most 1.001 x the least" in text


def test_a_failed_solver_is_told(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    solver = SolverInfo(name="Solver", version="1.2", status="broke down")
    use_method(monkeypatch, "milp", start_plan(StoppedBy.TIME, failed=True, solver=solver))
    trace = write(folder / "t.csv", ALONE)
    text = words(ok("snapshot", "--trace", trace, "--method", "milp").out)
    assert "The solver failed (broke down); what is held was checked all the same." in text


@pytest.mark.parametrize(
    ("limits", "caps", "said"),
    [
        (Limits(), FleetCaps(), "with groups of at most 5 jobs and one iteration a period"),
        (
            Limits(max_group_size=0, max_rate=4),
            FleetCaps(),
            "with groups of any size and up to 4 iterations a period",
        ),
        (
            Limits(max_group_size=1, max_rollout_nodes=2, max_train_nodes=1),
            FleetCaps(),
            "with groups of at most 1 job, 2 rollout nodes and 1 train node and "
            "one iteration a period",
        ),
        (
            Limits(max_group_size=0),
            FleetCaps(max_train_nodes_total=3),
            "with groups of any size and one iteration a period, within the fleet caps,",
        ),
    ],
)
def test_a_bound_says_which_plans_it_is_for(limits: Limits, caps: FleetCaps, said: str) -> None:
    assert scope_words(limits, caps) == said


def test_too_many_groups_are_a_warning(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def refuses(snapshot: Snapshot, options: SolveOptions) -> Result:
        raise UnsupportedError("Expected at most 9 candidate groups.")

    for name in ("exhaustive", "set-partition"):
        use_method(monkeypatch, name, refuses)
    trace = write(folder / "t.csv", ALONE)
    got = ok("snapshot", "--trace", trace, "-q")
    assert "warning: too large for an exact method" in got.err
    assert "Expected at most 9 candidate groups." in got.err
    assert "method local-search (auto)" in words(got.out)
    assert "(pool-decomposition bound)" in words(got.out)
    explicit = invoke("snapshot", "--trace", trace, "--method", "set-partition")
    refused(explicit, "Expected at most 9 candidate groups.")


def test_busy_links_are_a_warning(folder: Path) -> None:
    """1,000 GB a period of 100 s are 80 Gb/s: four times one link."""
    one = MIXED.splitlines()[1].replace(",0,0,1,1,sync", ",1000,0,1,1,sync")
    trace = write(folder / "t.csv", HEAD + one + "\n")
    got = ok("snapshot", "--trace", trace)
    assert "warning: sync traffic is 400 % of 1 links" in got.err
    assert "Sync uses 400% of 1 link of 20 Gb/s" in words(got.out)
    assert ok("snapshot", "--trace", trace, "--json").json["snapshot"]["link_utilisation"] == 4


def test_estimates_are_a_warning_and_strict_refuses(folder: Path) -> None:
    trace = write(folder / "t.csv", ESTIMATED)
    got = ok("snapshot", "--trace", trace)
    assert "warning: estimated, not measured" in got.err
    assert "Estimated, not measured: rollout_state_gb" in words(got.out)
    refused(invoke("snapshot", "--trace", trace, "--strict"), "estimated cells")


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("trace", ["tiny", "long", "production"])
def test_tables_fit_the_terminal(
    columns: int, trace: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    path, hours = {"tiny": (GANG, 0), "production": (PRODUCTION, 20), "long": ("t.csv", 0)}[trace]
    if trace == "long":  # ids of 40 letters, some of them mark-up
        text = MIXED.replace("a,0", "a-job-with-quite-a-long-name-and-[/b]-in,0")
        write(folder / "t.csv", text)
    text = ok("snapshot", "--trace", path, "--at-hours", str(hours)).out
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    for word in ("group", "pins", "nodes", "period", "tightest", "slack", "busy"):
        assert word in text
    if trace == "long" and columns == 160:  # at 80 it is folded
        assert "a-job-with-quite-a-long-name-and-[/b]-in" in text


def test_the_table_says_what_the_json_says(folder: Path) -> None:
    options = ("--trace", PRODUCTION, "--at-hours", "20")
    found = ok("snapshot", *options, "--json").json["snapshot"]
    text = ok("snapshot", *options).out
    assert f"${found['usd_per_hour']:,.2f}/h" in words(text)
    for group in found["groups"]:
        line = next(line for line in text.splitlines() if f" {group['group_id']} " in line)
        nodes = group["nodes"]
        assert group["jobs"][0] in line
        assert f"{nodes['rollout']}+{nodes['train']}" in line
        assert f"{group['period_s']:,.1f}" in line
        assert f"{100 * group['tightest']['slack']:.1f}%" in line
        busy = group["utilisation"]
        assert f"{100 * busy['rollout']:.0f}/{100 * busy['train']:.0f}%" in line
        for job_id in group["jobs"]:
            assert job_id in text


def test_pins_are_shown_as_ranges(folder: Path) -> None:
    rows = [line.split() for line in ok("snapshot", "--trace", GANG).out.splitlines()]
    pins = {row[-1] if len(row) == 2 else row[2] for row in rows if any("gang-" in w for w in row)}
    assert pins == {"0-2|0", "0-1|0"}


# --- files ----------------------------------------------------------------------------------------


def test_out_writes_the_plan_and_check_accepts_it(folder: Path) -> None:
    got = ok("snapshot", "--trace", GANG, "--out", "o", "--no-html")
    assert "Wrote plan.json to o." in got.err
    assert names(folder / "o") == ["plan.json"]
    assert ok("check", folder / "o" / "plan.json").code == 0


def test_existing_files_are_refused_before_the_work(folder: Path) -> None:
    (folder / "o").mkdir()
    write(folder / "o" / "plan.json", "mine")
    write(folder / "g.svg", "mine")
    for options, said in (
        (("--out", "o", "--no-html"), "o already holds plan.json"),
        (("--gantt", "g.svg"), "g.svg is already there"),
        (("--gantt", "o"), "to end in .svg, .png, .pdf"),
        (("--gantt", "no/g.svg"), "of --gantt to exist"),
        (("--gantt", "g.jpg"), "to end in .svg, .png, .pdf"),
        (("--gantt-group", "g1"), "Expected --gantt with --gantt-group g1"),
        (("--gantt", "h.svg", "--gantt-group", "first"), "--gantt-group such as g1, got 'first'"),
    ):
        got = invoke("snapshot", "--trace", "absent.csv", *options)
        refused(got, said)
        assert "absent.csv" not in got.err
    assert names(folder) == ["g.svg", "o"]
    assert (folder / "g.svg").read_text() == (folder / "o" / "plan.json").read_text() == "mine"


def test_force_replaces_files(folder: Path) -> None:
    (folder / "o").mkdir()
    write(folder / "o" / "plan.json", "mine")
    write(folder / "g.svg", "mine")
    got = ok(*SHOP, "--out", "o", "--no-html", "--gantt", "g.svg", "--force")
    assert "Drew group g1 to g.svg." in got.err
    assert (folder / "g.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert names(folder) == ["g.svg", "o"]
    assert read_plan(folder / "o" / "plan.json").policy == "exhaustive"


def test_a_group_that_is_not_there_costs_no_answer(folder: Path) -> None:
    got = invoke(*SHOP, "--gantt", "g.png", "--gantt-group", "g7")
    assert got.code == 2
    assert "a group of the plan (g1), got 'g7'" in got.err
    assert "cost $57.04/h" in got.out
    assert names(folder) == []


def test_a_folder_is_no_picture(folder: Path) -> None:
    (folder / "g.svg").mkdir()
    refused(invoke(*SHOP, "--gantt", "g.svg", "--force"), "g.svg is a folder")


def test_nothing_but_async_jobs_has_no_picture(folder: Path) -> None:
    trace = write(folder / "t.csv", HEAD + MIXED.splitlines()[-1] + "\n")
    got = ok("snapshot", "--trace", trace, "--gantt", "g.svg")
    assert "no group is held, so g.svg was not drawn" in got.err
    assert "3 H20" not in got.out
    assert names(folder) == ["t.csv"]


# --- exit codes -----------------------------------------------------------------------------------


def test_no_plan_is_1_in_words(folder: Path) -> None:
    """One train node for a job, none allowed."""
    options = (*SHOP, "--max-train-nodes-total", "0")
    got = invoke(*options, "--out", "o", "--no-html", "--gantt", "g.svg")
    assert got.code == 1
    text = words(got.out)
    scope = "with groups of at most 5 jobs and one iteration a period, within the fleet caps,"
    assert f"Proven: no valid plan {scope} exists" in text
    assert "--max-train-nodes-total" in text
    assert "from 0 to 1" in text  # what cures it
    assert "no plan is held, so nothing was written to o" in got.err
    assert names(folder) == []
    document = invoke(*options, "--json")
    assert document.code == 1
    found = document.json["snapshot"]
    assert found["termination"] == "infeasible"
    assert (found["plan"], found["checked"], found["groups"]) == (None, None, [])
    assert (found["usd_per_hour"], found["ratio"], found["nodes"]) == (None, None, None)
    assert found["conflict"]["rule"] == "max_train_nodes_total"
    message = found["conflict"]["message"].replace(
        "max_train_nodes_total", "--max-train-nodes-total"
    )
    assert message in got.out.replace("\n", " ").replace("  ", " ")


def test_none_found_is_1(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def nothing(snapshot: Snapshot, options: SolveOptions) -> Result:
        return result_of(
            snapshot, options, "milp", groups=None, bound_usd=None, stopped_by=StoppedBy.TIME
        )

    use_method(monkeypatch, "milp", nothing)
    got = invoke(*SHOP, "--method", "milp", "--out", "o", "--no-html")
    assert got.code == 1
    text = words(got.out)
    assert "No plan is held: none was found before the method stopped." in text
    assert "Stopped by the time limit" in text
    assert "costs less than $57.04/h (volume bound)." in text
    assert names(folder) == []


def test_ctrl_c_prints_what_is_held_and_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    use_method(monkeypatch, "milp", start_plan(StoppedBy.INTERRUPT))
    trace = write(folder / "t.csv", ALONE)
    options = ("snapshot", "--trace", trace, "--method", "milp", "--out", "o", "--no-html")
    got = invoke(*options)
    assert got.code == 130
    assert "Stopped by Ctrl-C: not proven to be the least." in words(got.out)
    assert "cost $171.12/h" in got.out
    assert check_plan(read_plan(folder / "o" / "plan.json")).ok
    document = invoke(*options, "--json", "--force")
    assert (document.code, document.json["snapshot"]["stopped_by"]) == (130, "interrupt")


REFUSED: dict[str, tuple[tuple[str | Path, ...], tuple[str, ...]]] = {
    "no trace": (("snapshot",), ("--trace",)),
    "no file": (("snapshot", "--trace", "absent.csv"), ("absent.csv", "No such file")),
    "method": ((*SHOP, "--method", "exhaustiv"), ("Did you mean 'exhaustive'?", "auto, ")),
    "two moments": ((*SHOP, "--peak", "--all-jobs"), ("got --peak, --all-jobs",)),
    "three": ((*SHOP, "--peak", "--at-hours", "1", "--all-jobs"), ("--at-hours, --all-jobs.",)),
    "nobody": ((*SHOP, "--at-hours", "60"), ("present at 60 h, got none", "until 50 h")),
    "nan": ((*SHOP, "--at-hours", "nan"), ("finite number of --at-hours",)),
    "time": ((*SHOP, "--time-limit", "soon"), ("--time-limit", "90s", "'soon'")),
    "no time": ((*SHOP, "--time-limit", "-5"), ("--time-limit", "'-5'")),
    "seed": ((*SHOP, "--seed", "-1"), ("--seed",)),
    "large seed": ((*SHOP, "--seed", str(2**31)), ("seed < 2^31",)),
    "cap": ((*SHOP, "--max-train-nodes-total", "-1"), ("--max-train-nodes-total",)),
    "cluster": ((*SHOP, "--cluster", "absent.toml"), ("absent.toml",)),
}


@pytest.mark.parametrize(("arguments", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_is_2_and_says_why(
    arguments: tuple[str | Path, ...], parts: tuple[str, ...], folder: Path
) -> None:
    refused(invoke(*arguments), *parts)
    assert names(folder) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5h", 5400), ("5m", 300), ("5 min", 300), ("0", 0),
     ("250ms", 0.25), (" 7s ", 7), (".5m", 30), ("2d", 172800)],
)  # fmt: skip
def test_times_have_units(text: str, seconds: float) -> None:
    assert seconds_of(text, "--time-limit") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5w", "1e3", "inf", "nan", "5m3", "٣s", "1" * 400])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--t a time such as 90, 90s, 5m or 1\.5h, got"):
        seconds_of(text, "--t")


def test_no_time_at_all_still_prints_a_plan(folder: Path) -> None:
    trace = write(folder / "t.csv", ALONE)
    found = ok("snapshot", "--trace", trace, "--time-limit", "0", "--json").json["snapshot"]
    assert (found["stopped_by"], found["checked"]) == ("time", True)
    assert found["bound_usd_per_hour"] <= found["usd_per_hour"]


# --- a process ------------------------------------------------------------------------------------

#: A method that says when it has begun, then waits for Ctrl-C.
WAITING = """
import sys, time
from types import SimpleNamespace
from models.exact.methods import METHODS

def solve(snapshot, options):
    sys.stderr.write("begun\\n")
    sys.stderr.flush()
    time.sleep(60)

METHODS["exhaustive"] = "waiting"
sys.modules["waiting"] = SimpleNamespace(solve=solve)
sys.argv = ["planner", *sys.argv[1:]]
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from planner.cli.main import main
main()
"""


def test_a_real_ctrl_c_prints_the_plan_held(tmp_path: Path) -> None:
    import signal
    import subprocess

    from command_line import environment

    trace = write(tmp_path / "t.csv", ALONE)
    python = command()[0]
    process = subprocess.Popen(
        [
            python,
            "-c",
            WAITING,
            "snapshot",
            "--trace",
            str(trace),
            "--out",
            "o",
            "--no-html",
            "--json",
        ],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(Path(__file__).parents[3])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "warning: Ctrl-C" in err
    assert re.search(r'"stopped_by": "interrupt"', out)
    assert check_plan(read_plan(tmp_path / "o" / "plan.json")).ok


@pytest.mark.parametrize(("jobs", "rows"), [(40, 40), (41, 10)])
def test_of_very_many_groups_few_are_printed(
    jobs: int, rows: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Each job alone is a group of its own, with one row."""
    use_method(monkeypatch, "set-partition", start_plan(StoppedBy.TIME))
    text = HEAD + "".join(f"j{i},0,9000,1,60,40,1001,1001,0,0,0,0,1,1,sync\n" for i in range(jobs))
    got = ok("snapshot", "--trace", write(folder / "t.csv", text), "-q").out
    assert len(re.findall(r"^ g\d+ +j\d+ ", got, flags=re.MULTILINE)) == rows
    assert ("The 10 groups with the least slack of 41" in words(got)) == (rows == 10)
