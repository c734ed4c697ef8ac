"""``plan --policy repack``: options of moves, JSON, tables, files, words."""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from builders import PAIR_USD, trace_of
from command_line import Outcome, invoke, ok, refused
from gap_cases import short_production
from instances.checker import check_plan
from instances.errors import InputError
from instances.jobs import Job
from instances.plan_file import read_plan
from instances.trace import write_trace
from moving_cases import Scripted, fragments, scripted
from planner.cli.parsing import Command
from planner.cli.repack_options import (
    FreezeOption,
    MoveOptions,
    repack_params,
    with_restarts,
)
from planner.policies.registry import POLICIES
from planner.policies.repack_params import RepackParams

#: c, alone since 1 h, moves to b's group when a leaves at 2 h.
SCRIPT = {"+b": {1: "ab"}, "-a": {1: "bc"}}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Scripted]:
    """Put a scripted policy in repack's place; return those that were made."""
    found: list[Scripted] = []
    monkeypatch.setitem(POLICIES, "repack", scripted(SCRIPT, made=found))
    return found


def file_of(folder: Path, jobs: list[Job] | None = None) -> Path:
    path = folder / "t.csv"
    jobs = fragments() if jobs is None else jobs
    write_trace(trace_of(*jobs).jobs, path, force=True)
    return path


def words(text: str) -> str:
    return " ".join(text.split())


def plan_of(trace: Path, *more: str | Path) -> Outcome:
    return ok("plan", "--trace", trace, "--policy", "repack", *more)


# --- options --------------------------------------------------------------------------------------

GIVEN = {
    "--repack-rule": ("break-even", "rule", "break-even"),
    "--oracle": ("remaining", "oracle", "remaining"),
    "--lasting-hours": ("3.5", "lasting_h", 3.5),
    "--review-hours": ("1", "review_h", 1.0),
    "--moves-per-job": ("0.25", "moves_per_job", 0.25),
    "--max-moves-per-job-day": ("2", "max_moves_per_job_day", 2),
    "--min-gain-usd": ("0.5", "min_gain_usd", 0.5),
    "--overlap-seconds": ("60", "overlap_s", 60.0),
    "--freeze": (" a ,c,", "freeze", frozenset("ac")),
}


@pytest.mark.parametrize("option", GIVEN)
def test_each_option_reaches_the_policy(folder: Path, made: list[Scripted], option: str) -> None:
    text, name, value = GIVEN[option]
    plan_of(file_of(folder), option, text, "--json")
    expected = dataclasses.replace(RepackParams(), **{name: value})  # type: ignore[arg-type]
    assert {policy.options.repack for policy in made} == {expected}


def test_every_parameter_has_its_option() -> None:
    """But for the sizes of exact search."""
    fields = {field.name for field in dataclasses.fields(RepackParams)}
    assert {name for _, name, _ in GIVEN.values()} == fields - {"max_scope", "scopes"}


def test_nothing_given_is_the_default(folder: Path, made: list[Scripted]) -> None:
    plan_of(file_of(folder), "--json")
    assert {policy.options.repack for policy in made} == {RepackParams()}
    assert {policy.options.convention for policy in made} >= {"work", "wallclock"}


def test_restart_seconds_are_in_the_plans_own_table(folder: Path, made: list[Scripted]) -> None:
    trace = file_of(folder)
    document = plan_of(
        trace,
        "--restart-seconds",
        "180",
        "--out",
        "o",
        "--no-html",
        "--json",
        "--durations",
        "wallclock",
    ).json
    plan = read_plan(folder / "o" / "plan.json")
    assert plan.jobs.restart_s.tolist() == [180.0] * 3
    assert [pause.to_s - pause.from_s for pause in plan.pauses] == [180.0]
    assert check_plan(plan).ok
    assert ok("check", folder / "o" / "plan.json").code == 0
    moves = document["conventions"]["wallclock"]["policies"]["repack"]["moves"]
    assert moves["paused_h"] == pytest.approx(0.05)


def test_no_limit_is_null(folder: Path, made: list[Scripted]) -> None:
    options = plan_of(file_of(folder), "--moves-per-job", "inf", "--json").json["inputs"]["options"]
    assert options["repack"]["moves_per_job"] is None
    assert made[-1].options.repack.moves_per_job == float("inf")


