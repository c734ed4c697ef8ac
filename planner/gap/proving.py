"""The optimality gap of a whole replay: what the policy paid, and the least it could have.

At every moment of a replay (:mod:`planner.gap.moments`) four prices of the jobs present, $/h:

* ``policy``: what the policy pays, its groups being what arrivals and departures made of them;
* ``replanned``: the same policy places the same jobs from scratch, in order of arrival; for
  ``repack``, which plans by exact search, the plan held;
* ``held``: the cheapest plan known, the optimum where it is proved;
* ``bound``: proved, no valid plan costs less.

Each is integrated over time, and the gap splits without remainder:

    policy / bound = (policy / replanned) x (replanned / held) x (held / bound)
                      online regret          heuristic loss      unproved rest

The first factor is below 1 where the policy's groups are cheaper than those it would make anew.
Under ``wallclock`` the moments do not depend on the policy, so the integrated ratio holds
against every policy whose plans are valid at the same limits, those that move jobs included: the
moments are those of the trace without pauses, and what pauses cost is the policy's price alone.
Under ``work`` sharing stretches stays: the ratio is that along the policy's own trajectory, and
named so.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import FleetPlannerError, InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import Limits, Plan
from instances.trace import Trace
from models.backends.interrupt import Interrupt
from models.bounds.volume import VOLUME, volume
from models.problem.options import Progress, SolveOptions
from models.problem.result import OPTIMALITY_REL, usd_of
from models.problem.snapshot import Snapshot, plan_of, solo_group
from planner.gap.moments import Moment, moments_of
from planner.gap.rows import GapRow, GapTotals
from planner.gap.solve import CHAIN, Effort, Link, Replayed, Solved, carried_over, solo_usd
from planner.gap.store import Keys, Store
from planner.gap.workers import cpus, solved_links
from planner.output.ctrl_c import CtrlC
from planner.placement.placer import PlacerParams
from planner.policies.policy import PolicyOptions
from planner.policies.registry import require_policy
from planner.policies.repack_params import RepackParams
from planner.replay.replaying import Convention, ReplayResult, replay, require_convention

__all__ = ["POLICIES_WITH_BOUND", "GapReport", "GapRow", "GapTotals", "optimality_gap"]

#: Policies whose plans are valid, so that the bound concerns them.
POLICIES_WITH_BOUND: Final = ("weave", "repack", "solo")
#: Snapshots on either side whose bounds are held against one that is not proved.
_WINDOW: Final = 64

_LIMITS: Final = Limits()
_PLACER: Final = PlacerParams()
_REPACK: Final = RepackParams()


@dataclass(frozen=True, kw_only=True)
class GapReport:
    """A replay and its optimality gap.

    Attributes
    ----------
    trace : Trace
        The jobs.
    policy : str
        Whose replay it is.
    replayed : Replayed
        The rules by which jobs were placed.
    result : ReplayResult
        The replay.
    rows : tuple of GapRow
        One a moment with jobs that may share, in order of time.
    late : tuple of GapRow
        Moments without such jobs in which the policy pays all the same: pauses have kept jobs
        beyond their stays, or old nodes are held. They are in totals, not in counts of moments.
    repack : RepackParams or None
        When it moves jobs, if the policy is ``repack``.
    distinct : int
        Different snapshots among them.
    read : int
        Of these, read from a store.
    interrupted : bool
        Whether Ctrl-C was pressed; what was not solved by then has ``solved`` ``None``.
    seconds : dict of str to float
        By step, when a clock was given.
    """

    trace: Trace
    policy: str
    replayed: Replayed
    result: ReplayResult
    rows: tuple[GapRow, ...]
    late: tuple[GapRow, ...] = ()
    repack: RepackParams | None = None
    distinct: int
    read: int = 0
    interrupted: bool = False
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def convention(self) -> Convention:
        """Whether stays are fixed (``wallclock``) or stretched (``work``)."""
        return self.result.convention

    @property
    def effort(self) -> Effort:
        """What a snapshot was allowed to take."""
        return self.replayed.effort

    @cached_property
    def totals(self) -> GapTotals:
        """Over all moments."""
        return GapTotals.of([*self.rows, *self.late])

    @property
    def every(self) -> tuple[GapRow, ...]:
        """All moments in which something is paid, those without jobs included, in order of time."""
        return tuple(sorted([*self.rows, *self.late], key=lambda row: row.moment.from_s))

    @property
    def ratio(self) -> float | None:
        """Integrated cost over integrated bound, dedicated nodes left out of both."""
        return self.totals.ratio

    def mean_usd_per_hour(self, usd: float) -> float:
        """Return an integrated price as a mean over the horizon, dedicated nodes added, $/h."""
        return (usd + self.result.dedicated_usd_total) / self.result.horizon_h

    @property
    def n_proved(self) -> int:
        """Moments whose optimum is proved."""
        return sum(row.proved for row in self.rows)

    def n_within(self, tolerance: float) -> int:
        """Return how many moments hold a plan within so much of the bound."""
        limit = 1 + max(tolerance, OPTIMALITY_REL)
        return sum(row.held_usd <= row.bound_usd * limit for row in self.rows)

    @property
    def n_unsolved(self) -> int:
        """Moments that the run did not come to."""
        return sum(row.solved is None for row in self.rows)

    @property
    def n_reused(self) -> int:
        """Moments settled by their neighbours, or by the same jobs before."""
        settled = sum(row.solved is not None and row.solved.reused for row in self.rows)
        return settled + len(self.rows) - self.distinct

    @property
    def worst_open(self) -> float | None:
        """Largest ratio of a plan held over its bound."""
        return max((row.open_ratio or 0.0 for row in self.rows), default=None)

    @property
    def stopped_by(self) -> dict[str, int]:
        """Moments not proved, by the limit that stopped the proof."""
        found: Counter[str] = Counter()
        for row in self.rows:
            if not row.proved and row.solved is not None:
                found[row.solved.stopped_by or "tolerance"] += 1
        return dict(sorted(found.items()))

    @property
    def bound_methods(self) -> dict[str, int]:
        """Moments by who proved their bound."""
        return dict(sorted(Counter(row.bound_method for row in self.rows).items()))

    def worst(self, most: int) -> tuple[GapRow, ...]:
        """Return the moments of the largest ratios, the earliest of equal ones first."""
        rows = [row for row in self.rows if row.ratio is not None]
        rows.sort(key=lambda row: (-(row.ratio or 0.0), row.moment.from_s))
        return tuple(rows[:most])

    def by_jobs(self) -> tuple[tuple[int, int, GapTotals], ...]:
        """Return (least jobs, most jobs, totals) by number of jobs present: 1, 2, 3-4, 5-8, ...

        Moments without jobs come first, where the policy pays in some.
        """
        classes: dict[int, list[GapRow]] = {}
        for row in self.rows:
            classes.setdefault((row.n_jobs - 1).bit_length(), []).append(row)
        late = ((0, 0, GapTotals.of(self.late)),) if self.late else ()
        return late + tuple(
            ((1 << k - 1) + 1 if k else 1, 1 << k, GapTotals.of(rows))
            for k, rows in sorted(classes.items())
        )

    def plan_at(self, row: GapRow) -> Plan | None:
        """Return the plan found for a moment, checked; ``None`` when it was not solved."""
        if row.solved is None:
            return None
        snapshot = _snapshot(self.replayed, self.trace.jobs, row.moment.jobs)
        return plan_of(snapshot, row.solved.groups, "gap")


def optimality_gap(  # noqa: PLR0913 - one argument per question of the command
    trace: Trace | JobTable,
    *,
    policy: str = "weave",
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    placer: PlacerParams = _PLACER,
    repack: RepackParams = _REPACK,
    durations: Convention = "wallclock",
    time_limit_per_snapshot_s: float | None = 10.0,
    tolerance: float = 0.0,
    seed: int = 0,
    processes: int | None = 1,
    resume: Path | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] | None = None,
) -> GapReport:
    """Replay a trace and hold every moment against the least cost of its jobs.

    Parameters
    ----------
    trace : Trace or JobTable
        From :func:`read_trace`, or jobs made in Python.
    policy : str
        ``weave``, ``repack`` or ``solo``.
    cluster, limits, placer, repack
        GPUs and prices, limits of one group, how weave places, when ``repack`` moves jobs.
    durations : {"wallclock", "work"}
        Convention of the replay (module docstring).
    time_limit_per_snapshot_s : float, optional
        A snapshot not proved by then keeps the best plan and bound.
    tolerance : float
        A plan within this relative distance of its bound is not improved any more.
    seed : int
        Of solvers.
    processes : int, optional
        1: in this process; ``None``: one per processor. They are spawned, so a script that asks
        for more than one needs the usual ``if __name__ == "__main__":``.
    resume : Path, optional
        Store of finished snapshots, read and added to.
    progress : callable, optional
        Called with (label, done, total).
    clock : callable, optional
        Seconds from an arbitrary origin; given, steps are timed.

    Returns
    -------
    GapReport
        At Ctrl-C what is known by then, ``interrupted``.

    Raises
    ------
    InputError
        For an option out of its range, or a store that is none.
    InfeasibleError
        When a job cannot run even alone.
    CheckError
        When a plan breaks a rule: a fault of the program.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> report = optimality_gap(read_trace(catalog_path("tiny-open-shop")), policy="solo")
    >>> report.ratio, report.n_proved == len(report.rows)
    (2.0, True)
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    _require(policy, durations, tolerance, processes)
    effort = Effort(time_limit_s=time_limit_per_snapshot_s, tolerance=tolerance, seed=seed)
    SolveOptions(time_limit_s=effort.time_limit_s, seed=seed)  # raises for numbers out of range
    timed = _Timer(clock)
    with contextlib.ExitStack() as stack:
        store = None if resume is None else stack.enter_context(Store(resume))
        options = PolicyOptions(
            cluster=cluster, limits=limits, placer=placer, seed=seed, repack=repack
        )
        result = replay(trace.jobs, policy, options, convention=durations, progress=_told(progress))
        timed("replay")
        replayed = Replayed(
            jobs=tuple(trace.jobs),
            cluster=cluster,
            limits=limits,
            placer=None if policy == "solo" else placer,
            effort=effort,
        )
        moments, without_jobs = _parted(moments_of(result))
        book = _Book(
            replayed,
            trace.jobs,
            [moment.jobs for moment in moments],
            store,
            moves=not result.pins_fixed,
        )
        timed("read")
        wanted = cpus() if processes is None else processes
        interrupted = book.solve(wanted, progress)
        timed("solve")
    with Interrupt() as late:  # what is known is reported, however late Ctrl-C comes
        rows = book.rows(moments)
    return GapReport(
        trace=trace,
        policy=policy,
        replayed=replayed,
        result=result.without_plan(),
        rows=rows,
        late=tuple(_late_row(moment) for moment in without_jobs),
        repack=repack if policy == "repack" else None,
        distinct=len(book.links),
        read=book.read,
        interrupted=interrupted or late.hit,
        seconds=timed.seconds,
    )


