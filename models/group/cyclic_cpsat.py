"""Exact decision for one group: can these jobs share so many nodes within a deadline?

One joint search by CP-SAT over pins and starts, so a failed pinning rules out only itself.

Sets and parameters (FORMULATION sections 1 and 2)
---------------------------------------------
jobs ``j`` of one group, each with ``k_j`` iterations per period, numbered ``l`` from 0; pools
``P``, rollout and train; nodes ``n`` of a pool, at most ``N_P``; phases ``d_Pj`` (s), switches
``w_Pj`` (s), sync ``s_j`` (s), widths ``a_Pj`` (nodes), states ``m_Pj`` (GB per node), host DRAM
``M_P`` (GB), the longest period allowed ``D`` (s): with rates the caller's ``min_j k_j D_j``.

Variables
---------
``z[P,j,n]`` phase ``P`` of job ``j`` is pinned to node ``n``; ``pays[P,j]`` it pays its switch;
``b[P,i,j]`` the jobs share a node of the pool, ``o[P,i,l,j,m]`` then iteration ``l`` of ``i``
comes before iteration ``m`` of ``j`` on the circle; ``X_jl, V_jl`` in ``[0, C)`` the positions
of rollout and train on the circle, ``B_j`` whether the last train starts a turn after the rest;
of a one-step job ``B_jl in {0, 1, 2}`` the turn that each train starts in.

Constraints
-----------
* :func:`_pins`: ``sum_n z[P,j,n] = a_Pj``; nodes are numbered in the order of the first job
  on them.
* :func:`_residency`: ``sum_j m_Pj z[P,j,n] <= M_P``.
* :func:`_sharing`: two jobs on one node have ``b``, and ``b`` makes both pay.
* :func:`_chains`: rollout, train, sync, next rollout (one-step: the next but one).
* :func:`_order`: with ``b``, any two phases of the two jobs are disjoint arcs of the circle.
* :func:`_loads` (implied): the phases on one node are no longer than the circle.

No objective: any solution decides.

Numbering and turns (no loss)
-----------------------------
The iterations of a job are alike and follow each other around the circle once, so number them
from the rollout with the least position on. Then all rollouts of the job begin in one turn, in
order, and so does each train that a rollout follows: only the last train may begin in the next
turn, and one ``B_j`` says so. A train of a one-step job ends before the rollout two iterations on,
so before the end of the third turn. The circle is turned so that a first rollout of a job with the
fewest iterations begins it; jobs that no rule tells apart are ordered by their first rollouts.

Why it is exact in seconds
--------------------------
Every timing rule is a difference ``x_v - x_u >= w - h C`` with ``w >= 0`` and an integer ``h``
(which of the two is a full turn ahead), chosen by ``b, o, B``. The solver needs integers: let
``u`` be the unit, ``w'`` the sum of the floors of the terms of ``w / u`` (phase, switch, sync:
up to three) and ``C' = ceil(D / u)``.

*A schedule of period D gives an integer solution.* Multiply all starts by ``u C' / D >= 1``:
``x_v - x_u + h C`` is at least ``w >= 0`` before, so no less after. Now ``C / u = C'`` is a
whole number, and for ``X = floor(x / u)``: ``X_v >= floor(X_u + w / u - h C') >= X_u + w' -
h C'``. So whatever is proved infeasible is infeasible in seconds.

*An integer solution gives a schedule.* The least period of its orders and turns is the largest
``sum w / sum h`` over the cycles of differences (:func:`models.group.cycle_ratio.least_period`). A
cycle with ``h >= 1`` has ``sum w' <= h C'``, so ``sum w / h <= u C' + u E < D + u (E + 1)``
with at most ``E = 5 n`` terms floored in a cycle, where ``n = sum_j k_j`` iterations have one
rollout (phase and switch) and one train (phase, switch and sync) each. A cycle with ``h = 0``
has only ``w' = 0``: phases below one unit.

So ``u = 2^-28 D`` decides at once unless a schedule is within about ``4e-9 (5 n + 1)`` of the
deadline; then ``u = 2^-40 D`` does, where every solution is below ``D (1 + 1e-9)`` for up to
200 iterations. "None" is exact at ``D``, a schedule at ``D (1 + 1e-9)``; every schedule's period is
computed in seconds before it is returned. The search learns from conflicts among differences,
so its effort does not grow with ``C'``. The solver's own presolve is left out: for groups it
costs more than it saves, and with numbers above 2^34 it called 3 of 8,000 random groups
infeasible that are not (ortools 9.15). States are counted in units likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from ortools.sat.python import cp_model

from instances.errors import FleetPlannerError, InputError
from instances.jobs import Job
from models.backends.cp_sat import Answer, run
from models.group.cpsat_turns import one_step_rules, train_turns, turn_of
from models.group.cycle_ratio import CyclicOrder, least_period
from models.problem.group_shape import GroupShape, Pins, Schedule, lower_bound_s
from models.problem.result import StoppedBy

__all__ = [
    "DEADLINE_REL",
    "UndecidedError",
    "decide",
    "is_whole",
    "least_of_positions",
    "round_down",
    "round_up",
    "state_units",
]

#: A period this much above the deadline, relatively, still meets it.
DEADLINE_REL: Final = 1e-9
#: The deadline has this many bits in units, at first and where that is too coarse.
_BITS: Final = (29, 41)
#: Decimal places of GB that are tried as a unit of state, and the bits when none is exact.
_STATE_PLACES: Final = 6
_STATE_BITS: Final = 41
#: A state this much above the DRAM, relatively, still fits.
_STATE_REL: Final = 1e-10
#: Relative round-off of a few operations on decimals such as 0.1 x 3.
_WHOLE_REL: Final = 1e-12
#: No presolve; see "Why it is exact in seconds".
_PARAMETERS: Final = {"cp_model_presolve": False, "linearization_level": 0, "symmetry_level": 0}

Found = tuple[tuple[Pins, ...], tuple[Pins, ...], Schedule]


class UndecidedError(Exception):
    """A limit came before a decision; ``stopped_by`` says which."""

    def __init__(self, stopped_by: StoppedBy) -> None:
        super().__init__(f"A limit ({stopped_by}) came before the group was decided.")
        self.stopped_by = stopped_by


def decide(  # noqa: PLR0913 - the group, its nodes and its limits
    jobs: Sequence[Job],
    n_rollout: int,
    n_train: int,
    host_dram_gb: tuple[float, float],
    deadline_s: float,
    *,
    rates: Sequence[int] | None = None,
    seconds: float | None = None,
    work: float | None = None,
    seed: int = 0,
) -> Found | None:
    """Return pins on at most so many nodes and a schedule within the deadline, if any exist.

    Parameters
    ----------
    jobs : sequence of Job
    n_rollout, n_train : int
        Nodes of the group; fewer may be used.
    host_dram_gb : (float, float)
        GB of a rollout and of a train node.
    deadline_s : float
        Largest period allowed, seconds; with rates ``min_j k_j D_j``.
    rates : sequence of int, optional
        Iterations per period ``k_j``, one per job; 1 each when left out.
    seconds, work : float, optional
        Wall limit, and limit of deterministic time, of each of at most two searches.
    seed : int

    Returns
    -------
    tuple or None
        Rollout pins and train pins per job, nodes numbered from 0, and a :class:`Schedule` of
        the least period of the orders found, which need not be the least of all orders.
        ``None`` is a proof that nothing exists.

    Raises
    ------
    UndecidedError
        When a limit came first.
    KeyboardInterrupt
        When Ctrl-C came first.
    InputError
        When there is no job, the deadline is not a number above 0, or the rates are not one
        number >= 1 per job.
    """
    rates = _checked(jobs, deadline_s, rates)
    most_s = deadline_s * (1 + DEADLINE_REL)
    if any(rate * job.solo_s > most_s for job, rate in zip(jobs, rates, strict=True)):
        return None
    widest = max(job.rollout_nodes for job in jobs), max(job.train_nodes for job in jobs)
    if widest[0] > n_rollout or widest[1] > n_train:
        return None
    for bits in _BITS:
        group = _Group.of(jobs, rates, (n_rollout, n_train), host_dram_gb, deadline_s, bits)
        built = _build(group)
        answer = run(built.model, seconds=seconds, work=work, seed=seed, parameters=_PARAMETERS)
        if answer.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        if answer.stopped_by is not None:
            raise UndecidedError(answer.stopped_by)
        if not answer.solved:
            return None
        found = _read(jobs, group, built, answer, deadline_s)
        if found is not None:
            return found
    raise FleetPlannerError(
        f"Expected a period of at most {deadline_s!r} s from CP-SAT's orders: a fault of the "
        "program, not of the input."
    )


def _checked(
    jobs: Sequence[Job], deadline_s: float, rates: Sequence[int] | None
) -> tuple[int, ...]:
    """Return the rates of a group whose arguments are in range."""
    if not jobs:
        raise InputError("Expected at least one job to decide.")
    if not 0 < deadline_s < math.inf:
        raise InputError(f"Expected deadline_s > 0, got {deadline_s!r}.")
    if rates is None:
        return (1,) * len(jobs)
    if len(rates) != len(jobs):
        raise InputError(f"Expected {len(jobs)} rates, one per job, got {len(rates)}.")
    for rate, job in zip(rates, jobs, strict=True):
        if rate < 1:
            raise InputError(f"Expected a rate >= 1, got {rate!r} (job '{job.job_id}').")
    return tuple(rates)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The data in whole units; index 0 rollout and 1 train, then the job."""

    rates: tuple[int, ...]
    nodes: tuple[int, int]
    width: tuple[list[int], list[int]]
    phase: tuple[list[int], list[int]]
    switch: tuple[list[int], list[int]]
    sync: list[int]
    lag: list[int]
    state: tuple[list[int], list[int]]
    dram: tuple[int, int]
    period: int
    alike: list[tuple[int, int]]

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        rates: tuple[int, ...],
        nodes: tuple[int, int],
        host_dram_gb: tuple[float, float],
        deadline_s: float,
        bits: int,
    ) -> _Group:
        time = _unit(deadline_s, bits)

        def units(seconds: float) -> int:
            return math.floor(seconds / time)

        rollout_state, rollout_dram = state_units(
            [job.rollout_state_gb for job in jobs], host_dram_gb[0]
        )
        train_state, train_dram = state_units([job.train_state_gb for job in jobs], host_dram_gb[1])
        return cls(
            rates=rates,
            nodes=nodes,
            width=([job.rollout_nodes for job in jobs], [job.train_nodes for job in jobs]),
            phase=([units(job.rollout_s) for job in jobs], [units(job.train_s) for job in jobs]),
            switch=(
                [units(min(job.rollout_switch_s, 2 * deadline_s)) for job in jobs],
                [units(min(job.train_switch_s, 2 * deadline_s)) for job in jobs],
            ),
            sync=[units(job.sync_s) for job in jobs],
            lag=[job.lag for job in jobs],
            state=(rollout_state, train_state),
            dram=(rollout_dram, train_dram),
            period=math.ceil(deadline_s / time),
            alike=list(_alike(jobs, rates)),
        )


