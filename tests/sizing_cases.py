"""Small sizing problems, by hand and by Hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from models.sizing.problem import DemandArrays, PoolTerms, Scenario, SizingProblem
from planner.replay.demand import Demand


def arrays(*rows: tuple[float, int, int]) -> DemandArrays:
    """Return a demand of (hours, rollout nodes, train nodes)."""
    hours, rollout, train = zip(*rows, strict=True) if rows else ((), (), ())
    return DemandArrays(hours=hours, rollout_nodes=rollout, train_nodes=train)  # type: ignore[arg-type]


def demand(*rows: tuple[float, int, int], name: str = "hand") -> Demand:
    """Return the planner's demand of (hours, rollout nodes, train nodes)."""
    of = arrays(*rows)
    return Demand(
        name=name,
        hours=np.array(of.hours),
        rollout_nodes=np.array(of.rollout_nodes),
        train_nodes=np.array(of.train_nodes),
    )


def terms(own: float | None = 1.0, rent: float = 3.0, **more: Any) -> PoolTerms:
    """Return the terms of a pool in one period."""
    capex = more.pop("capex", None)
    return PoolTerms(
        own_usd=None if own is None else (own,),
        rent_usd=(rent,),
        capex_usd=None if capex is None else (capex,),
        **more,
    )


def problem(
    *rows: tuple[float, int, int],
    rollout: PoolTerms | None = None,
    train: PoolTerms | None = None,
    budget: float | None = None,
) -> SizingProblem:
    """Return a problem of one scenario and period."""
    return SizingProblem(
        rollout=rollout or terms(),
        train=train or terms(),
        scenarios=(Scenario(probability=1.0, demand=(arrays(*rows),)),),
        capex_budget_usd=None if budget is None else (budget,),
    )


#: Whole quarters of hours and of $, so that sums are exact.
hours_st = st.integers(1, 12).map(lambda quarters: quarters / 4)
usd_st = st.integers(0, 16).map(lambda quarters: quarters / 4)
row_st = st.tuples(hours_st, st.integers(0, 4), st.integers(0, 4))
demand_st = st.lists(row_st, max_size=5).map(lambda rows: arrays(*rows))


@st.composite
def problems(
    draw: st.DrawFn, *, periods: int = 2, limits: bool = True, leases: bool = True
) -> SizingProblem:
    """Draw a small problem: scenarios, periods, caps, budgets and leases."""
    count = draw(st.integers(1, periods))
    scenarios = draw(st.integers(1, 3))
    chances = draw(
        st.sampled_from(
            {1: [(1.0,)], 2: [(0.5, 0.5), (0.75, 0.25)]}.get(scenarios, [(0.5, 0.25, 0.25)])
        )
    )
    block_st = st.sampled_from([0.0, 0.0, 1.0, 2.5]) if leases else st.just(0.0)
    most_st = st.none() | st.integers(0, 5) if limits else st.none()

    def side() -> PoolTerms:
        def each(of: st.SearchStrategy[float]) -> tuple[float, ...]:
            return tuple(draw(st.lists(of, min_size=count, max_size=count)))

        return PoolTerms(
            own_usd=each(usd_st) if draw(st.integers(0, 5)) else None,
            rent_usd=each(usd_st),
            capex_usd=each(usd_st),
            max_owned=draw(most_st),
            max_rented=draw(most_st),
            lease_block_h=draw(block_st),
        )

    budget_st = st.none() | st.integers(0, 20).map(float) if limits else st.none()
    return SizingProblem(
        rollout=side(),
        train=side(),
        scenarios=tuple(
            Scenario(
                probability=chance,
                demand=tuple(draw(st.lists(demand_st, min_size=count, max_size=count))),
            )
            for chance in chances
        ),
        period_weights=tuple(
            draw(st.lists(st.sampled_from([1.0, 3.0]), min_size=count, max_size=count))
        ),
        capex_budget_usd=tuple(draw(st.lists(budget_st, min_size=count, max_size=count))),
    )
