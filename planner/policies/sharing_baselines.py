"""The literature's simple sharing baselines: ``random`` and ``most-idle``.

Both look at room, not at time. A group is a candidate when it has room for one more job under
``max_group_size`` and when, in at least one pool, enough of its nodes have host DRAM left for
the job at its gang width (where neither pool does, joining would share nothing). The job takes
the least-loaded such nodes; a pool short of them gets just the nodes that DRAM demands.

``random`` draws uniformly over the candidates and a new group; ``most-idle`` takes the
candidate whose nodes idle most, the oldest on ties, and opens a group only without candidate.
Neither looks at deadlines, so SLOs break: plans are reported ``checked: false`` with the
breaches counted. All other rules of a valid plan hold, and periods are as short as
:func:`models.group.period.construct` finds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Self

import numpy as np

from instances.jobs import Job
from models.group.period import construct
from models.problem.group_shape import Pins
from planner.placement.group_state import GroupState
from planner.placement.placer import AdmissionKind, require_feasible_alone
from planner.policies.policy import Change, FixedPins, PolicyOptions, Room, fits

__all__ = ["MostIdle", "RandomGroup", "idle_fraction"]

_EPS_GB = 1e-9


def idle_fraction(state: GroupState) -> float:
    """Return the share of the group's node-seconds in which no phase runs."""
    run_s = sum(
        rate * (job.rollout_s * len(r_pins) + job.train_s * len(t_pins))
        for job, rate, r_pins, t_pins in zip(
            state.jobs, state.rates, state.rollout_pins, state.train_pins, strict=True
        )
    )
    nodes = len(state.rollout_nodes) + len(state.train_nodes)
    return 1 - run_s / (nodes * state.period_s)


def _least_loaded(
    pins: Iterable[tuple[Job, Pins]], pool: str, gb: float, room_gb: float, width: int
) -> list[int]:
    """Return up to ``width`` nodes with DRAM room for ``gb``, least loaded first, then by id.

    Loads include switches: whoever joins a node shares it.
    """
    load: dict[int, float] = {}
    held: dict[int, float] = {}
    for job, nodes in pins:
        for node in nodes:
            seconds = getattr(job, f"{pool}_s") + getattr(job, f"{pool}_switch_s")
            load[node] = load.get(node, 0.0) + seconds
            held[node] = held.get(node, 0.0) + getattr(job, f"{pool}_state_gb")
    fits = [node for node in load if held[node] + gb <= room_gb + _EPS_GB]
    return sorted(fits, key=lambda node: (load[node], node))[:width]