def _require(policy: str, durations: str, tolerance: float, processes: int | None) -> None:
    require_policy(policy)
    if policy not in POLICIES_WITH_BOUND:
        raise InputError(
            f"Expected policy in {', '.join(POLICIES_WITH_BOUND)}, got '{policy}': no "
            "other is held against the bound."
        )
    require_convention(durations)
    if not (0 <= tolerance < 1 and isfinite(tolerance)):
        raise InputError(f"Expected tolerance >= 0 and < 1, got {tolerance!r}.")
    if processes is not None and processes < 1:
        raise InputError(f"Expected processes >= 1, got {processes!r}.")


def _parted(moments: Sequence[Moment]) -> tuple[list[Moment], list[Moment]]:
    """Return the moments with jobs, and those without in which something is paid."""
    with_jobs = [moment for moment in moments if moment.jobs]
    return with_jobs, [m for m in moments if not m.jobs and m.usd_per_hour > 0]


def _late_row(moment: Moment) -> GapRow:
    """Return the row of a moment without jobs: nobody needs a node."""
    return GapRow(
        moment=moment,
        policy_usd=moment.usd_per_hour,
        replanned_usd=0.0,
        held_usd=0.0,
        bound_usd=0.0,
        bound_method=VOLUME,
        solved=None,
    )


