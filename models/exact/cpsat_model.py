"""The whole snapshot problem stated for CP-SAT: groups, pins and cyclic schedules at once.

Sets and parameters (FORMULATION sections 1 and 2)
---------------------------------------------
jobs ``j``, ranked by (deadline, index); pools ``P``, rollout and train. Seconds: phases
``d_Pj``, switches ``w_Pj``, sync ``s_j``, ``T_j`` alone, deadline ``D_j``; nodes: widths
``a_Pj``; GB: states ``m_Pj``, host DRAM ``M_P``; ``$/h``: price ``c_P`` of a node; ``B`` the
largest group size, ``L_P`` the most nodes of a group, ``F_P`` of the fleet; ``K`` the most
iterations per period.

* A group may as well iterate as slowly as its SLOs allow (scale all starts), so its period is
  ``min_j k_j D_j``. It has a *label* ``l = (g, k)``: its *leader* ``g``, a member where that
  minimum is reached, and ``k = k_g``; of several such members the first in the ranking. So label
  ``l`` has the constant period ``C_l = k D_g``.
* At a given period fewer iterations never hurt (leave out one of a chain), so a job ``j`` in
  label ``l`` has the constant rate ``k_jl = ceil(C_l / D_j)``. It may be there only if ``k_jl <=
  K``, ``k_jl T_j <= C_l``, and it would not itself be the leader: not with ``j`` ranked before
  ``g`` and ``k_jl D_j = C_l``. A job alone has label ``(j, 1)``.
* With ``K = 1`` the labels are the leaders, each the first job of its group in the ranking, and
  a partition of the jobs has one name. With more, a set of jobs may have up to ``K`` times its
  size labels; each has other schedules, and any of them will do.
* A node is named ``(i, k)`` by its *opener*, the first job pinned to it, and a slot ``k <
  a_Pi``. So there are no node numbers to permute, and no nodes of groups that do not exist.

Variables
---------
``x[j,l]`` job ``j`` is in the group of label ``l`` (``x[g,l]``: it exists), ``busy[l]`` it has
two jobs; ``pin[P,j,i,k]`` job ``j`` is pinned to node ``(i,k)`` (``j = i``: the node exists);
``pays[P,j]`` the phase pays its switch; ``b[P,i,j]`` two jobs share a node; ``o[P,i,a,j,c]``
then iteration ``a`` of ``i`` comes before iteration ``c`` of ``j`` on the circle; ``X_ja, V_ja``
positions of rollout and train of iteration ``a < max_l k_jl`` on the circle of length ``C_l``;
``B_j`` the last train starts in the turn after the rest; of a one-step job ``B_ja in {0, 1, 2}``
the turn each train starts in. Where any rate is above 1, ``C_j``
the period of the job's group, and ``there[j,a]`` for ``a >= min_l k_jl``: ``j`` has so many
iterations.

Constraints
-----------
:func:`_groups` each job in one group, of at most ``B``; :func:`_pins` ``a_Pj`` nodes for each
phase; :func:`_residency` ``sum_j m_Pj pin <= M_P``; :func:`_sharing` jobs on one node are in one
group and pay; :func:`_rates` a label's period and iterations; :func:`_chains` rollout, train,
sync, next rollout, ``k_jl`` times; :func:`_order` phases that share a node are disjoint arcs;
:func:`_node_limits` ``L_P``; :func:`_fleet_caps` ``F_P``. Implied or without loss:
:func:`_loads` or :func:`_loads_with_rates`, :func:`_connected`, :func:`_volume`.

Nothing is stated of iterations ``a >= k_jl``: they are not there. Those that are there are
numbered from the rollout of the least position on, so that only the last train of a job may
start in the turn after its first rollout's (:mod:`models.group.cyclic_cpsat`).

Objective: ``sum_P c_P sum_(i,k) pin[P,i,i,k]``.

Disjoint arcs without copies: positions lie in ``[0, C)``, so of two arcs one begins first, say
at ``a``, the other at ``b >= a``. They are disjoint on the circle exactly when they are on the
unrolled line together with the first one's next turn: ``a + d_a <= b`` and ``b + d_b <= a + C``.

Time is in whole units (:mod:`models.exact.cpsat_data`). A job alone is admitted in seconds, never
by the units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Final

from ortools.sat.python import cp_model

from models.bounds.volume import volume
from models.exact.cpsat_data import Data
from models.group.cpsat_turns import one_step_rules, train_turns
from models.problem.options import Deadline
from models.problem.snapshot import Snapshot

__all__ = ["Literal", "Model", "Node", "build"]

#: With rates: shares of a node's period are in units of one such part.
_SHARE_UNITS: Final = 2**20

Literal = cp_model.IntVar
Node = tuple[int, int]


class Model:
    """The model and its variables; see the module's docstring for their meaning."""

    def __init__(self, data: Data) -> None:
        self.cp = cp = cp_model.CpModel()
        n = len(data)
        self.group = {
            (j, label): cp.new_bool_var(f"x[{j},{label}]")
            for j in range(n)
            for label in data.choices[j]
        }
        self.exists = [self.group[g, label] for label, (g, _) in enumerate(data.labels)]
        self.busy = [cp.new_bool_var(f"busy[{label}]") for label in range(len(data.labels))]
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
        self.rollout, self.train = (
            [self._positions(data, j, name) for j in range(n)] for name in ("X", "V")
        )
        self.turn = [train_turns(cp, f"{j}", data.most(j), data.lag[j]) for j in range(n)]
        self.there = {
            (j, a): cp.new_bool_var(f"there[{j},{a}]")
            for j in range(n)
            for a in range(data.fewest(j), data.most(j))
        }
        self.period = [] if data.strict else [self._period(data, j) for j in range(n)]

    def _positions(self, data: Data, j: int, name: str) -> list[Literal]:
        """Return the positions of one phase of a job in all its iterations."""
        # a grid coarser than a period still has one position
        last = max(0, *(data.period[label] - 1 for label in data.choices[j]))
        return [self.cp.new_int_var(0, last, f"{name}[{j},{a}]") for a in range(data.most(j))]

    def _period(self, data: Data, j: int) -> Literal:
        """Return the period of a job's group, one of those of its labels."""
        periods = [data.period[label] for label in data.choices[j]]
        return self.cp.new_int_var(min(periods), max(periods), f"C[{j}]")

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
    _rates(model, data)
    for pool in (0, 1):
        _pins(model, data, pool)
        _residency(model, data, pool)
        _sharing(model, data, pool, clock)
        (_loads if data.strict else _loads_with_rates)(model, data, pool)
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
    """Put each job in one group: ``sum_l x[j,l] = 1``, ``x[j,l] <= x[g,l]``.

    ``busy[l]`` when there is a second job, as there is in a group of a leader's rate above 1; at
    most ``B`` jobs. Where the leader comes before all others in the ranking it opens all its
    nodes.
    """
    cp, group = model.cp, model.group
    most = snapshot.limits.max_group_size or len(data)
    for j, choices in enumerate(data.choices):
        cp.add_exactly_one(group[j, label] for label in choices)
    for label, (g, k) in enumerate(data.labels):
        exists, busy = model.exists[label], model.busy[label]
        members = data.members(label)
        others = [group[j, label] for j in members if j != g]
        for other in others:
            cp.add_implication(other, busy)
        cp.add_implication(busy, exists)
        if k > 1:
            cp.add_bool_or([~exists, *others])
        if len(others) >= most:
            cp.add(sum(others) <= (most - 1) * exists)
        if g == members[0]:
            for pool in (0, 1):
                for slot in range(data.width[pool][g]):
                    cp.add_implication(exists, model.pin[pool][g, g, slot])


