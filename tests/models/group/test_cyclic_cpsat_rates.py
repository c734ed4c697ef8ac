"""The exact decision for one group whose jobs iterate at different rates."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

import pytest

from instances.errors import InputError
from instances.jobs import Job
from models.group.cyclic_cpsat import DEADLINE_REL, UndecidedError, decide
from models.group.pair_orders import decide_orders
from models.problem.result import StoppedBy
from oracles.least_period import least_period, lower_bound
from period_cases import Case, Pins
from small_snapshots import MIXES, PRECEDENCE, jobs_of, random_jobs

DRAM = (2000.0, 2000.0)
#: More branches than any search of these tests needs.
UNCUT = 100_000


class Group(NamedTuple):
    """The arguments of one decision."""

    jobs: Sequence[Job]
    rates: Sequence[int]
    nodes: tuple[int, int]
    period_s: float
    dram_gb: float = 2000.0


def decided(group: Group) -> bool:
    """Decide, and judge what is found by the oracle, the checker, the nodes and the DRAM."""
    jobs, rates, nodes, period_s, dram_gb = group
    found = decide(jobs, *nodes, (dram_gb, dram_gb), period_s, rates=rates)
    if found is None:
        return False
    rollout, train, schedule = found
    case = Case(tuple(jobs), rollout, train, tuple(rates))
    assert schedule.period_s <= period_s * (1 + DEADLINE_REL)
    assert [len(pairs) for pairs in schedule.starts_s] == list(rates)
    assert all(0 <= pairs[0][0] < schedule.period_s for pairs in schedule.starts_s)
    assert case.faults(schedule.period_s, schedule.starts_s, period_s) == []
    assert [len(pins) for pins in rollout] == [job.rollout_nodes for job in jobs]
    assert [len(pins) for pins in train] == [job.train_nodes for job in jobs]
    for most, pins, states in (
        (nodes[0], rollout, [job.rollout_state_gb for job in jobs]),
        (nodes[1], train, [job.train_state_gb for job in jobs]),
    ):
        used = {node for each in pins for node in each}
        assert used == set(range(len(used)))  # numbered from 0
        assert len(used) <= most
        for node in used:
            on = math.fsum(gb for gb, each in zip(states, pins, strict=True) if node in each)
            assert on <= dram_gb * (1 + 1e-9)
    return True


def pinnings(group: Group) -> Iterator[Case]:
    """Yield the group on all pins that the DRAM admits; the first job's nodes come first."""
    choices: list[list[Pins]] = []
    for pool, most in enumerate(group.nodes):
        widths = [(job.rollout_nodes, job.train_nodes)[pool] for job in group.jobs]
        states = [(job.rollout_state_gb, job.train_state_gb)[pool] for job in group.jobs]
        rest = [list(combinations(range(most), width)) for width in widths[1:]]
        choices.append(
            [
                pins
                for pins in product([tuple(range(widths[0]))], *rest)
                if all(
                    sum(gb for gb, each in zip(states, pins, strict=True) if node in each)
                    <= group.dram_gb
                    for node in range(most)
                )
            ]
        )
    for rollout, train in product(*choices):
        yield Case(tuple(group.jobs), rollout, train, tuple(group.rates))


def exists(group: Group) -> bool:
    """Whether the exact search for given pins finds a schedule on any of them."""
    for case in pinnings(group):
        answer = decide_orders(case.shape(), group.period_s, UNCUT)
        assert answer.starts_s is not None or answer.proved
        if answer.starts_s is not None:
            return True
    return False


def least_s(group: Group) -> float:
    """The least period on any of the pins, by the oracle."""
    least = math.inf
    for case in pinnings(group):
        if lower_bound(*case.data()) < least:
            least = min(least, least_period(*case.data())[0])
    return least


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "least"),
    [
        # Job 1 never waits within 8 s, and leaves gaps of 1 s between its trains; job 0's train
        # takes 2 s. One gap of 2 s more: 9. Loads say 8, the chains 6 + 2 and 4 x (1 + 1).
        ((2, 1), 9.0),
        # Train nodes of their own: the chains, 8.
        ((2, 2), 8.0),
        # One rollout node: between two rollouts of job 1 lies a train of 1 s; job 0's rollout
        # fills one of the four gaps, 6 + 4 x 1 + 3 x 1.
        ((1, 2), 13.0),
    ],
)
def test_a_short_job_beside_a_long_one(nodes: tuple[int, int], least: float) -> None:
    jobs = jobs_of((6, 1), (2, 1))
    assert decided(Group(jobs, (1, 4), nodes, least))
    assert not decided(Group(jobs, (1, 4), nodes, least * (1 - 1e-8)))


