"""Running groups: event by event, with the seconds that phases really take.

A group's version is run by :mod:`planner.simulate.runtime_kernel`, a plan version by version. Two
disciplines:

* ``round-robin``: every node serves its phases in the cyclic order that the version's ``starts_s``
  give, each as early as that order allows, and no job's first rollout before its planned start.
  With planned seconds no phase starts later than planned, and shorter ones never make a start
  later: where no phase takes longer than planned, no promise is broken (with rates above 1: over
  whole periods);
* ``fifo``: every node serves whoever asked first, ties to the lower job index. Nobody is promised
  anything; attainment is measured.

*Seconds* come from a :class:`planner.simulate.lengths.PhaseSource` by job and number of its
iteration, so the same iteration takes the same seconds under any plan and discipline. A phase on a
shared node pays its switch each time: warm, cold or none (:class:`Switches`).
*Interference* ``f`` lengthens the run of phases on shared nodes by the factor ``1 + f``.

*A plan*. Versions last as planned. A job enters a version at its planned start, with its next
iteration, and its iterations in a version of length ``L`` are those within ``L`` from there: the
iteration that spans the end counts by its part, and sums carry over from version to version, as
the contract has it. A job's mean iteration time is its stay, pauses included, over iterations done;
it keeps its promise when that is at most ``D_j``, worst-case ``T_j`` times its SLO. A failure
undoes as many iterations as planned; time in the queue after it is no part of the stay.

Statistics are sums, so memory does not grow with simulated time; events are kept when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isfinite
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from instances.errors import CheckError, InputError
from instances.jobs import JobTable
from instances.plan import GroupVersion, Plan
from models.problem.options import Deadline
from planner.replay.version_losses import paused_within, undone_within
from planner.simulate.lengths import PhaseSource
from planner.simulate.runtime_kernel import DONE, FAULT, STUCK, Found, State, Window, run_events
from planner.simulate.runtime_run import (
    POOLS,
    SLO_EPS,
    SLO_EPS_S,
    Event,
    GroupRun,
    group_run,
)
from planner.simulate.runtime_setup import (
    DISCIPLINES,
    WARM,
    Discipline,
    LaidOut,
    Switches,
    at_start,
    require_discipline,
)

__all__ = [
    "DISCIPLINES",
    "POOLS",
    "Discipline",
    "Event",
    "GroupRun",
    "RuntimeReport",
    "Switches",
    "simulate_group",
    "simulate_plan",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Progress = Callable[[int, int], None]

#: Iterations whose seconds are handed to the loop at a time: most, and over those planned.
_CHUNK: Final = 256
_CHUNK_OVER_PLANNED: Final = 1.5


# --- one version ----------------------------------------------------------------------------------


def _loop(
    group: LaidOut,
    source: PhaseSource,
    begun: Sequence[int],
    parts: tuple[Window, State, Found],
    deadline: Deadline | None,
) -> bool:
    """Run to the end, drawing seconds as they are needed; False when it is cut short."""
    window, state, found = parts
    n, layout = len(group.members), group.layout
    planned = window.busy_to_s / group.version.period_s * int(layout.rates.max())
    chunk = min(_CHUNK, ceil(_CHUNK_OVER_PLANNED * planned) + 2)
    seconds = np.empty((2 * n, chunk))
    while deadline is None or not deadline.expired:
        drawn_from = state.ended.copy()
        for j, number in enumerate(group.numbers):
            for pool in (0, 1):
                line = 2 * j + pool
                drawn = source.phases(number, begun[j] + int(drawn_from[line]), chunk)[pool]
                seconds[line] = drawn * group.factor[line]
        ended = run_events(layout, window, state, found, seconds, drawn_from)
        if ended == DONE:
            return True
        if ended in (STUCK, FAULT):
            what = "orders that fit together" if ended == STUCK else "phases in order"
            raise CheckError(f"Expected {what}, got none (group '{group.version.group_id}').")
    return False


def simulate_group(  # noqa: PLR0913 - one argument per question of the command
    version: GroupVersion,
    jobs: JobTable,
    source: PhaseSource,
    *,
    discipline: Discipline = "round-robin",
    horizon_s: float | None = None,
    iterations: int | None = None,
    begun: Sequence[int] | None = None,
    interference: float = 0.0,
    switches: Switches = WARM,
    joins: Sequence[bool] | None = None,
    events: int = 0,
    deadline: Deadline | None = None,
) -> GroupRun:
    """Run one version of a group.

    Parameters
    ----------
    version : GroupVersion
        Its starts are read under ``round-robin`` only.
    jobs : JobTable
        With worst-case seconds, in the order that ``source`` numbers them.
    source : PhaseSource
    discipline : {"round-robin", "fifo"}
    horizon_s : float, optional
        How long; the version's own length when neither this nor ``iterations`` is given.
    iterations : int, optional
        So many planned periods instead.
    begun : sequence of int, optional
        Number of each job's first iteration here; all 0 when left out.
    interference : float
        Share by which runs on shared nodes take longer.
    switches : Switches
    joins : sequence of bool, optional
        Which jobs begin their stay here (``Switches.cold_joins``); all when left out.
    events : int
        Most events to keep, the first.
    deadline : Deadline, optional
        When it has passed, or at Ctrl-C, what was run so far is returned (``complete``).

    Raises
    ------
    InputError
        For an unknown discipline or job, or a number out of its range.
    UnsupportedError
        When a job has no rollout nodes.
    CheckError
        When the orders contradict each other.
    """
    require_discipline(discipline, interference)
    if iterations is not None and iterations < 1:
        raise InputError(f"Expected iterations >= 1, got {iterations}.")
    if horizon_s is None:
        length_s = version.to_s - version.from_s
        horizon_s = length_s if iterations is None else iterations * version.period_s
    if not (horizon_s > 0 and isfinite(horizon_s)):
        raise InputError(f"Expected horizon_s > 0, got {horizon_s!r}.")
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    missing = [p.job_id for p in version.placements if p.job_id not in index]
    if missing:
        raise InputError(f"Expected jobs of the table, got '{missing[0]}'.")
    numbers = [index[placement.job_id] for placement in version.placements]
    group = LaidOut(
        version,
        numbers,
        [jobs.job(i) for i in numbers],
        discipline=discipline,
        interference=interference,
        switches=switches,
        joins=joins if joins is not None else [True] * len(numbers),
    )
    parts = at_start(group, horizon_s, events)
    try:
        complete = _loop(group, source, begun or [0] * len(numbers), parts, deadline)
    except KeyboardInterrupt:
        complete = False
    return group_run(group, discipline, horizon_s, parts, complete)


# --- a whole plan ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class RuntimeReport:
    """What one execution of a plan did to the jobs that share nodes.

    Attributes
    ----------
    job_id : tuple of str
    mean_iteration_s : ndarray, (n,)
        Stay over iterations done; infinite without any.
    deadline_s, solo_s : ndarray, (n,)
    iterations, planned_iterations : ndarray, (n,)
        Done, and done by the plan in the same time, without those that a failure undid.
    late_iterations : ndarray, (n,)
        Single ones that took longer than ``D_j``.
    idle_fraction : mapping of str to float
        1 - run node-seconds (no switch, no sync) over those of all versions and held nodes.
    phases : int
        Phases run, those of versions cut short not extrapolated.
    versions, versions_done : int
    """

    discipline: Discipline
    job_id: tuple[str, ...]
    mean_iteration_s: FloatArray
    deadline_s: FloatArray
    solo_s: FloatArray
    iterations: FloatArray
    planned_iterations: FloatArray
    late_iterations: FloatArray
    idle_fraction: dict[str, float]
    phases: int
    versions: int
    versions_done: int

    @property
    def complete(self) -> bool:
        """Whether every version was run."""
        return self.versions_done == self.versions

    @property
    def missed(self) -> BoolArray:
        """Which jobs are later than promised in the mean, ``(n,)``."""
        allowed_s = self.deadline_s * (1 + SLO_EPS)
        slack_s = np.divide(
            SLO_EPS_S, self.iterations, where=self.iterations > 0, out=0 * allowed_s
        )
        late: BoolArray = self.mean_iteration_s > allowed_s + slack_s
        return late

    @property
    def slo_attainment(self) -> float:
        """Share of jobs within their promise."""
        return 1.0 - float(self.missed.mean()) if len(self.job_id) else 1.0

    @property
    def late_share(self) -> float:
        """Share of single iterations that are late; 0 without any."""
        total = float(self.iterations.sum())
        return float(self.late_iterations.sum()) / total if total else 0.0

    @property
    def slowdown(self) -> FloatArray:
        """Mean iteration time over worst-case ``T_j``, ``(n,)``."""
        return self.mean_iteration_s / self.solo_s

    @property
    def worst_over_deadline(self) -> float:
        """The largest mean iteration time over ``D_j``, of any job; 0 without jobs."""
        return float((self.mean_iteration_s / self.deadline_s).max(initial=0.0))

    @property
    def work_h(self) -> float:
        """Iterations done, each worth its worst-case ``T_j``, hours."""
        return float(self.iterations @ self.solo_s) / 3600.0

    @property
    def done_over_planned(self) -> float:
        """Iterations done over those planned."""
        planned = float(self.planned_iterations.sum())
        return float(self.iterations.sum()) / planned if planned else 1.0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row a job, of plain values."""
        return [
            {
                "job_id": job_id,
                "mean_iteration_s": float(self.mean_iteration_s[i]),
                "deadline_s": float(self.deadline_s[i]),
                "slowdown": float(self.slowdown[i]),
                "iterations": float(self.iterations[i]),
                "planned_iterations": float(self.planned_iterations[i]),
                "late_iterations": float(self.late_iterations[i]),
                "slo_met": not bool(self.missed[i]),
            }
            for i, job_id in enumerate(self.job_id)
        ]

    @property
    def row(self) -> dict[str, Any]:
        """The whole as plain values."""
        return {
            "discipline": self.discipline,
            "jobs": len(self.job_id),
            "slo_attainment": self.slo_attainment,
            "jobs_missed": int(self.missed.sum()),
            "late_iterations_share": self.late_share,
            "worst_over_deadline": self.worst_over_deadline,
            "iterations": float(self.iterations.sum()),
            "iterations_over_planned": self.done_over_planned,
            "idle_rollout": self.idle_fraction["rollout"],
            "idle_train": self.idle_fraction["train"],
            "complete": self.complete,
        }


