"""The whole snapshot problem as one compact MILP: the readable statement, for small snapshots.

Time is counted in *turns*: fractions of the period of the job's own group. In turns every
circle has length 1, so no big-M exceeds 2.

Sets and parameters (:mod:`models.exact.milp_parameters`)
---------------------------------------------------
``J``
    jobs by their index in the snapshot, *ranked* by ``(D_j, j)``.
``P in {R, T}``
    pools: ``R`` rollout, ``T`` train. Seconds: ``p^P_j`` run, ``w^P_j`` switch, ``s_j`` sync,
    ``T_j = p^R_j + p^T_j + s_j`` alone, ``D_j`` deadline. ``a^P_j`` nodes held at once, ``m^P_j``
    GB of state per node; ``M^P`` GB of DRAM of a node, ``c^P`` its price in $/h.
``B, N^P, F^P``
    most jobs in a group, nodes of a pool in a group, nodes of a pool in the fleet.
``g in J``
    also names a group: the one that ``g`` *leads*, as its member of the lowest rank.
``C_g = D_g``
    seconds of a turn of that group.
``J(g)``, ``G(j)``
    jobs that ``g`` may lead: ``g`` itself and, unless ``B = 1``, every ``j`` of higher rank with
    ``T_j <= C_g``. Leaders that ``j`` may have: all ``g`` with ``j in J(g)``.
``n = 0, 1, ...``
    nodes of one group in one pool; ``j`` may use those below ``reach^P_jg``, the least of
    ``N^P`` and ``a^P_g + a^P_j`` + the ``B - 2`` greatest widths of jobs in ``J(g)`` ranked between
    the two; ``reach^P_gg = min(N^P, a^P_g)``.

*Choosing the leader is choosing the period.* A group is decided at the least deadline of its
members (a longer period never hurts, all starts can be scaled), which is its leader's: so
``C_g`` is a constant, and the SLO holds because a member with an earlier deadline would be the
leader. A partition of the jobs has exactly one set of leaders (asymmetric representatives). A
job with ``T_j > C_g`` does not fit into one turn of ``g``, hence ``J(g)``.

Variables (:func:`variables`)
-----------------------------
``x_jg in {0,1}``
    ``j`` is in the group of ``g``; ``x_gg``: that group exists.
``z^P_jgn in {0,1}``
    ``j`` is pinned to node ``n`` of pool ``P`` of the group of ``g``.
``u^P_gn in {0,1}``
    that node exists.
``b^P_ij in {0,1}`` (``before``)
    ``i`` and ``j`` share a node, and within the turn ``i`` starts first. Both orders of every pair
    of jobs that may have a leader in common.
``e^P_j in [0,1]`` (``shares``), ``y^P_jg in [0,1]`` (``pays``)
    ``j`` shares a node; it pays its switch in the group of ``g``. Only where ``w^P_j > 0``.
``f^P_j in [0, f*^P_j]`` (``turns``)
    turns of the phase; ``f*^P_j = min(1, max_{g in G(j)} (p^P_j + w^P_j) / C_g)``, since a phase
    longer than a turn fits on no circle.
``v^P_j in [0,1]`` (``at``)
    start of the phase within the turn; 1 is the same moment as 0.
``h_j in {0,1}`` (``lap``)
    train starts at ``v^T_j + h_j``, in the turn of its rollout or in the next one. No later: it
    ends before the next rollout, which starts at ``v^R_j + 1 <= 2``. Of a *one-step* job, whose
    train ends before the next rollout but one, ``h_j in {0,1,2}``: ``h_j`` is ``lap`` and
    ``lap_more`` added, both binary.

Constraints, by function
------------------------
===================  ==================================================================
:func:`assign`       ``sum_{g in G(j)} x_jg = 1``
:func:`leader`       ``x_jg <= x_gg``
:func:`group_size`   ``sum_{j in J(g)} x_jg <= B x_gg``
:func:`gang`         ``sum_n z^P_jgn = a^P_j x_jg``
:func:`node_open`    ``z^P_jgn <= u^P_gn``
:func:`node_used`    ``u^P_gn <= sum_j z^P_jgn``
:func:`fleet_caps`   ``sum_{g,n} u^P_gn <= F^P``
:func:`residency`    ``sum_j (m^P_j / M^P) z^P_jgn <= u^P_gn``
:func:`sharing`      ``b^P_ij + b^P_ji >= z^P_ign + z^P_jgn - 1``
:func:`one_order`    ``b^P_ij + b^P_ji <= 1``
:func:`switches`     ``e^P_i >= b^P_ij + b^P_ji``  and  ``y^P_jg >= x_jg + e^P_j - 1``
:func:`duration`     ``f^P_j = sum_{g in G(j)} (p^P_j x_jg + w^P_j y^P_jg) / C_g``
:func:`precedence`   ``v^T_j + h_j >= v^R_j + f^R_j``  and
                     ``v^R_j + l_j >= v^T_j + h_j + f^T_j + sum_{g in G(j)} (s_j / C_g) x_jg``,
                     ``l_j`` 1, or 2 of a one-step job
:func:`no_overlap`   ``v^P_j >= v^P_i + f^P_i - (1 + f*^P_i) (1 - b^P_ij)``  and
                     ``v^P_i + 1 >= v^P_j + f^P_j - f*^P_j (1 - b^P_ij)``
===================  ==================================================================

Node limits ``N^P`` are in ``reach``. With ``b^P_ij = 1`` the two rows of :func:`no_overlap` say
that ``j`` starts after ``i`` ends, and ends before ``i`` starts again: disjoint arcs of a circle.
With ``b^P_ij = 0`` they must not bind, and no smaller big-M does that: with starts in
``[0, 1]``, ``v_i + f_i - v_j`` reaches ``1 + f*_i`` and ``v_j + f_j - v_i - 1`` reaches ``f*_j``.

``b``, ``e`` and ``y`` are bounded below only (``b`` but for :func:`one_order`). Where one exceeds
what the pins ask for, phases are put in order or lengthened without need: that lets nothing
invalid in, and the exact values are always allowed. So ``e`` and ``y`` may be continuous.

Implied, for the linear relaxation
----------------------------------
:func:`node_load`: ``sum_j (p^P_j / C_g) z^P_jgn <= u^P_gn``. Disjoint arcs on a circle of length
1 sum to at most 1. It carries the volume bound; without it HiGHS took up to ten times longer.

Symmetry broken
---------------
=========================  ============================================================
:func:`first_appearance`   ``z^P_jgn <= sum_i z^P_ig(n-1)``, ``i in J(g)`` up to ``j`` by rank
:func:`connected`          ``sum_{P,n} u^P_gn <= sum_j (a^R_j + a^T_j - 1) x_jg + x_gg``
:func:`anchor`             ``v^R_g <= 1 - x_gg``
:func:`alike`              ``x_jg <= sum_h x_ih``, ``h in G(i)`` up to ``g`` by rank, and
                           ``b^R_ji = 0``; ``j`` the next after ``i`` of jobs with equal data
=========================  ============================================================

One optimal plan meets them all at once. Choose, in this order:

1. the partition: among optimal plans one with the most groups, and among those that differ
   only in which of the jobs with equal data is where, the one whose leaders, read job by job
   in order of rank, are lexicographically first by rank. Every group is *connected*: if its
   graph, jobs and nodes with an edge per pin, fell apart, the parts would be groups of the same
   total cost. A connected graph of ``k`` jobs and ``m`` nodes has at least ``k + m - 1`` edges,
   which is the row. If ``j`` came after ``i``, of equal data, and had a leader of lower rank,
   exchanging the two would bring that leader, or ``i`` itself, to ``i`` and change no job
   ranked before ``i`` for the worse: so the first row of :func:`alike` holds;
2. the circle: turned until the leader's rollout starts at 0, in groups of jobs with equal data
   those exchanged so that their rollouts start in order of rank. The leader, first of its kind
   by rank, may be the one at 0. So ``b^R_ji = 0``;
3. the nodes: numbered in the order in which members, by rank, first use them. Then node
   ``n - 1`` is used by the same member or an earlier one whenever ``n`` is, and nobody reaches
   past the sum of widths up to its own: the leader holds nodes ``0 .. a_g - 1``, nodes in use
   are the first ones;
4. the rest: ``h_j`` the turn of the train, ``b^P_ij = 1`` for just the pairs that share a node,
   in order of their starts, ``e`` and ``y`` exact.

Objective (:func:`cost`)
------------------------
``min sum_P c^P sum_{g,n} u^P_gn``, $/h. :func:`node_used` keeps nodes honest where a price is 0.

Assumptions
-----------
One iteration per period, sync and one-step jobs (:class:`models.problem.snapshot.Snapshot` refuses
the rest; of one-step jobs ``T_j = max(p^R_j, p^T_j, (p^R_j + p^T_j + s_j) / 2)``), nodes of one
kind per pool. A turn, and the DRAM of a node, are 1e-7 larger than stated above: an SLO met
exactly, or a node exactly full, would leave HiGHS no room for round-off, and it was seen to call
such models infeasible. So the model is a relaxation by that much, its bound is valid, and its
starts are never used: :mod:`models.exact.milp_solution` takes pins, orders and laps from a
solution, computes exact starts, and cuts the solution off where there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import permutations
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

import pyomo.environ as pyo
from pyomo.opt import ProblemFormat

from instances.errors import InputError, UnsupportedError, did_you_mean
from models.exact.milp_parameters import POOLS, RELAXATIONS, Parameters, relaxed
from models.exact.milp_solution import Search
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Result, StoppedBy
from models.problem.snapshot import Snapshot

__all__ = ["METHOD", "MOST_JOBS", "OMISSIBLE", "build", "seek_cheaper", "solve", "write"]

METHOD: Final = "milp"
#: Jobs, and rows of :func:`sharing` (the largest family), beyond which a model is refused.
MOST_JOBS: Final = 60
_MOST_SHARING_ROWS: Final = 200_000


# --- variables and objective ------------------------------------------------------------------


def variables(m: Any, d: Parameters) -> None:
    """Declare the variables, every one of them bounded."""
    phases = [(p, j) for p in POOLS for j in d.jobs]
    switching = [(p, j) for p, j in phases if d.pool[p].switch_s[j] > 0]
    pairs = [(p, i, j) for p in POOLS for pair in d.common for i, j in permutations(pair)]
    pins = [(p, j, g, n) for p in POOLS for j, g in d.allowed for n in range(d.reach[p, j, g])]
    m.x = pyo.Var(d.allowed, domain=pyo.Binary)
    m.z = pyo.Var(pins, domain=pyo.Binary)
    m.u = pyo.Var(d.nodes, domain=pyo.Binary)
    m.before = pyo.Var(pairs, domain=pyo.Binary)
    m.shares = pyo.Var(switching, bounds=(0, 1))
    m.pays = pyo.Var([(p, j, g) for p, j in switching for g in d.leaders[j]], bounds=(0, 1))
    m.turns = pyo.Var(phases, bounds=lambda _, p, j: (0, d.longest(p, j)))
    m.at = pyo.Var(phases, bounds=(0, 1))
    m.lap = pyo.Var(d.jobs, domain=pyo.Binary)
    m.lap_more = pyo.Var([j for j in d.jobs if d.lag[j] > 1], domain=pyo.Binary)


def cost(m: Any, d: Parameters) -> None:
    """``min sum_P c^P sum_{g,n} u^P_gn``, $/h."""
    m.cost = pyo.Objective(expr=sum(d.pool[p].usd * m.u[p, g, n] for p, g, n in d.nodes))


# --- constraints: groups ----------------------------------------------------------------------


def assign(m: Any, d: Parameters) -> None:
    """``sum_g x_jg = 1``: every job is in one group."""
    m.assign = pyo.Constraint(d.jobs, rule=lambda m, j: sum(m.x[j, g] for g in d.leaders[j]) == 1)


def leader(m: Any, d: Parameters) -> None:
    """``x_jg <= x_gg``: a group has its leader as a member."""
    followers = [(j, g) for j, g in d.allowed if j != g]
    m.leader = pyo.Constraint(followers, rule=lambda m, j, g: m.x[j, g] <= m.x[g, g])


def group_size(m: Any, d: Parameters) -> None:
    """``sum_j x_jg <= B x_gg``."""
    m.group_size = pyo.Constraint(
        [g for g in d.jobs if len(d.members[g]) > d.most_jobs],
        rule=lambda m, g: sum(m.x[j, g] for j in d.members[g]) <= d.most_jobs * m.x[g, g],
    )


# --- constraints: pins and nodes --------------------------------------------------------------


def gang(m: Any, d: Parameters) -> None:
    """``sum_n z^P_jgn = a^P_j x_jg``: exactly so many nodes, of its own group."""
    m.gang = pyo.Constraint(
        [(p, j, g) for p in POOLS for j, g in d.allowed],
        rule=lambda m, p, j, g: (
            sum(m.z[p, j, g, n] for n in range(d.reach[p, j, g])) == d.pool[p].width[j] * m.x[j, g]
        ),
    )


def node_open(m: Any, d: Parameters) -> None:
    """``z^P_jgn <= u^P_gn``: a pinned node exists."""
    m.node_open = pyo.Constraint(
        list(m.z), rule=lambda m, p, j, g, n: m.z[p, j, g, n] <= m.u[p, g, n]
    )


def node_used(m: Any, d: Parameters) -> None:
    """``u^P_gn <= sum_j z^P_jgn``: a node exists only while some job is pinned to it."""
    m.node_used = pyo.Constraint(
        d.nodes,
        rule=lambda m, p, g, n: m.u[p, g, n] <= sum(m.z[p, j, g, n] for j in d.users(p, g, n)),
    )


def fleet_caps(m: Any, d: Parameters) -> None:
    """``sum_{g,n} u^P_gn <= F^P``."""
    m.fleet_caps = pyo.Constraint(
        [p for p in POOLS if d.pool[p].most_fleet is not None],
        rule=lambda m, p: (
            sum(m.u[q, g, n] for q, g, n in d.nodes if q == p) <= d.pool[p].most_fleet
        ),
    )


def residency(m: Any, d: Parameters) -> None:
    """``sum_j (m^P_j / M^P) z^P_jgn <= u^P_gn``: the state of all jobs pinned fits."""
    m.residency = pyo.Constraint(
        d.nodes,
        rule=lambda m, p, g, n: (
            sum(d.share(p, j) * m.z[p, j, g, n] for j in d.users(p, g, n)) <= m.u[p, g, n]
        ),
    )


def node_load(m: Any, d: Parameters) -> None:
    """``sum_j (p^P_j / D_g) z^P_jgn <= u^P_gn``: implied by disjointness on the circle."""
    m.node_load = pyo.Constraint(
        d.nodes,
        rule=lambda m, p, g, n: (
            sum(d.turns(d.pool[p].run_s[j], g) * m.z[p, j, g, n] for j in d.users(p, g, n))
            <= m.u[p, g, n]
        ),
    )


# --- constraints: time ------------------------------------------------------------------------


def sharing(m: Any, d: Parameters) -> None:
    """``b^P_ij + b^P_ji >= z^P_ign + z^P_jgn - 1``: who shares a node is put in order."""
    m.sharing = pyo.Constraint(
        d.meetings,
        rule=lambda m, p, i, j, g, n: (
            m.before[p, i, j] + m.before[p, j, i] >= m.z[p, i, g, n] + m.z[p, j, g, n] - 1
        ),
    )


def one_order(m: Any, d: Parameters) -> None:
    """``b^P_ij + b^P_ji <= 1``: no two phases come before each other."""
    m.one_order = pyo.Constraint(
        [(p, i, j) for p in POOLS for i, j in d.common],
        rule=lambda m, p, i, j: m.before[p, i, j] + m.before[p, j, i] <= 1,
    )


def switches(m: Any, d: Parameters) -> None:
    """``e^P_i >= b^P_ij + b^P_ji`` and ``y^P_jg >= x_jg + e^P_j - 1``: who shares, switches."""
    m.shares_node = pyo.Constraint(
        [(p, i, j) for p, i, j in m.before if (p, i) in m.shares],
        rule=lambda m, p, i, j: m.shares[p, i] >= m.before[p, i, j] + m.before[p, j, i],
    )
    m.pays_switch = pyo.Constraint(
        list(m.pays), rule=lambda m, p, j, g: m.pays[p, j, g] >= m.x[j, g] + m.shares[p, j] - 1
    )


def duration(m: Any, d: Parameters) -> None:
    """``f^P_j = sum_g (p^P_j / D_g) x_jg + (w^P_j / D_g) y^P_jg``, turns."""

    def rule(m: Any, p: str, j: int) -> Any:
        run_s, switch_s = d.pool[p].run_s[j], d.pool[p].switch_s[j]
        run = sum(d.turns(run_s, g) * m.x[j, g] for g in d.leaders[j])
        if switch_s == 0:
            return m.turns[p, j] == run
        return m.turns[p, j] == run + sum(
            d.turns(switch_s, g) * m.pays[p, j, g] for g in d.leaders[j]
        )

    m.duration = pyo.Constraint(list(m.turns), rule=rule)


def precedence(m: Any, d: Parameters) -> None:
    """Rollout, train, sync, next rollout (one-step: next but one), ``l_j`` turns after the first.

    ``v^T_j + h_j >= v^R_j + f^R_j`` and
    ``v^R_j + l_j >= v^T_j + h_j + f^T_j + sum_g (s_j / D_g) x_jg``.
    """

    def laps(m: Any, j: int) -> Any:
        return m.lap[j] + m.lap_more[j] if d.lag[j] > 1 else m.lap[j]

    m.train_after_rollout = pyo.Constraint(
        d.jobs, rule=lambda m, j: m.at["T", j] + laps(m, j) >= m.at["R", j] + m.turns["R", j]
    )
    m.rollout_after_sync = pyo.Constraint(
        d.jobs,
        rule=lambda m, j: (
            m.at["R", j] + d.lag[j]
            >= m.at["T", j]
            + laps(m, j)
            + m.turns["T", j]
            + sum(d.turns(d.sync_s[j], g) * m.x[j, g] for g in d.leaders[j])
        ),
    )


def no_overlap(m: Any, d: Parameters) -> None:
    """Phases that share a node are disjoint arcs of the circle.

    ``v^P_j >= v^P_i + f^P_i - (1 + f*^P_i)(1 - b^P_ij)`` and
    ``v^P_i + 1 >= v^P_j + f^P_j - f*^P_j (1 - b^P_ij)``.
    """
    m.starts_after = pyo.Constraint(
        list(m.before),
        rule=lambda m, p, i, j: (
            m.at[p, j]
            >= m.at[p, i] + m.turns[p, i] - (1 + d.longest(p, i)) * (1 - m.before[p, i, j])
        ),
    )
    m.ends_before_next_turn = pyo.Constraint(
        list(m.before),
        rule=lambda m, p, i, j: (
            m.at[p, i] + 1 >= m.at[p, j] + m.turns[p, j] - d.longest(p, j) * (1 - m.before[p, i, j])
        ),
    )


# --- symmetry ---------------------------------------------------------------------------------


def first_appearance(m: Any, d: Parameters) -> None:
    """``z^P_jgn <= sum of z^P_ig(n-1) over i up to j by rank``: nodes numbered as first used."""

    def rule(m: Any, p: str, j: int, g: int, n: int) -> Any:
        before = d.users(p, g, n - 1)
        before = before[: before.index(j) + 1]
        return m.z[p, j, g, n] <= sum(m.z[p, i, g, n - 1] for i in before)

    later = [(p, j, g, n) for p, j, g, n in m.z if n > 0 and j != g]
    m.first_appearance = pyo.Constraint(later, rule=rule)


def connected(m: Any, d: Parameters) -> None:
    """``sum_{P,n} u^P_gn <= sum_j (a^R_j + a^T_j - 1) x_jg + x_gg``."""

    def rule(m: Any, g: int) -> Any:
        nodes = sum(m.u[p, h, n] for p, h, n in d.nodes if h == g)
        edges = {j: sum(pool.width[j] for pool in d.pool.values()) for j in d.members[g]}
        return nodes <= sum((edges[j] - 1) * m.x[j, g] for j in d.members[g]) + m.x[g, g]

    m.connected = pyo.Constraint(d.jobs, rule=rule)


def anchor(m: Any, d: Parameters) -> None:
    """``v^R_g <= 1 - x_gg``: the leader's rollout starts the turn."""
    m.anchor = pyo.Constraint(d.jobs, rule=lambda m, g: m.at["R", g] <= 1 - m.x[g, g])


