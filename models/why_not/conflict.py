"""Why jobs cannot be one group, or a snapshot has no plan, in words, and what would cure it.

Both questions are hereditary: removing a job keeps a group valid and never needs more nodes.
So a conflict is told of a smallest set of jobs that is in conflict, whatever else is there.

:func:`why_not` asks it of one group; the rules are those of :mod:`models.why_not.rules`,
the cures those of :mod:`models.why_not.cures`.

:func:`explain` asks it of a snapshot. Without fleet caps every job alone is a plan, unless some
job cannot run even alone: it is wider than ``max_rollout_nodes`` or ``max_train_nodes``, or its
state is more than a node's host DRAM. With fleet caps ``F_R``, ``F_T`` (nodes of a pool over all
groups) let ``R(S, t)`` be the fewest rollout nodes of the jobs ``S`` with at most ``t`` train
nodes: ``S`` is in conflict iff ``R(S, F_T) > F_R``. Up to ``MOST_TABLE`` jobs the whole table
``R`` is at hand (:mod:`models.exact.exhaustive`); beyond, ``R`` is asked of set partitioning, the
nodes of the other pool being free of charge. Where neither ends in time, the volume bound
(:mod:`models.bounds.volume`) tells how many nodes are needed at least.

A :class:`Cure` was decided again and found enough; ``least`` says whether less of the same was
found not to be. For few jobs looser SLOs (in steps), GB and group size cure fleet caps too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np

from instances.errors import UnsupportedError
from models.bounds.volume import VolumeSums
from models.group.group_cost import GroupCost, Nodes
from models.group.pinnings import DRAM_SLACK
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Conflict
from models.problem.snapshot import Snapshot
from models.why_not.explanation import (
    POOLS,
    Cure,
    Explanation,
    counted,
    names_of,
    number,
    rounded_up,
    sentence,
)
from models.why_not.fewest_nodes import (
    MOST_TABLE,
    Fleet,
    Solved,
    Table,
    capped,
    caps_of,
    fits_caps,
    solo_nodes,
)
from models.why_not.rates import told
from models.why_not.rules import Asked

__all__ = [
    "Cure",
    "Explanation",
    "Subset",
    "explain",
    "explanation",
    "group_explanation",
    "smallest_conflict",
    "why_not",
]

#: Sets of jobs tried in search of a smaller one in conflict.
_MOST_TRIES: Final = 300
#: Jobs up to which SLOs, DRAM and group size are looked at as cures of fleet caps.
_MOST_LOOSER: Final = 12
#: Largest SLO factor looked at, in hundredths.
_MOST_FACTOR: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Jobs in conflict; whether no job can be left out, and whether no fewer jobs conflict."""

    members: tuple[int, ...]
    minimal: bool = False
    smallest: bool = False

    def words(self) -> str:
        """Return how small the set is known to be, as a sentence; empty up to two jobs."""
        if len(self.members) <= 2:
            return ""
        if self.smallest:
            return " No fewer of the jobs are in conflict."
        return " Without any one of them there is no conflict." if self.minimal else ""


def smallest_conflict(
    members: Sequence[int],
    fits: Callable[[tuple[int, ...]], bool],
    deadline: Deadline,
    most_tries: int = _MOST_TRIES,
) -> Subset:
    """Return a smallest set of jobs in conflict, given that all together are.

    First a deletion filter: a job without which the rest is still in conflict is left out for
    good, which by heredity leaves a set that is minimal by inclusion. Then all smaller sets,
    smallest first, at most ``most_tries``.

    Parameters
    ----------
    fits : callable
        Whether a set, ascending, is not in conflict; must be hereditary.
    deadline : Deadline
        When it expires, or ``fits`` runs out of time, the smallest set known is returned.
    """
    kept = tuple(members)
    minimal, tries = False, 0
    try:
        for i in reversed(members):
            deadline.check()
            rest = tuple(j for j in kept if j != i)
            if rest and not fits(rest):
                kept = rest
        minimal = True
        for size in range(1, len(kept)):
            for some in combinations(members, size):
                tries += 1
                if tries > most_tries:
                    return Subset(members=kept, minimal=True)
                deadline.check()
                if not fits(some):
                    return Subset(members=some, minimal=True, smallest=True)
    except (OutOfTimeError, UnsupportedError):
        return Subset(members=kept, minimal=minimal)
    return Subset(members=kept, minimal=True, smallest=True)


