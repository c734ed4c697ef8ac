"""Hot state of the placer: groups and their nodes as arrays, one slot per group.

The placer asks one question per decision, "which groups could take this job?", so the state
is kept in the form that answers it in a few vectorised passes:

* ``limits`` ``(7, capacity)``: per group the numbers that a job is compared with. A group
  passes when every row is at most the job's own bound for that row (:meth:`FleetState.open_to`);
* node tables ``(3, capacity, width)``: per node its load, its DRAM and the longest iteration
  pinned there. A node that does not exist is overloaded (``ABSENT``).

Loads and iterations are those of a group *with the switch*, since a node that one more
job joins is shared from then on.

With rates (``max_rate`` K > 1) a group's period is not known before its rates are chosen, so loads
and iterations are not seconds but *shares*: every second of job ``j`` counts ``1 / D_j``. What is
tested holds for whatever rates ``k_j`` and period ``C`` with ``C <= k_j D_j``:

* node load ``sum_j k_j phase_j <= C`` implies ``sum_j phase_j / D_j <= 1``;
* chain ``k_j (T_j + switches) <= C`` implies ``(T_j + switches) / D_j <= 1``, and, since
  ``C <= K min_i D_i``, also ``T_j + switches <= K D_i`` for every member ``i``.

So the filter never loses a group that rates could make valid; the rates themselves are tried
group by group (:mod:`planner.placement.group_rates`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job
from models.problem.group_shape import GroupShape, Pins, own_seconds
from planner.placement.group_state import GroupState
from planner.placement.rate_table import RateTable

__all__ = [
    "ABSENT",
    "CLOSED",
    "INFINITY",
    "LONGEST",
    "ROWS",
    "TRAIN_GB",
    "TRAIN_LOAD",
    "FleetState",
    "NodeRow",
    "NodeTable",
    "Slot",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Rows of ``FleetState.limits``.
LONGEST, LONGEST_OVER, MINUS_DEADLINE, TRAIN_LOAD, TRAIN_OVER, TRAIN_GB, CLOSED = range(7)
ROWS: Final = 7
_FIRST_CAPACITY: Final = 64
_FIRST_WIDTH: Final = 4
INFINITY: Final = float("inf")
#: Load, DRAM and iteration of a node that does not exist: too large for any job, but finite.
ABSENT: Final = 1e300

#: Arrays of one number per group, beside ``limits``.
_PER_GROUP: Final = (
    "deadline_s", "iteration_s", "solo_s", "size", "usd_per_hour", "last_end_s", "number",
)  # fmt: skip

#: One node: [load if joined, DRAM GB, longest iteration if joined, jobs pinned].
NodeRow = list[float]


class NodeTable:
    """Nodes of one pool; column order is ascending node id within a group.

    Attributes
    ----------
    rows : (3, capacity, width) float64
        Load (s), DRAM (GB) and longest iteration (s), each if one more job joins the node.
    """

    __slots__ = ("rows",)

    def __init__(self, capacity: int, width: int) -> None:
        self.rows: FloatArray = np.full((3, capacity, width), ABSENT)

    @property
    def width(self) -> int:
        """Columns: the most nodes a group has had, or more."""
        return int(self.rows.shape[2])

    @property
    def load_s(self) -> FloatArray:
        """Load per group and node, ``(capacity, width)``."""
        out: FloatArray = self.rows[0]
        return out

    def count(self, slots: IntArray) -> IntArray:
        """Return how many nodes each of these groups has, ``(n_slots,)``."""
        found: IntArray = np.count_nonzero(self.rows[0, slots] < ABSENT, axis=1)
        return found

    def grow(self, capacity: int, width: int) -> None:
        """Enlarge in place."""
        old = self.rows
        self.rows = np.full((3, capacity, width), ABSENT)
        self.rows[:, : old.shape[1], : old.shape[2]] = old

    def write(self, slot: int, nodes: list[NodeRow]) -> None:
        """Write one group's nodes, in column order."""
        rows = self.rows
        width = rows.shape[2]
        if width == 1 and len(nodes) == 1:
            rows[:, slot, 0] = nodes[0][:3]
            return
        values = [ABSENT] * (3 * width)
        for column, node in enumerate(nodes):
            values[column] = node[0]
            values[width + column] = node[1]
            values[2 * width + column] = node[2]
        rows[:, slot] = np.array(values).reshape(3, width)


@dataclass(slots=True)
class Slot:
    """What the arrays do not hold of one group.

    ``*_ids`` are node ids by column, ``*_rows`` the nodes by id, ``next_*`` the next unused
    id; ``shape`` is the shape of ``state``.
    """

    state: GroupState
    shape: GroupShape
    rollout_ids: Pins
    train_ids: Pins
    rollout_rows: dict[int, NodeRow]
    train_rows: dict[int, NodeRow]
    next_rollout: int
    next_train: int


