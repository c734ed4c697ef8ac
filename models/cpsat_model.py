"""The whole snapshot problem stated for CP-SAT: groups, pins and cyclic schedules at once.

Sets and parameters (design sections 2 and 3; strict rates, one iteration per period)
-------------------------------------------------------------------------------------
jobs ``j``, ranked by (deadline, index); pools ``P``, rollout and train. Seconds: phases
``d_Pj``, switches ``w_Pj``, sync ``s_j``, ``T_j`` alone, deadline ``D_j``; nodes: widths
``a_Pj``; GB: states ``m_Pj``, host DRAM ``M_P``; ``$/h``: price ``c_P`` of a node; ``B`` the
largest group size, ``L_P`` the most nodes of a group, ``F_P`` of the fleet.

* A group is named by its *leader*, its first job in that ranking, so a partition of the jobs
  has one name. A group may as well iterate as slowly as its tightest SLO allows (scale all
  starts), so group ``g`` has the constant period ``C_g = D_g``, and only jobs ``j`` ranked
  after ``g`` with ``T_j <= D_g`` may join it.
* A node is named ``(i, k)`` by its *opener*, the first job pinned to it, and a slot ``k <
  a_Pi``. So there are no node numbers to permute, and no nodes of groups that do not exist.

Variables
---------
``x[j,g]`` job ``j`` is in group ``g`` (``x[g,g]``: it exists), ``busy[g]`` it has two jobs;
``pin[P,j,i,k]`` job ``j`` is pinned to node ``(i,k)`` (``j = i``: the node exists);
``pays[P,j]`` the phase pays its switch; ``b[P,i,j]`` two jobs share a node; ``o[P,i,j]`` then
``i`` comes first on the circle; ``X_j, V_j`` positions of rollout and train on the circle of
length ``C_g``; ``B_j`` the train starts in the turn after its rollout's.

Constraints
-----------
:func:`_groups` each job in one group, of at most ``B``; :func:`_pins` ``a_Pj`` nodes for each
phase; :func:`_residency` ``sum_j m_Pj pin <= M_P``; :func:`_sharing` jobs on one node are in one
group and pay; :func:`_chains` rollout, train, sync, next rollout; :func:`_order` phases that
share a node are disjoint arcs; :func:`_node_limits` ``L_P``; :func:`_fleet_caps` ``F_P``.
Implied or without loss: :func:`_loads`, :func:`_connected`, :func:`_volume`.

Objective: ``sum_P c_P sum_(i,k) pin[P,i,i,k]``.

Disjoint arcs without copies: positions lie in ``[0, C)``, so of two arcs one begins first, say
at ``a``, the other at ``b >= a``. They are disjoint on the circle exactly when they are on the
unrolled line together with the first one's next turn: ``a + d_a <= b`` and ``b + d_b <= a + C``.

Rounding
--------
Time is in whole units. :class:`Data` rounds in one of two directions: for a *bound* durations
down and periods up, for a *plan* durations up and periods down; :mod:`models.cpsat` says why
that is what they are. A job alone is admitted in seconds, never by the units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final

from ortools.sat.python import cp_model

from instances.jobs import Job
from models.bounds import volume
from models.cyclic_cpsat import DEADLINE_REL, round_down, round_up, state_units
from models.options import Deadline
from models.snapshot import Snapshot

__all__ = ["Data", "Literal", "Model", "Node", "build"]

#: Prices with a denominator up to this are exact; others round down to 2^-30 of the dearest.
_PRICE_DENOMINATOR: Final = 10**6
_PRICE_UNITS: Final = 2**30

Literal = cp_model.IntVar
Node = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Data:
    """The snapshot in whole units, jobs by rank; index 0 rollout and 1 train, then the job.

    Attributes
    ----------
    order : tuple of int
        The snapshot's index of each rank.
    leaders : tuple of tuple of int
        Per job the leaders whose groups it may be in, itself last.
    period : tuple of int
        ``C_g`` by leader.
    price : (int, int)
        Of a rollout and of a train node, never more than ``per_usd`` times its $/h.
    """

    jobs: tuple[Job, ...]
    order: tuple[int, ...]
    leaders: tuple[tuple[int, ...], ...]
    period: tuple[int, ...]
    phase: tuple[tuple[int, ...], tuple[int, ...]]
    switch: tuple[tuple[int, ...], tuple[int, ...]]
    sync: tuple[int, ...]
    width: tuple[tuple[int, ...], tuple[int, ...]]
    state: tuple[list[int], list[int]]
    dram: tuple[int, int]
    price: tuple[int, int]
    per_usd: Fraction

    def __len__(self) -> int:
        return len(self.jobs)

    @classmethod
    def of(cls, snapshot: Snapshot, unit_s: float, *, for_bound: bool) -> Data:
        """Round the seconds: for a bound, durations down and periods up; else the reverse."""
        order = sorted(range(len(snapshot)), key=lambda j: (snapshot.jobs[j].deadline_s, j))
        jobs = tuple(snapshot.jobs[j] for j in order)
        shorten, lengthen = (round_down, round_up) if for_bound else (round_up, round_down)

        def units(seconds: Iterable[float]) -> tuple[int, ...]:
            return tuple(shorten(each / unit_s) for each in seconds)

        cluster = snapshot.cluster
        rollout_state, rollout_dram = state_units(
            [job.rollout_state_gb for job in jobs], cluster.rollout.host_dram_gb
        )
        train_state, train_dram = state_units(
            [job.train_state_gb for job in jobs], cluster.train.host_dram_gb
        )
        price, per_usd = _prices(snapshot)
        longest = max(job.deadline_s for job in jobs)
        return cls(
            jobs=jobs,
            order=tuple(order),
            leaders=tuple(
                tuple(
                    g
                    for g in range(j + 1)
                    if g == j or job.solo_s <= jobs[g].deadline_s * (1 + DEADLINE_REL)
                )
                for j, job in enumerate(jobs)
            ),
            period=tuple(lengthen(job.deadline_s / unit_s) for job in jobs),
            phase=(units(job.rollout_s for job in jobs), units(job.train_s for job in jobs)),
            # a switch beyond every deadline only has to stay so
            switch=(
                units(min(job.rollout_switch_s, longest) for job in jobs),
                units(min(job.train_switch_s, longest) for job in jobs),
            ),
            sync=units(job.sync_s for job in jobs),
            width=(
                tuple(job.rollout_nodes for job in jobs),
                tuple(job.train_nodes for job in jobs),
            ),
            state=(rollout_state, train_state),
            dram=(rollout_dram, train_dram),
            price=price,
            per_usd=per_usd,
        )

    def both(self, i: int, j: int) -> list[int]:
        """Return the leaders whose groups two jobs may both be in."""
        return [g for g in self.leaders[i] if g in self.leaders[j]]

    def fits(self, pool: int, i: int, j: int) -> bool:
        """Return whether two jobs may share a node, as far as its load and DRAM say."""
        leaders = self.both(min(i, j), max(i, j))
        long = sum(self.phase[pool][each] + self.switch[pool][each] for each in (i, j))
        return (
            bool(leaders)
            and long <= self.period[leaders[-1]]
            and self.state[pool][i] + self.state[pool][j] <= self.dram[pool]
        )


def _prices(snapshot: Snapshot) -> tuple[tuple[int, int], Fraction]:
    """Return the price of a node of each pool in whole units, and the units per $/h.

    Exact where both prices have a common small denominator; else rounded down.
    """
    usd = (snapshot.usd_per_hour(1, 0), snapshot.usd_per_hour(0, 1))
    exact = [Fraction(each).limit_denominator(_PRICE_DENOMINATOR) for each in usd]
    if all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(usd, exact, strict=True)):
        scale = Fraction(math.lcm(*(each.denominator for each in exact)))
        whole = [int(each * scale) for each in exact]
        common = math.gcd(*whole) or 1
        return (whole[0] // common, whole[1] // common), scale / common
    scale = _PRICE_UNITS / Fraction(max(usd))
    return (math.floor(usd[0] * scale), math.floor(usd[1] * scale)), scale


class Model:
    """The model and its variables; see the module's docstring for their meaning."""

    def __init__(self, data: Data) -> None:
        self.cp = cp = cp_model.CpModel()
        n = len(data)
        self.group = {
            (j, g): cp.new_bool_var(f"x[{j},{g}]") for j in range(n) for g in data.leaders[j]
        }
        self.busy = [cp.new_bool_var(f"busy[{g}]") for g in range(n)]
        self.pin: list[dict[tuple[int, int, int], Literal]] = [
            {
                (j, i, k): cp.new_bool_var(f"pin[{pool},{j},{i},{k}]")
                for i in range(n)
                for k in range(data.width[pool][i])
                for j in range(i, n)
                if i == j or data.fits(pool, i, j)
            }
            for pool in (0, 1)
        ]
        self.pays = [[cp.new_bool_var(f"pays[{pool},{j}]") for j in range(n)] for pool in (0, 1)]
        self.share: list[dict[tuple[int, int], Literal]] = [{}, {}]
        # a grid coarser than a period still has one position
        last = [max(period - 1, 0) for period in data.period]
        self.rollout = [cp.new_int_var(0, last[j], f"X[{j}]") for j in range(n)]
        self.train = [cp.new_int_var(0, last[j], f"V[{j}]") for j in range(n)]
        self.next_turn = [cp.new_bool_var(f"B[{j}]") for j in range(n)]

    def nodes(self, pool: int) -> Iterator[tuple[Node, Literal, dict[int, Literal]]]:
        """Yield each node, whether it exists, and the pins of jobs other than its opener."""
        on: dict[Node, dict[int, Literal]] = {}
        for (j, i, k), literal in self.pin[pool].items():
            on.setdefault((i, k), {})[j] = literal
        for (i, k), pins in on.items():
            exists = pins.pop(i)
            yield (i, k), exists, pins

    def count(self, pool: int) -> cp_model.LinearExpr:
        """Return the number of nodes of a pool."""
        return cp_model.LinearExpr.sum([exists for _, exists, _ in self.nodes(pool)])