def alike(m: Any, d: Parameters) -> None:
    """``x_jg <= sum_h x_ih`` and ``b^R_ji = 0``: jobs with equal data keep to their ranks."""

    def rule(m: Any, i: int, j: int, g: int) -> Any:
        upto = d.ranked[: d.ranked.index(g) + 1]
        return m.x[j, g] <= sum(m.x[i, h] for h in upto if h in d.leaders[i])

    m.alike_leaders = pyo.Constraint(
        [(i, j, g) for i, j in d.alike for g in d.leaders[j] if g != j], rule=rule
    )
    m.alike_rollouts = pyo.Constraint(
        [pair for pair in d.alike if pair in d.common],
        rule=lambda m, i, j: m.before["R", j, i] == 0,
    )


# --- the model --------------------------------------------------------------------------------

_FAMILIES: Final[tuple[Callable[[Any, Parameters], None], ...]] = (
    *(variables, cost),
    *(assign, leader, group_size),
    *(gang, node_open, node_used, fleet_caps, residency, node_load),
    *(sharing, one_order, switches, duration, precedence, no_overlap),
    *(first_appearance, connected, anchor, alike),
)
#: What :func:`build` can leave out, and what that means.
OMISSIBLE: Final[Mapping[str, str]] = {
    "slo": "every deadline is the time all jobs take one after the other",
    "group_size": "any number of jobs in a group",
    "node_limits": "any number of nodes in a group",
    "fleet_caps": "any number of nodes",
    "gang": "one node of each pool is enough for every job",
    "residency": "jobs keep no state on nodes",
    "switches": "switches take no time",
    "precedence": "a job's phases may run at once and in any order",
    "no_overlap": "phases on a node may overlap, as long as their sum fits (node_load)",
    "node_load": "nothing, unless no_overlap is left out too",
    "first_appearance": "nothing: it breaks symmetry",
    "connected": "nothing: it breaks symmetry",
    "anchor": "nothing: it breaks symmetry",
    "alike": "nothing: it breaks symmetry",
}


