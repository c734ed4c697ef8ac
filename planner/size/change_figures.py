"""The pictures of what changes a size report: factors, tokens planned for, worth of limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.output.charts import LOOKS, SMALL_PT, as_written, legend_above, pale, panels
from planner.size.what_changes import ChangeRow
from planner.size.words import change_words, signed_percent, usd_per_hour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.size.report import SizeReport

__all__ = ["change_figure", "change_rows_shown", "token_figure", "worth_figure"]

#: Levels that are drawn, at most, the most influential.
_MOST: Final = 18
_BAR_IN: Final = 0.3
_FRAME_IN: Final = 1.1


def change_rows_shown(report: SizeReport) -> tuple[ChangeRow, ...]:
    """Return the levels to draw, the most influential first: changes of $ in all."""
    rows = [
        row
        for row in report.changes or ()
        if not row.is_base and signed_percent(row.own_rent_change) not in {"-", "0%"}
    ]
    rows.sort(key=lambda row: -abs(row.own_rent_change or 0.0))
    return tuple(rows[:_MOST])


def change_figure(report: SizeReport) -> Figure | None:
    """Draw by how much each level of each factor changes what owning and renting costs."""
    rows = change_rows_shown(report)
    if not rows:
        return None
    figure, (axis,) = panels(1, _FRAME_IN + _BAR_IN * len(rows))
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", linewidth=0.4, alpha=0.6)
    shares = [100 * (row.own_rent_change or 0.0) for row in rows]
    reach = max(map(abs, shares))
    for i, (row, share) in enumerate(zip(rows, shares, strict=True)):
        look = LOOKS[1 if share > 0 else 0]
        (bar,) = axis.barh(
            i,
            share,
            height=0.72,
            facecolor=pale(look.colour, 0.55),
            edgecolor=look.colour,
            hatch=look.hatch,
        )
        bar.set_gid(f"change-{i}")
        axis.text(
            share + (0.015 if share > 0 else -0.015) * reach,
            i,
            signed_percent(row.own_rent_change),
            ha="left" if share > 0 else "right",
            va="center",
            fontsize=SMALL_PT,
        )
    axis.axvline(0.0, color="black", linewidth=0.9)
    axis.set_yticks(range(len(rows)), [change_words(row) for row in rows], fontsize=SMALL_PT)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    low, high = min(0.0, *shares), max(0.0, *shares)
    axis.set_xlim(low - (0.24 * reach if low < 0 else 0.03 * reach), high + 0.24 * reach)
    axis.set_xlabel("change of what owning and renting costs, %")
    return as_written(figure)


def token_figure(report: SizeReport) -> Figure | None:
    """Draw what planning at each quantile saves, and the promises it breaks."""
    rows = report.tokens
    if not rows:
        return None
    figure, (cost, risk) = panels(2, 2.3, sharex=True)
    places = list(range(len(rows)))
    bars = cost.bar(
        places,
        [row.usd_per_hour_mean for row in rows],
        width=0.55,
        facecolor=pale(LOOKS[0].colour, 0.55),
        edgecolor=LOOKS[0].colour,
    )
    for i, bar in enumerate(bars):
        bar.set_gid(f"tokens-{i}")
        cost.annotate(
            f"${rows[i].usd_per_hour_mean:,.0f}/h",
            (i, rows[i].usd_per_hour_mean),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL_PT,
        )
    cost.margins(y=0.15)
    cost.set_ylabel("$/h, all rented")
    for look, name, values in (
        (LOOKS[1], "jobs that miss their SLO", [100 * row.jobs_missed_share for row in rows]),
        (LOOKS[2], "late iterations", [100 * row.late_iterations_share for row in rows]),
    ):
        risk.plot(
            places, values, color=look.colour, linestyle=look.line, marker=look.marker, label=name
        )
    risk.set_ylim(bottom=0)
    risk.margins(y=0.15)
    risk.set_ylabel("% of jobs, of iterations")
    risk.set_xticks(places, [row.label for row in rows])
    risk.set_xlabel("tokens that rollouts are planned for")
    legend_above(risk, columns=2)
    return as_written(figure)


def worth_figure(report: SizeReport) -> Figure | None:
    """Draw what relaxing each limit is worth, as a range where optima are not proved."""
    prices = [] if report.worth is None else list(report.worth.prices)
    if not any(price.low_usd_per_hour is not None for price in prices):
        return None
    figure, (axis,) = panels(1, _FRAME_IN + 0.45 * len(prices))
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", linewidth=0.4, alpha=0.6)
    for i, price in enumerate(prices):
        low, high = price.low_usd_per_hour, price.high_usd_per_hour
        if low is None or high is None:
            axis.text(0.0, i, " no plan with one fewer", va="center", fontsize=SMALL_PT)
            continue
        (bar,) = axis.barh(
            i, low, height=0.6, facecolor=pale(LOOKS[0].colour, 0.55), edgecolor=LOOKS[0].colour
        )
        bar.set_gid(f"worth-{i}")
        axis.plot([low, high], [i, i], color="black", linewidth=2.2, marker="|", markersize=10)
        text = usd_per_hour(low) if high - low < 0.005 else f"{low:,.2f} to {usd_per_hour(high)}"
        axis.annotate(
            text,
            (max(high, 0.0), i),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
        )
    axis.axvline(0.0, color="black", linewidth=0.9)
    axis.set_yticks(range(len(prices)), [price.label for price in prices], fontsize=SMALL_PT)
    axis.set_ylim(len(prices) - 0.4, -0.6)
    axis.set_xlim(right=1.35 * max(axis.get_xlim()[1], 1e-9))
    axis.set_xlabel("worth, $/h")
    return as_written(figure)
