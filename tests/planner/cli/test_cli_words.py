"""What the answer says: to whom a bound applies, what is synthetic, what was left out."""

from __future__ import annotations

import csv
import random
import subprocess
from pathlib import Path

import pytest

from builders import job_of, options_of, table_of
from command_line import GANG, OPEN_SHOP, command, environment, invoke, ok, refused, write
from instances.catalog import catalog_path
from instances.checker import check_plan
from instances.errors import InputError
from instances.jobs import Job
from models.group.period import GroupShape, construct, lower_bound_s
from planner.placement.placer import Placer
from planner.replay.replaying import replay

PRODUCTION = catalog_path("production-200")
MEASURED = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,rollout_state_gb,train_state_gb,rollout_switch_s,train_switch_s,sync_s
a,0,9000,2,100,50,100,100,1,4,42
b,50,9000,2,60,90,100,100,1,4,42
"""


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("1", "no valid plan with groups of at most 1 jobs"),
        ("0", "no valid plan with groups of any size"),
    ],
)
def test_a_bound_says_which_plans_it_is_for(size: str, said: str) -> None:
    """The volume bound counts jobs a node may hold, so it depends on the group limit."""
    got = ok(
        "plan", "--trace", PRODUCTION, "--durations", "wallclock", "--max-group-size", size, "-q"
    )
    assert said in words(got.out)


def test_the_answer_compares_like_with_like() -> None:
    """By work: this plan's cost, the least for the same work, and their ratio."""
    got = ok("plan", "--trace", PRODUCTION, "--baselines", "solo,colocated", "-q")
    figures = ok("plan", "--trace", PRODUCTION, "--json", "-q").json["conventions"]["work"]
    weave = figures["policies"]["weave"]
    ratio = weave["usd_total"] / weave["bound_usd_total"]
    assert f"It costs ${weave['usd_total']:,.0f}" in words(got.out)
    assert f"less than ${weave['bound_usd_total']:,.0f}" in words(got.out)
    assert f"at most {ratio:.2f} x the least" in words(got.out)
    assert "cheaper than solo" in words(got.out)


@pytest.mark.parametrize(
    ("baselines", "said"),
    [
        ("colocated", "colocated assumes iterations 1.2 x as long as alone"),
        ("solo,swapping", "swapping assumes iterations 1.2 x as long as alone"),
        ("swapping,colocated", "colocated and swapping assume iterations 1.2 x as long as alone"),
        ("solo", None),
    ],
)
def test_who_runs_both_phases_on_train_nodes_says_what_is_assumed(
    baselines: str, said: str | None
) -> None:
    got = ok(
        "plan", "--trace", OPEN_SHOP, "--baselines", baselines, "--colocated-factor", "1.2", "-q"
    )
    assert ("--colocated-factor" in got.out) == (said is not None)
    assert said is None or said in words(got.out)


def test_a_loss_is_not_called_a_saving(folder: Path) -> None:
    """Two jobs that cannot share: dearer than on train nodes alone."""
    text = MEASURED.replace(",2,", ",1,")
    got = ok("plan", "--trace", write(folder / "t.csv", text), "--baselines", "colocated")
    assert "35% DEARER than colocated" in words(got.out)  # 57.04 / 42.24 = 1.35


def test_synthetic_traces_are_called_synthetic(folder: Path) -> None:
    said = "Synthetic, drawn and not measured"
    assert said in words(ok("plan", "--trace", PRODUCTION, "-q").out)
    assert said not in words(ok("plan", "--trace", write(folder / "t.csv", MEASURED)).out)


SHORT = """\
job_id,arrival_s,{length},slo,rollout_s,train_s,sync_s,rollout_state_gb,train_state_gb,\
rollout_switch_s,train_switch_s
a,0,{a},2,200,90,18,1,1,0,0
b,5,{b},2,200,90,10,1,1,0,0
"""


@pytest.mark.parametrize("command", ["plan", "gap", "snapshot", "size"])
def test_hours_given_as_seconds_are_warned_of(command: str, folder: Path) -> None:
    """T = 200 + 90 + 18 = 308 s: 24 of something, written in column duration_s, is no iteration."""
    trace = write(folder / "t.csv", SHORT.format(length="duration_s", a=24, b=12))
    more = {"snapshot": ("--all-jobs",), "size": ("--only", "alternatives")}.get(command, ())
    assert (
        "warning: 2 of 2 jobs are shorter than one iteration (a: duration_s 24, one iteration 308 "
        "s, 0.078 iterations): is duration_s in seconds?"
    ) in ok(command, "--trace", trace, "-q", *more).err