def build(data: Data, snapshot: Snapshot, clock: Deadline) -> Model:
    """State the whole problem; raise OutOfTimeError when the time limit passes meanwhile."""
    model = Model(data)
    _groups(model, data, snapshot)
    for pool in (0, 1):
        _pins(model, data, pool)
        _residency(model, data, pool)
        _sharing(model, data, pool, clock)
        _loads(model, data, pool)
        _node_limits(model, data, snapshot, pool)
    _fleet_caps(model, snapshot)
    _chains(model, data)
    for pool in (0, 1):
        _order(model, data, pool, clock)
    _connected(model, data)
    _volume(model, snapshot)
    model.cp.minimize(data.price[0] * model.count(0) + data.price[1] * model.count(1))
    return model


def _groups(model: Model, data: Data, snapshot: Snapshot) -> None:
    """Put each job in one group: ``sum_g x[j,g] = 1``, ``x[j,g] <= x[g,g]``.

    ``busy[g]`` when there is a second job; at most ``B`` jobs; the leader opens all its nodes,
    as no other job of its group comes before it.
    """
    cp, group = model.cp, model.group
    most = snapshot.limits.max_group_size or len(data)
    for j, leaders in enumerate(data.leaders):
        cp.add_exactly_one(group[j, g] for g in leaders)
    for g in range(len(data)):
        exists = group[g, g]
        others = [group[j, g] for j in range(g + 1, len(data)) if (j, g) in group]
        for other in others:
            cp.add_implication(other, model.busy[g])
        cp.add_implication(model.busy[g], exists)
        if len(others) >= most:
            cp.add(sum(others) <= (most - 1) * exists)
        for pool in (0, 1):
            for k in range(data.width[pool][g]):
                cp.add_implication(exists, model.pin[pool][g, g, k])


