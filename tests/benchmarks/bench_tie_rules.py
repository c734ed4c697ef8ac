"""What ties between equally dear groups are worth; prints the table of the README.

    python tests/benchmarks/bench_tie_rules.py [SEEDS]

Generated production traces (200 jobs) of SEEDS seeds (default 10), each replayed under every
tie rule and option of the placer and by both duration conventions. Mean $/h over the seeds,
the saving against solo, and the difference of total cost from the default, paired by seed,
with its 95 % interval (Student's t).
"""

from __future__ import annotations

import sys

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import DURATION_CONVENTIONS
from planner.placement.placer import TIE_RULES, PlacerParams
from planner.policies.policy import PolicyOptions
from planner.replay.replaying import ReplayResult, replay


def run(traces: list[JobTable], params: PlacerParams, convention: str) -> list[ReplayResult]:
    """Replay every trace under one set of parameters."""
    options = PolicyOptions(cluster=DEFAULT_CLUSTER, placer=params)
    return [replay(t, "weave", options, convention=convention, check=False) for t in traces]


def paired(costs: np.ndarray, base: np.ndarray) -> str:
    """Return the mean relative difference from ``base`` with its 95 % interval, percent."""
    change = 100 * (costs / base - 1)
    if not change.any():
        return "default"
    half = stats.t.ppf(0.975, len(change) - 1) * stats.sem(change)
    return f"{change.mean():+.1f} ± {half:.1f} %"


def main() -> None:
    """Print one row per variant."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    traces = [production(seed=seed) for seed in range(seeds)]
    default = PlacerParams()
    rules = [default.tie_rule, *(name for name in TIE_RULES if name != default.tie_rule)]
    variants = {f"tie rule {name}": PlacerParams(tie_rule=name) for name in rules}
    variants |= {
        "--objective per-iteration": PlacerParams(objective="per-iteration"),
        "--train-scaling": PlacerParams(train_scaling=True),
        "--pack-saturated": PlacerParams(skip_saturated=False),
        "--pack-saturated, per-iteration": PlacerParams(
            skip_saturated=False, objective="per-iteration"
        ),
    }
    solo = {
        convention: np.array(
            [
                replay(
                    t, "solo", PolicyOptions(cluster=DEFAULT_CLUSTER), convention=convention
                ).usd_total
                for t in traces
            ]
        )
        for convention in DURATION_CONVENTIONS
    }
    table = Table(title=f"weave on generated production traces, {seeds} seeds")
    table.add_column("variant")
    for convention in DURATION_CONVENTIONS:
        table.add_column(f"{convention}\n$/h mean", justify="right")
        table.add_column("solo /\nthis", justify="right")
        table.add_column("total, against\ndefault", justify="right")
    table.add_column("direct", justify="right")
    base: dict[str, np.ndarray] = {}
    for label, params in variants.items():
        cells: list[str] = []
        for convention in DURATION_CONVENTIONS:
            results = run(traces, params, convention)
            costs = np.array([r.usd_total for r in results])
            base.setdefault(convention, costs)
            cells += [
                f"{np.mean([r.usd_per_hour_mean for r in results]):.1f}",
                f"{np.mean(solo[convention] / costs):.3f}x",
                paired(costs, base[convention]),
            ]
        direct = [r.admission["direct"] / len(r.records) for r in results if r.admission]
        table.add_row(label, *cells, f"{100 * np.mean(direct):.0f}%")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
