"""A set of jobs that cannot be one group: the rule it breaks, in words, and what would cure it.

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

Cures
-----
A :class:`Cure` changes one kind of number (more only where no single kind is enough): nodes of
one pool, GB of host DRAM of one pool, SLOs. Each is the least of its kind, found by deciding
the set again with it (:meth:`models.group.group_cost.GroupCost.decide`, exact): nodes one by one;
GB by asking for less than the fullest node of the group just found, until there is none; SLOs from
the shortest period ``P``: every job with ``D_j < P`` needs ``sigma_j = P / T_j``, nothing less can
do. What is stated is rounded up. Where no kind alone is enough: SLOs that allow the longest
``T_i``, and the fewest nodes with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from models.problem.result import Conflict
from models.problem.snapshot import PlacedGroup, Snapshot

__all__ = [
    "POOLS",
    "Asked",
    "Cure",
    "Explanation",
    "Shortest",
    "broken_rule",
    "counted",
    "cures_of",
    "names_of",
    "number",
    "residency_words",
    "rounded_up",
    "sentence",
    "shortest_of",
    "slos_for",
]

POOLS: Final = ("rollout", "train")
#: Job ids named one by one.
_MOST_NAMES: Final = 12
#: Pairs of pinnings looked at to tell whether loads admit any.
_PAIRS: Final = 256
#: A period is proved shortest when none shorter by this share exists.
_SHORTER: Final = 1e-6
#: "Less than this": a share far above the slack of sums and far below any stated digit.
_LESS: Final = 1e-8


@dataclass(frozen=True, kw_only=True)
class Cure:
    """New values of what a planner can change; ``None`` or nothing where it stays as it is.

    Attributes
    ----------
    max_group_size : int or None
    nodes : (int or None, int or None)
        Rollout and train nodes of the group, and its limits where these are lower.
    dram_gb : (float or None, float or None)
        Host DRAM of a rollout and of a train node.
    slo : tuple of (str, float)
        Job id and SLO.
    slo_factor : float or None
        Every SLO is multiplied by it.
    totals : (int or None, int or None)
        Fleet caps, rollout and train nodes.
    least : bool
        Whether less of the same is proved not to be enough.
    within : str
        The step in which the least was looked for, empty when it is exact.
    """

    max_group_size: int | None = None
    nodes: tuple[int | None, int | None] = (None, None)
    dram_gb: tuple[float | None, float | None] = (None, None)
    slo: tuple[tuple[str, float], ...] = ()
    slo_factor: float | None = None
    totals: tuple[int | None, int | None] = (None, None)
    least: bool = True
    within: str = ""

    def with_nodes(self, pool: int, nodes: int) -> Cure:
        """Return the cure with so many nodes of one pool."""
        rollout, train = self.nodes
        return replace(self, nodes=(nodes, train) if pool == 0 else (rollout, nodes))

    def with_dram(self, pool: int, gb: float) -> Cure:
        """Return the cure with so much host DRAM on the nodes of one pool."""
        rollout, train = self.dram_gb
        return replace(self, dram_gb=(gb, train) if pool == 0 else (rollout, gb))

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as it is after the change."""
        limits, caps, cluster = snapshot.limits, snapshot.caps, snapshot.cluster
        if self.max_group_size is not None:
            limits = replace(limits, max_group_size=self.max_group_size)
        for pool, name in enumerate(POOLS):
            nodes, gb, total = self.nodes[pool], self.dram_gb[pool], self.totals[pool]
            limit = getattr(limits, f"max_{name}_nodes")
            if nodes is not None and limit is not None:
                limits = replace(limits, **{f"max_{name}_nodes": max(limit, nodes)})
            if gb is not None:
                node = replace(getattr(cluster, name), host_dram_gb=gb)
                cluster = cluster.replace(**{name: node})
            if total is not None:
                caps = replace(caps, **{f"max_{name}_nodes_total": total})
        table = snapshot.table
        if self.slo or self.slo_factor is not None:
            new, factor = dict(self.slo), self.slo_factor or 1.0
            slos = zip(table.job_id, table.slo.tolist(), strict=True)
            table = table.replace(slo=[new.get(job_id, slo) * factor for job_id, slo in slos])
        return Snapshot(table=table, cluster=cluster, limits=limits, caps=caps)

    def words(self, snapshot: Snapshot, nodes: Nodes | None = None) -> str:
        """Return the change in words; ``nodes`` is what the group may hold now."""
        text = " and ".join([*self._limit_words(snapshot, nodes), *self._slo_words(snapshot)])
        end = f" (to within {self.within})" if self.within else ""
        if not self.least:
            end = " (enough; not proved the least)"
        return f"{sentence(text)}{end}."

    def _limit_words(self, snapshot: Snapshot, nodes: Nodes | None) -> Iterator[str]:
        if self.max_group_size is not None:
            size = snapshot.limits.max_group_size
            yield f"raise max_group_size from {size} to {self.max_group_size}"
        for pool, name in enumerate(POOLS):
            wanted, gb, total = self.nodes[pool], self.dram_gb[pool], self.totals[pool]
            limit = getattr(snapshot.limits, f"max_{name}_nodes")
            if wanted is not None and limit is not None and limit < wanted:
                yield f"raise max_{name}_nodes from {limit} to {wanted}"
            elif wanted is not None:
                now = "" if nodes is None else f" instead of {nodes[pool]}"
                yield f"use {counted(wanted, f'{name} node')}{now}"
            if gb is not None:
                has = getattr(snapshot.cluster, name).host_dram_gb
                yield f"give each {name} node {number(gb)} instead of {number(has)} GB of host DRAM"
            if total is not None:
                cap = getattr(snapshot.caps, f"max_{name}_nodes_total")
                yield f"raise max_{name}_nodes_total from {cap} to {total}"

    def _slo_words(self, snapshot: Snapshot) -> Iterator[str]:
        now = dict(zip(snapshot.table.job_id, snapshot.table.slo.tolist(), strict=True))
        if self.slo:
            jobs = [f"job {i} from {number(now[i])} to {number(slo)}" for i, slo in self.slo]
            yield f"loosen the SLO of {', of '.join(jobs)}"
        if self.slo_factor is not None:
            yield f"multiply every SLO by {number(self.slo_factor)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A conflict with what its words stand for.

    Attributes
    ----------
    conflict : Conflict
    members : tuple of int
        The jobs in conflict, indices of the snapshot.
    cures : tuple of Cure
        One per relaxation.
    """

    conflict: Conflict
    members: tuple[int, ...]
    cures: tuple[Cure, ...]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        members: Sequence[int],
        told: tuple[str, str],
        cures: Sequence[Cure],
        relaxations: Sequence[str],
    ) -> Explanation:
        """Return the explanation of some of the jobs; ``told`` is (rule, message)."""
        rule, message = told
        conflict = Conflict(
            job_ids=tuple(snapshot.jobs[i].job_id for i in members),
            rule=rule,
            message=message,
            relaxations=tuple(relaxations),
        )
        return cls(conflict=conflict, members=tuple(members), cures=tuple(cures))


# --- words ------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with thousands separators and at most four decimals."""
    if 0 < abs(value) < 0.01:
        return f"{value:.3g}"
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def counted(count: int, thing: str) -> str:
    """Return ``"1 node"`` or ``"2 nodes"``."""
    return f"{count} {thing}{'s' * (count != 1)}"