def _pins(model: Model, data: Data, pool: int) -> None:
    """Pin each phase to its nodes: ``sum_(i,k) pin[P,j,i,k] = a_Pj``.

    Only to nodes that exist, ``pin[P,j,i,k] <= pin[P,i,i,k]``; slots of one opener are used in
    order, ``pin[P,i,i,k] <= pin[P,i,i,k-1]``.
    """
    cp, pin = model.cp, model.pin[pool]
    mine: list[list[Literal]] = [[] for _ in data.jobs]
    for (j, i, k), literal in pin.items():
        mine[j].append(literal)
        if j != i:
            cp.add_implication(literal, pin[i, i, k])
        elif k:
            cp.add_implication(literal, pin[i, i, k - 1])
    for literals, width in zip(mine, data.width[pool], strict=True):
        cp.add(sum(literals) == width)


def _residency(model: Model, data: Data, pool: int) -> None:
    """Keep the states within the host DRAM: ``sum_j m_Pj pin[P,j,i,k] <= M_P``."""
    state = data.state[pool]
    for (i, _), exists, pins in model.nodes(pool):
        load = state[i] * exists + sum(state[j] * pin for j, pin in pins.items())
        model.cp.add(load <= data.dram[pool])


def _sharing(model: Model, data: Data, pool: int, clock: Deadline) -> None:
    """Put jobs on one node in one group, and let both pay.

    ``pin[P,i,.] + pin[P,j,.] <= 1 + b[P,i,j]`` on each node; ``b <= pays[P,i], pays[P,j]``;
    ``b[P,i,j] + x[i,g] <= 1 + x[j,g]``.
    """
    cp, pin, group = model.cp, model.pin[pool], model.group
    nodes: list[list[Node]] = [[] for _ in data.jobs]
    for j, i, k in pin:
        nodes[j].append((i, k))
    for i, j in combinations(range(len(data)), 2):
        common = [node for node in nodes[i] if (j, *node) in pin]
        if not common:
            continue
        clock.check()
        share = cp.new_bool_var(f"b[{pool},{i},{j}]")
        model.share[pool][i, j] = share
        for node in common:
            cp.add_bool_or([~pin[i, *node], ~pin[j, *node], share])
        cp.add_implication(share, model.pays[pool][i])
        cp.add_implication(share, model.pays[pool][j])
        for g in data.leaders[i]:
            same = [group[j, g]] if (j, g) in group else []
            cp.add_bool_or([~share, ~group[i, g], *same])
        for g in data.leaders[j]:
            same = [group[i, g]] if (i, g) in group else []
            cp.add_bool_or([~share, ~group[j, g], *same])


