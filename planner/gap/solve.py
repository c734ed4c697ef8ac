"""One snapshot of a replay after another: least cost, or the best plan and bound.

Consecutive snapshots differ by a job or two, so what is known of one says much about the next.
For sets of jobs ``A``, ``B`` with least costs ``opt``, and ``solo(j)`` the price of job ``j`` on
nodes of its own:

* *heredity*: a plan of ``A`` without some of its jobs is a plan, so ``opt(A & B) <= opt(B)``;
* a plan of ``A & B`` with the rest of ``A`` on nodes of their own is a plan of ``A``, so
  ``opt(A) <= opt(A & B) + solo(A - B)``.

Together ``opt(B) >= bound(A) - solo(A - B)``, and a plan of ``A`` gives one of ``B`` of at most
``cost(A) + solo(B - A)``. A snapshot is looked at in this order, until it is proved:

1. the placer's plan from scratch against the volume bound;
2. the plan of the snapshot before, without who left and with who came (in a group that takes
   the job on the nodes it has, else where it costs least), against the bounds of the last few;
3. :mod:`models.exact.set_partition`, from the cheapest of these plans;
4. where that ends without a bound, :func:`models.bounds.columns.pool_decomposition`;
5. where the plan is not proved by then, :func:`planner.placement.local_search.local_search`.

Snapshots are looked at in *chains* of fixed length, and nothing but verdicts on groups, which
are facts, passes from one chain to another: whatever is proved, and by whatever number of
processes, the figures are the same.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from instances.errors import FleetPlannerError, UnsupportedError
from instances.hardware import Cluster
from instances.jobs import Job, JobTable
from instances.plan import Limits
from models.bounds.volume import VOLUME, volume
from models.group.group_cost import GroupCost
from models.group.known_groups import KnownGroups, RememberingCost
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.result import OPTIMALITY_REL, StoppedBy, proved, usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, groups_of, plan_of, solo_group
from planner.placement.placer import PlacerParams
from planner.placement.warm_start import from_scratch

__all__ = [
    "CHAIN",
    "ChainSolver",
    "Effort",
    "Link",
    "Replayed",
    "Solved",
    "carried_over",
    "solo_usd",
]

#: Snapshots in a chain.
CHAIN: Final = 12
#: Snapshots of the chain whose bounds are held against the next.
_RECENT: Final = 8
#: Share of the time left that inserting a job may take.
_INSERTING: Final = 0.2
#: Share of the time limit that set partitioning gets; the rest is for what it leaves open.
_SHARE: Final = 0.75
#: Moves of the local search, per job.
_MOVES_PER_JOB: Final = 5_000
_METHOD: Final = "gap"

Groups = tuple[PlacedGroup, ...]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What one snapshot may take.

    Attributes
    ----------
    time_limit_s : float or None
    tolerance : float
        A plan within this relative distance of its bound is good enough.
    seed : int
        Of solvers.
    """

    time_limit_s: float | None = 10.0
    tolerance: float = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The trace and the rules it was replayed by, as a process needs them.

    Attributes
    ----------
    jobs : tuple of Job
        All jobs of the trace.
    placer : PlacerParams or None
        How the policy places; ``None`` for ``solo``.
    """

    jobs: tuple[Job, ...]
    cluster: Cluster
    limits: Limits
    placer: PlacerParams | None
    effort: Effort


@dataclass(frozen=True, kw_only=True)
class Solved:
    """What is known of one snapshot.

    Attributes
    ----------
    usd_per_hour, bound_usd_per_hour : float
        Of the plan held, and proved: no valid plan costs less.
    bound_method : str
        Who proved the bound.
    stopped_by : str or None
        The limit that stopped the proof.
    groups : tuple of PlacedGroup
        The plan held; members are positions in the snapshot.
    reused : bool
        Whether neighbours settled it.
    """

    usd_per_hour: float
    bound_usd_per_hour: float
    bound_method: str
    stopped_by: str | None
    groups: Groups
    reused: bool = False

    @property
    def proved(self) -> bool:
        """Whether the plan held costs the least."""
        return proved(self.usd_per_hour, self.bound_usd_per_hour)


@dataclass(frozen=True, kw_only=True)
class Link:
    """One snapshot of a chain, and what is known of it already.

    Attributes
    ----------
    number : int
        Of the snapshot, among the distinct ones.
    jobs : tuple of int
        Indices of the trace's jobs, ascending.
    replanned_usd : float or None
        The policy's price of the same jobs placed from scratch, $/h.
    """

    number: int
    jobs: tuple[int, ...]
    solved: Solved | None = None
    replanned_usd: float | None = None


def solo_usd(job: Job, cluster: Cluster) -> float:
    """Return the price of a job on nodes of its own, $/h."""
    return cluster.usd_per_hour(job.rollout_nodes, job.train_nodes)


def carried_over(
    groups: Groups, before: Sequence[int], now: Sequence[int]
) -> tuple[list[PlacedGroup], list[int]]:
    """Return the groups of one snapshot as those of another, and who is in none of them.

    Parameters
    ----------
    before, now : sequence of int
        Jobs of the two snapshots, indices of the trace. Members are positions in these.
    """
    position = {job: at for at, job in enumerate(now)}
    gone = {at for at, job in enumerate(before) if job not in position}
    kept = [group.without(gone) for group in groups]
    moved = [
        replace(group, members=tuple(position[before[at]] for at in group.members))
        for group in kept
        if group is not None
    ]
    return moved, [position[job] for job in now if job not in set(before)]


class ChainSolver:
    """Solves chains of snapshots of one replay.

    Parameters
    ----------
    replayed : Replayed
    clock : callable
        Seconds from an arbitrary origin.
    """

    def __init__(self, replayed: Replayed, clock: Callable[[], float] = time.monotonic) -> None:
        self._replayed = replayed
        self._table = JobTable.from_jobs(replayed.jobs)
        self._known = KnownGroups()
        self._clock = clock
        self._solo = [solo_usd(job, replayed.cluster) for job in replayed.jobs]

    def run(self, chain: Sequence[Link]) -> Iterator[Link]:
        """Yield each snapshot of a chain in which something was unknown, once all is known.

        Raises
        ------
        KeyboardInterrupt
            At Ctrl-C; the snapshot in work is lost.
        """
        jobs = self._replayed.jobs
        self._known.keep_only({jobs[i].job_id for link in chain for i in link.jobs})
        recent: deque[Link] = deque(maxlen=_RECENT)
        for link in chain:
            done = self._completed(link, recent)
            recent.append(done)
            if done is not link:
                yield done

    def _completed(self, link: Link, recent: deque[Link]) -> Link:
        """Return the link with all that was unknown."""
        if link.solved is not None and link.replanned_usd is not None:
            return link
        replayed = self._replayed
        snapshot = Snapshot(
            table=self._table.take(link.jobs), cluster=replayed.cluster, limits=replayed.limits
        )
        placed = from_scratch(snapshot, replayed.placer or PlacerParams())
        replanned = link.replanned_usd
        if replanned is None:
            usd = sum(self._solo[i] for i in link.jobs)
            replanned = usd if replayed.placer is None else _checked_usd(snapshot, placed)
        solved = link.solved
        if solved is None:
            one = _Snapshot(self, snapshot, link.jobs, recent)
            solved = one.solve(placed)
        return replace(link, solved=solved, replanned_usd=replanned)

    # --- what one snapshot needs ------------------------------------------------------------

    @property
    def effort(self) -> Effort:
        """What a snapshot may take."""
        return self._replayed.effort

    @property
    def known(self) -> KnownGroups:
        """Verdicts on groups."""
        return self._known

    def options(self) -> SolveOptions:
        """Return options of one snapshot."""
        effort = self.effort
        return SolveOptions(time_limit_s=effort.time_limit_s, seed=effort.seed, clock=self._clock)

    def solo_usd(self, jobs: Iterable[int]) -> float:
        """Return the price of jobs each on nodes of its own, $/h."""
        return sum(self._solo[i] for i in jobs)


def _checked_usd(snapshot: Snapshot, groups: Groups) -> float:
    return plan_of(snapshot, groups, _METHOD).usd_total


class _Snapshot:
    """One snapshot in the making: the cheapest plan and the best bound so far."""

    def __init__(
        self, chain: ChainSolver, snapshot: Snapshot, jobs: tuple[int, ...], recent: deque[Link]
    ) -> None:
        self._chain = chain
        self._snapshot = snapshot
        self._jobs = jobs
        self._recent = recent
        self._options = chain.options()
        self._deadline = self._options.start()
        weak = volume(snapshot.table, snapshot.cluster, snapshot.limits)
        self._bound_usd, self._bound_method = weak.usd_per_hour, VOLUME
        self._groups: Groups = ()
        self._usd = 0.0
        self._stopped_by: StoppedBy | None = None

    def solve(self, placed: Groups) -> Solved:
        """Return what is known of the snapshot in the end (module docstring)."""
        self._groups, self._usd = placed, usd_of(self._snapshot, placed)
        if self._good_enough():
            return self._answer()
        self._learn_bounds()
        if self._recent:
            self._hold(self._inherited(self._recent[-1]))
        if self._good_enough():
            return self._answer(reused=True)
        self._partition()
        if self._bound_method == VOLUME and not self._good_enough():
            self._decompose()
        if not self._good_enough() and not self._deadline.expired:
            self._search()
        return self._answer()

    def _hold(self, groups: Groups) -> None:
        usd = usd_of(self._snapshot, groups)
        if usd < self._usd * (1 - 1e-12):
            self._groups, self._usd = groups, usd

    def _raise_bound(self, usd: float, method: str) -> None:
        if usd > self._bound_usd:
            self._bound_usd, self._bound_method = usd, method

    def _good_enough(self) -> bool:
        tolerance = max(self._chain.effort.tolerance, OPTIMALITY_REL)
        return self._usd <= self._bound_usd * (1 + tolerance)

    def _answer(self, *, reused: bool = False) -> Solved:
        """Return what is held, checked and re-costed."""
        usd = _checked_usd(self._snapshot, self._groups)
        if self._bound_usd > usd * (1 + OPTIMALITY_REL):
            raise FleetPlannerError(
                f"The bound ${self._bound_usd:,.6f}/h exceeds the cost ${usd:,.6f}/h of a valid "
                "plan: a fault of the program, not of the input."
            )
        done = proved(usd, self._bound_usd)
        return Solved(
            usd_per_hour=usd,
            bound_usd_per_hour=usd if done else self._bound_usd,
            bound_method=self._bound_method,
            stopped_by=None if done or self._stopped_by is None else self._stopped_by.value,
            groups=self._groups,
            reused=reused,
        )

    # --- neighbours ---------------------------------------------------------------------------

    def _learn_bounds(self) -> None:
        """Take over the bounds of the snapshots before (module docstring)."""
        mine = set(self._jobs)
        for link in self._recent:
            assert link.solved is not None
            gone = [job for job in link.jobs if job not in mine]
            usd = link.solved.bound_usd_per_hour - self._chain.solo_usd(gone)
            self._raise_bound(usd, link.solved.bound_method)

    def _inherited(self, before: Link) -> Groups:
        """Return the plan of the snapshot before, for the jobs of this one."""
        assert before.solved is not None
        groups, came = carried_over(before.solved.groups, before.jobs, self._jobs)
        cost = RememberingCost(
            self._snapshot,
            self._chain.known,
            seed=self._chain.effort.seed,
            deadline=self._deadline.share(_INSERTING),
        )
        for job in came:
            self._insert(groups, job, cost)
        return tuple(groups)

    def _insert(self, groups: list[PlacedGroup], job: int, cost: GroupCost) -> None:
        """Put a job where it costs least: on nodes there are, a node more, or its own."""
        best, best_at = solo_group(self._snapshot, job), len(groups)
        best_usd = usd_of(self._snapshot, [best])
        try:
            for more in ((0, 0), (1, 0), (0, 1)):
                usd = self._snapshot.usd_per_hour(*more)
                for at, group in enumerate(groups):
                    if usd >= best_usd:
                        break
                    members = tuple(sorted((*group.members, job)))
                    nodes = group.nodes[0] + more[0], group.nodes[1] + more[1]
                    found = self._joined(cost, members, nodes)
                    if found is not None:
                        best, best_at, best_usd = found, at, usd
        except OutOfTimeError:
            pass  # what is found so far
        groups[best_at : best_at + 1] = [best]

    @staticmethod
    def _joined(
        cost: GroupCost, members: tuple[int, ...], nodes: tuple[int, int]
    ) -> PlacedGroup | None:
        """Return the members as a group on so many nodes, where loads allow it at all."""
        least = cost.least_nodes(members)
        if least is None or least[0] > nodes[0] or least[1] > nodes[1]:
            return None
        return cost.decide(members, nodes)

    # --- from the beginning -------------------------------------------------------------------

    def _partition(self) -> None:
        """Let set partitioning prove the least cost."""
        from models.exact import set_partition  # heavy: HiGHS

        options = replace(
            self._options,
            time_limit_s=self._deadline.share(_SHARE).remaining_s(),
            warm_start=plan_of(self._snapshot, self._groups, _METHOD),
        )
        try:
            result = set_partition.solve(self._snapshot, options, self._chain.known)
        except UnsupportedError:
            self._stopped_by = StoppedBy.SIZE
            return
        if result.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        self._stopped_by = result.stopped_by
        if result.plan is not None:
            self._hold(groups_of(self._snapshot, result.plan))
        if result.bound_usd_per_hour is not None:
            self._raise_bound(result.bound_usd_per_hour, result.method)

    def _decompose(self) -> None:
        """Bound what set partitioning could not by each pool's own least cost."""
        from models.bounds.columns import pool_decomposition

        found = pool_decomposition(self._snapshot, self._deadline, seed=self._chain.effort.seed)
        if StoppedBy.INTERRUPT in (found.rollout.stopped_by, found.train.stopped_by):
            raise KeyboardInterrupt
        self._raise_bound(found.usd_per_hour, found.method)

    def _search(self) -> None:
        """Look for a cheaper plan where the least cost is not proved."""
        from planner.placement.local_search import MaxIterations, local_search

        found = local_search(
            self._snapshot,
            self._groups,
            stop=MaxIterations(_MOVES_PER_JOB * len(self._snapshot)),
            seed=self._chain.effort.seed,
            deadline=self._deadline,
            bound_usd=self._bound_usd,
        )
        if found.stopped_by == "interrupt":
            raise KeyboardInterrupt
        self._hold(found.groups)
