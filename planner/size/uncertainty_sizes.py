"""The least fleet that is enough with stated confidence, over a sample of demands.

Sets and parameters
    r in R: replications, equally likely; demand ``(R_r(t), T_r(t))`` nodes over the hours of r;
    coverage c: share of the time a fleet has to be enough, 1 for always;
    confidence q: share of the replications in which it has to be;
    w_R, w_T > 0: what a node costs an hour.
Statement
    A moment is covered by (N_R, N_T) when ``R_r(t) <= N_R`` **and** ``T_r(t) <= N_T``: a job needs
    both pools. Then::

        min  w_R N_R + w_T N_T
        s.t. #{r : hours of r covered >= c x hours of r} >= q |R|

    Both shares are joint, so neither the time nor the replications that the pools miss add up.
Solution (exact)
    For a given N_R replication r needs at least f_r(N_R) train nodes: a quantile of the train nodes
    over the hours with ``R_r(t) <= N_R``, or no number at all. With k = ceil(q |R|) replications to
    meet, the least N_T is the k-th smallest of them, and only N_R from 0 to the largest peak
    matter. Ties go to fewer train nodes.

The confidence is the sample's own: a size enough in a share q of the replications drawn. About all
traces that might be drawn it promises less. With one pool and no ties N is the k-th smallest of n
needs, and the share F of all traces it is enough for is Beta(k, n - k + 1): at k = ceil(q n) that
is as likely below q as above, however many replications there are (q = 0.95, n = 60: ``F >= q``
with probability 0.35). With ``assurance`` k is the least such that ``F >= q`` has that
probability.

The share met is recounted from the demands. Its interval is that of Clopper and Pearson (1934),
Biometrika 26(4), 404-413. With one pool and no ties the lower end holds as it stands, although N
was chosen on the same sample (a distribution-free tolerance limit: Wilks, 1941, Annals of
Mathematical Statistics 12(1), 91-96). With ties, which whole nodes have, and for two pools chosen
together it is somewhat optimistic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from planner.replay.demand import POOLS, Demand, Pool

__all__ = ["SureSize", "clopper_pearson", "covered_share", "replications_needed", "sure_size"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Shares are covered up to this relative round-off of summed hours.
_REL: Final = 1e-12
#: And counts of replications up to this one of a product.
_COUNT_REL: Final = 1e-9
#: Level of the interval of the share met.
_LEVEL: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class SureSize:
    """A fleet that is enough in at least a stated share of replications.

    Attributes
    ----------
    rollout_nodes, train_nodes : int
    coverage, confidence : float
        What was asked for.
    met, replications : int
        In how many of how many replications it is enough: recounted.
    low, high : float
        Clopper-Pearson 95 % interval of the share met.
    assured : float
        Share of all traces that might be drawn for which it is enough, with 95 % assurance: the
        one-sided tolerance limit of ``met`` of ``replications`` (one pool, no ties).
    alone : dict of str to int
        For each pool the least nodes if the other pool were endless: together they may be
        enough less often than asked.
    """

    rollout_nodes: int
    train_nodes: int
    coverage: float
    confidence: float
    met: int
    replications: int
    low: float
    high: float
    assured: float
    alone: dict[str, int]

    @property
    def share(self) -> float:
        """Share of the replications in which it is enough."""
        return self.met / self.replications


def covered_share(demand: Demand, rollout_nodes: int, train_nodes: int) -> float:
    """Return the share of the time in which both pools are enough; 1 without time."""
    if not len(demand.hours):
        return 1.0
    enough = (demand.rollout_nodes <= rollout_nodes) & (demand.train_nodes <= train_nodes)
    return float(demand.hours[enough].sum() / demand.hours.sum())


def sure_size(
    demands: Sequence[Demand],
    *,
    coverage: float,
    confidence: float,
    usd_per_node_hour: dict[Pool, float],
    assurance: float | None = None,
) -> SureSize:
    """Return the cheapest fleet that is enough in a share ``confidence`` of the demands.

    Parameters
    ----------
    demands : sequence of Demand
        One per replication, equally likely.
    coverage, confidence : float
        Shares of the time and of the replications, above 0 and at most 1.
    usd_per_node_hour : dict
        Of each pool; only their proportion matters.
    assurance : float, optional
        Given, the fleet is enough in so many of the demands that, with this probability, it is
        enough for a share ``confidence`` of all that might be drawn; in all of them where no
        number says that (:func:`replications_needed`).

    Raises
    ------
    InputError
        Without demands, or when a share or a price is out of range.
    """
    if not demands:
        raise InputError("Expected at least one replication, got none.")
    for name, share in (("coverage", coverage), ("confidence", confidence)):
        if not 0 < share <= 1:
            raise InputError(f"Expected 0 < {name} <= 1, got {share!r}.")
    for pool in POOLS:
        if not 0 <= usd_per_node_hour[pool] < math.inf:
            raise InputError(
                f"Expected usd_per_node_hour >= 0, got {usd_per_node_hour[pool]!r} ({pool})."
            )
    n = len(demands)
    to_meet = _to_meet(n, confidence, assurance)
    most = max(demand.peak("rollout") for demand in demands)
    needed = np.stack([_train_needed(demand, coverage, most) for demand in demands])
    train = np.sort(needed, axis=0)[to_meet - 1]
    possible = np.flatnonzero(train < math.inf)
    usd = possible * usd_per_node_hour["rollout"] + train[possible] * usd_per_node_hour["train"]
    # of least cost up to round-off, the one with fewest train nodes, then rollout nodes
    cheapest = possible[usd <= usd.min() * (1 + _REL)]
    rollout_nodes = int(cheapest[np.argmin(train[cheapest])])
    train_nodes = int(train[rollout_nodes])
    met = sum(
        covered_share(demand, rollout_nodes, train_nodes) >= coverage * (1 - 2 * _REL)
        for demand in demands
    )
    low, high = clopper_pearson(met, n)
    return SureSize(
        rollout_nodes=rollout_nodes,
        train_nodes=train_nodes,
        coverage=coverage,
        confidence=confidence,
        met=met,
        replications=n,
        low=low,
        high=high,
        assured=_assured_share(met, n),
        alone={
            pool: sorted(demand.quantile(pool, coverage) for demand in demands)[to_meet - 1]
            for pool in POOLS
        },
    )


def _train_needed(demand: Demand, coverage: float, most: int) -> FloatArray:
    """Return ``f_r(N_R)`` for N_R = 0..most, ``(most + 1,)``; inf where no N_T is enough."""
    if not len(demand.hours):
        return np.zeros(most + 1)
    order = np.argsort(demand.train_nodes, kind="stable")
    train, rollout = demand.train_nodes[order], demand.rollout_nodes[order]
    hours = demand.hours[order]
    wanted = coverage * float(hours.sum()) * (1 - _REL)
    out = np.full(most + 1, math.inf)
    changes = np.unique(rollout)
    for k, level in enumerate(changes):
        covered = np.cumsum(np.where(rollout <= level, hours, 0.0))
        if covered[-1] >= wanted:
            end = changes[k + 1] if k + 1 < len(changes) else most + 1
            out[level:end] = train[np.searchsorted(covered, wanted)]
    return out


def clopper_pearson(met: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of which ``met`` of ``n`` were seen."""
    from scipy import stats

    interval = stats.binomtest(met, n).proportion_ci(_LEVEL, method="exact")
    return float(interval.low), float(interval.high)