def state_units(state_gb: Sequence[float], host_dram_gb: float) -> tuple[list[int], int]:
    """Return states and host DRAM in whole units: decimal ones where exact, else 2^-40 of it.

    Where no decimal unit is exact, states round down and the DRAM up, so that what fits still
    fits; what fits in units exceeds the DRAM by less than one unit per job. A state above the
    DRAM becomes the DRAM plus one.
    """
    most = host_dram_gb * (1 + _STATE_REL)
    within = [each for each in state_gb if each <= most]
    per_gb = 1.0 / _unit(host_dram_gb, _STATE_BITS)
    for places in range(_STATE_PLACES + 1):
        if all(is_whole(each * 10.0**places) for each in (host_dram_gb, *within)):
            per_gb = 10.0**places
            break
    else:  # numbers this large all look whole up to round-off: true floors, and room for it
        dram = math.ceil(most * per_gb)
        return [math.floor(each * per_gb) if each <= most else dram + 1 for each in state_gb], dram
    dram = round_up(host_dram_gb * per_gb)
    return [
        min(round_down(each * per_gb), dram) if each <= most else dram + 1 for each in state_gb
    ], dram


def is_whole(number: float) -> bool:
    """Return whether a number >= 0 is a whole one, up to the round-off of decimals."""
    return abs(number - round(number)) <= _WHOLE_REL * number