def _told(progress: Progress | None) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress("replay", done, total)


class _Timer:
    """Seconds by step, when there is a clock."""

    def __init__(self, clock: Callable[[], float] | None) -> None:
        self._clock = clock
        self._since = clock() if clock else 0.0
        self.seconds: dict[str, float] = {}

    def __call__(self, step: str) -> None:
        """End a step."""
        if self._clock:
            now = self._clock()
            self.seconds[step], self._since = now - self._since, now


def _snapshot(replayed: Replayed, table: JobTable, jobs: Sequence[int]) -> Snapshot:
    return Snapshot(table=table.take(jobs), cluster=replayed.cluster, limits=replayed.limits)


class _Book:
    """The distinct snapshots of a replay, and what is known of each.

    Of a policy that ``moves`` jobs, the plan held is what it would make anew.
    """

    def __init__(
        self,
        replayed: Replayed,
        table: JobTable,
        snapshots: Sequence[tuple[int, ...]],
        store: Store | None,
        *,
        moves: bool,
    ) -> None:
        self._moves = moves
        self._replayed, self._table, self._store = replayed, table, store
        self._keys = Keys(replayed)
        self._solo = np.array([solo_usd(job, replayed.cluster) for job in replayed.jobs])
        self._number: dict[str, int] = {}
        self._key: list[str] = []
        self.links: list[Link] = []
        self._of: list[int] = []
        for jobs in snapshots:
            key = self._keys.of(jobs)
            if key not in self._number:
                self._number[key] = len(self.links)
                self._key.append(key)
                self.links.append(self._stored(Link(number=len(self.links), jobs=jobs), key))
            self._of.append(self._number[key])
        self.read = sum(link.solved is not None for link in self.links)

    # --- the store ----------------------------------------------------------------------------

    def _stored(self, link: Link, key: str) -> Link:
        """Return the link with what the store knows of it, its plan checked anew."""
        if self._store is None:
            return link
        solved = self._store.solved(key, self._keys)
        if solved is not None:
            snapshot = _snapshot(self._replayed, self._table, link.jobs)
            usd = plan_of(snapshot, solved.groups, "gap").usd_total
            if abs(usd - solved.usd_per_hour) > OPTIMALITY_REL * usd:
                raise InputError(
                    f"Expected the stored plan of {len(link.jobs)} jobs to cost "
                    f"${solved.usd_per_hour:,.2f}/h, got ${usd:,.2f}/h: remove the store."
                )
        usd_again = self._store.replanned_usd(key, self._keys)
        return dataclasses.replace(link, solved=solved, replanned_usd=usd_again)

    def _keep(self, link: Link) -> None:
        """Put down what is known now."""
        before, key = self.links[link.number], self._key[link.number]
        if self._store is not None:
            if before.replanned_usd is None and link.replanned_usd is not None:
                self._store.put_replanned(key, self._keys, link.replanned_usd)
            if before.solved is None and link.solved is not None:
                self._store.put_solved(key, self._keys, link.solved)
        self.links[link.number] = link

    # --- work ---------------------------------------------------------------------------------

    def solve(self, processes: int, progress: Progress | None) -> bool:
        """Solve what is not known; return whether Ctrl-C ended it."""
        chains = [self.links[at : at + CHAIN] for at in range(0, len(self.links), CHAIN)]
        open_ = [[link for link in chain if _is_open(link)] for chain in chains]
        done, total = len(self.links) - sum(map(len, open_)), len(self.links)
        left = [chain for chain, some in zip(chains, open_, strict=True) if some]
        with CtrlC() as ctrl_c:
            try:
                if progress is not None:
                    progress("snapshots", done, total)
                with contextlib.closing(solved_links(self._replayed, left, processes)) as links:
                    for link in links:
                        self._keep(link)
                        done += 1
                        if progress is not None:
                            progress("snapshots", done, total)
                        ctrl_c.check()  # a solver that was finishing may have taken it
            except KeyboardInterrupt:
                return True
            return ctrl_c.pressed

    # --- the outcome --------------------------------------------------------------------------

    def rows(self, moments: Sequence[Moment]) -> tuple[GapRow, ...]:
        """Return the moments with all that is known, by their neighbours included."""
        settled = [self._settled(link) for link in self.links]
        return tuple(
            self._row(moment, self.links[number], *settled[number])
            for moment, number in zip(moments, self._of, strict=True)
        )

    def _row(
        self, moment: Moment, link: Link, solved: Solved | None, bound: tuple[float, str]
    ) -> GapRow:
        policy = moment.usd_per_hour
        held = replanned = policy
        if solved is not None:
            assert link.replanned_usd is not None
            held = min(solved.usd_per_hour, policy)
            replanned = held if self._moves else link.replanned_usd
        bound_usd, bound_method = bound
        if bound_usd > held * (1 + OPTIMALITY_REL):
            raise FleetPlannerError(
                f"The bound ${bound_usd:,.6f}/h exceeds the cost ${held:,.6f}/h of a valid plan "
                f"at {moment.from_s:.1f} s: a fault of the program, not of the input."
            )
        return GapRow(
            moment=moment,
            policy_usd=policy,
            replanned_usd=replanned,
            held_usd=held,
            bound_usd=min(bound_usd, held),
            bound_method=bound_method,
            solved=solved,
        )

    def _settled(self, link: Link) -> tuple[Solved | None, tuple[float, str]]:
        """Return what is known of a snapshot in the end, and the best bound and whose it is."""
        solved = link.solved
        if solved is not None and solved.proved:
            return solved, (solved.bound_usd_per_hour, solved.bound_method)
        snapshot = _snapshot(self._replayed, self._table, link.jobs)
        weak = volume(snapshot.table, snapshot.cluster, snapshot.limits)
        bound = weak.usd_per_hour, weak.method
        first = max(link.number - _WINDOW, 0)
        others = self.links[first : link.number + _WINDOW + 1]
        gone = self._present[first : first + len(others)] & ~self._present[link.number]
        for other, gone_usd in zip(others, (gone @ self._solo).tolist(), strict=True):
            if other.solved is None:
                continue
            usd = other.solved.bound_usd_per_hour - gone_usd
            if usd > bound[0]:
                bound = usd, other.solved.bound_method
            if solved is not None:
                groups, alone = carried_over(other.solved.groups, other.jobs, link.jobs)
                groups += [solo_group(snapshot, job) for job in alone]
                usd = usd_of(snapshot, groups)
                if usd < solved.usd_per_hour * (1 - 1e-12):
                    solved = dataclasses.replace(solved, usd_per_hour=usd, groups=tuple(groups))
        return solved, bound

    @cached_property
    def _present(self) -> npt.NDArray[np.bool_]:
        """Who is in each snapshot, ``(snapshots, jobs)``."""
        out = np.zeros((len(self.links), len(self._solo)), dtype=np.bool_)
        for link in self.links:
            out[link.number, list(link.jobs)] = True
        return out


def _is_open(link: Link) -> bool:
    return link.solved is None or link.replanned_usd is None
