"""Lower bounds of the cost of any valid plan (FORMULATION section 3).

Volume bound
------------
Sets: jobs ``j`` present at one moment. Parameters: phases ``r_j, t_j`` (s), deadlines ``D_j``
(s), widths ``a^R_j, a^T_j`` (nodes), states ``m^R_j, m^T_j`` (GB per node), host DRAM ``M``
(GB), ``B`` the largest group size (jobs; none if 0).

In any valid plan every node of a pool has, summed over the jobs pinned to it,

* time: ``sum k_j phase_j <= C_g`` (no overlap) and ``C_g <= k_j D_j`` (SLO), so
  ``sum phase_j / D_j <= sum k_j phase_j / C_g <= 1``;
* DRAM: ``sum m_j <= M``;
* jobs: at most ``B``.

Each job takes these shares on ``a_j`` nodes. Summed over the nodes of a pool:

    nodes >= ceil(max(sum_j a_j phase_j / D_j,  sum_j a_j m_j / M,  sum_j a_j / B,  max_j a_j))

The last term holds since a gang needs its width in distinct nodes. Switches, precedence, the
coupling of the pools and node limits only make plans dearer, so the bound holds for every
``max_rate`` and every node limit; the third term only for plans with groups of at most ``B``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from instances.hardware import Cluster
from instances.jobs import Job, JobTable
from instances.plan import Limits

__all__ = ["VOLUME", "VolumeBound", "VolumeSums", "least_fleet_usd", "volume", "work_usd"]

VOLUME: Final = "volume"
#: Sums are rounded up only beyond this many nodes of slack, so round-off never adds a node.
_SLACK_NODES: Final = 1e-6
#: The same of money, relative.
_SLACK_USD: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class VolumeBound:
    """Fewest nodes of each pool and their price.

    Attributes
    ----------
    rollout_nodes, train_nodes : int
    usd_per_hour : float
    limits : Limits
        What the bound holds for; never compare it with a plan made under looser limits.
    """

    rollout_nodes: int
    train_nodes: int
    usd_per_hour: float
    limits: Limits
    method: str = VOLUME


@dataclass(slots=True)
class _Pool:
    """Running sums of one pool."""

    time: float = 0.0
    dram: float = 0.0
    width: int = 0
    widths: Counter[int] = field(default_factory=Counter)

    def shift(self, sign: int, width: int, share: float, dram: float) -> None:
        self.time += sign * width * share
        self.dram += sign * width * dram
        self.width += sign * width
        self.widths[width] += sign
        if not self.widths[width]:
            del self.widths[width]

    def nodes(self, max_group_size: int) -> int:
        most = max(self.time, self.dram, float(max(self.widths, default=0)))
        if max_group_size:
            most = max(most, self.width / max_group_size)
        return math.ceil(most - _SLACK_NODES * max(1.0, 1e-3 * most))


class VolumeSums:
    """The volume bound of a changing set of jobs, O(1) per arrival and departure."""

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._rollout = _Pool()
        self._train = _Pool()

    def add(self, job: Job) -> None:
        """Count a job that arrived."""
        self._shift(1, job)

    def remove(self, job: Job) -> None:
        """Discount a job that left."""
        self._shift(-1, job)

    def _shift(self, sign: int, job: Job) -> None:
        deadline = job.deadline_s
        self._rollout.shift(
            sign,
            job.rollout_nodes,
            job.rollout_s / deadline,
            job.rollout_state_gb / self._cluster.rollout.host_dram_gb,
        )
        self._train.shift(
            sign,
            job.train_nodes,
            job.train_s / deadline,
            job.train_state_gb / self._cluster.train.host_dram_gb,
        )

    def usd_per_hour(self) -> float:
        """Return the bound of the jobs now counted, $/h."""
        size = self._limits.max_group_size
        return self._cluster.usd_per_hour(self._rollout.nodes(size), self._train.nodes(size))

    def bound(self) -> VolumeBound:
        """Return the bound with its node counts."""
        size = self._limits.max_group_size
        return VolumeBound(
            rollout_nodes=self._rollout.nodes(size),
            train_nodes=self._train.nodes(size),
            usd_per_hour=self.usd_per_hour(),
            limits=self._limits,
        )


def volume(jobs: JobTable, cluster: Cluster, limits: Limits) -> VolumeBound:
    """Return the volume bound of a snapshot (module docstring).

    Parameters
    ----------
    jobs : JobTable
        The jobs present that share nodes.
    cluster : Cluster
    limits : Limits
        Only ``max_group_size`` enters the bound.
    """
    sums = VolumeSums(cluster, limits)
    for job in jobs:
        sums.add(job)
    return sums.bound()


def least_fleet_usd(
    usd_per_hour: float, rollout_nodes: int, train_nodes: int, cluster: Cluster
) -> float:
    """Return the least price of whole nodes that no bound rules out, $/h.

    ``min c^R x + c^T y`` over whole ``x >= rollout_nodes``, ``y >= train_nodes`` whose price is
    at least ``usd_per_hour``: a plan holds whole nodes, so a bound of its price (of an LP, say)
    and bounds of its nodes (of each pool, say) are worth this much together.

    Parameters
    ----------
    usd_per_hour : float
        Bound of the price of a plan; lowered a little, so that round-off never adds a node.
    rollout_nodes, train_nodes : int
        Bounds of the nodes of each pool.
    cluster : Cluster
        Prices, $/h of a node; a pool may be free.
    """
    prices = (cluster.rollout.usd_per_hour, cluster.train.usd_per_hour)
    floor = cluster.usd_per_hour(rollout_nodes, train_nodes)
    dear, cheap = max(prices), min(prices)
    short = usd_per_hour * (1 - _SLACK_USD) - _SLACK_NODES * (cheap or dear) - floor
    if short <= 0 or dear <= 0:
        return floor
    if cheap <= 0:
        return floor + dear * math.ceil(short / dear)
    many = range(math.ceil(short / dear) + 1)
    return floor + min(
        more * dear + cheap * math.ceil(max(short - more * dear, 0.0) / cheap) for more in many
    )


def work_usd(jobs: JobTable, cluster: Cluster) -> float:
    """Return the least any valid plan can spend on the iterations of a trace, $.

    ``sum_j iterations_j x (p^R a^R_j r_j + p^T a^T_j t_j) / 3600`` with ``p`` the $/h of a node
    (FORMULATION section 3): every phase keeps its nodes busy for its run seconds, whatever shares
    them and however long the stay, so the bound holds under any limits and rates.

    Parameters
    ----------
    jobs : JobTable
        Sync jobs.
    cluster : Cluster
    """
    usd_per_iteration = (
        cluster.rollout.usd_per_hour * jobs.rollout_nodes * jobs.rollout_s
        + cluster.train.usd_per_hour * jobs.train_nodes * jobs.train_s
    ) / 3600.0
    return math.fsum(jobs.iterations * usd_per_iteration)
