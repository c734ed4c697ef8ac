"""What a change to running groups must earn, and who may be moved: the money of ``repack``.

The rules are in :mod:`planner.policies.repack`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf
from typing import Final

from instances.jobs import Job
from planner.policies.policy import PolicyOptions
from planner.policies.repack_change import Proposal
from planner.policies.repack_ledger import JobLedger

__all__ = ["MovePrice", "RepackMoney"]

_HOUR_S: Final = 3600.0
#: Hours for which ``break-even`` looks for changes, about the stay of a job; each change found
#: is then held against how long it was there to be made.
_LONG_H: Final = 24.0
#: Jobs planned anew at once: of single nodes, with gangs among them, with rates. The more of
#: either, the more groups have to be decided beforehand: so many take tens of milliseconds.
_TOGETHER: Final = 41
_TOGETHER_GANGS: Final = 20
_TOGETHER_RATES: Final = 10
#: Hours that count as for ever: beyond, moves are nothing within the tolerance of a search.
_FOREVER_H: Final = 1e5
#: Step of the dual ascent on the moves allowed: ten moves too many make a move 2.7 x as dear.
_STEP: Final = 0.1
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


class RepackMoney:
    """Base of the policy: what changes and moves are worth.

    Attributes
    ----------
    ledger : JobLedger
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self.params = options.repack
        self.ledger = JobLedger(options.convention)
        self._scarcity = 1.0  # price of a move over its cost, where moves are limited
        self._moves_seen = 0
        self._home: dict[str, int] = {}
        self._changed_s: dict[int, float] = {}

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
