"""The independent checker's half for one group: every rule but the trace's.

:func:`check_group` checks one version of one group; :mod:`instances.checker` follows the
versions of a whole plan over time, and its price, with the tolerances and the log of here.

A phase takes switch + run seconds when any of its nodes has two or more jobs pinned in that
version, and run seconds alone otherwise.

Which rollout waits for a train depends on the mode: the next one (``sync``), or the one after the
next (``one-step``: one step off policy). A one-step job's rollout may so run beside its own
train, but its rollouts still follow one another, and so do its trains. ``async`` jobs are in no
group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Final, NamedTuple

from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.plan import (
    DedicatedNodes,
    GroupVersion,
    HeldNodes,
    JobPlacement,
    Limits,
    Outage,
    Pause,
)

__all__ = [
    "RULES",
    "TOLERANCE_GB",
    "TOLERANCE_S",
    "TOLERANCE_S_REL",
    "Log",
    "Violation",
    "check_group",
    "finite_or_inf",
    "is_interval",
    "iteration_seconds",
    "report_unknown_job",
    "show",
    "slack_seconds",
]

RULES: Final[tuple[str, ...]] = (
    "coverage",  # each job exactly once from its start on; no unknown, missing, repeated job
    "gang",  # |P_j| = a_j distinct nodes in each pool
    "residency",  # per node, the states pinned to it fit the host DRAM
    "precedence",  # rollout, train, sync, next rollout (one-step: next but one), around the circle
    "overlap",  # per node, the phases pinned to it are disjoint arcs of the circle
    "slo",  # C_g / k_j <= D_j; with pauses also: seconds of the stay <= slo x iterations x T_j
    "nodes",  # pins are nodes of the group, nodes and pins distinct, every node has a pin
    "rate",  # 1 <= k_j <= max_rate, one start pair per iteration
    "format",  # finite numbers, period > 0, from_s < to_s, a job, first rollout in [0, C_g)
    "limits",  # max_group_size, max_rollout_nodes, max_train_nodes per group
    "stay",  # work: iterations outside pauses - lost = the job's; wallclock: duration_s + pauses
    "pins",  # one version of a group at a time; with pins_fixed no job changes group or pins
    "pause",  # within the job's stay, one at a time; each move starts one of >= restart_s
    "loss",  # not more than done, at the end of a version; then a restart; moves nowhere else
    "held",  # nodes of a group's version, from the version's end on
    "start",  # of a known job, one each, not before its arrival; who has none starts on arrival
    "fleet",  # no more nodes of a pool at once than the fleet has, failed ones left out
    "mode",  # sync and one-step in groups; async on dedicated nodes of its own
    "cost",  # usd_total is the price of all nodes over all intervals
)

#: Seconds of a period are compared within ``TOLERANCE_S + TOLERANCE_S_REL * period_s``, a
#: stay in seconds likewise with ``duration_s``, and moments of the trace within ``TOLERANCE_S``.
TOLERANCE_S: Final = 1e-6
TOLERANCE_S_REL: Final = 1e-9
#: State per node is compared with the host DRAM within this many GB.
TOLERANCE_GB: Final = 1e-6
#: By mode of a job in a group: iterations from a train to the rollout that waits for it.
_AHEAD: Final[Mapping[str, int]] = {"sync": 1, "one-step": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One broken rule: where, and by how much.

    Attributes
    ----------
    message : str
        In words.
    unit : str
        Of ``amount``.
    rule : str
        One of ``RULES``.
    group_id, job_id, node : str or None
        What it concerns; ``node`` reads like ``"train 3"``.
    amount : float or None
        How far beyond the limit (the limit itself, without tolerance), in ``unit``;
        ``None`` where no finite number says it.
    from_s : float or None
        Start of the group version concerned, seconds of the trace.
    """

    rule: str
    group_id: str | None
    job_id: str | None
    node: str | None
    amount: float | None
    unit: str
    message: str
    from_s: float | None = None