def names_of(jobs: Sequence[Job]) -> str:
    """Return ``"job a"``, ``"jobs a and b"``, ``"jobs a, b and c"``; long lists are cut."""
    names = [job.job_id for job in jobs]
    if len(names) == 1:
        return f"job {names[0]}"
    if len(names) > _MOST_NAMES:
        return f"jobs {', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return f"jobs {', '.join(names[:-1])} and {names[-1]}"


def rounded_up(value: float, digits: int) -> float:
    """Return a number rounded up to so many decimals; round-off does not add a digit."""
    scale = 10.0**digits
    return math.ceil(value * scale - 1e-8) / scale


def sentence(text: str) -> str:
    """Return a text with its first letter raised."""
    return text[0].upper() + text[1:]


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


# --- cures --------------------------------------------------------------------------------------


def cures_of(asked: Asked, base: Cure, shortest: Shortest | None, deadline: Deadline) -> list[Cure]:
    """Return the least change of each kind, on top of ``base``, that makes the jobs one group."""
    if base != Cure() and asked.decide(base) is not None:
        return [base]
    found: list[Cure] = []
    for kind in (_node_cures, _dram_cures):
        if deadline.expired:
            return found
        found += kind(asked, base, deadline)
    if shortest is not None:
        found += _slo_cure(asked, base, shortest)
    if not found and not deadline.expired:  # no single kind is enough
        slo = slos_for(asked, max([job.solo_s for job in asked.jobs]))
        found += _node_cures(asked, replace(base, slo=slo), deadline)
    return found