def test_no_restart_seconds_are_seconds_too(folder: Path, made: list[Scripted]) -> None:
    document = plan_of(file_of(folder), "--restart-seconds", "0", "--json").json
    moves = document["conventions"]["work"]["policies"]["repack"]["moves"]
    assert (moves["total"], moves["paused_h"]) == (1, 0.0)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--oracle", "none"), ("policy repack", "--oracle", "weave")),
        (("--freeze", "a", "--baselines", "solo"), ("repack with --freeze", "weave, solo")),
        (("--restart-seconds", "9"), ("--restart-seconds",)),
        (("--policy", "repack", "--repack-rule", "residul"), ("'residul'", "'residual'")),
        (("--policy", "repack", "--oracle", "all"), ("--oracle in none, remaining", "'all'")),
        (("--policy", "repack", "--lasting-hours", "0"), ("--lasting-hours > 0",)),
        (("--policy", "repack", "--lasting-hours", "inf"), ("a finite number with --lasting",)),
        (("--policy", "repack", "--review-hours", "0"), ("--review-hours > 0",)),
        (("--policy", "repack", "--review-hours", "1e-9"), (">= 0.01 (36 s), got 1e-09",)),
        (("--policy", "repack", "--restart-seconds", "-1"), ("--restart-seconds >= 0", "-1.0")),
        (("--policy", "repack", "--restart-seconds", "inf"), ("finite", "--restart-seconds")),
        (("--policy", "repack", "--overlap-seconds", "nan"), ("finite", "--overlap-seconds")),
        (("--policy", "repack", "--overlap-seconds", "-1"), ("--overlap-seconds >= 0",)),
        (("--policy", "repack", "--moves-per-job", "nan"), ("--moves-per-job >= 0",)),
        (("--policy", "repack", "--freeze", "b,d,c1"), ("--freeze", "'d'", "'c1' (did you")),
        (
            ("--policy", "repack", "--lasting-hours", "8", "--repack-rule", "residual"),
            ("one of --lasting-hours and --repack-rule",),
        ),
        (
            ("--policy", "repack", "--oracle", "remaining", "--repack-rule", "break-even"),
            ("one of --oracle remaining and --repack-rule",),
        ),
    ],
)
def test_what_is_refused(
    folder: Path, made: list[Scripted], arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    outcome = invoke("plan", "--trace", file_of(folder), *arguments)
    refused(dataclasses.replace(outcome, err=words(outcome.err)), *parts)
    assert made == []


def test_help_tells_the_default_of_the_moves_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that help claims and nobody keeps would be found in the bill."""
    shown = words(ok("plan", "--help").out)
    line = shown[shown.index("--moves-per-job") :].partition("--max-moves")[0]
    assert f"[default: {RepackParams().moves_per_job:g}]" in line


def test_a_baseline_is_enough(folder: Path, made: list[Scripted]) -> None:
    ok("plan", "--trace", file_of(folder), "--baselines", "repack", "--moves-per-job", "1")
    assert made


def test_many_unknown_jobs_are_counted() -> None:
    moves = MoveOptions(freeze=",".join(f"x{i}" for i in range(8)))
    with pytest.raises(InputError, match=r"'x0'.*'x4' and 3 more\."):
        with_restarts(moves, trace_of(*fragments()))


def test_a_trace_is_left_alone_unless_asked() -> None:
    trace = trace_of(*fragments())
    assert with_restarts(MoveOptions(freeze="a"), trace) is trace
    assert repack_params(MoveOptions(), ("weave",)) == RepackParams()


def test_other_optional_columns_stay() -> None:
    trace = trace_of(*fragments())
    sized = dataclasses.replace(
        trace, jobs=trace.jobs.replace(optional={"model_b": [7.0, 7.0, 32.0]})
    )
    changed = with_restarts(MoveOptions(restart_s=5.0), sized)
    assert changed.jobs.optional["model_b"].tolist() == [7, 7, 32]
    assert changed.jobs.restart_s.tolist() == [5, 5, 5]
    assert sized.jobs.restart_s.tolist() == [197, 197, 419]


@pytest.mark.parametrize(("arguments", "plan"), [(("plan",), False), ((), True), (("gap",), False)])
def test_options_of_moves_have_a_heading_of_their_own(
    folder: Path, arguments: tuple[str, ...], plan: bool
) -> None:
    first, _, rest = ok(*arguments, "--help", plan=plan).out.partition("Moves (policy repack):")
    panel, _, _ = rest.partition("\nOutput:")
    for option in (*GIVEN, "--restart-seconds"):
        assert option in panel
        assert option not in first
    assert "--trace" in first
    assert "--help" in first
    assert "--trace" not in panel
    assert max(map(len, panel.splitlines())) <= 80


def test_arguments_keep_their_heading(folder: Path) -> None:
    """Of a command that has all three kinds."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=Command)
    def act(
        what: Annotated[str, typer.Argument(help="Something.")],
        loud: Annotated[bool, typer.Option("--loud")] = False,
        freeze: FreezeOption = None,
    ) -> None:
        """Do it."""

    out = CliRunner().invoke(app, ["--help"]).stdout
    order = ["Arguments:", "Something.", "Options:", "--loud", "Moves (policy", "--freeze"]
    assert [out.index(text) for text in order] == sorted(out.index(text) for text in order)


# --- JSON -----------------------------------------------------------------------------------------


def test_document(folder: Path, made: list[Scripted]) -> None:
    document = plan_of(file_of(folder), "--baselines", "weave,solo", "--json").json
    for convention in ("work", "wallclock"):
        policies = document["conventions"][convention]["policies"]
        # C = T: stays of 2, 4 and 2.1 h either way
        assert policies["repack"]["moves"] == {
            "total": 1,
            "per_job": pytest.approx(1 / 3),
            "jobs_moved": 1,
            "max_per_job": 1,
            "paused_h": pytest.approx(0.1),
            "job_hours": pytest.approx(8.1),
        }
        assert "moves" not in policies["weave"]
        assert policies["repack"]["usd_total"] == pytest.approx(5 * PAIR_USD)
        assert policies["repack"]["checked"]
        assert policies["repack"]["slo_attainment"] == 1.0
    ratio = document["conventions"]["wallclock"]["policies"]["repack"]["ratio"]
    assert ratio == pytest.approx(1.0)  # 5 pair-hours against 1 + 2 + 1 + 1
    assert document["inputs"]["options"]["repack"] == {
        "rule": "residual", "oracle": "none", "lasting_h": None, "review_h": None,
        "moves_per_job": 2.0, "max_moves_per_job_day": None, "min_gain_usd": 0.0,
        "overlap_s": 0.0, "freeze": [], "max_scope": None, "scopes": 4,
        "restarts": {
            "measured": 3, "model_b": 0, "guessed": 0, "least_s": 360.0, "most_s": 360.0,
        },
    }  # fmt: skip


def test_nothing_is_said_of_repack_without_it(folder: Path) -> None:
    got = ok("plan", "--trace", file_of(folder), "--baselines", "solo", "--json")
    assert "repack" not in got.json["inputs"]["options"]
    assert '"moves"' not in got.out
    shown = ok("plan", "--trace", file_of(folder), "--baselines", "solo").out
    assert "move" not in shown
    assert "pause" not in shown


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 160])
def test_moves_in_tables_and_sentences(
    folder: Path, made: list[Scripted], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = plan_of(file_of(folder), "--baselines", "weave,solo,colocated").out
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count(" a job ") == 2  # one table a convention
    rows = [line.split() for line in shown.splitlines() if line.startswith(" ")]
    assert [row[-1] for row in rows if row and row[0] == "repack"] == ["0.33"] * 2
    assert [row[-1] for row in rows if row and row[0] == "weave"] == ["-"] * 2
    assert "…" not in shown
    text = words(shown)
    assert "repack makes 1 move, 0.33 a job: 1 of 3 jobs moved, none more than 1 time." in text
    assert "Jobs are paused for 0.1 of 8.1 job-hours (1.23%)." in text
    assert "A moved job restarts for 360 s (jobs by source: column restart_s 3)" in text


def test_every_baseline_is_in_the_sentence(folder: Path, made: list[Scripted]) -> None:
    """Also those without a column: who moves jobs is held against who does not."""
    shown = words(plan_of(file_of(folder), "--baselines", "weave,solo,colocated").out)
    sentence = shown[shown.index("By work repack is") :].partition(". ")[0]
    assert [name for name in ("weave", "solo", "colocated") if f"than {name}" in sentence] == [
        "weave", "solo", "colocated",
    ]  # fmt: skip


def test_a_baseline_that_breaks_slos_is_said_to(folder: Path) -> None:
    """random looks at DRAM only: three of a group take 60 s, where 1.2 x 40 are allowed."""
    path = folder / "t.csv"
    head = "job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,"
    rows = "".join(f"{name},0,7200,1.2,20,20,0,0,0,0,0\n" for name in "abcdefgh")
    path.write_text(f"{head}rollout_switch_s,train_switch_s,sync_gb\n{rows}", encoding="utf-8")
    shown = words(plan_of(path, "--baselines", "solo,random").out)
    sentence = shown[shown.index("By work repack is") :].partition(". ")[0]
    assert re.search(r"than random \(SLO met: \d", sentence)
    assert "solo (" not in sentence


def test_async_jobs_only_leave_nothing_to_move_or_to_save(folder: Path) -> None:
    path = folder / "t.csv"
    path.write_text(
        "job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,"
        "rollout_switch_s,train_switch_s,sync_gb,mode\na,0,7200,1.2,45,45,0,0,0,0,0,async\n",
        encoding="utf-8",
    )
    shown = words(plan_of(path).out)
    assert "t.csv: 1 job over 2.0 h" in shown
    assert "repack moves nobody: async jobs stay where they are." in shown
    assert "No valid plan costs less: nothing runs but on dedicated nodes." in shown
    assert "- x the least" not in shown


def test_a_check_counts_the_pauses(folder: Path, made: list[Scripted]) -> None:
    plan_of(file_of(folder), "--restart-seconds", "180", "--out", "o", "--no-html")
    shown = words(ok("check", folder / "o" / "plan.json").out)
    assert "3 jobs, " in shown
    assert "group versions, 1 pause of 0.1 h in all, policy repack" in shown  # 180 s


def test_long_names_of_gpus_do_not_cost_figures(folder: Path, made: list[Scripted]) -> None:
    cluster = folder / "c.toml"
    cluster.write_text('[rollout]\ngpu = "H20-of-our-own"\n', encoding="utf-8")
    shown = plan_of(file_of(folder), "--baselines", "solo,colocated", "--cluster", cluster).out
    assert "R+T" in shown
    assert "…" not in shown


def test_moves_of_a_baseline_are_told(folder: Path, made: list[Scripted]) -> None:
    shown = words(ok("plan", "--trace", file_of(folder), "--baselines", "repack").out)
    assert "repack makes 1 move" in shown
    assert "weave makes" not in shown


def test_the_bound_is_said_to_leave_pauses_out(folder: Path, made: list[Scripted]) -> None:
    shown = words(plan_of(file_of(folder), "--durations", "wallclock").out)
    assert "for these stays without pauses (" in shown
    weave = words(ok("plan", "--trace", file_of(folder), "--durations", "wallclock").out)
    assert "for these stays (" in weave


def test_where_restarts_come_from(folder: Path, made: list[Scripted]) -> None:
    """c's is measured, b has a size, a neither: 419 s."""
    path = folder / "t.csv"
    path.write_text(
        "job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,"
        "rollout_switch_s,train_switch_s,sync_gb,model_b,restart_s\n"
        "a,0,7200,1.2,45,45,0,0,0,0,0,,\n"
        "b,0,14400,1.2,45,45,0,0,0,0,0,7,\n"
        "c,3600,7200,1.2,45,45,0,0,0,0,0,,100\n",
        encoding="utf-8",
    )
    shown = words(plan_of(path).out)
    assert (
        "restarts for 100-419 s (jobs by source: column restart_s 1, model_b 1, no size, a guess "
        "1)" in shown
    )


def test_who_moves_nobody_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "repack", scripted({}))
    assert "repack moves none of 3 jobs." in words(plan_of(file_of(folder)).out)


