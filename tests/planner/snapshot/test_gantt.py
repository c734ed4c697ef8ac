"""The picture of a group: every phase where the plan has it, and the same bytes every time."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.patches import Rectangle

from builders import job_of
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import GroupVersion
from planner.output.pictures import FORMATS, require_format
from planner.replay.moment import Selection
from planner.snapshot.gantt import bars_of, choose_group, gantt_figure, write_gantt
from planner.snapshot.solving import solve_snapshot
from snapshot_cases import fast_and_slow, group_of, rich_group

GROUPS = {"one rate": rich_group, "two rates": fast_and_slow}
SIGNATURE = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def texts(figure: Any) -> list[str]:
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.texts]
    shown += [text.get_text() for text in axes.get_legend().get_texts()]
    shown += [label.get_text() for label in axes.get_yticklabels()]
    return [*shown, axes.get_title(loc="left")]


def drawn(group: GroupVersion, jobs: JobTable, cluster: Cluster = DEFAULT_CLUSTER) -> list[str]:
    return texts(gantt_figure(group, jobs, cluster))


# --- bars -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GROUPS.values(), ids=GROUPS.keys())
def test_bars_on_a_node_do_not_meet(make: Any) -> None:
    """What the checker says of the plan can be seen in the picture, around the circle."""
    group, jobs = make()
    rows: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for bar in bars_of(group, jobs):
        assert 0 <= bar.start_s < group.period_s
        assert bar.length_s > 0
        rows.setdefault(bar.row, []).append((bar.start_s, bar.start_s + bar.length_s))
    assert {row for row in rows if row[0] == "rollout"} == {
        ("rollout", node) for node in group.rollout_nodes
    }
    assert {row for row in rows if row[0] == "train"} == {
        ("train", node) for node in group.train_nodes
    }
    for spans in rows.values():
        spans.sort()
        around = [*spans, (spans[0][0] + group.period_s, 0.0)]
        for (_, end), (begin, _) in pairwise(around):
            assert end <= begin + 1e-6


@pytest.mark.parametrize("make", GROUPS.values(), ids=GROUPS.keys())
def test_bars_add_up_to_the_phases(make: Any) -> None:
    """Run, switch and sync seconds of every job, once per iteration and node."""
    group, jobs = make()
    for i, (job, placement) in enumerate(zip(jobs, group.placements, strict=True)):
        own = [bar for bar in bars_of(group, jobs) if bar.member == i]
        total = {kind: sum(b.length_s for b in own if b.kind == kind) for kind in
                 ("run", "switch", "sync")}  # fmt: skip
        rollout = job.rollout_s * job.rollout_nodes
        train = job.train_s * job.train_nodes
        assert total["run"] == pytest.approx(placement.rate * (rollout + train))
        assert total["sync"] == pytest.approx(placement.rate * job.sync_s)
        # all train nodes are shared; rollout nodes only in the group of one rate
        switch = job.train_switch_s * job.train_nodes
        if make is rich_group:
            switch += job.rollout_switch_s * job.rollout_nodes
        assert total["switch"] == pytest.approx(placement.rate * switch)
        assert {bar.iteration for bar in own} == set(range(placement.rate))


def test_the_switch_comes_first_then_the_run_then_the_sync() -> None:
    """A job alone on its train node, then sharing it: 2 s of switch, 10 s of run, 4 s of sync."""
    group, jobs = fast_and_slow()
    train = [bar for bar in bars_of(group, jobs) if bar.row == ("train", 0) and bar.member == 0]
    assert [bar.kind for bar in train] == ["switch", "run"] * 3
    syncs = [bar for bar in bars_of(group, jobs) if bar.row == ("sync", 0)]
    for switch, run, sync in zip(train[::2], train[1::2], syncs, strict=True):
        assert (switch.length_s, run.length_s, sync.length_s) == pytest.approx((2, 10, 4))
        for before, after in ((switch, run), (run, sync)):
            gap = (after.start_s - before.start_s - before.length_s) % group.period_s
            assert min(gap, group.period_s - gap) == pytest.approx(0, abs=1e-6)


# --- the figure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GROUPS.values(), ids=GROUPS.keys())
def test_two_periods_are_drawn(make: Any) -> None:
    """Each bar is seen for twice its length in all, wraps included."""
    group, jobs = make()
    (axes,) = gantt_figure(group, jobs, DEFAULT_CLUSTER).axes
    end = 2 * group.period_s
    assert axes.get_xlim() == (0, end)
    low, high = axes.get_ylim()
    assert low > high  # rollout nodes above train nodes
    seen = 0.0
    for patch in axes.patches:
        if isinstance(patch, Rectangle) and patch.get_height() < 1:  # not the shaded period
            begin, last = patch.get_x(), patch.get_x() + patch.get_width()
            seen += min(last, end) - max(begin, 0)
            assert last > 0
            assert begin < end
    assert seen == pytest.approx(2 * sum(bar.length_s for bar in bars_of(group, jobs)))


def test_a_job_has_one_colour_and_switches_are_hatched() -> None:
    group, jobs = rich_group()
    (axes,) = gantt_figure(group, jobs, DEFAULT_CLUSTER).axes
    bars = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_height() < 1]
    colours = {bar.get_facecolor() for bar in bars}
    assert len(colours) == len(jobs)
    hatched = {round(bar.get_width(), 6) for bar in bars if bar.get_hatch()}
    assert hatched == {1.5, 10, 12, 14, 15}  # the switches of the three jobs


def test_the_title_says_what_binds() -> None:
    group, jobs = fast_and_slow()
    shown = drawn(group, jobs)
    assert shown[-1] == (
        "Group g1: period 182.0 s\ntightest rule: chain of slow, 31.1 % below 3 deadlines of fast"
    )
    assert "1  fast" in shown
    assert "fast (2)" in shown  # the second iteration of the period
    assert "switch" in shown
    assert "sync, then the next rollout" in shown
    assert "H20, rollout 0" in shown
    assert "H800, train 0" in shown
    assert "sync 2" in shown


def test_what_is_not_there_is_not_in_the_legend() -> None:
    group, jobs = group_of([job_of("a", 60, 40), job_of("b", 40, 60)], [(0,), (0,)], [(0,), (0,)])
    shown = drawn(group, jobs)
    assert "switch" not in shown
    assert not [text for text in shown if text.startswith("sync")]


@pytest.mark.parametrize("jobs", [9, 24])
def test_many_jobs_have_colours_of_their_own(jobs: int) -> None:
    members = [job_of(f"j{i}", 10, 5, 100) for i in range(jobs)]
    group, table = group_of(members, [(0,)] * jobs, [(0,)] * jobs)
    (axes,) = gantt_figure(group, table, DEFAULT_CLUSTER).axes
    bars = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_height() < 1]
    assert len({bar.get_facecolor() for bar in bars}) == jobs


def test_a_wide_gang_has_a_row_per_node(tmp_path: Path) -> None:
    wide = job_of("wide", 60, 40, rollout_nodes=40, train_nodes=1)
    group, table = group_of([wide], [tuple(range(40))], [(0,)])
    figure = gantt_figure(group, table, DEFAULT_CLUSTER)
    assert len(figure.axes[0].get_yticks()) == 41
    assert figure.get_size_inches()[1] < 15


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FORMATS)
def test_equal_groups_give_equal_bytes(suffix: str, tmp_path: Path) -> None:
    """Whatever the user's settings, which stay as they are."""
    group, jobs = rich_group()
    one, two = tmp_path / f"one.{suffix}", tmp_path / f"two.{suffix}"
    write_gantt(group, jobs, DEFAULT_CLUSTER, one)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "mine"}):
        before = dict(mpl.rcParams)
        write_gantt(group, jobs, DEFAULT_CLUSTER, two)
        assert dict(mpl.rcParams) == before
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(SIGNATURE[suffix])
    assert b"Date" not in one.read_bytes()


