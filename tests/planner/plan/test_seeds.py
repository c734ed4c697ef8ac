"""Seeds of policies that draw: one replay each, means over them, in every output."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from builders import job_of, options_of, trace_of
from command_line import GANG, Outcome, invoke, ok, refused
from instances.checker import check_plan
from instances.errors import InputError
from instances.generate import production
from instances.plan_file import plan_to_dict, read_plan
from instances.trace import Trace, write_trace
from planner.plan import planning
from planner.plan.document import plan_document, policy_document
from planner.plan.planning import PlanReport, plan_trace
from planner.replay.replaying import Convention, ReplayResult, replay

CONVENTIONS: tuple[Convention, ...] = ("work", "wallclock")
SEEDS = (3, 5, 8)
BASELINES = ("random", "most-idle", "solo")
#: 97.5 % point of Student's t at two degrees of freedom.
T_TWO = 4.30265

TRACE = Trace(name="hand.csv", sha256="0" * 64, jobs=production(n_jobs=25, seed=1))
#: Two jobs that a pair holds: random shares it or not, with chance 1/2.
PAIR = trace_of(job_of("a", 10, 10, duration_s=1000), job_of("b", 10, 10, duration_s=1000))


@pytest.fixture(scope="module")
def report() -> PlanReport:
    """Weave beside all baselines that share, three seeds."""
    return plan_trace(TRACE, baselines=BASELINES, seeds=SEEDS)


def usd(result: ReplayResult) -> float:
    return result.usd_total


def half(values: list[float]) -> float:
    """Half of the 95 % interval of three values."""
    return T_TWO * statistics.stdev(values) / math.sqrt(3)


# --- plan_trace ---------------------------------------------------------------------------------


def test_one_replica_per_seed_of_what_draws(report: PlanReport) -> None:
    assert report.seeds == SEEDS
    for convention in CONVENTIONS:
        assert set(report.replicas[convention]) == {"random"}
        runs = report.runs("random", convention)
        assert len(runs) == 3
        assert report.result("random", convention) is runs[0]
        for seed, run in zip(SEEDS, runs, strict=True):
            want = replay(TRACE.jobs, "random", options_of(seed=seed), convention=convention)
            assert policy_document(run) == policy_document(want)
        assert len({run.usd_total for run in runs}) > 1
        for name in ("weave", "most-idle", "solo"):
            assert report.runs(name, convention) == (report.result(name, convention),)


def test_what_does_not_draw_is_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[tuple[str, str, int]] = Counter()

    def counted(jobs: Any, name: str, options: Any, **more: Any) -> ReplayResult:
        calls[more["convention"], name, options.seed] += 1
        return replay(jobs, name, options, **more)

    monkeypatch.setattr(planning, "replay", counted)
    plan_trace(PAIR, baselines=BASELINES, seeds=SEEDS)
    drawn = {(c, "random", seed) for c in CONVENTIONS for seed in SEEDS}
    once = {(c, n, SEEDS[0]) for c in CONVENTIONS for n in ("weave", "most-idle", "solo")}
    assert calls == dict.fromkeys(drawn | once, 1)


def test_means_are_over_seeds(report: PlanReport) -> None:
    for convention in CONVENTIONS:
        values = [run.usd_total for run in report.runs("random", convention)]
        got = report.mean("random", convention, usd)
        assert got.n == 3
        assert got.mean == pytest.approx(statistics.fmean(values))
        assert got.low == pytest.approx(got.mean - half(values))
        assert got.high == pytest.approx(got.mean + half(values))
        alone = report.mean("solo", convention, usd)
        assert (alone.mean, alone.low, alone.high, alone.n) == (
            report.result("solo", convention).usd_total, None, None, 1,
        )  # fmt: skip


def test_savings_are_ratios_of_means(report: PlanReport) -> None:
    for convention in CONVENTIONS:
        mean = statistics.fmean(run.usd_total for run in report.runs("random", convention))
        weave, solo = (report.result(n, convention).usd_total for n in ("weave", "solo"))
        assert report.saving("random", convention) == pytest.approx(mean / weave)
        assert report.saving("solo", convention, "random") == pytest.approx(solo / mean)
        assert report.saving("random", convention, "random") == 1


def test_a_share_of_one_half_by_hand() -> None:
    """Each of 200 seeds holds one pair or two for 1,000 s, most-idle one.

    The ratio of means is 1.5, with a standard error of 0.5 / sqrt(200) = 0.035.
    """
    report = plan_trace(PAIR, policy="most-idle", baselines=["random"], seeds=range(200))
    saving = report.saving("random", "wallclock")
    assert saving is not None
    assert abs(saving - 1.5) < 5 * 0.5 / math.sqrt(200)
    pairs = {
        round(usd(r) / usd(report.result("most-idle")), 9) for r in report.runs("random", "work")
    }
    assert pairs == {1.0, 2.0}


def test_the_plan_kept_is_that_of_the_first_seed() -> None:
    report = plan_trace(TRACE, policy="random", durations="wallclock", seeds=SEEDS)
    kept = [
        (c, seed)
        for c in CONVENTIONS
        for seed, run in zip(SEEDS, report.runs("random", c), strict=True)
        if run.plan is not None
    ]
    assert kept == [("wallclock", SEEDS[0])]
    want = replay(TRACE.jobs, "random", options_of(seed=SEEDS[0]), convention="wallclock")
    plan = report.result("random").plan
    assert plan is not None
    assert want.plan is not None
    assert plan_to_dict(plan) == plan_to_dict(want.plan)


def test_seeds_only_matter_to_what_draws(report: PlanReport) -> None:
    other = plan_trace(TRACE, baselines=BASELINES, seeds=(1, 2))
    for convention in CONVENTIONS:
        for name in ("weave", "most-idle", "solo"):
            old, new = (policy_document(r.result(name, convention)) for r in (report, other))
            assert old == new


def test_the_default_is_one_seed() -> None:
    report = plan_trace(PAIR, baselines=["random"])
    assert report.seeds == (0,)
    assert [len(report.runs("random", c)) for c in CONVENTIONS] == [1, 1]
    assert report.mean("random", "work", usd).low is None


def test_no_seed_is_refused() -> None:
    with pytest.raises(InputError, match=r"distinct seeds >= 0, at least one, got \[\]"):
        plan_trace(PAIR, baselines=["random"], seeds=())


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((-1,), id="negative, a ValueError of numpy"),
        pytest.param((4, 4), id="the same twice, an interval without width"),
    ],
)
def test_seeds_that_mean_nothing_are_refused(seeds: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="seed"):
        plan_trace(PAIR, baselines=["random"], seeds=seeds)


# --- JSON ---------------------------------------------------------------------------------------

FIGURES = ("usd_per_hour_mean", "usd_total", "slo_attainment", "slo_attainment_worst_period")


def test_over_seeds_of_what_draws_alone(report: PlanReport) -> None:
    document = json.loads(json.dumps(plan_document(report), allow_nan=False))
    assert document["inputs"]["seed"] == list(SEEDS)
    for convention in CONVENTIONS:
        policies = document["conventions"][convention]["policies"]
        assert {name for name, got in policies.items() if "over_seeds" in got} == {"random"}
        over = policies["random"].pop("over_seeds")
        assert tuple(over) == ("seeds", *FIGURES)
        assert over["seeds"] == list(SEEDS)
        runs = report.runs("random", convention)
        for figure in FIGURES:
            values = [getattr(run, figure) for run in runs]
            want = {"mean": statistics.fmean(values), "n": 3}
            want |= {"low": want["mean"] - half(values), "high": want["mean"] + half(values)}
            assert over[figure] == pytest.approx(want), figure
        # The rest is the first seed's replay.
        assert policies["random"] == json.loads(json.dumps(policy_document(runs[0])))
        savings = document["conventions"][convention]["savings"]
        assert savings["random"] == report.saving("random", convention)


def test_a_single_seed_has_no_interval() -> None:
    document = plan_document(plan_trace(PAIR, baselines=["random"], seeds=(9,)))
    assert document["inputs"]["seed"] == [9]
    over = document["conventions"]["work"]["policies"]["random"]["over_seeds"]
    for figure in FIGURES:
        assert (over[figure]["low"], over[figure]["high"], over[figure]["n"]) == (None, None, 1)


def test_no_seed_where_nothing_draws() -> None:
    document = plan_document(plan_trace(PAIR, baselines=["most-idle"], seeds=SEEDS))
    assert document["inputs"]["seed"] is None
    assert "over_seeds" not in json.dumps(document)


# --- The command --------------------------------------------------------------------------------


@pytest.fixture
def trace(folder: Path) -> Path:
    write_trace(TRACE.jobs, folder / "t.csv")
    return folder / "t.csv"


SHORT = ("--baselines", "random,most-idle")


def test_seeds_are_counted_from_the_first(trace: Path) -> None:
    got = ok("plan", "--trace", trace, *SHORT, "--seed", "3", "--seeds", "4", "--json").json
    assert got["inputs"]["seed"] == [3, 4, 5, 6]
    random = got["conventions"]["work"]["policies"]["random"]
    assert random["over_seeds"]["seeds"] == [3, 4, 5, 6]
    assert random["over_seeds"]["usd_total"]["n"] == 4


def test_five_seeds_from_zero_unless_told(trace: Path) -> None:
    got = ok("plan", "--trace", trace, *SHORT, "--json")
    assert got.json["inputs"]["seed"] == [0, 1, 2, 3, 4]
    assert got == ok("plan", "--trace", trace, *SHORT, "--seed", "0", "--seeds", "5", "--json")
    assert got != ok("plan", "--trace", trace, *SHORT, "--seed", "1", "--json")


def test_breaches_are_counted_by_rule(trace: Path) -> None:
    policies = ok("plan", "--trace", trace, *SHORT, "--json").json["conventions"]
    for convention in CONVENTIONS:
        for name in ("random", "most-idle"):
            got = policies[convention]["policies"][name]
            assert got["checked"] is False
            assert set(got["breaches"]) == {"slo"}
            assert got["breaches"]["slo"] > 0
            assert 0 < got["slo_attainment"] < 1
            assert got["ratio" if convention == "wallclock" else "trajectory_ratio"] is None


@pytest.mark.parametrize(
    "option",
    [("--seeds", "0"), ("--seeds", "-1"), ("--seed", "-1"), ("--seed", "x"), ("--seeds", "1.5")],
    ids=" ".join,
)
def test_seeds_that_are_none_are_refused(option: tuple[str, str], folder: Path) -> None:
    refused(invoke("plan", "--trace", GANG, *SHORT, *option), option[0])


@pytest.mark.parametrize("policy", ["random", "most-idle"])
def test_a_written_plan_breaks_slos_and_nothing_else(policy: str, trace: Path) -> None:
    """``planner check`` says so: exit 1, one rule, the price re-derived."""
    ok(
        "plan",
        "--trace",
        trace,
        "--policy",
        policy,
        "--out",
        "o",
        "--no-html",
        "--seeds",
        "2",
        "--seed",
        "1",
    )
    plan = read_plan("o/plan.json")
    assert (plan.policy, plan.pins_fixed) == (policy, True)
    got = invoke("check", "o/plan.json", "--json")
    assert got.code == 1
    assert set(got.json["breaches"]) == {"slo"} == set(check_plan(plan).counts)
    assert got.json["usd_total"] == pytest.approx(got.json["usd_total_recomputed"])


# --- The table ----------------------------------------------------------------------------------


def rows(out: str, policy: str) -> list[list[str]]:
    """Return the cells of a policy's row in both tables."""
    return [line.split() for line in out.splitlines() if line.split()[:1] == [policy]][-2:]


