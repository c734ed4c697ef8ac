"""The public API and its JSON document: one report per trace, keys as the design lists them."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import planner
from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of, job_of, trace_of
from instances.catalog import catalog_path
from instances.errors import InputError
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.plan import Limits
from instances.trace import Trace, read_trace, write_trace
from planner.placement.placer import PlacerParams
from planner.plan.document import bound_options, plan_document, policy_document
from planner.plan.planning import PlanReport, plan_trace

# T = 150 s; together the rollout node carries 200 s (see test_replay.py for the arithmetic).
A = job_of("a", 100, 50, 2, duration_s=1500)
B = job_of("b", 100, 50, 2, duration_s=3000)
ASYNC = job_of("async", 100, 50, 1, duration_s=3600, rollout_nodes=2, mode="async")
PAIR = trace_of(A, B)
ALL = ("solo", "colocated")


def loads(document: dict[str, Any]) -> dict[str, Any]:
    """Send a document through strict JSON and back; tuples or NaN would not survive."""
    again: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    assert again == document
    return again


# --- plan_trace --------------------------------------------------------------------------------


def test_one_result_per_convention_and_policy() -> None:
    report = plan_trace(PAIR, baselines=ALL)
    assert (report.policy, report.baselines, report.primary) == ("weave", ALL, "work")
    order = [(convention, policy) for convention, policy, _ in report]
    assert order == list(itertools.product(("work", "wallclock"), ("weave", *ALL)))
    for convention, policy, result in report:
        assert (result.convention, result.policy) == (convention, policy)
        assert result is report.result(policy, convention)
    assert report.result("solo") is report.result("solo", "work")
    assert report.seconds == {}
    assert report.trace is PAIR


@pytest.mark.parametrize("durations", ["work", "wallclock"])
@pytest.mark.parametrize("policy", ["weave", "solo"])
def test_only_the_main_plan_is_kept(durations: Any, policy: str) -> None:
    """Plans are large; nobody asks for the others."""
    report = plan_trace(PAIR, policy=policy, baselines=ALL, durations=durations)
    kept = [(c, p) for c, p, result in report if result.plan is not None]
    assert kept == [(durations, policy)]
    plan = report.result(policy).plan
    assert plan is not None
    assert (plan.policy, plan.durations) == (policy, durations)


def test_figures_do_not_depend_on_which_plan_is_kept() -> None:
    one = plan_trace(PAIR, baselines=ALL)
    other = plan_trace(PAIR, baselines=ALL, durations="wallclock")
    for (*_, a), (*_, b) in zip(one, other, strict=True):
        assert policy_document(a) == policy_document(b)


def test_saving_is_a_ratio_of_totals() -> None:
    """work: one pair for 3500 s against 4500 pair-seconds; wallclock: for 3000 s. Colocated:
    4500 s of a train node.
    """
    report = plan_trace(PAIR, baselines=ALL)
    assert report.saving("solo", "work") == pytest.approx(4500 / 3500)
    assert report.saving("solo", "wallclock") == pytest.approx(1.5)
    colocated = 4500 * TRAIN_USD / PAIR_USD
    assert report.saving("colocated", "work") == pytest.approx(colocated / 3500)
    assert report.saving("solo", "work", "colocated") == pytest.approx(PAIR_USD / TRAIN_USD)
    assert report.saving("weave", "work") == 1


def test_the_open_shop_halves_the_cost() -> None:
    """Two jobs fill one pair without stretching: 2.00 under both conventions."""
    report = plan_trace(read_trace(catalog_path("tiny-open-shop")), baselines=["solo"])
    for convention in ("work", "wallclock"):
        assert report.saving("solo", convention) == pytest.approx(2)


def test_policies_named_twice_run_once() -> None:
    report = plan_trace(PAIR, policy="solo", baselines=["solo", "weave", "weave"])
    assert report.baselines == ("weave",)
    assert list(report.results["work"]) == ["solo", "weave"]
    assert plan_trace(PAIR).baselines == ()


@pytest.mark.parametrize("names", [{"policy": "sol"}, {"baselines": ["weave", "sol"]}])
def test_unknown_policies_are_refused_before_anything_runs(names: dict[str, Any]) -> None:
    seen: list[object] = []
    with pytest.raises(InputError, match="Did you mean 'solo'"):
        plan_trace(PAIR, **names, progress=lambda *a: seen.append(a))
    assert seen == []


def test_unknown_durations_are_refused() -> None:
    with pytest.raises(InputError, match="snapshot"):
        plan_trace(PAIR, durations="snapshot")  # type: ignore[arg-type]


def test_empty_trace_is_refused() -> None:
    with pytest.raises(InputError, match="at least one job"):
        plan_trace(trace_of())


def test_progress_is_labelled_and_complete() -> None:
    seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
    plan_trace(PAIR, baselines=["solo"], progress=lambda label, *a: seen[label].append(a))
    assert list(seen) == ["work/weave", "work/solo", "wallclock/weave", "wallclock/solo"]
    assert all(steps == [(1, 2), (2, 2)] for steps in seen.values())


def test_a_clock_times_replays_and_decisions() -> None:
    ticks = itertools.count()
    report = plan_trace(PAIR, baselines=["solo"], clock=lambda: float(next(ticks)))
    # weave looks at the clock twice per decision, and there are two
    assert report.seconds == {
        "work/weave": 5.0,
        "work/solo": 1.0,
        "wallclock/weave": 5.0,
        "wallclock/solo": 1.0,
    }
    assert report.result("weave").decision_s == (1.0, 1.0)


def test_arguments_reach_the_replay() -> None:
    report = plan_trace(
        PAIR,
        baselines=["colocated"],
        cluster=cluster_of(train_usd=100),
        limits=Limits(max_group_size=1),
        placer=PlacerParams(objective="per-iteration"),
        colocated_factor=2,
        check=False,
    )
    weave, colocated = report.result("weave"), report.result("colocated")
    assert weave.admission == {"direct": 0, "rollout_scaled": 0, "isolated": 2}
    assert weave.usd_total == pytest.approx((ROLLOUT_USD + 100) * 4500 / 3600)
    assert colocated.usd_total == pytest.approx(2 * 100 * 4500 / 3600)
    assert not weave.checked
    assert report.options.placer.objective == "per-iteration"


# --- The package -------------------------------------------------------------------------------


def test_every_public_name_loads() -> None:
    for name in planner.__all__:
        assert getattr(planner, name) is not None
        assert name in dir(planner)
    assert planner.plan_trace is plan_trace
    assert planner.PlanReport is PlanReport
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = planner.nothing


def test_the_public_api_plans_a_file(tmp_path: Path) -> None:
    """Write a trace, read, plan, write and check the plan: names of ``planner`` alone."""
    planner.write_trace(production(n_jobs=20, seed=3), tmp_path / "trace.csv")
    report = planner.plan_trace(planner.read_trace(tmp_path / "trace.csv"), baselines=["solo"])
    plan = report.result("weave").plan
    assert plan is not None
    planner.write_plan_json(plan, tmp_path / "plan.json")
    assert planner.check_plan(planner.read_plan(tmp_path / "plan.json")).ok
    assert report.saving("solo", "wallclock") >= 1


# --- The document ------------------------------------------------------------------------------

#: Keys of the figures of one policy.
DESIGN_KEYS = {
    "usd_per_hour_mean",
    "usd_total",
    "horizon_h",
    "peak_gpus",
    "peak_nodes",
    "slo_attainment",
    "admission",
    "idle_fraction",
    "checked",
    "bound_usd_per_hour_mean",
    "bound_method",
    "bound_options",
    "fleet",
}
ADDED_KEYS = {
    "slo_attainment_worst_period",
    "node_hours",
    "dedicated",
    "links",
    "link_utilisation",
}
BY_CONVENTION = {"wallclock": {"ratio"}, "work": {"trajectory_ratio", "bound_usd_total"}}


@pytest.fixture(scope="module")
def mixed() -> PlanReport:
    """Two sync jobs on one pair and an async one on nodes of its own."""
    return plan_trace(trace_of(A, B, ASYNC), baselines=ALL)


def test_top_level(mixed: PlanReport) -> None:
    document = loads(plan_document(mixed))
    assert list(document) == ["schema_version", "command", "inputs", "conventions"]
    assert (document["schema_version"], document["command"]) == (1, "plan")
    assert set(document["inputs"]) == {
        "trace",
        "sha256",
        "jobs",
        "async_jobs",
        "estimated_columns",
        "seed",
        "coefficients",
        "package_versions",
        "cluster",
        "options",
    }
    inputs = document["inputs"]
    assert (inputs["trace"], inputs["jobs"], inputs["async_jobs"]) == ("hand.csv", 3, 1)
    assert set(document["conventions"]) == {"work", "wallclock"}
    for convention in document["conventions"].values():
        assert list(convention["policies"]) == ["weave", "solo", "colocated"]
        assert list(convention["savings"]) == ["solo", "colocated"]


@pytest.mark.parametrize("convention", ["work", "wallclock"])
@pytest.mark.parametrize("policy", ["weave", "solo", "colocated"])
def test_keys_of_one_policy(mixed: PlanReport, convention: str, policy: str) -> None:
    out = plan_document(mixed)["conventions"][convention]["policies"][policy]
    keys = DESIGN_KEYS | ADDED_KEYS | BY_CONVENTION[convention]
    assert set(out) == (keys | {"breaches"} if policy == "colocated" else keys)
    assert set(out["peak_gpus"]) == {"H20", "H800"}
    assert set(out["peak_nodes"]) == set(out["idle_fraction"]) == {"rollout", "train"}
    assert set(out["fleet"]) == {"peak", "p95"}
    for fleet in out["fleet"].values():
        assert set(fleet) == {"nodes", "gpus", "usd_per_hour"}
        assert set(fleet["nodes"]) == set(fleet["gpus"]) == {"rollout", "train"}


def test_figures_of_the_pair(mixed: PlanReport) -> None:
    """work: sync until 3500 s on one pair, async until 3600 s on 2 + 1 nodes ($71.84/h)."""
    out = plan_document(mixed)["conventions"]["work"]["policies"]["weave"]
    assert out["horizon_h"] == pytest.approx(1)
    assert out["usd_total"] == pytest.approx(PAIR_USD * 3500 / 3600 + 71.84)
    assert out["usd_per_hour_mean"] == pytest.approx(out["usd_total"])
    assert out["peak_nodes"] == {"rollout": 3, "train": 2}
    assert out["peak_gpus"] == {"H20": 24, "H800": 16}
    assert out["fleet"]["peak"] == {
        "nodes": {"rollout": 3, "train": 2},
        "gpus": {"rollout": 24, "train": 16},
        "usd_per_hour": pytest.approx(3 * ROLLOUT_USD + 2 * TRAIN_USD),
    }
    assert out["fleet"]["p95"]["nodes"] == {"rollout": 3, "train": 2}  # for 97 % of the hour
    assert out["admission"] == {"direct": 0.5, "rollout_scaled": 0.0, "isolated": 0.5}
    assert out["dedicated"] == {"jobs": 1, "usd_total": pytest.approx(71.84)}
    assert out["slo_attainment"] == out["slo_attainment_worst_period"] == 1
    assert out["checked"] is True
    assert out["bound_method"] == "volume"
    assert out["bound_options"] == {
        "max_rate": 1,
        "max_group_size": 5,
        "max_rollout_nodes": None,
        "max_train_nodes": None,
    }
    # one of each node is the least at every moment: at the bound along its own trajectory
    assert out["trajectory_ratio"] == pytest.approx(1)


def test_bound_of_the_work(mixed: PlanReport) -> None:
    """30 iterations keep a rollout node busy 100 s and a train node 50 s each; async as held."""
    expected = 30 * (ROLLOUT_USD * 100 + TRAIN_USD * 50) / 3600 + 71.84
    weave = mixed.result("weave", "work")
    assert weave.work_bound_usd_total == pytest.approx(expected)
    assert policy_document(weave)["bound_usd_total"] == pytest.approx(expected)
    assert expected <= weave.usd_total
    # the trace's iterations, not those that a wallclock stay had time for
    assert mixed.result("weave", "wallclock").work_bound_usd_total == pytest.approx(expected)


def test_bound_of_the_work_counts_gangs() -> None:
    """10 iterations of (100, 50) s on 3 + 2 nodes."""
    gang = job_of("g", 100, 50, 2, duration_s=1500, rollout_nodes=3, train_nodes=2)
    report = plan_trace(trace_of(gang))
    expected = 10 * (3 * ROLLOUT_USD * 100 + 2 * TRAIN_USD * 50) / 3600
    assert report.result("weave").work_bound_usd_total == pytest.approx(expected)


@pytest.mark.parametrize("name", ["tiny-open-shop", "tiny-sync-gap", "tiny-gang"])
def test_bounds_never_exceed_costs(name: str) -> None:
    report = plan_trace(read_trace(catalog_path(name)), baselines=["solo"])
    for convention, _, result in report:
        out = policy_document(result)
        if convention == "work":
            assert out["bound_usd_total"] <= out["usd_total"] * (1 + 1e-9)
            assert out["trajectory_ratio"] >= 1 - 1e-12
        else:
            assert out["ratio"] >= 1 - 1e-12
        ratio = out["usd_per_hour_mean"] / out["bound_usd_per_hour_mean"]
        assert ratio == pytest.approx(out.get("ratio", out.get("trajectory_ratio")))


def test_colocated_has_no_ratio_and_says_what_it_breaks(mixed: PlanReport) -> None:
    conventions = plan_document(mixed)["conventions"]
    for convention, keys in BY_CONVENTION.items():
        out = conventions[convention]["policies"]["colocated"]
        assert all(out[key] is None for key in keys)
        assert out["bound_usd_per_hour_mean"] is out["bound_method"] is None
        assert out["bound_options"] is out["admission"] is None
        assert out["checked"] is False
        assert out["breaches"]["gang"] == 2
        assert sum(out["breaches"].values()) >= 2
    for name in ("weave", "solo"):
        assert "breaches" not in conventions["work"]["policies"][name]
    assert conventions["work"]["policies"]["solo"]["admission"] is None


def test_colocated_without_rollout_nodes_has_no_rollout_idle_fraction() -> None:
    """0 / 0 is null, never NaN."""
    report = plan_trace(PAIR, policy="colocated")
    document = loads(plan_document(report))
    out = document["conventions"]["work"]["policies"]["colocated"]
    # the train node runs 150 of every 150 s
    assert out["idle_fraction"] == {"rollout": None, "train": pytest.approx(0, abs=1e-12)}
    assert out["peak_gpus"] == {"H20": 0, "H800": 16}


def test_only_async_jobs_make_a_document() -> None:
    document = loads(plan_document(plan_trace(trace_of(ASYNC), baselines=ALL)))
    out = document["conventions"]["wallclock"]["policies"]["weave"]
    assert out["ratio"] is None  # nobody shares, so nothing is compared with a bound
    assert out["bound_usd_per_hour_mean"] == pytest.approx(out["usd_per_hour_mean"])
    assert out["admission"] == {"direct": 0, "rollout_scaled": 0, "isolated": 0}


def test_jobs_made_in_python_are_planned_as_they_are() -> None:
    """A table without a file: same figures, no hash."""
    report, same = plan_trace(PAIR.jobs), plan_trace(PAIR)
    assert report.result("weave").usd_total == same.result("weave").usd_total
    inputs = loads(plan_document(report))["inputs"]
    assert (inputs["trace"], inputs["sha256"]) == ("jobs", None)


def test_unchecked_is_written_down() -> None:
    out = policy_document(plan_trace(PAIR, check=False).result("weave"))
    assert out["checked"] is False
    assert "breaches" not in out


def test_train_scaling_is_an_admission_only_when_asked() -> None:
    twins = trace_of(*(job_of(i, 100, 200, 1) for i in "ab"))
    report = plan_trace(twins, placer=PlacerParams(train_scaling=True))
    assert policy_document(report.result("weave"))["admission"] == {
        "direct": 0.0,
        "rollout_scaled": 0.0,
        "train_scaled": 0.5,
        "isolated": 0.5,
    }


def test_savings_and_options_are_written_down() -> None:
    report = plan_trace(
        PAIR,
        baselines=["solo"],
        durations="wallclock",
        limits=Limits(max_group_size=3, max_rollout_nodes=7),
        placer=PlacerParams(objective="per-iteration", tie_rule="oldest", skip_saturated=False),
        colocated_factor=1.1,
    )
    document = plan_document(report)
    assert document["conventions"]["work"]["savings"] == {"solo": report.saving("solo", "work")}
    assert document["inputs"]["options"] == {
        "policy": "weave",
        "baselines": ["solo"],
        "durations": "wallclock",
        "max_rate": 1,
        "max_group_size": 3,
        "max_rollout_nodes": 7,
        "max_train_nodes": None,
        "objective": "per-iteration",
        "tie_rule": "oldest",
        "train_scaling": False,
        "skip_saturated": False,
        "max_attempts": 8,
        "colocated_factor": 1.1,
    }
    assert bound_options(report.options.limits)["max_group_size"] == 3


def test_no_timings_unless_asked() -> None:
    ticks = itertools.count()
    report = plan_trace(PAIR, baselines=["solo"], clock=lambda: float(next(ticks)))
    untimed = plan_document(plan_trace(PAIR, baselines=["solo"]))
    assert plan_document(report) == untimed
    assert "timings" not in untimed
    timed = loads(plan_document(report, timings=True))
    assert timed.pop("timings") == {
        "replay_s": report.seconds,
        # one tick per decision
        "decision_ms": {
            f"{convention}/weave": {"p50": 1000.0, "p99": 1000.0, "max": 1000.0}
            for convention in ("work", "wallclock")
        },
    }
    assert timed == untimed


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    write_trace(production(n_jobs=30, seed=2, gangs=True), tmp_path / "trace.csv")

    def run() -> str:
        trace = read_trace(tmp_path / "trace.csv")
        return json.dumps(plan_document(plan_trace(trace, baselines=ALL)), allow_nan=False)

    assert run() == run()


def test_a_renamed_gpu_renames_the_key() -> None:
    """``peak_gpus`` is keyed by the cluster's own GPU names."""
    node = DEFAULT_CLUSTER.train
    cluster = DEFAULT_CLUSTER.replace(rollout=node)
    trace = Trace(name="t", sha256="", jobs=PAIR.jobs)
    out = policy_document(plan_trace(trace, cluster=cluster).result("weave"))
    assert out["peak_gpus"] == {"H800": 16}  # one node of each pool, both H800
