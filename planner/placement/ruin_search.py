"""Ruin and recreate with the placer, for snapshots of any kind.

Related groups, near in deadline or short of jobs, are taken apart, and the placer, training
scaling allowed where it has it, places their jobs anew, in an order that is random or by size or
deadline. What it finds is taken when it is cheaper, or dearer by little (annealed); the cheapest
plan is held. Now and then a neighbourhood is solved exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from instances.errors import InfeasibleError
from models.problem.options import Deadline
from models.problem.result import usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, solo_group
from planner.placement.held_plan import HeldPlan
from planner.placement.neighbourhoods import Neighbourhoods, part_of, whole_of
from planner.placement.placer import Placer, PlacerParams
from planner.placement.search_params import LocalSearchParams
from planner.placement.tie_rules import TIE_RULES

__all__ = ["RuinSearch"]

#: Ruins per round; a round ends with an exact neighbourhood.
_ROUND: Final = 50
#: Where nothing says how much of the search is over: ruins until the coldest temperature.
_CYCLE: Final = 2_000


class RuinSearch:
    """Ruin and recreate.

    Attributes
    ----------
    iterations : int
        Ruins.
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
        self._rng = np.random.default_rng(seed)
        self._exact = Neighbourhoods(snapshot, held, params, seed, deadline)
        self._usd = snapshot.usd_per_hour(1, 1)
        self._groups = list(held.groups)
        self._ties = sorted(TIE_RULES)

    def round(self, share: float, left: int | None) -> None:
        """Ruin and recreate a number of times; then solve a neighbourhood exactly."""
        params = self._params
        for _ in range(_ROUND if left is None else min(left, _ROUND)):
            self._ends.check()
            self.iterations += 1
            self._held.iterations = self.iterations
            over = share if share > 0 else min(self.iterations / _CYCLE, 1.0)
            heat = self._usd * params.hot * (params.cold / params.hot) ** over
            self._ruin(heat)
        before = self._held.usd
        self._exact.run(1)
        if self._held.usd < before:
            self._groups = list(self._held.groups)

    def _ruin(self, heat: float) -> None:
        """Take related groups apart and build them anew."""
        at = self._related()
        ruined = [self._groups[i] for i in at]
        built = self._recreated(ruined)
        if built is None:
            return
        change = usd_of(self._snapshot, built) - usd_of(self._snapshot, ruined)
        if change > heat * self._rng.exponential():
            return
        gone = set(at)
        groups = [group for i, group in enumerate(self._groups) if i not in gone] + built
        if change > 0 and self._over_caps(groups):
            return
        self._groups = groups
        self._held.offer(groups)

    def _over_caps(self, groups: Sequence[PlacedGroup]) -> bool:
        nodes = [group.nodes for group in groups]
        return not self._snapshot.caps.allow(sum(r for r, _ in nodes), sum(t for _, t in nodes))

    def _related(self) -> list[int]:
        """Return a few groups: one at random and those nearest to it in deadline."""
        jobs, rng = self._snapshot.jobs, self._rng
        count = min(1 + int(rng.integers(self._params.ruin_groups)), len(self._groups))
        if rng.random() < 0.3:
            return [int(i) for i in rng.choice(len(self._groups), size=count, replace=False)]
        periods = np.array(
            [min(jobs[j].deadline_s for j in group.members) for group in self._groups]
        )
        first = int(rng.integers(len(periods)))
        far = np.abs(np.log((periods + 1e-9) / (periods[first] + 1e-9)))
        far += rng.random(len(far)) * 0.2
        far[first] = -1.0
        return [int(i) for i in np.argsort(far, kind="stable")[:count]]

    def _recreated(self, ruined: Sequence[PlacedGroup]) -> list[PlacedGroup] | None:
        """Return groups that the placer builds of their jobs; ``None`` where it cannot."""
        part, _, jobs = part_of(self._snapshot, ruined)
        rate = part.limits.max_rate
        params = PlacerParams(
            tie_rule=self._ties[int(self._rng.integers(len(self._ties)))],
            train_scaling=rate == 1 and bool(self._rng.integers(2)),
            skip_saturated=bool(self._rng.integers(2)),
        )
        placer = Placer(cluster=part.cluster, limits=part.limits, params=params)
        index = {job.job_id: i for i, job in enumerate(part.jobs)}
        try:
            for i in self._order(part):
                placer.place(part.jobs[i])
        except InfeasibleError:
            return None
        built = []
        for state in placer.groups():
            if len(state.jobs) == 1:
                built.append(solo_group(part, index[state.jobs[0].job_id]))
                continue
            order = sorted(range(len(state.jobs)), key=lambda i: index[state.jobs[i].job_id])
            built.append(
                PlacedGroup(
                    members=tuple(index[state.jobs[i].job_id] for i in order),
                    rollout_pins=tuple(state.rollout_pins[i] for i in order),
                    train_pins=tuple(state.train_pins[i] for i in order),
                    period_s=state.period_s,
                    starts_s=tuple(state.starts_s[i] for i in order),
                    rates=tuple(state.rates[i] for i in order),
                )
            )
        return whole_of(built, jobs)

    def _order(self, part: Snapshot) -> list[int]:
        """Return an order of the jobs: random, or by a key with noise, largest first."""
        rng, table = self._rng, part.table
        kind = int(rng.integers(5))
        keys = (
            np.zeros(len(part)),
            np.log(table.deadline_s + 1e-9),
            -np.log(table.deadline_s + 1e-9),
            -np.log(table.solo_s + 1e-9),
            -np.log(table.rollout_nodes * table.rollout_s + table.train_nodes * table.train_s
                    + 1e-9),
        )  # fmt: skip
        noise = rng.random(len(part)) * (0.3 if kind else 1.0)
        return [int(i) for i in np.argsort(keys[kind] + noise, kind="stable")]