def test_less_than_one_iteration_is_warned_of_and_one_is_not(folder: Path) -> None:
    trace = write(folder / "t.csv", SHORT.format(length="iterations", a=1, b=0.5))
    said = ok("plan", "--trace", trace, "-q").err
    assert "1 of 2 jobs is shorter than one iteration (b: duration_s 150, one iteration 300" in said
    whole = write(folder / "w.csv", SHORT.format(length="iterations", a=1, b=1))
    assert "one iteration" not in ok("plan", "--trace", whole, "-q").err


def test_a_measured_sync_needs_no_size(folder: Path) -> None:
    """42 s take 100 GB by the link model (0.42 s a GB): link use is known, and --strict passes."""
    trace = write(folder / "t.csv", MEASURED)
    document = ok("plan", "--trace", trace, "--strict", "--json").json
    use = document["conventions"]["wallclock"]["policies"]["weave"]["link_utilisation"]
    assert 0 < use["mean"] <= use["peak"] < 1


def test_a_model_beyond_the_table_is_warned_of(folder: Path) -> None:
    text = "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b\n"
    trace = write(folder / "t.csv", text + "a,0,9000,2,100,50,400\nb,0,9000,2,100,50,7\n")
    assert "model_b of 1 jobs is outside 3-70" in words(ok("plan", "--trace", trace).err)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("production", ("--kind", "balanced")),
        ("profiles", ("--gangs",)),
        ("profiles", ("--concurrent",)),
        ("tiny-gang", ("--seed", "3")),
        ("tiny-gang", ("--jobs", "3")),
    ],
)
def test_options_that_do_not_apply_are_refused(
    name: str, options: tuple[str, ...], folder: Path
) -> None:
    refused(invoke("generate", name, *options, "--out", "t.csv"), f"{options[0]} does not apply to")
    assert list(folder.iterdir()) == []


def test_check_knows_the_other_document(folder: Path) -> None:
    document = ok("plan", "--trace", OPEN_SHOP, "--json").out
    write(folder / "d.json", document)
    refused(invoke("check", "d.json"), "got the document of 'plan --json'")


def test_breaches_count_versions_that_lasted() -> None:
    """Three arrivals at once: the states in between last no time and are in no plan."""
    jobs = table_of(*(job_of(i, 100, 100, 1.2) for i in "abc"))
    for policy in ("random", "most-idle", "colocated"):
        result = replay(jobs, policy, options_of())
        assert result.plan is not None
        assert result.breaches == check_plan(result.plan).counts
        assert result.breaches or policy == "random"  # which may have drawn three new groups


@pytest.mark.parametrize(
    ("field", "value"),
    [("slo", 0.5), ("rollout_s", -5.0), ("train_s", 0.0), ("rollout_s", float("nan")),
     ("rollout_state_gb", -1.0), ("rollout_nodes", 0), ("sync_s", float("inf"))],
)  # fmt: skip
def test_the_placer_refuses_what_a_trace_refuses(field: str, value: float) -> None:
    numbers: dict[str, float] = {"rollout_s": 200.0, "train_s": 100.0, "slo": 1.5, field: value}
    with pytest.raises(InputError, match=f"Expected {field} >"):
        Placer().place(Job(job_id="a", **numbers))  # type: ignore[arg-type]


def test_columns_of_our_own_importers_are_no_misspellings(folder: Path) -> None:
    log = "job_id,arrival_s,service_sec,gpu_count\na,0,9000,8\nb,100,9000,8\n"
    ok("import", "generic", write(folder / "l.csv", log), "--out", "t.csv", "-q")
    got = ok("plan", "--trace", "t.csv")
    assert "is unknown and only carried along" not in got.err


@pytest.mark.parametrize(
    "words", [("plan", "--trace"), ("check",), ("plan", "--trace", OPEN_SHOP, "--cluster")]
)
def test_a_device_that_never_ends_is_no_input(words: tuple[str | Path, ...], folder: Path) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero on this system")
    (folder / "x.csv").symlink_to("/dev/zero")  # a trace is known by its suffix
    refused(invoke(*words, "x.csv"), "x.csv: Expected a file, got a device.")


def test_out_may_be_a_folder_whose_parent_is_somebody_elses(folder: Path) -> None:
    """A mount point, say: nothing is staged beside it."""
    (folder / "o").mkdir()
    folder.chmod(0o555)
    try:
        ok("plan", "--trace", OPEN_SHOP, "--out", "o", "--no-html")
    finally:
        folder.chmod(0o755)
    assert sorted(p.name for p in (folder / "o").iterdir()) == [
        "jobs.csv",
        "plan.json",
        "timeline.csv",
    ]


