"""Running groups and newcomers as a problem of :mod:`models.replan.replanning`, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import numpy as np

from instances.jobs import Job
from models.group.known_groups import KnownGroups
from models.problem.options import Deadline
from models.problem.snapshot import Snapshot
from models.replan.replanning import Host, NewGroup, Replan, SetMemory, replan
from planner.placement.group_state import GroupState
from planner.policies.policy import PolicyOptions
from planner.policies.repack_change import usd_per_hour_of

__all__ = ["RepackProblem", "holding"]


def holding(states: Iterable[GroupState], job_id: str) -> GroupState:
    """Return the group that a job is in."""
    return next(state for state in states if any(job.job_id == job_id for job in state.jobs))


class RepackProblem:
    """Groups to be planned anew.

    Parameters
    ----------
    states_before : sequence of GroupState
        Running groups.
    newcomers : sequence of Job
        Jobs in no group yet; they are placed for nothing.
    options : PolicyOptions
    fresh : sequence of (int, int)
        Per group the first rollout and train node numbers that it never used.
    next_number : int
        Number of the first new group.
    move_usd : sequence of float
        Per running job, group by group, what moving it costs, $.
    may_move : sequence of bool
        Per running job.
    lasting_h : float
        Hours by which prices are weighed against moves.
    most_nodes : (int, int), optional
        Most rollout and train nodes of a plan; where a newcomer alone needs more, and no plan as
        good keeps to them, the answer does not either.
    """

    def __init__(  # noqa: PLR0913 - what a search is given
        self,
        states_before: Sequence[GroupState],
        newcomers: Sequence[Job],
        options: PolicyOptions,
        *,
        fresh: Sequence[tuple[int, int]],
        next_number: int,
        move_usd: Sequence[float],
        may_move: Sequence[bool],
        lasting_h: float,
        most_nodes: tuple[int, int] | None = None,
    ) -> None:
        self.states_before = tuple(states_before)
        self._newcomers = [job.job_id for job in newcomers]
        self._options = options
        self._next_number = next_number
        self._lasting_h = lasting_h
        self._most_nodes = most_nodes
        self._jobs = [*(job for state in states_before for job in state.jobs), *newcomers]
        self._snapshot = Snapshot.of(self._jobs, options.cluster, options.limits)
        self._move_usd = np.array([*move_usd, *(0.0 for _ in newcomers)], dtype=np.float64)
        self._may_move = np.array([*may_move, *(True for _ in newcomers)], dtype=np.bool_)
        self._hosts: list[Host] = []
        at = 0
        for state, (rollout, train) in zip(states_before, fresh, strict=True):
            self._hosts.append(
                Host(
                    members=tuple(range(at, at + len(state.jobs))),
                    rollout_pins=state.rollout_pins,
                    train_pins=state.train_pins,
                    rates=state.rates,
                    period_s=state.period_s,
                    starts_s=state.starts_s,
                    fresh_rollout=rollout,
                    fresh_train=train,
                )
            )
            at += len(state.jobs)

    def solve(
        self,
        most_moves: int | None,
        *,
        known: KnownGroups,
        memory: SetMemory | None,
        node_limit: int,
        deadline: Deadline,
    ) -> Replan:
        """Return the least plan with so many moves (:func:`models.replan.replanning.replan`)."""
        if most_moves is not None and most_moves >= np.count_nonzero(self._may_move):
            most_moves = None
        return replan(
            self._snapshot,
            self._hosts,
            lasting_h=self._lasting_h,
            move_usd=self._move_usd,
            may_move=self._may_move,
            most_moves=most_moves,
            most_nodes=self._most_nodes,
            known=known,
            memory=memory,
            node_limit=node_limit,
            seed=self._options.seed,
            deadline=deadline,
        )

    def states(self, found: Replan) -> list[GroupState]:
        """Return the groups of a plan; one that continues a running group has its number."""
        out = []
        new = count(self._next_number)
        for group in found.groups:
            host = group.host
            number = next(new) if host is None else self.states_before[host].number
            out.append(self._state(group, number))
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

    def keeps(self, found: Replan) -> bool:
        """Return whether a plan keeps to the most nodes."""
        most = self._most_nodes
        nodes = [group.nodes for group in found.groups]
        return most is None or all(
            sum(pool) <= n for pool, n in zip(zip(*nodes, strict=True), most, strict=True)
        )

    def homes(self, found: Replan) -> dict[str, GroupState]:
        """Return the group of each newcomer in a plan."""
        states = self.states(found)
        return {job_id: holding(states, job_id) for job_id in self._newcomers}

    def placements(self, homes: Mapping[str, GroupState]) -> dict[str, tuple[int | None, float]]:
        """Return per newcomer the running group it joins in these, and what that adds, $/h."""
        out: dict[str, tuple[int | None, float]] = {}
        cluster = self._options.cluster
        old = {state.number: state for state in self.states_before}
        for job_id, state in homes.items():
            before = old.get(state.number)
            usd = usd_per_hour_of([state], cluster)
            if before is not None:
                usd -= usd_per_hour_of([before], cluster)
            out[job_id] = (None if before is None else state.number, usd)
        return out