class Log:
    """Collects the violations of one group version, or of what belongs to no group."""

    __slots__ = ("found", "from_s", "group_id", "where")

    def __init__(self, group: GroupVersion | None = None) -> None:
        self.found: list[Violation] = []
        self.group_id = None if group is None else group.group_id
        self.from_s = None if group is None or not isfinite(group.from_s) else group.from_s
        self.where = "dedicated nodes" if group is None else f"group '{group.group_id}'"

    def add(
        self,
        rule: str,
        message: str,
        amount: float,
        unit: str,
        job_id: str | None = None,
        node: str | None = None,
    ) -> None:
        """Record one violation; an amount that is not finite becomes ``None``."""
        self.found.append(
            Violation(
                rule=rule,
                group_id=self.group_id,
                job_id=job_id,
                node=node,
                amount=finite_or_inf(amount) if isfinite(finite_or_inf(amount)) else None,
                unit=unit,
                message=message,
                from_s=self.from_s,
            )
        )

    def off(
        self,
        rule: str,
        what: str,
        limit: float,
        got: float,
        unit: str,
        words: str,
        job_id: str | None = None,
        node: str | None = None,
    ) -> None:
        """Record a number off its limit; ``what`` ends in <=, = or >=."""
        by = abs(finite_or_inf(got) - finite_or_inf(limit))
        more = f"{show(by)} {unit} too {words}"
        self.add(
            rule,
            f"Expected {what} {show(limit)} {unit}, got {show(got)} ({more}).",
            by,
            unit,
            job_id,
            node,
        )


def finite_or_inf(number: float) -> float:
    """Return a float; whole numbers too large for one become infinite."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def show(number: float) -> str:
    """Return a number for a message, to ten significant digits."""
    return f"{finite_or_inf(number):.10g}"


def slack_seconds(period_s: float) -> float:
    """Return the tolerance for seconds within one period."""
    return TOLERANCE_S + TOLERANCE_S_REL * period_s


def is_interval(item: GroupVersion | DedicatedNodes | Pause | HeldNodes | Outage) -> bool:
    """Return whether ``from_s < to_s``, both finite."""
    return -inf < item.from_s < item.to_s < inf


def iteration_seconds(mode: str, rollout_s: float, train_s: float, sync_s: float) -> float:
    """Return T_j of a job that runs alone: the least period that its own rules allow."""
    around_s = rollout_s + train_s + sync_s
    return max(rollout_s, train_s, around_s / 2) if mode == "one-step" else around_s


class _Arc(NamedTuple):
    """A phase on the circle: start in ``[0, C)``, seconds, whose, which iteration (from 1)."""

    start_s: float
    length_s: float
    job_id: str
    iteration: int


class _Pool:
    """The pinned nodes of one pool in one version: number of jobs, state and arcs of each."""

    __slots__ = ("arcs", "name", "pins", "state_gb", "users")

    def __init__(self, name: str, pins: list[tuple[int, ...]]) -> None:
        self.name = name
        self.pins = pins
        users: dict[int, int] = {}
        for nodes in pins:
            for node in nodes if len(nodes) < 2 else set(nodes):
                users[node] = users.get(node, 0) + 1
        self.users = users
        self.state_gb = dict.fromkeys(users, 0.0)
        self.arcs: dict[int, list[_Arc]] = {node: [] for node in users}

    def draw(self, pins: tuple[int, ...], arc: _Arc) -> None:
        """Lay one phase of a job on each node it is pinned to."""
        for node in pins if len(pins) < 2 else set(pins):
            self.arcs[node].append(arc)


def check_group(
    group: GroupVersion,
    jobs: JobTable,
    cluster: Cluster,
    limits: Limits,
    *,
    index: Mapping[str, int] | None = None,
) -> list[Violation]:
    """Check one version of one group against every rule of a group.

    Parameters
    ----------
    index : mapping of str to int, optional
        Position of each job id in ``jobs``; built here, in O(n_jobs), when left out.

    Returns
    -------
    list of Violation
        Empty when the version is valid.
    """
    if index is None:
        index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    log = Log(group)
    rollout = _Pool("rollout", [p.rollout_pins for p in group.placements])
    train = _Pool("train", [p.train_pins for p in group.placements])
    _check_frame(group, limits, log)
    _check_nodes(rollout, group.rollout_nodes, group, log)
    _check_nodes(train, group.train_nodes, group, log)
    for placement in group.placements:
        i = index.get(placement.job_id)
        if i is None:
            report_unknown_job(placement.job_id, log)
        else:
            _check_placement(placement, jobs, i, group.period_s, rollout, train, limits, log)
    for pool, node_type in ((rollout, cluster.rollout), (train, cluster.train)):
        _check_residency(pool, node_type.host_dram_gb, log)
        _check_overlap(pool, group.period_s, log)
    return log.found


def _check_frame(group: GroupVersion, limits: Limits, log: Log) -> None:
    """Interval, period, each job once, at least one, and the limits on the group's size."""
    if not is_interval(group):
        text = f"Expected finite from_s < to_s of {log.where}, got {group.from_s}, {group.to_s}."
        log.add("format", text, group.from_s - group.to_s, "s")
    if not 0 < group.period_s < inf:
        text = f"Expected finite period_s > 0 of {log.where}, got {group.period_s}."
        log.add("format", text, -group.period_s, "s")
    ids = [p.job_id for p in group.placements]
    if not ids:
        log.add("format", f"Expected at least one job in {log.where}, got none.", 1, "jobs")
    if len(set(ids)) < len(ids):
        for job_id in dict.fromkeys(ids):
            if (times := ids.count(job_id)) > 1:
                text = f"Expected job '{job_id}' once in {log.where}, got it {times} times."
                log.add("coverage", text, times - 1, "placements", job_id)
    for name, got, limit, unit in (
        ("max_group_size", len(ids), limits.max_group_size or None, "jobs"),
        ("max_rollout_nodes", len(group.rollout_nodes), limits.max_rollout_nodes, "nodes"),
        ("max_train_nodes", len(group.train_nodes), limits.max_train_nodes, "nodes"),
    ):
        if limit is not None and got > limit:
            log.off("limits", f"{log.where} within {name} <=", limit, got, unit, "many")


