"""``regroup``: every hour the least-cost groups of all jobs present, whatever they move.

Between reviews it is ``weave``: newcomers go where the placer puts them, and nobody moves. At a
review (every ``review_h`` hours after the first arrival) all jobs are planned anew by the exact
search of :mod:`models.replan.replanning`, whose value is

``price of the groups x hours they are held for + price of the moves``.

* By default a move costs next to nothing in that sum, so the plan costs the least per hour, and of
  such plans the one that moves the fewest jobs is taken: which new group continues which old one
  is part of the search. This is the comparison policy of the publication.
* ``min_gain_usd``: every move must save so many dollars by the next review.
* ``pays_back``: moves only if the saving pays for them, the rule of :mod:`planner.policies.repack`
  in its reading ``residual``: the price of a move is what the job's own nodes cost while it
  restarts (plus ``min_gain_usd``), and a saving lasts until the first of the jobs present leaves.
  What ``repack`` does besides is not done: no search at arrivals and departures, no limit of moves.

Whoever moves restarts (``Change.moved``), and does not move again before that is over. With
``keep_slo`` only jobs move that are ahead of their SLO by their restart
(:mod:`planner.policies.repack_ledger`), so plans stay valid; without it a move may cost a job its
SLO, as it may in the publication, and the plan is no longer held against every rule.

*Current profiles*. Given a ``profile``, phase seconds are measured anew at every review, and the
groups are planned by them, deadlines ``sigma_j T_j`` at the present ``T_j``. A group whose pins
have no schedule for its present seconds loses members until one is found, the one first that is
farthest from the seconds it was placed with: they are placed anew. If none may move, the group
stays as it is until the next review. ``resubmit`` (:class:`Resubmit`) does that much and no more:
a job that leaves its envelope comes back as a new arrival to the placer.

Of more than ``max_jobs`` jobs (60), parts of the fleet of at most so many are planned anew one
after the other, as ``repack`` does (:mod:`planner.policies.repack_scope`): then it is no optimum of
all. A fixed fleet is refused: a search may need more nodes for a time than there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from instances.checker import check_group
from instances.errors import CheckError, InputError, UnsupportedError
from instances.jobs import Job, JobTable
from models.group.cycle_ratio import least_period, order_of
from models.group.known_groups import KnownGroups
from models.group.period import construct
from models.problem.group_shape import Schedule
from models.problem.options import SolveOptions
from models.replan.replanning import SetMemory
from planner.placement.group_state import GroupState
from planner.placement.placer import Placer, Room
from planner.policies.policy import Change, NoFleet, PolicyOptions
from planner.policies.repack_change import usd_per_hour_of
from planner.policies.repack_ledger import JobLedger
from planner.policies.repack_params import RepackParams
from planner.policies.repack_problem import RepackProblem
from planner.policies.repack_scope import ScopeFinder
from planner.policies.weave import Weave

__all__ = ["Profile", "Regroup", "RegroupParams", "Regrouping", "Resubmit"]

#: Phase seconds (rollout, train) of a job that has run for so many seconds, restarts left out.
Profile = Callable[[str, float], tuple[float, float]]

_HOUR_S: Final = 3600.0
#: Hours that prices are weighed by where moves are to cost next to nothing, and that price, $: all
#: moves of 60 jobs together are less than a cent an hour for so long.
_LONG_H: Final = 500.0
_NOTHING_USD: Final = 0.05
#: Hours that count as for ever.
_FOREVER_H: Final = 1e5
#: Branch-and-bound nodes of one search: the same answer on every machine.
_NODES: Final = 30_000
#: Seconds that one search may take, far above what its nodes take.
_PATIENCE_S: Final = 60.0
_REL: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class RegroupParams:
    """How ``regroup`` decides.

    Attributes
    ----------
    review_h : float
        Hours between two reviews.
    min_gain_usd : float
        What every move must save by the next review, $; with ``pays_back`` beyond its own price.
    pays_back : bool
        Move only if the saving pays for it.
    keep_slo : bool
        Move only jobs that are ahead of their SLO by their restart; not with profiles.
    max_jobs : int
        Most jobs planned anew at once.
    freeze : frozenset of str
        Ids of jobs that never move.

    Raises
    ------
    InputError
        When a number is out of its range.
    """

    review_h: float = 1.0
    min_gain_usd: float = 0.0
    pays_back: bool = False
    keep_slo: bool = True
    max_jobs: int = 60
    freeze: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not (isfinite(self.review_h) and self.review_h > 0):
            raise InputError(f"Expected review_h > 0, got {self.review_h!r}.")
        if not (isfinite(self.min_gain_usd) and self.min_gain_usd >= 0):
            raise InputError(f"Expected min_gain_usd >= 0, got {self.min_gain_usd!r}.")
        if self.max_jobs < 2:
            raise InputError(f"Expected max_jobs >= 2, got {self.max_jobs!r}.")

    @classmethod
    def of(cls, repack: RepackParams) -> RegroupParams:
        """Return what the options of ``repack`` mean here."""
        return cls(
            review_h=1.0 if repack.review_h is None else repack.review_h,
            min_gain_usd=repack.min_gain_usd,
            max_jobs=60 if repack.max_scope is None else repack.max_scope,
            freeze=repack.freeze,
        )


@dataclass(frozen=True, kw_only=True)
class Regrouping:
    """One review that changed something.

    Attributes
    ----------
    at_s : float
    jobs, moves : int
        Jobs present, and those of them that moved.
    usd_per_hour_before, usd_per_hour_after : float
        Price of all groups; before: as they were, valid still or not.
    move_usd : float
        What the nodes of the moved jobs cost while these restart.
    proved : bool
        Whether every search of the review was proved; ``True`` where none was made.
    """

    at_s: float
    jobs: int
    moves: int
    usd_per_hour_before: float
    usd_per_hour_after: float
    move_usd: float
    proved: bool


class Resubmit(NoFleet, Weave):
    """``weave`` that measures phase seconds anew, and resubmits jobs out of their envelope.

    Attributes
    ----------
    placer : Placer
    regroupings : list of Regrouping
    """

    name = "resubmit"
    pins_fixed = False

    def __init__(
        self,
        options: PolicyOptions,
        params: RegroupParams | None = None,
        profile: Profile | None = None,
    ) -> None:
        if options.fleet is not None:
            raise UnsupportedError(
                f"Policy '{self.name}' does not keep to a fixed fleet: jobs that it moves may need "
                "more nodes. Use weave, solo, colocated, random or most-idle with a fleet."
            )
        super().__init__(options)
        self.options = options
        self.params = RegroupParams.of(options.repack) if params is None else params
        self.review_s: float | None = self.params.review_h * _HOUR_S
        if profile is not None and self.params.keep_slo:
            raise InputError(
                "Expected keep_slo False with profiles, got True: who is ahead of an SLO is known "
                "by planned seconds only."
            )
        # else its groups keep every rule, at seconds that the trace does not know or without SLOs
        self.promises_valid = self.params.keep_slo
        self.regroupings: list[Regrouping] = []
        self.ledger = JobLedger(options.convention)
        self._profile = profile
        self._envelope: dict[str, Job] = {}

    # -- events -----------------------------------------------------------------------------

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Place the job."""
        change = super().arrive(job, now_s, room)
        self._envelope[job.job_id] = job
        self.ledger.arrive(job, now_s)
        return self._noted(change, now_s)

    def depart(self, job: Job, now_s: float) -> Change:
        """Remove the job and re-optimise the offsets of those left."""
        del self._envelope[job.job_id]
        self.ledger.depart(job, now_s)
        change = super().depart(job, now_s)
        self._noted(change, now_s)
        return change

    def _noted(self, change: Change | None, now_s: float) -> Change | None:
        """Take note of the pace of groups that changed."""
        for state in () if change is None else change.groups:
            self.ledger.run(state, now_s)
        return change

    def review(self, now_s: float) -> Change:
        """Measure phase seconds, and place jobs anew where that is called for."""
        before = {state.number: state for state in self.placer.groups()}
        kept: list[GroupState] = []
        stuck: list[GroupState] = []
        out: list[Job] = []
        for state in before.values():
            left, evicted = self._measured(state, now_s)
            if left is None and not evicted:
                stuck.append(state)
            elif left is not None:
                kept.append(left)
            out += evicted
        after, proved = self._planned(kept, stuck, out, now_s)
        return self._change(before, after, now_s, proved=proved)

    def _planned(
        self,
        kept: list[GroupState],
        stuck: list[GroupState],
        evicted: list[Job],
        now_s: float,
    ) -> tuple[list[GroupState], bool]:
        """Return all groups anew, and whether it was proved that they are the best ones."""
        placer = self._placer_of([*kept, *stuck])
        for job in evicted:
            placer.place(job)
        return placer.groups(), True

    # -- current profiles -------------------------------------------------------------------

    def may_move(self, job_id: str, now_s: float) -> bool:
        """Return whether a job may be moved: not frozen, not restarting, and by its SLO."""
        if job_id in self.params.freeze:
            return False
        if self.params.keep_slo:
            return self.ledger.may_move(job_id, now_s, None)
        return self.ledger[job_id].paused_until_s <= now_s

    def _running_s(self, job_id: str, now_s: float) -> float:
        """Return the seconds that a job has run, its restarts left out."""
        known = self.ledger[job_id]
        paused_s = known.paused_s - max(known.paused_until_s - now_s, 0.0)
        return now_s - known.job.arrival_s - paused_s

    def _now(self, job: Job, now_s: float) -> Job:
        """Return a job with its present phase seconds."""
        if self._profile is None:
            return job
        rollout_s, train_s = self._profile(job.job_id, self._running_s(job.job_id, now_s))
        return replace(job, rollout_s=rollout_s, train_s=train_s)

    def _measured(self, state: GroupState, now_s: float) -> tuple[GroupState | None, list[Job]]:
        """Return a group with its present seconds, and the members it had to give up.

        ``None`` and nobody: it has no schedule, and nobody of it may move.
        """
        jobs = tuple(self._now(job, now_s) for job in state.jobs)
        if jobs == state.jobs:
            return state, []
        found = _scheduled(replace(state, jobs=jobs))
        evicted: list[Job] = []
        left = replace(state, jobs=jobs)
        while found is None:
            movable = [job for job in left.jobs if self.may_move(job.job_id, now_s)]
            if not movable:
                return None, []
            gone = max(movable, key=lambda job: (self._departure(job), job.job_id))
            evicted.append(gone)
            if len(left.jobs) == 1:
                return None, evicted
            left = left.without(gone.job_id)
            found = _scheduled(left)
        return found, evicted

    def _departure(self, job: Job) -> float:
        """Return how far a job is from the seconds it was placed with, relative."""
        placed = self._envelope[job.job_id]
        return max(abs(job.rollout_s / placed.rollout_s - 1), abs(job.train_s / placed.train_s - 1))

    # -- what became of it ------------------------------------------------------------------

    def _placer_of(self, groups: Iterable[GroupState]) -> Placer:
        """Return a placer that holds these groups; it never gives a number twice."""
        placer = Placer(self.options.cluster, self.options.limits, self.options.placer)
        placer.adopt(sorted(groups, key=lambda state: state.number))
        placer.start_after(self.placer.created)
        return placer

    def _change(
        self,
        before: Mapping[int, GroupState],
        groups: Sequence[GroupState],
        now_s: float,
        *,
        proved: bool,
    ) -> Change:
        """Make these the groups, and tell what that changes."""
        after = {state.number: state for state in groups}
        if after == dict(before):
            return Change()
        homes = _pins_of(before.values())
        moved = tuple(
            job_id for job_id, home in _pins_of(after.values()).items() if homes[job_id] != home
        )
        placer = self._placer_of(after.values())
        self.placer = placer
        changed = tuple(s for number, s in after.items() if before.get(number) != s)
        for job_id in moved:
            self.ledger.move(job_id, now_s)
        for state in changed:
            self.ledger.run(state, now_s)
            for job in state.jobs:
                if job.job_id in moved:
                    self._envelope[job.job_id] = job
            self._require_valid(state, now_s)
        cluster = self.options.cluster
        if moved or len(after) != len(before):
            self.regroupings.append(
                Regrouping(
                    at_s=now_s,
                    jobs=len(homes),
                    moves=len(moved),
                    usd_per_hour_before=usd_per_hour_of(list(before.values()), cluster),
                    usd_per_hour_after=usd_per_hour_of(groups, cluster),
                    move_usd=sum(self._restart_usd(self._envelope[job_id]) for job_id in moved),
                    proved=proved,
                )
            )
        ended = tuple(number for number in before if number not in after)
        return Change(changed, ended, None, moved)

    def _restart_usd(self, job: Job) -> float:
        """Return what a job's own nodes cost while it restarts, $."""
        own = self.options.cluster.usd_per_hour(job.rollout_nodes, job.train_nodes)
        return own * job.restart_s / _HOUR_S

    def _require_valid(self, state: GroupState, now_s: float) -> None:
        """Hold a group against the rules at its present seconds, where nobody else does."""
        if self.promises_valid:
            return
        found = check_group(
            state.version(now_s, now_s + state.period_s),
            JobTable.from_jobs(state.jobs),
            self.options.cluster,
            self.options.limits,
        )
        if found:
            raise CheckError(
                f"Policy {self.name} made an invalid plan at {now_s:.1f} s: {found[0].message}"
            )


