"""What a node of each pool costs, owned and rented, and where each number is from.

An owned node costs the same used or idle::

    own = (annuity + residual) / 8,766 h + power + hosting + staff

* annuity: ``P i / (1 - (1 + i)^-n)`` a year for ``n`` years at interest ``i``; ``P / n`` at
  ``i = 0``;
* residual: ``- v P i / ((1 + i)^n - 1)`` a year, the sinking fund that selling the node for
  ``v P`` after ``n`` years saves; ``- v P / n`` at ``i = 0``;
* power: ``(gpus x watts_per_gpu + watts_per_node) / 1000 x PUE x $/kWh``, full load at all
  times: on the dear side;
* hosting by the month, staff by the year.

A rented node costs its hourly price while it is rented, or for whole leases.

:mod:`planner.size.cost_file` reads a :class:`CostModel` from TOML.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import expm1, isfinite, log1p
from typing import Final

from instances.errors import InputError
from instances.hardware import Cluster, NodeType
from planner.replay.demand import POOLS, Pool

__all__ = ["HOURS_PER_YEAR", "CostModel", "Period", "PoolCosts", "at_rent", "default_costs"]

#: Interest a year below which there is none: round-off would be larger than its effect.
_NO_INTEREST: Final = 1e-12
#: The shortest lease, h: blocks of a demand are counted one by one.
_LEAST_LEASE_H: Final = 1 / 60
#: 365.25 days.
HOURS_PER_YEAR: Final = 8_766.0

# --- default numbers ----------------------------------------------------------------------------

#: CNY per $; the dealer quotes below are in CNY.
_CNY_PER_USD: Final = 7.25
_QUOTED_GPUS: Final = 8
#: CNY of a server of 8 GPUs and W of one GPU, with their sources.
_QUOTES_CNY: Final[Mapping[str, tuple[float, str]]] = {
    "H20": (1_200_000.0, "a server dealer's quote of an 8x H20 server, 1,200,000 CNY, 2024-07"),
    "H800": (
        2_700_000.0,
        "a server dealer's quote of an 8x H100 NVLink server, 2,700,000 CNY, 2024-07, in place of "
        "an H800 server, for which no quote was found",
    ),
}
_TDP_W: Final[Mapping[str, tuple[float, str]]] = {
    "H20": (400.0, "TDP of the H20, specification pages"),
    "H800": (700.0, "TDP of the H800, specification pages"),
}
#: Everything else is a guess.
_GUESSES: Final[Mapping[str, tuple[float, str]]] = {
    "depreciation_years": (4.0, "guess: 4 years in service"),
    "interest": (0.08, "guess: 8 % a year"),
    "residual_share": (0.10, "guess: sold for 10 % of its price"),
    "watts_per_node": (2_500.0, "guess: CPUs, memory, network and fans of a node, 2.5 kW"),
    "pue": (1.3, "guess: PUE 1.3"),
    "usd_per_kwh": (0.10, "guess: $0.10/kWh"),
    "hosting_usd_per_node_month": (400.0, "guess: $400 a node and month"),
    "staff_usd_per_node_year": (3_000.0, "guess: $3,000 a node and year"),
}


# --- prices -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PoolCosts:
    """What one node of one pool costs, owned or rented.

    Attributes
    ----------
    gpu : str
        Name of its GPUs.
    gpus_per_node : int
        GPUs of a node.
    rent_usd_per_gpu_hour : float
        Rent of a GPU, $/h.
    usd_per_node : float or None
        Purchase price, $; ``None``: unknown.
    watts_per_gpu : float or None
        ``None``: unknown.
    depreciation_years, interest, residual_share : float
        Years in service, interest a year, share of the price it is sold for afterwards.
    watts_per_node : float
        All but the GPUs, W.
    pue, usd_per_kwh : float
        Power of the site over that of its nodes, and price of power.
    hosting_usd_per_node_month : float
        Hosting of an owned node, power apart, $ a month.
    staff_usd_per_node_year : float
        People for an owned node, $ a year.
    own_usd_per_gpu_hour : float or None
        What owning costs in all, instead of the sum of the keys above.
    max_rented_nodes, max_owned_nodes : int or None
        Most at once.
    lease_block_h : float
        Hours of a lease: a rented node is taken and paid in full for so long, a minute at least;
        0: paid as used.
    sources : mapping of str to str
        Where each number is from, by key; a guess says "guess".

    Raises
    ------
    InputError
        When a number is out of its range, or a purchase price comes without power.
    """

    gpu: str
    gpus_per_node: int
    rent_usd_per_gpu_hour: float
    usd_per_node: float | None = None
    watts_per_gpu: float | None = None
    depreciation_years: float = _GUESSES["depreciation_years"][0]
    interest: float = _GUESSES["interest"][0]
    residual_share: float = _GUESSES["residual_share"][0]
    watts_per_node: float = _GUESSES["watts_per_node"][0]
    pue: float = _GUESSES["pue"][0]
    usd_per_kwh: float = _GUESSES["usd_per_kwh"][0]
    hosting_usd_per_node_month: float = _GUESSES["hosting_usd_per_node_month"][0]
    staff_usd_per_node_year: float = _GUESSES["staff_usd_per_node_year"][0]
    own_usd_per_gpu_hour: float | None = None
    max_rented_nodes: int | None = None
    max_owned_nodes: int | None = None
    lease_block_h: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise InputError(f"Expected {name} >= 0 ({self.gpu}), got {value!r}.")
        for name, least in (("gpus_per_node", 1), ("pue", 1)):
            if not getattr(self, name) >= least:
                raise InputError(
                    f"Expected {name} >= {least} ({self.gpu}), got {getattr(self, name)!r}."
                )
        if not self.depreciation_years > 0:
            raise InputError(
                f"Expected depreciation_years > 0 ({self.gpu}), got {self.depreciation_years!r}."
            )
        if self.residual_share > 1:
            raise InputError(
                f"Expected residual_share <= 1 ({self.gpu}), got {self.residual_share!r}."
            )
        if 0 < self.lease_block_h < _LEAST_LEASE_H:
            raise InputError(
                f"Expected lease_block_h 0 (paid as used) or at least 1/60, a minute ({self.gpu}), "
                f"got {self.lease_block_h!r}."
            )
        if self._priced and self.watts_per_gpu is None:
            raise InputError(
                f"Missing watts_per_gpu (W): there is no default for GPU '{self.gpu}', and owning "
                "it costs its power too."
            )

    @property
    def _priced(self) -> bool:
        return self.usd_per_node is not None and self.own_usd_per_gpu_hour is None

    @property
    def can_own(self) -> bool:
        """Whether a price of owning is known; a pool without one can only be rented."""
        return self.own_usd_per_gpu_hour is not None or self.usd_per_node is not None

    @property
    def rent_usd_per_node_hour(self) -> float:
        """Rent of a node, $/h."""
        return self.gpus_per_node * self.rent_usd_per_gpu_hour

    @property
    def capital_usd_per_node_hour(self) -> float:
        """Annuity less residual, $/h; 0 without a purchase price."""
        price, rate, years = self.usd_per_node or 0.0, self.interest, self.depreciation_years
        residual = self.residual_share * price
        if rate < _NO_INTEREST:
            return (price - residual) / years / HOURS_PER_YEAR
        # The sinking fund factor is the annuity factor less the interest.
        grown = expm1(years * log1p(rate))
        return (price * (rate + rate / grown) - residual * rate / grown) / HOURS_PER_YEAR

    @property
    def power_usd_per_node_hour(self) -> float:
        """Power of a node at full load, $/h."""
        watts = self.gpus_per_node * (self.watts_per_gpu or 0.0) + self.watts_per_node
        return watts / 1_000 * self.pue * self.usd_per_kwh

    @property
    def upkeep_usd_per_node_hour(self) -> float:
        """Hosting and staff of a node, $/h."""
        yearly = 12 * self.hosting_usd_per_node_month + self.staff_usd_per_node_year
        return yearly / HOURS_PER_YEAR

    def own_usd_at(self, price_factor: float) -> float | None:
        """Return what owning costs when purchase prices are multiplied, $/h of a node.

        A stated ``own_usd_per_gpu_hour`` is multiplied as a whole.
        """
        if self.own_usd_per_gpu_hour is not None:
            return self.gpus_per_node * self.own_usd_per_gpu_hour * price_factor
        if self.usd_per_node is None:
            return None
        running = self.power_usd_per_node_hour + self.upkeep_usd_per_node_hour
        return self.capital_usd_per_node_hour * price_factor + running

    @property
    def own_usd_per_node_hour(self) -> float | None:
        """What owning a node costs, used or idle, $/h; ``None`` where no price is known."""
        return self.own_usd_at(1.0)

    @property
    def capex_usd(self) -> float | None:
        """What buying a node costs at once, $; ``None`` where unknown."""
        return self.usd_per_node

    def guesses(self) -> dict[str, str]:
        """Return the numbers in use that are guesses, wholly or in part, with what is guessed."""
        unused = () if self._priced else _OWNING
        return {
            key: text for key, text in self.sources.items() if "guess" in text and key not in unused
        }


#: What the price of owning is made of, unless it is given as a whole.
_OWNING: Final = (
    "usd_per_node",
    "depreciation_years",
    "interest",
    "residual_share",
    "watts_per_gpu",
    "watts_per_node",
    "pue",
    "usd_per_kwh",
    "hosting_usd_per_node_month",
    "staff_usd_per_node_year",
)
_NOT_NEGATIVE: Final = (
    "rent_usd_per_gpu_hour",
    "usd_per_node",
    "watts_per_gpu",
    "interest",
    "residual_share",
    "watts_per_node",
    "usd_per_kwh",
    "hosting_usd_per_node_month",
    "staff_usd_per_node_year",
    "own_usd_per_gpu_hour",
    "max_rented_nodes",
    "max_owned_nodes",
    "lease_block_h",
)


@dataclass(frozen=True, kw_only=True)
class Period:
    """One purchase period.

    Attributes
    ----------
    years : float
        Its length.
    growth : float
        Its demand over that of the trace; nodes are rounded up.
    own_price_factor, rent_price_factor : float
        Purchase and rental prices over today's.
    capex_usd : float or None
        Most that its purchases may cost, $; what is left is not carried over.
    """

    years: float = 1.0
    growth: float = 1.0
    own_price_factor: float = 1.0
    rent_price_factor: float = 1.0
    capex_usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("years", "growth"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"Expected {name} > 0 of a period, got {getattr(self, name)!r}.")
        for name in ("own_price_factor", "rent_price_factor", "capex_usd"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise InputError(f"Expected {name} >= 0 of a period, got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """What nodes of both pools cost, and what may be spent.

    Attributes
    ----------
    rollout : PoolCosts
        Costs of the rollout pool.
    train : PoolCosts
        Costs of the train pool.
    periods : tuple of Period
        When nodes can be bought: now, and for the whole of the horizon, by default.
    """

    rollout: PoolCosts
    train: PoolCosts
    periods: tuple[Period, ...] = (Period(),)

    def __post_init__(self) -> None:
        if not self.periods:
            raise InputError("Expected at least one purchase period, got none.")
        limited = any(period.capex_usd is not None for period in self.periods)
        for name, costs in zip(POOLS, (self.rollout, self.train), strict=True):
            if limited and costs.can_own and costs.usd_per_node is None:
                raise InputError(
                    f"Missing [{name}] usd_per_node ($): a purchase budget needs the price of a "
                    "node."
                )

    @property
    def capex_budget_usd(self) -> float | None:
        """Most that the purchases of the first period may cost, $."""
        return self.periods[0].capex_usd

    def pool(self, name: Pool) -> PoolCosts:
        """Return the costs of one pool."""
        return self.rollout if name == "rollout" else self.train

    def fleet_usd_per_hour(self, rollout_nodes: int, train_nodes: int) -> float:
        """Return what owning that many nodes costs, used or idle, $/h.

        Raises
        ------
        InputError
            When no price of owning is known.
        """
        total = 0.0
        for name, nodes in zip(POOLS, (rollout_nodes, train_nodes), strict=True):
            costs = self.pool(name)
            own = costs.own_usd_per_node_hour
            if own is None and nodes:
                raise InputError(
                    f"Missing [{name}] usd_per_node ($) or own_usd_per_gpu_hour: no price of "
                    f"owning GPU '{costs.gpu}' is known."
                )
            total += nodes * (own or 0.0)
        return total

    def guesses(self) -> dict[str, str]:
        """Return the numbers that are guesses, by ``pool.key``."""
        return {
            f"{name}.{key}": text
            for name in POOLS
            for key, text in self.pool(name).guesses().items()
        }


def at_rent(cluster: Cluster, costs: CostModel) -> Cluster:
    """Return a cluster whose GPUs cost what the cost model rents them for."""
    pools = {
        name: dataclasses.replace(
            node,
            gpu=dataclasses.replace(
                node.gpu, usd_per_gpu_hour=costs.pool(name).rent_usd_per_gpu_hour
            ),
        )
        for name, node in zip(POOLS, (cluster.rollout, cluster.train), strict=True)
    }
    return cluster.replace(**pools)


def default_costs(cluster: Cluster) -> CostModel:
    """Return the costs of a cluster's nodes, each number with its source or labelled a guess.

    Rent is the cluster's price. Purchase prices and power are known for H20 and H800 only: nodes
    of any other GPU can be rented and not owned, until somebody states their price.

    Parameters
    ----------
    cluster : Cluster
        Its prices are what renting costs, its GPUs what is looked up.

    Returns
    -------
    CostModel
    """
    return CostModel(rollout=_default_pool(cluster.rollout), train=_default_pool(cluster.train))


def _default_pool(node: NodeType) -> PoolCosts:
    gpu, name = node.gpu, node.gpu.name
    sources = {key: text for key, (_, text) in _GUESSES.items()}
    sources["rent_usd_per_gpu_hour"] = _rent_source(name, gpu.usd_per_gpu_hour)
    usd = watts = None
    if name in _QUOTES_CNY:
        cny, quote = _QUOTES_CNY[name]
        usd = cny / _CNY_PER_USD * node.gpus_per_node / _QUOTED_GPUS
        watts, sources["watts_per_gpu"] = _TDP_W[name]
        scaled = f", scaled to {node.gpus_per_node} GPUs (guess)"
        sources["usd_per_node"] = (
            f"{quote}, at {_CNY_PER_USD:g} CNY/$ (guess)"
            f"{'' if node.gpus_per_node == _QUOTED_GPUS else scaled}"
        )
    else:
        sources["usd_per_node"] = (
            f"unknown: no purchase price of GPU '{name}' is known, so this pool can only be rented"
        )
    return PoolCosts(
        gpu=name,
        gpus_per_node=node.gpus_per_node,
        rent_usd_per_gpu_hour=gpu.usd_per_gpu_hour,
        usd_per_node=usd,
        watts_per_gpu=watts,
        sources=sources,
    )


def _rent_source(gpu: str, usd: float) -> str:
    known = {
        ("H20", 1.85): "secondary report of the paper; no public hourly price of an H20 was found",
        ("H800", 5.28): "secondary report of the paper: 2.85 x the H20, a ratio in the paper",
    }
    return known.get((gpu, usd), "usd_per_gpu_hour of the cluster")
