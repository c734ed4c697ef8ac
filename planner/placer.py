"""The online placer: where does an arriving job go? (design section 5)

On arrival of job j, over the groups that could take it:

1. *direct*: existing nodes of a group take it, nothing is bought;
2. *rollout scaled*: a group buys just enough rollout nodes, its train nodes are shared;
3. *train scaled* (only when asked for): the same with the pools exchanged;
4. *isolated*: a new group.

Saturated groups (bottleneck load >= natural cycle ``max_j T_j``) are skipped. Every candidate
has first to pass the loads, DRAM and deadlines of old members and new (vectorised, over all
groups at once), then candidates are ordered by marginal cost, ties by the tie rule, then by
kind, then by age of the group; the first whose offsets :func:`models.period.construct` finds
is taken. Nothing is left to chance, and no group is placed without offsets in hand.

Objectives (``PlacerParams.objective``), with ``K_g`` the $/h of group g's nodes:

* ``per-hour`` (faithful): marginal ``K_g' - K_g``;
* ``per-iteration``: marginal ``K_g' C_g' - K_g C_g``, what one more iteration of *every*
  member costs with the new job against without it, so a stretched period has a price. Loads
  give a lower bound of ``C_g'``; candidates are tried in that order until the best cost
  realised is no larger than the next bound.

The default tie rule was chosen by measurement (README, "What the placer does"): ``tightest``
prefers the groups whose nodes the job fills most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InfeasibleError, InputError, UnsupportedError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job
from instances.plan import Limits
from models.period import GroupShape, construct, insert, least_period, order_of
from planner.fleet_state import ABSENT, FleetState, NodeRow, NodeTable, Slot
from planner.group_state import GroupState, Pins

__all__ = [
    "OBJECTIVES",
    "TIE_RULES",
    "AdmissionKind",
    "Decision",
    "Placer",
    "PlacerParams",
    "require_feasible_alone",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

AdmissionKind = Literal["direct", "rollout_scaled", "train_scaled", "isolated"]
KINDS: Final[tuple[AdmissionKind, ...]] = ("direct", "rollout_scaled", "train_scaled", "isolated")
OBJECTIVES: Final = ("per-hour", "per-iteration")
#: Slack on loads (seconds), deadlines (seconds) and DRAM (GB): round-off of sums only.
_EPS: Final = 1e-9
_INFINITY: Final = float("inf")
#: Insertion orders tried per period by the placer; more of them find offsets rarely.
_ORDERS: Final = 2


@dataclass(slots=True)
class _Shared:
    """Groups that could share nodes with the job; arrays over ``n`` groups.

    ``*_ok`` mark the existing nodes the job may use, ``(n, width)``; ``*_load_s`` is the load
    of the tightest of them with the job on it, ``(n,)``.
    """

    slots: IntArray
    limit_s: FloatArray
    rollout_ok: BoolArray
    rollout_load_s: FloatArray
    train_ok: BoolArray
    train_load_s: FloatArray


@dataclass(slots=True)
class _Slate:
    """Candidates of one kind: positions ``at`` in ``shared``, and new nodes for each."""

    kind: int
    shared: _Shared
    at: IntArray
    new: IntArray | None = None

    @property
    def slots(self) -> IntArray:
        """Slots of the candidates."""
        return self.shared.slots[self.at]


def _tightest(slate: _Slate) -> FloatArray:
    """Return minus the share of the period that the job's nodes are busy, both pools summed."""
    load = slate.shared.train_load_s if slate.kind != 2 else slate.shared.rollout_load_s
    if slate.kind == 0:
        load = load + slate.shared.rollout_load_s
    fill: FloatArray = -(load / slate.shared.limit_s)[slate.at]
    return fill


def _shrink_s(slate: _Slate, fleet: FleetState) -> FloatArray:
    """Return by how much the job shortens the group's deadline, seconds."""
    shrink: FloatArray = fleet.deadline_s[slate.slots] - slate.shared.limit_s[slate.at]
    return shrink


TieRule = Callable[[_Slate, FleetState, Job], tuple[FloatArray, ...]]

