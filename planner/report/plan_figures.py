"""The charts of a planned trace: cost, GPUs, demand, admission, slowdown and ratio over time.

Time is in hours since the first arrival. Of a policy that draws, the replay with the first seed
is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from planner.output.charts import (
    LOOKS,
    NAME_LETTERS,
    SMALL_PT,
    Look,
    as_written,
    legend_above,
    panels,
    shortened,
    whole_numbers,
)
from planner.output.duration_curve import draw_duration_curve, label_duration_axes
from planner.output.pictures import drawing
from planner.plan.planning import PlanReport
from planner.plan.tables import groups_of
from planner.policies.replay_result import JobRecord, ReplayResult
from planner.replay.demand import POOLS, Pool, demand_of
from planner.replay.replaying import Convention
from planner.report.parts import Chart, Readout, Series
from planner.report.thinning import MOST_STEPS, places, thin_steps, values_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "NEAR_LIMIT",
    "admission_chart",
    "admission_counts",
    "cost_chart",
    "demand_chart",
    "gpu_chart",
    "hours_of",
    "is_near",
    "look_of",
    "ratio_chart",
    "ratio_over_time",
    "slowdown_chart",
    "thinned_words",
    "usd_per_hour_of",
]

FloatArray = npt.NDArray[np.float64]

#: A job at this share of its limit, or above, is near it.
NEAR_LIMIT: Final = 0.95
#: Most points of a chart that have words of their own.
_MOST_TIPS: Final = 300
_HOUR_S: Final = 3600.0
_TIME: Final = "hours since the first arrival"
#: Narrower parts of a bar hold no words, % of the bar.
_NARROW: Final = 9.0
#: Dots, unlike any line of a policy.
_BOUND_LOOK: Final[dict[str, Any]] = {
    "color": "black", "linestyle": (0, (1, 1.4)), "linewidth": 1.4,
}  # fmt: skip


def look_of(report: PlanReport, policy: str) -> Look:
    """Return the look of a policy, the same in every chart."""
    return LOOKS[list(report.results[report.primary]).index(policy) % len(LOOKS)]


def hours_of(result: ReplayResult) -> FloatArray:
    """Return the times of the timeline, hours since the first arrival."""
    line = result.timeline
    out: FloatArray = (line.time_s - line.time_s[0]) / _HOUR_S
    return out


def usd_per_hour_of(result: ReplayResult) -> FloatArray:
    """Return the price over the timeline, $/h."""
    line, cluster = result.timeline, result.cluster
    usd = cluster.rollout.usd_per_hour * line.rollout_nodes
    return usd + cluster.train.usd_per_hour * line.train_nodes


def thinned_words(report: PlanReport) -> str:
    """Return what was left out of the lines, if anything was."""
    longest = max(len(result.timeline.time_s) for _, _, result in report)
    if longest <= MOST_STEPS:
        return ""
    return (
        f" Lines of up to {longest:,} steps are drawn with at most {MOST_STEPS:,}; the least, the "
        "greatest and the last value of each stretch are kept."
    )


def _draw_steps(
    axes: Axes, x: FloatArray, y: npt.ArrayLike, look: Look, *, main: bool, label: str
) -> None:
    some_x, some_y = thin_steps(x, y)
    axes.step(
        some_x,
        some_y,
        where="post",
        label=label,
        color=look.colour,
        linestyle=look.line,
        linewidth=2.2 if main else 1.2,
        zorder=2 if main else 3,  # thin lines above the thick one: equal ones are seen, too
    )


def _readout(axes: Axes, lines: Sequence[tuple[str, str, FloatArray, npt.ArrayLike]]) -> Readout:
    """Return the readout of lines: name, unit, hours and values of each."""
    at = places([x for _, _, x, _ in lines])
    series = tuple(Series(name, values_at(x, y, at), unit) for name, unit, x, y in lines)
    return Readout(axes, tuple(at.tolist()), "time", "h", series)


# --- cost, GPUs, demand ---------------------------------------------------------------------------


def cost_chart(report: PlanReport, convention: Convention) -> Chart:
    """Draw the price of every policy over time, and the bound of the main one."""
    results = report.results[convention]
    main = results[report.policy]
    with drawing():
        figure, (axes,) = panels(1, 3.9)
        lines: list[tuple[str, str, FloatArray, npt.ArrayLike]] = []
        for name, result in results.items():
            x, y = hours_of(result), usd_per_hour_of(result)
            _draw_steps(axes, x, y, look_of(report, name), main=name == report.policy, label=name)
            lines.append((name, "$/h", x, y))
        caption = "Nodes are paid while held."
        if main.promises_valid:
            x, y = hours_of(main), main.timeline.bound_usd_per_hour
            name = f"bound, jobs of {report.policy}"
            some_x, some_y = thin_steps(x, y)
            axes.step(some_x, some_y, where="post", label=name, **_BOUND_LOOK)
            lines.append((name, "$/h", x, y))
            caption += (
                f" Dotted: the {main.bound_method} bound: no valid plan {groups_of(main)} and at "
                f"most {main.limits.max_rate} iteration{'s' * (main.limits.max_rate != 1)} a "
                f"period holds the jobs present under {report.policy} at that moment for less."
            )
        axes.set_xlabel(_TIME)
        axes.set_ylabel("price of the nodes held, $/h")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        legend_above(axes, 4)
        as_written(figure)
    parts = [
        f"{name} ${result.usd_per_hour_mean:,.0f}/h on average and "
        f"${float(usd_per_hour_of(result).max()):,.0f}/h at most"
        for name, result in results.items()
    ]
    if main.promises_valid:
        mean = main.bound_usd_total / main.horizon_h
        parts.append(f"the bound for {report.policy} is ${mean:,.0f}/h on average")
    return Chart(
        name=f"cost-{convention}",
        title=f"Price over time ({convention} convention)",
        figure=figure,
        alt=f"Over {main.horizon_h:,.1f} h: {'; '.join(parts)}.",
        caption=caption + thinned_words(report),
        readouts=(_readout(axes, lines),),
    )


def gpu_chart(report: PlanReport, convention: Convention) -> Chart:
    """Draw the GPUs of each pool, and the jobs, over time."""
    results = report.results[convention]
    cluster, fleet = report.options.cluster, report.options.fleet
    main = results[report.policy]
    readouts = []
    with drawing():
        figure, axes = panels(3, 2.5, sharex=True, height_ratios=(1, 1, 0.75))
        for axis, pool in zip(axes, POOLS, strict=False):
            node = getattr(cluster, pool)
            per = node.gpus_per_node
            lines: list[tuple[str, str, FloatArray, npt.ArrayLike]] = []
            for name, result in results.items():
                x, nodes = hours_of(result), getattr(result.timeline, f"{pool}_nodes")
                look, is_main = look_of(report, name), name == report.policy
                _draw_steps(axis, x, nodes * per, look, main=is_main, label=name)
                lines.append((name, "GPUs", x, nodes * per))
                if is_main:
                    lines.append((f"{name}, nodes", "nodes", x, nodes))
            if fleet is not None:
                owned = getattr(fleet, f"{pool}_nodes") * per
                axis.axhline(owned, label="fleet", **_BOUND_LOOK)
            axis.set_ylim(bottom=0)
            axis.set_ylabel(f"{shortened(node.gpu.name, NAME_LETTERS)} GPUs, {pool}")
            whole_numbers(axis.yaxis)
            _add_nodes(axis, per)
            readouts.append(_readout(axis, lines))
        readouts.append(_draw_jobs(axes[2], report, results))
        axes[2].set_xlabel(_TIME)
        axes[2].set_xlim(left=0)
        legend_above(axes[0], 4)
        as_written(figure)
    peaks = "; ".join(
        f"{name} {_pair(report.most_nodes(name, convention), report)}" for name in results
    )
    waiting = "" if fleet is None else f", and {int(main.timeline.waiting.max())} jobs wait"
    return Chart(
        name=f"gpus-{convention}",
        title=f"GPUs and jobs over time ({convention} convention)",
        figure=figure,
        alt=(
            f"Most GPUs at once: {peaks}. Under {report.policy} at most "
            f"{int(main.timeline.jobs.max())} jobs run at once{waiting}."
        ),
        caption="Each pool peaks at a moment of its own." + thinned_words(report),
        readouts=tuple(readouts),
    )


def _add_nodes(axes: Axes, per_node: int) -> None:
    """Show nodes on the right of a scale of GPUs."""

    def nodes_of(gpus: Any) -> Any:
        return gpus / per_node

    def gpus_of(nodes: Any) -> Any:
        return nodes * per_node

    right = axes.secondary_yaxis("right", functions=(nodes_of, gpus_of))
    whole_numbers(right.yaxis)
    right.set_ylabel(f"nodes of {per_node} GPUs")


def _pair(peak: dict[str, int], report: PlanReport) -> str:
    cluster = report.options.cluster
    return " + ".join(
        f"{peak[pool] * getattr(cluster, pool).gpus_per_node} {getattr(cluster, pool).gpu.name}"
        for pool in POOLS
    )


def _draw_jobs(axes: Axes, report: PlanReport, results: dict[str, ReplayResult]) -> Readout:
    """Draw the jobs that run, and those of the main policy that wait for a fleet."""
    lines: list[tuple[str, str, FloatArray, npt.ArrayLike]] = []
    for name, result in results.items():
        x, main = hours_of(result), name == report.policy
        _draw_steps(
            axes, x, result.timeline.jobs, look_of(report, name), main=main, label=f"{name} runs"
        )
        lines.append((name, "jobs", x, result.timeline.jobs))
        if result.fleet is None:
            continue
        lines.append((f"{name}, waiting", "jobs", x, result.timeline.waiting))
        if main:
            some_x, some_y = thin_steps(x, result.timeline.waiting)
            axes.fill_between(
                some_x, some_y, step="post", color="0.75", label=f"waiting ({name})", zorder=1
            )
    if report.options.fleet is not None:
        axes.legend(frameon=False, fontsize=SMALL_PT, handlelength=3.2)
    axes.set_ylim(bottom=0)
    whole_numbers(axes.yaxis)
    axes.set_ylabel("jobs")
    return _readout(axes, lines)


def demand_chart(report: PlanReport, convention: Convention) -> Chart:
    """Draw for how much of the time at least so many nodes are needed."""
    results = report.results[convention]
    shares = np.linspace(0, 100, 101)
    readouts, found = [], []
    with drawing():
        figure, axes = panels(len(POOLS), 2.9)
        for axis, pool in zip(axes, POOLS, strict=True):
            series = []
            for name, result in results.items():
                demand, look = demand_of(result), look_of(report, name)
                main = name == report.policy
                nodes, hours = demand.duration_curve(pool)
                draw_duration_curve(
                    axis,
                    nodes,
                    hours,
                    demand.horizon_h,
                    label=name,
                    color=look.colour,
                    linestyle=look.line,
                    linewidth=2.0 if main else 1.2,
                )
                values = tuple(float(demand.quantile(pool, 1 - x / 100)) for x in shares)
                series.append(Series(name, values, "nodes", steps=False))
                p95, peak = demand.quantile(pool, 0.95), demand.peak(pool)
                found.append(f"{name} {p95} {pool} nodes for 95 % of the time and {peak} at most")
                if main:
                    _mark(axis, p95, peak, look)
            label_duration_axes(
                axis, f"{shortened(_gpu(report, pool), NAME_LETTERS)} nodes, {pool}"
            )
            readouts.append(
                Readout(axis, tuple(shares.tolist()), "share of time", "%", tuple(series))
            )
        axes[0].set_xlabel("")
        legend_above(axes[0], 4)
        as_written(figure)
    return Chart(
        name=f"demand-{convention}",
        title=f"Demand duration curve ({convention} convention)",
        figure=figure,
        alt=f"Enough are: {'; '.join(found)}.",
        caption=(
            f"p95 and peak are those of {report.policy}: p95 nodes are enough for 95 % of the "
            "time. The area under a line is the mean number of nodes."
        ),
        readouts=tuple(readouts),
    )


def _gpu(report: PlanReport, pool: Pool) -> str:
    return str(getattr(report.options.cluster, pool).gpu.name)


def _mark(axes: Axes, p95: int, peak: int, look: Look) -> None:
    """Mark the p95 and the peak of a curve."""
    axes.plot([5, 0], [p95, peak], look.marker, color=look.colour, clip_on=False, zorder=5)
    # above the line there are other lines; below it there is nothing
    for x, y, below, text in ((5, p95, -20, f"p95: {p95}"), (0, peak, 5, f"peak: {peak}")):
        axes.annotate(
            text,
            (x, y),
            xytext=(6 if below > 0 else -2, below),
            textcoords="offset points",
            fontsize=SMALL_PT,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            zorder=6,
        )


# --- admission ------------------------------------------------------------------------------------


def admission_counts(report: PlanReport, convention: Convention) -> dict[str, dict[str, float]]:
    """Return jobs by kind of admission of each policy that admits, async jobs apart.

    Means over seeds where the policy draws; kinds that no job has are left out.
    """
    out: dict[str, dict[str, float]] = {}
    for name in report.results[convention]:
        runs = report.runs(name, convention)
        kinds = [run.admission for run in runs if run.admission is not None]
        if not kinds or not any(sum(one.values()) for one in kinds):
            continue
        counts = {
            kind.replace("_", " "): sum(one.get(kind, 0) for one in kinds) / len(kinds)
            for kind in kinds[0]
        }
        dedicated = sum(record.job.mode == "async" for record in runs[0].records)
        out[name] = {**counts, "async, dedicated": float(dedicated)}
    some = {kind for counts in out.values() for kind, jobs in counts.items() if jobs}
    return {
        name: {kind: jobs for kind, jobs in counts.items() if kind in some}
        for name, counts in out.items()
    }


def admission_chart(report: PlanReport, convention: Convention) -> Chart:
    """Draw how the jobs were admitted, a bar for each policy."""
    counts = admission_counts(report, convention)
    kinds = list(dict.fromkeys(kind for by_kind in counts.values() for kind in by_kind))
    tips: dict[str, str] = {}
    words = []
    with drawing():
        figure, (axes,) = panels(1, 1.5 + 0.5 * len(counts))
        axes.grid(visible=False)
        for row, (name, by_kind) in enumerate(counts.items()):
            total, left = sum(by_kind.values()), 0.0
            words.append(f"{name}: {', '.join(_counted(by_kind, kind) for kind in by_kind)}")
            for kind, jobs in by_kind.items():
                share = 100 * jobs / total
                if not jobs:
                    continue
                look, gid = LOOKS[kinds.index(kind) % len(LOOKS)], f"part-{row}-{len(tips)}"
                (bar,) = axes.barh(
                    row,
                    share,
                    left=left,
                    height=0.7,
                    color=look.colour,
                    hatch=look.hatch,
                    edgecolor="white",
                )
                bar.set_gid(gid)
                tips[gid] = f"{name}, {kind}: {_jobs(jobs)} of {_jobs(total)} jobs ({share:.1f} %)"
                if share >= _NARROW:
                    _write_in(axes, left + share / 2, row, f"{_jobs(jobs)}\n{share:.1f} %")
                left += share
        _legend_of_kinds(axes, kinds)
        axes.set_yticks(range(len(counts)), list(counts))
        axes.set_ylim(len(counts) - 0.5, -0.5)
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the jobs")
        as_written(figure)
    return Chart(
        name=f"admission-{convention}",
        title=f"How jobs were admitted ({convention} convention)",
        figure=figure,
        alt=f"Jobs by kind of admission. {'; '.join(words)}.",
        tips=tips,
    )


def _jobs(count: float) -> str:
    """Return a count; a mean over seeds with one decimal."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def _counted(by_kind: dict[str, float], kind: str) -> str:
    return f"{_jobs(by_kind[kind])} {kind} ({100 * by_kind[kind] / sum(by_kind.values()):.1f} %)"


