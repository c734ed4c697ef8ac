"""How long sizing takes: closed form and MILP, by levels, scenarios, leases and budget.

Run ``python tests/benchmarks/bench_sizing.py [seed]`` (default 1, half a minute). Demands are
random walks of 0 to 50 nodes of each pool, hours uniform in 0.1 to 2; prices are the defaults'. CPU
seconds of one process, model building included, Pyomo's import not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.hardware import DEFAULT_CLUSTER
from models.sizing.milp import solve_sizing
from models.sizing.problem import least_separable
from planner.replay.demand import Demand
from planner.size.alternatives import alternatives_of
from planner.size.economics import CostModel, Period, default_costs, sizing_problem
from planner.size.two_stage import value_of


def random_demand(rng: np.random.Generator, rows: int) -> Demand:
    """Return a random walk of both pools."""

    def walk() -> np.ndarray:
        return np.clip(25 + np.cumsum(rng.integers(-2, 3, rows)), 0, 50)

    return Demand(
        name="walk",
        hours=rng.uniform(0.1, 2.0, rows),
        rollout_nodes=walk(),
        train_nodes=walk(),
    )


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    began = time.process_time()
    run()
    return time.process_time() - began


def main(seed: int = 1) -> None:
    """Print one row per size and kind of costs."""
    plain = default_costs(DEFAULT_CLUSTER)
    leased = replace(
        plain,
        rollout=replace(plain.rollout, lease_block_h=24.0),
        train=replace(plain.train, lease_block_h=24.0),
    )
    growing = (Period(), Period(growth=1.5, own_price_factor=0.9), Period(growth=2.0))
    kinds: dict[str, CostModel] = {
        "plain": plain,
        "budget": replace(plain, periods=(Period(capex_usd=5e6),)),
        "3 periods": replace(plain, periods=growing),
        "leases": leased,
        "leases, budget": replace(leased, periods=(Period(capex_usd=5e6),)),
    }
    heads = ("rows", "scenarios", "costs", "closed", "milp", "alternatives", "two-stage")
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    solve_sizing(sizing_problem([random_demand(np.random.default_rng(0), 5)], plain))  # imports
    for rows in (200, 2_000):
        for scenarios in (1, 100):
            rng = np.random.default_rng(seed)
            demands = [random_demand(rng, rows) for _ in range(scenarios)]
            for name, costs in kinds.items():
                problem = sizing_problem(demands, costs)
                runs: tuple[Callable[[], object], ...] = (
                    lambda p=problem: least_separable(p),
                    lambda p=problem: solve_sizing(p),
                    lambda p=problem: alternatives_of(p),
                    lambda p=problem: value_of(p),
                )
                times = " | ".join(f"{seconds(run):.3f}" for run in runs)
                print(f"| {rows:,} | {scenarios} | {name} | {times} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
