"""Parts of a simulation: what each keeps, what ends it, what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders import cluster_of, job_of, table_of
from instances.errors import CheckError, InputError
from instances.hardware import Cluster
from instances.jobs import JobTable
from planner.policies.policy import PolicyOptions
from planner.simulate.document import simulation_document
from planner.simulate.rows import TABLES
from planner.simulate.runtime_report import Execution
from planner.simulate.simulating import SimulationParams, SimulationReport, simulate_trace

QUICK: dict[str, Any] = {
    "levels": ("p50",), "execution": Execution(replications=1), "checkpoints": (1, 2), "seeds": 1,
    "drift_settings": ("increasing",), "drift_policies": ("weave", "solo"),
}  # fmt: skip


@pytest.fixture(scope="module")
def jobs() -> JobTable:
    return table_of(*(job_of(name, 100.0, 90.0, 2.5, duration_s=7200.0) for name in "ab"))


def simulated(jobs: JobTable, *parts: str, **more: Any) -> SimulationReport:
    return simulate_trace(jobs, params=SimulationParams(parts=parts, **{**QUICK, **more}))


def test_parts_not_asked_for_are_absent(jobs: JobTable) -> None:
    report = simulated(jobs, "failures")
    assert report.failures is not None
    assert report.runtime is report.migration is report.drift is None
    assert [len(list(TABLES[part](report))) for part in TABLES] == [0, 2, 0, 0]


def test_reports_are_functions_of_their_inputs(jobs: JobTable) -> None:
    parts = ("runtime", "failures", "drift")
    first, second = (simulation_document(simulated(jobs, *parts)) for _ in range(2))
    assert first == second
    other = simulation_document(simulated(jobs, *parts, seed=1))
    assert other["runtime"] != first["runtime"]


def test_a_part_that_fails_costs_no_other(jobs: JobTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*_: object, **__: object) -> Iterator[Any]:
        raise CheckError("the plan does not hold")
        yield

    monkeypatch.setattr("planner.simulate.simulating.slo_study", rows)
    report = simulated(jobs, "runtime", "failures")
    assert report.failed == {"runtime": "the plan does not hold"}
    assert report.runtime is None
    assert len(report.failures or ()) == 2


def test_ctrl_c_keeps_the_rows_that_are_done(jobs: JobTable) -> None:
    """Checkpoints 1 and 2, one seed each: Ctrl-C when the second is done but not yet a row."""

    def progress(part: str, done: int, total: int) -> None:
        assert (part, total) == ("failures", 2)
        if done == 2:
            raise KeyboardInterrupt

    report = simulate_trace(
        jobs,
        params=SimulationParams(parts=("failures", "drift"), **QUICK),
        progress=progress,
    )
    assert report.interrupted == "failures"
    assert report.drift is None
    assert [row.checkpoint_iterations for row in report.failures or ()] == [1]


def test_ctrl_c_keeps_the_worst_case_of_the_levels(jobs: JobTable) -> None:
    def progress(_: str, done: int, __: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    params = SimulationParams(parts=("runtime",), **QUICK)
    report = simulate_trace(jobs, params=params, progress=progress)
    assert report.interrupted == "runtime"
    assert [row.level for row in report.runtime or ()] == ["max"]


def test_drift_that_is_ended_at_once_has_no_rows(jobs: JobTable) -> None:
    def progress(part: str, *_: int) -> None:
        assert part == "drift increasing"
        raise KeyboardInterrupt

    params = SimulationParams(parts=("drift",), **QUICK)
    report = simulate_trace(jobs, params=params, progress=progress)
    assert report.interrupted == "drift"
    assert report.drift is None
    assert simulation_document(report)["drift"] is None


def test_migration_is_made_with_the_cluster_given(
    jobs: JobTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Cluster] = []

    def rows(*, cluster: Cluster, **_: object) -> Iterator[Any]:
        seen.append(cluster)
        yield from ()

    monkeypatch.setattr("planner.simulate.migration_study.each_migration_row", rows)
    cluster = cluster_of(rollout_usd=1.0)
    simulate_trace(
        jobs,
        options=PolicyOptions(cluster=cluster),
        params=SimulationParams(parts=("migration",)),
    )
    assert seen == [cluster]


def test_failures_of_all_checkpoints_share_their_moments(jobs: JobTable) -> None:
    """Rarer checkpoints redo no less, seed by seed, and the plain replay is the same."""
    report = simulated(
        jobs, "failures", checkpoints=(1, 4, 16), seeds=2,
        failures=SimulationParams().failures.__class__(job_mtbf_h=1.0),
    )  # fmt: skip
    rows = report.failures or ()
    first = [tuple(r.usd_total_without for r in row.reports) for row in rows]
    assert len(set(first)) == 1
    lost = [[r.lost_h for r in row.reports] for row in rows]
    assert lost[0][0] > 0
    assert sum(lost[0]) < sum(lost[1]) < sum(lost[2])


@pytest.mark.parametrize(
    "wrong",
    [
        {"parts": ("runtim",)},
        {"levels": ("p90",)},
        {"checkpoints": ()},
        {"checkpoints": (0,)},
        {"seeds": 0},
        {"seed": -1},
        {"seed": 2**64 - 1, "seeds": 2},
        {"drift_settings": ("up",)},
        {"drift_policies": ("gavel",)},
        {"parts": ("drift",), "drift_policies": ()},
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SimulationParams(**wrong)


def test_the_last_seed_is_one_that_all_generators_take() -> None:
    assert SimulationParams(seed=2**64 - 1, seeds=1).all_seeds[-1] == 2**64 - 1
