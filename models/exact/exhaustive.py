"""Exhaustive group formation: the cost of every set of jobs, then dynamic programming.

Sets and parameters
-------------------
``J`` the ``n`` jobs; ``G`` the candidate groups (:mod:`models.exact.candidate_groups`), each a set
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

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import UnsupportedError
from models.exact.candidate_groups import CandidateGroups, enumerate_groups
from models.group.group_cost import GroupCost
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Result, StoppedBy, first_incumbent, result_of, usd_of
from models.problem.snapshot import FleetCaps, PlacedGroup, Snapshot

__all__ = ["METHOD", "MOST_JOBS", "NO_FLEET", "fleet_front", "least_rollout", "solve"]

METHOD: Final = "exhaustive"
#: Jobs beyond which the table over all sets is too large.
MOST_JOBS: Final = 20
#: Entries of the table with node counts beyond which it is refused.
_MOST_ENTRIES: Final = 2**27
#: More rollout nodes than any table holds.
NO_FLEET: Final = 2**30

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
    if snapshot.caps.any:
        _require_table(snapshot)
    deadline = options.start()
    held = first_incumbent(snapshot, options)
    cost = GroupCost(snapshot, seed=options.seed, deadline=deadline)
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    stopped = None
    chosen: list[PlacedGroup] | None = None
    least_usd: float | None = None
    try:
        groups = enumerate_groups(cost, options, deadline, fronts=snapshot.caps.any)
        seconds["groups"] = deadline.elapsed_s
        counts = {"groups": len(groups), "sets": groups.sets_grown}
        found = _partition(snapshot, groups, deadline)
        seconds["partition"] = deadline.elapsed_s - seconds["groups"]
        if found is not None:
            least_usd, picked = found
            chosen = [_decided(cost, groups, i) for i in picked]
    except OutOfTimeError:
        stopped = StoppedBy.TIME
    except KeyboardInterrupt:
        stopped = StoppedBy.INTERRUPT
    counts |= {f"decided_{how}": number for how, number in sorted(cost.counts.items())}
    if stopped is None and chosen is None and held is not None:  # valid by a hair's breadth
        chosen, least_usd = list(held), usd_of(snapshot, held)
    return result_of(
        snapshot,
        options,
        METHOD,
        groups=held if stopped else chosen,
        bound_usd=least_usd,
        claimed_usd=least_usd,
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
    snapshot = replace(snapshot, caps=FleetCaps())
    _require_table(snapshot)
    deadline = options.start()
    cost = GroupCost(snapshot, seed=options.seed, deadline=deadline)
    groups = enumerate_groups(cost, options, deadline, fronts=True)
    least = least_rollout(snapshot, groups, deadline)[-1]
    out: list[tuple[int, int]] = []
    for train, rollout in enumerate(least.tolist()):
        if rollout < NO_FLEET and (not out or rollout < out[-1][0]):
            out.append((rollout, train))
    return out[::-1]


def _require_size(snapshot: Snapshot) -> None:
    if len(snapshot) > MOST_JOBS:
        raise UnsupportedError(
            f"Expected at most {MOST_JOBS} jobs for method {METHOD}, got {len(snapshot)}: use "
            "method set-partition."
        )


def _require_table(snapshot: Snapshot) -> None:
    n, most_train = len(snapshot), _most_train(snapshot)
    if (most_train + 1) << n > _MOST_ENTRIES:
        raise UnsupportedError(
            f"Expected at most {_MOST_ENTRIES:,} table entries for method {METHOD} under fleet "
            f"caps, got {(most_train + 1) << n:,} ({n} jobs, {most_train} train nodes): use "
            "method set-partition."
        )


def _decided(cost: GroupCost, groups: CandidateGroups, i: int) -> PlacedGroup:
    found = cost.decide(groups.members[i], groups.nodes[i])
    if found is None:  # decided once already, and cached
        raise AssertionError(f"group {groups.members[i]} lost its schedule")
    return found


# --- dynamic programming ----------------------------------------------------------------------


def _partition(
    snapshot: Snapshot, groups: CandidateGroups, deadline: Deadline
) -> tuple[float, list[int]] | None:
    """Return cost and groups of a least-cost partition within the caps; ``None`` if none is."""
    if not snapshot.caps.any:
        return _cheapest(snapshot, groups, deadline)
    least = least_rollout(snapshot, groups, deadline)
    best: tuple[float, int] | None = None
    for train, rollout in enumerate(least[-1].tolist()):
        if rollout < NO_FLEET and snapshot.caps.allow(rollout, train):
            usd = snapshot.usd_per_hour(rollout, train)
            if best is None or usd < best[0]:
                best = usd, train
    return None if best is None else (best[0], _trace_nodes(groups, least, best[1]))


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


def _cheapest(
    snapshot: Snapshot, groups: CandidateGroups, deadline: Deadline
) -> tuple[float, list[int]] | None:
    """Return cost and groups of a cheapest partition: ``F`` of the module docstring."""
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
    return float(least[-1]), out


def _most_train(snapshot: Snapshot) -> int:
    """Return how many train nodes a fleet worth having may hold: every job alone, or the cap."""
    alone = sum(job.train_nodes for job in snapshot.jobs)
    cap = snapshot.caps.max_train_nodes_total
    return alone if cap is None else min(alone, cap)


def least_rollout(
    snapshot: Snapshot, groups: CandidateGroups, deadline: Deadline
) -> npt.NDArray[np.int32]:
    """Return ``R(S, t)`` of the module docstring, shape ``(2^n, t + 1)`` nodes, within the cap.

    At least ``NO_FLEET`` where there is none; sets are numbered by the bits of their jobs.
    """
    n, most_train = len(snapshot), _most_train(snapshot)
    _require_table(snapshot)
    least: npt.NDArray[np.int32] = np.full((1 << n, most_train + 1), NO_FLEET, dtype=np.int32)
    least[0] = 0
    masks = _masks(groups)
    for i, supersets in _steps(n, groups, deadline):
        rollout, train = groups.nodes[i]
        if train > most_train:
            continue
        through = rollout + least[supersets ^ masks[i], : most_train + 1 - train]
        through = np.minimum(through, NO_FLEET)
        least[supersets, train:] = np.minimum(least[supersets, train:], through)
    return least


def _trace_nodes(groups: CandidateGroups, least: npt.NDArray[np.int32], train: int) -> list[int]:
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
