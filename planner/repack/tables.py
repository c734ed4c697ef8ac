"""What ``planner repack`` prints: prices in sentences, and a table of the moves that pay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from models.bounds.volume import VOLUME
from models.problem.result import proved
from models.problem.snapshot import FleetCaps
from planner.placement.group_state import GroupState
from planner.plan.tables import data_notes
from planner.repack.dry_run import Move, ProposedChange
from planner.repack.report import RepackReport
from planner.repack.running_plan import Reason
from planner.snapshot.tables import many, rounded_up, scope_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["moves_legend", "moves_table", "print_repack", "repack_heading", "repack_lines"]

_HOUR_S: Final = 3600.0
#: Job ids and moves up to this long are not folded, however narrow the terminal.
_ID_WIDTH: Final = 10
_WAY_WIDTH: Final = 12
#: Jobs and groups that a sentence names; all are counted, and in --json.
_MOST_NAMED: Final = 6
#: Changes beyond which only so many are printed.
_MOST_CHANGES: Final = 40
_WHY: Final[dict[Reason, str]] = {
    "freeze": "on the freeze list",
    "restarting": "restarting from an earlier move",
    "moves-per-day": "out of moves for today",
    "slo-credit": "ahead of the SLO by less than a restart",
    "payback": "too slow to earn a restart back while a saving lasts",
}
_LEGEND: Final = (
    "pause: the moved job restarts, without progress. lasts: how long the saving is taken to last. "
    "cost: nodes paid for in pauses and overlaps. net: saving x lasts - cost. A proposal is made "
    "whole or not at all, and after those it is said to follow."
)
_PINS_LEGEND: Final = "pins: to other nodes of its own group."
_AHEAD_LEGEND: Final = "ahead: how far the job is ahead of its SLO; a move takes its restart of it."
_BACK_LEGEND: Final = "back: until the job has earned its restart back at its present pace."


def _dollars(usd: float) -> str:
    return f"{usd:,.2f}"


def _money(usd: float) -> str:
    """Return an amount for a cell: cents below 1,000, none above."""
    return f"{usd:,.2f}" if abs(usd) < 1000 else f"{usd:,.0f}"


def _named(ids: Sequence[str]) -> str:
    """Return the first ids of a list, and that there are more."""
    shown = ", ".join(ids[:_MOST_NAMED])
    return f"{shown} and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else shown


# --- sentences ----------------------------------------------------------------------------------


def repack_heading(report: RepackReport, name: str) -> str:
    """Return which moment of which plan."""
    running = report.running
    at = "" if running.moment_s is None else f" at {running.moment_s / _HOUR_S:,.2f} h"
    return (
        f"{name}{at}: {many(report.jobs_in_groups, 'job')} in "
        f"{many(len(running.groups), 'group')}; a dry run, nothing is moved"
    )


def _nodes(report: RepackReport, nodes: dict[str, int]) -> str:
    cluster = report.running.plan.cluster
    rollout = many(nodes["rollout"], f"{cluster.rollout.gpu.name} node")
    return f"{rollout} and {many(nodes['train'], f'{cluster.train.gpu.name} node')}"


def _prices(report: RepackReport) -> Iterator[str]:
    """Yield the price now, and after the moves proposed."""
    before, after = report.usd_per_hour_before, report.usd_per_hour_after
    yield f"Now ${_dollars(before)}/h: {_nodes(report, report.nodes_before)}."
    if not report.changes:
        return
    moves, gain = report.moves, sum(change.gain_usd for change in report.changes)
    percent = f" ({100 * (1 - after / before):.1f}% less)" if before else ""
    yield (
        f"After {many(len(moves), 'move')} ${_dollars(after)}/h{percent}: "
        f"{_nodes(report, report.nodes_after)}."
    )
    yield (
        f"The moves cost {report.hours_lost:.2f} job-hours of progress and earn "
        f"${_dollars(gain)} net."
    )


def _least(report: RepackReport) -> Iterator[str]:
    """Yield the least price that is proven, and how far now and after are from it."""
    least, limits = report.least, report.running.plan.limits
    bound = least.bound_usd_per_hour
    if bound is None:
        yield "No bound of the least price was proved."
        return
    who = f"{VOLUME} bound" if least.method == VOLUME else least.method
    what = "The least price is" if least.proved else "No price is below"
    text = f"{what} ${_dollars(bound)}/h {scope_words(limits, FleetCaps())} ({who})"
    if bound > 0:
        text += f": now is {rounded_up(report.usd_per_hour_before / bound)} x it"
        if report.changes:
            text += f", after the moves {rounded_up(report.usd_per_hour_after / bound)} x"
    yield f"{text}."


def _why_none(report: RepackReport) -> Iterator[str]:
    """Yield why no move pays."""
    if report.changes:
        return
    if proved(report.usd_per_hour_before, report.least.bound_usd_per_hour):
        yield "No move can pay: now is the least price."
        return
    yield "No move pays now."
    nearest = report.nearest
    if nearest is None:
        if len(report.immovable) == report.jobs_in_groups:
            yield "No job may move."
        elif report.stopped or report.searches_cut_short or report.nearest_cut_short:
            yield "None was found before the search ended."
        else:
            yield "No change of the jobs that may move lowers the price."
        return
    moves = ", ".join(f"{m.job_id}: {m.from_group} -> {m.to_group}" for m in nearest.moves)
    asked = nearest.cost_usd + nearest.least_gain_usd
    yield (
        f"Nearest: {moves} saves ${_dollars(nearest.saving_usd_per_hour)}/h and costs "
        f"${_dollars(nearest.cost_usd)}."
    )
    earns = f"to earn ${_dollars(asked)}" if nearest.least_gain_usd else "to earn that back"
    if nearest.pays:
        yield (
            f"It would pay, but takes {many(len(nearest.moves), 'move')}; --moves allows "
            f"{report.most_moves}."
        )
    else:
        yield (
            f"The saving would have to last {nearest.break_even_h:,.2f} h {earns}, and is taken "
            f"to last {nearest.lasting_h:,.2f} h."
        )


def _apart(report: RepackReport) -> Iterator[str]:
    """Yield who may not move, and what is left out."""
    if report.immovable:
        by_reason: dict[Reason, list[str]] = {}
        for job_id, reason in report.immovable.items():
            by_reason.setdefault(reason, []).append(job_id)
        parts = [
            f"{len(by_reason[reason])} {words} ({_named(by_reason[reason])})"
            for reason, words in _WHY.items()
            if reason in by_reason
        ]
        yield (
            f"{len(report.immovable)} of {many(report.jobs_in_groups, 'job')} may not move: "
            f"{'; '.join(parts)}."
        )
    dedicated = report.running.dedicated
    if dedicated:
        held = report.running.dedicated_nodes
        usd = report.running.plan.cluster.usd_per_hour(held["rollout"], held["train"])
        yield (
            f"{many(len(dedicated), 'async job')} on {held['rollout']} + {held['train']} "
            f"dedicated nodes (${_dollars(usd)}/h, in every price above) never move"
            f"{'s' * (len(dedicated) == 1)}."
        )


# --- the table ----------------------------------------------------------------------------------


def moves_table(report: RepackReport, changes: Sequence[ProposedChange]) -> Table:
    """Return the table: one block a proposal, one row a move, totals last."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("#", justify="right", no_wrap=True)
    longest = max(len(move.job_id) for move in report.moves)
    table.add_column("job", overflow="fold", min_width=min(longest, _ID_WIDTH))
    widest = max(len(_way(move)) for move in report.moves)
    table.add_column("move", overflow="fold", min_width=min(widest, _WAY_WIDTH))
    known = report.running.ledger.known
    for header in (
        "pause\ns", "ahead\nh" if known else "back\nh", "saves\n$/h", "lasts\nh", "cost\n$",
        "net\n$", "a move\n$",
    ):  # fmt: skip
        table.add_column(header, justify="right", no_wrap=True)
    for number, change in enumerate(changes, start=1):
        for i, move in enumerate(change.moves):
            cells = [
                "" if i else f"{number}",
                move.job_id,
                _way(move),
                f"{move.restart_s:,.0f}",
                _pace(move),
                *(_figures(change) if i == 0 else [""] * 5),
            ]
            table.add_row(*map(Text, cells), end_section=i == len(change.moves) - 1)
    if len(report.changes) > 1:
        table.add_row(*map(Text, _totals(report)))
    return table


