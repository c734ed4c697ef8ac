"""One run of a study as a row: the figures of the replay, and errors that stay in the row."""

from __future__ import annotations

import csv
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import GANG, write
from instances.bootstrap import bootstrap_trace
from instances.cluster_file import cluster_from_dict
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.plan import Fleet, Limits
from instances.trace import read_trace
from planner.placement.placer import PlacerParams
from planner.policies.policy import PolicyOptions
from planner.replay.replaying import replay
from planner.simulate.lengths import PhaseSampler
from planner.simulate.runtime import simulate_plan
from planner.sweep.expand import Study
from planner.sweep.run import COLUMNS, FIGURES, Row, row_of, specification
from planner.sweep.study import AXES
from sweep_cases import LARGE_STATE, study_of

OPTIONS = PolicyOptions(cluster=DEFAULT_CLUSTER)
JOBS = {"generator": "production", "jobs": 15, "seeds": 3}


def only_row(study: Study) -> Row:
    (run,) = study.runs
    return {**specification(run, study.name, study.inputs), **row_of(run, study.inputs)}


def test_columns_are_distinct_and_all_filled_in(tmp_path: Path) -> None:
    row = only_row(study_of(tmp_path))
    assert list(row) == [column.name for column in COLUMNS]
    assert len(row) == len(COLUMNS)


def test_figures_are_those_of_the_replay(tmp_path: Path) -> None:
    row = only_row(study_of(tmp_path, trace=[JOBS], conventions="wallclock"))
    result = replay(production(n_jobs=15, seed=3), "weave", OPTIONS, convention="wallclock")
    # the table keeps 12 significant digits
    expected = {
        "jobs": 15,
        "usd_total": result.usd_total,
        "usd_per_hour_mean": result.usd_per_hour_mean,
        "horizon_h": result.horizon_h,
        "rollout_nodes_p95": result.p95_nodes["rollout"],
        "train_nodes_p95": result.p95_nodes["train"],
        "rollout_nodes_peak": result.peak_nodes["rollout"],
        "train_nodes_peak": result.peak_nodes["train"],
        "rollout_nodes_mean": result.node_hours["rollout"] / result.horizon_h,
        "train_nodes_mean": result.node_hours["train"] / result.horizon_h,
        "slo_attainment": result.slo_attainment,
        "rollout_idle_fraction": result.idle_fraction["rollout"],
        "bound_usd_total": result.bound_usd_total,
        "ratio": result.ratio,
        "link_utilisation_peak": result.link_utilisation["peak"],
    }
    assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-11)
    shares = [row[f"admitted_{kind}"] for kind in ("direct", "rollout_scaled", "isolated")]
    assert result.admission is not None
    assert shares == pytest.approx([n / 15 for n in result.admission.values()], rel=1e-11)
    assert row["admitted_train_scaled"] is None  # weave never does without --train-scaling
    assert row["error_type"] is None
    assert row["wait_p95_s"] is None


def test_what_has_no_meaning_is_empty(tmp_path: Path) -> None:
    row = only_row(study_of(tmp_path, policies="colocated"))
    assert (row["bound_usd_total"], row["ratio"], row["admitted_direct"]) == (None, None, None)


def cluster_with(**changes: float) -> Cluster:
    """Return the default cluster, keys such as ``train_usd_per_gpu_hour`` changed."""
    tables: dict[str, dict[str, float]] = {}
    for key, value in changes.items():
        pool, _, name = key.partition("_")
        tables.setdefault(pool, {})[name] = value
    return cluster_from_dict(tables)