def _check_nodes(pool: _Pool, nodes: tuple[int, ...], group: GroupVersion, log: Log) -> None:
    """Nodes are distinct, every pin is one of them and every one of them has a pin."""
    known = set(nodes)
    if len(nodes) == len(known) and known == pool.users.keys():
        return
    for node in sorted(known):
        where = f"{pool.name} node {node}"
        if (times := nodes.count(node)) > 1:
            text = f"Expected {where} once in {log.where}, got it {times} times."
            log.add("nodes", text, times - 1, "nodes", node=f"{pool.name} {node}")
        if node not in pool.users:
            text = f"Expected a job pinned to {where} of {log.where}, got none."
            log.add("nodes", text, 1, "nodes", node=f"{pool.name} {node}")
    for placement, pins in zip(group.placements, pool.pins, strict=True):
        for node in sorted(set(pins) - known):
            text = (
                f"Expected pins of job '{placement.job_id}' on nodes of {log.where}, got one on "
                f"{pool.name} node {node}, which it does not have."
            )
            log.add("nodes", text, 1, "pins", placement.job_id, f"{pool.name} {node}")


def report_unknown_job(job_id: str, log: Log) -> None:
    """Coverage: every job placed is one of the plan's table."""
    text = f"Expected jobs of the plan's table on {log.where}, got unknown job '{job_id}'."
    log.add("coverage", text, 1, "jobs", job_id)


def _check_placement(
    placement: JobPlacement,
    jobs: JobTable,
    i: int,
    period_s: float,
    rollout: _Pool,
    train: _Pool,
    limits: Limits,
    log: Log,
) -> None:
    """Everything about one job; its state and arcs are left with the pools."""
    r, t, s = jobs.rollout_s.item(i), jobs.train_s.item(i), jobs.sync_s.item(i)
    r_switch, t_switch = jobs.rollout_switch_s.item(i), jobs.train_switch_s.item(i)
    r_state, t_state = jobs.rollout_state_gb.item(i), jobs.train_state_gb.item(i)
    slo, job_id, mode = jobs.slo.item(i), placement.job_id, jobs.mode[i]
    numbers = (r, t, s, slo, r_switch, t_switch, r_state, t_state)
    if not (isfinite(sum(numbers)) and min(numbers) >= 0):
        values = ", ".join(map(show, numbers))
        text = f"Expected finite, non-negative numbers of job '{job_id}', got {values}."
        log.add("format", text, nan, "", job_id)
        return
    r_pins, t_pins = placement.rollout_pins, placement.train_pins
    r_shared = _pin(rollout, r_pins, jobs.rollout_nodes.item(i), r_state, job_id, log)
    t_shared = _pin(train, t_pins, jobs.train_nodes.item(i), t_state, job_id, log)
    r_phase, t_phase = r + r_switch * r_shared, t + t_switch * t_shared
    rate_ok = _check_rate(placement, limits, log)
    if mode not in _AHEAD:
        why = "async jobs take dedicated nodes" if mode == "async" else "an unknown mode"
        name = f"mode sync or one-step of job '{job_id}' in {log.where}"
        text = f"Expected {name}, got {mode} ({why})."
        log.add("mode", text, 1, "jobs", job_id)
    if not 0 < period_s < inf:
        return
    if rate_ok and mode in _AHEAD:
        _check_slo(placement, period_s, slo * iteration_seconds(mode, r, t, s), log)
    if _check_starts(placement, period_s, log):
        if mode in _AHEAD:
            _check_precedence(placement, period_s, (r_phase, t_phase, s), _AHEAD[mode], log)
        for k, (rollout_at, train_at) in enumerate(placement.starts_s, start=1):
            rollout.draw(r_pins, _Arc(rollout_at % period_s, r_phase, job_id, k))
            train.draw(t_pins, _Arc(train_at % period_s, t_phase, job_id, k))