def _way(move: Move) -> str:
    """Return where a job goes: to another group, or to other nodes of its own."""
    if move.from_group == move.to_group:
        return f"{move.to_group} pins"
    return f"{move.from_group} -> {move.to_group}"


def _pace(move: Move) -> str:
    seconds = move.payback_s if move.credit_s is None else move.credit_s
    return "-" if seconds is None else f"{seconds / _HOUR_S:,.1f}"


def _figures(change: ProposedChange) -> list[str]:
    return [
        _money(change.saving_usd_per_hour),
        f"{change.lasting_h:,.{0 if change.lasting_h >= 1000 else 1}f}",
        _money(change.cost_usd),
        _money(change.gain_usd),
        _money(change.gain_usd / len(change.moves)),
    ]


def _totals(report: RepackReport) -> list[str]:
    gain = sum(change.gain_usd for change in report.changes)
    return [
        "",
        "all",
        many(len(report.moves), "move"),
        f"{sum(move.restart_s for move in report.moves):,.0f}",
        "",
        _money(report.usd_per_hour_before - report.usd_per_hour_after),
        "",
        _money(sum(change.cost_usd for change in report.changes)),
        _money(gain),
        _money(gain / len(report.moves)),
    ]


def _groups(change: ProposedChange, number: int) -> str:
    """Return the groups of a proposal, before and after."""

    def words(states: Sequence[GroupState]) -> str:
        return " + ".join(
            f"{change.names[s.number]} ({many(len(s.jobs), 'job')}, "
            f"{len(s.rollout_nodes)}+{len(s.train_nodes)})"
            for s in sorted(states, key=lambda state: state.number)
        )

    needs = f" (after {', '.join(map(str, change.needs))})" if change.needs else ""
    return f"{number}{needs}: {words(change.before)} -> {words(change.after)}"


