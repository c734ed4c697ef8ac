"""Sections on the optimality gap: over time, its parts, by number of jobs, and what is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from models.problem.snapshot import FleetCaps
from planner.gap.document import WITHIN, gap_notes
from planner.gap.proving import GapReport
from planner.gap.rows import GapRow, GapTotals
from planner.gap.tables import gap_legend, gap_lines, gap_table, moments_table
from planner.output.charts import (
    LOOKS,
    SMALL_PT,
    as_written,
    legend_above,
    pale,
    panels,
    whole_numbers,
)
from planner.output.pictures import drawing
from planner.report.parts import Chart, Readout, Rows, Section, Series, Words
from planner.report.printed_tables import rows_of
from planner.snapshot.tables import many, scope_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["gap_answer", "gap_sections", "time_steps"]

_HOUR_S: Final = 3600.0
#: Steps of a line, at most: finer ones cannot be seen.
_MOST_STEPS: Final = 1500
_MOST_POINTS: Final = 800
_WORST: Final = 10
#: Moments nearer than this are one after the other, h.
_TOUCH_H: Final = 1e-9
_STOPPED: Final = {
    "time": "time limit of a snapshot",
    "size": "too large for set partitioning",
    "memory": "memory limit",
    "tolerance": "within the tolerance asked for",
}


def gap_answer(report: GapReport) -> tuple[str, ...]:
    """Return the answer in sentences, the first with what is paid and what is proved."""
    return tuple(gap_lines(report))


def gap_sections(report: GapReport) -> tuple[Section, ...]:
    """Return the sections on the optimality gap: it draws, and solves nothing."""
    answer = gap_answer(report)
    if not report.every:
        words = Words(answer)
        return (Section("gap", "Optimality gap", answer[0], (words,)),)
    with drawing():
        over_time = _over_time(report)
        parts = _parts(report)
        by_jobs = _by_jobs(report) if report.rows else ()
    worst = rows_of(
        moments_table(report.worst(_WORST), _worst_title(report), start_s=_start_s(report)),
        caption=f"from: since the first arrival. {gap_legend(report)}",
    )
    sections = [
        Section(
            "gap",
            "Optimality gap over time",
            answer[0],
            (over_time, Words(answer[1:]), parts, worst),
        )
    ]
    if report.rows:
        jobs = rows_of(gap_table(report), caption=gap_legend(report))
        sections += [
            Section("gap-jobs", "The gap by number of jobs", _jobs_words(report), (*by_jobs, jobs)),
            Section(
                "gap-proofs", "What is proved, and by whom", _proved_words(report), _proofs(report)
            ),
        ]
    return tuple(sections)


def _start_s(report: GapReport) -> float:
    """Return the first arrival, from which hours count here, seconds of the trace."""
    return float(report.result.timeline.time_s[0])


def _worst_title(report: GapReport) -> str:
    shown = len(report.worst(_WORST))
    if shown == 1:
        return f"The worst moment of {len(report.rows):,}"
    return f"The {shown} worst moments of {len(report.rows):,}"


def _ratio_name(report: GapReport) -> str:
    """Return what the ratio is: under ``work`` one along the policy's own trajectory."""
    if report.convention == "wallclock":
        return f"{report.policy} / bound"
    return f"{report.policy} / bound, own trajectory"


def _names(report: GapReport) -> dict[str, str]:
    """Return what the four prices are called, by the name of their field."""
    again = "the same jobs placed anew"
    if not report.result.pins_fixed:
        again = "planned anew by search"
    return {
        "policy_usd": report.policy,
        "replanned_usd": again,
        "held_usd": "cheapest plan known",
        "bound_usd": "proved bound",
    }


