"""Pages about one moment: its least-cost plan, and which running jobs to move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from instances.plan import GroupVersion, Plan
from instances.trace import Trace
from planner.repack.document import repack_document
from planner.repack.tables import moves_legend, moves_table, repack_heading, repack_lines
from planner.report.group_figures import MOST_GANTTS, group_chart
from planner.report.inputs_section import caveats, inputs_section, reproduce_section
from planner.report.parts import Block, Chart, Page, Picker, Section, Words
from planner.report.printed_tables import rows_of
from planner.snapshot.document import snapshot_document
from planner.snapshot.tables import (
    GROUPS_LEGEND,
    RATES_LEGEND,
    group_table,
    many,
    snapshot_heading,
    snapshot_lines,
)

if TYPE_CHECKING:
    from planner.repack.report import RepackReport
    from planner.snapshot.solving import SnapshotReport

__all__ = ["repack_page", "snapshot_page"]

#: Sentences of an answer that stand at the top of the page.
_LEAD: Final = 2


def snapshot_page(report: SnapshotReport, command: Sequence[str] = ()) -> Page:
    """Return the page of a snapshot: what is proven, and every group.

    Parameters
    ----------
    report : SnapshotReport
    command : sequence of str
        What the reader types to get the page again. Empty: made from Python.

    Returns
    -------
    Page
    """
    lines = tuple(snapshot_lines(report))
    sections = [Section("proof", "What is held, and what is proven", lines[0], _words(lines[1:]))]
    plan = report.plan
    if plan is not None and plan.groups:
        table = rows_of(
            group_table(report, plan.groups), title="Groups", caption=_groups_legend(report)
        )
        blocks = (_schedules(plan), table)
        sections.append(Section("groups", "Groups", _groups_answer(plan), blocks))
    limits = report.problem.snapshot.limits
    sections.append(inputs_section(_present(report), report.cluster, limits=limits))
    sections.append(reproduce_section(command, snapshot_document(report)["inputs"]))
    return Page(
        title="The least cost of one moment",
        subtitle=snapshot_heading(report),
        answer=(*lines[:_LEAD], *caveats(_present(report), report.cluster)),
        sections=tuple(sections),
    )


def repack_page(
    report: RepackReport, name: str, sha256: str | None, command: Sequence[str] = ()
) -> Page:
    """Return the page of a dry run: which moves pay, and the groups after them.

    Parameters
    ----------
    report : RepackReport
    name, sha256 : str
        Of the plan file.
    command : sequence of str
        What the reader types to get the page again. Empty: made from Python.

    Returns
    -------
    Page
    """
    lines = tuple(repack_lines(report))
    plan = report.plan
    blocks: list[Block] = [*_words(lines[1:])]
    if report.changes:
        blocks.append(
            rows_of(
                moves_table(report, report.changes),
                title="Moves that pay, by proposal",
                caption=" ".join(moves_legend(report, report.changes)),
            )
        )
    sections = [Section("moves", "Which jobs to move", lines[0], tuple(blocks))]
    if plan.groups:
        schedules = (_schedules(plan),)
        after = "Groups after the moves" if report.changes else "Groups"
        sections.append(Section("groups", after, _groups_answer(plan), schedules))
    running = report.running
    trace = Trace(name=name, sha256=sha256, jobs=running.jobs)
    sections.append(inputs_section(trace, plan.cluster, limits=running.plan.limits))
    inputs = repack_document(report, name, sha256)["inputs"]
    sections.append(reproduce_section(command, inputs))
    return Page(
        title="Which running jobs to move now",
        subtitle=repack_heading(report, name),
        # what the moves lead to comes first
        answer=(
            *((lines[1], lines[0]) if report.changes else lines[:_LEAD]),
            *caveats(trace, plan.cluster),
        ),
        sections=tuple(sections),
    )


def _words(lines: Sequence[str]) -> tuple[Words, ...]:
    return (Words(tuple(lines)),) if lines else ()


def _present(report: SnapshotReport) -> Trace:
    """Return the trace with the jobs of the moment alone."""
    return Trace(name=report.trace.name, sha256=report.trace.sha256, jobs=report.jobs)


def _groups_answer(plan: Plan) -> str:
    jobs = sum(len(group.placements) for group in plan.groups)
    sharing = sum(len(group.placements) for group in plan.groups if len(group.placements) > 1)
    return (
        f"{many(jobs, 'job')} in {many(len(plan.groups), 'group')}; {sharing:,} of them share "
        "their nodes with others."
    )


def _groups_legend(report: SnapshotReport) -> str:
    rates = report.problem.snapshot.limits.max_rate > 1
    return f"{GROUPS_LEGEND} {RATES_LEGEND}" if rates else GROUPS_LEGEND


def _schedules(plan: Plan) -> Picker:
    """Return the schedules of the groups with the most jobs, one shown at a time."""
    groups = sorted(plan.groups, key=lambda group: -len(group.placements))[:MOST_GANTTS]
    return Picker("groups", "Group", tuple(_options(plan, groups)))


def _options(plan: Plan, groups: Sequence[GroupVersion]) -> Iterator[tuple[str, Chart]]:
    for number, group in enumerate(groups, 1):
        usd = plan.cluster.usd_per_hour(len(group.rollout_nodes), len(group.train_nodes))
        place = (
            f"{many(len(group.placements), 'job')} on {len(group.rollout_nodes)}+"
            f"{len(group.train_nodes)} nodes, period {group.period_s:,.0f} s"
        )
        jobs = ", ".join(placement.job_id for placement in group.placements)
        chart = group_chart(
            plan,
            group,
            name=f"group-{number}",
            alt=f"{place}, ${usd:,.2f}/h. Jobs: {jobs}.",
            caption=f"Its nodes cost ${usd:,.2f}/h.",
        )
        yield f"{group.group_id}: {place}", chart
