"""Sections about a planned trace show the numbers of the document, and survive odd traces."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from plan_report_cases import NAMES, ODD, chart_of, ordinary, section_of, tables_of
from planner.plan.document import plan_document
from planner.plan.planning import PlanReport
from planner.plan.tables import print_plan
from planner.report import group_figures, plan_figures
from planner.report.group_figures import chosen_lives, lives_of
from planner.report.page import render
from planner.report.parts import Page, Picker, Readout, Section, Words, charts_of
from planner.report.plan_section import plan_answer, plan_sections

CONVENTIONS = ("work", "wallclock")


@pytest.fixture(scope="module")
def report() -> PlanReport:
    return ordinary()


@pytest.fixture(scope="module")
def sections(report: PlanReport) -> tuple[Section, ...]:
    return plan_sections(report)


@pytest.fixture(scope="module")
def document(report: PlanReport) -> Any:
    return plan_document(report)["conventions"]


def _integral(readout: Readout, name: str) -> float:
    """Return the area under a line that a reader reads off: its unit times hours."""
    series = next(series for series in readout.series if series.name == name)
    values = [0.0 if value is None else value for value in series.values]
    return float(np.dot(values[:-1], np.diff(readout.x)))


# --- the numbers are those of the document --------------------------------------------------------


def test_the_answer_is_what_the_command_prints(report: PlanReport) -> None:
    from rich.console import Console

    stream = io.StringIO()
    print_plan(report, Console(file=stream, width=100))
    printed = " ".join(stream.getvalue().split())
    answer = plan_answer(report)
    assert len(answer) >= 5
    assert all(sentence in printed for sentence in answer)


def test_the_table_of_policies_has_the_documents_numbers(
    report: PlanReport, sections: tuple[Section, ...], document: Any
) -> None:
    tables = tables_of(section_of(sections, "cost").blocks)
    assert len(tables) == 2
    for table, convention in zip(tables, CONVENTIONS, strict=True):
        found = document[convention]["policies"]
        assert [row[0] for row in table.rows] == ["weave", "solo", "colocated"]
        for row in table.rows:
            cells, expected = dict(zip(table.header, row, strict=True)), found[row[0]]
            assert cells["mean price, $/h"] == f"{expected['usd_per_hour_mean']:,.1f}"
            assert cells["total, k$"] == f"{expected['usd_total'] / 1000:,.1f}"
            peak = expected["fleet"]["peak"]
            assert cells["peak GPUs, H20+H800"] == "{rollout}+{train}".format(**peak["gpus"])
            assert cells["peak nodes, rollout+train"] == "{rollout}+{train}".format(**peak["nodes"])
            saved = found["solo"]["usd_total"] / expected["usd_total"]
            assert cells["vs solo: its total over this one, ratio"] == f"{saved:.2f}x"
        assert table.rows[2][table.header.index("cost/bound, ratio")] == "-"  # outside the rules


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_read_off_lines_integrate_to_the_documents_totals(
    sections: tuple[Section, ...], document: Any, convention: str
) -> None:
    cost = chart_of(section_of(sections, "cost"), f"cost-{convention}").readouts[0]
    pools = chart_of(section_of(sections, "gpus"), f"gpus-{convention}").readouts
    for name, expected in document[convention]["policies"].items():
        assert _integral(cost, name) == pytest.approx(expected["usd_total"])
        for readout, pool in zip(pools, ("rollout", "train"), strict=False):
            assert _integral(readout, name) == pytest.approx(8 * expected["node_hours"][pool])
    main = document[convention]["policies"]["weave"]
    assert _integral(cost, "bound, jobs of weave") == pytest.approx(
        main["bound_usd_per_hour_mean"] * main["horizon_h"]
    )


def test_jobs_over_time_add_up_to_the_hours_that_jobs_run(
    report: PlanReport, sections: tuple[Section, ...]
) -> None:
    jobs = chart_of(section_of(sections, "gpus"), "gpus-work").readouts[2]
    hours = sum(record.elapsed_s for record in report.result("weave").records) / 3600
    assert _integral(jobs, "weave") == pytest.approx(hours)


def test_the_duration_curve_reads_p95_and_peak(
    sections: tuple[Section, ...], document: Any
) -> None:
    section = section_of(sections, "demand")
    chart = chart_of(section, "demand-work")
    for readout, pool in zip(chart.readouts, ("rollout", "train"), strict=True):
        for series in readout.series:
            fleet = document["work"]["policies"][series.name]["fleet"]
            assert series.values[readout.x.index(0.0)] == fleet["peak"]["nodes"][pool]
            assert series.values[readout.x.index(5.0)] == fleet["p95"]["nodes"][pool]
        top = max(series.values[0] or 0 for series in readout.series)
        assert readout.axes.get_ylim()[1] >= top  # no curve is cut off
    for row in tables_of(section.blocks)[0].rows:
        fleet = document["work"]["policies"][row[0]]["fleet"]
        assert row[3:] == tuple(str(fleet[kind]["nodes"][row[1]]) for kind in ("p95", "peak"))


def test_admission_counts_all_jobs_async_ones_apart(
    sections: tuple[Section, ...], document: Any
) -> None:
    section = section_of(sections, "admission")
    rows = tables_of(section.blocks)[0].rows
    counts = {row[1]: int(row[2]) for row in rows if row[0] == "weave"}
    assert counts.pop("async, dedicated") == 3
    assert sum(counts.values()) == 57
    shares = document["work"]["policies"]["weave"]["admission"]
    assert {kind.replace("_", " "): share * 57 for kind, share in shares.items()} == pytest.approx(
        counts
    )
    chart = chart_of(section, "admission-work")
    assert all(f"{jobs} {kind}" in chart.alt for kind, jobs in counts.items())
    widths = [patch.get_width() for patch in chart.figure.axes[0].patches]
    assert sum(widths) == pytest.approx(100)


def test_each_sharing_job_is_a_point_below_or_above_its_limit(
    report: PlanReport, sections: tuple[Section, ...]
) -> None:
    section = section_of(sections, "jobs")
    records = [r for r in report.result("weave").records if r.job.mode != "async"]
    axes = chart_of(section, "slowdown").figure.axes[0]
    points = [
        (float(x), float(y))
        for line in axes.lines[1:]
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)  # type: ignore[arg-type]
    ]
    assert sorted(points) == sorted((r.job.slo, r.slowdown) for r in records)
    near = sum(r.slo_met and r.slowdown >= 0.95 * r.job.slo for r in records)
    assert f"{near} of these" in section.answer
    table = tables_of(section.blocks)[0]
    shares = [float(row[table.header.index("share of the limit, %")]) for row in table.rows]
    expected = sorted((100 * r.slowdown / r.job.slo for r in records), reverse=True)[:10]
    assert shares == pytest.approx(expected, abs=0.051)


def test_the_ratio_over_time_is_the_documents_ratio_weighted_by_the_bound(
    report: PlanReport, document: Any
) -> None:
    for convention, key in (("work", "trajectory_ratio"), ("wallclock", "ratio")):
        result = report.result("weave", convention)  # type: ignore[arg-type]
        ratio, line = plan_figures.ratio_over_time(result), result.timeline
        assert np.nanmin(ratio) >= 1 - 1e-9  # no valid plan is below its bound
        # each async job holds its own nodes of each kind, from start to departure
        dedicated = sum(
            result.cluster.usd_per_hour(r.job.rollout_nodes, r.job.train_nodes)
            * ((r.start_s <= line.time_s) & (line.time_s < r.departure_s))
            for r in result.records
            if r.job.mode == "async"
        )
        weights = (line.bound_usd_per_hour - dedicated)[:-1] * line.hours
        known = ~np.isnan(ratio[:-1])
        assert weights[~known] == pytest.approx(0)
        whole = np.dot(ratio[:-1][known], weights[known]) / weights[known].sum()
        assert whole == pytest.approx(document[convention]["policies"]["weave"][key])


# --- groups ---------------------------------------------------------------------------------------


def test_groups_cost_what_the_plan_costs_without_dedicated_nodes(report: PlanReport) -> None:
    result = report.result("weave")
    assert result.plan is not None
    lives = lives_of(result.plan)
    assert sum(life.usd for life in lives) == pytest.approx(
        result.usd_total - result.dedicated_usd_total
    )
    assert [life.usd for life in lives] == sorted((life.usd for life in lives), reverse=True)
    for life in lives:
        held = [version.to_s - version.from_s for version in life.versions]
        assert life.longest.to_s - life.longest.from_s == max(held)


def test_the_picker_has_the_dearest_groups_within_a_budget(
    report: PlanReport, sections: tuple[Section, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = report.result("weave").plan
    assert plan is not None
    lives = lives_of(plan)
    section = section_of(sections, "groups")
    picker = next(block for block in section.blocks if isinstance(block, Picker))
    assert len(picker.options) == min(len(lives), group_figures.MOST_GANTTS)
    for (name, _), life in zip(picker.options, lives, strict=False):
        jobs = len(life.longest.placements)
        assert name.startswith(f"{life.group_id}: {jobs} job{'s' * (jobs != 1)} on ")
        assert f"period {life.longest.period_s:,.0f} s" in name
    assert f"{len(plan.groups)} versions of {len(lives)} groups" in section.answer
    monkeypatch.setattr(group_figures, "_BUDGET", 1)
    assert chosen_lives(plan, lives) == lives[:1]


def test_a_schedule_fits_its_picture_and_each_bar_says_what_it_is(
    report: PlanReport, sections: tuple[Section, ...]
) -> None:
    plan = report.result("weave").plan
    assert plan is not None
    section = section_of(sections, "groups")
    picker = next(block for block in section.blocks if isinstance(block, Picker))
    for (_, chart), life in zip(picker.options[:4], lives_of(plan), strict=False):
        renderer = FigureCanvasAgg(chart.figure).get_renderer()  # type: ignore[no-untyped-call]
        box = chart.figure.get_tightbbox(renderer)
        wide, high = chart.figure.get_size_inches()
        assert box.x0 > 0
        assert box.y0 > 0
        assert box.x1 < wide
        assert box.y1 < high
        words = " ".join(chart.tips.values())
        for placement in life.longest.placements:
            assert f"{placement.job_id}: rollout on rollout node" in words
            assert f"{placement.job_id}: train on train node" in words
            assert placement.job_id in chart.alt


def test_lives_show_every_version_of_a_group(
    report: PlanReport, sections: tuple[Section, ...]
) -> None:
    plan = report.result("weave").plan
    assert plan is not None
    chart = chart_of(section_of(sections, "groups"), "lives")
    drawn_h = sum(patch.get_width() for patch in chart.figure.axes[0].patches)
    lives = lives_of(plan)
    assert len(lives) <= group_figures.MOST_LIVES
    assert drawn_h == pytest.approx(sum(v.to_s - v.from_s for v in plan.groups) / 3600)


# --- any trace ------------------------------------------------------------------------------------


def test_every_chart_has_marks_and_words_with_numbers(sections: tuple[Section, ...]) -> None:
    charts = [chart for section in sections for chart in charts_of(section.blocks)]
    assert len(charts) > 12
    for chart in charts:
        assert any(character.isdigit() for character in chart.alt)
        for axes in chart.figure.axes:
            assert axes.lines or axes.patches or axes.collections
            assert axes.get_xlabel() or axes.get_shared_x_axes().get_siblings(axes)
    assert all(any(c.isdigit() for c in section.answer) for section in sections)


def test_alt_texts_hold_the_documents_numbers(sections: tuple[Section, ...], document: Any) -> None:
    for convention in CONVENTIONS:
        alt = chart_of(section_of(sections, "cost"), f"cost-{convention}").alt
        gpus = chart_of(section_of(sections, "gpus"), f"gpus-{convention}").alt
        for name, found in document[convention]["policies"].items():
            assert f"{name} ${found['usd_per_hour_mean']:,.0f}/h on average" in alt
            peak = found["fleet"]["peak"]["gpus"]
            assert f"{name} {peak['rollout']} H20 + {peak['train']} H800" in gpus


@pytest.fixture(scope="module", params=sorted(ODD))
def odd(request: pytest.FixtureRequest) -> tuple[str, PlanReport, tuple[Section, ...], str]:
    made = ODD[request.param]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_figures, "MOST_GANTTS", 2)
        sections = plan_sections(made)
    return request.param, made, sections, render(Page("Odd", plan_answer(made), sections))


#: What an odd trace leaves out, or adds.
_SECTIONS = {
    "all async": {"cost", "gpus", "demand"},
    "fleet": {
        "cost", "gpus", "demand", "waiting", "admission", "jobs", "groups", "ratio",
    },
    "seeds": {"cost", "gpus", "demand", "admission", "jobs", "groups"},
    "no rollout nodes": {"cost", "gpus", "demand", "jobs", "groups"},
    "nothing costs anything": {"cost", "gpus", "demand", "admission", "jobs", "groups"},
}  # fmt: skip
_USUAL = {"cost", "gpus", "demand", "admission", "jobs", "groups", "ratio"}


def test_odd_traces_have_the_sections_that_say_something(
    odd: tuple[str, PlanReport, tuple[Section, ...], str],
) -> None:
    name, report, sections, page = odd
    assert {section.name for section in sections} == _SECTIONS.get(name, _USUAL)
    assert page.count("<svg") >= 5
    assert "nan" not in section_of(sections, "cost").answer
    if name == "names":
        assert "<script>alert" not in page
        assert all(f"{NAMES[1]}" in text for text in (page, _alts(sections)))
    if name == "fleet":
        waits = section_of(sections, "waiting")
        quantile = report.result("weave").wait_quantile(0.95)
        assert quantile > 0
        table = tables_of(waits.blocks)[0]
        assert [row[0] for row in table.rows] == ["weave", "solo"]
        assert chart_of(section_of(sections, "gpus"), "gpus-work").readouts[2].series[1].name == (
            "weave, waiting"
        )
    if name == "seeds":
        words = [b for b in section_of(sections, "groups").blocks if isinstance(b, Words)]
        assert "first seed, 7" in words[0].paragraphs[0]


def _alts(sections: tuple[Section, ...]) -> str:
    return " ".join(chart.alt for section in sections for chart in charts_of(section.blocks))


def test_long_timelines_are_thinned_and_say_so(
    report: PlanReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = plan_figures.cost_chart(report, "work")
    assert "are drawn with at most" not in whole.caption

    def few(x: Any, y: Any) -> Any:
        from planner.report.thinning import thin_steps

        return thin_steps(x, y, 40)

    monkeypatch.setattr(plan_figures, "MOST_STEPS", 40)
    monkeypatch.setattr(plan_figures, "thin_steps", few)
    chart = plan_figures.cost_chart(report, "work")
    assert "are drawn with at most 40" in chart.caption
    for thin, line in zip(chart.figure.axes[0].lines, whole.figure.axes[0].lines, strict=True):
        assert len(np.asarray(thin.get_xdata())) <= 40 < len(np.asarray(line.get_xdata()))
        assert max(thin.get_ydata()) == max(line.get_ydata())  # type: ignore[arg-type]


def test_kinds_of_admission_that_nobody_has_are_left_out(report: PlanReport) -> None:
    # random tells four kinds, and never scales a pool on this trace: DRAM leaves room
    made = ODD["seeds"]()
    counts = plan_figures.admission_counts(made, "work")
    assert set(counts) == {"random", "weave"}
    kinds = {kind for by_kind in counts.values() for kind in by_kind}
    assert all(any(by.get(kind) for by in counts.values()) for kind in kinds)
    runs = made.runs("random", "work")
    direct = [run.admission["direct"] for run in runs if run.admission is not None]
    assert len(direct) == 3
    assert counts["random"]["direct"] == pytest.approx(sum(direct) / 3)
    assert "train scaled" not in kinds
    assert "async, dedicated" in plan_figures.admission_counts(report, "work")["weave"]
