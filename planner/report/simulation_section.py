"""Sections on what happens to plans at run time: lengths, failures, migration and drift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from planner.output.charts import LOOKS, SMALL_PT, Look, as_written, legend_above, pale, panels
from planner.output.pictures import drawing
from planner.replay.interval import Interval
from planner.report.parts import Block, Chart, Readout, Section, Series, Words
from planner.report.printed_tables import rows_of
from planner.simulate.migration_study import PUBLISHED_GAIN
from planner.simulate.runtime_gantt import run_figure, run_tips, shown_s
from planner.simulate.tables import (
    DRIFT_NOTE,
    FAILURES_NOTE,
    MIGRATION_NOTE,
    RUNTIME_NOTE,
    drift_table,
    failures_table,
    migration_reasons,
    migration_table,
    runtime_table,
    with_half_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from planner.simulate.drift import DriftStudy
    from planner.simulate.failure_report import CheckpointRow
    from planner.simulate.runtime_report import SloRow
    from planner.simulate.runtime_run import GroupRun
    from planner.simulate.simulating import SimulationReport

__all__ = ["NOTHING", "below", "missing_parts", "simulation_answer", "simulation_sections"]

#: Points of a distribution that can be read off.
_GRID: Final = 200
#: Planned periods of a run that are drawn.
_PERIODS: Final = 4
#: The answer where no part is there.
NOTHING: Final = "Nothing was simulated."
_CUT: Final = ", those of shares cut at 0 and 100 %"
_PARTS: Final = {
    "runtime": "plans run with sampled lengths",
    "failures": "failures of jobs and nodes",
    "migration": "moving the last responses of a rollout together",
    "drift": "drift of lengths over a job's life",
}


def simulation_answer(report: SimulationReport) -> tuple[str, ...]:
    """Return one sentence for each part that is there, the first about the promises."""
    makers = (_runtime_words, _failure_words, _migration_words, _drift_words)
    found = tuple(words for make in makers for words in make(report))
    return found or (NOTHING,)


def simulation_sections(
    report: SimulationReport, *, run: GroupRun | None = None
) -> tuple[Section, ...]:
    """Return a section for each part of a report, and one line for each part that is missing.

    Parameters
    ----------
    report : SimulationReport
    run : GroupRun, optional
        Drawn as a Gantt: :func:`planner.simulate.simulating.fullest_group_run`.
    """
    with drawing():
        sections = [
            *_runtime(report, run),
            *_failures(report),
            *_migration(report),
            *_drift(report),
        ]
    rest = tuple(missing_parts(report))
    if not sections:
        answer = simulation_answer(report)[0]
        return (Section("simulation", "At run time", answer, (Words(rest),)),)
    if rest:
        first = sections[0]
        blocks = (*first.blocks, Words(rest))
        sections[0] = Section(first.name, first.title, first.answer, blocks)
    return tuple(sections)


def missing_parts(report: SimulationReport) -> Iterator[str]:
    """Yield a line for each part that is not there, and why."""
    for part, what in _PARTS.items():
        there = getattr(report, part) is not None
        if part in report.failed:
            yield f"{'Not complete' if there else 'No answer'}: {what}. {report.failed[part]}"
        elif part == report.interrupted:
            yield f"Interrupted: {what}; what was done by then is shown."
        elif there:
            continue
        elif part in report.left_out:
            yield f"Left out: {what}. {report.left_out[part]}"
        elif part not in report.params.parts:
            yield f"Not asked for: {what} (part {part})."
        else:
            yield f"Not reached: {what}."


def _half(value: Interval) -> float:
    """Return half the width of an interval; 0 without one."""
    return 0.0 if value.low is None or value.high is None else (value.high - value.low) / 2


def _whiskers(
    axis: Axes,
    x: Sequence[float],
    values: Sequence[Interval],
    *,
    look: Look,
    name: str,
    share: bool = False,
    line: bool = True,
) -> None:
    """Draw means with their intervals; those of shares in %, cut where there are no more."""
    scale, most = (100.0, 1.0) if share else (1.0, float("inf"))
    below_mean = [scale * min(_half(value), value.mean) for value in values]
    above_mean = [scale * max(min(_half(value), most - value.mean), 0.0) for value in values]
    axis.errorbar(
        x,
        [scale * value.mean for value in values],
        yerr=[below_mean, above_mean],
        color=look.colour,
        linestyle=look.line if line else "none",
        marker=look.marker,
        markersize=6,
        capsize=4,
        linewidth=1.3,
        label=name,
    )


# --- runtime --------------------------------------------------------------------------------------


def _runtime_words(report: SimulationReport) -> Iterator[str]:
    if report.runtime:
        worst = report.runtime[-1]
        yield (
            f"Plans of {report.policy} for {worst.level} tokens keep the SLO of "
            f"{with_half_width(worst.slo_attainment)} of the jobs at run time, the latest job at "
            f"{worst.worst_over_deadline:.3f} of its deadline."
        )


def _runtime(report: SimulationReport, run: GroupRun | None) -> Iterator[Section]:
    rows = report.runtime
    if not rows:
        return
    blocks: list[Block] = []
    if all(row.slowdowns for row in rows):
        blocks.append(_attained(rows))
    blocks += [_utilisation(rows), rows_of(runtime_table(rows), caption=RUNTIME_NOTE)]
    if run is not None and run.events:
        blocks.append(_gantt(run))
    answer = next(_runtime_words(report))
    yield Section("simulation-runtime", "Promises at run time", answer, tuple(blocks))


def below(values: Sequence[float], x: Sequence[float]) -> tuple[float, ...]:
    """Return which share of the values is at or below each x, %."""
    order = np.sort(np.asarray(values, dtype=np.float64))
    found = np.searchsorted(order, np.asarray(x), side="right")
    return tuple((100 * found / len(order)).tolist())


def _attained(rows: Sequence[SloRow]) -> Chart:
    """Draw how many jobs have at most which slowdown, and which share of their deadline."""
    figure, axes = panels(2, 2.7)
    readouts = []
    kinds: tuple[tuple[str, Callable[[SloRow], Sequence[float]]], ...] = (
        ("slowdown: mean iteration over worst case alone", lambda row: row.slowdowns),
        ("mean iteration over the longest the SLO allows", lambda row: row.over_deadline),
    )
    for axis, (label, values_of) in zip(axes, kinds, strict=True):
        finite = [v for row in rows for v in values_of(row) if isfinite(v)]
        low, high = min(finite, default=0.0), max(1.02, *finite)
        x = tuple(np.linspace(min(low, 1.0) - 0.02, high * 1.02, _GRID).tolist())
        series = []
        for number, row in enumerate(rows):
            look = LOOKS[number % len(LOOKS)]
            shares = below(values_of(row), x)
            axis.step(
                x, shares, where="post", color=look.colour, linestyle=look.line,
                linewidth=1.7, label=f"planned at {row.level}",
            )  # fmt: skip
            series.append(Series(f"planned at {row.level}", shares, "% of the jobs"))
        axis.set_xlim(x[0], x[-1])
        axis.set_ylim(0, 103)
        axis.set_xlabel(label)
        axis.set_ylabel("% of the jobs at or below")
        readouts.append(Readout(axis, x, "at or below", "", tuple(series)))
    axes[1].axvline(1.0, color="black", linewidth=1.2)
    axes[1].annotate(
        "SLO", (1.0, 0.0), xycoords=("data", "axes fraction"), xytext=(-4, 5), ha="right",
        textcoords="offset points", fontsize=SMALL_PT,
    )  # fmt: skip
    legend_above(axes[0], columns=2)
    words = "; ".join(
        f"planned at {row.level} the middle job's slowdown is {float(np.median(row.slowdowns)):.3f}"
        f" and {row.jobs_ever_missed} of {row.jobs} jobs ever miss their SLO"
        for row in rows
    )
    return Chart(
        name="simulation-attained",
        title="Attained slowdown and deadline, job by job",
        figure=as_written(figure),
        alt=f"Rising curves of the share of jobs: {words}.",
        caption=(
            f"Of each job the mean over {rows[0].replications} runs. Left of 1 in the lower panel "
            "the promise is kept."
        ),
        readouts=tuple(readouts),
    )


def _utilisation(rows: Sequence[SloRow]) -> Chart:
    figure, (axis,) = panels(1, 2.8)
    tips, places = {}, np.arange(len(rows))
    kinds: tuple[tuple[str, Callable[[SloRow], Interval]], ...] = (
        ("rollout", lambda row: row.idle_rollout),
        ("train", lambda row: row.idle_train),
    )
    for number, (pool, idle_of) in enumerate(kinds):
        look = LOOKS[number]
        for i, row in enumerate(rows):
            idle = idle_of(row)
            (bar,) = axis.bar(
                places[i] + 0.38 * (number - 0.5), 100 * (1 - idle.mean), width=0.34,
                yerr=100 * _half(idle), capsize=4, facecolor=pale(look.colour, 0.55),
                edgecolor=look.colour, hatch=look.hatch, label=f"{pool} nodes" if i == 0 else "",
            )  # fmt: skip
            bar.set_gid(f"use-{pool}-{i}")
            tips[f"use-{pool}-{i}"] = (
                f"planned at {row.level}: {pool} nodes run a phase {100 * (1 - idle.mean):.1f}% of "
                "the time they are paid for"
            )
    axis.set_xticks(places, [row.level for row in rows])
    axis.set_ylim(0, 100)
    axis.set_xlabel("tokens that are planned for")
    axis.set_ylabel("in use, % of paid node-hours")
    legend_above(axis)
    words = "; ".join(
        f"at {row.level} rollout {100 * (1 - row.idle_rollout.mean):.1f}%, train "
        f"{100 * (1 - row.idle_train.mean):.1f}%"
        for row in rows
    )
    return Chart(
        name="simulation-in-use",
        title="How much of the paid time runs a phase",
        figure=as_written(figure),
        alt=f"Bars in pairs: {words}.",
        tips=tips,
    )


def _gantt(run: GroupRun) -> Chart:
    seconds = _PERIODS * run.version.period_s
    end_s = shown_s(run, seconds)
    jobs = len(run.version.placements)
    nodes = (len(run.version.rollout_nodes), len(run.version.train_nodes))
    return Chart(
        name="simulation-gantt",
        title=f"Group {run.version.group_id} as it runs ({run.discipline})",
        figure=run_figure(run, seconds, title=False),
        alt=(
            f"The first {end_s:,.0f} s of {jobs} job{'s' * (jobs != 1)} on {nodes[0]} rollout and "
            f"{nodes[1]} train nodes; a period is planned to last {run.version.period_s:,.0f} s."
        ),
        caption="The fullest group of the plan, with drawn lengths.",
        tips=run_tips(run, seconds),
    )


# --- failures -------------------------------------------------------------------------------------


def _failure_words(report: SimulationReport) -> Iterator[str]:
    if report.failures:
        first, last = report.failures[0], report.failures[-1]

        def ratio(row: CheckpointRow) -> str:
            return f"{row.over_seeds(lambda r: r.cost_ratio).mean:.3f} x"

        words = (
            f"With a checkpoint every {_iterations(first)} failures raise the cost to "
            f"{ratio(first)} of that without"
        )
        if first is not last:
            words += f", with one every {_iterations(last)} to {ratio(last)}"
        yield f"{words}."


def _iterations(row: CheckpointRow) -> str:
    n = row.checkpoint_iterations
    return f"{n:,} iteration{'s' * (n != 1)}"


def _failures(report: SimulationReport) -> Iterator[Section]:
    if not report.failures:
        return
    rows = sorted(report.failures, key=lambda row: row.checkpoint_iterations)
    figure, (cost, share) = panels(2, 2.5, sharex=True)
    places = [float(row.checkpoint_iterations) for row in rows]
    ratios = [row.over_seeds(lambda r: r.cost_ratio) for row in rows]
    slo = [row.over_seeds(lambda r: r.slo_attainment) for row in rows]
    available = [row.over_seeds(lambda r: r.availability) for row in rows]
    _whiskers(cost, places, ratios, look=LOOKS[0], name="cost")
    cost.set_ylabel("cost over that\nwithout failures")
    for look, name, values in (
        (LOOKS[1], "jobs within their SLO", slo),
        (LOOKS[2], "job-hours available", available),
    ):
        _whiskers(share, places, values, look=look, name=name, share=True)
    share.set_ylabel("%")
    share.set_xscale("log")
    share.minorticks_off()
    share.set_xticks(places, [f"{row.checkpoint_iterations:,}" for row in rows])
    share.set_xlabel("iterations from checkpoint to checkpoint")
    share.margins(x=0.08)
    legend_above(share)
    x = tuple(places)
    words = "; ".join(
        f"every {_iterations(row)} cost {ratio.mean:.3f} x and SLOs met {with_half_width(met)}"
        for row, ratio, met in zip(rows, ratios, slo, strict=True)
    )
    series = (
        Series("SLOs met", tuple(100 * v.mean for v in slo), "%", steps=False),
        Series("available", tuple(100 * v.mean for v in available), "%", steps=False),
    )
    chart = Chart(
        name="simulation-failures",
        title="What failures cost, by checkpoint interval",
        figure=as_written(figure),
        alt=f"Points with intervals: {words}.",
        caption=f"Means over {len(rows[0].reports)} seeds with 95 % intervals{_CUT}.",
        readouts=(
            Readout(
                cost, x, "checkpoint every", "iterations",
                (Series("cost ratio", tuple(v.mean for v in ratios), "x", steps=False),),
            ),
            Readout(share, x, "checkpoint every", "iterations", series),
        ),
    )  # fmt: skip
    table = rows_of(failures_table(report.failures), caption=FAILURES_NOTE)
    answer = next(_failure_words(report))
    yield Section("simulation-failures", "When jobs and nodes fail", answer, (chart, table))


# --- migration ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gain:
    item: str
    value: Interval
    over: str


def _gains(rows: Sequence[Any]) -> list[_Gain]:
    """Return the gains that are numbers."""
    return [
        _Gain(str(row.item), next(iter(row.ours.values())), str(row.over))
        for row in rows
        if row.ours
    ]


def _migration_words(report: SimulationReport) -> Iterator[str]:
    gains = _gains(report.migration or ())
    if gains:
        means = [gain.value.mean for gain in gains]
        low, high = PUBLISHED_GAIN
        yield (
            f"Moving the last responses of a rollout together changes throughput to "
            f"{min(means):.2f}-{max(means):.2f} x by pairing and guesses; published: "
            f"{low:.2f}-{high:.2f} x."
        )


def _migration(report: SimulationReport) -> Iterator[Section]:
    rows = report.migration
    gains = _gains(rows or ())
    if not rows or not gains:
        return
    figure, (axis,) = panels(1, 1.2 + 0.3 * len(gains))
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", linewidth=0.4, alpha=0.6)
    axis.axvspan(*PUBLISHED_GAIN, facecolor=pale("#777777", 0.22), hatch="||", edgecolor="#BBBBBB",
                 linewidth=0.0, label="published")  # fmt: skip
    axis.axvline(1.0, color="black", linewidth=1.0)
    tips, named = {}, set()
    for i, gain in enumerate(gains):
        look = LOOKS[0 if gain.over == "seeds" else 1]
        name = {"seeds": "95 % interval over seeds", "inputs": "range over inputs"}[gain.over]
        low = gain.value.mean if gain.value.low is None else gain.value.low
        high = gain.value.mean if gain.value.high is None else gain.value.high
        axis.plot([low, high], [i, i], color=look.colour, linestyle=look.line, linewidth=2.0)
        (dot,) = axis.plot(
            gain.value.mean, i, look.marker, color=look.colour, markersize=7,
            label="" if name in named else name,
        )  # fmt: skip
        named.add(name)
        dot.set_gid(f"gain-{i}")
        tips[f"gain-{i}"] = f"{gain.item}: {gain.value.mean:.2f} x, {low:.2f} to {high:.2f} x"
    axis.set_yticks(range(len(gains)), [_two_lines(gain.item) for gain in gains], fontsize=SMALL_PT)
    axis.set_ylim(len(gains) - 0.4, -0.6)
    axis.set_xlabel("throughput with migration over without, x")
    legend_above(axis, wide=True)
    words = "; ".join(f"{gain.item} {gain.value.mean:.2f} x" for gain in gains[:4])
    chart = Chart(
        name="simulation-migration",
        title="What moving the last responses together earns",
        figure=as_written(figure),
        alt=f"{len(gains)} points with ranges, among them {words}.",
        tips=tips,
    )
    table = rows_of(migration_table(rows), caption=MIGRATION_NOTE)
    reasons = migration_reasons(rows)
    answer = next(_migration_words(report))
    blocks: tuple[Block, ...] = (chart, table, *((Words(reasons),) if reasons else ()))
    yield Section("simulation-migration", "Long tails moved together", answer, blocks)


def _two_lines(item: str) -> str:
    """Return a pairing above what it is about: half as wide."""
    return item.replace(": gain ", "\n")


# --- drift ----------------------------------------------------------------------------------------


def _drift_words(report: SimulationReport) -> Iterator[str]:
    for setting, study in (report.drift or {}).items():
        policy = report.policy if report.policy in study.runs else next(iter(study.runs))
        met = study.of(policy, lambda run: run.slo_attainment)
        yield (
            f"When lengths drift ({setting}), {policy} pays "
            f"${study.of(policy, lambda run: run.usd_per_hour_mean).mean:,.2f}/h and keeps the SLO "
            f"of {with_half_width(met)} of the jobs."
        )


def _drift(report: SimulationReport) -> Iterator[Section]:
    if not report.drift:
        return
    blocks: list[Block] = [_drift_chart(report.drift)]
    blocks += [_drift_slowdowns(report.drift)]
    blocks.append(rows_of(drift_table(report.drift), caption=DRIFT_NOTE))
    answer = next(_drift_words(report))
    yield Section("simulation-drift", "When lengths drift", answer, tuple(blocks))


def _policies(studies: Mapping[str, DriftStudy]) -> list[str]:
    return list(dict.fromkeys(policy for study in studies.values() for policy in study.runs))


def _drift_chart(studies: Mapping[str, DriftStudy]) -> Chart:
    figure, (cost, met) = panels(2, 2.5, sharex=True)
    policies, words = _policies(studies), []
    for number, (setting, study) in enumerate(studies.items()):
        there = [policy for policy in policies if policy in study.runs]
        x = [policies.index(p) + 0.16 * (number - (len(studies) - 1) / 2) for p in there]
        look = LOOKS[number % len(LOOKS)]
        usd = [study.of(p, lambda run: run.usd_per_hour_mean) for p in there]
        slo = [study.of(p, lambda run: run.slo_attainment) for p in there]
        _whiskers(cost, x, usd, look=look, name=setting, line=False)
        _whiskers(met, x, slo, look=look, name=setting, share=True, line=False)
        words += [
            f"{setting}, {p}: ${a.mean:,.2f}/h, SLOs met {with_half_width(b)}"
            for p, a, b in zip(there, usd, slo, strict=True)
        ]
    cost.set_ylabel("$/h, mean")
    cost.set_ylim(bottom=0)
    met.set_ylabel("jobs within\ntheir SLO, %")
    met.set_xticks(range(len(policies)), policies)
    met.set_xlim(-0.6, len(policies) - 0.4)
    met.set_xlabel("policy")
    legend_above(cost)
    return Chart(
        name="simulation-drift",
        title="Cost and promises when lengths drift",
        figure=as_written(figure),
        alt=f"Points with intervals. {'; '.join(words[:6])}.",
        caption=f"Means over seeds with 95 % intervals{_CUT}; the same draws for every policy.",
    )


def _drift_slowdowns(studies: Mapping[str, DriftStudy]) -> Chart:
    """Draw boxes of the jobs' slowdown over their SLO, by setting and policy."""
    boxes: list[tuple[str, list[float]]] = []
    for setting, study in studies.items():
        for policy, runs in study.runs.items():
            values = [job.slowdown / job.slo for run in runs for job in run.jobs.values()]
            boxes.append((f"{setting}, {policy}", [v for v in values if isfinite(v)]))
    figure, (axis,) = panels(1, 1.2 + 0.34 * len(boxes))
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", linewidth=0.4, alpha=0.6)
    drawn = axis.boxplot(
        [values for _, values in boxes], positions=range(len(boxes)), orientation="horizontal",
        whis=(5, 95), showfliers=False, widths=0.6, patch_artist=True,
        boxprops={"facecolor": "#DDDDDD"}, medianprops={"color": "black", "linewidth": 1.6},
    )  # fmt: skip
    tips = {}
    for i, (box, (name, values)) in enumerate(zip(drawn["boxes"], boxes, strict=True)):
        box.set_gid(f"slowdown-{i}")
        low, middle, high = (
            np.quantile(values, (0.05, 0.5, 0.95)).tolist() if values else (0.0,) * 3
        )
        tips[f"slowdown-{i}"] = (
            f"{name}: {middle:.3f} in the middle, {low:.3f} to {high:.3f} for 90% of the jobs"
        )
    axis.axvline(1.0, color=LOOKS[1].colour, linewidth=1.6, linestyle="--", label="SLO")
    axis.set_yticks(range(len(boxes)), [name for name, _ in boxes], fontsize=SMALL_PT)
    axis.set_ylim(len(boxes) - 0.4, -0.6)
    axis.set_xlabel("attained slowdown of a job over its SLO")
    legend_above(axis)
    return Chart(
        name="simulation-drift-slowdown",
        title="Attained slowdown over the SLO, job by job",
        figure=as_written(figure),
        alt=f"Boxes by setting and policy: {'; '.join(list(tips.values())[:4])}.",
        caption="Box: middle half of the jobs of all seeds. Whiskers: 5 % to 95 %.",
        tips=tips,
    )
