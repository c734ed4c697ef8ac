"""Parts of a plan solved exactly: a few groups near in deadline, as a snapshot of their own.

The exact method starts from the groups as they are, so whatever it holds when it is stopped is
as cheap at least. Without a limit on group size it gets one of its own, for the candidates
to be few; its answer is valid all the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np

from instances.errors import UnsupportedError
from models.bounds.covering import CoverProblem, Ending, solve_cover
from models.exact.methods import solve
from models.loads.load_plan import is_for
from models.problem.options import Deadline, SolveOptions
from models.problem.result import StoppedBy, usd_of
from models.problem.snapshot import PlacedGroup, Snapshot, groups_of, plan_of
from planner.placement.held_plan import HeldPlan
from planner.placement.search_params import LocalSearchParams

__all__ = ["Neighbourhoods", "part_of", "whole_of"]

#: Most passes over a plan.
_PASSES: Final = 4
#: Jobs of a group in a neighbourhood, where the snapshot sets no limit.
_SIZE: Final = 4
#: Most candidate groups, and branch-and-bound nodes, of one neighbourhood.
_GROUPS: Final = 300_000
_NODES: Final = 20
#: Most jobs that groups met on the way are recombined for, and branch-and-bound nodes.
_RECOMBINED_JOBS: Final = 400
_COVER_NODES: Final = 50
#: Groups met on the way that are kept for it, the last ones.
_COLUMNS: Final = 6_000
#: Jobs of a neighbourhood whose groups are decided one by one: gangs, rates.
_DECIDED_JOBS: Final = 7


def part_of(
    snapshot: Snapshot, groups: Sequence[PlacedGroup], *, size: int | None = None
) -> tuple[Snapshot, tuple[PlacedGroup, ...], list[int]]:
    """Return the jobs of some groups as a snapshot, these groups in it, and the jobs' indices.

    ``size`` replaces the limit on the jobs of a group. Fleet caps are left out: they are about
    all groups.
    """
    jobs = sorted(member for group in groups for member in group.members)
    index = {member: i for i, member in enumerate(jobs)}
    limits = snapshot.limits
    if size is not None:
        limits = dataclasses.replace(limits, max_group_size=size)
    part = Snapshot.of([snapshot.jobs[j] for j in jobs], snapshot.cluster, limits)
    inside = tuple(_renamed(group, index) for group in groups)
    return part, inside, jobs


def whole_of(groups: Sequence[PlacedGroup], jobs: Sequence[int]) -> list[PlacedGroup]:
    """Return groups of a part with the members' indices in the whole snapshot."""
    index = dict(enumerate(jobs))
    return [_renamed(group, index) for group in groups]


def _renamed(group: PlacedGroup, index: dict[int, int]) -> PlacedGroup:
    return dataclasses.replace(group, members=tuple(index[j] for j in group.members))


def _cheapest(groups: Sequence[PlacedGroup]) -> list[PlacedGroup]:
    """Return one group per set of members and pair of node counts that no other is below."""
    best: dict[tuple[int, ...], list[PlacedGroup]] = {}
    for group in groups:
        kept = best.setdefault(group.members, [])
        r, t = group.nodes
        if any(a <= r and b <= t for a, b in (other.nodes for other in kept)):
            continue
        kept[:] = [o for o in kept if not (r <= o.nodes[0] and t <= o.nodes[1])]
        kept.append(group)
    return [group for kept in best.values() for group in kept]


