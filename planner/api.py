"""The public API: plan a trace, with baselines, under both duration conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.plan import DURATION_CONVENTIONS, Limits
from instances.trace import Trace
from planner.placer import PlacerParams
from planner.policies import PolicyOptions, require_policy
from planner.replay import Convention, ReplayResult, replay, require_convention

__all__ = ["PlanReport", "plan_trace"]

#: Called with (label, jobs done, jobs) while a replay runs.
Progress = Callable[[str, int, int], None]
Clock = Callable[[], float]

_LIMITS: Final = Limits()
_PLACER: Final = PlacerParams()


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """A planned trace: one result per convention and policy.

    Attributes
    ----------
    policy : str
        The main policy; the others are baselines.
    primary : {"work", "wallclock"}
        The convention whose plan is kept (``result(policy).plan``).
    results : dict
        ``results[convention][policy]``.
    seconds : dict of str to float
        Seconds per replay, by "convention/policy"; empty without a clock.
    """

    trace: Trace
    options: PolicyOptions
    policy: str
    baselines: tuple[str, ...]
    primary: Convention
    results: dict[Convention, dict[str, ReplayResult]]
    seconds: dict[str, float]

    def result(self, policy: str, convention: Convention | None = None) -> ReplayResult:
        """Return one result, of the primary convention when none is named."""
        return self.results[convention or self.primary][policy]

    def saving(
        self, baseline: str, convention: Convention, policy: str | None = None
    ) -> float | None:
        """Return the ratio of ``usd_total``: baseline over policy (the main one by default).

        ``None`` where the policy costs nothing.
        """
        of = self.results[convention]
        usd = of[policy or self.policy].usd_total
        return of[baseline].usd_total / usd if usd else None

    def __iter__(self) -> Iterator[tuple[Convention, str, ReplayResult]]:
        for convention, by_policy in self.results.items():
            for policy, result in by_policy.items():
                yield convention, policy, result


def plan_trace(  # noqa: PLR0913 - one argument per question of the command
    trace: Trace,
    *,
    policy: str = "weave",
    baselines: Sequence[str] = (),
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    placer: PlacerParams = _PLACER,
    colocated_factor: float = 1.0,
    durations: Convention = "work",
    check: bool = True,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> PlanReport:
    """Replay a trace under a policy and its baselines, by both duration conventions.

    Parameters
    ----------
    trace : Trace
        From :func:`instances.trace.read_trace`.
    policy : str
        Main policy; see ``planner.policies.POLICIES``.
    baselines : sequence of str
        Policies to set beside it.
    cluster, limits, placer, colocated_factor
        The cluster, group limits, the placer's parameters, and the iteration time of a
        co-located job over its solo time.
    durations : {"work", "wallclock"}
        Which convention's plan to keep; figures are computed for both.
    check : bool
        Check every version of every group as it is made, and the whole plan at the end.
    progress : callable, optional
        Called with (label, jobs done, jobs).
    clock : callable, optional
        Seconds from an arbitrary origin; given, replays and decisions are timed.

    Returns
    -------
    PlanReport

    Raises
    ------
    InputError
        For an unknown policy or convention, or a trace with one-step jobs.
    InfeasibleError
        When a job cannot run even alone.
    CheckError
        When a policy that promises valid plans breaks a rule.

    Examples
    --------
    >>> from instances.catalog import catalog_path
    >>> from instances.trace import read_trace
    >>> trace = read_trace(catalog_path("tiny-open-shop"))
    >>> report = plan_trace(trace, baselines=["solo"])
    >>> round(report.saving("solo", "wallclock"), 2)
    2.0
    """
    names = tuple(dict.fromkeys((policy, *baselines)))
    for name in names:
        require_policy(name)
    require_convention(durations)
    options = PolicyOptions(
        cluster=cluster,
        limits=limits,
        placer=placer,
        colocated_factor=colocated_factor,
        clock=clock,
    )
    results: dict[Convention, dict[str, ReplayResult]] = {}
    seconds: dict[str, float] = {}
    for convention in DURATION_CONVENTIONS:
        results[convention] = {}
        for name in names:
            label = f"{convention}/{name}"
            began = clock() if clock else 0.0
            result = replay(
                trace.jobs,
                name,
                options,
                convention=convention,
                check=check,
                progress=None if progress is None else _labelled(progress, label),
            )
            if clock:
                seconds[label] = clock() - began
            if (convention, name) != (durations, policy):
                result = result.without_plan()
            results[convention][name] = result
    return PlanReport(
        trace=trace,
        options=options,
        policy=policy,
        baselines=names[1:],
        primary=durations,
        results=results,
        seconds=seconds,
    )


def _labelled(progress: Progress, label: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(label, done, total)