class _ByRoom(FixedPins):
    """What both have in common: candidates by room, and groups kept as they were left."""

    name = ""
    promises_valid = False
    admission_kinds: tuple[AdmissionKind, ...] = (
        "direct",
        "rollout_scaled",
        "train_scaled",
        "isolated",
    )
    uses_seed = False

    def __init__(self, options: PolicyOptions) -> None:
        self._cluster = options.cluster
        self._limits = options.limits
        self._groups: dict[int, GroupState] = {}
        self._home: dict[str, int] = {}
        self._next_node: dict[int, list[int]] = {}
        self._created = 0

    def choose(self, candidates: list[GroupState], *, may_open: bool = True) -> GroupState | None:
        """Return the group to join, or ``None`` for a new one, which ``may_open`` allows."""
        raise NotImplementedError

    def arrive(self, job: Job, now_s: float, room: Room | None = None) -> Change | None:
        """Pin the job in the chosen group, or open one; what exceeds the room is no choice."""
        require_feasible_alone(job, self._cluster, self._limits)
        candidates = {}
        for number, state in self._groups.items():
            pins = self._pins(state, job)
            if pins is None:
                continue
            if fits((job.rollout_nodes - len(pins[0]), job.train_nodes - len(pins[1])), room):
                candidates[number] = pins
        may_open = fits(self.nodes_alone(job), room)
        if not candidates and not may_open:
            return None
        chosen = self.choose([self._groups[n] for n in candidates], may_open=may_open)
        if chosen is None:
            return self._open(job)
        rollout, train = candidates[chosen.number]
        bought_r, bought_t = job.rollout_nodes - len(rollout), job.train_nodes - len(train)
        fresh = self._next_node[chosen.number]
        rollout += range(fresh[0], fresh[0] + bought_r)
        train += range(fresh[1], fresh[1] + bought_t)
        fresh[0] += bought_r
        fresh[1] += bought_t
        state = replace(
            chosen,
            jobs=(*chosen.jobs, job),
            rollout_pins=(*chosen.rollout_pins, tuple(sorted(rollout))),
            train_pins=(*chosen.train_pins, tuple(sorted(train))),
            rates=(*chosen.rates, 1),
        )
        kind: AdmissionKind = "direct"
        if bought_r or bought_t:
            kind = "rollout_scaled" if bought_r else "train_scaled"
        self._home[job.job_id] = chosen.number
        return Change((self._scheduled(state),), (), kind)

    def depart(self, job: Job, now_s: float) -> Change:
        """Let the job go; nodes nobody is pinned to go with it."""
        number = self._home.pop(job.job_id)
        state = self._groups[number]
        if len(state.jobs) == 1:
            del self._groups[number], self._next_node[number]
            return Change((), (number,))
        return Change((self._scheduled(state.without(job.job_id)),))

    def fork(self) -> Self:
        """Return an independent copy."""
        other = copy.copy(self)
        other._groups = dict(self._groups)
        other._home = dict(self._home)
        other._next_node = {number: list(ids) for number, ids in self._next_node.items()}
        return other

    def _pins(self, state: GroupState, job: Job) -> tuple[list[int], list[int]] | None:
        """Return the existing nodes of both pools the job would use, or ``None``."""
        limits = self._limits
        if 0 < limits.max_group_size <= len(state.jobs):
            return None
        rollout = _least_loaded(
            zip(state.jobs, state.rollout_pins, strict=True),
            "rollout",
            job.rollout_state_gb,
            self._cluster.rollout.host_dram_gb,
            job.rollout_nodes,
        )
        train = _least_loaded(
            zip(state.jobs, state.train_pins, strict=True),
            "train",
            job.train_state_gb,
            self._cluster.train.host_dram_gb,
            job.train_nodes,
        )
        if len(rollout) < job.rollout_nodes and len(train) < job.train_nodes:
            return None
        for nodes, used, width, most in (
            (state.rollout_nodes, rollout, job.rollout_nodes, limits.max_rollout_nodes),
            (state.train_nodes, train, job.train_nodes, limits.max_train_nodes),
        ):
            if most is not None and len(nodes) + width - len(used) > most:
                return None
        return rollout, train

    def _open(self, job: Job) -> Change:
        self._created += 1
        state = GroupState.alone(job, self._created)
        self._groups[state.number] = state
        self._home[job.job_id] = state.number
        self._next_node[state.number] = [job.rollout_nodes, job.train_nodes]
        return Change((state,), (), "isolated")

    def _scheduled(self, state: GroupState) -> GroupState:
        schedule = construct(state.shape())
        assert schedule is not None  # without a limit, one after the other always works
        state = replace(state, period_s=schedule.period_s, starts_s=schedule.starts_s)
        self._groups[state.number] = state
        return state


class RandomGroup(_ByRoom):
    """Uniform over the candidates and a new group, from ``PolicyOptions.seed``."""

    name = "random"
    uses_seed = True

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._rng = np.random.default_rng(options.seed)

    def choose(self, candidates: list[GroupState], *, may_open: bool = True) -> GroupState | None:
        """Draw."""
        drawn = int(self._rng.integers(len(candidates) + may_open))
        return candidates[drawn] if drawn < len(candidates) else None

    def fork(self) -> Self:
        """Return an independent copy, which draws the same numbers."""
        other = super().fork()
        other._rng = copy.deepcopy(self._rng)
        return other


class MostIdle(_ByRoom):
    """The candidate with the largest idle fraction; the oldest on ties."""

    name = "most-idle"

    def choose(self, candidates: list[GroupState], *, may_open: bool = True) -> GroupState | None:
        """Return the idlest candidate."""
        if not candidates:
            return None
        return max(candidates, key=lambda state: (idle_fraction(state), -state.number))
