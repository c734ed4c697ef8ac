"""The online placer: where does an arriving job go? (FORMULATION section 14)

On arrival of job j, over the groups that could take it:

1. *direct*: existing nodes of a group take it, nothing is bought;
2. *rollout scaled*: a group buys just enough rollout nodes, its train nodes are shared;
3. *train scaled* (only when asked for): the same with the pools exchanged;
4. *isolated*: a new group.

Saturated groups (bottleneck load >= natural cycle ``max_j T_j``) are skipped. Every candidate
has first to pass the loads, DRAM and deadlines of old members and new (vectorised, over all
groups at once). Then kind by kind, in the order above, candidates go by marginal cost, ties by
the tie rule, then by age of the group; the first whose offsets
:func:`models.group.period.construct` finds is taken, and the cheapest kind wins. At most
``max_attempts`` candidates of a kind are tried. Nothing is left to chance, and no group is placed
without offsets in hand.

Objectives (``PlacerParams.objective``), with ``K_g`` the $/h of group g's nodes:

* ``per-hour`` (faithful): marginal ``K_g' - K_g``;
* ``per-iteration``: marginal ``K_g' C_g' - K_g C_g``, what one more iteration of *every*
  member costs with the new job against without it, so a stretched period has a price. Loads
  give a lower bound of ``C_g'``; candidates are tried in that order until the best cost
  realised is no larger than the next bound.

Rates (``Limits.max_rate`` K > 1). When a job joins, all members may get new rates ``k_j <= K``
and offsets; pins stay. The filter then works rate by rate (:mod:`planner.placement.rate_table`),
groups that would be less full come first (by classes), and at each period left, least full first,
the first schedule among interleavings is taken. The differences:

* the saturation rule is off. It says that a round as long as the work on one node has no bubble
  left; with rates the round itself changes. On production-200, K = 4 (one earlier state of this
  code), its nearest kin were dearer: ``sum k_j phase_j >= max k_j T_j`` by 7 % (work) and 11 %
  (wallclock), "the busiest node never idles in the present period" by 3 and 5 %;
* per-iteration: ``C_g`` becomes the mean over the members of their mean iteration time
  ``C_g / k_j``, which is ``C_g`` where all rates are 1; its lower bound is the mean ``T_j``;
* when a job leaves, rates and offsets are chosen for the least mean slowdown, but nobody's mean
  iteration gets longer (:func:`planner.placement.group_rates.at_best_rates`).

The default tie rule was chosen by measurement (README, "What the placer does"): ``tightest``
prefers the groups whose nodes the job fills most.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InfeasibleError, InputError, UnsupportedError, did_you_mean
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job
from instances.plan import Limits
from models.problem.group_shape import GroupShape, Pins
from planner.placement.candidates import EPS, CandidateFinder, Slate
from planner.placement.fleet_state import ABSENT, FleetState, NodeTable, Slot
from planner.placement.group_state import GroupState
from planner.placement.joining import join, join_at_rates, pin_choices
from planner.placement.leaving import retimed
from planner.placement.rate_table import RateTable
from planner.placement.tie_rules import TIE_RULES

__all__ = [
    "OBJECTIVES",
    "TIE_RULES",
    "AdmissionKind",
    "Decision",
    "Placer",
    "PlacerParams",
    "Room",
    "require_feasible_alone",
    "require_placeable",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Free (rollout, train) nodes of a fixed fleet.
Room = tuple[int, int]
AdmissionKind = Literal["direct", "rollout_scaled", "train_scaled", "isolated", "repacked"]
KINDS: Final[tuple[AdmissionKind, ...]] = ("direct", "rollout_scaled", "train_scaled", "isolated")
OBJECTIVES: Final = ("per-hour", "per-iteration")
#: With rates: bounds of the classes of fullness (longest chain or load over the period).
_FILL: Final = (0.85, 0.9, 0.95)


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
        Also consider buying train nodes for a group; not in the published policy. With
        ``max_rate`` above 1 the placer refuses it.
    skip_saturated : bool
        Skip saturated groups, as published: the busiest node is as busy as the longest iteration
        ``max_j T_j``. A group with a one-step job is skipped where that holds of both pools: alone
        it may fill its rollout nodes and still leave a window on its train nodes. ``False`` lets
        deadlines alone decide. The rule is about one iteration per period: with ``max_rate`` above
        1 no group is skipped.
    max_attempts : int
        Most candidates of one kind whose offsets are tried before the next kind; with
        ``max_rate`` above 1 every choice of rates and pins counts.
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
    job_id : str
        Whom it places.
    kind : {"direct", "rollout_scaled", "train_scaled", "isolated"}
        New nodes or not: none, rollout nodes, train nodes, or a group of its own.
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
        Group limits. With ``max_rate`` above 1 a group's rates are chosen anew whenever a job
        joins or leaves it; pins of running jobs stay.
    params : PlacerParams
        Tie rule, objective and options.

    Attributes
    ----------
    params : PlacerParams
        Tie rule, objective and options.

    Raises
    ------
    UnsupportedError
        For ``train_scaling`` with ``max_rate`` above 1.

    Examples
    --------
    >>> from planner import Job
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
        if self.params.train_scaling and self.limits.max_rate > 1:
            raise UnsupportedError(
                f"Expected max_rate 1 with train_scaling, got {self.limits.max_rate}: rates are "
                "not chosen for groups that would buy train nodes."
            )
        self._fleet = FleetState(
            usd_rollout=self.cluster.rollout.usd_per_hour,
            usd_train=self.cluster.train.usd_per_hour,
            skip_saturated=self.params.skip_saturated,
            max_group_size=self.limits.max_group_size,
            max_rate=self.limits.max_rate,
        )
        self._tie_rule = TIE_RULES[self.params.tie_rule]
        self._per_hour = self.params.objective == "per-hour"
        self._usd_rollout = self.cluster.rollout.usd_per_hour
        self._usd_train = self.cluster.train.usd_per_hour
        self._finder = CandidateFinder(
            fleet=self._fleet,
            limits=self.limits,
            rollout_gb=self.cluster.rollout.host_dram_gb + EPS,
            train_gb=self.cluster.train.host_dram_gb + EPS,
            train_scaling=self.params.train_scaling,
        )

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

    def adopt(self, groups: Iterable[GroupState]) -> None:
        """Take in groups that run already, by their numbers; new groups come after them."""
        for state in groups:
            self._fleet.add(state, state.shape())
            self.start_after(state.number)

    @property
    def created(self) -> int:
        """The last number that was given to a group."""
        return self._fleet.created

    def start_after(self, number: int) -> None:
        """Give no group a number up to this one any more."""
        self._fleet.created = max(self._fleet.created, number)

    # -- arrival ------------------------------------------------------------------------

    def place(self, job: Job) -> Decision:
        """Place an arriving job and return where it went, offsets of its group included.

        Raises
        ------
        InputError
            When a job of that id is already placed, or a number is out of its range.
        UnsupportedError
            For an async job.
        InfeasibleError
            When the job cannot run even alone (state above host DRAM, gang above a limit).
        """
        decision = self.try_place(job, None)
        assert decision is not None  # with no end of room a job can always be alone
        return decision

    def try_place(self, job: Job, room: Room | None) -> Decision | None:
        """Place an arriving job where no more nodes may be bought than there is room for.

        The rule is that of :meth:`place`, without the candidates that would buy more than
        ``room`` (rollout, train) nodes, a new group among them.

        Returns
        -------
        Decision or None
            ``None``, and nothing has changed, when no candidate is left.

        Raises
        ------
        InputError, UnsupportedError, InfeasibleError
            As :meth:`place` does.
        """
        require_placeable(job, self._fleet.slot_of, self.cluster, self.limits, "the placer takes")
        alone = inf
        if room is None or (job.rollout_nodes <= room[0] and job.train_nodes <= room[1]):
            alone = job.rollout_nodes * self._usd_rollout + job.train_nodes * self._usd_train
            if not self._per_hour:
                alone *= job.solo_s / 3600.0
        best, attempts = self._best(job, alone, room)
        if best is None:
            if alone == inf:
                return None
            state = GroupState.alone(job, self._fleet.new_number())
            self._fleet.add(state, state.shape())
            bought = self._usd_per_hour(state)
            return Decision(job.job_id, "isolated", state, bought, attempts)
        slot, state, shape, kind = best
        bought = self._usd_per_hour(state) - self._usd_per_hour(self._fleet.slot(slot).state)
        self._fleet.put(slot, state, shape)
        return Decision(job.job_id, KINDS[kind], state, bought, attempts)

    def _best(
        self, job: Job, alone: float, room: Room | None
    ) -> tuple[tuple[int, GroupState, GroupShape, int] | None, int]:
        """Return slot, state, shape and kind of the group to join, if any; and the attempts.

        A group is joined when that costs no more than ``alone``.
        """
        least = alone
        best: tuple[int, GroupState, GroupShape, int] | None = None
        attempts = 0
        for slate in self._finder.slates(job):
            if room is not None and not _within(slate, room):
                continue
            lower = self._lower_costs(slate, job)
            tried = 0
            for i in self._ranked(slate, lower, job):
                if tried >= self.params.max_attempts or lower[i] > least + EPS:
                    break
                slot = int(slate.slots[i])
                found, work = self._joined(job, slate, i, self.params.max_attempts - tried)
                tried += work
                if found is None:
                    continue
                state, shape = found
                cost = float(lower[i])
                if not self._per_hour:
                    before = self._usd_per_iteration(self._fleet.slot(slot).state)
                    cost = self._usd_per_iteration(state) - before
                if cost < least - EPS or (best is None and cost <= least + EPS):
                    best, least = (slot, state, shape, slate.kind), cost
                if self._per_hour:
                    break
            attempts += tried
            if best and self._per_hour and (least <= EPS or not self.params.train_scaling):
                break  # nothing can be cheaper
        return best, attempts

    def fork(self) -> Placer:
        """Return an independent copy in the same state; groups are immutable and shared."""
        other = copy(self)
        other._fleet = _forked(self._fleet)
        other._finder = replace(self._finder, fleet=other._fleet)
        return other

    # -- costs and order ----------------------------------------------------------------

    def _lower_costs(self, slate: Slate, job: Job) -> FloatArray:
        """Return a lower bound of each candidate's marginal cost, ``(n,)``."""
        bought = np.zeros(len(slate.at))
        if slate.new is not None:
            bought += slate.new * (0.0, self._usd_rollout, self._usd_train)[slate.kind]
        if self._per_hour:
            return bought
        fleet = self._fleet
        held = fleet.usd_per_hour[slate.slots]
        if self.limits.max_rate > 1:  # nobody's mean iteration is shorter than alone
            cycle = (fleet.solo_s[slate.slots] + job.solo_s) / (fleet.size[slate.slots] + 1)
        else:
            cycle = np.maximum(self._least_cycle_s(slate, job), job.solo_s)
        costs: FloatArray = (
            (held + bought) * cycle - held * fleet.iteration_s[slate.slots]
        ) / 3600.0
        return costs

    def _least_cycle_s(self, slate: Slate, job: Job) -> FloatArray:
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

    def _ranked(self, slate: Slate, lower: FloatArray, job: Job) -> list[int]:
        """Return candidate positions, best first: cost bound, tie rule, age.

        With rates the class of fullness comes before the tie rule: of groups that would be
        more than 95 % full few have a schedule, below 85 % nearly all.
        """
        if slate.at.size == 1:
            return [0]
        keys = (lower, *self._tie_rule(slate, self._fleet, job), self._fleet.number[slate.slots])
        if slate.shared.rates is not None:
            fill = slate.shared.rates.fill(slate.kind)[slate.at].min(axis=1)
            keys = (lower, np.searchsorted(_FILL, fill), *keys[1:])
        order: list[int] = np.lexsort(keys[::-1]).tolist()
        return order

    # -- one candidate ------------------------------------------------------------------

    def _joined(
        self, job: Job, slate: Slate, i: int, most: int
    ) -> tuple[tuple[GroupState, GroupShape] | None, int]:
        """Return candidate ``i``'s group with the job in it, or None; and the attempts it took.

        Among the usable nodes of a group the tightest are taken; when no offsets are found
        there, the ones with most room are tried. Where a period has a price, the other way
        round.
        """
        fleet, position = self._fleet, int(slate.at[i])
        index = int(slate.shared.slots[position])
        slot = fleet.slot(index)
        new = 0 if slate.new is None else int(slate.new[i])
        rollout = pin_choices(
            job.rollout_nodes, new if slate.kind == 1 else 0, slate.shared.rollout_ok[position],
            fleet.rollout.rows[0, index], slot.rollout_ids, slot.next_rollout,
        )  # fmt: skip
        train = pin_choices(
            job.train_nodes, new if slate.kind == 2 else 0, slate.shared.train_ok[position],
            fleet.train.rows[0, index], slot.train_ids, slot.next_train,
        )  # fmt: skip
        first, second = (rollout[0], train[0]), (rollout[-1], train[-1])
        choices = (first, second) if self._per_hour else (second, first)
        rates = slate.shared.rates
        if rates is not None:
            return self._joined_at_rates(
                job, slot, choices, rates.choices(position, slate.kind), slate.kind, most
            )
        for r_pins, t_pins in choices if first != second else (first,):
            found = join(slot, job, r_pins, t_pins, float(slate.shared.limit_s[position]))
            if found is not None:
                return found, 1
        return None, 1

    def _joined_at_rates(
        self,
        job: Job,
        slot: Slot,
        pins: tuple[tuple[Pins, Pins], tuple[Pins, Pins]],
        choices: list[tuple[float, int]],
        kind: int,
        most: int,
    ) -> tuple[tuple[GroupState, GroupShape] | None, int]:
        """Return the same at the rates of possible periods; a lone rollout node suits its period.

        At most ``most`` constructions.
        """
        attempts = 0
        for period, node in choices:
            if kind == 0 and job.rollout_nodes == 1:
                lone = (slot.rollout_ids[node],)
                pins = (lone, pins[0][1]), (lone, pins[1][1])
            for r_pins, t_pins in dict.fromkeys(pins):
                if attempts == most:
                    return None, attempts
                found, tried = join_at_rates(slot, job, r_pins, t_pins, period)
                attempts += tried
                if found is not None:
                    return found, attempts
        return None, attempts

    def _usd_per_hour(self, state: GroupState) -> float:
        return (
            len(state.rollout_nodes) * self._usd_rollout + len(state.train_nodes) * self._usd_train
        )

    def _usd_per_iteration(self, state: GroupState) -> float:
        """Return what one iteration of every member costs, $: the per-iteration objective."""
        return self._usd_per_hour(state) * state.iteration_s / 3600.0

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
        state = retimed(old.without(job_id), self.limits.max_rate)
        self._fleet.put(index, state, state.shape())
        return state


