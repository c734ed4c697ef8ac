"""The independent checker's half for restarts: pauses, the moves they pay for, and held nodes.

A *move* is a change of a running job's group or pins between two of its consecutive versions.
Where a plan may move jobs (``pins_fixed`` false), each move starts a pause of at least the
job's ``restart_s``, or up to the job's next loss. A pause without a move is allowed. Pauses are
kept per job, in order of time: :mod:`instances.checker` asks for the paused seconds of each
version of a job.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf, nan
from typing import Final

from instances.group_checker import (
    TOLERANCE_S,
    TOLERANCE_S_REL,
    Log,
    Violation,
    finite_or_inf,
    is_interval,
    iteration_seconds,
    show,
)
from instances.jobs import JobTable
from instances.plan import GroupVersion, HeldNodes, Pause, Plan

__all__ = ["Pauses", "check_held", "check_paused_slo"]

Span = tuple[float, float]


class Pauses:
    """The pauses of a plan by job, in order of time; what is wrong with them is in ``log``.

    A snapshot has none: it is one moment. A job with a malformed pause is ``broken``: its
    paused seconds are unknown (NaN), and no more is asked of it.
    """

    __slots__ = ("_broken", "_cuts", "_jobs", "_spans", "_union", "log")

    def __init__(self, plan: Plan, index: Mapping[str, int]) -> None:
        self.log: Final = Log()
        self._jobs = plan.jobs
        self._broken: set[str] = set()
        self._spans: dict[str, list[Span]] = {}
        self._union: dict[str, list[Span]] = {}
        self._cuts: dict[str, list[float]] = {}
        for loss in plan.losses:
            self._cuts.setdefault(loss.job_id, []).append(loss.at_s)
        if plan.durations == "snapshot":
            if n := len(plan.pauses):
                self.log.add("pause", f"Expected no pauses in a snapshot, got {n}.", n, "pauses")
            return
        for pause in plan.pauses:
            self._read(pause, index)
        for job_id, spans in self._spans.items():
            spans.sort()
            self._check_disjoint(job_id, spans)
        self._union = {job_id: _union(spans) for job_id, spans in self._spans.items()}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._spans or job_id in self._broken

    def _read(self, pause: Pause, index: Mapping[str, int]) -> None:
        """A pause is a finite interval of a known job in groups (not async)."""
        job_id = pause.job_id
        if (i := index.get(job_id)) is None:
            text = f"Expected pauses of jobs of the plan's table, got unknown job '{job_id}'."
            self.log.add("pause", text, 1, "jobs", job_id)
            return
        if self._jobs.mode[i] == "async":
            text = f"Expected pauses of jobs in groups, got one of job '{job_id}', async."
            self.log.add("pause", text, 1, "jobs", job_id)
            return
        if is_interval(pause):
            self._spans.setdefault(job_id, []).append((pause.from_s, pause.to_s))
            return
        text = (
            f"Expected finite from_s < to_s of a pause of job '{job_id}', "
            f"got {pause.from_s}, {pause.to_s}."
        )
        self.log.add("pause", text, pause.from_s - pause.to_s, "s", job_id)
        self._broken.add(job_id)

    def _check_disjoint(self, job_id: str, spans: Sequence[Span]) -> None:
        """One pause of a job at a time."""
        end_s = -inf
        for from_s, to_s in spans:
            if (both_s := min(end_s, to_s) - from_s) > TOLERANCE_S:
                text = (
                    f"Expected one pause of job '{job_id}' at a time, got two from "
                    f"{show(from_s)} to {show(from_s + both_s)} s."
                )
                self.log.add("pause", text, both_s, "s", job_id)
            end_s = max(end_s, to_s)

    def seconds(self, job_id: str, from_s: float, to_s: float) -> float:
        """Return the seconds of ``[from_s, to_s)`` that a job is paused."""
        if job_id in self._broken:
            return nan
        spans = self._union.get(job_id)
        return _seconds_inside(spans, from_s, to_s) if spans else 0.0

    def check_stay(self, job_id: str, stay: Iterable[Span]) -> None:
        """Every pause of a job lies within its stay, given by the spans of its versions."""
        if job_id in self._broken:
            return
        stay = _union(stay, TOLERANCE_S)
        for from_s, to_s in self._spans[job_id]:
            outside_s = to_s - from_s - _seconds_inside(stay, from_s, to_s)
            if outside_s > TOLERANCE_S:
                text = (
                    f"Expected pauses of job '{job_id}' within its stay, got {show(from_s)} to "
                    f"{show(to_s)} s ({show(outside_s)} s outside)."
                )
                self.log.add("pause", text, outside_s, "s", job_id)

    def check_move(self, i: int, group: GroupVersion, log: Log) -> None:
        """A job that moves to ``group`` pauses from then on: ``to_s - from_s >= restart_s``."""
        job_id, need_s, at_s = self._jobs.job_id[i], self._jobs.restart_s.item(i), group.from_s
        if job_id in self._broken:
            return
        if not need_s >= 0:
            text = f"Expected restart_s >= 0 of job '{job_id}', got {show(need_s)}."
            log.add("pause", text, -need_s, "s", job_id)
            return
        got_s, cut = self.restart(job_id, at_s)
        if got_s < need_s - TOLERANCE_S and not cut:
            what = f"pause of job '{job_id}', moved to {log.where} at {show(at_s)} s, >="
            log.off("pause", what, need_s, got_s, "s", "short", job_id)

    def restart(self, job_id: str, at_s: float) -> tuple[float, bool]:
        """Return the seconds of the job's pause that starts at a moment; 0: there is none.

        And whether a later loss of the job cuts it short.
        """
        spans = self._spans.get(job_id, ())
        first = bisect_left(spans, at_s - TOLERANCE_S, key=_start)
        last = bisect_right(spans, at_s + TOLERANCE_S, key=_start)
        from_s, to_s = max(spans[first:last], key=_length, default=(at_s, at_s))
        cuts = self._cuts.get(job_id, ())
        cut = any(abs(cut_s - to_s) <= TOLERANCE_S and cut_s > from_s for cut_s in cuts)
        return to_s - from_s, cut

    def is_broken(self, job_id: str) -> bool:
        """Return whether a pause of the job is malformed."""
        return job_id in self._broken


def _length(span: Span) -> float:
    return span[1] - span[0]


def _start(span: Span) -> float:
    return span[0]


def _end(span: Span) -> float:
    return span[1]


def _union(spans: Iterable[Span], slack_s: float = 0.0) -> list[Span]:
    """Return the spans in order, joined where one starts within ``slack_s`` of another."""
    joined: list[Span] = []
    for from_s, to_s in sorted(spans):
        if joined and from_s <= joined[-1][1] + slack_s:
            joined[-1] = (joined[-1][0], max(joined[-1][1], to_s))
        else:
            joined.append((from_s, to_s))
    return joined


def _seconds_inside(spans: Sequence[Span], from_s: float, to_s: float) -> float:
    """Return the seconds of ``[from_s, to_s)`` inside disjoint spans in order of time."""
    inside_s = 0.0
    for start_s, end_s in islice(spans, bisect_right(spans, from_s, key=_end), None):
        if start_s >= to_s:
            break
        inside_s += min(end_s, to_s) - max(start_s, from_s)
    return inside_s


def check_paused_slo(jobs: JobTable, i: int, elapsed_s: float, iterations: float, log: Log) -> None:
    """A job with pauses: seconds of its stay <= slo x iterations done x T_j, pauses counted."""
    slo = jobs.slo.item(i)
    phases_s = jobs.rollout_s.item(i), jobs.train_s.item(i), jobs.sync_s.item(i)
    alone_s = iterations * iteration_seconds(jobs.mode[i], *phases_s)
    limit_s = slo * alone_s
    if elapsed_s <= limit_s + TOLERANCE_S + TOLERANCE_S_REL * abs(limit_s):
        return
    job_id, slowdown = jobs.job_id[i], elapsed_s / alone_s if alone_s > 0 else inf
    text = (
        f"Expected attained slowdown of job '{job_id}', pauses counted, <= slo {show(slo)}, got "
        f"{show(slowdown)} ({show(elapsed_s - limit_s)} s too long)."
    )
    log.add("slo", text, elapsed_s - limit_s, "s", job_id)


def check_held(plan: Plan) -> list[Violation]:
    """Held nodes: nodes of a group's version, from its end on, and not more than it had.

    A snapshot has none: it is one moment.
    """
    log = Log()
    if plan.durations == "snapshot":
        if n := len(plan.held):
            log.add("held", f"Expected no held nodes in a snapshot, got {n}.", n, "records")
        return log.found
    versions: dict[str, list[GroupVersion]] = {}
    for group in plan.groups if plan.held else ():
        versions.setdefault(group.group_id, []).append(group)
    for item in plan.held:
        log.group_id = item.group_id
        log.where = f"held nodes of group '{item.group_id}'"
        _check_held(item, versions.get(item.group_id, ()), log)
    return log.found


def _check_held(item: HeldNodes, versions: Sequence[GroupVersion], log: Log) -> None:
    """Check one record against the versions of its group."""
    rollout, train = item.rollout_nodes, item.train_nodes
    if (least := min(rollout, train)) < 0 or rollout == train == 0:
        text = (
            f"Expected {log.where} >= 0 in each pool and not both 0, got {show(rollout)} rollout "
            f"and {show(train)} train."
        )
        log.add("held", text, max(1.0, -finite_or_inf(least)), "nodes")
    if not versions:
        text = f"Expected held nodes of a group of the plan, got unknown group '{item.group_id}'."
        log.add("held", text, 1, "groups")
    if not is_interval(item):
        text = f"Expected finite from_s < to_s of {log.where}, got {item.from_s}, {item.to_s}."
        log.add("held", text, item.from_s - item.to_s, "s")
    elif versions:
        _check_released(item, versions, log)


def _check_released(item: HeldNodes, versions: Sequence[GroupVersion], log: Log) -> None:
    """A version ends when the record starts, and had as many nodes."""
    off_s = [abs(item.from_s - group.to_s) for group in versions]
    ended = [g for g, by_s in zip(versions, off_s, strict=True) if by_s <= TOLERANCE_S]
    if not ended:
        text = (
            f"Expected {log.where} from the end of one of its versions on, got them from "
            f"{show(item.from_s)} s."
        )
        log.add("held", text, min(off_s), "s")
        return
    for pool, got, most in (
        ("rollout", item.rollout_nodes, max(len(g.rollout_nodes) for g in ended)),
        ("train", item.train_nodes, max(len(g.train_nodes) for g in ended)),
    ):
        if got > most:
            what = f"{pool} in {log.where} from {show(item.from_s)} s on <="
            log.off("held", what, most, got, "nodes", "many")
