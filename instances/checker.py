"""The independent checker: every rule of a valid plan, and the price, from a plan alone.

It solves nothing and shares no code with any scheduler. :func:`check_plan` checks a whole
plan; :func:`check_group`, from :mod:`instances.group_checker`, one version of one group (the
replay calls it after every event). :mod:`instances.pause_checker` has the rules of pauses and
held nodes, :mod:`instances.loss_checker` those of failures, :mod:`instances.fleet_checker` those of
a fixed fleet. A plan of the right Python types
never raises here, however wrong its values are: whatever is wrong becomes a :class:`Violation`.
``RULES`` says what each rule asks; the function that checks it gives the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isnan, nan
from typing import Final

from instances.fleet_checker import check_fleet, node_levels, starts_of
from instances.group_checker import (
    RULES,
    TOLERANCE_S,
    Log,
    Violation,
    check_group,
    finite_or_inf,
    is_interval,
    iteration_seconds,
    report_unknown_job,
    show,
    slack_seconds,
)
from instances.jobs import JobTable
from instances.loss_checker import Done, Losses
from instances.pause_checker import Pauses, check_held, check_paused_slo
from instances.plan import SNAPSHOT_HOURS, DedicatedNodes, GroupVersion, HeldNodes, Plan

__all__ = [
    "RULES",
    "TOLERANCE_USD_REL",
    "CheckReport",
    "Violation",
    "check_group",
    "check_plan",
    "recost",
]

#: Iterations done in a stay, relative to the job's number of iterations.
TOLERANCE_ITERATIONS_REL: Final = 1e-6
#: Money, relative to the larger of the two sums.
TOLERANCE_USD_REL: Final = 1e-9

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What :func:`check_plan` found.

    Attributes
    ----------
    violations : tuple of Violation
        Every broken rule, empty where the plan is valid.
    counts : dict of str to int
        Violations per broken rule, in the order of ``RULES``; rules that hold are left out.
    n_groups, n_jobs : int
        Group versions checked, and jobs in the plan's table.
    usd_total_recomputed : float
        Price from the intervals, $; not finite when the plan's numbers give none.
    peak_nodes : dict of str to int
        Most nodes that exist at once, ``{"rollout": n, "train": n}``, each pool at its own
        peak, dedicated and held nodes included.
    """

    violations: tuple[Violation, ...]
    counts: dict[str, int]
    n_groups: int
    n_jobs: int
    usd_total_recomputed: float
    peak_nodes: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations


@dataclass(slots=True)
class _Stay:
    """Where one job was: spans ``(from_s, to_s)``, iterations done in groups, and pauses.

    ``done`` is the iterations version by version, for jobs that have lost some.
    """

    spans: list[tuple[float, float]] = field(default_factory=list)
    iterations: float = 0.0
    paused_s: float = 0.0  # of the spans; NaN when a pause is malformed
    dedicated: bool = False
    done: list[Done] = field(default_factory=list)
    broken: bool = False  # a number is malformed and reported: sums over it mean nothing

    def add(self, item: GroupVersion | DedicatedNodes) -> None:
        """Add one span, unless it is malformed."""
        if is_interval(item):
            self.spans.append((item.from_s, item.to_s))
        else:
            self.broken = True


def recost(plan: Plan) -> float:
    """Return the price of all nodes over all intervals, $, from the intervals alone."""
    pools = plan.cluster.rollout, plan.cluster.train
    rollout_usd, train_usd = (
        finite_or_inf(pool.gpus_per_node) * pool.gpu.usd_per_gpu_hour for pool in pools
    )
    return sum(
        (finite_or_inf(rollout) * rollout_usd + finite_or_inf(train) * train_usd)
        * ((to_s - from_s) / _HOUR_S)
        for from_s, to_s, rollout, train in _holdings(plan)
    )


def _holdings(plan: Plan) -> list[tuple[float, float, int, int]]:
    """Return ``(from_s, to_s, rollout nodes, train nodes)``: of groups, dedicated, then held."""
    groups = [(g.from_s, g.to_s, len(g.rollout_nodes), len(g.train_nodes)) for g in plan.groups]
    others: tuple[DedicatedNodes | HeldNodes, ...] = (*plan.dedicated, *plan.held)
    return groups + [(d.from_s, d.to_s, d.rollout_nodes, d.train_nodes) for d in others]


