"""The plan every method starts from: the placer's, of jobs that arrive in their order."""

from __future__ import annotations

from typing import Final

from instances.errors import InfeasibleError
from instances.plan import Plan
from models.problem.snapshot import PlacedGroup, Snapshot, plan_of
from planner.placement.group_state import GroupState
from planner.placement.placer import Placer, PlacerParams

__all__ = ["from_scratch", "warm_start"]

#: Policy name of the placer's plan.
_PLACER: Final = "weave"
_PARAMS: Final = PlacerParams()


def from_scratch(snapshot: Snapshot, params: PlacerParams = _PARAMS) -> tuple[PlacedGroup, ...]:
    """Return the groups that the placer makes of the jobs in order of arrival.

    Raises
    ------
    InfeasibleError
        When a job cannot run even alone.
    """
    placer = Placer(snapshot.cluster, snapshot.limits, params)
    index = {job.job_id: i for i, job in enumerate(snapshot.jobs)}
    for job in sorted(snapshot.jobs, key=lambda job: job.arrival_s):
        placer.place(job)
    return tuple(_placed(state, index) for state in placer.groups())


def _placed(state: GroupState, index: dict[str, int]) -> PlacedGroup:
    order = sorted(range(len(state.jobs)), key=lambda i: index[state.jobs[i].job_id])
    return PlacedGroup(
        members=tuple(index[state.jobs[i].job_id] for i in order),
        rollout_pins=tuple(state.rollout_pins[i] for i in order),
        train_pins=tuple(state.train_pins[i] for i in order),
        period_s=state.period_s,
        starts_s=tuple(state.starts_s[i] for i in order),
        rates=tuple(state.rates[i] for i in order),
    )


def warm_start(snapshot: Snapshot) -> Plan | None:
    """Return the placer's plan of the jobs in order of arrival; ``None`` where it has none.

    It has none when a job cannot run even alone, or when its plan exceeds the fleet caps,
    which the placer does not know.

    Raises
    ------
    CheckError
        When the placer's plan breaks a rule: a fault of the program.
    """
    try:
        groups = from_scratch(snapshot)
    except InfeasibleError:
        return None
    nodes = [group.nodes for group in groups]
    if not snapshot.caps.allow(sum(r for r, _ in nodes), sum(t for _, t in nodes)):
        return None
    return plan_of(snapshot, groups, _PLACER)
