"""What ``planner snapshot`` prints: what is proven in sentences, and a table of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from instances.plan import GroupVersion, JobPlacement, Limits
from models.problem.result import StoppedBy, Termination
from models.problem.snapshot import FleetCaps
from planner.output.terminal import with_options
from planner.placement.group_rules import rule_words, tightest, utilisation
from planner.plan.tables import data_notes
from planner.replay.iterations import iteration_seconds
from planner.snapshot.solving import AUTO, SnapshotReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "GROUPS_LEGEND",
    "RATES_LEGEND",
    "group_table",
    "many",
    "print_snapshot",
    "rounded_up",
    "scope_words",
    "snapshot_heading",
    "snapshot_lines",
]

_HOUR_S: Final = 3600.0
_STOPPED: Final[dict[StoppedBy, str]] = {
    StoppedBy.TIME: "the time limit",
    StoppedBy.NODES: "the node limit",
    StoppedBy.WORK: "the work limit",
    StoppedBy.INTERRUPT: "Ctrl-C",
    StoppedBy.GRID: "the finest time grid",
    StoppedBy.SEARCH: "its own rule (nothing cheaper for long, or nothing left to do)",
    StoppedBy.SIZE: "the number of candidate groups",
}
GROUPS_LEGEND: Final = (
    "R: rollout nodes, T: train nodes; pins: which of its group's a job uses. tightest rule: the "
    "one nearest its limit, the least deadline in the group or the host DRAM; slack: what is left "
    "of that limit. busy: share of node time in which a phase runs."
)
#: Limits that an explanation may name; each is an option of the command.
_LIMITS: Final = (
    "max_group_size",
    "max_rate",
    "max_rollout_nodes",
    "max_rollout_nodes_total",
    "max_train_nodes",
    "max_train_nodes_total",
)
#: Groups beyond which only so few are printed.
_MOST_GROUPS: Final = 40
_FEW_GROUPS: Final = 10
#: Job ids up to this long are not folded, however narrow the terminal.
_ID_WIDTH: Final = 10
RATES_LEGEND: Final = (
    "k: iterations a period. mean/worst: iteration time over the job's deadline; the SLO is "
    "about the mean, a single iteration may take longer."
)


def many(number: int, word: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def scope_words(limits: Limits, caps: FleetCaps) -> str:
    """Return which plans a bound holds for."""
    parts = []
    if limits.max_group_size:
        parts.append(many(limits.max_group_size, "job"))
    for pool, most in (("rollout", limits.max_rollout_nodes), ("train", limits.max_train_nodes)):
        if most is not None:
            parts.append(many(most, f"{pool} node"))
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    words = f"with groups of at most {listed}" if parts else "with groups of any size"
    most = limits.max_rate
    words += f" and {'one iteration' if most == 1 else f'up to {most} iterations'} a period"
    return f"{words}, within the fleet caps," if caps.any else words


# --- sentences ----------------------------------------------------------------------------------


def snapshot_heading(report: SnapshotReport) -> str:
    """Return which jobs of which trace, and the method."""
    problem = report.problem
    n, total = len(report.jobs), len(report.trace.jobs)
    if problem.moment_s is None:
        who = f"all {many(n, 'job')}"
    else:
        peak = " (peak)" if problem.selection.kind == "peak" else ""
        who = f"{n:,} of {many(total, 'job')} present at {problem.moment_s / _HOUR_S:,.2f} h{peak}"
    auto = f" ({AUTO})" if report.asked == AUTO else ""
    return f"{report.trace.name}: {who}, method {report.result.method}{auto}"


def _prover(report: SnapshotReport) -> str:
    """Return who proved the bound, with the solver where there was one."""
    result = report.result
    if report.bound_method != result.method:
        return f"{report.bound_method} bound"
    if result.solver is None:
        return result.method
    return f"{result.method}, {result.solver.name} {result.solver.version}"


def _fleet(report: SnapshotReport) -> str:
    nodes, plan = report.nodes, report.plan
    assert nodes is not None
    assert plan is not None
    parts = []
    for pool, node in (("rollout", report.cluster.rollout), ("train", report.cluster.train)):
        gpus = nodes[pool] * node.gpus_per_node
        parts.append(f"{many(nodes[pool], f'{node.gpu.name} node')} ({gpus:,} GPUs)")
    return (
        f"{parts[0]} and {parts[1]} in {many(len(plan.groups), 'group')} cost "
        f"${report.usd_per_hour:,.2f}/h."
    )


def _proven(report: SnapshotReport) -> Iterator[str]:
    """Yield why the method stopped, and what is proven about the least cost."""
    result, scope = report.result, scope_words(report.problem.snapshot.limits, report.problem.caps)
    if result.termination is Termination.OPTIMAL:
        yield f"Proven least: no valid plan {scope} costs less ({_prover(report)})."
        return
    if result.termination is Termination.ERROR:
        status = "" if result.solver is None else f" ({result.solver.status})"
        yield f"The solver failed{status}; what is held was checked all the same."
    elif result.stopped_by is not None:
        yield f"Stopped by {_STOPPED[result.stopped_by]}: not proven to be the least."
    bound, ratio = report.bound_usd_per_hour, report.ratio
    if bound is None:
        yield "No bound was proved."
        return
    text = f"Proven: no valid plan {scope} costs less than ${bound:,.2f}/h ({_prover(report)})"
    if ratio is not None:
        text += f", so this one costs at most {rounded_up(ratio)} x the least"
    yield f"{text}."


def rounded_up(ratio: float) -> str:
    """Return a ratio with three decimals, never rounded down to one that is not proven."""
    return f"{-(-round(ratio * 1000, 6) // 1) / 1000:.3f}"


def _against(report: SnapshotReport) -> Iterator[str]:
    """Yield what each job alone costs, and what the placer pays for the same jobs."""
    solo, saving, placer = report.solo_usd_per_hour, report.saving, report.placer_usd_per_hour
    if saving is None or report.usd_per_hour is None:
        return
    text = f"Each job on nodes of its own costs ${solo:,.2f}/h"
    percent = 100 * (1 - 1 / saving)
    if round(percent, 1) == 0:
        yield f"{text}: as much."
    else:
        yield f"{text}: sharing saves {percent:.1f}% ({saving:.2f} x)."
    if placer is not None:
        yield (
            f"The placer, in order of arrival, pays ${placer:,.2f}/h for the same jobs "
            f"({placer / report.usd_per_hour:.2f} x)."
        )


def _apart(report: SnapshotReport) -> Iterator[str]:
    """Yield what is counted apart: dedicated nodes, and the links between the clusters."""
    dedicated = report.problem.dedicated
    if dedicated:
        held = report.problem.dedicated_nodes
        yield (
            f"{many(len(dedicated), 'async job')} hold{'s' * (len(dedicated) == 1)} "
            f"{held['rollout']} + {held['train']} dedicated nodes for "
            f"${report.dedicated_usd_per_hour:,.2f}/h: in nodes, cost and bound above, not in "
            f"cost over bound."
        )
    links, used = report.links, report.link_utilisation
    if links is not None and used is not None:
        guess = "" if report.cluster.links.links is not None else " (one per 16 nodes, a guess)"
        yield (
            f"Sync uses {100 * used:.0f}% of {many(links, 'link')} of "
            f"{report.cluster.links.inter_gbps:g} Gb/s between the clusters{guess}."
        )


def _no_plan(report: SnapshotReport) -> Iterator[str]:
    """Yield why no plan is held, and what would cure it."""
    result = report.result
    scope = scope_words(report.problem.snapshot.limits, report.problem.caps)
    if result.termination is not Termination.INFEASIBLE:
        yield "No plan is held: none was found before the method stopped."
        yield from _proven(report)
        return
    yield f"Proven: no valid plan {scope} exists."
    if result.conflict is None:
        return
    yield with_options(result.conflict.message, _LIMITS)
    if result.conflict.relaxations:
        alone = "Any one of these cures it" if len(result.conflict.relaxations) > 1 else "Cure"
        yield f"{alone}:"
        yield from (f"- {with_options(text, _LIMITS)}" for text in result.conflict.relaxations)


def snapshot_lines(report: SnapshotReport) -> Iterator[str]:
    """Yield the answer in sentences: what is held and proven, or why there is no plan."""
    if report.plan is None:
        yield from _no_plan(report)
        return
    yield _fleet(report)
    for lines in (_proven, _against, _apart):
        yield from lines(report)


def print_snapshot(report: SnapshotReport, console: Console) -> None:
    """Print what is proven, and the groups of the plan held."""
    console.print(snapshot_heading(report), style="bold", markup=False)
    for line in snapshot_lines(report):
        console.print(line, markup=False)
    if report.plan is None:
        return
    if report.plan.groups:
        shown = _shown(report, report.plan.groups)
        console.print(group_table(report, shown))
        if len(shown) < len(report.plan.groups):
            console.print(
                f"The {len(shown)} groups with the least slack of {len(report.plan.groups):,}; all "
                "are in plan.json (--out) and in --json.",
                markup=False,
            )
        console.print(GROUPS_LEGEND, style="dim", markup=False)
        if report.problem.snapshot.limits.max_rate > 1:
            console.print(RATES_LEGEND, style="dim", markup=False)
    for note in data_notes(report.jobs):
        console.print(note, style="dim", markup=False)


# --- the table ----------------------------------------------------------------------------------


def _ranges(nodes: Sequence[int]) -> str:
    """Return ``0-2,5`` for the nodes 0, 1, 2 and 5."""
    out: list[list[int]] = []
    for node in sorted(nodes):
        if out and node == out[-1][1] + 1:
            out[-1][1] = node
        else:
            out.append([node, node])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def _shown(report: SnapshotReport, groups: Sequence[GroupVersion]) -> Sequence[GroupVersion]:
    """Return the groups to print: all, or of very many those nearest a limit."""
    if len(groups) <= _MOST_GROUPS:
        return groups
    slack = {g.group_id: tightest(g, report.jobs, report.cluster).slack for g in groups}
    return sorted(groups, key=lambda group: slack[group.group_id])[:_FEW_GROUPS]


def group_table(report: SnapshotReport, groups: Sequence[GroupVersion]) -> Table:
    """Return the table: one block a group, one row a job."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("group", no_wrap=True)
    longest = max(len(placement.job_id) for group in groups for placement in group.placements)
    table.add_column("job", overflow="fold", min_width=min(longest, _ID_WIDTH))
    table.add_column("pins\nR|T", overflow="fold")
    rates = report.problem.snapshot.limits.max_rate > 1
    if rates:
        for header in ("k", "mean/\nworst"):
            table.add_column(header, justify="right", no_wrap=True)
    deadline = dict(zip(report.jobs.job_id, report.jobs.deadline_s.tolist(), strict=True))
    for header in ("nodes\nR+T", "period\ns"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("tightest\nrule", overflow="fold")
    for header in ("slack", "busy\nR/T"):
        table.add_column(header, justify="right", no_wrap=True)
    for group in groups:
        rule = tightest(group, report.jobs, report.cluster)
        busy = utilisation(group, report.jobs)
        cells = [
            f"{len(group.rollout_nodes)}+{len(group.train_nodes)}",
            f"{group.period_s:,.1f}",
            rule_words(rule, node=""),
            f"{100 * max(rule.slack, 0.0):.1f}%",
            f"{100 * busy['rollout']:.0f}/{100 * busy['train']:.0f}%",
        ]
        for i, placement in enumerate(group.placements):
            pins = f"{_ranges(placement.rollout_pins)}|{_ranges(placement.train_pins)}"
            row = ["" if i else group.group_id, placement.job_id, pins]
            if rates:
                row += _pace(placement, group.period_s, deadline[placement.job_id])
            row += [""] * len(cells) if i else cells
            last = i == len(group.placements) - 1
            table.add_row(*(Text(cell) for cell in row), end_section=last and len(groups) > 1)
    return table


def _pace(placement: JobPlacement, period_s: float, deadline_s: float) -> list[str]:
    """Return the rate of a job, and its mean and its worst iteration over its deadline."""
    worst = max(iteration_seconds(placement, period_s))
    mean = period_s / placement.rate
    return [f"{placement.rate}", f"{mean / deadline_s:.2f}/{worst / deadline_s:.2f}"]
