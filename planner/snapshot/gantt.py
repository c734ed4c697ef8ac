"""A picture of one group: who is on which node when, over two periods.

Rows are the rollout nodes of the group, then its train nodes, then one thin row for the sync
of each job that has one. A job keeps one colour and one number in all rows; the switch that a
phase on a shared node pays first is hatched. Two periods are drawn, so that what wraps around
the end of the first is seen whole in the second.

Equal groups give equal bytes (:mod:`planner.output.pictures`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import GroupVersion, Plan
from planner.output.charts import shortened
from planner.output.pictures import COLOURS, drawing, require_format, save_picture
from planner.placement.group_rules import jobs_of, rule_words, shape_of, slack_words, tightest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Bar",
    "GanttStyle",
    "bars_of",
    "choose_group",
    "gantt_figure",
    "gantt_tips",
    "write_gantt",
]

_PERIODS: Final = 2
_ROW_IN: Final = 0.42
_LEAST_ROW_IN: Final = 0.22
_MANY_ROWS: Final = 24
_SYNC_ROW: Final = 0.55  # of the height of a node's row
#: Width of an average letter over the height of the font, generously.
_LETTER: Final = 0.65
_MOST_LETTERS: Final = 28
#: Less of a period than this is round-off, such as a sync that ends where the period does.
_SLIVER: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class GanttStyle:
    """How large a picture is, and where its jobs are named.

    Attributes
    ----------
    width_in : float
        Of the two periods, inches: labels and a legend beside them come on top.
    font_pt : float
    titled : bool
        Whether the picture says what the group is: its name, period and tightest rule.
    legend_below : bool
        Below the axes, in two columns, rather than beside them.
    """

    width_in: float = 9.0
    font_pt: float = 8.0
    titled: bool = True
    legend_below: bool = False


_STYLE: Final = GanttStyle()


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of one row: a switch, a run or a sync, seconds from the first period's start.

    Attributes
    ----------
    kind : {"switch", "run", "sync"}
    row : tuple of (str, int)
        ("rollout", node), ("train", node), or ("sync", member).
    member : int
        Position of the job in the group.
    iteration : int
        From 0, below the job's rate.
    start_s, length_s : float
        ``start_s`` is in ``[0, period_s)``.
    """

    kind: str
    row: tuple[str, int]
    member: int
    iteration: int
    start_s: float
    length_s: float


def choose_group(plan: Plan, group_id: str | None) -> GroupVersion:
    """Return a group by its id, or the one with the most jobs (the first of equal ones).

    Raises
    ------
    InputError
        When there is no such group, naming those that are there.
    """
    if group_id is None:
        return max(plan.groups, key=lambda group: len(group.placements))
    for group in plan.groups:
        if group.group_id == group_id:
            return group
    names = ", ".join(group.group_id for group in plan.groups)
    raise InputError(f"Expected a group of the plan ({names}), got '{group_id}'.")


def bars_of(group: GroupVersion, jobs: JobTable) -> tuple[Bar, ...]:
    """Return every bar of one period, by member, iteration and row."""
    return tuple(_bars(group, jobs))


def _bars(group: GroupVersion, jobs: JobTable) -> Iterator[Bar]:
    members, period_s = jobs_of(group, jobs), group.period_s
    shape = shape_of(group, members)
    for i, (job, placement) in enumerate(zip(members, group.placements, strict=True)):
        for k, (rollout_at, train_at) in enumerate(placement.starts_s):
            for pool, begin_s, phase_s, run_s, pins in (
                ("rollout", rollout_at, shape.rollout_s[i], job.rollout_s, placement.rollout_pins),
                ("train", train_at, shape.train_s[i], job.train_s, placement.train_pins),
            ):
                switch_s = phase_s - run_s
                for node in sorted(pins):
                    row = (pool, node)
                    if switch_s > 0:
                        yield Bar("switch", row, i, k, begin_s % period_s, switch_s)
                    yield Bar("run", row, i, k, (begin_s + switch_s) % period_s, run_s)
            if job.sync_s > 0:
                begin_s = (train_at + shape.train_s[i]) % period_s
                # that of a one-step job may take longer than a period
                yield Bar("sync", ("sync", i), i, k, begin_s, min(job.sync_s, period_s))


# --- the picture ----------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return shortened(text, _MOST_LETTERS)


def _colours(number: int) -> list[Any]:
    """Return one colour per job: a palette of eight, or as many steps through the hues."""
    if number <= len(COLOURS):
        return list(COLOURS[:number])
    from matplotlib.colors import hsv_to_rgb

    return [hsv_to_rgb((i / number, 0.45 + 0.3 * (i % 2), 0.9)) for i in range(number)]


