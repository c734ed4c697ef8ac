"""How one group stands: which rule of a valid plan is the tightest, and how busy its nodes are.

A group's period may grow until some member's deadline, ``L = min_j k_j D_j``, so time is
measured against ``L``: the load of a node, the chain of a job (one iteration after the other)
and the period itself all have to stay within it. State is measured against the host DRAM.
The tightest rule is the one with the largest share of its limit in use; what is left of the
limit is its *slack*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from instances.hardware import Cluster
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion
from models.problem.group_shape import GroupShape, Pins

__all__ = [
    "RuleName",
    "Tightness",
    "jobs_of",
    "rule_words",
    "rules_of",
    "shape_of",
    "slack_words",
    "tightest",
    "utilisation",
]

RuleName = Literal["rollout_load", "train_load", "rollout_dram", "train_dram", "chain", "slo"]
#: Shares closer than this are equal; the first in order of ``RuleName`` is named then.
_EQUAL: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Tightness:
    """One rule of one group: what is used of a limit.

    Attributes
    ----------
    rule : str
        ``rollout_load``, ``train_load``: phases pinned to ``node`` (switches included), seconds
        a period. ``rollout_dram``, ``train_dram``: state on ``node``, GB. ``chain``: all
        iterations of ``job_id`` in a period, one after the other, seconds. ``slo``: the period
        itself, seconds.
    used, limit : float
        In ``unit``.
    job_id : str or None
        Job of the chain; of ``slo`` the job whose deadline is the limit.
    deadline_of : str or None
        The job whose deadline is the limit of a rule in seconds.
    deadlines : int or None
        How many deadlines of that job the limit is: its rate.
    node : int or None
        Node of the group.
    """

    rule: RuleName
    used: float
    limit: float
    unit: Literal["s", "GB"]
    job_id: str | None = None
    deadline_of: str | None = None
    deadlines: int | None = None
    node: int | None = None

    @property
    def share(self) -> float:
        """Part of the limit in use; 1 of a limit of nothing."""
        return self.used / self.limit if self.limit > 0 else 1.0

    @property
    def slack(self) -> float:
        """Part of the limit that is left."""
        return 1.0 - self.share


def jobs_of(group: GroupVersion, jobs: JobTable) -> tuple[Job, ...]:
    """Return the members as single jobs, in the group's order."""
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    return tuple(jobs.job(index[placement.job_id]) for placement in group.placements)


def shape_of(group: GroupVersion, members: tuple[Job, ...]) -> GroupShape:
    """Return the group's phases, switches included, and its pins."""
    return GroupShape.of(
        members,
        [placement.rollout_pins for placement in group.placements],
        [placement.train_pins for placement in group.placements],
        [placement.rate for placement in group.placements],
    )


def rules_of(group: GroupVersion, jobs: JobTable, cluster: Cluster) -> tuple[Tightness, ...]:
    """Return every rule of a group with what it uses of its limit, in order of ``RuleName``."""
    members = jobs_of(group, jobs)
    shape = shape_of(group, members)
    limit_s, first = min(
        (rate * job.deadline_s, i)
        for i, (rate, job) in enumerate(zip(shape.rates, members, strict=True))
    )
    whose, rate_of = members[first].job_id, shape.rates[first]
    loads: list[Tightness] = []
    states: list[Tightness] = []
    load: RuleName
    dram: RuleName
    for load, dram, phase_s, pins, gb, most_gb in (
        ("rollout_load", "rollout_dram", shape.rollout_s, shape.rollout_pins,
         [job.rollout_state_gb for job in members], cluster.rollout.host_dram_gb),
        ("train_load", "train_dram", shape.train_s, shape.train_pins,
         [job.train_state_gb for job in members], cluster.train.host_dram_gb),
    ):  # fmt: skip
        seconds = [rate * phase for rate, phase in zip(shape.rates, phase_s, strict=True)]
        loads += [
            Tightness(
                rule=load,
                used=used,
                limit=limit_s,
                unit="s",
                deadline_of=whose,
                deadlines=rate_of,
                node=node,
            )
            for node, used in _per_node(seconds, pins)
        ]
        states += [
            Tightness(rule=dram, used=used, limit=most_gb, unit="GB", node=node)
            for node, used in _per_node(gb, pins)
        ]
    chains = [
        Tightness(
            rule="chain",
            used=rate * (rollout + train + sync) / job.lag,
            limit=limit_s,
            unit="s",
            job_id=job.job_id,
            deadline_of=whose,
            deadlines=rate_of,
        )
        for job, rate, rollout, train, sync in zip(
            members, shape.rates, shape.rollout_s, shape.train_s, shape.sync_s, strict=True
        )
        if job.job_id != whose  # a job's own chain against its own deadline is its SLO
    ]
    slo = Tightness(
        rule="slo",
        used=group.period_s,
        limit=limit_s,
        unit="s",
        job_id=whose,
        deadline_of=whose,
        deadlines=rate_of,
    )
    return (*loads, *states, *chains, slo)


