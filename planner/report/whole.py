"""Everything about a trace in one go: plan, fleet, distance from the least, run time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from instances.errors import FleetPlannerError, InputError
from instances.trace import Trace
from planner.output.report_parts import parts_in_order
from planner.plan.planning import PlanReport, plan_trace
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention

if TYPE_CHECKING:
    from planner.gap.proving import GapReport
    from planner.simulate.simulating import SimulationParams, SimulationReport
    from planner.size.params import SizeParams
    from planner.size.pool_costs import CostModel
    from planner.size.report import SizeReport

__all__ = ["PARTS", "WholeReport", "whole_report"]

Progress = Callable[[str, int, int], None]

#: Besides the plan, in order of making: what takes longest comes last.
PARTS: Final = ("size", "simulate", "gap")


@dataclass(kw_only=True)
class WholeReport:
    """What was found about a trace; parts not asked for, or not reached, are ``None``.

    Attributes
    ----------
    failed : dict of str to str
        Parts that have no answer, and why.
    interrupted : str or None
        The part that Ctrl-C ended.
    """

    plan: PlanReport
    size: SizeReport | None = None
    simulation: SimulationReport | None = None
    gap: GapReport | None = None
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: str | None = None


def whole_report(  # noqa: PLR0913 - one argument per question of the command
    trace: Trace,
    *,
    policy: str = "weave",
    baselines: Sequence[str] = ("solo", "colocated"),
    options: PolicyOptions,
    costs: CostModel | None = None,
    durations: Convention = "work",
    parts: Sequence[str] = PARTS,
    size: SizeParams,
    simulation: SimulationParams,
    time_limit_per_snapshot_s: float = 2.0,
    seeds: Sequence[int] = (0,),
    processes: int | None = 1,
    progress: Progress | None = None,
) -> WholeReport:
    """Plan a trace, size its fleet, run its plan, and prove how far it is from the least.

    Parameters
    ----------
    trace : Trace
    policy : str
        The main policy.
    baselines : sequence of str
        Policies to set beside it.
    options : PolicyOptions
        Cluster, limits and parameters of all parts.
    costs : CostModel, optional
        What nodes cost, owned and rented.
    durations : {"work", "wallclock"}
        Convention of the answer; the gap is by ``wallclock``, under which its ratio holds against
        every policy.
    parts : sequence of str
        Of :data:`PARTS`, besides the plan.
    size, simulation
        What these parts ask, and with how much effort.
    time_limit_per_snapshot_s : float
        Of each moment of the gap, seconds.
    seeds : sequence of int
        Seeds of policies that draw; the first one is that of the other parts.
    processes : int, optional
        Processes of the gap; ``None``: one per processor.
    progress : callable, optional
        Called with (label, done, total).

    Returns
    -------
    WholeReport
        Parts without an answer are in ``failed``. At Ctrl-C what is known by then.

    Raises
    ------
    InputError
        For an unknown policy, part or convention.
    InfeasibleError
        When a job cannot run even alone.
    CheckError
        When a policy that promises valid plans breaks a rule.
    """
    wanted = parts_in_order(parts, PARTS)
    options = dataclasses.replace(options, seed=seeds[0])
    found = WholeReport(
        plan=plan_trace(
            trace,
            policy=policy,
            baselines=baselines,
            cluster=options.cluster,
            limits=options.limits,
            placer=options.placer,
            repack=options.repack,
            colocated_factor=options.colocated_factor,
            durations=durations,
            seeds=seeds,
            progress=progress,
        )
    )

    def make_size() -> None:
        from planner.size.sizing import size_trace

        found.size = size_trace(
            trace,
            policy=policy,
            baselines=baselines,
            options=options,
            costs=costs,
            durations=durations,
            params=size,
            progress=progress,
        )
        found.interrupted = found.size.interrupted and "size"

    def make_simulation() -> None:
        from planner.simulate.simulating import simulate_trace

        found.simulation = simulate_trace(
            trace,
            policy=policy,
            options=options,
            durations=durations,
            params=simulation,
            progress=progress,
        )
        found.interrupted = found.simulation.interrupted and "simulate"

    def make_gap() -> None:
        from planner.gap.proving import POLICIES_WITH_BOUND, optimality_gap

        if policy not in POLICIES_WITH_BOUND:
            raise InputError(
                f"Expected a policy with valid plans ({', '.join(POLICIES_WITH_BOUND)}), got "
                f"'{policy}': no bound concerns it."
            )
        found.gap = optimality_gap(
            trace,
            policy=policy,
            cluster=options.cluster,
            limits=options.limits,
            placer=options.placer,
            repack=options.repack,
            time_limit_per_snapshot_s=time_limit_per_snapshot_s,
            seed=seeds[0],
            processes=processes,
            progress=progress,
        )
        found.interrupted = "gap" if found.gap.interrupted else None

    makers = {"size": make_size, "simulate": make_simulation, "gap": make_gap}
    for part in wanted:
        try:
            makers[part]()
        except KeyboardInterrupt:
            found.interrupted = part
        except FleetPlannerError as error:
            found.failed[part] = str(error)
        if found.interrupted is not None:
            break
    return found
