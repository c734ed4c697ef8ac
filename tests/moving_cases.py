"""Policies that move running jobs as told, or at random, and small traces to move them in."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from builders import job_of, violations
from gap_cases import even
from instances.jobs import Job
from models.group.period import construct
from models.problem.group_shape import GroupShape
from planner.placement.group_state import GroupState
from planner.placement.leaving import left_of
from planner.placement.placer import AdmissionKind
from planner.policies.policy import Change, NodesToHold, NoFleet, Policy, PolicyOptions, Room
from planner.policies.repack_ledger import JobLedger

#: Group numbers and who is in them, one letter a job.
Groups = Mapping[int, str]


def group_of(jobs: Sequence[Job], number: int) -> GroupState | None:
    """Return jobs as one group on the fewest nodes, in its least period; ``None``: none valid."""
    rollout = tuple(tuple(range(job.rollout_nodes)) for job in jobs)
    train = tuple(tuple(range(job.train_nodes)) for job in jobs)
    rates = (1,) * len(jobs)
    limit_s = min(job.deadline_s for job in jobs)
    schedule = construct(GroupShape.of(tuple(jobs), rollout, train, rates), limit_s=limit_s)
    if schedule is None or schedule.period_s > limit_s:
        return None
    return GroupState(
        number, tuple(jobs), rollout, train, rates, schedule.period_s, schedule.starts_s
    )


class Mover(NoFleet):
    """Part of every policy here: groups, and what an event changed of them."""

    name = "repack"
    promises_valid = True
    uses_seed = False
    pins_fixed = False
    admission_kinds: tuple[AdmissionKind, ...] = ()

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self.review_s: float | None = None
        self.groups: dict[int, GroupState] = {}
        self.jobs: dict[str, Job] = {}
        self.created = 0
        self.reviewed: list[float] = []

    def home(self) -> dict[str, int]:
        return {job.job_id: n for n, state in self.groups.items() for job in state.jobs}

    def alone(self, job: Job) -> None:
        self.created += 1
        self.groups[self.created] = GroupState.alone(job, self.created)

    def leave(self, job_id: str) -> None:
        number = self.home()[job_id]
        left = left_of(self.groups.pop(number), job_id, self.options.limits.max_rate)
        if left is not None:
            self.groups[number] = left

    def change(self, before: dict[int, GroupState], held: Sequence[NodesToHold] = ()) -> Change:
        """Return what is different now; whoever is in another group has moved."""
        old = {job.job_id: n for n, state in before.items() for job in state.jobs}
        return Change(
            groups=tuple(s for n, s in self.groups.items() if before.get(n) is not s),
            ended=tuple(n for n in before if n not in self.groups),
            moved=tuple(i for i, n in self.home().items() if old.get(i, n) != n),
            held=tuple(held),
        )


class Scripted(Mover):
    """Does what a script says after each event: ``+a``, ``-a``, or ``r1`` for the first review.

    An event that the script does not name puts an arriving job alone, and takes a departing one
    out.
    """

    def __init__(
        self,
        options: PolicyOptions,
        script: Mapping[str, Groups],
        held: Mapping[str, Sequence[NodesToHold]],
        review_s: float | None,
    ) -> None:
        super().__init__(options)
        self.script, self.held, self.review_s = script, held, review_s

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change:
        before = dict(self.groups)
        self.jobs[job.job_id] = job
        self.alone(job)
        return self.then(f"+{job.job_id}", before)

    def depart(self, job: Job, now_s: float) -> Change:
        before = dict(self.groups)
        self.leave(job.job_id)
        return self.then(f"-{job.job_id}", before)

    def review(self, now_s: float) -> Change:
        self.reviewed.append(now_s)
        return self.then(f"r{len(self.reviewed)}", dict(self.groups))

    def then(self, event: str, before: dict[int, GroupState]) -> Change:
        if event in self.script:
            now = {}
            for number, members in self.script[event].items():
                state = group_of([self.jobs[job_id] for job_id in members], number)
                assert state is not None
                now[number] = self.groups[number] if state == self.groups.get(number) else state
            self.groups = now
            self.created = max([self.created, *now])
        return self.change(before, self.held.get(event, ()))


def scripted(
    script: Mapping[str, Groups],
    *,
    held: Mapping[str, Sequence[NodesToHold]] | None = None,
    review_s: float | None = None,
    made: list[Scripted] | None = None,
) -> Callable[[PolicyOptions], Policy]:
    """Return a maker of a scripted policy; what it makes is added to ``made``."""

    def make(options: PolicyOptions) -> Policy:
        policy = Scripted(options, script, held or {}, review_s)
        if made is not None:
            made.append(policy)
        return policy

    return make


class Restless(Mover):
    """After every event moves jobs at random, wherever the ledger and the checker let it."""

    def __init__(self, options: PolicyOptions, seed: int, overlap_s: float) -> None:
        super().__init__(options)
        self.rng = random.Random(seed)
        self.ledger = JobLedger(options.convention)
        self.overlap_s = overlap_s
        self.review_s = 1800.0

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change:
        before = dict(self.groups)
        self.ledger.arrive(job, now_s)
        self.alone(job)
        return self.then(before, now_s)

    def depart(self, job: Job, now_s: float) -> Change:
        before = dict(self.groups)
        self.leave(job.job_id)
        self.ledger.depart(job, now_s)
        return self.then(before, now_s)

    def review(self, now_s: float) -> Change:
        return self.then(dict(self.groups), now_s)

    def then(self, before: dict[int, GroupState], now_s: float) -> Change:
        held = []
        for job_id, number in self.home().items():
            if number not in before or self.rng.random() < 0.5:
                continue
            if not self.ledger.may_move(job_id, now_s, None):
                continue
            old = self.groups[number]
            if self.move(job_id, number):
                self.ledger.move(job_id, now_s)
                now = self.groups.get(number)
                left = (len(old.rollout_nodes), len(old.train_nodes))
                if now is not None:
                    left = (left[0] - len(now.rollout_nodes), left[1] - len(now.train_nodes))
                if self.overlap_s and any(left):
                    held.append(NodesToHold(old.group_id, self.overlap_s, *left))
        for state in self.groups.values():
            self.ledger.run(state, now_s)
        return self.change(before, held)

    def move(self, job_id: str, number: int) -> bool:
        """Move a job to another group, or to a new one; return whether it did."""
        job = next(job for job in self.groups[number].jobs if job.job_id == job_id)
        others = [n for n in self.groups if n != number]
        to = self.rng.choice([*others, 0])
        mates = self.groups[to].jobs if to else ()
        new = group_of([*mates, job], to or self.created + 1)
        if new is None or violations(new, self.options.cluster, self.options.limits):
            return False
        if to and any(  # whoever is there already must stay on its nodes
            new.rollout_pins[i] != self.groups[to].rollout_pins[i]
            or new.train_pins[i] != self.groups[to].train_pins[i]
            for i in range(len(mates))
        ):
            return False
        self.leave(job_id)
        self.groups[new.number] = new
        self.created = max(self.created, new.number)
        return True


def restless(seed: int, overlap_s: float = 0.0) -> Callable[[PolicyOptions], Policy]:
    """Return a maker of policies that move jobs at random."""
    return lambda options: Restless(options, seed, overlap_s)


# --- traces ---------------------------------------------------------------------------------------

#: T = 150 s; together the rollout node carries 200 s, so C = 200 s. Alone a has 10 iterations in
#: 1500 s, b 20 in 3000 s. b's restart takes 100 s.
A = job_of("a", 100, 50, 2, duration_s=1500)
B = job_of("b", 100, 50, 2, duration_s=3000, restart_s=100.0)


def fragments(restart_h: float = 0.1) -> list[Job]:
    """Return the three jobs of ``gap_cases.fragmented``, with restarts of some hours.

    Two of them fit a pair of nodes without slowing each other (C = T = 90 s).
    """
    jobs = [even("a", 0, 2, 45, 1.2), even("b", 0, 4, 45, 1.2), even("c", 1, 2, 45, 1.2)]
    return [replace(job, restart_s=restart_h * 3600.0) for job in jobs]
