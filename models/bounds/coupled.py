"""Lower bound of the cost of any valid plan by the coupled LP (no limit on group size).

Pool decomposition (:mod:`models.bounds.columns`) lets a job have one period on its rollout nodes
and another on its train nodes. Here both are the same.

Sets and parameters
-------------------
Jobs ``j``; iteration ``T_j``, deadline ``D_j`` (s); pools ``P`` in {R, T} with price ``p^P`` of a
node ($/h), widths ``a^P_j``. Periods ``C``: the distinct deadlines. A *window* is the periods of
``[T_j, D_j]``. Columns ``(P, C, S)``: sets of jobs whose windows hold ``C`` and that may share a
node of pool ``P`` at period ``C`` (:mod:`models.bounds.pool_items`): ``|S| = 1``, or
``sum_S (phase_j + switch_j) <= C``, ``T_j + switch_j <= C`` and ``sum_S m_j <= M``.

Variables and constraints
-------------------------
``x_jC >= 0``: job ``j`` has period ``C``; ``z_PCS >= 0``: nodes of pool ``P`` that hold ``S``.

    min  sum_PCS p^P z_PCS
    s.t. sum_C x_jC >= 1                                          jobs j             (y_j)
         sum_{S with j} z_PCS >= a^P_j x_jC      pools P, jobs j, C in its window    (p^P u^P_jC)

A valid plan is a solution: a group's period may be taken as its least deadline, the longest
allowed (with one iteration per period a longer period never hurts), so its jobs have
``x_jC = 1`` there, and each of its nodes is a column. Hence the LP value is a bound. Precedence,
the splitting of one period into several groups, node limits and caps only make plans dearer.

Dual: ``max sum_j y_j`` with ``y_j <= sum_P p^P a^P_j u^P_jC`` for all ``C`` in the window and
``sum_S u^P_jC <= 1`` for every column. So *any* ``u >= 0`` gives a bound: with ``V^P_C`` at least
the value ``sum_S u^P_jC`` of all columns, found by knapsacks, ``u^P_C / max(1, V^P_C)`` is dual
feasible and

    bound = sum_j min_{C in window} sum_P p^P a^P_j u^P_jC / max(1, V^P_C).           (*)

The prices of one period may be exchanged for those of another feasible ``u``, or a mean of the
two, without harm; where a period has few columns yet, the best ones so far are better. The
largest bound of all rounds is kept, so whatever stops the search, the answer is proved.

*Never below pool decomposition*: prices that are equal at all periods, ``u^P_jC = v^P_j``, with
the optimal duals ``v`` of both pools are feasible, since a column at ``C`` is one of the pool's
bins; their bound is ``sum_P p^P sum_j a^P_j v^P_j``, the sum of both pools' LP values. It is
where the search starts.

Rows made as needed
-------------------
Most of the rows ``(P, j, C)`` do not matter. The window of a job is cut into *segments*, at
first a single one, and the rows of a segment are summed. Dually: ``u^P_jC`` is the same at all
``C`` of a segment; a restriction of the dual, so every bound holds, and (*) prices every ``C``
with its own capacity. A solution of the summed rows covers a job at period ``C`` only
``min_P (sum_{S with j} z_PCS / a^P_j)`` times; what is missing to 1 is bought as nodes of the
job's own:

    LP value <= sum p^P z + sum_j max(0, 1 - sum_C min_P cover^P_jC) sum_P p^P a^P_j,

so LP value and bound meet where nothing is missing (``exact``). Else segments are cut
where rollout and train coverage, summed up from the segment's begin, differ most.

Method: column and row generation. Master by interior point without crossover, to a tolerance that
follows the gap (its prices are central, which steadies the generation; Gondzio,
González-Brevis, Munari, *European Journal of Operational Research* 224, 2013); prices are
smoothed towards the best ones (Pessoa, Sadykov, Uchoa, Vanderbeck, *INFORMS Journal on
Computing* 30, 2018).

Assumptions: ``max_rate`` 1, ``max_group_size`` 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from instances.plan import Limits
from models.backends.highs_model import Ended
from models.bounds.anytime_bound import AnytimeBound, pools_first
from models.bounds.columns import STOPPED, DecompositionBound, Until
from models.bounds.coupled_lp import Columns, Master, Periods, Priced, refined, whole_windows
from models.problem.options import Deadline, Progress
from models.problem.result import StoppedBy
from models.problem.snapshot import Snapshot

__all__ = ["COUPLED", "CoupledBound", "coupled_bound"]

COUPLED: Final = "coupled"

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
PoolPrices = tuple[FloatArray, FloatArray]

#: A column is added when its value exceeds 1 by more.
_GAIN: Final = 1e-8
#: Columns one period may add in a round, and after a cut those of value above a floor.
_KEEP: Final = 5
_SEEDS: Final = 10
_SEED_FLOOR: Final = 0.97
#: Columns of less value than 1 less this are dropped at a cut.
_PURGE: Final = 0.02
#: Weight of the best prices in those that are priced first.
_SMOOTH: Final = 0.6
#: Weights of new prices among those that a period may have.
_MIXES: Final = (1.0, 0.5, 0.0)
#: Segments are cut when master and bound are relatively so near; at the last, by a factor nearer.
_NEAR: Final = 5e-4
_NEARER: Final = 0.1
#: Prices of the master itself are priced too where smoothed ones gave fewer columns per job.
_FEW: Final = 0.25
#: Cuts that matter less than a share of the cost are not made: at first, at last, and the factor
#: from cut to cut.
_FIRST_CUT: Final = 5e-4
_LEAST_CUT: Final = 3e-6
_FINER: Final = 0.1
#: A job less missing than this is covered.
_LEAST_MISSING: Final = 1e-7
#: Interior point ends at this share of the gap.
_SHARE: Final = 0.1
_UNTIL: Final = Until()


@dataclass(frozen=True, kw_only=True)
class CoupledBound:
    """What is proved.

    Attributes
    ----------
    usd_per_hour : float
        No valid plan costs less, $/h.
    lp_usd : float or None
        The LP value is at most this, $/h; ``None``: no master ended.
    exact : bool
        Whether the two met, so that ``usd_per_hour`` is the LP value.
    rounds : int
        Of pricing.
    stopped_by : StoppedBy or None
        ``None`` when it ended by itself.
    limits : Limits
        What the bound holds for; never compare it with a plan made under looser limits.
    """

    usd_per_hour: float
    lp_usd: float | None
    exact: bool
    rounds: int
    stopped_by: StoppedBy | None
    limits: Limits
    method: str = COUPLED


class _Generation(AnytimeBound):
    """Column and row generation; :meth:`run` returns at any stop what is held."""

    def __init__(
        self,
        snapshot: Snapshot,
        deadline: Deadline,
        start: DecompositionBound,
        *,
        threads: int,
        seed: int,
        progress: Progress | None,
        until: Until,
    ) -> None:
        super().__init__(snapshot, deadline, start, progress=progress, until=until)
        self.snapshot = snapshot
        self.start = start
        self.threads = threads
        self.seed = seed

    def generate(self) -> None:
        """Generate until bound and LP value meet, or a limit."""
        if self.at_limit():
            return
        self.periods = Periods(self.snapshot)
        shape = self.periods.window.shape
        self.best: PoolPrices = (
            np.broadcast_to(self.start.rollout.duals[:, None], shape).copy(),
            np.broadcast_to(self.start.train.duals[:, None], shape).copy(),
        )
        for pool, usd in enumerate(self.periods.usd):
            if usd == 0:
                self.best[pool][:] = 0.0
        if not self._feasible_best():
            return
        segments = whole_windows(self.periods.window)
        held = [self._columns_of(bound.columns) for bound in (self.start.rollout, self.start.train)]
        near, least_cut = _NEAR, _FIRST_CUT
        while not self.at_limit():
            master = Master(self.periods, segments, self.seed)
            for pool in range(2):
                master.add(pool, held[pool])
            if not self._converge(master, near):
                return
            usd, cover = master.coverage()
            y, u = master.duals()
            finer = refined(segments, cover[0] - cover[1], y, least_cut * usd)
            least_cut = max(least_cut * _FINER, _LEAST_CUT)
            if finer.max(initial=-1) == segments.max(initial=-1) and least_cut == _LEAST_CUT:
                if near > self.until.gap_rel:
                    near = max(near * _NEARER, self.until.gap_rel)
                else:  # whatever the solution covers twice or not at all: every row of these jobs
                    missing = self._missing(cover) > _LEAST_MISSING
                    finer = refined(
                        segments, np.ones_like(cover[0]), missing.astype(np.float64), 0.0
                    )
                    if finer.max(initial=-1) == segments.max(initial=-1):
                        return
            segments = finer
            held = [self._kept(master, pool, u[pool]) for pool in range(2)]

    def _columns_of(self, sets: IntArray) -> Columns:
        """Return sets of a pool as columns at their least deadlines."""
        sets = sets[(sets >= 0).any(axis=1)]
        members = np.sort(np.where(sets < 0, len(self.periods), sets), axis=1)
        padded = np.append(self.snapshot.table.deadline_s, np.inf)
        period = np.searchsorted(self.periods.period_s, padded[members].min(axis=1))
        members = np.where(members == len(self.periods), -1, members)
        return Columns(period.astype(np.int64), members)

    def _feasible_best(self) -> bool:
        """Scale the first prices to dual feasible ones; return whether time allowed it."""
        for pool in range(2):
            most = self._priced(pool, self.best[pool], 1.0, 1).most
            self.best[pool][:] /= self._divisors(most)
        self.bound = max(self.bound, self._value(self.best))
        return not self.at_limit()

    def _priced(self, pool: int, u: FloatArray, floor: float, keep: int) -> Priced:
        return self.periods.price(pool, u, floor, keep, self.threads, self.deadline)

    @staticmethod
    def _divisors(most: FloatArray) -> FloatArray:
        """Return ``max(1, V)`` with a margin for the round-off of sums."""
        return np.maximum(most, 1.0) * (1 + 1e-12)

    def _value(self, u: PoolPrices) -> float:
        """Return the bound (*) of feasible prices."""
        return float(self.periods.job_usd(u).min(axis=1, initial=np.inf).sum())

    def _kept(self, master: Master, pool: int, u: FloatArray) -> Columns:
        """Return the columns that a finer master starts from: of value, and near the best."""
        held = master.held[pool]
        several = (held.members >= 0).sum(axis=1) > 1
        kept = held.take(several & (held.values(u) > 1.0 - _PURGE))
        return kept.joined(self._priced(pool, self.best[pool], _SEED_FLOOR, _SEEDS).columns)

    # --- one master -------------------------------------------------------------------------

    def _converge(self, master: Master, near: float) -> bool:
        """Add columns until master and bound are so near; return whether to go on cutting."""
        gap = math.inf
        while not self.at_limit():
            share = _SHARE * min(gap, 1.0)
            ended = master.solve(share, self.deadline)
            if ended is not Ended.OPTIMAL:
                self.stopped_by = STOPPED[ended]
                return False
            fresh = self._round(master)
            usd = master.objective_usd
            if master.model.interrupted:
                self.stopped_by = StoppedBy.INTERRUPT
            if self.met:
                return False
            gap = max((usd - self.bound) / max(usd, 1e-300), 0.0)
            if gap <= near or (not fresh and share <= _SHARE * near):
                return self.stopped_by is None
            if not fresh:
                gap = min(gap, near)  # nothing to add: only a better solution helps
        return False

    def _round(self, master: Master) -> int:
        """Price the smoothed prices of a solution, and its own where few columns come of it."""
        self.rounds += 1
        y, u = master.duals()
        usd, cover = master.coverage()
        self.lp_usd = min(self.lp_usd, usd + self._missing_usd(cover))
        fresh = 0
        for weight in (_SMOOTH, 0.0):
            trial = tuple(
                weight * best + (1 - weight) * new for best, new in zip(self.best, u, strict=True)
            )
            most = []
            for pool in range(2):
                priced = self._priced(pool, trial[pool], 1.0 + _GAIN, _KEEP)
                most.append(self._divisors(priced.most))
                fresh += master.add(pool, priced.columns)
            self._raise((trial[0] / most[0], trial[1] / most[1]), y)
            if self.progress is not None:
                self.progress("coupled columns", sum(map(len, master.held)), self.rounds)
            if fresh > _FEW * len(self.periods) or self.at_limit(rounds=False):
                break
        return fresh

    @staticmethod
    def _missing(cover: PoolPrices) -> FloatArray:
        """Return the share of each job that no common period covers, ``(n,)``."""
        common: FloatArray = np.minimum(*cover).sum(axis=1)
        return np.maximum(1.0 - common, 0.0)

    def _missing_usd(self, cover: PoolPrices) -> float:
        """Return the price of covering what no common period covers, $/h (module docstring)."""
        alone = sum(
            usd * width for usd, width in zip(self.periods.usd, self.periods.width, strict=True)
        )
        return float((self._missing(cover) * alone).sum())

    def _raise(self, new: PoolPrices, y: FloatArray) -> None:
        """Keep the best of feasible prices: these, or at each period the ones that serve best.

        Served best is a period where the jobs are least short of ``y``, $/h.
        """
        mixed = [
            tuple(w * n + (1 - w) * b for n, b in zip(new, self.best, strict=True)) for w in _MIXES
        ]
        short = np.stack(
            [
                np.maximum(y[:, None] - self.periods.job_usd((m[0], m[1])), 0.0).sum(axis=0)
                for m in mixed
            ]
        )
        choice = np.argmin(short, axis=0)
        periods = np.arange(len(choice))
        served = tuple(
            np.stack([m[pool] for m in mixed])[choice, :, periods].T.copy() for pool in range(2)
        )
        for u in (new, (served[0], served[1])):
            value = self._value(u)
            if value > self.bound:
                self.bound, self.best = value, u


def coupled_bound(
    snapshot: Snapshot,
    deadline: Deadline,
    *,
    start: DecompositionBound | None = None,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    until: Until = _UNTIL,
) -> CoupledBound:
    """Return a lower bound of the cost of any valid plan, whatever stops it (module docstring).

    Parameters
    ----------
    snapshot : Snapshot
    deadline : Deadline
    start : DecompositionBound, optional
        Of the same snapshot; left out, it is computed with a part of the time.
    threads : int
        That price; the answer does not depend on it unless time stops it.
    seed : int
    progress : callable, optional
        Called with ("coupled columns", held, rounds) after each pricing.
    until : Until
        ``whole`` has no meaning here.

    Raises
    ------
    UnsupportedError
        When groups are limited in size, or jobs may run several iterations per period.
    """
    limits = snapshot.limits
    if limits.max_group_size or limits.max_rate > 1:
        raise UnsupportedError(
            "Expected max_group_size 0 and max_rate 1 for the coupled bound, got "
            f"{limits.max_group_size} and {limits.max_rate}."
        )
    if start is None:
        start, deadline = pools_first(snapshot, deadline, threads=threads, seed=seed)
    generation = _Generation(
        snapshot, deadline, start, threads=threads, seed=seed, progress=progress, until=until
    )
    if len(snapshot):
        generation.run()
    met = not len(snapshot) or generation.met
    return CoupledBound(
        usd_per_hour=generation.bound,
        lp_usd=generation.lp_usd if math.isfinite(generation.lp_usd) else None,
        exact=met,
        rounds=generation.rounds,
        stopped_by=generation.stopped_by,
        limits=limits,
    )