def _within(slate: Slate, room: Room) -> bool:
    """Leave only the candidates that buy no more nodes than there is room for, if any."""
    if slate.new is not None and slate.kind:
        keep = slate.new <= room[slate.kind - 1]
        slate.at, slate.new = slate.at[keep], slate.new[keep]
    return bool(slate.at.size)


def _forked(fleet: FleetState) -> FleetState:
    """Return a copy whose arrays may be written; slots are never written, but replaced."""
    other = copy(fleet)
    for each in fields(fleet):
        value = getattr(fleet, each.name)
        if isinstance(value, np.ndarray | list | dict):
            setattr(other, each.name, value.copy())
        elif isinstance(value, NodeTable | RateTable):
            setattr(other, each.name, deepcopy(value))
    return other


def require_placeable(
    job: Job, placed: Container[str], cluster: Cluster, limits: Limits, who: str
) -> None:
    """Require that an arriving job is new, not async, and feasible alone.

    Raises
    ------
    InputError
        When a job of that id is already placed, or a number is out of its range.
    UnsupportedError
        For an async job, which takes dedicated nodes; ``who`` says who takes none.
    InfeasibleError
        When the job cannot run even alone.
    """
    if job.job_id in placed:
        raise InputError(f"Expected a new job, but '{job.job_id}' is already placed.")
    job.require_valid()
    if job.mode == "async":
        raise UnsupportedError(
            f"Job '{job.job_id}' has mode 'async': {who} sync and one-step jobs only."
        )
    require_feasible_alone(job, cluster, limits)


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
        if gb > node.host_dram_gb + EPS:
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
