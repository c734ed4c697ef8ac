"""The JSON document of ``planner size --json``: every answer, with units in its keys."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from instances.cluster_file import cluster_to_dict
from instances.plan import Fleet
from planner.plan.document import SCHEMA_VERSION, bound_options, finite, inputs_document
from planner.replay.demand import POOLS
from planner.size.cost_file import costs_to_dict
from planner.size.rows import (
    Row,
    alternative_rows,
    change_rows,
    demand_row,
    frontier_row,
    growth_row,
    price_rows,
    split_row,
    token_rows,
)

if TYPE_CHECKING:
    from planner.size.fleet_answer import FleetAnswer
    from planner.size.report import SizeReport

__all__ = ["size_document", "without_infinities"]


def size_document(report: SizeReport, *, timings: bool = False) -> dict[str, Any]:
    """Return the whole document; parts not asked for, or not reached, are null."""
    split = report.split
    out: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "size",
        "inputs": _inputs(report),
        "recommendation": {
            "policy": report.policy,
            "convention": report.convention,
            "owned_nodes": _pools(split.owned),
            "owned_gpus": _gpus(report, split.owned),
            "rented_peak_nodes": _pools((split.rollout.rented_peak, split.train.rented_peak)),
            "owned_usd_per_hour": split.own_usd_per_hour,
            "rented_usd_per_hour": split.rent_usd_per_hour,
            "usd_per_hour": split.usd_per_hour,
            "capex_usd": split.capex_usd,
            "method": split.method,
            "usd_total": split.usd_total,
            "bound_usd_total": report.work_bound_usd_total
            if report.convention == "work" and report.main.checked
            else None,
        },
        "drain": _drain(report),
        "conventions": _conventions(report),
        "owned_and_rented": {pool: split_row(split.pool(pool)) for pool in POOLS},
        "alternatives": _list(report.alternatives, alternative_rows(report)),
        "fixed_fleet": _fixed(report),
        "node_loss": _loss(report),
        "prices": _prices(report),
        "changes": _list(report.changes, change_rows(report)),
        "tokens": _list(report.tokens, token_rows(report)),
        "worth": _worth(report),
        "uncertainty": _uncertainty(report),
        "failed": dict(report.failed),
        "left_out": dict(report.left_out),
        "interrupted": report.interrupted,
    }
    if timings:
        out["timings"] = {"seconds": dict(report.seconds)}
    return without_infinities(out)  # type: ignore[no-any-return]


def without_infinities(value: Any) -> Any:
    """Return a document without numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: without_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_infinities(item) for item in value]
    return finite(value)


def _list(made: object, rows: Any) -> list[Row] | None:
    return None if made is None else list(rows)


def _pools(pair: tuple[int, int]) -> dict[str, int]:
    return dict(zip(POOLS, pair, strict=True))


def _gpus(report: SizeReport, pair: tuple[int, int]) -> dict[str, int]:
    cluster = report.options.cluster
    per_node = (cluster.rollout.gpus_per_node, cluster.train.gpus_per_node)
    return _pools((pair[0] * per_node[0], pair[1] * per_node[1]))


def _nodes(fleet: Fleet) -> dict[str, int]:
    return _pools((fleet.rollout_nodes, fleet.train_nodes))


def _inputs(report: SizeReport) -> dict[str, Any]:
    options, params = report.options, dataclasses.asdict(report.params)
    del params["processes"]  # answers do not depend on it
    inputs = inputs_document(report.trace)
    inputs["seed"] = params.pop("seed")
    inputs["cluster"] = cluster_to_dict(options.cluster)
    inputs["costs"] = costs_to_dict(report.costs)
    inputs["sources"] = {pool: dict(report.costs.pool(pool).sources) for pool in POOLS}
    inputs["options"] = {
        "policy": report.policy,
        "durations": report.convention,
        **bound_options(options.limits),
        "objective": options.placer.objective,
        "tie_rule": options.placer.tie_rule,
        "train_scaling": options.placer.train_scaling,
        "skip_saturated": options.placer.skip_saturated and options.limits.max_rate == 1,
        "colocated_factor": options.colocated_factor,
        "queue": options.queue,
        **params,
    }
    return inputs


def _drain(report: SizeReport) -> dict[str, Any] | None:
    drain = report.drain
    if drain is None:
        return None
    return {
        "hours": drain.hours,
        "share": drain.share,
        "mean_nodes_before": dict(zip(POOLS, drain.mean_before, strict=True)),
        "mean_nodes_after": dict(zip(POOLS, drain.mean_after, strict=True)),
        "owned_nodes": None if drain.owned is None else _pools(drain.owned),
    }


def _conventions(report: SizeReport) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for row in report.demand:
        found = out.setdefault(row.convention, {"policies": {}, "perfect": {}})
        kind = "policies" if row.kind == "policy" else "perfect"
        found[kind][row.name] = demand_row(row)
    return out


