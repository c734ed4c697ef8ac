"""The exact decision for one group: by hand, against the oracle, close to ties, and its limits."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from instances.errors import FleetPlannerError, InputError
from instances.jobs import Job
from models.backends.cp_sat import Answer, Status, run
from models.group import cyclic_cpsat
from models.group.cyclic_cpsat import DEADLINE_REL, UndecidedError, decide, round_down, round_up
from models.group.cyclic_cpsat import state_units as units_of_states
from models.problem.result import StoppedBy
from oracles.least_period import least_period, lower_bound, verify
from small_snapshots import (
    FIVE_FRONT,
    MIXES,
    PRECEDENCE,
    five_gangs,
    full_jobs,
    gangs_that_all_meet,
    jobs_of,
    random_jobs,
)

DRAM = (2000.0, 2000.0)
Pins = Sequence[tuple[int, ...]]


def data_of(jobs: Sequence[Job], rollout: Pins, train: Pins) -> tuple[Any, ...]:
    """The oracle's arguments."""
    return (
        [job.rollout_s for job in jobs],
        [job.train_s for job in jobs],
        [job.sync_s for job in jobs],
        rollout,
        train,
        None,
        [job.rollout_switch_s for job in jobs],
        [job.train_switch_s for job in jobs],
    )


def decided(
    jobs: Sequence[Job], nodes: tuple[int, int], deadline_s: float, dram: tuple[float, float] = DRAM
) -> bool:
    """Decide, and judge what is found by the oracle's verifier, the nodes and the DRAM."""
    found = decide(jobs, *nodes, dram, deadline_s)
    if found is None:
        return False
    rollout, train, schedule = found
    assert schedule.period_s <= deadline_s * (1 + DEADLINE_REL)
    tolerance_s = 1e-9 * deadline_s
    data = data_of(jobs, rollout, train)
    assert not verify(schedule.period_s, schedule.starts_s, *data, tolerance_s=tolerance_s)
    assert all(0 <= pairs[0][0] < schedule.period_s for pairs in schedule.starts_s)
    for pool, pins in enumerate((rollout, train)):
        width, state = (
            [(job.rollout_nodes, job.train_nodes)[pool] for job in jobs],
            [(job.rollout_state_gb, job.train_state_gb)[pool] for job in jobs],
        )
        assert [len(set(each)) for each in pins] == [len(each) for each in pins] == width
        used = {node for each in pins for node in each}
        assert used == set(range(len(used)))  # numbered from 0
        assert len(used) <= nodes[pool]
        for node in used:
            on = math.fsum(gb for gb, each in zip(state, pins, strict=True) if node in each)
            assert on <= dram[pool] * (1 + 1e-9)
    return True


def front(jobs: Sequence[Job], deadline_s: float, most: int = 3) -> list[tuple[int, int]]:
    """Pairs of at most so many nodes that suffice and of which neither can be one less."""
    pairs = list(product(range(1, most + 1), repeat=2))
    enough = {pair for pair in pairs if decided(jobs, pair, deadline_s)}
    return [(r, t) for r, t in pairs if (r, t) in enough and not {(r - 1, t), (r, t - 1)} & enough]


# --- by hand --------------------------------------------------------------------------------------


def test_precedence_rejects_what_loads_admit() -> None:
    """FORMULATION section 4: loads and iterations are 11, the least period on one pair is 11.5."""
    assert front(PRECEDENCE, 11.0) == [(1, 2), (2, 1)]
    assert front(PRECEDENCE, 11.4999) == [(1, 2), (2, 1)]
    assert front(PRECEDENCE, 11.5) == [(1, 1)]


def test_neither_pools_least_number_of_nodes_goes_with_the_others() -> None:
    """FORMULATION section 3: (2, 3) and (3, 2), not (2, 2); loads say 12 / 6 and 12 / 6."""
    assert front(FIVE_FRONT, 6.0) == [(2, 3), (3, 2)]


@pytest.mark.parametrize(("deadline_s", "enough"), [(33.9, False), (34.0, True)])
def test_gangs_that_all_meet_take_turns(deadline_s: float, enough: bool) -> None:
    """Any two rollouts of two or three of three nodes meet: 5 + 3 + 11 + 6 + 9 = 34, and node
    loads alone could be as low as (3 x 5 + 2 x 3 + 3 x 11 + 2 x 6 + 2 x 9) / 3 = 28."""
    assert decided(gangs_that_all_meet(34.0), (3, 1), deadline_s) is enough


