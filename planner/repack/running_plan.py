"""A live fleet from a plan file: the groups that run at a moment, and what their jobs have done.

*Which moment?* A snapshot plan is one moment. Of a replay's plan it is chosen: some hours from the
trace's origin, when the versions with ``from_s <= moment < to_s`` run, or *now*, the end of the
last group, when those that end there run.

*What is known of the jobs?* Of a replay's plan its own history: iterations done (fractional,
none in pauses, none that a failure undid), pauses, moves with their times, and how long the jobs
stayed that have left by then; nothing later than the moment is used but, for
``--oracle remaining``, when the jobs present leave. A snapshot plan has no history. A progress
file gives it (:mod:`planner.repack.progress`); without one nobody knows how far a job is ahead of
its SLO, and a job may move only if it *earns its restart back*: at its present pace it gains
``D_j k_j / C_g - 1`` seconds of credit a second, and that, for as long as a saving lasts, has to
cover its restart.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from instances.errors import FleetPlannerError, InputError, UnsupportedError
from instances.group_checker import TOLERANCE_S
from instances.jobs import Job, JobTable
from instances.plan import DedicatedNodes, GroupVersion, HeldNodes, Plan
from planner.placement.group_state import GroupState
from planner.policies.repack_ledger import JobLedger, RunningJob
from planner.policies.replay_result import Convention
from planner.repack.progress import Progress, read_progress

__all__ = [
    "Reason",
    "RunningLedger",
    "RunningPlan",
    "running_plan",
]

_HOUR_S: Final = 3600.0
#: Why a job may not move now.
Reason = Literal["freeze", "restarting", "moves-per-day", "slo-credit", "payback"]

Item = TypeVar("Item", GroupVersion, DedicatedNodes, HeldNodes)


# --- what is known of the jobs --------------------------------------------------------------------


class RunningLedger(JobLedger):
    """The ledger of a running fleet, which also says why a job may not move.

    Attributes
    ----------
    known : bool
        Whether iterations done are known; if not, the payback rule takes the place of credit.
    payback_s : float or None
        Seconds within which a restart has to be earned back where credit is not known;
        ``None`` before that is known, when nobody may move.
    remaining_s : mapping of str to float or None
        Seconds each job still stays, where a progress file says so.
    departed : int
        Stays that it has learnt from.
    """

    def __init__(
        self,
        convention: Convention,
        *,
        known: bool,
        remaining_s: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(convention)
        self.known = known
        self.payback_s: float | None = None
        self.remaining_s = None if remaining_s is None else dict(remaining_s)
        self.departed = 0
        self._pace: dict[str, float] = {}

    def depart(self, job: Job, now_s: float) -> None:
        """Let a job go, and learn how long it stayed."""
        super().depart(job, now_s)
        self.departed += 1

    def copy(self) -> RunningLedger:
        """Return a ledger of its own with the same entries."""
        return copy.deepcopy(self)

    def enter(self, known: RunningJob) -> None:
        """Take in a job that runs already."""
        job_id = known.job.job_id
        self.arrived += 1
        self.running[job_id] = known
        self._pace[job_id] = known.speed

    def gain_per_s(self, job_id: str) -> float:
        """Return the seconds of SLO credit a job gains a second at the pace it was taken in with.

        ``D_j k_j / C_g - 1``: never negative in a valid group.
        """
        return max(self[job_id].job.deadline_s * self._pace[job_id] - 1.0, 0.0)

    def payback_of_s(self, job_id: str) -> float:
        """Return the seconds within which a job earns its restart back; inf when it never does."""
        restart_s, gain = self[job_id].job.restart_s, self.gain_per_s(job_id)
        if restart_s <= 0:
            return 0.0
        return restart_s / gain if gain > 0 else inf

    def may_move(self, job_id: str, now_s: float, most_per_day: int | None) -> bool:
        """Return whether a job can be moved now."""
        return self.why_not(job_id, now_s, most_per_day) is None

    def why_not(self, job_id: str, now_s: float, most_per_day: int | None) -> Reason | None:
        """Return why a job cannot be moved now, or ``None`` where it can."""
        known = self.running[job_id]
        if known.paused_until_s > now_s:
            return "restarting"
        if most_per_day is not None and known.moves_since(now_s - 24 * _HOUR_S) >= most_per_day:
            return "moves-per-day"
        if self.known:
            return None if super().may_move(job_id, now_s, None) else "slo-credit"
        limit_s = -inf if self.payback_s is None else self.payback_s
        return None if self.payback_of_s(job_id) <= limit_s else "payback"

    def _remaining_s(self, known: RunningJob, now_s: float) -> float:
        if self.remaining_s is None:
            return super()._remaining_s(known, now_s)
        return self.remaining_s[known.job.job_id]


# --- the running fleet ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunningPlan:
    """What runs at one moment of a plan.

    Attributes
    ----------
    moment_s : float or None
        Seconds of the trace; ``None`` of a snapshot plan, which does not say.
    clock_s : float
        The same moment on the clock of the ledger.
    groups : tuple of GroupState
        Running groups, by number.
    names : mapping of int to str
        The plan's name of each group by number, of all groups it ever had.
    since_s : mapping of int to float
        When each running group last changed, on the ledger's clock.
    jobs : JobTable
        Jobs present, those on dedicated nodes included, in the plan's order.
    dedicated : tuple of DedicatedNodes
    held : tuple of HeldNodes
        Old nodes that are still paid for.
    restart_s : float or None
        Seconds of a restart of every job, where the plan's own were replaced.
    """

    plan: Plan
    moment_s: float | None
    clock_s: float
    groups: tuple[GroupState, ...]
    names: Mapping[int, str]
    since_s: Mapping[int, float]
    jobs: JobTable
    dedicated: tuple[DedicatedNodes, ...]
    held: tuple[HeldNodes, ...]
    ledger: RunningLedger
    progress: Progress | None = None
    restart_s: float | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether the plan is one moment."""
        return self.plan.durations == "snapshot"

    @property
    def dedicated_nodes(self) -> dict[str, int]:
        """Dedicated nodes by pool."""
        return {
            "rollout": sum(item.rollout_nodes for item in self.dedicated),
            "train": sum(item.train_nodes for item in self.dedicated),
        }

    def new_names(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return names of new groups, after those of the plan, in the order of their numbers."""
        taken, names = set(self.names.values()), {}
        at = max(self.names, default=0)
        for number in sorted(numbers):
            at += 1
            while f"g{at}" in taken:
                at += 1
            names[number] = f"g{at}"
        return names


def running_plan(
    plan: Plan,
    *,
    at_hours: float | None = None,
    now: bool = False,
    restart_s: float | None = None,
    progress: Path | None = None,
) -> RunningPlan:
    """Return what runs at one moment of a valid plan.

    Parameters
    ----------
    plan : Plan
        One that the checker found valid.
    at_hours : float, optional
        Hours from the trace's origin, of a replay's plan.
    now : bool
        The last moment with running groups; of a snapshot plan the only one.
    restart_s : float, optional
        Seconds of a restart of every job, instead of those of the plan's jobs.
    progress : Path, optional
        A progress file (:mod:`planner.repack.progress`), of a snapshot plan.

    Raises
    ------
    InputError
        When the moment is none, or missing where there are many, or the progress file is faulty.
    UnsupportedError
        For a plan whose jobs waited for a fixed fleet, on arrival or after a failure.
    FleetPlannerError
        When no group runs at that moment.
    """
    if plan.fleet is not None or plan.starts:
        raise UnsupportedError(
            "Expected a plan whose nodes are rented, got one for a fixed fleet: planner repack "
            "would propose nodes that the fleet does not have."
        )
    waited = next((loss for loss in plan.losses if loss.back_s > loss.at_s + TOLERANCE_S), None)
    if waited is not None:
        raise UnsupportedError(
            "Expected a plan whose nodes are rented, got one in which a job that failed waits for "
            f"nodes (job '{waited.job_id}' at {waited.at_s / _HOUR_S:.10g} h)."
        )
    moment = _moment(plan, at_hours, now=now)
    groups = moment.of(plan.groups)
    if not groups:
        raise FleetPlannerError(_nobody(plan, moment.at_s))
    dedicated = moment.of(plan.dedicated)
    ids = {p.job_id for group in groups for p in group.placements}
    present = ids | {item.job_id for item in dedicated}
    table = plan.jobs.take([i for i, job_id in enumerate(plan.jobs.job_id) if job_id in present])
    jobs = {job.job_id: job for job in table if job.job_id in ids}
    if restart_s is not None:
        jobs = {job_id: replace(job, restart_s=restart_s) for job_id, job in jobs.items()}
    names, numbers = _numbered(plan.groups)
    found = None
    if progress is not None:
        if plan.durations != "snapshot":
            raise InputError(
                "Expected --progress with a snapshot plan only: a replay's plan has its history."
            )
        found = read_progress(progress, list(jobs), present - ids)
    if plan.durations == "snapshot":
        ledger, clock_s, jobs = _snapshot_ledger(jobs, groups, found)
        since_s = {numbers[group.group_id]: clock_s for group in groups}
    else:
        clock_s = moment.at_s
        ledger = _history(plan, jobs, groups, clock_s)
        since_s = {numbers[group.group_id]: group.from_s for group in groups}
    states = [_state(group, numbers[group.group_id], jobs) for group in groups]
    return RunningPlan(
        plan=plan,
        moment_s=None if plan.durations == "snapshot" else moment.at_s,
        clock_s=clock_s,
        groups=tuple(sorted(states, key=lambda state: state.number)),
        names=MappingProxyType(names),
        since_s=MappingProxyType(since_s),
        jobs=table,
        dedicated=dedicated,
        held=moment.of(plan.held),
        ledger=ledger,
        progress=found,
        restart_s=restart_s,
    )


def _state(group: GroupVersion, number: int, jobs: Mapping[str, Job]) -> GroupState:
    placements = group.placements
    return GroupState(
        number=number,
        jobs=tuple(jobs[p.job_id] for p in placements),
        rollout_pins=tuple(p.rollout_pins for p in placements),
        train_pins=tuple(p.train_pins for p in placements),
        rates=tuple(p.rate for p in placements),
        period_s=group.period_s,
        starts_s=tuple(p.starts_s for p in placements),
    )


def _numbered(groups: Iterable[GroupVersion]) -> tuple[dict[int, str], dict[str, int]]:
    """Return names by number and numbers by name: ``g7`` is 7 where all names are such."""
    ids = list(dict.fromkeys(group.group_id for group in groups))
    plain = all(
        name[:1] == "g" and name[1:].isascii() and name[1:].isdigit() and name[1:2] != "0"
        for name in ids
    )
    numbers = {name: int(name[1:]) if plain else i for i, name in enumerate(ids, start=1)}
    return {number: name for name, number in numbers.items()}, numbers


# --- the moment -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    """A moment, or with ``before`` the state right before it."""

    at_s: float
    before: bool = False

    def of(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Return the items of a plan that hold at the moment."""
        at_s = self.at_s
        if self.before:
            return tuple(i for i in items if i.from_s < at_s <= i.to_s + TOLERANCE_S)
        return tuple(i for i in items if i.from_s <= at_s < i.to_s)


def _moment(plan: Plan, at_hours: float | None, *, now: bool) -> _Moment:
    """Return the moment asked for."""
    if at_hours is not None and not isfinite(at_hours):
        raise InputError(f"Expected a finite number of hours with --at-hours, got {at_hours!r}.")
    if at_hours is not None and now:
        raise InputError("Expected one of --now and --at-hours, got both.")
    if plan.durations == "snapshot":
        if at_hours is not None:
            raise InputError(
                "Expected --now with a snapshot plan, got --at-hours: it is one moment, and does "
                "not say which."
            )
    elif at_hours is not None:
        return _Moment(at_hours * _HOUR_S)
    elif not now:
        raise InputError(
            f"Expected --now or --at-hours with a plan of many moments ({plan.durations} "
            "convention), got neither."
        )
    return _Moment(max((group.to_s for group in plan.groups), default=0.0), before=True)


def _nobody(plan: Plan, at_s: float) -> str:
    if not plan.groups:
        return "Nothing runs in groups in this plan: it holds dedicated nodes only, or no jobs."
    first = min(group.from_s for group in plan.groups) / _HOUR_S
    last = max(group.to_s for group in plan.groups) / _HOUR_S
    return (
        f"No group runs at {at_s / _HOUR_S:.10g} h: the first of the plan is there from "
        f"{first:.10g} h on, the last until {last:.10g} h. Choose a moment in between."
    )


# --- ledgers --------------------------------------------------------------------------------------


def _snapshot_ledger(
    jobs: Mapping[str, Job], groups: Sequence[GroupVersion], progress: Progress | None
) -> tuple[RunningLedger, float, dict[str, Job]]:
    """Return the ledger, its clock, and the jobs on it: arrived ``elapsed_s`` before now.

    Without progress their ages are not known and taken for 0.
    """
    if progress is None:
        jobs = {job_id: replace(job, arrival_s=0.0) for job_id, job in jobs.items()}
        clock_s, ledger = 0.0, RunningLedger("work", known=False)
    else:
        clock_s = max(progress.elapsed_s.values())
        jobs = {
            job_id: replace(job, arrival_s=clock_s - progress.elapsed_s[job_id])
            for job_id, job in jobs.items()
        }
        ledger = RunningLedger("work", known=True, remaining_s=progress.remaining_s)
    speeds = _speeds(groups)
    for job_id, job in jobs.items():
        known = RunningJob(job, clock_s, speed=speeds[job_id])
        if progress is not None:
            known.iterations = progress.iterations[job_id]
            known.moved_s = [clock_s] * progress.moves_last_day.get(job_id, 0)
        ledger.enter(known)
    return ledger, clock_s, jobs


def _speeds(groups: Iterable[GroupVersion]) -> dict[str, float]:
    """Return the iterations per second of every job outside pauses."""
    return {p.job_id: p.rate / group.period_s for group in groups for p in group.placements}


@dataclass(slots=True)
class _Past:
    """What the versions of a plan up to a moment say of one job."""

    iterations: float = 0.0
    end_s: float = -inf
    home: tuple[str, frozenset[int], frozenset[int]] | None = None
    moved_s: list[float] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)

    def is_back(self, at_s: float) -> bool:
        """Return whether it starts again after a failure."""
        return any(abs(back_s - at_s) <= TOLERANCE_S for back_s in self.back_s)

    def paused_s(self, from_s: float, to_s: float) -> float:
        """Return the seconds of an interval in pauses, which are disjoint."""
        return math.fsum(
            max(min(until_s, to_s) - max(since_s, from_s), 0.0) for since_s, until_s in self.pauses
        )


