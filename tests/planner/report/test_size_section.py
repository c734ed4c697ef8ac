"""Sections on the size of the fleet: numbers of the document, borders of the map, missing parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER, Cluster
from planner.output.pictures import drawing
from planner.policies.policy import PolicyOptions
from planner.replay.demand import POOLS
from planner.replay.replaying import replay
from planner.report.page import render
from planner.report.parts import Chart, Folded, Page, Rows, Section, Words, charts_of
from planner.report.size_section import missing_parts, size_answer, size_sections
from planner.size.change_figures import change_rows_shown
from planner.size.document import size_document
from planner.size.economics import split
from planner.size.figures import owned_curve
from planner.size.params import PARTS, SizeParams
from planner.size.price_map import PriceMap, price_map, price_map_figure
from planner.size.report import SizeReport
from planner.size.sizing import size_trace
from planner.size.words import recommendation

JOBS = production(n_jobs=14, seed=1)
HOUR_S = 3600.0
QUICK = SizeParams(
    replications=3,
    samples=1,
    moments=1,
    growths=(1.0, 2.0),
    price_ratios=(1.0, 2.0, 4.0, 8.0),
    dram_tb=(1.0, 2.0),
    slo_scales=(0.0, 1.0),
    link_gbps=(20.0,),
    links=(1,),
    group_sizes=(1, 5),
    ladder_s=(0.0, HOUR_S),
)


@pytest.fixture(scope="module")
def full() -> SizeReport:
    return size_trace(JOBS, params=QUICK, baselines=("solo", "colocated"))


@pytest.fixture(scope="module")
def document(full: SizeReport) -> dict[str, Any]:
    return size_document(full)


@pytest.fixture(scope="module")
def sections(full: SizeReport) -> tuple[Section, ...]:
    return size_sections(full)


def every_block(sections: Sequence[Section]) -> list[Any]:
    out: list[Any] = []
    for section in sections:
        for block in section.blocks:
            out += block.blocks if isinstance(block, Folded) else [block]
    return out


def chart(sections: Sequence[Section], name: str) -> Chart:
    (found,) = [each for each in charts_of(every_block(sections)) if each.name == name]
    return found


def table(sections: Sequence[Section], title: str) -> Rows:
    blocks = every_block(sections)
    (found,) = [b for b in blocks if isinstance(b, Rows) and b.title.startswith(title)]
    return found


# --- the map --------------------------------------------------------------------------------------


def priced(rollout_usd: float, train_usd: float) -> Cluster:
    """Return the cluster at other prices of a GPU-hour."""
    pools = {}
    for name, usd in (("rollout", rollout_usd), ("train", train_usd)):
        node = getattr(DEFAULT_CLUSTER, name)
        gpu = dataclasses.replace(node.gpu, usd_per_gpu_hour=usd)
        pools[name] = dataclasses.replace(node, gpu=gpu)
    return DEFAULT_CLUSTER.replace(**pools)


def cheapest_by_hand(policies: Sequence[str], rollout_usd: float, train_usd: float) -> str:
    """Return who costs least at two prices: node-hours of a replay at these times their price."""
    options = PolicyOptions(cluster=priced(rollout_usd, train_usd))
    costs = {}
    for policy in policies:
        hours = replay(JOBS, policy, options, convention="work").node_hours
        costs[policy] = 8 * (hours["rollout"] * rollout_usd + hours["train"] * train_usd)
    return min(costs, key=lambda policy: costs[policy])


def found_map(report: SizeReport) -> PriceMap:
    found = price_map(report)
    assert found is not None
    return found


def test_regions_are_of_whom_the_prices_within_make_cheapest(full: SizeReport) -> None:
    """At the label of each region, well inside, and along the ray through it: costs are linear."""
    assert full.prices is not None
    regions = [region for region in found_map(full).regions if region.policy]
    assert len({region.policy for region in regions}) > 1  # or the test shows little
    for region in regions:
        x, y = region.label_at
        for scale in (1.0, 0.5, 0.1):
            by_hand = cheapest_by_hand(full.prices.policies, scale * x, scale * y)
            assert by_hand == region.policy, region


def test_borders_are_rays_at_the_crossovers(full: SizeReport) -> None:
    assert full.prices is not None
    crossovers = tuple(crossover.ratio for crossover in full.prices.crossovers)
    found = found_map(full)
    assert found.borders == crossovers != ()
    with drawing():
        figure = price_map_figure(full)
    assert figure is not None
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    drawn = [line.get_ydata()[1] / line.get_xdata()[1] for line in lines]
    assert drawn == pytest.approx(crossovers)
    assert all(line.get_xdata()[0] == line.get_ydata()[0] == 0 for line in lines)


def test_regions_fill_the_map_and_meet_at_equal_ratios(full: SizeReport) -> None:
    found = found_map(full)
    areas = []
    for region in found.regions:
        x, y = np.array(region.corners).T
        areas.append(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
    assert sum(areas) == pytest.approx(found.most[0] * found.most[1])
    highs = [region.high_ratio for region in found.regions]
    assert [region.low_ratio for region in found.regions] == [0.0, *highs[:-1]]
    assert (found.regions[0].policy, found.regions[-1].policy) == ("", "")  # not looked at


def test_prices_of_now_and_of_owned_nodes_are_marked(full: SizeReport) -> None:
    found = found_map(full)
    assert found.now == (1.85, 5.28)
    assert found.owned == pytest.approx(
        tuple(full.costs.pool(pool).own_usd_per_node_hour / 8 for pool in POOLS)
    )
    none = dataclasses.replace(full.costs.rollout, usd_per_node=None, own_usd_per_gpu_hour=None)
    rented = dataclasses.replace(full, costs=dataclasses.replace(full.costs, rollout=none))
    assert found_map(rented).owned is None


# --- numbers --------------------------------------------------------------------------------------


def test_the_answer_is_what_the_command_prints(
    full: SizeReport, sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    assert size_answer(full) == tuple(recommendation(full))
    answer = sections[0].answer
    assert answer == size_answer(full)[0]
    assert f"${document['recommendation']['usd_per_hour']:,.2f}/h" in answer


def test_curves_of_demand_are_those_of_the_document(
    full: SizeReport, sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    """Read at 5 % of the time: as many as are enough for all but 5 %."""
    readouts = chart(sections, "size-demand").readouts
    policies = document["conventions"]["work"]["policies"]
    for readout, pool in zip(readouts, POOLS, strict=True):
        for series in readout.series:
            row = policies[series.name]
            assert series.values[0] == row[f"peak_{pool}_nodes"]
            assert abs(series.values[5] - row[f"p95_{pool}_nodes"]) <= 1  # a step may end at 5 %
            assert list(series.values) == sorted(series.values, reverse=True)


def test_owned_counts_cost_what_the_split_says(full: SizeReport) -> None:
    """The least is the recommendation, and a count beside it what :func:`split` makes of it."""
    for pool in POOLS:
        counts, usd = owned_curve(full, pool)
        best = full.split.pool(pool).owned
        assert usd[counts.index(best)] == pytest.approx(full.split.usd_per_hour)
        assert min(usd) == pytest.approx(full.split.usd_per_hour)
        owned = {other: full.split.pool(other).owned for other in POOLS} | {pool: counts[-1]}
        most = split(full.main.demand, owned["rollout"], owned["train"], full.costs)
        assert usd[-1] == pytest.approx(most.usd_per_hour)


def test_the_frontier_is_the_documents(
    sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    frontier = document["fixed_fleet"]["frontier"]
    shown = chart(sections, "size-frontier")
    readout = shown.readouts[0]
    waits = sorted(point["wait_s"] / HOUR_S for point in frontier)
    assert readout.x == pytest.approx(waits)
    assert readout.series[0].values[-1] == min(point["usd_per_hour"] for point in frontier)
    for i, point in enumerate(frontier):
        nodes = f"{point['rollout_nodes']}+{point['train_nodes']} nodes"
        assert shown.tips[f"fleet-{i}"].startswith(f"{nodes}: ${point['usd_per_hour']:,.2f}/h")
    assert len(table(sections, "Nothing to rent").rows) == len(frontier)


def test_ratios_of_prices_are_the_documents(
    sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    readout = chart(sections, "size-price-ratios").readouts[0]
    points = document["prices"]["points"]
    assert readout.x == tuple(point["ratio"] for point in points)
    for series in readout.series:
        key = f"{series.name}_usd_per_hour_mean"
        assert series.values == tuple(point[key] for point in points)


def test_bars_of_changes_are_sorted_and_the_documents(
    full: SizeReport, sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    shown = chart(sections, "size-changes")
    widths = [bar.get_width() for bar in shown.figure.axes[0].patches]
    changes = [row["own_rent_change"] for row in document["changes"] if row["own_rent_change"]]
    largest = sorted((100 * abs(change) for change in changes), reverse=True)
    assert [abs(width) for width in widths] == pytest.approx(largest[: len(widths)])
    assert len(change_rows_shown(full)) == len(widths) == len(shown.tips)


def test_tokens_worth_and_futures_are_the_documents(
    sections: tuple[Section, ...], document: dict[str, Any]
) -> None:
    tokens = chart(sections, "size-tokens")
    heights = [bar.get_height() for bar in tokens.figure.axes[0].patches]
    assert heights == [row["usd_per_hour_mean"] for row in document["tokens"]]
    worth = chart(sections, "size-worth")
    drawn = [bar.get_width() for bar in worth.figure.axes[0].patches]
    prices = [row["low_usd_per_hour"] for row in document["worth"]["prices"]]
    assert drawn == pytest.approx([low for low in prices if low is not None])
    futures = chart(sections, "size-uncertainty")
    growth = document["uncertainty"]["growths"][0]
    sure = f"{growth['sure_rollout_nodes']}+{growth['sure_train_nodes']}"
    assert futures.alt.endswith(f"{sure} are sure.")
    assert len(table(sections, "3 traces drawn").rows) == len(document["uncertainty"]["growths"])


# --- charts and missing parts ---------------------------------------------------------------------


def test_every_chart_has_marks_units_and_numbers(
    full: SizeReport, sections: tuple[Section, ...]
) -> None:
    charts = list(charts_of(every_block(sections)))
    assert len(charts) == 9
    for each in charts:
        assert any(axis.has_data() for axis in each.figure.axes), each.name
        assert any(letter.isdigit() for letter in each.alt), each.name
        assert each.readouts or each.tips, each.name
    page = render(Page("Fleet", size_answer(full), sections))
    assert page.count("<svg") >= len(charts)


def test_nothing_is_missing_of_a_whole_report_but_what_was_not_asked_for(full: SizeReport) -> None:
    made = {part for part in PARTS if getattr(full, part) is not None}
    assert len(list(missing_parts(full))) == len(PARTS) - len(made)


def test_parts_that_are_not_there_are_said() -> None:
    report = size_trace(
        JOBS, params=dataclasses.replace(QUICK, parts=("alternatives",)), baselines=()
    )
    report = dataclasses.replace(
        report,
        params=dataclasses.replace(QUICK, parts=("alternatives", "fleet", "loss", "prices")),
        failed={"fleet": "no fleet keeps the target."},
        left_out={"loss": "solo shares nothing."},
        interrupted="prices",
    )
    (section,) = size_sections(report)
    words = [line for b in section.blocks if isinstance(b, Words) for line in b.paragraphs]
    assert "No answer on a fixed fleet with nothing to rent: no fleet keeps the target." in words
    assert "Left out: the loss of a node. solo shares nothing." in words
    assert any(line.startswith("Not reached: who is cheapest") for line in words)
    assert sum(line.startswith("Not asked for") for line in words) == len(PARTS) - 4


def test_names_with_dollars_are_drawn_as_they_are(full: SizeReport) -> None:
    gpu = dataclasses.replace(full.options.cluster.rollout.gpu, name="$H$")
    rollout = dataclasses.replace(full.options.cluster.rollout, gpu=gpu)
    cluster = full.options.cluster.replace(rollout=rollout)
    odd = dataclasses.replace(full, options=dataclasses.replace(full.options, cluster=cluster))
    assert "price of an $H$ GPU, $/GPU-h" in render(Page("p", ("a",), size_sections(odd)))


def test_hatched_faces_are_not_seen_through(sections: tuple[Section, ...]) -> None:
    """An SVG drops the opacity of a hatched face: face and hatch would be of one colour."""
    charts = charts_of(every_block(sections))
    patches = [p for each in charts for axis in each.figure.axes for p in axis.patches]
    hatched = [patch for patch in patches if patch.get_hatch()]
    assert hatched
    assert {patch.get_facecolor()[3] for patch in hatched} == {1.0}
    assert all(patch.get_facecolor() != patch.get_edgecolor() for patch in hatched)
