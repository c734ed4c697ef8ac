"""The least changes that make a set of jobs one group.

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
from dataclasses import replace

from models.group.group_cost import GroupCost
from models.group.pinnings import REL_SLACK
from models.problem.options import Deadline
from models.why_not.explanation import (
    Cure,
    rounded_up,
)
from models.why_not.rules import LESS, Asked, Shortest, worst_node

__all__ = ["cures_of", "slos_for"]


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
        gb, _ = worst_node(pins, asked.loads[pool].state_gb, (0.0,) * len(pins))
        best = base.with_dram(pool, rounded_up(gb, 2))
        if deadline.expired:
            return replace(best, least=False)
        found = asked.decide(base.with_dram(pool, gb * (1 - LESS)))
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