class Neighbourhoods:
    """Exact improvement of the plan held, window by window over deadlines."""

    def __init__(
        self,
        snapshot: Snapshot,
        held: HeldPlan,
        params: LocalSearchParams,
        seed: int,
        deadline: Deadline,
    ) -> None:
        self._snapshot = snapshot
        self._held = held
        self._params = params
        self._seed = seed
        self._ends = deadline
        self._rng = np.random.default_rng((seed, 1))
        self._seen: set[frozenset[tuple[int, ...]]] = set()
        simple = is_for(snapshot)
        self._most = params.polish_jobs if simple else min(params.polish_jobs, _DECIDED_JOBS)

    def run(self, most: int | None = None) -> None:
        """Solve neighbourhoods of the plan held, at most ``most``; again while it helps."""
        if self._most < 2:
            return
        for _ in range(_PASSES):
            before = self._held.usd
            for window in self._windows()[:most]:
                if self._ends.expired:
                    return
                self._improve(window)
            if most is not None or self._held.usd >= before:
                return

    def recombine(self, known: Sequence[PlacedGroup]) -> None:
        """Cover the jobs by groups met on the way, at least cost; offer that plan."""
        snapshot, held, ends = self._snapshot, self._held, self._ends
        columns = _cheapest([*held.groups, *known[-_COLUMNS:]])
        if len(snapshot) > _RECOMBINED_JOBS or len(columns) <= len(held.groups):
            return
        widest = max(len(group.members) for group in columns)
        members = np.full((len(columns), widest), -1, dtype=np.int64)
        for row, group in enumerate(columns):
            members[row, : len(group.members)] = group.members
        cover = solve_cover(
            CoverProblem(
                n_jobs=len(snapshot),
                members=members,
                nodes=np.array([group.nodes for group in columns], dtype=np.int64),
                usd=(snapshot.usd_per_hour(1, 0), snapshot.usd_per_hour(0, 1)),
                caps=(snapshot.caps.max_rollout_nodes_total, snapshot.caps.max_train_nodes_total),
            ),
            Deadline(lambda: ends.elapsed_s, self._seconds()),
            incumbent_usd=held.usd,
            node_limit=_COVER_NODES,
            seed=self._seed % 2**31,
        )
        if cover.chosen is not None:
            seen: set[int] = set()
            found = []
            for column in cover.chosen:
                kept = columns[column].without(seen)
                if kept is not None:
                    found.append(kept)
                seen |= set(columns[column].members)
            held.offer(found)
        if cover.ending is Ending.INTERRUPT:
            raise KeyboardInterrupt

    def _seconds(self) -> float | None:
        """Return the most seconds of one solve; none where the search has no time limit.

        Without one, work alone stops a solve: the same search every run.
        """
        left = self._ends.remaining_s()
        return None if left is None else min(left, self._params.polish_seconds)

    def _windows(self) -> list[list[PlacedGroup]]:
        """Return neighbourhoods that cover the plan, in random order."""
        jobs = self._snapshot.jobs
        groups = sorted(
            self._held.groups,
            key=lambda group: (min(jobs[j].deadline_s for j in group.members), group.members),
        )
        if sum(len(group.members) for group in groups) <= self._most:
            return [groups]
        # near in deadline, not always neighbours: some are left for another window
        windows: list[list[PlacedGroup]] = []
        waiting = list(groups)
        while waiting:
            window: list[PlacedGroup] = []
            size = 0
            left: list[PlacedGroup] = []
            for at, group in enumerate(waiting):
                if size + len(group.members) > self._most and window:
                    left += waiting[at:]
                    break
                if window and self._rng.random() < 0.4:
                    left.append(group)
                    continue
                window.append(group)
                size += len(group.members)
            if len(window) > 1 and size <= self._most:
                windows.append(window)
            waiting = left
        return [windows[i] for i in self._rng.permutation(len(windows))]

    def _improve(self, window: Sequence[PlacedGroup]) -> None:
        """Solve one neighbourhood; offer the plan with it."""
        key = frozenset(group.members for group in window)
        if key in self._seen or not all(g in self._held.groups for g in window):
            return
        self._seen.add(key)
        size = self._snapshot.limits.max_group_size
        jobs_in = sum(len(group.members) for group in window)
        if (size == 0 or size > _SIZE + 1) and jobs_in > _DECIDED_JOBS:
            size = _SIZE
            window = [group for group in window if len(group.members) <= size]
            if len(window) < 2:
                return
        part, inside, jobs = part_of(self._snapshot, window, size=size)
        options = SolveOptions(
            time_limit_s=self._seconds(),
            node_limit=_NODES,
            max_groups=_GROUPS,
            seed=self._seed % 2**31,
            warm_start=plan_of(part, inside, "local-search"),
        )
        try:
            result = solve("set-partition", part, options)
        except UnsupportedError:
            return
        if result.plan is not None:
            found = groups_of(part, result.plan)
            if usd_of(part, found) < usd_of(part, inside) - 1e-9:
                others = [group for group in self._held.groups if group not in window]
                self._held.offer([*others, *whole_of(found, jobs)])
        if result.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
