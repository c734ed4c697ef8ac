"""Sections on run time: numbers of the document, shares of jobs counted by hand, missing parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from builders import job_of, table_of
from instances.jobs import JobTable
from planner.replay.failures import FailureParams
from planner.report.page import render
from planner.report.parts import Chart, Page, Rows, Section, Words, charts_of
from planner.report.simulation_section import (
    below,
    missing_parts,
    simulation_answer,
    simulation_sections,
)
from planner.simulate.document import simulation_document
from planner.simulate.migration_study import LENGTHS, each_migration_row
from planner.simulate.runtime_report import Execution
from planner.simulate.simulating import (
    PARTS,
    SimulationParams,
    SimulationReport,
    fullest_group_run,
    simulate_trace,
)

PARAMS = SimulationParams(
    parts=PARTS,
    levels=("p50",),
    execution=Execution(replications=2),
    failures=FailureParams(job_mtbf_h=2.0, node_mtbf_h=5.0),
    checkpoints=(1, 5),
    seeds=2,
    drift_settings=("increasing",),
    drift_policies=("weave", "regroup"),
)


def jobs() -> JobTable:
    """Two pairs of jobs that may share nodes for two hours; one has an odd name."""
    names = ("$a_1$ & <b>", "b", "c", "d")
    return table_of(
        *(
            job_of(name, 100.0, 60.0 + 10 * i, 2.5, duration_s=7200.0, arrival_s=600.0 * i)
            for i, name in enumerate(names)
        )
    )


@pytest.fixture(scope="module")
def report() -> SimulationReport:
    """Every part; of migration fewer inputs than the command tries."""
    others = tuple(part for part in PARTS if part != "migration")
    made = simulate_trace(jobs(), params=dataclasses.replace(PARAMS, parts=others))
    laws = {name: LENGTHS[name] for name in list(LENGTHS)[:1]}
    rows = tuple(each_migration_row(seeds=PARAMS.all_seeds, periods=10, laws=laws))
    return dataclasses.replace(made, params=PARAMS, migration=rows)


@pytest.fixture(scope="module")
def document(report: SimulationReport) -> dict[str, Any]:
    return simulation_document(report)


@pytest.fixture(scope="module")
def sections(report: SimulationReport) -> tuple[Section, ...]:
    return simulation_sections(report, run=fullest_group_run(report))


def chart(sections: Sequence[Section], name: str) -> Chart:
    blocks = [block for section in sections for block in section.blocks]
    (found,) = [each for each in charts_of(blocks) if each.name == name]
    return found


def table(section: Section) -> Rows:
    (found,) = [block for block in section.blocks if isinstance(block, Rows)]
    return found


def test_shares_below_are_counted() -> None:
    """Of 1, 2, 2 and infinity: none at 0, a quarter at 1, three quarters at 2 and ever after."""
    assert below((2.0, 1.0, float("inf"), 2.0), (0.0, 1.0, 2.0, 9.0)) == (0.0, 25.0, 75.0, 75.0)


def test_attained_slowdowns_agree_with_the_study(
    report: SimulationReport, sections: tuple[Section, ...]
) -> None:
    """The readout next to 1 counts the jobs within their deadline in the mean over the runs."""
    slow, promised = chart(sections, "simulation-attained").readouts
    assert report.runtime is not None
    for row, series, shares in zip(report.runtime, slow.series, promised.series, strict=True):
        assert len(row.slowdowns) == len(row.over_deadline) == 4
        assert max(row.over_deadline) <= row.worst_over_deadline + 1e-12
        # over D is over T by the SLO, here 2.5 for all
        assert row.over_deadline == pytest.approx([value / 2.5 for value in row.slowdowns])
        at_slo = max(i for i, x in enumerate(promised.x) if x <= 1.0)
        kept = sum(value <= promised.x[at_slo] for value in row.over_deadline)
        assert shares.values[at_slo] == 100 * kept / 4
        assert series.values[-1] == 100.0
        assert list(series.values) == sorted(series.values)
    assert "slowdowns" not in report.runtime[0].row


def test_use_of_nodes_is_what_is_not_idle(
    sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    bars = [bar.get_height() for bar in chart(sections, "simulation-in-use").figure.axes[0].patches]
    rows = document["runtime"]
    by_hand = [100 * (1 - row[f"idle_{pool}"]) for pool in ("rollout", "train") for row in rows]
    assert bars == pytest.approx(by_hand)
    assert [row[0] for row in table(sections[0]).rows] == [row["level"] for row in rows]


def test_failures_are_read_off_as_in_the_document(
    sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    cost, share = chart(sections, "simulation-failures").readouts
    rows = document["failures"]
    assert cost.x == (1.0, 5.0)
    assert cost.series[0].values == tuple(row["cost_ratio"] for row in rows)
    assert share.series[0].values == tuple(100 * row["slo_attainment"] for row in rows)
    assert share.series[1].values == tuple(100 * row["availability"] for row in rows)
    assert f"{rows[0]['cost_ratio']:.3f} x" in sections[1].answer


def test_intervals_of_shares_stay_between_0_and_100(sections: tuple[Section, ...]) -> None:
    for name in ("simulation-failures", "simulation-drift"):
        axis = chart(sections, name).figure.axes[1]
        ends = [y for whiskers in axis.collections for path in whiskers.get_paths()
                for _, y in path.vertices]  # fmt: skip
        assert ends
        assert min(ends) >= -1e-9
        assert max(ends) <= 100 + 1e-9


def test_gains_of_migration_are_the_documents(
    sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    rows = [row for row in document["migration"] if row["ours"] is not None]
    tips = chart(sections, "simulation-migration").tips
    assert len(tips) == len(rows)
    for i, row in enumerate(rows):
        assert tips[f"gain-{i}"].startswith(f"{row['item']}: {row['ours']:.2f} x")


def test_drift_is_the_documents(sections: tuple[Section, ...], document: dict[str, Any]) -> None:
    rows = [row for row in document["drift"] if row["policy"] == "weave"]
    usd = sum(row["usd_per_hour_mean"] for row in rows) / len(rows)
    assert f"weave pays ${usd:,.2f}/h" in sections[-1].answer
    assert f"increasing, weave: ${usd:,.2f}/h" in chart(sections, "simulation-drift").alt
    assert len(chart(sections, "simulation-drift-slowdown").tips) == 2


def test_the_gantt_tells_each_phase(
    report: SimulationReport, sections: tuple[Section, ...]
) -> None:
    run = fullest_group_run(report)
    assert run is not None
    gantt = chart(sections, "simulation-gantt")
    seconds = 4 * run.version.period_s
    shown = [event for event in run.events if event.start_s < seconds]
    assert len(gantt.tips) == len(shown)  # one node of each kind for every phase
    first = run.events[0]
    job = run.version.placements[first.job].job_id
    assert any(
        words.startswith(f"{job}, {first.pool} 1 on") and f"{first.end_s:,.1f} s" in words
        for words in gantt.tips.values()
    )


def test_every_chart_has_marks_and_numbers_and_a_page(
    report: SimulationReport, sections: tuple[Section, ...]
) -> None:
    charts = list(charts_of(block for section in sections for block in section.blocks))
    assert len(charts) == 7
    for each in charts:
        assert any(axis.has_data() for axis in each.figure.axes), each.name
        assert any(letter.isdigit() for letter in each.alt), each.name
        assert all(axis.get_xlabel() or axis.get_shared_x_axes() for axis in each.figure.axes)
    page = render(Page("At run time", simulation_answer(report), sections))
    assert "$a_1$ &amp; &lt;b&gt;" in page
    assert len(simulation_answer(report)) == 4


def test_parts_that_are_not_there_are_said(report: SimulationReport) -> None:
    cut = dataclasses.replace(
        report, failures=None, migration=None, drift=None, failed={"migration": "it broke."},
        left_out={"drift": "no phases."}, interrupted="failures",
    )  # fmt: skip
    assert list(missing_parts(cut)) == [
        "Interrupted: failures of jobs and nodes; what was done by then is shown.",
        "No answer: moving the last responses of a rollout together. it broke.",
        "Left out: drift of lengths over a job's life. no phases.",
    ]
    (section,) = simulation_sections(cut)
    words = [line for b in section.blocks if isinstance(b, Words) for line in b.paragraphs]
    assert set(missing_parts(cut)) <= set(words)
    assert list(missing_parts(report)) == []


def test_a_report_of_nothing_says_so(report: SimulationReport) -> None:
    params = dataclasses.replace(report.params, parts=())
    none = dataclasses.replace(
        report, runtime=None, failures=None, migration=None, drift=None, params=params
    )
    (section,) = simulation_sections(none)
    assert section.answer == "Nothing was simulated."
    assert sum(line.startswith("Not asked for") for line in section.blocks[0].paragraphs) == 4
