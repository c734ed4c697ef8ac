"""The policy ``repack`` in a state of one's choice, step by step, and on random small traces.

Every twin (:mod:`repack_cases`) has ``T`` = 20 s, and two of them fit one node of each kind
without waiting. So merging two twins saves ``PAIR_USD`` an hour and costs ``PAIR_USD / 10``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import planner.policies.repack_problem
from builders import members, options_of
from gap_cases import random_trace
from instances.jobs import Job, JobTable
from instances.plan import Limits
from models.bounds.volume import VolumeSums
from models.replan.replanning import NewGroup, Replan
from models.replan.replanning import replan as real_replan
from moving_cases import group_of
from planner.placement.group_state import GroupState
from planner.policies.policy import Change
from planner.policies.repack import Repack
from planner.policies.repack_ledger import JobLedger
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention
from planner.replay.loop import ReplayLoop

#: When the fleets of :func:`fleet` are looked at: every twin has this much SLO credit by then.
NOW_S = 10_000.0


def repack_of(convention: Convention = "wallclock", **params: Any) -> Repack:
    """Return the policy with nobody present."""
    return Repack(options_of(repack=RepackParams(**params), convention=convention))


def fleet(
    *groups: Sequence[Job],
    since_s: float = 0.0,
    convention: Convention = "wallclock",
    **params: Any,
) -> Repack:
    """Return the policy with groups 1, 2, ... that run, on one node of each kind, since then."""
    policy = repack_of(convention, **params)
    ledger = JobLedger(convention)
    states = []
    for number, jobs in enumerate(groups, start=1):
        state = group_of(jobs, number)
        assert state is not None
        for job in jobs:
            ledger.arrive(job, job.arrival_s)
        ledger.run(state, 0.0)
        states.append(state)
    policy.adopt(states, ledger, since_s)
    return policy


def homes(policy: Repack) -> list[list[str]]:
    """Return who is together, in the order of the groups' numbers."""
    found = members(policy.groups.values())
    return [sorted(found[number]) for number in sorted(found)]


# --- answers of the search, as told ---------------------------------------------------------------


def new_group(
    state: GroupState, order: Sequence[str], host: int | None, movers: Sequence[str] = ()
) -> NewGroup:
    """Return a group as the search would: jobs by their place in ``order``, ascending."""
    at = sorted(range(len(state.jobs)), key=lambda i: order.index(state.jobs[i].job_id))
    return NewGroup(
        host=host,
        members=tuple(order.index(state.jobs[i].job_id) for i in at),
        rollout_pins=tuple(state.rollout_pins[i] for i in at),
        train_pins=tuple(state.train_pins[i] for i in at),
        rates=tuple(state.rates[i] for i in at),
        period_s=state.period_s,
        starts_s=tuple(state.starts_s[i] for i in at),
        movers=tuple(sorted(order.index(job_id) for job_id in movers)),
    )


def answers(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int | None], Replan]) -> None:
    """Let searches answer as told, by the most moves they may make."""

    def told(*_: Any, most_moves: int | None = None, **__: Any) -> Replan:
        return answer(most_moves)

    monkeypatch.setattr(planner.policies.repack_problem, "replan", told)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Replan]:
    """Let searches be as they are, and note their answers."""
    seen: list[Replan] = []

    def noted(*arguments: Any, **named: Any) -> Replan:
        seen.append(real_replan(*arguments, **named))
        return seen[-1]

    monkeypatch.setattr(planner.policies.repack_problem, "replan", noted)
    return seen


# --- traces ---------------------------------------------------------------------------------------


def random_jobs(seed: int, restarts_s: Sequence[float] = (30.0, 120.0), n: int = 12) -> JobTable:
    """Return random jobs that come and go within three hours, gangs among them, by seed."""
    jobs = random_trace(seed, n).jobs
    return JobTable.from_jobs(
        [replace(job, restart_s=restarts_s[i % len(restarts_s)]) for i, job in enumerate(jobs)]
    )


def steps(
    jobs: JobTable, policy: Repack, convention: Convention, limits: Limits | None = None
) -> Iterator[ReplayLoop]:
    """Replay a trace, and come up for air after every event."""
    options = replace(policy.options, convention=convention)
    loop = ReplayLoop(
        jobs, policy, options, convention, True, VolumeSums(options.cluster, options.limits)
    )
    while loop.heap:
        loop.step()
        yield loop


def changes(monkeypatch: pytest.MonkeyPatch) -> list[Change]:
    """Note what the policy answers."""
    seen: list[Change] = []
    event = Repack._event

    def noted(policy: Repack, *arguments: Any) -> Change:
        seen.append(event(policy, *arguments))
        return seen[-1]

    monkeypatch.setattr(Repack, "_event", noted)
    return seen