def repack_lines(report: RepackReport) -> Iterator[str]:
    """Yield the answer in sentences: prices, what is proven, why none pays, who may not move."""
    for lines in (_prices, _least, _why_none, _apart):
        yield from lines(report)


def moves_legend(report: RepackReport, changes: Sequence[ProposedChange]) -> Iterator[str]:
    """Yield what the columns of the table of these changes are."""
    yield _LEGEND
    yield _AHEAD_LEGEND if report.running.ledger.known else _BACK_LEGEND
    if any(move.from_group == move.to_group for change in changes for move in change.moves):
        yield _PINS_LEGEND


def print_repack(report: RepackReport, name: str, console: Console) -> None:
    """Print prices, the moves that pay, and who may not move.

    Parameters
    ----------
    name : str
        Of the plan file.
    """
    console.print(repack_heading(report, name), style="bold", markup=False)
    for line in repack_lines(report):
        console.print(line, markup=False)
    if report.changes:
        shown = report.changes[:_MOST_CHANGES]
        console.print(moves_table(report, shown))
        console.print("Groups before -> after (jobs, rollout+train nodes):", markup=False)
        for number, change in enumerate(shown, start=1):
            console.print(_groups(change, number), markup=False)
        if len(shown) < len(report.changes):
            console.print(
                f"The first {len(shown)} proposals of {len(report.changes)}; all are in moves.csv "
                "(--out) and in --json.",
                markup=False,
            )
        for line in moves_legend(report, shown):
            console.print(line, style="dim", markup=False)
    for note in data_notes(report.running.jobs):
        console.print(note, style="dim", markup=False)
