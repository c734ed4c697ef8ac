"""Demands and costs of few numbers, for the tests of uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.replay.demand import Demand
from planner.size.pool_costs import CostModel, Period, PoolCosts

_GPUS = 8


def demand_of(*rows: tuple[float, int, int]) -> Demand:
    """Rows of (hours, rollout nodes, train nodes)."""
    hours, rollout, train = zip(*rows, strict=True) if rows else ((), (), ())
    return Demand(
        name="hand",
        hours=np.array(hours, dtype=np.float64),
        rollout_nodes=np.array(rollout, dtype=np.int64),
        train_nodes=np.array(train, dtype=np.int64),
    )


def costs_of(own: float, rent: float, *periods: Period, **limits: Any) -> CostModel:
    """$/h of a node owned and rented, the same of both pools."""
    pool = PoolCosts(
        gpu="any",
        gpus_per_node=_GPUS,
        own_usd_per_gpu_hour=own / _GPUS,
        rent_usd_per_gpu_hour=rent / _GPUS,
        **limits,
    )
    return CostModel(rollout=pool, train=pool, **({"periods": periods} if periods else {}))