def test_a_carriage_return_in_a_column_stays_in_its_cell(folder: Path) -> None:
    text = MEASURED.replace("sync_s\n", "sync_s,note\n").replace(",42\n", ',42,"x\ry"\n')
    (folder / "t.csv").write_text(text, newline="")
    ok("plan", "--trace", "t.csv", "--out", "o", "--no-html")
    with open(folder / "o" / "jobs.csv", newline="", encoding="utf-8") as handle:
        notes = {row["note"] for row in csv.DictReader(handle)}
    assert notes == {"x\ry"}


def test_gpu_names_are_no_markup(folder: Path) -> None:
    cluster = write(folder / "c.toml", '[rollout]\ngpu = "[/a]"\n[train]\ngpu = "[b]"\n')
    got = ok("plan", "--trace", OPEN_SHOP, "--cluster", cluster, "--baselines", "solo")
    assert "[/a]+[b]" in got.out


def test_columns_zero_is_no_width(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert "weave needs at most" in ok("plan", "--trace", OPEN_SHOP).out


def test_closed_streams_cost_neither_answer_nor_exit_code(folder: Path) -> None:
    line = " ".join(f"'{word}'" for word in command("plan", "--trace", PRODUCTION, "--json"))
    bad = " ".join(f"'{word}'" for word in command("plan", "--trace", "absent.csv"))
    for words, code in ((f"{line} 2>&-", 0), (f"{bad} 2>&-", 2), (f"{line} >&-", 0)):
        done = subprocess.run(
            ["sh", "-c", words], cwd=folder, env=environment(), capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, words
        assert b"Traceback" not in done.stderr
        assert bool(done.stdout) == (words == f"{line} 2>&-")


def test_arrivals_counted_from_1970_miss_no_slo() -> None:
    """Moments near 1.7e9 s resolve 2.4e-7 s: short jobs of slo 1 are not missed by it."""
    rng = random.Random(1)
    jobs = table_of(
        *(
            job_of(f"j{i}", 1, 1, 1.0, arrival_s=1.7e9 + i * 37.1, duration_s=rng.uniform(10, 120))
            for i in range(60)
        )
    )
    for policy in ("weave", "solo"):
        assert replay(jobs, policy, options_of()).slo_attainment == 1.0


def test_a_schedule_never_exceeds_its_limit() -> None:
    """Phases that are nothing beside the period may be read in another order: never longer."""
    rng = random.Random(3)
    for _ in range(400):
        n = rng.randint(3, 6)
        sizes = (1e-6, 1e-3, 1.0, 1e3, 1e6)
        p, q = (tuple(rng.choice(sizes) for _ in range(n)) for _ in range(2))
        rollout = tuple((rng.randrange(2),) for _ in range(n))
        train = tuple((rng.randrange(2),) for _ in range(n))
        shape = GroupShape(p, q, (0.0,) * n, rollout, train, (1,) * n)
        limit = rng.choice((1.0, 1.5, 3.0)) * lower_bound_s(shape)
        schedule = construct(shape, limit_s=limit)
        assert schedule is None or schedule.period_s <= limit * (1 + 1e-9)


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "--trace", OPEN_SHOP),
        ("snapshot", "--trace", OPEN_SHOP),
        ("snapshot", "--trace", GANG, "--method", "cpsat", "--json"),
        ("gap", "--trace", OPEN_SHOP, "--processes", "1"),
    ],
    ids=["plan", "snapshot", "cpsat", "gap"],
)
def test_verbose_changes_no_answer(command: tuple[str | Path, ...], folder: Path) -> None:
    usual, quiet, verbose = (ok(*command, *more) for more in ((), ("-q",), ("-v",)))
    assert usual.out == quiet.out == verbose.out
    assert f"read {Path(command[2]).name}" in verbose.err
    assert "ortools" in verbose.err
    assert "ortools" not in usual.err
    if command[0] == "snapshot":
        solver = "cpsat: CP-SAT, " if "cpsat" in command else "exhaustive: our own code."
        assert f"Method {solver}" in verbose.err


def test_the_price_of_a_moment_is_per_hour_and_of_a_replay_in_all(folder: Path) -> None:
    ok("snapshot", "--trace", OPEN_SHOP, "--out", "moment", "--no-html")
    got = words(ok("check", "moment/plan.json").out)
    assert "price re-derived: $57.04/h (claimed $57.04/h)" in got  # a node of each kind
    ok("plan", "--trace", OPEN_SHOP, "--out", "replay", "--no-html")
    assert "/h" not in ok("check", "replay/plan.json").out


def test_limits_in_an_explanation_are_options(folder: Path) -> None:
    got = invoke("snapshot", "--trace", OPEN_SHOP, "--max-train-nodes-total", "0")
    assert got.code == 1
    assert "(--max-train-nodes-total)" in words(got.out)
    assert "Raise --max-train-nodes-total from 0 to 1" in words(got.out)
