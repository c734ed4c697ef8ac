"""One loss after another: a checked plan on one node less, or what is known of there being none.

The order in which plans are tried, and why one plan serves every node of a pool, is in
:mod:`planner.size.node_loss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from instances.errors import UnsupportedError
from instances.jobs import Job, JobTable
from instances.plan import SNAPSHOT_HOURS, Fleet, Limits, Plan
from models.bounds.volume import volume
from models.problem.options import SolveOptions
from models.problem.result import Result, StoppedBy, Termination
from models.problem.snapshot import FleetCaps, Snapshot
from planner.placement.checked_plan import dedicated_of, require_rules
from planner.placement.group_state import GroupState
from planner.placement.placer import Placer, Room
from planner.placement.warm_start import warm_start
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import ReplayResult
from planner.replay.demand import Pool
from planner.size.loss_states import (
    State,
    group_of,
    less,
    lost_jobs,
    nodes_of,
    only,
    renamed,
    shape_key,
)

__all__ = ["HOW", "How", "LossTester", "NodeLoss"]

How = Literal["spare", "few", "group", "all", "search", "none"]

#: How a loss is survived, in the order in which that is tried; ``none``: it is not.
HOW: Final[tuple[How, ...]] = ("spare", "few", "group", "all", "search", "none")
_SECONDS: Final = 3600.0 * SNAPSHOT_HOURS
_HOUR_S: Final = 3600.0
#: Most jobs that are given to the exhaustive method.
_FEW_JOBS: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoss:
    """The loss of a node of one pool in one state of a fleet.

    Attributes
    ----------
    at_s : float
        When the state is first met, seconds of the trace.
    hours : float
        How long it lasts, over all times it is met.
    how : str
        One of ``HOW``.
    proved : bool
        Of ``none``: that no valid plan exists; of the others: true, there is a checked one.
    jobs_moved : int
        Jobs that restart, at the node whose loss moves most; 0 where the loss is not survived.
    restart_s : float
        Their restart seconds, summed.
    """

    pool: Pool
    at_s: float
    hours: float
    jobs_present: int
    how: How
    proved: bool
    jobs_moved: int
    restart_s: float

    @property
    def survived(self) -> bool:
        """Whether all jobs go on."""
        return self.how != "none"


@dataclass(slots=True)
class Witness:
    """A plan that survives the loss, and the jobs that restart whichever node is lost."""

    how: How
    groups: tuple[GroupState, ...]
    moved: frozenset[str]


@dataclass
class LossTester:
    """Tests one loss after another, and remembers what serves others.

    Attributes
    ----------
    caps : Fleet
        Nodes there are before the loss, spare ones included.
    """

    result: ReplayResult
    options: PolicyOptions
    limits: Limits
    caps: Fleet
    search_s: float
    found: list[tuple[Room, frozenset[str], tuple[GroupState, ...]]] = field(default_factory=list)
    hopeless: list[tuple[Room, frozenset[str]]] = field(default_factory=list)

    def loss(self, state: State, pool: Pool) -> NodeLoss | None:
        """Return what becomes of the loss of a node; ``None`` when nobody uses the pool."""
        nodes = list(lost_jobs(state, pool))
        if not nodes:
            return None
        after = self._after(pool)
        used = state.used()
        spare = used[0] <= after[0] and used[1] <= after[1]
        lost: dict[frozenset[str], frozenset[str]] = {}
        witness: Witness | None
        if spare:
            witness = Witness("spare", renamed(state.groups, pool), frozenset())
        else:
            witness, lost = self._replaced(state, nodes, after)
        if witness is None:
            return self._failed(state, pool, after)
        self._require_valid(state, witness.groups, after)
        moved = [lost.get(jobs, witness.moved | jobs) for jobs in nodes]
        restart_s = {job.job_id: job.restart_s for job in (*state.jobs, *state.dedicated)}
        worst = max(moved, key=lambda jobs: (len(jobs), sum(restart_s[j] for j in sorted(jobs))))
        return NodeLoss(
            pool=pool,
            at_s=state.at_s,
            hours=state.hours,
            jobs_present=len(restart_s),
            how=witness.how,
            proved=True,
            jobs_moved=len(worst),
            restart_s=sum(restart_s[j] for j in sorted(worst)),
        )

    def _after(self, pool: Pool) -> Room:
        """Return the nodes of each pool that are left."""
        rollout, train = self.caps.rollout_nodes, self.caps.train_nodes
        return (rollout - 1, train) if pool == "rollout" else (rollout, train - 1)

    def _failed(self, state: State, pool: Pool, after: Room) -> NodeLoss:
        names = frozenset(job.job_id for job in state.jobs)
        room = less(after, state.own())
        return NodeLoss(
            pool=pool,
            at_s=state.at_s,
            hours=state.hours,
            jobs_present=len(names) + len(state.dedicated),
            how="none",
            proved=self._is_hopeless(room, names),
            jobs_moved=0,
            restart_s=0.0,
        )

    def _replaced(
        self, state: State, nodes: Sequence[frozenset[str]], after: Room
    ) -> tuple[Witness | None, dict[frozenset[str], frozenset[str]]]:
        """Return a plan on the nodes left, if one is found, and who moves per node lost.

        Nodes that are not in the mapping move the witness's jobs and their own.
        """
        room = less(after, state.own())
        jobs = state.jobs
        names = frozenset(job.job_id for job in jobs)
        if min(room) < 0 or self._is_hopeless(room, names):
            return None, {}
        base = self._placer()
        base.adopt(state.groups)
        own: dict[frozenset[str], frozenset[str]] = {}
        best: Witness | None = None
        for lost in dict.fromkeys(nodes):
            groups = placed_anew(base, [j for j in jobs if j.job_id in lost], room)
            if groups is not None:
                own[lost] = lost
                if best is None or len(lost) < len(best.moved):
                    best = Witness("few", groups, lost)
                if best.groups is not groups:
                    self._require_valid(state, groups, after)
        if best is not None:
            return best, own
        for group in sorted(state.groups, key=lambda g: (len(g.jobs), g.number)):
            members = frozenset(job.job_id for job in group.jobs)
            groups = placed_anew(base, [j for j in jobs if j.job_id in members], room)
            if groups is not None:
                return Witness("group", groups, members), {}
        return self._from_nothing(state, jobs, room), {}

    def _from_nothing(self, state: State, jobs: list[Job], room: Room) -> Witness | None:
        """Return a plan of all jobs anew: by the placer, known from another state, or searched."""
        names = frozenset(job.job_id for job in jobs)
        how: How = "all"
        groups = placed_anew(self._placer(), jobs, room)
        if groups is None:
            how, groups = "search", self._known(room, names)
        if groups is None and not self._is_hopeless(room, names):
            groups = self._searched(jobs, room)
        if groups is None:
            return None
        self.found.append((room, names, groups))
        same = {shape_key(group) for group in state.groups}
        moved = [job.job_id for g in groups if shape_key(g) not in same for job in g.jobs]
        return Witness(how, groups, frozenset(moved))

    def _placer(self) -> Placer:
        return Placer(self.options.cluster, self.limits, self.options.placer)

    def _known(self, room: Room, names: frozenset[str]) -> tuple[GroupState, ...] | None:
        """Return a plan known from another state, the jobs that are not here taken out."""
        for had, present, groups in self.found:
            if had[0] <= room[0] and had[1] <= room[1] and names <= present:
                return only(groups, names)
        return None

    def _is_hopeless(self, room: Room, names: frozenset[str]) -> bool:
        """Return whether it is proved that these jobs have no plan on so many nodes."""
        if min(room) < 0:
            return True
        for had, present in self.hopeless:
            if room[0] <= had[0] and room[1] <= had[1] and present <= names:
                return True
        least = volume(self._table(names), self.options.cluster, self.limits)
        if least.rollout_nodes > room[0] or least.train_nodes > room[1]:
            self.hopeless.append((room, names))
            return True
        return False

    def _table(self, names: frozenset[str]) -> JobTable:
        jobs = self.result.jobs
        return jobs.take([i for i, job_id in enumerate(jobs.job_id) if job_id in names])

    def _searched(self, jobs: list[Job], room: Room) -> tuple[GroupState, ...] | None:
        """Return a plan that a snapshot method finds in time; a proof that there is none is kept.

        Raises
        ------
        KeyboardInterrupt
            At Ctrl-C, which methods take for their own end.
        """
        if self.search_s <= 0:
            return None
        names = frozenset(job.job_id for job in jobs)
        snapshot = Snapshot(
            table=self._table(names),
            cluster=self.options.cluster,
            limits=self.limits,
            caps=FleetCaps(max_rollout_nodes_total=room[0], max_train_nodes_total=room[1]),
        )
        result = _solved(snapshot, self.search_s)
        if result.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        if result.termination is Termination.INFEASIBLE:
            self.hopeless.append((room, names))
        if result.plan is None:
            return None
        by_id = {job.job_id: job for job in jobs}
        return tuple(group_of(version, by_id.__getitem__) for version in result.plan.groups)

    def _require_valid(self, state: State, groups: Sequence[GroupState], after: Room) -> None:
        """Check a plan of the state's jobs on the nodes left, by the independent checker."""
        table = self._table(frozenset(job.job_id for job in (*state.jobs, *state.dedicated)))
        own = state.own()
        rollout, train = nodes_of(groups)
        rollout, train = own[0] + rollout, own[1] + train
        plan = Plan(
            policy=self.result.policy,
            durations="snapshot",
            cluster=self.options.cluster,
            jobs=table,
            limits=self.limits,
            groups=tuple(group.version(0.0, _SECONDS) for group in groups),
            usd_total=SNAPSHOT_HOURS * self.options.cluster.usd_per_hour(rollout, train),
            dedicated=dedicated_of(state.dedicated),
            fleet=Fleet(*after),
        )
        require_rules(plan, f"A plan after the loss of a node at {state.at_s / _HOUR_S:.4g} h")