def test_an_svg_is_well_formed_whatever_the_names(tmp_path: Path) -> None:
    """Letters the font lacks, mathematics, mark-up, control letters, and one too long."""
    odd = ["_a$x_1$", "<b>&-->", "試行 \x01\n", "z" * 500]
    jobs = [job_of(name, 20, 10, 9) for name in odd]
    group, table = group_of(jobs, [(0,)] * 4, [(0,)] * 4)
    path = tmp_path / "odd.SVG"
    write_gantt(group, table, DEFAULT_CLUSTER, path)
    assert ET.parse(path).getroot().tag.endswith("svg")
    shown = drawn(group, table)
    assert "1  _a$x_1$" in shown
    assert "3  試行 ??" in shown
    assert "4  " + "z" * 27 + "…" in shown


@pytest.mark.parametrize("name", ["g.jpg", "g", "svg", "g.svg.gz", ".png"])
def test_other_formats_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"to end in \.svg, \.png, \.pdf, got"):
        require_format(tmp_path / name)


def test_pyplot_is_never_loaded(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from planner.snapshot.gantt import write_gantt
assert "matplotlib" not in sys.modules
from snapshot_cases import rich_group
from instances.hardware import DEFAULT_CLUSTER
write_gantt(*rich_group(), DEFAULT_CLUSTER, Path("g.png"))
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "True False\n", done.stderr
    assert (tmp_path / "g.png").stat().st_size > 10_000


# --- which group ----------------------------------------------------------------------------------


def test_the_largest_group_is_drawn_unless_one_is_named() -> None:
    """'c' leaves no room for anybody; 'a' and 'b' share."""
    jobs = [job_of("c", 60, 40, 1.0, train_state_gb=1500), job_of("a", 60, 40, 1.5),
            job_of("b", 40, 60, 1.5, train_state_gb=1500)]  # fmt: skip
    plan = solve_snapshot(JobTable.from_jobs(jobs), select=Selection.all_jobs()).plan
    assert plan is not None
    assert [len(group.placements) for group in plan.groups] == [1, 2]
    assert choose_group(plan, None).group_id == "g2"
    assert choose_group(plan, "g1").group_id == "g1"
    with pytest.raises(InputError, match=r"a group of the plan \(g1, g2\), got 'g3'"):
        choose_group(plan, "g3")
