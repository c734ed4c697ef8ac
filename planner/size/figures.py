"""The pictures of a size report: demand, owned counts, cost against wait, prices, and futures.

Artists that a reader may ask about carry a gid; what they say stands in
:mod:`planner.report.size_section`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from planner.output.charts import (
    LOOKS,
    NAME_LETTERS,
    SMALL_PT,
    as_written,
    legend_above,
    panels,
    shortened,
    whole_numbers,
)
from planner.output.duration_curve import draw_duration_curve, label_duration_axes
from planner.replay.demand import POOLS, Pool
from planner.size.change_figures import change_figure, token_figure, worth_figure
from planner.size.economics import split
from planner.size.price_map import policy_looks, price_map_figure
from planner.size.words import gpu_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from planner.size.report import DemandRow, SizeReport
    from planner.size.uncertainty import UncertaintyReport

__all__ = [
    "FIGURES",
    "alternatives_figure",
    "demand_figure",
    "demand_rows_shown",
    "fleet_figure",
    "frontier_labels",
    "gpu_name",
    "owned_curve",
    "price_figure",
    "uncertainty_figure",
]

_HOUR_S: Final = 3600.0
#: Fleets of a frontier that are named in the picture, at most.
_MOST_NAMED: Final = 12
#: Owned counts that are priced for a curve, about.
_MOST_COUNTS: Final = 150


def gpu_name(report: SizeReport, pool: Pool) -> str:
    """Return the GPU of a pool, and the pool where both have the same."""
    return gpu_names(report.options.cluster)[pool]


def _label(report: SizeReport, pool: Pool) -> str:
    return shortened(gpu_name(report, pool), NAME_LETTERS)


# --- demand and what to own of it -----------------------------------------------------------------


def demand_rows_shown(report: SizeReport) -> tuple[DemandRow, ...]:
    """Return whose duration curves are drawn: those of the main convention."""
    rows = [row for row in report.demand if row.convention == report.convention]
    return tuple(rows[: len(LOOKS)])


def demand_figure(report: SizeReport) -> Figure | None:
    """Draw the duration curve of each pool, by policy, and what to own of it."""
    figure, axes = panels(len(POOLS), 2.9, sharex=True)
    looks = policy_looks(report)
    for axis, pool in zip(axes, POOLS, strict=True):
        for row in demand_rows_shown(report):
            look = looks[row.name]
            nodes, hours = row.demand.duration_curve(pool)
            draw_duration_curve(
                axis,
                nodes,
                hours,
                row.demand.horizon_h,
                label=row.name,
                color=look.colour,
                linewidth=2.2 if row is report.main else 1.4,
                linestyle=look.line,
            )
        owned = report.split.pool(pool).owned
        axis.axhline(owned, color="black", linewidth=1.0, linestyle=(0, (1, 1)))
        axis.text(99.5, owned, f"own {owned:,}", ha="right", va="bottom", fontsize=SMALL_PT)
        label_duration_axes(axis, f"{_label(report, pool)} nodes")
    axes[0].set_xlabel("")
    names = [row.name for row in demand_rows_shown(report)]
    legend_above(axes[0], first=names, others=axes[1:])
    return as_written(figure)


def alternatives_figure(report: SizeReport) -> Figure | None:
    """Draw what owning more or fewer nodes of one pool costs, the other pool as it is best.

    With budgets or caps on the counts the curve goes on beyond them; the choice heeds them.
    """
    if report.alternatives is None or not any(report.costs.pool(p).can_own for p in POOLS):
        return None
    figure, axes = panels(len(POOLS), 2.6)
    for axis, pool in zip(axes, POOLS, strict=True):
        owned, usd = owned_curve(report, pool)
        axis.plot(owned, usd, color=LOOKS[0].colour, marker="o", markersize=3.5, linewidth=1.4)
        best = report.split.pool(pool).owned
        if best in owned:
            axis.plot(best, usd[owned.index(best)], "D", color=LOOKS[1].colour, markersize=8)
            axis.annotate(
                f"own {best:,}",
                (best, usd[owned.index(best)]),
                xytext=(0, 9),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL_PT,
                fontweight="bold",
            )
        axis.margins(y=0.12)
        whole_numbers(axis.xaxis)
        axis.set_xlabel(f"{_label(report, pool)} nodes owned, the rest rented")
        axis.set_ylabel("$/h, both pools")
    return as_written(figure)


def owned_curve(report: SizeReport, pool: Pool) -> tuple[list[int], list[float]]:
    """Return owned counts of a pool and the $/h of both pools with each, the other as it is best.

    Counts go from 0 to the peak, of very many only some, the best among them; without a price of
    owning there is only 0.
    """
    best = report.split
    most = best.pool(pool).peak if report.costs.pool(pool).can_own else 0
    step = max(1, -(-most // _MOST_COUNTS))
    counts = sorted({*range(0, most + 1, step), most, best.pool(pool).owned})
    usd = []
    for n in counts:
        rollout, train = (n if other == pool else best.pool(other).owned for other in POOLS)
        usd.append(split(report.main.demand, rollout, train, report.costs).usd_per_hour)
    return counts, usd


# --- a fixed fleet --------------------------------------------------------------------------------


def frontier_labels(report: SizeReport) -> tuple[int, ...]:
    """Return which fleets of the frontier the picture names: the answer, and others evenly."""
    assert report.fleet is not None
    points, answer = report.fleet.frontier, report.fleet.answer
    step = max(1, -(-len(points) // _MOST_NAMED))
    return tuple(
        i
        for i, point in enumerate(points)
        if i % step == 0 or i == len(points) - 1 or point.fleet == answer.fleet
    )


def fleet_figure(report: SizeReport) -> Figure | None:
    """Draw the price of a fixed fleet against the wait, nothing rented."""
    if report.fleet is None or not report.fleet.frontier:
        return None
    points, answer = report.fleet.frontier, report.fleet.answer
    figure, (axis,) = panels(1, 4.0)
    waits = [point.wait_s / _HOUR_S for point in points]
    usd = [point.usd_per_hour for point in points]
    # who may wait x hours needs the cheapest fleet whose wait is x or less
    axis.step(waits[::-1], usd[::-1], where="post", color=LOOKS[0].colour, linewidth=1.4)
    named = frontier_labels(report)
    for i, (point, x, y) in enumerate(zip(points, waits, usd, strict=True)):
        chosen = point.fleet == answer.fleet
        (dot,) = axis.plot(
            x,
            y,
            "D" if chosen else "o",
            color=LOOKS[1 if chosen else 0].colour,
            markersize=9 if chosen else 5,
        )
        dot.set_gid(f"fleet-{i}")
        if i in named:
            axis.annotate(
                f"{point.fleet.rollout_nodes}+{point.fleet.train_nodes}",
                (x, y),
                xytext=(6, 5),
                textcoords="offset points",
                fontsize=SMALL_PT,
                fontweight="bold" if chosen else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
            )
    target_h = answer.target.wait_s / _HOUR_S
    axis.axvline(target_h, color="black", linewidth=1.0, linestyle=(0, (1, 1)))
    axis.margins(x=0.08, y=0.12)
    axis.set_xlim(left=min(0.0, -0.02 * max(*waits, target_h)))
    axis.annotate(
        "target",
        (target_h, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=SMALL_PT,
    )
    axis.set_xlabel(f"{100 * answer.target.share:g} % of the jobs wait no longer than, h")
    axis.set_ylabel("$/h of the fleet, nothing rented")
    return as_written(figure)


# --- prices ---------------------------------------------------------------------------------------


def price_figure(report: SizeReport) -> Figure | None:
    """Draw what each policy costs at each price ratio, everything rented."""
    found = report.prices
    if found is None:
        return None
    figure, (axis,) = panels(1, 3.6)
    ratios = [point.ratio for point in found.points]
    looks = policy_looks(report)
    for i, policy in enumerate(found.policies):
        look = looks[policy]
        usd = [point.usd_per_hour_mean[i] for point in found.points]
        axis.plot(ratios, usd, color=look.colour, linestyle=look.line, linewidth=1.8, label=policy)
    axis.set_xlim(ratios[0], ratios[-1])
    axis.set_ylim(bottom=0)
    at_top: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    for item in found.crossovers:
        axis.axvline(item.ratio, color="black", linewidth=1.0, linestyle=(0, (1, 1)))
        axis.annotate(
            f"{item.ratio:.2f} x", (item.ratio, 0.0), xytext=(4, 4), fontsize=SMALL_PT, **at_top
        )
    axis.axvline(found.base_ratio, color="#555555", linewidth=1.2)
    right = found.base_ratio > (ratios[0] + ratios[-1]) / 2
    axis.annotate(
        f"now {found.base_ratio:.2f} x",
        (found.base_ratio, 1.0),
        xytext=(-4 if right else 4, -11),
        ha="right" if right else "left",
        fontsize=SMALL_PT,
        color="#333333",
        **at_top,
    )
    rollout, train = _label(report, "rollout"), _label(report, "train")
    axis.set_xlabel(f"price of an {train} GPU over that of an {rollout} GPU")
    axis.set_ylabel("$/h, every node rented while held")
    legend_above(axis)
    return as_written(figure)


# --- futures --------------------------------------------------------------------------------------


def uncertainty_figure(report: SizeReport) -> Figure | None:
    """Draw, by growth, the spread of what is needed over drawn traces, and what to buy."""
    found = report.uncertainty
    if found is None:
        return None
    figure, axes = panels(len(POOLS), 2.9)
    for axis, pool in zip(axes, POOLS, strict=True):
        _spread(axis, found, pool)
        axis.set_ylabel(f"{_label(report, pool)} nodes")
    axes[-1].set_xlabel("arrivals, times those of the trace")
    legend_above(axes[0], columns=2)
    return as_written(figure)


def _spread(axis: Axes, found: UncertaintyReport, pool: Pool) -> None:
    """Draw the spread of one pool."""
    places = list(range(len(found.growths)))
    values = [list(item.pool(pool).p95.values) for item in found.growths]
    drawn = axis.boxplot(
        values,
        positions=places,
        whis=(5, 95),
        showfliers=False,
        widths=0.5,
        patch_artist=True,
        boxprops={"facecolor": "#DDDDDD"},
        medianprops={"color": "black", "linewidth": 1.6},
    )
    drawn["boxes"][0].set_label("needed for 95 % of the time, over drawn traces")
    for i, box in enumerate(drawn["boxes"]):
        box.set_gid(f"growth-{pool}-{i}")
    sure = [getattr(item.size, f"{pool}_nodes") for item in found.growths]
    axis.plot(
        places,
        sure,
        "v",
        color=LOOKS[1].colour,
        markersize=9,
        label=f"{100 * found.confidence:g} % sure, nothing rented",
    )
    owned = [
        (place, item.value.owned[POOLS.index(pool)])
        for place, item in zip(places, found.growths, strict=True)
        if item.value is not None
    ]
    if owned:
        x, y = zip(*owned, strict=True)
        axis.plot(
            x, y, "_", color=LOOKS[0].colour, markersize=34, markeredgewidth=3, label="own now"
        )
    axis.set_xticks(places, [f"x{item.growth:g}" for item in found.growths])
    axis.set_xlim(-0.6, len(places) - 0.4)
    axis.set_ylim(0, 1.1 * axis.get_ylim()[1])


#: Every picture, by the name of its file and the part it belongs to.
FIGURES: Final[dict[str, tuple[str | None, Callable[[SizeReport], Figure | None]]]] = {
    "demand.svg": (None, demand_figure),
    "alternatives.svg": ("alternatives", alternatives_figure),
    "fleet.svg": ("fleet", fleet_figure),
    "price_map.svg": ("prices", price_map_figure),
    "prices.svg": ("prices", price_figure),
    "changes.svg": ("changes", change_figure),
    "tokens.svg": ("tokens", token_figure),
    "worth.svg": ("worth", worth_figure),
    "uncertainty.svg": ("uncertainty", uncertainty_figure),
}
