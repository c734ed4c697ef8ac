"""The tables of a size report as rows of plain values: for files and for the document."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from planner.replay.demand import POOLS

if TYPE_CHECKING:
    from planner.size.economics import PoolSplit
    from planner.size.fleet_answer import FrontierPoint
    from planner.size.report import DemandRow, SizeReport
    from planner.size.uncertainty import GrowthUncertainty, Spread

__all__ = [
    "TABLES",
    "Row",
    "alternative_rows",
    "change_rows",
    "demand_row",
    "frontier_row",
    "growth_row",
    "price_rows",
    "split_row",
    "token_rows",
]

Row = dict[str, Any]
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def _nodes(prefix: str, pair: tuple[int, int]) -> Row:
    return {f"{prefix}_{pool}_nodes": n for pool, n in zip(POOLS, pair, strict=True)}


def demand_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per convention and policy: nodes over time, and what they cost."""
    for row in report.demand:
        yield {"convention": row.convention, "policy": row.name, **demand_row(row)}


def demand_row(row: DemandRow) -> Row:
    """Return the figures of one policy's demand."""
    demand = row.demand
    out: Row = {"kind": row.kind, "horizon_h": demand.horizon_h}
    for pool in POOLS:
        out[f"mean_{pool}_nodes"] = demand.mean(pool)
        for name, share in _SHARES.items():
            out[f"{name}_{pool}_nodes"] = demand.quantile(pool, share)
        out[f"peak_{pool}_nodes"] = demand.peak(pool)
        out[f"{pool}_node_hours"] = demand.node_hours(pool)
    split = row.split
    out |= _nodes("owned", split.owned) if split else dict.fromkeys(_nodes("owned", (0, 0)))
    out["owned_usd_per_hour"] = None if split is None else split.own_usd_per_hour
    out["rented_usd_per_hour"] = None if split is None else split.rent_usd_per_hour
    out["own_rent_usd_per_hour"] = None if split is None else split.usd_per_hour
    out["own_rent_usd_total"] = None if split is None else split.usd_total
    out["why_not"] = row.why_not
    out["rent_all_usd_per_hour"] = row.usd_per_hour_mean
    out["slo_attainment"] = row.slo_attainment
    out["checked"] = row.checked
    return out


def duration_rows(report: SizeReport) -> Iterator[Row]:
    """Yield, per convention, policy, pool and number of nodes, how long so many are needed."""
    for row in report.demand:
        for pool in POOLS:
            nodes, hours = row.demand.duration_curve(pool)
            for n, h in zip(nodes.tolist(), hours.tolist(), strict=True):
                yield {
                    "convention": row.convention,
                    "policy": row.name,
                    "pool": pool,
                    "nodes": n,
                    "hours_needed": h,
                    "share_of_time": h / row.demand.horizon_h,
                }


def split_row(side: PoolSplit) -> Row:
    """Return the owned and rented nodes of one pool."""
    return {
        "owned_nodes": side.owned,
        "peak_nodes": side.peak,
        "rented_peak_nodes": side.rented_peak,
        "mean_nodes": side.mean,
        "needed_node_hours": side.needed_node_hours,
        "owned_used_node_hours": side.owned_used_node_hours,
        "owned_idle_node_hours": side.owned_idle_node_hours,
        "rented_node_hours": side.rented_node_hours,
        "paid_node_hours": side.paid_node_hours,
        "owned_usd_per_hour": side.own_usd_per_hour,
        "rented_usd_per_hour": side.rent_usd_per_hour,
        "usd_per_hour": side.usd_per_hour,
        "capex_usd": side.capex_usd,
    }


def split_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per pool."""
    for pool in POOLS:
        costs = report.costs.pool(pool)
        yield {
            "pool": pool,
            "gpu": costs.gpu,
            "own_usd_per_node_hour": costs.own_usd_per_node_hour,
            "rent_usd_per_node_hour": costs.rent_usd_per_node_hour,
            **split_row(report.split.pool(pool)),
        }


def alternative_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per fleet near the least cost and purchase period."""
    for item in report.alternatives or ():
        for period, owned in enumerate(item.owned, start=1):
            yield {
                "aim": item.aim,
                "within": item.within,
                "period": period,
                **_nodes("owned", owned),
                "usd_per_hour": item.usd_per_hour,
                "above_least": item.above_least,
                "rented_share_rollout": item.rented_share[0],
                "rented_share_train": item.rented_share[1],
                "capex_usd": item.capex_usd,
                "proved": item.proved,
            }