def build(
    snapshot: Snapshot, *, without: Collection[str] = (), deadline: Deadline | None = None
) -> Any:
    """Return the model of a snapshot, a ``pyomo.ConcreteModel``.

    Parameters
    ----------
    without : collection of str
        Families of ``OMISSIBLE`` to leave out. The optimum with a family, less the optimum
        without it, is what that family costs; a solution without it need not be a plan.
    deadline : Deadline, optional
        Checked between families.

    Raises
    ------
    InputError
        For an unknown family.
    UnsupportedError
        When the model would be too large, or ``max_rate`` is above 1.
    OutOfTimeError
        When the time limit passes.
    """
    for name in without:
        if name not in OMISSIBLE:
            raise InputError(
                f"Expected a family in {', '.join(OMISSIBLE)}, got '{name}'."
                f"{did_you_mean(name, OMISSIBLE)}"
            )
    _require_strict(snapshot)
    _require_size(len(snapshot), "jobs", MOST_JOBS)
    d = Parameters(relaxed(snapshot, without))
    _require_size(len(d.meetings), "rows of sharing", _MOST_SHARING_ROWS)
    m = pyo.ConcreteModel(name="snapshot")
    for family in _FAMILIES:
        if deadline is not None:
            deadline.check()
        if family.__name__ not in without or family.__name__ in RELAXATIONS:
            family(m, d)
    return m


