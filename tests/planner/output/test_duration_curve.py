"""The demand duration curve is drawn where the demand's own quantiles say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from instances.catalog import catalog_path
from planner import Demand, demand_of, plan_trace, read_trace
from planner.output.duration_curve import draw_duration_curve, label_duration_axes


def height_at(demand: Demand, share: float) -> float:
    """Return how high the line stands inside a step, at a share of the time in %."""
    axes = Figure().add_subplot()
    nodes, hours = demand.duration_curve("rollout")
    draw_duration_curve(axes, nodes, hours, demand.horizon_h)
    (line,) = axes.get_lines()
    corners = line.get_path().vertices  # drawn as it is shown: two points a step
    for (left, y), (right, other) in pairwise(corners):
        if y == other and min(left, right) < share < max(left, right):
            return float(y)
    raise AssertionError(f"nothing is drawn at {share} %")


def test_two_levels_by_hand() -> None:
    # 3 h at 2 nodes, 1 h at 5: for 25 % of the time 5 are needed, for all of it at least 2.
    two = Demand(
        name="two",
        hours=np.array([3.0, 1.0]),
        rollout_nodes=np.array([2, 5]),
        train_nodes=np.array([0, 0]),
    )
    assert [height_at(two, share) for share in (1, 24, 26, 99)] == [5, 5, 2, 2]


def test_the_line_stands_at_the_quantiles_of_a_replay() -> None:
    result = plan_trace(read_trace(catalog_path("production-200"))).result("weave")
    demand = demand_of(result)
    for share in (0.5, 5.0, 20.0, 50.0, 80.0, 97.0):
        assert height_at(demand, share) == demand.quantile("rollout", 1 - share / 100), share


def test_nothing_held_is_a_line_at_zero() -> None:
    none = np.array([0])
    idle = Demand(name="idle", hours=np.array([2.0]), rollout_nodes=none, train_nodes=none)
    assert height_at(idle, 50) == 0


def test_the_axes_are_labelled_in_full() -> None:
    axes = Figure().add_subplot()
    label_duration_axes(axes, "H20 nodes")
    assert axes.get_xlim() == pytest.approx((0, 100))
    assert "% of the time" in axes.get_xlabel()
    assert axes.get_ylabel() == "H20 nodes"