def _rows(group: GroupVersion, bars: Sequence[Bar]) -> dict[tuple[str, int], tuple[float, float]]:
    """Return (top, height) of every row, downwards, in units of a node's row."""
    rows = [("rollout", node) for node in sorted(group.rollout_nodes)]
    rows += [("train", node) for node in sorted(group.train_nodes)]
    rows += sorted({bar.row for bar in bars if bar.kind == "sync"})
    out: dict[tuple[str, int], tuple[float, float]] = {}
    top, pool = 0.0, "rollout"
    for row in rows:
        if row[0] != pool:  # a gap between the pools
            top, pool = top + 0.35, row[0]
        height = _SYNC_ROW if row[0] == "sync" else 1.0
        out[row] = (top, height)
        top += height
    return out


@drawing()
def gantt_figure(
    group: GroupVersion,
    jobs: JobTable,
    cluster: Cluster = DEFAULT_CLUSTER,
    style: GanttStyle = _STYLE,
) -> Figure:
    """Return the picture of one group.

    Parameters
    ----------
    group : GroupVersion
        With starts; any rates.
    jobs : JobTable
        Holds at least its members.
    cluster : Cluster
        Names the GPUs, and limits the rules.
    style : GanttStyle
        Sizes, and where jobs are named.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; ``savefig`` writes it.

    Examples
    --------
    >>> from planner import catalog_path, read_trace, solve_snapshot
    >>> plan = solve_snapshot(read_trace(catalog_path("tiny-open-shop"))).plan
    >>> [axes.get_xlabel() for axes in gantt_figure(plan.groups[0], plan.jobs).axes]
    ['seconds']
    """
    from matplotlib.figure import Figure

    bars = bars_of(group, jobs)
    rows = _rows(group, bars)
    top, height = list(rows.values())[-1]
    total = top + height
    row_in = _ROW_IN if len(rows) <= _MANY_ROWS else _LEAST_ROW_IN
    figure = Figure(figsize=(style.width_in, 1.2 + row_in * total))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    colours = _colours(len(group.placements))
    axes.set_xlim(0.0, _PERIODS * group.period_s)
    axes.set_ylim(total + 0.15, -0.15)
    for number, bar in enumerate(bars):
        gid = f"bar-{number}"
        _draw_bar(axes, bar, rows[bar.row], group, colours[bar.member], gid, style)
    _label_axes(axes, group, cluster, rows, style)
    if style.titled:
        _add_title(axes, group, jobs, cluster, style)
    _add_legend(axes, group, bars, colours, style)
    return figure


def gantt_tips(figure: Figure, group: GroupVersion, jobs: JobTable) -> dict[str, str]:
    """Return what each bar of a drawn group is, by the gid of its artist.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Of :func:`gantt_figure`, of the same group.
    group : GroupVersion
    jobs : JobTable

    Returns
    -------
    dict of str to str
        Job, what it does, where, and the seconds of the period.
    """
    bars = bars_of(group, jobs)
    out = {}
    for patch in figure.axes[0].patches:
        gid = patch.get_gid() or ""
        if gid.startswith("bar-"):
            bar = bars[int(gid.split("-")[1])]
            placement = group.placements[bar.member]
            doing = {"run": bar.row[0], "switch": f"switch before {bar.row[0]}"}.get(bar.kind)
            where = f" on {bar.row[0]} node {bar.row[1]}" if doing else ""
            turn = f", iteration {bar.iteration + 1}" if placement.rate > 1 else ""
            out[gid] = (
                f"{placement.job_id}: {doing or 'sync'}{where}{turn}, "
                f"{bar.length_s:,.1f} s from {bar.start_s:,.1f} s of the period"
            )
    return out


def _draw_bar(
    axes: Axes,
    bar: Bar,
    row: tuple[float, float],
    group: GroupVersion,
    colour: Any,
    gid: str,
    style: GanttStyle,
) -> None:
    """Draw a bar in both periods, and what of it wraps around from the period before."""
    from matplotlib.patches import Rectangle

    top, height = row
    margin = 0.08 if bar.kind != "sync" else 0.3 * height
    for turn in range(-1, _PERIODS):
        begin = bar.start_s + turn * group.period_s
        first, last = max(begin, 0.0), min(begin + bar.length_s, _PERIODS * group.period_s)
        if last - first <= _SLIVER * group.period_s:
            continue
        # not add_patch: limits are set by hand, and following each bar with them takes its time
        axes.add_artist(
            Rectangle(
                (begin, top + margin),
                bar.length_s,
                height - 2 * margin,
                facecolor=colour,
                edgecolor="black",
                linewidth=0.6,
                hatch="//////" if bar.kind == "switch" else None,
                zorder=3,
                gid=f"{gid}-{turn + 1}",
            )
        )
        if bar.kind == "run":
            _write_in_bar(axes, bar, group, (first, last), top + height / 2, colour, style)


