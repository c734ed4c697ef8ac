"""The independent checker's half for failures: lost iterations, restarts, and failed nodes.

A *loss* undoes iterations of a job at ``at_s``; the job has nodes again from ``back_s`` on and
restarts there. Per job j with losses l in order of time, ``done(t)`` the iterations of its
versions that have ended by t:

* ``sum over l' <= l of iterations_l' <= done(at_s_l)``: nobody loses what it has not done;
* nothing runs in ``(at_s, back_s)``, and a version starts at ``back_s``;
* a pause of at least ``restart_s`` starts at ``back_s``, unless the next loss cuts it short;
* a plan with losses moves a job at a loss of it and nowhere else.

What is lost counts against ``work`` (:func:`instances.checker.check_plan` subtracts it). The time
lost counts against the SLO that is *reported*, not against the one that is required: no plan can
promise it to a job that fails. Required is the rest, restarts after losses and lost iterations
both left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, nan
from typing import Final, NamedTuple

from instances.group_checker import TOLERANCE_S, Log, finite_or_inf, is_interval, show
from instances.pause_checker import Pauses
from instances.plan import Loss, Plan

__all__ = ["Done", "Losses", "check_outages"]


class Done(NamedTuple):
    """One version of a job: from when to when, and the iterations it did there."""

    from_s: float
    to_s: float
    iterations: float


class Losses:
    """The losses of a plan by job, in order of time; what is wrong with them is in ``log``.

    A snapshot has none: it is one moment. A job with a malformed loss is broken: what it lost is
    unknown (NaN), and no more is asked of it.
    """

    __slots__ = ("_any", "_broken", "_of", "log")

    def __init__(self, plan: Plan, index: Mapping[str, int]) -> None:
        self.log: Final = Log()
        self._of: dict[str, list[Loss]] = {}
        self._broken: set[str] = set()
        self._any = bool(plan.losses)
        if plan.durations == "snapshot":
            if n := len(plan.losses):
                self.log.add("loss", f"Expected no losses in a snapshot, got {n}.", n, "losses")
            return
        for loss in plan.losses:
            self._read(loss, plan, index)
        for losses in self._of.values():
            losses.sort(key=lambda loss: (loss.at_s, loss.back_s))

    def __bool__(self) -> bool:
        return self._any

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._of and job_id not in self._broken

    def _read(self, loss: Loss, plan: Plan, index: Mapping[str, int]) -> None:
        """A loss is of a known job in groups, ``at_s <= back_s``, and of 0 iterations or more."""
        job_id = loss.job_id
        if (i := index.get(job_id)) is None:
            text = f"Expected losses of jobs of the plan's table, got unknown job '{job_id}'."
            self.log.add("loss", text, 1, "jobs", job_id)
            return
        if plan.jobs.mode[i] == "async":
            text = f"Expected losses of jobs in groups, got one of job '{job_id}', async."
            self.log.add("loss", text, 1, "jobs", job_id)
            return
        self._of.setdefault(job_id, []).append(loss)
        if -inf < loss.at_s <= loss.back_s < inf and 0 <= loss.iterations < inf:
            return
        text = (
            f"Expected finite at_s <= back_s and iterations >= 0 of a loss of job '{job_id}', got "
            f"{loss.at_s}, {loss.back_s} and {loss.iterations}."
        )
        amount = max(finite_or_inf(loss.at_s - loss.back_s), finite_or_inf(-loss.iterations))
        self.log.add("loss", text, amount, "s", job_id)
        self._broken.add(job_id)

    def iterations(self, job_id: str) -> float:
        """Return the iterations that a job lost, NaN when one of its losses is malformed."""
        if job_id in self._broken:
            return nan
        return sum(loss.iterations for loss in self._of.get(job_id, ()))

    def is_gap(self, job_id: str, from_s: float, to_s: float) -> bool:
        """Return whether a job waits from a loss at ``from_s`` until ``to_s``."""
        return any(
            abs(loss.at_s - from_s) <= TOLERANCE_S and abs(loss.back_s - to_s) <= TOLERANCE_S
            for loss in self._of.get(job_id, ())
        )

    def check_move(self, job_id: str, ended_s: float, log: Log) -> None:
        """A job changes group or pins only where it is lost, at the end of its last version."""
        if any(abs(loss.at_s - ended_s) <= TOLERANCE_S for loss in self._of.get(job_id, ())):
            return
        text = (
            f"Expected job '{job_id}' to move only where it or a node of it fails, got it moved to "
            f"{log.where} at {show(ended_s)} s."
        )
        log.add("loss", text, 1, "groups", job_id)

    def restarts_s(self, job_id: str, pauses: Pauses) -> float:
        """Return the seconds of the job's restarts after losses."""
        backs = {loss.back_s for loss in self._of.get(job_id, ())}
        return sum(pauses.restart(job_id, back_s)[0] for back_s in backs)

    def check_stay(
        self, job_id: str, restart_s: float, spans: Sequence[Done], pauses: Pauses, slack: float
    ) -> None:
        """Check the losses of one job against its versions; ``slack`` in iterations."""
        losses, lost, done, ended = self._of[job_id], 0.0, 0.0, 0
        spans = sorted(spans, key=lambda span: span.to_s)
        for k, loss in enumerate(losses):
            while ended < len(spans) and spans[ended].to_s <= loss.at_s + TOLERANCE_S:
                done += spans[ended].iterations
                ended += 1
            lost += loss.iterations
            if lost - done > slack:
                what = f"iterations of job '{job_id}' lost by {show(loss.at_s)} s <="
                self.log.off("loss", what, done, lost, "iterations", "many", job_id)
            again_s = losses[k + 1].at_s if k + 1 < len(losses) else inf
            if again_s - loss.back_s < -TOLERANCE_S:
                text = (
                    f"Expected job '{job_id}', lost at {show(loss.at_s)} s, back before it is lost "
                    f"again at {show(again_s)} s, got it back at {show(loss.back_s)} s."
                )
                self.log.add("loss", text, loss.back_s - again_s, "s", job_id)
            elif again_s - loss.back_s > TOLERANCE_S:
                self._check_back(loss, restart_s, spans, pauses)

    def _check_back(
        self, loss: Loss, restart_s: float, spans: Sequence[Done], pauses: Pauses
    ) -> None:
        """A lost job runs nowhere until it is back; then a version and its restart begin."""
        job_id, back_s = loss.job_id, loss.back_s
        both_s = sum(max(min(s.to_s, back_s) - max(s.from_s, loss.at_s), 0.0) for s in spans)
        if both_s > TOLERANCE_S:
            text = (
                f"Expected job '{job_id}' nowhere from {show(loss.at_s)} to {show(back_s)} s, got "
                f"it {show(both_s)} s in groups."
            )
            self.log.add("loss", text, both_s, "s", job_id)
        off_s = min((abs(span.from_s - back_s) for span in spans), default=inf)
        if off_s > TOLERANCE_S:
            text = f"Expected a version of job '{job_id}' from {show(back_s)} s on, got none."
            self.log.add("loss", text, off_s, "s", job_id)
        got_s, cut = pauses.restart(job_id, back_s)
        if got_s < restart_s - TOLERANCE_S and not cut and not pauses.is_broken(job_id):
            what = f"pause of job '{job_id}', back at {show(back_s)} s, >="
            self.log.off("loss", what, restart_s, got_s, "s", "short", job_id)


def check_outages(plan: Plan, log: Log) -> list[tuple[float, float, int, int]]:
    """Outages are of a fleet, of a known pool and of finite length.

    Returns
    -------
    list of (float, float, int, int)
        ``(from_s, to_s, rollout nodes, train nodes)`` out of service.
    """
    if plan.outages and (plan.fleet is None or plan.durations == "snapshot"):
        what = "in a snapshot" if plan.durations == "snapshot" else "without a fleet"
        text = f"Expected no outages {what}, got {len(plan.outages)}."
        log.add("fleet", text, len(plan.outages), "outages")
        return []
    out = []
    for outage in plan.outages:
        if outage.pool not in ("rollout", "train"):
            text = f"Expected outages in pool rollout or train, got '{outage.pool}'."
            log.add("fleet", text, 1, "outages")
        elif not is_interval(outage):
            text = (
                f"Expected finite from_s < to_s of an outage, got {outage.from_s}, {outage.to_s}."
            )
            amount = outage.from_s - outage.to_s
            log.add("fleet", text, amount if isfinite(amount) else inf, "s")
        else:
            rollout = int(outage.pool == "rollout")
            out.append((outage.from_s, outage.to_s, rollout, 1 - rollout))
    return out