def _solved(snapshot: Snapshot, seconds: float) -> Result:
    """Return what the exact method for so many jobs finds, or local search where they refuse.

    Local search moves from plan to plan, and under caps may not have one to begin with: it looks
    for the cheapest plan without them, which may or may not keep to them, and proves nothing.
    """
    from models.exact.methods import solve
    from planner.placement import bounded_search

    options = SolveOptions(time_limit_s=seconds)
    small = len(snapshot) <= _FEW_JOBS and snapshot.limits.max_rate == 1
    try:
        return solve("exhaustive" if small else "set-partition", snapshot, options)
    except UnsupportedError:
        free = replace(snapshot, caps=FleetCaps())
        options = replace(options, warm_start=warm_start(free))
        result = bounded_search.solve(bounded_search.LOCAL_SEARCH, free, options)
    held = result.plan.groups if result.plan is not None else ()
    rollout = sum(len(group.rollout_nodes) for group in held)
    train = sum(len(group.train_nodes) for group in held)
    fits = bool(held) and snapshot.caps.allow(rollout, train)
    return result if fits else replace(result, plan=None, termination=Termination.NO_PLAN_LIMIT)


def placed_anew(base: Placer, jobs: Sequence[Job], room: Room) -> tuple[GroupState, ...] | None:
    """Return the groups once these jobs are taken out and placed again, in order of arrival.

    ``room`` is all nodes that groups may use. ``None``: a job finds no place.
    """
    placer = base.fork()
    for job in jobs:
        if job.job_id in placer:
            placer.remove(job.job_id)
    for job in jobs:
        free = less(room, nodes_of(placer.groups()))
        if min(free) < 0 or placer.try_place(job, free) is None:
            return None
    groups = placer.groups()
    return tuple(groups) if min(less(room, nodes_of(groups))) >= 0 else None