@pytest.mark.parametrize(
    ("nodes", "least_s"),
    [
        # Ten pins on four nodes: three on one of them, one after another.
        (4, 3.0),
        # Three on one node take 3. Else two on each: the pins are the edges of a graph of degree
        # 2, a ring of five (2.5: of five arcs on a ring at most two at a time), or with a ring
        # of three (3: its edges pairwise meet) and a double edge.
        (5, 2.5),
        # A pair on two nodes and a chain of three on four; ten pins on six: two on one of them.
        (6, 2.0),
    ],
)
def test_five_gangs_choose_their_pins(nodes: int, least_s: float) -> None:
    jobs = five_gangs(3.0)
    assert decided(jobs, (nodes, 5), least_s)
    assert not decided(jobs, (nodes, 5), least_s - 0.01)


def test_a_gang_wider_than_the_group_has_no_pins() -> None:
    jobs = jobs_of((1,), (1,), rollout_nodes=(2,))
    assert not decided(jobs, (1, 1), 2.0)
    assert decided(jobs, (2, 1), 2.0)


def test_an_iteration_beyond_the_deadline_is_rejected() -> None:
    jobs = jobs_of((3, 1), (2, 1), (1, 0))  # T = 6
    assert decided(jobs, (2, 2), 6.0)
    assert not decided(jobs, (2, 2), 5.999)


def test_switches_are_paid_on_shared_nodes_only() -> None:
    """Two jobs (2, 2) alternate in 4 s; a switch of 1 s on the train node makes its load 6."""
    jobs = jobs_of((2, 2), (2, 2), train_switch_s=(1, 1))
    assert not decided(jobs, (1, 1), 5.9)
    assert decided(jobs, (1, 1), 6.0)
    assert decided(jobs, (1, 2), 4.0)  # no switch on a node of one's own


def test_a_switch_that_never_fits_forbids_sharing() -> None:
    jobs = jobs_of((1, 1), (1, 1), rollout_switch_s=(1e9, 0))
    assert not decided(jobs, (1, 1), 100.0)
    assert decided(jobs, (2, 1), 2.0)


def test_dram_may_be_exactly_full() -> None:
    """0.1 + 0.2 exceeds 0.3 in binary; 0.1001 + 0.2 does so in truth."""
    jobs = jobs_of((1, 1), (1, 1), rollout_state_gb=(0.1, 0.2))
    assert decided(jobs, (1, 1), 2.0, (0.3, 1.0))
    tight = [replace(jobs[0], rollout_state_gb=0.1001), jobs[1]]
    assert not decided(tight, (1, 1), 2.0, (0.3, 1.0))
    assert decided(tight, (2, 1), 2.0, (0.3, 1.0))


def test_a_state_beyond_the_dram_has_no_node() -> None:
    jobs = jobs_of((1,), (1,), train_state_gb=(1e300,))
    assert not decided(jobs, (1, 1), 2.0)


# --- units ----------------------------------------------------------------------------------------


def test_round_off_of_decimals_is_not_rounded() -> None:
    assert 0.1 * 3 / 0.1 != 3
    assert round_down(0.1 * 3 / 0.1) == round_up(0.1 * 3 / 0.1) == 3
    assert (round_down(2.999999), round_up(3.000001)) == (2, 4)
    assert (round_down(0.0), round_up(0.0)) == (0, 0)


def test_states_in_decimal_units_where_these_are_exact() -> None:
    assert units_of_states([275.7, 200.0, 2000.5], 2000.0) == ([2757, 2000, 20001], 20000)
    assert units_of_states([1.0, 0.0], 0.0) == ([1, 0], 0)


def test_other_states_round_so_that_what_fits_still_fits() -> None:
    """A third of 100 GB three times: fits, by units of less than 2^-39 of it."""
    states, dram = units_of_states([100 / 3] * 3, 100.0)
    assert dram >= 2**40
    assert sum(states) <= dram <= sum(states) + 3 + 2e-10 * dram  # the slack of every method


# --- against the oracle ---------------------------------------------------------------------------


def truth(jobs: Sequence[Job], nodes: tuple[int, int], deadline_s: float) -> bool:
    """Whether the oracle finds a period within the deadline on any pins of these nodes.

    The first job's nodes may be numbered first; states are not looked at.
    """
    choices = []
    for pool, most in enumerate(nodes):
        widths = [(job.rollout_nodes, job.train_nodes)[pool] for job in jobs]
        rest = [list(combinations(range(most), width)) for width in widths[1:]]
        choices.append(list(product([tuple(range(widths[0]))], *rest)))
    for rollout, train in product(*choices):
        data = data_of(jobs, rollout, train)
        if lower_bound(*data) > deadline_s + 1e-6:
            continue
        if least_period(*data)[0] <= deadline_s + 1e-6:
            return True
    return False


