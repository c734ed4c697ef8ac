"""What ``planner size`` prints: the recommendation, then one table a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from planner.output.fitting_tables import show_table, text_table
from planner.plan.tables import data_notes, percent, share_met
from planner.replay.demand import POOLS
from planner.size.plan_at import PlanAtRow
from planner.size.what_changes import ChangeRow
from planner.size.words import (
    assumption_lines,
    change_words,
    duration,
    fleet_lines,
    gpu_names,
    loss_line,
    price_lines,
    recommendation,
    signed_percent,
    worth_lines,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from planner.policies.replay_result import Convention
    from planner.replay.demand import Demand
    from planner.size.report import DemandRow, FixedFleet, SizeReport
    from planner.size.uncertainty import GrowthUncertainty, UncertaintyReport

__all__ = [
    "DEMAND_NOTE",
    "VOLUME_NOTE",
    "alternatives_table",
    "assured_line",
    "capex_line",
    "change_line",
    "change_notes",
    "changes_table",
    "demand_table",
    "frontier_table",
    "guessed_tokens",
    "is_shown",
    "periods_line",
    "print_size",
    "split_table",
    "staged_lines",
    "tokens_table",
    "uncertainty_legend",
    "uncertainty_table",
    "wait_lines",
]

_MOST: Final = 3
#: Totals from here on, $, are shown in thousands.
_THOUSANDS: Final = 10_000.0
_AIMS: Final = {
    "cost": "least cost",
    "fewest-train": "fewest train",
    "fewest-nodes": "fewest nodes",
    "most-even": "most even",
}
_STAYS: Final = {
    "work": "each job does its iterations; sharing stretches its stay",
    "wallclock": "each job stays as long as alone",
}

DEMAND_NOTE: Final = (
    "p95: enough for 95% of the time, each pool on its own. own: of least cost, the rest rented; "
    "in all over the row's own hours."
)
VOLUME_NOTE: Final = (
    "volume bound: no policy with valid plans that starts every job on arrival needs less."
)


def print_size(report: SizeReport, console: Console, *, details: bool = False) -> None:
    """Print the answer; ``details`` adds every level of what changes it."""
    jobs = len(report.trace.jobs)
    hours = report.main.demand.horizon_h
    _say(
        console,
        f"{report.trace.name}: {jobs:,} job{'s' * (jobs != 1)} over {hours:,.1f} h, fleet for "
        f"policy {report.policy} ({report.convention} convention)",
        bold=True,
    )
    _lines(console, recommendation(report))
    _lines(console, (*fleet_lines(report), *loss_line(report)))
    _most_influential(report, console)
    _demand(report, console)
    _split(report, console)
    _alternatives(report, console)
    _frontier(report, console)
    _changes(report, console, details=details)
    _tokens(report, console)
    _lines(console, worth_lines(report))
    _uncertainty(report, console)
    console.print()
    _lines(console, assumption_lines(report))
    _lines(console, data_notes(report.trace.jobs))


def _say(console: Console, text: str, *, bold: bool = False) -> None:
    console.print(text, style="bold" if bold else "", markup=False)


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        _say(console, line)


def _plus(rollout: float, train: float, digits: int = 0) -> str:
    return f"{rollout:,.{digits}f}+{train:,.{digits}f}"


# --- demand and its price -----------------------------------------------------------------------


def demand_table(report: SizeReport, convention: Convention) -> Table:
    """Return the nodes that each policy needs under one convention, and what they cost."""
    cluster = report.options.cluster
    names = f"{cluster.rollout.gpu.name}+{cluster.train.gpu.name}"
    thousands = max(_rented_usd(row) for row in report.demand) >= _THOUSANDS
    unit = "k$" if thousands else "$"
    table = text_table(
        f"Nodes needed, {names} (convention {convention}: {_STAYS[convention]})",
        (
            "policy",
            "mean",
            "p50",
            "p95",
            "p99",
            "peak",
            "own",
            f"own+rent\n{unit}",
            f"rent all\n{unit}",
        ),
    )
    for row in report.demand:
        if row.convention == convention:
            table.add_row(
                *_demand_cells(row, thousands=thousands),
                style="bold" if row is report.main else "",
            )
    return table


def _demand(report: SizeReport, console: Console) -> None:
    for convention in dict.fromkeys(row.convention for row in report.demand):
        show_table(console, demand_table(report, convention))
    _say(console, DEMAND_NOTE)
    if any(row.kind != "policy" for row in report.demand):
        _say(console, VOLUME_NOTE)


def _rented_usd(row: DemandRow) -> float:
    """Return what renting every node while it is held costs in all, $."""
    return row.usd_per_hour_mean * row.demand.horizon_h


def _total(usd: float, *, thousands: bool) -> str:
    return f"{usd / 1000:,.1f}" if thousands else f"{usd:,.2f}"


def _demand_cells(row: DemandRow, *, thousands: bool) -> tuple[str, ...]:
    demand, split = row.demand, row.split

    def quantile(share: float) -> str:
        return _plus(*(demand.quantile(pool, share) for pool in POOLS))

    return (
        row.name,
        _plus(demand.mean("rollout"), demand.mean("train"), 1),
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        _peak(demand),
        "-" if split is None else _plus(*split.owned),
        "-" if split is None else _total(split.usd_total, thousands=thousands),
        _total(_rented_usd(row), thousands=thousands),
    )


def _peak(demand: Demand) -> str:
    return _plus(*(demand.peak(pool) for pool in POOLS))


def _split(report: SizeReport, console: Console) -> None:
    show_table(console, split_table(report))
    _lines(console, capex_line(report))


def split_table(report: SizeReport) -> Table:
    """Return the owned and rented nodes of each pool."""
    table = text_table(
        "Owned and rented",
        (
            "pool",
            "own\n$/node-h",
            "rent\n$/node-h",
            "owned\nnodes",
            "needed\nat most",
            "used when\nowned",
            "rented\nnode-h",
            "owned\n$/h",
            "rented\n$/h",
        ),
    )
    for pool in POOLS:
        costs, side = report.costs.pool(pool), report.split.pool(pool)
        own = costs.own_usd_per_node_hour
        held = side.owned_used_node_hours + side.owned_idle_node_hours
        table.add_row(
            gpu_names(report.options.cluster)[pool],
            "-" if own is None else f"{own:,.2f}",
            f"{costs.rent_usd_per_node_hour:,.2f}",
            f"{side.owned:,}",
            f"{side.peak:,}",
            percent(side.owned_used_node_hours / held if held else None),
            f"{side.rented_node_hours:,.0f}",
            f"{side.own_usd_per_hour:,.2f}",
            f"{side.rent_usd_per_hour:,.2f}",
        )
    return table


def capex_line(report: SizeReport) -> Iterator[str]:
    """Yield what the owned nodes cost to buy, where that is known."""
    capex = report.split.capex_usd
    if capex:
        yield f"Buying the owned nodes takes ${capex:,.0f}."


def _alternatives(report: SizeReport, console: Console) -> None:
    if report.alternatives:
        show_table(console, alternatives_table(report))
        _lines(console, periods_line(report))


def alternatives_table(report: SizeReport) -> Table:
    """Return the fleets near the least cost."""
    table = text_table(
        "Nearly as cheap",
        (
            "fleet",
            "within",
            "owned\nnodes",
            "own+rent\n$/h",
            "above\nleast",
            "rented\nR/T",
            "buy\n$M",
        ),
    )
    for row in report.alternatives or ():
        rented = "/".join(percent(share) for share in row.rented_share)
        table.add_row(
            _AIMS[row.aim] + ("" if row.proved else " (not proved)"),
            f"{100 * row.within:g}%" if row.within else "",
            " -> ".join(_plus(*owned) for owned in row.owned),
            f"{row.usd_per_hour:,.2f}",
            f"{100 * row.above_least:.1f}%",
            rented,
            "-" if row.capex_usd is None else f"{row.capex_usd / 1e6:,.2f}",
        )
    return table


def periods_line(report: SizeReport) -> Iterator[str]:
    """Yield what the owned counts of several purchase periods are."""
    periods = report.costs.periods
    if len(periods) > 1:
        yield (
            f"owned nodes: one after the other in the {len(periods)} purchase periods of the cost "
            f"file. $/h: on average over their {sum(p.years for p in periods):g} years."
        )


# --- a fixed fleet ------------------------------------------------------------------------------


def _frontier(report: SizeReport, console: Console) -> None:
    if report.fleet is not None and report.fleet.frontier:
        show_table(console, frontier_table(report.fleet))


def frontier_table(fixed: FixedFleet) -> Table:
    """Return the undominated fixed fleets, cheapest first."""
    share = 100 * fixed.answer.target.share
    table = text_table(
        "Nothing to rent: cost against wait",
        (
            "nodes",
            "$/h",
            f"p{share:g}\nwait",
            "p50\nwait",
            "longest\nwait",
            "start\nat once",
            "SLO with\nwait",
            "in use\nR/T",
            "cheapest\nfor",
        ),
    )
    for point in fixed.frontier:
        best = min(point.cheapest_for_s, default=None)
        mark = "" if best is None or best in point.proved_for_s else "?"
        table.add_row(
            _plus(point.fleet.rollout_nodes, point.fleet.train_nodes),
            f"{point.usd_per_hour:,.2f}",
            duration(point.wait_s),
            duration(point.wait_p50_s),
            duration(point.wait_max_s),
            share_met(point.admitted_at_once),
            share_met(point.slo_attainment_with_wait),
            "/".join(percent(point.utilisation[pool]) for pool in POOLS),
            "" if best is None else f"{duration(best)}{mark}",
            style="bold" if point.fleet == fixed.answer.fleet else "",
        )
    return table


# --- what changes the answer --------------------------------------------------------------------


def change_line(row: ChangeRow | PlanAtRow) -> str:
    """Return one level of one factor, what it changes and what to own then."""
    own = (
        ""
        if row.owned_rollout_nodes is None or row.owned_train_nodes is None
        else f", own {row.owned_rollout_nodes} + {row.owned_train_nodes}"
    )
    return f"{change_words(row)}: {signed_percent(row.own_rent_change)}{own}"


def is_shown(row: ChangeRow | PlanAtRow) -> bool:
    """Whether a change is one in print."""
    return signed_percent(row.own_rent_change) != signed_percent(0.0)


def _most_influential(report: SizeReport, console: Console) -> None:
    rows = [row for row in report.most_influential if is_shown(row)][:_MOST]
    if not rows:
        return
    _say(console, "What would change the cost of owning and renting most:")
    for i, row in enumerate(rows, start=1):
        _say(console, f"{i}. {change_line(row)}.")


def _changes(report: SizeReport, console: Console, *, details: bool) -> None:
    _lines(console, ("", *price_lines(report)) if report.prices is not None else ())
    if report.changes is None:
        return
    if not details:
        _say(console, "Every level of what changes the answer: --details, --json or --out.")
        return
    show_table(console, changes_table(report))
    _lines(console, change_notes(report))


def changes_table(report: SizeReport) -> Table:
    """Return every level of every factor."""
    table = text_table(
        "What changes the answer",
        (
            "factor",
            "level",
            "rent all\n$/h",
            "own+rent\nchange",
            "own",
            "p95",
            "peak",
            "link\npeak",
        ),
        left=2,
    )
    before = ""
    for row in report.changes or ():
        name = change_words(row).partition(":")[0]
        if row.cannot_run:
            table.add_row(name if name != before else "", row.label, "cannot run")
        else:
            table.add_row(
                name if name != before else "", row.label, *_change_cells(row),
                style="bold" if row.is_base else "",
            )  # fmt: skip
        before = name
    return table


def change_notes(report: SizeReport) -> tuple[str, ...]:
    """Return who fits no node of a level, and how levels were made."""
    notes = []
    for row in report.changes or ():
        name = change_words(row).partition(":")[0]
        said = (row.cannot_run,) if row.cannot_run else row.notes
        notes += [f"{name} {row.label}: {note}." for note in said]
    return tuple(dict.fromkeys(notes))


def _change_cells(row: ChangeRow) -> tuple[str, ...]:
    def pair(rollout: int | None, train: int | None) -> str:
        return "-" if rollout is None or train is None else _plus(rollout, train)

    usd = row.usd_per_hour_mean
    return (
        "-" if usd is None else f"{usd:,.2f}",
        signed_percent(row.own_rent_change),
        pair(row.owned_rollout_nodes, row.owned_train_nodes),
        pair(row.p95_rollout_nodes, row.p95_train_nodes),
        pair(row.peak_rollout_nodes, row.peak_train_nodes),
        percent(row.link_utilisation_peak),
    )


def _tokens(report: SizeReport, console: Console) -> None:
    if report.tokens:
        show_table(console, tokens_table(report))
        _lines(console, guessed_tokens(report))


def tokens_table(report: SizeReport) -> Table:
    """Return what planning at each quantile saves and risks."""
    table = text_table(
        "Planning for fewer tokens than the limit, and what sampled runtimes risk",
        (
            "planned\nat",
            "rent all\n$/h",
            "own+rent\nchange",
            "own",
            "SLOs\nmissed",
            "late\niterations",
            "worst over\ndeadline",
        ),
    )
    for row in report.tokens or ():
        own = (row.owned_rollout_nodes, row.owned_train_nodes)
        table.add_row(
            row.label,
            f"{row.usd_per_hour_mean:,.2f}",
            signed_percent(row.own_rent_change),
            "-" if own[0] is None or own[1] is None else _plus(own[0], own[1]),
            f"{100 * row.jobs_missed_share:.1f}%",
            f"{100 * row.late_iterations_share:.2f}%",
            f"{row.worst_over_deadline:.3f}",
        )
    return table


def guessed_tokens(report: SizeReport) -> Iterator[str]:
    """Yield of how many jobs the lengths are guesses."""
    for first in (report.tokens or ())[:1]:
        if first.by_guess:
            yield (
                f"Token lengths of {first.by_guess:,} of {first.sync_jobs:,} jobs are guessed; "
                "give rollout_p50_s and rollout_p95_s, or response percentiles."
            )


# --- uncertainty --------------------------------------------------------------------------------


def _uncertainty(report: SizeReport, console: Console) -> None:
    found = report.uncertainty
    if found is None:
        return
    show_table(console, uncertainty_table(found))
    _say(console, uncertainty_legend(found))
    _say(console, assured_line(found))
    _lines(console, wait_lines(report))
    _lines(console, found.notes)
    _lines(console, staged_lines(report))


def uncertainty_table(found: UncertaintyReport) -> Table:
    """Return what is needed, owned and paid at each growth."""
    confidence = 100 * found.confidence
    table = text_table(
        f"{found.replications} traces drawn like this one, at every growth",
        (
            "arrivals",
            "p95 nodes\nmedian",
            "p95 nodes\nhigh",
            "own\nnow",
            "$/h\nmedian",
            "$/h\np5-p95",
            "for mean\n$/h more",
            "know it\n$/h less",
            f"{confidence:g}%\nsure",
        ),
    )
    for item in found.growths:
        table.add_row(*_growth_cells(item))
    return table


def uncertainty_legend(found: UncertaintyReport) -> str:
    """Return what the columns of :func:`uncertainty_table` are."""
    confidence, coverage = 100 * found.confidence, 100 * found.coverage
    return (
        f"high: p95 of the p95. own now: the best single purchase for all of them. for mean: own "
        f"the mean number of nodes instead. know it: if it were known which comes. "
        f"{confidence:g}% sure: enough for {coverage:g}% of the time in {confidence:g}% of such "
        "futures, nothing rented."
    )


def wait_lines(report: SizeReport) -> Iterator[str]:
    """Yield on how many drawn traces a fixed fleet keeps its promise about waiting."""
    for kept in report.waits:
        nodes = _plus(kept.fleet.rollout_nodes, kept.fleet.train_nodes)
        yield (
            f"{nodes} nodes, nothing rented, keep waits within {duration(kept.target.wait_s)} on "
            f"{kept.met} of {kept.replications} of them."
        )


def assured_line(found: UncertaintyReport) -> str:
    """Return what the sample can say of that confidence."""
    size = found.growths[0].size
    confidence = 100 * found.confidence
    if size.assured >= found.confidence:
        return (
            f"That size covers {size.met} of {size.replications} draws: with 95% assurance (each "
            f"pool by itself) at least {confidence:g}% of such futures."
        )
    return (
        f"{size.replications} draws assure {100 * size.assured:.0f}% at most, not {confidence:g}%: "
        f"give --replications {found.replications_needed} or more."
    )


def _growth_cells(item: GrowthUncertainty) -> tuple[str, ...]:
    value, size = item.value, item.size
    year = "" if item.year is None else f" ({item.year:g} y)"
    usd = item.usd_per_hour
    return (
        f"x{item.growth:g}{year}",
        _plus(item.rollout.p95.p50, item.train.p95.p50),
        _plus(item.rollout.p95.p95, item.train.p95.p95),
        "-" if value is None else _plus(*value.owned),
        "-" if usd is None else f"{usd.p50:,.2f}",
        "-" if usd is None else f"{usd.p5:,.0f}-{usd.p95:,.0f}",
        "-" if value is None or value.regret_of_mean is None else f"{value.regret_of_mean:,.2f}",
        "-" if value is None else f"{value.stochastic.evpi:,.2f}",
        _plus(size.rollout_nodes, size.train_nodes),
    )


def staged_lines(report: SizeReport) -> list[str]:
    """Return what buying step by step is worth, where it was said how fast demand grows."""
    found = report.uncertainty
    if found is None or found.staged is None:
        return []
    staged = found.staged
    if staged.staged is None or staged.staged.usd_per_hour is None:
        return [staged.note] if staged.note else []
    steps = ", ".join(
        f"{_plus(*owned)} from year {year:g}"
        for owned, year in zip(staged.staged.owned, staged.years, strict=True)
    )
    worth = staged.value_of_staging
    saves = "" if worth is None else f", ${worth:,.2f}/h less than buying everything now"
    return [f"Buy step by step: {steps}: ${staged.staged.usd_per_hour:,.2f}/h on average{saves}."]