def _pin(
    pool: _Pool, pins: tuple[int, ...], width: int, state_gb: float, job_id: str, log: Log
) -> bool:
    """Gang: ``|P_j| = a_j``. Adds the state; returns whether the phase pays its switch."""
    distinct = pins if len(pins) < 2 else set(pins)
    if not len(pins) == len(distinct) == width:
        name = f"{pool.name} pins of job '{job_id}' in {log.where}"
        if len(distinct) < len(pins):
            text = f"Expected distinct {name}, got {pins}."
            log.add("nodes", text, len(pins) - len(distinct), "pins", job_id)
        if len(distinct) != width:
            words = "many" if len(distinct) > width else "few"
            log.off("gang", f"{name} =", width, len(distinct), "nodes", words, job_id)
    shared = False
    for node in distinct:
        pool.state_gb[node] += state_gb
        if pool.users[node] > 1:
            shared = True
    return shared


def _check_rate(placement: JobPlacement, limits: Limits, log: Log) -> bool:
    """``1 <= k_j <= max_rate``, k_j start pairs; True when k_j can be worked with."""
    rate, pairs, job_id = placement.rate, len(placement.starts_s), placement.job_id
    if 1 <= rate <= limits.max_rate and pairs == rate:
        return True
    name = f"of job '{job_id}' in {log.where}"
    if rate < 1:
        log.off("rate", f"rate {name} >=", 1, rate, "iterations", "few", job_id)
    if rate > limits.max_rate:
        what = f"rate {name} within max_rate <="
        log.off("rate", what, limits.max_rate, rate, "iterations", "many", job_id)
    if pairs != rate:
        words = "many" if pairs > rate else "few"
        log.off("rate", f"starts {name} =", rate, pairs, "start pairs", words, job_id)
    return pairs == rate >= 1


def _check_starts(placement: JobPlacement, period_s: float, log: Log) -> bool:
    """Starts are finite, the first rollout is in ``[0, C)``; True when they can be used."""
    starts, job_id = placement.starts_s, placement.job_id
    for pair in starts:
        if not isfinite(pair[0] + pair[1]):
            text = f"Expected finite starts of job '{job_id}' in {log.where}, got {pair}."
            log.add("format", text, nan, "s", job_id)
            return False
    first, slack_s = (starts[0][0] if starts else 0.0), slack_seconds(period_s)
    if not -slack_s <= first < period_s + slack_s:
        text = (
            f"Expected first rollout start of job '{job_id}' in {log.where} in "
            f"[0, {show(period_s)}) s, got {show(first)}."
        )
        log.add("format", text, max(-first, first - period_s), "s", job_id)
    return bool(starts)


def _check_slo(placement: JobPlacement, period_s: float, deadline_s: float, log: Log) -> None:
    """``C_g / k_j <= D_j``."""
    iteration_s = period_s / placement.rate
    if iteration_s > deadline_s + slack_seconds(period_s):
        what = f"iteration time of job '{placement.job_id}' in {log.where} <="
        log.off("slo", what, deadline_s, iteration_s, "s", "long", placement.job_id)