def check_plan(plan: Plan) -> CheckReport:
    """Check every interval of a plan against every rule, and its price.

    Violations come group by group in the plan's order, then starts, then job by job, then pauses,
    losses, held nodes, the fleet and the price.

    Parameters
    ----------
    plan : Plan
        Any plan, valid or not, whoever made it.

    Returns
    -------
    CheckReport
        Every violation by group, job, node and rule; ``ok`` where there is none.
    """
    jobs, log = plan.jobs, Log()
    found: list[Violation] = []
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    if (repeated := len(jobs) - len(index)) > 0:
        text = f"Expected distinct job ids in the plan's table, got {repeated} repeated."
        log.add("coverage", text, repeated, "jobs")
    stays, pauses = {job_id: _Stay() for job_id in index}, Pauses(plan, index)
    losses = Losses(plan, index)
    for group in plan.groups:
        found += check_group(group, jobs, plan.cluster, plan.limits, index=index)
        _follow(group, stays, pauses, losses)
    _check_versions(plan, index, pauses, losses, found)
    for item in plan.dedicated:
        _check_dedicated(item, jobs, index, stays, log)
    starts = starts_of(plan, index, log)
    origin_s = min((span[0] for stay in stays.values() for span in stay.spans), default=0.0)
    for job_id, i in index.items():
        start_s = starts.get(job_id, jobs.arrival_s.item(i))
        if plan.durations == "snapshot":
            start_s = origin_s
        _check_coverage(plan, i, stays[job_id], start_s, losses, log)
        _check_stay(plan, i, stays[job_id], losses.iterations(job_id), log)
        if job_id in pauses:
            _check_paused(plan, i, stays[job_id], pauses, losses, log)
        if job_id in losses:
            _check_lost(plan, i, stays[job_id], pauses, losses)
    log.found += pauses.log.found + losses.log.found + check_held(plan)
    check_fleet(plan, _holdings(plan), log)
    usd = recost(plan)
    slack = TOLERANCE_USD_REL * max(abs(plan.usd_total), abs(usd))
    if not (isfinite(usd) and abs(plan.usd_total - usd) <= slack):
        words = "high" if plan.usd_total > usd else "low"
        log.off("cost", "usd_total =", usd, plan.usd_total, "$", words)
    found += log.found
    counts = {rule: sum(v.rule == rule for v in found) for rule in RULES}
    return CheckReport(
        violations=tuple(found),
        counts={rule: n for rule, n in counts.items() if n},
        n_groups=len(plan.groups),
        n_jobs=len(jobs),
        usd_total_recomputed=usd,
        peak_nodes=_peak_nodes(plan),
    )


def _follow(group: GroupVersion, stays: dict[str, _Stay], pauses: Pauses, losses: Losses) -> None:
    """Add one version to the stays of its jobs: each job once, and the iterations it does.

    Only the seconds outside the job's pauses count: ``(to_s - from_s - paused) / C_g * k_j``.
    """
    for placement in {p.job_id: p for p in group.placements}.values():
        stay = stays.get(placement.job_id)
        if stay is None:
            continue
        stay.add(group)
        if group.period_s > 0 and placement.rate >= 1:
            run_s = group.to_s - group.from_s
            if placement.job_id in pauses:
                paused_s = pauses.seconds(placement.job_id, group.from_s, group.to_s)
                stay.paused_s += paused_s
                run_s -= paused_s
            iterations = run_s / group.period_s * finite_or_inf(placement.rate)
            stay.iterations += iterations
            if placement.job_id in losses:
                stay.done.append(Done(group.from_s, group.to_s, iterations))
        else:
            stay.broken = True