def _rates(model: Model, data: Data) -> None:
    """Let a job's label say its period and iterations, where any rate is above 1.

    ``x[j,l]``: ``C_j = C_l``, and ``there[j,a]`` exactly if ``a < k_jl``.
    """
    if data.strict:
        return
    cp = model.cp
    for (j, label), member in model.group.items():
        cp.add(model.period[j] == data.period[label]).only_enforce_if(member)
        for a in range(data.fewest(j), data.most(j)):
            there = model.there[j, a]
            cp.add_implication(member, there if a < data.rate[j, label] else ~there)


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
    ``b[P,i,j] + x[i,l] <= 1 + x[j,l]``.
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
        for here, there in ((i, j), (j, i)):
            for label in data.choices[here]:
                same = [group[there, label]] if (there, label) in group else []
                cp.add_bool_or([~share, ~group[here, label], *same])


def _loads(model: Model, data: Data, pool: int) -> None:
    """Bound each node's load by its group's period (implied), where all rates are 1.

    With ``taken`` when a job other than the opener ``i`` is there: ``d_i pin[i] + w_i taken +
    sum_j (d_j + w_j) pin[j] <= sum_l C_l x[i,l]``, and ``<= C_i pin[i]`` as no group of ``i``
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
            load += switch[i] * _taken(model, pool, (i, k), pins)
        cp.add(load <= sum(data.period[g] * model.group[i, g] for g in data.choices[i]))
        cp.add(load <= data.period[i] * exists)


def _taken(model: Model, pool: int, node: Node, pins: Mapping[int, Literal]) -> Literal:
    """Return a literal that is true when a job other than its opener is pinned to a node."""
    taken = model.cp.new_bool_var(f"taken[{pool},{node[0]},{node[1]}]")
    for pin in pins.values():
        model.cp.add_implication(pin, taken)
    return taken


def _loads_with_rates(model: Model, data: Data, pool: int) -> None:
    """Bound each node's load by its group's period (implied), whatever the rates.

    As :func:`_loads`, for each label ``l`` that its opener ``i`` may have: where ``x[i,l]``,
    ``k_il (d_i pin[i] + w_i taken) + sum_j k_jl (d_j + w_j) pin[j] <= C_l``. As that is weak
    while ``x`` is open, also with the least share of any label: ``sum_j min_l (k_jl (d_j + w_j)
    / C_l) pin[j] <= pin[i]``, ``w_i`` counted where the node is taken.
    """
    cp, phase, switch = model.cp, data.phase[pool], data.switch[pool]

    def share(j: int, seconds: int) -> int:
        """Return the least share of a period that a job takes so, rounded down, at most 1."""
        return min(
            _SHARE_UNITS
            * min(data.rate[j, label] * seconds, data.period[label])
            // max(data.period[label], 1)
            for label in data.choices[j]
        )

    for (i, k), exists, pins in model.nodes(pool):
        if not pins:
            continue
        taken = _taken(model, pool, (i, k), pins) if switch[i] else exists
        for label in data.choices[i]:
            period, rate = data.period[label], data.rate[i, label]
            load = min(rate * phase[i], period) * exists + rate * switch[i] * taken
            load += sum(
                data.rate[j, label] * (phase[j] + switch[j]) * pin
                for j, pin in pins.items()
                if (j, label) in data.rate
            )
            cp.add(load <= period).only_enforce_if(model.group[i, label])
        alone = share(i, phase[i])
        load = alone * exists + (share(i, phase[i] + switch[i]) - alone) * taken
        load += sum(share(j, phase[j] + switch[j]) * pin for j, pin in pins.items())
        cp.add(load <= _SHARE_UNITS * exists)


def _node_limits(model: Model, data: Data, snapshot: Snapshot, pool: int) -> None:
    """Bound the nodes of each group: ``sum_(i,k) pin[P,i,i,k] x[i,l] <= L_P``."""
    limits = snapshot.limits
    most = (limits.max_rollout_nodes, limits.max_train_nodes)[pool]
    if most is None:
        return
    cp, width = model.cp, data.width[pool]
    for label in range(len(data.labels)):
        members = data.members(label)
        if sum(width[j] for j in members) <= most:
            continue
        inside = []
        for j in members:
            for k in range(width[j]):
                both = cp.new_bool_var(f"in[{pool},{j},{k},{label}]")
                cp.add_bool_or([~model.pin[pool][j, j, k], ~model.group[j, label], both])
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

    With phases ``p_j, q_j`` that include the switches paid, ``k = k_jl`` and the last train's
    start ``Y_ja = V_ja + C_l B_j`` (else ``Y_ja = V_ja``): ``Y_ja >= X_ja + p_j``, and ``Y_ja +
    q_j + s_j <= X_j(a+1)``, after the last train ``<= X_j0 + C_l``, where ``x[j,l]``; for the
    leader where ``busy[l]``: a job alone is admitted in seconds. The circle is turned so that
    the leader's first rollout begins it. One-step jobs:
    :func:`models.group.cpsat_turns.one_step_rules`.
    """
    cp = model.cp
    for (j, label), member in model.group.items():
        period, rate = data.period[label], data.rate[j, label]
        leads = j == data.labels[label].leader
        literal = model.busy[label] if leads else member
        x, v = model.rollout[j][:rate], model.train[j][:rate]
        p = data.phase[0][j] + data.switch[0][j] * model.pays[0][j]
        q = data.phase[1][j] + data.switch[1][j] * model.pays[1][j]
        if data.lag[j] > 1:
            y = [at + period * b for at, b in zip(v, model.turn[j][:rate], strict=True)]
            for rule in one_step_rules(data.lag[j], (p, q, data.sync[j]), (x, y), period):
                cp.add(rule).only_enforce_if(literal)
        else:
            for a in range(rate - 1):
                cp.add(v[a] - x[a] >= p).only_enforce_if(literal)
                cp.add(x[a + 1] - v[a] >= q + data.sync[j]).only_enforce_if(literal)
            turned = v[-1] + period * model.turn[j][-1]
            cp.add(turned - x[-1] >= p).only_enforce_if(literal)
            cp.add(turned - x[0] + q + data.sync[j] <= period).only_enforce_if(literal)
        for a in range(rate):
            begins = leads and a == 0
            cp.add(x[a] <= (0 if begins else period - 1)).only_enforce_if(literal)
            cp.add(v[a] <= period - 1).only_enforce_if(literal)


