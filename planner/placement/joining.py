"""One candidate: the group with the job in it, on chosen pins, with offsets or not at all."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from instances.jobs import Job
from models.group.period import construct, insert
from models.problem.group_shape import GroupShape, Pins, Starts
from planner.placement.fleet_state import NodeRow, Slot
from planner.placement.group_rates import possible_shape, schedule_at
from planner.placement.group_state import GroupState

__all__ = ["join", "join_at_rates", "pin_choices"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Insertion orders tried per period by the placer; more of them find offsets rarely.
_ORDERS: Final = 2
#: The same with rates: interleavings tried, or insertion orders where all rates are 1.
_RATE_ORDERS: Final = 1


def join(
    slot: Slot, job: Job, r_pins: Pins, t_pins: Pins, limit_s: float
) -> tuple[GroupState, GroupShape] | None:
    """Return the group with the job on these pins, or None when no offsets are found.

    First the job is inserted into the running schedule as it is; when that fails, or when its
    coming makes a member pay a switch, all offsets are built anew. One iteration each.
    """
    old = slot.state
    new, as_before = _with_job(slot, job, r_pins, t_pins, 1)
    period, starts = old.period_s, None
    if as_before and period <= limit_s:
        starts = insert(new, period, old.starts_s)
    if starts is None:
        schedule = construct(new, limit_s=limit_s, orders=_ORDERS, refine=0)
        if schedule is None:
            return None
        period, starts = schedule.period_s, schedule.starts_s
    return _state(old, job, new, period, starts), new


def join_at_rates(
    slot: Slot, job: Job, r_pins: Pins, t_pins: Pins, period_s: float
) -> tuple[tuple[GroupState, GroupShape] | None, bool]:
    """Return the group with the job on these pins, at rates chosen for all.

    Parameters
    ----------
    period_s : float
        Longest period; in it everybody runs the fewest iterations that deadlines allow.

    Returns
    -------
    (tuple or None, bool)
        State and shape, ``None`` without offsets; and whether offsets were looked for.
    """
    new, _ = _with_job(slot, job, r_pins, t_pins, 1)
    deadlines = [member.deadline_s for member in (*slot.state.jobs, job)]
    possible = possible_shape(new, deadlines, period_s)
    if possible is None:
        return None, False
    shape, bound = possible
    schedule = schedule_at(shape, bound, period_s, _RATE_ORDERS)
    if schedule is None:
        return None, True
    return (_state(slot.state, job, shape, schedule.period_s, schedule.starts_s), shape), True


def _with_job(
    slot: Slot, job: Job, r_pins: Pins, t_pins: Pins, rate: int
) -> tuple[GroupShape, bool]:
    """Return the group's shape with the job last, and whether all members' phases stay."""
    old, shape = slot.state, slot.shape
    paying_r = _paying(slot.rollout_rows, r_pins, old.rollout_pins)
    paying_t = _paying(slot.train_rows, t_pins, old.train_pins)
    p, q = list(shape.rollout_s), list(shape.train_s)
    for i in paying_r[:-1]:
        p[i] = old.jobs[i].rollout_s + old.jobs[i].rollout_switch_s
    for i in paying_t[:-1]:
        q[i] = old.jobs[i].train_s + old.jobs[i].train_switch_s
    p.append(job.rollout_s + (job.rollout_switch_s if paying_r[-1] >= 0 else 0.0))
    q.append(job.train_s + (job.train_switch_s if paying_t[-1] >= 0 else 0.0))
    new = GroupShape(
        tuple(p),
        tuple(q),
        (*shape.sync_s, job.sync_s),
        (*old.rollout_pins, r_pins),
        (*old.train_pins, t_pins),
        (*old.rates, rate),
        (*(shape.lags or (1,) * len(shape)), job.lag) if shape.lags or job.lag > 1 else (),
    )
    return new, len(paying_r) == len(paying_t) == 1


def _state(
    old: GroupState, job: Job, new: GroupShape, period_s: float, starts_s: Starts
) -> GroupState:
    pins = new.rollout_pins, new.train_pins
    return GroupState(old.number, (*old.jobs, job), *pins, new.rates, period_s, starts_s)


def _paying(rows: dict[int, NodeRow], pins: Pins, members: tuple[Pins, ...]) -> list[int]:
    """Return the members that start to pay a switch when ``pins`` are joined.

    The last entry is 0 when the newcomer pays too (one of its nodes is not new), else -1.
    """
    shared = -1
    found: list[int] = []
    for node in pins:
        row = rows.get(node)
        if row is not None:
            shared = 0
            if row[3] == 1:
                found += [i for i, nodes in enumerate(members) if node in nodes and i not in found]
    found.append(shared)
    return found


def pin_choices(
    width: int, new: int, usable: BoolArray, load_s: FloatArray, ids: Pins, next_id: int
) -> tuple[Pins, Pins]:
    """Return two pin sets of ``width`` nodes, ``new`` of them new: tightest, then most room."""
    fresh = tuple(range(next_id, next_id + new))
    keep = width - new
    if keep <= 0:
        return fresh, fresh
    columns = usable.nonzero()[0].tolist()
    if len(columns) > keep:
        columns.sort(key=lambda c: -load_s[c])
    tight = tuple(sorted(ids[c] for c in columns[:keep])) + fresh
    roomy = tuple(sorted(ids[c] for c in columns[-keep:])) + fresh
    return tight, roomy