def _per_node(amounts: list[float], pins: tuple[Pins, ...]) -> Iterator[tuple[int, float]]:
    """Yield each node with the sum of what is pinned to it, nodes ascending."""
    total: dict[int, float] = {}
    for amount, nodes in zip(amounts, pins, strict=True):
        for node in nodes:
            total[node] = total.get(node, 0.0) + amount
    yield from sorted(total.items())


def tightest(group: GroupVersion, jobs: JobTable, cluster: Cluster) -> Tightness:
    """Return the rule with the least slack; of equal ones the first (loads, DRAM, chains, SLO).

    A period as short as the heaviest load or the longest chain names that load or chain; one
    that only the order of phases explains, or a job alone, names the SLO.
    """
    found = rules_of(group, jobs, cluster)
    most = max(rule.share for rule in found)
    return next(rule for rule in found if rule.share >= most - _EQUAL)


def rule_words(rule: Tightness, shown: Callable[[str], str] = str, *, node: str = "node ") -> str:
    """Return the name of a rule of one group, such as ``load of train node 0``.

    Parameters
    ----------
    shown : callable
        How a job's id is written.
    node : str
        What comes before a node's number.
    """
    if rule.job_id is not None:
        return f"{'chain' if rule.rule == 'chain' else 'SLO'} of {shown(rule.job_id)}"
    pool, what = rule.rule.split("_")
    return f"{'DRAM' if what == 'dram' else 'load'} of {pool} {node}{rule.node}"


def slack_words(rule: Tightness, shown: Callable[[str], str] = str) -> str:
    """Return the slack of a rule in words, such as ``3.1 % below the deadline of a``.

    Above a deadline is only a group that no plan has, but a study of schedules may.
    """
    if rule.deadline_of is None:
        return f"{100 * max(rule.slack, 0.0):.1f} % of host DRAM left"
    percent = f"{100 * abs(rule.slack):.1f} %"
    side = "below" if rule.slack >= 0 or percent == "0.0 %" else "above"
    strict = rule.deadlines in (None, 1)
    if rule.rule == "slo":
        own = "its deadline" if strict else f"{rule.deadlines} of its deadlines"
        return f"the period is {percent} {side} {own}"
    deadline = "the deadline" if strict else f"{rule.deadlines} deadlines"
    return f"{percent} {side} {deadline} of {shown(rule.deadline_of)}"


def utilisation(group: GroupVersion, jobs: JobTable) -> dict[str, float]:
    """Return the share of paid node time in which a phase runs, by pool: no switch, no sync."""
    members = jobs_of(group, jobs)
    run_r = run_t = 0.0
    for job, placement in zip(members, group.placements, strict=True):
        run_r += placement.rate * job.rollout_s * job.rollout_nodes
        run_t += placement.rate * job.train_s * job.train_nodes
    return {
        "rollout": run_r / (len(group.rollout_nodes) * group.period_s),
        "train": run_t / (len(group.train_nodes) * group.period_s),
    }
