"""Files of a report: ``report.html``, and its figures as pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from instances.errors import InputError
from planner.output.folder import Writer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.gap.proving import GapReport
    from planner.plan.planning import PlanReport
    from planner.report.parts import Page
    from planner.simulate.simulating import SimulationReport
    from planner.size.report import SizeReport

__all__ = ["REPORT_FILE", "refuse_pictures", "report_figures", "report_writers", "write_report"]

REPORT_FILE: Final = "report.html"


def refuse_pictures(directory: Path, figures: str | None, *, force: bool) -> None:
    """Refuse a folder that holds pictures of the format asked for.

    Which figures a report has is known only when it is made, so any picture is in the way.

    Raises
    ------
    InputError
        Naming one of them, and the option that allows to replace it.
    """
    if figures is None or force or not directory.is_dir():
        return
    there = sorted(path.name for path in directory.glob(f"*.{figures}"))
    if there:
        raise InputError(
            f"{directory} already holds {there[0]}{' and others' * (len(there) > 1)}. Give "
            f"--force to replace pictures, or another --out."
        )


def report_writers(page: Page, figures: str | None = None) -> dict[str, Writer]:
    """Return what writes ``report.html`` and, where a format is given, a picture of each figure.

    Parameters
    ----------
    page : Page
    figures : {"svg", "png", "pdf"} or None

    Returns
    -------
    dict of str to Writer
        By file name.
    """
    from planner.report.page import figures_of, render

    text = render(page)  # first, as saving a figure settles its layout
    writers: dict[str, Writer] = {REPORT_FILE: lambda path: _write(text, path)}
    if figures is None:
        return writers
    drawn = figures_of(page)
    for name, figure in drawn.items():
        writers[f"{name}.{figures}"] = partial(_draw, figure)
    return writers


def write_report(
    path: str | Path,
    *,
    plan: PlanReport | None = None,
    gap: GapReport | None = None,
    size: SizeReport | None = None,
    simulation: SimulationReport | None = None,
    force: bool = False,
) -> None:
    """Write one self-contained HTML page about one report, or several on the same trace.

    Parameters
    ----------
    path : str or Path
        The file to write, ``report.html`` say; whole or not at all.
    plan, gap, size, simulation
        What :func:`planner.plan_trace`, :func:`planner.optimality_gap`,
        :func:`planner.size_trace` and :func:`planner.simulate_trace` gave; at least one.
    force : bool
        Replace a file that is there.

    Raises
    ------
    InputError
        When the file is there and ``force`` is not set, or the disk refuses.
    ValueError
        When there is no report at all.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from planner import catalog_path, plan_trace, read_trace
    >>> report = plan_trace(read_trace(catalog_path("tiny-gang")), baselines=["solo"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Path(folder) / "report.html", plan=report)
    ...     (Path(folder) / "report.html").read_text(encoding="utf-8")[:15]
    '<!DOCTYPE html>'
    """
    from planner.output.single_file import write_file
    from planner.report.page import render
    from planner.report.pages import page_of

    text = render(page_of(plan=plan, gap=gap, size=size, simulation=simulation))
    write_file(Path(path), "path", lambda file: _write(text, file), force=force)


def report_figures(
    *,
    plan: PlanReport | None = None,
    gap: GapReport | None = None,
    size: SizeReport | None = None,
    simulation: SimulationReport | None = None,
) -> dict[str, Figure]:
    """Return every figure of the page that :func:`write_report` writes, by name.

    Parameters
    ----------
    plan, gap, size, simulation
        At least one report.

    Returns
    -------
    dict of str to matplotlib.figure.Figure
        In reading order.

    Raises
    ------
    ValueError
        When there is no report at all.
    """
    from planner.report.page import figures_of
    from planner.report.pages import page_of

    return figures_of(page_of(plan=plan, gap=gap, size=size, simulation=simulation))


def _draw(figure: Figure, path: Path) -> None:
    from planner.output.pictures import drawing, save_picture

    with drawing():
        save_picture(figure, path)


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
