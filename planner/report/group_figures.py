"""The charts of a plan's groups: their lives over time, and the schedules of those that matter.

A group matters by what its nodes cost over its life. Of each of the dearest the version held
longest is drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from instances.plan import GroupVersion, Plan
from planner.output.charts import SMALL_PT, as_written, panels, shortened
from planner.output.pictures import drawing
from planner.placement.group_rules import rule_words, slack_words, tightest
from planner.report.parts import Chart, Picker
from planner.snapshot.gantt import GanttStyle, bars_of, gantt_figure, gantt_tips

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure

__all__ = [
    "MOST_GANTTS",
    "MOST_LIVES",
    "GroupLife",
    "chosen_lives",
    "gantt_picker",
    "group_chart",
    "lives_chart",
    "lives_of",
]

MOST_GANTTS: Final = 24
MOST_LIVES: Final = 40
#: Bytes that the schedules may take in a page, and what is reckoned for each bar, drawn in two
#: periods with its words, and each picture (measured: 610 and 8,300).
_BUDGET: Final = 1_500_000
_BAR_BYTES: Final = 650
_PICTURE_BYTES: Final = 9_000
_HOUR_S: Final = 3600.0
_STYLE: Final = GanttStyle(width_in=5.7, font_pt=SMALL_PT, titled=False, legend_below=True)
_PAD_IN: Final = 0.05
#: Shades are told apart for so many jobs; more share the last one.
_SHADES: Final = 5
_LETTERS: Final = 14
_BAR_HEIGHT: Final = 0.78  # of a row
#: A stretch narrower than this share of the axes holds no number.
_NARROW: Final = 0.018


@dataclass(frozen=True)
class GroupLife:
    """All versions of one group.

    Attributes
    ----------
    group_id : str
    versions : tuple of GroupVersion
        In order of time.
    usd : float
        Price of its nodes while held, $.
    """

    group_id: str
    versions: tuple[GroupVersion, ...]
    usd: float

    @property
    def longest(self) -> GroupVersion:
        """The version held longest, the first of equal ones."""
        return max(self.versions, key=lambda version: version.to_s - version.from_s)

    @property
    def most_jobs(self) -> int:
        """Most jobs at once."""
        return max(len(version.placements) for version in self.versions)


def lives_of(plan: Plan) -> tuple[GroupLife, ...]:
    """Return the groups of a plan, the dearest first, by name where equal."""
    versions: dict[str, list[GroupVersion]] = {}
    for group in plan.groups:
        versions.setdefault(group.group_id, []).append(group)
    lives = [
        GroupLife(
            group_id,
            tuple(sorted(some, key=lambda version: version.from_s)),
            sum(
                plan.cluster.usd_per_hour(len(v.rollout_nodes), len(v.train_nodes))
                * (v.to_s - v.from_s)
                / _HOUR_S
                for v in some
            ),
        )
        for group_id, some in versions.items()
    ]
    return tuple(sorted(lives, key=lambda life: (-life.usd, life.group_id)))


def chosen_lives(plan: Plan, lives: Iterable[GroupLife]) -> tuple[GroupLife, ...]:
    """Return the dearest groups whose schedules fit in a page: at least one, where there is one."""
    out: list[GroupLife] = []
    left = _BUDGET
    for life in lives:
        left -= _PICTURE_BYTES + _BAR_BYTES * len(bars_of(life.longest, plan.jobs))
        if out and (left < 0 or len(out) == MOST_GANTTS):
            break
        out.append(life)
    return tuple(out)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _place(version: GroupVersion, start_s: float) -> str:
    """Return what a version is made of, and when it was held."""
    begin, end = ((at - start_s) / _HOUR_S for at in (version.from_s, version.to_s))
    return (
        f"{_counted(len(version.placements), 'job')} on {len(version.rollout_nodes)}+"
        f"{len(version.train_nodes)} nodes, period {version.period_s:,.0f} s, "
        f"{begin:,.1f}-{end:,.1f} h"
    )


# --- schedules ------------------------------------------------------------------------------------


def gantt_picker(plan: Plan, lives: Iterable[GroupLife], start_s: float) -> Picker:
    """Return the schedules of groups, one shown at a time.

    Parameters
    ----------
    plan : Plan
    lives : iterable of GroupLife
        One or more.
    start_s : float
        Where hours count from, seconds of the trace.
    """
    with drawing():  # of all
        options = tuple(
            (
                f"{life.group_id}: {_place(life.longest, start_s)}",
                _gantt_chart(plan, life, f"group-{number}", start_s),
            )
            for number, life in enumerate(lives, 1)
        )
    return Picker("groups", "Group", options)


def _gantt_chart(plan: Plan, life: GroupLife, name: str, start_s: float) -> Chart:
    version = life.longest
    jobs = ", ".join(placement.job_id for placement in version.placements)
    place = _place(version, start_s)
    return group_chart(
        plan,
        version,
        name=name,
        alt=f"{place}: the version held longest of {len(life.versions):,}. Jobs: {jobs}.",
        caption=f"The group's nodes cost ${life.usd:,.0f} over its life.",
    )


def group_chart(plan: Plan, version: GroupVersion, *, name: str, alt: str, caption: str) -> Chart:
    """Draw the schedule of one group; the caption begins with its tightest rule.

    Parameters
    ----------
    name, alt, caption : str
        Of the chart.
    """
    with drawing():
        figure = gantt_figure(version, plan.jobs, plan.cluster, _STYLE)
        tips = gantt_tips(figure, version, plan.jobs)
        _fit(figure)
    rule = tightest(version, plan.jobs, plan.cluster)
    return Chart(
        name=name,
        title=f"Group {version.group_id}: one period, and the same again",
        figure=figure,
        alt=alt,
        caption=f"Tightest rule: {rule_words(rule, str)}, {slack_words(rule, str)}. {caption}",
        tips=tips,
    )


@functools.cache
def _measure(dpi: float) -> RendererBase:
    """Return what measures texts; it remembers those that figures have in common."""
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, dpi)  # type: ignore[no-untyped-call]


def _fit(figure: Figure) -> None:
    """Make a figure just as large as what is in it: labels and legend are outside the axes."""
    box = figure.get_tightbbox(_measure(figure.dpi))
    wide, high = figure.get_size_inches()
    new_wide, new_high = box.width + 2 * _PAD_IN, box.height + 2 * _PAD_IN
    left, bottom = (_PAD_IN - box.x0) / new_wide, (_PAD_IN - box.y0) / new_high
    figure.axes[0].set_position((left, bottom, wide / new_wide, high / new_high))
    figure.set_size_inches(new_wide, new_high)


# --- lives ----------------------------------------------------------------------------------------


def lives_chart(lives: tuple[GroupLife, ...], start_s: float) -> Chart:
    """Draw how many jobs each of the dearest groups has over time."""
    drawn = sorted(lives[:MOST_LIVES], key=lambda life: (life.versions[0].from_s, life.group_id))
    end_h = max((life.versions[-1].to_s - start_s) / _HOUR_S for life in drawn)
    tips: dict[str, str] = {}
    with drawing():
        figure, (axes,) = panels(1, 1.1 + 0.2 * max(len(drawn), 3))
        axes.grid(visible=False)
        for row, life in enumerate(drawn):
            for version in _stretches(life):
                gid = f"stretch-{len(tips)}"
                _draw_stretch(axes, row, version, start_s, end_h, gid)
                tips[gid] = f"{life.group_id}: {_place(version, start_s)}"
        axes.set_xlim(0, end_h)
        axes.set_ylim(len(drawn) - 0.4, -0.6)
        axes.set_yticks(range(len(drawn)), [shortened(life.group_id, _LETTERS) for life in drawn])
        axes.tick_params(axis="y", labelsize=SMALL_PT, length=0)
        axes.set_xlabel("hours since the first arrival")
        _legend_of_shades(axes, max(life.most_jobs for life in drawn))
        as_written(figure)
    whole = sum(life.usd for life in lives)
    share = f"{100 * sum(life.usd for life in drawn) / whole:.0f} %" if whole else "all"
    most = max(drawn, key=lambda life: life.most_jobs)
    which = "all" if len(drawn) == len(lives) else f"the {len(drawn):,} dearest"
    return Chart(
        name="lives",
        title="Jobs in each group over time",
        figure=figure,
        alt=(
            f"Bars of {which} of {_counted(len(lives), 'group')}, {share} of the price of all "
            f"groups; group {most.group_id} has the most jobs at once, {most.most_jobs}."
        ),
        caption=(
            "Number and shade: jobs that share the group's nodes. Groups in order of their first "
            "arrival."
        ),
        tips=tips,
    )


def _stretches(life: GroupLife) -> list[GroupVersion]:
    """Return the versions, those that follow on each other with the same members joined."""
    import dataclasses

    out: list[GroupVersion] = []
    for version in life.versions:
        last = out[-1] if out else None
        same = last is not None and (
            last.to_s == version.from_s
            and {p.job_id for p in last.placements} == {p.job_id for p in version.placements}
            and (last.rollout_nodes, last.train_nodes)
            == (version.rollout_nodes, version.train_nodes)
            and last.period_s == version.period_s
        )
        if last is not None and same:
            out[-1] = dataclasses.replace(last, to_s=version.to_s)
        else:
            out.append(version)
    return out


def _shade(jobs: int) -> Any:
    """Return a blue, the darker the more jobs."""
    share = (min(jobs, _SHADES) - 1) / (_SHADES - 1)
    light, dark = (0.84, 0.92, 0.97), (0.03, 0.27, 0.52)
    return tuple(a + share * (b - a) for a, b in zip(light, dark, strict=True))


def _draw_stretch(
    axes: Axes, row: int, version: GroupVersion, start_s: float, end_h: float, gid: str
) -> None:
    from matplotlib.patches import Rectangle

    begin, end = ((at - start_s) / _HOUR_S for at in (version.from_s, version.to_s))
    jobs = len(version.placements)
    # not barh: limits are set by hand, and to follow a thousand bars with them takes a second
    axes.add_artist(
        Rectangle(
            (begin, row - _BAR_HEIGHT / 2),
            end - begin,
            _BAR_HEIGHT,
            facecolor=_shade(jobs),
            edgecolor="0.35",
            linewidth=0.4,
            gid=gid,
        )
    )
    if (end - begin) >= _NARROW * end_h * len(str(jobs)):
        axes.text(
            (begin + end) / 2,
            row,
            str(jobs),
            ha="center",
            va="center",
            fontsize=SMALL_PT,
            color="black" if jobs <= (_SHADES + 1) // 2 else "white",
        )


def _legend_of_shades(axes: Axes, most: int) -> None:
    from matplotlib.patches import Patch

    shown = range(1, min(most, _SHADES) + 1)
    axes.legend(
        handles=[
            Patch(
                facecolor=_shade(jobs),
                edgecolor="0.35",
                linewidth=0.4,
                label=_counted(jobs, "job")
                if jobs < _SHADES or most == _SHADES
                else f"{jobs} jobs or more",
            )
            for jobs in shown
        ],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=5,
        frameon=False,
        fontsize=SMALL_PT,
        handlelength=1.4,
        columnspacing=1.2,
    )
