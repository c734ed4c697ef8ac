"""What one given set of jobs costs as one group: its Pareto front of (rollout, train) nodes.

A set of jobs is decided at ``C = min_j D_j``: with one iteration per period a longer period
never hurts, since all starts can be scaled. A pair ``(n_R, n_T)`` of node counts is feasible
when *some* pinning onto so many nodes has a cyclic schedule of period ``C``. Decided in three
steps, each exact where it answers:

1. loads and DRAM (:mod:`models.pinnings`): no pinning within them, no group;
2. construction (:func:`models.period.construct`): a schedule found is a proof;
3. where loads admit pinnings but no schedule was constructed on any of them, one joint CP-SAT
   search over pins and offsets (:mod:`models.cyclic_cpsat`). A pinning that failed rules out
   only itself.

More nodes never hurt, up to the summed widths (move one pin from a shared node to a fresh
one), so the feasible pairs are closed upwards and a front describes them all. It is a front
and not one number: ``(2, 3)`` and ``(3, 2)`` can be feasible where ``(2, 2)`` is not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice, product
from typing import Final

from instances.jobs import Job
from models.group_shape import REL_EPS, GroupShape, Pins, lower_bound_s
from models.options import Deadline, OutOfTimeError
from models.period import construct
from models.pinnings import DRAM_SLACK, REL_SLACK, PoolLoads, least_nodes, pinnings
from models.snapshot import PlacedGroup, Snapshot, placed, solo_group

__all__ = ["GroupCost", "Nodes"]

#: (rollout nodes, train nodes)
Nodes = tuple[int, int]
#: Most pinnings of a pool, and pairs of them, that construction tries before CP-SAT decides.
_POOL_PINNINGS: Final = 64
_PAIRS: Final = 256
#: Relative distance within which two costs are the same.
_MONEY_SLACK: Final = 1e-10


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
        Pairs decided within deadlines and size, by the step that answered: ``loads``,
        ``constructed``, ``cpsat_feasible``, ``cpsat_infeasible``.
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

    # --- deadlines and limits ---------------------------------------------------------------

    def period_s(self, members: Sequence[int]) -> float:
        """Return ``C = min_j D_j``, seconds."""
        return min([self._deadline[i] for i in members])

    def within_size(self, members: Sequence[int]) -> bool:
        """Return whether one group may have so many jobs."""
        most = self.snapshot.limits.max_group_size
        return not most or len(members) <= most

    def within_deadlines(self, members: Sequence[int]) -> bool:
        """Return whether every member's ``T_j`` is within every member's deadline."""
        longest = max([self._solo[i] for i in members])
        return longest <= self.period_s(members) * (1 + REL_SLACK)

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
        itself: the two minima need not be feasible together.
        """
        if not (self.within_size(members) and self.within_deadlines(members)):
            return None
        most, period = self.most_nodes(members), self.period_s(members)
        rollout = least_nodes(self._rollout.take(members), most[0], period, self._dram[0])
        if rollout is None:
            return None
        train = least_nodes(self._train.take(members), most[1], period, self._dram[1])
        return None if train is None else (rollout, train)

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
            self._decided[key] = self._decide(members, nodes)
        return self._decided[key]

    def _decide(self, members: tuple[int, ...], nodes: Nodes) -> PlacedGroup | None:
        self._ends.check()
        if not (self.within_size(members) and self.within_deadlines(members)):
            return None
        if len(members) == 1:
            return self._alone(members[0], nodes)
        jobs = [self._jobs[i] for i in members]
        period = self.period_s(members)
        limit = period * (1 + REL_SLACK)
        rollouts = self._some_pinnings(self._rollout.take(members), nodes[0], period, 0)
        trains = rollouts and self._some_pinnings(self._train.take(members), nodes[1], period, 1)
        # a list cut short leaves pinnings untried, so only whole ones can rule out a group
        admitted = _POOL_PINNINGS in (len(rollouts), len(trains))
        for rollout, train in islice(_by_turns(rollouts, trains), _PAIRS):
            shape = GroupShape.of(jobs, rollout, train)
            if lower_bound_s(shape) > limit * (1 + REL_EPS):
                continue
            found = construct(shape, limit_s=limit, refine=1)
            if found is not None:
                self.counts["constructed"] += 1
                return placed(members, (rollout, train), found)
            admitted = True
        if not admitted and len(rollouts) * len(trains) <= _PAIRS:
            self.counts["loads"] += 1
            return None
        return self._search(members, jobs, nodes, period)

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
        self, members: tuple[int, ...], jobs: Sequence[Job], nodes: Nodes, period_s: float
    ) -> PlacedGroup | None:
        from models.cyclic_cpsat import UndecidedError, decide

        left_s = self._ends.remaining_s()
        try:
            found = decide(jobs, *nodes, self._dram, period_s, seconds=left_s, seed=self._seed)
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
