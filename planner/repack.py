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
from dataclasses import dataclass
from math import exp, inf
from typing import Final

import numpy as np

from instances.errors import InputError, UnsupportedError
from instances.jobs import Job
from models.covering_lp import Ending
from models.known_groups import KnownGroups
from models.options import Deadline, SolveOptions
from models.replan import Host, NewGroup, Replan, SetMemory, replan
from models.snapshot import Snapshot
from planner.group_state import GroupState
from planner.leaving import left_of
from planner.placer import AdmissionKind, require_feasible_alone
from planner.policy import Change, NodesToHold, PolicyOptions
from planner.repack_change import Proposal, proposals_of
from planner.repack_ledger import JobLedger
from planner.repack_scope import ScopeFinder

__all__ = ["MovePrice", "Repack"]

_HOUR_S: Final = 3600.0
#: Hours for which changes are looked for when each is then held against what is known of it.
_LONG_H: Final = 24.0
#: Jobs planned anew at once: of single nodes, with gangs among them, with rates.
_TOGETHER: Final = 41
_TOGETHER_GANGS: Final = 20
_TOGETHER_RATES: Final = 10
#: Hours between reviews of ``break-even``, unless others are asked for.
_REVIEW_H: Final = 1.0
#: Hours that count as for ever.
_FOREVER_H: Final = 1e5
#: Step of the dual ascent on the moves allowed.
_STEP: Final = 0.1
#: Nodes of one search beyond its first improvements: the same answer on every machine.
_NODES: Final = 3_000
#: Seconds one search may take before the best plan so far counts; far above what it takes.
_PATIENCE_S: Final = 60.0
#: Events after which facts about groups of departed jobs are forgotten.
_FORGET_EVERY: Final = 50


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