def _loads(model: Model, data: Data, pool: int) -> None:
    """Bound each node's load by its group's period (implied).

    With ``taken`` when a job other than the opener ``i`` is there: ``d_i pin[i] + w_i taken +
    sum_j (d_j + w_j) pin[j] <= sum_g C_g x[i,g]``, and ``<= C_i pin[i]`` as no group of ``i``
    has a longer period. A job alone on its node is admitted in seconds, so its own phase counts
    for no more than ``C_i``.
    """
    cp, phase, switch = model.cp, data.phase[pool], data.switch[pool]
    for (i, k), exists, pins in model.nodes(pool):
        if not pins:
            continue
        load = min(phase[i], data.period[i]) * exists
        load += sum((phase[j] + switch[j]) * pin for j, pin in pins.items())
        if switch[i]:
            taken = cp.new_bool_var(f"taken[{pool},{i},{k}]")
            for pin in pins.values():
                cp.add_implication(pin, taken)
            load += switch[i] * taken
        cp.add(load <= sum(data.period[g] * model.group[i, g] for g in data.leaders[i]))
        cp.add(load <= data.period[i] * exists)


def _node_limits(model: Model, data: Data, snapshot: Snapshot, pool: int) -> None:
    """Bound the nodes of each group: ``sum_(i,k) pin[P,i,i,k] x[i,g] <= L_P``."""
    limits = snapshot.limits
    most = (limits.max_rollout_nodes, limits.max_train_nodes)[pool]
    if most is None:
        return
    cp, width = model.cp, data.width[pool]
    for g in range(len(data)):
        members = [j for j in range(g, len(data)) if (j, g) in model.group]
        if sum(width[j] for j in members) <= most:
            continue
        inside = []
        for j in members:
            for k in range(width[j]):
                both = cp.new_bool_var(f"in[{pool},{j},{k},{g}]")
                cp.add_bool_or([~model.pin[pool][j, j, k], ~model.group[j, g], both])
                inside.append(both)
        cp.add(sum(inside) <= most)


