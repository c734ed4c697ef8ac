"""Policy ``gavel``: job-level shares of time, without interleaving phases.

After Narayanan et al. (OSDI 2020): jobs of a group share its nodes in turns, and the shares come
from a linear program of max-min fairness (:mod:`models.gavel_lp`,
:mod:`planner.policies.time_slots`). A job is one unit to that scheme: in its turn it holds its
rollout and its train nodes, its phases follow each other, and each pool waits for the other. What
it gives up against ``weave`` is what runs in these bubbles.

*Groups*. The publication shares one given cluster; here nodes are bought, so the question is who
shares. An arriving job may join a group when

* it has room under ``max_group_size`` and the group's node limits;
* in at least one pool enough nodes have room: host DRAM for one state more (warm switches), and
  shares of time ``sum_j T_j / D_j = sum_j 1 / sigma_j <= 1``, switches left out (of a one-step
  job ``r + t + s`` stands for ``T_j``: turns run phases in sequence). It takes the nodes of least
  needed share, then the lowest ids; a pool short of them gets what is missing;
* a round keeps the SLOs of all members (:func:`planner.policies.time_slots.time_table`).

Of such groups it joins the one that needs the fewest dollars of new nodes, the oldest on ties;
without one it opens a group of its own. Since two jobs share a node only where
``1 / sigma_1 + 1 / sigma_2 <= 1``, jobs of slowdowns below 2 all end up alone: at the published
``slo ~ U(1, 2)`` the policy is ``solo``. It holds the pinned nodes all the time, as all policies
do, and running jobs never move.

What is kept: the SLO of every job in every round (mean over the round), gangs, residency (with
warm switches), limits and prices. What is not: rates above ``max_rate``, and one switch in a turn
instead of one in every iteration, which the checker reports as ``rate``, ``precedence`` and
``overlap``. So plans are reported ``checked: false`` with the breaches counted.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Self

from instances.jobs import Job
from models.gavel_lp import MOST_JOBS
from models.problem.group_shape import Pins
from planner.placement.group_state import GroupState
from planner.placement.placer import AdmissionKind, require_feasible_alone
from planner.policies.policy import Change, FixedPins, PolicyOptions, Room, fits
from planner.policies.time_slots import (
    TimeShareParams,
    Turn,
    conflicts_of,
    switch_seconds,
    time_table,
)

__all__ = ["Gavel", "TakesTurns"]

_EPS_GB = 1e-9
_EPS_SHARE = 1e-9


class TakesTurns(FixedPins):
    """Part of every policy whose jobs share nodes in turns; subclasses say what a turn is."""

    name = ""
    promises_valid = False
    admission_kinds: tuple[AdmissionKind, ...] = (
        "direct",
        "rollout_scaled",
        "train_scaled",
        "isolated",
    )
    uses_seed = False

    def __init__(self, options: PolicyOptions, params: TimeShareParams | None = None) -> None:
        self.options = options
        self.params = TimeShareParams() if params is None else params
        self._groups: dict[int, GroupState] = {}
        self._home: dict[str, int] = {}
        self._next_node: dict[int, tuple[int, int]] = {}
        self._created = 0

    # -- what a subclass says -----------------------------------------------------------------

    def turn(self, job: Job) -> Turn:
        """Return how the job runs in its turn."""
        raise NotImplementedError

    def states_gb(self, job: Job) -> tuple[float, float]:
        """Return the state that the job keeps on each node of the two pools, GB."""
        raise NotImplementedError

    def require_alone(self, job: Job) -> None:
        """Raise InfeasibleError when the job cannot run even alone."""
        raise NotImplementedError

    # -- events -------------------------------------------------------------------------------

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Join the group that needs the fewest dollars of new nodes, or open one."""
        self.require_alone(job)
        for state in self._candidates(job, room):
            joined = self._scheduled(state)
            if joined is not None:
                return self._joined(job, joined)
        if not fits(self.nodes_alone(job), room):
            return None
        self._created += 1
        rollout, train = self.nodes_alone(job)
        pins = (tuple(range(rollout)), tuple(range(train)))
        state = GroupState(self._created, (job,), (pins[0],), (pins[1],), (1,), 0.0, ())
        self._groups[state.number] = state = self._alone(state)
        self._home[job.job_id] = state.number
        self._next_node[state.number] = rollout, train
        return Change((state,), (), "isolated")

    def depart(self, job: Job, now_s: float) -> Change:
        """Let the job go; nodes that nobody is pinned to go with it.

        Where no new round keeps all SLOs, the old one is kept, its turns left empty.
        """
        number = self._home.pop(job.job_id)
        state = self._groups[number]
        if len(state.jobs) == 1:
            del self._groups[number], self._next_node[number]
            return Change((), (number,))
        left = state.without(job.job_id)
        self._groups[number] = left = self._scheduled(left) or left
        return Change((left,))

    def fork(self) -> Self:
        """Return an independent copy."""
        other = copy.copy(self)
        other._groups = dict(self._groups)
        other._home = dict(self._home)
        other._next_node = dict(self._next_node)
        return other

    # -- joining ------------------------------------------------------------------------------

    def _candidates(self, job: Job, room: Room | None) -> list[GroupState]:
        """Return the groups with the job pinned, not scheduled yet: cheapest first, then oldest."""
        cluster = self.options.cluster
        found = []
        for number, state in self._groups.items():
            pins = self._pins(state, job)
            if pins is None:
                continue
            joined = replace(
                state,
                jobs=(*state.jobs, job),
                rollout_pins=(*state.rollout_pins, pins[0]),
                train_pins=(*state.train_pins, pins[1]),
            )
            bought = _bought(state, joined)
            if fits(bought, room):
                found.append((cluster.usd_per_hour(*bought), number, joined))
        return [joined for _, _, joined in sorted(found, key=lambda item: item[:2])]

    def _joined(self, job: Job, state: GroupState) -> Change:
        before = self._groups[state.number]
        rollout, train = _bought(before, state)
        fresh = self._next_node[state.number]
        self._next_node[state.number] = fresh[0] + rollout, fresh[1] + train
        self._groups[state.number] = state
        self._home[job.job_id] = state.number
        kind: AdmissionKind = "direct"
        if rollout or train:
            kind = "rollout_scaled" if rollout else "train_scaled"
        return Change((state,), (), kind)

    def _pins(self, state: GroupState, job: Job) -> tuple[Pins, Pins] | None:
        """Return the nodes that the job would use; ``None`` where it would share nothing."""
        limits = self.options.limits
        if len(state.jobs) >= min(limits.max_group_size or MOST_JOBS, MOST_JOBS):
            return None
        rollout = self._with_room(state, job, 0)
        train = self._with_room(state, job, 1)
        if not rollout and not train:
            return None
        fresh, widths = self._next_node[state.number], self.nodes_alone(job)
        for nodes, used, width, most in (
            (state.rollout_nodes, rollout, widths[0], limits.max_rollout_nodes),
            (state.train_nodes, train, widths[1], limits.max_train_nodes),
        ):
            if most is not None and len(nodes) + width - len(used) > most:
                return None
        rollout += range(fresh[0], fresh[0] + widths[0] - len(rollout))
        train += range(fresh[1], fresh[1] + widths[1] - len(train))
        return tuple(sorted(rollout)), tuple(sorted(train))

    def _with_room(self, state: GroupState, job: Job, pool: int) -> list[int]:
        """Return up to the job's width of nodes with DRAM and time left for it.

        Least needed share first, then by id.
        """
        cluster = self.options.cluster
        node = (cluster.rollout, cluster.train)[pool]
        share: dict[int, float] = {}
        held_gb: dict[int, float] = {}
        pins = (state.rollout_pins, state.train_pins)[pool]
        for member, nodes in zip(state.jobs, pins, strict=True):
            for at in nodes:
                share[at] = share.get(at, 0.0) + self.turn(member).needed_share
                held_gb[at] = held_gb.get(at, 0.0) + self.states_gb(member)[pool]
        most_share = 1 + _EPS_SHARE - self.turn(job).needed_share
        most_gb = node.host_dram_gb + _EPS_GB - self.states_gb(job)[pool]
        resident = self.params.switch == "warm"
        free = [
            at
            for at in share
            if share[at] <= most_share and (not resident or held_gb[at] <= most_gb)
        ]
        return sorted(free, key=lambda at: (share[at], at))[: self.nodes_alone(job)[pool]]

    # -- rounds -------------------------------------------------------------------------------

    def _alone(self, state: GroupState) -> GroupState:
        """Return a group of one job: it runs all the time, and never switches."""
        turn = self.turn(state.jobs[0])
        return replace(state, period_s=turn.iteration_s, rates=(1,), starts_s=((turn.again,),))

    def _scheduled(self, state: GroupState) -> GroupState | None:
        """Return the group with its round, ``None`` where none keeps all SLOs."""
        if len(state.jobs) == 1:
            return self._alone(state)
        turns = [self.turn(job) for job in state.jobs]
        conflicts = conflicts_of(state.rollout_pins, state.train_pins)
        table = time_table(turns, conflicts, self.params)
        if not table.keeps_slos:
            return None
        return replace(state, period_s=table.period_s, rates=table.rates, starts_s=table.starts_s)