class Repack:
    """The policy; see the module docstring."""

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
        self._scarcity = 1.0
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

    def arrive(self, job: Job, now_s: float) -> Change:
        """Take a job in, and move others for it where that pays."""
        began = self._clock()
        self._check(job)
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

    def _check(self, job: Job) -> None:
        if job.job_id in self._home:
            raise InputError(f"Expected a new job, but '{job.job_id}' is already placed.")
        job.require_valid()
        if job.mode != "sync":
            raise UnsupportedError(
                f"Job '{job.job_id}' has mode '{job.mode}': repack takes sync jobs only."
            )
        require_feasible_alone(job, self.options.cluster, self.options.limits)

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
            if not part and not jobs:
                continue
            found_kind, found_moved = self._improve(part, jobs, now_s)
            kind = found_kind if jobs else kind
            moved += found_moved
            jobs = ()
        if (
            moved
            and newcomer is not None
            and self._home[newcomer.job_id] in {self._home[job_id] for job_id in moved}
        ):
            kind = "repacked"
        return self._change(before, kind, tuple(moved))

    def _inviting(self, job: Job) -> tuple[int, ...]:
        """Return the group that a newcomer would fit best by loads, if a part has to be chosen."""
        size = sum(len(state.jobs) for state in self.groups.values())
        if size + 1 <= self.most_together():
            return ()
        return tuple(self._roomiest(job))

    def _roomiest(self, job: Job) -> list[int]:
        """Return the groups whose deadlines and nodes leave most room for a job, best first."""
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
        return [number for _, number in room[: max(self.most_together() // 4, 1)]]

    def _improve(
        self, part: Sequence[int], newcomers: Sequence[Job], now_s: float
    ) -> tuple[AdmissionKind | None, list[str]]:
        """Plan some groups anew and take what pays; return admission and the jobs moved."""
        states = [self.groups[number] for number in part]
        problem = _Problem(self, states, newcomers, now_s)
        tokens = self._tokens()
        best = problem.solve(None if tokens else tokens)
        if tokens and best.moves > tokens:
            best = problem.solve(tokens)
        still = best
        if newcomers and best.moves:
            still = problem.solve(0)
        placed = problem.placements(still)
        kept: list[Proposal] = []
        taken: list[Proposal] = []
        for each in proposals_of(states, problem.states(best), self.options.cluster, placed=placed):
            (taken if self._pays(each, now_s) else kept).append(each)
        kind: AdmissionKind | None = None
        for each in kept:
            for job_id in each.newcomers:
                state = problem.home_in(still, job_id)
                kind = self._kind(state, job_id)
                self._put(state, now_s)
        moved: list[str] = []
        for each in taken:
            for job_id in each.newcomers:
                kind = self._kind(next(s for s in each.after if _holds(s, job_id)), job_id)
            moved += each.moved
            self._take(each, now_s)
        return kind, moved

    def _pays(self, proposal: Proposal, now_s: float) -> bool:
        """Return whether a change earns its moves back in the time its saving lasts."""
        if not proposal.moved:
            return True
        if proposal.saving_usd_per_hour <= 0:
            return False
        cost = sum(self.move_price(self.ledger[job_id].job).usd for job_id in proposal.moved)
        return proposal.saving_usd_per_hour * self.lasting_h(proposal, now_s) >= cost * (1 - 1e-9)

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
        """Return the hours by which a search weighs prices against moves."""
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
        own = self.options.cluster.usd_per_hour(job.rollout_nodes, job.train_nodes)
        restart_usd = own * job.restart_s / _HOUR_S
        overlap_usd = own * self.params.overlap_s / _HOUR_S
        scarce_usd = (restart_usd + overlap_usd) * (self._scarcity - 1)
        return MovePrice(
            restart_usd=restart_usd,
            overlap_usd=overlap_usd,
            gain_usd=self.params.min_gain_usd + scarce_usd,
        )

    def may_move(self, job_id: str, now_s: float) -> bool:
        """Return whether a job may be moved now: limits, freeze list and SLO credit."""
        if job_id in self.params.freeze:
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

    def fresh_nodes(self, number: int) -> tuple[int, int]:
        """Return the first rollout and train node numbers that a group has never used."""
        return self._fresh[number]

    def next_number(self) -> int:
        """Return the number of the next new group."""
        return self._created + 1

    def memory(self) -> SetMemory:
        """Return the sets of jobs looked at when the whole fleet was last planned anew."""
        return self._memory

    def search_deadline(self) -> Deadline:
        """Return when the next search has to end; work limits it long before."""
        return SolveOptions(time_limit_s=_PATIENCE_S).start()

    def searched(self, found: Replan) -> None:
        """Count a search."""
        self.searches += 1
        self.searches_cut_short += not found.proved
        self.interrupted = self.interrupted or found.ending is Ending.INTERRUPT

    def known(self) -> KnownGroups:
        """Return what is known of groups of the jobs present."""
        return self._known

    def _forget(self) -> None:
        self._events += 1
        if self._events % _FORGET_EVERY == 0:
            self._known.keep_only(list(self.ledger.running))

    def _kind(self, state: GroupState, job_id: str) -> AdmissionKind:
        """Return how a newcomer was admitted to its group, before the group is put."""
        old = self.groups.get(state.number)
        if old is None:
            return "isolated" if len(state.jobs) == 1 else "repacked"
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


def _holds(state: GroupState, job_id: str) -> bool:
    return any(job.job_id == job_id for job in state.jobs)


class _Problem:
    """Some running groups and newcomers as a problem of :mod:`models.replan`."""

    def __init__(
        self,
        policy: Repack,
        states: Sequence[GroupState],
        newcomers: Sequence[Job],
        now_s: float,
    ) -> None:
        self._policy = policy
        self._states = list(states)
        options = policy.options
        self._jobs = [*(job for state in states for job in state.jobs), *newcomers]
        self._newcomers = {job.job_id for job in newcomers}
        self._whole = len(states) == len(policy.groups)
        self._snapshot = Snapshot.of(self._jobs, options.cluster, options.limits)
        self._hosts = []
        at = 0
        for state in states:
            members = tuple(range(at, at + len(state.jobs)))
            at += len(state.jobs)
            rollout, train = policy.fresh_nodes(state.number)
            self._hosts.append(
                Host(
                    members=members,
                    rollout_pins=state.rollout_pins,
                    train_pins=state.train_pins,
                    rates=state.rates,
                    period_s=state.period_s,
                    starts_s=state.starts_s,
                    fresh_rollout=rollout,
                    fresh_train=train,
                )
            )
        self._move_usd = np.array([policy.move_price(job).usd for job in self._jobs])
        self._may_move = np.array(
            [
                job.job_id in self._newcomers or policy.may_move(job.job_id, now_s)
                for job in self._jobs
            ]
        )
        # old nodes that overlap are paid for while the saving has begun
        overlap_h = policy.params.overlap_s / _HOUR_S
        self._lasting_h = max(policy.search_h(now_s) - overlap_h, 0.0)

    def solve(self, most_moves: int | None) -> Replan:
        """Return the least plan with at most so many moves."""
        if most_moves is not None and most_moves >= np.count_nonzero(self._may_move):
            most_moves = None
        found = replan(
            self._snapshot,
            self._hosts,
            lasting_h=self._lasting_h,
            move_usd=self._move_usd,
            may_move=self._may_move,
            most_moves=most_moves,
            known=self._policy.known(),
            memory=self._policy.memory() if self._whole else None,
            node_limit=_NODES,
            seed=self._policy.options.seed,
            deadline=self._policy.search_deadline(),
        )
        self._policy.searched(found)
        return found

    def states(self, found: Replan) -> list[GroupState]:
        """Return its groups as the planner holds them; unchanged ones are the same objects."""
        out = []
        number = self._policy.next_number()
        for group in found.groups:
            if group.host is None:
                out.append(self._state(group, number))
                number += 1
                continue
            old = self._states[group.host]
            new = self._state(group, old.number)
            out.append(old if new == old else new)
        return out

    def _state(self, group: NewGroup, number: int) -> GroupState:
        return GroupState(
            number=number,
            jobs=tuple(self._jobs[i] for i in group.members),
            rollout_pins=group.rollout_pins,
            train_pins=group.train_pins,
            rates=group.rates,
            period_s=group.period_s,
            starts_s=group.starts_s,
        )

    def home_in(self, found: Replan, job_id: str) -> GroupState:
        """Return the group of a job in a plan."""
        return next(state for state in self.states(found) if _holds(state, job_id))

    def placements(self, still: Replan) -> dict[str, tuple[int | None, float]]:
        """Return per newcomer the group it joins when nobody moves, and what that adds, $/h."""
        out: dict[str, tuple[int | None, float]] = {}
        cluster = self._policy.options.cluster
        old = {state.number: state for state in self._states}
        for job_id in self._newcomers:
            state = self.home_in(still, job_id)
            usd = cluster.usd_per_hour(len(state.rollout_nodes), len(state.train_nodes))
            before = old.get(state.number)
            if before is not None:
                usd -= cluster.usd_per_hour(len(before.rollout_nodes), len(before.train_nodes))
            out[job_id] = (None if before is None else state.number, usd)
        return out