# --- one group ----------------------------------------------------------------------------------


def why_not(
    cost: GroupCost,
    members: tuple[int, ...],
    nodes: Nodes | None = None,
    *,
    deadline: Deadline | None = None,
    seed: int = 0,
) -> Conflict | None:
    """Return why jobs cannot be one group; ``None`` if they can.

    Parameters
    ----------
    members : tuple of int
        Ascending indices of the snapshot's jobs.
    nodes : (int, int), optional
        At most so many rollout and train nodes, within the limits of a group.
    deadline : Deadline, optional
        When it expires, what is known by then is told: perhaps not the smallest set of jobs,
        not all cures. A decision under way is not cut short.
    seed : int
        Of CP-SAT, for decisions under a cure.
    """
    found = group_explanation(cost, members, nodes, deadline=deadline, seed=seed)
    return None if found is None else found.conflict


def group_explanation(
    cost: GroupCost,
    members: tuple[int, ...],
    nodes: Nodes | None = None,
    *,
    deadline: Deadline | None = None,
    seed: int = 0,
) -> Explanation | None:
    """Return what :func:`why_not` returns, with the jobs and the cures that its words name."""
    clock = SolveOptions().start() if deadline is None else deadline
    if (alone := _alone(cost.snapshot, members, nodes)) is not None:
        return alone
    size = cost.snapshot.limits.max_group_size

    def fits(some: tuple[int, ...]) -> bool:
        if size and len(some) > size:
            return False
        return cost.decide(some, cost.most_nodes(some) if nodes is None else nodes) is not None

    if fits(members):
        return None
    subset = smallest_conflict(members, fits, clock)
    asked = Asked(cost.snapshot, subset.members, nodes, seed)
    rule, message, cures = told(asked, clock)
    relaxations = [cure.words(asked.snapshot, asked.nodes) for cure in cures]
    if len(members) > len(subset.members):
        everyone = Asked(cost.snapshot, members, nodes, seed)
        all_ = f"all {len(members)} jobs"
        message += f" So no group holds {all_} asked about."
        if not clock.expired:
            relaxations = [
                f"{words} {'Enough for' if everyone.decide(cure) else 'Not enough for'} {all_}."
                for words, cure in zip(relaxations, cures, strict=True)
            ]
    message += subset.words()
    return Explanation.of(cost.snapshot, subset.members, (rule, message), cures, relaxations)


def _alone(
    snapshot: Snapshot, members: Sequence[int], asked: Nodes | None = None
) -> Explanation | None:
    """Return the first job that cannot run even alone; the cure is what all of them need."""
    cure = Cure()
    broken: dict[int, tuple[str, str]] = {}
    for pool, name in enumerate(POOLS):
        limit = getattr(snapshot.limits, f"max_{name}_nodes")
        most = math.inf if limit is None else limit
        most = most if asked is None else min(most, asked[pool])
        has = getattr(snapshot.cluster, name).host_dram_gb
        for i in members:
            job = snapshot.jobs[i]
            width, gb = getattr(job, f"{name}_nodes"), getattr(job, f"{name}_state_gb")
            if width > most:
                cure = cure.with_nodes(pool, max(width, cure.nodes[pool] or 0))
                words = f"needs {counted(width, f'{name} node')} at once; its group may hold {most}"
                broken.setdefault(i, ("gang", f"Job {job.job_id} {words}."))
            if gb > has * (1 + DRAM_SLACK):
                cure = cure.with_dram(pool, max(rounded_up(gb, 2), cure.dram_gb[pool] or 0.0))
                words = (
                    f"keeps {number(gb)} GB of state on each {name} node, {number(gb - has)} GB "
                    f"more than its host DRAM of {number(has)} GB"
                )
                broken.setdefault(i, ("residency", f"Job {job.job_id} {words}."))
    if not broken:
        return None
    first, *more = sorted(broken)
    rule, message = broken[first]
    if more:
        message += f" Nor can {names_of([snapshot.jobs[i] for i in more])} run even alone."
    words = cure.words(snapshot, asked)
    return Explanation.of(snapshot, (first,), (rule, message), [cure], [words])