def _to_meet(n: int, confidence: float, assurance: float | None) -> int:
    """Return in how many of n demands a fleet has to be enough."""
    if assurance is None or confidence == 1:
        return max(math.ceil(confidence * n * (1 - _COUNT_REL)), 1)
    from scipy import stats

    # the share of all traces below the k-th of n needs is Beta(k, n - k + 1)
    sure = stats.beta.sf(confidence, np.arange(1, n + 1), np.arange(n, 0, -1)) >= assurance
    return int(np.argmax(sure)) + 1 if sure.any() else n


def _assured_share(met: int, n: int) -> float:
    """Return the share of all traces that ``met`` of n assure with probability 0.95."""
    if not met:
        return 0.0
    from scipy import stats

    return float(stats.beta.ppf(1 - _LEVEL, met, n - met + 1))


def replications_needed(confidence: float, assurance: float = _LEVEL) -> int:
    """Return with how many replications the largest of all sizes can be trusted.

    The least n whose largest value is, with probability ``assurance``, at least the quantile
    ``confidence`` of what it is drawn from: ``1 - confidence^n >= assurance``. For 0.95 and 0.95
    it is 59. With fewer no size seen is assured; with as many only the largest is, the one that
    :func:`sure_size` returns at confidence 1, and not the one it returns at ``confidence``.

    Raises
    ------
    InputError
        When a share is not between 0 and 1.
    """
    for name, share in (("confidence", confidence), ("assurance", assurance)):
        if not 0 < share < 1:
            raise InputError(f"Expected 0 < {name} < 1, got {share!r}.")
    return max(math.ceil(math.log(1 - assurance) / math.log(confidence) * (1 - _COUNT_REL)), 1)
