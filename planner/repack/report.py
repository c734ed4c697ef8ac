"""The dry run of ``planner repack``: which moves pay at this moment, what each earns, and why not.

Nothing is made here: the fleet after the changes is built as a snapshot plan, checked by the
independent checker, and priced anew from its pins. Beside it stands the least price of the jobs
present, proven from scratch, whatever moves that would take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite
from typing import Final

from instances.errors import CheckError, InputError
from instances.plan import SNAPSHOT_HOURS, Plan
from models.bounds.volume import VOLUME, volume
from models.problem.options import Clock, Progress, SolveOptions
from models.problem.result import StoppedBy, proved, ratio_of
from planner.placement.checked_plan import dedicated_of, require_rules
from planner.placement.group_state import GroupState
from planner.policies.repack_params import RepackParams
from planner.repack.dry_run import Asker, Move, ProposedChange
from planner.repack.running_plan import Reason, RunningPlan
from planner.replay.moment import Selection
from planner.snapshot.solving import solve_snapshot

__all__ = [
    "EXACT_JOBS",
    "EXACT_S",
    "SEARCH_S",
    "Least",
    "RepackReport",
    "repack_report",
    "snapshot_plan_of",
]

#: Seconds for the search for moves where none are given.
SEARCH_S: Final = 60.0
#: Most jobs whose least price is proven exactly where no seconds are given, and those seconds.
EXACT_JOBS: Final = 41
EXACT_S: Final = 30.0
_SECONDS: Final = SNAPSHOT_HOURS * 3600.0


@dataclass(frozen=True, kw_only=True)
class Least:
    """What is proven about the least price of the jobs present, dedicated nodes included.

    Attributes
    ----------
    usd_per_hour : float or None
        Price of the cheapest plan that the proof has found, $/h.
    bound_usd_per_hour : float or None
        No valid plan within the limits costs less, $/h.
    proved : bool
        Whether the two are the same.
    stopped_by : StoppedBy or None
        What ended the proof early: another run may prove more or less.
    """

    usd_per_hour: float | None
    bound_usd_per_hour: float | None
    method: str | None
    proved: bool
    stopped_by: StoppedBy | None = None
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class RepackReport:
    """The answer of a dry run.

    Attributes
    ----------
    params : RepackParams
    most_moves : int or None
        Most moves of all changes together.
    seed : int
    time_limit_s : float or None
        Of the search for moves, and again of the proof of the least price, as asked for.
    changes : tuple of ProposedChange
        Those that pay; the largest net gain first, but each after those it needs.
    nearest : ProposedChange or None
        Where none pays: the change that would, if its saving lasted longer or more moves were
        allowed, after the fewest hours that were looked at.
    immovable : mapping of str to str
        Why each job that may not move may not, in the plan's order.
    lasting_h : float or None
        Hours that every saving is taken to last; ``None`` where each has its own.
    plan : Plan
        The fleet after the changes as a snapshot plan, checked.
    usd_per_hour_before, usd_per_hour_after : float
        Of all nodes, dedicated ones included.
    searches_cut_short : int
        Searches for ``changes`` that ended before they had proved their answer: there may be
        changes that earn more.
    searches_at_limit : int
        Those of them that a fixed limit of work ended: no more time and no other run changes that.
    stopped : bool
        Whether time was up, or Ctrl-C came, before the whole fleet was looked at.
    nearest_cut_short : bool
        Whether the search for ``nearest`` ended early without finding it.
    interrupted : bool
        Whether Ctrl-C came at any time; what was found and proven by then is there.
    seconds : float or None
        Of the whole dry run, when a clock was given.
    """

    running: RunningPlan
    params: RepackParams
    most_moves: int | None
    seed: int
    time_limit_s: float | None
    changes: tuple[ProposedChange, ...]
    nearest: ProposedChange | None
    immovable: Mapping[str, Reason]
    lasting_h: float | None
    plan: Plan
    usd_per_hour_before: float
    usd_per_hour_after: float
    least: Least
    searches_cut_short: int = 0
    searches_at_limit: int = 0
    stopped: bool = False
    nearest_cut_short: bool = False
    interrupted: bool = False
    seconds: float | None = None

    @property
    def ended_early(self) -> bool:
        """Whether time or Ctrl-C ended the search for moves: another run may find others."""
        return self.searches_cut_short > self.searches_at_limit or self.stopped

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, change by change."""
        return tuple(move for change in self.changes for move in change.moves)

    @property
    def hours_lost(self) -> float:
        """Hours without progress, summed over the moved jobs."""
        return fsum(move.restart_s for move in self.moves) / 3600.0

    @property
    def jobs_in_groups(self) -> int:
        """Jobs that share, or could."""
        return sum(len(state.jobs) for state in self.running.groups)

    @property
    def nodes_before(self) -> dict[str, int]:
        """Nodes now by pool, dedicated ones included."""
        held = self.running.dedicated_nodes
        groups = self.running.groups
        return {
            "rollout": held["rollout"] + sum(len(state.rollout_nodes) for state in groups),
            "train": held["train"] + sum(len(state.train_nodes) for state in groups),
        }

    @property
    def nodes_after(self) -> dict[str, int]:
        """Nodes after the changes by pool, dedicated ones included."""
        held, groups = self.running.dedicated_nodes, self.plan.groups
        return {
            "rollout": held["rollout"] + sum(len(group.rollout_nodes) for group in groups),
            "train": held["train"] + sum(len(group.train_nodes) for group in groups),
        }