def _write_in(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=SMALL_PT,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.2},
    )


def _legend_of_kinds(axes: Axes, kinds: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[
            Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", label=kind)
            for kind, look in zip(kinds, LOOKS, strict=False)
        ],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
        frameon=False,
        fontsize=SMALL_PT,
    )


# --- what each job got ----------------------------------------------------------------------------


def is_near(record: JobRecord) -> bool:
    """Return whether a job that keeps its SLO is near its limit."""
    return record.slo_met and record.slowdown >= NEAR_LIMIT * record.job.slo


def slowdown_chart(report: PlanReport, records: Sequence[JobRecord]) -> Chart:
    """Draw the slowdown that each job got against the one it allows."""
    policy = report.policy
    kinds = {
        "above 100 %, SLO broken": (LOOKS[1], [r for r in records if not r.slo_met]),
        f"{100 * NEAR_LIMIT:.0f}-100 % of its SLO": (LOOKS[2], [r for r in records if is_near(r)]),
        f"below {100 * NEAR_LIMIT:.0f} %": (
            LOOKS[0],
            [r for r in records if r.slo_met and not is_near(r)],
        ),
    }
    told = sorted(records, key=_over_limit, reverse=True)[:_MOST_TIPS]
    gids = {id(record): f"job-{number}" for number, record in enumerate(told)}
    tips = {gids[id(record)]: _told(record) for record in told}
    with drawing():
        figure, (axes,) = panels(1, 4.6)
        most = max(max(r.job.slo, r.slowdown) for r in records)
        axes.plot([1, most], [1, most], color="black", linewidth=1.0, label="limit: the SLO")
        for name, (look, some) in kinds.items():
            style: dict[str, Any] = {
                "color": look.colour, "marker": look.marker, "linestyle": "none",
                "markersize": 5, "alpha": 0.75, "markeredgecolor": "white", "markeredgewidth": 0.4,
            }  # fmt: skip
            label = f"{name}: {len(some):,}"
            for record in some:
                if id(record) in gids:
                    point = axes.plot([record.job.slo], [record.slowdown], **style)[0]
                    point.set_gid(gids[id(record)])
            others = [r for r in some if id(r) not in gids]
            axes.plot(
                [r.job.slo for r in others], [r.slowdown for r in others], label=label, **style
            )
        axes.set_xlabel("slowdown allowed (SLO), x alone")
        axes.set_ylabel("slowdown attained, x alone")
        legend_above(axes, 2)
        as_written(figure)
    broken, near, _ = (len(some) for _, some in kinds.values())
    left_out = len(records) - len(told)
    return Chart(
        name="slowdown",
        title=f"Slowdown of each job under {policy} ({report.primary} convention)",
        figure=figure,
        alt=(
            f"Of {len(records):,} jobs {broken:,} are above their SLO and {near:,} at "
            f"{100 * NEAR_LIMIT:.0f} % of it or more; the largest slowdown is "
            f"{max(r.slowdown for r in records):.2f} x."
        ),
        caption=(
            "Each point is a job; on the line it takes as long as its SLO allows."
            + (" Waiting for the fleet is left out." if report.options.fleet else "")
            + (f" Words on the {len(told):,} nearest to their limits only." if left_out else "")
        ),
        tips=tips,
    )