def _history(
    plan: Plan, jobs: Mapping[str, Job], running: Sequence[GroupVersion], at_s: float
) -> RunningLedger:
    """Return the ledger that a replay's plan tells of at a moment, from nothing later than it.

    Whatever a failure does, it undoes iterations and does not count as a move.
    """
    past: defaultdict[str, _Past] = defaultdict(_Past)
    for loss in plan.losses:
        if loss.at_s <= at_s:
            past[loss.job_id].iterations -= loss.iterations
            past[loss.job_id].back_s.append(loss.back_s)
    for pause in plan.pauses:
        if pause.from_s <= at_s:
            past[pause.job_id].pauses.append((pause.from_s, pause.to_s))
    for group in sorted(plan.groups, key=lambda group: group.from_s):
        if group.from_s > at_s:
            break
        to_s = min(group.to_s, at_s)
        for p in group.placements:
            seen = past[p.job_id]
            home = (group.group_id, frozenset(p.rollout_pins), frozenset(p.train_pins))
            if seen.home not in (None, home) and not seen.is_back(group.from_s):
                seen.moved_s.append(group.from_s)
            seen.home, seen.end_s = home, to_s
            run_s = to_s - group.from_s - seen.paused_s(group.from_s, to_s)
            seen.iterations += run_s * p.rate / group.period_s
    ledger = RunningLedger("work" if plan.durations == "work" else "wallclock", known=True)
    _saw(ledger, plan, jobs, past)
    speeds = _speeds(running)
    for job_id, job in jobs.items():
        seen = past[job_id]
        ledger.enter(
            RunningJob(
                job,
                at_s,
                iterations=seen.iterations,
                speed=speeds[job_id],
                paused_until_s=max((to_s for _, to_s in seen.pauses), default=-inf),
                paused_s=math.fsum(to_s - from_s for from_s, to_s in seen.pauses),
                moved_s=seen.moved_s,
            )
        )
    return ledger


def _saw(
    ledger: RunningLedger, plan: Plan, running: Mapping[str, Job], past: Mapping[str, _Past]
) -> None:
    """Let the ledger learn from the stays that have ended, in the order of their ends."""
    index = {job_id: i for i, job_id in enumerate(plan.jobs.job_id)}
    gone = [
        (seen.end_s, job_id)
        for job_id, seen in past.items()
        if job_id not in running and seen.home is not None
    ]
    for end_s, job_id in sorted(gone):
        job = plan.jobs.job(index[job_id])
        paused_s = past[job_id].paused_s(-inf, end_s)
        ledger.enter(RunningJob(job, end_s, paused_s=paused_s))
        ledger.depart(job, end_s)
