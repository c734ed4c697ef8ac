"""Changes to a running plan, in parts that can be taken or left one by one.

Two plans of the same jobs, before and after, fall into *proposals*: groups before and after that
are joined by a common job. Each proposal saves its own $/h and costs its own moves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from instances.hardware import Cluster
from planner.placement.group_state import GroupState

__all__ = ["Proposal", "left_behind", "proposals_of", "usd_per_hour_of"]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One change that is taken whole or not at all.

    Attributes
    ----------
    before, after : tuple of GroupState
        The groups it replaces and those it makes.
    moved : tuple of str
        Running jobs whose group or pins change.
    newcomers : tuple of str
        Jobs in ``after`` that no group before had.
    usd_per_hour_before, usd_per_hour_after : float
        Price of both, $/h; before: with the newcomers placed without a move.
    """

    before: tuple[GroupState, ...]
    after: tuple[GroupState, ...]
    moved: tuple[str, ...]
    newcomers: tuple[str, ...]
    usd_per_hour_before: float
    usd_per_hour_after: float

    @property
    def saving_usd_per_hour(self) -> float:
        """What it saves, $/h."""
        return self.usd_per_hour_before - self.usd_per_hour_after


def usd_per_hour_of(groups: Sequence[GroupState], cluster: Cluster) -> float:
    """Return the price of some groups, $/h."""
    return sum(
        cluster.usd_per_hour(len(state.rollout_nodes), len(state.train_nodes)) for state in groups
    )


def left_behind(
    before: Mapping[int, GroupState], now: Mapping[int, GroupState], moved: Collection[str]
) -> list[tuple[str, int, int]]:
    """Return per group before the rollout and train nodes that moved jobs leave and nobody keeps.

    Groups are by number; those with no such nodes are left out.
    """
    out = []
    for number, old in before.items():
        here = now.get(number)
        kept = (set[int](), set[int]())
        if here is not None:
            kept = (set(here.rollout_nodes), set(here.train_nodes))
        left = (set[int](), set[int]())
        for job, r, t in zip(old.jobs, old.rollout_pins, old.train_pins, strict=True):
            if job.job_id in moved:
                left[0].update(r)
                left[1].update(t)
        counts = len(left[0] - kept[0]), len(left[1] - kept[1])
        if any(counts):
            out.append((old.group_id, *counts))
    return out


def proposals_of(
    before: Sequence[GroupState],
    after: Sequence[GroupState],
    cluster: Cluster,
    *,
    placed: Mapping[str, tuple[int | None, float]],
) -> list[Proposal]:
    """Return the changes between two plans, in the order of their first group before.

    Parameters
    ----------
    before, after : sequence of GroupState
        Groups of the same number are the same group; unchanged ones make no proposal.
    placed : mapping of str to (int or None, float)
        Per newcomer, where it would go without a move: the group it would join (``None``: a new
        one) and what that adds, $/h.
    """
    changed = [state for state in after if state not in before]
    kept = {state.number for state in after if state in before}
    old = [state for state in before if state.number not in kept]
    at_old = {job.job_id: i for i, state in enumerate(old) for job in state.jobs}
    number_at: dict[int | None, int] = {state.number: i for i, state in enumerate(old)}
    edges = []
    for j, state in enumerate(changed):
        for job in state.jobs:
            if job.job_id in at_old:
                edges.append((at_old[job.job_id], len(old) + j))
            else:  # refusing it puts the newcomer there: taken or left together
                number, _ = placed[job.job_id]
                if number in number_at:
                    edges.append((number_at[number], len(old) + j))
    n = len(old) + len(changed)
    if not n:
        return []
    rows, columns = zip(*edges, strict=True) if edges else ((), ())
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(n, n))
    _, label = connected_components(graph, directed=False)
    out = []
    for part in dict.fromkeys(label.tolist()):
        olds = tuple(state for i, state in enumerate(old) if label[i] == part)
        news = tuple(s for j, s in enumerate(changed) if label[len(old) + j] == part)
        out.append(_proposal(olds, news, cluster, placed))
    return out


def _proposal(
    before: tuple[GroupState, ...],
    after: tuple[GroupState, ...],
    cluster: Cluster,
    placed: Mapping[str, tuple[int | None, float]],
) -> Proposal:
    pins_before = {
        job.job_id: (state.number, set(r), set(t))
        for state in before
        for job, r, t in zip(state.jobs, state.rollout_pins, state.train_pins, strict=True)
    }
    moved, newcomers = [], []
    for state in after:
        for job, r, t in zip(state.jobs, state.rollout_pins, state.train_pins, strict=True):
            if job.job_id not in pins_before:
                newcomers.append(job.job_id)
            elif pins_before[job.job_id] != (state.number, set(r), set(t)):
                moved.append(job.job_id)
    usd = usd_per_hour_of(before, cluster) + sum(placed[job_id][1] for job_id in newcomers)
    return Proposal(
        before=before,
        after=after,
        moved=tuple(moved),
        newcomers=tuple(newcomers),
        usd_per_hour_before=usd,
        usd_per_hour_after=usd_per_hour_of(after, cluster),
    )
