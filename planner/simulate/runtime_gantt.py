"""The first seconds of a run, who is on which node when: in letters, or as a picture.

Rows are the rollout nodes of the group, then its train nodes. In letters, a cell is an equal part
of the time shown and holds what takes most of it: the job's letter while its phase runs, ``-``
while it switches, ``.`` while the node stands idle (idle first among equals, then the first to
start). A run keeps as many events as it was asked to; nothing is drawn after the last moment that
they tell all about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from instances.errors import InputError
from planner.output.charts import shortened
from planner.output.pictures import COLOURS, drawing, require_format, save_picture
from planner.simulate.runtime_run import POOLS, Event, GroupRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["run_figure", "run_rows", "run_tips", "shown_s", "write_run"]

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_IDLE, _SWITCH, _UNNAMED = ".", "-", "#"
_LEAST_WIDTH: Final = 10
_WIDTH_IN: Final = 7.2
_ROW_IN: Final = 0.42
_FONT_PT: Final = 9.0
#: Jobs named in one line of the legend, and letters of a name; of long names fewer jobs.
_NAMES: Final = {4: 15, 2: 36}
#: Share of the time shown that a phase must have to bear its job's letter.
_LETTER_SHARE: Final = 0.025

Row = tuple[str, int]


def shown_s(run: GroupRun, seconds: float) -> float:
    """Return how much of the first ``seconds`` the events of a run tell all about.

    Raises
    ------
    InputError
        When ``seconds`` is not above 0, or the run kept no events.
    """
    if not seconds > 0:
        raise InputError(f"Expected seconds > 0 to show, got {seconds!r}.")
    if not run.events:
        raise InputError("Expected a run that kept events, got none.")
    cut = len(run.events) < run.phases
    end_s = run.events[-1].start_s if cut else run.horizon_s
    if not end_s > 0:
        raise InputError("Expected a run that kept more events.")
    return min(seconds, end_s, run.horizon_s)


def _on_nodes(run: GroupRun, end_s: float) -> Mapping[Row, list[Event]]:
    """Return the events of every node by start, all nodes, rollout nodes first."""
    version = run.version
    rows = [(POOLS[0], node) for node in sorted(version.rollout_nodes)]
    rows += [(POOLS[1], node) for node in sorted(version.train_nodes)]
    out: dict[Row, list[Event]] = {row: [] for row in rows}
    for event in run.events:
        placement = version.placements[event.job]
        for node in placement.rollout_pins if event.pool == POOLS[0] else placement.train_pins:
            if event.start_s < end_s:
                out[event.pool, node].append(event)
    return out


def _letter(job: int) -> str:
    return _LETTERS[job] if job < len(_LETTERS) else _UNNAMED


def _parts(event: Event) -> Iterator[tuple[str, float, float]]:
    """Yield the sign, start and end of what an event does."""
    yield _SWITCH, event.start_s, event.run_s
    yield _letter(event.job), event.run_s, event.end_s


def _cells(events: Sequence[Event], end_s: float, width: int) -> str:
    """Return one node's row."""
    cell_s = end_s / width
    taken: list[dict[str, float]] = [defaultdict(float) for _ in range(width)]
    for event in events:
        for sign, first_s, last_s in _parts(event):
            begin = int(first_s / cell_s)
            for cell in range(begin, min(int(last_s / cell_s) + 1, width)):
                part_s = min(last_s, (cell + 1) * cell_s) - max(first_s, cell * cell_s)
                taken[cell][sign] += max(part_s, 0.0)
    row = []
    for signs in taken:
        idle_s = cell_s - sum(signs.values())
        sign = max(signs, key=signs.__getitem__, default=_IDLE)
        row.append(sign if signs and signs[sign] > idle_s + 1e-9 * cell_s else _IDLE)
    return "".join(row)


def run_rows(run: GroupRun, seconds: float, *, width: int = 72) -> list[str]:
    """Return the first seconds of a run as rows of letters, with a legend.

    Parameters
    ----------
    run : GroupRun
        With events.
    seconds : float
        Less is shown where the events end before.
    width : int
        Letters of a row, its label apart.

    Raises
    ------
    InputError
        As :func:`shown_s`, or when ``width`` is below 10.
    """
    if width < _LEAST_WIDTH:
        raise InputError(f"Expected width >= {_LEAST_WIDTH}, got {width}.")
    end_s = shown_s(run, seconds)
    nodes = _on_nodes(run, end_s)
    labels = {row: f"{row[0]} {row[1]}" for row in nodes}
    margin = max(map(len, labels.values()))
    rows = [
        f"{labels[row]:<{margin}} |{_cells(events, end_s, width)}|" for row, events in nodes.items()
    ]
    last = f"{end_s:,.0f} s"
    rows.append(f"{'':<{margin}}  0{last:>{width - 1}}")
    for j, placement in enumerate(run.version.placements):
        rows.append(f"{'':<{margin}}  {_letter(j)}  {placement.job_id}")
    return rows


