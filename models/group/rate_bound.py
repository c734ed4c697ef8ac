"""What jobs of different rates on one node exclude, without any search for a schedule.

Job ``a`` is ``k_a`` times on the node for ``d_a`` seconds, and between two of these times lie
its other phase and its sync, at least ``g_a`` seconds (``d_a + g_a`` is its iteration). So the
circle consists of ``k_a`` phases and ``k_a`` gaps, and all other phases on the node lie in the
gaps. A gap that holds ``m_b`` phases of each other job ``b`` is at least

    max(g_a, sum_b m_b d_b, max_b (m_b d_b + (m_b - 1) g_b))

long: what ``a`` needs, what the phases take, and what one job needs from its first to its last.

* :func:`pair_bound_s`, one other job: the length is convex in ``m``, so the gaps are shortest
  together when ``k_b`` is spread over them as evenly as whole numbers allow. :func:`pair_s` is
  the bound of one such pair, :func:`pairs_s` that of many at once.
* :func:`is_overfull`, all other jobs of the node and a given period: no way to spread them
  keeps the gaps within ``C - k_a d_a``.

A one-step job needs no gap, ``g_a = 0``: its next phase there waits for none of the other pool.

With equal rates neither says more than LB(g). With different ones the first often is the least
period. Example: (6, 2) once and (1, 1) four times, sharing the train node. LB(g) is 8, the
longest chain. But from the first train of the second job to the end of its last one are
4 x 1 + 3 x 1 = 7 seconds, and the first job leaves only 6 between its trains: C >= 2 + 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from models.group.packing import EPS
from models.problem.group_shape import GroupShape, lower_bound_s

__all__ = ["gaps_s", "is_overfull", "least_bound_s", "pair_bound_s", "pair_s", "pairs_s"]

#: Steps after which :func:`is_overfull` leaves a job undecided.
_MOST_STEPS: Final = 400

#: One job on a node: times per period, seconds of each, least seconds between two.
Use = tuple[int, float, float]


def least_bound_s(shape: GroupShape) -> float:
    """Return the larger of LB(g) and, where rates differ, :func:`pair_bound_s`, seconds."""
    bound = lower_bound_s(shape)
    return bound if max(shape.rates) == 1 else max(bound, pair_bound_s(shape))


def pair_s(one: Use, other: Use) -> float:
    """Return the least period of two jobs on a node, from the gaps of the first, seconds."""
    (k, own, gap), (rate, phase, between) = one, other
    each, more = divmod(rate, k)
    fewer = each * (phase + between) - between
    longer = fewer + phase + between
    short_gap, long_gap = (fewer if fewer > gap else gap), (longer if longer > gap else gap)
    return k * own + (k - more) * short_gap + more * long_gap


def pairs_s(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> npt.NDArray[np.float64]:
    """Return :func:`pair_s` of arrays that broadcast together."""
    (k, own, gap), (rate, phase, between) = one, other
    each = np.floor(rate / k)
    more = rate - each * k
    turn = phase + between
    fewer = each * turn - between
    gaps = (k - more) * np.maximum(gap, fewer) + more * np.maximum(gap, fewer + turn)
    least: npt.NDArray[np.float64] = k * own + gaps
    return least


def gaps_s(shape: GroupShape, other_s: Sequence[float]) -> list[float]:
    """Return per job the least seconds between its phases on a node; none of a one-step job.

    Its next rollout may begin when the one before ends, and so may its next train.
    """
    gaps = [other + sync for other, sync in zip(other_s, shape.sync_s, strict=True)]
    for j, lag in enumerate(shape.lags):
        if lag > 1:
            gaps[j] = 0.0
    return gaps


def pair_bound_s(shape: GroupShape) -> float:
    """Return the bound over all pairs with different rates, seconds; 0 without such a pair."""
    best, rates = 0.0, shape.rates
    rollout, train = shape.rollout_s, shape.train_s
    for pins, own_s, other_s in (
        (shape.rollout_pins, rollout, train),
        (shape.train_pins, train, rollout),
    ):
        gaps = gaps_s(shape, other_s)
        for a, k in enumerate(rates):
            mine, nodes = (k, own_s[a], gaps[a]), pins[a]
            for b, rate in enumerate(rates):
                if rate == k or not (pins[b] == nodes or any(node in pins[b] for node in nodes)):
                    continue
                period = pair_s(mine, (rate, own_s[b], gaps[b]))
                if period > best:
                    best = period
    return best


def is_overfull(shape: GroupShape, period_s: float) -> bool:
    """Return whether some job's gaps cannot hold the rest of a node within this period.

    Only nodes of three or more jobs are looked at, and jobs that have several gaps: otherwise
    :func:`pair_bound_s` and the node's load say the same.
    """
    for pins, own_s, other_s in (
        (shape.train_pins, shape.train_s, shape.rollout_s),
        (shape.rollout_pins, shape.rollout_s, shape.train_s),
    ):
        gaps = gaps_s(shape, other_s)
        seen: list[list[int]] = []
        for node in sorted({node for nodes in pins for node in nodes}):
            jobs = [j for j, nodes in enumerate(pins) if node in nodes]
            if len(jobs) < 3 or jobs in seen:
                continue
            seen.append(jobs)
            uses: list[Use] = [(shape.rates[j], own_s[j], gaps[j]) for j in jobs]
            for a, (k, own, gap) in enumerate(uses):
                slack = period_s * (1 + EPS) - k * (own + gap)
                if k > 1 and not _Gaps(k, gap, uses[:a] + uses[a + 1 :]).hold(slack):
                    return True
    return False


class _Gaps:
    """Gaps of one job, filled with the phases of the others, depth first.

    Job after job, longest phase first; gap after gap, starting with an even share. The gaps are
    alike, so the first job is spread in falling numbers only.
    """

    def __init__(self, gaps: int, gap_s: float, others: Sequence[Use]) -> None:
        self.others = sorted(others, key=lambda use: -use[1])
        self.load = [0.0] * gaps
        self.need = [gap_s] * gaps
        self.left = _MOST_STEPS

    def hold(self, slack: float) -> bool:
        """Return False when the gaps must grow by more than ``slack``, whatever lies where."""
        rate = self.others[0][0]
        return self._fill(0, 0, rate, rate, slack)

    def _fill(self, i: int, gap: int, phases: int, most: int, slack: float) -> bool:
        """Put the rest of job ``i`` into this gap, at most ``most``, and the ones after it."""
        self.left -= 1
        if self.left < 0:
            return True
        _, own, between = self.others[i]
        load, need = self.load[gap], self.need[gap]
        last = gap == len(self.load) - 1
        even = -(-phases // (len(self.load) - gap))
        for m in (phases,) if last else (*range(even, -1, -1), *range(even + 1, phases + 1)):
            if m > most:
                continue
            full = load + m * own
            grown = max(need, full, m * (own + between) - between)
            rest = slack - (grown - need)
            if rest < 0.0:
                continue
            self.load[gap], self.need[gap] = full, grown
            if not last:
                done = self._fill(i, gap + 1, phases - m, m if i == 0 else phases, rest)
            elif i + 1 < len(self.others):
                rate = self.others[i + 1][0]
                done = self._fill(i + 1, 0, rate, rate, rest)
            else:
                done = True
            if done:
                return True
        self.load[gap], self.need[gap] = load, need
        return False
