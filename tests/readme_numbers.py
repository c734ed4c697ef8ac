"""Figures of the README and the studies, computed anew.

Each check returns a list of ``(pattern, cells)``: wherever the pattern is found in a block that
names the check (``<!-- from: checked NAME -->``), its groups must be the cells. Every pattern must
be found somewhere, and at least one in each block that names its check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from documents import README, blocks
from instances.catalog import catalog_path
from instances.network import sync_table
from instances.restarts import RESTART_POINTS
from planner import (
    DEFAULT_CLUSTER,
    Limits,
    PlacerParams,
    PlanReport,
    RepackParams,
    Selection,
    SizeParams,
    default_costs,
    plan_trace,
    production,
    read_trace,
    size_trace,
    solve_snapshot,
)
from planner.placement import bounded_search
from planner.placement.bounded_search import DEFAULT_TIME_S
from planner.size.report import DemandRow
from planner.snapshot import solving
from runtime_cases import long_and_short

Facts = list[tuple[str, tuple[str, ...]]]
POOLS = ("rollout", "train")


def _trace():
    return read_trace(catalog_path("production-200"))


def _both(values, digits: int = 0) -> str:
    return " + ".join(f"{value:.{digits}f}" for value in values)


def _shown(mark: str) -> str:
    """Return what a marked block of the README shows; another test compares it with the command."""
    return next(block.text for block in blocks(README) if block.mark == mark and block.fence)


# --- sizes -----------------------------------------------------------------------------


def _demand(row: DemandRow) -> str:
    demand = row.demand
    return " / ".join(
        (
            _both((demand.mean(pool) for pool in POOLS), 1),
            _both(demand.quantile(pool, 0.95) for pool in POOLS),
            _both(demand.peak(pool) for pool in POOLS),
        )
    )


def _cost(row: DemandRow) -> tuple[str, str]:
    """Return what is owned and what that costs in all; and $/h: owned and rented, and otherwise."""
    costs, split, demand = default_costs(DEFAULT_CLUSTER), row.split, row.demand
    assert split is not None
    peak = sum(demand.peak(pool) * costs.pool(pool).own_usd_per_node_hour for pool in POOLS)
    hourly = f"{split.usd_per_hour:.1f} ({row.usd_per_hour_mean:.1f}; {peak:.1f})"
    return f"{_both(split.owned)}, {split.usd_total / 1000:.1f}", hourly


def sizes() -> Facts:
    """Sizes of ``production-200`` but for ``repack``, which takes a minute."""
    report = size_trace(_trace(), baselines=("solo", "colocated"), params=SizeParams(parts=()))
    rows = {(row.name, row.convention): row for row in report.demand}
    facts: Facts = []
    for name in ("weave", "solo", "colocated"):
        both = [rows[name, convention] for convention in ("work", "wallclock")]
        facts += [
            (
                rf"{name}: mean / p95 / peak nodes \| ([^|]+) \| ([^|]+) \|",
                tuple(map(_demand, both)),
            ),
            (
                rf"{name}: own, and k\$ in all owned \+ rented \| ([^|]+) \| ([^|]+) \|",
                tuple(_cost(row)[0] for row in both),
            ),
        ]
    both = [rows["weave", convention] for convention in ("work", "wallclock")]
    hourly = tuple(_cost(row)[1] for row in both)
    head = r"weave: \$/h owned \+ rented \(all rented; peak owned\)"
    facts.append((rf"{head} \| ([^|]+) \| ([^|]+) \|", hourly))
    owned, rented, peak = (f"{float(word):.0f}" for word in re.findall(r"[\d.]+", hourly[0]))
    demand, split = both[0].demand, both[0].split
    assert split is not None
    said = (
        r"weave` rents (\S+ \+ \S+) nodes on average and (\S+ \+ \S+) at its peak. "
        r"Owning (\d+ \+ \d+) and renting the rest costs \$(\d+)/h, "
        r"renting everything \$(\d+)/h, owning the peak \$(\d+)/h"
    )
    mean = _both((demand.mean(pool) for pool in POOLS), 1)
    most = _both(demand.peak(pool) for pool in POOLS)
    facts.append((said, (mean, most, _both(split.owned), owned, rented, peak)))
    return facts


def prices() -> Facts:
    """Default prices of a GPU and of a node."""
    rent = [node.gpu.usd_per_gpu_hour for node in (DEFAULT_CLUSTER.rollout, DEFAULT_CLUSTER.train)]
    costs = [default_costs(DEFAULT_CLUSTER).pool(pool) for pool in POOLS]
    own = [f"{pool.own_usd_per_node_hour:.2f}" for pool in costs]
    node = [f"{pool.rent_usd_per_node_hour:.2f}" for pool in costs]
    owned_ratio = costs[1].own_usd_per_node_hour / costs[0].own_usd_per_node_hour
    return [
        (r"\$([\d.]+) \(H20\) and \$([\d.]+) \(H800\)", tuple(f"{usd:.2f}" for usd in rent)),
        (r"an H800 costs ([\d.]+) times an H20", (f"{rent[1] / rent[0]:.2f}",)),
        (r"purchase prices \(dealers' quotes\), it is ([\d.]+) times", (f"{owned_ratio:.1f}",)),
        (
            r"\(own \$([\d.]+) and \$([\d.]+) a node, rent \$([\d.]+) and \$([\d.]+)\)",
            (*own, *node),
        ),
    ]


# --- defaults and constants ------------------------------------------------------------


def restarts() -> Facts:
    """Published seconds of a restart, as the code has them."""
    (small, low), (large, high) = RESTART_POINTS
    low_s, high_s = f"{low:.0f}", f"{high:.0f}"
    return [
        (
            r"(\d+) s at (\d+) B to (\d+) s at (\d+) B, else (\d+)",
            (low_s, f"{small:.0f}", high_s, f"{large:.0f}", high_s),
        ),
        (r"`restart_s` seconds \((\d+) to (\d+)\)", (low_s, high_s)),
    ]


def limits() -> Facts:
    """Limits unless said otherwise."""
    return [(r"`--max-group-size` \(default (\d+) jobs", (str(Limits().max_group_size),))]


def methods() -> Facts:
    """Up to how many jobs each exact method is taken by ``auto``."""
    few = (str(solving._EXHAUSTIVE_JOBS), str(solving._EXHAUSTIVE_JOBS_WITH_RATES))
    return [
        (r"\(`auto` up to (\d+) jobs, with rates up to (\d+)\)", few),
        (r"groups to HiGHS \(`auto` up to (\d+)\)", (str(solving._ALONE_JOBS),)),
        (r"up to (\d+) jobs followed by `set-partition`", (str(solving._SET_PARTITION_JOBS),)),
    ]


def searches() -> Facts:
    """How the time of a search is shared out."""
    return [
        (r"in at most (\d+) % of the time", (f"{100 * bounded_search._BOUND_SHARE:.0f}",)),
        (r"up to (\d+) jobs, the \*group LP\*", (str(bounded_search._MOST_JOBS),)),
        (r"\((\d+) minutes unless said\)", (f"{DEFAULT_TIME_S / 60:.0f}",)),
    ]


def moves_per_job() -> Facts:
    """How many moves a job ``repack`` makes at most, unless said otherwise."""
    return [(r"default (\d+), `inf` for any number", (f"{RepackParams().moves_per_job:.0f}",))]


def sync_ratios() -> Facts:
    """Hierarchical against flat sync, ours and published."""
    small, large = sync_table()
    return [
        (
            r"gives ([\d.]+) x less time than a flat collective for 8 to 8 GPUs "
            r"\(published: ([\d.]+)-([\d.]+) x\), and ([\d.]+) x for 16 to 16, where "
            r"([\d.]+)-([\d.]+) x was",
            (
                f"{small.ratio:.1f}",
                f"{small.published_low:.2f}",
                f"{small.published_high:.2f}",
                f"{large.ratio:.1f}",
                f"{large.published_low:.2f}",
                f"{large.published_high:.2f}",
            ),
        )
    ]


# --- run time --------------------------------------------------------------------------


def disciplines() -> Facts:
    """Use of one train node by a long and a short job, in order and first in first out."""
    from planner.simulate.lengths import WorstCase
    from planner.simulate.runtime import simulate_group

    version, jobs = long_and_short()
    shares = []
    for discipline in ("round-robin", "fifo"):
        run = simulate_group(version, jobs, WorstCase(jobs), discipline=discipline)
        shares.append(f"{100 * run.train_utilisation[0]:.0f}")
    return [(r"keep it busy (\d+) % in order and (\d+) % first in first out", tuple(shares))]


def failures() -> Facts:
    """What checkpoints cost, as the block of ``planner simulate`` shows it."""
    shown = _shown("simulate-output")
    rows = dict(re.findall(r"^ (\d+) +(1\.\d+ ±\S+ +[\d.]+)", shown, re.MULTILINE))
    words = []
    for every in ("5", "50"):
        ratio, slos = re.findall(r"(?<![±.\d])\d+\.\d+", rows[every])
        words += [every, f"{100 * (float(ratio) - 1):.1f}", f"{100 - float(slos):.1f}"]
    every = r"every (\d+) iterations (?:costs )?([\d.]+) % and ([\d.]+) %"
    return [(rf"{every} of SLOs, {every}", tuple(words))]


# --- several iterations per period -----------------------------------------------------


def optimum_rates() -> Facts:
    """Proved optima of production jobs, strict and with rates up to 4."""
    facts: Facts = []
    for n_jobs, seed in ((15, 0), (16, 1), (17, 2), (18, 3), (20, 4)):
        jobs, usd, alone = production(n_jobs=n_jobs, seed=seed), [], 0.0
        for rate in (1, 4):
            found = solve_snapshot(
                jobs,
                select=Selection.all_jobs(),
                method="set-partition",
                limits=Limits(max_group_size=5, max_rate=rate),
            )
            assert found.ratio == 1.0
            usd.append(found.usd_per_hour)
            alone = found.solo_usd_per_hour
        cells = (f"{alone:,.2f}", f"{usd[0]:.2f}", f"{usd[1]:.2f}", f"{usd[1] / usd[0]:.2f}")
        row = rf"\| {n_jobs} \({seed}\) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|"
        facts.append((row, cells))
    return facts


def _online(report: PlanReport) -> tuple[str, ...]:
    work, wall = (report.result("weave", convention) for convention in ("work", "wallclock"))
    admitted = work.admission
    assert admitted is not None

    def late(result) -> str:
        worst, jobs = result.worst_single_iteration, result.jobs_with_late_iterations
        return f"{worst:.2f}" + (f" ({jobs} jobs late)" if jobs else "")

    def money(result) -> tuple[str, str, str]:
        peak = _both(result.peak_nodes[pool] for pool in POOLS)
        return f"{result.usd_per_hour_mean:.1f}", f"{result.usd_total / 1000:.1f}", peak

    placed = sum(admitted.values())
    shares = " / ".join(f"{100 * jobs / placed:.0f}" for jobs in admitted.values()) + " %"
    return (*money(work), shares, late(work), *money(wall), late(wall))


def online_rates() -> Facts:
    """``weave`` on ``production-200`` by rate."""
    trace, facts = _trace(), []
    variants = {"1": (1, False), "1, `--pack-saturated`": (1, True)}
    variants |= {str(rate): (rate, False) for rate in (2, 3, 4)}
    for words, (rate, pack) in variants.items():
        placer = PlacerParams(skip_saturated=not pack)
        report = plan_trace(trace, limits=Limits(max_rate=rate), placer=placer)
        cells = _online(report)
        row = r"\| " + re.escape(words) + " ".join([r" \|", *[r"([^|]+?) \|"] * len(cells)])
        facts.append((row, cells))
    return facts


CHECKS: dict[str, Callable[[], Facts]] = {
    check.__name__: cache(check)
    for check in (
        sizes,
        prices,
        restarts,
        limits,
        methods,
        searches,
        moves_per_job,
        sync_ratios,
        disciplines,
        failures,
        optimum_rates,
        online_rates,
    )
}