CHANGES: dict[str, tuple[object, PolicyOptions, float]] = {
    "max_group_size": (2, replace(OPTIONS, limits=Limits(max_group_size=2)), 1),
    "max_rate": (2, replace(OPTIONS, limits=Limits(max_rate=2)), 1),
    "host_dram_gb": (
        900,
        PolicyOptions(cluster=cluster_with(rollout_host_dram_gb=900, train_host_dram_gb=900)),
        1,
    ),
    "rollout_host_dram_gb": (900, PolicyOptions(cluster=cluster_with(rollout_host_dram_gb=900)), 1),
    "train_host_dram_gb": (900, PolicyOptions(cluster=cluster_with(train_host_dram_gb=900)), 1),
    "rollout_usd_per_gpu_hour": (
        2.5,
        PolicyOptions(cluster=cluster_with(rollout_usd_per_gpu_hour=2.5)),
        1,
    ),
    "train_usd_per_gpu_hour": (4, PolicyOptions(cluster=cluster_with(train_usd_per_gpu_hour=4)), 1),
    # 2 x 1.85 $/GPU-h
    "price_ratio": (2, PolicyOptions(cluster=cluster_with(train_usd_per_gpu_hour=3.7)), 1),
    "slo_scale": (0.4, OPTIONS, 0.4),
    "inter_gbps": (100, PolicyOptions(cluster=cluster_with(links_inter_gbps=100)), 1),
    "objective": (
        "per-iteration",
        replace(OPTIONS, placer=PlacerParams(objective="per-iteration")),
        1,
    ),
    "tie_rule": ("most-room", replace(OPTIONS, placer=PlacerParams(tie_rule="most-room")), 1),
}


def test_every_axis_is_tried() -> None:
    assert {*CHANGES, "fleet", "queue", "growth"} == set(AXES)


@pytest.mark.parametrize("axis", CHANGES)
def test_an_axis_reaches_the_replay(axis: str, tmp_path: Path) -> None:
    value, options, slack = CHANGES[axis]
    trace = [{"generator": "production", "jobs": 60}]
    row = only_row(study_of(tmp_path, trace=trace, axes={axis: value}))
    jobs = production(n_jobs=60, cluster=options.cluster)
    jobs = jobs.replace(slo=1 + slack * (jobs.slo - 1))
    expected = replay(jobs, "weave", options).usd_total
    assert row["usd_total"] == pytest.approx(expected, rel=1e-11)
    # and it matters: a value that never arrived would give the cost of the default
    default = replay(production(n_jobs=60), "weave", OPTIONS).usd_total
    assert row["usd_total"] != pytest.approx(default, rel=1e-9)


def test_a_seed_reaches_a_policy_that_draws(tmp_path: Path) -> None:
    study = study_of(tmp_path, policies="random", trace=[JOBS], seeds=[0, 5])
    found = [row_of(run, study.inputs)["usd_total"] for run in study.runs]
    jobs = production(n_jobs=15, seed=3)
    expected = [replay(jobs, "random", replace(OPTIONS, seed=seed)).usd_total for seed in (0, 5)]
    assert found == pytest.approx(expected, rel=1e-11)
    assert found[0] != found[1]


def test_bootstrapped_copies(tmp_path: Path) -> None:
    study = study_of(
        tmp_path, trace=[JOBS], replications=2, bootstrap={"seed": 7}, axes={"growth": 2}
    )
    jobs = production(n_jobs=15, seed=3)
    expected = [
        replay(
            bootstrap_trace(jobs, seed=seed, block_h=24.0, growth=2.0), "weave", OPTIONS
        ).usd_total
        for seed in (7, 8)
    ]
    found = [row_of(run, study.inputs)["usd_total"] for run in study.runs]
    assert found == pytest.approx(expected, rel=1e-11)


def test_a_fixed_fleet_makes_jobs_wait(tmp_path: Path) -> None:
    fleets = {"fleet": ["none", "2,2"], "queue": "backfill"}
    free, tight = study_of(tmp_path, trace=[JOBS], policies="solo", axes=fleets).runs
    study = study_of(tmp_path, trace=[JOBS], policies="solo", axes=fleets)
    assert row_of(free, study.inputs)["wait_p95_s"] is None
    row = row_of(tight, study.inputs)
    options = replace(OPTIONS, fleet=Fleet(2, 2), queue="backfill")
    result = replay(production(n_jobs=15, seed=3), "solo", options)
    assert row["wait_p95_s"] == pytest.approx(result.wait_quantile(0.95), rel=1e-11)
    assert row["wait_max_s"] == pytest.approx(float(result.waits_s.max()), rel=1e-11)
    assert row["admitted_at_once"] == pytest.approx(result.admitted_at_once)
    assert row["rollout_nodes_peak"] == 2
    assert row["wait_p95_s"] > 0


