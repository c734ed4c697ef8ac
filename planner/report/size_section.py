"""Sections on the size of the fleet: what to own and rent, what it costs, what changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.output.pictures import drawing
from planner.replay.demand import POOLS, Pool
from planner.report.parts import Block, Chart, Folded, Readout, Section, Series, Words
from planner.report.printed_tables import rows_of
from planner.size.change_figures import (
    change_figure,
    change_rows_shown,
    token_figure,
    worth_figure,
)
from planner.size.figures import (
    alternatives_figure,
    demand_figure,
    demand_rows_shown,
    fleet_figure,
    gpu_name,
    owned_curve,
    price_figure,
    uncertainty_figure,
)
from planner.size.price_map import price_map, price_map_figure
from planner.size.report import SizeReport
from planner.size.tables import (
    DEMAND_NOTE,
    VOLUME_NOTE,
    alternatives_table,
    assured_line,
    capex_line,
    change_line,
    change_notes,
    changes_table,
    demand_table,
    frontier_table,
    guessed_tokens,
    is_shown,
    periods_line,
    split_table,
    staged_lines,
    tokens_table,
    uncertainty_legend,
    uncertainty_table,
    wait_lines,
)
from planner.size.words import (
    assumption_lines,
    change_words,
    duration,
    fleet_lines,
    loss_line,
    price_lines,
    recommendation,
    signed_percent,
    worth_lines,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.size.plan_at import PlanAtRow
    from planner.size.what_changes import ChangeRow

__all__ = ["missing_parts", "size_answer", "size_sections"]

_HOUR_S: Final = 3600.0
#: What each part is, in a sentence that says it is missing.
_PARTS: Final = {
    "alternatives": "fleets nearly as cheap",
    "fleet": "a fixed fleet with nothing to rent",
    "loss": "the loss of a node",
    "prices": "who is cheapest at which prices",
    "changes": "what changes the answer",
    "tokens": "planning for fewer tokens than the limit",
    "worth": "what relaxing a limit is worth",
    "uncertainty": "other traces like this one",
}


def size_answer(report: SizeReport) -> tuple[str, ...]:
    """Return the answer in sentences, the first with what to own and rent."""
    return tuple(recommendation(report))


def size_sections(report: SizeReport) -> tuple[Section, ...]:
    """Return a section for each part of a report; the first says which parts are missing.

    It draws, and computes nothing anew.
    """
    makers: tuple[Callable[[SizeReport], Section | None], ...] = (
        _own_and_rent,
        _fleet,
        _prices,
        _changes,
        _tokens,
        _worth,
        _uncertainty,
    )
    with drawing():
        sections = [make(report) for make in makers]
    return tuple(section for section in sections if section is not None)


def missing_parts(report: SizeReport) -> Iterator[str]:
    """Yield a line for each part that is not there, and why."""
    for part, what in _PARTS.items():
        if getattr(report, part) is not None:
            continue
        if part in report.failed:
            yield f"No answer on {what}: {report.failed[part]}"
        elif part in report.left_out:
            yield f"Left out: {what}. {report.left_out[part]}"
        elif part not in report.params.parts:
            yield f"Not asked for: {what} (part {part})."
        elif report.interrupted is not None:
            yield f"Not reached: {what}; part {report.interrupted} was interrupted."
        else:
            yield f"Not there: {what} (part {part})."


# --- own and rent ---------------------------------------------------------------------------------


def _own_and_rent(report: SizeReport) -> Section:
    answer = size_answer(report)
    blocks: list[Block] = [Words((*answer[1:], *capex_line(report)))]
    blocks += _charts(_demand_chart(report))
    blocks.append(rows_of(split_table(report)))
    blocks += _alternatives(report)
    note = DEMAND_NOTE
    if any(row.kind != "policy" for row in report.demand):
        note = f"{note} {VOLUME_NOTE}"
    conventions = dict.fromkeys(row.convention for row in report.demand)
    blocks += [rows_of(demand_table(report, name), caption=note) for name in conventions]
    blocks.append(Folded("What prices are assumed", (Words(tuple(assumption_lines(report))),)))
    missing = tuple(missing_parts(report))
    if missing:
        blocks.append(Words(missing))
    return Section("size", "What to own and what to rent", answer[0], tuple(blocks))


def _charts(chart: Chart | None) -> list[Block]:
    return [] if chart is None else [chart]


def _demand_chart(report: SizeReport) -> Chart | None:
    figure = demand_figure(report)
    if figure is None:
        return None
    rows = demand_rows_shown(report)
    x = tuple(float(share) for share in range(101))
    readouts = []
    for axis, pool in zip(figure.axes, POOLS, strict=True):
        series = []
        for row in rows:
            nodes, hours = row.demand.duration_curve(pool)
            shares = 100 * hours / row.demand.horizon_h if len(nodes) else np.zeros(0)
            # shares never increase with nodes: count those at or above x
            needed = tuple(float((shares >= at - 1e-9).sum()) for at in x)
            series.append(Series(row.name, needed, "nodes", steps=False))
        readouts.append(Readout(axis, x, "of the time", "%", tuple(series)))
    demand = report.main.demand
    parts = "; ".join(
        f"{gpu_name(report, pool)}: {demand.mean(pool):,.1f} nodes on average, "
        f"{demand.peak(pool):,} at most, own {report.split.pool(pool).owned:,}"
        for pool in POOLS
    )
    return Chart(
        name="size-demand",
        title="How many nodes are needed for how much of the time",
        figure=figure,
        alt=f"Duration curves of {len(rows)} policies and systems. {report.policy}: {parts}.",
        caption=f"Convention {report.convention}. The dotted level is what to own of it.",
        readouts=tuple(readouts),
    )


def _alternatives(report: SizeReport) -> Iterator[Block]:
    figure = alternatives_figure(report)
    if figure is not None:
        parts, readouts = [], []
        for axis, pool in zip(figure.axes, POOLS, strict=True):
            owned, usd = owned_curve(report, pool)
            series = Series("own + rent", tuple(usd), "$/h", steps=False)
            x_label = f"{gpu_name(report, pool)} nodes owned"
            readouts.append(Readout(axis, tuple(map(float, owned)), x_label, "", (series,)))
            parts.append(
                f"{gpu_name(report, pool)}: from ${usd[0]:,.2f}/h with none owned over "
                f"${min(usd):,.2f}/h with {owned[usd.index(min(usd))]:,} to ${usd[-1]:,.2f}/h "
                f"with {owned[-1]:,}"
            )
        yield Chart(
            name="size-owned-counts",
            title="What owning more or fewer nodes costs",
            figure=figure,
            alt=f"One curve for each pool. {'; '.join(parts)}.",
            caption="The other pool stays as it is best. The axes do not start at 0.",
            readouts=tuple(readouts),
        )
    if report.alternatives:
        yield rows_of(alternatives_table(report), caption=" ".join(periods_line(report)))


# --- a fixed fleet --------------------------------------------------------------------------------


def _fleet(report: SizeReport) -> Section | None:
    fixed = report.fleet
    if fixed is None:
        return None
    lines = tuple(fleet_lines(report))
    loss = tuple(loss_line(report))
    blocks: list[Block] = [Words((*lines[1:], *loss))] if lines[1:] or loss else []
    figure = fleet_figure(report)
    if figure is not None:
        points, target = fixed.frontier, fixed.answer.target
        by_wait = sorted(points, key=lambda point: point.wait_s)
        least = np.minimum.accumulate([point.usd_per_hour for point in by_wait]).tolist()
        share = f"{100 * target.share:g}%"
        readout = Readout(
            figure.axes[0],
            tuple(point.wait_s / _HOUR_S for point in by_wait),
            f"wait of {share} of the jobs",
            "h",
            (Series("cheapest fleet", tuple(least), "$/h"),),
        )
        tips = {
            f"fleet-{i}": f"{point.fleet.rollout_nodes}+{point.fleet.train_nodes} nodes: "
            f"${point.usd_per_hour:,.2f}/h, {share} of the jobs wait no longer than "
            f"{duration(point.wait_s)}, the longest wait is {duration(point.wait_max_s)}"
            for i, point in enumerate(points)
        }
        first, last = points[0], points[-1]
        chart = Chart(
            name="size-frontier",
            title="Nothing to rent: what shorter waits cost",
            figure=figure,
            alt=(
                f"Falling steps through {len(points)} fleets: from ${last.usd_per_hour:,.2f}/h "
                f"with a wait of {duration(last.wait_s)} to ${first.usd_per_hour:,.2f}/h with "
                f"{duration(first.wait_s)}. The target of {duration(target.wait_s)} takes "
                f"${fixed.answer.usd_per_hour:,.2f}/h."
            ),
            caption=(
                f"Nodes {gpu_name(report, 'rollout')}+{gpu_name(report, 'train')}. The diamond is "
                "the answer."
            ),
            readouts=(readout,),
            tips=tips,
        )
        blocks += [chart, rows_of(frontier_table(fixed))]
    return Section("size-fleet", "A fixed fleet: cost against waiting", lines[0], tuple(blocks))


# --- prices ---------------------------------------------------------------------------------------


def _prices(report: SizeReport) -> Section | None:
    if report.prices is None:
        return None
    lines = tuple(price_lines(report))
    blocks = [*_charts(_map_chart(report)), *_charts(_ratio_chart(report))]
    if lines[1:]:
        blocks.append(Words(lines[1:]))
    return Section("size-prices", "Who is cheapest at which prices", lines[0], tuple(blocks))


def _map_chart(report: SizeReport) -> Chart | None:
    figure, found = price_map_figure(report), price_map(report)
    if figure is None or found is None:
        return None
    rollout, train = gpu_name(report, "rollout"), gpu_name(report, "train")
    spans = [region for region in found.regions if region.policy]
    tips = {
        f"region-{i}": f"{region.policy} is the cheapest from {region.low_ratio:.2f} to "
        f"{region.high_ratio:.2f} x: at ${found.now[0]:,.2f} for an {rollout}, an {train} from "
        f"${region.low_ratio * found.now[0]:,.2f} to ${region.high_ratio * found.now[0]:,.2f}"
        if region.policy
        else "prices at ratios that were not looked at"
        for i, region in enumerate(found.regions)
    }
    tips["price-now"] = f"now: ${found.now[0]:,.2f} and ${found.now[1]:,.2f} per GPU-h, rented"
    caption = (
        "Everything rented while held. Costs are linear in both prices and who is cheapest "
        "depends on their ratio alone, so borders are rays; grey: ratios not looked at."
    )
    if found.owned is not None:
        tips["price-owned"] = (
            f"owned: ${found.owned[0]:,.2f} and ${found.owned[1]:,.2f} per GPU-h, used or not"
        )
        caption += " An owned node is paid used or not, so its cross tells the ratio only."
    x = tuple(found.most[0] * i / 100 for i in range(101))
    series = [
        Series(
            f"{crossover.cheaper_below} below, {crossover.cheaper_above} above "
            f"({crossover.ratio:.2f} x)",
            tuple(
                at * crossover.ratio if at * crossover.ratio <= found.most[1] else None for at in x
            ),
            "$/GPU-h",
            steps=False,
        )
        for crossover in (report.prices.crossovers if report.prices else ())
    ]
    readouts: tuple[Readout, ...] = ()
    if series:
        readouts = (Readout(figure.axes[0], x, f"an {rollout}", "$/GPU-h", tuple(series)),)
    words = "; ".join(f"{r.policy} from {r.low_ratio:.2f} to {r.high_ratio:.2f} x" for r in spans)
    return Chart(
        name="size-price-map",
        title="The cheapest policy at each pair of prices",
        figure=figure,
        alt=(
            f"A map of {rollout} against {train} prices in {len(spans)} wedges from the origin, by "
            f"the ratio of the two: {words}. Now: ${found.now[0]:,.2f} and ${found.now[1]:,.2f} "
            "per GPU-h."
        ),
        caption=caption,
        readouts=readouts,
        tips=tips,
    )


def _ratio_chart(report: SizeReport) -> Chart | None:
    figure, found = price_figure(report), report.prices
    if figure is None or found is None:
        return None
    x = tuple(point.ratio for point in found.points)
    series = tuple(
        Series(name, tuple(p.usd_per_hour_mean[i] for p in found.points), "$/h", steps=False)
        for i, name in enumerate(found.policies)
    )
    first, last = found.points[0], found.points[-1]
    words = "; ".join(
        f"{name} from ${low:,.2f}/h to ${high:,.2f}/h"
        for name, low, high in zip(
            found.policies, first.usd_per_hour_mean, last.usd_per_hour_mean, strict=True
        )
    )
    rollout = report.options.cluster.rollout.gpu
    return Chart(
        name="size-price-ratios",
        title="What each policy costs at each ratio of prices",
        figure=figure,
        alt=f"Lines from {first.ratio:g} to {last.ratio:g} x: {words}.",
        caption=(
            f"An {rollout.name} GPU stays at ${rollout.usd_per_gpu_hour:,.2f}/h. $/h are means "
            "over each policy's own hours; who is cheapest goes by $ in all."
        ),
        readouts=(Readout(figure.axes[0], x, "ratio", "x", series),),
    )


# --- what changes it ------------------------------------------------------------------------------


def _changed(row: ChangeRow | PlanAtRow) -> str:
    line = f"{change_line(row)}"
    if row.own_rent_usd_per_hour is not None:
        line += f", ${row.own_rent_usd_per_hour:,.2f}/h"
    return line


def _changes(report: SizeReport) -> Section | None:
    if report.changes is None:
        return None
    top = [row for row in report.most_influential if is_shown(row)]
    answer = "Nothing that was tried changes what owning and renting costs."
    if top:
        answer = f"What changes the cost of owning and renting most: {change_line(top[0])}."
    blocks: list[Block] = []
    figure, rows = change_figure(report), change_rows_shown(report)
    if figure is not None:
        base, left = report.split.usd_per_hour, _n_changing(report) - len(rows)
        others = f" {left} levels of smaller changes are in the table alone." if left > 0 else ""
        most = f"{change_words(rows[0])} with {signed_percent(rows[0].own_rent_change)}"
        blocks.append(
            Chart(
                name="size-changes",
                title="What changes the cost of owning and renting",
                figure=figure,
                alt=f"{len(rows)} bars, the longest is {most}, the base is ${base:,.2f}/h.",
                caption=(
                    f"Of $ in all for the same work, against the base of ${base:,.2f}/h; one "
                    f"factor at a time.{others}"
                ),
                tips={f"change-{i}": _changed(row) for i, row in enumerate(rows)},
            )
        )
    if report.changes:
        table: list[Block] = [rows_of(changes_table(report))]
        notes = change_notes(report)
        blocks.append(Folded("Every level", (*table, *([Words(notes)] if notes else []))))
    return Section("size-changes", "What changes the answer", answer, tuple(blocks))


def _n_changing(report: SizeReport) -> int:
    return sum(not row.is_base and bool(row.own_rent_change) for row in report.changes or ())


def _tokens(report: SizeReport) -> Section | None:
    rows = report.tokens
    if not rows:
        return None
    words = "; ".join(
        f"at {row.label} tokens ${row.usd_per_hour_mean:,.2f}/h and "
        f"{100 * row.jobs_missed_share:.1f}% of SLOs missed"
        for row in rows
    )
    figure = token_figure(report)
    blocks: list[Block] = []
    if figure is not None:
        blocks.append(
            Chart(
                name="size-tokens",
                title="Planning for fewer tokens: what it saves and whose promise it breaks",
                figure=figure,
                alt=f"Bars of cost above lines of risk: {words}.",
                tips={
                    f"tokens-{i}": f"{change_words(row)}: {signed_percent(row.own_rent_change)} of "
                    f"owning and renting, at most {row.jobs_missed_most} jobs miss"
                    for i, row in enumerate(rows)
                },
            )
        )
    blocks.append(rows_of(tokens_table(report), caption=" ".join(guessed_tokens(report))))
    return Section("size-tokens", "Planning for fewer tokens", f"Planned {words}.", tuple(blocks))


def _worth(report: SizeReport) -> Section | None:
    if report.worth is None:
        return None
    lines = [line.strip() for line in worth_lines(report)]
    figure = worth_figure(report)
    blocks: list[Block] = []
    if figure is not None:
        blocks.append(
            Chart(
                name="size-worth",
                title="What relaxing a limit is worth",
                figure=figure,
                alt=" ".join(lines[1:]),
                caption="A line with ends: the interval that is proved, where it is no point.",
                tips={
                    f"worth-{i}": line
                    for i, (line, price) in enumerate(
                        zip(lines[1:], report.worth.prices, strict=True)
                    )
                    if price.low_usd_per_hour is not None and price.high_usd_per_hour is not None
                },
            )
        )
    blocks.append(Words(tuple(lines)))
    known = [
        (price.low_usd_per_hour, line)
        for line, price in zip(lines[1:], report.worth.prices, strict=True)
        if price.low_usd_per_hour is not None
    ]
    answer = f"Worth most: {max(known)[1]}" if known else lines[0]
    return Section("size-worth", "What relaxing a limit is worth", answer, tuple(blocks))


# --- futures --------------------------------------------------------------------------------------


def _uncertainty(report: SizeReport) -> Section | None:
    found = report.uncertainty
    if found is None:
        return None
    now = found.growths[0]
    sure = f"{now.size.rollout_nodes}+{now.size.train_nodes}"
    answer = (
        f"{sure} nodes are enough for {100 * found.coverage:g}% of the time in "
        f"{100 * found.confidence:g}% of {found.replications} traces drawn like this one (arrivals "
        f"x{now.growth:g}), nothing rented."
    )
    blocks: list[Block] = []
    figure: Figure | None = uncertainty_figure(report)
    if figure is not None:
        tips = {}
        for pool in POOLS:
            for i in range(len(found.growths)):
                tips[f"growth-{pool}-{i}"] = _spread_words(report, pool, i)
        rollout, train = now.rollout.p95, now.train.p95
        blocks.append(
            Chart(
                name="size-uncertainty",
                title="What traces like this one would need",
                figure=figure,
                alt=(
                    f"Boxes for each growth of arrivals. At x{now.growth:g} the middle draw needs "
                    f"{rollout.p50:g}+{train.p50:g} nodes for 95 % of its time, the 95th of 100 "
                    f"{rollout.p95:g}+{train.p95:g}; {sure} are sure."
                ),
                caption="Box: middle half of the draws. Whiskers: 5 % to 95 %.",
                tips=tips,
            )
        )
    blocks.append(rows_of(uncertainty_table(found), caption=uncertainty_legend(found)))
    blocks.append(
        Words((assured_line(found), *wait_lines(report), *found.notes, *staged_lines(report)))
    )
    return Section("size-uncertainty", "How sure the size is", answer, tuple(blocks))


def _spread_words(report: SizeReport, pool: Pool, number: int) -> str:
    assert report.uncertainty is not None
    item = report.uncertainty.growths[number]
    p95 = item.pool(pool).p95
    sure = getattr(item.size, f"{pool}_nodes")
    return (
        f"arrivals x{item.growth:g}: {gpu_name(report, pool)} nodes for 95 % of the time "
        f"{p95.p5:g} to {p95.p95:g}, {p95.p50:g} in the middle; {sure} sure"
    )