def _order(model: Model, data: Data, pool: int, clock: Deadline) -> None:
    """Keep phases that share a node disjoint on the circle, whichever comes first.

    For an iteration ``u`` of ``i`` and one ``v`` of ``j``, where both are there: with ``b``, and
    ``o``: ``pos_u + d_u <= pos_v``, and ``pos_v + d_v <= pos_u + C_i``; without ``o`` with ``u``
    and ``v`` exchanged. Both pay, so ``d`` includes the switch. Where all rates are 1 there is
    no ``C_i``: ``C_l`` where ``x[i,l]``.
    """
    cp, position = model.cp, (model.rollout, model.train)[pool]
    length = [d + w for d, w in zip(data.phase[pool], data.switch[pool], strict=True)]
    for (i, j), share in model.share[pool].items():
        both = data.both(i, j)
        around: list[tuple[Literal | int, list[Literal]]] = (
            [(data.period[label], [model.group[i, label]]) for label in both]
            if data.strict
            else [(model.period[i], [])]
        )
        for (a, u), (c, v) in product(enumerate(position[i]), enumerate(position[j])):
            if not any(a < data.rate[i, label] and c < data.rate[j, label] for label in both):
                continue
            clock.check()
            there = [model.there[at] for at in ((i, a), (j, c)) if at in model.there]
            first = cp.new_bool_var(f"o[{pool},{i},{a},{j},{c}]")
            for one, d, other, e, literal in (
                (u, length[i], v, length[j], first),
                (v, length[j], u, length[i], ~first),
            ):
                when = [share, literal, *there]
                cp.add(one + d <= other).only_enforce_if(when)
                for turn, member in around:
                    cp.add(other + e <= one + turn).only_enforce_if(when + member)


def _connected(model: Model, data: Data) -> None:
    """Leave out groups that fall into parts which share no node: apart they cost the same.

    In a connected group each further job adds at most its width less one node, so all nodes
    number at most ``sum_j (a_Rj + a_Tj) - n + groups``.
    """
    most = sum(map(sum, data.width)) - len(data)
    groups = sum(model.exists)
    model.cp.add(model.count(0) + model.count(1) <= most + groups)


def _volume(model: Model, snapshot: Snapshot) -> None:
    """Use at least the nodes of the volume bound (implied)."""
    least = volume(snapshot.table, snapshot.cluster, snapshot.limits)
    model.cp.add(model.count(0) >= least.rollout_nodes)
    model.cp.add(model.count(1) >= least.train_nodes)
