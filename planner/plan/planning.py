"""Plan a trace: replays under a policy and its baselines, by both duration conventions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import JobTable
from instances.plan import DURATION_CONVENTIONS, Fleet, Limits
from instances.trace import Trace
from planner.placement.placer import PlacerParams
from planner.policies.policy import PolicyOptions, QueueRule
from planner.policies.registry import make_policy, require_policy
from planner.policies.repack_params import RepackParams
from planner.replay.interval import Interval, interval
from planner.replay.replaying import Convention, ReplayResult, replay, require_convention

__all__ = ["PlanReport", "plan_trace", "require_seeds"]

#: Called with (label, jobs done, jobs) while a replay runs.
Progress = Callable[[str, int, int], None]
Clock = Callable[[], float]

_LIMITS: Final = Limits()
_PLACER: Final = PlacerParams()
_REPACK: Final = RepackParams()


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """A planned trace: one result per convention and policy.

    Attributes
    ----------
    trace : Trace
        The jobs.
    options : PolicyOptions
        Cluster, limits and parameters of the policies.
    baselines : tuple of str
        Policies beside the main one.
    policy : str
        The main policy; the others are baselines.
    primary : {"work", "wallclock"}
        The convention whose plan is kept (``result(policy).plan``).
    results : dict
        ``results[convention][policy]``; of a policy that draws, with the first seed.
    replicas : dict
        ``replicas[convention][policy]`` of the policies that draw: one result per seed.
    seeds : tuple of int
        Of the policies that draw.
    seconds : dict of str to float
        Seconds per replay, by "convention/policy"; empty without a clock.
    """

    trace: Trace
    options: PolicyOptions
    policy: str
    baselines: tuple[str, ...]
    primary: Convention
    results: dict[Convention, dict[str, ReplayResult]]
    replicas: dict[Convention, dict[str, tuple[ReplayResult, ...]]]
    seeds: tuple[int, ...]
    seconds: dict[str, float]

    def runs(self, policy: str, convention: Convention) -> tuple[ReplayResult, ...]:
        """Return all results of a policy: one per seed where it draws, else one."""
        return self.replicas[convention].get(policy) or (self.results[convention][policy],)

    def most_nodes(self, policy: str, convention: Convention) -> dict[str, int]:
        """Return the peak of each pool, the largest over seeds where the policy draws."""
        peaks = [result.peak_nodes for result in self.runs(policy, convention)]
        return {pool: max(peak[pool] for peak in peaks) for pool in ("rollout", "train")}

    def mean(
        self, policy: str, convention: Convention, value: Callable[[ReplayResult], float]
    ) -> Interval:
        """Return a figure of a policy: its mean over seeds, with a 95 % interval if it draws."""
        return interval([value(result) for result in self.runs(policy, convention)])

    def result(self, policy: str, convention: Convention | None = None) -> ReplayResult:
        """Return one result, of the primary convention when none is named."""
        return self.results[convention or self.primary][policy]

    def saving(
        self, baseline: str, convention: Convention, policy: str | None = None
    ) -> float | None:
        """Return the ratio of ``usd_total``: baseline over policy (the main one by default).

        Means over seeds where a policy draws; ``None`` where the policy costs nothing.
        """
        usd = self.mean(policy or self.policy, convention, _usd_total).mean
        return self.mean(baseline, convention, _usd_total).mean / usd if usd else None

    def __iter__(self) -> Iterator[tuple[Convention, str, ReplayResult]]:
        for convention, by_policy in self.results.items():
            for policy, result in by_policy.items():
                yield convention, policy, result


def plan_trace(  # noqa: PLR0913 - one argument per question of the command
    trace: Trace | JobTable,
    *,
    policy: str = "weave",
    baselines: Sequence[str] = (),
    cluster: Cluster = DEFAULT_CLUSTER,
    limits: Limits = _LIMITS,
    placer: PlacerParams = _PLACER,
    repack: RepackParams = _REPACK,
    colocated_factor: float = 1.0,
    fleet: Fleet | None = None,
    queue: QueueRule = "fifo",
    durations: Convention = "work",
    seeds: Sequence[int] = (0,),
    check: bool = True,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> PlanReport:
    """Replay a trace under a policy and its baselines, by both duration conventions.

    Parameters
    ----------
    trace : Trace or JobTable
        From :func:`read_trace`, or jobs made in Python (:func:`jobs_from_frame`, a generator).
    policy : str
        Main policy; see ``planner.policies.registry.POLICIES``.
    baselines : sequence of str
        Policies to set beside it.
    cluster, limits, placer, repack, colocated_factor
        The cluster, group limits, the placer's parameters, when ``repack`` moves jobs, and the
        iteration time of a co-located job over its solo time.
    fleet : Fleet, optional
        Nodes there are, with nothing to rent: jobs wait. Without one all nodes are rented.
    queue : {"fifo", "backfill"}
        Who may start while the first in the queue for the fleet waits.
    durations : {"work", "wallclock"}
        Which convention's plan to keep; figures are computed for both.
    seeds : sequence of int
        Seeds of policies that draw (``random``): one replay each.
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
        For an unknown policy, queue or convention, no seed, or a policy that cannot keep to a
        fleet.
    InfeasibleError
        When a job cannot run even alone, or is larger than the fleet.
    CheckError
        When a policy that promises valid plans breaks a rule.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> trace = read_trace(catalog_path("tiny-open-shop"))
    >>> report = plan_trace(trace, baselines=["solo"])
    >>> round(report.saving("solo", "wallclock"), 2)
    2.0
    """
    if isinstance(trace, JobTable):
        trace = Trace(name="jobs", sha256=None, jobs=trace)
    names = tuple(dict.fromkeys((policy, *baselines)))
    for name in names:
        require_policy(name)
    require_convention(durations)
    require_seeds(seeds)
    options = PolicyOptions(
        cluster=cluster,
        limits=limits,
        placer=placer,
        repack=repack,
        colocated_factor=colocated_factor,
        seed=seeds[0],
        clock=clock,
        fleet=fleet,
        queue=queue,
    )
    results: dict[Convention, dict[str, ReplayResult]] = {}
    replicas: dict[Convention, dict[str, tuple[ReplayResult, ...]]] = {}
    seconds: dict[str, float] = {}
    for convention in DURATION_CONVENTIONS:
        results[convention], replicas[convention] = {}, {}
        for name in names:
            label = f"{convention}/{name}"
            began = clock() if clock else 0.0
            draws = make_policy(name, options).uses_seed
            runs = []
            for seed in seeds if draws else seeds[:1]:
                result = replay(
                    trace.jobs,
                    name,
                    dataclasses.replace(options, seed=seed),
                    convention=convention,
                    check=check,
                    progress=None if progress is None else _labelled(progress, label),
                )
                keep = (convention, name, seed) == (durations, policy, seeds[0])
                runs.append(result if keep else result.without_plan())
            if clock:
                seconds[label] = clock() - began
            results[convention][name] = runs[0]
            if draws:
                replicas[convention][name] = tuple(runs)
    return PlanReport(
        trace=trace,
        options=options,
        policy=policy,
        baselines=names[1:],
        primary=durations,
        results=results,
        replicas=replicas,
        seeds=tuple(seeds),
        seconds=seconds,
    )


def require_seeds(seeds: Sequence[int]) -> None:
    """Raise InputError unless there are seeds, all different, none negative."""
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise InputError(f"Expected distinct seeds >= 0, at least one, got {list(seeds)}.")


def _usd_total(result: ReplayResult) -> float:
    return result.usd_total


def _labelled(progress: Progress, label: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(label, done, total)