def cases(seed: int, count: int) -> list[tuple[list[Job], tuple[int, int], float]]:
    """Groups whose seconds are multiples of 0.5 and deadlines of 0.125, many of them tight."""
    rng = random.Random(seed)
    out = []
    while len(out) < count:
        n = rng.randint(2, 4)
        if len(out) % 2:
            jobs = full_jobs(rng, n)
            nodes, deadline_s = (1, 1), jobs[0].deadline_s
        else:
            mix = MIXES[rng.choice(("open-shop", "sync", "switches", "gangs", "all"))]
            jobs = [
                replace(job, rollout_state_gb=0.0, train_state_gb=0.0)
                for job in random_jobs(rng, n, mix)
            ]
            wide = max(max(job.rollout_nodes, job.train_nodes) for job in jobs)
            nodes = rng.randint(wide, 2), rng.randint(wide, 2)
            loads = [
                sum(job.rollout_s * job.rollout_nodes for job in jobs) / nodes[0],
                sum(job.train_s * job.train_nodes for job in jobs) / nodes[1],
                max(job.solo_s for job in jobs),
            ]
            deadline_s = math.ceil(2 * max(loads)) / 2 + rng.choice((0.0, 0.0, 0.5, 1.0))
        out.append((jobs, nodes, deadline_s))
    return out


def test_random_groups_against_the_oracle() -> None:
    """The counts make sure that either answer, and loads that lie, occur often enough."""
    seen = {True: 0, False: 0, "loads lie": 0}
    for jobs, nodes, deadline_s in cases(seed=41, count=120):
        expected = truth(jobs, nodes, deadline_s)
        assert decided(jobs, nodes, deadline_s) is expected, (jobs, nodes, deadline_s)
        seen[expected] += 1
        if not expected and nodes == (1, 1):
            data = data_of(jobs, [(0,)] * len(jobs), [(0,)] * len(jobs))
            seen["loads lie"] += lower_bound(*data) <= deadline_s
    assert seen[True] >= 30, seen
    assert seen["loads lie"] >= 15, seen


@pytest.mark.parametrize("jobs", [PRECEDENCE, FIVE_FRONT[:3], full_jobs(random.Random(5), 4)])
@pytest.mark.parametrize("factor", [1.0, math.pi, 1e-6 / 7, 1e9 / 7])
def test_any_unit_of_time_decides_a_tie_alike(jobs: list[Job], factor: float) -> None:
    """At the least period itself a schedule exists, 1e-8 below it none does.

    The closer case is beyond the first, coarser unit.
    """
    scaled = [
        replace(
            job,
            rollout_s=job.rollout_s * factor,
            train_s=job.train_s * factor,
            sync_s=job.sync_s * factor,
        )
        for job in jobs
    ]
    pins = [(0,)] * len(jobs)
    least_s = least_period(*data_of(jobs, pins, pins))[0] * factor
    assert decided(scaled, (1, 1), least_s * (1 + 1e-9))  # the oracle's own round-off
    assert not decided(scaled, (1, 1), least_s * (1 - 1e-8))


def test_a_tie_too_close_for_the_first_unit_takes_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2e-9 below 11.5 the first unit still finds 11.5; the second proves that nothing exists."""
    solves = []

    def spy(*args: Any, **kwargs: Any) -> Answer:
        solves.append(run(*args, **kwargs))
        return solves[-1]

    monkeypatch.setattr(cyclic_cpsat, "run", spy)
    assert not decided(PRECEDENCE, (1, 1), 11.5 * (1 - 2e-9))
    assert [answer.status for answer in solves] == [Status.OPTIMAL, Status.INFEASIBLE]
    solves.clear()
    assert not decided(PRECEDENCE, (1, 1), 11.4)
    assert [answer.status for answer in solves] == [Status.INFEASIBLE]


def test_phases_that_are_nothing_beside_the_deadline() -> None:
    """Three trains of 1e-14 s share a node with any order: the starts hold as they are."""
    jobs = jobs_of((1, 1, 1), (1e-14, 1e-14, 1e-14))
    assert decided(jobs, (1, 1), 3.0)
    assert decided(jobs, (3, 1), 1.0 + 1e-13)


def test_orders_that_contradict_themselves_leave_the_starts_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So may phases below one unit come out; then the starts hold within a few units."""

    def contradictory(*_: Any) -> None:
        raise InputError("The laps of these orders contradict each other.")

    monkeypatch.setattr(cyclic_cpsat, "least_of_positions", contradictory)
    for deadline_s in (11.5, 12.7):
        assert decided(PRECEDENCE, (1, 1), deadline_s)
        found = decide(PRECEDENCE, 1, 1, DRAM, deadline_s)
        assert found is not None
        assert found[2].period_s == deadline_s  # nothing shorter is known


