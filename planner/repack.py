"""``repack``: an online policy that moves running jobs, and pays for it.

After every arrival and departure (and every ``review_h`` hours) running groups are planned anew
by exact search (:mod:`models.replan`): merging two groups, dissolving one, moving a job, swapping
two, and any chain of these are one problem, the least of

``price of the groups x hours a saving lasts + price of the moves``.

A move costs its job ``restart_s`` seconds without progress on nodes that are paid for: priced at
what the job's own nodes cost meanwhile, plus the overlap of old nodes, plus ``min_gain_usd``.
Where the number of moves is limited, what it must earn rises and falls with their use.

*How long does a saving last?* As long as it could not be had later, too, when things are weighed
again with other moves on offer.

* ``residual``: until the first of the jobs planned together leaves, by the mean residual life of
  jobs, fitted from departures so far;
* ``break-even``: nobody knows, so a change is made once it would have paid for its moves had it
  been made when it became possible, as in ski rental (Karlin et al. 1988): whatever happens then,
  no more than twice the cost of the better of moving at once and never;
* ``oracle remaining``: it is known when each job present leaves (arrivals are not): a saving
  lasts until one of the groups that the change replaces would have ended by itself.

SLO: a job is moved only when it is ahead of its promise by its whole restart
(:mod:`planner.repack_ledger`), so its SLO holds whatever comes later. Money never breaks one.

In a fleet of more than ``max_scope`` jobs parts of it are planned anew, one after the other
(:mod:`planner.repack_scope`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from typing import Final

from instances.errors import UnsupportedError
from instances.jobs import Job
from models.covering_lp import Ending
from models.known_groups import KnownGroups
from models.options import Deadline, SolveOptions
from models.replan import Replan, SetMemory
from planner.group_state import GroupState
from planner.leaving import left_of
from planner.placer import AdmissionKind, Room, require_placeable
from planner.policy import Change, NodesToHold, NoFleet, PolicyOptions
from planner.repack_change import Proposal, proposals_of
from planner.repack_ledger import JobLedger
from planner.repack_problem import RepackProblem, holding
from planner.repack_scope import ScopeFinder

__all__ = ["MovePrice", "Repack"]

_HOUR_S: Final = 3600.0
#: Hours for which ``break-even`` looks for changes, about the stay of a job; each change found
#: is then held against how long it was there to be made.
_LONG_H: Final = 24.0
#: Jobs planned anew at once: of single nodes, with gangs among them, with rates. The more of
#: either, the more groups have to be decided beforehand: so many take tens of milliseconds.
_TOGETHER: Final = 41
_TOGETHER_GANGS: Final = 20
_TOGETHER_RATES: Final = 10
#: A newcomer invites so many groups for each this many jobs that are planned together.
_PER_INVITATION: Final = 4
#: Hours between reviews of ``break-even``, unless others are asked for.
_REVIEW_H: Final = 1.0
#: Hours that count as for ever: beyond, moves are nothing within the tolerance of a search.
_FOREVER_H: Final = 1e5
#: Step of the dual ascent on the moves allowed: ten moves too many make a move 2.7 x as dear.
_STEP: Final = 0.1
#: Nodes of one search beyond its first improvements: the same answer on every machine.
_NODES: Final = 3_000
#: Seconds one search may take before the best plan so far counts; far above what its nodes
#: take, so that the clock decides nothing but where something hangs.
_PATIENCE_S: Final = 60.0
#: A search takes every move for as dear as a restart of so many seconds at least: of plans of
#: one price the one with fewer moves, though they cost nothing.
_LEAST_S: Final = 1.0
#: Events after which facts about groups of departed jobs are forgotten.
_FORGET_EVERY: Final = 50
#: Money is compared within this, relative: far above round-off, far below a cent.
_USD_REL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class MovePrice:
    """What one move of a job costs, $: its restart, the overlap, and what it must earn."""

    restart_usd: float
    overlap_usd: float
    gain_usd: float

    @property
    def usd(self) -> float:
        """All of it."""
        return self.restart_usd + self.overlap_usd + self.gain_usd


class Repack(NoFleet):
    """The policy; see the module docstring.

    Kinds of admission are those of the placer, and ``repacked``: running jobs were moved for it.

    Attributes
    ----------
    groups : dict of int to GroupState
        Running groups by number; no number is used twice.
    ledger : JobLedger
    decision_s : list of float
        Seconds of each event, where a clock was given.
    searches, searches_cut_short : int
        Searches so far, and those that ended without a proof.
    interrupted : bool
        Whether Ctrl-C has ended a search: no further parts of the fleet are looked at then.
    """

    name = "repack"
    promises_valid = True
    uses_seed = False
    pins_fixed = False
    admission_kinds: tuple[AdmissionKind, ...] = (
        "direct",
        "rollout_scaled",
        "train_scaled",
        "isolated",
        "repacked",
    )

    def __init__(self, options: PolicyOptions) -> None:
        if options.fleet is not None:
            raise UnsupportedError(
                "Policy 'repack' does not keep to a fixed fleet: its searches buy nodes. Use "
                "weave, solo, colocated, random or most-idle with a fleet."
            )
        self.options = options
        self.params = options.repack
        hours = self.params.review_h
        if hours is None and self.params.rule == "break-even":
            hours = _REVIEW_H  # what it waits for comes between events
        self.review_s = None if hours is None else hours * _HOUR_S
        self.groups: dict[int, GroupState] = {}
        self.ledger = JobLedger(options.convention)
        self.decision_s: list[float] = []
        self.searches = 0
        self.searches_cut_short = 0
        self.interrupted = False
        self._scarcity = 1.0  # price of a move over its cost, where moves are limited
        self._moves_seen = 0
        self._created = 0
        self._home: dict[str, int] = {}
        self._fresh: dict[int, tuple[int, int]] = {}
        self._changed_s: dict[int, float] = {}
        self._known = KnownGroups()
        self._memory = SetMemory()
        self._events = 0
        self._scopes = ScopeFinder(options.cluster, self.params.scopes)

    # -- events ---------------------------------------------------------------------------

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change:
        """Take a job in, and move others for it where that pays."""
        began = self._clock()
        options = self.options
        require_placeable(job, self._home, options.cluster, options.limits, "repack takes")
        self.ledger.arrive(job, now_s)
        self._settle()
        change = self._event(now_s, job, ())
        self._decided(began)
        return change

    def depart(self, job: Job, now_s: float) -> Change:
        """Let a job go, and close up the groups where that pays."""
        began = self._clock()
        number = self._home.pop(job.job_id)
        before = dict(self.groups)
        left = left_of(self.groups[number], job.job_id, self.options.limits.max_rate)
        self.ledger.depart(job, now_s)
        if left is None:
            del self.groups[number], self._fresh[number], self._changed_s[number]
        else:
            self._put(left, now_s)
        change = self._event(now_s, None, () if left is None else (number,), before)
        self._decided(began)
        return change

    def review(self, now_s: float) -> Change:
        """Think again though nobody comes or goes."""
        began = self._clock()
        change = self._event(now_s, None, ())
        self._decided(began)
        return change

    def adopt(self, groups: Iterable[GroupState], ledger: JobLedger, since_s: float) -> None:
        """Start from groups that run already, unchanged since then."""
        self.ledger = ledger
        for state in groups:
            self._created = max(self._created, state.number)
            self.groups[state.number] = state
            self._home |= {job.job_id: state.number for job in state.jobs}
            self._changed_s[state.number] = since_s
            self._extend_fresh(state)

    def _clock(self) -> float:
        return self.options.clock() if self.options.clock else 0.0

    def _decided(self, began: float) -> None:
        if self.options.clock:
            self.decision_s.append(self.options.clock() - began)

    # -- one event ------------------------------------------------------------------------

    def _event(
        self,
        now_s: float,
        newcomer: Job | None,
        touched: Sequence[int],
        before: Mapping[int, GroupState] | None = None,
    ) -> Change:
        """Improve the plan part by part, and tell what became of the groups before."""
        before = dict(self.groups) if before is None else before
        self._forget()
        jobs = () if newcomer is None else (newcomer,)
        if newcomer is not None:
            touched = self._inviting(newcomer)
        kind: AdmissionKind | None = None
        moved: list[str] = []
        for part in self._scopes.scopes(self.groups, touched, len(jobs), self.most_together()):
            part = tuple(number for number in part if number in self.groups)
            if not jobs and (not part or self.interrupted):
                continue
            found_kind, found_moved = self._improve(part, jobs, now_s)
            moved += found_moved
            if jobs:
                kind, jobs = found_kind, ()
        return self._change(before, kind, tuple(moved))

    def _inviting(self, job: Job) -> list[int]:
        """Return groups for a newcomer to be planned with, where not all are planned together.

        They hold no more jobs than a part has room for; the tightest fit is always there.
        """
        most = self.most_together()
        if len(self._home) + 1 <= most:
            return []
        out: list[int] = []
        room = most - 1
        for number in self._fitting(job)[: max(most // _PER_INVITATION, 1)]:
            size = len(self.groups[number].jobs)
            if not out or size <= room:
                out.append(number)
                room -= size
        return out

    def _fitting(self, job: Job) -> list[int]:
        """Return the groups with room for a job by deadlines and train loads, tightest first."""
        limits = self.options.limits
        room: list[tuple[float, int]] = []
        for number, state in self.groups.items():
            if limits.max_group_size and len(state.jobs) >= limits.max_group_size:
                continue
            period_s = min(job.deadline_s, *(each.deadline_s for each in state.jobs))
            train_s = sum(each.train_s + each.train_switch_s for each in (*state.jobs, job))
            spare = (period_s - max(train_s, job.solo_s)) / period_s
            if spare >= 0:
                room.append((spare, number))
        room.sort()
        return [number for _, number in room]

    def _improve(
        self, part: Sequence[int], newcomers: Sequence[Job], now_s: float
    ) -> tuple[AdmissionKind | None, list[str]]:
        """Plan some groups anew and take what pays; return admission and the jobs moved."""
        states = [self.groups[number] for number in part]
        problem = self._problem(states, newcomers, now_s)
        tokens = self._tokens()
        best = self._solve(problem, 0 if tokens == 0 else None)
        if tokens is not None and best.moves > tokens:
            best = self._solve(problem, tokens)
        # where newcomers go when nobody moves for them
        still = self._solve(problem, 0) if newcomers and best.moves else best
        homes = problem.homes(still)
        kept: list[Proposal] = []
        taken: list[Proposal] = []
        for each in proposals_of(
            states,
            problem.states(best),
            self.options.cluster,
            placed=problem.placements(homes),
        ):
            (taken if self._pays(each, now_s) else kept).append(each)
        kind: AdmissionKind | None = None
        made = {state.number for each in taken for state in each.after}
        for each in kept:
            for job_id in each.newcomers:
                state = homes[job_id]
                if state.number in made:  # a new group of both plans: two groups, two numbers
                    state = replace(state, number=max(made) + 1)
                kind = self._kind(state)
                self._put(state, now_s)
        moved: list[str] = []
        for each in taken:
            for job_id in each.newcomers:
                state = holding(each.after, job_id)
                kind = "repacked" if each.moved else self._kind(state)
            moved += each.moved
            self._take(each, now_s)
        return kind, moved

    def _problem(
        self, states: Sequence[GroupState], newcomers: Sequence[Job], now_s: float
    ) -> RepackProblem:
        """State the problem of some groups and newcomers; these go anywhere, free of charge."""
        jobs = [job for state in states for job in state.jobs]
        return RepackProblem(
            states,
            newcomers,
            self.options,
            fresh=[self._fresh[state.number] for state in states],
            next_number=self._created + 1,
            move_usd=[max(self.move_price(job).usd, self._own_usd(job, _LEAST_S)) for job in jobs],
            may_move=[self.may_move(job.job_id, now_s) for job in jobs],
            lasting_h=self.search_h(now_s),
        )

    def _solve(self, problem: RepackProblem, most_moves: int | None) -> Replan:
        """Return the least plan with at most so many moves."""
        whole = len(problem.states_before) == len(self.groups)
        found = problem.solve(
            most_moves,
            known=self._known,
            memory=self._memory if whole else None,
            node_limit=_NODES,
            deadline=self.search_deadline(),
        )
        self.searches += 1
        self.searches_cut_short += not found.proved
        self.interrupted = self.interrupted or found.ending is Ending.INTERRUPT
        return found

    def _pays(self, proposal: Proposal, now_s: float) -> bool:
        """Return whether a change earns its moves back in the time its saving lasts.

        Where nobody moves it must place a newcomer, and no dearer than by itself: new starts
        alone are no reason to touch a group that runs.
        """
        saving = proposal.saving_usd_per_hour
        if not proposal.moved:
            least = -_USD_REL * proposal.usd_per_hour_before
            return bool(proposal.newcomers) and saving >= least
        if saving <= 0:
            return False
        cost = sum(self.move_price(self.ledger[job_id].job).usd for job_id in proposal.moved)
        return saving * self.lasting_h(proposal, now_s) >= cost * (1 - _USD_REL)

    def lasting_h(self, proposal: Proposal, now_s: float) -> float:
        """Return how long the saving of a change is taken to last, hours."""
        if self.params.lasting_h is not None:
            return self.params.lasting_h
        if self.params.oracle == "remaining":
            ends = [[job.job_id for job in state.jobs] for state in proposal.before]
            ends += [[job_id] for job_id in proposal.newcomers]
            return min(self.ledger.remaining_h(ids, now_s) for ids in ends)
        if self.params.rule == "break-even":
            if proposal.newcomers:
                return 0.0
            since_s = max(self._changed_s[state.number] for state in proposal.before)
            return (now_s - since_s) / _HOUR_S
        return self.residual_h(now_s)

    def residual_h(self, now_s: float) -> float:
        """Return the mean hours until the first of the jobs planned together leaves."""
        return self.ledger.first_leaving_h(now_s, self._together())

    def search_h(self, now_s: float) -> float:
        """Return the hours by which a search weighs prices against moves.

        Of the oracle, before groups are known: when the first of so many jobs leaves, were their
        stays memoryless. Each change found is then held against its own hours.
        """
        if self.params.lasting_h is not None:
            return self.params.lasting_h
        if self.params.oracle == "remaining":
            return self.ledger.mean_remaining_h(now_s) / self._together()
        if self.params.rule == "break-even":
            return _LONG_H
        return min(self.residual_h(now_s), _FOREVER_H)

    def _together(self) -> int:
        """Return how many jobs are planned together, at least one."""
        return max(min(len(self._home), self.most_together()), 1)

    def most_together(self) -> int:
        """Return how many jobs may be planned anew at once."""
        if self.params.max_scope is not None:
            return self.params.max_scope
        if self.options.limits.max_rate > 1:
            return _TOGETHER_RATES
        jobs = (known.job for known in self.ledger.running.values())
        gangs = any(job.rollout_nodes > 1 or job.train_nodes > 1 for job in jobs)
        return _TOGETHER_GANGS if gangs else _TOGETHER

    def move_price(self, job: Job) -> MovePrice:
        """Return what moving a job costs, $."""
        restart_usd = self._own_usd(job, job.restart_s)
        overlap_usd = self._own_usd(job, self.params.overlap_s)
        scarce_usd = (restart_usd + overlap_usd) * (self._scarcity - 1)
        return MovePrice(
            restart_usd=restart_usd,
            overlap_usd=overlap_usd,
            gain_usd=self.params.min_gain_usd + scarce_usd,
        )

    def _own_usd(self, job: Job, seconds: float) -> float:
        """Return what a job's own nodes cost for some seconds, $."""
        own = self.options.cluster.usd_per_hour(job.rollout_nodes, job.train_nodes)
        return own * seconds / _HOUR_S

    def may_move(self, job_id: str, now_s: float) -> bool:
        """Return whether a job may be moved now: limits, freeze list and SLO credit.

        Not twice at one moment, though its restart may take no time.
        """
        if job_id in self.params.freeze or self.ledger[job_id].moved_s[-1:] == [now_s]:
            return False
        return self.ledger.may_move(job_id, now_s, self.params.max_moves_per_job_day)

    def _tokens(self) -> int | None:
        """Return how many moves may be made now; ``None``: any number."""
        if self.params.moves_per_job == inf:
            return None
        allowed = self.params.moves_per_job * self.ledger.arrived + 1e-9
        return max(int(allowed) - self.ledger.moves, 0)

    def _settle(self) -> None:
        """Make moves dearer after an arrival if more were made than one allows, else cheaper.

        Dual ascent on the number of moves allowed (dual mirror descent with the entropy as mirror
        map; Balseiro, Lu and Mirrokni 2020), once per arrival: what is left of the moves is not
        spent on poor ones before the best come.
        """
        if self.params.moves_per_job < inf:
            over = self.ledger.moves - self._moves_seen - self.params.moves_per_job
            self._moves_seen = self.ledger.moves
            self._scarcity = max(1.0, self._scarcity * exp(_STEP * over))

    # -- state ------------------------------------------------------------------------------

    def _take(self, proposal: Proposal, now_s: float) -> None:
        """Make a change."""
        for job_id in proposal.moved:
            self.ledger.move(job_id, now_s)
        after = {state.number for state in proposal.after}
        for state in proposal.before:
            if state.number not in after:
                del self.groups[state.number], self._fresh[state.number]
                del self._changed_s[state.number]
        for state in proposal.after:
            self._put(state, now_s)

    def _put(self, state: GroupState, now_s: float) -> None:
        self._created = max(self._created, state.number)
        self.groups[state.number] = state
        self._home |= {job.job_id: state.number for job in state.jobs}
        self._changed_s[state.number] = now_s
        self._extend_fresh(state)
        self.ledger.run(state, now_s)

    def _extend_fresh(self, state: GroupState) -> None:
        """Remember the first node numbers that the group has never used."""
        rollout, train = self._fresh.get(state.number, (0, 0))
        self._fresh[state.number] = (
            max(rollout, max(state.rollout_nodes) + 1),
            max(train, max(state.train_nodes) + 1),
        )

    def search_deadline(self) -> Deadline:
        """Return when the next search has to end; work limits it long before."""
        return SolveOptions(time_limit_s=_PATIENCE_S).start()

    def _forget(self) -> None:
        self._events += 1
        if self._events % _FORGET_EVERY == 0:
            self._known.keep_only(list(self.ledger.running))

    def _kind(self, state: GroupState) -> AdmissionKind:
        """Return how a newcomer was admitted, before its group is put; nobody moved for it."""
        old = self.groups.get(state.number)
        if old is None:
            return "isolated"
        if len(state.rollout_nodes) > len(old.rollout_nodes):
            return "rollout_scaled"
        return "train_scaled" if len(state.train_nodes) > len(old.train_nodes) else "direct"

    def _change(
        self,
        before: Mapping[int, GroupState],
        kind: AdmissionKind | None,
        moved: tuple[str, ...],
    ) -> Change:
        """Return the difference to the groups before the event."""
        changed = tuple(s for number, s in self.groups.items() if before.get(number) is not s)
        held = self._overlap(before, frozenset(moved)) if self.params.overlap_s else ()
        ended = tuple(number for number in before if number not in self.groups)
        return Change(changed, ended, kind, moved, held)

    def _overlap(
        self, before: Mapping[int, GroupState], moved: frozenset[str]
    ) -> tuple[NodesToHold, ...]:
        """Return the nodes that moved jobs leave and nobody keeps."""
        out = []
        for number, old in before.items():
            now = self.groups.get(number)
            kept = (set[int](), set[int]())
            if now is not None:
                kept = (set(now.rollout_nodes), set(now.train_nodes))
            left = (set[int](), set[int]())
            for job, r, t in zip(old.jobs, old.rollout_pins, old.train_pins, strict=True):
                if job.job_id in moved:
                    left[0].update(r)
                    left[1].update(t)
            counts = len(left[0] - kept[0]), len(left[1] - kept[1])
            if any(counts):
                out.append(NodesToHold(old.group_id, self.params.overlap_s, *counts))
        return tuple(out)