class Gavel(TakesTurns):
    """Turns on the nodes of both pools, one phase after the other."""

    name = "gavel"

    def turn(self, job: Job) -> Turn:
        """Return iterations as alone; each phase of the first pays its switch, as in design 3."""
        rollout_s, train_s = switch_seconds(job, self.params.switch)
        return Turn(
            # a turn is over before the next begins: a one-step job overlaps nothing here
            iteration_s=job.rollout_s + job.train_s + job.sync_s,
            switch_s=rollout_s + train_s,
            deadline_s=job.deadline_s,
            slo=job.slo,
            solo_s=job.solo_s,
            first=(0.0, rollout_s + job.rollout_s),
            again=(0.0, job.rollout_s),
        )

    def states_gb(self, job: Job) -> tuple[float, float]:
        """Return the state of each phase on its own pool."""
        return job.rollout_state_gb, job.train_state_gb

    def require_alone(self, job: Job) -> None:
        """Raise InfeasibleError when the job cannot run even alone."""
        require_feasible_alone(job, self.options.cluster, self.options.limits)


def _bought(before: GroupState, after: GroupState) -> Room:
    """Return how many nodes of each pool ``after`` has more."""
    return (
        len(after.rollout_nodes) - len(before.rollout_nodes),
        len(after.train_nodes) - len(before.train_nodes),
    )