def test_a_solution_beyond_the_deadline_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never on the finer unit, by the module's proof."""
    monkeypatch.setattr(cyclic_cpsat, "_read", lambda *_: None)
    with pytest.raises(FleetPlannerError, match=r"at most 11\.5 s .* a fault of the program"):
        decide(PRECEDENCE, 1, 1, DRAM, 11.5)


def test_large_numbers_do_not_lose_a_schedule() -> None:
    """With its presolve the solver called this group infeasible at 2^35 units and more.

    The rollout nodes carry 4 + 8 + 19 = 31 and 4 + 8 + 2 + 17 = 31 s, all that two nodes can;
    the train nodes 16 + 2 + 7 + 3 + 1 = 29 and 16 + 1 = 17 s.
    """
    jobs = jobs_of(
        (4, 8, 19, 2, 17),
        (16, 2, 7, 3, 1),
        (4, 0, 3, 2, 5),
        rollout_nodes=(2, 2, 1, 1, 1),
        train_nodes=(2, 1, 1, 1, 2),
    )
    for factor in (1.0, 1e9, math.pi):
        scaled = [
            replace(
                job,
                rollout_s=job.rollout_s * factor,
                train_s=job.train_s * factor,
                sync_s=job.sync_s * factor,
            )
            for job in jobs
        ]
        assert decided(scaled, (2, 2), 31.0 * factor)
        assert not decided(scaled, (2, 2), 30.999 * factor)


def test_equal_jobs() -> None:
    """Six jobs (1, 1): one rollout node takes 6 s, two take 3 s with as many train nodes."""
    jobs = jobs_of((1,) * 6, (1,) * 6)
    assert front(jobs, 6.0) == [(1, 1)]
    assert front(jobs, 3.0) == [(2, 2)]
    assert front(jobs, 2.0) == [(3, 3)]


def test_permuting_jobs_changes_nothing() -> None:
    rng = random.Random(3)
    for jobs, nodes, deadline_s in cases(seed=42, count=30):
        shuffled = rng.sample(jobs, len(jobs))
        assert decided(shuffled, nodes, deadline_s) is decided(jobs, nodes, deadline_s)


# --- limits and inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "stopped_by"),
    [({"seconds": 0.0}, StoppedBy.TIME), ({"work": 0.0}, StoppedBy.WORK)],
)
def test_a_limit_is_no_decision(limit: dict[str, Any], stopped_by: StoppedBy) -> None:
    with pytest.raises(UndecidedError, match=f"limit \\({stopped_by}\\)") as caught:
        decide(PRECEDENCE, 1, 1, DRAM, 11.0, **limit)
    assert caught.value.stopped_by is stopped_by


def test_ctrl_c_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Answer:
        return Answer(
            status=Status.UNKNOWN,
            stopped_by=StoppedBy.INTERRUPT,
            objective=None,
            bound=None,
            solution=(),
            conflicts=0,
            work=0.0,
        )

    monkeypatch.setattr(cyclic_cpsat, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decide(PRECEDENCE, 1, 1, DRAM, 11.0)


def test_the_same_seed_finds_the_same() -> None:
    jobs = gangs_that_all_meet(40.0)
    assert decide(jobs, 4, 1, DRAM, 40.0, seed=7) == decide(jobs, 4, 1, DRAM, 40.0, seed=7)


def test_no_job_is_refused() -> None:
    with pytest.raises(InputError, match="Expected at least one job to decide"):
        decide([], 1, 1, DRAM, 1.0)


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, math.inf, math.nan])
def test_a_deadline_is_a_number_above_0(deadline_s: float) -> None:
    with pytest.raises(InputError, match="Expected deadline_s > 0, got"):
        decide(PRECEDENCE, 1, 1, DRAM, deadline_s)