def _node_cures(asked: Asked, base: Cure, deadline: Deadline) -> list[Cure]:
    """Fewest more nodes of one pool; if neither alone is enough, the cheapest of both."""
    have = asked.nodes_after(base)
    out = []
    for pool in (0, 1):
        top = asked.widths[pool]
        if have[pool] >= top or asked.decide(base.with_nodes(pool, top)) is None:
            continue
        for nodes in range(have[pool] + 1, top + 1):
            cure = base.with_nodes(pool, nodes)
            if deadline.expired:
                out.append(replace(base.with_nodes(pool, top), least=False))
                break
            if asked.decide(cure) is not None:
                out.append(cure)
                break
    if not out and all(have[pool] < asked.widths[pool] for pool in (0, 1)):
        most = base.with_nodes(0, asked.widths[0]).with_nodes(1, asked.widths[1])
        cost = GroupCost(most.applied(asked.snapshot), seed=asked.seed)
        group = cost.cheapest(asked.all, math.inf)
        if group is not None:
            out.append(base.with_nodes(0, group.nodes[0]).with_nodes(1, group.nodes[1]))
    return out


def _dram_cures(asked: Asked, base: Cure, deadline: Deadline) -> list[Cure]:
    """Fewest GB on the nodes of one pool; if neither alone is enough, of both."""
    total = tuple(rounded_up(sum(asked.loads[pool].state_gb), 2) for pool in (0, 1))
    open_ = [pool for pool in (0, 1) if total[pool] > asked.dram_gb[pool]]
    out = [
        cure
        for pool in open_
        if (cure := _least_dram(asked, base, pool, total[pool], deadline)) is not None
    ]
    if out or len(open_) < 2:
        return out
    first = _least_dram(asked, base.with_dram(1, total[1]), 0, total[0], deadline)
    if first is None or first.dram_gb[0] is None:
        return []
    both = _least_dram(asked, base.with_dram(0, first.dram_gb[0]), 1, total[1], deadline)
    return [] if both is None else [both]


def _least_dram(
    asked: Asked, base: Cure, pool: int, most_gb: float, deadline: Deadline
) -> Cure | None:
    """Return the least host DRAM of one pool's nodes: less than the fullest node until none."""
    found = asked.decide(base.with_dram(pool, most_gb))
    best = None
    while found is not None:
        pins = (found.rollout_pins, found.train_pins)[pool]
        gb, _ = _worst_node(pins, asked.loads[pool].state_gb, (0.0,) * len(pins))
        best = base.with_dram(pool, rounded_up(gb, 2))
        if deadline.expired:
            return replace(best, least=False)
        found = asked.decide(base.with_dram(pool, gb * (1 - _LESS)))
    return best


def _slo_cure(asked: Asked, base: Cure, shortest: Shortest) -> list[Cure]:
    """SLOs that allow the shortest period on these nodes."""
    slo = slos_for(asked, shortest.schedule.period_s)
    cure = replace(base, slo=slo, least=shortest.proved)
    return [cure] if asked.decide(cure) is not None else []


def slos_for(asked: Asked, period_s: float) -> tuple[tuple[str, float], ...]:
    """Return the SLO of every job whose deadline is below a period, so that it allows it."""
    return tuple(
        (job.job_id, rounded_up(period_s / job.solo_s, 4))
        for job in asked.jobs
        if job.deadline_s * (1 + REL_SLACK) < period_s
    )


# --- the broken rule in words -------------------------------------------------------------------


def _worst_node(
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
        less = best[0] * (1 - _LESS)
        seconds, gb = (math.inf, less) if within_gb is None else (less, within_gb)
        pins = next(pinnings(loads, asked.nodes[pool], seconds, gb), None)
        if pins is None:
            return best[0], [asked.jobs[i] for i in best[1]]
        if within_gb is None:
            best = _worst_node(pins, loads.state_gb, (0.0,) * len(pins))
        else:
            best = _worst_node(pins, loads.seconds, loads.switch_s)
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