def test_a_file_needs_no_disk_when_it_runs(tmp_path: Path) -> None:
    write(tmp_path / "gang.csv", GANG.read_text())
    study = study_of(tmp_path, trace=[{"file": "gang.csv"}])
    (tmp_path / "gang.csv").unlink()
    inputs = pickle.loads(pickle.dumps(study.inputs))
    expected = replay(read_trace(GANG).jobs, "weave", OPTIONS).usd_total
    assert row_of(study.runs[0], inputs)["usd_total"] == pytest.approx(expected, rel=1e-11)


# --- errors ---------------------------------------------------------------------------------------


def test_an_error_is_in_the_row(tmp_path: Path) -> None:
    # job b keeps 1,500 GB on a rollout node: nodes of 1,000 GB cannot run it, those of 2,000 can
    write(tmp_path / "jobs.csv", LARGE_STATE)
    study = study_of(
        tmp_path, trace=[{"file": "jobs.csv"}], axes={"rollout_host_dram_gb": [1000, 2000]}
    )
    bad, good = (row_of(run, study.inputs) for run in study.runs)
    assert bad["error_type"] == "TraceError"
    assert "rollout_state_gb" in str(bad["error"])
    assert all(bad[c.name] is None for c in FIGURES if not c.name.startswith("error"))
    assert good["error_type"] is None


def test_words_of_an_error_fit_in_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(tmp_path)
    for said, cell in (
        ("one\n  two\r\n", "one; two"),
        ("", "no message"),
        ("a\0b\udc80\x1b[1m", "a?b??[1m"),
        ("x" * 1000, "x" * 497 + "..."),
    ):

        def fail(*_: object, said: str = said, **__: object) -> None:
            raise RuntimeError(said)

        monkeypatch.setattr("planner.sweep.run.replay", fail)
        row = row_of(study.runs[0], study.inputs)
        assert (row["error_type"], row["error"]) == ("RuntimeError", cell)


def test_ctrl_c_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.sweep.run.replay", stop)
    study = study_of(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        row_of(study.runs[0], study.inputs)


def test_a_figure_that_is_no_number_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.sweep.run.figures_of", lambda *_, **__: {"ratio": float("nan")})
    study = study_of(tmp_path)
    assert row_of(study.runs[0], study.inputs)["ratio"] is None


def test_no_unit_is_left_out_of_a_name() -> None:
    # dimensionless: shares, ratios, counts and scales; everything else names its unit
    plain = {"growth", "slo_scale", "ratio", "price_ratio", "slo_attainment", "admitted_at_once"}
    plain |= {"slo_attainment_with_wait", "moves_per_job"}
    plain |= {c.name for c in COLUMNS if c.name.startswith("runtime_")}  # shares and ratios
    units = ("_s", "_h", "_gb", "_gbps", "usd_total", "_per_hour_mean", "_per_gpu_hour")
    for column in COLUMNS:
        if column.kind == "number" and column.name not in plain:
            dimensionless = column.name.startswith(("admitted_", "link_utilisation_"))
            dimensionless |= column.name.endswith(("_fraction", "_nodes_mean"))
            assert dimensionless or column.name.endswith(units), column.name


def test_names_need_no_quotes_in_csv() -> None:
    names = [column.name for column in COLUMNS]
    assert next(csv.reader([",".join(names)])) == names


def test_plans_are_run_with_drawn_lengths(tmp_path: Path) -> None:
    """One run a draw, those of the simulator; a policy without an order of phases is not run."""
    study = study_of(
        tmp_path, trace=[JOBS], policies=["weave", "colocated"], runtime_replications=3
    )
    drawn = [(run.policy, run.runtime_replication) for run in study.runs]
    assert drawn == [("weave", 1), ("weave", 2), ("weave", 3), ("colocated", None)]
    result = replay(production(n_jobs=15, seed=3), "weave", OPTIONS)
    assert result.plan is not None
    for run in study.runs[:3]:
        row = row_of(run, study.inputs)
        sampler = PhaseSampler(result.jobs, replication=run.runtime_replication or 0)
        found = simulate_plan(result.plan, sampler)
        assert row["runtime_slo_attainment"] == found.slo_attainment
        assert row["runtime_iterations_over_planned"] == pytest.approx(found.done_over_planned)
    assert row_of(study.runs[3], study.inputs)["runtime_slo_attainment"] is None
    assert len({run.run_id for run in study.runs}) == 4