# --- a snapshot ---------------------------------------------------------------------------------


def explain(
    snapshot: Snapshot, *, deadline: Deadline | None = None, seed: int = 0, proved: bool = False
) -> Conflict | None:
    """Return why a snapshot has no plan; ``None`` when it has one.

    Parameters
    ----------
    deadline : Deadline, optional
        When it expires, the best explanation held is returned. A decision of one group under
        way is not cut short.
    seed : int
        Of CP-SAT.
    proved : bool
        Whether a method has proved that there is no plan: then there always is an explanation.

    Raises
    ------
    OutOfTimeError
        When the deadline passes and it is not known whether there is a plan.
    """
    found = explanation(snapshot, deadline=deadline, seed=seed, proved=proved)
    return None if found is None else found.conflict


def explanation(
    snapshot: Snapshot, *, deadline: Deadline | None = None, seed: int = 0, proved: bool = False
) -> Explanation | None:
    """Return what :func:`explain` returns, with the jobs and the cures that its words name."""
    clock = SolveOptions().start() if deadline is None else deadline
    if (alone := _alone(snapshot, range(len(snapshot)))) is not None:  # whatever the caps
        return alone
    if snapshot.caps.allow(*solo_nodes(snapshot)):
        return None
    try:
        clock.check()
        kind = Table if len(snapshot) <= MOST_TABLE else Solved
        fleet = kind(snapshot, seed, clock)
        known = proved and kind is Solved
        if not known and fits_caps(fleet, range(len(snapshot)), snapshot.caps):
            return None
    except (OutOfTimeError, UnsupportedError):
        return _by_volume(snapshot, proved)
    subset = _smallest(snapshot, fleet, seed, clock)
    rule, message = _cap_words(snapshot, fleet, subset.members)
    cures = _in_time(_cap_cures(snapshot, fleet)) or [_solo_cure(snapshot)]
    if len(snapshot) <= _MOST_LOOSER:
        cures += _in_time(_looser(snapshot, seed, clock))
    return _over_caps(snapshot, subset, rule, message, cures)


def _over_caps(
    snapshot: Snapshot, subset: Subset, rule: str, message: str, cures: Sequence[Cure]
) -> Explanation:
    if len(subset.members) < len(snapshot):
        message += f" So no plan holds all {len(snapshot)} jobs."
    message += subset.words()
    relaxations = [cure.words(snapshot) for cure in cures]
    return Explanation.of(snapshot, subset.members, (rule, message), cures, relaxations)


def _in_time(cures: Iterable[Cure]) -> list[Cure]:
    """Return the cures found until time is out."""
    out: list[Cure] = []
    with suppress(OutOfTimeError, UnsupportedError):
        for cure in cures:
            out.append(cure)
    return out


def _smallest(snapshot: Snapshot, fleet: Table | Solved, seed: int, clock: Deadline) -> Subset:
    """Return a smallest set in conflict: of all sets where the table holds them.

    Beyond the table: the jobs that ask most of the fleet are taken until they are in
    conflict (bisection on how many); within them the table again, or a deletion filter.
    """
    if isinstance(fleet, Table):
        return Subset(members=fleet.smallest(snapshot.caps), minimal=True, smallest=True)
    order = _by_demand(snapshot)
    low, high = 0, len(order)  # the first ``low`` jobs fit, the first ``high`` do not
    try:
        while high - low > 1:
            middle = (low + high) // 2
            fits = fits_caps(fleet, sorted(order[:middle]), snapshot.caps)
            low, high = (middle, high) if fits else (low, middle)
        some = tuple(sorted(order[:high]))
        if high <= MOST_TABLE:
            few = replace(snapshot, table=snapshot.table.take(some))
            found = Table(few, seed, clock).smallest(snapshot.caps)
            return Subset(members=tuple(some[i] for i in found), minimal=True)
    except (OutOfTimeError, UnsupportedError):
        return Subset(members=tuple(sorted(order[:high])))
    return smallest_conflict(
        some, partial(fits_caps, fleet, caps=snapshot.caps), clock, most_tries=0
    )


