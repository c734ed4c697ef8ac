"""Reports about planned traces: an ordinary one, and odd ones that a page must survive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from builders import cluster_of, job_of, trace_of
from instances.catalog import catalog_path
from instances.plan import Fleet
from instances.trace import Trace, read_trace
from planner.plan.planning import PlanReport, plan_trace
from planner.report.parts import Block, Chart, Folded, Rows, Section, charts_of

#: Characters of markup, of mathematics and of no alphabet, and a name nobody can show whole.
NAMES = ("<script>alert(1)</script>", "$a$ and $b_{", "x" * 300, "a\nb\x00\ud800")


def production(jobs: int) -> Trace:
    """Return the first jobs of the synthetic production trace."""
    trace = read_trace(catalog_path("production-200"))
    return dataclasses.replace(trace, jobs=trace.jobs.take(range(jobs)))


def ordinary() -> PlanReport:
    """Sixty synthetic jobs and three async ones, beside two baselines."""
    trace = production(60)
    modes = tuple("async" if i in (3, 30, 59) else mode for i, mode in enumerate(trace.jobs.mode))
    trace = dataclasses.replace(trace, jobs=trace.jobs.replace(mode=modes))
    return plan_trace(trace, baselines=("solo", "colocated"))


def _named() -> PlanReport:
    jobs = [
        job_of(name, 50, 20, arrival_s=10.0 * i, duration_s=9000) for i, name in enumerate(NAMES)
    ]
    return plan_trace(trace_of(*jobs), baselines=("solo",))


def _free() -> PlanReport:
    return plan_trace(
        production(6), baselines=("solo",), cluster=cluster_of(rollout_usd=0, train_usd=0)
    )


ODD: dict[str, Callable[[], PlanReport]] = {
    "one job": lambda: plan_trace(trace_of(job_of("a", 50, 20))),
    "all async": lambda: plan_trace(
        trace_of(job_of("a", 50, 20, mode="async"), job_of("b", 9, 9, arrival_s=5, mode="async")),
        baselines=("solo", "colocated"),
    ),
    "names": _named,
    "seeds": lambda: plan_trace(
        production(10), policy="random", baselines=("weave",), seeds=(7, 8, 9)
    ),
    "fleet": lambda: plan_trace(production(15), baselines=("solo",), fleet=Fleet(4, 3)),
    "moves": lambda: plan_trace(production(10), policy="repack", baselines=("weave",)),
    "no rollout nodes": lambda: plan_trace(production(8), policy="colocated"),
    "nothing costs anything": _free,
}


def section_of(sections: Sequence[Section], name: str) -> Section:
    """Return a section by its name."""
    return next(section for section in sections if section.name == name)


def tables_of(blocks: Sequence[Block]) -> list[Rows]:
    """Return all tables, folded ones too, in reading order."""
    out = []
    for block in blocks:
        if isinstance(block, Rows):
            out.append(block)
        elif isinstance(block, Folded):
            out += tables_of(block.blocks)
    return out


def chart_of(section: Section, name: str) -> Chart:
    """Return a chart of a section by its name."""
    return next(chart for chart in charts_of(section.blocks) if chart.name == name)