#: Name -> keys, most important first, smaller is better. ``age`` (order of creation) is last
#: in all of them.
TIE_RULES: Final[dict[str, TieRule]] = {
    "least-shrink": lambda slate, fleet, job: (_shrink_s(slate, fleet), _tightest(slate)),
    "tightest": lambda slate, fleet, job: (_tightest(slate),),
    "most-room": lambda slate, fleet, job: (-_tightest(slate),),
    "nearest-deadline": lambda slate, fleet, job: (
        np.abs(fleet.deadline_s[slate.slots] - job.deadline_s),
    ),
    "nearest-departure": lambda slate, fleet, job: (
        np.abs(fleet.last_end_s[slate.slots] - job.arrival_s - job.duration_s),
    ),
    "oldest": lambda slate, fleet, job: (),
}


@dataclass(frozen=True, kw_only=True)
class PlacerParams:
    """How the placer decides.

    Attributes
    ----------
    objective : {"per-hour", "per-iteration"}
        What the marginal cost is (module docstring).
    tie_rule : str
        One of ``TIE_RULES``.
    train_scaling : bool
        Also consider buying train nodes for a group; not in the published policy.
    skip_saturated : bool
        Skip saturated groups, as published. ``False`` lets deadlines alone decide.
    max_attempts : int
        Most candidates of one kind whose offsets are tried before the next kind.
    """

    objective: str = "per-hour"
    tie_rule: str = "tightest"
    train_scaling: bool = False
    skip_saturated: bool = True
    max_attempts: int = 8

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(
                f"Expected objective in {', '.join(OBJECTIVES)}, got '{self.objective}'."
                f"{did_you_mean(self.objective, OBJECTIVES)}"
            )
        if self.tie_rule not in TIE_RULES:
            raise InputError(
                f"Expected tie_rule in {', '.join(TIE_RULES)}, got '{self.tie_rule}'."
                f"{did_you_mean(self.tie_rule, TIE_RULES)}"
            )
        if self.max_attempts < 1:
            raise InputError(f"Expected max_attempts >= 1, got {self.max_attempts}.")


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a job went.

    Attributes
    ----------
    kind : {"direct", "rollout_scaled", "train_scaled", "isolated"}
    group : GroupState
        The group after the decision, offsets of all members included.
    usd_per_hour : float
        Price of the nodes bought for it, $/h.
    attempts : int
        Candidates whose offsets were tried (0 for an isolated job without candidates).
    """

    job_id: str
    kind: AdmissionKind
    group: GroupState
    usd_per_hour: float
    attempts: int


@dataclass
class Placer:
    """Places arriving jobs and removes leaving ones; keeps all groups with their offsets.

    Parameters
    ----------
    cluster : Cluster
        Prices and host DRAM.
    limits : Limits
        Group limits; ``max_rate`` must be 1 (multi-rate groups are a later method).
    params : PlacerParams

    Examples
    --------
    >>> from instances.jobs import Job
    >>> placer = Placer()
    >>> placer.place(Job(job_id="a", rollout_s=200, train_s=100, slo=1.5)).kind
    'isolated'
    >>> placer.place(Job(job_id="b", rollout_s=100, train_s=150, slo=1.5)).kind
    'direct'
    """

    cluster: Cluster = DEFAULT_CLUSTER
    limits: Limits = field(default_factory=Limits)
    params: PlacerParams = field(default_factory=PlacerParams)

    def __post_init__(self) -> None:
        if self.limits.max_rate != 1:
            raise UnsupportedError("The placer runs every job once per period: max_rate is 1.")
        self._fleet = FleetState(
            usd_rollout=self.cluster.rollout.usd_per_hour,
            usd_train=self.cluster.train.usd_per_hour,
            skip_saturated=self.params.skip_saturated,
            max_group_size=self.limits.max_group_size,
        )
        self._tie_rule = TIE_RULES[self.params.tie_rule]
        self._per_hour = self.params.objective == "per-hour"
        self._usd_rollout = self.cluster.rollout.usd_per_hour
        self._usd_train = self.cluster.train.usd_per_hour
        self._gb_rollout = self.cluster.rollout.host_dram_gb + _EPS
        self._gb_train = self.cluster.train.host_dram_gb + _EPS

    # -- what others ask ----------------------------------------------------------------

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._fleet.slot_of

    def __len__(self) -> int:
        """Return the number of jobs placed."""
        return len(self._fleet.slot_of)

    def groups(self) -> list[GroupState]:
        """Return the running groups in order of creation."""
        return self._fleet.states()

    def group_of(self, job_id: str) -> GroupState:
        """Return the group of a placed job.

        Raises
        ------
        InputError
            When no such job is placed.
        """
        slot = self._fleet.slot_of.get(job_id)
        if slot is None:
            raise InputError(f"Expected a placed job, got '{job_id}'.")
        return self._fleet.slot(slot).state

    def nbytes(self) -> int:
        """Return the bytes of the hot arrays."""
        return self._fleet.nbytes()

    # -- arrival ------------------------------------------------------------------------

    def place(self, job: Job) -> Decision:
        """Place an arriving job and return where it went, offsets of its group included.

        Raises
        ------
        InputError
            When a job of that id is already placed.
        UnsupportedError
            For a job whose mode is not ``sync``.
        InfeasibleError
            When the job cannot run even alone (state above host DRAM, gang above a limit).
        """
        self._check(job)
        alone = job.rollout_nodes * self._usd_rollout + job.train_nodes * self._usd_train
        if not self._per_hour:
            alone *= job.solo_s / 3600.0
        least = alone
        best: tuple[int, GroupState, GroupShape, int] | None = None
        attempts = 0
        for slate in self._slates(job):
            lower = self._lower_costs(slate, job)
            tried = 0
            for i in self._ranked(slate, lower, job):
                if tried == self.params.max_attempts or lower[i] > least + _EPS:
                    break
                tried += 1
                slot = int(slate.slots[i])
                found = self._joined(job, slate, i)
                if found is None:
                    continue
                state, shape = found
                cost = float(lower[i])
                if not self._per_hour:
                    cost = self._cost(state) - self._cost(self._fleet.slot(slot).state)
                if cost < least - _EPS or (best is None and cost <= least + _EPS):
                    best, least = (slot, state, shape, slate.kind), cost
                if self._per_hour:
                    break
            attempts += tried
            if best and self._per_hour and (least <= _EPS or not self.params.train_scaling):
                break  # nothing can be cheaper
        if best is None:
            state = GroupState.alone(job, self._fleet.new_number())
            self._fleet.add(state, state.shape())
            bought = self._usd_per_hour(state)
            return Decision(job.job_id, "isolated", state, bought, attempts)
        slot, state, shape, kind = best
        bought = self._usd_per_hour(state) - self._usd_per_hour(self._fleet.slot(slot).state)
        self._fleet.put(slot, state, shape)
        return Decision(job.job_id, KINDS[kind], state, bought, attempts)

    def _check(self, job: Job) -> None:
        if job.job_id in self._fleet.slot_of:
            raise InputError(f"Expected a new job, but '{job.job_id}' is already placed.")
        if job.mode != "sync":
            raise UnsupportedError(
                f"Job '{job.job_id}' has mode '{job.mode}': the placer takes sync jobs only."
            )
        require_feasible_alone(job, self.cluster, self.limits)

    # -- candidates ---------------------------------------------------------------------

    def _slates(self, job: Job) -> Iterator[_Slate]:
        """Yield candidates kind by kind; loads, DRAM and deadlines of all members hold."""
        shared = self._sharing_train(job)
        if shared is not None:
            ok = shared.rollout_ok
            if job.rollout_nodes == 1:
                at, new = np.logical_or.reduce(ok, axis=1).nonzero()[0], None
            else:
                usable = np.count_nonzero(ok, axis=1)
                at = (usable >= job.rollout_nodes).nonzero()[0]
                # just enough; one where direct packing was possible but not scheduled
                new = np.maximum(job.rollout_nodes - usable, 1)
            if at.size:
                yield _Slate(0, shared, at)
            yield from self._buying(1, shared, new)
        if self.params.train_scaling:
            shared = self._sharing_rollout(job)
            if shared is not None:
                usable = np.count_nonzero(shared.train_ok, axis=1)
                yield from self._buying(2, shared, np.maximum(job.train_nodes - usable, 1))

    def _buying(self, kind: int, shared: _Shared, new: IntArray | None) -> Iterator[_Slate]:
        """Yield the groups that may buy ``new`` nodes (``None``: one each) in one pool."""
        at = np.arange(len(shared.slots))
        if new is None:
            new = np.ones(len(at), dtype=np.int64)
        pool, most = (
            (self._fleet.rollout, self.limits.max_rollout_nodes),
            (self._fleet.train, self.limits.max_train_nodes),
        )[kind - 1]
        if most is not None:
            at = (pool.count(shared.slots) + new <= most).nonzero()[0]
        if at.size:
            yield _Slate(kind, shared, at, new[at])

    def _sharing_train(self, job: Job) -> _Shared | None:
        """Return the groups whose existing train nodes can take the job, if any."""
        fleet, deadline = self._fleet, job.deadline_s
        train_s = job.train_s + job.train_switch_s
        cycle_s = job.solo_s + job.train_switch_s
        slots = fleet.open_to(
            np.array(
                (
                    (deadline + _EPS,),
                    (_EPS,),
                    (_EPS - cycle_s,),
                    (deadline - train_s + _EPS,),
                    (_EPS - train_s,),
                    (self._gb_train - job.train_state_gb,),
                    (0.0,),
                )
            )
        )
        if not slots.size or cycle_s > deadline + _EPS:
            return None
        lone_train = fleet.train.width == 1
        if job.train_nodes > 1 or not lone_train:
            limit = np.minimum(fleet.deadline_s[slots], deadline)
            gb = self._gb_train - job.train_state_gb
            ok, _ = _usable(fleet.train, slots, limit, train_s, gb)
            slots = slots[np.count_nonzero(ok, axis=1) >= job.train_nodes]
            if not slots.size:
                return None
        cycle_s += job.rollout_switch_s
        return self._shared(job, slots, cycle_s, lone_train=lone_train)

    def _sharing_rollout(self, job: Job) -> _Shared | None:
        """Return the groups whose existing rollout nodes can take the job, if any."""
        cycle_s = job.solo_s + job.rollout_switch_s
        free = _INFINITY
        slots = self._fleet.open_to(
            np.array(((free,), (free,), (_EPS - cycle_s,), (free,), (free,), (free,), (0.0,)))
        )
        if not slots.size or cycle_s > job.deadline_s + _EPS:
            return None
        shared = self._shared(job, slots, cycle_s)
        enough = np.count_nonzero(shared.rollout_ok, axis=1) >= job.rollout_nodes
        return self._shared(job, slots[enough], cycle_s) if enough.any() else None

    def _shared(
        self, job: Job, slots: IntArray, cycle_s: float, *, lone_train: bool = False
    ) -> _Shared:
        """Return these groups with the nodes of both pools that the job may use.

        ``cycle_s`` is the job's iteration with the switches it pays if it gets no new nodes.
        """
        fleet = self._fleet
        limit = np.minimum(fleet.deadline_s.take(slots), job.deadline_s)
        rollout_s = job.rollout_s + job.rollout_switch_s
        gb = self._gb_rollout - job.rollout_state_gb
        rollout_ok, rollout_load = _usable(fleet.rollout, slots, limit, rollout_s, gb)
        rollout_ok &= (limit >= cycle_s - _EPS)[:, None]
        rollout_load = np.maximum.reduce(rollout_load * rollout_ok, axis=1)
        train_s = job.train_s + job.train_switch_s
        if lone_train:  # FleetState.open_to has decided on the only node there is
            train_ok = np.ones((len(slots), 1), dtype=np.bool_)
            train_load = fleet.train.rows[0, :, 0].take(slots)
        else:
            gb = self._gb_train - job.train_state_gb
            train_ok, train_load = _usable(fleet.train, slots, limit, train_s, gb)
            train_load = np.maximum.reduce(train_load * train_ok, axis=1)
        train_load = train_load + train_s
        return _Shared(slots, limit, rollout_ok, rollout_load + rollout_s, train_ok, train_load)

    def _lower_costs(self, slate: _Slate, job: Job) -> FloatArray:
        """Return a lower bound of each candidate's marginal cost, ``(n,)``."""
        bought = np.zeros(len(slate.at))
        if slate.new is not None:
            bought += slate.new * (0.0, self._usd_rollout, self._usd_train)[slate.kind]
        if self._per_hour:
            return bought
        fleet = self._fleet
        held = fleet.usd_per_hour[slate.slots]
        cycle = np.maximum(self._least_cycle_s(slate, job), job.solo_s)
        costs: FloatArray = ((held + bought) * cycle - held * fleet.period_s[slate.slots]) / 3600.0
        return costs

    def _least_cycle_s(self, slate: _Slate, job: Job) -> FloatArray:
        """Return the load of the roomiest usable node with the job on it, the busier pool's.

        A lower bound of the period whatever nodes are chosen; a pool that gets new nodes only
        does not count.
        """
        fleet, shared = self._fleet, slate.shared
        cycle = np.zeros(len(slate.at))
        for kind, table, ok, seconds in (
            (1, fleet.rollout, shared.rollout_ok, job.rollout_s + job.rollout_switch_s),
            (2, fleet.train, shared.train_ok, job.train_s + job.train_switch_s),
        ):
            if slate.kind != kind:
                load = np.where(ok[slate.at], table.rows[0].take(slate.slots, axis=0), ABSENT)
                cycle = np.maximum(cycle, load.min(axis=1) + seconds)
        return cycle

    def _ranked(self, slate: _Slate, lower: FloatArray, job: Job) -> list[int]:
        """Return candidate positions, best first: cost bound, tie rule, age."""
        if slate.at.size == 1:
            return [0]
        keys = (lower, *self._tie_rule(slate, self._fleet, job), self._fleet.number[slate.slots])
        order: list[int] = np.lexsort(keys[::-1]).tolist()
        return order

    # -- one candidate ------------------------------------------------------------------

    def _joined(self, job: Job, slate: _Slate, i: int) -> tuple[GroupState, GroupShape] | None:
        """Return candidate ``i``'s group with the job in it, or None without offsets.

        Among the usable nodes of a group the tightest are taken; when no offsets are found
        there, the ones with most room are tried. Where a period has a price, the other way
        round.
        """
        fleet, position = self._fleet, int(slate.at[i])
        index = int(slate.shared.slots[position])
        slot = fleet.slot(index)
        new = 0 if slate.new is None else int(slate.new[i])
        rollout = _choices(
            job.rollout_nodes, new if slate.kind == 1 else 0, slate.shared.rollout_ok[position],
            fleet.rollout.rows[0, index], slot.rollout_ids, slot.next_rollout,
        )  # fmt: skip
        train = _choices(
            job.train_nodes, new if slate.kind == 2 else 0, slate.shared.train_ok[position],
            fleet.train.rows[0, index], slot.train_ids, slot.next_train,
        )  # fmt: skip
        limit = float(slate.shared.limit_s[position])
        first, second = (rollout[0], train[0]), (rollout[-1], train[-1])
        choices = (first, second) if self._per_hour else (second, first)
        for r_pins, t_pins in choices if first != second else (first,):
            found = _join(slot, job, r_pins, t_pins, limit)
            if found is not None:
                return found
        return None

    def _usd_per_hour(self, state: GroupState) -> float:
        return (
            len(state.rollout_nodes) * self._usd_rollout + len(state.train_nodes) * self._usd_train
        )

    def _cost(self, state: GroupState) -> float:
        """Return what the objective minimises of one group."""
        usd = self._usd_per_hour(state)
        return usd if self._per_hour else usd * state.period_s / 3600.0

    # -- departure ----------------------------------------------------------------------

    def remove(self, job_id: str) -> GroupState | None:
        """Remove a job; release nodes nobody is pinned to; re-optimise offsets, never pins.

        Returns
        -------
        GroupState or None
            The group that is left, or ``None`` when it is empty and gone. Its period is never
            longer than before: the old starts without the job are still valid.

        Raises
        ------
        InputError
            When no such job is placed.
        """
        old = self.group_of(job_id)
        index = self._fleet.slot_of[job_id]
        if len(old.jobs) == 1:
            self._fleet.drop(index)
            return None
        del self._fleet.slot_of[job_id]
        state = old.without(job_id)
        shape = state.shape()
        schedule = construct(shape, limit_s=state.period_s)
        if schedule is None:
            order = order_of(shape, state.period_s, state.starts_s)
            schedule = least_period(shape, order)
        state = replace(state, period_s=schedule.period_s, starts_s=schedule.starts_s)
        self._fleet.put(index, state, shape)
        return state


