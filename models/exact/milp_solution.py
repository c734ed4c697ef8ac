"""Solving the MILP: what a solution means, exact starts, and what is held and proved meanwhile.

HiGHS meets a row within its tolerance, and the model's turns are a little long, so the starts of
a solution may overlap by more than the checker forgives. Only what is discrete is taken from
it: members, pins, which phase comes before which on a node, and the lap of each train. That
fixes cyclic orders and heights, of which :func:`models.group.period.least_period` computes the
least period exactly. Where that exceeds the leader's deadline, the solution was an artefact:
another schedule on the same pins is tried, and when there is none a cut takes just this choice of
pins, orders and laps out of the model, which is solved again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf
from typing import Any, Final

import pyomo.environ as pyo

from instances.errors import InputError
from models.backends import pyomo_highs
from models.backends.pyomo_highs import Ended, Solved
from models.exact.milp_parameters import REL_SLACK
from models.group.period import CyclicOrder, construct, least_period
from models.group.pinnings import DRAM_SLACK
from models.problem.group_shape import GroupShape, Pins, Schedule
from models.problem.options import SolveOptions
from models.problem.result import (
    OPTIMALITY_REL,
    Result,
    SolverInfo,
    StoppedBy,
    first_incumbent,
    result_of,
    usd_of,
)
from models.problem.snapshot import PlacedGroup, Snapshot, placed

__all__ = ["AttainableCosts", "Choice", "Search", "choices", "refute", "timed", "worst_fraction"]

#: A bound may be raised past values within this relative distance of it.
_RAISE_REL: Final = 1e-6
#: Largest distance of a binary variable from 0 and 1 that a solution may have.
_INTEGRALITY: Final = 1e-6
#: Solutions of one solve that exact timing may refute before it gives up.
_MOST_REFUTED: Final = 200
_STOPPED: Final[Mapping[Ended, StoppedBy]] = {
    Ended.TIME: StoppedBy.TIME,
    Ended.NODES: StoppedBy.NODES,
    Ended.INTERRUPT: StoppedBy.INTERRUPT,
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The discrete part of a solution for one group; tuples run over ``members``, ascending.

    Attributes
    ----------
    true, false : tuple of variables
        That are 1 and 0, and together fix pins, orders and laps.
    """

    leader: int
    members: tuple[int, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    order: CyclicOrder
    true: tuple[Any, ...]
    false: tuple[Any, ...]


def worst_fraction(model: Any) -> float:
    """Return how far the values of binary variables are from 0 and 1 at most."""
    binaries = (v for v in model.component_data_objects(pyo.Var) if v.is_binary())
    return max((abs(v.value - round(v.value)) for v in binaries), default=0.0)


def choices(model: Any) -> list[Choice]:
    """Read the groups of the solution that a model holds."""
    members: dict[int, list[int]] = {}
    for (j, g), variable in model.x.items():
        if _is_one(variable):
            members.setdefault(g, []).append(j)
    pins: dict[tuple[str, int], list[int]] = {}
    for (p, j, _g, n), variable in model.z.items():
        if _is_one(variable):
            pins.setdefault((p, j), []).append(n)
    return [_choice(model, g, sorted(members[g]), pins) for g in sorted(members)]


def _is_one(variable: Any) -> bool:
    return bool(round(variable.value) == 1)


def _choice(
    model: Any, g: int, members: Sequence[int], pins: Mapping[tuple[str, int], list[int]]
) -> Choice:
    index = {j: i for i, j in enumerate(members)}
    true: list[Any] = []
    false: list[Any] = []
    orders = []
    for p in ("R", "T"):
        users: dict[int, list[int]] = {}
        for j in members:
            for n in pins[p, j]:
                users.setdefault(n, []).append(j)
                true.append(model.z[p, j, g, n])
        pairs = {pair for sharing in users.values() for pair in permutations(sharing, 2)}
        true += [model.before[p, i, j] for i, j in sorted(pairs) if _is_one(model.before[p, i, j])]
        ordered = [_in_order(model, p, users[n]) for n in sorted(users)]
        orders.append(tuple(tuple((index[j], 0) for j in node) for node in ordered))
    laps = []
    for j in members:
        own = [model.lap[j], model.lap_more[j]] if j in model.lap_more else [model.lap[j]]
        for lap in own:
            (true if _is_one(lap) else false).append(lap)
        laps.append(sum(_is_one(lap) for lap in own))
    return Choice(
        leader=g,
        members=tuple(members),
        rollout_pins=tuple(tuple(pins["R", j]) for j in members),
        train_pins=tuple(tuple(pins["T", j]) for j in members),
        order=CyclicOrder(
            rollout=orders[0],
            train=orders[1],
            laps=tuple(((0, turns),) for turns in laps),
        ),
        true=tuple(true),
        false=tuple(false),
    )


def _in_order(model: Any, p: str, sharing: Sequence[int]) -> list[int]:
    """Return the jobs of one node, each after those before it.

    Phases shorter than the tolerance may come before each other in a circle. Any order of
    them is then as good a guess, for :func:`timed` judges it.
    """

    def before(j: int) -> int:
        return sum(_is_one(model.before[p, i, j]) for i in sharing if i != j)

    return sorted(sharing, key=before)


def timed(snapshot: Snapshot, choice: Choice) -> PlacedGroup | None:
    """Return a group with exact starts on the pins chosen, within the leader's deadline.

    The least period of the orders and laps chosen, or a shorter one where construction finds
    it. ``None`` when neither gives a period within the deadline, or a node is overfull.
    """
    jobs = [snapshot.jobs[j] for j in choice.members]
    cluster = snapshot.cluster
    rollout_gb = _fullest(choice.rollout_pins, [job.rollout_state_gb for job in jobs])
    train_gb = _fullest(choice.train_pins, [job.train_state_gb for job in jobs])
    if rollout_gb > cluster.rollout.host_dram_gb * (1 + DRAM_SLACK):
        return None
    if train_gb > cluster.train.host_dram_gb * (1 + DRAM_SLACK):
        return None
    shape = GroupShape.of(jobs, choice.rollout_pins, choice.train_pins)
    limit_s = snapshot.jobs[choice.leader].deadline_s * (1 + REL_SLACK)
    try:
        found: Schedule | None = least_period(shape, choice.order)
    except InputError:  # contradictory orders of phases shorter than the tolerance
        found = None
    if found is not None and found.period_s > limit_s:
        found = None
    other = construct(shape, limit_s=limit_s if found is None else found.period_s)
    if other is not None and (found is None or other.period_s < found.period_s):
        found = other
    if found is None:
        return None
    return placed(choice.members, (choice.rollout_pins, choice.train_pins), found)


def _fullest(pins: Sequence[Pins], state_gb: Sequence[float]) -> float:
    """Return the GB of state on the node with most."""
    on_node: dict[int, float] = {}
    for nodes, gb in zip(pins, state_gb, strict=True):
        for node in nodes:
            on_node[node] = on_node.get(node, 0.0) + gb
    return max(on_node.values())


def refute(model: Any, choice: Choice) -> None:
    """Cut off one choice of pins, orders and laps that has no schedule.

    ``sum_true (1 - v) + sum_false v >= 1``. More jobs on the same nodes only add rows to those
    that cannot be met, so what the cut takes with it is invalid too.
    """
    if model.component("refuted") is None:
        model.refuted = pyo.ConstraintList()
    model.refuted.add(sum(1 - v for v in choice.true) + sum(choice.false) >= 1)


class AttainableCosts:
    """The prices that plans of a snapshot can have, $/h.

    ``c^R n^R + c^T n^T`` with whole ``n^P`` between the widest gang, which every plan holds, and
    the sum of all widths, beyond which a node has no pin.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        rollout = _counts([job.rollout_nodes for job in snapshot.jobs])
        train = _counts([job.train_nodes for job in snapshot.jobs])
        self.usd = sorted({snapshot.usd_per_hour(r, t) for r in rollout for t in train})

    def raised(self, bound_usd: float) -> float:
        """Return the least price a plan can have at this bound, the bound itself if none.

        Prices within 1e-6 below the bound, relatively, count: the bound carries round-off.
        """
        i = bisect_left(self.usd, bound_usd - _RAISE_REL * max(abs(bound_usd), 1.0))
        return self.usd[i] if i < len(self.usd) else bound_usd

    def below(self, usd: float) -> float | None:
        """Return the greatest price that is less than this one, by more than round-off."""
        i = bisect_left(self.usd, usd - OPTIMALITY_REL * max(abs(usd), 1.0))
        return self.usd[i - 1] if i > 0 else None


def _counts(widths: Sequence[int]) -> range:
    return range(max(widths, default=0), sum(widths) + 1)


class Search:
    """One solve: what is held, what is proved, and why it ended."""

    def __init__(self, snapshot: Snapshot, options: SolveOptions) -> None:
        self.snapshot = snapshot
        self.options = options
        self.deadline = options.start()
        self.held = first_incumbent(snapshot, options)
        self.costs = AttainableCosts(snapshot)
        self.usd = None if self.held is None else usd_of(snapshot, self.held)
        self.bound_usd: float | None = None
        self.stopped: StoppedBy | None = None
        self.infeasible = self.failed = False
        self.last: Solved | None = None
        self.counts: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def target_usd(self) -> float | None:
        """Return the price that a plan worth looking for has at most; ``None`` if none can be.

        Infinite while no plan is held.
        """
        if self.usd is None:
            return inf
        target_usd = self.costs.below(self.usd)
        if target_usd is None:
            self.bound_usd = self.usd
        return target_usd

    def run(self, model: Any) -> None:
        """Solve the model, again as long as exact timing refutes a solution."""
        self.seconds["build"] = self.deadline.elapsed_s
        self.counts = {
            "variables": sum(1 for _ in model.component_data_objects(pyo.Var)),
            "rows": sum(1 for _ in model.component_data_objects(pyo.Constraint)),
            "nodes": 0,
            "refuted": 0,
        }
        again = True
        while again:
            self.deadline.check()
            again = self._again(model)

    def _again(self, model: Any) -> bool:
        """Run the solver once; return whether its solution was refuted, so that it must rerun."""
        seed, node_limit = self.options.seed, self.options.node_limit
        options = pyomo_highs.options_of(seed=seed, node_limit=node_limit)
        solved = self.last = pyomo_highs.solve(model, options, self.deadline)
        self.seconds["solve"] = self.deadline.elapsed_s - self.seconds["build"]
        self.counts["nodes"] += solved.nodes
        self.stopped = _STOPPED.get(solved.ended)
        self.failed = solved.ended is Ended.FAILED
        if solved.ended is Ended.INFEASIBLE:  # what is held is the cheapest
            self.infeasible, self.bound_usd = self.held is None, self.usd
        if solved.bound is not None:
            bound_usd = self.costs.raised(solved.bound)
            self.bound_usd = bound_usd if self.usd is None else min(bound_usd, self.usd)
        if solved.objective is None or worst_fraction(model) > _INTEGRALITY:
            self.failed |= solved.objective is not None
            return False
        chosen = choices(model)
        groups = [timed(self.snapshot, choice) for choice in chosen]
        valid = [group for group in groups if group is not None]
        if len(valid) == len(groups):
            self.held, self.usd = tuple(valid), solved.objective
            return False
        for choice, group in zip(chosen, groups, strict=True):
            if group is None:
                refute(model, choice)
        self.counts["refuted"] += len(groups) - len(valid)
        self.failed = self.counts["refuted"] > _MOST_REFUTED
        if solved.interrupted:
            self.stopped = StoppedBy.INTERRUPT
        return self.stopped is None and not self.failed

    def result(self, method: str) -> Result:
        """Return what is held and proved, checked and re-costed."""
        solver = None
        if self.last is not None:
            name, version, status = "HiGHS (Pyomo)", self.last.version, self.last.status
            solver = SolverInfo(name=name, version=version, status=status)
        return result_of(
            self.snapshot,
            self.options,
            method,
            groups=self.held,
            bound_usd=self.bound_usd,
            stopped_by=self.stopped,
            claimed_usd=self.usd,
            infeasible=self.infeasible,
            failed=self.failed,
            solver=solver,
            counts=self.counts,
            seconds=self.seconds,
        )
