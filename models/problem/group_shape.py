"""One group's phases and pins, the lower bound of its period, and what a schedule is.

``GroupShape`` takes phases that already include their switches, so nothing that is computed
from a shape depends on hidden state. LB(g) (FORMULATION section 4) has three parts
(:class:`LowerBound`); it is usually reached, not always.

Of a *one-step* job (one step off policy) the rollout two iterations on waits for a train, not the
next one: its *lag* is 2. That is the one place where it differs from a synchronous job, whose
lag is 1: its chain goes around twice as many periods, so it asks half as much of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from instances.errors import InputError
from instances.jobs import Job

__all__ = [
    "REL_EPS",
    "GroupShape",
    "LowerBound",
    "Pins",
    "Schedule",
    "Starts",
    "lags_of",
    "lower_bound",
    "lower_bound_s",
    "own_seconds",
]

#: Relative slack for comparisons of sums of seconds (round-off, far below the checker's).
REL_EPS: Final = 1e-11

Pins = tuple[int, ...]
Starts = tuple[tuple[tuple[float, float], ...], ...]


def own_seconds(rollout_s: float, train_s: float, sync_s: float, lag: int) -> float:
    """Return the least mean seconds of an iteration that the rules of one job alone allow.

    ``p + q + s``; with lag 2 ``max(p, q, (p + q + s) / 2)``: the chain spans two iterations, and
    rollouts follow one another, as do trains.
    """
    around_s = rollout_s + train_s + sync_s
    return around_s if lag == 1 else max(rollout_s, train_s, around_s / lag)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Phases and pins of one group; index ``j`` runs over its jobs.

    Attributes
    ----------
    rollout_s, train_s : tuple of float
        Phase seconds ``p_j``, ``q_j``, switches included where the phase pays them.
    sync_s : tuple of float
        Seconds ``s_j`` from the end of train to the earliest next rollout.
    rollout_pins, train_pins : tuple of tuple of int
        Nodes each phase occupies, all at once.
    rates : tuple of int
        Iterations per period ``k_j >= 1``.
    lags : tuple of int
        Iterations from a train to the rollout that waits for it: 1 sync, 2 one-step. Empty where
        all are 1.
    """

    rollout_s: tuple[float, ...]
    train_s: tuple[float, ...]
    sync_s: tuple[float, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    rates: tuple[int, ...]
    lags: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        rollout_pins: Sequence[Sequence[int]],
        train_pins: Sequence[Sequence[int]],
        rates: Sequence[int] | None = None,
    ) -> GroupShape:
        """Return the shape of ``jobs`` on these pins; shared nodes cost their switch.

        Raises
        ------
        InputError
            When lengths differ, a pin set is empty or repeats a node, or a rate is below 1.
        """
        n = len(jobs)
        rates = tuple(rates) if rates is not None else (1,) * n
        if not (len(rollout_pins) == len(train_pins) == len(rates) == n):
            raise InputError(f"Expected pins and rates for {n} jobs.")
        for pins in (*rollout_pins, *train_pins):
            if not pins or len(set(pins)) != len(pins):
                raise InputError(f"Expected distinct nodes and at least one, got {tuple(pins)}.")
        if any(rate < 1 for rate in rates):
            raise InputError(f"Expected rates >= 1, got {rates}.")
        r_pins = tuple(tuple(pins) for pins in rollout_pins)
        t_pins = tuple(tuple(pins) for pins in train_pins)
        r_shared, t_shared = _shared(r_pins), _shared(t_pins)
        return cls(
            rollout_s=tuple(
                job.rollout_s + (job.rollout_switch_s if shared else 0.0)
                for job, shared in zip(jobs, r_shared, strict=True)
            ),
            train_s=tuple(
                job.train_s + (job.train_switch_s if shared else 0.0)
                for job, shared in zip(jobs, t_shared, strict=True)
            ),
            sync_s=tuple(job.sync_s for job in jobs),
            rollout_pins=r_pins,
            train_pins=t_pins,
            rates=rates,
            lags=lags_of(jobs),
        )

    def __len__(self) -> int:
        return len(self.rates)

    def lag(self, j: int) -> int:
        """Return the lag of one job."""
        return self.lags[j] if self.lags else 1

    def own_s(self, j: int) -> float:
        """Return :func:`own_seconds` of one job."""
        return own_seconds(self.rollout_s[j], self.train_s[j], self.sync_s[j], self.lag(j))


def lags_of(jobs: Sequence[Job]) -> tuple[int, ...]:
    """Return the lags of jobs as a shape has them: empty where all are 1."""
    for job in jobs:
        if job.mode != "sync":
            return tuple([job.lag for job in jobs])
    return ()