def _require_strict(snapshot: Snapshot) -> None:
    if snapshot.limits.max_rate > 1:
        raise UnsupportedError(
            f"Expected max_rate 1 for method {METHOD}, got {snapshot.limits.max_rate}: the model "
            "states one iteration per period; use method exhaustive, set-partition or cpsat."
        )


def _require_size(count: int, what: str, most: int) -> None:
    if count > most:
        raise UnsupportedError(
            f"Expected at most {most:,} {what} for method {METHOD}, got {count:,}: use method "
            "set-partition."
        )


def write(snapshot: Snapshot, path: Path, fmt: Literal["mps", "lp"]) -> None:
    """Write the model of a snapshot, with readable names; the same snapshot, the same bytes.

    Names are those of the functions and variables here. Jobs are numbers, the snapshot's order
    from 0, and the head of the file says which is which.

    Raises
    ------
    InputError
        For another format, or a snapshot without jobs.
    """
    if fmt not in ("mps", "lp"):
        raise InputError(f"Expected format mps or lp, got '{fmt}'.")
    if len(snapshot) == 0:
        raise InputError("Expected at least one job to write a model of, got none.")
    kind = ProblemFormat.mps if fmt == "mps" else ProblemFormat.cpxlp
    build(snapshot).write(str(path), format=kind, io_options={"symbolic_solver_labels": True})
    mark = "*" if fmt == "mps" else "\\"
    head = [f"{mark} job {j} is {job.job_id!a}\n" for j, job in enumerate(snapshot.jobs)]
    path.write_text("".join(head) + path.read_text(encoding="ascii"), encoding="ascii")


