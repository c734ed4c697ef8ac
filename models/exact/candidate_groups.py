"""Every group worth having in a plan: enumeration for exhaustive search and set partitioning.

Sets of jobs are grown one job at a time; two facts keep the number small (proofs in
FORMULATION.md):

* *heredity*: a set that has no valid group has no superset with one, so it is never extended;
* *connectedness*: a group whose sharing graph falls apart may be split into its components at
  the same cost. A connected group of ``n`` jobs has at most ``pins - n + 1`` nodes, and some
  member can leave it connected; so growing sets that loads admit on so few nodes reaches every
  connected group.

A set enters the list with its cheapest node counts, and only when that is cheaper than the
cheapest way to split it; under fleet caps with its whole front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from instances.errors import UnsupportedError
from models.group.group_cost import GroupCost, Nodes
from models.problem.options import Deadline, SolveOptions

__all__ = ["CandidateGroups", "enumerate_groups"]

#: Seconds are looked at, and progress shown, once per so many sets.
_STRIDE: Final = 64


@dataclass(slots=True)
class CandidateGroups:
    """Groups found: ``members[i]`` on ``nodes[i]``.

    Attributes
    ----------
    members : list of tuple of int
        Ascending job indices.
    nodes : list of (int, int)
        Rollout and train nodes.
    sets_grown : int
        Sets of jobs looked at, single jobs included.
    sets_admitted : int
        Of these, sets that loads admit as a connected group.
    """

    members: list[tuple[int, ...]] = field(default_factory=list)
    nodes: list[Nodes] = field(default_factory=list)
    sets_grown: int = 0
    sets_admitted: int = 0

    def __len__(self) -> int:
        return len(self.members)

    def add(self, members: tuple[int, ...], nodes: Nodes) -> None:
        """Keep one group."""
        self.members.append(members)
        self.nodes.append(nodes)


class _Splits:
    """The least cost of a set of jobs in groups found so far, $/h: memoised over subsets."""

    def __init__(self) -> None:
        self._group: dict[int, float] = {}
        self._best: dict[int, float] = {}

    def put(self, mask: int, usd: float) -> None:
        """Record a set as one group. Sets come in order of size, so nothing memoised is stale."""
        self._group[mask] = self._best[mask] = usd

    def usd(self, mask: int) -> float:
        """Return the least cost of a set, infinite when some job is in no group."""
        best = self._best.get(mask)
        if best is None:
            best = self.split_usd(mask)
            self._best[mask] = best
        return best

    def split_usd(self, mask: int) -> float:
        """Return the least cost in two parts or more; the part with the lowest job is a group."""
        low = mask & -mask
        rest = mask ^ low
        best = inf
        part = rest
        while part:  # parts of ``rest`` that go without the lowest job, never none
            group = self._group.get(mask ^ part)
            if group is not None and group < best:
                best = min(best, group + self.usd(part))
            part = (part - 1) & rest
        return best


def enumerate_groups(
    cost: GroupCost, options: SolveOptions, deadline: Deadline, *, fronts: bool
) -> CandidateGroups:
    """Return every group that some least-cost plan may need, each decided exactly.

    Parameters
    ----------
    fronts : bool
        Keep whole fronts, as fleet caps need, instead of the cheapest node counts.

    Raises
    ------
    OutOfTimeError
        When the deadline passes.
    UnsupportedError
        When there are more than ``options.max_groups``.
    """
    out, splits = CandidateGroups(), _Splits()
    n = len(cost.snapshot)
    level: dict[int, tuple[int, ...]] = {}
    for i in range(n):
        out.sets_grown += 1
        alone = cost.cheapest((i,), inf)
        if alone is not None:
            level[1 << i] = (i,)
            out.sets_admitted += 1
            _keep(cost, splits, out, 1 << i, (i,), fronts)
    size = cost.snapshot.limits.max_group_size or n
    together = _pairs_admitted(cost, level)
    for k in range(2, size + 1):
        level = _grown(cost, options, deadline, level, together, splits, out, fronts)
        if not level:
            break
        if options.progress is not None:
            options.progress("groups of jobs", k, size)
    return out


def _pairs_admitted(cost: GroupCost, alone: dict[int, tuple[int, ...]]) -> list[int]:
    """Return per job the mask of the jobs it can be in one group with (within node limits)."""
    n = len(cost.snapshot)
    masks = [0] * n
    singles = [members[0] for members in alone.values()]
    for a, i in enumerate(singles):
        for j in singles[a + 1 :]:
            if cost.least_nodes((i, j)) is not None:
                masks[i] |= 1 << j
                masks[j] |= 1 << i
    return masks


def _extensions(
    level: dict[int, tuple[int, ...]], together: list[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each set of one more job whose pairs are all admitted, once."""
    seen: set[int] = set()
    for mask, members in level.items():
        more = ~0
        for i in members:
            more &= together[i]
        while more:
            bit = more & -more
            more ^= bit
            grown = mask | bit
            if grown not in seen:
                seen.add(grown)
                yield grown, tuple(sorted((*members, bit.bit_length() - 1)))


def _grown(
    cost: GroupCost,
    options: SolveOptions,
    deadline: Deadline,
    level: dict[int, tuple[int, ...]],
    together: list[int],
    splits: _Splits,
    out: CandidateGroups,
    fronts: bool,
) -> dict[int, tuple[int, ...]]:
    """Return the sets with one more job that loads admit as a connected group."""
    grown: dict[int, tuple[int, ...]] = {}
    for mask, members in _extensions(level, together):
        out.sets_grown += 1
        if out.sets_grown % _STRIDE == 0:
            deadline.check()
        least = cost.least_nodes(members)
        if least is None or sum(least) > cost.connected_nodes(members):
            continue
        out.sets_admitted += 1
        grown[mask] = members
        _keep(cost, splits, out, mask, members, fronts)
        if len(out) > options.max_groups:
            raise UnsupportedError(
                f"Expected at most {options.max_groups:,} candidate groups, got more among "
                f"{len(cost.snapshot)} jobs: lower max_group_size or set node limits, or take "
                "fewer jobs."
            )
    return grown


def _keep(
    cost: GroupCost,
    splits: _Splits,
    out: CandidateGroups,
    mask: int,
    members: tuple[int, ...],
    fronts: bool,
) -> None:
    """Keep a set's groups that no split is as cheap as."""
    most = cost.connected_nodes(members)
    if fronts:
        for group in cost.front(members):
            if sum(group.nodes) <= most:
                out.add(members, group.nodes)
        return
    found = cost.cheapest(members, splits.split_usd(mask), most)
    if found is not None:
        out.add(members, found.nodes)
        splits.put(mask, cost.snapshot.usd_per_hour(*found.nodes))
