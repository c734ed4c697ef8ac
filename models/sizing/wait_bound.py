"""Fleets with which more than a few jobs must wait longer than a limit, proved without a replay.

A fixed fleet of ``N`` nodes of a pool makes jobs wait. This bound says which fleets cannot meet
a waiting target, whatever the order of the queue, so that a search need not replay them.

Sets: jobs ``j`` of a trace, moments ``m``. Parameters: arrivals ``A_j`` and durations ``d_j``
(s), phases ``r_j, t_j`` and deadlines ``D_j`` (s), widths ``a_j`` (nodes of the pool), states
``m_j`` (GB per node), host DRAM ``M`` (GB), ``B`` the largest group size (jobs; no such term if
0). The target: all jobs but ``L`` start within ``W`` seconds of their arrival.

Proof
-----
1. A job that starts at ``S_j`` stays at least ``d_j``. Under ``wallclock`` its stay is ``d_j``
   and its pauses. Under ``work`` it does ``d_j / T_j`` iterations at ``C_g / k_j`` seconds each,
   and ``C_g >= k_j T_j`` in a valid group (its iterations follow one another on the circle), so
   ``S_j + d_j`` is no later than its end here too.
2. If ``A_j <= S_j <= A_j + W`` the job is therefore present throughout
   ``[A_j + W, A_j + d_j)``, empty when ``W >= d_j``. Call it *due* at these moments.
3. At any moment the jobs present have a valid plan on the nodes that exist, so the volume bound
   of :mod:`models.bounds.volume` holds: on every node ``sum phase_j / D_j <= 1``, ``sum m_j <= M``,
   at most ``B`` jobs; summed over the nodes, each measure ``sum_j v_j`` with ``v_j`` one of

       ``a_j phase_j / D_j,   a_j m_j / M,   a_j / B``

   is at most the number of nodes. An async job holds ``a_j`` nodes of its own: it counts ``a_j``
   in each measure.
4. Up to ``L`` jobs may start later, and which ones is the policy's choice, ``x_j = 1``; but it is
   one choice for all moments. So for every measure and moment, and hence for every mean of them
   with weights ``y_m >= 0``, the jobs due at ``m`` give

       ``sum_m y_m N >= sum_m y_m sum_{j due at m} v_jm (1 - x_j) = sum_j V_j (1 - x_j)``

   with ``V_j = sum_m y_m v_jm``: at least ``sum_j V_j`` less the ``L`` largest ``V_j``. With one
   moment alone this is the sum over the jobs due less its ``L`` largest terms.
5. Every job starts at last, the late ones too, and a gang needs its width in distinct nodes:
   ``N >= max a_j``.

The best weights are the duals of the linear program ``min c_R N_R + c_T N_T`` over ``N >= 0``,
``0 <= x <= 1``, ``sum x <= L``, one row of 4. per measure and moment: solved for each pool alone
and then for the price of both, where ``N`` is at least what is known of each pool. The solver only
proposes weights: the bound is computed from them by the formula of 4., which holds for any; what
a pool's weights leave of its price counts times its fewest nodes. Jobs become due one by one, so
moments at which a job becomes due and the next event is an end have all that is due at any other.

It holds for every rate, node limit and queue, and for groups of at most ``max_group_size`` jobs.
Its numbers are lowered by the checker's tolerances, so that a plan valid only within those is not
excluded either. Policies whose plans break a rule have bounds of their own
(``Sharing``): ``room`` (host DRAM and group size are kept, deadlines are not;
``C_g >= k_j T_j`` still holds, so 1. does), ``alone`` (no two jobs share a node: ``v_j = a_j``)
and ``train-only`` (the same, and sync jobs hold no rollout nodes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.plan import Limits

__all__ = ["Cut", "Sharing", "WaitBound", "wait_bound"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sharing = Literal["valid", "room", "alone", "train-only"]

_POOLS: Final = ("rollout", "train")
#: The checker's slack of a node's time and host DRAM, and of a stay, relative.
_REL: Final = 1e-6
#: Sums are rounded up only beyond this many nodes of slack.
_SLACK_NODES: Final = 1e-6
#: Moments of the trace are told apart no finer, seconds.
_SLACK_S: Final = 1e-6
_HOUR_S: Final = 3600.0
#: Seconds for one linear program; without its answer the bound of single moments stands.
_LP_S: Final = 20.0
#: Rows beyond which the linear program is left alone.
_MOST_ENTRIES: Final = 5_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """``rollout x N_R + train x N_T >= least`` for every fleet that can meet the target.

    Attributes
    ----------
    rollout, train : float
        Weights; 1 and 0, or 0 and 1, where ``least`` is a number of nodes of one pool.
    why : str
        What needs them, in words.
    """

    rollout: float
    train: float
    least: float
    why: str

    def excludes(self, rollout_nodes: int, train_nodes: int) -> bool:
        """Return whether so many nodes cannot meet the target."""
        have = self.rollout * rollout_nodes + self.train * train_nodes
        return have < self.least - 1e-9 * max(1.0, abs(self.least))


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitBound:
    """Which fleets cannot meet a waiting target (module docstring).

    Attributes
    ----------
    rollout_nodes, train_nodes : int
        Fewest nodes of each pool.
    cuts : tuple of Cut
        The two that say so, and where it is known one that prices both pools together.
    wait_s, late_allowed
        The target: at most ``late_allowed`` jobs wait longer than ``wait_s``.
    limits : Limits
        What the bound holds for: ``max_group_size`` enters it, and nothing else.
    sharing : str
        One of ``Sharing``.
    """

    rollout_nodes: int
    train_nodes: int
    cuts: tuple[Cut, ...]
    wait_s: float
    late_allowed: int
    limits: Limits
    sharing: Sharing

    def excludes(self, rollout_nodes: int, train_nodes: int) -> bool:
        """Return whether so many nodes cannot meet the target."""
        return any(cut.excludes(rollout_nodes, train_nodes) for cut in self.cuts)

    def why(self, rollout_nodes: int, train_nodes: int) -> str | None:
        """Return why so many nodes cannot meet the target; ``None`` where that is not proved."""
        for cut in self.cuts:
            if cut.excludes(rollout_nodes, train_nodes):
                return cut.why
        return None


@dataclass(frozen=True, slots=True)
class _Rows:
    """One measure of one pool over all moments: ``terms`` ``(n_jobs,)``, ``sums`` ``(n_moments,)``.

    ``left`` ``(n_moments,)`` is ``sums`` less the ``L`` largest terms of each.
    """

    pool: int
    what: str
    terms: FloatArray
    sums: FloatArray
    left: FloatArray


@dataclass(frozen=True, slots=True)
class _Moments:
    """Moments ``at_s`` ``(n_moments,)`` and the jobs due at each."""

    at_s: FloatArray
    due: tuple[IntArray, ...]

    @classmethod
    def of(cls, from_s: FloatArray, to_s: FloatArray) -> _Moments:
        """Return the moments from which a job is due and after which an end comes next."""
        there = np.flatnonzero(from_s < to_s).tolist()
        # Ends go before starts: who leaves at a moment makes room for who becomes due then.
        events = sorted(
            [(float(to_s[i]), 0, i) for i in there] + [(float(from_s[i]), 1, i) for i in there]
        )
        now: dict[int, None] = {}
        at_s, due = [], []
        for (time_s, starts, i), (_, next_starts, _) in pairwise([*events, (math.inf, 0, -1)]):
            if not starts:
                del now[i]
                continue
            now[i] = None
            if not next_starts:
                at_s.append(time_s)
                due.append(np.array(list(now), dtype=np.int64))
        return cls(np.array(at_s), tuple(due))


def wait_bound(
    jobs: JobTable,
    cluster: Cluster,
    limits: Limits,
    *,
    wait_s: float,
    late_allowed: int,
    sharing: Sharing = "valid",
    stay_factor: float = 1.0,
) -> WaitBound:
    """Return which fleets cannot meet a waiting target.

    Parameters
    ----------
    jobs : JobTable
        Sync and async jobs.
    cluster : Cluster
        Host DRAM of a node of each pool, and prices, which weigh the pools in one of the cuts.
    limits : Limits
    wait_s : float
        Longest wait, seconds, of all jobs but ``late_allowed``.
    late_allowed : int
    sharing : {"valid", "room", "alone", "train-only"}
        What the policy's plans keep.
    stay_factor : float
        Least stay of a sync job over its ``duration_s``: below 1 only where an iteration may be
        shorter than the job's own, as on co-located nodes.

    Raises
    ------
    InputError
        When the target or the factor is out of its range.
    KeyboardInterrupt
        At Ctrl-C in the linear program.
    """
    if not (0 <= wait_s < math.inf):
        raise InputError(f"Expected wait_s >= 0, got {wait_s!r}.")
    if late_allowed < 0:
        raise InputError(f"Expected late_allowed >= 0, got {late_allowed!r}.")
    if not (0 < stay_factor < math.inf):
        raise InputError(f"Expected stay_factor > 0, got {stay_factor!r}.")
    alone = np.array([mode == "async" for mode in jobs.mode], dtype=np.bool_)
    stay_s = np.where(alone, 1.0, min(stay_factor, 1.0)) * jobs.duration_s
    moments = _Moments.of(
        jobs.arrival_s + wait_s + _SLACK_S,
        jobs.arrival_s + stay_s * (1 - _REL) - _SLACK_S,
    )
    rows: list[_Rows] = []
    cuts = []
    for pool, name in enumerate(_POOLS):
        width = getattr(jobs, f"{name}_nodes").astype(np.float64)
        sync_width = np.where(sharing == "train-only" and pool == 0, 0.0, width)
        measures = _measures(jobs, cluster, limits, sharing, pool)
        for what, values in measures.items():
            terms = np.where(alone, width, values * sync_width)
            rows.append(_rows(pool, what, terms, moments, late_allowed))
        widest = int(np.where(alone, width, sync_width).max(initial=0.0))
        cuts.append(_pool_cut(pool, widest, rows, moments, (wait_s, late_allowed)))
    if late_allowed and len(moments.due):
        prices = cluster.rollout.usd_per_hour, cluster.train.usd_per_hour
        cuts = _sharpened(cuts, rows, moments, (wait_s, late_allowed), prices)
    return WaitBound(
        rollout_nodes=round(cuts[0].least),
        train_nodes=round(cuts[1].least),
        cuts=tuple(cuts),
        wait_s=wait_s,
        late_allowed=late_allowed,
        limits=limits,
        sharing=sharing,
    )


def _measures(
    jobs: JobTable, cluster: Cluster, limits: Limits, sharing: Sharing, pool: int
) -> dict[str, FloatArray]:
    """Return what a sync job takes of each of its nodes, ``(n_jobs,)`` by measure of step 3."""
    if sharing in ("alone", "train-only"):
        return {"nodes of their own": np.ones(len(jobs))}
    node = (cluster.rollout, cluster.train)[pool]
    out = {}
    if sharing == "valid":
        out["time"] = getattr(jobs, f"{_POOLS[pool]}_s") / jobs.deadline_s
    out["host DRAM"] = getattr(jobs, f"{_POOLS[pool]}_state_gb") / node.host_dram_gb
    if limits.max_group_size:
        out["group size"] = np.full(len(jobs), 1 / limits.max_group_size)
    return out


def _rows(pool: int, what: str, terms: FloatArray, moments: _Moments, late: int) -> _Rows:
    sums = np.array([math.fsum(terms[due]) for due in moments.due])
    left = np.array([_without_largest(terms[due], late) for due in moments.due])
    return _Rows(pool, what, terms, sums, left)


def _without_largest(terms: FloatArray, late: int) -> float:
    """Return the sum of all terms but the ``late`` largest."""
    keep = len(terms) - late
    return math.fsum(np.partition(terms, keep - 1)[:keep]) if keep > 0 else 0.0


def _whole(volume: float) -> int:
    """Return the fewest nodes of so much volume, tolerances taken off."""
    return math.ceil(volume / (1 + _REL) - _SLACK_NODES)


def _cut(pool: int, nodes: int, why: str) -> Cut:
    least = f"at least {nodes} {_POOLS[pool]} node{'' if nodes == 1 else 's'}"
    return Cut(
        rollout=1.0 if pool == 0 else 0.0,
        train=1.0 if pool == 1 else 0.0,
        least=float(nodes),
        why=f"{why}: {least}.",
    )


def _pool_cut(
    pool: int, widest: int, rows: Sequence[_Rows], moments: _Moments, target: tuple[float, int]
) -> Cut:
    """Return what the widest job, or one moment alone, asks for in one pool."""
    best = _cut(pool, widest, "The widest job's gang" if widest else "No job needs any")
    wait_s, late = target
    for row in rows:
        if row.pool != pool or not len(row.left):
            continue
        m = int(np.argmax(row.left))
        nodes = _whole(float(row.left[m]))
        if nodes > best.least:
            spared = f", the {late} largest left out," if late else ""
            best = _cut(
                pool,
                nodes,
                f"At {moments.at_s[m] / _HOUR_S:.4g} h {len(moments.due[m])} jobs are present "
                f"unless they waited longer than {wait_s / _HOUR_S:.4g} h; their {row.what}"
                f"{spared} fills {row.left[m]:.4g} nodes",
            )
    return best


# --- the best weights of moments ------------------------------------------------------------------


def _sharpened(
    cuts: list[Cut],
    rows: Sequence[_Rows],
    moments: _Moments,
    target: tuple[float, int],
    prices: tuple[float, float],
) -> list[Cut]:
    """Return the cuts improved by means over moments, and one more that prices both pools.

    A row whose whole sum is no more than a pool needs anyway cannot improve it, and is left out.
    """
    wait_s, late = target
    used = [
        (row, m)
        for row in rows
        for m in np.flatnonzero(row.sums > cuts[row.pool].least + _SLACK_NODES).tolist()
    ]
    if not used or sum(len(moments.due[m]) for _, m in used) > _MOST_ENTRIES:
        return cuts
    found: list[Cut] = list(cuts)
    for number, weights in enumerate(((1.0, 0.0), (0.0, 1.0), prices)):
        floor = tuple(cut.least for cut in found) if number == len(cuts) else (0.0, 0.0)
        y = _weights(used, moments, late, weights, floor)
        if y is None:
            continue
        volume, share = _mean(used, moments, late, y)
        spread = (
            f"Over {np.count_nonzero(y)} moments together, of the jobs present unless they waited "
            f"longer than {wait_s / _HOUR_S:.4g} h, those {late} left out that take most of all"
        )
        if number < len(cuts) and share[number] > 0:
            need = volume / share[number]
            if _whole(need) > cuts[number].least:
                why = f"{spread}, the others fill {need:.4g} nodes on average"
                found[number] = _cut(number, _whole(need), why)
        elif number == len(cuts) and min(share) > 0:
            why = f"{spread}, the others need more of the two pools together."
            rest = [max(w - s, 0.0) for w, s in zip(weights, share, strict=True)]
            least = volume / (1 + _REL) - _SLACK_NODES * sum(share)
            least += sum(r * cut.least for r, cut in zip(rest, found, strict=True))
            found.append(
                Cut(rollout=share[0] + rest[0], train=share[1] + rest[1], least=least, why=why)
            )
    return found


def _weights(
    used: Sequence[tuple[_Rows, int]],
    moments: _Moments,
    late: int,
    cost: tuple[float, float],
    floor: tuple[float, ...],
) -> FloatArray | None:
    """Return the duals of the rows of the linear program, ``(n_used,)``; ``None`` without them.

    ``N_pool + sum_{j due} v_jm x_j >= sum_{j due} v_jm`` per row, ``sum_j x_j <= L``,
    ``N >= floor``.
    """
    from models.backends.highs_model import INFINITY, Ended, HighsModel

    jobs = np.unique(np.concatenate([moments.due[m] for _, m in used]))
    rows_of: list[list[int]] = [[] for _ in jobs]
    values_of: list[list[float]] = [[] for _ in jobs]
    for number, (row, m) in enumerate(used):
        due = moments.due[m]
        for at, value in zip(np.searchsorted(jobs, due).tolist(), row.terms[due], strict=True):
            rows_of[at].append(number)
            values_of[at].append(float(value))
    for at in range(len(jobs)):
        rows_of[at].append(len(used))
        values_of[at].append(1.0)
    model = HighsModel()
    lower = np.array([row.sums[m] for row, m in used] + [-INFINITY])
    model.add_rows(lower, np.array([INFINITY] * len(used) + [float(late)]))
    for pool in range(len(_POOLS)):
        mine = np.array([i for i, (row, _) in enumerate(used) if row.pool == pool], dtype=np.int64)
        model.add_sparse_columns(
            np.array([max(cost[pool], 0.0)]), np.zeros(1, dtype=np.int64), mine, np.ones(len(mine))
        )
    starts = np.concatenate(([0], np.cumsum([len(r) for r in rows_of])))[:-1]
    model.add_sparse_columns(
        np.zeros(len(jobs)),
        starts,
        np.concatenate([np.array(r, dtype=np.int64) for r in rows_of]),
        np.concatenate([np.array(v) for v in values_of]),
        1.0,
    )
    model.column_bounds(np.arange(len(_POOLS)), np.array(floor), np.full(len(_POOLS), INFINITY))
    ended = model.run(_LP_S)
    if model.interrupted:
        raise KeyboardInterrupt
    if ended is not Ended.OPTIMAL:
        return None
    y: FloatArray = np.maximum(model.duals()[: len(used)], 0.0)
    return y if y.sum() > 0 else None


def _mean(
    used: Sequence[tuple[_Rows, int]], moments: _Moments, late: int, y: FloatArray
) -> tuple[float, tuple[float, float]]:
    """Return ``sum_j V_j`` less its ``late`` largest, and the weights of each pool's ``N``."""
    taken: dict[int, list[float]] = {}
    share = [0.0, 0.0]
    for weight, (row, m) in zip(y.tolist(), used, strict=True):
        if weight <= 0:
            continue
        share[row.pool] += weight
        for i in moments.due[m].tolist():
            taken.setdefault(i, []).append(weight * float(row.terms[i]))
    volumes = np.array([math.fsum(parts) for parts in taken.values()])
    return _without_largest(volumes, late), (share[0], share[1])
