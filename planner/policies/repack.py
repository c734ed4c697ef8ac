"""``repack``: an online policy that moves running jobs, and pays for it.

After every arrival and departure (and every ``review_h`` hours) running groups are planned anew
by exact search (:mod:`models.replan.replanning`): merging two groups, dissolving one, moving a job,
swapping two, and any chain of these are one problem, the least of

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
(:mod:`planner.policies.repack_ledger`), so its SLO holds whatever comes later. Money never breaks
one.

Of more than ``max_scope`` jobs parts are planned anew, one after the other
(:mod:`planner.policies.repack_scope`). With a fixed fleet see :mod:`planner.policies.repack_fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from instances.errors import UnsupportedError
from instances.jobs import Job
from models.bounds.covering_lp import Ending
from models.group.known_groups import KnownGroups
from models.problem.options import Deadline, SolveOptions
from models.replan.replanning import Replan, SetMemory
from planner.placement.group_state import GroupState
from planner.placement.leaving import left_of
from planner.placement.placer import AdmissionKind, Room, require_placeable
from planner.policies.policy import Change, NodesToHold, PolicyOptions
from planner.policies.repack_change import Proposal, left_behind, proposals_of
from planner.policies.repack_fleet import (
    EventRoom,
    FleetNodes,
    least_nodes,
    nodes_of,
    numbered,
    placing,
    within,
)
from planner.policies.repack_ledger import JobLedger
from planner.policies.repack_money import RepackMoney
from planner.policies.repack_problem import RepackProblem, holding
from planner.policies.repack_scope import ScopeFinder

__all__ = ["Repack"]

_HOUR_S: Final = 3600.0
#: A newcomer invites so many groups for each this many jobs that are planned together.
_PER_INVITATION: Final = 4
#: Hours between reviews of ``break-even``, unless others are asked for.
_REVIEW_H: Final = 1.0
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
_NO_BACKFILL: Final = (
    "Policy 'repack' does not backfill: the forecast that nobody is delayed would have to foresee "
    "every move. Use queue fifo with it, or weave."
)


class Repack(RepackMoney):
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
        if options.fleet is not None and options.queue == "backfill":
            raise UnsupportedError(_NO_BACKFILL)
        super().__init__(options)
        hours = self.params.review_h
        if hours is None and self.params.rule == "break-even":
            hours = _REVIEW_H  # what it waits for comes between events
        self.review_s = None if hours is None else hours * _HOUR_S
        self.groups: dict[int, GroupState] = {}
        self.decision_s: list[float] = []
        self.searches = 0
        self.searches_cut_short = 0
        self.interrupted = False
        self._created = 0
        self._fresh: dict[int, tuple[int, int]] = {}
        self._known = KnownGroups()
        self._memory = SetMemory()
        self._events = 0
        self._scopes = ScopeFinder(options.cluster, self.params.scopes)
        self._nodes = None if options.fleet is None else FleetNodes(options.fleet)
        self._most: Room | None = None  # nodes that groups may have, where they run short
        self._refused: tuple[str, Room] | None = None  # who found no place on so many nodes

    # -- events ---------------------------------------------------------------------------

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Take a job in, and move others for it where that pays.

        ``None``, and nothing has changed, where a fixed fleet has no room for it.
        """
        began = self._clock()
        options = self.options
        require_placeable(job, self._home, options.cluster, options.limits, "repack takes")

        def event() -> Change | None:
            self.ledger.arrive(job, now_s)
            self._settle()
            return self._event(now_s, job, ())

        if self._nodes is None:
            change = event()
        elif self._no_room(self._nodes, job, now_s, room):
            change = None  # and nothing to find by trying again
        else:
            change = self._within_fleet(self._nodes, event, now_s)
        self._decided(began)
        return change

    def depart(self, job: Job, now_s: float) -> Change:
        """Let a job go, and close up the groups where that pays."""
        began = self._clock()
        change = self._surely(lambda: self._departed(job, now_s), now_s)
        self._decided(began)
        return change

    def _departed(self, job: Job, now_s: float) -> Change | None:
        number = self._home.pop(job.job_id)
        before = dict(self.groups)
        left = left_of(self.groups[number], job.job_id, self.options.limits.max_rate)
        self.ledger.depart(job, now_s)
        if left is None:
            del self.groups[number], self._fresh[number], self._changed_s[number]
        else:
            self._put(left, now_s)
        return self._event(now_s, None, () if left is None else (number,), before)

    def review(self, now_s: float) -> Change:
        """Think again though nobody comes or goes."""
        began = self._clock()
        change = self._surely(lambda: self._event(now_s, None, ()), now_s)
        self._decided(began)
        return change

    def nodes_alone(self, job: Job) -> Room:
        """Return the job's own node counts."""
        return job.rollout_nodes, job.train_nodes

    def reserve(self, nodes: Room) -> None:
        """Take note of the nodes of jobs that it does not place."""
        if self._nodes is not None:
            self._nodes.others = nodes

    def fork(self) -> Self:
        """Refuse: nobody but backfilling asks."""
        raise UnsupportedError(_NO_BACKFILL)

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

    # -- a fixed fleet --------------------------------------------------------------------

    def _no_room(self, nodes: FleetNodes, job: Job, now_s: float, room: Room | None) -> bool:
        """Return whether no plan has room for a newcomer, or none was found and nothing is new."""
        used = nodes_of(self.groups.values())
        if room is not None:
            nodes.see(room, used, now_s)
        jobs = [*(known.job for known in self.ledger.running.values()), job]
        least = least_nodes(jobs, self.options.cluster, self.options.limits)
        most = nodes.most(now_s)
        if (job.job_id, most) == self._refused or not within(least, most, used):
            return True
        self._refused = job.job_id, most  # unless something changes
        return False

    def _surely(self, event: Callable[[], Change | None], now_s: float) -> Change:
        """Return what an event without a newcomer does, within the fleet if there is one."""
        nodes = self._nodes
        change = event() if nodes is None else self._within_fleet(nodes, event, now_s)
        assert change is not None
        return change

    def _within_fleet(
        self, nodes: FleetNodes, event: Callable[[], Change | None], now_s: float
    ) -> Change | None:
        """Decide an event as if nodes could be rent, and again within the fleet if it is short."""
        most, before = nodes.most(now_s), nodes_of(self.groups.values())
        back = self._way_back()
        change = event()
        assert change is not None  # with nodes to rent there is always a place
        if not within(nodes_of(self.groups.values(), change.held), most, before):
            back()
            self._most = most
            try:
                change = event()
            finally:
                self._most = None
        if change is None:
            back()
        else:
            nodes.hold(change.held, now_s)
            self._refused = None
        return change

    def _way_back(self) -> Callable[[], None]:
        """Return what undoes all that happens from now on, but caches and counts of work."""
        groups, home, ledger = dict(self.groups), dict(self._home), self.ledger.copy()
        fresh, changed_s, scopes = dict(self._fresh), dict(self._changed_s), self._scopes.copy()
        numbers = self._created, self._moves_seen, self._scarcity

        def back() -> None:
            self.groups, self._home, self.ledger = dict(groups), dict(home), ledger.copy()
            self._fresh, self._changed_s = dict(fresh), dict(changed_s)
            self._scopes = scopes.copy()
            self._created, self._moves_seen, self._scarcity = numbers

        return back

    # -- one event ------------------------------------------------------------------------

    def _event(
        self,
        now_s: float,
        newcomer: Job | None,
        touched: Sequence[int],
        before: Mapping[int, GroupState] | None = None,
    ) -> Change | None:
        """Improve the plan part by part, and tell what became of the groups before.

        ``None`` where a newcomer found no place within the most nodes; nothing else counts then.
        """
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
            if self._most is None:
                found_kind, found_moved = self._improve(part, jobs, now_s)
            else:
                room = EventRoom(self._most, before, moved, self.params.overlap_s > 0)
                found_kind, found_moved = self._improve_within(part, jobs, now_s, room)
            moved += found_moved
            if found_kind is not None:
                kind, jobs = found_kind, ()
        if jobs:
            return None
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
        best = self._best(problem)
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

    def _best(self, problem: RepackProblem) -> Replan:
        """Return the least plan with as many moves as may be made now."""
        tokens = self._tokens()
        best = self._solve(problem, 0 if tokens == 0 else None)
        if tokens is not None and best.moves > tokens:
            best = self._solve(problem, tokens)
        return best

    def _improve_within(
        self, part: Sequence[int], newcomers: Sequence[Job], now_s: float, event: EventRoom
    ) -> tuple[AdmissionKind | None, list[str]]:
        """Do as :meth:`_improve` does with the nodes there are; no kind: no place was found."""
        states = [self.groups[number] for number in part]
        problem = self._problem(states, newcomers, now_s, event.room_of(part, self.groups))
        best = self._best(problem)
        if newcomers and not problem.keeps(best):
            return None, []
        homes: dict[str, GroupState] = {}  # where newcomers go when nobody moves for them
        placed: dict[str, tuple[int | None, float]] = {}
        if newcomers:
            still = self._solve(problem, 0) if best.moves else best
            if problem.keeps(still):
                homes = problem.homes(still)
                placed = problem.placements(homes)
            else:
                rented = self._problem(states, newcomers, now_s)
                placed = rented.placements(rented.homes(self._solve(rented, 0)))
        found = proposals_of(states, problem.states(best), self.options.cluster, placed=placed)
        found = [
            each
            for each in found
            if self._pays(each, now_s) or (each.newcomers and not each.moved and not homes)
        ]
        alone = [placing(states, job_id, home) for job_id, home in homes.items()]
        mine = [each for each in found if each.newcomers]
        others = [each for each in found if not each.newcomers]
        return self._take_within([*mine, *alone, *others], now_s, event)

    def _take_within(
        self, pending: list[Proposal], now_s: float, event: EventRoom
    ) -> tuple[AdmissionKind | None, list[str]]:
        """Make the first change for which there is room, again and again; a newcomer's once."""
        kind: AdmissionKind | None = None
        moved: list[str] = []
        while True:
            made = next((p for p in pending if event.admits(p, self.groups, moved)), None)
            if made is None:
                return kind, moved
            newcomers = made.newcomers
            pending = [p for p in pending if p is not made and not (newcomers and p.newcomers)]
            made = numbered(made, self.groups, self._created)
            for job_id in newcomers:
                kind = "repacked" if made.moved else self._kind(holding(made.after, job_id))
            moved += made.moved
            self._take(made, now_s)

    def _problem(
        self,
        states: Sequence[GroupState],
        newcomers: Sequence[Job],
        now_s: float,
        most_nodes: Room | None = None,
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
            most_nodes=most_nodes,
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
        ended = tuple(number for number in before if number not in self.groups)
        return Change(changed, ended, kind, moved, self._overlap(before, frozenset(moved)))

    def _overlap(
        self, before: Mapping[int, GroupState], moved: frozenset[str]
    ) -> tuple[NodesToHold, ...]:
        """Return the nodes that moved jobs leave and nobody keeps."""
        seconds = self.params.overlap_s
        left = left_behind(before, self.groups, moved) if seconds else ()
        return tuple(NodesToHold(name, seconds, *counts) for name, *counts in left)
