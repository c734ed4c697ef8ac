"""What one more of something is worth in $/h, from least-cost plans solved anew.

Questions, each asked of the jobs present at some moments of a replay:

* ``dram+256``: 256 GB more host DRAM per node, both pools;
* ``slo>=1.2``: every ``slo`` below 1.2 raised to 1.2; ``slo+0.1``: 0.1 added to every ``slo``;
* ``train-1``, ``train+1``: train nodes are owned, N of them, and only rollout nodes are paid:
  ``least(n)`` is the least price of rollout nodes with at most n train nodes. What the last of the
  N saves is ``least(N - 1) - least(N)``, what another would save ``least(N) - least(N + 1)``; to be
  held against what a train node costs. N is given, else what the least-cost plan holds at the
  moment; then the last is worth at least, and another at most, the price of a train node. Where n
  does not bind, another is worth exactly 0.

The worth is the difference of two proved optima. Where a moment is not proved in its time limit,
it is the interval that the two costs held and the two bounds leave; where there is no plan with so
few train nodes there are words in place of a worth.

*Moments*. Those with jobs are ordered by what the policy pays, split into k parts of equal time,
and each part is represented by the moment at its middle with weight 1/k. The dearest moment is
solved too; unless it is one of these its weight is 0. A shadow price is the weighted sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from instances.errors import InputError, did_you_mean
from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.plan import Limits
from models.problem.result import Termination
from models.problem.snapshot import FleetCaps
from planner.gap.moments import Moment, moments_of
from planner.policies.replay_result import ReplayResult
from planner.replay.moment import Selection
from planner.snapshot.solving import SnapshotReport, solve_snapshot

__all__ = [
    "QUESTIONS",
    "ChosenMoment",
    "MomentWorth",
    "ShadowPrice",
    "Worth",
    "chosen_moments",
    "each_moment",
    "shadow_prices",
    "weighted",
]

Progress = Callable[[int, int], None]

MORE_DRAM_GB: Final = 256.0
SLO_FLOOR: Final = 1.2
MORE_SLO: Final = 0.1
#: Questions and their words.
QUESTIONS: Final = {
    "dram+256": "+256 GB of host DRAM per node",
    "slo>=1.2": "every slo below 1.2 raised to 1.2",
    "slo+0.1": "slo + 0.1 for every job",
    "train-1": "the last train node, in rollout nodes saved",
    "train+1": "one more train node, in rollout nodes saved",
}
_NO_CAPS: Final = FleetCaps()


@dataclass(frozen=True, kw_only=True)
class ChosenMoment:
    """A moment that stands for others.

    Attributes
    ----------
    weight : float
        Share of the time that it stands for; 0 for a peak shown on its own.
    is_peak : bool
        Whether the policy pays most then.
    """

    moment: Moment
    weight: float
    is_peak: bool


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What the answer to one question is worth at one moment.

    Attributes
    ----------
    question : str
    low_usd_per_hour, high_usd_per_hour : float or None
        Equal where both optima are proved; ``None`` where there is no plan to compare.
    note : str
        Why there is no figure, or that a cap does not bind.
    """

    question: str
    low_usd_per_hour: float | None
    high_usd_per_hour: float | None
    note: str = ""

    @property
    def proved(self) -> bool:
        """Whether the worth is one number."""
        return self.low_usd_per_hour is not None and self.low_usd_per_hour == self.high_usd_per_hour