def _shared(pins: Sequence[Pins]) -> list[bool]:
    """Return per job whether any of its nodes has two or more jobs pinned."""
    count: dict[int, int] = {}
    for nodes in pins:
        for node in nodes:
            count[node] = count.get(node, 0) + 1
    return [any(count[node] > 1 for node in nodes) for nodes in pins]


@dataclass(frozen=True, kw_only=True, slots=True)
class LowerBound:
    """LB(g), its three parts, seconds (FORMULATION section 4).

    Attributes
    ----------
    chain_s : float
        (a) max over jobs of ``k_j (p_j + q_j + s_j)``, of lag 2 half of that.
    node_s : float
        (b) the heaviest node: sum of ``k_j x phase`` pinned there.
    clique_s : float
        (c) the heaviest set of phases of one pool whose pins pairwise intersect.
    """

    chain_s: float
    node_s: float
    clique_s: float

    @property
    def period_s(self) -> float:
        """The bound itself, the largest of the three."""
        return max(self.chain_s, self.node_s, self.clique_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A period and its starts.

    Attributes
    ----------
    period_s : float
    starts_s : tuple of tuple of (float, float)
        Per job one (rollout, train) start per iteration, the first rollout in
        ``[0, period_s)``, later starts never before what precedes them.
    bound_s : float
        LB(g); the schedule is optimal when ``period_s`` equals it.
    """

    period_s: float
    starts_s: Starts
    bound_s: float

    @property
    def at_bound(self) -> bool:
        """Whether the period equals LB(g), up to round-off."""
        return self.period_s <= self.bound_s * (1 + 1e-9)


def _node_seconds(phase_s: Sequence[float], pins: Sequence[Pins], rates: Sequence[int]) -> float:
    load: dict[int, float] = {}
    for seconds, nodes, rate in zip(phase_s, pins, rates, strict=True):
        for node in nodes:
            load[node] = load.get(node, 0.0) + rate * seconds
    return max(load.values(), default=0.0)


def _clique_seconds(phase_s: Sequence[float], pins: Sequence[Pins], rates: Sequence[int]) -> float:
    """Return the heaviest set of phases whose pins pairwise intersect (branch and bound)."""
    weight = [rate * seconds for rate, seconds in zip(rates, phase_s, strict=True)]
    order = sorted(range(len(weight)), key=lambda j: -weight[j])
    sets = [frozenset(nodes) for nodes in pins]
    best = 0.0

    def grow(total: float, candidates: list[int]) -> None:
        nonlocal best
        best = max(best, total)
        rest = sum(weight[j] for j in candidates)
        for position, j in enumerate(candidates):
            if total + rest <= best:
                return
            grow(total + weight[j], [i for i in candidates[position + 1 :] if sets[i] & sets[j]])
            rest -= weight[j]

    grow(0.0, order)
    return best


def lower_bound_s(shape: GroupShape) -> float:
    """Return LB(g) in seconds: :func:`lower_bound` in one pass, the cliques only for gangs."""
    best = 0.0
    rollout: dict[int, float] = {}
    train: dict[int, float] = {}
    gangs = False
    lags = shape.lags or (1,) * len(shape.rates)
    for p, q, s, r_pins, t_pins, k, lag in zip(
        shape.rollout_s,
        shape.train_s,
        shape.sync_s,
        shape.rollout_pins,
        shape.train_pins,
        shape.rates,
        lags,
        strict=True,
    ):
        chain = k * (p + q + s)
        if lag > 1:
            chain /= lag
        if chain > best:
            best = chain
        if len(r_pins) > 1 or len(t_pins) > 1:
            gangs = True
        for node in r_pins:
            rollout[node] = rollout.get(node, 0.0) + k * p
        for node in t_pins:
            train[node] = train.get(node, 0.0) + k * q
    best = max([best, *rollout.values(), *train.values()])
    return max(best, lower_bound(shape).clique_s) if gangs else best


def lower_bound(shape: GroupShape) -> LowerBound:
    """Return LB(g) in its three parts (FORMULATION section 4)."""
    rates = shape.rates
    node = max(
        _node_seconds(shape.rollout_s, shape.rollout_pins, rates),
        _node_seconds(shape.train_s, shape.train_pins, rates),
    )
    clique = node
    for phase_s, pins in (
        (shape.rollout_s, shape.rollout_pins),
        (shape.train_s, shape.train_pins),
    ):
        if any(len(nodes) > 1 for nodes in pins):
            clique = max(clique, _clique_seconds(phase_s, pins, rates))
    chain = max(
        (
            rate * (p + q + s) / lag
            for rate, p, q, s, lag in zip(
                rates,
                shape.rollout_s,
                shape.train_s,
                shape.sync_s,
                shape.lags or (1,) * len(rates),
                strict=True,
            )
        ),
        default=0.0,
    )
    return LowerBound(chain_s=chain, node_s=node, clique_s=clique)
