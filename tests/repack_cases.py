"""Running fleets of a few jobs for the tests of ``planner repack``, with their prices.

Every job of :func:`twin` has ``rollout_s`` = ``train_s`` = 10, so ``T`` = 20, and two of them fit
one node of each kind without waiting: rollouts at 0 and 10, trains at 10 and 20 of a period of
20. A node of each kind costs ``PAIR_USD`` an hour. A restart of 360 s is a tenth of an hour, so a
move of a job alone costs ``PAIR_USD / 10``.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from builders import job_of, table_of
from command_line import PAIR_USD, Outcome
from instances.checker import check_plan, recost
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import (
    DedicatedNodes,
    Durations,
    GroupVersion,
    HeldNodes,
    JobPlacement,
    Limits,
    Pause,
    Plan,
)
from instances.plan_file import write_plan_json
from planner.cli.repack import repack

HOUR_S = 3600.0
RESTART_S = 360.0
MOVE_USD = PAIR_USD / 10


def twin(job_id: str, slo: float = 2.0, **more: Any) -> Job:
    """Return a job of 10 s each phase."""
    return job_of(job_id, 10, 10, slo, **{"duration_s": 7200.0, "restart_s": RESTART_S, **more})


def group(
    name: str, job_ids: Sequence[str], from_s: float = 0.0, to_s: float = HOUR_S
) -> GroupVersion:
    """Return one or two twins on one node of each kind, period 20."""
    starts = ((0.0, 10.0), (10.0, 20.0))
    return GroupVersion(
        group_id=name,
        from_s=from_s,
        to_s=to_s,
        period_s=20.0,
        rollout_nodes=(0,),
        train_nodes=(0,),
        placements=tuple(
            JobPlacement(
                job_id=job_id, rollout_pins=(0,), train_pins=(0,), starts_s=(starts[i],), rate=1
            )
            for i, job_id in enumerate(job_ids)
        ),
    )


def plan_of(
    jobs: JobTable,
    groups: Sequence[GroupVersion],
    durations: Durations = "snapshot",
    **more: Any,
) -> Plan:
    """Return a valid plan of these groups at its price."""
    fields: dict[str, Any] = {
        "policy": "hand",
        "durations": durations,
        "cluster": DEFAULT_CLUSTER,
        "jobs": jobs,
        "limits": Limits(),
        "groups": tuple(groups),
        "usd_total": 0.0,
        **more,
    }
    plan = Plan(**{**fields, "usd_total": recost(Plan(**fields))})
    report = check_plan(plan)
    assert report.ok, report.violations
    return plan


def apart(*jobs: Job, **more: Any) -> Plan:
    """Return a snapshot plan of twins, each alone, in groups g1, g2, ... ."""
    groups = [group(f"g{i}", [job.job_id]) for i, job in enumerate(jobs, start=1)]
    return plan_of(JobTable.from_jobs(jobs), groups, **more)


def pair(slo: float = 2.0) -> Plan:
    """Return two twins alone: 2 x PAIR_USD an hour, where one pair of nodes would do."""
    return apart(twin("a", slo), twin("b", slo))


def with_async() -> Plan:
    """Return two twins alone, and an async job on 2 + 1 dedicated nodes."""
    free = twin("free", rollout_nodes=2, mode="async")
    nodes = DedicatedNodes(job_id="free", from_s=0.0, to_s=HOUR_S, rollout_nodes=2, train_nodes=1)
    jobs = JobTable.from_jobs([twin("a"), twin("b"), free])
    return plan_of(jobs, [group("g1", ["a"]), group("g2", ["b"])], dedicated=(nodes,))


def replayed() -> Plan:
    """Return a replay of three twins, each alone: c for one hour, a for two, b for three."""
    hours = {"a": 2, "b": 3, "c": 1}
    jobs = table_of(*(twin(name, duration_s=h * HOUR_S) for name, h in hours.items()))
    groups = [
        group(f"g{i}", [name], to_s=h * HOUR_S) for i, (name, h) in enumerate(hours.items(), 1)
    ]
    return plan_of(jobs, groups, "wallclock")


def moved(*, held: bool = False) -> Plan:
    """Return a replay in which b moves to a's group after one hour, and restarts for 360 s.

    With ``held`` its old nodes are paid for ten minutes more.
    """
    old = HeldNodes(group_id="g2", from_s=HOUR_S, to_s=HOUR_S + 600, rollout_nodes=1, train_nodes=1)
    groups = [
        group("g1", ["a"]),
        group("g2", ["b"]),
        group("g1", ["a", "b"], HOUR_S, 2 * HOUR_S),
        # b started its rollout at 10, and now that it is alone still does
        GroupVersion(
            group_id="g1",
            from_s=2 * HOUR_S,
            to_s=2 * HOUR_S + RESTART_S,
            period_s=20.0,
            rollout_nodes=(0,),
            train_nodes=(0,),
            placements=(
                JobPlacement(
                    job_id="b", rollout_pins=(0,), train_pins=(0,), starts_s=((10.0, 20.0),), rate=1
                ),
            ),
        ),
    ]
    return plan_of(
        table_of(twin("a"), twin("b")),
        groups,
        "wallclock",
        pins_fixed=False,
        pauses=(Pause(job_id="b", from_s=HOUR_S, to_s=HOUR_S + RESTART_S),),
        held=(old,) if held else (),
    )


def saved(plan: Plan, folder: Path, name: str = "plan.json") -> Path:
    """Write a plan, and return its path."""
    write_plan_json(plan, folder / name)
    return folder / name


_APP = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
_APP.command("repack")(repack)


def invoke(*arguments: str | Path) -> Outcome:
    """Run the command in this process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(_APP, [str(argument) for argument in arguments])
    finally:
        signal.signal(signal.SIGTERM, before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def ok(*arguments: str | Path) -> Outcome:
    """Run in this process, and succeed."""
    outcome = invoke(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def words(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())


def answer(plan: Plan, folder: Path, *arguments: str | Path) -> Any:
    """Return the document of the command on a plan."""
    return ok("--plan", saved(plan, folder), "--json", *arguments).json


def movers(document: Any) -> list[list[str]]:
    """Return the jobs moved, proposal by proposal."""
    return [[move["job_id"] for move in p["moves"]] for p in document["proposals"]]
