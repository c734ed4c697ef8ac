"""One version of a group as the event loop wants it: numbered nodes, orders, switches, state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, UnsupportedError, did_you_mean
from instances.jobs import Job
from instances.plan import GroupVersion
from models.group.cycle_ratio import order_of
from models.problem.group_shape import GroupShape
from planner.policies.change_factors import COLD_OVER_WARM
from planner.simulate.runtime_kernel import (
    BINS,
    BLOCKED,
    COMING,
    Found,
    Layout,
    State,
    Window,
    settle,
)

__all__ = [
    "DISCIPLINES",
    "WARM",
    "Discipline",
    "LaidOut",
    "Switches",
    "at_start",
    "require_discipline",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Discipline = Literal["round-robin", "fifo"]

DISCIPLINES: Final[tuple[Discipline, ...]] = ("round-robin", "fifo")
_KINDS: Final = ("warm", "cold", "none")


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What starting a phase costs beside its run.

    Attributes
    ----------
    kind : {"warm", "cold", "none"}
        Of every phase on a shared node: warm as the jobs say, as if nothing stayed resident, or
        nothing.
    cold_joins : bool
        Whether a job's first rollout and first train of a stay start cold.
    rollout_cold, train_cold : float
        Cold seconds over warm ones; derived: the longest published of each, both at 70B.
    """

    kind: str = "warm"
    cold_joins: bool = False
    rollout_cold: float = COLD_OVER_WARM["rollout"]
    train_cold: float = COLD_OVER_WARM["train"]

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InputError(
                f"Expected switches {', '.join(_KINDS)}, got '{self.kind}'."
                f"{did_you_mean(self.kind, _KINDS)}"
            )
        for name in ("rollout_cold", "train_cold"):
            value = getattr(self, name)
            if not (value >= 0 and isfinite(value)):
                raise InputError(f"Expected {name} >= 0, got {value!r}.")


#: Beyond it, times overflow.
_MOST_INTERFERENCE: Final = 1e3
#: As a plan reckons with them.
WARM: Final = Switches()


def require_discipline(discipline: str, interference: float) -> None:
    """Raise InputError for an unknown discipline, or interference that makes no sense."""
    if discipline not in DISCIPLINES:
        raise InputError(
            f"Expected discipline in {', '.join(DISCIPLINES)}, got '{discipline}'."
            f"{did_you_mean(discipline, DISCIPLINES)}"
        )
    if not 0 <= interference <= _MOST_INTERFERENCE:
        raise InputError(
            f"Expected interference >= 0 and <= {_MOST_INTERFERENCE:g}, got {interference!r}."
        )


def _flat(lists: Iterable[Sequence[Any]]) -> tuple[IntArray, list[Any]]:
    """Return where each list begins in their concatenation, and that."""
    begins: list[int] = [0]
    flat: list[Any] = []
    for items in lists:
        flat += items
        begins.append(len(flat))
    return np.array(begins, dtype=np.int64), flat