def _fleet_caps(model: Model, snapshot: Snapshot) -> None:
    """Bound the nodes of the fleet: ``sum_(i,k) pin[P,i,i,k] <= F_P``."""
    caps = snapshot.caps
    for pool, most in enumerate((caps.max_rollout_nodes_total, caps.max_train_nodes_total)):
        if most is not None:
            model.cp.add(model.count(pool) <= most)


def _chains(model: Model, data: Data) -> None:
    """Keep each job's own order around the circle of its group.

    With the train's start ``Y_j = V_j + C_g B_j`` and phases ``p_j, q_j`` that include the
    switches paid: ``Y_j >= X_j + p_j`` and ``Y_j + q_j + s_j <= X_j + C_g``, where ``x[j,g]``;
    for the leader where ``busy[g]``: a job alone is admitted in seconds. The circle is turned
    so that the leader's rollout begins it.
    """
    cp = model.cp
    for (j, g), member in model.group.items():
        period, literal = data.period[g], model.busy[g] if j == g else member
        x, v = model.rollout[j], model.train[j]
        after = v + period * model.next_turn[j] - x
        p = data.phase[0][j] + data.switch[0][j] * model.pays[0][j]
        q = data.phase[1][j] + data.switch[1][j] * model.pays[1][j]
        cp.add(after >= p).only_enforce_if(literal)
        cp.add(after + q + data.sync[j] <= period).only_enforce_if(literal)
        cp.add(x <= (0 if j == g else period - 1)).only_enforce_if(literal)
        cp.add(v <= period - 1).only_enforce_if(literal)


def _order(model: Model, data: Data, pool: int, clock: Deadline) -> None:
    """Keep phases that share a node disjoint on the circle, whichever comes first.

    With ``b``, and ``o``: ``pos_i + d_i <= pos_j``, and ``pos_j + d_j <= pos_i + C_g`` where
    ``x[i,g]``; without ``o`` with ``i`` and ``j`` exchanged. Both pay, so ``d`` includes the
    switch.
    """
    cp, position = model.cp, (model.rollout, model.train)[pool]
    length = [d + w for d, w in zip(data.phase[pool], data.switch[pool], strict=True)]
    for (i, j), share in model.share[pool].items():
        clock.check()
        first = cp.new_bool_var(f"o[{pool},{i},{j}]")
        for a, b, literal in ((i, j, first), (j, i, ~first)):
            cp.add(position[a] + length[a] <= position[b]).only_enforce_if(share, literal)
            for g in data.both(i, j):
                around = position[b] + length[b] <= position[a] + data.period[g]
                cp.add(around).only_enforce_if(share, literal, model.group[i, g])


def _connected(model: Model, data: Data) -> None:
    """Leave out groups that fall into parts which share no node: apart they cost the same.

    In a connected group each further job adds at most its width less one node, so all nodes
    number at most ``sum_j (a_Rj + a_Tj) - n + groups``.
    """
    most = sum(map(sum, data.width)) - len(data)
    groups = sum(model.group[g, g] for g in range(len(data)))
    model.cp.add(model.count(0) + model.count(1) <= most + groups)


def _volume(model: Model, snapshot: Snapshot) -> None:
    """Use at least the nodes of the volume bound (implied)."""
    least = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    model.cp.add(model.count(0) >= least.rollout_nodes)
    model.cp.add(model.count(1) >= least.train_nodes)