def _by_demand(snapshot: Snapshot) -> list[int]:
    """Return the jobs, those first whose phases are the largest share of a cap."""
    table, share = snapshot.table, np.zeros(len(snapshot))
    for pool, cap in capped(snapshot):
        nodes = getattr(table, f"{POOLS[pool]}_nodes") * getattr(table, f"{POOLS[pool]}_s")
        share = np.maximum(share, nodes / table.deadline_s / max(cap, 0.5))
    return [int(i) for i in np.argsort(-share, kind="stable")]


def _needs(snapshot: Snapshot, fleet: Fleet, members: Sequence[int]) -> list[tuple[int, int]]:
    """Return (pool, least cap of it with the other as it is), for pools where one is enough."""
    caps = caps_of(snapshot.caps)
    needs = [(pool, fleet.least(members, pool, caps[1 - pool])) for pool, _ in capped(snapshot)]
    return [(pool, need) for pool, need in needs if need is not None]


def _both_needs(fleet: Fleet, members: Sequence[int]) -> Nodes:
    """Return the fewest train nodes, and the fewest rollout nodes with these."""
    train = fleet.least(members, 1, None)
    rollout = fleet.least(members, 0, train)
    if train is None or rollout is None:
        raise AssertionError("jobs that can run alone fit no fleet")
    return rollout, train


def _cap_cures(snapshot: Snapshot, fleet: Fleet) -> Iterator[Cure]:
    """Yield the least cap of each pool; where neither alone is enough, least caps of both."""
    everyone = range(len(snapshot))
    needs = _needs(snapshot, fleet, everyone)
    for pool, need in needs:
        yield Cure(totals=(need, None) if pool == 0 else (None, need))
    if not needs:
        yield Cure(totals=_both_needs(fleet, everyone))


def _solo_cure(snapshot: Snapshot) -> Cure:
    """Return caps that hold every job alone: enough, not the least."""
    rollout, train = (
        None if cap is None or nodes <= cap else nodes
        for cap, nodes in zip(caps_of(snapshot.caps), solo_nodes(snapshot), strict=True)
    )
    return Cure(totals=(rollout, train), least=False)


def _cap_words(snapshot: Snapshot, fleet: Fleet, members: Sequence[int]) -> tuple[str, str]:
    """Return which cap a set breaks, and the words for it."""
    who, have = _who_needs(snapshot, members), _fleet_words(snapshot)
    try:
        needs = _needs(snapshot, fleet, members)
        both = () if needs else _both_needs(fleet, members)
    except (OutOfTimeError, UnsupportedError):
        return _rule(pool for pool, _ in capped(snapshot)), f"{who} more than that: {have}."
    if both:
        words = " and ".join(
            counted(n, f"{name} node") for n, name in zip(both, POOLS, strict=True)
        )
        return _rule((0, 1)), f"{who} more of both pools, such as {words}; {have}."
    parts = []
    for pool, need in needs:
        other = caps_of(snapshot.caps)[1 - pool]
        beside = (
            "" if other is None else f" with at most {counted(other, f'{POOLS[1 - pool]} node')}"
        )
        parts.append(f"{counted(need, f'{POOLS[pool]} node')}{beside}")
    return _rule(pool for pool, _ in needs), f"{who} {', or '.join(parts)}; {have}."


def _who_needs(snapshot: Snapshot, members: Sequence[int]) -> str:
    jobs = [snapshot.jobs[i] for i in members]
    return sentence(names_of(jobs)) + (" needs" if len(jobs) == 1 else " together need")


def _rule(pools: Iterable[int]) -> str:
    return " and ".join(f"max_{POOLS[pool]}_nodes_total" for pool in pools)