def test_the_row_has_means_and_the_largest_peak(trace: Path) -> None:
    seeds = range(2, 6)
    report = plan_trace(TRACE, baselines=("random", "solo"), seeds=seeds)
    got = ok("plan", "--trace", trace, "--baselines", "random,solo", "--seed", "2", "--seeds", "4")
    for convention, cells in zip(CONVENTIONS, rows(got.out, "random"), strict=True):
        runs = report.runs("random", convention)
        mean = statistics.fmean(run.usd_per_hour_mean for run in runs)
        slo = statistics.fmean(run.slo_attainment for run in runs)
        peaks = [max(8 * run.peak_nodes[pool] for run in runs) for pool in ("rollout", "train")]
        assert cells[1] == f"{mean:,.1f}"
        assert f"{peaks[0]}+{peaks[1]}" in cells
        assert f"{100 * slo:.1f}%" in cells
        assert f"{report.saving('solo', convention, 'random'):.2f}x" in cells
        assert cells[-1] == "-"  # no bound concerns it


def test_the_note_has_the_intervals(trace: Path) -> None:
    got = ok("plan", "--trace", trace, *SHORT, "--seed", "3", "--seeds", "3")
    words = " ".join(got.out.split())
    report = plan_trace(TRACE, baselines=("random",), seeds=range(3, 6))
    parts = []
    for convention in CONVENTIONS:
        runs = report.runs("random", convention)
        cost = [run.usd_per_hour_mean for run in runs]
        slo = [100 * run.slo_attainment for run in runs]
        low, high = (statistics.fmean(slo) + sign * half(slo) for sign in (-1, 1))
        parts.append(
            f"{convention} ${statistics.fmean(cost) - half(cost):,.0f}-"
            f"{statistics.fmean(cost) + half(cost):,.0f}/h, SLO {max(low, 0):.0f}-"
            f"{min(high, 100):.0f}%"
        )
    assert f"random: mean over 3 seeds (largest peak); 95% intervals: {'; '.join(parts)}." in words
    assert "most-idle: mean over" not in words
    assert "Outside the rules of a valid plan, so no bound; breaches:" in words


