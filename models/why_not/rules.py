"""A set of jobs that cannot be one group: the rule it breaks, in words.

Sets and parameters
-------------------
``S`` the jobs, two or more, each able to run alone; ``n = (n_R, n_T)`` the most nodes of each
pool they may hold; ``C = min_S D_j``; ``M`` host DRAM. The question is asked, and answered, by
:func:`models.why_not.conflict.why_not`.

Rules, the first broken one is told
-----------------------------------
* ``max_group_size``: ``|S|`` is above it;
* ``slo``: some ``T_i > D_k``;
* ``residency``: every pinning onto ``n`` nodes has a node with more than ``M`` GB;
* ``load``: every pinning within ``M`` has a node with more than ``C`` seconds of phases;
* ``switch``, ``overlap``: loads admit pinnings, but on each some job's own iteration with its
  switches, or phases that share nodes pairwise, take more than ``C``;
* ``precedence``: nothing of that, and yet no schedule. Told by the shortest period of ``S`` on
  ``n`` and the critical cycle of its schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Final

from instances.jobs import Job
from models.group.cycle_ratio import critical_cycle, order_of
from models.group.group_cost import GroupCost, Nodes
from models.group.period import tightened
from models.group.pinnings import REL_SLACK, PoolLoads, pinnings
from models.problem.group_shape import GroupShape, Pins, Schedule, lower_bound, lower_bound_s
from models.problem.options import Deadline
from models.problem.snapshot import PlacedGroup, Snapshot
from models.why_not.explanation import (
    POOLS,
    Cure,
    counted,
    names_of,
    number,
    sentence,
)

__all__ = [
    "LESS",
    "Asked",
    "Shortest",
    "broken_rule",
    "residency_words",
    "shortest_of",
    "worst_node",
]

#: Pairs of pinnings looked at to tell whether loads admit any.
_PAIRS: Final = 256
#: "Less than this": a share far above the slack of sums and far below any stated digit.
LESS: Final = 1e-8
#: A period is proved shortest when none shorter by this share exists.
_SHORTER: Final = 1e-6


# --- one group, as asked and as changed ---------------------------------------------------------


class Asked:
    """Some jobs as one group on at most so many nodes, decided under any cure."""

    def __init__(
        self, snapshot: Snapshot, members: Sequence[int], nodes: Nodes | None, seed: int
    ) -> None:
        self.snapshot = Snapshot(
            table=snapshot.table.take(members), cluster=snapshot.cluster, limits=snapshot.limits
        )
        self.jobs = self.snapshot.jobs
        self.all = tuple(range(len(members)))
        self.asked = nodes
        self.seed = seed
        self.loads = tuple(_pool_loads(self.jobs, pool) for pool in POOLS)
        self.widths = sum(self.loads[0].widths), sum(self.loads[1].widths)
        self.nodes = self.nodes_after(Cure())
        self.dram_gb = (
            snapshot.cluster.rollout.host_dram_gb,
            snapshot.cluster.train.host_dram_gb,
        )

    def nodes_after(self, cure: Cure) -> Nodes:
        """Return the most nodes worth having under a cure."""
        most = GroupCost(cure.applied(self.snapshot)).most_nodes(self.all)
        if self.asked is None:
            return most
        asked = [max(self.asked[pool], cure.nodes[pool] or 0) for pool in (0, 1)]
        return min(asked[0], most[0]), min(asked[1], most[1])

    def decide(self, cure: Cure) -> PlacedGroup | None:
        """Return the jobs as one group under a cure; ``None`` if impossible."""
        relaxed = cure.applied(self.snapshot)
        size = relaxed.limits.max_group_size
        if size and len(self.all) > size:
            return None
        return GroupCost(relaxed, seed=self.seed).decide(self.all, self.nodes_after(cure))


def _pool_loads(jobs: Sequence[Job], pool: str) -> PoolLoads:
    return PoolLoads(
        tuple(getattr(job, f"{pool}_nodes") for job in jobs),
        tuple(getattr(job, f"{pool}_s") for job in jobs),
        tuple(getattr(job, f"{pool}_switch_s") for job in jobs),
        tuple(getattr(job, f"{pool}_state_gb") for job in jobs),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortest:
    """The shortest schedule found of a set on its nodes, DRAM as it is, SLOs left aside."""

    shape: GroupShape
    schedule: Schedule
    proved: bool


def shortest_of(asked: Asked, base: Cure, deadline: Deadline) -> Shortest | None:
    """Return the shortest period of a set: ask for less until there is none.

    ``None`` when no period is long enough (DRAM).
    """
    floor = max([job.solo_s for job in asked.jobs])
    # one job after the other, nothing of it side by side
    period = sum(
        [
            job.rollout_s + job.train_s + job.sync_s + job.rollout_switch_s + job.train_switch_s
            for job in asked.jobs
        ]
    )
    best: Shortest | None = None
    while True:
        slo = tuple((job.job_id, max(period / job.solo_s, 1.0)) for job in asked.jobs)
        found = asked.decide(replace(base, slo=slo))
        if found is None:
            return None if best is None else replace(best, proved=True)
        shape = GroupShape.of(asked.jobs, found.rollout_pins, found.train_pins)
        bound = lower_bound_s(shape)
        schedule = tightened(
            shape, Schedule(period_s=found.period_s, starts_s=found.starts_s, bound_s=bound)
        )
        at_floor = schedule.period_s <= floor * (1 + REL_SLACK)
        best = Shortest(shape=shape, schedule=schedule, proved=at_floor)
        if at_floor or deadline.expired:
            return best
        period = max(schedule.period_s * (1 - _SHORTER), floor)


# --- the broken rule in words -------------------------------------------------------------------


def worst_node(
    pins: Sequence[Pins], amounts: Sequence[float], when_shared: Sequence[float]
) -> tuple[float, list[int]]:
    """Return the largest sum of amounts on a node, and the jobs there."""
    on: dict[int, list[int]] = {}
    for i, nodes in enumerate(pins):
        for node in nodes:
            on.setdefault(node, []).append(i)
    sums = [
        (math.fsum([amounts[i] + (when_shared[i] if len(jobs) > 1 else 0.0) for i in jobs]), jobs)
        for jobs in on.values()
    ]
    return max(sums, key=lambda found: found[0])


def broken_rule(asked: Asked, shortest: Shortest | None, deadline: Deadline) -> tuple[str, str]:
    """Return the first broken rule of the module docstring, and the words for it."""
    size = asked.snapshot.limits.max_group_size
    if size and len(asked.all) > size:
        return "max_group_size", (
            f"{sentence(names_of(asked.jobs))} are {len(asked.all)} jobs; a group holds at most "
            f"{size} (max_group_size)."
        )
    binding = min(asked.jobs, key=lambda job: job.deadline_s)
    longest = max(asked.jobs, key=lambda job: job.solo_s)
    if longest.solo_s > binding.deadline_s * (1 + REL_SLACK):
        return "slo", (
            f"Job {longest.job_id} takes {number(longest.solo_s)} s an iteration even alone, "
            f"{number(longest.solo_s - binding.deadline_s)} s more than "
            f"{_deadline_words(binding)}; in one group all iterate at one pace."
        )
    for rule, words_of in (("residency", residency_words), ("load", _load_words)):
        for pool in (0, 1):
            words = words_of(asked, pool, binding, deadline)
            if words is not None:
                return rule, words
    return _schedule_words(asked, binding, shortest)


def _deadline_words(job: Job) -> str:
    return (
        f"the {number(job.deadline_s)} s that the SLO of job {job.job_id} allows "
        f"({number(job.slo)} x {number(job.solo_s)} s)"
    )


def residency_words(asked: Asked, pool: int, _: Job, deadline: Deadline) -> str | None:
    """Return the words for a node whose DRAM no pinning keeps; ``None`` where one does."""
    has = asked.dram_gb[pool]
    if next(pinnings(asked.loads[pool], asked.nodes[pool], math.inf, has), None) is not None:
        return None
    found = _least_worst(asked, pool, None, deadline)
    gb = f"more than {number(has)} GB" if found is None else f"at least {number(found[0])} GB"
    at_best = "" if found is None else f" (at best, that of {names_of(found[1])})"
    return (
        f"{_however(asked, pool)}, some node holds {gb} of state{at_best}; its host DRAM is "
        f"{number(has)} GB."
    )


def _load_words(asked: Asked, pool: int, binding: Job, deadline: Deadline) -> str | None:
    has, most = asked.dram_gb[pool], binding.deadline_s
    if next(pinnings(asked.loads[pool], asked.nodes[pool], most, has), None) is not None:
        return None
    found = _least_worst(asked, pool, has, deadline)
    seconds = "more" if found is None else f"at least {number(found[0])} s"
    at_best = ""
    if found is not None:
        switches = math.fsum([getattr(job, f"{POOLS[pool]}_switch_s") for job in found[1]])
        of_it = f", {number(switches)} s of them switches" if switches else ""
        at_best = f" (at best, those of {names_of(found[1])}{of_it})"
    return (
        f"{_however(asked, pool)} within host DRAM, some node carries {seconds} of {POOLS[pool]} "
        f"phases an iteration{at_best}, more than {_deadline_words(binding)}."
    )


def _however(asked: Asked, pool: int) -> str:
    nodes = counted(asked.nodes[pool], f"{POOLS[pool]} node")
    return f"However {names_of(asked.jobs)} are pinned to {nodes}"


def _least_worst(
    asked: Asked, pool: int, within_gb: float | None, deadline: Deadline
) -> tuple[float, list[Job]] | None:
    """Return the least that the fullest node can hold, and the jobs on it; exact.

    In GB where ``within_gb`` is left out, else in seconds, switches included. Less than the
    fullest node of the pinning just found is asked for, until there is none. ``None`` when the
    deadline passes first.
    """
    loads = asked.loads[pool]
    best: tuple[float, list[int]] = math.inf, []
    while not deadline.expired:
        less = best[0] * (1 - LESS)
        seconds, gb = (math.inf, less) if within_gb is None else (less, within_gb)
        pins = next(pinnings(loads, asked.nodes[pool], seconds, gb), None)
        if pins is None:
            return best[0], [asked.jobs[i] for i in best[1]]
        if within_gb is None:
            best = worst_node(pins, loads.state_gb, (0.0,) * len(pins))
        else:
            best = worst_node(pins, loads.seconds, loads.switch_s)
    return None


def _schedule_words(asked: Asked, binding: Job, shortest: Shortest | None) -> tuple[str, str]:
    rollout, train = (counted(asked.nodes[pool], f"{POOLS[pool]} node") for pool in (0, 1))
    where = f"{names_of(asked.jobs)} on {rollout} and {train}"
    if shortest is None:
        raise AssertionError("pinnings exist, but no period is long enough for one")
    period = shortest.schedule.period_s
    rule = _rule_of_schedule(asked, binding, shortest)
    why = {
        "precedence": "each node has time for its phases and each job for its iteration, but no "
        "order of the phases fits",
        "switch": "a job that shares a node pays its switches in every iteration",
        "overlap": "phases with a node in common cannot run at once",
    }[rule]
    known = "the shortest iteration possible" if shortest.proved else "the shortest iteration found"
    return rule, (
        f"{sentence(where)}: {why}. {sentence(known)} takes {number(period)} s, "
        f"{number(period - binding.deadline_s)} s more than {_deadline_words(binding)}."
        f"{_cycle_words(asked, shortest)}"
    )


def _rule_of_schedule(asked: Asked, binding: Job, shortest: Shortest) -> str:
    """Return which kind of time is short where the loads of both pools admit pinnings."""
    limit = binding.deadline_s * (1 + REL_SLACK)
    found = [
        pinnings(asked.loads[pool], asked.nodes[pool], binding.deadline_s, asked.dram_gb[pool])
        for pool in (0, 1)
    ]
    pairs = islice(product(*(list(islice(some, _PAIRS)) for some in found)), _PAIRS)
    if any(lower_bound_s(GroupShape.of(asked.jobs, r, t)) <= limit for r, t in pairs):
        return "precedence"
    return "switch" if lower_bound(shortest.shape).chain_s > limit else "overlap"


def _cycle_words(asked: Asked, shortest: Shortest) -> str:
    """Return the phases that follow each other without a gap in the shortest schedule."""
    shape, schedule = shortest.shape, shortest.schedule
    order = order_of(shape, schedule.period_s, schedule.starts_s)
    cycle = critical_cycle(shape, order, schedule.period_s)
    if cycle is None:
        return ""
    steps = []
    for step, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        job = asked.jobs[step.job]
        run = (shape.rollout_s, shape.train_s)[step.phase][step.job]
        extra = " with switch" if run > (job.rollout_s, job.train_s)[step.phase] else ""
        sync = " and sync" if step.phase == 1 and after.phase == 0 and job.sync_s else ""
        what = f"{POOLS[step.phase]}{sync} of {job.job_id}"
        steps.append(f"{what} ({number(step.seconds)} s{extra})")
    again = f"{POOLS[cycle[0].phase]} of {asked.jobs[cycle[0].job].job_id}"
    laps = sum([step.laps for step in cycle])
    seconds = math.fsum([step.seconds for step in cycle])
    turns = "" if laps == 1 else f" in {laps} iterations"
    return (
        f" What keeps it from being shorter: {' -> '.join([*steps, again])}, "
        f"{number(seconds)} s{turns}."
    )