# --- files ----------------------------------------------------------------------------------------


def test_jobs_csv_tells_of_moves(folder: Path, made: list[Scripted]) -> None:
    plan_of(file_of(folder), "--out", "o", "--no-html", "--baselines", "weave")
    with (folder / "o" / "jobs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        moved = row["policy"] == "repack" and row["job_id"] == "c"
        assert (row["moves"], float(row["paused_s"])) == (("1", 360.0) if moved else ("0", 0.0))


# --- the policy itself ----------------------------------------------------------------------------


def test_repack_itself_moves_what_pays(folder: Path) -> None:
    """It is known that b stays to 4 h when a leaves at 2 h: closing up saves a pair for 1 h and
    pauses a job for 0.1 h of a pair. Weave pays 6 pair-hours.
    """
    out = plan_of(
        file_of(folder), "--oracle", "remaining", "--baselines", "weave", "--json",
        "--out", "o", "--no-html",
        "--durations", "wallclock",
    )  # fmt: skip
    policies = out.json["conventions"]["wallclock"]["policies"]
    assert policies["repack"]["moves"]["total"] == 1
    assert policies["weave"]["usd_total"] == pytest.approx(6 * PAIR_USD)
    assert 5 * PAIR_USD <= policies["repack"]["usd_total"] <= 5.1 * PAIR_USD * (1 + 1e-9)
    assert policies["repack"]["checked"]
    assert ok("check", folder / "o" / "plan.json").code == 0


def test_freezing_all_leaves_nothing_to_move(folder: Path) -> None:
    policies = plan_of(file_of(folder), "--freeze", "a,b,c", "--json").json["conventions"]
    for convention in ("work", "wallclock"):
        found = policies[convention]["policies"]["repack"]
        assert found["moves"]["total"] == 0
        assert found["usd_total"] == pytest.approx(6 * PAIR_USD)


def test_equal_inputs_equal_bytes(folder: Path) -> None:
    trace = short_production(folder, 10)
    first, second = (plan_of(trace, "--json").out for _ in range(2))
    assert first == second
