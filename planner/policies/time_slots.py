"""Rounds of turns: jobs that never run at once on a node take turns on it, whole iterations each.

Job-level time sharing, as :mod:`planner.policies.gavel` and :mod:`planner.policies.swapping` do it:
in its turn a job holds all of its nodes, both pools wait on each other, and nobody runs in its
bubbles. A *round* repeats for ever and gives every combination of jobs without a common node a
slot:

* the shares of time come from the linear program of :mod:`models.gavel_lp`, weighted by the
  slowdowns that jobs tolerate;
* a slot of a round of about ``R`` seconds lasts as long as its longest turn; a turn is the switch
  and ``max(1, round(y_c R / T_j))`` iterations, and a job fits as many into its slot as it can;
* a turn pays its switch once, at its start, unless the job shares no node with anybody: a
  *warm* one when the states of all jobs stay in host DRAM, a *cold* one (derived, see
  :mod:`planner.policies.change_factors`) when they do not;
* ``R`` is ``round_s``, twice that, and so on up to ``max_round_s``; the first at which every job
  keeps its SLO is taken, ``C / k_j <= D_j`` with the round ``C`` and its ``k_j`` iterations, else
  the one that comes closest.

A round is a period of rates ``k_j``, and its slots never overlap. It is no valid plan all
the same (FORMULATION section 2): rates exceed ``max_rate``, and a turn pays one switch where that
section demands one in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.jobs import Job
from models.gavel_lp import TimeShares, combinations_of, time_shares
from models.problem.group_shape import Pins, Starts
from planner.policies.change_factors import COLD_OVER_WARM

__all__ = [
    "SWITCHES",
    "SwitchKind",
    "TimeShareParams",
    "TimeTable",
    "Turn",
    "conflicts_of",
    "switch_seconds",
    "time_table",
]

BoolArray = npt.NDArray[np.bool_]
SwitchKind = Literal["warm", "cold"]
SWITCHES: Final[tuple[SwitchKind, ...]] = ("warm", "cold")

#: Shares of time below this are none: the solver's tolerance.
_NO_SHARE: Final = 1e-7
#: Relative slack of deadlines and of whole iterations in a slot: round-off.
_EPS: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class TimeShareParams:
    """How rounds are made.

    Attributes
    ----------
    round_s : float
        Shortest round aimed at; 360 s is the default of the publication.
    max_round_s : float
        Longest; 4 h is a guess. Long rounds waste less on switches and rounding, and leave jobs
        waiting longer between two turns.
    switch : {"warm", "cold"}
        Whether states stay in host DRAM between turns: then they must fit together.

    Raises
    ------
    InputError
        Unless ``0 < round_s <= max_round_s``, both finite, and for an unknown switch.
    """

    round_s: float = 360.0
    max_round_s: float = 14_400.0
    switch: SwitchKind = "warm"

    def __post_init__(self) -> None:
        if not 0 < self.round_s <= self.max_round_s < np.inf:
            raise InputError(
                f"Expected 0 < round_s <= max_round_s, both finite, got {self.round_s:g} and "
                f"{self.max_round_s:g}."
            )
        if self.switch not in SWITCHES:
            raise InputError(
                f"Expected switch in {', '.join(SWITCHES)}, got '{self.switch}'."
                f"{did_you_mean(self.switch, SWITCHES)}"
            )


class Turn(NamedTuple):
    """How a job runs in its turn.

    Attributes
    ----------
    iteration_s : float
        Seconds of one iteration, both phases in sequence and the sync.
    switch_s : float
        Seconds of the switch before the first.
    deadline_s, slo, solo_s : float
        Of the job; see :class:`instances.jobs.Job`.
    first, again : (float, float)
        Rollout and train start of the first iteration, from the turn's start, and of every
        later one, from its own start.
    """

    iteration_s: float
    switch_s: float
    deadline_s: float
    slo: float
    solo_s: float
    first: tuple[float, float]
    again: tuple[float, float]

    @property
    def needed_share(self) -> float:
        """Share of time that keeps the SLO, switches apart: ``iteration_s / D_j``."""
        return self.iteration_s / self.deadline_s


@dataclass(frozen=True, kw_only=True)
class TimeTable:
    """One round.

    Attributes
    ----------
    period_s : float
        ``C``, seconds of the round.
    rates : tuple of int
        ``k_j``, iterations of each job in a round.
    starts_s : tuple
        Per job one (rollout, train) start an iteration.
    least : float
        ``min_j k_j D_j / C``: at least 1 where every SLO is kept.
    shares : TimeShares
        What the linear program asked for.
    """

    period_s: float
    rates: tuple[int, ...]
    starts_s: Starts
    least: float
    shares: TimeShares

    @property
    def keeps_slos(self) -> bool:
        """Whether every job's mean iteration time over a round is within its deadline."""
        return self.least >= 1 - _EPS