def _fixed(report: SizeReport) -> dict[str, Any] | None:
    fixed = report.fleet
    if fixed is None:
        return None
    answer, figures = fixed.answer, fixed.answer.figures
    return {
        "target": {"wait_s": answer.target.wait_s, "share": answer.target.share},
        "nodes": _nodes(answer.fleet),
        "gpus": _gpus(report, (answer.fleet.rollout_nodes, answer.fleet.train_nodes)),
        "usd_per_hour": answer.usd_per_hour,
        "priced_by": fixed.priced_by,
        "queue": report.options.queue,
        "waiting": {
            "p50_s": figures.wait_quantile(0.5),
            "p95_s": figures.wait_quantile(0.95),
            "max_s": float(figures.waits_s[-1]),
            "admitted_at_once": figures.admitted_at_once,
            "slo_attainment": figures.slo_attainment,
            "slo_attainment_with_wait": figures.slo_attainment_with_wait,
        },
        "utilisation": dict(figures.utilisation),
        "evidence": _evidence(answer),
        "worth_of_one_node_more": {
            worth.pool: {
                "fleet": None if worth.fleet is None else _nodes(worth.fleet),
                "nodes_saved": worth.saved,
                "worth_usd_per_hour": worth.worth_usd_per_hour,
                "node_usd_per_hour": worth.node_usd_per_hour,
            }
            for worth in answer.worth
        },
        "frontier": [frontier_row(point) for point in fixed.frontier],
    }


def _evidence(answer: FleetAnswer) -> dict[str, Any]:
    box, bound = answer.box, answer.bound
    return {
        "proved": answer.proved,
        "box": _nodes(box.most),
        "plain_peak": _nodes(box.plain_peak),
        "fleets": box.points,
        "excluded_by_bound": box.excluded,
        "given_up": box.given_up,
        "replayed_to_end": box.replayed,
        "cheaper": box.cheaper,
        "cheaper_unexamined": box.cheaper_unexamined,
        "bound_nodes": _pools((bound.rollout_nodes, bound.train_nodes)),
        "bound_options": bound_options(bound.limits),
        "pairs_out_of_order": answer.pairs_out_of_order,
        "first_pairs": [
            {"meets": _nodes(pair.meets), "misses": _nodes(pair.misses)}
            for pair in answer.first_pairs
        ],
    }


def _loss(report: SizeReport) -> dict[str, Any] | None:
    loss = report.loss
    if loss is None:
        return None
    most = loss.report.most_moved
    return {
        "fleet": _nodes(loss.fleet),
        "spare_nodes": _nodes(loss.spare),
        "spare_usd_per_hour": loss.spare_usd_per_hour,
        "states": loss.report.states,
        "losses": len(loss.report.losses),
        "survived": {pool: loss.report.counts(pool) for pool in POOLS},
        "without_spare": {
            pool: {
                **loss.without.counts(pool),
                "hours_not_survived": loss.without.hours_failed(pool),
            }
            for pool in POOLS
        },
        "jobs_restarted_at_most": None if most is None else most.jobs_moved,
        "proved": loss.proved,
    }


def _prices(report: SizeReport) -> dict[str, Any] | None:
    found = report.prices
    if found is None:
        return None
    return {
        "base_ratio": found.base_ratio,
        "cheapest": [
            {"policy": name, "from_ratio": low, "to_ratio": high} for name, low, high in found.spans
        ],
        "crossovers": [
            {**dataclasses.asdict(item), "ratio": item.ratio} for item in found.crossovers
        ],
        "fixed_plans": [dataclasses.asdict(item) for item in found.fixed],
        "points": list(price_rows(report)),
    }


def _worth(report: SizeReport) -> dict[str, Any] | None:
    if report.worth is None:
        return None
    return {
        "prices": [price.row for price in report.worth.prices],
        "moments": [
            {
                "from_s": item.chosen.moment.from_s,
                "to_s": item.chosen.moment.to_s,
                "jobs": len(item.chosen.moment.jobs),
                "weight": item.chosen.weight,
                "is_peak": item.chosen.is_peak,
                "bound_usd_per_hour": item.least_low_usd_per_hour,
                "usd_per_hour": item.least_high_usd_per_hour,
                "nodes": _pools(item.nodes),
                "worths": [dataclasses.asdict(worth) for worth in item.worths],
            }
            for item in report.worth.moments
        ],
    }


def _uncertainty(report: SizeReport) -> dict[str, Any] | None:
    found = report.uncertainty
    if found is None:
        return None
    out: dict[str, Any] = {
        "replications": found.replications,
        "replications_asked": found.replications_asked,
        "replications_needed": found.replications_needed,
        "confidence": found.confidence,
        "coverage": found.coverage,
        "block_h": found.block_h,
        "regret_of_trace_usd_per_hour": found.regret_of_trace,
        "growths": [growth_row(item) for item in found.growths],
        "fixed_fleets": [
            {
                "nodes": _nodes(item.fleet),
                "kept_on": item.met,
                "replications": item.replications,
                "low": item.low,
                "high": item.high,
            }
            for item in report.waits
        ],
        "notes": list(found.notes),
        "staged": None,
    }
    staged = found.staged
    if staged is not None:
        out["staged"] = {
            "growths": list(staged.growths),
            "years": list(staged.years),
            "owned": None
            if staged.staged is None
            else [_pools(pair) for pair in staged.staged.owned],
            "usd_per_hour": staged.staged and staged.staged.usd_per_hour,
            "at_once_usd_per_hour": staged.at_once.usd_per_hour,
            "value_of_staging_usd_per_hour": staged.value_of_staging,
            "note": staged.note,
        }
    return out