@dataclass(frozen=True, kw_only=True)
class MomentWorth:
    """One moment, its least cost and what everything is worth there.

    Attributes
    ----------
    least_low_usd_per_hour, least_high_usd_per_hour : float
        Bound and cost of the plan held: equal where it is proved.
    nodes : tuple of int
        Rollout and train nodes of that plan.
    owned_train_nodes : int
        N of the questions on train nodes.
    """

    chosen: ChosenMoment
    least_low_usd_per_hour: float
    least_high_usd_per_hour: float
    nodes: tuple[int, int]
    owned_train_nodes: int
    worths: tuple[Worth, ...]

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One row a question, plain values."""
        moment = self.chosen.moment
        return tuple(
            {
                "from_s": moment.from_s,
                "jobs": len(moment.jobs),
                "weight": self.chosen.weight,
                "is_peak": self.chosen.is_peak,
                "policy_usd_per_hour": moment.usd_per_hour,
                "least_low_usd_per_hour": self.least_low_usd_per_hour,
                "least_high_usd_per_hour": self.least_high_usd_per_hour,
                "least_rollout_nodes": self.nodes[0],
                "least_train_nodes": self.nodes[1],
                "owned_train_nodes": self.owned_train_nodes,
                **dataclasses.asdict(worth),
            }
            for worth in self.worths
        )


@dataclass(frozen=True, kw_only=True)
class ShadowPrice:
    """What the answer to one question is worth over the whole time.

    Attributes
    ----------
    low_usd_per_hour, high_usd_per_hour : float or None
        Weighted sums over the moments that have a worth, their weights made to sum to 1.
    peak_low_usd_per_hour, peak_high_usd_per_hour : float or None
        At the dearest moment.
    moments, proved : int
        Moments of weight above 0 that have a worth, and those where it is one number.
    weight : float
        Share of the time those moments stand for; below 1 where some have no worth.
    """

    question: str
    label: str
    low_usd_per_hour: float | None
    high_usd_per_hour: float | None
    peak_low_usd_per_hour: float | None
    peak_high_usd_per_hour: float | None
    moments: int
    proved: int
    weight: float

    @property
    def row(self) -> dict[str, Any]:
        """The row as plain values."""
        return dataclasses.asdict(self)


# --- moments --------------------------------------------------------------------------------------


def chosen_moments(moments: Sequence[Moment], k: int) -> tuple[ChosenMoment, ...]:
    """Return the moments that stand for all, cheapest first, and the peak (module docstring)."""
    if k < 1:
        raise InputError(f"Expected k >= 1 moments, got {k}.")
    busy = sorted(
        (moment for moment in moments if moment.jobs), key=lambda m: (m.usd_per_hour, m.from_s)
    )
    if not busy:
        return ()
    covered = np.cumsum([moment.hours for moment in busy])
    weights = np.zeros(len(busy))
    for part in range(k):
        at = int(np.searchsorted(covered, covered[-1] * (part + 0.5) / k))
        weights[min(at, len(busy) - 1)] += 1 / k
    highest = busy[-1].usd_per_hour
    peak = next(i for i, moment in enumerate(busy) if moment.usd_per_hour == highest)
    return tuple(
        ChosenMoment(moment=moment, weight=float(weights[i]), is_peak=i == peak)
        for i, moment in enumerate(busy)
        if weights[i] > 0 or i == peak
    )


# --- one moment -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Least:
    """The least cost of a problem lies between ``low`` and ``high``; ``high`` is of a plan."""

    low: float
    high: float
    nodes: tuple[int, int]

    @property
    def proved(self) -> bool:
        return self.low == self.high


class _AtMoment:
    """The problem of one moment."""

    def __init__(
        self, table: JobTable, cluster: Cluster, limits: Limits, time_limit_s: float | None
    ) -> None:
        self._table, self._cluster, self._limits = table, cluster, limits
        self._time_limit_s = time_limit_s
        self._rollout_only: dict[int, _Least | str] = {}
        base = self._solved(table, cluster)
        if isinstance(base, str):  # every job of a replay runs alone, so there is a plan
            raise InputError("Expected a plan of the moment's jobs, got none.")
        self.base = base

    def _solved(
        self, table: JobTable, cluster: Cluster, caps: FleetCaps = _NO_CAPS
    ) -> _Least | str:
        """Return what is known of a problem, or why no plan is held."""
        report = solve_snapshot(
            table,
            select=Selection.all_jobs(),
            cluster=cluster,
            limits=self._limits,
            caps=caps,
            time_limit_s=self._time_limit_s,
        )
        if report.interrupted:
            raise KeyboardInterrupt
        return _least_of(report)

    def worth(self, question: str, owned_train: int) -> Worth:
        """Return the answer to a question."""
        if question.startswith("train"):
            return self._train(question, owned_train)
        table, cluster = self._table, self._cluster
        if question == "dram+256":
            pools = {
                pool: dataclasses.replace(node, host_dram_gb=node.host_dram_gb + MORE_DRAM_GB)
                for pool, node in (("rollout", cluster.rollout), ("train", cluster.train))
            }
            cluster = cluster.replace(**pools)
        elif question == "slo>=1.2":
            table = table.replace(slo=np.maximum(table.slo, SLO_FLOOR))
        else:
            table = table.replace(slo=table.slo + MORE_SLO)
        return _relaxed(question, self.base, self._solved(table, cluster))

    # --- train nodes, owned -----------------------------------------------------------------

    def _with_train(self, most: int) -> _Least | str:
        """Return the least price of rollout nodes with so many train nodes, or why none."""
        if most < 0:
            return "there are no train nodes to lose"
        if most not in self._rollout_only:
            node = self._cluster.train
            gpu = dataclasses.replace(node.gpu, usd_per_gpu_hour=0.0)
            sunk = self._cluster.replace(train=dataclasses.replace(node, gpu=gpu))
            caps = FleetCaps(max_train_nodes_total=most)
            self._rollout_only[most] = self._solved(self._table, sunk, caps)
        return self._rollout_only[most]

    def _train(self, question: str, owned: int) -> Worth:
        """Return what the last train node saves, or another would."""
        fewer = owned - 1 if question == "train-1" else owned
        tight, loose = self._with_train(fewer), self._with_train(fewer + 1)
        for least in (tight, loose):
            if isinstance(least, str):
                return Worth(
                    question=question, low_usd_per_hour=None, high_usd_per_hour=None, note=least
                )
        assert not isinstance(tight, str)
        assert not isinstance(loose, str)
        return _relaxed(question, tight, loose)


def _least_of(report: SnapshotReport) -> _Least | str:
    usd, nodes = report.usd_per_hour, report.nodes
    if usd is None or nodes is None:
        caps = report.problem.snapshot.caps.max_train_nodes_total
        proved = report.result.termination is Termination.INFEASIBLE
        return f"no plan {'exists' if proved else 'was found'} with {caps} train nodes"
    bound = report.bound_usd_per_hour or 0.0
    if report.result.termination is Termination.OPTIMAL:
        bound = usd
    return _Least(min(bound, usd), usd, (nodes["rollout"], nodes["train"]))


def _relaxed(question: str, tight: _Least, loose: _Least | str) -> Worth:
    """Return the worth of a problem that admits every plan of another.

    ``least(loose) <= least(tight)``, so each also bounds the other.
    """
    if isinstance(loose, str):  # no plan was found, but the one held is valid there too
        loose = _Least(0.0, tight.high, tight.nodes)
    low = max(0.0, max(tight.low, loose.low) - min(loose.high, tight.high))
    high = tight.high - loose.low
    if tight.proved and loose.proved:
        low = high = max(0.0, tight.high - loose.high)
    return Worth(question=question, low_usd_per_hour=low, high_usd_per_hour=high)


# --- all of it ------------------------------------------------------------------------------------


def _require(questions: Sequence[str]) -> None:
    for name in questions:
        if name not in QUESTIONS:
            raise InputError(
                f"Expected a question in {', '.join(QUESTIONS)}, got '{name}'."
                f"{did_you_mean(name, QUESTIONS)}"
            )


def each_moment(
    result: ReplayResult,
    *,
    k: int = 5,
    questions: Sequence[str] = tuple(QUESTIONS),
    owned_train: int | None = None,
    time_limit_s: float | None = 10.0,
    progress: Progress | None = None,
) -> Iterator[MomentWorth]:
    """Yield what everything is worth at each chosen moment, as soon as it is known.

    Parameters
    ----------
    result : ReplayResult
        Gives the moments, the cluster and the limits.
    k : int
        Moments that stand for all.
    questions : sequence of str
        Of ``QUESTIONS``.
    owned_train : int, optional
        Train nodes of the fleet; what the least-cost plan holds at the moment unless given.
    time_limit_s : float or None
        Of each solve.
    progress : callable, optional
        Called with (answers done, answers).

    Raises
    ------
    InputError
        For an unknown question, a ``k`` below 1, or a moment of which no plan was held.
    UnsupportedError
        When a moment is beyond what the methods take.
    KeyboardInterrupt
        At Ctrl-C; moments already yielded stand.
    """
    _require(questions)
    chosen = chosen_moments(moments_of(result), k)
    total, done = len(chosen) * len(questions), 0
    for one in chosen:
        at = _AtMoment(
            result.jobs.take(one.moment.jobs), result.cluster, result.limits, time_limit_s
        )
        here = at.base.nodes[1] if owned_train is None else owned_train
        worths = []
        for question in questions:
            worths.append(at.worth(question, here))
            done += 1
            if progress is not None:
                progress(done, total)
        yield MomentWorth(
            chosen=one,
            least_low_usd_per_hour=at.base.low,
            least_high_usd_per_hour=at.base.high,
            nodes=at.base.nodes,
            owned_train_nodes=here,
            worths=tuple(worths),
        )


def weighted(moments: Sequence[MomentWorth]) -> tuple[ShadowPrice, ...]:
    """Return the shadow price of each question over the moments given."""
    questions = tuple(dict.fromkeys(w.question for m in moments for w in m.worths))
    return tuple(_price(question, moments) for question in questions)


def _price(question: str, moments: Sequence[MomentWorth]) -> ShadowPrice:
    weights, lows, highs, proved = [], [], [], 0
    peak: Worth | None = None
    for moment in moments:
        worth = next(w for w in moment.worths if w.question == question)
        peak = worth if moment.chosen.is_peak else peak
        low, high = worth.low_usd_per_hour, worth.high_usd_per_hour
        if moment.chosen.weight > 0 and low is not None and high is not None:
            weights.append(moment.chosen.weight)
            lows.append(low)
            highs.append(high)
            proved += worth.proved
    return ShadowPrice(
        question=question,
        label=QUESTIONS[question],
        low_usd_per_hour=float(np.average(lows, weights=weights)) if weights else None,
        high_usd_per_hour=float(np.average(highs, weights=weights)) if weights else None,
        peak_low_usd_per_hour=peak.low_usd_per_hour if peak else None,
        peak_high_usd_per_hour=peak.high_usd_per_hour if peak else None,
        moments=len(weights),
        proved=proved,
        weight=float(sum(weights)),
    )


def shadow_prices(
    result: ReplayResult,
    *,
    k: int = 5,
    questions: Sequence[str] = tuple(QUESTIONS),
    owned_train: int | None = None,
    time_limit_s: float | None = 10.0,
    progress: Progress | None = None,
) -> tuple[tuple[ShadowPrice, ...], tuple[MomentWorth, ...]]:
    """Return shadow prices and the moments behind them; see :func:`each_moment`."""
    moments = tuple(
        each_moment(
            result,
            k=k,
            questions=questions,
            owned_train=owned_train,
            time_limit_s=time_limit_s,
            progress=progress,
        )
    )
    return weighted(moments), moments