@dataclass(slots=True)
class _Sums:
    """What a plan's versions add up to."""

    elapsed_s: FloatArray
    iterations: FloatArray
    planned: FloatArray
    late: FloatArray
    run_s: FloatArray = field(default_factory=lambda: np.zeros(2))
    held_s: FloatArray = field(default_factory=lambda: np.zeros(2))
    phases: int = 0
    versions: int = 0

    @classmethod
    def of(cls, n: int) -> _Sums:
        return cls(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n))

    def add(self, run: GroupRun, numbers: Sequence[int], running: Sequence[float]) -> None:
        """Add one version's run; ``running`` is the share of it that each job is not paused."""
        version = run.version
        length_s = version.to_s - version.from_s
        times = length_s / run.horizon_s
        for j, (i, share) in enumerate(zip(numbers, running, strict=True)):
            placement, job = version.placements[j], run.jobs[j]
            done = job.iterations * times * share
            self.elapsed_s[i] += length_s
            self.iterations[i] += done
            self.planned[i] += len(placement.starts_s) * length_s * share / version.period_s
            self.late[i] += job.late_share * done
            for pool, pins in enumerate((placement.rollout_pins, placement.train_pins)):
                self.run_s[pool] += run.work_s[j, pool] * times * share * len(pins)
        for pool, nodes in enumerate((version.rollout_nodes, version.train_nodes)):
            self.held_s[pool] += length_s * len(nodes)
        self.phases += run.phases
        self.versions += 1

    def undo(self, numbers: Sequence[int], undone: Sequence[float]) -> None:
        """Take off what failures undo, as many late iterations among them as there are in all."""
        for i, iterations in zip(numbers, undone, strict=True):
            self.planned[i] = max(self.planned[i] - iterations, 0.0)
            if iterations > 0 and self.iterations[i] > 0:
                kept = max(1 - iterations / self.iterations[i], 0.0)
                self.iterations[i] *= kept
                self.late[i] *= kept


