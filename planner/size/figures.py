"""The pictures of a size report: demand, cost against wait, price ratios, and futures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from planner.output.pictures import COLOURS
from planner.replay.demand import POOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from planner.size.report import SizeReport

__all__ = ["FIGURES"]

_HOUR_S: Final = 3600.0
#: Colours by rank: dark ones first, yellow never.
_LINES: Final = (COLOURS[4], COLOURS[5], COLOURS[2], COLOURS[6], COLOURS[7], COLOURS[1])


def _figure(
    columns: int, width_in: float = 9.0, height_in: float = 3.6
) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.4, alpha=0.6)
    return figure, list(axes)


def _name(report: SizeReport, pool: str) -> str:
    return str(getattr(report.options.cluster, pool).gpu.name)


def demand_figure(report: SizeReport) -> Figure | None:
    """Draw the duration curve of each pool, by policy, and what to own of it."""
    rows = [row for row in report.demand if row.convention == report.convention]
    figure, axes = _figure(len(POOLS))
    for axis, pool in zip(axes, POOLS, strict=True):
        for colour, row in zip(_LINES, rows, strict=False):
            nodes, hours = row.demand.duration_curve(pool)
            if not len(nodes):
                continue
            share = 100 * hours / row.demand.horizon_h
            # at x % of the time at least so many nodes are needed
            axis.step(
                [100.0, *share.tolist(), 0.0],
                [0, *nodes.tolist(), int(nodes[-1])],
                where="pre",
                label=row.name,
                color=colour,
                linewidth=2.0 if row is report.main else 1.1,
                linestyle="-" if row.kind == "policy" else "--",
            )
        owned = report.split.pool(pool).owned
        axis.axhline(owned, color="black", linewidth=0.8, linestyle=":")
        axis.annotate(
            f"own {owned}",
            (100, owned),
            ha="right",
            va="bottom",
            fontsize=8,
        )
        axis.set_xlim(0, 100)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("% of the time in which at least so many are needed")
        axis.set_ylabel(f"{_name(report, pool)} nodes")
    axes[-1].legend(fontsize=8, frameon=False)
    return figure


def fleet_figure(report: SizeReport) -> Figure | None:
    """Draw the price of a fixed fleet against the wait, nothing rented."""
    if report.fleet is None or not report.fleet.frontier:
        return None
    points, answer = report.fleet.frontier, report.fleet.answer
    figure, (axis,) = _figure(1, width_in=6.4)
    waits = [point.wait_s / _HOUR_S for point in points]
    usd = [point.usd_per_hour for point in points]
    # who may wait x hours needs the cheapest fleet whose wait is x or less
    axis.step(waits[::-1], usd[::-1], where="post", color=_LINES[0])
    axis.plot(waits, usd, "o", color=_LINES[0], markersize=4)
    for point, x, y in zip(points, waits, usd, strict=True):
        chosen = point.fleet == answer.fleet
        axis.annotate(
            f"{point.fleet.rollout_nodes}+{point.fleet.train_nodes}",
            (x, y),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=8,
            fontweight="bold" if chosen else "normal",
        )
    target_h = answer.target.wait_s / _HOUR_S
    axis.axvline(target_h, color="black", linewidth=0.8, linestyle=":")
    axis.annotate(
        "target", (target_h, min(usd)), xytext=(3, 0), textcoords="offset points", fontsize=8
    )
    axis.set_xlim(left=min(0.0, -0.02 * max(waits)))
    axis.set_xlabel(f"{100 * answer.target.share:g} % of the jobs wait no longer than, h")
    axis.set_ylabel("$/h of the fleet")
    axis.set_title(
        f"Nodes ({_name(report, 'rollout')}+{_name(report, 'train')}) and price, nothing rented",
        fontsize=9,
        loc="left",
    )
    return figure


def price_figure(report: SizeReport) -> Figure | None:
    """Draw what each policy costs at each price ratio, everything rented."""
    found = report.prices
    if found is None:
        return None
    figure, (axis,) = _figure(1, width_in=6.4)
    ratios = [point.ratio for point in found.points]
    for i, (colour, policy) in enumerate(zip(_LINES, found.policies, strict=False)):
        usd = [point.usd_per_hour_mean[i] for point in found.points]
        axis.plot(ratios, usd, color=colour, label=policy)
    for item in found.crossovers:
        axis.axvline(item.ratio, color="black", linewidth=0.8, linestyle=":")
        axis.annotate(
            f"{item.ratio:.2f} x",
            (item.ratio, 0),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=8,
        )
    axis.axvline(found.base_ratio, color="grey", linewidth=0.8)
    axis.annotate(
        f"now {found.base_ratio:.2f} x",
        (found.base_ratio, axis.get_ylim()[1]),
        xytext=(3, -10),
        textcoords="offset points",
        fontsize=8,
        color="grey",
    )
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"price of an {_name(report, 'train')} over an {_name(report, 'rollout')}")
    axis.set_ylabel("$/h, every node rented while held")
    axis.legend(fontsize=8, frameon=False)
    return figure


def uncertainty_figure(report: SizeReport) -> Figure | None:
    """Draw, by growth, the spread of what is needed over drawn traces, and what to buy."""
    found = report.uncertainty
    if found is None:
        return None
    figure, axes = _figure(len(POOLS))
    places = list(range(len(found.growths)))
    for axis, pool in zip(axes, POOLS, strict=True):
        values = [list(item.pool(pool).p95.values) for item in found.growths]
        axis.boxplot(values, positions=places, whis=(5, 95), showfliers=False, widths=0.5)
        sure = [getattr(item.size, f"{pool}_nodes") for item in found.growths]
        axis.plot(places, sure, "v", color=_LINES[1], label=f"{100 * found.confidence:g} % sure")
        owned = [
            (place, item.value.owned[POOLS.index(pool)])
            for place, item in zip(places, found.growths, strict=True)
            if item.value is not None
        ]
        if owned:
            x, y = zip(*owned, strict=True)
            axis.plot(x, y, "_", color=_LINES[0], markersize=18, markeredgewidth=2, label="own")
        axis.set_xticks(places, [f"x{item.growth:g}" for item in found.growths])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("arrivals")
        axis.set_ylabel(f"{_name(report, pool)} nodes needed for 95 % of the time")
    axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    return figure


#: Every picture, by the name of its file and the part it belongs to.
FIGURES: Final[dict[str, tuple[str | None, Callable[[SizeReport], Figure | None]]]] = {
    "demand.svg": (None, demand_figure),
    "fleet.svg": ("fleet", fleet_figure),
    "prices.svg": ("prices", price_figure),
    "uncertainty.svg": ("uncertainty", uncertainty_figure),
}