def _over_limit(record: JobRecord) -> float:
    return record.slowdown / record.job.slo


def _told(record: JobRecord) -> str:
    return (
        f"{record.job.job_id}: {record.slowdown:.3f} x of {record.job.slo:.3f} x allowed, "
        f"group {record.group_id}"
    )


# --- ratio ----------------------------------------------------------------------------------------


def _dedicated_usd_per_hour(result: ReplayResult) -> FloatArray:
    """Return the price of the nodes of async jobs over the timeline, $/h."""
    line = result.timeline
    nodes = {pool: np.zeros(len(line.time_s)) for pool in POOLS}
    for record in result.records:
        if record.job.mode == "async":
            held = (line.time_s >= record.start_s) & (line.time_s < record.departure_s)
            nodes["rollout"] += held * record.job.rollout_nodes
            nodes["train"] += held * record.job.train_nodes
    usd = nodes["rollout"] * result.cluster.rollout.usd_per_hour
    return usd + nodes["train"] * result.cluster.train.usd_per_hour


def ratio_over_time(result: ReplayResult) -> FloatArray:
    """Return cost over bound at each moment, dedicated nodes left out of both.

    NaN where there is nothing to share.
    """
    dedicated = _dedicated_usd_per_hour(result)
    bound = result.timeline.bound_usd_per_hour - dedicated
    paid = usd_per_hour_of(result) - dedicated
    some = bound > 1e-9 * np.maximum(result.timeline.bound_usd_per_hour, 1e-300)
    out: FloatArray = np.full(len(bound), np.nan)
    out[some] = paid[some] / bound[some]
    return out


