"""Whole pages of several reports: the first screen, hours of odd traces, and the way back."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

from builders import cluster_of, job_of, table_of, trace_of
from gap_cases import HOUR, fragmented, overlapping
from instances.generate import production
from instances.trace import Trace
from planner.gap.document import gap_document
from planner.gap.proving import GapReport, optimality_gap
from planner.output.pictures import drawing
from planner.plan.planning import PlanReport, plan_trace
from planner.report.pages import answer_of, page_of
from planner.report.parts import Code, Folded, Page, Rows, Section, charts_of
from planner.report.plan_section import plan_answer, plan_sections
from planner.simulate.runtime_gantt import run_figure
from planner.simulate.runtime_report import Execution
from planner.simulate.simulating import (
    SimulationParams,
    SimulationReport,
    fullest_group_run,
    simulate_trace,
)
from planner.size.figures import alternatives_figure, demand_figure, gpu_name
from planner.size.params import SizeParams
from planner.size.report import SizeReport
from planner.size.sizing import size_trace

#: As of 30 November 2026, seconds of Unix time: 490,000 h.
UNIX_S = 1_764_524_567.25
SIMULATION = SimulationParams(
    parts=("runtime",), levels=("max",), execution=Execution(replications=1), seed=7
)


def later(trace: Trace, seconds: float) -> Trace:
    jobs = trace.jobs
    return dataclasses.replace(
        trace, jobs=dataclasses.replace(jobs, arrival_s=jobs.arrival_s + seconds)
    )


@pytest.fixture(scope="module")
def size() -> SizeReport:
    return size_trace(fragmented(), params=SizeParams(parts=("alternatives",)))


@pytest.fixture(scope="module")
def plan() -> PlanReport:
    return plan_trace(fragmented())


@pytest.fixture(scope="module")
def simulation() -> SimulationReport:
    return simulate_trace(fragmented(), params=SIMULATION)


def section(page: Page, name: str) -> Section:
    (found,) = [each for each in page.sections if each.name == name]
    return found


# --- the first screen -----------------------------------------------------------------------------


def test_the_answer_tells_fleet_cost_and_how_sure_it_is(size: SizeReport, plan: PlanReport) -> None:
    first, *rest = answer_of(size=size, plan=plan)
    assert first.startswith("Own ")
    assert f"${size.split.usd_per_hour:,.2f}/h" in first
    least = size.work_bound_usd_total
    proven = [sentence for sentence in rest if sentence.startswith("Proven")]
    assert len(proven) == 1  # told once
    assert f"at most {size.split.usd_total / least:.2f} times the least" in proven[0]


def test_beside_a_fleet_the_plan_tells_no_price_of_renting_all(
    size: SizeReport, plan: PlanReport
) -> None:
    """Owning the peak and renting it all along are two prices: one of them is the answer."""
    renting = "holding the peak all along costs"
    assert any(renting in sentence for sentence in plan_answer(plan))
    assert any(renting in sentence for sentence in answer_of(plan=plan))
    assert not any(renting in sentence for sentence in answer_of(size=size, plan=plan))
    assert any("weave needs at most" in sentence for sentence in answer_of(size=size, plan=plan))


def test_what_was_not_simulated_is_no_answer() -> None:
    alone = table_of(job_of("a", 100.0, 50.0, 2.0, duration_s=HOUR, mode="async"))
    nothing = simulate_trace(alone, params=SIMULATION)
    assert answer_of(simulation=nothing) == ("Nothing was simulated.",)
    assert "Nothing was simulated." not in answer_of(plan=plan_trace(alone), simulation=nothing)


# --- how to get it again --------------------------------------------------------------------------


def test_a_whole_report_tells_the_seed_and_the_options_of_all_its_parts(
    plan: PlanReport, simulation: SimulationReport
) -> None:
    page = page_of(plan=plan, simulation=simulation, command=("planner", "report"))
    blocks = section(page, "reproduce").blocks
    facts = dict(next(block for block in blocks if isinstance(block, Rows)).rows)
    assert facts["seed"] == "7"
    (folded,) = [block for block in blocks if isinstance(block, Folded)]
    (options,) = [block for block in folded.blocks if isinstance(block, Rows)]
    names = {row[0] for row in options.rows}
    assert {"plan: max_group_size", "simulate: levels"} <= names
    codes = [block.text for block in blocks if isinstance(block, Code)]
    assert codes == ["planner report", "planner check plan.json"]


def test_proofs_that_a_time_limit_ended_may_differ() -> None:
    proved = optimality_gap(overlapping())
    assert "time" not in proved.stopped_by
    answer = section(page_of(gap=proved), "reproduce").answer
    assert "time limit" not in answer
    first, *others = proved.rows
    assert first.solved is not None
    ended = dataclasses.replace(
        first,
        bound_usd=0.9 * first.bound_usd,
        solved=dataclasses.replace(first.solved, stopped_by="time"),
    )
    stopped = dataclasses.replace(proved, rows=(ended, *others))
    assert stopped.stopped_by == {"time": 1}
    answer = section(page_of(gap=stopped), "reproduce").answer
    assert answer.endswith("but for proofs that a time limit ended.")


# --- odd traces -----------------------------------------------------------------------------------


def test_hours_of_the_gap_count_from_the_first_arrival() -> None:
    """Arrivals in Unix time give the page of the same arrivals from 0 on."""

    def shown(report: GapReport) -> tuple[tuple[float, ...], str, tuple[tuple[str, ...], ...]]:
        blocks = section(page_of(gap=report), "gap").blocks
        over_time = next(c for c in charts_of(blocks) if c.name == "gap-over-time")
        (worst,) = [block for block in blocks if isinstance(block, Rows)]
        return over_time.readouts[0].x, over_time.alt, worst.rows

    plain, unix = optimality_gap(fragmented()), optimality_gap(later(fragmented(), UNIX_S))
    x, alt, rows = shown(unix)
    assert gap_document(unix)["gap"]["ratio"] == pytest.approx(6 / 5)
    assert x == pytest.approx(shown(plain)[0], abs=1e-6)
    assert (alt, rows) == shown(plain)[1:]
    assert "highest at 2.0 h" in alt  # b and c hold a pair each in the third hour


@pytest.mark.parametrize(("jobs", "words"), [(1, "The one job keeps its SLO"), (2, "2 of 2 jobs")])
def test_one_job_is_one_job(jobs: int, words: str) -> None:
    made = [job_of(name, 60, 40, 1.5, duration_s=2 * HOUR) for name in "ab"[:jobs]]
    sections = {each.name: each for each in plan_sections(plan_trace(trace_of(*made)))}
    assert sections["jobs"].answer.startswith(words)
    assert f"Of {jobs} job{'s' * (jobs > 1)} under" in sections["admission"].answer
    everything = " ".join(each.answer for each in sections.values())
    assert "1 jobs" not in everything


def test_a_trace_of_seconds_does_not_cost_nothing_over_no_time() -> None:
    """One pair of nodes, $57.04/h, for 9 s: $0.14."""
    short = trace_of(job_of("a", 1.0, 1.0, 2.0, duration_s=9.0))
    answer = next(s for s in plan_sections(plan_trace(short)) if s.name == "cost").answer
    assert "$0.14 over 9 s" in answer


def test_lines_that_coincide_are_all_seen() -> None:
    """The main policy is drawn thicker than the others, and beneath them."""
    sections = plan_sections(plan_trace(fragmented(), baselines=("solo", "colocated")))
    charts = {c.name: c for each in sections for c in charts_of(each.blocks)}
    for name in ("cost-work", "gpus-work"):
        main, *others = [
            line
            for line in charts[name].figure.axes[0].lines
            if line.get_label() in ("weave", "solo", "colocated")
        ]
        assert main.get_label() == "weave"
        assert len(others) == 2
        for line in others:
            assert line.get_linewidth() < main.get_linewidth()
            assert line.get_zorder() > main.get_zorder()


def test_nodes_are_marked_by_whole_numbers(size: SizeReport) -> None:
    with drawing():
        figure = alternatives_figure(size)
    assert figure is not None
    for axes in figure.axes:
        ticks = axes.xaxis.get_majorticklocs()
        assert len(ticks) > 1
        assert all(float(tick).is_integer() for tick in ticks)


def test_pools_of_one_gpu_are_told_apart(size: SizeReport) -> None:
    cluster = size.options.cluster
    gpu = cluster.train.gpu
    same = cluster.replace(rollout=dataclasses.replace(cluster.rollout, gpu=gpu))
    other = dataclasses.replace(size, options=dataclasses.replace(size.options, cluster=same))
    assert gpu_name(other, "rollout") != gpu_name(other, "train")
    assert (gpu_name(size, "rollout"), gpu_name(size, "train")) == ("H20", "H800")


@pytest.mark.parametrize("letters", [3, 30, 200])
def test_names_of_any_length_fit_in_the_picture_of_a_run(letters: int) -> None:
    made = partial(job_of, rollout_s=45.0, train_s=45.0, slo=2.5, duration_s=2 * HOUR)
    jobs = table_of(*(made(name * letters) for name in "WX"))
    run = fullest_group_run(simulate_trace(jobs, params=SIMULATION))
    assert run is not None
    assert len(run.version.placements) == 2
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with drawing():
        figure = run_figure(run, 400.0, title=False)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        legend = figure.axes[0].get_legend()
        assert legend is not None
        box = legend.get_window_extent(canvas.get_renderer())
    assert box.x1 <= figure.bbox.x1
    assert "W" * min(letters, 15) in legend.get_texts()[0].get_text()


def test_long_names_of_gpus_fit_beside_their_axes(size: SizeReport) -> None:
    """A name of 40 letters along 2.6 in of an axis would reach into the next panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    cluster = size.options.cluster
    pools = {
        pool: dataclasses.replace(node, gpu=dataclasses.replace(node.gpu, name=letter * 40))
        for pool, node, letter in (("rollout", cluster.rollout, "x"), ("train", cluster.train, "y"))
    }
    options = dataclasses.replace(size.options, cluster=cluster.replace(**pools))
    other = dataclasses.replace(size, options=options)
    with drawing():
        figure = demand_figure(other)
        assert figure is not None
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        boxes = [axes.yaxis.label.get_window_extent(canvas.get_renderer()) for axes in figure.axes]
    top, bottom = boxes
    assert bottom.y0 >= 0
    assert top.y0 >= bottom.y1
    assert top.y1 <= figure.bbox.y1


def test_at_no_price_nothing_is_dedicated() -> None:
    """Jobs that share cost nothing at $0: that is no proof about nodes of async jobs."""
    free = trace_of(job_of("a", 60, 40, 1.5, duration_s=2 * HOUR))
    answer = " ".join(
        plan_answer(plan_trace(free, cluster=cluster_of(rollout_usd=0.0, train_usd=0.0)))
    )
    assert "none costs anything" in answer
    assert "dedicated" not in answer


def test_the_answer_of_drawn_replays_has_no_hours_of_one() -> None:
    """$/h times hours is $ for one replay, not for means over several."""
    jobs = production(n_jobs=12, seed=3)
    made = plan_trace(jobs, policy="random", baselines=(), seeds=(0, 1, 2))
    cost = plan_sections(made)[0].answer
    assert "means over 3 seeds" in cost
    assert " h (" not in cost
