"""Asks the policy which moves it would make now, change by change.

The policy (:mod:`planner.policies.repack`) is put into the state of a running fleet and asked. A
*change* is taken whole or left: it saves $/h for as long as its saving lasts, and pays for its
moves,

``net gain = saving x hours it lasts - sum over its moves of (restart + overlap)``.

In a fleet that is looked at in parts a change may begin with groups that an earlier one has made:
it *needs* that one. No job moves twice, since it restarts from the first move on.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, fsum, inf, log2
from types import FrameType
from typing import Final

from instances.jobs import Job
from models.bounds.covering_lp import Ending
from models.problem.group_shape import Pins
from models.problem.options import Deadline, Progress
from models.replan.replanning import Replan
from planner.placement.group_state import GroupState
from planner.policies.policy import PolicyOptions
from planner.policies.repack import Repack
from planner.policies.repack_change import Proposal
from planner.policies.repack_params import RepackParams
from planner.policies.repack_problem import RepackProblem
from planner.repack.running_plan import Reason, RunningPlan

__all__ = ["Answer", "Asker", "Move", "ProposedChange", "ordered"]

#: Hours between which a change is looked for that would pay if its saving lasted so long.
_LEAST_H: Final = 0.01
_MOST_H: Final = 1e5
_HOUR_S: Final = 3600.0
#: Money is compared within this, relative.
_USD_REL: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One job that changes its group or its nodes.

    Attributes
    ----------
    from_group, to_group : str
        Names of groups; the same where only its pins change.
    pins_before, pins_after : tuple
        Rollout and train pins.
    restart_s : float
        Seconds without progress.
    restart_usd, overlap_usd : float
        What its own nodes cost meanwhile, and old nodes that are still held, $.
    credit_s : float or None
        Seconds it is ahead of its SLO; ``None`` where that is not known.
    payback_s : float or None
        Seconds within which it earns the restart back at its pace, where credit is not known.
    """

    job_id: str
    from_group: str
    to_group: str
    pins_before: tuple[Pins, Pins]
    pins_after: tuple[Pins, Pins]
    restart_s: float
    restart_usd: float
    overlap_usd: float
    credit_s: float | None
    payback_s: float | None

    @property
    def usd(self) -> float:
        """What the move costs, $."""
        return self.restart_usd + self.overlap_usd


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """Groups, those that replace them, and the moves between; taken whole or left.

    Attributes
    ----------
    lasting_h : float
        Hours the saving is taken to last.
    least_gain_usd : float
        What its moves have to earn beyond their cost, $.
    needs : tuple of int
        Places in the list, from 1, of the changes to be made before it.
    names : mapping of int to str
        Names of its groups by number.
    """

    before: tuple[GroupState, ...]
    after: tuple[GroupState, ...]
    moves: tuple[Move, ...]
    usd_per_hour_before: float
    usd_per_hour_after: float
    lasting_h: float
    least_gain_usd: float
    needs: tuple[int, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def saving_usd_per_hour(self) -> float:
        """What it saves, $/h."""
        return self.usd_per_hour_before - self.usd_per_hour_after

    @property
    def cost_usd(self) -> float:
        """What its moves cost, $."""
        return fsum(move.usd for move in self.moves)

    @property
    def gain_usd(self) -> float:
        """What it earns while its saving lasts, moves paid, $."""
        return self.saving_usd_per_hour * self.lasting_h - self.cost_usd

    @property
    def pays(self) -> bool:
        """Whether it earns what its moves have to."""
        earned = self.saving_usd_per_hour * self.lasting_h
        return earned >= (self.cost_usd + self.least_gain_usd) * (1 - _USD_REL)

    @property
    def break_even_h(self) -> float:
        """Hours after which it has earned what its moves have to."""
        if self.saving_usd_per_hour <= 0:
            return inf
        return (self.cost_usd + self.least_gain_usd) / self.saving_usd_per_hour


@contextlib.contextmanager
def _noting() -> Iterator[list[int]]:
    """Within this context Ctrl-C is noted besides what it does: a search may answer it itself."""
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if callable(before):
            before(number, frame)

    main = threading.current_thread() is threading.main_thread()
    if not (main and callable(before)):
        yield pressed
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Recorder(Repack):
    """The policy, which notes each change it makes and how long it takes its saving to last."""

    def __init__(self, options: PolicyOptions, deadline: Deadline) -> None:
        super().__init__(options)
        self.taken: list[tuple[Proposal, float]] = []
        self.searches_at_limit = 0
        self._deadline = deadline

    def search_deadline(self) -> Deadline:
        """Return when a search has to end: with the whole dry run."""
        return self._deadline

    def _solve(self, problem: RepackProblem, most_moves: int | None) -> Replan:
        """Search, and count whether only the fixed limit of work ended it."""
        found = super()._solve(problem, most_moves)
        self.searches_at_limit += not found.proved and found.ending is Ending.NODES
        return found

    def _take(self, proposal: Proposal, now_s: float) -> None:
        self.taken.append((proposal, self.lasting_h(proposal, now_s)))
        super()._take(proposal, now_s)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the policy would do.

    Attributes
    ----------
    changes : tuple of ProposedChange
        Those with moves; the largest net gain first, but each after those it needs.
    groups : tuple of GroupState
        The fleet after all of them, by number.
    """

    changes: tuple[ProposedChange, ...]
    groups: tuple[GroupState, ...]


class Asker:
    """Asks the policy, each time from the same state.

    Attributes
    ----------
    lasting_h : float or None
        Hours that every saving is taken to last; ``None`` where each has its own.
    searches_cut_short : int
        Searches that ended before they had proved their answer.
    searches_at_limit : int
        Those of them that a fixed limit of work ended, not the clock or Ctrl-C.
    stopped : bool
        Whether the deadline passed before the whole fleet was looked at.
    interrupted : bool
        Whether Ctrl-C came; what was found by then counts.
    """

    def __init__(
        self, running: RunningPlan, params: RepackParams, seed: int, deadline: Deadline
    ) -> None:
        self._running = running
        self._params = params
        self._seed = seed
        self._deadline = deadline
        self._ledger = running.ledger.copy()
        self._ledger.moves = 0  # moves made so far take nothing from those allowed now
        self.searches_cut_short = self.searches_at_limit = 0
        self.stopped = self.interrupted = False
        self.lasting_h = params.lasting_h
        if self.lasting_h is None and params.oracle == "none" and params.rule == "residual":
            self.lasting_h = self._policy(params).residual_h(running.clock_s)
        if not self._ledger.known and self.lasting_h is not None:
            self._ledger.payback_s = self.lasting_h * _HOUR_S

    def _policy(self, params: RepackParams) -> _Recorder:
        """Return the policy in the state of the fleet."""
        running = self._running
        options = PolicyOptions(
            cluster=running.plan.cluster,
            limits=running.plan.limits,
            seed=self._seed,
            repack=params,
            convention=self._ledger.convention,
        )
        policy, ledger = _Recorder(options, self._deadline), self._ledger.copy()
        for state in running.groups:
            policy.adopt([state], ledger, running.since_s[state.number])
        return policy

    def _reviews(self, policy: Repack) -> int:
        """Return how often the policy thinks, so that every group is looked at once.

        A large fleet is looked at in parts: each review begins with the weakest groups, and each
        of its further parts shows at least half its jobs anew.
        """
        jobs = sum(len(state.jobs) for state in self._running.groups)
        most = policy.most_together()
        if jobs <= most:
            return 1
        fresh = (self._params.scopes - 1) * (most // 2)
        return -(-jobs // max(fresh, 1))

    def ask(
        self,
        params: RepackParams,
        most_moves: int | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """Return what the policy would do by these parameters; what it holds when time is up.

        ``progress`` is called with ("search", parts looked at, parts).
        """
        allowed = inf if most_moves is None else most_moves / self._ledger.arrived
        policy = self._policy(replace(params, moves_per_job=allowed))
        reviews = self._reviews(policy)
        held, taken = list(policy.groups.values()), 0
        if progress is not None:
            progress("search", 0, reviews)
        with _noting() as pressed, contextlib.suppress(KeyboardInterrupt):
            for done in range(reviews):
                if self._deadline.expired or pressed:
                    self.stopped = True
                    break
                policy.review(self._running.clock_s)
                held, taken = list(policy.groups.values()), len(policy.taken)
                if progress is not None:
                    progress("search", done + 1, reviews)
        self.interrupted = self.interrupted or bool(pressed)
        self.searches_cut_short += policy.searches_cut_short
        self.searches_at_limit += policy.searches_at_limit
        return Answer(
            changes=ordered([self._change(*step, policy) for step in policy.taken[:taken]]),
            groups=tuple(sorted(held, key=lambda state: state.number)),
        )

    def nearest(self, progress: Progress | None = None) -> ProposedChange | None:
        """Return a change that would pay if savings lasted longer, or with more moves allowed.

        Hours are doubled until one is found, so it pays after at most twice the fewest hours.
        ``progress`` is called with ("nearest", doublings done, most doublings).
        """
        lasting_h = max(min(self.lasting_h or 1.0, _MOST_H), _LEAST_H)
        most = ceil(log2(_MOST_H / lasting_h)) + 1
        for done in range(most):
            if self._deadline.expired or self.interrupted:
                break
            if progress is not None:
                progress("nearest", done, most)
            answer = self.ask(replace(self._params, lasting_h=lasting_h))
            found = [change for change in answer.changes if not change.needs]
            if found:
                best = min(found, key=lambda change: change.break_even_h)
                judge = self._policy(self._params)
                own_h = judge.lasting_h(_proposal(best), self._running.clock_s)
                return replace(best, lasting_h=own_h)
            lasting_h = min(2 * lasting_h, _MOST_H)
        return None

    def immovable(self) -> dict[str, Reason]:
        """Return why each job that may not move may not."""
        running, out = self._running, {}
        homes = {job.job_id for state in running.groups for job in state.jobs}
        for job_id in running.jobs.job_id:
            if job_id not in homes:
                continue
            reason: Reason | None = "freeze"
            if job_id not in self._params.freeze:
                reason = self._ledger.why_not(
                    job_id, running.clock_s, self._params.max_moves_per_job_day
                )
            if reason is not None:
                out[job_id] = reason
        return out

    def _change(self, part: Proposal, lasting_h: float, judge: Repack) -> ProposedChange:
        old = {job.job_id: (s, i) for s in part.before for i, job in enumerate(s.jobs)}
        moves = []
        for state in part.after:
            for i, job in enumerate(state.jobs):
                if job.job_id in part.moved:
                    moves.append(self._move(job, old[job.job_id], (state, i), judge))
        moved = [self._ledger[move.job_id].job for move in moves]
        return ProposedChange(
            before=part.before,
            after=part.after,
            moves=tuple(moves),
            usd_per_hour_before=part.usd_per_hour_before,
            usd_per_hour_after=part.usd_per_hour_after,
            lasting_h=lasting_h,
            least_gain_usd=fsum(judge.move_price(job).gain_usd for job in moved),
        )

    def _move(
        self,
        job: Job,
        was: tuple[GroupState, int],
        now: tuple[GroupState, int],
        judge: Repack,
    ) -> Move:
        running, ledger = self._running, self._ledger
        price = judge.move_price(job)
        (old, i), (new, j) = was, now
        known = ledger.known
        return Move(
            job_id=job.job_id,
            from_group=old.group_id,
            to_group=new.group_id,
            pins_before=(old.rollout_pins[i], old.train_pins[i]),
            pins_after=(new.rollout_pins[j], new.train_pins[j]),
            restart_s=job.restart_s,
            restart_usd=price.restart_usd,
            overlap_usd=price.overlap_usd,
            credit_s=ledger[job.job_id].credit_s(running.clock_s) if known else None,
            payback_s=None if known else ledger.payback_of_s(job.job_id),
        )


def ordered(steps: Sequence[ProposedChange]) -> tuple[ProposedChange, ...]:
    """Return the steps with moves, the dearest first, each after those whose groups it needs."""
    makers: dict[int, frozenset[int]] = {}
    needs: dict[int, frozenset[int]] = {}
    for i, step in enumerate(steps):
        before = (makers.get(state.number, frozenset()) for state in step.before)
        wanted = frozenset[int]().union(*before)
        if step.moves:
            needs[i] = wanted
            wanted = frozenset({i})
        makers |= {state.number: wanted for state in step.after}
    place: dict[int, int] = {}
    out: list[ProposedChange] = []
    while len(place) < len(needs):
        ready = [i for i in needs if i not in place and needs[i] <= place.keys()]
        best = max(ready, key=lambda i: (steps[i].gain_usd, -i))
        place[best] = len(place) + 1
        out.append(replace(steps[best], needs=tuple(sorted(place[i] for i in needs[best]))))
    return tuple(out)


def _proposal(change: ProposedChange) -> Proposal:
    return Proposal(
        before=change.before,
        after=change.after,
        moved=tuple(move.job_id for move in change.moves),
        newcomers=(),
        usd_per_hour_before=change.usd_per_hour_before,
        usd_per_hour_after=change.usd_per_hour_after,
    )
