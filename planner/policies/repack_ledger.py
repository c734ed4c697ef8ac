"""What an online policy knows of its running jobs: progress, pauses, moves, SLO credit.

*SLO credit* of a job is how many seconds it is ahead of its promise: ``sigma_j T_j`` times the
iterations done, minus the seconds since it arrived. It never shrinks while the job runs, since
every valid group iterates within the deadline; a pause of ``p`` seconds takes ``p``. So a job
whose credit covers its restart can be moved, and its SLO holds whatever comes later.

Periods and promises are both kept up to the checker's tolerances (1e-9 of the time, 1e-6 s), and
these are far above the round-off of the sums here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

import numpy as np

from instances.jobs import Job
from planner.placement.group_state import GroupState
from planner.policies.replay_result import Convention
from planner.policies.residual_life import ResidualLife

__all__ = ["JobLedger", "RunningJob"]

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
#: Mean residual lives below this count as this, hours.
_LEAST_H: Final = 1e-3


@dataclass(slots=True)
class RunningJob:
    """One job present; ``iterations`` are those done until ``at_s``.

    Attributes
    ----------
    speed : float
        Iterations per second outside pauses.
    paused_s : float
        Seconds of all restarts, the present one included.
    """

    job: Job
    at_s: float
    iterations: float = 0.0
    speed: float = 0.0
    paused_until_s: float = -inf
    paused_s: float = 0.0
    moved_s: list[float] = field(default_factory=list)

    def done(self, now_s: float) -> float:
        """Return the iterations done until now."""
        return self.iterations + self.speed * max(now_s - max(self.at_s, self.paused_until_s), 0.0)

    def credit_s(self, now_s: float) -> float:
        """Return the seconds it is ahead of its SLO, its present pause counted in full."""
        until_s = max(now_s, self.paused_until_s)
        return self.job.deadline_s * self.done(now_s) - (until_s - self.job.arrival_s)

    def moves_since(self, since_s: float) -> int:
        """Return how often it was moved after ``since_s``."""
        return sum(moved_s > since_s for moved_s in self.moved_s)


class JobLedger:
    """The jobs present, and how long those before them stayed.

    Attributes
    ----------
    arrived, moves : int
        Jobs that have come, and moves made, so far.
    """

    def __init__(self, convention: Convention) -> None:
        self.convention = convention
        self.running: dict[str, RunningJob] = {}
        self.residual = ResidualLife()
        self.arrived = 0
        self.moves = 0

    def __getitem__(self, job_id: str) -> RunningJob:
        return self.running[job_id]

    def arrive(self, job: Job, now_s: float) -> None:
        """Take a job in."""
        self.arrived += 1
        self.running[job.job_id] = RunningJob(job, now_s)

    def depart(self, job: Job, now_s: float) -> None:
        """Let a job go, and learn how long it stayed."""
        known = self.running.pop(job.job_id)
        self.residual.saw(max(now_s - job.arrival_s - known.paused_s, 0.0) / _HOUR_S)

    def run(self, group: GroupState, now_s: float) -> None:
        """Take note of a group's pace from now on."""
        for job, rate in zip(group.jobs, group.rates, strict=True):
            known = self.running[job.job_id]
            known.iterations = known.done(now_s)
            known.at_s = now_s
            known.speed = rate / group.period_s

    def move(self, job_id: str, now_s: float) -> None:
        """Pause a job for its restart."""
        known = self.running[job_id]
        known.iterations = known.done(now_s)
        known.at_s = now_s
        known.paused_until_s = now_s + known.job.restart_s
        known.paused_s += known.job.restart_s
        known.moved_s.append(now_s)
        self.moves += 1

    def may_move(self, job_id: str, now_s: float, most_per_day: int | None) -> bool:
        """Return whether a job can be moved now.

        It has run for some time, does not restart already, has not used up its moves of the day,
        and its credit covers the restart, so that its SLO holds whatever comes.
        """
        known = self.running[job_id]
        if now_s <= known.job.arrival_s or known.paused_until_s > now_s:
            return False
        if known.credit_s(now_s) < known.job.restart_s:
            return False
        return most_per_day is None or known.moves_since(now_s - _DAY_S) < most_per_day

    def means_h(self, now_s: float) -> dict[str, float]:
        """Return the mean residual life of every job present, hours, from what was seen."""
        ids = list(self.running)
        ages = [
            max(now_s - each.job.arrival_s - each.paused_s, 0.0) / _HOUR_S
            for each in self.running.values()
        ]
        return dict(zip(ids, self.residual.means_h(ages).tolist(), strict=True))

    def copy(self) -> JobLedger:
        """Return a ledger of its own with the same entries."""
        other = copy.copy(self)
        other.running = {
            job_id: replace(known, moved_s=list(known.moved_s))
            for job_id, known in self.running.items()
        }
        other.residual = copy.deepcopy(self.residual)
        return other

    def remaining_h(self, job_ids: Iterable[str], now_s: float) -> float:
        """Return the hours until the last of these jobs leaves, as the trace has it.

        Only a policy that was given the oracle may ask.
        """
        seconds = (self._remaining_s(self.running[job_id], now_s) for job_id in job_ids)
        return max(seconds, default=0.0) / _HOUR_S

    def mean_remaining_h(self, now_s: float) -> float:
        """Return the mean hours that the jobs present still stay, as the trace has it."""
        seconds = [self._remaining_s(known, now_s) for known in self.running.values()]
        return sum(seconds) / len(seconds) / _HOUR_S if seconds else 0.0

    def _remaining_s(self, known: RunningJob, now_s: float) -> float:
        job = known.job
        if self.convention == "wallclock":
            return job.arrival_s + job.duration_s + known.paused_s - now_s
        left = max(job.iterations - known.done(now_s), 0.0)
        pause_s = max(known.paused_until_s - now_s, 0.0)
        return pause_s + (left / known.speed if known.speed else left * job.solo_s)

    def first_leaving_h(self, now_s: float, jobs: int) -> float:
        """Return the mean hours until the first of so many of the jobs present leaves.

        A job leaves at the rate ``1 / m_j`` of its mean residual life, so ``n`` of them lose
        their first after ``1 / (n x mean rate)``.
        """
        means = np.array(list(self.means_h(now_s).values()))
        if not means.size or jobs < 1:
            return inf
        return float(1 / (jobs * np.mean(1 / np.maximum(means, _LEAST_H))))
