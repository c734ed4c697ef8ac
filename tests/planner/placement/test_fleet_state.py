"""The placer's hot arrays: each number by hand, slots that come and go, arrays that grow."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from builders import PAIR_USD, ROLLOUT_USD, job_of, random_job
from instances.jobs import Job
from planner.placement import fleet_state
from planner.placement.fleet_state import FleetState, NodeTable
from planner.placement.group_state import GroupState

#: Load of a node that does not exist: larger than any deadline.
NOWHERE = 1e299


def group_of(
    number: int,
    *jobs: Job,
    rollout: tuple[tuple[int, ...], ...] | None = None,
    train: tuple[tuple[int, ...], ...] | None = None,
    period_s: float = 1000.0,
) -> GroupState:
    """Return a group on given pins; the starts are not looked at by the arrays."""
    n = len(jobs)
    return GroupState(
        number,
        jobs,
        rollout or ((0,),) * n,
        train or ((0,),) * n,
        (1,) * n,
        period_s,
        (((0.0, 0.0),),) * n,
    )


def add(fleet: FleetState, state: GroupState) -> int:
    return fleet.add(state, state.shape())


def bounds(**changes: float) -> np.ndarray:
    """Return bounds that every open group passes, but for the rows named."""
    out = np.full((fleet_state.ROWS, 1), math.inf)
    out[fleet_state.CLOSED] = 0.0
    for name, value in changes.items():
        out[getattr(fleet_state, name)] = value
    return out


# --- One group by hand -----------------------------------------------------------------------

#: Switches 1 and 5 s: if joined a takes 101 + 205 + sync 3 = 309 s, b 51 + 65 = 116 s.
A = job_of(
    "a",
    100,
    200,
    1.5,  # T = 303, D = 454.5
    sync_s=3,
    rollout_switch_s=1,
    train_switch_s=5,
    rollout_state_gb=300,
    train_state_gb=400,
    arrival_s=10,
    duration_s=1000,
)
B = job_of(
    "b",
    50,
    60,
    4,  # T = 110, D = 440
    rollout_switch_s=1,
    train_switch_s=5,
    rollout_state_gb=30,
    train_state_gb=40,
    arrival_s=20,
    duration_s=500,
)


def test_rows_of_a_pair_on_shared_nodes() -> None:
    fleet = FleetState()
    slot = add(fleet, group_of(7, A, B))
    # load 101 + 51, DRAM 330, longest of 309 and 116
    assert fleet.rollout.rows[:, slot, 0].tolist() == [152, 330, 309]
    # load 205 + 65, DRAM 440
    assert fleet.train.rows[:, slot, 0].tolist() == [270, 440, 309]
    assert (fleet.rollout.rows[0, slot, 1:] > NOWHERE).all()
    # deadline min(454.5, 440); the train node carries 270 of it, the longest iteration 309
    assert fleet.limits[:, slot].tolist() == [309, 309 - 440, -440, 270, 270 - 440, 440, 0]
    assert fleet.deadline_s[slot] == 440
    assert fleet.iteration_s[slot] == 1000
    assert fleet.number[slot] == 7
    assert fleet.usd_per_hour[slot] == pytest.approx(PAIR_USD)
    assert fleet.last_end_s[slot] == 1010  # a ends at 10 + 1000, b at 520
    assert fleet.slot_of == {"a": slot, "b": slot}


def test_rows_count_the_switch_of_an_unshared_node_too() -> None:
    """A node that one more job joins is shared from then on, so its own switch counts; the other
    pool's counts only where it is paid now: 101 + 200 + 3, and 100 + 205 + 3.
    """
    fleet = FleetState()
    slot = add(fleet, group_of(1, A))
    assert fleet.rollout.rows[:, slot, 0].tolist() == [101, 300, 304]
    assert fleet.train.rows[:, slot, 0].tolist() == [205, 400, 308]


def test_columns_are_node_numbers_ascending() -> None:
    """a on rollout nodes 4 and 2, b on 4; train nodes 1 (a) and 0 (b): two train nodes, so a
    newcomer need not share a's, and the rollout rows hold no train switch that is not paid.
    """
    fleet = FleetState()
    slot = add(fleet, group_of(1, A, B, rollout=((2, 4), (4,)), train=((1,), (0,))))
    assert fleet.slot(slot).rollout_ids == (2, 4)
    assert fleet.slot(slot).train_ids == (0, 1)
    # node 2: a alone, 101 s and 101 + 200 + 3 = 304; node 4: both, 152 s
    assert fleet.rollout.rows[0, slot, :2].tolist() == [101, 152]
    assert fleet.rollout.rows[1, slot, :2].tolist() == [300, 330]
    assert fleet.rollout.rows[2, slot, :2].tolist() == [304, 304]
    # rollout switches are paid now (node 4 is shared): a 101 + 205 + 3, b 51 + 65
    assert fleet.train.rows[0, slot, :2].tolist() == [65, 205]
    assert fleet.train.rows[2, slot, :2].tolist() == [116, 309]
    # of several train nodes the emptiest counts, and no switch is certain: longest T = 303
    assert fleet.limits[fleet_state.TRAIN_LOAD, slot] == 65
    assert fleet.limits[fleet_state.TRAIN_GB, slot] == 40
    assert fleet.limits[fleet_state.LONGEST, slot] == 303
    assert (fleet.slot(slot).next_rollout, fleet.slot(slot).next_train) == (5, 2)
    assert fleet.rollout.count(np.array([slot])).tolist() == [2]
    assert fleet.train.count(np.array([slot])).tolist() == [2]


@pytest.mark.parametrize(
    ("train_s", "skip", "closed"),
    # alone at T = 100 + t the busiest node carries max(100, t): never saturated; a second job
    # of (100, t) makes it 200 (T = 100 + t)
    [(100, True, True), (100, False, False), (101, True, True), (200, True, True)],
)
def test_saturated_groups_are_closed(train_s: float, skip: bool, closed: bool) -> None:
    """Loads 200 and 2 t >= T = 100 + t exactly when t >= 100."""
    fleet = FleetState(skip_saturated=skip)
    jobs = [job_of(i, 100, train_s, 9) for i in "ab"]
    slot = add(fleet, group_of(1, *jobs))
    assert (fleet.limits[fleet_state.CLOSED, slot] > 0) == closed
    assert (slot in fleet.open_to(bounds())) != closed
    alone = add(fleet, group_of(2, job_of("c", 100, train_s, 9)))
    assert alone in fleet.open_to(bounds())


def test_just_below_saturation_is_open() -> None:
    """Rollouts 60 + 39 carry 99 s, the longest iteration takes 100 s."""
    fleet = FleetState()
    slot = add(fleet, group_of(1, job_of("a", 60, 40, 9), job_of("b", 39, 1, 99)))
    assert slot in fleet.open_to(bounds())


@pytest.mark.parametrize(("size", "open_"), [(0, True), (1, False), (2, False), (3, True)])
def test_full_groups_are_closed(size: int, open_: bool) -> None:
    fleet = FleetState(max_group_size=size, skip_saturated=False)
    slot = add(fleet, group_of(1, A, B))
    assert (slot in fleet.open_to(bounds())) == open_


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("LONGEST", 309.0),  # the newcomer's deadline
        ("LONGEST_OVER", 309.0 - 440.0),
        ("MINUS_DEADLINE", -440.0),  # minus its cycle
        ("TRAIN_LOAD", 270.0),
        ("TRAIN_OVER", 270.0 - 440.0),
        ("TRAIN_GB", 440.0),
    ],
)
def test_every_limit_alone_opens_and_shuts(row: str, value: float) -> None:
    fleet = FleetState()
    slot = add(fleet, group_of(1, A, B))
    assert fleet.open_to(bounds(**{row: value})).tolist() == [slot]
    assert fleet.open_to(bounds(**{row: value - 1e-6})).tolist() == []


# --- Slots -----------------------------------------------------------------------------------


def test_slots_are_reused_and_numbers_are_not() -> None:
    fleet = FleetState()
    numbers = [fleet.new_number() for _ in range(3)]
    assert numbers == [1, 2, 3]
    slots = [add(fleet, group_of(n, job_of(f"j{n}", 1, 1))) for n in numbers]
    fleet.drop(slots[1])
    assert len(fleet) == 2
    assert "j2" not in fleet.slot_of
    assert fleet.open_to(bounds()).tolist() == [slots[0], slots[2]]
    assert add(fleet, group_of(fleet.new_number(), job_of("j4", 1, 1))) == slots[1]
    # order of creation, not of slots
    assert [g.number for g in fleet.states()] == [1, 3, 4]


def test_a_dropped_group_leaves_nothing_to_its_successor() -> None:
    """The old group had three rollout nodes numbered up to 8; the new one has node 0 alone."""
    fleet = FleetState()
    slot = add(fleet, group_of(1, job_of("a", 9, 9, rollout_nodes=3), rollout=((6, 7, 8),)))
    fleet.drop(slot)
    assert add(fleet, group_of(2, job_of("b", 1, 1))) == slot
    assert fleet.rollout.rows[0, slot, 0] == 1
    assert (fleet.rollout.rows[0, slot, 1:] > NOWHERE).all()
    assert fleet.slot(slot).next_rollout == 1
    assert fleet.usd_per_hour[slot] == pytest.approx(PAIR_USD)


def test_node_numbers_are_never_reused_within_a_group() -> None:
    fleet = FleetState()
    a, b = job_of("a", 1, 1), job_of("b", 1, 1)
    slot = add(fleet, group_of(1, a, b, rollout=((0,), (1,))))
    left = group_of(1, a)
    del fleet.slot_of["b"]
    fleet.put(slot, left, left.shape())
    assert fleet.slot(slot).rollout_ids == (0,)
    assert fleet.slot(slot).next_rollout == 2
    assert fleet.rollout.count(np.array([slot])).tolist() == [1]


def test_growth_keeps_every_row() -> None:
    """Far past the first capacity (64 groups) and width (4 rollout nodes, 1 train node)."""
    fleet, rng = FleetState(), random.Random(3)
    small = fleet.nbytes()
    states = []
    for n in range(1, 301):
        job = random_job(rng, f"j{n}")
        if n == 150:
            job = job_of("wide", 5, 5, rollout_nodes=11, train_nodes=7)
        states.append(GroupState.alone(job, n))
        add(fleet, states[-1])
    assert len(fleet) == 300
    assert fleet.nbytes() > small
    assert fleet.rollout.width >= 11
    assert fleet.train.width >= 7
    for slot, state in enumerate(states):
        job = state.jobs[0]
        widths = job.rollout_nodes, job.train_nodes
        for table, width, load, gb in (
            (fleet.rollout, widths[0], job.rollout_s + job.rollout_switch_s, job.rollout_state_gb),
            (fleet.train, widths[1], job.train_s + job.train_switch_s, job.train_state_gb),
        ):
            assert table.rows[0, slot, :width].tolist() == [load] * width
            assert table.rows[1, slot, :width].tolist() == [gb] * width
            assert (table.rows[0, slot, width:] > NOWHERE).all()
        assert fleet.deadline_s[slot] == job.deadline_s
        assert fleet.number[slot] == slot + 1
    counts = fleet.rollout.count(np.arange(300)).tolist()
    assert counts == [state.jobs[0].rollout_nodes for state in states]
    assert len(fleet.open_to(bounds())) == 300  # a lone job never saturates its nodes


def test_node_tables_write_and_grow() -> None:
    table = NodeTable(2, 1)
    table.write(0, [[5.0, 6.0, 7.0, 1]])
    table.grow(3, 2)
    assert table.width == 2
    assert table.rows[:, 0, 0].tolist() == [5, 6, 7]
    table.write(2, [[1.0, 2.0, 3.0, 1], [4.0, 5.0, 6.0, 2]])
    assert table.load_s[2].tolist() == [1, 4]
    table.write(2, [[1.0, 2.0, 3.0, 1]])
    assert table.load_s[2, 0] == 1
    assert table.load_s[2, 1] > NOWHERE
    assert table.count(np.array([0, 1, 2])).tolist() == [1, 0, 1]


def test_prices_follow_the_nodes() -> None:
    fleet = FleetState()
    slot = add(fleet, GroupState.alone(job_of("a", 1, 1, rollout_nodes=3), 1))
    assert fleet.usd_per_hour[slot] == pytest.approx(PAIR_USD + 2 * ROLLOUT_USD)