def _usable(
    table: NodeTable, slots: IntArray, limit_s: FloatArray, seconds: float, gb: float
) -> tuple[BoolArray, FloatArray]:
    """Return which existing nodes can take the job, and the load of each; both ``(n, w)``.

    A node can when ``seconds`` more fit within the limit, it holds ``gb`` or less, and the
    members pinned there bear the switch that sharing makes them pay. The load of a node that
    does not exist is finite here, so that products with the mask are.
    """
    bounds = np.empty((3, len(slots), 1))
    bounds[0, :, 0] = limit_s - (seconds - _EPS)
    bounds[1] = gb
    bounds[2, :, 0] = limit_s + _EPS
    rows = table.rows.take(slots, axis=1)
    ok: BoolArray = np.logical_and.reduce(rows <= bounds)
    return ok, rows[0]


def _join(
    slot: Slot, job: Job, r_pins: Pins, t_pins: Pins, limit_s: float
) -> tuple[GroupState, GroupShape] | None:
    """Return the group with the job on these pins, or None when no offsets are found.

    First the job is inserted into the running schedule as it is; when that fails, or when its
    coming makes a member pay a switch, all offsets are built anew.
    """
    old, shape = slot.state, slot.shape
    paying_r = _paying(slot.rollout_rows, r_pins, old.rollout_pins)
    paying_t = _paying(slot.train_rows, t_pins, old.train_pins)
    p, q = list(shape.rollout_s), list(shape.train_s)
    for i in paying_r[:-1]:
        p[i] = old.jobs[i].rollout_s + old.jobs[i].rollout_switch_s
    for i in paying_t[:-1]:
        q[i] = old.jobs[i].train_s + old.jobs[i].train_switch_s
    p.append(job.rollout_s + (job.rollout_switch_s if paying_r[-1] >= 0 else 0.0))
    q.append(job.train_s + (job.train_switch_s if paying_t[-1] >= 0 else 0.0))
    new = GroupShape(
        tuple(p),
        tuple(q),
        (*shape.sync_s, job.sync_s),
        (*old.rollout_pins, r_pins),
        (*old.train_pins, t_pins),
        (*old.rates, 1),
    )
    period, starts = old.period_s, None
    if len(paying_r) == len(paying_t) == 1 and period <= limit_s:
        starts = insert(new, period, old.starts_s)
    if starts is None:
        schedule = construct(new, limit_s=limit_s, orders=_ORDERS, refine=0)
        if schedule is None:
            return None
        period, starts = schedule.period_s, schedule.starts_s
    jobs = (*old.jobs, job)
    state = GroupState(
        old.number, jobs, new.rollout_pins, new.train_pins, new.rates, period, starts
    )
    return state, new


