"""Tables and sentences about a fixed fleet: how long jobs wait, and what owning it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from instances.plan import Fleet
from planner.output.fitting_tables import bare_table
from planner.plan.planning import PlanReport
from planner.replay.replaying import Convention, ReplayResult

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "fleet_usd_per_hour",
    "shown_wait",
    "waiting_cells",
    "waiting_columns",
    "waiting_sentences",
    "waiting_table",
    "waiting_title",
]

_HOUR_S: Final = 3600.0
_MINUTE_S: Final = 60.0


def fleet_usd_per_hour(result: ReplayResult) -> float:
    """Return the price of the whole fleet, used or not, $/h."""
    fleet = result.fleet
    assert fleet is not None
    return result.cluster.usd_per_hour(fleet.rollout_nodes, fleet.train_nodes)


def shown_wait(seconds: float) -> str:
    """Return a time with its unit; none is rounded to 0 that is not."""
    if seconds >= _HOUR_S:
        return f"{seconds / _HOUR_S:,.1f} h"
    if seconds >= _MINUTE_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{max(seconds, 1.0):.0f} s" if seconds > 0 else "0"


def _share(share: float) -> str:
    """Return a share of jobs without rounding a miss up to 100 %."""
    return "100%" if share == 1 else f"{min(100 * share, 99.9):.1f}%"


def _nodes(fleet: Fleet, result: ReplayResult) -> str:
    """Return the nodes and GPUs of a fleet in words."""
    parts = []
    for count, node in (
        (fleet.rollout_nodes, result.cluster.rollout),
        (fleet.train_nodes, result.cluster.train),
    ):
        gpus = count * node.gpus_per_node
        parts.append(f"{count} {node.gpu.name} node{'s' * (count != 1)} ({gpus} GPUs)")
    return " and ".join(parts)


def waiting_sentences(result: ReplayResult) -> list[str]:
    """Return how long jobs wait for the fleet, and what it costs to own it."""
    fleet = result.fleet
    if fleet is None:
        return []
    hold, hours = fleet_usd_per_hour(result), result.horizon_h
    lines = [
        f"Owning {_nodes(fleet, result)} costs ${hold:,.2f}/h, ${hold * hours:,.0f} over the "
        f"{hours:,.1f} h until the last job is done, whether the nodes are used or not."
    ]
    if result.admitted_at_once == 1:
        return [*lines, "No job waits for this fleet."]
    waits = [shown_wait(result.wait_quantile(share)) for share in (0.5, 0.95, 1.0)]
    lines.append(
        f"{_share(result.admitted_at_once)} of the jobs start at once ({result.queue} queue). "
        f"They wait {waits[0]} at the median, {waits[1]} at p95 and {waits[2]} at most; SLO met "
        f"with waiting counted: {_share(result.slo_attainment_with_wait)}."
    )
    return lines


def waiting_title(report: PlanReport, convention: Convention) -> str:
    """Return what the waits are for."""
    options = report.options
    return f"Waiting for {options.fleet} ({options.queue} queue, {convention})"


def waiting_columns() -> tuple[tuple[str, str], ...]:
    """Return the headings of :func:`waiting_cells`: one for narrow tables, one in full."""
    return (
        ("policy", "policy"),
        ("start\nat once", "start at once, % of jobs"),
        ("wait\np50", "wait at p50"),
        ("wait\np95", "wait at p95"),
        ("wait\nmax", "longest wait"),
        ("SLO met,\nwaits in", "SLO met with waits counted, % of jobs"),
        ("$ to own\nthe fleet", "owning the fleet, $"),
    )


def waiting_cells(report: PlanReport, name: str, convention: Convention) -> tuple[str, ...]:
    """Return the waits of a policy on the fleet; means over seeds, but the longest wait."""

    def mean(value: Callable[[ReplayResult], float]) -> float:
        return report.mean(name, convention, value).mean

    return (
        name,
        _share(mean(lambda r: r.admitted_at_once)),
        shown_wait(mean(lambda r: r.wait_quantile(0.5))),
        shown_wait(mean(lambda r: r.wait_quantile(0.95))),
        shown_wait(max(r.wait_quantile(1.0) for r in report.runs(name, convention))),
        _share(mean(lambda r: r.slo_attainment_with_wait)),
        f"{mean(lambda r: fleet_usd_per_hour(r) * r.horizon_h):,.0f}",
    )


def waiting_table(report: PlanReport, convention: Convention) -> Table:
    """Return the waits of every policy on the fleet."""
    table = bare_table(waiting_title(report, convention))
    table.add_column("policy", no_wrap=True)
    for heading, _ in waiting_columns()[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for name in report.results[convention]:
        table.add_row(
            *waiting_cells(report, name, convention), style="bold" if name == report.policy else ""
        )
    return table
