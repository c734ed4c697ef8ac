"""What one given set of jobs costs as one group: its Pareto front of (rollout, train) nodes.

With rates ``k`` a set of jobs is decided at ``C = min_j k_j D_j``: a longer period never hurts,
since all starts can be scaled. A pair ``(n_R, n_T)`` of node counts is feasible when for *some*
rates (:mod:`models.group.rate_vectors`; one iteration each unless ``max_rate`` allows more) *some*
pinning onto so many nodes has a cyclic schedule of that period. Decided in steps, each exact
where it answers:

1. heredity: with several rates to try, no set that holds one refuted on no fewer nodes;
2. loads and DRAM (:mod:`models.group.pinnings`): no pinning within them, no group;
3. construction (:func:`models.group.period.construct`): a schedule found is a proof;
4. where loads admit pinnings but no schedule was constructed on any of them: with several
   iterations a search pinning by pinning (:mod:`models.group.pair_orders`), else, or where that is
   cut short, one joint CP-SAT search over pins and offsets (:mod:`models.group.cyclic_cpsat`). A
   pinning that failed rules out only itself, and rates that failed only themselves.

More nodes never hurt, up to the summed widths (move one pin from a shared node to a fresh
one), so the feasible pairs are closed upwards and a front describes them all. It is a front
and not one number: ``(2, 3)`` and ``(3, 2)`` can be feasible where ``(2, 2)`` is not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice, product
from typing import Final

from instances.jobs import Job
from models.group.pair_orders import decide_orders
from models.group.period import construct, tightened
from models.group.pinnings import DRAM_SLACK, REL_SLACK, PoolLoads, least_nodes, pinnings
from models.group.rate_bound import least_bound_s
from models.group.rate_vectors import RateVector, rate_vectors
from models.problem.group_shape import REL_EPS, GroupShape, Pins, Schedule, lower_bound_s
from models.problem.options import Deadline, OutOfTimeError
from models.problem.snapshot import PlacedGroup, Snapshot, placed, solo_group

__all__ = ["GroupCost", "Nodes"]

#: (rollout nodes, train nodes)
Nodes = tuple[int, int]
#: Most pinnings of a pool, and pairs of them, that construction tries before CP-SAT decides.
_POOL_PINNINGS: Final = 64
_PAIRS: Final = 256
#: Most branches of the exact search of one pinning with rates, before CP-SAT decides.
_BRANCHES: Final = 50_000
#: Relative distance within which two costs are the same.
_MONEY_SLACK: Final = 1e-10


@dataclass(frozen=True, slots=True)
class _Left:
    """Rates that loads admit and no schedule was constructed for.

    ``shapes`` are the pinnings within the bounds; ``whole`` when these are all there are.
    """

    vector: RateVector
    shapes: list[GroupShape]
    whole: bool


class GroupCost:
    """Decides which node counts a set of jobs can share; every answer is cached.

    Parameters
    ----------
    snapshot : Snapshot
        Members below are indices of its jobs, ascending tuples.
    seed : int
        Of CP-SAT.
    deadline : Deadline, optional
        Read before every decision, and the limit of CP-SAT's: ``OutOfTimeError`` beyond it.

    Attributes
    ----------
    counts : Counter
        Decisions within deadlines and size, by the step that answered: ``loads``,
        ``constructed``, ``cpsat_feasible``, ``cpsat_infeasible``; with rates above 1 also
        ``heredity``, ``orders_feasible``, and per rate vector ``orders_infeasible``.
    """

    def __init__(
        self, snapshot: Snapshot, *, seed: int = 0, deadline: Deadline | None = None
    ) -> None:
        self.snapshot = snapshot
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._ends = deadline or Deadline(time.monotonic, None)
        self._jobs = jobs = snapshot.jobs
        self._deadline = [job.deadline_s for job in jobs]
        self._solo = [job.solo_s for job in jobs]
        self._rollout = PoolLoads(
            tuple(job.rollout_nodes for job in jobs),
            tuple(job.rollout_s for job in jobs),
            tuple(job.rollout_switch_s for job in jobs),
            tuple(job.rollout_state_gb for job in jobs),
        )
        self._train = PoolLoads(
            tuple(job.train_nodes for job in jobs),
            tuple(job.train_s for job in jobs),
            tuple(job.train_switch_s for job in jobs),
            tuple(job.train_state_gb for job in jobs),
        )
        self._dram = (
            snapshot.cluster.rollout.host_dram_gb,
            snapshot.cluster.train.host_dram_gb,
        )
        self._decided: dict[tuple[tuple[int, ...], Nodes], PlacedGroup | None] = {}
        self._refuted: dict[tuple[int, ...], list[Nodes]] = {}

    # --- rates and limits ---------------------------------------------------------------------

    def rate_vectors(self, members: Sequence[int]) -> list[RateVector]:
        """Return the pairs of a period and rates to try; none when deadlines forbid the set."""
        return rate_vectors(
            [self._deadline[i] for i in members],
            [self._solo[i] for i in members],
            self.snapshot.limits.max_rate,
        )

    def within_size(self, members: Sequence[int]) -> bool:
        """Return whether one group may have so many jobs."""
        most = self.snapshot.limits.max_group_size
        return not most or len(members) <= most

    def most_nodes(self, members: Sequence[int]) -> Nodes:
        """Return the most nodes worth having: summed widths, within the group's limits."""
        limits = self.snapshot.limits
        rollout = sum([self._rollout.widths[i] for i in members])
        train = sum([self._train.widths[i] for i in members])
        if limits.max_rollout_nodes is not None:
            rollout = min(rollout, limits.max_rollout_nodes)
        if limits.max_train_nodes is not None:
            train = min(train, limits.max_train_nodes)
        return rollout, train

    def connected_nodes(self, members: Sequence[int]) -> int:
        """Return the most nodes, both pools together, of a group that does not fall apart.

        A group whose sharing graph is disconnected may be split into its components at the
        same cost. Jobs and nodes form a bipartite graph with one edge per pin; connected, it
        has at least (jobs + nodes - 1) edges.
        """
        pins = sum([self._rollout.widths[i] + self._train.widths[i] for i in members])
        return pins - len(members) + 1

    def least_nodes(self, members: Sequence[int]) -> Nodes | None:
        """Return the fewest nodes of each pool that loads and DRAM admit; ``None`` if none.

        ``None`` too where deadlines or the limits forbid a group of these jobs. Each pool by
        itself, and with the rates that suit it best: the two minima need not be feasible together.
        """
        if not self.within_size(members):
            return None
        most = self.most_nodes(members)
        found: list[Nodes] = []
        for period, rates in self.rate_vectors(members):
            loads = self._rollout.take(members, rates)
            rollout = least_nodes(loads, most[0], period, self._dram[0])
            if rollout is None:
                continue
            loads = self._train.take(members, rates)
            train = least_nodes(loads, most[1], period, self._dram[1])
            if train is not None:
                found.append((rollout, train))
        if not found:
            return None
        return min(nodes[0] for nodes in found), min(nodes[1] for nodes in found)

    # --- decisions --------------------------------------------------------------------------

    def decide(self, members: tuple[int, ...], nodes: Nodes) -> PlacedGroup | None:
        """Return the members as one group on at most so many nodes; ``None`` if impossible.

        Parameters
        ----------
        members : tuple of int
            Ascending.
        nodes : (int, int)
            Rollout and train nodes; capped at :meth:`most_nodes`.
        """
        most = self.most_nodes(members)
        nodes = min(nodes[0], most[0]), min(nodes[1], most[1])
        key = members, nodes
        if key not in self._decided:
            found = self._decided[key] = self._decide(members, nodes)
            if found is None:
                self._refuted.setdefault(members, []).append(nodes)
        return self._decided[key]

    def _decide(self, members: tuple[int, ...], nodes: Nodes) -> PlacedGroup | None:
        self._ends.check()
        if not self.within_size(members):
            return None
        if len(members) == 1:
            return self._alone(members[0], nodes)
        if self._lacks_a_subset(members, nodes):
            self.counts["heredity"] += 1
            return None
        jobs = [self._jobs[i] for i in members]
        left: list[_Left] = []
        vectors = self.rate_vectors(members)
        if not vectors:
            return None
        for vector in vectors:
            found = self._constructed(members, jobs, nodes, vector)
            if isinstance(found, PlacedGroup):
                self.counts["constructed"] += 1
                return found
            if found is not None:
                left.append(found)
        if not left:
            self.counts["loads"] += 1
        for undecided in left:
            found = self._searched(members, jobs, nodes, undecided)
            if found is not None:
                return found
        return None

    def _lacks_a_subset(self, members: tuple[int, ...], nodes: Nodes) -> bool:
        """Return whether the set with some member less was refuted on no fewer nodes: heredity.

        Looked at with several rate vectors only, where deciding takes longer than this.
        """
        if self.snapshot.limits.max_rate == 1 or len(members) == 2:
            return False
        for at in range(len(members)):
            fewer = members[:at] + members[at + 1 :]
            for pair in self._refuted.get(fewer, ()):
                if nodes[0] <= pair[0] and nodes[1] <= pair[1]:
                    return True
        return False

    def _constructed(
        self, members: tuple[int, ...], jobs: Sequence[Job], nodes: Nodes, vector: RateVector
    ) -> PlacedGroup | _Left | None:
        """Return a group of these rates, or what is left to search; ``None`` when loads refuse.

        A list of pinnings cut short leaves some untried, so only whole ones can rule out a group.
        """
        period, rates = vector
        limit = period * (1 + REL_SLACK)
        rollouts = self._some_pinnings(self._rollout.take(members, rates), nodes[0], period, 0)
        trains = rollouts and self._some_pinnings(
            self._train.take(members, rates), nodes[1], period, 1
        )
        whole = _POOL_PINNINGS not in (len(rollouts), len(trains))
        whole = whole and len(rollouts) * len(trains) <= _PAIRS
        shapes: list[GroupShape] = []
        for rollout, train in islice(_by_turns(rollouts, trains), _PAIRS):
            if max(rates) > 1:  # a construction may take long then
                self._ends.check()
            shape = GroupShape.of(jobs, rollout, train, rates)
            if least_bound_s(shape) > limit * (1 + REL_EPS):
                continue
            found = construct(shape, limit_s=limit, refine=1)
            if found is not None:
                return placed(members, (rollout, train), found)
            shapes.append(shape)
        return None if whole and not shapes else _Left(vector, shapes, whole)

    def _searched(
        self, members: tuple[int, ...], jobs: Sequence[Job], nodes: Nodes, left: _Left
    ) -> PlacedGroup | None:
        """Decide rates exactly: pinning by pinning where they are few, else all in one model."""
        period, rates = left.vector
        proved = left.whole and max(rates) > 1
        if proved:
            limit = period * (1 + REL_SLACK)
            for shape in left.shapes:
                self._ends.check()
                decision = decide_orders(shape, limit, _BRANCHES)
                if decision.starts_s is not None:
                    self.counts["orders_feasible"] += 1
                    bound = lower_bound_s(shape)
                    found = Schedule(period_s=limit, starts_s=decision.starts_s, bound_s=bound)
                    pins = shape.rollout_pins, shape.train_pins
                    return placed(members, pins, tightened(shape, found))
                proved = proved and decision.proved
        if proved:
            self.counts["orders_infeasible"] += 1
            return None
        return self._search(members, jobs, nodes, left.vector)

    def _alone(self, member: int, nodes: Nodes) -> PlacedGroup | None:
        job = self._jobs[member]
        fits = (
            nodes[0] >= job.rollout_nodes
            and nodes[1] >= job.train_nodes
            and job.rollout_state_gb <= self._dram[0] * (1 + DRAM_SLACK)
            and job.train_state_gb <= self._dram[1] * (1 + DRAM_SLACK)
        )
        self.counts["constructed" if fits else "loads"] += 1
        return solo_group(self.snapshot, member) if fits else None

    def _some_pinnings(
        self, loads: PoolLoads, n_nodes: int, period_s: float, pool: int
    ) -> list[tuple[Pins, ...]]:
        found = pinnings(loads, n_nodes, period_s, self._dram[pool])
        return list(islice(found, _POOL_PINNINGS))

    def _search(
        self, members: tuple[int, ...], jobs: Sequence[Job], nodes: Nodes, vector: RateVector
    ) -> PlacedGroup | None:
        from models.group.cyclic_cpsat import UndecidedError, decide

        period, rates = vector
        left_s = self._ends.remaining_s()
        try:
            found = decide(
                jobs, *nodes, self._dram, period, rates=rates, seconds=left_s, seed=self._seed
            )
        except UndecidedError:
            raise OutOfTimeError from None
        self.counts["cpsat_infeasible" if found is None else "cpsat_feasible"] += 1
        if found is None:
            return None
        rollout, train, schedule = found
        return placed(members, (rollout, train), schedule)

    # --- fronts -----------------------------------------------------------------------------

    def front(self, members: tuple[int, ...]) -> tuple[PlacedGroup, ...]:
        """Return one group per Pareto-minimal pair of node counts, fewest rollout nodes first.

        Empty when the members cannot be one group. Walks the staircase: the fewest train
        nodes never grow with the rollout nodes.
        """
        least = self.least_nodes(members)
        if least is None:
            return ()
        most = self.most_nodes(members)
        out: list[PlacedGroup] = []
        train = most[1] + 1
        for rollout in range(least[0], most[0] + 1):
            best = None
            while train > least[1]:
                found = self.decide(members, (rollout, train - 1))
                if found is None:
                    break
                best, train = found, train - 1
            if best is not None:
                out.append(best)
            if train == least[1]:
                break
        return tuple(out)

    def cheapest(
        self, members: tuple[int, ...], below_usd: float, most_together: int | None = None
    ) -> PlacedGroup | None:
        """Return the cheapest group of exactly these members that costs less than ``below_usd``.

        Parameters
        ----------
        below_usd : float
            $/h; ``None`` is returned when the members cost as much as one group.
        most_together : int, optional
            Only pairs with at most so many nodes in both pools together.
        """
        least = self.least_nodes(members)
        if least is None:
            return None
        most = self.most_nodes(members)
        # cheapest first, so after every pair that it holds; pairs are made when they are reached
        queue = [(self.snapshot.usd_per_hour(*least), *least)]
        if most_together is not None and sum(least) > most_together:
            return None
        while queue:
            usd, rollout, train = heappop(queue)
            if usd >= below_usd * (1 - _MONEY_SLACK):
                return None
            found = self.decide(members, (rollout, train))
            if found is not None:
                return found
            more = [(rollout, train + 1)]
            if train == least[1]:
                more.append((rollout + 1, train))
            for pair in more:
                together = most_together is None or sum(pair) <= most_together
                if together and pair[0] <= most[0] and pair[1] <= most[1]:
                    heappush(queue, (self.snapshot.usd_per_hour(*pair), *pair))
        return None


def _by_turns(
    first: Sequence[tuple[Pins, ...]], second: Sequence[tuple[Pins, ...]]
) -> Iterator[tuple[tuple[Pins, ...], tuple[Pins, ...]]]:
    """Yield all pairs, those of small indices first."""
    yield from (
        (first[i], second[j])
        for i, j in sorted(
            product(range(len(first)), range(len(second))), key=lambda ij: (sum(ij), ij)
        )
    )