def _paying(rows: dict[int, NodeRow], pins: Pins, members: tuple[Pins, ...]) -> list[int]:
    """Return the members that start to pay a switch when ``pins`` are joined.

    The last entry is 0 when the newcomer pays too (one of its nodes is not new), else -1.
    """
    shared = -1
    found: list[int] = []
    for node in pins:
        row = rows.get(node)
        if row is not None:
            shared = 0
            if row[3] == 1:
                found += [i for i, nodes in enumerate(members) if node in nodes and i not in found]
    found.append(shared)
    return found


def require_feasible_alone(job: Job, cluster: Cluster, limits: Limits) -> None:
    """Require that a job has a valid plan when it is alone.

    Raises
    ------
    InfeasibleError
        When its state exceeds a node's host DRAM, or its gang a group's node limit.
    """
    for pool, gb, node in (
        ("rollout", job.rollout_state_gb, cluster.rollout),
        ("train", job.train_state_gb, cluster.train),
    ):
        if gb > node.host_dram_gb + _EPS:
            raise InfeasibleError(
                f"Expected {pool}_state_gb <= {node.host_dram_gb:g} (host DRAM of a {pool} "
                f"node), got {gb:g} (job '{job.job_id}')."
            )
    for pool, width, most in (
        ("rollout", job.rollout_nodes, limits.max_rollout_nodes),
        ("train", job.train_nodes, limits.max_train_nodes),
    ):
        if most is not None and width > most:
            raise InfeasibleError(
                f"Expected {pool}_nodes <= {most} (max_{pool}_nodes), got {width} "
                f"(job '{job.job_id}')."
            )


def _choices(
    width: int, new: int, usable: BoolArray, load_s: FloatArray, ids: Pins, next_id: int
) -> tuple[Pins, Pins]:
    """Return two pin sets of ``width`` nodes, ``new`` of them new: tightest, then most room."""
    fresh = tuple(range(next_id, next_id + new))
    keep = width - new
    if keep <= 0:
        return fresh, fresh
    columns = usable.nonzero()[0].tolist()
    if len(columns) > keep:
        columns.sort(key=lambda c: -load_s[c])
    tight = tuple(sorted(ids[c] for c in columns[:keep])) + fresh
    roomy = tuple(sorted(ids[c] for c in columns[-keep:])) + fresh
    return tight, roomy
