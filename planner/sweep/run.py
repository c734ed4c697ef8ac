"""One run of a study: a replay, as one flat row of a table.

A run never raises: what went wrong is in the row's ``error_type`` and ``error``, and the rest of
the study goes on. Rows hold nothing that depends on where or when they were made: no times, and
figures rounded to 12 significant digits, since another processor may sum in another order.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from instances.coefficients import Coefficients
from instances.generate import GENERATORS
from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from instances.trace import read_trace
from planner.placement.placer import PlacerParams
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import ReplayResult
from planner.replay.demand import POOLS, Demand, demand_of
from planner.replay.replaying import replay
from planner.sweep.expand import Inputs, Run, TraceSource

__all__ = [
    "COLUMNS",
    "FIGURES",
    "Cell",
    "Column",
    "Row",
    "failed",
    "figures_of",
    "row_of",
    "specification",
]
__all__ += ["specification"]

Cell = str | int | float | None
Row = dict[str, Cell]

_DIGITS: Final = 12
#: Traces kept by a process.
_KEPT: Final = 8
_MAX_ERROR: Final = 500
_KINDS: Final = ("direct", "rollout_scaled", "train_scaled", "isolated", "repacked")


@dataclass(frozen=True)
class Column:
    """A column of the table: units are in the name."""

    name: str
    kind: Literal["text", "whole", "number"]


def _columns(text: str) -> tuple[Column, ...]:
    """Return columns from words such as ``run:whole``; a bare word is a number."""
    words = (word.partition(":") for word in text.split())
    return tuple(Column(name, kind or "number") for name, _, kind in words)  # type: ignore[arg-type]


_SPECIFICATION: Final = _columns(
    """
    run:whole run_id:text study:text case:text trace:text trace_sha256:text trace_seed:whole
    policy:text convention:text seed:whole replication:whole bootstrap_seed:whole
    runtime_replication:whole growth
    max_group_size:whole max_rate:whole rollout_host_dram_gb train_host_dram_gb
    rollout_usd_per_gpu_hour train_usd_per_gpu_hour price_ratio slo_scale inter_gbps
    objective:text tie_rule:text fleet_rollout_nodes:whole fleet_train_nodes:whole queue:text
    """
)
#: What a run found: empty where it failed, or where a figure has no meaning.
FIGURES: Final = _columns(
    """
    jobs:whole usd_total usd_per_hour_mean horizon_h
    rollout_nodes_mean rollout_nodes_p50:whole rollout_nodes_p95:whole rollout_nodes_peak:whole
    train_nodes_mean train_nodes_p50:whole train_nodes_p95:whole train_nodes_peak:whole
    slo_attainment rollout_idle_fraction train_idle_fraction bound_usd_total ratio
    link_utilisation_mean link_utilisation_peak
    admitted_direct admitted_rollout_scaled admitted_train_scaled admitted_isolated
    admitted_repacked moves_per_job
    wait_p50_s wait_p95_s wait_max_s admitted_at_once slo_attainment_with_wait
    runtime_slo_attainment runtime_late_iterations_share runtime_iterations_over_planned
    error_type:text error:text
    """
)
COLUMNS: Final = _SPECIFICATION + FIGURES


def specification(run: Run, study: str, inputs: Inputs) -> Row:
    """Return the columns that say what a run is."""
    source = inputs.traces[run.source]
    own = {name: getattr(run, name) for name in Run.__slots__}
    rollout, train = run.fleet or (None, None)
    usd = run.rollout_usd_per_gpu_hour
    row = {
        **own,
        "run": run.number,
        "study": study,
        "trace": source.name,
        "trace_sha256": source.sha256,
        "trace_seed": source.seed,
        "price_ratio": run.train_usd_per_gpu_hour / usd if usd else None,
        "fleet_rollout_nodes": rollout,
        "fleet_train_nodes": train,
    }
    return {column.name: _rounded(row[column.name]) for column in _SPECIFICATION}


def _rounded(value: Any) -> Cell:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value  # type: ignore[no-any-return]


# --- the jobs -------------------------------------------------------------------------------------


@lru_cache(maxsize=_KEPT)
def _read(source: TraceSource, cluster: Cluster, coefficients: Coefficients) -> JobTable:
    """Return the jobs of a source; what is estimated follows the cluster."""
    if source.generator is not None:
        arguments = dict(source.arguments)
        if source.seed is not None:  # the tiny ones take nothing
            arguments |= {"seed": source.seed, "cluster": cluster}
        return GENERATORS[source.generator](**arguments)
    assert source.file is not None
    assert source.data is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / source.file
        path.write_bytes(source.data)
        return read_trace(path, cluster, coefficients).jobs


def _jobs(run: Run, inputs: Inputs, cluster: Cluster) -> JobTable:
    """Return the jobs of a run: bootstrapped, their slack (slo - 1) scaled."""
    jobs = _read(inputs.traces[run.source], cluster, inputs.coefficients)
    if run.bootstrap_seed is not None:
        from instances.bootstrap import bootstrap_trace

        assert run.growth is not None
        jobs = bootstrap_trace(
            jobs, seed=run.bootstrap_seed, block_h=inputs.block_h, growth=run.growth
        )
    if run.slo_scale != 1:
        jobs = jobs.replace(slo=1.0 + run.slo_scale * (jobs.slo - 1.0))
    return jobs


# --- the replay -----------------------------------------------------------------------------------


def _replayed(run: Run, inputs: Inputs) -> ReplayResult:
    cluster = run.cluster(inputs.cluster)
    more: dict[str, Any] = {}
    if run.fleet is not None:
        from instances.plan import Fleet

        more = {"fleet": Fleet(*run.fleet), "queue": run.queue}
    options = PolicyOptions(
        cluster=cluster,
        limits=Limits(max_group_size=run.max_group_size, max_rate=run.max_rate),
        placer=PlacerParams(objective=run.objective, tie_rule=run.tie_rule),
        seed=run.seed or 0,
        **more,
    )
    return replay(
        _jobs(run, inputs, cluster),
        run.policy,
        options,
        convention=run.convention,  # type: ignore[arg-type]
    )


def _pool_figures(demand: Demand) -> Row:
    out: Row = {}
    for pool in POOLS:
        out[f"{pool}_nodes_mean"] = demand.mean(pool)
        out[f"{pool}_nodes_p50"] = demand.quantile(pool, 0.5)
        out[f"{pool}_nodes_p95"] = demand.quantile(pool, 0.95)
        out[f"{pool}_nodes_peak"] = demand.peak(pool)
    return out


def _wait_figures(result: Any) -> Row:
    """Return how long jobs waited for a fixed fleet."""
    return {
        "wait_p50_s": float(result.wait_quantile(0.5)),
        "wait_p95_s": float(result.wait_quantile(0.95)),
        "wait_max_s": float(result.wait_quantile(1.0)),
        "admitted_at_once": float(result.admitted_at_once),
        "slo_attainment_with_wait": float(result.slo_attainment_with_wait),
    }


def _runtime_figures(result: ReplayResult, replication: int) -> Row:
    """Return what one run with lengths drawn finds (:mod:`planner.simulate.runtime`)."""
    from planner.simulate.lengths import PhaseSampler
    from planner.simulate.runtime import simulate_plan

    assert result.plan is not None  # a replay keeps its plan
    run = simulate_plan(result.plan, PhaseSampler(result.jobs, replication=replication))
    return {
        "runtime_slo_attainment": run.slo_attainment,
        "runtime_late_iterations_share": run.late_share,
        "runtime_iterations_over_planned": run.done_over_planned,
    }


def figures_of(result: ReplayResult, *, fleet: bool) -> Row:
    """Return the figures of a replay.

    Parameters
    ----------
    fleet : bool
        Whether jobs wait for a fixed fleet.
    """
    idle, link = result.idle_fraction, result.link_utilisation
    admission = result.admission
    admitted = sum(admission.values()) if admission else 0
    shares: Row = {
        f"admitted_{kind}": (
            admission[kind] / admitted if admission and admitted and kind in admission else None
        )
        for kind in _KINDS
    }
    return {
        "jobs": len(result.jobs),
        "usd_total": result.usd_total,
        "usd_per_hour_mean": result.usd_per_hour_mean,
        "horizon_h": result.horizon_h,
        **_pool_figures(demand_of(result)),
        "slo_attainment": result.slo_attainment,
        "rollout_idle_fraction": idle["rollout"],
        "train_idle_fraction": idle["train"],
        "bound_usd_total": result.bound_usd_total if result.promises_valid else None,
        "ratio": result.ratio,
        "link_utilisation_mean": link["mean"],
        "link_utilisation_peak": link["peak"],
        **shares,
        "moves_per_job": result.moves_per_job,
        **(_wait_figures(result) if fleet else {}),
    }


def _words(error: Exception) -> str:
    """Return what an error says, on one line and not too long."""
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    text = "".join(c if c.isprintable() else "?" for c in text) or "no message"
    return text if len(text) <= _MAX_ERROR else f"{text[: _MAX_ERROR - 3]}..."


def failed(kind: str, text: str) -> Row:
    """Return the figures of a run that failed: none but the error."""
    out: Row = dict.fromkeys((column.name for column in FIGURES), None)
    return {**out, "error_type": kind, "error": text}


def row_of(run: Run, inputs: Inputs) -> Mapping[str, Cell]:
    """Replay one run, and return its figures; an error is in the row."""
    try:
        result = _replayed(run, inputs)
        found = figures_of(result, fleet=run.fleet is not None)
        if run.runtime_replication is not None:
            found |= _runtime_figures(result, run.runtime_replication)
    except Exception as error:  # whatever it is, it concerns this run alone
        return failed(type(error).__name__, _words(error))
    return {column.name: _rounded(found.get(column.name)) for column in FIGURES}
