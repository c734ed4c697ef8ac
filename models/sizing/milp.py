"""What to own and what to rent as a MILP over scenarios and purchase periods.

The symbols are those of :mod:`models.sizing.problem`: pools ``P``, periods ``k``, scenarios ``s``
and

``i in I^P_k``
    what demand is written in. Without leases (``B^P = 0``): the levels of pool ``P`` in period
    ``k``, all scenarios as one, ``d_i`` nodes for an expected share ``f_i = sum_s q_s h_i / H_s``
    of the time. With leases: the cells of every scenario, in time; a lease spans ``m`` of them.
``c_i``
    $/h, on average over the horizon, of one node at ``i``: ``y_k r_k f_i``; of one lease that
    starts at ``i``: ``y_k r_k q_s B / H_s``.

Variables (:func:`variables`)
-----------------------------
``x^P_k in {0, 1, ..}`` (``bought``)
    nodes bought at the start of period ``k``.
``n^P_k >= 0`` (``owned``)
    nodes owned in it.
``r_i in [0, V^P]`` (``rented``)
    nodes rented at ``i``.
``l_i >= 0`` (``leases``)
    leases that start at ``i``; with leases only.
``e >= 0`` (``uneven``)
    difference of the two pools; where evenness is asked for.

Constraints, by function
------------------------
====================  =================================================================
:func:`accumulate`    ``n^P_k = n^P_(k-1) + x^P_k``: nothing is sold
:func:`own_limit`     ``n^P_K <= U^P``
:func:`cover`         ``n^P_k + r_i >= d_i``
:func:`lease_block`   ``r_i - r_(i-1) = l_i - l_(i-m)``, that is, ``r_i`` sums the leases that
                      started in the last ``m`` cells
:func:`budget`        ``sum_P b^P_k x^P_k <= E_k``
:func:`cost_cap`      expected cost ``<=`` cap; where one is given
:func:`evenness`      ``e >= n^R_K - n^T_K`` and ``e >= n^T_K - n^R_K``; where asked for
====================  =================================================================

``V^P`` is the bound of ``r_i``. ``K`` is the last period. No pool owns more than its highest
demand: a further node would be idle for certain.

Objectives
----------
``cost`` (:func:`expected_cost`)
    ``sum_P sum_k (y_k + .. + y_K) o^P_k x^P_k + sum_i c_i (r_i or l_i)``, $/h.
``fewest-train``, ``fewest-nodes``, ``most-even``
    ``n^T_K``, ``n^R_K + n^T_K``, ``e``, under a cost cap; among the best the least cost, by a
    second solve with the first one's value as a row.

Only ``x`` must be declared whole. With ``x``, and so ``n``, fixed at whole numbers, what is left
asks ``r_i >= d_i - n`` without leases: take equality. With leases, sums of ``l`` over ``m`` cells
in a row are ``>= d_i - n`` and ``<= V``. Rows with their ones in a row form a totally unimodular
matrix, so whole right-hand sides have whole leases of least cost. A cost cap does not disturb
this: some ``l`` is within it exactly when the least-cost one is.

Many cells
----------
Leases of many scenarios make many cells: beyond ``MOST_LEASE_CELLS`` of
:mod:`models.sizing.parameters` they enter as levels that cost the same for every whole ``n``
(:meth:`models.sizing.problem.SizingProblem.lease_levels`), and :func:`lease_block` has no rows.

Assumptions
-----------
Purchases are decided before the scenario is known, renting after. A node costs its price from its
purchase to the end of the horizon, used or not. Budgets are not carried over. Budgets and cost
caps are scaled to 1 and loosened by 1e-9: one met exactly leaves room for round-off.

Every answer is checked against the limits and priced again by
:func:`models.sizing.problem.cost_of`, which knows nothing of this model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, get_args

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.numvalue import is_potentially_variable

from instances.errors import CheckError, InfeasibleError, InputError
from models.backends.pyomo_highs import Ended, Solved, options_of
from models.backends.pyomo_highs import solve as run_highs
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import SolverInfo, StoppedBy, Termination, proved
from models.sizing.parameters import Parameters
from models.sizing.problem import (
    Aim,
    Owned,
    SizingCosts,
    SizingProblem,
    breaches,
    cost_of,
    least_separable,
)

__all__ = ["Aim", "SizingProblem", "SizingResult", "build", "least_owned", "solve_sizing"]

AIMS: Final[tuple[Aim, ...]] = get_args(Aim)
#: Relative room of budgets and cost caps.
_ROOM: Final = 1e-9
#: Largest relative difference between HiGHS's objective and the price by plain arithmetic.
_AGREES: Final = 1e-6


# --- variables --------------------------------------------------------------------------------


def variables(m: Any, d: Parameters) -> None:
    """Declare the variables, every one of them bounded."""

    def rented(_: Any, a: int, i: int) -> tuple[float, float]:
        row = d.rows[a]
        peak = max(row.nodes)
        most = d.problem.pools[row.pool].max_rented
        return (0, peak if most is None else min(peak, most))

    leased = [(a, i) for a, i in d.cells if d.rows[a].per_lease]
    m.bought = pyo.Var(d.keys, domain=pyo.Integers, bounds=lambda _, p, k: (0, d.most[p]))
    m.owned = pyo.Var(d.keys, bounds=lambda _, p, k: (0, d.most[p]))
    m.rented = pyo.Var(d.cells, bounds=rented)
    m.leases = pyo.Var(leased, bounds=rented)


def expected_cost(m: Any, d: Parameters) -> Any:
    """``sum_P sum_k (y_k + .. + y_K) o^P_k x^P_k + sum_i c_i (r_i or l_i)``, $/h."""
    terms = []
    for p, k in d.keys:
        own = d.problem.pools[p].own_usd
        if own is not None:
            terms.append(d.left(k) * own[k] * m.bought[p, k])
    for a, i in d.cells:
        paid = m.leases if d.rows[a].per_lease else m.rented
        terms.append(d.rows[a].usd[i] * paid[a, i])
    return pyo.quicksum(terms)


# --- constraints ------------------------------------------------------------------------------


def accumulate(m: Any, d: Parameters) -> None:
    """``n^P_k = n^P_(k-1) + x^P_k``: nothing is sold."""
    m.accumulate = pyo.Constraint(
        d.keys,
        rule=lambda m, p, k: m.owned[p, k] == (m.owned[p, k - 1] if k else 0) + m.bought[p, k],
    )


def own_limit(m: Any, d: Parameters) -> None:
    """``n^P_K <= U^P``, or the highest demand where that is less."""
    m.own_limit = pyo.Constraint((0, 1), rule=lambda m, p: m.owned[p, d.last] <= d.most[p])


def cover(m: Any, d: Parameters) -> None:
    """``n^P_k + r_i >= d_i``."""
    m.cover = pyo.Constraint(
        d.cells,
        rule=lambda m, a, i: (
            m.owned[d.rows[a].pool, d.rows[a].k] + m.rented[a, i] >= d.rows[a].nodes[i]
        ),
    )


def lease_block(m: Any, d: Parameters) -> None:
    """``r_i - r_(i-1) = l_i - l_(i-m)``: rented is what was leased in the last ``m`` cells."""

    def rule(m: Any, a: int, i: int) -> Any:
        span = d.rows[a].per_lease
        before = m.rented[a, i - 1] if i else 0
        ended = m.leases[a, i - span] if i >= span else 0
        return m.rented[a, i] - before == m.leases[a, i] - ended

    m.lease_block = pyo.Constraint(list(m.leases), rule=rule)


def budget(m: Any, d: Parameters) -> None:
    """``sum_P b^P_k x^P_k <= E_k``, each row divided by its largest number."""
    limited = [k for k in d.problem.periods if d.problem.budget(k) is not None]

    def rule(m: Any, k: int) -> Any:
        limit = d.problem.budget(k) or 0.0
        spent = [
            (terms.capex_usd[k], m.bought[p, k])
            for p, terms in enumerate(d.problem.pools)
            if terms.capex_usd is not None and terms.own_usd is not None
        ]
        scale = max([limit, *(price for price, _ in spent)])
        if not spent or scale == 0:
            return pyo.Constraint.Skip
        extra = m.extra[k] if hasattr(m, "extra") else 0
        return (
            pyo.quicksum(price / scale * bought for price, bought in spent)
            <= limit / scale * (1 + _ROOM) + extra / scale
        )

    m.budget = pyo.Constraint(limited, rule=rule)


def cost_cap(m: Any, d: Parameters, most_usd: float) -> None:
    """Expected cost ``<= most``, divided by ``most``; nothing where all cost is 0 for certain."""
    usd = expected_cost(m, d)
    scale = most_usd or 1.0
    if is_potentially_variable(usd):
        m.cost_cap = pyo.Constraint(expr=usd / scale <= most_usd / scale + _ROOM)


def evenness(m: Any, d: Parameters) -> None:
    """``e >= n^R_K - n^T_K`` and ``e >= n^T_K - n^R_K``."""
    m.uneven = pyo.Var(bounds=(0, max(d.most)))
    m.more_rollout = pyo.Constraint(expr=m.uneven >= m.owned[0, d.last] - m.owned[1, d.last])
    m.more_train = pyo.Constraint(expr=m.uneven >= m.owned[1, d.last] - m.owned[0, d.last])


_FAMILIES: Final[tuple[Callable[[Any, Parameters], None], ...]] = (
    variables,
    *(accumulate, own_limit, cover, lease_block, budget),
)


def build(
    problem: SizingProblem,
    *,
    aim: Aim = "cost",
    most_usd: float | None = None,
    deadline: Deadline | None = None,
) -> Any:
    """Return the model, a ``pyomo.ConcreteModel`` whose objective is ``aim``.

    Raises
    ------
    UnsupportedError
        When the model would be too large.
    OutOfTimeError
        When the time limit passes; checked between families.
    """
    d = Parameters(problem)
    m = pyo.ConcreteModel(name="sizing")
    for family in _FAMILIES:
        if deadline is not None:
            deadline.check()
        family(m, d)
    if most_usd is not None:
        cost_cap(m, d, most_usd)
    if aim == "most-even":
        evenness(m, d)
    expressions: dict[Aim, Callable[[], Any]] = {
        "cost": lambda: expected_cost(m, d),
        "fewest-train": lambda: m.owned[1, d.last] + 0,
        "fewest-nodes": lambda: m.owned[0, d.last] + m.owned[1, d.last],
        "most-even": lambda: m.uneven + 0,
    }
    m.aim = pyo.Objective(expr=expressions[aim]())
    return m


# --- solving ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SizingResult:
    """What was found; pairs are (rollout, train).

    Attributes
    ----------
    aim : str
    termination : Termination
        Why it stopped; ``OPTIMAL`` proves every step of the aim.
    stopped_by : StoppedBy or None
    owned : tuple of (int, int), or None
        Nodes owned in each period; ``None`` when nothing is held.
    costs : SizingCosts or None
        Their expected cost, by plain arithmetic.
    bound_usd_per_hour : float or None
        Proved: within the limits nothing costs less, $/h; under the aim ``cost`` only.
    solver : SolverInfo or None
    """

    aim: Aim
    termination: Termination
    stopped_by: StoppedBy | None
    owned: Owned | None
    costs: SizingCosts | None
    bound_usd_per_hour: float | None
    solver: SolverInfo | None

    @property
    def usd_per_hour(self) -> float | None:
        """Expected cost, $/h."""
        return None if self.costs is None else self.costs.usd_per_hour


def _wanted(aim: Aim, owned: Owned) -> int:
    """Return what is made least before the cost is; 0 where it is the cost."""
    rollout, train = owned[-1]
    values: dict[Aim, int] = {
        "cost": 0,
        "fewest-train": train,
        "fewest-nodes": rollout + train,
        "most-even": abs(rollout - train),
    }
    return values[aim]


class _Run:
    """One answer in the making: what is held, and what stopped it."""

    def __init__(self, problem: SizingProblem, aim: Aim, deadline: Deadline) -> None:
        self.problem, self.aim, self.deadline = problem, aim, deadline
        self.held: Owned | None = None
        self.costs: SizingCosts | None = None
        self.bound: float | None = None
        self.stopped: StoppedBy | None = None
        self.solver: SolverInfo | None = None
        self.failed = False

    def hold(self, owned: Owned, most_usd: float | None) -> SizingCosts | None:
        """Return the cost of owned counts that break no limit; hold them if they are better."""
        costs = cost_of(self.problem, owned)
        dear = most_usd is not None and costs.usd_per_hour > most_usd + _AGREES * abs(most_usd)
        if dear or breaches(self.problem, owned):
            return None
        if (
            self.held is None
            or self.costs is None
            or (_wanted(self.aim, owned), costs.usd_per_hour)
            < (_wanted(self.aim, self.held), self.costs.usd_per_hour)
        ):
            self.held, self.costs = owned, costs
        return costs

    def run(self, model: Any, most_usd: float | None) -> Solved:
        """Solve, check and hold the answer; note what stopped it."""
        solved = run_highs(model, options_of(), self.deadline)
        self.solver = SolverInfo(name="HiGHS", version=solved.version, status=solved.status)
        if solved.objective is not None:
            owned = tuple(
                (round(model.owned[0, k].value), round(model.owned[1, k].value))
                for k in self.problem.periods
            )
            costs = self.hold(owned, most_usd)
            if costs is None:
                raise CheckError(
                    f"HiGHS answers {owned}, which breaks: "
                    f"{'; '.join(breaches(self.problem, owned)) or 'the cost cap'}: a fault of the "
                    "program, not of the input."
                )
        limits = {
            Ended.TIME: StoppedBy.TIME,
            Ended.NODES: StoppedBy.NODES,
            Ended.INTERRUPT: StoppedBy.INTERRUPT,
        }
        self.stopped = limits.get(solved.ended)
        if solved.interrupted:
            self.stopped = StoppedBy.INTERRUPT
        self.failed = solved.ended is Ended.FAILED
        return solved

    @property
    def going(self) -> bool:
        return self.stopped is None and not self.failed

    def result(self) -> SizingResult:
        """Return what is held, with why it ended."""
        usd = None if self.costs is None else self.costs.usd_per_hour
        if self.failed:
            termination = Termination.ERROR
        elif self.stopped is not None and not (self.aim == "cost" and proved(usd, self.bound)):
            termination = (
                Termination.NO_PLAN_LIMIT if self.held is None else Termination.FEASIBLE_LIMIT
            )
        else:
            termination, self.stopped = Termination.OPTIMAL, None
        bound = self.bound
        if bound is not None and usd is not None:
            bound = min(bound, usd)
        return SizingResult(
            aim=self.aim,
            termination=termination,
            stopped_by=self.stopped,
            owned=self.held,
            costs=self.costs,
            bound_usd_per_hour=bound,
            solver=self.solver,
        )


def solve_sizing(
    problem: SizingProblem,
    *,
    objective: Aim = "cost",
    cost_cap: float | None = None,
    deadline: Deadline | None = None,
) -> SizingResult:
    """Return the best owned counts of a problem, proved by HiGHS unless a limit stops it.

    Parameters
    ----------
    objective : {"cost", "fewest-train", "fewest-nodes", "most-even"}
        All but ``cost`` need a cap, and take the least cost among the best.
    cost_cap : float, optional
        Highest expected cost, $/h.
    deadline : Deadline, optional
        Building counts. Ctrl-C ends a solve as a limit does: ``stopped_by`` says which.

    Raises
    ------
    InputError
        For an unknown objective, one without its cap, or a cap below 0.
    InfeasibleError
        When no fleet is within the limits: says which, and by how much.
    UnsupportedError
        When the model would be too large.
    """
    if objective not in AIMS:
        raise InputError(f"Expected an objective in {', '.join(AIMS)}, got '{objective}'.")
    if objective != "cost" and cost_cap is None:
        raise InputError(f"Expected a cost_cap with the objective {objective}, got none.")
    if cost_cap is not None and not cost_cap >= 0:
        raise InputError(f"Expected cost_cap >= 0, got {cost_cap!r}.")
    problem.require_capacity()
    run = _Run(problem, objective, deadline or SolveOptions().start())
    run.hold(_least_purchases(problem), cost_cap)
    try:
        _search(run, cost_cap)
    except OutOfTimeError:
        run.stopped = StoppedBy.TIME
    except KeyboardInterrupt:
        run.stopped = StoppedBy.INTERRUPT
    return run.result()


def least_owned(problem: SizingProblem, *, deadline: Deadline | None = None) -> Owned:
    """Return the owned counts of least expected cost: closed form where it applies, else HiGHS.

    Raises
    ------
    InfeasibleError
        When no fleet is within the limits, or the time ended before one was found.
    KeyboardInterrupt
        When Ctrl-C was pressed.
    """
    owned = least_separable(problem)
    if owned is not None:
        return owned
    result = solve_sizing(problem, deadline=deadline)
    if result.stopped_by is StoppedBy.INTERRUPT:
        raise KeyboardInterrupt
    if result.owned is None:
        raise InfeasibleError("The time ended before a fleet within the limits was found.")
    return result.owned


def _search(run: _Run, most_usd: float | None) -> None:
    """Solve for the aim, then for the least cost among the best."""
    model = build(run.problem, aim=run.aim, most_usd=most_usd, deadline=run.deadline)
    solved = run.run(model, most_usd)
    if solved.ended is Ended.INFEASIBLE:
        _explain(run.problem, most_usd, run.deadline)
    if run.aim == "cost":
        run.bound = solved.bound
        _require_agreement(run, solved)
        return
    if not run.going or solved.objective is None:
        return
    model.best = pyo.Constraint(expr=model.aim.expr <= round(solved.objective))
    model.aim.deactivate()
    model.cost = pyo.Objective(expr=expected_cost(model, Parameters(run.problem)))
    if run.run(model, most_usd).ended is Ended.INFEASIBLE:
        raise CheckError("HiGHS calls what it holds infeasible: a fault of the program.")


def _require_agreement(run: _Run, solved: Solved) -> None:
    """Raise CheckError when HiGHS and plain arithmetic price the same fleet differently."""
    if solved.ended is not Ended.OPTIMAL or solved.objective is None or run.costs is None:
        return
    usd = run.costs.usd_per_hour
    if abs(solved.objective - usd) > _AGREES * max(abs(usd), 1.0):
        raise CheckError(
            f"HiGHS claims ${solved.objective:,.6f}/h for a fleet of ${usd:,.6f}/h: a fault of "
            "the program, not of the input."
        )


def _least_purchases(problem: SizingProblem) -> Owned:
    """Return what must be owned at least, bought as late as can be: held until HiGHS answers."""
    counts = np.array(
        [[problem.least_owned(k, p) for p in (0, 1)] for k in problem.periods], dtype=np.int64
    )
    return tuple((int(r), int(t)) for r, t in np.maximum.accumulate(counts, axis=0))


def _explain(problem: SizingProblem, most_usd: float | None, deadline: Deadline) -> None:
    """Raise InfeasibleError in words: the least cost, or the least budget, that would do.

    Demand, rental and ownership limits alone can be met here: :meth:`require_capacity` said so.
    """
    if problem.has_budget:
        wanting = _wanting(problem, deadline)
        if wanting:
            raise InfeasibleError(
                "No fleet meets the demand within the purchase budget: with this limit of rented "
                f"nodes, at least {' and '.join(wanting)} must be spent on nodes. Raise "
                "capex_usd or max_rented_nodes."
            )
    if most_usd is None:
        raise CheckError("HiGHS calls a problem infeasible that is not: a fault of the program.")
    least = solve_sizing(problem, deadline=deadline).usd_per_hour
    known = "" if least is None else f": the least is ${least:,.2f}/h"
    raise InfeasibleError(f"No fleet costs at most ${most_usd:,.2f}/h{known}.")


def _wanting(problem: SizingProblem, deadline: Deadline) -> list[str]:
    """Return for each budget that is too small what would do, in words: the least in all."""
    model = build_over_budget(problem)
    solved = run_highs(model, options_of(), deadline)
    if solved.interrupted:
        raise KeyboardInterrupt
    if solved.ended is Ended.TIME:
        raise InfeasibleError(
            "No fleet meets the demand within the limits of money; the time ended before finding "
            "how much would do."
        )
    words = []
    for k in model.extra:
        given, over = problem.budget(k) or 0.0, model.extra[k].value or 0.0
        if over > _AGREES * max(given, 1.0):
            needed = ceil(round(given + over, 4))  # whole $ that suffice
            words.append(
                f"${needed:,}{problem.where(k)} (${needed - given:,.0f} more than the "
                f"${given:,.0f} given)"
            )
    return words


def build_over_budget(problem: SizingProblem) -> Any:
    """Return the model whose objective is the least $ to add to the budgets, in all."""
    d = Parameters(problem)
    m = pyo.ConcreteModel(name="over-budget")
    most = {
        k: sum(
            n * terms.capex_usd[k]
            for n, terms in zip(d.most, problem.pools, strict=True)
            if terms.capex_usd is not None
        )
        for k in problem.periods
        if problem.budget(k) is not None
    }
    m.extra = pyo.Var(list(most), bounds=lambda _, k: (0, most[k]))
    for family in _FAMILIES:
        family(m, d)
    scale = max([1.0, *most.values()])
    m.aim = pyo.Objective(expr=pyo.quicksum(m.extra[k] / scale for k in most))
    return m
