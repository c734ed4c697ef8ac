"""Who is cheapest at which two prices: a map over $/GPU-h of rollout and of train GPUs.

Everything is rented while it is held, so a policy costs ``R p_R + T p_T`` with its own GPU-hours.
These depend on prices by their ratio alone: the placer compares sums of prices, and twice the
prices change no comparison. So whoever is cheapest at a ratio (:mod:`planner.size.price_crossover`)
is so along the whole ray from the origin, and the borders are the rays at the crossovers. Ratios
that were not looked at are left open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan2, pi, tan
from typing import TYPE_CHECKING, Final

from planner.output.charts import (
    LOOKS,
    NAME_LETTERS,
    SMALL_PT,
    Look,
    as_written,
    pale,
    panels,
    shortened,
)
from planner.replay.demand import POOLS
from planner.size.words import gpu_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from planner.size.report import SizeReport

__all__ = ["PriceMap", "Region", "policy_looks", "price_map", "price_map_figure"]

#: The axes go so far beyond the prices marked.
_BEYOND: Final = 1.9
#: Regions narrower than this angle, of a quarter turn, are named in the legend alone.
_NARROW: Final = 0.06
_LABEL_AT: Final = 0.64

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Region:
    """Prices at which one policy is the cheapest.

    Attributes
    ----------
    policy : str
        Empty where nothing was looked at.
    low_ratio, high_ratio : float
        Price of a train GPU over that of a rollout GPU; the highest of all is infinite.
    corners : tuple of (float, float)
        $/GPU-h of a rollout and of a train GPU, within the map.
    label_at : (float, float)
        A place well inside.
    narrow : bool
        Whether a name does not fit.
    """

    policy: str
    low_ratio: float
    high_ratio: float
    corners: tuple[Point, ...]
    label_at: Point
    narrow: bool


@dataclass(frozen=True, kw_only=True)
class PriceMap:
    """The map.

    Attributes
    ----------
    most : (float, float)
        Where the axes end, $/GPU-h.
    now : (float, float)
        What the GPUs rent for.
    owned : (float, float) or None
        What an owned GPU costs, used or not, where both are known.
    regions : tuple of Region
        By rising ratio; together they fill the map.
    borders : tuple of float
        Ratios at which the cheapest policy changes.
    """

    most: Point
    now: Point
    owned: Point | None
    regions: tuple[Region, ...]
    borders: tuple[float, ...]


def policy_looks(report: SizeReport) -> dict[str, Look]:
    """Return the look of each policy, the same in every picture."""
    names = dict.fromkeys(row.name for row in report.demand if row.convention == report.convention)
    if report.prices is not None:
        names |= dict.fromkeys(report.prices.policies)
    return {name: LOOKS[i % len(LOOKS)] for i, name in enumerate(names)}


def price_map(report: SizeReport) -> PriceMap | None:
    """Return the map of a report; ``None`` without its part on prices."""
    found = report.prices
    if found is None:
        return None
    cluster = report.options.cluster
    now = (cluster.rollout.gpu.usd_per_gpu_hour, cluster.train.gpu.usd_per_gpu_hour)
    own = [
        None if usd is None else usd / report.costs.pool(pool).gpus_per_node
        for pool in POOLS
        for usd in (report.costs.pool(pool).own_usd_per_node_hour,)
    ]
    owned = None if own[0] is None or own[1] is None else (own[0], own[1])
    marked = [now, *([] if owned is None else [owned])]
    most = (
        _BEYOND * max(point[0] for point in marked),
        _BEYOND * max(now[0] * found.points[0].ratio, *(point[1] for point in marked)),
    )
    spans = list(found.spans)
    inside = [("", 0.0, spans[0][1]), *spans, ("", spans[-1][2], float("inf"))]
    regions = tuple(_region(*span, most) for span in inside if span[1] < span[2])
    return PriceMap(
        most=most,
        now=now,
        owned=owned,
        regions=regions,
        borders=tuple(crossover.ratio for crossover in found.crossovers),
    )


def _end(ratio: float, most: Point) -> Point:
    """Return where the ray of a ratio leaves the map."""
    if ratio * most[0] <= most[1]:
        return most[0], ratio * most[0]
    return most[1] / ratio, most[1]


def _region(policy: str, low: float, high: float, most: Point) -> Region:
    corner = [most] if low < most[1] / most[0] < high else []
    # angles as the map shows them, both axes as long
    scale = most[0] / most[1]
    first, last = atan2(low * scale, 1.0), atan2(high * scale, 1.0)
    middle = tan((first + last) / 2) / scale
    x, y = _end(middle, most)
    return Region(
        policy=policy,
        low_ratio=low,
        high_ratio=high,
        corners=((0.0, 0.0), _end(low, most), *corner, _end(high, most)),
        label_at=(_LABEL_AT * x, _LABEL_AT * y),
        narrow=(last - first) / (pi / 2) < _NARROW,
    )


def price_map_figure(report: SizeReport) -> Figure | None:
    """Draw the map, today's prices on it, and what owned nodes cost."""
    found = price_map(report)
    if found is None or report.prices is None:
        return None
    figure, (axis,) = panels(1, 4.8)
    axis.grid(visible=False)
    _draw_regions(axis, found, policy_looks(report))
    for ratio in found.borders:
        x, y = _end(ratio, found.most)
        axis.plot([0, x], [0, y], color="black", linewidth=1.6)
        axis.annotate(
            f"{ratio:.2f} x",
            (x, y),
            xytext=(4, 0) if x == found.most[0] else (0, 3),
            textcoords="offset points",
            ha="left" if x == found.most[0] else "center",
            va="center" if x == found.most[0] else "bottom",
            fontsize=SMALL_PT,
            annotation_clip=False,
        )
    points = [("now, rented", found.now, "*", 15.0), ("owned, used or not", found.owned, "P", 10.0)]
    for name, point, marker, size in points:
        if point is not None:
            (dot,) = axis.plot(
                *point,
                marker,
                color="black",
                markeredgecolor="white",
                markersize=size,
                label=name,
                linestyle="none",
            )
            dot.set_gid(f"price-{name.partition(',')[0]}")
    axis.set_xlim(0, found.most[0])
    axis.set_ylim(0, found.most[1])
    names = {
        pool: shortened(name, NAME_LETTERS)
        for pool, name in gpu_names(report.options.cluster).items()
    }
    axis.set_xlabel(f"price of an {names['rollout']} GPU, $/GPU-h")
    axis.set_ylabel(f"price of an {names['train']} GPU, $/GPU-h")
    axis.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.04),
        ncols=3,
        frameon=False,
        fontsize=SMALL_PT,
        handlelength=3.0,
        numpoints=1,
    )
    return as_written(figure)


def _draw_regions(axis: Axes, found: PriceMap, looks: Mapping[str, Look]) -> None:
    """Fill the regions and name them where a name fits."""
    named: set[str] = set()
    for i, region in enumerate(found.regions):
        look = looks.get(region.policy, Look("#777777", ":", "", ""))
        name = region.policy or "not looked at"
        (patch,) = axis.fill(
            [x for x, _ in region.corners],
            [y for _, y in region.corners],
            facecolor=pale(look.colour, 0.22 if region.policy else 0.15),
            edgecolor=pale(look.colour, 0.75 if region.policy else 0.15),
            hatch=look.hatch,
            linewidth=0.0,
            label="" if name in named else name,
        )
        patch.set_gid(f"region-{i}")
        named.add(name)
        if not region.narrow:
            axis.text(
                *region.label_at,
                name,
                ha="center",
                va="center",
                fontweight="bold" if region.policy else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2.5},
            )