def ratio_chart(report: PlanReport) -> Chart:
    """Draw the cost of the main policy over its bound at each moment."""
    result = report.result(report.policy)
    x, ratio = hours_of(result), ratio_over_time(result)
    whole = result.ratio
    assert whole is not None
    name = f"cost of {report.policy} over its {result.bound_method} bound"
    with drawing():
        figure, (axes,) = panels(1, 3.2)
        look = look_of(report, report.policy)
        _draw_steps(axes, x, ratio, look, main=True, label=f"{report.policy}, at each moment")
        axes.axhline(whole, label=f"over the whole time: {whole:.2f}", **_BOUND_LOOK)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xlabel(_TIME)
        axes.set_ylabel(f"cost over {result.bound_method} bound, ratio")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        legend_above(axes, 2)
        as_written(figure)
    return Chart(
        name="ratio",
        title=f"{name[0].upper()}{name[1:]} ({report.primary} convention)",
        figure=figure,
        alt=(
            f"The ratio is {whole:.2f} over the whole time, between {np.nanmin(ratio):.2f} and "
            f"{np.nanmax(ratio):.2f} at single moments."
        ),
        caption=(
            f"The bound is that of the jobs present under {report.policy} at that moment, "
            f"{groups_of(result)}; nodes of async jobs are left out of both. A ratio above 1 is "
            "room that is not proved to be there." + thinned_words(report)
        ),
        readouts=(_readout(axes, [("cost over bound", "", x, ratio)]),),
    )