def seek_cheaper(m: Any, most_usd: float) -> None:
    """``sum_P c^P sum_{g,n} u^P_gn <= most``: the next price below that of the plan held.

    It stands in for a warm start, which Pyomo's interface to HiGHS has no way to pass: HiGHS
    prunes by it from the first node on, and infeasible then means that the plan held is optimal.
    """
    m.cheaper = pyo.Constraint(expr=m.cost.expr <= most_usd)


def solve(snapshot: Snapshot, options: SolveOptions) -> Result:
    """Return a least-cost plan of a small snapshot, proved by HiGHS unless a limit stops it.

    A plan is held from the start (the warm start, or every job alone where that is valid), and
    only cheaper ones are looked for; there being none proves it. ``options.threads`` is not
    used: the number of HiGHS threads is one for the whole process.

    Raises
    ------
    InputError
        When the warm start is not a valid plan of the snapshot.
    UnsupportedError
        When the model would be too large, or ``max_rate`` is above 1.
    """
    _require_strict(snapshot)
    search = Search(snapshot, options)
    try:
        if (most_usd := search.target_usd()) is not None:
            model = build(snapshot, deadline=search.deadline)
            if most_usd < inf:
                seek_cheaper(model, most_usd)
            search.run(model)
    except OutOfTimeError:
        search.stopped = StoppedBy.TIME
    except KeyboardInterrupt:
        search.stopped = StoppedBy.INTERRUPT
    return search.result(METHOD)