def simulate_plan(
    plan: Plan,
    source: PhaseSource,
    *,
    discipline: Discipline = "round-robin",
    interference: float = 0.0,
    switches: Switches = WARM,
    most_iterations: int | None = None,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> RuntimeReport:
    """Run every version of a plan.

    Parameters
    ----------
    plan : Plan
        Made with any planned seconds; each job on nodes of both pools.
    source : PhaseSource
        Of the same jobs, with worst-case seconds: ``D_j`` is theirs.
    discipline : {"round-robin", "fifo"}
    interference : float
        Share by which runs on shared nodes take longer.
    switches : Switches
    most_iterations : int, optional
        Most periods that a version is run for; a longer one is extrapolated.
    deadline : Deadline, optional
        When it has passed, or at Ctrl-C, the rest of the versions is left out (``complete``).
    progress : callable, optional
        Called with (versions done, versions) now and then.

    Raises
    ------
    InputError
        For an unknown discipline or job, or a number out of its range.
    UnsupportedError
        When a job has no rollout nodes of its own.
    """
    if most_iterations is not None and most_iterations < 1:
        raise InputError(f"Expected most_iterations >= 1, got {most_iterations}.")
    jobs, paused_s, undone = source.jobs, paused_within(plan), undone_within(plan)
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    sums, seen = _Sums.of(len(jobs)), np.zeros(len(jobs), dtype=np.bool_)
    versions = sorted(plan.groups, key=lambda v: (v.from_s, v.group_id))
    every = max(1, len(versions) // 100)
    for version in versions:
        length_s = version.to_s - version.from_s
        numbers = [index[placement.job_id] for placement in version.placements]
        run = simulate_group(
            version,
            jobs,
            source,
            discipline=discipline,
            horizon_s=length_s
            if most_iterations is None
            else min(length_s, most_iterations * version.period_s),
            begun=[floor(sums.iterations[i] + SLO_EPS) for i in numbers],
            interference=interference,
            switches=switches,
            joins=[not seen[i] for i in numbers],
            deadline=deadline,
        )
        if not run.complete:
            break
        lasted = [(p.job_id, version.from_s, version.to_s) for p in version.placements]
        sums.add(run, numbers, [1.0 - paused_s(*each) / length_s for each in lasted])
        sums.undo(numbers, [undone(*each) for each in lasted])
        seen[numbers] = True
        if progress is not None and (sums.versions % every == 0 or sums.versions == len(versions)):
            progress(sums.versions, len(versions))
    return _report(plan, jobs, discipline, sums)


def _report(plan: Plan, jobs: JobTable, discipline: Discipline, sums: _Sums) -> RuntimeReport:
    for held in plan.held:
        sums.held_s += (held.to_s - held.from_s) * np.array([held.rollout_nodes, held.train_nodes])
    kept = np.flatnonzero(sums.elapsed_s > 0)
    done = sums.iterations[kept]
    mean_s = np.full(len(kept), np.inf)
    np.divide(sums.elapsed_s[kept], done, out=mean_s, where=done > 0)
    idle = 1.0 - np.divide(sums.run_s, sums.held_s, out=np.zeros(2), where=sums.held_s > 0)
    return RuntimeReport(
        discipline=discipline,
        job_id=tuple(jobs.job_id[i] for i in kept),
        mean_iteration_s=mean_s,
        deadline_s=jobs.deadline_s[kept],
        solo_s=jobs.solo_s[kept],
        iterations=done,
        planned_iterations=sums.planned[kept],
        late_iterations=sums.late[kept],
        idle_fraction={pool: float(idle[i]) for i, pool in enumerate(POOLS)},
        phases=sums.phases,
        versions=len(plan.groups),
        versions_done=sums.versions,
    )