def test_one_seed_or_no_draw_has_no_note(trace: Path) -> None:
    for options in ((*SHORT, "--seeds", "1"), ("--baselines", "most-idle")):
        assert "seeds" not in ok("plan", "--trace", trace, *options).out


def test_random_alone_has_a_table_too(trace: Path) -> None:
    got = ok("plan", "--trace", trace, "--policy", "random")
    assert len(rows(got.out, "random")) == 2
    assert "Proven" not in got.out  # nothing is, about a policy outside the rules
    assert re.search(r"Admission: \d+% direct, \d+% rollout scaled, \d+% train scaled", got.out)


@pytest.fixture
def growing(folder: Path) -> Outcome:
    """Two jobs under random at 20 seeds: the first seed shares one pair, others hold two."""
    write_trace(PAIR.jobs, folder / "t.csv")
    first = next(
        seed
        for seed in range(100)
        if plan_trace(PAIR, policy="random", seeds=(seed,)).result("random").peak_nodes["train"]
        == 1
    )
    options = ("--policy", "random", "--seed", str(first), "--seeds", "20")
    return ok("plan", "--trace", "t.csv", *options)


def test_the_largest_peak_need_not_be_the_first(growing: Outcome) -> None:
    for cells in rows(growing.out, "random"):
        assert "16+16" in cells


def test_the_sentence_has_the_largest_peak_too(growing: Outcome) -> None:
    want = "at most 2 H20 nodes (16 GPUs) and 2 H800 nodes (16 GPUs)"
    assert want in " ".join(growing.out.split())