@dataclass(slots=True)
class FleetState:
    """All running groups; the first ``top`` slots are in use or free.

    Attributes
    ----------
    iteration_s : (capacity,) float64
        Mean iteration seconds of a group's members, the period where all rates are 1.
    solo_s, size : (capacity,) float64
        Sum of the members' ``T_j``, and how many they are.
    """

    usd_rollout: float = DEFAULT_CLUSTER.rollout.usd_per_hour
    usd_train: float = DEFAULT_CLUSTER.train.usd_per_hour
    skip_saturated: bool = True
    max_group_size: int = 0
    max_rate: int = 1
    top: int = 0
    limits: FloatArray = field(default_factory=lambda: np.full((ROWS, _FIRST_CAPACITY), INFINITY))
    deadline_s: FloatArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY))
    iteration_s: FloatArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY))
    solo_s: FloatArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY))
    size: FloatArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY))
    usd_per_hour: FloatArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY))
    last_end_s: FloatArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY))
    number: IntArray = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY, dtype=np.int64))
    rollout: NodeTable = field(default_factory=lambda: NodeTable(_FIRST_CAPACITY, _FIRST_WIDTH))
    train: NodeTable = field(default_factory=lambda: NodeTable(_FIRST_CAPACITY, 1))
    slots: list[Slot | None] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    slot_of: dict[str, int] = field(default_factory=dict)
    created: int = 0
    rates: RateTable | None = None

    def __post_init__(self) -> None:
        if self.max_rate > 1:
            self.rates = RateTable(_FIRST_CAPACITY, self.max_rate)

    def __len__(self) -> int:
        return self.top - len(self.free)

    def nbytes(self) -> int:
        """Return the bytes of the arrays (the Python objects of the groups not counted)."""
        arrays = (
            self.limits, self.deadline_s, self.iteration_s, self.solo_s, self.size,
            self.usd_per_hour, self.last_end_s, self.number, self.rollout.rows, self.train.rows,
        )  # fmt: skip
        return sum(int(a.nbytes) for a in arrays) + (self.rates.nbytes if self.rates else 0)

    def unit_s(self, job: Job) -> float:
        """Return the seconds of a job that count as 1: its deadline with rates, else a second."""
        return job.deadline_s if self.max_rate > 1 else 1.0

    def limit_of(self, slots: IntArray, job: Job) -> FloatArray:
        """Return the most that nodes of these groups may carry with the job, ``(n_slots,)``."""
        if self.max_rate > 1:
            return np.ones(len(slots))
        return np.minimum(self.deadline_s.take(slots), job.deadline_s)

    def open_to(self, bounds: FloatArray) -> IntArray:
        """Return the slots whose every limit is at most ``bounds``, ``(7, 1)``; ascending."""
        passes: BoolArray = np.logical_and.reduce(self.limits[:, : self.top] <= bounds)
        found: IntArray = passes.nonzero()[0]
        return found

    def slot(self, index: int) -> Slot:
        """Return a slot in use."""
        found = self.slots[index]
        assert found is not None
        return found

    def new_number(self) -> int:
        """Return the creation number of the next group."""
        self.created += 1
        return self.created

    def states(self) -> list[GroupState]:
        """Return the running groups in order of creation."""
        return sorted((s.state for s in self.slots if s is not None), key=lambda g: g.number)

    def add(self, state: GroupState, shape: GroupShape) -> int:
        """Store a new group and return its slot."""
        if self.free:
            index = self.free.pop()
        else:
            index = self.top
            if index == self.limits.shape[1]:
                self._grow(2 * index)
            self.top += 1
            self.slots.append(None)
        self.put(index, state, shape)
        return index

    def drop(self, index: int) -> None:
        """Release a group whose last member has left."""
        for job in self.slot(index).state.jobs:
            del self.slot_of[job.job_id]
        self.slots[index] = None
        self.limits[CLOSED, index] = INFINITY
        self.free.append(index)

    def put(self, index: int, state: GroupState, shape: GroupShape) -> None:
        """Store a group's new state in its slot and refresh its row of every array."""
        old = self.slots[index]
        rollout, train = _node_rows(state, shape, [self.unit_s(job) for job in state.jobs])
        rollout_ids, train_ids = tuple(sorted(rollout)), tuple(sorted(train))
        self.slots[index] = Slot(
            state,
            shape,
            rollout_ids,
            train_ids,
            rollout,
            train,
            max(rollout_ids[-1] + 1, old.next_rollout if old else 0),
            max(train_ids[-1] + 1, old.next_train if old else 0),
        )
        for job in state.jobs:
            self.slot_of[job.job_id] = index
        for table, nodes in ((self.rollout, rollout), (self.train, train)):
            if len(nodes) > table.width:
                table.grow(self.limits.shape[1], 2 * len(nodes))
        self.rollout.write(index, [rollout[node] for node in rollout_ids])
        train_rows = [train[node] for node in train_ids]
        self.train.write(index, train_rows)
        self._write_limits(index, state, shape, train_rows)
        if self.rates is not None:
            self.rates.write(index, state.jobs, shape, (rollout_ids, train_ids))
        self.usd_per_hour[index] = len(rollout) * self.usd_rollout + len(train) * self.usd_train

    def _write_limits(
        self, index: int, state: GroupState, shape: GroupShape, train: list[NodeRow]
    ) -> None:
        jobs = state.jobs
        deadline = min([job.deadline_s for job in jobs])
        solo = [job.solo_s for job in jobs]
        closed = 0 < self.max_group_size <= len(jobs) or (
            self.skip_saturated and self.max_rate == 1 and _busiest_s(shape) >= max(solo)
        )
        # one train node: whoever joins shares it, so its members' switch is certain
        longest = train[0][2] if len(train) == 1 else max(solo)
        load = min([row[0] for row in train])
        gb = min([row[1] for row in train])
        last = INFINITY if closed else 0.0
        if self.max_rate == 1:
            row = (longest, longest - deadline, -deadline, load, load - deadline, gb, last)
        else:
            share = longest if len(train) == 1 else 0.0  # T_j / D_j <= 1 anyway
            row = (max(solo), share - 1.0, -self.max_rate * deadline, load, load - 1.0, gb, last)
        self.limits[:, index] = row
        self.deadline_s[index] = deadline
        self.iteration_s[index] = state.iteration_s
        self.solo_s[index] = sum(solo)
        self.size[index] = len(jobs)
        self.number[index] = state.number
        self.last_end_s[index] = max([job.arrival_s + job.duration_s for job in jobs])

    def _grow(self, capacity: int) -> None:
        limits = np.full((ROWS, capacity), INFINITY)
        limits[:, : self.limits.shape[1]] = self.limits
        self.limits = limits
        for name in _PER_GROUP:
            old = getattr(self, name)
            new = np.zeros(capacity, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self.rollout.grow(capacity, self.rollout.width)
        self.train.grow(capacity, self.train.width)
        if self.rates is not None:
            self.rates.grow(capacity)


def _busiest_s(shape: GroupShape) -> float:
    """Return the load of the busiest node, switches as they are now.

    With a one-step job that of the pool where it is less: alone it may fill the nodes of its
    longer phase, and still has an idle window in the other pool.
    """
    most = []
    for phases, pins in (
        (shape.rollout_s, shape.rollout_pins),
        (shape.train_s, shape.train_pins),
    ):
        load: dict[int, float] = {}
        for seconds, nodes in zip(phases, pins, strict=True):
            for node in nodes:
                load[node] = load.get(node, 0.0) + seconds
        most.append(max(load.values()))
    return min(most) if shape.lags else max(most)


def _node_rows(
    state: GroupState, shape: GroupShape, unit_s: list[float]
) -> tuple[dict[int, NodeRow], dict[int, NodeRow]]:
    """Return the rows of both pools, node -> row, as if one more job joined each node.

    Seconds of member ``i`` are counted in ``unit_s[i]``. The longest iteration counts the other
    pool's switch where it is paid now; one that joining both pools would add is left to the
    schedule's own bound.
    """
    rollout: dict[int, NodeRow] = {}
    train: dict[int, NodeRow] = {}
    for i, job in enumerate(state.jobs):
        unit = unit_s[i]
        rollout_s = job.rollout_s + job.rollout_switch_s
        train_s = job.train_s + job.train_switch_s
        rest, lag = job.sync_s, job.lag
        longest_r = own_seconds(rollout_s, shape.train_s[i], rest, lag) / unit
        longest_t = own_seconds(shape.rollout_s[i], train_s, rest, lag) / unit
        for table, pins, load, gb, longest in (
            (rollout, shape.rollout_pins[i], rollout_s / unit, job.rollout_state_gb, longest_r),
            (train, shape.train_pins[i], train_s / unit, job.train_state_gb, longest_t),
        ):
            for node in pins:
                row = table.get(node)
                if row is None:
                    table[node] = [load, gb, longest, 1]
                else:
                    row[0] += load
                    row[1] += gb
                    if longest > row[2]:
                        row[2] = longest
                    row[3] += 1
    return rollout, train