def _write_in_bar(
    axes: Axes,
    bar: Bar,
    group: GroupVersion,
    visible_s: tuple[float, float],
    middle: float,
    colour: Any,
    style: GanttStyle,
) -> None:
    """Write the job's id, or else its number, in the visible part of a bar if there is room."""
    placement = group.placements[bar.member]
    iteration = f" ({bar.iteration + 1})" if placement.rate > 1 else ""
    width_pt = 72 * style.width_in * (visible_s[1] - visible_s[0])
    width_pt /= _PERIODS * group.period_s
    for text in (_plain(placement.job_id) + iteration, f"{bar.member + 1}{iteration}"):
        if len(text) * _LETTER * style.font_pt <= width_pt:
            axes.text(
                sum(visible_s) / 2,
                middle,
                text,
                ha="center",
                va="center_baseline",
                fontsize=style.font_pt,
                color=_ink(colour),
                parse_math=False,
                zorder=6,
                in_layout=False,  # within the axes
            )
            return


def _ink(colour: Any) -> str:
    """Return black or white, whichever is easier to read on a colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.45 else "white"


def _label_axes(
    axes: Axes,
    group: GroupVersion,
    cluster: Cluster,
    rows: dict[tuple[str, int], tuple[float, float]],
    style: GanttStyle,
) -> None:
    """Label rows and seconds, and mark the periods."""
    gpus = {"rollout": cluster.rollout.gpu.name, "train": cluster.train.gpu.name}
    labels = [
        f"sync {number + 1}" if kind == "sync" else f"{_plain(gpus[kind])}, {kind} {number}"
        for kind, number in rows
    ]
    axes.set_yticks([top + height / 2 for top, height in rows.values()])
    axes.set_yticklabels(labels, fontsize=style.font_pt, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.set_label_coords(0.0, 0.5)  # it has none: no labels are measured to place it
    axes.tick_params(axis="x", labelsize=style.font_pt)
    axes.set_xlabel("seconds", fontsize=style.font_pt)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.axvspan(group.period_s, _PERIODS * group.period_s, color="0.96", zorder=0)
    axes.axvline(group.period_s, color="black", linewidth=1.2, linestyle=(0, (4, 2)), zorder=5)
    place = axes.get_xaxis_transform()
    for turn, text in enumerate(("one period", "the same again")):
        middle = (turn + 0.5) * group.period_s
        axes.text(
            middle, 1.01, text, transform=place, ha="center", va="bottom", fontsize=style.font_pt
        )


def _add_title(
    axes: Axes, group: GroupVersion, jobs: JobTable, cluster: Cluster, style: GanttStyle
) -> None:
    """Say what the group is."""
    rule = tightest(group, jobs, cluster)
    axes.set_title(
        f"Group {group.group_id}: period {group.period_s:,.1f} s\n"
        f"tightest rule: {rule_words(rule, _plain)}, {slack_words(rule, _plain)}",
        loc="left",
        pad=18,
        fontsize=style.font_pt + 2,
        parse_math=False,
    )


def _add_legend(
    axes: Axes,
    group: GroupVersion,
    bars: Sequence[Bar],
    colours: Sequence[Any],
    style: GanttStyle,
) -> None:
    """Name jobs by number and colour, and the two signs, beside the picture or below it."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, edgecolor="black", linewidth=0.6) for colour in colours
    ]
    labels = [
        f"{i + 1}  {_plain(placement.job_id)}" for i, placement in enumerate(group.placements)
    ]
    kinds = {bar.kind for bar in bars}
    if "switch" in kinds:
        handles.append(Patch(facecolor="white", edgecolor="black", hatch="//////", linewidth=0.6))
        labels.append("switch")
    if "sync" in kinds:
        handles.append(Line2D([], [], color="black", linewidth=2.5))
        labels.append("sync, then the next rollout")
    place = (1.01, 1.0)
    if style.legend_below:  # of the label of the seconds
        figure = axes.get_figure(root=True)
        assert figure is not None
        place = (0.0, -4 * style.font_pt / (72 * figure.get_figheight()))
    legend = axes.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=place,
        ncols=2 if style.legend_below else 1,
        fontsize=style.font_pt,
        frameon=False,
        handlelength=1.6,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def write_gantt(group: GroupVersion, jobs: JobTable, cluster: Cluster, path: Path) -> None:
    """Draw one group into a file; its name says the format.

    Raises
    ------
    InputError
        When the format is none of those of :mod:`planner.output.pictures`.
    """
    require_format(path)
    with drawing():
        save_picture(gantt_figure(group, jobs, cluster), path)
