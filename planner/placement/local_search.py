"""Local search over valid plans of a snapshot, from any plan to a cheaper one.

What is held is always a valid plan: the checker has passed it. Two ways to look for a cheaper
one, by the kind of snapshot:

* single-node jobs with one iteration per period: annealing of job moves by loads alone, its
  groups then scheduled, or repaired, before they are held (:mod:`planner.placement.load_search`);
* any other snapshot: ruin and recreate, related groups taken apart and built anew by the
  placer (:mod:`planner.placement.ruin_search`).

Both re-solve small neighbourhoods exactly (:mod:`planner.placement.neighbourhoods`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Protocol

from instances.errors import CheckError, InfeasibleError, InputError
from instances.plan import Plan
from models.backends.interrupt import Interrupt
from models.loads.load_plan import is_for
from models.problem.options import Deadline, OutOfTimeError, Progress
from models.problem.result import proved
from models.problem.snapshot import PlacedGroup, Snapshot, groups_of, plan_of, solo_group
from planner.output.ctrl_c import CtrlC
from planner.placement.held_plan import HeldPlan
from planner.placement.load_search import LoadSearch
from planner.placement.ruin_search import RuinSearch
from planner.placement.search_params import LocalSearchParams
from planner.placement.warm_start import warm_start

__all__ = [
    "LocalSearchParams",
    "LocalSearchResult",
    "MaxIterations",
    "MaxSeconds",
    "NoImprovement",
    "SearchState",
    "StoppingRule",
    "local_search",
]

_POLICY: Final = "local-search"
_DEFAULTS: Final = LocalSearchParams()


# --- when to stop -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchState:
    """What stopping rules look at.

    Attributes
    ----------
    iterations : int
        Moves attempted, or ruins.
    since_better : int
        Of these, how many since the plan held was found.
    seconds : float
    usd : float
        Price of the plan held, $/h.
    bound_usd : float or None
    """

    iterations: int
    since_better: int
    seconds: float
    usd: float
    bound_usd: float | None


class StoppingRule(Protocol):
    """When a search ends."""

    @property
    def name(self) -> str:
        """What ``stopped_by`` says."""
        ...

    def share(self, state: SearchState) -> float:
        """Return the share of the search that is over, as far as is known; it ends at 1."""
        ...

    def left(self, state: SearchState) -> int | None:
        """Return how many more iterations there may be at most; ``None``: any number."""
        ...


@dataclass(frozen=True)
class MaxIterations:
    """End after so many iterations: the same plan every run."""

    iterations: int
    name: str = field(default="iterations", init=False)

    def __post_init__(self) -> None:
        _require_whole("iterations", self.iterations, 0)

    def share(self, state: SearchState) -> float:
        """Return iterations done over those allowed."""
        return state.iterations / self.iterations if self.iterations else 1.0

    def left(self, state: SearchState) -> int | None:
        """Return the iterations left."""
        return max(self.iterations - state.iterations, 0)


@dataclass(frozen=True)
class MaxSeconds:
    """End after so many seconds."""

    seconds: float
    name: str = field(default="seconds", init=False)

    def __post_init__(self) -> None:
        if not (isfinite(self.seconds) and self.seconds >= 0):
            raise InputError(f"Expected seconds >= 0, got {self.seconds!r}.")

    def share(self, state: SearchState) -> float:
        """Return seconds spent over those allowed."""
        return state.seconds / self.seconds if self.seconds else 1.0

    def left(self, state: SearchState) -> int | None:
        """Return nothing: it counts no iterations."""
        return None


@dataclass(frozen=True)
class NoImprovement:
    """End when so many iterations in a row found nothing cheaper."""

    iterations: int
    name: str = field(default="no-improvement", init=False)

    def __post_init__(self) -> None:
        _require_whole("iterations", self.iterations, 1)

    def share(self, state: SearchState) -> float:
        """Return 1 at the end, 0 before."""
        return float(state.since_better >= self.iterations)

    def left(self, state: SearchState) -> int | None:
        """Return the iterations left if none finds anything."""
        return max(self.iterations - state.since_better, 0)


def _require_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"Expected {name} a whole number >= {least}, got {value!r}.")


# --- the search ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LocalSearchResult:
    """What a search found.

    Attributes
    ----------
    plan : Plan
        Checked and re-costed.
    groups : tuple of PlacedGroup
        The same, as exact methods hold it.
    usd_per_hour, start_usd : float
        Price of the plan, and of the one it started from, $/h.
    iterations : int
        Moves attempted, or ruins.
    accepted : int
        Plans held one after the other, each cheaper than the last.
    seconds : float
    stopped_by : str
        Name of the stopping rule, ``deadline``, ``optimal`` (the bound is reached) or
        ``interrupt``.
    trajectory : tuple of (int, float)
        Iterations, and the price of each plan held from then on, $/h.
    """

    plan: Plan
    groups: tuple[PlacedGroup, ...]
    usd_per_hour: float
    start_usd: float
    iterations: int
    accepted: int
    seconds: float
    stopped_by: str
    trajectory: tuple[tuple[int, float], ...]


class _Engine(Protocol):
    """A way to look for cheaper plans."""

    iterations: int

    def round(self, share: float, left: int | None) -> None:
        """Look for a while, at most ``left`` iterations; offer what is found to the plan held."""
        ...


def local_search(
    snapshot: Snapshot,
    start: Plan | Sequence[PlacedGroup] | None = None,
    params: LocalSearchParams = _DEFAULTS,
    stop: StoppingRule | Sequence[StoppingRule] = (),
    *,
    seed: int,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
    bound_usd: float | None = None,
) -> LocalSearchResult:
    """Return a valid plan at most as dear as the one it starts from.

    Parameters
    ----------
    start : Plan or sequence of PlacedGroup, optional
        A valid plan of the snapshot; left out: the placer's plan, or every job alone where the
        placer has none within the fleet caps.
    stop : StoppingRule or sequence of them
        The first that is met ends the search; without any, ``deadline``, the bound or Ctrl-C.
    seed : int
        Same input, seed and limit on iterations: same plan.
    deadline : Deadline, optional
    progress : callable, optional
        Called with a label that says cost, bound and ratio, and with the share done, %.
    bound_usd : float, optional
        Proved bound, $/h.

    Raises
    ------
    InputError
        When the start is not a valid plan of the snapshot, or an argument is out of its range.
    InfeasibleError
        Without a start: when neither the placer's plan nor jobs alone are valid.

    Examples
    --------
    >>> from instances.generate import production
    >>> snapshot = Snapshot(table=production(n_jobs=12, seed=0))
    >>> found = local_search(snapshot, stop=MaxIterations(20_000), seed=0)
    >>> found.usd_per_hour <= found.start_usd, found.stopped_by
    (True, 'iterations')
    """
    _require_whole("seed", seed, 0)
    rules: tuple[StoppingRule, ...] = tuple(stop) if isinstance(stop, Sequence) else (stop,)
    if bound_usd is not None and not (isfinite(bound_usd) and bound_usd >= 0):
        raise InputError(f"Expected bound_usd >= 0, got {bound_usd!r}.")
    clock = deadline or Deadline(time.monotonic, None)
    began = clock.elapsed_s
    groups = _start(snapshot, start)
    held = HeldPlan(snapshot, groups)
    engine: _Engine | None = None
    seconds = 0.0
    with CtrlC() as ctrl_c:
        try:
            ends = _ends(rules, clock, ctrl_c)
            kind = LoadSearch if is_for(snapshot) else RuinSearch
            engine = kind(snapshot, held, params, seed, ends)
            while True:
                seconds = clock.elapsed_s - began
                state = _state(held, engine.iterations, seconds, bound_usd)
                if progress is not None:
                    progress(*_report(state, rules, clock))
                ctrl_c.check()
                stopped_by = _over(state, rules, clock)
                if stopped_by is not None:
                    break
                allowed = [n for rule in rules if (n := rule.left(state)) is not None]
                with suppress(OutOfTimeError):  # the state says which limit it was
                    engine.round(_share(state, rules, clock), min(allowed, default=None))
        except KeyboardInterrupt:
            stopped_by = "interrupt"
    with Interrupt() as late:  # what is held comes out whole, however often Ctrl-C is pressed
        plan = plan_of(snapshot, held.groups, _POLICY)
    return LocalSearchResult(
        plan=plan,
        groups=held.groups,
        usd_per_hour=plan.usd_total,
        start_usd=held.trajectory[0][1],
        iterations=0 if engine is None else engine.iterations,
        accepted=len(held.trajectory) - 1,
        seconds=seconds,
        stopped_by="interrupt" if late.hit else stopped_by,
        trajectory=held.trajectory,
    )


def _start(
    snapshot: Snapshot, start: Plan | Sequence[PlacedGroup] | None
) -> tuple[PlacedGroup, ...]:
    """Return the groups of a start, checked."""
    if isinstance(start, Plan):
        return groups_of(snapshot, start)
    if start is not None:
        try:
            plan_of(snapshot, start, _POLICY)
        except CheckError as error:
            raise InputError(f"The start is not a valid plan of this snapshot: {error}") from None
        return tuple(start)
    plan = warm_start(snapshot)
    if plan is not None:
        return groups_of(snapshot, plan)
    solo = tuple(solo_group(snapshot, member) for member in range(len(snapshot)))
    try:
        plan_of(snapshot, solo, _POLICY)
    except CheckError:
        raise InfeasibleError(
            "Expected a plan to start from, got none: neither the placer's plan nor every job "
            "alone is within the limits, host DRAM and fleet caps."
        ) from None
    return solo


class _Ends(Deadline):
    """The deadline of an engine; asked, it raises a Ctrl-C that a finishing solver took."""

    def __init__(self, clock: Deadline, time_limit_s: float | None, ctrl_c: CtrlC) -> None:
        super().__init__(lambda: clock.elapsed_s, time_limit_s)
        self._ctrl_c = ctrl_c

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        self._ctrl_c.check()
        return super().expired


def _ends(rules: Sequence[StoppingRule], clock: Deadline, ctrl_c: CtrlC) -> Deadline:
    """Return the deadline of the engines: the clock's, or a rule's where that is earlier."""
    limits = [rule.seconds for rule in rules if isinstance(rule, MaxSeconds)]
    left = clock.remaining_s()
    if left is not None:
        limits.append(left)
    return _Ends(clock, min(limits, default=None), ctrl_c)


def _state(held: HeldPlan, iterations: int, seconds: float, bound_usd: float | None) -> SearchState:
    """Return what rules look at; what is held next is of this moment."""
    held.iterations = iterations
    return SearchState(
        iterations=iterations,
        since_better=iterations - held.trajectory[-1][0],
        seconds=seconds,
        usd=held.usd,
        bound_usd=bound_usd,
    )


def _share(state: SearchState, rules: Sequence[StoppingRule], clock: Deadline) -> float:
    """Return the share of the search that is over, as far as is known."""
    shares = [rule.share(state) for rule in rules]
    left = clock.remaining_s()
    if left is not None:
        shares.append(state.seconds / (state.seconds + left) if left > 0 else 1.0)
    return min(max(shares, default=0.0), 1.0)


def _over(state: SearchState, rules: Sequence[StoppingRule], clock: Deadline) -> str | None:
    """Return what ends the search now, if anything does."""
    for rule in rules:
        if rule.share(state) >= 1:
            return rule.name
    if clock.expired:
        return "deadline"
    return "optimal" if proved(state.usd, state.bound_usd) else None


def _report(
    state: SearchState, rules: Sequence[StoppingRule], clock: Deadline
) -> tuple[str, int, int]:
    words = f"local search: ${state.usd:,.2f}/h"
    if state.bound_usd:
        words += f", bound ${state.bound_usd:,.2f}/h, ratio {state.usd / state.bound_usd:.4f}"
    return words, int(100 * _share(state, rules, clock)), 100