# --- the picture ----------------------------------------------------------------------------------


def _drawn(run: GroupRun, seconds: float) -> Iterator[tuple[int, Event]]:
    """Yield (place of the node, event) of all that is shown, in order of drawing."""
    for top, events in enumerate(_on_nodes(run, shown_s(run, seconds)).values()):
        for event in events:
            yield top, event


def run_tips(run: GroupRun, seconds: float) -> dict[str, str]:
    """Return what each phase of :func:`run_figure` is, by the gid of its bar."""
    nodes = list(_on_nodes(run, shown_s(run, seconds)))
    tips = {}
    for number, (top, event) in enumerate(_drawn(run, seconds)):
        pool, node = nodes[top]
        job = run.version.placements[event.job].job_id
        switch = ""
        if event.run_s > event.start_s:
            switch = f", after {event.run_s - event.start_s:,.1f} s of switching"
        tips[f"phase-{number}"] = (
            f"{job}, {event.pool} {event.iteration + 1} on {pool} {node}: {event.run_s:,.1f} to "
            f"{event.end_s:,.1f} s{switch}"
        )
    return tips


def run_figure(run: GroupRun, seconds: float, *, title: bool = True) -> Figure:
    """Return the first seconds of a run as a picture.

    Parameters
    ----------
    run : GroupRun
    seconds : float
    title : bool
        Whether the picture says what it shows.

    Raises
    ------
    InputError
        As :func:`shown_s`.
    """
    from matplotlib.figure import Figure

    end_s = shown_s(run, seconds)
    nodes = _on_nodes(run, end_s)
    height_in = 1.4 + _ROW_IN * len(nodes) + 0.2 * -(-len(run.version.placements) // _columns(run))
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(0.0, end_s)
    axes.set_ylim(len(nodes) - 0.5, -0.5)
    for number, (top, event) in enumerate(_drawn(run, seconds)):
        _draw_phase(axes, run, top, event, f"phase-{number}", end_s)
    axes.set_yticks(range(len(nodes)))
    axes.set_yticklabels([f"{pool} {node}" for pool, node in nodes], fontsize=_FONT_PT)
    axes.tick_params(labelsize=_FONT_PT)
    axes.set_xlabel("seconds", fontsize=_FONT_PT)
    if title:
        figure.suptitle(
            f"Group {run.version.group_id}, {run.discipline}: the first {end_s:,.0f} s",
            fontsize=_FONT_PT + 2,
            parse_math=False,
        )
    _name_jobs(axes, run)
    return figure


def _draw_phase(axes: Axes, run: GroupRun, top: int, event: Event, gid: str, end_s: float) -> None:
    """Draw one phase on one node, its switch hatched, with its job's letter where it fits."""
    colour = COLOURS[event.job % len(COLOURS)]
    look: dict[str, Any] = {"height": 0.8, "edgecolor": "black", "linewidth": 0.6}
    if event.run_s > event.start_s:
        switch_s = event.run_s - event.start_s
        axes.barh(top, switch_s, left=event.start_s, color=colour, hatch="//////", **look)
    (bar,) = axes.barh(top, event.end_s - event.run_s, left=event.run_s, color=colour, **look)
    bar.set_gid(gid)
    seen_s = min(event.end_s, end_s) - event.run_s
    if len(run.version.placements) > 1 and seen_s > _LETTER_SHARE * end_s:
        axes.text(
            event.run_s + seen_s / 2,
            top,
            _letter(event.job),
            ha="center",
            va="center",
            fontsize=_FONT_PT,
            color="white" if colour == COLOURS[4] else "black",
        )


def _columns(run: GroupRun) -> int:
    """Return how many jobs are named in one line: as many as their names leave room for."""
    longest = max(len(placement.job_id) for placement in run.version.placements)
    return next((columns for columns, most in _NAMES.items() if longest <= most), min(_NAMES))


def _name_jobs(axes: Axes, run: GroupRun) -> None:
    """Name the jobs above the axes, each by its letter and its colour."""
    from matplotlib.patches import Patch

    columns = _columns(run)
    jobs = [shortened(placement.job_id, _NAMES[columns]) for placement in run.version.placements]
    handles = [
        Patch(facecolor=COLOURS[j % len(COLOURS)], edgecolor="black") for j in range(len(jobs))
    ]
    handles.append(Patch(facecolor="white", edgecolor="black", hatch="//////"))
    names = [f"{_letter(j)}  {job}" for j, job in enumerate(jobs)]
    legend = axes.legend(
        handles,
        [*names, "switch"],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        fontsize=_FONT_PT,
        frameon=False,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def write_run(run: GroupRun, seconds: float, path: Path) -> None:
    """Draw the first seconds of a run into a file; its name says the format.

    Raises
    ------
    InputError
        As :func:`shown_s`, or when the format is none of those of :mod:`planner.output.pictures`.
    """
    require_format(path)
    with drawing():
        save_picture(run_figure(run, seconds), path)
