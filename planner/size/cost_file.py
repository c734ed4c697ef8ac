"""Read and write a :class:`~planner.size.pool_costs.CostModel` as TOML or JSON tables.

Every key carries its unit; one left out keeps its default, most of which are guesses::

    [site]                           # both pools, unless a pool says otherwise
    pue = 1.3
    usd_per_kwh = 0.10
    [rollout]
    rent_usd_per_gpu_hour = 1.85     # left out: usd_per_gpu_hour of the cluster
    usd_per_node = 165_000           # purchase
    depreciation_years = 4
    interest = 0.08                  # a year
    residual_share = 0.10            # of the purchase price, after these years
    watts_per_gpu = 400
    watts_per_node = 2500            # all but the GPUs
    hosting_usd_per_node_month = 400
    staff_usd_per_node_year = 3000
    max_rented_nodes = 20            # left out: any number
    max_owned_nodes = 50
    lease_block_h = 168              # a rented node is paid for so long; left out: as used
    [rollout.sources]                # where numbers are from: "guess" in a text makes it one
    usd_per_node = "quote of 2026-10"
    [train]
    own_usd_per_gpu_hour = 2.10      # instead of purchase, power, hosting and staff
    [budget]
    capex_usd = 5_000_000            # purchases of both pools; needs usd_per_node of each
    [[period]]                       # in time; left out: one, of the demand as it is
    years = 1
    growth = 1.5                     # demand over that of the trace
    own_price_factor = 0.9           # purchase price over today's
    rent_price_factor = 1.0
    capex_usd = 2_000_000            # instead of [budget]

Unknown keys are errors that suggest the nearest key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from instances.errors import InputError, did_you_mean
from instances.file_kinds import refuse_other_kind
from instances.hardware import Cluster
from instances.schema_faults import MAX_SHOWN, refuse, say
from instances.toml_file import read_toml
from planner.replay.demand import POOLS
from planner.size.pool_costs import CostModel, Period, PoolCosts, default_costs

__all__ = ["CostTables", "costs_from_dict", "costs_to_dict", "read_costs"]

Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False, strict=True)]
NonNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Interest = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, strict=True)]
Years = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False, strict=True)]
Pue = Annotated[float, Field(ge=1, le=10, allow_inf_nan=False, strict=True)]
Nodes = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Text = Annotated[str, Field(min_length=1, strict=True)]

#: What a number is in, for messages.
_UNITS: Final[Mapping[str, str]] = {
    "pue": "power of the site over that of its nodes",
    "usd_per_kwh": "$/kWh",
    "rent_usd_per_gpu_hour": "$ a GPU and hour",
    "own_usd_per_gpu_hour": "$ a GPU and hour",
    "usd_per_node": "$ a node",
    "depreciation_years": "years",
    "interest": "a year, 0.08 is 8 %",
    "residual_share": "of the purchase price",
    "watts_per_gpu": "W",
    "watts_per_node": "W",
    "hosting_usd_per_node_month": "$ a node and month",
    "staff_usd_per_node_year": "$ a node and year",
    "max_rented_nodes": "nodes",
    "max_owned_nodes": "nodes",
    "lease_block_h": "hours",
    "capex_usd": "$",
    "years": "years",
    "growth": "demand over that of the trace",
    "own_price_factor": "over today's price",
    "rent_price_factor": "over today's price",
}


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SiteTable(_Table):
    """Power of both pools, unless a pool says otherwise."""

    pue: Pue | None = None
    usd_per_kwh: NonNegative | None = None


class PoolTable(SiteTable):
    """One pool; a key left out keeps its default."""

    rent_usd_per_gpu_hour: NonNegative | None = None
    own_usd_per_gpu_hour: NonNegative | None = None
    usd_per_node: NonNegative | None = None
    depreciation_years: Years | None = None
    interest: Interest | None = None
    residual_share: Share | None = None
    watts_per_gpu: NonNegative | None = None
    watts_per_node: NonNegative | None = None
    hosting_usd_per_node_month: NonNegative | None = None
    staff_usd_per_node_year: NonNegative | None = None
    max_rented_nodes: Nodes | None = None
    max_owned_nodes: Nodes | None = None
    lease_block_h: NonNegative | None = None
    sources: dict[str, Text] = Field(default_factory=dict)


class BudgetTable(_Table):
    """Most that purchases may cost."""

    capex_usd: NonNegative


class PeriodTable(_Table):
    """One purchase period."""

    years: Years = 1.0
    growth: Positive = 1.0
    own_price_factor: NonNegative = 1.0
    rent_price_factor: NonNegative = 1.0
    capex_usd: NonNegative | None = None


class CostTables(_Table):
    """The whole file."""

    site: SiteTable = SiteTable()
    rollout: PoolTable = PoolTable()
    train: PoolTable = PoolTable()
    budget: BudgetTable | None = None
    period: list[PeriodTable] | None = Field(default=None, min_length=1)


_POOL_KEYS: Final = tuple(key for key in PoolTable.model_fields if key != "sources")
_KNOWN_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": tuple(CostTables.model_fields),
    "site": tuple(SiteTable.model_fields),
    "rollout": tuple(PoolTable.model_fields),
    "train": tuple(PoolTable.model_fields),
    "budget": tuple(BudgetTable.model_fields),
    "period": tuple(PeriodTable.model_fields),
}


def _place(parts: Sequence[int | str]) -> str:
    """Return ``[rollout] interest (a year, 0.08 is 8 %)``, or ``[period #2] years (years)``."""
    words = [f"#{part + 1}" if isinstance(part, int) else part for part in parts] or ["the file"]
    *table, key = words
    unit = f" ({_UNITS[key]})" if table and key in _UNITS else ""
    return f"[{' '.join(table)}] {key}{unit}" if table else key


def _say(error: Any) -> str:
    """Return one fault as a line; an unknown key comes with all that are known."""
    table = str(error["loc"][0]) if len(error["loc"]) > 1 else ""
    known = _KNOWN_KEYS[table]
    line = say(error, _place, known)
    return f"{line} Known keys: {', '.join(known)}." if error["type"] == "extra_forbidden" else line


def costs_from_dict(data: Any, cluster: Cluster, source: str = "costs") -> CostModel:
    """Build a :class:`CostModel` from nested tables, as read from TOML or JSON.

    Parameters
    ----------
    data : dict
        Tables ``site``, ``rollout``, ``train``, ``budget`` and a list ``period``; all optional.
    cluster : Cluster
        What keys left out are for: GPUs of a node, their rent, known purchase prices.
    source : str
        Name put in front of every error, and the source of every number given.

    Raises
    ------
    InputError
        One line per fault: an unknown key (with the nearest known one), a value that breaks
        its rule, or a key that is missing.
    """
    try:
        tables = CostTables.model_validate(data)
    except ValidationError as error:
        refuse_other_kind(data, "costs", source)
        errors = error.errors(include_url=False)
        refuse([_say(e) for e in errors[:MAX_SHOWN]], len(errors), source)
    faults = [f for name in POOLS for f in _unknown_sources(name, getattr(tables, name))]
    if tables.budget is not None and tables.period is not None:
        faults.append(
            "Expected [budget] or [[period]], got both: with periods, capex_usd goes in a period."
        )
    if faults:
        refuse(faults, len(faults), source)
    defaults = default_costs(cluster)
    periods = [Period(**p.model_dump()) for p in tables.period or [PeriodTable()]]
    if tables.budget is not None:
        periods = [Period(capex_usd=tables.budget.capex_usd)]
    rollout = _over(defaults.rollout, tables.site, tables.rollout, "rollout", source)
    train = _over(defaults.train, tables.site, tables.train, "train", source)
    try:
        return CostModel(rollout=rollout, train=train, periods=tuple(periods))
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _unknown_sources(name: str, table: PoolTable) -> list[str]:
    """Return one line per source of a key that does not exist."""
    return [
        f"Unknown key '[{name} sources] {key}'.{did_you_mean(key, _POOL_KEYS)} Known keys: "
        f"{', '.join(_POOL_KEYS)}."
        for key in table.sources
        if key not in _POOL_KEYS
    ]


def _over(
    default: PoolCosts, site: SiteTable, table: PoolTable, name: str, source: str
) -> PoolCosts:
    """Return ``default`` with the keys of both tables in place, each with its source."""
    given = site.model_dump(exclude_none=True)
    given |= table.model_dump(exclude_none=True, exclude={"sources"})
    power_missing = default.watts_per_gpu is None and "watts_per_gpu" not in given
    if "usd_per_node" in given and power_missing and "own_usd_per_gpu_hour" not in given:
        raise InputError(
            f"{source}: Missing {_place([name, 'watts_per_gpu'])}: there is no default for GPU "
            f"'{default.gpu}', and owning it costs its power too."
        )
    sources = {**default.sources, **dict.fromkeys(given, source), **table.sources}
    try:
        return dataclasses.replace(default, **given, sources=sources)
    except InputError as error:
        raise InputError(f"{source}: [{name}] {error}") from error


def costs_to_dict(costs: CostModel) -> dict[str, Any]:
    """Return the nested tables that :func:`costs_from_dict` reads back unchanged.

    ``None`` is left out: of a cluster that has a default there, reading back restores it.
    """

    def pool(side: PoolCosts) -> dict[str, Any]:
        plain = PoolCosts.__dataclass_fields__
        kept = {}
        for key in _POOL_KEYS:
            value = getattr(side, key)
            said = key in side.sources or value != plain[key].default
            if value is not None and said:
                kept[key] = value
        return {**kept, "sources": dict(side.sources)}

    return {
        "rollout": pool(costs.rollout),
        "train": pool(costs.train),
        "period": [
            {key: value for key, value in dataclasses.asdict(period).items() if value is not None}
            for period in costs.periods
        ],
    }


def read_costs(path: str | Path, cluster: Cluster) -> CostModel:
    """Read a cost TOML file.

    Parameters
    ----------
    path : str or Path
        TOML file; every key is optional.
    cluster : Cluster
        Keys left out take the defaults of its GPUs.

    Returns
    -------
    CostModel

    Raises
    ------
    InputError
        When the file cannot be read, is not TOML, or breaks a rule.
    """
    return costs_from_dict(read_toml(path), cluster, Path(path).name)