# --- over time ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """Some moments one after the other, as one step of the lines.

    Attributes
    ----------
    totals : GapTotals or None
        ``None`` where nothing is paid.
    solved, proved : bool
        Whether every moment was looked at, and has its optimum proved.
    """

    from_h: float
    to_h: float
    totals: GapTotals | None
    solved: bool = True
    proved: bool = True

    def price(self, name: str) -> float | None:
        """Return the mean of one price, $/h."""
        if self.totals is None:
            return None
        return float(getattr(self.totals, name)) / self.totals.hours

    @property
    def ratio(self) -> float | None:
        """Policy over bound."""
        return None if self.totals is None else self.totals.ratio


def time_steps(
    rows: Sequence[GapRow], most: int = _MOST_STEPS, *, start_s: float = 0.0
) -> tuple[Step, ...]:
    """Return moments as steps, in order of time; of very many, neighbours together.

    Hours count from ``start_s``. A step of several moments has their means over time, so integrals
    stay what they are. Times in which nothing is paid are steps without prices.
    """
    size = max(1, ceil(len(rows) / most))
    out: list[Step] = []
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        from_h, to_h = (
            (at_s - start_s) / _HOUR_S for at_s in (some[0].moment.from_s, some[-1].moment.to_s)
        )
        if out and from_h - out[-1].to_h > _TOUCH_H:
            out.append(Step(out[-1].to_h, from_h, None))
        looked_at = [row for row in some if row.n_jobs]
        out.append(
            Step(
                from_h,
                to_h,
                GapTotals.of(some),
                solved=all(row.solved is not None for row in looked_at),
                proved=all(row.proved for row in looked_at),
            )
        )
    return tuple(out)


def _spans(steps: Sequence[Step], apart: Callable[[Step], bool]) -> Iterator[tuple[float, float]]:
    """Yield from and to which hour steps are of a kind, neighbours together."""
    from_h = to_h = -1.0
    for step in steps:
        if not apart(step):
            continue
        if step.from_h > to_h + _TOUCH_H:
            if to_h > from_h:
                yield from_h, to_h
            from_h = step.from_h
        to_h = step.to_h
    if to_h > from_h:
        yield from_h, to_h


def _draw_steps(
    axis: Axes, steps: Sequence[Step], values: Sequence[float | None], **look: object
) -> None:
    """Draw a line of steps with a break where there is no value."""
    nan = float("nan")
    x = [*(step.from_h for step in steps), steps[-1].to_h]
    y = [nan if value is None else value for value in values]
    axis.step(x, [*y, y[-1]], where="post", **look)  # type: ignore[arg-type]


def _over_time(report: GapReport) -> Chart:
    steps = time_steps(report.every, start_s=_start_s(report))
    figure, (top, bottom) = panels(2, 3.0, sharex=True, gridspec_kw={"height_ratios": [1.6, 1.0]})
    names = _names(report)
    prices: list[Series] = []
    # the policy on top of the others, which it often equals
    for rank, (field, name) in reversed(list(enumerate(names.items()))):
        look = LOOKS[rank]
        values = tuple(step.price(field) for step in steps)
        style: dict[str, object] = {"linestyle": look.line, "linewidth": 1.5}
        if field == "bound_usd":  # a band beneath: plans that reach it lie upon it
            style = {"linestyle": "-", "linewidth": 5.0, "alpha": 0.45}
        _draw_steps(top, steps, values, color=look.colour, label=name, **style)
        prices.insert(0, Series(name, values, "$/h"))
    ratios = tuple(step.ratio for step in steps)
    ratio = _ratio_name(report)
    _draw_steps(bottom, steps, ratios, color=LOOKS[0].colour, linewidth=1.4)
    bottom.axhline(1.0, color="black", linewidth=0.9)
    _shade(report, steps, (top, bottom))
    top.set_ylim(bottom=0)
    top.set_ylabel("$/h")
    bottom.set_ylabel(ratio.replace(", ", "\n"))
    bottom.set_xlabel("hours since the first arrival")
    top.set_xlim(steps[0].from_h, steps[-1].to_h)
    legend_above(top, columns=2, first=tuple(names.values()))
    x = tuple(step.from_h for step in steps)
    return Chart(
        name="gap-over-time",
        title="What is paid, and the least that could be, over time",
        figure=as_written(figure),
        alt=_time_alt(report),
        caption=_time_caption(report, steps),
        readouts=(
            Readout(top, x, "time", "h", tuple(prices)),
            Readout(bottom, x, "time", "h", (Series(ratio, ratios, "x"),)),
        ),
    )


def _shade(report: GapReport, steps: Sequence[Step], axes: Sequence[Axes]) -> None:
    """Shade times that were not looked at, and those whose optimum is not proved."""
    kinds: tuple[tuple[str, Callable[[Step], bool], str, str], ...] = (
        ("not looked at", lambda step: not step.solved, "#777777", "xx"),
        ("optimum not proved", lambda step: step.solved and not step.proved, LOOKS[5].colour, "||"),
    )
    for name, apart, colour, hatch in kinds:
        for i, (from_h, to_h) in enumerate(_spans(steps, apart)):
            for axis in axes:
                axis.axvspan(
                    from_h,
                    to_h,
                    facecolor=pale(colour, 0.18),
                    edgecolor=pale(colour, 0.5),
                    hatch=hatch,
                    linewidth=0.0,
                    label=name if i == 0 and axis is axes[0] else "",
                )


def _time_alt(report: GapReport) -> str:
    rows = [row for row in report.rows if row.ratio is not None]
    mean, totals = report.mean_usd_per_hour, report.totals
    text = (
        f"Step lines over {report.result.horizon_h:,.1f} h: {report.policy} pays "
        f"${mean(totals.policy_usd):,.2f}/h on average, the proved bound is "
        f"${mean(totals.bound_usd):,.2f}/h."
    )
    if rows:
        ratios = [row.ratio or 0.0 for row in rows]
        worst = report.worst(1)[0]
        worst_h = (worst.moment.from_s - _start_s(report)) / _HOUR_S
        text += (
            f" Their ratio lies between {min(ratios):.3f} and {max(ratios):.3f}, highest at "
            f"{worst_h:,.1f} h with {many(worst.n_jobs, 'job')}."
        )
    return text


def _time_caption(report: GapReport, steps: Sequence[Step]) -> str:
    words = []
    if len(report.trace.jobs.where_mode("async")):
        words.append("Nodes of async jobs are left out here.")
    moments = ceil(len(report.every) / _MOST_STEPS)
    if moments > 1:
        words.append(
            f"Each step is the mean of {moments} moments, {len(report.every):,} in all: finer "
            "steps cannot be seen."
        )
    if report.n_unsolved:
        words.append(
            f"{many(report.n_unsolved, 'moment')} not looked at (hatched): there the lines of "
            "plans are the policy's own price."
        )
    if any(step.totals is None for step in steps):
        words.append("Lines break where nothing is paid.")
    return " ".join(words)


# --- its parts ------------------------------------------------------------------------------------


def _parts(report: GapReport) -> Chart:
    """Return the four mean prices as bars, the factors between them."""
    totals, names = report.totals, _names(report)
    fields = ("bound_usd", "held_usd", "replanned_usd", "policy_usd")
    factors = ("", "unproved rest", "heuristic loss", "online regret")
    values = (None, totals.unproved_rest, totals.heuristic_loss, totals.online_regret)
    means = [report.mean_usd_per_hour(getattr(totals, field)) for field in fields]
    figure, (axis,) = panels(1, 2.6)
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", linewidth=0.4, alpha=0.6)
    tips = {}
    for i, (mean, field) in enumerate(zip(means, fields, strict=True)):
        look = LOOKS[list(names).index(field)]
        (bar,) = axis.barh(
            i,
            mean,
            height=0.66,
            facecolor=pale(look.colour, 0.5),
            edgecolor=look.colour,
            hatch=look.hatch,
        )
        bar.set_gid(f"part-{i}")
        text = f"${mean:,.2f}/h"
        if values[i] is not None:
            text += f"   {factors[i]} x {values[i]:.3f}"
        axis.text(mean + 0.012 * max(means), i, text, va="center", fontsize=SMALL_PT)
        tips[f"part-{i}"] = f"{names[field]}: {text}"
    axis.set_yticks(range(len(fields)), [_halved(names[field]) for field in fields])
    axis.set_ylim(len(fields) - 0.5, -0.5)
    axis.set_xlim(0, 1.8 * max(means))
    axis.set_xlabel("mean over the horizon, $/h")
    split = ", ".join(
        f"{factor} {value:.3f}"
        for factor, value in zip(factors, values, strict=True)
        if value is not None
    )
    ratio = (
        ""
        if totals.ratio is None
        else f" {_ratio_name(report)}: {totals.ratio:.3f} x = {split.replace(', ', ' x ')}."
    )
    return Chart(
        name="gap-parts",
        title="From the bound to what is paid",
        figure=as_written(figure),
        alt=(
            f"Bars from ${means[0]:,.2f}/h, the bound, to ${means[-1]:,.2f}/h, what is paid.{ratio}"
        ),
        caption="Each bar is the one above it times the factor beside it.",
        tips=tips,
    )


def _halved(name: str) -> str:
    """Return a long name in two lines."""
    words = name.split()
    half = (len(words) + 1) // 2
    return name if len(words) < 4 else f"{' '.join(words[:half])}\n{' '.join(words[half:])}"


# --- by number of jobs ----------------------------------------------------------------------------


def _by_count(report: GapReport) -> list[tuple[int, GapTotals, float, float]]:
    """Return (jobs, totals, least ratio, largest ratio) by jobs present, where there is a ratio."""
    found: dict[int, list[GapRow]] = {}
    for row in report.rows:
        if row.ratio is not None:
            found.setdefault(row.n_jobs, []).append(row)
    return [
        (
            n,
            GapTotals.of(rows),
            min(row.ratio or 0.0 for row in rows),
            max(row.ratio or 0.0 for row in rows),
        )
        for n, rows in sorted(found.items())
    ]


def _points(report: GapReport) -> list[tuple[int, float, float]]:
    """Return (jobs, ratio, hours) of moments, those that would be one dot together."""
    for digits in (3, 2, 1):
        found: dict[tuple[int, float], float] = {}
        for row in report.rows:
            if row.ratio is not None:
                key = row.n_jobs, round(row.ratio, digits)
                found[key] = found.get(key, 0.0) + row.moment.hours
        if len(found) <= _MOST_POINTS:
            break
    return [(n, ratio, hours) for (n, ratio), hours in sorted(found.items())]


def _by_jobs(report: GapReport) -> tuple[Chart, ...]:
    counts, points = _by_count(report), _points(report)
    if not counts:
        return ()
    figure, (axis,) = panels(1, 3.6)
    longest = max(hours for _, _, hours in points)
    axis.scatter(
        [n for n, _, _ in points],
        [ratio for _, ratio, _ in points],
        s=[10 + 90 * hours / longest for _, _, hours in points],
        facecolors=pale(LOOKS[0].colour, 0.25),
        edgecolors=LOOKS[0].colour,
        linewidths=0.6,
        label="moments, larger where they last longer",
    )
    parts = [part for part in report.by_jobs() if part[2].ratio is not None]
    axis.hlines(
        [part.ratio or 0.0 for _, _, part in parts],
        [least - 0.4 for least, _, _ in parts],
        [min(most, counts[-1][0]) + 0.4 for _, most, _ in parts],
        colors=LOOKS[1].colour,
        linewidths=2.4,
        label="integrated over the class",
    )
    axis.axhline(1.0, color="black", linewidth=0.9)
    whole_numbers(axis.xaxis)
    axis.set_xlabel("jobs present that may share nodes")
    axis.set_ylabel(_ratio_name(report).replace(", ", "\n"))
    legend_above(axis, columns=2)
    ratios = [part.ratio or 0.0 for _, part, _, _ in counts]
    series = (
        Series("integrated", tuple(ratios), "x", steps=False),
        Series("least", tuple(low for _, _, low, _ in counts), "x", steps=False),
        Series("largest", tuple(high for _, _, _, high in counts), "x", steps=False),
        Series("lasting", tuple(part.hours for _, part, _, _ in counts), "h", steps=False),
    )
    chart = Chart(
        name="gap-by-jobs",
        title="The ratio against the number of jobs",
        figure=as_written(figure),
        alt=(
            f"Dots of moments with {counts[0][0]} to {counts[-1][0]} jobs; their ratio lies "
            f"between {min(low for _, _, low, _ in counts):.3f} and "
            f"{max(high for _, _, _, high in counts):.3f}. {_jobs_words(report)}"
        ),
        readouts=(Readout(axis, tuple(float(n) for n, *_ in counts), "jobs", "", series),),
    )
    return (chart,)


def _jobs_words(report: GapReport) -> str:
    parts = [part for part in report.by_jobs() if part[2].ratio is not None]
    if not parts:
        return "No moment has a ratio."

    def words(part: tuple[int, int, GapTotals]) -> str:
        least, most, totals = part
        jobs = many(least, "job") if least == most else f"{least}-{most} jobs"
        return f"{totals.ratio:.3f} x with {jobs} present"

    first, worst = parts[0], max(parts, key=lambda part: part[2].ratio or 0.0)
    if first is worst:
        return f"{_ratio_name(report)}, integrated: {words(first)}, no more with any other number."
    return f"{_ratio_name(report)}, integrated: {words(first)}, at most {words(worst)}."


# --- what is proved -------------------------------------------------------------------------------


def _proved_words(report: GapReport) -> str:
    n = len(report.rows)
    return (
        f"{report.n_proved:,} of {many(n, 'moment')} proved optimal, {report.n_within(WITHIN):,} "
        f"within {100 * WITHIN:g}% of their bound."
    )


def _proofs(report: GapReport) -> tuple[Words | Rows, ...]:
    hours: dict[str, float] = {}
    for row in report.rows:
        hours[row.bound_method] = hours.get(row.bound_method, 0.0) + row.moment.hours
    n = len(report.rows)
    methods = tuple(
        (
            name,
            f"{count:,}",
            f"{100 * count / n:.1f}%",
            f"{hours[name]:,.1f}",
            f"{sum(row.proved for row in report.rows if row.bound_method == name):,}",
        )
        for name, count in report.bound_methods.items()
    )
    blocks: list[Words | Rows] = [
        Rows(
            "Who proved the bounds",
            ("method", "moments", "share", "hours", "optimum proved"),
            methods,
            caption=_limit_words(report),
        )
    ]
    stopped = dict(report.stopped_by)
    if report.n_unsolved:
        stopped["not looked at"] = report.n_unsolved
    if stopped:
        rows = tuple((_STOPPED.get(name, name), f"{count:,}") for name, count in stopped.items())
        blocks.append(Rows("What stopped the other proofs", ("stopped by", "moments"), rows))
    notes = gap_notes(report)
    return (*blocks, Words(tuple(notes))) if notes else tuple(blocks)


def _limit_words(report: GapReport) -> str:
    scope = scope_words(report.replayed.limits, FleetCaps())
    return f"Each holds for all valid plans of the moment's jobs, {scope}."