class LaidOut:
    """One version as the loop wants it."""

    def __init__(
        self,
        version: GroupVersion,
        numbers: Sequence[int],
        members: Sequence[Job],
        *,
        discipline: Discipline,
        interference: float,
        switches: Switches,
        joins: Sequence[bool],
    ) -> None:
        self.version, self.numbers, self.members = version, numbers, members
        placements = version.placements
        for placement in placements:
            if not placement.rollout_pins:
                raise UnsupportedError(
                    f"Expected every job on nodes of both pools, got none for rollout (job "
                    f"'{placement.job_id}')."
                )
        rates = tuple(len(placement.starts_s) for placement in placements)
        pins = [(p.rollout_pins, p.train_pins) for p in placements]
        shape = GroupShape.of(members, [r for r, _ in pins], [t for _, t in pins], rates)
        nodes = [sorted({node for pair in pins for node in pair[pool]}) for pool in (0, 1)]
        self.nodes = [(pool, node) for pool in (0, 1) for node in nodes[pool]]
        number = {name: i for i, name in enumerate(self.nodes)}
        self.shared = _shared(pins)
        lines = [(j, pool) for j in range(len(members)) for pool in (0, 1)]
        pin_from, flat = _flat([[number[pool, x] for x in pins[j][pool]] for j, pool in lines])
        order_from, order = self._order(shape, discipline)
        warm, first = self._switch_s(lines, switches, joins)
        self.layout = Layout(
            fifo=discipline == "fifo",
            pin_from=pin_from,
            pins=np.array(flat, dtype=np.int64),
            order_from=order_from,
            order=order,
            rates=np.array(rates, dtype=np.int64),
            lag=np.array([1 + (job.mode == "one-step") for job in members], dtype=np.int64),
            switch_s=warm,
            first_switch_s=first,
            sync_s=np.array([job.sync_s for job in members]),
            solo_s=np.array([job.solo_s for job in members]),
            deadline_s=np.array([job.deadline_s for job in members]),
        )
        self.factor = np.array([1.0 + interference * self.shared[j][pool] for j, pool in lines])
        self.release_s = np.array(
            [0.0 if discipline == "fifo" else p.starts_s[0][0] for p in placements]
        )

    def _order(self, shape: GroupShape, discipline: Discipline) -> tuple[IntArray, IntArray]:
        """Return the cyclic order of every node, rows (job, iteration, lap)."""
        if discipline == "fifo":
            return np.zeros(len(self.nodes) + 1, dtype=np.int64), np.empty((0, 3), dtype=np.int64)
        starts_s = tuple(placement.starts_s for placement in self.version.placements)
        cyclic = order_of(shape, self.version.period_s, starts_s)
        rows = [
            [(j, i, cyclic.laps[j][i][pool]) for j, i in ops]
            for pool, per_node in enumerate((cyclic.rollout, cyclic.train))
            for ops in per_node
        ]
        order_from, flat = _flat(rows)
        return order_from, np.array(flat, dtype=np.int64)

    def _switch_s(
        self, lines: Sequence[tuple[int, int]], switches: Switches, joins: Sequence[bool]
    ) -> tuple[FloatArray, FloatArray]:
        """Return switch seconds of every line, and those of its first phase."""
        usual, first = [], []
        for j, pool in lines:
            job = self.members[j]
            warm = (job.rollout_switch_s, job.train_switch_s)[pool]
            cold = warm * (switches.rollout_cold, switches.train_cold)[pool]
            each = {"warm": warm, "cold": cold, "none": 0.0}[switches.kind]
            usual.append(each if self.shared[j][pool] else 0.0)
            first.append(cold if switches.cold_joins and joins[j] else usual[-1])
        return np.array(usual), np.array(first)


def _shared(pins: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[bool, bool]]:
    """Return per job and pool whether any of its nodes has two or more jobs pinned."""
    users = [Counter(node for pair in pins for node in pair[pool]) for pool in (0, 1)]
    return [
        (any(users[0][x] > 1 for x in pair[0]), any(users[1][x] > 1 for x in pair[1]))
        for pair in pins
    ]


def at_start(group: LaidOut, horizon_s: float, most_events: int) -> tuple[Window, State, Found]:
    """Return the state before the first event."""
    n, nodes, layout = len(group.members), len(group.nodes), group.layout
    release_s = group.release_s
    state = State(
        now=np.zeros(1),
        stage=np.array([COMING, BLOCKED] * n, dtype=np.int64),
        at=np.repeat(release_s, 2),
        ended=np.zeros(2 * n, dtype=np.int64),
        synced=np.zeros(n),
        holder=np.full(nodes, -1, dtype=np.int64),
        place=layout.order_from[:-1].copy(),
        turn=np.zeros(nodes, dtype=np.int64),
        began=np.zeros(n),
        done=np.zeros(n, dtype=np.int64),
    )
    for node in range(nodes):
        settle(node, layout, state)
    found = Found(
        sums=np.zeros((n, 6)),
        bins=np.zeros((n, BINS), dtype=np.int64),
        work=np.zeros((2 * n, 2)),
        last=np.zeros((2 * n, 2)),
        busy=np.zeros((nodes, 2)),
        events=np.empty((most_events, 6)),
        counts=np.zeros(3, dtype=np.int64),
    )
    window = Window(opens_s=release_s, closes_s=release_s + horizon_s, busy_to_s=horizon_s)
    return window, state, found