def round_down(number: float) -> int:
    """Return the largest whole number not above a number >= 0, up to round-off."""
    return round(number) if is_whole(number) else math.floor(number)


def round_up(number: float) -> int:
    """Return the least whole number not below a number >= 0, up to round-off."""
    return round(number) if is_whole(number) else math.ceil(number)


def _unit(most: float, bits: int) -> float:
    """Return the power of two of which ``most`` has between 2^(bits - 1) and 2^bits."""
    return math.ldexp(1.0, math.frexp(most)[1] - bits)


def _alike(jobs: Sequence[Job], rates: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each job with the next one that no rule tells from it."""
    last: dict[tuple[float, ...], int] = {}
    for j, (job, rate) in enumerate(zip(jobs, rates, strict=True)):
        key = (
            rate,
            job.lag,
            job.rollout_s,
            job.train_s,
            job.sync_s,
            job.rollout_switch_s,
            job.train_switch_s,
            job.rollout_nodes,
            job.train_nodes,
            job.rollout_state_gb,
            job.train_state_gb,
        )
        if key in last:
            yield last[key], j
        last[key] = j


class _Built:
    """The model and its variables; see the module's docstring for their meaning."""

    def __init__(self, group: _Group) -> None:
        self.model = model = cp_model.CpModel()
        n, last, rates = len(group.rates), group.period - 1, group.rates
        # turn the circle so that a first rollout of the group begins it
        begins = rates.index(min(rates))
        self.rollout = [
            [
                model.new_int_var(0, 0 if (j, i) == (begins, 0) else last, f"X[{j},{i}]")
                for i in range(rates[j])
            ]
            for j in range(n)
        ]
        self.train = [
            [model.new_int_var(0, last, f"V[{j},{i}]") for i in range(rates[j])] for j in range(n)
        ]
        self.turn = [train_turns(model, f"{j}", rates[j], group.lag[j]) for j in range(n)]
        self.pays = [[model.new_bool_var(f"pays[{P},{j}]") for j in range(n)] for P in (0, 1)]
        self.pin: list[list[dict[int, cp_model.IntVar]]] = [[], []]
        self.share: list[dict[tuple[int, int], cp_model.IntVar]] = [{}, {}]


def _build(group: _Group) -> _Built:
    """State the whole decision."""
    built = _Built(group)
    for pool in (0, 1):
        _pins(built, group, pool)
        _residency(built, group, pool)
        _sharing(built, group, pool)
        _loads(built, group, pool)
    _chains(built, group)
    for pool in (0, 1):
        _order(built, group, pool)
    _alike_in_order(built, group)
    return built


def _pins(built: _Built, group: _Group, pool: int) -> None:
    """Pin each job to ``a_Pj`` nodes: ``sum_n z[P,j,n] = a_Pj``.

    Nodes may be numbered in the order of the first job on them (a tie within one job any way):
    ``z[P,j,n] <= sum_(i <= j) z[P,i,n-1]``, so job ``j`` uses only the first
    ``a_P0 + ... + a_Pj`` nodes.
    """
    model, reach = built.model, 0
    pin = built.pin[pool]
    for j, width in enumerate(group.width[pool]):
        reach += width
        mine = {
            n: model.new_bool_var(f"z[{pool},{j},{n}]")
            for n in range(min(reach, group.nodes[pool]))
        }
        pin.append(mine)
        model.add(sum(mine.values()) == width)
        for n, literal in mine.items():
            if n:
                model.add_bool_or([~literal, *(row[n - 1] for row in pin if n - 1 in row)])


def _residency(built: _Built, group: _Group, pool: int) -> None:
    """Keep the states within the host DRAM: ``sum_j m_Pj z[P,j,n] <= M_P``."""
    state = group.state[pool]
    for n in range(group.nodes[pool]):
        terms = [state[j] * row[n] for j, row in enumerate(built.pin[pool]) if n in row]
        if terms:
            built.model.add(sum(terms) <= group.dram[pool])


def _sharing(built: _Built, group: _Group, pool: int) -> None:
    """Let two jobs on one node share, and both pay: ``z[P,i,n] + z[P,j,n] <= 1 + b[P,i,j]``."""
    model, pin, pays = built.model, built.pin[pool], built.pays[pool]
    for i, j in combinations(range(len(group.rates)), 2):
        common = [n for n in pin[i] if n in pin[j]]
        if not common:
            continue
        share = model.new_bool_var(f"b[{pool},{i},{j}]")
        built.share[pool][i, j] = share
        for n in common:
            model.add_bool_or([~pin[i][n], ~pin[j][n], share])
        model.add_implication(share, pays[i])
        model.add_implication(share, pays[j])


def _loads(built: _Built, group: _Group, pool: int) -> None:
    """Bound each node's load: ``sum_j k_j (d_Pj + w_Pj) z[P,j,n] <= C`` (implied).

    On a shared node every job pays. A job alone on a node may not; its switch counts here only
    where it fits, and where it does not, the job can share no node at all.
    """
    length = [
        k * (d + w) if k * (d + w) <= group.period else k * d
        for k, d, w in zip(group.rates, group.phase[pool], group.switch[pool], strict=True)
    ]
    for n in range(group.nodes[pool]):
        terms = [length[j] * row[n] for j, row in enumerate(built.pin[pool]) if n in row]
        if terms:
            built.model.add(sum(terms) <= group.period)


def _chains(built: _Built, group: _Group) -> None:
    """Keep each job's own order: train after rollout, next rollout after train and sync.

    With phases ``p_j, q_j`` that include the switches paid, and the last train's start ``Y_jl =
    V_jl + C B_j`` (else ``Y_jl = V_jl``): ``Y_jl >= X_jl + p_j``; ``Y_jl + q_j + s_j <= X_j(l+1)``,
    after the last train ``<= X_j0 + C``. One-step: :func:`one_step_rules`.
    """
    for j, sync in enumerate(group.sync):
        rollout, train = built.rollout[j], built.train[j]
        p = group.phase[0][j] + group.switch[0][j] * built.pays[0][j]
        q = group.phase[1][j] + group.switch[1][j] * built.pays[1][j]
        if group.lag[j] > 1:
            starts = [v + group.period * b for v, b in zip(train, built.turn[j], strict=True)]
            for rule in one_step_rules(group.lag[j], (p, q, sync), (rollout, starts), group.period):
                built.model.add(rule)
            continue
        for i in range(group.rates[j] - 1):
            built.model.add(train[i] - rollout[i] >= p)
            built.model.add(rollout[i + 1] - train[i] - q >= sync)
        turned = train[-1] + group.period * built.turn[j][-1]
        built.model.add(turned - rollout[-1] >= p)
        built.model.add(turned - rollout[0] + q + sync <= group.period)


def _order(built: _Built, group: _Group, pool: int) -> None:
    """Keep phases that share a node disjoint on the circle.

    Positions are in ``[0, C)``, so one of the two comes first, say ``u``; then ``pos_u + d_u <=
    pos_v`` and, around the circle, ``pos_v + d_v <= pos_u + C``. Both pay, so ``d`` includes
    the switch.
    """
    model, position = built.model, (built.rollout, built.train)[pool]
    length = [d + w for d, w in zip(group.phase[pool], group.switch[pool], strict=True)]
    for (i, j), share in built.share[pool].items():
        for (at, u), (to, v) in product(enumerate(position[i]), enumerate(position[j])):
            first = model.new_bool_var(f"o[{pool},{i},{at},{j},{to}]")
            for a, d, b, e, literal in (
                (u, length[i], v, length[j], first),
                (v, length[j], u, length[i], ~first),
            ):
                model.add(a + d <= b).only_enforce_if(share, literal)
                model.add(b + e <= a + group.period).only_enforce_if(share, literal)


def _alike_in_order(built: _Built, group: _Group) -> None:
    """Let jobs that no rule tells apart start in the order of their index: ``X_i0 <= X_j0``."""
    for i, j in group.alike:
        built.model.add(built.rollout[i][0] <= built.rollout[j][0])


def _read(
    jobs: Sequence[Job], group: _Group, built: _Built, answer: Answer, deadline_s: float
) -> Found | None:
    """Return the pins and the least period in seconds of the orders and turns found.

    ``None`` when that is above the deadline: the unit was too coarse.
    """
    rollout_pins, train_pins = (
        tuple(tuple(n for n, literal in row.items() if answer.value(literal)) for row in pin)
        for pin in built.pin
    )
    shape = GroupShape.of(jobs, rollout_pins, train_pins, group.rates)
    rollout = [[answer.value(x) for x in mine] for mine in built.rollout]
    train = [[answer.value(v) for v in mine] for mine in built.train]
    turn = [[turn_of(answer, b) for b in mine] for mine in built.turn]
    try:
        schedule = least_of_positions(shape, rollout, train, turn)
    except InputError:
        if group.period < 2 ** (_BITS[-1] - 1):
            return None
        # Phases below 2^-40 of the deadline, in an order that contradicts itself: the starts as
        # they are hold within a few of these.
        unit = deadline_s / group.period
        schedule = Schedule(
            period_s=deadline_s,
            starts_s=tuple(
                tuple(
                    (unit * x, unit * (v + group.period * lap))
                    for x, v, lap in zip(xs, vs, laps, strict=True)
                )
                for xs, vs, laps in zip(rollout, train, turn, strict=True)
            ),
            bound_s=lower_bound_s(shape),
        )
    if schedule.period_s > deadline_s * (1 + DEADLINE_REL):
        return None
    return rollout_pins, train_pins, schedule


def least_of_positions(
    shape: GroupShape,
    rollout: Sequence[Sequence[int]],
    train: Sequence[Sequence[int]],
    turn: Sequence[Sequence[int]],
) -> Schedule:
    """Return the least period, in seconds, of the orders and turns of positions in units.

    Parameters
    ----------
    shape : GroupShape
    rollout, train : sequence of sequence of int
        Per job, per iteration, the position of each phase on the circle, in ``[0, C)``; rollouts
        of a job begin in one turn, in order.
    turn : sequence of sequence of int
        Per job, per iteration, the turn the train starts in, counted from that of the rollouts.

    Raises
    ------
    InputError
        When the orders contradict each other, so that no period works: phases that are nothing
        in units.
    """

    def orders(
        position: Sequence[Sequence[int]], seconds: Sequence[float], pins: Sequence[Pins]
    ) -> tuple[tuple[tuple[int, int], ...], ...]:
        on_node: dict[int, list[tuple[int, float, int, int]]] = {}
        for j, nodes in enumerate(pins):
            for node in nodes:
                # of two at one position, the one that is nothing in units goes first
                on_node.setdefault(node, []).extend(
                    (at, seconds[j], j, i) for i, at in enumerate(position[j])
                )
        return tuple(tuple((j, i) for _, _, j, i in sorted(on_node[n])) for n in sorted(on_node))

    order = CyclicOrder(
        rollout=orders(rollout, shape.rollout_s, shape.rollout_pins),
        train=orders(train, shape.train_s, shape.train_pins),
        laps=tuple(tuple((0, lap) for lap in laps) for laps in turn),
    )
    return least_period(shape, order)
