"""The whole snapshot problem solved by OR-Tools CP-SAT on a time grid
(:mod:`models.exact.cpsat_model`).

The time grid
-------------
Whole multiples of ``options.grid_s``. For a *bound*, durations round down and periods up; for a
*plan*, durations up and periods down. Every timing rule is ``x_v - x_u >= w - h C`` with ``w
>= 0`` and an integer ``h``; a group's rates and its longest period ``D = min_j k_j D_j`` are
found in seconds.

* Bound: scale a valid schedule to ``D`` and on to ``u C'``, ``C' = ceil(D / u)`` (no rule
  breaks, as ``w >= 0``), then round all starts down to multiples of ``u``. As ``C'`` is whole,
  ``floor(x_v) >= floor(x_u + w - h C') >= floor(x_u) + floor(w) - h C'``. So every valid plan
  is a solution at the same cost, and the least cost of the solutions is a bound.
* Plan: a solution with ``ceil(w)`` and ``floor(D / u)`` is a schedule as it stands.

The bound is solved first, and its solution *lifted*: the period of its orders and turns is
computed in seconds. Where every group meets its deadline so, that plan costs what the bound
says and is optimal; always so when all data are multiples of the grid. Else the plan is solved
too, and if the two costs differ the grid is halved, a few times; then the interval is reported.
A job alone is admitted in seconds, never by the grid. Periods have at most 2^30 units (the grid
is coarsened for longer deadlines): far above, the solver's presolve was seen to cut off
solutions (:mod:`models.group.cyclic_cpsat`).

The plan held from the start, a warm start or each job alone, is kept until a cheaper one is
found, but not shown to the solver: a hint and a cutoff at its cost were measured to slow the
search down (one snapshot of 30 jobs: 3 s without, no proof in 30 s with).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from instances.errors import InputError, UnsupportedError
from models.backends.cp_sat import Answer, Status, run
from models.bounds.volume import volume
from models.exact.cpsat_data import Data
from models.exact.cpsat_model import Literal, Model, Node, build
from models.group.cpsat_turns import turn_of
from models.group.cyclic_cpsat import DEADLINE_REL, least_of_positions
from models.group.period import construct
from models.problem.group_shape import GroupShape, Pins
from models.problem.options import OutOfTimeError, SolveOptions
from models.problem.result import (
    Result,
    SolverInfo,
    StoppedBy,
    first_incumbent,
    proved,
    result_of,
    usd_of,
)
from models.problem.snapshot import PlacedGroup, Snapshot, placed, solo_group

__all__ = ["METHOD", "MOST_JOBS", "MOST_JOBS_WITH_RATES", "solve"]

METHOD: Final = "cpsat"
#: Jobs beyond which the model, of pairs of jobs, is refused.
MOST_JOBS: Final = 200
#: The same where ``max_rate`` is above 1: pairs of iterations, and more labels of groups.
MOST_JOBS_WITH_RATES: Final = 60
#: How often the grid is halved before the interval is reported.
_HALVINGS: Final = 10
#: Largest number of time units in a period.
_MOST_UNITS: Final = 2**30
#: Above this many jobs one strategy of the solver seldom suffices: it takes turns with others.
_ONE_STRATEGY: Final = 16


def solve(snapshot: Snapshot, options: SolveOptions) -> Result:
    """Return the least-cost plan of a snapshot, or what is known at a limit or Ctrl-C.

    Raises
    ------
    InputError
        When the warm start is not a valid plan of the snapshot, or the solver refuses an option.
    UnsupportedError
        Beyond ``MOST_JOBS`` jobs, or ``MOST_JOBS_WITH_RATES`` with ``max_rate`` above 1.
    """
    _require_supported(snapshot)
    search = _Search(snapshot, options)
    try:
        search.run()
    except OutOfTimeError:
        search.stopped_by = StoppedBy.TIME
    except KeyboardInterrupt:
        search.stopped_by = StoppedBy.INTERRUPT
    return search.result()


def _require_supported(snapshot: Snapshot) -> None:
    """Refuse more jobs than the model can be built for."""
    rate = snapshot.limits.max_rate
    most = MOST_JOBS if rate == 1 else MOST_JOBS_WITH_RATES
    if len(snapshot) > most:
        with_rates = "" if rate == 1 else f" with max_rate {rate}"
        raise UnsupportedError(
            f"Expected at most {most} jobs for method {METHOD}{with_rates}, got {len(snapshot)}: "
            "use method set-partition."
        )


class _Search:
    """What is held and proved, and the grids tried so far."""

    def __init__(self, snapshot: Snapshot, options: SolveOptions) -> None:
        self.snapshot = snapshot
        self.options = options
        self.clock = options.start()
        self.held = first_incumbent(snapshot, options)
        self.bound_usd = self._volume_usd()
        self.claimed_usd: float | None = None
        self.stopped_by: StoppedBy | None = None
        self.infeasible = False
        self.solver: SolverInfo | None = None
        self.work = 0.0
        self.counts = dict.fromkeys(("solves", "variables", "conflicts", "halvings"), 0)
        self.seconds = dict.fromkeys(("build", "solve", "lift"), 0.0)

    def run(self) -> None:
        """Bound and plan on ever finer grids until they agree."""
        if self.settled():
            return
        most_rate = self.snapshot.limits.max_rate
        longest = most_rate * max(job.deadline_s for job in self.snapshot.jobs)
        coarsest = longest / _MOST_UNITS
        unit = max(self.options.grid_s, coarsest)
        for halvings in range(_HALVINGS + 1):
            self.counts["halvings"] = halvings
            if self.options.progress is not None:
                self.options.progress("time grids", halvings, _HALVINGS + 1)
            for for_bound in (True, False):
                self._solve_on(unit, for_bound=for_bound)
                if self.settled() or self.stopped_by is not None:
                    return
            unit /= 2
            if unit < coarsest:
                break
        self.stopped_by = StoppedBy.GRID

    def result(self) -> Result:
        """Return the result as it stands."""
        return result_of(
            self.snapshot,
            self.options,
            METHOD,
            groups=self.held,
            bound_usd=None if self.infeasible else self.bound_usd,
            stopped_by=self.stopped_by,
            claimed_usd=self.claimed_usd,
            infeasible=self.infeasible,
            solver=self.solver,
            counts=self.counts,
            seconds=self.seconds,
        )

    def settled(self) -> bool:
        """Whether nothing is left to prove."""
        return self.infeasible or proved(self._held_usd, self.bound_usd)

    @property
    def _held_usd(self) -> float | None:
        return None if self.held is None else usd_of(self.snapshot, self.held)

    def _volume_usd(self) -> float:
        snapshot = self.snapshot
        bound = volume(snapshot.table, snapshot.cluster, snapshot.limits)
        held = self._held_usd
        return bound.usd_per_hour if held is None else min(bound.usd_per_hour, held)

    def _solve_on(self, unit_s: float, *, for_bound: bool) -> None:
        """Solve on one grid, in one direction of rounding, and take what it gives."""
        with self._timed("build"):
            data = Data.of(self.snapshot, unit_s, for_bound=for_bound)
            model = build(data, self.snapshot, self.clock)
        with self._timed("solve"):
            answer = self._answer(model)
        self.stopped_by = answer.stopped_by
        if answer.status is Status.INFEASIBLE and for_bound:
            if self.held is None:
                self.infeasible = True
            else:  # valid by the checker's tolerance alone, so nothing is cheaper
                self._raise_bound(math.inf)
        if answer.objective is None or answer.bound is None:
            return
        if for_bound:
            self._raise_bound(float(answer.bound / data.per_usd))
            if self.settled():
                return
        with self._timed("lift"):
            groups = _lifted(self.snapshot, data, model, answer)
        if groups is None:
            return
        held = self._held_usd
        if held is None or usd_of(self.snapshot, groups) < held:
            self.held = groups
            self.claimed_usd = float(answer.objective / data.per_usd)

    def _raise_bound(self, usd: float) -> None:
        held = self._held_usd
        # The plan held may be valid only by the checker's tolerance, and cheaper than the bound.
        self.bound_usd = max(self.bound_usd, usd if held is None else min(usd, held))

    def _answer(self, model: Model) -> Answer:
        options = self.options
        answer = run(
            model.cp,
            seconds=self.clock.remaining_s(),
            work=None if options.work_limit is None else max(options.work_limit - self.work, 0.0),
            threads=options.threads,
            seed=options.seed,
            parameters={"interleave_search": True} if len(self.snapshot) > _ONE_STRATEGY else None,
        )
        self.solver = answer.info
        self.work += answer.work
        self.counts["solves"] += 1
        self.counts["conflicts"] += answer.conflicts
        self.counts["variables"] = len(model.cp.proto.variables)
        return answer

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        began = self.clock.elapsed_s
        try:
            yield
        finally:
            self.seconds[step] += self.clock.elapsed_s - began


def _lifted(
    snapshot: Snapshot, data: Data, model: Model, answer: Answer
) -> tuple[PlacedGroup, ...] | None:
    """Return the groups of a solution with periods in seconds; ``None`` when one is too long."""
    members: dict[int, list[int]] = {}
    for (j, label), literal in model.group.items():
        if answer.value(literal):
            members.setdefault(label, []).append(j)
    pins: list[dict[int, list[Node]]] = [{}, {}]
    for pool in (0, 1):
        for (j, i, k), literal in model.pin[pool].items():
            if answer.value(literal):
                pins[pool].setdefault(j, []).append((i, k))
    out = []
    for label, ranks in members.items():
        if len(ranks) == 1:
            out.append(solo_group(snapshot, data.order[ranks[0]]))
            continue
        rates = {j: data.rate[j, label] for j in ranks}
        group = _lifted_group(data, model, answer, rates, pins)
        if group is None:
            return None
        out.append(group)
    return tuple(out)


def _lifted_group(
    data: Data,
    model: Model,
    answer: Answer,
    rates: Mapping[int, int],
    pins: Sequence[dict[int, list[Node]]],
) -> PlacedGroup | None:
    """Return a group with the least period of its orders and turns, if that meets its SLOs.

    Parameters
    ----------
    rates : mapping of int to int
        ``k_j`` of each member, by rank.
    """
    limit = min(rate * data.jobs[j].deadline_s for j, rate in rates.items())
    ranks = sorted(rates, key=lambda j: data.order[j])
    numbered: list[list[Pins]] = []
    for pool in (0, 1):
        number = {
            node: at for at, node in enumerate(sorted({n for j in ranks for n in pins[pool][j]}))
        }
        numbered.append([tuple(sorted(number[n] for n in pins[pool][j])) for j in ranks])
    shape = GroupShape.of(
        [data.jobs[j] for j in ranks], numbered[0], numbered[1], [rates[j] for j in ranks]
    )

    def positions(of: Sequence[Sequence[Literal]]) -> list[list[int]]:
        return [[answer.value(at) for at in of[j][: rates[j]]] for j in ranks]

    try:
        found = least_of_positions(
            shape,
            positions(model.rollout),
            positions(model.train),
            [_turns(data, model, answer, j, rates[j]) for j in ranks],
        )
    except InputError:  # phases below one unit, in an order that contradicts itself
        found = None
    if found is None or found.period_s > limit * (1 + DEADLINE_REL):
        found = construct(shape, limit_s=limit)
    if found is None:
        return None
    return placed([data.order[j] for j in ranks], (numbered[0], numbered[1]), found)


def _turns(data: Data, model: Model, answer: Answer, j: int, rate: int) -> list[int]:
    """Return the turns of a job's trains at this rate, at most that of the model."""
    turns = [turn_of(answer, turn) for turn in model.turn[j]]
    return turns[:rate] if data.lag[j] > 1 else [*[0] * (rate - 1), turns[-1]]
