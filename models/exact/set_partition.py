"""Set partitioning: enumerate the groups worth having, then choose a least-cost cover by MILP.

Sets and parameters
-------------------
``J`` jobs; ``G`` candidate groups ``g``, each a set of jobs on ``n^R_g`` rollout and ``n^T_g``
train nodes; ``c^P`` the price of a node, ``c_g = c^R n^R_g + c^T n^T_g``; ``F^P`` fleet caps.

Variables and constraints
-------------------------
``z_g in {0, 1}``; ``sum_{g holds j} z_g >= 1`` for every job; ``sum_g n^P_g z_g <= F^P``.

Objective: ``min sum_g c_g z_g``, $/h. Covering instead of partitioning loses nothing: by
heredity a job covered twice may leave either group (FORMULATION.md). The choice is made and
proved by :mod:`models.bounds.covering`.

Candidates. For single-node jobs in groups of at most five, every set that loads admit, on the
fewest nodes loads admit (:mod:`models.exact.single_node_sets`): a relaxation, so the least cover is
a bound. Its groups are then decided exactly; a refuted one is replaced by the pairs with one node
more, together with every candidate that holds it, and the choice is made again. With several
iterations per period loads say less: sets of up to three jobs are decided beforehand, and of a
refuted group the subsets to blame are looked for (:mod:`models.exact.rate_sets`). Likewise where a
group may have one node of each kind, more jobs and one iteration: the maximal sets that loads
admit, and of a refuted one the sets with one job less (:mod:`models.exact.maximal_sets`). For all
other snapshots every candidate is decided beforehand (:mod:`models.exact.candidate_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from models.bounds.covering import VERSION, Cover, CoverProblem, Ending, solve_cover
from models.bounds.volume import volume
from models.exact import maximal_sets, single_node_sets
from models.exact.candidate_groups import enumerate_groups
from models.exact.maximal_sets import MaximalSets
from models.exact.rate_sets import DECIDED_SIZE, RateSetPool
from models.exact.single_node_sets import SetPool
from models.group.group_cost import GroupCost, Nodes
from models.group.known_groups import KnownGroups, RememberingCost
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Result, SolverInfo, StoppedBy, first_incumbent, result_of, usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, solo_group

__all__ = ["METHOD", "solve"]

METHOD: Final = "set-partition"

#: Seconds after the time limit in which groups already chosen may still be decided.
_GRACE_S: Final = 1.0

IntArray = npt.NDArray[np.int64]

#: Why a method stopped, by why the choice of groups did.
_STOPPED: Final = {
    Ending.TIME: StoppedBy.TIME,
    Ending.NODES: StoppedBy.NODES,
    Ending.INTERRUPT: StoppedBy.INTERRUPT,
}


class _Candidates(Protocol):
    """Where candidate groups come from."""

    def arrays(self) -> tuple[IntArray, IntArray]:
        """Return members, padded with -1, and nodes."""
        ...

    def refute(self, members: Sequence[int], nodes: Nodes) -> int:
        """Replace every candidate that holds these jobs on no more nodes."""
        ...


class _Admitted:
    """Sets that loads admit; decided when chosen."""

    def __init__(self, cost: GroupCost, options: SolveOptions, deadline: Deadline) -> None:
        if cost.snapshot.limits.max_rate == 1:
            self._pool = SetPool(cost.snapshot, options, deadline)
        else:
            self._pool = RateSetPool(cost.snapshot, cost, options, deadline)

    def arrays(self) -> tuple[IntArray, IntArray]:
        columns = self._pool.columns()
        return self._pool.members[columns], self._pool.nodes[columns]

    def refute(self, members: Sequence[int], nodes: Nodes) -> int:
        return self._pool.refute(members, nodes)


class _Decided:
    """Groups decided beforehand; none is ever refuted."""

    def __init__(self, cost: GroupCost, options: SolveOptions, deadline: Deadline) -> None:
        fronts = cost.snapshot.caps.any
        groups = enumerate_groups(cost, options, deadline, fronts=fronts)
        widest = max(map(len, groups.members), default=1)
        self._members: IntArray = np.full((len(groups), widest), -1, dtype=np.int64)
        for row, members in enumerate(groups.members):
            self._members[row, : len(members)] = members
        self._nodes: IntArray = np.array(groups.nodes, dtype=np.int64).reshape(-1, 2)

    def arrays(self) -> tuple[IntArray, IntArray]:
        return self._members, self._nodes

    def refute(self, members: Sequence[int], nodes: Nodes) -> int:
        raise AssertionError(f"a group decided beforehand was refuted: {members} on {nodes}")


@dataclass
class _Run:
    """One solve: what is held, what is proved, and what it took."""

    snapshot: Snapshot
    options: SolveOptions
    deadline: Deadline
    cost: GroupCost
    held: tuple[PlacedGroup, ...] | None
    held_usd: float = inf
    bound_usd: float = 0.0
    stopped: StoppedBy | None = None
    failed: bool = False
    status: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def hold(self, groups: tuple[PlacedGroup, ...]) -> None:
        """Keep a plan if it is the cheapest."""
        usd = usd_of(self.snapshot, groups)
        if usd < self.held_usd * (1 - 1e-12):
            self.held, self.held_usd = groups, usd

    def nodes_left(self) -> int | None:
        """Return what is left of the limit of branch-and-bound nodes."""
        limit = self.options.node_limit
        return None if limit is None else max(limit - self.counts.get("nodes", 0), 0)

    def timed(self, step: str, began_s: float) -> None:
        """Add the seconds since then to a step."""
        self.seconds[step] = self.seconds.get(step, 0.0) + self.deadline.elapsed_s - began_s


def solve(snapshot: Snapshot, options: SolveOptions, known: KnownGroups | None = None) -> Result:
    """Return a least-cost plan, proved, or the best plan and bound at a limit.

    Parameters
    ----------
    snapshot : Snapshot
    options : SolveOptions
    known : KnownGroups, optional
        Verdicts on groups of earlier snapshots of the same trace; new ones are added.

    Raises
    ------
    UnsupportedError
        When there are more than ``options.max_groups`` candidate groups.
    InputError
        When the warm start is not a valid plan of the snapshot.
    """
    deadline = options.start()
    held = first_incumbent(snapshot, options)
    # a little later: groups chosen when the time is over are decided all the same
    later = deadline.later(_GRACE_S)
    known = KnownGroups() if known is None else known
    run = _Run(
        snapshot=snapshot,
        options=options,
        deadline=deadline,
        cost=RememberingCost(snapshot, known, seed=options.seed, deadline=later),
        held=held,
        held_usd=inf if held is None else usd_of(snapshot, held),
    )
    try:
        _search(run)
    except OutOfTimeError:
        run.stopped = StoppedBy.TIME
    except KeyboardInterrupt:
        run.stopped = StoppedBy.INTERRUPT
    run.counts |= {f"decided_{how}": number for how, number in sorted(run.cost.counts.items())}
    finished = run.stopped is None and not run.failed
    infeasible = finished and run.bound_usd == inf
    unknown = infeasible or (run.bound_usd <= 0 and not finished)
    return result_of(
        snapshot,
        options,
        METHOD,
        groups=run.held,
        bound_usd=None if unknown else run.bound_usd,
        stopped_by=run.stopped,
        infeasible=infeasible,
        failed=run.failed,
        solver=None
        if run.status is None
        else SolverInfo(name="HiGHS", version=VERSION, status=run.status),
        counts=run.counts,
        seconds=run.seconds,
    )


def _search(run: _Run) -> None:
    """Choose groups, decide them, refute some, until the choice stands."""
    if _beyond_caps(run.snapshot):
        run.bound_usd = inf
        return
    began = run.deadline.elapsed_s
    candidates = _candidates(run)
    run.timed("enumeration", began)
    while True:
        began = run.deadline.elapsed_s
        members, nodes = candidates.arrays()
        run.timed("enumeration", began)
        run.counts["groups"] = len(members)
        cover = _choose(run, members, nodes)
        run.bound_usd = max(run.bound_usd, min(cover.bound_usd, run.held_usd))
        if cover.bound_usd == inf and run.held is None:
            run.bound_usd = inf
        refuted = _decide(run, cover, members, nodes)
        if cover.ending not in (Ending.OPTIMAL, Ending.INFEASIBLE):
            run.stopped = run.stopped or _STOPPED.get(cover.ending)
            run.failed = cover.ending is Ending.FAILED
            return
        if not refuted or run.stopped is not None:
            return
        run.counts["refuted"] = run.counts.get("refuted", 0) + len(refuted)
        for group in refuted:
            candidates.refute(*group)


def _beyond_caps(snapshot: Snapshot) -> bool:
    """Return whether loads and widths alone need more than the fleet may hold: no plan exists."""
    if not snapshot.caps.any:
        return False
    least = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    return not snapshot.caps.allow(least.rollout_nodes, least.train_nodes)


def _candidates(run: _Run) -> _Candidates:
    """Return the candidate groups of this kind of snapshot (module docstring)."""
    if single_node_sets.is_for(run.snapshot):
        return _Admitted(run.cost, run.options, run.deadline)
    if maximal_sets.is_for(run.snapshot):
        return MaximalSets(run.snapshot, run.options, run.deadline)
    return _Decided(run.cost, run.options, run.deadline)


def _choose(run: _Run, members: IntArray, nodes: IntArray) -> Cover:
    """Return a cover cheaper than the plan held, if there is one, and its bound."""
    began = run.deadline.elapsed_s
    snapshot = run.snapshot
    progress: Callable[[float, float | None], None] | None = None
    if run.options.progress is not None:
        tell = run.options.progress

        def progress(bound_usd: float, best_usd: float | None) -> None:
            best = run.held_usd if best_usd is None else best_usd
            if 0 < best < inf:
                words = f"proved: ${best:,.2f}/h, bound ${bound_usd:,.2f}/h"
                tell(words, min(int(100 * bound_usd / best), 100), 100)

    cover = solve_cover(
        CoverProblem(
            n_jobs=len(snapshot),
            members=members,
            nodes=nodes,
            usd=(snapshot.usd_per_hour(1, 0), snapshot.usd_per_hour(0, 1)),
            caps=(snapshot.caps.max_rollout_nodes_total, snapshot.caps.max_train_nodes_total),
        ),
        run.deadline,
        incumbent_usd=None if run.held is None else run.held_usd,
        node_limit=run.nodes_left(),
        seed=run.options.seed,
        progress=progress,
    )
    run.timed("solve", began)
    run.status = cover.status
    for name in ("pairs", "cuts", "nodes"):
        run.counts[name] = run.counts.get(name, 0) + cover.counts[name]
    return cover


def _decide(
    run: _Run, cover: Cover, members: IntArray, nodes: IntArray
) -> list[tuple[tuple[int, ...], Nodes]]:
    """Decide the groups chosen, hold the plan they give; return those refuted.

    A job covered twice leaves all but the first of its groups. Jobs of a refuted group run as
    :func:`_instead` says, and where time is over before that is known, each alone: if that is
    within the caps.
    """
    if cover.chosen is None:
        return []
    began = run.deadline.elapsed_s
    refuted: list[tuple[tuple[int, ...], Nodes]] = []
    groups: list[PlacedGroup] = []
    seen: set[int] = set()
    for column in cover.chosen:
        jobs = tuple(job for job in members[column].tolist() if job >= 0)
        rollout, train = nodes[column].tolist()
        left = [job for job in jobs if job not in seen]
        seen |= set(left)
        found: list[PlacedGroup] = []
        try:
            for pair in _in_turn(run, jobs, (rollout, train)):
                group = run.cost.decide(jobs, pair)
                if group is None:
                    refuted += _refutations(run, jobs, pair)
                    found = _instead(run, jobs)
                    break
                found = [group]
        except OutOfTimeError:
            run.stopped = StoppedBy.TIME
        placed = {job for group in found for job in group.members}
        kept = [group.without(job for job in group.members if job not in left) for group in found]
        groups += [group for group in kept if group is not None]
        groups += [solo_group(run.snapshot, job) for job in left if job not in placed]
    run.timed("decisions", began)
    totals = [sum(group.nodes[pool] for group in groups) for pool in (0, 1)]
    if run.snapshot.caps.allow(*totals):
        run.hold(tuple(groups))
    return refuted


def _in_turn(run: _Run, jobs: tuple[int, ...], nodes: Nodes) -> list[Nodes]:
    """Return node counts to decide, the group's own last; one refuted refutes the group.

    With rates, larger groups first with a node for each job in one pool: far fewer pinnings, and
    refuted there, they are refuted on every number of those nodes.
    """
    if run.snapshot.limits.max_rate == 1 or len(jobs) <= DECIDED_SIZE:
        return [nodes]
    most = run.cost.most_nodes(jobs)
    more = [(most[0], nodes[1]), (nodes[0], most[1])]
    return [*(pair for pair in more if pair not in (nodes, most)), nodes]


def _refutations(
    run: _Run, jobs: tuple[int, ...], nodes: Nodes
) -> list[tuple[tuple[int, ...], Nodes]]:
    """Return what to refute: the group, or with rates those of its subsets that are to blame.

    Loads with rates admit many sets that hold a smaller one without a schedule; refuting that one
    refutes all of them (heredity). Smaller subsets than these are decided beforehand.
    """
    blamed = []
    if run.snapshot.limits.max_rate > 1 and len(jobs) > DECIDED_SIZE + 1:
        for fewer in combinations(jobs, len(jobs) - 1):
            if run.cost.decide(fewer, nodes) is None:
                blamed.append((fewer, nodes))
    return blamed or [(jobs, nodes)]


def _instead(run: _Run, jobs: tuple[int, ...]) -> list[PlacedGroup]:
    """Return groups of the jobs of a refuted one, for a plan to hold; none when none was found.

    The cheapest group they can be. With rates that may take long to decide, so in two parts of
    sets decided beforehand, the cheapest.
    """
    if run.snapshot.limits.max_rate == 1:
        group = run.cost.cheapest(jobs, inf)
        return [] if group is None else [group]
    best: list[PlacedGroup] = []
    best_usd = inf
    for size in range(1, DECIDED_SIZE + 1):
        for part in combinations(jobs, size):
            rest = tuple(job for job in jobs if job not in part)
            if len(rest) > DECIDED_SIZE or part[0] != jobs[0]:
                continue
            parts = [run.cost.cheapest(each, inf) for each in (part, rest) if each]
            found = [group for group in parts if group is not None]
            usd = usd_of(run.snapshot, found)
            if len(found) == len(parts) and usd < best_usd:
                best, best_usd = found, usd
    return best
