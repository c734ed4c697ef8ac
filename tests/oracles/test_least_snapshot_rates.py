"""The snapshot oracle at several iterations per period: facts derived by hand."""

from __future__ import annotations

import pytest

from instances.hardware import DEFAULT_CLUSTER as CLUSTER
from instances.plan import Limits
from oracles.least_period import least_period, verify
from oracles.least_snapshot import group_front, least_snapshot, rates_feasible
from small_snapshots import jobs_of

#: T = 100 and 300, slo 1.05: within 105 k_0 and 315 k_1 the second needs 300 k_1.
SHORT_AND_LONG = jobs_of((20, 75), (80, 15), (0, 210), slo=(1.05, 1.05))


def limit(max_rate: int, **limits: int) -> Limits:
    return Limits(max_group_size=0, max_rate=max_rate, **limits)


@pytest.mark.parametrize(("max_rate", "front"), [(1, []), (2, []), (3, [(1, 1)])])
def test_short_job_shares_with_a_long_one_by_three_iterations(
    max_rate: int, front: list[tuple[int, int]]
) -> None:
    """300 k_1 <= 105 k_0 takes k_0 = 3. Then C = 315: job 0 starts at 0, 105, 210 and trains for
    80 s 20 s later; job 1 rolls [20, 95), trains [100, 115), syncs to 325 <= 20 + 315."""
    assert group_front(SHORT_AND_LONG, CLUSTER, limit(max_rate)) == front
    answer = least_snapshot(SHORT_AND_LONG, CLUSTER, limit(max_rate))
    assert answer.usd_per_hour == pytest.approx(
        CLUSTER.usd_per_hour(1, 1) if front else CLUSTER.usd_per_hour(2, 2)
    )
    assert [group.rates for group in answer.groups] == ([(3, 1)] if front else [(1,), (1,)])
    for group in answer.groups:
        assert [len(pairs) for pairs in group.starts_s] == list(group.rates)


@pytest.mark.parametrize(("rates", "fits"), [((3, 1), True), ((2, 1), False), ((3, 2), False)])
def test_given_rates(rates: tuple[int, int], fits: bool) -> None:
    """As above; at (3, 2) the second takes 600 s of 315."""
    assert rates_feasible(SHORT_AND_LONG, CLUSTER, 1, 1, rates) is fits
    assert rates_feasible(SHORT_AND_LONG, CLUSTER, 1, 1, rates, checks=False) is fits


@pytest.mark.parametrize(
    ("max_rate", "deadline_s", "front"),
    [(3, 9.0, []), (4, 9.0, [(2, 1)]), (4, 8.5, []), (4, 8.0, [])],
)
def test_gaps_of_a_node_exclude_what_its_load_admits(
    max_rate: int, deadline_s: float, front: list[tuple[int, int]]
) -> None:
    """(6, 2) once and (1, 1) four times: 8 <= C asks for four iterations within D_1 = D_0 / 4.
    Rollouts take 10 s, so two nodes. Trains take 6 s, and the chains 8. But between two trains of
    job 0 on one node lie C - 2 seconds, and the four of job 1 take 4 + 3 with their rollouts
    between: C >= 9. At 9: job 0 rolls [0, 6), trains [7, 9); job 1 trains at 0, 2, 4, 6. (2, 2) is
    a point too: two jobs that share no node, and four iterations of 2 s are within C."""
    jobs = jobs_of((6, 1), (2, 1), slo=(deadline_s / 8, deadline_s / 8))
    found = group_front(jobs, CLUSTER, limit(max_rate))
    assert [point for point in found if point != (2, 2)] == front


def test_switches_are_paid_in_each_iteration() -> None:
    """D = 4 and 8, T = 2 and 5: rates (2, 1), C = 8. On one rollout node lie two rollouts of 1 + w
    with a train of 1 s between and, after them, one of 2 + w: 5 + 3 w <= 8 iff w <= 1."""
    for switch_s, front in ((1, [(1, 1)]), (1.125, [])):
        jobs = jobs_of((1, 2), (1, 1), (0, 2), rollout_switch_s=(switch_s,) * 2, slo=(2, 1.6))
        assert group_front(jobs, CLUSTER, limit(2, max_rollout_nodes=1)) == front


def test_twice_the_rates_can_do_what_the_rates_cannot() -> None:
    """Why vectors such as (2, .., 2) are tried too. Six gangs whose pins meet like the wheel of
    five spokes: jobs 0..4 meet their two neighbours and job 5 all of them, rollouts of 1 s.
    Strict: beside the rollout of job 5 lies one interval, which a cycle of five fills in no less
    than 3 s, so C = 4. Twice: in five slots each rim job has two, 2 j and 2 j + 1 mod 5, job 5 two
    more: C = 7 < 8. In the order 0 2 5 4 1 6 3 no job has neighbouring slots, so its train of 1 s
    fits between. The oracle's own groups are too small for it: a search over 1,366 random shapes of
    two to five jobs above LB(g), with sync or gangs, found none whose 2 C is shorter by 0.5 %.
    """
    rollout_pins = [*((i, 5 + i, 5 + (i + 1) % 5) for i in range(5)), range(5)]
    data = ((1,) * 6, (1,) * 6, (0,) * 6, rollout_pins, [(i,) for i in range(6)])
    assert least_period(*data)[0] == pytest.approx(4)
    at = [0, 4, 1, 6, 3, 2, 5]  # second of each slot
    slots = [sorted((at[2 * i % 5], at[(2 * i + 1) % 5])) for i in range(5)] + [[2, 5]]
    starts = [[(float(x), x + 1.0) for x in pair] for pair in slots]
    assert verify(7.0, starts, *data, (2,) * 6) == []