def test_three_trains_in_two_gaps() -> None:
    """Job 0 trains twice, 5 s apart; of trains of 4, 4 and 2 s one gap takes two, 6 s at least:
    2 x 1 + 6 + 5 = 13. The load of the train node is 12, so is the chain of job 0."""
    jobs = jobs_of((5, 1, 1, 1), (1, 4, 4, 2))
    for period_s, enough in ((13.0, True), (12.999, False)):
        assert decided(Group(jobs, (2, 1, 1, 1), (4, 1), period_s)) is enough


def test_each_iteration_pays_its_switch() -> None:
    """Trains of 2 and three of 1 s on one node, with switches of 0.5 s: 2.5 + 3 x 1.5 = 7.

    Between two trains of job 1 lies a rollout of 0.1 s; job 0's train fills one of the three
    gaps: 7.2.
    """
    jobs = jobs_of((1, 0.1), (2, 1), train_switch_s=(0.5, 0.5))
    assert decided(Group(jobs, (1, 3), (2, 1), 7.2))
    assert not decided(Group(jobs, (1, 3), (2, 1), 7.19))
    assert decided(Group(jobs, (1, 3), (2, 2), 3.3))  # 3 x 1.1 s, and no switch


def test_a_switch_that_fits_once_but_not_in_every_iteration_forbids_sharing() -> None:
    """Two trains of 2 s with their switch of 3 s take 10 of 9 s; one takes 5, beside 1 s."""
    jobs = jobs_of((1, 1), (2, 1), train_switch_s=(3, 0))
    assert decided(Group(jobs, (1, 1), (1, 1), 9.0))
    assert not decided(Group(jobs, (2, 1), (2, 1), 9.0))
    assert decided(Group(jobs, (2, 1), (2, 2), 9.0))


def test_every_iteration_of_a_chain_is_counted() -> None:
    """Two iterations of 3 s and 1 s of sync take 8 s, not a millisecond less."""
    jobs = jobs_of((2, 1), (1, 1), (1, 0))
    assert decided(Group(jobs, (2, 1), (2, 2), 8.0))
    assert not decided(Group(jobs, (2, 1), (2, 2), 7.999))


def test_states_are_resident_once_whatever_the_rate() -> None:
    jobs = jobs_of((1, 1), (1, 1), rollout_state_gb=(6, 4))
    assert decided(Group(jobs, (1, 3), (1, 2), 20.0, 10.0))
    assert not decided(Group(jobs, (1, 3), (1, 2), 20.0, 9.9))


def test_rates_of_1_are_the_default() -> None:
    for period_s in (11.0, 11.5):
        asked = decide(PRECEDENCE, 1, 1, DRAM, period_s, rates=(1, 1, 1))
        assert asked == decide(PRECEDENCE, 1, 1, DRAM, period_s)


# --- against independent programs -----------------------------------------------------------------


def random_group(rng: random.Random, most_jobs: int) -> Group:
    """Return a group of 2 or more jobs; the period is its loads' or a little more."""
    mix = MIXES[rng.choice(sorted(MIXES))]
    jobs = random_jobs(rng, rng.randint(2, most_jobs), mix)
    rates = [rng.choice((1, 1, 2, 3, 4)) for _ in jobs]
    wide = max(max(job.rollout_nodes, job.train_nodes) for job in jobs)
    nodes = rng.randint(wide, 2), rng.randint(wide, 2)
    each = list(zip(rates, jobs, strict=True))
    loads = (
        sum(k * job.rollout_s * job.rollout_nodes for k, job in each) / nodes[0],
        sum(k * job.train_s * job.train_nodes for k, job in each) / nodes[1],
        max(k * job.solo_s for k, job in each),
    )
    period_s = math.ceil(2 * max(loads)) / 2 + rng.choice((0.0, 0.0, 0.5, 1.0, 2.0, 4.0))
    return Group(jobs, rates, nodes, period_s)