def repack_report(
    running: RunningPlan,
    *,
    params: RepackParams | None = None,
    most_moves: int | None = None,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> RepackReport:
    """Return the changes that pay at this moment, without making them.

    Parameters
    ----------
    params : RepackParams, optional
        When a change pays, and which jobs may move. ``moves_per_job`` and ``review_h`` are of
        replays, and not used.
    most_moves : int, optional
        Most moves of all changes together.
    seed : int
        Of solvers.
    time_limit_s : float, optional
        Of the search for moves, and again of the proof of the least price. Without it the search
        gets 60 seconds, and the proof 30 seconds of the exact methods up to 41 jobs, beyond only
        the volume bound.
    progress : callable, optional
        Called with (label, done, total).
    clock : callable, optional
        Seconds from an arbitrary origin; given, the run is timed.

    Raises
    ------
    InputError
        When the rule needs what the plan does not tell.
    CheckError
        When the fleet after the changes breaks a rule: a fault of the program.
    """
    began = clock() if clock else 0.0
    params = RepackParams() if params is None else params
    _require_told(running, params)
    params = replace(params, review_h=None)
    limits = SolveOptions(time_limit_s=SEARCH_S if time_limit_s is None else time_limit_s)
    asker = Asker(running, params, seed, limits.start())
    answer = asker.ask(params, most_moves, progress)
    if progress is not None:
        progress("least price", 0, 1)
    least = _least(running, time_limit_s, seed, exact=not asker.interrupted)
    if progress is not None:
        progress("least price", 1, 1)
    before_usd = _usd(running, running.groups)
    cut_short, at_limit, stopped = (
        asker.searches_cut_short, asker.searches_at_limit, asker.stopped or asker.interrupted
    )  # fmt: skip
    nearest, immovable = None, asker.immovable()
    some = len(immovable) < sum(len(state.jobs) for state in running.groups)
    if some and not answer.changes and not proved(before_usd, least.bound_usd_per_hour):
        nearest = asker.nearest(progress)
    names = _names(running, answer.changes)
    plan = snapshot_plan_of(running, answer.groups, names)
    savings = fsum(change.saving_usd_per_hour for change in answer.changes)
    _compare(before_usd - savings, plan.usd_total)
    ratio_of(plan.usd_total, least.bound_usd_per_hour)  # raises when the bound is above the cost
    return RepackReport(
        running=running,
        params=params,
        most_moves=most_moves,
        seed=seed,
        time_limit_s=time_limit_s,
        changes=tuple(_named(change, names) for change in answer.changes),
        nearest=None if nearest is None else _named(nearest, _names(running, [nearest])),
        immovable=immovable,
        lasting_h=asker.lasting_h,
        plan=plan,
        usd_per_hour_before=before_usd,
        usd_per_hour_after=plan.usd_total,
        least=least,
        searches_cut_short=cut_short,
        searches_at_limit=at_limit,
        stopped=stopped,
        nearest_cut_short=nearest is None
        and (asker.stopped or asker.interrupted or asker.searches_cut_short > cut_short),
        interrupted=asker.interrupted or least.interrupted,
        seconds=clock() - began if clock else None,
    )


def _require_told(running: RunningPlan, params: RepackParams) -> None:
    """Refuse a rule that needs what the plan does not tell."""
    if not running.is_snapshot or params.lasting_h is not None:
        return
    if params.oracle == "remaining" and running.ledger.remaining_s is None:
        raise InputError(
            "Expected --progress with a column remaining_s for --oracle remaining: a snapshot "
            "plan does not tell when its jobs leave."
        )
    if params.oracle == "none" and params.rule == "break-even":
        raise InputError(
            "Expected --repack-rule residual or --lasting-hours with a snapshot plan, got "
            "break-even: the plan does not tell since when its groups run unchanged."
        )


def _names(running: RunningPlan, changes: Sequence[ProposedChange]) -> dict[int, str]:
    """Return the names of the groups that run, and of those that the changes make."""
    old = {state.number: running.names[state.number] for state in running.groups}
    made = {state.number for change in changes for state in change.after}
    return old | running.new_names(made - set(old))


def _named(change: ProposedChange, names: Mapping[int, str]) -> ProposedChange:
    """Return a change with the names of its groups that the plan uses."""
    states = (*change.before, *change.after)
    own = {state.group_id: names[state.number] for state in states}
    moves = tuple(
        replace(m, from_group=own[m.from_group], to_group=own[m.to_group]) for m in change.moves
    )
    return replace(
        change, moves=moves, names={state.number: names[state.number] for state in states}
    )


# --- the fleet after the changes ------------------------------------------------------------------


def snapshot_plan_of(
    running: RunningPlan, states: Sequence[GroupState], names: Mapping[int, str]
) -> Plan:
    """Return these groups and the dedicated nodes as a snapshot plan, checked.

    Raises
    ------
    CheckError
        When it breaks a rule: a fault of the program.
    """
    cluster = running.plan.cluster
    plan = Plan(
        policy="repack",
        durations="snapshot",
        cluster=cluster,
        jobs=running.jobs,
        limits=running.plan.limits,
        groups=tuple(
            replace(state.version(0.0, _SECONDS), group_id=names[state.number]) for state in states
        ),
        usd_total=SNAPSHOT_HOURS * _usd(running, states),
        dedicated=dedicated_of(running.dedicated),
        pins_fixed=False,
    )
    report = require_rules(plan, "The plan after the moves")
    _compare(report.usd_total_recomputed, plan.usd_total)
    return plan


def _usd(running: RunningPlan, states: Sequence[GroupState]) -> float:
    """Return the price of these groups and the dedicated nodes, $/h."""
    held = running.dedicated_nodes
    return running.plan.cluster.usd_per_hour(
        held["rollout"] + sum(len(state.rollout_nodes) for state in states),
        held["train"] + sum(len(state.train_nodes) for state in states),
    )


def _dedicated_usd(running: RunningPlan) -> float:
    held = running.dedicated_nodes
    return running.plan.cluster.usd_per_hour(held["rollout"], held["train"])


def _compare(derived: float, usd: float) -> None:
    """Require two derivations of the price after the moves to agree."""
    if not (isfinite(derived) and abs(derived - usd) <= 1e-6 * max(abs(usd), 1.0)):
        raise CheckError(
            f"The plan after the moves costs ${usd:,.6f}/h by its pins and ${derived:,.6f}/h by "
            "its changes: a fault of the program, not of the input."
        )


# --- the least price ------------------------------------------------------------------------------


def _least(running: RunningPlan, time_limit_s: float | None, seed: int, *, exact: bool) -> Least:
    """Return what can be proven about the least price of the jobs present.

    Without ``exact``, and of many jobs where no time is given, that is the volume bound.
    """
    plan = running.plan
    n = len(running.jobs.where_sharing())
    if not exact or (n > EXACT_JOBS and time_limit_s is None):
        sync = running.jobs.take(running.jobs.where_sharing())
        weak = volume(sync, plan.cluster, plan.limits).usd_per_hour + _dedicated_usd(running)
        return Least(usd_per_hour=None, bound_usd_per_hour=weak, method=VOLUME, proved=False)
    found = solve_snapshot(
        running.jobs,
        select=Selection.all_jobs(),
        cluster=plan.cluster,
        limits=plan.limits,
        time_limit_s=EXACT_S if time_limit_s is None else time_limit_s,
        seed=seed,
    )
    usd, bound = found.usd_per_hour, found.bound_usd_per_hour
    done = proved(usd, bound)
    return Least(
        usd_per_hour=usd,
        bound_usd_per_hour=bound,
        method=found.bound_method,
        proved=done,
        stopped_by=None if done else found.result.stopped_by,
        interrupted=found.interrupted,
    )
