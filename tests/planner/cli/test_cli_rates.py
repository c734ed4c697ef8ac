"""``--max-rate`` on the command line: passed on, explained, and shown only above 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import job_of, table_of
from command_line import invoke
from instances.trace import write_trace
from planner.plan.planning import plan_trace

LONG = job_of("long", 30, 20, 1.2, sync_s=250, duration_s=3000)
SHORT = job_of("short", 10, 10, 1.2, sync_s=80, duration_s=3000)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A pair that shares with three iterations a period only: T = 300 and 100, D = 360 and 120."""
    path = tmp_path / "pair.csv"
    write_trace(table_of(LONG, SHORT), path)
    return path


@pytest.mark.parametrize(("max_rate", "pairs"), [(1, 2), (2, 2), (3, 1)])
def test_plan_takes_max_rate(trace: Path, max_rate: int, pairs: int) -> None:
    out = invoke("plan", "--trace", trace, "--max-rate", str(max_rate), "--json")
    assert out.code == 0
    assert out.json["inputs"]["options"]["max_rate"] == max_rate
    assert out.json["inputs"]["options"]["skip_saturated"] == (max_rate == 1)
    for convention in ("work", "wallclock"):
        found = out.json["conventions"][convention]["policies"]["weave"]
        assert found["peak_nodes"] == {"rollout": pairs, "train": pairs}
        assert found["slo_attainment"] == 1
        assert found["checked"]
        assert ("single_iterations" in found) == (max_rate > 1)


def test_plan_reports_the_worst_single_iteration(trace: Path) -> None:
    """Nobody waits: iterations of 300 and 100 s, 300/360 = 100/120 = 0.83 of the deadlines."""
    out = invoke("plan", "--trace", trace, "--max-rate", "3", "--json")
    found = out.json["conventions"]["work"]["policies"]["weave"]["single_iterations"]
    assert found == {"worst_over_deadline": pytest.approx(300 / 360), "jobs_over_deadline": 0}
    text = " ".join(invoke("plan", "--trace", trace, "--max-rate", "3").out.split())
    assert "single iteration takes 0.83 x its deadline; 0 of 2 jobs" in text
    assert "single iteration" not in invoke("plan", "--trace", trace).out


def test_help_says_what_the_slo_is_about() -> None:
    for command in ("plan", "snapshot"):
        assert "the SLO holds for their mean" in " ".join(invoke(command, "--help").out.split())


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "17"])
def test_bad_rates_are_refused(trace: Path, value: str) -> None:
    out = invoke("plan", "--trace", trace, "--max-rate", value)
    assert out.code == 2
    assert "--max-rate" in out.err


def test_snapshot_takes_max_rate(trace: Path) -> None:
    for max_rate, groups in ((2, 2), (3, 1)):
        out = invoke("snapshot", "--trace", trace, "--max-rate", str(max_rate), "--json")
        assert out.code == 0
        assert out.json["snapshot"]["nodes"] == {"rollout": groups, "train": groups}


def test_the_groups_of_a_snapshot_show_rates_and_the_worst_iteration(trace: Path) -> None:
    """Only where rates are asked for; the SLO is about the mean."""
    strict = " ".join(invoke("snapshot", "--trace", trace).out.split())
    rated = " ".join(invoke("snapshot", "--trace", trace, "--max-rate", "3").out.split())
    assert "at most 5 jobs and one iteration a period costs less" in strict
    assert "at most 5 jobs and up to 3 iterations a period costs less" in rated
    legend = "k: iterations a period. mean/worst: iteration time over the job's deadline"
    assert legend in rated
    assert legend not in strict
    (group,) = invoke("snapshot", "--trace", trace, "--max-rate", "3", "--json").json["snapshot"][
        "groups"
    ]
    assert sorted(group["rates"]) == [1, 3]
    assert max(group["worst_single_iteration_s"]) == group["period_s"]


def test_export_refuses_rates(trace: Path, tmp_path: Path) -> None:
    out = invoke("export", "--trace", trace, "--max-rate", "2", "--out", tmp_path / "m.mps")
    assert out.code == 2
    assert "--max-rate 1" in out.err
    assert not (tmp_path / "m.mps").exists()


def test_baselines_run_one_iteration_per_period() -> None:
    """Policies that do not choose rates leave them at 1 under any limit."""
    from instances.plan import Limits

    report = plan_trace(
        table_of(LONG, SHORT),
        baselines=["solo", "most-idle", "colocated"],
        limits=Limits(max_group_size=5, max_rate=3),
    )
    for name in report.baselines:
        result = report.result(name)
        assert all(r.worst_single_s == pytest.approx(r.worst_iteration_s) for r in result.records)