def _fleet_words(snapshot: Snapshot) -> str:
    words = [
        f"{counted(cap, f'{POOLS[pool]} node')} ({_rule((pool,))})"
        for pool, cap in capped(snapshot)
    ]
    return f"the fleet may hold {' and '.join(words)}"


def _looser(snapshot: Snapshot, seed: int, clock: Deadline) -> Iterator[Cure]:
    """Yield the least uniform SLO factor, DRAM of one pool and group size that are enough."""
    everyone = range(len(snapshot))

    def enough(cure: Cure) -> bool:
        return fits_caps(Table(cure.applied(snapshot), seed, clock), everyone, snapshot.caps)

    def least(make: Callable[[Any], Cure], values: Sequence[float]) -> Iterator[Cure]:
        low, high = -1, 0  # the value at ``low`` is not enough
        while high < len(values) and not enough(make(values[high])):
            low, high = high, 2 * high + 1
        high = min(high, len(values))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(make(values[middle])) else (middle, high)
        if high < len(values):
            yield make(values[high])

    factors = [h / 100 for h in range(101, _MOST_FACTOR + 1)]
    yield from least(lambda factor: Cure(slo_factor=factor, within="0.01"), factors)
    for pool in (0, 1):
        yield from least(partial(Cure().with_dram, pool), _fills(snapshot, pool))
    size = snapshot.limits.max_group_size
    if size:
        sizes = range(size + 1, len(snapshot) + 1)
        yield from least(lambda most: Cure(max_group_size=most), sizes)


def _fills(snapshot: Snapshot, pool: int) -> list[float]:
    """Return all GB above its host DRAM that a group's jobs can come to on one node."""
    has = getattr(snapshot.cluster, POOLS[pool]).host_dram_gb
    states = getattr(snapshot.table, f"{POOLS[pool]}_state_gb").tolist()
    most = snapshot.limits.max_group_size or len(states)
    sums = {
        rounded_up(math.fsum(some), 2)
        for size in range(2, min(most, len(states)) + 1)
        for some in combinations(states, size)
    }
    return sorted(gb for gb in sums if gb > has)


# --- out of time --------------------------------------------------------------------------------


def _by_volume(snapshot: Snapshot, proved: bool) -> Explanation:
    """Return what the volume bound alone tells.

    Raises
    ------
    OutOfTimeError
        When it does not exceed a cap and no proof that there is no plan is at hand.
    """
    have = _fleet_words(snapshot)
    for pool, cap in capped(snapshot):
        found = _over_volume(snapshot, pool, cap)
        if found is None:
            continue
        subset, need = found
        nodes = f"{counted(need, f'{POOLS[pool]} node')}, by time, state, width or number alone"
        message = f"{_who_needs(snapshot, subset.members)} at least {nodes}; {have}."
        return _over_caps(snapshot, subset, _rule((pool,)), message, [_solo_cure(snapshot)])
    if not proved:
        raise OutOfTimeError
    unknown = "Which of them are in conflict was not found in the time given."
    message = f"The {len(snapshot)} jobs do not fit: {have}. {unknown}"
    everyone = Subset(members=tuple(range(len(snapshot))))
    rule = _rule(pool for pool, _ in capped(snapshot))
    return _over_caps(snapshot, everyone, rule, message, [_solo_cure(snapshot)])


def _over_volume(snapshot: Snapshot, pool: int, cap: int) -> tuple[Subset, int] | None:
    """Return few jobs whose volume exceeds a cap, and the nodes they need at least.

    Of all jobs, those that ask least of the fleet are left out first. ``None`` when the
    volume of all is within the cap.
    """
    sums = VolumeSums(snapshot.cluster, snapshot.limits)
    kept = set(range(len(snapshot)))

    def need() -> int:
        bound = sums.bound()
        return (bound.rollout_nodes, bound.train_nodes)[pool]

    for job in snapshot.jobs:
        sums.add(job)
    if need() <= cap:
        return None
    for i in reversed(_by_demand(snapshot)):
        sums.remove(snapshot.jobs[i])
        if need() > cap:
            kept.discard(i)
        else:
            sums.add(snapshot.jobs[i])
    return Subset(members=tuple(sorted(kept))), need()
