"""Which groups could take a job? Vectorised over all groups at once.

Loads, DRAM and deadlines of old members and new are decided here, switches included; only the
order of phases (precedence) is left to the schedule of the one group that is chosen. With rates
loads and iterations are shares of deadlines (:mod:`planner.placement.fleet_state`), and ``*_s`` of
loads and limits below stands for such shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.jobs import Job
from instances.plan import Limits
from planner.placement.fleet_state import INFINITY, FleetState, NodeTable
from planner.placement.rate_table import MOST_FILL, RateFit

__all__ = ["EPS", "CandidateFinder", "Shared", "Slate"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Slack on loads (seconds), deadlines (seconds) and DRAM (GB): round-off of sums only.
EPS: Final = 1e-9


@dataclass(slots=True)
class Shared:
    """Groups that could share nodes with the job; arrays over ``n`` groups.

    ``*_ok`` mark the existing nodes the job may use, ``(n, width)``; ``*_load_s`` is the load
    of the tightest of them with the job on it, ``(n,)``; ``rates`` is given where groups may
    have rates.
    """

    slots: IntArray
    limit_s: FloatArray
    rollout_ok: BoolArray
    rollout_load_s: FloatArray
    train_ok: BoolArray
    train_load_s: FloatArray
    rates: RateFit | None = None


@dataclass(slots=True)
class Slate:
    """Candidates of one kind: positions ``at`` in ``shared``, and new nodes for each."""

    kind: int
    shared: Shared
    at: IntArray
    new: IntArray | None = None

    @property
    def slots(self) -> IntArray:
        """Slots of the candidates."""
        return self.shared.slots[self.at]


@dataclass(slots=True)
class CandidateFinder:
    """Finds candidates in a fleet.

    Attributes
    ----------
    rollout_gb, train_gb : float
        Host DRAM of a node of each pool, GB, round-off allowed for.
    train_scaling : bool
        Also groups that would buy train nodes.
    """

    fleet: FleetState
    limits: Limits
    rollout_gb: float
    train_gb: float
    train_scaling: bool

    def slates(self, job: Job) -> Iterator[Slate]:
        """Yield candidates kind by kind; loads, DRAM and deadlines of all members hold."""
        fleet, shared = self.fleet, self._sharing_train(job)
        if shared is not None:
            ok = shared.rollout_ok
            if fleet.rates is not None:
                shared.rates = fleet.rates.fits(shared.slots, job, ok, shared.train_ok)
            if job.rollout_nodes == 1:
                at, new = np.logical_or.reduce(ok, axis=1).nonzero()[0], None
            else:
                usable = np.count_nonzero(ok, axis=1)
                at = (usable >= job.rollout_nodes).nonzero()[0]
                # just enough; one where direct packing was possible but not scheduled
                new = np.maximum(job.rollout_nodes - usable, 1)
            if shared.rates is not None:
                at = at[(shared.rates.direct[at] <= MOST_FILL).any(axis=1)]
            if at.size:
                yield Slate(0, shared, at)
            yield from self._buying(1, shared, new)
        if self.train_scaling:
            shared = self._sharing_rollout(job)
            if shared is not None:
                usable = np.count_nonzero(shared.train_ok, axis=1)
                yield from self._buying(2, shared, np.maximum(job.train_nodes - usable, 1))

    def _buying(self, kind: int, shared: Shared, new: IntArray | None) -> Iterator[Slate]:
        """Yield the groups that may buy ``new`` nodes (``None``: one each) in one pool."""
        at = np.arange(len(shared.slots))
        if new is None:
            new = np.ones(len(at), dtype=np.int64)
        pool, most = (
            (self.fleet.rollout, self.limits.max_rollout_nodes),
            (self.fleet.train, self.limits.max_train_nodes),
        )[kind - 1]
        if most is not None:
            at = (pool.count(shared.slots) + new <= most).nonzero()[0]
        if shared.rates is not None:
            at = at[(shared.rates.scaled[at] <= MOST_FILL).any(axis=1)]
        if at.size:
            yield Slate(kind, shared, at, new[at])

    def _sharing_train(self, job: Job) -> Shared | None:
        """Return the groups whose existing train nodes can take the job, if any."""
        fleet, unit = self.fleet, self.fleet.unit_s(job)
        deadline = job.deadline_s / unit
        train_s = (job.train_s + job.train_switch_s) / unit
        cycle_s = job.paid_s(train=True)
        slots = fleet.open_to(
            np.array(
                (
                    (fleet.max_rate * job.deadline_s + EPS,),
                    (EPS,),
                    (EPS - cycle_s,),
                    (deadline - train_s + EPS,),
                    (EPS - train_s,),
                    (self.train_gb - job.train_state_gb,),
                    (0.0,),
                )
            )
        )
        if not slots.size or cycle_s > job.deadline_s + EPS:
            return None
        lone_train = fleet.train.width == 1
        if job.train_nodes > 1 or not lone_train:
            limit = fleet.limit_of(slots, job)
            gb = self.train_gb - job.train_state_gb
            ok, _ = usable_nodes(fleet.train, slots, limit, train_s, gb)
            slots = slots[np.count_nonzero(ok, axis=1) >= job.train_nodes]
            if not slots.size:
                return None
        cycle_s = job.paid_s(rollout=True, train=True)
        return self._shared(job, slots, cycle_s, lone_train=lone_train)

    def _sharing_rollout(self, job: Job) -> Shared | None:
        """Return the groups whose existing rollout nodes can take the job, if any."""
        cycle_s = job.paid_s(rollout=True)
        free = INFINITY
        slots = self.fleet.open_to(
            np.array(((free,), (free,), (EPS - cycle_s,), (free,), (free,), (free,), (0.0,)))
        )
        if not slots.size or cycle_s > job.deadline_s + EPS:
            return None
        shared = self._shared(job, slots, cycle_s)
        enough = np.count_nonzero(shared.rollout_ok, axis=1) >= job.rollout_nodes
        return self._shared(job, slots[enough], cycle_s) if enough.any() else None

    def _shared(
        self, job: Job, slots: IntArray, cycle_s: float, *, lone_train: bool = False
    ) -> Shared:
        """Return these groups with the nodes of both pools that the job may use.

        ``cycle_s`` is the job's iteration with the switches it pays if it gets no new nodes.
        """
        fleet, unit = self.fleet, self.fleet.unit_s(job)
        limit = fleet.limit_of(slots, job)
        rollout_s = (job.rollout_s + job.rollout_switch_s) / unit
        gb = self.rollout_gb - job.rollout_state_gb
        rollout_ok, rollout_load = usable_nodes(fleet.rollout, slots, limit, rollout_s, gb)
        rollout_ok &= (limit >= cycle_s / unit - EPS)[:, None]
        rollout_load = np.maximum.reduce(rollout_load * rollout_ok, axis=1)
        train_s = (job.train_s + job.train_switch_s) / unit
        if lone_train:  # FleetState.open_to has decided on the only node there is
            train_ok = np.ones((len(slots), 1), dtype=np.bool_)
            train_load = fleet.train.rows[0, :, 0].take(slots)
        else:
            gb = self.train_gb - job.train_state_gb
            train_ok, train_load = usable_nodes(fleet.train, slots, limit, train_s, gb)
            train_load = np.maximum.reduce(train_load * train_ok, axis=1)
        train_load = train_load + train_s
        return Shared(slots, limit, rollout_ok, rollout_load + rollout_s, train_ok, train_load)


def usable_nodes(
    table: NodeTable, slots: IntArray, limit_s: FloatArray, seconds: float, gb: float
) -> tuple[BoolArray, FloatArray]:
    """Return which existing nodes can take the job, and the load of each; both ``(n, w)``.

    A node can when ``seconds`` more fit within the limit, it holds ``gb`` or less, and the
    members pinned there bear the switch that sharing makes them pay. The load of a node that
    does not exist is finite here, so that products with the mask are.
    """
    bounds = np.empty((3, len(slots), 1))
    bounds[0, :, 0] = limit_s - (seconds - EPS)
    bounds[1] = gb
    bounds[2, :, 0] = limit_s + EPS
    rows = table.rows.take(slots, axis=1)
    ok: BoolArray = np.logical_and.reduce(rows <= bounds)
    return ok, rows[0]