class Regroup(Resubmit):
    """The policy; see the module docstring."""

    name = "regroup"

    def __init__(
        self,
        options: PolicyOptions,
        params: RegroupParams | None = None,
        profile: Profile | None = None,
    ) -> None:
        super().__init__(options, params, profile)
        self._known = KnownGroups()
        self._memory = SetMemory()
        self._scopes = ScopeFinder(options.cluster, options.repack.scopes)
        self._fresh: dict[int, tuple[int, int]] = {}

    def _planned(
        self,
        kept: list[GroupState],
        stuck: list[GroupState],
        evicted: list[Job],
        now_s: float,
    ) -> tuple[list[GroupState], bool]:
        """Return all groups anew, and whether it was proved that they are the best ones."""
        if self._profile is not None:  # verdicts are about jobs of other seconds
            self._known, self._memory = KnownGroups(), SetMemory()
        else:
            self._known.keep_only(list(self.ledger.running))
        groups = {state.number: state for state in kept}
        for state in kept:
            self._extend_fresh(state)
        created = max([self.placer.created, *groups], default=0)
        newcomers, proved = list(evicted), True
        for part in self._scopes.scopes(groups, (), len(evicted), self.params.max_jobs):
            states = [groups.pop(number) for number in part if number in groups]
            if not states and not newcomers:
                continue
            whole = not groups
            problem = self._problem(states, newcomers, now_s, created + 1)
            found = problem.solve(
                None,
                known=self._known,
                memory=self._memory if whole else None,
                node_limit=_NODES,
                deadline=SolveOptions(time_limit_s=_PATIENCE_S).start(),
            )
            proved = proved and found.proved
            newcomers = []
            for state in problem.states(found):
                groups[state.number] = state
                created = max(created, state.number)
                self._extend_fresh(state)
        self._fresh = {n: self._fresh[n] for n in self._fresh if n in groups}
        return [*groups.values(), *stuck], proved

    def _problem(
        self, states: list[GroupState], newcomers: list[Job], now_s: float, next_number: int
    ) -> RepackProblem:
        """State the problem of some groups, and of jobs that have to go somewhere else."""
        jobs = [job for state in states for job in state.jobs]
        params = self.params
        if params.pays_back:
            move_usd = [self._restart_usd(job) + params.min_gain_usd for job in jobs]
            together = max(len(jobs), 1)
            hours = min(self.ledger.first_leaving_h(now_s, together), _FOREVER_H)
        elif params.min_gain_usd > 0:
            move_usd, hours = [params.min_gain_usd] * len(jobs), params.review_h
        else:
            move_usd, hours = [_NOTHING_USD] * len(jobs), _LONG_H
        return RepackProblem(
            states,
            newcomers,
            self.options,
            fresh=[self._fresh[state.number] for state in states],
            next_number=next_number,
            move_usd=move_usd,
            may_move=[self.may_move(job.job_id, now_s) for job in jobs],
            lasting_h=hours,
        )

    def _extend_fresh(self, state: GroupState) -> None:
        """Remember the first node numbers that the group has never used."""
        rollout, train = self._fresh.get(state.number, (0, 0))
        self._fresh[state.number] = (
            max(rollout, max(state.rollout_nodes) + 1),
            max(train, max(state.train_nodes) + 1),
        )


def _pins_of(
    groups: Iterable[GroupState],
) -> dict[str, tuple[int, frozenset[int], frozenset[int]]]:
    """Return every job's group and nodes."""
    return {
        job.job_id: (state.number, frozenset(r), frozenset(t))
        for state in groups
        for job, r, t in zip(state.jobs, state.rollout_pins, state.train_pins, strict=True)
    }


def _scheduled(state: GroupState) -> GroupState | None:
    """Return a group on its pins with starts for its jobs' seconds; ``None``: none was found.

    Looked for are the group's own orders, and orders made anew.
    """
    shape = state.shape()
    limit_s = min(job.deadline_s * rate for job, rate in zip(state.jobs, state.rates, strict=True))
    same: Schedule = least_period(shape, order_of(shape, state.period_s, state.starts_s))
    best: Schedule | None = same
    if same.period_s > limit_s:
        best = construct(shape, limit_s=limit_s)
    if best is None or best.period_s > limit_s * (1 + _REL):
        return None
    return replace(state, period_s=best.period_s, starts_s=best.starts_s)
