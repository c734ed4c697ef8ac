"""The local search over plans of single-node jobs: annealing by loads, then schedules.

See :mod:`models.loads.plan_moves` for the moves and :mod:`models.loads.load_groups` for the
schedules. A *round* is a number of attempts at one temperature, in calls short enough for Ctrl-C;
after it, if loads admit a plan cheaper than the one held, its groups are scheduled, repaired where
that fails, and offered. A *cycle* of rounds goes from hot to cold; then neighbourhoods of the plan
held are solved exactly, and the next cycle starts from it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from models.loads.load_groups import GroupScheduler
from models.loads.load_plan import LoadGroup, LoadPlan, load_data
from models.loads.plan_moves import Annealing
from models.problem.compiled import COMPILED
from models.problem.options import Deadline
from models.problem.snapshot import PlacedGroup, Snapshot
from planner.placement.held_plan import HeldPlan
from planner.placement.neighbourhoods import Neighbourhoods
from planner.placement.search_params import LocalSearchParams

__all__ = ["LoadSearch"]

#: Attempts per call of the kernel, below 0.3 s.
_CALL: Final = 50_000 if COMPILED else 500
#: Attempts a job in a round, at most.
_ROUND_PER_JOB: Final = 500
#: Share of the time that is kept for neighbourhoods at the end.
_EXACT: Final = 0.05
#: How much longer the phases of a group without schedule count, each time.
_TIGHTER: Final = 0.003
#: Relative distance within which two prices are the same.
_SAME: Final = 1e-12
#: Jobs beyond which a cycle begins less hot: it has no time to cool so many down.
_FEW_JOBS: Final = 100
#: Share of a cycle after which groups without schedule change the search.
_LATE: Final = 0.5
#: Share of a cycle, its end, at the lowest temperature.
_LAST: Final = 0.1


class LoadSearch:
    """Annealing of single-node jobs.

    Attributes
    ----------
    iterations : int
        Moves attempted.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        held: HeldPlan,
        params: LocalSearchParams,
        seed: int,
        deadline: Deadline,
    ) -> None:
        self.iterations = 0
        self._snapshot = snapshot
        self._held = held
        self._params = params
        self._ends = deadline
        self._usd = snapshot.usd_per_hour(1, 1)
        self._scheduler = GroupScheduler(
            snapshot, steps=params.schedule_steps, seed=seed, deadline=deadline
        )
        self._exact = Neighbourhoods(snapshot, held, params, seed, deadline)
        size = snapshot.limits.max_group_size
        most = max([params.most_jobs, *(len(group.members) for group in held.groups)])
        self._split = size > 0
        self._plan = LoadPlan(load_data(snapshot, most), by_loads(held.groups), seed)
        self._offered = np.inf
        self._cycle = 0
        self._done = 0  # moves of this cycle
        self._began: float | None = None  # share of the search when this cycle began
        self._whole = params.moves_per_job * max(len(snapshot), 1)

    def round(self, share: float, left: int | None) -> None:
        """Attempt moves at one temperature; at the end of a cycle, solve neighbourhoods."""
        if self._began is None:
            self._began = share
        length = self._length(share, left)
        params = self._params
        round_moves = min(params.round_moves, _ROUND_PER_JOB * len(self._snapshot))
        moves = min(round_moves, max(length - self._done, 0))
        if left is not None:
            moves = min(moves, left)
        how = Annealing(
            heat=self._heat(self._done / length),
            reward=params.fill_reward,
            reach=params.reach,
            merging=0 if self._split else params.merging,
        )
        attempts = 0
        while attempts < moves:
            self._ends.check()
            n = min(_CALL, moves - attempts)
            self._plan.anneal(n, how)
            attempts += n
            self.iterations += n
            self._done += n
        self._held.iterations = self.iterations
        self._offer(late=self._done > _LATE * length)
        if self._done >= length:
            self._end_cycle()

    def _length(self, share: float, left: int | None) -> int:
        """Return the moves of this cycle: a whole one, or what is left when that is less."""
        rest = None if left is None else float(left)
        assert self._began is not None
        if share > self._began and self._done > 0:
            per_move = (share - self._began) / self._done
            if rest is None:  # by the clock: some of it is for neighbourhoods
                rest = (1 - _EXACT - share) / per_move
        if rest is None or rest + self._done > 1.5 * self._whole:
            return self._whole
        return int(self._done + max(rest, 0.0))

    def _heat(self, at: float) -> float:
        """Return the temperature, $/h, at a share of the cycle."""
        params = self._params
        cold = params.cold
        hot = max(params.hot * min(1.0, (_FEW_JOBS / max(len(self._snapshot), 1)) ** 0.5), cold)
        if self._cycle > 0:
            hot = max(hot * params.reheat, cold)
        return float(self._usd * hot * (cold / hot) ** min(at / (1 - _LAST), 1.0))

    def _offer(self, *, late: bool) -> None:
        """Schedule the cheapest plan met by loads, if it is cheaper than what was offered.

        Late in a cycle, where a group has no schedule, its jobs count as longer from now on,
        and the repaired plan is where moves go on from.
        """
        plan = self._plan
        if plan.best_usd < min(self._offered, self._held.usd) * (1 - _SAME):
            loads, placed = self._scheduler.repaired(plan.groups())
            self._held.offer(placed)
            self._offered = plan.best_usd
            if self._scheduler.failed and late:
                for group in self._scheduler.failed:
                    plan.tighten(group[0], _TIGHTER)
                plan.put(loads)
                self._offered = np.inf
        if self._split:
            plan.split()

    def _end_cycle(self) -> None:
        """Solve neighbourhoods of the plan held; begin the next cycle from it."""
        self._cycle += 1
        self._done = 0
        self._began = None
        self._exact.recombine(self._scheduler.known())
        self._exact.run()
        self._plan.relax()
        self._plan.put(by_loads(self._held.groups))
        self._offered = np.inf


def by_loads(groups: tuple[PlacedGroup, ...]) -> list[LoadGroup]:
    """Return groups of single-node jobs as the load layer takes them."""
    return [
        (
            group.members,
            tuple(pins[0] for pins in group.rollout_pins),
            tuple(pins[0] for pins in group.train_pins),
        )
        for group in groups
    ]
