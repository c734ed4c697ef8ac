"""Exhaustive group formation: the cost of every set of jobs, then dynamic programming.

Sets and parameters
-------------------
``J`` the ``n`` jobs; ``G`` the candidate groups (:mod:`models.candidate_groups`), each a set
of jobs with exactly decided node counts ``(r_g, t_g)`` and price ``c_g``.

Recursion
---------
``F(S)`` is the least cost of the jobs ``S``; the group of the lowest job of ``S`` is one of
the candidates within ``S``:

    F({}) = 0,    F(S) = min over g within S, min(S) in g:  c_g + F(S - g)

Under fleet caps the state carries both node counts: ``R(S, t)`` is the fewest rollout nodes
of ``S`` with at most ``t`` train nodes,

    R({}, t) = 0,    R(S, t) = min over g within S, min(S) in g, t_g <= t:
                               r_g + R(S - g, t - t_g)

which gives every Pareto-minimal fleet at once; the cheapest within the caps is taken. No
solver is used: the partition step is arithmetic on arrays over all ``2^n`` sets, at most
``3^n`` steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from models.candidate_groups import CandidateGroups, enumerate_groups
from models.group_cost import GroupCost
from models.options import Deadline, OutOfTimeError, SolveOptions
from models.result import Result, StoppedBy, first_incumbent, result_of
from models.snapshot import PlacedGroup, Snapshot

__all__ = ["METHOD", "MOST_JOBS", "fleet_front", "solve"]

METHOD: Final = "exhaustive"
#: Jobs beyond which the table over all sets is too large.
MOST_JOBS: Final = 20
#: Entries of the table with node counts beyond which it is refused.
_MOST_ENTRIES: Final = 2**27
#: More rollout nodes than any table holds.
_NONE: Final = np.iinfo(np.int64).max // 4

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def solve(snapshot: Snapshot, options: SolveOptions) -> Result:
    """Return a proved least-cost plan of a small snapshot.

    Raises
    ------
    UnsupportedError
        Beyond ``MOST_JOBS`` jobs, or ``options.max_groups`` candidate groups.
    InputError
        When the warm start is not a valid plan of the snapshot.
    """
    _require_size(snapshot)
    deadline = options.start()
    held = first_incumbent(snapshot, options)
    cost = GroupCost(snapshot, seed=options.seed)
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    stopped = None
    chosen: list[PlacedGroup] | None = None
    try:
        groups = enumerate_groups(cost, options, deadline, fronts=snapshot.caps.any)
        seconds["groups"] = deadline.elapsed_s
        counts = {"groups": len(groups), "sets": groups.sets_grown}
        picked = _partition(snapshot, groups, deadline)
        seconds["partition"] = deadline.elapsed_s - seconds["groups"]
        if picked is not None:
            chosen = [_decided(cost, groups, i) for i in picked]
    except OutOfTimeError:
        stopped = StoppedBy.TIME
    except KeyboardInterrupt:
        stopped = StoppedBy.INTERRUPT
    counts |= {f"decided_{how}": number for how, number in sorted(cost.counts.items())}
    best = held if stopped else chosen
    usd = None
    if best is not None and not stopped:
        usd = _usd(snapshot, best)
    return result_of(
        snapshot,
        options,
        METHOD,
        groups=best,
        bound_usd=usd,
        stopped_by=stopped,
        infeasible=stopped is None and chosen is None,
        counts=counts,
        seconds=seconds,
    )


def fleet_front(snapshot: Snapshot, options: SolveOptions) -> list[tuple[int, int]]:
    """Return the Pareto-minimal fleets (rollout nodes, train nodes) of all jobs, caps ignored.

    Empty when some job cannot run even alone.

    Raises
    ------
    UnsupportedError
        As :func:`solve`.
    OutOfTimeError
        When the time limit passes.
    """
    _require_size(snapshot)
    deadline = options.start()
    cost = GroupCost(snapshot, seed=options.seed)
    groups = enumerate_groups(cost, options, deadline, fronts=True)
    least = _least_rollout(snapshot, groups, _most_train(snapshot, groups), deadline)[-1]
    out: list[tuple[int, int]] = []
    for train, rollout in enumerate(least.tolist()):
        if rollout < _NONE and (not out or rollout < out[-1][0]):
            out.append((rollout, train))
    return out[::-1]


def _require_size(snapshot: Snapshot) -> None:
    if len(snapshot) > MOST_JOBS:
        raise UnsupportedError(
            f"Expected at most {MOST_JOBS} jobs for method {METHOD}, got {len(snapshot)}: use "
            "method set-partition."
        )


def _usd(snapshot: Snapshot, groups: Sequence[PlacedGroup]) -> float:
    nodes = [group.nodes for group in groups]
    return snapshot.usd_per_hour(sum(r for r, _ in nodes), sum(t for _, t in nodes))


def _decided(cost: GroupCost, groups: CandidateGroups, i: int) -> PlacedGroup:
    found = cost.decide(groups.members[i], groups.nodes[i])
    if found is None:  # decided once already, and cached
        raise AssertionError(f"group {groups.members[i]} lost its schedule")
    return found


# --- dynamic programming ----------------------------------------------------------------------


def _partition(snapshot: Snapshot, groups: CandidateGroups, deadline: Deadline) -> list[int] | None:
    """Return the groups of a least-cost partition within the caps; ``None`` if there is none."""
    if not snapshot.caps.any:
        return _cheapest(snapshot, groups, deadline)
    most_train = snapshot.caps.max_train_nodes_total
    if most_train is None:
        most_train = _most_train(snapshot, groups)
    most_train = min(most_train, _most_train(snapshot, groups))
    least = _least_rollout(snapshot, groups, most_train, deadline)
    best: tuple[float, int] | None = None
    for train, rollout in enumerate(least[-1].tolist()):
        if rollout < _NONE and snapshot.caps.allow(rollout, train):
            usd = snapshot.usd_per_hour(rollout, train)
            if best is None or usd < best[0]:
                best = usd, train
    return None if best is None else _trace_nodes(groups, least, best[1])


def _masks(groups: CandidateGroups) -> list[int]:
    return [sum(1 << i for i in members) for members in groups.members]


def _steps(n: int, groups: CandidateGroups, deadline: Deadline) -> Iterator[tuple[int, IntArray]]:
    """Yield each group with all sets that hold it and begin with its lowest job.

    In order of falling lowest job, so that ``F(S - g)``, whose lowest job is higher, is final.
    """
    masks = _masks(groups)
    for i in sorted(range(len(groups)), key=lambda i: -groups.members[i][0]):
        deadline.check()
        supersets = np.array([masks[i]], dtype=np.int64)
        for job in range(groups.members[i][0] + 1, n):
            if not masks[i] >> job & 1:
                supersets = np.concatenate((supersets, supersets | (1 << job)))
        yield i, supersets


def _cheapest(snapshot: Snapshot, groups: CandidateGroups, deadline: Deadline) -> list[int] | None:
    """Return the groups of a cheapest partition: ``F`` of the module docstring."""
    n = len(snapshot)
    least: FloatArray = np.full(1 << n, np.inf)
    least[0] = 0.0
    masks = _masks(groups)
    usd = [snapshot.usd_per_hour(*nodes) for nodes in groups.nodes]
    for i, supersets in _steps(n, groups, deadline):
        through = usd[i] + least[supersets ^ masks[i]]
        least[supersets] = np.minimum(least[supersets], through)
    left = (1 << n) - 1
    if not np.isfinite(least[left]):
        return None
    out = []
    while left:
        i = next(
            i
            for i, mask in enumerate(masks)
            if mask & left == mask
            and mask & left & -left
            and usd[i] + least[left ^ mask] == least[left]
        )
        out.append(i)
        left ^= masks[i]
    return out


def _most_train(snapshot: Snapshot, groups: CandidateGroups) -> int:
    """Return how many train nodes any Pareto-minimal fleet may hold: every job alone."""
    return sum(job.train_nodes for job in snapshot.jobs)


def _least_rollout(
    snapshot: Snapshot, groups: CandidateGroups, most_train: int, deadline: Deadline
) -> IntArray:
    """Return ``R(S, t)`` of the module docstring, shape ``(2^n, most_train + 1)`` nodes."""
    n = len(snapshot)
    if (most_train + 1) << n > _MOST_ENTRIES:
        raise UnsupportedError(
            f"Expected at most {_MOST_ENTRIES:,} table entries for method {METHOD} under fleet "
            f"caps, got {(most_train + 1) << n:,} ({n} jobs, {most_train} train nodes): use "
            "method set-partition."
        )
    least: IntArray = np.full((1 << n, most_train + 1), _NONE, dtype=np.int64)
    least[0] = 0
    masks = _masks(groups)
    for i, supersets in _steps(n, groups, deadline):
        rollout, train = groups.nodes[i]
        if train > most_train:
            continue
        through = np.minimum(rollout + least[supersets ^ masks[i], : most_train + 1 - train], _NONE)
        least[supersets, train:] = np.minimum(least[supersets, train:], through)
    return least


def _trace_nodes(groups: CandidateGroups, least: IntArray, train: int) -> list[int]:
    """Return groups that reach ``R(J, train)``."""
    masks = _masks(groups)
    left, out = len(least) - 1, []
    while left:
        for i, mask in enumerate(masks):
            rollout, nodes = groups.nodes[i]
            inside = mask & left == mask and mask & left & -left and nodes <= train
            if inside and rollout + least[left ^ mask, train - nodes] == least[left, train]:
                out.append(i)
                left ^= mask
                train -= nodes
                break
        else:
            raise AssertionError("the table of fewest rollout nodes leads nowhere")
    return out
