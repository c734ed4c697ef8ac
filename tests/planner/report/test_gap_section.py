"""Sections on the gap: what they show is what the document says, and what is not known shows."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import pytest

from builders import job_of, trace_of
from gap_cases import HOUR, fragmented, overlapping, with_async
from planner.gap.document import gap_document
from planner.gap.proving import GapReport, optimality_gap
from planner.gap.tables import gap_lines
from planner.report.gap_section import gap_answer, gap_sections, time_steps
from planner.report.page import render
from planner.report.parts import Chart, Page, Readout, Rows, Section, Words, charts_of


@pytest.fixture(scope="module")
def report() -> GapReport:
    return optimality_gap(fragmented())


@pytest.fixture(scope="module")
def sections(report: GapReport) -> tuple[Section, ...]:
    return gap_sections(report)


def chart(sections: tuple[Section, ...], name: str) -> Chart:
    blocks = [block for section in sections for block in section.blocks]
    (found,) = [each for each in charts_of(blocks) if each.name == name]
    return found


def table(sections: tuple[Section, ...], title: str) -> Rows:
    blocks = [block for section in sections for block in section.blocks]
    (found,) = [b for b in blocks if isinstance(b, Rows) and b.title.startswith(title)]
    return found


def integrated(readout: Readout, name: str, end_h: float) -> float:
    """Integrate the steps of one series up to the end."""
    (series,) = [each for each in readout.series if each.name == name]
    edges = list(pairwise((*readout.x, end_h)))
    return math.fsum(
        value * (to - since)
        for value, (since, to) in zip(series.values, edges, strict=True)
        if value is not None
    )


def test_the_lines_integrate_to_what_the_document_says(
    report: GapReport, sections: tuple[Section, ...]
) -> None:
    """Two pairs from 1 to 3 h and one before and after: 6 pair-hours against 5, over 4 h."""
    found = gap_document(report)["gap"]
    over_time = chart(sections, "gap-over-time")
    prices = over_time.readouts[0]
    for name, key in (
        ("weave", "usd_per_hour_mean"),
        ("the same jobs placed anew", "replanned_usd_per_hour_mean"),
        ("cheapest plan known", "held_usd_per_hour_mean"),
        ("proved bound", "bound_usd_per_hour_mean"),
    ):
        mean = integrated(prices, name, found["horizon_h"]) / found["horizon_h"]
        assert mean == pytest.approx(found[key])
    assert found["ratio"] == pytest.approx(6 / 5)
    assert f"${found['usd_per_hour_mean']:,.2f}/h" in over_time.alt
    assert f"${found['bound_usd_per_hour_mean']:,.2f}/h" in over_time.alt


def test_the_parts_multiply_to_the_ratio(report: GapReport, sections: tuple[Section, ...]) -> None:
    found = gap_document(report)["gap"]
    parts = chart(sections, "gap-parts")
    split = found["split"]
    assert math.prod(split.values()) == pytest.approx(found["ratio"])
    tips = " ".join(parts.tips.values())
    for name, value in split.items():
        assert f"{name.replace('_', ' ')} x {value:.3f}" in tips
    widths = [bar.get_width() for bar in parts.figure.axes[0].patches]
    keys = ("bound", "held", "replanned", "")
    assert widths == pytest.approx([found[f"{key}_usd_per_hour_mean".lstrip("_")] for key in keys])


def test_tables_have_the_numbers_of_the_document(
    report: GapReport, sections: tuple[Section, ...]
) -> None:
    found = gap_document(report)["gap"]
    by_jobs = table(sections, "By jobs present")
    assert [row[4] for row in by_jobs.rows] == [f"{p['ratio']:.3f}" for p in found["by_jobs"]]
    worst = table(sections, "The ")
    assert [row[7] for row in worst.rows] == [f"{p['ratio']:.3f}" for p in found["worst"]]
    methods = table(sections, "Who proved")
    assert {row[0]: int(row[1]) for row in methods.rows} == found["bound_methods"]
    proved = found["snapshots_proved_optimal"]
    assert sections[-1].answer.startswith(f"{proved} of {found['snapshots']} moments")


def test_the_ratio_by_number_of_jobs_is_read_off(
    report: GapReport, sections: tuple[Section, ...]
) -> None:
    """Each number of jobs is integrated by itself."""
    readout = chart(sections, "gap-by-jobs").readouts[0]
    for n, ratio in zip(readout.x, readout.series[0].values, strict=True):
        rows = [row for row in report.rows if row.n_jobs == n]
        usd = sum(row.policy_usd * row.moment.hours for row in rows)
        assert ratio == pytest.approx(usd / sum(r.bound_usd * r.moment.hours for r in rows))


def test_words_are_those_that_the_command_prints(report: GapReport) -> None:
    assert gap_answer(report) == tuple(gap_lines(report))
    assert gap_sections(report)[0].answer == next(gap_lines(report))


def test_by_work_the_ratio_is_named_a_trajectory() -> None:
    sections = gap_sections(optimality_gap(fragmented(), durations="work"))
    names = [s.name for r in chart(sections, "gap-over-time").readouts for s in r.series]
    assert "weave / bound, own trajectory" in names
    assert "own trajectory" in sections[1].answer
    assert any(
        "Ratio along its own trajectory" in line for line in sections[0].blocks[1].paragraphs
    )


def test_moments_that_were_not_looked_at_are_shaded(report: GapReport) -> None:
    """The first moment is as if Ctrl-C had come before it."""
    first, *rest = report.rows
    cut = dataclasses.replace(
        report,
        rows=(dataclasses.replace(first, solved=None, bound_usd=first.bound_usd / 2), *rest),
        interrupted=True,
    )
    sections = gap_sections(cut)
    over_time = chart(sections, "gap-over-time")
    for axis in over_time.figure.axes:
        (span,) = axis.patches
        left, right = span.get_x(), span.get_x() + span.get_width()
        assert (left, right) == pytest.approx((0.0, first.moment.to_s / HOUR))
    assert "1 moment not looked at" in over_time.caption
    assert ("not looked at", "1") in table(sections, "What stopped").rows
    assert not chart(gap_sections(report), "gap-over-time").figure.axes[0].patches


def test_very_many_moments_are_thinned_without_changing_integrals(report: GapReport) -> None:
    """Four moments of an hour as two steps of two."""
    fine, coarse = time_steps(report.every), time_steps(report.every, most=2)
    assert (len(fine), len(coarse)) == (len(report.every), 2)
    for field in ("policy_usd", "bound_usd"):
        usd = [
            math.fsum((step.price(field) or 0.0) * (step.to_h - step.from_h) for step in steps)
            for steps in (fine, coarse)
        ]
        assert usd[0] == pytest.approx(usd[1])


def test_lines_break_where_nobody_is_there() -> None:
    """One job from 0 to 1 h, another from 3 to 4 h."""
    jobs = [
        job_of(name, 60, 40, arrival_s=at * HOUR, duration_s=HOUR)
        for name, at in (("a", 0), ("b", 3))
    ]
    over_time = chart(gap_sections(optimality_gap(trace_of(*jobs))), "gap-over-time")
    readout = over_time.readouts[0]
    assert readout.x == pytest.approx((0.0, 1.0, 3.0))
    assert [value is None for value in readout.series[0].values] == [False, True, False]
    assert "Lines break" in over_time.caption


def test_async_jobs_alone_have_no_gap_but_words() -> None:
    free = job_of("free", 60, 40, 1.0, duration_s=HOUR, mode="async")
    (section,) = gap_sections(optimality_gap(trace_of(free)))
    (words,) = section.blocks
    assert isinstance(words, Words)
    assert "No jobs that may share nodes" in " ".join(words.paragraphs)


def test_every_chart_has_marks_words_with_numbers_and_a_page() -> None:
    odd = trace_of(
        *(dataclasses.replace(job, job_id=f"${job.job_id}$") for job in overlapping().jobs)
    )
    for trace in (with_async(), odd):
        sections = gap_sections(optimality_gap(trace))
        for each in charts_of(block for section in sections for block in section.blocks):
            assert any(axis.has_data() for axis in each.figure.axes)
            assert any(letter.isdigit() for letter in each.alt)
            assert all(axis.get_ylabel() or axis.get_yticklabels() for axis in each.figure.axes)
        assert "<svg" in render(Page("gap", gap_answer(optimality_gap(trace)), sections))


def test_a_policy_that_moves_jobs_is_held_against_plans_made_anew() -> None:
    report = optimality_gap(fragmented(), policy="repack")
    sections = gap_sections(report)
    found = gap_document(report)["gap"]
    names = [series.name for series in chart(sections, "gap-over-time").readouts[0].series]
    assert names == ["repack", "planned anew by search", "cheapest plan known", "proved bound"]
    assert f"{found['split']['online_regret']:.3f}" in chart(sections, "gap-parts").alt
    assert "exact search from scratch" in table(sections, "By jobs present").caption