def switch_seconds(job: Job, kind: SwitchKind) -> tuple[float, float]:
    """Return the seconds of one switch of rollout and of train."""
    if kind == "warm":
        return job.rollout_switch_s, job.train_switch_s
    return (
        COLD_OVER_WARM["rollout"] * job.rollout_switch_s,
        COLD_OVER_WARM["train"] * job.train_switch_s,
    )


def conflicts_of(rollout_pins: Sequence[Pins], train_pins: Sequence[Pins]) -> BoolArray:
    """Return which jobs have a node in common, ``(n, n)``, the diagonal false."""
    n = len(train_pins)
    out = np.zeros((n, n), dtype=np.bool_)
    for pins in (rollout_pins, train_pins):
        sets = [frozenset(nodes) for nodes in pins]
        for i in range(n):
            for j in range(i):
                if sets[i] & sets[j]:
                    out[i, j] = out[j, i] = True
    return out


def time_table(
    turns: Sequence[Turn], conflicts: BoolArray, params: TimeShareParams | None = None
) -> TimeTable:
    """Return the shortest round that keeps all SLOs, else the one that comes closest.

    Parameters
    ----------
    turns : sequence of Turn
        One per job, at least one.
    conflicts : (n, n) bool
        Which jobs cannot run at once.
    """
    params = TimeShareParams() if params is None else params
    combinations = combinations_of(conflicts)
    speed = np.zeros((len(turns), len(combinations)))
    for c, members in enumerate(combinations):
        for j in members:
            speed[j, c] = turns[j].solo_s / turns[j].iteration_s
    shares = time_shares(speed, [turn.slo for turn in turns])
    pays = [bool(row.any()) for row in conflicts]
    best: TimeTable | None = None
    for round_s in _round_lengths(params):
        table = _round(turns, pays, combinations, shares, round_s)
        if best is None or table.least > best.least * (1 + _EPS):
            best = table
        if best.keeps_slos:
            break
    assert best is not None
    return best


def _round_lengths(params: TimeShareParams) -> list[float]:
    """Return ``round_s``, doubled as long as that is below ``max_round_s``, and the latter."""
    lengths = [params.round_s]
    while 2 * lengths[-1] <= params.max_round_s:
        lengths.append(2 * lengths[-1])
    if lengths[-1] < params.max_round_s:
        lengths.append(params.max_round_s)
    return lengths


def _round(
    turns: Sequence[Turn],
    pays: Sequence[bool],
    combinations: Sequence[tuple[int, ...]],
    shares: TimeShares,
    round_s: float,
) -> TimeTable:
    """Return the slots of one round, one after the other, in the order of the combinations."""
    starts: list[list[tuple[float, float]]] = [[] for _ in turns]
    now_s = 0.0
    for members, share in zip(combinations, shares.shares.tolist(), strict=True):
        if share <= _NO_SHARE:
            continue
        switch_s = {j: turns[j].switch_s if pays[j] else 0.0 for j in members}
        slot_s = max(
            switch_s[j]
            + max(1, round(share * round_s / turns[j].iteration_s)) * turns[j].iteration_s
            for j in members
        )
        for j in members:
            iteration_s = turns[j].iteration_s
            count = int((slot_s - switch_s[j]) / iteration_s * (1 + _EPS))
            starts[j] += _starts(turns[j], now_s, switch_s[j], count)
        now_s += slot_s
    rates = tuple(len(pairs) for pairs in starts)
    least = min(rate * turn.deadline_s / now_s for rate, turn in zip(rates, turns, strict=True))
    return TimeTable(
        period_s=now_s,
        rates=rates,
        starts_s=tuple(tuple(pairs) for pairs in starts),
        least=least,
        shares=shares,
    )


def _starts(turn: Turn, at_s: float, switch_s: float, count: int) -> list[tuple[float, float]]:
    """Return the starts of ``count`` iterations of a turn that starts at ``at_s``."""
    out = []
    for i in range(count):
        rollout, train = turn.first if i == 0 and switch_s > 0 else turn.again
        from_s = at_s + i * turn.iteration_s + (switch_s if i else 0.0)
        out.append((from_s + rollout, from_s + train))
    return out