def _check_versions(
    plan: Plan,
    index: Mapping[str, int],
    pauses: Pauses,
    losses: Losses,
    found: list[Violation],
) -> None:
    """One version of a group at a time; jobs keep group and pins, or else pause for the move."""
    seen_s: dict[str, float] = {}  # until when each job has been followed
    followed = plan.pins_fixed or plan.durations != "snapshot"
    ends_s: dict[str, float] = {}
    homes: dict[str, tuple[str, frozenset[int], frozenset[int]]] = {}
    for group in sorted(filter(is_interval, plan.groups), key=lambda g: g.from_s):
        log = Log(group)
        end_s = ends_s.get(group.group_id, -inf)
        if (both_s := min(end_s, group.to_s) - group.from_s) > TOLERANCE_S:
            text = (
                f"Expected one version of {log.where} at a time, got two from "
                f"{show(group.from_s)} to {show(group.from_s + both_s)} s."
            )
            log.add("pins", text, both_s, "s")
        ends_s[group.group_id] = max(end_s, group.to_s)
        for p in group.placements if followed else ():
            new = (group.group_id, frozenset(p.rollout_pins), frozenset(p.train_pins))
            old = homes.get(p.job_id, new)
            homes[p.job_id] = new
            ended_s, seen_s[p.job_id] = seen_s.get(p.job_id, group.from_s), group.to_s
            if new == old:
                continue
            if losses:
                losses.check_move(p.job_id, ended_s, log)
            if plan.pins_fixed:
                _report_move(p.job_id, old, new, log)
            elif p.job_id in index:
                pauses.check_move(index[p.job_id], group, log)
        found += log.found


def _report_move(
    job_id: str,
    old: tuple[str, frozenset[int], frozenset[int]],
    new: tuple[str, frozenset[int], frozenset[int]],
    log: Log,
) -> None:
    """Name a job's change of group, or else each pool whose pins changed."""
    if new[0] != old[0]:
        text = f"Expected job '{job_id}' to stay in group '{old[0]}', got it in {log.where}."
        log.add("pins", text, 1, "groups", job_id)
        return
    for pool, was, now in (("rollout", old[1], new[1]), ("train", old[2], new[2])):
        if changed := sorted(now ^ was):
            text = (
                f"Expected {pool} pins of job '{job_id}' in {log.where} to stay {sorted(was)}, "
                f"got {sorted(now)}."
            )
            log.add("pins", text, len(changed), "pins", job_id, f"{pool} {changed[0]}")


def _check_dedicated(
    item: DedicatedNodes,
    jobs: JobTable,
    index: Mapping[str, int],
    stays: dict[str, _Stay],
    log: Log,
) -> None:
    """Dedicated nodes hold one async job, on exactly its own node counts."""
    job_id = item.job_id
    if not is_interval(item):
        where = f"dedicated nodes of job '{job_id}'"
        text = f"Expected finite from_s < to_s of {where}, got {item.from_s}, {item.to_s}."
        log.add("format", text, item.from_s - item.to_s, "s", job_id)
    i = index.get(job_id)
    if i is None:
        report_unknown_job(job_id, log)
        return
    stays[job_id].dedicated = True
    stays[job_id].add(item)
    if (mode := jobs.mode[i]) != "async":
        text = f"Expected mode async of job '{job_id}' on dedicated nodes, got {mode}."
        log.add("mode", text, 1, "jobs", job_id)
    for pool, got, width in (
        ("rollout", item.rollout_nodes, jobs.rollout_nodes.item(i)),
        ("train", item.train_nodes, jobs.train_nodes.item(i)),
    ):
        if got != width:
            words = "many" if got > width else "few"
            what = f"dedicated {pool} nodes of job '{job_id}' ="
            log.off("mode", what, width, got, "nodes", words, job_id)