def _check_precedence(
    placement: JobPlacement,
    period_s: float,
    phases_s: tuple[float, float, float],
    ahead: int,
    log: Log,
) -> None:
    """Train >= its rollout + phase; the rollout that waits for it >= train + phase + s_j.

    That is the rollout ``ahead`` iterations on; past the last of a period, the first again plus C.
    ``phases_s``: rollout, train, sync.
    """
    starts, slack_s, job_id = placement.starts_s, slack_seconds(period_s), placement.job_id
    r_phase, t_phase, sync_s = phases_s
    for k, (rollout_at, train_at) in enumerate(starts):
        turns, waiting = divmod(k + ahead, len(starts))
        next_at = starts[waiting][0] + turns * period_s
        train_least, next_least = rollout_at + r_phase, train_at + t_phase + sync_s
        if train_at + slack_s < train_least:
            what = f"train start of iteration {k + 1} of job '{job_id}' in {log.where} >="
            log.off("precedence", what, train_least, train_at, "s", "early", job_id)
        if next_at + slack_s < next_least:
            which = "rollout" if ahead == 1 else "next but one rollout"
            what = f"{which} start after iteration {k + 1} of job '{job_id}' in {log.where} >="
            log.off("precedence", what, next_least, next_at, "s", "early", job_id)
    if ahead > 1:
        _check_own_order(placement, period_s, (r_phase, t_phase), log)


def _check_own_order(
    placement: JobPlacement, period_s: float, phases_s: tuple[float, float], log: Log
) -> None:
    """A job's next rollout >= rollout + phase, and likewise its trains: else no rule says so.

    Of one iteration it would say that the phase is no longer than C, as ``overlap`` does.
    """
    starts, slack_s, job_id = placement.starts_s, slack_seconds(period_s), placement.job_id
    for k, pair in enumerate(starts) if len(starts) > 1 else ():
        turns, after = divmod(k + 1, len(starts))
        for name, at, phase_s, next_at in zip(
            ("rollout", "train"), pair, phases_s, starts[after], strict=True
        ):
            least, next_s = at + phase_s, next_at + turns * period_s
            if next_s + slack_s < least:
                which = f"next {name} start after iteration {k + 1} of job '{job_id}'"
                what = f"{which} in {log.where} >="
                log.off("precedence", what, least, next_s, "s", "early", job_id)


def _check_residency(pool: _Pool, limit_gb: float, log: Log) -> None:
    """Per node, the sum of ``m_j`` of the jobs pinned to it <= M."""
    for node, state_gb in pool.state_gb.items():
        if not state_gb <= limit_gb + TOLERANCE_GB:
            what = f"{pool.name} state on {pool.name} node {node} of {log.where} <="
            name = f"{pool.name} {node}"
            log.off("residency", what, limit_gb, state_gb, "GB", "much", node=name)


def _check_overlap(pool: _Pool, period_s: float, log: Log) -> None:
    """Per node: in order of start, each arc ends before the next starts, around the circle."""
    slack_s = slack_seconds(period_s)
    for node, arcs in pool.arcs.items():
        if not arcs:
            continue
        arcs.sort()
        end_s = arcs[-1][0] + arcs[-1][1] - period_s
        for arc in arcs:
            if end_s > arc[0] + slack_s:
                _report_overlaps(pool.name, node, arcs, period_s, log)
                break
            end_s = arc[0] + arc[1]


def _report_overlaps(pool: str, node: int, arcs: list[_Arc], period_s: float, log: Log) -> None:
    """Name every arc longer than the circle, and every pair of arcs that meet."""
    slack_s, where, name = (
        slack_seconds(period_s),
        f"{pool} node {node} of {log.where}",
        f"{pool} {node}",
    )
    for n, a in enumerate(arcs):
        if a.length_s > period_s + slack_s:
            what = f"phase of job '{a.job_id}' on {where} within the period <="
            log.off("overlap", what, period_s, a.length_s, "s", "long", a.job_id, name)
        for b in arcs[n + 1 :]:
            ahead = b.start_s - a.start_s
            a_s, b_s = min(a.length_s, period_s), min(b.length_s, period_s)
            b_in_a = max(0.0, min(a_s - ahead, b_s))
            a_in_b = max(0.0, min(b_s - (period_s - ahead), a_s))
            if (both_s := b_in_a + a_in_b) > slack_s:
                first, second = (a, b) if b_in_a >= a_in_b else (b, a)
                text = (
                    f"Expected disjoint phases on {where}, got job '{second.job_id}' (iteration "
                    f"{second.iteration}) starting at {show(second.start_s)} s, before job "
                    f"'{first.job_id}' (iteration {first.iteration}) ends ({show(both_s)} s of "
                    "overlap)."
                )
                log.add("overlap", text, both_s, "s", second.job_id, name)
