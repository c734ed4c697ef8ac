"""What a report assumes, what nobody measured, and how to get it again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from builders import cluster_of, job_of, trace_of
from instances.catalog import catalog_path
from instances.hardware import DEFAULT_CLUSTER, Links
from instances.plan import Limits
from instances.trace import read_trace
from plan_report_cases import production, tables_of
from planner.plan.document import inputs_document, plan_document
from planner.plan.planning import plan_trace
from planner.report.inputs_section import caveats, inputs_section, reproduce_section
from planner.report.page import render
from planner.report.parts import Code, Page, Section, Words


def _text(section: Section) -> str:
    words = [p for block in section.blocks if isinstance(block, Words) for p in block.paragraphs]
    return " ".join((section.answer, *words))


def test_prices_and_estimates_are_named_with_their_counts() -> None:
    trace = production(10)
    estimated = dict(trace.jobs.estimated)
    estimated["sync_s"] = np.arange(10) < 4
    trace = dataclasses.replace(trace, jobs=trace.jobs.replace(estimated=estimated))
    section = inputs_section(trace, DEFAULT_CLUSTER)
    assert "$1.85 and $5.28 a GPU-hour: put in your own" in section.answer
    assert "phases are synthetic" in section.answer
    counts = {row[0]: row[1:] for row in tables_of(section.blocks)[-1].rows}
    assert set(counts) == set(trace.jobs.estimated_columns())
    assert counts["sync_s"] == ("4", "40.0")
    assert counts["train_state_gb"] == ("10", "100.0")
    node = next(row for row in tables_of(section.blocks)[0].rows if row[0] == "train")
    assert node == ("train", "H800", "5.28", "8", "42.24", "2,000")  # 8 x $5.28


def test_measured_traces_say_so() -> None:
    section = inputs_section(trace_of(job_of("a", 50, 20)), DEFAULT_CLUSTER)
    assert "no column of 1 job is estimated and no column is marked synthetic" in section.answer
    assert len(tables_of(section.blocks)) == 2


def test_distributions_are_values_of_jobs() -> None:
    # twenty jobs of 10, 20, .. 200 s: 95 % of them, nineteen, take 190 s or less; half, ten, 100 s
    jobs = [job_of(f"j{i}", 10.0 * i, 5, duration_s=3600.0 * i) for i in range(1, 21)]
    table = tables_of(inputs_section(trace_of(*jobs), DEFAULT_CLUSTER).blocks)[1]
    rows = {row[0].split(":")[0]: row[1:] for row in table.rows}
    assert rows["rollout_s"] == ("10.0", "100.0", "190.0", "200.0")
    assert rows["duration_s"] == ("1.0", "10.0", "19.0", "20.0")
    assert rows["rollout_nodes"] == ("1", "1", "1", "1")


def test_guesses_and_limits_are_stated() -> None:
    trace = trace_of(job_of("a", 50, 20))
    limits = Limits(max_group_size=3, max_train_nodes=2, max_rate=4)
    text = _text(inputs_section(trace, DEFAULT_CLUSTER, limits=limits, colocated_factor=1.25))
    assert "one per 16 nodes of the larger pool, a guess" in text
    assert "at most 3 jobs, at most 2 train nodes, at most 4 iterations" in text
    assert "1.25 x their time alone" in text
    counted = DEFAULT_CLUSTER.replace(links=Links(links=7))
    assert "links: 7." in _text(inputs_section(trace, counted))


def test_the_command_is_quoted_and_has_no_folders() -> None:
    report = plan_trace(production(5), baselines=("random",), seeds=(3, 4))
    inputs = plan_document(report)["inputs"]
    command = [
        "/usr/local/bin/planner", "plan", "--trace", "/home/me/my trace.csv",
        "--out=C:\\work\\out", "--limits", "5",
    ]  # fmt: skip
    section = reproduce_section(command, inputs)
    codes = [block.text for block in section.blocks if isinstance(block, Code)]
    assert codes == [
        "planner plan --trace 'my trace.csv' --out=out --limits 5",
        "planner check plan.json",
    ]
    facts = {row[0]: row[1] for row in tables_of(section.blocks)[0].rows}
    assert facts["sha256"] == report.trace.sha256
    assert facts["seed"] == "[3, 4]"
    assert f"numpy {np.__version__}" in facts["versions"]
    options = {row[0]: row[1] for row in tables_of(section.blocks)[1].rows}
    assert options["max_group_size"] == "5"
    assert options["max_rollout_nodes"] == "null"


@pytest.mark.parametrize("command", [["planner", "size", "--trace", "plan"], ["planner", "gap"]])
def test_only_a_plan_is_checked(command: list[str]) -> None:
    trace = dataclasses.replace(trace_of(job_of("a", 50, 20)), sha256=None)
    section = reproduce_section(command, inputs_document(trace))
    assert len([block for block in section.blocks if isinstance(block, Code)]) == 1
    assert section.answer == "The same job and versions give the same figures."


def test_hostile_names_stay_words() -> None:
    trace = dataclasses.replace(trace_of(job_of("a", 50, 20)), name="<b>$x$.csv")
    sections = (
        inputs_section(trace, DEFAULT_CLUSTER),
        reproduce_section(["plan", "--trace", "<b>$x$.csv"], inputs_document(trace)),
    )
    page = render(Page("Odd", ("x",), sections))
    assert "<b>$x$" not in page
    assert "&lt;b&gt;$x$.csv" in page


def test_the_head_of_a_page_says_what_nobody_measured() -> None:
    """Shipped: drawn phases, six estimated columns, default rents. Measured, at own rents: none."""
    shipped = read_trace(catalog_path("production-200"))
    assert caveats(shipped, DEFAULT_CLUSTER) == (
        "Mind: phases are synthetic, 6 columns hold estimates and rents are defaults, from a "
        "secondary report; see Assumptions and inputs.",
    )
    own = cluster_of(rollout_usd=8.0)
    measured = trace_of(job_of("a", 10, 10))
    assert caveats(measured, own) == ()
    assert caveats(measured, DEFAULT_CLUSTER) == (
        "Mind: rents are defaults, from a secondary report; see Assumptions and inputs.",
    )


def test_the_head_of_a_page_asks_about_jobs_shorter_than_an_iteration() -> None:
    """10 s of an iteration of 20 s, at own rents: hours typed as seconds, perhaps."""
    short = trace_of(job_of("a", 10, 10, duration_s=10.0))
    (asked,) = caveats(short, cluster_of(rollout_usd=8.0))
    assert asked.startswith("Mind: 1 of 1 jobs is shorter than one iteration (a: duration_s 10")