def test_random_groups_against_the_search_on_every_pinning() -> None:
    """Gangs, sync, switches and DRAM; the counts make sure that either answer is common."""
    rng = random.Random(51)
    seen = {True: 0, False: 0}
    for _ in range(90):
        group = random_group(rng, 4)
        expected = exists(group)
        assert decided(group) is expected, group
        seen[expected] += max(group.rates) > 1
    assert min(seen.values()) >= 20, seen


def test_at_and_just_below_the_oracles_least_period() -> None:
    """1e-8 above the least period on any pins a schedule exists, 1e-8 below none does."""
    rng = random.Random(52)
    above_loads = checked = 0
    while checked < 20:
        group = random_group(rng, 3)
        if sum(group.rates) > 6:
            continue
        least = least_s(group)
        if least == math.inf:  # the DRAM forbids it
            assert not decided(group)
            continue
        checked += 1
        assert decided(group._replace(period_s=least * (1 + 1e-8))), group
        assert not decided(group._replace(period_s=least * (1 - 1e-8))), group
        above_loads += least > 1.0001 * min(lower_bound(*case.data()) for case in pinnings(group))
    assert above_loads >= 3, above_loads


@pytest.mark.parametrize("factor", [math.pi, 1e-6 / 7, 1e9 / 7])
def test_any_unit_of_time_decides_alike(factor: float) -> None:
    rng = random.Random(53)
    for _ in range(12):
        group = random_group(rng, 3)
        scaled = [
            replace(
                job,
                **{
                    name: getattr(job, name) * factor
                    for name in (
                        "rollout_s",
                        "train_s",
                        "sync_s",
                        "rollout_switch_s",
                        "train_switch_s",
                    )
                },
            )
            for job in group.jobs
        ]
        other = group._replace(jobs=scaled, period_s=group.period_s * factor)
        assert decided(other) is decided(group)


def test_equal_jobs_at_equal_and_at_different_rates() -> None:
    """Three (1, 1) on one pair: loads 3 k; with rates (2, 1, 1) 4 s, which the job of two
    iterations fills alone, and the two others run in its gaps."""
    jobs = jobs_of((1,) * 3, (1,) * 3)
    for rates, least in (((2, 2, 2), 6.0), ((2, 1, 1), 4.0), ((1, 1, 2), 4.0)):
        assert decided(Group(jobs, rates, (1, 1), least))
        assert not decided(Group(jobs, rates, (1, 1), least - 0.01))


def test_permuting_jobs_changes_nothing() -> None:
    rng = random.Random(54)
    for _ in range(30):
        group = random_group(rng, 4)
        order = rng.sample(range(len(group.jobs)), len(group.jobs))
        shuffled = group._replace(
            jobs=[group.jobs[j] for j in order], rates=[group.rates[j] for j in order]
        )
        assert decided(shuffled) is decided(group)


def test_phases_that_are_nothing_beside_the_period() -> None:
    """Trains of 1e-14 s share a node in any order: the starts hold as they are."""
    jobs = jobs_of((1, 1, 1), (1e-14, 1e-14, 1e-14))
    assert decided(Group(jobs, (1, 2, 3), (3, 1), 3.0 + 1e-12))
    assert decided(Group(jobs, (1, 2, 1), (1, 1), 4.0))


# --- limits and inputs ----------------------------------------------------------------------------


def test_a_limit_is_no_decision() -> None:
    with pytest.raises(UndecidedError) as caught:
        decide(PRECEDENCE, 1, 1, DRAM, 22.0, rates=(2, 1, 1), work=0.0)
    assert caught.value.stopped_by is StoppedBy.WORK


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ((1, 1), r"Expected 3 rates, one per job, got 2"),
        ((1, 0, 1), r"Expected a rate >= 1, got 0 \(job 'j1'\)"),
    ],
)
def test_rates_are_one_whole_number_per_job(rates: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decide(PRECEDENCE, 1, 1, DRAM, 11.0, rates=rates)