def frontier_row(point: FrontierPoint) -> Row:
    """Return one fleet of the frontier of cost against wait."""
    return {
        "rollout_nodes": point.fleet.rollout_nodes,
        "train_nodes": point.fleet.train_nodes,
        "usd_per_hour": point.usd_per_hour,
        "wait_s": point.wait_s,
        "wait_p50_s": point.wait_p50_s,
        "wait_p95_s": point.wait_p95_s,
        "wait_max_s": point.wait_max_s,
        "admitted_at_once": point.admitted_at_once,
        "slo_attainment": point.slo_attainment,
        "slo_attainment_with_wait": point.slo_attainment_with_wait,
        **{f"utilisation_{pool}": point.utilisation[pool] for pool in POOLS},
        "cheapest_for_s": ";".join(f"{wait_s:g}" for wait_s in point.cheapest_for_s),
        "proved_for_s": ";".join(f"{wait_s:g}" for wait_s in point.proved_for_s),
    }


def frontier_rows(report: SizeReport) -> Iterator[Row]:
    """Yield the undominated fleets, cheapest first."""
    if report.fleet is not None:
        yield from map(frontier_row, report.fleet.frontier)


def price_rows(report: SizeReport) -> Iterator[Row]:
    """Yield what each policy costs at each price ratio."""
    if report.prices is not None:
        yield from report.prices.rows


def change_rows(report: SizeReport) -> Iterator[Row]:
    """Yield every level of every factor."""
    yield from (row.row for row in report.changes or ())


def token_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per quantile planned at."""
    yield from (row.row for row in report.tokens or ())


def worth_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per shadow price."""
    if report.worth is not None:
        yield from (price.row for price in report.worth.prices)


def _spread(prefix: str, spread: Spread | None) -> Row:
    names = ("mean", "p5", "p50", "p95", "low", "high")
    return {f"{prefix}_{name}": None if spread is None else getattr(spread, name) for name in names}


def growth_row(item: GrowthUncertainty) -> Row:
    """Return the figures at one growth; ``low`` and ``high`` are at the stated confidence."""
    out: Row = {"growth": item.growth, "year": item.year, **_spread("jobs", item.jobs)}
    for pool in POOLS:
        side = item.pool(pool)
        for name in ("mean", "p95", "p99", "peak", "owned"):
            out |= _spread(f"{name}_{pool}_nodes", getattr(side, name))
    out |= _spread("own_rent_usd_per_hour", item.usd_per_hour)
    size, value = item.size, item.value
    out |= {
        "sure_rollout_nodes": size.rollout_nodes,
        "sure_train_nodes": size.train_nodes,
        "sure_share": size.share,
        "sure_share_assured": size.assured,
        "sure_share_low": size.low,
        "sure_share_high": size.high,
    }
    out |= (
        dict.fromkeys(_nodes("best_owned", (0, 0)))
        if value is None
        else _nodes("best_owned", value.owned)
    )
    stochastic = None if value is None else value.stochastic
    out |= {
        "best_usd_per_hour": None if value is None else value.usd_per_hour,
        "regret_of_mean_usd_per_hour": None if value is None else value.regret_of_mean,
        "value_of_stochastic_solution_usd_per_hour": stochastic and stochastic.vss,
        "value_of_perfect_information_usd_per_hour": stochastic and stochastic.evpi,
        "why_not": item.why_not,
    }
    return out


def uncertainty_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per growth."""
    if report.uncertainty is not None:
        yield from map(growth_row, report.uncertainty.growths)


def replication_rows(report: SizeReport) -> Iterator[Row]:
    """Yield one row per drawn trace: its seed draws it again."""
    found = report.uncertainty
    if found is None:
        return
    for runs in found.sample.by_growth:
        for run in runs:
            out: Row = {
                "growth": run.growth,
                "replication": run.number,
                "seed": run.seed,
                "jobs": run.jobs,
            }
            for pool in POOLS:
                out[f"mean_{pool}_nodes"] = run.demand.mean(pool)
                for name, share in _SHARES.items():
                    out[f"{name}_{pool}_nodes"] = run.demand.quantile(pool, share)
                out[f"peak_{pool}_nodes"] = run.demand.peak(pool)
            yield out


@dataclasses.dataclass(frozen=True)
class Table:
    """One table: the part it belongs to (``None``: always there) and its rows."""

    part: str | None
    rows: Callable[[SizeReport], Iterator[Row]]


#: Every table, by the name of its file.
TABLES: Final[dict[str, Table]] = {
    "demand": Table(None, demand_rows),
    "duration_curves": Table(None, duration_rows),
    "owned_and_rented": Table(None, split_rows),
    "alternatives": Table("alternatives", alternative_rows),
    "frontier": Table("fleet", frontier_rows),
    "prices": Table("prices", price_rows),
    "changes": Table("changes", change_rows),
    "tokens": Table("tokens", token_rows),
    "worth": Table("worth", worth_rows),
    "uncertainty": Table("uncertainty", uncertainty_rows),
    "replications": Table("uncertainty", replication_rows),
}