def _check_coverage(
    plan: Plan, i: int, stay: _Stay, start_s: float, losses: Losses, log: Log
) -> None:
    """The spans of one job join, from its start on (in a snapshot: over its whole hour).

    A job that has failed may wait until it is back: a gap from a loss on is none.
    """
    job_id, snapshot = plan.jobs.job_id[i], plan.durations == "snapshot"
    name = f"job '{job_id}'"
    if not stay.spans and not stay.broken:
        log.add("coverage", f"Expected {name} in the plan, got it nowhere.", 1, "jobs", job_id)
    if not stay.spans or stay.broken:
        return
    spans = sorted(stay.spans)
    end_s = spans[0][0]
    if not abs(end_s - start_s) <= TOLERANCE_S:
        words = "late" if end_s > start_s else "early"
        log.off("coverage", f"start of {name} =", start_s, end_s, "s", words, job_id)
    for from_s, to_s in spans:
        if from_s > end_s + TOLERANCE_S and not losses.is_gap(job_id, end_s, from_s):
            text = f"Expected {name} without a gap, got {show(end_s)} to {show(from_s)} s."
            log.add("coverage", text, from_s - end_s, "s", job_id)
        elif (twice_s := min(end_s, to_s) - from_s) > TOLERANCE_S:
            until = show(from_s + twice_s)
            text = f"Expected {name} once at a time, got it twice, {show(from_s)} to {until} s."
            log.add("coverage", text, twice_s, "s", job_id)
        end_s = max(end_s, to_s)
    least_s = start_s + SNAPSHOT_HOURS * _HOUR_S
    if snapshot and abs(end_s - least_s) > TOLERANCE_S:
        words = "late" if end_s > least_s else "early"
        log.off("coverage", f"end of {name} (snapshot) =", least_s, end_s, "s", words, job_id)


def _check_stay(plan: Plan, i: int, stay: _Stay, lost: float, log: Log) -> None:
    """Iterations done (work) or seconds spent (wallclock) are the job's; async: seconds.

    work: ``sum of (to_s - from_s - paused) / C_g * k_j - lost = duration_s / T_j`` over the job's
    versions. wallclock: ``sum of (to_s - from_s) = duration_s + paused``.
    """
    jobs, mode = plan.jobs, plan.jobs.mode[i]
    refused = stay.dedicated != (mode == "async")
    unknown = stay.broken or isnan(stay.paused_s) or isnan(lost) or not stay.spans
    if plan.durations == "snapshot" or refused or unknown:
        return
    duration_s = jobs.duration_s.item(i)
    if mode != "async" and plan.durations == "work":
        phases_s = jobs.rollout_s.item(i), jobs.train_s.item(i), jobs.sync_s.item(i)
        solo_s = iteration_seconds(mode, *phases_s)
        want, unit = duration_s / solo_s if solo_s > 0 else nan, "iterations"
        got, slack = stay.iterations - lost, TOLERANCE_ITERATIONS_REL * (want + lost)
    else:
        want, unit = duration_s + stay.paused_s, "s"
        got, slack = sum(to_s - from_s for from_s, to_s in stay.spans), slack_seconds(duration_s)
    if not (isfinite(want) and abs(got - want) <= slack):
        words = "many" if got > want else "few"
        rule = "mode" if mode == "async" else "stay"
        log.off(rule, f"stay of job '{jobs.job_id[i]}' =", want, got, unit, words, jobs.job_id[i])


def _check_paused(
    plan: Plan, i: int, stay: _Stay, pauses: Pauses, losses: Losses, log: Log
) -> None:
    """The pauses of one job: within its stay, and within its SLO, restarts after losses apart."""
    if stay.broken or not stay.spans:
        return
    pauses.check_stay(plan.jobs.job_id[i], stay.spans)
    if not isnan(stay.paused_s):
        elapsed_s = sum(to_s - from_s for from_s, to_s in stay.spans)
        elapsed_s -= losses.restarts_s(plan.jobs.job_id[i], pauses)
        check_paused_slo(plan.jobs, i, elapsed_s, stay.iterations, log)


def _check_lost(plan: Plan, i: int, stay: _Stay, pauses: Pauses, losses: Losses) -> None:
    """The losses of one job, within its stay."""
    if stay.broken or not stay.spans or isnan(stay.paused_s):
        return
    slack = TOLERANCE_ITERATIONS_REL * max(1.0, stay.iterations)
    restart_s = plan.jobs.restart_s.item(i)
    losses.check_stay(plan.jobs.job_id[i], restart_s, stay.done, pauses, slack)


def _peak_nodes(plan: Plan) -> dict[str, int]:
    """Return the most nodes of each pool that exist at once."""
    levels = list(node_levels(_holdings(plan)))
    return {
        "rollout": max((rollout for _, rollout, _ in levels), default=0),
        "train": max((train for _, _, train in levels), default=0),
    }
