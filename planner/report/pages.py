"""Whole pages: what was found about a trace, what it rests on, and how to get it again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from planner.report.inputs_section import caveats, inputs_section, reproduce_section
from planner.report.parts import Page, Section, Words

if TYPE_CHECKING:
    from instances.hardware import Cluster
    from planner.gap.proving import GapReport
    from planner.plan.planning import PlanReport
    from planner.simulate.simulating import SimulationReport
    from planner.size.report import SizeReport

__all__ = ["answer_of", "page_of"]

#: Sentences of an answer that its own first section gives whole.
_LEAD: Final = 2
#: Between two sentences of our own; "1.5 x" and "28 + 16" have none.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")

_TITLES: Final = {
    "size": "How many GPUs to own, and to rent",
    "plan": "A plan, and what it costs",
    "gap": "How far from the least cost",
    "simulation": "What happens at run time",
}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The reports of one page, on the same trace."""

    plan: PlanReport | None
    gap: GapReport | None
    size: SizeReport | None
    simulation: SimulationReport | None


def page_of(
    *,
    command: Sequence[str] = (),
    plan: PlanReport | None = None,
    gap: GapReport | None = None,
    size: SizeReport | None = None,
    simulation: SimulationReport | None = None,
    missing: Mapping[str, str] | None = None,
) -> Page:
    """Return the page of one report or of several on the same trace.

    Parameters
    ----------
    command : sequence of str
        What the reader types to get the page again, without folders. Empty: made from Python.
    plan, gap, size, simulation
        At least one report.
    missing : mapping of str to str, optional
        Parts that were asked for and have no report, and why.

    Returns
    -------
    Page
        What to own first, then the plan, its distance from the least, and run time.

    Raises
    ------
    ValueError
        When there is no report at all.
    """
    found = _Found(plan=plan, gap=gap, size=size, simulation=simulation)
    there = [(kind, report) for kind in _TITLES if (report := getattr(found, kind)) is not None]
    if not there:
        raise ValueError("Expected one report or more, got none.")
    kind, first = there[0]
    trace = first.trace
    sections = [*_sections(found), *_missing(missing or {})]
    sections.append(_inputs(found))
    sections.append(
        reproduce_section(
            command,
            _inputs_document(found),
            timed=gap is not None and "time" in gap.stopped_by,
        )
    )
    return Page(
        title=_TITLES[kind],
        subtitle=f"{trace.name}, {len(trace.jobs):,} job{'s' * (len(trace.jobs) != 1)}",
        answer=(
            *answer_of(plan=plan, gap=gap, size=size, simulation=simulation),
            *_interrupted(found),
            *caveats(trace, _cluster(found)),
        ),
        sections=tuple(sections),
    )


def _sections(found: _Found) -> Iterator[Section]:
    if found.size is not None:
        from planner.report.size_section import size_sections

        yield from size_sections(found.size)
    if found.plan is not None:
        from planner.report.plan_section import plan_sections

        yield from plan_sections(found.plan)
    if found.gap is not None:
        from planner.report.gap_section import gap_sections

        yield from gap_sections(found.gap)
    if found.simulation is not None:
        from planner.report.simulation_section import simulation_sections
        from planner.simulate.simulating import fullest_group_run

        ran = found.simulation.runtime is not None and found.simulation.interrupted is None
        run = fullest_group_run(found.simulation) if ran else None
        yield from simulation_sections(found.simulation, run=run)


def answer_of(
    *,
    plan: PlanReport | None = None,
    gap: GapReport | None = None,
    size: SizeReport | None = None,
    simulation: SimulationReport | None = None,
) -> tuple[str, ...]:
    """Return the answer of the first report, and how that of each other one begins.

    The very first is one sentence.
    """
    answers: list[tuple[str, ...]] = []
    if size is not None:
        from planner.report.size_section import size_answer
        from planner.size.words import proven_lines

        found = (*size_answer(size)[:_LEAD], *proven_lines(size))
        answers.append(tuple(dict.fromkeys(found)))
    if plan is not None:
        from planner.report.plan_section import plan_answer

        found = plan_answer(plan)
        if answers:  # its prices are those of renting all, beside the ones of owning and renting
            found = (_SENTENCE_END.split(found[0], maxsplit=1)[0],)
        answers.append(found)
    if gap is not None:
        from planner.report.gap_section import gap_answer

        first, *rest = gap_answer(gap)[:_LEAD]
        # the other answers are by the plan's convention
        answers.append((f"By {gap.convention} {first}" if answers else first, *rest))
    if simulation is not None:
        from planner.report.simulation_section import NOTHING, simulation_answer

        found = simulation_answer(simulation)[:_LEAD]
        if not answers or found != (NOTHING,):
            answers.append(found)
    first, *rest = answers[0]
    head, *tail = _SENTENCE_END.split(first, maxsplit=1)
    return (head, *tail, *rest, *(answer[0] for answer in answers[1:]))


def _interrupted(found: _Found) -> Iterator[str]:
    """Yield what Ctrl-C, or a signal, ended."""
    for report in (found.size, found.simulation):
        if report is not None and report.interrupted is not None:
            yield f"Interrupted in part {report.interrupted}: the rest of it is missing."
    gap = found.gap
    if gap is not None and gap.interrupted:
        yield f"Interrupted: {gap.n_unsolved:,} of {len(gap.rows):,} moments are not solved."


def _missing(missing: Mapping[str, str]) -> Iterator[Section]:
    if missing:
        words = Words(tuple(f"{part}: {why}" for part, why in missing.items()))
        answer = f"No answer was found on {', '.join(missing)}."
        yield Section("missing", "What is missing", answer, (words,))


def _cluster(found: _Found) -> Cluster:
    report = found.plan or found.size or found.simulation
    if report is not None:
        return report.options.cluster
    assert found.gap is not None
    return found.gap.result.cluster


def _inputs(found: _Found) -> Section:
    report = found.plan or found.size or found.simulation
    cluster = _cluster(found)
    if report is None:
        assert found.gap is not None
        return inputs_section(found.gap.trace, cluster, limits=found.gap.replayed.limits)
    policies = () if found.plan is None else (found.plan.policy, *found.plan.baselines)
    sized = () if found.size is None else tuple(row.name for row in found.size.demand)
    compared = "colocated" in (*policies, *sized)
    options = report.options
    return inputs_section(
        report.trace,
        cluster,
        limits=options.limits,
        colocated_factor=options.colocated_factor if compared else None,
    )


def _inputs_document(found: _Found) -> Mapping[str, Any]:
    """Return what identifies the input: ``inputs`` of the commands' JSON documents.

    Of several on one trace they differ in their options, and in the seed: none where nothing is
    drawn.
    """
    documents: dict[str, Mapping[str, Any]] = {}
    if found.plan is not None:
        from planner.plan.document import plan_document

        documents["plan"] = plan_document(found.plan)["inputs"]
    if found.size is not None:
        from planner.size.document import size_document

        documents["size"] = size_document(found.size)["inputs"]
    if found.gap is not None:
        from planner.gap.document import gap_document

        documents["gap"] = gap_document(found.gap)["inputs"]
    if found.simulation is not None:
        from planner.simulate.document import simulation_document

        documents["simulate"] = simulation_document(found.simulation)["inputs"]
    first, *others = documents.values()
    if not others:
        return first
    seeds = [inputs["seed"] for inputs in documents.values() if inputs.get("seed") is not None]
    options = {
        f"{command}: {name}": value
        for command, inputs in documents.items()
        for name, value in (inputs.get("options") or {}).items()
    }
    return {**first, "seed": seeds[0] if seeds else None, "options": options}
