"""A synthetic report with every kind of block, and names that try to break out of the page."""

from matplotlib.figure import Figure

from planner.output.pictures import COLOURS, drawing
from planner.report.parts import (
    Chart,
    Code,
    Folded,
    Page,
    Picker,
    Readout,
    Rows,
    Section,
    Series,
    Words,
)

#: A job's name that would run a script, were it not escaped, and one that would end a script.
HOSTILE = "</script><img src=x onerror=alert(1)>"

HOURS = (0.0, 10.0, 20.0, 30.0, 40.0)
WEAVE = (0.0, 452.25, 510.0, None, 0.0)
SOLO = (0.0, 767.0, 940.0, 400.0, 0.0)
JOBS = (0.0, 3.0, 7.0, 4.0, 0.0)


def cost_chart(name: str = "cost") -> Chart:
    """Two panels: steps above, and points on a logarithmic axis below."""
    with drawing():
        figure = Figure(figsize=(8, 4.6), layout="constrained")
        top, bottom = figure.subplots(2, 1)
        for (label, values), colour, style in zip(
            (("weave", WEAVE), ("solo", SOLO)), COLOURS[4:], ("-", "--"), strict=False
        ):
            shown = [float("nan") if v is None else v for v in values]
            top.step(HOURS, shown, where="post", label=label, color=colour, linestyle=style)
        top.set_xlabel("time since the first arrival (h)")
        top.set_ylabel("cost ($/h)")
        top.legend(frameon=False)
        bottom.plot((1, 10, 100), (1.0, 1.5, 2.25), marker="o", color=COLOURS[2])
        bottom.set_xscale("log")
        bottom.set_xlabel("jobs")
        bottom.set_ylabel("cost / bound")
    return Chart(
        name=name,
        title="Cost over time, and its ratio to the bound",
        figure=figure,
        alt="weave costs $510/h at 20 h, solo $940/h. The ratio grows from 1.0 to 2.25.",
        caption="Synthetic figures, made to test the page.",
        readouts=(
            Readout(
                top,
                HOURS,
                "time",
                "h",
                (Series("weave", WEAVE, "$/h"), Series("solo", SOLO, "$/h")),
            ),
            Readout(
                bottom,
                (1.0, 10.0, 100.0),
                "jobs",
                "",
                (Series("ratio", (1.0, 1.5, 2.25), "×", steps=False),),
            ),
        ),
    )


def gantt(name: str) -> Chart:
    """Bars with tips, hatched, one of them with a hostile name; no readout."""
    with drawing():
        figure = Figure(figsize=(8, 2.4), layout="constrained")
        axes = figure.add_subplot()
        for i, (start, width) in enumerate(((0, 5), (5, 3), (8, 6))):
            bars = axes.barh(
                i % 2, width, left=start, color=COLOURS[i], hatch=("", "//", "..")[i], edgecolor="k"
            )
            bars[0].set_gid(f"tip-{i}")
        axes.text(0.2, 0, HOSTILE[:14], va="center")
        axes.set_yticks((0, 1), ("rollout 0", "train 0"))
        axes.set_xlabel("time in the period (s)")
    return Chart(
        name=name,
        title=f"Group {name}",
        figure=figure,
        alt=f"Three phases fill 14 s of the period of {HOSTILE}.",
        tips={
            "tip-0": f"{HOSTILE}: rollout, 0 s to 5 s",
            "tip-1": "b: train, 5 s to 8 s",
            "tip-2": "c: rollout, 8 s to 14 s",
        },
    )


def bars() -> Chart:
    """One pair of axes with a second y axis: both are read together."""
    with drawing():
        figure = Figure(figsize=(7, 3), layout="constrained")
        axes = figure.add_subplot()
        axes.fill_between(HOURS, JOBS, step="post", color=COLOURS[0], hatch="//", label="jobs")
        axes.set_xlabel("time since the first arrival (h)")
        axes.set_ylabel("jobs present")
        twin = axes.twinx()
        twin.step(HOURS, SOLO, where="post", color=COLOURS[5])
        twin.set_ylabel("cost ($/h)")
    return Chart(
        name="present",
        title="Jobs present",
        figure=figure,
        alt="At most 7 jobs are present, at 20 h.",
        readouts=(
            Readout(axes, HOURS, "time", "h", (Series("jobs", JOBS),)),
            Readout(twin, HOURS, "time", "h", (Series("solo", SOLO, "$/h"),)),
        ),
    )


def every_block() -> Page:
    """A page with every kind of block."""
    jobs = tuple((f"job-{i}", f"{100.5 + i}", "3,600", "direct") for i in range(4))
    wide = tuple(f"column {i} (s)" for i in range(14))
    return Page(
        title="Plan of production-200",
        subtitle="200 synthetic jobs, arriving over 370 h.",
        answer=(
            "Rent 27 H20 and 19 H800 nodes at their peak: the jobs then cost $452/h on average, "
            "1.84 times less than a pool for each job.",
            "At most 6 % could be saved by any other plan.",
        ),
        sections=(
            Section(
                "cost",
                "What does it cost?",
                "The plan costs $452/h on average, solo pools $767/h.",
                (
                    Words(
                        (
                            "Cost counts each node from its first job to its last. A node holds "
                            "eight GPUs, and its price is an input.",
                            f"One job is called {HOSTILE}.",
                        )
                    ),
                    cost_chart(),
                    Rows(
                        "Jobs",
                        ("job", "rollout (s)", "period (s)", "admission"),
                        ((HOSTILE, "12.5", "3,600", "isolated"), *jobs),
                        caption="Phases are worst cases.",
                    ),
                    bars(),
                ),
            ),
            Section(
                "groups",
                "Who shares nodes with whom?",
                "Three groups of two jobs each, 14 s a period.",
                (
                    Picker(
                        "group",
                        "Group",
                        tuple((f"{name} {HOSTILE}", gantt(name)) for name in ("g1", "g2", "g3")),
                    ),
                    Folded(
                        "All jobs and their periods",
                        (
                            Words(("Folded on a screen, open in print.",)),
                            Rows("Wide", ("job", *wide), (("a", *("1,234.5",) * 14),) * 20),
                            cost_chart("folded-cost"),
                        ),
                    ),
                ),
            ),
            Section(
                "reproduce",
                "How do I get these figures again?",
                "One command, on the trace with this sum.",
                (Code("plan --trace production-200.csv --out report", caption="Seed 0."),),
            ),
        ),
    )
